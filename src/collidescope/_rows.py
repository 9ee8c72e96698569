"""A number for every row of a table, by which rows that repeat are recognised."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collidescope._scaling import blocks

if TYPE_CHECKING:
    from collidescope.sample import Table

Hashes = npt.NDArray[np.uint64]
IntArray = npt.NDArray[np.intp]
BoolArray = npt.NDArray[np.bool_]


def row_hashes(X: object) -> Hashes:
    """64-bit hashes of the n rows of an array, sparse matrix or DataFrame.

    Numbers are compared as float32, in which models are trained, so that the dtype does not matter;
    missing values are equal to each other. Two different rows share a hash with a probability of
    about 2⁻⁶⁴.

    >>> import pandas as pd
    >>> a = row_hashes(np.array([[1.0, 2.0], [2.0, 1.0]]))
    >>> b = row_hashes(pd.DataFrame({"x": [1, 2], "y": [2.0, 1.0]}))
    >>> np.array_equal(a, b), bool(a[0] != a[1])
    (True, True)
    """
    table: Any = X
    if not hasattr(X, "shape"):
        table = np.asarray(X)
    n, *row_shape = table.shape
    width = int(np.prod(row_shape))
    at_once = 500_000  # numbers: a few copies of 4 MB
    by_column = hasattr(table, "columns") or table.dtype == object
    if by_column:
        at_once = n * width  # whether a column is text is known by all of it
    hashes: list[bytes] = []
    for block in blocks(n, width, at_once):
        rows = np.ascontiguousarray(_row_bits(table[block]))
        hashes.extend(blake2b(row, digest_size=8).digest() for row in rows)
    return np.frombuffer(b"".join(hashes), np.uint64)


def _row_bits(part: Any) -> Hashes:
    """A number for every cell of some rows, rows × columns."""
    if hasattr(part, "columns"):
        columns = [_bits(part[name]) for name in part.columns]
        return np.column_stack(columns)
    if hasattr(part, "toarray"):
        part = part.toarray()
    cells = np.asarray(part)
    return _bits(cells.reshape(len(cells), -1))


def _bits(values: npt.ArrayLike) -> Hashes:
    try:
        exact = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        return _word_bits(np.asarray(values, dtype=object))
    exact = exact + 0.0  # -0.0 is 0.0
    with np.errstate(over="ignore"):
        numbers = exact.astype(np.float32)
    numbers[np.isnan(numbers)] = np.nan  # one kind of nan
    bits = numbers.view(np.uint32).astype(np.uint64)
    too_large = np.isinf(numbers)
    is_zero = numbers == 0
    beyond = (too_large | is_zero & (exact != 0)) & np.isfinite(exact)
    # what float32 cannot hold is compared as it is
    bits[beyond] = exact[beyond].view(np.uint64)
    return bits


def _word_bits(cells: npt.NDArray[Any]) -> Hashes:
    import pandas as pd

    words = np.array([str(value) for value in cells.ravel()], dtype=object)
    return np.asarray(pd.util.hash_array(words), dtype=np.uint64).reshape(cells.shape)


def copies(
    hashes: Hashes,
    labels: npt.NDArray[Any],
    folds: npt.NDArray[Any],
    X: Table | None = None,
) -> BoolArray:
    """Which rows, given by their hashes, look like copies of a row in another fold.

    Copies have the label of the case that was copied. Where inputs that repeat often have several
    labels, they are separate cases that happen to be alike, and no row is a copy. Given the rows
    ``X``, inputs with a value that no other repeated input has (measurements) are judged apart from
    those that only combine values of others (answers, codes). A copied table shows, besides, in how
    often its rows occur (:func:`_too_regular`).

    >>> labels, folds = np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1])
    >>> copies(np.array([7, 8, 7, 8], dtype=np.uint64), labels, folds).tolist()
    [False, False, False, False]
    >>> copies(np.array([7, 8, 7, 9], dtype=np.uint64), labels, folds).tolist()
    [True, False, True, False]
    """
    _, inputs = np.unique(hashes, return_inverse=True)
    n_folds = _distinct_per_input(inputs, folds)
    n_labels = _distinct_per_input(inputs, labels)
    again = n_folds > 1
    alike = again & (n_labels == 1)
    own = np.zeros(len(inputs), dtype=bool)
    if X is not None and again.any():
        own = _has_own_value(X, inputs, again)
    for kind in (own, ~own):
        n_repeated = (again & kind).sum()
        if (alike & kind).sum() < 0.9 * n_repeated:
            alike &= ~kind
    classes, codes = np.unique(labels, return_inverse=True)
    pairs = np.unique(inputs * len(classes) + codes, return_inverse=True)[1]
    in_folds = _distinct_per_input(pairs, folds) > 1
    return alike | (in_folds & _too_regular(pairs))


def _too_regular(pairs: IntArray, fewest: int = 30, excess: float = 2.5) -> BoolArray:
    """Which rows have an (input, label) pair that occurs as often as only copies do.

    How often pairs of separate cases occur is a mixture of Poisson distributions: with f_k pairs
    that occur k times, k! f_k are moments of a positive measure, so that f_k² is at most
    (k + 1)/k f_{k-1} f_{k+1} (Cauchy-Schwarz). A table that stands in the file three times has
    many pairs with k = 3 and hardly any with k = 2 or 4.

    >>> _too_regular(np.repeat(np.arange(30), 3)).all()
    np.True_
    """
    times = np.bincount(pairs)
    n_pairs = np.bincount(times, minlength=times.max() + 2)
    k = np.arange(2, len(n_pairs) - 1)
    # Three more of each, so that few pairs prove nothing.
    below = n_pairs[k - 1] + 3.0
    above = n_pairs[k + 1] + 3.0
    most = np.sqrt(((k + 1) / k) * below * above)
    found = n_pairs[k]
    many = found >= fewest
    suspicious = np.isin(times, k[many & (found > excess * most)])
    return suspicious[pairs]


def _distinct_per_input(inputs: IntArray, values: npt.NDArray[Any]) -> IntArray:
    """How many different values come with the input of each row."""
    numbers = np.unique(values, return_inverse=True)[1]
    pairs = np.unique(np.column_stack([inputs, numbers]), axis=0)
    return np.asarray(np.bincount(pairs[:, 0])[inputs])


def _has_own_value(
    X: Table, inputs: IntArray, again: BoolArray, most_cells: int = 20_000_000
) -> BoolArray:
    """Has the input of a row a value, in some column, that no other repeated input has?"""
    repeated, first = np.unique(inputs[again], return_index=True)
    rows = np.flatnonzero(again)[first]  # one of each repeated input
    has_own = np.zeros(len(inputs), dtype=bool)  # by number of the input
    width = int(np.prod(X.shape[1:]))
    if len(rows) * width > most_cells:
        return has_own
    values = np.asarray(X[rows])
    for column in values.reshape(len(rows), width).T:
        _, place, counts = np.unique(column, return_inverse=True, return_counts=True)
        is_own = counts[place] == 1
        has_own[repeated] |= is_own
    return has_own[inputs]


def agreement(groups: IntArray, codes: IntArray) -> float:
    """How often two rows of one group have the same label; groups and labels are numbers from 0."""
    cells = groups * (codes.max() + 1) + codes
    _, counts = np.unique(cells, return_counts=True)
    sizes = np.bincount(groups)
    n_alike = (counts * (counts - 1.0)).sum()
    return float(n_alike / (sizes * (sizes - 1.0)).sum())


def copy_notes(
    again: BoolArray, losses: npt.NDArray[np.float64] | None = None
) -> list[str]:
    """What copies of rows in other folds (``again``) do to PBER, the mean of ``losses``."""
    if again.mean() < 0.01:  # too few to matter
        return []
    said = (
        f"{again.sum():,} of {len(again):,} rows have a copy, with the same label, in "
        "another fold"
    )
    if losses is not None and not again.all():
        on_copies = losses[again].mean()
        on_others = losses[~again].mean()
        said += (
            f": PBER is {on_copies:.4f} on them and {on_others:.4f} on the other rows"
        )
    return [
        f"{said}. If they are copies of one case, PBER is too low: leave them out "
        f"(X.drop_duplicates()), or keep them in one fold (groups=input_groups(X), from "
        f"collidescope.counting). If they are separate cases that happen to be alike, "
        f"count_collisions(X, y) needs no model for them"
    ]


def times_repeated(values: npt.NDArray[Any]) -> int:
    """How many times a whole table stands in ``values``, row by row or one after the other.

    >>> times_repeated(np.array([[1, 2], [3, 4], [1, 2], [3, 4]]))
    2
    """
    hashes = row_hashes(values)
    n = len(hashes)
    for times in range(10, 1, -1):
        if n % times or len(np.unique(hashes)) == 1:
            continue
        by_row = hashes.reshape(-1, times)
        by_table = hashes.reshape(times, -1)
        rows_repeat = by_row == by_row[:, :1]
        table_repeats = by_table == by_table[0]
        if rows_repeat.all() or table_repeats.all():
            return times
    return 1
