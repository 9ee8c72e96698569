"""Errors and rows: which errors of a classifier could be avoided, which labels look wrong?

All of it is asked of posteriors p of rows that the model did **not** see in training. The rule
argmax p is the best that the features allow, as far as p can see. :func:`audit` compares a
classifier's prediction ŷ with it row by row::

    error    = P(ŷ ≠ y)               of the audited classifier
    best     = P(argmax p ≠ y)        of the best rule known, on the same labelled rows
    fixable  = error - best           what the best rule known avoids
    inherent                          what unlimited rows would leave, a range (``limit``)
    not learned yet = best - inherent what more rows would avoid (unknown without a limit)

and each ordered pair (i, j) of classes by P(ŷ = j | i) and P(argmax p = j | i). It is flagged when
its excess is beyond chance (exact McNemar test on the rows of class i where only one of the two
says j; Benjamini and Hochberg) **and** so is that of both directions together: equally good rules
can draw the line between i and j elsewhere. Nor is a pair flagged whose rows, all errors counted,
come out no worse. Where rows belong together (``groups``), the sums of groups are tested too.

A label that stands against the posteriors can be wrong, or its row can truly belong to two
classes: p alone gives both a small p(label). What makes wrong labels also shows where nothing is
ambiguous: with R[j, l] the share of label l among the stray labels of rows that clearly are of
class j, ``score = log Σ_{j≠l} p_j R[j, l] - log p_l`` is the log odds, up to a constant, that a
row with label l is a row of another class whose label strayed. Where stray labels go anywhere
(R even), the order is that of -p(label).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse import csr_array
from scipy.special import entr, ndtri, stdtr, stdtrit
from scipy.stats import binom

from collidescope import _checks as check
from collidescope._checks import Array, ArrayLike, FloatArray, Given, IntArray
from collidescope.applications._inputs import (
    BoolArray,
    Names,
    Result,
    Source,
    brier_scores,
    check_rates,
    clusters_of,
    discovered,
    is_table,
    mean_and_error,
    plain,
    row_limit,
    scored,
    share_interval,
)
from collidescope.equations.moments import row_blocks
from collidescope.intervals import brier_interval
from collidescope.limit import Limit

CLEAR = 0.8  #: a row is clear when one class has this posterior: odds of 4 to 1 against the rest
Counts = IntArray | FloatArray
SUSPECT = 0.1  #: a label is suspect when the row is clear and the label has at most this posterior


@dataclass(frozen=True, eq=False, repr=False)
class AuditReport(
    Result,
    title="Which errors could a better model avoid?",
    table="pairs",
    rows=(5, 20),
):
    """What a classifier gets wrong: fixable now, not learned yet, inherent. By :func:`audit`.

    ``error = best + fixable`` exactly, as shares of rows, with ``error_interval``,
    ``best_interval`` and ``fixable_interval``; ``inherent_interval`` is the range of the Bayes
    error where a limit is known, ``bayes_error`` what the posteriors claim of it (1 - mean max p),
    ``bayes_error_limit`` its upper confidence limit: the lower of those of ``best`` and of the
    Brier score. ``pairs`` has one row per ordered pair that occurs: ``true``, ``predicted``,
    ``rows`` (of the true class), ``observed`` and ``best`` rates, ``fixable`` with ``low`` and
    ``high``, ``points`` (fixable as a share of all rows; they sum to the total), ``p_value``,
    ``flagged``. Largest ``fixable`` first.
    """

    classes: Array
    n_rows: int
    error: float
    error_interval: tuple[float, float]
    best: float
    best_interval: tuple[float, float]
    fixable: float
    fixable_interval: tuple[float, float]
    inherent_interval: tuple[float, float] | None
    bayes_error: float
    bayes_error_limit: float
    pairs: pd.DataFrame
    level: float
    fdr: float
    notes: tuple[str, ...] = ()
    _codes: tuple[IntArray, ...] = ()  #: class numbers of y, ŷ and argmax p

    @property
    def not_learned_interval(self) -> tuple[float, float] | None:
        """(low, high): what more rows would still avoid, as a share of rows; None: no limit.

        From the intervals of both parts: few audited rows know ``best`` badly.
        """
        if self.inherent_interval is None:
            return None
        low, high = self.inherent_interval
        best_low, best_high = self.best_interval
        least = max(best_low - high, 0.0)
        return least, max(best_high - low, 0.0)

    def rows(self, true: object, predicted: object, kind: str = "fixable") -> IntArray:
        """Numbers of the rows of class ``true`` that the classifier took for ``predicted``.

        ``kind``: "fixable" where argmax p is right, "inherent" where it says ``predicted`` too
        (inherent, or not learned yet), "other" where it is wrong in another way, or "all".
        """
        i = check.encode_labels([true], self.classes, "true")[0]  # type: ignore[arg-type]
        j = check.encode_labels([predicted], self.classes, "predicted")[0]  # type: ignore[arg-type]
        if i == j:
            raise ValueError(
                f"predicted must be another class than true, got {predicted!r} for both"
            )
        y, said, best = self._codes
        taken = (y == i) & (said == j)
        right = best == i
        same = best == j
        keep = {
            "fixable": right,
            "inherent": same,
            "other": ~right & ~same,
            "all": taken,
        }
        chosen = check.check_choice(kind, list(keep), "kind")
        return np.flatnonzero(taken & keep[chosen])

    @property
    def verdict(self) -> str:
        digits = self._digits
        low, high = self.fixable_interval
        errs = f"The classifier errs on {self.error:.{digits}%} of rows."
        if high < 0:
            return (
                f"{errs} The rule from these posteriors errs on "
                f"{self.best:.{digits}%}: the classifier knows more than they do, so "
                "they cannot say what is inherent. Use better posteriors."
            )
        if self.error == 0:
            return f"{errs} There is nothing to fix."
        if low <= 0:
            return f"{errs} {self._nothing_found()}"
        fixable = self._points(self.fixable)
        ends = self._points(low, high)
        fix = f"{fixable} points ({ends}) could be fixed by a better model"
        largest = self._largest_part()
        rest = self._rest()
        return f"{errs} {fix}, {largest}; {rest}."

    def _largest_part(self) -> str:
        """The pair that makes up most of what can be fixed."""
        pairs = self.pairs
        found = pairs[pairs["flagged"]]
        if not len(found):
            found = pairs
        top = found.nlargest(1, "points").iloc[0]
        part = "the largest part"
        if top["points"] > self.fixable / 2:
            part = "most of it"
        return f"{part} {top['true']} taken for {top['predicted']}"

    @property
    def _digits(self) -> int:
        if self.error >= 0.01:
            return 1
        return 2

    def _points(self, *values: float) -> str:
        points = [f"{100 * value:.{self._digits}f}" for value in values]
        return " to ".join(points)

    def _nothing_found(self) -> str:
        fix = self._points(*self.fixable_interval)
        none = "Nothing that a better model would fix is found"
        rest = self._rest()
        words = f"{none} (difference to the best rule known {fix} points): {rest}."
        words = f"{words} To err less takes better features or more rows."
        pairs = self.pairs
        flagged = pairs[pairs["flagged"]]
        top = flagged[["true", "predicted"]].head(5)
        names = [f"{a} taken for {b}" for a, b in top.to_numpy()]
        if names:
            listed = ", ".join(names)
            words = f"{words} Some pairs still stand out: {listed}."
        return words

    def _rest(self) -> str:
        """What a better model would not fix."""
        inherent_ends = self.inherent_interval
        not_learned_ends = self.not_learned_interval
        if inherent_ends is None or not_learned_ends is None:
            best = self._points(self.best)
            return f"{best} points are inherent in the data or not learned yet"
        inherent = self._points(*inherent_ends)
        left = (
            f"{inherent} points are inherent in the data (unlimited rows would leave "
            "them)"
        )
        return f"{left}, {self._points(*not_learned_ends)} points are not learned yet"

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {
            "not_learned_interval": plain(self.not_learned_interval)
        }

    def _shown(self, most: int | None) -> pd.DataFrame:
        return self.pairs[self.pairs["fixable"] > 0][:most]


def audit(
    model_or_posteriors: Source,
    X: Given = None,
    y_true: Given = None,
    y_pred: Given = None,
    *,
    groups: Given = None,
    limit: Limit | None = None,
    classes: Names = None,
    level: float = 0.95,
    fdr: float = 0.05,
) -> AuditReport:
    """Split the errors of a classifier into fixable ones, those not learned yet, and the rest.

    Parameters
    ----------
    model_or_posteriors : fitted classifier or array of shape (n, K)
        The best estimate of the true posteriors, of rows not in training; those of a
        ``CollisionClassifier``'s fit get their held-out posteriors.
    X, y_true : the audited rows (needed where something has to predict), and labels
        With posteriors ``audit(P, y, y_pred)`` works too.
    y_pred : array of n labels or of shape (n, K), or a fitted estimator
        It did not train on the rows.
    groups : array of n names, optional; rows that belong together: intervals count groups
    limit : Limit, default ``limit_`` of the model; tells "not learned yet" from "inherent"
    classes : K names in the order of the columns
        Default those of the model or the sorted distinct labels.
    level, fdr : float, of the intervals; of the flagged pairs (Benjamini and Hochberg)

    Examples
    --------
    >>> from collidescope.datasets import GaussianProblem
    >>> problem = GaussianProblem([[0, 0], [0, 3], [2, 0]], classes=["a", "b", "c"])
    >>> X, y = problem.sample(3000, random_state=0)
    >>> blind = np.where(
    ...     X[:, 0] > 1, "c", "a"
    ... )  # sees only the first feature: never says b
    >>> report = audit(problem.posteriors(X), y_true=y, y_pred=blind)
    >>> report.error == report.best + report.fixable
    True
    >>> report.pairs.query("flagged")[["true", "predicted"]].to_numpy().tolist()
    [['b', 'a'], ['b', 'c']]
    """
    check_rates(level=level, fdr=fdr)
    is_model = hasattr(model_or_posteriors, "predict_proba")
    labels_in_x = X is not None and not is_model and not is_table(X)
    if labels_in_x and y_pred is None and y_true is not None:  # audit(P, y, y_pred)
        y_pred = y_true
        y_true = X
        X = None
    for name, given in (("y_true", y_true), ("y_pred", y_pred)):
        if given is None:
            raise ValueError(
                f"{name} is needed: write audit(posteriors, y_true=y, "
                "y_pred=predicted) or audit(model, X, y, predicted)"
            )
    rows = X if is_model else None
    P, y, names, notes = scored(
        model_or_posteriors, rows, y_true, classes, "model_or_posteriors", "y_true"
    )
    said = predicted_codes(y_pred, X, names)
    check.check_same_length(y, said, "y_true and y_pred")
    n = len(P)
    clusters = clusters_of(groups, n)
    best = P.argmax(axis=1)
    wrong = said != y
    best_wrong = best != y
    worse = int((wrong & ~best_wrong).sum())
    better = int((best_wrong & ~wrong).sum())
    fixable = (worse - better) / n
    best_error = float(best_wrong.mean())
    if limit is None:
        limit = row_limit(model_or_posteriors)
    inherent = None
    if limit is not None:
        low, high = limit.bayes_error_interval(level)
        inherent = (float(low), float(high))
    return AuditReport(
        classes=names,
        n_rows=n,
        error=best_error + fixable,
        error_interval=share_interval(wrong, clusters, level),
        best=best_error,
        best_interval=share_interval(best_wrong, clusters, level),
        fixable=fixable,
        fixable_interval=_fixable_interval(wrong, best_wrong, clusters, level),
        inherent_interval=inherent,
        bayes_error=float((1 - P.max(axis=1)).mean()),
        bayes_error_limit=_error_limit(P, y, clusters, level),
        pairs=_pair_table(_Rules(y, said, best), names, clusters, level, fdr),
        level=level,
        fdr=fdr,
        notes=(*notes, *_calibration_note(P, best_wrong, clusters)),
        _codes=(y, said, best),
    )


def _fixable_interval(
    wrong: BoolArray, best_wrong: BoolArray, clusters: IntArray | None, level: float
) -> tuple[float, float]:
    """Of the difference of two errors on the same rows; never narrower for clusters."""
    worse = (wrong & ~best_wrong).sum()
    better = (best_wrong & ~wrong).sum()
    n = np.array(len(wrong))
    ends = paired_interval(worse, better, n, level)
    low = float(ends[0])
    high = float(ends[1])
    if clusters is None:
        return low, high
    difference = wrong.astype(np.float64) - best_wrong
    lower, upper = mean_and_error(difference, clusters).interval(level)
    low = max(min(low, float(lower)), -1.0)
    high = min(max(high, float(upper)), 1.0)
    return low, high


def _error_limit(
    P: FloatArray, y: IntArray, clusters: IntArray | None, level: float
) -> float:
    """Upper limit of the Bayes error: the lower of those of the best rule and of the Brier score.

    Either of the two would do at a one-sided (1 - level) / 2; for the lower of them each takes
    half of it.
    """
    each = 1 - (1 - level) / 2
    brier = mean_and_error(brier_scores(P, y), clusters)
    n_units = len(P)
    if clusters is not None:
        n_units = len(np.unique(clusters))
    _, highest_score = brier_interval(
        float(brier.value),
        float(brier.stderr),
        n_units,
        each,
        grouped=clusters is not None,
    )
    wrong = P.argmax(axis=1) != y
    _, highest_error = share_interval(wrong, clusters, each)
    return min(highest_error, highest_score)


def _calibration_note(
    P: FloatArray, best_wrong: BoolArray, clusters: IntArray | None, most: float = 3.0
) -> tuple[str, ...]:
    """Posteriors that are wrong about their own error, by more than so many standard errors."""
    claimed = 1 - P.max(axis=1)
    gap, stderr, _ = mean_and_error(best_wrong - claimed, clusters)
    by_chance = most * stderr
    if len(P) < 2 or abs(gap) <= by_chance:
        return ()
    how = "under"
    if gap > 0:
        how = "over"
    return (
        (
            f"The posteriors are {how}-confident: they claim that their rule errs on "
            f"{claimed.mean():.1%}, it errs on {best_wrong.mean():.1%}. Better ones may "
            "find more that can be fixed."
        ),
    )


def bayes_confusion(
    P: ArrayLike, y: Given = None, *, classes: Names = None
) -> FloatArray:
    """Confusion of the best rule: row i, column j is E_{x~D_i} 1[argmax y(x) = j].

    With labels class i is the rows labelled i; without, every row counts for class i with weight
    p_i, which is as right as the posteriors ``P`` (n×K, held out) are.

    >>> bayes_confusion([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]).round(3)
    array([[0.882, 0.118],
           [0.385, 0.615]])
    """
    posteriors, codes, names, _ = scored(P, None, y, classes)
    weights = posteriors
    if codes is not None:
        weights = np.eye(len(names))[codes]
    table = np.zeros((len(names), len(names)))
    # A row that the rule calls j adds its c, or its p, to column j: row j of the transpose.
    np.add.at(table.T, posteriors.argmax(axis=1), weights)
    with np.errstate(invalid="ignore"):  # nan for a class without rows
        return table / table.sum(axis=1, keepdims=True)


def predicted_codes(y_pred: object, X: Given, classes: Array) -> IntArray:
    """Class numbers from labels, posteriors or a fitted estimator."""
    if isinstance(y_pred, type):
        raise ValueError(
            "y_pred must be labels, posteriors or a fitted estimator, got the class "
            f"{y_pred.__name__}"
        )
    if hasattr(y_pred, "predict"):
        if X is None:
            kind = type(y_pred).__name__
            raise ValueError(
                f"X is needed: y_pred is an estimator ({kind}) that has to predict"
            )
        y_pred = y_pred.predict(X)
    if is_table(y_pred):
        return check.check_posteriors(y_pred, "y_pred", len(classes)).argmax(axis=1)
    return check.encode_labels(y_pred, classes, "y_pred")  # type: ignore[arg-type]


# Only the rows on which the rules differ speak for one of them: with b rows where the first alone
# says j and c where the second alone does, the difference of the shares is (b - c) / n, and
# without a true difference b is half of b + c but for chance (McNemar).


def paired_interval(
    only_first: Counts, only_second: Counts, n: Counts, level: float
) -> tuple[FloatArray, FloatArray]:
    """Agresti and Min's interval of the difference of two shares of ``n`` rows.

    It adds 1/2 to each of the four cells of the paired 2×2 table (2005): Wald's interval is too
    short. Widened to the difference itself.
    """
    b = only_first + 0.5
    c = only_second + 0.5
    total = n + 2.0
    centre = (b - c) / total
    # b and c are multinomial: Var(b - c) = b + c - (b - c)² / n.
    variance = b + c - (b - c) ** 2 / total
    z = ndtri((1 + level) / 2)
    half = z * np.sqrt(variance) / total
    difference = (only_first - only_second) / n
    low = np.minimum(centre - half, difference)
    high = np.maximum(centre + half, difference)
    return np.maximum(low, -1.0), np.minimum(high, 1.0)


def mcnemar_p(only_first: IntArray, only_second: IntArray) -> FloatArray:
    """Exact one-sided p-value of McNemar's test: are rows of the first kind more than chance?"""
    either = only_first + only_second
    return np.asarray(binom.sf(only_first - 1, either, 0.5))


def confusion_table(y: IntArray, said: IntArray, k: int) -> FloatArray:
    """How many rows of class i are called j."""
    pairs = y * k + said
    counts = np.bincount(pairs, minlength=k * k).reshape(k, k)
    return counts.astype(np.float64)


class _Rules(NamedTuple):
    """Class numbers of the audited rows."""

    y: IntArray  #: labels
    said: IntArray  #: what the audited rule says
    best: IntArray  #: what the best rule says


class _PairCounts(NamedTuple):
    """Rows of class i that are called j, K×K."""

    observed: FloatArray  #: by the audited rule
    best: FloatArray
    more: IntArray  #: by the audited rule alone
    fewer: IntArray  #: by the best rule alone

    @classmethod
    def of(cls, rules: _Rules, k: int) -> _PairCounts:
        observed = confusion_table(rules.y, rules.said, k)
        best = confusion_table(rules.y, rules.best, k)
        # Rows that both rules call j cancel.
        same = rules.said == rules.best
        agreed = confusion_table(rules.y[same], rules.said[same], k)
        more = (observed - agreed).astype(np.intp)
        fewer = (best - agreed).astype(np.intp)
        return cls(observed, best, more, fewer)

    def p_values(self, i: IntArray, j: IntArray) -> FloatArray:
        """Of "no more errors than by the best rule", for i called j and for both directions."""
        worse = self.more[i, j]
        better = self.fewer[i, j]
        one_way = mcnemar_p(worse, better)
        worse_either_way = worse + self.more[j, i]
        better_either_way = better + self.fewer[j, i]
        return np.maximum(one_way, mcnemar_p(worse_either_way, better_either_way))

    def excess(self) -> IntArray:
        """Errors on the rows of every class beyond those of the best rule."""
        difference = self.more - self.fewer
        return np.asarray(difference.sum(axis=1) - np.diag(difference))


def _pair_table(
    rules: _Rules, classes: Array, clusters: IntArray | None, level: float, fdr: float
) -> pd.DataFrame:
    """:attr:`AuditReport.pairs`."""
    k = len(classes)
    counts = _PairCounts.of(rules, k)
    occurs = counts.observed + counts.best > 0
    np.fill_diagonal(occurs, False)
    i, j = np.nonzero(occurs)
    rows = np.bincount(rules.y, minlength=k)[i]
    worse = counts.more[i, j]
    better = counts.fewer[i, j]
    fixable = (worse - better) / rows
    low, high = paired_interval(worse, better, rows, level)
    p = counts.p_values(i, j)
    if clusters is not None:
        errors = _cluster_errors(rules, clusters, k)
        stderr = errors.share[i, j]
        # Rows of a cluster are alike: so many of them are worth one.
        alike = _design_effect(stderr, (worse + better) / rows**2)
        low, high = paired_interval(worse / alike, better / alike, rows / alike, level)
        t = stdtrit(errors.df, (1 + level) / 2)
        half = t * stderr
        lower = np.minimum(low, fixable - half)
        upper = np.maximum(high, fixable + half)
        low = np.maximum(lower, -1.0)
        high = np.minimum(upper, 1.0)
        p = np.maximum(p, errors.p_value[i, j])
    # A rule that prefers other classes than the best one does, of several that nobody can tell
    # apart, confuses its favourites more and is right about them more often: where their rows come
    # out no worse, nothing can be fixed.
    excess = counts.excess()
    comes_out_worse = excess[i] + excess[j] > 0
    p = np.where(comes_out_worse, p, 1.0)
    columns = {
        "true": classes[i],
        "predicted": classes[j],
        "rows": rows,
        "observed": counts.observed[i, j] / rows,
        "best": counts.best[i, j] / rows,
        "fixable": fixable,
        "low": low,
        "high": high,
        "points": (worse - better) / len(rules.y),
        "p_value": p,
        "flagged": _flagged(p, worse + better, fdr),
    }
    return pd.DataFrame(columns).sort_values(
        "fixable", ascending=False, kind="stable", ignore_index=True
    )


def _flagged(p_values: FloatArray, differing: IntArray, fdr: float) -> BoolArray:
    """Which pairs count, of those that ``differing`` rows between the rules could ever flag."""
    # With m rows between the rules no p-value is below 2⁻ᵐ. Pairs that could never be flagged take
    # no part: m does not depend on whom the rows favour, so leaving them out favours nobody.
    tested = 0.5**differing <= fdr
    flags = tested.copy()
    flags[tested] = discovered(p_values[tested], fdr)
    return np.asarray(flags)


def _design_effect(stderr: FloatArray, of_rows: FloatArray) -> float:
    """By what variances over clusters exceed those of independent rows, over all pairs."""
    total = float(of_rows.sum())
    if total <= 0:
        return 1.0
    return max(float((stderr**2).sum()) / total, 1.0)


class _ClusterErrors(NamedTuple):
    """Of every pair of classes, by sums of clusters."""

    share: FloatArray  #: standard error of (worse - better) / rows
    p_value: FloatArray  #: the larger of those of one direction and of both together
    df: int


def _cluster_errors(rules: _Rules, clusters: IntArray, k: int) -> _ClusterErrors:
    n_clusters = int(clusters.max()) + 1
    differ = np.flatnonzero(rules.said != rules.best)
    # +1 for the pair that the audited rule falls into, -1 for that of the best one.
    signs = np.repeat([1.0, -1.0], len(differ))
    own = np.tile(clusters[differ], 2)
    true = np.tile(rules.y[differ], 2)
    called = np.concatenate([rules.said[differ], rules.best[differ]])
    first = np.minimum(true, called)
    second = np.maximum(true, called)
    shape = (n_clusters, k * k)
    pairs = _sums(signs, own, true * k + called, shape)
    unordered = _sums(signs, own, first * k + second, shape)
    one_way = _not_above_zero(pairs).reshape(k, k)
    upper = np.triu(_not_above_zero(unordered).reshape(k, k))
    both_ways = np.maximum(upper, upper.T)
    per_class = np.zeros((n_clusters, k))
    np.add.at(per_class, (clusters, rules.y), 1.0)
    share = _share_errors(pairs, per_class)
    p_value = np.maximum(one_way, both_ways)
    return _ClusterErrors(share, p_value, max(n_clusters - 1, 1))


def _sums(
    values: FloatArray, rows: IntArray, columns: IntArray, shape: tuple[int, int]
) -> csr_array:
    """Sparse; values of the same place are added up."""
    return csr_array((values, (rows, columns)), shape=shape)


def _not_above_zero(sums: csr_array) -> FloatArray:
    """One-sided p-value of the total of every column, from sums by cluster."""
    n_clusters = sums.shape[0]
    df = max(n_clusters - 1, 1)
    total = sums.sum(axis=0)
    squares = (sums * sums).sum(axis=0)
    centred = squares - total**2 / n_clusters
    variance = centred * n_clusters / df
    varies = variance > 1e-12
    stderr = np.sqrt(np.where(varies, variance, 1.0))
    of_t = stdtr(df, -total / stderr)
    positive = total > 0
    return np.where(varies, of_t, np.where(positive, 0.0, 1.0))


def _share_errors(pairs: csr_array, per_class: FloatArray) -> FloatArray:
    """Standard errors of sums over the rows of class i, a ratio: deviations s_g - r · n_g."""
    n_clusters, k = per_class.shape
    totals = per_class.sum(axis=0)
    rows = np.maximum(totals, 1.0)[:, None]
    total = pairs.sum(axis=0).reshape(k, k)
    rate = total / rows
    # Σ (s_g - r n_g)² = Σ s_g² - 2 r Σ s_g n_g + r² Σ n_g²
    squares = (pairs * pairs).sum(axis=0).reshape(k, k)
    sizes = (per_class**2).sum(axis=0)[:, None]
    entries = pairs.tocoo()
    of_class = entries.col // k
    own_rows = per_class[entries.row, of_class]
    weighted = entries.data * own_rows
    products = np.bincount(entries.col, weighted, k * k).reshape(k, k)
    deviations = squares - 2 * rate * products + rate**2 * sizes
    deviations = np.maximum(deviations, 0.0)
    variance = deviations * n_clusters / max(n_clusters - 1, 1)
    return np.asarray(np.sqrt(variance) / rows)


def ambiguous(
    clf_or_posteriors: Source,
    X: Given = None,
    y: Given = None,
    *,
    by: str = "entropy",
    top: int | None = None,
    classes: Names = None,
) -> pd.DataFrame:
    """Rows in order of ambiguity, or of how wrong their label looks, as a table for ``to_csv``.

    Takes what :func:`audit` takes, and ``y`` may be left out. ``by`` "entropy" puts most entropy
    first, "margin" the smallest lead of the first class over the second, "label" the most suspect
    label (:func:`label_error_scores`); ``top`` rows are kept. Columns: ``index`` (row number),
    ``label``, ``predicted``, ``second``, ``p_label``, ``p_first``, ``p_second``, ``entropy`` (in
    nats) and ``kind``. "clear": one class has a posterior of at least 0.8, and it is the label.
    "suspect label": one has at least 0.8, and the label at most 0.1. "ambiguous": all other rows.

    >>> P = [[0.98, 0.02], [0.45, 0.55], [0.99, 0.01]]
    >>> ambiguous(P, y=["cat", "cat", "dog"])[["index", "label", "predicted", "kind"]]
       index label predicted           kind
    0      1   cat       dog      ambiguous
    1      0   cat       cat          clear
    2      2   dog       cat  suspect label
    """
    check.check_choice(by, ["entropy", "margin", "label"], "by")
    if top is not None:
        check.check_count(top, "top", least=0)
    if by == "label" and y is None:
        raise ValueError(
            "y is needed for by='label': without labels none can be suspect"
        )
    P, codes, names, _ = scored(clf_or_posteriors, X, y, classes, "clf_or_posteriors")
    rows = np.arange(len(P))
    first = P.argmax(axis=1)
    second, entropy = _second_and_entropy(P, first)
    p_first = P[rows, first]
    p_second = P[rows, second]
    clear = p_first >= CLEAR
    kind = np.where(clear, "clear", "ambiguous")
    label = None
    p_label = np.full(len(P), np.nan)
    if codes is not None:
        label = names[codes]
        p_label = P[rows, codes]
        stray = np.where(p_label <= SUSPECT, "suspect label", "ambiguous")
        kind = np.where(clear & (codes != first), stray, kind)
    columns = {
        "index": rows,
        "label": label,
        "predicted": names[first],
        "second": names[second],
        "p_label": p_label,
        "p_first": p_first,
        "p_second": p_second,
        "entropy": entropy,
        "kind": kind,
    }
    found = pd.DataFrame(columns)
    if by == "label":
        key = -_scores(P, codes)
    elif by == "margin":
        key = p_first - p_second
    else:
        key = -entropy
    order = np.argsort(key, kind="stable")
    return found.iloc[order[:top]].reset_index(drop=True)


def _second_and_entropy(P: FloatArray, first: IntArray) -> tuple[IntArray, FloatArray]:
    """Second class of every row (ties go to the class that comes first) and its entropy."""
    second = np.empty_like(first)
    entropy = np.empty(len(P))
    for block in row_blocks(*P.shape):
        own = P[block]
        entropy[block] = entropies(own)
        others = own.copy()
        largest = first[block, None]
        np.put_along_axis(others, largest, -1.0, axis=1)
        second[block] = others.argmax(axis=1)
    return second, entropy


def label_error_scores(
    P: ArrayLike, y: ArrayLike, *, classes: Names = None
) -> FloatArray:
    """How likely the label of each row is wrong: higher is more suspect.

    A ranking, not a probability. ``P`` are held-out posteriors, n×K, with columns in the order of
    ``classes`` (default the sorted distinct labels). Clear rows whose labels stray tell wrong
    labels from ambiguous rows (see the module's docstring).

    >>> label_error_scores(
    ...     [[0.98, 0.02], [0.45, 0.55], [0.99, 0.01]], ["cat", "cat", "dog"]
    ... ).argsort()
    array([0, 1, 2])
    """
    posteriors, codes, *_ = scored(P, None, y, classes)
    return _scores(posteriors, codes)


def stray_labels(
    P: FloatArray, codes: IntArray, pseudo_count: float = 2.0
) -> FloatArray:
    """R[j, l]: of rows that clearly are of class j and carry another label, the share with l.

    Every row sums to 1. ``pseudo_count`` stray labels of each class are spread evenly: with none
    seen every direction is alike.
    """
    k = P.shape[1]
    # Near CLEAR labels still stray because the row is ambiguous: clearer rows count more.
    beyond = (P.max(axis=1) - CLEAR) / (1 - CLEAR)
    clarity = np.maximum(beyond, 0.0) ** 2
    pairs = P.argmax(axis=1) * k + codes
    counts = np.bincount(pairs, clarity, k * k).reshape(k, k)
    np.fill_diagonal(counts, 0.0)
    others = 1 - np.eye(k)
    counts += pseudo_count / (k - 1) * others
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def _scores(P: FloatArray, codes: IntArray, smallest: float = 1e-6) -> FloatArray:
    """Posteriors below ``smallest`` are not told apart: log 0 would outrank everything."""
    R = stray_labels(P, codes)
    towards = np.ascontiguousarray(R.T)
    strayed = np.empty(len(P))
    for block in row_blocks(*P.shape):
        # R[l, l] = 0: the label's own class adds nothing
        to_label = towards[codes[block]]
        strayed[block] = np.einsum("nj,nj->n", P[block], to_label)
    rows = np.arange(len(P))
    own = np.maximum(P[rows, codes], smallest)
    least = smallest * R[R > 0].min()
    elsewhere = np.maximum(strayed, least)
    return np.log(elsewhere) - np.log(own)


def entropies(P: FloatArray) -> FloatArray:
    """Entropy of every distribution along the last axis, in nats."""
    return np.asarray(entr(P).sum(axis=-1))
