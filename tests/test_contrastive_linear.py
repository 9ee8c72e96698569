"""Softmax regression is at the optimum of what it says it minimises: plain, of low rank, with products."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from collidescope.learners import linear
from collidescope.learners.linear import (
    FULL_RANK,
    LinearSpec,
    SoftmaxRegression,
    fit_softmax_regression,
    n_regression_features,
)


def rows(n=120, d=3, K=4, seed=0):
    """Rows with classes along few directions, shifted and scaled so that standardising matters."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % K
    means = rng.standard_normal((K, d))
    X = (means[y] + rng.standard_normal((n, d))) * [1.0, 20.0, 0.1][:d] + [3.0, -40.0, 0.0][:d]
    return torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y)


def loss_gradient(model, m, X, y, w=None):
    """Mean cross-entropy of member m and its gradients in W and b, by autograd in float64."""
    F = model.features(X).double()
    W = model.weight[m].double().requires_grad_()
    b = model.bias[m, 0].double().requires_grad_()
    v = torch.ones(len(X)).double() if w is None else w.double()
    loss = (cross_entropy(F @ W + b, y, reduction="none") * v / v.sum()).sum()
    loss.backward()
    return float(loss.detach()), W.grad, b.grad


@pytest.mark.parametrize("quadratic", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_every_member_is_at_the_optimum_of_its_own_rows(quadratic, weighted):
    X, y = rows()
    w = torch.linspace(0.2, 3.0, len(X)) if weighted else None
    parts = [torch.arange(90), torch.arange(30, 120)]
    model = fit_softmax_regression(X, y, 4, parts, LinearSpec(2.0, quadratic=quadratic), w)
    for m, part in enumerate(parts):
        _, dW, db = loss_gradient(model, m, X[part], y[part], None if w is None else w[part])
        assert float((dW + 2.0 / 90 * model.weight[m]).abs().max()) < 5e-4
        assert float(db.abs().max()) < 5e-4
    assert not torch.allclose(model.weight[0], model.weight[1], atol=1e-2)


def test_factors_of_full_rank_are_the_trace_norm():
    X, y = rows()
    model = fit_softmax_regression(X, y, 4, [torch.arange(120)], LinearSpec(4.0, rank=FULL_RANK))
    _, dW, db = loss_gradient(model, 0, X, y)
    W, lam = model.weight[0].double(), 4.0 / 120
    # Optimal in λ‖W‖_*: the gradient is a subgradient of the norm, at most λ, and λ along W.
    assert float(torch.linalg.matrix_norm(dW, 2)) <= lam * 1.05
    assert float((W * dW).sum()) == pytest.approx(-lam * float(torch.linalg.matrix_norm(W, "nuc")), rel=0.02)
    assert float(db.abs().max()) < 2e-3


def test_a_low_rank_fit_has_that_rank_and_beats_cutting_the_full_one():
    X, y = rows(n=400, K=5)
    everything = [torch.arange(400)]
    full = fit_softmax_regression(X, y, 5, everything, LinearSpec(1.0))
    for rank in (1, 2):
        low = fit_softmax_regression(X, y, 5, everything, LinearSpec(1.0, rank=rank), start=full)
        assert int(torch.linalg.matrix_rank(low.weight[0], rtol=1e-4)) == rank
        U, s, Vt = torch.linalg.svd(full.weight[0], full_matrices=False)
        cut = fit_softmax_regression(X, y, 5, everything, LinearSpec(1.0))
        cut.weight[0] = (U[:, :rank] * s[:rank]) @ Vt[:rank]

        def objective(model):
            nuclear = float(torch.linalg.matrix_norm(model.weight[0], "nuc"))
            return loss_gradient(model, 0, X, y)[0] + nuclear / 400

        assert objective(low) < objective(cut)
        # Stationary in both factors: the gradient, seen through W's own directions, is that of the trace norm.
        _, dW, db = loss_gradient(low, 0, X, y)
        U, s, Vt = torch.linalg.svd(low.weight[0].double(), full_matrices=False)
        assert torch.allclose(U[:, :rank].T @ dW @ Vt[:rank].T, -torch.eye(rank).double() / 400, atol=1e-3)
        assert float(db.abs().max()) < 2e-3


def test_a_low_rank_fit_needs_no_start():
    X, y = rows(n=400, K=5)
    spec = LinearSpec(1.0, rank=2)
    full = fit_softmax_regression(X, y, 5, [torch.arange(400)], LinearSpec(1.0))
    warm = fit_softmax_regression(X, y, 5, [torch.arange(400)], spec, start=full)
    cold = fit_softmax_regression(X, y, 5, [torch.arange(400)], spec)
    assert loss_gradient(cold, 0, X, y)[0] == pytest.approx(loss_gradient(warm, 0, X, y)[0], rel=0.02)


def test_a_start_gives_its_standardisation_and_not_its_optimum():
    X, y = rows()
    everything = [torch.arange(120)]
    other = fit_softmax_regression(X[:60], y[:60], 4, [torch.arange(60)], LinearSpec(100.0))
    warm = fit_softmax_regression(X, y, 4, everything, LinearSpec(1.0), start=other)
    assert torch.equal(warm.mean, other.mean)
    assert torch.equal(warm.scale, other.scale)
    _, dW, _ = loss_gradient(warm, 0, X, y)
    assert float((dW + warm.weight[0] / 120).abs().max()) < 5e-4
    alone = fit_softmax_regression(X, y, 4, everything, LinearSpec(1.0, quadratic=True))
    unlike = fit_softmax_regression(X, y, 4, everything, LinearSpec(1.0, quadratic=True), start=other)
    assert torch.equal(unlike.weight, alone.weight)


def test_a_start_at_the_optimum_is_kept():
    X, y = rows()
    first = fit_softmax_regression(X, y, 4, [torch.arange(120)], LinearSpec(1.0))
    again = fit_softmax_regression(X, y, 4, [torch.arange(120)], LinearSpec(1.0), start=first)
    cold = fit_softmax_regression(X, y, 4, [torch.arange(120)], LinearSpec(1.0))
    assert torch.equal(cold.weight, first.weight)
    assert torch.allclose(again.weight, first.weight, atol=5e-3)


def test_features_are_inputs_and_products_within_limits_standardised():
    X, _ = rows(n=50)
    X = (X - X.mean(0)) / X.std(0)
    X[0, 1] = 100.0
    model = fit_softmax_regression(X, torch.arange(50) % 2, 2, [torch.arange(50)], LinearSpec(quadratic=True))
    x = X.double().clamp(-8, 8)
    columns = [x[:, i] for i in range(3)] + [x[:, i] * x[:, j] for i in range(3) for j in range(i, 3)]
    expected = torch.stack(columns, 1)
    expected = (expected - expected.mean(0)) / expected.std(0, correction=0)
    assert torch.allclose(model.features(X).double(), expected, atol=1e-4)
    X[1, 2] = -100.0
    assert torch.allclose(model.features(X)[1], model.features(X.clamp(-8, 8))[1])
    assert n_regression_features(3, True) == expected.shape[1] == 9
    assert n_regression_features(3, False) == 3
    plain = fit_softmax_regression(X, torch.arange(50) % 2, 2, [torch.arange(50)], LinearSpec())
    assert torch.allclose(plain.features(X), (X - X.mean(0)) / X.std(0, correction=0), atol=1e-4)


def test_a_constant_feature_is_taken_out():
    X, y = rows()
    X[:, 1] = 1e4
    model = fit_softmax_regression(X, y, 4, [torch.arange(120)], LinearSpec())
    assert float(model.scale[1]) == 0
    assert float(model.scale[0]) == pytest.approx(1 / float(X[:, 0].std(correction=0)), rel=1e-5)
    assert float(model.features(X)[:, 1].abs().max()) == 0
    model = fit_softmax_regression(1e-4 * X, y, 4, [torch.arange(120)], LinearSpec())
    assert float(model.scale[0]) == pytest.approx(1e4 / float(X[:, 0].std(correction=0)), rel=1e-4)
    almost = X.clone()
    almost[:, 1] += 1e-3 * (torch.arange(120) % 2)  # far below float32's rounding of 10,000 after squares
    assert float(fit_softmax_regression(almost, y, 4, [torch.arange(120)], LinearSpec()).scale[1]) == 0


def test_blocks_of_rows_change_nothing(monkeypatch):
    X, y = rows()
    specs = [LinearSpec(1.0), LinearSpec(1.0, rank=2), LinearSpec(1.0, quadratic=True)]
    whole = [fit_softmax_regression(X, y, 4, [torch.arange(120)], spec) for spec in specs]
    monkeypatch.setattr(linear, "ROWS_AT_ONCE", 7)
    kept = [fit_softmax_regression(X, y, 4, [torch.arange(120)], spec) for spec in specs]
    monkeypatch.setattr(linear, "MOST_KEPT", 0)
    blocked = [fit_softmax_regression(X, y, 4, [torch.arange(120)], spec) for spec in specs]
    for one, two, three in zip(whole, kept, blocked, strict=True):
        assert torch.allclose(one(X), two(X), atol=2e-3)
        assert torch.allclose(one(X), three(X), atol=2e-3)


def test_logits_are_linear_in_the_features_for_all_members_and_for_one():
    model = SoftmaxRegression(2, 3, 4)
    g = torch.Generator().manual_seed(0)
    for name in ("mean", "scale", "weight", "bias"):
        getattr(model, name).copy_(torch.randn(getattr(model, name).shape, generator=g))
    x = torch.randn(5, 3, generator=g)
    for m in range(2):
        expected = ((x - model.mean) * model.scale) @ model.weight[m] + model.bias[m, 0]
        assert torch.allclose(model(x)[m], expected, atol=1e-5)
        assert torch.allclose(model.member(m, x), expected, atol=1e-5)
    fresh = SoftmaxRegression(2, 3, 4)
    assert torch.equal(fresh(x), torch.zeros(2, 5, 4))
    assert torch.equal(fresh.features(x), x)


def test_a_class_missing_from_a_split_is_unlikely_and_not_impossible():
    X, y = rows()
    part = torch.nonzero(y != 3).flatten()
    model = fit_softmax_regression(X, y, 4, [part], LinearSpec(1.0))
    P = torch.softmax(model(X)[0], 1)
    assert bool(torch.isfinite(model(X)).all())
    assert 0 < float(P[:, 3].max()) < 0.05


def test_without_any_signal_the_bias_is_the_log_share_with_half_a_row_more():
    y = torch.tensor([0] * 6 + [1] * 3)
    model = fit_softmax_regression(torch.zeros(9, 2), y, 3, [torch.arange(9)], LinearSpec())
    assert torch.equal(model.weight[0], torch.zeros(2, 3))
    start = torch.log(torch.tensor([6.5, 3.5, 0.5]) / 10.5)
    problem = linear._Problem(model, torch.zeros(9, 2), y, 3, LinearSpec(), torch.full((9,), 1.0))
    assert torch.allclose(torch.log(problem.shares / problem.shares.sum()), start)
    P = torch.softmax(model.bias[0, 0], 0)
    assert P.tolist() == pytest.approx([2 / 3, 1 / 3, 0], abs=2e-2)


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (LinearSpec(), "linear-1"),
        (LinearSpec(0.25, quadratic=True), "quadratic-0.25"),
        (LinearSpec(3.0, rank=2), "linear-rank2-3"),
        (LinearSpec(3.0, rank=10**6), "linear-trace-3"),
        (LinearSpec(3.0, rank=10**6 - 1), "linear-rank999999-3"),
    ],
)
def test_specifications_have_names(spec, name):
    assert spec.name == name


def test_a_constant_feature_below_zero_is_taken_out_too():
    X, y = rows()
    X[:, 1] = -1e4
    assert float(fit_softmax_regression(X, y, 4, [torch.arange(120)], LinearSpec()).scale[1]) == 0


def watched_start(monkeypatch, *arguments, **keywords):
    """What the optimiser is given: its start and its options."""
    seen = {}

    def spy(loss, x0, **options):
        seen.update(options, x0=x0)
        return true_minimize(loss, x0, **options)

    true_minimize = linear.minimize
    monkeypatch.setattr(linear, "minimize", spy)
    fit_softmax_regression(*arguments, **keywords)
    return seen


def test_a_fit_starts_from_class_shares_and_a_given_fit(monkeypatch):
    X, y = rows()
    y = torch.where(y == 3, 0, y)  # uneven shares, one class missing
    everything = [torch.arange(120)]
    shares = torch.tensor([60.5, 30.5, 30.5, 0.5]).double() / 122
    full = fit_softmax_regression(X, y, 4, everything, LinearSpec())
    seen = watched_start(monkeypatch, X, y, 4, everything, LinearSpec(5.0), start=full)
    assert np.allclose(seen["x0"][:12], full.weight[0].flatten())
    assert np.allclose(seen["x0"][12:], torch.log(shares), atol=1e-6)
    assert seen["method"] == "L-BFGS-B"
    assert seen["options"]["maxiter"] > 100
    seen = watched_start(monkeypatch, X, y, 4, everything, LinearSpec(5.0, rank=2), start=full)
    U, V = seen["x0"][:6].reshape(3, 2), seen["x0"][6:14].reshape(4, 2)
    u, s, vt = np.linalg.svd(full.weight[0].numpy())
    assert np.allclose(U @ V.T, (u[:, :2] * s[:2]) @ vt[:2], atol=1e-5)
    assert np.allclose((U**2).sum(axis=0), (V**2).sum(axis=0), rtol=1e-4)  # as large on both sides
    assert seen["options"]["maxiter"] <= 100
    cold = watched_start(monkeypatch, X, y, 4, everything, LinearSpec(5.0, rank=2))
    assert np.linalg.norm(cold["x0"][:6]) == pytest.approx(np.sqrt(2 * 0.01), rel=1e-4)


def test_the_loss_is_the_one_that_is_stated():
    X, y = rows()
    model = fit_softmax_regression(X, y, 4, [torch.arange(120)], LinearSpec(2.0))
    problem = linear._Problem(model, X, y, 4, LinearSpec(2.0), None)
    x = torch.cat([model.weight[0].flatten(), model.bias[0, 0]]).double().numpy()
    value, _ = problem._loss_and_gradient(x)
    expected = loss_gradient(model, 0, X, y)[0] + 0.5 * 2.0 / 120 * float((model.weight[0] ** 2).sum())
    assert value == pytest.approx(expected, rel=1e-6)


def test_features_are_kept_where_they_fit_and_made_anew_where_they_do_not(monkeypatch):
    X, y = rows()
    calls, true_features = [], SoftmaxRegression.features
    monkeypatch.setattr(SoftmaxRegression, "features", lambda self, x: calls.append(1) or true_features(self, x))
    monkeypatch.setattr(linear, "MOST_KEPT", 120 * 3)
    fit_softmax_regression(X, y, 4, [torch.arange(120)], LinearSpec())
    assert len(calls) == 1
    monkeypatch.setattr(linear, "MOST_KEPT", 120 * 3 - 1)
    fit_softmax_regression(X, y, 4, [torch.arange(120)], LinearSpec())
    assert len(calls) > 5
