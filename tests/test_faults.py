"""Kills, full disks, want of memory and dying workers: nothing is lost that was promised to be kept.

The promises stand in ``docs/reliability.md``; ``make stress`` tries them for longer.
"""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import collidescope as cs
from collidescope._files import replace_file, replacing, unfinished_prefix
from collidescope.crossfit import WorkerError
from collidescope.datasets import scenario_a
from collidescope.pairwise import scoring
from collidescope.training import faults
from collidescope.training.faults import DeviceError, halved, said_plainly
from collidescope.training.loop import BestWeights
from collidescope.training.networks import PairwiseImageNetwork, PairwiseNetwork

pytestmark = pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")
POSIX = pytest.mark.skipif(os.name != "posix", reason="signals and forks of POSIX")
TINY = {"max_epochs": 3, "cv": 2, "random_state": 0, "hidden_layer_sizes": (4,)}


@pytest.fixture(scope="module")
def data():
    return scenario_a(3).sample(120, 0)


# ---------------------------------------------------------------- kills

KILLS = """
import sys
from stress.kills import campaign
print(campaign(int(sys.argv[1]), seed=1, kinds=("pairwise",)))
"""


@POSIX
@pytest.mark.slow
def test_a_fit_killed_at_random_moments_and_resumed_gives_the_same_s_bit_for_bit():
    """SIGINT, SIGTERM and SIGKILL; in a process of its own, because pytest's has threads and must not be forked."""
    command = [sys.executable, "-c", KILLS, "5"]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
    assert run.returncode == 0, run.stderr[-2000:]
    outcome = eval(run.stdout)
    assert outcome["kills"] >= 5
    assert outcome["same"] == outcome["fits"] > 0
    assert outcome["left"] == 0


def test_a_run_that_finds_the_half_written_file_of_a_killed_one_removes_it_and_goes_on(tmp_path, data):
    clf = cs.CollisionClassifier(**TINY, checkpoint=tmp_path)
    expected = clf.fit(*data).collision_matrix_
    (file, *_) = sorted(tmp_path.rglob("*.safetensors"))
    (file.parent / f"{unfinished_prefix(file)}0123").write_bytes(b"half")
    assert clf.fit(*data).collision_matrix_ == expected
    assert not list(tmp_path.rglob(".*"))


def test_ctrl_c_while_the_best_weights_are_taken_over_never_mixes_two_epochs():
    """It copied layer by layer: an interrupt in between left the first layers of one epoch on the rest of another."""
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    best = BestWeights(module, 1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(7.0)

    class Interrupting(nn.Module):
        def state_dict(self):
            def items():
                yield from list(module.state_dict().items())[:2]
                raise KeyboardInterrupt

            return type("", (), {"items": staticmethod(items)})

    before = {name: tensor.clone() for name, tensor in best.state.items()}
    with pytest.raises(KeyboardInterrupt):
        best.update(Interrupting(), torch.tensor([0.5]), 1)
    assert all(torch.equal(best.state[name], before[name]) for name in before)
    assert float(best.loss) == float("inf")


def test_a_checkpoint_is_not_resumed_with_other_sample_weights(tmp_path, data):
    """The signature of the data left weights out, so that a second fit silently gave the first one's answer."""
    X, y = data
    clf = cs.CollisionClassifier(**TINY, checkpoint=tmp_path)
    clf.fit(X, y, sample_weight=np.ones(len(y)))
    with pytest.raises(ValueError, match="other settings"):
        clf.fit(X, y, sample_weight=np.where(y == 0, 3.0, 1.0))


def test_a_checkpoint_is_not_resumed_on_rows_in_another_order(tmp_path, data):
    """The signature was a sum over all cells, the same for columns in another order."""
    X, y = data
    clf = cs.CollisionClassifier(**TINY, checkpoint=tmp_path).fit(X, y)
    with pytest.raises(ValueError, match="other settings"):
        clf.fit(X[:, ::-1], y)


def test_weights_that_layers_share_can_be_checkpointed(tmp_path, data):
    def factory(d, k):
        first, second = nn.Linear(d, d), nn.Linear(d, d)
        second.weight = first.weight
        return nn.Sequential(first, nn.ReLU(), second, nn.Linear(d, k))

    clf = cs.CollisionClassifier(model=factory, max_epochs=2, cv=2, random_state=0, checkpoint=tmp_path)
    assert clf.fit(*data).collision_matrix_ == clf.fit(*data).collision_matrix_


# ---------------------------------------------------------------- disks


def no_space(*_args, **_kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def saved(tmp_path, data):
    clf = cs.CollisionClassifier(**TINY).fit(*data)
    clf.save(tmp_path / "model")
    clf.collision_matrix_.to_json(tmp_path / "matrix.json")
    return clf


@pytest.mark.parametrize("at", ["fsync", "replace"])
@pytest.mark.parametrize("kind", ["model", "matrix.json"])
def test_a_full_disk_leaves_the_old_file_whole_and_names_it(monkeypatch, tmp_path, saved, at, kind):
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(os, at, no_space)
    write = saved.save if kind == "model" else saved.collision_matrix_.to_json
    with pytest.raises(OSError, match=f"No space left on device.*{kind} cannot be written.*as it was") as caught:
        write(tmp_path / kind)
    assert caught.value.errno == errno.ENOSPC
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


LIMITED = """
import resource, signal, sys
import collidescope as cs
cm = cs.CollisionMatrix([[0.9, 0.1], [0.2, 0.8]], classes=["a" * 5000, "b"])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    cm.to_json(sys.argv[1])
except OSError as error:
    print(error)
"""


@POSIX
def test_a_disk_that_fills_in_the_middle_of_a_file_leaves_the_old_one_whole(tmp_path):
    """No stand-in here: the system itself refuses the second half of the file."""
    old = tmp_path / "matrix.json"
    old.write_text("old")
    run = subprocess.run([sys.executable, "-c", LIMITED, str(old)], capture_output=True, text=True, check=True)
    assert "cannot be written" in run.stdout
    assert old.read_text() == "old"
    assert list(tmp_path.iterdir()) == [old]


def test_a_folder_that_may_not_be_written_to_is_named_and_the_old_file_stays(monkeypatch, tmp_path, saved):
    before = (tmp_path / "model").read_bytes()

    def refuse(*_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("pathlib.Path.write_bytes", refuse)
    with pytest.raises(PermissionError, match="model cannot be written"):
        saved.save(tmp_path / "model")
    monkeypatch.undo()
    assert (tmp_path / "model").read_bytes() == before


@POSIX
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_leaves_the_old_file_whole(tmp_path, saved):
    before = (tmp_path / "model").read_bytes()
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with pytest.raises(PermissionError, match="model cannot be written"):
            saved.save(tmp_path / "model")
    finally:
        tmp_path.chmod(stat.S_IRWXU)
    assert (tmp_path / "model").read_bytes() == before


def test_content_is_flushed_to_disk_before_it_is_renamed(monkeypatch, tmp_path, data):
    """Checkpoints were renamed without it: after a power cut a file of the right name could be empty."""
    acts = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (acts.append("fsync"), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (acts.append("replace"), replace(a, b)))
    replace_file(tmp_path / "x", b"x")
    assert acts == ["fsync", "replace"]
    cs.CollisionClassifier(**TINY, checkpoint=tmp_path / "run").fit(*data)
    assert acts == ["fsync", "replace"] * (1 + 2 * TINY["max_epochs"])


def test_a_full_disk_during_a_fit_keeps_the_last_epoch_and_the_fit_goes_on_from_it(monkeypatch, tmp_path, data):
    expected = cs.CollisionClassifier(**TINY).fit(*data).collision_matrix_
    clf = cs.CollisionClassifier(**TINY, checkpoint=tmp_path)
    calls = []

    def full(fd):
        calls.append(fd)
        if len(calls) > 2:
            no_space()

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="cannot be written"):
        clf.fit(*data)
    monkeypatch.undo()
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1
    assert clf.fit(*data).collision_matrix_ == expected


def test_a_checkpoint_folder_that_is_a_file_is_said_plainly(tmp_path, data):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match=r"checkpoint .* cannot be a folder"):
        cs.CollisionClassifier(**TINY, checkpoint=tmp_path / "file").fit(*data)


def test_names_as_long_as_the_system_allows_can_be_written(tmp_path):
    """The half-written stand-in had a longer name than the file, and was refused."""
    name = "n" * 250
    replace_file(tmp_path / name, b"x")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_what_another_process_left_half_written_is_in_nobody_s_way(tmp_path, monkeypatch):
    """Stand-ins were named by process and thread: numbers that come again, in a container after every start."""
    monkeypatch.setattr(os, "getpid", lambda: 7)
    with replacing(tmp_path / "x") as first, replacing(tmp_path / "x") as second:
        assert first != second
        first.write_bytes(b"1")
        second.write_bytes(b"2")
    assert (tmp_path / "x").read_bytes() == b"1"


# ---------------------------------------------------------------- memory


class Small:
    """A machine on which no more than so many pairs or rows fit at once."""

    def __init__(self, most, error):
        self.most, self.error, self.sizes = most, error, []

    def check(self, size):
        self.sizes.append(size)
        if size > self.most:
            raise self.error


ERRORS = [
    MemoryError(),
    RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:114] DefaultCPUAllocator: can't allocate memory: you tried"),
    torch.cuda.OutOfMemoryError("HIP out of memory"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: f"{type(error).__name__} {str(error)[:20]}")
@pytest.mark.parametrize("network", ["plain", "module"])
def test_blocks_of_pairs_shrink_until_they_fit_and_the_scores_are_the_same(monkeypatch, error, network):
    torch.manual_seed(0)
    A, B, y = torch.randn(30, 3), torch.randn(20, 3), torch.arange(20) % 2
    body = None if network == "plain" else nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1))
    module = PairwiseNetwork(3, (5,), body=body)
    module.requires_grad_(False)
    for parameter in module.parameters():
        parameter.mul_(4)  # scores that differ, or rounding would be all of their variance
    expected = scoring.similarity(module, A, B)
    mean = scoring.class_similarity(module, A, B, y, 2)
    small = Small(16, error)
    if network == "plain":
        forward = scoring._forward
        monkeypatch.setattr(
            scoring, "_forward", lambda a, b, *rest: small.check(len(a) * len(b)) or forward(a, b, *rest)
        )
    else:
        once = module.forward
        monkeypatch.setattr(module, "forward", lambda a, b: small.check(len(a)) or once(a, b))
    assert torch.allclose(scoring.similarity(module, A, B), expected, atol=1e-6)
    again = scoring.class_similarity(module, A, B, y, 2)
    assert torch.allclose(again.q, mean.q, atol=1e-6)
    assert torch.allclose(again.stderr, mean.stderr, rtol=0.01)
    assert max(small.sizes) > 16 >= min(small.sizes)


def test_blocks_of_rows_shrink_until_they_fit_and_predictions_are_the_same(monkeypatch, data):
    X, y = data
    clf = cs.CollisionClassifier(**TINY).fit(X, y)
    expected = clf.predict_proba(X)
    small, encode = Small(10, MemoryError()), scoring.encode
    monkeypatch.setattr(scoring, "encode", lambda module, rows: small.check(len(rows)) or encode(module, rows))
    assert np.allclose(clf.predict_proba(X), expected, atol=1e-7)
    assert max(small.sizes) > 10


def test_where_not_even_one_row_fits_the_error_says_what_to_try(monkeypatch, data):
    clf = cs.CollisionClassifier(**TINY).fit(*data)
    small = Small(0, RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    monkeypatch.setattr(scoring, "encode", lambda _module, rows: small.check(len(rows)))
    with pytest.raises(MemoryError, match="not enough memory on cpu while scoring rows: score fewer rows"):
        clf.predict_proba(data[0])


def test_memory_that_runs_out_in_training_says_what_to_try(data):
    class Hungry(nn.Linear):
        def forward(self, x):
            raise RuntimeError("CUDA out of memory. Tried to allocate 1 GiB")

    with pytest.raises(MemoryError, match="while training: lower batch_size"):
        cs.CollisionClassifier(model=Hungry, max_epochs=2, cv=2).fit(*data)


def test_only_want_of_memory_makes_blocks_shrink():
    def broken(rows, columns):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="mat1"):
        list(halved(broken, slice(0, 8), slice(0, 8)))


def test_halves_cover_every_pair_once():
    seen = np.zeros((13, 7), dtype=int)

    def score(rows, columns):
        if (rows.stop - rows.start) * (columns.stop - columns.start) > 3:
            raise MemoryError
        return 1

    for rows, columns, one in halved(score, slice(0, 13), slice(0, 7)):
        seen[rows, columns] += one
    assert (seen == 1).all()


# ---------------------------------------------------------------- devices and workers


@pytest.mark.parametrize(
    "words",
    [
        "CUDA error: unspecified launch failure\nCUDA kernel errors might be asynchronously reported",
        "CUDA error: the launch timed out and was terminated",
        "No CUDA GPUs are available",
        "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    ],
)
def test_a_gpu_that_vanishes_is_said_plainly(words):
    with (
        pytest.raises(
            DeviceError, match=r"device 'cuda' failed while training .*use device='cpu'.*checkpoint"
        ) as caught,
        said_plainly("training", "…", "cuda"),
    ):
        raise RuntimeError(words)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_gpu_that_runs_out_of_memory_is_not_called_lost():
    with pytest.raises(MemoryError, match="not enough memory on cuda:0"), said_plainly("x", "y", "cuda:0"):
        raise RuntimeError("CUDA error: out of memory")


def test_other_errors_pass_through_as_they_are():
    with pytest.raises(RuntimeError, match=r"^shapes$") as caught, said_plainly("x", "y", "cuda"):
        raise RuntimeError("shapes")
    assert not isinstance(caught.value, DeviceError)
    assert faults.ran_out_of_memory(ValueError("out of memory")) is False


def test_a_device_that_is_not_there_is_refused_before_the_fit(data):
    if torch.cuda.is_available():
        pytest.skip("it is there")
    with pytest.raises(ValueError, match="device 'cuda' cannot be used here"):
        cs.CollisionClassifier(device="cuda", **TINY).fit(*data)


def test_a_dead_worker_is_told_from_other_errors(monkeypatch, data):
    """joblib's own words: no process has to be started for it."""
    from concurrent.futures.process import BrokenProcessPool

    def dying(**_):
        def run(_jobs):
            raise BrokenProcessPool("A worker process managed by the executor was unexpectedly terminated")
            yield

        return run

    monkeypatch.setattr("collidescope.crossfit.Parallel", dying)
    with pytest.raises(WorkerError, match=r"a worker process died with 0 of 2 folds trained.*n_jobs=1"):
        cs.CollisionClassifier(**TINY, n_jobs=2).fit(*data)


WORKER = """
import os, signal, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
import collidescope as cs
from collidescope.crossfit import WorkerError

def dying(d, k):
    os.kill(os.getpid(), signal.SIGKILL)  # as the system does with a process that takes too much memory

X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
try:
    cs.CollisionClassifier(model=dying, cv=2, n_jobs=2).fit(X, y)
except WorkerError as error:
    print(error)
    print(cs.CollisionClassifier(hidden_layer_sizes=(), max_epochs=1, cv=2).fit(X, y).collision_matrix_.n_classes)
"""


@POSIX
@pytest.mark.slow
def test_a_worker_that_dies_is_said_plainly_and_the_next_fit_works():
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, "-c", WORKER], capture_output=True, text=True, env=env, timeout=300)
    said, works = run.stdout.splitlines() or (run.stderr[-2000:], "")
    assert "a worker process died with 0 of 2 folds trained" in said
    assert "n_jobs=1" in said
    assert works == "2"


def test_pairs_of_images_shrink_too(monkeypatch):
    module = PairwiseImageNetwork(nn.Sequential(nn.Flatten(), nn.Linear(2 * 9, 1)))
    A = torch.randn(6, 1, 3, 3)
    expected = scoring.similarity(module, A, A)
    small, once = Small(4, MemoryError()), module.forward
    monkeypatch.setattr(module, "forward", lambda a, b: small.check(len(a)) or once(a, b))
    assert torch.allclose(scoring.similarity(module, A, A), expected, atol=1e-6)
