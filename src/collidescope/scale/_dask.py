"""Dask collections, block by block, and calls on a Dask cluster.

Nothing here imports dask before it meets one.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Generator
from concurrent.futures import BrokenExecutor, CancelledError
from typing import Any

Collection = Any  #: a Dask array, DataFrame or Series


def is_dask(value: object) -> bool:
    """Is it a Dask array, DataFrame or Series?"""
    return type(value).__module__.split(".")[0] == "dask" and hasattr(
        value, "to_delayed"
    )


def delayed(function: Callable[..., Any]) -> Any:
    """The function as a lazy one, which may be run again when a worker is lost."""
    from dask.delayed import delayed as lazy

    return lazy(function, pure=False)


def blocks(
    P: Collection, y: Collection | None, sample_weight: Collection | None
) -> list[tuple[Any, Any, Any]]:
    """Lazy blocks of rows of ``P`` with the matching blocks of the others (None stays None)."""
    _check_alike(P, y, "y")
    _check_alike(P, sample_weight, "sample_weight")
    if not hasattr(P, "rechunk"):
        return _frame_blocks(P, y, sample_weight)
    P = P.rechunk({1: -1})
    sizes = P.chunks[0]
    parts = [P.to_delayed().ravel()]
    for other in (y, sample_weight):
        if other is None:
            parts.append([None] * len(sizes))
        else:
            parts.append(other.rechunk((sizes,)).to_delayed().ravel())
    return list(zip(*parts, strict=True))


def _check_alike(P: Collection, other: Collection | None, name: str) -> None:
    """Refuse an ``other`` that is no collection as P is, or has other rows."""
    if other is None:
        return
    if not is_dask(other):
        raise ValueError(
            f"{name} must be a Dask collection as P is, got {type(other).__name__}"
        )
    if hasattr(other, "rechunk") != hasattr(P, "rechunk"):
        raise ValueError(
            f"{name} and P must both be Dask arrays or both Dask DataFrames"
        )
    if hasattr(other, "rechunk") and len({P.shape[0], other.shape[0]}) > 1:
        raise ValueError(
            f"P and {name} must have the same number of rows, got {P.shape[0]} and {other.shape[0]}"
        )


def _frame_blocks(
    P: Collection, y: Collection | None, sample_weight: Collection | None
) -> Any:
    """Blocks of one table: read alone, few columns of a file have other partitions than many."""
    y_name = "collidescope: y"
    weight_name = "collidescope: sample_weight"
    more = {}
    for name, other in ((y_name, y), (weight_name, sample_weight)):
        if name in P.columns:
            raise ValueError(f"P must not have a column called {name!r}")
        if other is not None:
            more[name] = other
    try:
        table = P.assign(**more) if more else P
        parts = table.to_delayed()
    except (ValueError, NotImplementedError) as error:
        raise ValueError(
            f"P and y must be columns of one table, or have the same partitions: {error}"
        ) from None
    rest = delayed(lambda part: part.drop(columns=list(more)))
    column = delayed(operator.getitem)

    def of(part: Any, name: str) -> Any:
        return column(part, name) if name in more else None

    return [(rest(part), of(part, y_name), of(part, weight_name)) for part in parts]


def tree(parts: list[Any], merge: Callable[[list[Any]], Any], fan_in: int = 16) -> Any:
    """Compute lazy parts and merge them, ``fan_in`` at a time, on the workers.

    A tree of a thousand blocks is then three levels deep.
    """
    join = delayed(merge)
    while len(parts) > 1:
        starts = range(0, len(parts), fan_in)
        parts = [join(parts[start : start + fan_in]) for start in starts]
    return parts[0].compute()


def map_rows(
    function: Callable[[Any], Any], X: Collection, columns: list[Any]
) -> Collection:
    """``function`` of every block of rows, lazily: as an array or a DataFrame, as X is."""
    if hasattr(X, "rechunk"):
        X = X.rechunk({1: -1})
        chunks = (X.chunks[0], (len(columns),))
        return X.map_blocks(function, dtype="float64", chunks=chunks)
    import pandas as pd

    def frame(part: pd.DataFrame) -> pd.DataFrame:
        values = function(part) if len(part) else None
        return pd.DataFrame(values, index=part.index, columns=columns, dtype="float64")

    return X.map_partitions(frame, meta=pd.DataFrame(columns=columns, dtype="float64"))


def cluster() -> Any | None:
    """The client of the cluster that ``joblib.parallel_config(backend="dask")`` names, or None.

    None too on a worker of it: a task that waits for other tasks needs joblib's care not to block
    them.
    """
    from joblib.parallel import get_active_backend

    backend = get_active_backend()[0]
    if not hasattr(backend, "client"):
        return None
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:  # this is no worker
        backend.effective_n_jobs(-1)  # waits for a worker, then says that there is none
        return backend.client
    return None


def results(
    client: Any,
    function: Callable[[int], Any],
    n_calls: int,
    attempts: int = 3,
    pause: float = 1.0,
) -> Generator[Any, None, None]:
    """``function(0)``, ``function(1)``, … from the workers, in order.

    A call is made again on another worker when one is lost, and rows are sent out again up to
    ``attempts`` times, ``pause`` seconds apart. Raises ``BrokenExecutor`` when Dask gives a
    call up; joblib's own way to Dask waits forever then.
    """
    from distributed import KilledWorker
    from distributed.comm.core import CommClosedError

    done = 0
    for attempt in range(1, attempts + 1):
        sent: list[Any] = []
        try:
            # What the function holds, its rows, goes to every worker once and not with each call.
            everywhere = client.scatter(function, broadcast=True, hash=False)
            sent.append(everywhere)
            calls = [
                client.submit(operator.call, everywhere, number, pure=False)
                for number in range(done, n_calls)
            ]
            sent.extend(calls)
            for call in calls:
                yield call.result()
                done += 1
            return
        # All workers that had the rows were lost, or one was while it was sent them.
        except (CancelledError, CommClosedError, KilledWorker) as error:
            if attempt == attempts or isinstance(error, KilledWorker):
                raise BrokenExecutor(f"Dask gave a call up: {error}") from error
            time.sleep(pause)
        finally:
            client.cancel(sent)
