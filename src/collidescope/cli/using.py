"""What a saved model, a matrix, or a table of posteriors is for: predictions, and the next decision.

Posteriors come from a model file and a table of raw rows, or from a table with a column of probabilities per class.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import collidescope as cs
from collidescope.cli import _run as opt
from collidescope.cli._console import note, notes_as_they_come, say
from collidescope.cli._run import Column, Columns, File, argument, command, option

if TYPE_CHECKING:
    import pandas as pd

    from collidescope.cli._inputs import Rows, Run

#: Exit code when ``--fail-above`` fails: neither an error nor bad input.
ABOVE = 3
#: What the arguments of consolidate are called on the command line.
FLAGS = {
    "must_merge": "--together",
    "cannot_merge": "--apart",
    "max_pber": "--max-pber",
    "n_groups": "--groups",
}
FLAGS |= {'method="optimal"': "--optimal", "method='optimal'": "--optimal"}
#: Characters of a class name that a narrow terminal leaves.
FEWEST = 10

WITH = "Copy a column of the table, such as an id. Repeat for more."
MAX_PBER = "Merge until an input seen again changes group at most this often: 0.05 is 5%."
Model = Annotated[
    File,
    option("MODEL", "A file that `fit … --save` wrote; the table has raw rows.", "--model", "-m"),
]
Predicted = Annotated[
    Column,
    option("COLUMN", "The column that holds what your classifier says.", "--predicted", "-p"),
]
FailAbove = Annotated[
    float | None, option("X", "Exit with code 3 where it is above X beyond chance: for CI.")
]
Cluster = Annotated[Column, option("COLUMN", "Rows with the same value belong together.")]
#: A command that answers a question about labelled rows.
decision = command(*opt.READING, "out", "report", "title", *opt.PRINTING)


@command("out", *opt.PRINTING, *opt.READING[1:])
def predict(
    run: Run,
    model: Annotated[
        Path, argument("MODEL", "A file that `collidescope fit … --save` has written.")
    ],
    table: opt.Table,
    copied: Annotated[Columns, option("COLUMN", WITH, "--with")] = None,
) -> None:
    """How likely is each class for new rows?

    Takes raw rows with the columns that the model was fitted on (others are ignored) and writes for each row its
    number from 0, the most likely class, and a column `p_CLASS` of every class: as CSV to standard output, or to
    `--out`. Levels that training did not have and missing cells are fine, and counted.

    **Examples**

    - `collidescope predict model.collide new.csv --out posteriors.csv`
    - `collidescope predict model.collide new.parquet --with customer_id > posteriors.csv`
    """
    from collidescope.cli._inputs import posteriors
    from collidescope.tables.encoding import check_columns

    run.start(model, table)
    fitted = opt.load(model, "model")
    X, notes = run.raw_rows(fitted, table)
    check_columns(X, copied or ())
    note(*notes)
    label = getattr(fitted, "label_", None)
    known = label is None or label in getattr(getattr(fitted, "encoder_", None), "types", ())
    P, met = posteriors(
        fitted, X if known else X.drop(columns=label, errors="ignore"), held_out=False
    )
    found = opt.posterior_table(P, fitted.classes_, range(len(X)), X[copied] if copied else None)
    said = {"classes": fitted.classes_.tolist(), "predicted": found["predicted"].tolist()}
    run.tell(None, said | {"posteriors": P, "notes": [*notes, *met]}, table=found)


@command("matrix", *opt.PRINTING)
def merge(
    run: Run,
    source: Annotated[Path, argument("SOURCE", "A matrix (--matrix) or a model (--save).")],
    groups: Annotated[
        int | None, option(None, "Merge until so many groups are left.", min=2)
    ] = None,
    max_pber: Annotated[float | None, option(None, MAX_PBER)] = None,
    max_group_size: Annotated[int | None, option("N", "Most classes of a group.", min=2)] = None,
    balance: Annotated[
        float, option("X", "0 by gain alone, 1 for groups of like size.", min=0, max=1)
    ] = 0.0,
    together: Annotated[
        Columns, option("A,B", "Classes that must be in one group. Repeat for more.")
    ] = None,
    apart: Annotated[
        Columns, option("A,B", "Classes that must not be in one group. Repeat for more.")
    ] = None,
    optimal: Annotated[
        bool, option(None, "Look at every grouping (up to 10 classes).", "--optimal")
    ] = False,
) -> None:
    """Which classes to merge, and what would it buy?

    Merging is exact: the matrix of merged classes follows from S, and nothing is trained again. Without `--groups` and
    `--max-pber` every step is shown: choose from them.

    **Examples**

    - `collidescope merge matrix.json`
    - `collidescope merge matrix.json --max-pber 0.05`
    - `collidescope merge model.collide --groups 4 --apart cat,dog --json`
    """
    from collidescope.applications._inputs import plain

    run.start(source)
    cm = opt.load(source, "matrix")
    options: dict[str, Any] = {
        "max_pber": max_pber,
        "max_group_size": max_group_size,
        "balance": balance,
    }
    for name, given in (("must_merge", together), ("cannot_merge", apart)):
        options[name] = (
            [[own.strip() for own in group.split(",")] for group in given] if given else None
        )
    try:
        plan = cs.consolidate(cm, groups, method="optimal" if optimal else "greedy", **options)
    except ValueError as error:
        words = str(error)
        for argument, flag in FLAGS.items():
            words = words.replace(argument, flag)
        raise ValueError(words) from None
    path = plan.path[
        ["n_groups", "first", "second", "pber", "pber_low", "pber_high", "gain", "price"]
    ]
    names = [] if optimal else ["first", "second"]
    chosen = groups is not None or max_pber is not None
    order = (
        "The best grouping of each size:"
        if optimal
        else "Step by step, the two groups that collide most first:"
    )
    steps = _fitting(path[["n_groups", *names, "pber", "pber_low", "pber_high"]], names)
    data = {
        "groups": plan.groups,
        "names": plan.matrix.classes,
        "pber": plan.matrix.pber,
        "pber_before": cm.pber,
    }
    run.tell(
        "\n".join([*[f"{plan}\n"] * chosen, order, steps]),
        data | {"path": plain(path)},
        cm=plan.matrix,
    )
    if not chosen and not run.as_json:
        say("Choose with --groups N or --max-pber 0.05.", "dim")


def _fitting(table: pd.DataFrame, names: list[str]) -> str:
    """A table as text no wider than the terminal: the columns ``names``, which hold class names, are cut."""
    from collidescope._text import short

    text, longest = "", max((len(str(value)) for name in names for value in table[name]), default=0)
    for most in range(max(longest, FEWEST), FEWEST - 1, -1):
        cut = {name: [short(value, most) for value in table[name].fillna("")] for name in names}
        text = table.assign(**cut).to_string(index=False, float_format="{:.4f}".format, na_rep="")
        if text.index("\n") <= shutil.get_terminal_size((100, 24)).columns:
            break
    return text


@command(*opt.READING, *opt.PRINTING)
def limit(
    run: Run,
    source: Annotated[
        Path, argument("SOURCE", "A model (--save), or a table to fit (with --label).")
    ],
    plot: Annotated[File, option("FILE.png", "Draw the curve (.png, .svg or .pdf).")] = None,
    seed: opt.Seed = 0,
) -> None:
    """What would twice the rows, or unlimited ones, leave? How good could it get?

    Reads the learning curve that `fit` stored with the model: how often an input would get another label, from models
    trained on an eighth, a quarter, half and all of the rows, and where that goes. Of a table it fits a model first.

    **Examples**

    - `collidescope limit model.collide`
    - `collidescope limit model.collide --plot curve.png`
    - `collidescope limit table.csv --label income --json`
    """
    from collidescope._text import headline
    from collidescope.trust import learning_curve, limit_of

    run.start(source, outputs=(plot,))
    if run.label is None:
        model = opt.load(source)
    else:
        rows = run.rows(source)
        note(*rows.notes)
        with notes_as_they_come():
            model = cs.TableClassifier(random_state=seed, verbose=int(not run.quiet)).fit(
                rows.X, rows.y
            )
    found = limit_of(model)
    if found is None:
        rest = (
            "(collidescope fit TABLE --label COLUMN --save model.collide), or a table with --label"
        )
        raise ValueError(
            f"{source.name} holds no limit: it takes a model that was fitted with one {rest}"
        )
    curve, said = learning_curve(found), headline(model.collision_matrix_, found)
    sizes = curve.frame.assign(rows=curve.frame["rows"].round().astype(int))
    numbers = sizes.to_string(index=False, float_format="{:.4f}".format)
    words = "\n".join([*said, f"\n{numbers}\n\nVerdict: {curve.words}."])
    draw: Any = cs.LimitDisplay.from_limit(found).plot
    drawn = "curve", plot, lambda path: draw().figure_.savefig(path)
    more = {"verdict": curve.verdict, "headline": said, "doubled": curve.doubled}
    run.tell(words, found.to_dict() | more, drawn)


@command(*opt.READING, "title", *opt.PRINTING, report=opt.PAGE)
def report(
    run: Run,
    source: Annotated[
        Path, argument("SOURCE", "A model (--save), a matrix (--matrix) or a summary (--json).")
    ],
    table: Annotated[
        File, option("TABLE", "Labelled rows that the model has not seen: adds rows to look at.")
    ] = None,
) -> None:
    """Write the report of something that was estimated before: one page that works offline.

    **Examples**

    - `collidescope report matrix.json`
    - `collidescope report summary.json --out collisions.html`
    - `collidescope report model.collide --table test.csv --label income`
    """
    run.start(source, table)
    found = opt.load(source)
    if table is not None and not hasattr(found, "predict_proba"):
        raise ValueError(
            f"--table needs a model, and {source.name} is none: leave it out, or give a file of --save"
        )
    notes = list(getattr(found, "notes_", ()))
    if isinstance(found, dict):
        summary = found | ({} if run.title is None else {"title": run.title})
    elif table is None:
        about = run.about("report", source, None, saved=source)
        summary = cs.summarise(found, title=run.title, notes=notes, about=about)
    else:
        rows = run.scored(table, found)
        asked = copy(found)  # about these rows, in place of its own
        asked.posteriors_, asked.row_hashes_ = rows.P, None
        about = run.about("report", table, rows.label, saved=source)
        summary = cs.summarise(
            asked, rows.X, rows.y, title=run.title, notes=[*rows.notes, *notes], about=about
        )
    run.tell(None, summary)


def _fail(low: float, above: float | None, what: str) -> None:
    if above is not None and low > above:
        note(f"{what} is above {above:g} beyond chance (at least {low:.4f})")
        raise typer.Exit(ABOVE)


@decision
def audit(
    run: Run,
    source: Annotated[
        Path, argument("MODEL_OR_TABLE", "A model and a TABLE, or a table with probabilities.")
    ],
    table: Annotated[File, argument("TABLE", "Labelled rows, where a model is given.")] = None,
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
    run.start(source, table)
    rows, said = run.scored(table or source, source if table else None, predicted).predictions(
        predicted
    )
    found = cs.audit(rows.P, y_true=rows.y, y_pred=said, classes=rows.classes, limit=rows.limit)
    run.answer(found, rows, y_pred=said)  # the report has a place for an audit
    _fail(found.fixable_interval[0], fail_above, "the fixable error")


@decision
def rows(
    run: Run,
    table: opt.Table,
    model: Model = None,
    kind: Annotated[str, option("KIND", "ambiguous, suspect, or both.")] = "both",
    by: Annotated[str, option("ORDER", "entropy, margin, or label (suspects first).")] = "entropy",
    top: Annotated[int | None, option("N", "Only the first N.", min=1)] = None,
) -> None:
    """Which rows are ambiguous, and which labels look wrong? All of them, with their numbers.

    **Examples**

    - `collidescope rows heldout.csv --label income --kind suspect --out suspects.csv`
    - `collidescope rows table.csv --model model.collide --out rows.parquet`
    """
    from collidescope._checks import check_choice
    from collidescope.applications._inputs import plain

    check_choice(kind, ["ambiguous", "suspect", "both"], "--kind")
    rows = run.start(table, model).scored(table, model)
    found = cs.ambiguous(rows.P, y=rows.y, classes=rows.classes, by=by).rename(
        columns={"index": "row"}
    )
    wanted = found["kind"] != "clear" if kind == "both" else found["kind"].str.startswith(kind)
    found = found[wanted][:top].reset_index(drop=True)
    lines = found.join(rows.X.iloc[found["row"]].add_prefix("x_").reset_index(drop=True))
    lines["row"] = found["row"] = rows.numbers[found["row"]]
    note(*rows.notes)
    run.tell(
        None,
        {"rows": plain(found), "notes": rows.notes},
        table=lines,
        page=lambda: run.summary(rows),
    )


@decision
def columns(
    run: Run,
    table: opt.Table,
    unit: Annotated[
        Columns, option("NAME=A,B", "Columns that are judged together. Repeat for more.")
    ] = None,
    cost: Annotated[Columns, option("COLUMN=X", "What a column costs. Repeat for more.")] = None,
    cluster: Cluster = None,
    budget: Annotated[int, option("N", "Cross-fits at most.", min=5)] = 51,
    sample: opt.Sample = 10_000,
    seed: opt.Seed = 0,
) -> None:
    """Which column tells which classes apart? What is it worth per unit of its cost?

    **Examples**

    - `collidescope columns table.csv --label income`
    - `collidescope columns table.csv --label outcome --unit "lab=na,k,ca" --cost lab=30 --cost age=0.1`
    """
    rows = run.start(table).rows(table).sampled(sample, seed)
    costs = _pairs(cost, "--cost", float)
    rows, together = rows.take(cluster, "--cluster")
    units = _pairs(unit, "--unit", lambda text: [part.strip() for part in text.split(",")])
    if units:
        used = {part for parts in units.values() for part in parts}
        units |= {str(name): [str(name)] for name in rows.X.columns if name not in used}
    options: dict[str, Any] = {
        "budget": budget,
        "random_state": seed,
        "verbose": int(not run.quiet),
        "costs": costs,
    }
    found = cs.column_value(None, rows.X, rows.y, **options, columns=units or None, groups=together)
    run.answer(found, rows, source=found.matrix, sections=[found])


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


@decision
def groups(
    run: Run,
    table: opt.Table,
    by: Annotated[Column, option("COLUMN", "The subgroups: hospital, region, year.")] = None,
    cluster: Cluster = None,
    model: Model = None,
) -> None:
    """For whom do the classes collide? PBER by subgroup, and which differ from the rest.

    **Example**

    - `collidescope groups heldout.csv --label outcome --by hospital`
    """
    rows = run.start(table, model).scored(table, model)
    own, together = rows.column(by, "--by").astype(str), rows.words(cluster, "--cluster")
    found = cs.collisions_by(rows.P, rows.y, own, groups=together, classes=rows.classes)
    run.answer(found, rows, sections=[found])


@decision
def ceilings(
    run: Run,
    table: opt.Table,
    predicted: Predicted = None,
    model: Model = None,
    cluster: Cluster = None,
    cost: Annotated[
        File, option("FILE.csv", "Costs: a row per true class, a column per decision.")
    ] = None,
) -> None:
    """What is the best possible value of your metric: accuracy, F1, AUC, log loss, cost?

    **Example**

    - `collidescope ceilings heldout.csv --label income --predicted yhat`
    """
    import pandas as pd

    from collidescope.tables.encoding import listed

    rows, said = run.start(table, model, cost).scored(table, model, predicted), None
    if predicted is not None:
        rows, said = rows.predictions(predicted)
    costs: Any = None
    if cost is not None:
        frame = pd.read_csv(cost, index_col=0).rename(index=str, columns=str)
        names = [str(name) for name in rows.classes]
        if missing := [
            name for name in names if name not in frame.index or name not in frame.columns
        ]:
            need = f"it needs a row and a column for {listed(names)}"
            raise ValueError(f"{cost.name} lacks class {missing[0]!r}: {need}")
        costs = frame.loc[names, names].to_numpy()
    options = {
        "limit": rows.limit,
        "classes": rows.classes,
        "groups": rows.words(cluster, "--cluster"),
    }
    found = cs.ceilings(rows.P, rows.y, y_pred=said, cost=costs, **options)
    run.answer(found, rows, sections=[found])


@decision
def compare(
    run: Run,
    before: Annotated[Path, argument("BEFORE", "A table of held-out probabilities and labels.")],
    after: Annotated[Path, argument("AFTER", "Another, of a later fit or a later period.")],
    key: Annotated[
        Column, option("COLUMN", "Rows with the same value are the same: paired.", "--id")
    ] = None,
    fail_above: FailAbove = None,
) -> None:
    """Did collisions change between two fits, or two periods?

    **Examples**

    - `collidescope compare january.csv june.csv --label income`
    - `collidescope compare old.csv new.csv --label income --id customer --fail-above 0.01`
    """
    from collidescope.applications import collision_change

    run.start(before, after)
    first, second = map(run.scored, (before, after))
    if [str(name) for name in first.classes] != [str(name) for name in second.classes]:
        raise ValueError(
            f"{before.name} has classes {first.classes}, {after.name} has {second.classes}"
        )
    second.notes[:0] = first.notes
    scored: tuple[Any, ...] = first.P, first.y, second.P, second.y
    if key is not None:
        i, j = _paired(first, second, key)
        scored = first.P[i], first.y[i], second.P[j], None
    found = collision_change(*scored, classes=first.classes)
    run.answer(found, second, sections=[found])
    _fail(found.interval[0], fail_above, "the rise of PBER")


def _paired(first: Rows, second: Rows, key: str) -> tuple[Any, Any]:
    import pandas as pd

    a, b = (pd.Index(rows.column(key, "--id")) for rows in (first, second))
    if not (a.is_unique and b.is_unique):
        raise ValueError(f"--id {key!r} must name every row once")
    shared = a.intersection(b)
    if len(shared) < 2:
        raise ValueError(f"{first.table.name} and {second.table.name} share no rows by {key!r}")
    if len(shared) < max(len(a), len(b)):
        second.notes.append(f"{len(shared):,} rows are in both ({len(a):,} and {len(b):,})")
    i, j = a.get_indexer(shared), b.get_indexer(shared)
    if changed := int((first.y[i] != second.y[j]).sum()):
        raise ValueError(f"{changed} rows with the same {key!r} have another label")
    return i, j


@decision
def split(run: Run, table: opt.Table, model: Model = None, seed: opt.Seed = 0) -> None:
    """Which classes look like two: separate groups of inputs that collide with different classes?

    **Example**

    - `collidescope split heldout.csv --label species`
    """
    rows = run.start(table, model).scored(table, model)
    found = cs.split_candidates(rows.P, rows.y, classes=rows.classes, random_state=seed)
    run.answer(found, rows, sections=[found])
