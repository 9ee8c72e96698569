"""S from several labels per item: one row per vote, or one row per item in two ways."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import collidescope as cs
from collidescope.cli import _run as opt
from collidescope.cli._console import note, notes_as_they_come
from collidescope.cli._run import Column, Columns, File, command, load_matrix, option

if TYPE_CHECKING:
    import pandas as pd
    from scipy.sparse import csr_array

    from collidescope._checks import Array
    from collidescope.applications.annotators import AnnotatorReport
    from collidescope.applications.judges import JudgeReport
    from collidescope.cli._inputs import BoolArray, Run
    from collidescope.matrix import CollisionMatrix


@dataclass
class Votes:
    """Counts of items × classes, names of the classes, and the comparison of annotators if any."""

    counts: csr_array
    classes: Array
    people: AnnotatorReport | None = None
    #: What each says of every item.
    judges: dict[str, pd.Series] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@command(*opt.ESTIMATING)
def votes(
    run: Run,
    table: opt.Table,
    item: Annotated[
        Column,
        option("COLUMN", "The column that names the items voted on.", "--item", "-i"),
    ] = None,
    annotator: Annotated[
        Column,
        option(
            "COLUMN",
            "The column that names the voters: shows who votes differently.",
            "--annotator",
            "-a",
        ),
    ] = None,
    wide: Annotated[
        bool,
        option(
            None,
            "One row per item and one column per class, with the number of votes.",
            "--wide",
        ),
    ] = False,
    annotator_columns: Annotated[
        bool,
        option(
            None,
            "One row per item and one column per annotator, with the class in the cells.",
            "--annotator-columns",
        ),
    ] = False,
    skip_empty: Annotated[
        bool,
        option(None, "Leave out items without a single vote.", "--skip-empty"),
    ] = False,
    model: Annotated[
        File,
        option(
            "FILE",
            "A model or matrix of the same classes, to compare with.",
            "--model",
            "-m",
        ),
    ] = None,
    judge: Annotated[
        Columns,
        option(
            "COLUMN",
            "The column with the labels of a model or another judge: is it as good as one more "
            "human? Repeat for more.",
        ),
    ] = None,
    drop: opt.Drop = None,
) -> None:
    """S from several labels per item: what people disagree about, with no model.

    One row per vote, or one row per item: with `--wide` a column per class, with
    `--annotator-columns` a column per annotator. Every item with two votes or more counts the same.
    With `--judge` the labels of a model are compared with the votes, overall and pair by pair.

    **Examples**

    - `collidescope votes votes.csv --item id --label label --annotator who --report report.html`
    - `collidescope votes counts.csv --wide --item id --model model.collide`
    - `collidescope votes ratings.csv --annotator-columns --item id`
    - `collidescope votes ratings.csv --annotator-columns --item id --judge gpt --judge claude`
    """
    run.start(table, model)
    other = None
    if model is not None:
        other = load_matrix(model)
    if wide and annotator_columns:
        raise ValueError(
            "--wide and --annotator-columns are two kinds of table: leave one out"
        )
    if not (wide or annotator_columns):
        found = _from_rows(run, table, item, annotator, judge or [])
    else:
        why = "--annotator-columns has one column per annotator"
        if wide:
            why = "--wide has one column per class"
        if run.label is not None or annotator is not None:
            raise ValueError(f"{why}: leave out --label and --annotator")
        items = _items(run, table, item, drop or [], judge or [])
        found = (
            _from_counts(items, skip_empty)
            if wide
            else _from_annotators(items, skip_empty)
        )
    _answer(run, table, found, other)


def _answer(run: Run, table: Path, found: Votes, other: CollisionMatrix | None) -> None:
    from collidescope.applications._inputs import plain, section
    from collidescope.cli._inputs import summarised

    with notes_as_they_come() as met:
        cm = cs.collision_matrix_from_votes(found.counts, found.classes)
        agreement = cs.agreement(found.counts, found.classes)
    found.notes += met
    once = cm.diagnostics.inputs_seen_once or 0
    if once:
        found.notes.append(
            f"{once:,} items have a single vote, which cannot be compared with another: "
            "they are left out"
        )
    note(*found.notes)
    beside = None
    if other is not None:
        beside = cs.compare(other, cm)
    judged = _judged(found)
    more = [result for result in (found.people, judged, beside) if result is not None]
    shown = section(
        "Agreement",
        ["With 95% intervals. B is the joint collision matrix, π are its row sums."],
        agreement.reset_index(),
    )
    summary = summarised(
        cm,
        title=run.title,
        notes=found.notes,
        about=run.about(table.name, run.label),
        sections=[shown, *more],
    )
    summary["votes"] = {"agreement": plain(agreement)}
    if found.people is not None:
        summary["votes"] = found.people.to_dict()
    if judged is not None:
        summary["votes"]["judges"] = judged.to_dict()
    if beside is not None:
        summary["votes"]["compared"] = beside.to_dict()
    rates = agreement.drop(columns="formula").rename_axis(None)
    rows = rates.to_string(float_format="{:.4f}".format)
    agreed = f"\nAgreement, with 95% intervals:\n{rows}"
    run.finish(cm, summary, said="\n\n".join([agreed, *map(str, more)]))


def _judged(found: Votes) -> JudgeReport | None:
    """The judges beside the votes, on the items that all of them have judged."""
    import pandas as pd

    from collidescope.applications import compare_judges
    from collidescope.cli._inputs import match_labels

    if not found.judges:
        return None
    classes = found.classes.tolist()
    counts = found.counts.toarray()
    said = pd.DataFrame(index=range(len(counts)))
    for name, labels in found.judges.items():
        words, judged = match_labels(labels, classes, "judge")
        said[name] = pd.Series(words, judged.nonzero()[0], dtype=object)
    every = said.notna().all(axis=1).to_numpy()
    if not every.all():
        note(
            f"{(~every).sum():,} items lack the label of a judge: the comparison with "
            "judges leaves them out"
        )
    kept = said[every].to_dict("list")
    return compare_judges(counts[every], kept, classes=classes)


def _from_counts(items: _Items, skip_empty: bool) -> Votes:
    """One row per item, one column per class."""
    from collidescope.counting import vote_table

    counts = items.frame
    for name in counts.columns:
        column = counts[name]
        if column.dtype.kind not in "iufb":
            raise ValueError(
                f"column {name!r} does not hold numbers of votes: if it names the items, "
                f"use --item {name!r}, otherwise --drop {name!r}"
            )
    _check_names_of_items(items, "class")
    empty = (counts.fillna(0) == 0).all(axis=1).to_numpy()
    _check_empty(empty, skip_empty, items.notes)
    table, classes = vote_table(counts[~empty])
    judged = _by_name(items.judges[~empty])
    return Votes(table, classes, judges=judged, notes=items.notes)


def _check_names_of_items(items: _Items, other: str) -> None:
    """Refuse a column that looks like the names of the items, where no column was named so."""
    if items.named:
        return
    for name in items.frame.columns:
        if _looks_like_id(items.frame[name]):
            raise ValueError(
                f"column {name!r} seems to name the items, not a {other}: use --item "
                f"{name!r}, or --drop {name!r}"
            )


def _check_empty(empty: BoolArray, skip_empty: bool, notes: list[str]) -> None:
    """Refuse items without a vote, or note that they are left out."""
    if not empty.any():
        return
    many = f"{int(empty.sum()):,} items"
    if skip_empty:
        notes.append(f"{many} without a vote are left out (--skip-empty)")
        return
    first = ", ".join(str(row) for row in empty.nonzero()[0][:5])
    raise ValueError(
        f"{many} have no vote (row {first}, counted from 0): leave them out with "
        "--skip-empty"
    )


def _by_name(judges: pd.DataFrame) -> dict[str, pd.Series]:
    return {str(name): judges[name].reset_index(drop=True) for name in judges.columns}


class _Items(NamedTuple):
    """A table with one row per item, which is its index where a column names it."""

    frame: pd.DataFrame
    named: bool
    judges: pd.DataFrame  #: what each says of every item
    notes: list[str]


def _items(
    run: Run, table: Path, item: str | None, drop: list[str], judge: list[str]
) -> _Items:
    from collidescope.tables.cells import check_columns

    found = run.read(table)
    check_columns(found.frame, drop)
    frame = found.frame.drop(columns=drop)
    if item is not None:
        name = run.column(list(frame.columns), item, table)
        frame = frame.set_index(name)
    check_columns(frame, judge)
    rest = frame.drop(columns=judge)
    return _Items(rest, item is not None, frame[judge], list(found.notes))


def _looks_like_id(column: pd.Series, fewest: int = 5) -> bool:
    """A name like that of an id, or another value in every row: numbers and classes repeat."""
    name = str(column.name).casefold()
    named = re.search(r"(^|[^a-z])(id|item|index|key|row)$", name)
    return named is not None or (len(column) >= fewest and column.is_unique)


def _from_annotators(items: _Items, skip_empty: bool) -> Votes:
    """One row per item, one column per annotator: an empty cell is no vote."""
    import pandas as pd

    from collidescope.cli._inputs import clean_labels

    _check_names_of_items(items, "annotator")
    frame = items.frame
    if frame.index.has_duplicates:
        twice = frame.index[frame.index.duplicated()][0]
        raise ValueError(
            f"item {twice!r} has two rows: --annotator-columns takes one per item"
        )
    empty = frame.isna().all(axis=1)
    _check_empty(empty.to_numpy(), skip_empty, items.notes)
    # Annotator by annotator.
    votes: Any = frame.rename(columns=str).astype(object).T.stack().dropna()
    labels, used, _ = clean_labels(votes.rename("vote"))
    annotator, item = (
        pd.Series(votes.index.get_level_values(level)[used]) for level in (0, 1)
    )
    found = _counted(item, labels, annotator, items.notes)
    found.judges = _by_name(items.judges.loc[item.unique()])
    return found


def _from_rows(
    run: Run, table: Path, item: str | None, annotator: str | None, judge: list[str]
) -> Votes:
    """One row per vote."""
    import numpy as np

    from collidescope.tables.cells import check_columns

    rows = run.rows(table)
    names = list(rows.X.columns)
    if item is None:
        raise ValueError(
            f"say which column names the items, with --item: {table.name} has {names}"
        )
    wanted = [
        run.column(names, name, table) for name in (item, annotator) if name is not None
    ]
    whole = rows.X[wanted].notna().all(axis=1).to_numpy()
    notes = []
    if not whole.all():
        columns = " or ".join(wanted)
        notes.append(f"{(~whole).sum():,} votes lack {columns} and are left out")
    rows = rows.part(np.flatnonzero(whole), *notes)
    people = None
    if annotator is not None:
        people = rows.X[wanted[1]].astype(str)
    items = rows.X[wanted[0]]
    found = _counted(items, rows.y, people, rows.notes)
    check_columns(rows.X, judge)
    by_item = rows.X[judge].groupby(items, sort=False)
    for name, differ in (by_item.nunique() > 1).items():
        if differ.any():
            twice = differ.index[differ][0]
            raise ValueError(
                f"--judge {name!r} says two things of item {twice!r}: keep one"
            )
    found.judges = _by_name(by_item.first())
    return found


def _counted(
    items: pd.Series, labels: Array, people: pd.Series | None, notes: list[str]
) -> Votes:
    """Votes, one entry each, as counts; and who votes differently."""
    from collidescope.counting import count_table, input_groups, label_codes

    codes, classes = label_codes(labels)
    compared = None
    if people is not None:
        compared = cs.compare_annotators(items, labels, people, classes=list(classes))
    counts = count_table(input_groups(items), codes, len(classes))
    return Votes(counts, classes, compared, notes=notes)
