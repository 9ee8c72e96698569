"""How fast a device is now: the times that the cost of a fit is made of (see :mod:`collidescope.cost`).

Everything is timed in the code that a fit runs, for about a second in all, and the middle one of a few repeats is
kept: what else runs on the machine belongs to the answer. Accelerators work on while the host goes ahead, so both ends
of a timing wait for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from collidescope.contrastive.config import TrainingConfig
from collidescope.contrastive.networks import (
    EncoderFactory,
    OneMember,
    PairModule,
    StackedMLP,
    pair_module,
)
from collidescope.contrastive.objectives import FactorisedObjective, PairwiseObjective
from collidescope.contrastive.threads import one_thread, tiny_is_zero
from collidescope.contrastive.training import Objective, make_optimizer, seeded_module, train_step

REPEATS = 5
#: Rows that are scored at once by a module of one's own, which may be large.
SCORED = 512
#: Steps in one timing: a single one of a small network is too short.
STEPS = 4
#: Side of the square matrices whose product is timed.
SIDE, ACCELERATOR_SIDE = 1024, 4096
#: Rows, features, hidden units and classes of a network so small that only the overhead of its layers is felt …
SMALL = (16, 4, (4, 4), 2)
#: … and of one whose activations, many and cheap to compute, take most of the time.
BROAD = (4096, 8, (64,), 8)
#: A time can come out below the overhead that is taken off it; nothing is faster than this.
LEAST = 1e-13


class DeviceTimes(NamedTuple):
    """Seconds of a layer of a training step and of one activation in it; float32 operations a second of a product."""

    layer: float
    value: float
    product: float


class ModuleTimes(NamedTuple):
    """Of a module of one's own: seconds a training step and a scored row (pair), weights, bytes kept a row and step."""

    step: float
    row: float
    weights: int
    kept: float


def device_times(device: str, *, alone: bool) -> DeviceTimes:
    """Time the device; ``alone`` uses one thread, as small fits do."""
    with one_thread(alone and device == "cpu"), _own_randomness(device):
        # An optimiser and a loss take about as long as two layers.
        layer = _network_step(SMALL, device) / (len(SMALL[2]) + 3)
        batch, _, hidden, k = BROAD
        rest = _network_step(BROAD, device) - (len(hidden) + 3) * layer
        side = SIDE if device == "cpu" else ACCELERATOR_SIDE
        square = torch.randn(side, side, device=device)
        product = 2 * side**3 / max(_seconds(lambda: square @ square, device), LEAST)
    return DeviceTimes(layer, max(rest / (batch * (sum(hidden) + k)), LEAST), product)


def module_times(
    factory: EncoderFactory,
    X: npt.NDArray[np.float32],
    codes: npt.NDArray[np.intp],
    n_classes: int,
    batch: int,
    config: TrainingConfig,
) -> ModuleTimes:
    """Train a module of one's own for a few steps of ``batch`` rows of ``X`` (scaled), and score some rows with it."""
    rows = torch.from_numpy(X).to(config.device)
    y = torch.from_numpy(np.asarray(codes, dtype=np.int64)).to(config.device)
    everything = torch.arange(len(y), device=config.device)
    step_rows = everything[torch.arange(batch, device=config.device) % len(y)]
    objective: Any
    with _own_randomness(config.device):
        if config.model == "pairwise":
            module = seeded_module(lambda: pair_module(factory, rows.shape[1], rows.ndim - 1), 0)
            natural = replace(config, sampling="natural")  # some rows need not have two of every class
            objective = PairwiseObjective(rows, y, (everything, everything), natural, 0)
            one_batch: Any = (step_rows, step_rows.flip(0), torch.zeros(batch, device=config.device))
        else:
            module = seeded_module(lambda: OneMember(factory(rows.shape[1], n_classes), rows.ndim - 1), 0)
            objective = FactorisedObjective(rows, y, n_classes, [(everything, everything)], config)
            one_batch = step_rows[None]
        module.to(config.device)
        kept = _bytes_kept(module, objective, one_batch) / batch
        step = _step(module, objective, one_batch, config)
        row = _row(module, rows[:SCORED], config.device)
    return ModuleTimes(step, row, sum(p.numel() for p in module.parameters()), kept)


def _network_step(shape: tuple[int, int, tuple[int, ...], int], device: str) -> float:
    batch, d, hidden, k = shape
    config = TrainingConfig(hidden_layer_sizes=hidden, batch_size=batch, device=device)
    X, y = torch.randn(batch, d, device=device), torch.arange(batch, device=device) % k
    rows = torch.arange(batch, device=device)
    module = StackedMLP(1, d, k, hidden).to(device)
    return _step(module, FactorisedObjective(X, y, k, [(rows, rows)], config), rows[None], config)


def _step(module: nn.Module, objective: Objective, batch: Any, config: TrainingConfig) -> float:
    optimizer = make_optimizer(module, config)
    module.train()

    def steps() -> None:
        for _ in range(STEPS):
            train_step(module, objective, optimizer, batch)

    with tiny_is_zero():  # as in training: steps on one batch soon have gradients of nothing else
        return _seconds(steps, config.device) / STEPS


def _row(module: nn.Module, X: Tensor, device: str) -> float:
    module.eval()

    def score() -> None:
        with torch.inference_mode():
            module(X, X.flip(0)) if isinstance(module, PairModule) else module(X)

    return _seconds(score, device) / len(X)


def _bytes_kept(module: nn.Module, objective: Any, batch: Any) -> float:
    """What a step holds for its way back: bytes of the distinct tensors that are saved, weights aside."""
    own = {p.data_ptr() for p in module.parameters()}
    saved: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in own:
            saved[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    module.train()
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        objective.loss(module, batch)
    return float(sum(saved.values()))


def _seconds(call: Callable[[], Any], device: str) -> float:
    """The middle of a few times; the first call loads what the others need."""
    call()
    times = []
    for _ in range(REPEATS):
        _wait(device)
        started = time.perf_counter()
        call()
        _wait(device)
        times.append(time.perf_counter() - started)
    return median(times)


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def _own_randomness(device: str) -> AbstractContextManager[None]:
    """Draws here must not change what the caller draws next."""
    return torch.random.fork_rng(devices=[torch.device(device)] if device.startswith("cuda") else [])
