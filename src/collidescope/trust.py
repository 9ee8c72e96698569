"""May the number be trusted? What can be asked of an estimate, and what each answer can and cannot see.

- :func:`shuffled_control`: on shuffled labels every row of S must fall to the priors. If it does not, the method shows
  structure in noise: too few rows for its intervals, or a scoring that is not held out. It cannot see a leak (a column
  that gives the label away, rows of one patient in two folds, repeated rows): shuffling breaks the leak as well.
- :func:`learning_curve`: whatever the model could not learn is counted as collision (ignorance looks like ambiguity),
  so PBER falls with more rows until only the ambiguity is left. It reads the training sizes that the fit has scored
  anyway (``limit_``) and refits nothing. It cannot see a leak either: a leak makes the curve fall faster. Rows that
  belong together must be passed as groups to ``fit``, or every number here is too low.
- :func:`cautions`: what the estimate says about itself, in words.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.utils import check_random_state

from collidescope import _checks as check
from collidescope._checks import CollisionWarning
from collidescope._text import limit_facts, span, words_html
from collidescope.equations.bounds import condition_number
from collidescope.equations.recovery import Recovery
from collidescope.estimators import estimate_collisions
from collidescope.matrix import CollisionMatrix

if TYPE_CHECKING:
    import pandas as pd

#: Above this κ∞(S) some classes are practically indistinguishable, and S⁻¹ multiplies errors by as much.
NEAR_SINGULAR = 1e3
#: A Gramian whose root had to move by more than this was no Gramian of a collision matrix.
MOVED_FAR = 0.1
#: What a state of ``limit_`` means for someone who can gather rows; any other state cannot be told.
VERDICTS = {"settled": "settled", "still learning": "more rows would lower it"}
UNKNOWN = "too few rows to say"


@dataclass(frozen=True)
class ShuffledControl:
    """S on shuffled labels: made by :func:`shuffled_control`."""

    matrix: CollisionMatrix
    #: Of an entry of S from the prior it should fall to, and the same in standard errors (largest over the entries).
    largest_deviation: float
    z: float
    #: What z stays below with probability 95% over all entries when nothing is wrong (Bonferroni).
    limit: float
    passed: bool

    def __str__(self) -> str:
        verdict = "as it should be" if self.passed else "which chance does not explain: do not trust this fit"
        return (
            f"With shuffled labels every row of S should be the priors: the largest deviation is "
            f"{self.largest_deviation:.3f} ({self.z:.1f} standard errors, limit {self.limit:.1f}), {verdict}. "
            f"This does not test for columns that give the label away, nor for related rows in different folds."
        )

    def _repr_html_(self) -> str:
        return words_html(str(self))


@dataclass(frozen=True)
class LearningCurve:
    """PBER against the number of rows that models were trained on: made by :func:`learning_curve`."""

    #: One row per training size: ``rows``, ``pber``, ``pber_stderr``, and what else the limit recorded.
    frame: pd.DataFrame
    #: PBER that unlimited rows of this kind would leave, and its 95% range.
    pber_limit: float
    interval: tuple[float, float]
    #: "settled", "more rows would lower it", or "too few rows to say", and then why.
    verdict: str
    reason: str = ""

    @property
    def converged(self) -> bool:
        """Is the verdict "settled"? A curve that cannot be read has not converged."""
        return self.verdict == VERDICTS["settled"]

    def __str__(self) -> str:
        steps = " → ".join(f"{p:.3f} at {n:,.0f}" for p, n in zip(self.frame["pber"], self.frame["rows"], strict=True))
        low, high = self.interval
        if self.verdict == UNKNOWN:
            why = self.reason.removeprefix(UNKNOWN).strip(" :.") or "the curve cannot be read"
            return f"PBER {steps} rows. Verdict: {UNKNOWN} ({why})."
        left = f"unlimited rows of this kind would leave {span(low, high)}"
        return f"PBER {steps} rows. Verdict: {self.verdict}; {left}."

    def _repr_html_(self) -> str:
        return words_html(str(self)) + self.frame.to_html(index=False, float_format="{:.4f}".format)


def shuffled_control(
    estimator: Any, X: Any, y: npt.ArrayLike, random_state: int | np.random.RandomState | None = 0
) -> ShuffledControl:
    """Refit on shuffled labels and see whether every row of S falls to the priors. It takes as long as the fit.

    Parameters
    ----------
    estimator : CollisionClassifier, or any classifier for :func:`estimate_collisions`
    X, y : the data it was (or would be) fitted on
    random_state : int or RandomState

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> shuffled_control(LogisticRegression(max_iter=1000), X, y).passed
    True
    """
    from scipy.special import ndtri

    shuffled = check_random_state(random_state).permutation(check.check_labels(y))
    cm = _collisions(estimator, X, shuffled)
    if cm.stderr is None:
        raise ValueError("estimator gave a collision matrix without standard errors: use estimate='one-step'")
    deviation = np.abs(cm.matrix - cm.priors)
    low, high = cm.interval(0.95) or (cm.matrix, cm.matrix)
    # one standard error as the interval sees it: with the allowance for collisions that were not seen
    scale = np.maximum(high - cm.matrix, cm.matrix - low) / -ndtri(0.025)
    z = float((deviation / scale).max())
    limit = float(-ndtri(0.025 / (cm.n_classes * (cm.n_classes + 1) / 2)))
    return ShuffledControl(cm, float(deviation.max()), z, limit, z <= limit)


def learning_curve(source: Any) -> LearningCurve:
    """Would more rows lower PBER? Read from the limit that a fit estimated; nothing is fitted again.

    Parameters
    ----------
    source : fitted CollisionClassifier, or a Limit

    Examples
    --------
    >>> import pandas as pd
    >>> from types import SimpleNamespace
    >>> limit = SimpleNamespace(  # as clf.limit_
    ...     state="still learning",
    ...     reason="",
    ...     pber=0.2,
    ...     pber_interval=lambda level: (0.15, 0.26),
    ...     bayes_error_interval=lambda level: None,
    ...     curve=pd.DataFrame({"rows": [250, 500], "pber": [0.3, 0.25]}),
    ... )
    >>> curve = learning_curve(limit)
    >>> curve.converged, curve.verdict
    (False, 'more rows would lower it')
    """
    limit = limit_of(source)
    if limit is None:
        raise ValueError(
            f"source must be a classifier fitted with limit=True, or a Limit, got {type(source).__name__} without one: "
            f"fit again with limit=True"
        )
    facts = limit_facts(limit)
    low, high = float(facts["limit_pber_low"]), float(facts["limit_pber_high"])  # type: ignore[arg-type]
    reason = str(limit.reason or "")
    # A last drop within luck, with room below: neither settled nor seen to fall.
    verdict = UNKNOWN if reason.startswith(UNKNOWN) else VERDICTS.get(limit.state, UNKNOWN)
    return LearningCurve(limit.curve, float(limit.pber), (low, high), verdict, reason)


def limit_of(source: Any) -> Any:
    """The ``Limit`` of a fitted classifier, or the Limit itself."""
    if hasattr(source, "pber_interval") and hasattr(source, "state"):
        return source
    return getattr(source, "limit_", None)


def cautions(collisions: CollisionMatrix, one_step: CollisionMatrix, recovery: Recovery) -> list[str]:
    """What the reader of an estimate should know, in plain words; empty when there is nothing.

    ``collisions`` is the S that is reported, ``one_step`` has its intervals, ``recovery`` is S from the Gramian of the
    same scores.
    """
    notes = []
    from_gramian = str(collisions.info.get("method", "")).startswith("gramian")
    # Shrinking lifts eigenvalues that are zero for want of information: the one-step estimate shows them.
    condition = condition_number(collisions.matrix if from_gramian else one_step.matrix)
    if condition > NEAR_SINGULAR:
        notes.append(
            f"S is nearly singular (condition number {condition:.1e}): from these rows this model cannot tell some "
            f"classes, or mixtures of them, apart (see top_collisions; merge them, or gather more)"
        )
    interval = one_step.pber_interval()
    by_chance = 1 - float((one_step.priors**2).sum())
    if interval is not None and interval[1] >= by_chance:
        notes.append(
            f"the model does no better than the priors (PBER {one_step.pber:.3f}, {by_chance:.3f} by chance): "
            f"the inputs say nothing about the classes, or the model cannot see it"
        )
    if from_gramian and recovery.moved > MOVED_FAR:
        notes.append(
            f"the Gramian is far from that of any collision matrix (entries of S moved by {recovery.moved:.2f}): "
            f"train longer, or use correction='prior'"
        )
    return notes


def _collisions(estimator: Any, X: Any, y: npt.NDArray[Any]) -> CollisionMatrix:
    """S of a fresh copy of the estimator: its own ``one_step_``, or the cross-fitted estimate of a plain classifier."""
    fresh = clone(estimator)
    if "estimate" not in fresh.get_params():
        cm: CollisionMatrix = estimate_collisions(fresh, X, y)
        return cm
    if "limit" in fresh.get_params():
        fresh.set_params(limit=False)  # the control needs the full size only
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollisionWarning)  # of shuffled labels; the control has its own verdict
        cm = fresh.fit(X, y).one_step_
    assert isinstance(cm, CollisionMatrix)
    if fresh.interrupted_:  # half a fit is no control
        raise KeyboardInterrupt
    return cm
