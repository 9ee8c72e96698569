"""The commands that go on from a saved model or a matrix."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import collidescope as cs
from collidescope.cli import _run as opt
from collidescope.cli._console import note, notes_as_they_come, say
from collidescope.cli._run import (
    Columns,
    File,
    argument,
    command,
    option,
)

if TYPE_CHECKING:
    import pandas as pd

    from collidescope.applications._inputs import Record
    from collidescope.applications.consolidation import ConsolidationPlan
    from collidescope.classifier import CollisionClassifier
    from collidescope.cli._inputs import Run
    from collidescope.matrix import CollisionMatrix


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
    plan = cs.consolidate(
        cm,
        groups,
        max_pber=max_pber,
        max_group_size=max_group_size,
        balance=balance,
        must_merge=[opt.split_names(group) for group in together or ()],
        cannot_merge=[opt.split_names(group) for group in apart or ()],
        ordered=getattr(loaded, "class_order_", None) or False,
    )
    group_of = _mapping(plan)
    table = None
    if apply_to is not None:
        label = run.label or getattr(loaded, "label_", None)
        table = _with_groups(run, apply_to, label, group_of)
    names = ["first", "second"]
    shown = plan.path[["n_groups", *names, "pber", "pber_low", "pber_high"]]
    words = "Step by step, the two groups that collide most first:\n"
    words += _fitting(shown, names)
    if chosen:
        words = f"{plan}\n\n{words}"
    written = opt.written_mapping(mapping, group_of)
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


def _mapping(plan: ConsolidationPlan) -> dict[str, str]:
    """The name of the group of every class."""
    from collidescope.tables.cells import as_word

    return {as_word(name): as_word(group) for name, group in plan.mapping.items()}


def _with_groups(
    run: Run, path: Path, label: str | None, mapping: dict[str, str]
) -> pd.DataFrame:
    """The table with groups for labels; rows without a label stay without."""
    import numpy as np
    import pandas as pd

    from collidescope.cli._inputs import match_labels

    frame = run.read(path).frame
    name = run.column(list(frame.columns), label, path)
    said, labelled = match_labels(frame[name], list(mapping), "label")
    merged = np.full(len(frame), None, dtype=object)
    merged[labelled] = [mapping[word] for word in said.tolist()]
    before = frame[name].rename(f"{name} (before)")
    return pd.concat([frame.assign(**{name: merged}), before], axis=1)


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
        model = run.fitted(run.rows(source), seed)
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
        needed = found.rows_needed(_share(target))
        words += f"\n{needed}"
        ends = {"low": needed.low, "likely": needed.likely, "high": needed.high}
        reachable = {name: rows for name, rows in ends.items() if math.isfinite(rows)}
        stated = {"target": needed.target, "words": str(needed)}
        data["rows_needed"] = stated | reachable
    drawn = opt.picture(
        "curve", plot, lambda: cs.LimitDisplay.from_limit(found).plot().ax_
    )
    run.tell(words, data, drawn)


def _share(text: str) -> float:
    """The share that --target names, as 0.05 or 5%."""
    number = text.strip().removesuffix("%")
    try:
        share = float(number)
    except ValueError:
        raise ValueError(
            f"--target takes a share such as 5% or 0.05, got {text!r}"
        ) from None
    if number != text.strip():
        share /= 100
    if not 0 < share < 1:
        raise ValueError(
            f"--target must be between 0 and 1 (0% and 100%), got {text!r}"
        )
    return share


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
        rows.asked_of(found),
        rows.X,
        rows.y,
        title=run.title,
        notes=[*rows.notes, *getattr(found, "notes_", ())],
        about=run.about(table.name, rows.label, saved=source),
    )
