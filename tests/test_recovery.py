"""G = S Sᵀ gives S back: exactly from an exact G, sensibly from a noisy one, honestly in every case."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm

from collidescope import recover
from collidescope.equations.bounds import condition_number
from helpers import ZOO, mean_tvd, planted, planted_population

#: Two means closer than a tenth of a percent are a tie (indistinguishable classes: both return the same answer).
TIE = 1.001


@pytest.mark.parametrize("name", ZOO)
def test_root_recovers_every_planted_matrix_from_its_exact_gramian(name):
    S, priors = ZOO[name]
    recovery = recover(S @ S.T, priors)
    assert np.abs(recovery.matrix - S).max() < 1e-6
    assert recovery.residual < 1e-6
    assert recovery.converged
    assert recovery.iterations == 0


@pytest.mark.parametrize(
    ("n_classes", "ratio", "sharpness"),
    [(2, 1, 4), (2, 100, 1), (3, 1, 1), (5, 1, 8), (5, 1, 0.8), (6, 1, 0.02), (6, 100, 2), (20, 1, 4), (50, 100, 4)],
)
def test_recovery_from_a_sampled_gramian_is_no_worse_than_clipping_and_rescaling_the_root(n_classes, ratio, sharpness):
    P, weights = planted_population(n_classes, ratio, sharpness)
    B = P.T @ (weights[:, None] * P)
    priors = B.sum(axis=1)
    S = B / priors[:, None]
    ours, naive = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        rows = rng.choice(len(P), (40 if ratio == 1 else 400) * n_classes, p=weights)
        y = (rng.random((len(rows), 1)) >= P[rows].cumsum(axis=1)).sum(axis=1).clip(0, n_classes - 1)
        y[:n_classes] = np.arange(n_classes)
        guess = P[rows] * np.exp(0.3 * rng.standard_normal((len(rows), n_classes)))
        guess /= guess.sum(axis=1, keepdims=True)
        means = np.stack([guess[y == k].mean(axis=0) for k in range(n_classes)])
        G = means @ means.T
        ours.append(mean_tvd(recover(G, priors).matrix, S))
        values, vectors = np.linalg.eigh(priors[:, None] * G * priors)
        root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T / priors[:, None]
        fixed = np.maximum(root, 0)
        naive.append(mean_tvd(fixed / fixed.sum(axis=1, keepdims=True), S))
    assert np.mean(ours) <= TIE * np.mean(naive)


@pytest.mark.parametrize("seed", range(5))
def test_noisy_recovery_is_a_possible_collision_matrix_and_says_how_far_it_moved(seed):
    S, priors = planted(8, ratio=10, sharpness=5, seed=seed)
    noise = 0.03 * np.random.default_rng(seed).standard_normal(S.shape)
    recovery = recover(S @ S.T + noise, priors)
    B = recovery.joint
    assert recovery.matrix.min() >= 0
    assert np.abs(B - B.T).max() < 1e-12
    assert np.abs(recovery.matrix.sum(axis=1) - 1).max() < 1e-12
    scale = np.sqrt(np.outer(priors, priors))
    assert np.linalg.eigvalsh(B / scale)[0] > -1e-6
    assert recovery.moved > 0
    assert "projected" in recovery.status


def test_gradient_descent_of_the_paper_reaches_the_same_matrix_as_the_root():
    # a symmetric doubly stochastic, dominant S: the setting of the paper's Theorem 1
    S = 0.7 * np.eye(4) + 0.3 * np.full((4, 4), 0.25)
    descent = recover(S @ S.T, method="gradient", learning_rate=1e-3, tolerance=1e-3)
    assert descent.converged
    assert "reached the tolerance" in descent.status
    assert mean_tvd(descent.matrix, S) < 2e-3
    assert mean_tvd(recover(S @ S.T).matrix, S) < 1e-12


def descent(G, penalty, learning_rate, steps):
    """The paper's objective by automatic differentiation: (S of the lowest objective, its objective)."""
    S = torch.eye(len(G), dtype=torch.float64)
    G = torch.as_tensor(G)
    best, lowest = S, np.inf
    for _ in range(steps + 1):
        S.requires_grad_()
        away = (S.sum(1) - 1).abs().sum() + torch.where(S < 0, -S, 0.0).sum()
        objective = torch.linalg.matrix_norm(S @ S.T - G) + penalty * away
        if float(objective.detach()) < lowest:
            best, lowest = S.detach(), float(objective.detach())
        S = S.detach() - learning_rate * torch.autograd.grad(objective, S)[0]
    return best.numpy(), lowest


@pytest.mark.parametrize("penalty", [0.1, 1.0])
def test_gradient_descent_takes_the_steps_of_the_papers_objective(penalty):
    # No Gramian of a stochastic matrix: rows leave the simplex, so that both penalties count.
    G = np.array([[0.9, -0.3, 0.2], [-0.3, 0.7, 0.1], [0.2, 0.1, 0.4]])
    best, lowest = descent(G, penalty, 0.03, 12)
    assert best.min() < 0
    found = recover(G, method="gradient", penalty=penalty, learning_rate=0.03, tolerance=1e-6, max_iter=12)
    positive = np.maximum(best, 0)
    expected = positive / positive.sum(axis=1, keepdims=True)
    assert np.allclose(found.matrix, expected, atol=1e-12)
    assert found.moved == pytest.approx(np.abs(expected - best).max())
    assert found.iterations == 12
    assert f"{lowest:.3g}" in found.status


def test_a_recovery_tells_what_it_is_judged_by():
    S, priors = np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([0.75, 0.25])
    G = S @ S.T + [[0.02, 0.01], [-0.01, 0.0]]
    found = recover(G, priors)
    even = (G + G.T) / 2
    assert found.residual == pytest.approx(np.sqrt(((found.matrix @ found.matrix.T - even) ** 2).sum()))
    assert found.min_eigenvalue == pytest.approx(np.linalg.eigvalsh(even)[0])
    assert np.allclose(found.joint, priors[:, None] * found.matrix)
    root = np.real(sqrtm(priors[:, None] * even * priors)) / priors[:, None]
    assert found.moved == pytest.approx(np.abs(found.matrix - root).max())
    assert np.array_equal(found.priors, priors)
    assert recover(G).priors.tolist() == [0.5, 0.5]
    assert found.to_collision_matrix(["cat", "dog"]).classes.tolist() == ["cat", "dog"]
    info = found.to_collision_matrix().info
    assert (info["moved"], info["residual"], info["method"]) == (found.moved, found.residual, "gramian root")
    assert np.array_equal(found.to_collision_matrix().priors, priors)


def test_the_condition_number_is_that_of_the_row_sum_norm():
    # inverse ((0.7, -0.1), (-0.3, 0.9)) / 0.6: its largest row sum is 2
    assert condition_number(np.array([[0.9, 0.1], [0.3, 0.7]])) == pytest.approx(2)
    assert condition_number(np.array([[2.0, 0.0], [0.0, 0.5]])) == pytest.approx(4)
    assert condition_number(np.full((2, 2), 0.5)) > 1e15
    assert recover([[0.2, 0.8], [0.8, 0.2]]).min_eigenvalue < -0.5  # of no Gramian


def test_descent_ends_at_its_tolerance_at_its_last_step_or_where_it_stalls_and_says_which():
    S = 0.7 * np.eye(3) + 0.1
    start = float(np.linalg.norm(np.eye(3) - S @ S.T))
    at_once = recover(S @ S.T, method="gradient", tolerance=start * (1 + 1e-12))
    assert (at_once.iterations, at_once.converged) == (0, True)
    assert np.array_equal(at_once.matrix, np.eye(3))
    early = recover(S @ S.T, method="gradient", max_iter=5)
    assert not early.converged
    assert "max_iter=5" in early.status
    stalled = recover(2 * np.eye(3), method="gradient", learning_rate=1e-2, tolerance=1e-9, max_iter=100_000)
    assert stalled.iterations % 2000 == 0 < stalled.iterations < 100_000  # after whole windows
    assert stalled.converged
    assert "stalled" in stalled.status


def test_the_defaults_are_those_that_are_documented():
    S, _ = planted(3, sharpness=2, seed=0)
    plain = recover(S @ S.T, method="gradient", max_iter=40)
    stated = {"penalty": 0.1, "learning_rate": 1e-4, "tolerance": 1e-4, "max_iter": 40}
    assert np.array_equal(plain.matrix, recover(S @ S.T, method="gradient", **stated).matrix)
    assert plain.iterations == 40
    assert plain.condition == condition_number(plain.matrix)
    for off, steps in ((0.99e-4, 0), (1.01e-4, 1)):  # ‖I - G‖ just below and just above the tolerance
        assert recover(np.diag([1 - off, 1.0]), method="gradient", max_iter=1).iterations == steps
