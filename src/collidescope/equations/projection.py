"""The nearest joint collision matrix to an estimate of one (beyond the paper, whose (36) penalises instead).

Every joint collision matrix B lies in the convex set { B = Bᵀ, B ≥ 0, B 1 = π, B positive semi-definite }, and the
true one does too, so projecting an estimate onto it cannot take it further from the truth (in the norm used).

The norm: with v = √π and C = B / (v vᵀ) the set becomes { C = Cᵀ, C ≥ 0, C v = v, C PSD }, where the two conditions
on eigenvalues and row sums project together: C → v vᵀ + [(I - v vᵀ) C (I - v vᵀ)]₊. Distances in C weigh rare and
common classes alike; distances in B would let the common ones decide.

The two sets meet in the dual: with multipliers Y ≥ 0 for C ≥ 0, C(Y) is the projection of C₀ + Y onto the second set,
and Y → max(Y - C(Y), 0) is Dykstra's algorithm: a gradient step of length one. It is accelerated here (Nesterov, with
restarts). A Cholesky factorisation tells whether anything is negative definite, at a tenth of what ``eigh`` costs, and
in most steps nothing is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cholesky

from collidescope import _checks as check
from collidescope._checks import ArrayLike, FloatArray

ROUNDING = 1e-9  #: entries and eigenvalues of C are about [0, 1]: below this a negative one is rounding of `eigh`
#: The steps end when multipliers and entries of C fit each other to this much: far below any standard error.
AGREEMENT = 1e-7
MAX_ITERATIONS = 2000
#: A step takes K³/3 operations (Cholesky) and 10 K³ more when there are negative eigenvalues (`eigh`). From a thousand
#: classes on this limits the steps, though never to none, and what remains is left to the last scaling: `converged`.
MAX_OPERATIONS = 2e11
BALANCE_TOLERANCE = 1e-14
BALANCE_ITERATIONS = 1000


@dataclass(frozen=True)
class Projection:
    """A feasible joint collision matrix and how it was reached."""

    joint: FloatArray  #: (K, K) B: symmetric, non-negative, rows sum to the priors, PSD up to ``AGREEMENT``
    moved: float  #: largest change of an entry of S = diag(1/π) B; zero when the estimate was feasible already
    iterations: int
    converged: (
        bool  #: False when the limit on steps came before the two sets agreed to ``AGREEMENT``
    )
    min_eigenvalue: float  #: of C before the projection: negative when the estimate was not positive semi-definite


def project(B: ArrayLike, priors: ArrayLike) -> Projection:
    """Project an estimate ``B`` of diag(priors) S onto the possible joint collision matrices; it is symmetrised first.

    >>> result = project([[0.52, -0.02], [-0.02, 0.52]], [0.5, 0.5])
    >>> result.joint.round(6)
    array([[0.5, 0. ],
           [0. , 0.5]])
    >>> round(result.moved, 6)
    0.04
    """
    estimate = check.check_square(B, "B")
    priors = check.check_priors(priors, len(estimate))
    v = np.sqrt(priors)
    start = estimate + estimate.T
    start /= 2 * v[:, None] * v
    C, min_eigenvalue = _onto_spectral(start, v)
    iterations, converged = 0, bool(C.min() >= -ROUNDING)
    multiplier = ahead = np.zeros(1)  # Y, and the point beyond it from which the next step is taken
    momentum, spent = 1.0, _operations(min_eigenvalue, len(v))
    while (
        not converged and iterations < MAX_ITERATIONS and (spent < MAX_OPERATIONS or not iterations)
    ):
        iterations += 1
        stepped = np.maximum(ahead - C, 0.0)
        # ahead - stepped is the gradient, and a move along it goes uphill: momentum restarts (O'Donoghue, Candès, 2015)
        # and grows again as in FISTA (Beck, Teboulle, 2009).
        if np.vdot(ahead - stepped, stepped - multiplier) > 0:  # it overshot
            momentum = 1.0
        grown = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = stepped + (momentum - 1) / grown * (stepped - multiplier)
        multiplier, momentum = stepped, grown
        C, lowest = _onto_spectral(start + ahead, v)
        spent += _operations(lowest, len(v))
        converged = bool(np.abs(np.maximum(ahead - C, 0.0) - ahead).max() <= AGREEMENT)
    C = np.maximum(
        (C + C.T) / 2, 0.0
    )  # products of a matrix with itself are symmetric up to rounding only
    if converged:
        C[multiplier >= C] = 0.0  # what a multiplier holds at zero, exactly
    C *= v[:, None] * v
    joint = balance(C, priors)
    moved = float(np.abs((joint - estimate) / priors[:, None]).max())
    return Projection(joint, moved, iterations, converged, min_eigenvalue)


def balance(B: FloatArray, priors: FloatArray) -> FloatArray:
    """Scale a symmetric non-negative B to row sums ``priors``: D B D with D diagonal (symmetric Sinkhorn).

    Scaling from both sides keeps symmetry, signs and positive semi-definiteness. Some negative entries are
    tolerated; a B whose row sums do not stay positive has no such scaling and comes back as it is.
    """
    d = np.ones(len(priors))
    for _ in range(BALANCE_ITERATIONS):
        sums = d * (B @ d)
        if (sums <= 0).any():
            return B
        if np.abs(sums / priors - 1).max() <= BALANCE_TOLERANCE:
            break
        # The geometric mean of d and of Sinkhorn's π / (B d), which alone would jump between two scalings without end.
        d *= np.sqrt(priors / sums)
    return B * np.outer(d, d)


def _onto_spectral(C: FloatArray, v: FloatArray) -> tuple[FloatArray, float]:
    """Projection onto { C v = v, C PSD }, and the smallest eigenvalue of C across v (0 when none is negative)."""
    # v vᵀ + (I - v vᵀ) C (I - v vᵀ) without building the projector: a change of rank two.
    Cv = C @ v
    half = np.outer(Cv - (v @ Cv + 1) / 2 * v, v)
    result = C - (half + half.T)
    shifted = result.copy()
    np.einsum("ii->i", shifted)[:] += ROUNDING
    # The transpose is in LAPACK's order and needs no copy. It fails if an eigenvalue is below about -ROUNDING.
    try:
        cholesky(shifted.T, overwrite_a=True, check_finite=False)
    except LinAlgError:
        values, vectors = np.linalg.eigh(result)
        negative = values < 0
        # [C]₊ = C + Σ |λ| u uᵀ over the negative λ; v has the eigenvalue 1, so C v = v still holds.
        N = vectors[:, negative] * np.sqrt(-values[negative])
        result += N @ N.T
        return result, float(values[0])
    return result, 0.0


def _operations(lowest: float, k: int) -> float:
    """What a projection onto the second set took, by the smallest eigenvalue that it met."""
    return float(k) ** 3 * (1 / 3 if lowest == 0 else 10)
