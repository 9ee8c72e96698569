"""Known densities: posteriors, S, BER and PBER by Monte Carlo agree with exact values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from collidescope import (
    BayesOptimalClassifier,
    ProbabilisticBayesClassifier,
    collision_matrix_from_densities,
    posteriors_from_densities,
)
from collidescope.datasets import scenario_a


def gaussians(problem):
    return [stats.multivariate_normal(mean) for mean in problem.means]


@pytest.mark.parametrize("k", [3, 4, 5])
def test_monte_carlo_agrees_with_quadrature_within_its_standard_error(k):
    problem = scenario_a(k)
    cm = collision_matrix_from_densities(gaussians(problem), n_samples=100_000, random_state=0)
    truth = problem.collision_matrix()
    z = (cm.matrix - truth.matrix) / cm.stderr
    assert np.abs(z).max() < 4
    assert abs(cm.pber - truth.pber) < 4 * cm.pber_stderr
    assert np.allclose(cm.priors, 1 / k, rtol=0, atol=1e-12)
    assert cm.balance_gap < 1e-12


def test_monte_carlo_standard_errors_are_honest():
    """Their size matches the spread over repetitions."""
    densities = [stats.norm(-1), stats.norm(1)]
    runs = [collision_matrix_from_densities(densities, [0.8, 0.2], n_samples=2000, random_state=s) for s in range(200)]
    spread = np.std([run.matrix for run in runs], axis=0)
    # known priors make the truth a little steadier than the ratio behind the standard error: never the reverse
    assert (np.mean([run.stderr for run in runs], axis=0) > 0.9 * spread).all()
    assert (np.mean([run.stderr for run in runs], axis=0) < 2.5 * spread).all()


def test_two_gaussians_have_the_textbook_bayes_error():
    optimal = BayesOptimalClassifier([stats.norm(-1), stats.norm(1)], classes=["low", "high"])
    estimate = optimal.error_rate(random_state=0)
    assert abs(estimate.value - stats.norm.cdf(-1)) < 4 * estimate.stderr
    assert optimal.predict([-3.0, 3.0]).tolist() == ["low", "high"]


def test_the_probabilistic_classifier_errs_at_the_pber_and_its_confusion_is_s():
    problem = scenario_a(3)
    pbc = ProbabilisticBayesClassifier(gaussians(problem))
    truth = problem.collision_matrix()
    estimate = pbc.error_rate(random_state=1)
    assert abs(estimate.value - truth.pber) < 4 * estimate.stderr
    X, y = problem.sample(60_000, 2)
    predicted = pbc.predict(X, random_state=3)
    confusion = np.stack([np.bincount(predicted[y == k], minlength=3) / (y == k).sum() for k in range(3)])
    assert np.abs(confusion - truth.matrix).max() < 4 * np.sqrt(0.25 / 20_000)


def test_posteriors_are_stable_far_in_the_tails():
    P = posteriors_from_densities([1000.0, -1000.0], [stats.norm(-1), stats.norm(1)])
    assert P.tolist() == [[0, 1], [1, 0]]


def test_priors_enter_the_posterior():
    P = posteriors_from_densities([0.0], [stats.norm(-1), stats.norm(1)], [0.9, 0.1])
    assert P[0].tolist() == pytest.approx([0.9, 0.1])


def test_discrete_distributions_work_through_their_pmf():
    cm = collision_matrix_from_densities([stats.bernoulli(0.5), stats.bernoulli(0.5)], n_samples=5000, random_state=0)
    assert np.allclose(cm.matrix, 0.5, atol=0.02)


def test_a_seed_gives_the_same_matrix_twice():
    runs = [
        collision_matrix_from_densities([stats.norm(0), stats.norm(1)], n_samples=500, random_state=7) for _ in range(2)
    ]
    assert runs[0] == runs[1]
