"""The collision divergence beside total variation, Hellinger and KL."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from sklearn.linear_model import LogisticRegression

from collidescope import collision_divergence, divergences, divergences_from_posteriors, estimate_divergences
from collidescope.datasets import GaussianProblem


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0, 2.0, 4.0])
def test_gaussians_at_plus_and_minus_mu_have_their_closed_forms(mu):
    """The paper's figure: N(μ, 1) against N(-μ, 1)."""
    result = divergences(stats.norm(mu), stats.norm(-mu))
    assert result.total_variation == pytest.approx(2 * stats.norm.cdf(mu) - 1, abs=1e-6)
    assert result.hellinger == pytest.approx(np.sqrt(1 - np.exp(-(mu**2) / 2)), abs=1e-9)
    assert result.kl == pytest.approx(2 * mu**2, rel=1e-9)
    assert result.collision == pytest.approx(
        1 - 2 * GaussianProblem([[mu], [-mu]]).collision_matrix().matrix[0, 1], abs=1e-9
    )
    assert result.total_variation**2 <= result.collision <= result.total_variation


def test_it_is_the_integral_of_the_papers_definition():
    f, g = stats.gamma(2), stats.gamma(5)
    overlap, _ = quad(lambda x: 2 * f.pdf(x) * g.pdf(x) / (f.pdf(x) + g.pdf(x)), 0, 60, limit=200)
    assert collision_divergence(f, g) == pytest.approx(1 - overlap, abs=1e-8)


def test_it_is_half_the_triangular_discrimination():
    f, g = stats.norm(0), stats.norm(0.7, 1.5)
    triangular, _ = quad(lambda x: (f.pdf(x) - g.pdf(x)) ** 2 / (f.pdf(x) + g.pdf(x)), -20, 20, limit=200)
    assert collision_divergence(f, g) == pytest.approx(triangular / 2, abs=1e-8)


def test_limits_are_zero_for_equal_and_one_for_disjoint_distributions():
    assert divergences(stats.norm(0), stats.norm(0)) == pytest.approx((0, 0, 0, 0), abs=1e-7)  # √ of a rounding error
    apart = divergences(stats.uniform(0, 1), stats.uniform(5, 1))
    assert apart.collision == pytest.approx(1)
    assert apart.total_variation == pytest.approx(1)
    assert apart.hellinger == pytest.approx(1)
    assert apart.kl == np.inf


def test_symmetric_measures_are_symmetric():
    forth, back = divergences(stats.norm(0), stats.norm(1, 2)), divergences(stats.norm(1, 2), stats.norm(0))
    assert forth[:3] == pytest.approx(back[:3])
    assert forth.kl != pytest.approx(back.kl)


def test_multivariate_densities_go_by_monte_carlo():
    f, g = stats.multivariate_normal([1, 0]), stats.multivariate_normal([-1, 0])
    exact, drawn = divergences(stats.norm(1), stats.norm(-1)), divergences(f, g, random_state=0)
    assert drawn == pytest.approx(exact, abs=0.02)


def test_samples_of_two_distributions_give_the_divergence_with_an_interval():
    rng = np.random.default_rng(0)
    exact = divergences(stats.norm(0.7), stats.norm(-0.7))
    result, cm = estimate_divergences(
        LogisticRegression(), rng.normal(0.7, 1, (6000, 1)), rng.normal(-0.7, 1, (1500, 1))
    )
    assert result == pytest.approx(exact, abs=0.06)
    low, high = cm.interval()
    assert 1 - 2 * high[0, 1] < exact.collision < 1 - 2 * low[0, 1]
    assert result.collision == pytest.approx(1 - 2 * cm.matrix[0, 1])


def test_posteriors_alone_suffice():
    assert divergences_from_posteriors([0.5, 0.5]) == pytest.approx((0, 0, 0, 0), abs=1e-12)
    certain = divergences_from_posteriors([0.0, 1.0])
    assert certain[:3] == pytest.approx((1, 1, 1))
    assert certain.kl == np.inf
