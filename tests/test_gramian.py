"""The Gramian against a double loop over pairs."""

from __future__ import annotations

import numpy as np
import pytest

from collidescope.equations.gramian import gramian_from_posteriors, gramian_from_similarities
from helpers import random_posteriors


def double_loop(sim, codes, weights, k):
    """Weighted mean of sim over ordered pairs of different rows, class by class."""
    total, share = np.zeros((k, k)), np.zeros((k, k))
    for a in range(len(codes)):
        for b in range(len(codes)):
            if a != b:
                total[codes[a], codes[b]] += weights[a] * weights[b] * sim[a, b]
                share[codes[a], codes[b]] += weights[a] * weights[b]
    return total / share


def sample(k, seed=0, n=40):
    rng = np.random.default_rng(seed)
    P, codes = random_posteriors(rng, n, k)
    codes[k : 2 * k] = np.arange(k)
    return P, codes, rng.uniform(0.1, 3.0, n)


@pytest.mark.parametrize("k", [2, 3, 7])
@pytest.mark.parametrize("weighted", [False, True])
def test_posteriors_give_the_mean_similarity_of_all_pairs_of_different_rows(k, weighted):
    P, codes, weights = sample(k)
    expected = double_loop(P @ P.T, codes, weights if weighted else np.ones(len(codes)), k)
    G = gramian_from_posteriors(P, codes, weights if weighted else None)
    np.testing.assert_allclose(G, expected, atol=1e-12)
    assert np.array_equal(G, G.T)


@pytest.mark.parametrize("weighted", [False, True])
def test_similarities_give_the_same_gramian_as_the_pairs_behind_them(weighted):
    """q from a symmetric pair score, the row itself left out: one road must lead where the other does."""
    P, codes, weights = sample(3, seed=1)
    w = weights if weighted else np.ones(len(codes))
    sim = P @ P.T
    q = np.empty((len(codes), 3))
    for a, j in np.ndindex(q.shape):
        others = (codes == j) & (np.arange(len(codes)) != a)
        q[a, j] = np.average(sim[a, others], weights=w[others])
    G = gramian_from_similarities(q, codes, weights if weighted else None)
    expected = double_loop(sim, codes, w, 3)
    # On the diagonal the two differ in whether a row's partners are weighted with or without that row.
    assert G[~np.eye(3, dtype=bool)] == pytest.approx(expected[~np.eye(3, dtype=bool)], abs=1e-12)
    assert np.diag(G) == pytest.approx(np.diag(expected), abs=1e-12 if not weighted else 0.02)


def test_whole_weights_count_as_pairs_of_repeated_rows_except_with_themselves():
    P, codes, _ = sample(3, seed=2)
    weights = np.random.default_rng(0).integers(1, 4, len(codes))
    repeated = gramian_from_posteriors(np.repeat(P, weights, axis=0), np.repeat(codes, weights))
    off = ~np.eye(3, dtype=bool)
    assert gramian_from_posteriors(P, codes, weights)[off] == pytest.approx(repeated[off], abs=1e-12)


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        ([0, 0, 1, 2], "class numbers from 0 to 1"),
        ([0, 0, 1, -1], "class numbers from 0 to 1"),
        ([0.0, 0.0, 1.0, 1.0], "class numbers from 0 to 1, got float64"),
        ([0, 0, 1], "4 class numbers"),
        ([0, 0, 0, 0], "no row of class number 1"),
        ([0, 0, 0, 1], "single row of class number 1"),
    ],
)
def test_wrong_codes_are_refused_by_name(codes, message):
    with pytest.raises(ValueError, match=message):
        gramian_from_posteriors(np.full((4, 2), 0.5), codes)
