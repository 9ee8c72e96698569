"""S from G: how λ, η, γ and the limit on steps change it, and how many pairs an entry of G needs.

No network is trained: V is the best possible one, computed from the true posteriors.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collidescope import recover
from collidescope.datasets import Problem, scenario_a
from collidescope.pairwise.printed import Contrast, descent_direction, step_b
from studies.measures import tvd
from studies.paper.rows import Shifted
from studies.store import Cell, Result

FloatArray = npt.NDArray[np.float64]


class IdealContrast:
    """The minimiser of the risk (31) on rows that are posteriors: K - 1 times the odds of Sim."""

    def grid(self, A: FloatArray, B: FloatArray) -> FloatArray:
        return self._balanced(A @ B.T, A.shape[1])

    def pairs(self, A: FloatArray, B: FloatArray) -> FloatArray:
        return self._balanced((A * B).sum(axis=1), A.shape[1])

    def _balanced(self, similarity: FloatArray, k: int) -> FloatArray:
        same = (k - 1) * similarity
        return same / (same + 1 - similarity)


def parts_of(problem: Problem, n: int, seed: int) -> list[FloatArray]:
    """True posteriors of sampled rows, class by class."""
    X, y = problem.sample(n, seed)
    P = problem.posteriors(X)
    return [P[y == c] for c in range(len(problem.priors))]


def sampled_parts(k: int, seed: int) -> list[FloatArray]:
    """Scenario A with its 250 rows a class."""
    return parts_of(scenario_a(k), 250 * k, seed)


class Descents:
    """The descent of Algorithm 1 from the identity, on several Gramians (n, K, K) at once."""

    def __init__(
        self, G: FloatArray, penalty: float, step_size: float, tolerance: float
    ) -> None:
        n, k, _ = G.shape
        self.G = G
        self.penalty = penalty
        self.step_size = step_size
        self.tolerance = tolerance
        self.S = np.tile(np.eye(k), (n, 1, 1))
        self.done = np.zeros(n, dtype=bool)
        self.steps = 0

    def until(self, steps: int) -> None:
        """Go on to so many steps in all; a descent whose gap is small enough stays."""
        while self.steps < steps:
            slope = self.look()
            further = self.S - self.step_size * slope
            self.S = np.where(self.done[:, None, None], self.S, further)
            self.steps += 1

    def look(self) -> FloatArray:
        """The slope; marks what has ended."""
        slope, gap = descent_direction(self.S, self.G, self.penalty)
        self.done |= gap <= self.tolerance
        return slope

    def error(self, truth: FloatArray) -> float:
        """Mean TVD, of one truth or of one for each."""
        every = np.broadcast_to(truth, self.S.shape)
        pairs = zip(self.S, every, strict=True)
        return float(np.mean([tvd(S, true)[0] for S, true in pairs]))


def sensitivity(cell: Cell) -> Result:
    """The descent from the Gramians of several samples, after several numbers of steps."""
    k = cell["K"]
    contrast: Contrast = IdealContrast()
    if cell["corrected"]:
        contrast = Shifted(contrast, k)
    samples = range(cell["samples"])
    G = np.array([step_b(contrast, sampled_parts(k, seed)) for seed in samples])
    truth = scenario_a(k).collision_matrix().matrix
    names = ("penalty", "step_size", "tolerance")
    descents = Descents(G, **{name: cell[name] for name in names})
    looks = {}
    for steps in cell["looks"]:
        descents.until(steps)
        descents.look()
        row_sums = descents.S.sum(axis=2)
        looks[str(steps)] = {
            "mean": descents.error(truth),
            "converged": float(descents.done.mean()),
            "row_sum_error": float(np.abs(row_sums - 1).max()),
        }
    root = [tvd(recover(each).matrix, truth)[0] for each in G]
    return {"looks": looks, "root": float(np.mean(root))}


def sensitivity_cells() -> list[Cell]:
    """One setting changed at a time, around λ = .1, η = 1e-3, γ = 1e-4."""
    usual = {"penalty": 0.1, "step_size": 1e-3, "tolerance": 1e-4}
    changes: list[Cell] = [
        {},
        *({"penalty": penalty} for penalty in (0.0, 0.5, 1.0)),
        *({"step_size": size} for size in (1e-4, 1e-2)),
        *({"tolerance": tolerance} for tolerance in (1e-3, 1e-2)),
    ]
    looks = [5_000, 20_000]
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
    errors: dict[str, list[float]] = {str(m): [] for m in cell["m"]}
    errors["all"] = []
    for seed in range(cell["samples"]):
        parts = sampled_parts(k, seed)
        everything = recover(step_b(known, parts)).matrix
        for m in cell["m"]:
            rng = np.random.default_rng(seed)
            S = recover(step_b(known, parts, m, rng)).matrix
            errors[str(m)].append(tvd(S, truth)[0])
        errors["all"].append(tvd(everything, truth)[0])
    return {"errors": errors}


def pairs_cells() -> list[Cell]:
    """M from 50 to 20,000 pairs per entry, 62,500 are all."""
    m = [50, 200, 1_000, 5_000, 20_000]
    return [{"K": k, "samples": 100, "m": m} for k in (3, 5)]


def heuristic(cell: Cell) -> Result:
    """Unequal priors: descent from I (the paper's heuristic) and the root, from exact Gramians."""
    k = cell["K"]
    rng = np.random.default_rng(0)
    tilt = np.geomspace(cell["ratio"], 1, k)
    favour = 0.5 * tilt / tilt.mean()
    matrices = []
    roots = []
    for _ in range(cell["samples"]):
        P = rng.dirichlet(favour, 400)
        B = P.T @ P / len(P)
        priors = B.sum(axis=1)
        S = B / priors[:, None]
        matrices.append(S)
        roots.append(tvd(recover(S @ S.T, priors).matrix, S)[0])
    truth = np.array(matrices)
    G = truth @ truth.swapaxes(1, 2)
    descents = Descents(G, penalty=0.1, step_size=1e-3, tolerance=1e-3)
    descents.until(cell["steps"])
    return {
        "descent": descents.error(truth),
        "root": float(np.mean(roots)),
        "converged": float(descents.done.mean()),
    }


def heuristic_cells() -> list[Cell]:
    """Random problems whose posteriors favour the first class."""
    return [
        {"K": k, "ratio": ratio, "samples": 20, "steps": 10_000}
        for k in (3, 5)
        for ratio in (1, 3, 10)
    ]
