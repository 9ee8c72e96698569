"""A table of mixed columns as a matrix of numbers, by rules that a file can hold as plain values and arrays.

``number``: minus its median, which also stands in for missing cells. ``date``: its parts, as numbers. ``category``: one
feature per level, where a missing cell is a level like any other; two levels make one feature. ``text``: tf-idf of
character n-grams reduced by a truncated SVD (skrub's ``StringEncoder``). Missing cells of numbers, dates and texts have
a feature where training had some. None of them sees the label.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope._scaling import blocks
from collidescope.sample import check_table

Float32Array = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]
Met = dict[
    str, tuple[int, int, str]
]  #: column → missing cells, cells that cannot be used, an example of these

#: What stands for a missing cell: the words that skrub and pandas take for one.
MISSING_WORDS = (
    *(
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
    ),
    *("#N/A", "#NA", "#N/A N/A", "1.#QNAN", "-1.#QNAN", "1.#IND", "-1.#IND"),
)
TRUTH = {"true": 1.0, "false": 0.0}
LARGEST = 1e30  #: the largest feature: float32 could hold more, but not a sum of it over the rows
#: Up to this many levels (skrub's default) text is a category; more where each has some rows to be learned from.
FEW_LEVELS, MOST_LEVELS, ROWS_PER_LEVEL = 40, 200, 100
DATE_PARTS = (
    "year",
    "month",
    "day",
    "total_seconds",
    "weekday",
    "hour",
)  #: the hour only if one was seen
DAY = 86400  #: seconds
#: n-grams kept of a text column, the most frequent ones: a file has to hold this many times the components.
MOST_NGRAMS, COMPONENTS, NGRAMS = 20_000, 30, {"analyzer": "char_wb", "ngram_range": (3, 4)}
BLOCK = 20_000  #: texts turned into n-grams at once
PLAIN_NUMBER = re.compile(r"^[-+]?\d+([.,]\d+)?$")
#: Numbers with a currency, a unit or separators, and the share of the values that must look so.
DRESSED_NUMBER = re.compile(
    r"^[$€£¥]?\s*[-+]?(\d{1,3}([,'. ]\d{3})+|\d+)([.,]\d+)?\s*(%|[$€£¥]|[A-Za-zµ°/²³]{1,5})?$"
)
MOSTLY = 0.9
SHOWN = 8  #: names listed in one message
#: Types of columns, and what cells are that one of them cannot use.
UNKNOWN = {
    "number": "no numbers, taken as missing",
    "date": "no dates as in training, taken as missing",
    "category": "levels that training did not have",
    "text": "nothing in common with the texts of training",
}
NO_VALUES, ONE_VALUE = "it has no values", "it has the same value in every row"


def as_levels(
    column: pd.Series, missing: Sequence[str] = MISSING_WORDS
) -> tuple[IntArray, list[str]]:
    """Codes (-1 for missing) and the distinct texts they stand for, in order of appearance.

    >>> as_levels(pd.Series([2.0, None, " 2", "?", True]))
    (array([ 0, -1,  0, -1,  1]), ['2', 'True'])
    """
    text = pd.api.types.is_string_dtype(
        column.dtype
    )  # objects are quicker than extension arrays, column by column
    try:
        codes, values = pd.factorize(column.to_numpy(dtype=object) if text else column)
    except TypeError:  # lists and the like have no hash
        codes, values = pd.factorize(column.map(str))
    number: dict[str, int] = {}
    words = map(as_word, values.tolist())
    again = [-1 if word in missing else number.setdefault(word, len(number)) for word in words]
    return np.array([*again, -1], dtype=np.intp)[np.asarray(codes)], list(number)


def as_word(value: Any) -> str:
    """One value as text: whole numbers without a point (3.0 is "3"), no spaces around it."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return str(value).strip()


def as_numbers(column: pd.Series) -> FloatArray:
    """Numbers as float64: nan where a cell is missing, infinite, or text that is no number."""
    if pd.api.types.is_timedelta64_dtype(column.dtype):
        column = column.dt.total_seconds()
    if pd.api.types.is_numeric_dtype(column.dtype):  # booleans too
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        codes, words = as_levels(column)
        numbers = np.append(_parsed(words), np.nan)[codes]
    return np.where(np.isinf(numbers), np.nan, numbers)


def _parsed(words: Sequence[str]) -> FloatArray:
    values = np.array([TRUTH.get(word.lower(), word) for word in words], dtype=object)
    return np.asarray(pd.to_numeric(values, errors="coerce"), dtype=np.float64)


def _words(codes: IntArray, words: list[str]) -> npt.NDArray[Any]:
    return np.array([*words, None], dtype=object)[codes]


@dataclass(frozen=True)
class TableEncoder:
    """How the columns of a table become features: made by :meth:`fit` or :meth:`restore`."""

    types: dict[str, str]  #: column → "number", "date", "category" or "text"
    formats: dict[
        str, tuple[str | None, bool]
    ]  #: date column → (format or None, whether some time of day was seen)
    units: FloatArray  #: of every number and part of a date: what it is divided by (1, unless very large or small),
    medians: FloatArray  #: what it is then centred at,
    missing: BoolArray  #: and whether it had gaps
    levels: dict[
        str, tuple[str | None, ...]
    ]  #: category column → its levels, the last None where cells were missing
    texts: dict[
        str, dict[str, Any]
    ]  #: text column → n-grams ("vocabulary"), their "idf", "components", and "missing"
    left_out: dict[str, str]  #: column → why it is not used

    @classmethod
    def fit(
        cls, X: Any, *, categories: Iterable[str] = (), left_out: Mapping[str, str] | None = None
    ) -> TableEncoder:
        """Choose the type of every column of a DataFrame and learn what it needs.

        Values of ``categories`` are names even where they look like numbers; ``left_out`` says why some are not used.
        """
        table, forced, none = as_frame(X), set(categories), np.zeros(0)
        new = cls({}, {}, none, none, none > 0, {}, {}, dict(left_out or {}))
        check_columns(table, [*forced, *new.left_out])
        for name, column in table.items():
            if name not in new.left_out and (why := new._learn(str(name), column, name in forced)):
                new.left_out[str(name)] = why
        if not new.types:
            reasons = "; ".join(
                f"{name!r}: {why}" for name, why in list(new.left_out.items())[:SHOWN]
            )
            raise ValueError(
                f"X has no column that could tell classes apart ({reasons or 'it has none at all'})"
            )
        numbers = new._numbers(table, {})
        largest = np.nanmax(np.abs(numbers), axis=0, initial=0.0)
        ordinary = (largest == 0) | ((largest > 1 / LARGEST) & (largest < LARGEST))
        units = np.where(ordinary, 1.0, 2.0 ** np.frexp(largest)[1].clip(-1074, 1023))
        medians = np.nanmedian(numbers / units, axis=0) if len(units) else units
        return replace(
            new, units=units, medians=medians, missing=np.asarray(np.isnan(numbers).any(axis=0))
        )

    def _learn(self, name: str, column: pd.Series, forced: bool) -> str | None:
        """The type of one column, and for levels and texts all there is to learn; or why it is left out."""
        dtype, date_format = column.dtype, None
        free = not forced and not isinstance(dtype, pd.CategoricalDtype)
        if free and (
            pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_timedelta64_dtype(dtype)
        ):
            type_ = "number"
        elif free and pd.api.types.is_datetime64_any_dtype(dtype):
            type_ = "date"
        else:
            codes, words = as_levels(column)
            gaps = bool((codes < 0).any())
            if (
                words
                and free
                and np.isfinite(_parsed(words[:1])).all()
                and np.isfinite(_parsed(words)).all()
            ):
                type_ = "number"
            elif words and free and (date_format := _date_format(words)):
                type_ = "date"
            elif len(words) > max(FEW_LEVELS, min(MOST_LEVELS, len(column) // ROWS_PER_LEVEL)):
                type_, self.texts[name] = "text", _learn_texts(codes, words)
            elif len(words) + (gaps and bool(words)) > 1:
                type_, self.levels[name] = "category", (*sorted(words), *[None] * gaps)
            else:
                return ONE_VALUE if words else NO_VALUES
        if type_ in ("number", "date"):
            values = as_numbers(column) if type_ == "number" else _date_numbers(column, date_format)
            lost = np.isnan(values)
            if lost.all() or (not lost.any() and not np.ptp(values, axis=0).any()):
                return NO_VALUES if lost.all() else ONE_VALUE
            if type_ == "date":
                self.formats[name] = (
                    date_format,
                    bool((values[:, DATE_PARTS.index("total_seconds")] % DAY > 0).any()),
                )
        self.types[name] = type_
        return None

    @property
    def text_names(self) -> list[str]:
        """Columns to be read as they are written, such as codes with leading zeros."""
        return [name for name, type_ in self.types.items() if type_ != "number"]

    @property
    def _slots(self) -> list[tuple[str, str]]:
        """(column, part) of every number; the part is "" for a column of numbers."""
        numbers = [(name, "") for name, type_ in self.types.items() if type_ == "number"]
        dates = [
            (name, part)
            for name, (_, timed) in self.formats.items()
            for part in DATE_PARTS[: 5 + timed]
        ]
        return numbers + dates

    @property
    def feature_names(self) -> list[str]:
        """Columns of the result."""
        one_row = pd.DataFrame(0.0, [0], list(self.types))
        return [name for names, _ in self._blocks(one_row, {}) for name in names]

    def transform(self, X: Any) -> tuple[Float32Array, list[str]]:
        """The table as numbers, rows × features, and notes on what it met on the way."""
        table = as_frame(X)
        check_columns(table, self.types, learned=True)
        met: Met = {}
        features = np.hstack([own.astype(np.float32) for _, own in self._blocks(table, met)])
        known = {*self.types, *self.left_out}
        extra = [str(name) for name in table.columns if str(name) not in known]
        ignored = (
            [f"columns that the model does not know are ignored: {listed(extra)}"] if extra else []
        )
        return features, self._notes(met, len(table)) + ignored

    def _blocks(
        self, table: pd.DataFrame, met: Met
    ) -> Iterator[tuple[list[str], npt.NDArray[Any]]]:
        """Names and values of the features, block by block; what is odd about a column is noted in ``met``."""
        slots = self._slots
        with np.errstate(over="ignore"):
            numbers = self._numbers(table, met) / self.units - self.medians
        gaps = np.isnan(numbers)
        yield (
            [f"{name} {part}".strip() for name, part in slots],
            np.where(gaps, 0.0, numbers).clip(-LARGEST, LARGEST),
        )
        # Numbers with gaps in training, and the first part of dates with gaps.
        flagged = [
            k
            for k, (_, part) in enumerate(slots)
            if self.missing[k] and part in ("", DATE_PARTS[0])
        ]
        yield [f"{slots[k][0]} missing" for k in flagged], gaps[:, flagged]
        for name, own in sorted(self.levels.items(), key=lambda item: not _is_pair(item[1])):
            codes, words = as_levels(table[name])
            place = {level: k for k, level in enumerate(own)}
            index = np.array([*(place.get(word, -1) for word in words), place.get(None, -1)])[codes]
            _meet(met, table[name], codes < 0, (index < 0) & (codes >= 0))
            names = [f"{name} missing" if level is None else f"{name}={level}" for level in own]
            # A level never seen is half-way between two, or zero everywhere.
            pair = names[1:], np.where(index < 0, 0.5, index)[:, None]
            yield pair if _is_pair(own) else (names, index[:, None] == np.arange(len(own)))
        for name, texts in self.texts.items():
            codes, words = as_levels(table[name])
            features = _text_features(texts, words)[
                codes
            ]  # the last row, of zeros, is that of missing cells
            lost = codes < 0
            _meet(met, table[name], lost, ~features.any(axis=1) & ~lost)
            yield [f"{name} {k}" for k in range(1, features.shape[1] + 1)], features
            yield [f"{name} missing"] * texts["missing"], lost[:, None][:, : texts["missing"]]

    def _numbers(self, table: pd.DataFrame, met: Met) -> FloatArray:
        """Numbers and parts of dates, one column per slot, nan where there is none."""
        names = [name for name, type_ in self.types.items() if type_ == "number"]
        plain = {dtype: pd.api.types.is_numeric_dtype(dtype) for dtype in set(table.dtypes)}
        own = table[names]
        if all(plain[dtype] for dtype in own.dtypes):  # at once: there may be many
            numbers = own.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
            numbers[np.isinf(numbers)] = np.nan
        else:
            numbers = np.column_stack([as_numbers(column) for _, column in own.items()])
        dates = [_date_numbers(table[name], *how) for name, how in self.formats.items()]
        lost = [*np.isnan(numbers).T, *(np.isnan(parts[:, 0]) for parts in dates)]
        for name, gaps in zip([*names, *self.formats], lost, strict=True):
            if gaps.any():
                empty = (
                    table[name].isna().to_numpy()
                    if plain[table[name].dtype]
                    else as_levels(table[name])[0] < 0
                )
                _meet(met, table[name], empty, gaps & ~empty)
        return np.hstack([numbers.reshape(len(table), -1), *dates])

    def _notes(self, met: Met, n_rows: int) -> list[str]:
        gaps = [f"{name} {met[name][0]:,}" for name in self.types if name in met and met[name][0]]
        more = f" and {len(gaps) - SHOWN} more columns" if len(gaps) > SHOWN else ""
        notes = (
            [f"missing cells (of {n_rows:,} rows): {', '.join(gaps[:SHOWN])}{more}"] if gaps else []
        )
        return notes + [
            f"column {name!r}: {unknown:,} of {n_rows:,} cells are {UNKNOWN[self.types[name]]} (such as {example!r})"
            for name, (_, unknown, example) in met.items()
            if unknown
        ]

    def doubts(self, X: Any) -> list[str]:
        """Columns taken as text that look like numbers with a unit or separators."""
        found, table = [], as_frame(X)
        for name in [*self.levels, *self.texts]:
            words = as_levels(table[name])[1]
            dressed = [
                word
                for word in words
                if DRESSED_NUMBER.match(word) and not PLAIN_NUMBER.match(word)
            ]
            if len(words) >= FEW_LEVELS / 2 and len(dressed) >= MOSTLY * len(words):
                found.append(
                    f"column {name!r} is taken as text, but looks like numbers (such as {dressed[0]!r}): write them "
                    f"plainly, without units and thousands separators, to have them used as numbers"
                )
        return found

    @classmethod
    def restore(cls, tree: Mapping[str, Any]) -> TableEncoder:
        """The encoder whose ``vars`` a file holds; LookupError, TypeError, ValueError or AttributeError otherwise."""
        arrays = ("units", "medians", "missing")
        units, medians, missing = (check.check_finite(tree[name], name, ndim=1) for name in arrays)
        types = {
            name: check.check_choice(own, list(UNKNOWN), "type")
            for name, own in tree["types"].items()
        }
        word = partial(check.check_text, optional=True)
        formats = {name: (word(own), bool(timed)) for name, (own, timed) in tree["formats"].items()}
        levels = {name: tuple(map(word, own)) for name, own in tree["levels"].items()}
        texts = {name: _restored_texts(own) for name, own in tree["texts"].items()}
        left_out = {name: check.check_text(why) for name, why in tree["left_out"].items()}
        new = cls(types, formats, units, medians, missing > 0, levels, texts, left_out)
        for type_, names in (("date", {*formats}), ("category", {*levels}), ("text", {*texts})):
            if names != {name for name in types if types[name] == type_}:
                raise ValueError(f"its {type_} columns are not described, or others are")
        if (
            not types
            or {len(units), len(medians), len(missing)} != {len(new._slots)}
            or (new.units <= 0).any()
        ):
            raise ValueError("every number must have a median and a unit above 0")
        if any(
            len(own) < 2 or len(set(own)) != len(own) or None in own[:-1] for own in levels.values()
        ):
            raise ValueError("levels must be different texts")
        return new


def _is_pair(levels: tuple[str | None, ...]) -> bool:
    return len(levels) == 2 and None not in levels


def _meet(met: Met, column: pd.Series, missing: BoolArray, unknown: BoolArray) -> None:
    met[str(column.name)] = (
        int(missing.sum()),
        int(unknown.sum()),
        str(column.iloc[int(unknown.argmax())]),
    )


def _date_format(words: list[str]) -> str | None:
    """The format in which all of ``words`` are dates, as skrub guesses it, or None."""
    from skrub import ToDatetime

    if not any(character.isdigit() for character in words[0]):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            found: str | None = ToDatetime().fit(pd.Series(words, name="d", dtype=object)).format_
        except ValueError:
            return None
    return found


def _date_numbers(column: pd.Series, date_format: str | None, timed: bool = True) -> FloatArray:
    """The parts of dates (in UTC where they have a time zone), nan where there is none."""
    if not pd.api.types.is_datetime64_any_dtype(column.dtype):
        column, date_format = pd.Series(_words(*as_levels(column))), date_format or "ISO8601"
    dates = pd.to_datetime(column, format=date_format, errors="coerce", utc=True).dt.tz_localize(
        None
    )
    seconds, own = (dates - pd.Timestamp(0)).dt.total_seconds(), dates.dt
    parts: list[Any] = [
        own.year,
        own.month,
        own.day,
        seconds,
        own.day_of_week,
        own.hour,
    ]  # as in DATE_PARTS
    return np.column_stack([part.to_numpy(np.float64) for part in parts[: 5 + timed]])


def _learn_texts(codes: IntArray, words: list[str]) -> dict[str, Any]:
    from skrub import StringEncoder

    vocabulary = sorted(CountVectorizer(**NGRAMS, max_features=MOST_NGRAMS).fit(words).vocabulary_)
    encoder = StringEncoder(COMPONENTS, **NGRAMS, vocabulary=vocabulary, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # few n-grams: they are then kept as they are
        encoder.fit_transform(pd.Series(_words(codes, words), name="text"))
    reduced = getattr(encoder, "tsvd_", None)
    components = np.eye(len(vocabulary))[:COMPONENTS] if reduced is None else reduced.components_
    scaled = (components / encoder.scaling_factor_).astype(np.float32)
    idf = np.asarray(encoder.vectorizer_.idf_, dtype=np.float64)
    return {
        "vocabulary": vocabulary,
        "idf": idf,
        "components": scaled,
        "missing": bool((codes < 0).any()),
    }


def _text_features(own: Mapping[str, Any], words: list[str]) -> Float32Array:
    vectorizer = TfidfVectorizer(
        **NGRAMS, vocabulary={gram: k for k, gram in enumerate(own["vocabulary"])}
    )
    vectorizer.idf_ = own["idf"]
    features = np.zeros((len(words) + 1, len(own["components"])), dtype=np.float32)
    for block in blocks(len(words), 1, BLOCK):
        features[block] = (
            vectorizer.transform(words[block]).astype(np.float32) @ own["components"].T
        )
    return features


def _restored_texts(own: Mapping[str, Any]) -> dict[str, Any]:
    vocabulary, idf = (
        list(map(check.check_text, own["vocabulary"])),
        check.check_finite(own["idf"], "idf", ndim=1),
    )
    components = check.check_finite(own["components"], "components", ndim=2).astype(np.float32)
    if not len(set(vocabulary)) == len(vocabulary) == len(idf) == components.shape[1]:
        raise ValueError("every n-gram must have a weight and a component")
    return {
        "vocabulary": vocabulary,
        "idf": idf,
        "components": components,
        "missing": bool(own["missing"]),
    }


def as_frame(X: Any) -> pd.DataFrame:
    """``X`` as a pandas DataFrame with text names: pandas, polars, pyarrow, or whatever has ``__arrow_c_stream__``."""
    if not isinstance(X, pd.DataFrame) and hasattr(X, "__arrow_c_stream__"):
        import pyarrow as pa

        X = pa.table(X).to_pandas()
    if not isinstance(X, pd.DataFrame):
        raise ValueError(
            f"X must be a DataFrame with named columns (pandas or polars), got {type(X).__name__}"
        )
    return (
        X
        if all(isinstance(name, str) for name in X.columns)
        else X.set_axis(list(map(str, X.columns)), axis=1)
    )


def check_columns(table: pd.DataFrame, names: Iterable[str], *, learned: bool = False) -> None:
    """Refuse a table that has no rows, has a column twice, or lacks one of ``names``."""
    have = dict(zip(map(str, table.columns), table.dtypes, strict=True))
    if len(table) == 0:
        raise ValueError("X has no rows: pass at least one")
    check_table(table)
    if name := next(
        (name for name, dtype in have.items() if getattr(dtype, "kind", "") == "c"), None
    ):
        raise ValueError(
            f"X has complex numbers in the column {name!r}: pass their parts as two columns"
        )
    if missing := [name for name in names if name not in have]:
        near = {name: near_name(name, list(have)) for name in missing[:SHOWN]}
        hint = "; ".join(
            f"is {name!r} now called {found!r}?" for name, found in near.items() if found
        )
        which = "that the model was fitted on" if learned else "that you named"
        raise ValueError(
            f"X lacks {'columns' if len(missing) > 1 else 'a column'} {which}: {listed(missing)}. "
            f"It has {listed(list(have))}" + (f" ({hint})" if hint else "")
        )


def near_name(name: str, names: Sequence[str]) -> str | None:
    """The name most like ``name``, whatever its case and its spaces, or None."""
    plain = {other.strip().casefold(): other for other in names}
    found = get_close_matches(name.strip().casefold(), list(plain), 1, 0.7)
    return plain[found[0]] if found else None


def listed(names: Sequence[Any]) -> str:
    """The first names, in quotes, and how many more."""
    shown = ", ".join(repr(str(name)) for name in names[:SHOWN])
    return shown + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
