"""Pairs of rows, drawn from n labelled rows without ever listing the n² pairs.

Symbols: n rows, K classes, ``i`` and ``j`` the two rows of each ordered pair, ``same`` whether their labels agree.

Every draw is an inversion of cumulative weights: with the rows sorted by class, a class is an interval of the
cumulative weight, a row a smaller interval inside it, and "another row than i" is the interval with i cut out. So a
pair costs one binary search for any imbalance and any row weights, and nothing is rejected.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def sample_pairs(
    labels: Tensor, n_pairs: int, generator: torch.Generator | None = None, sample_weight: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw ordered pairs of two distinct rows in balance, as the paper's risk (equation 31) asks.

    Half of the pairs are of one class, half of two classes, classes uniform. They alternate, so every even slice of
    the result is balanced too.

    Parameters
    ----------
    labels : integer tensor of shape (n,)
        Class numbers. Only classes that occur count; each needs two rows.
    n_pairs : int
    generator : torch.Generator, optional
        Must live on the device of ``labels``. The global generator by default.
    sample_weight : tensor of shape (n,), optional
        Within its class a row is drawn in proportion to its weight.

    Returns
    -------
    i, j : long tensors of shape (n_pairs,)
    same : bool tensor of shape (n_pairs,)

    Examples
    --------
    >>> i, j, same = sample_pairs(torch.tensor([0, 0, 1, 1]), 6)
    >>> int(same.sum()), bool((i != j).all())
    (3, True)
    """
    if labels.ndim != 1 or labels.shape[0] < 2 or labels.is_floating_point():
        raise ValueError(
            f"labels must be at least 2 class numbers in one dimension, got {labels.dtype} {tuple(labels.shape)}"
        )
    if n_pairs < 0:
        raise ValueError(f"n_pairs must not be negative, got {n_pairs}")
    pool = _Pool(labels, sample_weight)
    n_same = n_pairs // 2
    k = _integers(pool.n_groups, n_pairs, labels.device, generator)
    other = _integers(pool.n_groups - 1, n_pairs - n_same, labels.device, generator)
    i = torch.empty(n_pairs, dtype=torch.long, device=labels.device)
    j = torch.empty_like(i)
    i[1::2], j[1::2] = pool.two_of_one(k[1::2], generator)
    i[0::2] = pool.one(k[0::2], generator)
    j[0::2] = pool.one(other + (other >= k[0::2]), generator)
    i, j = pool.order[i], pool.order[j]
    return i, j, labels[i] == labels[j]


def same_log_odds_shift(n_classes: int) -> float:
    """How much balanced sampling adds to the log odds of "same": log(K - 1).

    ``logit Sim(x, x') = logit V(x, x') - shift``, V being the best classifier of the pairs as sampled. Balanced pairs
    have even odds of "same", against 1 : (K - 1) for two independent draws at uniform priors. The paper leaves it out.

    >>> same_log_odds_shift(3) == math.log(2)
    True
    """
    return math.log(n_classes - 1)


class _Pool:
    """Rows sorted by group, as intervals of cumulative weight."""

    def __init__(self, labels: Tensor, sample_weight: Tensor | None) -> None:
        n, device = labels.shape[0], labels.device
        if sample_weight is None:
            weight = torch.ones(n, dtype=torch.float64, device=device)
        else:
            weight = sample_weight.to(device=device, dtype=torch.float64)
            if weight.shape != (n,) or not bool(torch.isfinite(weight).all()) or bool((weight < 0).any()):
                raise ValueError(f"sample_weight must be {n} finite numbers ≥ 0, got shape {tuple(weight.shape)}")
        # Rows without weight must not be drawn, not even by a rounding error: they leave the pool.
        kept = torch.nonzero(weight > 0).flatten()
        groups = labels[kept]
        self.names, inverse, self.sizes = torch.unique(groups, return_inverse=True, return_counts=True)
        ranks = torch.argsort(inverse, stable=True)
        self.order = kept[ranks]
        self.n_groups = int(self.names.shape[0])
        self.last = torch.cumsum(self.sizes, 0)
        self.first = self.last - self.sizes
        self.cumulative = torch.cumsum(weight[self.order], 0)
        self.weight = weight[self.order]
        self.group_end = self.cumulative[self.last - 1] if self.n_groups else self.cumulative
        self.group_start = torch.cat([self.cumulative.new_zeros(1), self.group_end[:-1]])
        if self.order.shape[0] < 2:
            raise ValueError("sample_weight leaves fewer than 2 rows with a positive weight: no pair can be drawn")

        if self.n_groups < 2:
            raise ValueError("labels hold a single class: pairs of two classes need at least 2")
        lonely = self.names[self.sizes < 2].tolist()
        if lonely:
            shown = ", ".join(map(str, lonely[:10])) + (", …" if len(lonely) > 10 else "")
            raise ValueError(f"class {shown} has 1 member and so no same-class pair: drop or merge the class")

    def one(self, group: Tensor, generator: torch.Generator | None) -> Tensor:
        """A row of each ``group``, as its place in ``order``."""
        low, high = self.group_start[group], self.group_end[group]
        return self._find(low + (high - low) * _uniform(group, generator), group)

    def two_of_one(self, group: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Two distinct rows of each ``group``."""
        i = self.one(group, generator)
        low, high = self.group_start[group], self.group_end[group] - self.weight[i]
        point = low + (high - low) * _uniform(group, generator)
        j = self._find(torch.where(point >= self.cumulative[i] - self.weight[i], point + self.weight[i], point), group)
        # Rounding can put the point a hair inside i when weights differ by 1e16: then its neighbour is as good.
        neighbour = torch.where(i + 1 < self.last[group], i + 1, i - 1)
        return i, torch.where(i == j, neighbour, j)

    def _find(self, point: Tensor, group: Tensor) -> Tensor:
        place = torch.searchsorted(self.cumulative, point, right=True)
        return torch.minimum(torch.maximum(place, self.first[group]), self.last[group] - 1)


def _uniform(like: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.rand(like.shape[0], dtype=torch.float64, device=like.device, generator=generator)


def _integers(high: int, n: int, device: torch.device, generator: torch.Generator | None) -> Tensor:
    return torch.randint(high, (n,), device=device, generator=generator)
