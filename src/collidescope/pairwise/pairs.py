"""Pairs of rows and the risk of a model of pairs: equations (30) to (32) of the paper.

Symbols: n rows, K classes, ``i`` and ``j`` the two rows of each ordered pair, ``same`` whether their labels agree.
``Sim(x, x') = y(x)·y(x')`` is the chance that two inputs get the same class; V is the best classifier of the pairs *as
sampled or weighted*. Balance (half same, half different, classes uniform: the paper's risk) makes
``logit V = logit Sim + log(K - 1)`` at uniform priors. A fit draws balanced pairs with :func:`sample_pairs`, never all
n², and :class:`PairObjective` calls :func:`balanced_risk` on them. :class:`BalancedPairLoss` is for custom trainers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from collidescope.pairwise.scoring import PairwiseNetwork
from collidescope.training.config import TrainingConfig
from collidescope.training.rows import SCORING_BATCH, Rows, Split, signature

PROBABILITY_FLOOR = (
    1e-7  #: below, products p·p' in float32 are rounding: it bounds the logarithm at 16
)
HELD_OUT_PAIRS = (
    4  #: held-out pairs per held-out row: the loss on 4n pairs is nearly as certain as on all n²
)


def sample_pairs(
    labels: Tensor,
    n_pairs: int,
    generator: torch.Generator | None = None,
    sample_weight: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw ordered pairs (i, j) of distinct rows in balance, as equation (31) asks; and whether their labels agree.

    Half of the pairs are of one class, half of two classes, classes uniform. They alternate, so every even slice of
    the three tensors of shape (n_pairs,) is balanced too.

    Parameters
    ----------
    labels : n class numbers; only classes that occur count, and each needs two rows
    n_pairs : int
    generator : torch.Generator, on the device of ``labels``, optional
    sample_weight : n weights, in proportion to which rows are drawn within their class, optional

    Examples
    --------
    >>> i, j, same = sample_pairs(torch.tensor([0, 0, 1, 1]), 6)
    >>> int(same.sum()), bool((i != j).all())
    (3, True)
    """
    n, device = labels.shape[0], labels.device
    if labels.ndim != 1 or n < 2 or labels.is_floating_point():
        found = f"{labels.dtype} {tuple(labels.shape)}"
        raise ValueError(f"labels must be at least 2 class numbers in one dimension, got {found}")
    if n_pairs < 0:
        raise ValueError(f"n_pairs must not be negative, got {n_pairs}")
    # In float32 a sum of 2²⁴ no longer grows by ones.
    w = (torch.ones(n) if sample_weight is None else sample_weight).to(device, torch.float64)
    if w.shape != (n,) or not bool((torch.isfinite(w) & (w >= 0)).all()):
        raise ValueError(
            f"sample_weight must be {n} finite numbers ≥ 0, got shape {tuple(w.shape)}"
        )
    # Rows without weight must not be drawn, not even by a rounding error: they are left out.
    kept = torch.nonzero(w > 0).flatten()
    names, inverse, sizes = torch.unique(labels[kept], return_inverse=True, return_counts=True)
    if len(names) < 2:
        raise ValueError(
            "labels of positive weight hold a single class or none: pairs of two classes need 2"
        )
    if lonely := names[sizes < 2].tolist():
        shown = ", ".join(map(str, lonely[:10])) + (", …" if len(lonely) > 10 else "")
        raise ValueError(
            f"class {shown} has 1 member and so no same-class pair: drop or merge the class"
        )
    # Classes are intervals of cumulative weight, rows smaller ones inside: a draw is one binary search. "Another row
    # than i" is the interval with i cut out: nothing is rejected, for any imbalance and any weights.
    order = kept[torch.argsort(inverse, stable=True)]
    w, last = w[order], torch.cumsum(sizes, 0) - 1
    ends, first = torch.cumsum(w, 0), last - sizes + 1
    high, low = ends[last], torch.cat([ends.new_zeros(1), ends[last[:-1]]])

    def points(low: Tensor, high: Tensor) -> Tensor:
        return low + (high - low) * torch.rand(
            len(low), dtype=torch.float64, device=device, generator=generator
        )

    def rows_at(point: Tensor, k: Tensor) -> Tensor:  # of class k, as places in ``order``
        return torch.minimum(
            torch.maximum(torch.searchsorted(ends, point, right=True), first[k]), last[k]
        )

    # Odd places get pairs of one class, even ones pairs of two.
    k = torch.randint(len(names), (n_pairs,), device=device, generator=generator)
    other = torch.randint(len(names) - 1, k[0::2].shape, device=device, generator=generator)
    i, j = torch.empty((2, n_pairs), dtype=torch.long, device=device)
    own, k = k[1::2], k[0::2]
    a = rows_at(points(low[own], high[own]), own)
    # Uniform on the interval of the class, shorter by that of a; what lies beyond its start moves past a.
    point = points(low[own], high[own] - w[a])
    b = rows_at(torch.where(point >= ends[a] - w[a], point + w[a], point), own)
    # Rounding can put the point a hair inside a when weights differ by 1e16: then its neighbour is as good.
    i[1::2], j[1::2] = a, torch.where(a == b, torch.where(a < last[own], a + 1, a - 1), b)
    # 0 … K-2 onto the classes other than k, each as likely.
    other += other >= k
    i[0::2], j[0::2] = (rows_at(points(low[c], high[c]), c) for c in (k, other))
    i, j = order[i], order[j]
    return i, j, labels[i] == labels[j]


def same_log_odds_shift(n_classes: int) -> float:
    """How much balanced sampling adds to the log odds of "same": log(K - 1), so that logit Sim = logit V - shift.

    Balanced pairs have even odds of "same", against 1 : (K - 1) for two independent draws at uniform priors. The paper
    leaves it out.

    >>> same_log_odds_shift(3) == math.log(2)
    True
    """
    return math.log(n_classes - 1)


def balanced_risk(logits: Tensor, same: Tensor) -> Tensor:
    """Empirical risk of V on balanced pairs, the paper's equation (32) with cross-entropy as ℓ.

    ``logits`` of V(x, x') and ``same`` (1 or 0) have shape (N,). Half of the pairs are of one class and half of two,
    classes uniform, so their mean is the risk of equation (31) without bias (halved: the paper adds up both halves).

    >>> round(float(balanced_risk(torch.zeros(2), torch.tensor([1.0, 0.0]))), 4)
    0.6931
    """
    return nn.functional.binary_cross_entropy_with_logits(logits, same)


class PairObjective:
    """:func:`balanced_risk` over as many sampled pairs per epoch as there are rows."""

    n_members = 1

    def __init__(
        self,
        X: Rows,
        y: Tensor,
        split: Split,
        config: TrainingConfig,
        seed: int,
        weight: Tensor | None = None,
    ) -> None:
        self.X, self.y, self.weight = X, y, weight
        self.rows, held_out = split
        self.batch_size = config.batch_for(len(self.rows))
        generator = torch.Generator(device=y.device).manual_seed(seed)
        self.held_out = (
            self._pairs(held_out, HELD_OUT_PAIRS * len(held_out), generator)
            if len(held_out)
            else None
        )

    def _pairs(self, rows: Tensor, n_pairs: int, generator: torch.Generator) -> Tensor:
        weight = None if self.weight is None else self.weight[rows]
        i, j, same = sample_pairs(self.y[rows], n_pairs, generator, weight)
        return torch.stack([rows[i], rows[j], same.long()])

    @property
    def signature(self) -> str:
        return signature(self.X, self.y, self.weight, self.rows, self.held_out)

    def batches(self, generator: torch.Generator) -> Iterator[Tensor]:
        pairs = self._pairs(self.rows, len(self.rows), generator)
        n = pairs.shape[1]
        # A last batch of a single pair is left out: batch norm cannot take it.
        for start in range(0, n - 1 if n > self.batch_size > 1 else n, self.batch_size):
            yield pairs[:, start : start + self.batch_size]

    def loss(self, module: nn.Module, batch: Tensor) -> Tensor:
        assert isinstance(module, PairwiseNetwork)
        i, j, same = batch
        # One order of each pair: pairs are sampled as ordered pairs, so both orders are learned.
        return balanced_risk(module.one_way(self.X[i], self.X[j]), same.float())

    def held_out_loss(self, module: nn.Module) -> Tensor:
        if self.held_out is None:
            return torch.full((1,), torch.nan, device=self.y.device)
        logits = [
            module(self.X[i], self.X[j]) for i, j, _ in torch.split(self.held_out, SCORING_BATCH, 1)
        ]
        return balanced_risk(torch.cat(logits), self.held_out[2].float())[None]


class BalancedPairLoss(nn.Module):
    """Cross-entropy of "same class or not", with balanced pairs whatever the batch holds.

    Parameters
    ----------
    n_classes : K of the whole problem, not of the batch
    shift : float, optional
        Added to the logit of Sim before the loss: log(K - 1) by default, so that what is trained is Sim. Pass 0 to
        train V itself, as a fit does, and subtract the shift from its scores.
    bounded : an upper bound of the loss of one pair, as the paper's Theorem 2 asks for; none by default

    Examples
    --------
    >>> loss = BalancedPairLoss(n_classes=3)
    >>> first, second = torch.tensor([0, 1, 2, 0]), torch.tensor([0, 1, 1, 2])
    >>> round(
    ...     float(loss(torch.full((4,), -math.log(2.0)), first, second)), 4
    ... )  # Sim = 1/3: V = 1/2, log 2
    0.6931
    >>> p = torch.full((6, 3), 1 / 3)  # posteriors of a batch, all its ordered pairs at once
    >>> round(float(loss.all_pairs(p, torch.tensor([0, 0, 1, 1, 2, 2]))), 4)
    0.6931
    """

    def __init__(
        self, n_classes: int, shift: float | None = None, bounded: float | None = None
    ) -> None:
        super().__init__()
        if n_classes < 2:
            raise ValueError(f"n_classes must be at least 2, got {n_classes}")
        if bounded is not None and not bounded > 0:
            raise ValueError(
                f"bounded must be positive (an upper bound of the loss), got {bounded}"
            )
        self.n_classes, self.bounded = n_classes, math.inf if bounded is None else bounded
        self.shift = same_log_odds_shift(n_classes) if shift is None else float(shift)

    def forward(self, logits: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Loss of N single pairs: the logit of Sim *before* the shift, and the classes of the two inputs."""
        same = first == second
        loss = nn.functional.softplus(torch.where(same, -logits - self.shift, logits + self.shift))
        # One half, spread evenly over the classes (pairs of classes) that the batch has, then over their pairs.
        kinds, inverse, counts = torch.unique(
            first * self.n_classes + second, return_inverse=True, return_counts=True
        )
        of_one = kinds // self.n_classes == kinds % self.n_classes
        weights = 0.5 / (torch.where(of_one, of_one.sum(), (~of_one).sum()) * counts)
        return torch.sum(loss.clamp_max(self.bounded) * weights[inverse])

    def all_pairs(self, p: Tensor, labels: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """Loss of V(x, x') = p(x)·p(x') over all ordered pairs of distinct rows of a batch, of shape (...).

        Rows of ``p`` (..., B, K) are on the simplex, ``labels`` and ``sample_weight`` have shape (..., B): leading
        dimensions are separate batches, and a pair weighs the product of its rows' weights. The cost per row grows
        with B, so cut large batches into blocks (p.reshape(-1, 64, K)) where time matters.
        """
        same = labels.unsqueeze(-1) == labels.unsqueeze(-2)
        w = (
            torch.ones_like(labels, dtype=p.dtype)
            if sample_weight is None
            else sample_weight.to(p.dtype)
        )
        V = p @ p.transpose(-1, -2)
        # The probability of what was observed, with a = e^shift: aV / (1 + (a - 1) V) for "same", its rest otherwise.
        observed = torch.where(same, V, 1 - V).clamp_min(PROBABILITY_FLOOR)
        log_observed = observed.log() + same * self.shift - torch.log1p(math.expm1(self.shift) * V)
        return -torch.sum(log_observed.clamp_min(-self.bounded) * _batch_weights(same, w), (-1, -2))


def _batch_weights(same: Tensor, w: Tensor) -> Tensor:
    """Weights of all ordered pairs of rows, (..., B, B), as in :meth:`BalancedPairLoss.forward`, pairs weighed by w."""
    S, w = same.to(w.dtype), w.unsqueeze(-1)
    pair = w * w.transpose(-1, -2) * ~torch.eye(w.shape[-2], dtype=torch.bool, device=w.device)
    # Of the class of each row, (..., B, 1): its weight, that of its pairs, and how many rows have any.
    total, within, count = S @ w, S @ (pair * S).sum(-1, keepdim=True), S @ (w > 0).to(w.dtype)
    share = (w > 0) / count.clamp_min(
        1
    )  # rows' shares of their class add up to the number of classes
    classes, paired = share.sum(-2, keepdim=True), (share * (count > 1)).sum(-2, keepdim=True)
    # A half goes in equal parts to the ``paired`` classes, the other to classes (classes - 1) ordered pairs of classes;
    # each part to its pairs of rows by their weights, which add up to ``within`` or to the product of two totals.
    kind: Tensor = torch.where(
        same, within * paired, total * total.transpose(-1, -2) * classes * (classes - 1)
    )
    weights: Tensor = torch.where(pair > 0, 0.5 * pair / kind, 0.0)
    return weights
