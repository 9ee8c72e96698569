"""Fast scoring equals the slow definition."""

import pytest
import torch
from torch import nn

from collidescope.pairwise import scoring
from collidescope.pairwise.networks import PairwiseNetwork
from collidescope.pairwise.scoring import class_similarity, similarity


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def naive(module, A, B, shift=0.0):
    with torch.no_grad():
        return torch.stack([torch.sigmoid(module(a.expand(len(B), *a.shape), B) - shift) for a in A])


@pytest.mark.parametrize("sizes", [(), (16,), (16, 8), (8, 16, 4)])
@pytest.mark.parametrize("block_bytes", [1, 3000, 2**21])
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
        nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)),
        nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 1)),
        nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.Linear(8, 1)),
        nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.ReLU(), nn.Linear(8, 4), nn.Linear(4, 1)),
    ],
)
def test_a_body_that_is_no_plain_network_is_scored_as_it_is(body):
    module = PairwiseNetwork(3, body=body)
    A, B = torch.randn(6, 3), torch.randn(4, 3)
    assert torch.allclose(similarity(module, A, B), naive(module, A, B), atol=1e-6)


@pytest.mark.parametrize("exclude", ["none", "all", "some"])
@pytest.mark.parametrize("block_bytes", [1, 4000, 2**21])
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


@pytest.mark.parametrize("exclude", [False, True])
@pytest.mark.parametrize("block_bytes", [4000, 2**21])
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


def test_references_of_one_weight_count_as_without_weights():
    module = PairwiseNetwork(3, (8,)).eval()
    X, references, labels = torch.randn(4, 3), torch.randn(12, 3), torch.arange(12) % 2
    plain = class_similarity(module, X, references, labels, 2)
    same = class_similarity(module, X, references, labels, 2, reference_weight=torch.full((12,), 0.25))
    assert torch.allclose(same.q, plain.q, atol=1e-7)
    assert torch.allclose(same.stderr, plain.stderr, atol=1e-6)


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
