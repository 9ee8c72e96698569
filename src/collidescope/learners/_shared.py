"""What several members of the pool share: checks of what came from a file, splits, log posteriors, one thread.

Nothing here needs torch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from collidescope.learners.base import FloatArray, Task, Tree

#: Log posteriors are not lower: rounding of float32 is all that lies below, and a pool must be able to add them up.
LOG_FLOOR = -20.0
#: Learned numbers are far below this; larger ones from a file would overflow float32 a few steps on.
LARGEST_NUMBER = 1e9
#: Rows that tell the standard deviations of features; factors that differ by less are the same; and the largest.
SCALE_ROWS, SAME_SCALE, LARGEST_SCALE = 20_000, 0.1, 1e4
#: Numbers in a block of intermediate results (32 MB in float32).
BLOCK_NUMBERS = 8_000_000


def log_softmax(logits: npt.NDArray[Any]) -> FloatArray:
    """Normalised logarithms of posteriors, float64 and at least :data:`LOG_FLOOR`."""
    z = np.asarray(logits, dtype=np.float64)
    z = z - z.max(axis=1, keepdims=True)
    z -= np.log(np.exp(z).sum(axis=1, keepdims=True))
    return np.asarray(np.maximum(z, LOG_FLOOR), dtype=np.float64)


def weights_of(task: Task) -> FloatArray:
    """The sample weights, or ones."""
    n = len(task.codes)
    return np.ones(n) if task.sample_weight is None else np.asarray(task.sample_weight, dtype=np.float64)


def one_hot(task: Task) -> npt.NDArray[np.float32]:
    """The labels as an (n, K) matrix of zeros and ones."""
    return np.eye(task.n_classes, dtype=np.float32)[task.codes]


def class_shares(task: Task, count: float = 0.5) -> FloatArray:
    """Weighted shares of the classes, with ``count`` rows added to each so that every logarithm exists."""
    shares = np.bincount(task.codes, weights_of(task), minlength=task.n_classes) + count
    return np.asarray(shares / shares.sum(), dtype=np.float64)


def scales(task: Task) -> list[npt.NDArray[np.float32]]:
    """Factors of the features among which distances are chosen: as given, standard deviation 1, and as in the data."""
    sample = np.asarray(task.X[:SCALE_ROWS], dtype=np.float64)
    sd = sample.std(axis=0)
    found = [np.ones(len(sd)), np.where(sd > 0, 1 / np.maximum(sd, 1e-6), 0.0)]
    if task.spread is not None:
        found.append(np.asarray(task.spread, dtype=np.float64))
    kept: list[npt.NDArray[np.float32]] = []
    for factors in found:
        varies = factors[(factors > 0) & (sd > 0)]
        # factors that agree but for a common one give the same neighbours
        same = any(np.ptp(factors[sd > 0] / np.maximum(other[sd > 0], 1e-6)) < SAME_SCALE for other in kept)
        if len(varies) and not same:
            kept.append(np.clip(factors / np.median(varies), 0, LARGEST_SCALE).astype(np.float32))
    return kept or [np.ones(len(sd), dtype=np.float32)]


def by_blocks(
    score: Callable[[npt.NDArray[np.float32]], FloatArray], X: Any, numbers_per_row: int, n_classes: int
) -> FloatArray:
    """``score`` of all rows, as many at once as :data:`BLOCK_NUMBERS` allows."""
    size = max(1, BLOCK_NUMBERS // max(1, numbers_per_row))
    out = np.empty((len(X), n_classes))
    for start in range(0, len(X), size):
        out[start : start + size] = score(np.asarray(X[start : start + size], dtype=np.float32))
    return out


def inner_parts(task: Task, n_parts: int, seed: int) -> npt.NDArray[np.intp]:
    """The part 0 … n_parts-1 in which each row is held out; -1 for rows that are always trained on.

    Parts are stratified by class and keep the rows of a group together. The only row of a class is always trained on.
    """
    codes = task.codes
    generator = np.random.default_rng(seed)
    part = np.full(len(codes), -1)
    if task.groups is not None:
        from sklearn.model_selection import StratifiedGroupKFold

        n_groups = len(np.unique(task.groups))
        if n_groups < 2:
            return part
        folds = StratifiedGroupKFold(min(n_parts, n_groups), shuffle=True, random_state=seed % 2**32)
        for number, (_, held_out) in enumerate(folds.split(codes, np.zeros(len(codes)), task.groups)):
            part[held_out] = number
        return part
    dealt = np.flatnonzero(np.bincount(codes, minlength=task.n_classes)[codes] > 1)
    # Shuffled, then sorted by class: dealing the rows out in turn gives each part its share of every class.
    order = generator.permutation(dealt)
    order = order[np.argsort(codes[order], kind="stable")]
    part[order] = np.arange(len(order)) % max(2, min(n_parts, len(order) // 2))
    return part


class _Limit:
    """Blocks that run with one thread now, in any Python thread, and the way back to the earlier number."""

    lock = threading.Lock()
    running = 0
    limit: Any = None


@contextmanager
def one_thread() -> Iterator[None]:
    """Let BLAS and OpenMP have one thread within the block.

    The matrices of members are small, threads that wait for work take the cores from those that have some, and sums
    that are split over threads round differently.
    """
    with _Limit.lock:
        if _Limit.running == 0:
            _Limit.limit = threadpool_limits(limits=1)
        _Limit.running += 1
    try:
        yield
    finally:
        with _Limit.lock:
            _Limit.running -= 1
            if _Limit.running == 0:
                _Limit.limit.restore_original_limits()


def checked(tree: Tree, name: str, dtypes: Sequence[Any], shape: tuple[int | None, ...]) -> npt.NDArray[Any]:
    """The array ``name`` of an export, refused unless dtype, shape (None: any length) and numbers are as expected."""
    array = tree[name]
    if not isinstance(array, np.ndarray) or array.dtype not in [np.dtype(dtype) for dtype in dtypes]:
        raise ValueError(f"{name} must be an array of dtype {' or '.join(np.dtype(t).name for t in dtypes)}")
    if array.ndim != len(shape) or any(want not in (None, got) for want, got in zip(shape, array.shape, strict=True)):
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    # nan is below nothing; half precision is widened, or the bound itself would become infinite there
    if array.dtype.kind == "f" and not bool((np.abs(array, dtype=np.result_type(array, "f4")) <= LARGEST_NUMBER).all()):
        raise ValueError(f"{name} must hold finite numbers of at most {LARGEST_NUMBER:g}")
    return array


def checked_number(tree: Tree, name: str, low: float, high: float) -> float:
    """The number ``name`` of an export, between ``low`` and ``high``."""
    value = tree[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise ValueError(f"{name} must be a number between {low:g} and {high:g}, got {value!r}")
    return float(value)
