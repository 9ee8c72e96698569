"""From the row Gramian G = S Sᵀ back to the collision matrix S.

``root``
    Π G Π = B B with Π = diag(priors), and B = Π S is positive semi-definite for every prior, so B
    is *the* positive semi-definite square root of Π G Π: one ``eigh``, unique, without the symmetry
    and the diagonal dominance that the paper's Theorem 1 asks for. With a noisy G the root is then
    scaled to the priors and projected onto the possible matrices.
``gradient``
    The paper's Algorithm 1, part 2: descent on the penalised objective, (36), of the problem (35),
    ‖S Sᵀ - G‖_F + λ (‖S 1 - 1‖₁ - Σ min(S, 0)), from the identity, with a fixed step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from collidescope import _checks as check
from collidescope._checks import ArrayLike, FloatArray, Given
from collidescope.equations.bounds import condition_number
from collidescope.equations.projection import (
    MAX_ITERATIONS,
    Projection,
    balance,
    project,
)
from collidescope.matrix import CollisionMatrix, Diagnostics, Method


@dataclass(frozen=True)
class Recovery:
    """S recovered from a Gramian, with what one needs to judge it."""

    matrix: Annotated[FloatArray, "f8 K K"]  #: S, row stochastic
    priors: Annotated[FloatArray, "f8 K"]
    method: str  #: "root" or "gradient"
    residual: Annotated[float, "infinite"]  #: ‖S Sᵀ - G‖_F for the matrix returned
    #: largest change of an entry of S that turned the raw solution into a possible matrix
    moved: Annotated[float, "infinite"]
    #: of the symmetrised G; clearly negative when it is no Gramian (noise, wrong correction)
    min_eigenvalue: Annotated[float, "infinite"]
    #: κ∞(S) = ‖S‖∞ ‖S⁻¹‖∞: how much posteriors solved from S amplify errors
    condition: Annotated[float, "infinite"]
    #: False when a limit on steps ended it; a descent that stalls has converged, if not to G
    converged: bool
    iterations: int
    status: str  #: in words: how it ended, and what to try when it did not end well

    @property
    def joint(self) -> FloatArray:
        """B = diag(priors) S."""
        return self.priors[:, None] * self.matrix

    def to_collision_matrix(self, classes: Given = None) -> CollisionMatrix:
        """The recovered S as a :class:`CollisionMatrix` (no intervals: those come from labels)."""
        return CollisionMatrix(
            self.matrix,
            self.priors,
            classes,  # type: ignore[arg-type]
            method=Method.GRAMIAN,
            diagnostics=Diagnostics(
                moved=self.moved,
                residual=self.residual,
                recovery=f"{self.method}: {self.status}",
            ),
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
    penalty, learning_rate, tolerance : λ, η, γ of the paper's Algorithm 1 ("gradient")
    max_iter : limit on its steps

    Examples
    --------
    >>> S = np.array([[0.9, 0.1], [0.3, 0.7]])
    >>> recover(S @ S.T, priors=[0.75, 0.25]).matrix.round(6)
    array([[0.9, 0.1],
           [0.3, 0.7]])
    """
    gramian = check.check_square(G, "G")
    shares = check.priors_or_uniform(priors, len(gramian))
    check.check_choice(method, ["root", "gradient"], "method")
    settings = {
        "penalty": penalty,
        "learning_rate": learning_rate,
        "tolerance": tolerance,
    }
    for name, value in settings.items():
        check.check_between(value, 0, np.inf, name)
    check.check_count(max_iter, "max_iter")
    gramian = (gramian + gramian.T) / 2
    if method == "root":
        found = _root(gramian, shares)
    else:
        found = _gradient(gramian, penalty, learning_rate, tolerance, max_iter)
    S = found.matrix
    return Recovery(
        S,
        shares,
        method,
        residual=float(np.linalg.norm(S @ S.T - gramian)),
        moved=found.moved,
        min_eigenvalue=float(np.linalg.eigvalsh(gramian)[0]),
        condition=condition_number(S),
        converged=found.converged,
        iterations=found.steps,
        status=found.status,
    )


class _Found(NamedTuple):
    """S and how a method came to it: see the fields of :class:`Recovery`."""

    matrix: FloatArray
    moved: float
    converged: bool
    steps: int
    status: str


def _root(G: FloatArray, priors: FloatArray) -> _Found:
    values, vectors = np.linalg.eigh(priors[:, None] * G * priors)  # of B B
    # B = U λ^½ Uᵀ as a product of U λ^¼ with its transpose; noise in G makes some λ negative.
    half = vectors * np.maximum(values, 0.0) ** 0.25
    root = half @ half.T
    # Errors of an estimated Gramian are mostly proportional (a row too high or too low), which
    # scaling undoes better than a projection does; the projection then sees to what is left:
    # negative entries.
    result = project(balance(root, priors), priors)
    B = result.joint
    S = B / B.sum(axis=1, keepdims=True)
    moved = float(np.abs(S - root / priors[:, None]).max())
    status = _root_status(result, moved, len(G))
    return _Found(S, moved, result.converged, result.iterations, status)


def _root_status(result: Projection, moved: float, k: int) -> str:
    steps = result.iterations
    by = f"entries moved by up to {moved:.2g}"
    if steps == 0:
        return (
            f"closed form; scaling it to the priors moved entries by up to {moved:.2g}"
        )
    if result.converged:
        return f"closed form, then projected in {steps} steps: {by}"
    if steps < MAX_ITERATIONS:
        return (
            f"closed form, then projected; with {k:,} classes the projection was cut "
            f"short after {steps} steps ({by})"
        )
    return (
        f"the projection did not settle in {steps} steps: G is far from any Gramian of "
        f"a collision matrix ({by}); is the logit shift of the pair model applied?"
    )


def _gradient(
    G: FloatArray, penalty: float, learning_rate: float, tolerance: float, max_iter: int
) -> _Found:
    # It has stalled when its best objective improved by less than a share over one window.
    window = 2000
    least_gain = 1e-4
    S = np.eye(len(G))
    best = S
    best_objective = np.inf
    window_objective = np.inf
    converged = True
    for step in range(max_iter + 1):
        E = S @ S.T - G
        norm = np.sqrt(np.vdot(E, E))
        gaps = S.sum(axis=1) - 1
        violation = np.abs(gaps).sum() - np.minimum(S, 0.0).sum()
        objective = norm + penalty * violation  # (36)
        if objective < best_objective:
            best = S
            best_objective = objective
        if norm <= tolerance:
            best = S
            status = (
                f"‖S Sᵀ - G‖ reached the tolerance {tolerance:g} after {step} steps"
            )
            break
        if step % window == 0:
            if best_objective > window_objective * (1 - least_gain):
                status = (
                    f"stalled after {step} steps at an objective of "
                    f"{best_objective:.3g}, above the tolerance {tolerance:g}: the step is "
                    "too coarse or G is no Gramian of a stochastic matrix; try a smaller "
                    "learning_rate"
                )
                break
            window_objective = best_objective
        # ∇‖E‖_F = 2 E S / ‖E‖_F; the penalties' subgradients are sign(row sum - 1) and -1 where
        # S < 0.
        descent = (2 / norm) * (E @ S)
        back = np.sign(gaps)[:, None] - (S < 0)
        S = S - learning_rate * (descent + penalty * back)
    else:
        converged = False
        status = (
            f"stopped by max_iter={step} at an objective of {best_objective:.3g}: "
            "raise max_iter or learning_rate"
        )
    positive = np.maximum(best, 0.0)
    final = positive / positive.sum(axis=1, keepdims=True)
    moved = float(np.abs(final - best).max())
    return _Found(final, moved, converged, step, status)
