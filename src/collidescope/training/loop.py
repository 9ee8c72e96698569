"""The loop, fit_loop → run_epoch → train_step → loss of the objective, for any module.

An *objective* holds the data, draws an epoch's batches and gives losses, one per member of the stack that is trained
(M = 1 for a single network). The loop knows nothing of classes or pairs; the objective nothing of optimisers.

Randomness: epoch e draws from a generator seeded with (seed, e), so a run resumed after epoch e continues exactly as
an undisturbed one, with no generator state to save. The global generator is put back as it was.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from collidescope._environment import version_of
from collidescope._store import made_folder
from collidescope.training.checkpoint import BestWeights, Run, structure
from collidescope.training.config import TrainingConfig
from collidescope.training.machine import average_gradients, explained_errors, flushed_denormals, own_part, world

#: Seeds of epochs are spread by these odd numbers (Knuth's multipliers), so that neighbouring seeds share no epoch.
SEED_STRIDE, EPOCH_STRIDE = 2654435761, 40503
#: What to try when memory runs out.
REMEDY = "lower batch_size in training=, or use a smaller network; with checkpoint= the same fit goes on"


class Objective(Protocol):
    """What is learned by the M = ``n_members`` networks: data, batches and losses.

    ``signature`` is text that other data or weights would not share. The last dimension of a batch counts rows, or
    pairs of them. ``loss`` is summed over the members, ``held_out_loss`` has shape (M,).
    """

    n_members: int

    @property
    def signature(self) -> str: ...
    def batches(self, generator: torch.Generator) -> Iterator[Tensor]: ...
    def loss(self, module: nn.Module, batch: Tensor) -> Tensor: ...
    def held_out_loss(self, module: nn.Module) -> Tensor: ...


class TrainingResult(NamedTuple):
    """What a run leaves: the module (best weights restored), the losses, and how it ended."""

    module: nn.Module
    val_loss: Tensor
    history: list[dict[str, Any]]
    best_epoch: list[int]
    interrupted: bool


def epoch_generator(seed: int, epoch: int, device: torch.device | str = "cpu") -> torch.Generator:
    """The generator of one epoch (epoch 0: the initial weights)."""
    return torch.Generator(device=device).manual_seed((seed * SEED_STRIDE + epoch * EPOCH_STRIDE + 1) % 2**63)


def seeded_module(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """``build()`` with initial weights that follow from ``seed``; the global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(epoch_generator(seed, 0).initial_seed())
        return build()


def make_optimizer(module: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """AdamW; weights decay, biases and other vectors do not (decay would pull class frequencies to uniform)."""
    groups: dict[float, list[nn.Parameter]] = {config.weight_decay: [], 0.0: []}
    used = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    for name, p in used:
        groups[0.0 if "bias" in name or p.ndim < 2 else config.weight_decay].append(p)
    fused = all(p.device.type in ("cpu", "cuda") and p.is_floating_point() for _, p in used)
    parts = [{"params": params, "weight_decay": decay} for decay, params in groups.items() if params]
    return torch.optim.AdamW(parts, lr=config.learning_rate, fused=fused)


def fit_loop(
    module: nn.Module,
    objective: Objective,
    config: TrainingConfig,
    seed: int,
    progress: Callable[[dict[str, Any]], None] | None = None,
    checkpoint: str | Path | None = None,
    name: str = "network",
) -> TrainingResult:
    """Train until the held-out loss stops falling.

    Ctrl-C (KeyboardInterrupt) ends the loop, keeps the best weights so far and sets ``interrupted``.

    ``module`` is a stack (leading dimension M of every parameter) or, when the objective has one member, any module.
    ``progress`` is called after every epoch with its entry of the history plus ``name`` and ``max_epochs``. In the
    folder ``checkpoint`` ``name``.safetensors is written after every epoch; a run of the same settings is continued.
    """
    module.to(config.device)
    best, optimizer = BestWeights(module, objective.n_members), make_optimizer(module, config)
    run, path, history, interrupted = Run(module, optimizer, best), None, [], False
    if checkpoint is not None:
        path = made_folder(checkpoint, "checkpoint") / f"{name}.safetensors"
        settings = {"seed": seed, "data": objective.signature, **config.fingerprint()}
        settings["versions"] = {package: version_of(package) for package in ("collidescope", "torch", "numpy")}
        settings["module"] = structure(module)
        history = run.restore(path, settings)
    # Dropout draws from the global generators: they are seeded per epoch and put back at the end.
    devices = [torch.device(config.device)] if str(config.device).startswith("cuda") else []
    explained = explained_errors("training", REMEDY, str(config.device))
    with torch.random.fork_rng(devices=devices), flushed_denormals(), explained:
        try:
            for epoch in range(len(history) + 1, config.max_epochs + 1):
                if best.exhausted(config.patience):
                    break
                generator = epoch_generator(seed, epoch, config.device)
                # not torch.manual_seed, which prepares every kind of device, at a millisecond per epoch
                torch.default_generator.manual_seed(generator.initial_seed())
                for device in devices:
                    with torch.cuda.device(device):
                        torch.cuda.manual_seed(generator.initial_seed())
                started = time.perf_counter()
                train_loss = run_epoch(module, objective, optimizer, generator)
                module.eval()
                with torch.inference_mode():
                    val_loss = objective.held_out_loss(module).clone()
                best.update(module, val_loss, epoch, always=config.patience == 0)
                entry = {"epoch": epoch, "train_loss": train_loss, "val_loss": float(val_loss.mean())}
                history.append(entry | {"seconds": time.perf_counter() - started})
                if path is not None and world()[0] == 0:
                    run.save(path, settings, history)
                if progress is not None:
                    progress({"name": name, "max_epochs": config.max_epochs, **history[-1]})
        except KeyboardInterrupt:
            interrupted = True
    module.load_state_dict(best.state)
    # Where nothing was held out there is no such loss, and files hold finite numbers alone.
    finite = [{key: value for key, value in entry.items() if value == value} for entry in history]
    return TrainingResult(module.eval(), best.loss, finite, best.epoch.tolist(), interrupted)


def run_epoch(
    module: nn.Module, objective: Objective, optimizer: torch.optim.Optimizer, generator: torch.Generator
) -> float:
    """One pass over the objective's batches; returns the mean training loss of a member."""
    module.train()
    losses = [train_step(module, objective, optimizer, batch) for batch in objective.batches(generator)]
    # One transfer per epoch: asking each step for its number would make an accelerator wait for the host.
    mean = float(torch.stack(losses).mean()) / objective.n_members
    if not math.isfinite(mean):
        remedy = "lower learning_rate, or check X for values far outside the usual range"
        raise FloatingPointError(f"the training loss became {mean}: {remedy}")
    return mean


def train_step(module: nn.Module, objective: Objective, optimizer: torch.optim.Optimizer, batch: Tensor) -> Tensor:
    """One gradient step. Members share no parameter, so the gradient of the sum is each member's own."""
    own, weight = own_part(batch)
    loss = objective.loss(module, own)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    average_gradients(module, weight)
    optimizer.step()
    return loss.detach()
