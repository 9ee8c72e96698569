"""Cross-fitting the pair model: every row is scored by a fold that did not train on it, new rows by all folds.

Factorised folds give posteriors directly. Pair-wise folds give similarities to references (rows the fold did not train on,
the row itself left out), which are solved for posteriors: q = S y (the paper's Algorithm 2), at uniform priors because pairs
are sampled with classes in equal shares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from joblib import Parallel, delayed

from collidescope._checks import FloatArray, IntArray
from collidescope._progress import Progress
from collidescope._scaling import apply_scaling, fit_scaling
from collidescope.gramian import gramian_from_similarities
from collidescope.posterior import shift_priors, solve_posteriors
from collidescope.recovery import recover

#: Ridges tried for the pair-wise model's posteriors; the one with the lowest held-out log loss is kept.
RIDGES = (0.0, 1e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
SMALLEST_PROBABILITY = 1e-6


@dataclass
class PairSolver:
    """How similarities to a fold's references become posteriors."""

    recovery: str = "root"
    correction: bool = True
    solver: str = "simplex"
    n_references: int | None = None
    ridge: float = 0.0
    matrix: FloatArray = field(default_factory=lambda: np.eye(2))
    references: list[tuple[npt.NDArray[np.float32], IntArray]] = field(default_factory=list)

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

    def choose_ridge(self, q: FloatArray, codes: IntArray, train_priors: FloatArray) -> None:
        """Keep the ridge with the lowest held-out log loss (the inverse uses none)."""
        if self.solver == "inverse":
            return
        losses = []
        for self.ridge in RIDGES:
            own = self.solve(q, train_priors)[np.arange(len(codes)), codes]
            losses.append(-np.log(np.maximum(own, SMALLEST_PROBABILITY)).mean())
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

    @property
    def interrupted(self) -> bool:
        """Was training ended by Ctrl-C?"""
        return any(fold.interrupted for fold in self.folds)

    def posteriors(self, X: Any) -> FloatArray:
        """Posteriors of new rows at ``train_priors``, averaged over the folds."""
        from collidescope.contrastive import bridge

        scaled = apply_scaling(X, self.centre, self.scale)
        if self.pairs is None:
            return np.asarray(np.mean([bridge.posteriors(fold, scaled) for fold in self.folds], axis=0))
        parts = zip(self.folds, self.pairs.references, strict=True)
        q = [bridge.class_similarity(fold, scaled, *refs, None, self.pairs.correction)[0] for fold, refs in parts]
        return self.pairs.solve(np.mean(q, axis=0), self.train_priors)

    def pair_similarity(self, A: Any, B: Any) -> FloatArray:
        """Sim of every pair of new rows from the pair-wise folds, at uniform priors."""
        from collidescope.contrastive import bridge

        assert self.pairs is not None
        first, second = (apply_scaling(Z, self.centre, self.scale) for Z in (A, B))
        scores = [bridge.pair_similarity(fold, first, second, self.pairs.correction) for fold in self.folds]
        return np.asarray(np.mean(scores, axis=0))

    def export(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Plain arrays and a JSON-able description."""
        from collidescope.contrastive import bridge

        arrays = {"centre": self.centre, "scale": self.scale, "train_priors": self.train_priors}
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
            for i, (rows, codes) in enumerate(self.pairs.references):
                arrays |= {f"pairs/{i}/rows": rows, f"pairs/{i}/codes": codes}
        return arrays, description

    @classmethod
    def from_export(
        cls,
        arrays: Mapping[str, npt.NDArray[Any]],
        description: Mapping[str, Any],
        factory: Callable[[int, int], Any] | None,
    ) -> CrossFit:
        """The inverse of :meth:`export`; raises KeyError, TypeError or ValueError on what does not fit."""
        from collidescope.contrastive import bridge

        folds = []
        for i, described in enumerate(description["folds"]):
            prefix = f"fold{i}/"
            own = {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
            folds.append(bridge.import_fold(own, described, factory))
        pairs = None
        if description["pairs"] is not None:
            references = [(arrays[f"pairs/{i}/rows"], arrays[f"pairs/{i}/codes"]) for i in range(len(folds))]
            pairs = PairSolver(**description["pairs"], matrix=arrays["pairs/matrix"], references=references)
        return cls(folds, arrays["centre"], arrays["scale"], arrays["train_priors"], pairs)


@dataclass
class HeldOut:
    """Held-out scores of the training rows: posteriors at the training priors, and the Gramian of a pair-wise model."""

    rows: IntArray
    posteriors: FloatArray
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

    After Ctrl-C the folds trained so far are kept, the last of them with its best weights, and ``HeldOut.rows`` are theirs.
    """
    from collidescope.contrastive import bridge

    k = int(codes.max()) + 1
    centre, scale = fit_scaling(X)
    scaled = apply_scaling(X, centre, scale)
    counts = np.bincount(codes, sample_weight, k)

    def one(number: int, report: Any = None) -> Any:
        train = splits[number][0]
        where = None if checkpoint is None else Path(checkpoint) / f"fold-{number}"
        weight = None if sample_weight is None else sample_weight[train]
        return bridge.train_fold(scaled[train], codes[train], k, config, seeds[number], weight, factory, report, where)

    folds: list[Any] = []
    with Progress("training folds", len(splits), verbose) as progress:
        if n_jobs in (None, 1):
            for number in range(len(splits)):
                folds.append(one(number, progress.report))
                progress.step()
                if folds[-1].interrupted:
                    break
        else:
            for fold in Parallel(n_jobs=n_jobs, return_as="generator")(delayed(one)(i) for i in range(len(splits))):
                folds.append(fold)
                progress.step()
    fitted = CrossFit(folds, centre, scale, counts / counts.sum(), pairs)
    held_out = [test for _, test in splits[: len(folds)]]
    return fitted, _score(fitted, scaled, codes, sample_weight, held_out, rng)


def _score(
    fitted: CrossFit,
    X: npt.NDArray[np.float32],
    codes: IntArray,
    weights: FloatArray | None,
    held_out: list[IntArray],
    rng: np.random.Generator | None,
) -> HeldOut:
    from collidescope.contrastive import bridge

    rows = np.sort(np.concatenate(held_out))
    scores = np.full((len(X), len(fitted.train_priors)), np.nan)
    pairs = fitted.pairs
    if pairs is None:
        for fold, test in zip(fitted.folds, held_out, strict=True):
            scores[test] = bridge.posteriors(fold, X[test])
        return HeldOut(rows, scores[rows], None, None)
    noise = []
    for fold, test in zip(fitted.folds, held_out, strict=True):
        chosen = pairs.choose_references(codes[test], rng or np.random.default_rng())
        exclude = np.full(len(test), -1, dtype=np.intp)
        exclude[chosen] = np.arange(len(chosen))
        pairs.references.append((X[test[chosen]], codes[test[chosen]]))
        scores[test], stderr = bridge.class_similarity(fold, X[test], *pairs.references[-1], exclude, pairs.correction)
        noise.append(stderr)
    q, labels = scores[rows], codes[rows]
    G = gramian_from_similarities(q, labels, None if weights is None else weights[rows])
    pairs.matrix = recover(G, method=pairs.recovery).matrix
    pairs.choose_ridge(q, labels, fitted.train_priors)
    return HeldOut(rows, pairs.solve(q, fitted.train_priors), G, float(np.mean(np.concatenate(noise))))
