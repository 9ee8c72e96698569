"""A training run on disk: one safetensors file whose header carries the JSON part.

One file, flushed and then renamed: a run killed while it writes leaves the previous epoch whole, and tensors and
numbers can never come from different epochs. A checksum tells damage, which would otherwise pass as other weights.
Nothing is pickled, so reading a file runs no code.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from collidescope._files import replacing, unfinished_prefix
from collidescope.learners.claims import LARGEST_WEIGHT

if TYPE_CHECKING:
    from collidescope.training.loop import BestWeights

FORMAT = "collidescope.training-run.3"
CHECKSUM = "sha256"
#: Whole numbers in JSON may have thousands of digits; beyond this nothing can reckon with them.
LARGEST_FLOAT = sys.float_info.max


class Checkpoint:
    """Save and restore module, optimiser, best weights and history under ``folder/name.safetensors``."""

    def __init__(self, folder: Path, name: str, fingerprint: dict[str, Any]) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"checkpoint {str(folder)!r} cannot be a folder: {error.strerror}") from None
        self.path = folder / f"{name}.safetensors"
        self.fingerprint = fingerprint
        for left in folder.glob(f"{unfinished_prefix(self.path)}*"):  # by a run that was killed while it wrote
            left.unlink(missing_ok=True)

    def save(
        self, module: nn.Module, optimizer: torch.optim.Optimizer, best: BestWeights, history: list[dict[str, Any]]
    ) -> None:
        tensors = {f"module.{name}": tensor for name, tensor in module.state_dict().items()}
        tensors |= {f"best.{name}": tensor for name, tensor in best.state.items()}
        for index, state in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": value for name, value in state.items()}
        tensors |= {"waited": best.waited, "epoch": best.epoch, "loss": best.loss}
        header = {"format": FORMAT, "fingerprint": self.fingerprint, "history": history}
        # copies: weights that layers share cannot be written otherwise
        tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
        header[CHECKSUM] = _checksum(tensors, header)
        with replacing(self.path) as beside:
            save_file(tensors, beside, metadata={"json": json.dumps(header)})

    def restore(self, module: nn.Module, optimizer: torch.optim.Optimizer, best: BestWeights) -> list[dict[str, Any]]:
        """Continue from the file, or start anew (an empty history) where there is none."""
        if not self.path.exists():
            return []
        header, tensors, whole = _read(self.path)
        if header.get("format") != FORMAT:
            raise ValueError(f"{self.path} is no training checkpoint of this release: use another folder or delete it")
        if not whole:
            raise ValueError(f"{self.path} is damaged (its checksum does not match): delete it to start anew")
        if header.get("fingerprint") != json.loads(json.dumps(self.fingerprint)):
            theirs = header.get("fingerprint")
            theirs = theirs if isinstance(theirs, dict) else {}
            changed = [k for k, v in self.fingerprint.items() if theirs.get(k) != v]
            raise ValueError(
                f"{self.path} belongs to a run with other settings ({', '.join(changed)}): "
                "use the same settings and seed, another folder, or delete it"
            )
        try:
            _check_tensors(tensors, module, optimizer, best)
            history = _checked_history(header.get("history"), nothing_held_out=bool(tensors["loss"].isnan().all()))
            module.load_state_dict(_part(tensors, "module."))
            for name, tensor in _part(tensors, "best.").items():
                best.state[name].copy_(tensor)
            self._restore_optimizer(optimizer, _part(tensors, "optimizer."))
            best.waited.copy_(tensors["waited"])
            best.epoch.copy_(tensors["epoch"])
            best.loss.copy_(tensors["loss"])
        except (ValueError, RuntimeError) as error:
            raise ValueError(
                f"{self.path} does not fit this network ({error}): delete it or use another folder"
            ) from None
        return history

    @staticmethod
    def _restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]) -> None:
        state: dict[int, dict[str, torch.Tensor]] = {}
        for key, value in tensors.items():
            index, name = key.split(".", 1)
            state.setdefault(int(index), {})[name] = value
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _check_tensors(
    tensors: dict[str, torch.Tensor], module: nn.Module, optimizer: torch.optim.Optimizer, best: BestWeights
) -> None:
    """Refuse what this run would not have written: a checksum can be made to fit, and AdamW trusts its state."""
    expected = {f"module.{name}": tensor for name, tensor in module.state_dict().items()}
    expected |= {f"best.{name}": tensor for name, tensor in best.state.items()}
    expected |= {"waited": best.waited, "epoch": best.epoch, "loss": best.loss}
    bounded = {f"{part}.{name}" for part in ("module", "best") for name, _ in module.named_parameters()}
    least = dict.fromkeys(bounded, -LARGEST_WEIGHT)
    for index, p in enumerate(p for group in optimizer.param_groups for p in group["params"]):
        key = f"optimizer.{index}"
        if any(name.startswith(f"{key}.") for name in tensors):  # a parameter that no loss reaches has no state
            expected |= {f"{key}.step": torch.zeros(()), f"{key}.exp_avg": p, f"{key}.exp_avg_sq": p}
            least |= {f"{key}.step": 1.0, f"{key}.exp_avg": -LARGEST_WEIGHT, f"{key}.exp_avg_sq": 0.0}
    if tensors.keys() != expected.keys():
        raise ValueError(f"{min(tensors.keys() ^ expected.keys())} is missing or too many")
    for name, tensor in tensors.items():
        if (tensor.dtype, tensor.shape) != (expected[name].dtype, expected[name].shape):
            raise ValueError(f"{name} has kind {tensor.dtype} and shape {tuple(tensor.shape)}")
        if name in least and not bool(((tensor >= least[name]) & (tensor <= LARGEST_WEIGHT)).all()):  # nan is not
            raise ValueError(f"{name} must lie between {least[name]:g} and {LARGEST_WEIGHT:g}")


def _checked_history(history: Any, nothing_held_out: bool) -> list[dict[str, Any]]:
    """Losses and seconds, epoch by epoch; the held-out loss is nan where nothing was held out."""
    entries = history if isinstance(history, list) else [history]
    for entry in entries:
        numbers = list(entry.values()) if isinstance(entry, dict) else []
        if nothing_held_out and isinstance(entry, dict) and entry.get("val_loss") != entry.get("val_loss"):
            numbers = [value for name, value in entry.items() if name != "val_loss"]
        if not numbers or not all(type(value) in (int, float) and abs(value) <= LARGEST_FLOAT for value in numbers):
            raise ValueError("history must hold finite numbers, epoch by epoch")
    return [{**entry, "epoch": epoch} for epoch, entry in enumerate(entries, start=1)]


def _part(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _checksum(tensors: dict[str, torch.Tensor], header: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(header).encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor], bool]:
    """Header, tensors, and whether the checksum matches them."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        header = json.loads(metadata.get("json", "{}"))
        header = header if isinstance(header, dict) else {}
        whole = header.pop(CHECKSUM, None) == _checksum(tensors, header)
    except Exception as error:  # strange bytes fail in strange ways
        raise ValueError(f"{path} cannot be read as a training checkpoint ({error}): delete it to start anew") from None
    return header, tensors, whole
