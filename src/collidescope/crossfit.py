"""Cross-fitting the pool: every row is scored by models that did not train on it, new rows by the models of all folds.

Symbols: n rows, K classes, F folds, M members of the pool, P (n, K) held-out posteriors at the priors of the training
rows. Members (:mod:`collidescope.learners`) are trained once per fold, and their log posteriors pooled. The weights
with which a row is pooled were fitted on rows of the other folds, so no label takes part in scoring its own row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope._checks import FloatArray
from collidescope._progress import Progress
from collidescope._scaling import blocks
from collidescope._threads import ONE_THREAD_NUMBERS, one_thread
from collidescope.folds import HeldOut, Plan, Standardised, restored_scaling, run_folds
from collidescope.learners import recipe
from collidescope.learners.base import Member, Task, Tree
from collidescope.learners.pool import pool, pool_weights

DOUBLE_NUMBERS = (
    2**26
)  #: held-out posteriors of more numbers are float32: half of the memory, models know no more
SCORED_NUMBERS = (
    2**24
)  #: posteriors that are computed at once, in numbers (float64, and a few copies on the way)
READ_NUMBERS = (
    2**22
)  #: numbers of rows that are scored at once: those of a file are read for it (16 MB)


class _PoolFold(NamedTuple):
    """One fold: fitted members, and their log posteriors of its held-out rows."""

    members: dict[str, Member]
    scores: dict[str, npt.NDArray[np.floating[Any]]]
    interrupted: bool


@dataclass
class PoolFit:
    """Members of all folds, and what is needed to score new rows with them."""

    folds: list[dict[str, Member]]
    weights: dict[
        str, float
    ]  #: how much each member counts for new rows, fitted on all held-out rows
    centre: FloatArray
    scale: FloatArray
    train_priors: FloatArray
    row_shape: tuple[int, ...]
    interrupted: bool = False
    #: The weights with which the held-out rows of each fold were pooled.
    fold_weights: list[dict[str, float]] = field(default_factory=list)

    @property
    def history(self) -> list[dict[str, Any]]:
        """Epoch by epoch losses of every member that was trained in epochs, fold by fold."""
        kept = [
            {name: getattr(m, "history", None) for name, m in fold.items()} for fold in self.folds
        ]
        return [{name: epochs for name, epochs in fold.items() if epochs} for fold in kept]

    def posteriors(self, X: Any) -> FloatArray:
        """Posteriors of new rows at ``train_priors``, averaged over the folds."""
        if tuple(X.shape[1:]) != self.row_shape:
            raise ValueError(
                f"X must have rows of shape {self.row_shape} as in training, got {tuple(X.shape[1:])}"
            )
        held = Standardised.of(X, self.centre, self.scale)
        out = np.zeros((X.shape[0], len(self.train_priors)))
        for rows in _blocks(X, out.shape[1]):
            block = held.X[rows]
            for fold in self.folds:
                logs = np.stack([_log_posteriors(fold[name], block) for name in self.weights])
                out[rows] += pool(logs, list(self.weights.values()))
        return out / len(self.folds)

    def export(self) -> Tree:
        names = ("centre", "scale", "train_priors", "weights", "fold_weights")
        tree = {
            "engine": "pool",
            **{name: getattr(self, name) for name in names},
            "row_shape": list(self.row_shape),
        }
        folds = [
            {name: {"type": m.name} | m.export() for name, m in fold.items()} for fold in self.folds
        ]
        return tree | {"folds": folds}

    @classmethod
    def restore(cls, tree: Mapping[str, Any], factory: Any = None) -> PoolFit:
        """The inverse of :meth:`export`; raises KeyError, TypeError or ValueError on what does not fit."""
        priors, centre, scale = restored_scaling(tree)
        shape = tuple(check.check_count(size, "row_shape") for size in tree["row_shape"])
        if len(scale) != (shape[0] if len(shape) == 1 else 1):
            raise ValueError(
                f"scale must have one number for each of {shape[0]} features, got {len(scale)}"
            )
        weights, *kept = (
            {
                str(name): check.check_at_least(weight, 0.0, "weights")
                for name, weight in each.items()
            }
            for each in (tree["weights"], *tree["fold_weights"])
        )
        if (
            not tree["folds"]
            or not weights
            or any(set(fold) != set(weights) for fold in tree["folds"])
        ):
            raise ValueError(
                "every fold must hold the members that have a weight, and there must be some"
            )

        def member(own: Tree) -> Member:
            return recipe(own["type"], factory).restore(own, shape, len(priors))

        folds = [{name: member(fold[name]) for name in weights} for fold in tree["folds"]]
        return cls(folds, weights, centre, scale, priors, shape, fold_weights=kept)


def fit_pool(
    plan: Plan, recipes: Sequence[Member], progress: Progress | None = None
) -> tuple[PoolFit, HeldOut]:
    """Train every member of ``recipes`` on every fold, and pool the log posteriors of the held-out rows."""
    held, labels, k = plan.held, plan.labels, plan.labels.n_classes

    def train(number: int, report: Any = None) -> _PoolFold:
        task = plan.task(number, report)
        if (weights := task.sample_weight) is not None:
            task = replace(task, sample_weight=weights / weights.mean())
        return _train_members(task, held.take(plan.splits[number][1]), recipes)

    folds, interrupted = run_folds(train, len(plan.splits), plan.n_jobs, progress, plan.share)
    # After Ctrl-C the last fold may lack members: it is dropped unless it is the only one. Folds come in order, so
    # the first splits belong to the folds that are kept.
    folds = [fold for fold in folds if len(fold.members) == len(recipes)] or folds[:1]
    names = list(folds[0].members)
    tests = [test for _, test in plan.splits[: len(folds)]]
    rows = np.sort(np.concatenate(tests))
    P = np.empty((len(rows), k), np.float32 if len(rows) * k > DOUBLE_NUMBERS else np.float64)
    scores = [np.stack([fold.scores[name] for name in names]) for fold in folds]

    def weights_without(number: int | None) -> FloatArray:
        """Weights of the members from the held-out rows of other folds; equal where there are none."""
        others = [f for f in range(len(folds)) if f != number]
        if not others or len(names) == 1:
            return np.full(len(names), 1 / len(names))
        place, codes, w = labels.take(np.concatenate([tests[f] for f in others]))
        logs = np.concatenate([scores[f] for f in others], axis=1)
        # With votes a row stands here once for each class that was voted for.
        found = pool_weights(logs if labels.votes is None else logs[:, place], codes, w)
        # Nothing learned anything: with weights of zero the pool would say that all classes are as likely.
        return found if found.any() else np.full(len(names), 1 / len(names))

    fold_weights = []
    for number, test in enumerate(tests):
        weights = weights_without(number)
        fold_weights.append(dict(zip(names, weights.tolist(), strict=True)))
        P[np.searchsorted(rows, test)] = pool(scores[number], weights)
    final = weights_without(None)
    kept = {name: weight for name, weight in zip(names, final.tolist(), strict=True) if weight > 0}
    members = [{name: fold.members[name] for name in kept} for fold in folds]
    known = (
        held.centre,
        held.scale,
        labels.priors,
        tuple(held.X.shape[1:]),
        interrupted,
        fold_weights,
    )
    return PoolFit(members, kept, *known), HeldOut(rows, P)


def _train_members(task: Task, test: Any, recipes: Sequence[Member]) -> _PoolFold:
    """Fit the members one after the other and score the held-out rows; Ctrl-C keeps those that are done."""
    fold = _PoolFold({}, {}, False)
    n, k = test.shape[0], task.n_classes
    dtype = np.float32 if n * k * len(recipes) > SCORED_NUMBERS else np.float64
    flat = replace(task, X=_as_table(task.X))
    if flat.X is not task.X:  # pixels share one scale
        flat = replace(flat, spread=np.ones(flat.X.shape[1]))
    with one_thread(math.prod(task.X.shape) <= ONE_THREAD_NUMBERS):
        for recipe in recipes:
            try:
                member = copy(recipe).fit(task if recipe.images else flat)
                own = np.empty((n, k), dtype)
                for rows in _blocks(test, k):
                    own[rows] = _log_posteriors(member, test[rows])
            except KeyboardInterrupt:
                if not fold.members:
                    raise
                return fold._replace(interrupted=True)
            fold.members[member.name], fold.scores[member.name] = member, own
            if getattr(
                member, "interrupted", False
            ):  # a network keeps its best weights and says so
                return fold._replace(interrupted=True)
    return fold


def _as_table(X: Any) -> Any:
    return X.reshape(len(X), -1) if isinstance(X, np.ndarray) and X.ndim > 2 else X


def _log_posteriors(member: Member, X: Any) -> FloatArray:
    return member.log_posteriors(X if member.images else _as_table(X))


def _blocks(X: Any, k: int) -> Iterator[slice]:
    return blocks(
        X.shape[0], 1, min(SCORED_NUMBERS // k, READ_NUMBERS // max(1, math.prod(X.shape[1:])))
    )
