"""Distances that the experiments report."""

from __future__ import annotations

import numpy as np


def tvd(estimate: np.ndarray, truth: np.ndarray) -> list[float]:
    """Mean and largest total variation distance between the rows of two arrays."""
    rows = np.abs(estimate - truth).sum(axis=1) / 2
    return [float(rows.mean()), float(rows.max())]
