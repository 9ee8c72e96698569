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
    return {
        "cell": {"table": table, "peer": peer, "split": 0},
        "result": found,
        "seconds": 9.0,
    }


OURS = result(0.20, 0.30, 0.25, 0.25)
LOWER = result(0.18, 0.28, 0.23, 0.23)
HIGHER = result(0.22, 0.32, 0.27, 0.27)


def verdict(theirs):
    return peers.Case(theirs, OURS).verdict


def test_a_peer_that_is_lower_in_every_part_is_clearly_lower():
    assert verdict(LOWER) == -1


def test_a_mean_that_is_lower_by_one_part_alone_decides_nothing():
    assert verdict(result(0.20, 0.30, 0.25, 0.05)) == 0


def test_less_than_one_percent_is_no_difference():
    assert verdict(result(0.199, 0.299, 0.249, 0.249)) == 0


def test_a_peer_that_is_higher_in_every_part_is_clearly_higher():
    assert verdict(HIGHER) == 1


def test_a_run_without_parts_is_not_judged():
    whole = {name: value for name, value in LOWER.items() if name != "groups"}
    assert verdict(whole) is None
    assert peers.compared("EBM", [peers.Case(whole, OURS)])[5:7] == [
        "0 of 0",
        "0 of 0",
    ]


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
    assert peers.by_peer(records) == {}
    assert "EBM on wine" in peers.stopped(records)


def test_the_cases_that_a_peer_wins_are_listed():
    records = [
        record(peers.OURS, OURS),
        record("EBM", LOWER),
        record("xRFM", HIGHER),
    ]
    (case,) = peers.lower(records)
    assert (case.theirs["table"], case.theirs["peer"]) == ("wine", "EBM")


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


def test_a_peer_is_placed_by_what_it_costs_and_scores_over_ours():
    found = peers.places(
        [
            record(peers.OURS, OURS),
            record("EBM", result(0.5, 0.5, 0.5, 0.5) | {"seconds": 6.0}),
        ]
    )
    assert found["EBM"] == pytest.approx((3.0, 2.0))


def test_every_split_that_ours_was_run_on_is_counted():
    second = record(peers.OURS, OURS)
    second["cell"] = second["cell"] | {"split": 1}
    large = record(peers.OURS, OURS, next(iter(peers.LARGE)))
    said = peers.coverage([record(peers.OURS, OURS), second, large])
    assert "1 (split 0) and 1 (split 1)" in said


def test_tabpfn_refuses_more_rows_than_it_was_made_for(monkeypatch):
    X = np.zeros((2_000, 2))
    y = np.arange(2_000) % 2
    monkeypatch.setattr(peers, "load", lambda name: (X, y))
    found = peers.run({"table": "planted", "peer": peers.TABPFN, "split": 0})
    assert found["refused"]
    assert found["rows"] > peers.TABPFN_SIZES[0]
