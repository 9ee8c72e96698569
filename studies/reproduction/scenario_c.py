"""Scenario C: accuracy of S against the cost of training, at checkpoints of one and the same
training.

The problem with the most overlap of Scenario B. The Bayesian network goes through the paper's
Algorithm 3, the pair-wise network through Algorithm 1 (with and without the logit shift), our
encoder through the one-step estimator.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import Any

from collidescope import CollisionClassifier
from collidescope.datasets import scenario_b
from studies.baselines import BayesianClassifier, class_averages
from studies.measures import tvd
from studies.models import from_paper
from studies.reproduction.synthetic import LARGE_BATCH
from studies.store import Cell, Study

OVERLAP = 0.15
BAYESIAN = "Bayesian network"
PAIRWISE = "pair-wise network"
ENCODER = "collidescope, one network"
DEFAULT = "collidescope"


def run(cell: Cell) -> dict[str, Any]:
    """Error of S and seconds of training so far, at every checkpoint."""
    problem = scenario_b(OVERLAP)
    truth = problem.collision_matrix().matrix
    X, y = problem.sample(cell["rows"], cell["seed"])
    curve = []
    network = {
        "hidden_layer_sizes": tuple(cell["hidden_layer_sizes"]),
        "batch_size": cell["batch_size"],
    }
    for epochs, seconds, estimates in METHODS[cell["method"]](
        X, y, network, cell["checkpoints"], cell["seed"]
    ):
        errors = {name: tvd(S, truth) for name, S in estimates.items()}
        curve.append({"epochs": epochs, "train_seconds": seconds, "S": errors})
    return {"curve": curve}


Curve = Iterator[tuple[int, float, dict[str, Any]]]


def bayesian(
    X: Any, y: Any, network: dict[str, Any], checkpoints: list[int], seed: int
) -> Curve:
    """Mean-field Bayesian network, trained on from checkpoint to checkpoint."""
    model = BayesianClassifier(**network, warm_start=True, random_state=seed)
    spent = 0.0
    for epochs in checkpoints:
        start = time.perf_counter()
        model.set_params(max_epochs=epochs).fit(X, y)
        spent += time.perf_counter() - start
        yield (
            epochs,
            spent,
            {BAYESIAN: class_averages(model.predict_proba(X), y).matrix},
        )


def pairwise(
    X: Any,
    y: Any,
    network: dict[str, Any],
    checkpoints: list[int],
    seed: int,
    references: int = 50,
) -> Curve:
    """The paper's network, recovery and number of references; a second fit finds all epochs done
    and adds the shift."""
    with TemporaryDirectory() as folder:
        for epochs in checkpoints:
            settings: dict[str, Any] = {
                "training": network | {"max_epochs": epochs},
                "checkpoint": folder,
            }
            # S alone is wanted: the posteriors' solver must only not mind a network that has
            # learned little yet.
            settings |= {
                "n_references": references,
                "solver": "simplex",
                "random_state": seed,
            }
            literal = from_paper(**settings).fit(X, y)
            shifted = from_paper(correction="prior", recovery="root", **settings).fit(
                X, y
            )
            names = {
                "pair-wise, literal": literal,
                "pair-wise, with the shift": shifted,
            }
            yield (
                epochs,
                _training_seconds(literal),
                {n: clf.collision_matrix_.matrix for n, clf in names.items()},
            )


def encoder(
    X: Any, y: Any, network: dict[str, Any], checkpoints: list[int], seed: int
) -> Curve:
    """Our factorised model with the same network and no early stopping."""
    with TemporaryDirectory() as folder:
        for epochs in checkpoints:
            training = network | {"max_epochs": epochs, "patience": 0}
            settings = {
                "members": ["network"],
                "limit": False,
                "checkpoint": folder,
                "random_state": seed,
            }
            clf = CollisionClassifier(training=training, **settings).fit(X, y)
            yield epochs, _training_seconds(clf), {ENCODER: clf.one_step_.matrix}


def default(
    X: Any, y: Any, network: dict[str, Any], checkpoints: list[int], seed: int
) -> Curve:
    """The estimator as it comes: a single point of the curve."""
    start = time.perf_counter()
    members = "auto" if checkpoints == [0] else ["linear"]
    clf = CollisionClassifier(members=members, limit=False, random_state=seed).fit(X, y)
    yield 0, time.perf_counter() - start, {DEFAULT: clf.collision_matrix_.matrix}


def _training_seconds(clf: CollisionClassifier) -> float:
    """Seconds of all epochs of all folds, also of those done before the last checkpoint."""
    return float(
        sum(
            entry["seconds"]
            for fold in clf.history_
            for epochs in fold.values()
            for entry in epochs
        )
    )


METHODS = {BAYESIAN: bayesian, PAIRWISE: pairwise, ENCODER: encoder, DEFAULT: default}


def cells(quick: bool) -> list[Cell]:
    """Five samples at the paper's 500 epochs; our encoder has its best behind it after 100."""
    if quick:
        rows, sizes, batch, seeds = 300, [16], 64, range(1)
        plan = {method: [1, 2] for method in METHODS} | {PAIRWISE: [10]}
    else:
        every = [5, 10, 20, 50, 100, 200, 500]
        plan = {PAIRWISE: every, BAYESIAN: every, ENCODER: every[:5], DEFAULT: [0]}
        rows, sizes, batch, seeds = 50_000, [128] * 6, LARGE_BATCH, range(5)
    network = {"hidden_layer_sizes": sizes, "batch_size": batch}
    # What a record must say: the literal network trains on all rows of its folds, the default is
    # the pool.
    more: dict[str, Cell] = {
        PAIRWISE: {"held_out": 0},
        DEFAULT: {"members": "auto"},
        ENCODER: {"held_out": 0},
    }
    return [
        {"method": method, "rows": rows, "seed": seed, "checkpoints": checkpoints}
        | network
        | more.get(method, {})
        for method, checkpoints in plan.items()
        for seed in seeds
    ]


STUDY = Study("scenario-c", "Scenario C: accuracy against training cost", cells, run)
