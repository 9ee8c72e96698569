"""Algorithms 1 and 2 as the paper prints them: planted truth, and every departure from ours."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from collidescope import CollisionClassifier
from collidescope._checks import CollisionWarning
from collidescope.datasets import scenario_a
from collidescope.equations.densities import draw_classes
from collidescope.pairwise.printed import (
    PrintedSettings,
    descent_direction,
    expected_similarity,
    is_feasible,
    nearest_dominant,
    printed_fit,
    solve_printed,
    step_a,
    step_b,
    step_c,
)
from studies.known import imbalanced

SMALL = PrintedSettings(hidden_layer_sizes=(16,), max_epochs=3, max_steps=200)


class KnownSimilarity:
    """Sim of rows that are posteriors."""

    def grid(self, A, B):
        return np.asarray(A) @ np.asarray(B).T

    def pairs(self, A, B):
        return (np.asarray(A) * np.asarray(B)).sum(axis=1)


def planted_matrix(k=3, seed=0):
    """A dominant symmetric stochastic matrix."""
    off = np.random.default_rng(seed).uniform(0.02, 0.1, (k, k))
    S = (off + off.T) / 2
    np.fill_diagonal(S, 0)
    np.fill_diagonal(S, 1 - S.sum(axis=1))
    return S


@pytest.fixture(scope="module")
def fitted():
    X, y = scenario_a(3).sample(150, 0)
    return printed_fit(X, y, 3, SMALL, seed=1), X


def test_who_watches_step_a_sees_v_after_every_epoch():
    X, y = scenario_a(3).sample(60, 0)
    seen = {}

    def watch(epoch, V):
        seen[epoch] = V.grid(X[:3], X[:4])

    last = step_a(X, y, SMALL, seed=2, watch=watch).grid(X[:3], X[:4])
    first = step_a(X, y, replace(SMALL, max_epochs=1), seed=2).grid(X[:3], X[:4])
    assert list(seen) == [1, 2, 3]
    assert_allclose(seen[1], first, atol=1e-6)
    assert_allclose(seen[3], last, atol=1e-6)
    assert np.abs(first - last).max() > 1e-4


def test_step_b_asks_for_m_pairs_of_every_entry():
    asked = []

    class Counting(KnownSimilarity):
        def pairs(self, A, B):
            asked.append(len(A))
            return super().pairs(A, B)

    step_b(Counting(), [np.eye(3)] * 3, pairs_per_entry=11)
    assert asked == [11] * 9


def test_random_pairs_come_near_the_mean_over_all(rng):
    parts = [rng.dirichlet(np.ones(3), 50) for _ in range(3)]
    m = 20_000
    near = step_b(KnownSimilarity(), parts, m, rng)
    # Sim of these rows varies by less than .3
    assert np.abs(near - step_b(KnownSimilarity(), parts)).max() < 5 * 0.3 / np.sqrt(m)


def test_step_c_finds_a_planted_dominant_matrix():
    S = planted_matrix()
    found = step_c(S @ S.T, tolerance=1e-3, step_size=1e-3)
    assert found.converged
    assert_allclose(found.matrix, S, atol=2e-3)


def test_the_descent_direction_is_the_gradient_of_the_objective(rng):
    S = planted_matrix() + rng.normal(0, 0.03, (3, 3))
    G = rng.uniform(size=(3, 3))
    penalty = 0.3

    def objective(S):
        penalties = np.abs(S.sum(axis=1) - 1).sum() - np.minimum(S, 0).sum()
        return np.linalg.norm(S @ S.T - G) + penalty * penalties

    step = 1e-6
    numeric = np.zeros((3, 3))
    for place in np.ndindex(3, 3):
        change = np.zeros((3, 3))
        change[place] = step
        numeric[place] = (objective(S + change) - objective(S - change)) / (2 * step)
    assert_allclose(descent_direction(S, G, penalty)[0], numeric, atol=1e-6)


def test_a_stack_of_matrices_descends_as_each_does_alone(rng):
    S = rng.uniform(size=(4, 3, 3))
    G = rng.uniform(size=(4, 3, 3))
    slopes, gaps = descent_direction(S, G, 0.1)
    for each in range(4):
        slope, gap = descent_direction(S[each], G[each], 0.1)
        assert_allclose(slopes[each], slope)
        assert gaps[each] == pytest.approx(gap)


def test_a_descent_that_reaches_its_limit_of_steps_says_so():
    found = step_c(np.full((3, 3), 1.0), max_steps=20)
    assert not found.converged
    assert found.steps == 20


def test_the_descent_can_end_with_rows_that_do_not_sum_to_one():
    # G of V without the logit shift: its rows sum to more than 1, and no stochastic S fits
    S = planted_matrix()
    similarity = S @ S.T
    odds = 2 * similarity / (1 - similarity)
    found = step_c(odds / (1 + odds), step_size=1e-3, max_steps=5_000)
    assert np.abs(found.row_sums - 1).max() > 0.01


def test_the_descent_may_start_at_another_dominant_matrix():
    S = planted_matrix()
    assert step_c(S @ S.T, start=S).steps == 0
    with pytest.raises(ValueError, match="start must have the shape of G"):
        step_c(S @ S.T, start=np.eye(2))


def test_the_nearest_dominant_matrix_is_feasible():
    for S in np.random.default_rng(0).normal(0.3, 0.5, (50, 4, 4)):
        assert is_feasible(nearest_dominant(S))


def test_no_feasible_matrix_is_nearer_than_the_nearest(rng):
    S = rng.normal(0.3, 0.4, (4, 4))
    nearest = nearest_dominant(S)
    distance = np.linalg.norm(S - nearest)
    for other in rng.dirichlet(np.ones(4), (2000, 4)):
        feasible = (other + np.eye(4)) / 2
        assert np.linalg.norm(S - feasible) >= distance - 1e-12
        # nor one a small step away from the nearest
        close = 0.99 * nearest + 0.01 * feasible
        assert np.linalg.norm(S - close) >= distance - 1e-12


def test_a_feasible_matrix_is_its_own_nearest():
    S = planted_matrix()
    assert_allclose(nearest_dominant(S), S, atol=1e-12)


def test_a_projected_descent_stays_in_the_feasible_set():
    truth = scenario_a(5).collision_matrix().matrix
    assert not is_feasible(truth)
    assert is_feasible(step_c(truth @ truth.T, max_steps=50, feasible=True).matrix)


def test_a_fit_can_be_kept_in_the_feasible_set():
    X, y = scenario_a(3).sample(150, 0)
    assert is_feasible(printed_fit(X, y, 3, replace(SMALL, feasible=True)).matrix)


def test_unequal_classes_are_given_to_the_descent_from_the_identity():
    """The paper's heuristic, on the Gramian of V itself."""
    X, y = imbalanced(3, 5.0, random_state=0).sample(200, 0)
    clf = CollisionClassifier.from_paper(
        hidden_layer_sizes=(16,), max_epochs=3, max_steps=200, random_state=0
    )
    with pytest.warns(CollisionWarning, match="given up after 200 steps"):
        clf.fit(X, y)
    by_hand = step_c(clf.gramian_, max_steps=200)
    assert_array_equal(clf.printed_.matrix, by_hand.matrix)


def test_posteriors_are_the_inverse_times_q_as_it_comes():
    S = planted_matrix()
    Y = np.array([[1.3, -0.2, -0.1], [0.2, 0.3, 0.4]])
    assert_allclose(solve_printed(S, Y @ S.T), Y)


def test_a_perfect_similarity_gives_the_posteriors_of_new_rows(rng):
    P = rng.dirichlet(np.full(3, 0.3), 4000)
    codes = draw_classes(P, rng)
    parts = [P[codes == k] for k in range(3)]
    S = np.array([part.mean(axis=0) for part in parts])
    new = rng.dirichlet(np.ones(3), 20)
    q = expected_similarity(KnownSimilarity(), new, parts)
    assert_allclose(solve_printed(S, q), new, atol=1e-8)


def test_comparison_points_are_rows_that_v_was_not_trained_on(fitted):
    fit, X = fitted
    assert len(np.concatenate(fit.points)) == 15
    settings = replace(SMALL, validation_share=0.0)
    y = scenario_a(3).sample(150, 0)[1]
    assert sum(map(len, printed_fit(X, y, 3, settings).points)) == 150


def test_the_gramian_averages_over_the_rows_that_v_was_trained_on():
    X, y = scenario_a(3).sample(90, 0)
    fit = printed_fit(X, y, 3, replace(SMALL, validation_share=0.0))
    V = fit.similarity(X, X)
    expected = [[V[np.ix_(y == i, y == j)].mean() for j in range(3)] for i in range(3)]
    assert_allclose(fit.gramian, expected, rtol=1e-5)


def test_v_is_that_of_the_ordered_pair(fitted):
    fit, X = fitted
    V = fit.similarity(X[:6], X[:6])
    assert np.abs(V - V.T).max() > 1e-4
    a, b = torch.tensor(X[:6]).float(), torch.tensor(X[6:12]).float()
    with torch.inference_mode():
        logits = fit.contrast.network.one_way(a, b)
    assert_allclose(
        fit.contrast.pairs(X[:6], X[6:12]), torch.sigmoid(logits), rtol=1e-5
    )
    assert_allclose(
        np.diag(fit.similarity(X[:6], X[6:12])), torch.sigmoid(logits), rtol=1e-5
    )


class SecondReading:
    """Algorithms 1 and 2 written again from the text, pair by pair, with gradients by torch."""

    def __init__(self, V, settings):
        self.V = V
        self.settings = settings

    def gramian(self, T):
        of_pairs = [[[[self.V(x, y) for y in B] for x in A] for B in T] for A in T]
        return torch.tensor(
            [[np.mean(pairs) for pairs in row] for row in of_pairs], dtype=torch.float64
        )

    def descend(self, G):
        S = torch.eye(len(G), dtype=torch.float64)
        zero = torch.zeros_like(S)
        steps = 0
        while torch.linalg.norm(S @ S.T - G) > self.settings.tolerance:
            if steps == self.settings.max_steps:
                break
            S = S.detach().requires_grad_()
            excess = (S.sum(dim=1) - 1).abs().sum()
            penalties = excess - torch.minimum(S, zero).sum()
            a, b = (
                torch.autograd.grad(part, S)[0]
                for part in (torch.linalg.norm(S @ S.T - G), penalties)
            )
            S = S.detach() - self.settings.step_size * (a + self.settings.penalty * b)
            steps += 1
        return S.detach().numpy(), steps

    def posterior(self, S, points, x):
        q = [np.mean([self.V(x, y) for y in of_class]) for of_class in points]
        return np.linalg.inv(S) @ q


@pytest.mark.parametrize("tolerance", [1e-4, 0.6])
def test_a_second_reading_of_both_algorithms_gives_the_same(tolerance):
    X, y = scenario_a(3).sample(60, 0)
    X = X.astype(np.float32).astype(np.float64)
    settings = replace(SMALL, step_size=1e-3, max_steps=500, tolerance=tolerance)
    fit = printed_fit(X, y, 3, settings, seed=3)

    def V(a, b):
        pair = torch.tensor(np.concatenate([a, b])[None], dtype=torch.float32)
        with torch.inference_mode():
            logit = fit.contrast.network.body(pair)
        return float(torch.sigmoid(logit.double()))

    kept_apart = {tuple(row) for part in fit.points for row in part}
    T = [[x for x in X[y == k] if tuple(x) not in kept_apart] for k in range(3)]
    assert [len(part) for part in T] == [18, 18, 18]
    again = SecondReading(V, settings)
    G = again.gramian(T)
    assert_allclose(fit.gramian, G, atol=1e-6)
    S, steps = again.descend(G)
    assert (steps < 500) == fit.descent.converged == (tolerance > 0.1)
    assert fit.descent.steps == steps
    assert_allclose(fit.matrix, S, atol=1e-4)
    posteriors = [again.posterior(S, fit.points, x) for x in X[:5]]
    assert_allclose(fit.posteriors(X[:5]), posteriors, atol=1e-3)


def test_training_lowers_the_risk():
    X, y = scenario_a(3).sample(300, 0)
    longer = PrintedSettings(hidden_layer_sizes=(32,), max_epochs=15)
    losses = step_a(X, y, longer).losses
    assert len(losses) == 15
    assert losses[-1] < losses[0]


def test_diagnostics_tell_whether_the_descent_converged(fitted):
    told = fitted[0].diagnostics
    assert told["converged"] is False
    assert told["steps"] == 200
    assert len(told["row_sums"]) == 3


def test_another_body_takes_both_inputs():
    X, y = scenario_a(3).sample(90, 0)
    asked = []

    def factory(inputs, outputs):
        asked.append((inputs, outputs))
        return torch.nn.Linear(inputs, outputs)

    fit = printed_fit(X, y, 3, SMALL, factory=factory)
    assert asked[0] == (8, 2)
    assert fit.posteriors(X).shape == (90, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"validation_share": 1.0}, "validation_share must be at least 0"),
        ({"pairs_per_entry": 0}, "pairs_per_entry"),
        ({"comparison_points": -1}, "comparison_points"),
        ({"step_size": 0.0}, "step_size"),
        ({"max_steps": 0}, "max_steps"),
    ],
)
def test_impossible_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        PrintedSettings(**change)


def test_a_class_without_rows_is_refused():
    with pytest.raises(
        ValueError, match=r"codes must hold every class 0 … 2, got \[0, 1\]"
    ):
        printed_fit(np.zeros((4, 2)), np.array([0, 0, 1, 1]), 3, SMALL)
