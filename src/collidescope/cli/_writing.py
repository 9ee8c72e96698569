"""Tables for people and spreadsheets: CSV, TSV or Parquet by the name of the file, written whole or not at all."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collidescope._files import replace_file
from collidescope.tables._values import as_word

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = {".csv": ",", ".tsv": "\t", ".txt": "\t", ".parquet": "", ".pq": ""}
#: Spreadsheets run a cell that starts with one of these as a formula.
FORMULA = re.compile(r"^[=+\-@\t\r]")
NUMBER = re.compile(r"^[+-]?\d+(\.\d+)?([eE][+-]?\d+)?$")
#: Before the name of a class in the name of a column of posteriors.
PREFIX = "p_"


def guard(value: Any) -> Any:
    """Text that a spreadsheet would run as a formula gets an apostrophe in front; numbers stay.

    >>> guard("=1+1"), guard("-1"), guard("a"), guard(3)
    ("'=1+1", '-1', 'a', 3)
    """
    if isinstance(value, str) and FORMULA.match(value) and not NUMBER.match(value):
        return f"'{value}"
    return value


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
        replace_file(path, buffer.getvalue())
    else:
        replace_file(path, as_csv(table, separator).encode())


def as_csv(table: pd.DataFrame, separator: str = ",") -> str:
    """The table as text, formulas disarmed."""
    import pandas as pd

    columns = [
        column if column.dtype.kind in "iufb" else column.map(guard, na_action="ignore") for _, column in table.items()
    ]
    safe = pd.concat(columns, axis=1).set_axis([guard(name) for name in table.columns], axis=1)
    return safe.to_csv(index=False, sep=separator, lineterminator="\n", float_format="%.6g")
