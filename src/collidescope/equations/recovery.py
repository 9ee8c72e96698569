"""From the row Gramian G = S Sᵀ back to the collision matrix S.

``root``
    Π G Π = B B with Π = diag(priors), and B = Π S is positive semi-definite for every prior, so B is *the* positive
    semi-definite square root of Π G Π: one ``eigh``, unique, without the symmetry and the diagonal dominance that
    the paper's Theorem 1 asks for. With a noisy G the root is then scaled to the priors and projected onto the
    possible matrices.
``gradient``
    The paper's Algorithm 1, part 2: descent on the penalised objective, equation (36), of the problem (35),
    ‖S Sᵀ - G‖_F + λ (‖S 1 - 1‖₁ - Σ min(S, 0)), from the identity, with a fixed step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from collidescope import _checks as check
from collidescope._checks import ArrayLike, FloatArray, Given
from collidescope.equations.bounds import condition_number
from collidescope.equations.projection import MAX_ITERATIONS, balance, project
from collidescope.matrix import CollisionMatrix, Diagnostics, Method

#: The gradient descent has stalled when its best objective improved by less than this share over one window.
STALL_TOLERANCE = 1e-4
STALL_WINDOW = 2000


@dataclass(frozen=True)
class Recovery:
    """S recovered from a Gramian, with what one needs to judge it."""

    matrix: Annotated[FloatArray, "f8 K K"]  #: S, row stochastic
    priors: Annotated[FloatArray, "f8 K"]
    method: str  #: "root" or "gradient"
    residual: Annotated[float, "infinite"]  #: ‖S Sᵀ - G‖_F for the matrix returned
    moved: Annotated[float, "infinite"]  #: largest change of an entry of S made to turn the raw solution into a possible collision matrix
    min_eigenvalue: Annotated[float, "infinite"]  #: of the symmetrised G; clearly negative when it is no Gramian (noise, wrong correction)
    condition: Annotated[float, "infinite"]  #: κ∞(S) = ‖S‖∞ ‖S⁻¹‖∞: how much posteriors solved from S amplify errors
    converged: bool  #: False when a limit on steps ended it; a descent that stalls has converged, if not to G
    iterations: int
    status: str  #: in words: how it ended, and what to try when it did not end well

    @property
    def joint(self) -> FloatArray:
        """B = diag(priors) S."""
        return self.priors[:, None] * self.matrix

    def to_collision_matrix(self, classes: Given = None) -> CollisionMatrix:
        """The recovered S as a :class:`CollisionMatrix` (no intervals: those come from labels)."""
        diagnostics = Diagnostics(
            moved=self.moved, residual=self.residual, recovery=f"{self.method}: {self.status}"
        )
        return CollisionMatrix(
            self.matrix,
            self.priors,
            classes,  # type: ignore[arg-type]
            method=Method.GRAMIAN,
            diagnostics=diagnostics,
        )


def recover(
    G: ArrayLike,
    priors: Given = None,
    method: str = "root",
    *,
    penalty: float = 0.1,
    learning_rate: float = 1e-4,
    tolerance: float = 1e-4,
    max_iter: int = 50_000,
) -> Recovery:
    """Recover the collision matrix from its row Gramian.

    Parameters
    ----------
    G : (K, K) estimate of S Sᵀ; symmetrised first
    priors : (K,) at which S and G hold, default uniform
    method : "root", the closed form (any priors), or "gradient", the paper's descent
    penalty, learning_rate, tolerance, max_iter : λ, η, γ of the paper's Algorithm 1, a limit on its steps ("gradient")

    Examples
    --------
    >>> S = np.array([[0.9, 0.1], [0.3, 0.7]])
    >>> recover(S @ S.T, priors=[0.75, 0.25]).matrix.round(6)
    array([[0.9, 0.1],
           [0.3, 0.7]])
    """
    gramian = check.check_square(G, "G")
    k = len(gramian)
    shares = np.full(k, 1 / k) if priors is None else check.check_priors(priors, k)
    check.check_choice(method, ["root", "gradient"], "method")
    for value, name in (
        (penalty, "penalty"),
        (learning_rate, "learning_rate"),
        (tolerance, "tolerance"),
    ):
        check.check_between(value, 0, np.inf, name)
    check.check_count(max_iter, "max_iter")
    gramian = (gramian + gramian.T) / 2
    if method == "root":
        S, moved, converged, steps, status = _root(gramian, shares)
    else:
        S, moved, converged, steps, status = _gradient(
            gramian, penalty, learning_rate, tolerance, max_iter
        )
    residual, lowest = (
        float(np.linalg.norm(S @ S.T - gramian)),
        float(np.linalg.eigvalsh(gramian)[0]),
    )
    return Recovery(
        S, shares, method, residual, moved, lowest, condition_number(S), converged, steps, status
    )


def _root(G: FloatArray, priors: FloatArray) -> tuple[FloatArray, float, bool, int, str]:
    values, vectors = np.linalg.eigh(priors[:, None] * G * priors)
    # B = U λ^½ Uᵀ as a product of U λ^¼ with its transpose; noise in G makes some λ negative.
    half = vectors * np.maximum(values, 0.0) ** 0.25
    root = half @ half.T
    # Errors of an estimated Gramian are mostly proportional (a row too high or too low), which scaling undoes better
    # than a projection does; the projection then sees to what is left: negative entries.
    result = project(balance(root, priors), priors)
    S = result.joint / result.joint.sum(axis=1, keepdims=True)
    moved = float(np.abs(S - root / priors[:, None]).max())
    steps, by = result.iterations, f"entries moved by up to {moved:.2g}"
    if steps == 0:
        status = f"closed form; scaling it to the priors moved entries by up to {moved:.2g}"
    elif result.converged:
        status = f"closed form, then projected in {steps} steps: {by}"
    elif steps < MAX_ITERATIONS:
        cut = f"with {len(G):,} classes the projection was cut short after {steps} steps"
        status = f"closed form, then projected; {cut} ({by})"
    else:
        far = f"G is far from any Gramian of a collision matrix ({by}); is the logit shift of the pair model applied?"
        status = f"the projection did not settle in {steps} steps: {far}"
    return S, moved, result.converged, steps, status


def _gradient(
    G: FloatArray, penalty: float, learning_rate: float, tolerance: float, max_iter: int
) -> tuple[FloatArray, float, bool, int, str]:
    S = best = np.eye(len(G))
    best_objective = window_objective = np.inf
    converged = True
    for step in range(max_iter + 1):
        E = S @ S.T - G
        norm = np.sqrt(np.vdot(E, E))
        gaps = S.sum(axis=1) - 1
        objective = norm + penalty * (np.abs(gaps).sum() - np.minimum(S, 0.0).sum())
        if objective < best_objective:
            best, best_objective = S, objective
        if norm <= tolerance:
            best = S
            status = f"‖S Sᵀ - G‖ reached the tolerance {tolerance:g} after {step} steps"
            break
        if step % STALL_WINDOW == 0:
            if best_objective > window_objective * (1 - STALL_TOLERANCE):
                stalled = f"stalled after {step} steps at an objective of {best_objective:.3g}"
                cause = "the step is too coarse or G is no Gramian of a stochastic matrix"
                status = f"{stalled}, above the tolerance {tolerance:g}: {cause}; try a smaller learning_rate"
                break
            window_objective = best_objective
        # ∇‖E‖_F = 2 E S / ‖E‖_F; the penalties' subgradients are sign(row sum - 1) and -1 where S < 0.
        slope = (2 / norm) * (E @ S) + penalty * (np.sign(gaps)[:, None] - (S < 0))
        S = S - learning_rate * slope
    else:
        converged = False
        status = f"stopped by max_iter={step} at an objective of {best_objective:.3g}: raise max_iter or learning_rate"
    positive = np.maximum(best, 0.0)
    final = positive / positive.sum(axis=1, keepdims=True)
    return final, float(np.abs(final - best).max()), converged, step, status
