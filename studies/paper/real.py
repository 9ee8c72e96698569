"""Real data: MNIST at 14 × 14 and the paper's four tables, in small and by the paper's protocol.

They are read from the folder that ``COLLIDESCOPE_DATA`` names; without it these experiments are
left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from torch import Tensor

from collidescope import CollisionMatrix
from collidescope.pairwise.printed import PrintedSettings, step_b
from collidescope.training.config import TrainingConfig
from collidescope.training.networks import StackedMLP
from studies.paper import rows, together
from studies.paper.rows import FloatArray, IntArray
from studies.paper.scenarios import SEEDS, SMALL, settings_of, stochastic
from studies.paper.together import Samples
from studies.real_data import load_mnist
from studies.reproduction import tabular
from studies.store import Cell, Result


def sample_of_each(codes: IntArray, per_class: int, seed: int) -> IntArray:
    """Row numbers, as many of every class."""
    rng = np.random.default_rng(seed)
    drawn = []
    for c in np.unique(codes):
        members = np.flatnonzero(codes == c)
        drawn.append(rng.choice(members, per_class, replace=False))
    return np.concatenate(drawn)


def by_pairs(
    data: rows.Data, settings: PrintedSettings, seed: int
) -> dict[str, rows.Row]:
    """Every method that trains a V."""
    printed = rows.trained_verbatim(data, settings, seed)
    found = rows.read_verbatim(printed, settings)
    return found | rows.cross_fitted(data, settings, seed)


# ------------------------------------------------------------------------------------------
# MNIST


def images(cell: Cell) -> Result:
    """The largest pairs of digits by each method."""
    pictures, digits = load_mnist()
    chosen = sample_of_each(digits, cell["per_digit"], cell["seed"])
    blocks = pictures[chosen].reshape(-1, 14, 2, 14, 2)
    small = blocks.mean(axis=(2, 4)) / 255
    X = small.reshape(len(chosen), -1)
    data = rows.Data(X, digits[chosen], 10, X[:1])
    found = by_pairs(data, settings_of(cell), cell["seed"])
    return {name: largest_pairs(row.matrix) for name, row in found.items()}


def largest_pairs(S: FloatArray) -> Result:
    """The four pairs that collide most often (mean of both directions), and S of 4 and 9."""
    both = np.triu((S + S.T) / 2, 1)
    order = np.argsort(-both, axis=None)[:4]
    pairs = [[int(k) for k in np.unravel_index(place, both.shape)] for place in order]
    return {
        "pairs": pairs,
        "values": [float(both[i, j]) for i, j in pairs],
        "above_0.01": int((both > 0.01).sum()),
        "four_nine": float(S[4, 9]),
        "row_sum": float(S.sum(axis=1).mean()),
    }


def image_cells() -> list[Cell]:
    """150 images of each digit."""
    if not tabular.has_data():
        return []
    settings = SMALL | {"hidden_layer_sizes": [128, 128], "pairs_per_entry": 5_000}
    settings["max_epochs"] = 40
    return [{"per_digit": 150, "settings": settings, "seed": 0}]


# ------------------------------------------------------------------------------------------
# tables


def table_data(cell: Cell) -> tuple[rows.Data, FloatArray]:
    """As many rows of both classes, the rarer as class 1; and the shares in the population."""
    table, labels = tabular.load(cell["dataset"])
    names, codes = np.unique(labels, return_inverse=True)
    rarer = int(np.bincount(codes).argmin())
    codes = (codes == rarer).astype(np.intp)
    share = float(codes.mean())
    chosen = sample_of_each(codes, cell["per_class"], cell["seed"])
    X = tabular.encode(table.iloc[chosen]).astype(np.float64)
    centred = X - X.mean(axis=0)
    spread = X.std(axis=0)
    X = centred / np.where(spread > 0, spread, 1.0)
    data = rows.Data(X, codes[chosen], len(names), X[:1])
    return data, np.array([1 - share, share])


def tables(cell: Cell) -> Result:
    """Recall and precision of the probabilistic classifier, decided at uniform priors."""
    data, population = table_data(cell)
    found = by_pairs(data, settings_of(cell), cell["seed"])
    return {name: rates(row.matrix, population) for name, row in found.items()}


def table_pool(cell: Cell) -> Result:
    """The same of the package's default."""
    data, population = table_data(cell)
    S = rows.ours(data, cell["seed"]).matrix
    return {rows.OURS: rates(S, population)}


def rates(S: FloatArray, population: FloatArray) -> Result:
    """Recall and precision of class 1; rows are made to sum to 1 first, as a rate must."""
    cm = CollisionMatrix(stochastic(S), np.array([0.5, 0.5]))
    return {
        "recall": float(cm.recall()[1]),
        "precision": float(cm.precision(population)[1]),
        "row_sum": float(S.sum(axis=1).mean()),
    }


def table_cells() -> list[Cell]:
    """The paper's four tables; German credit has 300 rows of its rarer class."""
    if not tabular.has_data():
        return []
    settings = SMALL | {"hidden_layer_sizes": [60, 60], "max_epochs": 15}
    return [
        {"dataset": name, "per_class": 300, "settings": settings, "seed": seed}
        for name in ("diabetes", "adult", "law school", "German credit")
        for seed in SEEDS
    ]


def table_pool_cells() -> list[Cell]:
    """The samples of the tables."""
    return [
        {name: cell[name] for name in ("dataset", "per_class", "seed")}
        for cell in table_cells()
    ]


# ------------------------------------------------------------------------------------------
# tables by the paper's protocol: 80% to train on, 10% to watch

#: Pairs of each watched row, on which the accuracy of V is watched.
WATCHED_PAIRS = 4


class Parts(NamedTuple):
    """Rows that V is trained on, and rows on which its accuracy is watched."""

    train: rows.Data
    watched: rows.Data


def split(X: FloatArray, codes: IntArray, seed: int) -> Parts:
    """80% and 10% of the rows; the paper tests on the rest, which Algorithm 1 does not need."""
    train, rest = train_test_split(
        np.arange(len(codes)), test_size=0.2, stratify=codes, random_state=seed
    )
    watched, _ = train_test_split(
        rest, test_size=0.5, stratify=codes[rest], random_state=seed
    )
    whole = rows.Data(X[train], codes[train], 2, X[watched])
    scaled = together.standardised(whole)
    return Parts(scaled, rows.Data(scaled.X_new, codes[watched], 2, X[:1]))


def split_tables(cell: Cell, device: str) -> Result:
    """Recall and precision as printed, by sample, after as many epochs as each was trained."""
    table, labels = tabular.load(cell["dataset"])
    codes = np.unique(labels, return_inverse=True)[1]
    rarer = int(np.bincount(codes).argmin())
    codes = (codes == rarer).astype(np.intp)
    share = float(codes.mean())
    X = tabular.encode(table).astype(np.float64)
    parts = [split(X, codes, seed) for seed in cell["seeds"]]
    settings = settings_of({"settings": cell["settings"]})
    config = replace(settings.training(), dropout=cell["dropout"])
    found = stopped(parts, config, cell["patience"], device)
    result: Result = {}
    for part, seed, (epochs, network) in zip(parts, cell["seeds"], found, strict=True):
        V = together.contrast(network)
        rng = np.random.default_rng(seed)
        G = step_b(V, part.train.by_class(), settings.pairs_per_entry, rng)
        told = rates(settings.descend(G).matrix, np.array([1 - share, share]))
        result[str(seed)] = {str(epochs): {rows.PRINTED: told}}
    return result


def stopped(
    parts: Sequence[Parts], config: TrainingConfig, patience: int, device: str
) -> list[tuple[int, StackedMLP]]:
    """V of each sample at the epoch from which on its accuracy has ceased to grow."""
    watched = Samples.of([part.watched for part in parts], device)
    generator = torch.Generator(device=device).manual_seed(0)
    pairs = together.BalancedPairs(watched)
    drawn = [pairs.draw(generator) for _ in range(WATCHED_PAIRS)]
    best: list[tuple[int, StackedMLP]] = []
    highest = torch.zeros(len(parts), device=device)
    samples = Samples.of([part.train for part in parts], device)
    for epoch, networks in together.pair_networks(samples, config, 0):
        accuracy = torch.stack([right(networks, watched, each) for each in drawn])
        now = accuracy.mean(0)
        for m, better in enumerate((now > highest).tolist()):
            if better:
                kept = (epoch, together.member(networks, m))
                best[m : m + 1] = [kept]
        highest = torch.maximum(highest, now)
        if all(epoch - at >= patience for at, _ in best):
            break
    return best


def right(networks: StackedMLP, samples: Samples, pairs: Tensor) -> Tensor:
    """Share of the pairs that each V tells right, (M,)."""
    i, j, same = pairs
    with torch.inference_mode():
        both = torch.cat([samples.inputs(i), samples.inputs(j)], dim=2)
        different, alike = networks(both).unbind(2)
    return ((alike > different) == same.bool()).float().mean(1)


def split_cells(quick: bool) -> list[Cell]:
    """The paper's four tables; German credit with wider layers and dropout, as the paper has it."""
    if not tabular.has_data():
        return []
    usual = {"hidden_layer_sizes": [60] * 5, "max_epochs": 100}
    wide = {"hidden_layer_sizes": [120] * 5, "max_epochs": 500}
    pairs = {"pairs_per_entry": 20_000}
    found = []
    for name in ("diabetes", "adult", "law school", "German credit"):
        own = usual | pairs
        about = {"dropout": 0.0, "patience": 5}
        if name == "German credit":
            own = wide | pairs
            about = {"dropout": 0.2, "patience": 50}
        cell = {"part": "tables", "dataset": name, "seeds": list(range(10))}
        found.append(cell | about | {"settings": own})
    if not quick:
        return found
    last = found[-1]
    tiny = {"hidden_layer_sizes": [8], "max_epochs": 3, "max_steps": 100}
    return [last | {"seeds": [0, 1], "settings": last["settings"] | tiny}]
