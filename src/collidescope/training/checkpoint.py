"""A training run on disk: module, optimiser, best weights and history of the last whole epoch, in one file.

One file, replaced at once: a run killed while it writes leaves the previous epoch whole, and weights and numbers can
never come from different epochs. A run is continued only by the same run: same settings and seed, same rows in the same
splits, a module of the same structure, the same versions.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from collidescope import _store
from collidescope._environment import version_of

if TYPE_CHECKING:
    from collidescope.training.loop import BestWeights

LARGEST_WEIGHT = 1e9  #: weights of standardised inputs are far below this; larger ones overflow float32 a few layers on
LEAST = {"step": 1.0, "exp_avg_sq": 0.0}  #: least values of what AdamW keeps beside averages of gradients
HISTORY = ("train_loss", "val_loss", "seconds")  #: columns of the history beside the number of the epoch
STORED_AS = {torch.bfloat16: torch.int16}  #: types of torch that numpy lacks are stored as integers of the same size


class Checkpoint:
    """Save and restore a run under ``folder/name.safetensors``."""

    def __init__(self, folder: Path, name: str, settings: dict[str, Any]) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"checkpoint {str(folder)!r} cannot be a folder: {error.strerror}") from None
        self.path = folder / f"{name}.safetensors"
        self.settings = settings | {"versions": {name: version_of(name) for name in ("collidescope", "torch", "numpy")}}

    def save(
        self, module: nn.Module, optimizer: torch.optim.Optimizer, best: BestWeights, history: list[dict[str, Any]]
    ) -> None:
        """Write the state after an epoch."""
        columns = {name: np.array([entry[name] for entry in history], np.float64) for name in HISTORY}
        tensors = {name: _to_numpy(tensor) for name, tensor in _state(module, optimizer, best).items()}
        fingerprint = self.settings | {"module": structure(module)}
        _store.write(self.path, "checkpoint", {"fingerprint": fingerprint, "history": columns, "tensors": tensors})

    def restore(self, module: nn.Module, optimizer: torch.optim.Optimizer, best: BestWeights) -> list[dict[str, Any]]:
        """Continue from the file, or start anew (an empty history) where there is none."""
        if not self.path.exists():
            return []
        try:
            tree = _store.read(self.path, "checkpoint")
        except _store.ModelFileError as error:
            raise ValueError(f"{error}: delete it to start anew, or use another folder") from None
        ours, theirs = self.settings | {"module": structure(module)}, tree.get("fingerprint")
        if theirs != ours:
            known = theirs if isinstance(theirs, dict) else {}
            changed = [str(name) for name in {**ours, **known} if known.get(name) != ours.get(name)]
            said = f"{self.path} belongs to a run with other settings ({', '.join(changed)}):"
            raise ValueError(f"{said} use the same settings and seed, another folder, or delete it")
        try:
            tensors = _checked_tensors(tree["tensors"], module, optimizer, best)
            history = _checked_history(tree["history"], nothing_held_out=bool(tensors["loss"].isnan().all()))
            module.load_state_dict({name: tensors[f"module.{name}"] for name in module.state_dict()})
            state: dict[int, dict[str, Tensor]] = {}
            for key in [key for key in tensors if key.startswith("optimizer.")]:
                _, index, name = key.split(".", 2)
                state.setdefault(int(index), {})[name] = tensors[key]
            optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
            for name, tensor in _state_of(best).items():
                tensor.copy_(tensors[name])
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            message = f"{self.path} does not fit this network ({error}): delete it or use another folder"
            raise ValueError(message) from None
        return history


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


def _state_of(best: BestWeights) -> dict[str, Tensor]:
    weights = {f"best.{name}": tensor for name, tensor in best.state.items()}
    return weights | {"waited": best.waited, "epoch": best.epoch, "loss": best.loss}


def _state(module: nn.Module, optimizer: torch.optim.Optimizer, best: BestWeights) -> dict[str, Tensor]:
    """All tensors of a run by name."""
    tensors = {f"module.{name}": tensor for name, tensor in module.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": value for name, value in state.items()}
    return tensors | _state_of(best)


def _to_numpy(tensor: Tensor) -> npt.NDArray[Any]:
    tensor = tensor.detach().cpu().contiguous()
    return np.asarray(tensor.view(STORED_AS.get(tensor.dtype, tensor.dtype)).numpy())


def _checked_tensors(
    arrays: dict[str, npt.NDArray[Any]], module: nn.Module, optimizer: torch.optim.Optimizer, best: BestWeights
) -> dict[str, Tensor]:
    """The tensors of this run; what it would not have written is refused: a checksum can be made to fit."""
    expected = _state(module, optimizer, best)
    for index, p in enumerate(p for group in optimizer.param_groups for p in group["params"]):
        key = f"optimizer.{index}."
        if any(name.startswith(key) for name in arrays):  # a parameter that no loss reaches has no state
            expected |= {f"{key}step": torch.zeros(()), f"{key}exp_avg": p, f"{key}exp_avg_sq": p}
    if arrays.keys() != expected.keys():
        raise ValueError(f"{min(arrays.keys() ^ expected.keys())} is missing or too many")
    tensors = {}
    for name, wanted in expected.items():
        tensor = torch.from_numpy(arrays[name]).clone()  # equal arrays of a file come as one
        if (tensor.dtype, tensor.shape) != (STORED_AS.get(wanted.dtype, wanted.dtype), wanted.shape):
            raise ValueError(f"{name} has dtype {tensor.dtype} and shape {tuple(tensor.shape)}")
        tensors[name] = tensor = tensor.view(wanted.dtype)
        room, _, last = name.rpartition(".")  # the losses of the best weights, without a dot, may be infinite
        least = LEAST.get(last, -LARGEST_WEIGHT) if room.startswith("optimizer.") else -LARGEST_WEIGHT
        inside = (tensor >= least) & (tensor <= LARGEST_WEIGHT)  # nan is not
        if room and tensor.is_floating_point() and not bool(inside.all()):
            raise ValueError(f"{name} must be between {least:g} and {LARGEST_WEIGHT:g}")
    return tensors


def _checked_history(columns: dict[str, npt.NDArray[Any]], nothing_held_out: bool) -> list[dict[str, Any]]:
    """Losses and seconds, epoch by epoch; the held-out loss is nan where nothing was held out."""
    if columns.keys() != set(HISTORY) or len({c.shape for c in columns.values()}) != 1:
        raise ValueError("history must have a column of numbers for each quantity")
    for name, column in columns.items():
        free = nothing_held_out and name == "val_loss"
        if column.dtype != np.float64 or column.ndim != 1 or not (free or np.isfinite(column).all()):
            raise ValueError(f"history must hold finite numbers, epoch by epoch ({name})")
    rows = zip(*(columns[name].tolist() for name in HISTORY), strict=True)
    return [{"epoch": epoch, **dict(zip(HISTORY, row, strict=True))} for epoch, row in enumerate(rows, start=1)]
