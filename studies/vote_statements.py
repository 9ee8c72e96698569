"""Statements of the grid (``studies/grid.py``) about votes, annotators and repeated inputs.

See ``studies/statements.py``.
"""

from __future__ import annotations

import numpy as np

import collidescope as cs
from collidescope.applications.annotators import agreement, compare_annotators
from collidescope.applications.judges import compare_judges
from collidescope.counting import votes_needed
from studies.trial import LEVEL, Population, Statements, draw_labels, of

ANNOTATORS = 8


def vote_statements(
    p: Population, kinds: np.ndarray, votes: np.ndarray, rng: np.random.Generator
) -> Statements:
    """Of several votes on items of these kinds, and of inputs that repeat."""
    voted = cs.collision_matrix_from_votes(votes)
    yield "voted S", of(voted.interval(LEVEL), p.matrix())
    yield "voted PBER", of(voted.pber_interval(LEVEL), p.pber())
    limit = (0, voted.bayes_error_limit(LEVEL))
    yield "voted Bayes error limit", of(limit, p.bayes_error())
    yield (
        "voted Bayes error bounds",
        of(voted.bayes_error_bounds(LEVEL), p.bayes_error()),
    )
    chance = 1 - p.priors @ p.priors
    kappa = 1 - p.pber() / chance
    table = agreement(votes, level=LEVEL)
    coefficients = {"kappa": "Fleiss' kappa", "alpha": "Krippendorff's alpha"}
    for name, coefficient in coefficients.items():
        row = table.loc[coefficient]
        yield name, of((row["low"], row["high"]), kappa)
    yield from judge_statements(p, kinds, votes)
    yield from annotator_statements(p, kinds, votes, rng)
    yield from planned_votes(p, voted, rng)
    if len(kinds) >= 400:
        yield from counted_statements(p, rng)


def judge_statements(p: Population, kinds: np.ndarray, votes: np.ndarray) -> Statements:
    """Of a judge who says the most likely class, beside one more human."""
    said = p.posteriors.argmax(axis=1)
    found = compare_judges(votes, said[kinds], level=LEVEL)
    row = found.table.iloc[0]
    gap = (1 - p.bayes_error()) - (1 - p.pber())
    yield "judge: difference", of((row["low"], row["high"]), gap)
    yield "judge: at best", of(found.best_interval, 1 - p.bayes_error())


def annotator_statements(
    p: Population, kinds: np.ndarray, votes: np.ndarray, rng: np.random.Generator
) -> Statements:
    """Votes dealt to annotators who all vote alike, but for the first, who says the best class."""
    n_votes = votes.sum(axis=1)
    items = np.repeat(np.arange(len(votes)), n_votes)
    order = rng.random((len(votes), ANNOTATORS)).argsort(axis=1)
    place = np.arange(len(items)) - np.repeat(n_votes.cumsum() - n_votes, n_votes)
    who = order[items, place]
    labels = draw_labels(rng, p.posteriors[kinds[items]])
    best = p.posteriors.argmax(axis=1)[kinds[items]]
    labels = np.where(who == 0, best, labels)
    if len(np.unique(labels)) < votes.shape[1]:  # a class without votes has no row of S
        return
    found = compare_annotators(items, labels, who, level=LEVEL)
    gap = float(p.pber() - p.bayes_error())
    first = found.annotators.set_index("annotator").loc[0]
    if np.isfinite(first["low"]):
        yield "annotator: difference", of((first["low"], first["high"]), gap)
    alike = found.pairs[(found.pairs[["first", "second"]] > 0).all(axis=1)]
    truth = np.full(len(alike), 1 - p.pber())
    yield "annotators: pairs", of((alike["low"], alike["high"]), truth)


def planned_votes(
    p: Population, voted: cs.CollisionMatrix, rng: np.random.Generator
) -> Statements:
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


def counted_statements(p: Population, rng: np.random.Generator) -> Statements:
    """2,000 rows of which most repeat, and 300 of which about half do."""
    rows = rng.choice(len(p.weights), 2000, p=p.weights)
    counted = cs.count_collisions(rows, draw_labels(rng, p.posteriors[rows]))
    yield "counted S", of(counted.interval(LEVEL), p.matrix())
    yield "counted PBER", of(counted.pber_interval(LEVEL), p.pber())
    few = rng.choice(len(p.weights), 300, p=p.weights)
    labels = draw_labels(rng, p.posteriors[few])
    try:
        part = cs.count_collisions(few, labels)
    except ValueError:  # a class of which no input repeats: nothing is stated
        return
    least = part.coverage * part.pber_interval(LEVEL)[0]
    yield "counted: at least", of((least, 1.0), p.pber())
