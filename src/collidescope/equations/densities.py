"""The truth, where densities are known: posteriors, Bayes classifiers, S, BER, PBER, divergences.

A density is any object with ``logpdf`` (or ``pdf``, ``logpmf``, ``pmf``) and
``rvs(size=…, random_state=…)``: every frozen distribution of ``scipy.stats``. Posteriors are
equation (47) of the paper, S is its Proposition 1, equation (6); expectations are Monte Carlo over
the mixture and come with their standard errors.

Divergences, with p(x) = f₁ / (f₁ + f₂), the posterior of the first at equal priors, and E over the
even mixture::

    collision        1 - 2 S₁₂ = 1 - ∫ 2 f₁ f₂ / (f₁ + f₂)  =  E (2p - 1)²    (7), (10)
    total variation  ½ ∫ |f₁ - f₂|                          =  E |2p - 1|
    Hellinger        √(1 - ∫ √(f₁ f₂))                      =  √(1 - E 2√(p (1 - p)))
    KL(f₁ ‖ f₂)      ∫ f₁ log(f₁ / f₂)                      =  E 2p log(p / (1 - p))

so one set of nodes (p, weight) serves them all. The collision divergence is the Vincze-Le Cam
divergence (half the triangular discrimination): TV² ≤ D ≤ TV.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, softmax

from collidescope import _checks as check
from collidescope._checks import Array, ArrayLike, FloatArray, Given, IntArray
from collidescope.equations.moments import Moments
from collidescope.equations.projection import balance
from collidescope.matrix import CollisionMatrix, Diagnostics, Method

#: ways to tell a density, the first of which is taken
DENSITIES = ("logpdf", "logpmf", "pdf", "pmf")

Seed = int | np.random.Generator | np.random.RandomState | None


def as_generator(random_state: Seed) -> np.random.Generator:
    """A numpy Generator from a seed, a Generator or a legacy RandomState."""
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31))
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError):
        raise ValueError(
            f"random_state must be None, an int or a numpy Generator, got {random_state!r}"
        ) from None


def log_density(density: Any, X: ArrayLike) -> FloatArray:
    """Return log f(x) of every row, from whichever of logpdf, logpmf, pdf, pmf the object has."""
    name = next(name for name in DENSITIES if hasattr(density, name))
    try:
        values = np.asarray(getattr(density, name)(X), dtype=np.float64)
        values = values.reshape(np.shape(X)[0])
    except (TypeError, ValueError):
        given = np.asarray(X)
        raise ValueError(
            f"X does not suit the densities ({type(density).__name__}.{name}): got "
            f"{given.dtype.name} of shape {given.shape}"
        ) from None
    if name.startswith("log"):
        return values
    with np.errstate(divide="ignore"):
        return np.log(values)


def posteriors_from_densities(
    X: ArrayLike, densities: Sequence[Any], priors: Given = None
) -> FloatArray:
    """Posterior y_k(x) = π_k f_k(x) / Σ_i π_i f_i(x) of every row, equation (47).

    Stable in the tails.

    >>> from scipy.stats import norm
    >>> posteriors_from_densities([0.0], [norm(-1), norm(1)])
    array([[0.5, 0.5]])
    """
    shares = _check_densities(densities, priors)
    try:
        X = np.asarray(X)
    except ValueError:
        raise ValueError(
            "X must be an array of inputs, got rows of different shapes"
        ) from None
    if X.ndim == 0 or X.shape[0] == 0:
        raise ValueError(f"X must hold at least one input, got shape {X.shape}")
    logs = np.column_stack([log_density(density, X) for density in densities])
    logs += np.log(shares)
    known = np.isfinite(logs.max(axis=1))
    if not known.all():
        row = int(known.argmin())
        raise ValueError(
            f"X has an input (row {row}) where every density is zero or undefined: it "
            "has no posterior"
        )
    return np.asarray(softmax(logs, axis=1))


def sample_mixture(
    densities: Sequence[Any],
    priors: Given,
    n_samples: int,
    random_state: Seed,
    what: str = "densities",
) -> tuple[Array, IntArray]:
    """Draw inputs and class numbers from the mixture of ``densities`` at ``priors``."""
    shares = _check_densities(densities, priors)
    check.check_count(n_samples, "n_samples", least=2)
    rng = as_generator(random_state)
    sizes = rng.multinomial(n_samples, shares).tolist()
    draws = []
    for density, n in zip(densities, sizes, strict=True):
        # At least two: scipy's multivariate distributions drop an axis when one point is drawn.
        drawn = density.rvs(size=max(n, 2), random_state=rng)
        draws.append(np.asarray(drawn)[:n])
    shapes = [draw.shape[1:] for draw in draws]
    if len(set(shapes)) > 1:
        raise ValueError(
            f"{what} must have the same dimension, got draws of shapes {shapes}"
        )
    codes = np.repeat(np.arange(len(shares)), sizes)
    return np.concatenate(draws), codes


def collision_matrix_from_densities(
    densities: Sequence[Any],
    priors: Given = None,
    *,
    classes: Sequence[Any] | None = None,
    n_samples: int = 200_000,
    random_state: Seed = None,
) -> CollisionMatrix:
    """Collision matrix of known distributions, by Monte Carlo (Proposition 1 of the paper).

    ``stderr`` is the Monte Carlo error: it falls with √n_samples.

    >>> from scipy.stats import norm
    >>> cm = collision_matrix_from_densities([norm(0), norm(9)], random_state=0)
    >>> cm.matrix.round(3)
    array([[1., 0.],
           [0., 1.]])
    """
    shares = _check_densities(densities, priors)
    names = check.check_classes(classes, len(shares))
    X, _ = sample_mixture(densities, shares, n_samples, random_state)
    P = posteriors_from_densities(X, densities, shares)
    if never := names[~P.any(axis=0)].tolist():
        raise ValueError(
            f"n_samples={n_samples} is too few: class {never} was never drawn"
        )
    moments = Moments(len(shares))
    moments.add_rows(P, None, np.ones(len(P)))
    S, variance = moments.ratio()
    # The priors are known exactly; the draws only come close to them.
    drawn = moments.rho / moments.size
    B = balance(drawn[:, None] * S, shares)
    _, pber_variance = moments.error()
    return CollisionMatrix(
        B / B.sum(axis=1, keepdims=True),
        shares,
        names,
        stderr=np.sqrt(variance),
        pber_stderr=float(np.sqrt(pber_variance)),
        covariance=moments.covariance(),
        method=Method.DENSITIES,
        diagnostics=Diagnostics(n_samples=n_samples),
    )


class BayesOptimalClassifier:
    """Always the most likely class (the paper's Definition 4): its error is the Bayes error rate.

    >>> from scipy.stats import norm
    >>> BayesOptimalClassifier([norm(-1), norm(1)]).predict([-0.5, 2.0])
    array([0, 1])
    """

    def __init__(
        self,
        densities: Sequence[Any],
        priors: Given = None,
        classes: Sequence[Any] | None = None,
    ) -> None:
        self.priors = _check_densities(densities, priors)
        self.densities = list(densities)
        self.classes_ = check.check_classes(classes, len(self.priors))

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Posteriors of every row."""
        return posteriors_from_densities(X, self.densities, self.priors)

    def predict(self, X: ArrayLike, random_state: Seed = None) -> Array:
        """The most likely class of every row; nothing is drawn."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


class ProbabilisticBayesClassifier(BayesOptimalClassifier):
    """A class drawn from the posterior (the paper's Definition 5).

    Its confusion matrix is S, its error the PBER.

    >>> from scipy.stats import norm
    >>> ProbabilisticBayesClassifier([norm(-1), norm(1)]).predict(
    ...     [-9.0, 9.0], random_state=0
    ... )
    array([0, 1])
    """

    def predict(self, X: ArrayLike, random_state: Seed = None) -> Array:
        """A class for every row, drawn from its posterior."""
        rng = as_generator(random_state)
        return self.classes_[draw_classes(self.predict_proba(X), rng)]


def draw_classes(P: FloatArray, rng: np.random.Generator) -> IntArray:
    """A class number for every row, drawn from its posterior."""
    # Without the last limit, 1: rounding cannot lead beyond the last class.
    limits = P.cumsum(axis=1)[:, :-1]
    return np.asarray((rng.random((len(P), 1)) >= limits).sum(axis=1))


def _check_densities(
    densities: Sequence[Any], priors: Given, names: Sequence[str] = ()
) -> FloatArray:
    """The priors, once the densities were checked.

    ``names`` are those of the arguments that they came in, where there is one for each.
    """
    came = type(densities).__name__
    n_densities = 0
    if isinstance(densities, Sequence):
        n_densities = len(densities)
        came = f"{n_densities} of them"
    if n_densities < 2:
        raise ValueError(
            "densities must be a list of at least 2 distributions, one per class, got "
            f"{came}"
        )
    what = " and ".join(names) or "densities"
    for number, density in enumerate(densities):
        known = any(hasattr(density, name) for name in DENSITIES)
        if not known or not hasattr(density, "rvs"):
            which = f"number {number}"
            if names:
                which = names[number]
            raise ValueError(
                f"{what} must have rvs and logpdf (or pdf, logpmf, pmf), {which} is a "
                f"{type(density).__name__}: a frozen distribution of scipy.stats has "
                "them"
            )
    if len(set(map(_is_continuous, densities))) > 1:
        raise ValueError(
            f"{what} must be all continuous or all discrete: a pdf and a pmf cannot be "
            "compared"
        )
    return check.priors_or_uniform(priors, n_densities)


def _is_continuous(density: Any) -> bool:
    return hasattr(density, "logpdf") or hasattr(density, "pdf")


class Divergences(NamedTuple):
    """Four divergences between the same two distributions."""

    collision: float
    total_variation: float
    hellinger: float
    kl: float


def divergences(
    f1: Any, f2: Any, *, n_samples: int = 200_000, random_state: Seed = None
) -> Divergences:
    """Divergences between two known distributions.

    ``scipy.stats`` frozen ones, or objects with ``logpdf`` and ``rvs``. One-dimensional continuous
    ones (with ``ppf``) are integrated by quadrature, others by Monte Carlo.

    >>> from scipy.stats import norm
    >>> result = divergences(norm(-1), norm(1))
    >>> (
    ...     round(result.total_variation, 5),
    ...     round(result.hellinger**2, 6),
    ...     round(result.kl, 6),
    ... )
    (0.68269, 0.393469, 2.0)
    """
    pair = [f1, f2]
    _check_densities(pair, None, ("f1", "f2"))
    check.check_count(n_samples, "n_samples", least=2)
    rng = as_generator(random_state)
    # E over the even mixture: draws from it count alike, a node by its density (f₁ + f₂) / 2.
    if _has_quantiles(f1) and _has_quantiles(f2):
        x, width = _quadrature(f1, f2)
        log1, log2 = (log_density(f, x) for f in pair)
        mass = np.exp(np.logaddexp(log1, log2)) / 2 * width
    else:
        x, _ = sample_mixture(pair, None, n_samples, rng, "f1 and f2")
        log1, log2 = (log_density(f, x) for f in pair)
        mass = np.ones(len(x))
    outside = np.isneginf(log1) & np.isneginf(log2)
    inside = (mass > 0) & ~outside
    return _from_log_odds(log1[inside] - log2[inside], mass[inside])


def _has_quantiles(f: Any) -> bool:
    return hasattr(f, "ppf") and _is_continuous(f) and not hasattr(f, "pmf")


def _quadrature(
    f1: Any, f2: Any, tail: float = 1e-14, panels: int = 1_000, nodes: int = 10
) -> tuple[FloatArray, FloatArray]:
    """Nodes and widths for integrals over two one-dimensional densities.

    Panels lie between quantiles of both, evenly in log odds from ``tail`` to the median, so that
    heavy tails and sharp peaks get panels of their own size; each has Gauss-Legendre nodes.
    """
    u = expit(np.linspace(np.log(tail), 0.0, panels))
    edges = np.unique([f1.ppf(u), f1.isf(u), f2.ppf(u), f2.isf(u)])
    if not np.isfinite(edges).all():
        raise ValueError(
            "f1 and f2 must have finite quantiles: their tails cannot be integrated"
        )
    points, weights = np.polynomial.legendre.leggauss(nodes)
    # (panels, nodes): Gauss's nodes of [-1, 1] moved into every panel, their weights times half of
    # its width.
    half = np.diff(edges)[:, None] / 2
    x = edges[:-1, None] + half + half * points
    return x.ravel(), (half * weights).ravel()


def collision_divergence(
    f1: Any, f2: Any, *, n_samples: int = 200_000, random_state: Seed = None
) -> float:
    """1 - 2 S₁₂ at equal priors, equation (7): 0 for equal distributions, 1 for disjoint ones.

    See :func:`divergences`.

    >>> from scipy.stats import norm
    >>> round(collision_divergence(norm(-1), norm(1)), 4)
    0.5504
    """
    return divergences(f1, f2, n_samples=n_samples, random_state=random_state).collision


def divergences_from_posteriors(
    p: ArrayLike, sample_weight: Given = None
) -> Divergences:
    """Divergences from posteriors of the first distribution, over a sample of the even mixture.

    >>> divergences_from_posteriors([0.0, 1.0]).collision
    1.0
    """
    posteriors = check.check_finite(p, "p", ndim=1)
    least = posteriors.min()
    most = posteriors.max()
    if least < 0 or most > 1:
        raise ValueError(f"p must be between 0 and 1, got {least:.6g} to {most:.6g}")
    with np.errstate(divide="ignore"):
        log_odds = np.log(posteriors) - np.log1p(-posteriors)
    return _from_log_odds(log_odds, check.check_weights(sample_weight, len(posteriors)))


def _from_log_odds(log_odds: FloatArray, weights: FloatArray) -> Divergences:
    weights = weights / weights.sum()
    half = log_odds / 2
    difference = np.tanh(half)  # 2p - 1
    p = (1 + difference) / 2
    affinity = 1 / np.cosh(np.clip(half, -350, 350))  # 2 √(p (1-p)), no overflow
    hellinger2 = float(1 - weights @ affinity)
    possible = p > 0
    terms = 2 * weights[possible] * p[possible] * log_odds[possible]
    return Divergences(
        collision=float(weights @ difference**2),
        total_variation=float(weights @ np.abs(difference)),
        hellinger=float(np.sqrt(max(0.0, hellinger2))),
        kl=float(terms.sum()),
    )
