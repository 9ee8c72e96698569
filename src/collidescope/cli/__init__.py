"""The command line: arguments, words and exit codes (see ``--help``) only."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line."""
    # Small batches gain little from threads, and lose much when other programs want the cores:
    # folds run in parallel instead. This must be said before numpy and torch are loaded.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if hasattr(os, "nice"):
        # Workers inherit it: all cores are used, and other programs come first.
        os.nice(5)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A terminal that knows no "×" must not end the run, nor show names as question marks.
            stream.reconfigure(errors="backslashreplace")
    try:
        from collidescope.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("typer", "rich"):
            raise
        needs = "collidescope: the command line needs typer, skrub and pyarrow"
        print(f'{needs}: pip install "collidescope[cli]"', file=sys.stderr)
        sys.exit(2)
    app(prog_name="collidescope")
