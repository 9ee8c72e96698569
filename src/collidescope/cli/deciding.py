"""The commands that answer a question about labelled rows: the next decision.

Posteriors come from a model file and a table of raw rows, or from a table with a column of
probabilities per class.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import collidescope as cs
from collidescope.cli import _run as opt
from collidescope.cli._console import note
from collidescope.cli._run import (
    Column,
    Columns,
    File,
    argument,
    command,
    option,
)

if TYPE_CHECKING:
    from collidescope._checks import IntArray
    from collidescope.applications._inputs import Record
    from collidescope.cli._inputs import Rows, Run

Model = Annotated[
    File,
    option(
        "MODEL",
        "A model that `fit … --save` wrote, to score the raw rows of the table.",
        "--model",
        "-m",
    ),
]
Predicted = Annotated[
    Column,
    option(
        "COLUMN",
        "The column that holds the predictions of your classifier.",
        "--predicted",
        "-p",
    ),
]
FailAbove = Annotated[
    float | None,
    option("X", "Exit with code 3 if the number is above X beyond chance (for CI)."),
]
Cluster = Annotated[
    Column,
    option(
        "COLUMN",
        "Rows with the same value belong together: intervals count groups, not rows.",
    ),
]
#: A command that answers a question about labelled rows.
decision = command(*opt.READING, "out", "report", "title", *opt.PRINTING)


def _fail(low: float, above: float | None, what: str) -> None:
    """Exit code 3, neither an error nor bad input, where ``--fail-above`` fails."""
    if above is not None and low > above:
        note(f"{what} is above {above:g} beyond chance (at least {low:.4f})")
        raise typer.Exit(3)


@decision
def audit(
    run: Run,
    source: Annotated[
        Path,
        argument(
            "MODEL_OR_TABLE", "A model and a TABLE, or a table with probabilities."
        ),
    ],
    table: Annotated[
        File, argument("TABLE", "Labelled rows, where a model is given.")
    ] = None,
    predicted: Predicted = None,
    cluster: Cluster = None,
    fail_above: FailAbove = None,
) -> None:
    """Is your classifier at the ceiling? Which of its errors could a better model avoid?

    Takes labelled rows that your classifier was not trained on, with a column of its predictions,
    and splits its errors into fixable, not learned yet and inherent, class by class. The second
    opinion is a model, or columns of held-out probabilities (`p_CLASS`) in the same table. Rows
    that the model was fitted on get held-out probabilities.

    **Examples**

    - `collidescope audit model.collide test.csv --label income --predicted yhat`
    - `collidescope audit heldout.csv --label income --predicted yhat --fail-above 0.05`
    """
    run.start(source, table)
    if table is None:
        scored = run.scored(source)
    else:
        scored = run.scored(table, source, predicted)
    rows, said = scored.predictions(predicted)
    together = rows.clusters(cluster)
    found = cs.audit(
        rows.P,
        y_true=rows.y,
        y_pred=said,
        groups=together,
        classes=rows.classes,
        limit=rows.limit,
    )
    # The report has a place for an audit.
    run.answer(found, rows, y_pred=said, sections=(), groups=together)
    _fail(found.fixable_interval[0], fail_above, "the fixable error")


@decision
def rows(
    run: Run,
    table: opt.Table,
    model: Model = None,
    kind: Annotated[str, option("KIND", "ambiguous, suspect, or both.")] = "both",
    by: Annotated[
        str, option("ORDER", "entropy, margin, or label (suspects first).")
    ] = "entropy",
    top: Annotated[int | None, option("N", "Only the first N.", min=1)] = None,
) -> None:
    """Which rows are ambiguous, and which labels look wrong? All of them, with their numbers.

    **Examples**

    - `collidescope rows heldout.csv --label income --kind suspect --out suspects.csv`
    - `collidescope rows table.csv --model model.collide --out rows.parquet`
    """
    from collidescope._checks import check_choice
    from collidescope.applications._inputs import plain

    check_choice(kind, ["ambiguous", "suspect", "both"], "--kind")
    rows = run.start(table, model).scored(table, model)
    found = cs.ambiguous(rows.P, y=rows.y, classes=rows.classes, by=by)
    found = found.rename(columns={"index": "row"})
    wanted = found["kind"] != "clear"
    if kind != "both":
        wanted = found["kind"].str.startswith(kind)
    found = found[wanted][:top].reset_index(drop=True)
    inputs = rows.X.iloc[found["row"]].add_prefix("x_").reset_index(drop=True)
    found["row"] = rows.numbers[found["row"]]
    note(*rows.notes)
    data = {"rows": plain(found), "notes": rows.notes}
    run.tell(None, data, table=found.join(inputs), page=lambda: run.summary(rows))


@decision
def columns(
    run: Run,
    table: opt.Table,
    unit: Annotated[
        Columns,
        option("NAME=A,B", "Columns that are judged together. Repeat for more."),
    ] = None,
    cost: Annotated[
        Columns, option("COLUMN=X", "What a column costs. Repeat for more.")
    ] = None,
    cluster: Cluster = None,
    budget: Annotated[int, option("N", "The most cross-fits to run.", min=5)] = 51,
    sample: opt.Sample = 10_000,
    seed: opt.Seed = 0,
) -> None:
    """Which column tells which classes apart? What is it worth per unit of its cost?

    **Examples**

    - `collidescope columns table.csv --label income`
    - `collidescope columns visits.csv --label outcome --unit "lab=na,k,ca" --cost lab=30`
    """
    rows = run.start(table).rows(table).sampled(sample, seed)
    costs = _pairs(cost, "--cost", float)
    rows, together = rows.take(cluster, "--cluster")
    found = cs.column_value(
        None,
        rows.X,
        rows.y,
        columns=_units(unit, rows),
        costs=costs,
        groups=together,
        budget=budget,
        random_state=seed,
        verbose=int(not run.quiet),
    )
    run.answer(found, rows, source=found.matrix)


@decision
def plan(
    run: Run,
    source: Annotated[
        Path,
        argument("MODEL_OR_TABLE", "A model (--save) and a TABLE, or a table to fit."),
    ],
    table: Annotated[
        File, argument("TABLE", "Labelled rows, where a model is given.")
    ] = None,
    price: Annotated[
        Columns,
        option(
            "NAME=X",
            "What one more row, checking a label, a vote or merging two classes costs (row, label, "
            "vote, merge), or having a column (its name). Repeat for more.",
        ),
    ] = None,
    budget: Annotated[
        float | None,
        option(
            "X",
            "Money for rows, labels or votes.  [default: what doubling the rows costs]",
        ),
    ] = None,
    plot: Annotated[File, option("FILE.png", "Draw it (.png, .svg or .pdf).")] = None,
    mapping: Annotated[
        File,
        option("FILE", "Write which class the best merge puts where (.json or .csv)."),
    ] = None,
    seed: opt.Seed = 0,
) -> None:
    """What to do with the next euro: more rows, checked labels, columns, or fewer classes?

    For each option: by how much the PBER would fall, with an interval, and per unit of money.
    Options without a price are shown without a rank. Columns are judged where one has a price: that
    takes as long as `collidescope columns`.

    **Examples**

    - `collidescope plan table.csv --label income --price row=0.1 --price label=0.5`
    - `collidescope plan model.collide table.csv --price row=0.1 --price age=20 --budget 500`
    """
    from collidescope.applications.plan import plan as spending_plan
    from collidescope.tables.cells import listed

    run.start(source, table, outputs=(plot, mapping))
    prices = _pairs(price, "--price", float)
    model: Any
    if table is None:
        rows = run.rows(source)
        model = run.fitted(rows, seed)
    else:
        fitted = opt.load_model(source)
        rows = run.scored_by(fitted, table)
        model = rows.asked_of(fitted)
    kinds = ("row", "label", "vote", "merge")
    money: Record = {name: prices.pop(name) for name in kinds if name in prices}
    known = list(rows.X.columns)
    for name in prices:
        if name not in known:
            raise ValueError(
                f"--price takes {', '.join(kinds)} or a column ({listed(known)}), got "
                f"{name!r}"
            )
    X = None
    if prices:
        X = rows.X
        money["columns"] = prices
    found = spending_plan(model, X, rows.y, prices=money, budget=budget)
    drawn = opt.picture("picture", plot, found.plot)
    merges = opt.written_mapping(mapping, found.mapping)
    run.answer(found, rows, drawn, merges, source=model)


def _units(given: list[str] | None, rows: Rows) -> dict[str, list[str]] | None:
    """Columns that are judged together, and all others one by one."""
    units: dict[str, list[str]] = _pairs(given, "--unit", opt.split_names)
    if not units:
        return None
    used = {part for parts in units.values() for part in parts}
    alone = [str(name) for name in rows.X.columns if name not in used]
    return units | {name: [name] for name in alone}


def _pairs(given: list[str] | None, option: str, read: Callable[[str], Any]) -> Record:
    found = {}
    for text in given or []:
        name, equals, value = text.rpartition("=")
        if not equals:
            raise ValueError(f"{option} takes NAME=VALUE, got {value!r}")
        try:
            found[name.strip()] = read(value.strip())
        except ValueError:
            raise ValueError(
                f"{option} {name} must be a number, got {value!r}"
            ) from None
    return found


@decision
def groups(
    run: Run,
    table: opt.Table,
    by: Annotated[
        Column, option("COLUMN", "The subgroups: hospital, region, year.")
    ] = None,
    cluster: Cluster = None,
    model: Model = None,
) -> None:
    """For whom do the classes collide? PBER by subgroup, and which differ from the rest.

    Rows with an empty cell are the subgroup "(empty)".

    **Example**

    - `collidescope groups heldout.csv --label outcome --by hospital`
    """
    from collidescope.cli._inputs import group_names

    rows = run.start(table, model).scored(table, model)
    together = rows.clusters(cluster)
    found = cs.collisions_by(
        rows.P,
        rows.y,
        group_names(rows.column(by, "--by")),
        groups=together,
        classes=rows.classes,
    )
    run.answer(found, rows, groups=together)


@decision
def ceilings(
    run: Run,
    table: opt.Table,
    predicted: Predicted = None,
    model: Model = None,
    cluster: Cluster = None,
    cost: Annotated[
        File,
        option("FILE.csv", "Costs: a row per true class, a column per decision."),
    ] = None,
) -> None:
    """What is the best possible value of your metric: accuracy, F1, AUC, log loss, cost?

    **Example**

    - `collidescope ceilings heldout.csv --label income --predicted yhat`
    """
    rows = run.start(table, model, cost).scored(table, model, predicted)
    said = None
    if predicted is not None:
        rows, said = rows.predictions(predicted)
    together = rows.clusters(cluster)
    found = cs.ceilings(
        rows.P,
        rows.y,
        y_pred=said,
        cost=_costs(cost, rows.classes),
        limit=rows.limit,
        classes=rows.classes,
        groups=together,
    )
    run.answer(found, rows, groups=together)


def _costs(path: Path | None, classes: list[Any]) -> Any:
    """The cost of each decision (columns) for each true class (rows)."""
    import numpy as np

    if path is None:
        return None

    from collidescope.tables.cells import as_numbers, as_word, listed
    from collidescope.tables.reading import read_table

    frame = read_table(path).frame
    frame = frame.set_index(frame.columns[0]).rename(index=as_word, columns=as_word)
    names = [as_word(name) for name in classes]
    for name in names:
        if name not in frame.index or name not in frame.columns:
            raise ValueError(
                f"{path.name} lacks class {name!r}: it needs a row and a column for "
                f"{listed(names)}"
            )
    chosen = frame.loc[names, names]
    return np.column_stack([as_numbers(chosen[name]) for name in names])


@decision
def compare(
    run: Run,
    before: Annotated[
        Path, argument("BEFORE", "A table of held-out probabilities and labels.")
    ],
    after: Annotated[
        Path, argument("AFTER", "Another, of a later fit or a later period.")
    ],
    key: Annotated[
        Column,
        option("COLUMN", "Rows with the same value are the same: paired.", "--id"),
    ] = None,
    cluster: Cluster = None,
    fail_above: FailAbove = None,
) -> None:
    """Did collisions change between two fits, or two periods?

    **Examples**

    - `collidescope compare january.csv june.csv --label income`
    - `collidescope compare old.csv new.csv --label income --id customer --fail-above 0.01`
    """
    from collidescope.applications import collision_change

    run.start(before, after)
    first = run.scored(before)
    second = run.scored(after)
    classes = first.classes
    if [str(name) for name in classes] != [str(name) for name in second.classes]:
        raise ValueError(
            f"{before.name} has classes {classes}, {after.name} has {second.classes}"
        )
    second.notes[:0] = first.notes
    earlier = first.clusters(cluster)
    together = second.clusters(cluster)
    if key is None:
        found = collision_change(
            first.P,
            first.y,
            second.P,
            second.y,
            groups=earlier,
            groups_after=together,
            classes=classes,
        )
    else:
        i, j = _paired(first, second, key)
        same = None if earlier is None else earlier[i]
        found = collision_change(
            first.P[i], first.y[i], second.P[j], groups=same, classes=classes
        )
    run.answer(found, second, groups=together)
    _fail(found.interval[0], fail_above, "the rise of PBER")


def _paired(first: Rows, second: Rows, key: str) -> tuple[IntArray, IntArray]:
    """Places of the same rows in both tables."""
    import pandas as pd

    a = pd.Index(first.column(key, "--id"))
    b = pd.Index(second.column(key, "--id"))
    if not (a.is_unique and b.is_unique):
        raise ValueError(f"--id {key!r} must name every row once")
    shared = a.intersection(b)
    if len(shared) < 2:
        raise ValueError(
            f"{first.table.name} and {second.table.name} share no rows by {key!r}"
        )
    if len(shared) < max(len(a), len(b)):
        second.notes.append(
            f"{len(shared):,} rows are in both ({len(a):,} and {len(b):,})"
        )
    i = a.get_indexer(shared)
    j = b.get_indexer(shared)
    changed = (first.y[i] != second.y[j]).sum()
    if changed:
        raise ValueError(f"{changed} rows with the same {key!r} have another label")
    return i, j


@decision
def split(run: Run, table: opt.Table, model: Model = None, seed: opt.Seed = 0) -> None:
    """Which classes look like two: separate groups of inputs that collide with different classes?

    **Example**

    - `collidescope split heldout.csv --label species`
    """
    rows = run.start(table, model).scored(table, model)
    found = cs.split_candidates(rows.P, rows.y, classes=rows.classes, random_state=seed)
    run.answer(found, rows)
