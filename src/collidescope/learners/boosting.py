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

#: Rounds, and trees of all rounds and classes together.
MAX_ROUNDS, MAX_TREES = 300, 3_000
#: Share of the rows held out to choose the number of rounds, as one part of so many; rounds without gain that end it.
PARTS, PATIENCE = 6, 15
#: Step of a round where rounds are many, and at most where classes leave few.
LEARNING_RATE, FASTEST = 0.08, 0.3
LEAVES, DEPTH = 20, 7


class Boosting(Member):
    """Gradient-boosted trees."""

    name = "trees"

    stack: TreeStack
    values: npt.NDArray[np.float32]
    log_priors: npt.NDArray[np.float32]

    @classmethod
    def takes_part(cls, n: int, d: int, k: int) -> bool:
        return k <= MAX_TREES // 15

    def fit(self, task: Task) -> Self:
        import lightgbm

        K, n = task.n_classes, len(task.codes)
        per_round = 1 if K == 2 else K
        most = min(MAX_ROUNDS, MAX_TREES // per_round)
        X, w = np.asarray(task.X, dtype=np.float32), weights_of(task)
        part = inner_parts(task, PARTS, task.seed)
        train, held_out = np.flatnonzero(part != 0), np.flatnonzero(part == 0)
        self.log_priors = np.log(class_shares(task)).astype(np.float32)
        options = {
            "objective": "binary" if K == 2 else "multiclass",
            "num_class": 1 if K == 2 else K,
            "learning_rate": float(np.clip(LEARNING_RATE * MAX_ROUNDS / most / 2, LEARNING_RATE, FASTEST)),
            "num_leaves": LEAVES,
            "max_depth": DEPTH,
            "min_data_in_leaf": int(np.clip(n // 50, 2, 10)),
            "min_sum_hessian_in_leaf": 1e-3,
            "lambda_l2": 1.0,
            "feature_fraction": 0.7,
            "boost_from_average": False,
            "use_missing": False,
            "seed": int(task.seed) % 2**31,
            "deterministic": True,
            "force_col_wise": True,
            "num_threads": 1,
            "verbosity": -1,
        }
        start = self._start(n)
        data = lightgbm.Dataset(X[train], task.codes[train], weight=w[train], init_score=start[train])
        if len(held_out):
            valid = data.create_valid(X[held_out], task.codes[held_out], weight=w[held_out], init_score=start[held_out])
            stop = lightgbm.early_stopping(PATIENCE, verbose=False)
            booster = lightgbm.train(options, data, most, valid_sets=[valid], callbacks=[stop])
            rounds = booster.best_iteration
        else:
            booster = lightgbm.train(options, data, most // 4)
            rounds = most // 4
        self._take(booster.dump_model(num_iteration=rounds)["tree_info"])
        return self

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
        self.stack, self.values = build(trees), np.asarray(values, dtype=np.float32)

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
