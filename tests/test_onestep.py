"""The one-step estimator: what it equals, how its sums add up, what its intervals cover, and what it takes."""

import itertools
import warnings
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
from helpers import assert_same, mean_tvd, random_posteriors, tempered
from studies.grid import population, skewed
from studies.known import imbalanced


def terms(P: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """φ = c pᵀ + p cᵀ - p pᵀ of every row."""
    C = np.eye(P.shape[1])[codes]
    return np.stack(
        [
            np.outer(c, p) + np.outer(p, c) - np.outer(p, p)
            for c, p in zip(C, P, strict=True)
        ]
    )


def textbook(
    P: np.ndarray, codes: np.ndarray, w: np.ndarray, groups: np.ndarray | None = None
):
    """Unprojected B, standard errors of S, of the PBER and of the 0/1 error, one row at a time, as they are defined."""
    n, k = P.shape
    C, phi = np.eye(k)[codes], terms(P, codes)
    B, priors = np.average(phi, axis=0, weights=w), np.average(C, axis=0, weights=w)
    S = B / priors[:, None]
    parts = [
        (phi - S * C[:, :, None]) / priors[None, :, None],
        ((C - P) ** 2).sum(axis=1) - np.average(((C - P) ** 2).sum(axis=1), weights=w),
        (P.argmax(axis=1) != codes) - np.average(P.argmax(axis=1) != codes, weights=w),
    ]
    own = np.unique(np.arange(n) if groups is None else groups, return_inverse=True)[1]
    errors = []
    for part in parts:
        sums = np.zeros((own.max() + 1, *part.shape[1:]))
        np.add.at(sums, own, (part.T * w).T)
        errors.append(
            np.sqrt(len(sums) / (len(sums) - 1) * np.sum(np.square(sums), axis=0))
            / w.sum()
        )
    return B, *errors


@pytest.mark.parametrize("k", [2, 5, MAX_COVARIANCE_CLASSES + 1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
def test_fast_sums_equal_the_formulas_written_out(k, weighted, grouped):
    rng = np.random.default_rng(k)
    P, codes = random_posteriors(rng, 60 * k, k)
    w = rng.random(len(P)) + 0.1 if weighted else np.ones(len(P))
    groups = rng.integers(0, 20, len(P)) if grouped else None
    B, stderr, pber_stderr, miss_stderr = textbook(P, codes, w, groups)
    cm = collision_matrix_from_posteriors(P, codes, sample_weight=w, groups=groups)
    assert np.allclose(cm.stderr, stderr, rtol=1e-9)
    assert cm.pber_stderr == pytest.approx(pber_stderr, rel=1e-9)
    assert cm.held_out_stderr == pytest.approx(miss_stderr, rel=1e-9)
    assert cm.held_out_error == pytest.approx(
        np.average(P.argmax(axis=1) != codes, weights=w)
    )
    assert np.allclose(cm.priors, B.sum(axis=1))
    if cm.diagnostics.moved < 1e-9:
        assert np.allclose(cm.joint, B, atol=1e-12)
    assert (cm.covariance is None) == (k > MAX_COVARIANCE_CLASSES)
    expected = [w[codes == c].sum() ** 2 / (w[codes == c] ** 2).sum() for c in range(k)]
    assert cm.counts == pytest.approx(expected)  # Kish's effective number of rows
    owners = np.arange(len(P)) if groups is None else groups
    sums = np.zeros((owners.max() + 1, k))
    np.add.at(sums, (owners, codes), w)
    expected = sums.sum(axis=0) * (sums**2).sum(axis=0) / (sums**3).sum(axis=0)
    assert cm.units == pytest.approx(expected)
    whole = sums.sum(axis=1)
    assert cm.n_units == pytest.approx(
        whole.sum() * (whole**2).sum() / (whole**3).sum()
    )
    assert cm.grouped == grouped


@pytest.mark.parametrize("priors", ["empirical", "uniform", [0.1, 0.2, 0.3, 0.4]])
def test_the_covariance_of_b_gives_the_same_standard_errors_as_the_short_way(priors):
    P, codes = random_posteriors(np.random.default_rng(0), 3000, 4)
    for groups in (None, np.arange(3000) // 10):
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


def test_the_pber_is_the_held_out_brier_score_where_the_projection_moves_the_trace():
    """Over-confident posteriors of many classes: no collision matrix is near their estimate."""
    problem = scenario_a(5)
    X, y = problem.sample(2000, 0)
    P = tempered(problem.posteriors(X), 6.0)
    with pytest.warns(
        CollisionWarning, match="contradict each other.*[Oo]ver-confident"
    ):
        cm = collision_matrix_from_posteriors(P, y)
    brier = ((np.eye(5)[y] - P) ** 2).sum(axis=1).mean()
    assert cm.pber == pytest.approx(brier, abs=1e-9)
    assert cm.diagnostics.brier == pytest.approx(brier)


def test_columns_in_another_order_are_warned_of():
    problem = scenario_a(5)
    X, y = problem.sample(2000, 0)
    with pytest.warns(
        CollisionWarning, match="worse than the class shares.*order of the classes"
    ):
        cm = collision_matrix_from_posteriors(problem.posteriors(X)[:, ::-1], y)
    assert cm.pber == pytest.approx(1 - (cm.priors**2).sum())


@pytest.mark.parametrize(("k", "n"), [(3, 60), (5, 2000), (20, 400)])
def test_true_posteriors_are_not_warned_of(k, n, rng):
    for _ in range(30):
        P, codes = random_posteriors(rng, n, k)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            collision_matrix_from_posteriors(P, codes)
        assert [str(each.message) for each in said] == []


@pytest.mark.parametrize(("k", "n"), [(2, 20), (2, 50), (5, 60)])
def test_inputs_that_say_nothing_are_no_contradiction(k, n, rng):
    """The class shares of few rows fit these rows better than the true posteriors do."""
    for _ in range(30):
        codes = np.append(np.arange(k), rng.integers(0, k, n - k))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            collision_matrix_from_posteriors(np.full((n, k), 1 / k), codes)
        assert said == []


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 5),
    st.integers(0, 10_000),
    st.lists(st.integers(1, 119), max_size=6),
    st.integers(0, 2),
)
def test_parts_merged_in_any_order_give_the_one_shot_answer(k, seed, cuts, kind):
    rng = np.random.default_rng(seed)
    P, codes = random_posteriors(rng, 120, k)
    w = rng.random(120) + 0.5
    priors, y = [(None, codes), (None, None), (np.full(k, 1 / k), codes)][kind]

    def accumulator(rows):
        return CollisionAccumulator(range(k), priors).update(
            P[rows], None if y is None else y[rows], w[rows]
        )

    parts = [
        accumulator(slice(a, b)) for a, b in itertools.pairwise(sorted({0, 120, *cuts}))
    ]
    left = CollisionAccumulator(range(k), priors)
    for i in rng.permutation(len(parts)):
        left.merge(parts[i])
    assert_same(left.result(), accumulator(slice(None)).result())
    assert left.n_rows == 120


def test_rows_beyond_one_block_are_added_up_as_within_one():
    P, codes = random_posteriors(np.random.default_rng(11), 5000, 32)
    assert len(row_blocks(5000, 32)) == 2
    B, stderr, pber_stderr, _ = textbook(P, codes, np.ones(5000))
    cm = collision_matrix_from_posteriors(P, codes)
    assert_same(
        cm, onestep.of_moments(onestep.labelled_moments(P, codes, None, 32), range(32))
    )
    assert np.allclose(cm.stderr, stderr)
    assert cm.pber_stderr == pytest.approx(pber_stderr)
    for groups in (
        np.arange(5000),
        np.minimum(np.arange(5000), 2500),
    ):  # more, and larger ones, than fit a block
        grouped = collision_matrix_from_posteriors(P, codes, groups=groups)
        assert np.allclose(grouped.stderr, textbook(P, codes, np.ones(5000), groups)[1])
    votes = collision_matrix_from_posteriors(P, votes=np.eye(32)[codes])
    assert np.allclose(votes.joint, project(B, B.sum(axis=1)).joint, atol=1e-9)
    assert np.allclose(votes.stderr, stderr)


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
    for each in fields(Moments):
        found, expected = getattr(short, each.name), getattr(long, each.name)
        scale = np.max(np.abs(expected), initial=0.0)
        assert found == pytest.approx(expected, rel=tolerance, abs=tolerance * scale), (
            each.name
        )
        assert np.asarray(found).dtype == np.float64
    (S, variance), (exact, spread) = short.ratio(), long.ratio()
    # far below the standard error, and the standard error itself to four digits
    assert (np.abs(S - exact) <= 1e-4 * np.sqrt(spread) + 1e-12).all()
    assert np.sqrt(variance) == pytest.approx(np.sqrt(spread), rel=1e-4, abs=1e-9)


def test_weights_that_differ_widely_stay_in_float64():
    P, codes = random_posteriors(np.random.default_rng(150), 600, 150, sharpness=3.0)
    codes[:300] = np.tile(np.arange(150), 2)
    w = np.where(codes < 75, 1e-9, 1.0)
    short, long = Moments(150, False), Moments(150, False)
    short.add_labelled(P, codes, w)
    long.add(row_units(P, codes, None, w))
    assert short.ratio()[0] == pytest.approx(long.ratio()[0], rel=1e-11, abs=1e-12)
    assert short.ratio()[1] == pytest.approx(long.ratio()[1], rel=1e-6, abs=1e-15)


def test_posteriors_may_be_float32():
    P, codes = random_posteriors(np.random.default_rng(150), 600, 150, sharpness=3.0)
    codes[:300] = np.tile(np.arange(150), 2)
    double, single = (
        onestep.labelled_moments(rows, codes, None, 150)
        for rows in (P, P.astype(np.float32))
    )
    assert single.ratio()[0] == pytest.approx(double.ratio()[0], abs=1e-6)


def test_the_spread_of_a_few_units_is_exact():
    one, two, same = (Moments(2, covariance=False) for _ in range(3))

    def diagonal(*a, rho=1.0, N=1.0):
        n = len(a)
        return Units(
            np.array(a),
            np.zeros(n),
            np.zeros((n, 2)),
            np.full((n, 2), rho),
            np.full(n, N),
            np.zeros(n),
        )

    one.add(diagonal([1.0, 0.0]))
    assert one.ratio()[1].tolist() == [[0, 0], [0, 0]]
    assert one.covariance() is None
    two.add(diagonal([0.2, 0.4], [0.6, 0.4]))
    assert two.ratio()[1][0, 0] == pytest.approx(2 * (0.2**2 + 0.2**2) / 2**2)
    for value in (
        1e3,
        7e3,
        13e3,
    ):  # every unit has the same ratio: the variance is a difference of equal numbers
        same.add(diagonal([value, value], rho=value / 3, N=value))
    assert np.diag(same.ratio()[1]).tolist() == [0, 0]
    assert same.error()[1] == pytest.approx(0, abs=1e-15)


def test_in_single_precision_what_is_below_1e_18_counts_as_nothing_where_it_could_only_slow_products_down():
    P, codes = np.full((300, 150), 1 / 148), np.arange(300) % 148 + 2
    P[:, 0], P[:, 1] = 1e-25, 1e-10  # the first itself, the second when it is squared
    moments = Moments(150, False)
    moments.add_labelled(P, codes, np.ones(300))
    assert not moments.Z[0].any()
    assert moments.Z[1, 2:].all()
    assert not moments.Z2[:2].any()
    assert moments.Z2[2:, 2:].all()


def test_known_priors_make_every_class_a_sample_of_its_own():
    rng = np.random.default_rng(8)
    P, codes = random_posteriors(rng, 900, 3)
    w, priors = rng.random(900) + 0.1, np.array([0.2, 0.5, 0.3])
    cm = CollisionAccumulator(range(3), priors).update(P, codes, w).result()
    phi = terms(P, codes)
    B, variance, error, missed = np.zeros((3, 3)), np.zeros((3, 3)), 0.0, 0.0
    for label, share in enumerate(priors):
        own = codes == label
        v, bessel = w[own], own.sum() / (own.sum() - 1)
        mean = np.average(phi[own], axis=0, weights=v)
        B += share * mean
        variance += (
            share**2
            * bessel
            * (v[:, None, None] ** 2 * (phi[own] - mean) ** 2).sum(axis=0)
            / v.sum() ** 2
        )
        off = 1 - np.trace(phi[own], axis1=1, axis2=2)
        error += (
            share**2
            * bessel
            * (v**2 * (off - np.average(off, weights=v)) ** 2).sum()
            / v.sum() ** 2
        )
        missed += share * np.average(P[own].argmax(axis=1) != label, weights=v)
    balanced = project(B, priors)
    assert np.allclose(cm.stderr, np.sqrt(variance) / priors[:, None], rtol=1e-9)
    assert (cm.pber_stderr, cm.held_out_error) == pytest.approx(
        (np.sqrt(error), missed), rel=1e-9
    )
    assert np.array_equal(cm.priors, priors)
    assert np.allclose(cm.joint, balanced.joint, atol=1e-12)
    assert (cm.diagnostics.moved, cm.method) == (
        pytest.approx(balanced.moved),
        "one-step",
    )


def test_uniform_priors_from_an_uneven_sample_estimate_the_even_population():
    uneven = imbalanced(3, ratio=20, length=3, random_state=0)
    even = type(uneven)(uneven.means)
    X, y = uneven.sample(60_000, 1)
    for groups in (None, np.arange(60_000) // 20):
        cm = collision_matrix_from_posteriors(
            uneven.posteriors(X), y, priors="uniform", groups=groups
        )
        assert mean_tvd(cm.matrix, even.collision_matrix().matrix) < 0.01
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
        P = problem.posteriors(X) * np.exp(
            X @ rng.standard_normal((X.shape[1], k)) / np.sqrt(n)
        )
        cm = collision_matrix_from_posteriors(
            P / P.sum(axis=1, keepdims=True), y, priors=priors
        )
        merged = cm.merge([[0, 1]]).interval()
        ends = (
            (cm.interval(), truth.matrix),
            (cm.pber_interval(), truth.pber),
            (merged, target.matrix),
        )
        found.append(
            [np.mean((low <= value) & (value <= high)) for (low, high), value in ends]
        )
    assert ((np.mean(found, axis=0) >= 0.93) & (np.mean(found, axis=0) <= 0.98)).all()


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
    truth = problem.collision_matrix().matrix
    X, y = problem.sample(60_000, 3)
    P = tempered(problem.posteriors(X), 0.8)  # underconfident
    one_step = mean_tvd(collision_matrix_from_posteriors(P, y).matrix, truth)
    assert one_step < mean_tvd(collision_matrix_from_posteriors(P).matrix, truth) / 3
    assert (
        one_step
        < mean_tvd(np.stack([P[y == k].mean(axis=0) for k in range(3)]), truth) / 3
    )


def test_pairs_of_votes_complete_the_one_step_term():
    rng = np.random.default_rng(2)
    P, _ = random_posteriors(rng, 40, 3)
    more = rng.multinomial(4, P)
    votes = rng.multinomial(1, np.ones(3) / 3, 40) + np.where(
        np.arange(40)[:, None] % 2, more, 0
    )
    w = rng.random(40) + 0.5
    Z = []
    for p, n in zip(P, votes, strict=True):
        c = np.repeat(np.eye(3), n, axis=0)
        pairs = [(a, b) for a, b in itertools.permutations(range(len(c)), 2)]
        mean = c.mean(axis=0)
        phi = np.outer(mean, p) + np.outer(p, mean) - np.outer(p, p)
        if pairs:
            lacks = np.mean([np.outer(c[a] - p, c[b] - p) for a, b in pairs], axis=0)
            assert np.allclose(
                phi + lacks, np.mean([np.outer(c[a], c[b]) for a, b in pairs], axis=0)
            )
            phi = phi + lacks
        Z.append(phi)
    B = np.average(Z, axis=0, weights=w)
    cm = collision_matrix_from_posteriors(P, votes=votes, sample_weight=w)
    assert np.allclose(cm.joint, project(B, B.sum(axis=1)).joint, atol=1e-9)
    excess = w * (1 - np.trace(Z, axis1=1, axis2=2) - (1 - np.trace(B)))
    assert cm.pber_stderr == pytest.approx(np.sqrt(40 / 39 * excess @ excess) / w.sum())
    shares = votes / votes.sum(axis=1, keepdims=True)
    assert cm.held_out_error == pytest.approx(
        np.average(1 - shares[np.arange(40), P.argmax(axis=1)], weights=w)
    )
    assert cm.method == "one-step, votes"


@pytest.mark.parametrize("sharpness", [1.0, 3.0])
def test_votes_lower_the_error_of_any_posteriors(
    sharpness,
):
    """Half of the rows have two votes: of a third power of the posteriors one step over-estimates PBER by far."""
    problem, rng, found = scenario_a(3), np.random.default_rng(4), []
    for _ in range(60):
        X, _ = problem.sample(2000, rng)
        Y = problem.posteriors(X)
        votes = rng.multinomial(1, Y) + np.where(np.arange(2000) % 2 == 0, 1, 0)[
            :, None
        ] * rng.multinomial(1, Y)
        P, y = tempered(Y, sharpness), rng.multinomial(1, Y).argmax(axis=1)
        kinds = ((P, None, votes), (P, y, None), (P[::2], None, votes[::2]))
        found.append(
            [
                collision_matrix_from_posteriors(p, labels, votes=v).pber
                for p, labels, v in kinds
            ]
        )
    votes_error, label_error, paired_error = (
        np.mean(found, axis=0) - problem.collision_matrix().pber
    )
    spread = np.std(found, axis=0)
    if sharpness == 1:
        assert abs(votes_error) < 4 * spread[0] / np.sqrt(60)
        assert spread[0] < spread[2]  # rows with a single vote help
    else:
        assert 0 < votes_error < 0.6 * label_error  # half of the rows keep the bias
        assert abs(paired_error) < 4 * spread[2] / np.sqrt(60)  # none without them


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


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_named_columns_are_aligned_with_the_labels_by_name(table):
    P, codes = random_posteriors(np.random.default_rng(0), 300, 3)
    y = np.array(["a", "b", "c"])[codes]
    expected = collision_matrix_from_posteriors(P, y)
    turned = table(P[:, ::-1], ["c", "b", "a"])
    assert collision_matrix_from_posteriors(turned, pd.Series(y)) == expected
    assert (
        collision_matrix_from_posteriors(turned, y, classes=["a", "b", "c"]) == expected
    )
    assert CollisionAccumulator(["a", "b", "c"]).update(turned, y).result() == expected
    assert collision_matrix_from_posteriors(table(P, None), y) == expected
    assert onestep.shrunk_collision_matrix(
        turned, y
    ) == onestep.shrunk_collision_matrix(P, y)
    assert collision_matrix_from_posteriors(turned).classes.tolist() == ["c", "b", "a"]
    votes = table(np.eye(3)[codes][:, ::-1], ["c", "b", "a"])
    assert np.allclose(
        collision_matrix_from_posteriors(P, votes=votes, classes=list("abc")).matrix,
        expected.matrix,
    )
    numbers = collision_matrix_from_posteriors(
        table(P[:, ::-1], ["3", "2", "1"]), codes + 1
    )
    assert np.array_equal(numbers.matrix, expected.matrix)
    assert numbers.classes.tolist() == [1, 2, 3]
    with pytest.raises(
        ValueError,
        match=r"P has columns \['c', 'b', 'x'\] for .*\['a', 'b', 'c'\].*to_numpy",
    ):
        collision_matrix_from_posteriors(table(P, ["c", "b", "x"]), y)
    with pytest.raises(ValueError, match=r"votes has columns"):
        collision_matrix_from_posteriors(
            P, votes=table(np.eye(3)[codes], ["p", "q", "r"]), classes=list("abc")
        )


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_named_columns_without_rows_keep_their_place(table):
    P, _ = random_posteriors(np.random.default_rng(0), 300, 3)
    posteriors, codes, names = labelled_posteriors(
        table(P[:2], ["c", "b", "a"]), ["c", "b"]
    )
    assert (names.tolist(), codes.tolist()) == (["c", "b", "a"], [0, 1])
    assert np.array_equal(posteriors, P[:2])


def test_a_vector_is_the_probability_of_the_second_class():
    p, y = np.array([0.1, 0.6, 0.3, 0.8]), ["no", "yes", "no", "yes"]
    expected = collision_matrix_from_posteriors(np.column_stack([1 - p, p]), y)
    for vector in (p, p.tolist(), pd.Series(p), torch.from_numpy(p).requires_grad_()):
        assert np.allclose(
            collision_matrix_from_posteriors(vector, y).matrix, expected.matrix
        )


def test_posteriors_of_low_precision_are_taken_as_they_come():
    P = (2 * torch.randn(200, 5, generator=torch.Generator().manual_seed(0))).softmax(
        dim=1
    )
    y, half = np.arange(200) % 5, P.half().numpy()
    expected = collision_matrix_from_posteriors(
        P.double().numpy() / P.double().sum(1, keepdim=True).numpy(), y
    )
    named = pd.DataFrame(half)
    for rows, tolerance in (
        (P.clone().requires_grad_(), 1e-6),
        (P.bfloat16(), 0.01),
        (half, 1e-3),
        (named, 1e-3),
    ):
        cm = collision_matrix_from_posteriors(rows, torch.from_numpy(y))
        assert np.allclose(cm.matrix, expected.matrix, atol=tolerance)
    for wrong in (
        half.astype(np.float64),
        (1.01 * P).half(),
    ):  # not rounding, for these numbers
        with pytest.raises(ValueError, match=r"sum to 1, row"):
            collision_matrix_from_posteriors(wrong, y)


def test_merged_parts_remember_what_they_were_given():
    P, codes = random_posteriors(np.random.default_rng(17), 30, 3)
    twice = (
        CollisionAccumulator(range(3))
        .update(P[:20], codes[:20])
        .update(P[20:], codes[20:])
    )
    assert twice.n_rows == 30
    for first, second in (
        (CollisionAccumulator(range(3)), twice),
        (twice, CollisionAccumulator(range(3))),
    ):
        merged = first.merge(second)
        assert merged.n_rows == 30
        assert merged.result().method == "one-step"
        with pytest.raises(
            ValueError, match="y must be given in every update or in none"
        ):
            merged.update(P)
    smallest_and_largest = np.where(codes == 0, 1e-100, 1e100)  # none beyond
    assert (
        CollisionAccumulator(range(3)).update(P, codes, smallest_and_largest).n_rows
        == 30
    )
