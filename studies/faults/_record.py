"""Campaigns and what they found, with what one needs to repeat them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from collidescope._environment import environment

RESULTS = Path(__file__).parents[1] / "results"


def save(name: str, config: dict[str, Any], results: Any, path: Path | None = None) -> Path:
    """Write ``results/NAME.json`` (or ``path``) and say so."""
    RESULTS.mkdir(exist_ok=True)
    path = path or RESULTS / f"{name}.json"
    content = {
        "command": f"python -m studies.faults.{name}",
        "config": config,
        "environment": environment(),
    }
    path.write_text(json.dumps(content | {"results": results}, indent=1) + "\n")
    print(f"→ {path}")
    return path
