"""Tables from files: CSV and its kin, Parquet, JSON lines, Excel; every guess is in the notes.

No file can claim more memory than a bound in proportion to its size. Compressed text is counted before it is read,
Parquet is measured by the headers of its pages; there texts stay dictionaries, and lists are left out.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import re
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pandas as pd

from collidescope._store import regular_file
from collidescope.tables.encoding import MISSING_WORDS, listed

Find = Callable[[Sequence[str]], str | None]
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "spaces"}
SNIFFED, HEAD = (
    50,
    2**20,
)  #: lines that decide the delimiter, bytes that decide the encoding and the names
OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
ARCHIVE, OTHER = (
    "an archive: unpack it, and give the table in it",
    "save the table as CSV or Parquet",
)
MAGIC = {  #: what a file starts with when it is no text (tar archives say so at byte 257)
    b"PK\x03\x04": f"an archive to unpack first, or an Excel workbook: let its name end in .xlsx, or {OTHER}",
    b"\xd0\xcf\x11\xe0": f"an old Excel workbook: {OTHER}",
    b"\x1f\x8b": "compressed by gzip: let its name end in .gz",
    **dict.fromkeys([b"7z\xbc\xaf", b"\x28\xb5\x2f\xfd"], ARCHIVE),
    **dict.fromkeys([b"%PDF", b"\x93NUM"], f"no text: {OTHER}"),
}
UTF16 = (b"\xff\xfe", b"\xfe\xff")
#: A table that grows to more than so many times its size, and beyond so many bytes, is a bomb; a cell takes CELL bytes.
MOST_GROWTH, HARMLESS, CELL = 200, 50_000_000, 8
LONGEST_CELL = 2**24  #: longer cells than the csv module's 128 KiB do occur in free text
#: Types of Parquet columns that are read: each value has a fixed size, or is a string.
PLAIN_TYPES = (
    "integer",
    "floating",
    "boolean",
    "string",
    "large_string",
    "temporal",
    "decimal",
    "null",
)
#: Types of Thrift's compact protocol; FIXED have so many bytes (a byte, a double).
INT16, INT32, INT64, TEXT, LIST, STRUCTURE, FIXED = 4, 5, 6, 8, 9, 12, {3: 1, 7: 8}
#: Errors of the libraries that unpack and decode.
UNREADABLE = (UnicodeError, csv.Error, EOFError, lzma.LZMAError, zlib.error, OSError)


class Table(NamedTuple):
    """A table as read, notes on what was guessed, and the name of the label."""

    frame: pd.DataFrame
    notes: list[str]
    label: str | None = None


def read_table(
    path: str | Path,
    *,
    label: str | Callable[[Sequence[str]], str] | None = None,
    text: Sequence[str] = (),
    header: bool = True,
    delimiter: str | None = None,
    skip_lines: int = 0,
) -> Table:
    """Read a table: CSV and its kin (also .gz, .bz2, .xz), Parquet, JSON lines (.jsonl, .ndjson) or Excel (.xlsx).

    Parameters
    ----------
    path : file
    label : name of the label column, or a function that finds it among the names; its cells stay as they are written
    text : other columns to be read as they are written
    header : whether the first line names the columns; else they are called c1, c2, …
    delimiter : found out by default
    skip_lines : lines at the top that are no part of the table
    """
    path = regular_file(path)
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty (0 bytes)")

    def found(names: Sequence[str]) -> str | None:
        return label(names) if callable(label) else label if label in names else None

    try:
        with _open(path) as file:
            start = file.read(HEAD)
            size = len(start)
            while path.suffix.lower() in OPENERS and (block := file.read(HEAD)):
                size += len(block)
                _check_growth(path, size)
        reader = _reader(path, start)
        if reader is None:
            return _read_text(path, start, found, text, header, delimiter, skip_lines)
        frame, notes = reader(path)
    except PermissionError:
        raise
    except UNREADABLE as error:
        raise ValueError(f"{path} cannot be read: {_first_line(error)}") from None
    frame = frame.set_axis([str(name).strip() for name in frame.columns], axis=1)
    if frame.shape[0] == 0:
        raise ValueError(f"{path} has columns but no rows")
    return Table(frame, notes, found(list(frame.columns)))


def _reader(path: Path, start: bytes) -> Callable[[Path], tuple[pd.DataFrame, list[str]]] | None:
    """What reads this file, None for text in columns; an error for what holds no table."""
    suffix = path.suffix.lower()
    if start.startswith(b"PAR1") or suffix in (".parquet", ".pq"):
        return _read_parquet
    if suffix in (".xlsx", ".xlsm") and start.startswith(b"PK"):
        return _read_excel
    if suffix == ".tar" or start[257:262] == b"ustar":
        raise ValueError(f"{path} is {ARCHIVE}")
    if magic := next((what for sign, what in MAGIC.items() if start.startswith(sign)), None):
        raise ValueError(f"{path} is {magic}")
    if suffix in (".jsonl", ".ndjson"):
        return _read_json_lines
    if suffix == ".json" or re.match(rb'\s*(\[\s*)?\{\s*"', start):
        other = "as JSON lines, one object per line in a file that ends in .jsonl"
        save = f"save it as CSV or Parquet (pandas.read_json(…).to_csv(…)), or {other}"
        raise ValueError(f"{path} is JSON, which need not be a table: {save}")
    return None


def _check_growth(path: Path, size: int) -> None:
    if size > max(HARMLESS, MOST_GROWTH * path.stat().st_size):
        more = f"it grows to {size:,} bytes or more, {MOST_GROWTH} times its size"
        raise OSError(f"{more}: if that is right, unpack it first, or give a sample of it")


def _open(path: Path) -> Any:
    return OPENERS.get(path.suffix.lower(), open)(path, "rb")


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _read_text(
    path: Path,
    start: bytes,
    find: Find,
    text: Sequence[str],
    header: bool,
    delimiter: str | None,
    skip_lines: int,
) -> Table:
    utf16 = start.startswith(UTF16)
    notes = [f"{path.name} is read as UTF-16"] if utf16 else []
    whole = start.decode("utf-16" if utf16 else "utf-8-sig", "replace")
    lines = list(islice(io.StringIO(whole, newline=""), skip_lines, None))
    if delimiter is None:
        plain = path.with_suffix("") if path.suffix.lower() in OPENERS else path
        delimiter = "\t" if plain.suffix.lower() == ".tsv" else _delimiter(lines[:SNIFFED])
        notes += [f"{path.name} is cut at {DELIMITERS[delimiter]}"] if delimiter != "," else []
    first = next(
        (row for row in _rows(lines, delimiter) if any(cell.strip() for cell in row)), None
    )
    if first is None:
        raise ValueError(f"{path} has no lines to read")
    first = first[: _width(first, delimiter)]
    names = [
        name.strip() or f"unnamed {k}" if header else f"c{k}"
        for k, name in enumerate(first, start=1)
    ]
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        hint = (
            " (is the first line data? then --no-header)"
            if looks_like_data(names)
            else ": rename one of them"
        )
        raise ValueError(f"{path} has the column {twice!r} more than once{hint}")
    label = find(names)
    options: dict[str, Any] = {
        "sep": r"\s+" if delimiter == " " else delimiter,
        "skipinitialspace": True,
    }
    options |= {
        "header": 0 if header else None,
        "names": names,
        "skiprows": skip_lines,
        "index_col": False,
    }
    options |= {"low_memory": False, "keep_default_na": False, "na_values": list(MISSING_WORDS)}
    options["dtype"] = {name: str for name in set(text) & set(names) if name != label}
    # The label as it is written: behind an apostrophe no word stands for a missing cell.
    options["converters"] = {} if label is None else {label: "'".__add__}
    if delimiter != "," and (example := _decimal_comma(lines[1:500], delimiter)):
        options["decimal"] = ","
        notes.append(f"numbers are read with a decimal comma (such as {example!r})")
    for encoding in ["utf-16"] if utf16 else ["utf-8-sig", "latin-1"]:
        try:
            with _open(path) as file, warnings.catch_warnings():
                warnings.simplefilter(
                    "error", pd.errors.ParserWarning
                )  # all lines longer than the first
                frame: pd.DataFrame = pd.read_csv(file, encoding=encoding, **options)
            break
        except UnicodeDecodeError:
            if utf16:
                raise
            notes.append(
                f"{path.name} is not UTF-8: it is read as Latin-1 (Western European), check accents in names"
            )
        except (pd.errors.ParserError, pd.errors.ParserWarning, OverflowError) as error:
            _find_ragged(path, encoding, delimiter, skip_lines)
            raise ValueError(f"{path} cannot be read: {_first_line(error)}") from None
    if len(frame) == 0:
        raise ValueError(
            f"{path} has one line only: a line of column names, then one line per row are needed"
        )
    if label is not None:
        frame[label] = frame[label].str[1:]
    last = frame.iloc[:, -1]
    if last.isna().any() or (last == "").any():  # as in a line that is cut short
        _find_ragged(path, encoding, delimiter, skip_lines)
    return Table(frame, notes, label)


def _rows(lines: Iterable[str], delimiter: str) -> Any:
    csv.field_size_limit(LONGEST_CELL)
    return csv.reader(lines, delimiter=delimiter, skipinitialspace=True)


def _width(row: list[str], delimiter: str) -> int:
    """Cells of a row, without the empty one that spaces at the end of a line make."""
    return len(row) - (delimiter == " " and len(row) > 1 and row[-1] == "")


def _delimiter(lines: list[str]) -> str:
    """The delimiter that cuts the lines into the same number of cells, as many as possible."""
    best, cells, steady = ",", 1, 0.0
    for candidate in DELIMITERS:
        counts = Counter(_width(row, candidate) for row in _rows(lines, candidate) if row)
        usual, times = counts.most_common(1)[0] if counts else (1, 0)
        share = times / max(counts.total(), 1)
        if usual > 1 and (share, usual) > (steady, cells) and not (candidate == " " and cells > 1):
            best, cells, steady = candidate, usual, share
    return best


def _decimal_comma(lines: list[str], delimiter: str) -> str | None:
    """An example, where numbers are written 1,5 and none 1.5."""
    cells = [cell.strip() for cell in chain.from_iterable(_rows(lines, delimiter))]
    commas = [cell for cell in cells if re.fullmatch(r"-?\d+,\d+", cell)]
    return (
        commas[0]
        if commas and not any(re.fullmatch(r"-?\d+\.\d+", cell) for cell in cells)
        else None
    )


def _find_ragged(path: Path, encoding: str, delimiter: str, skip_lines: int) -> None:
    """An error that names the first line with more or fewer cells than the first line, if there is one."""
    width = n_rows = 0
    end = skip_lines
    with io.TextIOWrapper(_open(path), encoding=encoding, newline="") as file:
        reader = _rows(islice(file, skip_lines, None), delimiter)
        try:
            for row in reader:
                line, end = end + 1, skip_lines + reader.line_num
                cells = _width(row, delimiter)
                if cells > 1 or "".join(row).strip():
                    if n_rows and cells != width:
                        break
                    width, n_rows = cells, n_rows + 1
            else:
                return
        except csv.Error as error:
            raise ValueError(
                f"{path} cannot be read at line {end}: {error} (an unclosed quote above it?)"
            ) from None
    if end > line:
        hint = f'. A quote (") opens in line {line} and closes only in line {end}: is one missing?'
    elif n_rows == 1 and cells == width + 1:
        hint = " (row names without a heading, as R writes them? write.csv(…, row.names=FALSE) leaves them out)"
    elif n_rows == 1:
        hint = ". Lines above the table are left out with --skip-lines, another delimiter is set with --delimiter"
    else:
        cause = "an unquoted delimiter in a text?" if cells > width else "a line cut short?"
        hint = f" ({cause} The file is cut at {DELIMITERS.get(delimiter, repr(delimiter))}): mend or delete that line"
    raise ValueError(f"{path}, line {line}: {cells} cells, but the first line has {width}{hint}")


def looks_like_data(names: Sequence[str]) -> bool:
    """Are there numbers among the names of the columns?"""
    return any(re.fullmatch(r"\s*-?\d+([.,]\d+)?\s*", name) for name in names)


def _read_parquet(path: Path) -> tuple[pd.DataFrame, list[str]]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ImportError('Parquet files need pyarrow: pip install "collidescope[cli]"') from None
    try:
        _check_growth(path, _decoded_size(path))
        own_types = {own.name: own.type for own in pq.read_schema(path)}
        types = {
            name: own.value_type if pa.types.is_dictionary(own) else own
            for name, own in own_types.items()
        }
        plain = [
            n
            for n, own in types.items()
            if any(getattr(pa.types, f"is_{test}")(own) for test in PLAIN_TYPES)
        ]
        texts = {
            name
            for name in plain
            if pa.types.is_string(types[name]) or pa.types.is_large_string(types[name])
        }
        # As a dictionary a text that repeats is held once, and one batch per group of rows needs one dictionary.
        file = pq.ParquetFile(path, read_dictionary=list(texts))
        batches = file.iter_batches(
            max(file.metadata.num_rows, 1), columns=plain, use_threads=False
        )
        table = pa.Table.from_batches(batches, pa.schema(map(file.schema_arrow.field, plain)))
        frame = table.to_pandas(date_as_object=False, ignore_metadata=True)
        exact = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}
        for name, column in zip(plain, table.columns, strict=True):
            if name in texts:
                frame[name] = frame[name].astype(object)
            elif column.type in exact and column.null_count:  # a gap has made floats of them
                frame[name] = column.to_pandas(types_mapper=exact.get)
    except Exception as error:
        raise ValueError(f"{path} cannot be read as Parquet: {_first_line(error)}") from None
    others = [name for name in types if name not in frame]
    return frame, [
        f"columns of lists, bytes and the like are left out: {listed(others)}"
    ] if others else []


def _decoded_size(path: Path) -> int:
    """Bytes that the pages of a Parquet file decode to, by the headers of the pages: the footer may say less.

    Footer and headers are structures in Thrift's compact protocol, read here because pyarrow shows no headers, and ends
    the process on some footers.
    """
    size = values = 0
    with open(path, "rb") as file:
        file.seek(-8, io.SEEK_END)
        length, magic = file.read(4), file.read(4)
        if magic != b"PAR1":
            raise ValueError("its last bytes are not PAR1")
        file.seek(-8 - int.from_bytes(length, "little"), io.SEEK_END)
        footer = _structure(file)
        groups = [group[1, LIST] for group in footer[4, LIST]]
        for chunk in (column[3, STRUCTURE] for column in chain.from_iterable(groups)):
            start = min(
                chunk[9, INT64], chunk.get((11, INT64)) or chunk[9, INT64]
            )  # of data, of a dictionary
            end = start + chunk[7, INT64]
            while start < end:
                file.seek(start)
                page = _structure(file)
                unpacked, packed = page[2, INT32], page[3, INT32]
                if min(unpacked, packed) < 0:
                    raise ValueError("a page has a negative size")
                own = (
                    page.get((5, STRUCTURE)) or page.get((8, STRUCTURE)) or {}
                )  # data, in either version
                size, values, start = (
                    size + unpacked,
                    values + own.get((1, INT32), 0),
                    file.tell() + packed,
                )
    cells = footer[3, INT64] * max(map(len, groups), default=0)
    return int(size + CELL * max(values, cells))


def _structure(file: BinaryIO) -> dict[tuple[int, int], Any]:
    """Values by the number of their field and their type: like Thrift, those of another type are passed over."""
    found, field = {}, 0
    while head := file.read(1)[0]:
        field, type_ = field + (head >> 4) if head >> 4 else _number(file), head & 15
        if type_ > 2:  # 1 and 2 are true and false, of no more bytes
            found[field, type_] = _value(file, type_)
    return found


def _value(file: BinaryIO, type_: int) -> Any:
    if type_ in (INT16, INT32, INT64):
        return _number(file)
    if type_ == STRUCTURE:
        return _structure(file)
    if type_ == LIST:
        head = file.read(1)[0]
        return [
            _value(file, head & 15)
            for _ in range(head >> 4 if head < 240 else _number(file, signed=False))
        ]
    if type_ not in (TEXT, *FIXED):
        raise ValueError(f"it holds a value of type {type_}, which Parquet does not have")
    file.seek(_number(file, signed=False) if type_ == TEXT else FIXED[type_], io.SEEK_CUR)
    return None


def _number(file: BinaryIO, signed: bool = True) -> int:
    value = 0
    for shift in range(0, 64, 7):
        byte = file.read(1)[0]
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1) if signed else value
    raise ValueError("it holds a number of more than 64 bits")


def _read_json_lines(path: Path) -> tuple[pd.DataFrame, list[str]]:
    records: list[dict[str, Any]] = []
    names: dict[str, None] = {}
    for number, line in enumerate(_open(path), start=1):
        if not line.strip():
            continue
        try:
            records.append(json.loads(line))
            names |= dict.fromkeys(records[-1].keys())
        except (ValueError, RecursionError, AttributeError):
            raise ValueError(
                f'{path}, line {number}: not an object such as {{"age": 39}}, one per line'
            ) from None
        _check_growth(path, CELL * len(records) * len(names))
    return pd.DataFrame.from_records(records, columns=list(names)), []


def _read_excel(path: Path) -> tuple[pd.DataFrame, list[str]]:
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise ImportError("Excel workbooks need openpyxl: pip install openpyxl") from None
    rows: list[tuple[Any, ...]] = []
    try:
        with zipfile.ZipFile(path) as archive:
            _check_growth(path, sum(part.file_size for part in archive.infolist()))
        sheets = load_workbook(path, read_only=True, data_only=True).worksheets
        for row in sheets[0].iter_rows(values_only=True):
            rows.append(row)
            _check_growth(path, CELL * len(rows) * len(row))
    except Exception as error:
        raise ValueError(f"{path} cannot be read as a workbook: {_first_line(error)}") from None
    names = [
        f"unnamed {k}" if name is None else str(name)
        for k, name in enumerate(rows[0] if rows else (), start=1)
    ]
    frame = pd.DataFrame(
        [row for row in rows[1:] if any(cell is not None for cell in row)], columns=names
    )
    return frame, [f"only the first of {len(sheets)} sheets is read: {sheets[0].title!r}"] if len(
        sheets
    ) > 1 else []
