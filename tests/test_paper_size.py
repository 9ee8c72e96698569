"""Experiments at the paper's size: one training, looked at after several epochs."""

import numpy as np
import pytest

from studies.paper import at_size, rows

QUICK = [cell for cell in at_size.cells(True) if cell["part"] != rows.OURS]


@pytest.mark.parametrize("cell", QUICK, ids=lambda cell: cell["part"])
def test_every_look_of_every_sample_has_finite_errors(cell):
    found = at_size.run(cell)
    assert list(found) == [str(seed) for seed in cell["seeds"]]
    for looks in found.values():
        assert list(looks) == [str(epochs) for epochs in cell["looks"]]
        for look in looks.values():
            assert np.isfinite(look[cell["part"]]["mean"])


def test_a_look_is_what_a_training_of_so_many_epochs_gives():
    cell = QUICK[0]
    early = at_size.run(cell)["0"]["1"]
    short = cell | {"settings": cell["settings"] | {"max_epochs": 1}, "looks": [1]}
    alone = at_size.run(short)["0"]["1"]
    name = cell["part"]
    assert early[name]["mean"] == pytest.approx(alone[name]["mean"], rel=1e-6)


def test_descents_side_by_side_end_where_one_alone_does():
    settings = at_size.PrintedSettings(max_steps=400, step_size=1e-3)
    S = np.array([[0.9, 0.1], [0.2, 0.8]])
    gramians = [S @ S.T, np.eye(2)]
    _, last = at_size.descents(gramians, settings)
    for G, found in zip(gramians, last, strict=True):
        alone = settings.descend(G)
        np.testing.assert_allclose(found.matrix, alone.matrix, atol=1e-12)
        assert found.gap == pytest.approx(alone.gap)
        assert found.converged == alone.converged
