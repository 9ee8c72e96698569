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
from scipy.special import softmax

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
    priors, classes : K class shares and names
    draw : ``draw(codes, rng)`` gives one input from the distribution of each class number
    teacher : ``teacher(X)`` gives the true posterior of every row of ``n_features`` numbers
    nodes : gives blocks of (posteriors, weights), all weights summing to 1; by default they are
        drawn
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
        if rows.shape[1] != self.n_features:
            raise ValueError(
                f"X must have {self.n_features} columns, got {rows.shape[1]} (shape "
                f"{rows.shape})"
            )
        return self._teacher(rows)

    def drawn_nodes(self) -> Blocks:
        """Blocks of (posteriors, weights) by Monte Carlo, class by class, the same every time."""
        rng = np.random.default_rng(TRUTH_SEED)
        per_class = TRUTH_DRAWS // len(self.priors)
        for k, prior in enumerate(self.priors):
            for part in blocks(per_class, 1, BLOCK):
                codes = np.full(part.stop - part.start, k, dtype=np.intp)
                P = self.posteriors(self.draw(codes, rng))
                yield P, np.full(len(codes), prior / per_class)

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
            codes = rng.permutation(np.repeat(np.arange(k), counts))
        else:
            codes = rng.choice(k, n_samples, p=self.priors)
        return self.draw(codes, rng), self.classes[codes]

    @cached_property
    def _truth(self) -> tuple[CollisionMatrix, float]:
        k = len(self.priors)
        B = np.zeros((k, k))
        right = 0.0
        for P, weights in self.nodes():
            B += P.T @ (weights[:, None] * P)
            right += float(weights @ P.max(axis=1))
        B = balance((B + B.T) / 2, self.priors)
        S = B / B.sum(axis=1, keepdims=True)
        return CollisionMatrix(S, self.priors, self.classes), 1 - right

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
        super().__init__(
            priors=check.priors_or_uniform(priors, k),
            classes=check.check_classes(classes, k),
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
        precision = 1 / self.scales**2
        beyond = precision - precision.min()
        with np.errstate(over="ignore", invalid="ignore"):
            norms = np.minimum((X**2).sum(axis=1), np.finfo(np.float64).max)
            rest = (means**2).sum(axis=1) - 2 * X @ means.T
            squares = norms[:, None] * beyond + rest * precision
        volumes = X.shape[1] * np.log(self.scales)
        logs = np.log(self.priors) - volumes - squares / 2
        if not np.isfinite(logs.max(axis=1)).all():
            raise ValueError(
                "X is too far from every class for a posterior, got "
                f"{np.abs(X).max():.6g}"
            )
        return np.asarray(softmax(logs, axis=1))

    def _quadrature(self) -> Blocks:
        """Exact where all scales are equal and the centres span a line or a plane, else draws."""
        centred = self.means - self.means.mean(axis=0)
        _, spread, axes = np.linalg.svd(centred, full_matrices=False)
        smallest = 1e-9 * max(spread[0], 1e-300)
        rank = max(1, int((spread > smallest).sum()))
        scale = self.scales[0]
        if rank > 2 or np.ptp(self.scales) > 0:
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
        norm = (2 * np.pi * scale**2) ** (rank / 2)
        for block in blocks(len(grid), 1, BLOCK):
            x = grid[block]
            squares = ((x[:, None] - centres) ** 2).sum(axis=2)
            density = np.exp(-squares / (2 * scale**2)) @ self.priors / norm
            yield self._posteriors_of(x, centres), density * step**rank


def _grid_around(centres: FloatArray, margin: float, step: float) -> FloatArray:
    """Points of a line or a plane that reach a margin beyond all centres."""
    sides = [
        np.arange(along.min() - margin, along.max() + margin, step)
        for along in centres.T
    ]
    points = np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1)
    return points.reshape(-1, len(sides))


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
    return GaussianProblem(np.outer(centres[n_classes], np.ones(4)))


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
    centres = np.linspace(-length / 2, length / 2, n_classes)
    return GaussianProblem(np.outer(centres, unit), priors=priors)


def ring() -> GaussianProblem:
    """Scenario D, not log-linear: six Gaussians of different widths on a ring.

    The ring lies in 2 of 6 dimensions. The priors fall evenly, the first class four times as common
    as the last.
    """
    angles = 2 * np.pi * np.arange(6) / 6
    means = np.zeros((6, 6))
    means[:, 0] = np.cos(angles)
    means[:, 1] = np.sin(angles)
    scales = [0.6, 1.4, 0.8, 1.2, 0.7, 1.0]
    weights = np.linspace(4, 1, 6)
    return GaussianProblem(1.8 * means, scales, weights / weights.sum())
