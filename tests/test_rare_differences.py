"""What n rows without a single difference cannot rule out, and groups of very unequal size."""

import numpy as np
import pandas as pd
import pytest

import collidescope as cs
from collidescope.applications import collision_change
from collidescope.votes import compare_annotators, compare_judges
from studies.application_statements import Lookup
from studies.grid import plain, population

N = 60
LABELS = np.arange(N) % 2
SURE = np.where(LABELS[:, None] == np.arange(2), 0.999, 0.001)
#: A share of which 60 rows show nothing with a chance of 1 in 20.
UNSEEN = 1 - 0.05 ** (1 / N)


def of_a_judge():
    found = compare_judges(3 * np.eye(2)[LABELS], LABELS)
    return found.table.loc[0, ["low", "high"]]


def of_an_annotator():
    items = np.repeat(np.arange(N), 4)
    found = compare_annotators(items, LABELS[items], np.tile(np.arange(4), N))
    return found.annotators.loc[0, ["low", "high"]]


def of_a_change():
    return collision_change(SURE, LABELS, SURE).interval


def of_an_audit():
    return cs.audit(SURE, y_true=LABELS, y_pred=LABELS).fixable_interval


def of_a_metric(name="accuracy"):
    table = cs.ceilings(SURE, LABELS, y_pred=SURE).table.set_index("metric")
    return table.loc[name, ["difference_low", "difference_high"]]


def of_a_score():
    return of_a_metric("Brier score")


@pytest.mark.parametrize(
    "made",
    [of_a_judge, of_an_annotator, of_a_change, of_an_audit, of_a_metric, of_a_score],
)
def test_rows_that_show_no_difference_cannot_rule_out_rare_ones(made):
    low, high = made()
    assert low <= -UNSEEN  # one more row of another kind: half of it
    assert high >= UNSEEN
    assert high <= 10 / N


def test_a_subgroup_without_an_error_may_have_some():
    p = np.where(LABELS[:, None] == np.arange(2), 0.97, 0.03)
    found = cs.collisions_by(
        np.tile(p, (20, 1)), np.tile(LABELS, 20), np.repeat([0, 1], [N, 19 * N])
    )
    line = found.table.loc[0]
    assert line["low"] <= 0.03 * 0.97 * 2 <= line["high"]  # 0.033 before


def test_judges_of_unanimous_items_may_be_right_less_than_always():
    low, high = compare_judges(3 * np.eye(2)[LABELS], LABELS).best_interval
    assert low <= 1 - UNSEEN  # "100.0% to 100.0%"
    assert high == 1


def test_one_error_is_no_proof_of_a_fifth_of_its_rate():
    wrong = LABELS.copy()
    wrong[0] = 1 - wrong[0]
    low, _ = cs.audit(SURE, y_true=LABELS, y_pred=wrong).error_interval
    assert low <= 0.026 / N  # Wilson: .18/n, which one sample in six refutes


def test_pairs_that_no_group_shows_a_difference_in_may_have_some_in_others():
    wrong = LABELS.copy()
    wrong[0] = 1 - wrong[0]  # said by both
    P = np.where(wrong[:, None] == np.arange(2), 0.999, 0.001)
    groups = np.repeat(np.arange(6), N // 6)
    found = cs.audit(P, y_true=LABELS, y_pred=wrong, groups=groups)
    assert found.pairs.loc[0, "high"] >= 1 - 0.05 ** (1 / 6)  # that of 30 rows before


def test_a_column_alone_may_tell_what_no_row_shows():
    labels = (np.arange(N) < 5).astype(int)
    silent = np.tile([1 - 5 / N, 5 / N], (N, 1))
    X = pd.DataFrame({"kind": np.arange(N), "half": np.arange(N) % 2})
    found = cs.column_value(Lookup(silent, silent[:2]), X, labels)
    assert (found.table["alone_high"] >= UNSEEN).all()  # 0 before


@pytest.mark.parametrize("sizes", [[1000, *[20] * 30], [40] * 40])
def test_an_audit_holds_where_one_group_is_most_of_the_rows(sizes, rng):
    groups = np.repeat(np.arange(len(sizes)), sizes)
    held = []
    for _ in range(60):
        e = 0.5 * rng.beta(1, 4, len(sizes))[groups]
        p = rng.integers(0, 2, len(e))
        P = np.where(p[:, None] == np.arange(2), 1 - e[:, None], e[:, None])
        y = np.where(rng.random(len(e)) < e, 1 - p, p)
        found = cs.audit(P, y_true=y, y_pred=np.where(e > 0.3, 0, p), groups=groups)
        (low, high), (least, most) = found.best_interval, found.fixable_interval
        # Where e > .3, in .4⁴ of the groups, half of the rows lose 1 - 2e.
        held.append((low <= 0.1 <= high, least <= 0.4**6 <= most))
    assert np.mean(held, axis=0).min() >= 0.93  # 60% and 43%, of equal groups 60%


def test_no_error_in_a_hundred_rows_is_no_sign_of_too_little_confidence():
    labels = np.arange(100) % 2
    P = np.where(labels[:, None] == np.arange(2), 0.99, 0.01)
    assert cs.audit(P, y_true=labels, y_pred=labels).notes == ()


def test_subgroups_of_inputs_that_say_nothing_do_no_worse_than_the_class_shares():
    labels = np.repeat([0, 1, 0, 1], [15, 35, 25, 25])
    P = np.full((100, 2), 0.5)
    assert cs.collisions_by(P, labels, np.repeat([0, 1], 50)).notes == ()


def of_a_rare_class():
    """400 rows of which 4 are of a class that no row is called; models of any size are alike."""
    labels = np.isin(np.arange(400), [1, 3, 5, 7]).astype(int)
    rate = np.where(np.arange(400) % 2, 0.02, 0.001)
    P = np.column_stack([1 - rate, rate])
    curve = dict.fromkeys((50, 100, 200, 400), P)
    found = cs.ceilings(P, labels, ordered=True, posteriors_by_size=curve)
    return found.table.set_index("metric")


@pytest.mark.parametrize(
    ("name", "with_one_hit"),
    [("macro F1", 1 / 2 + 1 / 6), ("quadratic kappa", 1 / 3)],
)
def test_a_class_without_a_hit_may_have_some(name, with_one_hit):
    assert of_a_rare_class().loc[name, "high"] > with_one_hit  # .65 and .002 before


def test_hits_that_no_row_shows_make_no_metric_better_than_its_best_value():
    labels = np.arange(8) % 3
    called = np.minimum(labels, 1)
    P = np.where(called[:, None] == np.arange(3), 0.9, 0.05)
    table = cs.ceilings(P, labels, ordered=True).table.set_index("metric")
    assert table.loc["quadratic kappa", "high"] == 1  # 1.03 before


def test_quadratic_kappa_is_at_least_minus_one():
    labels = np.array([0, 0, 0, 0, 0, 0, 1, 2])
    P = np.where(np.zeros((8, 1)) == np.arange(3), 0.9, 0.05)
    table = cs.ceilings(P, labels, ordered=True).table
    low = table.set_index("metric").loc["quadratic kappa", "low"]
    assert low == -1


@pytest.mark.parametrize("seed", range(5))
def test_a_range_with_unlimited_rows_reaches_as_far_as_the_interval_now(seed):
    population_of = population(3, 1.5, rare=True)
    rng = np.random.default_rng(seed)
    sample = plain(population_of, 300)(rng)
    curve = {}
    for size in (50, 100, 200, 400):
        noise = 3 * size**-0.5 * rng.standard_normal((300, 3))
        told = sample.posteriors * np.exp(noise)
        curve[size] = told / told.sum(axis=1, keepdims=True)
    found = cs.ceilings(curve[400], sample.labels, posteriors_by_size=curve)
    row = found.table.set_index("metric").loc["average precision"]
    assert row["limit_high"] >= row["high"]  # with 4 rows of a class it was shorter


def test_a_range_is_no_worse_than_the_interval_now():
    table = of_a_rare_class()
    of_curve = ["balanced accuracy", "average precision"]
    assert (table["limit_low"] == table["low"])[of_curve].all()


def test_ratios_that_better_posteriors_may_lower_have_no_range():
    table = of_a_rare_class()
    ends = table.loc[["macro F1", "weighted F1", "quadratic kappa"], "limit_low"]
    assert ends.isna().all()
    assert table.loc["mean absolute error", "limit_low"] >= 0
