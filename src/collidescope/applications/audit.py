"""Errors and rows: which errors of a classifier could be avoided, which rows are ambiguous, which labels look wrong?

All of it is asked of posteriors p of rows that the model did **not** see in training. The rule argmax p is the best
that the features allow, as far as p can see. :func:`audit` compares a classifier's prediction ŷ with it row by row::

    error    = P(ŷ ≠ y)                     of the audited classifier
    best     = P(argmax p ≠ y)              of the best rule known, on the same labelled rows
    fixable  = error - best                 what the best rule known avoids
    inherent                                what unlimited rows would leave, a range from a learning curve (``limit``)
    not learned yet = best - inherent       what more rows would still avoid (without a limit not told apart)

and each ordered pair (i, j) of classes by P(ŷ = j | i) and P(argmax p = j | i). It is flagged when its excess is beyond
luck (exact McNemar test on the rows of class i where only one of the two says j; Benjamini and Hochberg) **and** so is
that of both directions together: equally good rules can draw the line between i and j elsewhere. Nor is a pair flagged
whose rows, all errors counted, come out no worse.

A label that stands against the posteriors can be wrong, or its row can truly belong to two classes: p alone gives both
a small p(label). What makes wrong labels also shows where nothing is ambiguous: with R[j, l] the share of label l among
the stray labels of rows that clearly are of class j, ``score = log Σ_{j≠l} p_j R[j, l] - log p_l`` is the log odds, up
to a constant, that a row with label l is a row of another class whose label strayed. Where stray labels go anywhere
(R even), the order is that of -p(label).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import entr, ndtri
from scipy.stats import binom

from collidescope import _checks as check
from collidescope._checks import Array, ArrayLike, FloatArray, Given, IntArray
from collidescope.applications import _inputs as inputs
from collidescope.applications._inputs import Names, Told, plain, scored, wilson_interval
from collidescope.equations.moments import row_blocks

MISCALIBRATED = 3.0  #: standard errors by which posteriors may be wrong about their own error
#: Added to each of the four cells of a paired 2×2 table (Agresti and Min, 2005): Wald's interval is too short without.
AGRESTI_MIN = 0.5
CLEAR = 0.8  #: a row is clear when one class has at least this posterior: odds of 4 to 1 against all others together
SUSPECT = 0.1  #: a label is suspect when the row is clear and its label has at most this posterior: one chance in ten
PSEUDO_COUNT = (
    2.0  #: stray labels of each class, spread evenly: with none seen every direction is alike
)
SMALLEST = 1e-6  #: posteriors below this are not told apart: log 0 would outrank everything


@dataclass(frozen=True, eq=False, repr=False)
class AuditReport(
    Told, title="Which errors could a better model avoid?", table="pairs", rows=(5, 20)
):
    """What a classifier gets wrong: fixable now, not learned yet, inherent. Made by :func:`audit`.

    ``error = best + fixable`` exactly, as shares of rows, with ``error_interval`` and ``fixable_interval``;
    ``inherent_interval`` is the range of the Bayes error where a limit is known, ``bayes_error`` what the posteriors
    claim of it (1 - mean max p), ``bayes_error_limit`` its upper confidence limit: the lower of those of ``best`` and
    of the Brier score. ``pairs`` has one row per ordered pair that occurs: ``true``, ``predicted``, ``rows`` (of the
    true class), ``observed`` and ``best`` rates, ``fixable`` with ``low`` and ``high``, ``points`` (fixable as a share
    of all rows; they sum to the total), ``p_value``, ``flagged``. Largest ``fixable`` first.
    """

    classes: Array
    n_rows: int
    error: float
    error_interval: tuple[float, float]
    best: float
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
        """(low, high): what more rows would still avoid, as a share of rows; None without a limit."""
        if self.inherent_interval is None:
            return None
        low, high = self.inherent_interval
        return max(self.best - high, 0.0), max(self.best - low, 0.0)

    def rows(self, true: Any, predicted: Any, kind: str = "fixable") -> IntArray:
        """Numbers of the rows of class ``true`` that the classifier took for ``predicted``.

        ``kind``: "fixable" where argmax p is right, "inherent" where it says ``predicted`` too (inherent, or not
        learned yet), "other" where it is wrong in another way, or "all" of them.
        """
        given = (("true", true), ("predicted", predicted))
        i, j = (check.encode_labels([label], self.classes, name)[0] for name, label in given)
        if i == j:
            raise ValueError(
                f"predicted must be another class than true, got {predicted!r} for both"
            )
        y, said, best = self._codes
        taken = (y == i) & (said == j)
        keep = {
            "fixable": best == i,
            "inherent": best == j,
            "other": (best != i) & (best != j),
            "all": taken,
        }
        return np.flatnonzero(taken & keep[check.check_choice(kind, list(keep), "kind")])

    @property
    def verdict(self) -> str:
        digits = 1 if self.error >= 0.01 else 2

        def points(*values: float) -> str:
            return " to ".join(f"{100 * value:.{digits}f}" for value in values)

        said = f"The classifier errs on {self.error:.{digits}%} of rows."
        if self.fixable_interval[1] < 0:
            more = "the classifier knows more than they do, so they cannot say what is inherent. Use better posteriors."
            return f"{said} The rule from these posteriors errs on {self.best:.{digits}%}: {more}"
        if self.error == 0:
            return f"{said} There is nothing to fix."
        rest = f"{points(self.best)} points are inherent in the data or not learned yet"
        if self.inherent_interval is not None and self.not_learned_interval is not None:
            inherent = points(*self.inherent_interval)
            rest = f"{inherent} points are inherent in the data (unlimited rows would leave them)"
            rest = f"{rest}, {points(*self.not_learned_interval)} points are not learned yet"
        found, fix = self.pairs[self.pairs["flagged"]], points(*self.fixable_interval)
        if self.fixable_interval[0] <= 0:
            names = [
                f"{a} taken for {b}" for a, b in zip(found["true"], found["predicted"], strict=True)
            ]
            more = (
                f" Some pairs still stand out: {', '.join(names[: self.ROWS[0]])}." if names else ""
            )
            none = f"Nothing that a better model would fix is found (difference to the best rule known {fix} points)"
            return f"{said} {none}: {rest}. To err less takes better features or more rows.{more}"
        top = (found if len(found) else self.pairs).nlargest(1, "points").to_dict("records")[0]
        part = "most of it" if top["points"] > self.fixable / 2 else "the largest part"
        most = f"{part} {top['true']} taken for {top['predicted']}"
        return f"{said} {points(self.fixable)} points ({fix}) could be fixed by a better model, {most}; {rest}."

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"not_learned_interval": plain(self.not_learned_interval)}

    def _shown(self, most: int | None) -> pd.DataFrame:
        return self.pairs[self.pairs["fixable"] > 0][:most]


def audit(
    model_or_posteriors: Any,
    X: Any = None,
    y_true: Given = None,
    y_pred: Any = None,
    *,
    limit: Any = None,
    classes: Names = None,
    level: float = 0.95,
    fdr: float = 0.05,
) -> AuditReport:
    """Split the errors of any classifier into what a better model could fix, what is not learned yet, and the rest.

    Parameters
    ----------
    model_or_posteriors : fitted classifier or array of shape (n, K), the best estimate of the true posteriors
        Of rows not in training; those of a ``CollisionClassifier``'s fit get their held-out posteriors.
    X, y_true : the audited rows (needed where something has to predict, else ``audit(P, y, y_pred)``), and labels
    y_pred : array of n labels or of shape (n, K), or a fitted estimator, that did not train on the rows
    limit : Limit, default ``limit_`` of the model; tells "not learned yet" from "inherent"
    classes : K names in the order of the columns, default those of the model or the sorted distinct labels
    level, fdr : float, of the intervals; false discovery rate of the flagged pairs (Benjamini and Hochberg)

    Examples
    --------
    >>> from collidescope.datasets import GaussianProblem
    >>> problem = GaussianProblem([[0, 0], [0, 3], [2, 0]], classes=["a", "b", "c"])
    >>> X, y = problem.sample(3000, random_state=0)
    >>> blind = np.where(X[:, 0] > 1, "c", "a")  # sees only the first feature, and so never says b
    >>> report = audit(problem.posteriors(X), y_true=y, y_pred=blind)
    >>> report.error == report.best + report.fixable
    True
    >>> report.pairs.query("flagged")[["true", "predicted"]].to_numpy().tolist()
    [['b', 'a'], ['b', 'c']]
    """
    inputs.check_rates(level=level, fdr=fdr)
    model = hasattr(model_or_posteriors, "predict_proba")
    if (
        y_pred is None
        and not model
        and X is not None
        and y_true is not None
        and not inputs.is_table(X)
    ):
        X, y_true, y_pred = None, X, y_true
    if y_true is None or y_pred is None:
        calls = "audit(posteriors, y_true=y, y_pred=predicted) or audit(model, X, y, predicted)"
        raise ValueError(f"{'y_true' if y_true is None else 'y_pred'} is needed: write {calls}")
    given = X if model else None
    P, y, names, notes = scored(
        model_or_posteriors, given, y_true, classes, "model_or_posteriors", "y_true"
    )
    said, best = predicted_codes(y_pred, X, names), P.argmax(axis=1)
    check.check_same_length(y, said, "y_true and y_pred")
    n = len(P)
    wrong, best_wrong = said != y, best != y
    worse, better = int((wrong & ~best_wrong).sum()), int((best_wrong & ~wrong).sum())
    low, high = paired_interval(np.array(worse), np.array(better), np.array(n), level)
    claimed = 1 - P.max(axis=1)
    gap, spread, _ = inputs.mean_and_error(best_wrong - claimed)
    if n > 1 and abs(gap) > MISCALIBRATED * spread:
        said_of = f"they claim that their rule errs on {claimed.mean():.1%}, it errs on {best_wrong.mean():.1%}"
        how = "over" if gap > 0 else "under"
        notes += (
            f"The posteriors are {how}-confident: {said_of}. Better ones may find more that can be fixed.",
        )
    pber, stderr, _ = inputs.mean_and_error((inputs.residuals(P, y) ** 2).sum(axis=1))
    # Either of two upper limits would do at a one-sided (1 - level) / 2; for the lower of them each takes half of it.
    each = 1 - (1 - level) / 2
    upper = min(
        wilson_interval(best_wrong.sum(), n, each)[1], float(pber + ndtri((1 + each) / 2) * stderr)
    )
    limit = getattr(model_or_posteriors, "limit_", None) if limit is None else limit
    both: dict[str, Any] = {
        "error": float(best_wrong.mean()) + (worse - better) / n,
        "best": float(best_wrong.mean()),
    }
    both |= {"fixable": (worse - better) / n, "fixable_interval": (float(low), float(high))}
    both |= {"error_interval": wilson_interval(wrong.sum(), n, level), "bayes_error_limit": upper}
    both |= {
        "inherent_interval": None
        if limit is None
        else tuple(map(float, limit.bayes_error_interval(level)))
    }
    both |= {
        "bayes_error": float(claimed.mean()),
        "pairs": _pair_table(y, said, best, names, level, fdr),
    }
    return AuditReport(names, n, **both, level=level, fdr=fdr, notes=notes, _codes=(y, said, best))


def bayes_confusion(P: ArrayLike, y: Given = None, *, classes: Names = None) -> FloatArray:
    """Confusion of the best rule: row i, column j is E_{x~D_i} 1[argmax y(x) = j].

    With labels class i is the rows labelled i; without, every row counts for class i with weight p_i, which is as right
    as the posteriors ``P`` (n×K, held out) are.

    >>> bayes_confusion([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]).round(3)
    array([[0.882, 0.118],
           [0.385, 0.615]])
    """
    posteriors, codes, names, _ = scored(P, None, y, classes)
    said, table = posteriors.argmax(axis=1), np.zeros((len(names), len(names)))
    # A row that the rule calls j adds its c, or its p, to column j of the table: row j of the transpose.
    np.add.at(table.T, said, posteriors if codes is None else np.eye(len(names))[codes])
    with np.errstate(invalid="ignore"):  # nan for a class without rows
        return table / table.sum(axis=1, keepdims=True)


def predicted_codes(y_pred: Any, X: Any, classes: Array) -> IntArray:
    """Class numbers from labels, posteriors or a fitted estimator."""
    if isinstance(y_pred, type):
        raise ValueError(
            f"y_pred must be labels, posteriors or a fitted estimator, got the class {y_pred.__name__}"
        )
    if hasattr(y_pred, "predict"):
        if X is None:
            raise ValueError(
                f"X is needed: y_pred is an estimator ({type(y_pred).__name__}) that has to predict"
            )
        y_pred = y_pred.predict(X)
    if inputs.is_table(y_pred):
        return check.check_posteriors(y_pred, "y_pred", len(classes)).argmax(axis=1)
    return check.encode_labels(y_pred, classes, "y_pred")


# Only the rows on which the rules differ speak for one of them: with b rows where the first alone says j and c where
# the second alone does, the difference of the shares is (b - c) / n, and without a true difference b is half of b + c
# but for luck (McNemar).


def paired_interval(
    only_first: Any, only_second: Any, n: Any, level: float
) -> tuple[FloatArray, FloatArray]:
    """Agresti and Min's interval of the difference of two shares of ``n`` rows, widened to the difference itself."""
    b, c, total = only_first + AGRESTI_MIN, only_second + AGRESTI_MIN, n + 4 * AGRESTI_MIN
    centre = (b - c) / total
    # b and c are multinomial: Var(b - c) = b + c - (b - c)² / n.
    half = ndtri((1 + level) / 2) * np.sqrt(b + c - (b - c) ** 2 / total) / total
    difference = (only_first - only_second) / n
    low, high = np.minimum(centre - half, difference), np.maximum(centre + half, difference)
    return np.maximum(low, -1.0), np.minimum(high, 1.0)


def mcnemar_p(only_first: IntArray, only_second: IntArray) -> FloatArray:
    """Exact one-sided p-value of McNemar's test: are the first kind of rows more than luck would have them?"""
    return np.asarray(binom.sf(only_first - 1, only_first + only_second, 0.5))


def confusion_table(y: IntArray, said: IntArray, k: int) -> FloatArray:
    """How many rows of class i are called j."""
    return np.bincount(y * k + said, minlength=k * k).reshape(k, k).astype(np.float64)


def _pair_table(
    y: IntArray, said: IntArray, best: IntArray, classes: Array, level: float, fdr: float
) -> pd.DataFrame:
    """:attr:`AuditReport.pairs` from class numbers: labels, the audited rule, the best rule."""
    k = len(classes)
    observed, inherent = confusion_table(y, said, k), confusion_table(y, best, k)
    agreed = confusion_table(y[said == best], said[said == best], k)
    # Rows that both call j cancel: ``more`` are called j by the audited rule alone, ``fewer`` by the best one.
    more, fewer = (observed - agreed).astype(np.intp), (inherent - agreed).astype(np.intp)
    i, j = np.nonzero((observed + inherent) * (1 - np.eye(k)))
    rows = np.bincount(y, minlength=k)[i]
    worse, better = more[i, j], fewer[i, j]
    p = np.maximum(mcnemar_p(worse, better), mcnemar_p(worse + more[j, i], better + fewer[j, i]))
    # A rule that prefers other classes than the best one does, of several that nobody can tell apart, confuses its
    # favourites more and is right about them more often: where their rows come out no worse, nothing can be fixed.
    excess = (more - fewer).sum(axis=1) - np.diag(more - fewer)
    p = np.where(excess[i] + excess[j] > 0, p, 1.0)
    # With m rows between the rules no p-value is below 2⁻ᵐ. Pairs that could never be flagged take no part: m does not
    # depend on whom the rows favour, so leaving them out favours nobody.
    tested = 0.5 ** (worse + better) <= fdr
    flagged = tested.copy()
    flagged[tested] = inputs.discovered(p[tested], fdr)
    low, high = paired_interval(worse, better, rows, level)
    columns = {
        "true": classes[i],
        "predicted": classes[j],
        "rows": rows,
        "observed": observed[i, j] / rows,
    }
    columns |= {
        "best": inherent[i, j] / rows,
        "fixable": (worse - better) / rows,
        "low": low,
        "high": high,
    }
    columns |= {"points": (worse - better) / len(y), "p_value": p, "flagged": flagged}
    return pd.DataFrame(columns).sort_values(
        "fixable", ascending=False, kind="stable", ignore_index=True
    )


def ambiguous(
    clf_or_posteriors: Any,
    X: Any = None,
    y: Given = None,
    *,
    by: str = "entropy",
    top: int | None = None,
    classes: Names = None,
) -> pd.DataFrame:
    """Rows in order of ambiguity, or of how wrong their label looks, as a table to write with ``to_csv``.

    Takes what :func:`audit` takes, and ``y`` may be left out. ``by`` "entropy" puts most entropy first, "margin" the
    smallest lead of the first class over the second, "label" the most suspect label (:func:`label_error_scores`);
    ``top`` rows are kept. Columns: ``index`` (row number), ``label``, ``predicted``, ``second``, ``p_label``,
    ``p_first``, ``p_second``, ``entropy`` (in nats) and ``kind``. "clear": one class has a posterior of at least 0.8,
    and it is the label. "suspect label": one has at least 0.8, and the label at most 0.1. "ambiguous": all other rows.

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
        raise ValueError("y is needed for by='label': without labels none can be suspect")
    P, codes, names, _ = scored(clf_or_posteriors, X, y, classes, "clf_or_posteriors")
    rows, first = np.arange(len(P)), P.argmax(axis=1)
    second, entropy = np.empty_like(first), np.empty(len(P))
    for block in row_blocks(*P.shape):
        entropy[block] = entropies(P[block])
        others = P[block].copy()
        np.put_along_axis(others, first[block, None], -1.0, axis=1)
        second[block] = others.argmax(
            axis=1
        )  # ties go to the class that comes first, as in the first argmax
    found = pd.DataFrame(
        {"index": rows, "label": None, "predicted": names[first], "second": names[second]}
    )
    found = found.assign(
        p_label=np.nan, p_first=P[rows, first], p_second=P[rows, second], entropy=entropy
    )
    clear = found["p_first"] >= CLEAR
    found["kind"] = np.where(clear, "clear", "ambiguous")
    key = -entropy if by == "entropy" else found["p_first"] - found["p_second"]
    if codes is not None:
        found["label"], found["p_label"] = names[codes], P[rows, codes]
        stray = np.where(found["p_label"] <= SUSPECT, "suspect label", "ambiguous")
        found["kind"] = np.where(clear & (codes != first), stray, found["kind"])
        key = -_scores(P, codes) if by == "label" else key
    return found.iloc[np.argsort(key, kind="stable")[:top]].reset_index(drop=True)


def label_error_scores(P: ArrayLike, y: ArrayLike, *, classes: Names = None) -> FloatArray:
    """How likely the label of each row is wrong: higher is more suspect; a ranking, not a probability.

    ``P`` are held-out posteriors, n×K, with columns in the order of ``classes`` (default the sorted distinct labels).
    Clear rows whose labels stray tell wrong labels from ambiguous rows (see the module's docstring).

    >>> label_error_scores(
    ...     [[0.98, 0.02], [0.45, 0.55], [0.99, 0.01]], ["cat", "cat", "dog"]
    ... ).argsort()
    array([0, 1, 2])
    """
    posteriors, codes, *_ = scored(P, None, y, classes)
    return _scores(posteriors, codes)


def stray_labels(P: FloatArray, codes: IntArray) -> FloatArray:
    """R[j, l]: among rows that clearly are of class j and carry another label, the share with label l (Σ_l = 1)."""
    k = P.shape[1]
    # Near CLEAR labels still stray because the row is ambiguous: the clearer a row, the more it counts.
    clarity = np.maximum((P.max(axis=1) - CLEAR) / (1 - CLEAR), 0.0) ** 2
    counts = np.bincount(P.argmax(axis=1) * k + codes, clarity, k * k).reshape(k, k)
    np.fill_diagonal(counts, 0.0)
    counts += PSEUDO_COUNT / (k - 1) * (1 - np.eye(k))
    return counts / counts.sum(axis=1, keepdims=True)


def _scores(P: FloatArray, codes: IntArray) -> FloatArray:
    R = stray_labels(P, codes)
    towards = np.ascontiguousarray(R.T)
    strayed = np.empty(len(P))
    for block in row_blocks(*P.shape):
        # R[l, l] = 0: the label's own class adds nothing
        strayed[block] = np.einsum("nj,nj->n", P[block], towards[codes[block]])
    own = P[np.arange(len(P)), codes]
    return np.log(np.maximum(strayed, SMALLEST * R[R > 0].min())) - np.log(
        np.maximum(own, SMALLEST)
    )


def entropies(P: FloatArray) -> FloatArray:
    """Entropy of every distribution along the last axis, in nats."""
    return np.asarray(entr(P).sum(axis=-1))
