"""Claims of the paper that its own figures do not test: so many sampled pairs, descent from I, a
cost for sampling.

- ``pairs``: error of Ĝ and of S against m, the comparison points per class, with the true
  similarity y(x)·y(x'), so that only the sampling counts ("m sampled pairs per class suffice").
- ``descent``: the paper's gradient descent, started at I, for non-uniform priors, beside the
  closed-form root.
- ``cost``: the other half of the paper's adaptive sampling: where a network confuses a pair more
  often than S says, its loss for that error grows, beside over-sampling the two classes, and
  neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from collidescope import recover
from collidescope.datasets import Problem, equidistant, scenario_a
from collidescope.equations.gramian import gramian_from_similarities
from studies.known import imbalanced
from studies.measures import tvd
from studies.store import Cell, Study

#: The network of the sampling problem.
HIDDEN, EPOCHS, BATCH = 32, 30, 64


def run(cell: Cell) -> dict[str, Any]:
    """The numbers of one claim."""
    arguments = {name: value for name, value in cell.items() if name != "claim"}
    return CLAIMS[cell["claim"]](**arguments)


def pairs(K: int, m: int, samples: int) -> dict[str, Any]:
    """Mean and largest error of Ĝ and TVD of S, with m rows per class each compared with m
    others."""
    problem: Problem = (
        scenario_a(K) if K <= 5 else equidistant(K, 4, 12.0, random_state=0)
    )
    truth = problem.collision_matrix().matrix
    errors = []
    for seed in range(samples):
        X, y = problem.sample(m * K, seed)
        X_other, y_other = problem.sample(m * K, 1_000_000 + seed)
        similarity = problem.posteriors(X) @ problem.posteriors(X_other).T
        q = np.stack(
            [similarity[:, y_other == k].mean(axis=1) for k in range(K)], axis=1
        )
        G = gramian_from_similarities(q, y)
        errors.append(
            [
                np.abs(G - truth @ truth.T).mean(),
                np.abs(G - truth @ truth.T).max(),
                tvd(recover(G).matrix, truth)[0],
            ]
        )
    mean = np.mean(errors, axis=0)
    return {"G": float(mean[0]), "G_largest": float(mean[1]), "S": float(mean[2])}


def descent(K: int, ratio: float, count: int, steps: int) -> dict[str, Any]:
    """Exact Gramians at priors from ``ratio`` to 1: how far S by descent and by the root is from
    the truth."""
    rng = np.random.default_rng(0)
    errors: dict[str, list[float]] = {"descent": [], "root": []}
    for _ in range(count):
        P = rng.dirichlet(np.full(K, 0.3), 500) * np.geomspace(ratio, 1, K)
        P /= P.sum(axis=1, keepdims=True)
        B = P.T @ P / len(P)
        priors = B.sum(axis=1)
        S = B / priors[:, None]
        errors["root"].append(tvd(recover(S @ S.T, priors).matrix, S)[0])
        errors["descent"].append(
            tvd(recover(S @ S.T, priors, method="gradient", max_iter=steps).matrix, S)[
                0
            ]
        )
    return {name: float(np.mean(values)) for name, values in errors.items()} | {
        "worst_descent": max(errors["descent"])
    }


def cost(seed: int, rows: int) -> dict[str, Any]:
    """Accuracies on new rows: uniform, classes of a pair in excess over-sampled, or a larger
    loss for that error."""
    import torch
    from torch.nn.functional import cross_entropy

    problem = imbalanced(4, ratio=10, length=4, random_state=0)
    S = problem.collision_matrix().matrix
    K = len(S)
    X, y = problem.sample(rows, seed)
    X_held, y_held = problem.sample(rows // 2, 1_000_000 + seed)
    X_test, y_test = problem.sample(5_000, 2_000_000 + seed)
    train, held, test = (
        torch.from_numpy(part.astype(np.float32)) for part in (X, X_held, X_test)
    )
    labels = torch.from_numpy(y.astype(np.int64))
    found: dict[str, Any] = {}
    for method in ("uniform", "over-sampling", "larger loss"):
        torch.manual_seed(seed)
        rng = np.random.default_rng(seed)
        network = torch.nn.Sequential(
            torch.nn.Linear(X.shape[1], HIDDEN),
            torch.nn.ReLU(),
            torch.nn.Linear(HIDDEN, K),
        )
        optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
        excess = np.zeros((K, K))
        for _ in range(EPOCHS):
            classes = (
                1 + K * (excess + excess.T).sum(axis=1)
                if method == "over-sampling"
                else np.ones(K)
            )
            weight = torch.from_numpy(
                1 + K * excess if method == "larger loss" else np.ones((K, K))
            ).float()
            order = rng.choice(len(y), len(y), p=classes[y] / classes[y].sum())
            for start in range(0, len(y), BATCH):
                batch = torch.from_numpy(order[start : start + BATCH])
                logits = network(train[batch])
                losses = cross_entropy(logits, labels[batch], reduction="none")
                optimiser.zero_grad()
                (losses * weight[labels[batch], logits.argmax(dim=1)]).mean().backward()
                optimiser.step()
            with torch.no_grad():
                said = network(held).argmax(dim=1).numpy()
            confusion = np.stack(
                [np.bincount(said[y_held == k], minlength=K) for k in range(K)]
            ).astype(float)
            confusion /= np.maximum(confusion.sum(axis=1, keepdims=True), 1)
            excess = np.maximum(confusion - S, 0) * (1 - np.eye(K))
        with torch.no_grad():
            right = network(test).argmax(dim=1).numpy() == y_test
        recall = [float(right[y_test == k].mean()) for k in range(K)]
        found[method] = {
            "accuracy": float(right.mean()),
            "balanced": float(np.mean(recall)),
            "worst": min(recall),
        }
    return found


CLAIMS: dict[str, Callable[..., dict[str, Any]]] = {
    "pairs": pairs,
    "descent": descent,
    "cost": cost,
}


def cells(quick: bool) -> list[Cell]:
    """A claim each; seconds at their quick size, minutes in full."""
    if quick:
        return [
            {"claim": "pairs", "K": 3, "m": 20, "samples": 2},
            {"claim": "descent", "K": 3, "ratio": 5.0, "count": 2, "steps": 2_000},
            {"claim": "cost", "seed": 0, "rows": 200},
        ]
    sizes = (5, 10, 25, 50, 100, 250, 500)
    return [
        *(
            {"claim": "pairs", "K": K, "m": m, "samples": 30}
            for K in (3, 5, 10)
            for m in sizes
        ),
        *(
            {"claim": "descent", "K": K, "ratio": r, "count": 10, "steps": 50_000}
            for K in (3, 5)
            for r in (1.0, 3.0, 10.0)
        ),
        *({"claim": "cost", "seed": seed, "rows": 1_000} for seed in range(20)),
    ]


STUDY = Study(
    "missing",
    "Claims that the paper leaves untested: m pairs, descent from I, costs",
    cells,
    run,
)
