"""Merging classes by plan: exact at every step, valid as a tree, obedient to constraints."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import is_monotonic, is_valid_linkage

from collidescope import CollisionMatrix, collision_matrix_from_posteriors
from collidescope.applications import consolidate, consolidation
from collidescope.applications.consolidation import NAME_WIDTH
from helpers import ZOO, blocks, planted, random_posteriors


def of_joint(B, classes=None):
    """The collision matrix of a joint matrix, up to its sum."""
    rows = B.sum(axis=1)
    return CollisionMatrix(B / rows[:, None], rows / rows.sum(), classes)


def apart(k):
    """Classes numbered 0 … k-1 that collide with their neighbours, the more the higher the
    number."""
    near = np.diag(np.arange(1.0, k), 1)
    return of_joint(4 * k * np.eye(k) + near + near.T)


@pytest.mark.parametrize("name", ZOO)
def test_the_tree_has_the_pber_of_the_merged_matrix_at_every_step(name):
    cm = CollisionMatrix(*ZOO[name])
    plan = consolidate(cm)
    assert plan.path["n_groups"].tolist() == list(range(cm.n_classes, 0, -1))
    pber = plan.path.set_index("n_groups")["pber"]
    assert pber[1] == 0
    for n in range(2, min(cm.n_classes, 12) + 1):
        here = plan.at(n)
        merged = cm.merge(here.groups)
        assert here.n_groups == n == len(here.groups)
        assert pber[n] == pytest.approx(merged.pber, abs=1e-12)
        assert np.allclose(here.matrix.matrix, merged.matrix, atol=1e-15)
    assert is_valid_linkage(plan.linkage)
    assert is_monotonic(plan.linkage)
    assert plan.linkage[-1, 2:] == pytest.approx((cm.pber, cm.n_classes), abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(3, 8), st.integers(0, 10_000))
def test_each_step_merges_the_pair_that_lowers_pber_most(k, seed):
    cm = CollisionMatrix(*planted(k, ratio=5, sharpness=1.5, seed=seed))
    plan = consolidate(cm)
    for n in range(k, 2, -1):
        groups, following = plan.at(n).groups, plan.at(n - 1).matrix.pber
        rivals = [
            cm.merge([*(g for g in groups if g not in (a, b)), a + b]).pber
            for a, b in combinations(groups, 2)
        ]
        assert following == pytest.approx(min(rivals), abs=1e-12)


@pytest.mark.parametrize("groups", [None, np.arange(1500) // 10])
def test_the_path_has_the_intervals_of_the_merged_matrices(groups):
    P, codes = random_posteriors(np.random.default_rng(0), 1500, 6)
    y = np.array(list("abcdef"))[codes]
    cm = collision_matrix_from_posteriors(P, y, groups=groups)
    plan = consolidate(cm)
    ends = plan.path.set_index("n_groups")[["pber_low", "pber_high"]]
    assert tuple(ends.loc[6]) == pytest.approx(cm.pber_interval())
    most = 1.0
    for n in range(6, 1, -1):
        here = plan.at(n)
        assert here.matrix.stderr is not None
        merged = cm.merge(here.groups)
        # A grouping is chosen because its PBER is low: the upper end allows for all pairs, and
        # for two of them where several were merged.
        choices = 15 ** min(6 - n, 2)
        level = 1 - 0.05 / choices
        most = min(most, merged.pber_interval(level)[1])  # what fewer merges leave
        expected = merged.pber_interval()[0], most
        assert tuple(ends.loc[n]) == pytest.approx(expected, abs=1e-12)
    for words in (
        "6 classes in 2 groups",
        f"{here.matrix.pber:.2%} (95% interval",
        *here.matrix.classes,
    ):
        assert words in str(here)
    assert ends.loc[1].tolist() == [0, 0]


def test_no_merge_raises_the_upper_end():
    y = np.arange(400) % 10
    P = np.full((400, 10), 0.001)
    P[np.arange(400), y] = 0.991
    P[:4] = P[1:5]  # four wrong rows
    plan = consolidate(collision_matrix_from_posteriors(P, y))
    assert (np.diff(plan.path["pber_high"]) <= 0).all()


def test_groups_that_are_no_merges_of_the_ones_before_are_told():
    fine = np.array([0, 1, 1, 2])
    assert consolidation._coarsens(fine, np.array([0, 1, 1, 1]))
    assert not consolidation._coarsens(fine, np.array([0, 0, 1, 1]))


def test_max_pber_keeps_as_many_groups_as_it_allows():
    cm = CollisionMatrix(*planted(8, sharpness=1.5))
    plan = consolidate(cm, max_pber=0.3)
    assert plan.matrix.pber <= 0.3 < plan.at(plan.n_groups + 1).matrix.pber
    assert consolidate(cm, max_pber=1).n_groups == 8


def test_ties_go_to_the_classes_that_come_first():
    even = consolidate(CollisionMatrix(np.full((6, 6), 0.02) + 0.88 * np.eye(6)))
    assert even.at(5).groups == [[0, 1], [2], [3], [4], [5]]


def test_a_thousand_classes_keep_their_pairs():
    plan = consolidate(CollisionMatrix(*blocks((2,) * 500)), n_groups=500)
    assert plan.groups == [[2 * i, 2 * i + 1] for i in range(500)]
    assert plan.matrix.pber == pytest.approx(0, abs=1e-12)


def test_optimal_looks_at_all_groupings_of_five():
    """Against a slow reference: every way of giving five classes one of three names."""
    cm = CollisionMatrix(*planted(5, sharpness=1, seed=4))
    ways = (names for names in np.ndindex(*(3,) * 5) if len(set(names)) == 3)
    lowest = min(
        cm.merge([np.flatnonzero(np.equal(names, g)).tolist() for g in range(3)]).pber
        for names in ways
    )
    best = consolidate(cm, 3, method="optimal").matrix
    assert best.pber == pytest.approx(lowest, abs=1e-12)


@pytest.mark.parametrize("method", ["greedy", "optimal"])
def test_must_merge_comes_first(method):
    cm = CollisionMatrix(*planted(6), classes=list("abcdef"))
    plan = consolidate(cm, must_merge=[("a", "c"), ("c", "f")], method=method)
    assert plan.groups == [["a", "c", "f"], ["b"], ["d"], ["e"]]
    first = plan.path.iloc[0]
    assert first["n_groups"] == 4
    pber = cm.merge([["a", "c", "f"]]).pber
    assert first["pber"] == pytest.approx(pber, abs=1e-12)
    mapping = plan.at(2).mapping
    assert mapping["a"] == mapping["f"]


@pytest.mark.parametrize("method", ["greedy", "optimal"])
def test_cannot_merge_holds_at_every_step(method):
    cm = apart(6)
    assert consolidate(cm, 5).groups[-1] == [4, 5]
    plan = consolidate(cm, cannot_merge=[(4, 5), (0, 5)], method=method)
    assert plan.path["n_groups"].iloc[-1] == 2
    for n in plan.path["n_groups"]:
        mapping = plan.at(n).mapping
        assert mapping[4] != mapping[5] != mapping[0]


def test_only_merging_by_gain_alone_chains():
    """Every class collides a little with every other, and most with its neighbours."""
    between = np.abs(np.subtract.outer(np.arange(26), np.arange(26)))
    near = np.exp(-between / 2.0) + 0.02 + 3 * np.eye(26)
    cm = of_joint(near, [f"letter {c}" for c in range(26)])
    plain = consolidate(cm, 9)
    limited = consolidate(cm, 9, max_group_size=3)
    even = consolidate(cm, 9, balance=1)
    assert max(map(len, plain.groups)) > 10
    assert max(map(len, limited.groups)) == 3
    assert max(map(len, even.groups)) <= 5
    for plan in (limited, even):
        price = plan.path.set_index("n_groups").loc[9, "price"]
        expected = plan.matrix.pber - plain.matrix.pber
        assert price == pytest.approx(expected, abs=1e-12)
        assert price > 0
        assert "Merging by gain alone" in str(plan)
        assert is_valid_linkage(plan.linkage)
    assert plain.path["price"].abs().max() == 0
    assert limited.path["n_groups"].iloc[-1] == 9  # 26 classes in threes
    assert max(len(name) for name in plain.matrix.classes) <= NAME_WIDTH
    assert plain.path["first"].dropna().str.len().max() <= NAME_WIDTH


def test_every_label_gets_its_group():
    plan = consolidate(apart(4), n_groups=3)
    assert plan.mapping == {0: "0", 1: "1", 2: "2+3", 3: "2+3"}
    assert plan.transform([3, 0, 2]).tolist() == ["2+3", "0", "2+3"]
    y = pd.Series([3, 0, 2], index=[7, 8, 9], name="digit")
    expected = pd.Series(["2+3", "0", "2+3"], y.index, name="digit")
    assert plan.transform(y).equals(expected)


def test_names_of_groups_can_be_given_or_made():
    plan = consolidate(apart(4), 3, names=["zero", "one", "rest"])
    assert plan.mapping[3] == "rest"
    made = plan.at(3, names=lambda group: f"{len(group)} from {group[0]}")
    assert made.mapping[2] == "2 from 2"


@pytest.mark.parametrize(
    ("sizes", "classes", "names"),
    [
        ((2, 1, 2), ["a", "b", "a+b", "c", "d"], ["a+b (2)", "a+b", "c+d"]),
        ((2, 2), ["a", "b+c", "a+b", "c"], ["a+b+c", "a+b+c (2)"]),
        ((1, 1, 2), [1, "1", 2, "2"], ["1", "1 (2)", "2+2"]),
    ],
)
def test_names_that_merging_would_double_get_a_number(sizes, classes, names):
    cm = CollisionMatrix(*blocks(sizes), classes=np.array(classes, dtype=object))
    plan = consolidate(cm, n_groups=len(sizes))
    assert plan.matrix.classes.tolist() == names
    assert plan.transform(cm.classes).tolist() == np.repeat(names, sizes).tolist()
