"""What cells say: the words, numbers and dates of a column; tables of any library as DataFrames."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from collidescope import _checks as check
from collidescope._checks import Array, FloatArray, IntArray
from collidescope.sample import check_table
from collidescope.tables.numerals import NumberForm, number_form

TableLike = Any  #: a table of pandas, polars or pyarrow; :func:`as_frame` takes it

#: What stands for a missing cell: the words that skrub and pandas take for one.
MISSING_WORDS = (
    "",
    "?",
    "...",
    "none",
    "None",
    "null",
    "NULL",
    "nan",
    "NaN",
    "-nan",
    "-NaN",
    "NA",
    "N/A",
    "n/a",
    "<NA>",
    "#N/A",
    "#NA",
    "#N/A N/A",
    "1.#QNAN",
    "-1.#QNAN",
    "1.#IND",
    "-1.#IND",
)
#: Parts of a date that become features; the hour only if a time of day was seen.
DATE_PARTS = ("year", "month", "day", "total_seconds", "weekday", "hour")


def as_levels(
    column: pd.Series, missing: Collection[str] = MISSING_WORDS
) -> tuple[IntArray, list[str]]:
    """Codes (-1 for missing) and the distinct texts they stand for, in order of appearance.

    >>> as_levels(pd.Series([2.0, None, " 2", "?", True]))
    (array([ 0, -1,  0, -1,  1]), ['2', 'True'])
    """
    cells: Any = column
    # Objects are quicker than extension arrays.
    if pd.api.types.is_string_dtype(column.dtype):
        cells = column.to_numpy(dtype=object)
    try:
        codes, values = pd.factorize(cells)
    except TypeError:  # lists and the like have no hash
        codes, values = pd.factorize(column.map(str))
    place: dict[str, int] = {}
    numbers = [
        -1 if word in missing else place.setdefault(word, len(place))
        for word in map(as_word, values.tolist())
    ]
    return np.array([*numbers, -1], dtype=np.intp)[np.asarray(codes)], list(place)


def as_word(value: object) -> str:
    """One value as text: whole numbers without a point (3.0 is "3"), no spaces around it.

    Characters that nobody sees and no language needs are left out: zero-width spaces, byte order
    marks, soft hyphens.
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    invisible = str.maketrans("", "", "\u200b\u2060\ufeff\u00ad")
    return str(value).translate(invisible).strip()


def words_of(codes: IntArray, words: Sequence[str]) -> Array:
    """The text of every row, None where it is missing."""
    return np.array([*words, None], dtype=object)[codes]


def as_numbers(column: pd.Series) -> FloatArray:
    """Numbers as float64: nan where a cell is missing, infinite, or text that is no number."""
    if pd.api.types.is_timedelta64_dtype(column.dtype):
        column = column.dt.total_seconds()
    if pd.api.types.is_numeric_dtype(column.dtype):  # booleans too
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        codes, words = as_levels(column)
        numbers = np.append(parsed(words), np.nan)[codes]
    return np.where(np.isinf(numbers), np.nan, numbers)


def parsed(words: Sequence[str]) -> FloatArray:
    """Plain numbers and truth values as float64, nan for other words."""
    truth = {"true": 1.0, "false": 0.0}
    values = np.array([truth.get(word.lower(), word) for word in words], dtype=object)
    return np.asarray(pd.to_numeric(values, errors="coerce"), dtype=np.float64)


def are_numbers(words: Sequence[str]) -> bool:
    """Is every word a plain number? The first one is asked alone, as most texts fail there."""
    first = bool(words) and np.isfinite(parsed(words[:1])).all()
    return bool(first and np.isfinite(parsed(words)).all())


class Cells(NamedTuple):
    """A column as what its cells are."""

    kind: Literal["number", "date", "words"]
    words: list[str]
    codes: IntArray  #: numbers of the words, -1 where missing
    values: FloatArray = np.zeros(
        (0, 1)
    )  #: rows × 1 number, or parts of dates; nan where missing
    written: str | None = None  #: format of dates in text
    form: NumberForm | None = None  #: of numbers with a currency, a unit or separators


def read_cells(column: pd.Series, names: bool = False) -> Cells:
    """Numbers or dates where the dtype or every cell says so, else words; ``names`` are words."""
    dtype = column.dtype
    names = names or isinstance(dtype, pd.CategoricalDtype)
    types = pd.api.types
    numeric = types.is_numeric_dtype(dtype) or types.is_timedelta64_dtype(dtype)
    if numeric and not names:
        none = np.zeros(0, np.intp)
        return Cells("number", [], none, as_numbers(column)[:, None])
    codes, words = as_levels(column)
    if names or not words:
        return Cells("words", words, codes)
    if types.is_datetime64_any_dtype(dtype):
        return Cells("date", words, codes, date_numbers(column, None))
    if are_numbers(words):
        return Cells("number", words, codes, as_numbers(column)[:, None])
    form = number_form(words)
    if form is not None:
        numbers = np.append(form.parse(words), np.nan)[codes]
        return Cells("number", words, codes, numbers[:, None], form=form)
    written = date_format(words)
    if written is not None:
        return Cells("date", words, codes, date_numbers(column, written), written)
    return Cells("words", words, codes)


def date_format(words: Sequence[str]) -> str | None:
    """The format in which all of ``words`` are dates, as skrub or pandas guess it, or None."""
    from skrub import ToDatetime

    if not any(character.isdigit() for character in words[0]):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            found = ToDatetime().fit(pd.Series(list(words), name="d", dtype=object))
        except ValueError:
            return _lettered_date_format(words)
    written: str | None = found.format_
    return written


def _lettered_date_format(words: Sequence[str]) -> str | None:
    """A format with the month in letters, such as 01-SEP-63, which skrub does not know."""
    formats = "%d-%b-%y|%d-%b-%Y|%d%b%Y|%d %b %Y|%d %B %Y|%b %d, %Y"
    for written in formats.split("|"):
        if _dates(list(words), written).notna().all():
            return written
    return None


def _dates(cells: Any, written: str | None) -> Any:
    return pd.to_datetime(cells, format=written, errors="coerce", utc=True)


def date_numbers(
    column: pd.Series, written: str | None, timed: bool = True
) -> FloatArray:
    """:data:`DATE_PARTS` of dates (in UTC where they have a time zone), nan where there is none.

    ``written`` is the format of dates in text; without ``timed`` the hour is left out.
    """
    if not pd.api.types.is_datetime64_any_dtype(column.dtype):
        column = pd.Series(words_of(*as_levels(column)))
        written = written or "ISO8601"
    local = _dates(column, written).dt.tz_localize(None)
    seconds = (local - pd.Timestamp(0)).dt.total_seconds()
    parts: list[pd.Series] = [
        local.dt.year,
        local.dt.month,
        local.dt.day,
        seconds,
        local.dt.day_of_week,
        local.dt.hour,
    ]
    if not timed:
        parts.pop()
    return np.column_stack([part.to_numpy(np.float64) for part in parts])


def as_frame(X: TableLike) -> pd.DataFrame:
    """``X`` as a pandas DataFrame with text names.

    X is a table of pandas, polars or pyarrow, or another that has ``__arrow_c_stream__``; a polars
    LazyFrame is collected.
    """
    X = check.collected(X)
    of_pandas = isinstance(X, pd.DataFrame | pd.Series)
    if not of_pandas and hasattr(X, "__arrow_c_stream__"):
        import pyarrow as pa

        X = pa.table(X).to_pandas()
    if not isinstance(X, pd.DataFrame):
        raise ValueError(
            "X must be a DataFrame with named columns (pandas or polars), got "
            f"{type(X).__name__}"
        )
    if all(isinstance(name, str) for name in X.columns):
        return X
    return X.set_axis([str(name) for name in X.columns], axis=1)


def check_columns(
    table: pd.DataFrame, names: Iterable[str], *, learned: bool = False
) -> None:
    """Refuse a table that has no rows, has a column twice, or lacks one of ``names``."""
    if len(table) == 0:
        raise ValueError("X has no rows: pass at least one")
    check_table(table)
    for name, dtype in zip(table.columns, table.dtypes, strict=True):
        if getattr(dtype, "kind", "") == "c":
            raise ValueError(
                f"X has complex numbers in the column {str(name)!r}: "
                f"pass their parts as two columns"
            )
    have = [str(name) for name in table.columns]
    missing = [name for name in names if name not in set(have)]
    if missing:
        raise ValueError(_lacking(missing, have, learned))


def _lacking(missing: list[str], have: list[str], learned: bool) -> str:
    """What to say of a table without the columns ``missing``."""
    near = {name: near_name(name, have) for name in missing[:8]}
    hints = [f"is {name!r} now called {own!r}?" for name, own in near.items() if own]
    which = "that the model was fitted on" if learned else "that you named"
    what = "columns" if len(missing) > 1 else "a column"
    said = f"X lacks {what} {which}: {listed(missing)}. It has {listed(have)}"
    if hints:
        said += f" ({'; '.join(hints)})"
    return said


def near_name(name: str, names: Sequence[str]) -> str | None:
    """The name most like ``name`` (letter case and spaces do not matter), or None."""
    plain = {other.strip().casefold(): other for other in names}
    found = get_close_matches(name.strip().casefold(), list(plain), 1, 0.7)
    return plain[found[0]] if found else None


def listed(names: Sequence[Any], most: int = 8) -> str:
    """The first names, in quotes, and how many more."""
    shown = ", ".join(repr(str(name)) for name in names[:most])
    if len(names) > most:
        shown += f" and {len(names) - most} more"
    return shown
