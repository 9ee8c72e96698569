"""The summary as one HTML file that needs no network: words and tables, charts on top.

Every name and value is escaped by jinja2. The page may run one script, ``report.js``, which its
policy (Content-Security-Policy) knows by its hash: nothing else that looks like a script runs. A
summary may come from a file that somebody edited: :func:`check_summary` refuses what does not fit
together, and :func:`render` what the page cannot show.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collidescope._store import write_bytes
from collidescope._text import between, percent, span
from collidescope.matrix import opened
from collidescope.show import words
from collidescope.show.summary import HEADER, summarise

if TYPE_CHECKING:
    import jinja2

Summary = Mapping[str, Any]


def write_report(summary: Summary, path: str | Path) -> Path:
    """Write a summary as one HTML file that works offline.

    ``summary`` is what :func:`~collidescope.summarise` returned, or its JSON read back; an existing
    file at ``path`` is replaced in one step. Returns the path.

    >>> import tempfile
    >>> from collidescope import CollisionMatrix, summarise
    >>> S = [[0.9, 0.1], [0.2, 0.8]]
    >>> cm = CollisionMatrix(S, priors=[2 / 3, 1 / 3], classes=["cat", "dog"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_report(summarise(cm), Path(folder) / "report.html")
    ...     page = path.read_text(encoding="utf-8")
    >>> "An input labelled dog would next time be labelled cat in 20.0% of cases" in page
    True
    """
    check_summary(summary)
    write_bytes(path, render(summary).encode())
    return Path(path)


def report(
    source: Any,
    X: Any = None,
    y: npt.ArrayLike | None = None,
    path: str | Path = "report.html",
    **options: Any,
) -> Path:
    """Summarise and write the report: :func:`~collidescope.summarise`, then ``write_report``.

    ``source``, ``X``, ``y`` and ``options`` (``y_pred``, ``rows``, ``image_shape``, ``control``,
    ``limit``, ``title``, ``about``, ``notes``, ``sections``) are those of summarise. Returns the
    path.

    >>> import tempfile
    >>> P = [[0.9, 0.1], [0.4, 0.6], [0.7, 0.3], [0.2, 0.8]]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report(
    ...         P, y=["a", "b", "a", "b"], path=f"{folder}/report.html", title="Two"
    ...     ).name
    'report.html'
    """
    page_template()  # before the work, not after it: jinja2 may not be installed
    return write_report(summarise(source, X, y, **options), path)


def check_summary(summary: Summary) -> None:
    """Refuse what :func:`summarise` did not make."""
    opened(summary, HEADER, "a summary", "summarise")
    try:
        json.dumps(summary, allow_nan=False)
        _check_lists(summary)
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        IndexError,
        OverflowError,
    ) as error:
        raise ValueError(
            f"summary was edited or damaged, make it again: {error}"
        ) from None


def _check_lists(summary: Summary) -> None:
    """Every list has an entry for every class, and pictures are pictures."""
    k = len(summary["classes"])
    for name in ("matrix", "joint", "low", "high"):
        _check_shape(summary[name], (k, k), name)
    for name in ("priors", "counts"):
        _check_shape(summary[name], (k,), name)
    if sorted(summary["leaf_order"]) != list(range(k)):
        raise ValueError(f"leaf_order must name each of {k} classes once")
    if summary["merge_path"] is not None:
        _check_path(summary["merge_path"], k)
    picture = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}")
    rows = summary["ambiguous_rows"] or {"rows": [], "suspects": [], "pairs": []}
    of_pairs = [row for pair in rows["pairs"] for row in pair["rows"]]
    for row in [*rows["rows"], *rows["suspects"], *of_pairs]:
        if row["image"] is not None and not picture.fullmatch(row["image"]):
            raise ValueError("image must be a picture as a data: URI")


def _check_shape(values: object, shape: tuple[int, ...], name: str) -> None:
    if values is None and name in ("low", "high", "counts"):
        return
    came = np.asarray(values, dtype=np.float64).shape
    if came != shape:
        raise ValueError(f"{name} must have shape {shape}, got {came}")


def _check_path(path: Summary, k: int) -> None:
    steps = len(path["pber"])
    for name in ("n_groups", "first", "second", "pber", "low", "high", "limit"):
        if len(path[name]) != steps:
            raise ValueError(f"merge_path.{name} must have {steps} entries")
    for name in ("first", "second"):
        if not set(path[name][1:]) <= set(range(k)):
            raise ValueError(f"merge_path.{name} must name classes by their numbers")
    if sorted(path["tree_order"]) != list(range(k)):
        raise ValueError(f"merge_path.tree_order must name each of {k} classes once")


def render(summary: Summary, table_classes: int = 30) -> str:
    """The page as text; up to ``table_classes`` S is also there as a table, for screen readers."""
    template = page_template()
    script = _asset("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    try:
        rates = [pair["high"] or pair["rate"] for pair in summary["top_collisions"]]
        return template.render(
            s=summary,
            css=_asset("report.css"),
            script=script,
            digest=f"sha256-{digest}",
            table_classes=table_classes,
            steps=merge_steps(summary),
            widest=max(rates, default=0) or 1.0,
        )
    except Exception as error:  # of a summary that was edited; ours renders
        raise ValueError(
            f"summary was edited or damaged, make it again: {error}"
        ) from error


def page_template() -> jinja2.Template:
    """The template of the page, with its filters."""
    try:
        import jinja2
    except ImportError as error:
        raise ImportError(
            f"The HTML report needs jinja2 ({error}): pip install "
            '"collidescope[report]"'
        ) from error
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.policies["json.dumps_kwargs"] = {
        "allow_nan": False,
        "separators": (",", ":"),
    }
    formats = (percent, between, span, named, cell, count)
    for function in (*formats, words.method, words.points, words.rows_to_look_at):
        environment.filters[function.__name__] = function
    return environment.from_string(_asset("template.html.j2"))


def _asset(name: str) -> str:
    return (
        resources.files("collidescope.show").joinpath(name).read_text(encoding="utf-8")
    )


def count(value: float | None) -> str:
    """A number of rows, or nothing."""
    return "" if value is None else f"{value:,.0f}"


def cell(value: object) -> str:
    """A value in the table of a section.

    >>> cell(0.25), cell(2e-10), cell(1234.5), cell(3), cell(None)
    ('0.2500', '<0.0001', '1234', '3', '')
    """
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    if 0 < abs(value) < 0.00005:
        return "<0.0001" if value > 0 else ">-0.0001"
    if abs(value) < 10:
        return f"{value:.4f}"
    return f"{value:.4g}"


def merge_steps(summary: Summary, most: int = 15) -> list[dict[str, Any]]:
    """The first steps of the merge path with names in place of numbers."""
    path = summary["merge_path"]
    if path is None:
        return []
    members = [[named(name)] for name in summary["classes"]]
    steps = []
    for step in range(1, min(len(path["pber"]), most + 1)):
        entry = {
            name: path[name][step]
            for name in ("n_groups", "pber", "low", "high", "limit")
        }
        first = members[path["first"][step]]
        second = members[path["second"][step]]
        names = {"first": _group_name(first), "second": _group_name(second)}
        first += second
        steps.append(entry | names)
    return steps


def _group_name(group: list[str], most: int = 6) -> str:
    names = " + ".join(group[:most])
    if len(group) > most:
        names += f" and {len(group) - most} more"
    return names


def named(name: object) -> str:
    """The name, or words for an empty one."""
    return str(name) if str(name).strip() else "(empty name)"
