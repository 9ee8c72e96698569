"""A training run on disk: one safetensors file whose header carries the JSON part.

One file, flushed and then renamed: a run killed while it writes leaves the previous epoch whole, and tensors and
numbers can never come from different epochs. A checksum tells damage, which would otherwise pass as other weights.
Nothing is pickled, so reading a file runs no code.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from collidescope._files import replacing, unfinished_prefix

if TYPE_CHECKING:
    from collidescope.contrastive.training import BestWeights

FORMAT = "collidescope.training-run.2"
CHECKSUM = "sha256"


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
        header, tensors = _read(self.path)
        if header.get("format") != FORMAT:
            raise ValueError(f"{self.path} is no training checkpoint of this release: use another folder or delete it")
        if header.pop(CHECKSUM, None) != _checksum(tensors, header):
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
            module.load_state_dict(_part(tensors, "module."))
            for name, tensor in _part(tensors, "best.").items():
                best.state[name].copy_(tensor)
            self._restore_optimizer(optimizer, _part(tensors, "optimizer."))
            best.waited.copy_(tensors["waited"])
            best.epoch.copy_(tensors["epoch"])
            best.loss.copy_(tensors["loss"])
            history = [{**entry, "epoch": epoch} for epoch, entry in enumerate(header["history"], start=1)]
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
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


def _part(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _checksum(tensors: dict[str, torch.Tensor], header: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(header).encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        header = json.loads(metadata.get("json", "{}"))
    except Exception as error:  # strange bytes fail in strange ways
        raise ValueError(f"{path} cannot be read as a training checkpoint ({error}): delete it to start anew") from None
    return (header if isinstance(header, dict) else {}), tensors
