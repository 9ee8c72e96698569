"""Screening: ids, target leakage, groups and order are found in columns of every kind."""

import numpy as np
import pandas as pd
import pytest

from collidescope.tables import TableClassifier, screen
from collidescope.tables.screening import is_id_name, level_accuracy

N = 600
rng = np.random.default_rng(0)
DAYS = pd.date_range("2020-01-01", periods=N)
THREE = rng.integers(0, 3, N)
TWO = rng.integers(0, 2, N)
QUICK = {"members": ["linear"], "limit": False, "cv": 2, "random_state": 0}


def beside_noise(**columns) -> pd.DataFrame:
    """A table of these columns and of one that says nothing."""
    return pd.DataFrame(columns | {"x": rng.normal(size=N)})


def in_runs(n_runs: int = 30) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 3, n_runs).repeat(N // n_runs)


@pytest.mark.parametrize(
    "dates", [DAYS, DAYS.astype(str), DAYS.strftime("%d.%m.%Y")], ids=str
)
def test_labels_in_runs_along_dates_are_said(dates):
    found = screen(beside_noise(when=dates), in_runs())
    assert found.in_runs == ["when"]


def test_labels_in_runs_along_dates_are_said_of_shuffled_rows():
    order = rng.permutation(N)
    table = beside_noise(when=DAYS[order])
    assert screen(table, in_runs()[order]).in_runs == ["when"]


def test_dates_of_independent_labels_are_not_pointed_out():
    found = screen(beside_noise(when=DAYS), THREE)
    assert found.cautions() == []


def test_a_part_of_a_date_that_predicts_the_label_is_a_leak():
    hours = pd.to_timedelta(np.where(TWO == 1, 9, 17), unit="h")
    table = beside_noise(when=rng.permutation(DAYS) + hours)
    assert list(screen(table, TWO).leaks) == ["when"]


FILLED = {
    "date of one class": np.where(THREE == 1, DAYS.astype(str), None),
    "text of one class": np.where(THREE == 1, "a note about it", None),
    "number of one class": np.where(THREE == 1, rng.normal(size=N), np.nan),
    "all but one class": np.where(THREE == 1, np.nan, rng.normal(size=N)),
}


@pytest.mark.parametrize("name", FILLED)
def test_a_column_filled_for_one_class_only_is_a_leak(name):
    found = screen(beside_noise(c=FILLED[name]), THREE)
    assert found.leaks["c"].by == "missingness"


def test_a_column_filled_for_some_rows_of_one_class_only_is_a_leak():
    column = np.where((THREE == 1) & (rng.random(N) < 0.4), "2021", None)
    found = screen(beside_noise(c=column), THREE)
    assert found.leaks["c"].by == "filled"
    assert (
        "100.0% of the rows with a value in 'c' are of one class" in found.cautions()[0]
    )


def test_gaps_that_have_nothing_to_do_with_the_label_are_no_leak():
    column = np.where(rng.random(N) < 0.3, np.nan, rng.normal(size=N))
    assert screen(beside_noise(c=column), THREE).leaks == {}


def test_paths_that_name_the_class_are_a_leak():
    names = np.array(["pos", "neg", "other"])[THREE]
    paths = [f"/data/{name}/{rng.integers(400)}.png" for name in names]
    assert screen(pd.DataFrame({"file": paths}), THREE).leaks["file"].by == "words"


def test_free_text_that_contains_the_label_is_a_leak():
    texts = [
        f"case {rng.integers(10**6)} was found to be {'bad' if c else 'good'}"
        for c in TWO
    ]
    assert screen(pd.DataFrame({"text": texts}), TWO).leaks["text"].share > 0.99


def test_free_text_without_the_label_is_no_leak():
    towns = [f"seen in {rng.choice(['rome', 'bonn'])}" for _ in TWO]
    texts = [f"case {rng.integers(10**6)} {town}" for town in towns]
    assert screen(pd.DataFrame({"text": texts}), TWO).leaks == {}


@pytest.mark.parametrize("rows_per_class", [2, 4, 30])
def test_names_of_many_classes_are_leaks_at_any_number_of_rows(rows_per_class):
    y = rng.permutation(np.repeat(np.arange(214), rows_per_class))
    table = pd.DataFrame({"x": rng.normal(size=len(y))})
    table["country"] = [f"land {chr(65 + k // 20)}{k}" for k in y]
    table["iso2"] = [chr(65 + k // 26) + chr(65 + k % 26) for k in y]
    table["number"] = rng.permutation(10**6)[:214][y]
    assert set(screen(table, y).leaks) == {"country", "iso2", "number"}


def test_rows_alone_in_their_level_do_not_count_against_it():
    levels = np.array([0, 0, 1, 1, 2, 3])
    assert level_accuracy(levels, np.array([0, 0, 1, 1, 0, 1])) == 1
    assert level_accuracy(levels, np.array([0, 1, 0, 1, 0, 1])) == 0


@pytest.mark.parametrize(
    "name",
    [
        "id",
        "ID",
        "Id",
        "uid",
        "idno",
        "rownames",
        "Unnamed: 0",
        "index",
        "customerId",
        "IDNumber",
    ],
)
def test_names_of_ids_are_known_in_any_letter_case(name):
    assert is_id_name(name)
    table = pd.DataFrame({name: rng.permutation(10**6)[:N], "x": rng.normal(size=N)})
    assert list(screen(table, THREE).ids) == [name]


@pytest.mark.parametrize("name", ["paid", "humid", "period", "solid", "grid", "width"])
def test_words_that_end_like_an_id_are_no_ids(name):
    assert not is_id_name(name)


COUNTED = beside_noise(k=np.arange(1, N + 1))
COUNTERS = {
    "a row left out": COUNTED.drop(index=7),
    "a row left out, numbered anew": COUNTED.drop(index=7).reset_index(drop=True),
    "a shuffled sample": COUNTED.sample(150, random_state=0),
    "a sample in order, numbered anew": COUNTED.iloc[
        np.sort(rng.permutation(N)[:150])
    ].reset_index(),
    "with a gap": COUNTED.assign(k=COUNTED["k"].where(COUNTED["k"] != 9)),
}


@pytest.mark.parametrize("name", COUNTERS)
def test_a_counter_is_left_out_after_rows_were(name):
    table = COUNTERS[name]
    assert screen(table, np.arange(len(table)) % 2).ids["k"] == "it counts the rows"


def test_rows_without_a_label_count_for_ids():
    table = beside_noise(k=np.arange(1, N + 1)[::-1] // 1)
    y = np.where(np.arange(N) % 3, "a", "b").astype(object)
    y[5] = None
    assert list(screen(table.sample(N, random_state=1), y).ids) == ["k"]


def test_sorted_measurements_are_no_counters():
    sizes = np.sort(np.unique(rng.lognormal(10, 2, 300).astype(int)))
    assert screen(pd.DataFrame({"size": sizes}), np.arange(len(sizes)) % 2).ids == {}


def test_whole_numbers_beyond_2_to_the_53_are_told_apart():
    table = beside_noise(user_id=2**60 + np.arange(N) * 3)
    assert list(screen(table.sample(N, random_state=0), TWO).ids) == ["user_id"]


def test_measurements_that_repeat_are_no_groups():
    from sklearn.datasets import load_iris

    iris = load_iris(as_frame=True)
    assert screen(iris.data, iris.target.to_numpy()).groups == {}


def test_a_column_that_starts_again_is_not_sorted():
    table = pd.DataFrame({"month": np.tile(np.arange(1, 13).repeat(30), 3)})
    table["x"] = rng.normal(size=len(table))
    assert screen(table, np.repeat([0, 1, 0, 1], 270)).ordered == []


def test_lists_in_cells_are_screened():
    patient = np.repeat(np.arange(60), 10)
    table = beside_noise(code=[[number, 1] for number in patient])
    assert list(screen(table, rng.integers(0, 2, 60)[patient]).groups) == ["code"]


def test_what_the_whole_table_showed_is_used_for_a_sample_of_it():
    """Of 3,000 rows of 60 patients a sample has one row each: it cannot show that they agree."""
    patient = np.repeat(np.arange(1500), 2)
    y = rng.integers(0, 2, 1500)[patient]
    table = pd.DataFrame(
        {"patient": patient, "k": rng.permutation(3000), "x": rng.normal(size=3000)}
    )
    whole = screen(table, y)
    few = np.arange(0, 3000, 20)
    sample = table.iloc[few].reset_index(drop=True)
    assert screen(sample, y[few]).cautions() == []
    with pytest.warns(match="same 'patient' have the same label 100%"):
        model = TableClassifier(**QUICK).fit(sample, y[few], screening=whole)
    assert list(model.encoder_.types) == ["patient", "x"]


def test_what_is_kept_is_used_though_the_whole_table_calls_it_an_id():
    whole = screen(COUNTED, TWO)
    model = TableClassifier(**QUICK, keep=["k"]).fit(COUNTED, TWO, screening=whole)
    assert list(model.encoder_.types) == ["k", "x"]


def test_numbers_in_the_order_of_the_classes_are_a_leak_though_they_repeat():
    """As the strata of a matched study: 83 numbers, three rows each, sorted by the label."""
    stratum = np.tile(np.arange(83), 3)
    table = pd.DataFrame({"stratum": stratum, "x": rng.normal(size=len(stratum))})
    assert (
        screen(table, np.searchsorted([12, 55], stratum)).leaks["stratum"].share >= 0.98
    )


def test_measured_values_of_which_some_agree_are_no_groups():
    """Most rows share a round number, where one class prevails; the others do not agree."""
    amount = np.where(rng.random(N) < 0.3, 1000, rng.integers(0, 150, N))
    y = np.where((amount == 1000) | (rng.random(N) < 0.7), "a", "b")
    assert screen(beside_noise(amount=amount), y).groups == {}


def test_dates_with_the_month_in_letters_are_dates():
    table = beside_noise(date=DAYS.strftime("%d-%b-%y").str.upper())
    assert screen(table, THREE).ids == {}


def test_a_name_that_only_begins_like_that_of_a_group_needs_full_agreement():
    """As the column of personal expenses of colleges: most rows of a value agree, not all."""
    personal = rng.integers(0, 60, N)
    y = np.where(rng.random(N) < 0.88, personal % 2, 1 - personal % 2)
    table = beside_noise(Personal=personal, person=personal)
    assert list(screen(table, y).groups) == ["person"]


def with_comma_or_point(value):
    text = f"{value:.3f}"
    return text.replace(".", ",") if value > 5 else text


@pytest.mark.parametrize("write", ["~{:.3f}".format, with_comma_or_point])
def test_numbers_in_two_forms_are_no_ids(write):
    values = np.random.default_rng(0).random(200) * 10
    table = pd.DataFrame({"dose": [write(value) for value in values]})
    assert screen(table, np.arange(200) % 2).ids == {}


def test_codes_that_mix_digits_with_letters_are_ids():
    letters = np.random.default_rng(0).choice(list("ABCDEFGH"), 200)
    table = pd.DataFrame(
        {"plate": [f"{k + 1000}{letter}" for k, letter in enumerate(letters)]}
    )
    assert "plate" in screen(table, np.arange(200) % 2).ids


def test_titles_in_names_tell_the_sex():
    rng = np.random.default_rng(1)
    sex = rng.choice(["male", "female"], 400)
    titles = {"male": ["Mr.", "Master."], "female": ["Mrs.", "Miss.", "Ms."]}
    names = [f"{rng.integers(300)}, {rng.choice(titles[own])} X" for own in sex]
    names[::66] = [f"{n}, Dr. X" for n in range(len(names[::66]))]
    assert screen(pd.DataFrame({"name": names}), sex).leaks["name"].by == "words"


def test_a_threshold_in_few_rows_is_a_leak():
    """Whether it is found depends on no single split."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        debt = np.sort(rng.lognormal(0, 3, 265))
        recent = np.arange(265) >= 224
        recent[226] = False
        order = rng.permutation(265)
        found = screen(pd.DataFrame({"debt": debt[order]}), recent[order])
        assert "debt" in found.leaks


def test_dummies_of_the_label_are_leaks():
    year = rng.integers(74, 84, 600)
    dummies = {f"y{own}": (year == own) * 1 for own in (75, 80)}
    table = pd.DataFrame({**dummies, "x": rng.normal(size=600)})
    found = screen(table, year)
    assert {name: leak.by for name, leak in found.leaks.items()} == {
        "y75": "class",
        "y80": "class",
    }
    assert (
        "a value of column 'y75' tells one class from the others" in found.cautions()[0]
    )


def test_a_value_of_several_classes_is_no_leak():
    kind = rng.integers(0, 5, 600)
    table = pd.DataFrame(
        {"even": kind % 2, "often": (kind == 3) & (rng.random(600) < 0.8)}
    )
    assert screen(table, kind).leaks == {}
