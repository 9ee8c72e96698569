"""Two values: how fast a machine is, and what a fit is expected to take on it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from collidescope import _checks as check
from collidescope._words import duration, size

REPEATS = 5
#: Shapes whose products and eigenvectors are timed on the host.
TALL, SQUARE = (4000, 200), 300


@dataclass(frozen=True)
class Speed:
    """How fast a machine is, in the few numbers that the cost of a fit is made of.

    The defaults are those of one core of a 2020s server (``python -m benchmarks.scale_growth --part speed``).

    Parameters
    ----------
    layer : float
        Seconds of overhead of one layer in one training step.
    value : float
        Seconds of one activation in one training step.
    product : float
        float32 operations a second of a large matrix product.
    moment, eigen : float
        float64 operations a second of sums over posteriors and of eigenvectors, both on the host.
    device : str

    Examples
    --------
    >>> Speed.measure("cpu").product > 1e8
    True
    """

    layer: float = 8e-5
    value: float = 5.5e-9
    product: float = 1.5e11
    moment: float = 4e10
    eigen: float = 3e10
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("layer", "value", "product", "moment", "eigen"):
            check.check_between(getattr(self, name), 0, math.inf, name)

    @classmethod
    def measure(cls, device: str = "auto", *, alone: bool = False) -> Speed:
        """Time this machine as it is now, for about a second; ``alone`` with one thread, as small fits train."""
        from collidescope.contrastive.bridge import resolve_device
        from collidescope.contrastive.probing import device_times

        device = resolve_device(device)
        rng = np.random.default_rng(0)
        tall, square = rng.standard_normal(TALL), rng.standard_normal((SQUARE, SQUARE))
        moment = 2 * tall.size * TALL[1] / _seconds(lambda: (tall * tall).T @ tall)
        eigen = 10 * SQUARE**3 / _seconds(lambda: np.linalg.eigh(square + square.T))
        return cls(*device_times(device, alone=alone), moment, eigen, device)


#: What is assumed before anything was measured.
CPU = Speed()


@dataclass(frozen=True)
class Cost:
    """What a fit is expected to take; printed in words.

    Attributes
    ----------
    training, scoring, matrix : float
        Seconds of the stages: the folds, the posteriors of held-out rows, S with its intervals.
    memory : float
        Bytes of this process and its workers at their highest, the table included.
    device_memory : float
        Bytes on an accelerator; 0 without one.
    device : str

    Examples
    --------
    >>> print(Cost(100.0, 3.0, 1.0, 1.2e9))
    about 1.7 min and 1.2 GB on the CPU: training 1.7 min, scoring 3 s, S 1 s
    """

    training: float
    scoring: float
    matrix: float
    memory: float
    device_memory: float = 0.0
    device: str = "cpu"

    @property
    def seconds(self) -> float:
        """Of all stages together."""
        return self.training + self.scoring + self.matrix

    def repeated(self, times: int) -> Cost:
        """The cost of so many fits, one after the other."""
        training, scoring, matrix = (times * part for part in (self.training, self.scoring, self.matrix))
        return replace(self, training=training, scoring=scoring, matrix=matrix)

    def __str__(self) -> str:
        where = "the CPU" if self.device == "cpu" else f"{self.device} ({size(self.device_memory)} there)"
        named = {"training": self.training, "scoring": self.scoring, "S": self.matrix}
        stages = ", ".join(f"{name} {duration(seconds)}" for name, seconds in named.items())
        return f"about {duration(self.seconds)} and {size(self.memory)} on {where}: {stages}"


def _seconds(call: Callable[[], Any]) -> float:
    """The middle of a few times."""
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return median(times)
