"""The paper's Algorithm 3: row k of S is the mean posterior over the rows of class k.

First order in the error of the posteriors, where the one-step estimator
(:func:`~collidescope.collision_matrix_from_posteriors`) is second order, and without intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collidescope.matrix import CollisionMatrix, Method
from studies.baselines._labelled import labelled_posteriors


def class_averages(
    P: npt.ArrayLike, y: npt.ArrayLike, classes: Sequence[Any] | None = None
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
    counts = np.bincount(codes).astype(np.float64)
    S = np.stack([posteriors[codes == k].mean(axis=0) for k in range(len(names))])
    return CollisionMatrix(
        S, counts / counts.sum(), names, counts=counts, method=Method.AVERAGES
    )
