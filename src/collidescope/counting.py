"""Collisions counted over exactly repeated inputs: the definition itself, with no model.

For a distinct input seen n ≥ 2 times, n_k of them in class k, the unbiased estimate of y_i y_j is n_i n_j / (n (n-1)),
and n_i (n_i - 1) / (n (n-1)) on the diagonal. Averaged over rows this is an estimate of B for the part of the
population whose inputs repeat; the share of rows it covers is reported beside it.

Standard errors: an input seen a few times is one independent unit. An input seen often would, as one unit, count the
difference between its posterior and others' as noise; its rows are the units instead, each with the classes of the
other rows as its posterior p, where the count is the one-step estimator (see :mod:`collidescope.estimate`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope._checks import IntArray
from collidescope.estimate import Moments, keeps_covariance, row_blocks
from collidescope.matrix import CollisionMatrix

#: Inputs seen at most this often are one unit, others one unit a row. Both choices only ever overstate the error, the
#: first more so for large groups and the second for pairs; around here they meet.
LARGE_GROUP = 4


def input_groups(X: Any) -> IntArray:
    """A number for every row of ``X``, the same for rows that are exactly equal.

    ``X`` is a DataFrame, a Series, or an array of any dtype; a missing value equals a missing value.

    >>> input_groups([[1, "a"], [2, "b"], [1, "a"]])
    array([0, 1, 0])
    """
    import pandas as pd

    if isinstance(X, (pd.DataFrame, pd.Series)):
        table = X.to_frame() if isinstance(X, pd.Series) else X
    elif np.ma.is_masked(X):
        raise ValueError("X has masked values, which would count as if they were not: fill them, or drop those rows")
    elif hasattr(X, "toarray"):
        raise ValueError("X is a sparse matrix: pass X.toarray(), or the table it was encoded from")
    else:
        array = X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object)
        if array.ndim not in (1, 2):
            raise ValueError(f"X must be a table (rows × columns), got shape {array.shape}")
        table = pd.DataFrame(array)
    if table.shape[0] == 0 or table.shape[1] == 0:
        raise ValueError(f"X is empty (shape {table.shape}): pass at least one row and one column")
    groups = np.zeros(table.shape[0], dtype=np.int64)
    for position in range(table.shape[1]):
        try:
            codes, levels = pd.factorize(table.iloc[:, position], use_na_sentinel=False)
        except TypeError as error:
            raise ValueError(
                f"X has values that cannot be compared in column {table.columns[position]!r}: {error}"
            ) from None
        # Renumbering after each column keeps the product below n × levels: it cannot overflow.
        groups, _ = pd.factorize(groups * max(len(levels), 1) + codes)
    return groups.astype(np.intp)


def repeated_rows(X: Any) -> npt.NDArray[np.bool_]:
    """Which rows of ``X`` have an input that occurs more than once.

    >>> repeated_rows(["a", "b", "a"])
    array([ True, False,  True])
    """
    groups = input_groups(X)
    return np.bincount(groups)[groups] > 1


def count_collisions(X: Any, y: npt.ArrayLike) -> CollisionMatrix:
    """Count collisions among rows whose inputs are exactly equal.

    Parameters
    ----------
    X : DataFrame, Series or array of n rows, any dtypes
    y : array of n labels

    Returns
    -------
    CollisionMatrix
        For the rows covered (``.coverage`` is their share), with intervals that treat distinct inputs as independent.

    Examples
    --------
    >>> cm = count_collisions(["wet", "wet", "wet", "dry", "dry", "hot"], ["rain", "rain", "sun", "sun", "sun", "sun"])
    >>> cm.matrix.round(3), round(cm.coverage, 3)
    (array([[0.5  , 0.5  ],
           [0.333, 0.667]]), 0.833)
    """
    labels = check.check_labels(y)
    classes = check.classes_of(labels)
    k = len(classes)
    codes = check.encode_labels(labels, classes)
    groups = input_groups(X)
    check.check_same_length(groups, codes, "X and y")
    sizes = np.bincount(groups)
    covered = sizes[groups] > 1
    if not covered.any():
        raise ValueError(
            "X has no input that occurs twice, so nothing can be counted: "
            "use CollisionClassifier or estimate_collisions"
        )
    # Rows of the covered groups only, renumbered from 0 in order of first appearance.
    _, kept = np.unique(groups[covered], return_inverse=True)
    kept_codes = codes[covered]
    seen = np.bincount(kept_codes, minlength=k)
    if not seen.all():
        raise ValueError(
            f"y has classes {classes[seen == 0].tolist()} that never occur among repeated inputs: "
            f"nothing can be counted for them, leave their rows out"
        )
    order = np.argsort(kept, kind="stable")
    kept, kept_codes = kept[order], kept_codes[order]
    estimate, spread = Moments(k, covariance=False), Moments(k, keeps_covariance(k))
    n_groups = int(kept[-1]) + 1
    for block in row_blocks(n_groups, k):
        stop = min(block.stop, n_groups)
        rows = slice(*np.searchsorted(kept, [block.start, stop]))
        own, classes_of_rows = kept[rows] - block.start, kept_codes[rows]
        n = np.bincount(own * k + classes_of_rows, minlength=(stop - block.start) * k).reshape(-1, k).astype(np.float64)
        total = n.sum(axis=1)
        weight = 1 / (total - 1)
        units = (-weight[:, None] * n, weight, n, n, total)
        estimate.add(*units)
        large = total > LARGE_GROUP
        if (~large).any():
            spread.add(*(part[~large] for part in units))
        in_large = np.flatnonzero(large[own])
        for part in row_blocks(len(in_large), k):
            row = in_large[part]
            c = np.eye(k)[classes_of_rows[row]]
            p = (n[own[row]] - c) * weight[own[row], None]
            one = np.ones(len(row))
            spread.add(c, -one, c - p, c, one)
    S, _ = estimate.ratio()
    _, variance = spread.ratio()
    # A class whose only covered row is alone in its group gives rounding like -1e-17 on the diagonal.
    S = np.maximum(S, 0.0)
    return CollisionMatrix(
        S / S.sum(axis=1, keepdims=True),
        seen / seen.sum(),
        classes,
        np.sqrt(variance),
        float(np.sqrt(spread.error()[1])),
        seen.astype(np.float64),
        spread.covariance(),
        float(covered.mean()),
        {"method": "counted", "distinct_inputs": n_groups},
    )
