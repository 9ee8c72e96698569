"""A small smooth network: one hidden layer of tanh units with a Gaussian prior, at its optimum.

Symbols: H hidden units, W (d, H) and V (H, K) their weights. scikit-learn's L-BFGS minimises
``mean cross-entropy + penalty/(2n) · (‖W‖² + ‖V‖²)`` over all rows: nothing is held out to stop
early, so few rows are enough, and posteriors are smooth where trees and networks of ReLUs are not.
It takes a fraction of a second.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from collidescope.learners.base import (
    LARGEST_INPUT,
    ArrayMember,
    Fitted,
    FittedArrays,
    Float32,
    FloatArray,
    Task,
    log_softmax,
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

    parametric: ClassVar[bool] = True
    learned: ClassVar[type[Fitted]] = FittedSmooth

    def cost(self, n: int, d: int, k: int) -> float:
        rows = min(n, self.most_rows, self.most_numbers // d)
        steps = self._n_iterations(rows)
        return 8e-11 * steps * rows * self.hidden * (d + k + 40)

    def _n_iterations(self, rows: int) -> int:
        fewest, most = self.iterations
        return int(np.clip(self.row_steps // rows, fewest, most))

    def learn(self, task: Task) -> FittedSmooth:
        from sklearn.neural_network import MLPClassifier

        X, y, w = task.sample(self.most_rows, self.most_numbers)
        mean = single(X.mean(axis=0, dtype=np.float64))
        scale = self._scale(X)
        scaled = _scaled(X, mean, scale)
        network = MLPClassifier(
            (self.hidden,),
            activation="tanh",
            solver="lbfgs",
            alpha=self.penalty,
            max_iter=self._n_iterations(len(y)),
            tol=self.tolerance,
            random_state=int(task.seed) % 2**31,
        )
        with warnings.catch_warnings():
            # of convergence: the last steps change no digit of a posterior
            warnings.simplefilter("ignore")
            if task.sample_weight is None:
                network.fit(scaled, y)
            else:
                network.fit(scaled, y, sample_weight=w)
        first, own = network.coefs_
        first_bias, bias = network.intercepts_
        if own.shape[1] == 1:  # of two classes it gives the log odds of the second
            own = np.hstack([0 * own, own])
            bias = np.append(0.0, bias)
        # A class without a row in the sample keeps its prior.
        second = np.zeros((self.hidden, task.n_classes))
        second_bias = np.log(task.priors)
        second[:, network.classes_] = own
        second_bias[network.classes_] = bias
        return FittedSmooth(
            name=self.name,
            mean=mean,
            scale=scale,
            first=single(first),
            first_bias=single(first_bias),
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
