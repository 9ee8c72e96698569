"""Distances that the experiments report."""

from __future__ import annotations

import numpy as np


def tvd(estimate: np.ndarray, truth: np.ndarray) -> list[float]:
    """Mean and largest total variation distance between the rows of two arrays."""
    rows = np.abs(estimate - truth).sum(axis=1) / 2
    return [float(rows.mean()), float(rows.max())]


def calibration_error(P: np.ndarray, codes: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error: |accuracy - confidence| of the likeliest class, in equal bins (low, high]."""
    confidence, right = P.max(axis=1), P.argmax(axis=1) == codes
    place = np.clip(np.ceil(confidence * bins).astype(np.intp) - 1, 0, bins - 1)
    # |bin| / n · |accuracy - confidence| is the absolute sum over the bin, divided by n
    return float(np.abs(np.bincount(place, weights=right - confidence)).sum() / len(codes))
