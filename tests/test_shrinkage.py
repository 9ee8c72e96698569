"""Many classes: the one-step estimate drawn towards the plug-in estimate, as far as the labels
allow."""

import numpy as np
import pytest

from collidescope import collision_matrix_from_posteriors
from collidescope.datasets import GaussianProblem
from collidescope.equations.projection import balance, project
from collidescope.equations.shrinkage import (
    one_step_share,
    plug_in_and_one_step,
    with_pber,
)
from collidescope.onestep import labelled_moments, shrunk_collision_matrix
from helpers import mean_tvd, random_posteriors, tempered


@pytest.mark.parametrize(("priors", "power"), [("uniform", 1.0), ("empirical", 1.15)])
def test_shrinking_many_classes_lowers_the_error(priors, power):
    """At the PBER of the one-step estimate, with intervals that cover."""
    problem = GaussianProblem(1.5 * np.random.default_rng(0).standard_normal((30, 4)))
    truth = problem.collision_matrix()
    rng, found = np.random.default_rng(0), []
    for _ in range(6):
        X, y = problem.sample(3000, rng)
        P = tempered(problem.posteriors(X), power)
        one_step = collision_matrix_from_posteriors(P, y, priors=priors)
        cm = shrunk_collision_matrix(P, y, priors=priors)
        assert cm.pber == pytest.approx(one_step.pber, abs=1e-12)
        errors = [mean_tvd(each.matrix, truth.matrix) for each in (one_step, cm)]
        (low, high), (least, most) = cm.interval(), cm.pber_interval()
        inside = ((low <= truth.matrix) & (truth.matrix <= high)).mean()
        found.append([*errors, inside, least <= truth.pber <= most])
    plain, shrunk, inside, pber = np.mean(found, axis=0)
    assert shrunk < 0.7 * plain
    assert inside > 0.93
    assert pber >= 5 / 6


@pytest.mark.parametrize("k", [2, 10])
def test_few_classes_keep_the_one_step_estimate(k):
    P, codes = random_posteriors(np.random.default_rng(k), 200 * k, k, sharpness=3.0)
    assert shrunk_collision_matrix(P, codes) == collision_matrix_from_posteriors(
        P, codes
    )
    with pytest.raises(ValueError, match=r"classes \['new'\] have no rows"):
        shrunk_collision_matrix(
            np.column_stack([P, 0 * codes]), codes, classes=[*range(k), "new"]
        )


def two_estimates(P, codes, w):
    """Plug-in, one-step and the variance of their difference; weights sum to 1."""
    C, R = P[:, :, None], (np.eye(P.shape[1])[codes] - P)[:, :, None]
    plug_in = np.tensordot(w, C * P[:, None], 1)
    each = R * P[:, None]
    each += each.swapaxes(1, 2)
    gap = np.tensordot(w, each, 1)
    return plug_in, plug_in + gap, np.tensordot(w**2, each**2, 1) - (w @ w) * gap**2


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [3, 40, 150])
def test_both_estimates_are_the_sums_written_out(k, weighted):
    rng = np.random.default_rng(4)
    P, codes = random_posteriors(rng, 300, k)
    w = rng.random(300) + 0.1 if weighted else np.ones(300)
    given = w if weighted else None
    found = plug_in_and_one_step(labelled_moments(P, codes, given, k))
    plug_in, one_step, variance = two_estimates(P, codes, w / w.sum())
    expected = plug_in, one_step, np.maximum(variance, 0)
    rtol, atol = (1e-4, 1e-6) if k > 100 else (1e-9, 1e-15)
    for ours, theirs in zip(found, expected, strict=True):
        assert np.allclose(ours, theirs, rtol=rtol, atol=atol)


@pytest.mark.parametrize("size", [1e-4, 1e-3])
def test_the_share_is_the_upper_end_of_the_bias_over_bias_and_noise(size):
    k = 12
    priors = np.linspace(1, 2, k) / np.linspace(1, 2, k).sum()
    scale = np.outer(priors, priors)
    V = 1e-6 * scale  # equal noise in every entry: k²/2 of them are independent
    noise, seen = k**2 * 1e-6, k**2 * size**2
    bias = max(seen - noise + 2.5 * noise * np.sqrt(2 / (k**2 / 2)), 0.0)
    assert one_step_share(size * np.sqrt(scale), V, priors) == pytest.approx(
        bias / (bias + noise)
    )


def test_too_few_independent_entries_keep_the_one_step_estimate():
    priors, V = np.full(30, 1 / 30), np.full((30, 30), 1e-12)
    V[:7, :7] = (
        1e-6  # about 49 entries carry all noise, half of them repeat the others: 24.5
    )
    assert one_step_share(np.zeros((30, 30)), V, priors) == 1.0
    V[:8, :8] = 1e-6
    assert one_step_share(np.zeros((30, 30)), V, priors) < 1.0
    noise = np.full((10, 10), 1e-6)
    noise[:5, :5] *= 3  # (75 + 75)² / (25·9 + 75) / 2 = 37.5
    bias = 100 * 4e-6 - 150e-6 + 2.5 * 150e-6 * np.sqrt(2 / 37.5)
    share = one_step_share(np.full((10, 10), 2e-3), noise, np.full(10, 0.1))
    assert share == pytest.approx(bias / (bias + 150e-6))
    assert one_step_share(np.zeros((30, 30)), np.zeros((30, 30)), priors) == 1.0


@pytest.fixture(scope="module")
def thirty():
    """(posteriors, codes, weights) of thirty classes."""
    rng = np.random.default_rng(6)
    P, codes = random_posteriors(rng, 3000, 30, sharpness=3.0)
    return P, codes, rng.random(3000) + 0.5


@pytest.mark.parametrize("priors", ["empirical", "uniform"])
def test_the_result_is_the_scaled_plug_in_plus_a_share_of_the_difference(
    thirty, priors
):
    P, codes, w = thirty
    counts = np.bincount(codes, w)
    own = counts / counts.sum()
    target = own if priors == "empirical" else np.full(30, 1 / 30)
    at = P * (target / own)
    at /= at.sum(axis=1, keepdims=True)
    v = w * (target / counts)[codes]
    plug_in, labels, variance = two_estimates(at, codes, v / v.sum())
    plain = collision_matrix_from_posteriors(P, codes, priors=priors, sample_weight=w)
    off = np.diag(target) - balance(plug_in, target)
    plug_in = np.diag(target) - plain.pber / np.trace(off) * off
    share = one_step_share(labels - plug_in, variance, target)
    both = project(plug_in + share * (labels - plug_in), target).joint
    B = with_pber(both, target, plain.pber)
    cm = shrunk_collision_matrix(P, codes, priors=priors, sample_weight=w)
    assert 0 < share < 1
    assert cm.diagnostics.one_step_share == pytest.approx(share)
    assert np.allclose(cm.joint, B, atol=1e-9)
    assert np.linalg.eigvalsh(B / np.sqrt(np.outer(target, target)))[0] > -1e-6
    assert cm.balance_gap < 1e-12


def test_shrinking_changes_the_matrix_alone(thirty):
    plain, cm = (
        f(*thirty[:2])
        for f in (collision_matrix_from_posteriors, shrunk_collision_matrix)
    )
    kept = ("stderr", "counts", "covariance", "priors", "pber_stderr", "held_out_error")
    for name in kept:
        assert np.array_equal(getattr(cm, name), getattr(plain, name)), name
    assert cm.method == "one-step, shrunk"
    assert cm.diagnostics.moved == plain.diagnostics.moved


def test_shrinking_counts_groups(thirty):
    cm = shrunk_collision_matrix(*thirty[:2], groups=np.arange(3000) // 10)
    assert cm.n_units == pytest.approx(300)


def test_a_matrix_is_moved_to_a_pber_within_the_possible_ones():
    Y = np.random.default_rng(0).dirichlet(np.ones(4), 50)
    B = Y.T @ Y / 50
    priors = B.sum(axis=1)
    for pber in (0.0, 0.3, 1 - np.trace(B), 0.72):
        moved = with_pber(B, priors, pber)
        assert 1 - np.trace(moved) == pytest.approx(pber)
        assert moved.sum(axis=1) == pytest.approx(priors)
        assert moved.min() >= 0
        assert np.linalg.eigvalsh(moved)[0] > -1e-12
    # no more than nothing but chance
    assert with_pber(B, priors, 0.99) == pytest.approx(np.outer(priors, priors))
    assert with_pber(np.diag(priors), priors, 0.0) == pytest.approx(np.diag(priors))
