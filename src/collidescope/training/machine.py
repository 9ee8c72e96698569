"""How torch uses the machine: threads, denormal numbers, memory that runs out and devices that fail.

One thread for small networks, and one in a forked child, where more would wait for ever. torch reports a lack of memory
and a failing device as RuntimeError with words for developers; here they become a MemoryError, or a
:class:`DeviceError`, that says what to try, and blocks of work are halved where that helps.
"""

from __future__ import annotations

import math
import os
import threading
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


class _State:
    """Blocks that are running now in any thread, and the number of threads before the first of them."""

    def __init__(self, forked: bool) -> None:
        self.lock = threading.Lock()
        self.running = 0
        self.before = 0
        self.forked = forked


_state = _State(forked=False)


def _in_child() -> None:
    """Of OpenMP's threads a forked child has none, yet the library believes in them."""
    global _state
    _state = _State(forked=True)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


@contextmanager
def one_thread(wanted: bool) -> Iterator[None]:
    """Let torch use one thread within the block, when ``wanted`` or after a fork.

    Blocks may run at once in several threads: each leaves the number that was there before the first of them.
    """
    state = _state
    if not (wanted or state.forked):
        yield
        return
    with state.lock:
        if state.running == 0:
            state.before = torch.get_num_threads()
        state.running += 1
    torch.set_num_threads(1)
    try:
        yield
    finally:
        with state.lock:
            state.running -= 1
        torch.set_num_threads(state.before)


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Let numbers below 1e-38 (float32) be zero within the block, in this thread.

    Processors take many times longer over such "denormal" numbers, and the averages that AdamW keeps of the gradients
    of units that no longer fire become nothing else, so that late epochs slowed down.
    """
    before = math.ulp(0.0) == 0.0  # that the smallest number is zero is true only where tiny ones are
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


class DeviceError(RuntimeError):
    """An accelerator that failed while it was used."""


def ran_out_of_memory(error: BaseException) -> bool:
    """Was there not enough memory, of whichever kind?"""
    words = str(error).lower()
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and any(w in words for w in NO_MEMORY))


@contextmanager
def explained_errors(doing: str, remedy: str, device: str) -> Iterator[None]:
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
