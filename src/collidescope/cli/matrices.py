"""``posteriors``, ``count``, ``merge`` and ``report``: collision matrices without training anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from collidescope.cli import _options as opt
from collidescope.cli._console import guarded, note, say, set_quiet, show, show_json, warnings_as_notes

#: What stands before the name of a class in the name of its column.
PREFIXES = ("", "p_", "prob_", "proba_", "p(", "P(")


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
    from collidescope.cli import _inputs as inputs
    from collidescope.cli._results import check_report, finish, summary_of
    from collidescope.scale.streams import collision_matrix_from_posteriors

    set_quiet(quiet)
    inputs.check_outputs([table], [report, matrix])
    check_report(report)
    rows = inputs.labelled_rows(table, label, inputs.Reading(header, delimiter, skip_lines))
    rows, P, classes, others = _posterior_columns(rows)
    for line in rows.notes:
        note(line)
    cm = collision_matrix_from_posteriors(P, rows.y, classes=classes)
    import pandas as pd

    source: Any = pd.DataFrame(P, columns=classes)
    shown = {"rows": others} if others.shape[1] else {}
    summary = summary_of(source, y=rows.y, title=title, notes=rows.notes, **shown)
    finish(cm, summary, as_json=as_json, report=report, matrix=matrix)


def _posterior_columns(rows: Any) -> tuple[Any, Any, list[Any], Any]:
    """(rows without gaps, posteriors, classes in the order of the columns, the other columns)."""
    import numpy as np

    from collidescope.tables._values import as_numbers, as_word
    from collidescope.tables.encoder import listed

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
        hint = ""
        if len(classes) == 2:
            hint = f" (with two classes both columns are needed: p_{classes[0]} is 1 - p_{classes[1]})"
        raise ValueError(
            f"there is no column of probabilities for class {missing[0]!r}: every class needs one called like it, or "
            f"'p_{missing[0]}'. The table has {listed(list(rows.X.columns))}{hint}"
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
    from collidescope.counting import count_collisions, repeated_rows
    from collidescope.tables.encoder import check_columns, listed
    from collidescope.tables.screening import screen

    set_quiet(quiet)
    inputs.check_outputs([table], [report, matrix])
    check_report(report)
    rows = inputs.labelled_rows(table, label, inputs.Reading(header, delimiter, skip_lines))
    check_columns(rows.X, [*(drop or ()), *(keep or ())])
    X = rows.X.drop(columns=drop or [])
    found = screen(X, rows.y, keep=keep or ())
    X = X.drop(columns=list(found.ids))
    if X.shape[1] == 0:
        raise ValueError(f"{table.name} has no column left to compare rows by: {'; '.join(found.notes())}")
    notes = [*rows.notes, *found.notes()]
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
    summary = summary_of(cm, title=title, notes=notes)
    summary["what_to_do"] = [*found.leak_notes(), *summary["what_to_do"]]
    finish(cm, summary, as_json=as_json, report=report, matrix=matrix)


@guarded
def merge(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A matrix (--matrix) or a model (--save).")],
    groups: Annotated[int | None, typer.Option(min=2, help="Merge until so many groups are left.")] = None,
    max_pber: Annotated[
        float | None,
        typer.Option(
            "--max-pber", help="Merge until an input seen again changes group at most this often: 0.05 is 5%."
        ),
    ] = None,
    max_group_size: Annotated[
        int | None, typer.Option("--max-group-size", min=2, metavar="N", help="Most classes of a group.")
    ] = None,
    balance: Annotated[
        float, typer.Option("--balance", min=0, max=1, metavar="X", help="0 by gain alone, 1 for groups of like size.")
    ] = 0.0,
    together: Annotated[
        list[str] | None, typer.Option(metavar="A,B", help="Classes that must be one group. Again for more.")
    ] = None,
    apart: Annotated[
        list[str] | None, typer.Option(metavar="A,B", help="Classes that must not be in one group. Again for more.")
    ] = None,
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
    from collidescope.cli._results import say_written, write_matrix

    set_quiet(quiet)
    inputs.check_outputs([source], [matrix])
    cm = inputs.load_matrix(source)
    plan = consolidate(
        cm,
        groups,
        max_pber=max_pber,
        max_group_size=max_group_size,
        balance=balance,
        method="optimal" if optimal else "greedy",
        must_merge=_lists(together),
        cannot_merge=_lists(apart),
    )
    columns = ["n_groups", "first", "second", "pber", "pber_low", "pber_high", "gain", "price"]
    path = plan.path[columns]
    if matrix is not None:
        matrix = write_matrix(plan.matrix, matrix)
    if as_json:
        steps = path.astype(object).where(path.notna(), None)
        show_json(
            {
                "groups": plan.groups,
                "names": plan.matrix.classes.tolist(),
                "pber": plan.matrix.pber,
                "pber_before": cm.pber,
                "path": steps.to_dict("records"),
            }
        )
    else:
        if groups is not None or max_pber is not None:
            show(f"{plan}\n")
        show(
            "Step by step, the two groups that collide most first:"
            if not optimal
            else "The best grouping of each size:"
        )
        wanted = ["n_groups", "first", "second", "pber", "pber_low", "pber_high"]
        shown = path[wanted if not optimal else [name for name in wanted if name not in ("first", "second")]]
        show(shown.to_string(index=False, float_format="{:.4f}".format, na_rep=""))
        if groups is None and max_pber is None:
            say("Choose with --groups N or --max-pber 0.05.", "dim")
    if matrix is not None:
        say_written({"matrix of the groups": matrix})


def _lists(given: list[str] | None) -> list[list[str]] | None:
    return None if not given else [[name.strip() for name in group.split(",")] for group in given]


@guarded
def report(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A model (--save), a matrix (--matrix) or a summary (--json).")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE.html", help="The page to write.")] = Path(
        "report.html"
    ),
    table: Annotated[
        Path | None,
        typer.Option(metavar="TABLE", help="Labelled rows that the model has not seen: adds rows to look at."),
    ] = None,
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
    from collidescope.cli import _inputs as inputs
    from collidescope.cli._results import check_report, say_written, summary_of
    from collidescope.show import write_report

    set_quiet(quiet)
    inputs.check_outputs([source, *([table] if table else [])], [out])
    check_report(out)
    found = inputs.load_source(source)
    if table is not None and not hasattr(found, "predict_proba"):
        raise ValueError(f"--table needs a model, and {source.name} is none: leave it out, or give a file of --save")
    if isinstance(found, dict):
        summary = found | ({} if title is None else {"title": title})
    elif table is None:
        summary = summary_of(found, title=title, notes=getattr(found, "notes_", ()))
    else:
        from collidescope.tables.labels import match_labels

        name = label or getattr(found, "label_", None)
        rows = inputs.labelled_rows(table, name, inputs.Reading(header, delimiter, skip_lines))
        y, _ = match_labels(_series(rows), found.classes_.tolist(), "label")
        with warnings_as_notes():
            summary = summary_of(found, rows.X, y, title=title, notes=[*rows.notes, *getattr(found, "notes_", ())])
    write_report(summary, out)
    if as_json:
        show_json(summary)
    say_written({"report": out})


def _series(rows: Any) -> Any:
    import pandas as pd

    return pd.Series(rows.y, name=rows.label)
