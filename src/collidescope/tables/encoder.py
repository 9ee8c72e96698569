"""A table of mixed columns as a matrix of numbers: skrub chooses the kinds, the learned values can be stored.

:class:`skrub.TableVectorizer` tells numbers, dates, short lists of levels and text apart; each kind is then encoded
(see :mod:`collidescope.tables.columns`) by parts whose state is plain values and arrays, so that a saved model holds
no code. The label is never looked at.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collidescope.tables._values import as_levels, as_numbers
from collidescope.tables.columns import (
    KINDS,
    CategoryColumn,
    Column,
    DateColumn,
    Encoded,
    Float32Array,
    NumberColumn,
    TextColumn,
)

if TYPE_CHECKING:
    import pandas as pd

#: Up to this many levels (skrub's default) text is a category; more where each has some rows to speak for itself.
FEW_LEVELS, MOST_LEVELS, ROWS_PER_LEVEL = 40, 200, 100
#: Numbers with a currency, a unit or separators, and the share of the values that must look so.
PLAIN_NUMBER = re.compile(r"^[-+]?\d+([.,]\d+)?$")
DRESSED_NUMBER = re.compile(r"^[$€£¥]?\s*[-+]?(\d{1,3}([,'. ]\d{3})+|\d+)([.,]\d+)?\s*(%|[$€£¥]|[A-Za-zµ°/²³]{1,5})?$")
MOSTLY = 0.9
#: Names listed in one message.
SHOWN = 8

NEEDS_SKRUB = 'mixed tables need skrub: pip install "collidescope[cli]"'


@dataclass(frozen=True)
class TableEncoder:
    """How the columns of a table become features.

    Made by :meth:`fit` or :meth:`from_export`.

    Attributes
    ----------
    columns : list of Column
    left_out : dict
        Column → why it is not used.
    """

    columns: list[Column]
    left_out: dict[str, str] = field(default_factory=dict)

    @classmethod
    def fit(
        cls, table: pd.DataFrame, *, categories: Iterable[str] = (), left_out: Mapping[str, str] | None = None
    ) -> TableEncoder:
        """Choose the kind of every column and learn what it needs.

        Parameters
        ----------
        table : DataFrame
        categories : names of columns whose values are names even where they look like numbers
        left_out : column → why it is not used
        """
        forced, dropped = set(categories), dict(left_out or {})
        check_columns(table, [*forced, *dropped])
        used = table.drop(columns=list(dropped))
        chosen = column_kinds(used.drop(columns=[name for name in forced if name in used]), len(table))
        columns: list[Column] = []
        for name in used.columns:
            if name not in chosen and name not in forced:
                dropped[name] = "it has no values"
                continue
            column = learn_column(used[name], *chosen.get(name, ("levels", None)), len(table))
            if says_nothing(column, used[name]):
                dropped[name] = "it has the same value in every row"
            else:
                columns.append(column)
        if not columns:
            reasons = "; ".join(f"{name!r}: {why}" for name, why in list(dropped.items())[:SHOWN])
            raise ValueError(f"X has no column that could tell classes apart ({reasons or 'it has none at all'})")
        return cls(columns, dropped)

    @property
    def names(self) -> list[str]:
        """Columns that a table must have."""
        return [column.name for column in self.columns]

    @property
    def text_names(self) -> list[str]:
        """Columns to be read as they are written, such as codes with leading zeros."""
        return [column.name for column in self.columns if column.kind != NumberColumn.kind]

    @property
    def feature_names(self) -> list[str]:
        """Columns of the result."""
        return [name for column in self.columns for name in column.outputs()]

    @property
    def n_features(self) -> int:
        """Number of columns of the result."""
        return len(self.feature_names)

    def transform(self, table: pd.DataFrame) -> tuple[Float32Array, list[str]]:
        """The table as numbers, rows × features, and in words what it met on the way."""
        check_columns(table, self.names, learned=True)
        features = np.empty((len(table), self.n_features), dtype=np.float32)
        met: list[tuple[Column, Encoded]] = []
        start = 0
        for column in self.columns:
            encoded = column.encode(table[column.name])
            stop = start + encoded.features.shape[1]
            features[:, start:stop] = encoded.features
            start = stop
            met.append((column, encoded._replace(features=encoded.features[:0])))
        return features, _words(met, len(table)) + self._extra(table)

    def doubts(self, table: pd.DataFrame) -> list[str]:
        """Columns that may not be what they are taken for, in words: numbers with a unit, for example."""
        found = []
        for column in self.columns:
            if column.kind in (CategoryColumn.kind, TextColumn.kind):
                words = as_levels(table[column.name])[1]
                dressed = [word for word in words if DRESSED_NUMBER.match(word) and not PLAIN_NUMBER.match(word)]
                if len(words) >= FEW_LEVELS / 2 and len(dressed) >= MOSTLY * len(words):
                    found.append(
                        f"column {column.name!r} is taken as text, but looks like numbers (such as {dressed[0]!r}): "
                        f"write them plainly, without units and thousands separators, to have them used as numbers"
                    )
        return found

    def _extra(self, table: pd.DataFrame) -> list[str]:
        extra = [str(name) for name in table.columns if name not in {*self.names, *self.left_out}]
        return [f"columns that the model does not know are ignored: {listed(extra)}"] if extra else []

    def kinds(self) -> dict[str, list[str]]:
        """Kind → columns of it."""
        found: dict[str, list[str]] = {}
        for column in self.columns:
            found.setdefault(column.kind, []).append(column.name)
        return found

    def export(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Arrays and a JSON-able description."""
        arrays = {f"{k}/{name}": array for k, c in enumerate(self.columns) for name, array in c.arrays().items()}
        return arrays, {"columns": [column.state() for column in self.columns], "left_out": self.left_out}

    @classmethod
    def from_export(cls, arrays: Mapping[str, npt.NDArray[Any]], description: Mapping[str, Any]) -> TableEncoder:
        """The inverse of :meth:`export`; raises KeyError, TypeError or ValueError on what does not fit."""
        columns = []
        for k, state in enumerate(description["columns"]):
            prefix = f"{k}/"
            own = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
            columns.append(KINDS[state["kind"]].restore(state, own))
        names = [column.name for column in columns]
        if not names or len(set(names)) < len(names):
            raise ValueError("columns must be there, and each once")
        return cls(columns, {str(name): str(why) for name, why in dict(description["left_out"]).items()})


def column_kinds(table: pd.DataFrame, n_rows: int) -> dict[str, tuple[str, str | None]]:
    """Column → (kind, date format) as skrub sees it; columns without values are not in it."""
    try:
        from skrub import TableVectorizer
    except ImportError:
        raise ImportError(NEEDS_SKRUB) from None
    if table.shape[1] == 0:
        return {}
    vectorizer = TableVectorizer(
        cardinality_threshold=most_levels(n_rows) + 1,
        numeric="passthrough",
        datetime="passthrough",
        low_cardinality="passthrough",
        high_cardinality="passthrough",
    )
    with warnings.catch_warnings(), np.errstate(over="ignore"):  # skrub tries float32 on every number
        warnings.simplefilter("ignore", UserWarning)  # of formats that dates might have
        vectorizer.fit(table)
    found: dict[str, tuple[str, str | None]] = {}
    for kind, names in vectorizer.kind_to_columns_.items():
        for name in names:
            steps = vectorizer.all_processing_steps_[name]
            date_format = next((step.format_ for step in steps if hasattr(step, "format_")), None)
            found[name] = ({"numeric": "number", "datetime": "date"}.get(kind, "levels"), date_format)
    return found


def learn_column(column: pd.Series, kind: str, date_format: str | None, n_rows: int) -> Column:
    """The encoder of one column; text is a category up to :func:`most_levels` levels."""
    if kind == "number" and not np.isnan(as_numbers(column)).all():
        return NumberColumn.fit(column)
    if kind == "date":
        return DateColumn.fit(column, date_format)
    levels = len(as_levels(column)[1])
    return CategoryColumn.fit(column) if levels <= most_levels(n_rows) else TextColumn.fit(column)


def most_levels(n_rows: int) -> int:
    """Levels up to which text is a category.

    >>> most_levels(500), most_levels(10_000), most_levels(10**6)
    (40, 100, 200)
    """
    return max(FEW_LEVELS, min(MOST_LEVELS, n_rows // ROWS_PER_LEVEL))


def says_nothing(encoder: Column, column: pd.Series) -> bool:
    """Has it a single value, and no cell missing?"""
    if encoder.has_missing:
        return False
    if isinstance(encoder, CategoryColumn):
        return len(encoder.levels) == 1
    return bool(column.nunique() == 1)


def check_columns(table: Any, names: Sequence[str], *, learned: bool = False) -> None:
    """Refuse what is no table, has a column twice, or lacks one of ``names``."""
    import pandas as pd

    if not isinstance(table, pd.DataFrame):
        raise ValueError(f"X must be a pandas DataFrame with named columns, got {type(table).__name__}")
    have = [str(name) for name in table.columns]
    if len(table) == 0:
        raise ValueError("X has no rows: pass at least one")
    if len(set(have)) < len(have):
        twice = next(name for k, name in enumerate(have) if name in have[:k])
        raise ValueError(f"X has the column {twice!r} more than once: rename one of them")
    if unreal := [name for name, kind in zip(have, table.dtypes, strict=True) if pd.api.types.is_complex_dtype(kind)]:
        raise ValueError(f"X has complex numbers in the column {unreal[0]!r}: pass their parts as two columns")
    missing = [name for name in names if name not in have]
    if missing:
        near = {name: near_name(name, have) for name in missing}
        hint = "; ".join(f"is {name!r} now called {found!r}?" for name, found in near.items() if found)
        which = "that the model was fitted on" if learned else "that you named"
        raise ValueError(
            f"X lacks {'columns' if len(missing) > 1 else 'a column'} {which}: {listed(missing)}. "
            f"It has {listed(have)}" + (f" ({hint})" if hint else "")
        )


def near_name(name: str, names: Sequence[str]) -> str | None:
    """The name most like ``name``, whatever its case and its spaces, or None.

    >>> near_name("incme", ["age", "Income "])
    'Income '
    """
    plain = {other.strip().casefold(): other for other in names}
    found = get_close_matches(name.strip().casefold(), list(plain), 1, 0.7)
    return plain[found[0]] if found else None


def listed(names: Sequence[Any]) -> str:
    """The first names, in quotes, and how many more.

    >>> listed(list("ab"))
    "'a', 'b'"
    """
    shown = ", ".join(repr(str(name)) for name in names[:SHOWN])
    return shown + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _words(met: list[tuple[Column, Encoded]], n_rows: int) -> list[str]:
    notes = []
    with_gaps = [(column.name, encoded.missing) for column, encoded in met if encoded.missing]
    if with_gaps:
        cells = ", ".join(f"{name} {count:,}" for name, count in with_gaps[:SHOWN])
        more = f" and {len(with_gaps) - SHOWN} more columns" if len(with_gaps) > SHOWN else ""
        notes.append(f"missing cells (of {n_rows:,} rows): {cells}{more}")
    for column, encoded in met:
        if encoded.unknown:
            what = {
                "number": "no numbers, taken as missing",
                "category": "levels that training did not have",
                "date": "no dates as in training, taken as missing",
                "text": "nothing in common with the texts of training",
            }[column.kind]
            share = f"{encoded.unknown:,} of {n_rows:,} cells"
            notes.append(f"column {column.name!r}: {share} are {what} (such as {encoded.example!r})")
    return notes
