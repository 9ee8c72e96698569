"""How different two distributions are: the collision divergence beside its better-known relatives.

With p(x) = f₁ / (f₁ + f₂), the posterior of the first at equal priors, and E over the even mixture::

    collision        1 - 2 S₁₂ = 1 - ∫ 2 f₁ f₂ / (f₁ + f₂)  =  E (2p - 1)²
    total variation  ½ ∫ |f₁ - f₂|                          =  E |2p - 1|
    Hellinger        √(1 - ∫ √(f₁ f₂))                      =  √(1 - E 2√(p (1 - p)))
    KL(f₁ ‖ f₂)      ∫ f₁ log(f₁ / f₂)                      =  E 2p log(p / (1 - p))

so one set of nodes (p, weight) serves them all. The collision divergence is the Vincze-Le Cam divergence (half the
triangular discrimination): TV² ≤ D ≤ TV.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope._checks import FloatArray
from collidescope._text import facts_html
from collidescope.equations.densities import Seed, _check_densities, as_generator, log_density, sample_mixture

#: Quadrature for one-dimensional densities: panels between these tail probabilities, Gauss-Legendre nodes in each.
TAIL = 1e-14
PANELS = 400
NODES = 10


class Divergences(NamedTuple):
    """Four divergences between the same two distributions."""

    collision: float
    total_variation: float
    hellinger: float
    kl: float

    def _repr_html_(self) -> str:
        return facts_html(dict(zip(("collision", "total variation", "Hellinger", "KL"), self, strict=True)))


def divergences(f1: Any, f2: Any, *, n_samples: int = 200_000, random_state: Seed = None) -> Divergences:
    """Divergences between two known distributions.

    Parameters
    ----------
    f1, f2 : frozen distributions of ``scipy.stats``, or objects with ``logpdf`` and ``rvs``
        One-dimensional continuous ones (with ``ppf``) are integrated by quadrature, others by Monte Carlo.
    n_samples, random_state
        For the Monte Carlo.

    Examples
    --------
    >>> from scipy.stats import norm
    >>> result = divergences(norm(-1), norm(1))
    >>> round(result.total_variation, 6), round(result.hellinger**2, 6), round(result.kl, 6)
    (0.682689, 0.393469, 2.0)
    """
    _check_densities([f1, f2], None, ("f1", "f2"))
    check.check_count(n_samples, "n_samples", least=2)
    random_state = as_generator(random_state)
    if all(
        hasattr(f, "ppf") and (hasattr(f, "logpdf") or hasattr(f, "pdf")) and not hasattr(f, "pmf") for f in (f1, f2)
    ):
        edges = np.linspace(min(f1.ppf(TAIL), f2.ppf(TAIL)), max(f1.ppf(1 - TAIL), f2.ppf(1 - TAIL)), PANELS + 1)
        if not np.isfinite(edges).all():
            raise ValueError("f1 and f2 must have finite quantiles: their tails cannot be integrated")
        points, weights = np.polynomial.legendre.leggauss(NODES)
        half = np.diff(edges)[:, None] / 2
        x = (edges[:-1, None] + half + half * points).ravel()
        log1, log2 = log_density(f1, x), log_density(f2, x)
        mass = np.exp(np.logaddexp(log1, log2)) / 2 * (half * weights).ravel()
    else:
        x, _ = sample_mixture([f1, f2], None, n_samples, random_state, "f1 and f2")
        log1, log2 = log_density(f1, x), log_density(f2, x)
        mass = np.ones(len(x))
    inside = (mass > 0) & ~(np.isneginf(log1) & np.isneginf(log2))
    return _from_log_odds(log1[inside] - log2[inside], mass[inside])


def collision_divergence(f1: Any, f2: Any, *, n_samples: int = 200_000, random_state: Seed = None) -> float:
    """1 - 2 S₁₂ at equal priors: 0 for equal distributions, 1 for disjoint ones (see :func:`divergences`).

    >>> from scipy.stats import norm
    >>> round(collision_divergence(norm(-1), norm(1)), 4)
    0.5504
    """
    return divergences(f1, f2, n_samples=n_samples, random_state=random_state).collision


def divergences_from_posteriors(p: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> Divergences:
    """Divergences from posteriors of the first distribution at equal priors, over a sample of the even mixture.

    >>> divergences_from_posteriors([0.0, 1.0]).collision
    1.0
    """
    posteriors = check.check_finite(p, "p", ndim=1)
    if posteriors.min() < 0 or posteriors.max() > 1:
        raise ValueError(f"p must be between 0 and 1, got {posteriors.min():.6g} to {posteriors.max():.6g}")
    with np.errstate(divide="ignore"):
        log_odds = np.log(posteriors) - np.log1p(-posteriors)
    return _from_log_odds(log_odds, check.check_weights(sample_weight, len(posteriors)))


def _from_log_odds(log_odds: FloatArray, weights: FloatArray) -> Divergences:
    weights = weights / weights.sum()
    difference = np.tanh(log_odds / 2)  # 2p - 1
    p = (1 + difference) / 2
    affinity = 1 / np.cosh(np.clip(log_odds / 2, -350, 350))  # 2 √(p (1-p)), without overflow
    kl = np.sum(np.multiply(2 * weights * p, log_odds, where=p > 0, out=np.zeros_like(p)))
    return Divergences(
        collision=float(weights @ difference**2),
        total_variation=float(weights @ np.abs(difference)),
        hellinger=float(np.sqrt(max(0.0, float(1 - weights @ affinity)))),
        kl=float(kl),
    )
