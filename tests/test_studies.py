"""Studies: what is done is not done again, what changed is, and pages come from records alone."""

import json

import numpy as np
import pytest

from studies import markdown, store
from studies.__main__ import main
from studies.catalogue import every
from studies.reproduction import tables
from studies.runner import run
from studies.store import POOL, Study, header, key_of, load, path_of, results

STUDIES = every()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    return tmp_path


def counting(calls, cells):
    def call(cell):
        calls.append(cell["x"])
        return {"square": cell["x"] ** 2}

    return Study("toy", "a toy", lambda quick: cells, call)


CELLS = [{"x": 1, "seed": 0}, {"x": 2, "seed": 0}]


def test_what_is_done_is_not_done_again(folder):
    calls: list[int] = []
    for _ in range(2):
        run(counting(calls, CELLS), verbose=0)
    assert calls == [1, 2]


def test_a_changed_setting_is_run_in_place_of_the_old_one(folder):
    calls: list[int] = []
    run(counting(calls, CELLS), verbose=0)
    run(counting(calls, [CELLS[0], {"x": 2, "seed": 1}]), verbose=0)
    assert calls == [1, 2, 2]
    assert [record["cell"]["seed"] for record in results("toy")] == [0, 1]


def test_a_record_that_was_cut_by_a_kill_is_made_again(folder):
    calls: list[int] = []
    run(counting(calls, CELLS), verbose=0)
    path = path_of("toy")
    path.write_text(path.read_text()[:-20])
    run(counting(calls, CELLS), verbose=0)
    assert calls == [1, 2, 2]
    assert [r["result"]["square"] for r in results("toy")] == [1, 4]


def test_a_damaged_line_is_named(folder):
    path = path_of("toy")
    path.write_text('{"key": \n{"key": "a"}\n')
    with pytest.raises(ValueError, match="line 1"):
        load(path)


def test_a_record_says_how_it_was_made(folder):
    run(counting([], CELLS[:1]), verbose=0)
    (record,) = results("toy")
    assert record["command"] == "python -m studies run toy"
    assert record["environment"]["pool"] == POOL
    assert {"date", "versions", "processor"} <= set(record["environment"])


def test_again_repeats_what_another_pool_has_measured(folder):
    calls: list[int] = []
    run(counting(calls, CELLS), verbose=0)
    old = results("toy")[0] | {"environment": {"pool": POOL - 1}}
    store.replace(path_of("toy"), old)
    run(counting(calls, CELLS), again=True, verbose=0)
    assert calls == [1, 2, 1]


def test_force_repeats_what_is_recorded(folder):
    calls: list[int] = []
    run(counting(calls, CELLS), verbose=0)
    run(counting(calls, CELLS), force=True, verbose=0)
    assert calls == [1, 2, 1, 2]
    assert len(results("toy")) == 2


def test_the_header_of_old_records_stays_in_front(folder):
    path = path_of("toy")
    path.write_text(json.dumps({"header": {"environment": {"pool": 3}}}) + "\n")
    run(counting([], CELLS), verbose=0)
    assert header("toy") == {"environment": {"pool": 3}}
    assert len(results("toy")) == 2


def test_some_cells_alone_replace_the_old_ones_of_their_method(folder):
    run(counting([], [{"x": 1, "method": "a"}, {"x": 2, "method": "b"}]), verbose=0)
    calls: list[int] = []
    new = [{"x": 3, "method": "a"}, {"x": 4, "method": "b"}]
    run(counting(calls, new), only={"method": "a"}, verbose=0)
    assert calls == [3]
    assert [r["cell"]["x"] for r in results("toy")] == [3, 2]


def test_a_setting_that_no_cell_has_is_refused(folder):
    with pytest.raises(SystemExit, match="no cell"):
        run(counting([], CELLS), only={"x": "7"}, verbose=0)


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("name", STUDIES)
def test_cells_are_distinct(name, quick):
    cells = STUDIES[name].cells(quick)
    assert len({key_of(cell) for cell in cells}) == len(cells) > 0


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("name", STUDIES)
def test_cells_are_what_json_holds(name, quick):
    cells = STUDIES[name].cells(quick)
    assert json.loads(json.dumps(cells)) == cells


def test_list_names_every_study(capsys):
    main(["list"])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(
        STUDIES
    )


def test_an_unknown_study_is_refused():
    with pytest.raises(SystemExit, match="no study is called nothing"):
        main(["run", "nothing"])


def test_a_page_is_filled_between_its_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- a -->\nold\n<!-- /a -->\nafter\n")
    markdown.fill(page, {"a": "new"})
    assert page.read_text() == "before\n<!-- a -->\nnew\n<!-- /a -->\nafter\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "scenario-a",
        "decisions",
        "real",
    ],
)
def test_the_quick_size_runs(folder, name):
    run(STUDIES[name], quick=True, verbose=0)
    assert len(results(name, quick=True)) == len(STUDIES[name].cells(True))


def test_a_table_is_made_from_the_records_given():
    counts = {"tables": 7, "labels": 8, "predicted": 2}
    empty = {"crashes": {}, "missed": {}, "false_alarms": {}}
    record = {"cell": {"tables": "a toy"}, "result": counts | empty}
    text = STUDIES["real-tables"].table([record])
    assert "| a toy | 7 | 8 | 0 | 2 | 0 | 0 (0.0% of the labels) |" in text


FOUND = {
    "oracle": {1: np.array([0.1])},
    "a": {1: np.array([0.2])},
    "b": {1: np.array([0.3])},
}


def test_the_lowest_mean_is_bold():
    text = tables.method_table(FOUND, ["b", "a", "oracle"], {1: "one"}, ("oracle",))
    assert "| a | **0.2000** |" in text


def test_the_truth_does_not_compete():
    text = tables.method_table(FOUND, ["b", "a", "oracle"], {1: "one"}, ("oracle",))
    assert "| *oracle* | 0.1000 |" in text
