"""How weights are moved: AdamW at one rate, or SGD whose rate rises and falls once (one cycle).

One cycle (Smith 2018): the rate of SGD with Nesterov momentum rises from 0 to its peak in the first
quarter of a run and falls back to 0, so the length of a run must be known when it starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor, nn

Groups = list[dict[str, Any]]


class Uncompiled(torch.optim.Optimizer):
    """Without what wraps these methods for torch's compiler: its import takes a second."""

    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = unwrap(torch.optim.Optimizer.load_state_dict)


class AdamW(Uncompiled, torch.optim.AdamW):
    """Torch's own, but for its compiler."""

    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))


class NesterovSGD(Uncompiled):
    """SGD with Nesterov momentum whose rate is a tensor, so that a recorded step follows it.

    With gradient g, velocity v ← μ v + g, and the weights move by -rate · (g + μ v).
    """

    def __init__(self, groups: Groups, rate: float, momentum: float) -> None:
        super().__init__(groups, {"lr": rate, "momentum": momentum})
        for group in self.param_groups:
            first = group["params"][0]
            group["lr"] = torch.tensor(rate, device=first.device)
            for parameter in group["params"]:
                self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Move all weights that have a gradient."""
        if closure is not None:
            raise ValueError("closure is not supported: compute the gradients first")
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            if not weights:
                continue
            gradients: Any = [p.grad for p in weights]
            velocities: Any = [self.state[p]["momentum_buffer"] for p in weights]
            momentum = group["momentum"]
            if group["weight_decay"] > 0:
                decay = group["weight_decay"]
                gradients = torch._foreach_add(gradients, weights, alpha=decay)
            torch._foreach_mul_(velocities, momentum)
            torch._foreach_add_(velocities, gradients)
            steps: Any = torch._foreach_add(gradients, velocities, alpha=momentum)
            torch._foreach_mul_(steps, group["lr"])
            torch._foreach_sub_(weights, steps)


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
        return NesterovSGD(groups, self.peak, self.momentum)

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
        rate = self.rate(done)
        for group in optimizer.param_groups:
            now = group["lr"]
            if isinstance(now, Tensor):
                now.fill_(rate)
            else:
                group["lr"] = rate

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


def adam_w(module: nn.Module, learning_rate: float, weight_decay: float) -> AdamW:
    """AdamW, fused where torch can."""
    fused = True
    for parameter in module.parameters():
        if not parameter.requires_grad:
            continue
        known_device = parameter.device.type in ("cpu", "cuda")
        if not known_device or not parameter.is_floating_point():
            fused = False
    groups = parameter_groups(module, weight_decay)
    return AdamW(groups, lr=learning_rate, fused=fused)
