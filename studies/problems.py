"""Problems with known truth that only the studies use.

A *kind* is a function of the number of rows and a generator that returns inputs, labels and true
posteriors. ``FRESH`` holds :class:`~collidescope.datasets.Problem` objects made the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats
from scipy.spatial.distance import cdist
from scipy.special import logsumexp, softmax

from collidescope import CollisionMatrix, collision_matrix_from_posteriors
from collidescope.datasets import Problem
from collidescope.equations.densities import draw_classes
from studies.known import Inputs, gaussian, taught, uniform
from studies.measures import Array, Rng

#: Inputs, labels, true posteriors.
Sample = tuple[Array, Array, Array]
Kind = Callable[[int, Rng], Sample]
TRUTH_ROWS = 50_000  #: drawn to know what is true of a kind
Logits = Callable[[Array], Any]


@dataclass(frozen=True)
class OfKind:
    """A kind, asked as a :class:`~collidescope.datasets.Problem` is."""

    kind: Kind

    def sample(
        self, n_samples: int, random_state: int, *, stratified: bool = False
    ) -> tuple[Array, Array]:
        """Inputs and labels; the shares of the classes are those of the draw."""
        if stratified:
            raise ValueError("a kind draws labels as they come: stratified=False")
        X, y, _ = self.kind(n_samples, np.random.default_rng(random_state))
        return X, y

    def collision_matrix(self) -> CollisionMatrix:
        """The true S: the mean of p pᵀ over many rows."""
        return collision_matrix_from_posteriors(self._posteriors())

    def bayes_error(self) -> float:
        """The error of the most likely class, over as many rows."""
        largest = self._posteriors().max(axis=1)
        return float(1 - largest.mean())

    def _posteriors(self) -> Array:
        _, _, P = self.kind(TRUTH_ROWS, np.random.default_rng(5))
        return P


def posteriors_of(logits: Array) -> Array:
    """The softmax of logits, one row each; one column, or none, is the log odds of two classes."""
    z = np.reshape(logits, (len(logits), -1))
    if z.shape[1] == 1:
        z = np.hstack([z, np.zeros((len(z), 1))])
    return softmax(z, axis=1)


def problem_of(inputs: Inputs, logits: Logits) -> Callable[[], Problem]:
    """Labels drawn from the softmax of the logits."""
    return lambda: taught(inputs, lambda X: posteriors_of(logits(X)))


def deep(X: Array) -> Array:
    """A network of three random layers."""
    rng = np.random.default_rng(10)
    Z = X
    for _ in range(3):
        width = Z.shape[1]
        Z = np.tanh(1.6 * Z @ rng.normal(size=(width, 16)) / np.sqrt(width))
    return 1.2 * Z @ rng.normal(size=(16, 5))


def fixed(seed: int, *shape: int) -> Array:
    """Random coefficients that are the same in every sample."""
    return np.random.default_rng(seed).normal(size=shape)


#: Beside the problems of the study of the range.
FRESH = {
    "additive": problem_of(
        uniform(6, -2, 2),
        lambda X: (
            2 * np.sin(2 * X[:, 0])
            + X[:, 1] ** 2
            - 2.8
            + 1.5 * np.abs(X[:, 2])
            + (X[:, 3] > 0)
        ),
    ),
    "sine": problem_of(uniform(1, -2, 2), lambda X: 3 * np.sin(6 * X)),
    "log-normal": problem_of(
        lambda n, rng: np.exp(1.5 * rng.normal(size=(n, 8))),
        lambda X: 0.6 * np.log(X) @ fixed(4, 8, 3),
    ),
    "ratios": problem_of(
        lambda n, rng: np.exp(rng.normal(size=(n, 5))),
        lambda X: 2 * np.log(X[:, 0] / X[:, 1]) + 2 * np.log(X[:, 2] + X[:, 3]),
    ),
    "hinges": problem_of(
        gaussian(10),
        lambda X: (
            0.8 * np.maximum(X @ fixed(6, 10, 12) + fixed(7, 12), 0) @ fixed(8, 12, 4)
        ),
    ),
    "single index": problem_of(
        gaussian(15), lambda X: 3 * np.sin(2.5 * X @ fixed(9, 15) / np.sqrt(15))
    ),
    "steps": problem_of(
        uniform(5, -2, 2),
        lambda X: (
            2 * (X[:, 0] > -0.8)
            - 3 * (X[:, 0] > 0.8)
            + 1.5 * (X[:, 1] > 0)
            - 2 * (X[:, 2] > -1.2)
        ),
    ),
    "circle in noise": problem_of(
        gaussian(20), lambda X: 2 * np.square(X[:, :2]).sum(axis=1) - 4
    ),
    "exclusive or in noise": problem_of(
        gaussian(12), lambda X: 3 * np.sign(X[:, 0] * X[:, 1])
    ),
    "categories": problem_of(
        lambda n, rng: rng.integers(0, 8, size=(n, 6)).astype(float),
        lambda X: sum(
            fixed(column, 8, 3)[X[:, column].astype(int)] for column in range(6)
        ),
    ),
    "deep network": problem_of(gaussian(12), deep),
    "bumps": problem_of(
        uniform(3, -2, 2),
        lambda X: (
            4
            * np.exp(-np.square(X[:, None] - fixed(11, 20, 3)).sum(axis=2) / 0.6)
            @ fixed(12, 20, 3)
        ),
    ),
}


def of_logits(inputs: Inputs, logits: Logits) -> Kind:
    """Labels drawn from the softmax of the logits."""

    def sample(n: int, rng: Rng) -> Sample:
        X = inputs(n, rng)
        P = posteriors_of(logits(X))
        return X, draw_classes(P, rng), P

    return sample


def of_classes(
    draw: Callable[[Array, Rng], Array],
    log_densities: Logits,
    priors: Array,
) -> Kind:
    """Inputs drawn class by class."""

    def sample(n: int, rng: Rng) -> Sample:
        y = rng.choice(len(priors), n, p=priors)
        X = draw(y, rng)
        return X, y, softmax(log_densities(X) + np.log(priors), axis=1)

    return sample


def shifted(means: Array, priors: Array) -> Kind:
    """Gaussian classes with one covariance, the identity."""
    return of_classes(
        lambda y, rng: means[y] + rng.normal(size=(len(y), means.shape[1])),
        lambda X: X @ means.T - 0.5 * np.square(means).sum(axis=1),
        priors,
    )


def ordered(inputs: Inputs, score: Logits, edges: Array, noise: float) -> Kind:
    """Classes are intervals of a score with Gaussian noise."""

    def sample(n: int, rng: Rng) -> Sample:
        X = inputs(n, rng)
        below = stats.norm.cdf((edges - score(X)[:, None]) / noise)
        P = np.diff(np.hstack([np.zeros((n, 1)), below, np.ones((n, 1))]), axis=1)
        return X, draw_classes(P, rng), P

    return sample


def codes(levels: int, columns: int) -> Inputs:
    """Categories, one-hot."""

    def inputs(n: int, rng: Rng) -> Array:
        numbers = rng.integers(0, levels, (n, columns))
        return np.eye(levels)[numbers].reshape(n, -1)

    return inputs


def even(k: int) -> Array:
    return np.full(k, 1 / k)


def topics(words: int, k: int) -> Array:
    """Shares of words: common ones, and those of each topic."""
    common = np.random.default_rng(3).dirichlet(np.full(words, 0.3), 1)
    own = np.random.default_rng(4).dirichlet(np.full(words, 0.1), k)
    return 0.7 * common + 0.3 * own + 1e-12


def exposed(y: Array, rng: Rng) -> Array:
    """Counts of ten words in texts of log-normal lengths."""
    length = 25 * np.exp(rng.normal(size=(len(y), 1)))
    return rng.poisson(length * topics(10, 4)[y]).astype(float)


MEMORY = np.array([0.1, 0.35, 0.6])


def series(y: Array, rng: Rng) -> Array:
    """Each of 40 values depends on the one before, more or less by class."""
    X = rng.normal(size=(len(y), 40))
    for t in range(1, 40):
        X[:, t] += MEMORY[y] * X[:, t - 1]
    return X


def series_densities(X: Array) -> Array:
    news = [X[:, 1:] - memory * X[:, :-1] for memory in MEMORY]
    return np.stack([-0.5 * np.square(own).sum(axis=1) for own in news], axis=1)


RHO = np.array([-0.6, 0.0, 0.6])


def pairs(y: Array, rng: Rng) -> Array:
    """Three pairs of log-normal features, correlated by class."""
    Z = rng.normal(size=(len(y), 3, 2))
    own = RHO[y][:, None]
    Z[..., 1] = own * Z[..., 0] + np.sqrt(1 - own**2) * Z[..., 1]
    return np.exp(1.2 * Z).reshape(len(y), 6)


def pair_densities(X: Array) -> Array:
    u, v = np.log(X.reshape(len(X), 3, 2, 1)).transpose(2, 0, 1, 3) / 1.2
    variance = 1 - RHO**2
    logs = -0.5 * np.square(v - RHO * u) / variance - 0.5 * np.log(variance)
    return logs.sum(axis=1)


def turned_boxes(X: Array) -> Array:
    a, b, c = (X @ np.linalg.qr(fixed(14, 6, 6))[0])[:, :3].T
    return 5 * (a > 0) * (b > -0.5) - 3 * (c > 0.3) - 1


def nearest_of_150(X: Array) -> Array:
    """The class of the nearest of 150 prototypes."""
    nearest = cdist(X, fixed(19, 150, 6), "sqeuclidean").argmin(axis=1)
    return 3 * np.eye(3)[nearest % 3]


def t_classes(A: Array, means: Array) -> Kind:
    """Multivariate t with three degrees of freedom, each class with its own scale matrix."""
    classes = [
        stats.multivariate_t(mean, own @ own.T, df=3)
        for mean, own in zip(means, A, strict=True)
    ]

    def draw(y: Array, rng: Rng) -> Array:
        normals = rng.normal(size=(len(y), means.shape[1]))
        scales = np.sqrt(rng.chisquare(3, size=(len(y), 1)) / 3)
        return means[y] + np.einsum("nij,nj->ni", A[y], normals / scales)

    def log_densities(X: Array) -> Array:
        return np.stack([own.logpdf(X) for own in classes], axis=1)

    return of_classes(draw, log_densities, even(len(means)))


def mixtures(centres: Array, sd: float) -> Kind:
    """Several Gaussians per class, (classes, Gaussians, features)."""
    k, parts, d = centres.shape

    def draw(y: Array, rng: Rng) -> Array:
        chosen = rng.integers(0, parts, len(y))
        return centres[y, chosen] + sd * rng.normal(size=(len(y), d))

    def log_densities(X: Array) -> Array:
        distances = np.square(X[:, None, None] - centres).sum(axis=3)
        return logsumexp(-distances / (2 * sd**2), axis=2)

    return of_classes(draw, log_densities, even(k))


def independent(family: Callable[..., Any], *parameters: Any) -> Kind:
    """Features independent within a class, of one of scipy's families.

    Parameters are arrays of shape (classes, features).
    """
    known = family(*parameters)
    log = getattr(known, "logpmf", None) or known.logpdf

    def draw(y: Array, rng: Rng) -> Array:
        own = family(*(parameter[y] for parameter in parameters))
        return np.asarray(own.rvs(random_state=rng), dtype=float)

    def log_densities(X: Array) -> Array:
        return log(X[:, None]).sum(axis=2)

    return of_classes(draw, log_densities, even(len(parameters[0])))


def words(shares: Array, length: float) -> Kind:
    """Counts of words in texts of different lengths."""
    whole = shares / shares.sum(axis=1)[:, None]
    logs = np.log(whole).T

    def draw(y: Array, rng: Rng) -> Array:
        lengths = rng.poisson(length, len(y)) + 3
        return rng.multinomial(lengths, whole[y]).astype(float)

    return of_classes(draw, lambda X: X @ logs, even(len(shares)))


MEANS = np.pad(0.5 * fixed(1, 3, 30), ((0, 0), (0, 270)))
CELLS = 1.5 * fixed(11, 6, 6, 6, 3)
HALVES = 0.5 ** np.arange(6) / (0.5 ** np.arange(6)).sum()
KINDS = {
    "5 of 200 columns": of_logits(
        gaussian(200), lambda X: X[:, :5] @ [2, -2, 1.5, 1.5, -1]
    ),
    "4 of 300 columns, four classes": of_logits(
        gaussian(300), lambda X: 2 * X[:, :4] @ fixed(2, 4, 4)
    ),
    "200 columns, all of them": of_logits(
        gaussian(200), lambda X: 0.17 * X @ fixed(23, 200, 3)
    ),
    "30 of 300 means": shifted(MEANS, even(3)),
    "a rare class": of_logits(
        gaussian(8),
        lambda X: 1.2 * X[:, 0] + 1.5 * np.sin(2 * X[:, 1]) + X[:, 2] * X[:, 3] - 4.5,
    ),
    "unequal shares": shifted(1.1 * fixed(15, 6, 6), HALVES),
    "Cauchy columns": of_logits(
        lambda n, rng: rng.standard_t(1, (n, 8)),
        lambda X: 1.2 * np.arctan(X) @ fixed(8, 8, 3),
    ),
    "parity of three signs": of_logits(
        gaussian(6), lambda X: 3 * np.sign(X[:, :3].prod(axis=1))
    ),
    "board of 16 fields in noise": of_logits(
        uniform(5, -2, 2), lambda X: 3 * (-1.0) ** np.floor(X[:, :2] + 2).sum(axis=1)
    ),
    "sine of a product": of_logits(
        gaussian(6), lambda X: 3 * np.sin(3 * X[:, 0] * X[:, 1])
    ),
    "product or product or product": of_logits(
        lambda n, rng: rng.integers(0, 2, (n, 15)).astype(float),
        lambda X: 6 * (X[:, :6:2] * X[:, 1:6:2]).any(axis=1) - 3,
    ),
    "largest of pairs": of_logits(
        gaussian(10), lambda X: 3 * np.maximum(X[:, ::2], X[:, 1::2])
    ),
    "near a diagonal": of_logits(
        uniform(6, -2, 2), lambda X: 6 * (np.abs(X[:, 0] - X[:, 1]) < 0.7) - 3
    ),
    "turned boxes": of_logits(gaussian(6), turned_boxes),
    "150 prototypes": of_logits(gaussian(6), nearest_of_150),
    "five categories": of_logits(codes(12, 5), lambda X: X @ fixed(10, 60, 3)),
    "a table of three categories": of_logits(
        codes(6, 3), lambda X: CELLS[tuple(X.reshape(-1, 3, 6).argmax(axis=2).T)]
    ),
    "nothing to learn": of_logits(
        gaussian(20), lambda X: np.tile([1, 0.5, 0, -0.5], (len(X), 1))
    ),
    "no noise": of_logits(gaussian(5), lambda X: 200 * X @ fixed(13, 5)),
    "ten ordered classes": ordered(
        gaussian(12), lambda X: X @ fixed(22, 12), np.linspace(-5, 5, 9), 1.2
    ),
    "a regression, cut": ordered(
        uniform(10, -2, 2),
        lambda X: 10 * np.sin(X[:, 0] * X[:, 1]) + 5 * X[:, 2] ** 2 + 3 * X[:, 3],
        np.array([-2.0, 4.0, 10.0, 16.0]),
        2.0,
    ),
    "words": words(topics(250, 4), 15),
    "counts and exposure": of_classes(
        exposed, lambda X: X @ np.log(topics(10, 4)).T, even(4)
    ),
    "presence of 200 words": independent(
        stats.bernoulli,
        1 / (1 + np.exp(1.5 - fixed(16, 200) - 0.5 * fixed(17, 3, 200))),
    ),
    "mixtures": mixtures(1.4 * fixed(9, 4, 3, 6), 0.8),
    "series with memory": of_classes(series, series_densities, even(3)),
    "correlations only": of_classes(pairs, pair_densities, even(3)),
    "scales only": independent(
        stats.norm, np.zeros((3, 15)), np.repeat([[1.0], [1.25], [1.6]], 15, axis=1)
    ),
    "t classes": t_classes(0.5 * fixed(21, 3, 5, 5) + np.eye(5), fixed(22, 3, 5)),
    "Laplace": independent(stats.laplace, 0.7 * fixed(12, 4, 10)),
    "exponential": independent(
        stats.gamma, np.ones((4, 8)), np.zeros((4, 8)), np.exp(0.35 * fixed(26, 4, 8))
    ),
    "beta": independent(
        stats.beta,
        np.exp(0.5 * fixed(27, 3, 6) + 0.3),
        np.exp(0.5 * fixed(28, 3, 6) + 0.3),
    ),
    "angles": independent(
        stats.vonmises,
        np.full((3, 3), 1.5),
        np.array([[0, 1, 0], [1.5, 2.5, -1.5], [3, 4, -3]]),
    ),
}
