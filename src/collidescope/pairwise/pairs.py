"""Pairs of rows and the risk of a model of pairs: equations (30) to (32) of the paper.

Symbols: n rows, K classes, ``i`` and ``j`` the two rows of each ordered pair, ``same`` whether
their labels agree. ``Sim(x, x') = y(x)·y(x')`` is the chance that two inputs get the same class;
V is the best classifier of the pairs *as sampled*. Balance (half same, half different, classes
uniform: the paper's risk) makes ``logit V = logit Sim + log(K - 1)`` at uniform priors. A fit
draws balanced pairs with :func:`sample_pairs`, never all n², and :class:`PairObjective` calls
:func:`balanced_risk` on them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from collidescope.pairwise.scoring import PairwiseNetwork
from collidescope.training.config import TrainingConfig
from collidescope.training.rows import SCORING_BATCH, Rows, Split, signature


def sample_pairs(
    labels: Tensor,
    n_pairs: int,
    generator: torch.Generator | None = None,
    sample_weight: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw ordered pairs (i, j) of distinct rows in balance, as equation (31) asks.

    Half of the pairs are of one class, half of two classes, classes uniform. They alternate, so
    every even slice of the three tensors of shape (n_pairs,), the rows i, the rows j and whether
    their labels agree, is balanced too.

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
    if n_pairs < 0:
        raise ValueError(f"n_pairs must not be negative, got {n_pairs}")
    urn = _urn(labels, sample_weight, generator)
    device = labels.device
    K = urn.n_classes
    # Odd places get pairs of one class, even ones pairs of two.
    k = torch.randint(K, (n_pairs,), device=device, generator=generator)
    of_one = k[1::2]
    of_two = k[0::2]
    other = torch.randint(K - 1, of_two.shape, device=device, generator=generator)
    # 0 … K-2 onto the classes other than that of the first row, each as likely.
    other += other >= of_two
    i = torch.empty(n_pairs, dtype=torch.long, device=device)
    j = torch.empty_like(i)
    i[1::2] = urn.draw(of_one)
    j[1::2] = urn.draw_another(of_one, i[1::2])
    i[0::2] = urn.draw(of_two)
    j[0::2] = urn.draw(other)
    i = urn.order[i]
    j = urn.order[j]
    return i, j, labels[i] == labels[j]


@dataclass(frozen=True)
class _Urn:
    """Rows sorted by class, to draw from in proportion to their weights.

    Classes are intervals of cumulative weight, rows smaller ones inside: a draw is one binary
    search. "Another row than i" is the interval with i cut out: nothing is rejected, for any
    imbalance and any weights.
    """

    order: Tensor  #: the row at each place
    weight: Tensor  #: of the row at each place
    ends: Tensor  #: cumulative weight up to the end of each place
    first: Tensor  #: the first place of each class
    last: Tensor  #: the last place of each class
    generator: torch.Generator | None

    @property
    def n_classes(self) -> int:
        return len(self.last)

    @property
    def high(self) -> Tensor:
        """The end of each class's interval."""
        return self.ends[self.last]

    @property
    def low(self) -> Tensor:
        """The start of each class's interval."""
        return torch.cat([self.ends.new_zeros(1), self.high[:-1]])

    def draw(self, k: Tensor) -> Tensor:
        """A place of class k[0], one of k[1] …"""
        return self._places(self._points(self.low[k], self.high[k]), k)

    def draw_another(self, k: Tensor, taken: Tensor) -> Tensor:
        """The same, but other places than those ``taken``."""
        weight = self.weight[taken]
        # Uniform on the interval of the class, shorter by that of the row taken; what lies beyond
        # the start of this row moves past it.
        point = self._points(self.low[k], self.high[k] - weight)
        start = self.ends[taken] - weight
        moved = torch.where(point >= start, point + weight, point)
        drawn = self._places(moved, k)
        # Rounding can put the point a hair inside the row taken when weights differ by 1e16: then
        # its neighbour is as good.
        neighbour = torch.where(taken == self.last[k], taken - 1, taken + 1)
        return torch.where(drawn == taken, neighbour, drawn)

    def _points(self, low: Tensor, high: Tensor) -> Tensor:
        uniform = torch.rand(
            len(low), dtype=torch.float64, device=low.device, generator=self.generator
        )
        return low + (high - low) * uniform

    def _places(self, point: Tensor, k: Tensor) -> Tensor:
        place = torch.searchsorted(self.ends, point, right=True)
        return place.clamp(self.first[k], self.last[k])


def _urn(
    labels: Tensor, sample_weight: Tensor | None, generator: torch.Generator | None
) -> _Urn:
    """Rows of positive weight by class, checked for having pairs of both kinds."""
    n = labels.shape[0]
    if labels.ndim != 1 or n < 2 or labels.is_floating_point():
        raise ValueError(
            "labels must be at least 2 class numbers in one dimension, got "
            f"{labels.dtype} {tuple(labels.shape)}"
        )
    if sample_weight is None:
        sample_weight = torch.ones(n)
    # In float32 a sum of 2²⁴ no longer grows by ones.
    weight = sample_weight.to(labels.device, torch.float64)
    usable = torch.isfinite(weight) & (weight >= 0)
    if weight.shape != (n,) or not bool(usable.all()):
        raise ValueError(
            f"sample_weight must be {n} finite numbers ≥ 0, got shape "
            f"{tuple(weight.shape)}"
        )
    # Rows without weight must not be drawn, not even by a rounding error: they are left out.
    kept = torch.nonzero(weight > 0).flatten()
    names, numbers, sizes = torch.unique(
        labels[kept], return_inverse=True, return_counts=True
    )
    _check_members(names, sizes)
    order = kept[torch.argsort(numbers, stable=True)]
    sorted_weight = weight[order]
    last = torch.cumsum(sizes, 0) - 1
    return _Urn(
        order=order,
        weight=sorted_weight,
        ends=torch.cumsum(sorted_weight, 0),
        first=last - sizes + 1,
        last=last,
        generator=generator,
    )


def _check_members(names: Tensor, sizes: Tensor, shown: int = 10) -> None:
    """Two classes at least, and two rows of each."""
    if len(names) < 2:
        raise ValueError(
            "labels of positive weight hold a single class or none: pairs of two classes need 2"
        )
    lonely = [str(name) for name in names[sizes < 2].tolist()]
    if lonely:
        listed = ", ".join(lonely[:shown])
        if len(lonely) > shown:
            listed += ", …"
        raise ValueError(
            f"class {listed} has 1 member and so no same-class pair: drop or merge the class"
        )


def same_log_odds_shift(n_classes: int) -> float:
    """How much balanced sampling adds to the log odds of "same": log(K - 1).

    So logit Sim = logit V - shift. Balanced pairs have even odds of "same", against 1 : (K - 1) for
    two independent draws at uniform priors. The paper leaves it out.

    >>> same_log_odds_shift(3) == math.log(2)
    True
    """
    return math.log(n_classes - 1)


def balanced_risk(logits: Tensor, same: Tensor) -> Tensor:
    """Empirical risk of V on balanced pairs, the paper's equation (32) with cross-entropy as ℓ.

    ``logits`` of V(x, x') and ``same`` (1 or 0) have shape (N,). Half of the pairs are of one class
    and half of two, classes uniform, so their mean is the risk of equation (31) without bias
    (halved: the paper adds up both halves).

    >>> round(float(balanced_risk(torch.zeros(2), torch.tensor([1.0, 0.0]))), 4)
    0.6931
    """
    return nn.functional.binary_cross_entropy_with_logits(logits, same)


class PairObjective:
    """:func:`balanced_risk` over as many sampled pairs per epoch as there are rows.

    The held-out loss is over ``held_out_pairs`` per held-out row: on 4n pairs it is nearly as
    certain as on all n².
    """

    n_members = 1
    sample_batches = None

    def __init__(
        self,
        X: Rows,
        y: Tensor,
        split: Split,
        config: TrainingConfig,
        seed: int,
        weight: Tensor | None = None,
        held_out_pairs: int = 4,
    ) -> None:
        self.X = X
        self.y = y
        self.weight = weight
        self.rows, held_out = split
        self.batch_size = config.batch_for(len(self.rows))
        self.held_out: Tensor | None = None
        if len(held_out):
            generator = torch.Generator(device=y.device)
            generator.manual_seed(seed)
            self.held_out = self._pairs(
                held_out, held_out_pairs * len(held_out), generator
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
        end = pairs.shape[1]
        size = self.batch_size
        # A last batch of a single pair is left out: batch norm cannot take it.
        if end > size > 1:
            end -= 1
        for start in range(0, end, size):
            yield pairs[:, start : start + size]

    def loss(self, module: nn.Module, batch: Tensor) -> Tensor:
        assert isinstance(module, PairwiseNetwork)
        i, j, same = batch
        # One order of each pair: pairs are sampled as ordered pairs, so both orders are learned.
        logits = module.one_way(self.X[i], self.X[j])
        return balanced_risk(logits, same.float())

    def held_out_loss(self, module: nn.Module) -> Tensor:
        pairs = self.held_out
        if pairs is None:
            return torch.full((1,), torch.nan, device=self.y.device)
        scored = [
            module(self.X[i], self.X[j])
            for i, j, _ in torch.split(pairs, SCORING_BATCH, 1)
        ]
        return balanced_risk(torch.cat(scored), pairs[2].float())[None]
