"""Shrinkage lowers the error where the model is right, and gives way where the labels contradict it."""

from __future__ import annotations

import numpy as np
import pytest

from collidescope import collision_matrix_from_posteriors, shrunk_collision_matrix
from collidescope.datasets import GaussianProblem, scenario_a
from collidescope.estimate import labelled_moments, one_step_share, word_and_labels
from helpers import mean_tvd, random_posteriors


def thirty_classes() -> GaussianProblem:
    return GaussianProblem(1.5 * np.random.default_rng(0).standard_normal((30, 4)))


@pytest.mark.parametrize("priors", ["empirical", "uniform"])
def test_with_true_posteriors_of_many_classes_the_error_is_lower_and_intervals_still_cover(priors):
    problem = thirty_classes()
    truth = problem.collision_matrix().matrix
    rng = np.random.default_rng(0)
    plain, shrunk, inside = [], [], []
    for _ in range(10):
        X, y = problem.sample(3000, rng)
        P = problem.posteriors(X)
        plain.append(mean_tvd(collision_matrix_from_posteriors(P, y, priors=priors).matrix, truth))
        cm = shrunk_collision_matrix(P, y, priors=priors)
        shrunk.append(mean_tvd(cm.matrix, truth))
        low, high = cm.interval()
        inside.append(((low <= truth) & (truth <= high)).mean())
    assert np.mean(shrunk) < 0.7 * np.mean(plain)
    assert np.mean(inside) > 0.93


def test_with_badly_calibrated_posteriors_it_is_nearly_the_one_step_estimate():
    problem = thirty_classes()
    truth = problem.collision_matrix().matrix
    X, y = problem.sample(20_000, 0)
    P = problem.posteriors(X) ** 0.4
    P /= P.sum(axis=1, keepdims=True)
    cm = shrunk_collision_matrix(P, y)
    assert cm.info["one_step_share"] > 0.9
    one_step, word = (mean_tvd(collision_matrix_from_posteriors(P, labels).matrix, truth) for labels in (y, None))
    assert word > 2 * one_step
    assert mean_tvd(cm.matrix, truth) < 1.05 * one_step


@pytest.mark.parametrize("k", [2, 5, 10])
def test_few_classes_cannot_vouch_for_the_model_and_keep_the_one_step_estimate(k):
    P, codes = random_posteriors(np.random.default_rng(k), 200 * k, k, sharpness=3.0)
    assert shrunk_collision_matrix(P, codes) == collision_matrix_from_posteriors(P, codes)


def test_the_variance_of_the_difference_is_that_over_repetitions():
    problem = scenario_a(3)
    rng = np.random.default_rng(1)
    differences, variances = [], []
    for _ in range(400):
        X, y = problem.sample(500, rng, stratified=False)
        word, labels, variance = word_and_labels(labelled_moments(problem.posteriors(X), y, None, 3))
        differences.append(labels - word)
        variances.append(variance)
    assert np.mean(variances, axis=0) == pytest.approx(np.var(differences, axis=0), rel=0.25)
    assert np.abs(np.mean(differences, axis=0)).max() < 5 * np.sqrt(np.mean(variances, axis=0).max() / 400)


def test_the_share_grows_with_the_bias_and_never_leaves_the_unit_interval():
    k = 40
    priors, V = np.full(k, 1 / k), np.full((k, k), 1e-8)
    pattern = np.eye(k) - 1 / k
    shares = [one_step_share(size * pattern, V, priors) for size in (0.0, 1e-4, 1e-3, 1e-2)]
    assert shares == sorted(shares)
    assert shares[0] == 0 < shares[-1] <= 1


def test_standard_errors_priors_and_names_are_those_of_the_one_step_estimate():
    P, codes = random_posteriors(np.random.default_rng(3), 2000, 30, sharpness=3.0)
    names = np.array([f"class {k:02}" for k in range(30)])[codes]
    shrunk, plain = (
        f(P, names, sample_weight=np.ones(2000)) for f in (shrunk_collision_matrix, collision_matrix_from_posteriors)
    )
    assert np.array_equal(shrunk.stderr, plain.stderr)
    assert np.array_equal(shrunk.priors, plain.priors)
    assert shrunk.classes.tolist() == plain.classes.tolist()
    assert shrunk.info["method"] == "one-step, shrunk"
    assert shrunk.balance_gap < 1e-12
