"""Keeps what a run of ``.ci/versions`` found, in the environment of that run.

``python -m studies.faults.versions oldest`` prints what to install (``torch==2.13.0`` behind it
takes the place of the limit of torch), and with ``junit.xml`` behind it keeps the outcome. Printing
needs the standard library and ``packaging`` only: the environment holds nothing else yet.
"""

from __future__ import annotations

import platform
import sys
import time
import tomllib
import xml.etree.ElementTree as ET
from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement


def requirements() -> list[Requirement]:
    """What users install, and what runs the tests, each package once.

    The other tools of developers are pinned in constraints.txt.
    """
    path = Path(__file__).parents[2] / "pyproject.toml"
    project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    found = list(map(Requirement, project["dependencies"]))
    for extra in ("torch", "plot", "cli", "report", "dask", "experiments"):
        found += map(Requirement, extras[extra])
    tools = ("pytest", "pytest-xdist", "hypothesis")
    found += [own for own in map(Requirement, extras["dev"]) if own.name in tools]
    return list({requirement.name: requirement for requirement in found}.values())


def pins(which: str, own: list[str]) -> list[str]:
    """The newest patch of each floor (>=1.26 → ==1.26.*, >=13 → ==13.0.*), or no limit at all.

    ``own`` are limits that take the place of these.
    """
    found = list(own)
    named = {Requirement(text).name for text in own}
    for requirement in requirements():
        if requirement.name in named:
            continue
        extras = ""
        if requirement.extras:
            extras = f"[{','.join(sorted(requirement.extras))}]"
        limit = ""
        if which == "oldest":
            (floor,) = (clause.version for clause in requirement.specifier)
            limit = "==" + ".".join([*floor.split("."), "0"][:2]) + ".*"
        found.append(f"{requirement.name}{extras}{limit}")
    return found


def record(which: str, junit: Path, own: list[str]) -> None:
    from studies import markdown
    from studies.faults import tables
    from studies.store import new_record, path_of, replace

    suite = ET.parse(junit).getroot().find("testsuite")
    assert suite is not None
    tests = int(suite.attrib["tests"])
    skipped = int(suite.attrib["skipped"])
    failed = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    names = [requirement.name for requirement in requirements()]
    entry = {
        "date": time.strftime("%Y-%m-%d"),
        "passed": tests - skipped - failed,
        "skipped": skipped,
        "failed": failed,
        "versions": {name: version(name) for name in names},
    }
    cell = {"part": f"{which}, Python {platform.python_version()}"}
    made = new_record("versions", cell, entry, float(suite.attrib.get("time", 0)))
    command = " ".join([".ci/versions", which, *own])
    replace(path_of("versions"), made | {"command": command})
    # That page alone: other versions draw the figures of the rest in another way.
    markdown.fill(Path("docs/reliability.md"), tables.parts())
    print(f"{entry['passed']} passed, {skipped} skipped, {failed} failed")


if __name__ == "__main__":
    chosen, *rest = sys.argv[1:]
    if rest and rest[0].endswith(".xml"):
        record(chosen, Path(rest[0]), rest[1:])
    else:
        print("\n".join(pins(chosen, rest)))
