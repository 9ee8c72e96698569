"""Tables that the user names, as the rows, labels and posteriors that the commands work on."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

import collidescope as cs
from collidescope._checks import (
    Array,
    FloatArray,
    IntArray,
    check_choice,
    spelling_variants,
)
from collidescope.applications._inputs import Record, Result
from collidescope.classifier import CollisionClassifier
from collidescope.cli._console import for_terminal, note, notes_as_they_come, say
from collidescope.cli._run import Options, Output, guard, load_model, unguard
from collidescope.equations.posterior import shift_priors
from collidescope.limit import Limit
from collidescope.sample import handle_rare
from collidescope.tables import TableClassifier
from collidescope.tables.cells import (
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
#: In the label column "none" is an answer like any other.
MISSING_LABELS = tuple(word for word in MISSING_WORDS if word.lower() != "none")


def group_numbers(column: pd.Series) -> IntArray:
    """Values as numbers; a row without a value is a group by itself."""
    codes, words = as_levels(column)
    alone = len(words) + np.arange(len(codes))
    return np.where(codes < 0, alone, codes)


def group_names(column: pd.Series) -> Array:
    """Values as text; rows without a value are the group "(empty)"."""
    codes, words = as_levels(column)
    return np.array([*words, "(empty)"], dtype=object)[codes]


@dataclass(frozen=True)
class Rows:
    """Labelled rows of a table, with their numbers in the file, from 0, and posteriors if known."""

    table: Path
    label: str
    X: pd.DataFrame
    y: Array
    numbers: IntArray
    notes: list[str] = field(default_factory=list)
    #: Posteriors, a column for each of ``classes``; ``X`` holds the other columns, ``used`` those
    #: of the model.
    P: Any = None
    classes: list[Any] = field(default_factory=list)
    limit: Limit | None = None
    used: list[str] = field(default_factory=list)

    @property
    def n_classes(self) -> int:
        """Different labels."""
        return len(set(self.y.tolist()))

    def part(self, rows: Array, *notes: str, y: Array | None = None) -> Rows:
        """Some of the rows, with their labels or with ``y`` instead."""
        X = self.X
        if len(rows) < len(self.y):
            X = X.iloc[rows].reset_index(drop=True)
        return replace(
            self,
            X=X,
            y=self.y[rows] if y is None else y,
            P=None if self.P is None else self.P[rows],
            numbers=self.numbers[rows],
            notes=[*self.notes, *notes],
        )

    def without_rare(self, fewest: int) -> Rows:
        classes, codes, counts = np.unique(
            self.y, return_inverse=True, return_counts=True
        )
        rare = counts < fewest
        if not rare.any():
            return self
        kept = int((~rare).sum())
        if kept < 2:
            raise ValueError(
                f"only {kept} of {len(classes)} classes have {fewest} rows or more: "
                "nothing to tell apart"
            )
        gone = listed(classes[rare].tolist())
        return self.part(
            np.flatnonzero(~rare[codes]),
            (
                f"classes with fewer than {fewest} rows are left out: {gone} "
                f"({counts[rare].sum():,} rows)"
            ),
        )

    def with_rare_handled(self, rare: str) -> Rows:
        """The rows without classes of a single row, or with these joined, as ``rare`` says."""
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
        _, codes = np.unique(self.y, return_inverse=True)
        shuffled = np.random.default_rng(seed).random(n)
        order = np.lexsort((shuffled, codes))
        comb = np.linspace(0, n - 1, size).round().astype(np.intp)
        said = (
            f"a first look at {size:,} of {n:,} rows: with all of them the numbers are "
            "more precise and often lower"
        )
        return self.part(np.sort(order[comb]), said).without_rare(2)

    def unique(self) -> Rows:
        """Every row once: of rows that are alike, label included, the first."""
        whole = self.X.assign(**{"\0label": self.y})
        try:
            again = whole.duplicated().to_numpy()
        except TypeError:  # cells that hold lists
            again = whole.map(str).duplicated().to_numpy()
        said = f"{again.sum():,} rows repeat an earlier one and are left out (--unique)"
        return self.part(np.flatnonzero(~again), said)

    def column(self, name: str | None, option: str) -> pd.Series:
        """The column that ``option`` must name."""
        if name is None:
            columns = listed(list(self.X.columns))
            raise ValueError(
                f"name a column with {option}: {self.table.name} has {columns}"
            )
        if name == self.label:
            raise ValueError(f"{option} {name!r} is the label: name another column")
        check_columns(self.X, [name])
        return self.X[name]

    def take(
        self,
        name: str | None,
        option: str,
        read: Callable[[pd.Series], Any] = group_numbers,
    ) -> tuple[Rows, Any]:
        """The rows without the column ``name``, and what ``read`` makes of it."""
        if name is None:
            return self, None
        column = self.column(name, option)
        n_columns = self.X.shape[1]
        if n_columns == 1:
            raise ValueError(
                f"{option} {name!r} is the only column: there is nothing to tell "
                "classes apart by"
            )
        return replace(self, X=self.X.drop(columns=name)), read(column)

    def clusters(self, name: str | None) -> IntArray | None:
        """Numbers of the rows that belong together, by the column that --cluster names."""
        if name is None:
            return None
        return group_numbers(self.column(name, "--cluster"))

    def predictions(self, name: str | None) -> tuple[Rows, Array]:
        """The rows that have a value in the column ``name``, and the classes that it says."""
        column = self.column(name, "--predicted")
        said, there = match_labels(column, self.classes, "predicted")
        notes = []
        if not there.all():
            lost = len(there) - len(said)
            notes.append(f"{lost:,} rows have no value in {name!r} and are left out")
        return self.part(np.flatnonzero(there), *notes), said

    def scored(self) -> Rows:
        """The rows with posteriors from columns of probabilities, without rows that lack one."""
        classes = np.unique(self.y).tolist()
        prefix, found = probability_columns(self.X, classes)
        missing = [name for name in classes if name not in found]
        if missing:
            raise ValueError(_missing_probabilities(self.X, classes, missing[0]))
        used = list(found.values())
        P = np.column_stack([as_numbers(self.X[name]) for name in used])
        gaps = np.isnan(P).any(axis=1)
        if gaps.all():
            raise ValueError(f"columns {listed(used)} hold no probabilities")
        self._check_whole(P[~gaps], prefix, used)
        notes = []
        if gaps.any():
            notes.append(f"{gaps.sum():,} rows lack a probability and are left out")
        whole = replace(self, X=self.X.drop(columns=used), P=P, classes=list(found))
        rows = whole.part(np.flatnonzero(~gaps), *notes)
        own = np.asarray(rows.classes)[:, None] == rows.y
        if not prefix and np.array_equal(rows.P, own.T):
            raise ValueError(
                f"columns {listed(used)} hold the labels (1 and 0), not probabilities: "
                f"name those of a model like the classes, or 'p_{classes[0]}'"
            )
        return rows

    def asked_of(self, fitted: CollisionClassifier) -> Any:
        """The model with the posteriors of these rows, in place of its own."""
        asked: Any = copy(fitted)
        own = fitted.row_priors_  # at which rows are scored
        asked.posteriors_ = shift_priors(self.P, own, fitted.priors_)
        asked.row_hashes_ = None
        asked.groups_ = None
        return asked

    def _check_whole(self, P: FloatArray, prefix: str, used: list[str]) -> None:
        """Probabilities sum to 1: the column of a class without a row cannot be ignored."""
        if not prefix or np.allclose(P.sum(axis=1), 1, atol=0.01):
            return
        others = [str(name) for name in self.X.columns if name not in used]
        more = [name for name in others if name.startswith(prefix)]
        if more:
            own = more[0].removeprefix(prefix).rstrip(")")
            raise ValueError(
                f"class {own!r} has a column of probabilities but no row: S needs rows "
                "of every class"
            )


def probability_columns(
    X: pd.DataFrame, classes: list[Any]
) -> tuple[str, dict[Any, str]]:
    """(prefix, class → column): ``p_CLASS`` and the like first, for ``CLASS`` may be a feature."""
    names = {unguard(str(column)).strip(): str(column) for column in X.columns}
    best_prefix = ""
    best: dict[Any, str] = {}
    for pattern in ("p_*", "prob_*", "proba_*", "p(*)", "P(*)", "*"):
        words = {name: pattern.replace("*", as_word(name)) for name in classes}
        found = {name: names[word] for name, word in words.items() if word in names}
        if len(found) > len(best):
            best_prefix = pattern.partition("*")[0]
            best = found
    return best_prefix, best


def _missing_probabilities(X: pd.DataFrame, classes: list[Any], missing: object) -> str:
    has = f"The table has {listed(list(X.columns))}"
    if len(classes) == 2:
        first, second = classes
        has += (
            f" (with two classes both columns are needed: p_{first} is 1 - p_{second})"
        )
    return (
        f"there is no column of probabilities for class {missing!r}: every class needs "
        f"one called like it, or 'p_{missing}'. {has}"
    )


def weights(column: pd.Series) -> FloatArray:
    """Numbers, every one of which must be there."""
    found = as_numbers(column)
    bad = np.isnan(found)
    if bad.any():
        at = int(bad.argmax())
        raise ValueError(
            f"--sample-weight {column.name!r} has {bad.sum():,} cells without a number "
            f"(row {at}: {str(column.iloc[at])!r}): fill them, with 0 to leave a row out"
        )
    return found


@dataclass
class Run(Options):
    """The options of a command, and tables read as they say."""

    def read(
        self,
        path: Path,
        label: str | Callable[[Sequence[str]], str] | None = None,
        text: Sequence[str] = (),
    ) -> Table:
        """The table in ``path``; says so first where it is large."""
        marks = {"tab": "\t", "\\t": "\t", "space": " "}
        mark = marks.get(self.delimiter or "", self.delimiter)
        if mark is not None and len(mark) != 1:
            raise ValueError(
                f"--delimiter must be one character, or tab, or space, got {mark!r}"
            )
        if path.is_file() and path.stat().st_size >= 5_000_000:
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
        """The name of a column: as given, by its number where there is no header, or an error."""
        names = [str(name) for name in names]
        if label is None:
            raise ValueError(_which_label(names, path))
        for name in (label, guard(label)):
            if name in names:
                return str(name)
        if not self.header and label.removeprefix("-").isdigit():
            place = int(label)
            if place > 0:
                place -= 1
            if -len(names) <= place < len(names) and label not in ("0", "-0"):
                return names[place]
        near = near_name(label, names)
        hint = f": did you mean {near!r}?" if near else f": it has {listed(names)}."
        if self.header and looks_like_data(names):
            hint += " Its first line looks like data: if it has no line of names, use --no-header."
        raise ValueError(f"there is no column {label!r} in {path.name}{hint}")

    def rows(self, path: Path, categories: Sequence[str] = ()) -> Rows:
        """Rows with a label; what was guessed and left out is in the notes."""
        found = self.read(
            path, lambda names: self.column(names, self.label, path), categories
        )
        assert found.label is not None
        labels = found.frame[found.label]
        if labels.dtype.kind not in "iufb":
            labels = labels.map(unguard, na_action="ignore")
        y, used, notes = clean_labels(labels)
        X = found.frame.drop(columns=found.label)
        if X.shape[1] == 0:
            raise ValueError(
                f"{path.name} has no column but {found.label!r}: nothing to tell "
                "classes apart by"
            )
        numbers = np.flatnonzero(used)
        kept = X.iloc[numbers].reset_index(drop=True)
        return Rows(path, found.label, kept, y, numbers, [*found.notes, *notes])

    def raw_rows(
        self, fitted: CollisionClassifier, path: Path
    ) -> tuple[pd.DataFrame, list[str]]:
        """A table as a model needs it read, and what there is to say about it."""
        encoder = getattr(fitted, "encoder_", None)
        names = list(getattr(encoder, "types", ()))
        text = list(getattr(encoder, "text_names", ()))
        reading = self
        notes = []
        numbered = all(map(re.compile(r"c\d+").fullmatch, names))
        if self.header and names and numbered:
            named = False
            # Such as a name that occurs twice, being no name.
            with suppress(ValueError):
                named = set(names) <= set(self.read(path).frame.columns)
            if not named:
                reading = replace(self, header=False)
                notes = [
                    (
                        "the model was fitted on a table without a line of names: this one "
                        "is read alike"
                    )
                ]
        known = self.label or getattr(fitted, "label_", None)
        found = reading.read(path, known, [name for name in text if name != known])
        return found.frame, [*found.notes, *notes]

    def scored(
        self, path: Path, model: Path | None = None, other: str | None = None
    ) -> Rows:
        """Labelled rows with posteriors: from columns of the table, or of a model.

        ``other`` is a column that the model must not see.
        """
        if model is None:
            return self.rows(path).scored()
        return self.scored_by(load_model(model), path, other)

    def scored_by(
        self, fitted: CollisionClassifier, path: Path, other: str | None = None
    ) -> Rows:
        """Labelled rows with the posteriors of a fitted model."""
        from collidescope.applications._inputs import row_limit

        X, notes = self.raw_rows(fitted, path)
        label = self.label or getattr(fitted, "label_", None)
        name = self.column(list(X.columns), label, path)
        classes = fitted.classes_.tolist()
        y, labelled = match_labels(X[name], classes, "label")
        kept = np.flatnonzero(labelled)
        n_lost = len(X) - len(kept)
        if n_lost:
            notes.append(
                f"{n_lost:,} of {len(X):,} rows have no label and are left out"
            )
        X = X.drop(columns=name).iloc[kept].reset_index(drop=True)
        P, met = posteriors(fitted, X.drop(columns=[other], errors="ignore"))
        encoder = getattr(fitted, "encoder_", None)
        return Rows(
            path,
            name,
            X,
            y,
            kept,
            [*notes, *met],
            P,
            classes=classes,
            limit=row_limit(fitted),
            used=list(getattr(encoder, "types", ())),
        )

    def fitted(self, rows: Rows, seed: int) -> TableClassifier:
        """A model of the rows."""
        note(*rows.notes)
        with notes_as_they_come():
            model = cs.TableClassifier(random_state=seed, verbose=int(not self.quiet))
            return model.fit(rows.X, rows.y)

    def answer(self, found: Result, rows: Rows, *more: Output, **shown: Any) -> None:
        """Print a result, then write its table, the report of the rows with ``shown``, and more.

        The report has the result as a section.
        """
        note(*rows.notes)
        data = found.to_dict()
        data["notes"] = [*data.get("notes", ()), *rows.notes]
        table = getattr(found, found.TABLE).drop(columns="columns", errors="ignore")

        def page() -> Record:
            return self.summary(rows, **({"sections": [found]} | shown))

        self.tell(for_terminal(str(found)), data, *more, table=table, page=page)

    def summary(self, known: Rows, **shown: Any) -> Record:
        """The summary for the report, from the known posteriors or the ``source`` in ``shown``."""
        source = None
        used = list(known.X.columns)
        if known.P is not None:
            source = pd.DataFrame(known.P, columns=known.classes)
            used = known.used
        given: Record = {
            "source": source,
            "y": known.y,
            "limit": known.limit,
            "about": {"file": known.table.name, "label": known.label, "columns": used},
            "notes": known.notes,
            "title": self.title,
        }
        return summarised(**(given | shown))


def summarised(source: Any, *args: Any, **options: Any) -> Record:
    """What :func:`~collidescope.summarise` says, with options in the place of Python."""
    summary = cs.summarise(source, *args, **options)
    for part, name in (
        (summary, "notes"),
        (summary, "what_to_do"),
        (summary["trust"], "warnings"),
    ):
        part[name] = [for_terminal(line) for line in part[name]]
    return summary


def _which_label(names: list[str], path: Path) -> str:
    often = ("label", "target", "class", "y", "outcome", "category")
    usual = [name for name in names if name.casefold() in often]
    usual.append(names[-1])
    return (
        f"say which column holds the classes, with --label {usual[0]!r} for example: "
        f"{path.name} has {listed(names)}"
    )


def posteriors(
    fitted: CollisionClassifier, X: pd.DataFrame, held_out: bool = True
) -> tuple[FloatArray, list[str]]:
    """Posteriors of raw rows (held-out ones for rows of the fit), and what was met on the way."""
    from collidescope.applications._inputs import scored

    with notes_as_they_come() as met:
        table: Any = X
        if not hasattr(fitted, "encoder_"):
            table = _features(fitted, X)
        if not held_out:
            return fitted.predict_proba(table), met
        found = scored(fitted, table, None, None, "model")
        return found.posteriors, [*met, *found.notes]


def _features(
    fitted: CollisionClassifier, X: pd.DataFrame
) -> pd.DataFrame | FloatArray:
    """The features of a model that is not a TableClassifier: columns by name, or as they are."""
    names = getattr(fitted, "feature_names_in_", None)
    if names is not None:
        wanted = [str(name) for name in names]
        check_columns(X, wanted, learned=True)
        return X[wanted]
    if X.shape[1] != fitted.n_features_in_:
        raise ValueError(
            f"the model was fitted on {fitted.n_features_in_} nameless features, the "
            f"table has {X.shape[1]} columns: keep the features only, in their order"
        )
    return X.to_numpy()


def clean_labels(column: pd.Series) -> tuple[Array, BoolArray, list[str]]:
    """(labels, rows that have one, notes): whole numbers or booleans where all are, else text."""
    name = str(column.name)
    codes, words = as_levels(column, MISSING_LABELS)
    rows = codes >= 0
    notes = []
    if not rows.all():
        notes.append(_unlabelled(column, rows))
    if not words:
        raise ValueError(f"label {name!r} has no values: every cell is empty")
    if len(words) == 1:
        raise ValueError(
            f"label {name!r} has a single value ({words[0]!r}): there is nothing to "
            "tell apart"
        )
    n = int(rows.sum())
    numbers = _numbers(words)
    notes += spelling_variants(np.array(words))
    if any(word.lower() == "none" for word in words):
        notes.append(f"'none' in {name!r} is taken as a class, not as a missing label")
    if numbers is not None:
        _check_number_classes(name, numbers, n)
    elif 2 * len(words) > n:  # names or free text
        raise ValueError(
            f"label {name!r} has {len(words):,} different values in {n:,} rows (such as "
            f"{listed(words[:3])}): these are not classes. Is it the right column?"
        )
    return _as_values(words)[codes[rows]], rows, notes


def _unlabelled(column: pd.Series, rows: BoolArray) -> str:
    gone = column[~rows]
    said = f"{len(gone):,} of {len(rows):,} rows have no label in {str(column.name)!r}"
    lost = sorted({as_word(value) for value in gone.dropna().unique()} - {""})
    if lost:
        said += f", written as {listed(lost)}"
    return f"{said}, and are left out (the first is row {int((~rows).argmax())})"


def _check_number_classes(name: str, numbers: FloatArray, n: int) -> None:
    """Refuse numbers that count or measure something: half marks are classes, amounts are not."""
    k = len(numbers)
    whole = (numbers == np.round(numbers)).all()
    thin = k > 20 and k * 10 > n
    if k > (200 if whole else 10) or thin:
        raise ValueError(
            f"label {name!r} has {k:,} different numbers in {n:,} rows (from "
            f"{numbers.min():g} to {numbers.max():g}): it looks like a number to predict, "
            "not classes; bin it first, into low, middle and high for example"
        )


def _as_values(words: list[str]) -> Array:
    """Booleans, or whole numbers that mean the same to all readers ("007" and "1.0" are text)."""
    array = np.array(words)
    if set(words) == {"True", "False"}:
        return array == "True"
    if all(map(re.compile(r"0|-?[1-9]\d{0,17}").fullmatch, words)):
        return np.array([int(word) for word in words])
    return array


def _numbers(words: list[str]) -> FloatArray | None:
    try:
        return np.array([float(word) for word in words])
    except ValueError:
        return None


def match_labels(
    column: pd.Series, classes: Sequence[Any], what: str
) -> tuple[Array, BoolArray]:
    """Labels of another table as the classes of a model: (labels, rows that have one)."""
    codes, words = as_levels(column, MISSING_LABELS)
    name = f"{what} {str(column.name)!r}"
    if not words:
        raise ValueError(f"{name} has no values: every cell is empty")
    exact = {as_word(known): k for k, known in enumerate(classes)}
    # With a spreadsheet's apostrophe, and without.
    known = {guard(word): k for word, k in exact.items()} | exact
    numbers = [_recognised(word, known) for word in words]
    unknown = [word for word, k in zip(words, numbers, strict=True) if k is None]
    if unknown:
        own = list(exact)
        advice = f"{listed(unknown)}; the model knows {listed(own)}"
        near = get_close_matches(unknown[0], own, 1)
        if near:
            advice += f" (is {unknown[0]!r} the same as {near[0]!r}?)"
        raise ValueError(
            f"{name} has values that are not classes of the model: {advice}"
        )
    labelled = codes >= 0
    class_of_word = np.array(numbers, dtype=np.intp)
    return np.asarray(classes)[class_of_word[codes[labelled]]], labelled


def _recognised(word: str, known: dict[str, int]) -> int | None:
    """The class of ``word``: as it is, as TRUE, or by its number (1.0) if only one has it."""
    if word in known:
        return known[word]
    if word.lower() in ("true", "false"):  # as R and SQL write them
        return known.get(word.capitalize())
    value = _numbers([word])
    if value is None:
        return None
    alike = {k for name, k in known.items() if _numbers([name]) == value}
    return alike.pop() if len(alike) == 1 else None
