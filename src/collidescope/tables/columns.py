"""One column of a table as numbers, by kind. What a column has learned is plain values and arrays, never code.

Kinds: ``number`` (centred at its median, which also stands in for what is missing), ``category`` (one feature a level),
``date`` (year, month, day, weekday, hour, seconds: skrub's :class:`~skrub.DatetimeEncoder`) and ``text`` (skrub's
:class:`~skrub.StringEncoder`: tf-idf of character n-grams, reduced by a truncated SVD). Where cells were missing in
training one more feature says so. None of them looks at the label.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope._checks import FloatArray
from collidescope.tables._values import LARGEST, as_dates, as_levels, as_numbers, as_text, float32

if TYPE_CHECKING:
    import pandas as pd

Float32Array = npt.NDArray[np.float32]
Arrays = Mapping[str, npt.NDArray[Any]]

#: Parts of a date; the hour only where some time of day was seen.
DATE_PARTS = ("year", "month", "day", "total_seconds", "weekday")
#: n-grams kept of a text column, the most frequent ones: what a file has to hold is this times the components.
MOST_NGRAMS = 20_000
COMPONENTS = 30
NGRAMS = {"analyzer": "char_wb", "ngram_range": (3, 4)}
#: Texts turned into n-grams at once.
BLOCK = 20_000


class Encoded(NamedTuple):
    """Features of one column, and what it met: missing cells, cells it cannot read, an example of these."""

    features: Float32Array
    missing: int
    unknown: int
    example: str | None = None


@dataclass(frozen=True)
class Column:
    """What all kinds share.

    Parameters
    ----------
    name : str
    has_missing : bool
        Were cells missing in training?
    """

    kind: ClassVar[str] = ""
    name: str
    has_missing: bool

    def outputs(self) -> list[str]:
        """Names of the features."""
        return [*self._names(), *([f"{self.name} missing"] if self.has_missing else [])]

    def encode(self, column: pd.Series) -> Encoded:
        """The features of ``column``."""
        found = self._encode(column)
        missing = _is_missing(column)
        if not self.has_missing:
            return found
        return found._replace(features=np.column_stack([found.features, float32(missing)]))

    def state(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"kind": self.kind, "name": self.name, "has_missing": self.has_missing}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """What is too large for JSON."""
        return {}

    @classmethod
    def restore(cls, state: Mapping[str, Any], arrays: Arrays) -> Column:
        """The inverse of ``state`` and ``arrays``."""
        raise NotImplementedError

    def _names(self) -> list[str]:
        raise NotImplementedError

    def _encode(self, column: pd.Series) -> Encoded:
        raise NotImplementedError


@dataclass(frozen=True)
class NumberColumn(Column):
    """Numbers less their median, in units that float32 can hold: 1, unless they are very large or very small."""

    kind = "number"
    median: float
    unit: float = 1.0

    @classmethod
    def fit(cls, column: pd.Series) -> NumberColumn:
        """Learn the median and the unit."""
        numbers = as_numbers(column)
        largest = float(np.nanmax(np.abs(numbers)))
        unit = 1.0 if largest == 0 or 1 / LARGEST < largest < LARGEST else 2.0 ** np.frexp(largest)[1].clip(-1074, 1023)
        median = float(np.nanmedian(numbers / unit)) * unit
        return cls(str(column.name), bool(np.isnan(numbers).any()), median, unit)

    def state(self) -> dict[str, Any]:
        return super().state() | {"median": self.median, "unit": self.unit}

    @classmethod
    def restore(cls, state: Mapping[str, Any], arrays: Arrays) -> NumberColumn:
        own = {"unit": 1.0} | dict(state)  # which files of the first release do not have
        median, unit = (float(check.check_finite(own[name], name, ndim=0)) for name in ("median", "unit"))
        if unit <= 0:
            raise ValueError(f"unit of column {state['name']!r} must be above 0, got {unit}")
        return cls(*_common(state), median, unit)

    def _names(self) -> list[str]:
        return [self.name]

    def encode(self, column: pd.Series) -> Encoded:
        numbers = as_numbers(column)
        none = np.isnan(numbers)
        empty = _is_missing(column)
        with np.errstate(over="ignore"):
            features = float32(np.where(none, 0.0, numbers / self.unit - self.median / self.unit))[:, None]
        if self.has_missing:
            features = np.column_stack([features, float32(none)])
        strange = none & ~empty
        return Encoded(features, int(empty.sum()), int(strange.sum()), _example(column, strange))


@dataclass(frozen=True)
class CategoryColumn(Column):
    """A feature a level; a level never seen in training has zero in all of them.

    Two levels make one feature, 0 and 1, with a half for a level never seen.
    """

    kind = "category"
    levels: tuple[str, ...]

    @classmethod
    def fit(cls, column: pd.Series) -> CategoryColumn:
        """Learn the levels."""
        codes, words = as_levels(column)
        return cls(str(column.name), bool((codes < 0).any()), tuple(sorted(words)))

    def state(self) -> dict[str, Any]:
        return super().state() | {"levels": list(self.levels)}

    @classmethod
    def restore(cls, state: Mapping[str, Any], arrays: Arrays) -> CategoryColumn:
        levels = tuple(state["levels"])
        if not levels or not all(isinstance(level, str) for level in levels) or len(set(levels)) < len(levels):
            raise ValueError(f"levels of column {state['name']!r} must be different texts")
        return cls(*_common(state), levels)

    def _names(self) -> list[str]:
        return [f"{self.name}={level}" for level in (self.levels[1:] if len(self.levels) == 2 else self.levels)]

    def _encode(self, column: pd.Series) -> Encoded:
        codes, words = as_levels(column)
        position = {level: k for k, level in enumerate(self.levels)}
        numbers = np.array([*(position.get(word, -1) for word in words), -1], dtype=np.intp)[codes]
        if len(self.levels) == 2:
            features = float32(np.array([0.0, 1.0, 0.5])[numbers])[:, None]
        else:
            features = float32(numbers[:, None] == np.arange(len(self.levels)))
        unknown = (numbers < 0) & (codes >= 0)
        return Encoded(features, int((codes < 0).sum()), int(unknown.sum()), _example(column, unknown))


@dataclass(frozen=True)
class DateColumn(Column):
    """Parts of a date, each less its median."""

    kind = "date"
    date_format: str | None
    parts: tuple[str, ...]
    medians: tuple[float, ...]

    @classmethod
    def fit(cls, column: pd.Series, date_format: str | None) -> DateColumn:
        """Learn the parts and their medians."""
        dates = as_dates(column, date_format)
        timed = bool((dates.dropna() != dates.dropna().dt.normalize()).any())
        parts = (*DATE_PARTS, "hour") if timed else DATE_PARTS
        medians = np.nanmedian(date_parts(dates, parts), axis=0)
        return cls(str(column.name), bool(dates.isna().any()), date_format, parts, tuple(medians.tolist()))

    def state(self) -> dict[str, Any]:
        own = {"date_format": self.date_format, "parts": list(self.parts), "medians": list(self.medians)}
        return super().state() | own

    @classmethod
    def restore(cls, state: Mapping[str, Any], arrays: Arrays) -> DateColumn:
        parts, date_format = tuple(state["parts"]), state["date_format"]
        medians = check.check_finite(state["medians"], "medians", ndim=1)
        if not set(parts) <= {*DATE_PARTS, "hour"} or len(medians) != len(parts):
            raise ValueError(f"parts of the dates in column {state['name']!r} must have a median each")
        if date_format is not None and not isinstance(date_format, str):
            raise ValueError(f"date_format must be text, got {date_format!r}")
        return cls(*_common(state), date_format, parts, tuple(medians.tolist()))

    def _names(self) -> list[str]:
        return [f"{self.name} {part}" for part in self.parts]

    def encode(self, column: pd.Series) -> Encoded:
        dates = as_dates(column, self.date_format)
        none = dates.isna().to_numpy()
        features = float32(np.nan_to_num(date_parts(dates, self.parts) - np.array(self.medians), nan=0.0))
        if self.has_missing:
            features = np.column_stack([features, float32(none)])
        empty = _is_missing(column)
        strange = none & ~empty
        return Encoded(features, int(empty.sum()), int(strange.sum()), _example(column, strange))


def date_parts(dates: pd.Series, parts: tuple[str, ...]) -> FloatArray:
    """``parts`` of ``dates`` by skrub's encoder, float64, nan where there is no date."""
    from skrub import DatetimeEncoder

    found = DatetimeEncoder(resolution="hour", add_weekday=True).fit_transform(dates.rename("d"))
    # The encoder leaves the hour out where every date is at midnight: it is 0 then.
    wanted = found.reindex(columns=[f"d_{part}" for part in parts], fill_value=0.0)
    return wanted.to_numpy(dtype=np.float64)


@dataclass(frozen=True)
class TextColumn(Column):
    """Text with too many values for levels."""

    kind = "text"
    vocabulary: tuple[str, ...]
    idf: FloatArray
    components: Float32Array

    @classmethod
    def fit(cls, column: pd.Series) -> TextColumn:
        """Learn n-grams, their weights and the components."""
        from sklearn.feature_extraction.text import CountVectorizer
        from skrub import StringEncoder

        texts = as_text(column)
        given = texts.dropna()
        counter = CountVectorizer(**NGRAMS, max_features=MOST_NGRAMS).fit(given.drop_duplicates())
        vocabulary = sorted(counter.vocabulary_)
        encoder = StringEncoder(COMPONENTS, **NGRAMS, vocabulary=vocabulary, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # few n-grams: they are then kept as they are
            encoder.fit_transform(texts.rename("text"))
        reduced = getattr(encoder, "tsvd_", None)
        components = np.eye(len(vocabulary))[:COMPONENTS] if reduced is None else reduced.components_
        idf = np.asarray(encoder.vectorizer_.idf_, dtype=np.float64)
        scaled = (components / encoder.scaling_factor_).astype(np.float32)
        return cls(str(column.name), bool(texts.isna().any()), tuple(vocabulary), idf, scaled)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        words = np.frombuffer("\n".join(self.vocabulary).encode(), dtype=np.uint8)
        return {"vocabulary": words, "idf": self.idf, "components": self.components}

    @classmethod
    def restore(cls, state: Mapping[str, Any], arrays: Arrays) -> TextColumn:
        vocabulary = tuple(arrays["vocabulary"].tobytes().decode().split("\n"))
        idf = check.check_finite(arrays["idf"], "idf", ndim=1)
        components = arrays["components"]
        check.check_finite(components, "components", ndim=2)
        if len(set(vocabulary)) != len(idf) or components.shape[1] != len(idf):
            raise ValueError(f"n-grams of column {state['name']!r} must have a weight and a component each")
        return cls(*_common(state), vocabulary, idf, components)

    def _names(self) -> list[str]:
        return [f"{self.name} {k}" for k in range(1, len(self.components) + 1)]

    def _encode(self, column: pd.Series) -> Encoded:
        from sklearn.feature_extraction.text import TfidfVectorizer

        vectorizer = TfidfVectorizer(**NGRAMS, vocabulary={gram: k for k, gram in enumerate(self.vocabulary)})
        vectorizer.idf_ = self.idf
        codes, words = as_levels(column)
        features = np.zeros((len(words) + 1, len(self.components)), dtype=np.float32)
        for start in range(0, len(words), BLOCK):
            block = slice(start, min(start + BLOCK, len(words)))
            features[block] = vectorizer.transform(words[block]).astype(np.float32) @ self.components.T
        empty = ~features[:-1].any(axis=1)
        unknown = np.append(empty, False)[codes]
        return Encoded(features[codes], int((codes < 0).sum()), int(unknown.sum()), _example(column, unknown))


KINDS: dict[str, type[Column]] = {
    column.kind: column for column in (NumberColumn, CategoryColumn, DateColumn, TextColumn)
}


def _common(state: Mapping[str, Any]) -> tuple[str, bool]:
    if not isinstance(state["name"], str) or not isinstance(state["has_missing"], bool):
        raise ValueError("a column must have a name, and say whether cells were missing")
    return state["name"], state["has_missing"]


def _is_missing(column: pd.Series) -> npt.NDArray[np.bool_]:
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column.dtype) or pd.api.types.is_datetime64_any_dtype(column.dtype):
        return column.isna().to_numpy(dtype=bool)
    return as_levels(column)[0] < 0


def _example(column: pd.Series, which: npt.NDArray[np.bool_]) -> str | None:
    return str(column.iloc[int(which.argmax())]) if which.any() else None
