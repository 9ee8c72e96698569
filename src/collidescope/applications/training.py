"""S in training: soft targets for labels, and more draws of what is confused beyond need.

*Label smoothing*: the target of label i is row i of ``T = (1 - a) I + a S``, a the *strength*.

*Adaptive sampling*: after an epoch the confusion of the model on held-out rows, C[i, j] = P(said j | class i), is
compared with what is inherent. Where C exceeds it beyond sampling noise (one-sided z test, Benjamini and Hochberg), for
a pair or for class i in all, rows of class i are drawn more often. Collisions are left alone: no model separates them.

What is inherent depends on what the model is asked for. Of *posteriors* it is S: a perfect model has C = S. Of *labels*
it is the confusion of the best rule, which S alone does not determine: take it from held-out posteriors with
:func:`bayes_confusion`. S may stand in for it where classes are about equally common.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter

from collidescope import _checks as check
from collidescope._checks import Array, ArrayLike, FloatArray, Given, IntArray
from collidescope.applications._inputs import (
    Told,
    check_matrix,
    discovered,
    is_table,
    mean_and_error,
)
from collidescope.applications.audit import confusion_table, entropies
from collidescope.equations.densities import Seed, as_generator
from collidescope.estimators import check_classifier
from collidescope.folds import resolve_splits
from collidescope.matrix import UNSEEN, CollisionMatrix
from collidescope.sample import check_rows

LEAST_WEIGHT = 1e-6  #: copies of a row with less weight are left out: they could not move a loss in its fifth digit
LEAST_PROBABILITY = float(
    np.finfo(np.float64).eps
)  #: a class ruled out costs its logarithm, and not infinity
STRENGTHS = (0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0)
LEVEL = 0.05  #: false discovery rate of what counts as confused beyond need: half of it for pairs, half for classes
CAP = 10.0  #: most by which a class is drawn oftener than another: beyond it the same rows come again and again
MEMORY = 0.8  #: of the logarithm of a weight that an update keeps: the first epochs confuse everything, and that fades


def smoothing_matrix(cm: CollisionMatrix, strength: float = 0.1) -> FloatArray:
    """The soft target of every class: K×K, row i is (1 - strength) e_i + strength S[i].

    >>> smoothing_matrix(CollisionMatrix([[0.8, 0.2], [0.4, 0.6]], [2 / 3, 1 / 3]), 0.5)
    array([[0.9, 0.1],
           [0.2, 0.8]])
    """
    check_matrix(cm)
    a = check_strength(strength)
    return (1 - a) * np.eye(cm.n_classes) + a * cm.matrix


def smooth_labels(y: Any, cm: CollisionMatrix, strength: float = 0.1) -> Any:
    """Soft targets, n×K: every label gives a little to the classes it collides with.

    ``cm`` is S of the training rows only. ``strength`` 0 leaves labels as they are (one-hot), 1 replaces each by its
    row of S; :func:`choose_smoothing` tries several. For a Series the targets are a DataFrame with its index.

    >>> cm = CollisionMatrix([[0.9, 0.1], [0.2, 0.8]], [2 / 3, 1 / 3], classes=["cat", "dog"])
    >>> smooth_labels(["cat", "dog"], cm, strength=0.5)
    array([[0.95, 0.05],
           [0.1 , 0.9 ]])
    """
    rows = smoothing_matrix(cm, strength)[check.encode_labels(y, cm.classes)]
    return pd.DataFrame(rows, y.index, pd.Index(cm.classes)) if isinstance(y, pd.Series) else rows


@dataclass(frozen=True, eq=False, repr=False)
class SmoothingChoice(Told, title="How much label smoothing?"):
    """Held-out log loss by strength: see :func:`choose_smoothing`.

    ``best`` is the (smallest) strength with the lowest of the ``losses``, which is lower by ``gain`` than that of the
    smallest strength tried, with its standard error over rows (paired).
    """

    strengths: FloatArray
    losses: FloatArray
    best: float
    gain: float
    gain_stderr: float
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        lower = f"{self.gain:.4f} (standard error {self.gain_stderr:.4f}) lower than at {self.strengths.min():g}"
        return f"Best strength {self.best:g}: held-out log loss {self.losses.min():.4f}, {lower}."

    def _shown(self, most: int | None = None) -> pd.DataFrame:
        return pd.DataFrame({"strength": self.strengths, "log_loss": self.losses})


def choose_smoothing(
    classifier: Any,
    X: Any,
    y: ArrayLike,
    cm: CollisionMatrix,
    *,
    strengths: Sequence[float] = STRENGTHS,
    cv: int = 3,
    random_state: int = 0,
) -> SmoothingChoice:
    """The strength with which a classifier predicts held-out labels best.

    Any classifier (or pipeline) with ``predict_proba`` whose ``fit`` takes ``sample_weight`` learns soft targets: each
    row is given once for every class, weighted by its target. The ``cv`` folds are the same for all ``strengths``.
    Where it matters that held-out labels have a small part in S, take S from other rows.

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> cm = CollisionMatrix([[1, 0, 0], [0, 0.95, 0.05], [0, 0.05, 0.95]])
    >>> choose_smoothing(
    ...     LogisticRegression(C=100, max_iter=1000), X, y, cm, strengths=(0, 0.5, 1)
    ... ).losses.shape
    (3,)
    """
    check_matrix(cm)
    codes = check.encode_labels(y, cm.classes)
    check_rows(X, codes)
    present = check.classes_of(cm.classes[codes])
    tried = np.unique(
        [check_strength(v, "strengths") for v in check.check_finite(strengths, "strengths", ndim=1)]
    )
    weight_name = _weight_argument(classifier)
    seed = check.check_count(random_state, "random_state", least=0)
    folds, notes = resolve_splits(cv, cm.classes[codes], present, seed)
    losses = np.empty((len(tried), len(codes)))
    for s, strength in enumerate(tried):
        T = smoothing_matrix(cm, strength)
        for train, test in folds:  # rows with soft targets as weighted rows with hard ones
            soft = T[codes[train]]
            rows, labels = np.nonzero(soft >= LEAST_WEIGHT)
            weights = {weight_name: soft[rows, labels]}
            model = clone(classifier).fit(
                _safe_indexing(X, train[rows]), cm.classes[labels], **weights
            )
            P = check.check_posteriors(
                model.predict_proba(_safe_indexing(X, test)), "predict_proba of classifier"
            )
            own = check.encode_labels(cm.classes[codes[test]], np.asarray(model.classes_))
            losses[s, test] = -np.log(np.maximum(P[np.arange(len(test)), own], LEAST_PROBABILITY))
    means = losses.mean(axis=1)
    best = int(means.argmin())
    gain, stderr, _ = mean_and_error(losses[0] - losses[best])
    return SmoothingChoice(
        tried, means, float(tried[best]), float(gain), float(stderr), tuple(notes)
    )


def check_strength(value: float, name: str = "strength") -> float:
    """``value`` as a float from 0 to 1."""
    if check.check_at_least(value, 0, name) > 1:
        raise ValueError(
            f"{name} must be a number from 0 (labels as they are) to 1 (rows of S), got {value!r}"
        )
    return float(value)


def _weight_argument(classifier: Any) -> str:
    check_classifier(classifier)
    step, last = classifier.steps[-1] if hasattr(classifier, "steps") else ("", classifier)
    if not has_fit_parameter(last, "sample_weight"):
        name, others = (
            type(last).__name__,
            "LogisticRegression, HistGradientBoostingClassifier and others do",
        )
        raise ValueError(
            f"classifier must take sample_weight in fit (soft targets), {name} does not: {others}"
        )
    return f"{step}__sample_weight" if step else "sample_weight"


class AdaptiveSampler:
    """Draws training rows; classes that are confused more than the data make necessary come more often.

    Usable as ``torch.utils.data.DataLoader(…, sampler=sampler)``: iterating gives n row numbers, every row floor(w) or
    ceil(w) times. For scikit-learn pass ``weights_`` as ``sample_weight``.

    ``y`` are the labels of the n training rows, ``inherent`` (K×K, optional) stands in place of S, such as
    ``bayes_confusion(P_heldout, y_heldout)``, ``cap`` is the largest ratio between the weights of two classes.

    Attributes
    ----------
    weights_, class_weights_ : arrays of n weights with mean 1, and of K weights
    excess_, class_excess_ : DataFrame or None, of the last update, largest excess first
        One row per ordered pair (``true``, ``predicted``) or per ``class`` taken for any other: ``observed``,
        ``inherent``, ``excess``, ``z``, ``significant``.
    cost_matrix_ : array of shape (K, K); 1 + significant excess for each wrong decision, 0 for the right one

    Examples
    --------
    >>> cm = CollisionMatrix([[0.9, 0.1], [0.1, 0.9]], classes=["cat", "dog"])
    >>> sampler = AdaptiveSampler(cm, ["cat"] * 50 + ["dog"] * 50, random_state=0)
    >>> _ = sampler.update(
    ...     ["cat"] * 200 + ["dog"] * 200,
    ...     ["cat"] * 180 + ["dog"] * 20 + ["dog"] * 120 + ["cat"] * 80,
    ... )
    >>> sampler.excess_[["true", "predicted", "excess", "significant"]]
      true predicted  excess  significant
    0  dog       cat     0.3         True
    1  cat       dog     0.0        False
    >>> sampler.class_weights_.round(2)
    array([0.85, 1.15])
    """

    def __init__(
        self,
        cm: CollisionMatrix,
        y: ArrayLike,
        *,
        inherent: Given = None,
        cap: float = CAP,
        random_state: Seed = None,
    ) -> None:
        check_matrix(cm)
        k = cm.n_classes
        self.classes = cm.classes
        self.cap = check.check_at_least(cap, 1, "cap")
        self._codes = check.encode_labels(y, cm.classes)
        self.inherent = (
            cm.matrix if inherent is None else check.check_stochastic(inherent, "inherent", k)
        )
        self._variance = (
            np.zeros((k, k)) if cm.stderr is None or inherent is not None else cm.stderr**2
        )
        self._rng = as_generator(random_state)
        self.excess_: pd.DataFrame | None = None
        self.class_excess_: pd.DataFrame | None = None
        self.cost_matrix_ = 1 - np.eye(k)
        self._set(np.zeros(k))

    def update(self, y_true: ArrayLike, y_pred: Any) -> AdaptiveSampler:
        """Compare the confusion on held-out rows with what is inherent, and draw the classes in excess more often.

        ``y_pred`` (m labels, or m×K posteriors) is what the model says about rows that it does not train on. log weight
        ← MEMORY · log weight + significant excess, summed over the classes taken for, or that of them all.
        """
        k, names = len(self.classes), self.classes
        observed, variance = _confusion(
            check.encode_labels(y_true, names, "y_true"), y_pred, names, self.inherent
        )
        variance = variance + self._variance
        i, j = np.nonzero(~np.eye(k, dtype=bool) & ~np.isnan(observed))
        c = np.unique(i)
        beyond, in_all = np.zeros((k, k)), np.zeros(k)
        pairs = {"true": names[i], "predicted": names[j]}
        self.excess_, beyond[i, j] = _tested(
            pairs, observed[i, j], self.inherent[i, j], variance[i, j]
        )
        # 1 - C_ii is taken for any other, with the variance of C_ii
        single, taken = (
            {"class": names[c]},
            (1 - observed[c, c], 1 - self.inherent[c, c], variance[c, c]),
        )
        self.class_excess_, in_all[c] = _tested(single, *taken)
        self.cost_matrix_ = 1 - np.eye(k) + beyond
        self._set(MEMORY * self._log_weights + np.maximum(beyond.sum(axis=1), in_all))
        return self

    def _set(self, log_weights: FloatArray) -> None:
        """Class weights from 1 to ``cap``, then scaled so that those of the rows have mean 1."""
        self._log_weights = np.minimum(log_weights, np.log(self.cap))
        weights = np.exp(self._log_weights)
        self.class_weights_ = weights / weights[self._codes].mean()
        self.weights_ = self.class_weights_[self._codes]

    def __len__(self) -> int:
        return len(self._codes)

    def __iter__(self) -> Iterator[int]:
        # Systematic sampling: the expected number of times a row comes is its weight, and the real one next to it.
        n = len(self._codes)
        order = self._rng.permutation(n)
        edges = np.cumsum(self.weights_[order])
        edges *= n / edges[-1]
        times = np.diff(np.floor(edges + self._rng.random()), prepend=0.0).astype(np.intp)
        yield from self._rng.permutation(np.repeat(order, times)).tolist()


def active_learning_score(
    P: ArrayLike, *, inherent: ArrayLike | CollisionMatrix | None = None
) -> FloatArray:
    """How much a label of each unlabelled row would teach: doubt that is not inherent ambiguity.

    With posteriors by several models (members × n × K) it is the entropy of their mean less the mean of their entropies
    (mutual information), zero where all agree that the row is ambiguous. With those of one (n×K) it is their entropy,
    less that of the row of S (``inherent``, optional) of the predicted class: one model cannot tell ambiguity from
    ignorance row by row.

    >>> ambiguous_but_known, unexplored = [0.5, 0.5], [[1.0, 0.0], [0.0, 1.0]]
    >>> active_learning_score(
    ...     [[ambiguous_but_known, unexplored[0]], [ambiguous_but_known, unexplored[1]]]
    ... ).round(2)
    array([0.  , 0.69])
    """
    array = check.check_finite(P, "P", ndim=(2, 3))
    k = array.shape[-1]
    flat = check.check_posteriors(array.reshape(-1, k), "P").reshape(array.shape)
    if array.ndim == 3:
        if inherent is not None:
            raise ValueError(
                "inherent must be left out when P holds several models: their agreement shows it"
            )
        if len(array) < 2:
            raise ValueError(
                f"P must hold at least 2 models in its first dimension, got shape {array.shape}"
            )
        return np.maximum(entropies(flat.mean(axis=0)) - entropies(flat).mean(axis=0), 0.0)
    if inherent is None:
        return entropies(flat)
    S = inherent.matrix if isinstance(inherent, CollisionMatrix) else inherent
    expected = entropies(check.check_stochastic(S, "inherent", k))
    return np.maximum(entropies(flat) - expected[flat.argmax(axis=1)], 0.0)


def _tested(
    names: dict[str, Any], observed: FloatArray, inherent: FloatArray, variance: FloatArray
) -> tuple[pd.DataFrame, FloatArray]:
    """The table, largest excess first, and the significant excess in the order of the names."""
    excess = observed - inherent
    z = excess / np.sqrt(variance)
    significant = discovered(ndtr(-z), LEVEL / 2)
    columns = {
        "observed": observed,
        "inherent": inherent,
        "excess": excess,
        "z": z,
        "significant": significant,
    }
    table = pd.DataFrame(names | columns).sort_values(
        "excess", ascending=False, kind="stable", ignore_index=True
    )
    return table, np.where(significant, excess, 0.0)


def _confusion(
    y: IntArray, y_pred: Any, classes: Array, inherent: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Confusion of the model, and its variance; of labels no smaller than where the inherent one is the truth."""
    k = len(classes)
    counts = np.bincount(y, minlength=k).astype(np.float64)[:, None]
    counts[counts == 0] = np.nan
    if is_table(y_pred):
        P = check.check_posteriors(y_pred, "y_pred", k)
        check.check_same_length(y, P, "y_true and y_pred")
        sums, squares = np.zeros((2, k, k))
        np.add.at(sums, y, P)
        np.add.at(squares, y, P**2)
        rates = sums / counts
        # as in the intervals of a collision matrix: n rows cannot rule out rates below about 1/n
        return rates, np.maximum(squares / counts - rates**2, 0.0) / counts + (UNSEEN / counts) ** 2
    said = check.encode_labels(y_pred, classes, "y_pred")
    check.check_same_length(y, said, "y_true and y_pred")
    table = confusion_table(y, said, k)
    shrunk = (table + UNSEEN) / (counts + 2 * UNSEEN)
    return table / counts, np.maximum(shrunk * (1 - shrunk), inherent * (1 - inherent)) / counts
