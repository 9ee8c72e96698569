"""Sparse rows, as posteriors of the most likely classes are: what sums over rows need of them.

Rows are those of a scipy ``csr_array`` of shape (n, K), and no array of n×K numbers is made.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array, diags_array

from collidescope._checks import FloatArray, IntArray


def one_hot(codes: IntArray, n_classes: int) -> csr_array:
    """A row per label, with a 1 in the column of its class."""
    n = len(codes)
    return csr_array((np.ones(n), codes, np.arange(n + 1)), shape=(n, n_classes))


def memberships(starts: IntArray, n_rows: int) -> csr_array:
    """G×n: a 1 for the rows of every group, which begin at ``starts``."""
    ends = np.append(starts, n_rows)
    rows = np.arange(n_rows)
    return csr_array((np.ones(n_rows), rows, ends), shape=(len(starts), n_rows))


def rows_times(A: csr_array, factors: FloatArray) -> csr_array:
    """Every row times its factor."""
    return csr_array(diags_array(factors) @ A)


def likeliest(P: csr_array) -> IntArray:
    """The class of the largest probability of every row, the first of several.

    Rows must sum to 1. (``P.argmax`` goes through the rows in Python.)
    """
    starts = P.indptr[:-1]
    largest = np.maximum.reduceat(P.data, starts)
    is_largest = P.data == np.repeat(largest, np.diff(P.indptr))
    candidates = np.where(is_largest, P.indices, P.shape[1])
    return np.asarray(np.minimum.reduceat(candidates, starts))


def shifted(P: csr_array, ratio: FloatArray) -> csr_array:
    """Rows times the ratio of new to old priors, scaled to sum to 1."""
    products = csr_array(P @ diags_array(ratio))
    return rows_times(products, 1 / products.sum(axis=1))


def row_slices(P: csr_array, numbers: int) -> list[slice]:
    """Slices of rows that hold about ``numbers`` entries, and at least one row each."""
    edges = np.searchsorted(P.indptr, np.arange(0, P.nnz, numbers))
    edges = np.unique([*edges, P.shape[0]])
    return [slice(first, last) for first, last in pairwise(edges)]


def outer_products(A: csr_array, B: csr_array) -> csr_array:
    """n×K²: a bᵀ of every row, written as one row."""
    n, k = A.shape
    in_A = np.diff(A.indptr)
    in_B = np.diff(B.indptr)
    # Every entry of A meets all entries of B in its row.
    row = np.repeat(np.arange(n), in_A)
    times = in_B[row]
    left = np.repeat(np.arange(A.nnz), times)
    before = np.cumsum(times) - times  # products of the entries before it
    nth = np.arange(len(left)) - before[left]
    right = B.indptr[row][left] + nth
    products = A.data[left] * B.data[right]
    columns = A.indices[left].astype(np.int64) * k + B.indices[right]
    ends = np.append(0, np.cumsum(in_A * in_B))
    return csr_array((products, columns, ends), shape=(n, k * k))


def on_diagonal(A: csr_array) -> csr_array:
    """n×K²: diag(a) of every row, written as one row."""
    k = A.shape[1]
    columns = A.indices.astype(np.int64) * (k + 1)
    return csr_array((A.data, columns, A.indptr), shape=(A.shape[0], k * k))
