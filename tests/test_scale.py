"""Batches, files, Dask and several processes give the answer of one array in one process, and leave
no half file."""

import errno
import gc
import os
import subprocess
import sys
import tempfile
from concurrent.futures import BrokenExecutor, CancelledError
from types import SimpleNamespace

import joblib
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.utils.data import DataLoader, TensorDataset

import collidescope as cs
from collidescope.datasets import scenario_a
from collidescope.folds import WorkerError
from collidescope.onestep import accumulate
from collidescope.scale import _dask
from collidescope.scale.sources import posterior_batches
from helpers import assert_same, in_python

CommClosedError = pytest.importorskip("distributed.comm.core").CommClosedError
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

pytestmark = pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")
NAMES = ["a", "b", "c"]
CUT, FULL = "the line is cut", OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(scope="module")
def rows():
    """900 rows of four float32 columns with names of three classes."""
    X, codes = scenario_a(3).sample(900, 0)
    return X.astype(np.float32), np.array(NAMES)[codes]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Temporary files go below ``tmp_path``."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def batches(X, y, size=250):
    for start in range(0, len(X), size):
        yield X[start : start + size], y[start : start + size]


def frame(X, y):
    return pd.DataFrame(X, columns=[f"x{k}" for k in range(X.shape[1])]).assign(label=y)


def parquet(folder, X, y, name="rows.parquet"):
    frame(X, y).to_parquet(folder / name, row_group_size=200)
    return folder / name


def loader(X, y):
    codes = torch.from_numpy(np.searchsorted(NAMES, y))
    return DataLoader(TensorDataset(torch.from_numpy(X), codes), batch_size=512)


def in_two_files(folder, X, y):
    parquet(folder, X[:400], y[:400], "1.parquet")
    frame(X[400:], y[400:])[["label", "x3", "x2", "x1", "x0"]].to_parquet(
        folder / "2.parquet"
    )  # in another order
    return folder


def chunks_of_csv(folder, X, y):
    frame(X, y).to_csv(folder / "rows.csv", index=False)
    return pd.read_csv(folder / "rows.csv", chunksize=300)


SOURCES = {
    "generator": (lambda folder, X, y: batches(X.astype(float), list(y)), None),
    "frames and series": (
        lambda folder, X, y: batches(frame(X, y).drop(columns="label"), pd.Series(y)),
        None,
    ),
    "frames": (
        lambda folder, X, y: (frame(X, y)[k : k + 300] for k in (0, 300, 600)),
        "label",
    ),
    "parquet": (parquet, "label"),
    "folder": (in_two_files, "label"),
    "csv": (chunks_of_csv, "label"),
    "dask": (lambda folder, X, y: dd.from_pandas(frame(X, y), npartitions=4), "label"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_gives_the_whole(rows, here, name):
    (X, y), (make, target) = rows, SOURCES[name]
    found, labels = cs.spool(make(here, X, y), target)
    assert isinstance(found, np.memmap)
    assert (found.dtype, found.flags.writeable) == (np.float32, False)
    assert np.allclose(found, X, rtol=0, atol=1e-6)
    assert np.array_equal(labels, y)


def test_a_loader_is_read_as_it_is(rows, here):
    X, y = rows
    found, codes = cs.spool(loader(X, y))
    assert np.array_equal(found, X)
    assert np.array_equal(np.array(NAMES)[codes], y)


def test_chosen_columns_are_fitted_as_in_memory(rows, here):
    X, y = rows
    found, _ = cs.spool(
        parquet(here, X, y), "label", columns=["x2", "x0"], dtype=np.float64
    )
    assert found.dtype == np.float64
    assert np.array_equal(found, X[:, [2, 0]])
    clf = cs.CollisionClassifier(members=["linear"], limit=False, cv=2, random_state=0)
    whole = clf.fit(X[:, [2, 0]], y).collision_matrix_.matrix
    assert np.allclose(
        clf.fit(found, y).collision_matrix_.matrix, whole, rtol=0, atol=1e-6
    )
    assert np.allclose(
        clf.predict_proba(found), clf.predict_proba(X[:, [2, 0]]), rtol=0, atol=1e-6
    )


def test_images_keep_their_shape(here):
    images = np.random.default_rng(0).integers(0, 256, (30, 1, 4, 5), dtype=np.uint8)
    found, _ = cs.spool(batches(images, np.arange(30) % 2, 7))
    assert np.array_equal(found, images)


def test_files_in_a_folder_stay_to_be_read_again(rows, here):
    X, y = rows
    folder = here / "rows"
    folder.mkdir()
    (folder / ".X.npy.new-0123456789abcdef").write_bytes(
        b"half, of a process that was killed"
    )
    cs.spool(batches(X, y), folder=folder)
    gc.collect()
    assert np.array_equal(np.load(folder / "X.npy", mmap_mode="r"), X)
    assert np.array_equal(np.load(folder / "y.npy", allow_pickle=False), y)
    with pytest.raises(ValueError, match=r"folder .* holds X\.npy already"):
        cs.spool(batches(X, y), folder=folder)
    assert sorted(path.name for path in folder.iterdir()) == ["X.npy", "y.npy"]
    with pytest.raises(ValueError, match="cannot be a folder: File exists"):
        cs.spool(batches(X, y), folder=folder / "X.npy")


TEMPORARY = """
import os, sys, numpy as np, collidescope as cs
X, y = cs.spool([(np.ones((4, 2)), [0, 1, 0, 1])])
if not os.fork():
    sys.exit()
os.wait()
kept, _ = cs.spool([(np.ones((4, 2)), [0, 1, 0, 1])])
name, view = X.filename, np.asarray(X)[1:3]
del X
print(os.path.exists(name), view.sum())
del view
print(os.path.exists(name), os.path.exists(kept.filename))
"""


def test_temporary_files_outlive_a_fork_but_not_their_last_view(here):
    said = in_python(TEMPORARY, TMPDIR=str(here)).stdout
    assert said.split() == ["True", "4.0", "False", "True"]
    assert list(here.iterdir()) == []


GOOD = (np.ones((3, 2)), ["a", "b", "a"])
TABLE = pd.DataFrame({"x": [1.0, 2.0], "colour": ["red", "blue"], "label": ["a", "b"]})
REFUSED = [
    ([], {}, "source holds no rows"),
    (
        [GOOD, ([[1, np.nan]], ["a"])],
        {},
        "batch 1 of source, from row 3: x must be finite, got nan in row 3, column 1",
    ),
    (
        [([[1e300, 0.0]], ["a"])],
        {},
        r"1e\+300 in row 0, column 0, beyond what float32 holds: pass dtype='float64'",
    ),
    (
        [GOOD, (np.ones((3, 4)), ["a"] * 3)],
        {},
        r"batch 1 .* rows of shape \(4,\), those before have \(2,\)",
    ),
    (
        [(np.ones((3, 2)), ["a"] * 4)],
        {},
        "x and y must have the same number of rows, got 3 and 4",
    ),
    (
        [(np.ones((3, 2)), ["a", None, "b"])],
        {},
        r"y has 1 missing value \(first at row 1\)",
    ),
    (
        [GOOD, (np.ones((2, 2)), [1, 0])],
        {},
        "batch 1 .* labels that are numbers, those before are text",
    ),
    ([(np.ones(3), ["a"] * 3)], {}, r"of shape \(n, d\) or more, got shape \(3,\)"),
    ([([["red", "1"]], ["a"])], {}, "x must hold numbers, got list of dtype"),
    ([np.ones((3, 2))], {}, r"must be a pair \(x, y\), got ndarray"),
    ([TABLE], {}, "target must name the column"),
    (
        [TABLE],
        {"target": "label"},
        r"batch 0 .*column 'colour' holds (str|object), not numbers",
    ),
    (
        [TABLE[["x"]].assign(y=1), TABLE[["x"]]],
        {"target": "y"},
        r"batch 1 .*it has no column 'y'",
    ),
    (
        [GOOD],
        {"target": "label"},
        "target names a column of a file or DataFrame, but the batch is a tuple",
    ),
    ([GOOD], {"columns": ["x"]}, "columns and target go together"),
    (
        np.ones((3, 2)),
        {},
        "source must be a file or an iterable.*in memory needs no spool",
    ),
    ("file", {}, "target must name the column of labels"),
    ("file", {"target": "lable"}, "no column 'lable'"),
    ("file", {"target": "label"}, "column 'colour' holds .*string.*TableClassifier"),
    (
        "file",
        {"target": "label", "columns": ["x", "label"]},
        "columns must not hold the target",
    ),
    ("file", {"target": "label", "columns": "x"}, "columns must be a list"),
    (
        "file",
        {"target": "label", "columns": ["x"], "dtype": "int8"},
        "dtype must be one of 'float32', 'float64'",
    ),
    ("file", {"target": "label", "columns": ["x"], "batch_size": 0}, "batch_size"),
    (
        "file",
        {"target": "label", "columns": ["x"], "folder": 3},
        "folder must be the name",
    ),
]


@pytest.mark.parametrize(("source", "options", "message"), REFUSED)
def test_what_is_refused_leaves_nothing(here, source, options, message):
    TABLE.to_parquet(here / "t.parquet")
    with pytest.raises(ValueError, match=message):
        cs.spool(here / "t.parquet" if isinstance(source, str) else source, **options)
    assert [path.name for path in here.iterdir()] == ["t.parquet"]


def test_gaps_in_a_file_are_said_by_place(here):
    table = pa.table(
        {
            "x": pa.array([1, 2, None, 4]),
            "flag": pa.array([True, False, True, True]),
            "y": list("abab"),
        }
    )
    pq.write_table(table, here / "t.parquet", row_group_size=2)
    with pytest.raises(
        ValueError,
        match=r"batch 1 of source, from row 2: .* got nan in row 2, column 'x'",
    ):
        cs.spool(here / "t.parquet", "y", batch_size=2)
    X, _ = cs.spool(here / "t.parquet", "y", columns=["flag"])
    assert X.ravel().tolist() == [1, 0, 1, 1]


def test_damage_in_a_file_is_said_by_name(rows, here):
    path = parquet(here, *rows)
    content = bytearray(path.read_bytes())
    content[100 : len(content) // 2] = bytes(len(content) // 2 - 100)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"rows\.parquet' cannot be read to its end"):
        cs.spool(path, "label")
    path.write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"rows\.parquet' is no Parquet file"):
        cs.spool(path, "label")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        cs.spool(here / "none.parquet", "label")


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(CUT), RuntimeError(CUT), FULL], ids=str
)
def test_a_source_that_fails_or_a_full_disk_leaves_nothing(
    rows, here, monkeypatch, error
):
    def fail(*_):
        raise error

    def broken():
        yield from batches(*rows)
        fail()

    (here / "kept").mkdir()
    for folder in (None, here / "kept", here / "new"):
        with pytest.raises(
            type(error), match=r"the line is cut|disk of .* is full.*folder="
        ):
            cs.spool(broken(), folder=folder)
    monkeypatch.setattr(os, "replace", fail)  # when the labels are written already
    with pytest.raises(type(error)):
        cs.spool(batches(*rows), folder=here / "kept")
    assert list(here.rglob("*")) == [here / "kept"]


SPOOL_MEMORY = """
import sys
import numpy as np
import collidescope as cs
n_batches = int(sys.argv[1])
rng = np.random.default_rng(0)
batch = rng.normal(size=(20_000, 25)).astype(np.float32), rng.integers(0, 3, 20_000).astype(np.int8)
X, y = cs.spool((batch for _ in range(n_batches)))
assert X.shape == (20_000 * n_batches, 25)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_of_a_spool_does_not_grow_with_the_rows(here):
    few, many = (
        1024 * int(in_python(SPOOL_MEMORY, n, TMPDIR=str(here)).stdout)
        for n in (10, 110)
    )
    # a fifth of what the rows take
    assert many - few < 0.2 * 100 * 20_000 * 25 * 4


# ------------------------------------------------------------------------------------- accumulating


@pytest.fixture(scope="module")
def stream():
    """Posteriors, labels and weights of 3,000 rows."""
    problem = scenario_a(3)
    X, codes = problem.sample(3000, 0)
    w = np.random.default_rng(0).integers(0, 4, 3000).astype(float)
    return problem.posteriors(X), np.array(NAMES)[codes], w


def test_chunks_of_any_kind_give_the_s_of_the_whole(stream):
    P, y, w = stream
    whole = cs.collision_matrix_from_posteriors(P, y)
    assert_same(accumulate(batches(P, y, 700), NAMES), whole)
    weighted = ((P[k::3], y[k::3], w[k::3]) for k in range(3))
    assert_same(
        accumulate(weighted, NAMES),
        cs.collision_matrix_from_posteriors(P, y, sample_weight=w),
    )
    assert np.allclose(
        accumulate(loader(P, y), [0, 1, 2]).matrix, whole.matrix, atol=1e-10
    )
    unlabelled = accumulate((p for p, _ in batches(P, y, 700)), NAMES)
    assert np.allclose(
        unlabelled.matrix, cs.collision_matrix_from_posteriors(P).matrix, atol=1e-10
    )


def test_a_bad_chunk_is_named(stream):
    P, y, _ = stream
    for chunks, message in (
        ([(P[:5], y[:5]), (P[:5], ["z"] * 5)], r"chunk 1 of chunks: y .*'z'"),
        ("file.parquet", r"chunks must be an iterable.*posterior_batches"),
    ):
        with pytest.raises(ValueError, match=message):
            accumulate(chunks, NAMES)


def test_parquet_is_accumulated_batch_by_batch(stream, tmp_path):
    P, y, _ = stream
    whole, path = cs.collision_matrix_from_posteriors(P, y), tmp_path / "p.parquet"
    pq.write_table(
        pa.table({name: P[:, k] for k, name in enumerate(NAMES)} | {"label": y}),
        path,
        row_group_size=500,
    )
    assert_same(
        accumulate(posterior_batches(path, "label", batch_size=300), NAMES), whole
    )
    assert_same(accumulate(posterior_batches(tmp_path, "label"), NAMES), whole)
    turned = accumulate(
        posterior_batches(path, "label", columns=NAMES[::-1]), NAMES[::-1]
    )
    assert np.allclose(turned.matrix[::-1, ::-1], whole.matrix, atol=1e-10)
    assert np.allclose(
        next(iter(posterior_batches(path, columns=NAMES, batch_size=300))), P[:300]
    )
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"a folder without a \.parquet file"):
        posterior_batches(tmp_path / "empty")
    pd.DataFrame({"label": ["a", "b"]}).to_parquet(tmp_path / "labels.parquet")
    with pytest.raises(ValueError, match="must have a column beside 'label'"):
        posterior_batches(tmp_path / "labels.parquet", "label")


def test_dask_arrays_are_accumulated_where_they_are(stream):
    P, y, w = stream
    empty = da.from_array(P[:0], chunks=(1, 3))  # a block without rows adds nothing
    lazy_P, lazy_y = (
        da.concatenate([empty, da.from_array(P, chunks=(700, 2))]),
        da.from_array(y, chunks=450),
    )
    whole = cs.collision_matrix_from_posteriors(P, y)
    assert_same(cs.collision_matrix_from_posteriors(lazy_P, lazy_y), whole)
    weighted = cs.collision_matrix_from_posteriors(
        lazy_P, lazy_y, sample_weight=da.from_array(w, chunks=3000)
    )
    assert_same(weighted, cs.collision_matrix_from_posteriors(P, y, sample_weight=w))
    uniform = cs.collision_matrix_from_posteriors(lazy_P, lazy_y, priors="uniform")
    assert_same(uniform, cs.collision_matrix_from_posteriors(P, y, priors="uniform"))
    assert_same(
        cs.collision_matrix_from_posteriors(lazy_P),
        cs.collision_matrix_from_posteriors(P),
    )  # classes 0, 1, 2


def test_dask_frames_are_accumulated_by_partition_whatever_the_partitions_of_their_columns(
    stream, tmp_path
):
    """Dask reads one column of a file in fewer partitions than ten: the two were once refused as
    not matching."""
    P, y, w = stream
    frame = pd.DataFrame(np.repeat(P, 20, axis=0), columns=NAMES).assign(
        label=np.repeat(y, 20), w=np.repeat(w, 20)
    )
    frame.to_parquet(tmp_path / "p.parquet", row_group_size=3000)
    table = dd.read_parquet(tmp_path / "p.parquet", split_row_groups=2)
    found = cs.collision_matrix_from_posteriors(
        table[NAMES], table["label"], sample_weight=table["w"]
    )
    whole = cs.collision_matrix_from_posteriors(
        frame[NAMES], frame["label"], sample_weight=frame["w"], classes=NAMES
    )
    assert_same(found, whole)


def test_a_fitted_classifier_goes_over_dask_collections_in_one_pass():
    problem = scenario_a(3)
    X, y = problem.sample(600, 0)
    new, labels = problem.sample(900, 1)
    model = LogisticRegression().fit(X, y)
    whole = cs.estimate_collisions(model, new, labels, cv="prefit")
    lazy, lazy_y = (
        da.from_array(new, chunks=(250, 2)),
        da.from_array(labels, chunks=250),
    )
    assert_same(cs.estimate_collisions(model, lazy, lazy_y, cv="prefit"), whole)
    table = dd.from_pandas(pd.DataFrame(new).assign(label=labels), npartitions=4)
    model.fit(pd.DataFrame(X), y)
    assert_same(
        cs.estimate_collisions(
            model, table.drop(columns="label"), table["label"], cv="prefit"
        ),
        whole,
    )


def test_dask_collections_that_do_not_match_are_refused(stream):
    P, y, lazy = stream[0], stream[1], da.from_array(stream[0])
    for labels, message in (
        (y, "y must be a Dask collection"),
        (da.from_array(y[:-1]), "P and y must have the same number of rows"),
        (
            dd.from_pandas(pd.Series(y), npartitions=1),
            "must both be Dask arrays or both Dask DataFrames",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            cs.collision_matrix_from_posteriors(lazy, labels)
    table = dd.from_pandas(
        pd.DataFrame(P, columns=["a", "b", "collidescope: y"]), npartitions=1
    )
    with pytest.raises(ValueError, match="P must not have a column called"):
        cs.collision_matrix_from_posteriors(table, table["a"])
    with pytest.raises(ValueError, match="cv must be 'prefit'"):
        cs.estimate_collisions(LogisticRegression(), lazy, y)
    with pytest.raises(ValueError, match="classifier is not fitted"):
        cs.estimate_collisions(LogisticRegression(), lazy, y, cv="prefit")
    fitted = LogisticRegression().fit(P, y)
    with pytest.raises(ValueError, match="groups and votes must be left out"):
        cs.estimate_collisions(fitted, lazy, da.from_array(y), cv="prefit", groups=y)


# ----------------------------------------------------------------------------------- a Dask cluster


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes, which joblib is told to use; a task may kill one of them and no
    more."""
    distributed, dask = pytest.importorskip("distributed"), pytest.importorskip("dask")
    options = {
        "n_workers": 2,
        "threads_per_worker": 1,
        "processes": True,
        "dashboard_address": None,
    }
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(**options) as local,
        distributed.Client(local) as client,
        joblib.parallel_config(backend="dask", wait_for_workers_timeout=60),
    ):
        yield client


@pytest.mark.slow
def test_work_on_a_cluster_is_that_of_one_process(cluster):
    X, y = scenario_a(3).sample(300, 0)

    def replicate(seed, n_jobs=None):
        clf = cs.CollisionClassifier(
            members=["linear"], limit=False, cv=2, random_state=seed, n_jobs=n_jobs
        )
        return clf.fit(X, y).collision_matrix_.matrix

    alone = [replicate(seed) for seed in range(2)]
    assert np.allclose(replicate(0, n_jobs=-1), alone[0], rtol=0, atol=1e-6)
    spread = joblib.Parallel()(joblib.delayed(replicate)(seed) for seed in range(2))
    assert np.allclose(spread, alone, rtol=0, atol=1e-6)
    spread, expected = (
        cs.estimate_collisions(
            LogisticRegression(), X, y, cv=2, limit=False, n_jobs=n, random_state=0
        )
        for n in (-1, None)
    )
    assert_same(spread, expected)


@pytest.mark.slow
def test_what_a_dying_worker_had_is_done_once_more(cluster, stream, tmp_path):
    """joblib's own way to Dask never returned once a task had been given up."""

    def die_once(name):
        try:
            os.close(os.open(tmp_path / name, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os._exit(9)

    class Dying(
        LogisticRegression
    ):  # local, so that workers get its code and need not import this module
        def fit(self, X, y):
            if self.C == 1:
                die_once("fold")
            elif len(X) == 160:
                os._exit(9)
            return super().fit(X, y)

    def dying(block):
        die_once("block")
        return block

    P, labels, _ = stream
    lazy = da.from_array(P, chunks=(500, 3)).map_blocks(dying, meta=P[:0])
    found = cs.collision_matrix_from_posteriors(
        lazy, da.from_array(labels, chunks=500), classes=NAMES
    )
    assert_same(found, cs.collision_matrix_from_posteriors(P, labels))
    X, y = scenario_a(3).sample(300, 0)
    options = {"limit": False, "n_jobs": -1, "random_state": 0}
    expected = cs.estimate_collisions(
        LogisticRegression(), X, y, cv=2, **options | {"n_jobs": 1}
    )
    assert_same(cs.estimate_collisions(Dying(), X, y, cv=2, **options), expected)
    assert {path.name for path in tmp_path.iterdir()} == {"fold", "block"}
    halves = [
        (np.arange(160), np.arange(160, 300)),
        (np.arange(160, 300), np.arange(160)),
    ]
    with pytest.raises(
        WorkerError, match=r"a worker process died with . of 2 folds trained"
    ):
        cs.estimate_collisions(Dying(C=2), X, y, cv=halves, **options)


class ForgetfulClient:
    """So many times it loses all calls when asked for the second one, or a worker while it sends
    rows out."""

    def __init__(self, forgets, loses):
        self.forgets, self.loses, self.sent = forgets, loses, 0

    def scatter(self, function, **_):
        self.sent += 1
        if self.sent <= self.loses:
            raise CommClosedError("Stream is closed")
        return function

    def submit(self, call, function, number, **_):
        def result():
            if number == 1 and self.sent <= self.forgets:
                raise CancelledError("already forgotten")
            return call(function, number)

        return SimpleNamespace(result=result)

    def cancel(self, calls):
        pass


def test_rows_are_sent_again_when_a_worker_died_meanwhile():
    """On a busy machine both workers fell silent, and with them the only copies of the rows."""
    for client in (ForgetfulClient(2, 0), ForgetfulClient(0, 2)):
        asked = []
        assert list(
            _dask.results(
                client,
                lambda number, asked=asked: asked.append(number) or number,
                3,
                pause=0,
            )
        ) == [0, 1, 2]
        assert asked == [0, 1, 2]
    for client in (ForgetfulClient(3, 0), ForgetfulClient(0, 3)):
        with pytest.raises(
            BrokenExecutor,
            match=r"Dask gave a call up: (already forgotten|Stream is closed)",
        ):
            list(_dask.results(client, abs, 3, pause=0))


SETTINGS = {"limit": False, "cv": 2, "random_state": 0, "device": "cpu"}
SETTINGS |= {"training": {"hidden_layer_sizes": (8,), "max_epochs": 4, "patience": 0}}
MODELS = [SETTINGS | {"members": ["network"]}, SETTINGS | {"members": [cs.Pairwise()]}]

FIT = """
import sys
import torch, torch.distributed as dist
from collidescope import CollisionClassifier
torch.set_num_threads(1)
rank = int(sys.argv[2])
place = f"file://{sys.argv[1]}/meeting"
dist.init_process_group("gloo", init_method=place, rank=rank, world_size=2)
given = torch.load(f"{sys.argv[1]}/given.pt", weights_only=False)
fits = [CollisionClassifier(**s).fit(given["X"], given["y"]) for s in given["models"]]
found = [clf.collision_matrix_.matrix for clf in fits]
torch.save({"S": found}, f"{sys.argv[1]}/{rank}.pt")
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_find_the_s_of_one(tmp_path):
    X, y = scenario_a(3).sample(300, 0)
    torch.save({"X": X, "y": y, "models": MODELS}, tmp_path / "given.pt")
    command, environment = (
        [sys.executable, "-c", FIT, str(tmp_path)],
        os.environ | {"OMP_NUM_THREADS": "1"},
    )
    started = [
        subprocess.Popen([*command, str(rank)], env=environment, stderr=subprocess.PIPE)
        for rank in (0, 1)
    ]
    for process in started:
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said[-2000:]
    first, second = (
        torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in (0, 1)
    )
    for settings, mine, theirs in zip(MODELS, first["S"], second["S"], strict=True):
        alone = cs.CollisionClassifier(**settings).fit(X, y).collision_matrix_
        assert np.array_equal(mine, theirs)
        assert (np.abs(mine - alone.matrix) < 0.1 * alone.stderr).all()
