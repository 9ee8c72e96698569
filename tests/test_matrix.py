"""The value object: its identities, its metrics and its files."""

import json
import warnings
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from scipy import stats

from collidescope import (
    CollisionMatrix,
    collision_matrix_from_posteriors,
    count_collisions,
)
from collidescope.datasets import scenario_a
from collidescope.equations.bounds import bayes_error_bounds
from collidescope.limit import limit_from_scores
from collidescope.matrix import Diagnostics
from helpers import ZOO, planted, random_posteriors


@pytest.mark.parametrize("name", ZOO)
def test_a_true_matrix_has_the_properties_of_one(name):
    cm = CollisionMatrix(*ZOO[name])
    assert cm.balance_gap < 1e-15
    assert np.linalg.eigvalsh(cm.joint)[0] > -1e-15
    assert np.allclose(cm.joint.sum(axis=1), cm.priors, atol=1e-14)
    assert np.allclose(cm.gramian, cm.matrix @ cm.matrix.T)
    assert np.allclose(cm.precision(), cm.recall(), atol=1e-12)


def test_decision_at_uniform_priors_on_an_uneven_population_gives_the_papers_precision():
    """BRFSS diabetes: recall .665 at uniform decision priors is a precision of about 1/4 at a
    prevalence of 13.9%."""
    cm = CollisionMatrix([[0.664, 0.336], [0.335, 0.665]], counts=[218_334, 35_346])
    precision = cm.precision(population_priors=[0.861, 0.139])
    assert precision[1] == pytest.approx(
        0.139 * 0.665 / (0.139 * 0.665 + 0.861 * 0.336)
    )
    assert 0.23 < precision[1] < 0.26
    assert cm.recall()[1] == 0.665
    assert cm.precision("empirical")[1] == pytest.approx(precision[1], abs=1e-3)


def test_bayes_bounds_are_refused_where_s_was_estimated():
    P, codes = random_posteriors(np.random.default_rng(0), 500, 3)
    cm = collision_matrix_from_posteriors(P, codes)
    for unknown in (
        cm,
        cm.merge([[0, 1]]),
        CollisionMatrix(np.eye(2), method="counted", coverage=0.99),
    ):
        with pytest.raises(
            ValueError,
            match=r"bayes_error_bounds needs a known S.*use bayes_error_limit",
        ):
            unknown.bayes_error_bounds()
    assert CollisionMatrix(
        np.eye(2), method="counted", coverage=1.0
    ).bayes_error_bounds() == (0, 0)
    assert CollisionMatrix(np.eye(2), method="densities").bayes_error_bounds() == (0, 0)


def test_the_bayes_error_limit_takes_the_smaller_bound():
    S, more = [[0.8, 0.2], [0.2, 0.8]], {"counts": [100, 100], "method": "one-step"}
    both = CollisionMatrix(
        S, pber_stderr=0.02, held_out_error=0.15, held_out_stderr=0.03, **more
    )
    assert 0.15 + stats.t.ppf(0.95, 199) * 0.03 < both.bayes_error_limit() < 0.21
    grouped = replace(both, n_units=10, grouped=True)
    assert grouped.bayes_error_limit() > both.bayes_error_limit() + 0.02
    assert both.bayes_error_limit(0.5) < both.bayes_error_limit(0.99)
    one_sided = replace(both, held_out_error=None).bayes_error_limit(0.95)
    assert one_sided == pytest.approx(both.pber_interval(0.9)[1])
    # a known S has no error
    assert CollisionMatrix(S).bayes_error_limit() == pytest.approx(0.2)
    with pytest.raises(ValueError, match="level needs an estimated standard error"):
        CollisionMatrix(S, method="gramian").bayes_error_limit()
    problem = scenario_a(3)
    X, y = problem.sample(2000, 0)
    assert (
        collision_matrix_from_posteriors(problem.posteriors(X), y).bayes_error_limit()
        > problem.bayes_error()
    )


def test_dominance_agrees_with_its_factor():
    assert CollisionMatrix(np.eye(2)).dominance_factor == 0
    assert CollisionMatrix([[0.4, 0.6], [0.1, 0.9]]).dominance_factor == pytest.approx(
        1.5
    )
    assert not CollisionMatrix([[0.5, 0.5], [0.1, 0.9]]).is_diagonally_dominant
    assert CollisionMatrix([[0.6, 0.4], [0.1, 0.9]]).is_diagonally_dominant
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert CollisionMatrix([[0.0, 1.0], [0.0, 1.0]]).dominance_factor == np.inf


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 8), st.integers(0, 10_000), st.data())
def test_merging_equals_recomputing_on_merged_labels(k, seed, data):
    """Exact for the estimate, and for its standard errors, when nothing had to be projected."""
    P, codes = random_posteriors(np.random.default_rng(seed), 200 * k, k, sharpness=1.5)
    group = np.array(data.draw(st.lists(st.integers(0, 2), min_size=k, max_size=k)))
    group[:2] = 0, 1  # at least two groups
    cm = collision_matrix_from_posteriors(P, codes)
    used = list(dict.fromkeys(group.tolist()))
    merged = cm.merge([np.flatnonzero(group == g).tolist() for g in used])
    A = np.stack([group == g for g in used], axis=1).astype(float)
    again = collision_matrix_from_posteriors(
        P @ A, np.array([used.index(g) for g in group])[codes]
    )
    assert np.allclose(merged.priors, again.priors, atol=1e-12)
    assert merged.pber_stderr == pytest.approx(again.pber_stderr, abs=1e-9)
    event(f"projected: {cm.diagnostics.moved > 1e-9}")
    if cm.diagnostics.moved < 1e-9 and again.diagnostics.moved < 1e-9:
        assert np.allclose(merged.matrix, again.matrix, atol=1e-9)
        assert np.allclose(merged.stderr, again.stderr, atol=1e-9)


def test_merging_keeps_the_other_classes_in_order():
    cm = CollisionMatrix(
        np.eye(5), classes=[0, 1, 4, 7, 9], counts=[10, 20, 30, 40, 50]
    )
    merged = cm.merge([["4", "9"], [0, 7]])
    assert merged.classes.tolist() == ["0+7", "1", "4+9"]
    assert merged.counts.tolist() == [50, 20, 80]
    grouped = replace(
        cm,
        units=[5, 6, 7, 8, 9],
        n_units=20,
        grouped=True,
        held_out_error=0.3,
        held_out_stderr=0.01,
    )
    assert grouped.merge([[4, 9], [0, 7]]).units.tolist() == [8, 6, 9]
    assert (
        grouped.merge([[4, 9]]).n_units,
        grouped.merge([[4, 9]]).held_out_error,
    ) == (20, 0.3)
    assert merged.priors.tolist() == pytest.approx([0.4, 0.2, 0.4])
    assert cm.merge([[0, 7]], names=["round"]).classes[0] == "round"


class_names = st.one_of(
    st.lists(st.text(max_size=8), min_size=3, max_size=3, unique=True),
    st.lists(st.integers(-(2**53), 2**53), min_size=3, max_size=3, unique=True),
    st.just([1, "one", 2.5]),
)


@settings(max_examples=40, deadline=None)
@given(class_names, st.integers(0, 10_000), st.booleans())
def test_json_round_trip_is_bit_for_bit(classes, seed, labelled):
    P, codes = random_posteriors(np.random.default_rng(seed), 60, 3)
    groups = np.arange(60) // 3 if labelled else None
    y = np.array(classes, dtype=object)[codes] if labelled else None
    cm = collision_matrix_from_posteriors(P, y, classes=classes, groups=groups)
    again = CollisionMatrix.from_json(cm.to_json())
    for each in fields(cm):
        one, two = getattr(cm, each.name), getattr(again, each.name)
        assert np.array_equal(one, two) if isinstance(one, np.ndarray) else one == two
    assert cm.grouped == (cm.held_out_error is not None) == labelled
    assert [type(c) for c in again.classes.tolist()] == [
        type(c) for c in cm.classes.tolist()
    ]


def test_with_many_rows_an_interval_is_the_normal_one():
    S, se = (
        np.array([[0.7, 0.3], [0.4, 0.6]]),
        np.array([[0.01, 0.02], [0.03, 0.04]]) / 100,
    )
    low, high = CollisionMatrix(S, stderr=se, counts=[3e6, 1e6]).interval(0.9)
    assert np.allclose((high - low) / 2, stats.norm.ppf(0.95) * se, rtol=5e-3)
    low, high = CollisionMatrix(S, stderr=se).interval()  # as many rows as one likes
    assert np.allclose((high - low) / 2, stats.norm.ppf(0.975) * se)
    assert CollisionMatrix(S, pber_stderr=2.0).pber_interval() == (0, 1)


def test_an_interval_allows_for_what_was_not_seen():
    cm = CollisionMatrix(
        np.eye(2),
        stderr=np.zeros((2, 2)),
        pber_stderr=0.0,
        counts=[40, 60],
        method="one-step",
    )
    _, high = cm.interval()
    # Clopper, Pearson
    assert high[0, 1] == pytest.approx(stats.beta.ppf(0.975, 1, 40), rel=0.05)
    assert cm.pber_interval()[1] == pytest.approx(
        2 * stats.beta.ppf(0.975, 1, 100), rel=0.05
    )


def test_few_groups_widen_an_interval():
    S, se = np.array([[0.7, 0.3], [0.4, 0.6]]), np.full((2, 2), 0.02)
    cm = CollisionMatrix(S, stderr=se, pber_stderr=0.02, counts=[300, 120])
    grouped = replace(cm, units=[5, 1.5], n_units=6, grouped=True)
    assert (np.diff(grouped.interval(), axis=0) > np.diff(cm.interval(), axis=0)).all()
    low, high = grouped.pber_interval()
    assert high - low > 2 * stats.t.ppf(0.975, 5) * 0.02
    single = replace(cm, units=[1.2, 1]).interval()
    assert (single[1] - single[0] > 0.8).all()


def test_the_units_behind_an_entry_are_those_of_the_heavier_of_its_two_classes():
    """Ten rows of class 1 stand for half of the population: what they do moves S of both
    classes."""
    cm = CollisionMatrix(
        [[0.9, 0.1], [0.1, 0.9]],
        stderr=np.full((2, 2), 0.01),
        counts=[1000, 10],
        priors=[0.5, 0.5],
    )
    low, high = cm.interval()
    assert (high - low)[0, 1] > 0.25
    alone = replace(cm, counts=[1000, 1000]).interval()
    assert (alone[1] - alone[0])[0, 1] < 0.05


def test_a_few_heavy_rows_of_another_class_move_the_diagonal():
    """With two classes S_11 is 1 - S_10: their intervals are as wide."""
    cm = CollisionMatrix(
        [[0.9, 0.1], [0.1, 0.9]],
        stderr=np.full((2, 2), 0.01),
        counts=[1000, 10],
        priors=[0.5, 0.5],
    )
    low, high = cm.interval()
    assert np.allclose(low[0, 0], 1 - high[0, 1])
    assert np.allclose(high[0, 0], 1 - low[0, 1])


def test_bayes_bounds_are_those_of_cover_and_hart():
    low, high = bayes_error_bounds(0.3, 3)
    assert high == 0.3
    # The PBER of a problem where every input has the same posterior (1 - e, e/2, e/2), e the Bayes
    # error.
    assert 1 - (1 - low) ** 2 - 2 * (low / 2) ** 2 == pytest.approx(0.3)
    assert bayes_error_bounds(0.0, 5) == (0.0, 0.0)  # they meet at both ends
    assert bayes_error_bounds(0.8, 5) == pytest.approx((0.8, 0.8))
    assert bayes_error_bounds(1.0, 2)[0] == 0.5  # beyond what two classes can have
    cm = CollisionMatrix([[0.9, 0.1], [0.1, 0.9]], pber_stderr=0.01)
    ends = cm.pber_interval(0.9)
    assert cm.bayes_error_bounds(0.9) == (bayes_error_bounds(ends[0], 2)[0], ends[1])


@pytest.fixture
def tied():
    """A matrix of eight classes, some of whose entries are equal."""
    S, priors = planted(8, ratio=5, sharpness=1.0, seed=3)
    S = S.round(2)
    S[np.diag_indices(8)] += 1 - S.sum(axis=1)
    return CollisionMatrix(S, priors, stderr=np.full((8, 8), 0.01), counts=[50.0] * 8)


@pytest.mark.parametrize("n", [0, 1, 4, 28, 1000])
def test_top_collisions_are_in_the_order_of_a_full_sort_with_their_intervals(tied, n):
    S = tied.matrix
    either = ((i, j) for i in range(8) for j in range(i + 1, 8))
    pairs = [
        max((i, j), (j, i), key=lambda pair: (S[pair], pair[0] < pair[1]))
        for i, j in either
    ]
    expected = np.array(sorted(pairs, key=lambda pair: -S[pair])[:n], int).reshape(
        -1, 2
    )
    found = tied.top_collisions(n)
    assert np.array_equal(found[["class", "other"]].astype(int), expected)
    i, j = expected.T
    assert np.array_equal(found[["rate", "reverse"]].T, [S[i, j], S[j, i]])
    assert np.array_equal(found["high"], tied.interval()[1][i, j])
    # for all 28 pairs, of which these were chosen
    assert np.array_equal(found["low"], tied.interval(1 - 0.05 / 28)[0][i, j])
    assert (tied.top_collisions(n, level=0.5)["low"] >= found["low"]).all()


def test_five_collisions_are_shown_unless_asked_for_more(tied):
    assert len(tied.top_collisions()) == 5


def test_ties_of_collisions_go_to_the_classes_that_come_first():
    ties = CollisionMatrix(np.full((3, 3), 1 / 3)).top_collisions()
    assert ties[["class", "other"]].to_numpy().tolist() == [[0, 1], [0, 2], [1, 2]]


UNEVEN = CollisionMatrix(
    [[0.9, 0.1], [0.2, 0.8]],
    [2 / 3, 1 / 3],
    covariance=[[2.0, 1.0, 0.0], [0.0, 2.0, 1.0], [0.0, 0.0, 2.0]],
    coverage=0.5,
    method="counted",
)


def test_a_covariance_is_made_symmetric():
    assert UNEVEN.covariance.tolist() == [[2, 0.5, 0], [0.5, 2, 0.5], [0, 0.5, 2]]


def test_a_covariance_survives_a_dictionary():
    assert CollisionMatrix.from_dict(UNEVEN.to_dict()) == UNEVEN


def test_everything_but_intervals_survives_a_merge():
    merged = UNEVEN.merge([[0], [1]])
    assert (merged.coverage, merged.method, merged.merged) == (0.5, "counted", True)
    S = UNEVEN.matrix
    assert CollisionMatrix(S, stderr=S).merge([[0], [1]]).stderr is None


def test_rates_speak_of_the_population_asked_for():
    cm = CollisionMatrix(
        [[0.8, 0.2], [0.1, 0.9]], [1 / 3, 2 / 3], ["a", "b"], counts=[30, 10]
    )
    precision = cm.precision("empirical")
    assert precision.tolist() == pytest.approx([0.6 / 0.625, 0.225 / 0.375])
    assert cm.recall().tolist() == [0.8, 0.9]
    # never predicted: no precision
    assert np.isnan(CollisionMatrix([[1.0, 0.0], [1.0, 0.0]]).precision()[1])
    assert cm.pber == pytest.approx(1 - 0.8 / 3 - 1.8 / 3)


@pytest.mark.parametrize("k", [0, 1, 3, 7, 100])
def test_top_k_keeps_the_largest_beside_the_diagonal_of_every_row(k):
    S, priors = planted(8, ratio=5, sharpness=1.0, seed=2)
    cm = CollisionMatrix(S, priors, [f"class {i}" for i in range(8)], stderr=S / 10)
    top = cm.top_k(k)
    rank = np.argsort(np.argsort(-(S + np.diag([9] * 8)), axis=1), axis=1)
    kept = np.where(rank <= k, S, 0.0)  # the diagonal has the rank 0
    assert np.array_equal(top.matrix.toarray(), kept)
    assert top.rest == pytest.approx(1 - kept.sum(axis=1), abs=1e-12)
    assert top.stderr.toarray() == pytest.approx(kept / 10)
    assert top.classes.tolist() == cm.classes.tolist()
    frame = top.to_frame()
    assert frame.index.tolist() == list(range(top.matrix.nnz))
    rates = frame["rate"][frame["class"] == "class 3"].tolist()
    assert rates == sorted(kept[3][kept[3] > 0], reverse=True)


def test_without_skill_the_limit_of_the_error_is_that_of_the_pber():
    known = {
        "pber_stderr": 0.002,
        "counts": [500] * 4,
        "held_out_error": 0.4,
        "held_out_stderr": 0.02,
        "method": "one-step",
    }
    blind = CollisionMatrix(np.full((4, 4), 0.25), **known)
    sees = CollisionMatrix(0.3 * np.eye(4) + 0.175, **known)
    assert blind.bayes_error_limit(0.9) == pytest.approx(blind.pber_interval(0.8)[1])
    assert 0.4 < sees.bayes_error_limit(0.9) < 0.45 < blind.bayes_error_limit(0.9)
    assert (sees == blind) is False


def test_ties_in_top_k_go_to_the_class_that_comes_first():
    S = np.full((4, 4), 0.1) + 0.6 * np.eye(4)
    assert CollisionMatrix(S).top_k(1).matrix.toarray()[3].tolist() == [0.1, 0, 0, 0.7]


def test_top_k_holds_no_zeros():
    top = CollisionMatrix(np.eye(3)).top_k(2)
    assert top.matrix.nnz == 3
    assert np.isnan(top.to_frame()["stderr"]).all()
    data = json.loads(top.to_json())
    assert (data["row"], data["column"], data["rate"], data["rest"]) == (
        [0, 1, 2],
        [0, 1, 2],
        [1.0] * 3,
        [0.0] * 3,
    )


def test_npz_round_trip_is_bit_for_bit(tmp_path):
    P, codes = random_posteriors(np.random.default_rng(0), 300, 4)
    names = np.array(["a", "b", 3, True], dtype=object)
    cm = collision_matrix_from_posteriors(P, names[codes], classes=names)
    path = tmp_path / "matrix.npz"
    cm.to_npz(path)
    assert CollisionMatrix.from_npz(path) == cm
    with pytest.raises(ValueError, match=r"1,001 classes.*to_npz.*top_k"):
        CollisionMatrix(np.eye(1001)).to_json()
    CollisionMatrix(np.eye(2)).to_npz(path)
    assert CollisionMatrix.from_npz(path) == CollisionMatrix(np.eye(2))


@pytest.mark.parametrize(
    "name", ["coverage", "held_out_error", "pber_stderr", "held_out_stderr", "n_units"]
)
def test_only_values_within_their_limits_are_allowed(name):
    assert [
        getattr(CollisionMatrix(np.eye(2), **{name: value}), name) for value in (0, 1)
    ] == [
        0,
        1,
    ]
    share = name in ("coverage", "held_out_error")
    with pytest.raises(
        ValueError, match=f"{name} must be {'between 0 and 1' if share else '≥ 0'}"
    ):
        CollisionMatrix(np.eye(2), **{name: 1.5 if share else -1.5})


def test_tables_have_names_on_their_sides():
    cm = CollisionMatrix([[0.9, 0.1], [0.2, 0.8]], classes=["cat", "dog"])
    frame = cm.to_frame()
    assert (frame.index.name, frame.columns.name) == ("seen in", "seen again in")
    assert frame.index.tolist() == frame.columns.tolist() == ["cat", "dog"]


def test_what_a_caller_changes_is_a_copy():
    cm = CollisionMatrix([[0.9, 0.1], [0.2, 0.8]])
    frame = cm.to_frame()
    frame.iloc[0, 0] = 5.0
    recall = cm.recall()
    recall[0] = 5.0
    assert cm.matrix[0, 0] == 0.9


@pytest.mark.parametrize("name", ["matrix", "stderr", "counts", "units", "covariance"])
def test_only_arrays_nobody_can_change_are_shared(
    name,
):
    shapes = {
        "matrix": np.full((2, 2), 0.5),
        "stderr": np.ones((2, 2)),
        "covariance": np.eye(3),
    }
    value = (shapes | {"counts": np.ones(2), "units": np.ones(2)})[name]

    def kept(array):
        return getattr(CollisionMatrix(**{"matrix": np.eye(2)} | {name: array}), name)

    base, frozen = value.copy(), value.copy()
    view = base[:]
    view.setflags(write=False)  # whoever has the base can still write
    inside = kept(base), kept(view)
    base[...] = 9.0
    assert np.array_equal(inside[0], value)
    assert np.array_equal(inside[1], value)
    frozen.setflags(write=False)
    # that one is made symmetric first
    assert (kept(frozen) is frozen) == (name != "covariance")


def test_a_matrix_equals_only_its_copy():
    P, codes = random_posteriors(np.random.default_rng(0), 300, 3)
    cm = collision_matrix_from_posteriors(P, codes, groups=np.arange(300) // 3)
    assert cm == replace(cm)
    assert (
        cm != repr(cm) == f"<CollisionMatrix: 3 classes, 300 rows, PBER {cm.pber:.4f}>"
    )
    # one has none
    assert CollisionMatrix(cm.matrix) != CollisionMatrix(cm.matrix, stderr=cm.stderr)
    others = {
        "matrix": np.eye(3),
        "priors": np.full(3, 1 / 3),
        "classes": list("abc"),
        "method": "counted",
        "limit": limit_from_scores([[0.4, 0.3], [0.3, 0.1]], [10, 20]),
        "merged": True,
        "grouped": False,
        "diagnostics": Diagnostics(),
        "coverage": 0.5,
    }
    for name in (each.name for each in fields(cm)):
        other = others[name] if name in others else getattr(cm, name) / 2
        assert cm != replace(cm, **{name: other}), name


def test_the_error_of_a_matrix_without_collisions_is_not_below_zero():
    priors = np.array([0.1, 0.2, 0.7]) * (1 + 2e-16)
    rows = [0, 1, 2] * 51
    counted = count_collisions(rows, rows)
    found = [CollisionMatrix(np.eye(3), priors=priors), counted]
    assert [cm.pber for cm in found] == [0.0, 0.0]
