"""The nearest joint collision matrix to an estimate of one.

Every joint collision matrix B lies in the convex set { B = Bᵀ, B ≥ 0, B 1 = π, B positive semi-definite }, and the
true one does too, so projecting an estimate onto it cannot take it further from the truth (in the norm used).

The norm: with v = √π and C = B / (v vᵀ) the set becomes { C = Cᵀ, C ≥ 0, C v = v, C PSD }, where the two conditions
on eigenvalues and row sums project together in one ``eigh``: C → v vᵀ + [(I - v vᵀ) C (I - v vᵀ)]₊. Distances in C
weigh rare and common classes alike; distances in B would let the common ones decide. Dykstra's algorithm alternates
between that set and { C ≥ 0 }.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope._checks import FloatArray
from collidescope._display import facts_html

#: In C, entries and eigenvalues live in [0, 1]-ish units: below this a negative one is rounding of `eigh`.
ROUNDING = 1e-9
#: Dykstra stops when both sets agree on every entry of C to this much: far below any standard error.
AGREEMENT = 1e-7
MAX_ITERATIONS = 2000
#: Every step takes an `eigh` of about 10 K³ operations; from a few hundred classes on this limits the steps (to 10 at
#: K = 1,000) and what remains is left to the last scaling. `converged` tells.
MAX_OPERATIONS = 1e11
BALANCE_TOLERANCE = 1e-14
BALANCE_ITERATIONS = 1000


@dataclass(frozen=True)
class Projection:
    """A feasible joint collision matrix and how it was reached.

    Attributes
    ----------
    joint : array of shape (K, K)
        B: symmetric, non-negative, rows sum to the priors, positive semi-definite up to ``AGREEMENT``.
    moved : float
        Largest change of an entry of S = diag(1/π) B. Zero when the estimate was feasible already.
    iterations : int
    converged : bool
        False when the limit on steps came before the two sets agreed to ``AGREEMENT``.
    min_eigenvalue : float
        Smallest eigenvalue of C before the projection: negative when the estimate was not positive semi-definite.
    """

    joint: FloatArray
    moved: float
    iterations: int
    converged: bool
    min_eigenvalue: float

    def _repr_html_(self) -> str:
        facts = {"largest change of an entry of S": self.moved, "smallest eigenvalue before": self.min_eigenvalue}
        return facts_html(facts | {"steps": self.iterations, "converged": self.converged})


def project(B: npt.ArrayLike, priors: npt.ArrayLike) -> Projection:
    """Project an estimate of the joint collision matrix onto the set of possible ones.

    Parameters
    ----------
    B : array of shape (K, K)
        An estimate of diag(priors) S; it is symmetrised first.
    priors : array of shape (K,)

    Examples
    --------
    >>> result = project([[0.52, -0.02], [-0.02, 0.52]], [0.5, 0.5])
    >>> result.joint
    array([[0.5, 0. ],
           [0. , 0.5]])
    >>> round(result.moved, 6)
    0.04
    """
    estimate = check.check_square(B, "B")
    priors = check.check_priors(priors, estimate.shape[0])
    v = np.sqrt(priors)
    scale = np.outer(v, v)
    start = (estimate + estimate.T) / 2 / scale

    C, min_eigenvalue = _onto_spectral(start, v)
    iterations, converged = 0, bool(C.min() >= -ROUNDING)
    if not converged:
        # Dykstra: each set remembers the correction it made, so the limit is the projection, not just a common point.
        kept_spectral, kept_sign = start - C, np.zeros_like(C)
        limit = int(np.clip(MAX_OPERATIONS / (10 * len(v) ** 3), 10, MAX_ITERATIONS))
        for iterations in range(1, limit + 1):  # noqa: B007
            positive = np.maximum(C + kept_sign, 0.0)
            kept_sign = C + kept_sign - positive
            C, _ = _onto_spectral(positive + kept_spectral, v)
            kept_spectral = positive + kept_spectral - C
            if np.abs(C - positive).max() <= AGREEMENT:
                converged = True
                break
    joint = balance(np.maximum(C, 0.0) * scale, priors)
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
        d *= np.sqrt(priors / sums)
    return B * np.outer(d, d)


def _onto_spectral(C: FloatArray, v: FloatArray) -> tuple[FloatArray, float]:
    """Projection onto { C v = v, C PSD }, and the smallest eigenvalue of the part of C across v."""
    # (I - v vᵀ) C (I - v vᵀ) without building the projector.
    Cv = C @ v
    across = C - np.outer(v, Cv) - np.outer(Cv, v) + (v @ Cv) * np.outer(v, v)
    values, vectors = np.linalg.eigh((across + across.T) / 2)
    # `across` always has v itself with eigenvalue 0, so its smallest eigenvalue is at most that.
    negative = int(np.searchsorted(values, 0.0))
    if negative:
        N = vectors[:, :negative]
        across = across - (N * values[:negative]) @ N.T
    result = across + np.outer(v, v)
    return (result + result.T) / 2, float(values[0])
