"""Roads into the accumulator: arrays, chunks of any kind, Parquet files, Dask collections.

Every road ends in :class:`~collidescope.inference.CollisionAccumulator`, whose sums are O(K²) however many rows pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from operator import length_hint
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope._checks import FloatArray
from collidescope._progress import Progress
from collidescope.equations.posterior import shift_priors
from collidescope.inference import MAX_STRATA, CollisionAccumulator, resolve_priors
from collidescope.matrix import CollisionMatrix
from collidescope.scale import _dask

#: Rows of a Parquet file that are in memory at once.
BATCH_ROWS = 65_536


def collision_matrix_from_posteriors(
    P: npt.ArrayLike,
    y: npt.ArrayLike | None = None,
    *,
    classes: Sequence[Any] | npt.NDArray[Any] | None = None,
    priors: npt.ArrayLike | str = "empirical",
    sample_weight: npt.ArrayLike | None = None,
) -> CollisionMatrix:
    """Collision matrix from held-out posteriors, with intervals.

    Dask arrays and DataFrames are accumulated where their blocks are, in one pass when ``classes`` are given (they are
    taken from the columns of a DataFrame); other ``priors`` than "empirical" take a pass over ``y`` first.

    Parameters
    ----------
    P : array of shape (n, K)
        Posteriors of rows that the model did not see in training, for the population the rows come from.
    y : array of n labels, optional
        With labels the one-step estimator; without them the mean of p pᵀ, as right as the posteriors are.
    classes : K names in the order of the columns, default the sorted distinct labels
    priors : "empirical", "uniform" or array of shape (K,)
        Population whose S is wanted; the posteriors are shifted to it. Needs ``y`` unless "empirical".
    sample_weight : array of n weights, optional

    Examples
    --------
    >>> cm = collision_matrix_from_posteriors([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3], [0.2, 0.8]], ["a", "b", "a", "b"])
    >>> cm.matrix.round(3)
    array([[0.85, 0.15],
           [0.15, 0.85]])
    """
    if _dask.is_dask(P):
        return _from_dask(P, y, classes, priors, sample_weight)
    posteriors = check.check_posteriors(P)
    n, k = posteriors.shape
    weights = check.unit_weights(check.check_weights(sample_weight, n))
    if classes is not None:
        names = check.check_classes(classes, k)
    elif y is None:
        names = np.arange(k)
    else:
        names = check.classes_of(check.check_labels(y))
        if len(names) != k:
            raise ValueError(
                f"P has {k} columns and y has {len(names)} distinct labels: pass classes, in the order of the columns"
            )
    if isinstance(priors, str) and priors == "empirical":
        return CollisionAccumulator(names).update(posteriors, y, weights).result()
    if y is None:
        raise ValueError(
            "priors other than 'empirical' need y: without labels use shift_priors and sample_weight first"
        )
    codes = check.encode_labels(y, names)
    check.check_same_length(posteriors, codes, "P and y")
    observed = np.asarray(np.bincount(codes, weights, k), dtype=np.float64)
    target = resolve_priors(priors, observed, names)
    return _block(posteriors, y, weights, names=names, observed=observed / observed.sum(), target=target).result()


def accumulate(
    chunks: Iterable[Any],
    classes: Sequence[Any] | npt.NDArray[Any],
    *,
    priors: npt.ArrayLike | None = None,
    verbose: int = 0,
) -> CollisionMatrix:
    """Collision matrix from a stream that is read once and never held: a generator, a DataLoader, Parquet batches.

    Parameters
    ----------
    chunks : iterable of P, (P, y) or (P, y, sample_weight)
        Held-out posteriors of shape (n, K) with their labels; arrays, tensors or DataFrames of any length.
        :func:`posterior_batches` makes them from Parquet files.
    classes : sequence of K class names, in the order of the columns of P
    priors : array of shape (K,), optional
        As in :class:`CollisionAccumulator`.
    verbose : int
        1 shows chunks done.

    Examples
    --------
    >>> chunks = (([[0.9, 0.1], [0.4, 0.6]], ["a", "b"]) for _ in range(1000))
    >>> cm = accumulate(chunks, ["a", "b"])
    >>> cm.counts
    array([1000., 1000.])
    """
    if isinstance(chunks, (str, bytes, Path)) or not isinstance(chunks, Iterable):
        raise ValueError(
            f"chunks must be an iterable of (P, y), got {type(chunks).__name__}: "
            f"for a Parquet file pass posterior_batches(path, label)"
        )
    accumulator = CollisionAccumulator(classes, priors)
    with Progress("accumulating", length_hint(chunks), verbose) as progress:
        for number, chunk in enumerate(chunks):
            parts = tuple(chunk) if isinstance(chunk, (tuple, list)) and len(chunk) in (2, 3) else (chunk,)
            try:
                accumulator.update(*(to_numpy(part) for part in parts))
            except ValueError as error:
                raise ValueError(f"chunk {number} of chunks: {error}") from None
            progress.step()
    return accumulator.result()


def to_numpy(part: Any) -> Any:
    """Tensors come from any device; everything else is left to the checks of the accumulator."""
    return part.detach().cpu().numpy() if hasattr(part, "detach") else part


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


def _from_dask(
    P: Any, y: Any, classes: Any, priors: npt.ArrayLike | str, sample_weight: npt.ArrayLike | None
) -> CollisionMatrix:
    """One accumulator a block, merged as a tree on the workers."""
    blocks = _dask.blocks(P, y, sample_weight)
    natural = isinstance(priors, str) and priors == "empirical"
    if classes is None and hasattr(P, "columns"):
        classes = list(P.columns)
    counts: dict[Any, float] | None = None
    if y is not None and (classes is None or not natural):
        counts = _dask.tree([_dask.delayed(_label_counts)(y, w) for _, y, w in blocks], _add_counts)
    if classes is None:
        classes = np.arange(P.shape[1]) if counts is None else sorted(counts)
    names = check.check_classes(classes)
    target = observed = None
    if not natural:
        if counts is None:
            raise ValueError(
                "priors other than 'empirical' need y: without labels use shift_priors and sample_weight first"
            )
        weights = np.array([counts.get(name, 0.0) for name in names.tolist()])
        target = resolve_priors(priors, weights, names)
        observed = weights / weights.sum()
    part = _dask.delayed(partial(_block, names=names, observed=observed, target=target))
    accumulator: CollisionAccumulator = _dask.tree([part(*block) for block in blocks], _merge)
    return accumulator.result()


def _block(P: Any, y: Any, w: Any, *, names: Any, observed: Any, target: Any) -> CollisionAccumulator:
    apart = target is not None and len(names) <= MAX_STRATA
    accumulator = CollisionAccumulator(names, target if apart else None)
    if not len(P):
        return accumulator
    if target is None:
        return accumulator.update(P, y, w)
    if not apart:
        # Every row weighs as its class does in the wanted population. Intervals are a little wide: they allow for
        # the shares of the classes, which are known.
        w = check.check_weights(w, len(P)) * (target / observed)[check.encode_labels(y, names)]
    return accumulator.update(shift_priors(P, observed, target), y, w)


def _merge(parts: list[CollisionAccumulator]) -> CollisionAccumulator:
    """A new accumulator: the parts may be needed again when a worker is lost."""
    total = CollisionAccumulator(parts[0].classes, parts[0].priors)
    for part in parts:
        total.merge(part)
    return total


def _label_counts(y: Any, w: Any) -> dict[Any, float]:
    labels, codes = np.unique(np.asarray(y), return_inverse=True)
    return dict(zip(labels.tolist(), np.bincount(codes, w, len(labels)).tolist(), strict=True))


def _add_counts(parts: list[dict[Any, float]]) -> dict[Any, float]:
    return {label: sum(part.get(label, 0.0) for part in parts) for label in {k for part in parts for k in part}}
