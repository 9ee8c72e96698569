"""A small smooth network: one hidden layer of tanh units with a Gaussian prior, at its optimum.

Symbols: n rows, H hidden units, W (d, H) and V (H, K) their weights; of two classes V is (H, 1),
the log odds of the second. L-BFGS minimises
``mean cross-entropy + penalty/(2n) · (‖W‖² + ‖V‖²)`` over all rows: nothing is held out to stop
early, so few rows are enough, and posteriors are smooth where trees and networks of ReLUs are not.
It takes a fraction of a second.

The network is that of :class:`sklearn.neural_network.MLPClassifier` with the same seed, to the last
bit, in half of the time: that one makes new arrays at every step, and takes the logarithm of every
posterior where only that of the label counts. As there, all is in single precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, xlogy

from collidescope._checks import IntArray
from collidescope.learners.base import (
    LARGEST_INPUT,
    ArrayMember,
    Fitted,
    FittedArrays,
    Float32,
    FloatArray,
    Task,
    double,
    log_softmax,
    row_max,
    row_sums,
    single,
)


@dataclass(frozen=True)
class FittedSmooth(FittedArrays):
    """Both layers of the network."""

    mean: Annotated[Float32, "f4 d"]
    scale: Annotated[Float32, "f4 d"]
    first: Annotated[Float32, "f4 d H"]
    first_bias: Annotated[Float32, "f4 H"]
    second: Annotated[Float32, "f4 H K"]
    second_bias: Annotated[Float32, "f4 K"]

    def __post_init__(self) -> None:
        most = 10_000
        units = len(self.first_bias)
        if not 0 < units <= most:
            wanted = f"1 to {most} hidden units"
            raise ValueError(f"a smooth network must have {wanted}, got {units}")

    @property
    def row_numbers(self) -> int:
        return sum(self.first.shape) + len(self.second_bias)

    def score(self, x: Float32) -> FloatArray:
        scaled = _scaled(x, self.mean, self.scale)
        hidden = np.tanh(scaled @ self.first + self.first_bias)
        logits = hidden @ self.second + self.second_bias
        return log_softmax(logits)


@dataclass(frozen=True)
class Smooth(ArrayMember):
    """One hidden layer of tanh units."""

    most_features: float = 300
    hidden: int = 32
    penalty: float = 10.0
    #: steps of L-BFGS; many rows need no more than the smaller number, which ends before they
    #: are fitted too well
    iterations: tuple[int, int] = (60, 200)
    row_steps: int = 6_000_000  #: rows × steps in between
    tolerance: float = 1e-4  #: change of the loss that ends them
    most_rows: int = 200_000  #: rows that it learns from
    most_numbers: int = 6_000_000  #: numbers in them
    #: a feature that varies by less is constant but for rounding
    constant: float = 1e-6

    learned: ClassVar[type[Fitted]] = FittedSmooth

    def cost(self, n: int, d: int, k: int) -> float:
        rows = min(n, self.most_rows, self.most_numbers // d)
        steps = self._n_iterations(rows)
        return 8e-11 * steps * rows * self.hidden * (d + k + 40)

    def _n_iterations(self, rows: int) -> int:
        fewest, most = self.iterations
        return int(np.clip(self.row_steps // rows, fewest, most))

    def learn(self, task: Task) -> FittedSmooth:
        X, y, w = task.sample(self.most_rows, self.most_numbers)
        mean = single(X.mean(axis=0, dtype=np.float64))
        scale = self._scale(X)
        scaled = _scaled(X, mean, scale)
        classes, own = np.unique(y, return_inverse=True)
        weights = None
        if task.sample_weight is not None:
            weights = w
        rows = Rows(scaled, own, len(classes), weights)
        layers = minimised(
            rows,
            Layers.drawn(self.hidden, scaled.shape[1], rows.n_outputs, task.seed),
            self.penalty,
            self._n_iterations(len(y)),
            self.tolerance,
        )
        last = layers.second
        bias = layers.second_bias
        if rows.n_outputs == 1:
            last = np.hstack([0 * last, last])
            bias = np.append(0.0, bias)
        # A class without a row in the sample keeps its prior, as both do where one has all rows.
        second = np.zeros((self.hidden, task.n_classes))
        second_bias = np.log(task.priors)
        if len(classes) > 1:
            second[:, classes] = last
            second_bias[classes] = bias
        return FittedSmooth(
            name=self.name,
            mean=mean,
            scale=scale,
            first=single(layers.first),
            first_bias=single(layers.first_bias),
            second=single(second),
            second_bias=single(second_bias),
        )

    def _scale(self, X: Float32) -> Float32:
        """Factors of the features that give them deviation 1, and 0 where they are constant."""
        sd = X.std(axis=0, dtype=np.float64)
        varies = sd > self.constant
        return single(np.where(varies, 1 / np.maximum(sd, self.constant), 0.0))


def _scaled(x: Float32, mean: Float32, scale: Float32) -> Float32:
    standardised = (x - mean) * scale
    clipped = np.clip(standardised, -LARGEST_INPUT, LARGEST_INPUT)
    return single(clipped)


@dataclass(frozen=True)
class Layers:
    """Weights and biases of both layers, or gradients by them."""

    first: Float32  #: W
    second: Float32  #: V
    first_bias: Float32
    second_bias: Float32

    @classmethod
    def drawn(cls, hidden: int, d: int, n_outputs: int, seed: int) -> Layers:
        """Uniform between limits that keep the variance of what goes through (Glorot 2010)."""
        generator = np.random.RandomState(int(seed) % 2**31)

        def layer(n_in: int, n_out: int) -> Iterator[Float32]:
            bound = np.sqrt(6 / (n_in + n_out))
            for shape in ((n_in, n_out), (n_out,)):
                drawn = generator.uniform(-bound, bound, shape)
                yield single(drawn)

        first, first_bias = layer(d, hidden)
        second, second_bias = layer(hidden, n_outputs)
        return cls(first, second, first_bias, second_bias)

    @property
    def flat(self) -> Float32:
        """All numbers in one vector."""
        parts = (self.first, self.second, self.first_bias, self.second_bias)
        return np.concatenate([part.ravel() for part in parts])

    def unpacked(self, flat: Float32 | FloatArray) -> Layers:
        """Layers of the same shapes, from their numbers."""
        parts = []
        start = 0
        for like in (self.first, self.second, self.first_bias, self.second_bias):
            end = start + like.size
            parts.append(flat[start:end].reshape(like.shape))
            start = end
        return Layers(*map(single, parts))


@dataclass(frozen=True)
class Rows:
    """Standardised rows, and the places of their classes among those that occur."""

    X: Float32
    codes: IntArray
    n_classes: int
    weights: FloatArray | None

    @property
    def n_outputs(self) -> int:
        """Of two classes one log odds."""
        if self.n_classes <= 2:
            return 1
        return self.n_classes

    @property
    def total(self) -> Any:
        """The sum of the weights."""
        if self.weights is None:
            return len(self.codes)
        return self.weights.sum()

    @cached_property
    def own(self) -> IntArray:
        """Where the labels are among the numbers of (n, K)."""
        first = np.arange(0, len(self.codes) * self.n_classes, self.n_classes)
        return first + self.codes

    def cross_entropy(self, logits: Float32) -> tuple[Any, Float32]:
        """The mean cross-entropy, and posteriors less labels, weighted; takes over ``logits``."""
        if self.n_outputs == 1:
            P = expit(logits, out=logits)
            right = np.where(self.codes[:, None] == 1, P, 1 - P)
            logs = _logarithms(right)
            loss = -np.average(logs, weights=self.weights, axis=0).sum()
            P -= self.codes[:, None]
        else:
            logits -= row_max(logits)
            P = np.exp(logits, out=logits)
            P /= row_sums(P)
            flat = P.reshape(-1)
            logs = _logarithms(flat[self.own])
            if self.weights is not None:
                logs *= self.weights
            of_classes = np.bincount(self.codes, logs, minlength=self.n_classes)
            loss = -(of_classes / self.total).sum()
            flat[self.own] -= 1
        if self.weights is not None:
            P *= self.weights[:, None]
        return loss, P


def _logarithms(right: Float32) -> FloatArray:
    """Of posteriors of labels; those of 0 and 1 are rounded ones.

    By xlogy, as scikit-learn: numpy's log rounds otherwise.
    """
    rounding = np.finfo(right.dtype).eps
    certain = np.clip(right, rounding, 1 - rounding)
    return double(xlogy(1.0, double(certain)))


@dataclass(frozen=True)
class Objective:
    """The penalised loss of layers of the shapes of ``like``, and its gradient."""

    rows: Rows
    like: Layers
    penalty: float

    @cached_property
    def hidden(self) -> Float32:
        """Where the outputs of hidden units go: memory that is new has to be cleared first."""
        return np.empty((len(self.rows.X), len(self.like.first_bias)), np.float32)

    @cached_property
    def back(self) -> Float32:
        """Where gradients by the inputs of hidden units go."""
        return np.empty_like(self.hidden)

    def __call__(self, flat: Float32 | FloatArray) -> tuple[Any, Float32]:
        layers = self.like.unpacked(single(flat))
        total = self.rows.total
        hidden = np.matmul(self.rows.X, layers.first, out=self.hidden)
        hidden += layers.first_bias
        np.tanh(hidden, out=hidden)
        logits = hidden @ layers.second
        logits += layers.second_bias
        loss, away = self.rows.cross_entropy(logits)
        squares: Any = 0
        for W in (layers.first, layers.second):
            squares += np.dot(W.ravel(), W.ravel())
        loss += 0.5 * self.penalty * squares / total
        second = self._gradient_by(hidden, away, layers.second)
        back = np.matmul(away, layers.second.T, out=self.back)
        # tanh' = 1 - tanh²
        np.square(hidden, out=hidden)
        np.subtract(1, hidden, out=hidden)
        back *= hidden
        first = self._gradient_by(self.rows.X, back, layers.first)
        gradient = Layers(
            first,
            second,
            first_bias=np.sum(back, axis=0) / total,
            second_bias=np.sum(away, axis=0) / total,
        )
        return loss, gradient.flat

    def _gradient_by(self, inputs: Float32, outputs: Float32, W: Float32) -> Float32:
        """The gradient by the weights W, from the inputs and the gradient by the outputs."""
        gradient: Float32 = inputs.T @ outputs
        gradient += self.penalty * W
        gradient /= self.rows.total
        return gradient


def minimised(
    rows: Rows, start: Layers, penalty: float, n_steps: int, tolerance: float
) -> Layers:
    """The layers that so many steps of L-BFGS reach, or that have no gradient left."""
    most_calls = 15_000
    objective: Any = Objective(rows, start, penalty)
    options: Any = {"maxfun": most_calls, "maxiter": n_steps, "gtol": tolerance}
    found = minimize(
        objective, start.flat, jac=True, method="L-BFGS-B", options=options
    )
    return start.unpacked(np.asarray(found.x))
