"""``collidescope predict`` and ``collidescope audit``: what a saved model says about new rows."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from collidescope.cli import _options as opt
from collidescope.cli._console import guarded, note, set_quiet, show, show_json

ModelArgument = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A file that `collidescope fit … --save` has written.")
]

OUT = "Ends in .csv, .tsv or .parquet.  [default: CSV to standard output]"
WITH = "Copy a column of the table, such as an id. Repeat for more."


@guarded
def predict(
    model: ModelArgument,
    table: opt.TableArgument,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help=OUT)] = None,
    with_column: Annotated[opt.Columns, typer.Option("--with", metavar="COLUMN", help=WITH)] = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
    header: opt.Header = True,
    delimiter: opt.Delimiter = None,
    skip_lines: opt.SkipLines = 0,
) -> None:
    """How likely is each class for new rows?

    Takes raw rows with the columns that the model was fitted on (others are ignored) and writes for each row its
    number from 0, the most likely class, and a column `p_CLASS` of every class. Levels that training did not have and
    missing cells are fine, and counted.

    **Examples**

    - `collidescope predict model.collide new.csv --out posteriors.csv`
    - `collidescope predict model.collide new.parquet --with customer_id > posteriors.csv`
    """
    import numpy as np

    from collidescope.cli import _inputs as inputs
    from collidescope.cli import _writing as writing
    from collidescope.tables.encoding import check_columns

    set_quiet(quiet)
    writing.check_outputs([model, table], [out])
    writing.check_suffix(out)
    fitted = inputs.load_model(model)
    X, notes = _raw_rows(fitted, table, inputs.Reading(header, delimiter, skip_lines))
    check_columns(X, with_column or ())
    for line in notes:
        note(line)
    posteriors, met = posteriors_of(fitted, X, getattr(fitted, "label_", None))
    extra = X[with_column] if with_column else None
    found = writing.posterior_table(posteriors, fitted.classes_, np.arange(len(X)), extra)
    if as_json:
        said = {"classes": fitted.classes_.tolist(), "predicted": found["predicted"].tolist()}
        show_json(said | {"posteriors": posteriors.tolist(), "notes": [*notes, *met]})
    elif out is None:
        show(writing.as_csv(found).removesuffix("\n"))
    writing.write_outputs((f"posteriors of {len(found):,} rows", out, partial(writing.write_table, found)))


def posteriors_of(fitted: Any, X: Any, label: str | None = None) -> tuple[Any, list[str]]:
    """Posteriors of raw rows, and what was met on the way, which is also said."""
    from collidescope.cli._inputs import notes_as_they_come

    if not hasattr(fitted, "encoder_"):
        return fitted.predict_proba(_plain_columns(fitted, X)), []
    with notes_as_they_come() as met:
        return fitted.predict_proba(X.drop(columns=[label]) if label in X else X), met


def _plain_columns(fitted: Any, X: Any) -> Any:
    """The columns of a model that was fitted in Python, without an encoder."""
    names = getattr(fitted, "feature_names_in_", None)
    if names is None:
        if X.shape[1] != fitted.n_features_in_:
            raise ValueError(
                f"the model was fitted on {fitted.n_features_in_} nameless features, the table has {X.shape[1]} "
                f"columns: keep the features only, in their order"
            )
        return X.to_numpy()
    from collidescope.tables.encoding import check_columns

    check_columns(X, [str(name) for name in names], learned=True)
    return X[[str(name) for name in names]]


def _raw_rows(fitted: Any, table: Path, reading: Any, label: str | None = None) -> tuple[Any, list[str]]:
    """The table as the model needs it read."""
    from dataclasses import replace

    names = list(fitted.encoder_.types) if hasattr(fitted, "encoder_") else []
    text = fitted.encoder_.text_names if names else []
    notes = []
    numbered = [name for name in names if name[:1] == "c" and name[1:].isdigit()]
    if reading.header and names and len(numbered) == len(names):
        try:
            named = set(names) <= set(reading.read(table).frame.columns)
        except ValueError:  # such as a name that occurs twice, being no name
            named = False
        if not named:
            reading = replace(reading, header=False)
            notes.append("the model was fitted on a table without a line of names: this one is read alike")
    known = label or getattr(fitted, "label_", None)
    found = reading.read(table, known, [name for name in text if name != known])
    return found.frame, [*found.notes, *notes]
