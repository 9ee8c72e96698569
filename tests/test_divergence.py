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


def test_posteriors_give_the_means_of_the_four_formulas_and_weights_count_as_copies():
    p, copies = np.array([0.1, 0.35, 0.5, 0.95]), np.array([1, 4, 2, 3])
    each = np.repeat(p, copies)
    expected = (
        np.mean((2 * each - 1) ** 2),
        np.mean(np.abs(2 * each - 1)),
        np.sqrt(1 - np.mean(2 * np.sqrt(each * (1 - each)))),
        np.mean(2 * each * np.log(each / (1 - each))),
    )
    assert divergences_from_posteriors(each) == pytest.approx(expected)
    assert divergences_from_posteriors(p, copies) == pytest.approx(expected)


def test_what_the_first_distribution_never_gives_adds_nothing_to_kl():
    result = divergences_from_posteriors([0.0, 0.5, 0.75])
    assert result.kl == pytest.approx(2 * 0.75 * np.log(3) / 3)
    assert divergences(stats.uniform(0, 1), stats.uniform(0, 2)).kl == pytest.approx(np.log(2), rel=1e-3)


def test_posteriors_a_hair_from_certain_do_not_overflow():
    with np.errstate(over="raise", invalid="raise"):
        apart = divergences(stats.norm(0), stats.norm(1000, 1))
    assert apart[:3] == pytest.approx((1, 1, 1))
    assert apart.kl == pytest.approx(1000**2 / 2, rel=1e-6)


def test_discrete_distributions_go_by_monte_carlo():
    a, b = 0.3, 0.6
    drawn = divergences(stats.bernoulli(a), stats.bernoulli(b), random_state=0)
    p = np.array([[a, b], [1 - a, 1 - b]])
    assert drawn.total_variation == pytest.approx(b - a, abs=0.005)
    assert drawn.collision == pytest.approx(1 - (2 * p[:, 0] * p[:, 1] / p.sum(axis=1)).sum(), abs=0.005)
    assert drawn.kl == pytest.approx(stats.entropy(p[:, 0], p[:, 1]), abs=0.01)
    assert divergences(stats.bernoulli(a), stats.bernoulli(b), n_samples=50, random_state=0) != drawn
    again = [
        collision_divergence(stats.bernoulli(a), stats.bernoulli(b), n_samples=50, random_state=1) for _ in range(2)
    ]
    assert again[0] == again[1]
    assert again[0] != collision_divergence(stats.bernoulli(a), stats.bernoulli(b), n_samples=60, random_state=1)


def test_quantiles_that_are_not_finite_are_refused():
    class Endless:
        def __init__(self, at):
            self.at, self.logpdf, self.rvs = at, stats.norm.logpdf, stats.norm.rvs

        def ppf(self, q):
            return self.at if q > 0.5 else stats.norm.ppf(q)

    for at in (np.inf, np.nan):
        with pytest.raises(ValueError, match="finite quantiles"):
            divergences(Endless(at), stats.norm(0))


def test_a_density_without_a_logarithm_is_integrated_too():
    class Plain:
        def __init__(self, distribution):
            self.pdf, self.ppf, self.rvs = distribution.pdf, distribution.ppf, distribution.rvs

    f, g = stats.norm(0), stats.norm(2, 3)
    assert divergences(Plain(f), Plain(g)) == pytest.approx(divergences(f, g), rel=1e-9)


def test_quadrature_reaches_ten_digits_where_widths_differ():
    f, g = stats.norm(0, 1), stats.norm(3, 5)
    overlap, _ = quad(lambda x: 2 * f.pdf(x) * g.pdf(x) / (f.pdf(x) + g.pdf(x)), -9, 9, epsabs=1e-13, limit=500)
    assert collision_divergence(f, g) == pytest.approx(1 - overlap, abs=1e-10)


def test_arguments_of_the_monte_carlo_are_looked_at_also_where_it_is_not_needed():
    f, g = stats.norm(0), stats.norm(1)
    with pytest.raises(ValueError, match="n_samples"):
        divergences(f, g, n_samples=1)
    with pytest.raises(ValueError, match="random_state"):
        divergences(f, g, random_state="today")
    assert divergences(f, g, n_samples=2) == divergences(f, g)


def test_posteriors_beyond_certainty_are_refused_and_certain_ones_raise_no_warning():
    for wrong in ([0.5, 1.5], [-0.1, 0.5]):
        with pytest.raises(ValueError, match="p must be between 0 and 1"):
            divergences_from_posteriors(wrong)
    with np.errstate(divide="raise"):
        assert divergences_from_posteriors([0.0, 1.0]).collision == 1


def test_the_interval_is_cut_into_four_hundred_panels():
    seen = []

    class Watched:
        ppf, rvs = stats.norm.ppf, stats.norm.rvs

        def logpdf(self, x):
            seen.append(x)
            return stats.norm.logpdf(x)

    divergences(Watched(), stats.norm(3))
    (x,) = seen
    edges = np.linspace(stats.norm.ppf(1e-14), 3 + stats.norm.ppf(1 - 1e-14), 401)
    inside = np.histogram(x, edges)[0]
    assert (inside == inside[0]).all()
    assert inside[0] >= 10
