"""Real data in small: MNIST at 14 × 14 and the paper's four tables.

They are read from the folder that ``COLLIDESCOPE_DATA`` names; without it these experiments are
left out.
"""

from __future__ import annotations

import numpy as np

from collidescope import CollisionMatrix
from collidescope.pairwise.printed import PrintedSettings
from studies.paper import rows
from studies.paper.rows import FloatArray, IntArray
from studies.paper.scenarios import SEEDS, SMALL, settings_of, stochastic
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
