"""Extra trees, grown by scikit-learn's builders without its checks of every tree.

Symbols: n rows, d features, K classes that occur. The trees are those of
:class:`sklearn.ensemble.ExtraTreesClassifier` with the same seed, to the last bit. On a few hundred
rows to make, clone and check its estimators takes five times as long as to grow the trees.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from sklearn.tree._criterion import Gini
from sklearn.tree._splitter import RandomSplitter
from sklearn.tree._tree import BestFirstTreeBuilder, DepthFirstTreeBuilder, Tree

from collidescope._checks import IntArray
from collidescope.learners.base import Float32, FloatArray

MAX_DEPTH = 40  #: trees are grown no deeper
LARGEST_SEED = 2**31 - 1


@dataclass(frozen=True)
class Growth:
    """How large trees grow."""

    leaf_size: int  #: rows of the smallest leaf
    most_leaves: int | None = None

    def builder(
        self, d: int, n_classes: IntArray, seed: int
    ) -> DepthFirstTreeBuilder | BestFirstTreeBuilder:
        """What grows a tree whose every cut is the best of √d random ones."""
        leaf_size = self.leaf_size
        fewest_to_split = max(2, 2 * leaf_size)
        least_weight = 0.0  # of a leaf
        least_gain = 0.0  # of a cut
        splitter = RandomSplitter(
            Gini(1, n_classes),
            max(1, math.isqrt(d)),
            leaf_size,
            least_weight,
            np.random.RandomState(seed),
            None,
        )
        limits = (splitter, fewest_to_split, leaf_size, least_weight, MAX_DEPTH)
        if self.most_leaves is None:
            return DepthFirstTreeBuilder(*limits, least_gain)
        return BestFirstTreeBuilder(*limits, self.most_leaves, least_gain)


@dataclass(frozen=True)
class LevelRows:
    """Rows whose features are numbers of intervals, with classes and weights."""

    levels: Float32
    codes: IntArray
    weights: FloatArray

    def take(self, rows: IntArray) -> LevelRows:
        return LevelRows(self.levels[rows], self.codes[rows], self.weights[rows])

    @cached_property
    def present(self) -> IntArray:
        """The classes that occur."""
        return np.unique(self.codes)

    @cached_property
    def own(self) -> IntArray:
        """The place of every row's class among those that occur."""
        return np.searchsorted(self.present, self.codes)

    def grown(
        self, growth: Growth, seed: int, weights: FloatArray | None = None
    ) -> Tree:
        """One tree, with other ``weights`` if given."""
        if weights is None:
            weights = self.weights
        d = self.levels.shape[1]
        n_classes = np.array([len(self.present)])
        tree = Tree(d, n_classes, 1)
        labels = self.own.astype(np.float64)[:, None]
        builder = growth.builder(d, n_classes, seed)
        builder.build(tree, self.levels, labels, weights)
        return tree

    def left_out_shares(self, growth: Growth, seeds: Sequence[int]) -> FloatArray:
        """Class shares (n, K) of every row, by the trees whose bootstrap sample lacks it.

        The mean over these trees; 0 where every sample has the row.
        """
        n = len(self.codes)
        total = np.zeros((n, len(self.present)))
        n_trees = np.zeros((n, 1))
        for seed, drawn in self._bootstrapped(seeds):
            tree = self.grown(growth, seed, drawn)
            left_out = np.flatnonzero(drawn == 0)
            total[left_out] += tree.predict(self.levels[left_out])
            n_trees[left_out] += 1
        return total / np.maximum(n_trees, 1)

    def _bootstrapped(self, seeds: Sequence[int]) -> Iterator[tuple[int, FloatArray]]:
        """Seeds, and how often each row is drawn with them."""
        n = len(self.codes)
        chances = self.weights / self.weights.sum()
        for seed in seeds:
            chosen = np.random.RandomState(seed).choice(n, n, p=chances)
            counts = np.bincount(chosen, minlength=n)
            yield seed, counts.astype(np.float64)


def seeds_of_trees(n_trees: int, seed: int) -> list[int]:
    """A seed for every tree; of more trees the first are the same."""
    generator = np.random.RandomState(int(seed) % 2**31)
    drawn: list[int] = generator.randint(LARGEST_SEED, size=n_trees).tolist()
    return drawn
