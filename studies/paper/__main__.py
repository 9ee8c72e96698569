"""``python -m studies.paper [--quick] [--only NAME …]`` runs what the record lacks, then writes the pages."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import NamedTuple

from studies.paper import applications, errata, page, real, recovery, scenarios
from studies.paper.record import Cell, Result, run_all, store


class Study(NamedTuple):
    """What to run: the settings of every run, and a run."""

    cells: Callable[[bool], list[Cell]]
    run: Callable[[Cell], Result]


STUDIES = {
    "ablation": Study(scenarios.ablation_cells, scenarios.run),
    "printed": Study(scenarios.printed_cells, scenarios.printed_run),
    "overlap": Study(scenarios.overlap_cells, scenarios.run),
    "cost": Study(scenarios.cost_cells, scenarios.run),
    "posteriors": Study(scenarios.posterior_cells, scenarios.run),
    "sensitivity": Study(recovery.sensitivity_cells, recovery.sensitivity),
    "pairs": Study(recovery.pairs_cells, recovery.pairs),
    "heuristic": Study(recovery.heuristic_cells, recovery.heuristic),
    "errata": Study(errata.cells, errata.run),
    "divergences": Study(applications.divergence_cells, applications.divergences),
    "smoothing": Study(applications.smoothing_cells, applications.smoothing),
    "sampling": Study(applications.sampling_cells, applications.sampling),
    "images": Study(real.image_cells, real.images),
    "tables": Study(real.table_cells, real.tables),
}


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(prog="python -m studies.paper", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small networks, few rows")
    parser.add_argument("--only", nargs="*", choices=sorted(STUDIES), help="these studies alone")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--pages", action="store_true", help="write the pages and run nothing")
    given = parser.parse_args()
    started = time.perf_counter()
    if not given.pages:
        for name in given.only or STUDIES:
            study = STUDIES[name]
            run_all(name, study.cells(given.quick), study.run, store(given.quick), given.jobs)
    page.write()
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
