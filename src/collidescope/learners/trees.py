"""Extra trees and gradient-boosted trees, grown by scikit-learn and LightGBM and kept as small arrays.

Symbols: T trees with N nodes in all, of which I are inner ones and L leaves; K classes. Trees are written in pre-order:
the left child of node i is node i+1, the right one is ``right`` nodes further on, so pointers only lead forward and
every walk ends. A *cut* is a pair (feature, threshold), ``x[feature] <= threshold`` goes left; cuts are shared by all
nodes that use them. Leaves are numbered in the order in which they are written.
"""

from __future__ import annotations

import warnings
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from collidescope._checks import Array, IntArray
from collidescope.learners.base import (
    ArrayMember,
    Float32,
    FloatArray,
    Task,
    log_shares,
    log_softmax,
    some,
)

MAX_DEPTH = 40  #: steps of a walk; trees are grown no deeper, and files that claim more are refused
MOST_TREES, MOST_LEAVES = 4_000, 400_000  #: trees and leaves that a file may claim
CACHED = 16  #: blocks of rows are so much smaller than memory allows: walks within a cache take a quarter of the time


class Trees(ArrayMember):
    """A stack of trees; subclasses grow them, and say what a leaf means."""

    #: Of C cuts.
    feature: Annotated[Array, "u2 C"]
    threshold: Annotated[Float32, "f4 C"]
    #: Cut numbers of I inner nodes, and steps to the right child.
    cut: Annotated[Array, "u2|u4 I"]
    right: Annotated[Array, "u1|u2 I"]
    #: Nodes of every tree, and whether a node is an inner one, in bits.
    sizes: Annotated[Array, "u2 T"]
    inner: Annotated[Array, "u1 B"]
    n_classes: int

    def keep(self, trees: list[tuple[Array, Array, Array, Array]]) -> list[IntArray]:
        """Take over trees given as (feature, threshold, left child, right child) of nodes, the root first.

        A leaf has children -1. Returns the leaves of every tree in the order in which they are now numbered.
        """
        written, leaves = [], []
        for feature, threshold, left, right in trees:
            order, inner = _preorder(left, right), left >= 0
            # The inverse of order: where each node is written. Steps of leaves, whose children are -1, are not used.
            place = np.empty(len(order), dtype=np.int64)
            place[order] = np.arange(len(order))
            nodes = order[inner[order]]
            written.append(
                (feature[nodes], threshold[nodes], (place[right] - place)[nodes], inner[order])
            )
            leaves.append(order[~inner[order]])
        feature, threshold, steps, inner = (
            np.concatenate(parts) for parts in zip(*written, strict=True)
        )
        rounded = threshold.astype(
            np.float32
        )  # rows are float32: a threshold rounded down separates the same rows
        rounded = np.where(rounded > threshold, np.nextafter(rounded, np.float32(-np.inf)), rounded)
        cuts, cut = np.unique(np.column_stack([feature, rounded]), axis=0, return_inverse=True)
        self.feature, self.threshold = cuts[:, 0].astype(np.uint16), cuts[:, 1].astype(np.float32)
        self.cut = cut.ravel().astype(np.uint16 if len(cuts) <= 2**16 else np.uint32)
        self.right = steps.astype(np.uint8 if steps.max(initial=0) < 256 else np.uint16)
        self.sizes = np.asarray([len(left) for _, _, left, _ in trees], dtype=np.uint16)
        self.inner = np.packbits(inner)
        return leaves

    def lay_out(self) -> None:
        """Prepare the nodes for walking; raises ValueError on trees that do not close."""
        sizes = self.sizes.astype(np.int64)
        N = int(sizes.sum())
        inner = np.unpackbits(self.inner, count=N).astype(bool)
        if not (sizes > 0).all() or len(self.right) != int(inner.sum()):
            raise ValueError("the sizes of trees do not add up to their nodes")
        self._roots = np.cumsum(sizes) - sizes
        self._cut = np.zeros(N, dtype=np.int32)
        self._cut[inner] = self.cut
        # step[2i] leads to the left child, step[2i + 1] to the right one; a leaf stays where it is
        self._step = np.zeros(2 * N, dtype=np.int32)
        self._step[0::2] = inner
        self._step[1::2][inner] = self.right
        end = np.repeat(self._roots + sizes, sizes)
        if ((np.arange(N) + self._step.reshape(N, 2).max(axis=1)) >= end).any() or (
            self.right < 1
        ).any():
            raise ValueError("a tree points outside of itself")
        self._leaf = np.cumsum(~inner) - 1
        self.n_leaves = N - len(self.right)
        # Level by level. In a forged file nodes may share children: without np.unique every level could double.
        self.depth, nodes = 0, self._roots[inner[self._roots]]
        while len(nodes):
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise ValueError(f"trees must not be deeper than {MAX_DEPTH}")
            nodes = np.unique(np.concatenate([nodes + 1, nodes + self._step[2 * nodes + 1]]))
            nodes = nodes[inner[nodes]]

    def check(self, n_features: int, n_classes: int) -> None:
        n_nodes = int(self.sizes.astype(np.int64).sum())
        if (
            not 0 < len(self.sizes) <= MOST_TREES
            or n_nodes > 2 * MOST_LEAVES
            or len(self.inner) != -(-n_nodes // 8)
        ):
            raise ValueError(
                f"there must be 1 to {MOST_TREES} trees, up to {MOST_LEAVES} leaves, and all their nodes"
            )
        if (self.feature >= n_features).any() or (
            len(self.cut) and self.cut.max() >= len(self.feature)
        ):
            raise ValueError("a tree cuts a feature that is not there")
        self.lay_out()

    def leaves(self, x: Float32) -> IntArray:
        """Leaf numbers, (n, T), of rows (n, d)."""
        C = max(1, len(self.feature))
        # Every cut is decided once per row, (n, C): walks through T trees then look up answers and compare nothing.
        right = np.ones((len(x), C), dtype=np.int8)
        np.greater(
            x[:, self.feature], self.threshold, out=right[:, : len(self.feature)], casting="unsafe"
        )
        flat, base = right.ravel(), (np.arange(len(x), dtype=np.int64) * C)[:, None]
        node = np.tile(self._roots, (len(x), 1))
        for _ in range(self.depth):
            side = flat.take(base + self._cut.take(node))
            node += self._step.take(2 * node + side)
        return self._leaf.take(node)

    @property
    def row_numbers(self) -> int:
        return CACHED * (len(self.feature) // 2 + 6 * len(self.sizes) + self.n_classes)


LEVELS = 255  #: intervals of a feature
TREES, FEWEST_TREES, TOTAL_LEAVES = (
    100,
    25,
    40_000,
)  #: trees, the fewest of large ones; leaves of all together
PROBED_TREES = 4  #: trees that tell how many leaves there will be
LEAF_SIZES = (1, 4)  #: rows of the smallest leaf that are tried
#: Trees, and rows, with which the size of a leaf is chosen: with 120 rows 25 trees chose worse (Brier score +1.7%).
CHOOSING_TREES, CHOOSING_ROWS = 50, 2_000
LEFT_OUT = 0.37  #: share of the trees whose bootstrap sample lacks a given row, 1/e
MOST_ROWS = 50_000  #: rows that trees are grown on
PRIOR_TREES = 1.0  #: trees' worth of the priors in every posterior: no logarithm of zero


class Forest(Trees):
    """Extra trees: many random trees, their leaves' class shares averaged and shrunk towards the priors.

    Features are first replaced by the number of their interval between at most :data:`LEVELS` quantiles, so that random
    cuts fall where rows are and thresholds are shared between trees. The size of a leaf is chosen by the log loss of
    rows left out of bootstrap samples, then trees are grown on all rows.
    """

    #: Class shares of the leaves as multiples of 1/255: how many each leaf has, the shares, and their classes.
    share_count: Annotated[Array, "u1|u2 L"]
    share: Annotated[npt.NDArray[np.uint8], "u1 s"]
    share_class: Annotated[Array, "u1|u2 s"]
    priors: Annotated[Float32, "f4 K"]

    def learn(self, task: Task) -> None:
        from sklearn.ensemble import ExtraTreesClassifier

        generator = np.random.default_rng(task.seed)
        X, y, w = task.sample(MOST_ROWS, generator=generator)
        edges = [_edges(column) for column in X.T]
        numbers = [np.searchsorted(e, column) for e, column in zip(edges, X.T, strict=True)]
        levels = np.stack(numbers, axis=1).astype(np.float32)
        self.priors = task.priors.astype(np.float32)
        options: dict[str, Any] = {
            "max_depth": MAX_DEPTH,
            "random_state": int(task.seed) % 2**31,
            "n_jobs": 1,
        }
        options["min_samples_leaf"] = self._leaf_size(levels, y, w, options, generator)
        forest = ExtraTreesClassifier(PROBED_TREES, warm_start=True, **options)
        forest.fit(levels, y, sample_weight=w)
        per_tree = sum(tree.tree_.n_leaves for tree in forest.estimators_) / PROBED_TREES
        if per_tree * FEWEST_TREES > TOTAL_LEAVES:
            forest.set_params(max_leaf_nodes=TOTAL_LEAVES // FEWEST_TREES, warm_start=False)
        forest.set_params(n_estimators=int(np.clip(TOTAL_LEAVES / per_tree, FEWEST_TREES, TREES)))
        forest.fit(levels, y, sample_weight=w)
        self._take(forest, edges, task.n_classes)

    def _leaf_size(
        self, levels: Float32, y: IntArray, w: FloatArray, options: Any, generator: Any
    ) -> int:
        from sklearn.ensemble import ExtraTreesClassifier

        rows, losses = some(np.arange(len(y)), CHOOSING_ROWS, generator), []
        present = np.unique(y[rows])
        own = np.arange(len(rows)), np.searchsorted(present, y[rows])
        for leaf in LEAF_SIZES:
            bagged = {"min_samples_leaf": leaf, "bootstrap": True, "oob_score": True}
            trees = ExtraTreesClassifier(CHOOSING_TREES, **options, **bagged)
            with (
                warnings.catch_warnings()
            ):  # a row that every bootstrap sample drew gets the priors below
                warnings.simplefilter("ignore")
                trees.fit(levels[rows], y[rows], sample_weight=w[rows])
            p = np.nan_to_num(trees.oob_decision_function_.reshape(len(rows), len(present)))
            # As in score, with the trees that left the row out; not normalised, as all leaf sizes have the same sum.
            p = (p * LEFT_OUT * CHOOSING_TREES + PRIOR_TREES * self.priors[present])[own]
            losses.append(float(-(w[rows] * np.log(p)).sum()))
        return LEAF_SIZES[int(np.argmin(losses))]

    def _take(self, forest: Any, edges: list[FloatArray], K: int) -> None:
        every, first = (
            np.concatenate([*edges, [0.0]]),
            np.cumsum([0, *(len(each) for each in edges)]),
        )
        grown = [estimator.tree_ for estimator in forest.estimators_]
        # Thresholds are between two levels; those of leaves, feature and level -2, are not used.
        # level ≤ l is x ≤ edges[l], so a threshold between l and l + 1 is the edge number l.
        cuts = [
            np.where(t.feature < 0, -1, first[t.feature] + t.threshold.astype(np.intp))
            for t in grown
        ]
        pairs = zip(grown, cuts, strict=True)
        leaves = self.keep(
            [(t.feature, every[cut], t.children_left, t.children_right) for t, cut in pairs]
        )
        shares = []
        for tree, own in zip(grown, leaves, strict=True):
            full, value = np.zeros((len(own), K)), tree.value[own, 0]
            full[:, forest.classes_] = value / value.sum(axis=1, keepdims=True)
            shares.append(sparse.csr_array(np.round(full * 255).astype(np.uint8)))
        every_share, small = sparse.vstack(shares, "csr"), np.uint8 if K < 256 else np.uint16
        self.share, self.share_class = every_share.data, every_share.indices.astype(small)
        self.share_count = np.diff(every_share.indptr).astype(small)
        self.lay_out()

    def lay_out(self) -> None:
        super().lay_out()
        self.n_classes = len(self.priors)
        indptr = np.concatenate([[0], np.cumsum(self.share_count, dtype=np.int64)])
        if len(indptr) != self.n_leaves + 1 or indptr[-1] != len(self.share):
            raise ValueError("a forest must have the shares of all its leaves")
        stored = self.share.astype(np.float32), self.share_class.astype(np.int32), indptr
        self._shares = sparse.csr_array(stored, (self.n_leaves, self.n_classes))

    def check(self, n_features: int, n_classes: int) -> None:
        if (self.priors <= 0).any() or (
            len(self.share_class) and self.share_class.max() >= n_classes
        ):
            raise ValueError("a forest must have positive priors, and leaves of known classes")
        super().check(n_features, n_classes)

    def score(self, x: Float32) -> FloatArray:
        leaves = self.leaves(x)
        indptr = np.arange(0, leaves.size + 1, len(self.sizes))
        ones = np.ones(leaves.size, dtype=np.float32)
        reached = sparse.csr_array((ones, leaves.ravel(), indptr), shape=(len(x), self.n_leaves))
        return log_shares(
            (reached @ self._shares).toarray().astype(np.float64) / 255 + PRIOR_TREES * self.priors
        )


def _edges(column: Float32) -> FloatArray:
    """At most :data:`LEVELS` - 1 thresholds between the values of a column."""
    values = np.unique(column)
    if len(values) > LEVELS:
        values = np.unique(np.quantile(column, np.linspace(0, 1, LEVELS)).astype(np.float32))
    values = values.astype(np.float64)
    return (values[1:] + values[:-1]) / 2


def _preorder(left: IntArray, right: IntArray) -> IntArray:
    """Nodes with each left child right after its parent, the root first; children of leaves are -1."""
    order, stack, lefts, rights = list[int](), [0], left.tolist(), right.tolist()
    while stack:
        order.append(node := stack.pop())
        if lefts[node] >= 0:
            stack += [rights[node], lefts[node]]
    return np.asarray(order)


MAX_ROUNDS, MAX_TREES = 300, 2_000  #: rounds, and trees of all kinds, rounds and classes together
PARTS, PATIENCE = (
    6,
    20,
)  #: parts of the rows that are held out in turn; rounds without gain that end the growth
#: Step of a round: this many over the rounds that classes leave, within limits. Many rows afford larger steps.
RATE_ROUNDS, LEARNING_RATE, LARGE_RATE, FASTEST = 12.0, 0.1, 0.16, 0.3
#: Rows × trees per round: × parts held out in turn; and up to which all are trained on once the rounds are known. With
#: fewer rows than so many times the features, the features take the time.
CROSS_VALIDATED, REFITTED, ROWS_PER_FEATURE = 10_000, 30_000, 10
BLIND_ROUNDS = 30  #: rounds where nothing can be held out
#: Rows of more features (pixels) are wide: a tree sees a sample of as many of them.
WIDE = 300
#: Bins of all features together, and of each within limits: with few rows finding the best of them is most of the
#: time. On 300 columns 63 bins take less than half of it, and are no worse.
ALL_BINS, FEWEST_BINS, MOST_BINS = 19_000, 63, 255


class Boosting(Trees):
    """Gradient-boosted trees of two kinds, whose logits are averaged: R rounds of one tree per class (one for two).

    Small ones on samples of the rows, and larger ones with random cuts. Each kind holds out other rows, so that
    together they learn from every row; rounds are chosen by the log loss of those rows, and groups stay together.
    """

    kinds: tuple[dict[str, Any], ...] = (
        {
            "num_leaves": 8,
            "max_depth": 4,
            "feature_fraction": 0.7,
            "bagging_fraction": 0.7,
            "bagging_freq": 1,
        },
        {"num_leaves": 20, "max_depth": 7, "feature_fraction": 0.7, "extra_trees": True},
    )
    leaf_share, leaf_rows = (
        0.02,
        (2, 10),
    )  #: rows of the smallest leaf: a share of the rows, within limits
    values: Annotated[
        npt.NDArray[np.float16], "f2 L"
    ]  #: of leaves; half precision changes a step by < 0.001

    def learn(self, task: Task) -> None:
        n, d = task.X.shape
        K = self.n_classes = task.n_classes
        most_rounds = max(1, min(MAX_ROUNDS, MAX_TREES // (len(self.kinds) * (1 if K == 2 else K))))
        slowest = LEARNING_RATE if n * K <= REFITTED else LARGE_RATE
        rate = float(np.clip(RATE_ROUNDS / most_rounds, slowest, FASTEST))
        leaf = int(np.clip(self.leaf_share * n, *self.leaf_rows))
        common = (
            {"objective": "binary", "num_class": 1}
            if K == 2
            else {"objective": "multiclass", "num_class": K}
        )
        common |= {
            "learning_rate": rate,
            "min_data_in_leaf": leaf,
            "min_sum_hessian_in_leaf": 1e-3,
            "lambda_l2": 1.0,
        }
        common |= {
            "use_missing": False,
            "deterministic": True,
            "force_col_wise": True,
            "seed": int(task.seed) % 2**31,
        }
        common |= {"num_threads": 1, "verbosity": -1}
        common["max_bin"] = int(np.clip(ALL_BINS // d, FEWEST_BINS, MOST_BINS))
        wide = {"feature_fraction": 0.7 * WIDE / d} if d > WIDE else {}
        trees = []
        for number, kind in enumerate(self.kinds):
            text = _boost(
                task, task.inner_parts(PARTS, task.seed + number), common | kind | wide, most_rounds
            )
            trees += [
                _read(block) for block in text.partition("end of trees")[0].split("\nTree=")[1:]
            ]
        leaves = self.keep([tree for tree, _ in trees])
        # A tree of L leaves has L - 1 inner nodes, after which _read puts leaf 0.
        values = [
            values[own - len(values) + 1] for (_, values), own in zip(trees, leaves, strict=True)
        ]
        self.values = (np.concatenate(values) / len(self.kinds)).astype(np.float16)
        self.lay_out()

    def score(self, x: Float32) -> FloatArray:
        K, values = self.n_classes, self.values.astype(np.float32)
        f = (
            values[self.leaves(x)]
            .reshape(len(x), -1, 1 if K == 2 else K)
            .sum(axis=1, dtype=np.float64)
        )
        return log_softmax(np.column_stack([np.zeros(len(x)), f]) if K == 2 else f)

    def check(self, n_features: int, n_classes: int) -> None:
        super().check(n_features, n_classes)
        self.n_classes = n_classes
        if len(self.values) != self.n_leaves or (n_classes > 2 and len(self.sizes) % n_classes):
            raise ValueError(
                f"boosted trees must have a value per leaf and come in rounds of {n_classes}"
            )


def _boost(task: Task, part: IntArray, options: dict[str, Any], most: int) -> str:
    """LightGBM's text of the trees. Few rows are cross-validated, then all trained on; of many some stay held out."""
    import lightgbm

    X, codes, w = np.asarray(task.X, dtype=np.float32), task.codes, task.weights

    def data(rows: Any = slice(None)) -> Any:
        return lightgbm.Dataset(
            X[rows], codes[rows], weight=w[rows], params={"verbosity": -1, "num_threads": 1}
        )

    stop = lightgbm.early_stopping(PATIENCE, verbose=False)
    work = len(codes) * options["num_class"]
    folds = [
        (np.flatnonzero(part != k), np.flatnonzero(part == k)) for k in range(int(part.max()) + 1)
    ]
    if not folds:  # a single group: nothing to hold out
        booster = lightgbm.train(options, data(), BLIND_ROUNDS)
    elif work <= REFITTED:
        cost = options["num_class"] * max(X.shape[0], ROWS_PER_FEATURE * X.shape[1])
        used = folds[: max(1, CROSS_VALIDATED // cost)]
        curve = lightgbm.cv(options, data(), most, folds=iter(used), callbacks=[stop])
        booster = lightgbm.train(options, data(), len(next(iter(curve.values()))))  # type: ignore[arg-type]
    else:
        rows, held_out = folds[0]
        train = data(rows)
        valid = train.create_valid(X[held_out], codes[held_out], weight=w[held_out])
        booster = lightgbm.train(options, train, most, valid_sets=[valid], callbacks=[stop])
    return str(booster.model_to_string(num_iteration=max(booster.best_iteration, 0) or None))


def _read(block: str) -> tuple[tuple[Array, Array, Array, Array], Array]:
    """A tree for :meth:`Trees.keep` and the values of its leaves; in LightGBM's text a child -1 - k is leaf k."""
    lines = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
    threshold, values = (
        np.array(lines[name].split(), dtype=np.float64) for name in ("threshold", "leaf_value")
    )
    fields = ("split_feature", "left_child", "right_child")
    feature, *children = (np.array(lines[name].split(), dtype=np.intp) for name in fields)
    leaf = np.full(len(values), -1)
    left, right = (
        np.append(np.where(child >= 0, child, len(child) - 1 - child), leaf) for child in children
    )
    return (feature, threshold, left, right), values
