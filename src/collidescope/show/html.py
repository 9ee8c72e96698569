"""The summary as one HTML file that needs no network: words and tables in the markup, charts by plotly on top.

Every name and value is escaped by jinja2, and again for plotly, which reads a little markup of its own. The page may
run two scripts, plotly and ``report.js``, which its policy (Content-Security-Policy) knows by their hashes: whatever
else would look like a script does not run.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy.typing as npt

from collidescope._files import replace_file
from collidescope.show import words
from collidescope.show.summary import FORMAT, FORMAT_VERSION, summarise

#: Up to this many classes S is also there as a table, for screen readers and for printing.
TABLE_CLASSES = 30
#: Steps of the merge path that are listed as a table.
TABLE_STEPS = 15
#: Precision and recall are equal at the priors of S: a column for each is shown only where they differ by more.
SAME_RATE = 5e-4
REQUIRED = (
    *("title", "n_classes", "n_rows", "level", "pber", "bayes_error", "top_collisions", "headline", "what_to_do"),
    *("complete", "classes", "matrix", "low", "high", "joint", "priors", "counts", "leaf_order", "ceilings"),
    *("merge_path", "ambiguous_rows", "audit", "trust", "notes", "how"),
)


def write_report(summary: Mapping[str, Any], path: str | Path) -> Path:
    """Write a summary as one HTML file that works offline.

    Parameters
    ----------
    summary : dict
        What :func:`~collidescope.summarise` returned, or its JSON read back.
    path : file
        An existing file is replaced in one step.

    Returns
    -------
    Path

    Examples
    --------
    >>> import tempfile
    >>> from collidescope import CollisionMatrix, summarise
    >>> cm = CollisionMatrix([[0.9, 0.1], [0.2, 0.8]], priors=[2 / 3, 1 / 3], classes=["cat", "dog"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_report(summarise(cm), Path(folder) / "report.html").read_text(encoding="utf-8")
    >>> "An input labelled dog would be labelled cat in 20.0% of cases" in page
    True
    """
    check_summary(summary)
    content = render(summary).encode()
    try:
        replace_file(path, content)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(f"path {str(path)!r} cannot be written: {error.strerror or error}") from None
    return Path(path)


def report(
    source: Any,
    X: Any = None,
    y: npt.ArrayLike | None = None,
    path: str | Path = "report.html",
    *,
    y_pred: Any = None,
    rows: Any = None,
    image_shape: tuple[int, ...] | None = None,
    control: Any = None,
    title: str | None = None,
    notes: Sequence[str] = (),
) -> Path:
    """Summarise and write the report: :func:`~collidescope.summarise`, then :func:`~collidescope.write_report`.

    Parameters
    ----------
    source, X, y, y_pred, rows, image_shape, control, title, notes
        As in :func:`~collidescope.summarise`.
    path : file

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     P = [[0.9, 0.1], [0.4, 0.6], [0.7, 0.3], [0.2, 0.8]]
    ...     report(P, y=["a", "b", "a", "b"], path=f"{folder}/report.html", title="Two classes").name
    'report.html'
    """
    _plotly()  # before the work, not after it
    summary = summarise(
        source,
        X,
        y,
        y_pred=y_pred,
        rows=rows,
        image_shape=image_shape,
        control=control,
        title=title,
        notes=notes,
    )
    return write_report(summary, path)


def check_summary(summary: object) -> None:
    """Refuse what :func:`summarise` did not make."""
    if not isinstance(summary, Mapping) or summary.get("format") != FORMAT:
        raise ValueError(
            f"summary must be what summarise returned (format {FORMAT!r}), got {type(summary).__name__}: "
            f"report(source, …) makes both"
        )
    if summary.get("version") != FORMAT_VERSION:
        raise ValueError(
            f"summary has version {summary.get('version')!r}, this release writes reports of {FORMAT_VERSION}: "
            f"make it again, or update collidescope"
        )
    missing = [name for name in REQUIRED if name not in summary]
    if missing:
        raise ValueError(f"summary lacks {', '.join(missing)}: it was cut or edited, make it again")
    k = len(summary["classes"])
    if len(summary["matrix"]) != k or any(len(row) != k for row in summary["matrix"]):
        raise ValueError(f"summary is damaged: matrix must be {k}×{k}, as there are {k} classes")


def render(summary: Mapping[str, Any]) -> str:
    """The page as text."""
    import jinja2

    plotly_js, script = _plotly(), _asset("report.js")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    environment.filters |= {"percent": words.percent, "between": words.between, "named": _named, "count": _count}
    environment.filters["method"] = words.method
    template = environment.from_string(_asset("template.html.j2"))
    return template.render(
        s=summary,
        data=in_script(summary),
        css=_asset("report.css"),
        plotly_js=plotly_js,
        script=script,
        hashes=f"{_hash(plotly_js)} {_hash(script)}",
        table_classes=TABLE_CLASSES,
        steps=merge_steps(summary),
        widest=max([pair["high"] or pair["rate"] for pair in summary["top_collisions"]], default=1.0),
        precision_differs=any(
            row["precision"] is not None and abs(row["precision"] - row["recall"]) > SAME_RATE
            for row in summary["ceilings"]
        ),
    )


def in_script(value: Any) -> str:
    r"""JSON that can stand inside a script element: no ``<``, ``>`` or ``&``, no line separators, all ASCII.

    >>> in_script({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    plain = json.dumps(value, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def merge_steps(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The first steps of the merge path with names in place of numbers."""
    path, names = summary["merge_path"], summary["classes"]
    members = [[name] for name in names]
    steps = []
    for step in range(1, min(len(path["pber"]), TABLE_STEPS + 1)):
        first, second = path["first"][step], path["second"][step]
        entry = {"first": _group(members[first]), "second": _group(members[second])}
        members[first] = members[first] + members[second]
        for column in ("n_groups", "pber", "low", "high", "bayes_low", "bayes_high"):
            entry[column] = path[column][step]
        steps.append(entry)
    return steps


def _group(members: list[str]) -> str:
    shown = " + ".join(_named(name) for name in members[:6])
    return shown + (f" and {len(members) - 6} more" if len(members) > 6 else "")


def _named(name: Any) -> str:
    """A name for a table: never invisible."""
    return str(name) if str(name).strip() else "(empty name)"


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _asset(name: str) -> str:
    return resources.files("collidescope.show").joinpath(name).read_text(encoding="utf-8")


def _plotly() -> str:
    """The source of plotly.js that comes with plotly."""
    try:
        import jinja2  # noqa: F401
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError(
            f'The HTML report needs jinja2 and plotly ({error}): pip install "collidescope[report]"'
        ) from error
    return str(get_plotlyjs())


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
