"""Scenarios A, B and C: S and posteriors by every method, with the truth known.

The quick size has smaller networks, fewer epochs and, in Scenario B, fewer rows than the paper; ``FULL`` has the
paper's own.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from collidescope.datasets import GaussianProblem, equidistant, scenario_a, scenario_b
from collidescope.pairwise.printed import PrintedSettings, step_a, step_b
from studies.paper import rows
from studies.store import Cell, Result

#: 500 epochs of 6 × 128, as the paper's appendix says.
FULL = {"hidden_layer_sizes": [128] * 6, "max_epochs": 500}
#: Steps ten times as long as 1e-4, so that 20,000 of them are worth 200,000.
QUICK = {
    "hidden_layer_sizes": [64, 64],
    "max_epochs": 60,
    "step_size": 1e-3,
    "tolerance": 2e-3,
    "max_steps": 20_000,
}


def settings_of(cell: Cell) -> PrintedSettings:
    """The cell's settings as those of Algorithm 1."""
    given = dict(cell["settings"])
    given["hidden_layer_sizes"] = tuple(given["hidden_layer_sizes"])
    return PrintedSettings(**given)


def problem_of(cell: Cell) -> GaussianProblem:
    """Scenario A with K classes, Scenario B with its β, or K means on a line of a length in d dimensions."""
    kind, *arguments = cell["problem"]
    makers = {"A": scenario_a, "B": scenario_b, "line": on_a_line}
    return makers[kind](*arguments)


def on_a_line(k: int, d: int, length: float) -> GaussianProblem:
    """The paper's posterior experiments."""
    return equidistant(k, d, length, random_state=0)


def run(cell: Cell) -> Result:
    """Errors of S and of the posteriors of 1,000 new rows, by every method on one sample."""
    problem = problem_of(cell)
    X, codes = problem.sample(cell["rows"], cell["seed"])
    X_new, _ = problem.sample(1_000, 1_000_000 + cell["seed"])
    data = rows.Data(X, codes, len(problem.priors), X_new)
    truth = problem.collision_matrix().matrix
    y_new = problem.posteriors(X_new)
    found = rows.all_rows(data, settings_of(cell), cell["seed"], cell["ours"])
    result = {}
    for name, row in found.items():
        mean, largest = rows.tvd(row.matrix, truth)
        scores = {"mean": mean, "max": largest, "seconds": round(row.seconds, 2)}
        if row.posteriors is not None:
            scores["posterior"] = rows.tvd(row.posteriors, y_new)[0]
        if row.descent is not None:
            scores["converged"] = row.descent.converged
            scores["row_sum_error"] = float(np.abs(row.descent.row_sums - 1).max())
        result[name] = scores
    return result


def ablation_cells(quick: bool) -> list[Cell]:
    """Ten samples of A (K = 3, 4, 5) and B (β = .15); ours on the first few when quick."""
    cells = []
    for seed in range(10):
        for k in (3, 4, 5):
            settings = QUICK if quick else FULL
            cells.append(
                cell_of(["A", k], 250 * k, seed, settings, not quick or seed < 5)
            )
        cells.append(scenario_b_cell(0.15, seed, quick, not quick or seed < 2))
    return cells


def cell_of(
    problem: list[float | str], n: int, seed: int, settings: Cell, ours: bool
) -> Cell:
    """The settings of one run."""
    return {
        "problem": problem,
        "rows": n,
        "seed": seed,
        "settings": settings,
        "ours": ours,
    }


def scenario_b_cell(
    beta: float, seed: int, quick: bool, ours: bool, max_epochs: int | None = None
) -> Cell:
    """Scenario B, with a twentieth of the paper's rows when quick."""
    settings = dict(QUICK if quick else FULL)
    settings["pairs_per_entry"] = 20_000
    if max_epochs is not None:
        settings["max_epochs"] = max_epochs
    n = 2_500 if quick else 50_000
    return cell_of(["B", beta], n, seed, settings, ours)


def printed_cells(quick: bool) -> list[Cell]:
    """The samples of the ablation, without ours."""
    return [cell | {"ours": False} for cell in ablation_cells(quick)]


def overlap_cells(quick: bool) -> list[Cell]:
    """The two other overlaps of Scenario B."""
    seeds = range(3 if quick else 8)
    return [
        scenario_b_cell(b, seed, quick, not quick)
        for b in (0.25, 0.35)
        for seed in seeds
    ]


def cost_cells(quick: bool) -> list[Cell]:
    """Scenario C: the error after few and after many epochs."""
    epochs = (5, 20, 100) if quick else (10, 50, 100, 250, 500)
    seeds = range(2 if quick else 5)
    return [
        scenario_b_cell(0.15, seed, quick, False, each)
        for each in epochs
        for seed in seeds
    ]


def posterior_cells(quick: bool) -> list[Cell]:
    """Means on a line, the same problem sampled anew, at three overlaps."""
    settings = QUICK if quick else FULL
    return [
        cell_of(
            ["line", 4, 10, 3.0 * gap], 1_000, seed, settings, not quick or seed < 2
        )
        for gap in (1, 2, 3)
        for seed in range(5 if quick else 10)
    ]


def printed_run(cell: Cell) -> Result:
    """As printed, with the rows of S as the descent leaves them and made to sum to 1; training alone is timed."""
    problem = problem_of(cell)
    X, codes = problem.sample(cell["rows"], cell["seed"])
    data = rows.Data(X, codes, len(problem.priors), X[:1])
    truth = problem.collision_matrix().matrix
    settings = settings_of(cell)
    started = time.perf_counter()
    V = step_a(X, codes, settings, cell["seed"])
    training = time.perf_counter() - started
    rng = np.random.default_rng(cell["seed"])
    G = step_b(V, data.by_class(), settings.pairs_per_entry, rng)
    result: Result = {
        "training_seconds": training,
        "classifier_seconds": rows.plain_network(data, settings, cell["seed"]).seconds,
        "gramian_row_sum": float(G.sum(axis=1).mean()),
        "asymmetry": float(np.linalg.norm(G - G.T) / 2),
    }
    for name, steps in {
        "early": settings.max_steps // 4,
        "late": settings.max_steps,
    }.items():
        descent = rows.descend(G, replace(settings, max_steps=steps))
        positive = np.maximum(descent.matrix, 0.0)
        normalised = positive / positive.sum(axis=1, keepdims=True)
        result[name] = {
            "raw": rows.tvd(descent.matrix, truth)[0],
            "normalised": rows.tvd(normalised, truth)[0],
            "normalised_max": rows.tvd(normalised, truth)[1],
            "gap": descent.gap,
        }
    return result
