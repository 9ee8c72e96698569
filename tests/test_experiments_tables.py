"""Experiments on real tables, counted collisions and divergences: the quick size, and what their figures mean."""

from __future__ import annotations

import numpy as np
import pytest

from experiments import store
from experiments.counted import COUNTED
from experiments.divergences import DIVERGENCES, check_claims, inflections
from experiments.runner import run
from experiments.store import results
from experiments.tabular import TABULAR, insight, summarise


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Records of every quick experiment, run once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "RESULTS", tmp_path_factory.mktemp("results"))
        for experiment in (TABULAR, COUNTED, DIVERGENCES):
            run(experiment, quick=True, verbose=0)
        return {e.name: results(e.name, quick=True) for e in (TABULAR, COUNTED, DIVERGENCES)}


@pytest.mark.slow
def test_every_s_is_stochastic_and_balanced_and_precision_equals_recall_at_its_own_priors(records):
    for record in records["tabular"]:
        result = record["result"]
        for name in ("empirical", "uniform"):
            S = np.array(result[name]["matrix"])
            assert np.allclose(S.sum(axis=1), 1, atol=1e-5)
            low, high = result[name]["bayes_error_bounds"]
            assert 0 <= low <= high <= 0.5 + 1e-9
        decided = result["decided"]["empirical"]
        assert decided["recall"] == pytest.approx(decided["precision"], abs=1e-5)


@pytest.mark.slow
def test_counted_and_estimated_collisions_agree_on_the_quick_tables(records):
    for record in records["counted"]:
        difference = record["result"]["difference"]
        assert difference["mean_tvd"] < 0.05
        assert difference["largest_z"] < 4


def planted(rng: np.random.Generator, n: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Posteriors of a rare class and labels drawn from them."""
    p = 1 / (1 + np.exp(-rng.normal(np.log(share / (1 - share)), 1.5, n)))
    return np.stack([1 - p, p], axis=1), np.where(rng.random(n) < p, "rare", "usual")[:, None][:, 0]


def test_precision_at_uniform_decisions_is_what_a_simulated_classifier_gets():
    rng = np.random.default_rng(0)
    P, y = planted(rng, 200_000, 0.1)
    P = P[:, ::-1]  # columns in the order of the sorted labels
    result = summarise(P, y)
    assert result["positive"] == "rare"
    prior = result["share"]
    odds = P[:, 0] / P[:, 1] * (1 - prior) / prior
    flagged = rng.random(len(y)) < odds / (1 + odds)
    own = y == "rare"
    decided = result["decided"]["uniform"]
    assert decided["recall"] == pytest.approx(flagged[own].mean(), abs=0.01)
    assert decided["precision"] == pytest.approx(own[flagged].mean(), abs=0.01)
    assert decided["precision_interval"][0] < decided["precision"] < decided["precision_interval"][1]
    best = result["optimal"]["empirical"]
    assert best["by_labels"]["recall"] == pytest.approx(best["by_posteriors"]["recall"], abs=0.01)
    assert best["by_labels"]["precision"] == pytest.approx(best["by_posteriors"]["precision"], abs=0.01)


def result_with(recall: float = 0.7, precision: float = 0.3, pber: float = 0.2) -> dict:
    return {
        "decided": {"uniform": {"recall": recall, "precision": precision}},
        "empirical": {"pber": pber, "pber_interval": [pber - 0.01, pber + 0.01]},
        "positive": "diabetes",
    }


def test_insight_names_a_model_that_sees_more():
    assert "another model" not in insight(result_with(), [result_with(pber=0.195)])
    outdone = insight(result_with(), [result_with(pber=0.195), result_with(pber=0.15)])
    assert "another model sees more (PBER 0.150 instead of 0.200)" in outdone


def test_claims_on_divergences_are_all_checked_and_only_uniqueness_fails():
    verdicts = {claim["claim"]: claim["holds"] for claim in check_claims([0.0, 0.5, 2.0], step=0.05)}
    assert [claim for claim, holds in verdicts.items() if not holds] == [
        "the shape is unique (for other divergences and scales as well)"
    ]


def test_inflection_points_are_where_calculus_puts_them():
    bends = inflections(0.02)
    assert bends["Hellinger squared"] == pytest.approx([1.0], abs=0.02)  # 1 - exp(-μ²/2)
    assert bends["total variation"] == []
    assert bends["KL"] == []
