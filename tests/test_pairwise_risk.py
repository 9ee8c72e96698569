"""The pair losses have the minimisers that the theory says, and the bound is the theorem's."""

import math

import pytest
import torch
from torch.nn.functional import binary_cross_entropy

from collidescope.equations.bounds import pac_bound
from collidescope.pairwise.risk import BalancedPairLoss, balanced_risk

# Three inputs, three classes: counts[x, k] rows of input x with label k, the same number of rows in every class.
COUNTS = torch.tensor([[12, 2, 1], [2, 10, 5], [2, 4, 10]])


def discrete_rows():
    x, k = torch.meshgrid(torch.arange(3), torch.arange(3), indexing="ij")
    inputs = torch.repeat_interleave(x.flatten(), COUNTS.flatten())
    labels = torch.repeat_interleave(k.flatten(), COUNTS.flatten())
    return inputs, labels


def minimise(parameters, loss, steps=200):
    optimizer = torch.optim.LBFGS(parameters, max_iter=steps, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    optimizer.step(closure)


def all_ordered_pairs(n):
    i, j = torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")
    keep = i != j
    return i[keep], j[keep]


def test_without_the_shift_the_minimiser_has_k_minus_1_times_the_odds_of_sim():
    inputs, labels = discrete_rows()
    i, j = all_ordered_pairs(len(labels))
    free = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)
    loss = BalancedPairLoss(3, shift=0.0)
    minimise([free], lambda: loss(free[inputs[i], inputs[j]], labels[i], labels[j]))
    # Independent draws of labels at uniform priors, counted: distinct rows make the same-class pairs n_k(n_k - 1).
    same = torch.zeros(3, 3, dtype=torch.float64)
    different = torch.zeros(3, 3, dtype=torch.float64)
    n_k = COUNTS.sum(0).double()
    for k in range(3):
        c = COUNTS[:, k].double()
        same += (torch.outer(c, c) - torch.diag(c)) / (n_k[k] * (n_k[k] - 1))
        for other in set(range(3)) - {k}:
            different += torch.outer(c, COUNTS[:, other].double()) / (n_k[k] * n_k[other])
    odds_of_sim = (same / 9) / (different / 9)
    assert torch.allclose(free.detach().exp(), 2 * odds_of_sim, rtol=1e-4)
    shifted = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)
    loss = BalancedPairLoss(3)
    minimise([shifted], lambda: loss(shifted[inputs[i], inputs[j]], labels[i], labels[j]))
    assert torch.allclose(shifted.detach().exp(), odds_of_sim, rtol=1e-4)


@pytest.mark.parametrize("shift", [None, 0.0])
@pytest.mark.parametrize("bounded", [None, 0.7])
def test_all_pairs_of_a_batch_equal_the_pairs_one_by_one(shift, bounded):
    g = torch.Generator().manual_seed(0)
    labels = torch.tensor([0, 0, 1, 1, 1, 2, 2, 2, 2])
    p = torch.softmax(2 * torch.randn(9, 4, generator=g, dtype=torch.float64), 1)
    i, j = all_ordered_pairs(9)
    loss = BalancedPairLoss(4, shift, bounded)
    V = (p[i] * p[j]).sum(1)
    assert float(loss.all_pairs(p, labels)) == pytest.approx(
        float(loss(torch.logit(V), labels[i], labels[j])), rel=1e-5
    )


def test_balanced_weights_make_the_papers_empirical_risk():
    g = torch.Generator().manual_seed(1)
    labels = torch.tensor([0, 0, 1, 1, 1, 2, 2, 2, 2])
    p = torch.softmax(torch.randn(9, 3, generator=g, dtype=torch.float64), 1)
    V = p @ p.T
    same, different = 0.0, 0.0
    for k in range(3):
        for other in range(3):
            terms = [
                binary_cross_entropy(V[a, b], torch.tensor(float(k == other), dtype=torch.float64))
                for a in torch.nonzero(labels == k).flatten()
                for b in torch.nonzero(labels == other).flatten()
                if a != b
            ]
            mean = float(torch.stack(terms).mean())
            same += mean / 3 if k == other else 0.0
            different += mean / 6 if k != other else 0.0
    loss = BalancedPairLoss(3, shift=0.0)
    assert float(loss.all_pairs(p, labels)) == pytest.approx((same + different) / 2, rel=1e-5)


def test_leading_dimensions_are_separate_batches():
    g = torch.Generator().manual_seed(2)
    p = torch.softmax(torch.randn(4, 8, 3, generator=g), 2)
    labels = torch.randint(3, (4, 8), generator=g)
    loss = BalancedPairLoss(3)
    assert torch.allclose(
        loss.all_pairs(p, labels), torch.stack([loss.all_pairs(a, b) for a, b in zip(p, labels, strict=True)])
    )
    w = torch.rand(4, 8, generator=g) + 0.1
    alone = [loss.all_pairs(a, b, c) for a, b, c in zip(p, labels, w, strict=True)]
    assert torch.allclose(loss.all_pairs(p, labels, w), torch.stack(alone))


def test_a_weight_of_two_is_a_row_of_double_influence_and_zero_is_absence():
    g = torch.Generator().manual_seed(3)
    p = torch.softmax(torch.randn(7, 3, generator=g), 1)
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 0])
    loss = BalancedPairLoss(3)
    w = torch.tensor([1.0, 1, 1, 1, 1, 1, 0])
    assert torch.allclose(loss.all_pairs(p, labels, w), loss.all_pairs(p[:6], labels[:6]))
    assert torch.allclose(loss.all_pairs(p, labels, 5 * w), loss.all_pairs(p, labels, w))


def test_a_lone_row_and_missing_classes_leave_a_finite_loss():
    p = torch.full((4, 5), 0.2)
    value = BalancedPairLoss(5).all_pairs(p, torch.tensor([0, 0, 3, 4]))
    assert bool(torch.isfinite(value))


def test_the_bounded_loss_never_exceeds_its_bound_even_for_certain_errors():
    loss = BalancedPairLoss(2, bounded=3.0)
    logits, first, second = torch.tensor([-50.0, 50.0]), torch.tensor([0, 0]), torch.tensor([0, 1])
    assert float(loss(logits, first, second)) == pytest.approx(3.0)
    p = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert float(loss.all_pairs(p, torch.tensor([0, 0]))) <= 3.0 + 1e-6


def test_gradients_are_finite_where_the_model_is_certain():
    logits = torch.tensor([[80.0, -80.0], [80.0, -80.0], [-80.0, 80.0]], requires_grad=True)
    BalancedPairLoss(2).all_pairs(torch.softmax(logits, 1), torch.tensor([0, 1, 1])).backward()
    assert bool(torch.isfinite(logits.grad).all())


def test_the_pac_bound_is_the_two_terms_of_the_theorem():
    n, K, d, delta, B = 5000, 4, 3, 0.1, 2.5
    bound = pac_bound(n, K, d, delta, B, constant=1.5)
    root = math.sqrt(n**2 - K**2 * n)
    assert bound.complexity == pytest.approx(1.5 * (K / root) ** (1 / d))
    assert bound.confidence == pytest.approx(12 * K * B / root * math.sqrt(math.log(2 / delta) / 2))
    assert bound.total == pytest.approx(bound.complexity + bound.confidence)
    assert pac_bound(50_000, K, d, delta, B).total < pac_bound(5000, K, d, delta, B).total


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 16, "K": 4, "d": 2}, "more than K² = 16 rows"),
        ({"n": 100, "K": 1, "d": 2}, "at least 2 classes"),
        ({"n": 100, "K": 3, "d": 0}, "d must be positive"),
        ({"n": 100, "K": 3, "d": 2, "delta": 1.0}, "delta"),
        ({"n": 100, "K": 3, "d": 2, "loss_bound": math.inf}, "loss_bound"),
    ],
)
def test_a_bound_that_does_not_exist_says_why(arguments, message):
    with pytest.raises(ValueError, match=message):
        pac_bound(**arguments)


@pytest.mark.parametrize("bad", [{"n_classes": 1}, {"n_classes": 3, "bounded": 0.0}])
def test_a_loss_with_impossible_settings_is_refused(bad):
    with pytest.raises(ValueError, match="must be"):
        BalancedPairLoss(**bad)


def risk(V, labels, weights):
    """The balanced risk over what the batch has: half for classes with a pair, half for pairs of classes."""
    same, different = [], []
    for k in set(labels):
        for other in set(labels):
            rows = [(a, b) for a in range(len(labels)) for b in range(len(labels)) if a != b]
            rows = [(a, b) for a, b in rows if labels[a] == k and labels[b] == other and weights[a] * weights[b] > 0]
            if rows:
                w = [weights[a] * weights[b] for a, b in rows]
                losses = [-math.log(V[a][b] if k == other else 1 - V[a][b]) for a, b in rows]
                mean = sum(x * y for x, y in zip(w, losses, strict=True)) / sum(w)
                (same if k == other else different).append(mean)
    return sum(sum(part) / len(part) / 2 for part in (same, different) if part)


@pytest.mark.parametrize(
    ("labels", "weights"),
    [
        ([0, 0, 1], [1, 1, 1]),  # one class with a pair
        ([0, 0, 0, 0], [1, 2, 3, 4]),  # no pair of two classes
        ([0, 1, 2], [1, 1, 1]),  # no pair of one class
        ([0, 0, 1, 1, 2, 2], [1, 2, 3, 4, 5, 6]),
        ([0, 0, 1, 1, 2, 2], [1e-5, 2e-5, 3e-5, 4e-5, 5e-5, 6e-5]),  # weights as small as rounding errors
        ([0, 0, 1, 1, 2, 2], [1, 2, 3, 4, 0, 0]),  # a class without weight
        ([0, 0, 1, 1, 2, 2], [1, 2, 3, 4, 5, 0]),  # a row alone in its class
    ],
)
def test_weights_and_missing_pairs_leave_the_risk_of_what_is_there(labels, weights):
    g = torch.Generator().manual_seed(5)
    p = torch.softmax(torch.randn(len(labels), 3, generator=g, dtype=torch.float64), 1)
    loss = BalancedPairLoss(3, shift=0.0)
    w = torch.tensor(weights, dtype=torch.float64)
    expected = risk((p @ p.T).tolist(), labels, weights)
    assert float(loss.all_pairs(p, torch.tensor(labels), w)) == pytest.approx(expected, rel=1e-5)
    if len(set(weights)) == 1:
        assert float(loss.all_pairs(p, torch.tensor(labels))) == pytest.approx(expected, rel=1e-5)


def test_single_pairs_are_weighed_by_kind_and_one_pair_has_all_the_weight_of_its_half():
    loss = BalancedPairLoss(3, shift=0.0)
    z = torch.tensor([0.3, -0.7, 1.1, 0.2], dtype=torch.float64)
    first, second = torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 1, 2])
    # same pairs of one kind share a half, the two kinds of different pairs have a quarter each
    each = torch.nn.functional.softplus(torch.tensor([-0.3, 0.7, 1.1, 0.2], dtype=torch.float64))
    expected = float((each * torch.tensor([0.25, 0.25, 0.25, 0.25])).sum())
    assert float(loss(z, first, second)) == pytest.approx(expected)
    assert float(loss(z[:1], first[:1], second[:1])) == pytest.approx(float(each[0]) / 2)
    assert float(loss(z[2:3], first[2:3], second[2:3])) == pytest.approx(float(each[2]) / 2)


def test_certain_errors_cost_the_floor_and_no_more():
    p = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    # The only pairs are of one class, which has half of the weight.
    assert float(BalancedPairLoss(2).all_pairs(p, torch.tensor([0, 0]))) == pytest.approx(-math.log(1e-7) / 2)


def test_the_pac_bound_has_the_defaults_it_says_and_exists_as_soon_as_it_can():
    assert pac_bound(100, 2, 2) == pac_bound(100, 2, 2, delta=0.05, loss_bound=1.0, constant=1.0)
    assert pac_bound(10, 3, 2).total > 0
    assert math.isfinite(pac_bound(5, 2, 0.5, delta=0.999).total)
    for name in ("d", "loss_bound", "constant"):
        with pytest.raises(ValueError, match=f"{name} must be positive and finite"):
            pac_bound(**({"n": 100, "K": 3, "d": 2} | {name: math.nan}))
    with pytest.raises(ValueError, match="delta"):
        pac_bound(100, 3, 2, delta=0.0)


def test_two_classes_are_enough_and_have_no_shift():
    assert BalancedPairLoss(2).shift == 0
    assert BalancedPairLoss(5).shift == pytest.approx(math.log(4))
    assert BalancedPairLoss(5, shift=0.5).shift == 0.5


def test_the_risk_that_training_calls_is_the_balanced_loss_of_balanced_pairs():
    """Over all kinds of pairs in the shares that sampling gives them, equation (32) is a plain mean."""
    first, second = torch.tensor([0, 1, 2, 0, 0, 1]), torch.tensor([0, 1, 2, 1, 2, 2])
    logits = torch.randn(6, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    plain = balanced_risk(logits, (first == second).double())
    assert float(plain) == pytest.approx(float(BalancedPairLoss(3, shift=0.0)(logits, first, second)))
