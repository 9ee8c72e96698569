"""What the command ``fit`` does alike for tables and for images: train, tell S, write."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import typer

import collidescope as cs
from collidescope._text import duration
from collidescope.cli._console import INTERRUPTED, notes_as_they_come, say
from collidescope.cli._inputs import Rows, Run, summarised
from collidescope.cli._run import Output, posterior_table


def largest_classes(y: Any, most: int = 6) -> str:
    """The classes with most rows, and how many each has."""
    counts = pd.Series(y).value_counts(sort=False).sort_index()
    counts = counts.sort_values(ascending=False, kind="stable")
    named = [f"{name} {count:,}" for name, count in counts.head(most).items()]
    return ", ".join(named if len(counts) <= most else [*named, "…"])


@dataclass(frozen=True)
class Fit:
    """A model, the rows that it is fitted to, and what is asked for."""

    model: cs.CollisionClassifier
    rows: Rows
    X: Any  #: the rows as the model takes them
    save: Path | None  #: where the model is written
    control: bool  #: whether to fit again on shuffled labels
    labels: pd.DataFrame  #: a column of ``--out``,
    inputs: pd.DataFrame  #: and others
    cautions: Sequence[str] = ()  #: what to know before acting
    shown: pd.DataFrame | None = None  #: what the report shows in the place of ``X``


def train(run: Run, asked: Fit, fit: Callable[[], Any]) -> None:
    """Call ``fit``, which fits the model to the rows, tell S, and write what was asked for.

    After Ctrl-C the command ends here.
    """
    model = asked.model
    rows = asked.rows
    started = time.perf_counter()
    with notes_as_they_come():
        fit()
        checked = None
        if asked.control and not model.interrupted_:
            say("Fitting again on shuffled labels, where there is nothing to find:")
            checked = model.shuffled_control(asked.X, rows.y)
            say(str(checked))
        seconds = time.perf_counter() - started
        say(f"Took {duration(seconds)} and {_peak_memory()}.")
        about = run.about(
            rows.table.name,
            rows.label or None,
            saved=asked.save or run.matrix,
            seconds=seconds,
            cautions=asked.cautions,
        )
        summary = summarised(
            model,
            asked.X,
            rows.y,
            rows=asked.shown,
            control=checked,
            title=run.title,
            about=about,
            notes=[*rows.notes, *getattr(model, "notes_", ())],
        )
    heldout = posterior_table(
        model.posteriors_, model.classes_, rows.numbers, asked.labels, asked.inputs
    )
    saved = Output("model", asked.save, model.save)
    run.finish(model.collision_matrix_, summary, saved, table=heldout)
    if model.interrupted_:
        say(
            "Stopped by Ctrl-C: these are the results of the folds trained so far, and "
            "all requested files are written.",
            always=True,
        )
        raise typer.Exit(INTERRUPTED)


def _peak_memory() -> str:
    """What this process and the largest of its workers have held at most."""
    try:
        import resource
    except ImportError:  # Windows
        return "an unknown amount of memory"
    kilo = 1 if sys.platform == "darwin" else 1024
    own = kilo * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    worker = kilo * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    said = f"{own / 1e9:.1f} GB"
    if worker > own / 2:
        said += f", {worker / 1e9:.1f} GB per worker"
    return said
