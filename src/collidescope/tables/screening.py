"""Columns that should not be there: ids, which name a row, and leaks, which give the label away."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collidescope._checks import IntArray
from collidescope.tables._values import as_levels, as_numbers

if TYPE_CHECKING:
    import pandas as pd

#: Fewer rows than these cannot tell an id from a measurement, or a leak from luck.
FEWEST_ROWS, FEWEST_FOR_LEAKS = 20, 50
#: Rows that a leak is looked for in; more would not change the verdict.
MOST_ROWS = 20_000
#: A leak is right on at least this share of the rows held out …
LEAK = 0.995
#: … and leaves at most this share of the errors of always naming the largest class.
ERRORS_LEFT = 0.1
#: Leaves of the tree that looks for a leak in a numeric column, beyond the number of classes.
SPARE_LEAVES = 8
#: Words an id has on average: free text has more.
ID_WORDS = 1.5
ID_NAME = re.compile(
    r"(^|[^a-z])(id|uuid|guid|index|key|nr|no|number|rownum|row)$|[a-z]I[Dd]$|^unnamed \d+$|^__index_level"
)


@dataclass(frozen=True)
class Screening:
    """What was found.

    Attributes
    ----------
    ids : dict
        Column → why it is taken for an id; such columns are left out.
    suspects : dict
        Column → why it may be one; these stay.
    leaks : dict
        Column → share of held-out rows whose label it alone gives away.
    """

    ids: dict[str, str] = field(default_factory=dict)
    suspects: dict[str, str] = field(default_factory=dict)
    leaks: dict[str, float] = field(default_factory=dict)

    def notes(self) -> list[str]:
        """In words, with what to do (by the options of the command line; ``drop`` and ``keep`` in Python)."""
        found = [f"column {name!r} is left out: {why} (--keep {name!r} uses it)" for name, why in self.ids.items()]
        for name, why in self.suspects.items():
            found.append(f"column {name!r} {why}: if it names rows, leave it out (--drop {name!r})")
        return found + self.leak_notes()

    def leak_notes(self) -> list[str]:
        """About leaks alone."""
        return [
            f"column {name!r} alone gives the label away on {share:.1%} of held-out rows: if it is only known once the "
            f"label is, leave it out (--drop {name!r}), or the result says that nothing collides"
            for name, share in self.leaks.items()
        ]


def screen(table: pd.DataFrame, y: npt.NDArray[Any], *, keep: Container[str] = (), seed: int = 0) -> Screening:
    """Look for ids and leaks among the columns of ``table``; those in ``keep`` are no ids."""
    found = Screening()
    if len(table) < FEWEST_ROWS:
        return found
    classes, codes = np.unique(y, return_inverse=True)
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(table))[:MOST_ROWS]
    half = len(rows) // 2
    for name in table.columns:
        column = table[name]
        verdict = id_verdict(column)
        if verdict is not None and verdict[0] and name not in keep:
            found.ids[name] = verdict[1]
            continue
        if verdict is not None and name not in keep:
            found.suspects[name] = verdict[1]
        if len(table) < FEWEST_FOR_LEAKS:
            continue
        right = one_column_accuracy(column.iloc[rows], codes[rows], half, len(classes))
        largest = float(np.bincount(codes[rows]).max() / len(rows))
        if right >= LEAK and 1 - right <= ERRORS_LEFT * (1 - largest):
            found.leaks[name] = right
    return found


def id_verdict(column: pd.Series) -> tuple[bool, str] | None:
    """(certain, why) where every value differs, or None."""
    import pandas as pd
    from pandas.tseries.api import guess_datetime_format

    if pd.api.types.is_float_dtype(column.dtype) or pd.api.types.is_datetime64_any_dtype(column.dtype):
        return None
    codes, words = as_levels(column)
    if len(words) < len(codes):
        return None
    name = str(column.name)
    named = ID_NAME.search(name) is not None
    if pd.api.types.is_integer_dtype(column.dtype):
        if int(column.max()) - int(column.min()) + 1 == len(column):
            return True, "it counts the rows"
        return (True, "every value differs, as ids do") if named else (False, "differs in every row")
    if not np.isnan(as_numbers(column)).any():
        return (True, "every value differs, as ids do") if named else None
    if guess_datetime_format(words[0]) is not None:
        return None
    spaced = float(np.mean([len(word.split()) for word in words]))
    if named or spaced < ID_WORDS:
        return True, "every value differs, as ids do"
    return None


def one_column_accuracy(column: pd.Series, codes: IntArray, half: int, n_classes: int) -> float:
    """Share of the rows from ``half`` on whose class is told by this column alone, learned from the rows before."""
    import pandas as pd
    from sklearn.tree import DecisionTreeClassifier

    numeric = pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(column.dtype)
    if numeric:
        values = np.nan_to_num(as_numbers(column), nan=0.0)[:, None].clip(-1e30, 1e30)
        tree = DecisionTreeClassifier(max_leaf_nodes=n_classes + SPARE_LEAVES, min_samples_leaf=2, random_state=0)
        return float(tree.fit(values[:half], codes[:half]).score(values[half:], codes[half:]))
    levels, words = as_levels(column)
    table = np.zeros((len(words) + 1, n_classes))
    np.add.at(table, (levels[:half], codes[:half]), 1)
    # A level seen once says nothing yet: the largest class is named for it.
    table[table.sum(axis=1) < 2] = np.bincount(codes[:half], minlength=n_classes)
    return float((table.argmax(axis=1)[levels[half:]] == codes[half:]).mean())
