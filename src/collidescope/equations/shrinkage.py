"""Many classes: the one-step estimate drawn towards the plug-in estimate.

As far as the labels do not contradict it (beyond the paper; both estimate its equation (6)).
B₁ = mean(c pᵀ + p cᵀ - p pᵀ) forgives errors of p and is noisy, because it uses the labels;
B₀ = mean(p pᵀ) has hardly any noise and is as biased as p. How *much* collides, tr B, is one number
that B₁ tells well and that over-confident posteriors get wrong; *which* classes collide takes K²
numbers. So the collisions (entries off the diagonal) of B₀ are scaled by a common factor f to the
PBER of B₁, B₀' = Π - f (Π - B₀), and only the rest is shrunk::

    B₀' + w (B₁ - B₀')      w = bias² / (bias² + V)      (James and Stein)

with bias² ≈ ‖B₁ - B₀'‖² - V and V the variance of the difference. A bias that cannot be seen may
still be there, so the *upper* end of what the data allow is used for it; and with few classes (up
to about 20) the bias cannot be estimated: the one-step estimate is kept.
"""

from __future__ import annotations

import numpy as np

from collidescope._checks import FloatArray
from collidescope.equations.merging import n_pairs
from collidescope.equations.moments import Moments, add_to_diagonal, diagonal
from collidescope.equations.projection import balance, project

#: Independent entries below which the one-step estimate is kept (10 classes have about 10, 30 about
#: 40): with few, a bias as large as the noise goes unseen: shrinking then gained in some scenarios
#: and cost a tenth in another.
FEWEST_ENTRIES = 25


def shrunk_joint(
    moments: Moments, priors: FloatArray, pber: float
) -> tuple[FloatArray | None, float]:
    """(B, w) from the sums of labelled rows at ``priors`` and the one-step PBER.

    B is None where w = 1.
    """
    # No more entries than these can be independent, so one_step_share would say 1 too.
    if n_pairs(len(priors)) < FEWEST_ENTRIES:
        return None, 1.0
    plug_in, one_step, variance = plug_in_and_one_step(moments)
    plug_in = balance(plug_in, priors)
    collisions = 1 - np.trace(plug_in)
    if collisions > 0:
        f = pber / collisions
        plug_in *= f
        diagonal(plug_in)[:] += (1 - f) * priors
    # In place, since K may be in the thousands: B₁ - B₀' from here on. Its variance is taken as
    # that of B₁ - B₀.
    difference = one_step
    difference -= plug_in
    share = one_step_share(difference, variance, priors)
    if share == 1:
        return None, 1.0
    shrunk = difference
    shrunk *= share
    shrunk += plug_in
    possible = project(shrunk, priors).joint
    return with_pber(possible, priors, pber), share


def with_pber(B: FloatArray, priors: FloatArray, pber: float) -> FloatArray:
    """The nearest matrix to B with that PBER on the line to Π (no collision) or π πᵀ (all collide).

    Both ends are joint collision matrices at these priors, so every point between is one.

    >>> with_pber(np.array([[0.4, 0.1], [0.1, 0.4]]), np.array([0.5, 0.5]), 0.1)
    array([[0.45, 0.05],
           [0.05, 0.45]])
    """
    now = 1 - np.trace(B)
    end = np.diag(priors) if pber < now else np.outer(priors, priors)
    gap = 1 - np.trace(end) - now
    # Worse than ``end`` (a Brier score above that of the class shares): nothing to move to.
    part = 0.0
    if abs(gap) > 1e-12:
        part = min(max((pber - now) / gap, 0.0), 1.0)
    return B + part * (end - B)


def one_step_share(
    difference: FloatArray,
    variance: FloatArray,
    priors: FloatArray,
    margin: float = 2.5,
) -> float:
    """w: the share of the difference B₁ - B₀' that is kept, given the ``variance`` of its entries.

    Entries are weighed as in :mod:`collidescope.equations.projection`, by 1/(π_i π_j). The bias of
    the plug-in estimate is taken to be ``margin`` standard deviations above its estimate: from 1 to
    2.5 results with well-pooled posteriors were alike, and with poorly calibrated ones the larger
    is the safer.

    >>> even, V = np.full(20, 1 / 20), np.full((20, 20), 1e-8)
    >>> one_step_share(np.full((20, 20), 1e-3), V, even) > 0.98
    True
    >>> one_step_share(np.zeros((20, 20)), V, even)
    0.0
    """
    scale = np.outer(priors, priors)
    noise = variance / scale
    total = float(noise.sum())
    # Σ of squares of about `free` independent normal terms has a standard deviation of
    # total · √(2 / free); the matrix is symmetric, so half of its entries repeat the other half.
    squares = max(float((noise**2).sum()), np.finfo(float).tiny)
    free = total**2 / squares / 2
    if free < FEWEST_ENTRIES:
        return 1.0
    seen = float((difference**2 / scale).sum())
    unseen = margin * total * np.sqrt(2 / free)
    bias = max(seen - total + unseen, 0.0)
    return float(bias / (bias + total))


def plug_in_and_one_step(moments: Moments) -> tuple[FloatArray, FloatArray, FloatArray]:
    """B₀, B₁ and the variance of the entries of B₁ - B₀ = mean(r pᵀ + p rᵀ).

    Σ w c pᵀ = diag(Σ w c) - Σ w c rᵀ gives B₀ = mean(c pᵀ + p cᵀ) - B₁. Off the line and the column
    of the label p = -r, so the squares of the entries of r pᵀ + p rᵀ add up to 4 Σ w² (r∘r)(r∘r)ᵀ
    less what differs there.
    """
    N = moments.size
    cr = moments.cr
    crr = moments.crr
    one_step = moments.Z / N
    plug_in = -(cr + cr.T) / N - one_step
    add_to_diagonal(plug_in, 2 * moments.rho / N)
    # With l the label and q = p·c: entry (l, j) is (2q-1) r_j, so crr takes off
    # 4 (1-q)² - (2q-1)² = 3 - 4q times r_j². Entry (l, l) is 2q (1-q); Z2 has (1 - (1-q)²)² there,
    # not (1-q)⁴ (8 and -4), and crr is taken off twice (2 more).
    squares = 4 * moments.Z2 - crr - crr.T
    add_to_diagonal(squares, 10 * moments.off2 - 4 * moments.rho2)
    # Σ w² (x - x̄)² = Σ w² x² - x̄² Σ w², exactly where all weights are the same.
    squares -= moments.size2 * (one_step - plug_in) ** 2
    variance = np.maximum(squares, 0.0) / N**2
    return plug_in, one_step, variance
