"""Gradient-boosted trees, grown by LightGBM and kept as arrays.

Symbols: K classes, R rounds of one tree per class (one tree for two classes). Rounds are chosen by the log loss
of inner held-out rows; groups stay together.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from collidescope.learners._shared import by_blocks, checked, inner_parts, log_softmax, weights_of
from collidescope.learners._trees import TreeStack, build
from collidescope.learners.base import FloatArray, Member, Task, Tree

#: Rounds, and trees of all kinds, rounds and classes together.
MAX_ROUNDS, MAX_TREES = 300, 2_000
#: Parts of the rows that are held out in turn; rounds without gain that end the growth.
PARTS, PATIENCE = 6, 20
#: Step of a round: this many over the rounds that classes leave, within limits. Many rows afford larger steps.
RATE_ROUNDS, LEARNING_RATE, LARGE_RATE, FASTEST = 12.0, 0.1, 0.16, 0.3
#: Rows × trees per round × parts that are held out in turn (at least one), and rows × trees per round up to which all
#: rows are trained on once the rounds are known.
CROSS_VALIDATED, REFITTED = 10_000, 30_000
#: Rounds where nothing can be held out.
BLIND_ROUNDS = 30
#: Rows of more features (pixels) are wide: a tree sees a sample of as many of them, in coarser bins. On 784 pixels that
#: is a third of the time, and no worse.
WIDE, WIDE_BINS = 300, 63


class Boosting(Member):
    """Gradient-boosted trees of two kinds, whose logits are averaged.

    Small ones on samples of the rows, and larger ones with random cuts. Each kind holds out other rows, so that
    together they learn from every row.
    """

    name = "trees"
    kinds: ClassVar[tuple[dict[str, Any], ...]] = (
        {"num_leaves": 8, "max_depth": 4, "feature_fraction": 0.7, "bagging_fraction": 0.7, "bagging_freq": 1},
        {"num_leaves": 20, "max_depth": 7, "feature_fraction": 0.7, "extra_trees": True},
    )
    #: Rows of the smallest leaf: a share of the rows, within limits.
    leaf_share, fewest, most = 0.02, 2, 10

    stack: TreeStack
    #: Rounded to half precision: a tree's step changes by less than a thousandth.
    values: npt.NDArray[np.float16]
    n_classes: int

    @classmethod
    def takes_part(cls, n: int, d: int, k: int) -> bool:
        return True

    def fit(self, task: Task) -> Self:
        K, n = task.n_classes, len(task.codes)
        most_rounds = max(1, min(MAX_ROUNDS, MAX_TREES // (len(self.kinds) * (1 if K == 2 else K))))
        self.n_classes = K
        slowest = LEARNING_RATE if n * K <= REFITTED else LARGE_RATE
        common = {
            "objective": "binary" if K == 2 else "multiclass",
            "num_class": 1 if K == 2 else K,
            "learning_rate": float(np.clip(RATE_ROUNDS / most_rounds, slowest, FASTEST)),
            "min_data_in_leaf": int(np.clip(self.leaf_share * n, self.fewest, self.most)),
            "min_sum_hessian_in_leaf": 1e-3,
            "lambda_l2": 1.0,
            "use_missing": False,
            "seed": int(task.seed) % 2**31,
            "deterministic": True,
            "force_col_wise": True,
            "num_threads": 1,
            "verbosity": -1,
        }
        X, w = np.asarray(task.X, dtype=np.float32), weights_of(task)
        wide = {"feature_fraction": 0.7 * WIDE / X.shape[1], "max_bin": WIDE_BINS} if X.shape[1] > WIDE else {}
        described = []
        for number, kind in enumerate(self.kinds):
            part = inner_parts(task, PARTS, task.seed + number)
            described += _boost(X, task.codes, w, part, {**common, **kind, **wide}, most_rounds)
        self._take(described)
        return self

    def _take(self, described: list[dict[str, Any]]) -> None:
        trees, values = [], list[float]()
        for one in described:
            nodes: list[tuple[int, float, int]] = []
            _read(one["tree_structure"], nodes, values)
            columns = list(zip(*nodes, strict=True))
            trees.append((np.asarray(columns[0]), np.asarray(columns[1], dtype=np.float64), np.asarray(columns[2])))
        self.stack, self.values = build(trees), (np.asarray(values) / len(self.kinds)).astype(np.float16)

    def log_posteriors(self, X: Any) -> FloatArray:
        K, values = self.n_classes, self.values.astype(np.float32)

        def score(x: npt.NDArray[np.float32]) -> FloatArray:
            f = values[self.stack.leaves(x)].reshape(len(x), -1, 1 if K == 2 else K).sum(axis=1, dtype=np.float64)
            return log_softmax(np.column_stack([np.zeros(len(x)), f]) if K == 2 else f)

        return by_blocks(score, X, self.stack.numbers_per_row + K, K)

    def export(self) -> Tree:
        return {**self.stack.export(), "values": self.values}

    @classmethod
    def restore(cls, tree: Tree, n_features: int, n_classes: int) -> Self:
        member = cls()
        member.stack = TreeStack.restore(tree, n_features)
        member.values = checked(tree, "values", (np.float16,), (member.stack.n_leaves,))
        member.n_classes = n_classes
        if n_classes > 2 and len(member.stack.sizes) % n_classes:
            raise ValueError(f"boosted trees must come in rounds of {n_classes}, got {len(member.stack.sizes)}")
        return member


class PlainBoosting(Boosting):
    """Larger trees with large leaves and nothing random: rules that hold exactly are learned as such."""

    name = "trees-plain"
    kinds: ClassVar[tuple[dict[str, Any], ...]] = ({"num_leaves": 31, "max_depth": 12, "lambda_l2": 0.0},)
    leaf_share, fewest, most = 0.2, 5, 20

    @classmethod
    def takes_part(cls, n: int, d: int, k: int) -> bool:
        return d <= WIDE


def _boost(
    X: npt.NDArray[np.float32],
    codes: npt.NDArray[np.intp],
    w: FloatArray,
    part: npt.NDArray[np.intp],
    options: dict[str, Any],
    most: int,
) -> list[dict[str, Any]]:
    """Trees as LightGBM describes them, as many rounds as held-out rows like best.

    Few rows are cross-validated and then all trained on; of many, one part is held out and stays so.
    """
    import lightgbm

    def data(rows: npt.NDArray[Any]) -> Any:
        return lightgbm.Dataset(X[rows], codes[rows], weight=w[rows], params={"verbosity": -1, "num_threads": 1})

    stop = lightgbm.early_stopping(PATIENCE, verbose=False)
    everything, work = np.arange(len(codes)), len(codes) * options["num_class"]
    folds = [(np.flatnonzero(part != k), np.flatnonzero(part == k)) for k in range(int(part.max()) + 1)]
    if not folds:  # a single group: nothing to hold out
        booster = lightgbm.train(options, data(everything), BLIND_ROUNDS)
    elif work <= REFITTED:
        used = folds[: max(1, CROSS_VALIDATED // work)]
        curve = lightgbm.cv(options, data(everything), most, folds=iter(used), callbacks=[stop])
        booster = lightgbm.train(options, data(everything), len(next(iter(curve.values()))))  # type: ignore[arg-type]
    else:
        rows, held_out = folds[0]
        train = data(rows)
        valid = train.create_valid(X[held_out], codes[held_out], weight=w[held_out])
        booster = lightgbm.train(options, train, most, valid_sets=[valid], callbacks=[stop])
    trees: list[dict[str, Any]] = booster.dump_model(num_iteration=max(booster.best_iteration, 0) or None)["tree_info"]
    return trees


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
