"""Scenarios B and C at the paper's size: one training, looked at after several epochs."""

import numpy as np
import pytest

from studies import store
from studies.paper import at_size, records, rows
from studies.paper.study import size_cells

QUICK = [cell for cell in at_size.cells(True) if cell["part"] != rows.OURS]


@pytest.mark.parametrize("cell", QUICK, ids=lambda cell: cell["part"])
def test_every_look_has_finite_errors(cell):
    found = at_size.run(cell)
    assert list(found) == ["1", "2"]
    for look in found.values():
        assert np.isfinite(look[cell["part"]]["mean"])


@pytest.mark.parametrize("cell", QUICK, ids=lambda cell: cell["part"])
def test_a_look_is_what_a_training_of_so_many_epochs_gives(cell):
    early = at_size.run(cell)["1"]
    short = cell | {"settings": cell["settings"] | {"max_epochs": 1}, "looks": [1]}
    alone = at_size.run(short)["1"]
    name = cell["part"]
    assert early[name]["mean"] == pytest.approx(alone[name]["mean"], rel=1e-6)


def test_every_record_is_of_a_cell_of_the_study():
    wanted = {store.key_of(cell) for cell in size_cells(False)}
    for key, record in store.load(store.path_of("paper-size")).items():
        if record["cell"]["part"] != "digits":  # these need the images
            assert key in wanted


def test_a_record_has_looks_that_its_cell_asks_for():
    for record in store.results("paper-size"):
        looks = record["cell"].get("looks", [0])
        assert list(record["result"]) == [str(epochs) for epochs in looks]


def test_the_last_look_is_the_one_that_all_samples_have():
    for part in (rows.PRINTED, *at_size.RIVALS):
        last = str(records.last_look(part))
        assert all(last in record["result"] for record in records.of_part(part))
