"""How much faster more processes fit, and whether S stays the same to the last bit.

Seconds of a fit with its range on 100,000 rows of 30 columns and five classes, each number of
``n_jobs`` in a process of its own: the first fit, which starts the worker processes, and the
second, which finds them running. Beside them one core: one process whose libraries take one thread.
``python -m studies.speed.cores`` prints it without a record.

The chain of a number of processes needs no more than one core: every batch of units that such a fit
would send is trained in turn, and so are the weights of the pool, which threads fit; processor
seconds are counted. The chain is what remains if each process or thread always takes the next piece
of the batch, if starting processes and sending rows take no time, and if threads do not wait for
each other: the serial part, and of every batch the time until its last piece is done.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, Self
from unittest.mock import patch

import numpy as np

from collidescope import CollisionClassifier, crossfit, datasets
from studies.markdown import again, table
from studies.speed.sizes import teacher
from studies.store import Cell, Record, Study, by_part

ONE_CORE = "one core"
JOBS = ("1", "4", "8", "-1")
CHAINS = (1, 2, 4, 16)  #: processes
CHAIN = "chain of"


def cells(quick: bool) -> list[Cell]:
    rows = 10_000 if quick else 100_000
    chains = [f"{CHAIN} {workers}" for workers in CHAINS]
    return [{"part": part, "rows": rows} for part in (ONE_CORE, *JOBS, *chains)]


def run(cell: Cell) -> dict[str, Any]:
    """In a process of its own, whose threads and workers nothing else has started."""
    part = cell["part"]
    jobs = part
    settings = dict(os.environ)
    if part == ONE_CORE or part.startswith(CHAIN):
        jobs = "1"
        settings |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if part.startswith(CHAIN):
        jobs = part
    command = [sys.executable, "-m", __name__, jobs, str(cell["rows"])]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, env=settings
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measured(jobs: int, rows: int) -> dict[str, Any]:
    """Seconds of two fits by the clock, and the fingerprint of S."""
    import_all()
    problem = teacher(rows)
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        clf = CollisionClassifier(random_state=0, device="cpu", n_jobs=jobs)
        clf.fit(problem.X, problem.y)
        seconds.append(time.perf_counter() - start)
    return {
        "first": seconds[0],
        "second": seconds[1],
        "fingerprint": fingerprint_of(clf),
        "cores": len(os.sched_getaffinity(0)),
    }


def import_all() -> None:
    """The first fit of a process imports what the others need."""
    small = datasets.scenario_a(3).sample(60, 0)
    CollisionClassifier(random_state=0, limit=False, cv=2).fit(*small)


def fingerprint_of(clf: CollisionClassifier) -> str:
    """Of the bits of S."""
    matrix = np.ascontiguousarray(clf.collision_matrix_.matrix)
    return hashlib.sha256(matrix.tobytes()).hexdigest()[:16]


def chain(workers: int, rows: int) -> dict[str, Any]:
    """Processor seconds of a fit's units, of its serial part and of its longest chain."""
    import_all()
    problem = teacher(rows)
    batches: list[list[float]] = []
    threaded: list[list[float]] = []

    def in_turn(calls: Any, n_jobs: Any, *_: Any) -> tuple[list[Any], bool]:
        """The units of a batch; one that is sent to one process is work of that alone."""
        taken = []
        done = []
        for call in calls:
            start = time.process_time()
            done.append(call(None))
            taken.append(time.process_time() - start)
        if n_jobs == 1:
            taken = [sum(taken)]
        batches.append(taken)
        return done, False

    class Threads:
        """What takes the place of threads."""

        def __init__(self, _: int) -> None:
            self.taken = list[float]()

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            threaded.append(self.taken)

        def map(self, call: Any, inputs: Any) -> Iterator[Any]:
            for each in inputs:
                start = time.process_time()
                yield call(each)
                self.taken.append(time.process_time() - start)

    with (
        patch.object(crossfit, "run_units", in_turn),
        patch.object(crossfit, "ThreadPoolExecutor", Threads),
    ):
        clf = CollisionClassifier(random_state=0, device="cpu", n_jobs=workers)
        start = time.process_time()
        clf.fit(problem.X, problem.y)
        total = time.process_time() - start
    divided = [*batches, *threaded]
    units = sum(map(sum, divided))
    last = [time_to_last(batch, workers) for batch in divided]
    serial = total - units
    return {
        "units": units,
        "serial": serial,
        "chain": serial + sum(last),
        "batches": len(batches),
        "fingerprint": fingerprint_of(clf),
    }


def time_to_last(seconds: list[float], workers: int) -> float:
    """Until all units are done, where a process that is free takes the next one.

    >>> time_to_last([3.0, 2.0, 2.0], workers=2)
    4.0
    """
    free = [0.0] * workers
    for taken in seconds:
        first = free.index(min(free))
        free[first] += taken
    return max(free)


def text(records: list[Record]) -> str:
    found = by_part(records)
    alone = found[ONE_CORE]
    rows = []
    for name in (ONE_CORE, *JOBS):
        r = found[name]
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

{chains(found)}

{again("cores")}"""


def chains(found: dict[str, Any]) -> str:
    """What the order of the work allows."""
    known = [workers for workers in CHAINS if f"{CHAIN} {workers}" in found]
    if 1 not in known:
        return ""
    one = found[f"{CHAIN} 1"]
    rows = []
    for workers in known:
        r = found[f"{CHAIN} {workers}"]
        same = "yes"
        if r["fingerprint"] != one["fingerprint"]:
            same = "no"
        seconds = [f"{r[key]:.1f} s" for key in ("units", "serial", "chain")]
        faster = f"{one['chain'] / r['chain']:.1f}"
        batches = str(r["batches"])
        rows.append([str(workers), batches, *seconds, faster, same])
    head = ["processes", "batches", "divided", "not divided", "longest chain"]
    head += ["at most so many times as fast", "the same S"]
    return f"""The clock was read before heats, folds and sizes were joined in batches, and before processes that
had grown by the 300 MB of torch and a few arrays were kept.

What limits this is the order of the work: which models are trained on more rows is known only when
the longest unit of the rows before is done. In processor seconds, counted on one core of another
machine: the units of the same fit and the weights of its pool, what is not divided, and the longest
chain of what has to wait, if starting processes and sending rows took no time and threads never
waited for each other. With more processes more is trained before it is known to be needed, so that
the units take longer.

{table(head, rows)}"""


STUDY = Study("cores", "What more cores save", cells, run, text, True)


def main() -> None:
    """A child that measures; without arguments every cell in turn, printed."""
    if len(sys.argv) == 3:
        part = sys.argv[1]
        rows = int(sys.argv[2])
        if part.startswith(CHAIN):
            workers = int(part.removeprefix(CHAIN))
            result = chain(workers, rows)
        else:
            result = measured(int(part), rows)
        print(json.dumps(result))
        return
    for cell in cells(False):
        print(json.dumps(cell | run(cell)), flush=True)


if __name__ == "__main__":
    main()
