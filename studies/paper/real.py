"""Real data in small: MNIST at 14 × 14 and one of the paper's tables, from the folder ``COLLIDESCOPE_DATA``.

Without that folder these studies are left out. The full sizes are those of the older record (ResNet-18, all rows).
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from collidescope import CollisionMatrix
from collidescope.pairwise.printed import PrintedSettings
from studies.paper import rows
from studies.store import Cell, Result

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]


def data_folder() -> Path | None:
    """Where the data are, if anywhere."""
    named = os.environ.get("COLLIDESCOPE_DATA")
    return Path(named) if named else None


def sample_of_each(codes: IntArray, per_class: int, seed: int) -> IntArray:
    """Row numbers, as many of every class."""
    rng = np.random.default_rng(seed)
    classes = np.unique(codes)
    drawn = [
        rng.choice(np.flatnonzero(codes == c), per_class, replace=False)
        for c in classes
    ]
    return np.concatenate(drawn)


# ------------------------------------------------------------------------------------------ MNIST


def images(cell: Cell) -> Result:
    """The largest pairs of digits by each method."""
    folder = data_folder()
    if folder is None:
        raise FileNotFoundError("set COLLIDESCOPE_DATA to the folder that holds mnist/")
    raw = gzip.decompress(
        (folder / "mnist" / "train-images-idx3-ubyte.gz").read_bytes()
    )
    labels = gzip.decompress(
        (folder / "mnist" / "train-labels-idx1-ubyte.gz").read_bytes()
    )
    pictures = np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 14, 2, 14, 2)
    digits = np.frombuffer(labels, np.uint8, offset=8).astype(np.intp)
    chosen = sample_of_each(digits, cell["per_digit"], cell["seed"])
    X = pictures[chosen].mean(axis=(2, 4)).reshape(len(chosen), -1) / 255
    settings = PrintedSettings(
        hidden_layer_sizes=(128, 128),
        max_epochs=cell["max_epochs"],
        pairs_per_entry=5_000,
        step_size=1e-3,
        tolerance=2e-3,
        max_steps=20_000,
    )
    data = rows.Data(X, digits[chosen], 10, X[:1])
    found = {
        **rows.trained_on_all(data, settings, cell["seed"]),
        **rows.cross_fitted(data, settings, cell["seed"]),
    }
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


def image_cells(quick: bool) -> list[Cell]:
    """300 images of each digit when quick."""
    if data_folder() is None:
        return []
    if quick:
        return [{"per_digit": 150, "max_epochs": 40, "seed": 0}]
    return [{"per_digit": 5_000, "max_epochs": 200, "seed": seed} for seed in range(3)]


# ------------------------------------------------------------------------------------------ a table


def tables(cell: Cell) -> Result:
    """Diabetes: recall and precision of the probabilistic Bayes classifier decided at uniform priors."""
    folder = data_folder()
    if folder is None:
        raise FileNotFoundError(
            "set COLLIDESCOPE_DATA to the folder that holds diabetes/"
        )
    with np.load(
        folder / "diabetes" / "brfss2015_012.npz", allow_pickle=False
    ) as arrays:
        X = arrays["X"].astype(np.float64)
        codes = (arrays["y"] == 2).astype(np.intp)
    share = float(codes.mean())
    population = np.array([1 - share, share])
    chosen = sample_of_each(codes, cell["per_class"], cell["seed"])
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    settings = PrintedSettings(
        hidden_layer_sizes=(60,) * 2,
        max_epochs=cell["max_epochs"],
        pairs_per_entry=20_000,
        step_size=1e-3,
        tolerance=2e-3,
        max_steps=20_000,
    )
    data = rows.Data(X[chosen], codes[chosen], 2, X[:1])
    found = {
        **rows.trained_on_all(data, settings, cell["seed"]),
        **rows.cross_fitted(data, settings, cell["seed"]),
        rows.OURS: rows.ours(data, cell["seed"]),
    }
    return {name: rates(row.matrix, population) for name, row in found.items()}


def rates(S: FloatArray, population: FloatArray) -> Result:
    """Recall and precision of class 1; rows are made to sum to 1 first, as a rate must."""
    positive = np.maximum(S, 0)
    stochastic = positive / positive.sum(axis=1, keepdims=True)
    cm = CollisionMatrix(stochastic, np.array([0.5, 0.5]))
    return {
        "recall": float(cm.recall()[1]),
        "precision": float(cm.precision(population)[1]),
        "row_sum": float(S.sum(axis=1).mean()),
    }


def table_cells(quick: bool) -> list[Cell]:
    """Diabetes, as many rows of both classes."""
    if data_folder() is None:
        return []
    shared = {"per_class": 500 if quick else 30_000, "max_epochs": 15 if quick else 100}
    return [shared | {"seed": seed} for seed in range(1 if quick else 3)]
