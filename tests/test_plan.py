"""What the next euro buys, judges beside humans, ordered classes: each against a planted truth."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal, norm
from sklearn.metrics import cohen_kappa_score, mean_absolute_error
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

import collidescope as cs
from collidescope import (
    CollisionMatrix,
    collision_matrix_from_posteriors,
    limit_from_scores,
)
from collidescope.applications import (
    compare_judges,
    consolidate,
    expected_distance,
    plan,
)
from collidescope.equations.densities import draw_classes
from helpers import planted, random_posteriors

SIZES = np.array([250, 500, 1000, 2000])


def curve(rng, left, exponent, start=1.0, n=6000):
    """Scores of n rows whose mean is left + start · m^-exponent."""
    hard = rng.exponential(left, (n, 1))
    return hard + start * SIZES**-exponent * rng.exponential(1.0, (n, 4))


def limit(rng, left, exponent, n=6000, **options):
    """The limit of such scores."""
    return limit_from_scores(
        curve(rng, left, exponent, n=n), SIZES, baseline=0.6, **options
    )


def given(P, y, **more):
    """What a fitted classifier offers: held-out posteriors and labels."""
    names = np.arange(P.shape[1])
    return SimpleNamespace(
        predict_proba=None, posteriors_=P, labels_=y, classes_=names, **more
    )


def option(clf, name, **prices):
    """What a plan says of an option."""
    return plan(clf, prices=prices).table.set_index("option").loc[name]


def brier(P, y):
    return ((np.eye(P.shape[1])[y] - P) ** 2).sum(axis=1).mean()


def test_rows_needed_holds_the_true_number_on_power_laws(rng):
    inside = 0
    for _ in range(40):
        exponent, left = rng.uniform(0.35, 0.8), rng.uniform(0.1, 0.3)
        made = limit(rng, left, exponent)
        true = 2000 * rng.uniform(2, 10)
        found = made.rows_needed(left + true**-exponent)
        inside += found.low <= true <= found.high
    assert inside >= 36


def test_a_target_below_what_unlimited_rows_leave_cannot_be_reached():
    found = limit(np.random.default_rng(1), 0.3, 0.9).rows_needed(0.05)
    assert np.isinf([found.low, found.likely, found.high]).all()
    assert "cannot be reached" in str(found)


def test_a_target_that_is_met_needs_no_more_rows():
    made = limit(np.random.default_rng(2), 0.2, 0.5)
    assert made.rows_needed(0.4).high < 2000


def test_rows_needed_of_the_error_continues_the_errors():
    rng = np.random.default_rng(3)
    wrong = rng.random((8000, 4)) < 0.1 + SIZES**-0.5
    made = limit(rng, 0.2, 0.5, n=8000, errors=wrong)
    found = made.rows_needed(0.1 + 8000**-0.5, of="error")
    assert found.low <= 8000 <= found.high


def test_the_error_needs_a_limit_with_errors():
    made = limit(np.random.default_rng(4), 0.2, 0.5)
    with pytest.raises(ValueError, match="limit with errors"):
        made.rows_needed(0.1, of="error")


def fitted(rng=None, k=3, n=2000):
    """True posteriors, S and the range of a curve."""
    rng = rng or np.random.default_rng(0)
    P, y = random_posteriors(rng, n, k)
    return given(
        P,
        y,
        limit_=limit(rng, 0.2, 0.5, n=n),
        collision_matrix_=collision_matrix_from_posteriors(P, y),
    )


@pytest.mark.parametrize(
    ("row", "merge", "first"), [(0.001, 1000.0, "rows"), (1000.0, 0.001, "merge")]
)
def test_the_cheapest_fall_comes_first(row, merge, first):
    table = plan(fitted(), prices={"row": row, "merge": merge}).table
    priced = table[table["rank"].notna()]
    assert priced["option"].iloc[0] == first
    assert priced["per_money"].is_monotonic_decreasing


def test_options_without_a_price_have_no_rank():
    table = plan(fitted(), prices={"merge": 1.0}).table
    assert set(table["option"]) == {"merge", "labels", "rows", "votes"}
    assert table["option"][table["rank"].notna()].tolist() == ["merge"]


def test_priced_rows_without_the_range_are_said_to_be_beyond_judgement():
    clf = fitted()
    clf.limit_ = None
    found = plan(clf, prices={"row": 1.0})
    assert "No option has a price" not in found.verdict
    assert "rows cannot be judged without the range" in " ".join(found.notes)


def test_the_predicted_fall_of_more_rows_holds_the_true_one():
    rng = np.random.default_rng(5)
    inside = 0
    for _ in range(40):
        exponent, left = rng.uniform(0.35, 0.8), rng.uniform(0.1, 0.3)
        clf = fitted(rng)
        clf.limit_ = limit(rng, left, exponent)
        row = option(clf, "rows", row=1.0)
        inside += row["low"] <= 2000**-exponent - 4000**-exponent <= row["high"]
    assert inside >= 36


def sure(seed, n=2000, flipped=0.0):
    """Rows that are nearly clear, some with a wrong label."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.9, 1.0, n)
    codes = (rng.random(n) > p).astype(int)
    wrong = rng.random(n) < flipped
    return given(np.column_stack([p, 1 - p]), np.where(wrong, 1 - codes, codes)), wrong


def test_checking_labels_is_predicted_to_lower_what_flipped_labels_add():
    inside = []
    for seed in range(20):
        clf, wrong = sure(seed, flipped=0.05)
        P, y = clf.posteriors_, clf.labels_
        row = option(clf, "labels", label=1.0)
        suspect = (P[np.arange(2000), y] <= 0.1) & (P.max(axis=1) >= 0.8)
        fixed = np.where(wrong & suspect, 1 - y, y)
        inside.append(row["low"] <= brier(P, y) - brier(P, fixed) <= row["high"])
    assert np.mean(inside) >= 0.9


def put_right(P, y, true):
    """The labels with those that are suspect checked."""
    suspects = cs.ambiguous(P, y=y, by="label").query("kind == 'suspect label'")
    checked = y.copy()
    checked[suspects["index"]] = true[suspects["index"]]
    return checked


def test_the_fall_of_checked_labels_is_right_on_average():
    predicted, real = [], []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        clear = rng.beta(6, 0.6, 600)[:, None]
        Y = np.hstack([clear, (1 - clear) * rng.dirichlet([1, 1], 600)])
        Y = rng.permuted(Y, axis=1)
        P = 0.95 * Y + 0.05 * (1 - Y) / 2  # 5% of the labels are wrong
        true = draw_classes(Y, rng)
        moved = (true + rng.integers(1, 3, 600)) % 3
        y = np.where(rng.random(600) < 0.05, moved, true)
        predicted.append(option(given(P, y), "labels", label=1.0)["fall"])
        real.append(brier(P, y) - brier(P, put_right(P, y, true)))
    assert 0.9 < np.mean(predicted) / np.mean(real) < 1.12
    assert np.corrcoef(predicted, real)[0, 1] > 0.7


def neighbours(X, y, folds):
    """Held-out posteriors of 5 nearest neighbours."""
    model = KNeighborsClassifier(5)
    return cross_val_predict(model, X, y, cv=folds, method="predict_proba")


def test_checked_labels_also_train_better_models():
    inside = []
    above_the_labels_alone = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        true = rng.integers(0, 2, 500)
        X = 4.0 * true[:, None] + rng.standard_normal((500, 2))
        y = np.where(rng.random(500) < 0.04, 1 - true, true)
        folds = list(StratifiedKFold(5).split(X, y))
        P = neighbours(X, y, folds)
        row = option(given(P, y), "labels", label=1.0)
        checked = put_right(P, y, true)
        after = brier(neighbours(X, checked, folds), checked)
        inside.append(row["low"] <= brier(P, y) - after <= row["high"])
        above_the_labels_alone.append(after < brier(P, checked))
    assert all(above_the_labels_alone)
    assert np.mean(inside) >= 0.9


def overconfident(share):
    """Posteriors that are sure, and wrong of a ``share`` of the rows."""
    codes = np.arange(240) % 2
    sure = np.where(np.arange(240) < share * 240, 1 - codes, codes)
    P = np.where(np.eye(2)[sure] == 1, 0.9999, 0.0001)
    return P, codes


def test_checked_labels_promise_no_more_than_the_whole_pber():
    P, y = overconfident(0.4)
    row = option(given(P, y), "labels", label=1.0)
    most = brier(P, y) + 1e-12  # sums of the same numbers in another order
    assert row["fall"] <= most
    assert row["high"] <= most


@pytest.mark.parametrize("power", [None, 0.5])
def test_suspect_labels_of_a_miscalibrated_model_come_with_a_note(power):
    P, y = overconfident(0.4)
    found = replace(limit(np.random.default_rng(0), 0.2, 0.5), power=power)
    said = str(plan(given(P, y, limit_=found), prices={"label": 1.0}))
    noted = "a suspect label may be a mistake of the model" in said
    assert noted == (found.state == "miscalibrated") == (power is not None)


def test_labels_that_chance_makes_suspect_promise_nothing():
    row = option(sure(1)[0], "labels", label=1.0)
    assert row["low"] == 0
    assert row["fall"] < 0.2 * row["high"]


@pytest.fixture(scope="module")
def marked():
    """(X, y, values of the columns, a classifier that has learned nothing)."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 120)
    noise, marker = rng.standard_normal(120), y + rng.standard_normal(120)
    X = pd.DataFrame({"noise": noise, "marker": marker})
    return X, cs.column_value(None, X, y), given(np.full((120, 2), 0.5), y)


def test_a_column_is_worth_what_column_value_says(marked):
    X, values, clf = marked
    found = plan(clf, X, prices={"columns": {"marker": 2.0}}).table
    row = found[found["what"] == "keep the column marker"].iloc[0]
    assert row["fall"] == values.table.set_index("unit").loc["marker", "needed"]
    assert row["per_money"] == row["fall"] / 2
    assert found["rank"].count() == 1


def test_the_best_option_is_one_sentence_with_its_interval():
    found = plan(fitted(), prices={"row": 0.1})
    row = found.table.iloc[0]
    assert found.best.startswith("Collect 2,000 more rows for 200: PBER")
    assert f"({100 * row['low']:.2f} to {100 * row['high']:.2f})" in found.best
    written = json.dumps(found.to_dict(), allow_nan=False)
    assert json.loads(written)["verdict"] == found.best


def test_a_plan_is_drawn_with_one_line_per_option_that_lowers_the_pber():
    import matplotlib as mpl

    mpl.use("Agg")
    found = plan(fitted(), prices={"row": 0.1})
    labels = [label.get_text() for label in found.plot().get_yticklabels()]
    assert labels[-1] == "collect 2,000 more rows"
    assert len(labels) == found.table["fall"].notna().sum()


def test_only_priced_options_have_a_number_in_the_report():
    bars = plan(fitted(), prices={"row": 0.1}).section()["bars"]
    assert [bar["name"] for bar in bars if bar["ranked"]] == ["collect 2,000 more rows"]
    assert len(bars) > 1


def test_an_unknown_price_is_refused():
    with pytest.raises(ValueError, match=r"prices.*rows"):
        plan(fitted(), prices={"rows": 1.0})


@pytest.mark.parametrize(
    ("suffix", "read"),
    [
        ("json", lambda path: json.loads(path.read_text())),
        ("csv", lambda path: pd.read_csv(path).set_index("class")["group"].to_dict()),
    ],
)
def test_the_mapping_can_be_written(tmp_path, suffix, read):
    found = consolidate(CollisionMatrix(*planted(5), classes=list("abcde")), 3)
    path = tmp_path / f"mapping.{suffix}"
    found.save_mapping(path)
    assert read(path) == found.mapping


def test_no_merge_at_chance_level_is_proposed(rng):
    y = rng.integers(0, 4, 2000)
    # Hardly more than the class shares, and unrelated.
    P = rng.dirichlet(np.full(4, 500.0), 2000)
    cm = collision_matrix_from_posteriors(P, y)
    found = plan(given(P, y, collision_matrix_=cm), prices={"merge": 1.0})
    assert "merge" not in found.table["option"].tolist()
    assert found.mapping is None
    assert "no better than by chance" in consolidate(cm, 3).notes[0]


def test_twins_that_no_data_tell_apart_are_no_merge_at_chance_level():
    y = np.repeat([0, 1, 2, 3], 500)
    P = np.repeat(
        [[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 0.9, 0.1], [0, 0, 0.1, 0.9]], 500, 0
    )
    found = consolidate(collision_matrix_from_posteriors(P, y), 3)
    assert found.groups[0] == [0, 1]
    assert not found.path["chance"].any()
    assert found.notes == ()


def people(rng, n=1500, votes=6, k=4):
    P, _ = random_posteriors(rng, n, k)
    return np.array([rng.multinomial(votes, p) for p in P]), P


def test_one_more_human_passes_as_a_judge(rng):
    passed = []
    for _ in range(100):
        votes, P = people(rng, 400)
        passed.append(compare_judges(votes, draw_classes(P, rng)).passes("judge"))
    assert np.mean(passed) >= 0.9  # 95% and two and a half standard errors


def test_a_class_taken_for_another_is_found_with_its_pair():
    rng = np.random.default_rng(1)
    votes, P = people(rng)
    said = draw_classes(P, rng)
    said[(said == 2) & (rng.random(len(said)) < 0.4)] = 0
    found = compare_judges(votes, said)
    assert not found.passes("judge")
    flagged = found.pairs[found.pairs["flagged"] & (found.pairs["says"] != "")]
    assert (flagged["human"].iloc[0], flagged["says"].iloc[0]) == (2, 0)


def test_the_best_judge_agrees_more_than_a_human():
    votes, P = people(np.random.default_rng(2))
    found = compare_judges(votes, {"best": P.argmax(axis=1)})
    assert found.table.iloc[0]["verdict"] == "agrees more than a human"
    assert found.best_interval[0] <= P.max(axis=1).mean() <= found.best_interval[1]


def test_what_judges_do_fits_80_columns():
    rng = np.random.default_rng(2)
    votes, P = people(rng)
    found = compare_judges(
        votes, {"gpt": draw_classes(P, rng), "claude": draw_classes(P, rng)}
    )
    lines = str(found).split("\n\n")[-1].splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= 80


def test_votes_by_annotator_are_the_same_as_their_counts():
    rng = np.random.default_rng(3)
    names = np.array(list("abc"))
    labels = names[rng.integers(0, 3, (200, 4))].astype(object)
    labels[rng.random((200, 4)) < 0.2] = None
    counts = np.column_stack([(labels == name).sum(axis=1) for name in names])
    said = names[rng.integers(0, 3, 200)]
    counted = compare_judges(counts, said, classes=names)
    assert compare_judges(labels, said).table.equals(counted.table)


def probit(thresholds, spread):
    """S of ordered classes, with the thresholds and the law of two labels of one input.

    x ~ N(0, spread²), label = thresholds below x + N(0, 1).
    """
    total = np.hypot(spread, 1)
    edges = np.concatenate([[-12.0], np.asarray(thresholds) / total, [12.0]])
    rho = spread**2 / total**2
    both = multivariate_normal([0, 0], [[1, rho], [rho, 1]])
    cdf = np.array([[both.cdf([a, b]) for b in edges] for a in edges])
    B = np.diff(np.diff(cdf, axis=0), axis=1)
    priors = B.sum(axis=1)
    return (
        CollisionMatrix(B / priors[:, None], priors / priors.sum()),
        edges[1:-1],
        both,
    )


def test_the_expected_distance_is_that_of_an_ordinal_probit():
    cm, edges, both = probit([-1.5, -0.2, 0.4, 2.0], 1.3)
    # Two labels lie on different sides of threshold t with probability 2 (Φ(t) - Φ₂(t, t)).
    crossed = [2 * (norm.cdf(t) - both.cdf([t, t])) for t in edges]
    assert expected_distance(cm).value == pytest.approx(sum(crossed), abs=1e-4)


def ordinal(rng, n, thresholds=(-1.0, 0.0, 1.0), spread=1.5):
    x = spread * rng.standard_normal(n)
    edges = np.concatenate([[-np.inf], thresholds, [np.inf]])
    P = np.diff(norm.cdf(edges - x[:, None]), axis=1)
    return P, draw_classes(P, rng)


def test_ceilings_of_ordered_classes_are_those_of_the_best_decision():
    P, y = ordinal(np.random.default_rng(1), 2000)
    found = cs.ceilings(P, y, ordered=True).table.set_index("metric")["now"]
    median = (P.cumsum(axis=1) < 0.5).sum(axis=1)
    mean = np.rint(P @ np.arange(4)).astype(int)
    assert found["mean absolute error"] == pytest.approx(mean_absolute_error(y, median))
    kappa = cohen_kappa_score(y, mean, weights="quadratic")
    assert found["quadratic kappa"] == pytest.approx(kappa)


#: The first and the third class collide most.
GRADED = [
    [0.5, 0.1, 0.4, 0.0],
    [0.1, 0.7, 0.1, 0.1],
    [0.4, 0.1, 0.4, 0.1],
    [0.0, 0.1, 0.1, 0.8],
]


def test_ordered_classes_are_merged_with_their_neighbours_only():
    cm = CollisionMatrix(GRADED)
    assert consolidate(cm, 3).groups[0] == [0, 2]
    for n in (3, 2):
        for group in consolidate(cm, n, ordered=True).groups:
            assert group == list(range(group[0], group[-1] + 1))


def test_ordered_merging_keeps_the_lowest_pber_of_neighbours():
    cm, *_ = probit([-1.5, -0.2, 0.4, 2.0], 1.3)
    best = int(np.argmax(np.diagonal(cm.joint + cm.joint.T, 1)))
    assert [best, best + 1] in consolidate(cm, 4, ordered=True).groups


@pytest.fixture(scope="module")
def graded():
    """A classifier fitted on ordered labels whose names are not sorted in their order."""
    rng = np.random.default_rng(0)
    _, codes = ordinal(rng, 300)
    x = codes[:, None] + rng.standard_normal((300, 2))
    names = ["low", "medium", "high", "extreme"]
    y = pd.Categorical.from_codes(codes, names, ordered=True)
    clf = cs.CollisionClassifier(members=["linear"], limit=False, random_state=0)
    return clf.fit(x, pd.Series(y, name="grade")), names


def test_an_ordered_categorical_leaves_its_order(graded):
    clf, names = graded
    assert clf.class_order_ == names
    assert clf.classes_.tolist() == sorted(names)


def test_plain_labels_leave_no_order():
    y = np.repeat([0, 1], 30)
    X = y[:, None] + np.random.default_rng(0).standard_normal((60, 2))
    clf = cs.CollisionClassifier(members=["linear"], limit=False).fit(X, y)
    assert clf.class_order_ is None


def test_the_report_of_ordered_classes_merges_neighbours_only(graded):
    clf, names = graded
    summary = cs.summarise(clf)
    assert [summary["classes"][k] for k in summary["leaf_order"]] == names
    path = consolidate(clf.collision_matrix_, ordered=names)
    assert summary["merge_path"]["pber"] == pytest.approx(path.path["pber"].tolist())


def test_a_display_of_ordered_classes_keeps_their_order(graded):
    clf, names = graded
    display = cs.CollisionMatrixDisplay.from_estimator(clf)
    assert clf.classes_[display.order].tolist() == names


def test_merges_follow_the_order_that_is_given():
    cm = CollisionMatrix(GRADED, classes=list("acbd"))
    found = consolidate(cm, 3, ordered=list("abcd"))
    assert found.groups[0] == ["a", "b"]


def test_an_order_that_lacks_a_class_is_refused():
    cm = CollisionMatrix(np.eye(3), classes=list("abc"))
    with pytest.raises(ValueError, match=r"ordered must name each of the classes"):
        consolidate(cm, 2, ordered=["a", "b"])


def test_wrong_labels_that_posteriors_have_learned_are_expected(rng):
    codes = rng.integers(0, 2, 2000)
    P = np.where(np.eye(2)[codes] > 0, 0.95, 0.05)  # certain, but for 5% wrong labels
    y = np.where(rng.random(2000) < 0.05, 1 - codes, codes)
    row = option(given(P, y), "labels", label=1.0)
    if_all_are_wrong = 2 * (0.95 - 0.05) * np.mean(y != codes)
    assert row["low"] < 0.4 * if_all_are_wrong
    assert row["fall"] > 0.9 * if_all_are_wrong


def test_merges_beyond_the_first_step_add_up():
    clf = fitted(k=5)
    table = plan(clf, prices={"merge": 1.0}).table
    merges = table[table["option"] == "merge"].sort_values("amount")
    gains = consolidate(clf.collision_matrix_).path["gain"]
    assert merges["amount"].tolist() == [1, 2, 3]
    assert merges["fall"].tolist() == pytest.approx(gains[1:4].cumsum().tolist())
    assert (merges["low"] < merges["fall"]).all()


def test_known_values_of_columns_need_no_rows(marked):
    _, values, clf = marked
    found = plan(clf, columns=values, prices={"columns": {"marker": 2.0}})
    assert found.table["what"].iloc[0] == "keep the column marker"
    with pytest.raises(ValueError, match="which is no unit or column"):
        plan(clf, columns=values, prices={"columns": {"other": 2.0}})
