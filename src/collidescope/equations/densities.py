"""The truth, where the densities are known: posteriors, Bayes classifiers, S, BER and PBER.

A density is any object with ``logpdf`` (or ``pdf``, ``logpmf``, ``pmf``) and ``rvs(size=…, random_state=…)``:
every frozen distribution of ``scipy.stats``. Expectations are Monte Carlo over the mixture (the paper's appendix)
and come with their standard errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope._checks import FloatArray
from collidescope.equations.projection import balance
from collidescope.inference import CollisionAccumulator
from collidescope.matrix import CollisionMatrix

Seed = int | np.random.Generator | np.random.RandomState | None


class Estimate(NamedTuple):
    """A number and its standard error."""

    value: float
    stderr: float


def as_generator(random_state: Seed) -> np.random.Generator:
    """A numpy Generator from a seed, a Generator or a legacy RandomState."""
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31))
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError):
        raise ValueError(f"random_state must be None, an int or a numpy Generator, got {random_state!r}") from None


def log_density(density: Any, X: npt.ArrayLike) -> FloatArray:
    """Return log f(x) of every row, from whichever of logpdf, logpmf, pdf, pmf the object has."""
    for name, logarithm in (("logpdf", False), ("logpmf", False), ("pdf", True), ("pmf", True)):
        if hasattr(density, name):
            try:
                values = np.asarray(getattr(density, name)(X), dtype=np.float64).reshape(np.shape(X)[0])
            except (TypeError, ValueError):
                raise ValueError(
                    f"X does not suit the densities ({type(density).__name__}.{name}): "
                    f"got {np.asarray(X).dtype.name} of shape {np.shape(X)}"
                ) from None
            with np.errstate(divide="ignore"):
                return np.log(values) if logarithm else values
    raise ValueError(f"densities must have a logpdf, pdf, logpmf or pmf method, got {type(density).__name__}")


def posteriors_from_densities(
    X: npt.ArrayLike, densities: Sequence[Any], priors: npt.ArrayLike | None = None
) -> FloatArray:
    """Posterior y_k(x) = π_k f_k(x) / Σ_i π_i f_i(x) of every row (the paper's appendix), stable in the tails.

    >>> from scipy.stats import norm
    >>> posteriors_from_densities([0.0], [norm(-1), norm(1)])
    array([[0.5, 0.5]])
    """
    shares = _check_densities(densities, priors)
    try:
        X = np.asarray(X)
    except ValueError:
        raise ValueError("X must be an array of inputs, got rows of different shapes") from None
    if X.ndim == 0 or X.shape[0] == 0:
        raise ValueError(f"X must hold at least one input, got shape {X.shape}")
    logs = np.column_stack([log_density(density, X) for density in densities]) + np.log(shares)
    top = logs.max(axis=1, keepdims=True)
    if not np.isfinite(top).all():
        row = int((~np.isfinite(top[:, 0])).argmax())
        raise ValueError(f"X has an input (row {row}) where every density is zero or undefined: it has no posterior")
    weights = np.exp(logs - top)
    return weights / weights.sum(axis=1, keepdims=True)


def sample_mixture(
    densities: Sequence[Any],
    priors: npt.ArrayLike | None,
    n_samples: int,
    random_state: Seed = None,
    what: str = "densities",
) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
    """Draw inputs and class numbers from the mixture of ``densities`` at ``priors``."""
    shares = _check_densities(densities, priors)
    check.check_count(n_samples, "n_samples", least=2)
    rng = as_generator(random_state)
    codes = np.repeat(np.arange(len(shares)), rng.multinomial(n_samples, shares))
    draws = []
    for density, size in zip(densities, np.bincount(codes, minlength=len(shares)).tolist(), strict=True):
        # At least two: scipy's multivariate distributions drop an axis when one point is drawn.
        draws.append(np.asarray(density.rvs(size=max(size, 2), random_state=rng))[:size])
    shapes = [draw.shape[1:] for draw in draws]
    if len(set(shapes)) > 1:
        raise ValueError(f"{what} must have the same dimension, got draws of shapes {shapes}")
    return np.concatenate(draws), codes


def collision_matrix_from_densities(
    densities: Sequence[Any],
    priors: npt.ArrayLike | None = None,
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
    names = check.check_classes(range(len(shares)) if classes is None else classes, len(shares))
    X, _ = sample_mixture(densities, shares, n_samples, random_state)
    P = posteriors_from_densities(X, densities, shares)
    if not P.any(axis=0).all():
        raise ValueError(f"n_samples={n_samples} is too few: class {names[~P.any(axis=0)].tolist()} was never drawn")
    sampled = CollisionAccumulator(names).update(P).result()
    # The priors are known exactly; the draws only come close to them.
    B = balance(sampled.joint, shares)
    return CollisionMatrix(
        B / B.sum(axis=1, keepdims=True),
        shares,
        names,
        sampled.stderr,
        sampled.pber_stderr,
        covariance=sampled.covariance,
        info={"method": "densities, Monte Carlo", "n_samples": n_samples},
    )


class _BayesClassifier:
    """What both Bayes classifiers share: densities, priors and the posteriors they give."""

    def __init__(
        self, densities: Sequence[Any], priors: npt.ArrayLike | None = None, classes: Sequence[Any] | None = None
    ) -> None:
        self.priors = _check_densities(densities, priors)
        self.densities = list(densities)
        k = len(self.priors)
        self.classes_ = check.check_classes(range(k) if classes is None else classes, k)

    def predict_proba(self, X: npt.ArrayLike) -> FloatArray:
        """Posteriors of every row."""
        return posteriors_from_densities(X, self.densities, self.priors)

    def error_rate(self, n_samples: int = 200_000, random_state: Seed = None) -> Estimate:
        """Error on the population, by Monte Carlo over the mixture."""
        X, _ = sample_mixture(self.densities, self.priors, n_samples, random_state)
        losses = self._loss(self.predict_proba(X))
        return Estimate(float(losses.mean()), float(losses.std(ddof=1) / np.sqrt(len(losses))))

    def _loss(self, P: FloatArray) -> FloatArray:
        """Expected error of the classifier at inputs with posteriors ``P``."""
        raise ValueError("use BayesOptimalClassifier or ProbabilisticBayesClassifier")


class BayesOptimalClassifier(_BayesClassifier):
    """Always the most likely class (the paper's Definition 4): its error is the Bayes error rate.

    >>> from scipy.stats import norm
    >>> BayesOptimalClassifier([norm(-1), norm(1)]).predict([-0.5, 2.0])
    array([0, 1])
    """

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """The most likely class of every row."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def _loss(self, P: FloatArray) -> FloatArray:
        return 1 - P.max(axis=1)


class ProbabilisticBayesClassifier(_BayesClassifier):
    """A class drawn from the posterior (the paper's Definition 5): its confusion matrix is S, its error the PBER.

    Examples
    --------
    >>> from scipy.stats import norm
    >>> classifier = ProbabilisticBayesClassifier([norm(-1), norm(1)])
    >>> classifier.predict([-9.0, 9.0], random_state=0)
    array([0, 1])
    """

    def predict(self, X: npt.ArrayLike, random_state: Seed = None) -> npt.NDArray[Any]:
        """A class for every row, drawn from its posterior."""
        cumulative = self.predict_proba(X).cumsum(axis=1)
        cumulative /= cumulative[:, -1:]
        draws = as_generator(random_state).random((len(cumulative), 1))
        return self.classes_[(draws >= cumulative).sum(axis=1)]

    def _loss(self, P: FloatArray) -> FloatArray:
        return 1 - (P**2).sum(axis=1)


def _check_densities(densities: Sequence[Any], priors: npt.ArrayLike | None, names: Sequence[str] = ()) -> FloatArray:
    """The priors; ``names`` are those of the arguments that the densities came in, where there is one for each."""
    if not isinstance(densities, Sequence) or len(densities) < 2:
        came = f"{len(densities)} of them" if isinstance(densities, Sequence) else type(densities).__name__
        raise ValueError(f"densities must be a list of at least 2 distributions, one per class, got {came}")
    what = " and ".join(names) or "densities"
    for k, density in enumerate(densities):
        if not hasattr(density, "rvs") or not any(
            hasattr(density, name) for name in ("logpdf", "pdf", "logpmf", "pmf")
        ):
            raise ValueError(
                f"{what} must have rvs and logpdf (or pdf, logpmf, pmf), {names[k] if names else f'number {k}'} "
                f"is a {type(density).__name__}: a frozen distribution of scipy.stats has them"
            )
    if len({hasattr(density, "logpdf") or hasattr(density, "pdf") for density in densities}) > 1:
        raise ValueError(f"{what} must be all continuous or all discrete: a pdf and a pmf cannot be compared")
    return np.full(len(densities), 1 / len(densities)) if priors is None else check.check_priors(priors, len(densities))
