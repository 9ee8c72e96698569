"""q = S y is solved, priors shift there and back, and the error bound that always holds does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from collidescope import posterior_error_bound, shift_priors, solve_posteriors
from collidescope.equations.posterior import _pivot, project_to_simplex
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
        assert np.allclose(solve_posteriors(np.stack([q, q]), S5, ridge=ridge, priors=PRIORS5), ours)


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


def test_the_two_bounds_are_their_formulas():
    S = np.array([[0.8, 0.2], [0.3, 0.7]])
    S_hat = S + np.array([[0.01, -0.02], [0.0, 0.005]])
    q, q_hat = np.array([0.5, 0.4]), np.array([0.52, 0.37])
    bound = posterior_error_bound(S_hat, S, q_hat, q)
    inverse = np.array([[0.7, -0.2], [-0.3, 0.8]]) / 0.5
    kappa = 1.0 * max(abs(inverse).sum(axis=1))
    error = 0.03 + 0.03 / 0.5  # the largest row sum of |Ŝ - S|, and the relative error of q
    epsilon = 0.3 / 0.7
    assert bound.condition == pytest.approx(kappa)
    assert bound.dominance_factor == pytest.approx(epsilon)
    assert bound.always == pytest.approx(kappa / (1 - kappa * 0.03) * error)
    assert bound.lemma == pytest.approx(2 * (1 + epsilon) / (1 - epsilon) * error)
    exactly_one = posterior_error_bound(np.diag([2.0, 1.0]), np.eye(2), q, q)
    assert exactly_one.always == np.inf  # r = 1
    assert posterior_error_bound(np.eye(2)[::-1], np.eye(2)[::-1], q, q).dominance_factor == np.inf


def test_equal_priors_leave_the_posteriors_as_they_are():
    P, priors = np.array([[0.2, 0.8], [0.6, 0.4]]), np.array([0.3, 0.7])
    assert shift_priors(P, priors, priors) is P
    assert np.array_equal(shift_priors(P, priors, priors * (1 + 1e-14)), P)
    assert not np.array_equal(shift_priors(P, [0.5, 0.5], [0.5 + 1e-9, 0.5 - 1e-9]), P)


def problem(k=6, n=30, overlap=0.5, noise=0.1, ridge=1e-3, seed=8):
    """(H, linear, start) of least squares on the simplex, and the gap of a solution to its optimality."""
    rng = np.random.default_rng(seed)
    S = (1 - overlap) / k + overlap * rng.dirichlet(np.ones(k), k)
    H = S.T @ S + ridge * np.eye(k)
    linear = (rng.dirichlet(np.full(k, 0.3), n) @ S.T + noise * rng.standard_normal((n, k))) @ S + ridge / k

    def gap(y):
        gradient = y @ H - linear
        return float(((gradient * y).sum(axis=1) - gradient.min(axis=1)).max())

    return H, linear, np.full((n, k), 1 / k), gap


@pytest.mark.parametrize("overlap", [0.5, 1e-3])
def test_pivots_alone_end_at_the_optimum(overlap):
    H, linear, y, gap = problem(overlap=overlap, noise=0.3)
    rng = np.random.default_rng(9)
    y[:] = np.where(rng.random(y.shape) < 0.5, y, 0.0)  # any classes to begin with
    y[~y.any(axis=1), 0] = 1
    left = _pivot(y, np.arange(len(y)), H, linear)
    assert len(left) == 0
    assert y.min() >= 0
    assert np.allclose(y.sum(axis=1), 1)
    assert gap(y) < 1e-10


def test_bounds_raise_no_warning_where_they_are_infinite():
    S = np.array([[0.0, 1.0], [1.0, 0.0]])
    with np.errstate(divide="raise"):
        assert posterior_error_bound(S, S, [0.5, 0.5], [0.5, 0.5]).lemma == np.inf
    half = np.array([[0.5, 0.5], [0.2, 0.8]])
    assert posterior_error_bound(half, half, [0.5, 0.5], [0.5, 0.5]).lemma == np.inf  # dominance factor exactly 1
    negative = posterior_error_bound(np.eye(2), np.eye(2), [0.1, -0.6], [0.1, -0.5])
    assert negative.always == pytest.approx(0.1 / 0.5)


def test_a_rare_class_that_gets_rarer_counts_though_the_others_hardly_change():
    old, new = np.array([0.5, 0.5 - 1e-13, 1e-13]), np.array([0.5, 0.5 - 5e-14, 5e-14])
    P = np.array([[0.3, 0.3, 0.4]])
    assert np.allclose(shift_priors(P, old, new), [[0.375, 0.375, 0.25]])
