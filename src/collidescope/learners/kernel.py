"""Kernel machine: ridge regression of one-hot labels in the space of a Gaussian kernel, leave-one-out in closed form.

Symbols: n rows, K classes, m landmarks z_j (all rows while n is small), k(x, z) = exp(-γ‖x - z‖²), Y the one-hot
labels less the priors. With features φ(x) = k(x, Z) U s^(-1/2), where k(Z, Z) = U diag(s) Uᵀ (Nyström), ridge
regression with penalty λ has the leave-one-out residuals ``(Y - F) / (1 - h)``, h the diagonal of the hat matrix, so
γ, λ and the scale of the features are chosen without any split. The leave-one-out scores then fit the two numbers
that turn scores into log posteriors: ``log p ∝ sharpness · f + tilt · log priors``.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh
from scipy.optimize import minimize

from collidescope.learners._shared import (
    by_blocks,
    checked,
    checked_number,
    class_shares,
    log_softmax,
    one_hot,
    one_thread,
    weights_of,
)
from collidescope.learners.base import FloatArray, Member, Task, Tree

Float32 = npt.NDArray[np.float32]

#: γ in units of one over the median squared distance between two rows, tried from the middle outwards.
GAMMAS = (0.25, 1.0, 4.0, 16.0)
#: λ, in units of the mean eigenvalue's scale (1 on the diagonal of the kernel matrix).
PENALTIES = tuple(10.0**e for e in (-3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 2))
#: Landmarks at the end, and while γ and the scale are chosen; rows that take part at all.
MOST_LANDMARKS, CHOOSING_LANDMARKS, MOST_ROWS, CHOOSING_ROWS = 1_000, 300, 30_000, 2_000
#: Up to so many rows each of them is a landmark.
ALL_LANDMARKS = 1_500
#: Eigenvalues of the kernel matrix below this share of the largest are rounding.
RANK_TOLERANCE = 1e-6
MOST_FEATURES = 5_000


class _Fit(NamedTuple):
    """A ridge fit: mean squared leave-one-out residual, coefficients (m, K), leave-one-out scores (n, K)."""

    loss: float
    coefficients: FloatArray
    scores: FloatArray


class Kernel(Member):
    """Gaussian kernel machine."""

    name = "kernel"

    landmarks: Float32
    coefficients: Float32
    spread: Float32
    log_priors: Float32
    gamma: float
    sharpness: float
    tilt: float

    @classmethod
    def takes_part(cls, n: int, d: int, k: int) -> bool:
        return d <= MOST_FEATURES

    def fit(self, task: Task) -> Self:
        with one_thread():
            return self._fit(task)

    def _fit(self, task: Task) -> Self:
        w, generator = weights_of(task), np.random.default_rng(task.seed)
        rows = np.flatnonzero(w > 0)
        order = generator.permutation(rows)[:MOST_ROWS]  # landmarks are the first of these
        X, w, priors = np.asarray(task.X[order], dtype=np.float32), w[order], class_shares(task)
        self.log_priors = np.log(priors).astype(np.float32)
        Y = one_hot(task)[order] - priors
        spreads = [np.ones(X.shape[1], dtype=np.float32)]
        if task.spread is not None and not np.allclose(task.spread, task.spread.max()):
            spreads.append(np.minimum(task.spread, 1e4).astype(np.float32))
        best = np.inf
        few = slice(CHOOSING_ROWS)
        for spread in spreads:
            scaled = X[few] * spread
            unit = 1 / max(_median_square(scaled), 1e-30)
            for gamma in GAMMAS:
                fit = _ridge(scaled, Y[few], w[few], gamma * unit, CHOOSING_LANDMARKS)
                if fit.loss < best:
                    best, self.gamma, self.spread = fit.loss, gamma * unit, spread
        m = len(X) if len(X) <= ALL_LANDMARKS else MOST_LANDMARKS
        scaled = X * self.spread
        fit = _ridge(scaled, Y, w, self.gamma, m)
        self.landmarks, self.coefficients = scaled[:m], fit.coefficients.astype(np.float32)
        self.sharpness, self.tilt = _calibrate(fit.scores, self.log_priors, task.codes[order], w)
        return self

    def log_posteriors(self, X: Any) -> FloatArray:
        m, K = self.coefficients.shape

        def score(x: Float32) -> FloatArray:
            f = _kernel(x * self.spread, self.landmarks, self.gamma) @ self.coefficients
            return log_softmax(self.sharpness * f + self.tilt * self.log_priors)

        with one_thread():
            return by_blocks(score, X, m + K + X.shape[1], K)

    def export(self) -> Tree:
        arrays = ("landmarks", "coefficients", "spread", "log_priors")
        return {name: getattr(self, name) for name in (*arrays, "gamma", "sharpness", "tilt")}

    @classmethod
    def restore(cls, tree: Tree, n_features: int, n_classes: int) -> Self:
        member = cls()
        member.landmarks = checked(tree, "landmarks", (np.float32,), (None, n_features))
        shape = (len(member.landmarks), n_classes)
        member.coefficients = checked(tree, "coefficients", (np.float32,), shape)
        member.spread = checked(tree, "spread", (np.float32,), (n_features,))
        member.log_priors = checked(tree, "log_priors", (np.float32,), (n_classes,))
        if not 0 < len(member.landmarks) <= ALL_LANDMARKS:
            raise ValueError(f"a kernel machine must have 1 to {ALL_LANDMARKS} landmarks, got {shape[0]}")
        member.gamma = checked_number(tree, "gamma", 0.0, 1e30)
        member.sharpness, member.tilt = (checked_number(tree, name, 0.0, 1e4) for name in ("sharpness", "tilt"))
        return member


def _kernel(A: Float32, B: Float32, gamma: float) -> Float32:
    squares = A @ B.T
    squares *= -2
    squares += (A * A).sum(axis=1)[:, None]
    squares += (B * B).sum(axis=1)
    np.maximum(squares, 0, out=squares)
    squares *= np.float32(-gamma)
    return np.exp(squares, out=squares)


def _median_square(X: Float32) -> float:
    """Median squared distance of neighbours in the (random) order of the rows."""
    if len(X) < 2:
        return 1.0
    squares = np.square(X[1:] - X[:-1]).sum(axis=1)
    return float(np.median(squares)) or float(squares.mean())


def _ridge(X: Float32, Y: FloatArray, w: FloatArray, gamma: float, n_landmarks: int) -> _Fit:
    """The fit whose penalty has the lowest leave-one-out error; its first rows are the landmarks."""
    m = min(n_landmarks, len(X))
    square = _kernel(X[:m], X[:m], gamma).astype(np.float64)
    s, U = eigh(square, overwrite_a=True, check_finite=False, driver="evd")
    kept = s > RANK_TOLERANCE * s[-1]
    s, U = s[kept], U[:, kept]
    inverse_root = U / np.sqrt(s)
    root_w = np.sqrt(w / w.mean())[:, None]
    Z = (U * np.sqrt(s) if m == len(X) else _kernel(X, X[:m], gamma) @ inverse_root) * root_w
    target = Y * root_w
    if m == len(X) and np.ptp(w) == 0:
        e, V = s, np.eye(len(s))
        A = Z
    else:
        e, V = eigh(Z.T @ Z, overwrite_a=True, check_finite=False, driver="evd")
        e = np.maximum(e, 0)
        A = Z @ V
    ATY, squares = A.T @ target, A * A
    best = None
    for penalty in PENALTIES:
        shrunk = 1 / (e + penalty)
        hat = squares @ shrunk
        # Leave-one-out residuals of the weighted problem, (y - f) / (1 - h).
        residuals = (target - A @ (ATY * shrunk[:, None])) / np.maximum(1 - hat, 1e-6)[:, None]
        loss = float(np.square(residuals).sum() / root_w.T @ root_w) if False else float(np.square(residuals).mean())
        if best is None or loss < best[0]:
            best = loss, shrunk, residuals
    loss, shrunk, residuals = best
    coefficients = inverse_root @ (V @ (ATY * shrunk[:, None]))
    return _Fit(loss, coefficients, Y - residuals / root_w)


def _calibrate(
    scores: FloatArray, log_priors: Float32, codes: npt.NDArray[np.intp], w: FloatArray
) -> tuple[float, float]:
    """Sharpness and tilt that make softmax(sharpness · f + tilt · log priors) most likely on leave-one-out scores."""
    rows, w = np.arange(len(codes)), w / w.sum()
    features = np.stack([scores, np.broadcast_to(log_priors, scores.shape)])

    def loss(parameters: FloatArray) -> tuple[float, FloatArray]:
        log_p = np.tensordot(parameters, features, 1)
        log_p -= log_p.max(axis=1, keepdims=True)
        p = np.exp(log_p)
        total = p.sum(axis=1)
        own = features[:, rows, codes]
        gradient = ((p * features).sum(axis=2) / total - own) @ w
        return float(w @ (np.log(total) - log_p[rows, codes])), gradient

    found = minimize(loss, [4.0, 1.0], jac=True, method="L-BFGS-B", bounds=[(0, 100), (0, 2)])
    return float(found.x[0]), float(found.x[1])
