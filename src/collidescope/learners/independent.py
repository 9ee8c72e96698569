"""Naive Bayes: features that are independent within a class, by their histograms or as counts.

Symbols: K classes; d features; N how often the rows of a class fell into a bin of a feature, or
how much of a feature they counted; m the same as shares over all classes. The shares of a class are
Dirichlet(α m) a priori, so that those of a class with few rows stay near m, and the marginal
likelihood of the rows chooses α.

Where features are independent, these need a fraction of the rows that regression needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from scipy.special import gammaln

from collidescope._checks import IntArray
from collidescope.learners.base import (
    ArrayMember,
    Fitted,
    FittedArrays,
    Float32,
    FloatArray,
    Task,
    double,
    log_softmax,
    single,
)

#: pseudo-counts of a class that are tried
ALPHAS = tuple(10.0 ** (e / 2) for e in range(-1, 13))


@dataclass(frozen=True)
class FittedHistograms(FittedArrays):
    """Log shares of the bins of every feature."""

    edges: Annotated[Float32, "f4 E d"]
    logs: Annotated[Float32, "f4 d B K"]  #: log shares of the bins
    log_priors: Annotated[FloatArray, "f8 K"]

    def __post_init__(self) -> None:
        rises = np.diff(self.edges, axis=0)
        falls = rises < 0
        n_bins = self.logs.shape[1]
        n_edges = n_bins - 1
        if falls.any() or len(self.edges) != n_edges:
            wanted = "not decrease, and must be one fewer than the bins"
            raise ValueError(f"edges must {wanted}")

    @property
    def row_numbers(self) -> int:
        return len(self.logs) + 2 * len(self.log_priors)

    def score(self, x: Float32) -> FloatArray:
        n_classes = len(self.log_priors)
        shape = (len(x), n_classes)
        total = np.zeros(shape)
        total += self.log_priors
        of_features = _bins(self.edges, x)
        pairs = zip(self.logs, of_features, strict=True)
        for logs, bins in pairs:
            total += logs[bins]
        return log_softmax(total)


@dataclass(frozen=True)
class Histograms(ArrayMember):
    """Naive Bayes with a histogram of every feature."""

    #: with as many rows in each; a feature with fewer values has a bin for each
    bins: int = 12
    most_rows: int = 30_000  #: rows that it learns from
    most_numbers: int = 30_000_000  #: numbers in them
    most_logarithms: int = 600_000  #: bins of all features and classes

    simple: ClassVar[bool] = True
    parametric: ClassVar[bool] = True
    learned: ClassVar[type[Fitted]] = FittedHistograms

    def takes_part(self, n: int, d: int, k: int) -> bool:
        return d * self.bins * k <= self.most_logarithms

    def cost(self, n: int, d: int, k: int) -> float:
        return 4e-8 * min(n, self.most_rows) * d + 5e-7 * d * self.bins * k

    def learn(self, task: Task) -> FittedHistograms:
        X, codes, w = task.sample(self.most_rows, self.most_numbers)
        of_features = [_edges(column, self.bins) for column in X.T]
        edges = np.stack(of_features, axis=1)
        K = task.n_classes
        n_cells = self.bins * K
        N = []
        for bins in _bins(edges, X):
            cells = bins * K + codes
            counted = np.bincount(cells, w, n_cells)
            N.append(counted)
        shape = (-1, self.bins, K)
        counts = double(N).reshape(shape)
        return FittedHistograms(
            name=self.name,
            edges=edges,
            logs=log_class_shares(counts),
            log_priors=np.log(task.priors),
        )


@dataclass(frozen=True)
class FittedCounts(FittedArrays):
    """Log shares of the features in every class; zero where features are no counts."""

    lowest: Annotated[Float32, "f4 d"]
    per_unit: Annotated[Float32, "f4 d"]
    weight: Annotated[Float32, "f4 d K"]
    log_priors: Annotated[FloatArray, "f8 K"]

    @property
    def row_numbers(self) -> int:
        return sum(self.weight.shape)

    def score(self, x: Float32) -> FloatArray:
        counts = _counts(x, self.lowest, self.per_unit)
        return log_softmax(counts @ self.weight + self.log_priors)


@dataclass(frozen=True)
class Counts(ArrayMember):
    """Multinomial naive Bayes of features that are counts; the class shares alone of others."""

    most_rows: int = 30_000  #: rows that it learns from
    most_numbers: int = 30_000_000  #: numbers in them
    most_logarithms: int = 600_000  #: features of all classes
    smallest_gap: float = 1e-6  #: between two values of a feature: less is rounding
    #: mean distance of counts from whole numbers; of other numbers it is 0.25
    whole: float = 0.02

    simple: ClassVar[bool] = True
    parametric: ClassVar[bool] = True
    learned: ClassVar[type[Fitted]] = FittedCounts

    def takes_part(self, n: int, d: int, k: int) -> bool:
        return d * k <= self.most_logarithms

    def cost(self, n: int, d: int, k: int) -> float:
        return 1e-8 * min(n, self.most_rows) * d + 1e-6 * d * k

    def learn(self, task: Task) -> FittedCounts:
        X, codes, w = task.sample(self.most_rows, self.most_numbers)
        lowest = X.min(axis=0)
        above = X - lowest
        # Features come standardised: the smallest difference of a count is one.
        differs = above > self.smallest_gap
        gaps = np.where(differs, above, np.inf)
        per_unit = single(1 / gaps.min(axis=0))
        counts = _counts(X, lowest, per_unit)
        K = task.n_classes
        shape = (X.shape[1], K)
        weight = np.zeros(shape, np.float32)
        from_whole = np.abs(counts - np.rint(counts))
        if from_whole.mean() < self.whole:
            onehot = np.eye(K)[codes]
            onehot *= w[:, None]
            N = double(counts.T) @ onehot
            (logs,) = log_class_shares(N[None])
            # Without the mean: no posterior changes, and it rounds less.
            mean = logs.mean(axis=1, keepdims=True)
            weight = logs - mean
        return FittedCounts(
            name=self.name,
            lowest=lowest,
            per_unit=per_unit,
            weight=weight,
            log_priors=np.log(task.priors),
        )


def _bins(edges: Float32, x: Float32) -> Iterator[IntArray]:
    """The bin of every row, feature by feature."""
    for own, column in zip(edges.T, x.T, strict=True):
        yield np.searchsorted(own, column)


def _counts(x: Float32, lowest: Float32, per_unit: Float32) -> Float32:
    above = np.maximum(x - lowest, 0)
    return single(above * per_unit)


def _edges(column: Float32, bins: int) -> Float32:
    """Between at most so many values or quantiles; of fewer, the last edge is repeated."""
    values = np.unique(column)
    if len(values) > bins:
        levels = np.linspace(0, 1, bins + 1)
        edges = np.quantile(column, levels[1:-1])
    else:
        sums = values[1:] + values[:-1]
        between = sums / 2
        # A repeated edge makes a bin without training rows: every feature has as many bins.
        n_repeated = bins - len(values)
        repeated = np.repeat(values[-1], n_repeated)
        edges = np.append(between, repeated)
    return single(edges)


def log_class_shares(N: FloatArray, pseudo_count: float = 0.1) -> Float32:
    """Log shares of counts N (…, J, K) among J, under the α of the highest marginal likelihood.

    Shares over all classes get a ``pseudo_count``: no logarithm of zero.
    """
    over_classes = N.sum(axis=-1, keepdims=True)
    over_classes += pseudo_count
    over_all = over_classes.sum(axis=-2, keepdims=True)
    m = over_classes / over_all
    total = N.sum(axis=-2, keepdims=True)

    def log_likelihood(alpha: float) -> float:
        # Dirichlet-multinomial, without the coefficients, in which α does not occur.
        prior = alpha * m
        counted = N + prior
        of_shares = gammaln(counted) - gammaln(prior)
        all_counted = total + alpha
        of_totals = gammaln(alpha) - gammaln(all_counted)
        likelihood = of_shares.sum()
        likelihood += of_totals.sum()
        return float(likelihood)

    alpha = max(ALPHAS, key=log_likelihood)
    counts = N + alpha * m
    shares = counts / (total + alpha)
    return single(np.log(shares))
