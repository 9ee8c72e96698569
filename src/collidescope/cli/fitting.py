"""``collidescope fit``: a table in, S and what to do about it out."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from collidescope._text import duration
from collidescope.cli import _options as opt
from collidescope.cli._console import (
    INTERRUPTED,
    guarded,
    is_quiet,
    note,
    say,
    set_quiet,
    warnings_as_notes,
)

#: Settings of --quick: fewer folds, epochs and patience.
QUICK = {"cv": 3, "max_epochs": 30, "patience": 4}
FOLDS = 5
EPOCHS = 200
#: From so many rows a quicker first look is offered, and from so many numbers folds are trained side by side.
MANY_ROWS, MANY_NUMBERS = 50_000, 200_000


@guarded
def fit(
    table: opt.TableArgument,
    label: opt.Label = None,
    report: opt.Report = None,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL.collide",
            help="Write the model, for `predict` and `audit`.",
            rich_help_panel=opt.RESULTS,
        ),
    ] = None,
    matrix: opt.Matrix = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="Write held-out posteriors of these rows: each by a model that did not see the row.",
            rich_help_panel=opt.RESULTS,
        ),
    ] = None,
    as_json: opt.Json = False,
    title: opt.Title = None,
    quiet: opt.Quiet = False,
    sample: opt.Sample = None,
    drop: opt.Drop = None,
    keep: opt.Keep = None,
    category: opt.Category = None,
    group: opt.Group = None,
    drop_rare: opt.DropRare = 0,
    header: opt.Header = True,
    delimiter: opt.Delimiter = None,
    skip_lines: opt.SkipLines = 0,
    cv: Annotated[
        int | None,
        typer.Option(min=2, help=f"Folds.  [default: {FOLDS}]", rich_help_panel=opt.TRAINING),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help=f"At most so many a network.  [default: {EPOCHS}]", rich_help_panel=opt.TRAINING),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Fewer folds and epochs: rougher, and a little too high.", rich_help_panel=opt.TRAINING
        ),
    ] = False,
    priors: Annotated[
        str,
        typer.Option(
            metavar="empirical|uniform",
            help="For the classes as frequent as here, or as if all were equally frequent.",
            rich_help_panel=opt.TRAINING,
        ),
    ] = "empirical",
    control: Annotated[
        bool,
        typer.Option(
            "--control",
            help="Fit again on shuffled labels, where nothing must be found (twice the time).",
            rich_help_panel=opt.TRAINING,
        ),
    ] = False,
    n_jobs: Annotated[
        int | None,
        typer.Option(
            "--n-jobs", help="Folds at a time; -1 for all cores.  [default: by size]", rich_help_panel=opt.TRAINING
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.", rich_help_panel=opt.TRAINING)] = "auto",
    seed: opt.Seed = 0,
) -> None:
    """Which classes of a labelled table cannot be told apart, and how sure is that?

    Trains on part of the rows and scores the others, in turn, then estimates S: how often an input seen in one class
    would carry the label of another if it were seen again. Numbers, text, dates and gaps in the table are all right.
    Columns that name rows (ids) are left out, columns that give the label away are warned about. Before a long fit it
    says how long it will take. After Ctrl-C the folds trained so far are used.

    **Examples**

    - `collidescope fit table.csv --label income`
    - `collidescope fit table.csv --label income --sample 5000` (a first look)
    - `collidescope fit table.csv --label income --report report.html --save model.collide`
    - `collidescope fit table.parquet -l y --drop customer_id --drop-rare 10 --json > summary.json`
    """
    from collidescope.cli import _inputs as inputs
    from collidescope.cli._results import check_report, finish, next_steps, summary_of
    from collidescope.cli._writing import check_suffix, posterior_table, write_table

    set_quiet(quiet)
    if priors not in ("empirical", "uniform"):
        raise ValueError(f"--priors must be empirical or uniform, got {priors!r}")
    inputs.check_outputs([table], [report, save, matrix, out])
    check_suffix(out)
    check_report(report)
    folds = cv or (QUICK["cv"] if quick else FOLDS)
    rows = inputs.labelled_rows(table, label, inputs.Reading(header, delimiter, skip_lines), category or ())
    n_read = len(rows.y)
    rows = inputs.without_rare(rows, drop_rare)
    rows = inputs.sampled(rows, sample, folds, seed)
    inputs.check_members(rows, folds)
    say(f"{table.name}: {n_read:,} labelled rows, {rows.X.shape[1]} columns; {_classes(rows.label, rows.y)}")
    for line in rows.notes:
        note(line)

    settings: dict[str, Any] = {
        "cv": folds,
        "max_epochs": epochs or (QUICK["max_epochs"] if quick else EPOCHS),
        "priors": priors,
        "trees": not quick,
        "device": device,
        "random_state": seed,
        "verbose": 0 if is_quiet() else 1,
        **({"patience": QUICK["patience"]} if quick else {}),
    }
    splits = None
    if group is not None:
        splits, drop = inputs.grouped_splits(rows, group, folds, seed), [*(drop or ()), group]
    model, encoded = _prepare(rows, settings, n_jobs, drop or (), keep or (), category or (), control)
    if splits is not None:
        model.classifier.set_params(cv=splits)
    checked = _train(model, encoded, rows.y, control)
    model.label_ = rows.label
    notes = [*rows.notes, *model.notes_]
    with warnings_as_notes():
        summary = summary_of(model, rows.X, rows.y, control=checked, title=title, notes=notes)
    # Before any other advice: a number that comes from a leak is not worth acting on.
    summary["what_to_do"] = [*model.screening_.leak_notes(), *summary["what_to_do"]]
    cm = model.collision_matrix_
    written = {}
    if save is not None:
        model.save(save)
        written["model"] = save
    if out is not None:
        write_table(posterior_table(model.posteriors_, model.classes_, rows.numbers), out)
        written["held-out posteriors"] = out
    finish(cm, summary, as_json=as_json, report=report, matrix=matrix, written=written)
    if model.interrupted_:
        done = len(model.capacities_)
        say(f"Stopped by Ctrl-C: this is what {done} of {folds} folds say; all that was asked is written.", always=True)
        raise typer.Exit(INTERRUPTED)
    next_steps(_next(table, rows.label, cm.n_classes, report, save, matrix, sample))


def _prepare(
    rows: Any,
    settings: dict[str, Any],
    n_jobs: int | None,
    drop: Sequence[str],
    keep: Sequence[str],
    categories: Sequence[str],
    control: bool,
) -> tuple[Any, Any]:
    """The model with its encoder, and the encoded table; says what was found and what it will cost."""
    from os import cpu_count

    from collidescope.classifier import CollisionClassifier
    from collidescope.learners.bridge import resolve_device
    from collidescope.tables.model import TableClassifier

    model = TableClassifier(None, list(drop), list(keep), list(categories))
    encoded = model.prepare(rows.X, rows.y)
    for line in model.notes_:
        note(line)
    n, d = encoded.shape
    k = len(set(rows.y.tolist()))
    if n_jobs is None:  # a fold for each core pays from a few seconds of work on
        n_jobs = -1 if n * d * k > MANY_NUMBERS and resolve_device(settings["device"]) == "cpu" else 1
    model.classifier = CollisionClassifier(**settings, n_jobs=(cpu_count() or 1) if n_jobs == -1 else n_jobs)
    say(f"{n:,} rows × {len(model.encoder_.columns)} columns → {d} features, {k} classes", "bold")
    if n > MANY_ROWS:
        say("For a first look in less time: --sample 20000, or --quick.", "dim")
    return model, encoded


def _train(model: Any, encoded: Any, y: Any, control: bool) -> Any:
    """Train, and check on shuffled labels where asked; says what it took. The control, or None."""
    started = time.perf_counter()
    with warnings_as_notes():
        model.train(encoded, y)
    checked = None
    if control and not model.interrupted_:
        say("Again, on shuffled labels, where nothing must be found:")
        with warnings_as_notes():
            checked = model.classifier_.shuffled_control(encoded, y)
        say(str(checked))
    say(f"Took {duration(time.perf_counter() - started)} and {_peak_memory(model.classifier.n_jobs or 1)}.")
    return checked


def _classes(label: str, y: Any) -> str:
    import numpy as np

    classes, counts = np.unique(y, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:6]
    named = ", ".join(f"{classes[i]} {counts[i]:,}" for i in order)
    return f"{len(classes)} classes in {label!r}: {named}" + (", …" if len(classes) > 6 else "")


def _peak_memory(jobs: int) -> str:
    """What this process and its workers have held at most; the workers are sent home first."""
    try:
        import resource
    except ImportError:  # Windows
        return "an unknown amount of memory"
    if jobs > 1:
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor().shutdown(wait=True)
    kilo = 1 if sys.platform == "darwin" else 1024
    own, worker = (kilo * resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return f"{own / 1e9:.1f} GB" if jobs == 1 else f"at most {(own + jobs * worker) / 1e9:.1f} GB"


def _next(
    table: Path, label: str, k: int, report: Path | None, save: Path | None, matrix: Path | None, sample: int | None
) -> list[str]:
    """Commands that go on from here."""
    fit_again = f"collidescope fit {shlex.quote(str(table))} --label {shlex.quote(label)}"
    commands = []
    if report is None:
        commands.append(
            f"{fit_again} --report report.html --save model.collide   # which rows, which labels look wrong"
        )
    if save is not None:
        commands.append(f"collidescope predict {shlex.quote(str(save))} new.csv --out posteriors.csv")
    if k > 2 and (source := matrix or save):
        commands.append(f"collidescope merge {shlex.quote(str(source))}   # which classes to merge, and what it buys")
    return commands if sample is None else [f"{fit_again}   # all rows", *commands]
