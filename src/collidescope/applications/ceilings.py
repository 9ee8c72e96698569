"""What is the best possible value of a metric: now, and with unlimited rows of this kind?

The metrics are scikit-learn's, of the rule that the posteriors p suggest for each: the most likely class for accuracy
and F1, the class with the largest p_k / π_k for balanced accuracy, the least expected cost Σ_i p_i C[i, j] for a cost
matrix C, and p itself for the rest. *Now* is the value on held-out rows. Any classifier's value on the same rows is
compared in pairs.

Standard errors are those of a delete-a-group jackknife: rows (or whole clusters) are dealt into ``PARTS`` parts,
each metric is computed without each part, and θ̂ has variance (g - 1) / g Σ (θ₋ₚ - mean)².

*At the limit*: accuracy and the Brier score follow from a ``Limit``. Of any other metric the distance to the best
possible value is continued like a PBER, from posteriors by models of several training sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import ndtri, stdtrit

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope.applications._inputs import Names, Told, check_rates, curve_of, group_codes, is_table, residuals
from collidescope.limit import Limit

#: Parts of the jackknife: 24 degrees of freedom, and each metric is computed 26 times.
PARTS = 25
#: Probabilities below this count as this in the log loss: a class that was ruled out costs 16 nats and not infinity.
LEAST = 1e-7


class _Jackknife(NamedTuple):
    """Rows dealt into parts: every statistic of all rows, then without each part (1 + g values)."""

    codes: IntArray
    part: IntArray
    k: int

    def mean(self, values: FloatArray) -> FloatArray:
        sums, sizes = np.bincount(self.part, values), np.bincount(self.part)
        return np.append(values.mean(), (values.sum() - sums) / (len(values) - sizes))

    def confusion(self, said: IntArray) -> FloatArray:
        """Counts of rows by true class and decision, (1 + g) × K × K."""
        g, k = int(self.part.max()) + 1, self.k
        counts = np.bincount((self.part * k + self.codes) * k + said, minlength=g * k * k).reshape(g, k, k)
        return np.concatenate([counts.sum(axis=0)[None], counts.sum(axis=0) - counts]).astype(np.float64)

    def ranking(self, area: Callable[[IntArray, IntArray], float], P: FloatArray) -> FloatArray:
        """Mean over classes (the second of two) of an area, from (true, all) rows with at least each of the scores."""
        # Sorted once for all parts: scikit-learn's functions would sort and check 26 times.
        kept = [np.full(len(P), True), *(self.part != g for g in range(self.part.max() + 1))]
        classes = range(self.k)[1 if self.k == 2 else 0 :]
        found = np.zeros(len(kept))
        for c in classes:
            order = np.argsort(-P[:, c], kind="stable")
            last = np.append(np.diff(P[order, c]) != 0, True)  # of rows with the same score
            hit, own = self.codes[order] == c, [rows[order] for rows in kept]
            counts = ([np.append(0, np.cumsum(rows)[last]) for rows in (part & hit, part)] for part in own)
            found += [area(true, seen) for true, seen in counts]
        return found / len(classes)


def _roc_area(true: IntArray, seen: IntArray) -> float:
    false = seen - true
    return float(((true[1:] + true[:-1]) * np.diff(false)).sum() / (2 * true[-1] * false[-1]))


def _average_precision(true: IntArray, seen: IntArray) -> float:
    return float((np.diff(true) * true[1:] / np.maximum(seen[1:], 1)).sum() / true[-1])


class _Metric(NamedTuple):
    """``score`` of the confusions of ``decide(P, π)``, the best rule given true posteriors; without one of P itself."""

    name: str
    score: Callable[[FloatArray], FloatArray]
    decide: Callable[[FloatArray, FloatArray], IntArray] | None = None
    higher: bool = True
    best: float = 1.0
    push: str = "errors of the posteriors lower it: the ceiling is at least this"


def _metrics(rows: _Jackknife, cost: FloatArray | None) -> list[_Metric]:
    k, codes = rows.k, rows.codes
    lower = (False, 0.0, "errors of the posteriors raise it: the best is at most this")
    f1 = "errors of the posteriors usually lower it; rules for F1 can reach a little more even with true posteriors"
    top = min(k - 1, 5 if k > 10 else 2)
    likeliest = lambda P, priors: P.argmax(axis=1)  # noqa: E731
    at_equal_priors = lambda P, priors: (P / np.maximum(priors, LEAST)).argmax(axis=1)  # noqa: E731

    def right(C: FloatArray) -> FloatArray:
        return np.diagonal(C, axis1=1, axis2=2)

    def f1_scores(C: FloatArray) -> FloatArray:
        return 2 * right(C) / np.maximum(C.sum(axis=1) + C.sum(axis=2), 1)

    def shares(C: FloatArray) -> FloatArray:
        return C.sum(axis=2) / C.sum(axis=(1, 2))[:, None]

    def recalls(C: FloatArray) -> FloatArray:
        with np.errstate(invalid="ignore"):  # a class that is in no other part has none
            return right(C) / C.sum(axis=2)

    def in_top(P: FloatArray) -> FloatArray:
        return (np.argsort(P, axis=1, kind="stable")[:, -top:] == codes[:, None]).any(axis=1).astype(np.float64)

    def surprise(P: FloatArray) -> FloatArray:
        floored = np.maximum(P, LEAST)
        return -np.log(floored[np.arange(len(P)), codes] / floored.sum(axis=1))

    found = [
        _Metric("accuracy", lambda C: right(C).sum(axis=1) / C.sum(axis=(1, 2)), likeliest),
        _Metric("balanced accuracy", lambda C: np.nanmean(recalls(C), axis=1), at_equal_priors),
        _Metric("macro F1", lambda C: f1_scores(C).mean(axis=1), likeliest, push=f1),
        _Metric("weighted F1", lambda C: (f1_scores(C) * shares(C)).sum(axis=1), likeliest, push=f1),
        _Metric("ROC AUC" if k == 2 else "ROC AUC, one-vs-rest", partial(rows.ranking, _roc_area)),
        _Metric("average precision", partial(rows.ranking, _average_precision)),
        _Metric(f"top-{top} accuracy", lambda P: rows.mean(in_top(P))),
        _Metric("log loss", lambda P: rows.mean(surprise(P)), None, *lower),
        _Metric("Brier score", lambda P: rows.mean((residuals(P, codes) ** 2).sum(axis=1)), None, *lower),
    ]
    if cost is not None:
        expected = lambda C: (C * cost).sum(axis=(1, 2)) / C.sum(axis=(1, 2))  # noqa: E731
        cheapest = _Metric("expected cost", expected, lambda P, priors: (P @ cost).argmin(axis=1), *lower)
        found.append(cheapest._replace(best=float(cost.min())))
    return [metric for metric in found if metric.name != "top-1 accuracy"]


@dataclass(frozen=True, eq=False, repr=False)
class Ceilings(Told):
    """Best reachable values of metrics, made by :func:`ceilings`.

    ``table`` has one row per ``metric``: ``now`` with ``low`` and ``high``; ``limit_low`` and ``limit_high`` (missing
    where no limit is known); ``yours``, ``difference`` (yours - now) with ``difference_low`` and ``difference_high``
    (missing without ``y_pred``, or where it needs probabilities and labels were given); ``higher_is_better``;
    ``direction``, the way in which errors of the posteriors push ``now``.
    """

    TITLE: ClassVar[str] = "What is the best possible value of a metric?"
    HIDDEN: ClassVar[tuple[str, ...]] = ("higher_is_better", "direction")
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
    P: Any,
    y: npt.ArrayLike | None = None,
    *,
    y_pred: Any = None,
    limit: Any = None,
    posteriors_by_size: Mapping[int, npt.ArrayLike] | None = None,
    cost: npt.ArrayLike | None = None,
    groups: npt.ArrayLike | None = None,
    classes: Names | None = None,
    level: float = 0.95,
    random_state: int = 0,
) -> Ceilings:
    """The best value of every usual metric: what the posteriors reach now, and what unlimited rows would give.

    Parameters
    ----------
    P, y : array of shape (n, K) and n labels, or a fitted ``CollisionClassifier``
        Held-out posteriors; a classifier has them, its labels, limit and learning curves.
    y_pred : array of n labels or of shape (n, K), optional; of another classifier, compared on the same rows
    limit : Limit, optional; range of PBER and Bayes error with unlimited rows
    posteriors_by_size : mapping of training rows to arrays of shape (n, K), optional
        Posteriors of the same rows by models trained on fewer, three sizes or more: gives every metric its own range.
    cost : array of shape (K, K), optional; cost[i, j] of deciding j where i is true
    groups : array of n names, optional; rows that belong together: intervals count groups
    classes, level, random_state : as in :func:`audit`; deals the rows into the parts of the jackknife

    Examples
    --------
    >>> from collidescope.datasets import GaussianProblem
    >>> problem = GaussianProblem([[0.0], [2.0]])
    >>> X, y = problem.sample(2000, random_state=0)
    >>> found = ceilings(problem.posteriors(X), y, y_pred=(X[:, 0] > 2).astype(int))
    >>> row = found.table.set_index("metric").loc["accuracy"]
    >>> bool(row["low"] < 1 - problem.bayes_error() < row["high"]), bool(row["difference_high"] < 0)
    (True, True)
    """
    check_rates(level=level)
    limit = getattr(P, "limit_", None) if limit is None else limit
    (posteriors, codes, names, _), curves = curve_of(P, y, classes, posteriors_by_size)
    n, k = posteriors.shape
    costs = None if cost is None else check.check_square(cost, "cost")
    if costs is not None and len(costs) != k:
        raise ValueError(f"cost must be {k}×{k}, one row and column per class, got {costs.shape}")
    if len(np.unique(codes)) < k:
        raise ValueError("y must have rows of every class: leave the others out of the columns of P")
    if y_pred is not None and len(y_pred) != n:
        raise ValueError(f"y_pred must have one entry per row ({n}), got {len(y_pred)}")
    rival, labels = posteriors, None
    if is_table(y_pred):
        rival = check.check_posteriors(y_pred, "y_pred", k)
    elif y_pred is not None:
        labels = check.encode_labels(y_pred, names, "y_pred")
    jackknife = _Jackknife(codes, _parts(codes, None if groups is None else group_codes(groups, n)[0], random_state), k)
    priors = np.bincount(codes) / n
    limits: dict[str, tuple[float, float]] = {}
    if limit is not None:  # accuracy and Brier score follow from it, and agree with what else is said about the fit
        low, high = limit.bayes_error_interval(level)
        limits = {"accuracy": (1 - float(high), 1 - float(low)), "Brier score": limit.pber_interval(level)}
    rows = []
    for metric in _metrics(jackknife, costs):

        def values(Q: FloatArray, said: IntArray | None = None, metric: _Metric = metric) -> FloatArray:
            """Of all rows, then without each part."""
            if metric.decide is None:
                return metric.score(Q)
            return metric.score(jackknife.confusion(metric.decide(Q, priors) if said is None else said))

        now = values(posteriors)
        row: dict[str, Any] = {"metric": metric.name, "now": now[0]}
        row["low"], row["high"] = _interval(now, level, metric)
        if metric.name in limits:
            row["limit_low"], row["limit_high"] = limits[metric.name]
        elif curves:
            by_size = np.array([values(Q) for Q in curves.values()])
            row["limit_low"], row["limit_high"] = _range(np.array(list(curves), float), by_size, level, metric, n)
        if y_pred is not None and (labels is None or metric.decide is not None):
            other = values(rival, labels)
            row |= {"yours": other[0], "difference": other[0] - now[0]}
            row["difference_low"], row["difference_high"] = _interval(other - now, level)
        rows.append(row | {"higher_is_better": metric.higher, "direction": metric.push})
    columns = ["metric", "now", "low", "high", "limit_low", "limit_high", "yours", "difference", "difference_low"]
    columns += ["difference_high", "higher_is_better", "direction"]
    return Ceilings(pd.DataFrame(rows).reindex(columns=columns), level)


def _parts(codes: IntArray, units: IntArray | None, random_state: int) -> IntArray:
    """Part of every row: classes spread evenly, clusters whole."""
    rng = np.random.default_rng(check.check_count(random_state, "random_state", least=0))
    if units is not None:
        return np.asarray(rng.permutation(int(units.max()) + 1)[units] % PARTS)
    order = np.lexsort((rng.random(len(codes)), codes))
    part = np.empty(len(codes), dtype=np.intp)
    part[order] = np.arange(len(codes)) % PARTS
    return part


def _interval(values: FloatArray, level: float, metric: _Metric | None = None) -> tuple[float, float]:
    g = len(values) - 1
    stderr = np.sqrt((g - 1) / g * ((values[1:] - values[1:].mean()) ** 2).sum())
    half = float(stdtrit(g - 1, (1 + level) / 2) * stderr)
    ends = values[0] - half, values[0] + half
    if metric is not None:
        ends = (ends[0], min(ends[1], metric.best)) if metric.higher else (max(ends[0], metric.best), ends[1])
    return ends


def _range(sizes: FloatArray, values: FloatArray, level: float, metric: _Metric, n: int) -> tuple[float, float]:
    """(low, high) with unlimited rows from values (sizes × (1 + parts)): the distance to the best possible one."""
    distance = np.abs(values - metric.best)
    scale = 2 * max(float(distance[:, 0].max()), 0.5)  # a Limit has no more than 1
    g = distance.shape[1] - 1
    deviations = (distance[:, 1:] - distance[:, 1:].mean(axis=1, keepdims=True)) / scale
    # A Limit has normal errors; those of a jackknife have heavier tails.
    wider = stdtrit(g - 1, (1 + level) / 2) / ndtri((1 + level) / 2)
    covariance = wider**2 * (g - 1) / g * deviations @ deviations.T
    found = Limit(sizes, distance[:, 0] / scale, covariance, float(np.sqrt(covariance[-1, -1])), n)
    near, far = (metric.best + (-scale if metric.higher else scale) * end for end in found.pber_interval(level))
    return min(near, far), max(near, far)
