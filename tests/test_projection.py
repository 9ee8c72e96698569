"""The projection lands in the set, is the nearest point of it, and never moves what is already there."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from collidescope.equations import projection
from collidescope.equations.projection import _onto_spectral, balance, project
from helpers import ZOO, planted


@pytest.mark.parametrize("name", ZOO)
def test_a_possible_matrix_is_left_where_it_is(name):
    S, priors = ZOO[name]
    result = project(priors[:, None] * S, priors)
    assert result.moved < 1e-9
    assert result.iterations == 0


def noisy(seed: int, k: int = 5, noise: float = 0.03) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    S, priors = planted(k, ratio=10, sharpness=4, seed=seed)
    E = np.random.default_rng(seed).standard_normal((k, k)) * noise
    scale = np.sqrt(np.outer(priors, priors))
    return priors[:, None] * S, priors[:, None] * S + scale * (E + E.T) / 2, priors


@pytest.mark.parametrize("seed", range(10))
def test_the_result_is_feasible_and_closer_to_the_truth(seed):
    truth, estimate, priors = noisy(seed)
    result = project(estimate, priors)
    B = result.joint
    scale = np.sqrt(np.outer(priors, priors))
    assert result.converged
    assert B.min() >= 0
    assert np.abs(B - B.T).max() < 1e-14
    assert np.abs(B.sum(axis=1) - priors).max() < 1e-13
    assert np.linalg.eigvalsh(B / scale)[0] > -1e-6
    assert np.linalg.norm((B - truth) / scale) <= np.linalg.norm((estimate - truth) / scale)


@pytest.mark.parametrize("seed", range(3))
def test_no_feasible_point_is_nearer(seed):
    """Against a general-purpose solver (SLSQP over the upper triangle, K = 3), an independent road to that point."""
    _, estimate, priors = noisy(seed, k=3, noise=0.3)
    scale = np.sqrt(np.outer(priors, priors))
    i, j = np.triu_indices(3)

    def full(v: np.ndarray) -> np.ndarray:
        B = np.zeros((3, 3))
        B[i, j] = v
        return np.maximum(B, B.T) if (v >= 0).all() else B + np.triu(B, 1).T

    def distance(v: np.ndarray) -> float:
        return float((((full(v) - estimate) / scale) ** 2).sum())

    start = np.outer(priors, priors)[i, j]
    constraints = [
        {"type": "eq", "fun": lambda v: full(v).sum(axis=1) - priors},
        {"type": "ineq", "fun": lambda v: np.linalg.eigvalsh(full(v) / scale)},
    ]
    reference = minimize(
        distance,
        start,
        constraints=constraints,
        bounds=[(0, 1)] * 6,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    ours = project(estimate, priors).joint
    assert distance(ours[i, j]) <= reference.fun + 1e-5


@pytest.mark.parametrize("operations", [0.0, 5 * 10 * 20**3])
def test_a_projection_that_is_cut_short_says_so_and_is_still_a_table_of_rates(monkeypatch, operations):
    _, estimate, priors = noisy(3, k=20, noise=1.0)
    assert project(estimate, priors).converged
    monkeypatch.setattr(projection, "MAX_OPERATIONS", operations)
    result = project(estimate, priors)
    assert not result.converged
    assert result.iterations == (1 if operations == 0 else 4)
    assert result.joint.min() >= 0
    assert np.abs(result.joint.sum(axis=1) - priors).max() < 1e-12


def test_the_smallest_eigenvalue_is_reported_where_it_is_negative_and_zero_elsewhere():
    S, priors = planted(6, ratio=2, sharpness=4, seed=0)
    assert project(priors[:, None] * S, priors).min_eigenvalue == 0
    flipped = np.array([[0.1, 0.4], [0.4, 0.1]])  # C has the eigenvalues 1 and -0.6
    assert project(flipped, [0.5, 0.5]).min_eigenvalue == pytest.approx(-0.6)


@pytest.mark.parametrize("shift", [0.0, 5.0])
def test_the_spectral_set_is_projected_onto_by_its_formula(shift):
    rng = np.random.default_rng(0)
    v = np.sqrt(rng.dirichlet(np.ones(6)))
    C = rng.standard_normal((6, 6))
    C = C + C.T + shift * np.eye(6)
    across = (np.eye(6) - np.outer(v, v)) @ C @ (np.eye(6) - np.outer(v, v))
    values, vectors = np.linalg.eigh(across)
    expected = np.outer(v, v) + (vectors * np.maximum(values, 0.0)) @ vectors.T
    kept = C.copy()
    ours, lowest = _onto_spectral(C, v)
    assert np.allclose(ours, expected, atol=1e-12)
    assert lowest == pytest.approx(min(values[0], 0.0), abs=1e-12)
    assert np.array_equal(C, kept)
    assert np.allclose(ours @ v, v)


def test_balance_scales_from_both_sides_until_row_sums_fit():
    rng = np.random.default_rng(1)
    B = rng.random((5, 5)) ** 3
    B = B + B.T + 1e-3 * np.eye(5)
    priors = np.array([0.01, 0.09, 0.2, 0.3, 0.4])
    kept, scaled = B.copy(), balance(B, priors)
    assert np.abs(scaled.sum(axis=1) / priors - 1).max() < 1e-13
    d = np.sqrt(np.diag(scaled) / np.diag(B))
    assert np.allclose(scaled, B * np.outer(d, d))
    assert np.array_equal(B, kept)
    Y = rng.random((50, 5))
    assert np.linalg.eigvalsh(balance(Y.T @ Y, priors))[0] > 0
    zero = np.array([[0.0, 0.0], [0.0, 1.0]])
    assert balance(zero, np.array([0.5, 0.5])) is zero


def test_an_estimate_that_is_not_symmetric_is_made_so_first():
    B, priors = np.array([[0.30, 0.24], [0.16, 0.30]]), np.array([0.5, 0.5])
    assert project(B, priors).joint == pytest.approx(np.array([[0.3, 0.2], [0.2, 0.3]]))
    assert project(B, priors).moved == pytest.approx(0.08)
