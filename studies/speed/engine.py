"""What the pool costs beyond its members, the range beyond the pool, and a busy core.

Processor seconds on one thread: ``fit`` without the range over the plain cross-validation of the
same members (every member fitted and scored once per fold), and with the range over without. Busy:
wall seconds of a fit beside a process that takes one core, over those of an idle machine; and the
same ratio for a plain loop in one thread, which is what the machine itself loses (two virtual cores
may be one real one).
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold

from collidescope import CollisionClassifier, datasets
from collidescope._progress import Progress
from collidescope.crossfit import Engine, train_folds
from collidescope.folds import Folds
from collidescope.models import models_for
from collidescope.sample import make_sample
from studies.markdown import again, table
from studies.real_data import load_adult
from studies.store import Cell, Record, Study, by_part

BUSY = "busy"


def wide(n: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 20))
    logits = X[:, :4] @ rng.normal(size=(4, 4))
    return X, (logits + rng.gumbel(size=(n, 4))).argmax(1)


def adult() -> tuple[np.ndarray, np.ndarray]:
    from collidescope.tables.encoding import TableEncoder

    X, y = load_adult()
    encoded = TableEncoder.fit(X).transform(X).rows
    return encoded, np.unique(y, return_inverse=True)[1]


CASES: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
    "A5": lambda: datasets.scenario_a(5).sample(1250, 0),
    "digits": lambda: load_digits(return_X_y=True),
    "wide": wide,
    "adult": adult,
}


def cells(quick: bool) -> list[Cell]:
    names = ["A5"] if quick else [*CASES, BUSY]
    return [{"part": name} for name in names]


def run(cell: Cell) -> dict[str, Any]:
    # The first fit of a process imports what the others need.
    small = datasets.scenario_a(3).sample(60, 0)
    CollisionClassifier(random_state=0, limit=False, cv=2).fit(*small)
    if cell["part"] == BUSY:
        return {"rows": [beside_a_busy_core(n) for n in (650, 10_000)]}
    X, y = CASES[cell["part"]]()
    alone = members_alone(X, y)
    fit = fit_seconds(X, y, limit=False)
    ranged = fit_seconds(X, y, limit=True)
    return {
        "rows": len(y),
        "members": alone,
        "fit": fit,
        "with range": ranged,
        "fit / members": fit / alone,
        "range / fit": ranged / fit,
    }


def members_alone(X: np.ndarray, y: np.ndarray) -> float:
    """Processor seconds of the members alone, fold by fold."""
    splits = list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, y))
    sample = make_sample(X, y)
    folds = Folds(splits, seeds=list(range(len(splits))))
    models = models_for("auto", sample, folds)
    start = time.process_time()
    with Progress("training folds", len(splits), verbose=0) as progress:
        train_folds(sample, models, folds, Engine(), progress)
    return time.process_time() - start


def fit_seconds(
    X: np.ndarray,
    y: np.ndarray,
    limit: bool,
    clock: Callable[[], float] = time.process_time,
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


def beside_a_busy_core(n: int) -> dict[str, float]:
    """A fit of n rows beside a process that takes a core, over the same fit without it."""
    X, y = wide(n)

    def both() -> tuple[float, float]:
        return fit_seconds(X, y, True, time.perf_counter), loop_seconds()

    idle_fit, idle_loop = both()
    stop = multiprocessing.Event()
    process = multiprocessing.Process(target=_spin, args=(stop,))
    process.start()
    try:
        busy_fit, busy_loop = both()
    finally:
        stop.set()
        process.join()
    return {
        "rows": n,
        "idle": idle_fit,
        "busy": busy_fit,
        "ratio": busy_fit / idle_fit,
        "ratio of a plain loop": busy_loop / idle_loop,
    }


def text(records: list[Record]) -> str:
    found = by_part(records)
    busy = found.pop(BUSY, {"rows": []})["rows"]
    rows = []
    for name, r in found.items():
        seconds = [f"{r[key]:.1f} s" for key in ("members", "fit", "with range")]
        ratios = [f"{r[key]:.2f}" for key in ("fit / members", "range / fit")]
        rows.append([name, f"{r['rows']:,}", *seconds, *ratios])
    head = ["data", "rows", "members alone", "fit", "fit with its range"]
    head += ["fit / members", "range / fit"]
    beside = " ".join(
        f"A fit of {r['rows']:,} rows beside a process that takes one core takes {r['ratio']:.2f} "
        "times as long as on an idle machine (a plain loop in one thread "
        f"{r['ratio of a plain loop']:.2f} times)."
        for r in busy
    )
    return f"""## What the pool and the range cost

Processor seconds on one thread: every member fitted and scored once per fold, the fit without its
range, and with it.

{table(head, rows)}

{beside} {again("engine")}"""


STUDY = Study(
    "engine", "What the pool, the range and a busy core cost", cells, run, text, True
)
