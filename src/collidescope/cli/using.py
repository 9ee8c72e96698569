"""What a saved model, a matrix or a table of posteriors is for: the next decision.

Posteriors come from a model file and a table of raw rows, or from a table with a column of
probabilities per class.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import collidescope as cs
from collidescope.cli import _run as opt
from collidescope.cli._console import note, notes_as_they_come, say
from collidescope.cli._run import (
    Column,
    Columns,
    File,
    Output,
    argument,
    command,
    option,
)

if TYPE_CHECKING:
    import pandas as pd

    from collidescope._checks import IntArray
    from collidescope.applications._inputs import Record
    from collidescope.applications.consolidation import ConsolidationPlan
    from collidescope.classifier import CollisionClassifier
    from collidescope.cli._inputs import Rows, Run
    from collidescope.matrix import CollisionMatrix

Model = Annotated[
    File,
    option(
        "MODEL",
        "A model that `fit … --save` wrote, to score the raw rows of the table.",
        "--model",
        "-m",
    ),
]
Predicted = Annotated[
    Column,
    option(
        "COLUMN",
        "The column that holds the predictions of your classifier.",
        "--predicted",
        "-p",
    ),
]
FailAbove = Annotated[
    float | None,
    option("X", "Exit with code 3 if the number is above X beyond chance (for CI)."),
]
Cluster = Annotated[
    Column,
    option(
        "COLUMN",
        "Rows with the same value belong together: intervals count groups, not rows.",
    ),
]
#: A command that answers a question about labelled rows.
decision = command(*opt.READING, "out", "report", "title", *opt.PRINTING)


@command("out", *opt.PRINTING, *opt.READING[1:])
def predict(
    run: Run,
    model: Annotated[
        Path,
        argument("MODEL", "A file that `collidescope fit … --save` has written."),
    ],
    table: opt.TableOrImages,
    copied: Annotated[
        Columns,
        option(
            "COLUMN",
            "Copy a column of the table, such as an id. Repeat for more.",
            "--with",
        ),
    ] = None,
    skip_bad: Annotated[
        bool,
        option(
            None,
            "Skip files that cannot be read as images, with a warning.",
            "--skip-bad",
        ),
    ] = False,
) -> None:
    """How likely is each class for new rows?

    Takes raw rows with the columns that the model was fitted on (others are ignored) and writes for
    each row its number from 0, the most likely class, and a column `p_CLASS` of every class: as CSV
    to standard output, or to `--out`. Levels that training did not have and missing cells are fine,
    and counted. For a model of images give a folder, with or without subfolders.

    **Examples**

    - `collidescope predict model.collide new.csv --out posteriors.csv`
    - `collidescope predict photos.collide new-photos/ --out posteriors.csv`
    - `collidescope predict model.collide new.parquet --with customer_id > posteriors.csv`
    """
    from collidescope.cli._inputs import posteriors
    from collidescope.tables.cells import check_columns

    run.start(model, table)
    fitted = opt.load_model(model)
    before = None
    of_images = len(fitted._ensemble.row_shape) == 3
    if table.is_dir() or of_images:
        from collidescope.cli.images import predict_files

        before, P, notes = predict_files(fitted, table, skip_bad)
    else:
        X, notes = run.raw_rows(fitted, table)
        check_columns(X, copied or ())
        note(*notes)
        raw = _without_label(fitted, X)
        P, met = posteriors(fitted, raw, held_out=False)
        notes += [*met, *_training_rows(fitted, raw)]
        note(*notes)
        if copied:
            before = X[copied]
    found = opt.posterior_table(P, fitted.classes_, range(len(P)), before)
    data = {
        "classes": fitted.classes_.tolist(),
        "predicted": found["predicted"].tolist(),
        "posteriors": P,
        "notes": notes,
    }
    run.tell(None, data, table=found)


def _without_label(fitted: CollisionClassifier, X: pd.DataFrame) -> pd.DataFrame:
    """New rows may hold the label, which is no feature."""
    label = getattr(fitted, "label_", None)
    used = getattr(getattr(fitted, "encoder_", None), "types", ())
    if label is None or label in used:
        return X
    return X.drop(columns=label, errors="ignore")


def _training_rows(fitted: CollisionClassifier, X: pd.DataFrame) -> list[str]:
    """A warning about rows that the model has seen: it is overconfident on them."""
    import numpy as np

    from collidescope._rows import row_hashes

    trained = getattr(fitted, "row_hashes_", None)
    if trained is None or not hasattr(fitted, "encode"):
        return []
    with notes_as_they_come():
        hashes = row_hashes(fitted.encode(X))
    seen = int(np.isin(hashes, trained).sum())
    said = (
        f"{seen:,} of {len(X):,} rows are training rows of the model, which is "
        "overconfident on them: `fit … --out` writes held-out posteriors"
    )
    return [said] if seen else []


@command(*opt.READING, "matrix", "out", *opt.PRINTING)
def merge(
    run: Run,
    source: Annotated[
        Path, argument("SOURCE", "A matrix (--matrix) or a model (--save).")
    ],
    groups: Annotated[
        int | None,
        option(None, "Merge until this many groups are left.", min=2),
    ] = None,
    max_pber: Annotated[
        float | None,
        option(
            None,
            "Merge until at most this share of inputs would change group if labelled again: 0.05 "
            "is 5%.",
        ),
    ] = None,
    max_group_size: Annotated[
        int | None,
        option("N", "The most classes that a group may have.", min=2),
    ] = None,
    balance: Annotated[
        float,
        option("X", "0 by gain alone, 1 for groups of like size.", min=0, max=1),
    ] = 0.0,
    together: Annotated[
        Columns,
        option("A,B", "Classes that must be in one group. Repeat for more."),
    ] = None,
    apart: Annotated[
        Columns,
        option("A,B", "Classes that must not be in one group. Repeat for more."),
    ] = None,
    optimal: Annotated[
        bool,
        option(None, "Look at every grouping (up to 10 classes).", "--optimal"),
    ] = False,
    apply_to: Annotated[
        File,
        option("TABLE", "Write this table with merged classes to --out.", "--apply"),
    ] = None,
    mapping: Annotated[
        File,
        option("FILE", "Write which class is in which group (.json or .csv)."),
    ] = None,
) -> None:
    """Which classes to merge, and what would it buy?

    Merging is exact: the matrix of merged classes follows from S, and nothing is trained again.
    Without `--groups` and `--max-pber` every step is shown: choose from them. With `--apply` the
    labels of a table become the groups; the column `… (before)` keeps them. Of a model that was
    fitted with `--ordered`, only neighbouring classes are merged.

    **Examples**

    - `collidescope merge matrix.json`
    - `collidescope merge matrix.json --max-pber 0.05 --mapping groups.json`
    - `collidescope merge model.collide --groups 4 --apart cat,dog --json`
    - `collidescope merge matrix.json --groups 4 --apply table.csv --label income --out merged.csv`
    """
    run.start(source, apply_to, outputs=(mapping,))
    chosen = groups is not None or max_pber is not None
    _check_apply(run, apply_to, mapping, chosen)
    loaded = opt.load(source)
    cm = opt.matrix_of(loaded, source)
    try:
        plan = cs.consolidate(
            cm,
            groups,
            max_pber=max_pber,
            max_group_size=max_group_size,
            balance=balance,
            must_merge=[_names(group) for group in together or ()],
            cannot_merge=[_names(group) for group in apart or ()],
            ordered=getattr(loaded, "class_order_", None) or False,
            method="optimal" if optimal else "greedy",
        )
    except ValueError as error:
        raise ValueError(_in_options(str(error))) from None
    group_of = _mapping(plan)
    table = None
    if apply_to is not None:
        label = run.label or getattr(loaded, "label_", None)
        table = _with_groups(run, apply_to, label, group_of)
    words = _steps(plan, optimal)
    if chosen:
        words = f"{plan}\n\n{words}"
    written = Output("mapping", mapping, lambda path: _write_mapping(path, group_of))
    run.tell(words, _plan_data(plan, cm), written, cm=plan.matrix, table=table)
    if not chosen and not run.as_json:
        say("Choose with --groups N or --max-pber 0.05.", "dim")


def _check_apply(
    run: Run, apply_to: Path | None, mapping: Path | None, chosen: bool
) -> None:
    if (apply_to is None) != (run.out is None):
        raise ValueError(
            "--apply TABLE and --out FILE go together: rows read, and rows written"
        )
    if (apply_to is not None or mapping is not None) and not chosen:
        raise ValueError("choose a merge first, with --groups N or --max-pber 0.05")


def _in_options(words: str) -> str:
    """A message of consolidate, with options in the place of arguments."""
    flags = {
        "must_merge": "--together",
        "cannot_merge": "--apart",
        "max_pber": "--max-pber",
        "n_groups": "--groups",
        'method="optimal"': "--optimal",
        "method='optimal'": "--optimal",
    }
    for name, flag in flags.items():
        words = words.replace(name, flag)
    return words


def _mapping(plan: ConsolidationPlan) -> dict[str, str]:
    """The name of the group of every class."""
    from collidescope.tables.cells import as_word

    return {as_word(name): as_word(group) for name, group in plan.mapping.items()}


def _column_of_classes(frame: pd.DataFrame, classes: set[str]) -> str | None:
    """The only column whose values are all classes, if there is one."""
    from collidescope.tables.cells import as_word

    found = []
    for name in frame.columns:
        values = {as_word(value) for value in frame[name].dropna().unique()}
        if values and values <= classes:
            found.append(name)
    return str(found[0]) if len(found) == 1 else None


def _with_groups(
    run: Run, path: Path, label: str | None, mapping: dict[str, str]
) -> pd.DataFrame:
    """The table with groups for labels; rows without a label stay without."""
    import numpy as np
    import pandas as pd

    from collidescope.cli._inputs import match_labels

    frame = run.read(path).frame
    if label is None:
        label = _column_of_classes(frame, set(mapping))
    name = run.column(list(frame.columns), label, path)
    said, labelled = match_labels(frame[name], list(mapping), "label")
    merged = np.full(len(frame), None, dtype=object)
    merged[labelled] = [mapping[word] for word in said.tolist()]
    before = frame[name].rename(f"{name} (before)")
    return pd.concat([frame.assign(**{name: merged}), before], axis=1)


def _write_mapping(path: Path, mapping: dict[str, str]) -> None:
    import pandas as pd

    from collidescope._store import write_bytes

    if path.suffix.lower() == ".json":
        write_bytes(path, json.dumps(mapping, indent=1, ensure_ascii=False).encode())
    else:
        opt.write_table(pd.DataFrame(mapping.items(), columns=["class", "group"]), path)


def _plan_data(plan: ConsolidationPlan, cm: CollisionMatrix) -> Record:
    from collidescope.applications._inputs import plain

    return {
        "groups": plan.groups,
        "names": plan.matrix.classes,
        "mapping": _mapping(plan),
        "pber": plan.matrix.pber,
        "pber_before": cm.pber,
        "path": plain(plan.path.drop(columns=["step", "chance"])),
    }


def _steps(plan: ConsolidationPlan, optimal: bool) -> str:
    """Every step as a table."""
    numbers = ["pber", "pber_low", "pber_high"]
    if optimal:
        steps = _fitting(plan.path[["n_groups", *numbers]], [])
        return f"The best grouping of each size:\n{steps}"
    names = ["first", "second"]
    steps = _fitting(plan.path[["n_groups", *names, *numbers]], names)
    return f"Step by step, the two groups that collide most first:\n{steps}"


def _fitting(table: pd.DataFrame, names: list[str], fewest: int = 10) -> str:
    """A table no wider than the terminal: the columns ``names``, of class names, are cut."""
    from collidescope._text import short
    from collidescope.applications._inputs import AS_TEXT

    width = shutil.get_terminal_size((100, 24)).columns
    lengths = [len(str(value)) for name in names for value in table[name]]
    text = ""
    for most in range(max([fewest, *lengths]), fewest - 1, -1):
        cut = {
            name: [short(value, most) for value in table[name].fillna("")]
            for name in names
        }
        text = str(table.assign(**cut).to_string(**AS_TEXT))
        if text.index("\n") <= width:
            break
    return text


@command(*opt.READING, *opt.PRINTING)
def limit(
    run: Run,
    source: Annotated[
        Path,
        argument("SOURCE", "A model (--save), or a table to fit (with --label)."),
    ],
    plot: Annotated[
        File, option("FILE.png", "Draw the curve (.png, .svg or .pdf).")
    ] = None,
    target: Annotated[
        str | None,
        option("X", "How many rows would bring the PBER down to X, such as 5%?"),
    ] = None,
    seed: opt.Seed = 0,
) -> None:
    """What would twice the rows, or unlimited ones, leave? How good could it get?

    Reads the learning curve that `fit` stored with the model: how often an input would get another
    label, by models trained on an eighth, a quarter, half and all of the rows, and the continuation
    of that curve. Given a table, it fits a model first.

    **Examples**

    - `collidescope limit model.collide`
    - `collidescope limit model.collide --plot curve.png`
    - `collidescope limit model.collide --target 5%`
    - `collidescope limit table.csv --label income --json`
    """
    from collidescope._text import headline
    from collidescope.trust import learning_curve, limit_of

    run.start(source, outputs=(plot,))
    if run.label is None:
        model = opt.load(source)
    else:
        model = _fitted(run, run.rows(source), seed)
    found = limit_of(model)
    if found is None:
        raise ValueError(
            f"{source.name} holds no learning curve: give a model that was fitted with one "
            "(fit TABLE --label COLUMN --save model.collide, without --no-limit), or a table "
            "with --label"
        )
    curve = learning_curve(found)
    said = headline(model.collision_matrix_, found)
    sizes = curve.frame.assign(rows=curve.frame["rows"].round().astype(int))
    numbers = sizes.to_string(index=False, float_format="{:.4f}".format)
    words = "\n".join([*said, f"\n{numbers}\n\nVerdict: {curve.words}."])
    data = found.to_dict()
    data |= {"verdict": curve.verdict, "headline": said, "doubled": curve.doubled}
    if target is not None:
        needed = found.rows_needed(_share(target, "--target"))
        words += f"\n{needed}"
        ends = {"low": needed.low, "likely": needed.likely, "high": needed.high}
        reachable = {name: rows for name, rows in ends.items() if math.isfinite(rows)}
        stated = {"target": needed.target, "words": str(needed)}
        data["rows_needed"] = stated | reachable
    drawn = _picture(
        "curve", plot, lambda: cs.LimitDisplay.from_limit(found).plot().ax_
    )
    run.tell(words, data, drawn)


def _picture(what: str, path: Path | None, plot: Callable[[], Any]) -> Output:
    """What writes the figure of the axes that ``plot`` draws."""
    return Output(what, path, lambda file: plot().figure.savefig(file))


def _share(text: str, option: str) -> float:
    """A share, as 0.05 or 5%."""
    number = text.strip().removesuffix("%")
    try:
        share = float(number)
    except ValueError:
        raise ValueError(
            f"{option} takes a share such as 5% or 0.05, got {text!r}"
        ) from None
    if number != text.strip():
        share /= 100
    if not 0 < share < 1:
        raise ValueError(
            f"{option} must be between 0 and 1 (0% and 100%), got {text!r}"
        )
    return share


def _fitted(run: Run, rows: Rows, seed: int) -> Any:
    note(*rows.notes)
    with notes_as_they_come():
        model = cs.TableClassifier(random_state=seed, verbose=int(not run.quiet))
        return model.fit(rows.X, rows.y)


@command(*opt.READING, "title", *opt.PRINTING, report=opt.PAGE)
def report(
    run: Run,
    source: Annotated[
        Path,
        argument(
            "SOURCE", "A model (--save), a matrix (--matrix) or a summary (--json)."
        ),
    ],
    table: Annotated[
        File,
        option(
            "TABLE", "Labelled rows that the model has not seen: adds rows to look at."
        ),
    ] = None,
) -> None:
    """Write the report of something that was estimated before: one page that works offline.

    **Examples**

    - `collidescope report matrix.json`
    - `collidescope report summary.json --out collisions.html`
    - `collidescope report model.collide --table test.csv --label income`
    """
    from collidescope.cli._inputs import summarised

    run.start(source, table)
    found = opt.load(source)
    if table is not None:
        summary = _report_of_rows(run, source, found, table)
    elif isinstance(found, dict):
        summary = found
        if run.title is not None:
            summary["title"] = run.title
    else:
        about = run.about(source.name, None, saved=source)
        notes = list(getattr(found, "notes_", ()))
        summary = summarised(found, title=run.title, notes=notes, about=about)
    run.tell(None, summary)


def _report_of_rows(run: Run, source: Path, found: Any, table: Path) -> Record:
    from collidescope.cli._inputs import summarised

    if not hasattr(found, "predict_proba"):
        raise ValueError(
            f"--table needs a model, and {source.name} is none: leave it out, or give "
            "a file of --save"
        )
    rows = run.scored_by(found, table)
    return summarised(
        _asked_about(rows, found),
        rows.X,
        rows.y,
        title=run.title,
        notes=[*rows.notes, *getattr(found, "notes_", ())],
        about=run.about(table.name, rows.label, saved=source),
    )


def _asked_about(rows: Rows, fitted: Any) -> Any:
    """The model with the posteriors of these rows, in place of its own."""
    from collidescope.equations.posterior import shift_priors

    asked = copy(fitted)
    own = fitted.row_priors_  # at which rows are scored
    asked.posteriors_ = shift_priors(rows.P, own, fitted.priors_)
    asked.row_hashes_ = None
    asked.groups_ = None
    return asked


def _fail(low: float, above: float | None, what: str) -> None:
    """Exit code 3, neither an error nor bad input, where ``--fail-above`` fails."""
    if above is not None and low > above:
        note(f"{what} is above {above:g} beyond chance (at least {low:.4f})")
        raise typer.Exit(3)


@decision
def audit(
    run: Run,
    source: Annotated[
        Path,
        argument(
            "MODEL_OR_TABLE", "A model and a TABLE, or a table with probabilities."
        ),
    ],
    table: Annotated[
        File, argument("TABLE", "Labelled rows, where a model is given.")
    ] = None,
    predicted: Predicted = None,
    cluster: Cluster = None,
    fail_above: FailAbove = None,
) -> None:
    """Is your classifier at the ceiling? Which of its errors could a better model avoid?

    Takes labelled rows that your classifier was not trained on, with a column of its predictions,
    and splits its errors into fixable, not learned yet and inherent, class by class. The second
    opinion is a model, or columns of held-out probabilities (`p_CLASS`) in the same table. Rows
    that the model was fitted on get held-out probabilities.

    **Examples**

    - `collidescope audit model.collide test.csv --label income --predicted yhat`
    - `collidescope audit heldout.csv --label income --predicted yhat --fail-above 0.05`
    """
    run.start(source, table)
    if table is None:
        scored = run.scored(source)
    else:
        scored = run.scored(table, source, predicted)
    rows, said = scored.predictions(predicted)
    together = rows.clusters(cluster)
    found = cs.audit(
        rows.P,
        y_true=rows.y,
        y_pred=said,
        groups=together,
        classes=rows.classes,
        limit=rows.limit,
    )
    # The report has a place for an audit.
    run.answer(found, rows, y_pred=said, sections=(), groups=together)
    _fail(found.fixable_interval[0], fail_above, "the fixable error")


@decision
def rows(
    run: Run,
    table: opt.Table,
    model: Model = None,
    kind: Annotated[str, option("KIND", "ambiguous, suspect, or both.")] = "both",
    by: Annotated[
        str, option("ORDER", "entropy, margin, or label (suspects first).")
    ] = "entropy",
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
    found = cs.ambiguous(rows.P, y=rows.y, classes=rows.classes, by=by)
    found = found.rename(columns={"index": "row"})
    wanted = found["kind"] != "clear"
    if kind != "both":
        wanted = found["kind"].str.startswith(kind)
    found = found[wanted][:top].reset_index(drop=True)
    inputs = rows.X.iloc[found["row"]].add_prefix("x_").reset_index(drop=True)
    found["row"] = rows.numbers[found["row"]]
    note(*rows.notes)
    data = {"rows": plain(found), "notes": rows.notes}
    run.tell(None, data, table=found.join(inputs), page=lambda: run.summary(rows))


@decision
def columns(
    run: Run,
    table: opt.Table,
    unit: Annotated[
        Columns,
        option("NAME=A,B", "Columns that are judged together. Repeat for more."),
    ] = None,
    cost: Annotated[
        Columns, option("COLUMN=X", "What a column costs. Repeat for more.")
    ] = None,
    cluster: Cluster = None,
    budget: Annotated[int, option("N", "The most cross-fits to run.", min=5)] = 51,
    sample: opt.Sample = 10_000,
    seed: opt.Seed = 0,
) -> None:
    """Which column tells which classes apart? What is it worth per unit of its cost?

    **Examples**

    - `collidescope columns table.csv --label income`
    - `collidescope columns visits.csv --label outcome --unit "lab=na,k,ca" --cost lab=30`
    """
    rows = run.start(table).rows(table).sampled(sample, seed)
    costs = _pairs(cost, "--cost", float)
    rows, together = rows.take(cluster, "--cluster")
    found = cs.column_value(
        None,
        rows.X,
        rows.y,
        columns=_units(unit, rows),
        costs=costs,
        groups=together,
        budget=budget,
        random_state=seed,
        verbose=int(not run.quiet),
    )
    run.answer(found, rows, source=found.matrix)


@decision
def plan(
    run: Run,
    source: Annotated[
        Path,
        argument("MODEL_OR_TABLE", "A model (--save) and a TABLE, or a table to fit."),
    ],
    table: Annotated[
        File, argument("TABLE", "Labelled rows, where a model is given.")
    ] = None,
    price: Annotated[
        Columns,
        option(
            "NAME=X",
            "What one more row, checking a label, a vote or merging two classes costs (row, label, "
            "vote, merge), or having a column (its name). Repeat for more.",
        ),
    ] = None,
    budget: Annotated[
        float | None,
        option(
            "X",
            "Money for rows, labels or votes.  [default: what doubling the rows costs]",
        ),
    ] = None,
    plot: Annotated[File, option("FILE.png", "Draw it (.png, .svg or .pdf).")] = None,
    mapping: Annotated[
        File,
        option("FILE", "Write which class the best merge puts where (.json or .csv)."),
    ] = None,
    seed: opt.Seed = 0,
) -> None:
    """What to do with the next euro: more rows, checked labels, columns, or fewer classes?

    For each option: by how much the PBER would fall, with an interval, and per unit of money.
    Options without a price are shown without a rank. Columns are judged where one has a price: that
    takes as long as `collidescope columns`.

    **Examples**

    - `collidescope plan table.csv --label income --price row=0.1 --price label=0.5`
    - `collidescope plan model.collide table.csv --price row=0.1 --price age=20 --budget 500`
    """
    from collidescope.applications.plan import plan as spending_plan
    from collidescope.tables.cells import listed

    run.start(source, table, outputs=(plot, mapping))
    prices = _pairs(price, "--price", float)
    model: Any
    if table is None:
        rows = run.rows(source)
        model = _fitted(run, rows, seed)
    else:
        fitted = opt.load_model(source)
        rows = run.scored_by(fitted, table)
        model = _asked_about(rows, fitted)
    kinds = ("row", "label", "vote", "merge")
    money: Record = {name: prices.pop(name) for name in kinds if name in prices}
    known = list(rows.X.columns)
    for name in prices:
        if name not in known:
            raise ValueError(
                f"--price takes {', '.join(kinds)} or a column ({listed(known)}), got "
                f"{name!r}"
            )
    X = None
    if prices:
        X = rows.X
        money["columns"] = prices
    found = spending_plan(model, X, rows.y, prices=money, budget=budget)
    drawn = _picture("picture", plot, found.plot)
    merges = Output("mapping", mapping, found.save_mapping)
    run.answer(found, rows, drawn, merges, source=model)


def _units(given: list[str] | None, rows: Rows) -> dict[str, list[str]] | None:
    """Columns that are judged together, and all others one by one."""
    units: dict[str, list[str]] = _pairs(given, "--unit", _names)
    if not units:
        return None
    used = {part for parts in units.values() for part in parts}
    alone = [str(name) for name in rows.X.columns if name not in used]
    return units | {name: [name] for name in alone}


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _pairs(given: list[str] | None, option: str, read: Callable[[str], Any]) -> Record:
    found = {}
    for text in given or []:
        name, equals, value = text.rpartition("=")
        if not equals:
            raise ValueError(f"{option} takes NAME=VALUE, got {value!r}")
        try:
            found[name.strip()] = read(value.strip())
        except ValueError:
            raise ValueError(
                f"{option} {name} must be a number, got {value!r}"
            ) from None
    return found


@decision
def groups(
    run: Run,
    table: opt.Table,
    by: Annotated[
        Column, option("COLUMN", "The subgroups: hospital, region, year.")
    ] = None,
    cluster: Cluster = None,
    model: Model = None,
) -> None:
    """For whom do the classes collide? PBER by subgroup, and which differ from the rest.

    Rows with an empty cell are the subgroup "(empty)".

    **Example**

    - `collidescope groups heldout.csv --label outcome --by hospital`
    """
    from collidescope.cli._inputs import group_names

    rows = run.start(table, model).scored(table, model)
    together = rows.clusters(cluster)
    found = cs.collisions_by(
        rows.P,
        rows.y,
        group_names(rows.column(by, "--by")),
        groups=together,
        classes=rows.classes,
    )
    run.answer(found, rows, groups=together)


@decision
def ceilings(
    run: Run,
    table: opt.Table,
    predicted: Predicted = None,
    model: Model = None,
    cluster: Cluster = None,
    cost: Annotated[
        File,
        option("FILE.csv", "Costs: a row per true class, a column per decision."),
    ] = None,
) -> None:
    """What is the best possible value of your metric: accuracy, F1, AUC, log loss, cost?

    **Example**

    - `collidescope ceilings heldout.csv --label income --predicted yhat`
    """
    rows = run.start(table, model, cost).scored(table, model, predicted)
    said = None
    if predicted is not None:
        rows, said = rows.predictions(predicted)
    together = rows.clusters(cluster)
    found = cs.ceilings(
        rows.P,
        rows.y,
        y_pred=said,
        cost=_costs(cost, rows.classes),
        limit=rows.limit,
        classes=rows.classes,
        groups=together,
    )
    run.answer(found, rows, groups=together)


def _costs(path: Path | None, classes: list[Any]) -> Any:
    """The cost of each decision (columns) for each true class (rows)."""
    import numpy as np

    if path is None:
        return None

    from collidescope.tables.cells import as_numbers, as_word, listed
    from collidescope.tables.reading import read_table

    frame = read_table(path).frame
    frame = frame.set_index(frame.columns[0]).rename(index=as_word, columns=as_word)
    names = [as_word(name) for name in classes]
    for name in names:
        if name not in frame.index or name not in frame.columns:
            raise ValueError(
                f"{path.name} lacks class {name!r}: it needs a row and a column for "
                f"{listed(names)}"
            )
    chosen = frame.loc[names, names]
    return np.column_stack([as_numbers(chosen[name]) for name in names])


@decision
def compare(
    run: Run,
    before: Annotated[
        Path, argument("BEFORE", "A table of held-out probabilities and labels.")
    ],
    after: Annotated[
        Path, argument("AFTER", "Another, of a later fit or a later period.")
    ],
    key: Annotated[
        Column,
        option("COLUMN", "Rows with the same value are the same: paired.", "--id"),
    ] = None,
    cluster: Cluster = None,
    fail_above: FailAbove = None,
) -> None:
    """Did collisions change between two fits, or two periods?

    **Examples**

    - `collidescope compare january.csv june.csv --label income`
    - `collidescope compare old.csv new.csv --label income --id customer --fail-above 0.01`
    """
    from collidescope.applications import collision_change

    run.start(before, after)
    first = run.scored(before)
    second = run.scored(after)
    classes = first.classes
    if [str(name) for name in classes] != [str(name) for name in second.classes]:
        raise ValueError(
            f"{before.name} has classes {classes}, {after.name} has {second.classes}"
        )
    second.notes[:0] = first.notes
    earlier = first.clusters(cluster)
    together = second.clusters(cluster)
    if key is None:
        found = collision_change(
            first.P,
            first.y,
            second.P,
            second.y,
            groups=earlier,
            groups_after=together,
            classes=classes,
        )
    else:
        i, j = _paired(first, second, key)
        same = None if earlier is None else earlier[i]
        found = collision_change(
            first.P[i], first.y[i], second.P[j], groups=same, classes=classes
        )
    run.answer(found, second, groups=together)
    _fail(found.interval[0], fail_above, "the rise of PBER")


def _paired(first: Rows, second: Rows, key: str) -> tuple[IntArray, IntArray]:
    """Places of the same rows in both tables."""
    import pandas as pd

    a = pd.Index(first.column(key, "--id"))
    b = pd.Index(second.column(key, "--id"))
    if not (a.is_unique and b.is_unique):
        raise ValueError(f"--id {key!r} must name every row once")
    shared = a.intersection(b)
    if len(shared) < 2:
        raise ValueError(
            f"{first.table.name} and {second.table.name} share no rows by {key!r}"
        )
    if len(shared) < max(len(a), len(b)):
        second.notes.append(
            f"{len(shared):,} rows are in both ({len(a):,} and {len(b):,})"
        )
    i = a.get_indexer(shared)
    j = b.get_indexer(shared)
    changed = (first.y[i] != second.y[j]).sum()
    if changed:
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
    run.answer(found, rows)
