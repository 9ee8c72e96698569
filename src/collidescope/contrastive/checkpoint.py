"""A training run on disk: one safetensors file whose header carries the JSON part.

One file, replaced by renaming: a run killed while it writes leaves the previous epoch whole, and tensors and numbers
can never come from different epochs. Nothing is pickled, so reading a file runs no code.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

if TYPE_CHECKING:
    from collidescope.contrastive.training import BestWeights

FORMAT = "collidescope.training-run.1"


class Checkpoint:
    """Save and restore module, optimiser, best weights and history under ``folder/name.safetensors``."""

    def __init__(self, folder: Path, name: str, fingerprint: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{name}.safetensors"
        self.fingerprint = fingerprint

    def save(
        self, module: nn.Module, optimizer: torch.optim.Optimizer, best: BestWeights, history: list[dict[str, Any]]
    ) -> None:
        tensors = {f"module.{name}": tensor for name, tensor in module.state_dict().items()}
        tensors |= {f"best.{name}": tensor for name, tensor in best.state.items()}
        for index, state in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": value for name, value in state.items()}
        tensors |= {"waited": best.waited, "epoch": best.epoch, "loss": best.loss}
        header = {"format": FORMAT, "fingerprint": self.fingerprint, "history": history}
        _replace(self.path, {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, header)

    def restore(self, module: nn.Module, optimizer: torch.optim.Optimizer, best: BestWeights) -> list[dict[str, Any]]:
        """Continue from the file, or start anew (an empty history) where there is none."""
        if not self.path.exists():
            return []
        header, tensors = _read(self.path)
        if header.get("format") != FORMAT:
            raise ValueError(f"{self.path} is no training checkpoint of this release: use another folder or delete it")
        if header.get("fingerprint") != json.loads(json.dumps(self.fingerprint)):
            changed = [k for k, v in self.fingerprint.items() if header.get("fingerprint", {}).get(k) != v]
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
        except (KeyError, RuntimeError) as error:
            raise ValueError(
                f"{self.path} does not fit this network ({error}): delete it or use another folder"
            ) from None
        history: list[dict[str, Any]] = header["history"]
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


def _replace(path: Path, tensors: dict[str, torch.Tensor], header: dict[str, Any]) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        save_file(tensors, temporary, metadata={"json": json.dumps(header)})
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        header = json.loads(metadata.get("json", "{}"))
    except (SafetensorError, ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read as a training checkpoint ({error}): delete it to start anew") from None
    return (header if isinstance(header, dict) else {}), tensors
