"""Files that the user names, as the rows and matrices that the commands work on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collidescope._store import read_json
from collidescope.matrix import FORMAT as MATRIX_FORMAT
from collidescope.matrix import CollisionMatrix
from collidescope.tables.encoder import listed, near_name
from collidescope.tables.labels import clean_labels
from collidescope.tables.reading import Table, existing, looks_like_data, read_table

if TYPE_CHECKING:
    import pandas as pd

#: Names that label columns often have.
USUAL_LABELS = ("label", "target", "class", "y", "outcome", "category")


@dataclass(frozen=True)
class Reading:
    """How a text file is to be read."""

    header: bool = True
    delimiter: str | None = None
    skip_lines: int = 0

    def read(self, path: Path, label: str | None = None, text: Sequence[str] = ()) -> Table:
        """The table in ``path``."""
        delimiter = {"tab": "\t", "\\t": "\t", "space": " "}.get(self.delimiter or "", self.delimiter)
        if delimiter is not None and len(delimiter) != 1:
            raise ValueError(f"--delimiter must be one character, or tab, or space, got {delimiter!r}")
        options: dict[str, Any] = {"header": self.header, "delimiter": delimiter, "skip_lines": self.skip_lines}
        return read_table(path, label=label, text=text, **options)


@dataclass(frozen=True)
class Rows:
    """Labelled rows.

    Attributes
    ----------
    X : DataFrame
    y : array
    label : str
    numbers : array
        Of the rows in the file, from 0.
    notes : list of str
    """

    X: pd.DataFrame
    y: npt.NDArray[Any]
    label: str
    numbers: npt.NDArray[np.intp]
    notes: list[str] = field(default_factory=list)

    def part(self, rows: npt.NDArray[Any], notes: Sequence[str] = ()) -> Rows:
        """Some of the rows."""
        return Rows(
            self.X.iloc[rows].reset_index(drop=True),
            self.y[rows],
            self.label,
            self.numbers[rows],
            [*self.notes, *notes],
        )


def label_column(columns: Sequence[str], label: str | None, path: Path, header: bool = True) -> str:
    """The name of the label column: as given, by its number where there is no header, or an error with help."""
    names = [str(name) for name in columns]
    if label is None:
        usual = next((name for name in names if name.casefold() in USUAL_LABELS), names[-1])
        raise ValueError(
            f"say which column holds the classes, with --label {usual!r} for example: {path.name} has {listed(names)}"
        )
    if label in names:
        return label
    if not header and label.removeprefix("-").isdigit() and 1 <= abs(int(label)) <= len(names):
        return names[int(label) - (int(label) > 0)]
    near = near_name(label, names)
    hint = f": did you mean {near!r}?" if near else f": it has {listed(names)}."
    data = (
        " Its first line looks like data: if it has no line of names, use --no-header."
        if looks_like_data(names)
        else ""
    )
    raise ValueError(f"there is no column {label!r} in {path.name}{hint}{data if header else ''}")


def labelled_rows(path: Path, label: str | None, reading: Reading, categories: Sequence[str] = ()) -> Rows:
    """Rows with a label; what was guessed and left out is in the notes."""
    found = reading.read(path, label, categories)
    name = label_column(list(found.frame.columns), label, path, found.has_header)
    if name != label:  # given by number: read again, for "none" is an answer in a label
        found = reading.read(path, name, categories)
    frame = found.frame
    labels = clean_labels(frame[name])
    rows = np.flatnonzero(labels.rows)
    X = frame.drop(columns=name)
    if X.shape[1] == 0:
        raise ValueError(f"{path.name} has no column but {name!r}: there is nothing to tell classes apart by")
    X = X.iloc[rows].reset_index(drop=True)
    return Rows(X, labels.y, name, rows, [*found.notes, *labels.notes])


def without_rare(rows: Rows, fewest: int, *, sampled: bool = False) -> Rows:
    """Without the classes that have fewer than ``fewest`` rows."""
    classes, codes, counts = np.unique(rows.y, return_inverse=True, return_counts=True)
    rare = counts < fewest
    if not rare.any():
        return rows
    if (~rare).sum() < 2:
        raise ValueError(
            f"only {int((~rare).sum())} of {len(classes)} classes have {fewest} rows or more: nothing to tell apart"
        )
    keep = np.flatnonzero(~rare[codes])
    where = " in the sample" if sampled else ""
    said = f"classes with fewer than {fewest} rows{where} are left out: {listed(classes[rare].tolist())}"
    return rows.part(keep, [f"{said} ({len(codes) - len(keep):,} rows)"])


def sampled(rows: Rows, size: int | None, fewest: int, seed: int) -> Rows:
    """``size`` rows at random, without the classes that are too small then."""
    if size is None or size >= len(rows.y):
        return rows
    # With the rows in the order of their classes an even comb keeps the shares of all classes.
    order = np.lexsort((np.random.default_rng(seed).random(len(rows.y)), np.unique(rows.y, return_inverse=True)[1]))
    chosen = np.sort(order[np.linspace(0, len(order) - 1, size).round().astype(np.intp)])
    said = f"a first look at {size:,} of {len(rows.y):,} rows: with all of them the numbers are surer and often lower"
    return without_rare(rows.part(chosen, [said]), fewest, sampled=True)


def check_members(rows: Rows, cv: int) -> None:
    """Refuse classes with fewer rows than folds, with what to do."""
    classes, counts = np.unique(rows.y, return_counts=True)
    few = counts < cv
    if few.any():
        named = ", ".join(f"{name!r} ({n})" for name, n in zip(classes[few].tolist()[:5], counts[few], strict=False))
        more = f" and {int(few.sum()) - 5} more" if few.sum() > 5 else ""
        fewer = f", or fewer folds (--cv {max(2, int(counts.min()))})" if counts.min() >= 2 else ""
        raise ValueError(
            f"too few rows for {cv} folds in {named}{more}: every class needs {cv}. "
            f"Leave such classes out with --drop-rare {cv}{fewer}; with fewer than about 30 rows a class says little"
        )


def grouped_splits(rows: Rows, group: str, folds: int, seed: int) -> list[tuple[Any, Any]]:
    """Folds that share no value of the column ``group``, with the classes spread as evenly as that allows."""
    from sklearn.model_selection import StratifiedGroupKFold

    from collidescope.tables._values import as_levels
    from collidescope.tables.encoder import check_columns

    check_columns(rows.X, [group])
    codes, words = as_levels(rows.X[group])
    gaps = codes < 0
    # A row without a value is a group of its own.
    codes[gaps] = len(words) + np.arange(int(gaps.sum()))
    if len(np.unique(codes)) < folds:
        raise ValueError(f"--group {group!r} has {len(words)} different values, {folds} folds need as many")
    splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
    return list(splitter.split(np.zeros((len(codes), 1)), rows.y, codes))


def load_matrix(path: Path) -> CollisionMatrix:
    """S from a matrix in JSON or from a model."""
    source = load_source(path)
    if isinstance(source, dict):
        raise ValueError(
            f"{path} is a summary, which rounds what merging needs: give the model, or the JSON of --matrix"
        )
    return source if isinstance(source, CollisionMatrix) else source.collision_matrix_


def load_source(path: Path) -> Any:
    """A model, a matrix, or a summary (a dict), told apart by what is in the file."""
    path = existing(path)
    with open(path, "rb") as file:
        start = file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"PK"):
        return CollisionMatrix.from_npz(path)
    if not start.startswith(b"{"):
        from collidescope.tables import load

        return load(path)
    content = read_json(path)
    kind = content.get("format") if isinstance(content, dict) else None
    if kind == MATRIX_FORMAT:
        return CollisionMatrix.from_dict(content)
    if kind == "collidescope.summary":
        return content
    raise ValueError(
        f"{path} is JSON, but neither a matrix (written by --matrix) nor a summary (written by --json) of collidescope"
    )


def load_model(path: Path) -> Any:
    """A fitted model."""
    source = load_source(path)
    if not hasattr(source, "predict_proba"):
        raise ValueError(f"{path} is no model: give a file written by `collidescope fit … --save model.collide`")
    return source
