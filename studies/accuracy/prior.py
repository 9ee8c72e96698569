"""Where the prior of the range comes from, and how it does on problems that took no part in it.

The median of the exponent is that of one parametric model, times :attr:`Prior.slower` where the
pool's weight lies on others, over the effective number of members. Both numbers are the likeliest
on recorded curves: of problems whose PBER is known ("limit"), and of few rows of real tables
("few-rows"), whose PBER is at most what all rows reach. :func:`families_left_out` judges this way
of finding them on kinds of problems that took no part.
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

from collidescope import limit as limits
from collidescope.equations.power_law import Prior
from collidescope.learners import MEMBERS, recipe
from collidescope.limit import Limit, Pool
from collidescope.matrix import CollisionMatrix
from studies.store import runs

#: Medians of the exponent to choose from, each √2 times the one before.
MEDIANS = (1.25, 1.77, 2.5, 3.5, 5.0, 7.0)
#: What the median may be multiplied by where no member of the pool is parametric.
SLOWER = (0.71, 0.5, 0.35, 0.25, 0.18, 0.125)
PRIORS = [Prior(median, slower) for median in MEDIANS for slower in SLOWER]
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

    def log_likelihood(self, prior: Prior, least: float = 1e-3) -> float:
        """Log density of the true PBER, in units of the PBER now; of real tables, the log chance
        that it is not above what all rows reach.
        """
        if self.limit._no_lower_end:
            return 0.0
        now = self.limit.scores[-1]
        with under(prior):
            end = again(self.limit)._pber_curve.at()
        # No one needs the PBER nearer than to a hundredth of it.
        spread = np.hypot(end.deviations / now, 0.01)
        if self.at_most_error is None:
            z = (self.truth - end.means) / now / spread
            at_truth = np.exp(-(z**2) / 2) / spread / np.sqrt(2 * np.pi)
            return float(np.log(max(end.weights @ at_truth, least)))
        spread = np.hypot(end.deviations, self.at_most_error)
        chance = end._replace(deviations=spread).chance(self.truth)
        return float(np.log(max(chance, least)))


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


def likeliest(curves: Sequence[Curve], known: np.ndarray) -> Prior:
    """The prior under which what is known of these curves' ends is likeliest.

    ``known`` are their log likelihoods under every one of ``PRIORS``; sources count the same.
    """
    sources = pd.Series([curve.source for curve in curves])
    weight = 1 / sources.map(sources.value_counts()).to_numpy()
    return PRIORS[int((weight @ known).argmax())]


def likelihoods(curves: Sequence[Curve]) -> np.ndarray:
    """A row per curve, a column per prior."""
    return np.array(
        [[curve.log_likelihood(prior) for prior in PRIORS] for curve in curves]
    )


def families_left_out(curves: Sequence[Curve], known: np.ndarray) -> pd.DataFrame:
    """The range under the prior found on all other families: does it hold for this one?"""
    family = np.array([curve.family for curve in curves])
    rows = []
    for name in np.unique(family):
        own = [curve for curve in curves if curve.family == name]
        others = [curve for curve in curves if curve.family != name]
        prior = likeliest(others, known[family != name])
        rows += [judged(curve, prior) for curve in own]
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
