"""The loop, fit_loop → run_epoch → train_step → loss of the objective, for any module; and what is kept of a run.

An *objective* holds the data, draws an epoch's batches and gives losses, one per member of the stack that is trained
(M = 1 for a single network). The loop knows nothing of classes or pairs; the objective nothing of optimisers.

Randomness: epoch e draws from a generator seeded with (seed, e), so a run resumed after epoch e continues exactly as
an undisturbed one, with no generator state to save. The global generator is put back as it was.

A checkpoint is one file, replaced at once: a run killed while it writes leaves the previous epoch whole, and weights
and numbers can never come from different epochs. A run is continued only by the same run: same settings and seed, same
rows in the same splits, a module of the same structure, the same versions.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from collidescope import _store
from collidescope._environment import version_of
from collidescope.training.config import TrainingConfig
from collidescope.training.machine import (
    average_gradients,
    explained_errors,
    flushed_denormals,
    own_part,
    world,
)

#: Seeds of epochs are spread by these odd numbers (Knuth's multipliers), so that neighbouring seeds share no epoch.
SEED_STRIDE, EPOCH_STRIDE = 2654435761, 40503
#: What to try when memory runs out.
REMEDY = (
    "lower batch_size in training=, or use a smaller network; with checkpoint= the same fit goes on"
)
MINIMUM_GAIN = 1e-4  #: an epoch is better if the held-out loss falls by more: less is luck, and could go on for ever
LARGEST_WEIGHT = 1e9  #: weights of standardised inputs are far below this; larger ones overflow float32 a few layers on
LEAST = {
    "step": 1.0,
    "exp_avg_sq": 0.0,
}  #: least values of what AdamW keeps beside averages of gradients
HISTORY = (
    "train_loss",
    "val_loss",
    "seconds",
)  #: columns of the history beside the number of the epoch
STORED_AS = {
    torch.bfloat16: torch.int16
}  #: types of torch that numpy lacks are stored as integers of the same size


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


def epoch_generator(seed: int, epoch: int, device: torch.device | str = "cpu") -> torch.Generator:
    """The generator of one epoch (epoch 0: the initial weights)."""
    return torch.Generator(device=device).manual_seed(
        (seed * SEED_STRIDE + epoch * EPOCH_STRIDE + 1) % 2**63
    )


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
    parts = [
        {"params": params, "weight_decay": decay} for decay, params in groups.items() if params
    ]
    return torch.optim.AdamW(parts, lr=config.learning_rate, fused=fused)


def fit_loop(
    module: nn.Module,
    objective: Objective,
    config: TrainingConfig,
    seed: int,
    progress: Callable[[dict[str, Any]], None] | None = None,
    checkpoint: str | Path | None = None,
    name: str = "network",
) -> Run:
    """Train until the held-out loss stops falling.

    Ctrl-C (KeyboardInterrupt) ends the loop, keeps the best weights so far and sets ``interrupted``.

    ``module`` is a stack (leading dimension M of every parameter) or, when the objective has one member, any module.
    ``progress`` is called after every epoch with its entry of the history plus ``name`` and ``max_epochs``. In the
    folder ``checkpoint`` ``name``.safetensors is written after every epoch; a run of the same settings is continued.
    """
    module.to(config.device)
    best, optimizer = BestWeights(module, objective.n_members), make_optimizer(module, config)
    run, path = Run(module, optimizer, best), None
    if checkpoint is not None:
        path = _store.made_folder(checkpoint, "checkpoint") / f"{name}.safetensors"
        settings = {"seed": seed, "data": objective.signature, **config.fingerprint()}
        settings["versions"] = {
            package: version_of(package) for package in ("collidescope", "torch", "numpy")
        }
        settings["module"] = structure(module)
        run.restore(path, settings)
    # Dropout draws from the global generators: they are seeded per epoch and put back at the end.
    devices = [torch.device(config.device)] if str(config.device).startswith("cuda") else []
    explained = explained_errors("training", REMEDY, str(config.device))
    with torch.random.fork_rng(devices=devices), flushed_denormals(), explained:
        try:
            for epoch in range(len(run.history) + 1, config.max_epochs + 1):
                if 0 < config.patience <= int(best.waited.min()):  # of every member
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
                entry = {
                    "epoch": epoch,
                    "train_loss": train_loss,
                    "val_loss": float(val_loss.mean()),
                }
                run.history.append(entry | {"seconds": time.perf_counter() - started})
                if path is not None and world()[0] == 0:
                    run.save(path, settings)
                if progress is not None:
                    progress({"name": name, "max_epochs": config.max_epochs, **run.history[-1]})
        except KeyboardInterrupt:
            run.interrupted = True
    module.load_state_dict(best.state)
    module.eval()
    # Where nothing was held out there is no such loss, and files hold finite numbers alone.
    run.history = [
        {key: value for key, value in entry.items() if value == value} for entry in run.history
    ]
    return run


def run_epoch(
    module: nn.Module,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator,
) -> float:
    """One pass over the objective's batches; returns the mean training loss of a member."""
    module.train()
    losses = [
        train_step(module, objective, optimizer, batch) for batch in objective.batches(generator)
    ]
    # One transfer per epoch: asking each step for its number would make an accelerator wait for the host.
    mean = float(torch.stack(losses).mean()) / objective.n_members
    if not math.isfinite(mean):
        remedy = "lower learning_rate, or check X for values far outside the usual range"
        raise FloatingPointError(f"the training loss became {mean}: {remedy}")
    return mean


def train_step(
    module: nn.Module, objective: Objective, optimizer: torch.optim.Optimizer, batch: Tensor
) -> Tensor:
    """One gradient step. Members share no parameter, so the gradient of the sum is each member's own."""
    own, weight = own_part(batch)
    loss = objective.loss(module, own)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    average_gradients(module, weight)
    optimizer.step()
    return loss.detach()


class BestWeights:
    """The best weights of every member so far, and for how long they have been the best."""

    def __init__(self, module: nn.Module, n_members: int) -> None:
        device = next(module.parameters()).device
        self.state = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
        self.loss = torch.full((n_members,), math.inf, device=device)
        self.epoch, self.waited = (
            torch.zeros(n_members, dtype=torch.long, device=device) for _ in range(2)
        )

    def update(self, module: nn.Module, val_loss: Tensor, epoch: int, always: bool = False) -> None:
        better = (val_loss < self.loss - MINIMUM_GAIN) | always

        def kept(
            new: Tensor, old: Tensor
        ) -> Tensor:  # members are rows of every tensor; a single one has all of it
            return torch.where(better.view(-1, *[1] * (new.ndim - 1)), new.detach(), old).view(
                new.shape
            )

        state, waited = self.state, torch.where(better, 0, self.waited + 1)
        if bool(better.any()):
            state = {
                name: kept(tensor, state[name]) for name, tensor in module.state_dict().items()
            }
        loss, at = (
            torch.where(better, val_loss.to(self.loss), self.loss),
            torch.where(better, epoch, self.epoch),
        )
        # At once: Ctrl-C between two layers would leave weights of two epochs.
        self.waited, self.state, self.loss, self.epoch = waited, state, loss, at


@dataclass
class Run:
    """A module in training and how a file holds it: best weights, losses epoch by epoch, whether Ctrl-C ended it."""

    module: nn.Module
    optimizer: torch.optim.Optimizer
    best: BestWeights
    history: list[dict[str, Any]] = field(default_factory=list)
    interrupted: bool = False

    def save(self, path: Path, settings: dict[str, Any]) -> None:
        """Write the state after an epoch."""
        columns = {
            name: np.array([entry[name] for entry in self.history], np.float64) for name in HISTORY
        }
        tensors = {
            name: tensor.detach().cpu().contiguous() for name, tensor in self._tensors().items()
        }
        arrays = {
            name: t.view(STORED_AS.get(t.dtype, t.dtype)).numpy() for name, t in tensors.items()
        }
        _store.write(
            path, "checkpoint", {"fingerprint": settings, "history": columns, "tensors": arrays}
        )

    def restore(self, path: Path, settings: dict[str, Any]) -> None:
        """Continue from the file, where there is one, if it has the same ``settings``."""
        if not path.exists():
            return
        try:
            tree = _store.read(path, "checkpoint")
        except _store.ModelFileError as error:
            raise ValueError(f"{error}: delete it to start anew, or use another folder") from None
        if (found := tree.get("fingerprint")) != settings:
            known = found if isinstance(found, dict) else {}
            changed = [
                str(name) for name in {**settings, **known} if known.get(name) != settings.get(name)
            ]
            said = f"{path} belongs to a run with other settings ({', '.join(changed)}):"
            raise ValueError(f"{said} use the same settings and seed, another folder, or delete it")
        try:
            self._load(tree["tensors"])
            self.history = _checked_history(tree["history"], bool(self.best.loss.isnan().all()))
        except (AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"{path} does not fit this network ({error}): delete it or use another folder"
            ) from None

    def _tensors(self) -> dict[str, Tensor]:
        """All tensors of the run by name."""
        kept = {f"module.{name}": tensor for name, tensor in self.module.state_dict().items()}
        for index, state in self.optimizer.state_dict()["state"].items():
            kept |= {f"optimizer.{index}.{name}": tensor for name, tensor in state.items()}
        kept |= {f"best.{name}": tensor for name, tensor in self.best.state.items()}
        return kept | {"waited": self.best.waited, "epoch": self.best.epoch, "loss": self.best.loss}

    def _load(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Copy the arrays into the run; what it would not have written is refused: a checksum can be made to fit."""
        used = [
            (group["fused"], p) for group in self.optimizer.param_groups for p in group["params"]
        ]
        for index, (fused, p) in enumerate(used):
            if any(
                name.startswith(f"optimizer.{index}.") for name in arrays
            ):  # else no loss reaches the parameter
                step = torch.zeros((), device=p.device if fused else "cpu")
                means = {name: torch.zeros_like(p) for name in ("exp_avg", "exp_avg_sq")}
                self.optimizer.state[p] = {"step": step, **means}
        tensors = self._tensors()
        if arrays.keys() != tensors.keys():
            raise ValueError(f"{min(arrays.keys() ^ tensors.keys())} is missing or too many")
        for name, tensor in tensors.items():
            given = torch.from_numpy(arrays[name])
            if (given.dtype, given.shape) != (
                STORED_AS.get(tensor.dtype, tensor.dtype),
                tensor.shape,
            ):
                raise ValueError(f"{name} has dtype {given.dtype} and shape {tuple(given.shape)}")
            given = given.view(tensor.dtype)
            room, _, last = name.rpartition(
                "."
            )  # the losses of the best weights, without a dot, may be infinite
            least = (
                LEAST.get(last, -LARGEST_WEIGHT)
                if room.startswith("optimizer.")
                else -LARGEST_WEIGHT
            )
            inside = (given >= least) & (given <= LARGEST_WEIGHT)  # nan is not
            if room and given.is_floating_point() and not bool(inside.all()):
                raise ValueError(f"{name} must be between {least:g} and {LARGEST_WEIGHT:g}")
            tensor.copy_(given)
        # a custom module may give copies of its weights
        self.module.load_state_dict(
            {name: tensors[f"module.{name}"] for name in self.module.state_dict()}
        )


def structure(module: nn.Module) -> str:
    """A digest of what a module computes beside its weights: layers and their settings, and custom code.

    Two modules with tensors of the same names and shapes may have other activations. Those that are layers appear in
    the representation of the module, those that are functions in the byte code of its ``forward``.
    """
    parts = [
        repr(module),
        *(f"{name} {tuple(t.shape)} {t.dtype}" for name, t in module.state_dict().items()),
    ]
    for part in module.modules():
        code = getattr(type(part).forward, "__code__", None)
        if code is not None and not type(part).__module__.startswith("torch."):
            constants = [
                value for value in code.co_consts if isinstance(value, int | float | str | None)
            ]
            parts.append(
                f"{type(part).__qualname__} {code.co_code.hex()} {code.co_names} {constants}"
            )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _checked_history(
    columns: dict[str, npt.NDArray[Any]], nothing_held_out: bool
) -> list[dict[str, Any]]:
    """Losses and seconds, epoch by epoch; the held-out loss is nan where nothing was held out."""
    table = np.column_stack([columns[name] for name in HISTORY])
    known = (
        columns.keys() == set(HISTORY)
        and table.dtype == np.float64
        and table.shape[1] == len(HISTORY)
    )
    finite = np.isfinite(table) | (nothing_held_out & (np.array(HISTORY) == "val_loss"))
    if not known or not finite.all():
        raise ValueError("history must hold finite numbers for each quantity, epoch by epoch")
    return [
        {"epoch": epoch, **dict(zip(HISTORY, row, strict=True))}
        for epoch, row in enumerate(table.tolist(), 1)
    ]
