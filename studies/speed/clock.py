"""Wall time of a call."""

from __future__ import annotations

import time
from collections.abc import Callable


def best_of(call: Callable[[], object], repeats: int) -> float:
    """Shortest wall time of ``repeats`` calls: the one least disturbed."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
