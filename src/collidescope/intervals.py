"""Confidence intervals of means of bounded scores, with few rows, few errors, weights and groups.

A mean over independent units (rows, or groups of rows) has the estimate m, the standard error s
and values between 0 and ``top``. Where nothing was seen s is near 0, yet n units cannot rule out
rates below about 3/n. Clopper and Pearson's exact limits of a count answer that with one more unit
at the worst value: with x of n the upper limit is a quantile of Beta(x + 1, n - x). The same idea
holds for any bounded score. One more unit of share a = 1/(n + 1) at ``top`` gives::

    μ = m + a (top - m)        ν = (1 - a)² s² + (1 - a) a² (top - m)²

and the upper limit is the quantile of the Beta distribution on [0, top] with mean μ and
concentration κ = μ (top - μ) / ν. For 0/1 scores κ = n + 1: this *is* Clopper and Pearson's limit.
With many units it is the normal one. The lower limit mirrors it: one more unit at 0.

- *Weights*: n counts the units that carry the variance, :func:`effective_units`. A class of 10 rows
  that stands for half of the population counts as 20 rows, not as the thousands beside it.
- *Few units* know s badly: ν is widened by (t / z)², Student's t with n - 1 degrees of freedom.
- *Scores far from* ``top``: where many errors were seen, the spread of the units is known, and the
  one more lies a few of their standard deviations out instead of at ``top``.

Coverage of every statement built on this, with its simulation error: ``studies/grid.py``.
"""

from __future__ import annotations

import numpy as np
from scipy.special import betaincinv, chdtri, gammaincinv, ndtri, stdtrit

from collidescope._checks import ArrayLike, FloatArray, Given

#: One more row differs by at least this much from the mean: where all scores are alike the
#: standard error is near zero, yet n rows cannot rule out rates below about 1/n.
UNSEEN = 0.5
LARGEST_SCORE = 2.0  #: of the Brier score ‖c - p‖², where p is sure of a wrong class


def upper_limit(
    mean: ArrayLike,
    stderr: ArrayLike,
    units: Given,
    level: float,
    *,
    top: float = 1.0,
    grouped: bool = False,
    counted: bool = False,
) -> FloatArray:
    """What the mean of scores in [0, ``top``] stays below with probability ``level``.

    ``units`` is the effective number of independent units (None: unknown, and many), ``grouped``
    whether they are groups of rows, ``counted`` whether scores are 0 or ``top``: then the limit is
    Clopper and Pearson's.

    >>> float(
    ...     upper_limit(0.0, 0.0, 1000, 0.95).round(4)
    ... )  # no error in 1,000 rows: about 3/n
    0.003
    """
    m = np.clip(np.asarray(mean, dtype=np.float64), 0.0, top)
    s = np.asarray(stderr, dtype=np.float64)
    if units is None:
        return np.clip(m + ndtri(level) * s, 0.0, top)
    given = np.asarray(units, dtype=np.float64)
    n = np.maximum(given, 1.0)
    extreme = np.asarray(top)
    if grouped or not counted:
        extreme = _one_more(m, s, n, top, grouped)
    share = 1 / (n + 1)
    rest = 1 - share
    away = extreme - m
    mu = m + share * away
    if not grouped:
        away = np.maximum(away, UNSEEN)
    of_seen = rest**2 * s**2
    of_one_more = rest * share**2 * away**2
    nu = (of_seen + of_one_more) * widening(n, level)
    quantile = _beta_quantile(mu / top, nu / top**2, level)
    return np.maximum(quantile * top, m)


def widening(n: ArrayLike, level: float = 0.975) -> FloatArray:
    """(t / z)²: how much a variance that n units told must grow for the normal quantile z."""
    z = ndtri(level)
    others = np.asarray(n, dtype=np.float64) - 1
    freedom = np.maximum(others, 1.0)
    if abs(z) < 1e-9:
        return np.ones_like(freedom)
    return np.asarray((stdtrit(freedom, level) / z) ** 2)


def _one_more(
    m: FloatArray, s: FloatArray, n: FloatArray, top: float, grouped: bool
) -> FloatArray:
    """The value of one more unit: far out, and at ``top`` where hardly any error was seen.

    How far the units spread is known from those with errors, about m n / top of them.
    """
    reach = 3.0
    patience = 4.0
    if grouped:
        reach = 2.0
        patience = 1.0
    outlying = reach * s * np.sqrt(n)
    far = np.minimum(m + outlying, top)
    seen = m * n / top / patience
    return np.asarray(far + (top - far) / (1 + seen))


def interval(
    mean: ArrayLike,
    stderr: ArrayLike,
    units: Given,
    level: float,
    *,
    top: float = 1.0,
    grouped: bool = False,
) -> tuple[FloatArray, FloatArray]:
    """(low, high) of the mean, each missed with probability (1 - ``level``)/2.

    See :func:`upper_limit`.
    """
    one_sided = (1 + level) / 2

    def at_most(value: ArrayLike) -> FloatArray:
        return upper_limit(value, stderr, units, one_sided, top=top, grouped=grouped)

    mirrored = top - np.asarray(mean, dtype=np.float64)
    low = at_most(mirrored)
    low = top - low
    return low, at_most(mean)


def score_interval(
    mean: float,
    stderr: float,
    units: float | None,
    level: float,
    *,
    grouped: bool = False,
) -> tuple[float, float]:
    """(low, high) of a mean Brier score: of rows scores reach 2, of groups of rows about 1."""
    top = LARGEST_SCORE
    if grouped:
        top = max(1.0, mean)
    low, high = interval(mean, stderr, units, level, top=top, grouped=grouped)
    return float(low), float(high)


def brier_interval(
    mean: float,
    stderr: float,
    units: float | None,
    level: float,
    *,
    grouped: bool = False,
) -> tuple[float, float]:
    """(low, high) of a PBER, at most 1, from Brier scores."""
    low, high = score_interval(mean, stderr, units, level, grouped=grouped)
    return min(low, 1.0), min(high, 1.0)


def optimism(by_chance: float, n_classes: int, units: float, level: float) -> float:
    """What the Brier score of class shares gains, at most, where they come from the same units.

    They fit these better than any others do: 1 - Σ π̂² is too small by Σ (π̂ - π)², on average
    ``by_chance`` / n, which varies like χ² with K - 1 degrees of freedom. Where all classes are as
    common it is all that varies.
    """
    freedom = n_classes - 1
    largest = float(chdtri(freedom, (1 - level) / 2))
    return by_chance / units * largest / freedom


def level_together(level: float, n: float) -> float:
    """The level of each of n intervals that hold together at ``level`` (Bonferroni)."""
    return 1 - (1 - level) / n


def difference_interval(
    first: ArrayLike,
    of_first: tuple[ArrayLike, ArrayLike],
    second: ArrayLike,
    of_second: tuple[ArrayLike, ArrayLike],
) -> tuple[FloatArray, FloatArray]:
    """(low, high) of first - second, independent estimates, from the interval of each.

    The distances to their ends add up like standard errors (Zou and Donner, 2008), so that few
    errors on one side are allowed for.
    """
    gap = np.subtract(first, second)
    first_below = np.subtract(first, of_first[0])
    first_above = np.subtract(of_first[1], first)
    second_below = np.subtract(second, of_second[0])
    second_above = np.subtract(of_second[1], second)
    low = gap - np.hypot(first_below, second_above)
    high = gap + np.hypot(first_above, second_below)
    return low, high


def signed_interval(
    mean: ArrayLike,
    size: ArrayLike,
    stderr: ArrayLike,
    units: Given,
    level: float,
    *,
    top: float = 1.0,
    grouped: bool = False,
) -> tuple[FloatArray, FloatArray]:
    """(low, high) of the mean of values between -``top`` and ``top``, as paired differences are.

    What lies above zero and what lies below it are two means of scores, each with the limits of
    :func:`interval`: where no difference was seen, n units cannot rule out shares below about 4/n
    in either direction. ``size`` is the mean over units of the absolute values: it tells how many
    units have shown what one more could. Of groups of rows, those that differ noticeably count.

    >>> low, high = signed_interval(0.0, 0.0, 0.0, 1000, 0.95)
    >>> float(low.round(4)), float(high.round(4))
    (-0.0037, 0.0037)
    """
    m = np.asarray(mean, dtype=np.float64)
    s = np.asarray(stderr, dtype=np.float64)
    magnitude = np.clip(size, np.abs(m), top)
    above = (magnitude + m) / 2
    below = (magnitude - m) / 2
    # The variance of the whole is shared out as that of counts would be.
    share = above / np.maximum(magnitude, np.finfo(float).tiny)
    of_above = s * np.sqrt(share)
    of_below = s * np.sqrt(1 - share)
    return difference_interval(
        above,
        interval(above, of_above, units, level, top=top, grouped=grouped),
        below,
        interval(below, of_below, units, level, top=top, grouped=grouped),
    )


def half_width(
    stderr: ArrayLike, counts: Given, level: float, units: Given = None
) -> FloatArray:
    """Half the width of a symmetric interval, for differences, from ``counts`` rows in ``units``.

    ``units`` are independent groups of rows; None: every row is one.
    """
    quantile = (1 + level) / 2
    if counts is None:
        return np.asarray(ndtri(quantile) * np.asarray(stderr))
    if units is None:
        units = counts
    freedom = np.maximum(np.asarray(units) - 1, 1)
    unseen = UNSEEN / np.asarray(counts)
    widened = np.hypot(stderr, unseen)
    return np.asarray(stdtrit(freedom, quantile) * widened)


def effective_units(
    first: ArrayLike, second: ArrayLike, third: ArrayLike
) -> FloatArray:
    """Units that count, from Σw, Σw² and Σw³: Σw Σw² / Σw³, at least 1.

    The variance of a mean comes from its heavy units, whose typical weight is Σw³ / Σw².

    >>> w = np.repeat(
    ...     [100.0, 1.0], [10, 1000]
    ... )  # ten heavy rows are half of the population
    >>> float(effective_units(w.sum(), (w**2).sum(), (w**3).sum()).round(1))
    20.2
    """
    total = np.asarray(first) * np.asarray(second)
    return np.maximum(total / np.maximum(third, np.finfo(float).tiny), 1.0)


def _beta_quantile(mean: FloatArray, variance: FloatArray, level: float) -> FloatArray:
    """The quantile of a Beta distribution, of concentration mean (1 - mean) / variance."""
    rest = 1 - mean
    tiny = np.finfo(float).tiny
    concentration = mean * rest / np.maximum(variance, tiny)
    found = _beta_quantiles(mean * concentration, rest * concentration, level)
    # No Beta distribution varies as much as that: nothing is known. Beyond 1e8 it is normal.
    is_known = concentration > 1
    found = np.where(is_known, found, 1.0)
    z = ndtri(level)
    normal = mean + z * np.sqrt(variance)
    normal = np.minimum(normal, 1.0)
    is_wide = concentration < 1e8
    is_beta = np.isfinite(found) & is_wide
    return np.where(is_beta, found, normal)


def _beta_quantiles(a: FloatArray, b: FloatArray, level: float) -> FloatArray:
    """Many quantiles in closed form, where it is within 2% of a standard deviation: much faster."""
    if a.size <= 20_000:
        return np.asarray(betaincinv(a, b, level))
    found = np.empty(a.shape)
    straight = a <= b
    found[straight] = _skewed_beta_quantiles(a[straight], b[straight], level)
    mirrored = ~straight
    of_mirrored = _skewed_beta_quantiles(b[mirrored], a[mirrored], 1 - level)
    found[mirrored] = 1 - of_mirrored
    return found


def _skewed_beta_quantiles(a: FloatArray, b: FloatArray, level: float) -> FloatArray:
    """Quantiles of Beta distributions with a ≤ b."""
    found = np.empty(a.shape)
    large = a >= 8
    rare = ~large & (b >= 50)
    rest = ~large & ~rare
    found[large] = _near_normal(a[large], b[large], level)
    found[rare] = _near_gamma(a[rare], b[rare], level)
    found[rest] = betaincinv(a[rest], b[rest], level)
    return found


def _near_gamma(a: FloatArray, b: FloatArray, level: float) -> FloatArray:
    """-log(1 - x) is nearly a gamma variable over b + (a - 1) / 2, with a quantile by a alone."""
    nodes = np.geomspace(1e-3, 8, 4000)
    quantiles = gammaincinv(nodes, level)
    log_nodes = np.log(nodes)
    gamma = np.interp(np.log(a), log_nodes, quantiles)
    rate = b + (a - 1) / 2
    return np.asarray(-np.expm1(-gamma / rate))


def _near_normal(a: FloatArray, b: FloatArray, level: float) -> FloatArray:
    """Abramowitz and Stegun, 26.5.22."""
    z = -ndtri(level)
    curvature = (z**2 - 3) / 6
    of_a = 1 / (2 * a - 1)
    of_b = 1 / (2 * b - 1)
    h = 2 / (of_a + of_b)
    correction = curvature + 5 / 6 - 2 / (3 * h)
    skew = (of_b - of_a) * correction
    w = z * np.sqrt(h + curvature) / h - skew
    odds = np.exp(2 * w)
    return np.asarray(a / (a + b * odds))
