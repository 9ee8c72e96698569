"""Sparse rows, as posteriors of the most likely classes are: what sums over rows need of them.

Rows are those of a scipy ``csr_array`` of shape (n, K), and no array of n×K numbers is made.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array, diags_array

from collidescope._checks import Array, FloatArray, IntArray
from collidescope.equations.posterior import shift_rows


def one_hot(codes: IntArray, n_classes: int) -> csr_array:
    """A row per label, with a 1 in the column of its class."""
    n = len(codes)
    return csr_array((np.ones(n), codes, np.arange(n + 1)), shape=(n, n_classes))


def memberships(starts: IntArray, n_rows: int) -> csr_array:
    """G×n: a 1 for the rows of every group, which begin at ``starts``."""
    ends = np.append(starts, n_rows)
    rows = np.arange(n_rows)
    return csr_array((np.ones(n_rows), rows, ends), shape=(len(starts), n_rows))


def as_array(A: Any) -> Array:
    """An array, sparse or not, as one of numpy."""
    if hasattr(A, "toarray"):
        return A.toarray()
    return A


def rows_times(A: Any, factors: FloatArray) -> Any:
    """Every row of an array, sparse or not, times its factor."""
    if isinstance(A, csr_array):
        return csr_array(diags_array(factors) @ A)
    return A * factors[:, None]


def likeliest(P: Array | csr_array) -> IntArray:
    """The class of the largest probability of every row, the first of several.

    Rows must sum to 1. (``argmax`` of a sparse array goes through the rows in Python.)
    """
    if not isinstance(P, csr_array):
        return P.argmax(axis=1)
    starts = P.indptr[:-1]
    largest = np.maximum.reduceat(P.data, starts)
    is_largest = P.data == np.repeat(largest, np.diff(P.indptr))
    candidates = np.where(is_largest, P.indices, P.shape[1])
    return np.asarray(np.minimum.reduceat(candidates, starts))


def shifted(P: Array | csr_array, ratio: FloatArray) -> Array | csr_array:
    """:func:`shift_rows`, of sparse rows too."""
    if not isinstance(P, csr_array):
        return shift_rows(P, ratio)
    products = csr_array(P @ diags_array(ratio))
    return rows_times(products, 1 / products.sum(axis=1))


def row_slices(P: csr_array, numbers: int) -> list[slice]:
    """Slices of rows that hold about ``numbers`` entries, and at least one row each."""
    edges = np.searchsorted(P.indptr, np.arange(0, P.nnz, numbers))
    edges = np.unique([*edges, P.shape[0]])
    return [slice(first, last) for first, last in pairwise(edges)]


def outer_products(A: Any, B: Any) -> Any:
    """n×K²: a bᵀ of every row, written as one row."""
    n, k = A.shape
    if not isinstance(A, csr_array):
        return (A[:, :, None] * B[:, None]).reshape(n, k * k)
    # Every entry of A meets all entries of B in its row.
    in_B = np.diff(B.indptr)
    row_of_entry = A.tocoo().row
    times = in_B[row_of_entry]
    left = np.repeat(np.arange(A.nnz), times)
    rows = row_of_entry[left]
    before = np.cumsum(times) - times  # products of the entries before it
    nth = np.arange(len(left)) - before[left]
    right = B.indptr[rows] + nth
    products = A.data[left] * B.data[right]
    first = A.indices[left].astype(np.int64)
    columns = first * k + B.indices[right]
    return csr_array((products, (rows, columns)), shape=(n, k * k))


def on_diagonal(A: Array | csr_array) -> csr_array:
    """n×K²: diag(a) of every row, written as one row."""
    n, k = A.shape
    entries = csr_array(A)
    columns = entries.indices.astype(np.int64) * (k + 1)
    return csr_array((entries.data, columns, entries.indptr), shape=(n, k * k))
