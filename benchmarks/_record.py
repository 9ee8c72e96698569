"""Results with what one needs to judge them: seed, versions, hardware, date."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from collidescope._environment import environment

RESULTS = Path(__file__).parent / "results"


def save(name: str, config: dict[str, Any], results: Any) -> Path:
    """Write ``results/NAME.json`` and say so."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"config": config, "environment": environment(), "results": results}, indent=1) + "\n")
    print(f"→ {path.relative_to(RESULTS.parent.parent)}")
    return path


def load(name: str) -> dict[str, Any] | None:
    """What ``save`` wrote, or None where it never did."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def best_of(call: Any, repeats: int) -> float:
    """Shortest wall time of ``repeats`` calls: the one least disturbed."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
