"""``predict``, ``merge``, ``limit`` and ``report``: what a saved model or matrix is for."""

from __future__ import annotations

import shlex
import shutil
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import collidescope as cs
from collidescope.cli import _run as opt
from collidescope.cli._console import note, notes_as_they_come, say
from collidescope.cli._run import command, option

if TYPE_CHECKING:
    import pandas as pd

    from collidescope.cli._inputs import Run

#: What the arguments of consolidate are called on the command line.
FLAGS = {"must_merge": "--together", "cannot_merge": "--apart", "max_pber": "--max-pber", "n_groups": "--groups"}
FLAGS |= {'method="optimal"': "--optimal", "method='optimal'": "--optimal"}
#: Characters of a class name that a narrow terminal leaves.
FEWEST = 10

MODEL = "A file that `collidescope fit … --save` has written."
WITH = "Copy a column of the table, such as an id. Repeat for more."
UNSEEN = "Labelled rows that the model has not seen: adds rows to look at."
MAX_PBER = "Merge until an input seen again changes group at most this often: 0.05 is 5%."
LIMIT = "A model (--save), or a table to fit (with --label)."
SOURCE = "A model (--save), a matrix (--matrix) or a summary (--json)."


@command("out", *opt.PRINTING, *opt.READING[1:])
def predict(
    run: Run,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help=MODEL)],
    table: opt.Table,
    copied: Annotated[opt.Columns, option("COLUMN", WITH, "--with")] = None,
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
    P, met = posteriors(fitted, X.drop(columns=[label] if label in X else []), held_out=False)
    found = opt.posterior_table(P, fitted.classes_, range(len(X)), X[copied] if copied else None)
    said = {"classes": fitted.classes_.tolist(), "predicted": found["predicted"].tolist()}
    words = opt.as_csv(found).removesuffix("\n") if run.out is None else None
    run.tell(words, said | {"posteriors": P, "notes": [*notes, *met]}, table=found)


@command("matrix", *opt.PRINTING)
def merge(
    run: Run,
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A matrix (--matrix) or a model (--save).")],
    groups: Annotated[int | None, option(None, "Merge until so many groups are left.", min=2)] = None,
    max_pber: Annotated[float | None, option(None, MAX_PBER)] = None,
    max_group_size: Annotated[int | None, option("N", "Most classes of a group.", min=2)] = None,
    balance: Annotated[float, option("X", "0 by gain alone, 1 for groups of like size.", min=0, max=1)] = 0.0,
    together: Annotated[opt.Columns, option("A,B", "Classes that must be in one group. Repeat for more.")] = None,
    apart: Annotated[opt.Columns, option("A,B", "Classes that must not be in one group. Repeat for more.")] = None,
    optimal: Annotated[bool, option(None, "Look at every grouping (up to 10 classes).", "--optimal")] = False,
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
    options: dict[str, Any] = {"max_pber": max_pber, "max_group_size": max_group_size, "balance": balance}
    for name, given in (("must_merge", together), ("cannot_merge", apart)):
        options[name] = [[own.strip() for own in group.split(",")] for group in given] if given else None
    try:
        plan = cs.consolidate(cm, groups, method="optimal" if optimal else "greedy", **options)
    except ValueError as error:
        words = str(error)
        for argument, flag in FLAGS.items():
            words = words.replace(argument, flag)
        raise ValueError(words) from None
    path = plan.path[["n_groups", "first", "second", "pber", "pber_low", "pber_high", "gain", "price"]]
    names = [] if optimal else ["first", "second"]
    chosen = groups is not None or max_pber is not None
    order = "The best grouping of each size:" if optimal else "Step by step, the two groups that collide most first:"
    steps = _fitting(path[["n_groups", *names, "pber", "pber_low", "pber_high"]], names)
    data = {"groups": plan.groups, "names": plan.matrix.classes, "pber": plan.matrix.pber, "pber_before": cm.pber}
    run.tell("\n".join([*[f"{plan}\n"] * chosen, order, steps]), data | {"path": plain(path)}, cm=plan.matrix)
    if not chosen and not run.as_json:
        say("Choose with --groups N or --max-pber 0.05.", "dim")


def _fitting(table: pd.DataFrame, names: list[str]) -> str:
    """A table as text no wider than the terminal: the columns ``names``, which hold class names, are cut."""
    from collidescope._text import short

    def text(longest: int) -> str:
        cut = {name: [short(value, longest) for value in table[name].fillna("")] for name in names}
        return str(table.assign(**cut).to_string(index=False, float_format="{:.4f}".format, na_rep=""))

    longest = max((len(str(value)) for name in names for value in table[name]), default=FEWEST)
    while longest > FEWEST and len(text(longest).splitlines()[0]) > shutil.get_terminal_size((100, 24)).columns:
        longest -= 1
    return text(longest)


@command(*opt.READING, *opt.PRINTING)
def limit(
    run: Run,
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help=LIMIT)],
    plot: Annotated[opt.File, option("FILE.png", "Draw the curve (.png, .svg or .pdf).")] = None,
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
    from collidescope.trust import learning_curve, limit_of

    run.start(source, outputs=(plot,))
    if run.label is None:
        model = opt.load(source)
    else:
        rows = run.rows(source)
        note(*rows.notes)
        with notes_as_they_come():
            model = cs.TableClassifier(random_state=seed, verbose=int(not run.quiet)).fit(rows.X, rows.y)
    found = limit_of(model)
    if found is None:
        rest = "(collidescope fit TABLE --label COLUMN --save model.collide), or a table with --label"
        raise ValueError(f"{source.name} holds no limit: it takes a model that was fitted with one {rest}")
    curve, said = learning_curve(found), headline(model.collision_matrix_, found)
    sizes = curve.frame.assign(rows=curve.frame["rows"].round().astype(int))
    numbers = sizes.to_string(index=False, float_format="{:.4f}".format)
    words = "\n".join([*said, f"\n{numbers}\n\nVerdict: {curve.verdict}."])

    def draw(path: Path) -> None:
        figure: Any = cs.LimitDisplay.from_limit(found).plot().figure_
        figure.savefig(path)

    run.tell(words, found.to_dict() | {"verdict": curve.verdict, "headline": said}, ("curve", plot, draw))


@command(*opt.READING, "title", *opt.PRINTING, report=opt.PAGE)
def report(
    run: Run,
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help=SOURCE)],
    table: Annotated[opt.File, option("TABLE", UNSEEN)] = None,
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
        raise ValueError(f"--table needs a model, and {source.name} is none: leave it out, or give a file of --save")
    notes = list(getattr(found, "notes_", ()))
    if isinstance(found, dict):
        summary = found | ({} if run.title is None else {"title": run.title})
    elif table is None:
        about = {"file": source.name, "command": f"collidescope report {shlex.quote(str(source))}", "saved": source}
        summary = cs.summarise(found, title=run.title, notes=notes, about=about)
    else:
        rows = run.scored(table, found)
        asked = copy(found)  # about these rows, in place of its own
        asked.posteriors_ = rows.P
        about = run.about("report", table, rows.label, saved=source)
        summary = cs.summarise(asked, rows.X, rows.y, title=run.title, notes=[*rows.notes, *notes], about=about)
    run.tell(None, summary)
