"""Posteriors and labels from Parquet files, some rows at a time: what :func:`collidescope.accumulate` takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope._checks import FloatArray

#: Rows of a Parquet file that are in memory at once.
BATCH_ROWS = 65_536


def posterior_batches(
    path: str | Path, label: str | None = None, columns: Sequence[str] | None = None, batch_size: int = BATCH_ROWS
) -> Iterator[tuple[FloatArray, npt.NDArray[Any]] | FloatArray]:
    """Posteriors (and labels) of a Parquet file, or of a folder of them, some rows at a time: for :func:`accumulate`.

    Parameters
    ----------
    path : file or folder
    label : str, optional
        Column of the labels.
    columns : list of str, optional
        Columns of the posteriors, in the order of the classes; by default all but ``label``.
    batch_size : int
        Rows in memory at once.

    Examples
    --------
    >>> import pandas as pd, tempfile
    >>> from collidescope.estimate import accumulate
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = pd.DataFrame({"a": [0.9, 0.4, 0.7, 0.2], "b": [0.1, 0.6, 0.3, 0.8], "y": ["a", "b", "a", "b"]})
    ...     table.to_parquet(f"{folder}/heldout.parquet")
    ...     cm = accumulate(posterior_batches(f"{folder}/heldout.parquet", "y"), ["a", "b"])
    >>> cm.matrix.round(3)
    array([[0.85, 0.15],
           [0.15, 0.85]])
    """
    check.check_count(batch_size, "batch_size", least=1)
    files, wanted = parquet_files(path, label, columns)
    return parquet_batches(files, wanted, label, batch_size)


def parquet_files(path: str | Path, label: str | None, columns: Sequence[str] | None) -> tuple[list[Path], list[str]]:
    """The Parquet files at ``path`` and the columns to be read from each, all of them checked to be there."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise ImportError(f'Parquet files need pyarrow ({error}): pip install "collidescope[cli]"') from error
    if not Path(path).exists():
        raise FileNotFoundError(f"path {str(path)!r} does not exist")
    files = sorted(Path(path).rglob("*.parquet")) if Path(path).is_dir() else [Path(path)]
    if not files:
        raise ValueError(f"path {str(path)!r} is a folder without a .parquet file")
    for file in files:
        try:
            names = ParquetFile(file).schema_arrow.names
        except (OSError, ValueError, ArrowException) as error:
            raise ValueError(f"path {str(file)!r} is no Parquet file: {error}") from None
        wanted = [name for name in names if name != label] if columns is None else list(columns)
        missing = [name for name in [*wanted, *([] if label is None else [label])] if name not in names]
        if missing:
            raise ValueError(f"path {str(file)!r} has no column {missing[0]!r}, its columns are {names[:20]}")
        if not wanted:
            raise ValueError(f"path {str(file)!r} must have a column beside {label!r}, its columns are {names}")
        columns = wanted  # the order of the first file holds for all
    return files, wanted


def parquet_batches(files: list[Path], wanted: list[str], label: str | None, batch_size: int) -> Iterator[Any]:
    """The columns ``wanted`` as one array, with the labels where ``label`` names them, some rows at a time."""
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    columns = wanted if label is None else [*wanted, label]
    for file in files:
        try:
            # Not ahead, and one row group at a time: what is in memory must not grow with the file.
            with ParquetFile(file, pre_buffer=False) as table:
                for batch in table.iter_batches(batch_size, columns=columns, use_threads=False):
                    if batch.num_rows:
                        P = np.column_stack([batch.column(name).to_numpy(zero_copy_only=False) for name in wanted])
                        yield P if label is None else (P, batch.column(label).to_numpy(zero_copy_only=False))
        except (OSError, ArrowException) as error:
            raise ValueError(f"path {str(file)!r} cannot be read to its end (damaged?): {error}") from None
