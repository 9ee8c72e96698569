"""The command ``fit`` on images: a folder with one subfolder per class, or a table of paths."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import typer

import collidescope as cs
from collidescope._text import duration
from collidescope.cli._console import INTERRUPTED, notes_as_they_come, say
from collidescope.cli._inputs import Rows, Run, summarised
from collidescope.cli._run import Output, posterior_table
from collidescope.tables.images import read_images


@dataclass(frozen=True)
class ImageFiles:
    """Images, and a table of their files with labels."""

    X: npt.NDArray[np.uint8]
    files: Rows

    @property
    def chosen(self) -> npt.NDArray[np.uint8]:
        """Of the files in the table."""
        return self.X[self.files.numbers]


def check_options(given: Mapping[str, object]) -> None:
    """Refuse options that concern the columns of a table."""
    for name, value in given.items():
        if value:
            raise ValueError(f"{name} is for tables with columns, not for images")


def read_files(
    run: Run,
    source: Path,
    size: int | None,
    skip_bad: bool,
    largest_side: int = 96,
) -> ImageFiles:
    """Images as large as the networks take them, or of ``size`` pixels a side."""
    errors = "raise"
    if skip_bad:
        errors = "skip"
    say(f"Reading the images of {source} …")
    with notes_as_they_come() as met:
        X, y, paths = read_images(
            source, size, label=run.label, largest_side=largest_side, errors=errors
        )
    folder = source
    if not source.is_dir():
        folder = source.parent
    names = [_relative(path, folder) for path in paths]
    table = pd.DataFrame({"file": names})
    label = run.label or "class"
    numbers = np.arange(len(y))
    files = Rows(source, label, table, y, numbers, list(met))
    return ImageFiles(X, files)


def _relative(path: Path, folder: Path) -> str:
    if path.is_relative_to(folder):
        return str(path.relative_to(folder))
    return str(path)


def fit_images(
    run: Run,
    model: cs.CollisionClassifier,
    images: ImageFiles,
    save: Path | None,
    control: bool,
) -> None:
    """Fit the model to the images, tell S, and write what was asked for."""
    X = images.chosen
    files = images.files
    _introduce(files, X)
    started = time.perf_counter()
    with notes_as_they_come():
        model.fit(X, files.y)
        checked = None
        if control and not model.interrupted_:
            say("Again, on shuffled labels, where nothing must be found:")
            checked = model.shuffled_control(X, files.y)
        seconds = time.perf_counter() - started
        say(f"Took {duration(seconds)}.")
        about = run.about(
            str(files.table), files.label, saved=save or run.matrix, seconds=seconds
        )
        summary = summarised(
            model,
            X,
            files.y,
            rows=files.X,
            control=checked,
            title=run.title,
            about=about,
            notes=files.notes,
        )
    labels = pd.DataFrame({"label": files.y})
    heldout = posterior_table(
        model.posteriors_, model.classes_, files.numbers, labels, files.X
    )
    saved = Output("model", save, model.save)
    run.finish(model.collision_matrix_, summary, saved, table=heldout)
    if model.interrupted_:
        say(
            "Stopped by Ctrl-C: this is what the folds trained so far say.", always=True
        )
        raise typer.Exit(INTERRUPTED)


def _introduce(files: Rows, X: npt.NDArray[np.uint8]) -> None:
    n, height, width, channels = X.shape
    colours = "grey"
    if channels > 1:
        colours = "in colour"
    counts = pd.Series(files.y).value_counts()
    largest = counts.head(6)
    named = []
    for name, count in largest.items():
        named.append(f"{name} {count:,}")
    words = ", ".join(named)
    say(
        f"{files.table.name}: {n:,} images of {height} × {width} pixels, {colours}; "
        f"{len(counts)} classes: {words}"
    )
