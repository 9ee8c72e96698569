"""Shrinkage lowers the error where the model is right, and gives way where the labels contradict it."""

from __future__ import annotations

import numpy as np
import pytest

from collidescope import collision_matrix_from_posteriors, shrunk_collision_matrix
from collidescope.datasets import ring, scenario_a
from collidescope.shrinkage import CAUTION, _moments, one_step_share
from helpers import mean_tvd, random_posteriors


@pytest.mark.parametrize("priors", ["empirical", "uniform"])
def test_with_true_posteriors_the_error_is_lower_and_intervals_still_cover(priors):
    problem = scenario_a(4)
    truth = problem.collision_matrix().matrix
    rng = np.random.default_rng(0)
    plain, shrunk, inside = [], [], []
    for _ in range(60):
        X, y = problem.sample(1000, rng)
        P = problem.posteriors(X)
        plain.append(mean_tvd(collision_matrix_from_posteriors(P, y, priors=priors).matrix, truth))
        cm = shrunk_collision_matrix(P, y, priors=priors)
        shrunk.append(mean_tvd(cm.matrix, truth))
        low, high = cm.interval()
        inside.append(((low <= truth) & (truth <= high)).mean())
    assert np.mean(shrunk) < 0.85 * np.mean(plain)
    assert np.mean(inside) > 0.93


def test_with_badly_calibrated_posteriors_it_is_nearly_the_one_step_estimate():
    problem = ring()
    truth = problem.collision_matrix().matrix
    X, y = problem.sample(6000, 0)
    P = problem.posteriors(X) ** 0.4
    P /= P.sum(axis=1, keepdims=True)
    cm = shrunk_collision_matrix(P, y)
    assert cm.info["one_step_share"] > 0.97
    one_step, word = (mean_tvd(collision_matrix_from_posteriors(P, labels).matrix, truth) for labels in (y, None))
    assert word > 2 * one_step
    assert mean_tvd(cm.matrix, truth) < 1.05 * one_step


def test_many_classes_vouch_for_the_model_and_few_do_not():
    shares = {}
    for k in (2, 40):
        P, codes = random_posteriors(np.random.default_rng(k), 200 * k, k, sharpness=3.0)
        shares[k] = shrunk_collision_matrix(P, codes).info["one_step_share"]
    assert shares[40] < 0.35
    assert shares[2] > 0.5


def test_the_variance_of_the_difference_is_that_over_repetitions():
    problem = scenario_a(3)
    rng = np.random.default_rng(1)
    differences, variances = [], []
    for _ in range(400):
        X, y = problem.sample(500, rng, stratified=False)
        word, labels, variance = _moments(problem.posteriors(X), y, np.full(500, 1 / 500), 3)
        differences.append(labels - word)
        variances.append(variance)
    assert np.mean(variances, axis=0) == pytest.approx(np.var(differences, axis=0), rel=0.25)
    assert np.abs(np.mean(differences, axis=0)).max() < 5 * np.sqrt(np.mean(variances, axis=0).max() / 400)


def test_the_share_grows_with_the_bias_and_never_leaves_the_unit_interval():
    priors, V = np.full(3, 1 / 3), np.full((3, 3), 1e-4)
    pattern = np.eye(3) - 1 / 3
    shares = [one_step_share(size * pattern, V, priors) for size in (0.0, 0.01, 0.03, 0.1, 1.0)]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] <= 1
    assert one_step_share(pattern, 0 * V, priors) == 1
    assert CAUTION > 0


def test_standard_errors_priors_and_names_are_those_of_the_one_step_estimate():
    P, codes = random_posteriors(np.random.default_rng(3), 400, 3)
    names = np.array(["x", "y", "z"])[codes]
    shrunk, plain = (
        f(P, names, sample_weight=np.ones(400)) for f in (shrunk_collision_matrix, collision_matrix_from_posteriors)
    )
    assert np.array_equal(shrunk.stderr, plain.stderr)
    assert np.array_equal(shrunk.priors, plain.priors)
    assert shrunk.classes.tolist() == ["x", "y", "z"]
    assert shrunk.balance_gap < 1e-12
