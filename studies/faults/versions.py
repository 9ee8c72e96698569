"""Keeps what a run of ``.ci/versions`` found: ``python -m studies.faults.versions oldest junit.xml``, in its environment.

Standard library and ``packaging`` only: the environment has nothing that the package does not need.
"""

from __future__ import annotations

import json
import platform
import sys
import time
import tomllib
import xml.etree.ElementTree as ET
from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).parents[1] / "results" / "versions.json"
#: What users install, and what runs the tests; the other tools of developers are pinned in constraints.txt.
EXTRAS = ("torch", "plot", "cli", "report", "dask", "experiments")
TOOLS = ("pytest", "pytest-xdist", "hypothesis")


def requirements() -> list[Requirement]:
    """Each package once."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    texts = [
        *project["dependencies"],
        *(text for extra in EXTRAS for text in extras[extra]),
        *extras["dev"],
    ]
    found = {requirement.name: requirement for requirement in map(Requirement, texts)}
    others = {Requirement(text).name for text in extras["dev"]} - set(TOOLS)
    return [requirement for name, requirement in found.items() if name not in others]


def pins(which: str) -> list[str]:
    """The oldest: the newest patch of each floor, >=1.26 → ==1.26.*, >=13 → ==13.0.*; the newest: no limit at all."""
    found = []
    for requirement in requirements():
        extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
        (floor,) = (clause.version for clause in requirement.specifier)
        oldest = "==" + ".".join([*floor.split("."), "0"][:2]) + ".*"
        found.append(f"{requirement.name}{extras}{oldest if which == 'oldest' else ''}")
    return found


def record(which: str, junit: Path) -> None:
    suite = ET.parse(junit).getroot().find("testsuite")
    assert suite is not None
    tests, skipped = int(suite.attrib["tests"]), int(suite.attrib["skipped"])
    failed = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    python = platform.python_version()
    entry = {
        "date": time.strftime("%Y-%m-%d"),
        "passed": tests - skipped - failed,
        "skipped": skipped,
        "failed": failed,
        "versions": {requirement.name: version(requirement.name) for requirement in requirements()},
    }
    known = (
        json.loads(FILE.read_text())
        if FILE.exists()
        else {"command": ".ci/versions oldest|newest", "results": {}}
    )
    known["results"][f"{which}, Python {python}"] = entry
    known["results"] = dict(sorted(known["results"].items(), reverse=True))
    FILE.write_text(json.dumps(known, indent=1) + "\n")
    print(
        f"→ studies/results/versions.json: {entry['passed']} passed, {skipped} skipped, {failed} failed"
    )


if __name__ == "__main__":
    if len(sys.argv) == 2:
        print("\n".join(pins(sys.argv[1])))
    else:
        record(sys.argv[1], Path(sys.argv[2]))
