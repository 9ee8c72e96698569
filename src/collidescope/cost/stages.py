"""Operations and bytes of a fit, stage by stage.

Symbols: n rows of d values, K classes; a network of layers a → b has w = Σ a b weights and o = Σ b outputs; B rows a
step. Times are counts over a measured :class:`~collidescope.cost.speed.Speed`:

- *training* a fold takes epochs × steps, a step (layers + 2) · layer + B o · value + 6 B w / product; the regressions
  and trees of ``"auto"`` come on top;
- *scoring* takes a pass of n rows, 2 w / product each (factorised), or n × references pairs in both orders, by all
  layers but the first, which is split, and the solution of q = S y (pair-wise);
- *S* takes sums of n K² products, n K⁴/4 for the covariances of few classes, and eigenvectors of K³ in projections.

How soon networks and regressions stop to learn is not known beforehand: the sum is good to about a factor of two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from collidescope._merging import n_pairs
from collidescope._scaling import QUANTILE_ROWS
from collidescope.contrastive.config import TrainingConfig
from collidescope.contrastive.ensemble import (
    FIVE_SPLITS,
    HIDDEN_SIZES,
    LINEAR_SPECS,
    MANY_ROWS,
    MOST_PRODUCTS,
    MOST_WORK,
    PAIR_LOSS_HIDDEN_SIZES,
    PAIRWISE_HIDDEN_SIZES,
    QUADRATIC_SPECS,
    THREE_SPLITS,
)
from collidescope.contrastive.linear import MOST_KEPT, n_regression_features
from collidescope.contrastive.objectives import HELD_OUT_PAIRS
from collidescope.contrastive.probing import ModuleTimes
from collidescope.contrastive.scoring import ROWS_AT_ONCE
from collidescope.contrastive.trees import FEWEST_TREE_ROWS, MAX_ROUNDS, MAX_TREES, MOST_TREE_CLASSES
from collidescope.cost.speed import CPU, Cost, Speed
from collidescope.crossfit import DOUBLE_NUMBERS, RIDGES
from collidescope.moments import keeps_covariance

#: Epochs beyond ``patience``: large samples need few, small ones many, and pairs some more.
EPOCHS, MORE_EPOCHS, SMALL, PAIR_EPOCHS = 6, 15, 1500, 12
#: A layer and an activation of a step take so much longer where torch finds the gradient, which it does for all but
#: plain classifiers; an activation so much less in a forward pass alone, and an input in a step.
AUTOGRAD, FORWARD, INPUT = 1.2, 1 / 5, 0.4
#: Layers that the pair loss of a batch takes the time of.
PAIR_LOSS = 4
#: Evaluations of the loss until a regression is at its optimum, and the activations that a row takes the time of in
#: each: at least, for every feature and for every class.
EVALUATIONS, ROW_VALUES, FEATURE_VALUES, CLASS_VALUES = 45, 20, 0.5, 0.8
#: Seconds of growing one tree at the speed of ``CPU``: at least, and for every value (row × feature).
TREE, TREE_VALUE = 2e-3, 1e-8
#: Operations that a number which is read and written in a sum over rows takes the time of; numbers a row at least.
TOUCH, ROW_NUMBERS = 750, 15
#: Numbers that a row costs before training (labels, folds), and each of its values: scaled, and in the quantiles.
LABELS, SCALED, QUANTILE = 80, 0.4, 4.0
#: Steps of a projection, of the solution for posteriors and of the paper's gradient descent, as they usually are.
PROJECTION_STEPS, SOLUTION_STEPS, DESCENT_STEPS = 4, 20, 20_000
#: Eigendecompositions of a projection's start, of the closed form and its condition number; operations of each.
EIGENVECTORS, EIGEN_OPERATIONS = 5, 10
#: Seconds until workers have started.
START = 4.0
#: Bytes of the libraries here and in a worker.
LIBRARIES, WORKER = 0.5e9, 0.25e9
#: Tables of the size of P that are held at once, and with the similarities of the pair-wise model; matrices K × K.
POSTERIORS, SIMILARITIES, SQUARES = 1.5, 10, 20
#: Numbers (labels, places, weights) that are kept for every row.
NUMBERS = 5
#: Copies of a network's weights: themselves, their gradient, two moments of Adam, the best so far.
WEIGHT_COPIES = 5


@dataclass(frozen=True)
class Fit:
    """The sizes that a fit meets and the settings that cost something.

    ``folds`` are numbers of (training, held-out) rows, ``d`` the values a row, ``table`` the bytes of X as it is given,
    ``in_file`` whether they stay in a file (a memory map), ``references`` those of a class and fold (None: all),
    ``own`` the times of a module of one's own.
    """

    folds: Sequence[tuple[int, int]]
    d: int
    k: int
    config: TrainingConfig
    table: float
    in_file: bool = False
    references: int | None = None
    jobs: int = 1
    shrunk: bool = True
    descent: bool = False
    own: ModuleTimes | None = None

    @property
    def n(self) -> int:
        """All rows."""
        return sum(test for _, test in self.folds)

    @property
    def is_pairwise(self) -> bool:
        """Pairs of rows, or rows?"""
        return self.config.model == "pairwise"

    def cost(self, speed: Speed) -> Cost:
        """All stages and bytes."""
        folds = [fold_seconds(self, train, speed) for train, _ in self.folds]
        training = sum(folds) if self.jobs == 1 else START + math.ceil(len(folds) / self.jobs) * max(folds)
        training += preparation_seconds(self, speed)
        return Cost(training, scoring_seconds(self, speed), matrix_seconds(self, speed), *memory(self, speed.device))

    def splits(self, train: int) -> int:
        """Inner splits of a fold, each with a network of its own."""
        if not isinstance(self.config.n_splits, str) and not self.is_pairwise:
            return self.config.n_splits
        if self.is_pairwise or self.own is not None or self.config.hidden_layer_sizes != "auto":
            return 1
        return 5 if train <= FIVE_SPLITS else 3 if train <= THREE_SPLITS else 1

    def networks(self, train: int) -> list[tuple[int, ...]]:
        """Widths of the networks of a fold, from the inputs to the logits."""
        sizes = self.config.hidden_layer_sizes
        if self.own is not None:
            return []
        if self.is_pairwise:
            return [(2 * self.d, *s, 1) for s in (PAIRWISE_HIDDEN_SIZES if isinstance(sizes, str) else (sizes,))]
        if not isinstance(sizes, str):
            return [(self.d, *sizes, self.k)]
        if self.config.loss == "pair":
            return [(self.d, *s, self.k) for s in PAIR_LOSS_HIDDEN_SIZES]
        linear = [] if self._affordable(train, self.d) else [()]
        return [(self.d, *s, self.k) for s in (*linear, *HIDDEN_SIZES)]

    def regressions(self, train: int) -> list[int]:
        """Features of every regression of ``"auto"``."""
        if not self._pooled:
            return []
        found = [self.d] * (len(LINEAR_SPECS) if self.k > 2 else 1) if self._affordable(train, self.d) else []
        D = n_regression_features(self.d, quadratic=True)
        if D <= MOST_PRODUCTS and self._affordable(train, D):
            found += [D] * (len(QUADRATIC_SPECS) if train < MANY_ROWS * D else 1)
        return found

    def trees(self, train: int) -> int:
        """Trees that are grown in every split."""
        asked = self.config.trees and self._pooled
        if not asked or self.k > MOST_TREE_CLASSES or train < FEWEST_TREE_ROWS:
            return 0
        return min(MAX_ROUNDS * (1 if self.k == 2 else self.k), MAX_TREES)

    @property
    def _pooled(self) -> bool:
        auto = self.own is None and self.config.hidden_layer_sizes == "auto"
        return auto and not self.is_pairwise and self.config.loss != "pair"

    def _affordable(self, train: int, D: int) -> bool:
        return train * D * self.k <= MOST_WORK


# ---------------------------------------------------------------- time


def fold_seconds(fit: Fit, train: int, speed: Speed) -> float:
    """Training one fold of ``train`` rows."""
    splits = fit.splits(train)
    held_out = train / splits if splits > 1 else fit.config.validation_fraction * train
    rows = train - held_out
    batch = min(fit.config.batch_for(round(rows)), max(round(rows), 1))
    seconds = 0.0
    if fit.own is not None:
        checks = (HELD_OUT_PAIRS if fit.is_pairwise else 1) * held_out
        seconds += splits * _epochs(train, fit.config) * (rows / batch * fit.own.step + checks * fit.own.row)
    for widths in fit.networks(train):
        checks = 2 * HELD_OUT_PAIRS * held_out if fit.is_pairwise else splits * held_out
        each = rows / batch * _step(fit, widths, splits * batch, speed) + checks * _pass(widths, speed)
        seconds += _epochs(train, fit.config) * each
    for D in fit.regressions(train):
        row = ROW_VALUES + FEATURE_VALUES * D + CLASS_VALUES * fit.k
        each = 2 * speed.layer + rows * (row * speed.value + 4 * D * fit.k / speed.product)
        seconds += EVALUATIONS * splits * each
    if fit.in_file:  # every batch is scaled when it is read
        seconds += _epochs(train, fit.config) * train * fit.d * SCALED * TOUCH / speed.moment
    slower = speed.layer / CPU.layer if speed.device == "cpu" else 1.0
    return seconds + slower * fit.trees(train) * splits * (TREE + rows * fit.d * TREE_VALUE)


def preparation_seconds(fit: Fit, speed: Speed) -> float:
    """Labels, folds and the scaling of the inputs."""
    values = SCALED * fit.n + QUANTILE * min(fit.n, QUANTILE_ROWS)
    return TOUCH * (LABELS * fit.n + values * fit.d) / speed.moment


def _epochs(train: int, config: TrainingConfig) -> float:
    if config.patience == 0:
        return config.max_epochs
    more = EPOCHS + MORE_EPOCHS * min(1.0, SMALL / max(train, 1)) + (PAIR_EPOCHS if config.model == "pairwise" else 0)
    return min(config.max_epochs, config.patience + more)


def _step(fit: Fit, widths: tuple[int, ...], rows: int, speed: Speed) -> float:
    """One training step of so many rows in all."""
    plain = fit.config.loss == "cross-entropy" and not fit.is_pairwise and fit.config.dropout == 0
    layers = len(widths) + 1 + (PAIR_LOSS if not fit.is_pairwise and fit.config.loss != "cross-entropy" else 0)
    overhead = layers * speed.layer + rows * (sum(widths[1:]) + INPUT * widths[0]) * speed.value
    return (1.0 if plain else AUTOGRAD) * overhead + 6 * rows * _weights(widths) / speed.product


def _pass(widths: tuple[int, ...], speed: Speed) -> float:
    """One row through a network."""
    return FORWARD * sum(widths[1:]) * speed.value + 2 * _weights(widths) / speed.product


def _weights(widths: tuple[int, ...]) -> int:
    return sum(a * b for a, b in pairwise(widths))


def scoring_seconds(fit: Fit, speed: Speed) -> float:
    """Held-out posteriors of all rows."""
    if fit.is_pairwise:
        pairs = sum(test * references(fit, test) for _, test in fit.folds)
        return pairs * _pair(fit, speed) + _solution(fit, speed)
    seconds = 0.0
    for train, test in fit.folds:
        splits, networks, regressions = fit.splits(train), fit.networks(train), fit.regressions(train)
        row = splits * sum(_pass(widths, speed) for widths in networks)
        row += splits * sum(_pass((D, fit.k), speed) + FORWARD * D * speed.value for D in regressions)
        row += splits * fit.trees(train) * speed.value  # a gather a level and tree
        members = len(networks) + len(regressions) + (1 if fit.own is not None else 0)
        row += members * fit.k * speed.value + (0.0 if fit.own is None else splits * fit.own.row)
        seconds += test * row
    return seconds


def references(fit: Fit, test: int) -> int:
    """Rows that each of a fold's ``test`` rows is compared with."""
    return test if fit.references is None else min(test, fit.references * fit.k)


def _pair(fit: Fit, speed: Speed) -> float:
    """One pair in both orders: an addition in the first layer, products in the others, a sum for each class."""
    if fit.own is not None:
        return fit.own.row
    rest = [widths[1:] for widths in fit.networks(0)]
    both = 2 * sum(FORWARD * sum(w) * speed.value + 2 * _weights(w) / speed.product for w in rest)
    return both + len(rest) * 4 * fit.k / speed.product


def _solution(fit: Fit, speed: Speed) -> float:
    """Q = S y for every row, with every ridge that is tried."""
    operations = 2 * fit.k**2 + TOUCH * fit.k
    return (len(RIDGES) + 1) * SOLUTION_STEPS * fit.n * operations / speed.moment


def matrix_seconds(fit: Fit, speed: Speed) -> float:
    """S, its intervals and its recovery from the Gramian: on the host, whatever the device."""
    k, n = fit.k, fit.n
    entries = n_pairs(k) if keeps_covariance(k) else 0
    # Of a product of a matrix with itself half is computed; there are two of K².
    sums = n * (2 * k**2 + entries**2 + TOUCH * (ROW_NUMBERS + (k + entries) / 2))
    projections = 3 if fit.shrunk else 2
    eigen = (projections * PROJECTION_STEPS + EIGENVECTORS) * EIGEN_OPERATIONS * k**3
    descent = DESCENT_STEPS * (4 * k**3 + TOUCH * ROW_NUMBERS) if fit.descent else 0
    return (sums + descent) / speed.moment + eigen / speed.eigen


# ---------------------------------------------------------------- bytes


def memory(fit: Fit, device: str) -> tuple[float, float, str]:
    """Bytes on the host and on the device at their highest, and the device."""
    train, test = (max(sizes) for sizes in zip(*fit.folds, strict=True))
    rows = 0.0 if fit.in_file else 4.0 * fit.n * fit.d
    fold = fold_bytes(fit, train)
    single = fit.n * fit.k > DOUBLE_NUMBERS and not fit.is_pairwise
    P = (4.0 if single else 8.0) * fit.n * fit.k
    after = (SIMILARITIES if fit.is_pairwise else POSTERIORS) * P + 4.0 * test * fit.d * fit.is_pairwise
    after += SQUARES * 8.0 * fit.k**2
    host = LIBRARIES + (0.0 if fit.in_file else fit.table) + NUMBERS * 8.0 * fit.n + rows
    if device != "cpu":
        return host + after, rows + fold, device
    return host + max(fold if fit.jobs == 1 else fit.jobs * (WORKER + fold), after), 0.0, device


def fold_bytes(fit: Fit, train: int) -> float:
    """What the training of a fold holds beside the rows: their order, weights, activations, features of regressions."""
    splits = fit.splits(train)
    batch = splits * fit.config.batch_for(train)
    networks, regressions, scored = fit.networks(train), fit.regressions(train), min(train, ROWS_AT_ONCE)
    weights = 4.0 * splits * max((_weights(widths) for widths in networks), default=0)
    active = 4.0 * max((2 * batch * sum(widths) + 2 * scored * max(widths) for widths in networks), default=0)
    if fit.own is not None:
        weights, active = 4.0 * fit.own.weights, fit.own.kept * max(batch, scored / 2)
    features = max((2 * 4.0 * min(train * D, MOST_KEPT) for D in regressions), default=0.0)
    copies = 4.0 * train * fit.d * (1 if regressions else 0) + 9.0 * train * fit.d * (1 if fit.trees(train) else 0)
    held_out = train if splits > 1 else fit.config.validation_fraction * train
    kept = 8.0 * held_out * fit.k * (len(networks) + len(regressions) + 2)
    order = NUMBERS * 8.0 * train * splits
    return order + WEIGHT_COPIES * weights + max(active, features) + copies + kept
