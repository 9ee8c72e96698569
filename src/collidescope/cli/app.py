"""The application: the commands that estimate S from a table, and the list of all of them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import collidescope as cs
from collidescope.cli import _run as opt
from collidescope.cli import deciding, using, voting
from collidescope.cli._console import (
    note,
    say,
    show,
)
from collidescope.cli._run import (
    PAGE,
    Column,
    Columns,
    File,
    command,
    results,
    training,
)

if TYPE_CHECKING:
    import pandas as pd

    from collidescope.cli._inputs import BoolArray, Rows, Run
    from collidescope.tables.screening import Screening

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


@app.callback(
    epilog="Exit codes: 0 success; 1 an unexpected failure; 2 an error in the input (an option, a "
    "file, a column); 3 above --fail-above; 130 ended by Ctrl-C. Results go to standard output, "
    "notes and progress to standard error."
)
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """Which classes can your data not tell apart, and how sure is that?

    If an input were labelled again, how often would it get another label? The collision matrix S
    says so for every pair of classes. It shows which classes overlap, what more rows could change
    and what they could not, which classes to merge, and where a classifier can still improve.

    To start: `collidescope fit table.csv --label COLUMN --report report.html`, then open the
    report.
    """


@command("quiet", "matrix", report=PAGE)
def demo(run: Run) -> None:
    """Try it on the handwritten digits of scikit-learn: a minute or two."""
    from sklearn.datasets import load_digits

    from collidescope.cli._inputs import summarised

    run.start()
    X, y = load_digits(return_X_y=True)
    say(
        f"Which digits in {len(y):,} images of 8×8 pixels cannot be told apart? (a minute or two)"
    )
    model = cs.CollisionClassifier(random_state=0, verbose=int(not run.quiet)).fit(X, y)
    about = run.about("scikit-learn’s digits", "digit")
    title = "Which handwritten digits are mistaken for which?"
    summary = summarised(model, X, y, image_shape=(8, 8), title=title, about=about)
    run.finish(model.collision_matrix_, summary)


@command(
    *opt.ESTIMATING,
    out=(
        Annotated[
            File,
            results(
                "FILE.csv",
                "Write the rows with held-out posteriors, from models that did not see the row.",
            ),
        ],
        None,
    ),
)
def fit(
    run: Run,
    table: opt.TableOrImages,
    save: Annotated[
        File,
        results("MODEL.collide", "Write the model, for `predict` and `audit`."),
    ] = None,
    copied: Annotated[
        Columns,
        results(
            "COLUMN",
            "Input columns to write with --out, instead of all. Repeat for more.",
            "--with",
        ),
    ] = None,
    sample: opt.Sample = None,
    drop: opt.Drop = None,
    keep: opt.Keep = None,
    category: Annotated[
        Columns,
        opt.columns(
            "COLUMN",
            "Treat the values of this column as names even if they look like numbers (a postcode, "
            "a region code).",
        ),
    ] = None,
    groups: Annotated[
        Column,
        opt.columns(
            "COLUMN",
            "Rows with the same value (one patient, one document) are kept in one fold, so that no "
            "model is scored on relatives of its training rows. The column itself is not used.",
            "--groups",
            "--group",
        ),
    ] = None,
    sample_weight: Annotated[
        Column,
        opt.columns("COLUMN", "How much each row counts; 0 leaves it out."),
    ] = None,
    ordered: Annotated[
        str | None,
        opt.columns(
            "A,B,…",
            "The order of the classes: they are shown in it, and only neighbours are merged.",
        ),
    ] = None,
    unique: Annotated[
        bool,
        opt.columns(None, "Use identical rows, label included, only once.", "--unique"),
    ] = False,
    rare: Annotated[
        str,
        opt.columns(
            "error|drop|merge",
            "What to do about classes with a single row: stop, leave them out, or join them.",
        ),
    ] = "error",
    drop_rare: Annotated[
        int,
        opt.columns("N", "Leave out classes with fewer than N rows.", min=0),
    ] = 0,
    cv: Annotated[
        int,
        training(
            None, "Folds; a class with fewer rows is held out in fewer of them.", min=2
        ),
    ] = 5,
    members: Annotated[
        str | None,
        training(
            "A,B,…",
            "Models to train, such as linear,trees.  [default: those that suit the table]",
        ),
    ] = None,
    quick: Annotated[
        bool,
        training(None, "A small pool of models: a first look in seconds.", "--quick"),
    ] = False,
    limit: Annotated[
        bool,
        training(
            None,
            "Also train on parts of the rows, to estimate what unlimited rows would leave (adds "
            "about 50% to the time).",
            "--limit/--no-limit",
        ),
    ] = True,
    priors: Annotated[
        str,
        training(
            "empirical|uniform", "Class frequencies: as in these rows, or all equal."
        ),
    ] = "empirical",
    control: Annotated[
        bool,
        training(
            None,
            "Fit again on shuffled labels, to check that nothing is found there (twice the time).",
            "--control",
        ),
    ] = False,
    n_jobs: Annotated[
        int | None,
        training(
            "N",
            "Models to train in parallel.  [default: all cores, from 5,000 rows on]",
            "--jobs",
            "--n-jobs",
        ),
    ] = None,
    budget: Annotated[
        float | None,
        training(
            "SECONDS",
            "Leave out models and training sizes that would take longer.",
            min=0,
        ),
    ] = None,
    device: Annotated[str, training(None, "auto, cpu or cuda.")] = "auto",
    seed: opt.Seed = 0,
    images: Annotated[
        bool,
        opt.images(
            None,
            "TABLE is a folder with one subfolder per class (known without this), or a table "
            "with a column of paths and one of labels.",
            "--images",
        ),
    ] = False,
    size: Annotated[
        int | None,
        opt.images(
            "PIXELS",
            "Scale images to squares of this side.  [default: as they are, up to 96]",
            min=4,
        ),
    ] = None,
    skip_bad: Annotated[
        bool,
        opt.images(
            None,
            "Skip files that cannot be read as images, with a warning.",
            "--skip-bad",
        ),
    ] = False,
) -> None:
    """Which classes of a labelled table, or of images, cannot be told apart, and how sure is that?

    Cross-fits a pool of models and estimates S: how often an input with one label would get another
    if it were labelled again. Numbers, text, dates and missing cells are fine. Columns that name
    rows (ids) are left out; you are warned about target leakage, groups of rows that belong
    together and repeated rows. Progress shows the time left. After Ctrl-C the folds trained so far
    are used.

    **Examples**

    - `collidescope fit table.csv --label income`
    - `collidescope fit table.csv --label income --quick --sample 5000` (a first look)
    - `collidescope fit table.csv --label income --report report.html --save model.collide`
    - `collidescope fit visits.csv -l diagnosis --groups patient --rare drop --json > summary.json`
    - `collidescope fit photos/ --report report.html` (one subfolder per class)
    """
    import pandas as pd

    from collidescope.cli._fitting import Fit, train
    from collidescope.cli._inputs import weights

    settings: dict[str, Any] = {
        "members": _pool(quick, members),
        "cv": cv,
        "limit": limit,
        "priors": priors,
        "device": device,
        "budget": budget,
        "random_state": seed,
        "verbose": int(not run.quiet),
    }
    run.start(table, outputs=(save,))
    pictures = None
    if images or table.is_dir():
        from collidescope.cli.images import check_options, fit_images, read_files

        check_options(
            {
                "--drop": drop,
                "--keep": keep,
                "--category": category,
                "--groups": groups,
                "--sample-weight": sample_weight,
                "--ordered": ordered,
                "--unique": unique,
                "--with": copied,
            }
        )
        pictures, whole = read_files(run, table, size, skip_bad)
    else:
        whole = run.rows(table, category or ())
    n_read = len(whole.y)
    if unique:
        whole = whole.unique()
    whole = whole.without_rare(drop_rare)
    rows = whole.sampled(sample, seed).with_rare_handled(rare)
    opt.check_matrix_name(run.matrix, rows.n_classes)
    if pictures is not None:
        networks = cs.CollisionClassifier(n_jobs=n_jobs, **settings)
        fit_images(run, networks, pictures[rows.numbers], rows, save, control)
        return
    inputs = _chosen(rows.X, copied)
    rows, grouped = rows.take(groups, "--groups")
    rows, weighed = rows.take(sample_weight, "--sample-weight", weights)
    _introduce(rows, n_read, quick)
    found = None
    if len(rows.y) < len(whole.y):  # what a sample hides shows in all rows
        unused = [*(drop or ()), groups, sample_weight]
        found = _screened(whole, unused, [*(keep or ()), *(category or ())])
    if n_jobs is None and len(rows.y) >= 5000:
        # Starting workers costs seconds, which smaller tables do not pay back.
        n_jobs = -1
    cautions = []
    if quick:
        cautions.append(
            "a small pool of models (--quick) was used: fit without it before you act"
        )
    model = cs.TableClassifier(
        n_jobs=n_jobs,
        drop=drop or (),
        keep=keep or (),
        categories=category or (),
        **settings,
    )
    y = pd.Series(rows.y, name=rows.label)
    name = rows.label
    if name in ("row", "predicted"):
        name = f"{name} (label)"
    asked = Fit(
        model,
        rows,
        rows.X,
        save,
        control,
        labels=y.to_frame(name),
        inputs=inputs,
        cautions=cautions,
    )
    y = _in_order(y, ordered)
    train(
        run,
        asked,
        lambda: model.fit(rows.X, y, weighed, grouped, screening=found),
    )
    _next_steps(run, save, sample, model.collision_matrix_.n_classes)


def _pool(quick: bool, members: str | None) -> str | list[str]:
    """The argument ``members`` of the classifier."""
    if quick and members is not None:
        raise ValueError("--quick is a pool of its own: leave it or --members out")
    if members is None:
        return "quick" if quick else "auto"
    return opt.split_names(members)


def _chosen(X: pd.DataFrame, copied: list[str] | None) -> pd.DataFrame:
    """The input columns that ``--out`` writes."""
    from collidescope.tables.cells import check_columns

    if copied is None:
        return X
    check_columns(X, copied)
    return X[copied]


def _introduce(rows: Rows, n_read: int, quick: bool) -> None:
    """Say what was read, and what may take long."""
    from collidescope.cli._fitting import largest_classes

    n = len(rows.y)
    n_columns = rows.X.shape[1]
    columns = "1 column" if n_columns == 1 else f"{n_columns} columns"
    of = f"{n:,} of {n_read:,}" if n < n_read else f"{n:,}"
    say(
        f"{rows.table.name}: {of} labelled rows, {columns}; "
        f"{rows.n_classes} classes in {rows.label!r}: {largest_classes(rows.y)}"
    )
    if quick:
        rows.notes.append(
            "a small pool of models (--quick): a first look, whose numbers may change "
            "with the full pool"
        )
    note(*rows.notes)
    if n > 50_000 and not quick:
        say("For a first look in less time: --quick, or --sample 20000.", "dim")


def _screened(rows: Rows, drop: Sequence[str | None], keep: Sequence[str]) -> Screening:
    """Ids, leaks and groups among the columns that are used."""
    from collidescope.tables.screening import screen

    gone = [name for name in drop if name in rows.X.columns]
    return screen(rows.X.drop(columns=gone), rows.y, keep=keep)


def _in_order(y: pd.Series, ordered: str | None) -> pd.Series:
    """The labels as an ordered categorical, where ``--ordered`` gives their order."""
    import pandas as pd

    from collidescope.tables.cells import as_word, listed

    if ordered is None:
        return y
    names = opt.split_names(ordered)
    words = {as_word(name): name for name in y.unique().tolist()}
    if sorted(names) != sorted(words):
        raise ValueError(
            f"--ordered must name every class once: {y.name!r} has "
            f"{listed(list(words))}, got {ordered!r}"
        )
    in_order = [words[name] for name in names]
    return y.astype(pd.CategoricalDtype(in_order, ordered=True))


def _next_steps(
    run: Run, save: Path | None, sample: int | None, n_classes: int
) -> None:
    """Commands that go on from here, with every option that changes the numbers."""
    commands = []
    if sample is not None:
        commands.append(f"{opt.typed('sample')}   # all rows")
    if run.report is None:
        why = "which rows, which labels look wrong"
        commands.append(
            f"{opt.typed()} --report report.html --save model.collide   # {why}"
        )
    if save is not None and save.is_file():
        commands.append(
            f"collidescope predict {shlex.quote(str(save))} new.csv --out posteriors.csv"
        )
    source = run.matrix or save
    if n_classes > 2 and source is not None and source.is_file():
        why = "which classes to merge, and what it buys"
        commands.append(f"collidescope merge {shlex.quote(str(source))}   # {why}")
    if commands:
        say("\n  ".join(["Next:", *commands]), "dim")


@command(*opt.ESTIMATING)
def posteriors(run: Run, table: opt.Table) -> None:
    """S from posteriors of your own model, and labels.

    The table has a column of probabilities for every class, called `p_CLASS` or like the class, and
    the label of each row. The probabilities must come from a model that was not trained on these
    rows (use cross-validation), or collisions are missed. Other columns are only shown beside
    ambiguous rows.

    **Example**

    - `collidescope posteriors heldout.parquet --label y --report report.html`
    """
    run.start(table)
    rows = run.scored(table)
    note(*rows.notes)
    classes = rows.classes
    cm = cs.collision_matrix_from_posteriors(rows.P, rows.y, classes=classes)
    about = run.about(table.name, rows.label, columns=classes)
    shown = rows.X if rows.X.shape[1] else None
    run.finish(cm, run.summary(rows, about=about, rows=shown))


@command(*opt.ESTIMATING)
def count(
    run: Run, table: opt.Table, drop: opt.Drop = None, keep: opt.Keep = None
) -> None:
    """S counted over rows that are exactly alike: no model, no assumptions.

    Works where whole inputs repeat: questionnaires, codes, rounded measurements. It speaks for the
    rows that have a twin, and says how many these are. Drop a fine-grained column and more rows
    have one.

    **Examples**

    - `collidescope count table.csv --label income`
    - `collidescope count table.csv --label income --drop weight --matrix matrix.json`
    """
    from collidescope.cli._inputs import summarised
    from collidescope.counting import repeated_rows
    from collidescope.tables.cells import check_columns

    rows = run.start(table).rows(table)
    dropped = drop or []
    kept_anyway = keep or []
    check_columns(rows.X, [*dropped, *kept_anyway])
    found = _screened(rows, dropped, kept_anyway)
    X = rows.X.drop(columns=[*dropped, *found.ids])
    if X.shape[1] == 0:
        raise ValueError(
            f"{table.name} has no column left to compare rows by: "
            f"{'; '.join(found.notes())}"
        )
    kept, left_out = _with_twins(rows, X, repeated_rows(X))
    cautions = found.cautions()
    notes = [*rows.notes, *found.notes(), *cautions, *left_out]
    note(*notes)
    cm = cs.count_collisions(X[kept], rows.y[kept])
    about = run.about(table.name, rows.label, columns=X.columns, cautions=cautions)
    run.finish(cm, summarised(cm, title=run.title, notes=notes, about=about))


def _with_twins(
    rows: Rows, X: pd.DataFrame, repeated: BoolArray
) -> tuple[BoolArray, list[str]]:
    """(rows of classes that have a row which repeats, what there is to say of the others)."""
    import numpy as np

    from collidescope.tables.cells import listed

    if not repeated.any():
        finest = X.nunique().sort_values(ascending=False).index[:2]
        drop = ", ".join(f"--drop {name!r}" for name in finest)
        raise ValueError(
            f"no two rows of {rows.table.name} are alike, so there is nothing to count. "
            f"Drop columns with many values ({drop}), or estimate: collidescope fit"
        )
    classes, codes = np.unique(rows.y, return_inverse=True)
    alone = np.bincount(codes[repeated], minlength=len(classes)) == 0
    if (~alone).sum() < 2:
        raise ValueError(
            "only one class has rows that repeat: nothing can be counted. Estimate: "
            "collidescope fit"
        )
    gone = f"classes without a row that repeats are left out: {listed(classes[alone].tolist())}"
    return ~alone[codes], [gone] if alone.any() else []


PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Start here": (demo, fit),
    "Go on from a model or a matrix": (
        using.predict,
        deciding.audit,
        using.merge,
        using.limit,
        using.report,
    ),
    "From your own numbers": (posteriors, count, voting.votes),
    "Decide what to do next": (
        deciding.plan,
        deciding.rows,
        deciding.columns,
        deciding.groups,
        deciding.ceilings,
        deciding.compare,
        deciding.split,
    ),
}
for _panel, _commands in PANELS.items():
    for _command in _commands:
        app.command(rich_help_panel=_panel)(_command)
