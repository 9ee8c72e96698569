"""Dask collections, block by block. Nothing here imports dask before it meets a collection of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Results that one task merges: a tree of a thousand blocks is then three levels deep.
FAN_IN = 16


def is_dask(value: Any) -> bool:
    """Is it a Dask array, DataFrame or Series?

    >>> is_dask([1, 2])
    False
    """
    return type(value).__module__.split(".")[0] == "dask" and hasattr(value, "to_delayed")


def delayed(function: Callable[..., Any]) -> Any:
    """The function as a lazy one, which may be run again when a worker is lost."""
    from dask.delayed import delayed as lazy

    return lazy(function, pure=False)


def blocks(P: Any, *others: Any) -> list[tuple[Any, ...]]:
    """Lazy blocks of rows of ``P`` with the matching blocks of the others (None stays None).

    Arrays are brought to the row blocks of ``P``. The partitions of DataFrames must match as they are: their lengths
    are not known before they are computed.
    """
    if hasattr(P, "rechunk"):
        P = P.rechunk({1: -1})
    found = [P.to_delayed().ravel().tolist() if hasattr(P, "rechunk") else P.to_delayed()]
    for name, other in zip(("y", "sample_weight"), others, strict=False):
        if other is None:
            found.append([None] * len(found[0]))
            continue
        if not is_dask(other):
            raise ValueError(f"{name} must be a Dask collection as P is, got {type(other).__name__}")
        if hasattr(other, "rechunk") != hasattr(P, "rechunk"):
            raise ValueError(f"{name} and P must both be Dask arrays or both Dask DataFrames")
        if hasattr(other, "rechunk"):
            if other.shape[0] != P.shape[0] and other.shape[0] == other.shape[0]:
                raise ValueError(f"P and {name} must have the same number of rows, got {P.shape[0]} and {other.shape}")
            other = other.rechunk((P.chunks[0],))
        parts = other.to_delayed()
        parts = parts.ravel().tolist() if hasattr(parts, "ravel") else parts
        if len(parts) != len(found[0]):
            raise ValueError(f"P and {name} must have the same partitions, got {len(found[0])} and {len(parts)}")
        found.append(parts)
    return list(zip(*found, strict=True))


def tree(parts: list[Any], merge: Callable[[list[Any]], Any]) -> Any:
    """Compute lazy parts and merge them, :data:`FAN_IN` at a time, on the workers."""
    join = delayed(merge)
    while len(parts) > 1:
        parts = [join(parts[k : k + FAN_IN]) for k in range(0, len(parts), FAN_IN)]
    return parts[0].compute()


def map_rows(function: Callable[[Any], Any], X: Any, columns: list[Any]) -> Any:
    """``function`` of every block of rows, lazily: an array for an array, a DataFrame for a DataFrame."""
    if hasattr(X, "rechunk"):
        X = X.rechunk({1: -1})
        return X.map_blocks(function, dtype="float64", chunks=(X.chunks[0], (len(columns),)))
    import pandas as pd

    def frame(part: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame(function(part) if len(part) else None, index=part.index, columns=columns, dtype="float64")

    return X.map_partitions(frame, meta=pd.DataFrame(columns=columns, dtype="float64"))
