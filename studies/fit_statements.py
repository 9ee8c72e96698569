"""Statements of the grid (``studies/grid.py``) that applications make of a fitted classifier.

What was said to the fit is not said again: groups, and priors other than the class shares of the
rows, at which the posteriors of the fit then are. See ``studies/statements.py``.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

import collidescope as cs
from collidescope.equations.posterior import shift_rows
from studies.trial import LEVEL, SIZES, Statements, Trial, between, noisy, of

AUDITED = 10  #: every so many rows are audited beside a range of all rows


def fit_statements(trial: Trial) -> Statements:
    """Metrics of the rows of a fit; what is not learned yet, of few audited rows."""
    given = trial.sample.options
    if "sample_weight" not in given:
        yield from fit_metrics(trial)
    if trial.sample.independent:
        yield from not_learned(trial)


def fitted(trial: Trial) -> SimpleNamespace:
    """A classifier with the posteriors of the trial, as a fit leaves them."""
    sample = trial.sample
    k = sample.posteriors.shape[1]
    shares = np.bincount(sample.labels, minlength=k) / len(sample.labels)
    priors = shares
    if "priors" in sample.options:
        priors = trial.target.priors
    ratio = priors / shares
    return SimpleNamespace(
        predict_proba=None,
        posteriors_=shift_rows(sample.posteriors, ratio),
        posteriors_by_size_={
            size: shift_rows(P, ratio) for size, P in trial.curves.items()
        },
        labels_=sample.labels,
        classes_=trial.matrix.classes,
        collision_matrix_=trial.matrix,
        limit_=trial.limit,
        priors_=priors,
        row_priors_=shares,
        sample_weight_=None,
        groups_=sample.options.get("groups"),
    )


def fit_metrics(trial: Trial) -> Statements:
    """Accuracy and Brier score now and with unlimited rows: at the class shares of the rows."""
    clf = fitted(trial)
    target = trial.target
    told = trial.option.posteriors
    if trial.option.rows is not None:
        target = trial.option.rows
        told = target.posteriors
    table = cs.ceilings(clf, level=LEVEL).table.set_index("metric")
    now = {
        "accuracy": 1 - target.error(told.argmax(axis=1)),
        "Brier score": target.weights @ target.brier(told),
    }
    best = {"accuracy": 1 - target.bayes_error(), "Brier score": target.pber()}
    for name, value in now.items():
        row = table.loc[name]
        yield f"fit: {name}", of(between(row), value)
        if np.isfinite(row["limit_low"]):
            yield f"fit: range of {name}", of(between(row, "limit_"), best[name])


def not_learned(trial: Trial) -> Statements:
    """Of posteriors by models of the last size, on a tenth of the rows of another sample."""
    other = trial.option.draw(trial.rng)
    few = slice(None, None, AUDITED)
    kinds = other.kinds[few]
    groups = other.options.get("groups")
    if groups is not None:
        groups = groups[few]
    # The same noise of a kind in every sample: the rule that is audited has one error.
    noise = np.random.default_rng(2).standard_normal(trial.option.posteriors.shape)
    told = noisy(trial.option.posteriors, noise, int(SIZES[-1]))
    found = cs.audit(
        told[kinds],
        None,
        other.labels[few],
        told[kinds].argmax(axis=1),
        limit=trial.limit,
        groups=groups,
        classes=np.arange(told.shape[1]),
        level=LEVEL,
    )
    target = trial.target
    truth = target.error(told.argmax(axis=1)) - target.bayes_error()
    yield "audit: not learned", of(found.not_learned_interval, truth)
