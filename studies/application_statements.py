"""Statements of the grid (``studies/grid.py``) by the applications that take posteriors and groups.

See ``studies/statements.py``.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import average_precision_score, roc_auc_score

import collidescope as cs
from collidescope.applications import collision_change
from collidescope.equations.recalibration import raised
from studies.trial import (
    LEVEL,
    Array,
    Option,
    Population,
    Statements,
    Trial,
    between,
    of,
)


def application_statements(trial: Trial) -> Statements:
    yield from audit_statements(trial)
    yield from metric_statements(trial)
    yield from subgroup_statements(trial)
    yield from change_statements(trial)
    yield from column_statements(trial)


def favoured(told: Array) -> Array:
    """Posteriors of another model, which favours the first class."""
    factor = np.ones(told.shape[1])
    factor[0] = 2.0
    raw = told * factor
    return raw / raw.sum(axis=1, keepdims=True)


def confusion(p: Population, said: Array) -> Array:
    """Share of class i that is called j."""
    k = p.posteriors.shape[1]
    flow = (p.weights[:, None] * p.posteriors).T @ np.eye(k)[said]
    return flow / flow.sum(axis=1, keepdims=True)


def audit_statements(trial: Trial) -> Statements:
    """Of a classifier that favours the first class."""
    target = trial.target
    said = favoured(target.posteriors).argmax(axis=1)
    best = trial.option.posteriors.argmax(axis=1)
    sample = trial.sample
    found = cs.audit(
        sample.posteriors,
        y_true=sample.labels,
        y_pred=said[sample.kinds],
        **sample.options,
    )
    error = target.error(said)
    yield "audit: error", of(found.error_interval, error)
    yield "audit: fixable", of(found.fixable_interval, error - target.error(best))
    limit = (0, found.bayes_error_limit)
    yield "audit: Bayes error limit", of(limit, target.bayes_error())
    pairs = found.pairs
    if len(pairs):
        more = confusion(target, said) - confusion(target, best)
        truth = more[pairs["true"].astype(int), pairs["predicted"].astype(int)]
        yield "audit: pairs", of(between(pairs), truth)


def metric_statements(trial: Trial) -> Statements:
    """Every metric of ``ceilings``: now, with unlimited rows, and beside another model."""
    sample = trial.sample
    k = sample.posteriors.shape[1]
    table = cs.ceilings(
        sample.posteriors,
        sample.labels,
        y_pred=favoured(sample.posteriors),
        posteriors_by_size=trial.curves,
        cost=costs(k),
        ordered=True,
        level=LEVEL,
        **sample.options,
    ).table
    true, own, other = known_metrics(trial.option)
    for row in table.to_dict("records"):
        name = row["metric"].removesuffix(", one-vs-rest")
        yield f"ceiling: {name}", of(between(row), own[name])
        if np.isfinite(row["limit_low"]):
            yield f"range: {name}", of(between(row, "limit_"), true[name])
        gap = other[name] - own[name]
        yield f"difference: {name}", of(between(row, "difference_"), gap)


@cache
def known_metrics(option: Option) -> list[dict[str, float]]:
    """Of the true posteriors, of those that are told, and of the model that favours a class."""
    told = option.posteriors
    models = (option.target.posteriors, told, favoured(told))
    return [population_metrics(option.target, model) for model in models]


def steps(k: int) -> Array:
    """How many classes apart, (K, K)."""
    return np.abs(np.subtract.outer(np.arange(k), np.arange(k)))


def costs(k: int) -> Array:
    """Errors towards later classes cost more, those by several classes too."""
    return steps(k) * (1 + 0.5 * np.arange(k))


def population_metrics(p: Population, told: Array) -> dict[str, float]:
    """What ``ceilings`` estimates, over all kinds and labels."""
    k = told.shape[1]
    flow = p.weights[:, None] * p.posteriors  # mass of (kind, label)
    decided = flow.T @ np.eye(k)[told.argmax(axis=1)]
    decided_evenly = flow.T @ np.eye(k)[(told / p.priors).argmax(axis=1)]
    right = np.diag(decided)
    f1 = 2 * right / (decided.sum(axis=0) + p.priors)
    n_top = 2
    if k > 10:
        n_top = 5
    n_top = min(k - 1, n_top)
    ranks = np.argsort(-told, axis=1, kind="stable")
    among_top = np.take_along_axis(flow, ranks[:, :n_top], axis=1)
    classes = range(k)
    if k == 2:
        classes = [1]
    areas = [_areas(flow, told, c) for c in classes]
    roc_auc, average_precision = np.mean(areas, axis=0)
    squares, squares_at_random = _cheapest(flow, told, steps(k) ** 2.0)
    return {
        "accuracy": right.sum(),
        "balanced accuracy": np.mean(np.diag(decided_evenly) / p.priors),
        "macro F1": f1.mean(),
        "weighted F1": f1 @ p.priors,
        "log loss": -(flow * np.log(np.maximum(told, 1e-7))).sum(),
        "Brier score": p.weights @ p.brier(told),
        f"top-{n_top} accuracy": among_top.sum(),
        "ROC AUC": roc_auc,
        "average precision": average_precision,
        "expected cost": _cheapest(flow, told, costs(k))[0],
        "mean absolute error": _cheapest(flow, told, steps(k))[0],
        "quadratic kappa": 1 - squares / squares_at_random,
    }


def _areas(flow: Array, told: Array, c: int) -> tuple[float, float]:
    """Under the ROC and the precision-recall curve of one class."""
    hit = np.repeat([True, False], len(told))
    own = flow[:, c]
    others = flow.sum(axis=1) - own
    mass = np.concatenate([own, others])
    score = np.tile(told[:, c], 2)
    roc = roc_auc_score(hit, score, sample_weight=mass)
    return roc, average_precision_score(hit, score, sample_weight=mass)


def _cheapest(flow: Array, told: Array, cost: Array) -> tuple[float, float]:
    """Mean cost of the decisions of least expected cost, and that of the same at random."""
    decided = flow.T @ np.eye(len(cost))[(told @ cost).argmin(axis=1)]
    at_random = decided.sum(axis=1) @ cost @ decided.sum(axis=0)
    return (decided * cost).sum(), at_random


def subgroup_statements(trial: Trial) -> Statements:
    """PBER of the easy and the hard half, and their difference, all at once; and their ranges."""
    option = trial.option
    sample = trial.sample
    found = cs.collisions_by(
        sample.posteriors,
        sample.labels,
        option.easy[sample.kinds],
        posteriors_by_size=trial.curves,
        level=LEVEL,
        **sample.options,
    )
    table = found.table
    if table["low"].isna().any():
        return
    scores = option.target.brier(option.posteriors)
    least = option.target.brier(option.target.posteriors)
    truth = []
    for part in table["group"]:
        w = option.target.weights * (option.easy == part)
        others = option.target.weights - w
        mean = np.average(scores, weights=w)
        difference = mean - np.average(scores, weights=others)
        truth.append([mean, difference, np.average(least, weights=w)])
    low = table[["low", "difference_low", "limit_low"]].to_numpy()
    high = table[["high", "difference_high", "limit_high"]].to_numpy()
    yield "collisions by subgroup", of((low, high), truth, at_once=True)


def change_statements(trial: Trial) -> Statements:
    """Blunter posteriors of the same rows, and those of another sample."""
    target = trial.target
    told = trial.option.posteriors
    blunt = raised(told, 0.7)
    rise = target.weights @ (target.brier(blunt) - target.brier(told))
    rates = pair_rates(target, blunt) - pair_rates(target, told)
    sample = trial.sample
    other = trial.option.draw(trial.rng)
    same_rows = collision_change(
        sample.posteriors,
        sample.labels,
        raised(sample.posteriors, 0.7),
        level=LEVEL,
        **sample.options,
    )
    other_rows = collision_change(
        sample.posteriors,
        sample.labels,
        raised(other.posteriors, 0.7),
        other.labels,
        groups_after=other.options.get("groups"),
        level=LEVEL,
        **sample.options,
    )
    for name, found in (("same rows", same_rows), ("other rows", other_rows)):
        yield f"change, {name}", of(found.interval, rise)
        table = found.table
        truth = rates[table["class"].astype(int), table["other"].astype(int)]
        yield f"change of pairs, {name}", of(between(table), truth)


def pair_rates(p: Population, told: Array) -> Array:
    """-2 E[r_i r_j] with r = c - p: the part of a pair in the Brier score."""
    weighted = p.weights[:, None] * told
    mixed = weighted.T @ p.posteriors
    return 2 * (mixed + mixed.T - weighted.T @ told)


class Lookup(ClassifierMixin, BaseEstimator):
    """A model that knows the posteriors of every kind and of both halves: nothing is trained."""

    def __init__(self, told: Array, coarse: Array) -> None:
        self.told = told
        self.coarse = coarse

    def fit(self, X: pd.DataFrame, y: Array) -> Lookup:
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X: pd.DataFrame) -> Array:
        if "kind" in X:
            return self.told[X["kind"].to_numpy(dtype=int)]
        return self.coarse[X["half"].to_numpy(dtype=int)]


def column_statements(trial: Trial) -> Statements:
    """Two columns, the kind of input and the half it belongs to: the first tells the second."""
    option = trial.option
    target = option.target
    halves = option.easy.astype(int)
    weights = target.weights * (halves == [[0], [1]])
    coarse = weights @ target.posteriors / weights.sum(axis=1, keepdims=True)
    sample = trial.sample
    X = pd.DataFrame({"kind": sample.kinds, "half": halves[sample.kinds]})
    found = cs.column_value(
        Lookup(option.posteriors, coarse),
        X,
        sample.labels,
        columns=["kind", "half"],
        level=LEVEL,
        groups=sample.options.get("groups"),
    )
    table = found.table.set_index("unit").loc[["kind", "half"]]
    of_kind = target.weights @ target.brier(option.posteriors)
    of_half = target.weights @ target.brier(coarse[halves])
    of_none = 1 - target.priors @ target.priors
    yield "columns: PBER", of(found.pber_interval, of_kind)
    yield "columns: needed", of(between(table), [of_half - of_kind, 0.0])
    alone = [of_none - of_kind, of_none - of_half]
    yield "columns: alone", of(between(table, "alone_"), alone)
