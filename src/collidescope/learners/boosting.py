"""Gradient-boosted trees, grown by LightGBM and kept as arrays.

Symbols: K classes, R rounds of one tree per class (one tree for two classes). Rounds are chosen by the log loss of an
inner held-out part that respects groups.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from collidescope.learners._shared import by_blocks, checked, class_shares, inner_parts, log_softmax, weights_of
from collidescope.learners._trees import TreeStack, build
from collidescope.learners.base import FloatArray, Member, Task, Tree

#: Two kinds of trees, whose logits are averaged: small ones on samples of the rows, and larger ones with random cuts.
#: Each is stopped on its own held-out part, so that together they learn from every row.
KINDS: tuple[dict[str, Any], ...] = (
    {"num_leaves": 8, "max_depth": 4, "feature_fraction": 0.7, "bagging_fraction": 0.7, "bagging_freq": 1},
    {"num_leaves": 20, "max_depth": 7, "feature_fraction": 0.7, "extra_trees": True},
)
#: Rounds, and trees of all kinds, rounds and classes together.
MAX_ROUNDS, MAX_TREES = 300, 2_000
#: One part of so many is held out to choose the number of rounds; rounds without gain that end the growth.
PARTS, PATIENCE = 6, 10
#: Step of a round: this many over the rounds that classes leave, within limits.
RATE_ROUNDS, LEARNING_RATE, FASTEST = 12.0, 0.08, 0.3
#: Rounds where nothing can be held out.
BLIND_ROUNDS = 30


class Boosting(Member):
    """Gradient-boosted trees."""

    name = "trees"

    stack: TreeStack
    values: npt.NDArray[np.float32]
    log_priors: npt.NDArray[np.float32]

    @classmethod
    def takes_part(cls, n: int, d: int, k: int) -> bool:
        return True

    def fit(self, task: Task) -> Self:
        K, n = task.n_classes, len(task.codes)
        most = max(1, min(MAX_ROUNDS, MAX_TREES // (len(KINDS) * (1 if K == 2 else K))))
        self.log_priors = np.log(class_shares(task)).astype(np.float32)
        common = {
            "objective": "binary" if K == 2 else "multiclass",
            "num_class": 1 if K == 2 else K,
            "learning_rate": float(np.clip(RATE_ROUNDS / most, LEARNING_RATE, FASTEST)),
            "min_data_in_leaf": int(np.clip(n // 50, 2, 10)),
            "min_sum_hessian_in_leaf": 1e-3,
            "lambda_l2": 1.0,
            "boost_from_average": False,
            "use_missing": False,
            "seed": int(task.seed) % 2**31,
            "deterministic": True,
            "force_col_wise": True,
            "num_threads": 1,
            "verbosity": -1,
        }
        part = inner_parts(task, PARTS, task.seed)
        X, w = np.asarray(task.X, dtype=np.float32), weights_of(task)
        described = []
        for number, kind in enumerate(KINDS):
            described += self._boost(X, task.codes, w, part != number, {**common, **kind}, most)
        self._take(described)
        return self

    def _boost(
        self,
        X: npt.NDArray[np.float32],
        codes: npt.NDArray[np.intp],
        w: FloatArray,
        train: npt.NDArray[np.bool_],
        options: dict[str, Any],
        most: int,
    ) -> list[dict[str, Any]]:
        """Trees of the rounds that the rows outside of ``train`` like best, as LightGBM describes them."""
        import lightgbm

        start = self._start(len(X))
        data = lightgbm.Dataset(X[train], codes[train], weight=w[train], init_score=start[train])
        if train.all():  # a single group: nothing to hold out
            booster = lightgbm.train(options, data, BLIND_ROUNDS)
        else:
            rest = ~train
            valid = data.create_valid(X[rest], codes[rest], weight=w[rest], init_score=start[rest])
            stop = lightgbm.early_stopping(PATIENCE, verbose=False)
            booster = lightgbm.train(options, data, most, valid_sets=[valid], callbacks=[stop])
        trees: list[dict[str, Any]] = booster.dump_model(num_iteration=max(booster.best_iteration, 0) or None)["tree_info"]
        return trees

    def _start(self, n: int) -> FloatArray:
        """Log odds, or logits, of the priors for every row."""
        start = self.log_priors.astype(np.float64)
        return np.full(n, start[1] - start[0]) if len(start) == 2 else np.tile(start, (n, 1))

    def _take(self, described: list[dict[str, Any]]) -> None:
        trees, values = [], []
        for one in described:
            nodes: list[tuple[int, float, int]] = []
            _read(one["tree_structure"], nodes, values)
            columns = list(zip(*nodes, strict=True))
            trees.append((np.asarray(columns[0]), np.asarray(columns[1], dtype=np.float64), np.asarray(columns[2])))
        self.stack, self.values = build(trees), np.asarray(values, dtype=np.float32) / len(KINDS)

    def log_posteriors(self, X: Any) -> FloatArray:
        K = len(self.log_priors)

        def score(x: npt.NDArray[np.float32]) -> FloatArray:
            f = self.values[self.stack.leaves(x)].reshape(len(x), -1, 1 if K == 2 else K).sum(axis=1, dtype=np.float64)
            return log_softmax(self.log_priors + (np.column_stack([np.zeros(len(x)), f]) if K == 2 else f))

        return by_blocks(score, X, self.stack.numbers_per_row + K, K)

    def export(self) -> Tree:
        return {**self.stack.export(), "values": self.values, "log_priors": self.log_priors}

    @classmethod
    def restore(cls, tree: Tree, n_features: int, n_classes: int) -> Self:
        member = cls()
        member.stack = TreeStack.restore(tree, n_features)
        member.values = checked(tree, "values", (np.float32,), (member.stack.n_leaves,))
        member.log_priors = checked(tree, "log_priors", (np.float32,), (n_classes,))
        if n_classes > 2 and len(member.stack.sizes) % n_classes:
            raise ValueError(f"boosted trees must come in rounds of {n_classes}, got {len(member.stack.sizes)}")
        return member


def _read(node: dict[str, Any], nodes: list[tuple[int, float, int]], values: list[float]) -> None:
    """Append a subtree in pre-order."""
    if "left_child" not in node:
        nodes.append((-1, 0.0, 0))
        values.append(node["leaf_value"])
        return
    place = len(nodes)
    nodes.append((0, 0.0, 0))
    _read(node["left_child"], nodes, values)
    nodes[place] = node["split_feature"], node["threshold"], len(nodes) - place
    _read(node["right_child"], nodes, values)
