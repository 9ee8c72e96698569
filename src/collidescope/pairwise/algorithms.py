"""The paper's Algorithms 1 and 2, cross-fitted: S and posteriors from the pair-wise model V.

Symbols: n rows, K classes, G the Gramian, V(x, x') the probability of "same class" for pairs as
sampled, Sim(x, x') = y(x)·y(x') that for two independent draws, q(x) = S y(x) the mean similarity
of x to the references of each class. All of it holds at uniform priors, because pairs are sampled
with classes in equal shares; posteriors are then brought to the priors of the training rows. Where
the paper's equations run: (30) ``sample_pairs`` and (31, 32) ``balanced_risk``, called by every
training step; (38) ``class_similarity``; (34) ``gramian_from_similarities``; (35, 36) ``recover``;
(44) ``solve_posteriors``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope.equations.gramian import gramian_from_similarities
from collidescope.equations.posterior import shift_priors, solve_posteriors
from collidescope.equations.recovery import recover
from collidescope.folds import Folds
from collidescope.learners.base import LARGEST_NUMBER, Task, checked
from collidescope.pairwise import scoring
from collidescope.pairwise.model import Pairwise
from collidescope.pairwise.pairs import PairObjective, same_log_odds_shift
from collidescope.pairwise.scoring import PairwiseNetwork
from collidescope.sample import Sample, Table
from collidescope.training.config import TrainingConfig, check_sizes
from collidescope.training.loop import fit_loop, seeded_module
from collidescope.training.networks import EncoderFactory, mlp
from collidescope.training.rows import (
    VALIDATION_FRACTION,
    as_rows,
    labels_and_weights,
    tensor,
    validation_split,
)

#: Networks of ``hidden_layer_sizes="auto"``, weighed by their held-out loss.
AUTO_SIZES: tuple[tuple[int, ...], ...] = ((64,), (128, 128))
SMALLEST_SHARE = (
    1e-6  #: a network below this share of the largest weight changes no digit of a score
)
RIDGES = (0.0, 1e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)  #: tried; the lowest held-out log loss is kept
SMALLEST_PROBABILITY = 1e-6


class Weighed(NamedTuple):
    """A network of V: how much it counts, and its hidden layers (None for a custom body)."""

    weight: float
    sizes: tuple[int, ...] | None
    module: PairwiseNetwork


@dataclass
class PairModel:
    """One fold's V: a mean of networks."""

    networks: list[Weighed]
    input_shape: tuple[int, ...]
    n_classes: int
    history: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    interrupted: bool = False

    @property
    def shift(self) -> float:
        """What balanced sampling added to the log odds of "same"; the correction takes it off."""
        return same_log_odds_shift(self.n_classes)

    @classmethod
    def train(cls, task: Task, factory: EncoderFactory | None = None) -> PairModel:
        """Train V on pairs of rows: a network for each capacity, weighted by held-out loss."""
        config, seed = TrainingConfig.from_mapping(task.training, task.device), task.seed
        y, w = labels_and_weights(task.codes, task.sample_weight, task.device)
        split = validation_split(y, config, seed)
        objective = PairObjective(as_rows(task.X, task.device), y, split, config, seed, w)
        own = config.hidden_layer_sizes
        capacities = (
            (None,) if factory is not None else AUTO_SIZES if isinstance(own, str) else (own,)
        )
        model, trained = cls([], tuple(task.X.shape[1:]), task.n_classes), []
        for sizes in capacities:
            build = partial(_network, sizes, model.input_shape, factory, config.dropout)
            name = "pairwise-" + (
                "module" if sizes is None else "x".join(map(str, sizes)) or "linear"
            )
            run = fit_loop(
                seeded_module(build, seed),
                objective,
                config,
                seed,
                task.report,
                task.checkpoint,
                name,
            )
            if run.history:
                model.history[name] = run.history
                trained.append((sizes, run))
            model.interrupted = run.interrupted
            if run.interrupted:
                break
        if not trained:
            raise KeyboardInterrupt  # before the first epoch had ended: there is nothing to keep
        # exp(-n Δloss / 2): n held-out rows, not pairs, is what the held-out loss was learned from.
        # Without it (nan) networks count the same.
        losses = torch.tensor([float(run.best.loss[0]) for _, run in trained], dtype=torch.float64)
        weights = torch.softmax(torch.nan_to_num(-0.5 * len(split[1]) * losses), 0).tolist()
        model.networks = [
            Weighed(weight, sizes, run.module)  # type: ignore[arg-type]
            for weight, (sizes, run) in zip(weights, trained, strict=True)
        ]
        return model

    def similarity(self, A: Tensor, B: Tensor, correction: bool = True) -> FloatArray:
        """Sim (V itself with ``correction=False``) for every pair, (len A, len B)."""
        return self._mean(
            lambda module: scoring.similarity(module, A, B, self.shift if correction else 0.0)
        )

    def class_similarity(
        self,
        X: Tensor,
        references: References,
        own: IntArray | None = None,
        correction: bool = True,
    ) -> FloatArray:
        """q(x) and its standard error, (2, n, K); ``own``: places among the references, or -1.

        Networks score the same references, so their errors go together: standard errors add up, not
        variances.
        """
        rows, labels, weights = (
            tensor(references.rows),
            torch.from_numpy(references.codes),
            references.weights,
        )
        weighed = None if weights is None else torch.from_numpy(weights)
        places = None if own is None else torch.from_numpy(own)
        given = (
            X,
            rows,
            labels,
            self.n_classes,
            places,
            self.shift if correction else 0.0,
            weighed,
        )
        return self._mean(lambda module: torch.stack(scoring.class_similarity(module, *given)))

    def _mean(self, score: Callable[[PairwiseNetwork], Tensor]) -> FloatArray:
        least = SMALLEST_SHARE * max(each.weight for each in self.networks)
        used = [each for each in self.networks if each.weight > least]
        return np.asarray(sum((each.weight * score(each.module)).double().numpy() for each in used))

    def export(self) -> dict[str, Any]:
        states = [
            {name: t.detach().cpu().numpy() for name, t in m.state_dict().items()}
            for _, _, m in self.networks
        ]
        parts = zip(self.networks, states, strict=True)
        networks = [
            {"weight": each.weight, "sizes": each.sizes, "state": state} for each, state in parts
        ]
        tree = {name: getattr(self, name) for name in ("input_shape", "n_classes", "shift")}
        return tree | {"networks": networks}

    @classmethod
    def restore(
        cls, tree: Mapping[str, Any], n_classes: int, factory: EncoderFactory | None
    ) -> PairModel:
        """The inverse of :meth:`export`, checked. A custom body needs its ``factory`` again."""
        shape = tuple(check.check_count(size, "input_shape") for size in tree["input_shape"])
        if tree["n_classes"] != n_classes:
            raise ValueError(f"a fold must have {n_classes} classes, got {tree['n_classes']!r}")
        networks = [_restored(each, shape, factory) for each in tree["networks"]]
        if not any(each.weight for each in networks):
            raise ValueError("weights of networks must not all be zero")
        return cls(networks, shape, n_classes)


def _network(
    sizes: tuple[int, ...] | None,
    shape: tuple[int, ...],
    factory: EncoderFactory | None,
    dropout: float = 0.0,
) -> PairwiseNetwork:
    """A plain V with hidden layers ``sizes``, or where these are None ``factory(2d, 1)``."""
    if sizes is not None:
        return PairwiseNetwork(mlp(2 * shape[0], 1, sizes, dropout))
    if factory is None:
        raise ValueError("the model holds a custom module: pass the factory that built it")
    return PairwiseNetwork(factory(2 * shape[0], 1))


def _restored(
    tree: dict[str, Any], shape: tuple[int, ...], factory: EncoderFactory | None
) -> Weighed:
    """The network that a file describes; its sizes are compared with its arrays first."""
    state = {str(name): np.asarray(array) for name, array in tree["state"].items()}
    sizes = None if tree["sizes"] is None else check_sizes(tree["sizes"])
    if sizes is not None:
        # A layer from a to b units has a b weights and b biases.
        wanted = sum((a + 1) * b for a, b in pairwise([2 * shape[0], *sizes, 1]))
        if wanted != sum(array.size for array in state.values()):
            raise ValueError(
                f"a network of hidden layers {sizes} does not fit the weights in the file"
            )
        if not all(
            np.abs(array).max(initial=0.0) <= LARGEST_NUMBER for array in state.values()
        ):  # nan is not
            raise ValueError(f"weights must lie within ±{LARGEST_NUMBER:g}")
    module = _network(sizes, shape, factory)
    # By their order: layers of dropout, which a restored network lacks, count in the names of plain
    # layers.
    names = state if sizes is None else module.state_dict()
    try:
        given = zip(names, state.values(), strict=True)
        module.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in given})
    except RuntimeError as error:
        raise ValueError(f"the weights of a network do not fit it: {error}") from None
    return Weighed(
        check.check_between(tree["weight"], 0, 1, "weight", closed=True), sizes, module.eval()
    )


class References(NamedTuple):
    """Rows of a fold that others are compared with (the paper's m points per class)."""

    rows: npt.NDArray[np.float32]
    codes: IntArray
    weights: FloatArray | None  #: None when all weigh the same


@dataclass(frozen=True)
class PairComparison:
    """Models of all folds with their references: similarities become posteriors (Algorithm 2)."""

    settings: Pairwise
    folds: list[PairModel]
    references: list[References]
    matrix: FloatArray  #: S at uniform priors
    ridge: float
    train_priors: FloatArray
    gramian: FloatArray | None = None  #: at uniform priors
    reference_stderr: float | None = None
    held_out: list[FloatArray] = field(default_factory=list)  #: log posteriors, fold by fold

    @property
    def recovery(self) -> str:
        return self.settings.recovery

    @property
    def from_gramian(self) -> bool:
        return self.settings.estimate == "gramian"

    @property
    def correction(self) -> bool:
        return self.settings.correction == "prior"

    def log_posteriors(self, X: Table) -> FloatArray:
        """Log posteriors of new standardised rows: q, a mean over the folds, solved for y."""
        rows = tensor(np.asarray(X))
        parts = zip(self.folds, self.references, strict=True)
        q = [
            fold.class_similarity(rows, references, correction=self.correction)[0]
            for fold, references in parts
        ]
        y = solve(
            np.mean(q, axis=0), self.matrix, self.train_priors, self.settings.solver, self.ridge
        )
        return logarithm(y)

    def similarity(self, A: Table, B: Table) -> FloatArray:
        """Sim of every pair of new standardised rows, at uniform priors."""
        first = tensor(np.asarray(A))
        second = tensor(np.asarray(B))
        each = [fold.similarity(first, second, self.correction) for fold in self.folds]
        return np.asarray(np.mean(each, axis=0))

    def export(self) -> dict[str, Any]:
        """What a file holds."""
        return {
            "settings": {name: getattr(self.settings, name) for name in SAVED},
            "folds": [fold.export() for fold in self.folds],
            "references": [references._asdict() for references in self.references],
            "matrix": self.matrix,
            "ridge": self.ridge,
            "train_priors": self.train_priors,
        }

    @classmethod
    def restore(
        cls, tree: Mapping[str, Any], network: EncoderFactory | None = None
    ) -> PairComparison:
        """The inverse of :meth:`export`; KeyError, TypeError or ValueError on what does not fit."""
        settings = Pairwise(**dict(tree["settings"]), network=network)
        priors = check.check_priors(tree["train_priors"], len(tree["train_priors"]), "train_priors")
        k = len(priors)
        folds = [PairModel.restore(each, k, network) for each in tree["folds"]]
        if not folds or len(tree["references"]) != len(folds):
            raise ValueError("every fold must have its references")
        shape = folds[0].input_shape
        matrix = check.check_square(tree["matrix"], "matrix")
        if len(matrix) != k:
            raise ValueError("its parts do not agree on the classes or features")
        references = [_restored_references(each, shape, k) for each in tree["references"]]
        ridge = check.check_at_least(tree["ridge"], 0.0, "ridge")
        return cls(settings, folds, references, matrix, ridge, priors)


#: Settings that a file holds; the network is code.
SAVED = ("recovery", "correction", "solver", "n_references", "estimate")


def logarithm(posteriors: FloatArray) -> FloatArray:
    """Logarithms, of zeros minus infinity."""
    with np.errstate(divide="ignore"):
        return np.log(posteriors)


def solve(
    q: FloatArray, S: FloatArray, priors: FloatArray, solver: str = "simplex", ridge: float = 0.0
) -> FloatArray:
    """Posteriors at ``priors`` from q at uniform priors: y = S⁻¹ q, the paper's equation (44)."""
    uniform = np.full(len(priors), 1 / len(priors))
    y = solve_posteriors(q, S, solver, ridge, uniform)
    if solver == "inverse":
        y = np.maximum(y, 0.0)  # the paper's S⁻¹ q may leave the simplex; probabilities may not
        total = y.sum(axis=1, keepdims=True)
        y = np.divide(y, total, out=np.tile(uniform, (len(y), 1)), where=total > 0)
    return shift_priors(y, uniform, priors)


def best_ridge(
    q: FloatArray,
    S: FloatArray,
    priors: FloatArray,
    codes: IntArray,
    weights: FloatArray | None = None,
) -> float:
    """The ridge with the lowest held-out log loss."""
    losses = []
    for ridge in RIDGES:
        own = solve(q, S, priors, ridge=ridge)[np.arange(len(codes)), codes]
        loss = -np.log(np.maximum(own, SMALLEST_PROBABILITY))
        losses.append(np.average(loss, weights=weights))
    return RIDGES[int(np.argmin(losses))]


def _restored_references(tree: dict[str, Any], shape: tuple[int, ...], k: int) -> References:
    rows = checked(tree, "rows", (np.float32,), (None, *shape))
    codes = checked(tree, "codes", (np.intp,), (len(rows),))
    weights = tree["weights"]
    if weights is not None:
        weights = checked(tree, "weights", (np.float64,), (len(rows),))
    if set(np.unique(codes)) != set(range(k)) or (weights is not None and weights.min() <= 0):
        raise ValueError("references must be rows of every class with positive weights")
    return References(rows, codes, weights)


def compare_pairs(
    settings: Pairwise, models: list[PairModel], sample: Sample, folds: Folds
) -> PairComparison:
    """Algorithm 1 after the training: the Gramian, S and posteriors from held-out similarities.

    Folds after those of ``models`` were not trained (Ctrl-C), and their rows take no part.
    """
    tests = [test for _, test in folds.splits[: len(models)]]
    rows = np.sort(np.concatenate(tests))
    places = [np.searchsorted(rows, test) for test in tests]
    rng = np.random.default_rng(folds.seed)
    q = np.empty((len(rows), sample.n_classes))
    references, noise = list[References](), list[FloatArray]()
    for model, test, place in zip(models, tests, places, strict=True):
        chosen = choose_references(sample.codes[test], settings.per_class, rng)
        # References are held-out rows too: each knows its own place among them, and is not compared
        # with itself.
        own = np.full(len(test), -1)
        own[chosen] = np.arange(len(chosen))
        known = sample.entries(test[chosen])
        compared = References(np.asarray(sample.take(test[chosen])), known.codes, known.weights)
        held_out = tensor(sample.take(test))
        shifted = settings.correction == "prior"
        q[place], errors = model.class_similarity(held_out, compared, own, shifted)
        references.append(compared)
        noise.append(errors)
    # Algorithm 1, second part: Ĝ from held-out similarities (equation 34), S from Ĝ (35, 36).
    labels = sample.entries(rows)
    G = gramian_from_similarities(q, labels.codes, labels.weights)
    S = recover(G, method=settings.recovery).matrix
    priors = sample.shares
    ridge = 0.0
    if settings.solver == "simplex":
        ridge = best_ridge(q, S, priors, labels.codes, labels.weights)
    logs = logarithm(solve(q, S, priors, settings.solver, ridge))
    held_out_logs = [logs[place] for place in places]
    stderr = _mean_finite(np.concatenate(noise))
    return PairComparison(settings, models, references, S, ridge, priors, G, stderr, held_out_logs)


def _mean_finite(errors: FloatArray) -> float | None:
    """Without nan: from a single reference of a class no standard error can be told."""
    finite = errors[np.isfinite(errors)]
    return float(finite.mean()) if finite.size else None


def choose_references(codes: IntArray, per_class: int | None, rng: np.random.Generator) -> IntArray:
    """Rows of a fold that serve as comparison points: all, or so many of each class."""
    if per_class is None:
        return np.arange(len(codes))
    picked = [rng.permutation(np.flatnonzero(codes == c))[:per_class] for c in np.unique(codes)]
    return np.sort(np.concatenate(picked))


def check_pair_members(sample: Sample, folds: Folds, training: Mapping[str, Any] | None) -> None:
    """Refuse classes too small for pairs before any fold is trained."""
    codes = sample.codes
    k = sample.n_classes
    config = TrainingConfig.from_mapping(training, "cpu")
    for (train, test), seed in zip(folds.splits, folds.seeds, strict=True):
        labels, _ = labels_and_weights(codes[train], None, "cpu")
        parts = validation_split(labels, config, seed)
        trained, watched = (np.bincount(codes[train][part.numpy()], minlength=k) for part in parts)
        held_out = np.bincount(codes[test], minlength=k)
        few = (trained < 2) | (watched == 1) | (held_out < 2)
        if few.any():
            n_folds = len(folds.splits)
            need = int(np.ceil(2 / VALIDATION_FRACTION / (1 - 1 / n_folds)))
            own = np.bincount(codes, minlength=k)
            small = int(np.where(few, own, own.max() + 1).argmin())
            found = f"class {sample.classes.tolist()[small]!r} has {own[small]}"
            needs = f"Pairwise() with cv={n_folds} needs about {need} members of every class"
            hint = "use the default members, gather more of it, or merge or drop it"
            raise ValueError(f"{needs}, {found}: {hint}")
