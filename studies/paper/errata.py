"""Statements of the paper, each checked by a function in seconds: numbers of docs/errata.md."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import RandomForestClassifier

from collidescope import (
    CollisionMatrix,
    collision_matrix_from_posteriors,
    posterior_error_bound,
    recover,
    solve_posteriors,
)
from collidescope.datasets import Problem, equidistant, scenario_a, scenario_b
from collidescope.equations.bounds import pac_bound
from collidescope.pairwise.printed import solve_printed, step_b, step_c
from studies.known import tangled
from studies.measures import tvd
from studies.paper.recovery import IdealContrast, parts_of
from studies.paper.rows import Shifted
from studies.store import Cell, Result

FloatArray = npt.NDArray[np.float64]


def problem_of(k: int) -> Problem:
    """Scenario A, and a line of means for more classes than it has."""
    if k <= 5:
        return scenario_a(k)
    return equidistant(k, 4, 12.0, random_state=0)


def shift(K: int) -> Result:
    """1: the best possible V, taken for Sim as the paper does, and with the logit shift."""
    problem = problem_of(K)
    truth = problem.collision_matrix().matrix
    found = {}
    ideal = IdealContrast()
    for name, V in {"literal": ideal, "corrected": Shifted(ideal, K)}.items():
        G = step_b(V, parts_of(problem, 400 * K, 0))
        root = recover(G).matrix
        descent = step_c(G, step_size=1e-3, max_steps=20_000).matrix
        found[name] = {
            "row_sum": float(G.sum(axis=1).mean()),
            "root": tvd(root, truth)[0],
            "descent": tvd(descent, truth)[0],
        }
    return found


def root(K: int) -> Result:
    """2: S from G in closed form, not dominant, at unequal priors; and how long it takes."""
    rng = np.random.default_rng(0)
    errors, factors = [], []
    while len(errors) < 20:
        P = rng.dirichlet(np.full(K, 0.7), 400)
        B = P.T @ P / len(P)
        priors = B.sum(axis=1)
        S = B / priors[:, None]
        cm = CollisionMatrix(S, priors)
        if not cm.is_diagonally_dominant:
            errors.append(float(np.abs(recover(S @ S.T, priors).matrix - S).max()))
            factors.append(cm.dominance_factor)
    truth = problem_of(K).collision_matrix().matrix
    G = truth @ truth.T
    started = time.perf_counter()
    recover(G)
    closed = time.perf_counter() - started
    started = time.perf_counter()
    descent = step_c(G, max_steps=50_000)
    seconds = time.perf_counter() - started
    return {
        "largest_error": max(errors),
        "smallest_factor": min(factors),
        "faster": seconds / closed,
        "descent_error": tvd(descent.matrix, truth)[0],
        "descent_converged": descent.converged,
    }


def denominator(n: int, K: int) -> Result:
    """3: ordered pairs of distinct points of one class, as the paper counts them and truly."""
    m = n // K
    counted = sum(1 for i in range(m) for j in range(m) if i != j)
    return {"paper": m**2 - n, "pairs": counted}


def lemma() -> Result:
    """4: a diagonally dominant S and an estimate of it for which the bound of the lemma fails."""
    S = np.array([[0.6, 0.4], [0.4, 0.6]])
    S_hat = np.array([[0.51, 0.49], [0.49, 0.51]])
    y = np.array([1.0, 0.0])
    q = S @ y
    near = S + 0.2 * (S_hat - S)
    far_bound = posterior_error_bound(S_hat, S, q, q)
    near_bound = posterior_error_bound(near, S, q, q)
    return {
        "error": float(np.abs(np.linalg.solve(S_hat, q) - y).max()),
        "lemma": far_bound.lemma,
        "near_error": float(np.abs(np.linalg.solve(near, q) - y).max()),
        "near_lemma": near_bound.lemma,
        "near_always": near_bound.always,
    }


def inverse(K: int) -> Result:
    """5: S⁻¹q from 25 references a class: with Ŝ of the same, of others, and the true S."""
    problem = problem_of(K)
    X_new, _ = problem.sample(2_000, 2)
    Y = problem.posteriors(X_new)
    truth = problem.collision_matrix().matrix
    sim = Shifted(IdealContrast(), K)
    errors: dict[str, list[float]] = {}
    for seed in range(5):
        parts = parts_of(problem, 25 * K, seed)
        others = parts_of(problem, 25 * K, 1_000 + seed)
        q = np.stack([(Y @ part.T).mean(axis=1) for part in parts], axis=1)
        same = np.array([part.mean(axis=0) for part in parts])
        different = np.array([part.mean(axis=0) for part in others])
        gramian = recover(step_b(sim, parts)).matrix
        for name, y in {
            "S of the same points": solve_printed(same, q),
            "S of other points": solve_printed(different, q),
            "the true S": solve_printed(truth, q),
            "root of G of the same points": solve_printed(gramian, q),
            "the true S, simplex": solve_posteriors(q, truth, ridge=0.01),
        }.items():
            errors.setdefault(name, []).append(tvd(y, Y)[0])
    return {name: [min(found), max(found)] for name, found in errors.items()}


def balance(K: int) -> Result:
    """6: precision and recall at the population's priors, and decided at uniform ones."""
    truth = problem_of(K).collision_matrix()
    drawn = np.random.default_rng(0).dirichlet(np.full(K, 0.5), 2_000)
    skewed = collision_matrix_from_posteriors(drawn @ truth.matrix)
    same = skewed.precision() - skewed.recall()
    rising = np.arange(1, K + 1)
    decided = truth.precision(rising / rising.sum()) - truth.recall()
    return {
        "same_priors": float(np.abs(same).max()),
        "decided_at_uniform": float(np.abs(decided).max()),
    }


def ignorance(n: int, new_rows: int = 20_000) -> Result:
    """9: a forest of n rows, scored on new ones: its estimate of B is B - E[δδᵀ], δ = p - y."""
    problem = tangled(4, 2, 4)
    X, y = problem.sample(n, 0)
    X_new, y_new = problem.sample(new_rows, 1)
    model = RandomForestClassifier(100, min_samples_leaf=2, random_state=0).fit(X, y)
    P = model.predict_proba(X_new)
    claimed = collision_matrix_from_posteriors(P, y_new, priors="uniform")
    Y = problem.posteriors(X_new)
    off = P - Y
    unlearned = off.T @ off / len(off)
    truth = problem.collision_matrix()
    difference = claimed.joint - truth.joint
    between = difference[~np.eye(len(difference), dtype=bool)]
    return {
        "claimed": claimed.pber,
        "truth": truth.pber,
        "predicted": truth.pber + float(np.trace(unlearned)),
        "largest_gap": float(np.abs(difference + unlearned).max()),
        "off_diagonal": [float(between.min()), float(between.max())],
    }


def divergence(mu: float) -> Result:
    """10: 1 - 2 S₁₂ is the triangular divergence, between TV² and TV, and between H² and 2H²."""
    x = np.linspace(-15, 15, 60_001)
    f = np.exp(-((x - mu) ** 2) / 2) / np.sqrt(2 * np.pi)
    g = f[::-1]
    dx = x[1] - x[0]
    collision = 1 - (2 * f * g / (f + g)).sum() * dx
    triangular = ((f - g) ** 2 / (f + g)).sum() * dx / 2
    variation = np.abs(f - g).sum() * dx / 2
    hellinger = 1 - np.sqrt(f * g).sum() * dx
    return {
        "collision": float(collision),
        "triangular": float(triangular),
        "variation": float(variation),
        "hellinger": float(hellinger),
    }


def product() -> Result:
    """11: S and L symmetric and strictly dominant, S⁻¹L not symmetric."""
    S = np.array([[0.8, 0.2, 0.0], [0.2, 0.7, 0.1], [0.0, 0.1, 0.9]])
    L = np.array([[0.9, 0.0, 0.1], [0.0, 0.8, 0.2], [0.1, 0.2, 0.7]])
    Q = np.linalg.solve(S, L)
    return {"asymmetry": float(np.abs(Q - Q.T).max())}


def pac(n: int, K: int) -> Result:
    """12: the paper's count of same-class pairs in Theorem 2, and the true one."""
    return {
        "printed": float(K / np.sqrt(n**2 - K**2 * n)),
        "counted": float(K / np.sqrt(n**2 - K * n)),
        "rows_needed": K**2,
    }


def rate(samples: int) -> Result:
    """13: the spread of the empirical risk (32) of a fixed V around R(V), as the rows grow.

    V is the minimiser of the risk, its loss cut at 3 as Theorem 2 asks; all pairs of n rows count.
    """
    problem, K = scenario_a(3), 3
    sizes = [30, 60, 120, 240, 480]
    spread = []
    for n in sizes:
        risks = [
            _empirical_risk(parts_of(problem, n, seed), K) for seed in range(samples)
        ]
        spread.append(float(np.std(risks)))
    slope = np.polyfit(np.log(sizes), np.log(spread), 1)[0]
    return {"rows": sizes, "spread": spread, "slope": float(slope)}


def _empirical_risk(
    parts: list[FloatArray], K: int, largest_loss: float = 3.0
) -> float:
    ideal = IdealContrast()
    same, different = [], []
    for i in range(K):
        for j in range(K):
            V = ideal.grid(parts[i], parts[j])
            if i == j:
                distinct = ~np.eye(len(V), dtype=bool)
                same.append(np.minimum(-np.log(V), largest_loss)[distinct].mean())
            else:
                different.append(np.minimum(-np.log(1 - V), largest_loss).mean())
    return float(np.mean(same) + np.mean(different))


def delta_term(n: int, samples: int = 2_000) -> Result:
    """13: how often the risk of one fixed V is off by more than the term with δ = .05 allows.

    Two classes; x is 1 with chance .85 in the first and .15 in the second, else 0; V says "same"
    where x = x', and the loss is 0 or 1. So counts of ones are all that (32) needs.
    """
    chance = np.array([0.85, 0.15])
    m = n // 2
    ones = np.random.default_rng(n).binomial(m, chance, (samples, 2))
    unequal = 2 * ones * (m - ones) / (m * (m - 1))
    rates = ones / m
    equal = rates.prod(axis=1) + (1 - rates).prod(axis=1)
    risk = unequal.mean(axis=1) + equal
    true_risk = (2 * chance * (1 - chance)).mean()
    true_risk += chance.prod() + (1 - chance).prod()
    away = np.abs(risk - true_risk)
    allowed = pac_bound(n, K=2, d=1, delta=0.05).confidence
    return {"allowed": allowed, "exceeded": float((away > allowed).mean())}


def precision() -> Result:
    """14: S alone bounds no classifier: a third of class 1 is certain, the rest as class 0."""
    share = np.array([0.9, 0.1])  # priors
    certain = 1 / 3
    odds = share[1] * (1 - certain) / (share[0] + share[1] * (1 - certain))
    recall = certain + (1 - certain) * odds
    wrong = share[0] * odds
    return {
        "probabilistic_precision": float(
            share[1] * recall / (share[1] * recall + wrong)
        ),
        "best_precision": 1.0,
        "at_recall": certain,
    }


def dominance() -> Result:
    """16: the paper's own scenarios are not diagonally dominant."""
    problems = {f"A, K = {k}": scenario_a(k) for k in (3, 4, 5)}
    problems |= {f"B, β = {beta}": scenario_b(beta) for beta in (0.15, 0.25, 0.35)}
    found = {}
    for name, problem in problems.items():
        cm = problem.collision_matrix()
        smallest = float(np.diag(cm.matrix).min())
        found[name] = {"factor": cm.dominance_factor, "smallest_diagonal": smallest}
    return found


def loop(corrected: bool) -> Result:
    """17: where the while loop of Algorithm 1 ends, and what its rows sum to there."""
    K = 3
    V = IdealContrast()
    G = step_b(Shifted(V, K) if corrected else V, parts_of(scenario_a(K), 250 * K, 0))
    found = {}
    for tolerance in (1e-2, 1e-3, 1e-4):
        descent = step_c(G, step_size=1e-3, tolerance=tolerance, max_steps=20_000)
        found[f"{tolerance:g}"] = {
            "converged": descent.converged,
            "steps": descent.steps,
            "row_sum": float(descent.row_sums.mean()),
        }
    return found


def norms(trials: int) -> Result:
    """18: Lemma 2 to first order, with ‖Ŝ - S‖ by elements, as its text says, and by row sums.

    As y sums to 1, ‖(Ŝ - S) y‖ is at most the largest element: the statement is true in the sense
    of the text too, though the proof is of the other. Largest error over bound in random trials
    with small errors of S.
    """
    rng = np.random.default_rng(0)
    ratios = {"element_wise": 0.0, "row_sums": 0.0}
    for _ in range(trials):
        K = int(rng.integers(2, 12))
        noise = rng.dirichlet(np.ones(K), K)
        S = (noise + 1.2 * np.eye(K)) / 2.2
        y = rng.dirichlet(np.full(K, 0.3))
        signs = rng.choice([-1.0, 1.0], (K, K))
        change = 1e-6 * signs
        uniform = np.full(K, 1 / K)
        factor = CollisionMatrix(S, uniform).dominance_factor
        kappa = 2 * (1 + factor) / (1 - factor)
        solved = np.linalg.solve(S + change, S @ y)
        error = np.abs(solved - y).max()
        sizes = np.abs(change)
        row_sums = sizes.sum(axis=1)
        largest = {"element_wise": sizes.max(), "row_sums": row_sums.max()}
        for name, size in largest.items():
            ratio = float(error / (kappa * size))
            ratios[name] = max(ratios[name], ratio)
    return ratios


STATEMENTS: dict[str, Callable[..., Result]] = {
    "shift": shift,
    "root": root,
    "denominator": denominator,
    "lemma": lemma,
    "inverse": inverse,
    "balance": balance,
    "ignorance": ignorance,
    "divergence": divergence,
    "product": product,
    "pac": pac,
    "rate": rate,
    "delta_term": delta_term,
    "precision": precision,
    "dominance": dominance,
    "loop": loop,
    "norms": norms,
}


def run(cell: Cell) -> Result:
    """The numbers of one statement."""
    return STATEMENTS[cell["statement"]](**cell["arguments"])


def cells() -> list[Cell]:
    """One statement each."""
    wanted: list[tuple[str, Cell]] = [
        *(("shift", {"K": K}) for K in (3, 5, 10)),
        *(("root", {"K": K}) for K in (3, 5, 10)),
        ("denominator", {"n": 1250, "K": 5}),
        ("lemma", {}),
        *(("inverse", {"K": K}) for K in (3, 5)),
        ("balance", {"K": 5}),
        *(("ignorance", {"n": n}) for n in (300, 1_200, 4_800)),
        *(("divergence", {"mu": mu}) for mu in (0.5, 1.0, 2.0)),
        ("product", {}),
        ("pac", {"n": 1250, "K": 5}),
        ("rate", {"samples": 100}),
        *(("delta_term", {"n": n}) for n in (100, 1_000, 10_000, 100_000)),
        ("precision", {}),
        ("dominance", {}),
        *(("loop", {"corrected": corrected}) for corrected in (False, True)),
        ("norms", {"trials": 2_000}),
    ]
    return [{"statement": name, "arguments": arguments} for name, arguments in wanted]
