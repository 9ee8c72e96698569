"""k nearest neighbours: k, the scale of the features and the shrinkage by leave-one-out log loss.

Symbols: n reference rows, K classes, w weights of the rows. The posterior of a row is the weighted
share of each class among its k nearest references, shrunk towards the priors by as much as
``prior_count`` neighbours. Nearer neighbours count more: the i-th at distance r_i has weight
``exp(-r_i² / r_k²)``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt

from collidescope._checks import IntArray
from collidescope.learners.base import (
    ArrayMember,
    Fitted,
    FittedArrays,
    Float32,
    FloatArray,
    Task,
    double,
    log_shares,
    of_class,
    single,
    some,
)

MOST_ROWS = 20_000  #: reference rows that are kept, and that a file may claim


@dataclass(frozen=True)
class FittedNeighbours(FittedArrays):
    """Reference rows, and how their neighbours are counted."""

    rows: Annotated[npt.NDArray[np.float16], "f2 n d"]
    codes: Annotated[npt.NDArray[np.unsignedinteger[Any]], "u1|u2 n"]
    weights: Annotated[Float32, "f4 w"]  #: a single one where all are the same
    spread: Annotated[Float32, "f4 d"]
    priors: Annotated[Float32, "f4 K"]
    k: Annotated[int, 1, 1_000] = 1
    prior_count: Annotated[float, 1e-3, 1e3] = 1.0

    def __post_init__(self) -> None:
        n = len(self.rows)
        K = len(self.priors)
        some_rows = 0 < n <= MOST_ROWS
        weighted = len(self.weights) in (1, n)
        known = self.codes.max() < K
        if not some_rows or not weighted or not known:
            wanted = f"1 to {MOST_ROWS} rows of classes below {K}, with weights"
            raise ValueError(f"neighbours must have {wanted}")
        negative = self.weights < 0
        absent = self.priors <= 0
        if negative.any() or absent.any():
            wanted = "weights must not be negative, and priors must be positive"
            raise ValueError(wanted)

    @cached_property
    def _search(self) -> Any:
        from sklearn.neighbors import NearestNeighbors

        scaled = single(self.rows) * self.spread
        algorithm = "kd_tree"
        if scaled.shape[1] > 12:
            algorithm = "brute"
        return NearestNeighbors(algorithm=algorithm).fit(scaled)

    @property
    def row_numbers(self) -> int:
        return len(self.spread) + min(self.k, len(self.rows)) + len(self.priors)

    def score(self, x: Float32) -> FloatArray:
        k = min(self.k, len(self.rows))
        distance, index = self.nearest(x, k)
        counts = self.class_counts(distance, index)
        return log_shares(counts + self.prior_count * self.priors)

    def nearest(self, x: Float32, k: int) -> tuple[FloatArray, IntArray]:
        """Distances of the k nearest references and their numbers, (n, k) each."""
        distance, index = self._search.kneighbors(x * self.spread, k)
        return double(distance), index

    def class_counts(self, distance: FloatArray, index: IntArray) -> FloatArray:
        """Neighbours of each class, weighted, (n, K)."""
        shape = (len(index), len(self.priors))
        n, K = shape
        squares = distance * distance
        # Where all k are at distance 0 the floor lets each count fully.
        furthest = np.maximum(squares[:, -1:], 1e-30)
        weights = np.broadcast_to(self.weights, len(self.rows))
        nearness = np.exp(-squares / furthest)
        nearness *= weights[index]
        # (row, class) as one number: one bincount serves all rows.
        first = K * np.arange(n)
        classes = self.codes[index]
        flat = (first[:, None] + classes).ravel()
        counts = np.bincount(flat, nearness.ravel(), n * K)
        return double(counts.reshape(shape))


@dataclass(frozen=True)
class Neighbours(ArrayMember):
    """k nearest neighbours."""

    most_features: float = 2_000  #: beyond, distances say little and cost much
    sizes: tuple[int, ...] = (2, 3, 5, 8, 12, 20, 32, 50, 80)  #: k that are tried
    #: neighbours' worth of the priors in every posterior, as tried
    prior_counts: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0)
    choosing_rows: int = 2_000  #: rows that choose k and the scale

    most_rows: ClassVar[int] = MOST_ROWS
    learned: ClassVar[type[Fitted]] = FittedNeighbours

    def cost(self, n: int, d: int, k: int) -> float:
        references = min(n, MOST_ROWS)
        choosing = 3 * min(n, self.choosing_rows)
        scored = n / 4  # those that one of five folds holds out
        pair = 2.5e-9 + 1.5e-11 * d
        distances = (choosing + scored) * references * pair
        counts = 1e-8 * n * k
        return distances + counts + 0.02

    def learn(self, task: Task) -> FittedNeighbours:
        generator = np.random.default_rng(task.seed)
        X, codes, w = task.sample(MOST_ROWS, generator=generator)
        chosen = some(np.arange(len(codes)), self.choosing_rows, generator)
        small: Any = np.uint16
        if task.n_classes <= 256:
            small = np.uint8
        if np.ptp(w) == 0:
            w = w[:1]
        # Half precision before anything is chosen: a model that was saved and loaded gives the
        # same posteriors.
        rows = X.astype(np.float16)
        lowest = np.inf
        for spread in task.scales():
            tried = FittedNeighbours(
                name=self.name,
                rows=rows,
                codes=codes.astype(small),
                weights=single(w),
                spread=spread,
                priors=single(task.priors),
            )
            loss, k, prior_count = self._leave_one_out(tried, chosen)
            if loss < lowest:
                lowest = loss
                best = replace(tried, k=k, prior_count=prior_count)
        return best

    def _leave_one_out(
        self, tried: FittedNeighbours, chosen: IntArray
    ) -> tuple[float, int, float]:
        """The lowest log loss of rows scored by the others, and the k and count that reach it."""
        n = len(tried.rows)
        if n < 2:
            return 0.0, 1, self.prior_counts[-1]
        smaller = [k for k in self.sizes if k < n]
        sizes = smaller or [1]
        rows = single(tried.rows[chosen])
        codes = tried.codes[chosen]
        most = sizes[-1] + 1
        distance, index = without_itself(
            *tried.nearest(rows, most),
            chosen,
        )
        every_weight = np.broadcast_to(tried.weights, n)
        chosen_weight = every_weight[chosen]
        w = chosen_weight / chosen_weight.sum()
        found = []
        for k in sizes:
            counts = tried.class_counts(
                distance[:, :k],
                index[:, :k],
            )
            for prior_count in self.prior_counts:
                shrunk = counts + prior_count * tried.priors
                loss = float(-w @ of_class(log_shares(shrunk), codes))
                found.append((loss, k, prior_count))
        return min(found)


def without_itself(
    distance: FloatArray, index: IntArray, rows: IntArray
) -> tuple[FloatArray, IntArray]:
    """Neighbours of reference rows, which are their own nearest ones, without themselves.

    Among duplicates a row may not be found, and then the last neighbour goes.
    """
    own = index == rows[:, None]
    own[~own.any(axis=1), -1] = True
    others = ~own
    shape = (len(rows), -1)
    kept = distance[others]
    numbers = index[others]
    return (
        kept.reshape(shape),
        numbers.reshape(shape),
    )
