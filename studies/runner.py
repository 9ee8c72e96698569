"""Runs the cells that are not done yet, with progress, one file of results."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

from joblib import Parallel, delayed

from collidescope._environment import environment
from collidescope._progress import Progress
from studies.markdown import POOL
from studies.store import Cell, Experiment, append, key_of, load, path_of, tidy


def run(
    experiment: Experiment,
    *,
    quick: bool = False,
    jobs: int = 1,
    only: dict[str, str] | None = None,
    verbose: int = 1,
) -> None:
    """Run what is missing of an experiment; killed at any time, the next call goes on.

    Parameters
    ----------
    experiment : Experiment
    quick : bool
        The small size, whose results are kept apart.
    jobs : int
        Cells side by side.
    only : dict, optional
        Run just the cells with these settings (compared as text).
    """
    cells = experiment.cells(quick)
    path = path_of(experiment.name, quick)
    done = load(path)
    wanted = [
        cell
        for cell in cells
        if all(str(cell.get(name)) == value for name, value in (only or {}).items())
    ]
    if not wanted:
        raise SystemExit(f"no cell of {experiment.name} has {only}: its cells are like {cells[0]}")
    missing = [cell for cell in wanted if key_of(cell) not in done]
    if verbose:
        print(f"{experiment.title}: {len(missing)} of {len(wanted)} cells to run → {path.name}")
    with Progress(experiment.name, len(missing), verbose) as progress:
        calls = (delayed(_record)(experiment.run, cell) for cell in missing)
        n_jobs = 1 if experiment.alone else jobs
        for record in Parallel(n_jobs=n_jobs, return_as="generator_unordered")(calls):
            append(path, record)
            progress.step()
    tidy(path, cells, complete=only is None)


def _record(call: Callable[[Cell], dict[str, Any]], cell: Cell) -> dict[str, Any]:
    warnings.simplefilter("ignore")  # what a rival says about its convergence is told by its result
    start = time.perf_counter()
    result = call(cell)
    seconds = time.perf_counter() - start
    return {
        "key": key_of(cell),
        "cell": cell,
        "result": result,
        "seconds": seconds,
        "environment": environment() | {"pool": POOL},
    }
