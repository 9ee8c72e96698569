"""Statements of the grid (``studies/grid.py``) by the applications that take posteriors and groups.

See ``studies/statements.py``.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import average_precision_score, roc_auc_score

import collidescope as cs
from collidescope.applications import collision_change
from collidescope.equations.recalibration import raised
from studies.trial import LEVEL, Option, Population, Statements, Trial, of


def application_statements(trial: Trial) -> Statements:
    yield from audit_statements(trial)
    yield from metric_statements(trial)
    yield from subgroup_statements(trial)
    yield from change_statements(trial)
    yield from column_statements(trial)


def favoured(told: np.ndarray) -> np.ndarray:
    """Posteriors of another model, which favours the first class."""
    factor = np.ones(told.shape[1])
    factor[0] = 2.0
    raw = told * factor
    return np.asarray(raw / raw.sum(axis=1, keepdims=True))


def confusion(p: Population, said: np.ndarray) -> np.ndarray:
    """Share of class i that is called j."""
    k = p.posteriors.shape[1]
    flow = (p.weights[:, None] * p.posteriors).T @ np.eye(k)[said]
    return np.asarray(flow / flow.sum(axis=1, keepdims=True))


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
        yield "audit: pairs", of((pairs["low"], pairs["high"]), truth)


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
    told = trial.option.posteriors
    best = _metrics(trial.option, "own", told)
    true = _metrics(trial.option, "true", trial.target.posteriors)
    other = _metrics(trial.option, "favoured", favoured(told))
    for row in table.to_dict("records"):
        name = row["metric"].removesuffix(", one-vs-rest")
        yield f"ceiling: {name}", of((row["low"], row["high"]), best[name])
        if np.isfinite(row["limit_low"]):
            ends = (row["limit_low"], row["limit_high"])
            yield f"range: {name}", of(ends, true[name])
        ends = (row["difference_low"], row["difference_high"])
        yield f"difference: {name}", of(ends, other[name] - best[name])


def _metrics(option: Option, name: str, told: np.ndarray) -> dict[str, float]:
    """Computed once for an option."""
    if name not in option.known:
        option.known[name] = population_metrics(option.target, told)
    return option.known[name]


def costs(k: int) -> np.ndarray:
    """Errors towards later classes cost more, those by several classes too."""
    apart = np.abs(np.subtract.outer(np.arange(k), np.arange(k)))
    return apart * (1 + 0.5 * np.arange(k))


def population_metrics(p: Population, told: np.ndarray) -> dict[str, float]:
    """What ``ceilings`` estimates, over all kinds and labels."""
    k = told.shape[1]
    flow = p.weights[:, None] * p.posteriors  # mass of (kind, label)
    likeliest = flow.T @ np.eye(k)[told.argmax(axis=1)]
    even = flow.T @ np.eye(k)[(told / p.priors).argmax(axis=1)]
    right = np.diag(likeliest)
    f1 = 2 * right / (likeliest.sum(axis=0) + p.priors)
    found = {
        "accuracy": float(right.sum()),
        "balanced accuracy": float(np.mean(np.diag(even) / p.priors)),
        "macro F1": float(f1.mean()),
        "weighted F1": float(f1 @ p.priors),
        "log loss": float(-(flow * np.log(np.maximum(told, 1e-7))).sum()),
        "Brier score": float(p.weights @ p.brier(told)),
    }
    ranks = np.argsort(-told, axis=1, kind="stable")
    top = min(k - 1, 5 if k > 10 else 2)
    among = np.take_along_axis(flow, ranks[:, :top], axis=1)
    found[f"top-{top} accuracy"] = float(among.sum())
    areas = [_areas(flow, told, c) for c in (range(k) if k > 2 else (1,))]
    found["ROC AUC"], found["average precision"] = np.mean(areas, axis=0).tolist()
    apart = np.abs(np.subtract.outer(np.arange(k), np.arange(k))).astype(float)
    found["expected cost"] = _cheapest(flow, told, costs(k))[0]
    found["mean absolute error"] = _cheapest(flow, told, apart)[0]
    mean, at_random = _cheapest(flow, told, apart**2)
    found["quadratic kappa"] = 1 - mean / at_random
    return found


def _areas(flow: np.ndarray, told: np.ndarray, c: int) -> tuple[float, float]:
    """Under the ROC and the precision-recall curve of one class."""
    hit = np.repeat([True, False], len(told))
    mass = np.concatenate([flow[:, c], flow.sum(axis=1) - flow[:, c]])
    score = np.tile(told[:, c], 2)
    roc = roc_auc_score(hit, score, sample_weight=mass)
    return float(roc), float(average_precision_score(hit, score, sample_weight=mass))


def _cheapest(
    flow: np.ndarray, told: np.ndarray, cost: np.ndarray
) -> tuple[float, float]:
    """Mean cost of the decisions of least expected cost, and that of the same at random."""
    decided = flow.T @ np.eye(len(cost))[(told @ cost).argmin(axis=1)]
    at_random = decided.sum(axis=1) @ cost @ decided.sum(axis=0)
    return float((decided * cost).sum()), float(at_random)


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
        yield f"change of pairs, {name}", of((table["low"], table["high"]), truth)


def pair_rates(p: Population, told: np.ndarray) -> np.ndarray:
    """-2 E[r_i r_j] with r = c - p: the part of a pair in the Brier score."""
    weighted = p.weights[:, None] * told
    mixed = weighted.T @ p.posteriors
    return np.asarray(2 * (mixed + mixed.T - weighted.T @ told))


class Lookup(ClassifierMixin, BaseEstimator):
    """A model that knows the posteriors of every kind and of both halves: nothing is trained."""

    def __init__(self, told: np.ndarray, coarse: np.ndarray) -> None:
        self.told = told
        self.coarse = coarse

    def fit(self, X: pd.DataFrame, y: np.ndarray) -> Lookup:
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        if "kind" in X:
            return self.told[X["kind"].to_numpy(dtype=int)]
        return self.coarse[X["half"].to_numpy(dtype=int)]


def column_statements(trial: Trial) -> Statements:
    """Two columns, the kind of input and the half it belongs to: the first tells the second."""
    option = trial.option
    target = option.target
    halves = option.easy.astype(int)
    mass = np.array([(halves == half) @ target.weights for half in (0, 1)])
    flow = np.array(
        [(target.weights * (halves == half)) @ target.posteriors for half in (0, 1)]
    )
    coarse = flow / mass[:, None]
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
    of_kind = float(target.weights @ target.brier(option.posteriors))
    of_half = float(target.weights @ target.brier(coarse[halves]))
    of_none = 1 - float(target.priors @ target.priors)
    yield "columns: PBER", of(found.pber_interval, of_kind)
    yield "columns: needed", of((table["low"], table["high"]), [of_half - of_kind, 0.0])
    alone = (table["alone_low"], table["alone_high"])
    yield "columns: alone", of(alone, [of_none - of_kind, of_none - of_half])
