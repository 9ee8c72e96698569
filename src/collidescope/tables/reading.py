"""Tables from files: CSV and its kin with delimiter and encoding found out, Parquet; every guess is said aloud."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from collidescope.tables._values import MISSING_LABELS, MISSING_WORDS

if TYPE_CHECKING:
    import pandas as pd

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "spaces"}
#: Lines that decide the delimiter.
SNIFFED = 50
OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
#: What a file starts with when it is no text.
MAGIC = {
    b"PAR1": "parquet",
    b"PK\x03\x04": "a zip file or an Excel workbook",
    b"\xd0\xcf\x11\xe0": "an Excel workbook",
    b"%PDF": "a PDF",
    b"\x93NUM": "a numpy array",
    b"\x1f\x8b": "compressed by gzip: call it .gz",
}
UTF16 = (b"\xff\xfe", b"\xfe\xff")
#: A compressed table that grows to more than so many times its size, and beyond so many characters, is a bomb.
MOST_GROWTH, HARMLESS = 200, 50_000_000
#: Longer cells than the csv module's 128 KiB do occur in free text.
LONGEST_CELL = 2**24


@dataclass(frozen=True)
class Table:
    """A table as read.

    Attributes
    ----------
    frame : DataFrame
    notes : what was guessed, in words
    has_header : bool
    """

    frame: pd.DataFrame
    notes: list[str] = field(default_factory=list)
    has_header: bool = True


class _Scan(NamedTuple):
    """First row, its last line, cells a row, rows after the first."""

    first: list[str]
    line: int
    n_rows: int


def read_table(
    path: str | Path,
    *,
    label: str | None = None,
    text: Sequence[str] = (),
    header: bool = True,
    delimiter: str | None = None,
    skip_lines: int = 0,
) -> Table:
    """Read a CSV, TSV or Parquet file (text may be compressed: .gz, .bz2, .xz).

    Parameters
    ----------
    path : file
    label : name of the label column, in which "none" is an answer like any other
    text : columns to be read as they are written
    header : bool
        Whether the first line names the columns; else they are called c1, c2, …
    delimiter : str, optional
        Found out by default.
    skip_lines : int
        Lines at the top that are no part of the table.
    """
    path = existing(path)
    kind = _magic(path)
    if kind == "parquet" or path.suffix.lower() in (".parquet", ".pq"):
        frame = _read_parquet(path)
        return Table(frame, [], True)
    if kind is not None:
        raise ValueError(f"{path} is {kind}: save the table as CSV or Parquet")
    import pandas as pd

    notes: list[str] = []
    try:
        encoding = _encoding(path, notes)
        delimiter = delimiter or _delimiter(path, encoding, skip_lines, notes)
        scan = _scan(path, encoding, delimiter, skip_lines)
        names = _names(scan.first) if header else [f"c{k}" for k in range(1, len(scan.first) + 1)]
        if header:
            _check_names(path, names, scan)
        frame = _read_text(path, encoding, delimiter, names, scan, label, text, header, skip_lines, notes)
    except (UnicodeError, csv.Error, OSError, EOFError, lzma.LZMAError, zlib.error, pd.errors.ParserError) as error:
        raise ValueError(f"{path} cannot be read: {_first_line(error)}") from None
    return Table(frame, notes, header)


def existing(path: str | Path) -> Path:
    """``path`` when it is a file; else an error with names like it."""
    path = Path(path)
    if path.is_file():
        if path.stat().st_size == 0:
            raise ValueError(f"{path} is empty (0 bytes)")
        return path
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file in it")
    folder = path.parent
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}, so no {path.name} in it")
    near = get_close_matches(path.name, [other.name for other in folder.iterdir() if other.is_file()], 1, 0.6)
    hint = f": did you mean {near[0]}?" if near else f" in {folder.resolve()}"
    raise FileNotFoundError(f"there is no file {path}{hint}")


def _magic(path: Path) -> str | None:
    with open(path, "rb") as file:
        start = file.read(4)
    if path.suffix.lower() in OPENERS:
        return None
    return next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), None)


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise ImportError('Parquet files need pyarrow: pip install "collidescope[cli]"') from None
    try:
        claims = pq.read_metadata(path)
        if claims.num_rows * claims.num_columns > max(HARMLESS, MOST_GROWTH * path.stat().st_size):
            raise ValueError(
                f"it claims {claims.num_rows:,} rows of {claims.num_columns:,} columns, more than {MOST_GROWTH} cells "
                f"for each of its bytes: if that is right, give a sample of it"
            )
        frame: pd.DataFrame = pq.read_table(path).to_pandas(ignore_metadata=True)
    except Exception as error:
        raise ValueError(f"{path} cannot be read as Parquet: {_first_line(error)}") from None
    frame.columns = [str(name).strip() for name in frame.columns]
    if len(frame) == 0:
        raise ValueError(f"{path} has columns but no rows")
    return frame


def _open(path: Path, encoding: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(_bytes(path), encoding=encoding, newline="")


def _bytes(path: Path) -> Any:
    opener: Callable[..., Any] = OPENERS.get(path.suffix.lower(), open)
    return opener(path, "rb")


def _check_growth(path: Path) -> None:
    """Refuse a compressed file that unpacks to far more than a table would."""
    read, most = 0, max(HARMLESS, MOST_GROWTH * path.stat().st_size)
    with _bytes(path) as file:
        while part := file.read(2**20):
            read += len(part)
            if read > most:
                raise ValueError(
                    f"{path} grows to more than {MOST_GROWTH} times its size when unpacked: if that is right, unpack "
                    f"it and give the file that comes out"
                )


def _encoding(path: Path, notes: list[str]) -> str:
    """UTF-8 where it is valid, else UTF-16 by its mark, else Latin-1."""
    try:
        if path.suffix.lower() in OPENERS:
            _check_growth(path)
        with _bytes(path) as file:
            start = file.read(4)
        if start.startswith(UTF16):
            notes.append(f"{path.name} is read as UTF-16")
            return "utf-16"
        with _open(path, "utf-8") as file:
            while file.read(2**20):
                pass
    except UnicodeDecodeError:
        notes.append(f"{path.name} is not UTF-8: it is read as Latin-1 (Western European), check names with accents")
        return "latin-1"
    return "utf-8-sig"


def _rows(file: io.TextIOWrapper, delimiter: str) -> Any:
    csv.field_size_limit(LONGEST_CELL)
    return csv.reader(file, delimiter=delimiter, skipinitialspace=True)


def _delimiter(path: Path, encoding: str, skip_lines: int, notes: list[str]) -> str:
    """The delimiter that cuts the first lines into the same number of cells, as many as possible."""
    if path.name.lower().removesuffix(path.suffix.lower() if path.suffix.lower() in OPENERS else "").endswith(".tsv"):
        return "\t"
    with _open(path, encoding) as file:
        lines = [line for line in islice(file, skip_lines, skip_lines + SNIFFED) if line.strip()]
    best, cells, steady = ",", 1, 0.0
    for candidate in DELIMITERS:
        counts = [len(_cells(row)) for row in _rows(io.StringIO("".join(lines), newline=""), candidate) if row]  # type: ignore[arg-type]
        usual = max(set(counts), key=counts.count) if counts else 1
        share = counts.count(usual) / len(counts) if counts else 0.0
        if usual > 1 and (share, usual) > (steady, cells) and not (candidate == " " and cells > 1):
            best, cells, steady = candidate, usual, share
    if best != ",":
        notes.append(f"{path.name} is cut at {DELIMITERS[best]}")
    return best


def _cells(row: list[str]) -> list[str]:
    """Without the empty cells that spaces at the end of a line make."""
    while len(row) > 1 and row[-1] == "":
        row = row[:-1]
    return row


def _scan(path: Path, encoding: str, delimiter: str, skip_lines: int) -> _Scan:
    """Go through all rows once: each must have as many cells as the first."""
    first: list[str] | None = None
    line = n_rows = before = 0
    with _open(path, encoding) as file:
        for _ in range(skip_lines):
            file.readline()
        reader = _rows(file, delimiter)
        try:
            for row in reader:
                if not row or (len(row) == 1 and not row[0].strip()):
                    continue
                row = _cells(row) if delimiter == " " else row
                if first is None:
                    first, line = row, skip_lines + reader.line_num
                elif len(row) != len(first):
                    lines = skip_lines + before + 1, skip_lines + reader.line_num
                    raise ValueError(_ragged(path, lines, len(row), first, delimiter, n_rows))
                else:
                    n_rows += 1
                before = reader.line_num
        except csv.Error as error:
            where = f"line {skip_lines + reader.line_num}"
            raise ValueError(f"{path} cannot be read at {where}: {error} (an unclosed quote above it?)") from None
    if first is None:
        raise ValueError(f"{path} has no lines to read")
    return _Scan(first, line, n_rows)


def _ragged(path: Path, lines: tuple[int, int], cells: int, first: list[str], delimiter: str, n_rows: int) -> str:
    said = f"{path}, line {lines[0]}: {cells} cells, but the first line has {len(first)}"
    if lines[1] > lines[0]:
        return f'{said}. A quote (") opens in line {lines[0]} and closes only in line {lines[1]}: is one missing?'
    if n_rows == 0 and cells == len(first) + 1:
        return f"{said} (row names without a heading, as R writes them? write.csv(…, row.names=FALSE) leaves them out)"
    if n_rows == 0:
        return (
            f"{said}. Lines above the table are left out with --skip-lines, another delimiter is set with --delimiter"
        )
    cause = "an unquoted delimiter in a text?" if cells > len(first) else "a line cut short?"
    return f"{said} ({cause} The file is cut at {DELIMITERS.get(delimiter, repr(delimiter))}): mend or delete that line"


def _names(first: list[str]) -> list[str]:
    return [name.strip() or f"unnamed {k}" for k, name in enumerate(first, start=1)]


def _check_names(path: Path, names: list[str], scan: _Scan) -> None:
    if scan.n_rows == 0:
        raise ValueError(f"{path} has one line only: a line of column names, then a line a row are needed")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        hint = " (is the first line data? then --no-header)" if looks_like_data(names) else ": rename one of them"
        raise ValueError(f"{path} has the column {twice[0]!r} more than once{hint}")


def looks_like_data(names: Sequence[str]) -> bool:
    """Are there numbers among the names of the columns?

    >>> looks_like_data(["39", "State-gov"]), looks_like_data(["age", "work"])
    (True, False)
    """
    return any(re.fullmatch(r"\s*-?\d+([.,]\d+)?\s*", name) for name in names)


def _read_text(
    path: Path,
    encoding: str,
    delimiter: str,
    names: list[str],
    scan: _Scan,
    label: str | None,
    text: Sequence[str],
    header: bool,
    skip_lines: int,
    notes: list[str],
) -> pd.DataFrame:
    import pandas as pd

    options: dict[str, Any] = {
        "sep": r"\s+" if delimiter == " " else delimiter,
        "header": None,
        "names": names,
        "skiprows": scan.line if header else skip_lines,
        "encoding": encoding,
        "skipinitialspace": True,
        "index_col": False,
        "low_memory": False,
        "keep_default_na": False,
        "na_values": {name: list(MISSING_LABELS if name == label else MISSING_WORDS) for name in names},
        "dtype": {name: str for name in text if name in names},
    }
    if delimiter != "," and (named := _decimal_commas(path, options)):
        options["decimal"] = ","
        notes.append(f"numbers are read with a decimal comma (such as {named!r})")
    try:
        frame: pd.DataFrame = pd.read_csv(path, **options)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{path} cannot be read: {_first_line(error)}") from None
    return frame


def _decimal_commas(path: Path, options: dict[str, Any]) -> str | None:
    """An example, where numbers are written 1,5 and none 1.5."""
    import pandas as pd

    start = pd.read_csv(path, **(options | {"dtype": str, "nrows": 500}))
    cells = pd.Series(start.to_numpy().ravel()).dropna().astype(str)
    commas = cells[cells.str.fullmatch(r"-?\d+,\d+")]
    points = cells.str.fullmatch(r"-?\d+\.\d+").any()
    return str(commas.iloc[0]) if len(commas) and not points else None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
