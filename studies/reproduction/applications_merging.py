"""Is the PBER that a merge promises the one that a model trained on the merged labels finds?

Rows are split in halves. The first half gives S, the groups and the promise, ``B' = Aᵀ B A`` with
no retraining. Then a new fit on merged labels is compared with it: on the same half (errors of both
are correlated, so its interval is only looked at), and on the other half, where the two are
independent and the difference has a standard error of ``√(se₁² + se₂²)``. On that half the promise
is also made again, from S of that half and the groups of the first: groups chosen by an estimate
look a little better in it than they are, and this tells by how much.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from collidescope import CollisionClassifier, CollisionMatrix
from collidescope.applications import consolidate
from collidescope.datasets import scenario_a
from studies.models import estimator_settings
from studies.real_data import load_letter
from studies.store import Cell, Study

#: Half the width of a 95% interval in standard errors.
Z = 1.96
#: Added to the seed of a cell, so that no fit shares its random numbers with another.
SAME, OTHER, AGAIN = 10_000, 20_000, 30_000


def run(cell: Cell) -> dict[str, Any]:
    """Promise and what retraining finds, at each number of groups."""
    X, y, truth = _data(cell)
    X1, X2, y1, y2 = train_test_split(
        X, y, test_size=0.5, stratify=y, random_state=cell["seed"]
    )
    first = _fit(cell, X1, y1, cell["seed"])
    again = _fit(cell, X2, y2, AGAIN + cell["seed"])
    path = consolidate(first)
    levels = []
    for n_groups in cell["groups"]:
        plan = path.at(n_groups)
        promise = _pber(plan.matrix)
        same = _pber(_fit(cell, X1, plan.transform(y1), SAME + cell["seed"]))
        other = _pber(_fit(cell, X2, plan.transform(y2), OTHER + cell["seed"]))
        repeated = _pber(again.merge(plan.groups))
        same |= {
            "inside": promise["low"] <= same["pber"] <= promise["high"],
            "difference": same["pber"] - promise["pber"],
        }
        level = {
            "n_groups": n_groups,
            "largest_group": max(map(len, plan.groups)),
            "promise": promise,
            "same_rows": same,
            "other_rows": other | _difference(promise, other),
            "other_promise": repeated | _difference(promise, repeated),
        }
        if truth is not None:
            merged = truth.merge(plan.groups).pber
            inside = promise["low"] <= merged <= promise["high"]
            level["truth"] = {"pber": merged, "inside": inside}
        levels.append(level)
    return {"before": _pber(first), "levels": levels}


def _fit(cell: Cell, X: np.ndarray, y: np.ndarray, seed: int) -> CollisionMatrix:
    settings = estimator_settings({"limit": False} | cell["settings"])
    clf = CollisionClassifier(random_state=seed, **settings)
    return clf.fit(X, y).collision_matrix_


def _pber(cm: CollisionMatrix) -> dict[str, float]:
    low, high = cm.pber_interval()
    return {"pber": cm.pber, "low": low, "high": high, "stderr": cm.pber_stderr}


def _difference(first: dict[str, float], second: dict[str, float]) -> dict[str, Any]:
    """Second less first, of independent rows, and whether a 95% interval around it covers zero."""
    gap = second["pber"] - first["pber"]
    stderr = float(np.hypot(first["stderr"], second["stderr"]))
    return {
        "difference": gap,
        "difference_stderr": stderr,
        "covers_zero": abs(gap) <= Z * stderr,
    }


def _data(cell: Cell) -> tuple[np.ndarray, np.ndarray, CollisionMatrix | None]:
    """X, labels as text, and the true S where it is known."""
    if cell["data"] == "A":
        problem = scenario_a(5)
        X, y = problem.sample(cell["rows"], cell["seed"])
        return X, y.astype(str), problem.collision_matrix()
    if cell["data"] == "digits":
        X, y = load_digits(return_X_y=True)
    else:
        table, y = load_letter()
        X = table.to_numpy(dtype=np.float64)
    if cell["rows"] < len(y):
        X, _, y, _ = train_test_split(
            X, y, train_size=cell["rows"], stratify=y, random_state=cell["seed"]
        )
    return X, y.astype(str), None


def cells(quick: bool) -> list[Cell]:
    """A few sizes of merging on each data set; one network on the real ones, the default where it
    is quick.

    Digits also with a linear model, which is too simple for groups of digits that have little in
    common.
    """
    small: dict[str, Any] = {"hidden_layer_sizes": [16], "max_epochs": 10, "cv": 2}
    network = {"hidden_layer_sizes": [128]}
    plan: list[tuple[Any, ...]] = [
        ("letter", 5000, [20, 10], network),
        ("digits", 1797, [7, 4], network),
        ("digits", 1797, [4], {"hidden_layer_sizes": []}),
        ("A", 2500, [4, 3, 2], {}),
    ]
    if quick:
        plan = [("A", 400, [3], small), ("digits", 400, [5], small)]
    names = ("data", "rows", "groups", "settings")
    return [
        dict(zip(names, row, strict=True)) | {"seed": seed}
        for row in plan
        for seed in range(1 if quick else 10)
    ]


STUDY = Study(
    "merging", "Merging classes: PBER promised and found by retraining", cells, run
)
