"""Plain networks of classes, stacks of them trained side by side, and their cross-entropy.

Shapes: B rows per step, d features, K classes, M networks of a stack. An *encoder* maps (B, d) to
(B, K) logits, a stack maps (M, B, d) or a shared (B, d) to (M, B, K).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from collidescope.training.config import TrainingConfig, check_sizes
from collidescope.training.rows import SCORING_BATCH, Rows, Split, as_rows, signature

#: ``members=[lambda d, k: ...]``: number of features (channels of an image) and of classes →
#: encoder with k logits.
EncoderFactory = Callable[[int, int], nn.Module]
Layers = list[tuple[Tensor, Tensor]]
Product = Callable[[Tensor, Tensor, Tensor], Tensor]


def mlp(
    n_in: int, n_out: int, hidden_layer_sizes: Sequence[int] = (), dropout: float = 0.0
) -> nn.Sequential:
    """A plain network with ReLU layers; no hidden layer is a linear model.

    >>> mlp(4, 3, (8,))(torch.zeros(5, 4)).shape
    torch.Size([5, 3])
    """
    layers: list[nn.Module] = []
    width = n_in
    for size in check_sizes(hidden_layer_sizes):
        layers.append(nn.Linear(width, size))
        layers.append(nn.ReLU())
        if dropout:
            layers.append(nn.Dropout(dropout))
        width = size
    layers.append(nn.Linear(width, n_out))
    return nn.Sequential(*layers)


class StackedMLP(nn.Module):
    """M plain networks of one shape, computed by batched matrix products.

    Their parameters share no entry and AdamW works entry by entry, so training a stack on the sum
    of its members' losses is training M networks one after the other, without M times the overhead.
    All weights are in one tensor and all biases in another, a row per member: an optimiser steps
    two tensors. They start as those of ``nn.Linear`` do.
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
        self.n_members = n_members
        self.dropout = nn.Dropout(dropout)
        self.shapes = list(pairwise([n_in, *check_sizes(hidden_layer_sizes), n_out]))
        weights = []
        biases = []
        for inputs, outputs in self.shapes:
            bound = max(inputs, 1) ** -0.5
            n_weights = inputs * outputs
            weight = torch.rand((n_members, n_weights), generator=generator)
            bias = torch.rand((n_members, outputs), generator=generator)
            weights.append((weight * 2 - 1) * bound)
            biases.append((bias * 2 - 1) * bound)
        all_weights = torch.cat(weights, 1)
        all_biases = torch.cat(biases, 1)
        self.weight = nn.Parameter(all_weights)
        self.bias = nn.Parameter(all_biases)

    @property
    def layers(self) -> Layers:
        """Weights (M, a, b) and biases (M, 1, b) of every layer, as views."""
        n_weights = [inputs * outputs for inputs, outputs in self.shapes]
        n_biases = [outputs for _, outputs in self.shapes]
        weights = torch.split(self.weight, n_weights, 1)
        biases = torch.split(self.bias, n_biases, 1)
        found: Layers = []
        for shape, weight, bias in zip(self.shapes, weights, biases, strict=True):
            matrices = weight.view(-1, *shape)
            found.append((matrices, bias.unsqueeze(1)))
        return found

    def forward(self, x: Tensor) -> Tensor:
        if self.n_members == 1:
            # Plain products are faster than batched ones of one, backwards above all.
            return self.member(0, x.flatten(0, -2)).unsqueeze(0)
        shared = x.expand(self.n_members, *x.shape[-2:])
        return self._apply_layers(torch.baddbmm, shared, self.layers)

    def member(self, m: int, x: Tensor) -> Tensor:
        """Logits of member ``m`` alone: (B, d) → (B, K)."""
        own = [(weight[m], bias[m, 0]) for weight, bias in self.layers]
        return self._apply_layers(torch.addmm, x, own)

    def _apply_layers(self, product: Product, x: Tensor, layers: Layers) -> Tensor:
        *hidden, last = layers
        for weight, bias in hidden:
            x = self.dropout(torch.relu(product(bias, x, weight)))
        weight, bias = last
        return product(bias, x, weight)


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
    """Cross-entropy of the class, for M networks side by side.

    Each has its own (training rows, held-out rows). X, y and ``weight`` have n rows. A batch is a
    slice of indices, and Rows brings its inputs: no loader.
    """

    sample_batches = None  # rows of a file may come in between: no step is recorded

    def __init__(
        self,
        X: Tensor | Rows,
        y: Tensor,
        splits: Sequence[Split],
        config: TrainingConfig,
        weight: Tensor | None = None,
    ) -> None:
        self.X = as_rows(X, y.device)
        self.y = y
        self.n_members = len(splits)
        self.given_weight = weight
        self.weight = weight
        if weight is not None:
            self.weight = weight / weight.mean()
        self.train_rows = [train for train, _ in splits]
        self.held_out_rows = [held_out for _, held_out in splits]
        # Members step together, so an epoch is as long as the smallest split (they differ by a row
        # or two); rows are shuffled before they are cut, so none is left out for good.
        lengths = [len(rows) for rows in self.train_rows]
        self.epoch_length = min(lengths)
        self.batch_size = config.batch_for(self.epoch_length)

    @property
    def signature(self) -> str:
        return signature(
            self.X, self.y, self.given_weight, *self.train_rows, *self.held_out_rows
        )

    def batches(self, generator: torch.Generator) -> Iterator[Tensor]:
        """Indices of rows, (M, B)."""
        shuffled = []
        for rows in self.train_rows:
            n = len(rows)
            order = torch.randperm(n, generator=generator, device=rows.device)
            used = order[: self.epoch_length]
            shuffled.append(rows[used])
        epoch = torch.stack(shuffled)
        end = self.epoch_length
        # A last batch of a few rows is a noisy step: it is left out when it is under half a batch.
        if end > self.batch_size:
            end -= self.batch_size // 2
        for start in range(0, end, self.batch_size):
            yield epoch[:, start : start + self.batch_size]

    def loss(self, module: nn.Module, batch: Tensor) -> Tensor:
        rows = batch.reshape(-1)
        flat = self.X[rows]
        row_shape = flat.shape[1:]
        x = flat.view(*batch.shape, *row_shape)
        logits = module(x)
        losses = self._cross_entropy(logits, batch)
        return losses.sum()

    def held_out_loss(self, module: nn.Module) -> Tensor:
        # nan where nothing is held out
        losses = torch.full((self.n_members,), torch.nan, device=self.y.device)
        for member, rows in enumerate(self.held_out_rows):
            if not len(rows):
                continue
            scored = []
            for part in torch.split(rows, SCORING_BATCH):
                inputs = self.X[part]
                logits = self._member(module, member, inputs)
                scored.append(logits)
            as_stack = torch.cat(scored)[None]
            (loss,) = self._cross_entropy(as_stack, rows[None])
            losses[member] = loss
        return losses

    def _member(self, module: nn.Module, member: int, x: Tensor) -> Tensor:
        """Logits of one member alone."""
        if self.n_members > 1:
            return cast(StackedMLP, module).member(member, x)
        logits: Tensor = module(x[None])[0]
        return logits

    def _cross_entropy(self, logits: Tensor, rows: Tensor) -> Tensor:
        """Mean over the rows (M, B) of each member, weighted: (M, B, K) → (M,)."""
        labels = self.y[rows]
        flat = logits.flatten(0, 1)
        losses = cross_entropy(flat, labels.flatten(), reduction="none")
        each = losses.view(rows.shape)
        if self.weight is not None:
            each = each * self.weight[rows]
        return each.mean(1)
