"""Algorithms 1 and 2 of the paper, exactly as printed, one function for each step.

Symbols: T the training rows, T_k those of class k, K classes, V(x, x') the network on two inputs,
G the Gramian, S the collision matrix, q(x) the expected similarity of x to each class, m a number
of pairs or points.

What "as printed" means, where the package does something else by default
(``pairwise/algorithms.py``):

- one V, trained on all of T on the risk (32), with no folds, no early stopping and no logit shift;
- V(x, x') is what the network says of the ordered pair: both orders are not averaged;
- Step B averages over T itself, pairs of a row with itself included, as (34) is written;
- Step C descends by (36) until ‖S Sᵀ - G‖ ≤ γ; as that may never happen, there is a limit on the
  steps, and the result says whether it was reached. Rows need not sum to 1 and entries may be
  negative;
- Algorithm 2 is S⁻¹ q, which may leave the simplex.

The priors of the classes occur nowhere: for unequal ones this *is* the paper's heuristic, descent
from the identity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from collidescope import _checks as check
from collidescope._checks import ArrayLike, FloatArray, IntArray
from collidescope.pairwise import scoring
from collidescope.pairwise.pairs import PairObjective
from collidescope.pairwise.scoring import PairwiseNetwork
from collidescope.training.config import TrainingConfig
from collidescope.training.loop import fit_loop, seeded_module
from collidescope.training.machine import device_of
from collidescope.training.networks import EncoderFactory, mlp
from collidescope.training.rows import (
    as_rows,
    labels_and_weights,
    stratified_split,
    tensor,
)


@dataclass(frozen=True)
class PrintedSettings:
    """What the paper leaves to its reader, with its own values where the text names any."""

    hidden_layer_sizes: tuple[int, ...] = (128,) * 6
    max_epochs: int = 500
    batch_size: int | str = "auto"  #: the text names none
    learning_rate: float = 1e-3  #: of Adam; the text names neither
    #: m of Step B, pairs for each entry of G; None takes all of T_i × T_j
    pairs_per_entry: int | None = None
    #: m of (38), points of each class; None takes all there are
    comparison_points: int | None = None
    #: kept from training as comparison points; 0 compares with T itself
    validation_share: float = 0.1
    penalty: float = 0.1  #: λ of (36)
    step_size: float = 1e-4  #: η of Algorithm 1
    tolerance: float = 1e-4  #: γ of Algorithm 1
    max_steps: int = 50_000  #: where the while loop of Algorithm 1 is given up
    #: project every step onto the set 𝒮 of (35), which the printed algorithm does not
    feasible: bool = False
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("pairs_per_entry", "comparison_points"):
            if getattr(self, name) is not None:
                check.check_count(getattr(self, name), name)
        check.check_at_least(self.penalty, 0, "penalty")
        check.check_between(self.step_size, 0, np.inf, "step_size")
        check.check_at_least(self.tolerance, 0, "tolerance")
        check.check_count(self.max_steps, "max_steps")
        if not 0 <= self.validation_share < 1:
            raise ValueError(
                "validation_share must be at least 0 (compare with the training rows) and below "
                f"1, got {self.validation_share!r}"
            )

    def training(self) -> TrainingConfig:
        """The settings of Step A: all epochs, nothing held out, no weight decay."""
        return TrainingConfig(
            hidden_layer_sizes=self.hidden_layer_sizes,
            max_epochs=self.max_epochs,
            patience=0,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=0.0,
            device=self.device,
        )

    def descend(self, G: ArrayLike) -> Descent:
        """Step C with these λ, η, γ and limit."""
        return step_c(
            G,
            penalty=self.penalty,
            step_size=self.step_size,
            tolerance=self.tolerance,
            max_steps=self.max_steps,
            feasible=self.feasible,
        )


class Contrast(Protocol):
    """A pair-wise contrastive model V: X × X → [0, 1]."""

    def grid(self, A: ArrayLike, B: ArrayLike) -> FloatArray:
        """V of every row of A with every row of B, (len A, len B)."""
        ...

    def pairs(self, A: ArrayLike, B: ArrayLike) -> FloatArray:
        """V of the first row of A with the first of B, the second with the second …, (len A,)."""
        ...


class TwoOutputs(nn.Module):
    """A body of two outputs, "different" and "same", as one logit.

    The softmax of two outputs is the sigmoid of their difference.
    """

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.body(x)
        return outputs[:, 1:] - outputs[:, :1]


@dataclass(frozen=True)
class TrainedContrast:
    """V as a trained network, evaluated for the pair in the order given."""

    network: PairwiseNetwork
    losses: tuple[float, ...] = ()  #: mean of the risk (32) over each epoch

    def grid(self, A: ArrayLike, B: ArrayLike) -> FloatArray:
        """V of every row of A with every row of B."""
        first = tensor(A)
        second = tensor(B)
        scores = scoring.similarity(self.network, first, second, symmetric=False)
        return scores.double().numpy()

    def pairs(self, A: ArrayLike, B: ArrayLike, at_once: int = 8192) -> FloatArray:
        """V of rows of A with the rows of B beside them."""
        network = self.network
        place = device_of(network)
        first = torch.split(tensor(A).to(place), at_once)
        second = torch.split(tensor(B).to(place), at_once)
        parts = []
        with torch.inference_mode():
            for a, b in zip(first, second, strict=True):
                parts.append(network.one_way(a, b))
            scores = torch.sigmoid(torch.cat(parts))
        return scores.double().cpu().numpy()


# ------------------------------------------------------------------------------------------
# Algorithm 1


def step_a(
    X: ArrayLike,
    codes: IntArray,
    settings: PrintedSettings,
    seed: int = 0,
    factory: EncoderFactory | None = None,
    watch: Callable[[int, TrainedContrast], None] | None = None,
) -> TrainedContrast:
    """Train V on pairs of all rows (30), on the empirical risk (32) with cross-entropy.

    An epoch shows as many pairs as there are rows, drawn in the proportions of (31). ``factory(2d,
    2)`` builds another network than the plain one (for images of C channels, ``factory(2C, 2)``).
    ``watch`` is given the number of every epoch, and V as it is then.
    """
    device = settings.device
    rows = as_rows(X, device)
    y, _ = labels_and_weights(codes, None, device)
    config = settings.training()
    everything = torch.arange(len(y), device=y.device)
    split = (everything, everything[:0])
    objective = PairObjective(rows, y, split, config, seed)
    inputs = 2 * rows.shape[1]

    def build() -> PairwiseNetwork:
        if factory is None:
            body: nn.Module = mlp(inputs, 2, settings.hidden_layer_sizes)
        else:
            body = factory(inputs, 2)
        return PairwiseNetwork(TwoOutputs(body))

    module = seeded_module(build, seed)
    assert isinstance(module, PairwiseNetwork)

    def tell(entry: dict[str, Any]) -> None:
        if watch is not None:
            watch(entry["epoch"], contrast_of(module))

    run = fit_loop(module, objective, config, seed, progress=tell)
    if run.interrupted:
        raise KeyboardInterrupt
    losses = tuple(entry["train_loss"] for entry in run.history)
    return contrast_of(module, losses)


def contrast_of(
    module: PairwiseNetwork, losses: tuple[float, ...] = ()
) -> TrainedContrast:
    """V of a network with the weights that it has now."""
    network = PairwiseNetwork(_one_output(module.body))
    return TrainedContrast(network.eval(), losses)


def _one_output(body: nn.Module) -> nn.Module:
    """The same function with the difference as its last layer: plain networks are scored fast."""
    if not isinstance(body, TwoOutputs):
        return body
    plain = body.body
    if not isinstance(plain, nn.Sequential):
        return body
    *layers, last = plain
    if not isinstance(last, nn.Linear):
        return body
    merged = nn.Linear(last.in_features, 1)
    merged.to(last.weight.device)
    different, same = last.weight
    bias_different, bias_same = last.bias
    with torch.no_grad():
        merged.weight[0] = same - different
        merged.bias[0] = bias_same - bias_different
    return nn.Sequential(*layers, merged)


def step_b(
    V: Contrast,
    parts: Sequence[FloatArray],
    pairs_per_entry: int | None = None,
    rng: np.random.Generator | None = None,
) -> FloatArray:
    """The Gramian, equation (34): the mean of V over T_i × T_j, or over m random pairs of them.

    ``parts`` are T_1 … T_K. ``pairs_per_entry`` is the paper's m, for m K² evaluations of V in all.
    """
    if rng is None:
        rng = np.random.default_rng(0)
    k = len(parts)
    G = np.empty((k, k))
    for i, of_first in enumerate(parts):
        for j, of_second in enumerate(parts):
            if pairs_per_entry is None:
                scores = V.grid(of_first, of_second)
            else:
                n_first = len(of_first)
                n_second = len(of_second)
                a = rng.integers(n_first, size=pairs_per_entry)
                b = rng.integers(n_second, size=pairs_per_entry)
                scores = V.pairs(of_first[a], of_second[b])
            G[i, j] = scores.mean()
    return G


@dataclass(frozen=True)
class Descent:
    """Where Step C ended."""

    matrix: FloatArray  #: (K, K) S, as the last step left it
    gap: float  #: ‖S Sᵀ - G‖_F, which the loop compares with γ
    steps: int
    converged: bool  #: False where the limit on steps ended it

    @property
    def row_sums(self) -> FloatArray:
        """Should be 1. The loop does not wait for that: it looks at the gap alone."""
        return np.asarray(self.matrix.sum(axis=1))

    @property
    def smallest_entry(self) -> float:
        """Should not be negative."""
        return float(self.matrix.min())


def step_c(
    G: ArrayLike,
    penalty: float = 0.1,
    step_size: float = 1e-4,
    tolerance: float = 1e-4,
    max_steps: int = 50_000,
    start: ArrayLike | None = None,
    feasible: bool = False,
) -> Descent:
    """S from G by the gradient descent of Algorithm 1 on the objective (36).

    Parameters
    ----------
    G : (K, K), taken as it is
    penalty, step_size, tolerance : λ, η and γ
    max_steps : the loop is given up after so many steps
    start : (K, K) "I (or any diagonally dominant matrix)"; the identity by default
    feasible : project every iterate onto the set 𝒮 of (35), which the printed algorithm does not do

    Examples
    --------
    >>> S = np.array([[0.9, 0.1], [0.1, 0.9]])
    >>> found = step_c(S @ S.T, step_size=1e-3, tolerance=1e-3)
    >>> found.converged, found.matrix.round(3).tolist()
    (True, [[0.9, 0.1], [0.1, 0.9]])
    """
    gramian = check.check_square(G, "G")
    S = np.eye(len(gramian))
    if start is not None:
        S = check.check_square(start, "start").copy()
    if S.shape != gramian.shape:
        raise ValueError(
            f"start must have the shape of G {gramian.shape}, got {S.shape}"
        )
    for step in range(max_steps + 1):
        slope, gap = descent_direction(S, gramian, penalty)
        if gap <= tolerance:
            return Descent(S, float(gap), step, True)
        if step < max_steps:
            S = S - step_size * slope
            if feasible:
                S = nearest_dominant(S)
    return Descent(S, float(gap), max_steps, False)


def descent_direction(
    S: FloatArray, G: FloatArray, penalty: float
) -> tuple[FloatArray, FloatArray]:
    """(a + λ b of Algorithm 1, ‖S Sᵀ - G‖_F), for one matrix or for a stack of them (..., K, K)."""
    gramian = S @ S.swapaxes(-1, -2)
    E = gramian - G
    total = (E * E).sum(axis=(-2, -1))
    gap = np.sqrt(total)
    # E + Eᵀ and not 2 E: G is not quite symmetric, as V(x, x') is not.
    twice = E + E.swapaxes(-1, -2)
    per_matrix = np.maximum(gap, np.finfo(np.float64).tiny)[..., None, None]
    a = twice @ S / per_matrix
    excess = S.sum(axis=-1, keepdims=True) - 1
    b = np.sign(excess) - (S < 0)
    return a + penalty * b, gap


def is_feasible(S: ArrayLike, rounding: float = 1e-9) -> bool:
    """Whether S is in the set 𝒮 of (35): stochastic and diagonally dominant (14).

    >>> is_feasible([[0.6, 0.4], [0.4, 0.6]]), is_feasible([[0.4, 0.6], [0.6, 0.4]])
    (True, False)
    """
    matrix = check.check_square(S, "S")
    row_sums = matrix.sum(axis=1)
    row_gaps = np.abs(row_sums - 1)
    negative = matrix.min() < -rounding
    not_one = row_gaps.max() > rounding
    if negative or not_one:
        return False
    diagonal = np.diag(matrix)
    lead = diagonal - (row_sums - diagonal)
    return bool(lead.min() >= -rounding)


def nearest_dominant(S: ArrayLike) -> FloatArray:
    """The nearest matrix (in the Frobenius norm) of the set 𝒮 of (35), row by row.

    A stochastic row is dominant where S_ii ≥ ½: less this half, it is a point of the simplex of
    mass ½.

    >>> nearest_dominant([[0.4, 0.6], [0.1, 0.9]])
    array([[0.5, 0.5],
           [0.1, 0.9]])
    """
    matrix = check.check_square(S, "S")
    half = np.eye(len(matrix)) / 2
    return half + _nearest_on_simplex(matrix - half, mass=0.5)


def _nearest_on_simplex(rows: FloatArray, mass: float) -> FloatArray:
    """Each row moved down by one number and cut at 0, so that it sums to ``mass``."""
    k = rows.shape[1]
    falling = -np.sort(-rows, axis=1)
    # Moved so that the first 1, 2, … entries alone have the mass; the right number of them is the
    # last whose smallest entry stays positive.
    sums = falling.cumsum(axis=1)
    counts = np.arange(1, k + 1)
    moves = sums - mass
    moves /= counts
    last = (falling > moves).sum(axis=1)[:, None] - 1
    moved = rows - np.take_along_axis(moves, last, axis=1)
    return np.maximum(moved, 0.0)


# ------------------------------------------------------------------------------------------
# Algorithm 2


def expected_similarity(
    V: Contrast, X: ArrayLike, points: Sequence[FloatArray]
) -> FloatArray:
    """q̂(x), equation (38): the mean of V(x, x') over the points of each class, (n, K)."""
    means = [V.grid(X, of_class).mean(axis=1) for of_class in points]
    return np.stack(means, axis=1)


def solve_printed(S: ArrayLike, q: ArrayLike) -> FloatArray:
    """ŷ(x) = S⁻¹ q̂(x), equation (44), for the rows of q, neither clipped nor made to sum to 1."""
    matrix = check.check_square(S, "S")
    scores = check.check_finite(q, "q", ndim=2)
    return np.asarray(np.linalg.solve(matrix, scores.T).T)


# ------------------------------------------------------------------------------------------
# together


@dataclass(frozen=True)
class PrintedFit:
    """What Algorithms 1 and 2 leave behind, and how the descent ended."""

    contrast: Contrast
    gramian: FloatArray  #: (K, K) Ĝ of Step B; its rows sum to 1 where V is Sim
    descent: Descent
    points: tuple[FloatArray, ...]  #: comparison points of each class
    settings: PrintedSettings
    losses: tuple[float, ...] = field(default=(), repr=False)

    @property
    def matrix(self) -> FloatArray:
        """Ŝ as Step C left it: rows need not sum to 1."""
        return self.descent.matrix

    @property
    def diagnostics(self) -> dict[str, Any]:
        """What a reader of Ŝ should know."""
        return {
            "converged": self.descent.converged,
            "steps": self.descent.steps,
            "gap": self.descent.gap,
            "row_sums": self.descent.row_sums.tolist(),
            "smallest_entry": self.descent.smallest_entry,
            "gramian_row_sums": self.gramian.sum(axis=1).tolist(),
        }

    def similarity(self, A: ArrayLike, B: ArrayLike) -> FloatArray:
        """V of every pair, taken for Sim."""
        return self.contrast.grid(A, B)

    def posteriors(self, X: ArrayLike) -> FloatArray:
        """Algorithm 2: S⁻¹ q̂(x) for every row; entries may be negative or exceed 1."""
        q = expected_similarity(self.contrast, X, self.points)
        return solve_printed(self.matrix, q)


def printed_fit(
    X: ArrayLike,
    codes: IntArray,
    n_classes: int,
    settings: PrintedSettings | None = None,
    seed: int = 0,
    factory: EncoderFactory | None = None,
) -> PrintedFit:
    """Algorithm 1 on the rows, and all that Algorithm 2 needs.

    A ``validation_share`` of the rows is split off first ("before training V we split T into
    training and validation sets"): Algorithm 2 compares with them. The rest is T. Rows are taken
    as they come: standardise them before.
    """
    if settings is None:
        settings = PrintedSettings()
    rows = np.asarray(X, dtype=np.float64)
    codes = np.asarray(codes)
    found = np.unique(codes).tolist()
    every = list(range(n_classes))
    last = n_classes - 1
    if found != every:
        raise ValueError(f"codes must hold every class 0 … {last}, got {found}")
    train, held_out = _split(codes, settings.validation_share, seed)
    T = rows[train]
    T_codes = codes[train]
    V = step_a(T, T_codes, settings, seed, factory)
    rng = np.random.default_rng(seed)
    parts = _by_class(T, T_codes, n_classes)
    G = step_b(V, parts, settings.pairs_per_entry, rng)
    descent = settings.descend(G)
    points = _by_class(rows[held_out], codes[held_out], n_classes)
    m = settings.comparison_points
    if m is not None:
        points = [rng.permutation(each)[:m] for each in points]
    references = tuple(points)
    return PrintedFit(V, G, descent, references, settings, V.losses)


def _split(codes: IntArray, share: float, seed: int) -> tuple[IntArray, IntArray]:
    """(rows to train on, rows to compare with); the same rows where none are split off."""
    if share == 0:
        every = np.arange(len(codes))
        return every, every
    y, _ = labels_and_weights(codes, None, "cpu")
    train, held_out = stratified_split(y, share, seed)
    return train.numpy(), held_out.numpy()


def _by_class(rows: FloatArray, codes: IntArray, n_classes: int) -> list[FloatArray]:
    """T_1 … T_K."""
    parts = [rows[codes == k] for k in range(n_classes)]
    for k, part in enumerate(parts):
        if not len(part):
            raise ValueError(
                f"class number {k} has no row to compare with: gather more of it, or "
                "lower validation_share to 0"
            )
    return parts
