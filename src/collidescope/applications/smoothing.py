"""Label smoothing that knows which classes collide.

Symbols: the target of label i is row i of ``T = (1 - a) I + a S``, a the *strength*. Uniform label smoothing spreads a
over all classes alike; here a class gets as much of it as inputs of class i are found in it when seen again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope.applications._inputs import Told, check_matrix, mean_and_error
from collidescope.estimators import check_rows
from collidescope.folds import resolve_splits
from collidescope.matrix import CollisionMatrix

#: Copies of a row with less weight than this are left out: together they could not move a loss in its fifth digit.
LEAST_WEIGHT = 1e-6
#: A class that a classifier rules out costs this much and not infinitely: the logarithm of float64's precision.
LEAST_PROBABILITY = float(np.finfo(np.float64).eps)
STRENGTHS = (0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0)


def smoothing_matrix(cm: CollisionMatrix, strength: float = 0.1) -> FloatArray:
    """The soft target of every class: K×K, row i is (1 - strength) e_i + strength S[i].

    Examples
    --------
    >>> smoothing_matrix(CollisionMatrix([[0.8, 0.2], [0.4, 0.6]], [2 / 3, 1 / 3]), 0.5)
    array([[0.9, 0.1],
           [0.2, 0.8]])
    """
    check_matrix(cm)
    a = check_strength(strength)
    return (1 - a) * np.eye(cm.n_classes) + a * cm.matrix


def smooth_labels(y: Any, cm: CollisionMatrix, strength: float = 0.1) -> Any:
    """Soft targets: every label gives a little to the classes it collides with.

    Parameters
    ----------
    y : array or Series of n labels
    cm : CollisionMatrix
        Estimate it on the training rows only.
    strength : float from 0 to 1
        0 leaves labels as they are (one-hot), 1 replaces each by its row of S. :func:`choose_smoothing` tries several.

    Returns
    -------
    array of shape (n, K), a DataFrame with the same index for a Series

    Examples
    --------
    >>> cm = CollisionMatrix([[0.9, 0.1], [0.2, 0.8]], [2 / 3, 1 / 3], classes=["cat", "dog"])
    >>> smooth_labels(["cat", "dog", "dog"], cm, strength=0.5)
    array([[0.95, 0.05],
           [0.1 , 0.9 ],
           [0.1 , 0.9 ]])
    """
    T = smoothing_matrix(cm, strength)
    rows = T[check.encode_labels(y, cm.classes)]
    if not isinstance(y, pd.Series):
        return rows
    return pd.DataFrame(rows, index=y.index, columns=pd.Index(cm.classes))


@dataclass(frozen=True, eq=False, repr=False)
class SmoothingChoice(Told):
    """Held-out log loss by strength: see :func:`choose_smoothing`.

    ``losses`` are means over held-out rows, ``best`` is the (smallest) strength with the lowest, and ``gain`` how much
    lower it is than at the smallest strength tried, with its standard error over rows (paired).
    """

    TITLE: ClassVar[str] = "How much label smoothing?"
    strengths: FloatArray
    losses: FloatArray
    best: float
    gain: float
    gain_stderr: float
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The answer in words."""
        return (
            f"Best strength {self.best:g}: held-out log loss {self.losses.min():.4f}, "
            f"{self.gain:.4f} (standard error {self.gain_stderr:.4f}) lower than at {self.strengths.min():g}."
        )

    def _shown(self, most: int | None = None) -> pd.DataFrame:
        return pd.DataFrame({"strength": self.strengths, "log_loss": self.losses})


def choose_smoothing(
    classifier: Any,
    X: Any,
    y: npt.ArrayLike,
    cm: CollisionMatrix,
    *,
    strengths: Sequence[float] = STRENGTHS,
    cv: int = 3,
    random_state: int = 0,
) -> SmoothingChoice:
    """The strength with which a classifier predicts held-out labels best.

    Any classifier (or pipeline) with ``predict_proba`` whose ``fit`` takes ``sample_weight`` learns soft targets: each
    row is given once for every class, weighted by its target. ``cv`` folds are the same for every one of the
    ``strengths``. With S from the same rows held-out labels have a small part in it: where that matters, take S from
    other rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> cm = CollisionMatrix([[1, 0, 0], [0, 0.95, 0.05], [0, 0.05, 0.95]])
    >>> choice = choose_smoothing(LogisticRegression(C=100, max_iter=1000), X, y, cm, strengths=(0, 0.5, 1))
    >>> choice.losses.shape
    (3,)
    """
    check_matrix(cm)
    codes = check.encode_labels(y, cm.classes)
    check_rows(X, codes)
    present = cm.classes[np.unique(codes)]
    if len(present) < 2:
        raise ValueError(f"y holds a single class ({present[0]!r}): a classifier needs at least 2")
    tried = np.unique([check_strength(v, "strengths") for v in check.check_finite(strengths, "strengths", ndim=1)])
    weight_name = _weight_argument(classifier)
    seed = check.check_count(random_state, "random_state", least=0)
    folds, notes = resolve_splits(cv, cm.classes[codes], present, seed)
    losses = np.empty((len(tried), len(codes)))
    for s, strength in enumerate(tried):
        T = smoothing_matrix(cm, strength)
        for train, test in folds:
            rows, labels, weights = expand(codes[train], T)
            model = clone(classifier)
            model.fit(_safe_indexing(X, train[rows]), cm.classes[labels], **{weight_name: weights})
            P = check.check_posteriors(model.predict_proba(_safe_indexing(X, test)), "predict_proba of classifier")
            column = {label: c for c, label in enumerate(np.asarray(model.classes_).tolist())}
            own = [column[label] for label in cm.classes[codes[test]].tolist()]
            losses[s, test] = -np.log(np.maximum(P[np.arange(len(test)), own], LEAST_PROBABILITY))
    means = losses.mean(axis=1)
    best = int(means.argmin())
    gain, stderr, _ = mean_and_error(losses[0] - losses[best])
    return SmoothingChoice(tried, means, float(tried[best]), float(gain), float(stderr), tuple(notes))


def expand(codes: IntArray, T: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Rows with soft targets as weighted rows with hard ones: which row, which class number, with what weight.

    >>> [part.tolist() for part in expand(np.array([1, 0]), np.array([[1.0, 0.0], [0.25, 0.75]]))]
    [[0, 0, 1], [0, 1, 0], [0.25, 0.75, 1.0]]
    """
    soft = T[codes]
    rows, labels = np.nonzero(soft >= LEAST_WEIGHT)
    return rows, labels, soft[rows, labels]


def check_strength(value: float, name: str = "strength") -> float:
    """``value`` as a float from 0 to 1."""
    if check.check_at_least(value, 0, name) > 1:
        raise ValueError(f"{name} must be a number from 0 (labels as they are) to 1 (rows of S), got {value!r}")
    return float(value)


def _weight_argument(classifier: Any) -> str:
    """What ``fit`` calls the weights."""
    if isinstance(classifier, type) or not hasattr(classifier, "get_params"):
        name = getattr(classifier, "__name__", "LogisticRegression")
        raise ValueError(f"classifier must be a scikit-learn classifier, got {classifier!r}: write {name}()")
    if not hasattr(classifier, "predict_proba"):
        raise ValueError(
            f"classifier must have predict_proba, {type(classifier).__name__} has not "
            f"(wrap it in sklearn.calibration.CalibratedClassifierCV)"
        )
    last = classifier.steps[-1] if hasattr(classifier, "steps") else ("", classifier)
    if not has_fit_parameter(last[1], "sample_weight"):
        raise ValueError(
            f"classifier must take sample_weight in fit, {type(last[1]).__name__} does not: soft targets are weighted "
            f"copies of rows (LogisticRegression, HistGradientBoostingClassifier and others take it)"
        )
    return f"{last[0]}__sample_weight" if last[0] else "sample_weight"
