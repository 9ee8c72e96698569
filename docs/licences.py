"""Writes docs/licences.md: the licences of what the package and its extras install."""

from __future__ import annotations

import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "licences.md"
#: Extras that users install; those of developers are never on a user's machine.
EXTRAS = ("torch", "plot", "cli", "report", "dask", "experiments")
#: Short names of licences that some packages only give as a whole text or as a sentence.
SHORT = {
    "BSD License": "BSD",
    "BSD": "BSD",
    "3-Clause BSD License": "BSD-3-Clause",
    "BSD 3-Clause License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache License": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}


def declared() -> dict[str, list[Requirement]]:
    """Requirements of the package ("") and of each extra, from pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    extras = {name: project["optional-dependencies"].get(name, []) for name in EXTRAS}
    return {
        name: [Requirement(text) for text in texts]
        for name, texts in ({"": project["dependencies"]} | extras).items()
    }


def needed() -> dict[str, set[str]]:
    """Package → the extras that bring it ("" for the package itself), also indirectly."""
    found: dict[str, set[str]] = {}
    for extra, requirements in declared().items():
        todo = [(requirement.name, requirement.extras) for requirement in requirements]
        seen = set()
        while todo:
            name, extras = todo.pop()
            if (name := canonicalize_name(name)) in seen:
                continue
            seen.add(name)
            for text in distribution(name).requires or []:
                further = Requirement(text)
                environments = [{"extra": wanted} for wanted in ("", *extras)]
                if further.marker is None or any(
                    further.marker.evaluate(e) for e in environments
                ):
                    todo.append((further.name, further.extras))
        for name in seen:
            found.setdefault(name, set()).add(extra)
    return found


def licence(package: Distribution) -> str:
    """The short name of its licence."""
    data = package.metadata
    if data.get("License-Expression"):
        return str(data["License-Expression"])
    names = [
        text.split(" :: ")[-1]
        for text in data.get_all("Classifier") or []
        if text.startswith("License ::")
    ]
    names = [name for name in names if name != "OSI Approved"] or [
        str(data.get("License") or "").strip().split("\n")[0]
    ]
    return " and ".join(SHORT.get(name, name) for name in names) or "not said"


def table() -> str:
    """The table of the page."""
    lines = ["| package | licence | comes with |", "|---|---|---|"]
    for name, extras in sorted(needed().items()):
        package = distribution(name)
        home = (
            "the package"
            if "" in extras
            else ", ".join(f"`[{extra}]`" for extra in sorted(extras))
        )
        lines.append(f"| {package.metadata['Name']} | {licence(package)} | {home} |")
    return "\n".join(lines)


def page() -> str:
    """The page."""
    return f"""# Licences

collidescope is BSD-3-Clause. What `pip` installs beside it, dependencies of dependencies included,
as the packages themselves say (`python docs/licences.py` writes this table; a test compares):

{table()}

On Linux the CUDA build of PyTorch brings NVIDIA's libraries under NVIDIA's own licences; the CPU
build does not.
"""


def missing() -> list[str]:
    """What of it is not installed here."""
    try:
        needed()
    except PackageNotFoundError as error:
        return [str(error)]
    return []


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE.relative_to(ROOT))
