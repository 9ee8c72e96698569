"""What a fit will cost in time and memory, said before it starts.

A sum over the capacities that a fold trains (see :mod:`collidescope.contrastive.ensemble`), with constants measured on
one core of a 2020s server; a short probe on some of the rows corrects them for this machine as it is now. How many
epochs a network takes is not known beforehand, so the estimate is good to about a factor of two.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collidescope.cli._console import duration
from collidescope.contrastive.ensemble import FIVE_SPLITS, MANY_ROWS, MOST_PRODUCTS, THREE_SPLITS
from collidescope.contrastive.linear import n_regression_features
from collidescope.contrastive.trees import FEWEST_TREE_ROWS, MAX_ROUNDS, MAX_TREES, MOST_TREE_CLASSES

#: One step of a network: seconds of overhead, and multiplications a second.
STEP, MULTIPLICATIONS = 1.1e-3, 4e10
#: Seconds a value (row × feature) of all iterations of a regression: plain (for up to 4 classes), with products.
LINEAR, QUADRATIC = 2.5e-7, 4.5e-7
#: Seconds of growing one tree: at least, and for every value (row × feature).
TREE, TREE_VALUE = 1e-3, 6e-9
#: Epochs beyond ``patience``: large samples need few, small ones many.
EPOCHS, MORE_EPOCHS, SMALL = 12, 25, 1500
#: Rows of the probe, and what must be expected before one is worth its second or two.
PROBE_ROWS, PROBE_FROM = 1_500, 20.0
#: Bytes: the libraries here and in a worker; copies of the table and of the products that are held at once.
LIBRARIES, WORKER, COPIES, PRODUCT_COPIES = 0.45e9, 0.25e9, 6, 3.5
#: Folds in parallel need workers that take seconds to start and have memory of their own: they must be worth it, and
#: stay below this many bytes, or this share of what the machine has.
PARALLEL_FROM, MOST_MEMORY, SHARE = 15.0, 2.8e9, 0.25


@dataclass(frozen=True)
class Cost:
    """Seconds and bytes; printed in words."""

    seconds: float
    memory: float

    def __str__(self) -> str:
        return f"about {duration(self.seconds)} and {self.memory / 1e9:.1f} GB"


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_memory() -> float:
    """Bytes of memory of this machine, 0 where it does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return 0.0


def fold_seconds(n: int, d: int, k: int, max_epochs: int, patience: int, trees: bool = False) -> float:
    """One core, one fold of ``n`` training rows, ``d`` features and ``k`` classes.

    >>> 5 < fold_seconds(50_000, 21, 3, 200, 12) < 50
    True
    """
    splits = 5 if n <= FIVE_SPLITS else 3 if n <= THREE_SPLITS else 1
    rows = n * (splits - 1) if splits > 1 else 0.9 * n
    products = n_regression_features(d, quadratic=True)
    classes = max(1.0, k / 4) ** 0.3
    seconds = (3 if k > 2 else 1) * rows * d * LINEAR * classes
    if products <= MOST_PRODUCTS:
        seconds += (1.7 if n < MANY_ROWS * products else 1.0) * rows * products * QUADRATIC * classes
    batch = min(256, max(64, 2 ** max(0, round(np.log2(max(n, 1) / 100)))))
    steps = max(1.0, rows / splits / batch)
    epochs = min(max_epochs, patience + EPOCHS + MORE_EPOCHS * min(1.0, SMALL / n))
    work = 3 * batch * splits * (128 * d + 128**2 + 128 * k)
    if trees and k <= MOST_TREE_CLASSES and n >= FEWEST_TREE_ROWS:
        grown = min(MAX_ROUNDS * (1 if k == 2 else k), MAX_TREES)
        seconds += grown * (splits * TREE + rows * d * TREE_VALUE)
    return float(seconds + epochs * steps * (STEP + work / MULTIPLICATIONS))


def _fold(n: int, d: int, k: int, settings: Mapping[str, Any]) -> float:
    cv, patience = int(settings["cv"]), int(settings.get("patience", 12))
    return fold_seconds(n * (cv - 1) // cv, d, k, int(settings["max_epochs"]), patience, bool(settings.get("trees")))


def fit_memory(n: int, d: int, jobs: int) -> float:
    """Bytes of a fit of ``n`` rows in ``jobs`` processes."""
    products = n_regression_features(d, quadratic=True)
    table = 4.0 * n * d * COPIES
    fold = table + (4.0 * 0.72 * n * products * PRODUCT_COPIES if products <= MOST_PRODUCTS else 0.0)
    return LIBRARIES + table + (fold if jobs == 1 else jobs * (WORKER + fold))


def jobs_for(n: int, d: int, k: int, settings: Mapping[str, Any]) -> int | None:
    """Folds at a time: as many as there are cores and memory for when the fit is long, else one after the other."""
    cv = int(settings["cv"])
    alone = cv * _fold(n, d, k, settings)
    if alone < PARALLEL_FROM or settings.get("device", "cpu") != "cpu":
        return None
    limit = max(MOST_MEMORY, SHARE * machine_memory())
    return next((jobs for jobs in range(min(cores(), cv), 1, -1) if fit_memory(n, d, jobs) < limit), None)


def expected_cost(X: npt.NDArray[Any], y: npt.NDArray[Any], settings: Mapping[str, Any], *, refits: int = 1) -> Cost:
    """Of fitting ``X`` with these settings; long fits are probed first."""
    n, d = X.shape
    k = len(np.unique(y))
    cv = int(settings["cv"])
    jobs, device = max(1, settings["n_jobs"] or 1), str(settings.get("device", "cpu"))
    rounds = int(np.ceil(cv / jobs))
    seconds = rounds * _fold(n, d, k, settings)
    if seconds > PROBE_FROM:
        seconds *= probe(X, y, device)
    return Cost(refits * (seconds + (4.0 if jobs > 1 else 1.0)), fit_memory(n, d, jobs))


def probe(X: npt.NDArray[Any], y: npt.NDArray[Any], device: str = "cpu") -> float:
    """How much slower than the constants say this machine trains now: wall time on some rows for two epochs."""
    from collidescope._scaling import apply_scaling, fit_scaling
    from collidescope.contrastive import TrainingConfig, bridge

    rows = np.random.default_rng(0).permutation(len(y))[:PROBE_ROWS]
    codes = np.unique(y[rows], return_inverse=True)[1]
    classes = int(codes.max()) + 1
    part = X[rows]
    centre, scale = fit_scaling(part)
    scaled = apply_scaling(part, centre, scale)
    config = TrainingConfig(max_epochs=2, device=device)
    seconds = np.inf
    try:
        for size in (PROBE_ROWS // 10, PROBE_ROWS, PROBE_ROWS):  # the first run loads what the others need
            started = time.perf_counter()
            few = np.unique(codes[:size], return_inverse=True)[1]
            bridge.train_fold(scaled[:size], few, int(few.max()) + 1, config, 0)
            if size == PROBE_ROWS:  # the better of two: other programs come and go
                seconds = min(seconds, time.perf_counter() - started)
    except ValueError:  # a class with too few rows among them
        return 1.0
    return seconds / fold_seconds(len(rows), X.shape[1], classes, 2, 12)
