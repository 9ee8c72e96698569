"""The range with unlimited rows: planted curves, slow references, identities."""

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from collidescope import CollisionClassifier
from collidescope import limit as module
from collidescope.datasets import ring, scenario_a
from collidescope.equations.bounds import bayes_error_bounds
from collidescope.equations.recalibration import raised
from collidescope.intervals import widening
from collidescope.limit import Limit, limit_from_posteriors, limit_from_scores
from collidescope.onestep import collision_matrix_from_posteriors
from helpers import mean_tvd

SIZES = np.array([100.0, 200.0, 400.0, 800.0])


def paired(level: float, difference: float) -> np.ndarray:
    """Covariance of four means of the same rows: one large shared error, small ones of their own."""
    return level**2 * np.ones((4, 4)) + difference**2 * np.eye(4)


def planted(
    b: float,
    e: float,
    c: float,
    rng=None,
    level: float = 0.01,
    difference: float = 0.002,
    **values,
) -> Limit:
    """A curve b + e (m / n)^-c, with noise when a generator is given."""
    scores = b + e * (SIZES / SIZES[-1]) ** -c
    V = paired(level, difference)
    if rng is not None:
        scores = np.maximum(scores + rng.multivariate_normal(np.zeros(4), V), 0.0)
    given = {"baseline": 0.9, "skill_stderr": 0.01} | values
    return Limit(SIZES, scores, V, float(np.hypot(level, difference)), 1000.0, **given)


def learned(problem, n: int, sizes, seed: int, a: float = 6.0, c: float = 0.5):
    """(posteriors at every size, codes): the truth mixed with another row's, ε² = a m^-c."""
    rng = np.random.default_rng(seed)
    X, y = problem.sample(n, rng, stratified=False)
    P = problem.posteriors(X)
    other = P[rng.permutation(n)]
    shares = np.sqrt(a * np.asarray(sizes, dtype=float) ** -c)
    return [(1 - share) * P + share * other for share in shares], y


def test_ranges_of_planted_power_laws_cover_as_promised():
    rng, held = np.random.default_rng(0), []
    for _ in range(250):
        b, e, c = (
            rng.uniform(0.05, 0.4),
            rng.uniform(0, 0.2),
            float(np.exp(rng.normal(np.log(0.5), 0.5))),
        )
        low, high = planted(b, e, c, rng).pber_interval()
        held.append(low <= b <= high)
    assert np.mean(held) >= 0.94


def test_a_curve_that_may_end_at_nothing_has_a_range_from_nothing(rng):
    """Labels that follow a rule, learned at the slow pace of real tables."""
    lows = [planted(0.0, 0.1, 0.3, rng).pber_interval()[0] for _ in range(40)]
    assert np.mean(np.array(lows) == 0) >= 0.95


def test_the_mixture_is_that_of_a_loop_over_the_grid():
    curve = planted(0.2, 0.1, 0.5, np.random.default_rng(1))
    limit = replace(curve, members=2, parametric=1)
    prior = module.PRIOR
    shape_error = prior.discrepancy * (limit.scores - limit.scores[-1])
    noise = limit.covariance + np.diag(shape_error**2 + 0.0005**2)
    root = np.linalg.inv(np.linalg.cholesky(noise))
    shares = np.concatenate([[0.0], np.geomspace(1e-3, 1.0, 90)])
    exponents = np.linspace(0.05, 2.0, 40)
    edges = np.concatenate([[0], (shares[1:] + shares[:-1]) / 2, [1]])
    mass = (1 - prior.rule - prior.done) * np.diff(edges)
    mass[0] += prior.done
    mass[-1] += prior.rule
    deviation = prior.log_deviation / np.sqrt(1 - limit.scores[-1] / 0.9)
    of_exponents = stats.lognorm(deviation, scale=prior.exponent / 2)
    found = []
    for c in exponents:
        for f, weight in zip(shares, mass * of_exponents.pdf(c), strict=True):
            h = root @ (1 - f + f * (SIZES / 800) ** -c)
            (level,), misfit, _, _ = np.linalg.lstsq(h[:, None], root @ limit.scores)
            likely = weight * np.exp(-misfit[0] / 2) / np.sqrt(h @ h)
            found.append((likely, level * (1 - f), (1 - f) / np.sqrt(h @ h)))
    weights, centres, spreads = np.array(found).T
    for q in (0.025, 0.25, 0.5, 0.975):
        end = limit._pber_curve.at().quantile(q)
        below = stats.norm.cdf((end - centres) / np.maximum(spreads, 1e-12))
        assert weights @ below / weights.sum() == pytest.approx(q, abs=0.005)


@pytest.mark.parametrize("seed", range(10))
def test_intervals_are_nested_beyond_the_plain_one(
    seed,
):
    rng = np.random.default_rng(seed)
    limit = planted(
        rng.uniform(0, 0.5), rng.uniform(0, 0.3), rng.uniform(0.1, 1.5), rng
    )
    (low, high), (lower, higher) = limit.pber_interval(0.8), limit.pber_interval(0.99)
    assert 0 <= lower <= low <= limit.pber <= high <= higher <= 1
    assert high >= min(limit.scores[-1] + 1.28 * limit.stderr, 1)


def test_flat_curves_of_many_rows_are_settled():
    flat = planted(0.3, 0.0, 0.5, difference=2e-4)
    flat = replace(flat, n_rows=5000.0, stderr=0.01)
    low, high = flat.pber_interval()
    assert flat.state == "settled"
    assert high - low <= 1.5 * 2 * 1.97 * 0.01
    assert flat.pber == pytest.approx(0.3, abs=0.003)


def test_models_without_skill_have_hardly_begun():
    blind = planted(0.5, 0.001, 0.5, baseline=0.502, skill_stderr=0.002)
    assert blind.state == "hardly begun"
    assert "class shares" in blind.reason
    assert blind.pber_interval()[0] == blind.bayes_error_interval()[0] == 0


def test_skill_is_not_judged_where_there_is_nothing_to_compare_with():
    limit = planted(0.3, 0.05, 0.5)
    assert replace(limit, skill_stderr=None).state == limit.state == "still learning"


def test_a_range_ends_at_one():
    assert planted(0.97, 0.02, 0.5, level=0.1).pber_interval()[1] == 1


def test_curves_that_fall_faster_and_faster_have_hardly_begun():
    scores = np.array([0.60, 0.59, 0.56, 0.48])
    limit = Limit(SIZES, scores, paired(0.01, 0.004), 0.01, 1000.0)
    assert limit.state == "hardly begun"
    assert limit.pber_interval()[0] == 0
    # within noise it is no acceleration
    noisy = replace(limit, covariance=paired(0.01, 0.05))
    assert noisy.state == "still learning"
    assert noisy.undecided
    # per doubling: the same scores at sizes that grow as fast as the drops
    assert replace(limit, sizes=[100, 200, 1600, 409600]).state != "hardly begun"


def test_the_continuation_runs_from_the_curve_to_the_range():
    limit = planted(0.2, 0.1, 0.5)
    low, middle, high = limit.continuation([800, 1600, 1e4, 1e12])
    assert middle[0] == pytest.approx(0.3, abs=0.005)
    assert middle[1] == pytest.approx(
        0.2 + 0.1 / np.sqrt(2), abs=0.005
    )  # twice the rows
    assert (np.diff(middle) <= 0).all()
    assert ((low <= middle) & (middle <= high)).all()
    for level in (0.2, 0.8):
        low, middle, high = (end[0] for end in limit.continuation([1e15], level))
        assert (low, high) == pytest.approx(limit.pber_interval(level), abs=0.002)
        assert middle == pytest.approx(limit.pber, abs=0.002)


def test_the_continuation_of_a_curve_that_has_hardly_begun_may_reach_zero():
    limit = replace(planted(0.2, 0.1, 0.5), baseline=0.3, skill_stderr=0.01)
    assert limit.continuation([1600, 1e15])[0].tolist() == [0, 0]


def test_covariance_of_the_means_is_that_of_a_loop_over_rows(rng):
    scores, w = rng.exponential(0.3, (50, 4)), rng.uniform(0.5, 2, 50)
    limit = limit_from_scores(scores, SIZES, sample_weight=w)
    mean = np.average(scores, axis=0, weights=w)
    squares = sum(
        (v**2) * np.outer(s - mean, s - mean) for s, v in zip(scores, w, strict=True)
    )
    V = 50 / 49 * squares / w.sum() ** 2
    assert_allclose(limit.scores, mean)
    assert_allclose(limit.covariance, V, atol=1e-15)
    assert limit.stderr == pytest.approx(np.sqrt(V[-1, -1]))
    assert limit.n_rows == pytest.approx(w.sum() ** 2 / (w**2).sum())
    assert_allclose(limit.curve["pber_stderr"], np.sqrt(np.diag(V)))


def test_rows_of_weight_zero_are_as_good_as_left_out(rng):
    scores = rng.exponential(0.3, (60, 4))
    w = np.repeat([1.0, 0.0], [40, 20])
    errors, folds = (scores > 0.3).astype(float), np.arange(60) % 4
    whole = limit_from_scores(
        scores, SIZES, baseline=0.5, sample_weight=w, errors=errors, folds=folds
    )
    plain = limit_from_scores(
        scores[:40], SIZES, baseline=0.5, errors=errors[:40], folds=folds[:40]
    )
    left = plain.to_dict()
    for name, value in whole.to_dict().items():
        if isinstance(value, float | list):
            # not to the last bit: processors add up more rows in another order
            assert_allclose(value, left[name], rtol=1e-10, atol=1e-16, err_msg=name)
        else:
            assert value == left[name]


def test_errors_shared_by_a_fold_widen_the_errors_of_differences(rng):
    """Over repeated samples the variance of the differences is that which the folds of one sample tell, on average."""
    of_fold, drops, told, without = np.repeat(np.arange(5), 80), [], [], []
    for _ in range(300):
        row = rng.exponential(0.3, (400, 1))
        noise = 0.02 * rng.standard_normal((5, 4))[of_fold]
        scores = np.maximum(row + 0.3 + noise + 0.1 * rng.standard_normal((400, 4)), 0)
        drops.append(scores.mean(axis=0) @ [1, 0, 0, -1])
        for found, folds in ((told, of_fold), (without, None)):
            limit = limit_from_scores(scores, SIZES, folds=folds)
            found.append(limit._contrast([1, 0, 0, -1])[1] ** 2)
    assert np.mean(told) == pytest.approx(np.var(drops), rel=0.25)
    assert np.mean(without) < 0.5 * np.var(drops)


def test_folds_that_share_no_errors_change_no_standard_error():
    scores, sizes = np.random.default_rng(0).exponential(0.3, (40, 4)), [1, 2, 4, 8]
    folds = np.repeat(np.arange(5), 40)  # each has the same rows
    alike, plain = (
        limit_from_scores(np.tile(scores, (5, 1)), sizes, folds=f)
        for f in (folds, None)
    )
    assert_allclose(alike.covariance, plain.covariance, atol=1e-15)


def test_posteriors_give_the_scores_of_the_curve():
    posteriors, y = learned(scenario_a(3), 500, SIZES, 0)
    limit = limit_from_posteriors(posteriors, y, SIZES)
    for P, score, error in zip(posteriors, limit.scores, limit.errors, strict=True):
        assert score == pytest.approx(((np.eye(3)[y] - P) ** 2).sum(axis=1).mean())
        assert error == pytest.approx(np.mean(P.argmax(axis=1) != y))
    assert limit.baseline == pytest.approx(1 - ((np.bincount(y) / 500) ** 2).sum())
    assert limit.curve["pber"].tolist() == limit.scores.tolist()
    assert limit.curve["error"].tolist() == limit.errors.tolist()


@pytest.mark.parametrize("problem", [scenario_a(5), ring()], ids=["A", "ring"])
def test_the_limit_of_s_is_nearer_to_the_truth_than_s_at_n(problem):
    sizes = np.array([500, 1000, 2000, 4000])
    truth = problem.collision_matrix().matrix
    found = []
    for seed in range(4):
        posteriors, y = learned(problem, 5000, sizes, seed)
        limit = limit_from_posteriors(posteriors, y, sizes, folds=np.arange(5000) % 5)
        now = collision_matrix_from_posteriors(posteriors[-1], y)
        low, high = limit.matrix.interval()
        covered = ((low <= truth) & (truth <= high)).mean()
        both = (mean_tvd(each.matrix, truth) for each in (now, limit.matrix))
        found.append((*both, covered))
        assert limit.pber == limit.matrix.pber
    now_off, limit_off, covered = np.mean(found, axis=0)
    assert limit_off < 0.6 * now_off
    assert covered > 0.9


@pytest.mark.parametrize("seed", range(5))
def test_where_nothing_is_learned_the_limit_is_the_one_step_estimate(seed):
    names = np.array(list("abcd"))
    X, y = scenario_a(4).sample(20_000, 0, stratified=False)
    P = scenario_a(4).posteriors(X)
    now = collision_matrix_from_posteriors(P, names[y])
    # differences by rounding alone must not be taken for a shape
    noise = 1 + 1e-15 * np.random.default_rng(seed).standard_normal((4, *P.shape))
    limit = limit_from_posteriors(list(P * noise), y, SIZES, classes=names)
    assert limit.state == "settled"
    assert_allclose(limit.matrix.matrix, now.matrix, atol=1e-3)
    assert_allclose(limit.matrix.stderr, now.stderr, rtol=0.03)
    assert_allclose(limit.matrix.counts, now.counts)
    assert limit.matrix.classes.tolist() == names.tolist()


def test_other_priors_give_the_matrix_of_that_population():
    problem = ring()
    posteriors, y = learned(problem, 6000, SIZES, 0, a=0.5)
    uniform = type(problem)(problem.means, problem.scales).collision_matrix().matrix
    even, own, same = (
        limit_from_posteriors(posteriors, y, SIZES, priors=priors)
        for priors in (np.full(6, 1 / 6), None, np.bincount(y) / 6000)
    )
    assert mean_tvd(even.matrix.matrix, uniform) < 0.04
    assert mean_tvd(own.matrix.matrix, uniform) > 0.06
    assert_allclose(same.scores, own.scores)


def test_s_at_the_limit_is_that_of_the_sums_over_rows():
    posteriors, y = learned(scenario_a(3), 150, SIZES, 1)
    weights = np.random.default_rng(2).uniform(0.5, 2, 150)
    limit = limit_from_posteriors(posteriors, y, SIZES, sample_weight=weights)
    w, c = weights / weights.sum(), np.eye(3)[y]
    priors = w @ c
    scale = np.outer(priors, priors)

    def total(values):
        """Sum over rows with their weights."""
        return np.einsum("i,i...->...", w, values)

    # generalised least squares: what of the scores is the excess at n
    # Student's t for unequal weights
    few = widening(limit.n_units) / widening(limit.n_rows)
    shape_error = module.PRIOR.discrepancy * (limit.scores - limit.scores[-1])
    noise = few * limit.covariance
    noise += np.diag(shape_error**2 + (0.5 / limit.n_units) ** 2)
    white = np.linalg.inv(np.linalg.cholesky(noise))
    falling = (SIZES / SIZES[-1]) ** -limit._pber_curve.exponent
    h = white @ np.column_stack([np.ones(4), falling])
    contrast = np.linalg.lstsq(h, white)[0][1]
    now, excess = limit.scores[-1], limit.matrix.diagnostics.excess
    off = c - np.array(posteriors)
    errors = off[..., :, None] * off[..., None, :]
    drops = np.tensordot(contrast, errors, 1)
    learned_shape, alike = total(drops), total(errors[-1]) / now
    spread = total(w[:, None, None] * drops**2) - w @ w * learned_shape**2
    seen = contrast @ limit.scores
    signal = ((learned_shape - seen * alike) ** 2 / scale).sum()
    share = 1 - (spread / scale).sum() / signal
    assert 0 < share < 1
    assert limit.matrix.diagnostics.shape_learned == pytest.approx(share)
    shape = share * learned_shape / seen + (1 - share) * alike
    joint = np.diag(priors) - now * alike + excess * shape
    S = module.project(joint, priors).joint / priors[:, None]
    assert_allclose(limit.matrix.matrix, S, atol=1e-9)
    # what every row does to S, and what the range of the PBER says of the excess
    part = errors[-1] * (1 - excess * (1 - share) / now) - excess * share / seen * drops
    moved = part + (S - np.eye(3)) * c[:, :, None]
    low = limit._pber_curve.at().quantile(0.025)
    reach = (now - excess - low) / stats.norm.ppf(0.975)
    doubt = np.sqrt(reach**2 - limit.stderr**2)
    variance = total(w[:, None, None] * moved**2) + (doubt * shape) ** 2
    assert_allclose(limit.matrix.stderr, np.sqrt(variance) / priors[:, None], rtol=1e-6)
    assert limit.matrix.pber_stderr == pytest.approx(np.hypot(limit.stderr, doubt))
    counts = np.bincount(y, w) ** 2 / np.bincount(y, w**2)
    assert_allclose(limit.matrix.counts, counts)


@pytest.fixture
def uncertain():
    """A curve of which hardly anything is known, with errors of 70% of its scores."""
    rng = np.random.default_rng(3)
    scores = planted(0.2, 0.1, 0.5, rng, level=0.0, difference=0.02)
    errors = {
        "errors": 0.7 * scores.scores,
        "error_covariance": 0.49 * scores.covariance,
    }
    return replace(scores, **errors, stderr=0.1)


@pytest.mark.parametrize("of", ["pber", "bayes_error"])
def test_the_most_likely_values_have_the_least_expected_loss_where_too_much_excess_counts_twice(
    uncertain, of
):
    if of == "pber":
        now, fit = uncertain.scores[-1], uncertain._pber_curve
        stderr = uncertain._half_width(0.95) / 2
    else:
        now, fit = uncertain.errors[-1], uncertain._error_curve
        stderr = np.sqrt(uncertain.error_covariance[-1, -1])
    scale = np.maximum(fit.excess, 0) + np.hypot(stderr, 0.5 / uncertain.n_rows)
    gaps = fit.excess[:, None] - fit.excess  # guessed less true
    losses = np.where(gaps > 0, 2 * gaps, -gaps) @ (fit.weights / scale)
    expected = now - fit.excess[losses.argmin()]
    assert getattr(uncertain, of) == pytest.approx(expected, abs=1e-4)


def test_the_most_likely_bayes_error_is_no_higher_than_the_most_likely_pber(uncertain):
    scores = {"errors": uncertain.scores, "error_covariance": uncertain.covariance}
    limit = replace(uncertain, **scores)
    low, high = limit.bayes_error_interval()
    assert low <= limit.bayes_error <= min(high, limit.pber)


def test_what_sampling_error_explains_does_not_shape_s(rng):
    posteriors = [rng.dirichlet(np.ones(3), 60) for _ in SIZES]
    limit = limit_from_posteriors(posteriors, np.arange(60) % 3, SIZES)
    assert limit.matrix.diagnostics.shape_learned == 0


def test_errors_shared_by_folds_widen_the_upper_end():
    flat = planted(0.3, 0.0, 0.5, level=0.05, difference=5e-4)
    high = replace(flat, stderr=0.001).pber_interval()[1]
    assert high == pytest.approx(0.3 + 1.96 * 0.05, abs=0.01)


def test_skill_is_that_of_all_rows():
    # half of the rows taught nothing
    assert planted(0.2, 0.1, 0.5, baseline=0.342).state == "still learning"


def test_the_reason_names_the_last_step():
    assert (
        planted(0.2, 0.1, 0.5).reason
        == "from 400 to 800 training rows the PBER fell by 0.041"
    )
    assert "less than its error" in planted(0.2, 0.1, 0.5, difference=0.03).reason


@pytest.fixture(scope="module")
def of_five():
    """(the limit of five classes, posteriors at every size, codes)."""
    posteriors, y = learned(scenario_a(5), 3000, SIZES, 0)
    folds = np.arange(3000) % 5
    return limit_from_posteriors(posteriors, y, SIZES, folds=folds), posteriors, y


def without_errors(limit, **more):
    return replace(limit, errors=None, error_covariance=None, **more)


def test_the_range_of_the_bayes_error_holds_it(of_five):
    limit = of_five[0]
    low, high = limit.bayes_error_interval()
    assert low <= scenario_a(5).bayes_error() <= high < limit.pber_interval()[1]
    wrong = round(limit.errors[-1] * 3000)
    exact = stats.beta.ppf(0.975, wrong + 1, 3000 - wrong)
    assert high == pytest.approx(exact, rel=1e-3)  # Clopper and Pearson


def test_without_errors_the_range_of_the_bayes_error_is_that_of_cover_and_hart(of_five):
    limit, posteriors, y = of_five
    # at their weakest for classes without number
    alone = without_errors(limit, matrix=None)
    low, high = alone.pber_interval()
    found = alone.bayes_error_interval()
    assert found == pytest.approx((1 - np.sqrt(1 - low), high), abs=1e-6)
    two = [P @ np.eye(2)[[0, 0, 1, 1, 1]] for P in posteriors]
    pair = without_errors(limit_from_posteriors(two, (y > 1).astype(int), SIZES))
    least = bayes_error_bounds(pair.pber_interval()[0], 2)[0]
    assert pair.bayes_error_interval()[0] == least > 0


@pytest.mark.parametrize("flat", [False, True])
def test_each_of_the_two_limits_from_below_has_half_of_the_tail(of_five, flat):
    limit = of_five[0]
    # so that either is the larger
    limit = replace(limit, errors=np.full(4, limit.errors[-1])) if flat else limit
    as_skilled = {
        "baseline": limit.baseline * limit.errors[-1] / limit.scores[-1],
        "skill_stderr": limit.skill_stderr,
    }
    errors = Limit(
        SIZES, limit.errors, limit.error_covariance, 0.01, limit.n_rows, **as_skilled
    )
    of_errors = errors._pber_curve.at().quantile(0.0125)
    of_pber = without_errors(limit).bayes_error_interval(0.975)[0]
    assert (of_pber < of_errors) == flat
    low = limit.bayes_error_interval(0.95)[0]
    assert low == pytest.approx(max(of_pber, of_errors), abs=1e-9)


def test_labels_without_signal_are_not_said_to_be_guessable(rng):
    K, n = 10, 500
    highs = []
    for _ in range(100):
        y = rng.permutation(np.append(rng.integers(K, size=n - K), np.arange(K)))
        P = np.tile(np.bincount(y) / n, (n, 1))
        limit = limit_from_posteriors([P] * 3, y, [100, 200, 400])
        now = collision_matrix_from_posteriors(P, y).bayes_error_limit()
        highs.append([now, limit.bayes_error_interval()[1]])
    assert (np.mean(np.array(highs) >= 1 - 1 / K, axis=0) >= 0.95).all()


def with_errors_of(curve):
    """A limit whose errors are the scores of another curve."""
    errors = {"errors": curve.scores, "error_covariance": curve.covariance}
    return planted(0.5, 0.1, 0.5, **errors)


def test_the_most_likely_bayes_error_is_nearer_to_the_truth_than_the_held_out_error_on_average(
    rng,
):
    distances = []
    for _ in range(100):
        b, e = rng.uniform(0.05, 0.4), rng.uniform(0.02, 0.2)
        limit = with_errors_of(planted(b, e, 0.5, rng))
        distances.append([abs(limit.bayes_error - b), abs(limit.errors[-1] - b)])
        assert 0 <= limit.bayes_error <= limit.errors[-1]
    likely, held_out = np.mean(distances, axis=0)
    assert likely < 0.6 * held_out


def test_a_curve_is_continued_alike_whether_it_is_one_of_scores_or_of_errors():
    one = planted(0.2, 0.1, 0.5)
    assert one.bayes_error is None
    assert with_errors_of(one).bayes_error == pytest.approx(one.pber)


def test_words_say_what_more_rows_would_leave():
    limit = planted(0.2, 0.05, 0.5)
    low, high = limit.pber_interval()
    for said in (
        "PBER 25.0% ± ",
        "800 rows: still learning",
        f"Unlimited rows of this kind would leave {100 * low:.1f}% to {100 * high:.1f}%",
    ):
        assert said in str(limit)


def test_a_limit_survives_its_dictionary_bit_for_bit():
    posteriors, y = learned(scenario_a(3), 300, SIZES, 0)
    limit = limit_from_posteriors(posteriors, y, SIZES)
    data = limit.to_dict()
    again = Limit.from_dict(json.loads(json.dumps(data)))
    assert again == limit
    assert again.pber_interval() == limit.pber_interval()
    assert Limit.from_dict(data | {"scores": np.array(data["scores"])}) == limit
    assert limit != replace(limit, stderr=0.5)
    with pytest.raises(ValueError, match="read-only"):
        limit.scores[0] = 1


ONE = planted(0.2, 0.1, 0.5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "other"}, "not a limit"),
        ({"version": 99}, "version 99"),
        ({"scores": [0.1, 0.2, float("nan"), 0.1]}, "scores must be finite"),
        ({"matrix": {"format": "other"}}, "not a collision matrix"),
        ({"covariance": None}, "covariance"),
    ],
)
def test_damaged_dictionaries_are_refused(change, words):
    data = ONE.to_dict() | change
    lacks = [name for name, value in change.items() if value is None]
    with pytest.raises(ValueError, match=words):
        Limit.from_dict({name: data[name] for name in data if name not in lacks})


INCREASING = "sizes must be 2 to 100 increasing numbers of training rows"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sizes": [400, 200, 100, 800]}, INCREASING),
        ({"sizes": [0, 1, 2, 3]}, INCREASING),
        ({"sizes": [SIZES]}, "sizes must be .-dimensional"),
        ({"scores": [0.1, 0.2]}, "scores must have one entry per size"),
        ({"scores": [SIZES]}, "scores must be .-dimensional"),
        ({"covariance": -np.eye(4)}, "positive semi-definite"),
        ({"covariance": np.diag([1.0, 1.0, 1.0, -0.1])}, "positive semi-definite"),
        ({"covariance": [np.eye(4)]}, "covariance must be .-dimensional"),
        ({"errors": [0.1] * 4}, "errors and error_covariance"),
        ({"stderr": -1.0}, "stderr"),
        ({"n_rows": "many"}, "n_rows"),
        ({"members": 0.5}, "members"),
        ({"parametric": 1.5}, r"parametric must be a share.* got 1\.5"),
        ({"matrix": "S"}, "matrix must be a CollisionMatrix, got str"),
    ],
)
def test_values_that_cannot_be_are_named(change, words):
    with pytest.raises(ValueError, match=words):
        replace(ONE, **change)


SCORES = np.random.default_rng(0).exponential(0.3, (20, 4))
EVEN = [np.full((20, 2), 0.5)] * 4


def from_scores(scores=SCORES, sizes=SIZES, **options):
    return lambda: limit_from_scores(scores, sizes, **options)


def from_posteriors(posteriors=EVEN, codes=(0, 1) * 10, **options):
    return lambda: limit_from_posteriors(posteriors, codes, SIZES, **options)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (from_scores(sizes=[100]), "sizes"),
        (from_scores(sizes=[100, 100, 200, 400]), INCREASING),
        (from_scores(sizes=SIZES[:3]), "scores must have one column per size \\(3\\)"),
        (from_scores(-SCORES), "scores must not be negative"),
        (from_scores(SCORES[0]), "scores must be 2-dimensional"),
        (from_scores(errors=SCORES[:5]), "scores and errors"),
        (from_scores(baseline=[0.5, 0.5]), "baseline"),
        (from_scores(baseline=SCORES), "baseline must be 0-dimensional or 1-dimension"),
        (from_scores(folds=[0, 1]), "scores and folds"),
        (from_scores(sample_weight=[1]), "sample_weight"),
        (from_posteriors(EVEN[:2]), "posteriors must hold one array per size"),
        (from_posteriors(codes=[0, 2] * 10), "codes has the label"),
        (from_posteriors(codes=[0] * 20), "have no rows"),
        (from_posteriors(codes=[0, 1]), "posteriors and codes"),
        (from_posteriors(priors=[1.0]), "priors"),
        (lambda: ONE.pber_interval(2), "level"),
        (lambda: ONE.continuation([800], 1.5), "level"),
        (lambda: ONE.continuation([[1000]]), "sizes must be 1-dimensional"),
        (lambda: ONE.continuation([1000, 0]), "1 or more, got 0"),
    ],
)
def test_bad_arguments_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_models_that_are_always_right_leave_nothing():
    codes = np.arange(300) % 3
    limit = limit_from_posteriors([np.eye(3)[codes]] * 4, codes, SIZES)
    low, high = limit.pber_interval()
    assert (limit.state, low) == ("settled", 0)
    assert 3 / 300 < high < 8 / 300  # Brier scores of an error reach 2: about 2 · 3.7/n
    assert limit.pber < 1e-6
    assert_allclose(limit.matrix.matrix, np.eye(3), atol=1e-9)


@pytest.mark.parametrize("sizes", [[400, 800], [25, 50, 100, 200, 400, 800]])
def test_any_number_of_sizes_gives_a_range(sizes):
    posteriors, y = learned(scenario_a(3), 2000, sizes, 0, a=1.0)
    low, high = limit_from_posteriors(posteriors, y, sizes).pber_interval()
    assert low < scenario_a(3).collision_matrix().pber < high


def clustered(rng, n_groups=40, size=50):
    """True posteriors of groups whose rows are equally hard, and more noise at smaller sizes."""
    hard = np.repeat(rng.random(n_groups) / 2, size)
    y = (rng.random(len(hard)) < hard).astype(int)
    curves = []
    for excess in (0.02, 0.01, 0.005, 0.0025):
        p = np.clip(hard + np.sqrt(excess) * rng.choice([-0.5, 0.5], len(hard)), 0, 1)
        curves.append(np.column_stack([1 - p, p]))
    return curves, y, np.repeat(np.arange(n_groups), size)


def test_the_range_counts_groups_not_rows(rng):
    held = []
    for _ in range(100):
        curves, y, groups = clustered(rng)
        ranges = [
            limit_from_posteriors(curves, y, SIZES, groups=own).pber_interval()
            for own in (groups, None)
        ]
        held.append([low <= 1 / 3 <= high for low, high in ranges])
    grouped, rows = np.mean(held, axis=0)
    assert grouped >= 0.93
    assert rows < 0.85


def test_standard_errors_of_groups_of_one_row_are_those_of_rows():
    curves, y, _ = clustered(np.random.default_rng(0))
    order = np.random.default_rng(1).permutation(len(y))
    rows = limit_from_posteriors(curves, y, SIZES)
    own = limit_from_posteriors(curves, y, SIZES, groups=order)
    assert_allclose(own.covariance, rows.covariance)
    assert_allclose(own.matrix.stderr, rows.matrix.stderr, rtol=0.02)


def test_the_errors_of_s_at_the_limit_are_those_of_sums_over_groups(rng):
    """Every row twice, in a group with itself, tells as much as every row once."""
    curves, y, _ = clustered(rng, n_groups=100, size=5)
    twice = np.repeat(np.arange(len(y)), 2)
    alone = limit_from_posteriors(curves, y, SIZES)
    pairs = limit_from_posteriors(
        [P[twice] for P in curves], y[twice], SIZES, groups=twice
    )
    assert_allclose(pairs.matrix.stderr, alone.matrix.stderr, rtol=0.02)


def test_the_upper_end_of_the_range_is_at_least_that_of_the_plain_interval():
    rng = np.random.default_rng(3)
    for _ in range(10):
        curves, y, groups = clustered(rng)
        w = rng.lognormal(0, 1, len(y))
        limit = limit_from_posteriors(curves, y, SIZES, groups=groups, sample_weight=w)
        cm = collision_matrix_from_posteriors(
            curves[-1], y, groups=groups, sample_weight=w
        )
        assert limit.pber_interval()[1] >= cm.pber_interval()[1] - 1e-9


def test_models_ended_by_a_cap_leave_no_lower_end():
    free = planted(0.2, 0.05, 0.5)
    capped = replace(free, capped=True)
    assert free.pber_interval()[0] > 0
    assert capped.pber_interval()[0] == capped.bayes_error_interval()[0] == 0
    assert capped.state == "capped"
    assert capped.reason.startswith("limited by training, not by rows")


def test_learning_that_goes_on_as_at_first_has_begun():
    limit = planted(0.2, 0.1, 0.5)
    stalled = replace(limit, scores=np.array([0.45, 0.36, 0.36, 0.3]))
    assert stalled.state != "hardly begun"
    begun = replace(limit, scores=np.array([0.37, 0.36, 0.36, 0.3]))
    assert begun.state == "hardly begun"


def test_while_much_is_left_to_learn_all_that_the_range_misses_is_below_it():
    limit = planted(0.2, 0.05, 0.5)
    end = limit._pber_curve.at()
    low, high = limit.pber_interval(0.9)
    assert end.chance(low) + 1 - end.chance(high) == pytest.approx(0.1, abs=1e-6)
    assert end.chance(low) > 0.09


@pytest.mark.parametrize("seed", range(20))
def test_the_range_of_a_flat_curve_holds_the_plain_interval(seed):
    limit = planted(0.2, 0.0, 0.5, np.random.default_rng(seed), difference=1e-4)
    low, high = limit.pber_interval(0.9)
    plain_low, plain_high = limit._plain_interval(0.9)
    assert low <= plain_low < plain_high <= high


@pytest.mark.parametrize(
    "pools",
    [
        [{"members": members} for members in (1, 2, None, 8)],
        [{"members": 1.5, "parametric": share} for share in (1, 0.5, 0)],
    ],
    ids=["one member has all the weight", "the weight is parametric"],
)
def test_the_range_is_narrower_where(pools):
    limit = planted(0.2, 0.05, 0.5)
    lows = [replace(limit, **pool).pber_interval()[0] for pool in pools]
    assert lows == sorted(set(lows), reverse=True)


def test_the_range_is_wider_where_little_of_the_way_is_gone():
    limit = planted(0.3, 0.02, 1.0)  # scores of class shares that are far, and near
    lows = [
        replace(limit, baseline=baseline).pber_interval()[0]
        for baseline in (0.36, 0.5, 0.9)
    ]
    assert lows == sorted(set(lows))


@pytest.mark.parametrize(
    ("weights", "members"), [([0.3] * 5 + [0.0], 5), ([1.2], 1), ([0.9, 0.1], 1 / 0.82)]
)
def test_members_that_share_the_weight_are_counted_by_their_weights(weights, members):
    by_name = dict(zip("abcdef", weights, strict=False))
    assert module.Pool.of_weights(by_name, []).members == pytest.approx(members)


def test_the_parametric_share_is_that_of_the_weight():
    weights = {"linear": 0.2, "network": 0.1, "forest": 0.1, "trees": 0.4}
    pool = module.Pool.of_weights(weights, ["linear", "network", "gaussian"])
    assert pool.parametric == pytest.approx(0.3 / 0.8)


@pytest.mark.parametrize("name", ["members", "parametric"])
def test_a_record_that_does_not_know_the_pool_is_read(name):
    limit = planted(0.2, 0.1, 0.5)
    data = limit.to_dict()
    del data[name]
    assert Limit.from_dict(data) == limit


@pytest.fixture(scope="module")
def of_several():
    """A pool of members of both kinds, and its limit."""
    X, y = ring().sample(200, 0)
    several = ["linear", "quadratic", "neighbours", "gaussian"]
    return CollisionClassifier(several, random_state=0).fit(X, y)


def test_a_fit_knows_how_many_members_share_the_weight(of_several):
    weights = np.array(list(of_several._ensemble.weights.values()))
    share = weights / weights.sum()
    assert of_several.limit_.members == pytest.approx(1 / (share**2).sum())


def test_a_fit_knows_the_parametric_share_of_the_weight(of_several):
    weights = of_several._ensemble.weights
    nearby = weights.get("neighbours", 0.0)
    expected = 1 - nearby / sum(weights.values())
    assert of_several.limit_.parametric == pytest.approx(expected)


def test_of_a_model_alone_the_pool_is_not_known():
    X, y = ring().sample(200, 0)
    alone = CollisionClassifier(["linear"], random_state=0).fit(X, y)
    assert alone.limit_.members is None
    assert alone.limit_.parametric is None


def test_a_curve_that_no_power_fits_is_refuted():
    limit = planted(0.2, 0.1, 0.5)
    jagged = replace(limit, scores=limit.scores + np.array([0, 0.05, -0.05, 0]))
    assert (jagged.state, jagged.pber_interval()[0]) == ("refuted", 0)


def test_a_power_law_is_hardly_ever_refuted(rng):
    states = [planted(0.2, 0.1, 0.5, rng).state for _ in range(300)]
    assert np.mean(np.array(states) == "refuted") < 0.01


def confident(power: float, seed: int, n: int = 2000):
    """(posteriors at every size, codes): true ones with shrinking noise, to a power."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.standard_normal((n, 3))
    truth = raised(np.exp(logits), 1.0)
    y = (rng.random((n, 1)) >= truth.cumsum(axis=1)[:, :-1]).sum(axis=1)
    noise = rng.standard_normal((n, 3))
    sd = 0.5 * (SIZES / SIZES[0]) ** -0.25
    return [raised(np.exp(logits + part * noise), power) for part in sd], y


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("power", "word"), [(2.0, "over-confident"), (0.5, "under-confident")]
)
def test_miscalibrated_posteriors_leave_no_lower_end(power, word, seed):
    limit = limit_from_posteriors(*confident(power, seed), SIZES)
    assert limit.state == "miscalibrated"
    assert limit.pber_interval()[0] == limit.bayes_error_interval()[0] == 0
    assert word in limit.reason


def test_calibrated_posteriors_are_hardly_ever_called_miscalibrated():
    found = [
        limit_from_posteriors(*confident(1.0, seed), SIZES).power for seed in range(40)
    ]
    assert sum(power is not None for power in found) <= 2


def test_over_confidence_that_rows_remove_is_left_to_the_curve():
    truth, y = confident(1.0, 0)
    curves = [raised(truth[-1], 1 + 4 * m**-1.0 * 100) for m in SIZES]
    assert limit_from_posteriors(curves, y, SIZES).power is None


def test_few_errors_of_sure_posteriors_are_not_miscalibration():
    P = np.tile([[0.999, 0.001], [0.001, 0.999]], (500, 1))
    y = np.arange(1000) % 2
    assert limit_from_posteriors([P] * 4, y, SIZES).power is None


def test_posteriors_worse_than_the_class_shares_state_nothing_of_the_matrix_at_the_limit():
    curves, y = confident(1.0, 0)
    limit = limit_from_posteriors([P[:, ::-1] for P in curves], y, SIZES)
    assert limit.matrix.interval() is None


@pytest.mark.parametrize("name", ["scores", "covariance", "stderr", "n_rows"])
def test_a_limit_needs_its_curve_and_its_errors(name):
    curve = {"scores": [0.3, 0.2], "covariance": np.eye(2), "stderr": 0.1, "n_rows": 9}
    with pytest.raises(ValueError, match=f"{name} must be given, got None"):
        Limit([10, 20], **(curve | {name: None}))
