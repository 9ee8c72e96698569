"""Files that the user names, as the rows, labels and matrices that the commands work on."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collidescope._checks import check_choice
from collidescope._store import read_json, regular_file
from collidescope.folds import handle_rare
from collidescope.matrix import FORMAT as MATRIX_FORMAT
from collidescope.matrix import CollisionMatrix
from collidescope.tables.encoding import MISSING_WORDS, as_levels, as_numbers, as_word, check_columns, listed, near_name
from collidescope.tables.reading import Table, looks_like_data, read_table

if TYPE_CHECKING:
    import pandas as pd

#: Names that label columns often have.
USUAL_LABELS = ("label", "target", "class", "y", "outcome", "category")
#: In the label column "none" is an answer like any other.
MISSING_LABELS = tuple(word for word in MISSING_WORDS if word.lower() != "none")
#: More distinct whole numbers than this, and they count or measure something; the same for numbers with a fractional
#: part: half marks and the like are classes, amounts are not.
MOST_NUMBER_CLASSES, MOST_FRACTION_CLASSES = 200, 10
#: A number with this many values and fewer rows for each than below is no class either.
FEW_NUMBER_CLASSES, ROWS_PER_NUMBER = 20, 10
#: Rows that a class of text needs on average; with fewer, the column holds names or free text.
ROWS_PER_CLASS = 2
#: Whole numbers that mean the same whatever reads them: "007", "+1" and "1.0" are text.
INTEGER = re.compile(r"0|-?[1-9]\d{0,17}")
#: Files of this many bytes are worth saying that they are being read.
LARGE = 5_000_000


@dataclass(frozen=True)
class Reading:
    """How a text file is to be read."""

    header: bool = True
    delimiter: str | None = None
    skip_lines: int = 0

    def read(self, path: Path, label: Any = None, text: Sequence[str] = ()) -> Table:
        """The table in ``path``; says so first where it is large."""
        from collidescope.cli._console import say

        delimiter = {"tab": "\t", "\\t": "\t", "space": " "}.get(self.delimiter or "", self.delimiter)
        if delimiter is not None and len(delimiter) != 1:
            raise ValueError(f"--delimiter must be one character, or tab, or space, got {delimiter!r}")
        if path.is_file() and path.stat().st_size >= LARGE:
            say(f"Reading {path.name} ({path.stat().st_size / 1e6:,.0f} MB) …")
        options: dict[str, Any] = {"header": self.header, "delimiter": delimiter, "skip_lines": self.skip_lines}
        return read_table(path, label=label, text=text, **options)


@dataclass(frozen=True)
class Rows:
    """Labelled rows."""

    X: pd.DataFrame
    y: npt.NDArray[Any]
    label: str
    #: Of the rows in the file, from 0.
    numbers: npt.NDArray[np.intp]
    notes: list[str] = field(default_factory=list)

    def part(self, rows: npt.NDArray[Any], notes: Sequence[str] = (), y: npt.NDArray[Any] | None = None) -> Rows:
        """Some of the rows, with their labels or with ``y`` instead."""
        X = self.X if len(rows) == len(self.y) else self.X.iloc[rows].reset_index(drop=True)
        return Rows(X, self.y[rows] if y is None else y, self.label, self.numbers[rows], [*self.notes, *notes])


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
    if header and looks_like_data(names):
        hint += " Its first line looks like data: if it has no line of names, use --no-header."
    raise ValueError(f"there is no column {label!r} in {path.name}{hint}")


def labelled_rows(path: Path, label: str | None, reading: Reading, categories: Sequence[str] = ()) -> Rows:
    """Rows with a label; what was guessed and left out is in the notes."""
    found = reading.read(path, lambda names: label_column(names, label, path, reading.header), categories)
    assert found.label is not None
    y, used, notes = clean_labels(found.frame[found.label])
    rows = np.flatnonzero(used)
    X = found.frame.drop(columns=found.label)
    if X.shape[1] == 0:
        raise ValueError(f"{path.name} has no column but {found.label!r}: there is nothing to tell classes apart by")
    X = X.iloc[rows].reset_index(drop=True)
    return Rows(X, y, found.label, rows, [*found.notes, *notes])


def without_rare(rows: Rows, fewest: int) -> Rows:
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
    said = f"classes with fewer than {fewest} rows are left out: {listed(classes[rare].tolist())}"
    return rows.part(keep, [f"{said} ({len(codes) - len(keep):,} rows)"])


def with_rare_handled(rows: Rows, rare: str) -> Rows:
    """Without classes of a single row, or with these joined: what ``rare`` of the classifier does, before the fit."""
    check_choice(rare, ["error", "drop", "merge"], "--rare")
    notes: list[str] = []
    y, used = handle_rare(rows.y, np.arange(len(rows.y)), rare, notes)
    return rows.part(used, notes, y[used])


def sampled(rows: Rows, size: int | None, seed: int) -> Rows:
    """``size`` rows at random, with the shares of all classes."""
    if size is None or size >= len(rows.y):
        return rows
    # With the rows in the order of their classes an even comb keeps the shares of all classes.
    order = np.lexsort((np.random.default_rng(seed).random(len(rows.y)), np.unique(rows.y, return_inverse=True)[1]))
    chosen = np.sort(order[np.linspace(0, len(order) - 1, size).round().astype(np.intp)])
    said = f"a first look at {size:,} of {len(rows.y):,} rows: with all of them the numbers are surer and often lower"
    return without_rare(rows.part(chosen, [said]), 2)


def unique_rows(rows: Rows) -> Rows:
    """Every row once: of rows that are alike, label included, the first."""
    again = rows.X.assign(**{"the label": rows.y}).duplicated().to_numpy()
    return rows.part(
        np.flatnonzero(~again), [f"{int(again.sum()):,} rows repeat an earlier one and are left out (--unique)"]
    )


def take_column(rows: Rows, name: str | None, what: str) -> tuple[Rows, Any]:
    """The rows without the column ``name``, and that column; ``what`` is the option that named it."""
    if name is None:
        return rows, None
    if name == rows.label:
        raise ValueError(f"{what} {name!r} is the label: name another column")
    check_columns(rows.X, [name])
    if rows.X.shape[1] == 1:
        raise ValueError(f"{what} {name!r} is the only column: there is nothing to tell classes apart by")
    return Rows(rows.X.drop(columns=name), rows.y, rows.label, rows.numbers, rows.notes), rows.X[name]


def group_codes(column: pd.Series | None) -> npt.NDArray[np.intp] | None:
    """A number for every group; a row without a value is a group by itself."""
    if column is None:
        return None
    codes, words = as_levels(column)
    return np.where(codes < 0, len(words) + np.arange(len(codes)), codes)


def row_weights(column: pd.Series | None) -> npt.NDArray[np.float64] | None:
    """The weights in a column; all must be numbers."""
    if column is None:
        return None
    weights = as_numbers(column)
    if (bad := np.isnan(weights)).any():
        at = int(bad.argmax())
        raise ValueError(
            f"--sample-weight {str(column.name)!r} has {int(bad.sum()):,} cells without a number (row {at}: "
            f"{str(column.iloc[at])!r}): fill them, with 0 to leave a row out"
        )
    return weights


@contextmanager
def notes_as_they_come() -> Iterator[list[str]]:
    """What the package logs, as notes at once, and at the end what it warned about besides."""
    from collidescope.cli._console import note, warnings_as_notes

    logger = logging.getLogger("collidescope.tables")
    handler, level = logging.Handler(), logger.level
    with warnings_as_notes() as said:

        def emit(record: logging.LogRecord) -> None:
            said.append(record.getMessage())
            note(said[-1])

        handler.emit = emit  # type: ignore[method-assign]
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield said
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)


# ---------------------------------------------------------------- labels


class Labels(NamedTuple):
    """Labels of the rows that have one, which rows these are, and what there is to say."""

    y: npt.NDArray[Any]
    rows: npt.NDArray[np.bool_]
    notes: list[str]


def clean_labels(column: pd.Series) -> Labels:
    """Labels as whole numbers or booleans where all are, else as text; rows without one are left out.

    >>> import pandas as pd
    >>> clean_labels(pd.Series(["1", "2", "", "1", "2"], name="y")).y
    array([1, 2, 1, 2])
    >>> clean_labels(pd.Series(["1.10", "1.1", "+1", "1.10", "1.1", "+1"], name="y")).y.tolist()
    ['1.10', '1.1', '+1', '1.10', '1.1', '+1']
    """
    name = str(column.name)
    codes, words = as_levels(column, MISSING_LABELS)
    rows = codes >= 0
    notes = []
    if not rows.all():
        gone = column[~rows]
        lost = sorted({as_word(value) for value in gone.dropna().unique()} - {""})
        written = f", written as {listed(lost)}" if lost else ""
        said = f"{len(gone):,} of {len(rows):,} rows have no label in {name!r}{written}, and are left out"
        notes.append(f"{said} (the first is row {int((~rows).argmax())})")
    if not words:
        raise ValueError(f"label {name!r} has no values: every cell is empty")
    if len(words) < 2:
        raise ValueError(f"label {name!r} has a single value ({words[0]!r}): there is nothing to tell apart")
    n = int(rows.sum())
    if (numbers := _numbers(words)) is not None:
        k, whole = len(words), (numbers == np.round(numbers)).all()
        many = k > (MOST_NUMBER_CLASSES if whole else MOST_FRACTION_CLASSES)
        if many or (k > FEW_NUMBER_CLASSES and k * ROWS_PER_NUMBER > n):
            raise ValueError(
                f"label {name!r} has {k:,} different numbers in {n:,} rows (from {numbers.min():g} to "
                f"{numbers.max():g}): it looks like a number to predict, not classes; bin it first, into low, middle "
                f"and high for example"
            )
    elif len(words) * ROWS_PER_CLASS > n:
        raise ValueError(
            f"label {name!r} has {len(words):,} different values in {n:,} rows (such as {listed(words[:3])}): "
            f"these are not classes. Is it the right column?"
        )
    else:
        notes += _spellings(words)
        if any(word.lower() == "none" for word in words):
            notes.append(f"'none' in {name!r} is taken as a class, not as a missing label")
    values: list[Any] = words
    if set(words) == {"True", "False"}:
        values = [word == "True" for word in words]
    elif all(INTEGER.fullmatch(word) for word in words):
        values = [int(word) for word in words]
    return Labels(np.array(values)[codes[rows]], rows, notes)


def _numbers(words: list[str]) -> npt.NDArray[np.float64] | None:
    try:
        return np.array([float(word) for word in words])
    except ValueError:
        return None


def _spellings(words: list[str]) -> list[str]:
    """Classes that differ only in case or a full stop are probably one."""
    seen: dict[str, str] = {}
    for word in words:
        plain = word.casefold().rstrip(". ")
        if plain in seen:
            return [f"classes {seen[plain]!r} and {word!r} differ only in spelling: are they one?"]
        seen[plain] = word
    return []


def match_labels(
    column: pd.Series, classes: Sequence[Any], what: str
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Labels of another table as the classes of a model: (labels, rows that have one).

    >>> import pandas as pd
    >>> match_labels(pd.Series(["1", None, "0"]), [0, 1], "label")[0]
    array([1, 0])
    """
    from collidescope.cli._writing import guard

    codes, words = as_levels(column, MISSING_LABELS)
    exact = {as_word(name): k for k, name in enumerate(classes)}
    known = {guard(word): k for word, k in exact.items()} | exact  # with a spreadsheet's apostrophe, and without
    found = {word: _recognised(word, known) for word in words}
    unknown = [word for word, k in found.items() if k is None]
    if unknown:
        near = get_close_matches(unknown[0], list(exact), 1)
        hint = f" (is {unknown[0]!r} the same as {near[0]!r}?)" if near else ""
        raise ValueError(
            f"{what} {str(column.name)!r} has values that are not classes of the model: {listed(unknown)}; "
            f"the model knows {listed(list(exact))}{hint}"
        )
    rows = codes >= 0
    if not rows.any():
        raise ValueError(f"{what} {str(column.name)!r} has no values: every cell is empty")
    numbers = np.array([found[word] for word in words], dtype=np.intp)
    return np.asarray(classes)[numbers[codes[rows]]], rows


def _recognised(word: str, known: dict[str, int]) -> int | None:
    """The class that ``word`` names: as it is, as TRUE, or by its number (1.0) where only one class has it."""
    if word in known:
        return known[word]
    if word.lower() in ("true", "false"):  # as R and SQL write them
        return known.get(word.capitalize())
    value = _numbers([word])
    alike = {k for name, k in known.items() if value is not None and _numbers([name]) == value}
    return alike.pop() if len(alike) == 1 else None


# ---------------------------------------------------------------- matrices and models


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
    path = regular_file(path)
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
