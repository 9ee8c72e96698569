"""A curve that falls like a power of the training rows, and what is believed of it from its scores.

::

    s_t = L · (1 - f + f · (m_t / n)^-c) + noise
    s(m) = L · (1 - f + f · (m / n)^-c)    the curve continued; L · (1 - f) at its end

L is the score at n rows, f the share of it that will fall. Priors: L flat, c log-normal, f uniform,
or 1 where labels follow from the inputs by a rule, or 0 (:class:`Prior`). For every (c, f) of a
grid L is normal, so s(m) is a mixture of normals with marginal likelihoods as weights; 0 ≤ f ≤ 1
keeps the end and the fall from being negative.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from collidescope._checks import FloatArray


class Prior(NamedTuple):
    """What is believed before a curve is seen; ``studies/accuracy/prior.py`` finds it."""

    #: median of c where one parametric model has all the weight of a pool
    exponent: float = 3.9
    #: by which the median is multiplied where no model of the pool is parametric
    slower: float = 0.31
    #: standard deviation of log c where the whole way from the class shares is gone
    log_deviation: float = 0.34
    #: power of the way that is gone by which that deviation shrinks: the pace of what has
    #: hardly begun is hardly known
    unsure: float = 0.5
    #: how far a curve strays from a power: standard deviation of s_t in units of s_t - s_T
    discrepancy: float = 0.25
    #: chance that labels follow from the inputs by a rule, so that nothing is left at the
    #: end; about that share of real tables has a PBER near 0
    rule: float = 0.25
    #: chance that nothing more can be learned: a gain of more rows is never certain
    done: float = 0.05

    def of_pool(self, members: float, parametric: float, skill: float) -> Prior:
        """The prior of a pool, by how many members share the weight and the parametric share of it.

        Where no member is right, many share the weight. Members that learn ever finer detail
        (trees, neighbours, kernels, networks) learn more slowly than those of a fixed form.
        ``skill`` is the share of the way from the class shares to a score of 0 that is gone.
        """
        one = self.exponent * self.slower ** (1 - parametric)
        return self._replace(
            exponent=one / members,
            log_deviation=self.log_deviation * skill**-self.unsure,
        )

    def log_density(self, exponents: FloatArray) -> FloatArray:
        """The log density of c, up to a constant."""
        # On an even grid of c the density of a log-normal is exp(-z²/2) / c.
        z = np.log(exponents / self.exponent) / self.log_deviation
        return -np.log(exponents) - z**2 / 2

    def masses(self, shares: FloatArray) -> FloatArray:
        """The mass of every f of an increasing grid from 0 to 1."""
        # Between the middles to its neighbours.
        middles = (shares[1:] + shares[:-1]) / 2
        edges = np.concatenate([[0.0], middles, [1.0]])
        masses = (1 - self.rule - self.done) * np.diff(edges)
        masses[0] += self.done
        masses[-1] += self.rule
        return masses


class Mixture(NamedTuple):
    """A mixture of normals."""

    weights: FloatArray  #: adding up to 1
    means: FloatArray
    deviations: FloatArray

    def chance(self, value: float) -> float:
        """The probability of at most ``value``."""
        return float(self.weights @ ndtr((value - self.means) / self.deviations))

    def quantile(self, probability: float, least: float = 0.0) -> float:
        """Not below ``least``."""

        def beyond(value: float) -> float:
            return self.chance(value) - probability

        # A normal has 1e-19 of its mass beyond 9 deviations: the ends enclose every quantile.
        reach = 9 * self.deviations
        low = (self.means - reach).min()
        high = (self.means + reach).max()
        return max(float(brentq(beyond, low, high, xtol=1e-9)), least)


class PowerLaw(NamedTuple):
    """What is believed of a curve: at every point (c, f) of the grid L is normal."""

    weights: FloatArray  #: of the points, adding up to 1
    exponents: FloatArray  #: c of every point
    shares: FloatArray  #: f of every point
    level: FloatArray  #: mean of L
    information: FloatArray  #: 1 / variance of L
    rows: float  #: n, the largest training size
    floor: float  #: least standard deviation: keeps normals normal where f = 1
    misfit: float  #: least squared distance of the scores to a power law, whitened

    @property
    def excess(self) -> FloatArray:
        """What unlimited rows would take off the score at n rows."""
        return self.level * self.shares

    @property
    def exponent(self) -> float:
        """The mean of c."""
        return float(self.weights @ self.exponents)

    def at(self, size: float = np.inf) -> Mixture:
        """The score with ``size`` training rows."""
        left = (size / self.rows) ** -self.exponents
        kept = 1 - self.shares * (1 - left)
        deviations = np.maximum(kept / np.sqrt(self.information), self.floor)
        return Mixture(self.weights, self.level * kept, deviations)

    def cautious_excess(self, noise: float, too_high: float = 2.0) -> float:
        """The excess ê of the least expected |ê - e| / (e + noise).

        A score below the truth is ``too_high`` times as bad as one as far above it.
        """
        # A weighted quantile: at the optimum too_high times the weight below ê equals the weight
        # above it.
        excess = self.excess
        order = np.argsort(excess)
        loss = self.weights / (np.maximum(excess, 0.0) + noise)
        below = loss[order].cumsum()
        wanted = loss.sum() / (1 + too_high)
        best = excess[order[np.searchsorted(below, wanted)]]
        return float(max(best, 0.0))


#: The grid of c and f.
EXPONENTS = np.linspace(0.05, 2.0, 40)
SHARES = np.append(0.0, np.geomspace(1e-3, 1.0, 90))


def fit_power_law(
    sizes: FloatArray, scores: FloatArray, noise: FloatArray, floor: float, prior: Prior
) -> PowerLaw:
    """Generalised least squares for L at every point of the grid; ``noise`` is a covariance."""
    c = np.repeat(EXPONENTS, len(SHARES))
    f = np.tile(SHARES, len(EXPONENTS))
    n = float(sizes[-1])
    halvings = np.log2(n / sizes)
    # s = L h + noise, h_t = 1 - f + f (m_t / n)^-c: (points of the grid, sizes).
    rise = 2.0 ** np.multiply.outer(c, halvings) - 1
    h = 1 + f[:, None] * rise
    precision = np.linalg.inv(noise)
    # As L is flat, given (c, f) it is normal with mean ``level`` and precision ``information``, and
    # integrating it out leaves a likelihood ∝ exp(level² · information / 2) / √information.
    information = np.einsum("gt,ts,gs->g", h, precision, h)
    level = h @ precision @ scores / information
    explained = level**2 * information
    log_likelihood = (explained - np.log(information)) / 2
    log_masses = np.log(prior.masses(SHARES))
    log_prior = np.add.outer(prior.log_density(EXPONENTS), log_masses)
    log_weights = log_likelihood + log_prior.ravel()
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    misfit = float(scores @ precision @ scores - explained.max())
    return PowerLaw(weights, c, f, level, information, n, floor, misfit)
