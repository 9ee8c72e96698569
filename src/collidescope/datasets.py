"""Classification problems whose posteriors, collision matrix and Bayes error are known.

A :class:`Problem` draws rows, gives the true posterior of any row, and knows its truth from
*nodes*: blocks of posteriors with weights, over which B = Σ w y yᵀ and BER = 1 - Σ w max(y).
Gaussians of equal scale whose centres span a line or a plane, and discrete problems, have exact
nodes (quadrature); others draw them. Every function below makes one; a custom one comes from the
posteriors of a teacher (:class:`Problem`) or from densities (:func:`dense`).
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

TRUTH_DRAWS = 1_000_000  #: behind the truth of problems without exact nodes
TRUTH_SEED = 20_250  #: makes it the same every time
BLOCK = 50_000

Draws = Callable[[IntArray, np.random.Generator], Array]
Posteriors = Callable[[FloatArray], FloatArray]
Blocks = Iterator[tuple[FloatArray, FloatArray]]
Nodes = Callable[[], Blocks] | None


class Problem:
    """A population with known posteriors.

    Parameters
    ----------
    priors, classes : K class shares and names draw : ``draw(codes, rng)`` gives one input from the
    distribution of each class number teacher : ``teacher(X)`` gives the true posterior of every
    row of ``n_features`` numbers nodes : gives blocks of (posteriors, weights), all weights
    summing to 1; by default they are drawn
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
        self.priors = priors
        self.classes = classes
        self.draw = draw
        self.n_features = n_features
        self.nodes = nodes or self.drawn_nodes
        self._teacher = teacher

    def posteriors(self, X: ArrayLike) -> FloatArray:
        """True posterior of every row."""
        rows = check.check_finite(X, "X", ndim=2)
        width = rows.shape[1]
        wanted = self.n_features
        if width != wanted:
            raise ValueError(
                f"X must have {wanted} columns, got {width} (shape {rows.shape})"
            )
        return self._teacher(rows)

    def drawn_nodes(self) -> Blocks:
        """Blocks of (posteriors, weights) by Monte Carlo, class by class, the same every time."""
        rng = np.random.default_rng(TRUTH_SEED)
        priors = self.priors
        per_class = TRUTH_DRAWS // len(priors)
        parts = list(blocks(per_class, 1, BLOCK))
        for k, prior in enumerate(priors):
            weight = prior / per_class
            for part in parts:
                size = part.stop - part.start
                codes = np.full(size, k, dtype=np.intp)
                P = self.posteriors(self.draw(codes, rng))
                yield P, np.full(size, weight)

    def sample(
        self, n_samples: int, random_state: Seed = None, *, stratified: bool = True
    ) -> tuple[Array, Array]:
        """(X, y): ``n_samples`` rows.

        Class shares are as near to the priors as whole numbers allow, or drawn from them.
        """
        check.check_count(n_samples, "n_samples")
        rng = as_generator(random_state)
        k = len(self.priors)
        if stratified:
            counts = _nearest_counts(n_samples * self.priors)
            in_order = np.repeat(np.arange(k), counts)
            codes = rng.permutation(in_order)
        else:
            codes = rng.choice(k, n_samples, p=self.priors)
        return self.draw(codes, rng), self.classes[codes]

    @cached_property
    def _truth(self) -> tuple[CollisionMatrix, float]:
        priors = self.priors
        k = len(priors)
        B = np.zeros((k, k))
        right = 0.0
        for P, weights in self.nodes():
            weighted = weights[:, None] * P
            B += P.T @ weighted
            right += float(weights @ P.max(axis=1))
        B = balance((B + B.T) / 2, priors)
        S = B / B.sum(axis=1, keepdims=True)
        return CollisionMatrix(S, priors, self.classes), 1 - right

    def collision_matrix(self) -> CollisionMatrix:
        """The true S."""
        return self._truth[0]

    def bayes_error(self) -> float:
        """The Bayes error rate."""
        return self._truth[1]


def _nearest_counts(shares: FloatArray) -> IntArray:
    """Whole numbers with the sum of the shares, none further than 1 from its share."""
    counts = np.floor(shares).astype(int)
    rests = shares - counts
    missing = round(shares.sum()) - counts.sum()
    raised = np.argsort(-rests, kind="stable")[:missing]
    counts[raised] += 1
    return counts


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
            raise ValueError(
                f"scales must be one number or one per class ({k}), got {len(widths)}"
            )
        self.scales = np.broadcast_to(widths, (k,)).copy()
        if (self.scales <= 0).any():
            raise ValueError(f"scales must be positive, got {self.scales.min():.6g}")
        shares = np.full(k, 1 / k)
        if priors is not None:
            shares = check.check_priors(priors, k)
        names = check.check_classes(classes, k)
        super().__init__(
            priors=shares,
            classes=names,
            draw=self._draw,
            teacher=self._posteriors,
            n_features=self.means.shape[1],
            nodes=self._quadrature,
        )

    def _draw(self, codes: IntArray, rng: np.random.Generator) -> FloatArray:
        noise = rng.standard_normal((len(codes), self.n_features))
        return self.means[codes] + self.scales[codes, None] * noise

    def _posteriors(self, X: FloatArray) -> FloatArray:
        return self._posteriors_of(X, self.means)

    def _posteriors_of(self, X: FloatArray, means: FloatArray) -> FloatArray:
        # ‖x - m‖² / σ² without its share ‖x‖² / max(σ)², the same for every class, which drowns the
        # rest far out.
        centre = means.mean(axis=0)
        X = X - centre
        means = means - centre
        scales = self.scales
        precision = 1 / scales**2
        beyond = precision - precision.min()
        largest = np.finfo(np.float64).max
        with np.errstate(over="ignore", invalid="ignore"):
            norms = np.minimum((X**2).sum(axis=1), largest)
            squares = norms[:, None] * beyond
            means_squared = (means**2).sum(axis=1)
            rest = means_squared - 2 * X @ means.T
            squares += rest * precision
        volumes = X.shape[1] * np.log(scales)
        log_priors = np.log(self.priors)
        logs = log_priors - volumes - squares / 2
        if not np.isfinite(logs.max(axis=1)).all():
            farthest = np.abs(X).max()
            raise ValueError(
                f"X is too far from every class for a posterior, got {farthest:.6g}"
            )
        return np.asarray(softmax(logs, axis=1))

    def _quadrature(self) -> Blocks:
        """Exact where all scales are equal and the centres span a line or a plane, else draws."""
        means = self.means
        centred = means - means.mean(axis=0)
        _, spread, axes = np.linalg.svd(centred, full_matrices=False)
        smallest = 1e-9 * max(spread[0], 1e-300)
        is_direction = spread > smallest
        rank = max(1, int(is_direction.sum()))
        scale = self.scales[0]
        is_equal = self.scales == scale
        if rank > 2 or not np.all(is_equal):
            yield from self.drawn_nodes()
            return
        # Directions across the centres carry no information about the class: only these matter.
        centres = centred @ axes[:rank].T
        # For S the trapezoid rule is exact to rounding; the kink of max(y) makes the Bayes error
        # the harder one: its error is about step² / 50.
        step = 0.02 * scale
        if rank == 1:
            step = 0.001 * scale
        grid = _grid_around(centres, margin=9.0 * scale, step=step)
        variance = scale**2
        around = 2 * np.pi * variance
        norm = around ** (rank / 2)
        cell = step**rank
        for block in blocks(len(grid), 1, BLOCK):
            x = grid[block]
            offsets = x[:, None] - centres
            exponents = (offsets**2).sum(axis=2) / (2 * variance)
            mixed = np.exp(-exponents) @ self.priors
            weights = mixed / norm * cell
            yield self._posteriors_of(x, centres), weights


def _grid_around(centres: FloatArray, margin: float, step: float) -> FloatArray:
    """Points of a line or a plane that reach a margin beyond all centres."""
    sides = []
    for coordinate in centres.T:
        first = coordinate.min()
        last = coordinate.max()
        low = first - margin
        side = np.arange(low, last + margin, step)
        sides.append(side)
    axes = np.meshgrid(*sides, indexing="ij")
    points = np.stack(axes, axis=-1)
    return points.reshape(-1, len(sides))


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


def with_label_noise(problem: Problem, transition: ArrayLike) -> Problem:
    """Another problem whose labels are replaced: P(shown j | true i) = transition[i, j]."""
    if not isinstance(problem, Problem):
        came = type(problem).__name__
        raise ValueError(
            f"problem must be a Problem of collidescope.datasets, got {came}"
        )
    k = len(problem.priors)
    T = check.check_stochastic(transition, "transition", k).copy()
    shares = problem.priors @ T
    is_hidden = shares <= 0
    hidden = problem.classes[is_hidden].tolist()
    if hidden:
        raise ValueError(
            f"transition must show every label, {hidden} has only zeros in its column"
        )
    priors = check.check_priors(shares, k, "the priors of the noisy labels")
    joint = problem.priors[:, None] * T
    source = joint / priors  # P(true i | shown j)
    limits = source.cumsum(axis=0).T

    def draw(codes: IntArray, rng: np.random.Generator) -> Array:
        uniform = rng.random((len(codes), 1))
        beyond = uniform >= limits[codes]
        true = beyond.sum(axis=1)
        # Rounding may end the last limit below 1.
        return problem.draw(np.minimum(true, k - 1), rng)

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


def scenario_a(n_classes: int = 3) -> GaussianProblem:
    """The paper's Scenario A: d = 4, K = 3, 4 or 5 unit Gaussians along the diagonal."""
    centres = {
        3: [0.25, -0.25, 1.25],
        4: [-0.25, 0.25, 0.75, 2.5],
        5: [-0.25, 0.25, 0.75, 2.5, -1.0],
    }
    if not isinstance(n_classes, (int, np.integer)) or n_classes not in centres:
        raise ValueError(
            f"n_classes must be 3, 4 or 5 in Scenario A, got {n_classes!r}: see equidistant for "
            "others"
        )
    means = np.outer(centres[n_classes], np.ones(4))
    return GaussianProblem(means)


def scenario_b(overlap: float = 0.15) -> GaussianProblem:
    """The paper's Scenario B: d = 20, K = 5, centres (-3, -1, 1, 5, 10)·β·1.

    The paper has β = 0.15, 0.25 and 0.35.
    """
    check.check_between(overlap, 0, np.inf, "overlap")
    return GaussianProblem(
        overlap * np.outer([-3.0, -1.0, 1.0, 5.0, 10.0], np.ones(20))
    )


def equidistant(
    n_classes: int = 5,
    n_features: int = 4,
    length: float = 4.0,
    priors: Given = None,
    random_state: Seed = None,
) -> GaussianProblem:
    """Unit Gaussians equally spaced along a segment of random direction.

    The paper's posterior experiments have these.
    """
    check.check_count(n_classes, "n_classes", least=2)
    check.check_count(n_features, "n_features")
    check.check_between(length, 0, np.inf, "length")
    direction = as_generator(random_state).standard_normal(n_features)
    unit = direction / np.linalg.norm(direction)
    last = length / 2
    centres = np.linspace(-last, last, n_classes)
    return GaussianProblem(np.outer(centres, unit), priors=priors)


def ring(n_features: int = 6, radius: float = 1.8) -> GaussianProblem:
    """Scenario D, not log-linear: six Gaussians of different widths on a ring.

    The ring lies in 2 of ``n_features`` dimensions. The priors fall evenly, the first class four
    times as common as the last.
    """
    check.check_count(n_features, "n_features", least=2)
    check.check_between(radius, 0, np.inf, "radius")
    turn = 2 * np.pi
    angles = turn * np.arange(6) / 6
    cosines = np.cos(angles)
    circle = np.column_stack([cosines, np.sin(angles)])
    on_ring = radius * circle
    means = np.zeros((6, n_features))
    means[:, :2] = on_ring
    scales = [0.6, 1.4, 0.8, 1.2, 0.7, 1.0]
    weights = np.linspace(4, 1, 6)
    return GaussianProblem(means, scales, weights / weights.sum())


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
    factors = rng.standard_normal((*shape, n_features))
    factors /= np.sqrt(n_features)
    inverses = np.linalg.inv(factors)
    volumes = np.abs(np.linalg.det(factors))
    log_scales = np.log(volumes)

    def draws(codes: IntArray, rng: np.random.Generator) -> FloatArray:
        n = len(codes)
        part = rng.integers(n_parts, size=n)
        noise = rng.standard_normal((n, n_features))
        chosen = (codes, part)
        shaped = np.einsum("nij,nj->ni", factors[chosen], noise)
        return means[chosen] + shaped

    def log_densities(X: FloatArray) -> FloatArray:
        logs = np.empty((n_classes, n_parts, len(X)))
        for part in np.ndindex(n_classes, n_parts):
            centred = X - means[part]
            z = centred @ inverses[part].T
            exponents = (z**2).sum(axis=1) / -2
            logs[part] = exponents - log_scales[part]
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
        n = len(codes)
        u = rng.random((n, 1))
        noise = rng.standard_normal((n, 21))
        last = end[codes]
        first = start[codes]
        towards_end = u * last
        return towards_end + (1 - u) * first + noise

    def log_densities(X: FloatArray) -> FloatArray:
        # ∫₀¹ N(x; start + u step, I) du in closed form: in u a normal around z / ‖step‖ of
        # deviation 1 / ‖step‖, cut to [0, 1].
        along = X @ step.T
        origin = (start * step).sum(axis=1)
        z = (along - origin) / length
        # On the other side both terms would be 1, and their difference nothing.
        flip = z > length / 2
        far = np.where(flip, z, length - z)
        near = np.where(flip, z - length, -z)
        upper = log_ndtr(far)
        ratio = np.exp(log_ndtr(near) - upper)
        mass = upper + np.log1p(-ratio)
        norms = (start**2).sum(axis=1)
        at_start = X @ start.T - norms / 2
        log_length = np.log(length)
        half = z**2 / 2
        return at_start + half + mass - log_length

    return dense(draws, log_densities, 3, 21)
