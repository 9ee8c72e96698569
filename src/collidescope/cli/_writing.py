"""What the commands write: tables (CSV, TSV or Parquet by the name of the file), matrices, and in which order."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import typer

from collidescope import _store
from collidescope.cli._console import BAD_INPUT, FAILURE, explained, note_written, say
from collidescope.matrix import JSON_CLASSES, CollisionMatrix
from collidescope.tables.encoding import as_word

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = {".csv": ",", ".tsv": "\t", ".txt": "\t", ".parquet": "", ".pq": ""}
#: Spreadsheets run a cell that starts with one of these as a formula; where lists are separated by semicolons, what
#: follows one is a cell too, and so is what follows a line break that lost its quotes.
FORMULA = re.compile(r"(^|[;\t\r\n])(?=\s*[=+\-@]|[\t\r])")
NUMBER = re.compile(r"^[+-]?\d+(\.\d+)?([eE][+-]?\d+)?$")
#: Before the name of a class in the name of a column of posteriors.
PREFIX = "p_"


def check_outputs(inputs: Sequence[Path], outputs: Sequence[Path | None]) -> None:
    """Before any work: can the outputs be written, apart from each other and from the files that are read?"""
    given = [path for path in outputs if path is not None]
    for path in given:
        _store.check_output(path)
    taken = [*inputs]
    for path in given:
        if path.exists() and not path.is_file():  # a device or FIFO takes more than one
            continue
        if (twin := next((other for other in taken if _same(path, other)), None)) is not None:
            doing = "is the file that is read" if twin in inputs else "is named for two results"
            raise ValueError(f"{path} {doing}: write to another one")
        taken.append(path)


def _same(one: Path, other: Path) -> bool:
    both = one.exists() and other.exists()
    return one.samefile(other) if both else one.resolve() == other.resolve()


def check_matrix_name(path: Path | None, n_classes: int) -> None:
    """Refuse JSON for more classes than it takes; the name of a file is never changed."""
    if path is not None and path.suffix != ".npz" and n_classes > JSON_CLASSES:
        raise ValueError(
            f"a matrix of {n_classes:,} classes is too large for JSON (at most {JSON_CLASSES:,}): "
            f"let {path.name} end in .npz"
        )


def write_matrix(cm: CollisionMatrix, path: Path) -> None:
    """S as JSON, or in binary where ``path`` ends in .npz."""
    check_matrix_name(path, cm.n_classes)
    if path.suffix == ".npz":
        cm.to_npz(path)
    else:
        cm.to_json(path)


def write_outputs(*outputs: tuple[str, Path | None, Callable[[Path], Any]]) -> None:
    """Write every output (what it is, where to, how) that was asked for, and say so; a failure does not stop the rest.

    The result has been printed before, so what cannot be written is not lost; the exit code tells.
    """
    code = 0
    for what, path, write in outputs:
        if path is None:
            continue
        try:
            write(path)
        except (OSError, ValueError, ImportError) as error:
            code = max(code, BAD_INPUT if isinstance(error, ValueError) else FAILURE)  # a name, or an edited summary
            say(f"Error: the {what} was not written. {explained(error)}", "bold red", always=True)
        else:
            note_written(what, path)
    if code:
        raise typer.Exit(code)


def guard(value: Any) -> Any:
    """Text that a spreadsheet would run as a formula gets an apostrophe in front; numbers stay.

    >>> guard("=1+1"), guard("-1"), guard("a;=1+1"), guard(3)
    ("'=1+1", '-1', "a;'=1+1", 3)
    """
    return FORMULA.sub(r"\1'", value) if isinstance(value, str) and not NUMBER.match(value) else value


def check_suffix(path: Path | None) -> None:
    """Refuse a name that does not say how to write the table."""
    if path is not None and path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"cannot tell the format of {path.name}: let it end in .csv, .tsv or .parquet")


def posterior_table(
    posteriors: npt.NDArray[np.float64],
    classes: npt.NDArray[Any],
    numbers: npt.NDArray[np.intp],
    extra: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Number of the row, the most likely class, a column ``p_`` of every class."""
    import pandas as pd

    unscored = np.flatnonzero(np.isnan(posteriors).any(axis=1))
    said = pd.Series(classes[np.nan_to_num(posteriors).argmax(axis=1)])
    if len(unscored):
        said = said.astype(object)
        said.iloc[unscored] = None
    frames = [pd.DataFrame({"row": numbers}), *([] if extra is None else [extra.reset_index(drop=True)])]
    columns = [f"{PREFIX}{as_word(name)}" for name in classes.tolist()]
    frames += [pd.DataFrame({"predicted": said}), pd.DataFrame(posteriors, columns=columns)]
    return pd.concat(frames, axis=1)


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write ``table``; an existing file is replaced in one step."""
    check_suffix(path)
    separator = SUFFIXES[path.suffix.lower()]
    if not separator:
        buffer = io.BytesIO()
        table.to_parquet(buffer, index=False)
        _store.write_bytes(path, buffer.getvalue())
    else:
        _store.write_bytes(path, as_csv(table, separator).encode())


def as_csv(table: pd.DataFrame, separator: str = ",") -> str:
    """The table as text, formulas disarmed."""
    import pandas as pd

    columns = [
        column if column.dtype.kind in "iufb" else column.map(guard, na_action="ignore") for _, column in table.items()
    ]
    safe = pd.concat(columns, axis=1).set_axis([guard(name) for name in table.columns], axis=1)
    return safe.to_csv(index=False, sep=separator, lineterminator="\n", float_format="%.6g")
