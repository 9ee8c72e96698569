"""The summary as one HTML file that needs no network: words and tables in the markup, charts by plotly on top.

Every name and value is escaped by jinja2, and again for plotly, which reads a little markup. The page may run two
scripts, plotly and ``report.js``, which its policy (Content-Security-Policy) knows by their hashes: whatever else would
look like a script does not run. A summary may come from a file that somebody edited: :func:`check_summary` compares it
with ``SCHEMA`` before anything is drawn.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import numpy.typing as npt

from collidescope._store import write_bytes
from collidescope._text import between, percent, span
from collidescope.matrix import opened
from collidescope.show import words
from collidescope.show.summary import HEADER, summarise

#: Up to this many classes S is also there as a table, for screen readers and for printing; steps of merging in a table.
TABLE_CLASSES, TABLE_STEPS = 30, 15
#: Numbers beyond this are no counts and no rates.
LARGEST = 1e15
#: What the plain types of the schema are called, and what they take.
KINDS: dict[type, Any] = {
    str: ("text", str),
    bool: ("true or false", bool),
    int: ("a whole number", int),
}
KINDS[float] = "a number", int | float
IMAGE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}")


def _each(kind: Any, names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), kind)


_SHARE = (float, None)
_WORDS = (str, None)
_ROW = _each(int, "index columns_left") | {
    "label": _WORDS,
    "values": [[str, str]],
    "image": (IMAGE, None),
}
_ROW |= {"posterior": [{"class": str, "probability": float, "is_label": bool}]}
_AMBIGUOUS = _each(int, "n_rows n_ambiguous n_suspect") | {"expected_suspect": float, "fresh": bool}
_AMBIGUOUS |= {"rows": [_ROW], "suspects": [_ROW]}
_CEILING = _each(str, "class mostly_to") | _each(float, "prior draw mostly_rate")
_TABLE = {"columns": [str], "rows": [[(str, int, float, None)]]}
_BAND = _each([float], "rows low middle high")
_CURVE = {"rows": [float], "pber": [float], "stderr": [_SHARE]}
_LIMIT = (
    _each(str, "state reason words")
    | _each(float, "pber low high")
    | {"curve": _CURVE, "band": (_BAND, None)}
)
_LIMIT["doubled"] = ([float, float, float], None)
_AUDITED = (
    _each(str, "true predicted")
    | _each(float, "observed best fixable low high")
    | {"flagged": bool}
)
_AUDIT = (
    _each(int, "n_rows n_pairs")
    | _each(float, "error best fixable")
    | {"verdict": str, "cautions": [str]}
)
_AUDIT |= _each([float, float], "error_interval fixable_interval") | {"pairs": [_AUDITED]}
_AUDIT |= _each(([float, float], None), "inherent_interval not_learned_interval")
_PATH = (
    _each([int], "n_groups tree_order") | _each([(int, None)], "first second") | {"pber": [float]}
)
#: A type, a pattern for text, [of each entry], [of the first, of the second], {of each named entry}, {str: of every
#: entry}, or (this, None) where None will do. ``float`` takes every number of reasonable size.
SCHEMA: dict[str, Any] = {
    **_each(str, "title how"),
    **_each([str], "headline what_to_do notes classes"),
    **_each(bool, "known complete"),
    **_each(_SHARE, "n_rows coverage bayes_error_at_most"),
    "about": _each(_WORDS, "file label command saved")
    | {"columns": [str], "n_columns": int, "seconds": _SHARE},
    "n_classes": int,
    "level": float,
    "pber": {"value": float, "low": _SHARE, "high": _SHARE},
    "limit": (_LIMIT, None),
    "top_collisions": [
        _each(str, "class other sentence")
        | _each(float, "rate reverse")
        | _each(_SHARE, "low high")
    ],
    **_each([[float]], "matrix joint"),
    **_each(([[_SHARE]], None), "low high"),
    "priors": [float],
    "counts": ([float], None),
    "leaf_order": [int],
    "ceilings": [_CEILING | _each(_SHARE, "rows best_guess draw_low draw_high draw_limit")],
    "merge_path": (_PATH | _each([_SHARE], "low high limit"), None),
    "ambiguous_rows": (_AMBIGUOUS, None),
    "audit": (_AUDIT, None),
    "sections": [{"title": str, "sentences": [str], "table": (_TABLE, None)}],
    "trust": {
        **_each(str, "intervals conditioning"),
        **_each({str: str}, "computed settings"),
        "warnings": [str],
        "seed": (int, None),
        "control": {"passed": (bool, None), "words": str},
        "training": ({"folds": int, "models": {str: float}}, None),
        "environment": {"date": str, "python": str, "versions": {str: _WORDS}},
    },
}


def conform(value: Any, wanted: Any, where: str) -> None:
    """Refuse a ``value`` that is not as ``wanted`` (see ``SCHEMA``), by its name ``where``.

    >>> conform({"a": [1, "2"]}, {"a": [float]}, "summary")
    Traceback (most recent call last):
    ValueError: summary.a[1] must be a number, got str: it was edited or damaged, make the summary again
    """
    if isinstance(wanted, tuple):
        if value is None and None in wanted:
            return
        wanted = next(
            (kind for kind in wanted if isinstance(kind, type) and isinstance(value, kind)),
            wanted[0],
        )
    parts: dict[str, tuple[Any, Any]] = {}
    if isinstance(wanted, list):
        called, good = (
            "a list of its length",
            isinstance(value, list) and len(wanted) in (1, len(value)),
        )
        if good:
            parts = {f"[{k}]": (part, wanted[k % len(wanted)]) for k, part in enumerate(value)}
    elif isinstance(wanted, dict):
        called, good = "an object", isinstance(value, Mapping)
        if good:
            kinds = dict.fromkeys(value, wanted[str]) if str in wanted else wanted
            parts = {f".{name}": (value.get(name, ...), kind) for name, kind in kinds.items()}
    elif isinstance(wanted, re.Pattern):
        called, good = (
            "a picture as a data: URI",
            isinstance(value, str) and bool(wanted.fullmatch(value)),
        )
    else:
        called, kind = KINDS[wanted]
        good = isinstance(value, kind) and (wanted is bool or not isinstance(value, bool))
        good = good and (wanted in (str, bool) or abs(value) <= LARGEST)
    if not good:
        got = "nothing" if value is ... else type(value).__name__
        raise ValueError(
            f"{where} must be {called}, got {got}: it was edited or damaged, make the summary again"
        )
    for name, (part, kind) in parts.items():
        conform(part, kind, where + name)


def check_summary(summary: Mapping[str, Any]) -> None:
    """Refuse what :func:`summarise` did not make."""
    conform(opened(summary, HEADER, "a summary", "summarise"), SCHEMA, "summary")
    try:
        json.dumps(summary, allow_nan=False)
    except (ValueError, TypeError) as error:
        raise ValueError(f"summary holds what JSON cannot: {error}") from None
    k, path = len(summary["classes"]), summary["merge_path"] or {}
    parts = [summary[name] for name in ("priors", "counts", "matrix", "joint", "low", "high")]
    known = [part for part in parts if part is not None]
    merges = [head for name in ("first", "second") for head in path.get(name, ())[1:]]
    if not (
        all(
            len(part) == k
            for part in known + [row for part in known for row in part if isinstance(row, list)]
        )
        and len(summary["ceilings"]) == k - (not summary["complete"])
        and all(
            sorted(order) == list(range(k))
            for order in (summary["leaf_order"], path.get("tree_order", range(k)))
        )
        and all(len(path[name]) == len(path["pber"]) for name in path if name != "tree_order")
        and all(isinstance(head, int) and 0 <= head < k for head in merges)
    ):
        raise ValueError(f"summary is damaged: its lists do not fit {k} classes, make it again")


def write_report(summary: Mapping[str, Any], path: str | Path) -> Path:
    """Write a summary as one HTML file that works offline.

    ``summary`` is what :func:`~collidescope.summarise` returned, or its JSON read back; an existing file at ``path`` is
    replaced in one step. Returns the path.

    >>> import tempfile
    >>> from collidescope import CollisionMatrix, summarise
    >>> cm = CollisionMatrix(
    ...     [[0.9, 0.1], [0.2, 0.8]], priors=[2 / 3, 1 / 3], classes=["cat", "dog"]
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_report(summarise(cm), Path(folder) / "report.html").read_text(
    ...         encoding="utf-8"
    ...     )
    >>> "An input labelled dog would be labelled cat the second time in 20.0% of cases" in page
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
    """Summarise and write the report: :func:`~collidescope.summarise`, then :func:`~collidescope.write_report`.

    ``source``, ``X``, ``y`` and ``options`` (``y_pred``, ``rows``, ``image_shape``, ``control``, ``limit``, ``title``,
    ``about``, ``notes``, ``sections``) are those of summarise. Returns the path.

    >>> import tempfile
    >>> P = [[0.9, 0.1], [0.4, 0.6], [0.7, 0.3], [0.2, 0.8]]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report(
    ...         P, y=["a", "b", "a", "b"], path=f"{folder}/report.html", title="Two classes"
    ...     ).name
    'report.html'
    """
    plotly_js()  # before the work, not after it
    return write_report(summarise(source, X, y, **options), path)


def render(summary: Mapping[str, Any]) -> str:
    """The page as text."""
    plotly = plotly_js()
    import jinja2

    folder = resources.files("collidescope.show")
    assets = ("template.html.j2", "report.css", "report.js")
    page, css, script = (folder.joinpath(name).read_text(encoding="utf-8") for name in assets)
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    filters = (
        percent,
        between,
        span,
        named,
        cell,
        words.method,
        words.points,
        words.rows_to_look_at,
    )
    environment.filters |= {function.__name__: function for function in filters}
    environment.filters["count"] = lambda value: "" if value is None else f"{value:,.0f}"
    hashes = (
        base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
        for code in (plotly, script)
    )
    return environment.from_string(page).render(
        s=summary,
        css=css,
        plotly_js=plotly,
        script=script,
        hashes=" ".join(f"'sha256-{digest}'" for digest in hashes),
        table_classes=TABLE_CLASSES,
        steps=merge_steps(summary),
        widest=max(
            [pair["high"] or pair["rate"] for pair in summary["top_collisions"]], default=1.0
        )
        or 1.0,
    )


def cell(value: Any) -> str:
    """A value in the table of a section.

    >>> cell(0.25), cell(2e-10), cell(1234.5), cell(3), cell(None)
    ('0.2500', '<0.0001', '1234', '3', '')
    """
    if not isinstance(value, float):
        return "" if value is None else str(value)
    tiny = 0 < abs(value) < 0.00005
    return (
        ("<0.0001" if value > 0 else ">-0.0001")
        if tiny
        else f"{value:.4f}"
        if abs(value) < 10
        else f"{value:.4g}"
    )


def merge_steps(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The first steps of the merge path with names in place of numbers."""
    path, steps = summary["merge_path"] or {"pber": ()}, []
    members = [[named(name)] for name in summary["classes"]]
    for step in range(1, min(len(path["pber"]), TABLE_STEPS + 1)):
        entry = {
            column: path[column][step] for column in ("n_groups", "pber", "low", "high", "limit")
        }
        first, second = (members[path[side][step]] for side in ("first", "second"))
        for side, group in (("first", first), ("second", second)):
            entry[side] = " + ".join(group[:6]) + (
                f" and {len(group) - 6} more" if len(group) > 6 else ""
            )
        first += second
        steps.append(entry)
    return steps


def named(name: Any) -> str:
    """The name, or words for an empty one."""
    return str(name) if str(name).strip() else "(empty name)"


def plotly_js() -> str:
    """The source of plotly.js that comes with plotly."""
    try:
        import jinja2  # noqa: F401
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        hint = 'pip install "collidescope[report]"'
        raise ImportError(f"The HTML report needs jinja2 and plotly ({error}): {hint}") from error
    return str(get_plotlyjs())
