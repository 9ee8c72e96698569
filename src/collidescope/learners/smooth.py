"""A small smooth network: one hidden layer of tanh units with a Gaussian prior on its weights, at its optimum.

Symbols: H hidden units, W (d, H) and V (H, K) their weights. scikit-learn's L-BFGS minimises ``mean cross-entropy +
penalty/(2n) · (‖W‖² + ‖V‖²)`` over all rows: nothing is held out to stop early, so few rows are enough, and posteriors
are smooth where trees and networks of ReLUs are not. It takes a fraction of a second.
"""

from __future__ import annotations

import warnings
from typing import Annotated

import numpy as np

from collidescope.learners.base import (
    LARGEST_INPUT,
    ArrayMember,
    Float32,
    FloatArray,
    Task,
    log_softmax,
)

MAX_ITERATIONS, FLAT = 200, 1e-4  #: steps of L-BFGS, and the change of the loss that ends them
MOST_ROWS, MOST_NUMBERS = 10_000, 1_000_000  #: rows, and numbers in them, that it learns from
CONSTANT = 1e-6  #: a feature that varies by less is constant but for rounding
MOST_UNITS = 10_000  #: hidden units that a file may claim


class Smooth(ArrayMember):
    """One hidden layer of tanh units."""

    most_features = 300
    hidden: int = 32
    penalty: float = 10.0

    mean: Annotated[Float32, "f4 d"]
    scale: Annotated[Float32, "f4 d"]
    first: Annotated[Float32, "f4 d H"]
    first_bias: Annotated[Float32, "f4 H"]
    second: Annotated[Float32, "f4 H K"]
    second_bias: Annotated[Float32, "f4 K"]

    def learn(self, task: Task) -> None:
        from sklearn.neural_network import MLPClassifier

        X, y, w = task.sample(MOST_ROWS, MOST_NUMBERS)
        sd = X.std(axis=0, dtype=np.float64)
        self.mean = X.mean(axis=0, dtype=np.float64).astype(np.float32)
        self.scale = np.where(sd > CONSTANT, 1 / np.maximum(sd, CONSTANT), 0.0).astype(np.float32)
        options = {"activation": "tanh", "solver": "lbfgs", "max_iter": MAX_ITERATIONS, "tol": FLAT}
        network = MLPClassifier(
            (self.hidden,), alpha=self.penalty, random_state=int(task.seed) % 2**31, **options
        )
        with (
            warnings.catch_warnings()
        ):  # of convergence: the last steps change no digit of a posterior
            warnings.simplefilter("ignore")
            network.fit(self._scaled(X), y, sample_weight=None if task.sample_weight is None else w)
        self.first, own = (weights.astype(np.float32) for weights in network.coefs_)
        self.first_bias, bias = (biases.astype(np.float32) for biases in network.intercepts_)
        if own.shape[1] == 1:  # of two classes it gives the log odds of the second
            own, bias = np.hstack([0 * own, own]), np.append(np.float32(0), bias)
        # A class without a row in the sample keeps its prior.
        self.second = np.zeros((self.hidden, task.n_classes), dtype=np.float32)
        self.second_bias = np.log(task.priors).astype(np.float32)
        self.second[:, network.classes_], self.second_bias[network.classes_] = own, bias

    def _scaled(self, x: Float32) -> Float32:
        return np.asarray(
            np.clip((x - self.mean) * self.scale, -LARGEST_INPUT, LARGEST_INPUT), dtype=np.float32
        )

    @property
    def row_numbers(self) -> int:
        return sum(self.first.shape) + len(self.second_bias)

    def score(self, x: Float32) -> FloatArray:
        units = np.tanh(self._scaled(x) @ self.first + self.first_bias)
        return log_softmax(units @ self.second + self.second_bias)

    def check(self, n_features: int, n_classes: int) -> None:
        if not 0 < len(self.first_bias) <= MOST_UNITS:
            raise ValueError(
                f"a smooth network must have 1 to {MOST_UNITS} hidden units, got {len(self.first_bias)}"
            )
