"""``posteriors``, ``count``, ``merge``, ``limit`` and ``report``: what follows from numbers that are there."""

from __future__ import annotations

import shlex
from copy import copy
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from collidescope.cli import _options as opt
from collidescope.cli._console import guarded, note, say, set_quiet, show, show_json, warnings_as_notes

#: What stands before the name of a class in the name of its column.
PREFIXES = ("", "p_", "prob_", "proba_", "p(", "P(")
#: What the arguments of consolidate are called on the command line.
FLAGS = {"must_merge": "--together", "cannot_merge": "--apart", "max_pber": "--max-pber", "n_groups": "--groups"}
FLAGS |= {'method="optimal"': "--optimal", "method='optimal'": "--optimal"}

MAX_PBER = "Merge until an input seen again changes group at most this often: 0.05 is 5%."
BALANCE = "0 by gain alone, 1 for groups of like size."
MORE = "be in one group. Repeat for more."
UNSEEN = "Labelled rows that the model has not seen: adds rows to look at."
REPORT = Path("report.html")


@guarded
def posteriors(
    table: opt.TableArgument,
    label: opt.Label = None,
    report: opt.Report = None,
    matrix: opt.Matrix = None,
    as_json: opt.Json = False,
    title: opt.Title = None,
    quiet: opt.Quiet = False,
    header: opt.Header = True,
    delimiter: opt.Delimiter = None,
    skip_lines: opt.SkipLines = 0,
) -> None:
    """S from posteriors of your own model, and labels.

    The table has a column of probabilities for every class, called like the class or `p_CLASS`, and the label of each
    row. The probabilities must come from a model that was not trained on these rows (use cross-validation), or
    collisions are missed. Other columns are only shown beside ambiguous rows.

    **Example**

    - `collidescope posteriors heldout.parquet --label y --report report.html`
    """
    import pandas as pd

    from collidescope.cli import _inputs as inputs
    from collidescope.cli._results import check_report, finish, summary_of
    from collidescope.cli._writing import check_outputs
    from collidescope.estimate import collision_matrix_from_posteriors

    set_quiet(quiet)
    check_outputs([table], [report, matrix])
    check_report(report)
    rows = inputs.labelled_rows(table, label, inputs.Reading(header, delimiter, skip_lines))
    rows, P, classes, others = _posterior_columns(rows)
    for line in rows.notes:
        note(line)
    cm = collision_matrix_from_posteriors(P, rows.y, classes=classes)
    about = _about("posteriors", table, rows.label, classes, matrix)
    shown = others if others.shape[1] else None
    summary = summary_of(
        pd.DataFrame(P, columns=classes), y=rows.y, title=title, notes=rows.notes, about=about, rows=shown
    )
    finish(cm, summary, as_json=as_json, report=report, matrix=matrix)


def _about(command: str, table: Path, label: str, columns: list[Any], saved: Path | None) -> dict[str, Any]:
    """Where the rows come from, for the report."""
    said = shlex.join(["collidescope", command, str(table), "--label", label])
    return {"file": table.name, "label": label, "columns": columns, "command": said, "saved": saved}


def _posterior_columns(rows: Any) -> tuple[Any, Any, list[Any], Any]:
    """(rows without gaps, posteriors, classes in the order of the columns, the other columns)."""
    import numpy as np

    from collidescope.tables.encoding import as_numbers, as_word, listed

    names = {str(name).strip().rstrip(")"): name for name in rows.X.columns}
    classes = np.unique(rows.y).tolist()
    matches = {
        prefix: {name: names[prefix + as_word(name)] for name in classes if prefix + as_word(name) in names}
        for prefix in PREFIXES
    }
    prefix = max(PREFIXES, key=lambda each: len(matches[each]))
    found: dict[Any, Any] = matches[prefix]
    missing = [name for name in classes if name not in found]
    if missing:
        both = f" (with two classes both columns are needed: p_{classes[0]} is 1 - p_{classes[-1]})"
        raise ValueError(
            f"there is no column of probabilities for class {missing[0]!r}: every class needs one called like it, or "
            f"'p_{missing[0]}'. The table has {listed(list(rows.X.columns))}{both if len(classes) == 2 else ''}"
        )
    # Classes without a row here may still have a column: probabilities must sum to 1.
    more = [
        str(name) for name in rows.X.columns if prefix and str(name).startswith(prefix) and name not in found.values()
    ]
    for name in more:
        found[str(name).removeprefix(prefix).rstrip(")")] = name
    P = np.column_stack([as_numbers(rows.X[name]) for name in found.values()])
    gaps = np.isnan(P).any(axis=1)
    if gaps.all():
        raise ValueError(f"columns {listed(list(found.values()))} hold no probabilities")
    if more:
        raise ValueError(
            f"class {more[0].removeprefix(prefix).rstrip(')')!r} has a column of probabilities but no row: "
            f"S needs rows of every class"
        )
    notes = [f"{int(gaps.sum()):,} rows lack a probability and are left out"] if gaps.any() else []
    kept = rows.part(np.flatnonzero(~gaps), notes)
    return kept, P[~gaps], list(found), kept.X.drop(columns=list(found.values()))


@guarded
def count(
    table: opt.TableArgument,
    label: opt.Label = None,
    report: opt.Report = None,
    matrix: opt.Matrix = None,
    as_json: opt.Json = False,
    title: opt.Title = None,
    quiet: opt.Quiet = False,
    drop: opt.Drop = None,
    keep: opt.Keep = None,
    header: opt.Header = True,
    delimiter: opt.Delimiter = None,
    skip_lines: opt.SkipLines = 0,
) -> None:
    """S counted over rows that are exactly alike: no model, no assumptions.

    Works where whole inputs repeat: questionnaires, codes, rounded measurements. It speaks for the rows that have a
    twin, and says how many these are. Drop a fine-grained column and more rows have one.

    **Examples**

    - `collidescope count table.csv --label income`
    - `collidescope count table.csv --label income --drop weight --matrix matrix.json`
    """
    import numpy as np

    from collidescope.cli import _inputs as inputs
    from collidescope.cli._results import check_report, finish, summary_of
    from collidescope.cli._writing import check_outputs
    from collidescope.counting import count_collisions, repeated_rows
    from collidescope.tables.encoding import check_columns, listed
    from collidescope.tables.screening import screen

    set_quiet(quiet)
    check_outputs([table], [report, matrix])
    check_report(report)
    rows = inputs.labelled_rows(table, label, inputs.Reading(header, delimiter, skip_lines))
    check_columns(rows.X, [*(drop or ()), *(keep or ())])
    X = rows.X.drop(columns=drop or [])
    found = screen(X, rows.y, keep=keep or ())
    X = X.drop(columns=list(found.ids))
    if X.shape[1] == 0:
        raise ValueError(f"{table.name} has no column left to compare rows by: {'; '.join(found.notes())}")
    notes = [*rows.notes, *found.notes(), *found.cautions()]
    repeated = repeated_rows(X)
    if not repeated.any():
        levels = X.nunique().sort_values(ascending=False)
        raise ValueError(
            f"no two rows of {table.name} are alike, so there is nothing to count. Drop columns with many values "
            f"({', '.join(f'--drop {name!r}' for name in levels.index[:2])}), or estimate: collidescope fit"
        )
    classes, codes = np.unique(rows.y, return_inverse=True)
    alone = np.bincount(codes[repeated], minlength=len(classes)) == 0
    if alone.any():
        rest = np.flatnonzero(~alone[codes])
        notes.append(f"classes without a row that repeats are left out: {listed(classes[alone].tolist())}")
        rows, X = rows.part(rest), X.iloc[rest].reset_index(drop=True)
        if (~alone).sum() < 2:
            raise ValueError("only one class has rows that repeat: nothing can be counted. Estimate: collidescope fit")
    for line in notes:
        note(line)
    cm = count_collisions(X, rows.y)
    about = _about("count", table, rows.label, list(X.columns), matrix)
    summary = summary_of(cm, title=title, notes=notes, about=about)
    summary["what_to_do"] = [*found.cautions(), *summary["what_to_do"]]
    finish(cm, summary, as_json=as_json, report=report, matrix=matrix)


@guarded
def merge(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A matrix (--matrix) or a model (--save).")],
    groups: Annotated[int | None, typer.Option(min=2, help="Merge until so many groups are left.")] = None,
    max_pber: Annotated[float | None, typer.Option("--max-pber", help=MAX_PBER)] = None,
    max_group_size: Annotated[int | None, typer.Option(min=2, metavar="N", help="Most classes of a group.")] = None,
    balance: Annotated[float, typer.Option(min=0, max=1, metavar="X", help=BALANCE)] = 0.0,
    together: Annotated[opt.Columns, typer.Option(metavar="A,B", help=f"Classes that must {MORE}")] = None,
    apart: Annotated[opt.Columns, typer.Option(metavar="A,B", help=f"Classes that must not {MORE}")] = None,
    optimal: Annotated[bool, typer.Option("--optimal", help="Look at every grouping (up to 10 classes).")] = False,
    matrix: opt.Matrix = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Which classes to merge, and what would it buy?

    Merging is exact: the matrix of merged classes follows from S, and nothing is trained again. Without `--groups` and
    `--max-pber` every step is shown: choose from them.

    **Examples**

    - `collidescope merge matrix.json`
    - `collidescope merge matrix.json --max-pber 0.05`
    - `collidescope merge model.collide --groups 4 --apart cat,dog --json`
    """
    from collidescope.applications import consolidate
    from collidescope.cli import _inputs as inputs
    from collidescope.cli._results import fitting, print_then_write
    from collidescope.cli._writing import check_outputs, write_matrix, write_outputs

    set_quiet(quiet)
    check_outputs([source], [matrix])
    cm = inputs.load_matrix(source)
    options: dict[str, Any] = {"max_pber": max_pber, "max_group_size": max_group_size, "balance": balance}
    for name, given in (("must_merge", together), ("cannot_merge", apart)):
        options[name] = [[own.strip() for own in group.split(",")] for group in given] if given else None
    try:
        plan = consolidate(cm, groups, method="optimal" if optimal else "greedy", **options)
    except ValueError as error:
        words = str(error)
        for argument, flag in FLAGS.items():
            words = words.replace(argument, flag)
        raise ValueError(words) from None
    path = plan.path[["n_groups", "first", "second", "pber", "pber_low", "pber_high", "gain", "price"]]

    def answer() -> None:
        if as_json:
            steps = path.astype(object).where(path.notna(), None)
            found = {"groups": plan.groups, "names": plan.matrix.classes.tolist(), "pber": plan.matrix.pber}
            show_json(found | {"pber_before": cm.pber, "path": steps.to_dict("records")})
            return
        chosen = groups is not None or max_pber is not None
        if chosen:
            show(f"{plan}\n")
        show("The best grouping of each size:" if optimal else "Step by step, the two groups that collide most first:")
        names = [] if optimal else ["first", "second"]
        show(fitting(path[["n_groups", *names, "pber", "pber_low", "pber_high"]], names))
        if not chosen:
            say("Choose with --groups N or --max-pber 0.05.", "dim")

    written = ("matrix of the groups", matrix, partial(write_matrix, plan.matrix))
    print_then_write(answer, lambda: write_outputs(written))


@guarded
def limit(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A model (--save), or a table to fit (with --label).")
    ],
    label: opt.Label = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw the curve (.png, .svg or .pdf).")] = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
    header: opt.Header = True,
    delimiter: opt.Delimiter = None,
    skip_lines: opt.SkipLines = 0,
    seed: opt.Seed = 0,
) -> None:
    """What would unlimited rows of this kind leave? How good could it get?

    Reads the learning curve that `fit` stored with the model: how often an input would get another label, from models
    trained on an eighth, a quarter, half and all of the rows, and where that goes. Of a table it fits a model first.

    **Examples**

    - `collidescope limit model.collide`
    - `collidescope limit model.collide --plot curve.png`
    - `collidescope limit table.csv --label income --json`
    """
    from collidescope._text import headline
    from collidescope.cli import _inputs as inputs
    from collidescope.cli._results import for_terminal
    from collidescope.cli._writing import check_outputs, write_outputs
    from collidescope.trust import learning_curve, limit_of

    set_quiet(quiet)
    check_outputs([source], [plot])
    if label is None:
        model = inputs.load_source(source)
    else:
        from collidescope.tables import TableClassifier

        rows = inputs.labelled_rows(source, label, inputs.Reading(header, delimiter, skip_lines))
        for line in rows.notes:
            note(line)
        with warnings_as_notes():
            model = TableClassifier(random_state=seed, verbose=0 if quiet else 1).fit(rows.X, rows.y)
    found = limit_of(model)
    if found is None:
        raise ValueError(
            f"{source.name} holds no limit: it takes a model that was fitted with one (collidescope fit TABLE --label "
            f"COLUMN --save model.collide), or a table with --label"
        )
    curve = learning_curve(found)
    if as_json:
        show_json(found.to_dict() | {"verdict": curve.verdict, "headline": headline(model.collision_matrix_, found)})
    else:
        for line in headline(model.collision_matrix_, found):
            show(for_terminal(line))
        told = curve.frame.assign(rows=curve.frame["rows"].round().astype(int))
        show(f"\n{told.to_string(index=False, float_format='{:.4f}'.format)}\n\nVerdict: {curve.verdict}.")
    if plot is not None:
        from collidescope.show import LimitDisplay

        figure: Any = LimitDisplay.from_limit(found).plot().figure_
        write_outputs(("curve", plot, figure.savefig))


@guarded
def report(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A model (--save), a matrix (--matrix) or a summary (--json).")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE.html", help="The page to write.")] = REPORT,
    table: Annotated[Path | None, typer.Option(metavar="TABLE", help=UNSEEN)] = None,
    label: opt.Label = None,
    title: opt.Title = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
    header: opt.Header = True,
    delimiter: opt.Delimiter = None,
    skip_lines: opt.SkipLines = 0,
) -> None:
    """Write the report of something that was estimated before: one page that works offline.

    **Examples**

    - `collidescope report matrix.json`
    - `collidescope report summary.json --out collisions.html`
    - `collidescope report model.collide --table test.csv --label income`
    """
    import pandas as pd

    from collidescope.applications._inputs import posteriors_of
    from collidescope.cli import _inputs as inputs
    from collidescope.cli._results import check_report, summary_of, write_summary
    from collidescope.cli._writing import check_outputs, write_outputs

    set_quiet(quiet)
    check_outputs([source, *([table] if table else [])], [out])
    check_report(out)
    found = inputs.load_source(source)
    if table is not None and not hasattr(found, "predict_proba"):
        raise ValueError(f"--table needs a model, and {source.name} is none: leave it out, or give a file of --save")
    if isinstance(found, dict):
        summary = found | ({} if title is None else {"title": title})
    elif table is None:
        about = {"file": source.name, "command": f"collidescope report {shlex.quote(str(source))}", "saved": source}
        summary = summary_of(found, title=title, notes=getattr(found, "notes_", ()), about=about)
    else:
        name = label or getattr(found, "label_", None)
        rows = inputs.labelled_rows(table, name, inputs.Reading(header, delimiter, skip_lines))
        y, _ = inputs.match_labels(pd.Series(rows.y, name=rows.label), found.classes_.tolist(), "label")
        with warnings_as_notes():
            about = _about("report", table, rows.label, list(rows.X.columns), source)
            asked = copy(found)  # about these rows, in place of its own
            asked.posteriors_, _, met = posteriors_of(found, rows.X, None, None, "the model")
            notes = [*rows.notes, *getattr(found, "notes_", ()), *met]
            summary = summary_of(asked, rows.X, y, title=title, notes=notes, about=about)
    if as_json:
        show_json(summary)
    write_outputs(("report", out, partial(write_summary, summary)))
