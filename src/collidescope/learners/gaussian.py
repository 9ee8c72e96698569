"""Gaussian classes, each with a covariance of its own, and all their parameters integrated out.

Symbols: K classes; d features in B blocks of p that are independent within a class (one block of
d, or d blocks of one: naive Bayes); of class c, n_c rows, their mean x̄_c and their scatter A_c
around it; Σ the covariance within classes, m the mean of all rows. A priori
``Σ_c ~ IW(ν, (ν - p - 1) Σ)`` and ``μ_c ~ N(m, Σ_c / κ)`` in every block: classes have one
covariance as far as ν is large, and one mean as far as κ is. The marginal likelihood of the rows
chooses both, and the density of a new row in a class is a multivariate t (Murphy 2007, "Conjugate
Bayesian analysis of the Gaussian distribution", section 9).

Where classes are such, this needs a fraction of the rows that softmax regression with products of
features needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from scipy.special import gammaln, multigammaln

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
    single,
)


@dataclass(frozen=True)
class FittedGaussian(FittedArrays):
    """A multivariate t density for every class."""

    scale: Annotated[Float32, "f4 d"]
    mean: Annotated[FloatArray, "f8 K d"]
    #: F with F Fᵀ the inverse of t's scale matrix
    factor: Annotated[FloatArray, "f8 K B p p"]
    degrees: Annotated[FloatArray, "f8 K"]
    constant: Annotated[FloatArray, "f8 K"]

    def __post_init__(self) -> None:
        _, B, p, _ = self.factor.shape
        d = len(self.scale)
        covered = B * p
        if covered != d:
            raise ValueError(f"{B} blocks of {p} features do not make {d}")
        lowest = self.degrees.min()
        if not lowest > 0:
            raise ValueError("degrees must be above 0")

    @property
    def row_numbers(self) -> int:
        return 4 * len(self.scale) + len(self.degrees)

    def score(self, x: Float32) -> FloatArray:
        scaled = _scaled(x, self.scale)
        classes = range(len(self.degrees))
        logs = [self._log_joint(scaled, c) for c in classes]
        return log_softmax(np.stack(logs, axis=1))

    def _log_joint(self, scaled: FloatArray, c: int) -> FloatArray:
        """Log p(x, c), but for a constant that all classes share."""
        _, B, p, _ = self.factor.shape
        df = self.degrees[c]
        away = scaled - self.mean[c]
        by_block = _in_blocks(away, B).transpose(1, 0, 2)
        whitened = by_block @ self.factor[c]
        logs = np.log1p(np.square(whitened).sum(axis=2) / df)
        power = 0.5 * (df + p)
        density: FloatArray = self.constant[c] - power * logs.sum(axis=0)
        return density


@dataclass(frozen=True)
class Gaussian(ArrayMember):
    """Gaussian classes."""

    most_features: float = 300
    independent: bool = False  #: whether features are, within a class
    #: ν - p - 1 that are tried: with less there is no mean of Σ_c
    degrees: tuple[float, ...] = tuple(10.0**e for e in (0, 0.5, 1, 1.5, 2, 2.5, 3, 4))
    strengths: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0)  #: κ that are tried, in rows
    #: of a feature over all rows: nothing is divided by rounding noise
    smallest_sd: float = 1e-3
    most_rows: int = 30_000  #: rows that it learns from
    #: numbers in all covariances, which every row is multiplied by
    most_factors: int = 500_000
    most_logarithms: int = 50_000  #: of a row with independent features

    simple: ClassVar[bool] = True
    parametric: ClassVar[bool] = True
    learned: ClassVar[type[Fitted]] = FittedGaussian

    def takes_part(self, n: int, d: int, k: int) -> bool:
        if self.independent:
            few = d > 1 and k * d <= self.most_logarithms
        else:
            few = k * d * d <= self.most_factors
        return few and super().takes_part(n, d, k)

    def cost(self, n: int, d: int, k: int) -> float:
        rows = min(n, self.most_rows)
        tried = len(self.degrees) * len(self.strengths)
        if self.independent:
            moments = 1e-8 * rows * d
            determinants = 1e-7 * tried * k * d
        else:
            moments = 3e-10 * rows * d * d
            determinant = 1.3e-10 * d**3 + 1e-5
            determinants = tried * k * determinant
        return moments + determinants

    def learn(self, task: Task) -> FittedGaussian:
        """Normal-inverse-Wishart posterior of every class; a new row then has a t density."""
        X, codes, w = task.sample(self.most_rows)
        scale = self._scale(X)
        scaled = _scaled(X, scale)
        B = 1
        if self.independent:
            B = X.shape[1]
        classes = class_moments(scaled, codes, w, task.n_classes, B)
        prior = likeliest_prior(classes, self.strengths, self.degrees)
        return predictive_t(
            self.name,
            scale,
            classes,
            prior,
            task.priors,
        )

    def _scale(self, X: Float32) -> Float32:
        clipped = X.clip(-LARGEST_INPUT, LARGEST_INPUT)
        sd = clipped.std(axis=0, dtype=np.float64)
        return single(1 / np.maximum(sd, self.smallest_sd))


@dataclass(frozen=True)
class ClassMoments:
    """What the rows of every class say about its mean and covariance."""

    n: FloatArray  #: (K,) weight of the rows of a class
    mean: FloatArray  #: (K, d) x̄_c
    scatter: FloatArray  #: (K, B, p, p) A_c
    centre: FloatArray  #: (d,) m
    total: float  #: weight of all rows

    @property
    def shifts(self) -> FloatArray:
        """(K, B, p, p): the outer products of x̄_c - m."""
        n_blocks = self.scatter.shape[1]
        away = _in_blocks(self.mean - self.centre, n_blocks)
        return double(np.einsum("cbi,cbj->cbij", away, away))


def class_moments(
    x: FloatArray, codes: IntArray, w: FloatArray, n_classes: int, n_blocks: int
) -> ClassMoments:
    """Weights, means and scatter of the classes. One without rows has n = 0 and mean 0."""
    n = class_weights(codes, w, n_classes)
    rows = _rows_of_classes(codes, n_classes)
    each = [w[own] @ x[own] for own in rows]
    sums = np.stack(each)
    size = np.maximum(n, 1e-3)
    mean = sums / size[:, None]
    root = np.sqrt(w)
    away = x - mean[codes]
    weighted = away * root[:, None]
    # (B, p, n): A_c, (B, p, p), is then one product for all blocks.
    blocks = _in_blocks(weighted, n_blocks)
    deviations = blocks.transpose(1, 2, 0)
    scatter = []
    for own in rows:
        part = deviations[..., own]
        scatter.append(part @ part.transpose(0, 2, 1))
    total = w.sum()
    return ClassMoments(
        n=n,
        mean=mean,
        scatter=np.stack(scatter),
        centre=w @ x / total,
        total=total,
    )


def _rows_of_classes(codes: IntArray, n_classes: int) -> list[IntArray]:
    order = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes, minlength=n_classes)
    return np.split(order, np.cumsum(sizes)[:-1])


@dataclass(frozen=True)
class Prior:
    """κ, ν and (ν - p - 1) Σ, of (B, p, p)."""

    kappa: float
    nu: float
    scatter: FloatArray


def pooled_covariance(
    classes: ClassMoments, smallest_variance: float = 1e-4
) -> FloatArray:
    """Σ of every block, (B, p, p): not singular for any number of rows.

    A feature that never varied within a class still may, by ``smallest_variance``.
    """
    K, _, p, _ = classes.scatter.shape
    total = classes.total
    unit = np.eye(p)
    free = max(total - K, 1.0)
    scatter = classes.scatter.sum(axis=0)
    pooled = scatter / free
    # As if p more rows had no correlations: with fewer rows than features it would be singular.
    diagonal = pooled * unit
    weighted = total * pooled
    weighted += p * diagonal
    n_rows = total + p
    shrunk: FloatArray = weighted / n_rows
    shrunk += smallest_variance * unit
    return shrunk


def likeliest_prior(
    classes: ClassMoments, strengths: tuple[float, ...], degrees: tuple[float, ...]
) -> Prior:
    """κ of ``strengths`` and ν - p - 1 of ``degrees`` with the highest marginal likelihood."""
    p = classes.scatter.shape[-1]
    pooled = pooled_covariance(classes)
    _, log_dets = np.linalg.slogdet(pooled)
    log_volume = log_dets.sum()
    highest = -np.inf
    for kappa in strengths:
        for more in degrees:
            prior = Prior(kappa, p + 1 + more, more * pooled)
            likelihood = _log_marginal_likelihood(classes, prior, log_volume)
            if likelihood > highest:
                highest = likelihood
                best = prior
    return best


def _log_marginal_likelihood(
    classes: ClassMoments, prior: Prior, log_volume: float
) -> float:
    """Murphy's marginal likelihood, summed over blocks and classes; ``log_volume`` is log det Σ.

    π^(-np/2) depends on neither κ nor ν, and is left out.
    """
    _, B, p, _ = classes.scatter.shape
    n = classes.n
    nu = prior.nu
    kappa = prior.kappa
    more = nu - p - 1
    d = B * p
    scatter = posterior_scatter(classes, prior)
    _, log_dets = np.linalg.slogdet(scatter)
    volumes = log_dets.sum(axis=1)
    # The prior scatter is more · Σ, so its log det is log_volume + B p log(more).
    prior_volume = log_volume + d * np.log(more)
    counted = nu + n
    after = multigammaln(counted / 2, p)
    gammas = B * (after - multigammaln(nu / 2, p))
    spread_before = 0.5 * nu * prior_volume
    spread_after = 0.5 * counted * volumes
    spread = spread_before - spread_after
    share = kappa / (kappa + n)
    strength = 0.5 * d * np.log(share)
    of_classes = gammas + spread + strength
    return float(of_classes.sum())


def posterior_scatter(classes: ClassMoments, prior: Prior) -> FloatArray:
    """The scatter of every class, (K, B, p, p): prior, rows, and the mean of the rows around m."""
    n = classes.n[:, None, None, None]
    kappa = prior.kappa
    share = kappa * n / (kappa + n)
    of_means = share * classes.shifts
    of_rows = classes.scatter
    around = of_rows + of_means
    return prior.scatter + around


def predictive_t(
    name: str, scale: Float32, classes: ClassMoments, prior: Prior, priors: FloatArray
) -> FittedGaussian:
    """The t densities of new rows, one for every class.

    Given the rows, κ and ν grow by n, and means are drawn to m. A new row has df = ν + n - p + 1
    degrees of freedom and the scale matrix ``scatter · (κ + n + 1) / ((κ + n) df)``.
    """
    _, B, p, _ = classes.scatter.shape
    degrees = classes.n + prior.nu - p + 1
    strength = classes.n + prior.kappa
    widening = (strength + 1) / (strength * degrees)
    scatter = posterior_scatter(classes, prior)
    scale_matrix = scatter * widening[:, None, None, None]
    lower = np.linalg.cholesky(scale_matrix)
    # F = L⁻ᵀ: ‖(x - μ)ᵀ F‖² is the squared Mahalanobis distance, Σ log L_ii half of log det.
    inverse = np.linalg.inv(lower)
    diagonal = np.einsum("cbii->cbi", lower)
    volume = np.log(diagonal).sum(axis=(1, 2))
    at_mean = B * _log_t_at_mean(degrees, p)
    return FittedGaussian(
        name=name,
        scale=scale,
        mean=_posterior_mean(classes, prior.kappa),
        factor=inverse.transpose(0, 1, 3, 2),
        degrees=degrees,
        constant=np.log(priors) + at_mean - volume,
    )


def _posterior_mean(classes: ClassMoments, kappa: float) -> FloatArray:
    """(K, d) means of the classes, drawn to that of all rows."""
    n = classes.n[:, None]
    own = n * classes.mean
    common = kappa * classes.centre
    strength = n + kappa
    mean = (own + common) / strength
    return double(mean)


def _log_t_at_mean(degrees: FloatArray, p: int) -> FloatArray:
    """Log density of a t in p dimensions at its mean, without π^(-p/2), which all classes share."""
    above = (degrees + p) / 2
    gammas = gammaln(above) - gammaln(degrees / 2)
    return double(gammas - 0.5 * p * np.log(degrees))


def _scaled(x: Float32, scale: Float32) -> FloatArray:
    clipped = np.clip(x, -LARGEST_INPUT, LARGEST_INPUT)
    return double(clipped * scale)


def _in_blocks(rows: FloatArray, n_blocks: int) -> FloatArray:
    """(n, d) → (n, B, p)."""
    n, d = rows.shape
    return rows.reshape(n, n_blocks, d // n_blocks)
