"""Merging and label smoothing at their quick size: what the records hold, and the measures behind them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from collidescope.datasets import scenario_a
from experiments import applications_merging as merging
from experiments import applications_smoothing as smoothing
from experiments.store import key_of

pytestmark = pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")


@pytest.mark.parametrize("experiment", [merging.MERGING, smoothing.SMOOTHING], ids=lambda e: e.name)
def test_cells_differ_and_json_can_hold_them(experiment):
    for quick in (True, False):
        cells = experiment.cells(quick)
        assert len({key_of(cell) for cell in cells}) == len(cells)
    for data in {cell["data"] for cell in experiment.cells(False)}:
        assert len({cell["seed"] for cell in experiment.cells(False) if cell["data"] == data}) >= 10


@pytest.mark.parametrize("cell", merging.cells(True), ids=lambda cell: cell["data"])
def test_merging_records_the_promise_and_what_retraining_found(cell):
    result = merging.run(cell)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert [level["n_groups"] for level in result["levels"]] == cell["groups"]
    for level in result["levels"]:
        promise, other = level["promise"], level["other_rows"]
        assert promise["low"] <= promise["pber"] <= promise["high"]
        assert promise["pber"] < result["before"]["pber"]
        assert other["difference"] == other["pber"] - promise["pber"]
        assert other["difference_stderr"] == pytest.approx((promise["stderr"] ** 2 + other["stderr"] ** 2) ** 0.5)
        assert other["covers_zero"] == (abs(other["difference"]) <= 1.96 * other["difference_stderr"])
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
            assert 0 <= kind["ece"] <= 1
            assert ("posterior_tvd" in kind) == (cell["data"] == "A")
    early, last = (result[moment][smoothing.NONE]["grid"][0][1] for moment in ("early stopping", "last epoch"))
    assert early <= last + 1e-6


def test_rows_for_training_validation_and_test_are_apart():
    cell = smoothing.cells(True)[1] | {"rows": 600, "test_rows": 1197}
    data = smoothing._data(cell)
    assert [len(data[part][1]) for part in ("train", "validation", "test")] == [450, 150, 1197]
    rows = np.concatenate([data[part][0] for part in ("train", "validation", "test")])
    assert len(np.unique(rows, axis=0)) == 1797
    assert abs(data["train"][0].mean()) < 1e-12


def test_mixed_up_labels_are_wrong_for_the_digits_that_are_mixed_up_alone():
    cell = smoothing.cells(True)[1] | {"rows": 600, "test_rows": 1197}
    clean, mixed = (smoothing._data(cell | {"data": name}) for name in ("digits", "digits, mixed up"))
    assert clean["train"][0].shape == mixed["train"][0].shape
    whole = {
        name: np.bincount(np.concatenate([d[p][1] for p in ("train", "validation", "test")]))
        for name, d in (("clean", clean), ("mixed", mixed))
    }
    assert whole["clean"][[0, 2, 5, 6]].tolist() == whole["mixed"][[0, 2, 5, 6]].tolist()


def test_calibration_error_of_planted_gaps():
    """Half of the rows say 0.9 and are right 60% of the time, the others say 0.55 and always are."""
    P = np.repeat([[0.9, 0.1], [0.55, 0.45]], 100, axis=0)
    codes = np.concatenate([np.repeat([0, 1], [60, 40]), np.zeros(100, dtype=int)])
    assert smoothing.calibration_error(P, codes) == pytest.approx(0.5 * 0.3 + 0.5 * 0.45)


def test_a_perfectly_calibrated_answer_has_no_calibration_error():
    P = np.repeat([[0.8, 0.2]], 100, axis=0)
    assert smoothing.calibration_error(P, np.repeat([0, 1], [80, 20])) == pytest.approx(0, abs=1e-12)
