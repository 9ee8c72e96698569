"""MNIST with the paper's ResNet-18 for pairs: one V on all images, and averages over them."""

from __future__ import annotations

import time

import numpy as np
from torch import nn

from collidescope import recover
from collidescope.pairwise.printed import (
    Contrast,
    PrintedSettings,
    expected_similarity,
    solve_printed,
    step_a,
    step_b,
)
from studies.paper.at_size import DEVICE
from studies.paper.real import largest_pairs
from studies.paper.rows import FloatArray, IntArray, Shifted
from studies.real_data import load_mnist
from studies.reproduction.mnist import doubt, plain, quality
from studies.reproduction.mnist_networks import resnet18
from studies.store import Cell, Result

DIGITS = 10
#: Points of each class that an image is compared with.
POINTS = 20


def images(part: str, limit: int) -> tuple[FloatArray, IntArray]:
    """Grey values between 0 and 1 with one channel, and digits."""
    pictures, digits = load_mnist(part)
    return pictures[:limit, None] / 255.0, digits[:limit]


def read(G: FloatArray, settings: PrintedSettings) -> Result:
    """The largest pairs by the paper's descent and by the root."""
    descent = settings.descend(G)
    return {
        "gramian": G.tolist(),
        "S": descent.matrix.tolist(),
        "descent": largest_pairs(descent.matrix),
        "converged": descent.converged,
        "root": largest_pairs(recover(G).matrix),
    }


def run(cell: Cell) -> Result:
    """As printed and with the logit shift, after each of the epochs."""
    X, codes = images("train", cell["images"])
    X_new, codes_new = images("test", cell["images"] // 6)
    parts = [X[codes == digit] for digit in range(DIGITS)]
    seed = cell["seed"]
    settings = PrintedSettings(
        max_epochs=cell["looks"][-1],
        batch_size=cell["batch_size"],
        max_steps=cell["max_steps"],
        device=DEVICE,
    )
    looks: Result = {}
    started = time.perf_counter()

    def network(n_in: int, n_out: int) -> nn.Module:
        return resnet18(n_in, n_out, cell["width"])

    def watch(epoch: int, V: Contrast) -> None:
        if epoch not in cell["looks"]:
            return
        result: Result = {"train_seconds": time.perf_counter() - started}
        similarity = Shifted(V, DIGITS)
        readings: dict[str, Contrast] = {"printed": V, "shift": similarity}
        for name, contrast in readings.items():
            rng = np.random.default_rng(seed)
            G = step_b(contrast, parts, cell["pairs"], rng)
            result[name] = read(G, settings)
        rng = np.random.default_rng(seed)
        points = [rng.permutation(part)[:POINTS] for part in parts]
        q = expected_similarity(V, X_new, points)
        P = solve_printed(result["printed"]["S"], q)
        result["test"] = quality(P, codes_new) | doubt(P, codes_new)
        looks[str(epoch)] = plain(result)

    step_a(X, codes, settings, seed, network, watch)
    return looks


def cells(quick: bool) -> list[Cell]:
    """Three trainings."""
    shared = {"images": 60_000, "width": 64, "batch_size": 256, "pairs": 20_000}
    shared |= {"max_steps": 50_000}
    looks = [5, 10]
    seeds = range(3)
    if quick:
        shared = {"images": 600, "width": 4, "batch_size": 64, "pairs": 20}
        shared |= {"max_steps": 100}
        looks = [1]
        seeds = range(1)
    return [{"part": "digits", "seed": s, "looks": looks, **shared} for s in seeds]
