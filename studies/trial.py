"""Populations whose truth is known, samples of them, and what an estimator said of a sample.

A population is finitely many kinds of input with known posteriors, so that every expectation is a
sum over the kinds. ``studies/statements.py`` and its neighbours hold what the package says of a
:class:`Trial` beside the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import collidescope as cs
from collidescope.limit import Limit, limit_from_posteriors
from collidescope.matrix import CollisionMatrix
from studies.measures import Array, Rng

LEVEL = 0.95
#: Training sizes of the curves, and the size that a continuation is asked about.
SIZES = np.array([250, 500, 1000, 2000])
DOUBLED = 4000


@dataclass(frozen=True)
class Population:
    """Finitely many kinds of input with known posteriors: every expectation is a sum over them."""

    posteriors: Array  #: (M, K) y(x) of every kind
    weights: Array  #: (M,) how common it is

    @property
    def priors(self) -> Array:
        return self.weights @ self.posteriors

    def joint(self) -> Array:
        """B = E[y yᵀ]."""
        return self.posteriors.T @ (self.weights[:, None] * self.posteriors)

    def matrix(self) -> Array:
        B = self.joint()
        return B / B.sum(axis=1, keepdims=True)

    def pber(self) -> float:
        return 1 - np.trace(self.joint())

    def bayes_error(self) -> float:
        return self.error(self.posteriors.argmax(axis=1))

    def error(self, said: Array) -> float:
        """Of a classifier that says ``said`` of every kind."""
        right = self.posteriors[np.arange(len(said)), said]
        return 1 - self.weights @ right

    def brier(self, told: Array) -> Array:
        """Expected Brier score of every kind, if told posteriors are ``told``."""
        return 1 - 2 * (told * self.posteriors).sum(axis=1) + (told**2).sum(axis=1)

    def shifted(self, priors: Array) -> Population:
        """The same classes at other priors."""
        density = self.weights[:, None] * self.posteriors / self.priors
        flow = density * priors
        total = flow.sum(axis=1)
        return Population(flow / total[:, None], total)


class Sample(NamedTuple):
    """Rows and what the estimators are told of them."""

    kinds: Array
    posteriors: Array
    labels: Array
    options: dict[str, Any]

    @property
    def independent(self) -> bool:
        """Are rows or their groups drawn as they come, without weights and priors?"""
        return set(self.options) <= {"groups"}


@dataclass(frozen=True, eq=False)
class Option:
    """How samples are drawn, and the population that the statements are about."""

    name: str
    target: Population
    draw: Callable[[Rng], Sample]
    #: the population of the rows, where priors are given; default the target
    rows: Population | None = None
    #: (M, K) posteriors that are told of every kind at the target's priors; default the true ones
    told: Array | None = None
    #: statements that are not made under this option, and why
    dropped: dict[str, str] = field(default_factory=dict)

    @property
    def posteriors(self) -> Array:
        if self.told is None:
            return self.target.posteriors
        return self.told

    @cached_property
    def now(self) -> float:
        """The score with as many rows as the last of ``SIZES``."""
        return self.score_with(int(SIZES[-1]))

    @cached_property
    def later(self) -> float:
        """The score with ``DOUBLED`` rows."""
        return self.score_with(DOUBLED)

    def score_with(self, size: int) -> float:
        """Of models of so many rows, a mean over their noise."""
        rng = np.random.default_rng(1)
        scores = []
        for _ in range(400):
            noise = rng.standard_normal(self.posteriors.shape)
            told = noisy(self.posteriors, noise, size)
            scores.append(self.target.weights @ self.target.brier(told))
        return float(np.mean(scores))

    @cached_property
    def easy(self) -> Array:
        """The half of the kinds that is less ambiguous; every other one where all are alike."""
        highest = self.target.posteriors.max(axis=1)
        easy = highest > np.median(highest)
        if not easy.any():
            easy = np.arange(len(highest)) % 2 == 0
        return easy


class Held(NamedTuple):
    """One statement of one sample: its ends, and the truth it is about."""

    low: Array
    high: Array
    truth: Array
    at_once: bool = False  #: whether all its numbers are claimed together


def of(ends: Any, truth: Any, at_once: bool = False) -> Held:
    """From a pair of ends."""
    low, high = ends
    return Held(np.asarray(low), np.asarray(high), np.asarray(truth), at_once)


def between(table: pd.DataFrame | pd.Series, what: str = "") -> tuple[Any, Any]:
    """The ends that a table has of something, in ``low`` and ``high`` or ``what_low`` …"""
    return table[f"{what}low"], table[f"{what}high"]


def noisy(posteriors: Array, noise: Array, size: int = DOUBLED) -> Array:
    """What a model of that many rows tells: noise on the logits that falls like size^-¼."""
    logits = np.log(np.maximum(posteriors, 1e-12))
    told = np.exp(logits + 0.5 * (size / SIZES[0]) ** -0.25 * noise)
    return told / told.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class Trial:
    """One sample of an option, and what is estimated from it."""

    option: Option
    sample: Sample
    rng: Rng

    @property
    def target(self) -> Population:
        return self.option.target

    @cached_property
    def matrix(self) -> CollisionMatrix:
        sample = self.sample
        return cs.collision_matrix_from_posteriors(
            sample.posteriors, sample.labels, **sample.options
        )

    @cached_property
    def curves(self) -> dict[int, Array]:
        """Posteriors by training size: an excess that falls like 1/√m, by noise on the logits."""
        shape = self.sample.posteriors.shape
        noise = np.random.default_rng(len(self.sample.labels)).standard_normal(shape)
        return {int(size): noisy(self.sample.posteriors, noise, size) for size in SIZES}

    @cached_property
    def limit(self) -> Limit:
        k = self.sample.posteriors.shape[1]
        given = dict(self.sample.options)
        priors = given.pop("priors", None)
        if isinstance(priors, str):
            priors = np.full(k, 1 / k)
        curves = list(self.curves.values())
        return limit_from_posteriors(
            curves, self.sample.labels, SIZES, priors=priors, **given
        )


Statements = Iterator[tuple[str, Held]]
