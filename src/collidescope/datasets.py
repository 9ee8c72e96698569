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
            came = f"got {width} (shape {rows.shape})"
            raise ValueError(f"X must have {wanted} columns, {came}")
        return self._teacher(rows)

    def drawn_nodes(self) -> Blocks:
        """Blocks of (posteriors, weights) by Monte Carlo, class by class, the same every time."""
        rng = np.random.default_rng(TRUTH_SEED)
        priors = self.priors
        n_classes = len(priors)
        per_class = TRUTH_DRAWS // n_classes
        parts = list(blocks(per_class, 1, BLOCK))
        for k, prior in enumerate(priors):
            weight = prior / per_class
            for part in parts:
                start = part.start
                size = part.stop - start
                codes = np.full(size, k, dtype=np.intp)
                X = self.draw(codes, rng)
                P = self.posteriors(X)
                weights = np.full(size, weight)
                yield P, weights

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
            numbers = np.arange(k)
            in_order = np.repeat(numbers, counts)
            codes = rng.permutation(in_order)
        else:
            codes = rng.choice(k, n_samples, p=self.priors)
        X = self.draw(codes, rng)
        y = self.classes[codes]
        return X, y

    @cached_property
    def _truth(self) -> tuple[CollisionMatrix, float]:
        priors = self.priors
        k = len(priors)
        B = np.zeros((k, k))
        right = 0.0
        for P, weights in self.nodes():
            weighted = weights[:, None] * P
            B += P.T @ weighted
            largest = P.max(axis=1)
            hits = weights @ largest
            right += float(hits)
        symmetric = (B + B.T) / 2
        B = balance(symmetric, priors)
        row_sums = B.sum(axis=1, keepdims=True)
        S = B / row_sums
        truth = CollisionMatrix(S, priors, self.classes)
        error = 1 - right
        return truth, error

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
    total = round(shares.sum())
    missing = total - counts.sum()
    largest_first = np.argsort(-rests, kind="stable")
    raised = largest_first[:missing]
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
        least = precision.min()
        beyond = precision - least
        largest = np.finfo(np.float64).max
        with np.errstate(over="ignore", invalid="ignore"):
            squared = (X**2).sum(axis=1)
            norms = np.minimum(squared, largest)
            squares = norms[:, None] * beyond
            means_squared = (means**2).sum(axis=1)
            crossed = 2 * X @ means.T
            rest = means_squared - crossed
            squares += rest * precision
        width = X.shape[1]
        log_scales = np.log(scales)
        volumes = width * log_scales
        log_priors = np.log(self.priors)
        exponents = squares / 2
        logs = log_priors - volumes - exponents
        likeliest = logs.max(axis=1)
        is_known = np.isfinite(likeliest)
        if not is_known.all():
            farthest = np.abs(X).max()
            said = "X is too far from every class for a posterior"
            raise ValueError(f"{said}, got {farthest:.6g}")
        found = softmax(logs, axis=1)
        return np.asarray(found)

    def _quadrature(self) -> Blocks:
        """Exact where all scales are equal and the centres span a line or a plane, else draws."""
        means = self.means
        middle = means.mean(axis=0)
        centred = means - middle
        _, spread, axes = np.linalg.svd(centred, full_matrices=False)
        largest = max(spread[0], 1e-300)
        smallest = 1e-9 * largest
        is_direction = spread > smallest
        n_directions = int(is_direction.sum())
        rank = max(1, n_directions)
        scale = self.scales[0]
        is_equal = self.scales == scale
        if rank > 2 or not np.all(is_equal):
            yield from self.drawn_nodes()
            return
        # Directions across the centres carry no information about the class: only these matter.
        directions = axes[:rank]
        centres = centred @ directions.T
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
        n_points = len(grid)
        for block in blocks(n_points, 1, BLOCK):
            x = grid[block]
            offsets = x[:, None] - centres
            squares = (offsets**2).sum(axis=2)
            exponents = squares / (2 * variance)
            kernels = np.exp(-exponents)
            mixed = kernels @ self.priors
            density = mixed / norm
            weights = density * cell
            P = self._posteriors_of(x, centres)
            yield P, weights


def _grid_around(centres: FloatArray, margin: float, step: float) -> FloatArray:
    """Points of a line or a plane that reach a margin beyond all centres."""
    sides = []
    for coordinate in centres.T:
        first = coordinate.min()
        last = coordinate.max()
        low = first - margin
        high = last + margin
        side = np.arange(low, high, step)
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
        n = len(codes)
        uniform = rng.random((n, 1))
        own_limits = limits[codes]
        beyond = uniform >= own_limits
        true = beyond.sum(axis=1)
        # Rounding may end the last limit below 1.
        last = k - 1
        within = np.minimum(true, last)
        return problem.draw(within, rng)

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
    rng = as_generator(random_state)
    direction = rng.standard_normal(n_features)
    norm = np.linalg.norm(direction)
    unit = direction / norm
    last = length / 2
    first = -last
    centres = np.linspace(first, last, n_classes)
    means = np.outer(centres, unit)
    return GaussianProblem(means, priors=priors)


def ring(n_features: int = 6, radius: float = 1.8) -> GaussianProblem:
    """Scenario D, not log-linear: six Gaussians of different widths on a ring.

    The ring lies in 2 of ``n_features`` dimensions. The priors fall evenly, the first class four
    times as common as the last.
    """
    check.check_count(n_features, "n_features", least=2)
    check.check_between(radius, 0, np.inf, "radius")
    turn = 2 * np.pi
    numbers = np.arange(6)
    angles = turn * numbers / 6
    cosines = np.cos(angles)
    sines = np.sin(angles)
    circle = np.column_stack([cosines, sines])
    on_ring = radius * circle
    shape = (6, n_features)
    means = np.zeros(shape)
    means[:, :2] = on_ring
    scales = [0.6, 1.4, 0.8, 1.2, 0.7, 1.0]
    weights = np.linspace(4, 1, 6)
    total = weights.sum()
    priors = weights / total
    return GaussianProblem(means, scales, priors)


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
    norm = np.sqrt(n_features)
    factors /= norm
    inverses = np.linalg.inv(factors)
    determinants = np.linalg.det(factors)
    volumes = np.abs(determinants)
    log_scales = np.log(volumes)

    def draws(codes: IntArray, rng: np.random.Generator) -> FloatArray:
        n = len(codes)
        part = rng.integers(n_parts, size=n)
        noise = rng.standard_normal((n, n_features))
        chosen = (codes, part)
        factor = factors[chosen]
        shaped = np.einsum("nij,nj->ni", factor, noise)
        centre = means[chosen]
        return centre + shaped

    def log_densities(X: FloatArray) -> FloatArray:
        shape = (n_classes, n_parts, len(X))
        logs = np.empty(shape)
        for part in np.ndindex(n_classes, n_parts):
            centre = means[part]
            centred = X - centre
            inverse = inverses[part]
            z = centred @ inverse.T
            squared = z**2
            squares = squared.sum(axis=1)
            exponents = squares / -2
            log_scale = log_scales[part]
            logs[part] = exponents - log_scale
        of_classes = logsumexp(logs, axis=1)
        return np.asarray(of_classes).T

    return dense(draws, log_densities, n_classes, n_features)


def waveform() -> Problem:
    """Breiman's waveforms: random mixtures of two of three triangular waves with unit noise.

    There are 21 features.
    """
    peaks = np.array([[11], [7], [15]])
    features = np.arange(1, 22)
    distances = np.abs(features - peaks)
    heights = 6 - distances
    waves = np.maximum(heights, 0.0)
    start = waves[[1, 2, 2]]
    end = waves[[0, 0, 1]]
    step = end - start
    length = np.linalg.norm(step, axis=1)

    def draws(codes: IntArray, rng: np.random.Generator) -> FloatArray:
        n = len(codes)
        u = rng.random((n, 1))
        shape = (n, 21)
        noise = rng.standard_normal(shape)
        last = end[codes]
        first = start[codes]
        towards_end = u * last
        rest = 1 - u
        towards_start = rest * first
        return towards_end + towards_start + noise

    def log_densities(X: FloatArray) -> FloatArray:
        # ∫₀¹ N(x; start + u step, I) du in closed form: in u a normal around z / ‖step‖ of
        # deviation 1 / ‖step‖, cut to [0, 1].
        along = X @ step.T
        products = start * step
        origin = products.sum(axis=1)
        from_start = along - origin
        z = from_start / length
        # On the other side both terms would be 1, and their difference nothing.
        middle = length / 2
        flip = z > middle
        to_end = length - z
        far = np.where(flip, z, to_end)
        past_end = z - length
        near = np.where(flip, past_end, -z)
        upper = log_ndtr(far)
        lower = log_ndtr(near)
        ratio = np.exp(lower - upper)
        log_rest = np.log1p(-ratio)
        mass = upper + log_rest
        squared = start**2
        norms = squared.sum(axis=1)
        crossed = X @ start.T
        at_start = crossed - norms / 2
        log_length = np.log(length)
        z_squared = z**2
        half = z_squared / 2
        return at_start + half + mass - log_length

    return dense(draws, log_densities, 3, 21)
