"""The one-step estimator: what it equals, how its sums add up, what its intervals cover, and what it takes."""

import itertools
import pickle
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from collidescope import (
    CollisionAccumulator,
    collision_matrix_from_posteriors,
    onestep,
    shift_priors,
)
from collidescope._checks import CollisionWarning, labelled_posteriors
from collidescope.datasets import scenario_a
from collidescope.equations.gramian import gramian_from_posteriors
from collidescope.equations.moments import (
    MAX_COVARIANCE_CLASSES,
    Moments,
    Units,
    row_blocks,
    row_units,
)
from collidescope.equations.projection import project
from collidescope.onestep import ContradictionWarning
from helpers import assert_same, mean_tvd, random_posteriors, tempered
from studies.grid import population, skewed
from studies.known import imbalanced


def terms(P, codes):
    """φ = c pᵀ + p cᵀ - p pᵀ of every row."""
    c, p = np.eye(P.shape[1])[codes][:, :, None], P[:, :, None]
    cp = c * P[:, None]
    return cp + cp.swapaxes(1, 2) - p * P[:, None]


def textbook(P, codes, w, groups=None):
    """Unprojected B, standard errors of S, of the PBER and of the 0/1 error, as they are defined."""
    C, phi = np.eye(P.shape[1])[codes], terms(P, codes)
    B = np.average(phi, axis=0, weights=w)
    priors = B.sum(axis=1)[:, None]
    lost = ((C - P) ** 2).sum(axis=1)
    missed = P.argmax(axis=1) != codes
    owner = np.arange(len(P)) if groups is None else groups

    def error(part):
        """Of a weighted mean of rows, whose units are the groups."""
        units = [np.flatnonzero(owner == group) for group in np.unique(owner)]
        sums = np.array([np.tensordot(w[unit], part[unit], 1) for unit in units])
        squares = len(sums) / (len(sums) - 1) * (sums**2).sum(axis=0)
        return np.sqrt(squares) / w.sum()

    of_pber, of_missed = (
        error(each - np.average(each, weights=w)) for each in (lost, missed)
    )
    return B, error((phi - B / priors * C[:, :, None]) / priors), of_pber, of_missed


@pytest.fixture(params=[2, 5, MAX_COVARIANCE_CLASSES + 1])
def k(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["even", "weighted"])
def weighted(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["rows", "groups"])
def sample(k, weighted, request):
    """(posteriors, codes, weights, groups or None)."""
    rng = np.random.default_rng(k)
    P, codes = random_posteriors(rng, 60 * k, k)
    w = rng.random(len(P)) + 0.1 if weighted else np.ones(len(P))
    return P, codes, w, rng.integers(0, 20, len(P)) if request.param else None


def test_fast_sums_equal_the_formulas_written_out(sample):
    P, codes, w, groups = sample
    B, stderr, *errors = textbook(P, codes, w, groups)
    cm = collision_matrix_from_posteriors(P, codes, sample_weight=w, groups=groups)
    assert np.allclose(cm.stderr, stderr, rtol=1e-9)
    assert (cm.pber_stderr, cm.held_out_stderr) == pytest.approx(errors, rel=1e-9)
    missed = np.average(P.argmax(axis=1) != codes, weights=w)
    assert cm.held_out_error == pytest.approx(missed)
    assert np.allclose(cm.priors, B.sum(axis=1))
    if cm.diagnostics.moved < 1e-9:
        assert np.allclose(cm.joint, B, atol=1e-12)
    assert (cm.covariance is None) == (len(B) > MAX_COVARIANCE_CLASSES)


def effective(sums):
    """The number of equal units that are as good as those of these weights."""
    return sums.sum(axis=0) * (sums**2).sum(axis=0) / (sums**3).sum(axis=0)


def test_units_are_counted_by_their_weights(sample):
    P, codes, w, groups = sample
    cm = collision_matrix_from_posteriors(P, codes, sample_weight=w, groups=groups)
    kish = np.bincount(codes, w) ** 2 / np.bincount(codes, w**2)
    assert cm.counts == pytest.approx(kish)  # Kish's effective number of rows
    owners = np.arange(len(P)) if groups is None else groups
    sums = np.zeros((owners.max() + 1, P.shape[1]))
    np.add.at(sums, (owners, codes), w)
    assert cm.units == pytest.approx(effective(sums))
    assert cm.n_units == pytest.approx(effective(sums.sum(axis=1)))
    assert cm.grouped == (groups is not None)


@pytest.mark.parametrize(
    "groups", [None, np.arange(3000) // 10], ids=["rows", "groups"]
)
@pytest.mark.parametrize("priors", ["empirical", "uniform", [0.1, 0.2, 0.3, 0.4]])
def test_the_covariance_of_b_gives_the_same_standard_errors_as_the_short_way(
    priors, groups, rng
):
    P, codes = random_posteriors(rng, 3000, 4)
    cm = collision_matrix_from_posteriors(P, codes, priors=priors, groups=groups)
    assert cm.diagnostics.moved < 1e-9
    unchanged = cm.merge([[0], [1], [2], [3]])
    if groups is None or priors == "empirical":
        assert np.allclose(unchanged.stderr, cm.stderr, rtol=1e-8)
    assert unchanged.pber_stderr == pytest.approx(cm.pber_stderr, rel=1e-8)


def test_without_labels_it_is_the_mean_outer_product_with_its_spread():
    rng = np.random.default_rng(9)
    P, _ = random_posteriors(rng, 80, 3)
    w = rng.random(80) + 0.1
    cm = collision_matrix_from_posteriors(P, sample_weight=w)
    phi = P[:, :, None] * P[:, None, :]
    S = np.average(phi, axis=0, weights=w) / np.average(P, axis=0, weights=w)[:, None]
    assert np.allclose(cm.matrix, S)
    assert np.allclose(cm.counts, (w @ P) ** 2 / (w**2 @ P))
    assert (cm.method, cm.held_out_error) == ("mean of p pᵀ", None)
    grouped = collision_matrix_from_posteriors(P, sample_weight=w, groups=np.arange(80))
    assert np.allclose(grouped.matrix, cm.matrix)


def test_posteriors_without_labels_carry_no_confidence_statement():
    P, _ = random_posteriors(np.random.default_rng(9), 80, 3)
    cm = collision_matrix_from_posteriors(P)
    assert cm.pber_interval() is None
    assert cm.interval() is None
    assert cm.covariance is None
    assert cm.held_out_error is None
    with pytest.raises(ValueError, match="level needs an estimated standard error"):
        cm.bayes_error_limit()


@pytest.fixture(scope="module")
def of_five():
    """(true posteriors, labels) of five classes."""
    X, y = scenario_a(5).sample(2000, 0)
    return scenario_a(5).posteriors(X), y


def test_the_pber_is_the_held_out_brier_score_where_the_projection_moves_the_trace(
    of_five,
):
    """Over-confident posteriors of many classes: no collision matrix is near their estimate."""
    P, y = tempered(of_five[0], 6.0), of_five[1]
    said = "contradict each other.*[Oo]ver-confident"
    with pytest.warns(CollisionWarning, match=said):
        cm = collision_matrix_from_posteriors(P, y)
    brier = ((np.eye(5)[y] - P) ** 2).sum(axis=1).mean()
    assert (cm.pber, cm.diagnostics.brier) == pytest.approx((brier, brier), abs=1e-9)


def test_columns_in_another_order_are_warned_of(of_five):
    P, y = of_five
    said = "worse than the class shares.*order of the classes"
    with pytest.warns(CollisionWarning, match=said):
        cm = collision_matrix_from_posteriors(P[:, ::-1], y)
    assert cm.pber == pytest.approx(1 - (cm.priors**2).sum())


@pytest.mark.filterwarnings("error::collidescope.CollisionWarning")
@pytest.mark.parametrize(("k", "n"), [(3, 60), (5, 2000), (20, 400)])
def test_true_posteriors_are_not_warned_of(k, n, rng):
    for _ in range(30):
        collision_matrix_from_posteriors(*random_posteriors(rng, n, k))


@pytest.mark.filterwarnings("error::collidescope.CollisionWarning")
@pytest.mark.parametrize(("k", "n"), [(2, 20), (2, 50), (5, 60)])
def test_inputs_that_say_nothing_are_no_contradiction(k, n, rng):
    """The class shares of few rows fit these rows better than the true posteriors do."""
    for _ in range(30):
        codes = np.append(np.arange(k), rng.integers(0, k, n - k))
        collision_matrix_from_posteriors(np.full((n, k), 1 / k), codes)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 5),
    st.integers(0, 10_000),
    st.lists(st.integers(1, 119), max_size=6),
    st.sampled_from(["labels", "no labels", "priors"]),
)
def test_parts_merged_in_any_order_give_the_one_shot_answer(k, seed, cuts, given):
    rng = np.random.default_rng(seed)
    P, codes = random_posteriors(rng, 120, k)
    w = rng.random(120) + 0.5
    priors = np.full(k, 1 / k) if given == "priors" else None

    def accumulator(rows):
        y = None if given == "no labels" else codes[rows]
        return CollisionAccumulator(range(k), priors).update(P[rows], y, w[rows])

    left = CollisionAccumulator(range(k), priors)
    parts = np.split(np.arange(120), sorted(set(cuts)))
    for number in rng.permutation(len(parts)):
        left.merge(accumulator(parts[number]))
    assert_same(left.result(), accumulator(slice(None)).result())
    assert left.n_rows == 120


@pytest.fixture(scope="module")
def beyond():
    """(posteriors, codes) of more rows than a block."""
    P, codes = random_posteriors(np.random.default_rng(11), 5000, 32)
    assert len(row_blocks(5000, 32)) == 2
    return P, codes


# groups: more, and larger ones, than fit a block
@pytest.mark.parametrize(
    "groups", [None, np.arange(5000), np.minimum(np.arange(5000), 2500)], ids=str
)
def test_rows_beyond_one_block_are_added_up_as_within_one(beyond, groups):
    cm = collision_matrix_from_posteriors(*beyond, groups=groups)
    _, stderr, pber_stderr, _ = textbook(*beyond, np.ones(5000), groups)
    assert np.allclose(cm.stderr, stderr)
    assert cm.pber_stderr == pytest.approx(pber_stderr)


def test_labels_beyond_one_block_are_added_up_as_single_votes(beyond):
    P, codes = beyond
    votes = collision_matrix_from_posteriors(P, votes=np.eye(32)[codes])
    assert np.allclose(votes.joint, collision_matrix_from_posteriors(*beyond).joint)
    short = onestep.labelled_moments(P, codes, None, 32)
    assert_same(
        onestep.of_moments(short, range(32)), collision_matrix_from_posteriors(*beyond)
    )


WEIGHTS = {
    "even": lambda n: np.ones(n),
    "uneven": lambda n: np.linspace(0.5, 2.0, n),
    "zeros": lambda n: np.where(np.arange(n) % 3, 1e6, 0.0),
}


@pytest.mark.parametrize(
    ("k", "kind"),
    [*((3, kind) for kind in [*WEIGHTS, "tiny posteriors"]), (150, "zeros")],
)
def test_labelled_rows_add_up_to_the_sums_of_the_general_formula(k, kind):
    P, codes = random_posteriors(np.random.default_rng(k), 1200, k, sharpness=3.0)
    # every class has rows of weight zero and others
    codes[:] = np.arange(1200) // 4 % k
    w = WEIGHTS.get(kind, WEIGHTS["even"])(1200)
    if kind == "tiny posteriors":
        P[::2, 0] = 1e-30
        P /= P.sum(axis=1, keepdims=True)
    short, long = Moments(k, covariance=k < 10), Moments(k, covariance=k < 10)
    for part in np.array_split(np.arange(1200), 3):
        short.add_labelled(P[part], codes[part], w[part])
    long.add(row_units(P, codes, None, w))
    tolerance = 1e-5 if k > 100 else 1e-10  # many classes are added up in float32
    assert (short._rounding > long._rounding) == (k > 100)
    for name in (each.name for each in fields(Moments)):
        found, expected = np.asarray(getattr(short, name)), getattr(long, name)
        least = tolerance * np.max(np.abs(expected), initial=0.0)
        assert found == pytest.approx(expected, rel=tolerance, abs=least), name
        assert found.dtype == np.float64
    (S, variance), (exact, spread) = short.ratio(), long.ratio()
    # far below the standard error, and the standard error itself to four digits
    assert (np.abs(S - exact) <= 1e-4 * np.sqrt(spread) + 1e-12).all()
    assert np.sqrt(variance) == pytest.approx(np.sqrt(spread), rel=1e-4, abs=1e-9)


@pytest.fixture
def of_many():
    """(posteriors, codes) of 150 classes."""
    P, codes = random_posteriors(np.random.default_rng(150), 600, 150, sharpness=3.0)
    codes[:300] = np.tile(np.arange(150), 2)
    return P, codes


def test_weights_that_differ_widely_stay_in_float64(of_many):
    P, codes = of_many
    w = np.where(codes < 75, 1e-9, 1.0)
    short, long = Moments(150, False), Moments(150, False)
    short.add_labelled(P, codes, w)
    long.add(row_units(P, codes, None, w))
    assert short.ratio()[0] == pytest.approx(long.ratio()[0], rel=1e-11, abs=1e-12)
    assert short.ratio()[1] == pytest.approx(long.ratio()[1], rel=1e-6, abs=1e-15)


def test_posteriors_may_be_float32(of_many):
    P, codes = of_many
    double, single = (
        onestep.labelled_moments(rows, codes, None, 150).ratio()[0]
        for rows in (P, P.astype(np.float32))
    )
    assert single == pytest.approx(double, abs=1e-6)


def spread_of(*diagonals, rho=1.0, N=1.0):
    """Moments of units with these diagonals."""
    moments = Moments(2, covariance=False)
    n = len(diagonals)
    none = np.zeros(n)
    unit = np.array(diagonals), none, np.zeros((n, 2)), np.full((n, 2), rho)
    moments.add(Units(*unit, np.full(n, N), none))
    return moments


def test_a_single_unit_has_no_spread():
    one = spread_of([1.0, 0.0])
    assert one.ratio()[1].tolist() == [[0, 0], [0, 0]]
    assert one.covariance() is None


def test_units_of_one_ratio_have_no_spread():
    """The variance is a difference of equal numbers."""
    same = Moments(2, covariance=False)
    for value in (1e3, 7e3, 13e3):
        same.merge(spread_of([value, value], rho=value / 3, N=value))
    assert np.diag(same.ratio()[1]).tolist() == [0, 0]
    assert same.error()[1] == pytest.approx(0, abs=1e-15)


def test_known_priors_make_every_class_a_sample_of_its_own():
    rng = np.random.default_rng(8)
    P, codes = random_posteriors(rng, 900, 3)
    w, priors = rng.random(900) + 0.1, np.array([0.2, 0.5, 0.3])
    cm = CollisionAccumulator(range(3), priors).update(P, codes, w).result()
    B, variance, error, missed = np.zeros((3, 3)), np.zeros((3, 3)), 0.0, 0.0
    for label, share in enumerate(priors):
        own = codes == label
        v, phi = w[own] / w[own].sum(), terms(P[own], codes[own])
        mean, off = np.tensordot(v, phi, 1), np.trace(phi, axis1=1, axis2=2)
        B += share * mean
        squares = share**2 * len(v) / (len(v) - 1) * v**2
        variance += np.tensordot(squares, (phi - mean) ** 2, 1)
        error += squares @ (off - v @ off) ** 2
        missed += share * v @ (P[own].argmax(axis=1) != label)
    balanced = project(B, priors)
    assert np.allclose(cm.stderr, np.sqrt(variance) / priors[:, None], rtol=1e-9)
    found = cm.pber_stderr, cm.held_out_error, cm.diagnostics.moved
    expected = np.sqrt(error), missed, balanced.moved
    assert found == pytest.approx(expected, rel=1e-9)
    assert np.array_equal(cm.priors, priors)
    assert np.allclose(cm.joint, balanced.joint, atol=1e-12)


@pytest.mark.parametrize(
    "groups", [None, np.arange(60_000) // 20], ids=["rows", "groups"]
)
def test_uniform_priors_from_an_uneven_sample_estimate_the_even_population(groups):
    uneven = imbalanced(3, ratio=20, length=3, random_state=0)
    even = type(uneven)(uneven.means).collision_matrix()
    X, y = uneven.sample(60_000, 1)
    P = uneven.posteriors(X)
    cm = collision_matrix_from_posteriors(P, y, priors="uniform", groups=groups)
    assert mean_tvd(cm.matrix, even.matrix) < 0.01
    assert cm.priors == pytest.approx(np.full(3, 1 / 3))


def test_beyond_so_many_classes_given_priors_weigh_the_rows():
    k = 401  # posteriors that need no projection, which would take its time
    P, codes = random_posteriors(np.random.default_rng(5), 3 * k, k, sharpness=0.01)
    codes[: 2 * k] = np.tile(np.arange(k), 2)
    target = np.linspace(1, 3, k) / np.linspace(1, 3, k).sum()
    shares = np.bincount(codes) / len(codes)
    shifted, w = shift_priors(P, shares, target), (target / shares)[codes]
    by_hand = collision_matrix_from_posteriors(shifted, codes, sample_weight=w)
    found, _ = onestep.one_step_and_moments(P, codes, None, np.arange(k), target)
    assert found.priors == pytest.approx(target)
    assert found.matrix == pytest.approx(by_hand.matrix, abs=1e-5)
    assert found.stderr == pytest.approx(by_hand.stderr, rel=1e-3, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("k", "priors", "n"), [(5, "empirical", 1250), (3, "uniform", 750)]
)
def test_nominal_95_percent_intervals_cover_93_to_98_percent(k, priors, n):
    problem, rng, found = scenario_a(k), np.random.default_rng(2024), []
    truth = problem.collision_matrix()
    target = truth.merge([[0, 1]])
    for _ in range(600):
        X, y = problem.sample(n, rng, stratified=False)
        # posteriors wrong by a random smooth tilt of size n^-1/2
        tilt = X @ rng.standard_normal((X.shape[1], k)) / np.sqrt(n)
        P = problem.posteriors(X) * np.exp(tilt)
        P /= P.sum(axis=1, keepdims=True)
        cm = collision_matrix_from_posteriors(P, y, priors=priors)
        ends = (
            (cm.interval(), truth.matrix),
            (cm.pber_interval(), truth.pber),
            (cm.merge([[0, 1]]).interval(), target.matrix),
        )
        found.append([np.mean((low <= x) & (x <= high)) for (low, high), x in ends])
    coverage = np.mean(found, axis=0)
    assert (coverage >= 0.93).all()
    assert (coverage <= 0.98).all()


@pytest.mark.parametrize("options", [{}, {"priors": "uniform"}])
def test_rows_that_weigh_nothing_count_for_nothing(options):
    P, codes = random_posteriors(np.random.default_rng(3), 30, 3)
    w = np.where(np.arange(30) < 12, 1.0, 0.0)
    weighted = collision_matrix_from_posteriors(P, codes, sample_weight=w, **options)
    alone = collision_matrix_from_posteriors(P[:12], codes[:12], **options)
    assert weighted.pber_interval() == pytest.approx(alone.pber_interval())
    assert np.allclose(weighted.stderr, alone.stderr)


def test_every_entry_is_covered_where_few_rows_of_one_class_stand_for_many():
    target = population(3, 2.0).shifted(np.full(3, 1 / 3))
    draw = skewed(target, [10, 1000, 1000], "uniform")
    rng, held = np.random.default_rng(0), []
    for _ in range(200):
        sample = draw(rng)
        cm = collision_matrix_from_posteriors(
            sample.posteriors, sample.labels, priors="uniform"
        )
        low, high = cm.interval()
        held.append((low <= target.matrix()) & (target.matrix() <= high))
    assert np.mean(held, axis=0).min() >= 0.93  # the diagonal of others: 80%


def test_one_step_forgives_wrong_posteriors_that_averages_do_not():
    problem = scenario_a(3)
    X, y = problem.sample(60_000, 3)
    P = tempered(problem.posteriors(X), 0.8)  # underconfident
    plug_in = collision_matrix_from_posteriors(P).matrix
    by_class = np.stack([P[y == k].mean(axis=0) for k in range(3)])
    one_step, *averages = (
        mean_tvd(S, problem.collision_matrix().matrix)
        for S in (collision_matrix_from_posteriors(P, y).matrix, plug_in, by_class)
    )
    assert one_step < min(averages) / 3


def test_pairs_of_votes_complete_the_one_step_term():
    """To the mean over ordered pairs of votes, where there are any."""
    rng = np.random.default_rng(2)
    P, _ = random_posteriors(rng, 40, 3)
    more = np.where(np.arange(40)[:, None] % 2, rng.multinomial(4, P), 0)
    votes = more + rng.multinomial(1, np.ones(3) / 3, 40)
    w = rng.random(40) + 0.5
    Z = terms(P, votes.argmax(axis=1))
    for i in np.flatnonzero(votes.sum(axis=1) > 1):
        given = np.repeat(np.eye(3), votes[i], axis=0)
        pairs = [np.outer(a, b) for a, b in itertools.permutations(given, 2)]
        Z[i] = np.mean(pairs, axis=0)
    B = np.average(Z, axis=0, weights=w)
    cm = collision_matrix_from_posteriors(P, votes=votes, sample_weight=w)
    assert np.allclose(cm.joint, project(B, B.sum(axis=1)).joint, atol=1e-9)
    excess = w * (np.trace(B) - np.trace(Z, axis1=1, axis2=2))
    assert cm.pber_stderr == pytest.approx(np.sqrt(40 / 39 * excess @ excess) / w.sum())
    shares = votes / votes.sum(axis=1, keepdims=True)
    wrong = 1 - shares[np.arange(40), P.argmax(axis=1)]
    assert cm.held_out_error == pytest.approx(np.average(wrong, weights=w))
    assert cm.method == "one-step, votes"


@pytest.mark.parametrize("sharpness", [1.0, 3.0])
def test_votes_lower_the_error_of_any_posteriors(sharpness):
    """Half of the rows have two votes: of a third power of the posteriors one step over-estimates PBER by far."""
    problem, rng, found = scenario_a(3), np.random.default_rng(4), []
    for _ in range(60):
        X, _ = problem.sample(2000, rng)
        Y = problem.posteriors(X)
        votes = rng.multinomial(1, Y)
        votes[::2] += rng.multinomial(1, Y)[::2]
        P, y = tempered(Y, sharpness), rng.multinomial(1, Y).argmax(axis=1)
        kinds = ((P, None, votes), (P, y, None), (P[::2], None, votes[::2]))
        found.append(
            [
                collision_matrix_from_posteriors(p, labels, votes=v).pber
                for p, labels, v in kinds
            ]
        )
    all_votes, labels, pairs = np.mean(found, axis=0) - problem.collision_matrix().pber
    spread = np.std(found, axis=0)
    if sharpness == 1:
        assert abs(all_votes) < 4 * spread[0] / np.sqrt(60)
        assert spread[0] < spread[2]  # rows with a single vote help
    else:
        assert 0 < all_votes < 0.6 * labels  # half of the rows keep the bias
        assert abs(pairs) < 4 * spread[2] / np.sqrt(60)  # none without them


@pytest.mark.parametrize("target", [None, np.linspace(1, 3, 12) / 24])
def test_one_pass_gives_both_estimates(target):
    rng = np.random.default_rng(12)
    P, codes = random_posteriors(rng, 600, 12, sharpness=3.0)
    codes[:24] = np.tile(np.arange(12), 2)
    w, priors = rng.uniform(0.5, 2.0, 600), "empirical" if target is None else target
    one_step, moments = onestep.one_step_and_moments(P, codes, w, np.arange(12), target)
    assert_same(
        one_step,
        collision_matrix_from_posteriors(P, codes, priors=priors, sample_weight=w),
    )
    counts = np.bincount(codes, w)
    shifted = P if target is None else shift_priors(P, counts / counts.sum(), target)
    expected = gramian_from_posteriors(shifted, codes, w)
    assert onestep.gramian_from_moments(moments) == pytest.approx(expected, abs=1e-12)


TABLES = {
    "pandas": lambda P, names: pd.DataFrame(P, columns=names),
    "polars": lambda P, names: pytest.importorskip("polars").DataFrame(P, schema=names),
}


EVERY_TABLE = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
ABC, CBA = list("abc"), list("cba")


@pytest.fixture
def named(rng):
    """(posteriors, codes, labels) of the classes a, b and c."""
    P, codes = random_posteriors(rng, 300, 3)
    return P, codes, np.array(ABC)[codes]


@EVERY_TABLE
def test_named_columns_are_aligned_with_the_labels_by_name(table, named):
    P, _, y = named
    turned = table(P[:, ::-1], CBA)
    found = [
        collision_matrix_from_posteriors(turned, pd.Series(y)),
        collision_matrix_from_posteriors(turned, y, classes=ABC),
        CollisionAccumulator(ABC).update(turned, y).result(),
        collision_matrix_from_posteriors(table(P, None), y),
    ]
    assert found == [collision_matrix_from_posteriors(P, y)] * 4
    shrunk = onestep.shrunk_collision_matrix
    assert shrunk(turned, y) == shrunk(P, y)
    assert collision_matrix_from_posteriors(turned).classes.tolist() == CBA


@EVERY_TABLE
def test_named_columns_of_votes_are_aligned_by_name(table, named):
    P, codes, y = named
    votes = table(np.eye(3)[codes][:, ::-1], CBA)
    found = collision_matrix_from_posteriors(P, votes=votes, classes=ABC)
    assert np.allclose(found.matrix, collision_matrix_from_posteriors(P, y).matrix)


@EVERY_TABLE
def test_columns_named_by_numbers_in_text_are_those_of_the_numbers(table, named):
    P, codes, y = named
    found = collision_matrix_from_posteriors(table(P[:, ::-1], list("321")), codes + 1)
    assert np.array_equal(found.matrix, collision_matrix_from_posteriors(P, y).matrix)
    assert found.classes.tolist() == [1, 2, 3]


@EVERY_TABLE
def test_columns_of_other_names_are_refused(table, named):
    P, codes, y = named
    said = r"P has columns \['c', 'b', 'x'\] for .*\['a', 'b', 'c'\].*to_numpy"
    with pytest.raises(ValueError, match=said):
        collision_matrix_from_posteriors(table(P, list("cbx")), y)
    votes = table(np.eye(3)[codes], list("pqr"))
    with pytest.raises(ValueError, match=r"votes has columns"):
        collision_matrix_from_posteriors(P, votes=votes, classes=ABC)


@EVERY_TABLE
def test_named_columns_without_rows_keep_their_place(table, named):
    P = named[0][:2]
    posteriors, codes, names = labelled_posteriors(table(P, CBA), ["c", "b"])
    assert (names.tolist(), codes.tolist()) == (CBA, [0, 1])
    assert np.array_equal(posteriors, P)


def test_a_vector_is_the_probability_of_the_second_class():
    p, y = np.array([0.1, 0.6, 0.3, 0.8]), ["no", "yes", "no", "yes"]
    expected = collision_matrix_from_posteriors(np.column_stack([1 - p, p]), y)
    for vector in (p, p.tolist(), pd.Series(p), torch.from_numpy(p).requires_grad_()):
        assert np.allclose(
            collision_matrix_from_posteriors(vector, y).matrix, expected.matrix
        )


@pytest.fixture
def low():
    """(float32 posteriors of torch, labels)."""
    logits = 2 * torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
    return logits.softmax(dim=1), torch.arange(200) % 5


@pytest.mark.parametrize(
    ("cast", "tolerance"),
    [
        (lambda P: P.clone().requires_grad_(), 1e-6),
        (lambda P: P.bfloat16(), 0.01),
        (lambda P: P.half().numpy(), 1e-3),
        (lambda P: pd.DataFrame(P.half().numpy()), 1e-3),
    ],
)
def test_posteriors_of_low_precision_are_taken_as_they_come(low, cast, tolerance):
    P, y = low
    exact = P.double().numpy()
    exact /= exact.sum(axis=1, keepdims=True)
    expected = collision_matrix_from_posteriors(exact, y.numpy()).matrix
    found = collision_matrix_from_posteriors(cast(P), y).matrix
    assert np.allclose(found, expected, atol=tolerance)


@pytest.mark.parametrize(
    "cast", [lambda P: P.half().numpy().astype(float), lambda P: (1.01 * P).half()]
)
def test_sums_that_are_no_rounding_for_their_precision_are_refused(low, cast):
    P, y = low
    with pytest.raises(ValueError, match=r"sum to 1, row"):
        collision_matrix_from_posteriors(cast(P), y)


@pytest.mark.parametrize("empty_first", [True, False])
def test_merged_parts_remember_what_they_were_given(empty_first):
    P, codes = random_posteriors(np.random.default_rng(17), 30, 3)
    parts = [CollisionAccumulator(range(3)) for _ in range(2)]
    full = parts[empty_first].update(P[:20], codes[:20]).update(P[20:], codes[20:])
    merged = parts[0].merge(parts[1])
    assert full.n_rows == merged.n_rows == 30
    assert merged.result().method == "one-step"
    with pytest.raises(ValueError, match="y must be given in every update or in none"):
        merged.update(P)


def test_the_smallest_and_the_largest_weights_are_taken():
    P, codes = random_posteriors(np.random.default_rng(17), 30, 3)
    w = np.where(codes == 0, 1e-100, 1e100)
    assert CollisionAccumulator(range(3)).update(P, codes, w).n_rows == 30


@pytest.mark.parametrize("in_order", [False, True])
def test_a_contradiction_says_its_cause_once_after_it_was_sent_to_another_process(
    in_order,
):
    said = ContradictionWarning("the Brier score is 0.9", in_order)
    assert str(pickle.loads(pickle.dumps(said))) == str(said)
