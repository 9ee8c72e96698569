"""Results with what one needs to judge them (versions, hardware, date), and runs that go on where they stopped."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from collidescope._environment import environment
from collidescope._store import write_bytes
from studies.markdown import POOL, pool_of

RESULTS = Path(__file__).parents[1] / "results"
#: Seconds between two writings of results that are being gathered.
PAUSE = 10.0

Cell = dict[str, Any]


def save(
    name: str,
    config: dict[str, Any],
    results: Any,
    *,
    earlier: Sequence[dict[str, Any]] = (),
    quiet: bool = False,
) -> Path:
    """Write ``results/NAME.json`` and say so; ``earlier`` are the environments of results that were there before."""
    RESULTS.mkdir(exist_ok=True)
    path, here = RESULTS / f"{name}.json", environment() | {"pool": POOL}
    others = [other for other in earlier if other | {"date": ""} != here | {"date": ""}]
    made = (
        {"config": config, "environment": here}
        | ({"earlier": others} if others else {})
        | {"results": results}
    )
    write_bytes(path, f"{json.dumps(made, indent=1)}\n".encode())
    if not quiet:
        print(f"→ {path.relative_to(RESULTS.parents[1])}")
    return path


def load(name: str) -> dict[str, Any] | None:
    """What ``save`` wrote, or None where it never did."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def resume(
    name: str,
    config: dict[str, Any],
    cells: Sequence[Cell],
    measure: Callable[..., dict[str, Any]],
    jobs: int = 1,
    *,
    again: bool = False,
) -> list[dict[str, Any]]:
    """Run ``measure(**cell)`` for the cells that ``results/NAME.json`` lacks, one thread each; returns all results.

    A result is the cell's settings with what was measured, its ``seconds`` among them. With ``again``, what is run are
    the cells that were measured with another pool, and what is found replaces what was found then.
    """
    stored = load(name)
    runs: list[dict[str, Any]] = stored["results"] if stored else []
    earlier = [stored["environment"], *stored.get("earlier", ())] if stored else []
    kept = [[run for run in runs if cell.items() <= run.items()] for cell in cells]
    wanted = [any(pool_of(run) != POOL for run in own) if again else not own for own in kept]
    missing = [cell for cell, want in zip(cells, wanted, strict=True) if want]
    print(f"{name}: {len(missing)} of {len(cells)} runs to do", flush=True)
    calls = (delayed(_measured)(measure, cell) for cell in missing)
    saved = start = time.monotonic()
    for number, (cell, run) in enumerate(
        Parallel(n_jobs=jobs, return_as="generator_unordered")(calls), start=1
    ):
        if (old := next((old for old in runs if cell.items() <= old.items()), None)) is not None:
            old.update(run)
        else:
            runs.append(run)
        print(f"{number}/{len(missing)}, {time.monotonic() - start:.0f} s: {run}"[:200], flush=True)
        if number == len(missing) or time.monotonic() - saved > PAUSE:
            save(name, config, runs, earlier=earlier, quiet=number < len(missing))
            saved = time.monotonic()
    return runs


def _measured(measure: Callable[..., dict[str, Any]], cell: Cell) -> tuple[Cell, dict[str, Any]]:
    warnings.simplefilter("ignore")
    with threadpool_limits(limits=1):
        start = time.perf_counter()
        found = measure(**cell)
    return cell, {"seconds": time.perf_counter() - start, "pool": POOL} | cell | found


def best_of(call: Any, repeats: int) -> float:
    """Shortest wall time of ``repeats`` calls: the one least disturbed."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
