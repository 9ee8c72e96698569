"""Tables that the user names, as the rows, labels and posteriors that the commands work on."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

import collidescope as cs
from collidescope._checks import check_choice
from collidescope.cli._console import note, notes_as_they_come, say
from collidescope.cli._run import Options, guard, load
from collidescope.sample import handle_rare
from collidescope.tables.encoding import (
    MISSING_WORDS,
    as_levels,
    as_numbers,
    as_word,
    check_columns,
    listed,
    near_name,
)
from collidescope.tables.reading import Table, looks_like_data, read_table

BoolArray = npt.NDArray[np.bool_]
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
#: What stands before the name of a class in the name of its column of probabilities.
PREFIXES = ("", "p_", "prob_", "proba_", "p(", "P(")


def group_numbers(column: pd.Series) -> npt.NDArray[np.intp]:
    """Values as numbers; a row without a value is a group by itself."""
    codes, words = as_levels(column)
    return np.where(codes < 0, len(words) + np.arange(len(codes)), codes)


@dataclass(frozen=True)
class Rows:
    """Labelled rows of a table, their numbers in the file, from 0, and their posteriors where these are known."""

    table: Path
    label: str
    X: pd.DataFrame
    y: npt.NDArray[Any]
    numbers: npt.NDArray[np.intp]
    notes: list[str] = field(default_factory=list)
    #: Posteriors, a column for each of ``classes``; ``X`` holds the other columns, ``used`` those of the model.
    P: Any = None
    classes: list[Any] = field(default_factory=list)
    limit: Any = None
    used: list[str] = field(default_factory=list)

    def part(self, rows: npt.NDArray[Any], *notes: str, y: npt.NDArray[Any] | None = None) -> Rows:
        """Some of the rows, with their labels or with ``y`` instead."""
        X = self.X if len(rows) == len(self.y) else self.X.iloc[rows].reset_index(drop=True)
        y, P = self.y[rows] if y is None else y, None if self.P is None else self.P[rows]
        return replace(self, X=X, y=y, P=P, numbers=self.numbers[rows], notes=[*self.notes, *notes])

    def without_rare(self, fewest: int) -> Rows:
        classes, codes, counts = np.unique(self.y, return_inverse=True, return_counts=True)
        rare = counts < fewest
        if not rare.any():
            return self
        if (kept := int((~rare).sum())) < 2:
            raise ValueError(
                f"only {kept} of {len(classes)} classes have {fewest} rows or more: nothing to tell apart"
            )
        keep = np.flatnonzero(~rare[codes])
        said = (
            f"classes with fewer than {fewest} rows are left out: {listed(classes[rare].tolist())}"
        )
        return self.part(keep, f"{said} ({len(codes) - len(keep):,} rows)")

    def with_rare_handled(self, rare: str) -> Rows:
        """Without classes of a single row, or with these joined: what ``rare`` of the classifier does, before it."""
        notes: list[str] = []
        check_choice(rare, ["error", "drop", "merge"], "--rare")
        y, used = handle_rare(self.y, np.arange(len(self.y)), rare, notes)
        return self.part(used, *notes, y=y[used])

    def sampled(self, size: int | None, seed: int) -> Rows:
        """``size`` rows at random, with the shares of all classes."""
        n = len(self.y)
        if size is None or size >= n:
            return self
        # With the rows in the order of their classes an even comb keeps the shares of all classes.
        order = np.lexsort(
            (np.random.default_rng(seed).random(n), np.unique(self.y, return_inverse=True)[1])
        )
        chosen = np.sort(order[np.linspace(0, n - 1, size).round().astype(np.intp)])
        said = f"a first look at {size:,} of {n:,} rows: with all of them the numbers are surer and often lower"
        return self.part(chosen, said).without_rare(2)

    def unique(self) -> Rows:
        """Every row once: of rows that are alike, label included, the first."""
        again = self.X.assign(**{"the label": self.y}).duplicated().to_numpy()
        said = f"{int(again.sum()):,} rows repeat an earlier one and are left out (--unique)"
        return self.part(np.flatnonzero(~again), said)

    def column(self, name: str | None, option: str) -> pd.Series:
        """The column that ``option`` must name."""
        if name is None:
            raise ValueError(
                f"name a column with {option}: {self.table.name} has {listed(list(self.X.columns))}"
            )
        if name == self.label:
            raise ValueError(f"{option} {name!r} is the label: name another column")
        check_columns(self.X, [name])
        return self.X[name]

    def take(
        self, name: str | None, option: str, read: Callable[[pd.Series], Any] = group_numbers
    ) -> tuple[Rows, Any]:
        """The rows without the column ``name``, and what ``read`` makes of it; ``option`` is what named it."""
        if name is None:
            return self, None
        column = self.column(name, option)
        if self.X.shape[1] == 1:
            raise ValueError(
                f"{option} {name!r} is the only column: there is nothing to tell classes apart by"
            )
        return replace(self, X=self.X.drop(columns=name)), read(column)

    def words(self, name: str | None, option: str) -> Any:
        return None if name is None else self.column(name, option).astype(str)

    def predictions(self, name: str | None) -> tuple[Rows, npt.NDArray[Any]]:
        """The rows that have a value in the column ``name``, and the classes that it says."""
        said, there = match_labels(self.column(name, "--predicted"), self.classes, "predicted")
        lost = [f"{len(there) - len(said):,} rows have no value in {name!r} and are left out"] * (
            not there.all()
        )
        return self.part(np.flatnonzero(there), *lost), said

    def scored(self) -> Rows:
        """The same with the columns of probabilities, without rows that lack one, as posteriors."""
        names = {str(name).strip().rstrip(")"): str(name) for name in self.X.columns}
        classes = np.unique(self.y).tolist()
        matches = {
            prefix: {
                name: names[prefix + as_word(name)]
                for name in classes
                if prefix + as_word(name) in names
            }
            for prefix in PREFIXES
        }
        prefix, found = max(matches.items(), key=lambda match: len(match[1]))
        if missing := [name for name in classes if name not in found]:
            both = f" (with two classes both columns are needed: p_{classes[0]} is 1 - p_{classes[-1]})"
            has = f"The table has {listed(list(self.X.columns))}{both if len(classes) == 2 else ''}"
            need = f"every class needs one called like it, or 'p_{missing[0]}'. {has}"
            raise ValueError(
                f"there is no column of probabilities for class {missing[0]!r}: {need}"
            )
        # Probabilities must sum to 1, so the column of a class without a row here cannot just be ignored.
        used = list(found.values())
        if more := [
            name
            for name in names.values()
            if prefix and name.startswith(prefix) and name not in used
        ]:
            own = more[0].removeprefix(prefix).rstrip(")")
            raise ValueError(
                f"class {own!r} has a column of probabilities but no row: S needs rows of every class"
            )
        P = np.column_stack([as_numbers(self.X[name]) for name in used])
        gaps = np.isnan(P).any(axis=1)
        if gaps.all():
            raise ValueError(f"columns {listed(used)} hold no probabilities")
        said = [f"{int(gaps.sum()):,} rows lack a probability and are left out"] * bool(gaps.any())
        whole = replace(self, X=self.X.drop(columns=used), P=P, classes=list(found))
        return whole.part(np.flatnonzero(~gaps), *said)


def weights(column: pd.Series) -> npt.NDArray[np.float64]:
    """Numbers, every one of which must be there."""
    found = as_numbers(column)
    if (bad := np.isnan(found)).any():
        at = int(bad.argmax())
        where = f"(row {at}: {str(column.iloc[at])!r}): fill them, with 0 to leave a row out"
        raise ValueError(
            f"--sample-weight {column.name!r} has {int(bad.sum()):,} cells without a number {where}"
        )
    return found


@dataclass
class Run(Options):
    """The options of a command, and tables read as they say."""

    def read(self, path: Path, label: Any = None, text: Sequence[str] = ()) -> Table:
        """The table in ``path``; says so first where it is large."""
        mark = {"tab": "\t", "\\t": "\t", "space": " "}.get(self.delimiter or "", self.delimiter)
        if mark is not None and len(mark) != 1:
            raise ValueError(f"--delimiter must be one character, or tab, or space, got {mark!r}")
        if path.is_file() and path.stat().st_size >= LARGE:
            say(f"Reading {path.name} ({path.stat().st_size / 1e6:,.0f} MB) …")
        return read_table(
            path,
            label=label,
            text=text,
            header=self.header,
            delimiter=mark,
            skip_lines=self.skip_lines,
        )

    def column(self, names: Sequence[str], label: str | None, path: Path) -> str:
        """The name of a column: as given, by its number where there is no header, or an error with help."""
        names = [str(name) for name in names]
        if label is None:
            usual = next((name for name in names if name.casefold() in USUAL_LABELS), names[-1])
            has = f"{path.name} has {listed(names)}"
            raise ValueError(
                f"say which column holds the classes, with --label {usual!r} for example: {has}"
            )
        if label in names:
            return label
        if (
            not self.header
            and label.removeprefix("-").isdigit()
            and 1 <= abs(int(label)) <= len(names)
        ):
            return names[int(label) - (int(label) > 0)]
        near = near_name(label, names)
        hint = f": did you mean {near!r}?" if near else f": it has {listed(names)}."
        if self.header and looks_like_data(names):
            hint += " Its first line looks like data: if it has no line of names, use --no-header."
        raise ValueError(f"there is no column {label!r} in {path.name}{hint}")

    def rows(self, path: Path, categories: Sequence[str] = ()) -> Rows:
        """Rows with a label; what was guessed and left out is in the notes."""
        found = self.read(path, lambda names: self.column(names, self.label, path), categories)
        assert found.label is not None
        y, used, notes = clean_labels(found.frame[found.label])
        X = found.frame.drop(columns=found.label)
        if X.shape[1] == 0:
            raise ValueError(
                f"{path.name} has no column but {found.label!r}: nothing to tell classes apart by"
            )
        rows = np.flatnonzero(used)
        return Rows(
            path, found.label, X.iloc[rows].reset_index(drop=True), y, rows, [*found.notes, *notes]
        )

    def raw_rows(self, fitted: Any, path: Path) -> tuple[pd.DataFrame, list[str]]:
        """A table as a model needs it read, and what there is to say about it."""
        names = list(fitted.encoder_.types) if hasattr(fitted, "encoder_") else []
        reading, notes = self, []
        if self.header and names and all(re.fullmatch(r"c\d+", name) for name in names):
            named = False
            with suppress(ValueError):  # such as a name that occurs twice, being no name
                named = set(names) <= set(self.read(path).frame.columns)
            if not named:
                reading = replace(self, header=False)
                notes = [
                    "the model was fitted on a table without a line of names: this one is read alike"
                ]
        known = self.label or getattr(fitted, "label_", None)
        text = fitted.encoder_.text_names if names else []
        found = reading.read(path, known, [name for name in text if name != known])
        return found.frame, [*found.notes, *notes]

    def scored(self, path: Path, model: Any = None, other: str | None = None) -> Rows:
        """Labelled rows with posteriors: from columns of the table, or of a model (its file), never from ``other``."""
        if model is None:
            return self.rows(path).scored()
        fitted = load(model, "model") if isinstance(model, Path) else model
        X, notes = self.raw_rows(fitted, path)
        name = self.column(list(X.columns), self.label or getattr(fitted, "label_", None), path)
        y, labelled = match_labels(X[name], fitted.classes_.tolist(), "label")
        kept = np.flatnonzero(labelled)
        if len(kept) < len(X):
            notes.append(
                f"{len(X) - len(kept):,} of {len(X):,} rows have no label and are left out"
            )
        X = X.drop(columns=name).iloc[kept].reset_index(drop=True)
        P, met = posteriors(fitted, X.drop(columns=[other], errors="ignore"))
        used = list(getattr(getattr(fitted, "encoder_", None), "types", ()))
        known = {
            "classes": fitted.classes_.tolist(),
            "limit": getattr(fitted, "limit_", None),
            "used": used,
        }
        return Rows(path, name, X, y, kept, [*notes, *met], P, **known)

    def answer(self, found: Any, rows: Rows, **shown: Any) -> None:
        """Print a result, then write its table, and the report of the rows with ``shown``."""
        note(*rows.notes)
        told = found.to_dict()
        told["notes"] = [*told.get("notes", ()), *rows.notes]
        table = getattr(found, found.TABLE).drop(columns="columns", errors="ignore")
        self.tell(str(found), told, table=table, page=lambda: self.summary(rows, **shown))

    def summary(self, known: Rows, **shown: Any) -> dict[str, Any]:
        """For the report: of the posteriors that are known, or of the ``source`` in ``shown``."""
        source, used = None, list(known.X.columns)
        if known.P is not None:
            source, used = pd.DataFrame(known.P, columns=known.classes), known.used
        about = {"file": known.table.name, "label": known.label, "columns": used}
        given = {"source": source, "y": known.y, "limit": known.limit, "about": about}
        return cs.summarise(title=self.title, notes=known.notes, **(given | shown))


def posteriors(fitted: Any, X: pd.DataFrame, held_out: bool = True) -> tuple[Any, list[str]]:
    """Posteriors of raw rows (held-out ones for rows of the fit), and what was met on the way, which is said."""
    from collidescope.applications._inputs import scored

    with notes_as_they_come() as met:
        table: Any = X
        if not hasattr(fitted, "encoder_"):  # no TableClassifier: columns by name, or as they are
            if (names := getattr(fitted, "feature_names_in_", None)) is None and X.shape[
                1
            ] != fitted.n_features_in_:
                rest = f"the table has {X.shape[1]} columns: keep the features only, in their order"
                raise ValueError(
                    f"the model was fitted on {fitted.n_features_in_} nameless features, {rest}"
                )
            wanted = list(map(str, X.columns if names is None else names))
            check_columns(X, wanted, learned=True)
            table = X.to_numpy() if names is None else X[wanted]
        if not held_out:
            return fitted.predict_proba(table), met
        P, _, _, notes = scored(fitted, table, None, None, "model")
        return P, [*met, *notes]


def clean_labels(column: pd.Series) -> tuple[npt.NDArray[Any], BoolArray, list[str]]:
    """(labels, rows that have one, notes): labels are whole numbers or booleans where all are, else text."""
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
    n, k = int(rows.sum()), len(words)
    if k < 2:
        single = "" if k == 0 else f"a single value ({words[0]!r}): there is nothing to tell apart"
        raise ValueError(f"label {name!r} has {single or 'no values: every cell is empty'}")
    if (numbers := _numbers(words)) is not None:
        whole = (numbers == np.round(numbers)).all()
        many = k > (MOST_NUMBER_CLASSES if whole else MOST_FRACTION_CLASSES)
        if many or (k > FEW_NUMBER_CLASSES and k * ROWS_PER_NUMBER > n):
            ends = f"(from {numbers.min():g} to {numbers.max():g})"
            hint = "it looks like a number to predict, not classes; bin it first, into low, middle and high for example"
            raise ValueError(
                f"label {name!r} has {k:,} different numbers in {n:,} rows {ends}: {hint}"
            )
    elif k * ROWS_PER_CLASS > n:
        rest = f"(such as {listed(words[:3])}): these are not classes. Is it the right column?"
        raise ValueError(f"label {name!r} has {k:,} different values in {n:,} rows {rest}")
    else:
        alike: dict[str, str] = {}
        for word in words:
            if (first := alike.setdefault(word.casefold().rstrip(". "), word)) != word:
                notes.append(
                    f"classes {first!r} and {word!r} differ only in spelling: are they one?"
                )
                break
        if any(word.lower() == "none" for word in words):
            notes.append(f"'none' in {name!r} is taken as a class, not as a missing label")
    values = np.array(words)
    if set(words) == {"True", "False"}:
        values = values == "True"
    elif all(INTEGER.fullmatch(word) for word in words):
        values = np.array([int(word) for word in words])
    return values[codes[rows]], rows, notes


def _numbers(words: list[str]) -> npt.NDArray[np.float64] | None:
    try:
        return np.array([float(word) for word in words])
    except ValueError:
        return None


def match_labels(
    column: pd.Series, classes: Sequence[Any], what: str
) -> tuple[npt.NDArray[Any], BoolArray]:
    """Labels of another table as the classes of a model: (labels, rows that have one)."""
    codes, words = as_levels(column, MISSING_LABELS)
    exact = {as_word(name): k for k, name in enumerate(classes)}
    known = {
        guard(word): k for word, k in exact.items()
    } | exact  # with a spreadsheet's apostrophe, and without
    found = {word: _recognised(word, known) for word in words}
    if unknown := [word for word, k in found.items() if k is None]:
        near = get_close_matches(unknown[0], list(exact), 1)
        hint = f" (is {unknown[0]!r} the same as {near[0]!r}?)" if near else ""
        advice = f"{listed(unknown)}; the model knows {listed(list(exact))}{hint}"
        raise ValueError(
            f"{what} {str(column.name)!r} has values that are not classes of the model: {advice}"
        )
    if not words:
        raise ValueError(f"{what} {str(column.name)!r} has no values: every cell is empty")
    numbers = np.array([found[word] for word in words], dtype=np.intp)
    return np.asarray(classes)[numbers[codes[codes >= 0]]], codes >= 0


def _recognised(word: str, known: dict[str, int]) -> int | None:
    """The class that ``word`` names: as it is, as TRUE, or by its number (1.0) where only one class has it."""
    if word in known:
        return known[word]
    if word.lower() in ("true", "false"):  # as R and SQL write them
        return known.get(word.capitalize())
    value = _numbers([word])
    alike = {k for name, k in known.items() if value is not None and _numbers([name]) == value}
    return alike.pop() if len(alike) == 1 else None
