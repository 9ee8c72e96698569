"""Every statement of the grid (``studies/grid.py``): its ends in one sample, and the truth.

A statement is an interval or a limit that the package prints at 95%. The truth is a sum over the
kinds of input of a population. Statements that hold several numbers at once (all pairs, all
subgroups) count as held where all of them do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

import collidescope as cs
from collidescope.applications import collision_change, expected_distance
from collidescope.applications.annotators import agreement
from collidescope.equations.recalibration import raised
from collidescope.limit import Limit, limit_from_posteriors
from collidescope.matrix import CollisionMatrix

LEVEL = 0.95
#: Training sizes of the curves, and the size that a continuation is asked about.
SIZES = np.array([250, 500, 1000, 2000])
DOUBLED = 4000
ZERO = np.array(0.0)


@dataclass(frozen=True)
class Population:
    """Finitely many kinds of input with known posteriors: every expectation is a sum over them."""

    posteriors: np.ndarray  #: (M, K) y(x) of every kind
    weights: np.ndarray  #: (M,) how common it is

    @property
    def priors(self) -> np.ndarray:
        return self.weights @ self.posteriors

    def joint(self) -> np.ndarray:
        """B = E[y yᵀ]."""
        return self.posteriors.T @ (self.weights[:, None] * self.posteriors)

    def matrix(self) -> np.ndarray:
        B = self.joint()
        return B / B.sum(axis=1, keepdims=True)

    def pber(self) -> np.ndarray:
        return np.array(1 - np.trace(self.joint()))

    def bayes_error(self) -> np.ndarray:
        return self.error(self.posteriors.argmax(axis=1))

    def error(self, said: np.ndarray) -> np.ndarray:
        """Of a classifier that says ``said`` of every kind."""
        right = self.posteriors[np.arange(len(said)), said]
        return np.array(1 - self.weights @ right)

    def brier(self, told: np.ndarray) -> np.ndarray:
        """Expected Brier score of every kind, if told posteriors are ``told``."""
        return np.asarray(
            1 - 2 * (told * self.posteriors).sum(axis=1) + (told**2).sum(axis=1)
        )

    def shifted(self, priors: np.ndarray) -> Population:
        """The same classes at other priors."""
        density = self.weights[:, None] * self.posteriors / self.priors
        flow = density * priors
        total = flow.sum(axis=1)
        return Population(flow / total[:, None], total)


class Sample(NamedTuple):
    """Rows and what the estimators are told of them."""

    kinds: np.ndarray
    posteriors: np.ndarray
    labels: np.ndarray
    options: dict[str, Any]

    @property
    def clusters(self) -> dict[str, Any] | None:
        """The groups alone; None where applications cannot take the options."""
        if set(self.options) <= {"groups"}:
            return self.options
        return None


@dataclass(frozen=True)
class Option:
    """How samples are drawn, and the population that the statements are about."""

    name: str
    target: Population
    draw: Callable[[np.random.Generator], Sample]
    #: (M, K) posteriors that are told of every kind at the target's priors; default the true ones
    told: np.ndarray | None = None
    #: statements that are not made under this option, and why
    dropped: dict[str, str] = field(default_factory=dict)

    @property
    def posteriors(self) -> np.ndarray:
        if self.told is None:
            return self.target.posteriors
        return self.told

    @cached_property
    def later(self) -> np.ndarray:
        """The score with ``DOUBLED`` rows, a mean over the noise."""
        rng = np.random.default_rng(1)
        scores = []
        for _ in range(400):
            noise = rng.standard_normal(self.posteriors.shape)
            scores.append(
                self.target.weights @ self.target.brier(noisy(self.posteriors, noise))
            )
        return np.array(np.mean(scores))

    @cached_property
    def metrics(self) -> dict[str, float]:
        return population_metrics(self.target, self.posteriors)

    @cached_property
    def easy(self) -> np.ndarray:
        """The half of the kinds that is less ambiguous."""
        highest = self.target.posteriors.max(axis=1)
        return np.asarray(highest > np.median(highest))


class Held(NamedTuple):
    """One statement of one sample: its ends, and the truth it is about."""

    low: np.ndarray
    high: np.ndarray
    truth: np.ndarray
    at_once: bool = False  #: whether all its numbers are claimed together


def of(ends: Any, truth: Any, at_once: bool = False) -> Held:
    """From a pair of ends."""
    low, high = ends
    return Held(np.asarray(low), np.asarray(high), np.asarray(truth), at_once)


def draw_labels(rng: np.random.Generator, posteriors: np.ndarray) -> np.ndarray:
    """A label of every row, drawn from its posterior."""
    return (rng.random((len(posteriors), 1)) >= posteriors.cumsum(axis=1)[:, :-1]).sum(
        axis=1
    )


def noisy(posteriors: np.ndarray, noise: np.ndarray, size: int = DOUBLED) -> np.ndarray:
    """What a model of that many rows tells: noise on the logits that falls like size^-¼."""
    logits = np.log(np.maximum(posteriors, 1e-12))
    told = np.exp(logits + 0.5 * (size / SIZES[0]) ** -0.25 * noise)
    return told / told.sum(axis=1, keepdims=True)


def statements(option: Option, sample: Sample) -> Iterator[tuple[str, Held]]:
    """The statements about S and its range: quick to make."""
    S = option.target.matrix()
    cm = cs.collision_matrix_from_posteriors(
        sample.posteriors, sample.labels, **sample.options
    )
    low, high = cm.interval(LEVEL)
    yield "PBER", of(cm.pber_interval(LEVEL), option.target.pber())
    yield "S", Held(low, high, S)
    yield "recall", Held(np.diag(low), np.diag(high), np.diag(S))
    top = cm.top_collisions(1, LEVEL).iloc[0]
    entry = S[int(top["class"]), int(top["other"])]
    yield "top collision", of((top["low"], top["high"]), entry)
    yield (
        "Bayes error limit",
        of((0, cm.bayes_error_limit(LEVEL)), option.target.bayes_error()),
    )
    if 2 < cm.n_classes <= 20:
        yield from merged_statements(cm, option.target.joint())
    if cm.n_classes <= 20:
        yield from range_statements(option, sample)


def merged_statements(cm: CollisionMatrix, B: np.ndarray) -> Iterator[tuple[str, Held]]:
    """Of the first two classes merged."""
    merged = cm.merge([[0, 1]])
    A = np.eye(cm.n_classes)[:, 1:]
    A[0, 0] = 1
    joint = A.T @ B @ A
    S = joint / joint.sum(axis=1, keepdims=True)
    yield "merged S", of(merged.interval(LEVEL), S)
    yield "merged PBER", of(merged.pber_interval(LEVEL), 1 - np.trace(joint))


def curve(sample: Sample) -> Limit:
    """A curve whose excess falls like 1/√m, by noise added to the logits of every row."""
    k = sample.posteriors.shape[1]
    rng = np.random.default_rng(len(sample.labels))
    noise = rng.standard_normal((len(sample.labels), k))
    curves = [noisy(sample.posteriors, noise, size) for size in SIZES]
    given = dict(sample.options)
    priors = given.pop("priors", None)
    if isinstance(priors, str):
        priors = np.full(k, 1 / k)
    return limit_from_posteriors(curves, sample.labels, SIZES, priors=priors, **given)


def range_statements(option: Option, sample: Sample) -> Iterator[tuple[str, Held]]:
    """Of unlimited rows, and of twice the rows."""
    limit = curve(sample)
    yield "range of PBER", of(limit.pber_interval(LEVEL), option.target.pber())
    yield (
        "range of Bayes error",
        of(limit.bayes_error_interval(LEVEL), option.target.bayes_error()),
    )
    ends = limit.matrix.interval(LEVEL)
    if ends is not None:  # not stated of posteriors without skill
        yield "S∞", of(ends, option.target.matrix())
    low, _, high = limit.continuation([DOUBLED], LEVEL)
    yield "continuation", Held(low[0], high[0], option.later)


def slow_statements(
    option: Option, sample: Sample, rng: np.random.Generator
) -> Iterator[tuple[str, Held]]:
    """The statements of the applications: made of fewer samples."""
    cm = cs.collision_matrix_from_posteriors(
        sample.posteriors, sample.labels, **sample.options
    )
    k = cm.n_classes
    if k > 20:
        return
    found = curve(sample).rows_needed(float(option.later), level=LEVEL)
    yield "rows needed", of((found.low, found.high), DOUBLED)
    yield from compared_statements(option, cm, rng)
    if k > 2:
        apart = np.abs(np.subtract.outer(np.arange(k), np.arange(k)))
        expected = expected_distance(cm, level=LEVEL)
        truth = (option.target.joint() * apart).sum()
        yield "expected distance", of((expected.low, expected.high), truth)
        yield from merge_gain(option, sample, cm)
    if sample.clusters is not None:
        yield from audit_statements(option, sample)
        yield from metric_statements(option, sample)
        yield from subgroup_statements(option, sample)
        yield from change_statements(option, sample, rng)


def compared_statements(
    option: Option, cm: CollisionMatrix, rng: np.random.Generator
) -> Iterator[tuple[str, Held]]:
    """Beside 400 items with five votes each, of the same population: no difference is true."""
    target = option.target
    kinds = rng.choice(len(target.weights), 400, p=target.weights)
    voted = cs.collision_matrix_from_votes(rng.multinomial(5, target.posteriors[kinds]))
    found = cs.compare(cm, voted, level=LEVEL)
    yield "compare PBER", of((found.pber["low"], found.pber["high"]), 0.0)
    ends = found.pairs["low"].to_numpy(), found.pairs["high"].to_numpy()
    yield "compare S", of(ends, np.zeros(len(ends[0])), at_once=True)


def merge_gain(
    option: Option, sample: Sample, cm: CollisionMatrix
) -> Iterator[tuple[str, Held]]:
    """The best merge of a plan."""
    fitted = SimpleNamespace(
        predict_proba=None,
        posteriors_=sample.posteriors,
        labels_=sample.labels,
        classes_=cm.classes,
        collision_matrix_=cm,
    )
    plan = cs.plan(fitted, level=LEVEL)
    if plan.mapping is None:
        return
    row = plan.table.set_index("option").loc["merge"]
    groups = list(plan.mapping.values())
    i, j = (c for c, group in plan.mapping.items() if groups.count(group) == 2)
    truth = 2 * option.target.joint()[int(i), int(j)]
    yield "gain of a merge", of((row["low"], row["high"]), truth)


def audit_statements(option: Option, sample: Sample) -> Iterator[tuple[str, Held]]:
    """Of a classifier that favours the first class."""
    favour = np.ones(option.posteriors.shape[1])
    favour[0] = 2.0
    said = (option.target.posteriors * favour).argmax(axis=1)
    best = option.target.error(option.posteriors.argmax(axis=1))
    error = option.target.error(said)
    found = cs.audit(
        sample.posteriors,
        y_true=sample.labels,
        y_pred=said[sample.kinds],
        **sample.options,
    )
    yield "audit: error", of(found.error_interval, error)
    yield "audit: fixable", of(found.fixable_interval, error - best)
    yield (
        "audit: Bayes error limit",
        of((0, found.bayes_error_limit), option.target.bayes_error()),
    )


def metric_statements(option: Option, sample: Sample) -> Iterator[tuple[str, Held]]:
    """Every metric of ``ceilings``."""
    table = cs.ceilings(
        sample.posteriors, sample.labels, level=LEVEL, **sample.options
    ).table
    for row in table.to_dict("records"):
        name = row["metric"].removesuffix(", one-vs-rest")
        yield f"ceiling: {name}", of((row["low"], row["high"]), option.metrics[name])


def population_metrics(p: Population, told: np.ndarray) -> dict[str, float]:
    """What ``ceilings`` estimates, over all kinds and labels."""
    k = told.shape[1]
    flow = p.weights[:, None] * p.posteriors  # mass of (kind, label)
    confusion = flow.T @ np.eye(k)[told.argmax(axis=1)]
    even = flow.T @ np.eye(k)[(told / p.priors).argmax(axis=1)]
    right = np.diag(confusion)
    f1 = 2 * right / (confusion.sum(axis=0) + p.priors)
    ranks = np.argsort(-told, axis=1, kind="stable")
    top = min(k - 1, 5 if k > 10 else 2)
    among = np.take_along_axis(flow, ranks[:, :top], axis=1).sum()
    areas = []
    for c in range(k) if k > 2 else (1,):
        hit = np.repeat([True, False], len(told))
        mass = np.concatenate([flow[:, c], flow.sum(axis=1) - flow[:, c]])
        score = np.tile(told[:, c], 2)
        areas.append(
            (
                roc_auc_score(hit, score, sample_weight=mass),
                average_precision_score(hit, score, sample_weight=mass),
            )
        )
    roc, precision = np.mean(areas, axis=0)
    return {
        "accuracy": float(right.sum()),
        "balanced accuracy": float(np.mean(np.diag(even) / p.priors)),
        "macro F1": float(f1.mean()),
        "weighted F1": float(f1 @ p.priors),
        "ROC AUC": float(roc),
        "average precision": float(precision),
        f"top-{top} accuracy": float(among),
        "log loss": float(-(flow * np.log(np.maximum(told, 1e-7))).sum()),
        "Brier score": float(p.weights @ p.brier(told)),
    }


def subgroup_statements(option: Option, sample: Sample) -> Iterator[tuple[str, Held]]:
    """PBER of the easy and the hard half, and their difference, all at once."""
    if option.easy.all() or not option.easy.any():
        return
    by = option.easy[sample.kinds]
    found = cs.collisions_by(
        sample.posteriors, sample.labels, by, level=LEVEL, **sample.options
    )
    scores = option.target.brier(option.posteriors)
    w = option.target.weights
    mean = {
        part: np.average(scores[option.easy == part], weights=w[option.easy == part])
        for part in (True, False)
    }
    low, high, truth = [], [], []
    for row in found.table.to_dict("records"):
        if np.isnan(row["low"]):
            return
        part = row["group"]
        low += [row["low"], row["difference_low"]]
        high += [row["high"], row["difference_high"]]
        truth += [mean[part], mean[part] - mean[not part]]
    yield "collisions by subgroup", of((low, high), truth, at_once=True)


def change_statements(
    option: Option, sample: Sample, rng: np.random.Generator
) -> Iterator[tuple[str, Held]]:
    """Blunter posteriors of the same rows, and those of another sample."""
    target = option.target
    before = target.weights @ target.brier(option.posteriors)
    blunt = target.weights @ target.brier(raised(option.posteriors, 0.7))
    found = collision_change(
        sample.posteriors,
        sample.labels,
        raised(sample.posteriors, 0.7),
        level=LEVEL,
        **sample.options,
    )
    yield "change, same rows", of(found.interval, blunt - before)
    other = option.draw(rng)
    found = collision_change(
        sample.posteriors,
        sample.labels,
        raised(other.posteriors, 0.7),
        other.labels,
        groups_after=other.options.get("groups"),
        level=LEVEL,
        **sample.options,
    )
    yield "change, other rows", of(found.interval, blunt - before)


def vote_statements(
    p: Population, votes: np.ndarray, rng: np.random.Generator, repeats: bool
) -> Iterator[tuple[str, Held]]:
    """Counted over several votes per item, and over inputs that repeat."""
    voted = cs.collision_matrix_from_votes(votes)
    yield "voted S", of(voted.interval(LEVEL), p.matrix())
    yield "voted PBER", of(voted.pber_interval(LEVEL), p.pber())
    yield (
        "voted Bayes error limit",
        of((0, voted.bayes_error_limit(LEVEL)), p.bayes_error()),
    )
    bounds = voted.bayes_error_bounds(LEVEL)
    yield "voted Bayes error bounds", of(bounds, p.bayes_error())
    chance = 1 - p.priors @ p.priors
    kappa = 1 - p.pber() / chance
    table = agreement(votes, level=LEVEL)
    for name, coefficient in (
        ("kappa", "Fleiss' kappa"),
        ("alpha", "Krippendorff's alpha"),
    ):
        row = table.loc[coefficient]
        yield name, of((row["low"], row["high"]), kappa)
    if repeats:
        rows = rng.choice(len(p.weights), 2000, p=p.weights)
        counted = cs.count_collisions(rows, draw_labels(rng, p.posteriors[rows]))
        yield "counted S", of(counted.interval(LEVEL), p.matrix())
        yield "counted PBER", of(counted.pber_interval(LEVEL), p.pber())
