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
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse import csr_array
from scipy.special import entr, ndtri, stdtr
from scipy.stats import binom

from collidescope import _checks as check
from collidescope._checks import Array, ArrayLike, FloatArray, Given, IntArray
from collidescope.applications._inputs import (
    BoolArray,
    Ends,
    Interval,
    Names,
    Notes,
    Record,
    Result,
    Scored,
    Source,
    check_rates,
    discovered,
    is_table,
    no_narrower,
    plain,
    row_limit,
    scored,
    share_interval,
)
from collidescope.equations.moments import row_blocks
from collidescope.equations.posterior import brier_scores
from collidescope.intervals import brier_interval, level_together, signed_interval
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
    error_interval: Interval
    best: float
    best_interval: Interval
    fixable: float
    fixable_interval: Interval
    inherent_interval: Interval | None
    bayes_error: float
    bayes_error_limit: float
    pairs: pd.DataFrame
    level: float
    fdr: float
    notes: Notes = ()
    _codes: tuple[IntArray, ...] = ()  #: class numbers of y, ŷ and argmax p

    @property
    def not_learned_interval(self) -> Interval | None:
        """(low, high): what more rows would still avoid, as a share of rows; None: no limit.

        From the intervals of both parts: few audited rows know ``best`` badly.
        """
        if self.inherent_interval is None:
            return None
        low, high = self.inherent_interval
        best_low, best_high = self.best_interval
        return max(best_low - high, 0.0), max(best_high - low, 0.0)

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
        keep = {
            "fixable": best == i,
            "inherent": best == j,
            "other": (best != i) & (best != j),
            "all": y == i,
        }
        chosen = check.check_choice(kind, list(keep), "kind")
        return np.flatnonzero((y == i) & (said == j) & keep[chosen])

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
        fix = f"{self._points(self.fixable)} points ({self._points(low, high)})"
        fix += f" could be fixed by a better model, {self._largest_part()}"
        return f"{errs} {fix}; {self._rest()}."

    def _largest_part(self) -> str:
        """The pair that makes up most of what can be fixed."""
        found = self.pairs[self.pairs["flagged"]]
        if not len(found):
            found = self.pairs
        top = found.nlargest(1, "points").iloc[0]
        part = "the largest part"
        if top["points"] > self.fixable / 2:
            part = "most of it"
        return f"{part} {top['true']} taken for {top['predicted']}"

    @property
    def _digits(self) -> int:
        return 1 if self.error >= 0.01 else 2

    def _points(self, *values: float) -> str:
        return " to ".join(f"{100 * value:.{self._digits}f}" for value in values)

    def _nothing_found(self) -> str:
        fix = self._points(*self.fixable_interval)
        words = (
            "No error was found that a better model would fix (difference to the best rule "
            f"known {fix} points): {self._rest()}. Fewer errors need better features or "
            "more rows."
        )
        flagged = self.pairs[self.pairs["flagged"]].head(5)
        pairs = zip(flagged["true"], flagged["predicted"], strict=True)
        names = [f"{a} taken for {b}" for a, b in pairs]
        if names:
            words += f" Some pairs still stand out: {', '.join(names)}."
        return words

    def _rest(self) -> str:
        """What a better model would not fix."""
        not_learned = self.not_learned_interval
        if self.inherent_interval is None or not_learned is None:
            best = self._points(self.best)
            return f"{best} points are inherent in the data or not learned yet"
        inherent = self._points(*self.inherent_interval)
        return (
            f"{inherent} points are inherent in the data (unlimited rows would leave "
            f"them), {self._points(*not_learned)} points are not learned yet"
        )

    def to_dict(self) -> Record:
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
    rows = scored(
        model_or_posteriors,
        X if is_model else None,
        y_true,
        classes,
        "model_or_posteriors",
        "y_true",
        groups,
    )
    P = rows.posteriors
    y = rows.codes
    said = predicted_codes(y_pred, X, rows.classes)
    check.check_same_length(y, said, "y_true and y_pred")
    best = P.argmax(axis=1)
    wrong = said != y
    best_wrong = best != y
    fixable = int(wrong.sum() - best_wrong.sum()) / len(P)
    best_error = float(best_wrong.mean())
    if limit is None:
        limit = row_limit(model_or_posteriors)
    inherent = None
    if limit is not None:
        inherent = limit.bayes_error_interval(level)
    return AuditReport(
        classes=rows.classes,
        n_rows=len(P),
        error=best_error + fixable,
        error_interval=share_interval(wrong, rows, level),
        best=best_error,
        best_interval=share_interval(best_wrong, rows, level),
        fixable=fixable,
        fixable_interval=_fixable_interval(wrong, best_wrong, rows, level),
        inherent_interval=inherent,
        bayes_error=float((1 - P.max(axis=1)).mean()),
        bayes_error_limit=_error_limit(best_wrong, rows, level),
        pairs=_pair_table(rows, said, level, fdr),
        level=level,
        fdr=fdr,
        notes=(*rows.notes, *_calibration_note(best_wrong, rows)),
        _codes=(y, said, best),
    )


def _fixable_interval(
    wrong: BoolArray, best_wrong: BoolArray, rows: Scored, level: float
) -> Interval:
    """The interval of a difference of errors on the same rows; never narrower for clusters."""
    worse = (wrong & ~best_wrong).sum()
    better = (best_wrong & ~wrong).sum()
    ends = paired_interval(worse, better, np.array(len(wrong)), level)
    if rows.clusters is not None:
        difference = wrong.astype(np.float64) - best_wrong
        mean = rows.mean(difference)
        ends = no_narrower(ends, rows.signed_interval(mean, difference, level))
    low, high = ends
    return float(low), float(high)


def _error_limit(best_wrong: BoolArray, rows: Scored, level: float) -> float:
    """Upper limit of the Bayes error: the lower of those of the best rule and of the Brier score.

    Either of the two would do at a one-sided (1 - level) / 2; for the lower of them each takes
    half of it.
    """
    each = level_together(level, 2)
    brier = rows.mean(brier_scores(rows.posteriors, rows.codes))
    _, highest_score = brier_interval(
        float(brier.value),
        float(brier.stderr),
        rows.units,
        each,
        grouped=rows.clusters is not None,
    )
    _, highest_error = share_interval(best_wrong, rows, each)
    return min(highest_error, highest_score)


def _calibration_note(
    best_wrong: BoolArray, rows: Scored, most: float = 3.0, level: float = 0.9973
) -> Notes:
    """Posteriors that are wrong about their own error, by more than so many standard errors.

    And beyond the exact interval of the error: where hardly a row errs its standard error is 0.
    """
    claimed = 1 - rows.posteriors.max(axis=1)
    gap, stderr, _ = rows.mean(best_wrong - claimed)
    low, high = share_interval(best_wrong, rows, level)
    if len(claimed) < 2 or abs(gap) <= most * stderr or low <= claimed.mean() <= high:
        return ()
    how = "over" if gap > 0 else "under"
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
    rows = scored(P, None, y, classes)
    k = len(rows.classes)
    weights = rows.posteriors
    if rows.codes is not None:
        weights = np.eye(k)[rows.codes]
    table = np.zeros((k, k))
    # A row that the rule calls j adds its c, or its p, to column j: row j of the transpose.
    np.add.at(table.T, rows.posteriors.argmax(axis=1), weights)
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
            raise ValueError(
                f"X is needed: y_pred is an estimator ({type(y_pred).__name__}) that has "
                "to predict"
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
) -> Ends:
    """Of the difference of two shares of ``n`` rows.

    Agresti and Min's interval adds 1/2 to each of the four cells of the paired 2×2 table (2005):
    Wald's is too short. Where hardly any rows differ the limits of both counts reach further.
    """
    b = only_first + 0.5
    c = only_second + 0.5
    total = n + 2.0
    centre = (b - c) / total
    # b and c are multinomial: Var(b - c) = b + c - (b - c)² / n.
    variance = b + c - (b - c) ** 2 / total
    half = ndtri((1 + level) / 2) * np.sqrt(variance) / total
    difference = (only_first - only_second) / n
    size = (only_first + only_second) / n
    stderr = np.sqrt(np.maximum(size - difference**2, 0.0) / n)
    ends = signed_interval(difference, size, stderr, n, level)
    return no_narrower(ends, (centre - half, centre + half))


def mcnemar_p(only_first: IntArray, only_second: IntArray) -> FloatArray:
    """Exact one-sided p-value of McNemar's test: are rows of the first kind more than chance?"""
    return np.asarray(binom.sf(only_first - 1, only_first + only_second, 0.5))


def confusion_table(y: IntArray, said: IntArray, k: int) -> FloatArray:
    """How many rows of class i are called j."""
    counts = np.bincount(y * k + said, minlength=k * k)
    return counts.reshape(k, k).astype(np.float64)


class _PairCounts(NamedTuple):
    """Rows of class i that are called j, K×K."""

    observed: FloatArray  #: by the audited rule
    best: FloatArray
    more: IntArray  #: by the audited rule alone
    fewer: IntArray  #: by the best rule alone

    @classmethod
    def of(cls, y: IntArray, said: IntArray, best: IntArray, k: int) -> _PairCounts:
        said_counts = confusion_table(y, said, k)
        best_counts = confusion_table(y, best, k)
        # Rows that both rules call j cancel.
        same = said == best
        agreed = confusion_table(y[same], said[same], k)
        more = (said_counts - agreed).astype(np.intp)
        return cls(
            said_counts, best_counts, more, (best_counts - agreed).astype(np.intp)
        )

    def p_values(self, i: IntArray, j: IntArray) -> FloatArray:
        """P-values of "no more errors than the best rule", for i called j and both directions."""
        one_way = mcnemar_p(self.more[i, j], self.fewer[i, j])
        more = self.more + self.more.T
        fewer = self.fewer + self.fewer.T
        return np.maximum(one_way, mcnemar_p(more[i, j], fewer[i, j]))

    def excess(self) -> IntArray:
        """Errors on the rows of every class beyond those of the best rule."""
        difference = self.more - self.fewer
        return difference.sum(axis=1) - np.diag(difference)


def _pair_table(
    audited: Scored, said: IntArray, level: float, fdr: float
) -> pd.DataFrame:
    """:attr:`AuditReport.pairs`."""
    classes = audited.classes
    k = len(classes)
    y = audited.codes
    best = audited.posteriors.argmax(axis=1)
    counts = _PairCounts.of(y, said, best, k)
    occurs = counts.observed + counts.best > 0
    np.fill_diagonal(occurs, False)
    i, j = np.nonzero(occurs)
    rows = np.bincount(y, minlength=k)[i]
    worse = counts.more[i, j]
    better = counts.fewer[i, j]
    fixable = (worse - better) / rows
    low, high = paired_interval(worse, better, rows, level)
    p = counts.p_values(i, j)
    if audited.clusters is not None:
        of_clusters = _cluster_intervals(audited, said, best, (i, j), level)
        low, high = no_narrower((low, high), of_clusters)
        p = np.maximum(p, _cluster_p_values(y, said, best, audited.clusters, k)[i, j])
    # A rule that prefers other classes than the best one does, of several that nobody can tell
    # apart, confuses its favourites more and is right about them more often: where their rows come
    # out no worse, nothing can be fixed.
    excess = counts.excess()
    p = np.where(excess[i] + excess[j] > 0, p, 1.0)
    columns = {
        "true": classes[i],
        "predicted": classes[j],
        "rows": rows,
        "observed": counts.observed[i, j] / rows,
        "best": counts.best[i, j] / rows,
        "fixable": fixable,
        "low": low,
        "high": high,
        "points": (worse - better) / len(y),
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
    return flags


def _cluster_intervals(
    audited: Scored,
    said: IntArray,
    best: IntArray,
    pairs: tuple[IntArray, IntArray],
    level: float,
) -> Ends:
    """Of what can be fixed of every pair: means over the rows of its class, in clusters."""
    i, j = pairs
    low = np.empty(len(i))
    high = np.empty(len(i))
    for own in np.unique(i):
        here = i == own
        rows = audited.codes == own
        called = j[here]
        worse = said[rows, None] == called
        difference = worse.astype(np.float64) - (best[rows, None] == called)
        part = audited.part(rows)
        mean = part.mean(difference)
        low[here], high[here] = part.signed_interval(mean, difference, level)
    return low, high


def _cluster_p_values(
    y: IntArray, said: IntArray, best: IntArray, clusters: IntArray, k: int
) -> FloatArray:
    """Of "no more errors" by sums of clusters: of one direction and of both, the larger."""
    n_clusters = int(clusters.max()) + 1
    differ = np.flatnonzero(said != best)
    # +1 for the pair that the audited rule falls into, -1 for that of the best one.
    signs = np.repeat([1.0, -1.0], len(differ))
    own = np.tile(clusters[differ], 2)
    true = np.tile(y[differ], 2)
    called = np.concatenate([said[differ], best[differ]])
    either = np.minimum(true, called) * k + np.maximum(true, called)
    shape = (n_clusters, k * k)
    # Sparse; values of the same place are added up.
    pairs = csr_array((signs, (own, true * k + called)), shape=shape)
    unordered = csr_array((signs, (own, either)), shape=shape)
    upper = np.triu(_not_above_zero(unordered).reshape(k, k))
    one_way = _not_above_zero(pairs).reshape(k, k)
    return np.maximum(one_way, np.maximum(upper, upper.T))


def _not_above_zero(sums: csr_array) -> FloatArray:
    """One-sided p-value of the total of every column, from sums by cluster."""
    n_clusters = sums.shape[0]
    df = max(n_clusters - 1, 1)
    total = sums.sum(axis=0)
    squares = (sums * sums).sum(axis=0)
    variance = (squares - total**2 / n_clusters) * n_clusters / df
    varies = variance > 1e-12
    stderr = np.sqrt(np.where(varies, variance, 1.0))
    certain = np.where(total > 0, 0.0, 1.0)
    return np.where(varies, stdtr(df, -total / stderr), certain)


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
    given = scored(clf_or_posteriors, X, y, classes, "clf_or_posteriors")
    P = given.posteriors
    codes = given.codes
    names = given.classes
    rows = np.arange(len(P))
    first = P.argmax(axis=1)
    second, entropy = _second_and_entropy(P, first)
    p_first = P[rows, first]
    p_second = P[rows, second]
    clear = p_first >= CLEAR
    suspect = np.zeros(len(P), dtype=bool)
    label = None
    p_label = np.nan
    if codes is not None:
        label = names[codes]
        p_label = P[rows, codes]
        suspect = clear & (p_label <= SUSPECT)
        clear &= codes == first
    columns = {
        "index": rows,
        "label": label,
        "predicted": names[first],
        "second": names[second],
        "p_label": p_label,
        "p_first": p_first,
        "p_second": p_second,
        "entropy": entropy,
        "kind": np.select(
            [suspect, clear], ["suspect label", "clear"], default="ambiguous"
        ),
    }
    key = -entropy
    if by == "label":
        key = -_scores(P, codes)
    elif by == "margin":
        key = p_first - p_second
    order = np.argsort(key, kind="stable")[:top]
    return pd.DataFrame(columns).iloc[order].reset_index(drop=True)


def suspects_by_chance(P: FloatArray) -> float:
    """How many labels would look wrong if every one were drawn from its posterior."""
    clear = P.max(axis=1, keepdims=True) >= CLEAR
    return float(P.sum(where=clear & (P <= SUSPECT)))


def _second_and_entropy(P: FloatArray, first: IntArray) -> tuple[IntArray, FloatArray]:
    """Second class of every row (ties go to the class that comes first) and its entropy."""
    second = np.empty_like(first)
    entropy = np.empty(len(P))
    for block in row_blocks(*P.shape):
        others = P[block].copy()
        entropy[block] = entropies(others)
        np.put_along_axis(others, first[block, None], -1.0, axis=1)
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
    rows = scored(P, None, y, classes)
    return _scores(rows.posteriors, rows.codes)


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
    counts += pseudo_count / (k - 1) * (1 - np.eye(k))
    return counts / counts.sum(axis=1, keepdims=True)


def _scores(P: FloatArray, codes: IntArray, smallest: float = 1e-6) -> FloatArray:
    """Posteriors below ``smallest`` are not told apart: log 0 would outrank everything."""
    R = stray_labels(P, codes)
    towards = np.ascontiguousarray(R.T)
    strayed = np.empty(len(P))
    for block in row_blocks(*P.shape):
        # R[l, l] = 0: the label's own class adds nothing
        strayed[block] = np.einsum("nj,nj->n", P[block], towards[codes[block]])
    own = np.maximum(P[np.arange(len(P)), codes], smallest)
    elsewhere = np.maximum(strayed, smallest * R[R > 0].min())
    return np.log(elsewhere) - np.log(own)


def entropies(P: FloatArray) -> FloatArray:
    """Entropy of every distribution along the last axis, in nats."""
    return entr(P).sum(axis=-1)
