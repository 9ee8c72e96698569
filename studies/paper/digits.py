"""MNIST with the paper's ResNet-18 for pairs, trained to its end.

``printed`` trains one V on all images for a fixed number of epochs and averages over them.
``fold`` trains V on four fifths until its held-out risk stops falling, and averages over the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from collidescope import recover
from collidescope.pairwise.pairs import PairObjective
from collidescope.pairwise.printed import PrintedSettings, TwoOutputs, solve_printed
from collidescope.pairwise.scoring import PairwiseNetwork
from collidescope.training.config import TrainingConfig
from collidescope.training.loop import fit_loop, seeded_module
from collidescope.training.rows import Split, as_rows, stratified_split
from studies.paper.real import largest_pairs
from studies.paper.rows import FloatArray, IntArray, shifted
from studies.paper.stacked import DEVICE, FOLDS, cuda_devices
from studies.real_data import load_mnist
from studies.reproduction.mnist import doubt, quality
from studies.reproduction.mnist_networks import resnet18
from studies.store import Cell, Result

#: Images scored at once.
SCORED = 8192 if DEVICE.startswith("cuda") else 512
#: Points of each class that an image is compared with.
POINTS = 20


def images(part: str, limit: int) -> tuple[Tensor, IntArray]:
    """Grey values between 0 and 1 with one channel, and digits, on the device."""
    pictures, digits = load_mnist(part)
    values = pictures[:limit, None].astype(np.float32) / 255
    return torch.from_numpy(values).to(DEVICE), digits[:limit]


def config_of(cell: Cell) -> TrainingConfig:
    """Adam at the rate of the other networks; no decay."""
    return TrainingConfig(
        max_epochs=cell["max_epochs"],
        patience=cell["patience"],
        batch_size=cell["batch_size"],
        learning_rate=1e-3,
        weight_decay=0.0,
        device=DEVICE,
    )


def network(cell: Cell) -> PairwiseNetwork:
    """The paper's ResNet-18 with two channels and two outputs."""
    return PairwiseNetwork(TwoOutputs(resnet18(2, 2, cell["width"])))


class Similarity:
    """V of ordered pairs of images."""

    def __init__(self, module: PairwiseNetwork) -> None:
        self.module = module

    def pairs(self, A: Tensor, B: Tensor, i: IntArray, j: IntArray) -> FloatArray:
        """V of the images i of A with the images j of B beside them."""
        first = torch.split(torch.from_numpy(i).to(A.device), SCORED)
        second = torch.split(torch.from_numpy(j).to(A.device), SCORED)
        parts = []
        with torch.inference_mode():
            for a, b in zip(first, second, strict=True):
                logits = self.module.one_way(A[a], B[b])
                parts.append(torch.sigmoid(logits.double()))
        return torch.cat(parts).cpu().numpy()

    def to_classes(
        self, A: Tensor, B: Tensor, codes: IntArray, seed: int
    ) -> FloatArray:
        """V of every image of A with random images of each class of B, (a, K, points)."""
        rng = np.random.default_rng(seed)
        k = int(codes.max()) + 1
        found = np.empty((len(A), k, POINTS))
        every = np.arange(len(A))
        for c in range(k):
            members = np.flatnonzero(codes == c)
            for point in range(POINTS):
                others = rng.choice(members, len(A))
                found[:, c, point] = self.pairs(A, B, every, others)
        return found


def gramians(
    V: Similarity, X: Tensor, codes: IntArray, pairs: int, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Step B with m pairs for each entry: of V, and of the shifted V."""
    rng = np.random.default_rng(seed)
    places = [np.flatnonzero(codes == c) for c in range(int(codes.max()) + 1)]
    k = len(places)
    G = np.empty((2, k, k))
    for i in range(k):
        for j in range(k):
            first = rng.choice(places[i], pairs)
            second = rng.choice(places[j], pairs)
            scores = V.pairs(X, X, first, second)
            G[0, i, j] = scores.mean()
            G[1, i, j] = shifted(scores, k).mean()
    return G[0], G[1]


def read(G: FloatArray, max_steps: int) -> Result:
    """The largest pairs by the paper's descent and by the root."""
    settings = replace(PrintedSettings(), max_steps=max_steps)
    descent = settings.descend(G)
    return {
        "gramian": G.tolist(),
        "S": descent.matrix.tolist(),
        "descent": largest_pairs(descent.matrix),
        "converged": descent.converged,
        "root": largest_pairs(recover(G).matrix),
    }


def trained(
    cell: Cell, split: Split, X: Tensor, codes: IntArray, watch: Callable[[Any], None]
) -> tuple[PairwiseNetwork, Any]:
    """V, trained on one part of the images and watched on the other."""
    y = torch.from_numpy(codes.astype(np.int64)).to(DEVICE)
    config = config_of(cell)
    objective = PairObjective(as_rows(X, DEVICE), y, split, config, cell["seed"])
    module = seeded_module(lambda: network(cell), cell["seed"])
    assert isinstance(module, PairwiseNetwork)

    def told(entry: dict[str, Any]) -> None:
        with torch.random.fork_rng(devices=cuda_devices()):
            watch((entry, module))

    run = fit_loop(module, objective, config, cell["seed"], progress=told)
    return module, run


def printed(cell: Cell, looks: Sequence[int]) -> Iterator[tuple[int, Result]]:
    """One V on all images, looked at after each of the epochs."""
    X, codes = images("train", cell["images"])
    X_new, codes_new = images("test", cell["images"] // 6)
    found: list[tuple[int, Result]] = []
    losses: list[float] = []
    started = time.perf_counter()

    def watch(told: tuple[dict[str, Any], PairwiseNetwork]) -> None:
        entry, module = told
        losses.append(entry["train_loss"])
        print(f"{entry['epoch']}: {entry['train_loss']:.4f}", flush=True)
        if entry["epoch"] not in looks:
            return
        V = Similarity(module.eval())
        plain, similar = gramians(V, X, codes, cell["pairs"], cell["seed"])
        result = {"printed": read(plain, cell["max_steps"])}
        result["shift"] = read(similar, cell["max_steps"])
        scores = V.to_classes(X_new, X, codes, cell["seed"])
        S = np.array(result["printed"]["S"])
        P = solve_printed(S, scores.mean(axis=2))
        result["test"] = quality(P, codes_new) | doubt(P, codes_new)
        result |= {
            "losses": list(losses),
            "train_seconds": time.perf_counter() - started,
        }
        found.append((entry["epoch"], result))
        for listener in LISTENER:
            listener(found[-1])

    everything = torch.arange(len(codes), device=DEVICE)
    trained(cell, (everything, everything[:0]), X, codes, watch)
    yield from found


#: Told of every look as soon as it is there.
LISTENER: list[Callable[[tuple[int, Result]], None]] = []


def fold(cell: Cell) -> Result:
    """V on four fifths, to its end; Ĝ of the held-out fifth."""
    X, codes = images("train", cell["images"])
    splitter = StratifiedKFold(FOLDS, shuffle=True, random_state=cell["seed"])
    training, test = list(splitter.split(codes, codes))[cell["fold"]]
    y = torch.from_numpy(codes[training].astype(np.int64)).to(DEVICE)
    split = stratified_split(y, 0.1, cell["seed"])

    def watch(told: tuple[dict[str, Any], PairwiseNetwork]) -> None:
        entry, _ = told
        print(f"{entry['epoch']}: {entry['val_loss']:.4f}", flush=True)

    own = torch.from_numpy(training).to(DEVICE)
    module, run = trained(cell, split, X[own], codes[training], watch)
    V = Similarity(module.eval())
    held_out = X[torch.from_numpy(test).to(DEVICE)]
    plain, similar = gramians(V, held_out, codes[test], cell["pairs"], cell["seed"])
    return {
        "gramian": plain.tolist(),
        "shifted": similar.tolist(),
        "epochs": len(run.history),
        "ended": len(run.history) < cell["max_epochs"],
        "losses": [entry["val_loss"] for entry in run.history],
    }


def cells(quick: bool) -> list[Cell]:
    """Three samples as printed; the five folds of each."""
    shared = {"images": 60_000, "width": 64, "batch_size": 256}
    shared |= {"pairs": 20_000, "max_steps": 50_000}
    epochs: Sequence[int] = EPOCHS
    if quick:
        shared = {"images": 600, "width": 4, "batch_size": 64}
        shared |= {"pairs": 20, "max_steps": 100}
        epochs = (1,)
    found: list[Cell] = []
    seeds = range(1 if quick else 3)
    for seed in seeds:
        for each in epochs:
            own = {"part": "digits", "seed": seed, "max_epochs": each, "patience": 0}
            found.append(own | shared)
    longest = 1 if quick else 200
    for seed in seeds:
        for number in range(1 if quick else FOLDS):
            own = {"part": "digits fold", "seed": seed, "fold": number}
            own |= {"max_epochs": longest, "patience": 6}
            found.append(own | shared)
    return found


#: Where one training is looked at.
EPOCHS = (5, 10, 20, 40)


def run(cell: Cell) -> Result:
    """One V."""
    if cell["part"] == "digits fold":
        return fold(cell)
    ((_, result),) = printed(cell, [cell["max_epochs"]])
    return result
