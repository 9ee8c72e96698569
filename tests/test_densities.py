"""Known densities: posteriors, S, BER and PBER by Monte Carlo agree with exact values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from sklearn.linear_model import LogisticRegression

from collidescope import collision_divergence, collision_matrix_from_densities
from collidescope.datasets import GaussianProblem, scenario_a
from collidescope.equations.densities import (
    BayesOptimalClassifier,
    ProbabilisticBayesClassifier,
    _BayesClassifier,
    as_generator,
    divergences,
    divergences_from_posteriors,
    log_density,
    posteriors_from_densities,
    sample_mixture,
)
from collidescope.estimate import CollisionAccumulator
from collidescope.estimators import estimate_divergences


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


class Only:
    """A distribution with one of the four ways to tell its density."""

    def __init__(self, distribution, name):
        self.rvs = distribution.rvs
        setattr(self, name, getattr(distribution, name))


@pytest.mark.parametrize(("family", "names"), [(stats.norm, ["logpdf", "pdf"]), (stats.poisson, ["logpmf", "pmf"])])
def test_densities_may_be_given_as_they_are_or_as_logarithms(family, names):
    X = np.array([0, 1, 2, 5])
    pair = [family(1), family(3)]
    expected = pair[0].pdf(X) if names[0] == "logpdf" else pair[0].pmf(X)
    for name in names:
        assert np.allclose(log_density(Only(pair[0], name), X), np.log(expected))
        P = posteriors_from_densities(X, [Only(f, name) for f in pair], [0.3, 0.7])
        assert np.allclose(P, posteriors_from_densities(X, pair, [0.3, 0.7]))


def test_where_one_density_is_zero_the_other_class_is_certain():
    with np.errstate(divide="raise"):
        P = posteriors_from_densities([0.5, 1.5], [Only(stats.uniform(0, 1), "pdf"), Only(stats.uniform(0, 2), "pdf")])
    assert np.allclose(P, [[2 / 3, 1 / 3], [0, 1]])


def test_a_seed_may_be_a_number_a_generator_or_a_legacy_state():
    assert as_generator(3).random() == np.random.default_rng(3).random()
    generator = np.random.default_rng(3)
    assert as_generator(generator) is generator
    first, again = (as_generator(np.random.RandomState(3)).random() for _ in range(2))
    assert first == again != as_generator(np.random.RandomState(4)).random()
    expected = np.random.default_rng(np.random.RandomState(3).randint(2**31)).random()
    assert first == expected


@pytest.mark.parametrize("seed", range(6))
def test_draws_of_a_mixture_come_with_the_class_that_they_were_drawn_from(seed):
    # So few draws that classes with one draw and with none occur.
    places = [stats.multivariate_normal([10 * k, -10 * k], 1e-6) for k in range(3)]
    X, codes = sample_mixture(places, [0.2, 0.3, 0.5], 3, seed)
    assert X.shape == (3, 2)
    assert np.rint(X[:, 0] / 10).tolist() == codes.tolist()
    assert np.rint(X[:, 1] / -10).tolist() == codes.tolist()
    many = sample_mixture(places, [0.2, 0.3, 0.5], 4000, seed)[1]
    assert np.bincount(many) / 4000 == pytest.approx([0.2, 0.3, 0.5], abs=0.04)


@pytest.mark.parametrize("kind", [BayesOptimalClassifier, ProbabilisticBayesClassifier])
def test_the_error_rate_is_a_mean_over_the_mixture_with_its_standard_error(kind):
    classifier = kind([stats.norm(-1), stats.norm(1)], [0.7, 0.3])
    X, _ = sample_mixture(classifier.densities, [0.7, 0.3], 5, 0)
    P = classifier.predict_proba(X)
    losses = 1 - (P.max(axis=1) if kind is BayesOptimalClassifier else (P**2).sum(axis=1))
    estimate = classifier.error_rate(5, 0)
    assert estimate.value == pytest.approx(losses.mean())
    assert estimate.stderr == pytest.approx(np.sqrt(((losses - losses.mean()) ** 2).sum() / 4 / 5))
    assert len({classifier.error_rate(n, 0) for n in (100, 101)}) == 2
    with pytest.raises(ValueError, match="use BayesOptimalClassifier"):
        _BayesClassifier([stats.norm(-1), stats.norm(1)]).error_rate(5)


def test_the_matrix_of_densities_is_that_of_the_posteriors_of_its_draws_at_the_given_priors():
    densities, priors = [stats.norm(-1), stats.norm(1), stats.norm(4)], np.array([0.5, 0.3, 0.2])
    cm = collision_matrix_from_densities(densities, priors, classes=["a", "b", "c"], n_samples=50, random_state=1)
    X, _ = sample_mixture(densities, priors, 50, 1)
    drawn = CollisionAccumulator(["a", "b", "c"]).update(posteriors_from_densities(X, densities, priors)).result()
    assert cm.priors.tolist() == priors.tolist()
    assert np.allclose(cm.joint.sum(axis=0), priors)
    d = np.sqrt(np.diag(cm.joint) / np.diag(drawn.joint))  # D B D, from both sides
    assert np.allclose(cm.joint, drawn.joint * np.outer(d, d))
    assert np.array_equal(cm.stderr, drawn.stderr)
    assert cm.pber_stderr == drawn.pber_stderr
    assert np.array_equal(cm.covariance, drawn.covariance)
    assert cm.classes.tolist() == ["a", "b", "c"]
    assert cm.info["n_samples"] == 50
    assert collision_matrix_from_densities(densities, n_samples=50).classes.tolist() == [0, 1, 2]
    assert BayesOptimalClassifier(densities).classes_.tolist() == [0, 1, 2]
    assert BayesOptimalClassifier(densities).priors.tolist() == [1 / 3] * 3


# ------------------------------------------------------------------------------------------------ divergences


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


def test_limits_are_zero_for_equal_and_one_for_disjoint_distributions():
    assert divergences(stats.norm(0), stats.norm(0)) == pytest.approx((0, 0, 0, 0), abs=1e-7)  # √ of a rounding error
    apart = divergences(stats.uniform(0, 1), stats.uniform(5, 1))
    assert apart.collision == pytest.approx(1)
    assert apart.total_variation == pytest.approx(1)
    assert apart.hellinger == pytest.approx(1)
    assert apart.kl == np.inf


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


def test_quadrature_reaches_ten_digits_where_widths_differ():
    f, g = stats.norm(0, 1), stats.norm(3, 5)
    overlap, _ = quad(lambda x: 2 * f.pdf(x) * g.pdf(x) / (f.pdf(x) + g.pdf(x)), -9, 9, epsabs=1e-13, limit=500)
    assert collision_divergence(f, g) == pytest.approx(1 - overlap, abs=1e-10)


def test_posteriors_beyond_certainty_are_refused_and_certain_ones_raise_no_warning():
    for wrong in ([0.5, 1.5], [-0.1, 0.5]):
        with pytest.raises(ValueError, match="p must be between 0 and 1"):
            divergences_from_posteriors(wrong)
    with np.errstate(divide="raise"):
        assert divergences_from_posteriors([0.0, 1.0]).collision == 1
