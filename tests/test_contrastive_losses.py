"""The pair losses have the minimisers that the theory says, and the bound is the theorem's."""

import math

import pytest
import torch
from torch.nn.functional import binary_cross_entropy

from collidescope.contrastive.losses import BalancedPairLoss, pac_bound

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


@pytest.mark.parametrize("scheme", ["balanced", "natural"])
@pytest.mark.parametrize("shift", [None, 0.0])
@pytest.mark.parametrize("bounded", [None, 0.7])
def test_all_pairs_of_a_batch_equal_the_pairs_one_by_one(scheme, shift, bounded):
    g = torch.Generator().manual_seed(0)
    labels = torch.tensor([0, 0, 1, 1, 1, 2, 2, 2, 2])
    p = torch.softmax(2 * torch.randn(9, 4, generator=g, dtype=torch.float64), 1)
    i, j = all_ordered_pairs(9)
    loss = BalancedPairLoss(4, scheme, shift, bounded)
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


@pytest.mark.parametrize("scheme", ["balanced", "natural"])
def test_a_weight_of_two_is_a_row_of_double_influence_and_zero_is_absence(scheme):
    g = torch.Generator().manual_seed(3)
    p = torch.softmax(torch.randn(7, 3, generator=g), 1)
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 0])
    loss = BalancedPairLoss(3, scheme)
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


@pytest.mark.parametrize("scheme", ["balanced", "natural"])
@pytest.mark.parametrize("bounded", [None, 1.5])
def test_the_closed_form_gradient_is_the_numerical_one(scheme, bounded):
    g = torch.Generator().manual_seed(4)
    logits = torch.randn(2, 6, 3, generator=g, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[0, 0, 1, 1, 2, 2], [0, 1, 1, 1, 2, 0]])
    loss = BalancedPairLoss(3, scheme, bounded=bounded)
    assert torch.autograd.gradcheck(lambda z: loss.all_pairs(torch.softmax(z, -1), labels), [logits])


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


@pytest.mark.parametrize("bad", [{"n_classes": 1}, {"n_classes": 3, "scheme": "x"}, {"n_classes": 3, "bounded": 0.0}])
def test_a_loss_with_impossible_settings_is_refused(bad):
    with pytest.raises(ValueError, match="must be"):
        BalancedPairLoss(**bad)
