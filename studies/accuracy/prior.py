"""Where the prior of the range comes from, and how it does on problems that took no part in it.

The median of the exponent is that of one parametric model, times :attr:`Prior.slower` where the
pool's weight lies on others, over the effective number of members; its logarithm deviates by
:attr:`Prior.log_deviation` where all is learned, and by more where less is. The three numbers are
the likeliest on recorded curves: of problems whose PBER is known ("limit"), and of few rows of real
tables ("few-rows"), whose PBER is at most what all rows reach. :func:`families_left_out` judges
this way of finding them on kinds of problems that took no part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.special import ndtr

from collidescope import limit as limits
from collidescope.equations.power_law import EXPONENTS, SHARES, Mixture, Prior
from collidescope.learners import MEMBERS, recipe
from collidescope.limit import Limit, Pool
from collidescope.matrix import CollisionMatrix
from studies.store import runs

#: The numbers that are found.
FOUND = ("exponent", "slower", "log_deviation")
#: Under which every point of the grid is about as likely as any other.
FLAT = Prior(log_deviation=1e6, unsure=0.0, rule=0.0, done=0.0)
LEVEL = 0.95
REAL = "real tables"  #: the family of those

#: Kinds of problems; those not named here are "fresh".
FAMILIES: dict[str, tuple[str, ...]] = {
    "clouds": (
        "Scenario A5",
        "ring",
        "tangled",
        "twonorm",
        "ringnorm",
        "heavy-tailed",
        "waveform",
    ),
    "linear": ("Scenario B(.25)", "LED", "sparse words"),
    "teachers": ("MLP teacher", "tree teacher"),
    "spatial": ("spiral", "interactions", "noisy chessboard"),
    "smooth": ("Friedman-like", "a regression, cut", "ten ordered classes"),
    "rules": (
        "a rare class",
        "parity of three signs",
        "board of 16 fields in noise",
        "sine of a product",
        "product or product or product",
        "largest of pairs",
        "near a diagonal",
        "turned boxes",
        "150 prototypes",
        "no noise",
        "nothing to learn",
    ),
    "counts and levels": (
        "a table of three categories",
        "five categories",
        "words",
        "counts and exposure",
        "presence of 200 words",
    ),
    "wide": (
        "5 of 200 columns",
        "4 of 300 columns, four classes",
        "200 columns, all of them",
        "30 of 300 means",
    ),
    "densities": (
        "unequal shares",
        "Cauchy columns",
        "mixtures",
        "series with memory",
        "correlations only",
        "scales only",
        "t classes",
        "Laplace",
        "exponential",
        "beta",
        "angles",
    ),
}


class Curve(NamedTuple):
    """A recorded curve, and what is known of its end."""

    source: str  #: the problem, or the real table
    family: str
    rows: int
    limit: Limit
    truth: float  #: the true PBER, or what it is at most
    #: standard error of what it is at most; None where the truth is known
    at_most_error: float | None = None

    @property
    def refuted(self) -> bool:
        """Does the range begin above what the truth is at most, or not hold the truth?"""
        low, high = self.limit.pber_interval(LEVEL)
        if self.at_most_error is None:
            return not low <= self.truth <= high
        return low > self.truth + 2 * self.at_most_error

    @property
    def width(self) -> float:
        """Of the range, in units of the PBER now."""
        low, high = self.limit.pber_interval(LEVEL)
        return (high - low) / float(self.limit.scores[-1])


class Known(NamedTuple):
    """What is known of the ends of curves, at every point of the grid of exponents and shares."""

    curves: Sequence[Curve]
    likelihood: np.ndarray  #: (curves, exponents, shares) of the scores, up to a factor
    #: density of the true PBER in units of the PBER now, or, of real tables, the chance that it
    #: is not above what all rows reach; each times the likelihood
    of_end: np.ndarray

    @classmethod
    def of_curves(cls, curves: Sequence[Curve]) -> Known:
        flat = np.multiply.outer(
            np.exp(FLAT.log_density(EXPONENTS)), FLAT.masses(SHARES)
        )
        with under(FLAT):
            fits = [again(curve.limit)._pber_curve for curve in curves]
        likelihood = np.array([fit.weights.reshape(flat.shape) / flat for fit in fits])
        ends = [fit.at() for fit in fits]
        at_end = np.array([_at_truth(*pair) for pair in zip(curves, ends, strict=True)])
        return cls(curves, likelihood, likelihood * at_end.reshape(likelihood.shape))

    def where(self, chosen: np.ndarray) -> Known:
        """Those of some of the curves."""
        curves = [self.curves[i] for i in np.flatnonzero(chosen)]
        return Known(curves, self.likelihood[chosen], self.of_end[chosen])

    def log_likelihoods(self, prior: Prior, least: float = 1e-3) -> np.ndarray:
        """Of what is known of every curve's end, under a prior."""
        with under(prior):
            of_pools = [curve.limit._prior for curve in self.curves]
        log_densities = np.array([own.log_density(EXPONENTS) for own in of_pools])
        densities = np.exp(log_densities - log_densities.max(axis=1, keepdims=True))
        masses = prior.masses(SHARES)
        known = (densities * (self.of_end @ masses)).sum(axis=1)
        every = (densities * (self.likelihood @ masses)).sum(axis=1)
        stated = [not curve.limit._no_lower_end for curve in self.curves]
        return np.where(stated, np.log(np.maximum(known / every, least)), 0.0)


def _at_truth(curve: Curve, end: Mixture) -> np.ndarray:
    """What is known of the end, at every point of the grid."""
    if curve.at_most_error is not None:
        spread = np.hypot(end.deviations, curve.at_most_error)
        return np.asarray(ndtr((curve.truth - end.means) / spread))
    now = curve.limit.scores[-1]
    # No one needs the PBER nearer than to a hundredth of it.
    spread = np.hypot(end.deviations / now, 0.01)
    z = (curve.truth - end.means) / now / spread
    return np.asarray(np.exp(-(z**2) / 2) / spread / np.sqrt(2 * np.pi))


def blind(curve: Curve, *names: str) -> Curve:
    """As if these facts of the pool were the same for all pools."""
    limit = replace(curve.limit, **dict.fromkeys(names, 1.0))
    return curve._replace(limit=limit)


def again(limit: Limit) -> Limit:
    """The same limit, with nothing kept of an earlier prior."""
    return replace(limit)


@contextmanager
def under(prior: Prior) -> Iterator[None]:
    """Ranges of limits that are made inside are those which this prior gives."""
    with patch.object(limits, "PRIOR", prior):
        yield


@cache
def parametric_members() -> tuple[str, ...]:
    """The members of a fixed form."""
    return tuple(name for name in MEMBERS if recipe(name).parametric)


def limit_of(curve: dict[str, Any], weights: Mapping[str, float]) -> Limit:
    """A recorded limit, with the part of the weight that members of a fixed form have by now.

    Where the number of members is not known, a fit had too few to tell.
    """
    limit = Limit.from_dict(curve)
    if limit.members is None:
        return limit
    share = Pool.of_weights(weights, parametric_members()).parametric
    return replace(limit, parametric=share)


def of_classes(limit: Limit, k: int) -> Limit:
    """A recorded limit with a matrix in place of its own, which is not kept.

    Of that the number of classes and the PBER matter to the range of the Bayes error.
    """
    ambiguous = min(limit.pber, 1 - 1 / k)
    others = ambiguous / (k - 1)
    S = np.full((k, k), others) + (1 - k * others) * np.eye(k)
    return replace(limit, matrix=CollisionMatrix(S))


def made_up() -> list[Curve]:
    """Problems whose PBER is known."""
    return [
        Curve(
            source=run["problem"],
            family=family_of(run["problem"]),
            rows=run["rows"],
            limit=limit_of(run["curve"], run["at_size"][0]["weights"]),
            truth=run["truth"],
        )
        for run in runs("limit")
    ]


def family_of(problem: str) -> str:
    """The kind of a problem."""
    named = [name for name, own in FAMILIES.items() if problem in own]
    return named[0] if named else "fresh"


def likeliest(known: Known, start: Prior = limits.PRIOR) -> Prior:
    """The prior under which what is known of these curves' ends is likeliest.

    What is not found is that of the prior to start from. Sources count the same.
    """
    sources = pd.Series([curve.source for curve in known.curves])
    weight = 1 / sources.map(sources.value_counts()).to_numpy()

    def at(logs: np.ndarray) -> Prior:
        return start._replace(**dict(zip(FOUND, np.exp(logs).tolist(), strict=True)))

    def loss(logs: np.ndarray) -> float:
        return -float(weight @ known.log_likelihoods(at(logs)))

    first = np.log([getattr(start, name) for name in FOUND])
    simplex = first + 0.3 * np.eye(4, 3, k=-1)
    options = {"xatol": 0.01, "fatol": 0.01, "initial_simplex": simplex}
    return at(minimize(loss, first, method="Nelder-Mead", options=options).x)


def families_left_out(
    curves: Sequence[Curve], start: Prior = limits.PRIOR
) -> pd.DataFrame:
    """The range under the prior found on all other families: does it hold for this one?"""
    known = Known.of_curves(curves)
    family = np.array([curve.family for curve in curves])
    rows = []
    for name in np.unique(family):
        prior = likeliest(known.where(family != name), start)
        rows += [judged(curve, prior) for curve in known.where(family == name).curves]
    return pd.DataFrame(rows)


def judged(curve: Curve, prior: Prior) -> dict[str, Any]:
    """The range of a curve under a prior: is it refuted, and how wide is it?"""
    with under(prior):
        anew = curve._replace(limit=again(curve.limit))
        return {
            "family": curve.family,
            "prior": prior,
            "rows": curve.rows,
            "refuted": anew.refuted,
            "width": anew.width,
        }
