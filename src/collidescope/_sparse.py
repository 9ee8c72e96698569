"""The largest entries of every row of S: with thousands of classes nearly all of S is next to nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope._store import write_json

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "collidescope.top-collisions"


@dataclass(frozen=True, eq=False)
class SparseCollisions:
    """S with the other classes that each class collides with most, and nothing else.

    Attributes
    ----------
    matrix : scipy.sparse.csr_array of shape (K, K)
        The diagonal of S and the ``k`` largest other entries of every row, exactly as they are in S (none that are 0).
    rest : array of shape (K,)
        What each row leaves out: 1 less the sum of the row.
    classes : array of K names, of rows and columns
    stderr : scipy.sparse.csr_array of shape (K, K) or None
        Standard errors of the same entries.

    Examples
    --------
    >>> from collidescope import CollisionMatrix
    >>> cm = CollisionMatrix([[0.7, 0.2, 0.1], [0.2, 0.8, 0.0], [0.1, 0.0, 0.9]], classes=["cat", "lynx", "dog"])
    >>> top = cm.top_k(1)
    >>> top.matrix.toarray()
    array([[0.7, 0.2, 0. ],
           [0.2, 0.8, 0. ],
           [0.1, 0. , 0.9]])
    >>> top.rest.round(6)
    array([0.1, 0. , 0. ])
    """

    matrix: csr_array
    rest: FloatArray
    classes: npt.NDArray[Any]
    stderr: csr_array | None = None

    def __repr__(self) -> str:
        return f"<SparseCollisions: {len(self.classes):,} classes, {self.matrix.nnz:,} entries>"

    def to_frame(self) -> pd.DataFrame:
        """A line an entry, largest first within a class: ``class``, ``other``, ``rate``, ``stderr`` (nan: unknown)."""
        import pandas as pd

        rows, columns, values, errors = self._entries()
        order = np.lexsort((-values, rows))
        names = {"class": self.classes[rows], "other": self.classes[columns], "rate": values, "stderr": errors}
        return pd.DataFrame({name: column[order] for name, column in names.items()})

    def to_json(self, path: str | Path | None = None) -> str:
        """Classes, entries (row, column, rate and standard error, as four lists) and the rest, as JSON text."""
        rows, columns, values, errors = self._entries()
        data: dict[str, Any] = {"format": FORMAT, "version": 1, "classes": self.classes.tolist()}
        data |= {"row": rows.tolist(), "column": columns.tolist(), "rate": values.tolist()}
        data |= {"stderr": None if self.stderr is None else errors.tolist(), "rest": self.rest.tolist()}
        return write_json(data, path)

    def _entries(self) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
        table = self.matrix.tocoo()
        errors = np.full(table.nnz, np.nan) if self.stderr is None else self.stderr.data
        return table.row.astype(np.intp), table.col.astype(np.intp), table.data, errors


def largest_of_rows(
    S: FloatArray, classes: npt.NDArray[Any], stderr: FloatArray | None, k: int = 10
) -> SparseCollisions:
    """The diagonal and the ``k`` largest other entries of every row; ties go to the class that comes first."""
    check.check_count(k, "k", least=0)
    n = len(S)
    count = min(k, n - 1)
    chosen = []
    for i, row in enumerate(S):
        others = row.copy()
        others[i] = 0.0
        # a value that `count` others reach; stable, so that ties go by position
        least = np.partition(others, n - count)[n - count] if count else np.inf
        found = np.flatnonzero(others >= max(least, np.finfo(float).tiny))
        found = found[np.argsort(-others[found], kind="stable")[:count]]
        chosen.append(np.sort(np.append(found, i)))
    columns = np.concatenate(chosen)
    ends = np.append(0, np.cumsum([len(found) for found in chosen]))
    rows = np.repeat(np.arange(n), np.diff(ends))

    def keep(values: FloatArray) -> csr_array:
        return csr_array((values[rows, columns], columns, ends), shape=(n, n))

    matrix = keep(S)
    rest = np.maximum(S.sum(axis=1) - np.asarray(matrix.sum(axis=1)).ravel(), 0.0)
    return SparseCollisions(matrix, rest, classes, None if stderr is None else keep(stderr))


def largest_pairs(values: FloatArray, n: int) -> tuple[IntArray, IntArray]:
    """(i, j) with i < j of the ``n`` largest entries above the diagonal, largest first; ties in the order of rows."""
    k = len(values)
    n = min(n, k * (k - 1) // 2)
    above = np.where(np.tri(k, dtype=bool), -np.inf, values).ravel()
    # Not a full sort: with thousands of classes there are millions of pairs.
    least = np.partition(above, above.size - n)[above.size - n] if n else np.inf
    found = np.flatnonzero(above >= least)
    found = found[np.argsort(-above[found], kind="stable")[:n]]
    return found // k, found % k
