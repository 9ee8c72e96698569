"""Pairs are drawn as promised: distinct, balanced, weighted, for any imbalance."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from collidescope.pairwise.pairs import _Pool, _uniform, same_log_odds_shift, sample_pairs


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


def test_one_seed_gives_one_sample():
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    first, again = (sample_pairs(labels, 100, generator(7)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


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
        ([0], None, "at least 2"),
        ([0.0, 1.0], None, "at least 2 class numbers"),
    ],
)
def test_impossible_requests_say_what_is_wrong(labels, weights, message):
    w = None if weights is None else torch.tensor(weights)
    with pytest.raises(ValueError, match=message):
        sample_pairs(torch.tensor(labels), 10, None, w)
    with pytest.raises(ValueError, match="n_pairs must not be negative, got -1"):
        sample_pairs(torch.tensor([0, 0, 1, 1]), -1)


@pytest.mark.parametrize("stuck", ["first", "last"])
def test_a_partner_that_rounding_puts_on_the_row_itself_becomes_its_neighbour_in_the_class(stuck, monkeypatch):
    labels = torch.tensor([0, 0, 1, 1, 1, 2, 2])
    pool = _Pool(labels, None)
    at = {"first": pool.first, "last": pool.last - 1}[stuck]
    monkeypatch.setattr(_Pool, "_find", lambda self, point, group: at[group])
    group = torch.tensor([0, 1, 2])
    i, j = pool.two_of_one(group, generator())
    assert torch.equal(i, at)
    assert torch.equal(j, at + (1 if stuck == "first" else -1))
    assert torch.equal(labels[pool.order[i]], labels[pool.order[j]])


def test_weights_add_up_in_float64_whatever_came():
    # In float32 a sum of 2²⁴ no longer grows by ones: later rows would never be drawn.
    for weight in (None, torch.ones(6, dtype=torch.float32), torch.ones(6, dtype=torch.int64)):
        pool = _Pool(torch.tensor([0, 0, 0, 1, 1, 1]), weight)
        assert pool.cumulative.dtype == torch.float64
    assert _uniform(torch.zeros(3), generator()).dtype == torch.float64
    heavy = torch.ones(4, dtype=torch.float32)
    heavy[0] = 2.0**25
    assert (
        _Pool(torch.tensor([0, 0, 0, 0, 1, 1]), torch.cat([heavy, torch.zeros(0), torch.ones(2)])).cumulative[-1]
        == 2**25 + 5
    )


def test_points_on_the_edge_of_a_class_stay_in_it():
    pool = _Pool(torch.tensor([1, 0, 1, 0]), torch.tensor([1.0, 2.0, 3.0, 4.0]))
    group = torch.tensor([0, 0, 1, 1])
    point = torch.stack([pool.group_start, pool.group_end], 1).flatten()
    place = pool._find(point, group)
    assert place.tolist() == [0, 1, 2, 3]
    assert pool.order.tolist() == [1, 3, 0, 2]
