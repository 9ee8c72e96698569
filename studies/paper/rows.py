"""The methods that every table compares, from the paper as printed to ours, one step at a time.

Each row adds one thing to the row above it:

as printed        one V trained on all of T, averages over T, descent, S⁻¹q, no logit shift
  stopped early   the same descent after a quarter of its steps
+ logit shift     logit Sim = logit V - log(K - 1)
+ cross-fitting   five networks, each scores rows that it was not trained on
+ closed form     the root of G instead of the descent; least squares on the simplex instead of S⁻¹q
+ one-step        mean(c pᵀ + p cᵀ - p pᵀ) with the posteriors p of the row above
ours              the package's default, which trains no V
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.model_selection import StratifiedKFold

from collidescope import (
    CollisionClassifier,
    collision_matrix_from_posteriors,
    recover,
    solve_posteriors,
)
from collidescope.pairwise.printed import (
    Contrast,
    Descent,
    PrintedSettings,
    expected_similarity,
    solve_printed,
    step_a,
    step_b,
    step_c,
)
from collidescope.training.loop import fit_loop, seeded_module
from collidescope.training.networks import FactorisedObjective, OneMember, mlp
from collidescope.training.rows import as_rows, labels_and_weights, tensor

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]

PRINTED = "as printed"
EARLY = "as printed, stopped early"
SHIFT = "+ logit shift"
CROSS_FIT = "+ cross-fitting"
CLOSED = "+ closed form"
ONE_STEP = "+ one-step"
OURS = "ours"
PLAIN = "plain network (Algorithm 3)"
ORDER = (PRINTED, EARLY, SHIFT, CROSS_FIT, CLOSED, ONE_STEP, OURS, PLAIN)


@dataclass(frozen=True)
class Shifted:
    """V with the logit shift taken off: an estimate of Sim at uniform priors."""

    contrast: Contrast
    n_classes: int

    def grid(self, A: Any, B: Any) -> FloatArray:
        return self._shifted(self.contrast.grid(A, B))

    def pairs(self, A: Any, B: Any) -> FloatArray:
        return self._shifted(self.contrast.pairs(A, B))

    def _shifted(self, V: FloatArray) -> FloatArray:
        return V / (V + (self.n_classes - 1) * (1 - V))


@dataclass(frozen=True)
class Row:
    """What one method says."""

    matrix: FloatArray
    posteriors: FloatArray | None = None  #: of the new rows
    descent: Descent | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Data:
    """A sample, its class numbers, and new rows."""

    X: FloatArray
    codes: IntArray
    n_classes: int
    X_new: FloatArray

    def by_class(self, rows: IntArray | None = None) -> list[FloatArray]:
        """T_1 … T_K, of some rows or of all."""
        X, codes = self.X, self.codes
        if rows is not None:
            X, codes = X[rows], codes[rows]
        return [X[codes == k] for k in range(self.n_classes)]


def all_rows(
    data: Data, settings: PrintedSettings, seed: int, with_ours: bool = True
) -> dict[str, Row]:
    """Every method, on one sample."""
    found = {
        **trained_on_all(data, settings, seed),
        **cross_fitted(data, settings, seed),
        PLAIN: plain_network(data, settings, seed),
    }
    if with_ours:
        found[OURS] = ours(data, seed)
    return found


def trained_on_all(data: Data, settings: PrintedSettings, seed: int) -> dict[str, Row]:
    """Algorithms 1 and 2 as printed, and with the logit shift."""
    started = time.perf_counter()
    V = step_a(data.X, data.codes, settings, seed)
    trained = time.perf_counter() - started
    found = {}
    for name, contrast in {PRINTED: V, SHIFT: Shifted(V, data.n_classes)}.items():
        started = time.perf_counter()
        rng = np.random.default_rng(seed)
        G = step_b(contrast, data.by_class(), settings.pairs_per_entry, rng)
        descent = descend(G, settings)
        points = [rng.permutation(part)[:50] for part in data.by_class()]
        q = expected_similarity(contrast, data.X_new, points)
        seconds = trained + time.perf_counter() - started
        found[name] = Row(
            descent.matrix, solve_printed(descent.matrix, q), descent, seconds
        )
        if name == PRINTED:
            fewer = replace(settings, max_steps=settings.max_steps // 4)
            early = descend(G, fewer)
            found[EARLY] = Row(
                early.matrix, solve_printed(early.matrix, q), early, seconds
            )
    return found


def descend(G: FloatArray, settings: PrintedSettings) -> Descent:
    """Step C with the settings' λ, η, γ and limit."""
    return step_c(
        G,
        penalty=settings.penalty,
        step_size=settings.step_size,
        tolerance=settings.tolerance,
        max_steps=settings.max_steps,
    )


def cross_fitted(
    data: Data, settings: PrintedSettings, seed: int, cv: int = 5
) -> dict[str, Row]:
    """V of every fold scores the rows of the fold; three estimates from the same scores."""
    started = time.perf_counter()
    k = data.n_classes
    q = np.empty((len(data.codes), k))
    q_new = np.zeros((len(data.X_new), k))
    folds = StratifiedKFold(cv, shuffle=True, random_state=seed)
    for number, (train, test) in enumerate(folds.split(data.X, data.codes)):
        V = step_a(data.X[train], data.codes[train], settings, seed + 1000 * number)
        contrast = Shifted(V, k)
        q[test] = without_itself(contrast, data.X[test], data.codes[test], k)
        q_new += expected_similarity(contrast, data.X_new, data.by_class(test)) / cv
    means = [q[data.codes == c].mean(axis=0) for c in range(k)]
    G = np.array(means)
    seconds = time.perf_counter() - started
    descent = descend(G, settings)
    root = recover(G).matrix
    held_out = solve_posteriors(q, root, ridge=0.01)
    new = solve_posteriors(q_new, root, ridge=0.01)
    one_step = collision_matrix_from_posteriors(
        held_out, data.codes, priors="uniform"
    ).matrix
    printed_new = solve_printed(descent.matrix, q_new)
    return {
        CROSS_FIT: Row(descent.matrix, printed_new, descent, seconds),
        CLOSED: Row(root, new, None, seconds),
        ONE_STEP: Row(one_step, new, None, seconds),
    }


def without_itself(
    contrast: Contrast, X: FloatArray, codes: IntArray, k: int
) -> FloatArray:
    """Mean similarity of every row to the other rows of each class."""
    scores = contrast.grid(X, X)
    np.fill_diagonal(scores, 0.0)
    onto = np.eye(k)[codes]
    others = onto.sum(axis=0) - onto
    return scores @ onto / others


def plain_network(data: Data, settings: PrintedSettings, seed: int) -> Row:
    """Algorithm 3: a classifier of the same size and epochs, averaged over its own training rows."""
    started = time.perf_counter()
    config = settings.training()
    y, _ = labels_and_weights(data.codes, None, "cpu")
    everything = torch.arange(len(y))
    rows = as_rows(data.X, "cpu")
    objective = FactorisedObjective(rows, y, [(everything, everything[:0])], config)

    def build() -> OneMember:
        sizes = settings.hidden_layer_sizes
        return OneMember(mlp(data.X.shape[1], data.n_classes, sizes))

    network = fit_loop(seeded_module(build, seed), objective, config, seed).module

    def posteriors(X: FloatArray) -> FloatArray:
        with torch.inference_mode():
            logits = network(tensor(X)[None])[0]
        return torch.softmax(logits.double(), -1).numpy()

    of_all = posteriors(data.X)
    means = [of_all[data.codes == k].mean(axis=0) for k in range(data.n_classes)]
    seconds = time.perf_counter() - started
    return Row(np.array(means), posteriors(data.X_new), None, seconds)


def ours(data: Data, seed: int) -> Row:
    """The package's default at uniform priors."""
    started = time.perf_counter()
    clf = CollisionClassifier(limit=False, priors="uniform", random_state=seed)
    clf.fit(data.X, data.codes)
    seconds = time.perf_counter() - started
    return Row(
        clf.collision_matrix_.matrix, clf.predict_proba(data.X_new), None, seconds
    )


def tvd(found: FloatArray, truth: FloatArray) -> tuple[float, float]:
    """Mean and largest total variation distance of the rows."""
    distances = np.abs(found - truth).sum(axis=1) / 2
    return float(distances.mean()), float(distances.max())
