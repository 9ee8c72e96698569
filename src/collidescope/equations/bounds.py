"""Bounds: of the risk of the pair-wise model, of the Bayes error, of solved posteriors.

- Theorem 2, equation (33) of the paper: the empirical risk (32) of a pair-wise model is near the
  true one (31);
- Cover and Hart (1967): the PBER, equation (5), is the asymptotic error of one nearest neighbour
  and so encloses the Bayes error;
- Lemma 2, equations (45) and (46): how far ŷ = Ŝ⁻¹ q̂ (44) can be from y.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from collidescope import _checks as check
from collidescope._checks import ArrayLike, FloatArray


class PacBound(NamedTuple):
    """The two terms of the paper's Theorem 2 and their sum."""

    complexity: float
    confidence: float
    total: float


def pac_bound(
    n: int,
    K: int,
    d: float,
    delta: float = 0.05,
    loss_bound: float = 1.0,
    constant: float = 1.0,
) -> PacBound:
    """Bound on |R(V) - R̂(V)|, uniform over the model class, with probability 1 - delta: (33).

    ``constant · (K / √(n² - K² n))^(1/d) + 12 K B / √(n² - K² n) · √(log(2/delta) / 2)``

    for n > K² rows of K classes; d is the complexity exponent of the model class, B =
    ``loss_bound`` the largest loss of one pair, ``constant`` what the theorem's O(·) leaves open:
    the first term is known only up to it.

    The formula is the paper's. Its second term falls like 1/n, as if the n² pairs were independent;
    they share n rows, and in general only 1/√n can hold (U-statistics). Read it as the paper's
    statement, not as a guarantee.

    >>> round(pac_bound(n=10_000, K=3, d=2, loss_bound=4.0).confidence, 4)
    0.0196
    """
    if K < 2:
        raise ValueError(f"K must be at least 2 classes, got {K}")
    check.check_between(delta, 0, 1, "delta")
    positive = {"d": d, "loss_bound": loss_bound, "constant": constant}
    for name, value in positive.items():
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be positive and finite, got {value}")
    if n <= K * K:
        raise ValueError(
            f"the bound needs n² > K² n (more than K² = {K * K} rows), got n = {n}: "
            "use more rows or merge classes"
        )
    pairs = n * n - K * K * n
    rate = K / math.sqrt(pairs)
    complexity = constant * rate ** (1 / d)
    confidence = 12 * rate * loss_bound * math.sqrt(math.log(2 / delta) / 2)
    return PacBound(complexity, confidence, complexity + confidence)


def highest_pber(priors: FloatArray) -> float:
    """The PBER of inputs that say nothing of the class, 1 - Σ π_k²: no population has a higher one.

    E y_k² ≥ (E y_k)². It is also the Brier score of the class shares.

    >>> highest_pber(np.array([0.5, 0.5]))
    0.5
    """
    return 1 - float((priors**2).sum())


def bayes_error_bounds(pber: float, n_classes: int) -> tuple[float, float]:
    """Cover and Hart's bounds on the Bayes error rate from the *true* PBER of ``n_classes``.

    (K-1)/K · (1 - sqrt(1 - K/(K-1) · PBER)) ≤ BER ≤ PBER. An estimated PBER is too high by what was
    not learned: its lower bound bounds nothing.

    >>> bayes_error_bounds(0.5, 2)
    (0.5, 0.5)
    """
    check.check_count(n_classes, "n_classes", least=2)
    is_number = isinstance(pber, (int, float, np.number))
    if not is_number or not 0 <= pber <= 1:
        raise ValueError(f"pber must be between 0 and 1, got {pber!r}")
    # Solves PBER = 2e - e² K/(K-1) for e: of all posteriors with error e = 1 - max y, those whose
    # other K - 1 classes share e evenly have the largest impurity 1 - ‖y‖². Above (K-1)/K, where
    # rounding can put the PBER, it has no root.
    most = (n_classes - 1) / n_classes
    low = most * (1 - math.sqrt(max(0.0, 1 - pber / most)))
    return low, float(pber)


def condition_number(S: FloatArray) -> float:
    """κ∞(S) = ‖S‖∞ ‖S⁻¹‖∞, infinite where S is singular."""
    return float(np.linalg.cond(S, np.inf))


def dominance_factor(S: FloatArray) -> float:
    """The paper's ε = max_i Σ_{k≠i} S_ik / S_ii, infinite where a diagonal entry is zero."""
    diagonal = np.diag(S)
    others = S.sum(axis=1) - diagonal
    with np.errstate(divide="ignore"):
        return float(np.max(others / diagonal))


class PosteriorErrorBound(NamedTuple):
    """Bounds on ‖ŷ - y‖∞ for ŷ = Ŝ⁻¹ q̂.

    ``lemma`` is the paper's Lemma 2, a first-order statement (infinite where S is not diagonally
    dominant); ``always`` holds whenever it is finite: κ/(1-r)·(‖Ŝ-S‖∞ + ‖q̂-q‖∞/‖q‖∞) with
    r = κ∞(S) ‖Ŝ-S‖∞ < 1.
    """

    always: float
    lemma: float
    dominance_factor: float
    condition: float


def posterior_error_bound(
    S_hat: ArrayLike, S: ArrayLike, q_hat: ArrayLike, q: ArrayLike
) -> PosteriorErrorBound:
    """How far a posterior solved from estimates of S (K, K) and q (K,) can be from the true one.

    >>> S = np.array([[0.9, 0.1], [0.1, 0.9]])
    >>> bound = posterior_error_bound(S, S, [0.52, 0.5], [0.5, 0.5])
    >>> round(bound.always, 3), round(bound.lemma, 3)
    (0.05, 0.1)
    """
    S = check.check_stochastic(S, "S")
    S_hat = check.check_square(S_hat, "S_hat")
    q = check.check_finite(q, "q", ndim=1)
    q_hat = check.check_finite(q_hat, "q_hat", ndim=1)
    _check_shape("S_hat", S_hat, S.shape)
    _check_shape("q", q, S.shape[:1])
    _check_shape("q_hat", q_hat, S.shape[:1])
    if not q.any():
        raise ValueError(
            "q must not be all zeros: q = S y of a probability vector y is positive"
        )
    S_error = float(np.linalg.norm(S_hat - S, np.inf))
    q_error = float(np.abs(q_hat - q).max() / np.abs(q).max())
    error = S_error + q_error
    condition = condition_number(S)
    epsilon = dominance_factor(S)
    # The perturbation bound of a linear system: ‖S‖∞ = 1 and ‖y‖∞ ≤ 1 make its relative errors of S
    # and of y absolute.
    r = condition * S_error
    always = condition / (1 - r) * error if r < 1 else math.inf
    lemma = math.inf
    if epsilon < 1:
        lemma = 2 * (1 + epsilon) / (1 - epsilon) * error
    return PosteriorErrorBound(always, lemma, epsilon, condition)


def _check_shape(name: str, values: FloatArray, shape: tuple[int, ...]) -> None:
    if values.shape != shape:
        raise ValueError(
            f"{name} must have one entry per class of S {shape}, got shape "
            f"{values.shape}"
        )
