"""Shuffled labels and learning curves: may the number be trusted?"""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from collidescope import (
    CollisionClassifier,
    CollisionWarning,
    collision_matrix_from_posteriors,
    learning_curve,
    recover,
)
from collidescope.datasets import ring, scenario_a, scenario_b, tangled
from collidescope.trust import cautions, extrapolate, shuffled_control

QUICK = {
    "hidden_layer_sizes": (),
    "max_epochs": 20,
    "batch_size": 16,
    "learning_rate": 0.03,
    "cv": 2,
    "random_state": 0,
}

# ---------------------------------------------------------------- shuffled labels


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "estimator", [LogisticRegression(), CollisionClassifier(**QUICK)], ids=["plain classifier", "ours"]
)
def test_an_honest_fit_shows_no_structure_in_shuffled_labels(estimator, seed):
    X, y = scenario_a(3).sample(750, seed)
    control = shuffled_control(estimator, X, y, random_state=seed)
    assert control.passed
    assert control.largest_deviation < 0.15
    assert control.z < control.limit
    assert control.matrix.priors == pytest.approx(np.full(3, 1 / 3))
    assert "as it should be" in str(control)


def test_passing_is_the_rule_not_luck():
    """At a limit that 95% stay below, 40 honest controls should hardly ever see more than 6 alarms (p < 0.002)."""
    alarms = 0
    for seed in range(40):
        X, y = scenario_a(3).sample(150, seed)
        alarms += not shuffled_control(LogisticRegression(), X, y, random_state=seed).passed
    assert alarms <= 6


class Leak(ClassifierMixin, BaseEstimator):
    """Remembers rows across fits (a cache outside the estimator): later folds know what earlier ones were shown."""

    cache: dict = {}  # noqa: RUF012 - that it is shared is the point

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.cache.update({row.tobytes(): label for row, label in zip(X, y, strict=True)})
        return self

    def predict_proba(self, X):
        known = np.array([self.cache.get(row.tobytes(), -1) for row in X])
        hit = known[:, None] == self.classes_
        return np.where(hit.any(axis=1, keepdims=True), 0.98 * hit + 0.02 / len(self.classes_), 1 / len(self.classes_))

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def test_a_leak_between_folds_is_found_out():
    Leak.cache.clear()
    control = shuffled_control(Leak(), *scenario_a(3).sample(300, 0))
    assert not control.passed
    assert control.largest_deviation > 0.3
    assert control.z > 3 * control.limit
    assert "do not trust this fit" in str(control)


def test_a_model_scored_on_its_own_training_rows_is_found_out(monkeypatch):
    """Cross-fitting switched off: a model that can learn by heart sees structure in noise."""
    from collidescope import trust as controls

    def in_sample(classifier, X, y):
        return collision_matrix_from_posteriors(classifier.fit(X, y).predict_proba(X), y)

    X, y = scenario_a(3).sample(300, 0)
    assert shuffled_control(KNeighborsClassifier(15), X, y).passed
    monkeypatch.setattr(controls, "estimate_collisions", in_sample)
    assert not shuffled_control(KNeighborsClassifier(3), X, y).passed


def test_what_the_control_is_meant_to_find_is_not_warned_about():
    X, y = scenario_a(3).sample(300, 0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CollisionWarning)
        CollisionClassifier(**QUICK).shuffled_control(X, y)
        CollisionClassifier(**(QUICK | {"max_epochs": 1})).learning_curve(X, y)
    assert [str(note.message) for note in caught if issubclass(note.category, CollisionWarning)] == []


@pytest.mark.parametrize("control", ["shuffled_control", "learning_curve"])
def test_ctrl_c_ends_a_control_instead_of_judging_half_a_fit(monkeypatch, control):
    from collidescope.training import loop as training

    original, calls = training.run_epoch, []

    def run_epoch(*arguments):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(training, "run_epoch", run_epoch)
    clf = CollisionClassifier(**(QUICK | {"max_epochs": 3, "patience": 0}))
    with pytest.raises(KeyboardInterrupt):
        getattr(clf, control)(*scenario_a(3).sample(150, 0))
    assert len(calls) == 5


def test_the_control_leaves_the_estimator_alone_and_is_reproducible():
    X, y = scenario_a(3).sample(150, 0)
    clf = CollisionClassifier(**(QUICK | {"max_epochs": 2, "estimate": "gramian"}))
    first, again = clf.shuffled_control(X, y), shuffled_control(clf, X, y)
    assert not hasattr(clf, "collision_matrix_")
    assert first.matrix == again.matrix
    assert first.matrix != shuffled_control(clf, X, y, random_state=1).matrix


# ---------------------------------------------------------------- extrapolation


@pytest.mark.parametrize("ratio", [0.3, 0.5, 0.7])
def test_a_curve_that_keeps_a_fixed_share_of_each_drop_is_followed_to_its_end(ratio):
    limit = 0.1
    pber = limit + 0.3 * ratio ** np.arange(3)
    found, converged = extrapolate(pber, np.full(3, 1e-4))
    assert found == pytest.approx(limit, abs=1e-9)
    assert converged == (0.3 * ratio**2 <= 0.1 * pber[2])


#: A standard error that makes these drops certain, and one that makes the first of them luck.
SURE, UNSURE = [0.003] * 3, [0.03, 0.01, 0.007]


@pytest.mark.parametrize(
    ("pber", "stderr", "limit", "converged"),
    [
        pytest.param([0.40, 0.30, 0.25], SURE, 0.20, False, id="each drop half the last"),
        pytest.param([0.40, 0.30, 0.29], SURE, 0.29 - 0.11 / 15, True, id="falls faster than noise lets one measure"),
        pytest.param([0.40, 0.36, 0.30], SURE, 0.30 - 0.10 * 9 / 7, False, id="drops grow: taken as the slowest"),
        pytest.param([0.30, 0.295, 0.291], SURE, 0.291 - 0.009 / 3, True, id="hardly falls"),
        pytest.param([0.47, 0.46, 0.46], SURE, 0.46, True, id="flat"),
        pytest.param([0.40, 0.42, 0.43], SURE, 0.43, True, id="rises"),
        pytest.param([0.40, 0.30, 0.35], SURE, 0.35, True, id="falls, then rises"),
        pytest.param([0.35, 0.33, 0.29], UNSURE, 0.27, True, id="a first drop of luck says nothing of the ratio"),
        pytest.param([0.60, 0.56, 0.40], UNSURE, 0.40 - 0.20 / 3, False, id="lucky first drop, steep second"),
        pytest.param([0.40, 0.30, 0.25], [0.1] * 3, 0.20, True, id="all of it may be luck"),
        pytest.param([0.09, 0.06, 0.02], SURE, 0.0, False, id="no error can be below zero"),
        pytest.param([0.0, 0.0, 0.0], [0.0] * 3, 0.0, True, id="separable"),
    ],
)
def test_the_table_of_curves(pber, stderr, limit, converged):
    assert extrapolate(pber, stderr) == (pytest.approx(limit, abs=1e-12), converged)


@pytest.mark.parametrize(
    ("pber", "stderr", "message"),
    [
        ([0.1, 0.1], [0.1, 0.1], "3 entries each"),
        ([0.1, 0.1, np.nan], [0.1] * 3, "pber must be finite"),
        ([0.1] * 3, [0.1, np.inf, 0.1], "stderr must be finite"),
    ],
)
def test_anything_but_three_numbers_is_refused(pber, stderr, message):
    with pytest.raises(ValueError, match=message):
        extrapolate(pber, stderr)


# ---------------------------------------------------------------- learning curves


@pytest.mark.parametrize(
    ("problem", "n", "seed", "estimator", "converged"),
    [
        pytest.param(scenario_a(3), 750, 0, LogisticRegression(), True, id="A, linear"),
        pytest.param(scenario_b(0.15), 3000, 0, LogisticRegression(max_iter=300), True, id="B, linear"),
        pytest.param(ring(), 3000, 1, QuadraticDiscriminantAnalysis(), True, id="D, quadratic"),
        pytest.param(tangled(), 3000, 0, KNeighborsClassifier(10), False, id="tangled, neighbours"),
        pytest.param(
            scenario_a(3), 750, 0, CollisionClassifier(**(QUICK | {"max_epochs": 40})), True, id="A, ours, linear"
        ),
    ],
)
def test_a_learned_problem_is_called_settled_and_a_hard_one_is_not(problem, n, seed, estimator, converged):
    curve = learning_curve(estimator, *problem.sample(n, seed), random_state=seed)
    assert curve.converged == converged
    assert curve.sizes == pytest.approx([n / 4, n / 2, n], abs=1)
    if converged:
        assert curve.pber[2] == pytest.approx(problem.collision_matrix().pber, abs=4 * curve.pber_stderr[2])
        assert "more data would hardly change it" in str(curve)
    else:
        assert curve.pber[2] > 5 * problem.collision_matrix().pber  # ignorance that looks like ambiguity
        assert curve.pber_limit < curve.pber[2]
        assert f"to about {curve.pber_limit:.3f}" in str(curve)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "n", "seed", "converged"),
    [
        pytest.param(scenario_a(3), 750, 1, True, id="A"),
        pytest.param(scenario_b(0.15), 3000, 0, True, id="B"),
        # A curve of 0.349, 0.332, 0.296: the ratio of its drops, 2, is noise.
        pytest.param(ring(), 3000, 1, True, id="D"),
        pytest.param(tangled(), 3000, 0, False, id="tangled"),
    ],
)
def test_the_default_models_settle_on_the_scenarios_and_not_on_the_hard_case(problem, n, seed, converged):
    curve = learning_curve(CollisionClassifier(cv=2, random_state=0), *problem.sample(n, seed), random_state=seed)
    assert curve.converged == converged
    if converged:
        assert curve.pber_limit == pytest.approx(problem.collision_matrix().pber, abs=0.04)


class Recorder(LogisticRegression):
    """Notes which rows it was given: the first column is the row number."""

    seen: list = []  # noqa: RUF012 - shared by the clones on purpose

    def fit(self, X, y):
        self.seen.append(set(np.asarray(X)[:, 0].astype(int)))
        return super().fit(X, y)


def test_the_parts_are_nested_and_keep_the_class_shares():
    X, y = scenario_a(3).sample(240, 0)
    X = np.column_stack([np.arange(240), X])
    Recorder.seen.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learning_curve(Recorder(), X, y)
    quarter, half, whole = (set().union(*Recorder.seen[i : i + 5]) for i in (0, 5, 10))
    assert (len(quarter), len(half), len(whole)) == (60, 120, 240)
    assert quarter < half < whole
    assert np.bincount(y[sorted(quarter)]).tolist() == [20, 20, 20]


@pytest.mark.parametrize("container", [pd.DataFrame, sp.csr_matrix, lambda X: X.tolist()], ids=["frame", "csr", "list"])
def test_any_kind_of_table_is_taken(container):
    X, y = scenario_a(3).sample(120, 0)
    model = make_pipeline(StandardScaler(with_mean=False), LogisticRegression())
    expected = learning_curve(model, X, y)
    assert learning_curve(model, container(X), y.tolist()).pber == pytest.approx(expected.pber, abs=1e-6)


def test_a_class_too_small_for_the_smallest_part_is_named_with_what_is_needed():
    X, y = scenario_a(3).sample(120, 0)
    y = np.where(np.arange(120) < 12, 3, y)
    with pytest.raises(ValueError, match="cv=5 needs at least 5 members of every class, class 3 has 3"):
        learning_curve(LogisticRegression(), X, y)


# ---------------------------------------------------------------- cautions


def test_an_estimate_without_a_fault_needs_no_caution():
    problem = scenario_a(3)
    X, y = problem.sample(900, 0)
    one_step = collision_matrix_from_posteriors(problem.posteriors(X), y)
    assert cautions(one_step, one_step, recover(one_step.gramian, one_step.priors)) == []


def test_each_fault_is_said_once_in_words():
    rng = np.random.default_rng(0)
    y = np.arange(600) % 3
    chance = collision_matrix_from_posteriors(np.full((600, 3), 1 / 3), y)
    literal = recover(np.array([[0.9, 0.6, 0.6], [0.6, 0.9, 0.6], [0.6, 0.6, 0.9]]))
    said = cautions(literal.to_collision_matrix(), chance, literal)
    assert len(said) == 2
    assert "no better than the priors (PBER 0.667, 0.667 by chance)" in said[0]
    assert "far from that of any collision matrix" in said[1]
    # A class under two names: the first is told from the rest, the other two are one.
    P = np.where((y == 0)[:, None], [0.9, 0.05, 0.05], [0.05, 0.475, 0.475])
    copies = collision_matrix_from_posteriors(P, np.where(y == 0, 0, rng.integers(1, 3, 600)))
    (message,) = cautions(copies, copies, recover(copies.gramian, copies.priors))
    assert "nearly singular" in message
