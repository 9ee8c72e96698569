"""How far is S from the truth? Every rival on the same samples, in one run.

The yardstick is the *oracle one-step* estimate: the one-step estimator with the true posteriors of
the same sample. It is no limit: mean(y yᵀ) with the true posteriors has less than half its error,
and where many entries vouch for a model's calibration its plug-in estimate is less noisy than
labels. Rivals are cross-fitted with the same folds and averaged over folds for new points, and S is
estimated from their held-out posteriors by the one-step estimator and by class averages (the
paper's Algorithm 3). Problems of the second group lie outside the families of the pool's models.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from collidescope import CollisionClassifier, collision_matrix_from_posteriors
from collidescope.datasets import (
    GaussianProblem,
    Problem,
    ring,
    scenario_a,
    scenario_b,
)
from studies import known as datasets
from studies.baselines import class_averages
from studies.baselines.stock import held_out_posteriors, usual_rivals
from studies.known import imbalanced
from studies.markdown import again, table
from studies.measures import Array, clear_best, mean_error, tvd
from studies.store import Cell, Record, Result, Study, flat

TEST_ROWS = 5_000
ORACLE = "oracle one-step"
OURS = "collidescope"
Runs = list[Result]
Measure = Callable[[Result], float]


class Case(NamedTuple):
    """A problem, how many rows are drawn of it, and how many samples with and without rivals."""

    title: str
    problem: Callable[[], Problem]
    rows: int
    seeds: int = 10
    alone: int = 0


def fifty_classes() -> GaussianProblem:
    return GaussianProblem(1.5 * np.random.default_rng(0).standard_normal((50, 10)))


def skewed() -> Problem:
    return imbalanced(4, 100, random_state=0)


#: One Gaussian per class. Where rivals would take hours, all samples are ours alone.
INSIDE = {
    "A3": Case("Scenario A, K=3", lambda: scenario_a(3), 750),
    "A4": Case("Scenario A, K=4", lambda: scenario_a(4), 1000),
    "A5": Case("Scenario A, K=5", lambda: scenario_a(5), 1250),
    "B15": Case("Scenario B, β=0.15", lambda: scenario_b(0.15), 10_000, 0, 10),
    "B25": Case("Scenario B, β=0.25", lambda: scenario_b(0.25), 10_000, 0, 10),
    "B35": Case("Scenario B, β=0.35", lambda: scenario_b(0.35), 10_000, 0, 10),
    "D3": Case("Scenario D, 3,000 rows", ring, 3_000),
    "D10": Case("Scenario D, 10,000 rows", ring, 10_000, 0, 10),
    "I": Case("Imbalance 100:1, K=4", skewed, 4_000, 10, 20),
    "K50": Case("K=50, d=10", fifty_classes, 5_000),
}
#: Outside that family: several Gaussians per class, networks, trees, waves, heavy tails.
OUTSIDE = {
    "tangled": Case("tangled (three Gaussians per class)", datasets.tangled, 3_000),
    "mlp": Case("MLP teacher", datasets.mlp_teacher, 3_000),
    "tree": Case("tree teacher", datasets.tree_teacher, 3_000),
    "waveform": Case("waveform", datasets.waveform, 3_000),
    "friedman": Case("Friedman-like", datasets.friedman, 3_000),
    "led": Case("LED", datasets.led, 3_000),
    "spiral": Case("spiral", datasets.spiral, 3_000),
    "heavy": Case("heavy-tailed", datasets.heavy_tailed, 3_000),
    "interactions": Case("interactions", datasets.interactions, 3_000),
    "words": Case("sparse words", datasets.sparse_words, 3_000),
}
CASES = INSIDE | OUTSIDE


def cells(quick: bool) -> list[Cell]:
    """Every case and seed, the longest first."""
    if quick:
        return [{"case": "A3", "seed": 0, "alone": True}]
    return [
        {"case": name, "seed": seed, "alone": seed >= case.seeds}
        for name, case in sorted(CASES.items(), key=lambda item: -item[1].rows)
        for seed in range(case.seeds + case.alone)
    ]


def run(cell: Cell) -> Result:
    return errors(CASES[cell["case"]], cell["seed"], cell["alone"])


def errors(case: Case, seed: int, alone: bool) -> Result:
    """Distances of every estimate of S, and of the posteriors of new rows, to the truth."""
    problem = case.problem()
    truth = problem.collision_matrix().matrix
    X, y = problem.sample(case.rows, seed)
    X_test, _ = problem.sample(TEST_ROWS, 1_000_000 + seed)
    Y_test = problem.posteriors(X_test)
    Y = problem.posteriors(X)

    def one_step(P: Array, y: Array | None) -> list[float]:
        return tvd(collision_matrix_from_posteriors(P, y).matrix, truth)

    found = {
        ORACLE: {"S": one_step(Y, y)},
        "oracle plug-in": {"S": one_step(Y, None)},
    }
    start = time.perf_counter()
    clf = CollisionClassifier(device="cpu", random_state=seed).fit(X, y)
    seconds = time.perf_counter() - start
    found[OURS] = {
        "S": tvd(clf.collision_matrix_.matrix, truth),
        "one-step": tvd(clf.one_step_.matrix, truth),
        "gramian": tvd(clf.recovery_.matrix, truth),
        "averages": tvd(class_averages(clf.posteriors_, y).matrix, truth),
        "posterior": tvd(clf.predict_proba(X_test), Y_test)[0],
        "seconds": seconds,
    }
    if clf.limit_ is not None and clf.limit_.matrix is not None:
        found[OURS]["at the limit"] = tvd(clf.limit_.matrix.matrix, truth)
    if alone:
        return found
    for name, model in usual_rivals().items():
        # Beyond these sizes the tuned stack takes hours.
        if name == "tuned stack" and (case.rows > 5_000 or len(truth) > 20):
            continue
        start = time.perf_counter()
        P, new = held_out_posteriors(model, X, y, X_test)
        found[name] = {
            "S": one_step(P, y),
            "averages": tvd(class_averages(P, y).matrix, truth),
            "posterior": tvd(new, Y_test)[0],
            "seconds": time.perf_counter() - start,
        }
    return found


# ---------------------------------------------------------------- tables


def of_case(runs: Runs, case: str) -> Runs:
    own = [run for run in runs if run["case"] == case]
    return sorted(own, key=lambda run: run["seed"])


def accuracy_table(runs: Runs, cases: Iterable[str], measure: Measure) -> str:
    """One row per problem: the oracle's error, and every method's as a multiple of it."""
    methods = [OURS, *usual_rivals()]
    rows = []
    for case in cases:
        own = [run for run in of_case(runs, case) if not run["alone"]]
        if own:
            base = np.mean([measure(run[ORACLE]) for run in own])
            shown = scores_of(own, methods, measure, base, digits=2)
            rows.append([*sizes_of(case, own), f"{base:.4f}", *shown])
    return table(["problem", "rows", "seeds", ORACLE, *methods], rows)


def posterior_table(runs: Runs) -> str:
    """One row per problem: every method's distance to the true posteriors."""

    def measure(scores: Result) -> float:
        return scores["posterior"]

    methods = [OURS, *usual_rivals()]
    rows = []
    for case in CASES:
        own = [run for run in of_case(runs, case) if not run["alone"]]
        if own:
            shown = scores_of(own, methods, measure, 1.0, digits=4)
            rows.append([*sizes_of(case, own), *shown])
    return table(["problem", "rows", "seeds", *methods], rows)


def sizes_of(case: str, runs: Runs) -> list[str]:
    return [CASES[case].title, f"{CASES[case].rows:,}", str(len(runs))]


def scores_of(
    runs: Runs, methods: list[str], measure: Measure, base: float, digits: int
) -> list[str]:
    """Mean and standard error of every method, empty for one that was left out."""
    values = {}
    texts = {}
    for method in methods:
        if method in runs[0]:
            own = np.array([measure(run[method]) for run in runs]) / base
            values[method] = own
            texts[method] = f"{own.mean():.{digits}f} ± {mean_error(own):.{digits}f}"
    shown = clear_best(values, texts)
    return [shown.get(method, "") for method in methods]


def ours_table(runs: Runs) -> str:
    """The default beside other estimates of S from the same fits."""
    names = {
        "S": "default",
        "one-step": "one-step",
        "gramian": "Gramian root",
        "averages": "class averages",
        "at the limit": "S∞",
    }
    rows = []
    for case in CASES:
        own = of_case(runs, case)
        if not own:
            continue
        oracle = np.array([run[ORACLE]["S"][0] for run in own])
        base = oracle.mean()
        plug_in = np.mean([run["oracle plug-in"]["S"][0] for run in own]) / base
        values = {}
        for name in names:
            found = [run[OURS][name][0] for run in own if name in run[OURS]]
            if len(found) == len(own):
                values[name] = np.array(found) / base
        texts = {name: f"{v.mean():.2f}" for name, v in values.items()}
        ours = values["S"].mean()
        error = mean_error(values["S"] - oracle * ours / base)
        texts["S"] = f"{ours:.3f} ± {error:.3f}"
        shown = clear_best(values, texts)
        seconds = np.mean([run[OURS]["seconds"] for run in own])
        estimates = [shown.get(name, "") for name in names]
        about = [CASES[case].title, str(len(own)), f"{base:.4f}"]
        rows.append([*about, *estimates, f"{plug_in:.2f}", f"{seconds:.0f} s"])
    last = ["mean(y yᵀ), true y", "fit, one core"]
    return table(["problem", "seeds", ORACLE, *names.values(), *last], rows)


def text(records: list[Record]) -> str:
    runs = [flat(record) for record in records]

    def mean(scores: Result) -> float:
        return scores["S"][0]

    def worst(scores: Result) -> float:
        return scores["S"][1]

    return f"""## Accuracy of S

Mean total variation distance of the rows of S to the truth, as a multiple of that of the *oracle
one-step* estimate: the one-step estimator with the true posteriors of the same sample (± standard
error over seeds). It is no limit: see the last columns of
[the table below](#which-estimate-of-s). Rivals are cross-fitted with the same folds and use the
one-step estimator too; the tuned stack is left out where it would take hours. Bold: lower than
every other by more than two standard errors of the paired difference.

{accuracy_table(runs, INSIDE, mean)}

The number of classes from which the default shrinks was chosen on problems like these.

Problems outside that family:

{accuracy_table(runs, OUTSIDE, mean)}

The same for the worst row of S:

{accuracy_table(runs, CASES, worst)}

## Accuracy of the posteriors

Mean total variation distance to the true posteriors of {TEST_ROWS:,} new rows:

{posterior_table(runs)}

## Which estimate of S?

Mean TVD as a multiple of the oracle one-step estimate (± standard error of the ratio), from the
same fits and, on problems where rivals would take hours, from more:

{ours_table(runs)}

{again("scenarios")}"""


STUDY = Study(
    "scenarios", "Accuracy of S on problems with known truth", cells, run, text
)
