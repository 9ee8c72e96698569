"""Weights of the members: the prior has closed forms in small cases, and the pool is at its optimum."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import approx_fprime, minimize
from scipy.special import softmax

from collidescope.learners.pooling import _best_by_resampling, _pool_loss, held_out_weights, pool

#: As the module states them: the width of the prior on weights, and the lowest log posterior that is believed.
WIDTH, FLOOR = 0.1, -20.0


def members(n=60, K=3, L=2, seed=0):
    """Log posteriors of L noisy members (L, n, K) and labels."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((n, K))
    y = (rng.gumbel(size=(n, K)) + truth).argmax(axis=1)
    logits = truth + rng.standard_normal((L, n, K)) * np.linspace(0.3, 1.5, L)[:, None, None]
    return torch.log_softmax(torch.as_tensor(logits), -1), torch.as_tensor(y)


def test_the_pool_is_the_normalised_product_of_powers():
    a, b = (torch.softmax(torch.randn(5, 3, generator=torch.Generator().manual_seed(s)).double(), 1) for s in (0, 1))
    product = a**0.7 * b**0.6
    assert torch.allclose(pool([a.log(), b.log()], [0.7, 0.6]), product / product.sum(1, keepdim=True))


def test_a_member_that_rules_a_class_out_is_not_believed_beyond_the_floor():
    certain = pool([torch.tensor([[-torch.inf, 0.0]])], [1.0])
    assert float(certain[0, 0]) == pytest.approx(np.exp(FLOOR) / (1 + np.exp(FLOOR)))
    logs = torch.tensor([[[-1e9, 0.0], [0.0, -1e9]], [[-1.0, -0.5], [-0.5, -1.0]]])
    y = torch.tensor([0, 0])
    assert held_out_weights(list(logs), y) == pytest.approx(held_out_weights(list(logs.clamp_min(FLOOR)), y))


def test_one_row_gives_the_softmax_of_the_likelihoods():
    scores, handicap = np.array([[-0.3, -0.9, -1.2]]), np.array([0.0, 0.5, 0.2])
    expected = np.exp(scores[0] - handicap)
    for w in (np.ones(1), np.array([1.0, 0.0])):  # a row without weight is no row, but n stays the number of rows
        n = len(w)
        e = np.exp(n * scores[0] - handicap) if n > 1 else expected
        found = _best_by_resampling(np.vstack([scores, scores * 7])[:n], w * n, handicap, 0)
        assert found == pytest.approx(e / e.sum())


def test_two_rows_give_the_mean_of_the_softmax_over_the_bayesian_bootstrap():
    # The share of the first row is uniform, so the mean of the logistic of 2 (u d₁ + (1 - u) d₂) is an integral.
    d = np.array([1.5, -1.0])
    found = _best_by_resampling(np.column_stack([d, 0 * d]), np.ones(2), np.zeros(2), 0)
    expected = (np.logaddexp(0, 2 * d[0]) - np.logaddexp(0, 2 * d[1])) / (2 * (d[0] - d[1]))
    u = np.linspace(0, 1, 1001)
    spread = (1 / (1 + np.exp(-2 * (u * d[0] + (1 - u) * d[1])))).std()
    assert found[0] == pytest.approx(expected, abs=4 * spread / np.sqrt(200))
    assert found.sum() == pytest.approx(1)
    again = _best_by_resampling(np.column_stack([d, 0 * d]), np.ones(2), np.zeros(2), 1)
    assert 0 < abs(again[0] - found[0]) < 4 * spread * np.sqrt(2 / 200)


def test_the_loss_of_the_pool_is_its_log_loss_with_a_gaussian_prior_and_its_gradient_the_numerical_one():
    logs, y = members(L=3)
    w = np.linspace(0.5, 1.5, 60)
    prior, weights = np.array([0.6, 0.3, 0.1]), np.array([0.7, 0.5, 0.2])
    value, gradient = _pool_loss(weights, logs.numpy(), y.numpy(), w, prior)
    each = -pool(list(logs), weights.tolist()).log().numpy()[np.arange(60), y.numpy()]
    assert value == pytest.approx(((w * each).sum() + ((weights - prior) ** 2).sum() / (2 * WIDTH**2)) / 60)
    slope = approx_fprime(weights, lambda v: _pool_loss(v, logs.numpy(), y.numpy(), w, prior)[0], 1e-7)
    assert gradient == pytest.approx(slope, abs=1e-5)


def objective(logs, y, w, prior):
    def loss(weights):
        each = -pool(list(logs), list(weights)).log()[torch.arange(len(y)), y].numpy()
        return float((w * each).sum() + ((weights - prior) ** 2).sum() / (2 * WIDTH**2))

    return loss


@pytest.mark.parametrize("weighted", [False, True])
def test_the_weights_minimise_that_loss_around_the_chance_to_be_the_best(weighted):
    logs, y = members(n=200, L=2)
    w = np.linspace(0.2, 3.0, 200) if weighted else np.ones(200)
    w = w / w.mean()
    scores = logs[:, torch.arange(200), y].T.numpy()
    rng = np.random.default_rng(5)
    draws = rng.dirichlet(np.ones(200), 4000) if not weighted else rng.exponential(size=(4000, 200)) * w
    total = 200 * (draws / draws.sum(axis=1, keepdims=True)) @ scores
    prior = softmax(total, axis=1).mean(axis=0)
    best = minimize(objective(logs, y, w, prior), prior, method="Nelder-Mead", options={"xatol": 1e-5}).x
    found = held_out_weights(list(logs), y, torch.as_tensor(7 * w) if weighted else None)
    assert found == pytest.approx(best, abs=0.03)


def test_a_choice_costs_one_nat():
    logs, y = members(L=1)
    twins = [logs[0], logs[0]]
    # Nothing but the prior tells twins apart: the logistic of one nat.
    first, second = held_out_weights(twins, y, choices=[1, 0])
    assert second - first == pytest.approx(np.tanh(0.5), abs=1e-3)
    first, second = held_out_weights(twins, y)
    assert second == pytest.approx(first, abs=1e-3)


def test_no_weight_is_negative_and_a_lone_member_has_all():
    _, y = members(n=300)
    sure = torch.full((300, 3), -3.0).scatter_(1, (y[:, None] + 1) % 3, -0.1)  # always wrong
    good = torch.full((300, 3), -1.5).scatter_(1, y[:, None], -0.6)
    found = held_out_weights([good, sure], y)
    assert found[1] == 0
    assert found[0] > 0.9
    assert held_out_weights([sure], y) == [1.0]


def test_rows_without_weight_do_not_count_and_the_scale_of_weights_does_not():
    logs, y = members()
    w = torch.ones(60).double()
    w[::4] = 0
    spoiled = logs.clone()
    spoiled[0, ::4] = spoiled[0, ::4].roll(1, -1)
    found = held_out_weights(list(logs), y, w)
    assert held_out_weights(list(spoiled), y, w) == found
    assert held_out_weights(list(logs), y, 100 * w) == pytest.approx(found)
    assert held_out_weights(list(logs), y, w, seed=0) == found
