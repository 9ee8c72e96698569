"""The experiments: what is done is not done again, what changed is, and the pages come from the records alone."""

import json

import numpy as np
import pytest

from studies import store
from studies.reproduction import claims, missing
from studies.reproduction.catalogue import EXPERIMENTS
from studies.runner import run
from studies.store import Experiment, key_of, load, path_of, results


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    return tmp_path


def counting(calls, cells):
    def call(cell):
        calls.append(cell["x"])
        return {"square": cell["x"] ** 2}

    return Experiment("toy", "a toy", lambda quick: cells, call)


def test_what_is_done_is_not_done_again_and_what_changed_or_was_cut_is(folder):
    calls: list[int] = []
    cells = [{"x": 1, "seed": 0}, {"x": 2, "seed": 0}]
    for _ in range(2):
        run(counting(calls, cells), verbose=0)
    assert calls == [1, 2]
    changed = counting(calls, [cells[0], {"x": 2, "seed": 1}])
    run(changed, verbose=0)
    assert calls == [1, 2, 2]
    assert [record["cell"]["seed"] for record in results("toy")] == [
        0,
        1,
    ]  # the stale record is gone
    path = path_of("toy")
    path.write_text(path.read_text()[:-20])  # cut by a kill
    run(changed, verbose=0)
    assert calls == [1, 2, 2, 2]
    assert [r["result"]["square"] for r in results("toy")] == [1, 4]
    path.write_text('{"key": \n{"key": "a"}\n')
    with pytest.raises(ValueError, match="line 1"):
        load(path)


def test_every_experiment_has_distinct_cells_that_json_can_hold():
    for experiment in EXPERIMENTS.values():
        for quick in (True, False):
            cells = experiment.cells(quick)
            assert len({key_of(cell) for cell in cells}) == len(cells) > 0
            assert json.loads(json.dumps(cells)) == cells


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scenario-a", "scenario-c", "errata", "calibration-of-intervals"])
def test_the_quick_size_runs(folder, name):
    run(EXPERIMENTS[name], quick=True, verbose=0)
    assert len(results(name, quick=True)) == len(EXPERIMENTS[name].cells(True))


def test_verdicts_of_all_claims_are_those_of_the_paper_and_of_ours():
    rows = [claims.Claim("a", "literal paper", "", held) for held in (True, False)]
    rows += [claims.Claim("a", "collidescope", "", True), claims.Claim("b", "", "", False)]
    text = claims.summary([claims.Section("## One, two\n\ntext", rows)]).splitlines()
    assert text[2] == "| [One, two](#one-two) | a | held in 1 of 2 trials | held |"
    assert text[3] == "| [One, two](#one-two) | b | **did not hold** | **did not hold** |"


def test_the_lowest_mean_is_bold_and_the_truth_does_not_compete():
    found = {"oracle": {1: np.array([0.1])}, "a": {1: np.array([0.2])}, "b": {1: np.array([0.3])}}
    text = claims.method_table(found, ["b", "a", "oracle"], {1: "one"}, ("oracle",))
    assert "| a | **0.2000** |" in text
    assert "| *oracle* | 0.1000 |" in text


def test_a_partial_run_and_adopted_records_replace_the_old_ones_of_their_method_alone(folder):
    old = [{"x": 1, "method": "a"}, {"x": 2, "method": "b"}]
    run(counting([], old), verbose=0)
    new = [{"x": 3, "method": "a"}, {"x": 4, "method": "b"}]
    calls: list[int] = []
    run(counting(calls, new), only={"method": "a"}, verbose=0)
    assert calls == [3]
    assert [r["cell"]["x"] for r in results("toy")] == [3, 2]
    with pytest.raises(SystemExit, match="no cell"):
        run(counting(calls, new), only={"x": "7"}, verbose=0)
    newer = counting([], [new[0], {"x": 5, "method": "b"}])
    for x in (5, 6):  # 6 is no cell in use
        cell = {"x": x, "method": "b"}
        store.append(
            folder / "elsewhere.jsonl", {"key": key_of(cell), "cell": cell, "experiment": "toy"}
        )
    assert store.adopt(newer, folder / "elsewhere.jsonl") == 1
    assert [r["cell"]["x"] for r in results("toy")] == [3, 5]


def test_the_untried_claims_have_planted_answers():
    few, many = (missing.pairs(3, m, samples=5) for m in (10, 160))
    assert many["G"] < 0.5 * few["G"]  # 1/√m: a quarter
    even, skewed = (missing.descent(3, ratio, count=3, steps=20_000) for ratio in (1.0, 10.0))
    assert max(even["root"], skewed["root"]) < 1e-10
    assert even["descent"] < 0.01 < skewed["descent"]
