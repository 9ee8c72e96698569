"""Softmax regression, fitted to the optimum by L-BFGS: linear, of low rank, and with products of features.

Symbols: n rows, D regression features (d inputs, and their products when quadratic), K classes, W of shape (D, K).
The objective is ``mean cross-entropy + penalty/(2n) · ‖W‖²`` with standardised features: a Gaussian prior of variance
1/penalty on every weight. With a rank r, ``W = U Vᵀ`` and both factors are penalised, which at full rank is
``penalty/n · ‖W‖_*`` (the trace norm): many classes that differ along few directions share them.

Where the truth is log-linear (Gaussian classes with one covariance) or log-quadratic (with several), these reach it
with a fraction of the rows that a network or a forest needs.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from collidescope.learners._shared import (
    BLOCK_NUMBERS,
    by_blocks,
    checked,
    class_shares,
    log_softmax,
    one_thread,
    weights_of,
)
from collidescope.learners.base import FloatArray, Member, Task, Tree

Float32 = npt.NDArray[np.float32]

#: Products of robustly standardised inputs: without a limit one outlier of 20 scales would rule the fit.
LARGEST_INPUT = 8.0
#: Numbers of the feature matrix that are kept in memory (400 MB); beyond it features are made anew at every step.
MOST_KEPT = 100_000_000
#: A step of L-BFGS that raises the log likelihood of all rows together by less than this is the end.
FLAT = 1e-3
MAX_ITERATIONS = 200
#: Factors are not convex and creep at the end, where the held-out loss no longer changes.
MAX_FACTOR_ITERATIONS = 100
#: Multiplications of one pass (rows × features × classes) up to which full-batch L-BFGS is affordable.
MOST_WORK = 1_000_000_000
#: Products of inputs are tried up to this many features (d = 30): beyond it they cost more than a network.
MOST_PRODUCTS = 500
#: Features up to which one fixed penalty will do.
FEW = 20
#: A singular value that both factors of a rank start from at least: at zero neither would have a gradient.
SMALLEST_START = 1e-2
#: A feature that varies by less than this share of its size is constant but for rounding.
CONSTANT = 1e-6


class Linear(Member):
    """Softmax regression on the features themselves."""

    name = "linear"
    simple = True
    penalty: ClassVar[float] = 0.3
    #: Whether the penalty grows with D: the logits, not each weight, then have a prior of fixed variance.
    per_feature: ClassVar[bool] = False
    #: Largest rank of W; None penalises W itself.
    rank: ClassVar[int | None] = None
    quadratic: ClassVar[bool] = False

    mean: Float32
    scale: Float32
    weight: Float32
    bias: Float32

    @classmethod
    def takes_part(cls, n: int, d: int, k: int) -> bool:
        D = n_regression_features(d, cls.quadratic)
        if (cls.quadratic and D > MOST_PRODUCTS) or (cls.rank is not None and k < 3) or (cls.per_feature and D <= FEW):
            return False
        return n * D * k <= MOST_WORK

    def fit(self, task: Task) -> Self:
        w = weights_of(task)
        with one_thread():
            self.mean, self.scale = _moments(task.X, w, self.quadratic)
            self.weight, self.bias = _Problem(self, task, w).solve()
        return self

    def log_posteriors(self, X: Any) -> FloatArray:
        D, K = self.weight.shape
        with one_thread():
            return by_blocks(lambda x: log_softmax(self.features(x) @ self.weight + self.bias), X, D + K, K)

    def features(self, x: Float32) -> Float32:
        """Standardised regression features, (n, d) → (n, D)."""
        f = _expand(x, self.quadratic)
        f -= self.mean
        f *= self.scale
        return f

    def export(self) -> Tree:
        return {"mean": self.mean, "scale": self.scale, "weight": self.weight, "bias": self.bias}

    @classmethod
    def restore(cls, tree: Tree, n_features: int, n_classes: int) -> Self:
        member, D = cls(), n_regression_features(n_features, cls.quadratic)
        shapes = {"mean": (D,), "scale": (D,), "weight": (D, n_classes), "bias": (n_classes,)}
        for name, shape in shapes.items():
            setattr(member, name, checked(tree, name, (np.float32,), shape))
        return member


class SmoothLinear(Linear):
    """The same with a penalty that grows with the number of features, for noisy labels of wide rows."""

    name = "linear-smooth"
    per_feature = True


class OneAxis(Linear):
    """Softmax regression whose classes lie along one direction of the features."""

    name = "linear-axis"
    penalty, rank = 1.0, 1


class TraceNorm(Linear):
    """Softmax regression with a penalty on the trace norm: as few directions as the classes need."""

    name = "linear-trace"
    penalty, rank = 3.0, 10**6


class Quadratic(Linear):
    """Softmax regression on the features and their products."""

    name = "quadratic"
    penalty, quadratic = 1.0, True


class SmoothQuadratic(Quadratic):
    """The same with a larger penalty, for few rows per product."""

    name = "quadratic-smooth"
    penalty = 10.0


def n_regression_features(d: int, quadratic: bool) -> int:
    """D."""
    return d + d * (d + 1) // 2 if quadratic else d


class _Problem:
    """Loss and gradient of one fit as a function of a flat vector of parameters."""

    def __init__(self, member: Linear, task: Task, w: FloatArray) -> None:
        self.member, self.X, self.codes, self.K = member, task.X, task.codes, task.n_classes
        n, self.D = len(task.codes), len(member.mean)
        self.w = (w / w.sum()).astype(np.float32)
        self.penalty = member.penalty * (self.D if member.per_feature else 1) / n
        self.rank = None if member.rank is None else min(member.rank, self.D, self.K)
        kept = n * self.D <= MOST_KEPT
        size = n if kept else max(1, BLOCK_NUMBERS // self.D)
        self.blocks = [slice(start, start + size) for start in range(0, n, size)]
        self.F = [member.features(np.asarray(task.X, dtype=np.float32))] if kept else None
        self.start_bias = np.log(class_shares(task))

    def solve(self) -> tuple[Float32, Float32]:
        # Low rank starts from the leading directions of a short full-rank fit: factors at zero have no gradient.
        W, bias = self._minimise([np.zeros((self.D, self.K))], self.start_bias, None)
        if self.rank is not None:
            U, s, Vt = np.linalg.svd(W, full_matrices=False)
            root = np.sqrt(np.maximum(s[: self.rank], SMALLEST_START))
            W, bias = self._minimise([U[:, : self.rank] * root, Vt[: self.rank].T * root], bias, self.rank)
        return np.asarray(W, dtype=np.float32), np.asarray(bias, dtype=np.float32)

    def _minimise(self, parts: list[FloatArray], bias: FloatArray, rank: int | None) -> tuple[FloatArray, FloatArray]:
        x0 = np.concatenate([part.ravel() for part in (*parts, bias)])
        limit = MAX_ITERATIONS if rank is None else MAX_FACTOR_ITERATIONS
        options = {"maxiter": limit, "ftol": FLAT / len(self.codes), "gtol": 1e-6, "maxcor": 20}
        found = minimize(self._loss_and_gradient, x0, (rank,), jac=True, method="L-BFGS-B", options=options)  # type: ignore[call-overload]
        parts, bias = self._unpack(found.x, rank)
        return (parts[0] if rank is None else parts[0] @ parts[1].T), bias

    def _unpack(self, flat: FloatArray, rank: int | None) -> tuple[list[FloatArray], FloatArray]:
        D, K = self.D, self.K
        if rank is None:
            return [flat[: D * K].reshape(D, K)], flat[D * K :]
        return [flat[: D * rank].reshape(D, rank), flat[D * rank : -K].reshape(K, rank)], flat[-K:]

    def _loss_and_gradient(self, flat: FloatArray, rank: int | None) -> tuple[float, FloatArray]:
        parts, bias = self._unpack(flat, rank)
        W = np.asarray(parts[0] if rank is None else parts[0] @ parts[1].T, dtype=np.float32)
        loss, dW, db = 0.0, np.zeros((self.D, self.K)), np.zeros(self.K)
        for number, block in enumerate(self.blocks):
            F = self.member.features(np.asarray(self.X[block], dtype=np.float32)) if self.F is None else self.F[number]
            z = F @ W + bias.astype(np.float32)
            z -= z.max(axis=1, keepdims=True)
            own = np.arange(len(z)), self.codes[block]
            right = z[own].astype(np.float64)
            p = np.exp(z, out=z)
            total = p.sum(axis=1)
            w = self.w[block]
            loss += float(w @ (np.log(total.astype(np.float64)) - right))
            # ∂loss/∂logits = (p - onehot(y)) · w
            p *= (w / total)[:, None]
            p[own] -= w
            dW += F.T @ p
            db += p.sum(axis=0)
        gradients = [dW] if rank is None else [dW @ parts[1], dW.T @ parts[0]]
        for part, gradient in zip(parts, gradients, strict=True):
            loss += 0.5 * self.penalty * float((part * part).sum())
            gradient += self.penalty * part
        return loss, np.concatenate([gradient.ravel() for gradient in (*gradients, db)])


def _expand(x: Float32, quadratic: bool) -> Float32:
    if not quadratic:
        return np.array(x, dtype=np.float32)
    x = np.clip(x, -LARGEST_INPUT, LARGEST_INPUT)
    i, j = np.triu_indices(x.shape[1])
    return np.concatenate([x, x[:, i] * x[:, j]], axis=1)


def _moments(X: Any, w: FloatArray, quadratic: bool) -> tuple[Float32, Float32]:
    """Weighted mean and inverse standard deviation of the regression features."""
    D = n_regression_features(X.shape[1], quadratic)
    size = max(1, BLOCK_NUMBERS // D)
    total, squares = np.zeros(D), np.zeros(D)
    for start in range(0, len(X), size):
        f = _expand(np.asarray(X[start : start + size], dtype=np.float32), quadratic).astype(np.float64)
        total += w[start : start + size] @ f
        squares += w[start : start + size] @ (f * f)
    mean = total / w.sum()
    sd = np.sqrt(np.maximum(squares / w.sum() - mean * mean, 0))
    # A constant feature says nothing: scale 0 takes it out instead of dividing by rounding noise.
    scale = np.where(sd > CONSTANT * (1 + np.abs(mean)), 1 / np.maximum(sd, 1e-30), 0.0)
    return mean.astype(np.float32), scale.astype(np.float32)
