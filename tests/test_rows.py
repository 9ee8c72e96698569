"""Rows come from memory, a file or a sparse matrix alike, and a fit from any of them is the same."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy import sparse

import collidescope as cs
from collidescope._scaling import apply_scaling, fit_scaling, lies_in_a_file
from collidescope.datasets import scenario_a
from collidescope.learners import bridge
from collidescope.training.rows import Rows, as_rows, placed

TINY = {"hidden_layer_sizes": (8,), "max_epochs": 3, "cv": 2, "random_state": 0, "device": "cpu"}
pytestmark = pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")


@pytest.fixture(scope="module")
def data():
    X, y = scenario_a(3).sample(300, 0)
    return X.astype(np.float32), y


@pytest.fixture
def in_a_file(data, tmp_path):
    np.save(tmp_path / "X.npy", data[0])
    return np.load(tmp_path / "X.npy", mmap_mode="r")


@pytest.fixture(params=["memory", "file", "sparse"])
def held(request, data, in_a_file):
    X, _ = data
    scaling = fit_scaling(X)
    if request.param == "memory":
        return as_rows(torch.from_numpy(apply_scaling(X, *scaling)), "cpu")
    return Rows(in_a_file if request.param == "file" else sparse.csr_matrix(X), "cpu", scaling)


def test_rows_are_the_standardised_ones_wherever_they_lie(held, data):
    X, _ = data
    expected = apply_scaling(X, *fit_scaling(X))
    assert held.shape == X.shape
    assert held.ndim == 2
    index = torch.tensor([7, 3, 3, 299])
    assert np.array_equal(held[index].numpy(), expected[index])
    assert np.array_equal(held[10:20].numpy(), expected[10:20])
    assert np.array_equal(np.asarray(held), expected)
    assert np.array_equal(torch.cat(list(held.blocks(70))).numpy(), expected)


def test_a_subset_of_a_subset_counts_from_its_own_rows(held, data):
    expected = apply_scaling(data[0], *fit_scaling(data[0]))
    part = held.subset(torch.arange(100, 200)).subset(torch.tensor([5, 0]))
    assert part.shape == (2, 4)
    assert np.array_equal(part[:].numpy(), expected[[105, 100]])
    assert np.array_equal(part[torch.tensor([1])].numpy(), expected[[100]])


def test_rows_travel_to_another_process(held):
    part = held.subset(torch.arange(50))
    assert torch.equal(pickle.loads(pickle.dumps(part))[:], part[:])


def test_the_digest_knows_rows_and_their_order(held):
    forwards, backwards = (held.subset(order).digest() for order in (torch.arange(300), torch.arange(299, -1, -1)))
    assert forwards == held.digest() != backwards


def test_a_tensor_stays_in_memory_where_the_gpu_has_no_room(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1000, 10_000))
    many = torch.zeros(126)
    assert placed(many, "cuda") is many
    with pytest.raises((RuntimeError, AssertionError)):  # it fits, and there is no GPU here to take it
        placed(many[:125], "cuda:99")


def test_a_view_of_a_memory_map_lies_in_a_file(in_a_file, data):
    assert lies_in_a_file(in_a_file)
    assert lies_in_a_file(np.asarray(in_a_file)[10:])
    assert not lies_in_a_file(data[0])
    assert not lies_in_a_file(in_a_file + 0)


@pytest.mark.parametrize("settings", [{}, {"hidden_layer_sizes": "auto", "max_epochs": 2}, {"model": "pairwise"}])
def test_a_fit_from_a_memory_map_is_the_fit_from_memory(data, in_a_file, settings):
    X, y = data
    plain, mapped = (cs.CollisionClassifier(**(TINY | settings)).fit(Z, y) for Z in (X, in_a_file))
    assert np.array_equal(plain.posteriors_, mapped.posteriors_)
    assert np.array_equal(plain.predict_proba(X), mapped.predict_proba(in_a_file))
    assert plain.collision_matrix_ == mapped.collision_matrix_


def test_a_sparse_matrix_too_large_to_write_out_gives_the_same_fit(data, monkeypatch):
    X, y = data
    Z = sparse.csr_matrix(np.where(np.abs(X) > 0.5, X, 0))
    dense = cs.CollisionClassifier(**TINY).fit(Z, y)
    monkeypatch.setattr(bridge, "MOST_DENSE", 10)
    lazy = cs.CollisionClassifier(**TINY).fit(Z, y)
    assert np.array_equal(dense.posteriors_, lazy.posteriors_)


def test_folds_in_other_processes_read_the_same_map(data, in_a_file):
    y = data[1]
    one, two = (cs.CollisionClassifier(**TINY, n_jobs=jobs).fit(in_a_file, y) for jobs in (None, 2))
    assert np.array_equal(one.posteriors_, two.posteriors_)


MEASURE = """
import sys, threading, time, warnings
import numpy as np, torch
warnings.simplefilter("ignore")
import collidescope as cs
torch.set_num_threads(1)

def anonymous():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) / 1024

X = np.load(sys.argv[1], mmap_mode="r")
y = np.arange(len(X)) % 2
clf = cs.CollisionClassifier(hidden_layer_sizes=(4,), max_epochs=1, cv=2, batch_size=4096, device="cpu")
clf.fit(X[:20000], y[:20000])
before, peak, done = anonymous(), [0.0], threading.Event()
def watch():
    while not done.is_set():
        peak[0] = max(peak[0], anonymous())
        time.sleep(0.002)
watcher = threading.Thread(target=watch)
watcher.start()
clf.fit(X, y)
done.set(); watcher.join()
print(peak[0] - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_map_is_never_copied_whole(tmp_path):
    """400,000 × 100 float32 are 153 MB; the sample behind the scaling is 38, posteriors, labels and blocks the rest."""
    rows = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", np.float32, (400_000, 100))
    for start in range(0, 400_000, 40_000):
        rows[start : start + 40_000] = np.random.default_rng(start).normal(size=(40_000, 100))
    rows.flush()
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "X.npy")]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stderr
    assert float(found.stdout) < 120
