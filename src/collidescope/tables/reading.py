"""Tables from files in one pass: CSV and its kin, Parquet, JSON lines, Excel; every guess is in the notes.

No file can claim more memory than a bound in proportion to its size: compressed text is counted while it is unpacked,
Parquet keeps strings as dictionaries and leaves out nested columns, whose decoded size a few bytes can make endless.
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
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from collidescope.tables.encoding import MISSING_WORDS, listed

if TYPE_CHECKING:
    import pandas as pd

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "spaces"}
#: Lines and bytes that decide the delimiter, the encoding and the names.
SNIFFED, HEAD = 50, 2**20
OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
#: What a file starts with when it is no text.
MAGIC = {
    b"\xd0\xcf\x11\xe0": "an Excel workbook of the old format: save it as .xlsx, CSV or Parquet",
    b"PK\x03\x04": "an archive: unpack it, and give the table in it",
    b"7z\xbc\xaf": "an archive: unpack it, and give the table in it",
    b"\x28\xb5\x2f\xfd": "compressed by zstd: unpack it first",
    b"%PDF": "a PDF: save the table as CSV or Parquet",
    b"\x93NUM": "a numpy array: use CollisionClassifier in Python, or save the table as CSV or Parquet",
    b"\x1f\x8b": "compressed by gzip: let its name end in .gz",
}
#: Where a tar archive says that it is one.
TAR = slice(257, 262), b"ustar"
UTF16 = (b"\xff\xfe", b"\xfe\xff")
#: A table that grows to more than so many times its size, and beyond so many bytes or cells, is a bomb.
MOST_GROWTH, HARMLESS = 200, 50_000_000
#: Longer cells than the csv module's 128 KiB do occur in free text.
LONGEST_CELL = 2**24


class Table(NamedTuple):
    """A table as read, notes on what was guessed, the name of its label column, and whether a line named the columns."""

    frame: pd.DataFrame
    notes: list[str]
    label: str | None = None
    has_header: bool = True


class _Counted(io.RawIOBase):
    """The bytes of ``file``, refused beyond ``most`` of them; ``progress`` hears how many of the file itself are read."""

    def __init__(self, file: IO[bytes], most: float, path: Path, progress: Callable[[int], None] | None) -> None:
        self.file, self.most, self.path, self.progress, self.count = file, most, path, progress, 0
        self.inner = getattr(file, "fileobj", None) or getattr(file, "_fp", None) or file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self.file.read(len(buffer))
        self.count += len(part)
        if self.count > self.most:
            raise ValueError(
                f"{self.path} grows to more than {MOST_GROWTH} times its size when unpacked: if that is right, unpack "
                f"it and give the file that comes out"
            )
        if self.progress is not None:
            self.progress(self.count)
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        self.file.close()
        super().close()


def read_table(
    path: str | Path,
    *,
    label: str | Callable[[Sequence[str]], str] | None = None,
    text: Sequence[str] = (),
    header: bool = True,
    delimiter: str | None = None,
    skip_lines: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Table:
    """Read a table: CSV and its kin (also .gz, .bz2, .xz), Parquet, JSON lines (.jsonl, .ndjson) or Excel (.xlsx).

    Parameters
    ----------
    path : file
    label : name of the label column, or a function that finds it among the names
        Its cells are kept as they are written.
    text : other columns to be read as they are written
    header : bool
        Whether the first line names the columns; else they are called c1, c2, …
    delimiter : str, optional
        Found out by default.
    skip_lines : int
        Lines at the top that are no part of the table.
    progress : function of the number of bytes read so far, optional
    """
    import pandas as pd

    path = existing(path)
    find = label if callable(label) else lambda names: label
    try:
        with _open(path) as file:
            start = file.read(HEAD)
        reader = _reader(path, start)
        if reader is not None:
            frame, notes = reader(path)
            frame.columns = [str(name).strip() for name in frame.columns]
            if not len(frame):
                raise ValueError(f"{path} has columns but no rows")
            return Table(frame, notes, find(list(frame.columns)))
        return _read_text(path, start, find, text, header, delimiter, skip_lines, progress)
    except (UnicodeError, csv.Error, OSError, EOFError, lzma.LZMAError, zlib.error, pd.errors.ParserError) as error:
        if isinstance(error, FileNotFoundError | PermissionError):
            raise
        raise ValueError(f"{path} cannot be read: {_first_line(error)}") from None


def existing(path: str | Path) -> Path:
    """``path``, when it is a file with something in it."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file in it")
    if not path.exists():
        if not path.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {path.parent}")
        near = get_close_matches(path.name, [other.name for other in path.parent.iterdir()], 1)
        raise FileNotFoundError(f"there is no file {path}" + (f": did you mean {near[0]}?" if near else ""))
    if not path.is_file():
        raise ValueError(f"{path} is a device or a pipe: name a file")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty")
    return path


def _reader(path: Path, start: bytes) -> Callable[[Path], tuple[pd.DataFrame, list[str]]] | None:
    """What reads this file, None for text in columns; an error for what holds no table."""
    suffix = path.suffix.lower()
    if start.startswith(b"PAR1") or suffix in (".parquet", ".pq"):
        return _read_parquet
    if suffix in (".xlsx", ".xlsm") and start.startswith(b"PK"):
        return _read_excel
    if suffix == ".tar" or start[TAR[0]] == TAR[1]:
        raise ValueError(f"{path} is an archive: unpack it, and give the table in it")
    if magic := next((what for sign, what in MAGIC.items() if start.startswith(sign)), None):
        raise ValueError(f"{path} is {magic}")
    if suffix in (".jsonl", ".ndjson"):
        return _read_json_lines
    if suffix == ".json" or re.match(rb'\s*(\[\s*)?\{\s*"', start):
        raise ValueError(
            f"{path} is JSON, which may hold anything: save the table as CSV, Parquet, or JSON lines (one object per "
            f"line, in a file that ends in .jsonl); pandas.read_json(…).to_csv(…) does it"
        )
    return None


def _open(path: Path, progress: Callable[[int], None] | None = None) -> io.BufferedReader:
    opener = OPENERS.get(path.suffix.lower())
    most = max(HARMLESS, MOST_GROWTH * path.stat().st_size) if opener else float("inf")
    return io.BufferedReader(_Counted((opener or open)(path, "rb"), most, path, progress), HEAD)


# ---------------------------------------------------------------- text in columns


def _read_text(
    path: Path,
    start: bytes,
    find: Callable[[Sequence[str]], str | None],
    text: Sequence[str],
    header: bool,
    delimiter: str | None,
    skip_lines: int,
    progress: Callable[[int], None] | None,
) -> Table:
    import pandas as pd

    notes: list[str] = []
    encoding = "utf-16" if start.startswith(UTF16) else "utf-8-sig"
    if encoding == "utf-16":
        notes.append(f"{path.name} is read as UTF-16")
    lines = list(islice(io.StringIO(start.decode(encoding, "replace"), newline=""), skip_lines, None))
    if delimiter is None:
        tabs = path.name.lower().removesuffix(path.suffix.lower() if path.suffix.lower() in OPENERS else "")
        delimiter = "\t" if tabs.endswith(".tsv") else _delimiter(lines[:SNIFFED])
        if delimiter != ",":
            notes.append(f"{path.name} is cut at {DELIMITERS[delimiter]}")
    first = next((row for row in _rows(lines, delimiter) if "".join(row).strip()), None)
    if first is None:
        raise ValueError(f"{path} has no lines to read")
    names = [name.strip() or f"unnamed {k}" for k, name in enumerate(first, start=1)]
    if header and len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        hint = " (is the first line data? then --no-header)" if looks_like_data(names) else ": rename one of them"
        raise ValueError(f"{path} has the column {twice!r} more than once{hint}")
    names = names if header else [f"c{k}" for k in range(1, len(first) + 1)]
    label = find(names)
    options: dict[str, Any] = {
        "sep": r"\s+" if delimiter == " " else delimiter,
        "header": 0 if header else None,
        "names": names,
        "skiprows": skip_lines,
        "skipinitialspace": True,
        "index_col": False,
        "low_memory": False,
        "keep_default_na": False,
        "na_values": list(MISSING_WORDS),
        "dtype": {name: str for name in text if name in set(names) and name != label},
        # The label as it is written: behind an apostrophe no word is a missing cell.
        "converters": {} if label is None else {label: "'".__add__},
    }
    if delimiter != "," and (named := _decimal_comma(lines[1:500], delimiter)):
        options["decimal"] = ","
        notes.append(f"numbers are read with a decimal comma (such as {named!r})")
    frame = None
    for encoding in (encoding, "latin-1"):
        try:
            with _open(path, progress) as file, warnings.catch_warnings():
                warnings.simplefilter("error", pd.errors.ParserWarning)  # every line longer than the first
                frame = pd.read_csv(file, encoding=encoding, **options)
            break
        except UnicodeDecodeError:
            if encoding != "utf-8-sig":
                raise
            notes.append(
                f"{path.name} is not UTF-8: it is read as Latin-1 (Western European): check names with accents"
            )
        except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
            _find_ragged(path, encoding, delimiter, skip_lines)
            raise ValueError(f"{path} cannot be read: {_first_line(error)}") from None
        except (ValueError, OverflowError) as error:
            raise ValueError(
                _first_line(error) if str(path) in str(error) else f"{path} cannot be read: {_first_line(error)}"
            ) from None
    if frame is None or not len(frame):
        raise ValueError(f"{path} has one line only: a line of column names, then one line per row are needed")
    if label is not None:
        frame[label] = frame[label].str[1:]
    if frame.iloc[:, -1].isna().any() or (frame.iloc[:, -1] == "").any():  # as the end of a line cut short is
        _find_ragged(path, encoding, delimiter, skip_lines)
    return Table(frame, notes, label, header)


def _rows(lines: Any, delimiter: str) -> Any:
    csv.field_size_limit(LONGEST_CELL)
    return csv.reader(lines, delimiter=delimiter, skipinitialspace=True)


def _cells(row: list[str], delimiter: str) -> int:
    """Cells of a row, without the empty ones that spaces at the end of a line make."""
    return len(row) - (len(row) > 1 and row[-1] == "") if delimiter == " " else len(row)


def _delimiter(lines: list[str]) -> str:
    """The delimiter that cuts the lines into the same number of cells, as many as possible."""
    best, cells, steady = ",", 1, 0.0
    for candidate in DELIMITERS:
        counts = Counter(_cells(row, candidate) for row in _rows(lines, candidate) if row)
        usual, times = counts.most_common(1)[0] if counts else (1, 0)
        share = times / max(counts.total(), 1)
        if usual > 1 and (share, usual) > (steady, cells) and not (candidate == " " and cells > 1):
            best, cells, steady = candidate, usual, share
    return best


def _decimal_comma(lines: list[str], delimiter: str) -> str | None:
    """An example, where numbers are written 1,5 and none 1.5."""
    cells = [cell.strip() for cell in chain.from_iterable(_rows(lines, delimiter))]
    commas = [cell for cell in cells if re.fullmatch(r"-?\d+,\d+", cell)]
    return commas[0] if commas and not any(re.fullmatch(r"-?\d+\.\d+", cell) for cell in cells) else None


def _find_ragged(path: Path, encoding: str, delimiter: str, skip_lines: int) -> None:
    """An error that names the first line with more or fewer cells than the first, if there is one."""
    with io.TextIOWrapper(_open(path), encoding=encoding, newline="") as file:
        reader = _rows(islice(file, skip_lines, None), delimiter)
        width, before, n_rows = 0, skip_lines, -1
        try:
            for row in reader:
                line, before = before + 1, skip_lines + reader.line_num
                if not "".join(row).strip() and len(row) <= 1:
                    continue
                cells, n_rows = _cells(row, delimiter), n_rows + 1
                if width and cells != width:
                    break
                width = cells
            else:
                return
        except csv.Error as error:
            where = f"line {skip_lines + reader.line_num}"
            raise ValueError(f"{path} cannot be read at {where}: {error} (an unclosed quote above it?)") from None
    said = f"{path}, line {line}: {cells} cells, but the first line has {width}"
    if before > line:
        raise ValueError(f'{said}. A quote (") opens in line {line} and closes only in line {before}: is one missing?')
    if n_rows == 1 and cells == width + 1:
        hint = "row names without a heading, as R writes them? write.csv(…, row.names=FALSE) leaves them out"
        raise ValueError(f"{said} ({hint})")
    if n_rows == 1:
        hint = "Lines above the table are left out with --skip-lines, another delimiter is set with --delimiter"
        raise ValueError(f"{said}. {hint}")
    cause = "an unquoted delimiter in a text?" if cells > width else "a line cut short?"
    cut = DELIMITERS.get(delimiter, repr(delimiter))
    raise ValueError(f"{said} ({cause} The file is cut at {cut}): mend or delete that line")


def looks_like_data(names: Sequence[str]) -> bool:
    """Are there numbers among the names of the columns?

    >>> looks_like_data(["39", "State-gov"]), looks_like_data(["age", "work"])
    (True, False)
    """
    return any(re.fullmatch(r"\s*-?\d+([.,]\d+)?\s*", name) for name in names)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


# ---------------------------------------------------------------- other files


def _read_parquet(path: Path) -> tuple[pd.DataFrame, list[str]]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ImportError('Parquet files need pyarrow: pip install "collidescope[cli]"') from None
    import pandas as pd

    try:
        claims, schema = pq.read_metadata(path), pq.read_schema(path)
        plain = [field.name for field in schema if _is_plain(pa.types, field.type)]
        chunks = (
            claims.row_group(k).column(j) for k in range(claims.num_row_groups) for j in range(claims.num_columns)
        )
        bytes_ = sum(chunk.total_uncompressed_size for chunk in chunks)
        _check_claim(
            path,
            max(claims.num_rows * claims.num_columns, bytes_),
            f"claims {claims.num_rows:,} rows of {claims.num_columns:,} columns and {bytes_:,} bytes",
        )
        words = [
            name
            for name in plain
            if pa.types.is_string(schema.field(name).type) or pa.types.is_large_string(schema.field(name).type)
        ]
        # As a dictionary a text that repeats is held once; one batch after the other bounds what a page can claim.
        file = pq.ParquetFile(path, read_dictionary=words)
        batches = list(file.iter_batches(columns=plain, use_threads=False))
        table = pa.Table.from_batches(
            batches, file.schema_arrow.empty_table().select(plain).schema if not batches else None
        )
        integers = {kind(): dtype() for kind, dtype in ((pa.int64, pd.Int64Dtype), (pa.uint64, pd.UInt64Dtype))}
        whole = {name for name in table.column_names if table[name].null_count and table[name].type in integers}
        frame = table.drop_columns(list(whole)).to_pandas(ignore_metadata=True, date_as_object=False)
        for name in whole:  # floats would lose digits of large numbers
            frame[name] = table[name].to_pandas(types_mapper=integers.get)
        frame = frame[table.column_names].astype(dict.fromkeys(words, object))
    except Exception as error:
        raise ValueError(f"{path} cannot be read as Parquet: {_first_line(error)}") from None
    others = [name for name in schema.names if name not in set(plain)]
    notes = [f"columns that hold lists, bytes or other nested values are left out: {listed(others)}"] if others else []
    return frame, notes


def _is_plain(types: Any, kind: Any) -> bool:
    kind = kind.value_type if types.is_dictionary(kind) else kind
    tests = (
        "is_integer",
        "is_floating",
        "is_boolean",
        "is_string",
        "is_large_string",
        "is_temporal",
        "is_decimal",
        "is_null",
    )
    return any(getattr(types, test)(kind) for test in tests)


def _check_claim(path: Path, size: int, what: str) -> None:
    if size > max(HARMLESS, MOST_GROWTH * path.stat().st_size):
        raise ValueError(
            f"it {what}, more than {MOST_GROWTH} for each of its bytes: if that is right, give a sample of it"
        )


def _read_json_lines(path: Path) -> tuple[pd.DataFrame, list[str]]:
    import pandas as pd

    records, names = [], {}
    with _open(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{path}, line {number} is not JSON: {_first_line(error)}") from None
            if not isinstance(record, dict):
                raise ValueError(f'{path}, line {number} must be an object such as {{"age": 39}}, one per line')
            records.append(record)
            names |= dict.fromkeys(record)
            _check_claim(path, len(records) * len(names), f"holds {len(records):,} rows of {len(names):,} columns")
    return pd.DataFrame.from_records(records, columns=list(names)), []


def _read_excel(path: Path) -> tuple[pd.DataFrame, list[str]]:
    import zipfile

    import pandas as pd

    try:
        from openpyxl import load_workbook
    except ImportError:
        raise ImportError("Excel workbooks need openpyxl: pip install openpyxl") from None
    try:
        with zipfile.ZipFile(path) as archive:
            _check_claim(path, sum(part.file_size for part in archive.infolist()), "unpacks to far more bytes")
        book = load_workbook(path, read_only=True, data_only=True)
        rows: list[Any] = []
        for row in book.worksheets[0].iter_rows(values_only=True):
            rows.append(row)
            _check_claim(path, len(rows) * max(len(rows[0]), 1), f"holds {len(rows):,} rows of {len(rows[0]):,} cells")
    except Exception as error:
        raise ValueError(f"{path} cannot be read as a workbook: {_first_line(error)}") from None
    names = [f"unnamed {k}" if name is None else str(name) for k, name in enumerate(rows[0] if rows else (), start=1)]
    notes = [f"only the first of {len(book.worksheets)} sheets is read: {book.worksheets[0].title!r}"]
    frame = pd.DataFrame([row for row in rows[1:] if any(cell is not None for cell in row)], columns=names)
    return frame.infer_objects(), notes if len(book.worksheets) > 1 else []
