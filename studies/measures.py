"""Distances that the studies report, and how sure their means are."""

from __future__ import annotations

import numpy as np

Array = np.ndarray
Rng = np.random.Generator


def tvd(estimate: Array, truth: Array) -> list[float]:
    """Mean and largest total variation distance between the rows of two arrays."""
    rows = np.abs(estimate - truth).sum(axis=1) / 2
    return [float(rows.mean()), float(rows.max())]


def brier_score(P: Array, codes: Array) -> float:
    """Mean over rows of the squared distance between the posterior and the label, one-hot."""
    own = P[np.arange(len(codes)), codes]
    squares = np.square(P).sum(axis=1)
    return float(np.mean(squares - 2 * own + 1))


def calibration_error(P: Array, codes: Array, bins: int = 15) -> float:
    """Expected calibration error of the likeliest class, in equal bins (low, high]."""
    confidence = P.max(axis=1)
    right = P.argmax(axis=1) == codes
    place = np.clip(np.ceil(confidence * bins).astype(np.intp) - 1, 0, bins - 1)
    # |bin| / n · |accuracy - confidence| is the absolute sum over the bin, divided by n
    gaps = np.bincount(place, weights=right - confidence)
    return float(np.abs(gaps).sum() / len(codes))


def mean_error(values: Array) -> float:
    """Standard error of a mean; nan for a single value."""
    if len(values) < 2:
        return float("nan")
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def geometric_mean(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def clear_best(values: dict[str, Array], texts: dict[str, str]) -> dict[str, str]:
    """Texts with the lowest mean in bold, unless another is within two standard errors of it.

    The standard errors are those of the paired differences.

    >>> values = {"a": np.array([1.0, 1.1]), "b": np.array([2.0, 2.2])}
    >>> clear_best(values, {"a": "1.05", "b": "2.10"})
    {'a': '**1.05**', 'b': '2.10'}
    """
    best = min(values, key=lambda name: values[name].mean())
    gaps = [values[name] - values[best] for name in values if name != best]
    shown = dict(texts)
    if all(len(gap) > 1 and gap.mean() > 2 * mean_error(gap) for gap in gaps):
        shown[best] = f"**{texts[best]}**"
    return shown
