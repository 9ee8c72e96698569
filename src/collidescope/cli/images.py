"""The command ``fit`` on images: a folder with one subfolder per class, or a table of paths."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

import collidescope as cs
from collidescope._checks import FloatArray
from collidescope.cli._console import notes_as_they_come, say
from collidescope.cli._fitting import Fit, largest_classes, train
from collidescope.cli._inputs import Rows, Run
from collidescope.tables.images import new_images, read_images

Images = npt.NDArray[np.uint8]


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
) -> tuple[Images, Rows]:
    """Images as large as the networks take them, or of ``size`` pixels a side; their files."""
    say(f"Reading the images of {source} …")
    with notes_as_they_come() as met:
        X, y, paths = read_images(
            source,
            size,
            label=run.label,
            largest_side=largest_side,
            errors="skip" if skip_bad else "raise",
        )
    folder = source if source.is_dir() else source.parent
    table = pd.DataFrame({"file": [_relative(path, folder) for path in paths]})
    label = run.label or ""  # a folder has no column of labels
    return X, Rows(source, label, table, y, np.arange(len(y)), list(met))


def predict_files(
    fitted: cs.CollisionClassifier, folder: Path, skip_bad: bool
) -> tuple[pd.DataFrame, FloatArray, list[str]]:
    """Files of a folder and their posteriors, and what was met on the way."""
    shape = fitted._ensemble.row_shape
    if len(shape) != 3:
        raise ValueError(
            f"{folder} is a folder, but the model was fitted on a table: give a table "
            "with the same columns"
        )
    if not folder.is_dir():
        raise ValueError(
            f"{folder} is not a folder, but the model was fitted on images: give a "
            "folder of images"
        )
    with notes_as_they_come() as met:
        X, paths = new_images(folder, shape, "skip" if skip_bad else "raise")
        P = fitted.predict_proba(X)
    names = [_relative(path, folder) for path in paths]
    return pd.DataFrame({"file": names}), P, met


def _relative(path: Path, folder: Path) -> str:
    if path.is_relative_to(folder):
        return str(path.relative_to(folder))
    return str(path)


def fit_images(
    run: Run,
    model: cs.CollisionClassifier,
    X: Images,
    files: Rows,
    save: Path | None,
    control: bool,
) -> None:
    """Fit the model to the images, tell S, and write what was asked for."""
    n, height, width, channels = X.shape
    colours = "in colour" if channels > 1 else "grey"
    say(
        f"{files.table.name}: {n:,} images of {height} × {width} pixels, {colours}; "
        f"{files.n_classes} classes: {largest_classes(files.y)}"
    )
    labels = pd.DataFrame({"label": files.y})
    asked = Fit(model, files, X, save, control, labels, inputs=files.X, shown=files.X)
    train(run, asked, lambda: model.fit(X, files.y))
