"""The nearest joint collision matrix to an estimate of one.

Beyond the paper, whose equation (36) penalises instead. Every joint collision matrix B lies in the
convex set { B = Bᵀ, B ≥ 0, B 1 = π, B positive semi-definite }, and the true one does too, so
projecting an estimate onto it cannot take it further from the truth (in the norm used).

The norm: with v = √π and C = B / (v vᵀ) the set becomes { C = Cᵀ, C ≥ 0, C v = v, C PSD }, where
the two conditions on eigenvalues and row sums project together:
C → v vᵀ + [(I - v vᵀ) C (I - v vᵀ)]₊.
Distances in C weigh rare and common classes alike; distances in B would let the common ones decide.

The two sets meet in the dual: with multipliers Y ≥ 0 for C ≥ 0, C(Y) is the projection of C₀ + Y
onto the second set, and Y → max(Y - C(Y), 0) is Dykstra's algorithm: a gradient step of length one.
It is accelerated here (Nesterov, with restarts). A Cholesky factorisation tells whether anything is
negative definite, at a tenth of what ``eigh`` costs, and in most steps nothing is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cholesky

from collidescope import _checks as check
from collidescope._checks import ArrayLike, FloatArray

#: Entries and eigenvalues of C are about [0, 1]: below this a negative one is rounding of `eigh`.
ROUNDING = 1e-9
MAX_ITERATIONS = 2000
#: A step takes K³/3 operations (Cholesky) and 10 K³ more when there are negative eigenvalues
#: (`eigh`). From a thousand classes on this limits the steps, though never to none, and what
#: remains is left to the last scaling: `converged`.
MAX_OPERATIONS = 2e11


@dataclass(frozen=True)
class Projection:
    """A feasible joint collision matrix and how it was reached."""

    #: (K, K) B: symmetric, non-negative, rows sum to the priors, PSD up to the agreement
    joint: FloatArray
    #: largest change of an entry of S = diag(1/π) B; zero when the estimate was feasible already
    moved: float
    iterations: int
    converged: bool  #: False when the limit on steps came before the two sets agreed
    #: of C before the projection: negative when the estimate was not positive semi-definite
    min_eigenvalue: float


def project(B: ArrayLike, priors: ArrayLike, agreement: float = 1e-7) -> Projection:
    """Project an estimate ``B`` of diag(priors) S onto the possible joint collision matrices.

    It is symmetrised first. The steps end when multipliers and entries of C fit each other to
    ``agreement``: far below any standard error.

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
    start = (estimate + estimate.T) / (2 * v[:, None] * v)
    C, min_eigenvalue = _onto_spectral(start, v)
    converged = bool(C.min() >= -ROUNDING)
    iterations = 0
    spent = _operations(min_eigenvalue, len(v))
    multiplier = np.zeros(1)  # Y
    ahead = multiplier  # the point beyond Y from which the next step is taken
    momentum = 1.0
    while not converged and iterations < MAX_ITERATIONS:
        if spent >= MAX_OPERATIONS and iterations > 0:
            break
        iterations += 1
        stepped = np.maximum(ahead - C, 0.0)
        move = stepped - multiplier
        # ahead - stepped is the gradient, and a move along it goes uphill: it overshot. Momentum
        # restarts (O'Donoghue, Candès, 2015) and grows again as in FISTA (Beck, Teboulle, 2009).
        if np.vdot(ahead - stepped, move) > 0:
            momentum = 1.0
        grown = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = stepped + (momentum - 1) / grown * move
        multiplier = stepped
        momentum = grown
        C, lowest = _onto_spectral(start + ahead, v)
        spent += _operations(lowest, len(v))
        gap = np.maximum(ahead - C, 0.0) - ahead
        converged = bool(np.abs(gap).max() <= agreement)
    # Products of a matrix with itself are symmetric up to rounding only.
    C = np.maximum((C + C.T) / 2, 0.0)
    if converged:
        C[multiplier >= C] = 0.0  # what a multiplier holds at zero, exactly
    C *= v[:, None] * v
    joint = balance(C, priors)
    moved = float(np.abs((joint - estimate) / priors[:, None]).max())
    return Projection(joint, moved, iterations, converged, min_eigenvalue)


def balance(
    B: FloatArray, priors: FloatArray, tolerance: float = 1e-14, most_steps: int = 1000
) -> FloatArray:
    """Scale a symmetric non-negative B to row sums ``priors``: D B D with D diagonal.

    The symmetric Sinkhorn iteration. Scaling from both sides keeps symmetry, signs and positive
    semi-definiteness. Some negative entries are tolerated; a B whose row sums do not stay positive
    has no such scaling and comes back as it is.
    """
    d = np.ones(len(priors))
    for _ in range(most_steps):
        sums = d * (B @ d)
        if (sums <= 0).any():
            return B
        if np.abs(sums / priors - 1).max() <= tolerance:
            break
        # The geometric mean of d and of Sinkhorn's π / (B d), which alone would jump between two
        # scalings without end.
        d *= np.sqrt(priors / sums)
    return B * np.outer(d, d)


def _onto_spectral(C: FloatArray, v: FloatArray) -> tuple[FloatArray, float]:
    """Projection onto { C v = v, C PSD }, and the smallest eigenvalue of C across v.

    0 when none is negative.
    """
    # v vᵀ + (I - v vᵀ) C (I - v vᵀ) without building the projector: a change of rank two.
    Cv = C @ v
    along = (v @ Cv + 1) / 2 * v
    half = np.outer(Cv - along, v)
    result = C - (half + half.T)
    shifted = result.copy()
    np.einsum("ii->i", shifted)[:] += ROUNDING
    # The transpose is in LAPACK's order and needs no copy. It fails if an eigenvalue is below about
    # -ROUNDING.
    try:
        cholesky(shifted.T, overwrite_a=True, check_finite=False)
    except LinAlgError:
        values, vectors = np.linalg.eigh(result)
        negative = values < 0
        # [C]₊ = C + Σ |λ| u uᵀ over the negative λ; v has the eigenvalue 1, so C v = v holds.
        N = vectors[:, negative] * np.sqrt(-values[negative])
        result += N @ N.T
        return result, float(values[0])
    return result, 0.0


def _operations(lowest: float, k: int) -> float:
    """What a projection onto the second set took, by the smallest eigenvalue that it met."""
    return float(k) ** 3 * (1 / 3 if lowest == 0 else 10.0)
