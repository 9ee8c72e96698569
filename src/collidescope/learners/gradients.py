"""Kernel machine on the directions of edges: for images, learned in seconds.

Symbols: images of shape (n, C, H, W), B directions, cells of about 6 × 6 pixels. Every pixel has
the gradient of the channel where it is largest. Its length is shared between the two nearest of B
directions and between the nearest cells, and divided by the length of all gradients around the
cell, so that contrast does not matter (histograms of oriented gradients, Dalal and Triggs 2005);
roots of these shares follow, as distances between roots suit histograms. The mean of every channel
in every cell, with half their spread, tells colours and brightness. A
:class:`~collidescope.learners.kernel.Kernel` learns from these features.

With logits z posteriors are (1 - ν) softmax(z) + ν / K: where some labels are wrong at random, a
softmax alone would flatten all posteriors for the sake of those few. The share ν and how much
sharper z then is follow from the scores that leave out the own image.

With few images this is better than a network, and the cost is next to nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated, Any, ClassVar

import numpy as np

from collidescope._checks import IntArray
from collidescope.learners.base import (
    Fitted,
    Float32,
    FloatArray,
    Task,
    Tree,
    by_blocks,
    double,
    floored,
    log_softmax,
    single,
)
from collidescope.learners.kernel import FittedKernel, Floats, Kernel, evidence

N_DIRECTIONS = 12
NOISES = (0.0, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.16, 0.2, 0.25, 0.3, 0.4)
SHARPER = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0)
LARGEST_SIDE = 32  #: images with a longer side are scaled down to it


@dataclass(frozen=True)
class FittedGradients(FittedKernel):
    """A kernel machine, and the scale of its features."""

    images: ClassVar[bool] = True

    #: three of the evidence, and the share of labels that are wrong at random
    calibration: Annotated[FloatArray, "f8 4"]
    faint: Annotated[float, 0.0, 1e30]  #: is added to lengths: no edge is no direction
    brightness: Annotated[float, 0.0, 1e30]  #: factor of the means

    @property
    def row_numbers(self) -> int:
        temporary = 40  # a feature; more than pixels take
        return super().row_numbers + temporary * len(self.spread)

    def score(self, x: Float32) -> FloatArray:
        rows = features(x, self.faint, self.brightness)
        return log_posteriors(self.evidence(rows), self.calibration)


@dataclass(frozen=True)
class Gradients(Kernel):
    """Gaussian kernel machine on histograms of the directions of edges."""

    most_features: float = math.inf

    images: ClassVar[bool] = True
    learned: ClassVar[type[Fitted]] = FittedGradients

    def takes_part(self, n: int, d: int, k: int) -> bool:
        """Not with more images: networks learn more then, and a kernel machine uses a sample."""
        return n <= 20_000

    def cost(self, n: int, d: int, k: int) -> float:
        rows = min(n, self.most_rows)
        usual_features = 400
        pixel = 1e-7  # seconds, all directions
        return pixel * rows * d + super().cost(n, usual_features, k)

    def learn(self, task: Task) -> FittedGradients:
        generator = np.random.default_rng(task.seed)
        n = len(task.codes)
        shuffled = generator.permutation(n)
        some = task.rows(np.sort(shuffled[: self.most_rows]))
        faint, brightness = scale_of(some.X[: self.choosing_rows])

        def of_block(x: Float32) -> FloatArray:
            return double(features(x, faint, brightness))

        numbers = 12 * math.prod(some.X.shape[1:])
        X = single(by_blocks(of_block, some.X, numbers))
        found = super().learn(replace(some, X=X, spread=None))
        return FittedGradients(**vars(found), faint=faint, brightness=brightness)

    def _calibration(
        self, scores: Floats, codes: IntArray, w: Float32, log_priors: Float32
    ) -> FloatArray:
        """Weights of the evidence, and the share of wrong labels, that make labels likeliest."""
        weights = super()._calibration(scores, codes, w, log_priors)
        parts = evidence(scores, log_priors)
        rows = np.arange(len(codes))
        lowest = math.inf
        for noise, sharper in product(NOISES, SHARPER):
            tried = np.append(sharper * weights, noise)
            own = log_posteriors(parts, tried)[rows, codes]
            prior = 20 * noise  # exponential, of mean .05
            loss = prior - float(w @ own)
            if loss < lowest:
                lowest = loss
                best = tried
        return best

    def restore(self, tree: Tree, shape: tuple[int, ...], n_classes: int) -> Fitted:
        return super().restore(tree, (n_features(shape),), n_classes)


def log_posteriors(parts: Floats, calibration: FloatArray) -> FloatArray:
    """Logarithms of the posteriors, of which a share is spread over all classes."""
    noise = calibration[3]
    logits = np.tensordot(calibration[:3], parts, 1)
    P = np.exp(log_softmax(logits))
    n_classes = P.shape[1]
    mixed = (1 - noise) * P + noise / n_classes
    return floored(np.log(mixed))


def scale_of(x: Float32) -> tuple[float, float]:
    """What is added to lengths, and the factor of the means, as fits these images."""
    small = scaled_down(x)
    faint = 0.01 * float(around(histograms(small)).mean()) + 1e-30
    edges = edges_of(small, faint)
    means = in_cells(small)
    spread = math.sqrt(_total_variance(means))
    brightness = 0.5 * math.sqrt(_total_variance(edges)) / max(spread, 1e-12)
    return faint, brightness


def _total_variance(x: Float32) -> float:
    return float(double(x).var(axis=0).sum())


def n_features(shape: tuple[int, ...]) -> int:
    """The number of features of images of this shape, (C, H, W)."""
    channels, *size = shape
    height, width = (n_cells(min(side, LARGEST_SIDE)) for side in size)
    return (N_DIRECTIONS + channels) * height * width


def features(x: Float32, faint: float, brightness: float) -> Float32:
    """Edges and means of all cells, a row per image."""
    small = scaled_down(x)
    n = len(x)
    edges = edges_of(small, faint)
    means = brightness * in_cells(small)
    return single(np.hstack([edges.reshape(n, -1), means.reshape(n, -1)]))


def edges_of(x: Float32, faint: float) -> Float32:
    """Roots of the shares of the directions in every cell, (n, B, cells, cells)."""
    found = histograms(x)
    lengths = around(found) + faint
    shares: Float32 = found / lengths[:, None]
    return np.sqrt(shares)


def histograms(x: Float32) -> Float32:
    """Mean length of the gradients of every direction in every cell."""
    down, right = largest_gradients(x)
    lengths = np.hypot(down, right)
    angles = np.arctan2(down, right)
    turns = angles * np.float32(N_DIRECTIONS / (2 * np.pi))
    found = []
    half = N_DIRECTIONS / 2
    for direction in range(N_DIRECTIONS):
        away = np.abs(turns - direction)
        distance = half - np.abs(half - away)  # the shorter way round
        near = np.maximum(1 - np.abs(distance), 0)
        found.append(in_cells(lengths * near))
    return np.stack(found, axis=1)


def largest_gradients(x: Float32) -> tuple[Float32, Float32]:
    """Gradients down and to the right, (n, H, W), of the channel where they are longest."""
    every_side = ((0, 0), (0, 0), (1, 1), (1, 1))
    padded = np.pad(x, every_side, mode="edge")
    below = padded[:, :, 2:]
    above = padded[:, :, :-2]
    down = (below - above)[..., 1:-1]
    after = padded[..., 2:]
    before = padded[..., :-2]
    right = (after - before)[:, :, 1:-1]
    longest = np.hypot(down, right).argmax(axis=1)[:, None]
    of_down = np.take_along_axis(down, longest, axis=1)
    of_right = np.take_along_axis(right, longest, axis=1)
    return of_down[:, 0], of_right[:, 0]


def around(found: Float32) -> Float32:
    """The length of the gradients in every cell and its neighbours, root of the mean square."""
    squares = (found**2).sum(axis=1)
    near = []
    for side in squares.shape[1:]:
        cells = np.arange(side)
        close = np.abs(cells - cells[:, None]) <= 1
        near.append(single(close / close.sum(axis=1, keepdims=True)))
    rows, columns = near
    means: Float32 = rows @ squares @ columns.T
    return np.sqrt(means)


def scaled_down(x: Float32) -> Float32:
    """Images with no side longer than :data:`LARGEST_SIDE`."""
    height, width = x.shape[-2:]
    if max(height, width) <= LARGEST_SIDE:
        return x
    small_height = min(height, LARGEST_SIDE)
    small_width = min(width, LARGEST_SIDE)
    return means_of(x, small_height, small_width)


def in_cells(x: Float32) -> Float32:
    """Means of the pixels in every cell."""
    height, width = x.shape[-2:]
    return means_of(x, n_cells(height), n_cells(width))


def n_cells(side: int) -> int:
    """Along a side: 5 of 28 or 32 pixels, 4 of fewer."""
    few = min(side, 4)
    return max(few, round(side / 6))


def means_of(x: Float32, height: int, width: int) -> Float32:
    """Weighted means of pixels: an image of another height and width."""
    rows = nearness(x.shape[-2], height)
    columns = nearness(x.shape[-1], width)
    found: Float32 = rows @ x @ columns.T
    return found


def nearness(side: int, n_centres: int) -> Any:
    """How much pixels count at every centre: less in proportion to their distance, up to a cell."""
    length = side / n_centres
    places = np.arange(side) + 0.5
    centres = (np.arange(n_centres) + 0.5) * length
    distance = np.abs(places - centres[:, None]) / length
    near = np.maximum(1 - distance, 0)
    return single(near / near.sum(axis=1, keepdims=True))
