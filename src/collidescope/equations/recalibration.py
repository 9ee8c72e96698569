"""Are posteriors over- or under-confident? Raised to a power, do they score better on other rows?

Posteriors p become p^β, rows scaled to 1: β < 1 takes confidence away, β > 1 adds it (temperature
1/β). β is chosen on one half of the rows and judged on the other. For calibrated posteriors the
score then rises a little, by what a chosen β costs; it falls where they are miscalibrated.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar

from collidescope._checks import FloatArray, IntArray
from collidescope.equations.posterior import brier_scores


def raised(posteriors: FloatArray, power: float) -> FloatArray:
    """Posteriors to the power, every row adding up to 1.

    >>> raised(np.array([[0.9, 0.1]]), 0.5)
    array([[0.75, 0.25]])
    """
    # The largest entry of a row becomes 1 first: no row vanishes.
    powers = (posteriors / posteriors.max(axis=1, keepdims=True)) ** power
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def best_power(posteriors: FloatArray, codes: IntArray, weights: FloatArray) -> float:
    """The power, 1/8 to 8, with the lowest mean Brier score; from 20,000 rows at most."""
    step = -(-len(codes) // 20_000)
    some = posteriors[::step]
    labels = codes[::step]
    w = weights[::step]

    def score(log_power: float) -> float:
        return float(w @ brier_scores(raised(some, 2.0**log_power), labels))

    found = minimize_scalar(
        score, bounds=(-3, 3), method="bounded", options={"xatol": 0.02}
    )
    return float(2.0**found.x)


def recalibration_gains(
    posteriors: FloatArray, codes: IntArray, weights: FloatArray, units: IntArray
) -> tuple[FloatArray, float]:
    """The fall of each row's Brier score with the power of the other half, and the mean power.

    Every other independent unit is in the same half.
    """
    even = np.flatnonzero(units % 2 == 0)
    odd = np.flatnonzero(units % 2)
    before = brier_scores(posteriors, codes)
    after = np.empty(len(codes))
    powers = []
    for judged, chosen_on in ((even, odd), (odd, even)):
        power = best_power(posteriors[chosen_on], codes[chosen_on], weights[chosen_on])
        tempered = raised(posteriors[judged], power)
        after[judged] = brier_scores(tempered, codes[judged])
        powers.append(power)
    return before - after, float(np.mean(powers))
