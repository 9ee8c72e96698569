"""The study of which member of the pool is needed where."""

import pytest

from studies.speed import members


def test_a_data_set_on_which_a_member_takes_no_part_loses_nothing_without_it():
    runs = [
        {"table": "words", "pool": 0.2, "without": {"counts": 0.22}},
        {"table": "lines", "pool": 0.3, "without": {"linear": 0.33}},
    ]
    lost = members.losses(runs, "without", "counts")
    assert lost == {"words": pytest.approx(0.1)}
    assert members.mean_loss(lost, len(runs)) == "+4.88%"  # √1.1


def test_scores_near_zero_say_nothing_of_a_member():
    runs = [{"table": "mushroom", "pool": 1e-6, "without": {"forest": 2e-6}}]
    assert members.losses(runs, "without", "forest") == {}


def test_a_kind_of_data_without_records_has_no_mean():
    assert members.mean_loss({}, 0) == "–"
