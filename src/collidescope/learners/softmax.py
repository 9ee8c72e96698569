"""Softmax regression, fitted to the optimum by L-BFGS: linear, of low rank, additive, and with products of features.

Symbols: n rows, D regression features (of d inputs: themselves, their products, or functions of each), K classes,
W of shape (D, K).
The objective is ``mean cross-entropy + penalty/(2n) · ‖W‖²`` with standardised features: a Gaussian prior of variance
1/penalty on every weight. With a rank r, ``W = U Vᵀ`` and both factors are penalised, which at full rank is
``penalty/n · ‖W‖_*`` (the trace norm): many classes that differ along few directions share them.

``sparse`` gives every feature a prior variance τ_j of its own, the one under which the rows are most likely (automatic
relevance determination; MacKay 1994, Tipping 2001): of many features that say nothing, most are left out. With
``v = w/√τ``, whose prior variance is 1, and ``s²_jk`` its posterior variance, ``τ_j`` becomes
``τ_j · Σ_k v²_jk / (1 + Σ_k (1 - s²_jk))`` in each of a few rounds. The 1 is the prior on τ_j, ∝ τ_j^(-1/2), without
which many of the features that say nothing would stay.

Where the truth is log-linear (Gaussian classes with one covariance) or log-quadratic (with several), these reach it
with a fraction of the rows that a network or a forest needs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtri

from collidescope._scaling import blocks
from collidescope.learners.base import (
    BLOCK_NUMBERS,
    LARGEST_INPUT,
    LOG_FLOOR,
    ArrayMember,
    Float32,
    FloatArray,
    Task,
    log_softmax,
)

MOST_KEPT = 100_000_000  #: numbers of the feature matrix kept in memory (400 MB); beyond, it is made anew at every step
FLAT = 1e-3  #: a step of L-BFGS that raises the log likelihood of all rows by less than this is the end
MAX_ITERATIONS, ROUND_ITERATIONS = 200, 25  #: of a fit, and of a round whose priors will change
MAX_FACTOR_ITERATIONS = (
    100  #: factors are not convex and creep at the end, where the held-out loss no longer changes
)
MOST_WORK = (
    1_000_000_000  #: multiplications of a pass (rows × features × classes) that L-BFGS can afford
)
#: Features up to which products are tried (d = 30, and 60 where most are left out): beyond, a network costs less.
MOST_PRODUCTS, MOST_SPARSE_PRODUCTS = 500, 2_000
ROUNDS = 8  #: fits of which each has the prior variances that the last one suggests
#: Multiplications of a pass over the rows that tell what matters, and weights up to which those are 500 rows.
SPARSE_WORK, MOST_SPARSE_WEIGHTS = 5_000_000, 10_000
SMALLEST_PRIOR, LARGEST_PRIOR = (
    1e-3,
    10.0,
)  #: deviations of weights: features with less are left out
FEW = 20  #: features up to which one fixed penalty will do
SMALLEST_START = (
    1e-2  #: singular value that factors start from at least: at zero there is no gradient
)
RANK_ROWS, RANKS = (
    20_000,
    100,
)  #: rows that tell the ranks of values, and quantiles that are kept of them
LARGEST_SCORE = 3.5  #: normal scores beyond are those of a handful of rows
#: Where along its normal scores a feature has steps, how steep they are, and their scale beside that of the scores:
#: a twenty-fifth of the variance a priori, so that what is linear stays so.
STEPS, STEEPNESS, STEP_SCALE = np.array([-1.5, -0.75, 0.0, 0.75, 1.5], dtype=np.float32), 2.0, 0.2
CONSTANT = (
    1e-6  #: a feature that varies by less than this share of its size is constant but for rounding
)


class Priors(ArrayMember):
    """The class shares of the training rows, whatever x: what a pool falls back on where nothing else has skill."""

    simple = True
    log_priors: Annotated[FloatArray, "f8 K"]

    def learn(self, task: Task) -> None:
        self.log_priors = np.maximum(np.log(task.priors), LOG_FLOOR)

    @property
    def row_numbers(self) -> int:
        return len(self.log_priors)

    def score(self, x: Float32) -> FloatArray:
        return np.tile(self.log_priors, (len(x), 1))


class Softmax(ArrayMember):
    """Softmax regression on the features themselves, or with their products."""

    simple = True
    penalty: float = 0.3
    per_feature: bool = (
        False  #: whether the penalty grows with D, as a prior on logits, not on weights
    )
    rank: int | None = None  #: largest rank of W; None penalises W itself
    quadratic: bool = False
    sparse: bool = False  #: whether every feature has a prior variance of its own

    mean: Annotated[Float32, "f4 D"]
    scale: Annotated[Float32, "f4 D"]
    weight: Annotated[Float32, "f4 D K"]
    bias: Annotated[Float32, "f4 K"]

    def known_sizes(self, n_features: int, n_classes: int) -> dict[str, int]:
        products = n_features * (n_features + 1) // 2
        return {"K": n_classes, "D": n_features + products * self.quadratic}

    def takes_part(self, n: int, d: int, k: int) -> bool:
        D = self.known_sizes(d, k)["D"]
        useless = (self.rank is not None and k < 3) or (self.per_feature and D <= FEW)
        most = MOST_SPARSE_PRODUCTS if self.sparse else MOST_PRODUCTS
        costly = (
            (self.quadratic and most < D)
            or n * D * k > MOST_WORK
            or (self.sparse and D * k > MOST_SPARSE_WEIGHTS)
        )
        return super().takes_part(n, d, k) and not useless and not costly

    def learn(self, task: Task) -> None:
        self.mean, self.scale = self._moments(task.X, task.weights)
        self.weight, self.bias = (
            np.zeros((len(self.mean), task.n_classes), np.float32),
            np.log(task.priors),
        )
        if self.sparse:
            X, codes, w = task.sample(max(SPARSE_WORK // self.weight.size, 1))
            sample, F = replace(task, X=X, codes=codes, sample_weight=w), self.features(X)
            # Features scaled by c have weights of prior deviation c / √penalty, in units of the standardised ones.
            largest = self.scale * np.float32(LARGEST_PRIOR * np.sqrt(self.penalty))
            for _ in range(ROUNDS - 1):
                self.weight, self.bias = _optimum(self, sample, ROUND_ITERATIONS, F)
                F *= self._change_priors(F, w, largest)
        self.weight, self.bias = _optimum(self, task)

    def _change_priors(self, F: Float32, w: FloatArray, largest: Float32) -> Float32:
        """By what the deviations that the features F have a priori change, which are a factor of their scale."""
        p = np.exp(log_softmax(F @ self.weight + self.bias))
        # W has prior variance 1/penalty, so v = √penalty W. With H = Σ w F² p (1-p), the diagonal of the Hessian, the
        # posterior precision of v is about 1 + H/penalty: 1 - s² = H / (H + penalty).
        curvature = np.square(F).T.astype(np.float64) @ (p * (1 - p) * w[:, None])
        known = (curvature / (curvature + self.penalty)).sum(axis=1)  # Σ_k (1 - s²_jk)
        v2 = self.penalty * np.square(self.weight, dtype=np.float64).sum(axis=1)
        scale = np.minimum(self.scale * np.sqrt(v2 / (1 + known)), largest).astype(np.float32)
        scale[scale < largest * (SMALLEST_PRIOR / LARGEST_PRIOR)] = 0
        change = np.divide(scale, self.scale, out=np.zeros_like(scale), where=self.scale > 0)
        self.scale = scale
        # F W stays the same, so the next round starts where this one ended; features left out get 0.
        self.weight /= np.where(change > 0, change, np.inf).astype(np.float32)[:, None]
        return np.asarray(change)

    def _moments(self, X: Any, w: FloatArray) -> tuple[Float32, Float32]:
        """Weighted mean and inverse standard deviation of the regression features."""
        D = self.known_sizes(X.shape[1], 0)["D"]
        total, squares = np.zeros(D), np.zeros(D)
        for block in blocks(len(X), D, BLOCK_NUMBERS):
            f = self._expanded(np.asarray(X[block], dtype=np.float32)).astype(np.float64)
            total += w[block] @ f
            squares += w[block] @ (f * f)
        mean = total / w.sum()
        sd = np.sqrt(np.maximum(squares / w.sum() - mean * mean, 0))
        # A constant feature says nothing: scale 0 takes it out instead of dividing by rounding noise.
        scale = np.where(sd > CONSTANT * (1 + np.abs(mean)), 1 / np.maximum(sd, 1e-30), 0.0)
        return mean.astype(np.float32), scale.astype(np.float32)

    def _expanded(self, x: Float32) -> Float32:
        """Regression features, (n, d) → (n, D)."""
        if not self.quadratic:
            return x
        x = np.clip(x, -LARGEST_INPUT, LARGEST_INPUT)
        i, j = np.triu_indices(x.shape[1])
        return np.concatenate([x, x[:, i] * x[:, j]], axis=1)

    def features(self, x: Float32) -> Float32:
        """The same, standardised."""
        f = self._expanded(x) - self.mean
        f *= self.scale
        return f

    @property
    def row_numbers(self) -> int:
        return sum(self.weight.shape)

    def score(self, x: Float32) -> FloatArray:
        return log_softmax(self.features(x) @ self.weight + self.bias)


class Additive(Softmax):
    """Softmax regression on functions of one feature each: its rank as a normal score, and smooth steps along it.

    Ranks make skewed features and outliers harmless.
    """

    most_features = 300
    steps: bool = True

    quantiles: Annotated[Float32, "f4 Q d"]

    def known_sizes(self, n_features: int, n_classes: int) -> dict[str, int]:
        return {"d": n_features, "K": n_classes, "D": n_features * (1 + len(STEPS) * self.steps)}

    def learn(self, task: Task) -> None:
        X, _, _ = task.sample(RANK_ROWS)
        self.quantiles = np.quantile(X, np.linspace(0, 1, RANKS), axis=0).astype(np.float32)
        super().learn(task)

    def _moments(self, X: Any, w: FloatArray) -> tuple[Float32, Float32]:
        mean, scale = super()._moments(X, w)
        scale[X.shape[1] :] *= STEP_SCALE
        return mean, scale

    def _expanded(self, x: Float32) -> Float32:
        levels = np.linspace(0, 1, len(self.quantiles))
        scores = np.empty(x.shape, dtype=np.float32)
        for j, at in enumerate(self.quantiles.T):
            # From below and from above: a value that many rows share has the middle of their ranks.
            rank = np.interp(x[:, j], at, levels) - np.interp(-x[:, j], -at[::-1], -levels[::-1])
            scores[:, j] = np.clip(ndtri(rank / 2), -LARGEST_SCORE, LARGEST_SCORE)
        if not self.steps:
            return scores
        steps = np.tanh(np.float32(STEEPNESS) * (scores[:, :, None] - STEPS))
        return np.concatenate([scores, steps.reshape(len(x), -1)], axis=1)

    @property
    def row_numbers(self) -> int:
        return 3 * sum(self.weight.shape)

    def check(self, n_features: int, n_classes: int) -> None:
        if not len(self.quantiles) or (np.diff(self.quantiles, axis=0) < 0).any():
            raise ValueError("quantiles must not decrease, and there must be some")


def _optimum(
    member: Softmax, task: Task, limit: int = MAX_ITERATIONS, kept: Float32 | None = None
) -> tuple[Float32, Float32]:
    """W and bias at the minimum of the objective, as a function of a flat vector: W, or its factors U and V, and b.

    The search starts from those that the member has; ``kept`` are its features, if they are known.
    """
    n, D, K, w = len(task.codes), len(member.mean), task.n_classes, task.weights
    shares = (w / w.sum()).astype(np.float32)
    penalty = member.penalty * (D if member.per_feature else 1) / n

    def features(block: slice) -> Float32:
        return member.features(np.asarray(task.X[block], dtype=np.float32))

    if kept is None and n * D <= MOST_KEPT:
        kept = features(slice(n))
    parts_of_rows = [slice(n)] if kept is not None else list(blocks(n, D, BLOCK_NUMBERS))

    def loss_and_gradient(
        flat: FloatArray, shapes: list[tuple[int, ...]]
    ) -> tuple[float, FloatArray]:
        *parts, bias = _unpacked(flat, shapes)
        W = _product(parts).astype(np.float32)
        loss, dW, db = 0.0, np.zeros((D, K)), np.zeros(K)
        for block in parts_of_rows:
            F = features(block) if kept is None else kept
            z = F @ W + bias.astype(np.float32)
            z -= z.max(axis=1, keepdims=True)
            own = np.arange(len(z)), task.codes[block]
            right = z[own].astype(np.float64)
            p = np.exp(z, out=z)
            total, share = p.sum(axis=1), shares[block]
            loss += float(share @ (np.log(total.astype(np.float64)) - right))
            p *= (share / total)[:, None]  # ∂loss/∂logits = (p - onehot(y)) · share
            p[own] -= share
            dW += F.T @ p
            db += p.sum(axis=0)
        # W = U Vᵀ: ∂/∂U = dW V and ∂/∂V = dWᵀ U.
        gradients = [dW] if len(parts) == 1 else [dW @ parts[1], dW.T @ parts[0]]
        for part, gradient in zip(parts, gradients, strict=True):
            loss += 0.5 * penalty * float((part * part).sum())
            gradient += penalty * part
        return loss, np.concatenate([gradient.ravel() for gradient in (*gradients, db)])

    def minimise(start: list[Any], limit: int) -> tuple[FloatArray, FloatArray]:
        shapes = [part.shape for part in start]
        options: Any = {"maxiter": limit, "ftol": FLAT / n, "gtol": 1e-6, "maxcor": 20}
        x0 = np.concatenate([part.ravel() for part in start])
        found = minimize(
            loss_and_gradient, x0, (shapes,), jac=True, method="L-BFGS-B", options=options
        )
        *parts, bias = _unpacked(found.x, shapes)
        return _product(parts), bias

    W, bias = minimise([member.weight, member.bias], limit)
    if (
        member.rank is not None
    ):  # from the leading directions of that fit: factors at zero have no gradient
        U, s, Vt = np.linalg.svd(W, full_matrices=False)
        leading = slice(min(member.rank, D, K))
        root = np.sqrt(np.maximum(s[leading], SMALLEST_START))
        W, bias = minimise(
            [U[:, leading] * root, Vt[leading].T * root, bias], MAX_FACTOR_ITERATIONS
        )
    return W.astype(np.float32), bias.astype(np.float32)


def _unpacked(flat: FloatArray, shapes: list[tuple[int, ...]]) -> list[FloatArray]:
    ends = np.cumsum([np.prod(shape) for shape in shapes])
    return [
        part.reshape(shape) for part, shape in zip(np.split(flat, ends[:-1]), shapes, strict=True)
    ]


def _product(parts: list[FloatArray]) -> FloatArray:
    return parts[0] if len(parts) == 1 else parts[0] @ parts[1].T
