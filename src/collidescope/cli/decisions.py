"""From S to the next decision: ``audit``, ``rows``, ``columns``, ``groups``, ``ceilings``, ``compare``, ``split``.

Posteriors come from a model file and a table of raw rows, or from a table with a column of probabilities per class.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import collidescope as cs
from collidescope.cli import _run as opt
from collidescope.cli._console import note
from collidescope.cli._run import option

if TYPE_CHECKING:
    from collidescope.cli._inputs import Rows, Run

#: Exit code when ``--fail-above`` fails: neither an error nor bad input.
ABOVE = 3

AUDITED = "A model and a TABLE, or a table with probabilities."
BEFORE, AFTER = "A table of held-out probabilities and labels.", "Another, of a later fit or a later period."
MODEL = "A file that `fit … --save` wrote; the table has raw rows."
Model = Annotated[opt.File, option("MODEL", MODEL, "--model", "-m")]
SAID = "The column that holds what your classifier says."
Predicted = Annotated[opt.Column, option("COLUMN", SAID, "--predicted", "-p")]
FailAbove = Annotated[float | None, option("X", "Exit with code 3 where it is above X beyond chance: for CI.")]
Cluster = Annotated[opt.Column, option("COLUMN", "Rows with the same value belong together.")]

command = opt.command(*opt.READING, "out", "report", "title", *opt.PRINTING)


def _fail(low: float, above: float | None, what: str) -> None:
    if above is not None and low > above:
        note(f"{what} is above {above:g} beyond chance (at least {low:.4f})")
        raise typer.Exit(ABOVE)


@command
def audit(
    run: Run,
    source: Annotated[Path, typer.Argument(metavar="MODEL_OR_TABLE", help=AUDITED)],
    table: Annotated[opt.File, typer.Argument(metavar="TABLE", help="Labelled rows, where a model is given.")] = None,
    predicted: Predicted = None,
    fail_above: FailAbove = None,
) -> None:
    """Is your classifier at the ceiling? Which of its errors could a better model avoid?

    Takes labelled rows that your classifier was not trained on, with a column of its predictions, and splits its
    errors into fixable, not learned yet and inherent, class by class. The second opinion is a model, or columns of
    held-out probabilities (`p_CLASS`) in the same table. Rows that the model was fitted on get held-out probabilities.

    **Examples**

    - `collidescope audit model.collide test.csv --label income --predicted yhat`
    - `collidescope audit heldout.csv --label income --predicted yhat --fail-above 0.05`
    """
    run.start(source, table)
    if run.label is not None and run.label == predicted:
        hint = "name that of your classifier's answers"
        raise ValueError(f"--label and --predicted are the same column {predicted!r}: {hint}")
    rows, said = run.scored(table or source, source if table else None, predicted).predictions(predicted)
    found = cs.audit(rows.P, y_true=rows.y, y_pred=said, classes=rows.classes, limit=rows.limit)
    run.answer(found, rows, y_pred=said)  # the report has a place for an audit
    _fail(found.fixable_interval[0], fail_above, "the fixable error")


@command
def rows(
    run: Run,
    table: opt.Table,
    model: Model = None,
    kind: Annotated[str, option("KIND", "ambiguous, suspect, or both.")] = "both",
    by: Annotated[str, option("ORDER", "entropy, margin, or label (suspects first).")] = "entropy",
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
    found = cs.ambiguous(rows.P, y=rows.y, classes=rows.classes, by=by).rename(columns={"index": "row"})
    wanted = found["kind"] != "clear" if kind == "both" else found["kind"].str.startswith(kind)
    found = found[wanted][:top].reset_index(drop=True)
    lines = found.join(rows.X.iloc[found["row"]].add_prefix("x_").reset_index(drop=True))
    lines["row"] = found["row"] = rows.numbers[found["row"]]
    note(*rows.notes)
    words = opt.as_csv(lines).removesuffix("\n") if run.out is None else None
    run.tell(words, {"rows": plain(found), "notes": rows.notes}, table=lines, page=lambda: run.summary(rows))


@command
def columns(
    run: Run,
    table: opt.Table,
    unit: Annotated[opt.Columns, option("NAME=A,B", "Columns that are judged together. Repeat for more.")] = None,
    cost: Annotated[opt.Columns, option("COLUMN=X", "What a column costs. Repeat for more.")] = None,
    cluster: Cluster = None,
    budget: Annotated[int, option("N", "Cross-fits at most.", min=5)] = 51,
    sample: opt.Sample = 10_000,
    seed: opt.Seed = 0,
) -> None:
    """Which column tells which classes apart? What is it worth per unit of its cost?

    **Examples**

    - `collidescope columns table.csv --label income`
    - `collidescope columns table.csv --label outcome --unit "lab=na,k,ca" --cost lab=30 --cost age=0.1`
    """
    from collidescope.cli._inputs import group_numbers

    rows = run.start(table).rows(table).sampled(sample, seed)
    costs = _pairs(cost, "--cost", float)
    rows, together = rows.take(cluster, "--cluster", group_numbers)
    units = _pairs(unit, "--unit", lambda text: [part.strip() for part in text.split(",")])
    if units:
        used = {part for parts in units.values() for part in parts}
        units |= {str(name): [str(name)] for name in rows.X.columns if name not in used}
    options: dict[str, Any] = {"budget": budget, "random_state": seed, "verbose": int(not run.quiet), "costs": costs}
    found = cs.column_value(None, rows.X, rows.y, **options, columns=units or None, groups=together)
    run.answer(found, rows, source=found.matrix, sections=[found])


def _pairs(given: list[str] | None, option: str, read: Callable[[str], Any]) -> dict[str, Any]:
    found = {}
    for name, equals, value in (text.rpartition("=") for text in given or []):
        if not equals:
            raise ValueError(f"{option} takes NAME=VALUE, got {value!r}")
        try:
            found[name.strip()] = read(value.strip())
        except ValueError:
            raise ValueError(f"{option} {name} must be a number, got {value!r}") from None
    return found


@command
def groups(
    run: Run,
    table: opt.Table,
    by: Annotated[opt.Column, option("COLUMN", "The subgroups: hospital, region, year.")] = None,
    cluster: Cluster = None,
    model: Model = None,
) -> None:
    """For whom do the classes collide? PBER by subgroup, and which differ from the rest.

    **Example**

    - `collidescope groups heldout.csv --label outcome --by hospital`
    """
    rows = run.start(table, model).scored(table, model)
    own, together = rows.column(by, "--by").astype(str), rows.words(cluster, "--cluster")
    found = cs.collisions_by(rows.P, rows.y, own, clusters=together, classes=rows.classes)
    run.answer(found, rows, sections=[found])


@command
def ceilings(
    run: Run,
    table: opt.Table,
    predicted: Predicted = None,
    model: Model = None,
    cluster: Cluster = None,
    cost: Annotated[opt.File, option("FILE.csv", "Costs: a row per true class, a column per decision.")] = None,
) -> None:
    """What is the best possible value of your metric: accuracy, F1, AUC, log loss, cost?

    **Example**

    - `collidescope ceilings heldout.csv --label income --predicted yhat`
    """
    import pandas as pd

    from collidescope.tables.encoding import listed

    rows, said = run.start(table, model, cost).scored(table, model, predicted), None
    if predicted is not None:
        rows, said = rows.predictions(predicted)
    costs: Any = None
    if cost is not None:
        frame = pd.read_csv(cost, index_col=0).rename(index=str, columns=str)
        names = [str(name) for name in rows.classes]
        if missing := [name for name in names if name not in frame.index or name not in frame.columns]:
            need = f"it needs a row and a column for {listed(names)}"
            raise ValueError(f"{cost.name} lacks class {missing[0]!r}: {need}")
        costs = frame.loc[names, names].to_numpy()
    options = {"limit": rows.limit, "classes": rows.classes, "groups": rows.words(cluster, "--cluster")}
    found = cs.ceilings(rows.P, rows.y, y_pred=said, cost=costs, **options)
    run.answer(found, rows, sections=[found])


@command
def compare(
    run: Run,
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help=BEFORE)],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help=AFTER)],
    key: Annotated[opt.Column, option("COLUMN", "Rows with the same value are the same: paired.", "--id")] = None,
    fail_above: FailAbove = None,
) -> None:
    """Did collisions change between two fits, or two periods?

    **Examples**

    - `collidescope compare january.csv june.csv --label income`
    - `collidescope compare old.csv new.csv --label income --id customer --fail-above 0.01`
    """
    from collidescope.applications import collision_change

    run.start(before, after)
    first, second = map(run.scored, (before, after))
    if [str(name) for name in first.classes] != [str(name) for name in second.classes]:
        raise ValueError(f"{before.name} has classes {first.classes}, {after.name} has {second.classes}")
    second.notes[:0] = first.notes
    scored: tuple[Any, ...] = first.P, first.y, second.P, second.y
    if key is not None:
        i, j = _paired(first, second, key)
        scored = first.P[i], first.y[i], second.P[j], None
    found = collision_change(*scored, classes=first.classes)
    run.answer(found, second, sections=[found])
    _fail(found.interval[0], fail_above, "the rise of PBER")


def _paired(first: Rows, second: Rows, key: str) -> tuple[Any, Any]:
    import pandas as pd

    a, b = (pd.Index(rows.column(key, "--id")) for rows in (first, second))
    if not (a.is_unique and b.is_unique):
        raise ValueError(f"--id {key!r} must name every row once")
    shared = a.intersection(b)
    if len(shared) < 2:
        raise ValueError(f"{first.table.name} and {second.table.name} share no rows by {key!r}")
    if len(shared) < max(len(a), len(b)):
        second.notes.append(f"{len(shared):,} rows are in both ({len(a):,} and {len(b):,})")
    i, j = a.get_indexer(shared), b.get_indexer(shared)
    if changed := int((first.y[i] != second.y[j]).sum()):
        raise ValueError(f"{changed} rows with the same {key!r} have another label")
    return i, j


@command
def split(run: Run, table: opt.Table, model: Model = None, seed: opt.Seed = 0) -> None:
    """Which classes look like two: separate groups of inputs that collide with different classes?

    **Example**

    - `collidescope split heldout.csv --label species`
    """
    rows = run.start(table, model).scored(table, model)
    found = cs.split_candidates(rows.P, rows.y, classes=rows.classes, random_state=seed)
    run.answer(found, rows, sections=[found])
