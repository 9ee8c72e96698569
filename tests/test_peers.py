"""The study beside the strongest peers: what counts as lower, what is stopped, what is shown."""

import numpy as np
import pytest

from studies.accuracy import peers
from studies.measures import brier_score


def result(*groups, rows=100):
    return {
        "brier": float(np.mean(groups)),
        "groups": list(groups),
        "error": 0.1,
        "calibration": 0.01,
        "seconds": 2.0,
        "rows": rows,
        "columns": 3,
        "classes": 2,
    }


def record(peer, found, table="wine"):
    return {"cell": {"table": table, "peer": peer, "split": 0}, "result": found}


OURS = result(0.20, 0.30, 0.25, 0.25)


def test_a_peer_that_is_lower_in_every_part_is_clearly_lower():
    assert peers.verdict((OURS, result(0.18, 0.28, 0.23, 0.23))) == -1


def test_a_mean_that_is_lower_by_one_part_alone_decides_nothing():
    assert peers.verdict((OURS, result(0.20, 0.30, 0.25, 0.05))) == 0


def test_less_than_one_percent_is_no_difference():
    assert peers.verdict((OURS, result(0.199, 0.299, 0.249, 0.249))) == 0


def test_a_peer_that_is_higher_in_every_part_is_clearly_higher():
    assert peers.verdict((OURS, result(0.22, 0.32, 0.27, 0.27))) == 1


def test_parts_of_the_same_size_average_to_the_score(rng):
    P = rng.dirichlet(np.ones(3), size=5 * peers.GROUPS)
    y = rng.integers(0, 3, len(P))
    parts = peers.grouped_scores(P, y)
    assert len(parts) == peers.GROUPS
    assert np.mean(parts) == pytest.approx(brier_score(P, y), abs=1e-5)


def without_end():
    with peers.stopped_after(1):
        while True:
            pass


def test_a_training_that_does_not_end_is_stopped():
    with pytest.raises(TimeoutError):
        without_end()


def test_a_training_that_ends_is_not_stopped_later():
    with peers.stopped_after(1):
        pass
    assert peers.signal.getitimer(peers.signal.ITIMER_PROF)[0] == 0


def test_a_stopped_training_has_no_score_and_is_named():
    stopped = {"rows": 100, "stopped": True, "seconds": 120.0}
    records = [record(peers.OURS, OURS), record("EBM", stopped)]
    assert peers.shared_cases(records) == {}
    assert "EBM on wine" in peers.stopped(records)


def test_the_cases_that_a_peer_wins_are_listed():
    records = [
        record(peers.OURS, OURS),
        record("EBM", result(0.18, 0.28, 0.23, 0.23)),
        record("xRFM", result(0.22, 0.32, 0.27, 0.27)),
    ]
    ((table, _, peer, *_),) = peers.lower(records)
    assert (table, peer) == ("wine", "EBM")


def test_a_large_set_does_not_count_among_the_tables():
    large = next(iter(peers.LARGE))
    records = [
        record(peers.OURS, OURS, large),
        record("EBM", result(0.1, 0.1, 0.1, 0.1), large),
    ]
    assert peers.places(records) == {}
    assert f"| {large} |" in peers.large_table(records)


def test_a_large_set_has_a_row_for_every_peer_that_is_run_there():
    large = next(iter(peers.LARGE))
    shown = peers.large_table([record(peers.OURS, OURS, large)])
    assert f"| {peers.OURS} | 0.2500" in shown
    assert "| TabM | not run |" in shown
    assert "AutoGluon" not in shown


def test_what_the_clock_left_a_peer_is_said():
    assert peers.given([record(peers.OURS, OURS)]) == ""
    said = peers.given([record(peers.BEST, OURS | {"seconds": 24.0})])
    assert "24 to 24 processor seconds" in said


def test_tabpfn_refuses_more_rows_than_it_was_made_for(monkeypatch):
    X = np.zeros((2_000, 2))
    y = np.arange(2_000) % 2
    monkeypatch.setattr(peers, "load", lambda name: (X, y))
    found = peers.run({"table": "planted", "peer": peers.TABPFN, "split": 0})
    assert found["refused"]
    assert found["rows"] > peers.TABPFN_SIZES[0]
