"""Gradient-boosted trees as a capacity of the pool: scikit-learn grows them, torch holds and evaluates them.

Tables of mixed columns have steps and interactions that trees find sooner than networks. A grown forest is a handful of
arrays, so it is saved, loaded and moved to a GPU like the weights of a network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss
from torch import Tensor, nn

from collidescope.training.splits import Split

#: Boosting rounds and trees (one a class and round) at most; the held-out rows of the split choose how many rounds.
MAX_ROUNDS, MAX_TREES = 200, 3_000
#: With more classes there would be fewer than 20 rounds; with fewer rows there is little to split.
MOST_TREE_CLASSES, FEWEST_TREE_ROWS = MAX_TREES // 20, 500
#: Depth of a tree, which is the number of steps that its evaluation takes.
MAX_DEPTH = 8
LEARNING_RATE = 0.1


class Forest(NamedTuple):
    """Trees of one split as arrays over all nodes; a leaf points to itself."""

    feature: npt.NDArray[np.int64]
    threshold: npt.NDArray[np.float64]
    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    value: npt.NDArray[np.float64]
    roots: npt.NDArray[np.int64]
    base: npt.NDArray[np.float64]


#: Kinds of the arrays of a forest: joined, pointers of several kinds would pass as one.
FOREST_KINDS = (np.int64, np.float64, np.int64, np.int64, np.float64, np.int64, np.float64)


def grow(
    X: npt.NDArray[Any], y: npt.NDArray[Any], weight: npt.NDArray[Any] | None, split: Split, n_classes: int, seed: int
) -> Forest:
    """Boost on the training rows of a split, and keep the rounds that its held-out rows like best."""
    train, held_out = (rows.cpu().numpy() for rows in split)
    model = HistGradientBoostingClassifier(
        learning_rate=LEARNING_RATE,
        max_iter=min(MAX_ROUNDS, MAX_TREES // n_classes),
        max_depth=MAX_DEPTH,
        early_stopping=False,
        random_state=seed % 2**31,
    )
    model.fit(X[train], y[train], None if weight is None else weight[train])
    w = None if weight is None else weight[held_out]
    losses = [
        log_loss(y[held_out], p, sample_weight=w, labels=np.arange(n_classes))
        for p in model.staged_predict_proba(X[held_out])
    ]
    return _forest(model, int(np.argmin(losses)) + 1)


def _forest(model: HistGradientBoostingClassifier, rounds: int) -> Forest:
    trees = [tree.nodes for one_round in model._predictors[:rounds] for tree in one_round]
    starts = np.cumsum([0, *(len(nodes) for nodes in trees)])
    nodes, own = np.concatenate(trees), np.arange(starts[-1])
    offset = np.repeat(starts[:-1], np.diff(starts))
    leaf = nodes["is_leaf"].astype(bool)
    return Forest(
        np.where(leaf, 0, nodes["feature_idx"]).astype(np.int64),
        np.where(leaf, 0.0, nodes["num_threshold"]),
        np.where(leaf, own, nodes["left"] + offset),
        np.where(leaf, own, nodes["right"] + offset),
        nodes["value"].astype(np.float64),
        starts[:-1].astype(np.int64),
        np.asarray(model._baseline_prediction, dtype=np.float64).reshape(-1),
    )


class BoostedTrees(nn.Module):
    """Forests of M splits: x (n, d) → logits (M, n, K)."""

    def __init__(self, forests: Sequence[Forest], n_classes: int) -> None:
        super().__init__()
        self.n_classes, self.n_forests = n_classes, len(forests)
        for number, forest in enumerate(forests):
            for name, array in forest._asdict().items():
                self.register_buffer(f"{name}{number}", torch.from_numpy(np.ascontiguousarray(array)))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self._one(number, x.double()) for number in range(self.n_forests)])

    def _one(self, number: int, x: Tensor) -> Tensor:
        feature, threshold, left, right, value, roots, base = (
            getattr(self, f"{name}{number}") for name in Forest._fields
        )
        node = roots.expand(len(x), -1)
        for _ in range(MAX_DEPTH):
            below = x.gather(1, feature[node]) <= threshold[node]
            node = torch.where(below, left[node], right[node])
        scores = value[node].view(len(x), -1, len(base)).sum(1) + base
        return torch.cat([torch.zeros_like(scores), scores], 1) if len(base) == 1 else scores

    @classmethod
    def from_state(cls, state: dict[str, Tensor], n_features: int, n_classes: int) -> BoostedTrees:
        """The module that a state dict describes, refused unless every index stays inside."""
        n_forests = sum(name.startswith("roots") for name in state)
        forests = [Forest(*(state[f"{name}{m}"].numpy() for name in Forest._fields)) for m in range(n_forests)]
        for forest in forests:
            size, n_base = len(forest.value), 1 if n_classes == 2 else n_classes
            pointers = np.concatenate([forest.left, forest.right, forest.roots])
            arrays = (forest.feature, forest.threshold, forest.left, forest.right)
            if (
                any(array.shape != (size,) for array in arrays)
                or any(array.dtype != kind for array, kind in zip(forest, FOREST_KINDS, strict=True))
                or not size
                or pointers.min() < 0
                or pointers.max() >= size
                or forest.feature.min() < 0
                or forest.feature.max() >= n_features
                or forest.base.shape != (n_base,)
                or len(forest.roots) % n_base
                or not all(np.isfinite(array).all() for array in (forest.threshold, forest.value, forest.base))
            ):
                raise ValueError("its trees point outside of themselves or of the features")
        if not forests:
            raise ValueError("it has no trees")
        return cls(forests, n_classes)
