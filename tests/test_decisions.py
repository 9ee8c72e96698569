"""From S to the next decision: subgroups, changes, columns, metrics and splits, each against a
planted truth."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student
from sklearn import metrics
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

import collidescope as cs
from collidescope import (
    applications,
    collision_matrix_from_posteriors,
    crossfit_posteriors,
)
from collidescope._rows import row_hashes
from collidescope.applications._inputs import mean_and_error, residuals
from collidescope.datasets import GaussianProblem
from collidescope.equations.densities import draw_classes

NAMES = np.array(list("abc"))
PROBLEM = GaussianProblem([[0.0, 0], [1.5, 0], [0, 3]], classes=NAMES)


def rows(n=1000, seed=0):
    X, y = PROBLEM.sample(n, seed, stratified=False)
    return X, y, PROBLEM.posteriors(X)


def losses(P, y):
    return (residuals(P, np.searchsorted(NAMES, y)) ** 2).sum(axis=1)


def as_json(found):
    return json.loads(json.dumps(found.to_dict(), allow_nan=False))


def trained_on(X, sizes):
    """Posteriors of X by models of more and more rows."""
    return {
        m: LogisticRegression().fit(*PROBLEM.sample(m, m)).predict_proba(X)
        for m in sizes
    }


def metrics_of(*args, **options):
    """The table of ceilings, by metric."""
    return cs.ceilings(*args, **options).table.set_index("metric")


def by_group(*args, **options):
    """The table of collisions_by, by group."""
    return cs.collisions_by(*args, **options).table.set_index("group")


def test_a_subgroup_is_measured_on_its_own_rows():
    _, y, P = rows()
    found = cs.collisions_by(P, y, np.where(np.arange(1000) < 400, "north", "south"))
    assert found.matrices["north"] == collision_matrix_from_posteriors(P[:400], y[:400])
    table, loss = found.table.set_index("group"), losses(P, y)
    north, south = loss[:400].mean(), loss[400:].mean()
    assert table["pber"].tolist() == pytest.approx([north, south])
    assert table["difference"].tolist() == pytest.approx([north - south, south - north])
    rates = found.pairs.groupby("group")["rate"].sum()
    assert rates.tolist() == pytest.approx(table["pber"].tolist())
    assert as_json(found)["table"][0]["group"] == "north"


def test_a_noisy_site_is_found_beside_one_too_small_to_judge():
    _, y, P = rows(2000, 1)
    site = np.random.default_rng(1).choice(["a", "b", "c"], 2000).astype(object)
    site[:12] = "tiny"
    half = np.random.default_rng(2).random(2000) < 0.5
    noisy = np.where((site == "b") & (y == "c") & half, "a", y)
    found = cs.collisions_by(P, noisy, site)
    table = found.table.set_index("group")
    assert table.loc[["b", "tiny"], "verdict"].tolist() == ["higher", "too few rows"]
    assert table.loc["tiny", ["pber", "difference"]].isna().all()
    top = found.pairs[found.pairs["flagged"]].iloc[0]
    assert (top["group"], {top["class"], top["other"]}) == ("b", {"a", "c"})
    assert "too small to tell" in found.verdict


def test_equal_groups_are_seldom_told_apart():
    flagged = 0
    for seed in range(100):
        _, y, P = rows(300, seed)
        parts = np.random.default_rng(seed).integers(0, 4, 300)
        verdicts = by_group(P, y, parts)["verdict"]
        flagged += verdicts.isin(["higher", "lower"]).any()
    assert flagged <= 12  # at most 5 are expected; 13 or more have a chance of 0.2%


def test_few_rows_without_a_rare_collision_are_not_sure_of_it():
    rare, found = GaussianProblem(np.random.default_rng(1).normal(size=(8, 2)) * 3), 0
    for seed in range(10):
        X, y = rare.sample(5000, seed, stratified=False)
        P = rare.posteriors(X)
        subgroups = cs.collisions_by(P, y, np.arange(5000) // 250)
        found += subgroups.pairs["flagged"].any()
        change = applications.collision_change(P[:4800], y[:4800], P[4800:], y[4800:])
        found += change.table["flagged"].any()
    assert found <= 3


def test_every_group_has_a_range_that_holds_what_the_true_posteriors_leave_in_it():
    X, y, P = rows(3000, 3)
    # Far from a and b hardly anything collides.
    near = np.where(X[:, 1] < 1.5, "near", "far")
    by_size = trained_on(X, (500, 1000, 2000))
    fitted = SimpleNamespace(
        predict_proba=None,
        classes_=NAMES,
        posteriors_=by_size[2000],
        labels_=y,
        posteriors_by_size_=by_size,
    )
    table = by_group(fitted, None, near)
    left = [1 - (P[near == group] ** 2).sum(axis=1).mean() for group in table.index]
    assert (table["limit_low"] < left).all()
    assert (table["limit_high"] > left).all()
    assert table.loc["far", "limit_high"] < table.loc["near", "limit_low"]
    pairs = by_group(
        by_size[2000], y, near, posteriors_by_size=by_size, groups=np.arange(3000) // 2
    )
    high = table["limit_high"].to_numpy()
    assert pairs["limit_high"].to_numpy() == pytest.approx(high, rel=0.1)


def overconfident_curve(n=2000):
    """Rows whose posteriors, by models of three sizes, are overconfident in the same way."""
    X, y, P = rows(n, 7)
    rng = np.random.default_rng(0)
    by_size = {}
    for size in (500, 1000, 2000):
        noise = np.exp(rng.standard_normal(P.shape) / np.sqrt(size / 50))
        told = P**2.5 * noise
        by_size[size] = told / told.sum(axis=1, keepdims=True)
    return X, y, by_size


def test_a_subgroup_of_over_confident_posteriors_has_no_lower_end():
    X, y, by_size = overconfident_curve()
    found = by_group(by_size[2000], y, X[:, 0] > 0.5, posteriors_by_size=by_size)
    assert found["limit_low"].tolist() == [0.0, 0.0]


def test_a_subgroup_worse_than_the_class_shares_has_no_lower_end():
    X, y, P = rows(600, 7)
    wrong = dict.fromkeys((100, 200, 400), P[:, ::-1])
    found = by_group(P[:, ::-1], y, X[:, 0] > 0.5, posteriors_by_size=wrong)
    assert found["limit_low"].tolist() == [0.0, 0.0]


def test_no_metric_of_over_confident_posteriors_has_an_end_but_the_best_value():
    _, y, by_size = overconfident_curve()
    table = metrics_of(by_size[2000], y, posteriors_by_size=by_size)
    table = table[~table.index.str.contains("F1")]  # has no range at all
    end = np.where(table["higher_is_better"], table["limit_high"], table["limit_low"])
    assert end.tolist() == table["higher_is_better"].astype(float).tolist()


@pytest.fixture(scope="module")
def flawless():
    """Ceilings of 400 rows that are all right, beside those of another model without error."""
    codes = np.arange(400) % 3
    P = 0.97 * np.eye(3)[codes] + 0.01
    other = 0.94 * np.eye(3)[codes] + 0.02
    return metrics_of(P, codes, y_pred=other, cost=1.0 - np.eye(3), ordered=True)


@pytest.mark.parametrize(
    "metric", ["accuracy", "top-2 accuracy", "macro F1", "ROC AUC, one-vs-rest"]
)
def test_no_error_in_400_rows_leaves_at_least_half_a_percent_of_doubt(flawless, metric):
    row = flawless.loc[metric]
    assert row["now"] == row["high"] == 1.0
    assert 0.98 < row["low"] < 1 - 2 / 400


@pytest.mark.parametrize("metric", ["expected cost", "mean absolute error"])
def test_no_cost_in_400_rows_leaves_an_upper_end(flawless, metric):
    row = flawless.loc[metric]
    assert row["now"] == row["low"] == 0.0
    assert row["high"] > 2 / 400


def test_quadratic_kappa_without_an_error_has_a_lower_end_below_one(flawless):
    assert 0.9 < flawless.loc["quadratic kappa", "low"] < 1 - 2 / 400


def test_two_models_without_an_error_may_still_differ(flawless):
    row = flawless.loc["accuracy"]
    assert row["difference"] == 0.0
    assert row["difference_high"] > 1 / 400


def test_a_rate_that_no_sample_shows_may_have_changed():
    codes = np.arange(300) % 3
    P = 0.98 * np.eye(3)[codes] + 0.02 / 3
    found = applications.collision_change(P, codes, P, codes).table
    assert (found["high"] - found["low"] > 2 / 300).all()


def test_cluster_robust_errors_are_those_of_cluster_means_of_equal_size():
    values = np.random.default_rng(0).normal(np.repeat(np.arange(10.0), 5), 1)
    means = values.reshape(10, 5).mean(axis=1)
    found = mean_and_error(values, np.repeat(list("abcdefghij"), 5))
    assert tuple(found) == pytest.approx((means.mean(), means.std(ddof=1) / 10**0.5, 9))
    assert mean_and_error(values).stderr < found.stderr / 1.5


def test_a_change_on_the_same_rows_is_paired():
    _, y, P = rows()
    blunt = 0.8 * P + 0.2 / 3
    paired = applications.collision_change(P, y, blunt)
    apart = applications.collision_change(P, y, blunt, y)
    gap = losses(blunt, y) - losses(P, y)
    assert [paired.change, apart.change] == pytest.approx([gap.mean()] * 2)
    width, of_apart = (high - low for low, high in (paired.interval, apart.interval))
    of_student = 2 * 1.962 * gap.std(ddof=1) / 1000**0.5
    # one more row may be unlike all others
    assert of_student <= width < min(1.2 * of_student, of_apart / 3)
    assert paired.table["difference"].sum() == pytest.approx(paired.change)
    assert "rose" in paired.verdict
    assert [as_json(found)["paired"] for found in (paired, apart)] == [True, False]


@pytest.mark.parametrize("k", [2, 5])
def test_only_rows_of_a_patient_that_share_a_random_label_are_noticed(k, rng):
    patient, region = np.repeat(np.arange(30), 20), np.arange(600) % 3
    found = applications.grouped_labels(patient, rng.integers(0, k, 30)[patient])
    assert found.suspicious
    assert (found.agreement, found.chance) == pytest.approx((1, 1 / k), abs=0.1)
    assert "patient" in found.words("patient")
    random = rng.integers(0, k, 600)
    # a good column that is no id, rows of their own, and labels that do not follow the patient
    for groups, y in ((region, region % k), (range(600), random), (patient, random)):
        assert applications.grouped_labels(np.array(groups), y).words() == ""


UNEVEN = GaussianProblem(PROBLEM.means, priors=[0.8, 0.1, 0.1], classes=NAMES)
COST = np.array([[0.0, 2, 1], [1, 0, 1], [3, 1, 0]])


@pytest.fixture(scope="module")
def uneven():
    """(posteriors with ties, labels, codes, their ceilings)."""
    X, y = UNEVEN.sample(1500, 0, stratified=False)
    P = UNEVEN.posteriors(X.round(1))
    return P, y, np.searchsorted(NAMES, y), metrics_of(P, y, cost=COST)


def test_metrics_are_those_of_scikit_learn(uneven):
    P, y, codes, found = uneven
    said = P.argmax(axis=1)
    at_equal_priors = (P / np.bincount(codes)).argmax(axis=1)
    expected = {
        "accuracy": metrics.accuracy_score(codes, said),
        "Brier score": losses(P, y).mean(),
        "macro F1": metrics.f1_score(codes, said, average="macro"),
        "weighted F1": metrics.f1_score(codes, said, average="weighted"),
        "balanced accuracy": metrics.balanced_accuracy_score(codes, at_equal_priors),
        "ROC AUC, one-vs-rest": metrics.roc_auc_score(codes, P, multi_class="ovr"),
        "average precision": metrics.average_precision_score(np.eye(3)[codes], P),
        "top-2 accuracy": metrics.top_k_accuracy_score(codes, P, k=2),
        "log loss": metrics.log_loss(codes, P),
        "expected cost": COST[codes, (P @ COST).argmin(axis=1)].mean(),
    }
    assert found["now"].to_dict() == pytest.approx(expected, rel=1e-4)
    assert found["limit_low"].isna().all()
    by_posteriors = metrics.balanced_accuracy_score(codes, said)
    assert found["now"]["balanced accuracy"] > by_posteriors + 0.1


def test_intervals_of_metrics_hold_the_truth(uneven):
    large, labels = UNEVEN.sample(50_000, 9, stratified=False)
    truth = metrics.log_loss(labels, UNEVEN.posteriors(large), labels=list(NAMES))
    for name, value in (("accuracy", 1 - UNEVEN.bayes_error()), ("log loss", truth)):
        low, high = uneven[-1].loc[name, ["low", "high"]]
        assert low < value < high


@pytest.mark.parametrize(
    ("groups", "tolerance"), [(None, 0.4), (np.arange(1000) // 4, 0.5)]
)  # 25 parts: a standard deviation of 14%
def test_jackknife_errors_of_a_mean_are_right(groups, tolerance):
    _, y, P = rows()
    half = 2.064 * losses(P, y).std() / 1000**0.5  # t with 24 degrees of freedom
    row = metrics_of(P, y, groups=groups).loc["Brier score"]
    assert (row["high"] - row["low"]) / 2 == pytest.approx(half, rel=tolerance)


def test_ties_of_the_posteriors_go_to_the_first_class_in_every_metric():
    y = np.repeat(list("abc"), [900, 50, 50])
    even = metrics_of(np.ones((1000, 3)) / 3, y)["now"]
    assert even["top-2 accuracy"] > even["accuracy"]


def test_jackknife_errors_of_class_shares_are_right():
    y = np.random.default_rng(0).random(1000) < 0.3
    by_chance = metrics_of(np.tile([0.7, 0.3], (1000, 1)), y).iloc[0]
    half = 2.064 * 0.21**0.5 / 1000**0.5
    assert (by_chance["high"] - by_chance["low"]) / 2 == pytest.approx(half, rel=0.5)


def test_a_rival_is_compared_in_pairs():
    _, y, P = rows()
    said = np.where(P[:, 2] > 0.5, "c", "a")
    by_label = metrics_of(P, y, y_pred=said)
    assert by_label.loc["accuracy", "yours"] == pytest.approx((said == y).mean())
    assert by_label.loc["accuracy", "difference_high"] < 0
    assert np.isnan(by_label.loc["log loss", "yours"])
    by_table = metrics_of(P, y, y_pred=0.9 * P + 0.1 / 3)
    assert by_table.loc["log loss", "difference_low"] > 0
    assert by_table.loc["accuracy", "difference"] == 0


def test_a_metric_that_rests_on_one_row_has_no_interval():
    P = rows()[2][:, :2]
    alone = metrics_of(P / P.sum(axis=1, keepdims=True), np.arange(1000) == 0)
    unknown = alone.index[alone["low"].isna()].tolist()
    assert unknown == ["ROC AUC", "average precision"]  # nobody can tell
    assert alone.loc["balanced accuracy", "low"] >= 0


def test_a_limit_without_curves_bounds_two_metrics():
    limit = SimpleNamespace(
        bayes_error_interval=lambda level: (0.1, 0.2),
        pber_interval=lambda level: (0.15, 0.3),
    )
    _, y, P = rows(800, 1)
    found = cs.ceilings(P, y, limit=limit)
    ends = found.table.set_index("metric")[["limit_low", "limit_high"]].dropna()
    assert ends.loc["accuracy"].tolist() == pytest.approx([0.8, 0.9])
    assert ends.loc["Brier score"].tolist() == pytest.approx([0.15, 0.3])
    assert len(ends) == 2
    assert "to 90.0%" in found.verdict
    fields = {"classes_": NAMES, "posteriors_": P, "labels_": y, "limit_": limit}
    fitted = SimpleNamespace(predict_proba=None, **fields)
    assert cs.ceilings(fitted).table.equals(found.table)


def test_curves_bound_every_metric_but_f1():
    X, y, P = rows(800, 1)
    by_size = trained_on(X, (50, 100, 200, 400))
    cost = 1 - np.eye(3)
    curves = metrics_of(by_size[400], y, posteriors_by_size=by_size, cost=cost)
    truth = metrics_of(P, y, cost=cost)["now"]  # of the same rows
    held = (curves["limit_low"] < truth) & (truth < curves["limit_high"])
    # Better posteriors may name a rare class less often: F1 has no limit.
    assert held[~held].index.tolist() == ["macro F1", "weighted F1"]
    assert curves.loc[["macro F1", "weighted F1"], "limit_low"].isna().all()


def planted(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    marker = 1.5 * (y == 0) + rng.standard_normal(n)
    columns = {
        "copy": 2 * marker,
        "marker": marker,
        "noise 0": rng.standard_normal(n),
        "noise 1": rng.standard_normal(n),
        "town": rng.choice(list("xyz"), n),
    }
    return pd.DataFrame(columns), y


def test_only_the_resolving_column_is_flagged_with_its_copy():
    found = cs.column_value(None, *planted(400, 0), cv=2)
    assert found.table["unit"].iloc[0] == "copy & marker"
    assert found.table["flagged"].tolist() == [True] + [False] * 3
    assert found.fits == 9
    assert any("fast member" in note for note in found.notes)
    pairs = found.pairs.set_index(["unit", "class", "other"]).loc["copy & marker"]
    effects = pairs[["needed", "alone"]]
    assert (effects.loc[[0]] > 0.02).all(axis=None)
    # The marker does not tell 1 from 2.
    assert (effects.loc[(1, 2)].abs() < 0.05).all()
    assert as_json(found)["table"][0]["columns"] == ["copy", "marker"]


def test_values_are_paired_differences_of_one_step_estimates():
    X, y = planted(400, 1)
    X = X[["marker", "noise 0"]]
    model = LogisticRegression()
    found = cs.column_value(model, X, y, columns=["marker"], costs={"marker": 4.0})
    posteriors = [
        crossfit_posteriors(model, X[names], y, random_state=0)
        for names in (["marker", "noise 0"], ["noise 0"], ["marker"])
    ]
    loss = [(residuals(P, y) ** 2).sum(axis=1) for P in posteriors]
    row, rise = found.table.iloc[0], loss[1] - loss[0]
    expected = [each.mean() for each in (loss[0], rise, loss[1])]
    assert (found.pber, row["needed"], row["pber_without"]) == pytest.approx(expected)
    moved = ((posteriors[1] - posteriors[0]) ** 2).sum(axis=1).mean()
    widening = np.sqrt(2 - rise.mean() / moved)
    stderr = widening * rise.std(ddof=1) / 20
    assert row["p_value"] == pytest.approx(student.sf(rise.mean() / stderr, 399))
    # Rows that differ more may be too rare to be among these.
    half = 1.966 * stderr
    assert half <= row["high"] - row["needed"] < 1.15 * half
    by_chance = 1 - ((np.bincount(y) / 400) ** 2).sum()
    assert row["alone"] == pytest.approx(by_chance - loss[2].mean(), abs=0.002)
    assert row["per_cost"] == pytest.approx(row["needed"] / 4)


def test_intervals_of_columns_hold_the_rise_of_these_models_on_fresh_rows(rng):
    model = LogisticRegression(C=100)
    weights = np.array([1.5, 0.3, 0.3, 0.0])

    def sample(n):
        X = rng.standard_normal((n, 4))
        return X, (rng.random(n) < 1 / (1 + np.exp(-X @ weights))).astype(int)

    inside = []
    for _ in range(40):
        X, y = sample(300)
        fresh, labels = sample(4000)
        folds = list(StratifiedKFold(5).split(X, y))
        found = cs.column_value(model, X, y, columns=[1, 2, 3], cv=folds).table

        def loss(columns, X=X, y=y, fresh=fresh, labels=labels, folds=folds):
            """On fresh rows, of the models of all folds with these columns."""
            fits = [
                clone(model).fit(X[train][:, columns], y[train]) for train, _ in folds
            ]
            off = [fit.predict_proba(fresh[:, columns])[:, 1] - labels for fit in fits]
            return 2 * np.square(off).mean()

        with_all = loss(range(4))
        for unit, low, high in found[["unit", "low", "high"]].to_numpy():
            rise = loss(np.delete(np.arange(4), int(unit))) - with_all
            inside.append(low <= rise <= high)
    assert np.mean(inside) >= 0.93  # 85% where rows count as independent of the models


def test_a_column_that_changes_no_prediction_is_not_said_to_be_worthless():
    X, y = planted(400, 1)
    same = pd.DataFrame({"marker": X["marker"], "constant": 1.0})
    model = LogisticRegression()
    found = cs.column_value(model, same, y, columns=["constant"]).table.iloc[0]
    assert found["needed"] == pytest.approx(0, abs=1e-4)
    # Rows that it changes may be too rare to be among these: half a row at least.
    assert found["low"] < -0.9 / 400
    assert found["high"] > 0.9 / 400


def test_named_units_are_taken():
    X, y = planted(300, 2)
    units = {"lab": ["copy", "marker"], "rest": ["noise 0"]}
    numbers = X.drop(columns="town")
    found = cs.column_value(LogisticRegression(), numbers, y, columns=units)
    assert found.table["unit"].iloc[0] == "lab"


def test_a_budget_puts_columns_together():
    X, y = planted(300, 2)
    numbers = X.drop(columns="town").to_numpy()
    groups = np.arange(300) // 2
    few = cs.column_value(
        LogisticRegression(), numbers, y, budget=5, groups=groups
    ).table
    assert (len(few), few["columns"].str.len().sum()) == (2, 4)


def test_a_class_of_two_groups_is_found_with_the_rows_of_each():
    four = GaussianProblem([[0.0], [2.5], [9.5], [12.0]])
    X, part = four.sample(800, 0, stratified=False)
    middle_is_one = [[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1]]
    P = four.posteriors(X) @ middle_is_one
    found = cs.split_candidates(P, np.array([0, 1, 1, 2])[part])
    assert found.table[found.table["flagged"]]["class"].tolist() == [1]
    line, near = found.table.iloc[0], {0: 1, 2: 2}  # class beside it → group
    for own, name in zip(found.rows(0), ("first", "second"), strict=True):
        assert (part[own] == near[line[name]]).mean() > 0.99
    assert line["rate_first"] > 10 * line["rate_first_elsewhere"]


def test_a_class_between_two_others_is_left_whole():
    problem = GaussianProblem([[0.0], [2.0], [4.0]])
    n_flagged = 0
    for seed in range(10):
        X, y = problem.sample(600, seed)
        found = cs.split_candidates(problem.posteriors(X), y)
        n_flagged += found.table["flagged"].any()
    assert n_flagged <= 2


def test_rows_of_the_fit_get_their_held_out_posteriors():
    """A model that remembers its labels: without its held-out posteriors every error of a rival
    looks fixable."""
    X, y, P = rows(300)
    certain = 0.94 * np.eye(3)[np.searchsorted(NAMES, y)] + 0.02
    memory = SimpleNamespace(
        predict_proba=lambda X: certain[: len(X)],
        classes_=NAMES,
        posteriors_=P,
        row_hashes_=row_hashes(X),
    )
    said = NAMES[P.argmax(axis=1)]
    report = cs.audit(memory, pd.DataFrame(X), y, said)
    assert report.fixable == 0
    assert "300 of 300 rows are training rows" in report.notes[0]
    assert cs.audit(memory, X + 1e-3, y, said).fixable > 0.1
    assert cs.ambiguous(memory, X, y).equals(cs.ambiguous(P, y=y))


def test_rows_are_told_apart_by_every_value_and_alike_in_any_container():
    X, *_ = rows(300)
    assert len(np.unique(row_hashes(X))) == 300
    assert np.array_equal(row_hashes(X), row_hashes(X.astype(np.float32)))
    frame = pd.DataFrame({"x": [1.0, np.nan, np.nan], "town": ["a", None, "b"]})
    assert len(set(row_hashes(frame).tolist())) == 3
    assert np.array_equal(row_hashes(frame)[1:], row_hashes(frame.iloc[1:]))


def clustered(rng, groups=40, rows=25):
    """(group, posteriors, labels): how hard a row is depends on its group."""
    own = np.repeat(np.arange(groups), rows)
    doubt = rng.beta(1, 2, groups)[own] * rng.random(len(own))
    P = np.repeat(doubt[:, None] / 2, 3, axis=1)
    P[np.arange(len(P)), rng.integers(0, 3, len(P))] = 1 - doubt
    y = draw_classes(P, rng)
    return own, P, y


def coverage(holds, seed, times=200):
    """How often intervals of clustered rows hold the truth."""
    rng = np.random.default_rng(seed)
    return np.mean([holds(*clustered(rng)) for _ in range(times)], axis=0)


@pytest.fixture(scope="module")
def population():
    """Brier score and error of the clustered rows, from very many of them."""
    _, P, y = clustered(np.random.default_rng(99), 8000)
    return ((np.eye(3)[y] - P) ** 2).sum(axis=1).mean(), (P.argmax(axis=1) != y).mean()


def test_ceilings_cover_where_rows_come_in_groups(population):
    def holds(own, P, y):
        row = metrics_of(P, y, groups=own).loc["accuracy"]
        return row["low"] <= 1 - population[1] <= row["high"]

    assert coverage(holds, 0, times=150) >= 0.93  # without groups 68%


def test_an_audit_covers_where_rows_come_in_groups(population):
    def holds(own, P, y):
        report = cs.audit(P, y, P.argmax(axis=1), groups=own)
        low, high = report.error_interval
        return low <= population[1] <= high, report.bayes_error_limit >= population[1]

    assert coverage(holds, 1).min() >= 0.9  # without groups 67% and 86%


def test_subgroups_cover_where_rows_come_in_groups(population):
    def holds(own, P, y):
        table = by_group(P, y, own < 20, groups=own)
        inside = (table["low"] <= population[0]) & (population[0] <= table["high"])
        same = (table["difference_low"] <= 0) & (table["difference_high"] >= 0)
        return (inside & same).all()

    assert coverage(holds, 3) >= 0.92  # without groups 64%


def test_groups_of_an_audit_raise_the_p_values_of_its_pairs():
    own, P, y = clustered(np.random.default_rng(2))
    # A few groups are always called 0.
    said = np.where(own % 8 == 0, 0, P.argmax(axis=1))
    plain, grouped = (
        cs.audit(P, y, said, groups=groups).pairs.set_index(["true", "predicted"])
        for groups in (None, own)
    )
    assert (grouped["p_value"] >= plain["p_value"]).all()
    assert grouped.loc[(1, 0), "p_value"] > 2 * plain.loc[(1, 0), "p_value"]
    assert (grouped["high"] >= plain["high"]).all()


def test_over_confident_posteriors_have_an_interval_around_their_score():
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, 600)
    wrong = rng.integers(1, 3, 600) * (rng.random(600) < 0.7)
    found = cs.collisions_by(np.eye(3)[(y + wrong) % 3], y, np.arange(600) % 2)
    table = found.table
    assert (table["pber"] > 1.2).all()
    assert table["pber"].between(table["low"], table["high"], "neither").all()
    assert "worse than the class shares" in found.notes[0]
