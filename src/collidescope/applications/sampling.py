"""Adaptive sampling: train more on what is confused beyond need, never on what the data cannot tell apart.

After an epoch the confusion of the model on held-out rows, C[i, j] = P(said j | class i), is compared with what is
inherent. Where C exceeds it beyond sampling noise (one-sided z test, Benjamini and Hochberg), for a pair or for class i
in all, rows of class i are drawn more often. Collisions are left alone: no model separates them.

What is inherent depends on what the model is asked for. Of *posteriors*, or labels drawn from them, class averages are
held against S itself: a perfect model has C = S. Of *labels* the reference is the confusion of the best rule,
E_{x~D_i} 1[argmax y(x) = j], which S alone does not determine: take it from held-out posteriors with
:func:`bayes_confusion`. S may stand in for it where classes are about equally common; with uneven classes it may not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import ndtr

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope.applications._inputs import check_matrix, discovered, is_table
from collidescope.applications.ambiguity import entropies
from collidescope.applications.audit import confusion_table
from collidescope.equations.densities import Seed, as_generator
from collidescope.matrix import UNSEEN, CollisionMatrix

#: False discovery rate of what counts as confused beyond need: half of it for pairs, half for classes.
LEVEL = 0.05
#: Most by which a class is drawn oftener than another: beyond it the same rows come again and again.
CAP = 10.0
#: Share of the logarithm of a weight that an update keeps. The first epochs confuse everything: that fades. An
#: excess that stays for good raises the weight to exp(excess / (1 - MEMORY)), so 0.1 to 1.6.
MEMORY = 0.8


class AdaptiveSampler:
    """Draws training rows; classes that are confused more than the data make necessary come more often.

    Usable as ``torch.utils.data.DataLoader(…, sampler=sampler)``: iterating gives n row numbers, every row floor(w) or
    ceil(w) times. For scikit-learn pass ``weights_`` as ``sample_weight``.

    Parameters
    ----------
    cm : CollisionMatrix
        Whose S is the reference, and whose classes the labels are from.
    y : array of n labels
        Of the training rows.
    inherent : array of shape (K, K), optional
        Reference instead of S, such as ``bayes_confusion(P_heldout, y_heldout)`` (see the module's docstring).
    cap : float
        Largest ratio between the weights of two classes.
    random_state : int, Generator, RandomState or None

    Attributes
    ----------
    weights_, class_weights_ : arrays of n weights with mean 1, and of K weights
    excess_, class_excess_ : DataFrame or None
        Of the last update, one row per ordered pair (``true``, ``predicted``) or per ``class`` taken for any other:
        ``observed``, ``inherent``, ``excess``, ``z``, ``significant``; largest excess first.
    cost_matrix_ : array of shape (K, K)
        1 + significant excess for each wrong decision, 0 for the right one: ``P @ cost_matrix_`` is the expected cost.

    Examples
    --------
    >>> cm = CollisionMatrix([[0.9, 0.1], [0.1, 0.9]], classes=["cat", "dog"])
    >>> sampler = AdaptiveSampler(cm, ["cat"] * 50 + ["dog"] * 50, random_state=0)
    >>> _ = sampler.update(["cat"] * 200 + ["dog"] * 200, ["cat"] * 180 + ["dog"] * 20 + ["dog"] * 120 + ["cat"] * 80)
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
        y: npt.ArrayLike,
        *,
        inherent: npt.ArrayLike | None = None,
        cap: float = CAP,
        random_state: Seed = None,
    ) -> None:
        check_matrix(cm)
        k = cm.n_classes
        self.classes = cm.classes
        self.cap = check.check_at_least(cap, 1, "cap")
        self._codes = check.encode_labels(y, cm.classes)
        if inherent is None:
            self.inherent = cm.matrix
            self._variance = np.zeros((k, k)) if cm.stderr is None else cm.stderr**2
        else:
            self.inherent = check_reference(inherent, k)
            self._variance = np.zeros((k, k))
        self._rng = as_generator(random_state)
        self.excess_: pd.DataFrame | None = None
        self.class_excess_: pd.DataFrame | None = None
        self.cost_matrix_ = 1 - np.eye(k)
        self._set(np.zeros(k))

    def update(self, y_true: npt.ArrayLike, y_pred: Any) -> AdaptiveSampler:
        """Compare the confusion on held-out rows with what is inherent, and draw the classes in excess more often.

        ``y_pred`` (m labels, or m×K posteriors) is what the model says about rows that it does not train on. log weight
        ← MEMORY · log weight + significant excess, summed over the classes taken for, or that of them all.
        """
        k = len(self.classes)
        y = check.encode_labels(y_true, self.classes, "y_true")
        observed, variance = _confusion(y, y_pred, self.classes)
        variance = variance + self._variance
        i, j = np.nonzero(~np.eye(k, dtype=bool) & ~np.isnan(observed))
        pairs = _tested(
            {"true": self.classes[i], "predicted": self.classes[j]}, observed, self.inherent, variance, (i, j)
        )
        beyond = np.zeros((k, k))
        beyond[i, j] = np.where(pairs["significant"], pairs["excess"], 0.0)
        c = np.unique(i)
        # 1 - C_ii is taken for any other, with the variance of C_ii
        classes = _tested({"class": self.classes[c]}, 1 - observed, 1 - self.inherent, variance, (c, c))
        in_all = np.zeros(k)
        in_all[c] = np.where(classes["significant"], classes["excess"], 0.0)
        self.excess_, self.class_excess_ = (
            table.sort_values("excess", ascending=False, kind="stable", ignore_index=True) for table in (pairs, classes)
        )
        self.cost_matrix_ = 1 - np.eye(k) + beyond
        self._set(MEMORY * self._log_weights + np.maximum(beyond.sum(axis=1), in_all))
        return self

    def _set(self, log_weights: FloatArray) -> None:
        """Class weights from 1 to ``cap``, then scaled so that those of the rows have mean 1."""
        self._log_weights = np.minimum(log_weights, np.log(self.cap))
        weights = np.exp(self._log_weights)
        rows = weights[self._codes]
        self.class_weights_ = weights / rows.mean()
        self.weights_ = rows / rows.mean()

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


def active_learning_score(P: npt.ArrayLike, *, inherent: npt.ArrayLike | CollisionMatrix | None = None) -> FloatArray:
    """How much a label of each unlabelled row would teach: doubt that is not inherent ambiguity.

    Parameters
    ----------
    P : array of shape (members, n, K) or (n, K)
        Posteriors by several models: the score is the entropy of their mean less the mean of their entropies (mutual
        information), zero where all agree that the row is ambiguous. By one model: their entropy, less that of the row
        of S of the predicted class. One model cannot tell ambiguity from ignorance row by row: pass several where you
        can.
    inherent : CollisionMatrix or array of shape (K, K), optional
        S, for the posteriors of one model. Without it their score is the plain entropy.

    Examples
    --------
    >>> ambiguous_but_known, unexplored = [0.5, 0.5], [[1.0, 0.0], [0.0, 1.0]]
    >>> active_learning_score([[ambiguous_but_known, unexplored[0]], [ambiguous_but_known, unexplored[1]]]).round(2)
    array([0.  , 0.69])
    """
    array = check.check_finite(P, "P", ndim=(2, 3))
    if array.ndim == 3:
        if inherent is not None:
            raise ValueError("inherent must be left out when P holds several models: their agreement shows it")
        members, n, k = array.shape
        if members < 2:
            raise ValueError(f"P must hold at least 2 models in its first dimension, got shape {array.shape}")
        flat = check.check_posteriors(array.reshape(-1, k), "P").reshape(members, n, k)
        return np.maximum(entropies(flat.mean(axis=0)) - entropies(flat).mean(axis=0), 0.0)
    single = check.check_posteriors(array, "P")
    if inherent is None:
        return entropies(single)
    S = inherent.matrix if isinstance(inherent, CollisionMatrix) else inherent
    expected = entropies(check_reference(S, single.shape[1]))
    return np.maximum(entropies(single) - expected[single.argmax(axis=1)], 0.0)


def check_reference(inherent: npt.ArrayLike, k: int) -> FloatArray:
    """``inherent`` as a K×K matrix whose rows sum to 1."""
    array = check.check_stochastic(inherent, "inherent")
    if len(array) != k:
        raise ValueError(f"inherent must be {k}×{k}, one row and column a class, got {array.shape}")
    return array


def _tested(
    names: dict[str, Any],
    observed: FloatArray,
    inherent: FloatArray,
    variance: FloatArray,
    at: tuple[IntArray, IntArray],
) -> pd.DataFrame:
    """A table of the entries ``at``: are they beyond what is inherent?"""
    excess = observed[at] - inherent[at]
    z = excess / np.sqrt(variance[at])
    columns = {"observed": observed[at], "inherent": inherent[at], "excess": excess, "z": z}
    significant = discovered(ndtr(-z), LEVEL / 2)
    return pd.DataFrame(names | columns | {"significant": significant})


def _confusion(y: IntArray, y_pred: Any, classes: npt.NDArray[Any]) -> tuple[FloatArray, FloatArray]:
    """Rates by true class, and their variances; nan for a class without rows."""
    k = len(classes)
    counts = np.bincount(y, minlength=k).astype(np.float64)[:, None]
    counts[counts == 0] = np.nan
    if is_table(y_pred):
        P = check.check_posteriors(y_pred, "y_pred", k)
        check.check_same_length(y, P, "y_true and y_pred")
        sums, squares = np.zeros((k, k)), np.zeros((k, k))
        np.add.at(sums, y, P)
        np.add.at(squares, y, P**2)
        rates = sums / counts
        # as in the intervals of a collision matrix: n rows cannot rule out rates below about 1/n
        return rates, np.maximum(squares / counts - rates**2, 0.0) / counts + (UNSEEN / counts) ** 2
    said = check.encode_labels(y_pred, classes, "y_pred")
    check.check_same_length(y, said, "y_true and y_pred")
    table = confusion_table(y, said, k)
    shrunk = (table + UNSEEN) / (counts + 2 * UNSEEN)
    return table / counts, shrunk * (1 - shrunk) / counts
