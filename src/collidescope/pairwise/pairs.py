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

SCHEMES = ("balanced", "natural")


def sample_pairs(
    labels: Tensor,
    n_pairs: int,
    scheme: str = "balanced",
    generator: torch.Generator | None = None,
    sample_weight: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw ordered pairs of two distinct rows.

    Parameters
    ----------
    labels : integer tensor of shape (n,)
        Class numbers. Only classes that occur count.
    n_pairs : int
    scheme : "balanced" or "natural"
        ``"balanced"`` is the paper's risk: half of the pairs of one class, half of two classes, classes uniform. They
        alternate, so every even slice of the result is balanced too. ``"natural"`` draws two rows as the data come.
    generator : torch.Generator, optional
        Must live on the device of ``labels``. The global generator by default.
    sample_weight : tensor of shape (n,), optional
        A row is drawn in proportion to its weight: among all rows, or within its class when balanced.

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
    if scheme not in SCHEMES:
        raise ValueError(f"scheme must be one of {SCHEMES}, got {scheme!r}")
    if labels.ndim != 1 or labels.shape[0] < 2 or labels.is_floating_point():
        raise ValueError(
            f"labels must be at least 2 class numbers in one dimension, got {labels.dtype} {tuple(labels.shape)}"
        )
    if n_pairs < 0:
        raise ValueError(f"n_pairs must not be negative, got {n_pairs}")
    pool = _Pool(labels, sample_weight, by_class=scheme == "balanced")
    if scheme == "natural":
        everything = torch.zeros(n_pairs, dtype=torch.long, device=labels.device)
        i, j = pool.two_of_one(everything, generator)
    else:
        pool.require_pairs()
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


def same_log_odds_shift(scheme: str, counts: Tensor | list[float]) -> float:
    """How much the sampling scheme adds to the log odds of "same".

    ``logit Sim(x, x') = logit V(x, x') - shift``, V being the best classifier of the pairs as sampled. The paper's
    balanced pairs have even odds of "same", against 1 : (K - 1) at uniform priors, so the shift is log(K - 1) and
    Sim is that of *uniform* priors. Natural pairs are two independent draws already: no shift, natural priors.

    Parameters
    ----------
    scheme : "balanced" or "natural"
    counts : tensor or list of shape (K,)
        Rows of each class (``torch.bincount(labels)``); classes with none do not count.

    Examples
    --------
    >>> same_log_odds_shift("balanced", [250, 250, 10]) == math.log(2)
    True
    """
    if scheme not in SCHEMES:
        raise ValueError(f"scheme must be one of {SCHEMES}, got {scheme!r}")
    n_classes = sum(1 for count in torch.as_tensor(counts).tolist() if count > 0)
    if n_classes < 2:
        raise ValueError(f"counts must cover at least 2 classes, got {n_classes}: pairs of two classes are needed")
    return math.log(n_classes - 1) if scheme == "balanced" else 0.0


class _Pool:
    """Rows sorted by group, as intervals of cumulative weight."""

    def __init__(self, labels: Tensor, sample_weight: Tensor | None, by_class: bool) -> None:
        n, device = labels.shape[0], labels.device
        if sample_weight is None:
            weight = torch.ones(n, dtype=torch.float64, device=device)
        else:
            weight = sample_weight.to(device=device, dtype=torch.float64)
            if weight.shape != (n,) or not bool(torch.isfinite(weight).all()) or bool((weight < 0).any()):
                raise ValueError(f"sample_weight must be {n} finite numbers ≥ 0, got shape {tuple(weight.shape)}")
        # Rows without weight must not be drawn, not even by a rounding error: they leave the pool.
        kept = torch.nonzero(weight > 0).flatten()
        groups = labels[kept] if by_class else torch.zeros_like(kept)
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

    def require_pairs(self) -> None:
        if self.n_groups < 2:
            raise ValueError("labels hold a single class: balanced pairs need at least 2 (use scheme='natural')")
        lonely = self.names[self.sizes < 2].tolist()
        if lonely:
            shown = ", ".join(map(str, lonely[:10])) + (", …" if len(lonely) > 10 else "")
            raise ValueError(
                f"class {shown} has 1 member and so no same-class pair: balanced pairs need at least 2 per class "
                "(drop or merge the class, or use scheme='natural')"
            )

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
