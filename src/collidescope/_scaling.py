"""Inputs brought to a common scale before training: centred and scaled robustly, in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

#: The interquartile range of a standard normal.
NORMAL_IQR = 1.349
#: Values further out than this many scales are brought back to it: a single 1e30 must not own the network.
LARGEST = 20.0
#: Rows that decide the quantiles: more would not change them.
QUANTILE_ROWS = 100_000
BLOCK_ROWS = 65_536

FloatArray = npt.NDArray[np.float64]


def fit_scaling(X: Any) -> tuple[FloatArray, FloatArray]:
    """(centre, scale) of every feature; of all values at once for images (more than 2 dimensions).

    Median and interquartile range; the standard deviation where more than half of the values are equal; scale 0 takes out
    a constant feature.
    """
    n = X.shape[0]
    rows = np.unique(np.linspace(0, n - 1, min(n, QUANTILE_ROWS)).astype(np.intp))
    sample = _dense(X[rows])
    if sample.ndim > 2:
        sample = sample.reshape(-1, 1)[:: max(1, sample.size // (10 * QUANTILE_ROWS))]
    sample = sample.astype(np.float64)
    low, centre, high = np.quantile(sample, [0.25, 0.5, 0.75], axis=0)
    limit = np.finfo(np.float64).max ** 0.5
    clipped = np.clip(sample, -limit, limit)
    scale = (high - low) / NORMAL_IQR
    plain = scale <= 1e-12 * np.maximum(np.abs(centre), 1e-300)
    centre = np.where(plain, clipped.mean(axis=0), centre)
    scale = np.where(plain, clipped.std(axis=0), scale)
    constant = sample.min(axis=0) == sample.max(axis=0)
    return centre, np.where(constant, 0.0, scale)


def apply_scaling(X: Any, centre: FloatArray, scale: FloatArray) -> npt.NDArray[np.float32]:
    """Standardised float32 copy of ``X``, made block by block."""
    factor = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    out = np.empty(X.shape, dtype=np.float32)
    for start in range(0, X.shape[0], BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        part = _dense(X[block]).astype(np.float64)
        with np.errstate(over="ignore"):
            out[block] = np.clip((part - centre) * factor, -LARGEST, LARGEST)
    return out


def _dense(X: Any) -> npt.NDArray[Any]:
    return X.toarray() if hasattr(X, "toarray") else np.asarray(X)
