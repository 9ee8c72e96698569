"""Kernel machine: ridge regression of one-hot labels in the space of a Gaussian kernel, leave-one-out in closed form.

Symbols: n rows, K classes, m landmarks z_j (all rows while n is small), k(x, z) = exp(-γ‖x - z‖²) + 1, Y the one-hot
labels less the priors. With features φ(x) = k(x, Z) U s^(-1/2), where k(Z, Z) = U diag(s) Uᵀ (Nyström), ridge
regression with penalty λ has the leave-one-out residuals ``(Y - F) / (1 - h)``, h the diagonal of the hat matrix, so
γ, λ and the scale of the features are chosen without any split. The leave-one-out scores then fit the two numbers
that turn scores into log posteriors, which are linear in f, in log max(f, ε) and in the log priors.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from scipy.linalg import eigh

from collidescope.learners.base import ArrayMember, Float32, FloatArray, Task, log_softmax
from collidescope.learners.pool import likeliest

GAMMAS = (
    0.25,
    1.0,
    4.0,
    16.0,
)  #: γ in units of one over the median squared distance between two rows
#: λ, in units of the mean eigenvalue's scale (1 on the diagonal of the kernel matrix).
PENALTIES = tuple(10.0**e for e in (-3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 2))
#: Landmarks at the end, and while γ and the scale are chosen; rows that take part at all.
FEWEST_LANDMARKS, MOST_LANDMARKS, CHOOSING_LANDMARKS, MOST_ROWS, CHOOSING_ROWS = (
    700,
    1_500,
    300,
    30_000,
    2_000,
)
MOST_VALUES = 6_000_000  #: kernel values (rows × landmarks) beyond which there are fewer landmarks
CONSTANT = np.float32(
    1.0
)  #: added to the kernel as an intercept: what holds far from every landmark
RANK_TOLERANCE = (
    1e-6  #: eigenvalues of the kernel matrix below this share of the largest are rounding
)
SMALLEST_SLACK = np.float32(
    1e-4
)  #: 1 - h, the part of a score that is not the row's own doing, is at least this
SMALLEST_SCORE = np.float32(
    0.02
)  #: scores are about this uncertain: below it their logarithm says nothing
LARGEST_CALIBRATION = 50.0  #: weight of the scores in the log posteriors


class Kernel(ArrayMember):
    """Gaussian kernel machine."""

    most_features = 5_000

    landmarks: Annotated[Float32, "f4 m d"]
    coefficients: Annotated[Float32, "f4 m K"]
    spread: Annotated[Float32, "f4 d"]
    log_priors: Annotated[Float32, "f4 K"]
    calibration: Annotated[FloatArray, "f8 3"]
    gamma: Annotated[float, 0.0, 1e30]

    def learn(self, task: Task) -> None:
        w, priors = task.weights, task.priors
        self.log_priors = np.log(priors).astype(np.float32)
        order = np.random.default_rng(task.seed).permutation(np.flatnonzero(w > 0))[:MOST_ROWS]
        X, w = (
            np.asarray(task.X[order], dtype=np.float32),
            w[order].astype(np.float32),
        )  # landmarks are the first
        Y = np.eye(task.n_classes, dtype=np.float32)[task.codes[order]] - priors.astype(np.float32)
        best, few = np.inf, slice(CHOOSING_ROWS)
        for spread in task.scales():
            scaled = X[few] * spread
            # of neighbours in the (random) order of the rows
            squares = np.square(scaled[1:] - scaled[:-1]).sum(axis=1)
            median = float(np.median(squares)) or float(squares.mean()) if len(squares) else 1.0
            unit = 1 / max(median, 1e-30)
            for gamma in GAMMAS:
                loss, _, _ = _ridge(scaled, Y[few], w[few], gamma * unit, CHOOSING_LANDMARKS)
                if loss < best:
                    best, self.gamma, self.spread = loss, gamma * unit, spread
        m = min(len(X), int(np.clip(MOST_VALUES // len(X), FEWEST_LANDMARKS, MOST_LANDMARKS)))
        scaled = X * self.spread
        _, coefficients, scores = _ridge(scaled, Y, w, self.gamma, m)
        self.landmarks, self.coefficients = scaled[:m], coefficients.astype(np.float32)
        # Non-negative weights of the evidence, with the scores left out, that make the labels likeliest.
        w = w.astype(np.float64) * (len(w) / w.sum(dtype=np.float64))
        bounds = [(0, LARGEST_CALIBRATION), (0, 2), (0, 2)]
        start = np.array([4.0, 0.5, 0.5])
        self.calibration = likeliest(self._evidence(scores), task.codes[order], w, start, bounds)

    @property
    def row_numbers(self) -> int:
        return sum(self.coefficients.shape) + len(self.spread)

    def score(self, x: Float32) -> FloatArray:
        f = _kernel(x * self.spread, self.landmarks, self.gamma) @ self.coefficients
        return log_softmax(np.tensordot(self.calibration, self._evidence(f), 1))

    def _evidence(self, f: Float32) -> Float32:
        """What log posteriors are made of, (3, n, K): scores, their logarithms, and the log priors."""
        f = f + np.exp(self.log_priors)
        return np.stack(
            [f, np.log(np.maximum(f, SMALLEST_SCORE)), np.broadcast_to(self.log_priors, f.shape)]
        )

    def check(self, n_features: int, n_classes: int) -> None:
        if not 0 < len(self.landmarks) <= MOST_LANDMARKS:
            raise ValueError(
                f"a kernel machine must have 1 to {MOST_LANDMARKS} landmarks, got {len(self.landmarks)}"
            )


def _kernel(A: Float32, B: Float32, gamma: float) -> Float32:
    squares = A @ B.T
    squares *= -2
    squares += (A * A).sum(axis=1)[:, None]
    squares += (B * B).sum(axis=1)
    # ‖a‖² + ‖b‖² - 2 a·b of near rows can round to less than 0.
    np.maximum(squares, 0, out=squares)
    squares *= np.float32(-gamma)
    np.exp(squares, out=squares)
    squares += CONSTANT
    return squares


def _ridge(
    X: Float32, Y: Float32, w: Float32, gamma: float, n_landmarks: int
) -> tuple[float, Float32, Float32]:
    """Mean squared leave-one-out residual, coefficients (m, K) and leave-one-out scores (n, K) of the best penalty.

    The first rows are landmarks. Penalties are far above float32 rounding.
    """
    m = min(n_landmarks, len(X))
    s, U = eigh(_kernel(X[:m], X[:m], gamma), overwrite_a=True, check_finite=False, driver="evd")
    kept = s > RANK_TOLERANCE * s[-1]
    s, U = s[kept], U[:, kept]
    inverse_root = U / np.sqrt(s)
    root_w = np.sqrt(w)[:, None]
    target = Y * root_w
    if (
        m == len(X) and np.ptp(w) == 0
    ):  # every row a landmark: the features' second moments are diagonal already
        e, V, A = w[0] * s, None, U * np.sqrt(w[0] * s)
    else:
        Z = (_kernel(X, X[:m], gamma) @ inverse_root) * root_w
        e, V = eigh(Z.T @ Z, overwrite_a=True, check_finite=False, driver="evd")
        e, A = np.maximum(e, 0), Z @ V
    # A: the features in a basis where AᵀA = diag(e). Every penalty is then a division, h = Σ_j A_j² / (e_j + λ).
    ATY, squares = A.T @ target, A * A
    best = np.inf
    for penalty in PENALTIES:
        shrunk = (1 / (e + np.float32(penalty)))[:, None]
        hat = squares @ shrunk
        # Leave-one-out residuals, (y - f) / (1 - h).
        residuals = (target - A @ (ATY * shrunk)) / np.maximum(1 - hat, SMALLEST_SLACK)
        loss = float(np.square(residuals).mean())
        if loss < best:
            best, rotated, scores = loss, ATY * shrunk, Y - residuals / root_w
    # f(x) = k(x, Z) U s^(-½) V (AᵀA + λ)⁻¹ AᵀY: all of it but k(x, Z).
    return best, inverse_root @ (rotated if V is None else V @ rotated), scores
