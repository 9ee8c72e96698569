"""Cells and their results in a file of one JSON line each."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collidescope._store import write_bytes

#: Set STUDIES_RESULTS to keep the results of a run elsewhere.
RESULTS = Path(os.environ.get("STUDIES_RESULTS", Path(__file__).parent / "results"))

Cell = dict[str, Any]


@dataclass(frozen=True)
class Experiment:
    """What to run: ``cells(quick)`` lists the settings, ``run(cell)`` gives a result that JSON can hold."""

    name: str
    title: str
    cells: Callable[[bool], list[Cell]]
    run: Callable[[Cell], dict[str, Any]]
    #: Does a cell use all processors (or the accelerator) itself? Then cells run one after the other.
    alone: bool = False


def key_of(cell: Cell) -> str:
    """A name for the settings that stays the same between runs and changes when any of them does."""
    return hashlib.sha256(json.dumps(cell, sort_keys=True).encode()).hexdigest()[:16]


def path_of(name: str, quick: bool = False) -> Path:
    """The file with the results of an experiment; those of the quick size are kept apart and never committed."""
    return (RESULTS / "quick" if quick else RESULTS) / f"{name}.jsonl"


def load(path: Path) -> dict[str, dict[str, Any]]:
    """Records by key. A last line that was cut by a kill is passed over."""
    records: dict[str, dict[str, Any]] = {}
    if not path.exists():
        return records
    for number, line in enumerate(lines := path.read_text().splitlines(), start=1):
        try:
            record = json.loads(line)
        except ValueError:
            if number < len(lines):
                raise ValueError(
                    f"{path} is damaged in line {number}: restore or delete it"
                ) from None
            continue
        records[record["key"]] = record
    return records


def append(path: Path, record: dict[str, Any]) -> None:
    """Add one record, in place of a last line that was cut by a kill."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        file.seek(0)
        whole = file.read().rfind(b"\n") + 1
        file.truncate(whole)
        file.write(json.dumps(record, allow_nan=False).encode() + b"\n")


def tidy(path: Path, cells: Iterable[Cell], complete: bool = True) -> None:
    """Keep the records of these cells, in their order, and drop those of settings that are no more.

    After a run of some cells only, old records are kept as well, but for those of a method on a problem that has a new
    one: a mean must not mix settings.
    """
    records = load(path)
    kept = [records.pop(key) for cell in cells if (key := key_of(cell)) in records]
    if not complete:
        renewed = {_task(record["cell"]) for record in kept}
        kept += [record for record in records.values() if _task(record["cell"]) not in renewed]
    text = "".join(json.dumps(record, allow_nan=False) + "\n" for record in kept)
    write_bytes(path, text.encode())


def _task(cell: Cell) -> tuple[str, ...]:
    return tuple(
        str(cell.get(name)) for name in ("method", "problem", "arguments", "dataset", "train")
    )


def stale(experiment: Experiment) -> list[Cell]:
    """Cells of records that were made with settings no longer in use."""
    wanted = {key_of(cell) for cell in experiment.cells(False)}
    return [
        record["cell"]
        for key, record in load(path_of(experiment.name)).items()
        if key not in wanted
    ]


def adopt(experiment: Experiment, given: Path) -> int:
    """Take over the records in a file of :mod:`studies.reproduction.farm`; returns how many are of cells in use."""
    wanted = {key_of(cell) for cell in experiment.cells(False)}
    new = [
        r for key, r in load(given).items() if r["experiment"] == experiment.name and key in wanted
    ]
    for record in new:
        append(
            path_of(experiment.name),
            {name: value for name, value in record.items() if name != "experiment"},
        )
    if new:
        tidy(path_of(experiment.name), experiment.cells(False), complete=False)
    return len(new)


def results(name: str, quick: bool = False) -> list[dict[str, Any]]:
    """Records of an experiment: ``cell``, ``result``, ``seconds``, ``environment``."""
    return list(load(path_of(name, quick)).values())
