"""A table of mixed columns as a matrix of numbers, by rules that a file can hold as plain values.

``number``: minus its median, which also stands in for missing cells; numbers may be written as text
(:mod:`collidescope.tables.numerals`). ``date``: its parts, as numbers. ``category``: one feature
per level, where a missing cell is a level like any other; two levels make one feature. ``text``:
tf-idf of character n-grams reduced by a truncated SVD (skrub's ``StringEncoder``). Missing cells of
numbers, dates and texts have a feature where training had some. None of them sees the label.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from collidescope import _checks as check
from collidescope._checks import Array, FloatArray, IntArray
from collidescope._saving import from_tree
from collidescope._scaling import blocks
from collidescope.tables.cells import (
    DATE_PARTS,
    TableLike,
    are_numbers,
    as_frame,
    as_levels,
    as_numbers,
    check_columns,
    date_numbers,
    listed,
    read_cells,
    words_of,
)
from collidescope.tables.numerals import NumberForm, amounts, number_form

Float32Array = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]
#: Names of features and their values, rows × names.
Block = tuple[list[str], Array]
#: Of a category; the last is None where cells were missing.
Levels = tuple[str | None, ...]

LARGEST = 1e30  #: the largest feature: float32 could hold more, but not a sum of it over the rows
Type = Literal["number", "date", "category", "text"]  #: of a column
#: What cells are that a type cannot use.
UNKNOWN: dict[str, str] = {
    "number": "not numeric, taken as missing",
    "date": "not written as the dates of training, taken as missing",
    "category": "not among the levels of training",
    "text": "unlike any text of training",
}


@dataclass
class Odd:
    """What is odd about the cells of one column."""

    missing: int
    unknown: int  #: cells that cannot be used
    example: str  #: of these


@dataclass(frozen=True)
class Texts:
    """Character n-grams of a column of texts."""

    vocabulary: list[str]
    idf: FloatArray
    components: Float32Array  #: components × n-grams
    missing: bool  #: whether training had gaps

    def check(self) -> None:
        """Refuse fields that do not fit together."""
        idf = check.check_finite(self.idf, "idf", ndim=1)
        components = check.check_finite(self.components, "components", ndim=2)
        n_grams = len(set(self.vocabulary))
        if not n_grams == len(self.vocabulary) == len(idf) == components.shape[1]:
            raise ValueError("every n-gram must have a weight and a component")


class Encoded(NamedTuple):
    """A table as numbers, and what is to be said of its cells."""

    rows: Float32Array  #: rows × features
    gaps: list[str]  #: where cells are missing, as may well be
    surprises: list[str]  #: cells and columns that training did not have


@dataclass(frozen=True)
class TableEncoder:
    """How the columns of a table become features: made by :meth:`fit` or :meth:`restore`."""

    types: dict[str, Type]
    #: Date column → (format or None, whether some time of day was seen).
    formats: dict[str, tuple[str | None, bool]]
    units: FloatArray  #: what numbers and parts of dates are divided by (1, unless extreme),
    medians: FloatArray  #: what they are then centred at,
    missing: BoolArray  #: and whether they had gaps
    levels: dict[str, Levels]  #: category column → its levels
    #: Text column → its n-grams.
    texts: dict[str, Texts]
    left_out: dict[str, str]  #: column → why it is not used
    #: Column of numbers written as text → prefix, suffix, decimal mark, thousands separator.
    numerals: dict[str, tuple[str, str, str, str]]

    # ---------------------------------------------------------------- learning

    @classmethod
    def fit(
        cls,
        X: TableLike,
        *,
        categories: Iterable[str] = (),
        left_out: Mapping[str, str] | None = None,
    ) -> TableEncoder:
        """Choose the type of every column of a DataFrame and learn what it needs.

        Values of ``categories`` are names even where they look like numbers; ``left_out`` says why
        some columns are not used.
        """
        table = as_frame(X)
        forced = set(categories)
        none = np.zeros(0)
        new = cls({}, {}, none, none, none > 0, {}, {}, dict(left_out or {}), {})
        check_columns(table, [*forced, *new.left_out])
        for key, column in table.items():
            name = str(key)
            if name in new.left_out:
                continue
            reason = new._learn(name, column, name in forced)
            if reason is not None:
                new.left_out[name] = reason
        new._check_some_are_left()
        return new._with_scales(table)

    def _check_some_are_left(self) -> None:
        if self.types:
            return
        reasons = [f"{name!r}: {why}" for name, why in self.left_out.items()]
        said = "; ".join(reasons[:8]) or "it has none at all"
        raise ValueError(f"X has no column that could tell classes apart ({said})")

    def _learn(self, name: str, column: pd.Series, forced: bool) -> str | None:
        """Learn the type of a column, its levels or texts; return why it is left out, or None."""
        cells = read_cells(column, names=forced)
        if cells.kind == "words":
            return self._learn_names(name, cells.codes, cells.words)
        reason = _tells_nothing(cells.values)
        if reason is not None:
            return reason
        self.types[name] = "number"
        if cells.kind == "date":
            self.types[name] = "date"
            seconds = cells.values[:, DATE_PARTS.index("total_seconds")]
            timed = bool((seconds % 86400 > 0).any())  # of a day
            self.formats[name] = (cells.written, timed)
        elif cells.form is not None:
            self.numerals[name] = cells.form
        return None

    def _learn_names(
        self,
        name: str,
        codes: IntArray,
        words: list[str],
        few: int = 40,
        rows_per_level: int = 100,
    ) -> str | None:
        """Levels of a category; text where there are many.

        Up to ``few`` levels (skrub's default) are a category; up to 200 where each has some rows to
        be learned from.
        """
        if not words:
            return "it has no values"
        gaps = bool((codes < 0).any())
        if len(words) > max(few, min(200, len(codes) // rows_per_level)):
            self.types[name] = "text"
            self.texts[name] = _learn_texts(codes, words)
            return None
        levels: list[str | None] = [*sorted(words)]
        if gaps:
            levels.append(None)
        if len(levels) < 2:
            return "it has the same value in every row"
        self.types[name] = "category"
        self.levels[name] = tuple(levels)
        return None

    def _with_scales(self, table: pd.DataFrame) -> TableEncoder:
        """The encoder with units, medians and gaps of the numbers."""
        numbers = self._numbers(table, {})
        largest = np.nanmax(np.abs(numbers), axis=0, initial=0.0)
        extreme = (largest <= 1 / LARGEST) | (largest >= LARGEST)
        _, exponents = np.frexp(largest)
        powers_of_two = 2.0 ** exponents.clip(-1074, 1023)
        units = np.where(extreme & (largest > 0), powers_of_two, 1.0)
        medians = units
        if len(units):
            medians = np.nanmedian(numbers / units, axis=0)
        gaps = np.asarray(np.isnan(numbers).any(axis=0))
        return replace(self, units=units, medians=medians, missing=gaps)

    # ---------------------------------------------------------------- encoding

    @property
    def text_names(self) -> list[str]:
        """Columns to be read as they are written, such as codes with leading zeros."""
        names = [name for name, type_ in self.types.items() if type_ != "number"]
        return [*names, *self.numerals]

    @property
    def _number_names(self) -> list[str]:
        return [name for name, type_ in self.types.items() if type_ == "number"]

    @property
    def _slots(self) -> list[tuple[str, str]]:
        """(column, part) of every number; the part is "" for a column of numbers."""
        slots = [(name, "") for name in self._number_names]
        for name, (_, timed) in self.formats.items():
            parts = DATE_PARTS if timed else DATE_PARTS[:-1]
            slots += [(name, part) for part in parts]
        return slots

    @property
    def feature_names(self) -> list[str]:
        """Columns of the result."""
        one_row = pd.DataFrame(0.0, [0], list(self.types))
        return [name for names, _ in self._blocks(one_row, {}) for name in names]

    def transform(self, X: TableLike) -> Encoded:
        """The table as numbers, and what is to be said of its cells."""
        table = as_frame(X)
        check_columns(table, self.types, learned=True)
        odd: dict[str, Odd] = {}
        parts = [values.astype(np.float32) for _, values in self._blocks(table, odd)]
        surprises = self._surprises(odd, len(table))
        known = {*self.types, *self.left_out}
        extra = [name for name in map(str, table.columns) if name not in known]
        if extra:
            surprises.append(
                f"columns that the model does not know are ignored: {listed(extra)}"
            )
        gaps = self._gaps(odd, len(table))
        return Encoded(np.hstack(parts), gaps, surprises)

    def _blocks(self, table: pd.DataFrame, odd: dict[str, Odd]) -> Iterator[Block]:
        """Blocks of features; what is odd about a column is kept in ``odd``."""
        yield from self._number_blocks(table, odd)
        pairs = [name for name, levels in self.levels.items() if _is_pair(levels)]
        others = [name for name in self.levels if name not in pairs]
        for name in [*pairs, *others]:
            yield self._level_block(name, table[name], odd)
        for name in self.texts:
            yield from self._text_blocks(name, table[name], odd)

    def _number_blocks(
        self, table: pd.DataFrame, odd: dict[str, Odd]
    ) -> Iterator[Block]:
        slots = self._slots
        names = [f"{name} {part}".strip() for name, part in slots]
        numbers = self._numbers(table, odd)
        with np.errstate(over="ignore"):
            centred = numbers / self.units - self.medians
        gaps = np.isnan(centred)
        filled = np.where(gaps, 0.0, centred)
        yield names, filled.clip(-LARGEST, LARGEST)
        # Numbers with gaps in training, and the first part of dates with gaps.
        flagged = [
            k
            for k, (_, part) in enumerate(slots)
            if self.missing[k] and part in ("", DATE_PARTS[0])
        ]
        flags = [f"{slots[k][0]} missing" for k in flagged]
        yield flags, gaps[:, flagged]

    def _level_block(self, name: str, column: pd.Series, odd: dict[str, Odd]) -> Block:
        levels = self.levels[name]
        names = [_level_name(name, level) for level in levels]
        codes, words = as_levels(column)
        every = pd.Index([*words, None], dtype=object)
        places = pd.Index(levels, dtype=object).get_indexer(every)
        index = places[codes]
        missing = codes < 0
        unknown = index < 0
        _note_odd(odd, column, missing, unknown & ~missing)
        # A level never seen is half-way between two, or zero everywhere.
        if _is_pair(levels):
            second = np.where(unknown, 0.5, index)
            return names[1:], second[:, None]
        return names, index[:, None] == np.arange(len(levels))

    def _text_blocks(
        self, name: str, column: pd.Series, odd: dict[str, Odd]
    ) -> Iterator[Block]:
        codes, words = as_levels(column)
        texts = self.texts[name]
        # Of the words, the last row, zeros, is that of gaps.
        features = _text_features(texts, words)[codes]
        gaps = codes < 0
        empty = ~features.any(axis=1)
        _note_odd(odd, column, gaps, empty & ~gaps)
        yield [f"{name} {k + 1}" for k in range(features.shape[1])], features
        if texts.missing:
            yield [f"{name} missing"], gaps[:, None]

    def _numbers(self, table: pd.DataFrame, odd: dict[str, Odd]) -> FloatArray:
        """Numbers and parts of dates, one column per slot, nan where there is none."""
        blocks_of_numbers = {
            name: self._number_column(name, table[name])[:, None]
            for name in self._number_names
        }
        for name, (written, timed) in self.formats.items():
            blocks_of_numbers[name] = date_numbers(table[name], written, timed)
        for name, block in blocks_of_numbers.items():
            _note_gaps(odd, table[name], block[:, 0])
        none = np.empty((len(table), 0))
        return np.hstack([none, *blocks_of_numbers.values()])

    def _number_column(self, name: str, column: pd.Series) -> FloatArray:
        if name in self.numerals and not pd.api.types.is_numeric_dtype(column.dtype):
            codes, words = as_levels(column)
            form = NumberForm(*self.numerals[name])
            return np.append(form.parse(words), np.nan)[codes]
        return as_numbers(column)

    # ---------------------------------------------------------------- notes

    def _gaps(self, odd: dict[str, Odd], n_rows: int, most: int = 8) -> list[str]:
        """Where cells are missing, in one note; none where none are."""
        gaps = [
            f"{name} {odd[name].missing:,}"
            for name in self.types
            if name in odd and odd[name].missing
        ]
        if not gaps:
            return []
        more = ""
        if len(gaps) > most:
            more = f" and {len(gaps) - most} more columns"
        return [f"missing cells (of {n_rows:,} rows): {', '.join(gaps[:most])}{more}"]

    def _surprises(self, odd: dict[str, Odd], n_rows: int) -> list[str]:
        """Cells unlike those that the encoding was learned from."""
        notes = []
        for name, own in odd.items():
            if own.unknown:
                be = "is" if own.unknown == 1 else "are"
                notes.append(
                    f"column {name!r}: {own.unknown:,} of {n_rows:,} cells {be} "
                    f"{UNKNOWN[self.types[name]]} (such as {own.example!r})"
                )
        return notes

    def doubts(self, X: TableLike) -> list[str]:
        """Text that is read as numbers, and text that looks like numbers in more than one form."""
        table = as_frame(X)
        found = []
        for name, form in self.numerals.items():
            word = as_levels(table[name])[1][0]
            number = float(NumberForm(*form).parse([word])[0])
            found.append(
                f"column {name!r}: text is read as numbers (such as {word!r} as {number:g}); "
                f"categories=[{name!r}] keeps it as text"
            )
        for name in [*self.levels, *self.texts]:
            words = as_levels(table[name])[1]
            written = amounts(words)
            mostly = len(words) >= 20 and len(written) >= 0.9 * len(words)
            if mostly and not are_numbers(words):
                found.append(_looks_like_numbers(name, words, written))
        return found

    # ---------------------------------------------------------------- files

    @classmethod
    def restore(cls, tree: Mapping[str, Any]) -> TableEncoder:
        """The encoder whose tree a file holds; ValueError where it holds anything else."""
        new = from_tree(cls, tree)
        new._check_described()
        return new

    def _check_described(self) -> None:
        """Refuse fields that do not fit together."""
        described = {
            "date": set(self.formats),
            "category": set(self.levels),
            "text": set(self.texts),
        }
        for type_, names in described.items():
            if names != {name for name, own in self.types.items() if own == type_}:
                raise ValueError(
                    f"its {type_} columns are not described, or others are"
                )
        if not set(self.numerals) <= set(self._number_names):
            raise ValueError("numerals must be of columns of numbers")
        for name in ("units", "medians", "missing"):
            values = check.check_finite(getattr(self, name), name, ndim=1)
            check.one_each(values, len(self._slots), name, "number")
        if not self.types or (self.units <= 0).any():
            raise ValueError("every number must have a unit above 0")
        for texts in self.texts.values():
            texts.check()
        for levels in self.levels.values():
            if len(set(levels)) < max(len(levels), 2) or None in levels[:-1]:
                raise ValueError("levels must be different texts")


def _tells_nothing(values: FloatArray) -> str | None:
    """Why numbers (a column each) cannot tell classes apart, or None."""
    lost = np.isnan(values)
    if lost.all():
        return "it has no values"
    if not lost.any() and not np.ptp(values, axis=0).any():
        return "it has the same value in every row"
    return None


def _looks_like_numbers(name: str, words: list[str], written: list[str]) -> str:
    """Why a column whose ``written`` words look like numbers is text, and what to do about it."""
    said = f"column {name!r} is taken as text, but looks like numbers (such as {written[0]!r})"
    if are_numbers(written) or number_form(written) is not None:
        others = [word for word in words if word not in set(written)]
        return f"{said} except for {listed(others, 3)}: empty such cells to have it used as numbers"
    return f"{said} in more than one form or unit: write them alike to have them used as numbers"


def _is_pair(levels: Levels) -> bool:
    return len(levels) == 2 and None not in levels


def _level_name(name: str, level: str | None) -> str:
    return f"{name} missing" if level is None else f"{name}={level}"


def _empty_cells(column: pd.Series) -> BoolArray:
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column.isna().to_numpy()
    return np.asarray(as_levels(column)[0] < 0)


def _note_odd(
    odd: dict[str, Odd], column: pd.Series, missing: BoolArray, unknown: BoolArray
) -> None:
    example = str(column.iloc[int(unknown.argmax())])
    odd[str(column.name)] = Odd(int(missing.sum()), int(unknown.sum()), example)


def _note_gaps(odd: dict[str, Odd], column: pd.Series, values: FloatArray) -> None:
    """Note gaps of ``values``: missing cells, or cells that are not numbers."""
    gaps = np.isnan(values)
    if gaps.any():
        empty = _empty_cells(column)
        _note_odd(odd, column, empty, gaps & ~empty)


# ---------------------------------------------------------------- texts

#: How texts are cut into n-grams.
NGRAMS: dict[str, Any] = {"analyzer": "char_wb", "ngram_range": (3, 4)}


def _learn_texts(
    codes: IntArray, words: list[str], most_ngrams: int = 20_000, n_components: int = 30
) -> Texts:
    """The most frequent n-grams and their components: a file holds the product of both numbers."""
    from skrub import StringEncoder

    counted = CountVectorizer(**NGRAMS, max_features=most_ngrams).fit(words)
    vocabulary = sorted(counted.vocabulary_)
    encoder = StringEncoder(
        n_components, **NGRAMS, vocabulary=vocabulary, random_state=0
    )
    with warnings.catch_warnings():
        # Few n-grams: they are then kept as they are.
        warnings.simplefilter("ignore", UserWarning)
        encoder.fit_transform(pd.Series(words_of(codes, words), name="text"))
    components = np.eye(len(vocabulary))[:n_components]
    if hasattr(encoder, "tsvd_"):
        components = encoder.tsvd_.components_
    return Texts(
        vocabulary=vocabulary,
        idf=np.asarray(encoder.vectorizer_.idf_, dtype=np.float64),
        components=(components / encoder.scaling_factor_).astype(np.float32),
        missing=bool((codes < 0).any()),
    )


def _text_features(own: Texts, words: list[str], block: int = 20_000) -> Float32Array:
    """Components of ``words``, ``block`` at a time, and a last row of zeros."""
    vectorizer = TfidfVectorizer(**NGRAMS, vocabulary=own.vocabulary)
    vectorizer.idf_ = own.idf
    features = np.zeros((len(words) + 1, len(own.components)), dtype=np.float32)
    for rows in blocks(len(words), 1, block):
        weights = vectorizer.transform(words[rows])
        features[rows] = weights.astype(np.float32) @ own.components.T
    return features
