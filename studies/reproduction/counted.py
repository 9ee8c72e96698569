"""Collisions counted over repeated inputs, with no model, beside estimates for exactly those rows.

A cell is one table (a documented choice of its columns, no value altered), method and seed.
Counting speaks for the rows whose input occurs again (``coverage``); models are trained and scored,
held-out, on the same rows, or a random part of them (``rows``). With ``train`` "all" they learn
from the other rows as well, and S is still that of the repeated ones.

Whatever a model has not learned counts as collision, so estimates may show more of it than was
counted; counting has no such error, but much noise where inputs repeat only a few times. Rows of
the forest table are neighbouring squares of land, not independent draws: there counting and
estimating share the dependence.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits, load_iris

from collidescope import (
    CollisionMatrix,
    collision_matrix_from_posteriors,
    count_collisions,
)
from collidescope.counting import repeated_rows
from collidescope.onestep import shrunk_collision_matrix
from studies.measures import tvd
from studies.real_data import (
    load_adult,
    load_brfss,
    load_covertype,
    load_law_school,
    load_letter,
)
from studies.reproduction.tabular import (
    BOOSTING,
    BOOSTING_SETTINGS,
    OURS,
    Result,
    Table,
    describe,
    has_data,
    has_posterior,
    posteriors,
    rounded,
)
from studies.store import Cell, Study

#: Most rows that a model is trained on, to stay within minutes on one core; counting takes all.
LIMITS = {"covertype": 60_000}


def _without(load: Callable[[], Table], *columns: str) -> Callable[[], Table]:
    def choose() -> Table:
        X, y = load()
        return X.drop(columns=list(columns)), y

    return choose


def _forest() -> Table:
    """Elevation in metres, wilderness area and soil type."""
    X, y = load_covertype()
    return X.filter(regex="elevation|wilderness|soil"), y


def _iris() -> Table:
    bunch = load_iris(as_frame=True)
    X = bunch.data[["petal width (cm)"]]
    return X, np.array(bunch.target_names)[bunch.target]


def _digits() -> Table:
    """Odd or even from 7 of the 64 pixels, inked or not: inputs repeat."""
    bunch = load_digits(as_frame=True)
    X = (bunch.data.iloc[:, [12, 20, 28, 34, 36, 42, 44]] > 7).astype(np.float64)
    return X, np.where(bunch.target % 2, "odd", "even")


DATASETS: dict[str, Callable[[], Table]] = {
    "BRFSS": _without(load_brfss, "BMI", "MentHlth", "PhysHlth"),
    "adult": _without(
        load_adult, "fnlwgt", "capital-gain", "capital-loss", "hours-per-week"
    ),
    "law school": _without(load_law_school, "lsat", "ugpa", "zfygpa", "zgpa"),
    "covertype": _forest,
    "letter": load_letter,
    "iris": _iris,
    "digits": _digits,
}
QUICK = ("iris", "digits")


@cache
def _load(name: str) -> tuple[pd.DataFrame, np.ndarray, np.ndarray, CollisionMatrix]:
    X, y = DATASETS[name]()
    return X, y, repeated_rows(X), count_collisions(X, y)


def run(cell: Cell) -> Result:
    """Counted and estimated S of the same rows, and how far they are from each other."""
    X, y, repeated, counted = _load(cell["dataset"])
    rows = np.arange(len(y))
    if cell["train"] == "repeated":
        rows = np.flatnonzero(repeated)
    available = len(rows)
    if cell["rows"] is not None and cell["rows"] < available:
        rng = np.random.default_rng(cell["seed"])
        rows = np.sort(rng.choice(rows, cell["rows"], replace=False))
    P, _ = posteriors(
        cell["method"], X.iloc[rows], y[rows], cell["seed"], cell["settings"]
    )
    scored = repeated[rows] & has_posterior(P)
    estimator = collision_matrix_from_posteriors
    if cell["method"] == OURS:
        estimator = shrunk_collision_matrix
    estimated = estimator(P[scored], y[rows][scored], classes=counted.classes)
    found = {
        "columns": list(X.columns),
        "rows_in_all": len(y),
        "coverage": counted.coverage,
        "rows_scored": int(scored.sum()),
        "classes": counted.classes.tolist(),
        "priors": counted.priors.tolist(),
        "counted": describe(counted),
        "estimated": describe(estimated),
        "difference": compare(counted, estimated),
    }
    return rounded(found)


def compare(counted: CollisionMatrix, estimated: CollisionMatrix) -> Result:
    """Distances between the two, and the share of entries whose intervals overlap."""
    mean, largest = tvd(estimated.matrix, counted.matrix)
    low, high = estimated.interval() or (estimated.matrix, estimated.matrix)
    counted_low, counted_high = counted.interval() or (counted.matrix, counted.matrix)
    overlap = (low <= counted_high) & (counted_low <= high)
    return {
        "mean_tvd": mean,
        "max_tvd": largest,
        "intervals_overlap": float(overlap.mean()),
    }


def _cells(quick: bool) -> list[Cell]:
    cells: list[Cell] = []
    for name in DATASETS:
        if quick != (name in QUICK):
            continue
        ours = {"max_epochs": 20, "cv": 3} if quick else {"members": "auto"}
        rows = 400 if quick else LIMITS.get(name)
        for method, settings in ((OURS, ours), (BOOSTING, BOOSTING_SETTINGS)):
            cell = {"dataset": name, "method": method, "seed": 0}
            cell |= {"rows": rows, "settings": settings}
            cells.append(cell | {"train": "repeated"})
            if name == "letter":
                cells.append(cell | {"train": "all"})
    if quick and has_data():
        cells.append(cells[-1] | {"dataset": "law school", "rows": 600})
    return cells


STUDY = Study("counted", "Counted against estimated S on real tables", _cells, run)
