"""Posteriors of single inputs from expected similarities (the paper's Theorem 3 and Algorithm 2).

q_i(x) = E_{x' ~ D_i} Sim(x, x'), equation (37), and q(x) = S y(x), (43). Solving with S⁻¹, (44), is
the paper's way and amplifies noise in q wherever classes overlap; least squares on the probability
simplex cannot leave it, and a small ridge towards the priors keeps it steady where S is nearly
singular.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

from collidescope import _checks as check
from collidescope._checks import Array, ArrayLike, FloatArray, Given, IntArray
from collidescope.equations.bounds import condition_number


def solve_posteriors(
    q: ArrayLike,
    S: ArrayLike,
    solver: str = "simplex",
    ridge: float = 1e-3,
    priors: Given = None,
) -> FloatArray:
    """Posteriors y(x) from expected similarities q(x) = S y(x).

    Parameters
    ----------
    q : (n, K) or (K,) expected similarity of each input to each class
    S : (K, K)
    solver : "simplex", argmin over probability vectors of ‖S y - q‖² + ridge ‖y - priors‖², or
        "inverse", S⁻¹ q (44): the paper's Algorithm 2, exactly as it comes: entries may be negative
        or exceed 1
    ridge, priors : how strongly ("simplex" alone), and to where, default uniform, posteriors are
        drawn. With 0, equally good posteriors (indistinguishable classes) still give the one
        nearest to ``priors``.

    Examples
    --------
    >>> S = np.array([[0.8, 0.2], [0.2, 0.8]])
    >>> solve_posteriors(S @ [0.3, 0.7], S, ridge=0).round(6)
    array([0.3, 0.7])
    """
    S = check.check_stochastic(S, "S")
    k = len(S)
    scores = check.check_finite(q, "q", ndim=(1, 2))
    if scores.shape[-1] != k:
        raise ValueError(
            f"q must have one column per class ({k}), got shape {scores.shape}"
        )
    check.check_choice(solver, ["simplex", "inverse"], "solver")
    check.check_at_least(ridge, 0, "ridge")
    if solver == "inverse":
        return _solve_inverse(scores, S)
    # On the simplex a pull towards 0 is one towards its middle.
    centre = np.zeros(k)
    if priors is not None:
        centre = check.check_priors(priors, k)
    y = _solve_simplex(np.atleast_2d(scores), S, ridge, centre)
    return y.reshape(scores.shape)


def _solve_inverse(q: FloatArray, S: FloatArray) -> FloatArray:
    """S⁻¹ q, equation (44)."""
    condition = condition_number(S)
    if condition > 1e14:  # every digit of a float64 q is lost
        raise ValueError(
            f"S is singular (condition number {condition:.1g}): some classes are "
            "indistinguishable; use solver='simplex' or merge them"
        )
    return np.asarray(np.linalg.solve(S, q.T).T, np.float64)


def _solve_simplex(
    q: FloatArray, S: FloatArray, ridge: float, centre: FloatArray
) -> FloatArray:
    """Least squares on the simplex by non-negative least squares, which scipy has.

    With A = [S; √ridge I], b = [q; √ridge centre] and Σ y = 1, ‖A y - b‖² = ‖(A - b 1ᵀ) y‖² = f(y).
    For u = t y ≥ 0 the least ‖(A - b 1ᵀ) u‖² + (Σ u - 1)² over t is f / (1 + f), which grows with
    f: y = u / Σ u is the optimum, exactly.
    """
    k = len(S)
    # A ridge below rounding makes the optimum unique: of equally good posteriors the one nearest to
    # the centre. It is added to the diagonal of SᵀS, whose trace is between 1 and K.
    smallest_ridge = 1e-12
    root = np.sqrt(max(ridge, smallest_ridge))
    A = np.vstack([S, root * np.eye(k)])
    target = np.append(np.zeros(2 * k), 1.0)
    most_steps = 30 * k  # one per class is usual, and scipy gives up after three
    y = np.empty_like(q)
    for row, q_of_row in enumerate(q):
        off = A - np.append(q_of_row, root * centre)[:, None]
        # Dividing by the largest number only scales f: the same optimum, but comparable to the row
        # of ones.
        off /= np.abs(off).max()
        u, _ = nnls(np.vstack([off, np.ones(k)]), target, maxiter=most_steps)
        y[row] = u / u.sum()
    return y


def cut_to_probabilities(y: FloatArray) -> FloatArray:
    """Rows cut at 0 and scaled to sum 1; uniform where nothing is left."""
    positive = np.maximum(y, 0.0)
    total = positive.sum(axis=1, keepdims=True)
    uniform = np.full_like(positive, 1 / y.shape[1])
    return np.asarray(np.divide(positive, total, out=uniform, where=total > 0))


def shift_priors(P: ArrayLike, old: ArrayLike, new: ArrayLike) -> FloatArray:
    """Posteriors at priors ``new`` from posteriors at priors ``old``: y_k ∝ y_k · new_k / old_k.

    Equal priors give back ``P`` itself (as float64), not a copy.

    >>> shift_priors([[0.5, 0.5]], old=[0.5, 0.5], new=[0.9, 0.1])
    array([[0.9, 0.1]])
    """
    posteriors = check.check_posteriors(P)
    k = posteriors.shape[1]
    wanted = check.check_priors(new, k, "new")
    return shift_rows(posteriors, wanted / check.check_priors(old, k, "old"))


def shift_rows(P: Array, ratio: FloatArray, rounding: float = 1e-12) -> Array:
    """Posteriors times the ratio of new to old priors, scaled to sum to 1.

    Of the dtype (float32, float64) of ``P``. Priors that agree to ``rounding`` need no shift, a
    costly pass with a thousand classes.
    """
    farthest = np.abs(ratio - 1).max()
    if farthest <= rounding:
        return P
    shifted = P * ratio.astype(P.dtype)
    totals = shifted.sum(axis=1, keepdims=True)
    shifted /= totals
    return shifted


def brier_scores(P: Array, codes: IntArray) -> Array:
    """‖c - p‖² of every row, c its one-hot label."""
    own = P[np.arange(len(P)), codes]
    in_rows = np.ascontiguousarray(P)  # sums round by how numbers lie in memory
    squares = np.einsum("ij,ij->i", in_rows, in_rows)
    return np.maximum(1 - 2 * own + squares, 0.0)  # but for rounding never below 0
