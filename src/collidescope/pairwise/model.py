"""One fold's pair-wise model: the paper's V, trained on sampled pairs (the first part of Algorithm 1), and its scores.

Symbols: n rows, K classes. V(x, x') is the probability of "same class" for pairs as sampled, Sim(x, x') = y(x)·y(x')
that for two independent draws at uniform priors, q(x) = S y(x) the mean similarity of x to each class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from collidescope import _checks as check
from collidescope.pairwise import scoring
from collidescope.pairwise.networks import PairModule, PairwiseNetwork, pair_module
from collidescope.pairwise.pairs import same_log_odds_shift, sample_pairs
from collidescope.pairwise.risk import balanced_risk
from collidescope.training.config import TrainingConfig
from collidescope.training.loop import Progress, fit_loop, seeded_module
from collidescope.training.networks import EncoderFactory
from collidescope.training.objectives import Split, backpropagate, inner_splits, parts_of, signature
from collidescope.training.rows import Rows

#: Networks of ``hidden_layer_sizes="auto"``, weighed by their held-out loss.
AUTO_SIZES: tuple[tuple[int, ...], ...] = ((64,), (128, 128))
#: Share of a fold's training rows that early stopping watches.
VALIDATION_FRACTION = 0.1
#: Held-out pairs per held-out row: the loss on 4n pairs is nearly as certain as on all n².
HELD_OUT_PAIRS = 4
#: A network below this share of the largest weight changes no digit of a score.
SMALLEST_SHARE = 1e-6
#: Weights of standardised inputs are far below this; larger ones in a file would overflow a few layers on.
LARGEST_WEIGHT = 1e9

FloatArray = npt.NDArray[np.float64]


class PairObjective:
    """:func:`~collidescope.pairwise.risk.balanced_risk` over as many sampled pairs per epoch as there are rows."""

    n_members = 1

    def __init__(
        self, X: Rows, y: Tensor, split: Split, config: TrainingConfig, seed: int, sample_weight: Tensor | None = None
    ) -> None:
        self.X, self.y, self.given_weight = X, y, sample_weight
        self.rows, held_out = split
        self.train_labels = y[self.rows]
        self.train_weight = None if sample_weight is None else sample_weight[self.rows]
        self.batch_size = min(config.batch_for(len(self.rows)), len(self.rows))
        self.held_out: tuple[Tensor, Tensor, Tensor] | None = None
        if len(held_out):
            generator = torch.Generator(device=y.device).manual_seed(seed)
            weight = None if sample_weight is None else sample_weight[held_out]
            i, j, same = sample_pairs(y[held_out], HELD_OUT_PAIRS * len(held_out), generator, weight)
            self.held_out = held_out[i], held_out[j], same.float()

    @property
    def signature(self) -> str:
        return signature(self.X, self.y, self.given_weight, self.rows, *(self.held_out or ()))

    def batches(self, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        i, j, same = sample_pairs(self.train_labels, len(self.rows), generator, self.train_weight)
        i, j, target = self.rows[i], self.rows[j], same.float()
        # A last batch of a single pair is left out: batch norm cannot take it.
        last = len(i) - 1 if len(i) > self.batch_size > 1 else len(i)
        for start in range(0, last, self.batch_size):
            part = slice(start, start + self.batch_size)
            yield i[part], j[part], target[part]

    def backward(self, module: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        assert isinstance(module, PairModule)
        i, j, target = batch
        # One order of each pair: pairs are sampled as ordered pairs, so both orders are learned.
        return backpropagate(module, balanced_risk(module.one_way(self.X[i], self.X[j]), target))

    def held_out_loss(self, module: nn.Module) -> Tensor:
        if self.held_out is None:
            return torch.full((1,), torch.nan, device=self.y.device)
        i, j, same = self.held_out
        logits = [module(self.X[a], self.X[b]) for a, b in zip(parts_of(i), parts_of(j), strict=True)]
        return balanced_risk(torch.cat(logits), same)[None]


class PairModel:
    """Weighted pair-wise networks of one fold.

    Attributes
    ----------
    modules, weights, names : the networks and how much each counts
    sizes : hidden layers of each network, None for a custom body
    shift : float
        What balanced sampling added to the log odds of "same"; taken off unless ``correction=False``.
    """

    def __init__(
        self,
        modules: list[PairModule],
        weights: list[float],
        sizes: list[tuple[int, ...] | None],
        input_shape: tuple[int, ...],
        n_classes: int,
        shift: float,
        history: dict[str, list[dict[str, Any]]] | None = None,
        interrupted: bool = False,
    ) -> None:
        self.modules, self.weights, self.sizes = modules, weights, sizes
        self.input_shape, self.n_classes, self.shift = input_shape, n_classes, shift
        self.history, self.interrupted = history or {}, interrupted

    @classmethod
    def train(
        cls,
        X: Rows,
        codes: npt.NDArray[np.intp],
        n_classes: int,
        config: TrainingConfig,
        seed: int,
        sample_weight: FloatArray | None = None,
        factory: EncoderFactory | None = None,
        report: Progress | None = None,
        checkpoint: Path | None = None,
    ) -> PairModel:
        """Train V on pairs of the rows X: a network for each capacity, weighed by held-out loss."""
        y = torch.from_numpy(np.asarray(codes, dtype=np.int64)).to(config.device)
        w = None if sample_weight is None else torch.from_numpy(sample_weight.astype(np.float32)).to(config.device)
        split = validation_split(y, config, seed)
        capacities = AUTO_SIZES if isinstance(config.hidden_layer_sizes, str) else (config.hidden_layer_sizes,)
        modules: list[PairModule] = []
        losses: list[float] = []
        used: list[tuple[int, ...] | None] = []
        history: dict[str, list[dict[str, Any]]] = {}
        interrupted = False
        for sizes in capacities if factory is None else (None,):

            def build(sizes: tuple[int, ...] | None = sizes) -> PairModule:
                if sizes is None:
                    assert factory is not None
                    return pair_module(factory, X.shape[1], X.ndim - 1)
                return PairwiseNetwork(X.shape[1], sizes, config.dropout)

            name = "pairwise-" + ("module" if sizes is None else "x".join(map(str, sizes)) or "linear")
            objective = PairObjective(X, y, split, config, seed, w)
            run = fit_loop(seeded_module(build, seed), objective, config, seed, report, checkpoint, name)
            if run.interrupted and not run.history and modules:
                interrupted = True
                break
            assert isinstance(run.module, PairModule)
            modules.append(run.module)
            losses.append(float(run.val_loss[0]))
            used.append(sizes)
            history[name], interrupted = run.history, run.interrupted
            if interrupted:
                break
        if interrupted and not any(history.values()):
            raise KeyboardInterrupt  # before the first epoch had ended: there is nothing to keep
        # exp(-n Δloss / 2): n held-out rows, not pairs, is what the held-out loss was learned from.
        weights = torch.softmax(-0.5 * len(split[1]) * torch.tensor(losses, dtype=torch.float64), 0).tolist()
        shift = same_log_odds_shift(n_classes)
        shape = tuple(X.shape[1:])
        return cls(modules, weights if len(modules) > 1 else [1.0], used, shape, n_classes, shift, history, interrupted)

    def similarity(self, A: Tensor, B: Tensor, correction: bool = True) -> FloatArray:
        """Sim (V itself with ``correction=False``) for every pair, (len A, len B)."""
        total = torch.zeros(len(A), len(B), dtype=torch.float64)
        for weight, module in self._used():
            total += weight * scoring.similarity(module, A, B, self.shift if correction else 0.0)
        return total.numpy()

    def class_similarity(
        self,
        X: Tensor,
        references: Tensor,
        reference_codes: npt.NDArray[np.intp],
        reference_weight: FloatArray | None = None,
        exclude: npt.NDArray[np.intp] | None = None,
        correction: bool = True,
    ) -> tuple[FloatArray, FloatArray]:
        """q(x) and its standard error, each (n, K); ``exclude`` is each row's place among the references, or -1."""
        labels = torch.from_numpy(np.asarray(reference_codes, dtype=np.int64))
        own: bool | Tensor = False if exclude is None else torch.from_numpy(np.asarray(exclude, dtype=np.int64))
        weighed = None if reference_weight is None else torch.from_numpy(reference_weight)
        shift = self.shift if correction else 0.0
        q = torch.zeros(len(X), self.n_classes, dtype=torch.float64)
        stderr = torch.zeros_like(q)
        for weight, module in self._used():
            part = scoring.class_similarity(module, X, references, labels, self.n_classes, own, shift, weighed)
            q += weight * part.q
            # Networks score the same references, so their errors go together: standard errors add up, not variances.
            stderr += weight * part.stderr
        return q.numpy(), stderr.numpy()

    def _used(self) -> list[tuple[float, PairModule]]:
        least = SMALLEST_SHARE * max(self.weights)
        return [(w, module) for w, module in zip(self.weights, self.modules, strict=True) if w > least]

    @property
    def device(self) -> str:
        """Where the weights are, and rows are wanted."""
        return next((str(t.device) for module in self.modules for t in module.state_dict().values()), "cpu")

    def export(self) -> dict[str, Any]:
        """A tree of arrays and JSON values."""
        networks = [
            {
                "weight": weight,
                "sizes": None if sizes is None else list(sizes),
                "state": {name: tensor.detach().cpu().numpy() for name, tensor in module.state_dict().items()},
            }
            for weight, sizes, module in zip(self.weights, self.sizes, self.modules, strict=True)
        ]
        return {
            "input_shape": list(self.input_shape),
            "n_classes": self.n_classes,
            "shift": self.shift,
            "networks": networks,
        }

    @classmethod
    def restore(cls, tree: Mapping[str, Any], n_classes: int, factory: EncoderFactory | None) -> PairModel:
        """The inverse of :meth:`export`; what does not fit is refused. A custom body needs its ``factory`` again."""
        shape = tuple(check.check_count(size, "input_shape") for size in tree["input_shape"])
        if tree["n_classes"] != n_classes:
            raise ValueError(f"a fold must have {n_classes} classes, got {tree['n_classes']!r}")
        modules: list[PairModule] = []
        sizes: list[tuple[int, ...] | None] = []
        for network in tree["networks"]:
            state = {str(name): np.asarray(array) for name, array in network["state"].items()}
            hidden = None if network["sizes"] is None else tuple(int(size) for size in network["sizes"])
            modules.append(_restored_module(state, hidden, shape, factory))
            sizes.append(hidden)
        weights = check.check_finite([float(network["weight"]) for network in tree["networks"]], "weights", ndim=1)
        check.check_non_negative(weights, "weights of networks", "the file was edited")
        if not weights.any():
            raise ValueError("weights of networks must not all be zero")
        shift = float(check.check_finite(tree["shift"], "shift", ndim=0))
        return cls(modules, weights.tolist(), sizes, shape, n_classes, shift)


def validation_split(y: Tensor, config: TrainingConfig, seed: int) -> Split:
    """(rows to train on, rows for early stopping); without early stopping all rows are trained on."""
    if config.patience == 0:
        return torch.arange(len(y), device=y.device), torch.arange(0, device=y.device)
    return inner_splits(y, 1, VALIDATION_FRACTION, seed)[0]


def classes_without_pairs(
    codes: npt.NDArray[np.intp], n_classes: int, config: TrainingConfig, seed: int
) -> npt.NDArray[np.bool_]:
    """Which classes are too small for balanced pairs in one of the two parts that a fold is trained with."""
    split = validation_split(torch.from_numpy(np.asarray(codes, dtype=np.int64)), config, seed)
    trained, held_out = (np.bincount(codes[rows.numpy()], minlength=n_classes) for rows in split)
    return np.asarray((trained < 2) | (held_out == 1))


def _restored_module(
    state: dict[str, npt.NDArray[Any]],
    hidden: tuple[int, ...] | None,
    shape: tuple[int, ...],
    factory: EncoderFactory | None,
) -> PairModule:
    """The network that a file describes; sizes are compared with the arrays that came along before it is built."""
    module: PairModule
    if hidden is None:
        if factory is None:
            raise ValueError("the model holds a custom module: pass the factory that built it")
        module = pair_module(factory, shape[0], len(shape))
    else:
        wanted = sum((a + 1) * b for a, b in pairwise([2 * shape[0], *hidden, 1]))
        if wanted != sum(array.size for array in state.values()):
            raise ValueError(f"a network of hidden layers {hidden} does not fit the weights in the file")
        if not all(np.abs(array).max(initial=0.0) <= LARGEST_WEIGHT for array in state.values()):  # nan is not
            raise ValueError(f"weights must lie within ±{LARGEST_WEIGHT:g}")
        module = PairwiseNetwork(shape[0], hidden)
    try:
        module.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in state.items()})
    except RuntimeError as error:
        raise ValueError(f"the weights of a network do not fit it: {error}") from None
    module.eval()
    return module
