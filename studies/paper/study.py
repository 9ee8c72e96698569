"""Every experiment of the paper: the studies behind docs/paper.md and docs/errata.md.

``paper`` has small networks (two hidden layers of 64, 60 epochs) and ten samples; its quick size
has one sample of everything. ``paper-size`` has Scenarios B and C and MNIST at the paper's own
size, ``paper-time`` measures the quick size of ``paper``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from studies.paper import (
    applications,
    at_size,
    digits,
    errata,
    figure_1,
    real,
    recovery,
    scenarios,
)
from studies.reproduction import tabular
from studies.store import Cell, Result, Study


class Part(NamedTuple):
    """An experiment: the settings of every run, and a run."""

    cells: Callable[[], list[Cell]]
    run: Callable[[Cell], Result]


PARTS = {
    "figure-1": Part(figure_1.cells, figure_1.run),
    "ablation": Part(scenarios.ablation_cells, scenarios.run),
    "overlap": Part(scenarios.overlap_cells, scenarios.run),
    "cost": Part(scenarios.cost_cells, scenarios.run),
    "posteriors": Part(scenarios.posterior_cells, scenarios.run),
    "validation": Part(scenarios.posterior_cells, scenarios.validation_run),
    "grid": Part(scenarios.grid_cells, scenarios.run),
    "architecture": Part(scenarios.architecture_cells, scenarios.held_out_run),
    "printed": Part(scenarios.printed_cells, scenarios.printed_run),
    "pool": Part(scenarios.pool_cells, scenarios.pool_run),
    "sensitivity": Part(recovery.sensitivity_cells, recovery.sensitivity),
    "pairs": Part(recovery.pairs_cells, recovery.pairs),
    "heuristic": Part(recovery.heuristic_cells, recovery.heuristic),
    "errata": Part(errata.cells, errata.run),
    "smoothing": Part(applications.smoothing_cells, applications.smoothing),
    "sampling": Part(applications.sampling_cells, applications.sampling),
    "images": Part(real.image_cells, real.images),
    "tables": Part(real.table_cells, real.tables),
    "table-pool": Part(real.table_pool_cells, real.table_pool),
}


def first_sample(found: list[Cell]) -> list[Cell]:
    """One sample of every setting; of experiments whose runs take longer, of one or two."""
    left = {"printed": 1, "grid": 2, "table-pool": 1}
    kept = []
    for cell in found:
        if cell.get("seed", 0) > 0 or left.get(cell["study"], 1) == 0:
            continue
        if cell["study"] in left:
            left[cell["study"]] -= 1
        kept.append(cell)
    return kept


def cells(quick: bool) -> list[Cell]:
    """The settings of every run, with the name of its experiment; when quick, one sample."""
    found = []
    for name, part in PARTS.items():
        found += [{"study": name, **cell} for cell in part.cells()]
    if quick:
        found = first_sample(found)
    return found


def run(cell: Cell) -> Result:
    """One run of the experiment that the cell names."""
    own = {name: value for name, value in cell.items() if name != "study"}
    return PARTS[cell["study"]].run(own)


def size_cells(quick: bool) -> list[Cell]:
    """Gaussians, then MNIST and tables."""
    found = at_size.cells(quick)
    if tabular.has_data():
        found += digits.cells(quick)
        found += real.split_cells(quick)
    return found


def size_run(cell: Cell) -> Result:
    """One training."""
    if cell["part"] == "digits":
        return digits.run(cell)
    if cell["part"] == "tables":
        return real.split_tables(cell, at_size.DEVICE)
    return at_size.run(cell)


def time_cells(quick: bool) -> list[Cell]:
    """All experiments; when quick, those that train nothing."""
    names = list(PARTS)
    if quick:
        names = ["heuristic"]
    return [{"parts": names}]


def timed(cell: Cell) -> Result:
    """Processor time of the quick size, by experiment."""
    by_part = dict.fromkeys(cell["parts"], 0.0)
    longest = 0.0
    chosen = [each for each in cells(quick=True) if each["study"] in by_part]
    for each in chosen:
        started = time.process_time()
        run(each)
        seconds = time.process_time() - started
        by_part[each["study"]] += seconds
        longest = max(longest, seconds)
    return {
        "cells": len(chosen),
        "processor_seconds": sum(by_part.values()),
        "longest_seconds": longest,
        "by_part": {name: round(seconds, 1) for name, seconds in by_part.items()},
    }


STUDIES = (
    Study("paper", "The paper in one table, small networks", cells, run),
    Study(
        "paper-size",
        "Scenarios B and C and MNIST at the paper's size",
        size_cells,
        size_run,
        alone=True,
    ),
    Study("paper-time", "How long the quick size of paper takes", time_cells, timed),
)
