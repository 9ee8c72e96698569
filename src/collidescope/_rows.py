"""A number for every row of a table, by which rows that a model was trained on are recognised later."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

#: Multipliers of the columns come from this seed, so that a model saved today recognises its rows tomorrow.
SEED = 0


def row_hashes(X: Any) -> npt.NDArray[np.uint64]:
    """64-bit hashes of the n rows of an array, sparse matrix or DataFrame.

    Numbers are compared as float32, in which models are trained, so that the dtype does not matter; missing values are
    equal to each other. Two different rows share a hash with probability 2⁻⁶⁴ or so.

    >>> import pandas as pd
    >>> a = row_hashes(np.array([[1.0, 2.0], [2.0, 1.0]]))
    >>> np.array_equal(a, row_hashes(pd.DataFrame({"x": [1, 2], "y": [2.0, 1.0]}))), bool(a[0] != a[1])
    (True, True)
    """
    if hasattr(X, "tocsr"):
        return np.concatenate([row_hashes(X[i : i + 1000].toarray()) for i in range(0, X.shape[0], 1000)])
    columns = [X[name] for name in X.columns] if hasattr(X, "columns") else None
    if columns is None:
        bits = _bits(np.asarray(X).reshape(len(X), -1))
    else:
        bits = np.column_stack([_bits(column) for column in columns])
    draw = np.random.default_rng(SEED).integers(0, 2**63, bits.shape[1], dtype=np.uint64)
    odd = np.asarray(draw * np.uint64(2) + np.uint64(1))
    with np.errstate(over="ignore"):
        # The xor makes the sum non-linear: otherwise columns whose multipliers cancel would.
        mixed = (bits * odd) ^ ((bits * odd) >> np.uint64(29))
        return np.asarray((mixed * odd[::-1]).sum(axis=1, dtype=np.uint64))


def _bits(values: Any) -> npt.NDArray[np.uint64]:
    try:
        with np.errstate(over="ignore"):
            numbers = np.asarray(values, dtype=np.float32) + np.float32(0.0)  # -0.0 is 0.0
        numbers[np.isnan(numbers)] = np.nan  # one kind of nan
        return numbers.view(np.uint32).astype(np.uint64)
    except (TypeError, ValueError):
        import pandas as pd

        text = np.asarray(values, dtype=object)
        flat = pd.util.hash_array(np.array([str(value) for value in text.ravel()], dtype=object))
        return np.asarray(flat, dtype=np.uint64).reshape(text.shape)
