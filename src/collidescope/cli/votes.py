"""``votes``: S from several labels per item."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from collidescope.cli import _options as opt
from collidescope.cli._console import guarded, note, set_quiet, show


@guarded
def votes(
    table: opt.TableArgument,
    item: Annotated[str | None, typer.Option("--item", "-i", metavar="COLUMN", help="What was voted on.")] = None,
    label: opt.Label = None,
    annotator: Annotated[
        str | None, typer.Option("--annotator", "-a", metavar="COLUMN", help="Who voted: finds who differs.")
    ] = None,
    wide: Annotated[
        bool, typer.Option("--wide", help="One row per item and one column per class, with the number of votes.")
    ] = False,
    model: Annotated[
        Path | None,
        typer.Option("--model", "-m", metavar="FILE", help="A model or matrix of the same classes, to compare with."),
    ] = None,
    report: opt.Report = None,
    matrix: opt.Matrix = None,
    as_json: opt.Json = False,
    title: opt.Title = None,
    quiet: opt.Quiet = False,
    drop: opt.Drop = None,
    header: opt.Header = True,
    delimiter: opt.Delimiter = None,
    skip_lines: opt.SkipLines = 0,
) -> None:
    """S from several labels per item: what people disagree about, with no model.

    One row per vote, or with `--wide` one row per item. Every item with two votes or more counts the same.

    **Examples**

    - `collidescope votes votes.csv --item id --label label --annotator who --report report.html`
    - `collidescope votes counts.csv --wide --item id --model model.collide`
    """
    from collidescope.applications._inputs import plain, section
    from collidescope.applications.annotators import agreement, compare_annotators
    from collidescope.applications.comparison import compare
    from collidescope.cli import _inputs as inputs
    from collidescope.cli._results import check_report, finish, summary_of
    from collidescope.cli._writing import check_outputs
    from collidescope.counting import collision_matrix_from_votes, count_table, input_groups, label_codes

    set_quiet(quiet)
    check_outputs([table] if model is None else [table, model], [report, matrix])
    check_report(report)
    reading = inputs.Reading(header, delimiter, skip_lines)
    people = None
    counts: Any
    other: Any = None if model is None else inputs.load_source(model)
    other = getattr(other, "collision_matrix_", other)
    if wide:
        if label is not None or annotator is not None:
            raise ValueError("--wide has one column per class: leave out --label and --annotator")
        found = reading.read(table)
        counts, notes, names = found.frame.drop(columns=drop or []), found.notes, None
        if item is not None:
            counts = counts.set_index(inputs.label_column(list(counts.columns), item, table, found.has_header))
        words = [name for name in counts.columns if counts[name].dtype.kind not in "iufb"]
        if words:
            raise ValueError(f"column {words[0]!r} holds no numbers of votes: is it the item (--item)? Else --drop it")
    else:
        rows = inputs.labelled_rows(table, label, reading)
        columns = list(rows.X.columns)
        if item is None:
            raise ValueError(f"say which column names the items, with --item: {table.name} has {columns}")
        wanted = [inputs.label_column(columns, name, table, header) for name in (item, annotator) if name is not None]
        whole = rows.X[wanted].notna().all(axis=1).to_numpy()
        notes = (
            [f"{int((~whole).sum()):,} votes lack {' or '.join(wanted)} and are left out"] if not whole.all() else []
        )
        rows = rows.part(whole.nonzero()[0], notes)
        notes, (codes, names) = rows.notes, label_codes(rows.y)
        counts = count_table(input_groups(rows.X[wanted[0]]), codes, len(names))
        if annotator is not None:
            people = compare_annotators(rows.X[wanted[0]], rows.y, rows.X[wanted[1]].astype(str), classes=list(names))
    cm = collision_matrix_from_votes(counts, names)
    once = int(cm.info["inputs_seen_once"] or 0)
    if once:
        notes = [*notes, f"{once:,} items have a single vote, which has nothing to be compared with: not counted"]
    for line in notes:
        note(line)
    told = agreement(counts, names)
    beside = None if other is None else compare(other, cm)
    tables = [section("Agreement", ["With 95% intervals, as functions of B."], told.reset_index())]
    results = [result for result in (people, beside) if result is not None]
    given = {"--item": item, "--label": label, "--annotator": annotator}
    flags = [part for flag, value in given.items() if value is not None for part in (flag, str(value))]
    command = shlex.join(["collidescope", "votes", str(table), *(["--wide"] if wide else []), *flags])
    about = {"file": table.name, "label": label, "command": command, "saved": matrix}
    summary = summary_of(cm, title=title, notes=notes, about=about, sections=[*tables, *results])
    summary["votes"] = {"agreement": plain(told.reset_index())} if people is None else people.to_dict()
    summary["votes"] |= {} if beside is None else {"compared": beside.to_dict()}
    finish(cm, summary, as_json=as_json, report=report, matrix=matrix)
    if not as_json:
        show("\nAgreement, with 95% intervals:\n" + told.to_string(float_format="{:.4f}".format))
        for result in results:
            show(f"\n{result}")
