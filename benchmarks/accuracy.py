"""How far is S from the truth? Every rival on the same samples, in one run.

The yardstick is the *oracle one-step* estimate: the one-step estimator with the true posteriors of the same sample. It
is no limit: mean(y yᵀ) with the true posteriors has less than half its error, and where many entries vouch for a
model's calibration its plug-in estimate is less noisy than labels. Rivals are cross-fitted with the same folds and
averaged over folds for new points, and S is estimated from their held-out posteriors by the one-step estimator and by
class averages (the paper's Algorithm 3). Problems of the second group lie outside the families of the pool's models.

    python -m benchmarks.accuracy --jobs 2 A3 A5        # some cases
    python -m benchmarks.accuracy --jobs 16             # what is missing of all of them
    python -m benchmarks.accuracy --alone B15 B25 B35   # without rivals, which would take hours
"""

from __future__ import annotations

import argparse
import os
from functools import partial
from typing import Any

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # one core a job: set before numpy and torch are loaded

import time

import numpy as np
from sklearn.base import clone
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    StackingClassifier,
)
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from benchmarks import _record
from collidescope import CollisionClassifier, collision_matrix_from_posteriors
from collidescope.datasets import (
    GaussianProblem,
    Problem,
    equidistant,
    imbalanced,
    ring,
    scenario_a,
    scenario_b,
)
from studies import known as datasets

TEST_ROWS = 5_000
ORACLE, OURS = "oracle one-step", "collidescope"


def fifty_classes() -> GaussianProblem:
    return GaussianProblem(1.5 * np.random.default_rng(0).standard_normal((50, 10)))


#: name → (title, problem, rows, seeds): problems with one Gaussian per class
INSIDE: dict[str, tuple[str, Any, int, int]] = {
    "A3": ("Scenario A, K=3", lambda: scenario_a(3), 750, 20),
    "A4": ("Scenario A, K=4", lambda: scenario_a(4), 1000, 20),
    "A5": ("Scenario A, K=5", lambda: scenario_a(5), 1250, 20),
    "B15": ("Scenario B, β=0.15", lambda: scenario_b(0.15), 10_000, 10),
    "B25": ("Scenario B, β=0.25", lambda: scenario_b(0.25), 10_000, 10),
    "B35": ("Scenario B, β=0.35", lambda: scenario_b(0.35), 10_000, 10),
    "D3": ("Scenario D, 3,000 rows", ring, 3_000, 10),
    "D10": ("Scenario D, 10,000 rows", ring, 10_000, 10),
    "I": ("Imbalance 100:1, K=4", lambda: imbalanced(4, 100, random_state=0), 4_000, 30),
    "K50": ("K=50, d=10", fifty_classes, 5_000, 10),
}
#: Problems outside that family: several Gaussians per class, networks, trees, waves, heavy tails, interactions.
OUTSIDE: dict[str, tuple[str, Any, int, int]] = {
    "tangled": ("tangled (three Gaussians per class)", datasets.tangled, 3_000, 10),
    "mlp": ("MLP teacher", datasets.mlp_teacher, 3_000, 10),
    "tree": ("tree teacher", datasets.tree_teacher, 3_000, 10),
    "waveform": ("waveform", datasets.waveform, 3_000, 10),
    "friedman": ("Friedman-like", datasets.friedman, 3_000, 10),
    "led": ("LED", datasets.led, 3_000, 10),
    "spiral": ("spiral", datasets.spiral, 3_000, 10),
    "heavy": ("heavy-tailed", datasets.heavy_tailed, 3_000, 10),
    "interactions": ("interactions", datasets.interactions, 3_000, 10),
    "words": ("sparse words", datasets.sparse_words, 3_000, 10),
}
CASES = INSIDE | OUTSIDE
#: name → (title, problem, rows, replicates): coverage of nominal 95% intervals from whole fits
COVERAGE: dict[str, tuple[str, Any, int, int]] = {
    "cover-A": ("Scenario A, K=3", lambda: scenario_a(3), 750, 64),
    "cover-B": ("Scenario B, β=0.15", lambda: scenario_b(0.15), 10_000, 16),
    "cover-D": ("Scenario D, 3,000 rows", ring, 3_000, 32),
}
#: name → (title, problem, rows, seeds): the literal paper beside its correction
PAPER: dict[str, tuple[str, Any, int, int]] = {
    "paper-3": ("K=3 (Scenario A)", lambda: scenario_a(3), 750, 3),
    "paper-5": ("K=5 (Scenario A)", lambda: scenario_a(5), 1250, 3),
    "paper-10": ("K=10 (equidistant)", lambda: equidistant(10, 4, 12.0, random_state=0), 2500, 3),
}


def tuned_stack() -> Any:
    """A careful user's answer: five models, three of them tuned by cross-validation, and a regression on top."""
    svc = GridSearchCV(
        make_pipeline(StandardScaler(), SVC(probability=True, random_state=0)),
        {"svc__C": [1, 10]},
        scoring="neg_log_loss",
        cv=2,
    )
    boosting = GridSearchCV(
        HistGradientBoostingClassifier(early_stopping=True, random_state=0),
        {"learning_rate": [0.03, 0.1], "max_leaf_nodes": [7, 31]},
        scoring="neg_log_loss",
        cv=2,
    )
    models = [
        (
            "logistic",
            make_pipeline(
                StandardScaler(), LogisticRegressionCV(Cs=5, cv=3, scoring="neg_log_loss")
            ),
        ),
        ("quadratic", QuadraticDiscriminantAnalysis(solver="eigen", shrinkage="auto")),
        ("trees", ExtraTreesClassifier(200, min_samples_leaf=3, random_state=0)),
        ("boosting", boosting),
        ("svc", svc),
    ]
    return StackingClassifier(
        models, LogisticRegression(C=0.1, max_iter=1000), stack_method="predict_proba", cv=2
    )


def rivals() -> dict[str, Any]:
    network = MLPClassifier(
        (128, 128), early_stopping=True, max_iter=200, n_iter_no_change=12, random_state=0
    )
    return {
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "quadratic discriminant": QuadraticDiscriminantAnalysis(solver="eigen", shrinkage="auto"),
        "network (early stopping)": make_pipeline(StandardScaler(), network),
        "gradient boosting": HistGradientBoostingClassifier(early_stopping=True, random_state=0),
        "tuned stack": tuned_stack(),
    }


#: Above so many rows or classes the tuned stack takes hours, and is left out.
STACK_ROWS, STACK_CLASSES = 5_000, 20


def tvd(S: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    rows = np.abs(S - truth).sum(axis=1) / 2
    return float(rows.mean()), float(rows.max())


def averages(P: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.stack([P[y == k].mean(axis=0) for k in np.unique(y)])


def crossfit(
    model: Any, X: np.ndarray, y: np.ndarray, X_test: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    held_out, new = np.empty((len(y), y.max() + 1)), np.zeros((len(X_test), y.max() + 1))
    for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(X, y):
        fold = clone(model).fit(X[train], y[train])
        held_out[test] = fold.predict_proba(X[test])
        new += fold.predict_proba(X_test) / 5
    return held_out, new


def one_run(case: str, seed: int, alone: bool = False) -> dict[str, Any]:
    _, make, n, _ = CASES[case]
    problem: Problem = make()
    truth = problem.collision_matrix().matrix
    X, y = problem.sample(n, seed)
    X_test, _ = problem.sample(TEST_ROWS, 1_000_000 + seed)
    Y_test = problem.posteriors(X_test)
    Y = problem.posteriors(X)
    out: dict[str, Any] = {
        ORACLE: {"S": tvd(collision_matrix_from_posteriors(Y, y).matrix, truth)},
        "oracle plug-in": {"S": tvd(collision_matrix_from_posteriors(Y).matrix, truth)},
    }
    start = time.perf_counter()
    clf = CollisionClassifier(device="cpu", random_state=seed).fit(X, y)
    seconds = time.perf_counter() - start
    ours: dict[str, Any] = {
        "S": tvd(clf.collision_matrix_.matrix, truth),
        "one-step": tvd(clf.one_step_.matrix, truth),
    }
    ours["gramian"] = tvd(clf.recovery_.matrix, truth)
    ours["averages"] = tvd(averages(clf.posteriors_, y), truth)
    if clf.limit_ is not None and clf.limit_.matrix is not None:
        ours["at the limit"] = tvd(clf.limit_.matrix.matrix, truth)
    out[OURS] = ours | {"posterior": tvd(clf.predict_proba(X_test), Y_test)[0], "seconds": seconds}
    for name, model in ({} if alone else rivals()).items():
        if name == "tuned stack" and (n > STACK_ROWS or len(truth) > STACK_CLASSES):
            continue
        start = time.perf_counter()
        P, new = crossfit(model, X, y, X_test)
        S = collision_matrix_from_posteriors(P, y).matrix
        row = {
            "S": tvd(S, truth),
            "averages": tvd(averages(P, y), truth),
            "posterior": tvd(new, Y_test)[0],
        }
        out[name] = row | {"seconds": time.perf_counter() - start}
    return out


def one_coverage(case: str, seed: int) -> dict[str, Any]:
    _, make, n, _ = COVERAGE[case]
    problem: Problem = make()
    truth = problem.collision_matrix()
    X, y = problem.sample(n, 5_000 + seed, stratified=False)
    cm = CollisionClassifier(device="cpu", random_state=seed).fit(X, y).collision_matrix_
    low, high = cm.interval()
    inside = (low <= truth.matrix) & (truth.matrix <= high)
    pber = cm.pber_interval()
    covered = bool(pber[0] <= truth.pber <= pber[1])
    return {"S": inside.mean(axis=1).tolist(), "PBER": covered, "width": float((high - low).mean())}


def one_paper(case: str, seed: int) -> dict[str, Any]:
    _, make, n, _ = PAPER[case]
    problem: Problem = make()
    truth = problem.collision_matrix().matrix
    X, y = problem.sample(n, seed)
    out: dict[str, Any] = {}
    literal = CollisionClassifier.from_paper(device="cpu", random_state=seed).fit(X, y)
    # The same trained folds with and without the shift: only the correction differs.
    shifted = CollisionClassifier.from_paper(
        correction="prior", device="cpu", random_state=seed
    ).fit(X, y)
    for name, clf in (("literal", literal), ("corrected", shifted)):
        sums = float(clf.gramian_.sum(axis=1).mean())
        out[name] = {"S": tvd(clf.collision_matrix_.matrix, truth), "gramian_row_sum": sums}
    stopped = CollisionClassifier(
        model="pairwise", estimate="gramian", priors="uniform", device="cpu", random_state=seed
    ).fit(X, y)
    out["pairwise, early-stopped, corrected"] = {"S": tvd(stopped.collision_matrix_.matrix, truth)}
    return out


KINDS = ((CASES, one_run), (COVERAGE, one_coverage), (PAPER, one_paper))
SIZES = {name: case[2] for cases, _ in KINDS for name, case in cases.items()}


def measure(case: str, seed: int, **options: bool) -> dict[str, Any]:
    run: Any = next(run for cases, run in KINDS if case in cases)
    return run(case, seed, **(options if run is one_run else {}))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", default=list(SIZES), help=f"of {', '.join(SIZES)}")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, help="fewer seeds than the case asks for")
    parser.add_argument("--record", default="accuracy", help="name of the file of results")
    parser.add_argument(
        "--alone", action="store_true", help="ours beside the oracle, where nothing is recorded yet"
    )
    parser.add_argument(
        "--again", action="store_true", help="ours once more, where the pool was another"
    )
    options = parser.parse_args()
    counts = {name: case[3] for cases, _ in KINDS for name, case in cases.items()}
    cells: list[_record.Cell] = [
        {"case": name, "seed": seed}
        for name in sorted(options.cases, key=lambda name: -SIZES[name])  # the longest first
        for seed in range(
            counts[name] if options.seeds is None else min(options.seeds, counts[name])
        )
    ]
    measured: Any = partial(measure, alone=True) if options.again else measure
    if options.alone:
        known = {
            (run["case"], run["seed"])
            for run in (_record.load(options.record) or {"results": []})["results"]
        }
        cells = [cell for cell in cells if tuple(cell.values()) not in known]
    if not options.again:
        cells = [
            cell | ({"alone": options.alone} if cell["case"] in CASES else {}) for cell in cells
        ]
    config = {"test_rows": TEST_ROWS}
    runs = _record.resume(
        options.record, config, cells, measured, options.jobs, again=options.again
    )
    for name in CASES:
        own = [run for run in runs if run["case"] == name]
        methods = [
            method for method in (OURS, *rivals()) if own and all(method in run for run in own)
        ]
        means = {
            method: np.mean([run[method]["S"][0] for run in own])
            for method in (ORACLE, *methods)
            if own
        }
        if own:
            ratios = [run[OURS]["S"][0] / run[ORACLE]["S"][0] for run in own]
            error = np.std(ratios, ddof=1) / np.sqrt(len(own)) if len(own) > 1 else np.nan
            print(
                f"{name}: " + ", ".join(f"{method} {mean:.4f}" for method, mean in means.items()),
                end="; ",
            )
            print(
                f"ours / oracle {means[OURS] / means[ORACLE]:.3f} (ratios ± {error:.3f}, {len(own)} samples)"
            )


if __name__ == "__main__":
    main()
