"""What the paper says S is good for: smoothed labels, adaptive sampling and a cost function."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from collidescope import smooth_labels
from collidescope.datasets import scenario_a
from collidescope.training.networks import mlp
from studies.known import imbalanced
from studies.store import Cell, Result

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]


# ------------------------------------------------------------------------------------------
# a small network


def train(
    X: FloatArray,
    targets: FloatArray,
    epochs: int,
    seed: int,
    draw: Callable[[np.random.Generator], IntArray] | None = None,
    after_epoch: Callable[[nn.Module], None] | None = None,
    extra_loss: Callable[[Tensor, IntArray], Tensor] | None = None,
) -> nn.Module:
    """Cross-entropy with soft targets, plus ``extra_loss``; ``draw`` gives the rows of an epoch."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    network = mlp(X.shape[1], targets.shape[1], (64, 64))
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    inputs = torch.tensor(X, dtype=torch.float32)
    wanted = torch.tensor(targets, dtype=torch.float32)
    for _ in range(epochs):
        order = rng.permutation(len(X)) if draw is None else draw(rng)
        for rows in np.array_split(order, max(1, len(order) // 64)):
            logits = network(inputs[rows])
            loss = nn.functional.cross_entropy(logits, wanted[rows])
            if extra_loss is not None:
                loss = loss + extra_loss(logits, rows)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        if after_epoch is not None:
            after_epoch(network)
    return network


def posteriors(network: nn.Module, X: FloatArray) -> FloatArray:
    """Softmax of the network's outputs."""
    with torch.inference_mode():
        logits = network(torch.tensor(X, dtype=torch.float32))
    return torch.softmax(logits.double(), -1).numpy()


def scores(P: FloatArray, codes: IntArray, k: int) -> dict[str, float]:
    """Accuracy, mean recall of the classes and log loss."""
    right = P.argmax(axis=1) == codes
    recalls = [right[codes == c].mean() for c in range(k)]
    own = P[np.arange(len(codes)), codes]
    return {
        "accuracy": float(right.mean()),
        "balanced accuracy": float(np.mean(recalls)),
        "log loss": float(-np.log(np.maximum(own, 1e-12)).mean()),
    }


# ------------------------------------------------------------------------------------------
# smoothing


def smoothing(cell: Cell) -> Result:
    """One-hot labels, and labels smoothed uniformly and by the rows of S (known here)."""
    problem = scenario_a(cell["K"])
    k = cell["K"]
    X, codes = problem.sample(cell["rows"], cell["seed"])
    X_new, codes_new = problem.sample(4_000, 1_000_000 + cell["seed"])
    one_hot = np.eye(k)[codes]
    by_S = smooth_labels(codes, problem.collision_matrix(), cell["amount"])
    targets = {
        "one-hot": one_hot,
        "uniform": (1 - cell["amount"]) * one_hot + cell["amount"] / k,
        "S": by_S,
    }
    found = {}
    for name, target in targets.items():
        network = train(X, np.asarray(target), cell["epochs"], cell["seed"])
        found[name] = scores(posteriors(network, X_new), codes_new, k)
    return found


def smoothing_cells(quick: bool) -> list[Cell]:
    """Scenario A, K = 5."""
    shared = {"K": 5, "rows": 500, "amount": 0.5, "epochs": 30 if quick else 200}
    return [shared | {"seed": seed} for seed in range(6 if quick else 20)]


# ------------------------------------------------------------------------------------------
# sampling and cost


def sampling(cell: Cell) -> Result:
    """More rows, or a larger loss, where a pair is confused beyond S, as the paper describes both.

    ``both classes`` draws both classes of a confused pair more often, ``true class`` only the
    first of the two, and ``cost`` adds excess · -log(1 - p_j) to the loss of a row of class i for
    every j that it is confused with. The confusion is that of held-out rows (mean posteriors), S
    is the true one.
    """
    problem = imbalanced(4, 20.0, random_state=0)
    k = 4
    S = problem.collision_matrix().matrix
    X, codes = problem.sample(cell["rows"], cell["seed"])
    X_watch, codes_watch = problem.sample(cell["rows"] // 2, 500_000 + cell["seed"])
    X_new, codes_new = problem.sample(4_000, 1_000_000 + cell["seed"])
    excess = np.zeros((k, k))

    def watch(network: nn.Module) -> None:
        P = posteriors(network, X_watch)
        confusion = np.array([P[codes_watch == c].mean(axis=0) for c in range(k)])
        excess[:] = np.maximum(confusion - S, 0.0)
        np.fill_diagonal(excess, 0.0)

    def drawer(
        weights: Callable[[], FloatArray],
    ) -> Callable[[np.random.Generator], IntArray]:
        def draw(rng: np.random.Generator) -> IntArray:
            chance = weights()[codes]
            return rng.choice(len(codes), len(codes), p=chance / chance.sum())

        return draw

    def cost(logits: Tensor, rows: IntArray) -> Tensor:
        share = torch.tensor(excess[codes[rows]], dtype=torch.float32)
        confused = -torch.log1p(-torch.softmax(logits, -1).clamp(max=1 - 1e-6))
        return cell["strength"] * (share * confused).sum(1).mean()

    strength = cell["strength"]
    draws = {
        "as it comes": drawer(lambda: np.ones(k)),
        "both classes": drawer(
            lambda: 1 + strength * (excess.sum(axis=1) + excess.sum(axis=0))
        ),
        "true class": drawer(lambda: 1 + strength * excess.sum(axis=1)),
    }
    one_hot = np.eye(k)[codes]
    found = {}
    for name in (*draws, "cost"):
        excess[:] = 0.0
        network = train(
            X,
            one_hot,
            cell["epochs"],
            cell["seed"],
            draw=draws.get(name, draws["as it comes"]),
            after_epoch=watch,
            extra_loss=cost if name == "cost" else None,
        )
        found[name] = scores(posteriors(network, X_new), codes_new, k)
    return found


def sampling_cells(quick: bool) -> list[Cell]:
    """Four uneven classes on a line."""
    shared = {"rows": 600, "strength": 5.0, "epochs": 30 if quick else 200}
    return [shared | {"seed": seed} for seed in range(12 if quick else 20)]
