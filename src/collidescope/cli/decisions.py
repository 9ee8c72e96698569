"""From S to the next decision: ``audit``, ``rows``, ``columns``, ``groups``, ``ceilings``, ``compare``, ``split``.

Posteriors come from a model file and a table of raw rows, or from a table with a column of probabilities per class.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from collidescope.cli import _options as opt
from collidescope.cli._console import guarded, is_quiet, note, set_quiet, show, show_json

#: Exit code when ``--fail-above`` fails: neither an error nor bad input.
ABOVE = 3

Model = Annotated[
    Path | None,
    typer.Option("--model", "-m", metavar="MODEL", help="A file that `fit … --save` wrote; the table has raw rows."),
]
Predicted = Annotated[
    str | None,
    typer.Option("--predicted", "-p", metavar="COLUMN", help="The column that holds what your classifier says."),
]
FailAbove = Annotated[
    float | None,
    typer.Option("--fail-above", metavar="X", help="Exit with code 3 where it is above X beyond chance: for CI."),
]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the table: .csv, .tsv or .parquet.")
]
Cluster = Annotated[
    str | None, typer.Option("--cluster", metavar="COLUMN", help="Rows with the same value belong together.")
]


@dataclass
class Run:
    """The options that all commands of this module share, and what they do with them."""

    label: opt.Label = None
    out: Out = None
    report: opt.Report = None
    title: opt.Title = None
    as_json: opt.Json = False
    quiet: opt.Quiet = False
    header: opt.Header = True
    delimiter: opt.Delimiter = None
    skip_lines: opt.SkipLines = 0

    def start(self, table: Path, *more: Path | None) -> Any:
        """Check the outputs before any work; how to read the tables."""
        from collidescope.cli._inputs import Reading
        from collidescope.cli._results import check_report
        from collidescope.cli._writing import check_outputs, check_suffix

        set_quiet(self.quiet)
        check_outputs([path for path in (table, *more) if path is not None], [self.out, self.report])
        check_suffix(self.out)
        check_report(self.report)
        return Reading(self.header, self.delimiter, self.skip_lines)

    def finish(self, found: Any, scores: Any, table: Any = None, answer: Callable[[], None] | None = None) -> None:
        """Print the result, then write its table, and the report of ``scores`` with the result as a section."""
        from collidescope.cli._results import print_then_write, summary_of, write_summary
        from collidescope.cli._writing import write_outputs, write_table

        for line in scores.notes:
            note(line)

        def told() -> None:
            data = found.to_dict() if self.as_json else {}
            show_json(data | {"notes": [*data.get("notes", ()), *scores.notes]}) if self.as_json else show(str(found))

        def page(path: Path) -> None:
            about = {"file": scores.table.name, "label": scores.label, "columns": list(scores.others.columns)}
            shown = scores.shown if "y_pred" in scores.shown or found is None else {"sections": [found]} | scores.shown
            write_summary(summary_of(title=self.title, notes=scores.notes, about=about, **shown), path)

        table = getattr(found, found.TABLE).drop(columns="columns", errors="ignore") if table is None else table
        outputs = (f"{len(table):,} lines", self.out, partial(write_table, table)), ("report", self.report, page)
        print_then_write(answer or told, lambda: write_outputs(*outputs))


def command(function: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of :class:`Run` behind its own; they come to ``function`` as its first argument."""
    shared = {option.name for option in fields(Run)}

    @guarded
    @functools.wraps(function)
    def run(**given: Any) -> None:
        function(Run(**{name: given.pop(name) for name in shared}), **given)

    parts = [inspect.signature(part, eval_str=True).parameters.values() for part in (function, Run)]
    every = [*list(parts[0])[1:], *parts[1]]
    every.sort(key=lambda option: option.name != "label" and option.name in shared)  # the label is asked for early
    keyword = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in every]
    run.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in every}
    return run


class Scores:
    """Posteriors, labels and the other columns of a table, with what the report says about them (``shown``)."""

    def __init__(self, run: Run, reading: Any, table: Path, model: Path | None = None, extra: Any = ()) -> None:
        import numpy as np
        import pandas as pd

        from collidescope.cli import _inputs as inputs
        from collidescope.cli import matrices, predicting

        self.table, self.limit = table, None
        if model is None:
            rows = inputs.labelled_rows(table, run.label, reading)
            rows, self.P, classes, self.others = matrices._posterior_columns(rows)
            self.classes, self.y, self.numbers, self.notes = list(classes), rows.y, rows.numbers, list(rows.notes)
            self.label = rows.label
        else:
            fitted = inputs.load_model(model)
            X, self.notes = predicting._raw_rows(fitted, table, reading, run.label)
            known = run.label or getattr(fitted, "label_", None)
            self.label = inputs.label_column(list(X.columns), known, table, reading.header)
            self.y, labelled = inputs.match_labels(X[self.label], fitted.classes_.tolist(), "label")
            self.numbers = np.flatnonzero(labelled)
            if len(self.numbers) < len(X):
                self.notes.append(f"{len(X) - len(self.numbers):,} of {len(X):,} rows have no label and are left out")
            X = X.iloc[self.numbers].reset_index(drop=True)
            self.others, self.classes = X.drop(columns=self.label), fitted.classes_.tolist()
            rows = self.others.drop(columns=[name for name in extra if name in self.others])
            self.P, met = posteriors_of(fitted, rows)
            self.notes, self.limit = [*self.notes, *met], getattr(fitted, "limit_", None)
        frame: Any = pd.DataFrame(self.P, columns=self.classes)
        self.shown: dict[str, Any] = {"source": frame, "y": self.y, "limit": self.limit}

    def column(self, name: str | None, option: str) -> Any:
        """A column that the user named."""
        from collidescope.tables.encoding import check_columns, listed

        if name is None:
            raise ValueError(f"name a column with {option}: {self.table.name} has {listed(list(self.others.columns))}")
        check_columns(self.others, [name])
        return self.others[name]

    def predictions(self, name: str | None) -> Any:
        """The classes that a column of predictions names; rows without a value are left out from here on."""
        import numpy as np

        from collidescope.cli._inputs import match_labels

        said, there = match_labels(self.column(name, "--predicted"), self.classes, "predicted")
        if len(said) < len(self.y):
            self.notes.append(f"{len(self.y) - len(said):,} rows have no value in {name!r} and are left out")
        kept = np.flatnonzero(there)
        self.P, self.y, self.others = self.P[kept], self.y[kept], self.others.iloc[kept]
        self.shown |= {"source": self.shown["source"].iloc[kept].reset_index(drop=True), "y": self.y}
        return said


def posteriors_of(fitted: Any, X: Any) -> tuple[Any, list[str]]:
    """Posteriors of raw rows, held-out ones for rows of the fit, and what was met on the way."""
    from collidescope.applications._inputs import posteriors_of as scores
    from collidescope.cli import _inputs as inputs
    from collidescope.cli import predicting

    if not hasattr(fitted, "encoder_"):
        P, _, notes = scores(fitted, predicting._plain_columns(fitted, X), None, None, "model")
        return P, list(notes)
    with inputs.notes_as_they_come() as met:
        P, _, notes = scores(fitted, X, None, None, "model")
    return P, [*met, *notes]


def apps() -> Any:
    """The functions behind the commands, imported when one runs."""
    from collidescope import applications

    return applications


def _fail(low: float, above: float | None, what: str) -> None:
    if above is not None and low > above:
        note(f"{what} is above {above:g} beyond chance (at least {low:.4f})")
        raise typer.Exit(ABOVE)


@command
def audit(
    run: Run,
    source: Annotated[
        Path, typer.Argument(metavar="MODEL_OR_TABLE", help="A model and a TABLE, or a table with probabilities.")
    ],
    table: Annotated[
        Path | None, typer.Argument(metavar="[TABLE]", help="Labelled rows, where a model is given.")
    ] = None,
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
        raise ValueError(
            f"--label and --predicted are the same column {predicted!r}: name that of your classifier's answers"
        )
    scores = Scores(run, reading, table or source, None if table is None else source, [predicted])
    said = scores.predictions(predicted)
    found = apps().audit(scores.P, y_true=scores.y, y_pred=said, classes=scores.classes, limit=scores.limit)
    scores.shown["y_pred"] = said  # the report has a place for an audit
    run.finish(found, scores)
    _fail(found.fixable_interval[0], fail_above, "the fixable error")


@command
def rows(
    run: Run,
    table: opt.TableArgument,
    model: Model = None,
    kind: Annotated[str, typer.Option("--kind", metavar="KIND", help="ambiguous, suspect, or both.")] = "both",
    by: Annotated[
        str, typer.Option("--by", metavar="ORDER", help="entropy, margin, or label (suspects first).")
    ] = "entropy",
    top: Annotated[int | None, typer.Option("--top", min=1, metavar="N", help="Only the first N.")] = None,
) -> None:
    """Which rows are ambiguous, and which labels look wrong? All of them, with their numbers.

    **Examples**

    - `collidescope rows heldout.csv --label income --kind suspect --out suspects.csv`
    - `collidescope rows table.csv --model model.collide --out rows.parquet`
    """
    from collidescope._checks import check_choice
    from collidescope.applications._inputs import plain
    from collidescope.cli._writing import as_csv

    reading = run.start(table, model)
    wanted = {"ambiguous": ["ambiguous"], "suspect": ["suspect label"], "both": ["ambiguous", "suspect label"]}
    check_choice(kind, list(wanted), "--kind")
    scores = Scores(run, reading, table, model)
    found = apps().ambiguous(scores.P, y=scores.y, classes=scores.classes, by=by)
    found = found[found["kind"].isin(wanted[kind])][:top].reset_index(drop=True).rename(columns={"index": "row"})
    others = scores.others.iloc[found["row"]].add_prefix("x_").reset_index(drop=True)
    found["row"] = scores.numbers[found["row"]]

    def answer() -> None:
        if run.as_json:
            show_json({"rows": plain(found), "notes": scores.notes})
        elif run.out is None:
            show(as_csv(found.join(others)).removesuffix("\n"))

    run.finish(None, scores, found.join(others), answer)


@command
def columns(
    run: Run,
    table: opt.TableArgument,
    unit: Annotated[
        list[str] | None,
        typer.Option("--unit", metavar="NAME=A,B", help="Columns that are judged together. Repeat for more."),
    ] = None,
    cost: Annotated[
        list[str] | None, typer.Option("--cost", metavar="COLUMN=X", help="What a column costs. Repeat for more.")
    ] = None,
    cluster: Cluster = None,
    budget: Annotated[int, typer.Option("--budget", min=5, metavar="N", help="Cross-fits at most.")] = 51,
    sample: opt.Sample = 10_000,
    seed: opt.Seed = 0,
) -> None:
    """Which column tells which classes apart? What is it worth per unit of its cost?

    **Examples**

    - `collidescope columns table.csv --label income`
    - `collidescope columns table.csv --label outcome --unit "lab=na,k,ca" --cost lab=30 --cost age=0.1`
    """
    from types import SimpleNamespace

    from collidescope.cli import _inputs as inputs

    reading = run.start(table)
    rows = inputs.sampled(inputs.labelled_rows(table, run.label, reading), sample, seed)
    costs = _pairs(cost, "--cost", float)
    rows, groups = inputs.take_column(rows, cluster, "--cluster")
    units = _pairs(unit, "--unit", lambda text: [part.strip() for part in text.split(",")])
    if units:
        used = {part for parts in units.values() for part in parts}
        units |= {str(name): [str(name)] for name in rows.X.columns if name not in used}
    together = None if groups is None else groups.astype(str)
    options: dict[str, Any] = {"budget": budget, "random_state": seed, "verbose": 0 if is_quiet() else 1}
    found = apps().column_value(None, rows.X, rows.y, columns=units or None, costs=costs, groups=together, **options)
    about = {"table": table, "label": rows.label, "others": rows.X, "notes": list(rows.notes)}
    run.finish(found, SimpleNamespace(**about, shown={"source": found.matrix}))


def _pairs(given: list[str] | None, option: str, read: Callable[[str], Any]) -> dict[str, Any]:
    """NAME=VALUE of an option that may come several times."""
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
    by: Annotated[
        str | None, typer.Option("--by", metavar="COLUMN", help="The subgroups: hospital, region, year.")
    ] = None,
    cluster: Cluster = None,
    model: Model = None,
) -> None:
    """For whom do the classes collide? PBER by subgroup, and which differ from the rest.

    **Example**

    - `collidescope groups heldout.csv --label outcome --by hospital`
    """
    scores = Scores(run, run.start(table, model), table, model)
    own = scores.column(by, "--by").astype(str)
    together = None if cluster is None else scores.column(cluster, "--cluster").astype(str)
    found = apps().collisions_by(scores.P, scores.y, own, clusters=together, classes=scores.classes)
    run.finish(found, scores)


@command
def ceilings(
    run: Run,
    table: opt.TableArgument,
    predicted: Predicted = None,
    model: Model = None,
    cluster: Cluster = None,
    cost: Annotated[
        Path | None,
        typer.Option("--cost", metavar="FILE.csv", help="Costs: a row per true class, a column per decision."),
    ] = None,
) -> None:
    """What is the best possible value of your metric: accuracy, F1, AUC, log loss, cost?

    **Example**

    - `collidescope ceilings heldout.csv --label income --predicted yhat`
    """
    scores = Scores(run, run.start(table, model, cost), table, model, [predicted])
    said = None if predicted is None else scores.predictions(predicted)
    together = None if cluster is None else scores.column(cluster, "--cluster").astype(str)
    options: dict[str, Any] = {"limit": scores.limit, "cost": _costs(cost, scores.classes), "groups": together}
    run.finish(apps().ceilings(scores.P, scores.y, y_pred=said, classes=scores.classes, **options), scores)


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
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="A table of held-out probabilities and labels.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="Another, of a later fit or a later period.")],
    key: Annotated[
        str | None, typer.Option("--id", metavar="COLUMN", help="Rows with the same value are the same: paired.")
    ] = None,
    fail_above: FailAbove = None,
) -> None:
    """Did collisions change between two fits, or two periods?

    **Examples**

    - `collidescope compare january.csv june.csv --label income`
    - `collidescope compare old.csv new.csv --label income --id customer --fail-above 0.01`
    """
    import pandas as pd

    reading = run.start(before, after)
    first, second = (Scores(run, reading, path) for path in (before, after))
    if [str(name) for name in first.classes] != [str(name) for name in second.classes]:
        raise ValueError(f"{before.name} has classes {first.classes}, {after.name} has {second.classes}")
    second.notes = [*first.notes, *second.notes]
    if key is None:
        found = apps().collision_change(first.P, first.y, second.P, second.y, classes=first.classes)
    else:
        a, b = (pd.Index(scores.column(key, "--id")) for scores in (first, second))
        if not (a.is_unique and b.is_unique):
            raise ValueError(f"--id {key!r} must name every row once")
        shared = a.intersection(b)
        if len(shared) < 2:
            raise ValueError(f"{before.name} and {after.name} share no rows by {key!r}")
        if len(shared) < max(len(a), len(b)):
            second.notes.append(f"{len(shared):,} rows are in both ({len(a):,} and {len(b):,})")
        i, j = a.get_indexer(shared), b.get_indexer(shared)
        if (changed := int((first.y[i] != second.y[j]).sum())) > 0:
            raise ValueError(f"{changed} rows with the same {key!r} have another label")
        found = apps().collision_change(first.P[i], first.y[i], second.P[j], classes=first.classes)
    run.finish(found, second)
    _fail(found.interval[0], fail_above, "the rise of PBER")


@command
def split(run: Run, table: opt.TableArgument, model: Model = None, seed: opt.Seed = 0) -> None:
    """Which classes look like two: separate groups of inputs that collide with different classes?

    **Example**

    - `collidescope split heldout.csv --label species`
    """
    scores = Scores(run, run.start(table, model), table, model)
    run.finish(apps().split_candidates(scores.P, scores.y, classes=scores.classes, random_state=seed), scores)
