"""``collidescope fit``: a table in, S and what to do about it out."""

from __future__ import annotations

import shlex
import sys
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from collidescope._text import duration
from collidescope.cli import _options as opt
from collidescope.cli._console import INTERRUPTED, guarded, is_quiet, note, say, set_quiet, warnings_as_notes

#: From so many rows a quicker first look is offered.
MANY_ROWS = 50_000
#: What a small pool means for the numbers, and what to do about it.
QUICK = "a small pool of models (--quick): the full pool would find less, as it tells classes apart better"
FULL = "Fit again without --quick before you act: the full pool would find less, as it tells classes apart better."

OUT = "Write labels and held-out posteriors of these rows: each by a model that did not see the row."
MEMBERS = "Models to train, such as linear,trees.  [default: those that suit the table]"
LIMIT = "Train on parts of the rows too, for what unlimited rows would leave (1.9 times the time)."
PRIORS = "Class frequencies: as in these rows, or all equal."
CONTROL = "Fit again on shuffled labels, where nothing must be found (twice the time)."


@guarded
def fit(
    table: opt.TableArgument,
    label: opt.Label = None,
    report: opt.Report = None,
    save: Annotated[
        Path | None, opt.results(metavar="MODEL.collide", help="Write the model, for `predict` and `audit`.")
    ] = None,
    matrix: opt.Matrix = None,
    out: Annotated[Path | None, opt.results(metavar="FILE.csv", help=OUT)] = None,
    as_json: opt.Json = False,
    title: opt.Title = None,
    quiet: opt.Quiet = False,
    sample: opt.Sample = None,
    drop: opt.Drop = None,
    keep: opt.Keep = None,
    category: opt.Category = None,
    groups: opt.Groups = None,
    sample_weight: opt.SampleWeight = None,
    unique: opt.Unique = False,
    rare: opt.Rare = "error",
    drop_rare: opt.DropRare = 0,
    header: opt.Header = True,
    delimiter: opt.Delimiter = None,
    skip_lines: opt.SkipLines = 0,
    cv: Annotated[
        int | None, opt.training(min=2, help="Folds.  [default: 5, fewer where a class has fewer rows]")
    ] = None,
    members: Annotated[str | None, opt.training(metavar="A,B,…", help=MEMBERS)] = None,
    quick: Annotated[
        bool, opt.training("--quick", help="A small pool of models: takes seconds, and finds a little too much.")
    ] = False,
    limit: Annotated[bool, opt.training("--limit/--no-limit", help=LIMIT)] = True,
    priors: Annotated[str, opt.training(metavar="empirical|uniform", help=PRIORS)] = "empirical",
    control: Annotated[bool, opt.training("--control", help=CONTROL)] = False,
    n_jobs: Annotated[int | None, opt.training("--n-jobs", help="Folds at a time; -1 for all cores.")] = None,
    device: Annotated[str, opt.training(help="auto, cpu or cuda.")] = "auto",
    seed: opt.Seed = 0,
) -> None:
    """Which classes of a labelled table cannot be told apart, and how sure is that?

    Trains on part of the rows and scores the others, in turn, then estimates S: how often an input seen in one class
    would carry the label of another if it were seen again. Numbers, text, dates and missing cells are fine.
    Columns that name rows (ids) are left out; columns that give the label away, groups of rows that belong together
    and repeated rows are warned about. After the first fold it says how long the rest will take. After Ctrl-C the folds
    trained so far are used.

    **Examples**

    - `collidescope fit table.csv --label income`
    - `collidescope fit table.csv --label income --quick --sample 5000` (a first look)
    - `collidescope fit table.csv --label income --report report.html --save model.collide`
    - `collidescope fit table.parquet -l y --drop customer_id --groups patient --rare drop --json > summary.json`
    """
    import pandas as pd

    from collidescope.cli import _inputs as inputs
    from collidescope.cli._results import check_report, finish, summary_of
    from collidescope.cli._writing import check_matrix_name, check_outputs, check_suffix, posterior_table, write_table
    from collidescope.trust import limit_of

    set_quiet(quiet)
    if priors not in ("empirical", "uniform"):
        raise ValueError(f"--priors must be empirical or uniform, got {priors!r}")
    if quick and members is not None:
        raise ValueError("--quick is a pool of its own: leave it or --members out")
    check_outputs([table], [report, save, matrix, out])
    check_suffix(out)
    check_report(report)
    rows = inputs.labelled_rows(table, label, inputs.Reading(header, delimiter, skip_lines), category or ())
    n_read = len(rows.y)
    rows = inputs.unique_rows(rows) if unique else rows
    rows = inputs.without_rare(rows, drop_rare)
    rows = inputs.with_rare_handled(inputs.sampled(rows, sample, seed), rare)
    check_matrix_name(matrix, len(set(rows.y.tolist())))
    rows, grouped = inputs.take_column(rows, groups, "--groups")
    rows, weights = inputs.take_column(rows, sample_weight, "--sample-weight")
    of = f"{len(rows.y):,}" + (f" of {n_read:,}" if len(rows.y) < n_read else "")
    counts = pd.Series(rows.y).value_counts(sort=False).sort_index().sort_values(ascending=False, kind="stable")
    named = ", ".join(f"{name} {count:,}" for name, count in counts.head(6).items()) + (
        ", …" if len(counts) > 6 else ""
    )
    classes = f"{len(counts)} classes in {rows.label!r}: {named}"
    say(f"{table.name}: {of} labelled rows, {rows.X.shape[1]} columns; {classes}")
    if quick:
        rows.notes.append(QUICK)
    for line in rows.notes:
        note(line)
    if len(rows.y) > MANY_ROWS and not quick:
        say("For a first look in less time: --quick, or --sample 20000.", "dim")
    given = {"cv": cv, "members": "quick" if quick else members and members.split(","), "n_jobs": n_jobs}
    settings = {name: value for name, value in given.items() if value is not None}
    settings |= {"limit": limit, "priors": priors, "device": device, "random_state": seed}
    settings |= {"verbose": 0 if is_quiet() else 1}
    chosen = {"drop": drop or (), "keep": keep or (), "categories": category or ()}
    started = time.perf_counter()
    model, checked = _train(rows, settings | chosen, inputs.group_codes(grouped), inputs.row_weights(weights), control)
    notes = [*rows.notes, *model.notes_]
    about: dict[str, Any] = {"file": table.name, "label": rows.label, "columns": list(model.encoder_.types)}
    about |= {"saved": save or matrix, "seconds": time.perf_counter() - started}
    about["command"] = shlex.join(["collidescope", "fit", str(table), "--label", rows.label])
    with warnings_as_notes():
        summary = summary_of(model, rows.X, rows.y, control=checked, title=title, about=about, notes=notes)
    # Before any other advice: a number that comes from a leak is not worth acting on.
    summary["what_to_do"] = [*model.cautions_, *([FULL] if quick else []), *summary["what_to_do"]]
    cm = model.collision_matrix_
    name = rows.label if rows.label not in ("row", "predicted") else f"{rows.label} (label)"
    posteriors = posterior_table(model.posteriors_, model.classes_, rows.numbers, pd.DataFrame({name: rows.y}))
    more = [("model", save, model.save), ("held-out posteriors", out, partial(write_table, posteriors))]
    finish(cm, summary, as_json=as_json, report=report, matrix=matrix, more=more, limit=limit_of(model))
    if model.interrupted_:
        say("Stopped by Ctrl-C: this is what the folds trained so far say; all that was asked is written.", always=True)
        raise typer.Exit(INTERRUPTED)
    again, source = str(about["command"]), matrix or save
    commands = [] if sample is None else [f"{again}   # all rows"]
    if report is None:
        commands.append(f"{again} --report report.html --save model.collide   # which rows, which labels look wrong")
    if save is not None:
        commands.append(f"collidescope predict {shlex.quote(str(save))} new.csv --out posteriors.csv")
    if cm.n_classes > 2 and source is not None:
        commands.append(f"collidescope merge {shlex.quote(str(source))}   # which classes to merge, and what it buys")
    for line in ["Next:", *(f"  {command}" for command in commands)] if commands else []:
        say(line, "dim")


def _train(rows: Any, settings: dict[str, Any], groups: Any, weights: Any, control: bool) -> tuple[Any, Any]:
    """The fitted model, and the control on shuffled labels where asked for (else None); says what it took."""
    import pandas as pd

    from collidescope.cli._inputs import notes_as_they_come
    from collidescope.tables import TableClassifier

    started = time.perf_counter()
    y = pd.Series(rows.y, name=rows.label)
    with notes_as_they_come():
        model = TableClassifier(**settings).fit(rows.X, y, sample_weight=weights, groups=groups)
    checked = None
    if control and not model.interrupted_:
        say("Again, on shuffled labels, where nothing must be found:")
        with warnings_as_notes():
            checked = model.shuffled_control(rows.X, rows.y)
        say(str(checked))
    say(f"Took {duration(time.perf_counter() - started)} and {_peak_memory()}.")
    return model, checked


def _peak_memory() -> str:
    """What this process and the largest of its workers have held at most."""
    try:
        import resource
    except ImportError:  # Windows
        return "an unknown amount of memory"
    kilo = 1 if sys.platform == "darwin" else 1024
    own, worker = (kilo * resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return f"{own / 1e9:.1f} GB" + (f", {worker / 1e9:.1f} GB per worker" if worker > own / 2 else "")
