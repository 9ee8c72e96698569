"""One thread for small work, in the libraries of numpy and scikit-learn and in torch alike."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from threadpoolctl import ThreadpoolController

#: smaller folds get one thread: waiting ones made a fit a hundred times slower
ONE_THREAD_NUMBERS = 2_000_000


class _Blocks:
    """Blocks that run with one thread now, in any Python thread, and the threads before them."""

    def __init__(self, forked: bool) -> None:
        self.lock = threading.Lock()
        self.running = 0
        self.forked = forked
        self.limit = None
        self.of_torch = 0


_known: dict[str, Any] = {"blocks": _Blocks(forked=False), "modules": 0}
#: The blocks of this Python thread, as the torch that each of them has seen (None: none yet).
_own = threading.local()
# A forked child has none of OpenMP's threads, but the library does not know that and would wait
# for them forever.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        after_in_child=lambda: _known.update(blocks=_Blocks(forked=True))
    )


@contextmanager
def one_thread(wanted: bool = True) -> Iterator[None]:
    """One thread for every library within the block, when ``wanted`` or after a fork.

    Most matrices are small, threads that wait for work take the cores from those that have some,
    and sums that are split over threads round differently.
    """
    blocks = _known["blocks"]
    torch = sys.modules.get("torch")
    around = getattr(_own, "blocks", ())
    if torch in around or not (wanted or blocks.forked):
        yield
        return
    with blocks.lock:
        if torch is not None and not blocks.of_torch:  # it counts its threads itself
            blocks.of_torch = torch.get_num_threads()
        if blocks.running == 0:
            # Looking for the libraries takes milliseconds: done anew only when a module, which may
            # bring one, came in.
            if _known["modules"] != len(sys.modules):
                _known.update(
                    controller=ThreadpoolController(), modules=len(sys.modules)
                )
            blocks.limit = _known["controller"].limit(limits=1)
        blocks.running += 1
    if torch is not None:
        torch.set_num_threads(1)
    _own.blocks = (*around, torch)
    try:
        yield
    finally:
        _own.blocks = around
        with blocks.lock:
            blocks.running -= 1
            before = blocks.of_torch
            if blocks.running == 0:
                blocks.limit.restore_original_limits()
                blocks.of_torch = 0
        if torch is not None:
            torch.set_num_threads(before)
