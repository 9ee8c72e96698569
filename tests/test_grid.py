"""A small version of ``studies/grid.py``: the rows in which printed confidences used to be
false."""

import warnings

import pytest

from studies.grid import (
    PAGE,
    cell,
    last_record,
    options,
    page_text,
    short,
    table,
    vote_cell,
    votings,
)

GRID = {option.name: option for option in options()}
SMALL = [
    "equal weights, n=200",
    "10 heavy | 1000 light, weights",
    "10 | 1000, given priors",
    "10 | 1000, uniform",
    "15 groups × 50",
    "0 to 3 errors, n=1000",
]


@pytest.mark.parametrize("name", SMALL)
def test_no_statement_falls_short(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = cell(GRID[name], n_samples=45)
    assert short({name: found}) == []
    assert len(found) > 6


def test_no_statement_about_few_skewed_votes_falls_short():
    few = next(
        voting for voting in votings() if voting.name == "30 items × 3 votes, skewed"
    )
    found = vote_cell(few, n_samples=150)
    assert {"kappa", "alpha", "voted PBER"} <= set(found)
    assert short({few.name: found}) == []


def test_the_page_shows_the_last_record():
    assert page_text(last_record()) in PAGE.read_text()


def test_the_record_has_25_statements_under_12_options():
    cells = last_record()["cells"]
    assert len({name for found in cells.values() for name in found}) >= 25
    assert len(cells) >= 12
    assert short(cells) == []


def test_a_cell_that_falls_short_is_named():
    bad = {"covered": 0.8, "error": 0.02, "over_oracle": 1.0}
    fine = {"covered": 0.92, "error": 0.02, "over_oracle": 1.0}
    cells = {"some option": {"PBER": bad, "S": fine}}
    assert short(cells) == ["PBER | some option: 0.800 ± 0.020"]
    assert "| some option | 80.0 (1.00) | 92.0 (1.00) |" in table(cells)


def test_every_statement_dropped_has_a_reason():
    assert all(why for option in GRID.values() for why in option.dropped.values())
    assert any(option.dropped for option in GRID.values())
