"""From S to the next decision: ``audit``, ``rows``, ``columns``, ``groups``, ``ceilings``, ``compare``, ``split``.

Posteriors come from a model file and a table of raw rows, or from a table with a column of probabilities per class.
"""

from __future__ import annotations

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


class _Scores:
    """Posteriors, labels and the other columns of a table."""

    def __init__(self, table: Path, label: str | None, reading: Any, model: Path | None, extra: Any = ()) -> None:
        from collidescope.cli import _inputs as inputs
        from collidescope.cli import matrices, predicting
        from collidescope.cli._inputs import match_labels

        self.table = table
        if model is None:
            rows = inputs.labelled_rows(table, label, reading)
            rows, self.P, classes, self.others = matrices._posterior_columns(rows)
            self.classes, self.y, self.numbers, self.notes = list(classes), rows.y, rows.numbers, list(rows.notes)
            return
        fitted = inputs.load_model(model)
        X, self.notes = predicting._raw_rows(fitted, table, reading, label)
        true = inputs.label_column(list(X.columns), label or getattr(fitted, "label_", None), table, reading.header)
        self.y, labelled = match_labels(X[true], fitted.classes_.tolist(), "label")
        import numpy as np

        self.numbers = np.flatnonzero(labelled)
        if len(self.numbers) < len(X):
            self.notes.append(f"{len(X) - len(self.numbers):,} of {len(X):,} rows have no label and are left out")
        X = X.iloc[self.numbers].reset_index(drop=True)
        self.others, self.classes = X.drop(columns=true), fitted.classes_.tolist()
        rows = self.others.drop(columns=[name for name in extra if name in X and name != true])
        self.P, met = posteriors_of(fitted, rows)
        self.notes += met

    def column(self, name: str | None, option: str) -> Any:
        """A column that the user named."""
        from collidescope.tables.encoding import check_columns, listed

        if name is None:
            raise ValueError(f"name a column with {option}: {self.table.name} has {listed(list(self.others.columns))}")
        check_columns(self.others, [name])
        return self.others[name]

    def labels(self, name: str | None, option: str) -> tuple[Any, Any]:
        """(rows that have a value, class labels in them) of a column of predictions."""
        import numpy as np

        from collidescope.cli._inputs import match_labels

        said, there = match_labels(self.column(name, option), self.classes, option.removeprefix("--"))
        kept = np.flatnonzero(there)
        if len(kept) == 0:
            raise ValueError(f"no row of {self.table.name} has both a label and a value in {name!r}")
        if len(kept) < len(self.y):
            self.notes.append(f"{len(self.y) - len(kept):,} rows have no value in {name!r} and are left out")
        return kept, said


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


def _finish(found: Any, notes: list[str], as_json: bool, out: Path | None = None, table: Any = None) -> None:
    from collidescope.cli._results import print_then_write
    from collidescope.cli._writing import write_outputs, write_table

    for line in notes:
        note(line)

    def answer() -> None:
        if as_json:
            show_json(found.to_dict() | {"notes": notes})
        else:
            show(str(found))

    lines = 0 if table is None else len(table)
    print_then_write(answer, lambda: write_outputs((f"{lines:,} lines", out, partial(write_table, table))))


def _start(quiet: bool, inputs: list[Path | None], outputs: list[Path | None]) -> None:
    from collidescope.cli._writing import check_outputs, check_suffix

    set_quiet(quiet)
    check_outputs([path for path in inputs if path is not None], outputs)
    for path in outputs:
        if path is not None and path.suffix != ".html":
            check_suffix(path)


@guarded
def audit(
    source: Annotated[
        Path, typer.Argument(metavar="MODEL_OR_TABLE", help="A model and a TABLE, or a table with probabilities.")
    ],
    table: Annotated[
        Path | None, typer.Argument(metavar="[TABLE]", help="Labelled rows, where a model is given.")
    ] = None,
    label: opt.Label = None,
    predicted: Predicted = None,
    fail_above: FailAbove = None,
    report: opt.Report = None,
    as_json: opt.Json = False,
    title: opt.Title = None,
    quiet: opt.Quiet = False,
    header: opt.Header = True,
    delimiter: opt.Delimiter = None,
    skip_lines: opt.SkipLines = 0,
) -> None:
    """Is your classifier at the ceiling? Which of its errors could a better model avoid?

    Takes labelled rows that your classifier was not trained on, with a column of its predictions, and splits its
    errors into fixable, not learned yet and inherent, class by class. The second opinion is a model, or columns of
    held-out probabilities (`p_CLASS`) in the same table. Rows that the model was fitted on get held-out probabilities.

    **Examples**

    - `collidescope audit model.collide test.csv --label income --predicted yhat`
    - `collidescope audit heldout.csv --label income --predicted yhat --fail-above 0.05`
    """
    import pandas as pd

    from collidescope.applications import audit as audited
    from collidescope.cli._inputs import Reading
    from collidescope.cli._results import check_report, summary_of, write_summary
    from collidescope.cli._writing import write_outputs

    _start(quiet, [source, table], [report])
    check_report(report)
    if label is not None and label == predicted:
        raise ValueError(
            f"--label and --predicted are the same column {label!r}: name that of your classifier's answers"
        )
    model, path = (None, source) if table is None else (source, table)
    scores = _Scores(path, label, Reading(header, delimiter, skip_lines), model, [predicted])
    kept, yhat = scores.labels(predicted, "--predicted")
    P, y = scores.P[kept], scores.y[kept]
    found = audited(P, y_true=y, y_pred=yhat, classes=scores.classes)
    _finish(found, scores.notes, as_json)
    if report is not None:
        frame: Any = pd.DataFrame(P, columns=scores.classes)
        summary = summary_of(frame, y=y, y_pred=yhat, title=title, notes=scores.notes)
        write_outputs(("report", report, partial(write_summary, summary)))
    _fail(found.fixable_interval[0], fail_above, "the fixable error")


def _fail(low: float, above: float | None, what: str) -> None:
    if above is not None and low > above:
        note(f"{what} is above {above:g} beyond chance (at least {low:.4f})")
        raise typer.Exit(ABOVE)


@guarded
def rows(
    table: opt.TableArgument,
    label: opt.Label = None,
    model: Model = None,
    kind: Annotated[str, typer.Option("--kind", metavar="KIND", help="ambiguous, suspect, or both.")] = "both",
    by: Annotated[
        str, typer.Option("--by", metavar="ORDER", help="entropy, margin, or label (suspects first).")
    ] = "entropy",
    top: Annotated[int | None, typer.Option("--top", min=1, metavar="N", help="Only the first N.")] = None,
    out: Out = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
    header: opt.Header = True,
    delimiter: opt.Delimiter = None,
    skip_lines: opt.SkipLines = 0,
) -> None:
    """Which rows are ambiguous, and which labels look wrong? All of them, with their numbers.

    **Examples**

    - `collidescope rows heldout.csv --label income --kind suspect --out suspects.csv`
    - `collidescope rows table.csv --model model.collide --out rows.parquet`
    """
    from collidescope._checks import check_choice
    from collidescope.applications import ambiguous
    from collidescope.cli._inputs import Reading
    from collidescope.cli._writing import as_csv, write_outputs, write_table

    _start(quiet, [table, model], [out])
    check_choice(kind, ["ambiguous", "suspect", "both"], "--kind")
    scores = _Scores(table, label, Reading(header, delimiter, skip_lines), model)
    found = ambiguous(scores.P, y=scores.y, classes=scores.classes, by=by)
    wanted = {"ambiguous": ["ambiguous"], "suspect": ["suspect label"], "both": ["ambiguous", "suspect label"]}[kind]
    found = found[found["kind"].isin(wanted)].head(len(found) if top is None else top)
    others = scores.others.iloc[found["index"]].add_prefix("x_").reset_index(drop=True)
    found = found.reset_index(drop=True).rename(columns={"index": "row"})
    found["row"] = scores.numbers[found["row"]]
    for line in scores.notes:
        note(line)
    if as_json:
        from collidescope.applications._inputs import plain

        show_json({"rows": plain(found), "notes": scores.notes})
    elif out is None:
        show(as_csv(found.join(others)).removesuffix("\n"))
    write_outputs((f"{len(found):,} rows", out, partial(write_table, found.join(others))))


@guarded
def columns(
    table: opt.TableArgument,
    label: opt.Label = None,
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
    out: Out = None,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
    header: opt.Header = True,
    delimiter: opt.Delimiter = None,
    skip_lines: opt.SkipLines = 0,
) -> None:
    """Which column tells which classes apart? What is it worth per unit of its cost?

    **Examples**

    - `collidescope columns table.csv --label income`
    - `collidescope columns table.csv --label outcome --unit "lab=na,k,ca" --cost lab=30 --cost age=0.1`
    """
    from collidescope.applications import column_value
    from collidescope.cli import _inputs as inputs

    _start(quiet, [table], [out])
    rows = inputs.labelled_rows(table, label, inputs.Reading(header, delimiter, skip_lines))
    rows = inputs.sampled(rows, sample, seed)
    named = _pairs(unit, "--unit")
    costs = {name: _number(value, name) for name, value in _pairs(cost, "--cost").items()}
    X, groups = rows.X, None
    if cluster is not None:
        from collidescope.tables.encoding import check_columns

        check_columns(X, [cluster])
        groups, X = X[cluster].astype(str), X.drop(columns=cluster)
    units: dict[str, list[str]] | None = None
    if named:
        units = {name: [part.strip() for part in value.split(",")] for name, value in named.items()}
        used = {part for parts in units.values() for part in parts}
        units |= {str(name): [str(name)] for name in X.columns if name not in used}
    found = column_value(
        None,
        X,
        rows.y,
        columns=units,
        costs=costs,
        groups=groups,
        budget=budget,
        random_state=seed,
        verbose=0 if is_quiet() else 1,
    )
    _finish(found, list(rows.notes), as_json, out, found.table.drop(columns="columns"))


def _pairs(given: list[str] | None, option: str) -> dict[str, str]:
    wrong = [text for text in given or [] if "=" not in text]
    if wrong:
        raise ValueError(f"{option} takes NAME=VALUE, got {wrong[0]!r}")
    return {name.strip(): value.strip() for name, _, value in (text.rpartition("=") for text in given or [])}


def _number(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--cost {name} must be a number, got {text!r}") from None


@guarded
def groups(
    table: opt.TableArgument,
    label: opt.Label = None,
    by: Annotated[
        str | None, typer.Option("--by", metavar="COLUMN", help="The subgroups: hospital, region, year.")
    ] = None,
    cluster: Cluster = None,
    model: Model = None,
    out: Out = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
    header: opt.Header = True,
    delimiter: opt.Delimiter = None,
    skip_lines: opt.SkipLines = 0,
) -> None:
    """For whom do the classes collide? PBER by subgroup, and which differ from the rest.

    **Example**

    - `collidescope groups heldout.csv --label outcome --by hospital`
    """
    from collidescope.applications import collisions_by
    from collidescope.cli._inputs import Reading

    _start(quiet, [table, model], [out])
    scores = _Scores(table, label, Reading(header, delimiter, skip_lines), model)
    own = scores.column(by, "--by").astype(str)
    together = None if cluster is None else scores.column(cluster, "--cluster").astype(str)
    found = collisions_by(scores.P, scores.y, own, clusters=together, classes=scores.classes)
    _finish(found, scores.notes, as_json, out, found.table)


@guarded
def ceilings(
    table: opt.TableArgument,
    label: opt.Label = None,
    predicted: Predicted = None,
    model: Model = None,
    cluster: Cluster = None,
    cost: Annotated[
        Path | None,
        typer.Option("--cost", metavar="FILE.csv", help="Costs: a row per true class, a column per decision."),
    ] = None,
    out: Out = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
    header: opt.Header = True,
    delimiter: opt.Delimiter = None,
    skip_lines: opt.SkipLines = 0,
) -> None:
    """What is the best possible value of your metric: accuracy, F1, AUC, log loss, cost?

    **Example**

    - `collidescope ceilings heldout.csv --label income --predicted yhat`
    """
    from collidescope.applications import ceilings as best
    from collidescope.cli import _inputs as inputs

    _start(quiet, [table, model, cost], [out])
    scores = _Scores(table, label, inputs.Reading(header, delimiter, skip_lines), model, [predicted])
    P, y, said = scores.P, scores.y, None
    together = None if cluster is None else scores.column(cluster, "--cluster").astype(str)
    if predicted is not None:
        kept, said = scores.labels(predicted, "--predicted")
        P, y, together = P[kept], y[kept], None if together is None else together.iloc[kept]
    limit = getattr(inputs.load_model(model), "limit_", None) if model is not None else None
    found = best(
        P, y, y_pred=said, limit=limit, cost=_costs(cost, scores.classes), groups=together, classes=scores.classes
    )
    _finish(found, scores.notes, as_json, out, found.table)


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


@guarded
def compare(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="A table of held-out probabilities and labels.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="Another, of a later fit or a later period.")],
    label: opt.Label = None,
    key: Annotated[
        str | None, typer.Option("--id", metavar="COLUMN", help="Rows with the same value are the same: paired.")
    ] = None,
    fail_above: FailAbove = None,
    out: Out = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
    header: opt.Header = True,
    delimiter: opt.Delimiter = None,
    skip_lines: opt.SkipLines = 0,
) -> None:
    """Did collisions change between two fits, or two periods?

    **Examples**

    - `collidescope compare january.csv june.csv --label income`
    - `collidescope compare old.csv new.csv --label income --id customer --fail-above 0.01`
    """
    from collidescope.applications import collision_change
    from collidescope.cli._inputs import Reading

    _start(quiet, [before, after], [out])
    reading = Reading(header, delimiter, skip_lines)
    first, second = (_Scores(path, label, reading, None) for path in (before, after))
    if [str(name) for name in first.classes] != [str(name) for name in second.classes]:
        raise ValueError(f"{before.name} has classes {first.classes}, {after.name} has {second.classes}")
    notes = [*first.notes, *second.notes]
    if key is None:
        found = collision_change(first.P, first.y, second.P, second.y, classes=first.classes)
    else:
        import pandas as pd

        a, b = (pd.Index(scores.column(key, "--id")) for scores in (first, second))
        if not (a.is_unique and b.is_unique):
            raise ValueError(f"--id {key!r} must name every row once")
        shared = a.intersection(b)
        if len(shared) < 2:
            raise ValueError(f"{before.name} and {after.name} share no rows by {key!r}")
        if len(shared) < max(len(a), len(b)):
            notes.append(f"{len(shared):,} rows are in both ({len(a):,} and {len(b):,})")
        i, j = a.get_indexer(shared), b.get_indexer(shared)
        if (first.y[i] != second.y[j]).any():
            raise ValueError(f"{int((first.y[i] != second.y[j]).sum())} rows with the same {key!r} have another label")
        found = collision_change(first.P[i], first.y[i], second.P[j], classes=first.classes)
    _finish(found, notes, as_json, out, found.table)
    _fail(found.interval[0], fail_above, "the rise of PBER")


@guarded
def split(
    table: opt.TableArgument,
    label: opt.Label = None,
    model: Model = None,
    out: Out = None,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
    header: opt.Header = True,
    delimiter: opt.Delimiter = None,
    skip_lines: opt.SkipLines = 0,
) -> None:
    """Which classes look like two: separate groups of inputs that collide with different classes?

    **Example**

    - `collidescope split heldout.csv --label species`
    """
    from collidescope.applications import split_candidates
    from collidescope.cli._inputs import Reading

    _start(quiet, [table, model], [out])
    scores = _Scores(table, label, Reading(header, delimiter, skip_lines), model)
    found = split_candidates(scores.P, scores.y, classes=scores.classes, random_state=seed)
    _finish(found, scores.notes, as_json, out, found.table)
