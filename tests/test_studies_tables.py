"""Studies of real tables, counted collisions and divergences: quick sizes and meaning."""

import numpy as np
import pandas as pd
import pytest

from studies import real_tables, store
from studies.reproduction import counted, tabular
from studies.reproduction.divergences import inflections, relations
from studies.reproduction.tabular import summarise
from studies.runner import run
from studies.store import results


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Records of the quick sizes, run once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "RESULTS", tmp_path_factory.mktemp("results"))
        found = {}
        for study in (tabular.STUDY, counted.STUDY):
            run(study, quick=True, verbose=0)
            found[study.name] = results(study.name, quick=True)
        return found


@pytest.mark.slow
def test_rows_of_a_tabular_s_sum_to_one(records):
    for result in (record["result"] for record in records["tabular"]):
        for name in ("empirical", "uniform"):
            assert np.allclose(np.sum(result[name]["matrix"], axis=1), 1, atol=1e-5)


@pytest.mark.slow
def test_precision_equals_recall_at_the_priors_of_the_data(records):
    for result in (record["result"] for record in records["tabular"]):
        decided = result["decided"]["empirical"]
        assert decided["recall"] == pytest.approx(decided["precision"], abs=1e-5)


@pytest.mark.slow
def test_counted_collisions_agree_with_estimates(records):
    for difference in (record["result"]["difference"] for record in records["counted"]):
        assert difference["mean_tvd"] < 0.05
        assert difference["intervals_overlap"] > 0.9


def test_precision_at_uniform_decisions_is_what_a_simulated_classifier_gets(rng):
    p = 1 / (1 + np.exp(-rng.normal(np.log(1 / 9), 1.5, 200_000)))
    own = rng.random(len(p)) < p
    result = summarise(np.stack([p, 1 - p], axis=1), np.where(own, "rare", "usual"))
    assert result["positive"] == "rare"
    prior = result["share"]
    odds = p / (1 - p) * (1 - prior) / prior
    flagged = rng.random(len(p)) < odds / (1 + odds)
    decided = result["decided"]["uniform"]
    assert decided["recall"] == pytest.approx(flagged[own].mean(), abs=0.01)
    assert decided["precision"] == pytest.approx(own[flagged].mean(), abs=0.01)
    assert (
        decided["precision_interval"][0]
        < decided["precision"]
        < decided["precision_interval"][1]
    )
    best = result["optimal"]["empirical"]
    assert best["by_labels"]["recall"] == pytest.approx(
        best["by_posteriors"]["recall"], abs=0.01
    )
    assert best["by_labels"]["precision"] == pytest.approx(
        best["by_posteriors"]["precision"], abs=0.01
    )


@pytest.mark.parametrize(
    ("study", "dataset", "said"),
    [(tabular, "breast cancer", "rows"), (counted, "digits", "rows_scored")],
)
def test_rows_that_were_not_held_out_are_not_scored(study, dataset, said, monkeypatch):
    """Of many rows the default gives as many posteriors as are enough."""

    def every_second(method, X, y, seed, settings):
        P = np.random.default_rng(seed).dirichlet(np.ones(2), len(y))
        P[::2] = np.nan
        return P, {}

    monkeypatch.setattr(study, "posteriors", every_second)
    cell = {"dataset": dataset, "method": tabular.OURS, "rows": 300, "seed": 0}
    found = study.run(cell | {"settings": {}, "train": "repeated"})
    assert found[said] == 150


def test_known_inequalities_hold_between_the_divergences():
    gaps = relations([0.0, 0.5, 2.0], step=0.05)["gaps"]
    assert min(gaps.values()) > -1e-9  # quadrature is right to about 1e-13


def test_inflections_are_where_calculus_puts_them():
    bends = inflections(0.02)
    # 1 - exp(-μ²/2)
    assert bends["Hellinger squared"] == pytest.approx([1.0], abs=0.02)
    assert bends["total variation"] == bends["KL"] == []


def screened_set(folder, monkeypatch, **tables):
    """The result of the study for these tables."""
    (folder / "tables" / "packages").mkdir(parents=True)
    for name, columns in tables.items():
        path = folder / "tables" / "packages" / f"{name}.csv"
        pd.DataFrame(columns).to_csv(path, index=False)
    monkeypatch.setenv("COLLIDESCOPE_DATA", str(folder))
    return real_tables.run({"tables": "packages"})


def test_a_leak_that_the_screening_names_is_not_missed(tmp_path, monkeypatch):
    y = np.arange(300) % 2
    x = np.random.default_rng(0).normal(size=300)
    found = screened_set(tmp_path, monkeypatch, t={"after": y + x / 100, "y": y})
    assert (found["predicted"], found["missed"]) == (1, {})


def test_a_leak_that_the_screening_passes_over_is_missed(tmp_path, monkeypatch):
    y = np.arange(300) % 2
    x = np.random.default_rng(0).normal(size=300)
    monkeypatch.setattr(real_tables, "screen", lambda X, y: real_tables.Screening())
    found = screened_set(tmp_path, monkeypatch, t={"after": y + x / 100, "y": y})
    assert found["missed"] == {"t / y": ["after"]}


def test_a_table_that_is_refused_in_words_is_no_crash(tmp_path, monkeypatch):
    columns = {"rownames": np.arange(300), "y": np.arange(300) % 2}
    found = screened_set(tmp_path, monkeypatch, t=columns)
    assert (found["refused"], found["crashes"]) == (1, {})
