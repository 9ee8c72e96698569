"""Extra trees and gradient-boosted trees, grown by scikit-learn and LightGBM, kept as small arrays.

Symbols: T trees with N nodes in all, of which I are inner ones and L leaves; K classes. Trees are
written in pre-order: the left child of node i is node i+1, the right one is ``right`` nodes further
on, so pointers only lead forward and every walk ends. A *cut* is a pair (feature, threshold),
``x[feature] <= threshold`` goes left; cuts are shared by all nodes that use them. Leaves are
numbered in the order in which they are written.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
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
    log_shares,
    log_softmax,
    some,
)

MAX_DEPTH = 40  #: trees are grown no deeper

# Trees as arrays


@dataclass(frozen=True)
class Grown:
    """A tree as it was grown: feature, threshold and children of every node, the root first.

    A leaf has children -1; what it has as feature and threshold is not used.
    """

    feature: Array
    threshold: Array
    left: IntArray
    right: IntArray

    @cached_property
    def preorder(self) -> IntArray:
        """Nodes with each left child right after its parent, the root first."""
        lefts = self.left.tolist()
        rights = self.right.tolist()
        order: list[int] = []
        stack = [0]
        while stack:
            node = stack.pop()
            order.append(node)
            if lefts[node] >= 0:
                stack += [rights[node], lefts[node]]
        return np.asarray(order)

    @property
    def inner(self) -> npt.NDArray[np.bool_]:
        """Whether a node is an inner one, in pre-order."""
        return np.asarray(self.left[self.preorder] >= 0)

    @property
    def leaves(self) -> IntArray:
        """Leaves in pre-order."""
        return self.preorder[~self.inner]

    @property
    def steps(self) -> IntArray:
        """Of inner nodes in pre-order, how much further on the right child is written."""
        place = np.empty(len(self.preorder), dtype=np.int64)
        place[self.preorder] = np.arange(len(place))
        inner = self.preorder[self.inner]
        return np.asarray(place[self.right[inner]] - place[inner])


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
        n_nodes = self.n_nodes
        few = 0 < len(self.sizes) <= most_trees and n_nodes <= 2 * most_leaves
        if not few or len(self.inner) != -(-n_nodes // 8):
            wanted = f"1 to {most_trees} trees, up to {most_leaves} leaves, and all their nodes"
            raise ValueError(f"there must be {wanted}")
        beyond = len(self.cut) > 0 and self.cut.max() >= len(self.feature)
        if beyond or (self.feature >= self.n_features).any():
            raise ValueError("a tree cuts a feature that is not there")
        self._check_steps()

    def _check_steps(self) -> None:
        """Children lie further on in the same tree, so that every walk ends."""
        sizes = self.sizes.astype(np.int64)
        inner = self.is_inner
        if inner.sum() != len(self.right) or (sizes < 1).any():
            raise ValueError("the sizes of trees do not add up to their nodes")
        ends = np.repeat(np.cumsum(sizes), sizes)
        nodes = np.flatnonzero(inner)
        left = nodes + 1
        right = nodes + self.right
        furthest = np.maximum(left, right)
        if (furthest >= ends[nodes]).any() or (right <= nodes).any():
            raise ValueError("a tree points outside of itself")

    def __getstate__(self) -> dict[str, Any]:
        """A pickle leaves out what can be made again: the walkers are many times as large."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def of(cls, trees: Sequence[Grown], n_features: int) -> Trees:
        """Trees as they were grown, in few bytes."""
        inner = [tree.preorder[tree.inner] for tree in trees]
        pairs = list(zip(trees, inner, strict=True))
        feature = np.concatenate([tree.feature[nodes] for tree, nodes in pairs])
        threshold = np.concatenate([tree.threshold[nodes] for tree, nodes in pairs])
        cuts = np.column_stack([feature, _rounded_down(threshold)])
        distinct, cut = np.unique(cuts, axis=0, return_inverse=True)
        steps = np.concatenate([tree.steps for tree in trees])
        small_cut: Any = np.uint32
        if len(distinct) <= 2**16:
            small_cut = np.uint16
        small_step: Any = np.uint16
        if steps.max(initial=0) < 256:
            small_step = np.uint8
        return cls(
            feature=distinct[:, 0].astype(np.uint16),
            threshold=distinct[:, 1].astype(np.float32),
            cut=cut.ravel().astype(small_cut),
            right=steps.astype(small_step),
            sizes=np.asarray([len(tree.left) for tree in trees], dtype=np.uint16),
            inner=np.packbits(np.concatenate([tree.inner for tree in trees])),
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
        return np.unpackbits(self.inner, count=self.n_nodes).astype(bool)

    @cached_property
    def walkers(self) -> list[Tree]:
        """scikit-learn's trees, which find the leaf of a row."""
        inner = self.is_inner
        sizes = self.sizes.tolist()
        ends = np.cumsum(sizes)
        place = np.concatenate([np.arange(size) for size in sizes])
        nodes = np.zeros(self.n_nodes, NODE_DTYPE)
        for child in ("left_child", "right_child"):
            nodes[child] = TREE_LEAF
        nodes["left_child"][inner] = place[inner] + 1
        nodes["right_child"][inner] = place[inner] + self.right
        nodes["feature"][inner] = self.feature[self.cut]
        nodes["threshold"][inner] = self.threshold[self.cut]
        per_tree = np.split(nodes, ends[:-1])
        return [_walker(own, self.n_features) for own in per_tree]

    @cached_property
    def leaf_numbers(self) -> list[IntArray]:
        """Of every tree, the number of the leaf that each node is."""
        ends = np.cumsum(self.sizes, dtype=np.int64)
        numbers = np.cumsum(~self.is_inner) - 1
        return np.split(numbers, ends[:-1])

    def leaves(self, x: Float32) -> IntArray:
        """Leaf numbers, (n, T), of rows (n, d)."""
        found = np.empty((len(x), len(self.sizes)), np.int64)
        each = zip(self.walkers, self.leaf_numbers, strict=True)
        for column, (walker, numbers) in enumerate(each):
            found[:, column] = numbers[walker.apply(x)]
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
    """As float32, of which rows are: a threshold rounded down separates the same rows."""
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
        unknown = len(self.share_class) > 0 and self.share_class.max() >= len(
            self.priors
        )
        if unknown or (self.priors <= 0).any():
            raise ValueError(
                "a forest must have positive priors, and leaves of known classes"
            )
        stored = int(self.share_count.astype(np.int64).sum())
        if len(self.share_count) != self.trees.n_leaves or stored != len(self.share):
            raise ValueError("a forest must have the shares of all its leaves")

    @cached_property
    def shares(self) -> Any:
        """(L, K), sparse: 255 times the class shares of the leaves."""
        ends = np.cumsum(self.share_count, dtype=np.int64)
        indptr = np.concatenate([[0], ends])
        values = self.share.astype(np.float32)
        classes = self.share_class.astype(np.int32)
        shape = (self.trees.n_leaves, len(self.priors))
        return sparse.csr_array((values, classes, indptr), shape)

    @property
    def row_numbers(self) -> int:
        return self.trees.row_numbers(len(self.priors))

    def score(self, x: Float32) -> FloatArray:
        leaves = self.trees.leaves(x)
        n, T = leaves.shape
        ones = np.ones(leaves.size, dtype=np.float32)
        indptr = np.arange(0, leaves.size + 1, T)
        shape = (n, self.trees.n_leaves)
        reached = sparse.csr_array((ones, leaves.ravel(), indptr), shape)
        total = (reached @ self.shares).toarray()
        shares = total.astype(np.float64) / 255
        return log_shares(shares + self.priors)  # the priors count as much as a tree


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
        chosen = len(self.leaf_sizes) * self.choosing_trees * min(n, self.choosing_rows)
        grown = self.n_trees * min(n, self.most_rows)
        return 0.15 + 5e-8 * (chosen + grown) * (math.sqrt(d) + 0.1 * k)

    def learn(self, task: Task) -> FittedForest:
        generator = np.random.default_rng(task.seed)
        X, y, w = task.sample(self.most_rows, generator=generator)
        edges = [_edges(column, self.levels) for column in X.T]
        levels = np.empty(X.shape, dtype=np.float32)
        for j, own in enumerate(edges):
            levels[:, j] = np.searchsorted(own, X[:, j])
        priors = task.priors.astype(np.float32)
        leaf_size = self._leaf_size(levels, y, w, priors, task.seed, generator)
        grown = self._grown(levels, y, w, leaf_size, task.seed)
        return _kept_forest(self.name, grown, edges, priors)

    def _grown(
        self, levels: Float32, y: IntArray, w: FloatArray, leaf_size: int, seed: int
    ) -> Any:
        """scikit-learn's trees: fewer, or smaller ones, where they would have too many leaves."""
        probed = 4
        forest = _extra_trees(probed, leaf_size, seed)
        forest.set_params(warm_start=True)
        forest.fit(levels, y, sample_weight=w)
        per_tree = sum(tree.tree_.n_leaves for tree in forest.estimators_) / probed
        if per_tree * self.fewest_trees > self.total_leaves:
            most = self.total_leaves // self.fewest_trees
            forest.set_params(max_leaf_nodes=most, warm_start=False)
        wanted = np.clip(self.total_leaves / per_tree, self.fewest_trees, self.n_trees)
        forest.set_params(n_estimators=int(wanted))
        return forest.fit(levels, y, sample_weight=w)

    def _leaf_size(
        self,
        levels: Float32,
        y: IntArray,
        w: FloatArray,
        priors: Float32,
        seed: int,
        generator: np.random.Generator,
    ) -> int:
        """The size with the lowest log loss of rows scored by trees that did not see them."""
        rows = some(np.arange(len(y)), self.choosing_rows, generator)
        present = np.unique(y[rows])
        own = (np.arange(len(rows)), np.searchsorted(present, y[rows]))
        left_out = (
            0.37  # share of the trees whose bootstrap sample lacks a given row, 1/e
        )
        losses = []
        for leaf_size in self.leaf_sizes:
            trees = _extra_trees(self.choosing_trees, leaf_size, seed)
            trees.set_params(bootstrap=True, oob_score=True)
            with warnings.catch_warnings():
                # a row that every bootstrap sample drew gets the priors below
                warnings.simplefilter("ignore")
                trees.fit(levels[rows], y[rows], sample_weight=w[rows])
            p = trees.oob_decision_function_.reshape(len(rows), len(present))
            # As in score, with the trees that left the row out; not normalised, as all leaf sizes
            # have the same sum.
            counts = np.nan_to_num(p) * left_out * self.choosing_trees + priors[present]
            losses.append(float(-(w[rows] * np.log(counts[own])).sum()))
        return self.leaf_sizes[int(np.argmin(losses))]


def _extra_trees(n_trees: int, leaf_size: int, seed: int) -> Any:
    from sklearn.ensemble import ExtraTreesClassifier

    return ExtraTreesClassifier(
        n_trees,
        max_depth=MAX_DEPTH,
        min_samples_leaf=leaf_size,
        random_state=int(seed) % 2**31,
        n_jobs=1,
    )


def _kept_forest(
    name: str, forest: Any, edges: list[FloatArray], priors: Float32
) -> FittedForest:
    """scikit-learn's trees on levels as our trees on features."""
    every_edge = np.concatenate([*edges, [0.0]])
    first = np.cumsum([0, *(len(own) for own in edges)])
    grown = []
    shares = []
    for estimator in forest.estimators_:
        tree = estimator.tree_
        # level ≤ l is x ≤ edges[l], so a threshold between l and l + 1 is the edge number l.
        edge = first[tree.feature] + tree.threshold.astype(np.intp)
        threshold = every_edge[np.where(tree.feature < 0, -1, edge)]
        own = Grown(tree.feature, threshold, tree.children_left, tree.children_right)
        grown.append(own)
        value = tree.value[own.leaves, 0]
        full = np.zeros((len(value), len(priors)))
        full[:, forest.classes_] = value / value.sum(axis=1, keepdims=True)
        shares.append(sparse.csr_array(np.round(full * 255).astype(np.uint8)))
    every_share = sparse.vstack(shares, "csr")
    small: Any = np.uint16
    if len(priors) < 256:
        small = np.uint8
    return FittedForest(
        name,
        Trees.of(grown, len(edges)),
        share_count=np.diff(every_share.indptr).astype(small),
        share=every_share.data,
        share_class=every_share.indices.astype(small),
        priors=priors,
    )


def _edges(column: Float32, levels: int) -> FloatArray:
    """Fewer than ``levels`` thresholds between the values of a column."""
    values = np.unique(column)
    if len(values) > levels:
        quantiles = np.quantile(column, np.linspace(0, 1, levels))
        values = np.unique(quantiles.astype(np.float32))
    values = values.astype(np.float64)
    return (values[1:] + values[:-1]) / 2


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
        odd = K > 2 and len(self.trees.sizes) % K > 0
        if odd or len(self.values) != self.trees.n_leaves:
            raise ValueError(
                f"boosted trees must have a value per leaf and come in rounds of {K}"
            )

    @property
    def row_numbers(self) -> int:
        return self.trees.row_numbers(self.n_classes)

    def score(self, x: Float32) -> FloatArray:
        leaves = self.trees.leaves(x)
        values = self.values.astype(np.float32)[leaves]
        if self.n_classes == 2:
            log_odds = values.sum(axis=1, dtype=np.float64)
            zeros = np.zeros(len(x))
            return log_softmax(np.column_stack([zeros, log_odds]))
        rounds = values.reshape(len(x), -1, self.n_classes)
        logits = rounds.sum(axis=1, dtype=np.float64)
        return log_softmax(logits)


@dataclass(frozen=True)
class TreeShape:
    """How the trees of one kind are grown."""

    num_leaves: int
    max_depth: int
    feature_fraction: float = 1.0  #: of the features, that each tree sees
    bagging_fraction: float = 1.0  #: of the rows, that each tree sees
    extra_trees: bool = False  #: whether cuts are random
    lambda_l2: float = 1.0


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
        kinds = len(self._kinds(n, k))
        rounds = 0.5 * self._most_rounds(k, kinds)  # growth ends early, mostly
        if not self._many(n, k):
            rounds *= 2  # once to find their number
        features = min(d, self.wide)
        per_tree = n * (5e-8 + 3e-10 * features) + 2e-6 * features
        return rounds * kinds * _trees_per_round(k) * per_tree

    def _many(self, n: int, n_classes: int) -> bool:
        return n > self.few_rows or n * _trees_per_round(n_classes) > self.refitted

    def _kinds(self, n: int, n_classes: int) -> tuple[TreeShape, ...]:
        if self._many(n, n_classes):
            return self.large_kinds
        return self.kinds

    def _most_rounds(self, n_classes: int, n_kinds: int) -> int:
        trees = n_kinds * _trees_per_round(n_classes)
        return max(1, min(self.max_rounds, self.max_trees // trees))

    def learn(self, task: Task) -> FittedBoosting:
        trees: list[BoostedTree] = []
        kinds = self._kinds(len(task.codes), task.n_classes)
        most = self._most_rounds(task.n_classes, len(kinds))
        rows = BoostingRows(
            np.asarray(task.X, dtype=np.float32), task.codes, task.weights
        )
        for number, kind in enumerate(kinds):
            part = task.inner_parts(self.parts, task.seed + number)
            options = self._options(task, kind, most)
            text = self._boosted(rows, part, options, most)
            trees += _read_trees(text)
        values = np.concatenate([tree.leaf_values for tree in trees])
        values = values / len(kinds)
        stack = Trees.of([tree.tree for tree in trees], task.X.shape[1])
        return FittedBoosting(
            self.name, stack, values.astype(np.float16), task.n_classes
        )

    def _options(self, task: Task, kind: TreeShape, most_rounds: int) -> dict[str, Any]:
        """LightGBM's settings."""
        n, d = task.X.shape
        K = task.n_classes
        slowest, fastest = self.rates
        if self._many(n, K) or n * K > self.refitted:
            slowest = self.large_rate
        rate = np.clip(self.total_rate / most_rounds, slowest, fastest)
        objective = "multiclass"
        if K == 2:
            objective = "binary"
        feature_fraction = kind.feature_fraction
        if d > self.wide:
            feature_fraction = 0.7 * self.wide / d
        return {
            "objective": objective,
            "num_class": _trees_per_round(K),
            "learning_rate": float(rate),
            "min_data_in_leaf": int(np.clip(self.leaf_share * n, *self.leaf_rows)),
            "min_sum_hessian_in_leaf": 1e-3,
            "max_bin": int(np.clip(self.all_bins // d, *self.bins)),
            "num_leaves": kind.num_leaves,
            "max_depth": kind.max_depth,
            "feature_fraction": feature_fraction,
            "bagging_fraction": kind.bagging_fraction,
            "bagging_freq": int(kind.bagging_fraction < 1),
            "extra_trees": kind.extra_trees,
            "lambda_l2": kind.lambda_l2,
            "use_missing": False,
            "deterministic": True,
            "force_col_wise": True,
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
            booster = lightgbm.train(options, rows.binned, num_boost_round=30)
        elif not self._many(len(rows.codes), options["num_class"]):
            rounds = self._cross_validated_rounds(rows, part, options, most)
            booster = lightgbm.train(options, rows.binned, rounds)
        else:
            stop = lightgbm.early_stopping(self.large_patience, verbose=False)
            train = rows.dataset(np.flatnonzero(part != 0))
            held_out = rows.held_out(train, np.flatnonzero(part == 0))
            booster = lightgbm.train(
                options, train, most, valid_sets=[held_out], callbacks=[stop]
            )
        return str(
            booster.model_to_string(
                num_iteration=max(booster.best_iteration, 0) or None
            )
        )

    def _cross_validated_rounds(
        self, rows: BoostingRows, part: IntArray, options: dict[str, Any], most: int
    ) -> int:
        """Rounds with the lowest held-out loss; fewer parts are held out where it takes long."""
        import lightgbm

        affordable = 10_000  # rows × trees per round × parts
        rows_per_feature = (
            10  # with fewer rows than so many times the features, those take long
        )
        n, d = rows.X.shape
        cost = options["num_class"] * max(n, rows_per_feature * d)
        n_parts = min(max(1, affordable // cost), int(part.max()) + 1)
        folds = [
            (np.flatnonzero(part != k), np.flatnonzero(part == k))
            for k in range(n_parts)
        ]
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
            self.X[rows], self.codes[rows], weight=self.weights[rows]
        )


def _read_trees(text: str) -> list[BoostedTree]:
    """The trees of LightGBM's text."""
    body, _, _ = text.partition("end of trees")
    _, *texts = body.split("\nTree=")
    return [BoostedTree.read(block) for block in texts]


@dataclass(frozen=True)
class BoostedTree:
    """A tree of LightGBM's, and the values of its leaves in pre-order."""

    tree: Grown
    leaf_values: FloatArray = field(repr=False)

    @classmethod
    def read(cls, block: str) -> BoostedTree:
        """From LightGBM's text, in which a child -1 - k is leaf k."""
        lines = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)

        def numbers(name: str, dtype: Any) -> npt.NDArray[Any]:
            return np.array(lines[name].split(), dtype=dtype)

        values = numbers("leaf_value", np.float64)
        n_inner = len(values) - 1  # after these nodes come the leaves
        none = np.full(len(values), -1)
        children = []
        for name in ("left_child", "right_child"):
            child = numbers(name, np.intp)
            node = np.where(child >= 0, child, n_inner - 1 - child)
            children.append(np.append(node, none))
        feature = numbers("split_feature", np.intp)
        tree = Grown(feature, numbers("threshold", np.float64), *children)
        return cls(tree, values[tree.leaves - n_inner])
