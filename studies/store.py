"""Studies, their cells and their records.

A *study* is a list of cells (plain settings: problem, method, seed) and a function that runs one.
Its records are kept in ``results/NAME.jsonl``, a line each::

    {"key": …, "command": …, "cell": {…}, "result": {…}, "seconds": …, "environment": {…}}

``environment`` has the date, the versions, the processor and the number of members of the pool.
Files whose first records were made before that start with a line ``{"header": {…}}``, which says
on which machines these were made.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collidescope._environment import environment
from collidescope._store import write_bytes
from collidescope.learners import MEMBERS, ONLY_IMAGES

#: Set STUDIES_RESULTS to keep the results of a run elsewhere.
RESULTS = Path(os.environ.get("STUDIES_RESULTS", Path(__file__).parent / "results"))
#: Pools are known by the number of their members: that of today, and that of unmarked records.
#: Members for images alone count as one: tables do not see them.
POOL = len(set(MEMBERS) - set(ONLY_IMAGES)) + 1
FIRST_POOL = 14

Cell = dict[str, Any]
Record = dict[str, Any]
Result = dict[str, Any]


@dataclass(frozen=True)
class Study:
    """What to measure.

    ``cells(quick)`` lists the settings, ``run(cell)`` gives a result that JSON can hold, and
    ``table(records)`` shows the records as Markdown.
    """

    name: str
    title: str
    cells: Callable[[bool], list[Cell]]
    run: Callable[[Cell], Result]
    table: Callable[[list[Record]], str] | None = None
    #: Does a cell use all processors (or the accelerator) itself? Then cells run one by one.
    alone: bool = False


def product(**settings: Iterable[Any]) -> list[Cell]:
    """Cells with every choice of the settings; those of the last one change first.

    >>> product(problem=["ring"], seed=range(2))
    [{'problem': 'ring', 'seed': 0}, {'problem': 'ring', 'seed': 1}]
    """
    choices = itertools.product(*settings.values())
    return [dict(zip(settings, chosen, strict=True)) for chosen in choices]


def key_of(cell: Cell) -> str:
    """A name for the settings that stays the same between runs and changes when any of them
    does."""
    return hashlib.sha256(json.dumps(cell, sort_keys=True).encode()).hexdigest()[:16]


def path_of(name: str, quick: bool = False) -> Path:
    """The file of a study; the records of the quick size are kept apart and never committed."""
    if quick:
        return RESULTS / "quick" / f"{name}.jsonl"
    return RESULTS / f"{name}.jsonl"


def here() -> Result:
    """The environment of a record that is made now."""
    return environment() | {"pool": POOL}


def new_record(name: str, cell: Cell, result: dict[str, Any], seconds: float) -> Record:
    """A record of a study made on this machine, now."""
    return {
        "key": key_of(cell),
        "command": f"python -m studies run {name}",
        "cell": cell,
        "result": result,
        "seconds": seconds,
        "environment": here(),
    }


def lines(path: Path) -> list[dict[str, Any]]:
    """All lines of a file. A last line that was cut by a kill is passed over."""
    if not path.exists():
        return []
    texts = path.read_text().splitlines()
    found = []
    for number, line in enumerate(texts, start=1):
        try:
            found.append(json.loads(line))
        except ValueError:
            if number < len(texts):
                raise ValueError(
                    f"{path} is damaged in line {number}: restore or delete it"
                ) from None
    return found


def load(path: Path) -> dict[str, Record]:
    """Records by key."""
    return {line["key"]: line for line in lines(path) if "header" not in line}


def header(name: str) -> Result:
    """What the first line of a file says of its oldest records; empty where there is none."""
    for line in lines(path_of(name)):
        return line.get("header", {})
    return {}


def append(path: Path, record: Record) -> None:
    """Add one record, in place of a last line that was cut by a kill."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        file.seek(0)
        whole = file.read().rfind(b"\n") + 1
        file.truncate(whole)
        file.write(json.dumps(record, allow_nan=False).encode() + b"\n")


def replace(path: Path, record: Record) -> None:
    """Put a record in the place of the one with the same settings, or behind all others."""
    append(path, record)
    tidy(path, [known["cell"] for known in load(path).values()])


def tidy(path: Path, cells: Iterable[Cell], complete: bool = True) -> None:
    """Keep the records of these cells, in their order, and drop those of settings that are no more.

    After a run of some cells only, old records are kept as well, but for those of a method on a
    problem that has a new one: a mean must not mix settings.
    """
    records = load(path)
    keys = [key for key in map(key_of, cells) if key in records]
    kept = [records.pop(key) for key in keys]
    if not complete:
        renewed = {_task(record["cell"]) for record in kept}
        old = records.values()
        kept += [record for record in old if _task(record["cell"]) not in renewed]
    headers = [line for line in lines(path) if "header" in line]
    texts = [json.dumps(line, allow_nan=False) + "\n" for line in [*headers, *kept]]
    write_bytes(path, "".join(texts).encode())


def _task(cell: Cell) -> tuple[str, ...]:
    names = "method problem arguments dataset train case data table part"
    return tuple(str(cell.get(name)) for name in names.split())


def stale(study: Study) -> list[Cell]:
    """Cells of records that were made with settings no longer in use."""
    wanted = {key_of(cell) for cell in study.cells(False)}
    records = load(path_of(study.name))
    return [record["cell"] for key, record in records.items() if key not in wanted]


def results(name: str, quick: bool = False) -> list[Record]:
    """Records of a study: ``cell``, ``result``, ``seconds``, ``environment``."""
    return list(load(path_of(name, quick)).values())


def flat(record: Record) -> Result:
    """Settings and what was measured in one mapping, with ``seconds`` and ``pool``."""
    about = {"seconds": record["seconds"], "pool": pool_of(record)}
    return about | record["cell"] | record["result"]


def grouped(runs: Iterable[Result], *names: str) -> list[list[Result]]:
    """Runs with the same settings together, in the order in which these first occur."""
    found = {}
    for run in runs:
        found.setdefault(tuple(run[name] for name in names), []).append(run)
    return list(found.values())


def runs(name: str) -> list[dict[str, Any]]:
    """All records of a study, flat."""
    return [flat(record) for record in results(name)]


def by_part(records: list[Record]) -> Result:
    """Results of a study whose cells are told apart by one setting alone, ``part``."""
    return {record["cell"]["part"]: record["result"] for record in records}


def pool_of(record: Record) -> int:
    """How many members the pool had when something was measured; the first had no mark."""
    return int(record.get("environment", record).get("pool", FIRST_POOL))


def environments(name: str) -> list[dict[str, Any]]:
    """Every machine that took part: those of the records, then those that the header names."""
    found = [
        record["environment"] for record in results(name) if "environment" in record
    ]
    old = header(name)
    if "environment" in old:
        found.append(old["environment"])
    return [*found, *old.get("earlier", ())]
