"""The public interface is what `tests/api_snapshot.txt` says: names, signatures, methods, fields.

A change is on purpose: `python tests/test_public_api.py` writes the snapshot anew, and the reviewer
sees what changed.
"""

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import collidescope as cs

SNAPSHOT = Path(__file__).with_name("api_snapshot.txt")


def signature(function: Any) -> str:
    """Names, kinds and defaults of the parameters; types are mypy's business."""
    found = inspect.signature(function)
    public = [
        parameter
        for parameter in found.parameters.values()
        if not parameter.name.startswith("_")
    ]
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty) for parameter in public
    ]
    text = str(
        found.replace(parameters=bare, return_annotation=inspect.Signature.empty)
    )
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def members(cls: type) -> list[str]:
    """Public methods, properties and class attributes that the package itself defines."""
    own: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("collidescope"):
            own |= {
                name: value
                for name, value in vars(base).items()
                if not name.startswith("_")
            }
    lines = []
    fields = (
        {field.name for field in dataclasses.fields(cls)}
        if dataclasses.is_dataclass(cls)
        else set()
    )
    for name, value in sorted(own.items()):
        raw = (
            value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        )
        if inspect.isfunction(raw):
            lines.append(f"    .{name}{signature(raw)}")
        elif name not in fields:
            lines.append(f"    .{name}")
    return lines


def parts() -> dict[str, list[str]]:
    """The public names of the modules that hold the rest."""
    found = {}
    for name in ("applications", "plot", "theory", "votes"):
        module = getattr(cs, name)
        found[name] = sorted(
            own
            for own, value in vars(module).items()
            if not own.startswith("_") and not inspect.ismodule(value)
        )
    return found


def described(name: str, value: Any) -> list[str]:
    if inspect.isclass(value):
        bases = [base.__name__ for base in value.__mro__[1:]]
        errors = [base for base in bases if base.endswith(("Warning", "Error"))]
        head = f"({errors[0]})" if errors else signature(value)
        return [f"class {name}{head}", *members(value)]
    if callable(value):
        return [f"def {name}{signature(value)}"]
    return [f"module {name}"]


def snapshot() -> str:
    lines = []
    for name in sorted(cs.__all__):
        lines += described(name, getattr(cs, name))
    for part, names in parts().items():
        for name in names:
            if name not in cs.__all__:
                lines += described(f"{part}.{name}", getattr(getattr(cs, part), name))
    return "\n".join(lines) + "\n"


def test_the_public_interface_is_the_one_on_record():
    assert snapshot() == SNAPSHOT.read_text(encoding="utf-8"), (
        "the public interface changed: keep the old call working with a DeprecationWarning for a "
        "release (see docs/reliability-data.md), add a line to CHANGELOG.md, then run "
        "`python tests/test_public_api.py`"
    )


def names_of_the_page() -> list[str]:
    page = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
    return re.findall(r"^   ([A-Za-z_]\w*)$", page, re.MULTILINE)


def test_the_reference_lists_no_name_twice():
    assert len(set(names_of_the_page())) == len(names_of_the_page())


def test_every_name_at_the_top_is_in_the_reference():
    assert set(cs.__all__) <= set(names_of_the_page())


def test_every_name_of_the_reference_can_be_imported():
    assert all(hasattr(cs, name) for name in names_of_the_page())


def test_every_function_of_theory_is_in_the_reference():
    assert set(parts()["theory"]) <= set(names_of_the_page())


def test_every_public_name_has_an_example_that_runs():
    """The doctests themselves are run with those of the modules."""
    # Made by functions that have the example; files to read need a fit, or images.
    made = {
        "Limit",
        "CollisionWarning",
        "ModelFileError",
        "load",
        "applications",
        "datasets",
        "plot",
        "read_images",
    }
    names = cs.__all__
    without = {
        name
        for name in names
        if ">>> " not in (inspect.getdoc(getattr(cs, name)) or "")
    }
    assert without <= made


if __name__ == "__main__":
    SNAPSHOT.write_text(snapshot(), encoding="utf-8")
