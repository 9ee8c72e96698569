"""Plain networks of classes, stacks of them trained side by side, and the cross-entropy that they are trained on.

Shapes: B rows per step, d features, K classes, M networks of a stack. An *encoder* maps (B, d) to (B, K) logits, a
stack maps (M, B, d) or a shared (B, d) to (M, B, K).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from collidescope.training.config import TrainingConfig, check_sizes
from collidescope.training.rows import SCORING_BATCH, Rows, Split, as_rows, signature

#: ``members=[lambda d, k: ...]``: number of features (channels of an image) and of classes → encoder with k logits.
EncoderFactory = Callable[[int, int], nn.Module]


def mlp(
    n_in: int, n_out: int, hidden_layer_sizes: Sequence[int] = (), dropout: float = 0.0
) -> nn.Sequential:
    """A plain network with ReLU layers; no hidden layer is a linear model.

    >>> mlp(4, 3, (8,))(torch.zeros(5, 4)).shape
    torch.Size([5, 3])
    """
    sizes = [n_in, *check_sizes(hidden_layer_sizes)]
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU(), *([nn.Dropout(dropout)] if dropout else [])]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], n_out))


class Bfloat16(nn.Module):
    """Runs a module in bfloat16 on a GPU where torch holds that safe (products, convolutions); weights stay float32.

    ``members=[lambda d, k: Bfloat16(my_network(d, k))]``: large networks train and score faster. On a CPU it changes
    nothing (processors that claim bfloat16 and do not have it end the interpreter).

    >>> Bfloat16(mlp(4, 3, (8,)))(torch.zeros(5, 4)).dtype
    torch.float32
    """

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16, enabled=x.is_cuda):
            out: Tensor = self.body(x)
        return out.float() if x.is_cuda else out


class StackedMLP(nn.Module):
    """M plain networks of one shape, computed by batched matrix products.

    Their parameters share no entry and AdamW works entry by entry, so training a stack on the sum of its members'
    losses is training M networks one after the other, without M times the overhead. All weights are in one tensor and
    all biases in another, a row per member: an optimiser steps two tensors. They start as those of ``nn.Linear`` do.
    """

    def __init__(
        self,
        n_members: int,
        n_in: int,
        n_out: int,
        hidden_layer_sizes: Sequence[int] = (),
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.n_members, self.dropout = n_members, nn.Dropout(dropout)
        self.shapes = list(pairwise([n_in, *check_sizes(hidden_layer_sizes), n_out]))
        sizes = [(a, size) for a, b in self.shapes for size in (a * b, b)]
        drawn = [
            (torch.rand((n_members, s), generator=generator) * 2 - 1) * max(a, 1) ** -0.5
            for a, s in sizes
        ]
        self.weight, self.bias = (nn.Parameter(torch.cat(drawn[first::2], 1)) for first in (0, 1))

    @property
    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """Weights (M, a, b) and biases (M, 1, b) of every layer, as views."""
        weights = torch.split(self.weight, [a * b for a, b in self.shapes], 1)
        biases = torch.split(self.bias, [b for _, b in self.shapes], 1)
        parts = zip(self.shapes, weights, biases, strict=True)
        return [(weight.view(-1, a, b), bias.unsqueeze(1)) for (a, b), weight, bias in parts]

    def forward(self, x: Tensor) -> Tensor:
        if (
            self.n_members == 1
        ):  # plain products are faster than batched ones of one, backwards above all
            return self.member(0, x.flatten(0, -2)).unsqueeze(0)
        return self._apply_layers(
            torch.baddbmm, x.expand(self.n_members, *x.shape[-2:]), self.layers
        )

    def member(self, m: int, x: Tensor) -> Tensor:
        """Logits of member ``m`` alone: (B, d) → (B, K)."""
        return self._apply_layers(
            torch.addmm, x, [(weight[m], bias[m, 0]) for weight, bias in self.layers]
        )

    def _apply_layers(self, product: Any, x: Tensor, layers: list[tuple[Tensor, Tensor]]) -> Tensor:
        *hidden, (weight, bias) = layers
        for w, b in hidden:
            x = self.dropout(torch.relu(product(b, x, w)))
        return product(bias, x, weight)  # type: ignore[no-any-return]


class OneMember(nn.Module):
    """Any encoder as a stack of one: (1, B, …) → (1, B, K)."""

    n_members = 1

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.encoder(x.squeeze(0))
        return logits.unsqueeze(0)


class FactorisedObjective:
    """Cross-entropy of the class, for M networks side by side, each with its own (training rows, held-out rows).

    X, y and ``weight`` have n rows. A batch is a slice of indices, and Rows brings its inputs: no loader.
    """

    def __init__(
        self,
        X: Tensor | Rows,
        y: Tensor,
        splits: Sequence[Split],
        config: TrainingConfig,
        weight: Tensor | None = None,
    ) -> None:
        self.X, self.y, self.n_members, self.given_weight = (
            as_rows(X, y.device),
            y,
            len(splits),
            weight,
        )
        self.train_rows, self.held_out_rows = zip(*splits, strict=True)
        # Members step together, so an epoch is as long as the smallest split (they differ by a row or two); rows are
        # shuffled before they are cut, so none is left out for good.
        self.epoch_length = min(len(rows) for rows in self.train_rows)
        self.batch_size = config.batch_for(self.epoch_length)
        self.weight = None if weight is None else weight / weight.mean()

    @property
    def signature(self) -> str:
        return signature(self.X, self.y, self.given_weight, *self.train_rows, *self.held_out_rows)

    def batches(self, generator: torch.Generator) -> Iterator[Tensor]:
        """Indices of rows, (M, B)."""
        drawn = [
            torch.randperm(len(rows), generator=generator, device=rows.device)
            for rows in self.train_rows
        ]
        order = torch.stack(
            [rows[at[: self.epoch_length]] for rows, at in zip(self.train_rows, drawn, strict=True)]
        )
        # A last batch of a few rows is a noisy step: it is left out when it is under half a batch.
        last = (
            self.epoch_length - self.batch_size // 2
            if self.epoch_length > self.batch_size
            else self.epoch_length
        )
        for start in range(0, last, self.batch_size):
            yield order[:, start : start + self.batch_size]

    def loss(self, module: nn.Module, batch: Tensor) -> Tensor:
        x = self.X[batch.reshape(-1)].view(*batch.shape, *self.X.shape[1:])
        return self._cross_entropy(module(x), batch).sum()

    def held_out_loss(self, module: nn.Module) -> Tensor:
        losses = torch.full(
            (self.n_members,), torch.nan, device=self.y.device
        )  # where nothing is held out
        for member, rows in enumerate(self.held_out_rows):
            if len(rows):
                blocks = (self.X[part] for part in torch.split(rows, SCORING_BATCH))
                logits = [
                    module(x[None])[0] if self.n_members == 1 else module.member(member, x)
                    for x in blocks
                ]  # type: ignore[operator]
                losses[member] = self._cross_entropy(torch.cat(logits)[None], rows[None])[0]
        return losses

    def _cross_entropy(self, logits: Tensor, rows: Tensor) -> Tensor:
        """Mean over the rows (M, B) of each member, weighted: (M, B, K) → (M,)."""
        each = cross_entropy(logits.flatten(0, 1), self.y[rows].flatten(), reduction="none").view(
            rows.shape
        )
        return (each if self.weight is None else each * self.weight[rows]).mean(1)
