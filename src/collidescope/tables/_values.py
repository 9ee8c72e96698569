"""Cells as text, numbers and dates, the same whatever file or dtype they came from.

A model fitted on a CSV must read a Parquet file alike: 1, 1.0 and "1" are one level, "True" and True are one, and a
missing cell is missing whether it is empty, NaN or one of :data:`MISSING_WORDS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collidescope._checks import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd

#: What stands for a missing cell: the words that skrub and pandas take for one.
MISSING_WORDS = (
    *("", "?", "...", "none", "None", "null", "NULL", "nan", "NaN", "-nan", "-NaN", "NA", "N/A", "n/a", "<NA>"),
    *("#N/A", "#NA", "#N/A N/A", "1.#QNAN", "-1.#QNAN", "1.#IND", "-1.#IND"),
)
#: In the label column "none" is an answer like any other.
MISSING_LABELS = tuple(word for word in MISSING_WORDS if word.lower() != "none")
TRUTH = {"true": 1.0, "false": 0.0}
#: The largest feature: float32 could hold more, but not a sum of it over the rows.
LARGEST = 1e30


def as_levels(column: pd.Series, missing: tuple[str, ...] = MISSING_WORDS) -> tuple[IntArray, list[str]]:
    """Codes (-1 for missing) and the distinct texts they stand for, in order of appearance.

    >>> import pandas as pd
    >>> as_levels(pd.Series([2.0, None, " 2", "?", True]))
    (array([ 0, -1,  0, -1,  1]), ['2', 'True'])
    """
    import pandas as pd

    try:
        codes, values = pd.factorize(column)
    except TypeError:  # lists and the like have no hash
        codes, values = pd.factorize(column.map(str))
    texts = [as_word(value) for value in values.tolist()]
    number: dict[str, int] = {}
    again = np.array(
        [-1 if text in missing else number.setdefault(text, len(number)) for text in texts] + [-1], dtype=np.intp
    )
    return again[np.asarray(codes)], list(number)


def as_word(value: Any) -> str:
    """One value as text: whole numbers without a point, no spaces around it.

    >>> as_word(3.0), as_word(" a "), as_word(0.5), as_word(False)
    ('3', 'a', '0.5', 'False')
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return str(value).strip()


def as_text(column: pd.Series) -> pd.Series:
    """A column of text, None where it is missing."""
    import pandas as pd

    codes, words = as_levels(column)
    values = np.array([*words, None], dtype=object)[codes]
    return pd.Series(values, index=column.index, name=column.name, dtype=object)


def as_numbers(column: pd.Series) -> FloatArray:
    """Numbers, nan where there is none: missing, infinite, or text that is no number."""
    import pandas as pd

    if pd.api.types.is_timedelta64_dtype(column.dtype):
        column = column.dt.total_seconds()
    if pd.api.types.is_bool_dtype(column.dtype) or pd.api.types.is_numeric_dtype(column.dtype):
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
    else:
        codes, words = as_levels(column)
        parsed = [TRUTH.get(word.lower(), word) for word in words]
        values = pd.to_numeric(pd.Series([*parsed, None], dtype=object), errors="coerce")
        numbers = values.to_numpy(dtype=np.float64)[codes]
    numbers[~np.isfinite(numbers)] = np.nan
    return numbers


def as_dates(column: pd.Series, date_format: str | None) -> pd.Series:
    """Dates without a time zone (in UTC where there was one), NaT where there is none."""
    import pandas as pd

    if not pd.api.types.is_datetime64_any_dtype(column.dtype):
        column = as_text(column)
        date_format = date_format or "ISO8601"
    dates = pd.to_datetime(column, format=date_format, errors="coerce", utc=True)
    return dates.dt.tz_localize(None)


def float32(values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """As float32, far out rather than infinite."""
    return np.clip(values, -LARGEST, LARGEST).astype(np.float32)
