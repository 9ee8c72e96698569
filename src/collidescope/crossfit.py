"""Cross-fitting the pair model: every row is scored by a fold that did not train on it, new rows by all folds.

Factorised folds give posteriors directly. Pair-wise folds give similarities to references (rows the fold did not train
on, the row itself left out), which are solved for posteriors: q = S y (the paper's Algorithm 2), at uniform priors
because pairs are sampled with classes in equal shares.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from joblib import Parallel, delayed

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope._progress import Progress
from collidescope._scaling import fit_scaling
from collidescope.equations.gramian import gramian_from_similarities
from collidescope.equations.posterior import shift_priors, solve_posteriors
from collidescope.equations.recovery import recover
from collidescope.scale import _dask

#: Ridges tried for the pair-wise model's posteriors; the one with the lowest held-out log loss is kept.
RIDGES = (0.0, 1e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
SMALLEST_PROBABILITY = 1e-6
#: Held-out posteriors of more numbers than this are kept in float32: half of the memory, and networks know no more.
DOUBLE_NUMBERS = 2**26
#: Posteriors that are computed at once, in numbers (float64, and a few copies on the way).
SCORED_NUMBERS = 2**24


class WorkerError(RuntimeError):
    """A process that trained a fold (``n_jobs``) died."""


def _in_worker(task: Callable[[int], Any], number: int, parent: int) -> Any:
    """``task(number)`` in a process that ends soon after ``parent``: killed, that one cannot end its workers itself."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)  # joblib's tracker then removes the shared memory

    # Only joblib's own processes: those of another backend have other parents, on other machines.
    started = {thread.name for thread in threading.enumerate()}
    if multiprocessing.current_process().name.startswith("LokyProcess") and "parent" not in started:
        threading.Thread(target=watch, name="parent", daemon=True).start()
    return task(number)


class References(NamedTuple):
    """Rows of a fold that others are compared with."""

    rows: npt.NDArray[np.float32]
    codes: IntArray
    #: None when all weigh the same.
    weights: FloatArray | None


@dataclass
class PairSolver:
    """How similarities to a fold's references become posteriors."""

    recovery: str = "root"
    correction: bool = True
    solver: str = "simplex"
    n_references: int | None = None
    ridge: float = 0.0
    matrix: FloatArray = field(default_factory=lambda: np.eye(2))
    references: list[References] = field(default_factory=list)

    def solve(self, q: FloatArray, train_priors: FloatArray) -> FloatArray:
        """Posteriors at ``train_priors`` from similarities at uniform priors."""
        uniform = np.full(len(train_priors), 1 / len(train_priors))
        y = solve_posteriors(q, self.matrix, self.solver, self.ridge, uniform)
        if self.solver == "inverse":
            # The paper's S⁻¹ q may leave the simplex; probabilities may not.
            y = np.maximum(y, 0.0)
            total = y.sum(axis=1, keepdims=True)
            y = np.divide(y, total, out=np.tile(uniform, (len(y), 1)), where=total > 0)
        return shift_priors(y, uniform, train_priors)

    def choose_ridge(
        self, q: FloatArray, codes: IntArray, train_priors: FloatArray, weights: FloatArray | None = None
    ) -> None:
        """Keep the ridge with the lowest held-out log loss (the inverse uses none)."""
        if self.solver == "inverse":
            return
        losses = []
        for self.ridge in RIDGES:
            own = self.solve(q, train_priors)[np.arange(len(codes)), codes]
            losses.append(-np.average(np.log(np.maximum(own, SMALLEST_PROBABILITY)), weights=weights))
        self.ridge = RIDGES[int(np.argmin(losses))]

    def choose_references(self, codes: IntArray, rng: np.random.Generator) -> IntArray:
        """Rows of a fold that serve as comparison points: all, or so many of each class."""
        if self.n_references is None:
            return np.arange(len(codes))
        picked = [rng.permutation(np.flatnonzero(codes == c))[: self.n_references] for c in np.unique(codes)]
        return np.sort(np.concatenate(picked))


@dataclass
class CrossFit:
    """Trained folds, and what is needed to score new rows with them."""

    folds: list[Any]
    centre: FloatArray
    scale: FloatArray
    train_priors: FloatArray
    pairs: PairSolver | None
    #: Was training ended by Ctrl-C?
    interrupted: bool = False

    def posteriors(self, X: Any) -> FloatArray:
        """Posteriors of new rows at ``train_priors``, averaged over the folds."""
        from collidescope.learners import bridge

        held = self._hold(X)
        if self.pairs is None:
            return np.asarray(sum(bridge.posteriors(fold, held) for fold in self.folds) / len(self.folds))
        parts = zip(self.folds, self.pairs.references, strict=True)
        q = [bridge.class_similarity(fold, held, *refs, None, self.pairs.correction)[0] for fold, refs in parts]
        return self.pairs.solve(np.mean(q, axis=0), self.train_priors)

    def _hold(self, X: Any) -> Any:
        from collidescope.learners import bridge

        return bridge.hold(X, self.centre, self.scale, bridge.device_of(self.folds[0]))

    def pair_similarity(self, A: Any, B: Any) -> FloatArray:
        """Sim of every pair of new rows from the pair-wise folds, at uniform priors."""
        from collidescope.learners import bridge

        assert self.pairs is not None
        first, second = self._hold(A), self._hold(B)
        scores = [bridge.pair_similarity(fold, first, second, self.pairs.correction) for fold in self.folds]
        return np.asarray(np.mean(scores, axis=0))

    def export(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Plain arrays and a JSON-able description."""
        from collidescope.learners import bridge

        arrays: dict[str, npt.NDArray[Any]] = {"centre": self.centre, "scale": self.scale}
        arrays["train_priors"] = self.train_priors
        folds = []
        for i, fold in enumerate(self.folds):
            own, described = bridge.export_fold(fold)
            arrays |= {f"fold{i}/{name}": array for name, array in own.items()}
            folds.append(described)
        description: dict[str, Any] = {"folds": folds, "pairs": None}
        if self.pairs is not None:
            names = ("recovery", "correction", "solver", "n_references", "ridge")
            description["pairs"] = {name: getattr(self.pairs, name) for name in names}
            arrays["pairs/matrix"] = self.pairs.matrix
            for i, references in enumerate(self.pairs.references):
                named = references._asdict().items()
                arrays |= {f"pairs/{i}/{name}": array for name, array in named if array is not None}
        return arrays, description

    @classmethod
    def from_export(
        cls,
        arrays: Mapping[str, npt.NDArray[Any]],
        description: Mapping[str, Any],
        factory: Callable[[int, int], Any] | None,
    ) -> CrossFit:
        """The inverse of :meth:`export`; raises KeyError, TypeError or ValueError on what does not fit."""
        from collidescope.learners import bridge

        priors = check.check_priors(arrays["train_priors"], len(arrays["train_priors"]), "train_priors")
        centre, scale = (check.check_finite(arrays[name], name, ndim=1) for name in ("centre", "scale"))
        folds = []
        for i, described in enumerate(description["folds"]):
            if described["n_classes"] != len(priors):  # before memory is taken for as many as it says
                raise ValueError(f"fold {i} must have {len(priors)} classes, got {described['n_classes']!r}")
            prefix = f"fold{i}/"
            own = {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
            folds.append(bridge.import_fold(own, described, factory))
        if not folds:
            raise ValueError("folds must not be empty")
        shape, k = folds[0].input_shape, len(priors)
        for fold in folds:
            if fold.input_shape != shape or fold.n_classes != k:
                raise ValueError(f"folds must agree on rows of shape {shape} and {k} classes")
        if centre.shape != scale.shape or len(centre) != (shape[0] if len(shape) == 1 else 1):
            raise ValueError(f"centre and scale do not fit rows of shape {shape}, got {centre.shape}, {scale.shape}")
        pairs = None
        if description["pairs"] is not None:
            references = [_references(arrays, i, shape, k) for i in range(len(folds))]
            matrix = check.check_stochastic(arrays["pairs/matrix"], "pairs/matrix")
            pairs = PairSolver(**_solver_settings(description["pairs"]), matrix=matrix, references=references)
            if len(matrix) != k:
                raise ValueError(f"pairs/matrix must be {k}×{k}, got {matrix.shape}")
        if any(described["model"] != ("pairwise" if pairs else "factorised") for described in description["folds"]):
            raise ValueError("pairs and folds do not belong together")
        return cls(folds, centre, scale, priors, pairs)


@dataclass
class HeldOut:
    """Held-out scores of the training rows: posteriors at the training priors, and the Gramian of a pair-wise model.

    Posteriors of more than ``DOUBLE_NUMBERS`` numbers are float32. Whoever takes them may overwrite them.
    """

    rows: IntArray
    posteriors: npt.NDArray[Any]
    gramian: FloatArray | None
    reference_stderr: float | None


def cross_fit(
    X: Any,
    codes: IntArray,
    splits: Sequence[tuple[IntArray, IntArray]],
    config: Any,
    seeds: Sequence[int],
    *,
    sample_weight: FloatArray | None = None,
    factory: Callable[[int, int], Any] | None = None,
    pairs: PairSolver | None = None,
    rng: np.random.Generator | None = None,
    checkpoint: str | Path | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> tuple[CrossFit, HeldOut]:
    """Train one fold per split and score every row of its other part.

    After Ctrl-C the folds trained so far are kept, the last one with its best weights, and ``HeldOut.rows`` are theirs.
    When nothing was trained yet there is nothing to keep, and KeyboardInterrupt is raised.
    """
    from collidescope.learners import bridge

    k = int(codes.max()) + 1
    centre, scale = fit_scaling(X)
    held = bridge.hold(X, centre, scale, config.device)
    counts = np.bincount(codes, sample_weight, k)

    def one(number: int, report: Any = None) -> Any:
        train = splits[number][0]
        where = None if checkpoint is None else Path(checkpoint) / f"fold-{number}"
        weight = None if sample_weight is None else sample_weight[train]
        rows = bridge.rows_of(held, train)
        return bridge.train_fold(rows, codes[train], k, config, seeds[number], weight, factory, report, where)

    folds: list[Any] = []
    interrupted = False
    with Progress("training folds", len(splits), verbose) as progress:
        if n_jobs in (None, 1):
            trained = (one(number, progress.report) for number in range(len(splits)))
        elif (cluster := _dask.cluster()) is not None:
            trained = _dask.results(cluster, one, len(splits))
        else:
            jobs = (delayed(_in_worker)(one, number, os.getpid()) for number in range(len(splits)))
            trained = Parallel(n_jobs=n_jobs, return_as="generator")(jobs)
        try:
            for fold in trained:
                if not bridge.is_trained(fold):
                    raise KeyboardInterrupt
                folds.append(fold)
                progress.step()
                if fold.interrupted:
                    interrupted = True
                    break
        except KeyboardInterrupt:
            if not folds:
                raise
            interrupted = True
        except BrokenExecutor as error:
            raise WorkerError(
                f"a worker process died with {len(folds)} of {len(splits)} folds trained, mostly because the system "
                f"ended it for want of memory: use n_jobs=1. With checkpoint= the same fit goes on from its last epochs"
            ) from error
    fitted = CrossFit(folds, centre, scale, counts / counts.sum(), pairs, interrupted)
    held_out = [test for _, test in splits[: len(folds)]]
    return fitted, _score(fitted, held, codes, sample_weight, held_out, rng)


def _score(
    fitted: CrossFit,
    held: Any,
    codes: IntArray,
    weights: FloatArray | None,
    held_out: list[IntArray],
    rng: np.random.Generator | None,
) -> HeldOut:
    from collidescope.learners import bridge

    rows = np.sort(np.concatenate(held_out))
    k, pairs = len(fitted.train_priors), fitted.pairs
    if pairs is None:
        scores = np.empty((len(rows), k), np.float32 if len(rows) * k > DOUBLE_NUMBERS else np.float64)
        for fold, test in zip(fitted.folds, held_out, strict=True):
            for part in np.array_split(test, 1 + len(test) * k // SCORED_NUMBERS):
                scores[np.searchsorted(rows, part)] = bridge.posteriors(fold, bridge.rows_of(held, part))
        return HeldOut(rows, scores, None, None)
    scores = np.full((len(held), k), np.nan)
    noise = []
    for fold, test in zip(fitted.folds, held_out, strict=True):
        chosen = pairs.choose_references(codes[test], rng or np.random.default_rng())
        exclude = np.full(len(test), -1, dtype=np.intp)
        exclude[chosen] = np.arange(len(chosen))
        compared = test[chosen]
        weight = None if weights is None else weights[compared]
        pairs.references.append(References(np.asarray(bridge.rows_of(held, compared)), codes[compared], weight))
        rows_of_fold = bridge.rows_of(held, test)
        scores[test], stderr = bridge.class_similarity(
            fold, rows_of_fold, *pairs.references[-1], exclude, pairs.correction
        )
        noise.append(stderr)
    q, labels = scores[rows], codes[rows]
    w = None if weights is None else weights[rows]
    G = gramian_from_similarities(q, labels, w)
    pairs.matrix = recover(G, method=pairs.recovery).matrix
    pairs.choose_ridge(q, labels, fitted.train_priors, w)
    errors = np.concatenate(noise)
    # a reference row has one fewer of its own class, and from a single one no standard error can be told
    finite = errors[np.isfinite(errors)]
    return HeldOut(rows, pairs.solve(q, fitted.train_priors), G, float(finite.mean()) if finite.size else None)


def check_pair_members(
    codes: IntArray,
    classes: npt.NDArray[Any],
    splits: Sequence[tuple[IntArray, IntArray]],
    config: Any,
    seeds: Sequence[int],
) -> None:
    """Refuse classes too small for pairs before any fold is trained."""
    from collidescope.learners import bridge

    k = len(classes)
    for (train, test), seed in zip(splits, seeds, strict=True):
        few = bridge.lacks_pairs(codes[train], k, config, seed) | (np.bincount(codes[test], minlength=k) < 2)
        if few.any():
            need = int(np.ceil(2 / config.validation_fraction / (1 - 1 / len(splits))))
            own = np.bincount(codes, minlength=k)
            small = int(np.where(few, own, own.max() + 1).argmin())
            raise ValueError(
                f"model='pairwise' with cv={len(splits)} needs about {need} members of every class, "
                f"class {classes.tolist()[small]!r} has {own[small]}: "
                f"use model='factorised', gather more of it, or merge or drop it"
            )


def _solver_settings(stored: Mapping[str, Any]) -> dict[str, Any]:
    """What a file says of the solver, checked when it is read rather than when rows are scored."""
    check.check_choice(stored["recovery"], ["root", "gradient"], "recovery")
    check.check_choice(stored["solver"], ["simplex", "inverse"], "solver")
    check.check_at_least(stored["ridge"], 0.0, "ridge")
    if stored["n_references"] is not None:
        check.check_count(stored["n_references"], "n_references", least=2)
    return dict(stored) | {"correction": bool(stored["correction"])}


def _references(arrays: Mapping[str, npt.NDArray[Any]], i: int, shape: tuple[int, ...], k: int) -> References:
    rows, codes, weights = (arrays.get(f"pairs/{i}/{name}") for name in References._fields)
    if rows is None or codes is None:
        raise KeyError(f"pairs/{i}")
    if rows.shape != (len(codes), *shape) or codes.ndim != 1 or codes.dtype.kind != "i":
        raise ValueError(f"references of fold {i} must be rows of shape {shape} with class numbers, got {rows.shape}")
    if not np.isfinite(rows).all() or set(np.unique(codes)) != set(range(k)):
        raise ValueError(f"references of fold {i} must be finite rows of every class")
    if weights is not None:
        weights = check.check_finite(weights, f"the weights of references of fold {i}", ndim=1)
        if len(weights) != len(codes) or weights.min() <= 0:
            raise ValueError(f"the weights of references of fold {i} must be positive, one for each row")
    return References(rows, codes, weights)
