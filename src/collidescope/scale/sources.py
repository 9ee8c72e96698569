"""From files and loaders to ``fit`` and ``accumulate``: rows that do not fit in memory.

A network reads its rows many times, each time in a new order; files and loaders give them once and
in theirs. So :func:`spool` makes one pass with a batch in memory: X stays on disk as a memory map,
the labels are in memory.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from operator import length_hint
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from collidescope import _checks as check
from collidescope import _store
from collidescope._checks import Array, FloatArray
from collidescope._progress import Progress
from collidescope.scale import _dask

BATCH_ROWS = 65_536  #: rows of a Parquet file that are in memory at once
ROWS_FILE = "X.npy"  #: names of the two files in ``folder``
LABELS_FILE = "y.npy"
Source = Any  #: a file or folder, an iterable of batches, a Dask DataFrame


def spool(
    source: Source,
    target: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    folder: str | Path | None = None,
    dtype: npt.DTypeLike = "float32",
    batch_size: int = BATCH_ROWS,
    verbose: int = 0,
) -> tuple[Any, Array]:
    """Rows as a memory map on disk: ``clf.fit(*spool("rows.parquet", "label"))``.

    In one pass and constant memory. Returns X, a read-only ``numpy.memmap`` of shape (n, …), and y,
    an array of n labels in memory.

    Parameters
    ----------
    source : file or folder, or iterable
        A Parquet file or a folder of them; a torch ``DataLoader`` or any iterable of batches (x, y)
        with x of shape (n, d), or (n, channels, height, width) for images; an iterable of pandas
        DataFrames, as ``pandas.read_csv(path, chunksize=…)`` gives them; a Dask DataFrame,
        partition by partition.
    target : column of the labels in files and DataFrames
    columns : columns of X in files and DataFrames; by default all but ``target``
    folder : path, optional
        Where X.npy and y.npy are kept, to be read again with ``numpy.load(path, mmap_mode="r")``.
        By default they are temporary and go when nothing refers to X any more.
    dtype : "float32" (in which networks are trained) or "float64"
    batch_size : rows of a Parquet file that are in memory at once
    verbose : 1 shows how far it is

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> batches = (
    ...     (rng.normal(size=(100, 3)), rng.choice(["a", "b"], 100)) for _ in range(5)
    ... )
    >>> X, y = spool(batches)
    >>> X.shape, X.dtype.name, y.shape
    ((500, 3), 'float32', (500,))
    """
    dtype_name = getattr(dtype, "__name__", str(dtype))
    wanted = np.dtype(check.check_choice(dtype_name, ["float32", "float64"], "dtype"))
    stream = _open(source, target, columns, check.check_count(batch_size, "batch_size"))
    made = folder is None or not os.path.exists(folder)
    if folder is None:
        place = Path(tempfile.mkdtemp(prefix="collidescope-"))
    else:
        place = _new_folder(folder)
    try:
        # What is temporary goes as a whole when anything fails, and need not reach the disk first.
        rows_file = _store.replacing if folder is not None else _exclusive
        with rows_file(place / ROWS_FILE) as file:
            y = _write(stream, file, wanted, verbose)
            if folder is not None:
                np.save(place / LABELS_FILE, y, allow_pickle=False)
        X = np.load(place / ROWS_FILE, mmap_mode="r")
    except BaseException as error:  # Ctrl-C too: nothing half written is left
        (place / LABELS_FILE).unlink(missing_ok=True)
        if made:
            shutil.rmtree(place, ignore_errors=True)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise OSError(
                errno.ENOSPC,
                (
                    f"the disk of {str(place)!r} is full, what was written is removed: "
                    "pass folder= on a larger one"
                ),
            ) from None
        raise
    if folder is None:  # views of X hold on to the map, not to X
        weakref.finalize(X._mmap, _remove, place, os.getpid())
    return X, y


def _exclusive(path: Path) -> BinaryIO:
    return open(path, "xb")


def _remove(place: Path, owner: int) -> None:
    """Remove a temporary folder, unless this is a fork of the process that uses it."""
    if os.getpid() == owner:
        shutil.rmtree(place, ignore_errors=True)


def posterior_batches(
    path: str | Path,
    label: str | None = None,
    columns: Sequence[str] | None = None,
    batch_size: int = BATCH_ROWS,
) -> Iterator[tuple[FloatArray, Array] | FloatArray]:
    """Posteriors (and labels) of Parquet files, some rows at a time: for :func:`accumulate`.

    Parameters
    ----------
    path : file or folder
    label : column of the labels, optional
    columns : columns of the posteriors, in the order of the classes; by default all but ``label``
    batch_size : rows in memory at once

    Examples
    --------
    >>> import pandas as pd, tempfile
    >>> from collidescope.onestep import accumulate
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = pd.DataFrame(
    ...         {
    ...             "a": [0.9, 0.4, 0.7, 0.2],
    ...             "b": [0.1, 0.6, 0.3, 0.8],
    ...             "y": ["a", "b", "a", "b"],
    ...         }
    ...     )
    ...     table.to_parquet(f"{folder}/heldout.parquet")
    ...     cm = accumulate(
    ...         posterior_batches(f"{folder}/heldout.parquet", "y"), ["a", "b"]
    ...     )
    >>> cm.matrix.round(3)
    array([[0.85, 0.15],
           [0.15, 0.85]])
    """
    return _parquet(
        Path(path), label, columns, check.check_count(batch_size, "batch_size")
    )[0]


def _parquet(
    path: Path, label: str | None, columns: Sequence[str] | None, batch_size: int
) -> tuple[Iterator[Any], int, list[str]]:
    """Batches of the Parquet files at ``path``, their number of rows, and the columns used.

    A batch is an array, with labels where ``label`` names them.
    """
    try:
        from pyarrow import ArrowException, types
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise ImportError(
            f'Parquet files need pyarrow ({error}): pip install "collidescope[cli]"'
        ) from error
    files = sorted(path.rglob("*.parquet"))
    if not path.is_dir():
        files = [_store.regular_file(path)]
    if not files:
        raise ValueError(f"path {str(path)!r} is a folder without a .parquet file")
    rows = 0
    numbers = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    for file in files:
        try:
            with ParquetFile(file) as table:
                schema = table.schema_arrow
                rows += table.metadata.num_rows
        except (OSError, ValueError, ArrowException) as error:
            raise ValueError(
                f"path {str(file)!r} is no Parquet file: {error}"
            ) from None
        # the order of the first file holds for all
        columns = wanted = _wanted(f"path {str(file)!r}", schema.names, label, columns)
        for name in wanted:
            found = schema.field(name).type
            if not any(test(found) for test in numbers):
                raise ValueError(_no_number(name, found))

    named = [*wanted] if label is None else [*wanted, label]

    def batches() -> Iterator[Any]:
        for file in files:
            try:
                # Not ahead, and one row group at a time: memory must not grow with the file.
                with ParquetFile(file, pre_buffer=False) as table:
                    for batch in table.iter_batches(
                        batch_size, columns=named, use_threads=False
                    ):
                        if batch.num_rows:
                            yield _arrays(batch, wanted, label)
            except (OSError, ArrowException) as error:
                raise ValueError(
                    f"path {str(file)!r} cannot be read to its end (damaged?): {error}"
                ) from None

    return batches(), rows, wanted


def _arrays(batch: Any, columns: list[str], label: str | None) -> Any:
    """A batch of pyarrow as an array, rows × columns, with the labels where there are some."""
    values = [batch.column(name).to_numpy(zero_copy_only=False) for name in columns]
    P = np.column_stack(values)
    if label is None:
        return P
    return P, batch.column(label).to_numpy(zero_copy_only=False)


def _wanted(
    table: str, names: list[str], label: str | None, columns: Sequence[str] | None
) -> list[str]:
    """The columns that make up the rows of a table: all ``names`` but ``label``, or ``columns``."""
    wanted = [name for name in names if name != label]
    if columns is not None:
        wanted = list(columns)
    needed = list(wanted)
    if label is not None:
        needed.append(label)
    for name in needed:
        if name not in names:
            raise ValueError(
                f"{table} has no column {name!r}, its columns are {names[:20]}"
            )
    if not wanted:
        raise ValueError(
            f"{table} must have a column beside {label!r}, its columns are {names}"
        )
    return wanted


class _Stream(NamedTuple):
    """Batches and what is known of them."""

    batches: Iterator[Any]
    total: int  #: how many rows or batches there are; 0 where nobody knows
    unit: str  #: "rows" or "batches"
    target: str | None  #: column of the labels in DataFrames
    columns: list[str] | None  #: columns of X in DataFrames


def _open(
    source: Source, target: str | None, columns: Sequence[str] | None, batch_size: int
) -> _Stream:
    if target is not None and not isinstance(target, str):
        raise ValueError(
            f"target must be the name of the column of labels, got {type(target).__name__}"
        )
    if isinstance(columns, str) or (columns is not None and not list(columns)):
        raise ValueError(f"columns must be a list of names, got {columns!r}")
    if target is not None and target in (columns or ()):
        raise ValueError(
            f"columns must not hold the target {target!r}: the label would be known from the input"
        )
    if isinstance(source, str | os.PathLike):
        if target is None:
            raise ValueError(
                "target must name the column of labels when source is a file, got None"
            )
        batches, n_rows, wanted = _parquet(Path(source), target, columns, batch_size)
        return _Stream(batches, n_rows, "rows", None, wanted)
    if _dask.is_dask(source) and hasattr(source, "columns"):
        source = (part.compute() for part in source.to_delayed())
    if hasattr(source, "shape") or not isinstance(source, Iterable):
        raise ValueError(
            "source must be a file or an iterable of batches, got "
            f"{type(source).__name__}: what is in memory needs no spool, pass it to fit"
        )
    if target is None and columns is not None:
        raise ValueError(
            "columns and target go together: batches of (x, y) have neither"
        )
    names = None if columns is None else list(columns)
    return _Stream(iter(source), length_hint(source), "batches", target, names)


def _new_folder(folder: str | Path) -> Path:
    place = _store.made_folder(folder, "folder")
    for name in (ROWS_FILE, LABELS_FILE):
        if (place / name).exists():
            raise ValueError(
                f"folder {str(place)!r} holds {name} already: read it with "
                f"numpy.load(…, mmap_mode='r'), remove it, or name another folder"
            )
    return place


def _write(
    stream: _Stream, file: BinaryIO, dtype: np.dtype[Any], verbose: int
) -> Array:
    """Write the rows as a .npy file, and return the labels."""
    names = stream.columns
    labels: list[Array] = []
    n_rows = 0
    shape: tuple[int, ...] = ()

    # its first form leaves room: numpy pads it for any number of rows
    def write_header() -> None:
        file.seek(0)
        header = {
            "descr": npy.dtype_to_descr(dtype),
            "fortran_order": False,
            "shape": (n_rows, *shape),
        }
        npy.write_array_header_1_0(file, header)

    with Progress(f"writing {stream.unit}", stream.total, verbose) as progress:
        for number, batch in enumerate(stream.batches):
            try:
                x, y, names = _split(batch, stream.target, names)
                rows = _rows(x, names, dtype, n_rows)
                own = _labels(y) if len(rows) else np.atleast_1d(check.to_numpy(y))
                _check_batch(rows, own, shape, labels[:1])
            except ValueError as error:
                raise ValueError(
                    f"batch {number} of source, from row {n_rows}: {error}"
                ) from None
            if len(rows):
                if not labels:
                    shape = rows.shape[1:]
                    write_header()
                file.write(np.ascontiguousarray(rows).data)
                labels.append(own)
                n_rows += len(rows)
            progress.step(len(rows) if stream.unit == "rows" else 1)
    if not labels:
        raise ValueError(
            "source holds no rows: an iterator that was read already, or an empty file?"
        )
    write_header()
    return np.concatenate(labels)


def _check_batch(
    rows: Array,
    labels: Array,
    shape: tuple[int, ...],
    before: list[Array],
) -> None:
    """Refuse a batch that does not fit those ``before``, or whose rows and labels do not."""
    if before and rows.shape[1:] != shape:
        raise ValueError(
            f"x has rows of shape {rows.shape[1:]}, those before have {shape}"
        )
    check.check_same_length(rows, labels, "x and y")
    kinds = [_kind(own) for own in (*before, labels)]
    if len(rows) and len(set(kinds)) > 1:
        first, second, *_ = kinds
        raise ValueError(
            f"it has labels that are {second}, those before are {first}: convert them"
        )


def _kind(labels: Array) -> str:
    """Labels of one kind may come in different dtypes; of two kinds they differ ("1" and 1)."""
    kinds = {"U": "text", "b": "booleans"} | dict.fromkeys("iuf", "numbers")
    return kinds.get(labels.dtype.kind, str(labels.dtype))


def _split(
    batch: Any, target: str | None, names: list[str] | None
) -> tuple[Any, Any, list[str] | None]:
    """x, y and the names of the columns of a batch; those of the first DataFrame hold for all."""
    if hasattr(batch, "iloc"):
        if target is None:
            raise ValueError(
                "target must name the column of labels when batches are DataFrames, got None"
            )
        names = _wanted("it", list(batch.columns), target, names)
        return batch[names], batch[target], names
    if target is not None:
        raise ValueError(
            f"target names a column of a file or DataFrame, but the batch is a "
            f"{type(batch).__name__}"
        )
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        length = f" of length {len(batch)}" if isinstance(batch, tuple | list) else ""
        raise ValueError(
            f"it must be a pair (x, y), got {type(batch).__name__}{length}"
        )
    return batch[0], batch[1], names


def _rows(x: Any, names: list[str] | None, dtype: np.dtype[Any], first: int) -> Array:
    """The batch, whose first row has the number ``first``, as finite rows of ``dtype``."""
    if isinstance(x, np.ma.MaskedArray):
        raise ValueError(
            "x must not be a masked array: drop or fill what is masked, then pass a plain array"
        )
    if hasattr(x, "iloc"):
        for name, found in x.dtypes.items():
            if found.kind not in "fiub":
                raise ValueError(_no_number(name, found))
        names = list(x.columns)
        x = x.to_numpy(dtype=np.float64, na_value=np.nan)
    try:
        given = np.asarray(check.to_numpy(x))
        if given.dtype.kind == "O":  # decimals, or truth values with gaps
            given = given.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"x must hold numbers, got {type(x).__name__} ({error})"
        ) from None
    if given.dtype.kind not in "fiub":
        raise ValueError(
            f"x must hold numbers, got {type(x).__name__} of dtype {given.dtype}"
        )
    if given.ndim < 2 or (len(given) and not given[0].size):
        raise ValueError(
            f"x must be rows, of shape (n, d) or more, got shape {given.shape}: batch "
            "single examples first"
        )
    with np.errstate(over="ignore"):
        rows = given.astype(dtype, copy=False)
    if not np.isfinite(rows).all():
        raise ValueError(_not_finite(given, rows, names, first))
    return rows


def _not_finite(given: Array, rows: Array, names: list[str] | None, first: int) -> str:
    """Which value, in which row and column, is not finite, or not as ``rows`` hold it."""
    bad = np.argwhere(~np.isfinite(rows))
    row, *place = bad[0].tolist()
    value = given[row, *place]
    column: Any = tuple(place)
    if names is not None:
        column = names[place[0]]
    elif len(place) == 1:
        column = place[0]
    at = f"in row {first + row}, column {column!r}"
    if np.isfinite(float(value)):
        return (
            f"x has {value:.6g} {at}, beyond what {rows.dtype} holds: pass "
            "dtype='float64'"
        )
    return f"x must be finite, got {value} {at}: drop or impute such rows first"


def _labels(y: object) -> Array:
    """Labels as a flat array that a file can hold: text as text, not as objects."""
    labels = check.check_labels(check.to_numpy(y))
    if labels.dtype.kind != "O":
        return labels
    given = labels.tolist()
    if not all(isinstance(label, str) and not label.endswith("\0") for label in given):
        kinds = {type(label).__name__ for label in given}
        found = sorted(kinds)
        raise ValueError(
            f"y must hold labels of one kind (text, whole numbers, booleans), got {found}: convert "
            f"to str"
        )
    return labels.astype(str)


def _no_number(name: object, found: object) -> str:
    return (
        f"column {name!r} holds {found}, not numbers: leave it out with columns=, make numbers of "
        f"it, or use TableClassifier, which takes text and dates"
    )
