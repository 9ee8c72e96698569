"""How weights are moved: AdamW at one rate, or SGD whose rate rises and falls once (one cycle).

One cycle (Smith 2018): the rate of SGD with Nesterov momentum rises from 0 to its peak in the first
quarter of a run and falls back to 0, so the length of a run must be known when it starts.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

Groups = list[dict[str, Any]]


@dataclass(frozen=True)
class OneCycle:
    """The rates of one run."""

    epochs: int
    peak: float
    weight_decay: float
    momentum: float = 0.9
    rising: float = 0.25  #: share of the run in which the rate rises

    def optimizer(self, module: nn.Module) -> torch.optim.Optimizer:
        groups = parameter_groups(module, self.weight_decay)
        # Not fused: that refuses gradients whose strides are not those of the weights.
        return torch.optim.SGD(groups, self.peak, momentum=self.momentum, nesterov=True)

    def rate(self, done: float) -> float:
        """The rate once a share ``done`` of the run is over.

        >>> cycle = OneCycle(epochs=10, peak=0.4, weight_decay=0)
        >>> [round(cycle.rate(done), 6) for done in (0, cycle.rising, 1)]
        [0.0, 0.4, 0.0]
        """
        if done < self.rising:
            return self.peak * done / self.rising
        return self.peak * (1 - done) / (1 - self.rising)

    def set_rate(self, optimizer: torch.optim.Optimizer, done: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = self.rate(done)

    def fingerprint(self) -> dict[str, Any]:
        """What must agree for a checkpoint to be resumed: here the number of epochs too."""
        return {"cycle": asdict(self)}


def parameter_groups(module: nn.Module, weight_decay: float) -> Groups:
    """Weights decay, biases and other vectors do not.

    Decay would pull class frequencies to uniform.
    """
    decaying = []
    free = []
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        if weight_decay == 0 or "bias" in name or parameter.ndim < 2:
            free.append(parameter)
        else:
            decaying.append(parameter)
    groups: Groups = []
    if decaying:
        groups.append({"params": decaying, "weight_decay": weight_decay})
    if free:
        groups.append({"params": free, "weight_decay": 0.0})
    return groups


def adam_w(
    module: nn.Module, learning_rate: float, weight_decay: float
) -> torch.optim.AdamW:
    """AdamW, fused where torch can."""
    fused = True
    for parameter in module.parameters():
        if not parameter.requires_grad:
            continue
        known_device = parameter.device.type in ("cpu", "cuda")
        if not known_device or not parameter.is_floating_point():
            fused = False
    groups = parameter_groups(module, weight_decay)
    return torch.optim.AdamW(groups, lr=learning_rate, fused=fused)
