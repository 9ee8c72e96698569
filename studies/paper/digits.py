"""MNIST with the paper's ResNet-18 for pairs: one V on all images, and averages over them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from collidescope import recover
from collidescope.pairwise.pairs import balanced_risk
from collidescope.pairwise.printed import (
    Contrast,
    PrintedSettings,
    TwoOutputs,
    expected_similarity,
    solve_printed,
    step_b,
)
from collidescope.pairwise.scoring import PairwiseNetwork
from collidescope.training.recording import half_precision
from studies.paper import together
from studies.paper.at_size import DEVICE
from studies.paper.real import largest_pairs
from studies.paper.rows import FloatArray, IntArray, Shifted
from studies.real_data import load_mnist
from studies.reproduction.mnist import Data, ambiguous_images, doubt, plain, quality
from studies.reproduction.mnist_networks import resnet18
from studies.store import Cell, Result

DIGITS = 10
#: Points of each class that an image is compared with.
POINTS = 20
#: The run whose ambiguous images are kept.
SHOWN_RUN = 0


@dataclass(frozen=True)
class OfImages:
    """V of two images of a set that stays on the device; they are given by number."""

    network: PairwiseNetwork
    images: Tensor

    def pairs(self, A: IntArray, B: IntArray, at_once: int = 8192) -> FloatArray:
        """V of the first of A with the first of B, the second with the second …"""
        place = self.images.device
        first = torch.from_numpy(np.asarray(A)).to(place).split(at_once)
        second = torch.from_numpy(np.asarray(B)).to(place).split(at_once)
        scores = []
        with torch.inference_mode(), half_precision(place):
            for a, b in zip(first, second, strict=True):
                logits = self.network.one_way(self.images[a], self.images[b])
                scores.append(torch.sigmoid(logits.double()))
        return torch.cat(scores).cpu().numpy()

    def grid(self, A: IntArray, B: IntArray) -> FloatArray:
        """V of every one of A with every one of B."""
        scores = self.pairs(np.repeat(A, len(B)), np.tile(B, len(A)))
        return scores.reshape(len(A), len(B))


def grey(images: FloatArray) -> Tensor:
    """Grey values between 0 and 1 with one channel, on the device."""
    return torch.from_numpy(images[:, None] / np.float32(255)).to(DEVICE)


def trained(
    images: Tensor, digits: IntArray, cell: Cell
) -> Iterator[tuple[int, PairwiseNetwork]]:
    """After every epoch, V of all images."""
    seed = cell["seed"]
    torch.manual_seed(seed)
    network = PairwiseNetwork(TwoOutputs(resnet18(2, 2, cell["width"]))).to(DEVICE)
    labels = torch.from_numpy(digits.astype(np.int64)).to(DEVICE)
    pairs = together.BalancedPairs(together.Samples(images, labels[None], DIGITS))
    generator = torch.Generator(device=images.device).manual_seed(seed)
    steps, size = together.steps_of_an_epoch(len(digits), cell["batch_size"])

    def loss(batch: Tensor) -> Tensor:
        i, j, same = batch
        with half_precision(images.device):
            logits = network.one_way(images[i], images[j])
        return balanced_risk(logits.float(), same.float())

    def epochs() -> Iterator[Sequence[Tensor]]:
        for _ in range(cell["looks"][-1]):
            drawn = pairs.draw(generator)[:, 0, : steps * size]
            yield drawn.split(size, dim=1)

    rate = PrintedSettings.learning_rate
    for epoch in together.train(network, loss, epochs(), rate):
        yield epoch, network


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
    """As printed and with the logit shift, after some of the epochs."""
    pictures, digits = load_mnist("train")
    new_pictures, new_digits = load_mnist("test")
    n = cell["images"]
    n_new = n // 6
    data = Data(pictures[:n], digits[:n], new_pictures[:n_new], new_digits[:n_new])
    images = torch.cat([grey(data.images), grey(data.test_images)])
    settings = PrintedSettings(max_steps=cell["max_steps"])
    looks: Result = {}
    started = time.perf_counter()
    risks = []
    for epoch, network in trained(images[:n], data.labels, cell):
        risks.append(held_out_risk(network, images, data, cell["seed"]))
        if epoch in cell["looks"]:
            seconds = time.perf_counter() - started
            V = OfImages(network, images)
            told, P = look(V, data, settings, cell)
            told |= {"train_seconds": seconds, "held_out_risk": risks[-1]}
            looks[str(epoch)] = told
    told["held_out_risks"] = risks
    if cell["seed"] == SHOWN_RUN:
        new = data._replace(images=data.test_images, labels=data.test_labels)
        told["images"] = ambiguous_images(P, new, ())
        told["shape"] = data.images.shape[1:]
    return {str(cell["seed"]): plain(looks)}


def held_out_risk(
    network: PairwiseNetwork, images: Tensor, data: Data, seed: int
) -> float:
    """The risk (32) on pairs of test images: does training still help?"""
    n = len(data.labels)
    labels = torch.from_numpy(data.test_labels.astype(np.int64)).to(images.device)
    samples = together.Samples(images[n:], labels[None], DIGITS)
    generator = torch.Generator(device=images.device).manual_seed(seed)
    i, j, same = together.BalancedPairs(samples).draw(generator)[:, 0]
    with torch.inference_mode(), half_precision(images.device):
        logits = [
            network.one_way(images[n + a], images[n + b])
            for a, b in zip(i.split(8192), j.split(8192), strict=True)
        ]
        risk = balanced_risk(torch.cat(logits).float(), same.float())
    return float(risk)


def look(
    V: OfImages, data: Data, settings: PrintedSettings, cell: Cell
) -> tuple[Result, FloatArray]:
    """S by both readings; posteriors of the test images by Algorithm 2."""
    n = len(data.labels)
    parts = [np.flatnonzero(data.labels == digit) for digit in range(DIGITS)]
    readings: dict[str, Contrast] = {"printed": V, "shift": Shifted(V, DIGITS)}
    seed = cell["seed"]
    result: Result = {}
    for name, contrast in readings.items():
        G = step_b(contrast, parts, cell["pairs"], np.random.default_rng(seed))
        result[name] = read(G, settings)
    rng = np.random.default_rng(seed)
    points = [rng.permutation(part)[:POINTS] for part in parts]
    q = expected_similarity(V, n + np.arange(len(data.test_labels)), points)
    P = solve_printed(result["printed"]["S"], q)
    y = data.test_labels
    result["test"] = quality(P, y) | doubt(P, y)
    return result, P


def cells(quick: bool) -> list[Cell]:
    """Three trainings."""
    shared = {"images": 60_000, "width": 64, "batch_size": 256, "pairs": 20_000}
    shared |= {"max_steps": 50_000}
    looks = [5, 10, 20, 40, 80]
    seeds = range(3)
    if quick:
        shared = {"images": 600, "width": 4, "batch_size": 64, "pairs": 20}
        shared |= {"max_steps": 100}
        looks = [1]
        seeds = range(1)
    return [{"part": "digits", "seed": s, "looks": looks, **shared} for s in seeds]
