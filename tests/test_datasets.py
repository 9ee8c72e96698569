"""Generators whose truth is known: draws, posteriors and truth must tell the same story."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from collidescope import collision_matrix_from_posteriors
from collidescope import datasets as ds
from collidescope.datasets import (
    GaussianProblem,
    scenario_a,
    scenario_b,
)
from studies import known
from studies.known import imbalanced, led, waveform, with_label_noise

NOISE = 0.85 * np.eye(3) + 0.15 * np.array([[0, 1, 0], [0, 0, 1], [0.5, 0.5, 0]])
PROBLEMS = {f"A{k}": scenario_a(k) for k in (3, 4, 5)} | {
    "B": scenario_b(0.25),
    "led": led(0.15),
}
PROBLEMS |= {
    "equidistant": ds.equidistant(4, 6, 3.0, random_state=0),
    "imbalanced": imbalanced(4, 30, random_state=1),
}
PROBLEMS |= {
    "noisy A3": with_label_noise(scenario_a(3), NOISE),
    "noisy spiral": with_label_noise(known.spiral(), NOISE),
}
PROBLEMS |= {"noisy led": with_label_noise(led(0.1), 0.9 * np.eye(10) + 0.01)}
OTHERS = (
    *(
        "ring",
        "twonorm",
        "ringnorm",
        "waveform",
        "heavy_tailed",
        "mlp_teacher",
        "tree_teacher",
    ),
    *("chessboard", "friedman", "sparse_words", "spiral", "interactions", "tangled"),
)
PROBLEMS |= {name: getattr(known, name)() for name in OTHERS}


@pytest.mark.parametrize("name", PROBLEMS)
def test_draws_agree_with_the_truth(name):
    problem = PROBLEMS[name]
    truth = problem.collision_matrix()
    X, y = problem.sample(40_000, 0, stratified=False)
    P = problem.posteriors(X)
    cm = collision_matrix_from_posteriors(P, y, classes=problem.classes)
    # rare collisions go unseen
    z = (cm.matrix - truth.matrix) / np.hypot(cm.stderr, 1 / cm.counts[:, None])
    assert np.abs(z).max() < 5
    assert abs(cm.pber - truth.pber) < 4 * cm.pber_stderr
    # labels are drawn from the posteriors: calibrated in every class
    codes = np.searchsorted(problem.classes, y)
    residual = (np.eye(P.shape[1])[codes] - P).mean(axis=0)
    assert np.abs(residual).max() < 4 * np.sqrt(0.25 / 40_000)
    error = (P.argmax(axis=1) != codes).mean()
    assert abs(error - problem.bayes_error()) < 4 * np.sqrt(0.25 / 40_000)
    low, high = truth.bayes_error_bounds()
    # the chessboard, where all inputs are as hard, is at the bound
    assert low - 1e-12 < problem.bayes_error() < high


def test_rows_of_another_width_are_refused():
    with pytest.raises(ValueError, match="X must have 4 columns, got 300"):
        scenario_a(3).posteriors(np.zeros((1, 300)))


@pytest.mark.parametrize(
    "means",
    [[[-1, -1, 0], [0, 0, 0], [2, 2, 0]], [[0, 0, 0], [1, 0, 0], [0, 2, 2], [1, 1, 1]]],
)
def test_drawn_truth_agrees_with_quadrature(means):
    problem = GaussianProblem(means)
    B = sum(P.T @ (w[:, None] * P) for P, w in problem.drawn_nodes())
    assert (
        np.abs(
            B / B.sum(axis=1, keepdims=True) - problem.collision_matrix().matrix
        ).max()
        < 0.003
    )


def test_scenarios_are_those_of_the_paper():
    assert scenario_a(3).means.tolist() == [[0.25] * 4, [-0.25] * 4, [1.25] * 4]
    assert scenario_b(0.15).means[:, 0].tolist() == pytest.approx(
        [-0.45, -0.15, 0.15, 0.75, 1.5]
    )
    assert scenario_b(0.15).means.shape == (5, 20)
    assert (
        scenario_b(0.35).bayes_error()
        < scenario_b(0.25).bayes_error()
        < scenario_b(0.15).bayes_error()
    )
    means = ds.equidistant(5, 7, 3.0, random_state=3).means
    assert np.linalg.norm(np.diff(means, axis=0), axis=1) == pytest.approx(
        np.full(4, 0.75)
    )
    assert np.linalg.norm(means[-1] - means[0]) == pytest.approx(3)


def test_stratified_samples_have_shares_as_near_as_whole_numbers_allow():
    problem = imbalanced(3, 100)
    _, y = problem.sample(1000, 0)
    assert np.abs(np.bincount(y) - 1000 * problem.priors).max() < 1


def test_a_sample_follows_from_its_seed():
    problem = imbalanced(3, 100)
    first, again, other = (problem.sample(20, seed)[0] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_noise_turns_clean_labels_into_collisions():
    clean = GaussianProblem([[0.0], [100.0], [200.0]])
    noisy = with_label_noise(clean, NOISE)
    assert clean.collision_matrix().pber < 1e-9
    # with separable inputs P(seen again in j | seen in i) mixes the rows of the transition by the
    # source of i
    source = (clean.priors[:, None] * NOISE) / noisy.priors
    assert np.allclose(noisy.collision_matrix().matrix, source.T @ NOISE, atol=1e-9)


def test_gaussian_posteriors_hold_far_out():
    even, uneven = (
        GaussianProblem([[-1.0], [1.0]]),
        GaussianProblem([[-1.0], [1.0]], [1.0, 2.0]),
    )
    assert even.posteriors([[1e17], [-1e200]]).tolist() == [[0, 1], [1, 0]]
    assert uneven.posteriors([[1e17], [-1e200]]).tolist() == [
        [0, 1],
        [0, 1],
    ]  # the wider one wins on both sides
    shifted = GaussianProblem([[1e6 - 1], [1e6 + 1]])
    assert_allclose(
        shifted.posteriors([[1e6 + 0.5]]), even.posteriors([[0.5]]), rtol=1e-9
    )


def test_breimans_problems_have_their_published_bayes_errors():
    """Breiman (1996, 1998): twonorm 2.3%, ringnorm 1.3%, waveform 14% (of one test set), LED 26% at
    10% noise."""
    assert led(0.1).bayes_error() == pytest.approx(0.26, abs=0.001)
    for name, error, within in (
        ("twonorm", 0.023, 0.0005),
        ("ringnorm", 0.013, 0.0007),
        ("waveform", 0.14, 0.008),
    ):
        assert PROBLEMS[name].bayes_error() == pytest.approx(error, abs=within)


def test_densities_of_waveforms_are_integrals_over_the_mixing_weight():
    X, _ = waveform().sample(20, 0)
    waves = np.maximum(6 - np.abs(np.arange(1, 22) - np.array([[11], [7], [15]])), 0.0)
    u, density = (np.arange(20_000) + 0.5) / 20_000, np.empty((20, 3))
    for k, (a, b) in enumerate([(0, 1), (0, 2), (1, 2)]):
        centres = np.outer(u, waves[a]) + np.outer(1 - u, waves[b])
        density[:, k] = [
            np.exp(-((x - centres) ** 2).sum(axis=1) / 2).mean() for x in X
        ]
    assert_allclose(
        waveform().posteriors(X),
        density / density.sum(axis=1, keepdims=True),
        atol=1e-6,
    )


def test_the_chessboard_says_nothing_in_any_single_coordinate():
    X, y = known.chessboard(3, fields=2, noise=0.1).sample(20_000, 0, stratified=False)
    halves = np.floor(2 * X).astype(int)
    for j in range(3):
        assert abs(np.mean(y[halves[:, j] == 0]) - 0.5) < 0.02
    assert np.mean(y == halves.sum(axis=1) % 2) == pytest.approx(0.9, abs=0.01)
