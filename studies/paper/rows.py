"""The methods that every table compares, from the paper as printed to ours, one step at a time.

Each row adds one thing to the row above it:

as printed        one V trained on all of T, averages over T, descent, S⁻¹q, no logit shift
+ cross-fitting   five networks, each scores rows that it was not trained on
+ logit shift     logit Sim = logit V - log(K - 1)
+ closed form     the root of G instead of the descent; least squares on the simplex, not S⁻¹q
+ one-step        mean(c pᵀ + p cᵀ - p pᵀ) with the posteriors p of the row above
ours              the package's default, which trains no V

Beside them: as printed with a quarter of the steps, the logit shift alone (one V, averages over
T), and the paper's Algorithm 3.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.model_selection import StratifiedKFold
from torch import nn

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
)
from collidescope.training.loop import fit_loop, seeded_module
from collidescope.training.networks import FactorisedObjective, OneMember, mlp
from collidescope.training.rows import as_rows, labels_and_weights, tensor

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]

PRINTED = "as printed"
CROSS_FIT = "+ cross-fitting"
SHIFT = "+ logit shift"
CLOSED = "+ closed form"
ONE_STEP = "+ one-step"
OURS = "ours"
#: Each adds one thing to the one before it.
STEPS = (PRINTED, CROSS_FIT, SHIFT, CLOSED, ONE_STEP, OURS)
EARLY = "as printed, a quarter of the steps"
SHIFT_ALONE = "as printed, with the logit shift alone"
PLAIN = "plain network (Algorithm 3)"
ORDER = (*STEPS, EARLY, SHIFT_ALONE, PLAIN)


def shifted(V: FloatArray, n_classes: int) -> FloatArray:
    """Sim at uniform priors from V: its logit less log(K - 1)."""
    return V / (V + (n_classes - 1) * (1 - V))


@dataclass(frozen=True)
class Shifted:
    """A model V with the logit shift taken off."""

    contrast: Contrast
    n_classes: int

    def grid(self, A: Any, B: Any) -> FloatArray:
        return shifted(self.contrast.grid(A, B), self.n_classes)

    def pairs(self, A: Any, B: Any) -> FloatArray:
        return shifted(self.contrast.pairs(A, B), self.n_classes)


@dataclass(frozen=True)
class Row:
    """What one method says."""

    matrix: FloatArray
    posteriors: FloatArray  #: of the new rows
    descent: Descent | None = None
    seconds: float = 0.0  #: processor time


@dataclass(frozen=True)
class Data:
    """A sample, its class numbers, and new rows."""

    X: FloatArray
    codes: IntArray
    n_classes: int
    X_new: FloatArray

    def by_class(self) -> list[FloatArray]:
        """T_1 … T_K."""
        return [self.X[self.codes == k] for k in range(self.n_classes)]


@dataclass(frozen=True)
class Averages:
    """Means of a V: Ĝ over pairs of T, and q of the new rows."""

    gramian: FloatArray
    q: FloatArray


def averages(
    V: Contrast, data: Data, pairs_per_entry: int | None, seed: int
) -> Averages:
    """Step B (34), and (38) with 50 points of each class."""
    parts = data.by_class()
    G = step_b(V, parts, pairs_per_entry, np.random.default_rng(seed))
    rng = np.random.default_rng(seed + 1)
    points = [rng.permutation(part)[:50] for part in parts]
    return Averages(G, expected_similarity(V, data.X_new, points))


@dataclass(frozen=True)
class Printed:
    """V trained on all of T, and its averages over T: as it is, and with the logit shift."""

    plain: Averages
    shift: Averages
    seconds: float  #: of training V alone


def trained_verbatim(data: Data, settings: PrintedSettings, seed: int) -> Printed:
    """Steps A and B of Algorithm 1 as printed."""
    started = time.process_time()
    V = step_a(data.X, data.codes, settings, seed)
    seconds = time.process_time() - started
    return printed_averages(V, data, settings, seed, seconds)


def printed_averages(
    V: Contrast,
    data: Data,
    settings: PrintedSettings,
    seed: int,
    seconds: float = 0.0,
) -> Printed:
    """Step B with V, and with the similarity that follows from it."""
    m = settings.pairs_per_entry
    similarity = Shifted(V, data.n_classes)
    plain = averages(V, data, m, seed)
    return Printed(plain, averages(similarity, data, m, seed), seconds)


def read_verbatim(printed: Printed, settings: PrintedSettings) -> dict[str, Row]:
    """Step C and Algorithm 2 as printed, with fewer steps, and with the logit shift alone."""
    fewer = replace(settings, max_steps=settings.max_steps // 4)
    plain = printed.plain
    shift = printed.shift
    return {
        PRINTED: descended(plain.gramian, plain.q, settings, printed.seconds),
        EARLY: descended(plain.gramian, plain.q, fewer, printed.seconds),
        SHIFT_ALONE: descended(shift.gramian, shift.q, settings, printed.seconds),
    }


def descended(
    G: FloatArray, q: FloatArray, settings: PrintedSettings, seconds: float
) -> Row:
    """S by the paper's descent, posteriors by S⁻¹q."""
    descent = settings.descend(G)
    posteriors = solve_printed(descent.matrix, q)
    return Row(descent.matrix, posteriors, descent, seconds)


class HeldOut:
    """Mean score of every row with the other rows of each class, by networks trained on neither."""

    def __init__(self, data: Data, cv: int) -> None:
        k = data.n_classes
        self.q = np.empty((len(data.codes), k))
        self.q_new = np.zeros((len(data.X_new), k))  #: a mean over the folds
        self.cv = cv

    def add(
        self,
        test: IntArray,
        points: IntArray,
        data: Data,
        among: FloatArray,
        new: FloatArray,
    ) -> None:
        """Scores of the rows of a fold with its comparison points, and of new rows with them."""
        members = np.eye(data.n_classes)[data.codes[points]]
        itself = test[:, None] == points
        self.q[test] = without_itself(among, members, itself)
        shares = members / members.sum(axis=0)
        self.q_new += new @ shares / self.cv


@dataclass(frozen=True)
class CrossFit:
    """Held-out scores: of V as it is, and with the logit shift."""

    plain: HeldOut
    similar: HeldOut

    def add(self, V: Contrast, data: Data, test: IntArray, points: IntArray) -> None:
        """Score the rows of a fold with V, which was trained on none of them."""
        k = data.n_classes
        among = V.grid(data.X[test], data.X[points])
        new = V.grid(data.X_new, data.X[points])
        self.plain.add(test, points, data, among, new)
        self.similar.add(test, points, data, shifted(among, k), shifted(new, k))


def folds_of(data: Data, seed: int, cv: int) -> list[tuple[IntArray, IntArray]]:
    """Rows to train on and rows held out, stratified."""
    folds = StratifiedKFold(cv, shuffle=True, random_state=seed)
    return list(folds.split(data.X, data.codes))


def cross_fitted(
    data: Data, settings: PrintedSettings, seed: int, cv: int = 5
) -> dict[str, Row]:
    """Four estimates from the same held-out scores."""
    started = time.process_time()
    scores = CrossFit(HeldOut(data, cv), HeldOut(data, cv))
    for number, (train, test) in enumerate(folds_of(data, seed, cv)):
        own_seed = seed + 1000 * number
        V = step_a(data.X[train], data.codes[train], settings, own_seed)
        scores.add(V, data, test, test)
    seconds = time.process_time() - started
    return read_cross_fit(scores, data, settings, seconds)


def read_cross_fit(
    scores: CrossFit, data: Data, settings: PrintedSettings, seconds: float = 0.0
) -> dict[str, Row]:
    """Descent without and with the logit shift, the closed form, and the one-step estimate."""
    plain = scores.plain
    similar = scores.similar
    G_plain = class_means(plain.q, data.codes)
    G = class_means(similar.q, data.codes)
    root = recover(G).matrix
    held_out = solve_posteriors(similar.q, root, ridge=0.01)
    new = solve_posteriors(similar.q_new, root, ridge=0.01)
    one_step = collision_matrix_from_posteriors(held_out, data.codes, priors="uniform")
    return {
        CROSS_FIT: descended(G_plain, plain.q_new, settings, seconds),
        SHIFT: descended(G, similar.q_new, settings, seconds),
        CLOSED: Row(root, new, None, seconds),
        ONE_STEP: Row(one_step.matrix, new, None, seconds),
    }


def class_means(q: FloatArray, codes: IntArray) -> FloatArray:
    """The mean of q within each class: Ĝ; of posteriors, S by Algorithm 3."""
    means = [q[codes == c].mean(axis=0) for c in range(q.shape[1])]
    return np.array(means)


def without_itself(
    scores: FloatArray, members: FloatArray, itself: npt.NDArray[np.bool_]
) -> FloatArray:
    """Mean score of every row with the points of each class, but for the row itself.

    ``scores`` and ``itself`` are (rows, points), ``members`` the one-hot labels of the points.
    """
    others = np.where(itself, 0.0, scores)
    return others @ members / (members.sum(axis=0) - itself @ members)


def plain_network(data: Data, settings: PrintedSettings, seed: int) -> Row:
    """Algorithm 3: a classifier of the same size and epochs, averaged over its training rows."""
    started = time.process_time()
    network = trained_classifier(data, settings, seed)
    of_all = posteriors(network, data.X)
    S = class_means(of_all, data.codes)
    seconds = time.process_time() - started
    return Row(S, posteriors(network, data.X_new), None, seconds)


def trained_classifier(data: Data, settings: PrintedSettings, seed: int) -> nn.Module:
    """A network from x to K classes, on all rows."""
    config = settings.training()
    y, _ = labels_and_weights(data.codes, None, "cpu")
    everything = torch.arange(len(y))
    nothing = everything[:0]
    rows = as_rows(data.X, "cpu")
    objective = FactorisedObjective(rows, y, [(everything, nothing)], config)
    inputs = data.X.shape[1]

    def build() -> OneMember:
        return OneMember(mlp(inputs, data.n_classes, settings.hidden_layer_sizes))

    return fit_loop(seeded_module(build, seed), objective, config, seed).module


def posteriors(network: nn.Module, X: FloatArray) -> FloatArray:
    """Softmax of the one member's outputs."""
    with torch.inference_mode():
        logits = network(tensor(X)[None])[0]
    return torch.softmax(logits.double(), -1).numpy()


def ours(data: Data, seed: int) -> Row:
    """The package's default at uniform priors."""
    started = time.process_time()
    clf = CollisionClassifier(limit=False, priors="uniform", random_state=seed)
    clf.fit(data.X, data.codes)
    seconds = time.process_time() - started
    return Row(
        clf.collision_matrix_.matrix, clf.predict_proba(data.X_new), None, seconds
    )
