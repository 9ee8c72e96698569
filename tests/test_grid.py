"""A small version of ``studies/grid.py``: the rows in which printed confidences used to be
false."""

import importlib
import inspect
import pkgutil
import warnings

import numpy as np
import pytest

from collidescope import applications
from studies.application_statements import (
    audit_statements,
    column_statements,
    metric_statements,
)
from studies.fit_statements import fit_statements
from studies.grid import (
    options,
    short,
    simulate,
    summary,
    table,
    votings,
)
from studies.statements import (
    compared_statements,
    consolidation_path,
    now_statements,
)
from studies.trial import Trial

#: Functions that print something at a level, and a statement of the grid about each.
STATED = {
    "CollisionMatrix.bayes_error_bounds": "voted Bayes error bounds",
    "CollisionMatrix.bayes_error_limit": "Bayes error limit",
    "CollisionMatrix.interval": "S",
    "CollisionMatrix.pber_interval": "PBER",
    "CollisionMatrix.top_collisions": "top collision",
    "Limit.bayes_error_interval": "range of Bayes error",
    "Limit.continuation": "continuation",
    "Limit.pber_interval": "range of PBER",
    "Limit.rows_needed": "rows needed",
    "agreement": "kappa",
    "audit": "audit: fixable",
    "ceilings": "ceiling: accuracy",
    "collision_change": "change, same rows",
    "collisions_by": "collisions by subgroup",
    "column_value": "columns: needed",
    "compare": "compare S",
    "compare_annotators": "annotator: difference",
    "compare_judges": "judge: difference",
    "expected_distance": "expected distance",
    "plan": "gain of rows",
    "votes_needed": "votes needed",
}
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
        found = simulate(GRID[name], n_samples=45)
    assert short({name: found}) == []
    assert len(found) > 6


def with_level(module):
    """Public functions and methods of a module that take a level."""
    for name, thing in vars(module).items():
        if name.startswith("_"):
            continue
        if getattr(thing, "__module__", None) != module.__name__:
            continue
        parts = {name: thing}
        if inspect.isclass(thing) and not getattr(thing, "_is_protocol", False):
            parts = {f"{name}.{part}": found for part, found in vars(thing).items()}
        for part, found in parts.items():
            private = part.split(".")[-1].startswith("_")
            if private or not inspect.isfunction(found):
                continue
            if "level" in inspect.signature(found).parameters:
                yield part


def test_every_function_that_takes_a_level_is_in_the_grid():
    names = ["collidescope.matrix", "collidescope.limit", "collidescope.counting"]
    for found in pkgutil.iter_modules(applications.__path__):
        if not found.name.startswith("_"):
            names.append(f"collidescope.applications.{found.name}")
    found = set()
    for name in names:
        found |= set(with_level(importlib.import_module(name)))
    helpers = {"paired_interval", "level_of_choice"}
    assert found - helpers == set(STATED)


def test_every_function_that_takes_a_level_is_simulated():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = set(simulate(GRID["equal weights, n=200"], n_samples=1))
        votes = next(iter(votings()))
        made |= set(simulate(votes, n_samples=1))
    assert set(STATED.values()) <= made


def covered_by(make, name, n_samples):
    """The share of samples in which each statement of one kind holds under an option."""
    rng = np.random.default_rng(0)
    found = {}
    for _ in range(n_samples):
        trial = Trial(GRID[name], GRID[name].draw(rng), rng)
        for statement, held in make(trial):
            found.setdefault(statement, []).append(held)
    return {statement: summary(helds)["covered"] for statement, helds in found.items()}


def test_comparing_with_people_holds_where_ten_rows_are_half_of_the_population():
    found = covered_by(compared_statements, "10 | 1000, uniform", 150)
    assert min(found.values()) >= 0.93  # symmetric intervals: 85%


def test_pairs_of_an_audit_hold_where_rows_come_in_groups():
    found = covered_by(audit_statements, "15 groups × 50", 100)
    assert found["audit: pairs"] >= 0.93  # taking rows for independent: 84%


def path_statements(trial):
    yield "path", consolidation_path(trial.matrix, trial.target)


def test_the_pber_of_the_best_grouping_holds_though_it_was_chosen():
    found = covered_by(path_statements, "K=10, n=2000", 60)
    assert found["path"] >= 0.93  # without the allowance for choosing: 86%


def test_the_pber_of_the_best_of_many_groupings_holds_where_all_classes_are_alike():
    found = covered_by(path_statements, "K=20, all alike, n=400", 40)
    assert found["path"] >= 0.97  # allowing for the choice of one pair alone: 72%


def test_what_a_fit_was_told_reaches_the_ceilings_of_its_rows():
    found = covered_by(fit_statements, "10 | 1000, given priors", 60)
    assert found["fit: accuracy"] >= 0.93  # with posteriors at the given priors: 0%
    grouped = covered_by(fit_statements, "15 groups × 50", 60)
    assert min(grouped.values()) >= 0.93  # counting rows: 63%


def test_the_pber_of_inputs_that_say_nothing_holds_though_class_shares_fit_their_rows():
    found = covered_by(now_statements, "inputs say nothing, n=200", 150)
    assert found["PBER"] >= 0.95  # without the allowance for it: 81%
    assert found["Bayes error limit"] >= 0.95  # 78%


def test_another_model_is_compared_by_balanced_accuracy():
    found = covered_by(metric_statements, "under-confident, n=2000", 60)
    # with fixed class shares: 81%
    assert found["difference: balanced accuracy"] >= 0.9


def test_a_column_is_valued_where_few_errors_were_seen():
    found = covered_by(column_statements, "0 to 3 errors, n=1000", 60)
    assert min(found.values()) >= 0.93  # with a normal interval of the PBER: 59%


def test_no_statement_about_few_skewed_votes_falls_short():
    few = next(
        voting for voting in votings() if voting.name == "30 items × 3 votes, skewed"
    )
    found = simulate(few, n_samples=150)
    assert {"kappa", "alpha", "voted PBER"} <= set(found)
    assert short({few.name: found}) == []


def test_a_cell_that_falls_short_is_named():
    bad = {"covered": 0.8, "error": 0.02, "over_oracle": 1.0}
    fine = {"covered": 0.92, "error": 0.02, "over_oracle": 1.0}
    cells = {"some option": {"PBER": bad, "S": fine}}
    assert short(cells) == ["PBER | some option: 0.800 ± 0.020"]
    assert "| some option | 80.0 (1.00) | 92.0 (1.00) |" in table(cells)


def test_every_statement_dropped_has_a_reason():
    assert all(why for option in GRID.values() for why in option.dropped.values())
    assert any(option.dropped for option in GRID.values())
