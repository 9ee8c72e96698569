"""What a figure was measured with: versions, hardware, date."""

from __future__ import annotations

import os
import platform
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("collidescope", "numpy", "scipy", "scikit-learn", "torch")


def environment() -> dict[str, Any]:
    """Date, versions and processors of this process (a GPU where torch is loaded and sees one)."""
    cores = (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count()
    )
    found = {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "versions": {package: version_of(package) for package in PACKAGES},
        "processor": _processor(),
        "cores": cores,
    }
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(
            line.split(":", 1)[1].strip()
            for line in lines
            if line.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:  # this package itself may be run from a source tree
        return None
