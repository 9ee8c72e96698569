"""Kills, full disks, want of memory and dying processes: nothing is lost that was promised to be kept.

The promises stand in ``docs/reliability.md``; ``make stress`` tries them for longer.
"""

import ast
import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import collidescope as cs
from collidescope import _store
from collidescope.pairwise import scoring
from collidescope.pairwise.scoring import PairwiseNetwork
from collidescope.training.loop import BestWeights
from collidescope.training.machine import DeviceError, explained_errors
from helpers import in_python

pytestmark = pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")
POSIX = pytest.mark.skipif(os.name != "posix", reason="signals and forks of POSIX")
SHORT = {"cv": 2, "random_state": 0, "limit": False, "training": {"max_epochs": 3}}
TINY = SHORT | {"members": ["network"]}
ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}
FIRST, SECOND = np.arange(75), np.arange(75, 150)
EVEN, ODD = np.arange(0, 150, 2), np.arange(1, 150, 2)
KILLS = "import sys; from studies.faults.kills import campaign; print(campaign(4, seed=1, kinds=('network',)))"


@POSIX
@pytest.mark.slow
def test_a_fit_resumed_after_kills_gives_the_same_s_bit_for_bit():
    """In a process of its own, because pytest's has threads and must not be forked."""
    outcome = ast.literal_eval(in_python(KILLS).stdout)
    assert outcome["kills"] >= 4
    assert outcome["same"] == outcome["fits"] > 0
    assert outcome["left"] == 0


def test_a_fit_goes_on_cleanly_after_a_full_disk(monkeypatch, tmp_path, data):
    expected = cs.CollisionClassifier(**TINY).fit(*data).collision_matrix_
    clf = cs.CollisionClassifier(**TINY, checkpoint=tmp_path)
    calls = []

    def full(fd):
        calls.append(fd)
        if len(calls) > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        OSError, match=r"No space left on device: .*safetensors cannot be written"
    ):
        clf.fit(*data)
    monkeypatch.undo()
    (file,) = tmp_path.rglob("*.safetensors")
    (file.parent / f".{file.name}.new-0123456789abcdef").write_bytes(b"half")
    assert clf.fit(*data).collision_matrix_ == expected
    assert not list(tmp_path.rglob(".*"))


def test_ctrl_c_while_the_best_weights_are_taken_over_never_mixes_two_epochs(
    monkeypatch,
):
    """It copied layer by layer: an interrupt in between left the first layers of one epoch on the rest of another."""
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    best = BestWeights(module, 1)
    before = {name: tensor.clone() for name, tensor in best.state.items()}

    class State(dict):
        def __getitem__(self, name):
            if name == "1.weight":
                raise KeyboardInterrupt
            return super().__getitem__(name) + 7

    monkeypatch.setattr(module, "state_dict", lambda: State(before))
    with pytest.raises(KeyboardInterrupt):
        best.update(module, torch.tensor([0.5]), 1)
    assert all(torch.equal(best.state[name], before[name]) for name in before)
    assert float(best.loss) == float("inf")


class WithTanh(nn.Linear):
    """A module whose activation is a function, which no representation shows."""

    def forward(self, x):
        return torch.tanh(super().forward(x))


class WithRelu(nn.Linear):
    def forward(self, x):
        return torch.relu(super().forward(x))


REFITS = {
    "other weights": ({}, {}, np.linspace(1, 2, 150), "data"),
    "another seed": ({}, {"random_state": 1}, None, "seed"),
    "other settings": (
        {},
        {"training": {"max_epochs": 3, "learning_rate": 0.1}},
        None,
        "learning_rate",
    ),
    "another function for an activation": (
        {"members": [WithTanh]},
        {"members": [WithRelu]},
        None,
        "module",
    ),
    "other splits": (
        {"cv": [(FIRST, SECOND), (SECOND, FIRST)]},
        {"cv": [(EVEN, ODD), (ODD, EVEN)]},
        None,
        "data",
    ),
}


@pytest.mark.parametrize("name", REFITS)
def test_a_checkpoint_of_another_run_is_refused_by_name(tmp_path, data, name):
    first, second, weights, said = REFITS[name]
    cs.CollisionClassifier(**(TINY | first), checkpoint=tmp_path).fit(*data)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.safetensors")}
    with pytest.raises(
        ValueError, match=rf"belongs to a run with other settings \(.*{said}"
    ):
        cs.CollisionClassifier(**(TINY | first | second), checkpoint=tmp_path).fit(
            *data, weights
        )
    assert {
        path: path.read_bytes() for path in tmp_path.rglob("*.safetensors")
    } == before


def test_a_checkpoint_of_another_version_or_that_is_damaged_is_refused_by_name(
    tmp_path, data
):
    clf = cs.CollisionClassifier(**TINY, checkpoint=tmp_path).fit(*data)
    file = sorted(tmp_path.rglob("*.safetensors"))[0]
    tree = _store.read(file, "checkpoint")
    tree["fingerprint"]["versions"]["torch"] = "1.0"
    _store.write(file, "checkpoint", tree)
    with pytest.raises(ValueError, match=r"other settings \(versions\)"):
        clf.fit(*data)
    half = file.read_bytes()[: file.stat().st_size // 2]
    file.write_bytes(half)
    with pytest.raises(ValueError, match=r"is damaged.*: delete it to start again"):
        clf.fit(*data)
    assert file.read_bytes() == half
    with pytest.raises(ValueError, match=r"checkpoint .* cannot be a folder"):
        cs.CollisionClassifier(**TINY, checkpoint=file).fit(*data)


def with_shared_weights(d, k):
    first = nn.Linear(d, d)
    second = nn.Linear(d, d)
    second.weight = first.weight
    return nn.Sequential(first, nn.ReLU(), second, nn.Linear(d, k))


def with_half_precision(d, k):
    layer = nn.Linear(d, k)
    layer.register_buffer("noise", torch.ones(3, dtype=torch.bfloat16))
    return layer


@pytest.mark.parametrize("factory", [with_shared_weights, with_half_precision])
def test_a_module_of_unusual_weights_can_be_checkpointed(tmp_path, data, factory):
    clf = cs.CollisionClassifier(
        **(SHORT | {"members": [factory]}), checkpoint=tmp_path
    )
    assert clf.fit(*data).collision_matrix_ == clf.fit(*data).collision_matrix_


class Small(nn.Module):
    """A network on a machine on which no more than so many pairs or rows fit at once."""

    def __init__(self, network, most, error):
        super().__init__()
        self.network, self.most, self.error, self.sizes = network, most, error, []

    def forward(self, x):
        self.sizes.append(len(x))
        if len(x) > self.most:
            raise self.error
        return self.network(x)


ERRORS = [
    MemoryError(),
    RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB"),
    RuntimeError(
        "[enforce fail at alloc_cpu.cpp:114] DefaultCPUAllocator: can't allocate memory: you tried"
    ),
    torch.cuda.OutOfMemoryError("HIP out of memory"),
]


@pytest.mark.parametrize(
    "error", ERRORS, ids=lambda error: f"{type(error).__name__} {str(error)[:20]}"
)
def test_blocks_of_pairs_that_shrink_until_they_fit_give_the_same_scores(error):
    torch.manual_seed(0)
    A, B, y = torch.randn(30, 3), torch.randn(20, 3), torch.arange(20) % 2
    body = Small(
        nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1)), 10**9, error
    )
    module = PairwiseNetwork(body).requires_grad_(False)
    for parameter in module.parameters():
        # scores that differ, or rounding would be all of their variance
        parameter.mul_(4)
    expected, mean = (
        scoring.similarity(module, A, B),
        scoring.class_similarity(module, A, B, y, 2),
    )
    body.most = 16
    body.sizes.clear()
    assert torch.allclose(scoring.similarity(module, A, B), expected, atol=1e-6)
    again = scoring.class_similarity(module, A, B, y, 2)
    assert torch.allclose(again.q, mean.q, atol=1e-6)
    assert torch.allclose(again.stderr, mean.stderr, rtol=0.01)
    assert max(body.sizes) > 16 >= min(body.sizes)


def test_blocks_of_rows_shrink_until_they_fit_or_the_error_says_what_to_try(data):
    made = []

    def factory(d, k):
        made.append(Small(nn.Linear(d, k), 10**9, ERRORS[2]))
        return made[-1]

    clf = cs.CollisionClassifier(**(SHORT | {"members": [factory]})).fit(*data)
    expected = clf.predict_proba(data[0])
    for small in made:
        small.most = 10
    assert np.allclose(clf.predict_proba(data[0]), expected, atol=1e-7)
    for small in made:
        small.most = 0
    with pytest.raises(
        MemoryError,
        match="not enough memory on cpu while scoring rows: score fewer rows",
    ):
        clf.predict_proba(data[0])
    with pytest.raises(MemoryError, match="while training: lower batch_size"):
        cs.CollisionClassifier(
            **(SHORT | {"members": [lambda d, k: Small(nn.Linear(d, k), 0, ERRORS[1])]})
        ).fit(*data)


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (
            "CUDA error: unspecified launch failure\nCUDA kernel errors",
            DeviceError,
            "'cuda' failed.*device='cpu'",
        ),
        (
            "No CUDA GPUs are available",
            DeviceError,
            "'cuda' failed while training.*checkpoint",
        ),
        ("CUDA error: out of memory", MemoryError, "not enough memory on cuda"),
        ("shapes", RuntimeError, "^shapes$"),
    ],
)
def test_a_gpu_that_vanishes_is_told_from_other_errors(words, error, said):
    with (
        pytest.raises(error, match=said) as caught,
        explained_errors("training", "…", "cuda"),
    ):
        raise RuntimeError(words)
    assert type(caught.value) is error
    assert "\n" not in str(caught.value)


PARENT = """
import os, signal, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
import collidescope as cs

def waiting(d, k):
    with open(os.path.join(sys.argv[1], str(os.getpid())), "w"):
        time.sleep(600)

def dying(d, k):
    os.kill(os.getpid(), signal.SIGKILL)  # as the system does with a process that takes too much memory

X, y = np.random.default_rng(0).normal(size=(60_000, 10)), np.arange(60_000) % 2  # joblib shares such arrays
if len(sys.argv) > 1:
    cs.CollisionClassifier(members=[waiting], cv=2, n_jobs=2).fit(X, y)
try:
    cs.CollisionClassifier(members=[dying], cv=2, n_jobs=2).fit(X[:60], y[:60])
except RuntimeError as error:
    print(type(error).__name__, error)
    print(cs.CollisionClassifier(members=["linear"], limit=False, cv=2).fit(X[:60], y[:60]).n_features_in_)
"""


@POSIX
@pytest.mark.slow
def test_a_dead_worker_is_told_without_harm_to_the_next_fit():
    said, works = in_python(PARENT).stdout.splitlines()
    started = "WorkerError a worker process died with 0 of 2 folds trained"
    assert said.startswith(started)
    assert "n_jobs=1" in said
    assert works == "10"


def alive(pid):
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text().splitlines()[2]
    except (
        FileNotFoundError,
        ProcessLookupError,
    ):  # gone before the file was opened, or while it was read
        return False


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/status").exists(),
    reason="processes are counted as Linux shows them",
)
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=str)
def test_workers_end_with_their_parent_without_a_trace(tmp_path, end):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        env=ONE_THREAD,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not (workers := [int(path.name) for path in tmp_path.iterdir()]):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    parent.send_signal(end)
    parent.wait()
    shared = Path("/dev/shm")
    while any(map(alive, workers)) or list(shared.glob(f"*joblib*_{parent.pid}_*")):
        assert time.monotonic() < deadline, "a worker or its memory is still there"
        time.sleep(0.1)
