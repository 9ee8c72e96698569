"""Frozen dataclasses as trees of arrays and plain values, written and read by the types of fields.

:func:`to_tree` makes the tree that :mod:`collidescope._store` writes to a file; :func:`from_tree`
is its inverse. A dataclass becomes a dict with the name of its class under "type". The types of
its fields say what they may hold:

    bool, int, float, str, None, enums, Literal, Any     as in JSON; floats are finite
    Annotated[float, 0.0, 1.0], Annotated[int, 1, 80]    within these limits
    Annotated[float, "infinite"]                         infinite ones too
    Annotated[int, "d"]                                  the size that is called d
    Annotated[array, "f4 K d"]                           of this dtype and shape: a letter is the
    Annotated[array, "u1|u2 n 3"]                        same number everywhere; floats are finite
    array                                                any array
    list[T], tuple[T, ...], tuple[A, B], dict[str, T]    parts of such types
    A | B                                                a dataclass by the name under "type"
    a class with the classmethod restore(tree)           what its method export() made

A file may come from anyone: unknown, missing and ill-typed fields are refused with a ValueError
that names them. What types cannot say, a class says in ``__post_init__``. An abstract dataclass
finds the subclass that a tree describes by its classmethod ``saved_class(tree)``. Fields with
the metadata :data:`NOT_SAVED` are not written.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
import numpy.typing as npt

TYPE = "type"  #: the key that names the class of a dataclass
LARGEST_NUMBER = 1e9  #: of arrays of floats: larger ones would soon overflow float32
LARGEST_FLOAT = float(np.finfo(np.float64).max)
#: Metadata of a field that a file does not hold: ``field(default=None, metadata=NOT_SAVED)``.
NOT_SAVED = {"saved": False}
T = TypeVar("T")


def to_tree(value: object) -> Any:
    """``value`` as nested dicts and lists of arrays, text, numbers, booleans and None.

    >>> to_tree((1.5, {"a": [None, True]}))
    [1.5, {'a': [None, True]}]
    """
    if isinstance(value, Enum):
        return value.value
    kind = type(value)
    if _saves_itself(kind):
        return value.export()  # type: ignore[attr-defined]
    if dataclasses.is_dataclass(value):
        tree = {TYPE: kind.__name__}
        for name in saved_fields(kind):
            tree[name] = to_tree(getattr(value, name))
        return tree
    if isinstance(value, Mapping):
        return {key: to_tree(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_tree(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return np.array(value)  # JSON has no infinite numbers
    return value


def from_tree(
    cls: type[T],
    tree: object,
    sizes: Mapping[str, int] | None = None,
    given: Mapping[str, Any] | None = None,
) -> T:
    """The dataclass ``cls`` that :func:`to_tree` wrote; ValueError on anything else.

    ``sizes`` are those that arrays must have, by their letters; ``given`` are the values of
    unsaved fields, by name.
    """
    reader = _Reader(dict(sizes or {}), given or {})
    value: T = reader.read(cls, tree, cls.__name__)
    return value


def _saves_itself(cls: object) -> bool:
    """Whether a class has its own form in files: ``export`` and ``restore``."""
    return hasattr(cls, "export") and hasattr(cls, "restore")


def saved_fields(cls: type) -> list[str]:
    """The names of the fields that a file holds."""
    return [
        field.name
        for field in dataclasses.fields(cls)
        if field.metadata.get("saved", True)
    ]


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls, include_extras=True)


class _Reader:
    """Values by their types. A dataclass shares the sizes of what it is part of."""

    def __init__(self, sizes: dict[str, int], given: Mapping[str, Any]) -> None:
        self.sizes = sizes
        self.given = given

    def read(self, kind: Any, value: object, where: str) -> Any:
        """``value``, when it is of type ``kind``; ``where`` is its name in errors."""
        origin = get_origin(kind) or kind
        if kind is Any:
            return value
        if origin is Annotated:
            return self._annotated(kind, value, where)
        if origin in (Union, types.UnionType):
            return self._one_of(get_args(kind), value, where)
        if origin is Literal:
            return _choice(value, get_args(kind), where)
        if origin in (list, Sequence, tuple):
            return self._sequence(kind, origin, value, where)
        if origin in (dict, Mapping):
            return self._mapping(kind, value, where)
        # from numpy 2.5 on an alias has its own origin
        if origin in (np.ndarray, npt.NDArray):
            return _instance(value, np.ndarray, where)
        if _saves_itself(kind):
            return kind.restore(value)
        if not isinstance(kind, type):
            return _plain(kind, value, where)
        if dataclasses.is_dataclass(kind):
            return self._dataclass(kind, value, where)
        if issubclass(kind, Enum):
            choices = [member.value for member in kind]
            return kind(_choice(value, choices, where))
        return _plain(kind, value, where)

    def _dataclass(self, cls: type, tree: object, where: str) -> Any:
        if not isinstance(tree, Mapping):
            raise ValueError(f"{where} must be a {cls.__name__}, got {_short(tree)}")
        chosen = _chosen(cls, tree, where)
        names = saved_fields(chosen)
        wrong = (set(tree) - {TYPE}).symmetric_difference(names)
        if wrong:
            raise ValueError(
                f"{where} has fields too many or too few: {sorted(map(str, wrong))}"
            )
        hints = _hints(chosen)
        # its own sizes say nothing about others
        inside = _Reader(dict(self.sizes), self.given)
        values = {
            name: inside.read(hints[name], tree[name], f"{where}.{name}")
            for name in names
        }
        every = {field.name for field in dataclasses.fields(chosen)}
        unsaved = every - set(names)
        values |= {name: part for name, part in self.given.items() if name in unsaved}
        return chosen(**values)

    def _annotated(self, kind: object, value: object, where: str) -> Any:
        base, form, *limits = get_args(kind)
        if limits:
            (high,) = limits
            return _between(_plain(base, value, where), form, high, where)
        if form == "infinite":
            return _any_float(value, where)
        if base is int:
            number = _plain(int, value, where)
            size = self.sizes.setdefault(form, number)
            if number != size:
                raise ValueError(f"{where} must be {size}, got {number}")
            return number
        return self._array(form, value, where)

    def _array(self, form: str, value: object, where: str) -> npt.NDArray[Any]:
        dtypes, *letters = form.split()
        wanted = tuple(map(self._size, letters))
        array = check_array(value, where, dtypes.split("|"), wanted)
        for letter, size in zip(letters, array.shape, strict=True):
            if self.sizes.setdefault(letter, size) != size:  # a letter twice
                raise ValueError(f"{where} must have shape {form}, got {array.shape}")
        return array

    def _size(self, letter: str) -> int | None:
        if letter.isdigit():
            return int(letter)
        return self.sizes.get(letter)

    def _one_of(self, kinds: Sequence[Any], value: object, where: str) -> Any:
        classes: list[Any] = [kind for kind in kinds if dataclasses.is_dataclass(kind)]
        if isinstance(value, Mapping) and classes:
            chosen = classes[0]
            for own in classes:
                if own.__name__ == value.get(TYPE):
                    chosen = own
            return self.read(chosen, value, where)
        errors = []
        for kind in kinds:
            try:
                return self.read(kind, value, where)
            except ValueError as error:
                errors.append(str(error))
        raise ValueError("; or ".join(errors))

    def _sequence(self, kind: object, origin: object, value: object, where: str) -> Any:
        parts = _instance(value, list, where)
        kinds = get_args(kind)
        if origin is not tuple or kinds[-1:] == (...,):
            kinds = kinds[:1] * len(parts)
        if len(parts) != len(kinds):
            raise ValueError(f"{where} must have {len(kinds)} parts, got {len(parts)}")
        read = [
            self.read(own, part, f"{where}[{number}]")
            for number, (own, part) in enumerate(zip(kinds, parts, strict=True))
        ]
        return tuple(read) if origin is tuple else read

    def _mapping(self, kind: object, value: object, where: str) -> dict[str, Any]:
        _, own = get_args(kind)
        parts = _instance(value, dict, where)
        return {
            str(key): self.read(own, part, f"{where}.{key}")
            for key, part in parts.items()
        }


def _chosen(cls: type, tree: Mapping[str, Any], where: str) -> Any:
    """The class that a tree names: ``cls``, or one of its subclasses."""
    locate = getattr(cls, "saved_class", None)
    chosen = cls if locate is None else locate(tree)
    named = tree.get(TYPE)
    if named != chosen.__name__ or not issubclass(chosen, cls):
        raise ValueError(f"{where} must be a {cls.__name__}, got {_short(named)}")
    return chosen


def check_array(
    value: object, where: str, dtypes: Sequence[Any], shape: tuple[int | None, ...]
) -> npt.NDArray[Any]:
    """``value``, an array of finite numbers with one of the dtypes and this shape (None: any)."""
    allowed = [np.dtype(dtype) for dtype in dtypes]
    if not isinstance(value, np.ndarray) or value.dtype not in allowed:
        names = " or ".join(dtype.name for dtype in allowed)
        raise ValueError(f"{where} must be an array of dtype {names}")
    if not _fits(value.shape, shape):
        raise ValueError(f"{where} must have shape {shape}, got {value.shape}")
    if value.dtype.kind == "f":
        # nan is below nothing; half precision is widened: the bound would be infinite there
        sizes = np.abs(value, dtype=np.result_type(value, "f4"))
        if not (sizes <= LARGEST_NUMBER).all():
            raise ValueError(
                f"{where} must hold finite numbers of at most {LARGEST_NUMBER:g}"
            )
    return value


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    """Whether a shape is the wanted one, None standing for any size."""
    same = len(shape) == len(wanted)
    return same and all(map(lambda size, want: want in (None, size), shape, wanted))


def _plain(kind: object, value: Any, where: str) -> Any:
    """Text, numbers, booleans and None, each of exactly its type; whole numbers pass as floats."""
    if kind in (None, types.NoneType):
        if value is not None:
            raise ValueError(f"{where} must be None, got {_short(value)}")
        return None
    if kind is float:
        if type(value) not in (int, float) or not abs(value) <= LARGEST_FLOAT:
            raise ValueError(f"{where} must be a finite number, got {_short(value)}")
        return float(value)
    if kind not in (bool, int, str):
        raise TypeError(
            f"{where} has the type {kind}, which cannot be read from a file"
        )
    return _instance(value, kind, where)


def _any_float(value: object, where: str) -> float:
    """A number, which may be infinite; such ones are arrays."""
    if isinstance(value, np.ndarray) and value.dtype == np.float64 and value.ndim == 0:
        if np.isnan(value):
            raise ValueError(f"{where} must be a number, got nan")
        return float(value)
    return float(_plain(float, value, where))


def _instance(value: object, kind: type, where: str) -> Any:
    if type(value) is not kind:
        raise ValueError(
            f"{where} must be of type {kind.__name__}, got {_short(value)}"
        )
    return value


def _between(value: float, low: float, high: float, where: str) -> Any:
    if not low <= value <= high:
        raise ValueError(
            f"{where} must be between {low:g} and {high:g}, got {_short(value)}"
        )
    return value


def _choice(value: object, choices: Sequence[Any], where: str) -> Any:
    if not isinstance(value, bool | int | str) or value not in choices:
        raise ValueError(f"{where} must be one of {list(choices)}, got {_short(value)}")
    return value


def _short(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    return repr(value)[:80]
