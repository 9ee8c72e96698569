"""How close to the statistical limit? Every rival on the same samples, in one run.

The limit is the one-step estimator with the *true* posteriors of the same sample: no method that has to learn them can
be expected to beat it. Rivals are cross-fitted with the same folds and averaged over folds for new points, and S is
estimated from their held-out posteriors by the one-step estimator and by class averages (the paper's Algorithm 3).

    python -m benchmarks.accuracy --jobs 2 A3 A5        # some cases
    python -m benchmarks.accuracy --jobs 16             # all of them
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one core a job: set before numpy and torch are loaded

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks._record import RESULTS
from collidescope import CollisionClassifier, collision_matrix_from_posteriors
from collidescope._environment import environment
from collidescope.datasets import GaussianProblem, Problem, equidistant, imbalanced, ring, scenario_a, scenario_b

TEST_ROWS = 5_000


def fifty_classes() -> GaussianProblem:
    return GaussianProblem(1.5 * np.random.default_rng(0).standard_normal((50, 10)))


#: name → (title, problem, rows, seeds)
CASES: dict[str, tuple[str, Any, int, int]] = {
    "A3": ("Scenario A, K=3", lambda: scenario_a(3), 750, 30),
    "A4": ("Scenario A, K=4", lambda: scenario_a(4), 1000, 30),
    "A5": ("Scenario A, K=5", lambda: scenario_a(5), 1250, 30),
    "B15": ("Scenario B, β=0.15", lambda: scenario_b(0.15), 50_000, 3),
    "B25": ("Scenario B, β=0.25", lambda: scenario_b(0.25), 50_000, 3),
    "B35": ("Scenario B, β=0.35", lambda: scenario_b(0.35), 50_000, 14),
    "D3": ("Scenario D, 3,000 rows", ring, 3_000, 12),
    "D30": ("Scenario D, 30,000 rows", ring, 30_000, 4),
    "I": ("Imbalance 100:1, K=4", lambda: imbalanced(4, 100, random_state=0), 4_000, 12),
    "K50": ("K=50, d=10", fifty_classes, 5_000, 6),
}
#: name → (title, problem, rows, replicates): coverage of nominal 95% intervals from whole fits
COVERAGE: dict[str, tuple[str, Any, int, int]] = {
    "cover-A": ("Scenario A, K=3", lambda: scenario_a(3), 750, 128),
    "cover-B": ("Scenario B, β=0.15", lambda: scenario_b(0.15), 50_000, 8),
    "cover-D": ("Scenario D, 3,000 rows", ring, 3_000, 48),
}
#: name → (title, problem, rows, seeds): the literal paper beside its correction
PAPER: dict[str, tuple[str, Any, int, int]] = {
    "paper-3": ("K=3 (Scenario A)", lambda: scenario_a(3), 750, 3),
    "paper-5": ("K=5 (Scenario A)", lambda: scenario_a(5), 1250, 3),
    "paper-10": ("K=10 (equidistant)", lambda: equidistant(10, 4, 12.0, random_state=0), 2500, 3),
}


def rivals() -> dict[str, Any]:
    network = MLPClassifier((128, 128), early_stopping=True, max_iter=200, n_iter_no_change=12, random_state=0)
    return {
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "network (early stopping)": make_pipeline(StandardScaler(), network),
        "gradient boosting": HistGradientBoostingClassifier(early_stopping=True, random_state=0),
    }


def tvd(S: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    rows = np.abs(S - truth).sum(axis=1) / 2
    return float(rows.mean()), float(rows.max())


def averages(P: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.stack([P[y == k].mean(axis=0) for k in np.unique(y)])


def crossfit(model: Any, X: np.ndarray, y: np.ndarray, X_test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    held_out, new = np.empty((len(y), y.max() + 1)), np.zeros((len(X_test), y.max() + 1))
    for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(X, y):
        fold = clone(model).fit(X[train], y[train])
        held_out[test] = fold.predict_proba(X[test])
        new += fold.predict_proba(X_test) / 5
    return held_out, new


def one_run(case: str, seed: int) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    _, make, n, _ = CASES[case]
    problem: Problem = make()
    truth = problem.collision_matrix().matrix
    X, y = problem.sample(n, seed)
    X_test, _ = problem.sample(TEST_ROWS, 1_000_000 + seed)
    Y_test = problem.posteriors(X_test)
    limit = collision_matrix_from_posteriors(problem.posteriors(X), y)
    out: dict[str, Any] = {"case": case, "seed": seed, "limit": {"S": tvd(limit.matrix, truth)}}
    start = time.perf_counter()
    clf = CollisionClassifier(device="cpu", random_state=seed).fit(X, y)
    seconds = time.perf_counter() - start
    ours = {"S": tvd(clf.collision_matrix_.matrix, truth), "one-step": tvd(clf.one_step_.matrix, truth)}
    ours["gramian"] = tvd(clf.recovery_.matrix, truth)
    ours["averages"] = tvd(averages(clf.posteriors_, y), truth)
    out["collidescope"] = ours | {"posterior": tvd(clf.predict_proba(X_test), Y_test)[0], "seconds": seconds}
    for name, model in rivals().items():
        start = time.perf_counter()
        P, new = crossfit(model, X, y, X_test)
        S = collision_matrix_from_posteriors(P, y).matrix
        row = {"S": tvd(S, truth), "averages": tvd(averages(P, y), truth), "posterior": tvd(new, Y_test)[0]}
        out[name] = row | {"seconds": time.perf_counter() - start}
    return out


def one_coverage(case: str, seed: int) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    _, make, n, _ = COVERAGE[case]
    problem: Problem = make()
    truth = problem.collision_matrix()
    X, y = problem.sample(n, 5_000 + seed, stratified=False)
    cm = CollisionClassifier(device="cpu", random_state=seed).fit(X, y).collision_matrix_
    low, high = cm.interval()
    inside = (low <= truth.matrix) & (truth.matrix <= high)
    pber = cm.pber_interval()
    covered = bool(pber[0] <= truth.pber <= pber[1])
    return {
        "case": case,
        "seed": seed,
        "S": inside.mean(axis=1).tolist(),
        "PBER": covered,
        "width": float((high - low).mean()),
    }


def one_paper(case: str, seed: int) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    _, make, n, _ = PAPER[case]
    problem: Problem = make()
    truth = problem.collision_matrix().matrix
    X, y = problem.sample(n, seed)
    out: dict[str, Any] = {"case": case, "seed": seed}
    literal = CollisionClassifier.from_paper(device="cpu", random_state=seed).fit(X, y)
    # The same trained folds with and without the shift: only the correction differs.
    shifted = CollisionClassifier.from_paper(correction="prior", device="cpu", random_state=seed).fit(X, y)
    for name, clf in (("literal", literal), ("corrected", shifted)):
        sums = float(clf.gramian_.sum(axis=1).mean())
        out[name] = {"S": tvd(clf.collision_matrix_.matrix, truth), "gramian_row_sum": sums}
    stopped = CollisionClassifier(
        model="pairwise", estimate="gramian", priors="uniform", device="cpu", random_state=seed
    ).fit(X, y)
    out["pairwise, early-stopped, corrected"] = {"S": tvd(stopped.collision_matrix_.matrix, truth)}
    return out


KINDS = ((CASES, one_run), (COVERAGE, one_coverage), (PAPER, one_paper))


def main() -> None:
    everything = [name for cases, _ in KINDS for name in cases]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=everything, help=f"of {', '.join(everything)}")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, help="fewer seeds than the case asks for")
    options = parser.parse_args()
    work = []
    for name in options.cases:
        cases, run = next((cases, run) for cases, run in KINDS if name in cases)
        count = cases[name][3] if options.seeds is None else min(options.seeds, cases[name][3])
        work += [(run, name, seed) for seed in range(count)]
    work.sort(key=lambda item: -dict(CASES | COVERAGE | PAPER)[item[1]][2])  # the longest first
    path = RESULTS / "accuracy.json"
    stored = json.loads(path.read_text()) if path.exists() else {}
    done: dict[str, list[Any]] = {}
    start = time.perf_counter()
    runs = Parallel(n_jobs=options.jobs, return_as="generator_unordered")(
        delayed(run)(name, s) for run, name, s in work
    )
    for number, row in enumerate(runs, start=1):
        done.setdefault(row["case"], []).append(row)
        elapsed = time.perf_counter() - start
        print(f"{number}/{len(work)} {row['case']} seed {row['seed']}: {elapsed:.0f} s", flush=True)
        for name, rows in done.items():
            stored[name] = {"environment": environment(), "runs": sorted(rows, key=lambda r: r["seed"])}
        RESULTS.mkdir(exist_ok=True)
        path.write_text(json.dumps(stored, indent=1) + "\n")
    summary(stored)


def summary(stored: dict[str, Any]) -> None:
    """Ratios to the limit, in the terminal (tables.py writes them for people)."""
    for name, kept in stored.items():
        runs = kept["runs"]
        if name in CASES:
            base = np.mean([r["limit"]["S"] for r in runs], axis=0)
            print(f"{name}: {len(runs)} seeds, limit {base[0]:.4f}")
            for method in ["collidescope", *rivals()]:
                ratio = np.mean([r[method]["S"] for r in runs], axis=0) / base
                post = np.mean([r[method]["posterior"] for r in runs])
                print(f"   {method:<26} S {ratio[0]:.3f} max {ratio[1]:.3f} posterior {post:.4f}")
        elif name in COVERAGE:
            print(f"{name}: S {np.mean([r['S'] for r in runs]):.3f} PBER {np.mean([r['PBER'] for r in runs]):.3f}")
        else:
            parts = {m: np.mean([r[m]["S"][0] for r in runs]) for m in runs[0] if m not in ("case", "seed")}
            print(name, {m: round(float(v), 4) for m, v in parts.items()})


if __name__ == "__main__":
    main()
