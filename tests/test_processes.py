"""One fitted estimator gives the same bits from many threads, forked or spawned, in a fresh process, from its file."""

import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import collidescope as cs
from collidescope._threads import one_thread
from collidescope.datasets import scenario_a
from helpers import in_python

#: A child that hangs is killed after so many seconds.
PATIENCE = 120
SHORT = {"cv": 2, "random_state": 0, "limit": False, "training": {"max_epochs": 5}}
MODELS = {"pool": {"members": ["linear", "network", "trees", "forest"]}}
MODELS["pair-wise"] = {"members": [cs.Pairwise(n_references=20)]}
X, y = scenario_a(3).sample(150, 0)
NEW, _ = scenario_a(3).sample(1000, 1)

pytestmark = pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")


def fit(**changes):
    return cs.CollisionClassifier(**(SHORT | changes)).fit(X, y)


@pytest.fixture(scope="module")
def models():
    return {name: fit(**settings) for name, settings in MODELS.items()}


@pytest.mark.parametrize("name", MODELS)
def test_eight_threads_get_the_same_bits(models, name):
    clf = models[name]
    parts = [NEW[number : number + 500] for number in range(8)]
    alone = [clf.predict_proba(part) for part in parts]
    gate = threading.Barrier(8)

    def at_once(part):
        gate.wait(timeout=PATIENCE)
        return clf.predict_proba(part)

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(at_once, parts))
    assert all(np.array_equal(*pair) for pair in zip(alone, together, strict=True))


#: What a fresh interpreter does with pickles and saved files; then it uses two threads, and forks.
CHILD = """
import multiprocessing, os, pickle, sys
from pathlib import Path
import numpy as np
import collidescope as cs

def many():
    return clf.predict_proba(rows)

for folder in map(Path, sys.argv[1:]):
    rows = np.load(folder / "rows.npy")
    with open(folder / "model.pickle", "rb") as file:
        np.save(folder / "pickled.npy", pickle.load(file).predict_proba(rows))
    clf = cs.load(folder / "model.safetensors")
    np.save(folder / "loaded.npy", clf.predict_proba(rows))
if hasattr(os, "fork"):
    import torch
    torch.set_num_threads(2)
    clf = cs.load(Path(sys.argv[1]) / "model.safetensors")
    rows = np.tile(rows, (20, 1))
    expected = many()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        forked = pool.apply_async(many).get(timeout=60)
    print("forked: same" if np.array_equal(forked, expected) else "forked: other")
"""


def test_another_process_gets_the_same_bits(models, tmp_path):
    """The forked child once waited for ever for the threads of OpenMP, which a fork does not copy."""
    expected = {}
    for number, clf in enumerate(models.values()):
        folder = tmp_path / str(number)
        folder.mkdir()
        np.save(folder / "rows.npy", NEW)
        (folder / "model.pickle").write_bytes(pickle.dumps(clf))
        clf.save(folder / "model.safetensors")
        expected[folder] = clf.predict_proba(NEW)
    done = in_python(CHILD, *expected)
    for folder, posteriors in expected.items():
        for name in ("pickled", "loaded"):
            assert np.array_equal(np.load(folder / f"{name}.npy"), posteriors), (
                folder.name,
                name,
            )
    assert "forked: same" in done.stdout or not hasattr(os, "fork")


def short_posteriors(seed):
    return fit(members=["linear", "network", "forest"], random_state=seed).posteriors_


def test_fits_at_the_same_time_in_threads_get_the_bits_of_fits_one_by_one():
    """No seed, thread count or cache of one fit reaches another."""
    alone = [short_posteriors(seed) for seed in range(3)]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(short_posteriors, range(3)))
    assert all(np.array_equal(*pair) for pair in zip(alone, together, strict=True))


def test_a_fit_leaves_the_random_numbers_of_the_process_alone():
    np.random.seed(0)  # noqa: NPY002 - the global generator is what is asked about
    torch.manual_seed(0)
    of_torch = torch.get_rng_state()
    of_numpy = np.random.get_state()[1].copy()  # noqa: NPY002
    short_posteriors(0)
    assert torch.equal(torch.get_rng_state(), of_torch)
    assert np.array_equal(np.random.get_state()[1], of_numpy)  # noqa: NPY002


def test_a_loaded_network_leaves_the_random_numbers_of_the_process_alone(tmp_path):
    factories = [lambda d, k: torch.nn.Linear(d, k)]
    fit(members=factories).save(tmp_path / "model")
    before = torch.get_rng_state()
    cs.load(tmp_path / "model", model=factories[0]).predict_proba(NEW)
    assert torch.equal(torch.get_rng_state(), before)


def test_fits_at_the_same_time_give_the_threads_of_torch_back():
    before = torch.get_num_threads()
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(short_posteriors, range(3)))
    assert torch.get_num_threads() == before


def test_nested_blocks_of_one_thread_give_the_threads_back_at_the_end():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            with one_thread():
                assert torch.get_num_threads() == 1
            assert torch.get_num_threads() == 1
        with one_thread(False):
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
