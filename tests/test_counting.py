"""Counting over repeated inputs is the definition itself: it must agree with brute force and with the truth."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pandas as pd
import pytest

from collidescope import collision_matrix_from_posteriors, count_collisions, repeated_rows
from collidescope.counting import input_groups
from collidescope.datasets import led, load_brfss
from helpers import mean_tvd


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


def test_counts_agree_with_the_one_step_estimate_from_true_posteriors():
    problem = led(0.1)
    X, y = problem.sample(50_000, 1)
    counted, one_step = count_collisions(X, y), collision_matrix_from_posteriors(problem.posteriors(X), y)
    assert counted.coverage > 0.99
    assert mean_tvd(counted.matrix, one_step.matrix) < 0.005


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


def test_many_columns_of_many_levels_do_not_overflow():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2**31, (500, 60))
    X = np.concatenate([X, X])
    assert input_groups(X).tolist() == [*range(500), *range(500)]


def test_row_order_and_names_of_columns_do_not_matter():
    rng = np.random.default_rng(1)
    X, y = rng.integers(0, 4, (200, 2)), rng.integers(0, 3, 200)
    cm = count_collisions(X, y)
    for order in list(permutations(range(2))):
        mixed = rng.permutation(200)
        other = count_collisions(pd.DataFrame(X[mixed][:, list(order)], columns=["same", "same"]), y[mixed])
        assert np.allclose(other.matrix, cm.matrix)
        assert np.allclose(other.stderr, cm.stderr)


def test_a_group_of_one_large_input_gives_its_class_shares():
    y = np.repeat([0, 1], [30, 10])
    cm = count_collisions(np.zeros((40, 1)), y)
    assert cm.matrix[0].tolist() == pytest.approx([29 / 39, 10 / 39])
    assert cm.coverage == 1


#: The three-class matrix of BRFSS 2015 counted without BMI, MentHlth and PhysHlth, to four digits.
BRFSS = np.array([[0.9007, 0.0131, 0.0862], [0.7912, 0.0288, 0.1800], [0.7364, 0.0255, 0.2380]])


@pytest.mark.slow
def test_counted_collisions_of_a_quarter_of_a_million_people():
    try:
        X, y = load_brfss()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    cm = count_collisions(X.drop(columns=["BMI", "MentHlth", "PhysHlth"]), y)
    order = [cm.classes.tolist().index(name) for name in ("none", "prediabetes", "diabetes")]
    assert np.abs(cm.matrix[np.ix_(order, order)] - BRFSS).max() < 6e-5
    assert cm.coverage == pytest.approx(0.61, abs=0.005)
