"""Statements of the grid (``studies/grid.py``) about S, its limits, its range and its plans.

A statement is an interval or a limit that the package prints at 95%: its ends in one sample, and
the truth, a sum over the kinds of input of a population. Statements that hold several numbers at
once (all pairs, all subgroups) count as held where all of them do.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
from sklearn.naive_bayes import GaussianNB

import collidescope as cs
from collidescope.applications import expected_distance
from collidescope.matrix import CollisionMatrix
from collidescope.trust import shuffled_control
from studies.application_statements import application_statements
from studies.fit_statements import fit_statements
from studies.trial import (
    DOUBLED,
    LEVEL,
    Array,
    Held,
    Population,
    Statements,
    Trial,
    between,
    of,
)

MOST_CLASSES = 20  #: of the statements that take long


def statements(trial: Trial) -> Statements:
    """Everything that is said of one sample."""
    yield from now_statements(trial)
    cm = trial.matrix
    if cm.n_classes > MOST_CLASSES:
        return
    yield from range_statements(trial)
    yield from compared_statements(trial)
    yield from plan_statements(trial)
    if cm.n_classes > 2:
        yield from merged_statements(cm, trial.target)
        yield "consolidation path", consolidation_path(cm, trial.target)
        yield "expected distance", distance(cm, trial.target)
    if not trial.sample.options:
        yield "shuffled control", shuffled(trial)
    if trial.sample.independent:
        yield from application_statements(trial)
    yield from fit_statements(trial)


def now_statements(trial: Trial) -> Statements:
    """Of S, the PBER and the limit of the Bayes error."""
    cm = trial.matrix
    S = trial.target.matrix()
    low, high = cm.interval(LEVEL)
    yield "PBER", of(cm.pber_interval(LEVEL), trial.target.pber())
    yield "S", of((low, high), S)
    yield "recall", of((np.diag(low), np.diag(high)), np.diag(S))
    yield "top collision", top_collision(cm, S)
    error = trial.target.bayes_error()
    yield "Bayes error limit", of((0, cm.bayes_error_limit(LEVEL)), error)


def top_collision(cm: CollisionMatrix, S: Array) -> Held:
    """The largest collision, chosen because it is large."""
    top = cm.top_collisions(1, LEVEL).iloc[0]
    return of(between(top), S[int(top["class"]), int(top["other"])])


def range_statements(trial: Trial) -> Statements:
    """Of unlimited rows, and of twice the rows."""
    limit = trial.limit
    target = trial.target
    yield "range of PBER", of(limit.pber_interval(LEVEL), target.pber())
    bayes = limit.bayes_error_interval(LEVEL)
    yield "range of Bayes error", of(bayes, target.bayes_error())
    ends = limit.matrix.interval(LEVEL)
    if ends is not None:  # not stated of posteriors without skill
        yield "S∞", of(ends, target.matrix())
    low, _, high = limit.continuation([DOUBLED], LEVEL)
    yield "continuation", of((low[0], high[0]), trial.option.later)
    found = limit.rows_needed(trial.option.later, level=LEVEL)
    yield "rows needed", of((found.low, found.high), DOUBLED)


def merged_statements(cm: CollisionMatrix, target: Population) -> Statements:
    """Of the first two classes merged."""
    merged = cm.merge([[0, 1]])
    A = np.eye(cm.n_classes)[:, 1:]
    A[0, 0] = 1
    truth = Population(target.posteriors @ A, target.weights)
    yield "merged S", of(merged.interval(LEVEL), truth.matrix())
    yield "merged PBER", of(merged.pber_interval(LEVEL), truth.pber())
    limit = merged.bayes_error_limit(LEVEL)
    yield "merged Bayes error limit", of((0, limit), truth.bayes_error())


def consolidation_path(cm: CollisionMatrix, target: Population) -> Held:
    """PBER at every number of groups, each grouping the best found in this sample."""
    found = cs.consolidate(cm)
    B = target.joint()
    path = found.path[found.path["n_groups"] > 1]
    truth = []
    for grouping in found.groupings[: len(path)]:
        together = grouping[:, None] == grouping
        truth.append(1 - B[together].sum())
    return of(between(path, "pber_"), truth)


def distance(cm: CollisionMatrix, target: Population) -> Held:
    """How far apart two labels of one input are, in classes."""
    k = cm.n_classes
    apart = np.abs(np.subtract.outer(np.arange(k), np.arange(k)))
    found = expected_distance(cm, level=LEVEL)
    return of((found.low, found.high), (target.joint() * apart).sum())


def compared_statements(trial: Trial) -> Statements:
    """Beside 400 items with five votes each, of the same population: no difference is true."""
    target = trial.target
    kinds = trial.rng.choice(len(target.weights), 400, p=target.weights)
    votes = trial.rng.multinomial(5, target.posteriors[kinds])
    found = cs.compare(trial.matrix, cs.collision_matrix_from_votes(votes), level=LEVEL)
    yield "compare PBER", of(between(found.pber), 0.0)
    no_difference = np.zeros(len(found.pairs))
    yield "compare S", of(between(found.pairs), no_difference, at_once=True)


def plan_statements(trial: Trial) -> Statements:
    """What rows, checked labels and merged classes would take off the PBER."""
    cm = trial.matrix
    fitted = SimpleNamespace(
        predict_proba=None,
        posteriors_=trial.sample.posteriors,
        labels_=trial.sample.labels,
        groups_=trial.sample.options.get("groups"),
        classes_=cm.classes,
        collision_matrix_=cm,
        limit_=trial.limit,
    )
    table = cs.plan(fitted, level=LEVEL).table.set_index("option")
    twice = trial.option.now - trial.option.later
    yield "gain of rows", of(between(table.loc["rows"]), twice)
    if "labels" in table.index:  # no label is wrong
        yield "gain of labels", of(between(table.loc["labels"]), 0.0)
    if "merge" in table.index:
        merges = table.loc[["merge"]]
        yield "gain of a merge", merge_gain(cm, merges, trial.target.joint())


def merge_gain(cm: CollisionMatrix, merges: pd.DataFrame, B: Array) -> Held:
    """Of the first steps of merging."""
    groupings = cs.consolidate(cm).groupings
    truth = []
    for step in merges["amount"].astype(int):
        together = groupings[step][:, None] == groupings[step]
        np.fill_diagonal(together, False)
        truth.append(B[together].sum())
    return of(between(merges), truth)


def shuffled(trial: Trial) -> Held:
    """The largest deviation of S from the class shares, in standard errors, and its limit."""
    y = trial.sample.labels
    X = trial.rng.standard_normal((len(y), 3))
    found = shuffled_control(GaussianNB(), X, y, trial.rng.integers(2**31))
    return of((0.0, found.limit), found.z)
