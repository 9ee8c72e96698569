"""Dask collections, block by block, and calls on a Dask cluster. Nothing here imports dask before it meets one."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Generator
from concurrent.futures import BrokenExecutor, CancelledError
from typing import Any

FAN_IN = 16  #: results that one task merges: a tree of a thousand blocks is then three levels deep
ATTEMPTS, PAUSE = (
    3,
    1.0,
)  #: times that rows are sent out when all workers that had them were lost; seconds between
#: Columns that labels and weights are while they travel with P.
MORE_COLUMNS = ("collidescope: y", "collidescope: sample_weight")


def is_dask(value: Any) -> bool:
    """Is it a Dask array, DataFrame or Series?"""
    return type(value).__module__.split(".")[0] == "dask" and hasattr(value, "to_delayed")


def delayed(function: Callable[..., Any]) -> Any:
    """The function as a lazy one, which may be run again when a worker is lost."""
    from dask.delayed import delayed as lazy

    return lazy(function, pure=False)


def blocks(P: Any, y: Any, sample_weight: Any) -> list[tuple[Any, Any, Any]]:
    """Lazy blocks of rows of ``P`` with the matching blocks of the others (None stays None)."""
    for name, other in (("y", y), ("sample_weight", sample_weight)):
        if other is None:
            continue
        if not is_dask(other):
            raise ValueError(
                f"{name} must be a Dask collection as P is, got {type(other).__name__}"
            )
        if hasattr(other, "rechunk") != hasattr(P, "rechunk"):
            raise ValueError(f"{name} and P must both be Dask arrays or both Dask DataFrames")
        if hasattr(other, "rechunk") and len({P.shape[0], other.shape[0]}) > 1:
            raise ValueError(
                f"P and {name} must have the same number of rows, got {P.shape[0]} and {other.shape[0]}"
            )
    if not hasattr(P, "rechunk"):
        return _frame_blocks(P, y, sample_weight)
    P = P.rechunk({1: -1})
    own = [None if other is None else other.rechunk((P.chunks[0],)) for other in (y, sample_weight)]
    parts = [
        [None] * len(P.chunks[0]) if part is None else part.to_delayed().ravel()
        for part in (P, *own)
    ]
    return list(zip(*parts, strict=True))


def _frame_blocks(P: Any, y: Any, sample_weight: Any) -> list[Any]:
    """As one table: read on their own, few columns of a file would come in other partitions than many."""
    more = {
        name: other
        for name, other in zip(MORE_COLUMNS, (y, sample_weight), strict=True)
        if other is not None
    }
    if clash := [name for name in P.columns if name in MORE_COLUMNS]:
        raise ValueError(f"P must not have a column called {clash[0]!r}")
    try:
        table = P.assign(**more) if more else P
        parts = table.to_delayed()
    except (ValueError, NotImplementedError) as error:
        raise ValueError(
            f"P and y must be columns of one table, or have the same partitions: {error}"
        ) from None
    rest, column = delayed(lambda part: part.drop(columns=list(more))), delayed(operator.getitem)
    return [
        (rest(part), *(column(part, name) if name in more else None for name in MORE_COLUMNS))
        for part in parts
    ]


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
        return pd.DataFrame(
            function(part) if len(part) else None,
            index=part.index,
            columns=columns,
            dtype="float64",
        )

    return X.map_partitions(frame, meta=pd.DataFrame(columns=columns, dtype="float64"))


def cluster() -> Any | None:
    """The client of the cluster that ``joblib.parallel_config(backend="dask")`` names; None where there is none.

    None too on a worker of it: a task that waits for other tasks needs joblib's care not to block them.
    """
    from joblib.parallel import get_active_backend

    backend = get_active_backend()[0]
    if not hasattr(backend, "client"):
        return None
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:  # this is no worker
        backend.effective_n_jobs(
            -1
        )  # waits some seconds for a worker, then says that there is none
        return backend.client
    return None


def results(
    client: Any, function: Callable[[int], Any], n_calls: int
) -> Generator[Any, None, None]:
    """``function(0)``, ``function(1)``, … from the workers, in order; again on another one when a worker is lost.

    Raises ``BrokenExecutor`` when Dask gives a call up. joblib's own way to Dask waits forever then.
    """
    from distributed import KilledWorker
    from distributed.comm.core import CommClosedError

    done = 0
    for attempt in range(1, ATTEMPTS + 1):
        sent: list[Any] = []
        try:
            # What the function holds, its rows, goes to every worker once and not with each call.
            sent.append(everywhere := client.scatter(function, broadcast=True, hash=False))
            calls = [
                client.submit(operator.call, everywhere, number, pure=False)
                for number in range(done, n_calls)
            ]
            sent.extend(calls)
            for call in calls:
                yield call.result()
                done += 1
            return
        # All workers that had the rows were lost and the rows with them, or one was while it was sent them.
        except (CancelledError, CommClosedError, KilledWorker) as error:
            if attempt == ATTEMPTS or isinstance(error, KilledWorker):
                raise BrokenExecutor(f"Dask gave a call up: {error}") from error
            time.sleep(PAUSE)
        finally:
            client.cancel(sent)
