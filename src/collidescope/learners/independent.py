"""Naive Bayes: features that are independent within a class, by their histograms or as counts.

Symbols: K classes; d features; N how often the rows of a class fell into a bin of a feature, or how much of a feature
they counted; m the same as shares over all classes. The shares of a class are Dirichlet(α m) a priori, so that those of
a class with few rows stay near m, and the marginal likelihood of the rows chooses α.

Where features are independent, these need a fraction of the rows that regression needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import numpy as np
from scipy.special import gammaln

from collidescope._checks import IntArray
from collidescope.learners.base import ArrayMember, Float32, FloatArray, Task, log_softmax

BINS = (
    12  #: of a histogram, with as many rows in each; a feature with fewer values has one for each
)
ALPHAS = tuple(10.0 ** (e / 2) for e in range(-1, 13))  #: pseudo-counts of a class that are tried
PSEUDO_COUNT = 0.1  #: of all classes, in every bin and of every feature: no logarithm of zero
MOST_ROWS, MOST_NUMBERS = 30_000, 30_000_000  #: rows, and numbers in them, that they learn from
MOST_LOGARITHMS = 600_000  #: bins of all features and classes, or features of all classes
SMALLEST_GAP = 1e-6  #: between two values of a feature: less is rounding
WHOLE = 0.02  #: mean distance of counts from whole numbers; of other numbers it is 0.25


class Histograms(ArrayMember):
    """Naive Bayes with a histogram of every feature."""

    simple = True
    edges: Annotated[Float32, "f4 E d"]
    logs: Annotated[Float32, "f4 d B K"]  #: log shares of the bins
    log_priors: Annotated[FloatArray, "f8 K"]

    def takes_part(self, n: int, d: int, k: int) -> bool:
        return d * BINS * k <= MOST_LOGARITHMS

    def learn(self, task: Task) -> None:
        X, codes, w = task.sample(MOST_ROWS, MOST_NUMBERS)
        self.log_priors, self.edges = (
            np.log(task.priors),
            np.stack([_edges(column) for column in X.T], axis=1),
        )
        sizes = BINS, task.n_classes
        N = [
            np.bincount(np.ravel_multi_index((bins, codes), sizes), w, np.prod(sizes))
            for bins in self._bins(X)
        ]
        self.logs = _log_shares(np.reshape(N, (-1, *sizes)))

    def _bins(self, x: Float32) -> Iterator[IntArray]:
        """The bin of every row, feature by feature."""
        return (
            np.searchsorted(edges, column) for edges, column in zip(self.edges.T, x.T, strict=True)
        )

    @property
    def row_numbers(self) -> int:
        return len(self.logs) + 2 * len(self.log_priors)

    def score(self, x: Float32) -> FloatArray:
        total = np.tile(self.log_priors, (len(x), 1))
        for logs, bins in zip(self.logs, self._bins(x), strict=True):
            total += logs[bins]
        return log_softmax(total)

    def check(self, n_features: int, n_classes: int) -> None:
        if self.logs.shape[1] != len(self.edges) + 1 or (np.diff(self.edges, axis=0) < 0).any():
            raise ValueError("edges must not decrease, and must be one fewer than the bins")


class Counts(ArrayMember):
    """Multinomial naive Bayes of features that are counts, such as words; the class shares alone of other features."""

    simple = True
    lowest: Annotated[Float32, "f4 d"]
    per_unit: Annotated[Float32, "f4 d"]
    weight: Annotated[Float32, "f4 d K"]
    log_priors: Annotated[FloatArray, "f8 K"]

    def takes_part(self, n: int, d: int, k: int) -> bool:
        return d * k <= MOST_LOGARITHMS

    def learn(self, task: Task) -> None:
        X, codes, w = task.sample(MOST_ROWS, MOST_NUMBERS)
        self.log_priors, self.lowest = np.log(task.priors), X.min(axis=0)
        # Features come standardised: the smallest difference of a count is one.
        gaps = np.where(X - self.lowest > SMALLEST_GAP, X - self.lowest, np.inf).min(axis=0)
        self.per_unit = (1 / gaps).astype(np.float32)
        counts = self._counts(X)
        self.weight = np.zeros((X.shape[1], task.n_classes), dtype=np.float32)
        if np.abs(counts - np.rint(counts)).mean() < WHOLE:
            N = counts.T.astype(np.float64) @ (np.eye(task.n_classes)[codes] * w[:, None])
            self.weight = _log_shares(N[None])[0]
            self.weight -= self.weight.mean(
                axis=1, keepdims=True
            )  # changes no posterior, rounds less

    def _counts(self, x: Float32) -> Float32:
        return np.asarray(np.maximum(x - self.lowest, 0) * self.per_unit, dtype=np.float32)

    @property
    def row_numbers(self) -> int:
        return sum(self.weight.shape)

    def score(self, x: Float32) -> FloatArray:
        return log_softmax(self._counts(x) @ self.weight + self.log_priors)


def _edges(column: Float32) -> Float32:
    """Between at most :data:`BINS` values or quantiles; of fewer, the last edge is repeated."""
    values = np.unique(column)
    if len(values) > BINS:
        edges = np.quantile(column, np.linspace(0, 1, BINS + 1)[1:-1])
    else:
        # A repeated edge makes a bin without training rows: every feature has as many bins.
        edges = np.append((values[1:] + values[:-1]) / 2, np.repeat(values[-1], BINS - len(values)))
    return edges.astype(np.float32)


def _log_shares(N: FloatArray) -> Float32:
    """Log shares of counts N (…, J, K) among J, under the α of the highest marginal likelihood."""
    m = N.sum(axis=-1, keepdims=True) + PSEUDO_COUNT
    m, total = m / m.sum(axis=-2, keepdims=True), N.sum(axis=-2, keepdims=True)

    def likelihood(alpha: float) -> float:
        # Dirichlet-multinomial, without the coefficients, in which α does not occur.
        parts = (
            (gammaln(N + alpha * m) - gammaln(alpha * m)).sum(),
            (gammaln(alpha) - gammaln(total + alpha)).sum(),
        )
        return float(sum(parts))

    alpha = max(ALPHAS, key=likelihood)
    return np.asarray(np.log((N + alpha * m) / (total + alpha)), dtype=np.float32)
