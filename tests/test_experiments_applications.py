"""The experiments on applications at their quick size: what is planted is found, and measures equal those by hand."""

import json

import numpy as np
import pytest

from collidescope.datasets import scenario_a
from studies.reproduction import applications_audit, applications_noise, applications_sampling
from studies.reproduction import applications_merging as merging
from studies.reproduction import applications_smoothing as smoothing

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")]


@pytest.mark.parametrize("cell", merging.cells(True), ids=lambda cell: cell["data"])
def test_merging_records_the_promise_and_what_retraining_found(cell):
    result = merging.run(cell)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert [level["n_groups"] for level in result["levels"]] == cell["groups"]
    for level in result["levels"]:
        promise = level["promise"]
        assert promise["low"] <= promise["pber"] <= promise["high"]
        assert promise["pber"] < result["before"]["pber"]
        assert ("truth" in level) == (cell["data"] == "A")
        if "truth" in level:
            assert 0 < level["truth"]["pber"] < scenario_a(5).collision_matrix().pber


@pytest.mark.parametrize("cell", smoothing.cells(True), ids=lambda cell: cell["data"])
def test_smoothing_records_each_kind_at_its_best_strength(cell):
    result = smoothing.run(cell)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    for moment in ("early stopping", "last epoch"):
        scores = result[moment]
        assert list(scores) == [smoothing.NONE, smoothing.UNIFORM, smoothing.OURS]
        assert scores[smoothing.NONE]["strength"] == 0
        for kind in scores.values():
            strengths, validation, tested = zip(*kind["grid"], strict=True)
            best = int(np.argmin(validation))
            assert (kind["strength"], kind["log_loss"]) == (strengths[best], tested[best])
            assert ("posterior_tvd" in kind) == (cell["data"] == "A")


def records(experiment):
    return [{"cell": cell, "result": experiment.run(cell)} for cell in experiment.cells(True)]


def test_the_audit_experiment_finds_the_planted_pairs():
    table = applications_audit.summary(records(applications_audit.AUDIT))
    kinds = {
        (posteriors, name)
        for posteriors in ("true", "estimated")
        for name in ("blind", "best", "coin")
    }
    assert {(row["posteriors"], row["classifier"]) for row in table} == kinds
    for row in table:
        if row["classifier"] == "blind":
            assert row["power"] == 1
            assert row["fixable"] == pytest.approx(row["truth"], abs=0.05)
        elif row["classifier"] == "best" and row["posteriors"] == "true":
            assert row["fixable"] == row["false discovery proportion"] == 0


def test_every_score_of_label_errors_beats_chance():
    table = applications_noise.summary(records(applications_noise.NOISE))
    assert [row["noise"] for row in table] == ["symmetric", "pair"]
    for row in table:
        assert all(
            row[name] > 2 * row["rate"]
            for name in applications_noise.SCORES
            if "adjusted" not in name
        )


def test_every_sampler_trains_a_network_that_has_learned_something():
    found = records(applications_sampling.SAMPLING)
    for method in applications_sampling.METHODS:
        assert found[0]["result"][method]["balanced accuracy"] > 0.3  # 0.25 by chance
    table = applications_sampling.summary(found)
    assert all(row["gain"] == 0 for row in table if row["method"] == applications_sampling.BASELINE)
