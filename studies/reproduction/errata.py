"""Numbers behind docs/errata.md: each cell checks one statement of the paper, in seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from collidescope import (
    CollisionMatrix,
    collision_matrix_from_posteriors,
    posterior_error_bound,
    recover,
    solve_posteriors,
)
from collidescope.datasets import Problem, equidistant, scenario_a
from collidescope.equations.gramian import gramian_from_similarities
from studies.measures import tvd
from studies.store import Cell, Study


def run(cell: Cell) -> dict[str, Any]:
    """The numbers of one statement."""
    arguments = {name: value for name, value in cell.items() if name != "statement"}
    return STATEMENTS[cell["statement"]](**arguments)


def _problem(K: int) -> Problem:
    return scenario_a(K) if K <= 5 else equidistant(K, 4, 12.0, random_state=0)


def shift(K: int, rows: int) -> dict[str, Any]:
    """The best possible V for half same, half different pairs, taken for Sim as the paper does,
    and corrected."""
    problem = _problem(K)
    X, y = problem.sample(rows * K, 0)
    P = problem.posteriors(X)
    similarity = P @ P.T
    odds = (K - 1) * similarity / np.maximum(1 - similarity, 1e-12)
    found: dict[str, Any] = {}
    for name, V in {"literal": odds / (1 + odds), "corrected": similarity}.items():
        np.fill_diagonal(V, np.nan)
        q = np.stack([np.nanmean(V[:, y == k], axis=1) for k in range(K)], axis=1)
        G = gramian_from_similarities(q, y)
        S = recover(G).matrix
        found[name] = {
            "row_sum": float(G.sum(axis=1).mean()),
            "S": tvd(S, problem.collision_matrix().matrix),
        }
    return found


def dominance(K: int, count: int) -> dict[str, Any]:
    """Collision matrices that are not diagonally dominant, at unequal priors: is S still
    recovered from G?"""
    rng = np.random.default_rng(0)
    errors, factors = [], []
    while len(errors) < count:
        P = rng.dirichlet(np.full(K, 0.7), 400)
        B = P.T @ P / len(P)
        priors = B.sum(axis=1)
        S = B / priors[:, None]
        cm = CollisionMatrix(S, priors)
        if cm.is_diagonally_dominant:
            continue
        errors.append(float(np.abs(recover(S @ S.T, priors).matrix - S).max()))
        factors.append(cm.dominance_factor)
    return {"largest_error": max(errors), "smallest_dominance_factor": min(factors)}


def denominator(rows: int, K: int) -> dict[str, Any]:
    """Ordered pairs of distinct points of one class, as the paper counts them and as they are."""
    m = rows // K
    counted = sum(1 for i in range(m) for j in range(m) if i != j)
    return {"paper": m**2 - rows, "pairs": counted}


def lemma() -> dict[str, Any]:
    """A diagonally dominant S and an estimate of it for which the bound of the lemma fails."""
    S = np.array([[0.6, 0.4], [0.4, 0.6]])
    S_hat = np.array([[0.51, 0.49], [0.49, 0.51]])
    y = np.array([1.0, 0.0])
    q = S @ y
    bound = posterior_error_bound(S_hat, S, q, q)
    error = float(np.abs(np.linalg.solve(S_hat, q) - y).max())
    near = S + 0.2 * (S_hat - S)
    small = posterior_error_bound(near, S, q, q)
    small_error = float(np.abs(np.linalg.solve(near, q) - y).max())
    return {
        "error": error,
        "lemma": bound.lemma,
        "always_finite": bool(np.isfinite(bound.always)),
        "near": {"error": small_error, "lemma": small.lemma, "always": small.always},
    }


def solver(K: int, references: int, rows: int) -> dict[str, Any]:
    """Posteriors from similarities to few references: the inverse, least squares on the simplex,
    with a ridge."""
    problem = _problem(K)
    X, y = problem.sample(references * K, 1)
    X_new, _ = problem.sample(rows, 2)
    P, Y = problem.posteriors(X), problem.posteriors(X_new)
    S = problem.collision_matrix().matrix
    q = np.stack([(Y @ P[y == k].T).mean(axis=1) for k in range(K)], axis=1)
    found = {"inverse": solve_posteriors(q, S, solver="inverse"), "simplex": solve_posteriors(q, S)}
    found |= {
        f"simplex, ridge {ridge}": solve_posteriors(q, S, ridge=ridge) for ridge in (0.01, 0.1)
    }
    return {name: tvd(posterior, Y)[0] for name, posterior in found.items()}


def balance(K: int) -> dict[str, Any]:
    """Precision and recall of the probabilistic Bayes classifier: at the population's priors,
    and decided at others."""
    truth = _problem(K).collision_matrix()
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(K) * 0.5, 2000) @ truth.matrix
    skewed = collision_matrix_from_posteriors(P)
    natural = float(np.abs(skewed.precision() - skewed.recall()).max())
    population = np.arange(1, K + 1) / np.arange(1, K + 1).sum()
    decided = float(np.abs(truth.precision(population) - truth.recall()).max())
    return {"same_priors": natural, "decided_at_uniform": decided}


STATEMENTS: dict[str, Callable[..., dict[str, Any]]] = {
    "shift": shift,
    "dominance": dominance,
    "denominator": denominator,
    "lemma": lemma,
    "solver": solver,
    "balance": balance,
}


def cells(quick: bool) -> list[Cell]:
    """One statement each."""
    scale = 10 if quick else 1
    return [
        *({"statement": "shift", "K": K, "rows": 400 // scale} for K in (3, 5, 10)),
        *({"statement": "dominance", "K": K, "count": 50 // scale} for K in (3, 6, 12)),
        {"statement": "denominator", "rows": 1250, "K": 5},
        {"statement": "lemma"},
        *({"statement": "solver", "K": K, "references": 25, "rows": 2000 // scale} for K in (3, 5)),
        {"statement": "balance", "K": 5},
    ]


STUDY = Study("errata", "Statements of the paper, checked", cells, run)
