"""Do the intervals cover? Share of true entries of S inside nominal intervals, over many
samples."""

from __future__ import annotations

from typing import Any

from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from collidescope import (
    CollisionClassifier,
    collision_matrix_from_posteriors,
    estimate_collisions,
)
from collidescope.datasets import Problem, ring, scenario_a
from studies.store import Cell, Study

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
PROBLEMS: dict[str, Any] = {
    "A, K=3": lambda: scenario_a(3),
    "A, K=5": lambda: scenario_a(5),
    "D": ring,
}
METHODS = ("true posteriors", "logistic regression, one-step", "collidescope")


def run(cell: Cell) -> dict[str, Any]:
    """Coverage of the entries of S and of PBER in each of the cell's samples, by nominal level."""
    problem: Problem = PROBLEMS[cell["problem"]]()
    truth = problem.collision_matrix()
    inside: dict[str, list[float]] = {str(level): [] for level in LEVELS}
    pber: dict[str, list[bool]] = {str(level): [] for level in LEVELS}
    widths = []
    for seed in range(cell["first_seed"], cell["first_seed"] + cell["samples"]):
        X, y = problem.sample(cell["rows"], 10_000 + seed, stratified=False)
        cm = _estimate(cell["method"], problem, X, y, seed, cell.get("members"))
        for level in LEVELS:
            low, high = cm.interval(level)
            covered = (low <= truth.matrix) & (truth.matrix <= high)
            inside[str(level)].append(float(covered.mean()))
            lowest, highest = cm.pber_interval(level)
            pber[str(level)].append(bool(lowest <= truth.pber <= highest))
        low, high = cm.interval()
        widths.append(float((high - low).mean()))
    return {"S": inside, "PBER": pber, "width": widths}


def _estimate(
    method: str, problem: Problem, X: Any, y: Any, seed: int, members: Any
) -> Any:
    if method == "true posteriors":
        return collision_matrix_from_posteriors(problem.posteriors(X), y)
    if method == "collidescope":
        return (
            CollisionClassifier(members=members, limit=False, random_state=seed)
            .fit(X, y)
            .collision_matrix_
        )
    return estimate_collisions(
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        X,
        y,
        limit=False,
        random_state=0,
    )


def cells(quick: bool) -> list[Cell]:
    """Samples in groups, each a cell; fewer of the default, whose fits are long."""
    rows = {"A, K=3": 750, "A, K=5": 1250, "D": 3000}
    names = ["A, K=3"] if quick else list(PROBLEMS)
    plan = {
        method: (2, 1) if quick else (2, 5) if method == METHODS[-1] else (10, 3)
        for method in METHODS
    }
    return [
        {
            "problem": name,
            "method": method,
            "rows": rows[name],
            "samples": samples,
            "first_seed": samples * group,
        }
        | (
            {"members": ["linear"] if quick else "auto"}
            if method == METHODS[-1]
            else {}
        )
        for method in METHODS[::-1]
        for name in names[::-1]
        for samples, groups in [plan[method]]
        for group in range(groups)
    ]


STUDY = Study("calibration-of-intervals", "Coverage of nominal intervals", cells, run)
