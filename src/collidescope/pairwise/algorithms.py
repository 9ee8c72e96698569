"""The paper's Algorithms 1 and 2, cross-fitted: S and posteriors from the pair-wise model V.

Symbols: n rows, K classes, G the Gramian, q(x) = S y(x) the mean similarity of x to the references of each class. All
of it holds at uniform priors, because pairs are sampled with classes in equal shares; posteriors are then brought to
the priors of the training rows.

Where the paper's equations run: (31, 32) :func:`~collidescope.pairwise.risk.balanced_risk`, called by every training
step; (34) :func:`~collidescope.equations.gramian.gramian_from_similarities`; (35, 36)
:func:`~collidescope.equations.recovery.recover`; (44) :func:`~collidescope.equations.posterior.solve_posteriors`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope._progress import Progress
from collidescope._scaling import apply_scaling
from collidescope.equations.gramian import gramian_from_similarities
from collidescope.equations.posterior import shift_priors, solve_posteriors
from collidescope.equations.recovery import recover
from collidescope.folds import HeldOut, Labels, Settings, Split, Standardised, restored_scaling, run_folds, threads_for
from collidescope.pairwise.model import VALIDATION_FRACTION, PairModel, classes_without_pairs
from collidescope.training.config import TrainingConfig
from collidescope.training.rows import as_rows

#: Ridges tried for the posteriors; the one with the lowest held-out log loss is kept.
RIDGES = (0.0, 1e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
SMALLEST_PROBABILITY = 1e-6


class References(NamedTuple):
    """Rows of a fold that others are compared with (the paper's m points per class)."""

    rows: npt.NDArray[np.float32]
    codes: IntArray
    #: None when all weigh the same.
    weights: FloatArray | None


@dataclass
class PairFit:
    """Pair-wise models of all folds, and how similarities to a fold's references become posteriors (Algorithm 2)."""

    folds: list[PairModel]
    centre: FloatArray
    scale: FloatArray
    train_priors: FloatArray
    recovery: str = "root"
    correction: bool = True
    solver: str = "simplex"
    ridge: float = 0.0
    matrix: FloatArray = field(default_factory=lambda: np.eye(2))
    references: list[References] = field(default_factory=list)
    interrupted: bool = False

    @property
    def history(self) -> list[dict[str, Any]]:
        """Epoch by epoch losses of every network, fold by fold."""
        return [fold.history for fold in self.folds]

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.folds[0].input_shape

    def posteriors(self, X: Any) -> FloatArray:
        """Posteriors of new rows at ``train_priors``: q is averaged over the folds, then solved for y."""
        rows = self._rows(X)
        parts = zip(self.folds, self.references, strict=True)
        q = [
            fold.class_similarity(rows, tensor(refs.rows), refs.codes, refs.weights, None, self.correction)[0]
            for fold, refs in parts
        ]
        return self.solve(np.mean(q, axis=0))

    def similarity(self, A: Any, B: Any) -> FloatArray:
        """Sim of every pair of new rows, at uniform priors."""
        first, second = self._rows(A), self._rows(B)
        return np.asarray(np.mean([fold.similarity(first, second, self.correction) for fold in self.folds], axis=0))

    def _rows(self, X: Any) -> Any:
        return tensor(apply_scaling(X, self.centre, self.scale))

    def solve(self, q: FloatArray) -> FloatArray:
        """Posteriors at ``train_priors`` from q at uniform priors: y = S⁻¹ q, the paper's equation (44)."""
        uniform = np.full(len(self.train_priors), 1 / len(self.train_priors))
        y = solve_posteriors(q, self.matrix, self.solver, self.ridge, uniform)
        if self.solver == "inverse":
            # The paper's S⁻¹ q may leave the simplex; probabilities may not.
            y = np.maximum(y, 0.0)
            total = y.sum(axis=1, keepdims=True)
            y = np.divide(y, total, out=np.tile(uniform, (len(y), 1)), where=total > 0)
        return shift_priors(y, uniform, self.train_priors)

    def choose_ridge(self, q: FloatArray, codes: IntArray, weights: FloatArray | None = None) -> None:
        """Keep the ridge with the lowest held-out log loss (the inverse uses none)."""
        if self.solver == "inverse":
            return
        losses = []
        for self.ridge in RIDGES:
            own = self.solve(q)[np.arange(len(codes)), codes]
            losses.append(-np.average(np.log(np.maximum(own, SMALLEST_PROBABILITY)), weights=weights))
        self.ridge = RIDGES[int(np.argmin(losses))]

    def export(self) -> dict[str, Any]:
        """A tree of arrays and JSON values."""
        names = ("centre", "scale", "train_priors", "recovery", "correction", "solver", "ridge", "matrix")
        return {
            "engine": "pairs",
            **{name: getattr(self, name) for name in names},
            "folds": [fold.export() for fold in self.folds],
            "references": [refs._asdict() for refs in self.references],
        }

    @classmethod
    def restore(cls, tree: Mapping[str, Any], factory: Callable[[int, int], Any] | None = None) -> PairFit:
        """The inverse of :meth:`export`; raises KeyError, TypeError or ValueError on what does not fit."""
        priors, centre, scale = restored_scaling(tree)
        folds = [PairModel.restore(each, len(priors), factory) for each in tree["folds"]]
        if not folds or len(tree["references"]) != len(folds):
            raise ValueError("every fold must have its references")
        shape = folds[0].input_shape
        matrix = check.check_square(tree["matrix"], "matrix")
        if len(matrix) != len(priors) or len(scale) not in (1, *shape[:1]):
            raise ValueError("its parts do not agree on the classes or features")
        return cls(
            folds,
            centre,
            scale,
            priors,
            check.check_choice(tree["recovery"], ["root", "gradient"], "recovery"),
            bool(tree["correction"]),
            check.check_choice(tree["solver"], ["simplex", "inverse"], "solver"),
            check.check_at_least(tree["ridge"], 0.0, "ridge"),
            matrix,
            [_restored_references(each, shape, len(priors)) for each in tree["references"]],
        )


class _PairFold(NamedTuple):
    model: PairModel
    interrupted: bool


def fit_pairs(
    held: Standardised,
    labels: Labels,
    splits: Sequence[Split],
    config: TrainingConfig,
    seeds: Sequence[int],
    settings: Settings,
    progress: Progress,
    *,
    factory: Callable[[int, int], Any] | None = None,
    n_references: int | None = None,
    seed: int = 0,
    steps: int = 1,
    **choices: Any,
) -> tuple[PairFit, HeldOut]:
    """Train the pair-wise model on every fold, estimate the Gramian and solve for posteriors.

    Parameters
    ----------
    held, labels, splits, seeds, settings, progress, steps : as in :func:`fit_pool`
    config : TrainingConfig
    factory : callable (2d, 1) → torch module, optional
    n_references : int, optional
        The paper's m: comparison points per class and fold; all held-out rows by default.
    seed : int
        Of the choice of references.
    **choices : ``recovery``, ``correction`` and ``solver`` of :class:`PairFit`
    """
    codes, k = labels.codes, labels.n_classes
    rows_of = (lambda rows: as_rows(tensor(held.take(rows)), config.device)) if held.in_memory else held.take

    def train(number: int, report: Any = None) -> _PairFold:
        rows = splits[number][0]
        weights = None if labels.weights is None else labels.weights[rows]
        folder = None if settings.checkpoint is None else settings.checkpoint / f"fold-{number}"
        with threads_for(held.X.shape) if factory is None else nullcontext():
            model = PairModel.train(
                rows_of(rows), codes[rows], k, config, seeds[number], weights, factory, report, folder
            )
        return _PairFold(model, model.interrupted)

    trained, interrupted = run_folds(train, len(splits), settings.n_jobs, progress, steps)
    fitted = PairFit(
        [fold.model for fold in trained], held.centre, held.scale, labels.priors, interrupted=interrupted, **choices
    )
    rng = np.random.default_rng(seed)
    tests = [test for _, test in splits[: len(trained)]]
    rows = np.sort(np.concatenate(tests))
    q = np.empty((len(rows), k))
    noise = []
    for fold, test in zip(fitted.folds, tests, strict=True):
        chosen = choose_references(codes[test], n_references, rng)
        exclude = np.full(len(test), -1, dtype=np.intp)
        exclude[chosen] = np.arange(len(chosen))
        compared = test[chosen]
        weight = None if labels.weights is None else labels.weights[compared]
        references = References(np.asarray(held.take(compared)), codes[compared], weight)
        fitted.references.append(references)
        q[np.searchsorted(rows, test)], stderr = fold.class_similarity(
            tensor(held.take(test)), tensor(references.rows), references.codes, weight, exclude, fitted.correction
        )
        noise.append(stderr)
    own = None if labels.weights is None else labels.weights[rows]
    # Algorithm 1, second part: Ĝ from held-out similarities (equation 34), S from Ĝ (35, 36).
    G = gramian_from_similarities(q, codes[rows], own)
    fitted.matrix = recover(G, method=fitted.recovery).matrix
    fitted.choose_ridge(q, codes[rows], own)
    errors = np.concatenate(noise)
    # a reference has one fewer of its own class, and from a single one no standard error can be told
    finite = errors[np.isfinite(errors)]
    return fitted, HeldOut(rows, fitted.solve(q), G, float(finite.mean()) if finite.size else None)


def choose_references(codes: IntArray, per_class: int | None, rng: np.random.Generator) -> IntArray:
    """Rows of a fold that serve as comparison points: all, or so many of each class."""
    if per_class is None:
        return np.arange(len(codes))
    picked = [rng.permutation(np.flatnonzero(codes == c))[:per_class] for c in np.unique(codes)]
    return np.sort(np.concatenate(picked))


def check_pair_members(
    codes: IntArray, classes: npt.NDArray[Any], splits: Sequence[Split], config: TrainingConfig, seeds: Sequence[int]
) -> None:
    """Refuse classes too small for pairs before any fold is trained."""
    k = len(classes)
    for (train, test), seed in zip(splits, seeds, strict=True):
        few = classes_without_pairs(codes[train], k, config, seed) | (np.bincount(codes[test], minlength=k) < 2)
        if few.any():
            need = int(np.ceil(2 / VALIDATION_FRACTION / (1 - 1 / len(splits))))
            own = np.bincount(codes, minlength=k)
            small = int(np.where(few, own, own.max() + 1).argmin())
            raise ValueError(
                f"model='pairwise' with cv={len(splits)} needs about {need} members of every class, "
                f"class {classes.tolist()[small]!r} has {own[small]}: "
                f"use the default model, gather more of it, or merge or drop it"
            )


def tensor(X: Any) -> Any:
    """Rows as a float32 tensor; torch would warn of memory that is read-only, so that is copied."""
    array = np.ascontiguousarray(X, dtype=np.float32)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _restored_references(tree: Mapping[str, Any], shape: tuple[int, ...], k: int) -> References:
    rows, codes, weights = (tree[name] for name in References._fields)
    rows, codes = np.asarray(rows), np.asarray(codes)
    if rows.shape != (len(codes), *shape) or codes.ndim != 1 or codes.dtype.kind != "i":
        raise ValueError(f"references must be rows of shape {shape} with class numbers, got {rows.shape}")
    if not np.isfinite(rows).all() or set(np.unique(codes)) != set(range(k)):
        raise ValueError("references must be finite rows of every class")
    if weights is not None:
        weights = check.check_finite(weights, "weights of references", ndim=1)
        if len(weights) != len(codes) or weights.min() <= 0:
            raise ValueError("weights of references must be positive, one for each row")
    return References(rows, codes, weights)
