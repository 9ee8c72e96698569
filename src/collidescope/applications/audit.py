"""Which errors of a classifier could a better model avoid, and which are in the data?

With posteriors p of the audited rows (held out: the best estimate of the truth there is) the rule argmax p is the best
that the features allow, as far as p can see. The audited classifier's prediction ŷ is compared with it row by row::

    error    = P(ŷ ≠ y)                     of the audited classifier
    inherent = P(argmax p ≠ y)              of the best rule, on the same labelled rows
    fixable  = error - inherent             paired, row by row

and for each ordered pair (i, j) of classes the same with P(ŷ = j | i) and P(argmax p = j | i), the Bayes-optimal
confusion E_{x~D_i} 1[argmax y(x) = j]. Whatever p could not learn counts as inherent, so *fixable* is a lower limit:
the rule exists and does avoid these errors on rows it has not seen.

A pair is flagged when its excess is beyond luck (exact McNemar test on the rows of class i where only one of the two
says j) **and** so is that of both directions together, i → j and j → i. Two rules that are equally good can differ in
where they draw the line between i and j: one then makes more of the one error and fewer of the other, which no better
model mends. Nor is a pair flagged whose rows, all errors counted, come out no worse: of classes that nobody can tell
apart one rule may prefer these, another rule others. Benjamini and Hochberg's procedure keeps the expected share of
false flags below ``fdr``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope.applications._audit_report import AuditReport
from collidescope.applications._paired import (
    confusion_rates,
    confusion_table,
    is_table,
    pair_table,
    paired_interval,
    wilson_interval,
)
from collidescope.applications.ambiguity import resolve_posteriors
from collidescope.equations.bounds import bayes_error_bounds

__all__ = ["AuditReport", "audit", "bayes_confusion"]

#: Posteriors whose own word on their error is off by more standard errors than this are called miscalibrated.
MISCALIBRATED = 3.0


def audit(
    model_or_posteriors: Any,
    X: Any = None,
    y_true: npt.ArrayLike | None = None,
    y_pred: Any = None,
    *,
    classes: Sequence[Any] | npt.NDArray[Any] | None = None,
    level: float = 0.95,
    fdr: float = 0.05,
) -> AuditReport:
    """Split the errors of any classifier into what is inherent in the data and what a better model could fix.

    Parameters
    ----------
    model_or_posteriors : array of shape (n, K), or a fitted classifier with ``predict_proba``
        The best estimate of the true posteriors of the audited rows, by a model that did not train on them: a
        ``CollisionClassifier`` fitted on other rows, or its ``posteriors_`` for the rows it was fitted on.
    X : the audited rows
        Needed when the first argument is a classifier or ``y_pred`` is an estimator.
    y_true : array of n labels
    y_pred : array of n labels, array of shape (n, K), or a fitted estimator
        What the audited classifier says: labels, posteriors (the most likely class is taken; columns in the order of
        ``classes``), or the classifier itself, whose ``predict`` is called on ``X``. It must not have trained on the
        rows either, or its errors are too few.
    classes : K names in the order of the columns, default those of the model or the sorted distinct labels
    level : float
        Of the intervals.
    fdr : float
        False discovery rate of the flagged pairs (Benjamini and Hochberg).

    Returns
    -------
    AuditReport

    Examples
    --------
    >>> from collidescope.datasets import GaussianProblem
    >>> problem = GaussianProblem([[0, 0], [0, 3], [2, 0]], classes=["a", "b", "c"])
    >>> X, y = problem.sample(3000, random_state=0)
    >>> blind = np.where(X[:, 0] > 1, "c", "a")  # sees only the first feature, and so never says b
    >>> report = audit(problem.posteriors(X), y_true=y, y_pred=blind)
    >>> report.error == report.inherent + report.fixable
    True
    >>> report.pairs.query("flagged")[["true", "predicted"]].to_numpy().tolist()
    [['b', 'a'], ['b', 'c']]
    """
    check.check_between(level, 0, 1, "level")
    check.check_between(fdr, 0, 1, "fdr")
    for name, value in (("y_true", y_true), ("y_pred", y_pred)):
        if value is None:
            raise ValueError(f"{name} is needed (the order is model_or_posteriors, X, y_true, y_pred; X may be None)")
    P, names = resolve_posteriors(model_or_posteriors, X, y_true, classes, "model_or_posteriors", "y_true")
    y = check.encode_labels(y_true, names, "y_true")  # type: ignore[arg-type]
    check.check_same_length(P, y, "the posteriors and y_true")
    said = predicted_codes(y_pred, X, names)
    check.check_same_length(y, said, "y_true and y_pred")
    best = P.argmax(axis=1)
    n, k = P.shape

    wrong, best_wrong = said != y, best != y
    worse, better = int((wrong & ~best_wrong).sum()), int((best_wrong & ~wrong).sum())
    interval = paired_interval(np.array(worse), np.array(better), np.array(n), level)
    inherent = float(best_wrong.mean())
    claimed = 1 - P.max(axis=1)
    loss = 1 - 2 * P[np.arange(n), y] + (P**2).sum(axis=1)
    half = float(ndtri((1 + level) / 2) * loss.std() / np.sqrt(n))
    most = (k - 1) / k
    pber = np.clip([loss.mean() - half, loss.mean() + half], 0.0, most)
    return AuditReport(
        classes=names,
        n_rows=n,
        error=inherent + (worse - better) / n,
        error_interval=wilson_interval(int(wrong.sum()), n, level),
        inherent=inherent,
        fixable=(worse - better) / n,
        fixable_interval=(float(interval[0]), float(interval[1])),
        bayes_error=float(claimed.mean()),
        bayes_bounds=(bayes_error_bounds(pber[0], k)[0], bayes_error_bounds(pber[1], k)[1]),
        pairs=pair_table(y, said, best, names, level, fdr),
        confusion=confusion_rates(confusion_table(y, said, k)),
        bayes_confusion=confusion_rates(confusion_table(y, best, k)),
        level=level,
        fdr=fdr,
        cautions=_cautions(best_wrong, claimed),
        _codes=(y, said, best),
    )


def bayes_confusion(
    P: npt.ArrayLike, y: npt.ArrayLike | None = None, *, classes: Sequence[Any] | npt.NDArray[Any] | None = None
) -> FloatArray:
    """Confusion of the best rule: row i, column j is E_{x~D_i} 1[argmax y(x) = j].

    Parameters
    ----------
    P : array of shape (n, K)
        Held-out posteriors.
    y : array of n labels, optional
        With labels class i is the rows labelled i; without, every row counts for class i with weight p_i, which is as
        right as the posteriors are.
    classes : K names in the order of the columns, default the sorted distinct labels

    Examples
    --------
    >>> bayes_confusion([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]).round(3)
    array([[0.882, 0.118],
           [0.385, 0.615]])
    """
    posteriors, names = resolve_posteriors(P, None, y, classes, "P", "y")
    k = len(names)
    best = posteriors.argmax(axis=1)
    if y is None:
        table = np.zeros((k, k))
        np.add.at(table.T, best, posteriors)
        return confusion_rates(table)
    codes = check.encode_labels(y, names)
    check.check_same_length(posteriors, codes, "P and y")
    return confusion_rates(confusion_table(codes, best, k))


def predicted_codes(y_pred: Any, X: Any, classes: npt.NDArray[Any]) -> IntArray:
    """Class numbers from labels, posteriors or a fitted estimator."""
    if isinstance(y_pred, type):
        raise ValueError(f"y_pred must be labels, posteriors or a fitted estimator, got the class {y_pred.__name__}")
    if hasattr(y_pred, "predict"):
        if X is None:
            raise ValueError(f"X is needed: y_pred is an estimator ({type(y_pred).__name__}) that has to predict")
        y_pred = y_pred.predict(X)
    if is_table(y_pred):
        return check.check_posteriors(y_pred, "y_pred", len(classes)).argmax(axis=1)
    return check.encode_labels(y_pred, classes, "y_pred")


def _cautions(best_wrong: npt.NDArray[np.bool_], claimed: FloatArray) -> tuple[str, ...]:
    gap = best_wrong - claimed
    stderr = float(gap.std()) / np.sqrt(len(gap))
    if abs(gap.mean()) <= MISCALIBRATED * stderr:
        return ()
    words = "over-confident" if gap.mean() > 0 else "under-confident"
    return (
        f"The posteriors are {words}: they say that their rule errs on {claimed.mean():.1%}, it errs on "
        f"{best_wrong.mean():.1%}. Better ones may find more that can be fixed.",
    )
