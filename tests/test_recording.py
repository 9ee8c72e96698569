"""Recorded steps: used where they move the weights as the step does, given up where they fail."""

import gc
import warnings
import weakref

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from collidescope import CollisionWarning
from collidescope.learners import recipe
from collidescope.learners.base import Task
from collidescope.training import loop, recording


class Play:
    """What a graph of CUDA does with a step, on a CPU: it reads batches from one place."""

    def __init__(self, step, batch):
        self.step = step
        self.place = batch.clone()
        for _ in range(3):
            step(self.place)  # moves the weights
        plays.append(weakref.ref(self))

    def __call__(self, batch):
        self.place.copy_(batch)
        counts.append(batch.shape[1])
        return self.step(self.place)


def deaf(step, batch):
    """A recording that does not hear of new batches."""
    place = batch.clone()
    return lambda batch: step(place)


def failing(step, batch):
    step(batch)
    raise RuntimeError("operation not permitted when stream is capturing\nat a line")


counts = []
plays = []


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(recording, "unrecorded", set())
    plays.clear()
    counts.clear()


@pytest.fixture
def record(monkeypatch):
    """Let a CPU record with the given function."""

    def use(function):
        monkeypatch.setattr(recording, "capture", function)
        monkeypatch.setattr(
            loop, "can_record", lambda device: device not in recording.unrecorded
        )

    return use


def task():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(70, 1, 8, 8)).astype(np.float32)
    codes = np.arange(70) % 2
    X[codes == 1, :, :3] += 1
    return Task(X, codes, 2, seed=1, training={"max_epochs": 2})


def example():
    """A step that moves one tensor by the mean of its batch, and that tensor."""
    weight = torch.tensor([1.0, 2.0])

    def step(batch):
        weight.add_(batch.mean())
        return batch.sum()

    return step, weight


BATCH = torch.tensor([[0.0, 1.0, 5.0]])
OTHER = torch.tensor([[2.0, 7.0, 9.0]])


def recording_of(function):
    step, weight = example()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording, "capture", function)
        return recording.recorded(step, BATCH, OTHER, [weight]), weight


def first_is_heard(step, batch):
    """A recording that takes the first number of a batch for all of them."""
    return lambda batch: step(batch[:, :1])


def test_a_recording_that_agrees_is_used():
    played, _ = recording_of(Play)
    assert isinstance(played, Play)


def test_recording_leaves_the_state_as_it_was():
    _, weight = recording_of(Play)
    assert weight.tolist() == [1.0, 2.0]


def test_a_recording_that_moves_the_weights_otherwise_is_given_up():
    with pytest.warns(CollisionWarning, match="otherwise"):
        played, _ = recording_of(first_is_heard)
    assert not isinstance(played, Play)


def test_a_recording_that_fails_is_reported_in_one_line():
    with pytest.warns(CollisionWarning, match=r"one by one.*capturing\): results"):
        recording_of(failing)


def test_a_recording_that_fails_leaves_the_state_as_it_was():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollisionWarning)
        _, weight = recording_of(failing)
    assert weight.tolist() == [1.0, 2.0]


def test_a_fit_gives_up_a_recording_that_ignores_its_batches(record):
    record(deaf)
    with pytest.warns(CollisionWarning, match="otherwise"):
        recipe("convolution").fit(task())


def test_a_device_that_failed_once_is_not_asked_again(record):
    record(failing)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        recipe("convolution").fit(task())
    assert sum("one by one" in str(each.message) for each in caught) == 1


def test_a_fit_plays_its_recording(record):
    record(Play)
    recipe("convolution").fit(task())
    assert set(counts) == {32}  # full batches alone


def test_recorded_steps_learn_what_single_steps_learn(record):
    plain = recipe("convolution").fit(task())
    record(Play)
    played = recipe("convolution").fit(task())
    X = task().X
    assert_allclose(played.log_posteriors(X), plain.log_posteriors(X), atol=1e-4)


@pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")
def test_a_fit_goes_on_where_recording_fails(record):
    plain = recipe("convolution").fit(task())
    record(failing)
    fallen_back = recipe("convolution").fit(task())
    X = task().X
    assert np.array_equal(fallen_back.log_posteriors(X), plain.log_posteriors(X))


def test_recordings_let_go_of_their_memory(record):
    record(Play)
    recipe("convolution").fit(task())
    gc.collect()
    assert plays
    assert all(play() is None for play in plays)


def test_cpu_steps_are_not_recorded():
    assert not recording.can_record(torch.device("cpu"))


@pytest.mark.parametrize(
    ("capability", "enabled"), [((7, 5), False), ((8, 0), True), ((9, 0), True)]
)
def test_half_precision_is_for_gpus_that_compute_with_it(
    monkeypatch, capability, enabled
):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch, "autocast", lambda *given, **options: (given, options))
    context = recording.half_precision(torch.device("cuda"))
    used = isinstance(context, tuple)
    assert used == enabled
    if used:
        assert not context[1]["cache_enabled"]  # recordings refuse a cache


def test_images_that_do_not_fit_on_the_device_stay_on_the_host(monkeypatch):
    """With a device of its own kind, batches are copied there one by one."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100, 100))
    from collidescope.training.rows import as_rows

    moved = as_rows(torch.zeros(10, 1, 8, 8), "cuda")
    assert moved.data.device.type == "cpu"
    assert moved.device.type == "cuda"
