"""Classification problems whose posteriors, collision matrix and Bayes error are known.

A :class:`Problem` draws rows, gives the true posterior of any row, and knows its truth from *nodes*: blocks of
posteriors with weights, over which B = Σ w y yᵀ and BER = 1 - Σ w max(y). Gaussians of equal scale whose centres span
a line or a plane, and discrete problems, have exact nodes (quadrature); others draw them. Every function below makes
one; a custom one comes from the posteriors of a teacher (:func:`taught`) or from densities (:func:`dense`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
from scipy.special import log_ndtr, logsumexp, softmax

from collidescope import _checks as check
from collidescope._checks import Array, ArrayLike, FloatArray, Given, IntArray, Names
from collidescope._scaling import blocks
from collidescope.equations.densities import Seed, as_generator
from collidescope.equations.projection import balance
from collidescope.matrix import CollisionMatrix

#: Quadrature grid in units of the common scale. For S the trapezoid rule is exact to rounding; the kink of max(y) makes
#: the Bayes error the harder one: its error is about step² / 50.
GRID_STEP, GRID_MARGIN = {1: 0.001, 2: 0.02}, 9.0
#: Draws behind the truth of problems without exact nodes, and the seed that makes it the same every time.
TRUTH_DRAWS, TRUTH_SEED, BLOCK = 1_000_000, 20_250, 50_000

Inputs = Callable[[int, np.random.Generator], FloatArray]
Draws = Callable[[IntArray, np.random.Generator], Array]
Posteriors = Callable[[FloatArray], FloatArray]
Blocks = Iterator[tuple[FloatArray, FloatArray]]
Nodes = Callable[[], Blocks] | None


class Problem:
    """A population with known posteriors.

    Parameters
    ----------
    priors, classes : K class shares and names
    draw : ``draw(codes, rng)`` gives one input from the distribution of each class number
    teacher : ``teacher(X)`` gives the true posterior of every row of ``n_features`` numbers
    nodes : gives blocks of (posteriors, weights), all weights summing to 1; by default they are drawn
    """

    def __init__(
        self,
        priors: FloatArray,
        classes: Array,
        draw: Draws,
        teacher: Posteriors,
        n_features: int,
        nodes: Nodes = None,
    ) -> None:
        self.priors, self.classes, self.draw, self.n_features = priors, classes, draw, n_features
        self._teacher, self.nodes = teacher, nodes or self.drawn_nodes

    def posteriors(self, X: ArrayLike) -> FloatArray:
        """True posterior of every row."""
        rows = check.check_finite(X, "X", ndim=2)
        if rows.shape[1] != self.n_features:
            raise ValueError(
                f"X must have {self.n_features} columns, got {rows.shape[1]} (shape {rows.shape})"
            )
        return self._teacher(rows)

    def drawn_nodes(self) -> Blocks:
        """Blocks of (posteriors, weights) by Monte Carlo, class by class, the same every time."""
        rng = np.random.default_rng(TRUTH_SEED)
        per_class = TRUTH_DRAWS // len(self.priors)
        for k, prior in enumerate(self.priors):
            for size in np.diff([*range(0, per_class, BLOCK), per_class]):
                X = self.draw(np.full(size, k, dtype=np.intp), rng)
                yield self.posteriors(X), np.full(size, prior / per_class)

    def sample(
        self, n_samples: int, random_state: Seed = None, *, stratified: bool = True
    ) -> tuple[Array, Array]:
        """(X, y): ``n_samples`` rows; class shares as near to the priors as whole numbers allow, or drawn from them."""
        check.check_count(n_samples, "n_samples")
        rng, k = as_generator(random_state), len(self.priors)
        if stratified:
            counts = np.floor(n_samples * self.priors).astype(int)
            short = np.argsort(-(n_samples * self.priors - counts), kind="stable")[
                : n_samples - counts.sum()
            ]
            counts[short] += 1
            codes = rng.permutation(np.repeat(np.arange(k), counts))
        else:
            codes = rng.choice(k, n_samples, p=self.priors)
        return self.draw(codes, rng), self.classes[codes]

    @cached_property
    def _truth(self) -> tuple[CollisionMatrix, float]:
        B, kept = np.zeros((len(self.priors),) * 2), 0.0
        for P, weights in self.nodes():
            B += P.T @ (weights[:, None] * P)
            kept += float(weights @ P.max(axis=1))
        B = balance((B + B.T) / 2, self.priors)
        S = B / B.sum(axis=1, keepdims=True)
        return CollisionMatrix(S, self.priors, self.classes), 1 - kept

    def collision_matrix(self) -> CollisionMatrix:
        """The true S."""
        return self._truth[0]

    def bayes_error(self) -> float:
        """The Bayes error rate."""
        return self._truth[1]


class GaussianProblem(Problem):
    """One isotropic Gaussian per class: x | k ~ N(means[k], scales[k]² I).

    >>> round(GaussianProblem([[-1.0], [1.0]]).bayes_error(), 6)  # Φ(-1)
    0.158655
    """

    def __init__(
        self,
        means: ArrayLike,
        scales: ArrayLike = 1.0,
        priors: Given = None,
        classes: Names | None = None,
    ) -> None:
        self.means = check.check_finite(means, "means", ndim=2).copy()
        k = len(self.means)
        if k < 2:
            raise ValueError(f"means must have one row per class, at least 2, got {k}")
        widths = check.check_finite(scales, "scales", ndim=(0, 1))
        if widths.shape not in ((), (k,)):
            raise ValueError(f"scales must be one number or one per class ({k}), got {len(widths)}")
        self.scales = np.broadcast_to(widths, (k,)).copy()
        if (self.scales <= 0).any():
            raise ValueError(f"scales must be positive, got {self.scales.min():.6g}")
        shares = np.full(k, 1 / k) if priors is None else check.check_priors(priors, k)
        names = check.check_classes(classes, k)
        super().__init__(
            shares, names, self._draw, self._posteriors, self.means.shape[1], self._quadrature
        )

    def _draw(self, codes: IntArray, rng: np.random.Generator) -> FloatArray:
        noise = rng.standard_normal((len(codes), self.n_features))
        return self.means[codes] + self.scales[codes, None] * noise

    def _posteriors(self, X: FloatArray, means: FloatArray | None = None) -> FloatArray:
        means = self.means if means is None else means
        # ‖x - m‖² / σ² without its share ‖x‖² / max(σ)², the same for every class, which drowns the rest far out.
        X, means = X - means.mean(axis=0), means - means.mean(axis=0)
        precision = 1 / self.scales**2
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.minimum((X**2).sum(axis=1), np.finfo(np.float64).max)[:, None] * (
                precision - precision.min()
            )
            squares += ((means**2).sum(axis=1) - 2 * X @ means.T) * precision
        logs = np.log(self.priors) - X.shape[1] * np.log(self.scales) - squares / 2
        if not np.isfinite(logs.max(axis=1)).all():
            raise ValueError(
                f"X is too far from every class for a posterior, got {np.abs(X).max():.6g}"
            )
        return np.asarray(softmax(logs, axis=1))

    def _quadrature(self) -> Blocks:
        """Exact quadrature when all scales are equal and the centres span a line or a plane, else draws."""
        centred = self.means - self.means.mean(axis=0)
        _, spread, axes = np.linalg.svd(centred, full_matrices=False)
        rank = max(1, int((spread > 1e-9 * max(spread[0], 1e-300)).sum()))
        if rank > 2 or not np.all(self.scales == self.scales[0]):
            yield from self.drawn_nodes()
            return
        # Directions across the centres carry no information about the class: only these one or two matter.
        scale, centres = self.scales[0], centred @ axes[:rank].T
        step, margin = GRID_STEP[rank] * scale, GRID_MARGIN * scale
        sides = [np.arange(c.min() - margin, c.max() + margin, step) for c in centres.T]
        grid = np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1).reshape(-1, rank)
        for x in (grid[block] for block in blocks(len(grid), 1, BLOCK)):
            distances = ((x[:, None] - centres) ** 2).sum(axis=2) / (2 * scale**2)
            density = np.exp(-distances) @ self.priors / (2 * np.pi * scale**2) ** (rank / 2)
            yield self._posteriors(x, centres), density * step**rank


def led(noise: float = 0.1, priors: Given = None) -> Problem:
    """A digit shown on seven segments, each of which shows the wrong state with probability ``noise``.

    The 128 possible inputs make every quantity exact, and inputs repeat, so that collisions can be counted.
    """
    check.check_between(noise, 0, 0.5, "noise")
    shares = np.full(10, 0.1) if priors is None else check.check_priors(priors, 10)
    # Of each digit: top, upper left, upper right, middle, lower left, lower right, bottom.
    shown = "1110111 0010010 1011101 1011011 0111010 1101011 1101111 1010010 1111111 1111011"
    segments = np.array([list(map(int, digit)) for digit in shown.split()])

    def draw(codes: IntArray, rng: np.random.Generator) -> IntArray:
        return (segments[codes] ^ (rng.random((len(codes), 7)) < noise)).astype(np.intp)

    def joint(X: FloatArray) -> FloatArray:
        if (odd := X[~np.isin(X, (0, 1))]).size:
            raise ValueError(f"X must hold segments of 0 or 1, got {odd[0]:.6g}")
        wrong = np.abs(X[:, None, :] - segments).sum(axis=2)
        return np.asarray(noise**wrong * (1 - noise) ** (7 - wrong) * shares)

    def posteriors(X: FloatArray) -> FloatArray:
        return joint(X) / joint(X).sum(axis=1, keepdims=True)

    X = ((np.arange(128)[:, None] >> np.arange(7)) & 1).astype(np.float64)
    return Problem(
        shares,
        np.arange(10),
        draw,
        posteriors,
        7,
        lambda: iter([(posteriors(X), joint(X).sum(axis=1))]),
    )


def taught(inputs: Inputs, teacher: Posteriors) -> Problem:
    """Inputs drawn by ``inputs(n, rng)``, labels drawn from the posteriors that ``teacher(X)`` gives.

    >>> coin = taught(lambda n, rng: rng.random((n, 1)), lambda X: np.hstack([X, 1 - X]))
    >>> round(coin.bayes_error(), 2), round(coin.collision_matrix().pber, 2)  # 1/4 and 1/3
    (0.25, 0.33)
    """

    def nodes() -> Blocks:
        rng = np.random.default_rng(TRUTH_SEED)
        for _ in range(TRUTH_DRAWS // BLOCK):
            yield teacher(inputs(BLOCK, rng)), np.full(BLOCK, 1 / TRUTH_DRAWS)

    priors = np.sum([weights @ P for P, weights in nodes()], axis=0)

    def draw(codes: IntArray, rng: np.random.Generator) -> FloatArray:
        """Inputs are drawn until their labels fit."""
        wanted = [np.flatnonzero(codes == k).tolist() for k in range(len(priors))]
        X = inputs(len(codes), rng)
        while any(wanted):
            block = inputs(len(codes) + 100, rng)
            labels = (rng.random((len(block), 1)) >= teacher(block).cumsum(axis=1)[:, :-1]).sum(
                axis=1
            )
            for k, places in enumerate(wanted):
                found = np.flatnonzero(labels == k)[: len(places)]
                X[places[: len(found)]] = block[found]
                del places[: len(found)]
        return X

    n_features = inputs(1, np.random.default_rng(0)).shape[1]
    return Problem(priors, np.arange(len(priors)), draw, teacher, n_features, nodes)


def dense(draw: Draws, log_densities: Posteriors, n_classes: int, n_features: int) -> Problem:
    """Equally common classes: ``draw`` as in :class:`Problem`, ``log_densities(X)`` n×K values up to a shared term."""
    priors = np.full(n_classes, 1 / n_classes)
    return Problem(
        priors, np.arange(n_classes), draw, lambda X: softmax(log_densities(X), axis=1), n_features
    )


def with_label_noise(problem: Problem, transition: ArrayLike) -> Problem:
    """Another problem whose labels are replaced at random: P(shown j | true i) = transition[i, j]."""
    if not isinstance(problem, Problem):
        raise ValueError(
            f"problem must be a Problem of collidescope.datasets, got {type(problem).__name__}"
        )
    k = len(problem.priors)
    T = check.check_stochastic(transition, "transition", k).copy()
    if hidden := problem.classes[problem.priors @ T <= 0].tolist():
        raise ValueError(f"transition must show every label, {hidden} has only zeros in its column")
    priors = check.check_priors(problem.priors @ T, k, "the priors of the noisy labels")
    source = (problem.priors[:, None] * T) / priors  # P(true i | shown j)

    def draw(codes: IntArray, rng: np.random.Generator) -> Array:
        true = (rng.random((len(codes), 1)) >= source.cumsum(axis=0).T[codes]).sum(axis=1)
        return problem.draw(np.minimum(true, k - 1), rng)

    def nodes() -> Blocks:
        return ((P @ T, weights) for P, weights in problem.nodes())

    return Problem(
        priors,
        problem.classes,
        draw,
        lambda X: problem.posteriors(X) @ T,
        problem.n_features,
        nodes,
    )


def scenario_a(n_classes: int = 3) -> GaussianProblem:
    """The paper's Scenario A: d = 4, K = 3, 4 or 5 unit Gaussians along the diagonal."""
    centres = {
        3: [0.25, -0.25, 1.25],
        4: [-0.25, 0.25, 0.75, 2.5],
        5: [-0.25, 0.25, 0.75, 2.5, -1.0],
    }
    if not isinstance(n_classes, (int, np.integer)) or n_classes not in centres:
        raise ValueError(
            f"n_classes must be 3, 4 or 5 in Scenario A, got {n_classes!r}: see equidistant for others"
        )
    return GaussianProblem(np.outer(centres[n_classes], np.ones(4)))


def scenario_b(overlap: float = 0.15) -> GaussianProblem:
    """The paper's Scenario B: d = 20, K = 5, centres (-3, -1, 1, 5, 10)·β·1; β = 0.15, 0.25 or 0.35 there."""
    check.check_between(overlap, 0, np.inf, "overlap")
    return GaussianProblem(overlap * np.outer([-3.0, -1.0, 1.0, 5.0, 10.0], np.ones(20)))


def equidistant(
    n_classes: int = 5,
    n_features: int = 4,
    length: float = 4.0,
    priors: Given = None,
    random_state: Seed = None,
) -> GaussianProblem:
    """Unit Gaussians equally spaced along a segment of random direction (the paper's posterior experiments)."""
    check.check_count(n_classes, "n_classes", least=2)
    check.check_count(n_features, "n_features")
    check.check_between(length, 0, np.inf, "length")
    direction = as_generator(random_state).standard_normal(n_features)
    centres = np.linspace(-length / 2, length / 2, n_classes)
    return GaussianProblem(np.outer(centres, direction / np.linalg.norm(direction)), priors=priors)


def ring(n_features: int = 6, radius: float = 1.8) -> GaussianProblem:
    """Scenario D, not log-linear: six Gaussians of different widths on a ring in 2 of ``n_features`` dimensions.

    The priors fall evenly, the first class four times as common as the last.
    """
    check.check_count(n_features, "n_features", least=2)
    check.check_between(radius, 0, np.inf, "radius")
    angles, weights = 2 * np.pi * np.arange(6) / 6, np.linspace(4, 1, 6)
    means = np.zeros((6, n_features))
    means[:, 0], means[:, 1] = radius * np.cos(angles), radius * np.sin(angles)
    return GaussianProblem(means, [0.6, 1.4, 0.8, 1.2, 0.7, 1.0], weights / weights.sum())


def tangled(
    n_classes: int = 6, n_parts: int = 3, n_features: int = 8, random_state: Seed = 0
) -> Problem:
    """Classes of several Gaussians with random centres and covariances: little ambiguity, much to learn."""
    for name, count, least in (
        ("n_classes", n_classes, 2),
        ("n_parts", n_parts, 1),
        ("n_features", n_features, 1),
    ):
        check.check_count(count, name, least)
    rng = as_generator(random_state)
    means = rng.standard_normal((n_classes, n_parts, n_features))
    factors = rng.standard_normal((n_classes, n_parts, n_features, n_features)) / np.sqrt(
        n_features
    )
    inverses, log_scales, parts = (
        np.linalg.inv(factors),
        np.log(np.abs(np.linalg.det(factors))),
        range(n_parts),
    )

    def draws(codes: IntArray, rng: np.random.Generator) -> FloatArray:
        part = rng.integers(n_parts, size=len(codes))
        noise = rng.standard_normal((len(codes), n_features))
        return means[codes, part] + np.einsum("nij,nj->ni", factors[codes, part], noise)

    def log_densities(X: FloatArray) -> FloatArray:
        squares = [
            [(((X - means[k, p]) @ inverses[k, p].T) ** 2).sum(axis=1) for p in parts]
            for k in range(n_classes)
        ]
        return np.asarray(logsumexp(np.array(squares) / -2 - log_scales[:, :, None], axis=1)).T

    return dense(draws, log_densities, n_classes, n_features)


def imbalanced(
    n_classes: int = 5,
    ratio: float = 100.0,
    n_features: int = 4,
    length: float = 6.0,
    random_state: Seed = None,
) -> GaussianProblem:
    """:func:`equidistant` with priors that fall geometrically, the first ``ratio`` times as common as the last."""
    check.check_at_least(ratio, 1, "ratio")
    weights = np.geomspace(ratio, 1, check.check_count(n_classes, "n_classes", least=2))
    return equidistant(n_classes, n_features, length, weights / weights.sum(), random_state)


def twonorm(n_features: int = 20) -> GaussianProblem:
    """Breiman's twonorm: unit Gaussians at ±2/√d in every one of d coordinates."""
    centre = np.full(n_features, 2 / np.sqrt(n_features))
    return GaussianProblem([-centre, centre])


def ringnorm(n_features: int = 20) -> GaussianProblem:
    """Breiman's ringnorm: a Gaussian of scale 2 at 0 around a unit Gaussian at 2/√d in every coordinate."""
    return GaussianProblem(
        [np.zeros(n_features), np.full(n_features, 2 / np.sqrt(n_features))], [2.0, 1.0]
    )


def waveform() -> Problem:
    """Breiman's waveforms: random mixtures of two of three triangular waves with unit noise, 21 features."""
    waves = np.maximum(6 - np.abs(np.arange(1, 22) - np.array([[11], [7], [15]])), 0.0)
    ends = waves[[0, 0, 1]], waves[[1, 2, 2]]

    def draws(codes: IntArray, rng: np.random.Generator) -> FloatArray:
        u = rng.random((len(codes), 1))
        return u * ends[0][codes] + (1 - u) * ends[1][codes] + rng.standard_normal((len(codes), 21))

    def log_densities(X: FloatArray) -> FloatArray:
        # ∫₀¹ N(x; end₁ + u v, I) du in closed form: in u a normal around z / ‖v‖ of deviation 1 / ‖v‖, cut to [0, 1].
        step = ends[0] - ends[1]
        length = np.linalg.norm(step, axis=1)
        z = (X @ step.T - (ends[1] * step).sum(axis=1)) / length
        flip = (
            z > length / 2
        )  # on the other side both terms would be 1, and their difference nothing
        upper, lower = np.where(flip, z, length - z), np.where(flip, z - length, -z)
        mass = log_ndtr(upper) + np.log1p(-np.exp(log_ndtr(lower) - log_ndtr(upper)))
        return X @ ends[1].T - (ends[1] ** 2).sum(axis=1) / 2 + z**2 / 2 + mass - np.log(length)

    return dense(draws, log_densities, 3, 21)


def heavy_tailed(n_classes: int = 4, n_features: int = 6, freedom: float = 1.5) -> Problem:
    """Multivariate Student t of few degrees of freedom around random centres, of different widths."""
    rng = np.random.default_rng(0)
    centres, scales = (
        1.5 * rng.standard_normal((n_classes, n_features)),
        np.geomspace(0.5, 2, n_classes),
    )

    def draws(codes: IntArray, rng: np.random.Generator) -> FloatArray:
        stretch = scales[codes] / np.sqrt(rng.chisquare(freedom, len(codes)) / freedom)
        return centres[codes] + stretch[:, None] * rng.standard_normal((len(codes), n_features))

    def log_densities(X: FloatArray) -> FloatArray:
        squares = ((X[:, None] - centres) ** 2).sum(axis=2) / scales**2
        return -(freedom + n_features) / 2 * np.log1p(squares / freedom) - n_features * np.log(
            scales
        )

    return dense(draws, log_densities, n_classes, n_features)


def mlp_teacher(
    n_classes: int = 4, n_features: int = 10, width: int = 16, sharpness: float = 3.0
) -> Problem:
    """Labels by a random network of one hidden layer on Gaussian inputs."""
    rng = np.random.default_rng(0)
    inner, outer = (
        rng.standard_normal((n_features, width)),
        rng.standard_normal((width, n_classes)) / np.sqrt(width),
    )
    return taught(
        _gaussian(n_features), lambda X: softmax(sharpness * np.tanh(X @ inner) @ outer, axis=1)
    )


def tree_teacher(n_classes: int = 3, n_features: int = 8, depth: int = 6) -> Problem:
    """Labels by a random tree on uniform inputs: each of its 2^depth leaves has its own posterior."""
    rng = np.random.default_rng(0)
    features = rng.integers(n_features, size=2**depth)
    thresholds, leaves = (
        rng.uniform(0.3, 0.7, 2**depth),
        rng.dirichlet(np.full(n_classes, 0.3), 2**depth),
    )

    def teacher(X: FloatArray) -> FloatArray:
        node = np.ones(len(X), dtype=np.intp)
        for _ in range(depth):
            node = 2 * node + (X[np.arange(len(X)), features[node]] > thresholds[node])
        return leaves[node - 2**depth]

    return taught(_uniform(n_features), teacher)


def chessboard(n_features: int = 4, fields: int = 4, noise: float = 0.1) -> Problem:
    """The colour of a field, wrong with probability ``noise``: nothing can be learned before most fields are seen."""
    shown = np.array([[1 - noise, noise], [noise, 1 - noise]])
    return taught(
        _uniform(n_features), lambda X: shown[np.floor(fields * X).sum(axis=1).astype(int) % 2]
    )


def friedman(n_classes: int = 4, n_features: int = 10, sharpness: float = 4.0) -> Problem:
    """Friedman's regression function of uniform inputs, cut into ordered classes with soft edges."""
    centres = np.linspace(8, 20, n_classes)

    def teacher(X: FloatArray) -> FloatArray:
        f = (
            10 * np.sin(np.pi * X[:, 0] * X[:, 1])
            + 20 * (X[:, 2] - 0.5) ** 2
            + 10 * X[:, 3]
            + 5 * X[:, 4]
        )
        return softmax(
            -sharpness * ((f[:, None] - centres) / (centres[1] - centres[0])) ** 2, axis=1
        )

    return taught(_uniform(n_features), teacher)


def sparse_words(n_classes: int = 3, n_features: int = 200, relevant: int = 20) -> Problem:
    """Rare 0/1 features of which few matter: a log-linear teacher in many dimensions."""
    weights = np.zeros((n_features, n_classes))
    weights[:relevant] = 2.5 * np.random.default_rng(0).standard_normal((relevant, n_classes))
    uniform = _uniform(n_features)
    return taught(
        lambda n, rng: (uniform(n, rng) < 0.1).astype(float), lambda X: softmax(X @ weights, axis=1)
    )


def spiral(n_classes: int = 3, turns: float = 1.5, sharpness: float = 3.0) -> Problem:
    """Arms of a spiral in the plane: the class follows the angle, which turns with the radius."""
    arms = 2 * np.pi * np.arange(n_classes) / n_classes

    def teacher(X: FloatArray) -> FloatArray:
        angle = np.arctan2(X[:, 1], X[:, 0]) - turns * np.pi * np.hypot(X[:, 0], X[:, 1])
        return softmax(sharpness * np.cos(angle[:, None] - arms), axis=1)

    return taught(_gaussian(2), teacher)


def interactions(n_features: int = 12, pairs: int = 4, sharpness: float = 1.5) -> Problem:
    """Two classes by the sum of products of features: no feature says anything alone."""

    def teacher(X: FloatArray) -> FloatArray:
        logit = sharpness * (X[:, 0 : 2 * pairs : 2] * X[:, 1 : 2 * pairs : 2]).sum(axis=1)
        return softmax(np.column_stack([logit, -logit]) / 2, axis=1)

    return taught(_gaussian(n_features), teacher)


def _gaussian(d: int) -> Inputs:
    return lambda n, rng: rng.standard_normal((n, d))


def _uniform(d: int) -> Inputs:
    return lambda n, rng: rng.random((n, d))
