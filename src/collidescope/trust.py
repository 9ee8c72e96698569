"""May the number be trusted? Two refits that answer, and what the estimate itself already gives away.

- :func:`shuffled_control`: on shuffled labels every row of S must fall to the priors. If it does not, the method would
  show structure in noise.
- :func:`learning_curve`: whatever the model could not learn is counted as collision (ignorance looks like ambiguity),
  so PBER falls with more data until only the ambiguity is left. Refits on n/4, n/2 and n rows tell whether it still
  falls.
- :func:`cautions`: what the estimate says about itself, in words.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.model_selection import train_test_split
from sklearn.utils import _safe_indexing, check_random_state

from collidescope import _checks as check
from collidescope._checks import CollisionWarning, FloatArray, IntArray
from collidescope._text import words_html
from collidescope.equations.bounds import condition_number
from collidescope.equations.recovery import Recovery
from collidescope.estimators import check_rows, estimate_collisions
from collidescope.matrix import CollisionMatrix

if TYPE_CHECKING:
    import pandas as pd

#: Shares of the rows that the learning curve is made of; each doubles the last.
SHARES = (0.25, 0.5, 1.0)
#: Members of every class: two folds of a quarter of them.
FEWEST_MEMBERS = 8
#: PBER counts as settled when what more data would take off is expected to be below this share of it.
SETTLED = 0.1
#: A drop below this many standard errors may be luck.
SIGNIFICANT = 2.0
#: Each doubling is taken to keep between these shares of the drop of the last one: the extremes are noise.
SLOWEST, FASTEST = 0.75, 0.25
#: The share where the drops are too small to measure it: excess error falls as 1/n.
USUAL = 0.5
#: Above this κ∞(S) some classes are practically indistinguishable, and S⁻¹ multiplies errors by as much.
NEAR_SINGULAR = 1e3
#: A Gramian whose root had to move by more than this was no Gramian of a collision matrix.
MOVED_FAR = 0.1


@dataclass(frozen=True)
class ShuffledControl:
    """S on shuffled labels.

    Attributes
    ----------
    matrix : CollisionMatrix
    largest_deviation : float
        Of an entry of S from the prior it should fall to.
    z : float
        The same in standard errors (largest over the entries).
    limit : float
        What z stays below with probability 95% over all entries when nothing is wrong (Bonferroni).
    passed : bool
    """

    matrix: CollisionMatrix
    largest_deviation: float
    z: float
    limit: float
    passed: bool

    def __str__(self) -> str:
        verdict = "as it should be" if self.passed else "which chance does not explain: do not trust this fit"
        return (
            f"With shuffled labels every row of S should be the priors: the largest deviation is "
            f"{self.largest_deviation:.3f} ({self.z:.1f} standard errors, limit {self.limit:.1f}), {verdict}."
        )

    def _repr_html_(self) -> str:
        return words_html(str(self))


@dataclass(frozen=True)
class LearningCurve:
    """PBER against the number of rows.

    Attributes
    ----------
    sizes : array of 3 row counts
    pber, pber_stderr : arrays of 3
    pber_limit : float
        PBER that unlimited data would leave, by extrapolation; equal to the last PBER where it no longer falls.
    converged : bool
        False when more data would still lower PBER by more than a tenth of it.
    """

    sizes: IntArray
    pber: FloatArray
    pber_stderr: FloatArray
    pber_limit: float
    converged: bool

    def __str__(self) -> str:
        steps = " → ".join(f"{p:.3f} at {n:,}" for p, n in zip(self.pber, self.sizes, strict=True))
        if self.converged:
            return (
                f"PBER {steps}: more data would hardly change it; the rest is ambiguity, as far as this model can see."
            )
        return (
            f"PBER {steps}: more data would still lower it (to about {self.pber_limit:.3f}); "
            f"part of what looks like ambiguity is what the model has not learned yet."
        )

    def to_frame(self) -> pd.DataFrame:
        """A row per number of rows: ``rows``, ``pber``, ``pber_stderr``."""
        import pandas as pd

        return pd.DataFrame({"rows": self.sizes, "pber": self.pber, "pber_stderr": self.pber_stderr})

    def _repr_html_(self) -> str:
        return words_html(str(self)) + self.to_frame().to_html(index=False, float_format="{:.4f}".format)


def shuffled_control(
    estimator: Any, X: Any, y: npt.ArrayLike, random_state: int | np.random.RandomState | None = 0
) -> ShuffledControl:
    """Refit on shuffled labels and see whether every row of S falls to the priors.

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

    labels = check.check_labels(y)
    shuffled = check_random_state(random_state).permutation(labels)
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


def learning_curve(
    estimator: Any, X: Any, y: npt.ArrayLike, random_state: int | np.random.RandomState | None = 0
) -> LearningCurve:
    """Refit on a quarter, half and all of the rows (nested, stratified), and extrapolate PBER.

    Parameters
    ----------
    estimator : CollisionClassifier, or any classifier for :func:`estimate_collisions`
    X, y : the data it was (or would be) fitted on
    random_state : int or RandomState
        Chooses the rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> curve = learning_curve(LogisticRegression(max_iter=1000), X, y)
    >>> curve.sizes, curve.converged
    (array([ 37,  75, 150]), True)
    """
    labels = check.check_labels(y)
    check_rows(X, labels)
    classes = check.classes_of(labels)
    counts = np.bincount(check.encode_labels(labels, classes))
    if counts.min() < FEWEST_MEMBERS:
        raise ValueError(
            f"y has {counts.min()} rows of class {classes.tolist()[int(counts.argmin())]!r}, a learning curve needs at "
            f"least {FEWEST_MEMBERS} of every class: a quarter of them still has to be split into folds"
        )
    rows = np.arange(len(labels))
    seed = check_random_state(random_state)
    nested = [rows]
    for _ in SHARES[1:]:
        half, _rest = train_test_split(nested[0], train_size=0.5, stratify=labels[nested[0]], random_state=seed)
        nested.insert(0, np.sort(half))
    fits = [_collisions(estimator, _safe_indexing(X, part), labels[part]) for part in nested]
    pber = np.array([cm.pber for cm in fits])
    stderr = np.array([np.nan if cm.pber_stderr is None else cm.pber_stderr for cm in fits])
    limit, converged = extrapolate(pber, stderr)
    return LearningCurve(np.array([len(part) for part in nested]), pber, stderr, limit, converged)


def extrapolate(pber: npt.ArrayLike, stderr: npt.ArrayLike) -> tuple[float, bool]:
    """(limit, converged) from PBER at n/4, n/2 and n rows.

    When each doubling keeps a share ρ of the drop of the last one, both drops together are D, and what is left after
    them is D ρ² / (1 - ρ²). ρ is the ratio of the two drops where the first is beyond luck, else 1/2: a ratio of noise
    once made a settled curve look steep.

    >>> limit, converged = extrapolate([0.40, 0.30, 0.25], [0.01, 0.01, 0.01])
    >>> round(limit, 3), converged
    (0.2, False)
    >>> extrapolate([0.47, 0.46, 0.46], [0.01, 0.01, 0.01])
    (0.46, True)
    """
    p = check.check_finite(pber, "pber", ndim=1)
    e = check.check_finite(stderr, "stderr", ndim=1)
    if p.shape != (3,) or e.shape != (3,):
        raise ValueError(f"pber and stderr must have 3 entries each (n/4, n/2, n rows), got {p.shape} and {e.shape}")
    first, last = p[0] - p[1], p[1] - p[2]
    if last <= 0:
        return float(p[2]), True
    measured = first > SIGNIFICANT * float(np.hypot(e[0], e[1]))
    kept = float(np.clip(last / first, FASTEST, SLOWEST)) if measured else USUAL
    left = float(np.clip((first + last) * kept**2 / (1 - kept**2), 0.0, p[2]))
    falling = last > SIGNIFICANT * float(np.hypot(e[1], e[2]))
    return float(p[2]) - left, not (falling and left > SETTLED * p[2])


def cautions(collisions: CollisionMatrix, one_step: CollisionMatrix, recovery: Recovery) -> list[str]:
    """What the reader of an estimate should know, in plain words; empty when there is nothing.

    Parameters
    ----------
    collisions : CollisionMatrix
        The S that is reported.
    one_step : CollisionMatrix
        With its intervals.
    recovery : Recovery
        S from the Gramian of the same scores.
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
    if "estimate" in fresh.get_params():
        with warnings.catch_warnings():
            # of shuffled labels or a quarter of the rows; the controls have a verdict of their own
            warnings.simplefilter("ignore", CollisionWarning)
            cm = fresh.fit(X, y).one_step_
        assert isinstance(cm, CollisionMatrix)
        if fresh.interrupted_:  # half a fit is no control
            raise KeyboardInterrupt
        return cm
    return estimate_collisions(fresh, X, y)
