"""Linear discriminant with a shrunk covariance: for embeddings of hundreds of dimensions.

Symbols: n rows, d features, K classes with n_c rows and means m_c, S the covariance within classes,
``Σ = (1 - λ) S + λ t I`` with t the mean variance (Ledoit and Wolf 2004), z = Σ^(-1/2) x. A row has
the squared distances δ_c = ‖z - m_c‖² and the log posteriors

    log π_c - τ (ν + d)/2 · log(1 + δ_c / ν)        (ν = ∞: log π_c - τ δ_c / 2)

of classes with a t density. Means are drawn to their common mean, as far as they vary by no more
than sampling error (empirical Bayes), together or direction by direction: classes may differ along
few. Held-out rows choose between the two, and λ, ν and the temperature τ; then all rows are learned
from. Of embeddings they also choose between the features and their normal scores, which have no
heavy tails.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated, ClassVar

import numpy as np
from scipy.linalg import eigh
from scipy.special import ndtri

from collidescope._checks import IntArray
from collidescope.learners.base import (
    LARGEST_INPUT,
    ArrayMember,
    Fitted,
    FittedArrays,
    Float32,
    FloatArray,
    Task,
    class_weights,
    double,
    log_softmax,
    of_class,
    row_max,
    single,
    some,
    squared_distances,
)
from collidescope.learners.softmax import Inputs


@dataclass(frozen=True)
class NormalScores:
    """Every feature bent so that its values have the ranks of a normal; straight beyond."""

    quantiles: Annotated[Float32, "f4 Q d"]

    def __post_init__(self) -> None:
        fewest = 3
        few = len(self.quantiles) < fewest
        if few or (np.diff(self.quantiles, axis=0) < 0).any():
            raise ValueError(f"there must be {fewest} quantiles that do not decrease")

    @classmethod
    def of(
        cls, task: Task, most_rows: int = 20_000, n_levels: int = 100
    ) -> NormalScores:
        X, _, _ = task.sample(most_rows)
        ordered = np.sort(X, axis=0)
        ranks = len(X) * _levels(n_levels)
        return cls(single(ordered[ranks.astype(np.intp)]))

    def expand(self, x: Float32) -> Float32:
        n_levels = len(self.quantiles)
        normal = ndtri(_levels(n_levels))
        scores = np.empty(x.shape, np.float32)
        for j, at in enumerate(self.quantiles.T):
            values = x[:, j]
            bent = np.interp(values, at, normal)
            low, high = _slopes(at, normal)
            below = np.minimum(values - at[0], 0)
            above = np.maximum(values - at[-1], 0)
            scores[:, j] = bent + low * below + high * above
        return np.clip(scores, -LARGEST_INPUT, LARGEST_INPUT)


def _levels(n: int) -> FloatArray:
    """The middles of n equal parts of (0, 1)."""
    return (np.arange(n) + 0.5) / n


def _slopes(at: Float32, normal: FloatArray) -> tuple[float, float]:
    """The slopes of the first and the last step; 0 where many rows share the outermost value."""
    steps = np.diff(double(at))
    rises = np.diff(normal)
    apart = steps > 1e-6
    slopes = np.where(apart, rises / np.maximum(steps, 1e-6), 0.0)
    return float(slopes[0]), float(slopes[-1])


@dataclass(frozen=True)
class FittedDiscriminant(FittedArrays):
    """Class means in the space in which the classes are round."""

    features: Inputs | NormalScores
    centre: Annotated[Float32, "f4 d"]
    whitening: Annotated[Float32, "f4 d r"]
    means: Annotated[Float32, "f4 K r"]
    log_priors: Annotated[FloatArray, "f8 K"]
    degrees: Annotated[float, 0.0, 1e9]  #: ν; 0 stands for ∞
    temperature: Annotated[float, 0.0, 100.0]

    @property
    def row_numbers(self) -> int:
        return 2 * len(self.centre) + 3 * len(self.log_priors)

    def score(self, x: Float32) -> FloatArray:
        f = self.features.expand(x)
        centred = f - self.centre
        z = single(centred @ self.whitening)
        squares = squared_distances(z, self.means)
        logs = log_density(
            squares,
            self.degrees,
            z.shape[1],
        )
        evidence = self.temperature * logs
        return log_softmax(self.log_priors + evidence)


@dataclass(frozen=True)
class Discriminant(ArrayMember):
    """Linear discriminant with a shrunk covariance and shrunk means."""

    most_features: float = 2_000
    fewest_features: int = 20  #: below, the member "gaussian" does the same
    #: λ that are tried: many rows afford directions of small variance
    shrinkages: tuple[float, ...] = (3e-5, 3e-4, 0.003, 0.03, 0.1, 0.3, 0.9)
    #: ν that are tried; 0 stands for ∞
    degrees: tuple[float, ...] = (0.0, 100.0, 20.0, 7.0)
    parts: int = 6  #: of the rows, of which one is held out
    choosing_rows: int = 3_000  #: held-out rows that choose them
    most_rows: int = 100_000  #: rows that it learns from
    #: features from which on their normal scores are tried too
    ranked_features: int = 200

    simple: ClassVar[bool] = True
    parametric: ClassVar[bool] = True
    learned: ClassVar[type[Fitted]] = FittedDiscriminant

    def takes_part(self, n: int, d: int, k: int) -> bool:
        return d >= self.fewest_features and super().takes_part(n, d, k)

    def cost(self, n: int, d: int, k: int) -> float:
        rows = min(n, self.most_rows)
        held_out = n // self.parts
        few = min(held_out, self.choosing_rows)
        maps = 1
        if d >= self.ranked_features:
            maps = 2
        shapes = 2 * maps * len(self.shrinkages) + len(self.degrees)
        covariance = 6e-11 * rows * d * d
        eigenvectors = 5e-10 * d**3
        products = 1e-10 * d * k
        rotation = 3e-8 * d
        densities = 1.5e-7 * k
        row = products + rotation + densities
        scores = shapes * few * row
        learned = maps * (covariance + eigenvectors)
        return 0.01 + learned + scores

    def learn(self, task: Task) -> FittedDiscriminant:
        shape = self._chosen_shape(task)
        X, codes, w = task.sample(self.most_rows)
        rows = shape.features.expand(X)
        within = Within.of(rows, codes, w, task.n_classes)
        space = within.shrunk(shape.shrinkage, shape.low_rank)
        return FittedDiscriminant(
            name=self.name,
            features=shape.features,
            centre=single(within.centre),
            whitening=single(within.directions * space.scale),
            means=space.means,
            log_priors=np.log(task.priors),
            degrees=shape.degrees,
            temperature=shape.temperature,
        )

    def _chosen_shape(self, task: Task) -> Shape:
        """The shape of the classes with the lowest loss of held-out rows."""
        d = task.X.shape[1]
        features = Inputs(d)
        train, test = self._halves(task)
        if len(test.codes) == 0:
            return Shape(features)
        views = [View.of(features, train, test)]
        if d >= self.ranked_features:
            ranked = NormalScores.of(task)
            views.append(View.of(ranked, train, test))
        shapes = [view.best_normal(self.shrinkages) for view in views]
        losses = [shape.loss for shape in shapes]
        place = int(np.argmin(losses))
        return views[place].best_degrees(shapes[place], self.degrees)

    def _halves(self, task: Task) -> tuple[Task, Task]:
        """Rows to learn from, and held-out rows that choose."""
        part = task.inner_parts(self.parts, task.seed)
        generator = np.random.default_rng(task.seed)
        used = task.weights > 0
        first = part == 0
        trained = np.flatnonzero(used & ~first)
        held_out = np.flatnonzero(used & first)
        train = some(trained, self.most_rows, generator)
        test = some(held_out, self.choosing_rows, generator)
        return task.rows(train), task.rows(test)


@dataclass(frozen=True)
class Shape:
    """What held-out rows choose; the defaults are for where no row can be held out."""

    features: Inputs | NormalScores
    shrinkage: float = 0.1
    low_rank: bool = False
    degrees: float = 0.0
    temperature: float = 0.8
    loss: float = math.inf  #: of the held-out rows


@dataclass(frozen=True)
class View:
    """What is learned from features of some rows, and held-out rows that choose the shape."""

    features: Inputs | NormalScores
    within: Within
    rotated: Float32  #: held-out rows, in the eigenvectors of S
    labels: Labels

    @classmethod
    def of(cls, features: Inputs | NormalScores, train: Task, test: Task) -> View:
        rows = features.expand(train.X)
        within = Within.of(rows, train.codes, train.weights, train.n_classes)
        centred = features.expand(test.X) - single(within.centre)
        rotated = single(centred @ within.directions)
        log_priors = np.log(train.priors)
        labels = Labels(test.codes, test.weights, log_priors)
        return cls(features, within, rotated, labels)

    def best_normal(self, shrinkages: Sequence[float]) -> Shape:
        """The shape of normal classes with the lowest loss."""
        best = Shape(self.features)
        choices = product(shrinkages, (False, True))
        for shrinkage, low_rank in choices:
            shape = Shape(self.features, shrinkage, low_rank)
            (tried,) = self._calibrated(shape, [0.0])
            if tried.loss < best.loss:
                best = tried
        return best

    def best_degrees(self, shape: Shape, degrees: Sequence[float]) -> Shape:
        """The shape, with the tails that have the lowest loss."""
        tried = self._calibrated(shape, degrees)
        return min(tried, key=lambda each: each.loss)

    def _calibrated(self, shape: Shape, degrees: Sequence[float]) -> list[Shape]:
        """A shape with each of these degrees, with its temperature and loss."""
        space = self.within.shrunk(shape.shrinkage, shape.low_rank)
        z = self.rotated * single(space.scale)
        squares = squared_distances(z, space.means)
        d = z.shape[1]
        found = []
        for each in degrees:
            logs = log_density(squares, each, d)
            temperature, loss = self.labels.calibrated(logs)
            own = replace(shape, degrees=each, temperature=temperature, loss=loss)
            found.append(own)
        return found


@dataclass(frozen=True)
class Labels:
    """Classes of held-out rows, their weights, and the log priors."""

    codes: IntArray
    w: FloatArray
    log_priors: FloatArray

    def calibrated(self, logs: FloatArray, most_steps: int = 12) -> tuple[float, float]:
        """The temperature under which the classes are likeliest, and the loss then.

        The loss is convex, with the slope Σ w (E_p[l] - l_own) and the curvature Σ w Var_p[l]:
        Newton's steps, none of which more than doubles or halves the temperature.
        """
        mean_weight = self.w.sum() / len(self.w)
        unit = self.w / mean_weight
        logs = logs - row_max(logs)
        own = of_class(logs, self.codes)
        temperature = 0.8
        for _ in range(most_steps):
            p = np.exp(self._posteriors(temperature, logs))
            weighed = p * logs
            mean = weighed.sum(axis=1)
            squares = (weighed * logs).sum(axis=1)
            slope = unit @ (mean - own)
            curvature = unit @ (squares - mean**2)
            step = temperature - slope / max(curvature, 1e-12)
            within = np.clip(step, temperature / 2, temperature * 2)
            before = temperature
            temperature = float(np.clip(within, 0.01, 10.0))
            if abs(temperature - before) < 1e-3 * before:
                break
        posteriors = self._posteriors(temperature, logs)
        loss = float(-unit @ of_class(posteriors, self.codes))
        return temperature, loss

    def _posteriors(self, temperature: float, logs: FloatArray) -> FloatArray:
        evidence = temperature * logs
        return log_softmax(self.log_priors + evidence)


@dataclass(frozen=True)
class Within:
    """Means and covariance of the classes, in the eigenvectors of S."""

    centre: FloatArray  #: (d,) mean of all rows
    directions: Float32  #: (d, d) eigenvectors of S, in columns
    variances: FloatArray  #: (d,) along them
    means: FloatArray  #: (K, d) of the classes along them
    n: FloatArray  #: (K,) weights of the classes

    @classmethod
    def of(cls, X: Float32, codes: IntArray, w: FloatArray, n_classes: int) -> Within:
        n = class_weights(codes, w, n_classes)
        unit = np.eye(n_classes, dtype=np.float32)
        weights = single(w)
        onehot = unit[codes] * weights[:, None]
        centre = w @ X / w.sum()
        centred = X - single(centre)
        sums = onehot.T @ centred
        size = np.maximum(n, 1e-3)
        means = sums / size[:, None]
        deviations = centred - single(means[codes])
        weighted = deviations * np.sqrt(w, dtype=np.float32)[:, None]
        scatter = double(weighted.T @ weighted)
        free = max(n.sum() - n_classes, 1.0)
        variances, directions = eigh(
            scatter / free,
            overwrite_a=True,
            check_finite=False,
        )
        return cls(
            centre=centre,
            directions=single(directions),
            variances=np.maximum(variances, 0),
            means=means @ directions,
            n=n,
        )

    def shrunk(self, shrinkage: float, low_rank: bool) -> Space:
        """The space in which classes are round if λ is this ``shrinkage``."""
        mean_variance = self.variances.mean() + 1e-9
        kept = 1 - shrinkage
        variances = kept * self.variances
        variances += shrinkage * mean_variance
        scale = 1 / np.sqrt(variances)
        means = shrunk_means(
            self.means * scale,
            self.n,
            low_rank,
        )
        return Space(scale, means)


def shrunk_means(means: FloatArray, n: FloatArray, low_rank: bool) -> Float32:
    """Means drawn to 0, the mean of all rows: all alike, or by the directions of their scatter."""
    if low_rank:
        return single(low_rank_means(means, n))
    size = np.maximum(n, 1e-3)
    sampling = 1 / size
    present = n > 0
    variance = np.square(means[present]).mean()
    typical = sampling[present].mean()
    signal = np.maximum(variance - typical, 0)
    share = signal / np.maximum(signal + sampling, 1e-30)
    return single(means * share[:, None])


def low_rank_means(means: FloatArray, n: FloatArray) -> FloatArray:
    """Means whose scatter lies along few directions, and nothing is known of which.

    Times √n_c every entry has sampling error 1, and a singular value y (in units of √max(K, d)) of
    such a matrix exceeds that of the signal, along directions that are partly noise. The
    estimate with the least expected square puts √((y² - β - 1)² - 4 β) / y in its place, and 0 for
    y ≤ 1 + √β, with β the shorter side over the longer (Gavish and Donoho 2017).
    """
    size = np.maximum(n, 1e-3)
    root = np.sqrt(size)[:, None]
    left, singular, right = np.linalg.svd(means * root, full_matrices=False)
    n_present = int((n > 0).sum())
    shorter, longer = sorted((n_present, means.shape[1]))
    beta = shorter / longer
    unit = np.sqrt(longer)
    y = singular / unit
    signal = (y**2 - beta - 1) ** 2 - 4 * beta
    above = y > 1 + np.sqrt(beta)
    kept = np.zeros_like(y)
    kept[above] = np.sqrt(signal[above]) / y[above]
    shrunk = (left * (kept * unit)) @ right
    return np.asarray(shrunk / root)


@dataclass(frozen=True)
class Space:
    """A space in which classes are round."""

    scale: FloatArray  #: (d,) of the eigenvectors of S
    means: Float32  #: (K, d) of the classes, drawn to their common mean


def log_density(squares: Float32, degrees: float, d: int) -> FloatArray:
    """The log density of a round t distribution, up to a constant; normal for 0 degrees."""
    exact = double(squares)
    if degrees == 0:
        return -0.5 * exact
    logs = np.log1p(exact / degrees)
    power = 0.5 * (degrees + d)
    return np.asarray(-power * logs)
