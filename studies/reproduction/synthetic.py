"""Methods on problems with a known answer: error of S and of the posteriors, every method on the
same samples.

A cell is one problem, sample and group of methods. ``S`` is the mean and the largest total
variation distance (TVD) between the rows of the estimate and of the truth, ``posterior`` the mean
TVD of the posteriors of new rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import StratifiedKFold, train_test_split

from collidescope import (
    CollisionClassifier,
    CollisionMatrix,
    collision_matrix_from_posteriors,
)
from collidescope.datasets import Problem, equidistant, scenario_a, scenario_b
from collidescope.equations.bounds import bayes_error_bounds
from studies.baselines import (
    NetworkClassifier,
    careful_rivals,
    class_averages,
    confident_joint_matrix,
    overlapping_classes,
    paper_rivals,
)
from studies.baselines.bounds import knn_bounds
from studies.measures import tvd
from studies.models import estimator_settings, from_paper, pairwise
from studies.store import Cell, Study

TEST_ROWS = 1_000
#: Added to the seed of the sample, for rows that no method was trained on.
TEST_SEED = 1_000_000
#: Share of the rows that calibrates a network (the paper splits in training and validation and
#: names no share).
CALIBRATION_SHARE = 0.2
#: Share of the rows that baselines are trained on: that of the pair-wise network in five folds.
SHARE = 0.8

PROBLEMS: dict[str, Callable[..., Problem]] = {
    "A": scenario_a,
    "B": scenario_b,
    "line": lambda k, d, length: equidistant(k, d, length, random_state=0),
}
ORACLE = "oracle one-step"
OURS = "collidescope"
LITERAL = "literal paper"
CORRECTED = "Algorithm 1, corrected"
CALIBRATIONS = {
    "temperature": "temperature (scikit-learn)",
    "sigmoid": "Platt",
    "isotonic": "isotonic",
}

#: Kind of problem, its arguments, rows.
Case = tuple[str, list[Any], int]
Data = dict[str, Any]
Scores = dict[str, Any]


def run(cell: Cell) -> dict[str, Any]:
    """Scores of every method in the cell's group."""
    problem = PROBLEMS[cell["problem"]](*cell["arguments"])
    X, y = problem.sample(cell["rows"], cell["seed"])
    X_test, _ = problem.sample(
        cell.get("test_rows", TEST_ROWS), TEST_SEED + cell["seed"]
    )
    data = {
        "problem": problem,
        "X": X,
        "y": y,
        "X_test": X_test,
        "truth": problem.collision_matrix(),
    }
    data["Y_test"] = problem.posteriors(X_test)
    group = cell["method"]
    found = GROUPS.get(group, partial(_rival, group))(
        data, cell["seed"], cell["settings"]
    )
    return {
        name: {k: v for k, v in scores.items() if v is not None}
        for name, scores in found.items()
    }


def score(
    data: Data,
    cm: CollisionMatrix | np.ndarray,
    posteriors: np.ndarray | None,
    seconds: float,
) -> Scores:
    """How far an estimate of S, and posteriors of the test rows, are from the truth."""
    S = cm.matrix if isinstance(cm, CollisionMatrix) else cm
    posterior = None if posteriors is None else tvd(posteriors, data["Y_test"])[0]
    return {
        "S": tvd(S, data["truth"].matrix),
        "posterior": posterior,
        "seconds": seconds,
    }


def top_pair(cm: CollisionMatrix) -> list[int]:
    """Numbers of the two classes that collide most often."""
    upper = np.triu(cm.joint, 1)
    return [int(k) for k in np.unravel_index(upper.argmax(), upper.shape)]


def oracle(data: Data, seed: int, settings: dict[str, Any]) -> dict[str, Scores]:
    """The one-step estimator with the true posteriors (mean(y yᵀ) with them has less than half
    its error)."""
    P = data["problem"].posteriors(data["X"])
    truth = data["truth"]
    cm = collision_matrix_from_posteriors(P, data["y"])
    facts = {
        "bayes_error": data["problem"].bayes_error(),
        "pber": truth.pber,
        "most_overlapping": top_pair(truth),
    }
    return {ORACLE: score(data, cm, None, 0.0) | facts}


def ours(data: Data, seed: int, settings: dict[str, Any]) -> dict[str, Scores]:
    """The default estimator, and other estimates from the same fit."""
    start = time.perf_counter()
    clf = CollisionClassifier(
        limit=False, random_state=seed, **estimator_settings(settings)
    )
    clf.fit(data["X"], data["y"])
    seconds = time.perf_counter() - start
    cm = clf.collision_matrix_
    main = score(data, cm, clf.predict_proba(data["X_test"]), seconds)
    main["most_overlapping"] = top_pair(cm)
    main |= {"bayes_bounds": list(bayes_error_bounds(cm.pber, cm.n_classes))}
    main |= {"pber": cm.pber, "pber_interval": list(cm.pber_interval())}
    return {
        OURS: main,
        f"{OURS}: Gramian root": score(data, clf.recovery_.matrix, None, seconds),
        f"{OURS}: class averages": score(
            data, class_averages(clf.posteriors_, data["y"]), None, seconds
        ),
    }


def literal(data: Data, seed: int, settings: dict[str, Any]) -> dict[str, Scores]:
    """Every choice of the paper, the missing logit shift included."""
    return {LITERAL: _pairwise(from_paper(random_state=seed, **settings), data)}


def corrected(data: Data, seed: int, settings: dict[str, Any]) -> dict[str, Scores]:
    """The paper's pair-wise network with the logit shift, early stopping, the closed-form root,
    simplex posteriors."""
    given = {"hidden_layer_sizes": (128,) * 6} | settings
    clf = pairwise(
        limit=False, estimate="gramian", priors="uniform", random_state=seed, **given
    )
    return {CORRECTED: _pairwise(clf, data)}


def _pairwise(clf: CollisionClassifier, data: Data) -> Scores:
    start = time.perf_counter()
    clf.fit(data["X"], data["y"])
    seconds = time.perf_counter() - start
    scores = score(
        data, clf.collision_matrix_, clf.predict_proba(data["X_test"]), seconds
    )
    return scores | {"gramian_row_sum": float(clf.gramian_.sum(axis=1).mean())}


def _rival(
    name: str, data: Data, seed: int, settings: dict[str, Any]
) -> dict[str, Scores]:
    """A classifier through the paper's Algorithm 3: trained on rows and averaged over the same
    rows.

    ``share`` of the rows are taken: as many as a fold of the pair-wise network is trained on.
    """
    X, y, share = data["X"], data["y"], settings.get("share", 1.0)
    if share < 1:
        X, _, y, _ = train_test_split(
            X, y, train_size=share, stratify=y, random_state=seed
        )
    model = paper_rivals(random_state=seed, **_network(settings))[name]
    start = time.perf_counter()
    model.fit(X, y)
    cm = class_averages(model.predict_proba(X), y)
    seconds = time.perf_counter() - start
    return {name: score(data, cm, model.predict_proba(data["X_test"]), seconds)}


def _network(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of a baseline's network."""
    return {
        name: tuple(v) if isinstance(v, list) else v
        for name, v in settings.items()
        if name != "share"
    }


def calibrated(data: Data, seed: int, settings: dict[str, Any]) -> dict[str, Scores]:
    """One network on most rows, calibrated on the rest in each of scikit-learn's ways; Algorithm
    3 for S."""
    start = time.perf_counter()
    parts = train_test_split(
        data["X"],
        data["y"],
        test_size=CALIBRATION_SHARE,
        stratify=data["y"],
        random_state=seed,
    )
    X, X_rest, y, y_rest = parts
    network = NetworkClassifier(random_state=seed, **_network(settings)).fit(X, y)
    trained = time.perf_counter() - start
    found = {}
    for method, name in CALIBRATIONS.items():
        start = time.perf_counter()
        model = CalibratedClassifierCV(FrozenEstimator(network), method=method).fit(
            X_rest, y_rest
        )
        cm = class_averages(model.predict_proba(data["X"]), data["y"])
        seconds = trained + time.perf_counter() - start
        found[name] = score(data, cm, model.predict_proba(data["X_test"]), seconds)
    return found


def careful(data: Data, seed: int, settings: dict[str, Any]) -> dict[str, Scores]:
    """Cross-fitted classifiers with class averages, the one-step estimator and cleanlab's
    confident joint."""
    found: dict[str, Scores] = {}
    X, y = data["X"], data["y"]
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    for name, model in careful_rivals(random_state=seed, **settings).items():
        start = time.perf_counter()
        held_out, new = np.empty((len(y), y.max() + 1)), np.zeros_like(data["Y_test"])
        for train, test in folds.split(X, y):
            fold = clone(model).fit(X[train], y[train])
            held_out[test] = fold.predict_proba(X[test])
            new += fold.predict_proba(data["X_test"]) / folds.get_n_splits()
        seconds = time.perf_counter() - start
        found[f"{name}: one-step"] = score(
            data, collision_matrix_from_posteriors(held_out, y), new, seconds
        )
        found[f"{name}: averages"] = score(
            data, class_averages(held_out, y), new, seconds
        )
        joint = score(data, confident_joint_matrix(held_out, y), None, seconds)
        if data["truth"].n_classes > 2:
            top = overlapping_classes(held_out, y).iloc[0]
            joint["most_overlapping"] = sorted(
                [int(top["Class Index A"]), int(top["Class Index B"])]
            )
        found[f"cleanlab's confident joint ({name})"] = joint
    return found


def neighbours(data: Data, seed: int, settings: dict[str, Any]) -> dict[str, Scores]:
    """The Bayes error between the bounds that nearest neighbours give."""
    return {
        "nearest neighbours": {
            "bayes_bounds": list(knn_bounds(data["X"], data["y"], 1))
        }
    }


GROUPS: dict[str, Callable[[Data, int, dict[str, Any]], dict[str, Scores]]] = {
    ORACLE: oracle,
    OURS: ours,
    LITERAL: literal,
    CORRECTED: corrected,
    "calibrated": calibrated,
    "careful": careful,
    "nearest neighbours": neighbours,
}


def _cells(
    problems: list[Case],
    seeds: range,
    methods: dict[str, dict[str, Any]],
) -> list[Cell]:
    """Every method on every sample; methods with long fits first, so that no long one is left
    for the end."""
    return [
        {
            "problem": kind,
            "arguments": arguments,
            "rows": rows,
            "seed": seed,
            "method": method,
            "settings": settings,
        }
        for method, settings in methods.items()
        for kind, arguments, rows in problems
        for seed in seeds
    ]


def _methods(
    epochs: int,
    references: int | str = "all",
    hidden: list[int] | None = None,
    share: float | None = None,
) -> dict[str, dict[str, Any]]:
    """All methods; ``epochs`` for those that the paper trains without early stopping, ``share`` of
    the rows for them.

    The literal paper trains on all rows of four folds in five, and is scored on the fifth.
    """
    both: dict[str, Any] = {} if hidden is None else {"hidden_layer_sizes": hidden}
    compared: dict[str, Any] = {"n_references": references} | (
        {} if hidden is None else {"cv": 2}
    )
    pair = compared | both
    network = {"max_epochs": epochs} | both
    literal = compared | {"training": network}
    network = network | ({} if share is None else {"share": share})
    return {
        LITERAL: literal,
        "Bayesian network": network,
        CORRECTED: pair,
        "deep ensemble": network,
        "plain network": network,
        "temperature (paper)": network,
        "calibrated": {
            name: value for name, value in network.items() if name != "share"
        },
        "Monte-Carlo dropout": network,
        "careful": {},
        OURS: {"members": "auto" if hidden is None else ["linear"]},
        "nearest neighbours": {},
        ORACLE: {},
    }


def scenario_a_cells(quick: bool) -> list[Cell]:
    """K = 3, 4, 5 with 250 rows a class in 4 dimensions; the paper's 500 epochs."""
    if quick:
        return _cells([("A", [3], 150)], range(1), _methods(20, 20, [32, 32]))
    return _cells(
        [("A", [k], 250 * k) for k in (3, 4, 5)], range(10), _methods(500, share=SHARE)
    )


def posterior_methods(
    epochs: int, hidden: list[int] | None = None
) -> dict[str, dict[str, Any]]:
    """What the paper compares on posteriors, and ours; ``epochs`` of the rivals, the literal
    paper has its 500."""
    every = _methods(epochs, 50, hidden, share=SHARE)
    every[LITERAL] = _methods(500 if hidden is None else epochs, 50, hidden)[LITERAL]
    wanted = (
        LITERAL,
        CORRECTED,
        "plain network",
        "temperature (paper)",
        "Monte-Carlo dropout",
        OURS,
        ORACLE,
    )
    return {name: every[name] for name in wanted}


def posterior_table_cells(quick: bool) -> list[Cell]:
    """Means on a line: classes × dimensions × distance of neighbours, one sample each."""
    if quick:
        return _cells(
            [("line", [3, 2, 4.0], 150)], range(1), posterior_methods(3, [16])
        )
    sizes = [(k, d, gap) for k in (3, 5) for d in (2, 10) for gap in (1, 2)]
    grid: list[Case] = [
        ("line", [k, d, float(gap * (k - 1))], 250 * k) for k, d, gap in sizes
    ]
    return _cells(grid, range(1), posterior_methods(500))


def posterior_variance_cells(quick: bool) -> list[Cell]:
    """The same problem sampled anew many times, at several overlaps."""
    if quick:
        return posterior_table_cells(quick)
    grid: list[Case] = [("line", [4, 10, float(gap * 3)], 1000) for gap in (1, 2, 3)]
    return _cells(grid, range(10), posterior_methods(500))


STUDIES = (
    Study(
        "scenario-a",
        "Scenario A: more classes (S and posteriors)",
        scenario_a_cells,
        run,
    ),
    Study(
        "posterior-tables", "Posteriors: K × d × overlap", posterior_table_cells, run
    ),
    Study(
        "posterior-variance",
        "Posteriors over many samples",
        posterior_variance_cells,
        run,
    ),
)
