"""Softmax regression at its optimum: linear, of low rank, additive, and with products of features.

Symbols: n rows, D regression features (of d inputs: themselves, their products, or functions of
each), K classes, W of shape (D, K). L-BFGS minimises ``mean cross-entropy + penalty/(2n) · ‖W‖²``
with standardised features: a Gaussian prior of variance 1/penalty on every weight. With a rank r,
``W = U Vᵀ`` and both factors are penalised, which at full rank is ``penalty/n · ‖W‖_*`` (the trace
norm): many classes that differ along few directions share them.

``sparse`` gives every feature a prior variance τ_j of its own, the one under which the rows are
most likely (automatic relevance determination; MacKay 1994, Tipping 2001): of many features that
say nothing, most are left out. With ``v = w/√τ``, whose prior variance is 1, and ``s²_jk`` its
posterior variance, ``τ_j`` becomes ``τ_j · Σ_k v²_jk / (1 + Σ_k (1 - s²_jk))`` in each of a few
rounds. The 1 is the prior on τ_j, ∝ τ_j^(-1/2), without which many of the features that say
nothing would stay.

Where the truth is log-linear (Gaussian classes with one covariance) or log-quadratic (with
several), these reach it with a fraction of the rows that a network or a forest needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.special import ndtri

from collidescope._checks import IntArray
from collidescope._scaling import blocks
from collidescope.learners.base import (
    BLOCK_NUMBERS,
    LARGEST_INPUT,
    LOG_FLOOR,
    ArrayMember,
    Fitted,
    FittedArrays,
    Float32,
    FloatArray,
    Task,
    class_weights,
    double,
    log_softmax,
    of_class,
    row_max,
    row_sums,
    single,
    some,
)

# The members


@dataclass(frozen=True)
class FittedPriors(FittedArrays):
    """The logarithms of the class shares."""

    log_priors: Annotated[FloatArray, "f8 K"]

    @property
    def row_numbers(self) -> int:
        return len(self.log_priors)

    def score(self, x: Float32) -> FloatArray:
        return np.tile(self.log_priors, (len(x), 1))


@dataclass(frozen=True)
class Priors(ArrayMember):
    """The class shares of the training rows: what a pool falls back on where nothing has skill."""

    simple: ClassVar[bool] = True
    parametric: ClassVar[bool] = True
    learned: ClassVar[type[Fitted]] = FittedPriors

    def cost(self, n: int, d: int, k: int) -> float:
        return 1e-8 * n

    def learn(self, task: Task) -> FittedPriors:
        return FittedPriors(self.name, np.maximum(np.log(task.priors), LOG_FLOOR))


@dataclass(frozen=True)
class Inputs:
    """The features themselves, as they are."""

    n_features: Annotated[int, "d"]

    @property
    def size(self) -> int:
        """D."""
        return self.n_features

    def expand(self, x: Float32) -> Float32:
        """Regression features, (n, d) → (n, D)."""
        return x


@dataclass(frozen=True)
class Products(Inputs):
    """The features, their squares and their products."""

    @property
    def size(self) -> int:
        d = self.n_features
        return d + d * (d + 1) // 2

    def expand(self, x: Float32) -> Float32:
        x = np.clip(x, -LARGEST_INPUT, LARGEST_INPUT)
        i, j = np.triu_indices(x.shape[1])
        products = x[:, i] * x[:, j]
        return np.concatenate([x, products], axis=1)


#: Where along its normal scores a feature has steps.
STEPS = np.array([-1.5, -0.75, 0.0, 0.75, 1.5], dtype=np.float32)


@dataclass(frozen=True)
class Scores:
    """The rank of every feature as a normal score, and smooth steps along it.

    Ranks make skewed features and outliers harmless.
    """

    quantiles: Annotated[Float32, "f4 Q d"]
    steps: bool = True

    def __post_init__(self) -> None:
        if not len(self.quantiles) or (np.diff(self.quantiles, axis=0) < 0).any():
            raise ValueError("quantiles must not decrease, and there must be some")

    @cached_property
    def stepped(self) -> IntArray:
        """The features that have steps: those of two values would only get their score again."""
        if not self.steps:
            return np.arange(0)
        n_rises = (np.diff(self.quantiles, axis=0) > 0).sum(axis=0)
        return np.flatnonzero(n_rises > 1)

    @property
    def size(self) -> int:
        return int(self.quantiles.shape[1]) + len(STEPS) * len(self.stepped)

    def expand(self, x: Float32) -> Float32:
        scores = self.normal_scores(x)
        if len(self.stepped) == 0:
            return scores
        steepness = np.float32(2.0)
        along = scores[:, self.stepped, None]
        steps = np.tanh(steepness * (along - STEPS))
        n = len(x)
        return np.concatenate([scores, steps.reshape(n, -1)], axis=1)

    def normal_scores(self, x: Float32, largest: float = 3.5) -> Float32:
        """Quantiles of a normal at the ranks of the values; beyond ``largest`` is a handful."""
        n_levels = len(self.quantiles)
        levels = np.linspace(0, 1, n_levels)
        downwards = levels[::-1]
        falling = -downwards
        scores = np.empty(x.shape, np.float32)
        columns = self.quantiles.T
        for j, at in enumerate(columns):
            values = x[:, j]
            # From below and from above: a value that many rows share has the middle of their ranks.
            below = np.interp(values, at, levels)
            from_last = at[::-1]
            backwards = -from_last
            above = np.interp(-values, backwards, falling)
            twice = below - above
            score = ndtri(twice / 2)
            clipped = np.clip(score, -largest, largest)
            scores[:, j] = clipped
        return scores


@dataclass(frozen=True)
class FittedSoftmax(FittedArrays):
    """Weights of standardised regression features."""

    features: Inputs | Products | Scores
    mean: Annotated[Float32, "f4 D"]
    scale: Annotated[Float32, "f4 D"]
    weight: Annotated[Float32, "f4 D K"]
    bias: Annotated[Float32, "f4 K"]

    def __post_init__(self) -> None:
        D = self.features.size
        if len(self.mean) != D:
            raise ValueError(f"mean must have one number for each of {D} features")

    def standardised(self, x: Float32) -> Float32:
        """The regression features in units of their scale."""
        f = self.features.expand(x) - self.mean
        f *= self.scale
        return f

    @property
    def row_numbers(self) -> int:
        numbers = sum(self.weight.shape)
        if isinstance(self.features, Scores):
            return 3 * numbers
        return numbers

    def score(self, x: Float32) -> FloatArray:
        return log_softmax(self.standardised(x) @ self.weight + self.bias)


@dataclass(frozen=True)
class Softmax(ArrayMember):
    """Softmax regression on the features themselves, or with their products."""

    penalty: float = 0.3
    rank: int | None = None  #: largest rank of W; None penalises W itself
    quadratic: bool = False
    #: beyond, a network costs less: those of 61 features
    most_products: int = 2_000
    sparse: bool = False  #: whether every feature has a prior variance of its own
    #: fits of which each has the prior variances that the last one suggests
    rounds: int = 8
    #: multiplications of a pass over the rows that tell what matters
    sparse_work: int = 5_000_000
    #: whether L-BFGS works in a basis in which the features are not correlated
    whitened: bool = False
    max_iterations: int = 200  #: of a fit
    round_iterations: int = 25  #: of a round whose priors will change
    #: rows × features × classes that a member is trained on by itself
    most_work: int = 1_000_000_000

    simple: ClassVar[bool] = True
    parametric: ClassVar[bool] = True
    learned: ClassVar[type[Fitted]] = FittedSoftmax

    def n_regression_features(self, d: int) -> int:
        """D."""
        if not self.quadratic:
            return d
        return Products(d).size

    def takes_part(self, n: int, d: int, k: int) -> bool:
        if not super().takes_part(n, d, k):
            return False
        D = self.n_regression_features(d)
        if self.rank is not None and k < 3:
            return False
        if self.quadratic and self.most_products < D:
            return False
        if self.sparse and D * k > 10_000:  # 500 rows would have to tell what matters
            return False
        return n * D * k <= self.most_work

    def cost(self, n: int, d: int, k: int) -> float:
        D = self.n_regression_features(d)
        numbers = D * k
        product = numbers * 1e-10
        # Seconds of a row in a pass.
        row = product + k * 1.5e-8 + D * 1e-9
        passes = 35
        if self.rank is not None:
            passes += 35
        seconds = passes * n * row
        if self.sparse:
            rows = min(n, self.sparse_work // max(numbers, 1))
            passes = self.rounds * self.round_iterations // 2
            seconds += passes * rows * row
        return seconds

    def feature_map(self, task: Task) -> Inputs | Products | Scores:
        """What the regression sees of a row."""
        if self.quadratic:
            return Products(task.X.shape[1])
        return Inputs(task.X.shape[1])

    def feature_scale(self, scale: Float32, d: int) -> Float32:
        """Scales of the regression features, from those that give them deviation 1."""
        return scale

    def learn(self, task: Task) -> FittedSoftmax:
        start = self._start(task)
        if self.sparse:
            start = self._with_own_priors(start, task)
        return self._optimum(start, task, self.max_iterations)

    def _start(self, task: Task) -> FittedSoftmax:
        """Standardised features, no weights, and the class shares."""
        features = self.feature_map(task)
        mean, scale = weighted_moments(features, task.X, task.weights)
        shape = (len(mean), task.n_classes)
        return FittedSoftmax(
            name=self.name,
            features=features,
            mean=mean,
            scale=self.feature_scale(scale, task.X.shape[1]),
            weight=np.zeros(shape, np.float32),
            bias=np.log(task.priors),
        )

    def _optimum(
        self, start: FittedSoftmax, task: Task, limit: int, kept: Float32 | None = None
    ) -> FittedSoftmax:
        """The minimum of the objective; ``kept`` are the features of the rows, if known."""
        D = len(start.mean)
        n = len(task.codes)
        penalty = self.full_penalty(D) / n
        rows = Rows.of(start, task, kept)
        if self.whitened and rows.kept is not None:
            W, bias = minimised_whitened(rows, penalty, limit, start)
        else:
            W, bias = minimised(
                rows,
                penalty,
                limit,
                [start.weight],
                start.bias,
            )
        if self.rank is not None:
            W, bias = self._of_low_rank(rows, penalty, W, bias)
        return replace(
            start,
            weight=single(W),
            bias=single(bias),
        )

    def full_penalty(self, D: int) -> float:
        """The penalty for D regression features."""
        return self.penalty

    def _of_low_rank(
        self, rows: Rows, penalty: float, W: FloatArray, bias: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """The minimum over W = U Vᵀ, from the leading directions of W.

        Factors at zero have no gradient, so they start at least a little away from it. They are
        not convex and creep at the end, where the held-out loss no longer changes.
        """
        U, s, Vt = np.linalg.svd(W, full_matrices=False)
        r = min(self.rank or 0, *W.shape)
        leading = np.maximum(s[:r], 1e-2)
        root = np.sqrt(leading)
        left = U[:, :r] * root
        right = Vt[:r].T * root
        return minimised(
            rows,
            penalty,
            100,
            [left, right],
            bias,
        )

    def _with_own_priors(self, start: FittedSoftmax, task: Task) -> FittedSoftmax:
        """Scales of the features that are their prior deviations, learned on some of the rows."""
        most_rows = max(self.sparse_work // start.weight.size, 1)
        X, codes, w = task.sample(most_rows)
        sample = replace(
            task,
            X=X,
            codes=codes,
            sample_weight=w,
        )
        F = start.standardised(X)
        # Features scaled by c have weights of prior deviation c / √penalty, in units of the
        # standardised ones.
        largest_deviation = np.float32(10.0 * np.sqrt(self.penalty))
        largest = start.scale * largest_deviation
        fitted = start
        for _ in range(self.rounds - 1):
            fitted = self._optimum(
                fitted,
                sample,
                self.round_iterations,
                F,
            )
            change = self._change_of_deviations(fitted, F, w)
            wanted = fitted.scale * change
            scale = single(np.minimum(wanted, largest))
            rescaled = _rescaled(fitted, scale, largest)
            F *= _ratio(scale, fitted.scale)
            fitted = rescaled
        return fitted

    def _change_of_deviations(
        self, fitted: FittedSoftmax, F: Float32, w: FloatArray
    ) -> FloatArray:
        """√(τ_new / τ_old) of every feature, given its fit on the features F."""
        logits = F @ fitted.weight + fitted.bias
        p = np.exp(log_softmax(logits))
        # W has prior variance 1/penalty, so v = √penalty W. With H = Σ w F² p (1-p), the diagonal
        # of the Hessian, the posterior precision of v is about 1 + H/penalty:
        # 1 - s² = H / (H + penalty).
        variance = p * (1 - p)
        variance *= w[:, None]
        curvature = double(np.square(F).T) @ variance
        shares = curvature / (curvature + self.penalty)
        known = shares.sum(axis=1)  # Σ_k (1 - s²_jk)
        w2 = np.square(fitted.weight, dtype=np.float64)
        v2 = self.penalty * w2.sum(axis=1)
        precision = 1 + known
        tau = v2 / precision
        deviation = np.sqrt(tau)
        return np.asarray(deviation)


def _rescaled(fitted: FittedSoftmax, scale: Float32, largest: Float32) -> FittedSoftmax:
    """The same logits from features of another scale, where it is not as good as none."""
    none = largest * 1e-4
    scale[scale < none] = 0
    change = _ratio(scale, fitted.scale)
    kept = change > 0
    divisor = np.where(kept, change, np.inf)  # features left out get 0
    weight = fitted.weight / divisor[:, None]
    return replace(
        fitted,
        scale=scale,
        weight=single(weight),
    )


def _ratio(scale: Float32, before: Float32) -> Float32:
    """``scale / before``, and 0 of features that were left out before."""
    none = np.zeros_like(scale)
    return np.divide(scale, before, out=none, where=before > 0)


@dataclass(frozen=True)
class TunedSoftmax(Softmax):
    """Softmax regression with the penalty of the lowest held-out loss: for embeddings."""

    #: that are tried, in this order
    penalties: tuple[float, ...] = (0.3, 0.1, 0.03, 0.01, 0.003)
    #: features × classes: of fewer, one fixed penalty will do
    fewest_weights: int = 1_000
    parts: int = 6  #: of the rows, of which one is held out
    choosing_rows: int = 20_000  #: rows that choose the penalty

    def takes_part(self, n: int, d: int, k: int) -> bool:
        return d * k >= self.fewest_weights and super().takes_part(n, d, k)

    def full_penalty(self, D: int) -> float:
        """It grows with D: a prior on logits, not on weights."""
        return self.penalty * D

    def cost(self, n: int, d: int, k: int) -> float:
        few = min(n, self.choosing_rows)
        return super().cost(n, d, k) + 1.5 * super().cost(few, d, k)

    def learn(self, task: Task) -> FittedSoftmax:
        return Softmax.learn(replace(self, penalty=self._best_penalty(task)), task)

    def _best_penalty(self, task: Task) -> float:
        """Try penalties from large to small, each from the last fit, until held-out loss rises."""
        part = task.inner_parts(self.parts, task.seed)
        test = np.flatnonzero(part == 0)
        if len(test) == 0:
            return self.penalties[0]
        generator = np.random.default_rng(task.seed)
        others = np.flatnonzero(part != 0)
        few = some(others, self.choosing_rows, generator)
        train = task.rows(few)
        few = some(test, self.choosing_rows, generator)
        held_out = task.rows(few)
        fitted = self._start(train)
        F = fitted.standardised(train.X)
        lowest = np.inf
        best = self.penalties[0]
        for penalty in self.penalties:
            tried = replace(self, penalty=penalty)
            fitted = tried._optimum(
                fitted,
                train,
                self.max_iterations,
                F,
            )
            own = of_class(fitted.log_posteriors(held_out.X), held_out.codes)
            loss = float(-held_out.weights @ own)
            if loss > lowest:
                break
            lowest = loss
            best = penalty
        return best


@dataclass(frozen=True)
class Additive(Softmax):
    """Softmax regression on functions of one feature each: see :class:`Scores`."""

    most_features: float = 300
    whitened: bool = True
    steps: bool = True
    #: of steps beside that of scores: a twenty-fifth of the variance a priori, so that what is
    #: linear stays so
    step_scale: float = 0.2
    rank_rows: int = 20_000  #: rows that tell the ranks of values
    ranks: int = 100  #: quantiles that are kept of them

    def n_regression_features(self, d: int) -> int:
        if self.steps:
            return d * (1 + len(STEPS))
        return d

    def cost(self, n: int, d: int, k: int) -> float:
        of_scores = 2e-7 * n * d
        return of_scores + 1.7 * super().cost(n, d, k)

    def feature_map(self, task: Task) -> Scores:
        X, _, _ = task.sample(self.rank_rows)
        levels = np.linspace(0, 1, self.ranks)
        quantiles = np.quantile(X, levels, axis=0)
        return Scores(single(quantiles), self.steps)

    def feature_scale(self, scale: Float32, d: int) -> Float32:
        scale[d:] *= self.step_scale
        return scale


def weighted_moments(
    features: Inputs | Products | Scores, X: Any, w: FloatArray, constant: float = 1e-6
) -> tuple[Float32, Float32]:
    """Weighted mean and inverse standard deviation of the regression features.

    A feature that varies by less than a share ``constant`` of its size says nothing: scale 0 takes
    it out instead of dividing by rounding noise.
    """
    D = features.size
    total = np.zeros(D)
    squares = np.zeros(D)
    n = len(X)
    for block in blocks(n, D, BLOCK_NUMBERS):
        x = single(X[block])
        expanded = features.expand(x)
        f = double(expanded)
        own = w[block]
        total += own @ f
        squares += own @ (f * f)
    weight = w.sum()
    mean = total / weight
    variance = squares / weight
    variance -= mean * mean
    sd = np.sqrt(np.maximum(variance, 0))
    size = 1 + np.abs(mean)
    rounding = constant * size
    varies = sd > rounding
    scale = np.where(varies, 1 / np.maximum(sd, 1e-30), 0.0)
    return single(mean), single(scale)


# The objective and its minimum


@dataclass(frozen=True)
class Rows:
    """Features, classes and shares of the rows: of all at once, or made anew at every step."""

    fitted: FittedSoftmax
    X: Any
    codes: IntArray
    shares: Float32  #: of the weights
    kept: Float32 | None  #: all features, where they fit into memory

    @classmethod
    def of(cls, fitted: FittedSoftmax, task: Task, kept: Float32 | None) -> Rows:
        most_kept = 100_000_000  # numbers in memory (400 MB)
        numbers = len(task.codes) * len(fitted.mean)
        if kept is None and numbers <= most_kept:
            X = single(task.X[:])
            kept = fitted.standardised(X)
        w = task.weights
        shares = w / w.sum()
        return cls(
            fitted,
            task.X,
            task.codes,
            single(shares),
            kept,
        )

    def __iter__(self) -> Iterator[tuple[Float32, IntArray, Float32]]:
        """(features, codes, shares) of blocks of rows."""
        if self.kept is not None:
            yield self.kept, self.codes, self.shares
            return
        n = len(self.codes)
        D = len(self.fitted.mean)
        for block in blocks(n, D, BLOCK_NUMBERS):
            x = single(self.X[block])
            yield (
                self.fitted.standardised(x),
                self.codes[block],
                self.shares[block],
            )

    def cross_entropy(
        self, W: Float32, bias: Float32
    ) -> tuple[float, FloatArray, FloatArray]:
        """Mean cross-entropy and its gradients by W and by the bias."""
        loss = 0.0
        dW = np.zeros(W.shape)
        db = np.zeros(len(bias))
        n_classes = len(bias)
        for F, codes, share in self:
            z = F @ W
            z += bias
            z -= row_max(z)
            flat = z.reshape(-1)
            own = np.arange(0, len(flat), n_classes) + codes
            right = double(flat[own])
            p = np.exp(z, out=z)
            total = row_sums(p)[:, 0]
            log_total = np.log(double(total))
            losses = log_total - right
            loss += float(share @ losses)
            factor = share / total
            p *= factor[:, None]  # ∂loss/∂logits = (p - onehot(y)) · share
            flat[own] -= share
            dW += F.T @ p
            db += p.sum(axis=0)
        return loss, dW, db


def minimised(
    rows: Rows, penalty: float, limit: int, factors: list[Any], bias: Any
) -> tuple[FloatArray, FloatArray]:
    """W and bias at the minimum; ``factors`` are [W] or [U, V] with W = U Vᵀ."""
    start_parts = [*factors, bias]
    shapes = [part.shape for part in start_parts]

    def loss_and_gradient(flat: FloatArray) -> tuple[float, FloatArray]:
        *parts, b = _unpacked(flat, shapes)
        W = single(_product(parts))
        b_single = single(b)
        loss, dW, db = rows.cross_entropy(W, b_single)
        gradients = [dW]
        n_parts = len(parts)
        if n_parts == 2:  # W = U Vᵀ: ∂/∂U = dW V and ∂/∂V = dWᵀ U
            U, V = parts
            dU = dW @ V
            dV = dW.T @ U
            gradients = [dU, dV]
        half = 0.5 * penalty
        pairs = zip(parts, gradients, strict=True)
        for part, gradient in pairs:
            loss += half * float((part * part).sum())
            gradient += penalty * part
        by_part = [*gradients, db]
        packed = _packed(by_part)
        return loss, packed

    start = _packed(start_parts)
    flat = _lowest(loss_and_gradient, start, limit, rows)
    *parts, b = _unpacked(flat, shapes)
    W = _product(parts)
    return W, b


def _lowest(
    loss_and_gradient: Callable[[FloatArray], tuple[float, FloatArray]],
    start: FloatArray,
    limit: int,
    rows: Rows,
) -> FloatArray:
    """The minimum by L-BFGS.

    A step that raises the log likelihood of all rows by less than 1e-3 is the end.
    """
    options: Any = {
        "maxiter": limit,
        "ftol": 1e-3 / len(rows.codes),
        "gtol": 1e-6,
        "maxcor": 20,
    }
    found = minimize(
        loss_and_gradient, start, jac=True, method="L-BFGS-B", options=options
    )
    return np.asarray(found.x)


def minimised_whitened(
    rows: Rows, penalty: float, limit: int, start: FittedSoftmax
) -> tuple[FloatArray, FloatArray]:
    """W and bias at the minimum, of the features that have a scale; the others get 0.

    With H = L Lᵀ about the Hessian of a class, V = Lᵀ W has one of about 1: a fifth of the steps.
    """
    assert rows.kept is not None
    scale = start.scale
    used = np.flatnonzero(scale > 0)
    n_used = len(used)
    F = rows.kept
    if n_used < len(scale):
        F = np.ascontiguousarray(F[:, used])
    own = replace(rows, kept=F)
    n_classes = len(start.bias)
    weight_shape = (n_used, n_classes)
    shapes = [weight_shape, (n_classes,)]
    priors = class_weights(
        rows.codes,
        rows.shares,
        n_classes,
    )
    inverse = _whitening(F, penalty, priors)

    def loss_and_gradient(flat: FloatArray) -> tuple[float, FloatArray]:
        V, bias = _unpacked(flat, shapes)
        W = inverse @ V
        W_single = single(W)
        b_single = single(bias)
        loss, dW, db = own.cross_entropy(W_single, b_single)
        loss += 0.5 * penalty * float((W * W).sum())
        dW += penalty * W
        dV = inverse.T @ dW
        gradient = _packed([dV, db])
        return loss, gradient

    V = solve_triangular(inverse, double(start.weight[used]))
    begin = _packed([V, start.bias])
    flat = _lowest(loss_and_gradient, begin, limit, rows)
    V, bias = _unpacked(flat, shapes)
    W = np.zeros(start.weight.shape)
    W[used] = inverse @ V
    return W, bias


def _whitening(F: Float32, penalty: float, priors: FloatArray) -> FloatArray:
    """L⁻ᵀ of H = curvature · FᵀF / n + penalty.

    From all rows while that is fast: a feature that is rare must not be missing from a sample.
    """
    n, D = F.shape
    step = max(1, round(n * D * D / 2e10))
    sample = F[::step]
    variances = priors * (1 - priors)
    curvature = float(variances.mean())
    gram = double(sample.T @ sample)
    unit = np.eye(D)
    H = curvature * gram / len(sample)
    H += penalty * unit
    lower = cholesky(H, lower=True, check_finite=False)
    inverse: FloatArray = solve_triangular(
        lower,
        unit,
        lower=True,
        check_finite=False,
    )
    return inverse.T


def _packed(parts: Sequence[npt.NDArray[Any]]) -> FloatArray:
    return np.concatenate([part.ravel() for part in parts])


def _unpacked(flat: FloatArray, shapes: list[tuple[int, ...]]) -> list[FloatArray]:
    parts = []
    start = 0
    for shape in shapes:
        end = start + math.prod(shape)
        parts.append(flat[start:end].reshape(shape))
        start = end
    return parts


def _product(parts: list[FloatArray]) -> FloatArray:
    if len(parts) == 1:
        return parts[0]
    U, V = parts
    return U @ V.T
