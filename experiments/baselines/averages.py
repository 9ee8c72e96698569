"""The paper's Algorithm 3: row k of S is the mean posterior over the rows of class k.

First order in the error of the posteriors, where the one-step estimator
(:func:`~collidescope.collision_matrix_from_posteriors`) is second order, and without intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope.estimators import crossfit_posteriors
from collidescope.matrix import CollisionMatrix, Method
from experiments.baselines._labelled import labelled_posteriors, refuse_empty_classes


def class_averages(
    P: npt.ArrayLike, y: npt.ArrayLike, classes: Sequence[Any] | npt.NDArray[Any] | None = None
) -> CollisionMatrix:
    """S whose row k is the mean of ``P`` over the rows labelled k, at the priors of the sample.

    Parameters
    ----------
    P : array of shape (n, K)
        Posteriors.
    y : array of n labels
    classes : sequence of K names, optional
        In the order of the columns; default: the sorted labels.

    Examples
    --------
    >>> class_averages([[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]], [0, 0, 1]).matrix
    array([[0.8, 0.2],
           [0.4, 0.6]])
    """
    posteriors, codes, names = labelled_posteriors(P, y, classes)
    return _averages(posteriors, codes, names)


def average_collision_matrix(
    classifier: Any,
    X: Any,
    y: npt.ArrayLike,
    *,
    cv: int | None = None,
    random_state: int | None = 0,
) -> CollisionMatrix:
    """Algorithm 3 with any classifier that has ``predict_proba``.

    Parameters
    ----------
    classifier : scikit-learn classifier or pipeline
        Cloned before it is fitted.
    X : array or DataFrame of n rows
    y : array of n labels
    cv : int, optional
        None is the algorithm to the letter: the posteriors of the rows come from a classifier that was trained on
        them. With a number of folds every row is scored by a classifier that did not see it.
    random_state : int
        Shuffles the rows into folds.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> tree = DecisionTreeClassifier(random_state=0)
    >>> average_collision_matrix(tree, X, y).pber  # it knows its rows by heart
    0.0
    >>> round(average_collision_matrix(tree, X, y, cv=5).pber, 2)
    0.07
    """
    labels = check.check_labels(y)
    classes = check.classes_of(labels)
    if cv is None:
        P = crossfit_posteriors(clone(classifier).fit(X, labels), X, labels, cv="prefit")
    else:
        check.check_count(cv, "cv", least=2)
        P = crossfit_posteriors(classifier, X, labels, cv=cv, random_state=random_state)
    return _averages(P, check.encode_labels(labels, classes), classes)


def _averages(
    P: FloatArray,
    codes: IntArray,
    classes: npt.NDArray[Any],
) -> CollisionMatrix:
    counts = refuse_empty_classes(codes, classes)
    S = np.stack([P[codes == k].mean(axis=0) for k in range(len(classes))])
    return CollisionMatrix(
        S, counts / counts.sum(), classes, counts=counts.astype(np.float64), method=Method.AVERAGES
    )
