"""One trained capacity, its posteriors, and its way to and from plain tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from collidescope.learners.linear import SoftmaxRegression
from collidescope.learners.trees import BoostedTrees
from collidescope.pairwise import scoring
from collidescope.pairwise.alignment import align, alignment
from collidescope.training.networks import (
    EncoderFactory,
    OneMember,
    PairwiseNetwork,
    StackedMLP,
    pair_module,
)

#: Posteriors below this are float32 rounding; their logarithm must exist to be pooled.
SMALLEST_PROBABILITY = 1e-9


@dataclass
class Member:
    """One trained capacity: a stack of networks or regressions, one per inner split."""

    name: str
    module: nn.Module
    build: dict[str, Any]
    history: list[dict[str, Any]] = field(default_factory=list)
    weight: float = 1.0
    val_loss: float = float("nan")
    rotation: Tensor | None = None
    held_out: Tensor | None = None
    held_out_rows: Tensor | None = None

    def align(self, X: Tensor, y: Tensor, n_classes: int, priors: Tensor) -> None:
        """Settle the rotation of a model that was trained on pairs alone (see :mod:`.alignment`)."""
        p = _stack_posteriors(self.module, X)
        self.rotation = torch.stack([alignment(each, y.cpu(), n_classes, priors) for each in p])


def member_posteriors(member: Member, X: Tensor, priors: Tensor | None, split: int | None = None) -> Tensor:
    """Posteriors of one member, averaged over its splits or of one of them; float64 (n, K) on the CPU.

    ``priors`` turn posteriors at uniform priors into those at ``priors``.
    """
    if member.rotation is None and split is None:
        p = scoring.encode(member.module, X)
    else:
        stack = _stack_posteriors(member.module, X)
        if member.rotation is not None:
            stack = align(stack, member.rotation)
        p = stack.mean(0) if split is None else stack[split]
    if priors is not None:
        p = p * priors
    p = p.clamp_min(SMALLEST_PROBABILITY)
    return p / p.sum(-1, keepdim=True)


def export_members(members: list[Member]) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """All weights as named tensors, and what else is needed to build the members again."""
    tensors: dict[str, Tensor] = {}
    described = []
    for i, member in enumerate(members):
        state = member.module.state_dict()
        tensors |= {f"{i}.{name}": value.detach().cpu().contiguous() for name, value in state.items()}
        if member.rotation is not None:
            tensors[f"rotation.{i}"] = member.rotation.contiguous()
        described.append(
            {
                "name": member.name,
                "weight": member.weight,
                "val_loss": member.val_loss,
                "history": member.history,
                **member.build,
            }
        )
    return tensors, described


def import_member(
    i: int,
    described: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    shape: tuple[int, ...],
    K: int,
    factory: EncoderFactory | None,
) -> Member:
    """Member number ``i`` of an export; custom modules are built by ``factory``, never by what a file says."""
    prefix = f"{i}."
    state = {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}
    sizes = tuple(described.get("hidden_layer_sizes", ()))
    kind = described["kind"]
    needs_factory = kind in ("module", "pairwise-module")
    if needs_factory and factory is None:
        raise ValueError("the model holds a custom module: pass the factory that built it")
    module: nn.Module
    if kind == "regression":
        module = SoftmaxRegression(state["weight"].shape[0], shape[0], K, bool(described["quadratic"]))
    elif kind == "network":
        module = StackedMLP(state["weight"].shape[0], shape[0], K, sizes)
    elif kind == "trees":
        module = BoostedTrees.from_state(state, shape[0], K)
    elif kind == "pairwise":
        module = PairwiseNetwork(shape[0], sizes)
    elif kind == "module" and factory is not None:
        module = OneMember(factory(shape[0], K), len(shape))
    elif kind == "pairwise-module" and factory is not None:
        module = pair_module(factory, shape[0], len(shape))
    else:
        raise ValueError(f"unknown kind of member {kind!r}: the file is from another release or damaged")
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise ValueError(f"the tensors of member {described.get('name')!r} do not fit it: {error}") from None
    module.eval()
    build = {name: described[name] for name in ("kind", "quadratic", "hidden_layer_sizes") if name in described}
    weight, val_loss = float(described["weight"]), float(described["val_loss"])
    rotation, history = tensors.get(f"rotation.{i}"), list(described["history"])
    return Member(str(described["name"]), module, build, history, weight, val_loss, rotation)


def _stack_posteriors(module: nn.Module, X: Tensor) -> Tensor:
    """Posteriors of every network of a stack, (M, n, K) float64 on the CPU."""
    module.eval()
    device = next(iter(module.state_dict().values())).device
    parts = []
    with torch.inference_mode():
        for rows in torch.split(X, scoring.ROWS_AT_ONCE):
            p = torch.softmax(module(rows.to(device)), -1).double().cpu()
            parts.append(p)
    return torch.cat(parts, 1).clone()
