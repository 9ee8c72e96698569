"""A number for every row of a table, by which repeated rows and rows that a model was trained on are recognised."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collidescope._scaling import blocks

SEED = 0  #: multipliers of the columns come from this seed, so that a model saved today recognises its rows tomorrow
MANY_REPEATS = 0.01  #: the share of rows with a copy in another fold that is worth a warning
ONE_LABEL = 0.9  #: rows that repeat are copies if this share of them have an input that occurs with one label alone
BLOCK_NUMBERS = 2_000_000  #: numbers that are hashed at once (a few copies of 16 MB)


def row_hashes(X: Any) -> npt.NDArray[np.uint64]:
    """64-bit hashes of the n rows of an array, sparse matrix or DataFrame.

    Numbers are compared as float32, in which models are trained, so that the dtype does not matter; missing values are
    equal to each other. Two different rows share a hash with probability 2⁻⁶⁴ or so.

    >>> import pandas as pd
    >>> a = row_hashes(np.array([[1.0, 2.0], [2.0, 1.0]]))
    >>> (
    ...     np.array_equal(a, row_hashes(pd.DataFrame({"x": [1, 2], "y": [2.0, 1.0]}))),
    ...     bool(a[0] != a[1]),
    ... )
    (True, True)
    """
    X = X if hasattr(X, "shape") else np.asarray(X)
    n, width = X.shape[0], int(np.prod(X.shape[1:]))
    multipliers = np.random.default_rng(SEED).integers(
        0, 2**63, width, dtype=np.uint64
    ) * np.uint64(2) + np.uint64(1)
    whole = (
        hasattr(X, "columns") or X.dtype == object
    )  # whether a column is text is known by all of it
    hashes = np.empty(n, dtype=np.uint64)
    for block in blocks(n, width, n * width if whole else BLOCK_NUMBERS):
        part = X[block]
        if hasattr(X, "columns"):
            bits = np.column_stack([_bits(part[name]) for name in X.columns])
        else:
            bits = _bits(
                (part.toarray() if hasattr(X, "toarray") else np.asarray(part)).reshape(
                    part.shape[0], -1
                )
            )
        with np.errstate(over="ignore"):
            # The xor makes the sum non-linear: otherwise columns whose multipliers cancel would.
            mixed = (bits * multipliers) ^ ((bits * multipliers) >> np.uint64(29))
            hashes[block] = (mixed * multipliers[::-1]).sum(axis=1, dtype=np.uint64)
    return hashes


def _bits(values: Any) -> npt.NDArray[np.uint64]:
    try:
        exact = np.asarray(values, dtype=np.float64) + 0.0  # -0.0 is 0.0
        with np.errstate(over="ignore"):
            numbers = exact.astype(np.float32)
        numbers[np.isnan(numbers)] = np.nan  # one kind of nan
        bits = numbers.view(np.uint32).astype(np.uint64)
        beyond = np.isfinite(exact) & (np.isinf(numbers) | ((numbers == 0) & (exact != 0)))
        bits[beyond] = exact[beyond].view(
            np.uint64
        )  # what float32 cannot hold is compared as it is
        return bits
    except (TypeError, ValueError):
        import pandas as pd

        text = np.asarray(values, dtype=object)
        words = np.array([str(value) for value in text.ravel()], dtype=object)
        return np.asarray(pd.util.hash_array(words), dtype=np.uint64).reshape(text.shape)


def copies(
    hashes: npt.NDArray[np.uint64], labels: npt.NDArray[Any], folds: npt.NDArray[Any]
) -> npt.NDArray[np.bool_]:
    """Which rows, given by their hashes, look like copies of a row in another fold.

    Copies have the label of the case that was copied. Where inputs that repeat often have several labels, they are
    separate cases that happen to be alike, and no row is a copy.

    >>> copies(
    ...     np.array([7, 8, 7, 8], dtype=np.uint64), np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1])
    ... ).tolist()
    [False, False, False, False]
    >>> copies(
    ...     np.array([7, 8, 7, 9], dtype=np.uint64), np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1])
    ... ).tolist()
    [True, False, True, False]
    """
    inputs, label, fold = (
        np.unique(part, return_inverse=True)[1] for part in (hashes, labels, folds)
    )

    def distinct(
        numbers: npt.NDArray[Any],
    ) -> npt.NDArray[np.intp]:  # how many come with each row's input
        return np.asarray(
            np.bincount(np.unique(np.column_stack([inputs, numbers]), axis=0)[:, 0])[inputs]
        )

    again = distinct(fold) > 1
    alike = again & (distinct(label) == 1)
    return np.asarray(alike & (alike.sum() >= ONE_LABEL * again.sum()))


def agreement(groups: npt.NDArray[np.intp], codes: npt.NDArray[np.intp]) -> float:
    """How often two rows of one group have the same label; groups and labels are numbers from 0."""
    cells = np.unique(groups * (codes.max() + 1) + codes, return_counts=True)[1]
    alike, pairs = ((n * (n - 1.0)).sum() for n in (cells, np.bincount(groups)))
    return float(alike / pairs)


def copy_notes(
    again: npt.NDArray[np.bool_], losses: npt.NDArray[np.float64] | None = None
) -> list[str]:
    """What copies of rows in other folds (``again``) do to PBER, the mean of ``losses``, with what to do."""
    if again.mean() < MANY_REPEATS:
        return []
    said = (
        f"{again.sum():,} of {len(again):,} rows have a copy, with the same label, in another fold"
    )
    if losses is not None and not again.all():
        said += f": PBER is {losses[again].mean():.4f} on them and {losses[~again].mean():.4f} on the other rows"
    return [
        f"{said}. If they are copies of one case, PBER is too low: leave them out (X.drop_duplicates(), --unique), or "
        f"keep them in one fold (groups=input_groups(X), from collidescope.counting). If they are separate cases that "
        f"happen to be alike, count_collisions(X, y) needs no model for them"
    ]
