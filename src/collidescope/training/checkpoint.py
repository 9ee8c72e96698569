"""What is kept of a training run: the best weights in memory, and after every epoch all of it in one file.

The file is replaced at once: a run killed while it writes leaves the previous epoch whole, and weights and numbers can
never come from different epochs. A run is continued only by the same run: same settings and seed, same rows in the same
splits, a module of the same structure, the same versions.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from collidescope import _store

MINIMUM_GAIN = 1e-4  #: an epoch is better if the held-out loss falls by more: less is luck, and could go on for ever
LARGEST_WEIGHT = 1e9  #: weights of standardised inputs are far below this; larger ones overflow float32 a few layers on
LEAST = {"step": 1.0, "exp_avg_sq": 0.0}  #: least values of what AdamW keeps beside averages of gradients
HISTORY = ("train_loss", "val_loss", "seconds")  #: columns of the history beside the number of the epoch
STORED_AS = {torch.bfloat16: torch.int16}  #: types of torch that numpy lacks are stored as integers of the same size


class BestWeights:
    """The best weights of every member so far, and for how long they have been the best."""

    def __init__(self, module: nn.Module, n_members: int) -> None:
        device = next(module.parameters()).device
        self.state = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
        self.loss = torch.full((n_members,), math.inf, device=device)
        self.epoch, self.waited = (torch.zeros(n_members, dtype=torch.long, device=device) for _ in range(2))

    def update(self, module: nn.Module, val_loss: Tensor, epoch: int, always: bool = False) -> None:
        better = (val_loss < self.loss - MINIMUM_GAIN) | always

        def kept(new: Tensor, old: Tensor) -> Tensor:  # members are rows of every tensor; a single one has all of it
            return torch.where(better.view(-1, *[1] * (new.ndim - 1)), new.detach(), old).view(new.shape)

        state, waited = self.state, torch.where(better, 0, self.waited + 1)
        if bool(better.any()):
            state = {name: kept(tensor, state[name]) for name, tensor in module.state_dict().items()}
        loss, at = torch.where(better, val_loss.to(self.loss), self.loss), torch.where(better, epoch, self.epoch)
        # At once: Ctrl-C between two layers would leave weights of two epochs.
        self.waited, self.state, self.loss, self.epoch = waited, state, loss, at

    def exhausted(self, patience: int) -> bool:
        """Whether no member has improved for ``patience`` epochs."""
        return patience > 0 and bool((self.waited >= patience).all())


class Run(NamedTuple):
    """What changes while a module is trained, and how a file holds it; ``settings`` must agree for it to go on."""

    module: nn.Module
    optimizer: torch.optim.Optimizer
    best: BestWeights

    def save(self, path: Path, settings: dict[str, Any], history: list[dict[str, Any]]) -> None:
        """Write the state after an epoch."""
        columns = {name: np.array([entry[name] for entry in history], np.float64) for name in HISTORY}
        tensors = {name: _to_numpy(tensor) for name, tensor in self._tensors().items()}
        _store.write(path, "checkpoint", {"fingerprint": settings, "history": columns, "tensors": tensors})

    def restore(self, path: Path, settings: dict[str, Any]) -> list[dict[str, Any]]:
        """Continue from the file, or start anew (an empty history) where there is none."""
        if not path.exists():
            return []
        try:
            tree = _store.read(path, "checkpoint")
        except _store.ModelFileError as error:
            raise ValueError(f"{error}: delete it to start anew, or use another folder") from None
        if (found := tree.get("fingerprint")) != settings:
            known = found if isinstance(found, dict) else {}
            changed = [str(name) for name in {**settings, **known} if known.get(name) != settings.get(name)]
            said = f"{path} belongs to a run with other settings ({', '.join(changed)}):"
            raise ValueError(f"{said} use the same settings and seed, another folder, or delete it")
        try:
            self._load(tree["tensors"])
            return _checked_history(tree["history"], nothing_held_out=bool(self.best.loss.isnan().all()))
        except (AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"{path} does not fit this network ({error}): delete it or use another folder") from None

    def _tensors(self) -> dict[str, Tensor]:
        """All tensors of the run by name."""
        kept = {f"module.{name}": tensor for name, tensor in self.module.state_dict().items()}
        for index, state in self.optimizer.state_dict()["state"].items():
            kept |= {f"optimizer.{index}.{name}": tensor for name, tensor in state.items()}
        kept |= {f"best.{name}": tensor for name, tensor in self.best.state.items()}
        return kept | {"waited": self.best.waited, "epoch": self.best.epoch, "loss": self.best.loss}

    def _load(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Copy the arrays into the run; what it would not have written is refused: a checksum can be made to fit."""
        used = [(group["fused"], p) for group in self.optimizer.param_groups for p in group["params"]]
        for index, (fused, p) in enumerate(used):
            if any(name.startswith(f"optimizer.{index}.") for name in arrays):  # else no loss reaches the parameter
                step = torch.zeros((), device=p.device if fused else "cpu")
                means = {name: torch.zeros_like(p) for name in ("exp_avg", "exp_avg_sq")}
                self.optimizer.state[p] = {"step": step, **means}
        tensors = self._tensors()
        if arrays.keys() != tensors.keys():
            raise ValueError(f"{min(arrays.keys() ^ tensors.keys())} is missing or too many")
        for name, tensor in tensors.items():
            given = torch.from_numpy(arrays[name])
            if (given.dtype, given.shape) != (STORED_AS.get(tensor.dtype, tensor.dtype), tensor.shape):
                raise ValueError(f"{name} has dtype {given.dtype} and shape {tuple(given.shape)}")
            given = given.view(tensor.dtype)
            room, _, last = name.rpartition(".")  # the losses of the best weights, without a dot, may be infinite
            least = LEAST.get(last, -LARGEST_WEIGHT) if room.startswith("optimizer.") else -LARGEST_WEIGHT
            inside = (given >= least) & (given <= LARGEST_WEIGHT)  # nan is not
            if room and given.is_floating_point() and not bool(inside.all()):
                raise ValueError(f"{name} must be between {least:g} and {LARGEST_WEIGHT:g}")
            tensor.copy_(given)


def structure(module: nn.Module) -> str:
    """A digest of what a module computes beside its weights: layers and their settings, and custom code.

    Two modules with tensors of the same names and shapes may have other activations. Those that are layers appear in
    the representation of the module, those that are functions in the byte code of its ``forward``.
    """
    parts = [repr(module), *(f"{name} {tuple(t.shape)} {t.dtype}" for name, t in module.state_dict().items())]
    for part in module.modules():
        code = getattr(type(part).forward, "__code__", None)
        if code is not None and not type(part).__module__.startswith("torch."):
            constants = [value for value in code.co_consts if isinstance(value, int | float | str | None)]
            parts.append(f"{type(part).__qualname__} {code.co_code.hex()} {code.co_names} {constants}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _to_numpy(tensor: Tensor) -> npt.NDArray[Any]:
    tensor = tensor.detach().cpu().contiguous()
    return np.asarray(tensor.view(STORED_AS.get(tensor.dtype, tensor.dtype)).numpy())


def _checked_history(columns: dict[str, npt.NDArray[Any]], nothing_held_out: bool) -> list[dict[str, Any]]:
    """Losses and seconds, epoch by epoch; the held-out loss is nan where nothing was held out."""
    table = np.column_stack([columns[name] for name in HISTORY])
    known = columns.keys() == set(HISTORY) and table.dtype == np.float64 and table.shape[1] == len(HISTORY)
    finite = np.isfinite(table) | (nothing_held_out & (np.array(HISTORY) == "val_loss"))
    if not known or not finite.all():
        raise ValueError("history must hold finite numbers for each quantity, epoch by epoch")
    return [{"epoch": epoch, **dict(zip(HISTORY, row, strict=True))} for epoch, row in enumerate(table.tolist(), 1)]
