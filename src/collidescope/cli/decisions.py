"""From S to the next decision: ``audit``, ``rows``, ``columns``, ``groups``, ``ceilings``, ``compare``, ``split``.

Posteriors come from a model file and a table of raw rows, or from a table with a column of probabilities per class.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import collidescope as cs
from collidescope.cli import _run as opt
from collidescope.cli._console import note
from collidescope.cli._run import Run, page_of, write_table

if TYPE_CHECKING:
    from collidescope.cli._inputs import Rows

#: Exit code when ``--fail-above`` fails: neither an error nor bad input.
ABOVE = 3

MODEL = "A file that `fit … --save` wrote; the table has raw rows."
PREDICTED = "The column that holds what your classifier says."
FAIL_ABOVE = "Exit with code 3 where it is above X beyond chance: for CI."
CLUSTER = "Rows with the same value belong together."
Model = Annotated[opt.File, typer.Option("--model", "-m", metavar="MODEL", help=MODEL)]
Predicted = Annotated[opt.Column, typer.Option("--predicted", "-p", metavar="COLUMN", help=PREDICTED)]
FailAbove = Annotated[float | None, typer.Option(metavar="X", help=FAIL_ABOVE)]
Cluster = Annotated[opt.Column, typer.Option(metavar="COLUMN", help=CLUSTER)]

AUDITED = "A model and a TABLE, or a table with probabilities."
BY = "The subgroups: hospital, region, year."
UNIT = "Columns that are judged together. Repeat for more."
COSTS = "Costs: a row per true class, a column per decision."
BEFORE, AFTER = "A table of held-out probabilities and labels.", "Another, of a later fit or a later period."
ID = "Rows with the same value are the same: paired."

command = opt.command(*opt.READING, "out", "report", "title", *opt.PRINTING)


class Scores:
    """Posteriors of labelled rows (``rows.X`` holds the other columns), from a model or from columns of the table."""

    def __init__(self, run: Run, reading: Any, table: Path, model: Path | None = None, extra: Any = ()) -> None:
        self.limit, self.used = None, list[str]()
        if model is None:
            self.rows, self.P, self.classes = reading.rows(table, run.label).posteriors()
        else:
            fitted = opt.load_model(model)
            self.rows = reading.rows_for(fitted, table, run.label)
            self.classes, self.limit = fitted.classes_.tolist(), getattr(fitted, "limit_", None)
            self.used = list(getattr(getattr(fitted, "encoder_", None), "types", ()))
            self.P, met = reading.posteriors(fitted, self.rows.X.drop(columns=extra, errors="ignore"))
            self.rows.notes.extend(met)

    def column(self, name: str | None, option: str) -> Any:
        from collidescope.tables.encoding import check_columns, listed

        if name is None:
            has = listed(list(self.rows.X.columns))
            raise ValueError(f"name a column with {option}: {self.rows.table.name} has {has}")
        check_columns(self.rows.X, [name])
        return self.rows.X[name]

    def words(self, name: str | None, option: str) -> Any:
        return None if name is None else self.column(name, option).astype(str)

    def predictions(self, name: str | None) -> Any:
        """The classes that a column of predictions names; rows without a value are left out from here on."""
        from collidescope.cli._inputs import match_labels

        said, there = match_labels(self.column(name, "--predicted"), self.classes, "predicted")
        if lost := len(there) - len(said):
            self.rows = self.rows.part(there.nonzero()[0], f"{lost:,} rows have no value in {name!r} and are left out")
            self.P = self.P[there]
        return said

    @property
    def shown(self) -> dict[str, Any]:
        import pandas as pd

        about = {"file": self.rows.table.name, "label": self.rows.label, "columns": self.used}
        frame = pd.DataFrame(self.P, columns=self.classes)
        return {"source": frame, "y": self.rows.y, "limit": self.limit, "about": about}


def finish(run: Run, found: Any, rows: Rows, **shown: Any) -> None:
    """Print the result, then write its table, and the report of ``shown`` with the result as a section."""
    note(*rows.notes)
    lines = getattr(found, found.TABLE).drop(columns="columns", errors="ignore")

    def data() -> dict[str, Any]:
        told = found.to_dict()
        return told | {"notes": [*told.get("notes", ()), *rows.notes]}

    run.tell(opt.for_terminal(str(found)), data, *outputs(run, rows, lines, **shown))


def outputs(run: Run, rows: Rows, lines: Any, **shown: Any) -> tuple[opt.Output, ...]:
    """The table ``lines``, and the report."""
    page = page_of(lambda: cs.summarise(title=run.title, notes=rows.notes, **shown))
    return (f"table of {len(lines):,} lines", run.out, partial(write_table, lines)), ("report", run.report, page)


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
    reading = run.start(source, table)
    if run.label is not None and run.label == predicted:
        hint = "name that of your classifier's answers"
        raise ValueError(f"--label and --predicted are the same column {predicted!r}: {hint}")
    scores = Scores(run, reading, table or source, source if table else None, [predicted])
    said = scores.predictions(predicted)
    found = cs.audit(scores.P, y_true=scores.rows.y, y_pred=said, classes=scores.classes, limit=scores.limit)
    finish(run, found, scores.rows, **scores.shown, y_pred=said)  # the report has a place for an audit
    _fail(found.fixable_interval[0], fail_above, "the fixable error")


@command
def rows(
    run: Run,
    table: opt.TableArgument,
    model: Model = None,
    kind: Annotated[str, typer.Option(metavar="KIND", help="ambiguous, suspect, or both.")] = "both",
    by: Annotated[str, typer.Option(metavar="ORDER", help="entropy, margin, or label (suspects first).")] = "entropy",
    top: Annotated[int | None, typer.Option(min=1, metavar="N", help="Only the first N.")] = None,
) -> None:
    """Which rows are ambiguous, and which labels look wrong? All of them, with their numbers.

    **Examples**

    - `collidescope rows heldout.csv --label income --kind suspect --out suspects.csv`
    - `collidescope rows table.csv --model model.collide --out rows.parquet`
    """
    from collidescope._checks import check_choice
    from collidescope.applications._inputs import plain

    reading = run.start(table, model)
    wanted = {"ambiguous": ["ambiguous"], "suspect": ["suspect label"], "both": ["ambiguous", "suspect label"]}
    check_choice(kind, list(wanted), "--kind")
    scores = Scores(run, reading, table, model)
    found = cs.ambiguous(scores.P, y=scores.rows.y, classes=scores.classes, by=by)
    found = found[found["kind"].isin(wanted[kind])][:top].reset_index(drop=True).rename(columns={"index": "row"})
    lines = found.join(scores.rows.X.iloc[found["row"]].add_prefix("x_").reset_index(drop=True))
    lines["row"] = found["row"] = scores.rows.numbers[found["row"]]
    note(*scores.rows.notes)
    words = opt.as_csv(lines).removesuffix("\n") if run.out is None else None
    written = outputs(run, scores.rows, lines, **scores.shown)
    run.tell(words, lambda: {"rows": plain(found), "notes": scores.rows.notes}, *written)


@command
def columns(
    run: Run,
    table: opt.TableArgument,
    unit: Annotated[opt.Columns, typer.Option(metavar="NAME=A,B", help=UNIT)] = None,
    cost: Annotated[opt.Columns, typer.Option(metavar="COLUMN=X", help="What a column costs. Repeat for more.")] = None,
    cluster: Cluster = None,
    budget: Annotated[int, typer.Option(min=5, metavar="N", help="Cross-fits at most.")] = 51,
    sample: opt.Sample = 10_000,
    seed: opt.Seed = 0,
) -> None:
    """Which column tells which classes apart? What is it worth per unit of its cost?

    **Examples**

    - `collidescope columns table.csv --label income`
    - `collidescope columns table.csv --label outcome --unit "lab=na,k,ca" --cost lab=30 --cost age=0.1`
    """
    rows = run.start(table).rows(table, run.label).sampled(sample, seed)
    costs = _pairs(cost, "--cost", float)
    rows, together = rows.take_groups(cluster, "--cluster")
    units = _pairs(unit, "--unit", lambda text: [part.strip() for part in text.split(",")])
    if units:
        used = {part for parts in units.values() for part in parts}
        units |= {str(name): [str(name)] for name in rows.X.columns if name not in used}
    options: dict[str, Any] = {"budget": budget, "random_state": seed, "verbose": int(not run.quiet), "costs": costs}
    options |= {"columns": units or None, "groups": together}
    found = cs.column_value(None, rows.X, rows.y, **options)
    about = {"file": table.name, "label": rows.label, "columns": list(rows.X.columns)}
    finish(run, found, rows, source=found.matrix, about=about, sections=[found])


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
    table: opt.TableArgument,
    by: Annotated[opt.Column, typer.Option(metavar="COLUMN", help=BY)] = None,
    cluster: Cluster = None,
    model: Model = None,
) -> None:
    """For whom do the classes collide? PBER by subgroup, and which differ from the rest.

    **Example**

    - `collidescope groups heldout.csv --label outcome --by hospital`
    """
    scores = Scores(run, run.start(table, model), table, model)
    own, together = scores.column(by, "--by").astype(str), scores.words(cluster, "--cluster")
    found = cs.collisions_by(scores.P, scores.rows.y, own, clusters=together, classes=scores.classes)
    finish(run, found, scores.rows, **scores.shown, sections=[found])


@command
def ceilings(
    run: Run,
    table: opt.TableArgument,
    predicted: Predicted = None,
    model: Model = None,
    cluster: Cluster = None,
    cost: Annotated[opt.File, typer.Option(metavar="FILE.csv", help=COSTS)] = None,
) -> None:
    """What is the best possible value of your metric: accuracy, F1, AUC, log loss, cost?

    **Example**

    - `collidescope ceilings heldout.csv --label income --predicted yhat`
    """
    scores = Scores(run, run.start(table, model, cost), table, model, [predicted])
    said = None if predicted is None else scores.predictions(predicted)
    options = {"limit": scores.limit, "classes": scores.classes, "groups": scores.words(cluster, "--cluster")}
    found = cs.ceilings(scores.P, scores.rows.y, y_pred=said, cost=_costs(cost, scores.classes), **options)
    finish(run, found, scores.rows, **scores.shown, sections=[found])


def _costs(path: Path | None, classes: list[Any]) -> Any:
    if path is None:
        return None
    import pandas as pd

    from collidescope.tables.encoding import listed

    frame = pd.read_csv(path, index_col=0)
    frame.index, frame.columns = frame.index.astype(str), frame.columns.astype(str)
    names = [str(name) for name in classes]
    missing = [name for name in names if name not in frame.index or name not in frame.columns]
    if missing:
        raise ValueError(f"{path.name} lacks class {missing[0]!r}: it needs a row and a column for {listed(names)}")
    return frame.loc[names, names].to_numpy()


@command
def compare(
    run: Run,
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help=BEFORE)],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help=AFTER)],
    key: Annotated[opt.Column, typer.Option("--id", metavar="COLUMN", help=ID)] = None,
    fail_above: FailAbove = None,
) -> None:
    """Did collisions change between two fits, or two periods?

    **Examples**

    - `collidescope compare january.csv june.csv --label income`
    - `collidescope compare old.csv new.csv --label income --id customer --fail-above 0.01`
    """
    from collidescope.applications import collision_change

    reading = run.start(before, after)
    first, second = (Scores(run, reading, path) for path in (before, after))
    if [str(name) for name in first.classes] != [str(name) for name in second.classes]:
        raise ValueError(f"{before.name} has classes {first.classes}, {after.name} has {second.classes}")
    second.rows.notes[:0] = first.rows.notes
    scored: tuple[Any, ...] = first.P, first.rows.y, second.P, second.rows.y
    if key is not None:
        i, j = _paired(first, second, key)
        scored = first.P[i], first.rows.y[i], second.P[j], None
    found = collision_change(*scored, classes=first.classes)
    finish(run, found, second.rows, **second.shown, sections=[found])
    _fail(found.interval[0], fail_above, "the rise of PBER")


def _paired(first: Scores, second: Scores, key: str) -> tuple[Any, Any]:
    import pandas as pd

    a, b = (pd.Index(scores.column(key, "--id")) for scores in (first, second))
    if not (a.is_unique and b.is_unique):
        raise ValueError(f"--id {key!r} must name every row once")
    shared = a.intersection(b)
    if len(shared) < 2:
        raise ValueError(f"{first.rows.table.name} and {second.rows.table.name} share no rows by {key!r}")
    if len(shared) < max(len(a), len(b)):
        second.rows.notes.append(f"{len(shared):,} rows are in both ({len(a):,} and {len(b):,})")
    i, j = a.get_indexer(shared), b.get_indexer(shared)
    if changed := int((first.rows.y[i] != second.rows.y[j]).sum()):
        raise ValueError(f"{changed} rows with the same {key!r} have another label")
    return i, j


@command
def split(run: Run, table: opt.TableArgument, model: Model = None, seed: opt.Seed = 0) -> None:
    """Which classes look like two: separate groups of inputs that collide with different classes?

    **Example**

    - `collidescope split heldout.csv --label species`
    """
    scores = Scores(run, run.start(table, model), table, model)
    found = cs.split_candidates(scores.P, scores.rows.y, classes=scores.classes, random_state=seed)
    finish(run, found, scores.rows, **scores.shown, sections=[found])
