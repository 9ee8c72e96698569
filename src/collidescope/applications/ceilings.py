"""What is the best possible value of a metric: now, and with unlimited rows of this kind?

The metrics are scikit-learn's, of the rule that the posteriors p suggest for each: the most likely class for accuracy
and F1, the class with the largest p_k / π_k for balanced accuracy, the least expected cost Σ_i p_i C[i, j] for a cost
matrix C, and p itself for the rest. *Now* is the value on held-out rows. Any classifier's value on the same rows is
compared in pairs.

Standard errors are those of a delete-a-group jackknife: rows (or whole clusters) are dealt into ``PARTS`` parts,
each metric is computed without each part, and θ̂ has variance (g - 1) / g Σ (θ₋ₚ - mean)².

*At the limit*: accuracy and the Brier score follow from a ``Limit``, the distance of any other metric to its best
possible value is continued like a PBER, from posteriors by models of several training sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri, stdtrit

from collidescope import _checks as check
from collidescope._checks import ArrayLike, FloatArray, Given, IntArray
from collidescope.applications._inputs import (
    Mean,
    Names,
    Told,
    check_rates,
    curve_of,
    group_codes,
    is_table,
    residuals,
)
from collidescope.limit import Limit

PARTS = 25  #: of the jackknife: 24 degrees of freedom, and each metric is computed 26 times
LEAST = 1e-7  #: probabilities below this count as this in the log loss: a class ruled out costs 16 nats, not infinity
COLUMNS = "metric now low high limit_low limit_high yours difference difference_low difference_high"
#: The way in which errors of the posteriors push a metric.
RAISED = "errors of the posteriors raise it: the best is at most this"
LOWERED = "errors of the posteriors lower it: the ceiling is at least this"
USUALLY = "errors of the posteriors usually lower it; rules for F1 can reach a little more even with true posteriors"


class _Jackknife(NamedTuple):
    """Rows dealt into parts: every statistic of all rows, then without each part (1 + g values)."""

    codes: IntArray
    part: IntArray
    k: int

    def metrics(
        self, P: FloatArray, cost: FloatArray | None, said: IntArray | None = None
    ) -> dict[str, FloatArray]:
        """Every metric of the best rule for it, given P; of decisions ``said`` those that need no probabilities."""
        codes, k, n = self.codes, self.k, len(P)
        priors = np.maximum(np.bincount(codes) / n, LEAST)
        C, even = (
            self._confusion(Q.argmax(axis=1) if said is None else said) for Q in (P, P / priors)
        )
        total, true, right = C.sum(axis=(1, 2)), C.sum(axis=2), np.diagonal(C, axis1=1, axis2=2)
        with np.errstate(invalid="ignore"):  # a class that is in no other part has none
            recalls = np.diagonal(even, axis1=1, axis2=2) / even.sum(axis=2)
        f1 = 2 * right / np.maximum(C.sum(axis=1) + true, 1)
        found = {
            "accuracy": right.sum(axis=1) / total,
            "balanced accuracy": np.nanmean(recalls, axis=1),
        }
        found |= {
            "macro F1": f1.mean(axis=1),
            "weighted F1": (f1 * (true / total[:, None])).sum(axis=1),
        }
        if said is None:
            floored, top = np.maximum(P, LEAST), min(k - 1, 5 if k > 10 else 2)
            in_top = (np.argsort(-P, axis=1, kind="stable")[:, :top] == codes[:, None]).any(
                axis=1
            )  # ties as in argmax
            roc, precision = self._areas(P)
            found |= {
                "ROC AUC" if k == 2 else "ROC AUC, one-vs-rest": roc,
                "average precision": precision,
            }
            found |= (
                {f"top-{top} accuracy": self._mean(in_top.astype(np.float64))} if top > 1 else {}
            )
            found["log loss"] = self._mean(
                -np.log(floored[np.arange(n), codes] / floored.sum(axis=1))
            )
            found["Brier score"] = self._mean((residuals(P, codes) ** 2).sum(axis=1))
        if cost is not None:
            cheapest = C if said is not None else self._confusion((P @ cost).argmin(axis=1))
            found["expected cost"] = (cheapest * cost).sum(axis=(1, 2)) / total
        return found

    def _mean(self, values: FloatArray) -> FloatArray:
        sums, sizes = np.bincount(self.part, values), np.bincount(self.part)
        return np.append(values.mean(), (values.sum() - sums) / (len(values) - sizes))

    def _confusion(self, said: IntArray) -> FloatArray:
        """Counts of rows by true class and decision, (1 + g) × K × K."""
        g, k = int(self.part.max()) + 1, self.k
        counts = np.bincount((self.part * k + self.codes) * k + said, minlength=g * k * k).reshape(
            g, k, k
        )
        # All rows, then all but those of each part.
        return np.concatenate([counts.sum(axis=0)[None], counts.sum(axis=0) - counts]).astype(
            np.float64
        )

    def _areas(self, P: FloatArray) -> FloatArray:
        """Areas under the ROC and the precision-recall curve, means over classes (the second of two)."""
        # Sorted once for all parts: scikit-learn's functions would sort and check 26 times.
        kept = [np.full(len(P), True), *(self.part != g for g in range(self.part.max() + 1))]
        classes = range(self.k)[1 if self.k == 2 else 0 :]
        areas = np.empty((2, len(classes), len(kept)))
        for place, c in enumerate(classes):
            order = np.argsort(-P[:, c], kind="stable")
            last = np.append(np.diff(P[order, c]) != 0, True)  # of rows with the same score
            hit = self.codes[order] == c
            for g, rows in enumerate(kept):  # true and all rows with at least each of the scores
                true, seen = (
                    np.append(0, np.cumsum(own)[last]) for own in (rows[order] & hit, rows[order])
                )
                false = seen - true
                # Trapezoids, as a share of all pairs of a true and a false row; then Σ precision · Δrecall. Scores that
                # only the part left out has add nothing to either.
                with np.errstate(invalid="ignore"):  # a class that is in no other part has no area
                    areas[0, place, g] = ((true[1:] + true[:-1]) * np.diff(false)).sum() / (
                        2 * true[-1] * false[-1]
                    )
                    areas[1, place, g] = (
                        np.diff(true) * true[1:] / np.maximum(seen[1:], 1)
                    ).sum() / true[-1]
        return np.asarray(np.ma.masked_invalid(areas).mean(axis=1).filled(np.nan))


@dataclass(frozen=True, eq=False, repr=False)
class Ceilings(
    Told,
    title="What is the best possible value of a metric?",
    hidden=("higher_is_better", "direction"),
):
    """Best reachable values of metrics, made by :func:`ceilings`.

    ``table`` has one row per ``metric``: ``now`` with ``low`` and ``high``; ``limit_low`` and ``limit_high`` (missing
    where no limit is known); ``yours``, ``difference`` (yours - now) with ``difference_low`` and ``difference_high``
    (missing without ``y_pred``, or where it needs probabilities and labels were given); ``higher_is_better``;
    ``direction``, the way in which errors of the posteriors push ``now``.
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
    P: Any,
    y: Given = None,
    *,
    y_pred: Any = None,
    limit: Any = None,
    posteriors_by_size: Mapping[int, ArrayLike] | None = None,
    cost: Given = None,
    groups: Given = None,
    classes: Names = None,
    level: float = 0.95,
    random_state: int = 0,
) -> Ceilings:
    """The best value of every usual metric: what the posteriors reach now, and what unlimited rows would give.

    Parameters
    ----------
    P, y : held-out posteriors (n, K) and labels; or a fitted ``CollisionClassifier``, which has both, limit and curves
    y_pred : array of n labels or of shape (n, K), optional; of another classifier, compared on the same rows
    limit : Limit, optional; range of PBER and Bayes error with unlimited rows
    posteriors_by_size : mapping of three or more training sizes to posteriors of the same rows by models of these
        Optional; gives every metric its own range.
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
    costs = None if cost is None else check.check_square(cost, "cost", k)
    if len(np.unique(codes)) < k:
        raise ValueError(
            "y must have rows of every class: leave the others out of the columns of P"
        )
    if y_pred is not None:
        check.one_each(y_pred, n, "y_pred")
    rows = _Jackknife(
        codes, _parts(n, None if groups is None else group_codes(groups, n)[0], random_state), k
    )
    rival: dict[str, FloatArray] = {}
    if is_table(y_pred):
        rival = rows.metrics(check.check_posteriors(y_pred, "y_pred", k), costs)
    elif y_pred is not None:
        rival = rows.metrics(posteriors, costs, check.encode_labels(y_pred, names, "y_pred"))
    limits: dict[str, tuple[float, float]] = {}
    if (
        limit is not None
    ):  # accuracy and Brier score follow from it, and agree with what else is said about the fit
        low, high = limit.bayes_error_interval(level)
        limits = {
            "accuracy": (1 - float(high), 1 - float(low)),
            "Brier score": limit.pber_interval(level),
        }
    by_size = [rows.metrics(Q, costs) for Q in curves.values()]
    least = {
        "log loss": 0.0,
        "Brier score": 0.0,
        "expected cost": 0.0 if costs is None else float(costs.min()),
    }
    table = []
    for metric, now in rows.metrics(posteriors, costs).items():
        higher, best = metric not in least, least.get(metric, 1.0)
        low, high = _interval(now, level)
        row = {"metric": metric, "now": now[0], "low": low, "high": high}
        row |= (
            {"low": max(low, 0.0), "high": min(high, best)} if higher else {"low": max(low, best)}
        )
        if metric in limits:
            row["limit_low"], row["limit_high"] = limits[metric]
        elif curves:
            values = np.array([found[metric] for found in by_size])
            row["limit_low"], row["limit_high"] = _range(
                list(curves), values, level, best, -1 if higher else 1, n
            )
        if metric in rival:
            row |= {"yours": rival[metric][0], "difference": rival[metric][0] - now[0]}
            row["difference_low"], row["difference_high"] = _interval(rival[metric] - now, level)
        push = RAISED if not higher else USUALLY if metric.endswith("F1") else LOWERED
        table.append(row | {"higher_is_better": higher, "direction": push})
    return Ceilings(
        pd.DataFrame(table).reindex(columns=[*COLUMNS.split(), "higher_is_better", "direction"]),
        level,
    )


def _parts(n: int, units: IntArray | None, random_state: int) -> IntArray:
    """Part of every row, at random: class shares must vary between parts as they do between samples; clusters whole."""
    rng = np.random.default_rng(check.check_count(random_state, "random_state", least=0))
    if units is not None:
        return np.asarray(rng.permutation(int(units.max()) + 1)[units] % PARTS)
    return np.asarray(rng.permutation(n) % PARTS)


def _interval(values: FloatArray, level: float) -> tuple[float, float]:
    g = len(values) - 1
    stderr = np.sqrt((g - 1) / g * ((values[1:] - values[1:].mean()) ** 2).sum())
    return Mean(values[0], stderr, g - 1).interval(level)


def _range(
    sizes: list[int], values: FloatArray, level: float, best: float, side: int, n: int
) -> tuple[float, float]:
    """(low, high) with unlimited rows from values (sizes × (1 + parts)) on one ``side`` (±1) of the best possible."""
    distance = np.abs(values - best)
    if not np.isfinite(distance).all():  # a part holds all rows of a class
        return np.nan, np.nan
    scale = 2 * max(float(distance[:, 0].max()), 0.5)  # a Limit has no more than 1
    g = distance.shape[1] - 1
    deviations = (distance[:, 1:] - distance[:, 1:].mean(axis=1, keepdims=True)) / scale
    # A Limit has normal errors; those of a jackknife have heavier tails.
    wider = stdtrit(g - 1, (1 + level) / 2) / ndtri((1 + level) / 2)
    covariance = wider**2 * (g - 1) / g * deviations @ deviations.T
    found = Limit(
        np.array(sizes), distance[:, 0] / scale, covariance, float(np.sqrt(covariance[-1, -1])), n
    )
    near, far = (best + side * scale * end for end in found.pber_interval(level))
    return min(near, far), max(near, far)
