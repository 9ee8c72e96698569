"""What comes in batches, from files or loaders, is fitted as the same rows in one array, and no half file is left."""

from __future__ import annotations

import errno
import gc
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import collidescope as cs
from collidescope.datasets import scenario_a
from collidescope.scale import sources

NAMES = ["a", "b", "c"]


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
    dd = pytest.importorskip("dask.dataframe")
    return dd.from_pandas(frame(X, y), npartitions=4)


@pytest.mark.parametrize(
    ("make", "target"),
    [
        (lambda folder, X, y: batches(X, y), None),
        (lambda folder, X, y: list(batches(X, y)), None),
        (lambda folder, X, y: batches(X.astype(float), list(y)), None),
        (lambda folder, X, y: batches(frame(X, y).drop(columns="label"), pd.Series(y)), None),
        (lambda folder, X, y: (frame(X, y)[k : k + 300] for k in (0, 300, 600)), "label"),
        (parquet, "label"),
        (in_two_files, "label"),
        (chunks_of_csv, "label"),
        (dask_frame, "label"),
    ],
    ids=["generator", "list", "doubles", "frames and series", "frames", "parquet", "folder", "csv", "dask"],
)
def test_every_source_gives_the_rows_and_labels_of_the_whole(rows, here, make, target):
    X, y = rows
    found, labels = cs.spool(make(here, X, y), target)
    assert isinstance(found, np.memmap)
    assert found.dtype == np.float32
    assert not found.flags.writeable
    assert np.allclose(found, X, rtol=0, atol=1e-6)
    assert np.array_equal(labels, y)


def test_a_loader_gives_tensors_of_numbers(rows):
    X, y = rows
    found, codes = cs.spool(loader(X, y))
    assert np.array_equal(found, X)
    assert np.array_equal(np.array(NAMES)[codes], y)


def test_chosen_columns_come_in_the_order_asked_for_and_in_float64(rows, here):
    X, y = rows
    found, _ = cs.spool(parquet(here, X, y), "label", columns=["x2", "x0"], dtype=np.float64)
    assert found.dtype == np.float64
    assert np.array_equal(found, X[:, [2, 0]])


def test_images_keep_their_shape(rows, here):
    images = np.random.default_rng(0).integers(0, 256, (30, 1, 4, 5), dtype=np.uint8)
    found, _ = cs.spool(batches(images, np.arange(30) % 2, 7))
    assert np.array_equal(found, images)


@pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")
def test_the_fit_is_that_of_the_same_rows_in_memory(rows, here):
    X, y = rows
    clf = cs.CollisionClassifier(hidden_layer_sizes=(8,), max_epochs=3, cv=2, random_state=0)
    whole = clf.fit(X, y).collision_matrix_
    mapped, labels = cs.spool(parquet(here, X, y), "label")
    found = clf.fit(mapped, labels)
    assert np.allclose(found.collision_matrix_.matrix, whole.matrix, rtol=0, atol=1e-6)
    assert np.allclose(found.predict_proba(mapped), found.predict_proba(X), rtol=0, atol=1e-6)


def test_files_in_a_folder_stay_and_can_be_read_again(rows, here):
    X, y = rows
    cs.spool(batches(X, y), folder=here / "new" / "rows")
    gc.collect()
    assert np.array_equal(np.load(here / "new" / "rows" / "X.npy", mmap_mode="r"), X)
    assert np.array_equal(np.load(here / "new" / "rows" / "y.npy", allow_pickle=False), y)
    with pytest.raises(ValueError, match=r"folder .* holds X\.npy already"):
        cs.spool(batches(X, y), folder=here / "new" / "rows")
    assert sorted(path.name for path in (here / "new" / "rows").iterdir()) == ["X.npy", "y.npy"]


def test_what_a_killed_process_left_in_the_folder_is_removed(rows, here):
    (here / ".X.npy.new-0123").write_bytes(b"half")
    cs.spool(batches(*rows), folder=here)
    assert sorted(path.name for path in here.iterdir()) == ["X.npy", "y.npy"]


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
        ([(np.empty((0, 2)), [])], "source holds no rows"),
        (
            [GOOD, ([[1.0, np.nan]], ["a"])],
            r"batch 1 of source, from row 3: x must be finite, got nan in row 3, column 1",
        ),
        ([([[1.0, 2.0], [np.inf, 0]], ["a", "b"])], "got inf in row 1, column 0"),
        ([(np.full((2, 1, 2, 2), np.nan), [0, 1])], r"in row 0, column \(0, 0, 0\)"),
        ([([[1e300, 0.0]], ["a"])], "1e\\+300 in row 0, column 0, beyond what float32 holds: pass dtype='float64'"),
        ([GOOD, (np.ones((3, 4)), ["a"] * 3)], r"batch 1 .* rows of shape \(4,\), those before have \(2,\)"),
        ([(np.ones((3, 2)), ["a"] * 4)], "x and y must have the same number of rows, got 3 and 4"),
        ([(np.ones((3, 2)), ["a", None, "b"])], r"y has 1 missing labels \(first at row 1\)"),
        ([(np.ones((3, 2)), [[0], [1], [0]])], "y must be a flat list"),
        ([(np.ones((3, 2)), ["a", 1, "b"])], "y must hold labels of one kind"),
        ([GOOD, (np.ones((2, 2)), [1, 0])], "batch 1 .* labels that are numbers, those before are text"),
        ([(np.ones(3), ["a"] * 3)], r"of shape \(n, d\) or more, got shape \(3,\)"),
        ([(np.empty((3, 0)), ["a"] * 3)], "x has no columns"),
        ([([["red", "1"]], ["a"])], "x must hold numbers, got list of dtype"),
        ([([[1.0], [1.0, 2.0]], ["a", "b"])], "x must hold numbers"),
        ([(np.ones((1, 2)) * 1j, ["a"])], "x must hold numbers, got ndarray of dtype complex"),
        ([np.ones((3, 2))], r"must be a pair \(x, y\), got ndarray"),
        ([(np.ones((3, 2)), ["a"] * 3, [1, 1, 1])], r"must be a pair \(x, y\), got tuple of length 3"),
        ([pd.DataFrame({"x": [1.0]})], "target must name the column"),
        (np.ones((3, 2)), "source must be a file or an iterable.*in memory needs no spool"),
        (3, "source must be a file or an iterable of batches, got int"),
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
        ({"target": "label", "columns": ["z"]}, "no column 'z'"),
        ({"target": "label", "columns": "x"}, "columns must be a list"),
        ({"target": 0}, "target must be the name"),
        (
            {"target": "label", "columns": ["x"], "dtype": "int8"},
            "dtype must be one of 'float32', 'float64', got 'int8'",
        ),
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


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, ConnectionError])
def test_a_source_that_fails_is_heard_and_leaves_nothing(rows, here, error):
    def broken():
        yield from batches(*rows)
        raise error("the line is cut")

    (here / "kept").mkdir()
    for folder in (None, here / "kept", here / "new"):
        with pytest.raises(error, match="the line is cut"):
            cs.spool(broken(), folder=folder)
    assert list(here.rglob("*")) == [here / "kept"]


@pytest.mark.slow
def test_ctrl_c_in_the_midst_of_it_leaves_nothing(here):
    script = (
        "import signal, time, numpy as np, collidescope as cs\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell in the background has it ignored
        "def batches():\n"
        "    while True:\n"
        "        yield np.ones((10, 2)), np.arange(10) % 2\n"
        "        print('one', flush=True)\n"
        "        time.sleep(0.02)\n"
        "cs.spool(batches())"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], env=os.environ | {"TMPDIR": str(here)}, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    assert len(list(here.rglob(".X.npy.new-*"))) == 1
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode != 0
    assert list(here.iterdir()) == []


# ---------------------------------------------------------------- scale


def test_progress_says_how_many_rows_of_a_file_and_how_many_batches_of_a_loader_are_done(rows, here, capsys):
    path = parquet(here, *rows)
    cs.spool(path, "label", verbose=1)
    assert "writing rows: 900 of 900" in capsys.readouterr().err
    cs.spool(list(batches(*rows)), verbose=1)
    assert "writing batches: 4 of 4" in capsys.readouterr().err
    cs.spool(batches(*rows), verbose=1)
    assert "writing batches: 4, " in capsys.readouterr().err


MEMORY = """
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
def test_memory_does_not_grow_with_the_rows(here):
    environment = os.environ | {"TMPDIR": str(here)}
    used = [
        1024 * int(subprocess.check_output([sys.executable, "-c", MEMORY, str(n)], env=environment)) for n in (10, 110)
    ]
    more_rows = 100 * 20_000 * 25 * 4
    assert used[1] - used[0] < 0.2 * more_rows


FIT = """
import sys, time, warnings
import numpy as np
import torch
from benchmarks.scale import Peak
import collidescope as cs
from collidescope.learners import bridge
warnings.simplefilter("ignore")
torch.set_num_threads(1)
X, y = np.load(sys.argv[1], mmap_mode="r"), np.arange(300_000) % 2
peak = Peak()
start = peak.ask()
clf = cs.CollisionClassifier(hidden_layer_sizes=(4,), max_epochs=1, cv=2, random_state=0, device="cpu").fit(X, y)
clf.predict_proba(X)
print(peak.ask() - start, X.nbytes / 2**20)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_fit_from_a_memory_map_holds_a_part_of_it_in_memory(here):
    rng = np.random.default_rng(0)
    cs.spool(((rng.normal(size=(10_000, 250)), np.zeros(10_000, int)) for _ in range(30)), folder=here)
    root = Path(__file__).parents[1]
    command = [sys.executable, "-c", FIT, str(here / "X.npy")]
    used, table = map(float, subprocess.check_output(command, cwd=root, text=True).split())
    assert table > 250
    assert used < 0.75 * table
