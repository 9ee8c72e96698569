"""Classes with an order (grades, stages, stars): how far apart are two labels of one input?

With classes numbered in their order and B = E[y yᵀ], two labels of one input lie E|a - b| =
Σ_ij B[i, j] |i - j| classes apart. The PBER counts every miss the same; the distance tells a miss
by one class from a miss by five.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collidescope import _checks as check
from collidescope._checks import FloatArray
from collidescope.applications._inputs import check_matrix, linear_error
from collidescope.intervals import interval
from collidescope.matrix import CollisionMatrix


class ExpectedDistance(NamedTuple):
    """How far apart two labels of one input are, in classes; see :func:`expected_distance`."""

    value: float
    low: float  #: nan where the matrix has no covariance
    high: float


def distances(k: int) -> FloatArray:
    """K×K: |i - j|."""
    places = np.arange(k, dtype=np.float64)
    return np.abs(np.subtract.outer(places, places))


def expected_distance(cm: CollisionMatrix, *, level: float = 0.95) -> ExpectedDistance:
    """Expected distance of a second label of the same input, with an interval.

    ``cm`` has its classes in their order, each one apart from the next.

    >>> S = [[0.8, 0.2, 0.0], [0.1, 0.8, 0.1], [0.0, 0.2, 0.8]]
    >>> cm = CollisionMatrix(
    ...     S, priors=[0.25, 0.5, 0.25], classes=["mild", "medium", "severe"]
    ... )
    >>> round(expected_distance(cm).value, 3)
    0.2
    """
    check_matrix(cm)
    check.check_between(level, 0, 1, "level")
    apart = distances(cm.n_classes)
    value = float((cm.joint * apart).sum())
    if cm.covariance is None:
        return ExpectedDistance(value, np.nan, np.nan)
    # Linear in B, of which the covariance holds the upper triangle: each entry beyond the
    # diagonal counts twice.
    gradient = 2 * apart[np.triu_indices(cm.n_classes)]
    low, high = interval(
        value,
        linear_error(gradient, cm.covariance),
        cm.all_units,
        level,
        top=float(apart.max()),
        grouped=cm.grouped,
    )
    return ExpectedDistance(value, float(low), float(high))
