"""S in training: soft targets for labels, and more draws of classes confused beyond need.

*Label smoothing*: the target of label i is row i of ``T = (1 - a) I + a S``, a the *strength*.

*Adaptive sampling*: after an epoch the confusion of the model on held-out rows, C[i, j] = P(said j
| class i), is compared with what is inherent. Where C exceeds it, rows of both classes of the pair
are drawn more often, or that error costs more (``cost_matrix_``). Collisions are left alone: no
model separates them.

What is inherent depends on what the model is asked for. Of *posteriors* it is S: a perfect model
has C = S. Of *labels* it is the confusion of the best rule, which S alone does not determine: take
it from held-out posteriors with :func:`bayes_confusion`. S may stand in for it where classes are
about equally common.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter

from collidescope import _checks as check
from collidescope._checks import Array, ArrayLike, FloatArray, Given, IntArray
from collidescope.applications._inputs import (
    Notes,
    Result,
    check_matrix,
    is_table,
    mean_and_error,
)
from collidescope.applications.audit import confusion_table, entropies
from collidescope.equations.densities import Seed, as_generator
from collidescope.estimators import check_classifier
from collidescope.folds import resolve_splits
from collidescope.matrix import CollisionMatrix
from collidescope.sample import check_rows


def smoothing_matrix(cm: CollisionMatrix, strength: float = 0.1) -> FloatArray:
    """The soft target of every class: K×K, row i is (1 - strength) e_i + strength S[i].

    >>> smoothing_matrix(CollisionMatrix([[0.8, 0.2], [0.4, 0.6]], [2 / 3, 1 / 3]), 0.5)
    array([[0.9, 0.1],
           [0.2, 0.8]])
    """
    check_matrix(cm)
    a = check_strength(strength)
    return (1 - a) * np.eye(cm.n_classes) + a * cm.matrix


def smooth_labels(
    y: ArrayLike | pd.Series, cm: CollisionMatrix, strength: float = 0.1
) -> FloatArray | pd.DataFrame:
    """Soft targets, n×K: every label gives a little to the classes it collides with.

    ``cm`` is S of the training rows only. ``strength`` 0 leaves labels as they are (one-hot), 1
    replaces each by its row of S; :func:`choose_smoothing` tries several. For a Series the targets
    are a DataFrame with its index.

    >>> cm = CollisionMatrix(
    ...     [[0.9, 0.1], [0.2, 0.8]], [2 / 3, 1 / 3], classes=["cat", "dog"]
    ... )
    >>> smooth_labels(["cat", "dog"], cm, strength=0.5)
    array([[0.95, 0.05],
           [0.1 , 0.9 ]])
    """
    rows = smoothing_matrix(cm, strength)[check.encode_labels(y, cm.classes)]
    if isinstance(y, pd.Series):
        return pd.DataFrame(rows, y.index, pd.Index(cm.classes))
    return rows


@dataclass(frozen=True, eq=False, repr=False)
class SmoothingChoice(Result, title="How much label smoothing?"):
    """Held-out log loss by strength: see :func:`choose_smoothing`.

    ``best`` is the (smallest) strength with the lowest of the ``losses``, which is lower by
    ``gain`` than that of the smallest strength tried, with its standard error over rows (paired).
    """

    strengths: FloatArray
    losses: FloatArray
    best: float
    gain: float
    gain_stderr: float
    notes: Notes = ()

    @property
    def verdict(self) -> str:
        return (
            f"Best strength {self.best:g}: held-out log loss {self.losses.min():.4f}, "
            f"{self.gain:.4f} (standard error {self.gain_stderr:.4f}) lower than at "
            f"{self.strengths.min():g}."
        )

    def _shown(self, most: int | None = None) -> pd.DataFrame:
        return pd.DataFrame({"strength": self.strengths, "log_loss": self.losses})


def choose_smoothing(
    classifier: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike,
    cm: CollisionMatrix,
    *,
    strengths: Sequence[float] = (0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0),
    cv: int = 3,
    random_state: int = 0,
) -> SmoothingChoice:
    """The strength with which a classifier predicts held-out labels best.

    A classifier (or pipeline) with ``predict_proba`` whose ``fit`` takes ``sample_weight`` learns
    soft targets: each row is given once for every class, weighted by its target. The ``cv`` folds
    are the same for all ``strengths``. Where it matters that held-out labels have a small part in
    S, take S from other rows.

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
    X = check.collected(X)
    check_rows(X, codes)
    given = check.check_finite(strengths, "strengths", ndim=1)
    tried = np.unique([check_strength(value, "strengths") for value in given])
    weight_name = _weight_argument(classifier)
    seed = check.check_count(random_state, "random_state", least=0)
    labels = cm.classes[codes]
    folds, notes = resolve_splits(cv, labels, check.classes_of(labels), seed)
    losses = np.empty((len(tried), len(codes)))
    for s, strength in enumerate(tried):
        T = smoothing_matrix(cm, strength)
        for train, test in folds:
            soft = T[codes[train]]
            # Copies of a row with less weight could not move a loss in its fifth digit.
            rows, targets = np.nonzero(soft >= 1e-6)
            weights = {weight_name: soft[rows, targets]}
            copies = _safe_indexing(X, train[rows])
            model = clone(classifier).fit(copies, cm.classes[targets], **weights)
            held_out = _safe_indexing(X, test)
            losses[s, test] = _log_losses(model, held_out, labels[test])
    means = losses.mean(axis=1)
    best = int(means.argmin())
    gain, stderr, _ = mean_and_error(losses[0] - losses[best])
    return SmoothingChoice(
        tried, means, float(tried[best]), float(gain), float(stderr), tuple(notes)
    )


def _log_losses(model: BaseEstimator, X: ArrayLike, labels: Array) -> FloatArray:
    """The log loss of every row; a class ruled out costs the log of the rounding, not infinity."""
    P = check.check_posteriors(model.predict_proba(X), "predict_proba of classifier")
    own = check.encode_labels(labels, np.asarray(model.classes_))
    p = np.maximum(P[np.arange(len(P)), own], np.finfo(np.float64).eps)
    return -np.log(p)


def check_strength(value: float, name: str = "strength") -> float:
    """``value`` as a float from 0 to 1."""
    if check.check_at_least(value, 0, name) > 1:
        raise ValueError(
            f"{name} must be a number from 0 (labels as they are) to 1 (rows of S), "
            f"got {value!r}"
        )
    return float(value)


def _weight_argument(classifier: BaseEstimator) -> str:
    check_classifier(classifier)
    name = "sample_weight"
    last = classifier
    if hasattr(classifier, "steps"):
        step, last = classifier.steps[-1]
        name = f"{step}__sample_weight"
    if not has_fit_parameter(last, "sample_weight"):
        raise ValueError(
            "classifier must take sample_weight in fit (soft targets), "
            f"{type(last).__name__} does not: LogisticRegression, "
            "HistGradientBoostingClassifier and others do"
        )
    return name


class AdaptiveSampler:
    """Draws training rows; classes confused more than the data make necessary come more often.

    Usable as ``torch.utils.data.DataLoader(…, sampler=sampler)``: iterating gives n row numbers,
    every row floor(w) or ceil(w) times. For scikit-learn pass ``weights_`` as ``sample_weight``.

    ``y`` are the labels of the n training rows, ``inherent`` (K×K, optional) stands in place of S,
    such as ``bayes_confusion(P_heldout, y_heldout)``, ``cap`` is the largest ratio between the
    weights of two classes (beyond it the same rows come again and again), ``memory`` the share of
    the logarithm of a weight that an update keeps: the first epochs confuse everything, and that
    fades.

    Attributes
    ----------
    weights_, class_weights_ : arrays of n weights with mean 1, and of K weights
    excess_ : DataFrame or None, of the last update, largest excess first
        One row per ordered pair (``true``, ``predicted``): ``observed``, ``inherent``, ``excess``.
    cost_matrix_ : array of shape (K, K); 1 + excess for each wrong decision, 0 for the right one
        For :class:`~collidescope.applications.smoothing_loss.CostCrossEntropy`.

    Examples
    --------
    >>> cm = CollisionMatrix(0.9 * np.eye(3) + 0.1 / 3, classes=["car", "cat", "dog"])
    >>> sampler = AdaptiveSampler(cm, ["car", "cat", "dog"] * 50, random_state=0)
    >>> said = ["car"] * 100 + ["cat"] * 100 + ["cat"] * 30 + ["dog"] * 70
    >>> _ = sampler.update(["car"] * 100 + ["cat"] * 100 + ["dog"] * 100, said)
    >>> sampler.excess_.round(3).head(1)
      true predicted  observed  inherent  excess
    0  dog       cat       0.3     0.033   0.267
    >>> sampler.class_weights_.round(2)  # both classes of the pair
    array([0.83, 1.08, 1.08])
    """

    def __init__(
        self,
        cm: CollisionMatrix,
        y: ArrayLike,
        *,
        inherent: Given = None,
        cap: float = 10.0,
        memory: float = 0.8,
        random_state: Seed = None,
    ) -> None:
        check_matrix(cm)
        self.classes = cm.classes
        self.cap = check.check_at_least(cap, 1, "cap")
        self.memory = check.check_at_least(memory, 0, "memory")
        self.inherent = cm.matrix
        if inherent is not None:
            self.inherent = check.check_stochastic(inherent, "inherent", cm.n_classes)
        self._codes = check.encode_labels(y, cm.classes)
        self._rng = as_generator(random_state)
        self.excess_: pd.DataFrame | None = None
        self.cost_matrix_ = 1 - np.eye(cm.n_classes)
        self._set(np.zeros(cm.n_classes))

    def update(self, y_true: ArrayLike, y_pred: ArrayLike) -> AdaptiveSampler:
        """Compare the confusion on held-out rows with what is inherent; draw its pairs more often.

        ``y_pred`` (m labels, or m×K posteriors) is what the model says about rows that it does not
        train on. log weight ← memory · log weight + excess of all pairs that the class is in.
        """
        y = check.encode_labels(y_true, self.classes, "y_true")
        observed = _confusion(y, y_pred, self.classes)
        excess = observed - self.inherent
        known = ~np.isnan(observed)
        np.fill_diagonal(known, False)
        i, j = np.nonzero(known)
        columns = {
            "true": self.classes[i],
            "predicted": self.classes[j],
            "observed": observed[i, j],
            "inherent": self.inherent[i, j],
            "excess": excess[i, j],
        }
        self.excess_ = pd.DataFrame(columns).sort_values(
            "excess", ascending=False, kind="stable", ignore_index=True
        )
        beyond = np.where(known, np.maximum(excess, 0.0), 0.0)
        self.cost_matrix_ = 1 - np.eye(len(beyond)) + beyond
        of_both_classes = beyond.sum(axis=0) + beyond.sum(axis=1)
        self._set(self.memory * self._log_weights + of_both_classes)
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
        # Systematic sampling: a row comes as often as its weight on average, and always next to it.
        n = len(self._codes)
        order = self._rng.permutation(n)
        edges = np.cumsum(self.weights_[order])
        edges *= n / edges[-1]
        passed = np.floor(edges + self._rng.random())
        times = np.diff(passed, prepend=0.0).astype(np.intp)
        yield from self._rng.permutation(np.repeat(order, times)).tolist()


def _confusion(y: IntArray, y_pred: ArrayLike, classes: Array) -> FloatArray:
    """Confusion of a model from its labels or posteriors; nan for a class without rows."""
    k = len(classes)
    if is_table(y_pred):
        P = check.check_posteriors(y_pred, "y_pred", k)
        check.check_same_length(y, P, "y_true and y_pred")
        table = np.zeros((k, k))
        np.add.at(table, y, P)
    else:
        said = check.encode_labels(y_pred, classes, "y_pred")
        check.check_same_length(y, said, "y_true and y_pred")
        table = confusion_table(y, said, k)
    counts = np.bincount(y, minlength=k).astype(np.float64)
    counts[counts == 0] = np.nan
    return table / counts[:, None]


def active_learning_score(
    P: ArrayLike, *, inherent: ArrayLike | CollisionMatrix | None = None
) -> FloatArray:
    """How much a label of each unlabelled row would teach: doubt that is not inherent ambiguity.

    With posteriors by several models (members × n × K) it is the entropy of their mean less the
    mean of their entropies (mutual information), zero where all agree that the row is ambiguous.
    With those of one (n×K) it is their entropy, less that of the row of S (``inherent``, optional)
    of the predicted class: one model cannot tell ambiguity from ignorance row by row.

    >>> ambiguous_but_known, unexplored = [0.5, 0.5], [[1.0, 0.0], [0.0, 1.0]]
    >>> active_learning_score(
    ...     [[ambiguous_but_known, unexplored[0]], [ambiguous_but_known, unexplored[1]]]
    ... ).round(2)
    array([0.  , 0.69])
    """
    array = check.check_finite(P, "P", ndim=(2, 3))
    k = array.shape[-1]
    flat = check.check_posteriors(array.reshape(-1, k), "P").reshape(array.shape)
    doubt = entropies(flat)
    if array.ndim == 3:
        if inherent is not None:
            raise ValueError(
                "inherent must be left out when P holds several models: their "
                "agreement shows it"
            )
        if len(array) < 2:
            raise ValueError(
                "P must hold at least 2 models in its first dimension, got shape "
                f"{array.shape}"
            )
        return np.maximum(entropies(flat.mean(axis=0)) - doubt.mean(axis=0), 0.0)
    if inherent is None:
        return doubt
    if isinstance(inherent, CollisionMatrix):
        inherent = inherent.matrix
    of_class = entropies(check.check_stochastic(inherent, "inherent", k))
    return np.maximum(doubt - of_class[flat.argmax(axis=1)], 0.0)
