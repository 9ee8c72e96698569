"""k nearest neighbours, with k, the scale of the features and the shrinkage chosen by leave-one-out log loss.

Symbols: n reference rows, K classes, w weights of the rows. The posterior of a row is the weighted share of each class
among its k nearest references, shrunk towards the priors by as much as ``prior_count`` neighbours. Nearer
neighbours count more: the i-th at distance r_i has weight ``exp(-r_i² / r_k²)``.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from collidescope.learners._shared import (
    LOG_FLOOR,
    by_blocks,
    checked,
    checked_number,
    class_shares,
    one_thread,
    scales,
    weights_of,
)
from collidescope.learners.base import FloatArray, Member, Task, Tree

#: Numbers of neighbours that are tried.
SIZES = (2, 3, 5, 8, 12, 20, 32, 50, 80)
#: Neighbours' worth of the priors in every posterior, as tried: no logarithm of zero.
PRIOR_COUNTS = (0.03, 0.1, 0.3, 1.0)
#: Reference rows that are kept; a sample beyond. Rows that choose k and the scale.
MOST_ROWS, CHOOSING_ROWS = 20_000, 2_000
#: Features beyond which distances say little and cost much.
MOST_FEATURES = 2_000


class Neighbours(Member):
    """k nearest neighbours."""

    name = "neighbours"

    rows: npt.NDArray[np.float16]
    codes: npt.NDArray[np.uint16]
    weights: npt.NDArray[np.float32]
    spread: npt.NDArray[np.float32]
    _search: Any = None
    priors: npt.NDArray[np.float32]
    k: int
    prior_count: float

    @classmethod
    def takes_part(cls, n: int, d: int, k: int) -> bool:
        return d <= MOST_FEATURES

    def fit(self, task: Task) -> Self:
        w, generator = weights_of(task), np.random.default_rng(task.seed)
        used = np.flatnonzero(w > 0)
        if len(used) > MOST_ROWS:
            used = np.sort(generator.choice(used, MOST_ROWS, replace=False))
        # Half precision before anything is chosen: a model that was saved and loaded gives the same posteriors.
        X = np.asarray(task.X[used], dtype=np.float32).astype(np.float16)
        self.codes, self.weights = task.codes[used].astype(np.uint16), w[used].astype(np.float32)
        self.priors = class_shares(task).astype(np.float32)
        chosen = np.arange(len(used))
        if len(chosen) > CHOOSING_ROWS:
            chosen = np.sort(generator.choice(chosen, CHOOSING_ROWS, replace=False))
        best = np.inf
        for spread in scales(task):
            self.rows, self.spread = X, spread
            self._index()
            loss, k, count = self._leave_one_out(chosen)
            if loss < best:
                best, self.k, self.prior_count, kept = loss, k, count, spread
        if self.spread is not kept:
            self.spread = kept
            self._index()
        return self

    def _index(self) -> None:
        from sklearn.neighbors import NearestNeighbors

        scaled = self.rows.astype(np.float32) * self.spread
        with one_thread():
            self._search = NearestNeighbors(algorithm="brute" if scaled.shape[1] > 12 else "kd_tree").fit(scaled)

    def _neighbours(self, x: npt.NDArray[np.float32], k: int) -> tuple[FloatArray, npt.NDArray[np.intp]]:
        if self._search is None:  # from a file
            self._index()
        with one_thread():
            distance, index = self._search.kneighbors(x * self.spread, k)
        return np.asarray(distance, dtype=np.float64), index

    def _leave_one_out(self, chosen: npt.NDArray[np.intp]) -> tuple[float, int, float]:
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
        w, right = self.weights[chosen] / self.weights[chosen].sum(), (np.arange(len(chosen)), self.codes[chosen])
        tried = []
        for k in sizes:
            counts = self._counts(distance[:, :k], index[:, :k])
            for count in PRIOR_COUNTS:
                tried.append((float(-w @ self._log_shares(counts, count)[right]), k, count))
        return min(tried)

    def _counts(self, distance: FloatArray, index: npt.NDArray[np.intp]) -> FloatArray:
        """Neighbours of each class, weighted, (n, K)."""
        n, K, squares = len(index), len(self.priors), distance * distance
        nearness = np.exp(-squares / np.maximum(squares[:, -1:], 1e-30)) * self.weights[index]
        places = self.codes[index].astype(np.intp) + K * np.arange(n)[:, None]
        counts = np.bincount(places.ravel(), nearness.ravel(), minlength=n * K)
        return np.asarray(counts.reshape(n, K), dtype=np.float64)

    def _log_shares(self, counts: FloatArray, prior_count: float) -> FloatArray:
        shares = counts + prior_count * self.priors
        out = np.log(shares / shares.sum(axis=1, keepdims=True))
        return np.asarray(np.maximum(out, LOG_FLOOR), dtype=np.float64)

    def log_posteriors(self, X: Any) -> FloatArray:
        k = min(self.k, len(self.rows))
        numbers = self.rows.shape[1] + k + len(self.priors)

        def score(x: npt.NDArray[np.float32]) -> FloatArray:
            return self._log_shares(self._counts(*self._neighbours(x, k)), self.prior_count)

        return by_blocks(score, X, numbers, len(self.priors))

    def export(self) -> Tree:
        names = ("rows", "spread", "priors", "k", "prior_count")
        same = len(np.unique(self.weights)) == 1  # the common case: then nothing needs to be kept
        return {name: getattr(self, name) for name in names} | {
            "codes": self.codes.astype(np.uint8 if len(self.priors) <= 256 else np.uint16),
            "weights": self.weights[: 1 if same else None],
        }

    @classmethod
    def restore(cls, tree: Tree, n_features: int, n_classes: int) -> Self:
        member = cls()
        member.rows = checked(tree, "rows", (np.float16,), (None, n_features))
        n = len(member.rows)
        member.codes = checked(tree, "codes", (np.uint8, np.uint16), (n,)).astype(np.uint16)
        weights = checked(tree, "weights", (np.float32,), (None,))
        member.weights = np.broadcast_to(weights, n)  # raises unless there is one, or one per row
        member.spread = checked(tree, "spread", (np.float32,), (n_features,))
        member.priors = checked(tree, "priors", (np.float32,), (n_classes,))
        if not n or n > MOST_ROWS or member.codes.max() >= n_classes:
            raise ValueError(f"neighbours must have 1 to {MOST_ROWS} rows of classes below {n_classes}")
        if (member.weights < 0).any() or (member.priors <= 0).any():
            raise ValueError("weights of neighbours must not be negative, and priors must be positive")
        member.k = int(checked_number(tree, "k", 1, SIZES[-1]))
        member.prior_count = checked_number(tree, "prior_count", PRIOR_COUNTS[0], PRIOR_COUNTS[-1])
        return member
