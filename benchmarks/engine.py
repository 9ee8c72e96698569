"""What the pool costs beyond its members, what the range costs beyond the pool, and what a busy core does to both.

Processor seconds on one thread: ``fit`` without the range over the plain cross-validation of the same members (every
member fitted and scored once per fold), and with the range over without. Busy: wall seconds of a fit beside a process
that takes one core, over those of an idle machine; and the same ratio for a plain loop in one thread, which is what the
machine itself loses (two virtual cores may be one real one).

    python -m benchmarks.engine [--cases A5 digits wide adult] [--busy]
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch are loaded

import multiprocessing
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold

from benchmarks import _record
from collidescope import CollisionClassifier, datasets
from collidescope.crossfit import Engine, make_task, train_fold
from collidescope.folds import Folds
from collidescope.models import models_for
from collidescope.sample import make_sample


def wide(n: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 20))
    return X, (X[:, :4] @ rng.normal(size=(4, 4)) + rng.gumbel(size=(n, 4))).argmax(1)


def adult() -> tuple[np.ndarray, np.ndarray]:
    from collidescope.tables.encoding import TableEncoder
    from experiments.real_data import load_adult

    X, y = load_adult()
    encoded, _ = TableEncoder.fit(X).transform(X)
    return encoded, np.unique(y, return_inverse=True)[1]


CASES: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
    "A5": lambda: datasets.scenario_a(5).sample(1250, 0),
    "digits": lambda: load_digits(return_X_y=True),
    "wide": wide,
    "adult": adult,
}


def members_alone(X: np.ndarray, y: np.ndarray) -> float:
    """Processor seconds of the members alone, fold by fold."""
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, y))
    sample = make_sample(X, y)
    plan = Folds(folds, seeds=list(range(len(folds))))
    models = models_for("auto", sample, plan)
    start = time.process_time()
    for number, (_, test) in enumerate(folds):
        train_fold(models, make_task(sample, plan, Engine(), number), sample.take(test))
    return time.process_time() - start


def fit_seconds(
    X: np.ndarray, y: np.ndarray, limit: bool, clock: Callable[[], float] = time.process_time
) -> float:
    start = clock()
    CollisionClassifier(random_state=0, limit=limit, device="cpu").fit(X, y)
    return clock() - start


def _spin(stop: Any) -> None:
    while not stop.is_set():
        sum(range(10_000))


def loop_seconds(repeats: int = 20) -> float:
    """Wall seconds of plain work in one thread."""
    values = np.random.default_rng(0).random(1_000_000)
    start = time.perf_counter()
    for _ in range(repeats):
        np.sort(values)
        sum(range(1_000_000))
    return time.perf_counter() - start


def busy_ratio(n: int) -> dict[str, float]:
    """A fit of n rows beside a process that takes a core, over the same fit on an idle machine."""
    X, y = wide(n)
    calls = {"fit": lambda: fit_seconds(X, y, True, time.perf_counter), "loop": loop_seconds}
    idle = {name: call() for name, call in calls.items()}
    stop = multiprocessing.Event()
    process = multiprocessing.Process(target=_spin, args=(stop,))
    process.start()
    try:
        beside = {name: call() for name, call in calls.items()}
    finally:
        stop.set()
        process.join()
    found = {
        "rows": n,
        "idle": idle["fit"],
        "busy": beside["fit"],
        "ratio": beside["fit"] / idle["fit"],
    }
    return found | {"ratio of a plain loop": beside["loop"] / idle["loop"]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=CASES)
    parser.add_argument(
        "--busy", action="store_true", help="measure the busy machine too (wants two idle cores)"
    )
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    record = _record.load("engine") or {"results": {}}
    results: dict[str, Any] = record["results"]
    CollisionClassifier(random_state=0, limit=False, cv=2).fit(
        *datasets.scenario_a(3).sample(60, 0)
    )  # imports
    for name in arguments.cases:
        X, y = CASES[name]()
        alone, fit, ranged = members_alone(X, y), fit_seconds(X, y, False), fit_seconds(X, y, True)
        results[name] = {"rows": len(y), "members": alone, "fit": fit, "with range": ranged}
        results[name] |= {"fit / members": fit / alone, "range / fit": ranged / fit}
        print(name, {key: round(value, 3) for key, value in results[name].items()}, flush=True)
        _record.save("engine", {"threads": 1}, results)
    if arguments.busy:
        results["busy"] = [busy_ratio(n) for n in (650, 10_000)]
        print(results["busy"])
        _record.save("engine", {"threads": 1}, results)


if __name__ == "__main__":
    main()
