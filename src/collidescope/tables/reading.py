"""Tables from files: CSV and its kin, Parquet, JSON lines, Excel; every guess is in the notes.

No file can claim more memory than a bound in proportion to its size. Compressed text is counted
before it is read, Parquet is measured by the headers of its pages; there texts stay dictionaries,
and lists are left out.
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from collidescope._store import check_growth, regular_file
from collidescope._text import first_line
from collidescope.tables.cells import MISSING_WORDS
from collidescope.tables.parquet import CELL, read_parquet

DELIMITERS = {
    ",": "commas",
    ";": "semicolons",
    "\t": "tabs",
    "|": "bars",
    " ": "spaces",
}
OPENERS: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}


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
    """Read a table: CSV and its kin (also .gz, .bz2, .xz), Parquet, JSON lines or Excel.

    Parameters
    ----------
    path : file; JSON lines end in .jsonl or .ndjson, workbooks in .xlsx
    label : name of the label column, or a function that finds it among the names
        Its cells stay as they are written.
    text : other columns to be read as they are written
    header : whether the first line names the columns; else they are called c1, c2, …
    delimiter : found out by default
    skip_lines : lines at the top that are no part of the table
    """
    path = regular_file(path)
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty (0 bytes)")

    def find(names: Sequence[str]) -> str | None:
        if callable(label):
            return label(names)
        if label in names:
            return label
        return None

    try:
        start = _start(path)
        reader = _reader(path, start)
        if reader is None:
            plan = _text_plan(path, start, header, delimiter, skip_lines)
            return _read_text(plan, find(plan.names), text)
        frame, notes = reader(path)
    except PermissionError:
        raise
    except (
        UnicodeError,
        csv.Error,
        EOFError,
        lzma.LZMAError,
        zlib.error,
        OSError,
    ) as error:
        raise ValueError(f"{path} cannot be read: {first_line(error)}") from None
    frame = frame.set_axis([str(name).strip() for name in frame.columns], axis=1)
    if frame.shape[0] == 0:
        raise ValueError(f"{path} has columns but no rows")
    return Table(frame, notes, find(list(frame.columns)))


def _start(path: Path, head: int = 2**20) -> bytes:
    """The first bytes of a file, which decide the encoding and the names.

    A file that is compressed is unpacked to its end, and counted.
    """
    with _open(path) as file:
        start: bytes = file.read(head)
        size = len(start)
        if path.suffix.lower() in OPENERS:
            while block := file.read(head):
                size += len(block)
                check_growth(path, size)
    return start


def _reader(
    path: Path, start: bytes
) -> Callable[[Path], tuple[pd.DataFrame, list[str]]] | None:
    """What reads this file, None for text in columns; an error for what holds no table."""
    suffix = path.suffix.lower()
    if start.startswith(b"PAR1") or suffix in (".parquet", ".pq"):
        return read_parquet
    if suffix in (".xlsx", ".xlsm") and start.startswith(b"PK"):
        return _read_excel
    kind = _no_text(suffix, start)
    if kind is not None:
        raise ValueError(f"{path} is {kind}")
    if suffix in (".jsonl", ".ndjson"):
        return _read_json_lines
    if suffix == ".json" or re.match(rb'\s*(\[\s*)?\{\s*"', start):
        raise ValueError(
            f"{path} is JSON, which need not be a table: save it as CSV or Parquet "
            "(pandas.read_json(…).to_csv(…)), or as JSON lines, one object per line in a "
            "file that ends in .jsonl"
        )
    return None


def _no_text(suffix: str, start: bytes) -> str | None:
    """What a file is, by its first bytes, and what to do, if it is not text; None for text."""
    archive = "an archive: unpack it, and give the table in it"
    save = "save the table as CSV or Parquet"
    signs = {
        b"PK\x03\x04": "an archive to unpack first, or an Excel workbook: let its name end in "
        f".xlsx, or {save}",
        b"\xd0\xcf\x11\xe0": f"an old Excel workbook: {save}",
        b"\x1f\x8b": "compressed by gzip: let its name end in .gz",
        b"7z\xbc\xaf": archive,
        b"\x28\xb5\x2f\xfd": archive,
        b"%PDF": f"not a text file: {save}",
        b"\x93NUM": f"not a text file: {save}",
    }
    if suffix == ".tar" or start[257:262] == b"ustar":
        return archive
    if start[8:10] == b'{"':  # safetensors: the length of a JSON header, and the header
        return "a model or matrix of collidescope, where a table is needed"
    for sign, what in signs.items():
        if start.startswith(sign):
            return what
    return None


def _open(path: Path) -> Any:
    return OPENERS.get(path.suffix.lower(), open)(path, "rb")


# ---------------------------------------------------------------- text


@dataclass
class TextPlan:
    """How the lines of a text file become a table, as its first lines say."""

    path: Path
    header: bool
    skip_lines: int
    delimiter: str = ","
    names: list[str] = field(default_factory=list)
    decimal: str = "."
    encodings: list[str] = field(default_factory=lambda: ["utf-8-sig", "latin-1"])
    notes: list[str] = field(default_factory=list)


def _text_plan(
    path: Path, start: bytes, header: bool, delimiter: str | None, skip_lines: int
) -> TextPlan:
    plan = TextPlan(path, header, skip_lines)
    whole = start.decode("utf-8-sig", "replace")
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        plan.encodings = ["utf-16"]
        plan.notes.append(f"{path.name} is read as UTF-16")
        whole = start.decode("utf-16", "replace")
    lines = list(islice(io.StringIO(whole, newline=""), skip_lines, None))
    plan.delimiter = delimiter or _found_delimiter(path, lines)
    if delimiter is None and plan.delimiter != ",":
        plan.notes.append(f"{path.name} is cut at {DELIMITERS[plan.delimiter]}")
    plan.names = _names(plan, lines)
    example = _decimal_comma(lines[1:500], plan.delimiter)
    if example is not None and plan.delimiter != ",":
        plan.decimal = ","
        plan.notes.append(
            f"numbers are read with a decimal comma (such as {example!r})"
        )
    return plan


def _found_delimiter(path: Path, lines: list[str], sniffed: int = 50) -> str:
    """The delimiter, from the name of the file or from its first lines."""
    packed = path.suffix.lower() in OPENERS
    plain = path.with_suffix("") if packed else path
    return "\t" if plain.suffix.lower() == ".tsv" else _delimiter(lines[:sniffed])


def _names(plan: TextPlan, lines: list[str]) -> list[str]:
    """The names of the columns, from the first line that is not empty."""
    for first in _rows(lines, plan.delimiter):
        if any(cell.strip() for cell in first):
            break
    else:
        raise ValueError(f"{plan.path} has no lines to read")
    numbers = range(1, _width(first, plan.delimiter) + 1)
    if not plan.header:
        return [f"c{k}" for k in numbers]
    names = [
        name.strip() or f"unnamed {k}" for k, name in zip(numbers, first, strict=False)
    ]
    if len(set(names)) < len(names):
        [(twice, _)] = Counter(names).most_common(1)
        hint = ": rename one of them"
        if looks_like_data(names):
            hint = " (is the first line data? then --no-header)"
        raise ValueError(f"{plan.path} has the column {twice!r} more than once{hint}")
    return names


def _read_text(plan: TextPlan, label: str | None, text: Sequence[str]) -> Table:
    """The table; ``label`` and the columns of ``text`` as they are written."""
    for encoding in plan.encodings:
        try:
            frame = _read_csv(plan, encoding, label, text)
            break
        except UnicodeDecodeError:
            if encoding == plan.encodings[-1]:
                raise
            plan.notes.append(
                f"{plan.path.name} is not UTF-8: it is read as Latin-1 (Western European), check "
                f"accents in names"
            )
        except (pd.errors.ParserError, pd.errors.ParserWarning, OverflowError) as error:
            _find_ragged(plan, encoding)
            raise ValueError(
                f"{plan.path} cannot be read: {first_line(error)}"
            ) from None
    if len(frame) == 0:
        raise ValueError(
            f"{plan.path} has one line only: a line of column names, then one line per row are "
            f"needed"
        )
    if label is not None:
        frame[label] = frame[label].str[1:]
    last = frame.iloc[:, -1]
    if last.isna().any() or (last == "").any():  # as in a line that is cut short
        _find_ragged(plan, encoding)
    return Table(frame, plan.notes, label)


def _read_csv(
    plan: TextPlan, encoding: str, label: str | None, text: Sequence[str]
) -> pd.DataFrame:
    written = {name: str for name in set(text) & set(plan.names) if name != label}
    # The label as it is written: behind an apostrophe no word stands for a missing cell.
    converters: dict[str, Callable[[str], str]] = {}
    if label is not None:
        converters[label] = "'".__add__
    with _open(plan.path) as file, warnings.catch_warnings():
        # Lines longer than the first.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        frame: pd.DataFrame = pd.read_csv(
            file,
            encoding=encoding,
            sep=r"\s+" if plan.delimiter == " " else plan.delimiter,
            skipinitialspace=True,
            header=0 if plan.header else None,
            names=plan.names,
            skiprows=plan.skip_lines,
            index_col=False,
            low_memory=False,
            keep_default_na=False,
            na_values=list(MISSING_WORDS),
            decimal=plan.decimal,
            dtype=written,
            converters=converters,
        )
    return frame


def _rows(lines: Iterable[str], delimiter: str) -> Any:
    # Cells longer than the csv module's 128 KiB do occur in free text.
    csv.field_size_limit(2**24)
    return csv.reader(lines, delimiter=delimiter, skipinitialspace=True)


def _width(row: list[str], delimiter: str) -> int:
    """Cells of a row, without the empty one that spaces at the end of a line make."""
    trailing = delimiter == " " and len(row) > 1 and row[-1] == ""
    return len(row) - trailing


def _delimiter(lines: list[str]) -> str:
    """The delimiter that cuts the lines into the same number of cells, as many as possible."""
    best = ","
    best_share = 0.0
    most_cells = 1
    for candidate in DELIMITERS:
        widths = Counter(
            _width(row, candidate) for row in _rows(lines, candidate) if row
        )
        if not widths:
            continue
        cells, times = widths.most_common(1)[0]
        share = times / widths.total()
        if candidate == " " and most_cells > 1:  # spaces only where nothing else cuts
            continue
        if cells > 1 and (share, cells) > (best_share, most_cells):
            best = candidate
            best_share = share
            most_cells = cells
    return best


def _decimal_comma(lines: list[str], delimiter: str) -> str | None:
    """An example, where numbers are written 1,5 and none 1.5."""
    rows = _rows(lines, delimiter)
    cells = [cell.strip() for cell in chain.from_iterable(rows)]
    commas = filter(re.compile(r"-?\d+,\d+").fullmatch, cells)
    points = filter(re.compile(r"-?\d+\.\d+").fullmatch, cells)
    return None if any(points) else next(commas, None)


class Line(NamedTuple):
    """A row of a text file: where it starts and ends, and how many cells it has."""

    first: int
    last: int
    cells: int


def _lines(plan: TextPlan, encoding: str) -> Iterator[Line]:
    """The rows of a text file that are not empty."""
    end = plan.skip_lines
    with io.TextIOWrapper(_open(plan.path), encoding=encoding, newline="") as file:
        reader = _rows(islice(file, plan.skip_lines, None), plan.delimiter)
        try:
            for row in reader:
                start = end + 1
                end = plan.skip_lines + reader.line_num
                cells = _width(row, plan.delimiter)
                if cells > 1 or "".join(row).strip():
                    yield Line(start, end, cells)
        except csv.Error as error:
            raise ValueError(
                f"{plan.path} cannot be read at line {end}: {error} (an unclosed quote above it?)"
            ) from None


def _find_ragged(plan: TextPlan, encoding: str) -> None:
    """An error that names the first line with another number of cells than the first, if any."""
    width = 0
    for number, line in enumerate(_lines(plan, encoding)):
        if number == 0:
            width = line.cells
        elif line.cells != width:
            hint = _ragged_hint(plan, line, width, second=number == 1)
            raise ValueError(
                f"{plan.path}, line {line.first}: {line.cells} cells, but the first line "
                f"has {width}{hint}"
            )


def _ragged_hint(plan: TextPlan, line: Line, width: int, second: bool) -> str:
    if line.last > line.first:
        return (
            f'. A quote (") opens in line {line.first} and closes only in line '
            f"{line.last}: is one missing?"
        )
    if second and line.cells == width + 1:
        return (
            " (row names without a heading, as R writes them? write.csv(…, row.names=FALSE) "
            "leaves them out)"
        )
    if second:
        return (
            ". Lines above the table are left out with --skip-lines, another delimiter is set with "
            "--delimiter"
        )
    cause = "a line cut short?"
    if line.cells > width:
        cause = "an unquoted delimiter in a text?"
    cut = DELIMITERS.get(plan.delimiter, repr(plan.delimiter))
    return f" ({cause} The file is cut at {cut}): correct or delete that line"


def looks_like_data(names: Sequence[str]) -> bool:
    """Are there numbers among the names of the columns?"""
    return any(re.fullmatch(r"\s*-?\d+([.,]\d+)?\s*", name) for name in names)


# ---------------------------------------------------------------- other formats


def _read_json_lines(path: Path) -> tuple[pd.DataFrame, list[str]]:
    records: list[dict[str, Any]] = []
    names: dict[str, None] = {}
    for number, line in enumerate(_open(path), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            names |= dict.fromkeys(record.keys())
        except (ValueError, RecursionError, AttributeError):
            raise ValueError(
                f'{path}, line {number}: not an object such as {{"age": 39}}, one per line'
            ) from None
        records.append(record)
        check_growth(path, CELL * len(records) * len(names))
    return pd.DataFrame.from_records(records, columns=list(names)), []


def _read_excel(path: Path) -> tuple[pd.DataFrame, list[str]]:
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise ImportError(
            "Excel workbooks need openpyxl: pip install openpyxl"
        ) from None
    rows: list[tuple[Any, ...]] = []
    try:
        with zipfile.ZipFile(path) as archive:
            check_growth(path, sum(part.file_size for part in archive.infolist()))
        sheets = load_workbook(path, read_only=True, data_only=True).worksheets
        for row in sheets[0].iter_rows(values_only=True):
            rows.append(row)
            check_growth(path, CELL * len(rows) * len(row))
    except Exception as error:
        raise ValueError(
            f"{path} cannot be read as a workbook: {first_line(error)}"
        ) from None
    names = [
        f"unnamed {k}" if name is None else str(name)
        for k, name in enumerate(rows[0] if rows else (), start=1)
    ]
    filled = [row for row in rows[1:] if any(cell is not None for cell in row)]
    notes = []
    if len(sheets) > 1:
        notes.append(
            f"only the first of {len(sheets)} sheets is read: {sheets[0].title!r}"
        )
    return pd.DataFrame(filled, columns=names), notes
