"""How much faster more processes fit, and whether S stays the same to the last bit.

Seconds of a fit with its range on 100,000 rows of 30 columns and five classes, each number of
``n_jobs`` in a process of its own: the first fit, which starts the worker processes, and the
second, which finds them running. Beside them one core: one process whose libraries take one thread.
``python -m studies.speed.cores`` prints it without a record.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np

from collidescope import CollisionClassifier, datasets
from studies.markdown import again, table
from studies.speed.sizes import teacher
from studies.store import Cell, Record, Study, by_part

ONE_CORE = "one core"
JOBS = ("1", "4", "8", "-1")


def cells(quick: bool) -> list[Cell]:
    rows = 10_000 if quick else 100_000
    return [{"part": part, "rows": rows} for part in (ONE_CORE, *JOBS)]


def run(cell: Cell) -> dict[str, Any]:
    """In a process of its own, whose threads and workers nothing else has started."""
    part = cell["part"]
    jobs = part
    settings = dict(os.environ)
    if part == ONE_CORE:
        jobs = "1"
        settings |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", __name__, jobs, str(cell["rows"])]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, env=settings
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measured(jobs: int, rows: int) -> dict[str, Any]:
    """Seconds of two fits by the clock, and the fingerprint of S."""
    # The first fit of a process imports what the others need.
    small = datasets.scenario_a(3).sample(60, 0)
    CollisionClassifier(random_state=0, limit=False, cv=2).fit(*small)
    problem = teacher(rows)
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        clf = CollisionClassifier(random_state=0, device="cpu", n_jobs=jobs)
        clf.fit(problem.X, problem.y)
        seconds.append(time.perf_counter() - start)
    matrix = np.ascontiguousarray(clf.collision_matrix_.matrix)
    fingerprint = hashlib.sha256(matrix.tobytes()).hexdigest()
    return {
        "first": seconds[0],
        "second": seconds[1],
        "fingerprint": fingerprint[:16],
        "cores": len(os.sched_getaffinity(0)),
    }


def text(records: list[Record]) -> str:
    found = by_part(records)
    alone = found[ONE_CORE]
    rows = []
    for name, r in found.items():
        same = "yes"
        if r["fingerprint"] != alone["fingerprint"]:
            same = "no"
        first = f"{r['first']:.1f} s"
        second = f"{r['second']:.1f} s"
        faster = f"{alone['second'] / r['second']:.1f}"
        rows.append([name, first, second, faster, same])
    head = ["`n_jobs`", "first fit", "second fit", "times as fast", "the same S"]
    return f"""## More cores

Seconds of a fit with its range on 100,000 rows of 30 columns and five classes, by the clock, on
{alone["cores"]} cores. The first fit of a process starts its workers.

{table(head, rows)}

{again("cores")}"""


STUDY = Study("cores", "What more cores save", cells, run, text, True)


def main() -> None:
    """A child that measures; without arguments every cell in turn, printed."""
    if len(sys.argv) == 3:
        result = measured(int(sys.argv[1]), int(sys.argv[2]))
        print(json.dumps(result))
        return
    for cell in cells(False):
        print(json.dumps(cell | run(cell)), flush=True)


if __name__ == "__main__":
    main()
