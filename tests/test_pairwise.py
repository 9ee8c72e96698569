"""The paper's pairs: drawn as promised, their loss minimised by Sim, scored fast, with a custom body on images."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from torch import nn
from torch.nn.functional import binary_cross_entropy

from collidescope import CollisionClassifier, ModelFileError, _store, load
from collidescope.equations.bounds import pac_bound
from collidescope.pairwise import scoring
from collidescope.pairwise.model import PairObjective
from collidescope.pairwise.networks import PairwiseImageNetwork, PairwiseNetwork
from collidescope.pairwise.pairs import _Pool, _uniform, same_log_odds_shift, sample_pairs
from collidescope.pairwise.risk import BalancedPairLoss, balanced_risk
from collidescope.pairwise.scoring import class_similarity, similarity
from collidescope.training.config import TrainingConfig
from collidescope.training.rows import as_rows

pytestmark = pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")

# ------------------------------------------------------------------------------------------ pairs


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(2, 12), min_size=2, max_size=6), st.integers(0, 50))
def test_no_pair_joins_a_row_with_itself_and_same_tells_the_truth(counts, n_pairs):
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=generator(1))]
    i, j, same = sample_pairs(labels, n_pairs, generator(2))
    assert i.shape == j.shape == same.shape == (n_pairs,)
    assert (i.dtype, j.dtype, same.dtype) == (torch.long, torch.long, torch.bool)
    assert bool((i != j).all())
    assert torch.equal(same, labels[i] == labels[j])
    assert int(same.sum()) == n_pairs // 2


def frequencies(i, j, n):
    return torch.bincount(i * n + j, minlength=n * n).double().view(n, n) / len(i)


def test_balanced_pairs_have_the_probabilities_of_the_papers_risk():
    labels = torch.tensor([2, 0, 0, 1, 1, 1, 1, 2, 1])
    n_pairs, n, K = 400_000, len(labels), 3
    i, j, _ = sample_pairs(labels, n_pairs, generator())
    counts = torch.bincount(labels).double()
    expected = torch.zeros(n, n, dtype=torch.float64)
    for a in range(n):
        for b in range(n):
            k, other = labels[a], labels[b]
            if a == b:
                continue
            if k == other:
                expected[a, b] = 0.5 / K / (counts[k] * (counts[k] - 1))
            else:
                expected[a, b] = 0.5 / (K * (K - 1)) / (counts[k] * counts[other])
    noise = (expected * (1 - expected) / n_pairs).sqrt()
    assert bool(((frequencies(i, j, n) - expected).abs() <= 5 * noise + 1e-12).all())


def test_rows_of_weight_zero_are_never_drawn_and_weights_count_within_classes_when_balanced():
    labels = torch.tensor([0, 0, 0, 1, 1, 1])
    w = torch.tensor([3.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    i, j, same = sample_pairs(labels, 200_000, generator(), w)
    assert not bool(((i == 2) | (j == 2)).any())
    across = i[~same & (labels[i] == 0)]
    assert float((across == 0).double().mean()) == pytest.approx(0.75, abs=0.01)


def test_a_weight_that_dwarfs_all_others_still_gives_distinct_rows():
    w = torch.tensor([1e18, 1.0, 1.0], dtype=torch.float64)
    i, j, _ = sample_pairs(torch.tensor([0, 0, 0, 1, 1]), 1000, generator(), torch.cat([w, torch.ones(2)]))
    assert bool((i != j).all())


def test_an_imbalance_of_a_million_to_two_stays_balanced():
    labels = torch.zeros(1_000_002, dtype=torch.long)
    labels[:2] = 1
    i, j, same = sample_pairs(labels, 10_000, generator())
    assert bool((i != j).all())
    assert float((labels[i[same]] == 1).double().mean()) == pytest.approx(0.5, abs=0.04)


def test_the_shift_is_the_log_ratio_of_sampled_to_uniform_odds():
    labels = torch.tensor([0] * 50 + [1] * 20 + [2] * 10 + [3] * 10)
    _, _, same = sample_pairs(labels, 1000, generator())
    sampled_odds = float(same.sum()) / float((~same).sum())
    uniform_odds = (1 / 4) / (3 / 4)
    assert same_log_odds_shift(4) == pytest.approx(math.log(sampled_odds / uniform_odds))


@pytest.mark.parametrize(
    ("labels", "weights", "message"),
    [
        ([0, 0, 1], None, "class 1 has 1 member"),
        ([0, 0, 0], None, "single class"),
        ([0, 1, 1], [0.0, 0.0, 1.0], "fewer than 2 rows"),
        ([0, 1, 1], [0.0, -1.0, 1.0], "finite numbers"),
        ([0.0, 1.0], None, "at least 2 class numbers"),
    ],
)
def test_impossible_requests_say_what_is_wrong(labels, weights, message):
    w = None if weights is None else torch.tensor(weights)
    with pytest.raises(ValueError, match=message):
        sample_pairs(torch.tensor(labels), 10, None, w)
    with pytest.raises(ValueError, match="n_pairs must not be negative, got -1"):
        sample_pairs(torch.tensor([0, 0, 1, 1]), -1)


def test_weights_add_up_in_float64_whatever_came():
    """In float32 a sum of 2²⁴ no longer grows by ones: later rows would never be drawn."""
    weight = torch.tensor([2.0**25, 1, 1, 1, 1, 1])
    assert _Pool(torch.tensor([0, 0, 0, 0, 1, 1]), weight).cumulative[-1] == 2**25 + 5
    assert _uniform(torch.zeros(3), generator()).dtype == torch.float64


def test_points_on_the_edge_of_a_class_stay_in_it():
    pool = _Pool(torch.tensor([1, 0, 1, 0]), torch.tensor([1.0, 2.0, 3.0, 4.0]))
    point = torch.stack([pool.group_start, pool.group_end], 1).flatten()
    assert pool._find(point, torch.tensor([0, 0, 1, 1])).tolist() == [0, 1, 2, 3]
    assert pool.order.tolist() == [1, 3, 0, 2]


# ------------------------------------------------------------------------------------------ risk and bound


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
        ({"n": 100, "K": 3, "d": math.nan}, "d must be positive and finite"),
        ({"n": 100, "K": 3, "d": 2, "delta": 1.0}, "delta"),
        ({"n": 100, "K": 3, "d": 2, "loss_bound": math.inf}, "loss_bound must be positive and finite"),
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
        ([0, 0, 0, 0], [1, 2, 3, 4]),  # no pair of two classes
        ([0, 1, 2], [1, 1, 1]),  # no pair of one class
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


def test_the_risk_that_training_calls_is_the_balanced_loss_of_balanced_pairs():
    """Over all kinds of pairs in the shares that sampling gives them, equation (32) is a plain mean."""
    first, second = torch.tensor([0, 1, 2, 0, 0, 1]), torch.tensor([0, 1, 2, 1, 2, 2])
    logits = torch.randn(6, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    plain = balanced_risk(logits, (first == second).double())
    assert float(plain) == pytest.approx(float(BalancedPairLoss(3, shift=0.0)(logits, first, second)))


# ------------------------------------------------------------------------------------------ scoring


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def naive(module, A, B, shift=0.0):
    with torch.no_grad():
        return torch.stack([torch.sigmoid(module(a.expand(len(B), *a.shape), B) - shift) for a in A])


@pytest.mark.parametrize(("sizes", "block_bytes"), [((), 1), ((16,), 3000), ((8, 16, 4), 2**21)])
def test_the_split_first_layer_gives_the_naive_forward_pass(sizes, block_bytes, monkeypatch):
    monkeypatch.setattr(scoring, "BLOCK_BYTES", block_bytes)
    module = PairwiseNetwork(5, sizes, dropout=0.5)
    A, B = torch.randn(13, 5), torch.randn(17, 5)
    scores = similarity(module, A, B, shift=0.4)
    assert scores.shape == (13, 17)
    assert torch.allclose(scores, naive(module.eval(), A, B, 0.4), atol=1e-5)


def test_similarity_does_not_depend_on_the_order_of_the_two_inputs():
    module = PairwiseNetwork(3, (16, 16))
    A, B = torch.randn(6, 3), torch.randn(4, 3)
    assert torch.allclose(similarity(module, A, B), similarity(module, B, A).T, atol=1e-6)


@pytest.mark.parametrize(
    "body",
    [
        nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 1)),
        nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.Linear(8, 1)),
        nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.ReLU(), nn.Linear(8, 4), nn.Linear(4, 1)),
    ],
)
def test_a_body_that_is_no_plain_network_is_scored_as_it_is(body):
    module = PairwiseNetwork(3, body=body)
    A, B = torch.randn(6, 3), torch.randn(4, 3)
    assert torch.allclose(similarity(module, A, B), naive(module, A, B), atol=1e-6)


@pytest.mark.parametrize(("exclude", "block_bytes"), [("none", 1), ("all", 4000), ("some", 2**21), ("some", 1)])
def test_streamed_class_means_equal_the_dense_ones(exclude, block_bytes, monkeypatch):
    monkeypatch.setattr(scoring, "BLOCK_BYTES", block_bytes)
    module = PairwiseNetwork(3, (8, 8)).eval()
    references = torch.randn(20, 3)
    labels = torch.tensor([2, 0, 1, 2] * 5)
    X = torch.cat([references[4:9], torch.randn(3, 3)]) if exclude == "some" else references
    places = torch.tensor([4, 5, 6, 7, 8, -1, -1, -1])
    argument = {"none": False, "all": True, "some": places}[exclude]
    result = class_similarity(module, X, references, labels, 3, argument, shift=0.3)
    dense = naive(module, X, references, 0.3).double()
    keep = torch.ones_like(dense, dtype=torch.bool)
    if exclude == "all":
        keep.fill_diagonal_(False)
    if exclude == "some":
        keep[torch.arange(5), places[:5]] = False
    for x in range(len(X)):
        for k in range(3):
            values = dense[x, keep[x] & (labels == k)]
            assert float(result.q[x, k]) == pytest.approx(float(values.mean()), abs=1e-6)
            assert float(result.stderr[x, k]) == pytest.approx(float(values.std() / len(values) ** 0.5), abs=1e-5)


@pytest.mark.parametrize(("exclude", "block_bytes"), [(False, 2**21), (True, 4000)])
def test_weighted_class_means_equal_the_dense_ones(exclude, block_bytes, monkeypatch):
    monkeypatch.setattr(scoring, "BLOCK_BYTES", block_bytes)
    module = PairwiseNetwork(3, (8, 8)).eval()
    references, labels = torch.randn(20, 3), torch.tensor([2, 0, 1, 2] * 5)
    weight = torch.rand(20, dtype=torch.float64) + 0.1
    result = class_similarity(module, references, references, labels, 3, exclude, 0.3, weight)
    dense = naive(module, references, references, 0.3).double()
    for x in range(20):
        for k in range(3):
            kept = (labels == k) & (torch.arange(20) != (x if exclude else -1))
            values, w = dense[x, kept], weight[kept]
            mean = float((values * w).sum() / w.sum())
            m = float(w.sum() ** 2 / (w * w).sum())
            variance = float((w * w * (values - mean) ** 2).sum() / (w * w).sum()) * m / (m - 1)
            assert float(result.q[x, k]) == pytest.approx(mean, abs=1e-6)
            assert float(result.stderr[x, k]) == pytest.approx((variance / m) ** 0.5, abs=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_standard_error_is_the_spread_over_draws_of_references(weighted):
    module = PairwiseNetwork(3, (8,)).eval()
    X, m = torch.randn(1, 3), 25
    labels, weight = torch.zeros(m, dtype=torch.long), 0.5 + torch.arange(m) % 3 if weighted else None
    draws = [class_similarity(module, X, torch.randn(m, 3), labels, 1, False, 0.0, weight) for _ in range(300)]
    spread = torch.stack([d.q for d in draws]).std()
    claimed = torch.stack([d.stderr for d in draws]).mean()
    assert float(claimed) == pytest.approx(float(spread), rel=0.15)


def test_one_reference_per_class_claims_no_certainty():
    module = PairwiseNetwork(3, (8,))
    result = class_similarity(module, torch.randn(2, 3), torch.randn(2, 3), torch.tensor([0, 1]), 2)
    assert bool(torch.isinf(result.stderr).all())


@pytest.mark.parametrize(
    ("labels", "n_classes", "exclude", "message"),
    [
        ([0, 1, 1], 3, False, "every class"),
        ([0, 1, 2], 2, False, "every class"),
        ([0, 1], 2, False, "one entry per reference"),
        ([0, 1, 1], 2, True, "places"),
        ([0, 1, 1], 2, torch.tensor([0, 5]), "places below 3"),
        ([0, 1, 1], 2, torch.tensor([0, -1]), "at least 2"),
    ],
)
def test_references_that_cannot_be_averaged_are_refused(labels, n_classes, exclude, message):
    module = PairwiseNetwork(3, (8,))
    with pytest.raises(ValueError, match=message):
        class_similarity(module, torch.randn(2, 3), torch.randn(3, 3), torch.tensor(labels), n_classes, exclude)


# ------------------------------------------------------------------------------------------ a custom body


SIDE = 6


def body(channels, outputs):
    """Batch norm included: its counters must come through a file too."""
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * SIDE * SIDE, 32),
        nn.ReLU(),
        nn.Linear(32, outputs),
    )


def encoder(channels, k):
    return nn.Sequential(nn.Conv2d(channels, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, k))


#: Classes 0 and 1 show a drawing that both make half of the time, class 2 never does.
PLANTED = np.array([[0.75, 0.25, 0.0], [0.25, 0.75, 0.0], [0.0, 0.0, 1.0]])
BRIEF = {"max_epochs": 2, "patience": 0, "batch_size": 32}
SHORT = {"training": BRIEF, "limit": False, "cv": 2, "random_state": 0}
LONG = SHORT | {"training": BRIEF | {"max_epochs": 12, "patience": 4}}


def drawings(n, seed, channels=1):
    """(X, y): a bright corner per class, and a fourth corner that classes 0 and 1 share."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    corner = np.where((y < 2) & (np.arange(n) // 3 % 2 == 0), 3, y)
    X = 0.3 * rng.normal(size=(n, channels, SIDE, SIDE))
    for i, (down, right) in enumerate([(0, 0), (0, 3), (3, 0), (3, 3)]):
        X[corner == i, :, down : down + 3, right : right + 3] += 1.0
    return X, y


@pytest.fixture(scope="module")
def data():
    return drawings(600, 0)


@pytest.fixture(scope="module")
def fitted(data):
    return CollisionClassifier(model=("pairwise", body), n_references=20, **LONG).fit(*data)


def test_the_planted_collision_is_found_by_both_roads_and_no_other(fitted):
    assert fitted.collision_matrix_.matrix == pytest.approx(PLANTED, abs=0.08)
    assert fitted.recovery_.matrix == pytest.approx(PLANTED, abs=0.1)


def test_posteriors_split_the_shared_drawing_and_nothing_else(fitted):
    X, y = drawings(120, 1)
    P = fitted.predict_proba(X)
    shared = (y < 2) & (np.arange(120) // 3 % 2 == 0)
    assert np.abs(P[shared, :2] - 0.5).mean() < 0.12
    assert (fitted.predict(X)[~shared] == y[~shared]).mean() > 0.95


def test_similarity_is_symmetric_and_knows_the_shared_drawing(fitted):
    X, y = drawings(60, 2)
    sim = fitted.similarity(X[:20], X[20:])
    assert fitted.similarity(X[20:], X[:20]) == pytest.approx(sim.T, abs=1e-6)
    assert ((sim >= 0) & (sim <= 1)).all()
    third = (y[:20, None] == 2) & (y[20:] == 2)
    apart = (y[:20, None] == 2) ^ (y[20:] == 2)
    assert sim[third].mean() > 0.9
    assert sim[apart].mean() < 0.1


def test_a_single_image_scores_like_one_of_many(data, fitted, tmp_path):
    """A batch of one image was once taken for a stack of one batch."""
    X, _ = data
    assert fitted.predict_proba(X[:1]) == pytest.approx(fitted.predict_proba(X[:5])[:1], abs=1e-5)
    clf = CollisionClassifier(model=encoder, **SHORT).fit(*data)
    assert clf.predict_proba(X[:1]) == pytest.approx(clf.predict_proba(X[:5])[:1], abs=1e-5)
    clf.save(tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model", encoder).predict_proba(X[:1]), clf.predict_proba(X[:1]))


@pytest.mark.parametrize("shape", [(2, SIDE, SIDE), (5,)], ids=["two channels", "a table"])
def test_the_body_is_built_for_both_inputs_together(shape):
    built = []

    def factory(d, k):
        built.append((d, k))
        return nn.Sequential(nn.Flatten(), nn.Linear(2 * int(np.prod(shape)), k))

    X = np.random.default_rng(0).normal(size=(150, *shape))
    CollisionClassifier(model=("pairwise", factory), **SHORT).fit(X, np.arange(150) % 3)
    assert set(built) == {(2 * shape[0], 1)}


def test_references_per_class_and_fold_are_those_asked_for(fitted):
    for rows, codes, weights in fitted._crossfit.references:
        assert weights is None
        assert rows.shape == (60, 1, SIDE, SIDE)
        assert np.bincount(codes).tolist() == [20, 20, 20]
    assert 0 < fitted.reference_stderr_ < 0.1


# ---------------------------------------------------------------- clones and files


def test_a_clone_is_unfitted_and_fits_to_the_same_bits(data):
    X, y = data
    clf = CollisionClassifier(model=("pairwise", body), n_references=5, **SHORT).fit(X[:180], y[:180])
    copy = clone(clf)
    assert copy.model == ("pairwise", body)
    assert not hasattr(copy, "collision_matrix_")
    assert np.array_equal(copy.fit(X[:180], y[:180]).predict_proba(X[:9]), clf.predict_proba(X[:9]))


def test_a_saved_model_comes_back_bit_for_bit_without_its_code(tmp_path, data, fitted):
    X, _ = data
    fitted.save(tmp_path / "model")
    back = load(tmp_path / "model", model=("pairwise", body))
    assert back.model == ("pairwise", body)
    assert back.n_references == 20
    assert np.array_equal(back.predict_proba(X[:50]), fitted.predict_proba(X[:50]))
    assert np.array_equal(back.similarity(X[:9], X[:5]), fitted.similarity(X[:9], X[:5]))
    assert back.collision_matrix_ == fitted.collision_matrix_
    back.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()
    tree = _store.read(tmp_path / "model", "model")
    assert tree["parameters"]["model"] is None
    assert tree["custom"] is True


def test_the_reader_must_give_the_kind_of_factory_that_was_fitted(tmp_path, data, fitted):
    fitted.save(tmp_path / "body")
    CollisionClassifier(model=encoder, **SHORT).fit(*data).save(tmp_path / "encoder")
    for factory in (None, encoder, "pairwise"):
        with pytest.raises(ModelFileError, match=r"custom module: pass model=\('pairwise', its factory\)"):
            load(tmp_path / "body", model=factory)
    for factory in (None, ("pairwise", body)):
        with pytest.raises(ModelFileError, match="custom module: pass its factory as model="):
            load(tmp_path / "encoder", model=factory)
    with pytest.raises(ModelFileError, match="do not fit"):
        load(tmp_path / "body", model=("pairwise", encoder))
    with pytest.raises(ValueError, match="model as a tuple must be"):
        load(tmp_path / "body", model=("pairwise", "body"))


# ---------------------------------------------------------------- the argument


@pytest.mark.parametrize(
    "model",
    [("network", body), ("pairwise", body, body), ("pairwise", "body")],
)
def test_a_tuple_of_another_form_is_refused_with_the_form_it_should_have(data, model):
    with pytest.raises(ValueError, match=r"model as a tuple must be \('pairwise', factory\)"):
        CollisionClassifier(model=model, **SHORT).fit(*data)


def test_images_of_pairs_without_a_custom_body_are_refused(data):
    with pytest.raises(ValueError, match="dim 4"):
        CollisionClassifier(model="pairwise", **SHORT).fit(*data)


# ---------------------------------------------------------------- blocks of pairs


@pytest.mark.parametrize(("block_bytes", "at_once"), [(1, 8192), (40_000, 5)])
def test_blocks_of_any_size_give_the_scores_of_single_pairs(monkeypatch, block_bytes, at_once):
    monkeypatch.setattr(scoring, "BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(scoring, "ROWS_AT_ONCE", at_once)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = PairwiseImageNetwork(body(2, 1)).eval()
        A, B = torch.randn(13, 1, SIDE, SIDE), torch.randn(7, 1, SIDE, SIDE)
    with torch.no_grad():
        single = torch.stack([torch.cat([module(a[None], b[None]) for b in B]) for a in A])
    assert scoring.similarity(module, A, B, shift=0.4) == pytest.approx(torch.sigmoid(single - 0.4), abs=1e-5)
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 0])
    means = torch.stack([torch.sigmoid(single)[:, labels == k].mean(1) for k in range(3)], 1)
    assert scoring.class_similarity(module, A, B, labels, 3).q == pytest.approx(means.double(), abs=1e-5)


@pytest.mark.parametrize(("n", "batch"), [(9, 4), (8, 4), (4, 1)])
def test_no_batch_of_pairs_is_a_single_one_unless_all_are(n, batch):
    y = torch.arange(n) % 2
    config = TrainingConfig(batch_size=batch)
    split = torch.arange(n), torch.arange(0)
    objective = PairObjective(as_rows(torch.zeros(n, 2), "cpu"), y, split, config, seed=0)
    sizes = [len(i) for i, _, _ in objective.batches(torch.Generator().manual_seed(0))]
    assert sum(sizes) == n - (batch > 1 and n % batch == 1)
    assert batch == 1 or min(sizes) > 1
