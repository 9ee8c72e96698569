"""What an epoch of a classifying network shows: batches of rows, and their cross-entropy.

Symbols: n rows, M networks of a stack, each with its own training rows; B rows per step. A batch is a slice of index
tensors, and :class:`~collidescope.training.rows.Rows` brings its inputs: no loader, no copies per row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from collidescope.training.config import TrainingConfig
from collidescope.training.rows import Rows, as_rows

#: Rows scored at once for the held-out loss.
SCORING_BATCH = 8192

Split = tuple[Tensor, Tensor]


class FactorisedObjective:
    """Cross-entropy of the class, for M networks side by side.

    Parameters
    ----------
    X : tensor of shape (n, ...), or Rows
    y : long tensor of shape (n,)
    n_classes : int
    splits : M pairs (training rows, held-out rows)
    config : TrainingConfig
    sample_weight : tensor of shape (n,), optional
    """

    def __init__(
        self,
        X: Tensor | Rows,
        y: Tensor,
        n_classes: int,
        splits: Sequence[Split],
        config: TrainingConfig,
        sample_weight: Tensor | None = None,
    ) -> None:
        self.X, self.y, self.n_classes, self.given_weight = as_rows(X, y.device), y, n_classes, sample_weight
        self.train_rows = [train for train, _ in splits]
        self.held_out_rows = [held_out for _, held_out in splits]
        # Members step together, so an epoch is as long as the smallest split (they differ by a row or two); rows are
        # shuffled before they are cut, so none is left out for good.
        self.epoch_length = min(len(rows) for rows in self.train_rows)
        self.batch_size = min(config.batch_for(self.epoch_length), self.epoch_length)
        self.weight = None if sample_weight is None else sample_weight / sample_weight.mean()

    @property
    def n_members(self) -> int:
        return len(self.train_rows)

    @property
    def signature(self) -> str:
        return signature(self.X, self.y, self.given_weight, *self.train_rows, *self.held_out_rows)

    def batches(self, generator: torch.Generator) -> Iterator[Tensor]:
        order = torch.stack([_shuffled(rows, generator)[: self.epoch_length] for rows in self.train_rows])
        # A last batch of a few rows is a noisy step: it is left out when it is under half a batch.
        last = self.epoch_length - self.batch_size // 2 if self.epoch_length > self.batch_size else self.epoch_length
        for start in range(0, last, self.batch_size):
            yield order[:, start : start + self.batch_size]

    def loss(self, module: nn.Module, batch: Tensor) -> Tensor:
        x, labels, weight = self._batch(batch)
        return _cross_entropy(module(x), labels, weight).sum()

    def backward(self, module: nn.Module, batch: Tensor) -> Tensor:
        return backpropagate(module, self.loss(module, batch))

    def _batch(self, batch: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Rows (M, B, …), their labels and weights (M, B)."""
        rows = batch.reshape(-1)
        weight = None if self.weight is None else self.weight.index_select(0, rows).view(batch.shape)
        x = self.X[rows].view(*batch.shape, *self.X.shape[1:])
        return x, self.y.index_select(0, rows).view(batch.shape), weight

    def held_out_loss(self, module: nn.Module) -> Tensor:
        losses = []
        for member, rows in enumerate(self.held_out_rows):
            if len(rows) == 0:  # patience=0 trains on all rows
                losses.append(torch.full((), torch.nan, device=self.y.device))
                continue
            logits = torch.cat([self._member_logits(module, member, part) for part in parts_of(rows)])
            weight = None if self.weight is None else self.weight[rows][None]
            losses.append(_cross_entropy(logits[None], self.y[rows][None], weight).squeeze(0))
        return torch.stack(losses)

    def _member_logits(self, module: nn.Module, member: int, rows: Tensor) -> Tensor:
        x = self.X[rows]
        if self.n_members == 1:
            return module(x[None])[0]  # type: ignore[no-any-return]
        return module.member(member, x)  # type: ignore[no-any-return, operator]


def backpropagate(module: nn.Module, loss: Tensor) -> Tensor:
    """Leave the gradient of a loss in every parameter; returns the loss."""
    module.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def _cross_entropy(logits: Tensor, labels: Tensor, weight: Tensor | None) -> Tensor:
    """Mean cross-entropy of each member, (M, B, K) → (M,)."""
    each = cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)
    return (each if weight is None else each * weight).mean(1)


def signature(X: Rows, *data: Tensor | None) -> str:
    """Of every bit: sums would differ with the number of threads, and agree for rows in another order."""
    digest = hashlib.sha256(X.digest().encode())
    for tensor in data:
        digest.update(f"{None if tensor is None else tuple(tensor.shape)}".encode())
        if tensor is not None:
            digest.update(tensor.cpu().contiguous().numpy().data)
    return digest.hexdigest()[:16]


def parts_of(rows: Tensor) -> Iterator[Tensor]:
    """Rows, so many at a time as are scored at once."""
    return (rows[start : start + SCORING_BATCH] for start in range(0, len(rows), SCORING_BATCH))


def _shuffled(rows: Tensor, generator: torch.Generator) -> Tensor:
    return rows[torch.randperm(len(rows), generator=generator, device=rows.device)]


def inner_splits(y: Tensor, n_splits: int, validation_fraction: float, seed: int) -> list[Split]:
    """``n_splits`` pairs (training rows, held-out rows), held-out rows disjoint and stratified by class.

    With several splits each row is held out exactly once. A single split holds out ``validation_fraction``.
    Rows of a class with one member are always trained on.
    """
    labels = y.cpu()
    dealt = torch.bincount(labels)[labels] > 1
    n = int(dealt.sum())
    if n == 0:
        raise ValueError(
            "a fold has one row of every class of y to train on and none to validate with: gather more of each"
        )
    n_parts = n_splits if n_splits > 1 else max(2, round(1 / validation_fraction))
    if n < 2 * n_parts:
        n_parts = max(2, n // 2)
    generator = torch.Generator().manual_seed(seed)
    # Shuffled, then sorted by class: dealing the rows out in turn gives each part its share of every class.
    shuffled = torch.randperm(len(y), generator=generator)
    shuffled = shuffled[dealt[shuffled]]
    order = shuffled[torch.argsort(labels[shuffled], stable=True)]
    part = torch.full((len(y),), -1)
    part[order] = torch.arange(n) % n_parts
    splits = []
    for k in range(min(n_splits, n_parts)):
        held_out = torch.nonzero(part == k).flatten()
        splits.append((torch.nonzero(part != k).flatten().to(y.device), held_out.to(y.device)))
    return splits
