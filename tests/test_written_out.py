"""Every sum behind an estimate against its formula written out, one unit at a time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from collidescope import (
    CollisionAccumulator,
    collision_matrix_from_posteriors,
    moments,
    project,
    shrunk_collision_matrix,
)
from collidescope._checks import LARGEST_WEIGHT, SMALLEST_WEIGHT
from collidescope.equations.projection import balance
from collidescope.estimate import of_moments, resolve_priors
from collidescope.estimate import Moments, row_blocks
from collidescope.estimate import labelled_moments, one_step_share, word_and_labels
from helpers import random_posteriors


@pytest.mark.parametrize("sign", ["positive", "negative", "both"])
@pytest.mark.parametrize("sparse", [False, True])
def test_moments_are_the_sums_over_units_written_out(sign, sparse):
    rng = np.random.default_rng(7)
    n, k = 30, 4
    a, H, rho, N = rng.normal(size=(n, k)), rng.normal(size=(n, k)), rng.random((n, k)), rng.random(n) + 0.5
    s = rng.uniform(-0.9, 0.9, n)
    s = np.abs(s) * {"positive": 1, "negative": -1, "both": np.sign(s)}[sign]
    if sparse:
        rho = np.where(rng.random((n, k)) < 0.03, rho, 0.0)
        rho[:k] += np.eye(k)
        rho[k:, :] = 0
    Z = np.stack([np.diag(a[u]) + s[u] * np.outer(H[u], H[u]) for u in range(n)])
    total = Moments(k, covariance=True)
    total.add(a[:20], s[:20], H[:20], rho[:20], N[:20])
    rest = Moments(k, covariance=True)
    rest.add(a[20:], s[20:], H[20:], rho[20:], N[20:])
    total.merge(rest)
    m, variance = total.ratio()
    ratio = Z.sum(axis=0) / rho.sum(axis=0)[:, None]
    left = Z - ratio * rho[:, :, None]
    assert np.allclose(m, ratio)
    assert np.allclose(variance, n / (n - 1) * (left**2).sum(axis=0) / rho.sum(axis=0)[:, None] ** 2)
    trace = np.trace(Z, axis1=1, axis2=2)
    pber = 1 - trace.sum() / N.sum()
    assert total.error()[0] == pytest.approx(pber)
    assert total.error()[1] == pytest.approx(n / (n - 1) * ((N - trace - pber * N) ** 2).sum() / N.sum() ** 2)
    i, j = np.triu_indices(k)
    V = Z[:, i, j] - Z.sum(axis=0)[i, j] / N.sum() * N[:, None]
    assert np.allclose(total.covariance(), n / (n - 1) * V.T @ V / N.sum() ** 2)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("single", [False, True])
def test_rows_with_labels_are_units_of_the_general_kind(monkeypatch, weighted, single):
    rng = np.random.default_rng(12)
    n, k = 90, 4
    P, codes = random_posteriors(rng, n, k)
    w = rng.random(n) + 0.5 if weighted else np.ones(n)
    monkeypatch.setattr(moments, "SINGLE_CLASSES", k if single else k + 1)
    short, long = Moments(k, covariance=True), Moments(k, covariance=True)
    for block in (slice(0, 50), slice(50, n)):
        short.add_labelled(P[block], codes[block], w[block], word=block.start > 0)
    a = w[:, None] * np.eye(k)[codes]
    long.add(a, -w, np.eye(k)[codes] - P, a, w)
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if single else {"rtol": 1e-9, "atol": 1e-12}
    for name, value in long.sums.items():
        assert np.allclose(short.sums[name], value, **tolerance), name
    assert np.abs(short.sums["Z"] - long.sums["Z"]).max() > 1e-12 if single else True


def test_weights_of_very_different_size_are_not_added_up_in_float32(monkeypatch):
    rng = np.random.default_rng(13)
    P, codes = random_posteriors(rng, 60, 3)
    w = np.geomspace(1e-6, 1, 60)
    exact = Moments(3, covariance=False)
    exact.add_labelled(P, codes, w)
    monkeypatch.setattr(moments, "SINGLE_CLASSES", 3)
    again = Moments(3, covariance=False)
    again.add_labelled(P, codes, w)
    assert np.array_equal(again.sums["ZZ"], exact.sums["ZZ"])


def test_one_unit_has_no_spread_and_rounding_is_no_variance():
    one = Moments(2, covariance=False)
    one.add(np.array([[1.0, 0.0]]), np.array([0.0]), np.zeros((1, 2)), np.ones((1, 2)), np.ones(1))
    assert one.ratio()[1].tolist() == [[0, 0], [0, 0]]
    assert one.covariance() is None
    same = Moments(2, covariance=False)
    for value in (0.1, 0.7, 1.3):  # every unit has the same ratio: the variance is a difference of equal numbers
        same.add(
            np.array([[value, value]]), np.array([0.0]), np.zeros((1, 2)), np.full((1, 2), value / 3), np.array([value])
        )
    assert np.diag(same.ratio()[1]).tolist() == [0, 0]
    assert same.error()[1] == pytest.approx(0, abs=1e-15)


def stratified(P, codes, w, priors):
    """As ``textbook``, for known priors: every class is a sample of its own."""
    k = P.shape[1]
    C = np.eye(k)[codes]
    phi = np.stack([np.outer(c, p) + np.outer(p, c) - np.outer(p, p) for c, p in zip(C, P, strict=True)])
    B, variance, error = np.zeros((k, k)), np.zeros((k, k)), 0.0
    for label, share in enumerate(priors):
        own = codes == label
        v, bessel = w[own], own.sum() / (own.sum() - 1)
        mean = np.average(phi[own], axis=0, weights=v)
        B += share * mean
        variance += share**2 * bessel * (v[:, None, None] ** 2 * (phi[own] - mean) ** 2).sum(axis=0) / v.sum() ** 2
        off = 1 - np.trace(phi[own], axis1=1, axis2=2)
        error += share**2 * bessel * (v**2 * (off - np.average(off, weights=v)) ** 2).sum() / v.sum() ** 2
    return B, np.sqrt(variance) / priors[:, None], np.sqrt(error)


def test_known_priors_make_every_class_a_sample_of_its_own():
    rng = np.random.default_rng(8)
    P, codes = random_posteriors(rng, 900, 3)
    w, priors = rng.random(900) + 0.1, np.array([0.2, 0.5, 0.3])
    cm = CollisionAccumulator(range(3), priors).update(P, codes, w).result()
    B, stderr, pber_stderr = stratified(P, codes, w, priors)
    assert np.allclose(cm.stderr, stderr, rtol=1e-9)
    assert cm.pber_stderr == pytest.approx(pber_stderr, rel=1e-9)
    assert np.array_equal(cm.priors, priors)
    balanced = project(B, priors)
    assert np.allclose(cm.joint, balanced.joint, atol=1e-12)
    assert cm.info["moved"] == pytest.approx(balanced.moved)
    assert cm.info["method"] == "one-step"


def test_without_labels_standard_errors_follow_the_outer_products():
    rng = np.random.default_rng(9)
    P, _ = random_posteriors(rng, 80, 3)
    w = rng.random(80) + 0.1
    cm = CollisionAccumulator(range(3)).update(P, sample_weight=w).result()
    phi = P[:, :, None] * P[:, None, :]
    S = np.average(phi, axis=0, weights=w) / np.average(P, axis=0, weights=w)[:, None]
    influence = (phi - S * P[:, :, None]) / np.average(P, axis=0, weights=w)[:, None]
    assert np.allclose(cm.matrix, S)
    assert np.allclose(cm.stderr, np.sqrt(80 / 79 * (w[:, None, None] ** 2 * influence**2).sum(axis=0)) / w.sum())
    off = 1 - (P**2).sum(axis=1)
    excess = w * (off - np.average(off, weights=w))
    assert cm.pber_stderr == pytest.approx(np.sqrt(80 / 79 * excess @ excess) / w.sum())
    assert np.allclose(cm.counts, (w @ P) ** 2 / (w**2 @ P))
    assert cm.info["method"] == "mean of p pᵀ"


def test_counts_are_the_effective_number_of_rows_of_each_class():
    P, codes = random_posteriors(np.random.default_rng(10), 50, 2)
    w = np.linspace(0.5, 2, 50)
    expected = [w[codes == k].sum() ** 2 / (w[codes == k] ** 2).sum() for k in range(2)]
    assert CollisionAccumulator(range(2)).update(P, codes, w).result().counts == pytest.approx(expected)
    assert CollisionAccumulator(range(2), [0.5, 0.5]).update(P, codes, w).result().counts == pytest.approx(expected)


@pytest.mark.parametrize("road", ["one-step", "no labels", "priors"])
def test_blocks_of_rows_change_nothing(monkeypatch, road):
    P, codes = random_posteriors(np.random.default_rng(11), 100, 3)
    arguments = (P, None if road == "no labels" else codes, np.linspace(0.5, 2, 100))
    priors = [0.2, 0.3, 0.5] if road == "priors" else None
    whole = CollisionAccumulator(range(3), priors).update(*arguments).result()
    monkeypatch.setattr(moments, "BLOCK_NUMBERS", 42)
    assert len(row_blocks(100, 3)) == 15  # of 7 rows, 6 numbers each
    blocked = CollisionAccumulator(range(3), priors).update(*arguments).result()
    for name in ("matrix", "priors", "stderr", "pber_stderr", "counts", "covariance"):
        assert np.allclose(getattr(blocked, name), getattr(whole, name), rtol=1e-9, atol=1e-12)


def test_blocks_cover_every_row_once_and_hold_about_as_many_numbers_as_they_may():
    for n, k in ((10, 2), (5_000_000, 2), (100_000, 32), (100_000, 33), (3, 10**6)):
        blocks = row_blocks(n, k)
        assert blocks[0].start == 0
        assert all(a.stop == b.start for a, b in itertools.pairwise(blocks))
        assert blocks[-1].start < n <= blocks[-1].stop
        numbers = (blocks[0].stop - blocks[0].start) * (k * (k + 1) // 2 if k <= 32 else 6 * k)
        assert numbers <= 2_000_000 or (k > 32 and blocks[0].stop == 4096)
    assert row_blocks(5_000_000, 2)[0].stop == 2_000_000 // 3
    assert row_blocks(100_000, 33)[0].stop == 2_000_000 // (6 * 33)


def test_priors_may_be_named_or_given():
    counts, names = np.array([30.0, 10.0]), np.array(["a", "b"])
    assert resolve_priors("empirical", counts, names).tolist() == [0.75, 0.25]
    assert resolve_priors("uniform", counts, names).tolist() == [0.5, 0.5]
    assert resolve_priors([0.9, 0.1], counts, names).tolist() == [0.9, 0.1]
    with pytest.raises(ValueError, match=r"classes \['b'\] have no rows"):
        resolve_priors("uniform", np.array([1.0, 0.0]), names)


def written_out(P, codes, w):
    """The model's word, the one-step estimate, and the variance of their difference, one row at a time."""
    k = P.shape[1]
    word, labels, square = np.zeros((k, k)), np.zeros((k, k)), np.zeros((k, k))
    for p, c, v in zip(P, np.eye(k)[codes], w, strict=True):
        word += v * np.outer(p, p)
        labels += v * (np.outer(c, p) + np.outer(p, c) - np.outer(p, p))
        square += v**2 * (np.outer(c - p, p) + np.outer(p, c - p)) ** 2
    return word, labels, square - (w @ w) * (labels - word) ** 2


@pytest.mark.parametrize("block", [2_000_000, 60])
def test_the_two_estimates_and_the_variance_of_their_difference_are_the_sums_written_out(monkeypatch, block):
    rng = np.random.default_rng(4)
    P, codes = random_posteriors(rng, 70, 3)
    w = rng.random(70) + 0.1
    monkeypatch.setattr(moments, "BLOCK_NUMBERS", block)
    monkeypatch.setattr(moments, "LEAST_ROWS", 1)
    for given in (w, None):
        v = np.ones(70) if given is None else given
        ours = word_and_labels(labelled_moments(P, codes, given, 3))
        for found, expected in zip(ours, written_out(P, codes, v / v.sum()), strict=True):
            assert np.allclose(found, expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("size", [1e-4, 3e-4, 1e-3])
def test_the_share_is_the_upper_end_of_the_bias_over_bias_and_noise(size):
    k = 12
    priors = np.linspace(1, 2, k)
    priors /= priors.sum()
    scale = np.outer(priors, priors)
    V = 1e-6 * scale  # equal noise in every entry: k²/2 of them are independent
    difference = size * np.sqrt(scale)
    noise, seen = k**2 * 1e-6, k**2 * size**2
    bias = max(seen - noise + 2.5 * noise * np.sqrt(2 / (k**2 / 2)), 0.0)
    assert one_step_share(difference, V, priors) == pytest.approx(bias / (bias + noise))


def test_uneven_noise_has_fewer_independent_entries_and_too_few_keep_the_one_step_estimate():
    priors = np.full(30, 1 / 30)
    V = np.full((30, 30), 1e-12)
    V[:7, :7] = 1e-6  # about 49 entries carry all noise, half of them repeat the others: 24.5
    assert one_step_share(np.zeros((30, 30)), V, priors) == 1.0
    V[:8, :8] = 1e-6
    assert one_step_share(np.zeros((30, 30)), V, priors) < 1.0
    noise = np.full((10, 10), 1e-6)
    noise[:5, :5] *= 3  # (75 + 75)² / (25·9 + 75) / 2 = 37.5
    d = np.full((10, 10), 2e-3)
    bias = 100 * 4e-6 - 150e-6 + 2.5 * 150e-6 * np.sqrt(2 / 37.5)
    assert one_step_share(d, noise, np.full(10, 0.1)) == pytest.approx(bias / (bias + 150e-6))


@pytest.mark.parametrize("priors", ["empirical", "uniform"])
def test_the_result_is_the_word_and_its_share_of_the_difference_at_the_wanted_priors(priors):
    rng = np.random.default_rng(6)
    k, n = 30, 4000
    P, codes = random_posteriors(rng, n, k, sharpness=3.0)
    keep = rng.random(n) < np.linspace(0.3, 1.0, k)[codes]
    keep[:k] = True
    P, codes, w = P[keep], codes[keep], rng.random(keep.sum()) + 0.5
    counts = np.bincount(codes, w)
    target = counts / counts.sum() if priors == "empirical" else np.full(k, 1 / k)
    at = P * (target / (counts / counts.sum()))
    at /= at.sum(axis=1, keepdims=True)
    v = w * (target / counts)[codes]
    word, labels, variance = written_out(at, codes, v / v.sum())
    word = balance(word, target)
    share = one_step_share(labels - word, variance, target)
    B = project(word + share * (labels - word), target).joint
    cm = shrunk_collision_matrix(P, codes, priors=priors, sample_weight=w)
    assert 0 < share < 1
    assert cm.info["one_step_share"] == pytest.approx(share)
    assert np.allclose(cm.joint, B, atol=1e-9)
    plain = collision_matrix_from_posteriors(P, codes, priors=priors, sample_weight=w)
    assert cm.pber_stderr == plain.pber_stderr
    assert np.array_equal(cm.counts, plain.counts)
    assert np.array_equal(cm.covariance, plain.covariance)
    assert cm.info["moved"] == plain.info["moved"]


@pytest.mark.parametrize("weight", [LARGEST_WEIGHT, SMALLEST_WEIGHT])
def test_weights_whose_squares_would_overflow_or_vanish_are_refused(weight):
    P, codes = random_posteriors(np.random.default_rng(14), 10, 2)
    w = np.ones(10)
    w[3] = weight
    CollisionAccumulator(range(2)).update(P, codes, w)
    w[3] *= 1.01 if weight > 1 else 0.99
    with pytest.raises(ValueError, match="sample_weight must be 0 or between"):
        CollisionAccumulator(range(2)).update(P, codes, w)
    w[3] = 0.0
    assert CollisionAccumulator(range(2)).update(P, codes, w).n_rows == 10


@pytest.mark.parametrize("kind", ["twos", "zeros", "millionths", "tiny posteriors"])
@pytest.mark.parametrize("single", [False, True])
def test_equal_weights_weights_of_zero_and_tiny_posteriors_add_up_as_all_others(monkeypatch, kind, single):
    rng = np.random.default_rng(15)
    n, k = 60, 3
    P, codes = random_posteriors(rng, n, k)
    weights = {"twos": 2.0, "zeros": np.where(np.arange(n) % 3, 1e6, 0.0), "millionths": 1e-6}
    w = np.ones(n) * weights.get(kind, 1.0)
    if kind == "tiny posteriors":
        P[::2, 0] = 1e-30
        P /= P.sum(axis=1, keepdims=True)
    monkeypatch.setattr(moments, "SINGLE_CLASSES", k if single else k + 1)
    short, long = Moments(k, covariance=False), Moments(k, covariance=False)
    short.add_labelled(P, codes, w)
    a = w[:, None] * np.eye(k)[codes]
    long.add(a, -w, np.eye(k)[codes] - P, a, w)
    for name, value in long.sums.items():
        assert np.allclose(short.sums[name], value, rtol=1e-4 if single else 1e-9, atol=1e-5 * w.max() ** 2), name
    # What was added up in float32 calls more of a variance rounding, also after a merge.
    assert short._rounding == (1e-6 if single else 1e-14)
    long.merge(short)
    assert long._rounding == short._rounding


def test_what_is_merged_stays_as_it_was():
    P, codes = random_posteriors(np.random.default_rng(16), 40, 3)
    part, whole = labelled_moments(P, codes, None, 3), Moments(3, covariance=True)
    before = {name: np.array(value) for name, value in part.sums.items()}
    whole.merge(part)
    whole.merge(part)
    for name, value in before.items():
        assert np.array_equal(part.sums[name], value), name
        assert np.allclose(whole.sums[name], 2 * value), name
        assert np.asarray(whole.sums[name]).dtype == np.float64


def test_two_units_have_the_spread_of_two():
    two = Moments(2, covariance=False)
    a = np.array([[0.2, 0.4], [0.6, 0.4]])
    two.add(a, np.zeros(2), np.zeros((2, 2)), np.ones((2, 2)), np.ones(2))
    assert two.ratio()[1][0, 0] == pytest.approx(2 * (0.2**2 + 0.2**2) / 2**2)


def test_parts_count_their_rows_and_remember_whether_they_had_labels():
    P, codes = random_posteriors(np.random.default_rng(17), 30, 3)
    twice = CollisionAccumulator(range(3)).update(P[:20], codes[:20]).update(P[20:], codes[20:])
    assert twice.n_rows == 30
    for first, second in ((CollisionAccumulator(range(3)), twice), (twice, CollisionAccumulator(range(3)))):
        merged = first.merge(second)
        assert merged.n_rows == 30
        assert merged.result().info["method"] == "one-step"
        with pytest.raises(ValueError, match="y must be given in every update or in none"):
            merged.update(P)


def test_classes_may_have_little_weight_and_counts_follow_from_the_sums():
    P, codes = random_posteriors(np.random.default_rng(18), 40, 2)
    w = np.linspace(0.001, 0.002, 40)
    light = CollisionAccumulator(range(2)).update(P, codes, w).result()
    assert np.allclose(light.matrix, CollisionAccumulator(range(2)).update(P, codes, 1000 * w).result().matrix)
    assert resolve_priors("empirical", np.array([0.25, 0.75]), np.arange(2)).tolist() == [0.25, 0.75]
    expected = [w[codes == k].sum() ** 2 / (w[codes == k] ** 2).sum() for k in range(2)]
    cm = of_moments(labelled_moments(P, codes, w, 2), np.arange(2))
    assert cm.counts == pytest.approx(expected)
    assert np.allclose(cm.matrix, light.matrix)


def test_shrinkage_takes_lists_and_classes_in_any_order_and_survives_the_absence_of_noise():
    P, codes = random_posteriors(np.random.default_rng(19), 1500, 30, sharpness=3.0)
    turn = np.random.default_rng(20).permutation(30)
    plain = shrunk_collision_matrix(P, codes)
    turned = shrunk_collision_matrix(P[:, turn].tolist(), codes.tolist(), classes=turn)
    assert turned.classes.tolist() == turn.tolist()
    assert np.allclose(turned.matrix, plain.matrix[np.ix_(turn, turn)], atol=1e-6)
    assert one_step_share(np.zeros((30, 30)), np.zeros((30, 30)), np.full(30, 1 / 30)) == 1.0
    even = shrunk_collision_matrix(P, codes, priors=np.full(30, 1 / 30))
    assert np.allclose(even.matrix, shrunk_collision_matrix(P, codes, priors="uniform").matrix)
