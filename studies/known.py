"""Problems with known truth that only the studies use, and those of the package beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular
from scipy.spatial.distance import cdist
from scipy.special import log_ndtr, logsumexp, softmax
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.preprocessing import StandardScaler

from collidescope import _checks as check
from collidescope._checks import Array, ArrayLike, Given
from collidescope.datasets import (
    BLOCK,
    TRUTH_DRAWS,
    TRUTH_SEED,
    Blocks,
    Draws,
    GaussianProblem,
    Posteriors,
    Problem,
    equidistant,
    ring,
    scenario_a,
    scenario_b,
)
from collidescope.equations.densities import Seed, as_generator, draw_classes
from studies.measures import Rng

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]
Inputs = Callable[[int, Rng], FloatArray]

__all__ = [
    "GaussianProblem",
    "Problem",
    "equidistant",
    "ring",
    "scenario_a",
    "scenario_b",
    "tangled",
    "waveform",
]


def led(noise: float = 0.1, priors: Given = None) -> Problem:
    """A digit on seven segments, each of which shows the wrong state with probability ``noise``.

    The 128 possible inputs make every quantity exact, and inputs repeat, so that collisions can be
    counted.
    """
    check.check_between(noise, 0, 0.5, "noise")
    shares = np.full(10, 0.1)
    if priors is not None:
        shares = check.check_priors(priors, 10)
    # Of each digit: top, upper left, upper right, middle, lower left, lower right, bottom.
    shown = "1110111 0010010 1011101 1011011 0111010 1101011 1101111 1010010 1111111 1111011"
    segments = np.array([list(map(int, digit)) for digit in shown.split()])

    def draw(codes: IntArray, rng: Rng) -> IntArray:
        wrong = rng.random((len(codes), 7)) < noise
        return (segments[codes] ^ wrong).astype(np.intp)

    def joint(X: FloatArray) -> FloatArray:
        odd = X[~np.isin(X, (0, 1))]
        if odd.size:
            raise ValueError(f"X must hold segments of 0 or 1, got {odd[0]:.6g}")
        wrong = np.abs(X[:, None, :] - segments).sum(axis=2)
        return noise**wrong * (1 - noise) ** (7 - wrong) * shares

    def posteriors(X: FloatArray) -> FloatArray:
        likelihoods = joint(X)
        return likelihoods / likelihoods.sum(axis=1, keepdims=True)

    def nodes() -> Blocks:
        numbers = np.arange(128)[:, None]
        bits = (numbers >> np.arange(7)) & 1
        X = bits.astype(np.float64)
        yield posteriors(X), joint(X).sum(axis=1)

    return Problem(shares, np.arange(10), draw, posteriors, 7, nodes)


def taught(inputs: Inputs, teacher: Posteriors) -> Problem:
    """Inputs drawn by ``inputs(n, rng)``, labels from the posteriors that ``teacher(X)`` gives.

    >>> coin = taught(uniform(1), lambda X: np.hstack([X, 1 - X]))
    >>> round(coin.bayes_error(), 2), round(coin.collision_matrix().pber, 2)
    (0.25, 0.33)
    """

    def nodes() -> Blocks:
        rng = np.random.default_rng(TRUTH_SEED)
        for _ in range(TRUTH_DRAWS // BLOCK):
            yield teacher(inputs(BLOCK, rng)), np.full(BLOCK, 1 / TRUTH_DRAWS)

    priors = np.sum([weights @ P for P, weights in nodes()], axis=0)

    def draw(codes: IntArray, rng: Rng) -> FloatArray:
        """Inputs are drawn until their labels fit."""
        wanted = [np.flatnonzero(codes == k).tolist() for k in range(len(priors))]
        X = inputs(len(codes), rng)
        while any(wanted):
            block = inputs(len(codes) + 100, rng)
            labels = draw_classes(teacher(block), rng)
            for k, places in enumerate(wanted):
                found = np.flatnonzero(labels == k)[: len(places)]
                X[places[: len(found)]] = block[found]
                del places[: len(found)]
        return X

    n_features = inputs(1, np.random.default_rng(0)).shape[1]
    return Problem(priors, np.arange(len(priors)), draw, teacher, n_features, nodes)


def gaussian(d: int) -> Inputs:
    return lambda n, rng: rng.standard_normal((n, d))


def uniform(d: int, low: float = 0.0, high: float = 1.0) -> Inputs:
    return lambda n, rng: rng.uniform(low, high, (n, d))


def imbalanced(
    n_classes: int = 5,
    ratio: float = 100.0,
    n_features: int = 4,
    length: float = 6.0,
    random_state: Seed = None,
) -> GaussianProblem:
    """:func:`equidistant` with priors that fall geometrically.

    The first class is ``ratio`` times as common as the last.
    """
    check.check_at_least(ratio, 1, "ratio")
    weights = np.geomspace(ratio, 1, check.check_count(n_classes, "n_classes", least=2))
    return equidistant(
        n_classes, n_features, length, weights / weights.sum(), random_state
    )


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

    def draws(codes: IntArray, rng: Rng) -> FloatArray:
        stretch = scales[codes] / np.sqrt(rng.chisquare(freedom, len(codes)) / freedom)
        noise = rng.standard_normal((len(codes), n_features))
        return centres[codes] + stretch[:, None] * noise

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

    def teacher(X: FloatArray) -> FloatArray:
        return softmax(sharpness * np.tanh(X @ inner) @ outer, axis=1)

    return taught(gaussian(n_features), teacher)


def tree_teacher(n_classes: int = 3, n_features: int = 8, depth: int = 6) -> Problem:
    """Labels by a random tree on uniform inputs: each of 2^depth leaves has its own posterior."""
    rng = np.random.default_rng(0)
    features = rng.integers(n_features, size=2**depth)
    thresholds = rng.uniform(0.3, 0.7, 2**depth)
    leaves = rng.dirichlet(np.full(n_classes, 0.3), 2**depth)

    def teacher(X: FloatArray) -> FloatArray:
        node = np.ones(len(X), dtype=np.intp)
        rows = np.arange(len(X))
        for _ in range(depth):
            node = 2 * node + (X[rows, features[node]] > thresholds[node])
        return leaves[node - 2**depth]

    return taught(uniform(n_features), teacher)


def chessboard(n_features: int = 4, fields: int = 4, noise: float = 0.1) -> Problem:
    """The colour of a field, wrong with probability ``noise``: to be learned field by field."""
    shown = np.array([[1 - noise, noise], [noise, 1 - noise]])

    def teacher(X: FloatArray) -> FloatArray:
        field = np.floor(fields * X).sum(axis=1).astype(int)
        return shown[field % 2]

    return taught(uniform(n_features), teacher)


def friedman(
    n_classes: int = 4, n_features: int = 10, sharpness: float = 4.0
) -> Problem:
    """Friedman's regression function of uniform inputs, cut into classes with soft edges."""
    centres = np.linspace(8, 20, n_classes)

    def teacher(X: FloatArray) -> FloatArray:
        a, b, c, d, e = X.T[:5]
        wave = 10 * np.sin(np.pi * a * b)
        bowl = 20 * (c - 0.5) ** 2
        f = wave + bowl + 10 * d + 5 * e
        distances = (f[:, None] - centres) / (centres[1] - centres[0])
        return softmax(-sharpness * distances**2, axis=1)

    return taught(uniform(n_features), teacher)


def sparse_words(
    n_classes: int = 3, n_features: int = 200, relevant: int = 20
) -> Problem:
    """Rare 0/1 features of which few matter: a log-linear teacher in many dimensions."""
    coefficients = np.random.default_rng(0).standard_normal((relevant, n_classes))
    weights = np.zeros((n_features, n_classes))
    weights[:relevant] = 2.5 * coefficients

    def words(n: int, rng: Rng) -> FloatArray:
        return (rng.random((n, n_features)) < 0.1).astype(float)

    return taught(words, lambda X: softmax(X @ weights, axis=1))


def spiral(n_classes: int = 3, turns: float = 1.5, sharpness: float = 3.0) -> Problem:
    """Arms of a spiral in the plane: the class follows the angle, which turns with the radius."""
    arms = 2 * np.pi * np.arange(n_classes) / n_classes

    def teacher(X: FloatArray) -> FloatArray:
        x, y = X.T
        angle = np.arctan2(y, x) - turns * np.pi * np.hypot(x, y)
        return softmax(sharpness * np.cos(angle[:, None] - arms), axis=1)

    return taught(gaussian(2), teacher)


def interactions(
    n_features: int = 12, pairs: int = 4, sharpness: float = 1.5
) -> Problem:
    """Two classes by the sum of products of features: no feature says anything alone."""

    def teacher(X: FloatArray) -> FloatArray:
        products = X[:, 0 : 2 * pairs : 2] * X[:, 1 : 2 * pairs : 2]
        logit = sharpness * products.sum(axis=1)
        return softmax(np.column_stack([logit, -logit]) / 2, axis=1)

    return taught(gaussian(n_features), teacher)


# ------------------------------------------------- truth that looks real
# Densities of every class are fitted to real rows; their mixture is then the population, so that
# posteriors are known exactly. In many dimensions fitted classes hardly overlap: the posteriors
# that labels are drawn from are those of the densities at a temperature, p^(1/T).


def digit_images(temperature: float = 25.0) -> Problem:
    """8×8 images like scikit-learn's digits: per class two Gaussians of all 64 pixels."""
    X, y = load_digits(return_X_y=True)
    return _like(X, y, _two_gaussians, temperature)


def cancer_cells(temperature: float = 12.0) -> Problem:
    """30 measures of cell nuclei like scikit-learn's: kernel densities of two classes."""
    X, y = load_breast_cancer(return_X_y=True)
    return _like(StandardScaler().fit_transform(X), y, _kernels, temperature)


def wines(temperature: float = 8.0) -> Problem:
    """13 chemical measures of wines of three growers: kernel densities of three classes."""
    X, y = load_wine(return_X_y=True)
    return _like(StandardScaler().fit_transform(X), y, _kernels, temperature)


class _Gaussians(NamedTuple):
    """A density of one class: Gaussians with means and square roots of their covariances."""

    means: FloatArray  #: (M, d)
    #: lower triangular, (M, d, d), or (1, d, d) where all have the same
    roots: FloatArray

    def sample(self, n: int, rng: Rng) -> FloatArray:
        which = rng.integers(0, len(self.means), n)
        noise = rng.standard_normal((n, self.means.shape[1]))
        shape = self.roots[np.minimum(which, len(self.roots) - 1)]
        return self.means[which] + np.einsum("nij,nj->ni", shape, noise)

    def log_density(self, rows: FloatArray) -> FloatArray:
        """Up to a constant that is the same for all classes."""
        terms = []
        parts = np.array_split(self.means, len(self.roots))
        for root, means in zip(self.roots, parts, strict=True):
            white = solve_triangular(root, rows.T, lower=True).T
            centres = solve_triangular(root, means.T, lower=True).T
            squares = cdist(white, centres, "sqeuclidean")
            terms.append(-squares / 2 - np.log(np.diag(root)).sum())
        logs = np.concatenate(terms, axis=1)
        return logsumexp(logs, axis=1) - np.log(len(self.means))


def _two_gaussians(rows: FloatArray) -> _Gaussians:
    """Of two clusters; the variance of one grey level of sixteen is added to every pixel."""
    cluster = KMeans(2, n_init=5, random_state=0).fit_predict(rows)
    parts = [rows[cluster == number] for number in (0, 1)]
    means = np.array([part.mean(axis=0) for part in parts])
    noise = np.eye(rows.shape[1])
    roots = [np.linalg.cholesky(np.cov(part.T) + noise) for part in parts]
    return _Gaussians(means, np.array(roots))


def _kernels(rows: FloatArray) -> _Gaussians:
    """A Gaussian around every row, of the shape of all of them, and Scott's size."""
    n, d = rows.shape
    size = n ** (-1 / (d + 4))
    covariance = size**2 * np.cov(rows.T) + 1e-3 * np.eye(d)
    return _Gaussians(rows, np.linalg.cholesky(covariance)[None])


def _like(
    X: FloatArray,
    y: IntArray,
    fit: Callable[[FloatArray], _Gaussians],
    temperature: float,
) -> Problem:
    """A population with a density of every class that was fitted to its rows."""
    shares = np.bincount(y) / len(y)
    densities = [fit(X[y == k]) for k in range(len(shares))]

    def inputs(n: int, rng: Rng) -> FloatArray:
        own = rng.choice(len(shares), n, p=shares)
        drawn = np.empty((n, X.shape[1]))
        for k, density in enumerate(densities):
            drawn[own == k] = density.sample(int((own == k).sum()), rng)
        return drawn

    def teacher(rows: FloatArray) -> FloatArray:
        log_densities = [density.log_density(rows) for density in densities]
        logits = np.column_stack(log_densities) + np.log(shares)
        return softmax(logits / temperature, axis=1)

    return taught(inputs, teacher)


def dense(
    draw: Draws, log_densities: Posteriors, n_classes: int, n_features: int
) -> Problem:
    """Equally common classes, from their densities.

    ``draw`` is as in :class:`Problem`, ``log_densities(X)`` gives n×K values up to a shared term.
    """
    priors = np.full(n_classes, 1 / n_classes)

    def posteriors(X: FloatArray) -> FloatArray:
        return np.asarray(softmax(log_densities(X), axis=1))

    return Problem(priors, np.arange(n_classes), draw, posteriors, n_features)


def tangled(
    n_classes: int = 6, n_parts: int = 3, n_features: int = 8, random_state: Seed = 0
) -> Problem:
    """Classes of several Gaussians with random centres and covariances.

    There is little ambiguity, and much to learn.
    """
    check.check_count(n_classes, "n_classes", 2)
    check.check_count(n_parts, "n_parts", 1)
    check.check_count(n_features, "n_features", 1)
    rng = as_generator(random_state)
    shape = (n_classes, n_parts, n_features)
    means = rng.standard_normal(shape)
    factors = rng.standard_normal((*shape, n_features)) / np.sqrt(n_features)
    inverses = np.linalg.inv(factors)
    log_scales = np.linalg.slogdet(factors).logabsdet

    def draws(codes: IntArray, rng: np.random.Generator) -> FloatArray:
        chosen = codes, rng.integers(n_parts, size=len(codes))
        noise = rng.standard_normal((len(codes), n_features))
        return means[chosen] + np.einsum("nij,nj->ni", factors[chosen], noise)

    def log_densities(X: FloatArray) -> FloatArray:
        logs = np.empty((n_classes, n_parts, len(X)))
        for part in np.ndindex(n_classes, n_parts):
            z = (X - means[part]) @ inverses[part].T
            logs[part] = (z**2).sum(axis=1) / -2 - log_scales[part]
        return np.asarray(logsumexp(logs, axis=1)).T

    return dense(draws, log_densities, n_classes, n_features)


def waveform() -> Problem:
    """Breiman's waveforms: random mixtures of two of three triangular waves with unit noise.

    There are 21 features.
    """
    peaks = np.array([[11], [7], [15]])
    distances = np.abs(np.arange(1, 22) - peaks)
    waves = np.maximum(6 - distances, 0.0)
    start = waves[[1, 2, 2]]
    end = waves[[0, 0, 1]]
    step = end - start
    length = np.linalg.norm(step, axis=1)

    def draws(codes: IntArray, rng: np.random.Generator) -> FloatArray:
        u = rng.random((len(codes), 1))
        noise = rng.standard_normal((len(codes), 21))
        return u * end[codes] + (1 - u) * start[codes] + noise

    def log_densities(X: FloatArray) -> FloatArray:
        # ∫₀¹ N(x; start + u step, I) du in closed form: in u a normal around z / ‖step‖ of
        # deviation 1 / ‖step‖, cut to [0, 1].
        z = (X @ step.T - (start * step).sum(axis=1)) / length
        # On the other side both terms would be 1, and their difference nothing.
        flip = z > length / 2
        far = np.where(flip, z, length - z)
        near = np.where(flip, z - length, -z)
        upper = log_ndtr(far)
        mass = upper + np.log1p(-np.exp(log_ndtr(near) - upper))
        at_start = X @ start.T - (start**2).sum(axis=1) / 2
        return at_start + z**2 / 2 + mass - np.log(length)

    return dense(draws, log_densities, 3, 21)


def with_label_noise(problem: Problem, transition: ArrayLike) -> Problem:
    """Another problem whose labels are replaced: P(shown j | true i) = transition[i, j]."""
    if not isinstance(problem, Problem):
        raise ValueError(
            "problem must be a Problem of collidescope.datasets, got "
            f"{type(problem).__name__}"
        )
    k = len(problem.priors)
    T = check.check_stochastic(transition, "transition", k).copy()
    shares = problem.priors @ T
    if hidden := problem.classes[shares <= 0].tolist():
        raise ValueError(
            f"transition must show every label, {hidden} has only zeros in its column"
        )
    priors = check.check_priors(shares, k, "the priors of the noisy labels")
    source = problem.priors[:, None] * T / priors  # P(true i | shown j)

    def draw(codes: IntArray, rng: np.random.Generator) -> Array:
        return problem.draw(draw_classes(source.T[codes], rng), rng)

    def posteriors(X: FloatArray) -> FloatArray:
        return problem.posteriors(X) @ T

    def nodes() -> Blocks:
        return ((P @ T, weights) for P, weights in problem.nodes())

    return Problem(
        priors=priors,
        classes=problem.classes,
        draw=draw,
        teacher=posteriors,
        n_features=problem.n_features,
        nodes=nodes,
    )
