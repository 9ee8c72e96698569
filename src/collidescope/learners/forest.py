"""Extra trees: many random trees, their leaves' class shares averaged and shrunk towards the priors.

Symbols: T trees, K classes. Features are first replaced by the number of their interval between at most
:data:`LEVELS` quantiles, so that random cuts fall where rows are and thresholds are shared between trees. The size of a
leaf is chosen by the log loss of rows left out of bootstrap samples, then trees are grown on all rows.
"""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy import sparse

from collidescope.learners._shared import LOG_FLOOR, by_blocks, checked, class_shares, one_thread, weights_of
from collidescope.learners._trees import MAX_DEPTH, TreeStack, build
from collidescope.learners.base import FloatArray, Member, Task, Tree

#: Intervals of a feature.
LEVELS = 255
#: Trees, and the fewest of them where trees are large; leaves of all trees together.
TREES, FEWEST_TREES, TOTAL_LEAVES = 100, 25, 40_000
#: Trees that tell how many leaves there will be.
PROBED_TREES = 4
#: Rows of the smallest leaf that are tried.
LEAF_SIZES = (1, 4)
#: Trees, and rows, with which the size of a leaf is chosen.
CHOOSING_TREES, CHOOSING_ROWS = 50, 2_000
#: Share of the trees whose bootstrap sample lacks a given row, 1/e.
LEFT_OUT = 0.37
#: Rows that trees are grown on.
MOST_ROWS = 50_000
#: Trees' worth of the priors in every posterior: no logarithm of zero.
PRIOR_TREES = 1.0


class Forest(Member):
    """Extra trees."""

    name = "forest"

    stack: TreeStack
    #: Class shares of the leaves, (leaves, K) sparse, as multiples of 1/255.
    shares: Any
    priors: npt.NDArray[np.float32]

    @classmethod
    def takes_part(cls, n: int, d: int, k: int) -> bool:
        return True

    def fit(self, task: Task) -> Self:
        from sklearn.ensemble import ExtraTreesClassifier

        generator, w = np.random.default_rng(task.seed), weights_of(task)
        used = np.flatnonzero(w > 0)
        if len(used) > MOST_ROWS:
            used = np.sort(generator.choice(used, MOST_ROWS, replace=False))
        X, y, w = np.asarray(task.X[used], dtype=np.float32), task.codes[used], w[used]
        edges = [_edges(column) for column in X.T]
        levels = np.stack([np.searchsorted(e, column) for e, column in zip(edges, X.T, strict=True)], axis=1)
        levels = levels.astype(np.float32)
        self.priors = class_shares(task).astype(np.float32)
        K = task.n_classes
        seed = int(task.seed) % 2**31
        with one_thread():
            leaf = self._leaf_size(levels, y, w, seed, generator)
            options = {"min_samples_leaf": leaf, "max_depth": MAX_DEPTH, "max_leaf_nodes": None}
            forest = ExtraTreesClassifier(PROBED_TREES, random_state=seed, n_jobs=1, warm_start=True, **options)
            forest.fit(levels, y, sample_weight=w)
            per_tree = sum(tree.tree_.n_leaves for tree in forest.estimators_) / PROBED_TREES
            if per_tree * FEWEST_TREES > TOTAL_LEAVES:
                forest.set_params(max_leaf_nodes=TOTAL_LEAVES // FEWEST_TREES, warm_start=False)
            forest.set_params(n_estimators=int(np.clip(TOTAL_LEAVES / per_tree, FEWEST_TREES, TREES)))
            forest.fit(levels, y, sample_weight=w)
        self._take(forest, edges, K)
        return self

    def _leaf_size(
        self, levels: npt.NDArray[np.float32], y: npt.NDArray[Any], w: FloatArray, seed: int, generator: Any
    ) -> int:
        from sklearn.ensemble import ExtraTreesClassifier

        rows = np.arange(len(y))
        if len(rows) > CHOOSING_ROWS:
            rows = np.sort(generator.choice(rows, CHOOSING_ROWS, replace=False))
        losses = []
        present = np.unique(y[rows])
        own = np.arange(len(rows)), np.searchsorted(present, y[rows])
        for leaf in LEAF_SIZES:
            trees = ExtraTreesClassifier(
                CHOOSING_TREES,
                min_samples_leaf=leaf,
                max_depth=MAX_DEPTH,
                bootstrap=True,
                oob_score=True,
                random_state=seed,
                n_jobs=1,
            )
            with warnings.catch_warnings():  # a row that every bootstrap sample drew gets the priors below
                warnings.simplefilter("ignore")
                trees.fit(levels[rows], y[rows], sample_weight=w[rows])
            p = np.nan_to_num(trees.oob_decision_function_.reshape(len(rows), len(present)))
            p = (p * LEFT_OUT * CHOOSING_TREES + PRIOR_TREES * self.priors[present])[own]
            losses.append(float(-(w[rows] * np.log(p)).sum()))
        return LEAF_SIZES[int(np.argmin(losses))]

    def _take(self, forest: Any, edges: list[FloatArray], K: int) -> None:
        trees, shares = [], []
        for estimator in forest.estimators_:
            tree = estimator.tree_
            feature, level, left, right = tree.feature, tree.threshold, tree.children_left, tree.children_right
            inner = left >= 0
            # scikit-learn writes trees grown depth first in pre-order; grown best first, they are put in order here.
            order = _preorder(left, right)
            place = np.empty(len(order), dtype=np.int64)
            place[order] = np.arange(len(order))
            threshold = np.zeros(len(order))
            threshold[inner] = [edges[f][int(t)] for f, t in zip(feature[inner], level[inner], strict=True)]
            step = np.where(inner, place[right] - place, 0)
            trees.append((np.where(inner, feature, -1)[order], threshold[order], step[order]))
            value = tree.value[order][~inner[order], 0]
            full = np.zeros((len(value), K))
            full[:, forest.classes_] = value / value.sum(axis=1, keepdims=True)
            shares.append(sparse.csr_array(np.round(full * 255).astype(np.uint8)))
        self.stack, self.shares = build(trees), sparse.vstack(shares, format="csr")

    def log_posteriors(self, X: Any) -> FloatArray:
        K, T = len(self.priors), len(self.stack.sizes)
        shares = self.shares.astype(np.float32)

        def score(x: npt.NDArray[np.float32]) -> FloatArray:
            leaves = self.stack.leaves(x)
            indptr = np.arange(0, leaves.size + 1, T)
            reached = sparse.csr_array(
                (np.ones(leaves.size, dtype=np.float32), leaves.ravel(), indptr), shape=(len(x), shares.shape[0])
            )
            total = (reached @ shares).toarray().astype(np.float64) / 255 + PRIOR_TREES * self.priors
            out = np.log(total / total.sum(axis=1, keepdims=True))
            return np.asarray(np.maximum(out, LOG_FLOOR), dtype=np.float64)

        return by_blocks(score, X, self.stack.numbers_per_row + K, K)

    def export(self) -> Tree:
        small = np.uint8 if len(self.priors) < 256 else np.uint16
        return {
            **self.stack.export(),
            "share": self.shares.data,
            "share_class": self.shares.indices.astype(small),
            "share_count": np.diff(self.shares.indptr).astype(small),
            "priors": self.priors,
        }

    @classmethod
    def restore(cls, tree: Tree, n_features: int, n_classes: int) -> Self:
        member = cls()
        member.stack = TreeStack.restore(tree, n_features)
        member.priors = checked(tree, "priors", (np.float32,), (n_classes,))
        count = checked(tree, "share_count", (np.uint8, np.uint16), (member.stack.n_leaves,)).astype(np.int64)
        share = checked(tree, "share", (np.uint8,), (int(count.sum()),))
        classes = checked(tree, "share_class", (np.uint8, np.uint16), share.shape)
        if (member.priors <= 0).any() or (len(classes) and classes.max() >= n_classes):
            raise ValueError("a forest must have positive priors, and leaves of known classes")
        indptr = np.concatenate([[0], np.cumsum(count)])
        member.shares = sparse.csr_array((share, classes.astype(np.int32), indptr), shape=(len(count), n_classes))
        return member


def _edges(column: npt.NDArray[np.float32]) -> FloatArray:
    """At most :data:`LEVELS` - 1 thresholds between the values of a column."""
    values = np.unique(column)
    if len(values) > LEVELS:
        values = np.unique(np.quantile(column, np.linspace(0, 1, LEVELS)).astype(np.float32))
    values = values.astype(np.float64)
    return (values[1:] + values[:-1]) / 2


def _preorder(left: npt.NDArray[np.intp], right: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Nodes with each left child right after its parent."""
    if (left[left >= 0] == np.flatnonzero(left >= 0) + 1).all():
        return np.arange(len(left))
    order, stack, lefts, rights = [], [0], left.tolist(), right.tolist()
    while stack:
        node = stack.pop()
        order.append(node)
        if lefts[node] >= 0:
            stack += [rights[node], lefts[node]]
    return np.asarray(order, dtype=np.intp)
