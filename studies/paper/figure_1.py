"""Figure 1: what S tells beside other measures of uncertainty, and how each changes with the rows.

Two problems of three classes with the same Bayes error: in ``one pair`` classes 1 and 2 overlap
and class 3 is far from both, in ``evenly`` all pairs overlap alike. A measure of the distribution
stays as rows are added, one of what was not learned falls.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from scipy.optimize import brentq
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from collidescope import collision_matrix_from_posteriors
from collidescope.datasets import GaussianProblem
from studies.baselines.bayesian import BayesianClassifier
from studies.baselines.bounds import knn_bounds
from studies.baselines.mc_dropout import DropoutClassifier
from studies.paper.rows import FloatArray
from studies.store import Cell, Result


def one_pair() -> GaussianProblem:
    """Figure 1A: classes 1 and 2 are confused, class 3 is not."""
    return GaussianProblem([[0.0, 0.0], [1.0, 0.0], [0.5, 6.0]])


def triangle(side: float) -> GaussianProblem:
    """Three classes as far from each other."""
    corners = [[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]]
    return GaussianProblem(side * np.array(corners))


@cache
def evenly() -> GaussianProblem:
    """The triangle with the Bayes error of ``one_pair``."""
    wanted = one_pair().bayes_error()
    side = brentq(lambda s: triangle(s).bayes_error() - wanted, 1.0, 5.0, xtol=1e-3)
    return triangle(float(side))


PROBLEMS = {"one pair": one_pair, "evenly": evenly}


def spread_of_draws(
    network: BayesianClassifier | DropoutClassifier, X: FloatArray
) -> float:
    """Mean standard deviation of a posterior over the networks that are averaged."""
    spreads = []
    for logits in network._logits(X):
        posteriors = torch.softmax(logits, -1)
        spreads.append(posteriors.std(dim=0).mean(dim=1))
    return float(torch.cat(spreads).mean())


def run(cell: Cell) -> Result:
    """Every measure on one sample."""
    problem = PROBLEMS[cell["problem"]]()
    X, y = problem.sample(cell["rows"], cell["seed"])
    X_new, _ = problem.sample(500, 1_000_000 + cell["seed"])
    P = cross_val_predict(LogisticRegression(), X, y, cv=5, method="predict_proba")
    S = collision_matrix_from_posteriors(P, y, priors="uniform").matrix
    low, high = knn_bounds(X, y, 1)
    shared = {"hidden_layer_sizes": (32, 32), "max_epochs": cell["epochs"]}
    seed = cell["seed"]
    bayesian = BayesianClassifier(random_state=seed, device="cpu", **shared).fit(X, y)
    dropout = DropoutClassifier(random_state=seed, device="cpu", **shared).fit(X, y)
    truth = problem.collision_matrix().matrix
    return {
        "S_12": float(S[0, 1]),
        "S_13": float(S[0, 2]),
        "true": [float(truth[0, 1]), float(truth[0, 2]), problem.bayes_error()],
        "bayes_error": [low, high],
        "accuracy": float((P.argmax(axis=1) == y).mean()),
        "bayesian": spread_of_draws(bayesian, X_new),
        "dropout": spread_of_draws(dropout, X_new),
    }


def cells() -> list[Cell]:
    """Few and ten times as many rows of either problem."""
    return [
        {"problem": name, "rows": n, "epochs": 30, "seed": seed}
        for name in PROBLEMS
        for n in (200, 2_000)
        for seed in range(5)
    ]
