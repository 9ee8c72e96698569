"""Memory that runs out and devices that fail: blocks shrink where they can, else it is said plainly.

torch reports both as RuntimeError with words for developers. Here they become a MemoryError, or a
:class:`DeviceError`, that says what to try.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")
#: How torch says that memory ran out, on GPUs and on the CPU.
NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "cublas_status_alloc_failed")
#: How it says that the device itself failed.
NO_DEVICE = ("cuda error", "cuda driver", "no cuda", "cuda-capable", "cudnn", "cublas", "hip error", "mps backend")
RESUME = "the rest starts from its last epoch when fit again with the same checkpoint folder, where one was set"


class DeviceError(RuntimeError):
    """An accelerator that failed while it was used."""


def ran_out_of_memory(error: BaseException) -> bool:
    """Was there not enough memory, of whichever kind?"""
    words = str(error).lower()
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and any(w in words for w in NO_MEMORY))


@contextmanager
def said_plainly(doing: str, remedy: str, device: str) -> Iterator[None]:
    """Within the block memory that runs out is a MemoryError with a ``remedy``, and a failing device a DeviceError."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        words = (str(error).strip() or type(error).__name__).splitlines()[0]
        if ran_out_of_memory(error):
            raise MemoryError(f"not enough memory on {device} while {doing}: {remedy} ({words})") from error
        if device != "cpu" and any(w in str(error).lower() for w in NO_DEVICE):
            raise DeviceError(
                f"device {device!r} failed while {doing} ({words}): use device='cpu', or start Python anew; {RESUME}"
            ) from error
        raise


def halved(compute: Callable[[slice, slice], T], rows: slice, columns: slice) -> Iterator[tuple[slice, slice, T]]:
    """``compute(rows, columns)`` of a block; where memory runs out of its halves, and theirs, down to a single pair."""
    try:
        result = compute(rows, columns)
    except (MemoryError, RuntimeError) as error:
        if not ran_out_of_memory(error) or max(_length(rows), _length(columns)) == 1:
            raise
    else:
        yield rows, columns, result
        return
    # Not within the except: the error holds on to the tensors of the attempt.
    torch.cuda.empty_cache()
    by_rows = _length(rows) >= _length(columns)
    for half in _halves(rows if by_rows else columns):
        yield from halved(compute, *((half, columns) if by_rows else (rows, half)))


def _length(part: slice) -> int:
    return int(part.stop - part.start)


def _halves(part: slice) -> tuple[slice, slice]:
    middle = (part.start + part.stop) // 2
    return slice(part.start, middle), slice(middle, part.stop)
