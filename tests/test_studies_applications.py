"""The studies of applications at their quick size: what is planted is found."""

import json

import numpy as np
import pytest

from collidescope.datasets import scenario_a
from studies.reproduction import (
    applications_audit,
    applications_noise,
)
from studies.reproduction import applications_merging as merging
from studies.reproduction import applications_smoothing as smoothing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning"),
]


@pytest.mark.parametrize("cell", merging.cells(True), ids=lambda cell: cell["data"])
def test_merging_records_what_it_promised(cell):
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
            assert (kind["strength"], kind["log_loss"]) == (
                strengths[best],
                tested[best],
            )
            assert ("posterior_tvd" in kind) == (cell["data"] == "A")


def records(study):
    return [{"cell": cell, "result": study.run(cell)} for cell in study.cells(True)]


@pytest.fixture(scope="module")
def audits():
    """(posteriors, classifier) → what was found, and the truth."""
    found = {}
    for record in records(applications_audit.STUDY):
        result = record["result"]
        for name, lists in result["classifiers"].items():
            found[record["cell"]["posteriors"], name] = lists | {
                "truth": result["truth"][name]
            }
    return found


@pytest.mark.parametrize("posteriors", ["true", "estimated"])
def test_the_audit_finds_both_planted_pairs(audits, posteriors):
    assert audits[posteriors, "blind"]["found"] == [2]


@pytest.mark.parametrize("posteriors", ["true", "estimated"])
def test_the_fixable_error_of_the_blind_classifier_is_near_the_truth(
    audits, posteriors
):
    found = audits[posteriors, "blind"]
    assert found["fixable"][0] == pytest.approx(found["truth"], abs=0.05)


def test_the_best_classifier_has_nothing_to_fix(audits):
    found = audits["true", "best"]
    assert (found["fixable"], found["false"]) == ([0], [0])


def test_every_score_of_label_errors_beats_chance():
    table = applications_noise.summary(records(applications_noise.STUDY))
    assert [row["noise"] for row in table] == ["symmetric", "pair"]
    for row in table:
        plain = [s for name, s in row["scores"].items() if "adjusted" not in name]
        assert min(plain) > 2 * row["rate"]
