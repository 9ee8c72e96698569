"""Every experiment of the paper: the studies behind docs/paper.md and docs/errata.md.

``paper`` has small networks (two hidden layers of 64, 60 epochs) and ten samples; its quick size
has the first two samples. ``paper-full`` has the paper's own settings, and takes days.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from studies.paper import applications, errata, real, recovery, scenarios
from studies.store import Cell, Study


class Part(NamedTuple):
    """An experiment: the settings of every run, small or not, and a run."""

    cells: Callable[[bool], list[Cell]]
    run: Callable[[Cell], Cell]


PARTS = {
    "ablation": Part(scenarios.ablation_cells, scenarios.run),
    "printed": Part(scenarios.printed_cells, scenarios.printed_run),
    "overlap": Part(scenarios.overlap_cells, scenarios.run),
    "cost": Part(scenarios.cost_cells, scenarios.run),
    "posteriors": Part(scenarios.posterior_cells, scenarios.run),
    "sensitivity": Part(recovery.sensitivity_cells, recovery.sensitivity),
    "pairs": Part(recovery.pairs_cells, recovery.pairs),
    "heuristic": Part(recovery.heuristic_cells, recovery.heuristic),
    "errata": Part(errata.cells, errata.run),
    "divergences": Part(applications.divergence_cells, applications.divergences),
    "smoothing": Part(applications.smoothing_cells, applications.smoothing),
    "sampling": Part(applications.sampling_cells, applications.sampling),
    "images": Part(real.image_cells, real.images),
    "tables": Part(real.table_cells, real.tables),
}


def cells(small: bool) -> list[Cell]:
    """The settings of every run, with the name of its experiment."""
    found = []
    for name, part in PARTS.items():
        found += [{"study": name, **cell} for cell in part.cells(small)]
    return found


def small_cells(quick: bool) -> list[Cell]:
    """Small networks; when quick, the first two samples alone."""
    found = cells(small=True)
    if quick:
        found = [cell for cell in found if cell.get("seed", 0) < 2]
    return found


def full_cells(quick: bool) -> list[Cell]:
    """The paper's own settings; when quick, one sample."""
    found = cells(small=False)
    if quick:
        found = [cell for cell in found if cell.get("seed", 0) == 0]
    return found


def run(cell: Cell) -> Cell:
    """One run of the experiment that the cell names."""
    own = {name: value for name, value in cell.items() if name != "study"}
    return PARTS[cell["study"]].run(own)


STUDIES = (
    Study("paper", "The paper in one table, small networks", small_cells, run),
    Study("paper-full", "The paper in one table, its own settings", full_cells, run),
)
