"""Problems with known truth that only the studies use, and those of the package beside them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from collidescope.datasets import (
    GaussianProblem,
    Problem,
    dense,
    equidistant,
    imbalanced,
    led,
    ring,
    scenario_a,
    scenario_b,
    tangled,
    taught,
    waveform,
)

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]
Inputs = Callable[[int, np.random.Generator], FloatArray]

__all__ = [
    "GaussianProblem",
    "Problem",
    "chessboard",
    "equidistant",
    "friedman",
    "heavy_tailed",
    "imbalanced",
    "interactions",
    "led",
    "mlp_teacher",
    "ring",
    "ringnorm",
    "scenario_a",
    "scenario_b",
    "sparse_words",
    "spiral",
    "tangled",
    "tree_teacher",
    "twonorm",
    "waveform",
]


def twonorm(n_features: int = 20) -> GaussianProblem:
    """Breiman's twonorm: unit Gaussians at ±2/√d in every one of d coordinates."""
    centre = np.full(n_features, 2 / np.sqrt(n_features))
    return GaussianProblem([-centre, centre])


def ringnorm(n_features: int = 20) -> GaussianProblem:
    """Breiman's ringnorm: a Gaussian of scale 2 at 0 around a unit one at 2/√d per coordinate."""
    inner = np.full(n_features, 2 / np.sqrt(n_features))
    return GaussianProblem([np.zeros(n_features), inner], [2.0, 1.0])


def heavy_tailed(
    n_classes: int = 4, n_features: int = 6, freedom: float = 1.5
) -> Problem:
    """Multivariate Student t of few degrees of freedom, of different widths."""
    rng = np.random.default_rng(0)
    centres = 1.5 * rng.standard_normal((n_classes, n_features))
    scales = np.geomspace(0.5, 2, n_classes)

    def draws(codes: IntArray, rng: np.random.Generator) -> FloatArray:
        stretch = scales[codes] / np.sqrt(rng.chisquare(freedom, len(codes)) / freedom)
        return centres[codes] + stretch[:, None] * rng.standard_normal(
            (len(codes), n_features)
        )

    def log_densities(X: FloatArray) -> FloatArray:
        squares = ((X[:, None] - centres) ** 2).sum(axis=2) / scales**2
        tails = -(freedom + n_features) / 2 * np.log1p(squares / freedom)
        return tails - n_features * np.log(scales)

    return dense(draws, log_densities, n_classes, n_features)


def mlp_teacher(
    n_classes: int = 4, n_features: int = 10, width: int = 16, sharpness: float = 3.0
) -> Problem:
    """Labels by a random network of one hidden layer on Gaussian inputs."""
    rng = np.random.default_rng(0)
    inner = rng.standard_normal((n_features, width))
    outer = rng.standard_normal((width, n_classes)) / np.sqrt(width)
    return taught(
        _gaussian(n_features),
        lambda X: softmax(sharpness * np.tanh(X @ inner) @ outer, axis=1),
    )


def tree_teacher(n_classes: int = 3, n_features: int = 8, depth: int = 6) -> Problem:
    """Labels by a random tree on uniform inputs: each of 2^depth leaves has its own posterior."""
    rng = np.random.default_rng(0)
    features = rng.integers(n_features, size=2**depth)
    thresholds = rng.uniform(0.3, 0.7, 2**depth)
    leaves = rng.dirichlet(np.full(n_classes, 0.3), 2**depth)

    def teacher(X: FloatArray) -> FloatArray:
        node = np.ones(len(X), dtype=np.intp)
        for _ in range(depth):
            node = 2 * node + (X[np.arange(len(X)), features[node]] > thresholds[node])
        return leaves[node - 2**depth]

    return taught(_uniform(n_features), teacher)


def chessboard(n_features: int = 4, fields: int = 4, noise: float = 0.1) -> Problem:
    """The colour of a field, wrong with probability ``noise``: to be learned field by field."""
    shown = np.array([[1 - noise, noise], [noise, 1 - noise]])
    return taught(
        _uniform(n_features),
        lambda X: shown[np.floor(fields * X).sum(axis=1).astype(int) % 2],
    )


def friedman(
    n_classes: int = 4, n_features: int = 10, sharpness: float = 4.0
) -> Problem:
    """Friedman's regression function of uniform inputs, cut into classes with soft edges."""
    centres = np.linspace(8, 20, n_classes)

    def teacher(X: FloatArray) -> FloatArray:
        wave = 10 * np.sin(np.pi * X[:, 0] * X[:, 1])
        bowl = 20 * (X[:, 2] - 0.5) ** 2
        f = wave + bowl + 10 * X[:, 3] + 5 * X[:, 4]
        gap = centres[1] - centres[0]
        distances = (f[:, None] - centres) / gap
        return np.asarray(softmax(-sharpness * distances**2, axis=1))

    return taught(_uniform(n_features), teacher)


def sparse_words(
    n_classes: int = 3, n_features: int = 200, relevant: int = 20
) -> Problem:
    """Rare 0/1 features of which few matter: a log-linear teacher in many dimensions."""
    weights = np.zeros((n_features, n_classes))
    weights[:relevant] = 2.5 * np.random.default_rng(0).standard_normal(
        (relevant, n_classes)
    )
    uniform = _uniform(n_features)
    return taught(
        lambda n, rng: (uniform(n, rng) < 0.1).astype(float),
        lambda X: softmax(X @ weights, axis=1),
    )


def spiral(n_classes: int = 3, turns: float = 1.5, sharpness: float = 3.0) -> Problem:
    """Arms of a spiral in the plane: the class follows the angle, which turns with the radius."""
    arms = 2 * np.pi * np.arange(n_classes) / n_classes

    def teacher(X: FloatArray) -> FloatArray:
        angle = np.arctan2(X[:, 1], X[:, 0]) - turns * np.pi * np.hypot(
            X[:, 0], X[:, 1]
        )
        return softmax(sharpness * np.cos(angle[:, None] - arms), axis=1)

    return taught(_gaussian(2), teacher)


def interactions(
    n_features: int = 12, pairs: int = 4, sharpness: float = 1.5
) -> Problem:
    """Two classes by the sum of products of features: no feature says anything alone."""

    def teacher(X: FloatArray) -> FloatArray:
        logit = sharpness * (X[:, 0 : 2 * pairs : 2] * X[:, 1 : 2 * pairs : 2]).sum(
            axis=1
        )
        return softmax(np.column_stack([logit, -logit]) / 2, axis=1)

    return taught(_gaussian(n_features), teacher)


def _gaussian(d: int) -> Inputs:
    return lambda n, rng: rng.standard_normal((n, d))


def _uniform(d: int) -> Inputs:
    return lambda n, rng: rng.random((n, d))
