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


def smoothing_cells() -> list[Cell]:
    """Scenario A, K = 5."""
    shared = {"K": 5, "rows": 500, "amount": 0.5, "epochs": 30}
    return [shared | {"seed": seed} for seed in range(6)]


# ------------------------------------------------------------------------------------------
# sampling and cost


class Excess:
    """How much oftener than S says a network confuses each pair of classes, on held-out rows."""

    def __init__(self, S: FloatArray, X: FloatArray, codes: IntArray) -> None:
        self.S = S
        self.X = X
        self.codes = codes
        self.matrix = np.zeros_like(S)

    def watch(self, network: nn.Module) -> None:
        """Compare mean posteriors within each class with S."""
        P = posteriors(network, self.X)
        classes = range(len(self.S))
        confusion = np.array([P[self.codes == c].mean(axis=0) for c in classes])
        self.matrix = np.maximum(confusion - self.S, 0.0)
        np.fill_diagonal(self.matrix, 0.0)

    def of_both_classes(self) -> FloatArray:
        """By class: as the first and as the second of a confused pair."""
        return self.matrix.sum(axis=1) + self.matrix.sum(axis=0)

    def of_true_class(self) -> FloatArray:
        """By class: as the first of a confused pair."""
        return np.asarray(self.matrix.sum(axis=1))

    def of_none(self) -> FloatArray:
        """By class: nothing."""
        return np.zeros(len(self.S))

    def cost(self, logits: Tensor, codes: IntArray) -> Tensor:
        """Mean of excess · -log(1 - p_j) over rows of these classes."""
        share = torch.tensor(self.matrix[codes], dtype=torch.float32)
        P = torch.softmax(logits, -1).clamp(max=1 - 1e-6)
        confused = -torch.log1p(-P)
        return (share * confused).sum(1).mean()


def sampling(cell: Cell) -> Result:
    """More rows, or a larger loss, where a pair is confused beyond S, as the paper describes both.

    ``both classes`` draws both classes of a confused pair more often, ``true class`` only the
    first of the two, and ``cost`` adds excess · -log(1 - p_j) to the loss of a row of class i for
    every j that it is confused with. The confusion is that of held-out rows (mean posteriors), S
    is the true one.
    """
    problem = imbalanced(4, 20.0, random_state=0)
    S = problem.collision_matrix().matrix
    k = len(S)
    seed = cell["seed"]
    strength = cell["strength"]
    X, codes = problem.sample(cell["rows"], seed)
    watched = problem.sample(cell["rows"] // 2, 500_000 + seed)
    X_new, codes_new = problem.sample(4_000, 1_000_000 + seed)
    weighed = {
        "as it comes": Excess.of_none,
        "both classes": Excess.of_both_classes,
        "true class": Excess.of_true_class,
        "cost": Excess.of_none,
    }
    found = {}
    for name, more_of in weighed.items():
        excess = Excess(S, *watched)

        def draw(
            rng: np.random.Generator,
            excess: Excess = excess,
            more_of: Callable[[Excess], FloatArray] = more_of,
        ) -> IntArray:
            weights = 1 + strength * more_of(excess)
            chance = weights[codes]
            return rng.choice(len(codes), len(codes), p=chance / chance.sum())

        def cost(logits: Tensor, rows: IntArray, excess: Excess = excess) -> Tensor:
            return strength * excess.cost(logits, codes[rows])

        network = train(
            X,
            np.eye(k)[codes],
            cell["epochs"],
            seed,
            draw=draw,
            after_epoch=excess.watch,
            extra_loss=cost if name == "cost" else None,
        )
        found[name] = scores(posteriors(network, X_new), codes_new, k)
    return found


def sampling_cells() -> list[Cell]:
    """Four uneven classes on a line."""
    shared = {"rows": 600, "strength": 5.0, "epochs": 30}
    return [shared | {"seed": seed} for seed in range(12)]
