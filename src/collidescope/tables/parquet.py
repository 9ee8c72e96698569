"""Parquet files as tables, measured before they are decoded.

The size that a file decodes to is added up from the headers of its pages: the footer may say less.
Footer and headers are structures in Thrift's compact protocol. They are read here because pyarrow
does not show the headers of pages, and ends the process on some footers.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd

from collidescope._store import check_growth
from collidescope._text import first_line
from collidescope.tables.cells import listed

CELL = 8  #: bytes of a cell in memory
#: Types of Thrift's compact protocol.
INT16, INT32, INT64, TEXT, LIST, STRUCTURE = 4, 5, 6, 8, 9, 12
#: Values by the number of their field and their type.
Structure = dict[tuple[int, int], Any]


def read_parquet(path: Path) -> tuple[pd.DataFrame, list[str]]:
    """The columns of numbers, texts and times, and a note on those that are left out."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise ImportError(
            'Parquet files need pyarrow: pip install "collidescope[cli]"'
        ) from None
    try:
        check_growth(path, decoded_size(path))
        frame, others = _decoded(path)
    except Exception as error:
        raise ValueError(
            f"{path} cannot be read as Parquet: {first_line(error)}"
        ) from None
    if not others:
        return frame, []
    return frame, [
        f"columns of lists, bytes and the like are left out: {listed(others)}"
    ]


def _decoded(path: Path) -> tuple[pd.DataFrame, list[str]]:
    """The plain columns of a file, and the names of the others."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {own.name: _value_type(own.type) for own in pq.read_schema(path)}
    plain = [name for name, type_ in types.items() if _is_plain(type_)]
    texts = [name for name in plain if _is_text(types[name])]
    # As a dictionary a text that repeats is held once; one batch per group of rows has one.
    file = pq.ParquetFile(path, read_dictionary=texts)
    n_rows = max(file.metadata.num_rows, 1)
    batches = file.iter_batches(n_rows, columns=plain, use_threads=False)
    schema = pa.schema(map(file.schema_arrow.field, plain))
    table = pa.Table.from_batches(batches, schema)
    frame = table.to_pandas(date_as_object=False, ignore_metadata=True)
    exact = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}
    for name, column in zip(plain, table.columns, strict=True):
        if name in texts:
            frame[name] = frame[name].astype(object)
        # A gap has made floats of them.
        elif column.type in exact and column.null_count:
            frame[name] = column.to_pandas(types_mapper=exact.get)
    return frame, [name for name in types if name not in frame]


def _value_type(type_: Any) -> Any:
    import pyarrow as pa

    return type_.value_type if pa.types.is_dictionary(type_) else type_


def _is_text(type_: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_string(type_) or pa.types.is_large_string(type_)


def _is_plain(type_: Any) -> bool:
    """Has each value a fixed size, or is it a string?"""
    from pyarrow import types

    fixed = (
        types.is_integer,
        types.is_floating,
        types.is_boolean,
        types.is_temporal,
        types.is_decimal,
        types.is_null,
    )
    return _is_text(type_) or any(test(type_) for test in fixed)


# ---------------------------------------------------------------- sizes


def decoded_size(path: Path) -> int:
    """Bytes that the pages of a Parquet file decode to."""
    size = 0
    values = 0
    with open(path, "rb") as file:
        footer = _footer(file)
        groups = [group[1, LIST] for group in footer[4, LIST]]
        for column in chain.from_iterable(groups):
            for page in _pages(file, column[3, STRUCTURE]):
                size += page[2, INT32]
                # of data, in either version
                own = page.get((5, STRUCTURE)) or page.get((8, STRUCTURE)) or {}
                values += own.get((1, INT32), 0)
    cells = footer[3, INT64] * max(map(len, groups), default=0)
    return int(size + CELL * max(values, cells))


def _footer(file: BinaryIO) -> Structure:
    file.seek(-8, io.SEEK_END)
    length = int.from_bytes(file.read(4), "little")
    if file.read(4) != b"PAR1":
        raise ValueError("its last bytes are not PAR1")
    file.seek(-8 - length, io.SEEK_END)
    return _structure(file)


def _pages(file: BinaryIO, chunk: Structure) -> Iterator[Structure]:
    """The headers of the pages of a column, those of its dictionary first."""
    data = chunk[9, INT64]
    dictionary = chunk.get((11, INT64))
    start = min(data, dictionary or data)
    end = start + chunk[7, INT64]
    while start < end:
        file.seek(start)
        page = _structure(file)
        packed = page[3, INT32]
        if min(page[2, INT32], packed) < 0:
            raise ValueError("a page has a negative size")
        start = file.tell() + packed
        yield page


def _structure(file: BinaryIO) -> Structure:
    """The values of a structure; like Thrift, those of another type are passed over."""
    found: Structure = {}
    field = 0
    while head := file.read(1)[0]:
        step = head >> 4
        type_ = head & 15
        field = field + step if step else _number(file)
        if type_ > 2:  # 1 and 2 are true and false, of no more bytes
            found[field, type_] = _value(file, type_)
    return found


def _value(file: BinaryIO, type_: int) -> Any:
    fixed_sizes = {3: 1, 7: 8}  # a byte, a double
    if type_ in (INT16, INT32, INT64):
        return _number(file)
    if type_ == STRUCTURE:
        return _structure(file)
    if type_ == LIST:
        head = file.read(1)[0]
        length = head >> 4
        if length == 15:
            length = _number(file, signed=False)
        return [_value(file, head & 15) for _ in range(length)]
    if type_ == TEXT:
        file.seek(_number(file, signed=False), io.SEEK_CUR)
    elif type_ in fixed_sizes:
        file.seek(fixed_sizes[type_], io.SEEK_CUR)
    else:
        raise ValueError(
            f"it holds a value of type {type_}, which Parquet does not have"
        )
    return None


def _number(file: BinaryIO, signed: bool = True) -> int:
    value = 0
    for shift in range(0, 64, 7):
        byte = file.read(1)[0]
        value |= (byte & 127) << shift
        if byte < 128:
            if signed:  # zigzag: 0, -1, 1, -2, …
                return (value >> 1) ^ -(value & 1)
            return value
    raise ValueError("it holds a number of more than 64 bits")
