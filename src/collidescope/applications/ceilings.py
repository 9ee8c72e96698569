"""What is the best possible value of a metric: now, and with unlimited rows of this kind?

The metrics are scikit-learn's, of the rule that the posteriors p suggest for each: the most likely class for accuracy
and F1, the class with the largest p_k / π_k for balanced accuracy, the least expected cost Σ_i p_i C[i, j] for a cost
matrix C, and p itself for the rest. *Now* is the value on held-out rows. Any classifier's value on the same rows is
compared in pairs.

Standard errors are those of a delete-a-group jackknife: rows (or whole clusters) are dealt into ``PARTS`` parts,
each metric is computed without each part, and θ̂ has variance (g - 1) / g Σ (θ₋ₚ - mean)². Every metric here is a smooth
function of averages, and differences of two classifiers or two training sizes come with their covariance.

*At the limit*: the value v(m) at m training rows is taken to approach its limit b as v(m) = b + a m^-c. Accuracy and
the Brier score follow from a ``Limit``; for every metric posteriors of the same rows by models of several training
sizes give its own curve. For each c on a grid (b, a) are the generalised least squares fit; b is the mixture over c.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import log_ndtr, stdtrit
from sklearn import metrics

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope.applications._inputs import Names, Told, check_rates, group_codes, is_table, scored

#: Parts of the jackknife: 24 degrees of freedom, and each metric is computed 26 times.
PARTS = 25
#: Exponents of learning curves seen in practice; the same grid for every metric.
EXPONENTS = np.linspace(0.15, 1.0, 18)
#: Probabilities below this count as this in the log loss: a class that was ruled out costs 16 nats and not infinity.
LEAST = 1e-7


class _Metric(NamedTuple):
    """``score(y, decisions, P)``; ``decide(P, π)`` is the best rule given true posteriors, None: P itself is scored."""

    name: str
    score: Callable[[IntArray, IntArray, FloatArray], float]
    decide: Callable[[FloatArray, FloatArray], IntArray] | None = None
    higher: bool = True
    best: float = 1.0
    push: str = "errors of the posteriors lower it: the ceiling is at least this"


def _metrics(k: int, cost: FloatArray | None) -> list[_Metric]:
    every = np.arange(k)
    lower = (False, 0.0, "errors of the posteriors raise it: the best is at most this")
    f1 = (
        "errors of the posteriors usually lower it; rules made for F1 can reach a little more even with true posteriors"
    )
    top = min(k - 1, 5 if k > 10 else 2)

    def likeliest(P: FloatArray, priors: FloatArray) -> IntArray:
        return P.argmax(axis=1)

    def mean_f1(average: str) -> _Metric:
        score = partial(metrics.f1_score, labels=every, average=average, zero_division=0.0)
        return _Metric(f"{average} F1", lambda y, said, P: score(y, said), likeliest, push=f1)

    def per_class(score: Callable[..., Any], y: IntArray, said: IntArray, P: FloatArray) -> float:
        """Mean over classes of a score of one class against the rest; of the second class where there are two."""
        return float(np.mean([score(y == c, P[:, c]) for c in (every[1:] if k == 2 else every)]))

    found = [
        _Metric("accuracy", lambda y, said, P: metrics.accuracy_score(y, said), likeliest),
        _Metric(
            "balanced accuracy",
            lambda y, said, P: metrics.balanced_accuracy_score(y, said),
            lambda P, priors: np.asarray((P / np.maximum(priors, LEAST)).argmax(axis=1)),
        ),
        mean_f1("macro"),
        mean_f1("weighted"),
        _Metric("ROC AUC" if k == 2 else "ROC AUC, one-vs-rest", partial(per_class, metrics.roc_auc_score)),
        _Metric("average precision", partial(per_class, metrics.average_precision_score)),
        _Metric(f"top-{top} accuracy", lambda y, said, P: metrics.top_k_accuracy_score(y, P, k=top, labels=every)),
        _Metric("log loss", lambda y, said, P: metrics.log_loss(y, _floored(P), labels=every), None, *lower),
        _Metric("Brier score", lambda y, said, P: ((np.eye(k)[y] - P) ** 2).sum(axis=1).mean(), None, *lower),
    ]
    if cost is not None:
        cheapest = _Metric(
            "expected cost",
            lambda y, said, P: float(cost[y, said].mean()),
            lambda P, priors: np.asarray((P @ cost).argmin(axis=1)),
            *lower,
        )
        found.append(cheapest._replace(best=float(cost.min())))
    return [metric for metric in found if metric.name != "top-1 accuracy"]


def _floored(P: FloatArray) -> FloatArray:
    floored = np.maximum(P, LEAST)
    return np.asarray(floored / floored.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False, repr=False)
class Ceilings(Told):
    """Best reachable values of metrics, made by :func:`ceilings`.

    Attributes
    ----------
    table : DataFrame
        One row per ``metric``: ``now`` with ``low`` and ``high``; ``limit_low`` and ``limit_high`` (missing where no
        limit is known); ``yours``, ``difference`` (yours - now) with ``difference_low`` and ``difference_high``
        (missing without ``y_pred``, or where it needs probabilities and labels were given); ``higher_is_better``;
        ``direction``, the way in which errors of the posteriors push ``now``.
    level : float
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
        if row["yours"] == row["yours"]:
            words = f"Your model {row['yours']:.1%}. {words}"
        if row["limit_high"] == row["limit_high"]:
            words += (
                f"; with unlimited rows {row['limit_low']:.1%} to {row['limit_high']:.1%}, "
                f"nothing above {row['limit_high']:.1%}"
            )
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
    P : array of shape (n, K), or a fitted ``CollisionClassifier``
        Held-out posteriors of the rows; of a classifier its ``posteriors_``, ``labels_`` and ``limit_`` are taken.
    y : array of n labels
    y_pred : array of n labels or of shape (n, K), optional
        Held-out predictions of another classifier, compared on the same rows.
    limit : Limit, optional
        Range of PBER and Bayes error with unlimited rows.
    posteriors_by_size : mapping of training rows to arrays of shape (n, K), optional
        Posteriors of the same rows by models trained on fewer rows, three sizes or more with the largest (that of P may
        be among them): gives every metric its own range.
    cost : array of shape (K, K), optional
        cost[i, j] of deciding j where i is true.
    groups : array of n names, optional
        Rows that belong together: intervals count groups.
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
    if hasattr(P, "predict_proba"):
        if not hasattr(P, "posteriors_"):
            raise ValueError(f"P must be held-out posteriors or a fitted CollisionClassifier, got {type(P).__name__}")
        limit = getattr(P, "limit_", None) if limit is None else limit
        posteriors_by_size = posteriors_by_size or getattr(P, "posteriors_by_size_", None)
        y, classes, P = getattr(P, "labels_", None) if y is None else y, P.classes_, P.posteriors_
    if y is None:
        raise ValueError("y is needed: write ceilings(clf, y) or ceilings(P, y)")
    posteriors, codes, names, _ = scored(P, None, y, classes)
    n, k = posteriors.shape
    costs = None if cost is None else check.check_square(cost, "cost")
    if costs is not None and len(costs) != k:
        raise ValueError(f"cost must be {k}×{k}, one row and column per class, got {costs.shape}")
    if len(np.unique(codes)) < k:
        raise ValueError("y must have rows of every class: leave the others out of the columns of P")
    part = _parts(codes, None if groups is None else group_codes(groups, n)[0], random_state)
    curves = _sizes(posteriors_by_size, k, n)
    rival, labels = posteriors, None
    if y_pred is not None:
        if len(y_pred) != n:
            raise ValueError(f"y_pred must have one entry per row ({n}), got {len(y_pred)}")
        if is_table(y_pred):
            rival = check.check_posteriors(y_pred, "y_pred", k)
        else:
            labels = check.encode_labels(y_pred, names, "y_pred")
    priors = np.bincount(codes) / n
    kept = [np.ones(n, dtype=bool), *(part != g for g in range(part.max() + 1))]
    rows = []
    for metric in _metrics(k, costs):

        def values(Q: FloatArray, said: IntArray | None = None, metric: _Metric = metric) -> FloatArray:
            """Of all rows, then without each part."""
            decided = metric.decide(Q, priors) if said is None and metric.decide else said
            decided = codes if decided is None else decided
            return np.array([metric.score(codes[rows], decided[rows], Q[rows]) for rows in kept])

        now = values(posteriors)
        row: dict[str, Any] = {"metric": metric.name, "now": now[0]}
        row["low"], row["high"] = _interval(now, level, metric)
        if curves:
            by_size = np.array([values(Q) for Q in curves.values()])
            row["limit_low"], row["limit_high"] = _extrapolate(np.array(list(curves)), by_size, level, metric)
        elif limit is not None and metric.name == "accuracy":
            row["limit_high"], row["limit_low"] = (1 - float(end) for end in limit.bayes_error_interval(level))
        elif limit is not None and metric.name == "Brier score":
            row["limit_low"], row["limit_high"] = map(float, limit.pber_interval(level))
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
    low, high = float(values[0] - half), float(values[0] + half)
    if metric is not None:
        low, high = (low, min(high, metric.best)) if metric.higher else (max(low, metric.best), high)
    return low, high


def _sizes(given: Mapping[int, npt.ArrayLike] | None, k: int, n: int) -> dict[int, FloatArray]:
    sizes = sorted(check.check_count(size, "posteriors_by_size") for size in given or ())
    if given and len(sizes) < 3:
        raise ValueError(f"posteriors_by_size must have 3 training sizes or more, got {sizes}")
    curves = {m: check.check_posteriors((given or {})[m], f"posteriors_by_size[{m}]", k) for m in sizes}
    for size, P in curves.items():
        if len(P) != n:
            raise ValueError(f"posteriors_by_size[{size}] must have the {n} rows of P, got {len(P)}")
    return curves


def _extrapolate(sizes: IntArray, values: FloatArray, level: float, metric: _Metric) -> tuple[float, float]:
    """Interval of b in v(m) = b + a m^-c, from values (sizes × (1 + parts)) of all rows and without each part.

    Flat prior on c over ``EXPONENTS``; for each c (b, a) is normal around its generalised least squares fit, cut where
    more rows would hurt, and b where no metric can be. The worse end is no better than what is reached now.
    """
    g = values.shape[1] - 1
    deviations = values[:, 1:] - values[:, 1:].mean(axis=1, keepdims=True)
    covariance = (g - 1) / g * deviations @ deviations.T
    covariance += 1e-6 * np.trace(covariance) / len(sizes) * np.eye(len(sizes)) + 1e-16 * np.eye(len(sizes))
    inverse = np.linalg.inv(covariance)
    v, sign = values[:, 0], 1.0 if metric.higher else -1.0
    reach = np.abs(v - v[-1]).max() + 4 * np.sqrt(np.diag(covariance).max())
    grid = v[-1] + sign * np.linspace(-1, 1, 801) * max(4 * reach, 1e-6)
    grid = grid[sign * grid <= sign * metric.best]
    logs = []
    for c in EXPONENTS:
        A = np.column_stack([np.ones(len(sizes)), (sizes / sizes[-1]) ** -c])
        spread = np.linalg.inv(A.T @ inverse @ A)
        fit = spread @ A.T @ inverse @ v
        misfit = float((v - A @ fit) @ inverse @ (v - A @ fit))
        sd = np.sqrt(spread[0, 0])
        # a given b is normal too: the chance that it has the sign of learning
        slope = fit[1] + spread[1, 0] / spread[0, 0] * (grid - fit[0])
        rest = np.sqrt(max(spread[1, 1] - spread[1, 0] ** 2 / spread[0, 0], 1e-30))
        learns = log_ndtr(-sign * slope / rest)
        logs.append((np.log(np.linalg.det(spread)) - misfit - ((grid - fit[0]) / sd) ** 2) / 2 - np.log(sd) + learns)
    density = np.exp(np.array(logs) - np.max(logs)).sum(axis=0)
    order = np.argsort(grid)
    mass = np.cumsum(density[order]) / density.sum()
    low, high = (float(grid[order][np.searchsorted(mass, q)]) for q in ((1 - level) / 2, (1 + level) / 2))
    now_low, now_high = _interval(values[-1], level, metric)
    return (min(low, now_low), high) if metric.higher else (low, max(high, now_high))
