"""Kappa and alpha of few items and rare classes: intervals that hold; copies of votes noticed."""

import warnings

import numpy as np
import pandas as pd
import pytest

from collidescope import CollisionWarning
from collidescope.applications.annotators import agreement


def covered(a, b, votes, n, samples, seed=0):
    """Share of samples whose interval holds 1 / (a + b + 1), kappa where p ~ Beta(a, b)."""
    rng = np.random.default_rng(seed)
    truth = 1 / (a + b + 1)
    hits = []
    while len(hits) < samples:
        each = rng.choice(votes, n)
        second = rng.binomial(each, rng.beta(a, b, n))
        if second.sum() in (0, each.sum()):
            continue  # one class alone has no coefficient
        found = agreement(np.column_stack([each - second, second]))
        kinds = found.loc[["Fleiss' kappa", "Krippendorff's alpha"]]
        hits.append(((kinds["low"] <= truth) & (truth <= kinds["high"])).tolist())
    return np.mean(hits, axis=0)


@pytest.mark.parametrize(
    ("a", "b", "votes"),
    [(0.3, 3, [3]), (0.3, 3, [2]), (0.2, 4, [2]), (1, 1, [3]), (0.3, 3, [2, 8])],
)
def test_intervals_of_thirty_items_cover(a, b, votes):
    assert covered(a, b, votes, 30, 200).min() >= 0.92  # 95% less two standard errors


def test_an_interval_holds_its_own_value():
    rng = np.random.default_rng(1)
    for _ in range(20):
        found = agreement(rng.multinomial(3, [0.8, 0.1, 0.1], 15))
        assert (
            (found["low"] <= found["value"]) & (found["value"] <= found["high"])
        ).all()


def test_copies_of_votes_are_noticed():
    votes = np.random.default_rng(0).multinomial(4, [0.6, 0.4], 50)
    with pytest.warns(CollisionWarning, match="multiple of 3"):
        agreement(3 * votes)


def test_votes_that_agree_are_not_taken_for_copies():
    votes = np.random.default_rng(0).multinomial(1, [0.6, 0.4], 50)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        agreement(2 * votes)
    assert [str(each.message) for each in said] == []


def test_a_class_without_votes_changes_no_coefficient():
    votes = np.array([[4, 0], [4, 0], [3, 1], [1, 3], [0, 4]])
    with_empty = np.insert(votes, 1, 0, axis=1)
    pd.testing.assert_frame_equal(agreement(with_empty), agreement(votes))


def test_kappa_of_unanimous_items_is_no_surer_than_their_agreement():
    table = agreement([[3, 0], [0, 3]] * 30)
    # Classes are even: two votes agree by chance half of the time.
    least = 2 * table.loc["agreement", "low"] - 1
    for coefficient in ("Fleiss' kappa", "Krippendorff's alpha"):
        low, high = table.loc[coefficient, ["low", "high"]]
        assert low <= least + 0.01  # 1.000: one sample in six or three refutes it
        assert high == 1
