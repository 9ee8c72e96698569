"""k nearest neighbours, with k, the scale of the features and the shrinkage chosen by leave-one-out log loss.

Symbols: n reference rows, K classes, w weights of the rows. The posterior of a row is the weighted share of each class
among its k nearest references, shrunk towards the priors by as much as ``prior_count`` neighbours. Nearer
neighbours count more: the i-th at distance r_i has weight ``exp(-r_i² / r_k²)``.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from collidescope._checks import IntArray
from collidescope.learners.base import ArrayMember, Float32, FloatArray, Task, log_shares, some

SIZES = (2, 3, 5, 8, 12, 20, 32, 50, 80)  #: numbers of neighbours that are tried
PRIOR_COUNTS = (
    0.03,
    0.1,
    0.3,
    1.0,
)  #: neighbours' worth of the priors in every posterior, as tried
MOST_ROWS, CHOOSING_ROWS = (
    20_000,
    2_000,
)  #: reference rows that are kept; rows that choose k and the scale


class Neighbours(ArrayMember):
    """k nearest neighbours."""

    most_features = 2_000  # beyond, distances say little and cost much

    rows: Annotated[npt.NDArray[np.float16], "f2 n d"]
    codes: Annotated[npt.NDArray[np.unsignedinteger[Any]], "u1|u2 n"]
    weights: Annotated[Float32, "f4 w"]  #: a single one where all are the same
    spread: Annotated[Float32, "f4 d"]
    priors: Annotated[Float32, "f4 K"]
    k: Annotated[int, 1, SIZES[-1]]
    prior_count: Annotated[float, PRIOR_COUNTS[0], PRIOR_COUNTS[-1]]
    _search: Any = None

    def learn(self, task: Task) -> None:
        generator = np.random.default_rng(task.seed)
        X, codes, w = task.sample(MOST_ROWS, generator=generator)
        # Half precision before anything is chosen: a model that was saved and loaded gives the same posteriors.
        self.rows, self.priors = X.astype(np.float16), task.priors.astype(np.float32)
        self.codes = codes.astype(np.uint8 if task.n_classes <= 256 else np.uint16)
        self.weights = w[: 1 if np.ptp(w) == 0 else None].astype(np.float32)
        chosen = some(np.arange(len(codes)), CHOOSING_ROWS, generator)
        best = np.inf
        for spread in task.scales():
            self._index(spread)
            loss, k, count = self._leave_one_out(chosen)
            if loss < best:
                best, self.k, self.prior_count, kept = loss, k, count, spread
        if self.spread is not kept:
            self._index(kept)

    def _index(self, spread: Float32) -> None:
        from sklearn.neighbors import NearestNeighbors

        self.spread, scaled = spread, self.rows.astype(np.float32) * spread
        self._search = NearestNeighbors(
            algorithm="brute" if scaled.shape[1] > 12 else "kd_tree"
        ).fit(scaled)

    def _neighbours(self, x: Float32, k: int) -> tuple[FloatArray, IntArray]:
        if self._search is None:  # from a file
            self._index(self.spread)
        distance, index = self._search.kneighbors(x * self.spread, k)
        return np.asarray(distance, dtype=np.float64), index

    def _leave_one_out(self, chosen: IntArray) -> tuple[float, int, float]:
        """The lowest log loss of rows scored by the others, with the k and prior count that reach it."""
        n = len(self.rows)
        if n < 2:
            return 0.0, 1, PRIOR_COUNTS[-1]
        sizes = [k for k in SIZES if k < n] or [1]
        distance, index = self._neighbours(self.rows[chosen].astype(np.float32), sizes[-1] + 1)
        # A row is its own neighbour; among duplicates it may not be found, and then the last neighbour goes.
        own = index == chosen[:, None]
        own[~own.any(axis=1), -1] = True
        distance, index = (a[~own].reshape(len(chosen), -1) for a in (distance, index))
        w, right = (
            np.broadcast_to(self.weights, n)[chosen],
            (np.arange(len(chosen)), self.codes[chosen]),
        )
        w = w / w.sum()
        tried = []
        for k in sizes:
            counts = self._counts(distance[:, :k], index[:, :k])
            for count in PRIOR_COUNTS:
                tried.append(
                    (float(-w @ log_shares(counts + count * self.priors)[right]), k, count)
                )
        return min(tried)

    def _counts(self, distance: FloatArray, index: IntArray) -> FloatArray:
        """Neighbours of each class, weighted, (n, K)."""
        n, K, squares = len(index), len(self.priors), distance * distance
        weights = np.broadcast_to(self.weights, len(self.rows))
        # Where all k are at distance 0 the floor lets each count fully.
        nearness = np.exp(-squares / np.maximum(squares[:, -1:], 1e-30)) * weights[index]
        # (row, class) as one number: one bincount serves all rows.
        places = self.codes[index].astype(np.intp) + K * np.arange(n)[:, None]
        counts = np.bincount(places.ravel(), nearness.ravel(), minlength=n * K)
        return np.asarray(counts.reshape(n, K), dtype=np.float64)

    @property
    def row_numbers(self) -> int:
        return len(self.spread) + min(self.k, len(self.rows)) + len(self.priors)

    def score(self, x: Float32) -> FloatArray:
        counts = self._counts(*self._neighbours(x, min(self.k, len(self.rows))))
        return log_shares(counts + self.prior_count * self.priors)

    def check(self, n_features: int, n_classes: int) -> None:
        n = len(self.rows)
        if (
            not 0 < n <= MOST_ROWS
            or self.codes.max() >= n_classes
            or len(self.weights) not in (1, n)
        ):
            raise ValueError(
                f"neighbours must have 1 to {MOST_ROWS} rows of classes below {n_classes}, with weights"
            )
        if (self.weights < 0).any() or (self.priors <= 0).any():
            raise ValueError(
                "weights of neighbours must not be negative, and priors must be positive"
            )
