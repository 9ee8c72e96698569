"""What every command that ends in a collision matrix prints and writes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from collidescope.cli._console import say, show, show_json
from collidescope.cli._writing import write_matrix, write_outputs
from collidescope.matrix import CollisionMatrix

#: Pairs printed below the matrix.
PAIRS = 5


def summary_of(source: Any, X: Any = None, y: Any = None, **options: Any) -> dict[str, Any]:
    """:func:`collidescope.summarise`, imported when it is needed."""
    from collidescope.show import summarise

    return summarise(source, X, y, **options)


def print_matrix(cm: CollisionMatrix, summary: dict[str, Any]) -> None:
    """S, the pairs that collide most, and what to do about them."""
    show(str(cm))
    if 2 < cm.n_classes <= 12:
        show("\nMost colliding pairs, with 95% intervals:")
        show(cm.top_collisions(PAIRS).to_string(index=False, float_format="{:.4f}".format))
    if summary["what_to_do"]:
        show("\nWhat to do about it:")
        for sentence in summary["what_to_do"]:
            show(f"- {_for_terminal(sentence)}")


def _for_terminal(sentence: str) -> str:
    """Advice without what only the page has."""
    sentence = sentence.replace("Try it in the merge explorer.", "See `collidescope merge`.")
    return re.sub(r" \(see (Rows|Trust)\)", "", sentence)


def finish(
    cm: CollisionMatrix,
    summary: dict[str, Any],
    *,
    as_json: bool,
    report: Path | None,
    matrix: Path | None,
    more: Sequence[tuple[str, Path | None, Any]] = (),
) -> None:
    """Print the result, then write what was asked for; ``more`` outputs come first (see :func:`write_outputs`)."""
    if as_json:
        show_json(summary)
    else:
        print_matrix(cm, summary)
    write_outputs(
        *more, ("matrix", matrix, partial(write_matrix, cm)), ("report", report, partial(write_summary, summary))
    )


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


def next_steps(commands: Sequence[str]) -> None:
    """Commands that go on from here."""
    if commands:
        say("Next:", "dim")
    for command in commands:
        say(f"  {command}", "dim")
