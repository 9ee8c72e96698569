"""From files and loaders to ``fit`` and ``accumulate``: rows and posteriors that do not fit in memory.

A network reads its rows many times, each time in a new order; files and loaders give them once and in theirs. So
:func:`spool` makes one pass with a batch in memory: X stays on disk as a memory map, the labels are in memory.
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
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from collidescope import _checks as check
from collidescope import _store
from collidescope._checks import FloatArray
from collidescope._progress import Progress
from collidescope.scale import _dask

BATCH_ROWS = 65_536  #: rows of a Parquet file that are in memory at once
ROWS_FILE, LABELS_FILE = "X.npy", "y.npy"  #: names of the two files in ``folder``
#: Labels of one group may come in batches of different dtypes; those of two groups are different labels ("1" and 1).
GROUPS = {"U": "text", "b": "booleans", "i": "numbers", "u": "numbers", "f": "numbers"}


def spool(
    source: Any,
    target: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    folder: str | Path | None = None,
    dtype: npt.DTypeLike = "float32",
    batch_size: int = BATCH_ROWS,
    verbose: int = 0,
) -> tuple[Any, npt.NDArray[Any]]:
    """Rows as a memory map on disk, in one pass and constant memory: ``clf.fit(*spool("rows.parquet", "label"))``.

    Returns X, a read-only ``numpy.memmap`` of shape (n, …), and y, an array of n labels in memory.

    Parameters
    ----------
    source : file or folder, or iterable
        A Parquet file or a folder of them; a torch ``DataLoader`` or any iterable of batches (x, y) with x of shape
        (n, d), or (n, channels, height, width) for images; an iterable of pandas DataFrames, as
        ``pandas.read_csv(path, chunksize=…)`` gives them; a Dask DataFrame, partition by partition.
    target : column of the labels in files and DataFrames
    columns : columns of X in files and DataFrames; by default all but ``target``
    folder : path, optional
        Where X.npy and y.npy are kept, to be read again with ``numpy.load(path, mmap_mode="r")``. By default they are
        temporary and go when nothing refers to X any more.
    dtype : "float32" (in which networks are trained) or "float64"
    batch_size : rows of a Parquet file that are in memory at once
    verbose : 1 shows how far it is

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> batches = ((rng.normal(size=(100, 3)), rng.choice(["a", "b"], 100)) for _ in range(5))
    >>> X, y = spool(batches)
    >>> X.shape, X.dtype.name, y.shape
    ((500, 3), 'float32', (500,))
    """
    wanted = np.dtype(
        check.check_choice(getattr(dtype, "__name__", str(dtype)), ["float32", "float64"], "dtype")
    )
    stream = _open(source, target, columns, check.check_count(batch_size, "batch_size"))
    made = folder is None or not os.path.exists(folder)
    place = (
        Path(tempfile.mkdtemp(prefix="collidescope-")) if folder is None else _new_folder(folder)
    )
    try:
        # What is temporary goes as a whole when anything fails, and need not reach the disk before it is read.
        with (
            open(place / ROWS_FILE, "xb")
            if folder is None
            else _store.replacing(place / ROWS_FILE) as file
        ):
            y = _write(stream, file, wanted, verbose)
            if folder is not None:
                np.save(place / LABELS_FILE, y, allow_pickle=False)
        X = np.load(place / ROWS_FILE, mmap_mode="r")
    except BaseException as error:  # Ctrl-C too: nothing half written is left
        (place / LABELS_FILE).unlink(missing_ok=True)
        if made:
            shutil.rmtree(place, ignore_errors=True)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            words = f"the disk of {str(place)!r} is full, what was written is removed: pass folder= on a larger one"
            raise OSError(errno.ENOSPC, words) from None
        raise
    if folder is None:  # views of X hold on to the map, not to X
        weakref.finalize(X._mmap, _remove, place, os.getpid())
    return X, y


def _remove(place: Path, owner: int) -> None:
    """Remove a temporary folder, unless this is a fork of the process that uses it."""
    if os.getpid() == owner:
        shutil.rmtree(place, ignore_errors=True)


def posterior_batches(
    path: str | Path,
    label: str | None = None,
    columns: Sequence[str] | None = None,
    batch_size: int = BATCH_ROWS,
) -> Iterator[tuple[FloatArray, npt.NDArray[Any]] | FloatArray]:
    """Posteriors (and labels) of a Parquet file, or of a folder of them, some rows at a time: for :func:`accumulate`.

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
    ...         {"a": [0.9, 0.4, 0.7, 0.2], "b": [0.1, 0.6, 0.3, 0.8], "y": ["a", "b", "a", "b"]}
    ...     )
    ...     table.to_parquet(f"{folder}/heldout.parquet")
    ...     cm = accumulate(posterior_batches(f"{folder}/heldout.parquet", "y"), ["a", "b"])
    >>> cm.matrix.round(3)
    array([[0.85, 0.15],
           [0.15, 0.85]])
    """
    return _parquet(Path(path), label, columns, check.check_count(batch_size, "batch_size"))[0]


def _parquet(
    path: Path, label: str | None, columns: Sequence[str] | None, batch_size: int
) -> tuple[Iterator[Any], int, list[str]]:
    """Batches of the Parquet files at ``path`` (arrays, with labels where ``label`` names them), rows, columns."""
    try:
        from pyarrow import ArrowException, types
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise ImportError(
            f'Parquet files need pyarrow ({error}): pip install "collidescope[cli]"'
        ) from error
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [_store.regular_file(path)]
    if not files:
        raise ValueError(f"path {str(path)!r} is a folder without a .parquet file")
    rows, numbers = 0, (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    for file in files:
        try:
            with ParquetFile(file) as table:
                schema, rows = table.schema_arrow, rows + table.metadata.num_rows
        except (OSError, ValueError, ArrowException) as error:
            raise ValueError(f"path {str(file)!r} is no Parquet file: {error}") from None
        # the order of the first file holds for all
        columns = wanted = _wanted(f"path {str(file)!r}", schema.names, label, columns)
        for name, found in ((name, schema.field(name).type) for name in wanted):
            if not any(test(found) for test in numbers):
                raise ValueError(_no_number(name, found))

    def batches() -> Iterator[Any]:
        for file in files:
            try:
                # Not ahead, and one row group at a time: what is in memory must not grow with the file.
                with ParquetFile(file, pre_buffer=False) as table:
                    named = wanted if label is None else [*wanted, label]
                    for batch in table.iter_batches(batch_size, columns=named, use_threads=False):
                        if batch.num_rows:
                            P = np.column_stack(
                                [
                                    batch.column(name).to_numpy(zero_copy_only=False)
                                    for name in wanted
                                ]
                            )
                            yield (
                                P
                                if label is None
                                else (P, batch.column(label).to_numpy(zero_copy_only=False))
                            )
            except (OSError, ArrowException) as error:
                raise ValueError(
                    f"path {str(file)!r} cannot be read to its end (damaged?): {error}"
                ) from None

    return batches(), rows, wanted


def _wanted(
    table: str, names: list[str], label: str | None, columns: Sequence[str] | None
) -> list[str]:
    """Those of the ``names`` of a table that make up its rows: all but ``label``, or ``columns``."""
    wanted = [name for name in names if name != label] if columns is None else list(columns)
    if missing := [
        name for name in [*wanted, *([] if label is None else [label])] if name not in names
    ]:
        raise ValueError(f"{table} has no column {missing[0]!r}, its columns are {names[:20]}")
    if not wanted:
        raise ValueError(f"{table} must have a column beside {label!r}, its columns are {names}")
    return wanted


#: Batches; how many rows or batches there are (0: nobody knows); which of the two; target and columns of DataFrames.
_Stream = tuple[Iterator[Any], int, str, str | None, list[str] | None]


def _open(
    source: Any, target: str | None, columns: Sequence[str] | None, batch_size: int
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
        return batches, n_rows, "rows", None, wanted
    if _dask.is_dask(source) and hasattr(source, "columns"):
        source = (part.compute() for part in source.to_delayed())
    if hasattr(source, "shape") or not isinstance(source, Iterable):
        found = (
            f"{type(source).__name__}: an array or a table in memory needs no spool, pass it to fit"
        )
        raise ValueError(f"source must be a file or an iterable of batches, got {found}")
    if target is None and columns is not None:
        raise ValueError("columns and target go together: batches of (x, y) have neither")
    return (
        iter(source),
        length_hint(source),
        "batches",
        target,
        None if columns is None else list(columns),
    )


def _new_folder(folder: str | Path) -> Path:
    place = _store.made_folder(folder, "folder")
    if there := [name for name in (ROWS_FILE, LABELS_FILE) if (place / name).exists()]:
        said = f"folder {str(place)!r} holds {there[0]} already: read it with numpy.load(…, mmap_mode='r'),"
        raise ValueError(f"{said} remove it, or name another folder")
    return place


def _write(stream: _Stream, file: BinaryIO, dtype: np.dtype[Any], verbose: int) -> npt.NDArray[Any]:
    """Write the rows as a .npy file, and return the labels."""
    batches, total, unit, target, names = stream
    labels: list[npt.NDArray[Any]] = []
    n_rows, shape = 0, ()

    def write_header() -> None:  # its first form leaves room: numpy pads it for any number of rows
        file.seek(0)
        header = {
            "descr": npy.dtype_to_descr(dtype),
            "fortran_order": False,
            "shape": (n_rows, *shape),
        }
        npy.write_array_header_1_0(file, header)

    with Progress(f"writing {unit}", total, verbose) as progress:
        for number, batch in enumerate(batches):
            try:
                x, y, names = _split(batch, target, names)
                rows = _rows(x, names, dtype, n_rows)
                own = _labels(y) if len(rows) else np.atleast_1d(check.to_numpy(y))
                if labels and rows.shape[1:] != shape:
                    raise ValueError(
                        f"x has rows of shape {rows.shape[1:]}, those before have {shape}"
                    )
                if len(rows) != len(own):
                    raise ValueError(
                        f"x and y must have the same number of rows, got {len(rows)} and {len(own)}"
                    )
                groups = [
                    GROUPS.get(each.dtype.kind, str(each.dtype)) for each in (*labels[:1], own)
                ]
                if len(rows) and len(set(groups)) > 1:
                    raise ValueError(
                        f"it has labels that are {groups[1]}, those before are {groups[0]}: convert them"
                    )
            except ValueError as error:
                raise ValueError(f"batch {number} of source, from row {n_rows}: {error}") from None
            if len(rows):
                if not labels:
                    shape = rows.shape[1:]
                    write_header()
                file.write(np.ascontiguousarray(rows).data)
                labels.append(own)
                n_rows += len(rows)
            progress.step(len(rows) if unit == "rows" else 1)
    if not labels:
        raise ValueError(
            "source holds no rows: an iterator that was read already, or an empty file?"
        )
    write_header()
    return np.concatenate(labels)


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
            f"target names a column of a file or DataFrame, but the batch is a {type(batch).__name__}"
        )
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        length = f" of length {len(batch)}" if isinstance(batch, tuple | list) else ""
        raise ValueError(f"it must be a pair (x, y), got {type(batch).__name__}{length}")
    return batch[0], batch[1], names


def _rows(x: Any, names: list[str] | None, dtype: np.dtype[Any], first: int) -> npt.NDArray[Any]:
    """The batch, whose first row has the number ``first``, as finite rows of ``dtype``."""
    if isinstance(x, np.ma.MaskedArray):
        raise ValueError(
            "x must not be a masked array: drop or fill what is masked, then pass a plain array"
        )
    if hasattr(x, "iloc"):
        for name, found in x.dtypes.items():
            if found.kind not in "fiub":
                raise ValueError(_no_number(name, found))
        names, x = list(x.columns), x.to_numpy(dtype=np.float64, na_value=np.nan)
    try:
        given = np.asarray(check.to_numpy(x))
        if given.dtype.kind == "O":  # decimals, or truth values with gaps
            given = given.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"x must hold numbers, got {type(x).__name__} ({error})") from None
    if given.dtype.kind not in "fiub":
        raise ValueError(f"x must hold numbers, got {type(x).__name__} of dtype {given.dtype}")
    if given.ndim < 2 or (len(given) and not given[0].size):
        said = f"x must be rows, of shape (n, d) or more, got shape {given.shape}"
        raise ValueError(f"{said}: batch single examples first")
    with np.errstate(over="ignore"):
        rows = given.astype(dtype, copy=False)
    if not (finite := np.isfinite(rows)).all():
        where = tuple(int(i) for i in np.argwhere(~finite)[0])
        column = (
            names[where[1]] if names is not None else where[1] if len(where) == 2 else where[1:]
        )
        at = f"in row {first + where[0]}, column {column!r}"
        if np.isfinite(float(given[where])):
            raise ValueError(
                f"x has {given[where]:.6g} {at}, beyond what {dtype} holds: pass dtype='float64'"
            )
        raise ValueError(
            f"x must be finite, got {given[where]} {at}: drop or impute such rows first"
        )
    return rows


def _labels(y: Any) -> npt.NDArray[Any]:
    """Labels as a flat array that a file can hold: text as text, not as objects."""
    labels = check.check_labels(check.to_numpy(y))
    if labels.dtype.kind != "O":
        return labels
    if not all(isinstance(label, str) and not label.endswith("\0") for label in labels.tolist()):
        found = sorted({type(label).__name__ for label in labels.tolist()})
        raise ValueError(
            f"y must hold labels of one kind (text, whole numbers, booleans), got {found}: convert to str"
        )
    return labels.astype(str)


def _no_number(name: Any, found: Any) -> str:
    remedy = "leave it out with columns=, make numbers of it, or use TableClassifier, which takes text and dates"
    return f"column {name!r} holds {found}, not numbers: {remedy}"
