"""Inputs brought to a common scale before training: centred and scaled robustly, in float32."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from collidescope._checks import Array, FloatArray

#: values further out (in scales) are cut to it: a single 1e30 must not dominate the network
LARGEST = 20.0
QUANTILE_ROWS = 100_000  #: rows that decide the quantiles: more would not change them
FEWEST_ROWS = 10_000  #: of wide tables
#: numbers that are worked on at once (32 MB in double precision)
BLOCK_NUMBERS = 4_000_000


def fit_scaling(X: Any) -> tuple[FloatArray, FloatArray]:
    """(centre, scale) of every feature; of all values at once for images (more than 2 dimensions).

    Median and interquartile range; mean and standard deviation where more than half of the values
    are equal; scale 0 takes out a constant feature. Any finite values will do, up to the largest
    and down to the smallest.
    """
    n = X.shape[0]
    width = max(1, math.prod(X.shape[1:]))
    # Of wide tables fewer rows, so that they stay below so many numbers, but not too few.
    n_sampled = min(n, QUANTILE_ROWS, max(64_000_000 // width, FEWEST_ROWS))
    chosen = np.unique(np.linspace(0, n - 1, n_sampled).astype(np.intp))
    sample = _dense(X[chosen])
    if sample.ndim > 2:
        values = sample.reshape(-1, 1)
        sample = values[:: max(1, len(values) // (10 * QUANTILE_ROWS))]
    n_rows, n_columns = sample.shape
    centres = []
    scales = []
    for part in blocks(n_columns, n_rows, BLOCK_NUMBERS):
        centre, scale = _centre_and_scale(sample[:, part])
        centres.append(centre)
        scales.append(scale)
    return np.concatenate(centres), np.concatenate(scales)


def _centre_and_scale(columns: Array) -> tuple[FloatArray, FloatArray]:
    normal_iqr = 1.349  # the interquartile range of a standard normal
    # An interquartile range below this share of the median is rounding.
    rounding = 1e-12
    smallest = 5e-324  # above 0: a scale must not be rounded to 0
    sample = columns.astype(np.float64)
    lowest = sample.min(axis=0)
    highest = sample.max(axis=0)
    # In units of the largest value no sum or square can overflow or vanish.
    unit = np.maximum(-lowest, highest)
    sample /= np.where(unit > 0, unit, 1.0)
    low, median, high = np.quantile(sample, [0.25, 0.5, 0.75], axis=0)
    robust = (high - low) / normal_iqr
    mostly_equal = robust <= rounding * np.abs(median)
    mean = sample.mean(axis=0)
    deviation = sample.std(axis=0)
    centre = np.where(mostly_equal, mean, median)
    scale = np.where(mostly_equal, deviation, np.minimum(robust, 1.0))
    scale = np.maximum(scale * unit, np.where(scale > 0, smallest, 0.0))
    scale[lowest == highest] = 0.0
    return centre * unit, scale


def apply_scaling(
    X: Any, centre: FloatArray, scale: FloatArray
) -> npt.NDArray[np.float32]:
    """Standardised float32 copy of ``X``, made block by block."""
    largest_float = np.finfo(np.float64).max
    divisor = np.where(scale > 0, scale, np.inf)
    out = np.empty(X.shape, dtype=np.float32)
    width = math.prod(X.shape[1:])
    for block in blocks(len(out), width, BLOCK_NUMBERS):
        part = _dense(X[block]).astype(np.float64)
        with np.errstate(over="ignore"):
            part -= centre
            # an overflow is far out, not infinite: a constant feature must not become inf / inf
            np.clip(part, -largest_float, largest_float, out=part)
            part /= divisor
        np.clip(part, -LARGEST, LARGEST, out=part)
        out[block] = part
    return out


def blocks(n: int, width: float, numbers: int) -> Iterator[slice]:
    """Slices of n rows of ``width`` numbers: as many rows as ``numbers`` allows, at least one."""
    size = max(1, int(numbers // max(1, width)))
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def is_memory_map(X: Any) -> bool:
    """Whether an array, or what it is a view of, is a memory map."""
    while X is not None and not isinstance(X, np.memmap):
        X = getattr(X, "base", None)
    return X is not None


def _dense(X: Any) -> Array:
    if hasattr(X, "toarray"):
        return X.toarray()
    return np.asarray(X)
