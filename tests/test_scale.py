"""Batches, files, Dask and several processes give the answer of one array in one process, and leave no half file."""

from __future__ import annotations

import errno
import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import BrokenExecutor, CancelledError
from functools import partial
from types import SimpleNamespace

import joblib
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import collidescope as cs
from collidescope.datasets import scenario_a
from collidescope.estimate import accumulate
from collidescope.folds import WorkerError
from collidescope.pairwise.pairs import BalancedPairLoss
from collidescope.scale import _dask, sources
from collidescope.scale.sources import posterior_batches

da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

NAMES = ["a", "b", "c"]

# ------------------------------------------------------------------------------------------ spooling


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


def parquet(folder, X, y, name="rows.parquet", **options):
    frame(X, y).to_parquet(folder / name, row_group_size=200, **options)
    return folder / name


def loader(X, y):
    codes = torch.from_numpy(np.searchsorted(NAMES, y))
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.from_numpy(X), codes), batch_size=128)


def in_two_files(folder, X, y):
    parquet(folder, X[:400], y[:400], "1.parquet")
    frame(X[400:], y[400:])[["label", "x3", "x2", "x1", "x0"]].to_parquet(folder / "2.parquet")  # in another order
    return folder


def chunks_of_csv(folder, X, y):
    frame(X, y).to_csv(folder / "rows.csv", index=False)
    return pd.read_csv(folder / "rows.csv", chunksize=300)


def dask_frame(folder, X, y):
    return dd.from_pandas(frame(X, y), npartitions=4)


@pytest.mark.parametrize(
    ("make", "target"),
    [
        (lambda folder, X, y: batches(X.astype(float), list(y)), None),
        (lambda folder, X, y: batches(frame(X, y).drop(columns="label"), pd.Series(y)), None),
        (lambda folder, X, y: (frame(X, y)[k : k + 300] for k in (0, 300, 600)), "label"),
        (parquet, "label"),
        (in_two_files, "label"),
        (chunks_of_csv, "label"),
        (dask_frame, "label"),
    ],
    ids=["generator", "frames and series", "frames", "parquet", "folder", "csv", "dask"],
)
def test_every_source_gives_the_rows_and_labels_of_the_whole(rows, here, make, target):
    X, y = rows
    found, labels = cs.spool(make(here, X, y), target)
    assert isinstance(found, np.memmap)
    assert found.dtype == np.float32
    assert not found.flags.writeable
    assert np.allclose(found, X, rtol=0, atol=1e-6)
    assert np.array_equal(labels, y)


def test_a_loader_images_and_chosen_columns_come_as_they_are_asked_for(rows, here):
    X, y = rows
    found, codes = cs.spool(loader(X, y))
    assert np.array_equal(found, X)
    assert np.array_equal(np.array(NAMES)[codes], y)
    found, _ = cs.spool(parquet(here, X, y), "label", columns=["x2", "x0"], dtype=np.float64)
    assert found.dtype == np.float64
    assert np.array_equal(found, X[:, [2, 0]])
    images = np.random.default_rng(0).integers(0, 256, (30, 1, 4, 5), dtype=np.uint8)
    found, _ = cs.spool(batches(images, np.arange(30) % 2, 7))
    assert np.array_equal(found, images)


@pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")
def test_the_fit_is_that_of_the_same_rows_in_memory(rows, here):
    X, y = rows
    clf = cs.CollisionClassifier(members=["linear"], limit=False, cv=2, random_state=0)
    whole = clf.fit(X, y).collision_matrix_
    mapped, labels = cs.spool(parquet(here, X, y), "label")
    found = clf.fit(mapped, labels)
    assert np.allclose(found.collision_matrix_.matrix, whole.matrix, rtol=0, atol=1e-6)
    assert np.allclose(found.predict_proba(mapped), found.predict_proba(X), rtol=0, atol=1e-6)


def test_files_in_a_folder_stay_and_can_be_read_again(rows, here):
    X, y = rows
    (here / "new" / "rows").mkdir(parents=True)
    (here / "new" / "rows" / ".X.npy.new-0123").write_bytes(b"half, of a process that was killed")
    cs.spool(batches(X, y), folder=here / "new" / "rows")
    gc.collect()
    assert np.array_equal(np.load(here / "new" / "rows" / "X.npy", mmap_mode="r"), X)
    assert np.array_equal(np.load(here / "new" / "rows" / "y.npy", allow_pickle=False), y)
    with pytest.raises(ValueError, match=r"folder .* holds X\.npy already"):
        cs.spool(batches(X, y), folder=here / "new" / "rows")
    assert sorted(path.name for path in (here / "new" / "rows").iterdir()) == ["X.npy", "y.npy"]


def test_temporary_files_go_with_the_last_view_of_them(rows, here):
    X, y = rows
    found, _ = cs.spool(batches(X, y))
    view = np.asarray(found)[10:20]
    del found
    gc.collect()
    assert len(list(here.rglob("X.npy"))) == 1
    assert np.array_equal(view, X[10:20])
    del view
    gc.collect()
    assert list(here.iterdir()) == []


def test_temporary_files_go_at_the_end_of_the_process_and_not_with_a_fork_of_it(here):
    script = (
        "import os, sys, numpy as np, collidescope as cs\n"
        "X, y = cs.spool([(np.ones((4, 2)), [0, 1, 0, 1])])\n"
        "if not os.fork():\n"
        "    sys.exit()\n"
        "os.wait()\n"
        "print(os.path.exists(X.filename))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | {"TMPDIR": str(here)}, capture_output=True, text=True
    )
    assert done.stdout.split() == ["True"], done.stderr
    assert list(here.iterdir()) == []


# ---------------------------------------------------------------- what is refused

GOOD = (np.ones((3, 2)), ["a", "b", "a"])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "source holds no rows"),
        (
            [GOOD, ([[1.0, np.nan]], ["a"])],
            r"batch 1 of source, from row 3: x must be finite, got nan in row 3, column 1",
        ),
        ([(np.full((2, 1, 2, 2), np.nan), [0, 1])], r"in row 0, column \(0, 0, 0\)"),
        ([([[1e300, 0.0]], ["a"])], "1e\\+300 in row 0, column 0, beyond what float32 holds: pass dtype='float64'"),
        ([GOOD, (np.ones((3, 4)), ["a"] * 3)], r"batch 1 .* rows of shape \(4,\), those before have \(2,\)"),
        ([(np.ones((3, 2)), ["a"] * 4)], "x and y must have the same number of rows, got 3 and 4"),
        ([(np.ones((3, 2)), ["a", None, "b"])], r"y has 1 missing labels \(first at row 1\)"),
        ([(np.ones((3, 2)), ["a", 1, "b"])], "y must hold labels of one kind"),
        ([GOOD, (np.ones((2, 2)), [1, 0])], "batch 1 .* labels that are numbers, those before are text"),
        ([(np.ones(3), ["a"] * 3)], r"of shape \(n, d\) or more, got shape \(3,\)"),
        ([([["red", "1"]], ["a"])], "x must hold numbers, got list of dtype"),
        ([(np.ones((1, 2)) * 1j, ["a"])], "x must hold numbers, got ndarray of dtype complex"),
        ([np.ones((3, 2))], r"must be a pair \(x, y\), got ndarray"),
        ([pd.DataFrame({"x": [1.0]})], "target must name the column"),
        (np.ones((3, 2)), "source must be a file or an iterable.*in memory needs no spool"),
    ],
)
def test_batches_that_are_not_as_they_should_be_are_refused(here, source, message):
    with pytest.raises(ValueError, match=message):
        cs.spool(source)
    assert list(here.iterdir()) == []


TABLE = pd.DataFrame({"x": [1.0, 2.0], "colour": ["red", "blue"], "label": ["a", "b"]})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "target must name the column of labels"),
        ({"target": "lable"}, "no column 'lable'"),
        ({"target": "label"}, "column 'colour' holds .*string.*TableClassifier"),
        ({"target": "label", "columns": ["x", "label"]}, "columns must not hold the target"),
        ({"target": "label", "columns": "x"}, "columns must be a list"),
        ({"target": "label", "columns": ["x"], "dtype": "int8"}, "dtype must be one of 'float32', 'float64', got"),
        ({"target": "label", "columns": ["x"], "batch_size": 0}, "batch_size"),
        ({"target": "label", "columns": ["x"], "folder": 3}, "folder must be the name"),
    ],
)
def test_options_that_do_not_suit_a_file_are_refused(here, options, message):
    TABLE.to_parquet(here / "t.parquet")
    with pytest.raises(ValueError, match=message):
        cs.spool(here / "t.parquet", **options)
    assert [path.name for path in here.iterdir()] == ["t.parquet"]


def test_frames_and_pairs_are_not_taken_for_one_another(here):
    with pytest.raises(ValueError, match=r"batch 0 .*column 'colour' holds (str|object), not numbers"):
        cs.spool([TABLE], "label")
    with pytest.raises(ValueError, match=r"batch 1 .*there is no column 'colour'"):
        cs.spool([TABLE.assign(colour=1), TABLE.drop(columns="colour")], "label")
    with pytest.raises(ValueError, match="target names a column of a file or DataFrame, but the batch is a tuple"):
        cs.spool([GOOD], "label")
    with pytest.raises(ValueError, match="columns and target go together"):
        cs.spool([GOOD], columns=["x"])


def test_gaps_in_a_file_are_said_by_row_and_column(here):
    table = pa.table({"x": pa.array([1, 2, None, 4]), "flag": pa.array([True, False, True, True]), "y": list("abab")})
    pq.write_table(table, here / "t.parquet", row_group_size=2)
    with pytest.raises(
        ValueError, match="batch 1 of source, from row 2: x must be finite, got nan in row 2, column 'x'"
    ):
        cs.spool(here / "t.parquet", "y", batch_size=2)
    X, _ = cs.spool(here / "t.parquet", "y", columns=["flag"])
    assert X.ravel().tolist() == [1, 0, 1, 1]


def test_a_damaged_file_is_named(rows, here):
    path = parquet(here, *rows)
    content = bytearray(path.read_bytes())
    content[100 : len(content) // 2] = bytes(len(content) // 2 - 100)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"rows\.parquet' cannot be read to its end"):
        cs.spool(path, "label")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        cs.spool(here / "none.parquet", "label")
    assert [left.name for left in here.iterdir()] == ["rows.parquet"]


# ---------------------------------------------------------------- faults


class FullDisk:
    """A file on a disk with room for so many bytes."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def write(self, data):
        self.room -= memoryview(data).nbytes
        if self.room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.file.write(data)

    def __getattr__(self, name):
        return getattr(self.file, name)


@pytest.mark.parametrize("given", [False, True])
def test_a_full_disk_is_said_and_nothing_is_left_on_it(rows, here, monkeypatch, given):
    growing = sources._GrowingFile
    monkeypatch.setattr(sources, "_GrowingFile", lambda file, dtype: growing(FullDisk(file, 5000), dtype))
    with pytest.raises(OSError, match=r"disk of .* is full.*folder=") as caught:
        cs.spool(batches(*rows), folder=here / "rows" if given else None)
    assert caught.value.errno == errno.ENOSPC
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_source_that_fails_is_heard_and_leaves_nothing(rows, here, error):
    def broken():
        yield from batches(*rows)
        raise error("the line is cut")

    (here / "kept").mkdir()
    for folder in (None, here / "kept", here / "new"):
        with pytest.raises(error, match="the line is cut"):
            cs.spool(broken(), folder=folder)
    assert list(here.rglob("*")) == [here / "kept"]


# ---------------------------------------------------------------- scale


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
    environment = os.environ | {"TMPDIR": str(here)}
    used = [
        1024 * int(subprocess.check_output([sys.executable, "-c", SPOOL_MEMORY, str(n)], env=environment))
        for n in (10, 110)
    ]
    more_rows = 100 * 20_000 * 25 * 4
    assert used[1] - used[0] < 0.2 * more_rows


# ------------------------------------------------------------------------------------------ accumulating


@pytest.fixture(scope="module")
def stream():
    """Posteriors, labels and weights of 3,000 rows, and their S."""
    problem = scenario_a(3)
    X, codes = problem.sample(3000, 0)
    w = np.random.default_rng(0).integers(0, 4, 3000).astype(float)
    return problem.posteriors(X), np.array(NAMES)[codes], w


def same(found: cs.CollisionMatrix, expected: cs.CollisionMatrix) -> bool:
    parts = ("matrix", "priors", "stderr", "counts")
    close = all(np.allclose(getattr(found, p), getattr(expected, p), rtol=0, atol=1e-10) for p in parts[:3])
    return close and found.classes.tolist() == expected.classes.tolist() and np.isclose(found.pber, expected.pber)


def chunks(*arrays, size=700):
    for start in range(0, len(arrays[0]), size):
        yield tuple(array[start : start + size] for array in arrays)


def test_chunks_of_any_kind_give_the_s_of_the_whole(stream):
    P, y, w = stream
    whole = cs.collision_matrix_from_posteriors(P, y)
    assert same(accumulate(chunks(P, y), NAMES), whole)
    assert same(accumulate(chunks(P, y, w), NAMES), cs.collision_matrix_from_posteriors(P, y, sample_weight=w))
    frame = pd.DataFrame(P)
    assert same(accumulate(((frame[k::2], y[k::2]) for k in range(2)), NAMES), whole)
    codes = torch.from_numpy(np.searchsorted(NAMES, y))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.from_numpy(P), codes), batch_size=512)
    assert np.allclose(accumulate(loader, [0, 1, 2]).matrix, whole.matrix, atol=1e-10)
    unlabelled = accumulate((p for (p,) in chunks(P)), NAMES)
    assert np.allclose(unlabelled.matrix, cs.collision_matrix_from_posteriors(P).matrix, atol=1e-10)


def test_a_bad_chunk_is_named(stream):
    P, y, _ = stream
    with pytest.raises(ValueError, match=r"chunk 1 of chunks: y .*'z'"):
        accumulate([(P[:5], y[:5]), (P[:5], ["z"] * 5)], NAMES)
    with pytest.raises(ValueError, match=r"chunks must be an iterable.*posterior_batches"):
        accumulate("file.parquet", NAMES)
    with pytest.raises(ValueError, match="the accumulator is empty"):
        accumulate([], NAMES)


@pytest.fixture
def posterior_file(stream, tmp_path):
    P, y, _ = stream
    table = pa.table({name: P[:, k] for k, name in enumerate(NAMES)} | {"label": y})
    pq.write_table(table, tmp_path / "p.parquet", row_group_size=500)
    return tmp_path / "p.parquet"


def test_parquet_is_accumulated_batch_by_batch(stream, posterior_file):
    P, y, _ = stream
    whole = cs.collision_matrix_from_posteriors(P, y)
    assert same(accumulate(posterior_batches(posterior_file, "label", batch_size=300), NAMES), whole)
    assert same(accumulate(posterior_batches(posterior_file.parent, "label"), NAMES), whole)
    lengths = [len(p) for p, _ in posterior_batches(posterior_file, "label", batch_size=300)]
    assert max(lengths) <= 300
    turned = accumulate(posterior_batches(posterior_file, "label", columns=NAMES[::-1]), NAMES[::-1])
    assert np.allclose(turned.matrix[::-1, ::-1], whole.matrix, atol=1e-10)
    assert np.allclose(next(iter(posterior_batches(posterior_file, columns=NAMES, batch_size=300))), P[:300])
    with pytest.raises(FileNotFoundError, match="does not exist"):
        posterior_batches(posterior_file.parent / "none.parquet")
    (posterior_file.parent / "empty").mkdir()
    with pytest.raises(ValueError, match=r"a folder without a \.parquet file"):
        posterior_batches(posterior_file.parent / "empty")


def test_a_parquet_file_of_labels_alone_or_with_damaged_rows_is_refused(posterior_file):
    pd.DataFrame({"label": ["a", "b"]}).to_parquet(posterior_file.parent / "labels.parquet")
    with pytest.raises(ValueError, match="must have a column beside 'label'"):
        posterior_batches(posterior_file.parent / "labels.parquet", "label")
    content = bytearray(posterior_file.read_bytes())
    content[100 : len(content) // 2] = bytes(len(content) // 2 - 100)
    posterior_file.write_bytes(content)
    with pytest.raises(ValueError, match=r"p\.parquet' cannot be read to its end"):
        accumulate(posterior_batches(posterior_file, "label"), NAMES)


def test_dask_arrays_are_accumulated_where_they_are(stream):
    P, y, w = stream
    lazy_P, lazy_y = da.from_array(P, chunks=(700, 2)), da.from_array(y, chunks=450)
    whole = cs.collision_matrix_from_posteriors(P, y)
    assert same(cs.collision_matrix_from_posteriors(lazy_P, lazy_y), whole)
    assert same(cs.collision_matrix_from_posteriors(lazy_P, lazy_y, classes=NAMES), whole)
    weighted = cs.collision_matrix_from_posteriors(lazy_P, lazy_y, sample_weight=da.from_array(w, chunks=3000))
    assert same(weighted, cs.collision_matrix_from_posteriors(P, y, sample_weight=w))
    uniform = cs.collision_matrix_from_posteriors(lazy_P, lazy_y, priors="uniform")
    assert same(uniform, cs.collision_matrix_from_posteriors(P, y, priors="uniform"))
    alone = cs.collision_matrix_from_posteriors(lazy_P, classes=NAMES)
    assert np.allclose(alone.matrix, cs.collision_matrix_from_posteriors(P).matrix, atol=1e-10)


def test_dask_frames_are_accumulated_by_partition_with_classes_from_their_columns(stream):
    P, y, _ = stream
    table = dd.from_pandas(pd.DataFrame(P, columns=NAMES).assign(label=y), npartitions=7)
    found = cs.collision_matrix_from_posteriors(table[NAMES], table["label"])
    assert same(found, cs.collision_matrix_from_posteriors(P, y))


def test_labels_and_posteriors_of_a_parquet_file_stay_together_whatever_their_sizes(stream, tmp_path):
    """Dask reads one column of a file in fewer partitions than ten: the two were once refused as not matching."""
    P, y, w = stream
    frame = pd.DataFrame(np.repeat(P, 20, axis=0), columns=NAMES).assign(label=np.repeat(y, 20), w=np.repeat(w, 20))
    frame.to_parquet(tmp_path / "p.parquet", row_group_size=3000)
    table = dd.read_parquet(tmp_path / "p.parquet", split_row_groups=2)
    found = cs.collision_matrix_from_posteriors(table[NAMES], table["label"], sample_weight=table["w"])
    whole = cs.collision_matrix_from_posteriors(frame[NAMES], frame["label"], sample_weight=frame["w"], classes=NAMES)
    assert same(found, whole)


def test_a_fitted_classifier_goes_over_dask_collections_in_one_pass():
    problem = scenario_a(3)
    X, y = problem.sample(600, 0)
    new, labels = problem.sample(900, 1)
    model = LogisticRegression().fit(X, y)
    whole = cs.estimate_collisions(model, new, labels, cv="prefit")
    lazy, lazy_y = da.from_array(new, chunks=(250, 2)), da.from_array(labels, chunks=250)
    assert same(cs.estimate_collisions(model, lazy, lazy_y, cv="prefit"), whole)
    frame = dd.from_pandas(pd.DataFrame(new).assign(label=labels), npartitions=4)
    found = cs.estimate_collisions(
        model.fit(pd.DataFrame(X), y), frame.drop(columns="label"), frame["label"], cv="prefit"
    )
    assert same(found, whole)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda P, y: cs.collision_matrix_from_posteriors(da.from_array(P), y), "y must be a Dask collection"),
        (
            lambda P, y: cs.collision_matrix_from_posteriors(da.from_array(P), da.from_array(y[:-1])),
            "P and y must have the same number of rows",
        ),
        (lambda P, y: cs.estimate_collisions(LogisticRegression(), da.from_array(P), y), "cv must be 'prefit'"),
        (
            lambda P, y: cs.estimate_collisions(LogisticRegression(), da.from_array(P), y, cv="prefit"),
            "classifier must be fitted",
        ),
    ],
)
def test_dask_collections_that_do_not_match_are_refused(stream, call, message):
    with pytest.raises(ValueError, match=message):
        call(stream[0], stream[1])


def slowly(block):
    time.sleep(0.05)
    return block


@pytest.mark.slow
def test_a_cluster_gives_the_same_s_also_when_one_of_its_processes_dies(stream):
    distributed = pytest.importorskip("distributed")
    P, y, _ = stream
    whole = cs.collision_matrix_from_posteriors(P, y)
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        pids = list(client.run(os.getpid).values())
        lazy = da.from_array(P, chunks=(50, 3)).map_blocks(slowly, dtype=float)
        killer = threading.Timer(0.8, os.kill, (pids[0], signal.SIGKILL))
        killer.start()
        found = cs.collision_matrix_from_posteriors(lazy, da.from_array(y, chunks=50), classes=NAMES)
        killer.join()
        assert pids[0] not in client.run(os.getpid).values()
    assert same(found, whole)


# ------------------------------------------------------------------------------------------ several processes


TRAINING = {"hidden_layer_sizes": (16,), "max_epochs": 8, "patience": 0}
SETTINGS = {"training": TRAINING, "limit": False, "cv": 2, "random_state": 0, "device": "cpu"}
MODELS = [{"members": ["network"]}, {"model": "pairwise"}]

FIT = """
import sys
import numpy as np, torch, torch.distributed as dist
from collidescope import CollisionClassifier
from collidescope.datasets import scenario_a
torch.set_num_threads(1)
dist.init_process_group("gloo")
X, y = scenario_a(3).sample(600, 0)
for number, settings in enumerate(eval(sys.argv[2])):
    clf = CollisionClassifier(**settings).fit(X, y)
    np.save(f"{sys.argv[1]}/{number}-{dist.get_rank()}.npy", clf.collision_matrix_.matrix)
dist.destroy_process_group()
"""

PAIRS = """
import sys
import torch, torch.distributed as dist
from collidescope.pairwise.pairs import BalancedPairLoss
from collidescope.training.machine import gather_rows
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
given = torch.load(f"{sys.argv[1]}/batch.pt", weights_only=True)
model = torch.nn.Linear(4, 3)
model.load_state_dict(given["state"])
rows = slice(20 * rank, 20 * rank + 20)
p = torch.softmax(model(given["x"][rows]), -1)
everything, labels = gather_rows(p, given["y"][rows])
loss = BalancedPairLoss(3).all_pairs(everything, labels)
loss.backward()
for parameter in model.parameters():  # as DistributedDataParallel does
    dist.all_reduce(parameter.grad)
    parameter.grad /= dist.get_world_size()
torch.save({"loss": loss.detach(), "grad": model.weight.grad}, f"{sys.argv[1]}/{rank}.pt")
dist.destroy_process_group()
"""


def torchrun(script: str, folder, *arguments: str) -> None:
    path = folder / "script.py"
    path.write_text(script)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, str(folder), *arguments], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")
def test_two_processes_find_the_s_of_one(tmp_path):
    settings = [SETTINGS | model for model in MODELS]
    torchrun(FIT, tmp_path, repr(settings))
    X, y = scenario_a(3).sample(600, 0)
    for number, each in enumerate(settings):
        alone = cs.CollisionClassifier(**each).fit(X, y).collision_matrix_
        found = [np.load(tmp_path / f"{number}-{rank}.npy") for rank in (0, 1)]
        assert np.array_equal(*found)
        assert (np.abs(found[0] - alone.matrix) < 0.1 * alone.stderr).all()


@pytest.mark.slow
def test_pairs_are_formed_across_processes(tmp_path):
    generator = torch.Generator().manual_seed(0)
    model = torch.nn.Linear(4, 3)
    x, y = torch.randn(40, 4, generator=generator), torch.randint(0, 3, (40,), generator=generator)
    torch.save({"x": x, "y": y, "state": model.state_dict()}, tmp_path / "batch.pt")
    torchrun(PAIRS, tmp_path)
    loss = BalancedPairLoss(3).all_pairs(torch.softmax(model(x), -1), y)
    loss.backward()
    for rank in (0, 1):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert torch.allclose(found["loss"], loss.detach(), atol=1e-6)
        assert torch.allclose(found["grad"], model.weight.grad, atol=1e-6)


# ---------------------------------------------------------------- a Dask cluster


@pytest.fixture
def dask_cluster():
    """Two worker processes, which joblib is told to use."""
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with (
        distributed.LocalCluster(**options) as local,
        distributed.Client(local) as client,
        joblib.parallel_config(backend="dask", wait_for_workers_timeout=60),
    ):
        yield client


def replicate(seed: int) -> np.ndarray:
    """S of a sample of its own, as a study of coverage draws many."""
    X, y = scenario_a(3).sample(200, seed)
    clf = cs.CollisionClassifier(members=["linear"], limit=False, cv=2, random_state=seed)
    return clf.fit(X, y).collision_matrix_.matrix


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")
def test_folds_and_replicates_on_a_dask_cluster_are_those_of_one_process(dask_cluster):
    X, y = scenario_a(3).sample(300, 0)
    for model in MODELS:
        settings = SETTINGS | model | {"training": TRAINING | {"max_epochs": 2}}
        alone = cs.CollisionClassifier(**settings).fit(X, y)
        spread = cs.CollisionClassifier(n_jobs=-1, **settings).fit(X, y)
        assert np.allclose(spread.collision_matrix_.matrix, alone.collision_matrix_.matrix, rtol=0, atol=1e-6)
        assert np.allclose(spread.predict_proba(X), alone.predict_proba(X), rtol=0, atol=1e-6)
    found = joblib.Parallel()(joblib.delayed(replicate)(seed) for seed in range(3))
    assert np.allclose(found, [replicate(seed) for seed in range(3)], rtol=0, atol=1e-6)


def encoder(d: int, k: int, *, marker: str = "", always: bool = False) -> torch.nn.Module:
    """Linear; the first process that builds it (every one, if ``always``) dies of it."""
    if always:
        os._exit(9)
    if marker:
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            os._exit(9)
    return torch.nn.Linear(d, k)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")
def test_a_fold_whose_worker_dies_is_trained_by_another_and_given_up_when_that_dies_too(dask_cluster, tmp_path):
    X, y = scenario_a(3).sample(300, 0)
    settings = SETTINGS | {"training": {"max_epochs": 2, "patience": 0}}
    alone = cs.CollisionClassifier(model=encoder, **settings).fit(X, y).collision_matrix_
    dies_once = partial(encoder, marker=str(tmp_path / "died"))
    found = cs.CollisionClassifier(model=dies_once, n_jobs=-1, **settings).fit(X, y).collision_matrix_
    assert (tmp_path / "died").exists()
    assert np.allclose(found.matrix, alone.matrix, rtol=0, atol=1e-6)
    with pytest.raises(WorkerError, match=r"a worker process died with 0 of 2 folds trained"):
        cs.CollisionClassifier(model=partial(encoder, always=True), n_jobs=-1, **settings).fit(X, y)


class ForgetfulClient:
    """Loses the rows, and all calls with them, the first ``times`` times that it is asked for the second call.

    Or loses a worker the first ``silent`` times that it sends rows out.
    """

    def __init__(self, times, silent=0):
        self.times, self.silent, self.sent = times, silent, 0

    def scatter(self, function, **_):
        self.sent += 1
        if self.sent <= self.silent:
            from distributed.comm.core import CommClosedError

            raise CommClosedError("Stream is closed")
        return function

    def submit(self, call, function, number, **_):
        return SimpleNamespace(result=lambda: self.result(call, function, number))

    def result(self, call, function, number):
        if number == 1 and self.sent <= self.times:
            raise CancelledError("already forgotten")
        return call(function, number)

    def cancel(self, calls):
        pass


def test_rows_that_were_lost_with_their_workers_are_sent_again_and_calls_that_are_done_are_not_repeated(monkeypatch):
    """On a busy machine both workers fell silent, and with them the only copies of the rows."""
    monkeypatch.setattr(_dask, "PAUSE", 0)
    asked = []
    found = _dask.results(ForgetfulClient(2), lambda number: asked.append(number) or number, 3)
    assert list(found) == [0, 1, 2]
    assert asked == [0, 1, 2]
    with pytest.raises(BrokenExecutor, match="Dask gave a call up"):
        list(_dask.results(ForgetfulClient(3), abs, 3))


def test_rows_are_sent_again_when_a_worker_died_meanwhile(monkeypatch):
    """The error of the connection reached the user."""
    monkeypatch.setattr(_dask, "PAUSE", 0)
    assert list(_dask.results(ForgetfulClient(0, silent=1), lambda number: number, 2)) == [0, 1]
    with pytest.raises(BrokenExecutor, match="Dask gave a call up: Stream is closed"):
        list(_dask.results(ForgetfulClient(0, silent=3), lambda number: number, 2))
