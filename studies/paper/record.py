"""One store for all runs: a JSON line each, with its settings, so that nothing is run twice."""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

Cell = dict[str, Any]
Result = dict[str, Any]

HERE = Path(__file__).parent


def store(quick: bool) -> Path:
    """The file of the quick runs, or that of the runs with the paper's own settings."""
    name = "quick.jsonl" if quick else "full.jsonl"
    return HERE / "results" / name


def key_of(study: str, cell: Cell) -> str:
    """Changes when any setting does."""
    text = json.dumps([study, cell], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def load(path: Path) -> dict[str, Result]:
    """Records by key; a line that was cut by a kill is passed over."""
    records = {}
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            records[record["key"]] = record
    return records


def run_all(
    study: str, cells: Iterable[Cell], run: Callable[[Cell], Result], path: Path, jobs: int = 1
) -> None:
    """Run the cells that the store does not have yet, and add each as soon as it is done.

    ``seconds`` of a record are those of the processor.
    """
    known = load(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    missing = [cell for cell in cells if key_of(study, cell) not in known]
    calls = (delayed(_timed)(run, cell) for cell in missing)
    finished = Parallel(n_jobs=jobs, return_as="generator")(calls)
    for cell, (result, seconds) in zip(missing, finished, strict=True):
        record = {
            "key": key_of(study, cell),
            "study": study,
            "cell": cell,
            "result": result,
            "seconds": seconds,
            "environment": environment(),
        }
        with path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(f"{study:18s} {seconds:6.1f} s  {cell}", flush=True)


def _timed(run: Callable[[Cell], Result], cell: Cell) -> tuple[Result, float]:
    started = time.process_time()
    result = run(cell)
    return result, round(time.process_time() - started, 2)


def environment() -> dict[str, str]:
    """When, and with which versions."""
    packages = ("numpy", "scipy", "scikit-learn", "torch")
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def results(study: str, quick: bool) -> list[Result]:
    """The records of one study."""
    return [record for record in load(store(quick)).values() if record["study"] == study]


def older(name: str) -> list[Result]:
    """Records of an earlier round, wherever the repository keeps ``name``.jsonl."""
    root = HERE.parents[1]
    places = [*root.glob(f"*/results/{name}.jsonl"), *root.glob(f"*/*/results/{name}.jsonl")]
    found = [path for path in places if path.parent != HERE / "results"]
    if not found:
        return []
    return list(load(found[0]).values())
