"""Runs the cells of a study that are not done yet, with progress, into one file of records."""

from __future__ import annotations

import time
import warnings

from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from collidescope._progress import Progress
from studies.store import (
    POOL,
    Cell,
    Record,
    Study,
    append,
    key_of,
    load,
    new_record,
    path_of,
    pool_of,
    tidy,
)


def run(
    study: Study,
    *,
    quick: bool = False,
    jobs: int = 1,
    only: dict[str, str] | None = None,
    again: bool = False,
    force: bool = False,
    verbose: int = 1,
) -> None:
    """Run what is missing of a study; killed at any time, the next call goes on.

    Parameters
    ----------
    study : Study
    quick : bool
        The small size, whose records are kept apart.
    jobs : int
        Cells side by side.
    only : dict, optional
        Run just the cells with these settings (compared as text).
    again : bool
        Also run the cells that were measured with another pool than today's; the new records
        replace the old ones.
    force : bool
        Run all of these cells, recorded or not.
    """
    if study.alone:
        jobs = 1
    cells = study.cells(quick)
    path = path_of(study.name, quick)
    done = load(path)
    wanted = [cell for cell in cells if _has(cell, only or {})]
    if not wanted:
        raise SystemExit(
            f"no cell of {study.name} has {only}: its cells are like {cells[0]}"
        )
    missing = wanted
    if not force:
        missing = [
            cell for cell in wanted if _is_missing(done.get(key_of(cell)), again)
        ]
    if verbose:
        print(
            f"{study.title}: {len(missing)} of {len(wanted)} cells to run → {path.name}"
        )
    with Progress(study.name, len(missing), verbose) as progress:
        calls = (delayed(_measure)(study, cell) for cell in missing)
        for record in Parallel(n_jobs=jobs, return_as="generator_unordered")(calls):
            append(path, record)
            progress.step()
    tidy(path, cells, complete=only is None)


def _has(cell: Cell, settings: dict[str, str]) -> bool:
    return all(str(cell.get(name)) == value for name, value in settings.items())


def _is_missing(record: Record | None, again: bool) -> bool:
    if record is None:
        return True
    return again and pool_of(record) != POOL


def _measure(study: Study, cell: Cell) -> Record:
    # what a rival says about its convergence is told by its result
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    threads = 1
    if study.alone:
        threads = None
    with threadpool_limits(threads):
        result = study.run(cell)
    return new_record(study.name, cell, result, time.perf_counter() - start)
