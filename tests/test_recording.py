"""Recorded passes: used where they agree with the module, given up where they fail."""

import gc
import warnings
import weakref

import numpy as np
import pytest
import torch

from collidescope import CollisionWarning
from collidescope.learners import images, recipe
from collidescope.learners.base import Task
from collidescope.training import recording


class Played(torch.autograd.Function):
    """Passes with static inputs and gradients, as a graph of CUDA has them."""

    @staticmethod
    def forward(ctx, play, x, *parameters):
        ctx.play = play
        play.static.copy_(x)
        with torch.enable_grad():
            play.logits = play.original(play.static)
        return play.logits.detach()

    @staticmethod
    def backward(ctx, gradient):
        play = ctx.play
        own = list(play.module.parameters())
        return None, None, *torch.autograd.grad(play.logits, own, gradient)


class Play:
    def __init__(self, module, static):
        self.module = module
        self.static = static
        self.original = module.forward
        self.played = 0

    def __call__(self, x):
        self.played += 1
        return Played.apply(self, x, *self.module.parameters())


def graphed(module, arguments):
    """What torch.cuda.make_graphed_callables does to a module, on a CPU."""
    (static,) = arguments
    for _ in range(3):
        module(static)  # moves the averages of batch normalisation
    play = Play(module, static)
    plays.append(weakref.ref(play))
    module.forward = play
    return module


def deaf(module, arguments):
    """A recording that does not hear of new inputs."""
    (static,) = arguments
    original = module.forward
    module.forward = lambda x: original(static)
    return module


def failing(module, arguments):
    raise RuntimeError("operation not permitted when stream is capturing\nat a line")


plays = []


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(recording, "unrecorded", set())
    plays.clear()


@pytest.fixture
def record(monkeypatch):
    """Let a CPU record with the given function."""

    def use(function):
        monkeypatch.setattr(torch.cuda, "make_graphed_callables", function)
        monkeypatch.setattr(
            images, "can_record", lambda device: device not in recording.unrecorded
        )

    return use


def network():
    torch.manual_seed(0)
    return images.build((1, 8, 8), 2, 4).to(memory_format=torch.channels_last)


def sample():
    return torch.randn(16, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def task():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(70, 1, 8, 8)).astype(np.float32)
    codes = np.arange(70) % 2
    X[codes == 1, :, :3] += 1
    return Task(X, codes, 2, seed=1, training={"max_epochs": 2})


def test_a_recording_that_agrees_is_used(record):
    record(graphed)
    assert isinstance(recording.recorded(network(), sample()).forward, Play)


def test_recording_leaves_the_module_as_it_was(record):
    record(graphed)
    module = network()
    recording.recorded(module, sample())
    untouched = network().state_dict()
    for name, values in module.state_dict().items():
        assert torch.equal(values, untouched[name])


def test_a_recording_that_ignores_its_input_is_given_up(record):
    record(deaf)
    with pytest.warns(CollisionWarning, match="other numbers"):
        assert recording.recorded(network(), sample()) is None


def test_a_recording_that_fails_is_reported_in_one_line(record):
    record(failing)
    with pytest.warns(CollisionWarning, match=r"one by one.*capturing\): results"):
        assert recording.recorded(network(), sample()) is None


def test_a_device_that_failed_once_is_not_asked_again(record):
    record(failing)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        recipe("convolution").fit(task())
    assert sum("one by one" in str(each.message) for each in caught) == 1


def test_a_fit_plays_its_recording(record):
    record(graphed)
    counts = []
    original = Play.__call__

    def counted(self, x):
        counts.append(len(x))
        return original(self, x)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Play, "__call__", counted)
        recipe("convolution").fit(task())
    assert set(counts) == {32}  # full batches alone


def test_recorded_steps_learn_what_single_steps_learn(record):
    plain = recipe("convolution").fit(task())
    record(graphed)
    played = recipe("convolution").fit(task())
    X = task().X
    np.testing.assert_allclose(
        played.log_posteriors(X), plain.log_posteriors(X), atol=1e-4
    )


@pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")
def test_a_fit_goes_on_where_recording_fails(record):
    plain = recipe("convolution").fit(task())
    record(failing)
    fallen_back = recipe("convolution").fit(task())
    X = task().X
    assert np.array_equal(fallen_back.log_posteriors(X), plain.log_posteriors(X))


def test_recordings_let_go_of_their_memory(record):
    record(graphed)
    gc.disable()
    try:
        recipe("convolution").fit(task())
        assert plays
        assert all(play() is None for play in plays)
    finally:
        gc.enable()


def test_cpu_passes_are_not_recorded():
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
