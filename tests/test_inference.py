"""The one-step estimator: what it equals, how its sums add up, and that its intervals cover."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collidescope import CollisionAccumulator, collision_matrix_from_posteriors, shift_priors
from collidescope.datasets import imbalanced, scenario_a
from collidescope.estimate import MAX_COVARIANCE_CLASSES
from collidescope.scale import streams
from helpers import mean_tvd, random_posteriors


def textbook(P: np.ndarray, codes: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Unprojected B, standard errors of S and of the PBER, one row at a time, as the formulas are written."""
    n, k = P.shape
    C = np.eye(k)[codes]
    phi = np.stack([np.outer(c, p) + np.outer(p, c) - np.outer(p, p) for c, p in zip(C, P, strict=True)])
    B = np.average(phi, axis=0, weights=w)
    priors = np.average(C, axis=0, weights=w)
    S = B / priors[:, None]
    influence = (phi - S * C[:, :, None]) / priors[None, :, None]
    bessel = n / (n - 1)
    stderr = np.sqrt(bessel * (w[:, None, None] ** 2 * influence**2).sum(axis=0)) / w.sum()
    brier = ((C - P) ** 2).sum(axis=1)
    excess = brier - np.average(brier, weights=w)
    return B, stderr, float(np.sqrt(bessel * (w**2 * excess**2).sum()) / w.sum())


@pytest.mark.parametrize("k", [2, 5, MAX_COVARIANCE_CLASSES + 1])
@pytest.mark.parametrize("weighted", [False, True])
def test_fast_sums_equal_the_formulas_written_out(k, weighted):
    rng = np.random.default_rng(k)
    P, codes = random_posteriors(rng, 60 * k, k)
    w = rng.random(len(P)) + 0.1 if weighted else np.ones(len(P))
    B, stderr, pber_stderr = textbook(P, codes, w)
    cm = collision_matrix_from_posteriors(P, codes, sample_weight=w)
    assert np.allclose(cm.stderr, stderr, rtol=1e-9)
    assert cm.pber_stderr == pytest.approx(pber_stderr, rel=1e-9)
    assert np.allclose(cm.priors, B.sum(axis=1))
    if cm.info["moved"] < 1e-9:
        assert np.allclose(cm.joint, B, atol=1e-12)
    assert (cm.covariance is None) == (k > MAX_COVARIANCE_CLASSES)


def test_the_covariance_of_b_gives_the_same_standard_errors_as_the_short_way():
    P, codes = random_posteriors(np.random.default_rng(0), 3000, 4)
    for priors in ("empirical", "uniform", [0.1, 0.2, 0.3, 0.4]):
        cm = collision_matrix_from_posteriors(P, codes, priors=priors)
        assert cm.info["moved"] < 1e-9
        unchanged = cm.merge([[0], [1], [2], [3]])
        assert np.allclose(unchanged.stderr, cm.stderr, rtol=1e-8)
        assert unchanged.pber_stderr == pytest.approx(cm.pber_stderr, rel=1e-8)


def test_pber_is_the_brier_score_of_the_posteriors():
    P, codes = random_posteriors(np.random.default_rng(1), 5000, 3)
    cm = collision_matrix_from_posteriors(P, codes)
    assert cm.info["moved"] < 1e-9
    assert cm.pber == pytest.approx(((np.eye(3)[codes] - P) ** 2).sum(axis=1).mean())


def test_without_labels_it_is_the_mean_outer_product():
    P, _ = random_posteriors(np.random.default_rng(2), 100, 3)
    cm = collision_matrix_from_posteriors(P)
    assert np.allclose(cm.joint, P.T @ P / 100)
    assert np.allclose(cm.priors, P.mean(axis=0))


def test_integer_weights_equal_repeated_rows():
    rng = np.random.default_rng(3)
    P, codes = random_posteriors(rng, 200, 3)
    w = rng.integers(0, 4, 200)
    w[:3] = 1
    for y, y_repeated in ((codes, np.repeat(codes, w)), (None, None)):
        weighted = collision_matrix_from_posteriors(P, y, sample_weight=w)
        repeated = collision_matrix_from_posteriors(np.repeat(P, w, axis=0), y_repeated)
        assert np.allclose(weighted.matrix, repeated.matrix, atol=1e-9)


def assert_same(first, second):
    for name in ("matrix", "priors", "stderr", "counts", "covariance"):
        assert np.allclose(getattr(first, name), getattr(second, name), rtol=0, atol=1e-12), name
    assert abs(first.pber_stderr - second.pber_stderr) < 1e-12


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 5),
    st.integers(0, 10_000),
    st.lists(st.integers(1, 119), max_size=6),
    st.sampled_from(["one-step", "no labels", "priors"]),
)
def test_splits_and_merges_in_any_order_give_the_one_shot_answer(k, seed, cuts, road):
    rng = np.random.default_rng(seed)
    P, codes = random_posteriors(rng, 120, k)
    w = rng.random(120) + 0.5
    priors = np.full(k, 1 / k) if road == "priors" else None
    y = None if road == "no labels" else codes
    whole = CollisionAccumulator(range(k), priors).update(P, y, w).result()
    edges = sorted({0, 120, *cuts})
    parts = [
        CollisionAccumulator(range(k), priors).update(P[a:b], None if y is None else y[a:b], w[a:b])
        for a, b in itertools.pairwise(edges)
    ]
    order = rng.permutation(len(parts))
    left = CollisionAccumulator(range(k), priors)
    for i in order:
        left.merge(parts[i])
    assert_same(left.result(), whole)
    assert left.n_rows == 120


def test_row_order_changes_nothing_and_class_order_only_the_order():
    P, codes = random_posteriors(np.random.default_rng(4), 300, 4)
    cm = collision_matrix_from_posteriors(P, codes)
    mixed = np.random.default_rng(5).permutation(300)
    assert_same(collision_matrix_from_posteriors(P[mixed], codes[mixed]), cm)
    turn = [2, 0, 3, 1]
    turned = collision_matrix_from_posteriors(P[:, turn], codes, classes=turn)
    assert np.allclose(turned.matrix, cm.matrix[np.ix_(turn, turn)], atol=1e-9)
    assert np.allclose(turned.stderr, cm.stderr[np.ix_(turn, turn)])


def test_memory_is_quadratic_in_classes_beyond_the_covariance_limit():
    accumulator = CollisionAccumulator(range(200))
    P, codes = random_posteriors(np.random.default_rng(6), 400, 200)
    accumulator.update(P, codes)
    held = sum(np.asarray(value).size for value in accumulator._strata[0].sums.values())
    assert held < 5 * 200**2


def test_priors_given_and_observed_agree_when_they_are_the_same():
    problem = scenario_a(3)
    X, y = problem.sample(3000, 0)
    P = problem.posteriors(X)
    natural, given_priors = (
        collision_matrix_from_posteriors(P, y),
        collision_matrix_from_posteriors(P, y, priors="uniform"),
    )
    assert np.allclose(natural.matrix, given_priors.matrix, atol=1e-9)
    # known priors are information: the standard errors fall
    assert given_priors.stderr.mean() < natural.stderr.mean()


def test_uniform_priors_from_an_uneven_sample_estimate_the_even_population():
    uneven = imbalanced(3, ratio=20, length=3, random_state=0)
    even = type(uneven)(uneven.means)
    X, y = uneven.sample(60_000, 1)
    cm = collision_matrix_from_posteriors(uneven.posteriors(X), y, priors="uniform")
    assert mean_tvd(cm.matrix, even.collision_matrix().matrix) < 0.01
    by_hand = shift_priors(uneven.posteriors(X), uneven.priors, even.priors)
    assert np.allclose(by_hand, even.posteriors(X))


def replicate(problem, n, rng, priors, stratified=False):
    """Posteriors wrong by a random smooth tilt of size n^-1/2, labels drawn afresh."""
    X, y = problem.sample(n, rng, stratified=stratified)
    P = problem.posteriors(X)
    tilt = np.exp(X @ rng.standard_normal((X.shape[1], P.shape[1])) / np.sqrt(n))
    P = P * tilt
    return collision_matrix_from_posteriors(P / P.sum(axis=1, keepdims=True), y, priors=priors)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "priors", "n"),
    [(scenario_a(3), "empirical", 750), (scenario_a(5), "empirical", 1250), (scenario_a(3), "uniform", 750)],
    ids=["K=3", "K=5", "uniform priors"],
)
def test_nominal_95_percent_intervals_cover_93_to_97_percent(problem, priors, n):
    truth = problem.collision_matrix()
    rng = np.random.default_rng(2024)
    entries, pber, merged = [], [], []
    target = truth.merge([[0, 1]])
    for _ in range(1500):
        cm = replicate(problem, n, rng, priors)
        low, high = cm.interval()
        entries.append((low <= truth.matrix) & (truth.matrix <= high))
        low, high = cm.pber_interval()
        pber.append(low <= truth.pber <= high)
        low, high = cm.merge([[0, 1]]).interval()
        merged.append((low <= target.matrix) & (target.matrix <= high))
    assert 0.93 <= np.mean(entries) <= 0.97
    assert 0.93 <= np.mean(pber) <= 0.97
    assert 0.93 <= np.mean(merged) <= 0.97


def test_one_step_forgives_wrong_posteriors_that_averages_do_not():
    problem = scenario_a(3)
    truth = problem.collision_matrix().matrix
    X, y = problem.sample(60_000, 3)
    P = problem.posteriors(X) ** 0.8  # underconfident
    P /= P.sum(axis=1, keepdims=True)
    one_step = mean_tvd(collision_matrix_from_posteriors(P, y).matrix, truth)
    no_labels = mean_tvd(collision_matrix_from_posteriors(P).matrix, truth)
    averages = mean_tvd(np.stack([P[y == k].mean(axis=0) for k in range(3)]), truth)
    assert one_step < averages / 3
    assert one_step < no_labels / 3


def test_beyond_so_many_classes_given_priors_weigh_the_rows(monkeypatch):
    P, codes = random_posteriors(np.random.default_rng(5), 4000, 6, sharpness=3.0)
    target = np.linspace(1, 3, 6) / 12
    apart = collision_matrix_from_posteriors(P, codes, priors=target)
    monkeypatch.setattr(streams, "MAX_STRATA", 5)
    weighed = collision_matrix_from_posteriors(P, codes, priors=target)
    assert weighed.priors == pytest.approx(target)
    assert weighed.matrix == pytest.approx(apart.matrix, abs=1e-9)
    assert weighed.counts == pytest.approx(apart.counts)
    # the shares of the classes count as chance: never narrower, and not by much wider
    assert (weighed.stderr >= 0.999 * apart.stderr).all()
    assert (weighed.stderr <= 1.3 * apart.stderr).all()


def test_an_accumulator_of_too_many_classes_with_priors_says_what_to_do_instead():
    with pytest.raises(ValueError, match=r"priors with 500 classes.*sample_weight"):
        CollisionAccumulator(range(500), np.full(500, 1 / 500))
