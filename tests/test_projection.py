"""The projection lands in the set, is the nearest point of it, and never moves what is already there."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from collidescope import project
from collidescope.projection import balance
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


def test_balance_scales_to_the_priors_and_keeps_psd():
    rng = np.random.default_rng(0)
    Y = rng.random((50, 4))
    B, priors = Y.T @ Y, np.array([0.1, 0.2, 0.3, 0.4])
    scaled = balance(B, priors)
    assert np.abs(scaled.sum(axis=1) - priors).max() < 1e-12
    assert np.linalg.eigvalsh(scaled)[0] > 0


def test_balance_returns_a_matrix_without_a_scaling_as_it_is():
    B = np.array([[-1.0, 0.5], [0.5, 0.1]])
    assert balance(B, np.array([0.5, 0.5])) is B
