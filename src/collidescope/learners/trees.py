"""Extra trees and gradient-boosted trees, grown by scikit-learn and LightGBM, kept as small arrays.

Symbols: T trees with N nodes in all, of which I are inner ones and L leaves; K classes. Trees are
written in pre-order: the left child of node i is node i+1, the right one is ``right`` nodes further
on, so pointers only lead forward and every walk ends. A *cut* is a pair (feature, threshold),
``x[feature] <= threshold`` goes left; cuts are shared by all nodes that use them. Leaves are
numbered in the order in which they are written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.tree._tree import NODE_DTYPE, TREE_LEAF, Tree

from collidescope._checks import Array, IntArray
from collidescope.learners.base import (
    ArrayMember,
    Fitted,
    FittedArrays,
    Float32,
    FloatArray,
    Task,
    double,
    log_shares,
    log_softmax,
    of_class,
    single,
    some,
)
from collidescope.learners.growing import (
    MAX_DEPTH,
    Growth,
    LevelRows,
    seeds_of_trees,
)

# Trees as arrays


@dataclass(frozen=True)
class Grown:
    """Trees as they were grown: feature, threshold and children of every node, tree after tree.

    Children are numbers of nodes among those of all trees; the first node of a tree is its root. A
    leaf has children -1; what it has as feature and threshold is not used.
    """

    feature: Array
    threshold: Array
    left: IntArray
    right: IntArray
    sizes: IntArray  #: nodes of every tree

    @cached_property
    def levels(self) -> list[IntArray]:
        """Inner nodes of the same depth, the roots first."""
        nodes = np.cumsum(self.sizes) - self.sizes
        found = []
        while len(nodes):
            inner = nodes[self.left[nodes] >= 0]
            found.append(inner)
            children = [self.left[inner], self.right[inner]]
            nodes = np.concatenate(children)
        return found

    @cached_property
    def place(self) -> IntArray:
        """The place of every node in pre-order, tree after tree."""
        below = np.ones(len(self.left), dtype=np.int64)  # nodes of the subtree
        for nodes in reversed(self.levels):
            below[nodes] += below[self.left[nodes]]
            below[nodes] += below[self.right[nodes]]
        ends = np.cumsum(self.sizes)
        place = np.empty(len(below), dtype=np.int64)
        roots = ends - self.sizes
        place[roots] = roots
        for nodes in self.levels:
            left = self.left[nodes]
            first = place[nodes] + 1
            place[left] = first
            place[self.right[nodes]] = first + below[left]
        return place

    @cached_property
    def preorder(self) -> IntArray:
        """Nodes with each left child right after its parent."""
        order = np.empty_like(self.place)
        order[self.place] = np.arange(len(order))
        return order

    @cached_property
    def inner(self) -> npt.NDArray[np.bool_]:
        """Whether a node is an inner one, in pre-order."""
        return np.asarray(self.left[self.preorder] >= 0)

    @property
    def leaves(self) -> IntArray:
        """Leaves in pre-order."""
        is_leaf = ~self.inner
        return self.preorder[is_leaf]

    @property
    def cuts(self) -> FloatArray:
        """(I, 2): feature and threshold of inner nodes in pre-order."""
        nodes = self.preorder[self.inner]
        threshold = _rounded_down(self.threshold[nodes])
        return np.column_stack([self.feature[nodes], threshold])

    @property
    def steps(self) -> IntArray:
        """The distance from each inner node to its right child, in pre-order."""
        nodes = self.preorder[self.inner]
        right = self.right[nodes]
        steps = self.place[right] - self.place[nodes]
        return np.asarray(steps)


@dataclass(frozen=True)
class Trees:
    """A stack of trees."""

    #: Of C cuts.
    feature: Annotated[Array, "u2 C"]
    threshold: Annotated[Float32, "f4 C"]
    #: Cut numbers of I inner nodes, and steps to the right child.
    cut: Annotated[Array, "u2|u4 I"]
    right: Annotated[Array, "u1|u2 I"]
    #: Nodes of every tree, and whether a node is an inner one, in bits.
    sizes: Annotated[Array, "u2 T"]
    inner: Annotated[Array, "u1 bytes"]
    n_features: Annotated[int, "d"]

    def __post_init__(self) -> None:
        most_trees = 4_000
        most_leaves = 400_000
        n_trees = len(self.sizes)
        n_nodes = self.n_nodes
        few_trees = 0 < n_trees <= most_trees
        few_leaves = n_nodes <= 2 * most_leaves
        n_bytes = math.ceil(n_nodes / 8)
        all_nodes = len(self.inner) == n_bytes
        if not (few_trees and few_leaves and all_nodes):
            few = f"1 to {most_trees} trees, up to {most_leaves} leaves"
            raise ValueError(f"there must be {few}, and all their nodes")
        last = int(self.cut.max(initial=0))
        n_cuts = len(self.feature)
        unknown_cut = len(self.cut) > 0 and last >= n_cuts
        unknown_feature = self.feature >= self.n_features
        if unknown_cut or unknown_feature.any():
            raise ValueError("a tree cuts a feature that is not there")
        self._check_steps()

    def _check_steps(self) -> None:
        """Children lie further on in the same tree, so that every walk ends."""
        nodes = np.flatnonzero(self.is_inner)
        empty = self.sizes < 1
        n_inner = len(nodes)
        if n_inner != len(self.right) or empty.any():
            raise ValueError("the sizes of trees do not add up to their nodes")
        left = nodes + 1
        right = nodes + self.right
        furthest = np.maximum(left, right)
        every_end = np.repeat(self.ends, self.sizes)
        own_end = every_end[nodes]
        outside = furthest >= own_end
        backwards = right <= nodes
        if outside.any() or backwards.any():
            raise ValueError("a tree points outside of itself")

    def __getstate__(self) -> dict[str, Any]:
        """A pickle leaves out what can be made again: the walkers are many times as large."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def of(cls, grown: Grown, n_features: int) -> Trees:
        """Trees as they were grown, in few bytes."""
        distinct, number = np.unique(grown.cuts, axis=0, return_inverse=True)
        cut = number.ravel().astype(np.uint32)
        if len(distinct) <= 2**16:
            cut = cut.astype(np.uint16)
        right = grown.steps.astype(np.uint16)
        longest = right.max(initial=0)
        if longest < 256:
            right = right.astype(np.uint8)
        feature = distinct[:, 0]
        threshold = distinct[:, 1]
        return cls(
            feature=feature.astype(np.uint16),
            threshold=threshold.astype(np.float32),
            cut=cut,
            right=right,
            sizes=grown.sizes.astype(np.uint16),
            inner=np.packbits(grown.inner),
            n_features=n_features,
        )

    @property
    def n_nodes(self) -> int:
        return int(self.sizes.sum(dtype=np.int64))

    @property
    def n_leaves(self) -> int:
        return self.n_nodes - len(self.right)

    @property
    def is_inner(self) -> npt.NDArray[np.bool_]:
        """Whether a node is an inner one."""
        bits = np.unpackbits(self.inner, count=self.n_nodes)
        return bits.astype(bool)

    @cached_property
    def walkers(self) -> list[Tree]:
        """scikit-learn's trees, which find the leaf of a row."""
        inner = np.flatnonzero(self.is_inner)
        sizes = self.sizes
        ends = self.ends
        starts = ends - sizes
        own_root = np.repeat(starts, sizes)[inner]
        place = inner - own_root  # within its tree
        nodes = np.zeros(self.n_nodes, NODE_DTYPE)
        nodes["left_child"] = TREE_LEAF
        nodes["right_child"] = TREE_LEAF
        left = nodes["left_child"]
        left[inner] = place + 1
        right = nodes["right_child"]
        right[inner] = place + self.right
        cut = self.cut
        own_feature = self.feature[cut]
        own_threshold = self.threshold[cut]
        feature = nodes["feature"]
        feature[inner] = own_feature
        threshold = nodes["threshold"]
        threshold[inner] = own_threshold
        per_tree = np.split(nodes, ends[:-1])
        return [_walker(own, self.n_features) for own in per_tree]

    @property
    def ends(self) -> IntArray:
        """Nodes up to the end of every tree."""
        return np.cumsum(self.sizes, dtype=np.int64)

    @cached_property
    def leaf_numbers(self) -> list[IntArray]:
        """The leaf numbers of the nodes of every tree."""
        is_leaf = ~self.is_inner
        return np.split(np.cumsum(is_leaf) - 1, self.ends[:-1])

    def leaves(self, x: Float32) -> IntArray:
        """Leaf numbers, (n, T), of rows (n, d)."""
        n_trees = len(self.sizes)
        shape = (len(x), n_trees)
        found = np.empty(shape, np.int64)
        for number in range(n_trees):
            walker = self.walkers[number]
            nodes = walker.apply(x)
            reached = self.leaf_numbers[number][nodes]
            found[:, number] = reached
        return found

    def row_numbers(self, n_classes: int) -> int:
        """Numbers of a row on its walks."""
        return 4 * len(self.sizes) + n_classes


def _walker(nodes: npt.NDArray[np.void], n_features: int) -> Tree:
    """One of scikit-learn's trees; what its nodes predict is not used."""
    one_class = np.ones(1, np.intp)
    tree = Tree(n_features, one_class, 1)
    state = {
        "max_depth": MAX_DEPTH,
        "node_count": len(nodes),
        "nodes": nodes,
        "values": np.zeros((len(nodes), 1, 1)),
    }
    tree.__setstate__(state)
    return tree


def _rounded_down(threshold: FloatArray) -> Float32:
    """Thresholds as float32, like the rows: rounded down they separate the same rows."""
    rounded = threshold.astype(np.float32)
    below = np.nextafter(rounded, np.float32(-np.inf))
    return np.where(rounded > threshold, below, rounded)


# Extra trees


@dataclass(frozen=True)
class FittedForest(FittedArrays):
    """Random trees, whose leaves hold class shares as multiples of 1/255."""

    trees: Trees
    #: How many shares each leaf has, the shares, and their classes.
    share_count: Annotated[Array, "u1|u2 L"]
    share: Annotated[npt.NDArray[np.uint8], "u1 s"]
    share_class: Annotated[Array, "u1|u2 s"]
    priors: Annotated[Float32, "f4 K"]

    def __post_init__(self) -> None:
        n_classes = len(self.priors)
        unknown = self.share_class >= n_classes
        absent = self.priors <= 0
        if unknown.any() or absent.any():
            wanted = "positive priors, and leaves of known classes"
            raise ValueError(f"a forest must have {wanted}")
        per_leaf = self.share_count
        n_shares = int(per_leaf.sum(dtype=np.int64))
        every_leaf = len(per_leaf) == self.trees.n_leaves
        every_share = len(self.share) == n_shares
        if not (every_leaf and every_share):
            raise ValueError("a forest must have the shares of all its leaves")

    @cached_property
    def shares(self) -> Any:
        """(L, K), sparse: 255 times the class shares of the leaves."""
        per_leaf = self.share_count
        n_leaves = len(per_leaf)
        n_ends = n_leaves + 1
        indptr = np.zeros(n_ends, np.int64)
        indptr[1:] = np.cumsum(per_leaf)
        values = single(self.share)
        classes = self.share_class.astype(np.int32)
        n_classes = len(self.priors)
        shape = (n_leaves, n_classes)
        return sparse.csr_array((values, classes, indptr), shape)

    @property
    def row_numbers(self) -> int:
        return self.trees.row_numbers(len(self.priors))

    def score(self, x: Float32) -> FloatArray:
        leaves = self.trees.leaves(x)
        n, T = leaves.shape
        n_walks = n * T
        ones = np.ones(n_walks, dtype=np.float32)
        rows = np.arange(n + 1)
        indptr = rows * T
        n_leaves = self.trees.n_leaves
        entries = (ones, leaves.ravel(), indptr)
        shape = (n, n_leaves)
        reached = sparse.csr_array(entries, shape)
        dense = double((reached @ self.shares).toarray())
        shares = dense / 255
        # The priors count as much as a tree.
        counts = shares + self.priors
        return log_shares(counts)


@dataclass(frozen=True)
class Forest(ArrayMember):
    """Extra trees: many random trees, their leaves' class shares averaged, shrunk to the priors.

    Features are first replaced by the number of their interval between at most ``levels``
    quantiles, so that random cuts fall where rows are and thresholds are shared between trees. The
    size of a leaf is chosen by the log loss of rows left out of bootstrap samples, then trees are
    grown on all rows.
    """

    levels: int = 255  #: intervals of a feature
    n_trees: int = 100
    fewest_trees: int = 25  #: of large ones
    total_leaves: int = 40_000  #: of all trees together
    leaf_sizes: tuple[int, ...] = (1, 4)  #: rows of the smallest leaf that are tried
    #: trees that choose the size of a leaf: with 120 rows 25 chose worse (Brier score +1.7%)
    choosing_trees: int = 50
    choosing_rows: int = 2_000
    most_rows: int = 50_000  #: rows that trees are grown on

    learned: ClassVar[type[Fitted]] = FittedForest

    def cost(self, n: int, d: int, k: int) -> float:
        n_sizes = len(self.leaf_sizes)
        choosing_trees = n_sizes * self.choosing_trees
        few = min(n, self.choosing_rows)
        rows = min(n, self.most_rows)
        chosen = choosing_trees * few
        grown = self.n_trees * rows
        walks = 5e-8 * (chosen + grown)
        per_row = math.sqrt(d) + 0.1 * k
        seconds = walks * per_row
        return 0.15 + seconds

    def learn(self, task: Task) -> FittedForest:
        generator = np.random.default_rng(task.seed)
        X, y, w = task.sample(self.most_rows, generator=generator)
        n_levels = self.levels
        edges = [_edges(column, n_levels) for column in X.T]
        levels = _levels(X, edges)
        rows = LevelRows(levels, y, w)
        priors = single(task.priors)
        n_rows = len(y)
        every = np.arange(n_rows)
        chosen = some(every, self.choosing_rows, generator)
        few = rows.take(chosen)
        seed = task.seed
        leaf_size = self._leaf_size(few, priors, seed)
        grown = self._grown(rows, leaf_size, seed)
        return _kept_forest(self.name, grown, rows.present, edges, priors)

    def _grown(self, rows: LevelRows, leaf_size: int, seed: int) -> list[Tree]:
        """The trees: fewer, or smaller ones, where they would have too many leaves."""
        probed = 4
        growth = Growth(leaf_size)
        seeds = seeds_of_trees(self.n_trees, seed)
        first = [rows.grown(growth, own) for own in seeds[:probed]]
        per_tree = sum(tree.n_leaves for tree in first) / probed
        if per_tree * self.fewest_trees > self.total_leaves:
            most = self.total_leaves // self.fewest_trees
            growth = Growth(leaf_size, most)
            first = []
        wanted = self.total_leaves / per_tree
        n_trees = int(np.clip(wanted, self.fewest_trees, self.n_trees))
        others = seeds[len(first) : n_trees]
        return first + [rows.grown(growth, own) for own in others]

    def _leaf_size(self, rows: LevelRows, priors: Float32, seed: int) -> int:
        """The size with the lowest log loss of rows scored by trees that did not see them."""
        left_out = 0.37  # share of trees whose bootstrap sample lacks a given row, 1/e
        seeds = seeds_of_trees(self.choosing_trees, seed)
        losses = []
        for leaf_size in self.leaf_sizes:
            p = rows.left_out_shares(Growth(leaf_size), seeds)
            # As in score, with the trees that left the row out; not normalised, as all leaf sizes
            # have the same sum. A row that every bootstrap sample drew gets the priors.
            counts = p * left_out * self.choosing_trees
            counts += priors[rows.present]
            likelihoods = of_class(counts, rows.own)
            weighted = rows.weights * np.log(likelihoods)
            losses.append(-weighted.sum())
        best = int(np.argmin(losses))
        return self.leaf_sizes[best]


def _levels(X: Float32, edges: list[FloatArray]) -> Float32:
    """The number of the interval between the edges in which each value lies."""
    levels = np.empty(X.shape, np.float32)
    for j, own in enumerate(edges):
        levels[:, j] = np.searchsorted(own, X[:, j])
    return levels


def _kept_forest(
    name: str,
    trees: list[Tree],
    present: IntArray,
    edges: list[FloatArray],
    priors: Float32,
) -> FittedForest:
    """scikit-learn's trees on levels as our trees on features; ``present`` are their classes."""
    thresholds = [_threshold(tree, edges) for tree in trees]
    sizes = np.array([tree.node_count for tree in trees])
    grown = Grown(
        feature=np.concatenate([tree.feature for tree in trees]),
        threshold=np.concatenate(thresholds),
        left=_numbered([tree.children_left for tree in trees], sizes),
        right=_numbered([tree.children_right for tree in trees], sizes),
        sizes=sizes,
    )
    values = np.concatenate([tree.value[:, 0] for tree in trees])
    value = values[grown.leaves]
    total = value.sum(axis=1, keepdims=True)
    full = np.zeros((len(value), len(priors)))
    full[:, present] = value / total
    shares = sparse.csr_array(np.round(full * 255).astype(np.uint8))
    small: Any = np.uint16
    if len(priors) < 256:
        small = np.uint8
    return FittedForest(
        name,
        Trees.of(grown, len(edges)),
        share_count=np.diff(shares.indptr).astype(small),
        share=shares.data,
        share_class=shares.indices.astype(small),
        priors=priors,
    )


def _numbered(children: Sequence[IntArray], sizes: IntArray) -> IntArray:
    """Children by their numbers among the nodes of all trees; those of leaves stay -1."""
    own = np.concatenate(children)
    starts = np.cumsum(sizes) - sizes
    return np.where(own < 0, -1, own + np.repeat(starts, sizes))


def _threshold(tree: Tree, edges: list[FloatArray]) -> FloatArray:
    """Thresholds of the nodes of a tree on levels, in units of the features.

    Level ≤ l is x ≤ edges[l], so a threshold between l and l + 1 is the edge number l.
    """
    feature = tree.feature
    sizes = [len(own) for own in edges]
    first = np.cumsum([0, *sizes])
    of_leaf = [0.0]
    every_edge = np.concatenate([*edges, of_leaf])
    level = tree.threshold
    number = level.astype(np.intp)
    first_edge = first[feature]
    edge = first_edge + number
    is_leaf = feature < 0
    return every_edge[np.where(is_leaf, -1, edge)]


def _edges(column: Float32, levels: int) -> FloatArray:
    """Fewer than ``levels`` thresholds between the values of a column."""
    values = np.unique(column)
    if len(values) > levels:
        shares = np.linspace(0, 1, levels)
        quantiles = np.quantile(column, shares)
        values = np.unique(single(quantiles))
    exact = double(values)
    lower = exact[:-1]
    upper = exact[1:]
    return (upper + lower) / 2


# Gradient-boosted trees


@dataclass(frozen=True)
class FittedBoosting(FittedArrays):
    """Boosted trees, whose leaves hold logits: rounds of one tree per class (one for two)."""

    trees: Trees
    #: of leaves; half precision changes a step by < 0.001
    values: Annotated[npt.NDArray[np.float16], "f2 L"]
    n_classes: Annotated[int, "K"]

    def __post_init__(self) -> None:
        K = self.n_classes
        per_round = _trees_per_round(K)
        n_trees = len(self.trees.sizes)
        n_odd = n_trees % per_round
        n_leaves = self.trees.n_leaves
        if n_odd or len(self.values) != n_leaves:
            wanted = f"have a value per leaf and come in rounds of {K}"
            raise ValueError(f"boosted trees must {wanted}")

    @property
    def row_numbers(self) -> int:
        return 4 + 2 * self.n_classes

    def score(self, x: Float32) -> FloatArray:
        per_round = _trees_per_round(self.n_classes)
        totals = np.zeros((per_round, len(x)))
        pairs = zip(self._of_nodes(), self.trees.walkers, strict=True)
        for number, (values, walker) in enumerate(pairs):
            # Sums of half precision are exact in double precision, whatever their order.
            totals[number % per_round] += values[walker.apply(x)]
        if per_round == 1:
            zeros = np.zeros(len(x))
            totals = np.stack([zeros, totals[0]])
        return log_softmax(np.ascontiguousarray(totals.T))

    def _of_nodes(self) -> list[FloatArray]:
        """The logits of the nodes of every tree; those of inner nodes are not used."""
        values = double(self.values)
        leaf_number = np.cumsum(~self.trees.is_inner) - 1
        return np.split(values[leaf_number], self.trees.ends[:-1])


@dataclass(frozen=True)
class TreeShape:
    """How the trees of one kind are grown."""

    num_leaves: int
    max_depth: int
    feature_fraction: float = 1.0  #: of the features, that each tree sees
    bagging_fraction: float = 1.0  #: of the rows, that each tree sees
    extra_trees: bool = False  #: whether cuts are random
    lambda_l2: float = 1.0

    def larger(self, growth: float) -> TreeShape:
        """The shape with ``growth`` times the leaves."""
        leaves = round(self.num_leaves * growth)
        deeper = math.ceil(math.log2(growth))
        return replace(self, num_leaves=leaves, max_depth=self.max_depth + deeper)


@dataclass(frozen=True)
class Boosting(ArrayMember):
    """Gradient-boosted trees of a few kinds, whose logits are averaged.

    Small ones on samples of the rows, and larger ones with random cuts. Each kind holds out other
    rows, so that together they learn from every row; rounds are chosen by the log loss of those
    rows, and groups stay together. Many rows get one kind, between the two.
    """

    kinds: tuple[TreeShape, ...] = (
        TreeShape(
            num_leaves=8, max_depth=4, feature_fraction=0.7, bagging_fraction=0.7
        ),
        TreeShape(num_leaves=20, max_depth=7, feature_fraction=0.7, extra_trees=True),
    )
    large_kinds: tuple[TreeShape, ...] = (
        TreeShape(
            num_leaves=24, max_depth=8, feature_fraction=0.5, bagging_fraction=0.8
        ),
    )
    leaf_share: float = 0.02  #: rows of the smallest leaf, as a share of all
    leaf_rows: tuple[int, int] = (2, 10)  #: within these limits
    max_rounds: int = 300
    max_trees: int = 2_000  #: of all kinds, rounds and classes together
    parts: int = 6  #: parts of the rows that are held out in turn
    patience: int = 20  #: rounds without gain that end the growth
    large_patience: int = 10
    #: Rows beyond which trees of three classes or more grow with the rows, up to a factor: as many
    #: small ones would not learn all that so many rows tell.
    growing_rows: int = 24_000
    most_growth: float = 4.0
    #: sum of the steps of all rounds, which classes leave few of; many rows afford larger steps
    total_rate: float = 12.0
    rates: tuple[float, float] = (0.1, 0.3)
    large_rate: float = 0.16
    #: rows × trees per round, and rows, up to which all rows are trained on once the rounds are
    #: known; more are many
    refitted: int = 30_000
    few_rows: int = 10_000
    #: rows of more features (pixels) are wide: a tree sees a sample of as many of them
    wide: int = 300
    #: Of all features together: with few rows finding the best cut is most of the time. On 300
    #: columns 63 bins take less than half of it, and are no worse.
    all_bins: int = 19_000
    bins: tuple[int, int] = (63, 255)  #: of each feature

    #: features × trees of a round beyond which it does not take part by itself: on embeddings with
    #: many classes it costs most and counts for nothing
    most_work: int = 6_000

    learned: ClassVar[type[Fitted]] = FittedBoosting

    def takes_part(self, n: int, d: int, k: int) -> bool:
        work = min(d, self.wide) * _trees_per_round(k)
        return work <= self.most_work and super().takes_part(n, d, k)

    def cost(self, n: int, d: int, k: int) -> float:
        n_kinds = len(self._kinds(n, k))
        # Growth ends early, mostly.
        rounds = 0.5 * self._most_rounds(n, k, n_kinds)
        if not self._many(n, k):
            rounds *= 2  # once to find their number
        features = min(d, self.wide)
        per_row = 5e-8 + 3e-10 * features
        of_rows = n * per_row
        of_features = 2e-6 * features
        per_tree = of_rows + of_features
        per_round = _trees_per_round(k)
        trees = rounds * n_kinds * per_round
        return trees * per_tree

    def _many(self, n: int, n_classes: int) -> bool:
        work = n * _trees_per_round(n_classes)
        return n > self.few_rows or work > self.refitted

    def _kinds(self, n: int, n_classes: int) -> tuple[TreeShape, ...]:
        if not self._many(n, n_classes):
            return self.kinds
        growth = self._growth(n, n_classes)
        return tuple(kind.larger(growth) for kind in self.large_kinds)

    def _growth(self, n: int, n_classes: int) -> float:
        """The factor by which trees are larger, and fewer."""
        if n_classes == 2:
            return 1.0
        growth = n / self.growing_rows
        return min(max(growth, 1.0), self.most_growth)

    def _most_rounds(self, n: int, n_classes: int, n_kinds: int) -> int:
        per_round = n_kinds * _trees_per_round(n_classes)
        affordable = min(self.max_rounds, self.max_trees // per_round)
        growth = self._growth(n, n_classes)
        return max(1, int(affordable / growth))

    def learn(self, task: Task) -> FittedBoosting:
        n, d = task.X.shape
        K = task.n_classes
        kinds = self._kinds(n, K)
        n_kinds = len(kinds)
        most = self._most_rounds(n, K, n_kinds)
        X = single(task.X)
        rows = BoostingRows(X, task.codes, task.weights)
        texts = []
        for number, kind in enumerate(kinds):
            seed = task.seed + number
            part = task.inner_parts(self.parts, seed)
            options = self._options(task, kind, most)
            text = self._boosted(rows, part, options, most)
            body, _, _ = text.partition("end of trees")
            texts.append(body)
        grown, values = _read_trees("".join(texts))
        mean = values / n_kinds
        return FittedBoosting(
            name=self.name,
            trees=Trees.of(grown, d),
            values=mean.astype(np.float16),
            n_classes=K,
        )

    def _options(self, task: Task, kind: TreeShape, most_rounds: int) -> dict[str, Any]:
        """LightGBM's settings."""
        n, d = task.X.shape
        K = task.n_classes
        slowest, fastest = self.rates
        if self._many(n, K) or n * K > self.refitted:
            growth = self._growth(n, K)
            slowest = min(self.large_rate * math.sqrt(growth), fastest)
        rate = self.total_rate / most_rounds
        leaf_rows = self.leaf_share * n
        bins = self.all_bins // d
        objective = "multiclass"
        if K == 2:
            objective = "binary"
        feature_fraction = kind.feature_fraction
        if d > self.wide:
            feature_fraction = 0.7 * self.wide / d
        return {
            "objective": objective,
            "num_class": _trees_per_round(K),
            "learning_rate": float(np.clip(rate, slowest, fastest)),
            "min_data_in_leaf": int(np.clip(leaf_rows, *self.leaf_rows)),
            "min_sum_hessian_in_leaf": 1e-3,
            "max_bin": int(np.clip(bins, *self.bins)),
            "num_leaves": kind.num_leaves,
            "max_depth": kind.max_depth,
            "feature_fraction": feature_fraction,
            "bagging_fraction": kind.bagging_fraction,
            "bagging_freq": int(kind.bagging_fraction < 1),
            "extra_trees": kind.extra_trees,
            "lambda_l2": kind.lambda_l2,
            "use_missing": False,
            "deterministic": True,
            # The same trees either way; by rows faster where trees see all features.
            "force_row_wise": feature_fraction == 1,
            "force_col_wise": feature_fraction < 1,
            "seed": int(task.seed) % 2**31,
            "num_threads": 1,
            "verbosity": -1,
        }

    def _boosted(
        self, rows: BoostingRows, part: IntArray, options: dict[str, Any], most: int
    ) -> str:
        """LightGBM's text of the trees.

        Few rows are cross-validated, then all trained on; of many some stay held out.
        """
        import lightgbm

        if part.max() < 0:  # a single group: nothing to hold out
            booster = _trained(options, rows.binned, 30)
        elif not self._many(len(rows.codes), options["num_class"]):
            rounds = self._cross_validated_rounds(rows, part, options, most)
            booster = _trained(options, rows.binned, rounds)
        else:
            stop = lightgbm.early_stopping(self.large_patience, verbose=False)
            others = np.flatnonzero(part != 0)
            first = np.flatnonzero(part == 0)
            train = rows.dataset(others)
            held_out = rows.held_out(train, first)
            booster = _trained(
                options, train, most, valid_sets=[held_out], callbacks=[stop]
            )
        best = max(booster.best_iteration, 0)
        return str(booster.model_to_string(num_iteration=best or None))

    def _cross_validated_rounds(
        self, rows: BoostingRows, part: IntArray, options: dict[str, Any], most: int
    ) -> int:
        """Rounds with the lowest held-out loss; fewer parts are held out where it takes long."""
        import lightgbm

        affordable = 10_000  # rows × trees per round × parts
        n, d = rows.X.shape
        as_long = 10 * d  # with fewer rows the features take as long as so many
        counted = max(n, as_long)
        cost = options["num_class"] * counted
        known = int(part.max()) + 1
        paid = affordable // cost
        n_parts = min(max(1, paid), known)
        folds = []
        for number in range(n_parts):
            train = np.flatnonzero(part != number)
            held_out = np.flatnonzero(part == number)
            fold = (train, held_out)
            folds.append(fold)
        stop = lightgbm.early_stopping(self.patience, verbose=False)
        curve = lightgbm.cv(
            options, rows.binned, most, folds=iter(folds), callbacks=[stop]
        )
        losses: Any = next(iter(curve.values()))
        return len(losses)


@dataclass(frozen=True)
class PlainBoosting(Boosting):
    """Larger boosted trees with large leaves and nothing random, of few features.

    Rules that hold exactly are learned so.
    """

    most_features: float = 300
    kinds: tuple[TreeShape, ...] = (
        TreeShape(num_leaves=31, max_depth=12, lambda_l2=0.0),
    )
    large_kinds: tuple[TreeShape, ...] = kinds
    large_patience: int = 20
    leaf_share: float = 0.2
    leaf_rows: tuple[int, int] = (5, 20)


def _trained(options: dict[str, Any], train: Any, rounds: int, **others: Any) -> Any:
    """LightGBM's booster, which is not written as text and read again at the end."""
    import lightgbm

    return lightgbm.train(options, train, rounds, keep_training_booster=True, **others)


def _trees_per_round(n_classes: int) -> int:
    if n_classes == 2:
        return 1
    return n_classes


@dataclass(frozen=True)
class BoostingRows:
    """Rows for LightGBM."""

    X: Float32
    codes: IntArray
    weights: FloatArray

    @cached_property
    def binned(self) -> Any:
        """All rows: sorted into bins once for all kinds of trees, whose bins are the same."""
        return self.dataset()

    def dataset(self, rows: Any = slice(None)) -> Any:
        import lightgbm

        return lightgbm.Dataset(
            self.X[rows],
            self.codes[rows],
            weight=self.weights[rows],
            params={"verbosity": -1, "num_threads": 1},
        )

    def held_out(self, train: Any, rows: IntArray) -> Any:
        """Rows with the bins of ``train``."""
        return train.create_valid(
            self.X[rows],
            self.codes[rows],
            weight=self.weights[rows],
        )


def _read_trees(text: str) -> tuple[Grown, FloatArray]:
    """Trees from LightGBM's text, and the values of their leaves in pre-order.

    A tree has its leaves after its inner nodes here; a child -1 - k is its leaf k.
    """
    lines_of_leaves = _lines(text, "leaf_value")
    n_leaves = np.array([line.count(" ") + 1 for line in lines_of_leaves])
    sizes = 2 * n_leaves - 1
    starts = np.cumsum(sizes) - sizes
    n_inner = n_leaves - 1
    first_inner = np.cumsum(n_inner) - n_inner
    first_leaf = np.cumsum(n_leaves) - n_leaves
    # Of every inner node and of every leaf, its number among the nodes of all trees.
    inner = np.arange(n_inner.sum()) + np.repeat(starts - first_inner, n_inner)
    leaves = np.arange(n_leaves.sum())
    leaves += np.repeat(starts + n_inner - first_leaf, n_leaves)
    own_start = np.repeat(starts, n_inner)
    own_leaves = own_start + np.repeat(n_inner, n_inner)
    n_nodes = int(sizes.sum())

    def of_nodes(values: FloatArray, nodes: IntArray, others: float) -> Array:
        """Values of some nodes, among those of all."""
        every = np.full(n_nodes, others, dtype=np.float64)
        every[nodes] = values
        return every

    def children(name: str) -> IntArray:
        child = _numbers(_lines(text, name))
        number = np.where(child >= 0, own_start + child, own_leaves - 1 - child)
        return of_nodes(number, inner, -1).astype(np.intp)

    grown = Grown(
        feature=of_nodes(_numbers(_lines(text, "split_feature")), inner, 0),
        threshold=of_nodes(_numbers(_lines(text, "threshold")), inner, 0),
        left=children("left_child"),
        right=children("right_child"),
        sizes=sizes,
    )
    values = of_nodes(_numbers(lines_of_leaves), leaves, 0)
    return grown, values[grown.leaves]


def _lines(text: str, name: str) -> list[str]:
    """What LightGBM's text says after ``name=``, one line for every tree."""
    return re.findall(rf"\n{name}=(.*)", text)


def _numbers(lines: Sequence[str]) -> FloatArray:
    """The numbers of all lines."""
    words = " ".join(lines).split()
    return np.array(words, dtype=np.float64)
