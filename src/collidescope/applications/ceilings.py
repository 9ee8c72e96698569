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
training sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import pandas as pd
from scipy.special import ndtri, stdtrit

from collidescope import _checks as check
from collidescope._checks import Array, ArrayLike, FloatArray, Given, IntArray
from collidescope._text import READABLE
from collidescope.applications._inputs import (
    Mean,
    Names,
    Result,
    Source,
    brier_scores,
    check_rates,
    clusters_of,
    curve_of,
    is_table,
)
from collidescope.applications.ordered import distances
from collidescope.intervals import effective_units
from collidescope.intervals import interval as bounded_interval
from collidescope.limit import Limit, limit_from_posteriors

QUADRATIC_KAPPA = "quadratic kappa"
#: Probabilities below this count as this in the log loss: a class ruled out costs 16 nats.
LEAST = 1e-7
LARGEST_SCORE = 2.0  #: of the Brier score ‖c - p‖², where p is sure of a wrong class


class Ranges(Protocol):
    """What unlimited rows would leave, as a :class:`~collidescope.Limit` says it."""

    def pber_interval(self, level: float) -> tuple[float, float]: ...

    def bayes_error_interval(self, level: float) -> tuple[float, float]: ...


class _Metric(NamedTuple):
    """A metric of all rows, then without each part, and what is known of it."""

    values: FloatArray
    best: float = 1.0  #: the best possible value
    higher_is_better: bool = True
    span: float = 1.0  #: from the best to the worst value that a single row can have

    @property
    def distances(self) -> FloatArray:
        """To the best possible value."""
        return np.asarray(np.abs(self.values - self.best))

    def from_distances(self, near: float, far: float) -> tuple[float, float]:
        """(low, high) of the metric from the ends of its distance to the best value."""
        if self.higher_is_better:
            return self.best - far, self.best - near
        return self.best + near, self.best + far

    def interval(
        self, level: float, units: float, grouped: bool
    ) -> tuple[float, float]:
        """(low, high), with few errors too: see :mod:`collidescope.intervals`."""
        found = _jackknifed(self.distances)
        if not np.isfinite(found.stderr):  # a class that is in no other part
            low, high = _jackknifed(self.values).interval(level)
            return float(low), float(high)
        # Student's t of the jackknife.
        wider = stdtrit(found.df, (1 + level) / 2) / ndtri((1 + level) / 2)
        stderr = wider * found.stderr
        span = max(self.span, float(found.value))
        near, far = bounded_interval(
            found.value, stderr, units, level, top=span, grouped=grouped
        )
        return self.from_distances(float(near), float(far))

    def beside(
        self, other: _Metric, level: float, units: float
    ) -> tuple[float, float, float]:
        """(difference, low, high) of another model's values less these, on the same rows."""
        gap = _jackknifed(other.values - self.values)
        # One more row may tell the two apart by the whole span.
        gap = gap.wider(units / self.span)
        low, high = gap.interval(level)
        return float(gap.value), float(low), float(high)

    def direction(self, name: str) -> str:
        """The way in which errors of the posteriors push the metric."""
        if not self.higher_is_better:
            return "errors of the posteriors raise it: the best is at most this"
        if name == QUADRATIC_KAPPA or name.endswith("F1"):
            more = "rules for it can reach a little more even with true posteriors"
            return f"errors of the posteriors usually lower it; {more}"
        return "errors of the posteriors lower it: the ceiling is at least this"


class _Jackknife(NamedTuple):
    """Rows dealt into parts: every statistic of all rows, then without each part (1 + g values)."""

    codes: IntArray
    part: IntArray
    k: int

    def metrics(
        self, P: FloatArray, costs: dict[str, FloatArray]
    ) -> dict[str, _Metric]:
        """Every metric, of the best rule for it given P."""
        shares = np.maximum(np.bincount(self.codes) / len(P), LEAST)
        likeliest = self._confusion(P.argmax(axis=1))
        at_equal_shares = self._confusion((P / shares).argmax(axis=1))
        found = _of_decisions(likeliest, at_equal_shares)
        found |= self._of_probabilities(P)
        for name, cost in costs.items():
            cheapest = self._confusion((P @ cost).argmin(axis=1))
            found[name] = _of_costs(name, cheapest, cost)
        return found

    def metrics_of_labels(
        self, said: IntArray, costs: dict[str, FloatArray]
    ) -> dict[str, _Metric]:
        """Those that need no probabilities, of given decisions."""
        C = self._confusion(said)
        found = _of_decisions(C, C)
        for name, cost in costs.items():
            found[name] = _of_costs(name, C, cost)
        return found

    def _of_probabilities(self, P: FloatArray) -> dict[str, _Metric]:
        rows = np.arange(len(P))
        roc, precision = self._areas(P)
        name = "ROC AUC" if self.k == 2 else "ROC AUC, one-vs-rest"
        found = {name: _Metric(roc)}
        found["average precision"] = _Metric(precision)
        of_many = 5 if self.k > 10 else 2
        top = min(self.k - 1, of_many)
        if top > 1:
            order = np.argsort(-P, axis=1, kind="stable")  # ties as in argmax
            hits = order[:, :top] == self.codes[:, None]
            among = hits.any(axis=1).astype(np.float64)
            found[f"top-{top} accuracy"] = _Metric(self._mean(among))
        floored = np.maximum(P, LEAST)
        own = floored[rows, self.codes]
        log_loss = -np.log(own / floored.sum(axis=1))
        brier = brier_scores(P, self.codes)
        worst = float(-np.log(floored.min()))
        found["log loss"] = _Metric(self._mean(log_loss), 0.0, False, worst)
        found["Brier score"] = _Metric(self._mean(brier), 0.0, False, LARGEST_SCORE)
        return found

    def _mean(self, values: FloatArray) -> FloatArray:
        sums = np.bincount(self.part, values)
        left = len(values) - np.bincount(self.part)
        return np.append(values.mean(), (values.sum() - sums) / left)

    def _confusion(self, said: IntArray) -> FloatArray:
        """Counts of rows by true class and decision, (1 + g) × K × K."""
        n_parts = int(self.part.max()) + 1
        shape = (n_parts, self.k, self.k)
        counts = np.zeros(shape)
        np.add.at(counts, (self.part, self.codes, said), 1.0)
        total = counts.sum(axis=0)
        without = total - counts
        return np.concatenate([total[None], without])

    def _areas(self, P: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Areas under the ROC and the precision-recall curve, means over classes.

        Of two classes, those of the second. Sorted once for all parts: scikit-learn's functions
        would sort and check 26 times.
        """
        classes = range(self.k) if self.k > 2 else (1,)
        kept = [np.full(len(P), True)]
        kept += [self.part != g for g in range(self.part.max() + 1)]
        areas = np.empty((2, len(classes), len(kept)))
        for place, c in enumerate(classes):
            score = P[:, c]
            order = np.argsort(-score, kind="stable")
            changes = np.diff(score[order]) != 0
            last = np.append(changes, True)  # of rows with the same score
            hit = self.codes[order] == c
            for g, rows in enumerate(kept):
                used = rows[order]
                areas[:, place, g] = _curve_areas(used, hit, last)
        known = np.ma.masked_invalid(areas)
        roc, precision = known.mean(axis=1).filled(np.nan)
        return roc, precision


def _curve_areas(used: Array, hit: Array, last: Array) -> tuple[float, float]:
    """(ROC, precision-recall) of ``used`` rows, sorted by falling score; which of them are true.

    Scores that only rows not used have add nothing to either.
    """
    true_so_far = np.cumsum(used & hit)
    seen_so_far = np.cumsum(used)
    true = np.append(0, true_so_far[last])  # with at least each of the scores
    seen = np.append(0, seen_so_far[last])
    false = seen - true
    new_true = np.diff(true)
    new_false = np.diff(false)
    heights = true[1:] + true[:-1]
    shown = np.maximum(seen[1:], 1)
    with np.errstate(invalid="ignore"):  # a class that is in no other part has no area
        # Trapezoids, as a share of all pairs of a true and a false row.
        pairs = true[-1] * false[-1]
        roc = (heights * new_false).sum() / (2 * pairs)
        # Σ precision · Δrecall.
        steps = new_true * true[1:] / shown
        precision = steps.sum() / true[-1]
    return roc, precision


def _of_decisions(C: FloatArray, even: FloatArray) -> dict[str, _Metric]:
    """Of confusion matrices; balanced accuracy has its own rule, ``even``."""
    total = C.sum(axis=(1, 2))
    true = C.sum(axis=2)
    right = np.diagonal(C, axis1=1, axis2=2)
    with np.errstate(invalid="ignore"):  # a class that is in no other part has none
        recalls = np.diagonal(even, axis1=1, axis2=2) / even.sum(axis=2)
    f1 = 2 * right / np.maximum(C.sum(axis=1) + true, 1)
    weighted = (f1 * (true / total[:, None])).sum(axis=1)
    return {
        "accuracy": _Metric(right.sum(axis=1) / total),
        "balanced accuracy": _Metric(np.nanmean(recalls, axis=1)),
        "macro F1": _Metric(f1.mean(axis=1)),
        "weighted F1": _Metric(weighted),
    }


def _of_costs(name: str, C: FloatArray, cost: FloatArray) -> _Metric:
    """The mean cost; of quadratic kappa, 1 - its ratio to that of decisions at random."""
    total = C.sum(axis=(1, 2))
    mean = (C * cost).sum(axis=(1, 2)) / total
    if name != QUADRATIC_KAPPA:
        least = float(cost.min())
        return _Metric(mean, least, False, float(cost.max()) - least)
    true = C.sum(axis=2) / total[:, None]
    said = C.sum(axis=1) / total[:, None]
    at_random = np.einsum("gi,ij,gj->g", true, cost, said)
    span = float(cost.max() / at_random[0])
    return _Metric(1 - mean / at_random, span=span)


@dataclass(frozen=True, eq=False, repr=False)
class Ceilings(
    Result,
    title="What is the best possible value of a metric?",
    hidden=("higher_is_better", "direction"),
):
    """Best reachable values of metrics, made by :func:`ceilings`.

    ``table`` has one row per ``metric``: ``now`` with ``low`` and ``high``; ``limit_low`` and
    ``limit_high`` (missing where no limit is known); ``yours``, ``difference`` (yours - now) with
    ``difference_low`` and ``difference_high`` (missing without ``y_pred``, or where it needs
    probabilities and labels were given); ``higher_is_better``; ``direction``, the way in which
    errors of the posteriors push ``now``.
    """

    table: pd.DataFrame
    level: float

    @property
    def verdict(self) -> str:
        """The accuracy in words."""
        row = self.table.set_index("metric").loc["accuracy"]
        words = f"Reachable accuracy {row['now']:.1%} ({row['low']:.1%} to {row['high']:.1%})"
        if pd.notna(row["yours"]):
            words = f"Your model {row['yours']:.1%}. {words}"
        if pd.notna(row["limit_high"]):
            high = f"{row['limit_high']:.1%}"
            words += f"; with unlimited rows {row['limit_low']:.1%} to {high}, nothing above {high}"
        return f"{words}."


def ceilings(
    P: Source,
    y: Given = None,
    *,
    y_pred: Given = None,
    limit: Ranges | None = None,
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
        limit = getattr(P, "limit_", None)
    given, curves = curve_of(P, y, classes, posteriors_by_size)
    n, k = given.posteriors.shape
    costs: dict[str, FloatArray] = {}
    if cost is not None:
        costs["expected cost"] = check.check_square(cost, "cost", k)
    if ordered:  # the median of p has the least expected distance, its mean the least squared one
        costs["mean absolute error"] = distances(k)
        costs[QUADRATIC_KAPPA] = distances(k) ** 2
    if len(np.unique(given.codes)) < k:
        raise ValueError(
            "y must have rows of every class: leave the others out of the columns of P"
        )
    clusters = clusters_of(groups, n)
    parts = _parts(n, clusters, random_state)
    jackknife = _Jackknife(given.codes, parts, k)
    rival: dict[str, _Metric] = {}
    if y_pred is not None:
        check.one_each(y_pred, n, "y_pred")  # type: ignore[arg-type]
        if is_table(y_pred):
            rival = jackknife.metrics(
                check.check_posteriors(y_pred, "y_pred", k), costs
            )
        else:
            said = check.encode_labels(y_pred, given.classes, "y_pred")
            rival = jackknife.metrics_of_labels(said, costs)
    limits = _known_limits(limit, level)
    by_size = [jackknife.metrics(Q, costs) for Q in curves.values()]
    endless = bool(curves) and _has_no_end(curves, given.codes, groups)
    table = []
    for name, metric in jackknife.metrics(given.posteriors, costs).items():
        units = _units(name, given.codes, clusters)
        low, high = metric.interval(level, units, groups is not None)
        row = {"metric": name, "now": metric.values[0], "low": low, "high": high}
        if name in limits:
            row["limit_low"], row["limit_high"] = limits[name]
        elif curves:
            values = np.array([found[name].values for found in by_size])
            curve = metric._replace(values=values)
            ends = _range(list(curves), curve, level, n)
            ends = _at_least_now(metric, ends, (low, high), endless)
            row["limit_low"], row["limit_high"] = ends
        if name in rival:
            gap, gap_low, gap_high = metric.beside(rival[name], level, units)
            row["yours"] = rival[name].values[0]
            row["difference"] = gap
            row["difference_low"] = gap_low
            row["difference_high"] = gap_high
        row["higher_is_better"] = metric.higher_is_better
        row["direction"] = metric.direction(name)
        table.append(row)
    ends = ["now", "low", "high", "limit_low", "limit_high"]
    compared = ["yours", "difference", "difference_low", "difference_high"]
    columns = ["metric", *ends, *compared, "higher_is_better", "direction"]
    return Ceilings(pd.DataFrame(table).reindex(columns=columns), level)


def _known_limits(limit: Ranges | None, level: float) -> dict[str, tuple[float, float]]:
    """Accuracy and Brier score follow from a limit, and agree with what else it says."""
    if limit is None:
        return {}
    low, high = limit.bayes_error_interval(level)
    accuracy = (1 - float(high), 1 - float(low))
    return {"accuracy": accuracy, "Brier score": limit.pber_interval(level)}


def _units(name: str, codes: IntArray, clusters: IntArray | None) -> float:
    """Effective number of independent units; a mean over classes counts the rows of rare ones."""
    counts = np.bincount(codes).astype(np.float64)
    units = float(len(codes))
    if name.startswith(("balanced", "macro", "ROC", "average precision")):
        inverse = 1 / counts  # the weight of a row
        squares = (inverse**2).sum()
        units = float(effective_units(len(counts), inverse.sum(), squares))
    if clusters is not None:
        units = min(units, float(clusters.max()) + 1)
    return units


def _parts(
    n: int, clusters: IntArray | None, random_state: int, most: int = 25
) -> IntArray:
    """Part of every row, at random; clusters stay whole.

    At random: class shares must vary between parts as they do between samples. With ``most``
    parts there are 24 degrees of freedom, and each metric is computed 26 times. Few clusters are
    parts of their own: parts of one cluster beside parts of two would not be alike.
    """
    rng = np.random.default_rng(
        check.check_count(random_state, "random_state", least=0)
    )
    if clusters is None:
        return np.asarray(rng.permutation(n) % most)
    n_clusters = int(clusters.max()) + 1
    if n_clusters <= 3 * most:
        return clusters
    return np.asarray(rng.permutation(n_clusters)[clusters] % most)


def _jackknifed(values: FloatArray) -> Mean:
    """Value of all rows, standard error and degrees of freedom from those without each part."""
    g = len(values) - 1
    deviations = values[1:] - values[1:].mean()
    variance = (g - 1) / g * float((deviations**2).sum())
    return Mean(values[0], np.sqrt(variance), g - 1)


def _has_no_end(curves: dict[int, FloatArray], codes: IntArray, groups: Given) -> bool:
    """Whether the learning curve of the PBER has no end: no metric's has one then."""
    limit = limit_from_posteriors(
        list(curves.values()), codes, list(curves), groups=groups
    )
    return limit.state not in READABLE


def _at_least_now(
    metric: _Metric,
    limits: tuple[float, float],
    now: tuple[float, float],
    endless: bool,
) -> tuple[float, float]:
    """More rows make no metric worse, so its worse end is that of now or beyond."""
    low, high = limits
    if metric.higher_is_better:
        return min(low, now[0]), metric.best if endless else high
    return metric.best if endless else low, max(high, now[1])


def _range(
    sizes: list[int], curve: _Metric, level: float, n: int
) -> tuple[float, float]:
    """(low, high) with unlimited rows from a curve (sizes × (1 + parts))."""
    distance = curve.distances
    if not np.isfinite(distance).all():  # a part holds all rows of a class
        return np.nan, np.nan
    now = distance[:, 0]
    without = distance[:, 1:]
    scale = 2 * max(float(now.max()), 0.5)  # a Limit has no more than 1
    g = without.shape[1]
    means = without.mean(axis=1, keepdims=True)
    deviations = (without - means) / scale
    # A Limit has normal errors; those of a jackknife have heavier tails.
    quantile = (1 + level) / 2
    wider = stdtrit(g - 1, quantile) / ndtri(quantile)
    factor = wider**2 * (g - 1) / g
    covariance = factor * deviations @ deviations.T
    variance = covariance[-1, -1]
    stderr = float(np.sqrt(variance))
    found = Limit(np.array(sizes), now / scale, covariance, stderr, n)
    near, far = found.pber_interval(level)
    return curve.from_distances(scale * near, scale * far)
