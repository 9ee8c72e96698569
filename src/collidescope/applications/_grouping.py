"""Searching for groupings: the greedy path and the exhaustive search.

Symbols: W = B + Bᵀ with a diagonal of zeros, so that merging two groups lowers PBER by the sum of W between them. A
*grouping* is an array of K group numbers, numbered in the order of their first members.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collidescope._checks import FloatArray, IntArray
from collidescope.applications._constraints import ROOT, Constraints, Path

#: Gains closer than this are equal up to the rounding of sums of B: the pair that comes first in the classes is taken,
#: on every machine.
TIE = 1e-12
#: In place of the gain of a pair that may not be merged; true gains are never negative.
FORBIDDEN = -1.0

Groupings = npt.NDArray[np.integer]


@dataclass(frozen=True)
class GreedyPath:
    """Every merge of a greedy path that ends in one group.

    Attributes
    ----------
    pairs : array of shape (K - 1, 2)
        First members of the two groups of each merge.
    gains : array of shape (K - 1,)
        PBER that it removes.
    n_forced, n_allowed : int
        The first ``n_forced`` merges are those of ``must_merge``; from number ``n_allowed`` on, merges join what the
        constraints keep apart: they complete the tree and belong to no plan.
    """

    pairs: IntArray
    gains: FloatArray
    n_forced: int
    n_allowed: int


def greedy_path(W: FloatArray, constraints: Constraints) -> GreedyPath:
    """Merge the two groups that collide most, again and again: O(K²) each time."""
    state = _Agglomeration(W, constraints)
    for first, *others in constraints.together:
        for other in others:
            state.merge(first, other)
    n_forced = len(state.pairs)
    state.merge_all()
    n_allowed = len(state.pairs)
    state.lift_constraints()
    state.merge_all()
    return GreedyPath(np.array(state.pairs, dtype=np.intp), np.array(state.gains), n_forced, n_allowed)


class _Agglomeration:
    """Groups on their way to one; a group is known by its first member, and W between groups is kept there."""

    def __init__(self, W: FloatArray, constraints: Constraints) -> None:
        k = len(W)
        self.W = W.copy()
        self.constraints = constraints
        self.members = {i: [i] for i in range(k)}
        self.alive = np.ones(k, dtype=bool)
        self.apart = constraints.apart.copy()
        self.numbers: dict[Path, int] = {}
        self.homes = np.array([self._home(i) for i in range(k)])
        self.pairs: list[tuple[int, int]] = []
        self.gains: list[float] = []
        self._score()

    def merge_all(self) -> None:
        """Until no pair is left that may be merged."""
        while (best := float(self.score.max())) > FORBIDDEN:
            self.merge(*divmod(int((self.score >= best - TIE).argmax()), len(self.W)))

    def merge(self, a: int, b: int) -> None:
        """Group b joins group a."""
        self.pairs.append((a, b))
        self.gains.append(float(self.W[a, b]))
        for array in (self.W, self.apart):
            array[a] += array[b]
            array[:, a] += array[:, b]
        self.alive[b] = False
        self.members[a] += self.members.pop(b)
        self.homes[a] = self._home(a)
        row = np.where(self.alive & ~self.apart[a] & (self.homes == self.homes[a]), self.W[a], FORBIDDEN)
        row[a] = FORBIDDEN
        self.score[a] = self.score[:, a] = row
        self.score[b] = self.score[:, b] = FORBIDDEN

    def lift_constraints(self) -> None:
        """Let every pair be merged."""
        free = Constraints([], np.zeros_like(self.apart), [ROOT] * len(self.W))
        self.constraints, self.apart = free, free.apart.copy()
        self.homes[:] = self.numbers.setdefault(ROOT, len(self.numbers))
        self._score()

    def _home(self, a: int) -> int:
        return self.numbers.setdefault(self.constraints.home(self.members[a]), len(self.numbers))

    def _score(self) -> None:
        may = self.alive[:, None] & self.alive & ~self.apart & (self.homes[:, None] == self.homes)
        self.score = np.where(may, self.W, FORBIDDEN)
        np.fill_diagonal(self.score, FORBIDDEN)


def groupings_along(path: GreedyPath, n_classes: int) -> Groupings:
    """Group numbers of every class before the first free merge, and after each allowed one."""
    first = np.arange(n_classes)
    rows = []
    for step in range(path.n_allowed + 1):
        if step >= path.n_forced:
            rows.append(np.unique(first, return_inverse=True)[1])
        if step < path.n_allowed:
            a, b = path.pairs[step]
            first[first == b] = a
    return np.array(rows, dtype=np.min_scalar_type(n_classes))


def linkage_of(path: GreedyPath) -> FloatArray:
    """The tree as scipy writes it: two clusters, the PBER removed so far (never falling), the classes below."""
    k = len(path.pairs) + 1
    cluster, size = np.arange(k), np.ones(k)
    rows = np.empty((k - 1, 4))
    heights = np.cumsum(path.gains)
    for step, (a, b) in enumerate(path.pairs):
        size[a] += size[b]
        rows[step] = *sorted((cluster[a], cluster[b])), heights[step], size[a]
        cluster[a] = k + step
    return rows


def best_groupings(W: FloatArray, constraints: Constraints) -> Groupings:
    """For every number of groups that the constraints allow, the grouping with the lowest PBER; most groups first.

    All partitions are looked at: 115,975 of them for 10 classes.
    """
    k = len(W)
    every = _partitions(k)
    removed = np.zeros(len(every))
    fits = np.ones(len(every), dtype=bool)
    for i, j in zip(*np.triu_indices(k, 1), strict=True):
        removed += W[i, j] * (every[:, i] == every[:, j])
    for first, *others in constraints.together:
        fits &= (every[:, others] == every[:, [first]]).all(axis=1)
    # A set of classes is a number, its members the digits in base 2.
    digits = 1 << np.arange(k)
    legal = np.array([m == 0 or constraints.allows(np.flatnonzero(m & digits).tolist()) for m in range(1 << k)])
    for group in range(k):
        fits &= legal[(every == group) @ digits]
    sizes = every.max(axis=1) + 1
    chosen = []
    for n in range(k, 0, -1):
        candidates = np.flatnonzero(fits & (sizes == n))
        if len(candidates):
            best = removed[candidates]
            chosen.append(every[candidates[int((best >= best.max() - TIE).argmax())]])
    return np.array(chosen)


def _partitions(k: int) -> npt.NDArray[np.int8]:
    """Every partition of k things as group numbers (restricted growth strings), in lexicographic order."""
    rows = np.zeros((1, 1), dtype=np.int8)
    for _ in range(1, k):
        choices = rows.max(axis=1) + 2  # join any of the groups so far, or open one
        start = np.repeat(np.cumsum(choices) - choices, choices)
        last = np.arange(int(choices.sum())) - start
        rows = np.column_stack([np.repeat(rows, choices, axis=0), last.astype(np.int8)])
    return rows
