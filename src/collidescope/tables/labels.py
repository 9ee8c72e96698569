"""The label column: which rows have one, what kind it is, and whether it names classes at all."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collidescope.tables._values import MISSING_LABELS, as_levels, as_word
from collidescope.tables.encoder import listed

if TYPE_CHECKING:
    import pandas as pd

#: More distinct whole numbers than this, and they count or measure something.
MOST_NUMBER_CLASSES = 200
#: The same for numbers with a fractional part: half marks and the like are classes, amounts are not.
MOST_FRACTION_CLASSES = 10
#: A number with this many values and fewer rows for each than below is no class either.
FEW_NUMBER_CLASSES, ROWS_PER_NUMBER = 20, 10
#: Rows that a class of text needs on average; with fewer, the column holds names or free text.
ROWS_PER_CLASS = 2


class Labels(NamedTuple):
    """Labels of the rows that have one, which rows these are, and what there is to say."""

    y: npt.NDArray[Any]
    rows: npt.NDArray[np.bool_]
    notes: list[str]


def clean_labels(column: pd.Series) -> Labels:
    """Labels as text, whole numbers or booleans; rows without one are left out.

    >>> import pandas as pd
    >>> clean_labels(pd.Series([1.0, 2.0, None, 1.0, 2.0], name="y")).y
    array([1, 2, 1, 2])
    """
    name = str(column.name)
    codes, words = as_levels(column, MISSING_LABELS)
    rows = codes >= 0
    notes = []
    if not rows.all():
        left = int((~rows).sum())
        notes.append(f"{left:,} of {len(rows):,} rows have no label in {name!r} and are left out")
    if not words:
        raise ValueError(f"label {name!r} has no values: every cell is empty")
    n = int(rows.sum())
    if len(words) < 2:
        raise ValueError(f"label {name!r} has a single value ({words[0]!r}): there is nothing to tell apart")
    numbers = _numbers(words)
    if numbers is None:
        if len(words) * ROWS_PER_CLASS > n:
            raise ValueError(
                f"label {name!r} has {len(words):,} different values in {n:,} rows (such as {listed(words[:3])}): "
                f"these are not classes. Is it the right column?"
            )
        notes += _spellings(words)
        if any(word.lower() == "none" for word in words):
            notes.append(f"'none' in {name!r} is taken as a class, not as a missing label")
    else:
        _check_number(name, numbers, n, words)
    kind = _kind(words, numbers)
    return Labels(np.array(kind)[codes[rows]], rows, notes)


def _numbers(words: list[str]) -> npt.NDArray[np.float64] | None:
    try:
        return np.array([float(word) for word in words])
    except ValueError:
        return None


def _check_number(name: str, numbers: npt.NDArray[np.float64], n: int, words: list[str]) -> None:
    k = len(numbers)
    fractions = (numbers != np.round(numbers)).any()
    many = k > MOST_FRACTION_CLASSES if fractions else k > MOST_NUMBER_CLASSES
    if many or (k > FEW_NUMBER_CLASSES and k * ROWS_PER_NUMBER > n):
        raise ValueError(
            f"label {name!r} has {k:,} different numbers in {n:,} rows (from {numbers.min():g} to {numbers.max():g}): "
            f"it looks like a number to predict, not classes; bin it first, into low, middle and high for example"
        )


def _kind(words: list[str], numbers: npt.NDArray[np.float64] | None) -> list[Any]:
    """Whole numbers as int, True and False as bool, everything else as text."""
    if set(words) == {"True", "False"}:
        return [word == "True" for word in words]
    # Not "007": codes with leading zeros are names.
    if numbers is not None and all(as_word(float(word)) == word for word in words) and np.all(numbers % 1 == 0):
        return [int(word) for word in words]
    return words


def _spellings(words: list[str]) -> list[str]:
    """Classes that differ only in case or a full stop are probably one."""
    seen: dict[str, str] = {}
    for word in words:
        plain = word.casefold().rstrip(". ")
        if plain in seen:
            return [f"classes {seen[plain]!r} and {word!r} differ only in spelling: are they one?"]
        seen[plain] = word
    return []


def match_labels(
    column: pd.Series, classes: Sequence[Any], what: str
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Labels of another table as the classes of a model: (labels, rows that have one).

    >>> import pandas as pd
    >>> match_labels(pd.Series(["1", None, "0"]), [0, 1], "label")[0]
    array([1, 0])
    """
    codes, words = as_levels(column, MISSING_LABELS)
    known = {as_word(name): k for k, name in enumerate(classes)}
    found = {word: _recognised(word, known) for word in words}
    unknown = [word for word, k in found.items() if k is None]
    if unknown:
        near = get_close_matches(unknown[0], list(known), 1)
        hint = f" (is {unknown[0]!r} the same as {near[0]!r}?)" if near else ""
        raise ValueError(
            f"{what} {str(column.name)!r} has values that are not classes of the model: {listed(unknown)}; "
            f"the model knows {listed(list(known))}{hint}"
        )
    rows = codes >= 0
    if not rows.any():
        raise ValueError(f"{what} {str(column.name)!r} has no values: every cell is empty")
    numbers = np.array([found[word] for word in words], dtype=np.intp)
    return np.asarray(classes)[numbers[codes[rows]]], rows


def _recognised(word: str, known: dict[str, int]) -> int | None:
    """The class that ``word`` names: as it is, as a number (1.0), with a spreadsheet's apostrophe, or in capitals."""
    forms = [word, word.removeprefix("'")]
    try:
        forms.append(as_word(float(word)))
    except ValueError:
        if word.lower() in ("true", "false"):  # as R and SQL write them
            forms.append(word.capitalize())
    return next((known[form] for form in forms if form in known), None)
