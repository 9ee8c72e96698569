"""Two processes train to what one does: under torchrun, with pairs across processes, and on a Dask cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import BrokenExecutor, CancelledError
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import joblib
import numpy as np
import pytest
import torch

from collidescope import CollisionClassifier
from collidescope.datasets import scenario_a
from collidescope.folds import WorkerError
from collidescope.pairwise.risk import BalancedPairLoss
from collidescope.scale import _dask
from collidescope.scale.distributed import average_gradients, gather_rows, own_part, world

SETTINGS = {"hidden_layer_sizes": (16,), "max_epochs": 8, "patience": 0, "cv": 2, "random_state": 0, "device": "cpu"}

FIT = """
import sys
import numpy as np, torch, torch.distributed as dist
from collidescope import CollisionClassifier
from collidescope.datasets import scenario_a
torch.set_num_threads(1)
dist.init_process_group("gloo")
X, y = scenario_a(3).sample(600, 0)
for loss in ("cross-entropy", "pair"):
    clf = CollisionClassifier(loss=loss, **eval(sys.argv[2])).fit(X, y)
    np.save(f"{sys.argv[1]}/{loss}-{dist.get_rank()}.npy", clf.collision_matrix_.matrix)
dist.destroy_process_group()
"""

PAIRS = """
import sys
import torch, torch.distributed as dist
from collidescope.pairwise.risk import BalancedPairLoss
from collidescope.scale.distributed import gather_rows
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


#: The loop of the example, cut where it starts to train.
LOOP = """
import sys
from pathlib import Path
import torch, torch.distributed as dist
torch.set_num_threads(1)
text = Path(sys.argv[2]).read_text(encoding="utf-8")
setup, found, _ = text.partition("encoder, losses = train(")
assert found
exec(setup)
EPOCHS = 3
encoder, losses = train(X_encoder, y_encoder)
rank, size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
torch.save({"state": encoder.state_dict(), "losses": losses}, f"{sys.argv[1]}/{rank}-of-{size}.pt")
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
    torchrun(FIT, tmp_path, repr(SETTINGS))
    X, y = scenario_a(3).sample(600, 0)
    for loss in ("cross-entropy", "pair"):
        alone = CollisionClassifier(loss=loss, **SETTINGS).fit(X, y).collision_matrix_
        found = [np.load(tmp_path / f"{loss}-{rank}.npy") for rank in (0, 1)]
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


@pytest.mark.slow
def test_the_loop_of_the_example_trains_the_same_encoder_in_two_processes(tmp_path):
    pytest.importorskip("accelerate")
    example = str(Path(__file__).parents[1] / "examples" / "plot_own_trainer.py")
    torchrun(LOOP, tmp_path, example)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, str(tmp_path / "script.py"), str(tmp_path), example], env=environment, check=True)
    alone, *both = (torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in ("0-of-1", "0-of-2", "1-of-2"))
    for found in both:
        assert found["losses"] == pytest.approx(alone["losses"], abs=1e-4)
        for name, weight in alone["state"].items():
            assert torch.allclose(found["state"][name], weight, atol=1e-3)


def test_parts_cover_every_row_once_and_weigh_as_much_as_they_hold(monkeypatch):
    for n, block in ((100, 1), (97, 32), (40, 32), (1, 1)):
        batch, pairs, weights, rows = torch.arange(2 * n).reshape(2, n), (torch.arange(n),) * 3, [], []
        for rank in range(3):
            monkeypatch.setattr("collidescope.scale.distributed.world", lambda rank=rank: (rank, 3))
            part, weight = own_part(batch, block)
            assert torch.equal(own_part(pairs, block)[0][0], part[0])
            weights.append(weight)
            rows.append(part[0])
        assert sum(weights) == pytest.approx(1)
        if n // block >= 3:
            assert torch.equal(torch.cat(rows), torch.arange(n))
        else:  # too few for everyone: each does all of it
            assert all(torch.equal(own, torch.arange(n)) for own in rows)


def test_one_process_is_left_alone():
    assert world() == (0, 1)
    module = torch.nn.Linear(2, 1)
    module(torch.ones(1, 2)).sum().backward()
    before = module.weight.grad.clone()
    average_gradients(module, 1.0)
    assert torch.equal(module.weight.grad, before)
    rows = torch.ones(3)
    assert gather_rows(rows)[0] is rows


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
    clf = CollisionClassifier(hidden_layer_sizes=(), max_epochs=2, cv=2, random_state=seed, device="cpu")
    return clf.fit(X, y).collision_matrix_.matrix


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")
def test_folds_and_replicates_on_a_dask_cluster_are_those_of_one_process(dask_cluster):
    X, y = scenario_a(3).sample(300, 0)
    settings = SETTINGS | {"max_epochs": 2}
    for model in ("factorised", "pairwise"):
        alone = CollisionClassifier(model=model, **settings).fit(X, y)
        spread = CollisionClassifier(model=model, n_jobs=-1, **settings).fit(X, y)
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
    settings = SETTINGS | {"max_epochs": 2}
    alone = CollisionClassifier(model=encoder, **settings).fit(X, y).collision_matrix_
    dies_once = partial(encoder, marker=str(tmp_path / "died"))
    found = CollisionClassifier(model=dies_once, n_jobs=-1, **settings).fit(X, y).collision_matrix_
    assert (tmp_path / "died").exists()
    assert np.allclose(found.matrix, alone.matrix, rtol=0, atol=1e-6)
    with pytest.raises(WorkerError, match=r"a worker process died with 0 of 2 folds trained"):
        CollisionClassifier(model=partial(encoder, always=True), n_jobs=-1, **settings).fit(X, y)


def test_there_is_no_cluster_where_none_was_named():
    assert _dask.cluster() is None
    with joblib.parallel_config(backend="threading"):
        assert _dask.cluster() is None


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
