"""The value object: its identities, its metrics and its files."""

from __future__ import annotations

import html
import json

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from scipy import stats

from collidescope import CollisionMatrix, bayes_error_bounds, collision_matrix_from_posteriors
from collidescope.datasets import scenario_a, scenario_b
from helpers import ZOO, planted, random_posteriors


@pytest.mark.parametrize("name", ZOO)
def test_true_matrices_are_in_detailed_balance_and_positive_semidefinite(name):
    cm = CollisionMatrix(*ZOO[name])
    assert cm.balance_gap < 1e-15
    assert np.linalg.eigvalsh(cm.joint)[0] > -1e-15
    assert np.allclose(cm.joint.sum(axis=1), cm.priors, atol=1e-14)
    assert np.allclose(cm.gramian, cm.matrix @ cm.matrix.T)


@pytest.mark.parametrize("name", ZOO)
def test_precision_equals_recall_at_the_priors_of_the_matrix(name):
    cm = CollisionMatrix(*ZOO[name])
    assert np.allclose(cm.precision(), cm.recall(), atol=1e-12)


def test_decision_at_uniform_priors_on_an_uneven_population_gives_the_papers_precision():
    """BRFSS diabetes: recall .665 at uniform decision priors is a precision of about 1/4 at a prevalence of 13.9%."""
    cm = CollisionMatrix([[0.664, 0.336], [0.335, 0.665]], counts=[218_334, 35_346])
    precision = cm.precision(population_priors=[0.861, 0.139])
    assert precision[1] == pytest.approx(0.139 * 0.665 / (0.139 * 0.665 + 0.861 * 0.336))
    assert 0.23 < precision[1] < 0.26
    assert cm.recall()[1] == 0.665
    assert cm.precision("empirical")[1] == pytest.approx(precision[1], abs=1e-3)


def test_rates_follow_from_a_confusion_count():
    cm = CollisionMatrix([[0.8, 0.2, 0.0], [0.1, 0.7, 0.2], [0.0, 0.5, 0.5]], priors=[0.5, 0.3, 0.2])
    confusion = 1000 * cm.priors[:, None] * cm.matrix
    rates = cm.rates()
    for k in range(3):
        others = np.delete(np.arange(3), k)
        assert rates["false_negative_rate"].iloc[k] == pytest.approx(confusion[k, others].sum() / confusion[k].sum())
        assert rates["false_positive_rate"].iloc[k] == pytest.approx(
            confusion[others, k].sum() / confusion[others].sum()
        )
        assert rates["precision"].iloc[k] == pytest.approx(confusion[k, k] / confusion[:, k].sum())


def test_a_class_that_is_never_predicted_has_no_precision():
    cm = CollisionMatrix([[1.0, 0.0], [1.0, 0.0]])
    assert np.isnan(cm.precision()[1])


@pytest.mark.parametrize("problem", [scenario_a(3), scenario_a(5), scenario_b(0.15), scenario_b(0.35)])
def test_bayes_error_lies_between_its_bounds(problem):
    low, high = problem.collision_matrix().bayes_error_bounds()
    assert low < problem.bayes_error() < high


def test_bayes_bounds_meet_where_classes_are_indistinguishable_or_separable():
    for k in (2, 5):
        assert bayes_error_bounds(0.0, k) == (0.0, 0.0)
        assert bayes_error_bounds((k - 1) / k, k) == pytest.approx(((k - 1) / k,) * 2)


def test_bayes_bounds_widen_with_the_interval():
    cm = CollisionMatrix([[0.9, 0.1], [0.1, 0.9]], pber_stderr=0.01, counts=[500, 500])
    low, high = cm.bayes_error_bounds(level=0.95)
    assert low < cm.bayes_error_bounds()[0] < cm.bayes_error_bounds()[1] < high


def test_dominance_factor_and_dominance_agree():
    assert CollisionMatrix(np.eye(2)).dominance_factor == 0
    weak = CollisionMatrix([[0.4, 0.6], [0.1, 0.9]])
    assert weak.dominance_factor == pytest.approx(1.5)
    assert not weak.is_diagonally_dominant
    assert CollisionMatrix([[0.6, 0.4], [0.1, 0.9]]).is_diagonally_dominant
    assert CollisionMatrix([[0.0, 1.0], [0.0, 1.0]]).dominance_factor == np.inf


def test_interval_widens_with_level_and_with_fewer_rows_and_stays_in_the_unit_interval():
    kwargs = {"matrix": [[0.98, 0.02], [0.1, 0.9]], "stderr": [[0.02, 0.02], [0.03, 0.03]]}
    many, few = CollisionMatrix(counts=[5000, 5000], **kwargs), CollisionMatrix(counts=[5, 5], **kwargs)
    low, high = many.interval()
    assert low.min() == 0
    assert high.max() == 1
    assert (few.interval()[1] - few.interval()[0] >= high - low).all()
    assert (many.interval(0.99)[1] >= high).all()
    assert CollisionMatrix(kwargs["matrix"]).interval() is None
    assert CollisionMatrix(kwargs["matrix"]).pber_interval() is None


def test_top_collisions_lists_each_pair_once_in_its_stronger_direction():
    S, priors = planted(6, ratio=50, sharpness=1)
    cm = CollisionMatrix(S, priors, classes=list("abcdef"))
    top = cm.top_collisions(15)
    assert len({frozenset(pair) for pair in top[["class", "other"]].to_numpy().tolist()}) == 15
    assert (top["rate"] >= top["reverse"]).all()
    assert top["rate"].is_monotonic_decreasing
    frame = cm.to_frame()
    assert all(frame.loc[row["class"], row["other"]] == row["rate"] for _, row in top.iterrows())
    assert top["low"].isna().all()


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
    again = collision_matrix_from_posteriors(P @ A, np.array([used.index(g) for g in group])[codes])
    assert np.allclose(merged.priors, again.priors, atol=1e-12)
    assert merged.pber_stderr == pytest.approx(again.pber_stderr, abs=1e-9)
    event(f"projected: {cm.info['moved'] > 1e-9}")
    if cm.info["moved"] < 1e-9 and again.info["moved"] < 1e-9:
        assert np.allclose(merged.matrix, again.matrix, atol=1e-9)
        assert np.allclose(merged.stderr, again.stderr, atol=1e-9)


@pytest.mark.parametrize("priors", ["empirical", "uniform"])
def test_merged_intervals_are_those_of_the_merged_problem(priors):
    P, codes = random_posteriors(np.random.default_rng(5), 4000, 4)
    cm = collision_matrix_from_posteriors(P, codes, priors=priors)
    assert cm.info["moved"] < 1e-9
    merged = cm.merge([[0, 2]])
    A = np.array([[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1.0]])
    if priors == "uniform":  # rows weighted to equal priors, posteriors shifted: stratified by the four classes
        assert np.allclose(cm.merge([[0], [1], [2], [3]]).stderr, cm.stderr)
        return
    again = collision_matrix_from_posteriors(P @ A, np.array([0, 1, 0, 2])[codes])
    assert np.allclose(merged.stderr, again.stderr, rtol=1e-9)
    assert np.allclose(merged.matrix, again.matrix, rtol=1e-9)


def test_merging_keeps_order_names_and_unmentioned_classes():
    cm = CollisionMatrix(np.eye(5), classes=[0, 1, 4, 7, 9], counts=[10, 20, 30, 40, 50])
    merged = cm.merge([["4", "9"], [0, 7]])
    assert merged.classes.tolist() == ["0+7", "1", "4+9"]
    assert merged.counts.tolist() == [50, 20, 80]
    assert merged.priors.tolist() == pytest.approx([0.4, 0.2, 0.4])
    assert cm.merge([[0, 7]], names=["round"]).classes[0] == "round"


def test_merging_indistinguishable_classes_removes_their_collisions():
    S, priors = ZOO["blocks"]
    assert CollisionMatrix(S, priors).merge([[0, 1], [2, 3, 4]]).pber == pytest.approx(0, abs=1e-12)


class_names = st.one_of(
    st.lists(st.text(max_size=8), min_size=3, max_size=3, unique=True),
    st.lists(st.integers(-(2**53), 2**53), min_size=3, max_size=3, unique=True),
    st.just([1, "one", 2.5]),
)


@settings(max_examples=80, deadline=None)
@given(class_names, st.integers(0, 10_000), st.booleans())
def test_json_round_trip_is_bit_for_bit(classes, seed, labelled):
    P, codes = random_posteriors(np.random.default_rng(seed), 60, 3)
    cm = collision_matrix_from_posteriors(
        P, np.array(classes, dtype=object)[codes] if labelled else None, classes=classes
    )
    again = CollisionMatrix.from_json(cm.to_json())
    for name in ("matrix", "priors", "stderr", "counts", "covariance"):
        assert getattr(cm, name).tobytes() == getattr(again, name).tobytes()
    assert again.classes.tolist() == cm.classes.tolist()
    assert [type(c) for c in again.classes.tolist()] == [type(c) for c in cm.classes.tolist()]
    assert again == cm
    assert again.info == cm.info


def test_names_that_end_in_a_zero_character_stay_apart():
    """Regression: numpy's text arrays cut them, so that "" and a lone zero character became one name."""
    cm = CollisionMatrix(np.eye(3), classes=["", "0", "\x00"])
    assert cm.classes.tolist() == ["", "0", "\x00"]
    assert CollisionMatrix.from_json(cm.to_json()) == cm


def test_json_file_round_trip(tmp_path):
    cm = CollisionMatrix(np.eye(2), classes=["ä", "雪"])
    path = tmp_path / "matrix.json"
    cm.to_json(path)
    assert CollisionMatrix.from_json(path) == cm
    assert [p.name for p in tmp_path.iterdir()] == ["matrix.json"]


def test_text_shows_names_rates_and_the_answer_in_words():
    text = str(CollisionMatrix([[0.9, 0.1], [0.2, 0.8]], classes=["cat", "dog"], pber_stderr=0.01))
    assert "cat" in text
    assert "0.2000" in text
    assert "15.00%" in text
    assert "95% interval" in text
    many = str(CollisionMatrix(*planted(40)))
    assert "Largest collisions" in many
    assert len(many.splitlines()) < 25


def test_html_escapes_class_names():
    evil = "<script>alert(1)</script>'\""
    for k in (2, 40):
        S, priors = planted(k)
        cm = CollisionMatrix(S, priors, classes=[f"{evil}{i}" for i in range(k)])
        page = cm._repr_html_()
        assert "<script" not in page
        assert html.escape("<script>") in page


def test_matrices_compare_by_value():
    assert CollisionMatrix(np.eye(2)) == CollisionMatrix(np.eye(2))
    assert CollisionMatrix(np.eye(2)) != CollisionMatrix(np.eye(2), classes=["a", "b"])
    assert CollisionMatrix(np.eye(2)) != "something else"


def test_intervals_are_students_with_room_for_what_was_not_seen():
    S, se = np.array([[0.7, 0.3], [0.4, 0.6]]), np.array([[0.01, 0.02], [0.03, 0.04]])
    low, high = CollisionMatrix(S, stderr=se, counts=[30, 12]).interval(0.9)
    rows = np.array([[30.0], [12.0]])
    half = stats.t.ppf(0.95, rows - 1) * np.sqrt(se**2 + (0.5 / rows) ** 2)
    assert np.allclose(low, S - half)
    assert np.allclose(high, S + half)
    low, high = CollisionMatrix(S, stderr=se).interval()
    assert np.allclose((high - low) / 2, stats.norm.ppf(0.975) * se)
    single = CollisionMatrix(S, stderr=se / 100, counts=[1.2, 1]).interval()  # one degree of freedom at least
    assert (single[1] - single[0] == 1).all()
    cm = CollisionMatrix(S, pber_stderr=0.02, counts=[30, 12])
    half = stats.t.ppf(0.975, 41) * np.hypot(0.02, 0.5 / 42)
    assert cm.pber_interval() == pytest.approx((cm.pber - half, cm.pber + half))
    wide = CollisionMatrix(S, pber_stderr=2.0)
    assert wide.pber_interval() == (0, 1)


def test_bayes_bounds_are_those_of_cover_and_hart():
    low, high = bayes_error_bounds(0.3, 3)
    assert high == 0.3
    # The PBER of a problem where every input has the same posterior (1 - e, e/2, e/2), e the Bayes error.
    e = low
    assert 1 - (1 - e) ** 2 - 2 * (e / 2) ** 2 == pytest.approx(0.3)
    assert bayes_error_bounds(1.0, 2)[0] == 0.5  # beyond what two classes can have
    cm = CollisionMatrix([[0.9, 0.1], [0.1, 0.9]], pber_stderr=0.01)
    ends = cm.pber_interval(0.9)
    assert cm.bayes_error_bounds(0.9) == (bayes_error_bounds(ends[0], 2)[0], bayes_error_bounds(ends[1], 2)[1])


def test_top_collisions_come_with_their_intervals_five_by_default():
    S, priors = planted(6, ratio=50, sharpness=1)
    cm = CollisionMatrix(S, priors, list("abcdef"), stderr=np.full((6, 6), 0.01), counts=np.full(6, 50.0))
    top = cm.top_collisions()
    assert len(top) == 5
    assert len(cm.top_collisions(0)) == 0
    low, high = cm.interval()
    for _, row in top.iterrows():
        i, j = (cm.classes.tolist().index(row[name]) for name in ("class", "other"))
        assert (row["rate"], row["reverse"]) == (S[i, j], S[j, i])
        assert (row["low"], row["high"]) == (low[i, j], high[i, j])
    assert top["rate"].iloc[0] == S[~np.eye(6, dtype=bool)].max()
    assert (cm.top_collisions(level=0.5)["low"] > top["low"]).all()
    ties = CollisionMatrix(np.full((3, 3), 1 / 3)).top_collisions()
    assert ties[["class", "other"]].to_numpy().tolist() == [[0, 1], [0, 2], [1, 2]]


def test_everything_but_intervals_survives_a_merge_and_a_covariance_is_made_symmetric():
    uneven = np.array([[2.0, 1.0, 0.0], [0.0, 2.0, 1.0], [0.0, 0.0, 2.0]])
    cm = CollisionMatrix(
        [[0.9, 0.1], [0.2, 0.8]], [2 / 3, 1 / 3], covariance=uneven, coverage=0.5, info={"method": "x"}
    )
    assert cm.covariance.tolist() == [[2, 0.5, 0], [0.5, 2, 0.5], [0, 0.5, 2]]
    merged = cm.merge([[0], [1]])
    assert merged.coverage == 0.5
    assert dict(merged.info) == {"method": "x", "merged": True}
    assert CollisionMatrix([[0.9, 0.1], [0.2, 0.8]]).merge([[0], [1]]).stderr is None
    again = CollisionMatrix.from_dict(cm.to_dict())
    assert again == cm
    assert again.coverage == 0.5


def test_rates_speak_of_the_population_asked_for():
    cm = CollisionMatrix([[0.8, 0.2], [0.1, 0.9]], [1 / 3, 2 / 3], ["a", "b"], counts=[30, 10])
    rates = cm.rates("empirical")
    assert rates.index.tolist() == ["a", "b"]
    assert rates["prior"].tolist() == [0.75, 0.25]
    assert rates["precision"].tolist() == pytest.approx([0.6 / 0.625, 0.225 / 0.375])
    assert rates["false_positive_rate"].tolist() == pytest.approx([0.1, 0.2])
    assert rates["recall"].tolist() == [0.8, 0.9]
    assert cm.pber == pytest.approx(1 - 0.8 / 3 - 1.8 / 3)


@pytest.mark.parametrize("k", [0, 1, 3, 7, 100])
def test_top_k_keeps_the_diagonal_and_the_largest_others_of_every_row(k):
    S, priors = planted(8, ratio=5, sharpness=1.0, seed=2)
    cm = CollisionMatrix(S, priors, [f"class {i}" for i in range(8)], stderr=S / 10)
    top = cm.top_k(k)
    for i in range(8):
        others = sorted((j for j in range(8) if j != i), key=lambda j: -S[i, j])[:k]
        expected = np.where(np.isin(np.arange(8), [i, *others]), S[i], 0.0)
        assert np.array_equal(top.matrix.toarray()[i], expected)
        assert top.rest[i] == pytest.approx(1 - expected.sum(), abs=1e-12)
    assert top.stderr.toarray() == pytest.approx(top.matrix.toarray() / 10)
    assert top.classes.tolist() == cm.classes.tolist()
    frame = top.to_frame()
    assert len(frame) == top.matrix.nnz
    kept = top.matrix.toarray()[3]
    assert frame["rate"].to_numpy()[frame["class"] == "class 3"].tolist() == sorted(kept[kept > 0], reverse=True)


def test_top_k_holds_no_zeros_and_ties_go_to_the_class_that_comes_first():
    S = np.full((4, 4), 0.1) + 0.6 * np.eye(4)
    assert CollisionMatrix(S).top_k(1).matrix.toarray()[3].tolist() == [0.1, 0, 0, 0.7]
    top = CollisionMatrix(np.eye(3)).top_k(2)
    assert top.matrix.nnz == 3
    assert top.stderr is None
    assert np.isnan(top.to_frame()["stderr"]).all()
    data = json.loads(top.to_json())
    assert (data["row"], data["column"], data["rate"], data["rest"]) == ([0, 1, 2], [0, 1, 2], [1.0] * 3, [0.0] * 3)


@pytest.mark.parametrize("n", [0, 1, 4, 28, 1000])
def test_top_collisions_are_in_the_order_of_a_full_sort(n):
    S, priors = planted(8, ratio=5, sharpness=1.0, seed=3)
    S = S.round(2)
    S[np.diag_indices(8)] += 1 - S.sum(axis=1)  # rounding makes ties
    pairs = [(i, j) if S[i, j] >= S[j, i] else (j, i) for i in range(8) for j in range(i + 1, 8)]
    expected = sorted(pairs, key=lambda pair: -S[pair])[:n]
    found = CollisionMatrix(S, priors).top_collisions(n)
    assert list(zip(found["class"], found["other"], strict=True)) == expected


def test_npz_round_trip_is_bit_for_bit(tmp_path):
    P, codes = random_posteriors(np.random.default_rng(0), 300, 4)
    names = np.array(["a", "b", 3, True], dtype=object)
    cm = collision_matrix_from_posteriors(P, names[codes], classes=names)
    path = tmp_path / "matrix.npz"
    cm.to_npz(path)
    again = CollisionMatrix.from_npz(path)
    assert again == cm
    assert again.classes.tolist() == names.tolist()
    assert again.covariance.tolist() == cm.covariance.tolist()
    CollisionMatrix(np.eye(2)).to_npz(path)
    assert CollisionMatrix.from_npz(path) == CollisionMatrix(np.eye(2))


def test_two_thousand_classes_are_refused_by_json_and_saved_as_npz_and_listed(tmp_path):
    k = 2000
    S = 0.9 * np.eye(k) + 0.1 * np.roll(np.eye(k), 1, axis=1) / 2 + 0.1 * np.roll(np.eye(k), -1, axis=1) / 2
    cm = CollisionMatrix(S, stderr=S / 10)
    with pytest.raises(ValueError, match=r"2,000 classes.*to_npz.*top_k"):
        cm.to_json()
    cm.to_npz(tmp_path / "matrix.npz")
    assert CollisionMatrix.from_npz(tmp_path / "matrix.npz") == cm
    top = cm.top_k(5)
    assert top.matrix.nnz == 3 * k
    assert np.abs(top.rest).max() < 1e-12
    assert len(cm.top_collisions(3)) == 3


def test_limits_of_coverage_and_errors_are_allowed():
    for share in (0, 1):
        assert CollisionMatrix(np.eye(2), coverage=share, pber_stderr=0).coverage == share
    assert CollisionMatrix(np.eye(2), pber_stderr=0).pber_stderr == 0
    with pytest.raises(ValueError, match="coverage must be between 0 and 1"):
        CollisionMatrix(np.eye(2), coverage=1.5)
    with pytest.raises(ValueError, match="pber_stderr must be ≥ 0"):
        CollisionMatrix(np.eye(2), pber_stderr=-1.5)
    assert not CollisionMatrix([[0.5, 0.5], [0.1, 0.9]]).is_diagonally_dominant
    assert (CollisionMatrix(np.eye(2)) == 3) is False


def test_one_row_has_one_degree_of_freedom():
    low, high = CollisionMatrix([[0.5, 0.5], [0.5, 0.5]], stderr=np.full((2, 2), 0.01), counts=[1, 2]).interval(0.1)
    expected = stats.t.ppf(0.55, 1) * np.hypot(0.01, 0.5 / np.array([1.0, 2.0]))
    assert (high - low)[:, 0] / 2 == pytest.approx(expected)


def test_tables_have_names_on_their_sides_and_are_the_callers_own():
    cm = CollisionMatrix([[0.9, 0.1], [0.2, 0.8]], classes=["cat", "dog"])
    frame = cm.to_frame()
    assert (frame.index.name, frame.columns.name) == ("seen in", "seen again in")
    assert frame.index.tolist() == frame.columns.tolist() == ["cat", "dog"]
    assert cm.rates().index.name == "class"
    frame.iloc[0, 0] = 5.0
    recall = cm.recall()
    recall[0] = 5.0
    assert cm.matrix[0, 0] == 0.9


def test_infinities_and_missing_precisions_raise_no_warning():
    with np.errstate(divide="raise", invalid="raise"):
        assert CollisionMatrix([[0.0, 1.0], [0.0, 1.0]]).dominance_factor == np.inf
        assert np.isnan(CollisionMatrix([[1.0, 0.0], [1.0, 0.0]]).precision()[1])


@pytest.mark.parametrize("name", ["matrix", "stderr", "counts", "covariance"])
def test_arrays_given_stay_the_callers_and_only_those_nobody_can_change_are_shared(name):
    shapes = {"matrix": np.full((2, 2), 0.5), "stderr": np.ones((2, 2)), "counts": np.ones(2), "covariance": np.eye(3)}

    def kept(array):
        return getattr(CollisionMatrix(**{"matrix": np.eye(2)} | {name: array}), name)

    given = shapes[name].copy()
    inside = kept(given)
    given[...] = 9.0
    assert np.array_equal(inside, shapes[name])
    base = shapes[name].copy()
    view = base[:]
    view.setflags(write=False)  # whoever has the base can still write
    inside = kept(view)
    base[...] = 9.0
    assert np.array_equal(inside, shapes[name])
    frozen = shapes[name].copy()
    frozen.setflags(write=False)
    assert (kept(frozen) is frozen) == (name != "covariance")  # that one is made symmetric first
