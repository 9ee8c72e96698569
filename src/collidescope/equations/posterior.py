"""Posteriors of single inputs from expected similarities (the paper's Theorem 3 and Algorithm 2).

q_i(x) = E_{x' ~ D_i} Sim(x, x'), equation (37), and q(x) = S y(x), (43). Solving with S⁻¹, (44), is the paper's way
and amplifies noise in q wherever classes overlap; least squares on the probability simplex cannot leave it, and a
small ridge towards the priors keeps it steady where S is nearly singular.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope.equations.bounds import condition_number

#: The accelerated gradient stops when no posterior moves by more than this in a step.
STEP_TOLERANCE = 1e-12
MAX_STEPS = 20_000
GRADIENT_STEPS = 50  #: steps after which a row that still moves (few, with a good S) is solved exactly
#: Rounds of the exact solver (two or three are usual), and the numbers that it holds at once.
BLOCK_PIVOTS, SINGLE_PIVOTS = 10, 100
PIVOT_ENTRIES = 2**22
SMALLEST_RIDGE = 1e-12  #: share of the trace of SᵀS that is always added to its diagonal
SAME_PRIORS = 1e-12  #: priors that agree to rounding need no shift, a costly pass with a thousand classes
SINGULAR = 1e14  #: above this κ∞(S) the inverse has lost every digit of a float64 q


def solve_posteriors(
    q: npt.ArrayLike,
    S: npt.ArrayLike,
    solver: str = "simplex",
    ridge: float = 1e-3,
    priors: npt.ArrayLike | None = None,
) -> FloatArray:
    """Posteriors y(x) from expected similarities q(x) = S y(x).

    Parameters
    ----------
    q : (n, K) or (K,) expected similarity of each input to each class
    S : (K, K)
    solver : "simplex", argmin over probability vectors of ‖S y - q‖² + ridge ‖y - priors‖², or "inverse", S⁻¹ q (44):
        the paper's Algorithm 2, exactly as it comes: entries may be negative or exceed 1
    ridge, priors : how strongly ("simplex" alone), and to where, default uniform, posteriors are drawn
        With 0, equally good posteriors (indistinguishable classes) still give the one nearest to ``priors``.

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
        raise ValueError(f"q must have one column per class ({k}), got shape {scores.shape}")
    check.check_choice(solver, ["simplex", "inverse"], "solver")
    check.check_at_least(ridge, 0, "ridge")
    centre = np.full(k, 1 / k) if priors is None else check.check_priors(priors, k)
    if solver == "simplex":
        return _solve_simplex(np.atleast_2d(scores), S, ridge, centre).reshape(scores.shape)
    if (condition := condition_number(S)) > SINGULAR:
        same = "some classes are indistinguishable; use solver='simplex' or merge them"
        raise ValueError(f"S is singular (condition number {condition:.1g}): {same}")
    return np.asarray(np.linalg.solve(S, scores.T).T, dtype=np.float64)  # (44)


def _solve_simplex(q: FloatArray, S: FloatArray, ridge: float, centre: FloatArray) -> FloatArray:
    """Accelerated gradient; what it has not settled after a few steps (S nearly singular) is solved exactly."""
    H = S.T @ S
    # A ridge below rounding makes the optimum unique: of equally good posteriors the one nearest to the centre.
    ridge = max(ridge, SMALLEST_RIDGE * float(np.trace(H)))
    H = H + ridge * np.eye(len(S))
    linear = q @ S + ridge * centre
    y = project_to_simplex(linear @ np.linalg.pinv(H))
    active = _descend(y, np.arange(len(y)), H, linear, max(GRADIENT_STEPS, len(S)))
    active = _pivot(y, active, H, linear)
    _descend(y, active, H, linear, MAX_STEPS)
    return y


def _descend(y: FloatArray, active: IntArray, H: FloatArray, linear: FloatArray, steps: int) -> IntArray:
    """Accelerated projected gradient on the rows ``active`` of ``y``, in place; the rows still moving at the end."""
    step = 1 / np.linalg.eigvalsh(H)[-1]
    ahead, momentum = y.copy(), np.ones(len(y))
    for _ in range(steps):
        if len(active) == 0:
            break
        new = project_to_simplex(ahead[active] - step * (ahead[active] @ H - linear[active]))
        change = new - y[active]
        # Restart the momentum of a row that overshoots (O'Donoghue and Candès): linear convergence without tuning.
        overshoot = np.einsum("ij,ij->i", ahead[active] - new, change) > 0
        momentum[active] = np.where(overshoot, 1.0, momentum[active])
        grown = (1 + np.sqrt(1 + 4 * momentum[active] ** 2)) / 2
        ahead[active] = new + ((momentum[active] - 1) / grown)[:, None] * change
        momentum[active] = grown
        y[active] = new
        active = active[np.abs(change).max(axis=1) > STEP_TOLERANCE]
    return active


def _pivot(
    y: FloatArray, active: IntArray, H: FloatArray, linear: FloatArray, together: int = BLOCK_PIVOTS
) -> IntArray:
    """Block principal pivoting on the rows ``active`` of ``y``, in place; the rows it could not settle.

    With the classes that have any probability known, the optimum solves H y = linear + λ on them and Σ y = 1. Classes
    that come out negative leave, classes whose gradient is below λ enter; when neither happens the row is optimal.
    All of them at once, as in the first rounds ``together``, can go in circles; one at a time (the last, Murty's rule)
    cannot.
    """
    k = len(H)
    system = np.zeros((k + 1, k + 1))
    system[:k, :k], system[:k, k], system[k, :k] = H, -1, 1
    inside, left = y > 0, active
    for round_ in range(together + SINGLE_PIVOTS):
        if len(left) == 0:
            break
        unsettled = []
        for part in np.array_split(left, -(-len(left) * (k + 1) ** 2 // PIVOT_ENTRIES)):
            here = np.column_stack([inside[part], np.ones(len(part), dtype=bool)])
            masked = np.where(here[:, :, None] & here[:, None, :], system, np.eye(k + 1))
            right = np.column_stack([np.where(inside[part], linear[part], 0.0), np.ones(len(part))])
            solution = np.linalg.solve(masked, right[:, :, None])[:, :, 0]
            new, multiplier = solution[:, :k], solution[:, k:]
            gradient = new @ H - linear[part] - multiplier
            wrong = np.where(inside[part], new, gradient) < -STEP_TOLERANCE
            optimal = ~wrong.any(axis=1)
            y[part[optimal]] = np.maximum(new[optimal], 0.0)
            if round_ >= together:
                wrong &= np.cumsum(wrong[:, ::-1], axis=1)[:, ::-1] == 1
            inside[part] ^= wrong
            unsettled.append(part[~optimal])
        left = np.concatenate(unsettled)
    return left


def project_to_simplex(points: npt.ArrayLike) -> FloatArray:
    """The nearest probability vector to every row (Euclidean).

    >>> project_to_simplex([[0.6, 0.6], [2.0, 0.0]])
    array([[0.5, 0.5],
           [1. , 0. ]])
    """
    rows = check.check_finite(points, "points", ndim=2)
    ordered = -np.sort(-rows, axis=1)
    excess = np.cumsum(ordered, axis=1) - 1
    size = np.arange(1, rows.shape[1] + 1)
    last = np.count_nonzero(ordered * size > excess, axis=1)
    threshold = excess[np.arange(len(rows)), last - 1] / last
    return np.maximum(rows - threshold[:, None], 0.0)


def shift_priors(P: npt.ArrayLike, old: npt.ArrayLike, new: npt.ArrayLike) -> FloatArray:
    """Posteriors at priors ``new`` from posteriors at priors ``old``: y_k ∝ y_k · new_k / old_k.

    Equal priors give back ``P`` itself (as float64), not a copy.

    >>> shift_priors([[0.5, 0.5]], old=[0.5, 0.5], new=[0.9, 0.1])
    array([[0.9, 0.1]])
    """
    posteriors = check.check_posteriors(P)
    k = posteriors.shape[1]
    return shift_rows(posteriors, check.check_priors(new, k, "new") / check.check_priors(old, k, "old"))


def shift_rows(P: npt.NDArray[Any], ratio: FloatArray) -> npt.NDArray[Any]:
    """Posteriors times the ratio of new to old priors, scaled to sum to 1; of the dtype (float32, float64) of ``P``."""
    if np.abs(ratio - 1).max() <= SAME_PRIORS:
        return P
    shifted = P * ratio.astype(P.dtype)
    shifted /= shifted.sum(axis=1, keepdims=True)
    return shifted
