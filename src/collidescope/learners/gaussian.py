"""Gaussian classes, each with a covariance of its own, and all their parameters integrated out.

Symbols: K classes; d features in B blocks of p that are independent within a class (one block of d, or d blocks of
one: naive Bayes); of class c, n_c rows, their mean x̄_c and their scatter A_c around it; Σ the covariance within
classes, m the mean of all rows. A priori ``Σ_c ~ IW(ν, (ν - p - 1) Σ)`` and ``μ_c ~ N(m, Σ_c / κ)`` in every block:
classes have one covariance as far as ν is large, and one mean as far as κ is. The marginal likelihood of the rows
chooses both, and the density of a new row in a class is a multivariate t (Murphy 2007, "Conjugate Bayesian analysis
of the Gaussian distribution", section 9).

Where classes are such, this needs a fraction of the rows that softmax regression with products of features needs.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from scipy.special import gammaln, multigammaln

from collidescope.learners.base import (
    LARGEST_INPUT,
    ArrayMember,
    Float32,
    FloatArray,
    Task,
    log_softmax,
)

DEGREES = tuple(
    10.0**e for e in (0, 0.5, 1, 1.5, 2, 2.5, 3, 4)
)  #: ν - p - 1: with less there is no mean of Σ_c
STRENGTHS = (0.01, 0.1, 1.0, 10.0)  #: κ, in rows
SMALLEST_VARIANCE = (
    1e-4  #: within classes, of a feature that varies by 1: what never varied in a class still may
)
SMALLEST_SD = 1e-3  #: of a feature over all rows: nothing is divided by rounding noise
MOST_ROWS = 30_000  #: rows that it learns from
#: Numbers in all covariances, which every row is multiplied by; of independent features it takes as many logarithms.
MOST_FACTORS, MOST_LOGARITHMS = 500_000, 50_000


class Gaussian(ArrayMember):
    """Gaussian classes."""

    simple = True
    most_features = 300
    independent: bool = False  #: whether features are, within a class

    scale: Annotated[Float32, "f4 d"]
    mean: Annotated[FloatArray, "f8 K d"]
    factor: Annotated[FloatArray, "f8 K B p p"]  #: F with F Fᵀ the inverse of t's scale matrix
    degrees: Annotated[FloatArray, "f8 K"]
    constant: Annotated[FloatArray, "f8 K"]

    def known_sizes(self, n_features: int, n_classes: int) -> dict[str, int]:
        blocks = n_features if self.independent else 1
        return {"d": n_features, "K": n_classes, "B": blocks, "p": n_features // blocks}

    def takes_part(self, n: int, d: int, k: int) -> bool:
        few = k * d <= MOST_LOGARITHMS and d > 1 if self.independent else k * d * d <= MOST_FACTORS
        return d <= self.most_features and few

    def learn(self, task: Task) -> None:
        _, K, B, p = self.known_sizes(task.X.shape[1], task.n_classes).values()
        X, codes, w = task.sample(MOST_ROWS)
        sd = X.clip(-LARGEST_INPUT, LARGEST_INPUT).std(axis=0, dtype=np.float64)
        self.scale = (1 / np.maximum(sd, SMALLEST_SD)).astype(np.float32)
        x, n = self._scaled(X), np.bincount(codes, w, minlength=K).astype(np.float64)[:, None]
        rows = np.split(
            np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes, minlength=K))[:-1]
        )
        # A class of which no row was drawn has n = 0: mean 0, and no weight in what follows.
        own, m = np.stack([w[c] @ x[c] for c in rows]) / np.maximum(n, SMALLEST_SD), w @ x / w.sum()
        # (B, p, n): A_c, (B, p, p), is then one product for all blocks.
        deviations = (
            ((x - own[codes]) * np.sqrt(w)[:, None]).reshape(len(x), B, p).transpose(1, 2, 0)
        )
        A = np.stack([deviations[..., c] @ deviations[..., c].transpose(0, 2, 1) for c in rows])
        away = (own - m).reshape(K, B, p)
        kappa, nu, scatter = _posterior(A, away[..., None] * away[..., None, :], n[:, 0], w.sum())
        # Given the rows, κ and ν grow by n, and means are drawn to m. A new row has a t density with df = ν + n - p + 1
        # degrees of freedom and the scale matrix scatter · (κ + n + 1) / ((κ + n) df).
        self.mean, self.degrees = (n * own + kappa * m) / (n + kappa), n[:, 0] + nu - p + 1
        strength = n[:, 0] + kappa
        lower = np.linalg.cholesky(
            scatter * ((strength + 1) / (strength * self.degrees))[:, None, None, None]
        )
        # F = L⁻ᵀ: ‖(x - μ)ᵀ F‖² is the squared Mahalanobis distance, Σ log L_ii half of log det.
        self.factor = np.linalg.inv(lower).transpose(0, 1, 3, 2)
        volume = np.log(np.einsum("cbii->cbi", lower)).sum(axis=(1, 2))
        # t at its mean, without π^(-p/2), which all classes share.
        at_mean = (
            gammaln((self.degrees + p) / 2)
            - gammaln(self.degrees / 2)
            - 0.5 * p * np.log(self.degrees)
        )
        self.constant = np.log(task.priors) + B * at_mean - volume

    def _scaled(self, x: Float32) -> FloatArray:
        return np.asarray(np.clip(x, -LARGEST_INPUT, LARGEST_INPUT) * self.scale, dtype=np.float64)

    @property
    def row_numbers(self) -> int:
        return 4 * len(self.scale) + len(self.degrees)

    def score(self, x: Float32) -> FloatArray:
        scaled, (K, B, p, _) = self._scaled(x), self.factor.shape
        logs = np.empty((len(x), K))
        for c, (df, constant) in enumerate(zip(self.degrees, self.constant, strict=True)):
            blocks = (scaled - self.mean[c]).reshape(len(x), B, p).transpose(1, 0, 2)
            squares = np.square(blocks @ self.factor[c]).sum(axis=2)
            logs[:, c] = constant - 0.5 * (df + p) * np.log1p(squares / df).sum(axis=0)
        return log_softmax(logs)

    def check(self, n_features: int, n_classes: int) -> None:
        if not (self.degrees > 0).all():
            raise ValueError("degrees must be above 0")


def _posterior(
    A: FloatArray, shifts: FloatArray, n: FloatArray, total: float
) -> tuple[float, float, FloatArray]:
    """κ and ν of the highest marginal likelihood, and with them the posterior scatter of every class, (K, B, p, p).

    ``shifts`` are the outer products of x̄_c - m, ``n`` the rows of the classes and ``total`` of them all.
    """
    K, B, p, _ = A.shape
    pooled = A.sum(axis=0) / max(total - K, 1.0)
    # As if p more rows had no correlations: with fewer rows than features the matrix is singular.
    diagonal = pooled * np.eye(p)
    pooled = (total * pooled + p * diagonal) / (total + p) + SMALLEST_VARIANCE * np.eye(p)
    best, log_volume = -np.inf, np.linalg.slogdet(pooled)[1].sum()
    for kappa in STRENGTHS:
        around = A + (kappa * n / (kappa + n))[:, None, None, None] * shifts
        for more in DEGREES:
            nu, scatter = p + 1 + more, more * pooled + around
            volumes = np.linalg.slogdet(scatter)[1].sum(axis=1)
            # Murphy's marginal likelihood, summed over blocks. The prior scatter is more · Σ, so its
            # log det is log_volume + B p log(more); π^(-np/2) depends on neither κ nor ν.
            likelihoods = (
                B * (multigammaln((nu + n) / 2, p) - multigammaln(nu / 2, p))
                + 0.5 * nu * (log_volume + B * p * np.log(more))
                - 0.5 * (nu + n) * volumes
                + 0.5 * B * p * np.log(kappa / (kappa + n))
            )
            if (likelihood := likelihoods.sum()) > best:
                best, found = likelihood, (kappa, nu, scatter)
    return found
