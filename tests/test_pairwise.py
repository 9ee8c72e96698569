"""The paper's pairs: drawn as promised, their loss minimised by Sim, scored fast, with a custom
body on images."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from collidescope import CollisionClassifier, Pairwise
from collidescope.equations.bounds import pac_bound
from collidescope.pairwise import scoring
from collidescope.pairwise.pairs import (
    PairObjective,
    balanced_risk,
    same_log_odds_shift,
    sample_pairs,
)
from collidescope.pairwise.scoring import PairwiseNetwork, class_similarity, similarity
from collidescope.training.config import TrainingConfig
from collidescope.training.networks import mlp
from collidescope.training.rows import as_rows

pytestmark = [
    pytest.mark.usefixtures("seeded"),
    pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning"),
]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(2, 12), min_size=2, max_size=6), st.integers(0, 50))
def test_drawn_pairs_join_distinct_rows_half_of_them_of_one_class(counts, n_pairs):
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=generator(1))]
    i, j, same = sample_pairs(labels, n_pairs, generator(2))
    assert i.shape == j.shape == same.shape == (n_pairs,)
    assert bool((i != j).all())
    assert torch.equal(same, labels[i] == labels[j])
    assert int(same.sum()) == n_pairs // 2


@pytest.mark.parametrize("w", [[1] * 9, [1, 3, 1, 2, 1, 0, 1, 5, 1]], ids=str)
def test_balanced_pairs_have_the_probabilities_of_the_papers_risk(w):
    labels, w = torch.tensor([2, 0, 0, 1, 1, 1, 1, 2, 1]), torch.tensor(w).double()
    n_pairs, n, K = 400_000, len(labels), 3
    i, j, _ = sample_pairs(labels, n_pairs, generator(), w)
    total = torch.bincount(labels, w)[labels]
    same = labels[:, None] == labels
    first = (w / total)[:, None]
    second = w / (total - torch.where(same, w[:, None], 0.0))
    expected = first * second * 0.5 / torch.where(same, K, K * (K - 1))
    expected.fill_diagonal_(0)
    found = torch.bincount(i * n + j, minlength=n * n).double().view(n, n) / n_pairs
    noise = (expected * (1 - expected) / n_pairs).sqrt()
    assert bool(((found - expected).abs() <= 5 * noise + 1e-12).all())


@pytest.mark.parametrize(
    "w", [[1e18, 1, 1, 1], [1, 1e18, 1, 1], [1e18, 1e18, 1, 1]], ids=str
)
def test_extreme_weights_still_give_distinct_rows_in_balance(w):
    labels, w = torch.tensor([0, 0, 1, 1]), torch.tensor(w, dtype=torch.float64)
    i, j, same = sample_pairs(labels, 1000, generator(), w)
    assert bool((i != j).all())
    assert int(same.sum()) == 500


def test_a_rare_class_still_gives_distinct_rows_in_balance():
    labels = torch.zeros(100_002, dtype=torch.long)
    labels[:2] = 1
    i, j, same = sample_pairs(labels, 10_000, generator())
    assert bool((i != j).all())
    assert float((labels[i[same]] == 1).double().mean()) == pytest.approx(0.5, abs=0.04)


def test_a_heavy_row_leaves_the_others_of_another_class_their_chance():
    # in float32 a sum of 2²⁴ no longer grows by ones: row 4 would never be the partner
    heavy = torch.tensor([2.0**25, 1, 1, 1, 1, 1])
    i, j, same = sample_pairs(torch.tensor([0, 0, 0, 0, 1, 1]), 100, generator(), heavy)
    assert set(torch.cat([i[~same], j[~same]]).tolist()) == {0, 4, 5}


@pytest.mark.parametrize(
    ("labels", "weights", "n_pairs", "message"),
    [
        ([0, 0, 1], None, 10, "class 1 has 1 member"),
        (range(11), None, 1, "class 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, … has 1 member"),
        ([0, 0, 0], None, 10, "single class"),
        ([0, 1, 1], [0.0, 1, 1], 10, "labels of positive weight hold a single class"),
        ([0, 1, 1], [0.0, -1, 1], 10, "finite numbers"),
        ([0.0, 1.0], None, 10, "at least 2 class numbers"),
        ([0, 0, 1, 1], None, -1, "n_pairs must not be negative, got -1"),
    ],
)
def test_impossible_requests_say_what_is_wrong(labels, weights, n_pairs, message):
    w = None if weights is None else torch.tensor(weights)
    with pytest.raises(ValueError, match=message):
        sample_pairs(torch.tensor(labels), n_pairs, None, w)


@pytest.mark.parametrize(("n", "batch"), [(9, 4), (8, 4), (4, 1), (5, 9)])
def test_no_batch_of_pairs_is_a_single_one_unless_all_are(n, batch):
    split = torch.arange(n), torch.arange(0)
    config = TrainingConfig(batch_size=batch)
    objective = PairObjective(
        as_rows(torch.zeros(n, 2), "cpu"), torch.arange(n) % 2, split, config, seed=0
    )
    sizes = [batch.shape[1] for batch in objective.batches(generator())]
    assert sum(sizes) == n - (batch > 1 and n % batch == 1)
    assert batch == 1 or min(sizes) > 1


# ----------------------------------------------------------------------------------- risk and bound

# Three inputs, three classes: counts[x, k] rows of input x with label k, the same number of rows in
# every class.
COUNTS = torch.tensor([[12, 2, 1], [2, 10, 5], [2, 4, 10]])


def all_ordered_pairs(n):
    i, j = torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")
    return i[i != j], j[i != j]


def pair_weight(labels, i, j):
    """What the risk (31) gives each ordered pair: half to both kinds, classes alike, then rows."""
    classes, counts = torch.unique(labels, return_counts=True)
    K, first, second = len(classes), counts[labels[i]], counts[labels[j]]
    same = 0.5 / (K * first * (first - 1))
    different = 0.5 / (K * (K - 1) * first * second)
    return torch.where(labels[i] == labels[j], same, different)


def test_the_minimiser_of_the_risk_has_k_minus_1_times_the_odds_of_sim():
    x, k = torch.meshgrid(torch.arange(3), torch.arange(3), indexing="ij")
    inputs = torch.repeat_interleave(x.flatten(), COUNTS.flatten())
    labels = torch.repeat_interleave(k.flatten(), COUNTS.flatten())
    i, j = all_ordered_pairs(len(labels))
    weight = pair_weight(labels, i, j).double()
    same = (labels[i] == labels[j]).double()
    free = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [free], max_iter=200, tolerance_grad=1e-10, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        logits = free[inputs[i], inputs[j]]
        loss = nn.functional.binary_cross_entropy_with_logits(
            logits, same, weight, reduction="sum"
        )
        loss.backward()
        return loss

    optimizer.step(closure)
    # Independent draws of labels at uniform priors, counted: 16 rows of a class make 16 · 15 pairs
    # of distinct rows.
    rows, both = COUNTS.sum(1).double(), (COUNTS @ COUNTS.T).double()
    alike = (both - torch.diag(rows)) / (16 * 15)
    apart = (torch.outer(rows, rows) - both) / (16 * 16)
    assert torch.allclose(free.detach().exp(), 2 * alike / apart, rtol=1e-4)
    assert math.exp(same_log_odds_shift(3)) == pytest.approx(2)


def test_the_risk_that_training_calls_is_the_risk_of_the_paper_on_balanced_pairs():
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2])
    logits = torch.randn(9, 9, generator=generator(7), dtype=torch.float64)
    i, j = all_ordered_pairs(9)
    same = labels[i] == labels[j]
    loss = nn.functional.softplus(torch.where(same, -logits[i, j], logits[i, j]))
    exact = float((loss * pair_weight(labels, i, j)).sum())
    a, b, drawn = sample_pairs(labels, 400_000, generator(1))
    assert float(balanced_risk(logits[a, b], drawn.double())) == pytest.approx(
        exact, abs=0.01
    )


def test_the_pac_bound_is_the_two_terms_of_the_theorem():
    n, K, d, delta, B = 5000, 4, 3, 0.1, 2.5
    bound, root = pac_bound(n, K, d, delta, B, constant=1.5), math.sqrt(n**2 - K**2 * n)
    assert bound.complexity == pytest.approx(1.5 * (K / root) ** (1 / d))
    assert bound.confidence == pytest.approx(
        12 * K * B / root * math.sqrt(math.log(2 / delta) / 2)
    )
    assert bound.total == pytest.approx(bound.complexity + bound.confidence)
    assert pac_bound(n=100, K=2, d=1).complexity == pytest.approx(
        2 / math.sqrt(100**2 - 4 * 100)
    )


# ----------------------------------------------------------------------------- networks and scoring

SIDE = 6


def body(channels, outputs):
    layers = [
        nn.Conv2d(channels, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
    ]
    return nn.Sequential(
        *layers, nn.Linear(8 * SIDE * SIDE, 32), nn.ReLU(), nn.Linear(32, outputs)
    )


def naive(module, A, B, shift=0.0):
    with torch.no_grad():
        return torch.stack(
            [
                torch.sigmoid(module.eval()(a.expand(len(B), *a.shape), B) - shift)
                for a in A
            ]
        )


torch.manual_seed(0)  # of other draws a narrow layer may answer 0 to every row
BODIES = {
    "linear": mlp(6, 1),
    "one layer": mlp(6, 1, (16,), 0.5),
    "three layers": mlp(6, 1, (8, 16, 4)),
    "normed": nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 1)),
    "no bias": nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.Linear(8, 1)),
    "another order": nn.Sequential(
        nn.Linear(6, 8), nn.ReLU(), nn.ReLU(), nn.Linear(8, 4), nn.Linear(4, 1)
    ),
    "no sequence": nn.Linear(6, 1),
    "images": body(2, 1),
}


@pytest.mark.parametrize("block_bytes", [1, 3000, 2**21])
@pytest.mark.parametrize("name", BODIES)
def test_scores_are_those_of_the_naive_forward_pass(name, block_bytes, monkeypatch):
    monkeypatch.setattr(scoring, "BLOCK_BYTES", block_bytes)
    module = PairwiseNetwork(BODIES[name]).train()
    shape = (1, SIDE, SIDE) if name == "images" else (3,)
    A, B = torch.randn(13, *shape), torch.randn(17, *shape)
    scores = similarity(module, A, B, shift=0.4)
    assert torch.allclose(scores, naive(module, A, B, 0.4), atol=1e-5)
    assert torch.allclose(similarity(module, B, A, shift=0.4).T, scores, atol=1e-5)
    assert not torch.allclose(
        module.one_way(A[:9], B[:9]), module.one_way(B[:9], A[:9])
    )


@pytest.mark.parametrize("name", ["one layer", "normed"])
def test_scores_of_one_order_are_those_of_the_ordered_pair(name):
    module = PairwiseNetwork(BODIES[name]).eval()
    A, B = torch.randn(5, 3), torch.randn(4, 3)
    with torch.no_grad():
        expected = [torch.sigmoid(module.one_way(a.expand(4, 3), B)) for a in A]
    scores = similarity(module, A, B, symmetric=False)
    assert torch.allclose(scores, torch.stack(expected), atol=1e-5)


OWN = {
    "none": None,
    "all": torch.arange(20),
    "some": torch.tensor([4, 5, 6, 7, 8, -1, -1, -1]),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("exclude", "block_bytes"),
    [("none", 1), ("all", 4000), ("some", 2**21), ("some", 1)],
)
def test_streamed_class_means_equal_the_dense_ones(
    exclude, block_bytes, weighted, monkeypatch
):
    monkeypatch.setattr(scoring, "BLOCK_BYTES", block_bytes)
    module = PairwiseNetwork(mlp(6, 1, (8, 8)))
    references, labels = torch.randn(20, 3), torch.tensor([2, 0, 1, 2] * 5)
    own, X = OWN[exclude], references
    if exclude == "some":
        X = torch.cat([references[4:9], torch.randn(3, 3)])
    weight = torch.rand(20, dtype=torch.float64) + 0.1 if weighted else None
    result = class_similarity(module, X, references, labels, 3, own, 0.3, weight)
    dense = naive(module, X, references, 0.3).double()[:, None]
    place = -torch.ones(len(X)) if own is None else own
    kept = (torch.arange(20) != place[:, None])[:, None] & (
        labels == torch.arange(3)[:, None]
    )
    w = kept * (1.0 if weight is None else weight)
    mean = (w * dense).sum(-1) / w.sum(-1)
    squares = (w**2).sum(-1)
    m = w.sum(-1) ** 2 / squares
    spread = (w**2 * (dense - mean[..., None]) ** 2).sum(-1) / squares
    assert torch.allclose(result.q.double(), mean, atol=1e-6)
    stderr = (spread / (m - 1)).sqrt()
    assert torch.allclose(result.stderr.double(), stderr, atol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_standard_error_is_the_spread_over_draws_of_references(weighted):
    module = PairwiseNetwork(mlp(6, 1, (8,)))
    X, m = torch.randn(1, 3), 25
    labels, weight = (
        torch.zeros(m, dtype=torch.long),
        0.5 + torch.arange(m) % 3 if weighted else None,
    )
    draws = [
        class_similarity(module, X, torch.randn(m, 3), labels, 1, None, 0.0, weight)
        for _ in range(300)
    ]
    spread, claimed = (
        torch.stack([d.q for d in draws]).std(),
        torch.stack([d.stderr for d in draws]).mean(),
    )
    assert float(claimed) == pytest.approx(float(spread), rel=0.15)


def test_a_single_reference_claims_no_certainty():
    module = PairwiseNetwork(mlp(6, 1, (8,)))
    X, references = torch.randn(1, 3), torch.randn(2, 3)
    result = class_similarity(module, X, references, torch.tensor([0, 1]), 2)
    assert bool(torch.isinf(result.stderr).all())


@pytest.mark.parametrize(
    ("labels", "n_classes", "own", "message"),
    [
        ([0, 1, 1], 3, [-1, -1], "every class"),
        ([0, 1], 2, [-1, -1], "one entry per reference"),
        ([0, 1, 1], 2, [0, 3], "2 places below 3"),
        ([0, 1, 1], 2, [0, -1], "at least 2"),
    ],
)
def test_references_that_cannot_be_averaged_are_refused(
    labels, n_classes, own, message
):
    given = PairwiseNetwork(mlp(6, 1)), torch.randn(2, 3), torch.randn(3, 3)
    with pytest.raises(ValueError, match=message):
        class_similarity(*given, torch.tensor(labels), n_classes, torch.tensor(own))


# ------------------------------------------------------------------------------------ a custom body


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
    return CollisionClassifier(
        members=[Pairwise(network=body, n_references=20)], **LONG
    ).fit(*data)


def test_the_planted_collision_is_found(fitted):
    assert fitted.collision_matrix_.matrix == pytest.approx(PLANTED, abs=0.08)
    assert fitted.recovery_.matrix == pytest.approx(PLANTED, abs=0.1)
    assert 0 < fitted.reference_stderr_ < 0.1
    assert [
        np.bincount(references.codes).tolist()
        for references in fitted._ensemble.comparison.references
    ] == [[20] * 3] * 2


def test_posteriors_of_planted_collisions_are_even(fitted):
    X, y = drawings(120, 1)
    shared = (y < 2) & (np.arange(120) // 3 % 2 == 0)
    assert np.abs(fitted.predict_proba(X)[shared, :2] - 0.5).mean() < 0.12
    assert (fitted.predict(X)[~shared] == y[~shared]).mean() > 0.95


def test_similarities_tell_the_planted_classes_apart(fitted):
    X, y = drawings(120, 1)
    sim = fitted.similarity(X[:20], X[20:])
    assert sim[(y[:20, None] == 2) & (y[20:] == 2)].mean() > 0.9
    assert sim[(y[:20, None] == 2) ^ (y[20:] == 2)].mean() < 0.1


def test_a_single_image_scores_like_one_of_many(data, fitted):
    """A batch of one image was once taken for a stack of one batch."""
    for clf in (fitted, CollisionClassifier(members=[body], **SHORT).fit(*data)):
        assert clf.predict_proba(data[0][:1]) == pytest.approx(
            clf.predict_proba(data[0][:5])[:1], abs=1e-5
        )


@pytest.mark.parametrize(
    "shape", [(2, SIDE, SIDE), (5,)], ids=["two channels", "a table"]
)
def test_the_body_is_built_for_both_inputs_together(shape):
    built = []

    def factory(d, k):
        built.append((d, k))
        return nn.Sequential(nn.Flatten(), nn.Linear(2 * int(np.prod(shape)), k))

    X = np.random.default_rng(0).normal(size=(150, *shape))
    CollisionClassifier(members=[Pairwise(network=factory)], **SHORT).fit(
        X, np.arange(150) % 3
    )
    assert set(built) == {(2 * shape[0], 1)}


def test_images_need_a_body_of_their_own(data):
    with pytest.raises(
        ValueError, match=r"Pairwise\(\) takes rows of features, got shape"
    ):
        CollisionClassifier(members=[Pairwise()], **SHORT).fit(*data)


def test_what_builds_no_module_is_refused_as_a_body():
    with pytest.raises(ValueError, match="network must be a function"):
        Pairwise(network="body")
