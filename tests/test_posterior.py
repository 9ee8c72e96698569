"""q = S y is solved, priors shift there and back, and the error bound that always holds does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from collidescope import posterior_error_bound, shift_priors, solve_posteriors
from collidescope.posterior import project_to_simplex
from helpers import planted

S5, PRIORS5 = planted(5, ratio=5, sharpness=2, seed=4)


@pytest.mark.parametrize("solver", ["simplex", "inverse"])
def test_exact_similarities_give_the_exact_posterior(solver):
    Y = np.random.default_rng(0).dirichlet(np.full(5, 0.3), 200)
    assert np.abs(solve_posteriors(Y @ S5.T, S5, solver=solver, ridge=0) - Y).max() < 1e-6


def test_inverse_is_the_papers_and_may_leave_the_simplex_where_least_squares_stays():
    Y = np.random.default_rng(1).dirichlet(np.full(5, 0.3), 100)
    q = Y @ S5.T + 0.05 * np.random.default_rng(2).standard_normal((100, 5))
    inverse, simplex = solve_posteriors(q, S5, "inverse"), solve_posteriors(q, S5)
    assert np.allclose(inverse @ S5.T, q)
    assert inverse.min() < 0
    assert simplex.min() >= 0
    assert np.allclose(simplex.sum(axis=1), 1)
    assert np.abs(simplex - Y).sum(axis=1).mean() < np.abs(inverse - Y).sum(axis=1).mean()


@pytest.mark.parametrize("ridge", [0.0, 1e-3, 0.1])
def test_simplex_solver_agrees_with_a_general_purpose_one(ridge):
    rng = np.random.default_rng(3)
    for _ in range(5):
        q = S5 @ rng.dirichlet(np.full(5, 0.5)) + 0.1 * rng.standard_normal(5)

        def objective(y, q=q):
            return ((S5 @ y - q) ** 2).sum() + ridge * ((y - PRIORS5) ** 2).sum()

        reference = minimize(
            objective,
            np.full(5, 0.2),
            bounds=[(0, 1)] * 5,
            constraints={"type": "eq", "fun": lambda y: y.sum() - 1},
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 1000},
        )
        ours = solve_posteriors(q, S5, ridge=ridge, priors=PRIORS5)
        assert objective(ours) <= reference.fun + 1e-9
        assert ours.shape == (5,)


@pytest.mark.parametrize("ridge", [0.0, 1e-9, 1e-3])
@pytest.mark.parametrize("overlap", [1e-1, 1e-2, 1e-4, 0.0])
@pytest.mark.parametrize("k", [2, 5, 30])
def test_the_simplex_solver_is_optimal_also_where_s_is_nearly_singular(k, overlap, ridge):
    """Gradient steps alone stopped far from the optimum there."""
    rng = np.random.default_rng(5)
    S = (1 - overlap) / k + overlap * rng.dirichlet(np.ones(k), k)
    q = rng.dirichlet(np.full(k, 0.3), 100) @ S.T + 0.02 * rng.standard_normal((100, k))
    y = solve_posteriors(q, S, ridge=ridge)
    assert y.min() >= 0
    assert np.allclose(y.sum(axis=1), 1)
    gradient = (y @ S.T - q) @ S + ridge * (y - 1 / k)
    # a convex problem on the simplex: y is optimal if no class offers a smaller slope than the classes in use do
    assert ((gradient * y).sum(axis=1) - gradient.min(axis=1)).max() < 1e-9


def test_twin_classes_share_their_probability_and_the_rest_is_solved_as_without_them():
    """Changing all classes at once goes in circles for some of these rows: the solver must leave the circle."""
    rng = np.random.default_rng(6)
    S = np.repeat(np.repeat(np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7]]), 2, axis=0), 2, axis=1) / 2
    q = rng.dirichlet(np.full(6, 0.3), 500) @ S.T + 0.05 * rng.standard_normal((500, 6))
    y = solve_posteriors(q, S, ridge=0)
    assert np.abs(y[:, ::2] - y[:, 1::2]).max() < 1e-3
    twice = q[:, ::2] + q[:, 1::2]
    merged = solve_posteriors(twice, S[::2, ::2] * 2, ridge=0)
    assert np.abs(y[:, ::2] + y[:, 1::2] - merged).max() < 1e-6


def test_a_large_ridge_returns_the_priors():
    assert np.allclose(solve_posteriors([0.9, 0.2, 0.1, 0.1, 0.1], S5, ridge=1e9, priors=PRIORS5), PRIORS5, atol=1e-6)


def test_indistinguishable_classes_share_probability_evenly():
    S = np.array([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1.0]])
    assert np.allclose(solve_posteriors([0.4, 0.4, 0.2], S), [0.4, 0.4, 0.2], atol=2e-3)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 20), st.integers(1, 6), st.integers(0, 10_000))
def test_simplex_projection_satisfies_its_optimality_conditions(n, k, seed):
    points = 3 * np.random.default_rng(seed).standard_normal((n, k))
    y = project_to_simplex(points)
    assert np.allclose(y.sum(axis=1), 1)
    assert y.min() >= 0
    # moved by one constant where positive, by no more where zero
    gap = points - y
    constant = np.where(y > 0, gap, -np.inf).max(axis=1, keepdims=True)
    assert np.allclose(np.where(y > 0, gap - constant, 0), 0, atol=1e-9)
    assert (gap <= constant + 1e-9).all()


probabilities = st.lists(st.floats(0.01, 1), min_size=4, max_size=4).map(lambda v: np.array(v) / np.sum(v))


@settings(max_examples=100, deadline=None)
@given(st.lists(probabilities, min_size=1, max_size=5), probabilities, probabilities)
def test_priors_shift_there_and_back(rows, old, new):
    P = np.array(rows)
    there = shift_priors(P, old, new)
    assert np.allclose(there.sum(axis=1), 1)
    assert np.allclose(shift_priors(there, new, old), P, atol=1e-10)


def test_shifted_posteriors_are_those_of_the_shifted_population():
    likelihood = np.array([0.2, 0.5, 0.1])
    old, new = np.array([0.2, 0.3, 0.5]), np.array([0.6, 0.3, 0.1])
    at = lambda pi: (pi * likelihood / (pi @ likelihood))[None]  # noqa: E731
    assert np.allclose(shift_priors(at(old), old, new), at(new))


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 6), st.floats(0.3, 6), st.floats(1e-4, 0.2), st.integers(0, 100_000))
def test_the_bound_that_always_holds_is_never_violated(k, sharpness, noise, seed):
    rng = np.random.default_rng(seed)
    S, _ = planted(k, sharpness=sharpness, seed=seed)
    y = rng.dirichlet(np.full(k, 0.5))
    S_hat = S + noise * rng.standard_normal((k, k))
    q = S @ y
    q_hat = q + noise * rng.standard_normal(k)
    bound = posterior_error_bound(S_hat, S, q_hat, q)
    if np.isfinite(bound.always):
        error = np.abs(np.linalg.solve(S_hat, q_hat) - y).max()
        assert error <= bound.always * (1 + 1e-9)


def test_the_papers_lemma_is_first_order_only_and_fails_here():
    """S is diagonally dominant and Ŝ is nearly singular: the lemma's right side stays finite, the error does not."""
    S = np.array([[0.6, 0.4], [0.4, 0.6]])
    S_hat = np.array([[0.4999, 0.5001], [0.5001, 0.4999]])
    q = S @ [1.0, 0.0]
    bound = posterior_error_bound(S_hat, S, q, q)
    error = np.abs(np.linalg.solve(S_hat, q) - [1.0, 0.0]).max()
    assert bound.dominance_factor < 1
    assert error > bound.lemma
    assert bound.always == np.inf


def test_the_lemma_does_not_apply_without_dominance():
    S = np.array([[0.4, 0.6], [0.1, 0.9]])
    bound = posterior_error_bound(S, S, [0.5, 0.5], [0.5, 0.5])
    assert bound.lemma == np.inf
    assert bound.always == 0
