"""What an epoch shows: rows for the factorised model, sampled pairs for the pairwise one.

Symbols: n rows, M members of a stack, each with its own training rows; B rows (pairs) per step. A batch is a slice of
index tensors, and :class:`~collidescope.training.rows.Rows` brings its inputs: no loader, no copies per row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from collidescope.pairwise.losses import BalancedPairLoss
from collidescope.pairwise.pairs import sample_pairs
from collidescope.training.config import TrainingConfig
from collidescope.training.networks import Backpropagation, PairModule, StackedMLP
from collidescope.training.rows import Rows, as_rows

#: Rows whose pairs are all compared with one another. The pair loss costs as many logarithms per row; with 32 it
#: stays below the cost of a small network, with 1,024 it was 12 times the whole training.
PAIR_BLOCK = 32
#: Rows scored at once for the held-out loss.
SCORING_BATCH = 8192
#: Held-out pairs per held-out row: the loss on 4n pairs is nearly as certain as on all n².
HELD_OUT_PAIRS = 4

Split = tuple[Tensor, Tensor]


class FactorisedObjective:
    """Cross-entropy of p, the pair loss of p·p' over the pairs of each block, or their sum.

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
        self.loss_name = config.loss
        self.pair_loss = BalancedPairLoss(n_classes, config.scheme, bounded=config.bounded)
        self.weight = None if sample_weight is None else sample_weight / sample_weight.mean()
        self._backpropagation: Backpropagation | None = None

    @property
    def n_members(self) -> int:
        return len(self.train_rows)

    @property
    def signature(self) -> str:
        return _signature(self.X, self.y, self.given_weight, *self.train_rows, *self.held_out_rows)

    def batches(self, generator: torch.Generator) -> Iterator[Tensor]:
        order = torch.stack([_shuffled(rows, generator)[: self.epoch_length] for rows in self.train_rows])
        # A last batch of a few rows is a noisy step: it is left out when it is under half a batch.
        last = self.epoch_length - self.batch_size // 2 if self.epoch_length > self.batch_size else self.epoch_length
        for start in range(0, last, self.batch_size):
            yield order[:, start : start + self.batch_size]

    def loss(self, module: nn.Module, batch: Tensor) -> Tensor:
        x, labels, weight = self._batch(batch)
        return self._loss(module(x), labels, weight).sum()

    def backward(self, module: nn.Module, batch: Tensor) -> Tensor:
        if self.loss_name == "cross-entropy" and isinstance(module, StackedMLP) and module.dropout.p == 0:
            if self._backpropagation is None or self._backpropagation.module is not module:
                self._backpropagation = Backpropagation(module)
            return self._backpropagation(*self._batch(batch))
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
            logits = torch.cat([self._member_logits(module, member, part) for part in _parts(rows)])
            weight = None if self.weight is None else self.weight[rows][None]
            losses.append(self._loss(logits[None], self.y[rows][None], weight).squeeze(0))
        return torch.stack(losses)

    def _member_logits(self, module: nn.Module, member: int, rows: Tensor) -> Tensor:
        x = self.X[rows]
        if self.n_members == 1:
            return module(x[None])[0]  # type: ignore[no-any-return]
        return module.member(member, x)  # type: ignore[no-any-return, operator]

    def _loss(self, logits: Tensor, labels: Tensor, weight: Tensor | None) -> Tensor:
        if self.loss_name == "cross-entropy":
            return _cross_entropy(logits, labels, weight)
        pairs = self._blocks_of_pairs(torch.softmax(logits, -1), labels, weight)
        return pairs if self.loss_name == "pair" else pairs + _cross_entropy(logits, labels, weight)

    def _blocks_of_pairs(self, p: Tensor, labels: Tensor, weight: Tensor | None) -> Tensor:
        M, size = labels.shape
        if size <= PAIR_BLOCK:
            return self.pair_loss.all_pairs(p, labels, weight)
        n_blocks = size // PAIR_BLOCK
        used = n_blocks * PAIR_BLOCK
        cut = None if weight is None else weight[:, :used].reshape(M, n_blocks, PAIR_BLOCK)
        blocks = p[:, :used].reshape(M, n_blocks, PAIR_BLOCK, -1)
        return self.pair_loss.all_pairs(blocks, labels[:, :used].reshape(M, n_blocks, PAIR_BLOCK), cut).mean(1)


class PairwiseObjective:
    """Cross-entropy of "same class" over as many sampled pairs per epoch as there are training rows.

    The module learns V of the pairs as sampled; :mod:`~collidescope.pairwise.scoring` takes the shift off.
    """

    n_members = 1

    def __init__(
        self,
        X: Tensor | Rows,
        y: Tensor,
        split: Split,
        config: TrainingConfig,
        seed: int,
        sample_weight: Tensor | None = None,
    ) -> None:
        self.X, self.y, self.scheme, self.bounded = as_rows(X, y.device), y, config.scheme, config.bounded
        self.given_weight = sample_weight
        self.rows, held_out = split
        self.train_labels = y[self.rows]
        self.train_weight = None if sample_weight is None else sample_weight[self.rows]
        self.batch_size = min(config.batch_for(len(self.rows)), len(self.rows))
        generator = torch.Generator(device=y.device).manual_seed(seed)
        held_out_weight = None if sample_weight is None else sample_weight[held_out]
        i, j, same = sample_pairs(y[held_out], HELD_OUT_PAIRS * len(held_out), self.scheme, generator, held_out_weight)
        self.held_out = held_out[i], held_out[j], same

    @property
    def signature(self) -> str:
        return _signature(self.X, self.y, self.given_weight, self.rows, *self.held_out)

    def batches(self, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        i, j, same = sample_pairs(self.train_labels, len(self.rows), self.scheme, generator, self.train_weight)
        i, j, target = self.rows[i], self.rows[j], same.float()
        # A last batch of a single pair is left out: batch norm cannot take it.
        last = len(i) - 1 if len(i) > self.batch_size > 1 else len(i)
        for start in range(0, last, self.batch_size):
            part = slice(start, start + self.batch_size)
            yield i[part], j[part], target[part]

    def loss(self, module: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        assert isinstance(module, PairModule)
        i, j, target = batch
        return self._loss(module.one_way(self.X[i], self.X[j]), target)

    def backward(self, module: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        return backpropagate(module, self.loss(module, batch))

    def held_out_loss(self, module: nn.Module) -> Tensor:
        i, j, same = self.held_out
        parts = [module(self.X[a], self.X[b]) for a, b in zip(_parts(i), _parts(j), strict=True)]
        return self._loss(torch.cat(parts), same.float())[None]

    def _loss(self, logits: Tensor, target: Tensor) -> Tensor:
        if self.bounded is None:
            return binary_cross_entropy_with_logits(logits, target)
        return binary_cross_entropy_with_logits(logits, target, reduction="none").clamp_max(self.bounded).mean()


def backpropagate(module: nn.Module, loss: Tensor) -> Tensor:
    """Leave the gradient of a loss in every parameter; returns the loss."""
    module.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def _cross_entropy(logits: Tensor, labels: Tensor, weight: Tensor | None) -> Tensor:
    """Mean cross-entropy of each member, (M, B, K) → (M,)."""
    each = cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)
    return (each if weight is None else each * weight).mean(1)


def _signature(X: Rows, *data: Tensor | None) -> str:
    """Of every bit: sums would differ with the number of threads, and agree for rows in another order."""
    digest = hashlib.sha256(X.digest().encode())
    for tensor in data:
        digest.update(f"{None if tensor is None else tuple(tensor.shape)}".encode())
        if tensor is not None:
            digest.update(tensor.cpu().contiguous().numpy().data)
    return digest.hexdigest()[:16]


def _parts(rows: Tensor) -> Iterator[Tensor]:
    return (rows[start : start + SCORING_BATCH] for start in range(0, len(rows), SCORING_BATCH))


def _shuffled(rows: Tensor, generator: torch.Generator) -> Tensor:
    return rows[torch.randperm(len(rows), generator=generator, device=rows.device)]
