"""What is the best possible value of a metric: now, and with unlimited rows of this kind?

The metrics are scikit-learn's, of the rule that the posteriors p suggest for each: the most likely
class for accuracy and F1, the class with the largest p_k / π_k for balanced accuracy, the least
expected cost Σ_i p_i C[i, j] for a cost matrix C (of ordered classes: their distance for the mean
absolute error, its square for quadratic kappa), and p itself for the rest. *Now* is the value on
held-out rows. Another classifier's value on the same rows is compared in pairs.

Standard errors are those of a delete-a-group jackknife: rows (or whole clusters) are dealt into
parts, each metric is computed without each part, and θ̂ has variance (g - 1) / g Σ (θ₋ₚ - mean)².

*At the limit*: accuracy and the Brier score follow from a ``Limit``, the distance of another
metric to its best possible value is continued like a PBER, from posteriors by models of several
training sizes. F1 and quadratic kappa have no limit: they are ratios, and better posteriors may
lower them. The most likely class may be a rare one less often, and the middle of calibrated
posteriors varies less than that of over-confident ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri, stdtrit

from collidescope import _checks as check
from collidescope._checks import Array, ArrayLike, FloatArray, Given, IntArray
from collidescope._text import READABLE
from collidescope.applications._inputs import (
    BoolArray,
    Interval,
    Mean,
    Names,
    Result,
    Scored,
    Source,
    check_rates,
    curve_of,
    is_table,
    row_limit,
    share_interval,
)
from collidescope.applications.audit import confusion_table
from collidescope.applications.ordered import distances
from collidescope.equations.posterior import brier_scores
from collidescope.intervals import LARGEST_SCORE, effective_units
from collidescope.intervals import interval as bounded_interval
from collidescope.limit import Limit, limit_from_posteriors

QUADRATIC_KAPPA = "quadratic kappa"
#: Ratios that better posteriors may lower: what they are of unlimited rows cannot be told.
WITHOUT_RANGE = ("macro F1", "weighted F1", QUADRATIC_KAPPA)
#: Of the table, in this order.
COLUMNS = (
    "metric",
    "now",
    "low",
    "high",
    "limit_low",
    "limit_high",
    "yours",
    "difference",
    "difference_low",
    "difference_high",
    "higher_is_better",
)
#: Probabilities below this count as this in the log loss: a class ruled out costs 16 nats.
LEAST = 1e-7


class _Metric(NamedTuple):
    """A metric of all rows, then without each part, and what is known of it."""

    values: FloatArray
    best: float = 1.0  #: the best possible value
    higher_is_better: bool = True
    span: float = 1.0  #: from the best to the worst value that a single row can have
    of_decisions: bool = True  #: whether it depends on probabilities by decisions alone
    #: with as many hits as may be unseen of the classes that no row was rightly called
    unseen: float | None = None
    farthest: float = np.inf  #: from the best to the worst value that all rows can have
    over_classes: bool = False  #: whether it is a mean over classes

    @property
    def distances(self) -> FloatArray:
        """To the best possible value."""
        return np.abs(self.values - self.best)

    def from_distances(self, near: float, far: float) -> Interval:
        """(low, high) of the metric from the ends of its distance to the best value."""
        if self.higher_is_better:
            return self.best - far, self.best - near
        return self.best + near, self.best + far

    def interval(self, level: float, units: float, grouped: bool) -> Interval:
        """(low, high), with few errors too: see :mod:`collidescope.intervals`."""
        found = _jackknifed(self.distances)
        if not np.isfinite(found.stderr):  # a class that is in no other part
            return np.nan, np.nan
        near, far = bounded_interval(
            found.value,
            found.stderr * _heavier_tails(found.df, level),
            units,
            level,
            top=max(self.span, found.value),
            grouped=grouped,
        )
        if self.unseen is not None:
            nearer = found.value - abs(self.unseen - self.best)
            below = np.hypot(found.value - near, max(nearer, 0.0))
            near = np.maximum(found.value - below, 0.0)
        return self.from_distances(float(near), min(float(far), self.farthest))

    def beside(
        self, other: _Metric, apart: float, level: float, units: float, grouped: bool
    ) -> dict[str, float]:
        """Another model's values less these, on the same rows, as columns of a table.

        ``apart`` is the share of the rows, or groups, in which the two differ.
        """
        gap = _jackknifed(other.values - self.values)
        # One more row may tell the two apart by the whole span.
        top = max(self.span, abs(gap.value))
        low, high = gap.signed_interval(apart * top, units, level, top, grouped)
        return {
            "difference": gap.value,
            "difference_low": float(low),
            "difference_high": float(high),
        }


Metrics = dict[str, _Metric]
Costs = dict[str, FloatArray]  #: K×K, by the name of their metric


class _Jackknife(NamedTuple):
    """Rows dealt into parts: every statistic of all rows, then without each part (1 + g values)."""

    codes: IntArray
    part: IntArray
    k: int
    unseen: float  #: the share of rows of a kind of which none may be among these

    def metrics(self, P: FloatArray, costs: Costs) -> Metrics:
        """Every metric, of the best rule for it given P."""
        said = P.argmax(axis=1)
        C = self._confusion(said)
        found = _of_decisions(C, self._at_equal_shares(P), self.unseen)
        found |= self._of_probabilities(P)
        for name, cost in costs.items():
            confusion = self._confusion((P @ cost).argmin(axis=1))
            found[name] = _of_costs(name, confusion, cost, self.unseen)
        return found

    def metrics_of_labels(self, said: IntArray, costs: Costs) -> Metrics:
        """The metrics of given decisions that need no probabilities."""
        C = self._confusion(said)
        found = _of_decisions(C, C, self.unseen)
        for name, cost in costs.items():
            found[name] = _of_costs(name, C, cost, self.unseen)
        return found

    def _of_probabilities(self, P: FloatArray) -> Metrics:
        found = self._areas(P)
        others = self.k - 1
        n_top = min(others, 5 if others >= 10 else 2)
        if n_top > 1:
            order = np.argsort(-P, axis=1, kind="stable")  # ties as in argmax
            is_own = order[:, :n_top] == self.codes[:, None]
            found[f"top-{n_top} accuracy"] = _Metric(self._mean(is_own.any(axis=1)))
        floored = np.maximum(P, LEAST)
        own = floored[np.arange(len(P)), self.codes]
        log_loss = self._mean(-np.log(own / floored.sum(axis=1)))
        worst = float(-np.log(floored.min()))
        found["log loss"] = _Metric(log_loss, 0.0, False, worst, of_decisions=False)
        brier = self._mean(brier_scores(P, self.codes))
        found["Brier score"] = _Metric(
            brier, 0.0, False, LARGEST_SCORE, of_decisions=False
        )
        return found

    def _mean(self, values: Array) -> FloatArray:
        given = values.astype(np.float64)
        left = len(given) - np.bincount(self.part)
        without = (given.sum() - np.bincount(self.part, given)) / left
        return np.append(given.mean(), without)

    def _confusion(self, said: IntArray) -> FloatArray:
        """Counts of rows by true class and decision, (1 + g) × K × K."""
        counts = np.zeros((int(self.part.max()) + 1, self.k, self.k))
        np.add.at(counts, (self.part, self.codes, said), 1.0)
        total = counts.sum(axis=0, keepdims=True)
        return np.concatenate([total, total - counts])

    def _kept(self) -> Iterator[BoolArray]:
        """All rows, then those without each part."""
        yield np.full(len(self.part), True)
        for number in range(int(self.part.max()) + 1):
            yield self.part != number

    def _at_equal_shares(self, P: FloatArray) -> FloatArray:
        """Counts by true class and the largest p_k / π_k, with π of the rows that are left."""
        counts = []
        for kept in self._kept():
            codes = self.codes[kept]
            shares = np.bincount(codes, minlength=self.k) / len(codes)
            said = (P[kept] / np.maximum(shares, LEAST)).argmax(axis=1)
            counts.append(confusion_table(codes, said, self.k))
        return np.array(counts)

    def _areas(self, P: FloatArray) -> Metrics:
        """Areas under the ROC and the precision-recall curve, means over classes.

        Of two classes, those of the second.
        """
        name = "ROC AUC, one-vs-rest"
        classes = range(self.k)
        if self.k == 2:
            name = "ROC AUC"
            classes = range(1, 2)
        areas = [self._areas_of_class(P[:, c], c) for c in classes]
        # A class that is in no other part has no area there.
        known = np.ma.masked_invalid(np.array(areas))
        roc, precision = known.mean(axis=0).filled(np.nan).T
        return {
            name: _Metric(roc, of_decisions=False, over_classes=True),
            "average precision": _Metric(
                precision, of_decisions=False, over_classes=True
            ),
        }

    def _areas_of_class(self, score: FloatArray, c: int) -> list[Interval]:
        """Sorted once for all parts: scikit-learn's functions would sort and check 26 times."""
        order = np.argsort(-score, kind="stable")
        # of rows with the same score
        last = np.append(np.diff(score[order]) != 0, True)
        hit = self.codes[order] == c
        return [_curve_areas(kept[order], hit, last) for kept in self._kept()]


def _curve_areas(used: Array, hit: Array, last: Array) -> Interval:
    """(ROC, precision-recall) of ``used`` rows, sorted by falling score; which of them are true.

    Scores that only rows not used have add nothing to either.
    """
    true = np.cumsum(used & hit)[last]  # with at least each of the scores
    seen = np.cumsum(used)[last]
    before = np.append(0, true[:-1])
    false = seen - true
    trapezoids = (true + before) * np.diff(false, prepend=0)
    steps = (true - before) * true / np.maximum(seen, 1)  # precision · Δrecall
    pairs = true[-1] * false[-1]  # of a true and a false row
    with np.errstate(invalid="ignore"):  # a class that is in no other part has no area
        return trapezoids.sum() / (2 * pairs), steps.sum() / true[-1]


def _of_decisions(C: FloatArray, even: FloatArray, unseen: float) -> Metrics:
    """The metrics of confusion matrices; balanced accuracy has its own rule, ``even``."""
    total = C.sum(axis=(1, 2))
    true = C.sum(axis=2)
    right = np.diagonal(C, axis1=1, axis2=2)
    found = np.diagonal(even, axis1=1, axis2=2)
    with np.errstate(invalid="ignore"):  # a class that is in no other part has none
        recalls = found / even.sum(axis=2)
    f1 = _f1(C)
    with_hits = _f1(_with_hits(C[0], unseen))
    shares = true / total[:, None]
    return {
        "accuracy": _Metric(right.sum(axis=1) / total),
        "balanced accuracy": _Metric(np.nanmean(recalls, axis=1), over_classes=True),
        "macro F1": _Metric(
            f1.mean(axis=1), unseen=float(with_hits.mean()), over_classes=True
        ),
        "weighted F1": _Metric((f1 * shares).sum(axis=1)),
    }


def _f1(C: FloatArray) -> FloatArray:
    """F1 of every class, from counts of rows by true class and decision; 0 without a hit."""
    right = np.diagonal(C, axis1=-2, axis2=-1)
    either = C.sum(axis=-2) + C.sum(axis=-1)
    return np.asarray(2 * right / np.where(right > 0, either, 1.0))


def _with_hits(C: FloatArray, unseen: float) -> FloatArray:
    """Counts with a share ``unseen`` of hits in the classes without any, in equal parts.

    A ratio like F1 shows no variance where such a class is never rightly called.
    """
    missed = np.diag(C) == 0
    if not missed.any():
        return C
    hits = np.diag(missed / missed.sum())
    return np.asarray((1 - unseen) * C + unseen * C.sum() * hits)


def _of_costs(name: str, C: FloatArray, cost: FloatArray, unseen: float) -> _Metric:
    """The mean cost; of quadratic kappa, 1 - its ratio to that of decisions at random."""
    if name != QUADRATIC_KAPPA:
        least = float(cost.min())
        mean = _mean_cost(C, cost)
        return _Metric(mean, least, False, float(cost.max()) - least)
    span = float(cost.max() / _at_random(C[0], cost))
    with_hits = _with_hits(C[0], unseen)
    kappa = 1 - _mean_cost(C, cost) / _at_random(C, cost)
    unseen = float(1 - _mean_cost(with_hits, cost) / _at_random(with_hits, cost))
    return _Metric(kappa, span=span, unseen=unseen, farthest=2.0)


def _mean_cost(C: FloatArray, cost: FloatArray) -> FloatArray:
    return np.asarray((C * cost).sum(axis=(-2, -1)) / C.sum(axis=(-2, -1)))


def _at_random(C: FloatArray, cost: FloatArray) -> FloatArray:
    """The mean cost of as many decisions for every class, at random."""
    true = C.sum(axis=-1, keepdims=True)
    said = C.sum(axis=-2, keepdims=True)
    return _mean_cost(true * said, cost)


@dataclass(frozen=True, eq=False, repr=False)
class Ceilings(
    Result,
    title="What is the best possible value of a metric?",
    hidden=("higher_is_better",),
):
    """Best reachable values of metrics, made by :func:`ceilings`.

    ``table`` has one row per ``metric``: ``now`` with ``low`` and ``high``; ``limit_low`` and
    ``limit_high`` (missing where no limit is known); ``yours``, ``difference`` (yours - now) with
    ``difference_low`` and ``difference_high`` (missing without ``y_pred``, or where it needs
    probabilities and labels were given); ``higher_is_better``. Errors of the posteriors make
    ``now`` worse: the best possible value is at least as good. F1 and quadratic kappa are the
    exceptions, for which other rules can reach a little more even with true posteriors.
    """

    table: pd.DataFrame
    level: float

    @property
    def verdict(self) -> str:
        """The accuracy in words."""
        row = self.table.set_index("metric").loc["accuracy"]
        shown = {name: f"{row[name]:.1%}" for name in COLUMNS[1:7]}
        words = "Reachable accuracy {now} ({low} to {high})"
        if pd.notna(row["yours"]):
            words = f"Your model has an accuracy of {{yours}}. {words}"
        if pd.notna(row["limit_high"]):
            words += "; with unlimited rows {limit_low} to {limit_high}"
        return f"{words}.".format_map(shown)


def ceilings(
    P: Source,
    y: Given = None,
    *,
    y_pred: Given = None,
    limit: Limit | None = None,
    posteriors_by_size: Mapping[int, ArrayLike] | None = None,
    cost: Given = None,
    ordered: bool = False,
    groups: Given = None,
    classes: Names = None,
    level: float = 0.95,
    random_state: int = 0,
) -> Ceilings:
    """The best value of every usual metric: what the posteriors reach now, and at the limit.

    Parameters
    ----------
    P, y : held-out posteriors (n, K) and labels; or a fitted ``CollisionClassifier``
        The classifier has both, limit and curves.
    y_pred : array of n labels or of shape (n, K), optional
        Of another classifier, compared on the same rows.
    limit : Limit, optional; range of PBER and Bayes error with unlimited rows
    posteriors_by_size : mapping of three or more training sizes to posteriors of the same rows
        Optional; by models of these sizes. Gives every metric its own range.
    cost : array of shape (K, K), optional; cost[i, j] of deciding j where i is true
    ordered : bool; the classes have an order: mean absolute error and quadratic kappa too
    groups : array of n names, optional; rows that belong together: intervals count groups
    classes, level, random_state : as in :func:`audit`
        The seed deals the rows into the parts of the jackknife.

    Examples
    --------
    >>> from collidescope.datasets import GaussianProblem
    >>> problem = GaussianProblem([[0.0], [2.0]])
    >>> X, y = problem.sample(2000, random_state=0)
    >>> found = ceilings(problem.posteriors(X), y, y_pred=(X[:, 0] > 2).astype(int))
    >>> row = found.table.set_index("metric").loc["accuracy"]
    >>> (
    ...     bool(row["low"] < 1 - problem.bayes_error() < row["high"]),
    ...     bool(row["difference_high"] < 0),
    ... )
    (True, True)
    """
    check_rates(level=level)
    if limit is None:
        limit = row_limit(P)
    rows = curve_of(P, y, classes, posteriors_by_size, groups)
    n, k = rows.posteriors.shape
    if len(np.unique(rows.codes)) < k:
        raise ValueError(
            "y must have rows of every class: leave the others out of the columns of P"
        )
    parts = _parts(n, rows.clusters, random_state)
    _, unseen = share_interval(np.zeros(n, dtype=bool), rows, level)
    jackknife = _Jackknife(rows.codes, parts, k, unseen)
    costs = _costs(cost, ordered, k)
    rival, apart = _rival(jackknife, y_pred, rows, costs)
    limits = {}
    if limit is not None:
        # two metrics follow from it, and agree with what else it says
        low, high = limit.bayes_error_interval(level)
        limits["accuracy"] = (1 - high, 1 - low)
        limits["Brier score"] = limit.pber_interval(level)
    curve = _Curve.of(jackknife, rows, costs)
    table = []
    for name, metric in jackknife.metrics(rows.posteriors, costs).items():
        units = _units(metric, rows)
        low, high = metric.interval(level, units, rows.clusters is not None)
        row = {"metric": name, "now": metric.values[0], "low": low, "high": high}
        if name in limits:
            row["limit_low"], row["limit_high"] = limits[name]
        elif rows.by_size and name not in WITHOUT_RANGE:
            ends = curve.range_of(name, metric, level, units)
            row["limit_low"], row["limit_high"] = _not_worse(metric, ends, (low, high))
        if name in rival:
            row["yours"] = rival[name].values[0]
            row |= metric.beside(
                rival[name],
                apart[metric.of_decisions],
                level,
                units,
                rows.clusters is not None,
            )
        row["higher_is_better"] = metric.higher_is_better
        table.append(row)
    return Ceilings(pd.DataFrame(table).reindex(columns=list(COLUMNS)), level)


def _costs(cost: Given, ordered: bool, k: int) -> Costs:
    """K×K costs by the name of their metric."""
    costs: Costs = {}
    if cost is not None:
        costs["expected cost"] = check.check_square(cost, "cost", k)
    if ordered:  # the median of p has the least expected distance, its mean the least squared one
        apart = distances(k)
        costs["mean absolute error"] = apart
        costs[QUADRATIC_KAPPA] = apart**2
    return costs


def _rival(
    jackknife: _Jackknife, y_pred: Given, rows: Scored, costs: Costs
) -> tuple[Metrics, dict[bool, float]]:
    """Metrics of another classifier, from its labels or posteriors; how far it is apart.

    By whether a metric is one of decisions: the share of the rows, or groups, that differ in them,
    and that of those that differ in probabilities (a half by half).
    """
    if y_pred is None:
        return {}, {}
    check.one_each(y_pred, len(jackknife.codes), "y_pred")  # type: ignore[arg-type]
    best = rows.posteriors.argmax(axis=1)
    if not is_table(y_pred):
        said = check.encode_labels(y_pred, rows.classes, "y_pred")
        metrics = jackknife.metrics_of_labels(said, costs)
        return metrics, {True: float(rows.apart((said != best).astype(np.float64)))}
    posteriors = check.check_posteriors(y_pred, "y_pred", jackknife.k)
    differ = posteriors.argmax(axis=1) != best
    moved = np.abs(posteriors - rows.posteriors).sum(axis=1) / 2
    apart = {
        True: float(rows.apart(differ.astype(np.float64))),
        False: float(rows.apart(moved)),
    }
    return jackknife.metrics(posteriors, costs), apart


def _units(metric: _Metric, rows: Scored) -> float:
    """Effective number of independent units; a mean over classes counts the rows of rare ones."""
    if not metric.over_classes:
        return rows.units
    counts = np.bincount(rows.codes)
    weight = 1 / counts.astype(np.float64)  # of a row
    total = weight.sum()
    squares = (weight**2).sum()
    return min(float(effective_units(len(weight), total, squares)), rows.units)


def _parts(
    n: int, clusters: IntArray | None, random_state: int, most: int = 25
) -> IntArray:
    """Part of every row, at random; clusters stay whole.

    At random: class shares must vary between parts as they do between samples. With ``most``
    parts there are 24 degrees of freedom, and each metric is computed 26 times. Few clusters are
    parts of their own: parts of one cluster beside parts of two would not be alike.
    """
    seed = check.check_count(random_state, "random_state", least=0)
    rng = np.random.default_rng(seed)
    if clusters is None:
        return rng.permutation(n) % most
    n_clusters = int(clusters.max()) + 1
    if n_clusters <= 3 * most:
        return clusters
    return (rng.permutation(n_clusters) % most)[clusters]


def _jackknifed(values: FloatArray) -> Mean:
    """Value of all rows, standard error and degrees of freedom from those without each part."""
    without = values[1:]
    df = len(without) - 1
    squares = ((without - without.mean()) ** 2).sum()
    return Mean(float(values[0]), np.sqrt(df / (df + 1) * squares), df)


def _heavier_tails(df: float, level: float) -> float:
    """Student's t over the normal quantile: errors of a jackknife have heavier tails."""
    quantile = (1 + level) / 2
    return float(stdtrit(df, quantile) / ndtri(quantile))


class _Curve(NamedTuple):
    """Metrics of models of growing training sizes."""

    by_size: dict[int, Metrics]
    n_rows: int
    endless: bool  #: whether the curve of the PBER has no end: no metric's has one then

    @classmethod
    def of(cls, jackknife: _Jackknife, rows: Scored, costs: Costs) -> _Curve:
        endless = False
        if rows.by_size:
            limit = limit_from_posteriors(
                list(rows.by_size.values()),
                rows.codes,
                list(rows.by_size),
                groups=rows.clusters,
            )
            endless = limit.state not in READABLE
        by_size = {
            size: jackknife.metrics(P, costs) for size, P in rows.by_size.items()
        }
        return cls(by_size, len(rows.codes), endless)

    def range_of(
        self, name: str, metric: _Metric, level: float, units: float
    ) -> Interval:
        """(low, high) of a metric with unlimited rows."""
        values = np.array([found[name].values for found in self.by_size.values()])
        distance = metric._replace(values=values).distances
        if not np.isfinite(distance).all():  # a part holds all rows of a class
            return np.nan, np.nan
        now = distance[:, 0]
        without = distance[:, 1:]
        scale = 2 * max(float(now.max()), 0.5)  # a Limit has no more than 1
        deviations = (without - without.mean(axis=1, keepdims=True)) / scale
        df = without.shape[1] - 1
        factor = _heavier_tails(df, level) ** 2 * df / (df + 1)
        covariance = factor * deviations @ deviations.T
        stderr = float(np.sqrt(covariance[-1, -1]))
        found = Limit(
            np.array(list(self.by_size)),
            now / scale,
            covariance,
            stderr,
            self.n_rows,
            n_units=units,
        )
        near, far = found.pber_interval(level)
        if self.endless:
            near = 0.0
        return metric.from_distances(scale * near, scale * far)


def _not_worse(metric: _Metric, limits: Interval, now: Interval) -> Interval:
    """More rows make no metric worse: a range ends where the interval now does, or is better."""
    low, high = limits
    if metric.higher_is_better:
        return now[0], max(high, now[1])
    return min(low, now[0]), now[1]
