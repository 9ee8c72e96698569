"""Chunks, Parquet files and Dask collections give the S of one array, without ever being one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

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
from collidescope.scale.streams import posterior_batches

da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

NAMES = ["a", "b", "c"]


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


def test_progress_counts_chunks_also_where_their_number_is_not_known(stream, capsys):
    P, y, _ = stream
    accumulate(chunks(P, y), NAMES, verbose=1)
    assert "accumulating: 5, " in capsys.readouterr().err


@pytest.fixture
def parquet(stream, tmp_path):
    P, y, _ = stream
    table = pa.table({name: P[:, k] for k, name in enumerate(NAMES)} | {"label": y})
    pq.write_table(table, tmp_path / "p.parquet", row_group_size=500)
    return tmp_path / "p.parquet"


def test_parquet_is_accumulated_batch_by_batch(stream, parquet):
    P, y, _ = stream
    whole = cs.collision_matrix_from_posteriors(P, y)
    assert same(accumulate(posterior_batches(parquet, "label", batch_size=300), NAMES), whole)
    assert same(accumulate(posterior_batches(parquet.parent, "label"), NAMES), whole)
    lengths = [len(p) for p, _ in posterior_batches(parquet, "label", batch_size=300)]
    assert max(lengths) <= 300
    turned = accumulate(posterior_batches(parquet, "label", columns=NAMES[::-1]), NAMES[::-1])
    assert np.allclose(turned.matrix[::-1, ::-1], whole.matrix, atol=1e-10)
    assert np.allclose(next(iter(posterior_batches(parquet, columns=NAMES, batch_size=300))), P[:300])
    with pytest.raises(FileNotFoundError, match="does not exist"):
        posterior_batches(parquet.parent / "none.parquet")
    (parquet.parent / "empty").mkdir()
    with pytest.raises(ValueError, match=r"a folder without a \.parquet file"):
        posterior_batches(parquet.parent / "empty")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"label": "lable"}, "no column 'lable'"),
        ({"columns": ["a", "q"]}, "no column 'q'"),
        ({"batch_size": 0}, "batch_size"),
    ],
)
def test_parquet_that_is_not_as_said_is_refused(parquet, arguments, message):
    with pytest.raises(ValueError, match=message):
        posterior_batches(parquet, **arguments)


def test_a_parquet_file_of_labels_alone_or_with_damaged_rows_is_refused(parquet):
    pd.DataFrame({"label": ["a", "b"]}).to_parquet(parquet.parent / "labels.parquet")
    with pytest.raises(ValueError, match="must have a column beside 'label'"):
        posterior_batches(parquet.parent / "labels.parquet", "label")
    content = bytearray(parquet.read_bytes())
    content[100 : len(content) // 2] = bytes(len(content) // 2 - 100)
    parquet.write_bytes(content)
    with pytest.raises(ValueError, match=r"p\.parquet' cannot be read to its end"):
        accumulate(posterior_batches(parquet, "label"), NAMES)


MEMORY = """
import resource, sys
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from collidescope.estimate import accumulate
from collidescope.scale.streams import posterior_batches
rows, path = int(sys.argv[1]), sys.argv[2]
p = np.random.default_rng(0).dirichlet(np.ones(4), 100_000)
batch = pa.record_batch({str(k): p[:, k] for k in range(4)} | {"y": (np.arange(100_000) % 4).astype(str)})
with pq.ParquetWriter(path, batch.schema) as writer:
    for _ in range(rows // 100_000):
        writer.write_batch(batch)
cm = accumulate(posterior_batches(path, "y", batch_size=20_000), list("0123"))
assert round(cm.counts.sum()) == rows
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path):
    used = [
        int(subprocess.check_output([sys.executable, "-c", MEMORY, str(rows), str(tmp_path / f"{rows}.parquet")]))
        for rows in (300_000, 3_000_000)
    ]
    unit = 1024 if sys.platform != "darwin" else 1
    more_rows = (3_000_000 - 300_000) * 4 * 8
    assert (used[1] - used[0]) * unit < 0.5 * more_rows


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
        (lambda P, y: cs.collision_matrix_from_posteriors(da.from_array(P), priors="uniform"), "need y"),
        (
            lambda P, y: cs.collision_matrix_from_posteriors(
                da.from_array(P), dd.from_pandas(pd.Series(y), npartitions=1)
            ),
            "both be Dask arrays",
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
@pytest.mark.parametrize("kill", [False, True])
def test_a_cluster_of_two_processes_gives_the_same_s_also_when_one_dies(stream, kill):
    distributed = pytest.importorskip("distributed")
    P, y, _ = stream
    whole = cs.collision_matrix_from_posteriors(P, y)
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        pids = list(client.run(os.getpid).values())
        lazy = da.from_array(P, chunks=(50, 3)).map_blocks(slowly, dtype=float)
        killer = threading.Timer(0.8, os.kill, (pids[0], signal.SIGKILL))
        if kill:
            killer.start()
        found = cs.collision_matrix_from_posteriors(lazy, da.from_array(y, chunks=50), classes=NAMES)
        if kill:
            killer.join()
            assert pids[0] not in client.run(os.getpid).values()
    assert same(found, whole)
