"""How torch may use the processor: threads, its own and those beside it, and numbers too small to be worth their time.

One thread for small networks, and one in a forked child, where more would wait for ever.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from threadpoolctl import ThreadpoolController


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
    global _state, _blas
    _state, _blas = _State(forked=True), _Blas()


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


class _Blas:
    """Blocks that limit OpenBLAS now in any thread, and the way back to its own number."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running = 0
        self.limit: Any = None

    @cached_property
    def controller(self) -> Any:
        return ThreadpoolController().select(internal_api="openblas")  # a search among libraries: milliseconds


_blas = _Blas()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let OpenBLAS, which numpy and scipy use, have one thread within the block.

    For what calls it and torch in turns: its threads wait for more by running idle, and take the cores from those of
    torch: scipy's L-BFGS between two gradients made two cores slower than one.
    """
    state = _blas
    with state.lock:
        if state.running == 0:
            state.limit = state.controller.limit(limits=1)
        state.running += 1
    try:
        yield
    finally:
        with state.lock:
            state.running -= 1
            if state.running == 0:
                state.limit.restore_original_limits()


@contextmanager
def tiny_is_zero() -> Iterator[None]:
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
