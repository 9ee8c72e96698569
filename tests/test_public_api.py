"""The public interface is what `tests/api_snapshot.txt` says: names, signatures, methods, fields.

A change is on purpose: `python tests/test_public_api.py` writes the snapshot anew, and the reviewer sees what changed.
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
        parameter for parameter in found.parameters.values() if not parameter.name.startswith("_")
    ]
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in public]
    text = str(found.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def members(cls: type) -> list[str]:
    """Public methods, properties and class attributes that the package itself defines."""
    own: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("collidescope"):
            own |= {name: value for name, value in vars(base).items() if not name.startswith("_")}
    lines = []
    fields = (
        {field.name for field in dataclasses.fields(cls)}
        if dataclasses.is_dataclass(cls)
        else set()
    )
    for name, value in sorted(own.items()):
        raw = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        if inspect.isfunction(raw):
            lines.append(f"    .{name}{signature(raw)}")
        elif name not in fields:
            lines.append(f"    .{name}")
    return lines


def snapshot() -> str:
    lines = []
    for name in sorted(cs.__all__):
        value = getattr(cs, name)
        if inspect.isclass(value):
            bases = [
                base.__name__
                for base in value.__mro__[1:]
                if base.__name__.endswith(("Warning", "Error"))
            ][:1]
            head = f"({bases[0]})" if bases else signature(value)
            lines += [f"class {name}{head}", *members(value)]
        elif callable(value):
            lines.append(f"def {name}{signature(value)}")
        else:
            own = [
                n
                for n, v in vars(value).items()
                if getattr(v, "__module__", "") == value.__name__ and n[0] != "_"
            ]
            lines.append(f"module {name}: {', '.join(sorted(own))}")
    return "\n".join(lines) + "\n"


def test_the_public_interface_is_the_one_on_record():
    assert snapshot() == SNAPSHOT.read_text(encoding="utf-8"), (
        "the public interface changed: keep the old call working with a DeprecationWarning for a release (see "
        "docs/reliability-data.md), add a line to CHANGELOG.md, then run `python tests/test_public_api.py`"
    )


def test_every_public_name_is_in_the_reference_once_with_an_example_that_runs():
    """The doctests themselves are run with those of the modules."""
    page = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^   ([A-Za-z_]\w*)$", page, re.MULTILINE)) == sorted(cs.__all__)
    # Made by functions that have the example; a file to load needs a fit.
    made = {"Limit", "CollisionWarning", "ModelFileError", "load", "datasets"}
    without = {
        name for name in cs.__all__ if ">>> " not in (inspect.getdoc(getattr(cs, name)) or "")
    }
    assert without <= made


if __name__ == "__main__":
    SNAPSHOT.write_text(snapshot(), encoding="utf-8")
