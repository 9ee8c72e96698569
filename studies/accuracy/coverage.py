"""How often do nominal 95% intervals hold the truth?

With few classes: true posteriors, wrong by O(n^-1/2), labels drawn afresh. With many: posteriors
whose logits are too large by a factor T; the PBER of the shrunk estimate, and the mean TVD of S of
one-step, of shrinkage towards the plug-in estimate as it comes ("unscaled") and towards the plug-in
estimate at the one-step PBER ("shrunk", what :func:`collidescope.onestep.shrink` does).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from collidescope import CollisionMatrix, collision_matrix_from_posteriors
from collidescope.datasets import (
    GaussianProblem,
    Problem,
    ring,
    scenario_a,
    scenario_b,
)
from collidescope.equations.projection import balance, project
from collidescope.equations.shrinkage import one_step_share, plug_in_and_one_step
from collidescope.onestep import one_step_and_moments, shrink
from studies.known import imbalanced
from studies.markdown import table
from studies.measures import tvd
from studies.store import Cell, Record, Result, Study

CASES: dict[str, tuple[Callable[[], Problem], int, str]] = {
    "Scenario A, K=3, n=750": (lambda: scenario_a(3), 750, "empirical"),
    "Scenario A, K=4, n=1,000": (lambda: scenario_a(4), 1000, "empirical"),
    "Scenario A, K=5, n=1,250": (lambda: scenario_a(5), 1250, "empirical"),
    "Scenario A, K=5, n=1,250, uniform priors": (
        lambda: scenario_a(5),
        1250,
        "uniform",
    ),
    "Scenario B, β=0.15, n=5,000": (lambda: scenario_b(0.15), 5000, "empirical"),
    "Scenario D, n=3,000": (ring, 3000, "empirical"),
    "Imbalanced 20:1, K=4, n=2,000": (
        lambda: imbalanced(4, 20, length=4, random_state=0),
        2000,
        "empirical",
    ),
}


def few_cells(quick: bool) -> list[Cell]:
    names = list(CASES)[:1] if quick else list(CASES)
    return [{"problem": name} | ({"replicates": 20} if quick else {}) for name in names]


def few_classes(cell: Cell) -> Result:
    make, n, priors = CASES[cell["problem"]]
    problem = make()
    truth = problem.collision_matrix()
    pair = truth.classes[:2].tolist()
    merged_truth = truth.merge([pair])
    rng = np.random.default_rng(0)
    entries, pber, merged = [], [], []
    for _ in range(cell.get("replicates", 1000)):
        X, y = problem.sample(n, rng, stratified=False)
        slopes = rng.standard_normal((X.shape[1], len(problem.priors)))
        P = problem.posteriors(X) * np.exp(X @ slopes / np.sqrt(n))
        P /= P.sum(axis=1, keepdims=True)
        cm = collision_matrix_from_posteriors(P, y, priors=priors)
        low, high = cm.pber_interval()
        entries.append(inside(cm, truth))
        pber.append(low <= truth.pber <= high)
        merged.append(inside(cm.merge([pair]), merged_truth))
    by_entry = np.mean(entries, axis=0)
    return {
        "S": float(by_entry.mean()),
        "worst_entry": float(by_entry.min()),
        "PBER": float(np.mean(pber)),
        "merged": float(np.mean(merged)),
    }


def inside(cm: CollisionMatrix, truth: CollisionMatrix) -> np.ndarray:
    """Which true entries of S lie in their intervals."""
    low, high = cm.interval()
    return (low <= truth.matrix) & (truth.matrix <= high)


def many_cells(quick: bool) -> list[Cell]:
    if quick:
        return [{"classes": 30, "replicates": 2}]
    return [{"classes": k} for k in (30, 50)]


def many_classes(cell: Cell) -> Result:
    """Coverage and errors by the factor T."""
    rng = np.random.default_rng(0)
    problem = GaussianProblem(rng.standard_normal((cell["classes"], 6)))
    X, _ = problem.sample(300_000, rng, stratified=False)
    Y = problem.posteriors(X)
    B = Y.T @ Y / len(X)
    found = {}
    for T in (1.0, 1.08, 1.15):
        replicates = range(cell.get("replicates", 400))
        rows = [sharpened(problem, B, T, rng) for _ in replicates]
        found[str(T)] = {
            name: float(np.mean([row[name] for row in rows])) for name in rows[0]
        }
        found[str(T)]["pber"] = float(1 - np.trace(B))
    return found


def sharpened(
    problem: GaussianProblem,
    B: np.ndarray,
    T: float,
    rng: np.random.Generator,
    n: int = 3000,
) -> dict[str, float]:
    """One sample: is the PBER covered, and how far are the three estimates of S?"""
    S = B / B.sum(axis=1, keepdims=True)
    pber = 1 - np.trace(B)
    X, y = problem.sample(n, rng, stratified=False)
    P = problem.posteriors(X) ** T
    P /= P.sum(axis=1, keepdims=True)
    one_step, moments = one_step_and_moments(P, y, None, np.arange(len(B)), None)
    plug_in, labels, variance = plug_in_and_one_step(moments)
    plug_in = balance(plug_in, one_step.priors)
    share = one_step_share(labels - plug_in, variance, one_step.priors)
    unscaled = project(plug_in + share * (labels - plug_in), one_step.priors).joint
    shrunk = shrink(one_step, moments)
    half = one_step.pber_interval()[1] - one_step.pber
    return {
        "covered": abs(shrunk.pber - pber) <= half,
        "covered_unscaled": abs(1 - np.trace(unscaled) - pber) <= half,
        "tvd_one_step": tvd(one_step.matrix, S)[0],
        "tvd_unscaled": tvd(unscaled / unscaled.sum(axis=1, keepdims=True), S)[0],
        "tvd_shrunk": tvd(shrunk.matrix, S)[0],
    }


def few_text(records: list[Record]) -> str:
    names = ("S", "worst_entry", "PBER", "merged")
    rows = []
    for record in records:
        shares = [f"{record['result'][name]:.1%}" for name in names]
        rows.append([record["cell"]["problem"], *shares])
    return f"""## The one-step estimator's intervals

With true posteriors made wrong by O(n^-1/2), 1,000 replicates:

{table(["problem", "entries of S", "worst entry", "PBER", "merged S"], rows)}"""


def many_text(records: list[Record]) -> str:
    rows = []
    for record in records:
        for T, found in record["result"].items():
            coverage = [
                f"{found[name]:.0%}" for name in ("covered", "covered_unscaled")
            ]
            names = ("tvd_one_step", "tvd_unscaled", "tvd_shrunk")
            errors = [f"{found[name]:.4f}" for name in names]
            size = str(record["cell"]["classes"])
            rows.append([size, T, f"{found['pber']:.3f}", *coverage, *errors])
    head = [
        "K",
        "T",
        "PBER",
        "covered",
        "unscaled",
        "TVD, one-step",
        "unscaled",
        "shrunk",
    ]
    return f"""## Shrinkage with many classes

True posteriors sharpened to the power T, 3,000 rows, 400 replicates: how often 95% intervals hold
the PBER, and the mean TVD of S.

{table(head, rows)}"""


STUDIES = (
    Study(
        "coverage-few-classes",
        "Coverage of 95% intervals",
        few_cells,
        few_classes,
        few_text,
    ),
    Study(
        "coverage-many-classes",
        "Coverage after shrinkage",
        many_cells,
        many_classes,
        many_text,
    ),
)
