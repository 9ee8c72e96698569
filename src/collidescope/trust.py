"""May the number be trusted? What can be asked of an estimate, and what each answer can see.

- :func:`shuffled_control`: on shuffled labels every row of S must equal the priors, or the method
  shows structure in noise. It cannot see leakage (a column made from the label, related rows
  in two folds): that is shuffled too.
- :func:`learning_curve`: what the model could not learn is counted as collision, so PBER falls
  with more rows until only the ambiguity is left. It cannot see a leak either, which makes the
  curve fall faster.
- :func:`cautions`: what the estimate says about itself, in words.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri
from sklearn.base import clone

from collidescope import _checks as check
from collidescope._checks import ArrayLike, CollisionWarning
from collidescope._text import (
    LEVEL,
    READABLE,
    UNKNOWN,
    between,
    is_narrow,
    percent,
    span,
    words_html,
)
from collidescope.equations.merging import n_pairs
from collidescope.estimate import cautions as cautions
from collidescope.estimators import estimate_collisions
from collidescope.folds import RandomState, as_random_state
from collidescope.matrix import CollisionMatrix
from collidescope.sample import Table

if TYPE_CHECKING:
    import pandas as pd

#: What a state of ``limit_`` means for someone who can gather rows; other states do not say.
VERDICTS = {"settled": "settled", "still learning": "more rows would lower it"}
#: States about which the number of rows does not matter.
NO_VERDICT = "the curve does not say"
UNREADABLE = ("refuted", "capped", "miscalibrated")


@dataclass(frozen=True)
class ShuffledControl:
    """S on shuffled labels: made by :func:`shuffled_control`.

    ``largest_deviation`` is that of an entry of S from the prior it should equal, ``z`` the same
    in standard errors, ``limit`` what z stays below with probability 95% over all entries when
    nothing is wrong (Bonferroni).
    """

    matrix: CollisionMatrix
    largest_deviation: float
    z: float
    limit: float
    passed: bool

    def __str__(self) -> str:
        verdict = "which chance does not explain: do not trust this fit"
        if self.passed:
            verdict = "as it should be"
        return (
            "With shuffled labels every row of S should be the priors: the largest "
            f"deviation is {self.largest_deviation:.3f} ({self.z:.1f} standard errors, "
            f"limit {self.limit:.1f}), {verdict}. This does not test for target leakage, "
            "nor for related rows in different folds."
        )

    def _repr_html_(self) -> str:
        return words_html(str(self))


@dataclass(frozen=True)
class LearningCurve:
    """PBER against the number of rows that models were trained on: made by :func:`learning_curve`.

    ``frame`` has one row per training size, ``pber_limit`` and ``interval`` (95%) are what
    unlimited rows would leave, ``doubled`` what twice the rows would: (low, middle, high), or None
    where nobody can tell. ``verdict`` is "settled", "more rows would lower it", "too few rows to
    say" or, where more rows are not what is missing, "the curve does not say"; ``reason`` says why.
    """

    frame: pd.DataFrame
    pber_limit: float
    interval: tuple[float, float]
    doubled: tuple[float, float, float] | None
    verdict: str
    reason: str = ""

    @property
    def converged(self) -> bool:
        """Is the verdict "settled"? A curve that cannot be read has not converged."""
        return self.verdict == VERDICTS["settled"]

    @property
    def words(self) -> str:
        """The verdict, the reason where there is none, and what twice the rows would leave."""
        said = self.verdict
        if said in (UNKNOWN, NO_VERDICT):
            why = self.reason.rstrip(".")
            said += f" ({why or 'the curve cannot be read'})"
        elif self.converged and not is_narrow(*self.interval):
            # As the headline, which then calls it unclear whether more rows would help.
            said += " as far as can be seen, but the sampling error is large"
        if self.doubled is not None:
            low, middle, high = self.doubled
            said += "; twice the rows would leave about "
            said += percent(middle) + between(low, high)
        return said

    def __str__(self) -> str:
        points = [
            f"{pber:.3f} at {rows:,.0f}"
            for pber, rows in zip(self.frame["pber"], self.frame["rows"], strict=True)
        ]
        said = f"PBER {' → '.join(points)} rows. Verdict: {self.words}"
        if self.doubled is not None:
            said += f", unlimited rows of this kind {span(*self.interval)}"
        return f"{said}."

    def _repr_html_(self) -> str:
        return words_html(str(self)) + self.frame.to_html(
            index=False, float_format="{:.4f}".format
        )


def shuffled_control(
    estimator: Any, X: Table | ArrayLike, y: ArrayLike, random_state: RandomState = 0
) -> ShuffledControl:
    """Refit any classifier on shuffled labels: does every row of S equal the priors?

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> shuffled_control(LogisticRegression(max_iter=1000), X, y).passed
    True
    """
    shuffled = as_random_state(random_state).permutation(check.check_labels(y))
    fresh = clone(estimator)
    if not hasattr(fresh, "shuffled_control"):
        cm = estimate_collisions(fresh, X, shuffled, limit=False, random_state=0)
    else:
        fresh.set_params(limit=False)  # the control needs the full size only
        with warnings.catch_warnings():
            # Of shuffled labels; the control has its own verdict.
            warnings.simplefilter("ignore", CollisionWarning)
            fresh.fit(X, shuffled)
        if fresh.interrupted_:  # half a fit is no control
            raise KeyboardInterrupt
        cm = fresh.one_step_
    S = cm.matrix
    deviation = np.abs(S - cm.priors)
    ends = cm.interval(0.95)
    assert ends is not None  # labels give intervals
    low, high = ends
    # One standard error as the interval sees it: with the allowance for unseen collisions.
    stderr = np.maximum(high - S, S - low) / -ndtri(0.025)
    z = float((deviation / stderr).max())
    limit = float(-ndtri(0.025 / n_pairs(cm.n_classes)))
    return ShuffledControl(
        matrix=cm,
        largest_deviation=float(deviation.max()),
        z=z,
        limit=limit,
        passed=z <= limit,
    )


def learning_curve(source: object) -> LearningCurve:
    """Would more rows lower PBER? Read from a Limit, or that of a fitted classifier.

    >>> from collidescope.limit import Limit
    >>> curve = learning_curve(
    ...     Limit(
    ...         [250, 500, 1000],
    ...         [0.4, 0.3, 0.25],
    ...         1e-5 * np.eye(3),
    ...         stderr=0.003,
    ...         n_rows=4000,
    ...     )
    ... )
    >>> curve.converged, curve.verdict
    (False, 'more rows would lower it')
    """
    limit = limit_of(source)
    if limit is None:
        raise ValueError(
            f"source must be a classifier with a limit, got {type(source).__name__} "
            "without one: fit again with limit=True"
        )
    verdict = VERDICTS.get(limit.state, UNKNOWN)
    if limit.undecided:
        verdict = UNKNOWN
    if limit.state in UNREADABLE:
        verdict = NO_VERDICT
    doubled = None
    if limit.state in READABLE:
        twice = 2 * limit.curve["rows"].iloc[-1]
        low, middle, high = limit.continuation([twice], LEVEL)
        doubled = float(low[0]), float(middle[0]), float(high[0])
    return LearningCurve(
        limit.curve,
        float(limit.pber),
        limit.pber_interval(LEVEL),
        doubled,
        verdict,
        limit.reason,
    )


def limit_of(source: object) -> Any:
    """The ``Limit`` of a fitted classifier, or the Limit itself."""
    if hasattr(source, "pber_interval") and hasattr(source, "state"):
        return source
    return getattr(source, "limit_", None)
