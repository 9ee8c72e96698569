"""What every command that ends in a collision matrix prints and writes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collidescope._matrix_files import JSON_CLASSES
from collidescope.cli._console import say, show, show_json
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
    written: dict[str, Path] | None = None,
) -> None:
    """Write what was asked for, print the result, and name the files, those that are ``written`` already first."""
    files = dict(written or {})
    # Files first: a reader of the output, such as head, may close it.
    if matrix is not None:
        files["matrix"] = write_matrix(cm, matrix)
    if report is not None:
        from collidescope.show import write_report

        write_report(summary, report)
        files["report"] = report
    if as_json:
        show_json(summary)
    else:
        print_matrix(cm, summary)
    say_written(files)


def write_matrix(cm: CollisionMatrix, path: Path) -> Path:
    """S as JSON, or in binary where ``path`` ends in .npz or there are too many classes; the file that was written."""
    if path.suffix != ".npz" and cm.n_classes <= JSON_CLASSES:
        cm.to_json(path)
        return path
    path = path.with_suffix(".npz")
    cm.to_npz(path)
    return path


def say_written(files: dict[str, Path]) -> None:
    """Name the files."""
    for what, path in files.items():
        say(f"{what}: {path}", "green")


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
