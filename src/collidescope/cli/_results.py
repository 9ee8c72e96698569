"""What every command that ends in a collision matrix prints and writes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collidescope._text import as_text, pairs_text, short
from collidescope.cli._console import show, show_json
from collidescope.cli._writing import write_matrix, write_outputs
from collidescope.matrix import CollisionMatrix

if TYPE_CHECKING:
    import pandas as pd

#: Pairs printed below the matrix.
PAIRS = 5
#: Characters of a class name that a narrow terminal leaves.
FEWEST = 10


def summary_of(source: Any, X: Any = None, y: Any = None, **options: Any) -> dict[str, Any]:
    """:func:`collidescope.summarise`, imported when it is needed."""
    from collidescope.show import summarise

    return summarise(source, X, y, **options)


def print_matrix(cm: CollisionMatrix, summary: dict[str, Any], limit: Any = None) -> None:
    """S, the pairs that collide most, and what to do about them."""
    show(as_text(cm, limit))
    if 2 < cm.n_classes <= 12:
        show("\nMost colliding pairs, with 95% intervals:")
        show(pairs_text(cm, PAIRS))
    if summary["what_to_do"]:
        show("\nWhat to do about it:")
        for sentence in summary["what_to_do"]:
            show(f"- {for_terminal(sentence)}")


def for_terminal(sentence: str) -> str:
    r"""A sentence without the marks that only pages obey: many terminals print them.

    >>> for_terminal("labelled “\u2068قطة\u2069”")
    'labelled “قطة”'
    """
    return re.sub("[\u2068\u2069]", "", sentence)


def fitting(table: pd.DataFrame, names: Sequence[str]) -> str:
    """A table as text no wider than the terminal: the columns ``names``, which hold class names, are cut."""

    def text(longest: int) -> str:
        cut = {name: [short(value, longest) for value in table[name].fillna("")] for name in names}
        return str(table.assign(**cut).to_string(index=False, float_format="{:.4f}".format, na_rep=""))

    longest = max((len(str(value)) for name in names for value in table[name]), default=FEWEST)
    while longest > FEWEST and len(text(longest).splitlines()[0]) > shutil.get_terminal_size((100, 24)).columns:
        longest -= 1
    return text(longest)


def finish(
    cm: CollisionMatrix,
    summary: dict[str, Any],
    *,
    as_json: bool,
    report: Path | None,
    matrix: Path | None,
    more: Sequence[tuple[str, Path | None, Any]] = (),
    limit: Any = None,
) -> None:
    """Print the result, then write what was asked for; ``more`` outputs come first (see :func:`write_outputs`)."""

    def write() -> None:
        report_of = partial(write_summary, summary)
        write_outputs(*more, ("matrix", matrix, partial(write_matrix, cm)), ("report", report, report_of))

    print_then_write(lambda: show_json(summary) if as_json else print_matrix(cm, summary, limit), write)


def print_then_write(answer: Callable[[], None], write: Callable[[], None]) -> None:
    """The answer before any file, for a full disk must not lose it; the files also when nobody reads to its end."""
    try:
        answer()
    except BrokenPipeError:  # head has seen enough
        write()
        raise
    write()


def write_summary(summary: dict[str, Any], path: Path) -> None:
    """The report of ``summary``."""
    from collidescope.show import write_report

    write_report(summary, path)


def check_report(report: Path | None) -> None:
    """Before any work: can the report be written?"""
    if report is None:
        return
    missing = []
    for package in ("jinja2", "plotly"):
        try:
            __import__(package)
        except ImportError:
            missing.append(package)
    if missing:
        raise ImportError(f'the report needs {" and ".join(missing)}: pip install "collidescope[report]"')
