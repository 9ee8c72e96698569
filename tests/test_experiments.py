"""The experiments: what is done is not done again, what changed is, and the pages come from the records alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from experiments import claims, reproduction, store
from experiments.catalogue import EXPERIMENTS
from experiments.runner import run
from experiments.store import Experiment, key_of, load, path_of, results

ROOT = Path(__file__).parents[1]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    return tmp_path


def counting(calls, cells):
    def call(cell):
        calls.append(cell["x"])
        return {"square": cell["x"] ** 2}

    return Experiment("toy", "a toy", lambda quick: cells, call)


def test_a_second_run_does_nothing_and_a_changed_cell_is_the_only_one_to_run(folder):
    calls: list[int] = []
    cells = [{"x": 1, "seed": 0}, {"x": 2, "seed": 0}]
    run(counting(calls, cells), verbose=0)
    run(counting(calls, cells), verbose=0)
    assert calls == [1, 2]
    run(counting(calls, [cells[0], {"x": 2, "seed": 1}]), verbose=0)
    assert calls == [1, 2, 2]
    assert [record["cell"]["seed"] for record in results("toy")] == [0, 1]  # the stale record is gone


def test_records_hold_settings_result_time_and_environment(folder):
    run(counting([], [{"x": 3, "seed": 0}]), verbose=0)
    (record,) = results("toy")
    assert record["result"] == {"square": 9}
    assert record["cell"] == {"x": 3, "seed": 0}
    assert record["seconds"] >= 0
    assert {"python", "versions", "processor", "date"} <= set(record["environment"])


def test_a_line_cut_by_a_kill_is_run_again_and_the_others_are_kept(folder):
    calls: list[int] = []
    toy = counting(calls, [{"x": 1}, {"x": 2}])
    run(toy, verbose=0)
    path = path_of("toy")
    path.write_text(path.read_text()[:-20])
    run(toy, verbose=0)
    assert calls == [1, 2, 2]
    assert [r["result"]["square"] for r in results("toy")] == [1, 4]


def test_damage_before_the_last_line_is_named_not_passed_over(folder):
    path_of("toy").write_text('{"key": \n{"key": "a"}\n')
    with pytest.raises(ValueError, match="line 1"):
        load(path_of("toy"))


def test_only_selects_cells_and_keeps_the_rest(folder):
    calls: list[int] = []
    toy = counting(calls, [{"x": 1}, {"x": 2}])
    run(toy, only={"x": "2"}, verbose=0)
    assert calls == [2]
    with pytest.raises(SystemExit, match="no cell"):
        run(toy, only={"x": "7"}, verbose=0)


def test_keys_follow_the_settings_and_not_their_order():
    assert key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1})
    assert key_of({"a": 1}) != key_of({"a": 1.5})


def test_every_experiment_has_distinct_cells_that_json_can_hold():
    for experiment in EXPERIMENTS.values():
        for quick in (True, False):
            cells = experiment.cells(quick)
            assert len({key_of(cell) for cell in cells}) == len(cells) > 0
            assert json.loads(json.dumps(cells)) == cells


@pytest.mark.slow
def test_a_killed_run_goes_on_where_it_was(tmp_path):
    environment = os.environ | {"EXPERIMENTS_RESULTS": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "experiments", "run", "calibration-of-intervals", "--quick", "--jobs", "1"]
    path = tmp_path / "quick" / "calibration-of-intervals.jsonl"
    process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for _ in range(3000):  # a busy machine may need minutes for the first record
        if path.exists() or process.poll() is not None:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before = load(path)
    assert before
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    after = load(path)
    assert len(after) == len(EXPERIMENTS["calibration-of-intervals"].cells(True))
    assert {key: after[key] for key in before} == before
    assert f"{len(after) - len(before)} of {len(after)} cells to run" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scenario-a", "scenario-b", "scenario-c", "posterior-variance", "errata"])
def test_the_quick_size_runs(folder, name):
    run(EXPERIMENTS[name], quick=True, verbose=0)
    records = results(name, quick=True)
    assert len(records) == len(EXPERIMENTS[name].cells(True))


@pytest.mark.slow
def test_the_pages_say_what_the_records_say(tmp_path):
    for name, text in reproduction.pages(tmp_path / "figures").items():
        assert (ROOT / name).read_text() == text, f"{name} is stale: python -m experiments tables"


def test_the_lowest_mean_is_bold_and_the_truth_does_not_compete():
    found = {"limit": {1: np.array([0.1])}, "a": {1: np.array([0.2])}, "b": {1: np.array([0.3])}}
    text = claims.method_table(found, ["b", "a", "limit"], {1: "one"}, ("limit",))
    assert "| a | **0.2000** |" in text
    assert "| *limit* | 0.1000 |" in text


def test_a_claim_that_did_not_hold_is_said_to():
    assert "**did not hold**" in claims.claims([("always lower", "higher", False)])
