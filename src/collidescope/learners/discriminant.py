"""Linear discriminant with a shrunk covariance: for embeddings of hundreds of dimensions.

Symbols: n rows, d features, K classes with n_c rows and means m_c, S the covariance within classes,
``Σ = (1 - λ) S + λ t I`` with t the mean variance (Ledoit and Wolf 2004), z = Σ^(-1/2) x. A row has
the squared distances δ_c = ‖z - m_c‖² and the log posteriors

    log π_c - τ (ν + d)/2 · log(1 + δ_c / ν)        (ν = ∞: log π_c - τ δ_c / 2)

of classes with a t density. Means are drawn to their common mean, as far as they vary by no more
than sampling error (empirical Bayes), together or direction by direction: classes may differ along
few. Held-out rows choose between the two, and λ, ν and the temperature τ; then all rows are learned
from.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Annotated, ClassVar

import numpy as np
from scipy.linalg import eigh

from collidescope._checks import IntArray
from collidescope.learners.base import (
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
    single,
    some,
)
from collidescope.learners.pool import likeliest


@dataclass(frozen=True)
class FittedDiscriminant(FittedArrays):
    """Class means in the space in which the classes are round."""

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
        centred = x - self.centre
        z = single(centred @ self.whitening)
        squares = squared_distances(z, self.means)
        logs = log_density(squares, self.degrees, z.shape[1])
        evidence = self.temperature * logs
        return log_softmax(self.log_priors + evidence)


@dataclass(frozen=True)
class Discriminant(ArrayMember):
    """Linear discriminant with a shrunk covariance and shrunk means."""

    most_features: float = 2_000
    fewest_features: int = 20  #: below, the member "gaussian" does the same
    #: λ that are tried
    shrinkages: tuple[float, ...] = (0.003, 0.03, 0.1, 0.3, 0.6, 0.9)
    #: ν that are tried; 0 stands for ∞
    degrees: tuple[float, ...] = (0.0, 100.0, 20.0, 7.0)
    parts: int = 6  #: of the rows, of which one is held out
    choosing_rows: int = 3_000  #: held-out rows that choose them
    most_rows: int = 100_000  #: rows that it learns from

    simple: ClassVar[bool] = True
    learned: ClassVar[type[Fitted]] = FittedDiscriminant

    def takes_part(self, n: int, d: int, k: int) -> bool:
        return d >= self.fewest_features and super().takes_part(n, d, k)

    def cost(self, n: int, d: int, k: int) -> float:
        rows = min(n, self.most_rows)
        few = min(n // self.parts, self.choosing_rows)
        shapes = 2 * len(self.shrinkages)
        covariance = 6e-11 * rows * d * d
        eigenvectors = 5e-10 * d**3
        product = 1e-10 * d * k
        row = product + 3e-8 * d + 1.5e-7 * k
        scores = shapes * few * row
        return 0.01 + covariance + eigenvectors + scores

    def learn(self, task: Task) -> FittedDiscriminant:
        X, codes, w = task.sample(self.most_rows)
        shape = self._chosen_shape(task)
        within = Within.of(X, codes, w, task.n_classes)
        space = within.shrunk(shape.shrinkage, shape.low_rank)
        return FittedDiscriminant(
            name=self.name,
            centre=single(within.centre),
            whitening=single(within.directions * space.scale),
            means=space.means,
            log_priors=np.log(task.priors),
            degrees=shape.degrees,
            temperature=shape.temperature,
        )

    def _chosen_shape(self, task: Task) -> Shape:
        """The shape of the classes with the lowest loss of held-out rows."""
        train, test = self._halves(task)
        if len(test.codes) == 0:
            return Shape()
        within = Within.of(train.X, train.codes, train.weights, task.n_classes)
        centred = test.X - single(within.centre)
        rotated = centred @ within.directions
        labels = Labels(test.codes, test.weights, np.log(task.priors))
        d = task.X.shape[1]
        lowest = np.inf
        best = Shape()
        for shrinkage, low_rank in product(self.shrinkages, (False, True)):
            space = within.shrunk(shrinkage, low_rank)
            z = rotated * single(space.scale)
            squares = squared_distances(z, space.means)
            for degrees in self.degrees:
                logs = log_density(squares, degrees, d)
                temperature, loss = labels.calibrated(logs)
                if loss < lowest:
                    lowest = loss
                    best = Shape(shrinkage, low_rank, degrees, temperature)
        return best

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

    shrinkage: float = 0.1
    low_rank: bool = False
    degrees: float = 0.0
    temperature: float = 0.8


@dataclass(frozen=True)
class Labels:
    """Classes of held-out rows, their weights, and the log priors."""

    codes: IntArray
    w: FloatArray
    log_priors: FloatArray

    def calibrated(self, logs: FloatArray) -> tuple[float, float]:
        """The temperature under which the classes are likeliest, and the loss then."""
        mean_weight = self.w.sum() / len(self.w)
        unit = self.w / mean_weight
        largest = logs.max(axis=1, keepdims=True)
        logs = logs - largest
        given = np.broadcast_to(self.log_priors, logs.shape)
        evidence = np.stack([logs, given])
        bounds = [(0.01, 10.0), (1.0, 1.0)]
        start = np.array([0.8, 1.0])
        temperature, _ = likeliest(evidence, self.codes, unit, start, bounds)
        logits = self.log_priors + temperature * logs
        own = of_class(log_softmax(logits), self.codes)
        loss = -unit @ own
        return float(temperature), float(loss)


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
        weights = single(w)[:, None]
        onehot = unit[codes] * weights
        centre = w @ X / w.sum()
        centred = X - single(centre)
        sums = onehot.T @ centred
        size = np.maximum(n, 1e-3)
        means = sums / size[:, None]
        deviations = centred - single(means[codes])
        root = np.sqrt(w, dtype=np.float32)
        weighted = deviations * root[:, None]
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
        variances = (1 - shrinkage) * self.variances
        variances += shrinkage * mean_variance
        scale = 1 / np.sqrt(variances)
        means = shrunk_means(self.means * scale, self.n, low_rank)
        return Space(scale, means)


def shrunk_means(means: FloatArray, n: FloatArray, low_rank: bool) -> Float32:
    """Means drawn to 0, the mean of all rows: all alike, or by the directions of their scatter.

    Along a direction they vary by v = s + 1/n, of which 1/n is sampling error: a share s / v of a
    mean is signal.
    """
    present = n > 0
    known = means[present]
    size = np.maximum(n, 1e-3)
    sampling = 1 / size[:, None]
    if low_rank:
        _, singular, directions = np.linalg.svd(known, full_matrices=False)
        variances = singular**2 / len(known)
    else:
        directions = np.eye(means.shape[1])
        variances = np.square(known).mean()
    typical = sampling[present].mean()
    signal = np.maximum(variances - typical, 0)
    both = np.maximum(signal + sampling, 1e-30)
    along = means @ directions.T
    along *= signal / both
    return single(along @ directions)


@dataclass(frozen=True)
class Space:
    """A space in which classes are round."""

    scale: FloatArray  #: (d,) of the eigenvectors of S
    means: Float32  #: (K, d) of the classes, drawn to their common mean


def squared_distances(z: Float32, means: Float32) -> Float32:
    """‖z - m‖², (n, K); rounded to less than 0 it is 0."""
    squares = z @ means.T
    squares *= -2
    of_rows = np.square(z).sum(axis=1)
    squares += of_rows[:, None]
    squares += np.square(means).sum(axis=1)
    return single(np.maximum(squares, 0, out=squares))


def log_density(squares: Float32, degrees: float, d: int) -> FloatArray:
    """Of a round t distribution in d dimensions, but for a constant; normal for 0 degrees."""
    exact = double(squares)
    if degrees == 0:
        return -0.5 * exact
    power = 0.5 * (degrees + d)
    return np.asarray(-power * np.log1p(exact / degrees))
