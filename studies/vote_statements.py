"""Statements of the grid (``studies/grid.py``) about votes, annotators and repeated inputs.

See ``studies/statements.py``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import collidescope as cs
from collidescope.applications.annotators import agreement, compare_annotators
from collidescope.applications.judges import compare_judges
from collidescope.counting import votes_needed
from collidescope.equations.densities import draw_classes
from studies.measures import Rng
from studies.trial import LEVEL, Array, Population, Statements, between, of

ANNOTATORS = 8


class Voting(NamedTuple):
    """How votes are drawn."""

    name: str
    target: Population
    items: int
    per_item: tuple[int, int]  #: least and most votes on an item


def vote_statements(voting: Voting, rng: Rng) -> Statements:
    """Of several votes on items, and of inputs that repeat.

    A sample whose votes all name one class says nothing of kappa, and is passed over.
    """
    p = voting.target
    least, most = voting.per_item
    kinds = rng.choice(len(p.weights), voting.items, p=p.weights)
    number = rng.integers(least, most + 1, voting.items)
    votes = rng.multinomial(number, p.posteriors[kinds])
    if (votes.sum(axis=0) == 0).any():
        return
    voted = cs.collision_matrix_from_votes(votes)
    yield "voted S", of(voted.interval(LEVEL), p.matrix())
    yield "voted PBER", of(voted.pber_interval(LEVEL), p.pber())
    limit = (0, voted.bayes_error_limit(LEVEL))
    yield "voted Bayes error limit", of(limit, p.bayes_error())
    bounds = voted.bayes_error_bounds(LEVEL)
    yield "voted Bayes error bounds", of(bounds, p.bayes_error())
    chance = 1 - p.priors @ p.priors
    kappa = 1 - p.pber() / chance
    table = agreement(votes, level=LEVEL)
    yield "kappa", of(between(table.loc["Fleiss' kappa"]), kappa)
    yield "alpha", of(between(table.loc["Krippendorff's alpha"]), kappa)
    yield from judge_statements(p, kinds, votes)
    yield from annotator_statements(p, kinds, votes, rng)
    yield from planned_votes(p, voted, rng)
    if len(kinds) >= 400:
        yield from counted_statements(p, rng)


def judge_statements(p: Population, kinds: Array, votes: Array) -> Statements:
    """Of a judge who says the most likely class, beside one more human."""
    said = p.posteriors.argmax(axis=1)
    found = compare_judges(votes, said[kinds], level=LEVEL)
    gap = (1 - p.bayes_error()) - (1 - p.pber())
    yield "judge: difference", of(between(found.table.iloc[0]), gap)
    yield "judge: at best", of(found.best_interval, 1 - p.bayes_error())


def annotator_statements(
    p: Population, kinds: Array, votes: Array, rng: Rng
) -> Statements:
    """Votes dealt to annotators who all vote alike, but for the first, who says the best class."""
    n_votes = votes.sum(axis=1)
    items = np.repeat(np.arange(len(votes)), n_votes)
    order = rng.random((len(votes), ANNOTATORS)).argsort(axis=1)
    place = np.arange(len(items)) - np.repeat(n_votes.cumsum() - n_votes, n_votes)
    who = order[items, place]
    labels = draw_classes(p.posteriors[kinds[items]], rng)
    best = p.posteriors.argmax(axis=1)[kinds[items]]
    labels = np.where(who == 0, best, labels)
    if len(np.unique(labels)) < votes.shape[1]:  # a class without votes has no row of S
        return
    found = compare_annotators(items, labels, who, level=LEVEL)
    gap = p.pber() - p.bayes_error()
    first = found.annotators.set_index("annotator").loc[0]
    if np.isfinite(first["low"]):
        yield "annotator: difference", of(between(first), gap)
    alike = found.pairs[(found.pairs[["first", "second"]] > 0).all(axis=1)]
    truth = np.full(len(alike), 1 - p.pber())
    yield "annotators: pairs", of(between(alike), truth)


def planned_votes(p: Population, voted: cs.CollisionMatrix, rng: Rng) -> Statements:
    """A second round as ``votes_needed`` plans it: the estimate ± the half width asked for."""
    half = 0.05
    plan = votes_needed(voted, half, level=LEVEL).iloc[0]
    kinds = rng.choice(len(p.weights), int(plan["items"]), p=p.weights)
    votes = rng.multinomial(int(plan["votes_per_item"]), p.posteriors[kinds])
    used = votes.sum(axis=0) > 0  # a class without votes changes no PBER
    found = 0.0
    if used.sum() > 1:
        found = cs.collision_matrix_from_votes(votes[:, used]).pber
    yield "votes needed", of((found - half, found + half), p.pber())


def counted_statements(p: Population, rng: Rng) -> Statements:
    """2,000 rows of which most repeat, and 300 of which about half do."""
    rows = rng.choice(len(p.weights), 2000, p=p.weights)
    counted = cs.count_collisions(rows, draw_classes(p.posteriors[rows], rng))
    yield "counted S", of(counted.interval(LEVEL), p.matrix())
    yield "counted PBER", of(counted.pber_interval(LEVEL), p.pber())
    few = rng.choice(len(p.weights), 300, p=p.weights)
    labels = draw_classes(p.posteriors[few], rng)
    try:
        part = cs.count_collisions(few, labels)
    except ValueError:  # a class of which no input repeats: nothing is stated
        return
    least = part.coverage * part.pber_interval(LEVEL)[0]
    yield "counted: at least", of((least, 1.0), p.pber())
