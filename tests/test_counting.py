"""Counting over repeated inputs is the definition itself: it must agree with brute force and with the truth."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from collidescope import collision_matrix_from_posteriors, count_collisions
from collidescope.counting import input_groups, repeated_rows
from collidescope.datasets import led


def by_pairs(X: list, y: list) -> tuple[np.ndarray, float]:
    """Every ordered pair of rows with equal inputs, each row's partners weighted evenly."""
    classes = sorted(set(y))
    B = np.zeros((len(classes), len(classes)))
    partners = {i: [j for j in range(len(X)) if j != i and X[j] == X[i]] for i in range(len(X))}
    covered = [i for i in partners if partners[i]]
    for i in covered:
        for j in partners[i]:
            B[classes.index(y[i]), classes.index(y[j])] += 1 / len(partners[i])
    return B / B.sum(axis=1, keepdims=True), len(covered) / len(X)


@pytest.mark.parametrize("seed", range(5))
def test_counts_equal_a_loop_over_all_pairs(seed):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, (40, 2))
    y = rng.choice(["a", "b", "c"], 40)
    expected, coverage = by_pairs([tuple(row) for row in X.tolist()], y.tolist())
    cm = count_collisions(X, y)
    assert np.allclose(cm.matrix, expected)
    assert cm.coverage == pytest.approx(coverage)
    assert cm.balance_gap < 1e-12


@pytest.mark.parametrize("n", [300, 1000, 4000])
def test_intervals_cover_when_inputs_repeat_rarely_and_when_they_repeat_often(n):
    """From 2 to 31 rows an input; the target is what counting estimates on average, the rows covered being random."""
    problem = led(0.2)
    rng = np.random.default_rng(0)
    runs = [count_collisions(*problem.sample(n, rng, stratified=False)) for _ in range(150)]
    target = np.mean([cm.matrix for cm in runs], axis=0)
    inside = [(cm.interval()[0] <= target) & (target <= cm.interval()[1]) for cm in runs]
    assert 0.93 < np.mean(inside) < 0.97
    if n == 4000:  # every row is covered: counting is unbiased for the truth
        error = np.abs(target - problem.collision_matrix().matrix)
        assert error.max() < 5 * np.std([cm.matrix for cm in runs], axis=0).max() / np.sqrt(150)


def test_any_mixture_of_dtypes_is_grouped_by_exact_equality():
    table = pd.DataFrame(
        {
            "number": [1.0, 1.0, 2.0, 1.0],
            "text": ["x", "x", "x", "y"],
            "category": pd.Categorical(["u", "u", "u", "u"]),
            "flag": [True, True, True, True],
            "when": pd.to_datetime(["2020-01-01"] * 4),
            "gap": [np.nan, np.nan, 1.0, np.nan],
        }
    )
    assert input_groups(table).tolist() == [0, 0, 1, 2]
    assert repeated_rows(table).tolist() == [True, True, False, False]
    assert count_collisions(table, ["a", "b", "a", "b"]).matrix.tolist() == [[0, 1], [1, 0]]


def test_arrays_of_any_dtype_and_plain_lists_work():
    y = ["a", "b", "a", "b"]
    for X in (
        np.array([[1], [1], [2], [2]], dtype=np.uint8),
        np.array([[0.5], [0.5], [-0.0], [0.0]]),
        np.array([["p"], ["p"], ["q"], ["q"]]),
        np.array([[1, "p"], [1, "p"], [2, "q"], [2, "q"]], dtype=object),
        ["p", "p", "q", "q"],
        pd.Series(["p", "p", "q", "q"], dtype="category"),
    ):
        assert count_collisions(X, y).matrix.tolist() == [[0, 1], [1, 0]]


def by_ratio(units: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """ΣZ/Σρ and its standard error, unit by unit."""
    Z, rho = (np.array(part) for part in zip(*units, strict=True))
    m = Z.sum(axis=0) / rho.sum(axis=0)[:, None]
    left = Z - m * rho[:, :, None]
    return m, np.sqrt(len(Z) / (len(Z) - 1) * (left**2).sum(axis=0)) / rho.sum(axis=0)[:, None]


def test_an_input_seen_up_to_four_times_is_one_unit_of_the_standard_error():
    rng = np.random.default_rng(3)
    X = np.repeat(np.arange(60), rng.integers(1, 5, 60))
    y = rng.integers(0, 3, len(X))
    units = []
    for x in range(60):
        n = np.bincount(y[x == X], minlength=3).astype(float)
        if n.sum() > 1:
            units.append(((np.outer(n, n) - np.diag(n)) / (n.sum() - 1), n))
    m, stderr = by_ratio(units)
    cm = count_collisions(X, y)
    assert np.allclose(cm.matrix, m, atol=1e-12)
    assert np.allclose(cm.stderr, stderr, rtol=1e-9)
    off, sizes = np.array([n.sum() - np.trace(Z) for Z, n in units]), np.array([n.sum() for _, n in units])
    left = off - cm.pber * sizes
    assert cm.pber_stderr == pytest.approx(np.sqrt(len(off) / (len(off) - 1) * left @ left) / sizes.sum())
    assert cm.counts.tolist() == np.bincount(y[np.isin(X, np.flatnonzero(np.bincount(X) > 1))]).tolist()
    assert np.allclose(cm.priors, cm.counts / cm.counts.sum())
    assert cm.info["distinct_inputs"] == len(units)
    assert np.allclose(cm.merge([[0], [1], [2]]).stderr, cm.stderr)


@pytest.mark.parametrize("times", [5, 9])
def test_an_input_seen_more_often_is_one_unit_a_row_with_the_other_rows_as_its_posterior(times):
    rng = np.random.default_rng(4)
    X = np.repeat(np.arange(40), times)
    y = (X + (rng.random(len(X)) < 0.3)) % 3
    others = (X[:, None] == X).astype(int) - np.eye(len(X), dtype=int)
    P = others @ np.eye(3)[y] / (times - 1)
    cm, one_step = count_collisions(X, y), collision_matrix_from_posteriors(P, y)
    assert one_step.info["moved"] < 1e-9
    assert np.allclose(cm.stderr, one_step.stderr, rtol=1e-9)
    assert np.allclose(cm.covariance, one_step.covariance, rtol=1e-9)
    assert cm.pber_stderr == pytest.approx(one_step.pber_stderr)


def test_no_entry_is_negative_not_even_by_rounding():
    rng = np.random.default_rng(6)
    for _ in range(50):
        X, y = rng.integers(0, 4, 14), np.r_[0, 1, 2, rng.integers(0, 3, 11)]
        if (np.bincount(X)[X] > 1).all():
            assert count_collisions(X, y).matrix.min() >= 0
