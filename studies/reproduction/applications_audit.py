"""Does the audit find what is planted and leave alone what is inherent?

Six classes: a and b overlap (inherent), c and d differ mostly in a feature that the *blind*
classifier does not see (planted), e and f are the same distribution (as inherent as it gets). Three
classifiers are audited on the same rows:

- ``blind``: the best rule without that feature; c ↔ d is fixable, nothing else.
- ``best``: the best rule; nothing is fixable.
- ``coin``: the best rule, but a coin decides between e and f; it makes other errors, and no more:
  nothing is fixable.

``posteriors`` are the true ones, or those of a ``CollisionClassifier`` fitted on other rows.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from collidescope import CollisionClassifier
from collidescope.applications import audit
from collidescope.datasets import GaussianProblem
from studies.models import estimator_settings
from studies.store import Cell, Study

#: Where d lies: the share of it that the blind classifier sees, and what it does not.
WEAKNESS = {"large": (6.8, 3.0), "small": (7.8, 1.2)}
CLASSES = list("abcdef")
PLANTED = {("c", "d"), ("d", "c")}
FDR = 0.05
#: Settings of the model behind the estimated posteriors: fast.
FIT = {
    "hidden_layer_sizes": (32,),
    "cv": 3,
    "max_epochs": 40,
    "patience": 5,
    "limit": False,
}
#: Rows of that model: fewer leave it too weak to see what can be fixed.
FIT_ROWS = 1_500
#: Seeds of independent streams: audited rows, rows of the model, the coin.
AUDITED, FITTED, COIN = 0, 1, 2
TRUTH_ROWS, TRUTH_SEED = 400_000, 20_250


def problem_of(weakness: str) -> GaussianProblem:
    """The population."""
    seen, hidden = WEAKNESS[weakness]
    means = [[0, 0, 0], [1.2, 0, 0], [6, 0, 0], [seen, 0, hidden], [0, 8, 0], [0, 8, 0]]
    return GaussianProblem(means, classes=CLASSES)


def classifiers(
    problem: GaussianProblem, X: np.ndarray, seed: Any
) -> dict[str, np.ndarray]:
    """What each audited classifier says."""
    best = problem.posteriors(X).argmax(axis=1)
    blind = GaussianProblem(problem.means[:, :2]).posteriors(X[:, :2]).argmax(axis=1)
    coin = best.copy()
    twins = best >= 4
    coin[twins] = np.random.default_rng(seed).integers(4, 6, twins.sum())
    codes = {"blind": blind, "best": best, "coin": coin}
    return {name: problem.classes[said] for name, said in codes.items()}


@cache
def true_fixable(weakness: str) -> dict[str, float]:
    """Error of each classifier beyond the best one's."""
    problem = problem_of(weakness)
    X, y = problem.sample(TRUTH_ROWS, TRUTH_SEED)
    said = classifiers(problem, X, TRUTH_SEED)
    more = np.mean(said["blind"] != y) - np.mean(said["best"] != y)
    # e and f are one distribution: the coin errs as the best rule does, but for the luck of this
    # sample
    return {"blind": float(more), "best": 0.0, "coin": 0.0}


def run(cell: Cell) -> dict[str, Any]:
    """Per audited classifier and sample: planted pairs found, false flags, the split, and does
    its interval cover?"""
    problem = problem_of(cell["weakness"])
    truth = true_fixable(cell["weakness"])
    found: dict[str, dict[str, list[Any]]] = {}
    for seed in range(cell["first_seed"], cell["first_seed"] + cell["samples"]):
        X, y = problem.sample(
            cell["rows"], np.random.default_rng([seed, AUDITED]), stratified=False
        )
        if cell["posteriors"] == "true":
            P = problem.posteriors(X)
        else:
            rng = np.random.default_rng([seed, FITTED])
            other = problem.sample(cell["fit_rows"], rng, stratified=False)
            clf = CollisionClassifier(random_state=seed, **estimator_settings(FIT))
            P = clf.fit(*other).predict_proba(X)
        for name, said in classifiers(problem, X, [seed, COIN]).items():
            report = audit(P, y_true=y, y_pred=said, classes=CLASSES, fdr=FDR)
            flagged = report.pairs[report.pairs["flagged"]]
            pairs = set(zip(flagged["true"], flagged["predicted"], strict=True))
            planted = PLANTED if name == "blind" else set()
            low, high = report.fixable_interval
            row = {
                "found": len(pairs & planted),
                "false": len(pairs - planted),
                "fixable": report.fixable,
                "covered": bool(low <= truth[name] <= high),
                "claimed": bool(low > 0),
            }
            lists = found.setdefault(name, {})
            for key, value in row.items():
                lists.setdefault(key, []).append(value)
    return {"classifiers": found, "truth": truth, "bayes_error": problem.bayes_error()}


def cells(quick: bool) -> list[Cell]:
    """Samples in groups, each a cell; those that fit a model first."""
    fitted = {"posteriors": "estimated", "fit_rows": FIT_ROWS}
    exact = {"posteriors": "true"}
    plan = [
        kind | {"weakness": weakness, "rows": rows}
        for kind, sizes in ((fitted, [2_000]), (exact, [500, 2_000]))
        for weakness in WEAKNESS
        for rows in sizes
    ]
    samples = 10
    if quick:
        plan = [kind | {"weakness": "large", "rows": 600} for kind in (fitted, exact)]
        samples = 1
    return [
        cell | {"samples": samples, "first_seed": samples * group}
        for cell in plan
        for group in range(samples)
    ]


STUDY = Study(
    "audit",
    "Audit: planted weaknesses found, inherent confusion left alone",
    cells,
    run,
)
