"""The paper's Algorithms 1 and 2, cross-fitted: S and posteriors from the pair-wise model V.

Symbols: n rows, K classes, G the Gramian, V(x, x') the probability of "same class" for pairs as sampled, Sim(x, x') =
y(x)·y(x') that for two independent draws, q(x) = S y(x) the mean similarity of x to the references of each class. All
of it holds at uniform priors, because pairs are sampled with classes in equal shares; posteriors are then brought to
the priors of the training rows. Where the paper's equations run: (30) ``sample_pairs`` and (31, 32) ``balanced_risk``,
called by every training step; (38) ``class_similarity``; (34) ``gramian_from_similarities``; (35, 36) ``recover``; (44)
``solve_posteriors``.
"""

from __future__ import annotations

import math
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
from collidescope._progress import Progress
from collidescope._scaling import apply_scaling
from collidescope._threads import ONE_THREAD_NUMBERS, one_thread
from collidescope.equations.gramian import gramian_from_similarities
from collidescope.equations.posterior import shift_priors, solve_posteriors
from collidescope.equations.recovery import recover
from collidescope.folds import HeldOut, Plan, restored_scaling, run_folds
from collidescope.learners.base import LARGEST_NUMBER, Task, checked
from collidescope.pairwise import scoring
from collidescope.pairwise.pairs import PairObjective, same_log_odds_shift
from collidescope.pairwise.scoring import PairwiseNetwork
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
        """What balanced sampling added to the log odds of "same"; it is taken off unless ``correction=False``."""
        return same_log_odds_shift(self.n_classes)

    @classmethod
    def train(cls, task: Task, factory: EncoderFactory | None = None) -> PairModel:
        """Train V on pairs of the rows of ``task``: a network for each capacity, weighed by held-out loss."""
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
        # exp(-n Δloss / 2): n held-out rows, not pairs, is what the held-out loss was learned from. Without it (nan)
        # networks count the same.
        losses = torch.tensor([float(run.best.loss[0]) for _, run in trained], dtype=torch.float64)
        weights = torch.softmax(torch.nan_to_num(-0.5 * len(split[1]) * losses), 0).tolist()
        model.networks = [
            Weighed(w, sizes, run.module) for w, (sizes, run) in zip(weights, trained, strict=True)
        ]  # type: ignore[arg-type]
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
        """q(x) and its standard error, (2, n, K); ``own`` is each row's place among the references, or -1.

        Networks score the same references, so their errors go together: standard errors add up, not variances.
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
        """The inverse of :meth:`export`; what does not fit is refused. A custom body needs its ``factory`` again."""
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
    """A plain V with hidden layers ``sizes``, or with the custom body ``factory(2d, 1)`` where these are None."""
    if sizes is not None:
        return PairwiseNetwork(mlp(2 * shape[0], 1, sizes, dropout))
    if factory is None:
        raise ValueError("the model holds a custom module: pass the factory that built it")
    return PairwiseNetwork(factory(2 * shape[0], 1))


def _restored(
    tree: dict[str, Any], shape: tuple[int, ...], factory: EncoderFactory | None
) -> Weighed:
    """The network that a file describes; sizes are compared with the arrays that came along before it is built."""
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
    # By their order: layers of dropout, which a restored network lacks, count in the names of plain layers.
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


#: Fields of :class:`PairFit` that files hold as they are.
FIELDS = ("centre", "scale", "train_priors", "recovery", "correction", "solver", "ridge", "matrix")


@dataclass
class PairFit:
    """Pair-wise models of all folds, and how similarities to a fold's references become posteriors (Algorithm 2)."""

    folds: list[PairModel]
    centre: FloatArray
    scale: FloatArray
    train_priors: FloatArray
    recovery: str = "root"
    correction: bool = True
    solver: str = "simplex"
    ridge: float = 0.0
    matrix: FloatArray = field(default_factory=lambda: np.eye(2))
    references: list[References] = field(default_factory=list)
    interrupted: bool = False

    @property
    def history(self) -> list[dict[str, Any]]:
        """Epoch by epoch losses of every network, fold by fold."""
        return [fold.history for fold in self.folds]

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.folds[0].input_shape

    def posteriors(self, X: Any) -> FloatArray:
        """Posteriors of new rows at ``train_priors``: q is averaged over the folds, then solved for y."""
        rows, parts = self._rows(X), zip(self.folds, self.references, strict=True)
        q = [
            fold.class_similarity(rows, references, correction=self.correction)[0]
            for fold, references in parts
        ]
        return self.solve(np.mean(q, axis=0))

    def similarity(self, A: Any, B: Any) -> FloatArray:
        """Sim of every pair of new rows, at uniform priors."""
        first, second = self._rows(A), self._rows(B)
        return np.asarray(
            np.mean(
                [fold.similarity(first, second, self.correction) for fold in self.folds], axis=0
            )
        )

    def _rows(self, X: Any) -> Tensor:
        return tensor(apply_scaling(X, self.centre, self.scale))

    def solve(self, q: FloatArray) -> FloatArray:
        """Posteriors at ``train_priors`` from q at uniform priors: y = S⁻¹ q, the paper's equation (44)."""
        uniform = np.full(len(self.train_priors), 1 / len(self.train_priors))
        y = solve_posteriors(q, self.matrix, self.solver, self.ridge, uniform)
        if self.solver == "inverse":
            y = np.maximum(y, 0.0)  # the paper's S⁻¹ q may leave the simplex; probabilities may not
            total = y.sum(axis=1, keepdims=True)
            y = np.divide(y, total, out=np.tile(uniform, (len(y), 1)), where=total > 0)
        return shift_priors(y, uniform, self.train_priors)

    def choose_ridge(
        self, q: FloatArray, codes: IntArray, weights: FloatArray | None = None
    ) -> None:
        """Keep the ridge with the lowest held-out log loss (the inverse uses none)."""
        if self.solver == "inverse":
            return
        losses = []
        # solve takes the ridge from self.
        for self.ridge in RIDGES:
            own = self.solve(q)[np.arange(len(codes)), codes]
            losses.append(
                -np.average(np.log(np.maximum(own, SMALLEST_PROBABILITY)), weights=weights)
            )
        self.ridge = RIDGES[int(np.argmin(losses))]

    def export(self) -> dict[str, Any]:
        parts = {
            "folds": [fold.export() for fold in self.folds],
            "references": [r._asdict() for r in self.references],
        }
        return {"engine": "pairs", **{name: getattr(self, name) for name in FIELDS}, **parts}

    @classmethod
    def restore(
        cls, tree: Mapping[str, Any], factory: Callable[[int, int], Any] | None = None
    ) -> PairFit:
        """The inverse of :meth:`export`; raises KeyError, TypeError or ValueError on what does not fit."""
        priors, centre, scale = restored_scaling(tree)
        folds = [PairModel.restore(each, len(priors), factory) for each in tree["folds"]]
        if not folds or len(tree["references"]) != len(folds):
            raise ValueError("every fold must have its references")
        shape = folds[0].input_shape
        matrix = check.check_square(tree["matrix"], "matrix")
        if len(matrix) != len(priors) or len(scale) not in (1, *shape[:1]):
            raise ValueError("its parts do not agree on the classes or features")
        recovery = check.check_choice(tree["recovery"], ["root", "gradient"], "recovery")
        solver = check.check_choice(tree["solver"], ["simplex", "inverse"], "solver")
        ridge = check.check_at_least(tree["ridge"], 0.0, "ridge")
        references = [_restored_references(each, shape, len(priors)) for each in tree["references"]]
        correction = bool(tree["correction"])
        return cls(
            folds, centre, scale, priors, recovery, correction, solver, ridge, matrix, references
        )


def _restored_references(tree: dict[str, Any], shape: tuple[int, ...], k: int) -> References:
    rows = checked(tree, "rows", (np.float32,), (None, *shape))
    codes = checked(tree, "codes", (np.intp,), (len(rows),))
    weights = (
        None if tree["weights"] is None else checked(tree, "weights", (np.float64,), (len(rows),))
    )
    if set(np.unique(codes)) != set(range(k)) or (weights is not None and weights.min() <= 0):
        raise ValueError("references must be rows of every class with positive weights")
    return References(rows, codes, weights)


def fit_pairs(
    plan: Plan,
    progress: Progress | None = None,
    *,
    factory: Callable[[int, int], Any] | None = None,
    n_references: int | None = None,
    **choices: Any,
) -> tuple[PairFit, HeldOut]:
    """Algorithm 1: train the pair-wise model on every fold, estimate the Gramian and S, and solve for posteriors.

    ``n_references`` is the paper's m, comparison points per class and fold (all held-out rows by default);
    ``choices`` are ``recovery``, ``correction`` and ``solver`` of :class:`PairFit`.
    """
    held, labels, k = plan.held, plan.labels, plan.labels.n_classes

    def train(number: int, report: Any = None) -> PairModel:
        with one_thread(factory is None and math.prod(held.X.shape) <= ONE_THREAD_NUMBERS):
            return PairModel.train(plan.task(number, report), factory)

    models, interrupted = run_folds(train, len(plan.splits), plan.n_jobs, progress, plan.share)
    fitted = PairFit(
        models, held.centre, held.scale, labels.priors, interrupted=interrupted, **choices
    )
    rng = np.random.default_rng(plan.seed)
    tests = [test for _, test in plan.splits[: len(models)]]
    rows = np.sort(np.concatenate(tests))
    q, noise = np.empty((len(rows), k)), []
    for model, test in zip(models, tests, strict=True):
        chosen = choose_references(labels.codes[test], n_references, rng)
        # References are held-out rows too: each knows its own place among them, and is not compared with itself.
        own = np.full(len(test), -1)
        own[chosen] = np.arange(len(chosen))
        _, codes, weights = labels.take(test[chosen])
        fitted.references.append(References(np.asarray(held.take(test[chosen])), codes, weights))
        scores = model.class_similarity(
            tensor(held.take(test)), fitted.references[-1], own, fitted.correction
        )
        q[np.searchsorted(rows, test)] = scores[0]
        noise.append(scores[1])
    # Algorithm 1, second part: Ĝ from held-out similarities (equation 34), S from Ĝ (35, 36).
    _, codes, weights = labels.take(rows)
    G = gramian_from_similarities(q, codes, weights)
    fitted.matrix = recover(G, method=fitted.recovery).matrix
    fitted.choose_ridge(q, codes, weights)
    # a reference has one fewer of its own class, and from a single one no standard error can be told
    finite = np.concatenate(noise)[np.isfinite(np.concatenate(noise))]
    return fitted, HeldOut(rows, fitted.solve(q), G, float(finite.mean()) if finite.size else None)


def choose_references(codes: IntArray, per_class: int | None, rng: np.random.Generator) -> IntArray:
    """Rows of a fold that serve as comparison points: all, or so many of each class."""
    if per_class is None:
        return np.arange(len(codes))
    picked = [rng.permutation(np.flatnonzero(codes == c))[:per_class] for c in np.unique(codes)]
    return np.sort(np.concatenate(picked))


def check_pair_members(plan: Plan, classes: npt.NDArray[Any]) -> None:
    """Refuse classes too small for pairs before any fold is trained."""
    codes, k, config = (
        plan.labels.codes,
        len(classes),
        TrainingConfig.from_mapping(plan.training, "cpu"),
    )
    for (train, test), seed in zip(plan.splits, plan.seeds, strict=True):
        parts = validation_split(labels_and_weights(codes[train], None, "cpu")[0], config, seed)
        trained, watched = (np.bincount(codes[train][part.numpy()], minlength=k) for part in parts)
        few = (trained < 2) | (watched == 1) | (np.bincount(codes[test], minlength=k) < 2)
        if few.any():
            need = int(np.ceil(2 / VALIDATION_FRACTION / (1 - 1 / len(plan.splits))))
            own = np.bincount(codes, minlength=k)
            small = int(np.where(few, own, own.max() + 1).argmin())
            found = f"class {classes.tolist()[small]!r} has {own[small]}"
            needs = f"model='pairwise' with cv={len(plan.splits)} needs about {need} members of every class"
            raise ValueError(
                f"{needs}, {found}: use the default model, gather more of it, or merge or drop it"
            )
