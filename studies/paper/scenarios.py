"""Scenarios A, B and C and the posterior experiments: every method, with the truth known.

Most have smaller networks, fewer epochs and, in Scenario B, fewer rows than the paper; ``FULL`` has
the paper's own.
"""

from __future__ import annotations

import numpy as np

from collidescope.datasets import Problem
from collidescope.pairwise.printed import PrintedSettings, printed_fit
from studies.measures import tvd
from studies.paper import rows
from studies.paper.rows import FloatArray
from studies.reproduction.synthetic import PROBLEMS
from studies.store import Cell, Result

#: 500 epochs of 6 × 128, as the paper's appendix says.
FULL = {"hidden_layer_sizes": [128] * 6, "max_epochs": 500}
#: Steps ten times as long as 1e-4, so that 20,000 of them are worth 200,000.
SMALL = {
    "hidden_layer_sizes": [64, 64],
    "max_epochs": 60,
    "step_size": 1e-3,
    "tolerance": 2e-3,
    "max_steps": 20_000,
}
#: Samples of every problem.
SEEDS = range(10)

#: Kind and arguments, as JSON holds them.
Name = list[float | str]


def settings_of(cell: Cell) -> PrintedSettings:
    """The cell's settings as those of Algorithm 1."""
    given = dict(cell["settings"])
    given["hidden_layer_sizes"] = tuple(given["hidden_layer_sizes"])
    return PrintedSettings(**given)


def problem_of(cell: Cell) -> Problem:
    """Scenario A with K classes, Scenario B with its β, or K means on a line in d dimensions."""
    kind, *arguments = cell["problem"]
    return PROBLEMS[kind](*arguments)


def data_of(cell: Cell) -> rows.Data:
    """The cell's sample, and 1,000 new rows."""
    problem = problem_of(cell)
    X, codes = problem.sample(cell["rows"], cell["seed"])
    X_new, _ = problem.sample(1_000, 1_000_000 + cell["seed"])
    return rows.Data(X, codes, len(problem.priors), X_new)


def scored(cell: Cell, data: rows.Data, found: dict[str, rows.Row]) -> Result:
    """Errors of S and of the posteriors of the new rows, by method."""
    problem = problem_of(cell)
    truth = problem.collision_matrix().matrix
    y_new = problem.posteriors(data.X_new)
    result = {}
    for name, row in found.items():
        mean, largest = tvd(row.matrix, truth)
        scores = {"mean": mean, "max": largest, "seconds": round(row.seconds, 2)}
        scores["posterior"] = tvd(row.posteriors, y_new)[0]
        if row.descent is not None:
            scores["converged"] = row.descent.converged
            scores["gap"] = row.descent.gap
            scores["row_sum_error"] = float(np.abs(row.descent.row_sums - 1).max())
            scaled = tvd(stochastic(row.matrix), truth)
            scores["normalised"], scores["normalised_max"] = scaled
        result[name] = scores
    return result


def stochastic(S: FloatArray) -> FloatArray:
    """Clipped at 0 and scaled, which the paper does not do."""
    positive = np.maximum(S, 0.0)
    return positive / positive.sum(axis=1, keepdims=True)


def run(cell: Cell) -> Result:
    """Every method that trains a V, and a classifier, on one sample."""
    data = data_of(cell)
    settings = settings_of(cell)
    seed = cell["seed"]
    printed = rows.trained_verbatim(data, settings, seed)
    found = rows.read_verbatim(printed, settings)
    found |= rows.cross_fitted(data, settings, seed)
    found[rows.PLAIN] = rows.plain_network(data, settings, seed)
    G = printed.plain.gramian
    about = {
        "row_sum": float(G.sum(axis=1).mean()),
        "asymmetry": float(np.linalg.norm(G - G.T) / 2),
    }
    return scored(cell, data, found) | {"gramian": about}


def printed_run(cell: Cell) -> Result:
    """Algorithms 1, 2 and 3 as printed."""
    data = data_of(cell)
    settings = settings_of(cell)
    seed = cell["seed"]
    printed = rows.trained_verbatim(data, settings, seed)
    found = rows.read_verbatim(printed, settings)
    found[rows.PLAIN] = rows.plain_network(data, settings, seed)
    return scored(cell, data, found)


def validation_run(cell: Cell) -> Result:
    """``from_paper()``: Algorithm 2 compares with a tenth of the rows, which V has not seen."""
    data = data_of(cell)
    fit = printed_fit(
        data.X, data.codes, data.n_classes, settings_of(cell), cell["seed"]
    )
    row = rows.Row(fit.matrix, fit.posteriors(data.X_new), fit.descent)
    return scored(cell, data, {rows.PRINTED: row})


def held_out_run(cell: Cell) -> Result:
    """The cross-fitted methods alone."""
    data = data_of(cell)
    found = rows.cross_fitted(data, settings_of(cell), cell["seed"])
    return scored(cell, data, found)


def pool_run(cell: Cell) -> Result:
    """The package's default on the sample of another experiment."""
    data = data_of(cell)
    return scored(cell, data, {rows.OURS: rows.ours(data, cell["seed"])})


# ------------------------------------------------------------------------------------------
# samples


def cell_of(problem: Name, n: int, seed: int, settings: Cell) -> Cell:
    """The settings of one run."""
    return {"problem": problem, "rows": n, "seed": seed, "settings": settings}


def scenario_a_cells(settings: Cell) -> list[Cell]:
    """Scenario A (K = 3, 4, 5)."""
    return [
        cell_of(["A", k], 250 * k, seed, settings) for seed in SEEDS for k in (3, 4, 5)
    ]


def scenario_b_cell(beta: float, seed: int, n: int, settings: Cell) -> Cell:
    """Scenario B with so many rows; the paper has 50,000."""
    return cell_of(["B", beta], n, seed, settings | {"pairs_per_entry": 20_000})


def few_of_b(beta: float, seed: int, max_epochs: int = 60) -> Cell:
    """Scenario B with a twentieth of the paper's rows."""
    return scenario_b_cell(beta, seed, 2_500, SMALL | {"max_epochs": max_epochs})


def ablation_cells() -> list[Cell]:
    """Scenario A (K = 3, 4, 5) and B (β = .15)."""
    return [*scenario_a_cells(SMALL), *(few_of_b(0.15, seed) for seed in SEEDS)]


def overlap_cells() -> list[Cell]:
    """The two other overlaps of Scenario B, three samples."""
    return [few_of_b(beta, seed) for beta in (0.25, 0.35) for seed in range(3)]


def cost_cells() -> list[Cell]:
    """Scenario C: the error after few and after many epochs."""
    return [few_of_b(0.15, seed, epochs) for epochs in (5, 20, 100) for seed in SEEDS]


def posterior_cells(settings: Cell = SMALL) -> list[Cell]:
    """Figure 9B: means on a line, the same problem sampled anew, at three overlaps."""
    return [
        cell_of(["line", 4, 10, 3.0 * gap], 1_000, seed, settings)
        for gap in (1, 2, 3)
        for seed in SEEDS
    ]


def grid_cells(settings: Cell = SMALL) -> list[Cell]:
    """Figure 9A: classes × dimensions × distance of neighbours, one sample each."""
    cells = []
    for k in (3, 5):
        for d in (2, 10):
            for gap in (1, 2):
                problem: Name = ["line", k, d, float(gap * (k - 1))]
                cells.append(cell_of(problem, 250 * k, 0, settings))
    return cells


def architecture_cells() -> list[Cell]:
    """V with other hidden layers than the classifier has, Scenario A, K = 4, five samples."""
    cells = []
    for sizes in ([32, 32], [128, 128], [64] * 4):
        settings = SMALL | {"hidden_layer_sizes": sizes}
        cells += [cell_of(["A", 4], 1_000, seed, settings) for seed in range(5)]
    return cells


def printed_cells() -> list[Cell]:
    """The paper's own network, V and the classifier one by one on a processor: their times."""
    return [cell for cell in scenario_a_cells(FULL) if cell["seed"] < 5]


def pool_cells() -> list[Cell]:
    """Scenario B; the reproduction has the pool on the samples of A and of the posteriors."""
    return [{"problem": ["B", 0.15], "rows": 2_500, "seed": seed} for seed in SEEDS]
