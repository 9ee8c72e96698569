"""Scenarios B and C at the paper's size: one training, looked at after several epochs."""

import numpy as np
import pytest

from studies.paper import at_size, rows

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
