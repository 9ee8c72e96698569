"""S from G: how λ, η, γ and the limit on steps change it, and how many pairs an entry of G needs.

No network is trained: V is the best possible one, computed from the true posteriors.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collidescope import recover
from collidescope.datasets import scenario_a
from collidescope.pairwise.printed import descent_direction, step_b
from studies.measures import tvd
from studies.paper.rows import Shifted
from studies.store import Cell, Result

FloatArray = npt.NDArray[np.float64]


class IdealContrast:
    """The minimiser of the risk (31), of rows that are posteriors: its odds are K - 1 times those of Sim."""

    def grid(self, A: FloatArray, B: FloatArray) -> FloatArray:
        return self._balanced(A @ B.T, A.shape[1])

    def pairs(self, A: FloatArray, B: FloatArray) -> FloatArray:
        return self._balanced((A * B).sum(axis=1), A.shape[1])

    def _balanced(self, similarity: FloatArray, k: int) -> FloatArray:
        same = (k - 1) * similarity
        return same / (same + 1 - similarity)


def sampled_parts(k: int, seed: int) -> list[FloatArray]:
    """True posteriors of the rows of each class, 250 a class as in Scenario A."""
    problem = scenario_a(k)
    X, y = problem.sample(250 * k, seed)
    P = problem.posteriors(X)
    return [P[y == c] for c in range(k)]


def sensitivity(cell: Cell) -> Result:
    """The descent from the Gramians of several samples at once, looked at after several numbers of steps."""
    k = cell["K"]
    ideal = IdealContrast()
    contrast = Shifted(ideal, k) if cell["corrected"] else ideal
    G = np.array(
        [step_b(contrast, sampled_parts(k, seed)) for seed in range(cell["samples"])]
    )
    truth = scenario_a(k).collision_matrix().matrix
    S = np.tile(np.eye(k), (len(G), 1, 1))
    done = np.zeros(len(G), dtype=bool)
    looks = {}
    for step in range(max(cell["looks"]) + 1):
        slope, gap = descent_direction(S, G, cell["penalty"])
        done |= gap <= cell["tolerance"]
        if step in cell["looks"]:
            errors = [tvd(each, truth)[0] for each in S]
            looks[str(step)] = {
                "mean": float(np.mean(errors)),
                "converged": float(done.mean()),
                "row_sum_error": float(np.abs(S.sum(axis=2) - 1).max()),
            }
        S = np.where(done[:, None, None], S, S - cell["step_size"] * slope)
    root = [tvd(recover(each).matrix, truth)[0] for each in G]
    return {"looks": looks, "root": float(np.mean(root))}


def sensitivity_cells(quick: bool) -> list[Cell]:
    """One setting changed at a time, around λ = .1, η = 1e-3, γ = 1e-4."""
    usual = {"penalty": 0.1, "step_size": 1e-3, "tolerance": 1e-4}
    changes: list[Cell] = [
        {},
        *({"penalty": penalty} for penalty in (0.0, 0.5, 1.0)),
        *({"step_size": size} for size in (1e-4, 1e-2)),
        *({"tolerance": tolerance} for tolerance in (1e-3, 1e-2)),
    ]
    looks = [5_000, 20_000] if quick else [5_000, 20_000, 50_000, 200_000]
    return [
        usual | change | {"K": k, "samples": 10, "corrected": corrected, "looks": looks}
        for k in (3, 4, 5)
        for corrected in (False, True)
        for change in changes
        if change == {} or k == 5
    ]


def pairs(cell: Cell) -> Result:
    """The error of S from m random pairs of one sample, and from all of its pairs (Sim known)."""
    k = cell["K"]
    truth = scenario_a(k).collision_matrix().matrix
    known = Shifted(IdealContrast(), k)
    errors: dict[str, list[float]] = {}
    from_all: list[float] = []
    for seed in range(cell["samples"]):
        parts = sampled_parts(k, seed)
        everything = recover(step_b(known, parts)).matrix
        for m in (*cell["m"], None):
            rng = np.random.default_rng(seed)
            S = (
                everything
                if m is None
                else recover(step_b(known, parts, m, rng)).matrix
            )
            name = "all" if m is None else str(m)
            errors.setdefault(name, []).append(tvd(S, truth)[0])
            if m == cell["m"][-1]:
                from_all.append(tvd(S, everything)[0])
    return {"errors": errors, "largest_m_from_all": float(np.mean(from_all))}


def pairs_cells(quick: bool) -> list[Cell]:
    """M from 50 to 20,000 pairs per entry, 62,500 are all."""
    m = [50, 200, 1_000, 5_000, 20_000]
    return [{"K": k, "samples": 100, "m": m} for k in (3, 5)]


def heuristic(cell: Cell) -> Result:
    """Unequal priors: descent from I (the paper's heuristic) and the root, from exact Gramians."""
    k, rng = cell["K"], np.random.default_rng(0)
    matrices, priors = [], []
    tilt = np.geomspace(cell["ratio"], 1, k)
    for _ in range(cell["samples"]):
        P = rng.dirichlet(0.5 * tilt / tilt.mean(), 400)
        B = P.T @ P / len(P)
        priors.append(B.sum(axis=1))
        matrices.append(B / B.sum(axis=1, keepdims=True))
    truth = np.array(matrices)
    G = truth @ truth.swapaxes(1, 2)
    S = np.tile(np.eye(k), (len(G), 1, 1))
    done = np.zeros(len(G), dtype=bool)
    for _ in range(cell["steps"]):
        slope, gap = descent_direction(S, G, 0.1)
        done |= gap <= 1e-3
        S = np.where(done[:, None, None], S, S - 1e-3 * slope)
    roots = [recover(g, p).matrix for g, p in zip(G, priors, strict=True)]
    return {
        "descent": float(
            np.mean([tvd(s, t)[0] for s, t in zip(S, truth, strict=True)])
        ),
        "root": float(
            np.mean([tvd(s, t)[0] for s, t in zip(roots, truth, strict=True)])
        ),
        "converged": float(done.mean()),
    }


def heuristic_cells(quick: bool) -> list[Cell]:
    """Random problems whose posteriors favour the first class."""
    return [
        {"K": k, "ratio": ratio, "samples": 20, "steps": 10_000 if quick else 100_000}
        for k in (3, 5)
        for ratio in (1, 3, 10)
    ]
