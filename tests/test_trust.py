"""Shuffled labels, the learning curve that a fit left behind, and what an estimate says about
itself."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression

import collidescope as cs
from collidescope import (
    CollisionClassifier,
    CollisionMatrix,
    collision_matrix_from_posteriors,
    recover,
)
from collidescope.datasets import scenario_a
from collidescope.trust import cautions, learning_curve, limit_of, shuffled_control
from helpers import Memoriser, limit_like

QUICK = {"members": ["linear"], "cv": 2, "random_state": 0}
CM = CollisionMatrix([[0.8, 0.2], [0.2, 0.8]])


@pytest.mark.parametrize(
    "estimator",
    [LogisticRegression(), CollisionClassifier(**QUICK)],
    ids=["plain", "ours"],
)
def test_an_honest_fit_shows_no_structure_in_shuffled_labels(estimator):
    X, y = scenario_a(3).sample(750, 0)
    with warnings.catch_warnings():
        # that S falls to the priors is the point, not a warning
        warnings.simplefilter("error", cs.CollisionWarning)
        control = shuffled_control(estimator, X, y)
    assert control.passed
    assert control.largest_deviation < 0.15
    assert control.z < control.limit
    assert "as it should be" in str(control)
    # that it cannot see target leakage it says itself
    assert "does not test for target leakage" in str(control)
    assert shuffled_control(LogisticRegression(), np.column_stack([X, y]), y).passed


class Leak(Memoriser):
    """Remembers rows across fits (a cache outside the estimator): later folds know what earlier
    ones were shown."""

    cache: dict = {}  # noqa: RUF012 - that it is shared is the point

    def fit(self, X, y):
        self.cache.update(super().fit(X, y).memory_)
        self.memory_ = self.cache
        return self


def test_scoring_that_is_not_held_out_is_found_out():
    Leak.cache.clear()
    control = shuffled_control(Leak(), *scenario_a(3).sample(300, 0))
    assert not control.passed
    assert control.largest_deviation > 0.3
    assert control.z > 3 * control.limit
    assert "do not trust this fit" in str(control)


def test_the_control_leaves_the_estimator_alone():
    X, y = scenario_a(3).sample(150, 0)
    clf = CollisionClassifier(**QUICK)
    first, again = clf.shuffled_control(X, y), shuffled_control(clf, X, y)
    assert not hasattr(clf, "collision_matrix_")
    assert first.matrix == again.matrix
    assert first.matrix != shuffled_control(clf, X, y, random_state=1).matrix


def test_ctrl_c_ends_the_control():
    """Half a fit is not judged."""

    class Interrupted(BaseEstimator):
        def __init__(self, limit=True):
            self.limit = limit

        def shuffled_control(self, X, y):
            return shuffled_control(self, X, y)

        def fit(self, X, y):
            self.one_step_ = collision_matrix_from_posteriors(
                np.full((len(y), 3), 1 / 3), y
            )
            self.interrupted_ = True
            return self

    with pytest.raises(KeyboardInterrupt):
        shuffled_control(Interrupted(), *scenario_a(3).sample(60, 0))


@pytest.mark.parametrize(
    ("state", "reason", "verdict", "converged"),
    [
        ("settled", "what is left is smaller than the sampling error", "settled", True),
        (
            "still learning",
            "the last doubling lowered it",
            "more rows would lower it",
            False,
        ),
        (
            "still learning",
            "the drop is within sampling error",
            "too few rows to say",
            False,
        ),
        (
            "hardly begun",
            "no better than the class shares",
            "too few rows to say",
            False,
        ),
        (
            "miscalibrated",
            "posteriors are over-confident, which more rows do not change",
            "the curve does not say",
            False,
        ),
        ("a state of a later release", "", "too few rows to say", False),
    ],
)
def test_the_verdict_follows_the_state_of_the_limit(state, reason, verdict, converged):
    few_rows = verdict == "too few rows to say"
    limit = limit_like(CM, state, reason=reason, undecided=few_rows)
    curve = learning_curve(SimpleNamespace(limit_=limit))
    assert (curve.verdict, curve.converged) == (verdict, converged)
    assert (curve.pber_limit, curve.interval) == (limit.pber, limit.pber_interval())
    said = str(curve)
    assert f"Verdict: {verdict}" in said
    assert f"{limit.curve['pber'].iloc[0]:.3f} at 125" in said
    assert said.count("too few rows to say") == few_rows
    assert ("twice the rows would leave about 17.7% (15.9% to 19.4%)" in said) == (
        state in ("settled", "still learning")
    )
    assert limit_of(limit) is limit


@pytest.mark.parametrize("source", [None, SimpleNamespace(limit_=None), CM], ids=repr)
def test_a_learning_curve_without_a_limit_is_refused(source):
    with pytest.raises(ValueError, match="fit again with limit=True"):
        learning_curve(source)


def test_each_fault_is_said_once_in_words(rng):
    X, y = scenario_a(3).sample(900, 0)
    fine = collision_matrix_from_posteriors(scenario_a(3).posteriors(X), y)
    assert cautions(fine, fine, recover(fine.gramian, fine.priors).moved) == []
    y = np.arange(600) % 3
    chance = collision_matrix_from_posteriors(np.full((600, 3), 1 / 3), y)
    literal = recover(np.array([[0.9, 0.6, 0.6], [0.6, 0.9, 0.6], [0.6, 0.6, 0.9]]))
    first, second = cautions(literal.to_collision_matrix(), chance, literal.moved)
    assert "no better than the priors (PBER 0.667, 0.667 by chance)" in first
    assert "far from that of any collision matrix" in second
    # A class under two names: the first is told from the rest, the other two are one.
    P = np.where((y == 0)[:, None], [0.9, 0.05, 0.05], [0.05, 0.475, 0.475])
    copies = collision_matrix_from_posteriors(
        P, np.where(y == 0, 0, rng.integers(1, 3, 600))
    )
    (message,) = cautions(copies, copies, recover(copies.gramian, copies.priors).moved)
    assert "nearly singular" in message


def test_a_settled_curve_with_a_wide_range_is_not_said_to_be_sure():
    limit = limit_like(CM, "settled")
    said = learning_curve(SimpleNamespace(limit_=limit)).words
    assert said.startswith("settled as far as can be seen, but the sampling error is")
    limit.pber_interval = lambda level=0.95: (0.17, 0.18)
    said = learning_curve(SimpleNamespace(limit_=limit)).words
    assert said.startswith("settled; twice the rows")
