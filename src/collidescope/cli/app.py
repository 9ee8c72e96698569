"""The application: the commands that estimate S from a table, and the list of all, as a new user needs them."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import collidescope as cs
from collidescope._text import duration
from collidescope.cli import _run as opt
from collidescope.cli import using
from collidescope.cli._console import INTERRUPTED, note, notes_as_they_come, say, show
from collidescope.cli._run import (
    PAGE,
    Column,
    Columns,
    File,
    command,
    load,
    option,
    posterior_table,
    results,
    training,
)

if TYPE_CHECKING:
    from collidescope.cli._inputs import Run

#: From so many rows a quicker first look is offered.
MANY_ROWS = 50_000
#: What a small pool means for the numbers, and what to do about it.
LESS = "the full pool would find less, as it tells classes apart better"
QUICK, FULL = (
    f"a small pool of models (--quick): {LESS}",
    f"Fit again without --quick before you act: {LESS}.",
)

CATEGORY = "Its values are names even if they look like numbers (a postcode, a region code)."
GROUPS = "Rows with the same value (one patient, one document) stay together in a fold, or the model would know them "
GROUPS += "already. The column itself is not used."
RARE = (
    "What to do about classes with a single row: stop, leave them out, or join them into one class."
)
OUT = (
    "Write labels and held-out posteriors of these rows: each by a model that did not see the row."
)
MEMBERS = "Models to train, such as linear,trees.  [default: those that suit the table]"
SMALL = "A small pool of models: takes seconds, and finds a little too much."
LIMIT = "Train on parts of the rows too, for what unlimited rows would leave (half as long again)."
PRIORS = "Class frequencies: as in these rows, or all equal."
CONTROL = "Fit again on shuffled labels, where nothing must be found (twice the time)."

app = typer.Typer(
    name="collidescope",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        show(f"collidescope {cs.__version__}")
        raise typer.Exit


EPILOG = "Exit codes: 0 all is well; 2 something about the input (an option, a file, a column); 1 an unexpected "
EPILOG += "failure; 130 ended by Ctrl-C. Results go to standard output, notes and progress to standard error."
VERSION = typer.Option(
    "--version", callback=_version, is_eager=True, help="Print the version and leave."
)


@app.callback(epilog=EPILOG)
def main(version: Annotated[bool, VERSION] = False) -> None:
    """Which classes can your data not tell apart, and how sure is that?

    Show the same input again: how often would it get another label? That is the collision matrix S. It says which
    classes overlap, what more rows could still change and what they could not, which classes to merge, and where a
    classifier can still improve. Every number comes with an interval.

    Ten minutes: `collidescope fit table.csv --label COLUMN --report report.html`, then open the report.
    """


@command("quiet", report=PAGE)
def demo(run: Run) -> None:
    """The main job on handwritten digits that come with scikit-learn: a minute or two, nothing to prepare."""
    from sklearn.datasets import load_digits

    run.start()
    X, y = load_digits(return_X_y=True)
    say(f"Which digits in {len(y):,} images of 8×8 pixels cannot be told apart? (a minute or two)")
    model = cs.CollisionClassifier(random_state=0, verbose=int(not run.quiet)).fit(X, y)
    about = {"file": "scikit-learn’s digits", "label": "digit"}
    summary = cs.summarise(
        model, X, y, image_shape=(8, 8), title="Which handwritten digits collide?", about=about
    )
    run.finish(model.collision_matrix_, summary)


@command(*opt.ESTIMATING, out=(Annotated[File, results("FILE.csv", OUT)], None))
def fit(
    run: Run,
    table: opt.Table,
    save: Annotated[
        File, results("MODEL.collide", "Write the model, for `predict` and `audit`.")
    ] = None,
    sample: opt.Sample = None,
    drop: opt.Drop = None,
    keep: opt.Keep = None,
    category: Annotated[Columns, opt.columns("COLUMN", CATEGORY)] = None,
    groups: Annotated[Column, opt.columns("COLUMN", GROUPS, "--groups", "--group")] = None,
    sample_weight: Annotated[
        Column, opt.columns("COLUMN", "How much each row counts; 0 leaves it out.")
    ] = None,
    unique: Annotated[
        bool, opt.columns(None, "Use rows that repeat, label included, only once.", "--unique")
    ] = False,
    rare: Annotated[str, opt.columns("error|drop|merge", RARE)] = "error",
    drop_rare: Annotated[
        int, opt.columns("N", "Leave out classes with fewer than N rows.", min=0)
    ] = 0,
    cv: Annotated[int, training(None, "Folds; fewer where a class has fewer rows.", min=2)] = 5,
    members: Annotated[str | None, training("A,B,…", MEMBERS)] = None,
    quick: Annotated[bool, training(None, SMALL, "--quick")] = False,
    limit: Annotated[bool, training(None, LIMIT, "--limit/--no-limit")] = True,
    priors: Annotated[str, training("empirical|uniform", PRIORS)] = "empirical",
    control: Annotated[bool, training(None, CONTROL, "--control")] = False,
    n_jobs: Annotated[int | None, training(None, "Folds at a time; -1 for all cores.")] = None,
    device: Annotated[str, training(None, "auto, cpu or cuda.")] = "auto",
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
    import numpy as np
    import pandas as pd

    from collidescope.cli._inputs import weights

    if quick and members is not None:
        raise ValueError("--quick is a pool of its own: leave it or --members out")
    rows = run.start(table, outputs=(save,)).rows(table, category or ())
    n_read = len(rows.y)
    rows = rows.unique() if unique else rows
    rows = rows.without_rare(drop_rare).sampled(sample, seed).with_rare_handled(rare)
    opt.check_matrix_name(run.matrix, len(np.unique(rows.y)))
    rows, grouped = rows.take(groups, "--groups")
    rows, weighed = rows.take(sample_weight, "--sample-weight", weights)
    of = f"{len(rows.y):,}" + (f" of {n_read:,}" if len(rows.y) < n_read else "")
    counts = (
        pd.Series(rows.y)
        .value_counts(sort=False)
        .sort_index()
        .sort_values(ascending=False, kind="stable")
    )
    named = [f"{name} {count:,}" for name, count in counts.head(6).items()] + ["…"] * (
        len(counts) > 6
    )
    classes = f"{len(counts)} classes in {rows.label!r}: {', '.join(named)}"
    say(f"{table.name}: {of} labelled rows, {rows.X.shape[1]} columns; {classes}")
    if quick:
        rows.notes.append(QUICK)
    note(*rows.notes)
    if len(rows.y) > MANY_ROWS and not quick:
        say("For a first look in less time: --quick, or --sample 20000.", "dim")
    pool: Any = (
        "quick"
        if quick
        else "auto"
        if members is None
        else [name.strip() for name in members.split(",")]
    )
    settings: dict[str, Any] = {
        "members": pool,
        "cv": cv,
        "limit": limit,
        "priors": priors,
        "device": device,
    }
    settings |= {"n_jobs": n_jobs, "random_state": seed, "verbose": int(not run.quiet)}
    settings |= {"drop": drop or (), "keep": keep or (), "categories": category or ()}
    started, checked = time.perf_counter(), None
    with notes_as_they_come():
        model = cs.TableClassifier(**settings)
        model.fit(rows.X, pd.Series(rows.y, name=rows.label), sample_weight=weighed, groups=grouped)
        if control and not model.interrupted_:
            say("Again, on shuffled labels, where nothing must be found:")
            checked = model.shuffled_control(rows.X, rows.y)
            say(str(checked))
        seconds, notes = time.perf_counter() - started, [*rows.notes, *model.notes_]
        say(f"Took {duration(seconds)} and {_peak_memory()}.")
        about = run.about("fit", table, rows.label, saved=save or run.matrix, seconds=seconds)
        summary = cs.summarise(
            model, rows.X, rows.y, control=checked, title=run.title, about=about, notes=notes
        )
    # Before any other advice: a number that comes from a leak is not worth acting on.
    summary["what_to_do"] = [*model.cautions_, *([FULL] if quick else []), *summary["what_to_do"]]
    cm = model.collision_matrix_
    name = rows.label if rows.label not in ("row", "predicted") else f"{rows.label} (label)"
    posteriors = posterior_table(
        model.posteriors_, model.classes_, rows.numbers, pd.DataFrame({name: rows.y})
    )
    run.finish(cm, summary, ("model", save, model.save), table=posteriors)
    if model.interrupted_:
        say(
            "Stopped by Ctrl-C: this is what the folds trained so far say; all that was asked is written.",
            always=True,
        )
        raise typer.Exit(INTERRUPTED)
    again = about["command"]
    commands = [] if sample is None else [f"{again}   # all rows"]
    if run.report is None:
        commands.append(
            f"{again} --report report.html --save model.collide   # which rows, which labels look wrong"
        )
    if save is not None and save.is_file():
        commands.append(
            f"collidescope predict {shlex.quote(str(save))} new.csv --out posteriors.csv"
        )
    if cm.n_classes > 2 and (source := run.matrix or save) is not None and source.is_file():
        commands.append(
            f"collidescope merge {shlex.quote(str(source))}   # which classes to merge, and what it buys"
        )
    if commands:
        say("\n  ".join(["Next:", *commands]), "dim")


def _peak_memory() -> str:
    """What this process and the largest of its workers have held at most."""
    try:
        import resource
    except ImportError:  # Windows
        return "an unknown amount of memory"
    kilo = 1 if sys.platform == "darwin" else 1024
    own, worker = (
        kilo * resource.getrusage(who).ru_maxrss
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return f"{own / 1e9:.1f} GB" + (
        f", {worker / 1e9:.1f} GB per worker" if worker > own / 2 else ""
    )


@command(*opt.ESTIMATING)
def posteriors(run: Run, table: opt.Table) -> None:
    """S from posteriors of your own model, and labels.

    The table has a column of probabilities for every class, called like the class or `p_CLASS`, and the label of each
    row. The probabilities must come from a model that was not trained on these rows (use cross-validation), or
    collisions are missed. Other columns are only shown beside ambiguous rows.

    **Example**

    - `collidescope posteriors heldout.parquet --label y --report report.html`
    """
    rows = run.start(table).scored(table)
    note(*rows.notes)
    cm = cs.collision_matrix_from_posteriors(rows.P, rows.y, classes=rows.classes)
    about, shown = (
        run.about("posteriors", table, rows.label, columns=rows.classes),
        rows.X if rows.X.shape[1] else None,
    )
    run.finish(cm, run.summary(rows, about=about, rows=shown))


@command(*opt.ESTIMATING)
def count(run: Run, table: opt.Table, drop: opt.Drop = None, keep: opt.Keep = None) -> None:
    """S counted over rows that are exactly alike: no model, no assumptions.

    Works where whole inputs repeat: questionnaires, codes, rounded measurements. It speaks for the rows that have a
    twin, and says how many these are. Drop a fine-grained column and more rows have one.

    **Examples**

    - `collidescope count table.csv --label income`
    - `collidescope count table.csv --label income --drop weight --matrix matrix.json`
    """
    import numpy as np

    from collidescope.counting import repeated_rows
    from collidescope.tables.encoding import check_columns, listed
    from collidescope.tables.screening import screen

    rows = run.start(table).rows(table)
    check_columns(rows.X, [*(drop or ()), *(keep or ())])
    X = rows.X.drop(columns=drop or [])
    found = screen(X, rows.y, keep=keep or ())
    X = X.drop(columns=list(found.ids))
    if X.shape[1] == 0:
        raise ValueError(
            f"{table.name} has no column left to compare rows by: {'; '.join(found.notes())}"
        )
    notes = [*rows.notes, *found.notes(), *found.cautions()]
    repeated = repeated_rows(X)
    if not repeated.any():
        levels = X.nunique().sort_values(ascending=False)
        drop_some = f"Drop columns with many values ({', '.join(f'--drop {name!r}' for name in levels.index[:2])})"
        none = f"no two rows of {table.name} are alike, so there is nothing to count"
        raise ValueError(f"{none}. {drop_some}, or estimate: collidescope fit")
    classes, codes = np.unique(rows.y, return_inverse=True)
    alone = np.bincount(codes[repeated], minlength=len(classes)) == 0
    if (~alone).sum() < 2:
        raise ValueError(
            "only one class has rows that repeat: nothing can be counted. Estimate: collidescope fit"
        )
    if alone.any():
        notes.append(
            f"classes without a row that repeats are left out: {listed(classes[alone].tolist())}"
        )
    note(*notes)
    kept = ~alone[codes]
    cm = cs.count_collisions(X[kept], rows.y[kept])
    about = run.about("count", table, rows.label, columns=X.columns)
    summary = cs.summarise(cm, title=run.title, notes=notes, about=about)
    summary["what_to_do"] = [*found.cautions(), *summary["what_to_do"]]
    run.finish(cm, summary)


WIDE = "One row per item and one column per class, with the number of votes."
OTHER = "A model or matrix of the same classes, to compare with."


@command(*opt.ESTIMATING)
def votes(
    run: Run,
    table: opt.Table,
    item: Annotated[Column, option("COLUMN", "What was voted on.", "--item", "-i")] = None,
    annotator: Annotated[
        Column, option("COLUMN", "Who voted: finds who differs.", "--annotator", "-a")
    ] = None,
    wide: Annotated[bool, option(None, WIDE, "--wide")] = False,
    model: Annotated[File, option("FILE", OTHER, "--model", "-m")] = None,
    drop: opt.Drop = None,
) -> None:
    """S from several labels per item: what people disagree about, with no model.

    One row per vote, or with `--wide` one row per item. Every item with two votes or more counts the same.

    **Examples**

    - `collidescope votes votes.csv --item id --label label --annotator who --report report.html`
    - `collidescope votes counts.csv --wide --item id --model model.collide`
    """
    from collidescope.applications._inputs import plain, section

    run.start(table, model)
    other = None if model is None else load(model, "matrix")
    if not wide:
        counts, names, people, notes = _votes_in_rows(run, table, item, annotator)
    elif run.label is not None or annotator is not None:
        raise ValueError("--wide has one column per class: leave out --label and --annotator")
    else:
        counts, notes, *_ = run.read(table)
        names = people = None
        counts = counts.drop(columns=drop or [])
        if item is not None:
            counts = counts.set_index(run.column(list(counts.columns), item, table))
        if words := [name for name in counts.columns if counts[name].dtype.kind not in "iufb"]:
            raise ValueError(
                f"column {words[0]!r} holds no numbers of votes: is it the item (--item)? Else --drop it"
            )
    cm = cs.collision_matrix_from_votes(counts, names)
    if once := cm.diagnostics.inputs_seen_once:
        notes = [
            *notes,
            f"{once:,} items have a single vote, which has nothing to be compared with: not counted",
        ]
    note(*notes)
    told = cs.agreement(counts, names)
    beside = None if other is None else cs.compare(other, cm)
    results = [result for result in (people, beside) if result is not None]
    given = ("--item", item), ("--annotator", annotator)
    flags = [part for flag, value in given if value is not None for part in (flag, value)]
    about = run.about("votes", table, run.label, *flags, *["--wide"] * wide)
    sections = [
        section("Agreement", ["With 95% intervals, as functions of B."], told.reset_index()),
        *results,
    ]
    summary = cs.summarise(cm, title=run.title, notes=notes, about=about, sections=sections)
    summary["votes"] = {"agreement": plain(told)} if people is None else people.to_dict()
    summary["votes"] |= {} if beside is None else {"compared": beside.to_dict()}
    agreed = "\nAgreement, with 95% intervals:\n" + told.to_string(float_format="{:.4f}".format)
    run.finish(cm, summary, said="\n\n".join([agreed, *map(str, results)]))


def _votes_in_rows(run: Run, table: Path, item: str | None, annotator: str | None) -> Any:
    """(counts of items × classes, names of the classes, comparison of annotators or None, notes)."""
    from collidescope.counting import count_table, input_groups, label_codes

    rows = run.rows(table)
    names = list(rows.X.columns)
    if item is None:
        raise ValueError(f"say which column names the items, with --item: {table.name} has {names}")
    wanted = [run.column(names, name, table) for name in (item, annotator) if name is not None]
    whole = rows.X[wanted].notna().all(axis=1).to_numpy()
    said = [f"{int((~whole).sum()):,} votes lack {' or '.join(wanted)} and are left out"] * (
        not whole.all()
    )
    rows = rows.part(whole.nonzero()[0], *said)
    items, (codes, classes) = rows.X[wanted[0]], label_codes(rows.y)
    people = None
    if annotator is not None:
        people = cs.compare_annotators(
            items, rows.y, rows.X[wanted[1]].astype(str), classes=list(classes)
        )
    return count_table(input_groups(items), codes, len(classes)), classes, people, rows.notes


PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Start here": (demo, fit),
    "Go on from a model or a matrix": (
        using.predict,
        using.audit,
        using.merge,
        using.limit,
        using.report,
    ),
    "From your own numbers": (posteriors, count, votes),
    "Decide what to do next": (
        using.rows,
        using.columns,
        using.groups,
        using.ceilings,
        using.compare,
        using.split,
    ),
}
for _panel, _commands in PANELS.items():
    for _command in _commands:
        app.command(rich_help_panel=_panel)(_command)
