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
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from collidescope import _checks as check
from collidescope._checks import Array, FloatArray, IntArray
from collidescope._saving import LARGEST_NUMBER, check_array, from_tree, to_tree
from collidescope._store import Tree
from collidescope.equations.gramian import gramian_from_similarities
from collidescope.equations.posterior import (
    cut_to_probabilities,
    shift_priors,
    solve_posteriors,
)
from collidescope.equations.recovery import recover
from collidescope.folds import Folds
from collidescope.learners.base import Task, of_class
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
#: Tried; the one with the lowest held-out log loss is kept.
RIDGES = (0.0, 1e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)


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
        config = TrainingConfig.from_mapping(task.training, task.device)
        seed = task.seed
        y, w = labels_and_weights(task.codes, task.sample_weight, task.device)
        split = validation_split(y, config, seed)
        rows = as_rows(task.X, task.device)
        objective = PairObjective(rows, y, split, config, seed, w)
        model = cls([], tuple(task.X.shape[1:]), task.n_classes)
        losses = []
        for sizes in _capacities(config, factory):
            build = partial(_network, sizes, model.input_shape, factory, config.dropout)
            name = _name_of(sizes)
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
                assert isinstance(run.module, PairwiseNetwork)
                model.history[name] = run.history
                model.networks.append(Weighed(1.0, sizes, run.module))
                losses.append(float(run.best.loss[0]))
            model.interrupted = run.interrupted
            if run.interrupted:
                break
        if not losses:
            raise KeyboardInterrupt  # before the first epoch had ended: there is nothing to keep
        weights = _weights_of(losses, n_held_out=len(split[1]))
        model.networks = [
            each._replace(weight=weight)
            for each, weight in zip(model.networks, weights, strict=True)
        ]
        return model

    def similarity(self, A: Tensor, B: Tensor, correction: bool = True) -> FloatArray:
        """Sim (V itself with ``correction=False``) for every pair, (len A, len B)."""
        shift = self.shift if correction else 0.0
        return self._mean(lambda module: scoring.similarity(module, A, B, shift))

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
        found = partial(
            scoring.class_similarity,
            X=X,
            references=tensor(references.rows),
            reference_labels=torch.from_numpy(references.codes),
            n_classes=self.n_classes,
            own=_as_tensor(own),
            shift=self.shift if correction else 0.0,
            reference_weight=_as_tensor(references.weights),
        )
        return self._mean(lambda module: torch.stack(found(module)))

    def _mean(self, score: Callable[[PairwiseNetwork], Tensor]) -> FloatArray:
        # Below this share of the largest weight a network changes no digit of a score.
        least = 1e-6 * max(each.weight for each in self.networks)
        total = np.zeros(())
        for each in self.networks:
            if each.weight > least:
                total = total + (each.weight * score(each.module)).double().numpy()
        return total


def _as_tensor(values: Array | None) -> Tensor | None:
    if values is None:
        return None
    return torch.from_numpy(values)


def _capacities(
    config: TrainingConfig, factory: EncoderFactory | None
) -> tuple[tuple[int, ...] | None, ...]:
    """Hidden layers of the networks to train; None stands for a body of the user's own."""
    if factory is not None:
        return (None,)
    if isinstance(config.hidden_layer_sizes, str):
        return AUTO_SIZES
    return (config.hidden_layer_sizes,)


def _name_of(sizes: tuple[int, ...] | None) -> str:
    if sizes is None:
        return "pairwise-module"
    layers = "x".join(map(str, sizes))
    return f"pairwise-{layers or 'linear'}"


def _weights_of(losses: list[float], n_held_out: int) -> list[float]:
    """Weights exp(-n Δloss / 2) of networks by their held-out losses.

    n counts held-out rows, not pairs: that is what the loss was learned from. Without any (nan)
    networks count the same.
    """
    each = torch.tensor(losses, dtype=torch.float64)
    evidence = torch.nan_to_num(-0.5 * n_held_out * each)
    weights: list[float] = torch.softmax(evidence, 0).tolist()
    return weights


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
        raise ValueError(
            "the model holds a custom module: pass the factory that built it"
        )
    return PairwiseNetwork(factory(2 * shape[0], 1))


@dataclass(frozen=True)
class SavedNetwork:
    """What a file holds of a network of V."""

    weight: Annotated[float, 0.0, 1.0]
    sizes: list[int] | None  #: hidden layers; None for a custom body
    state: dict[str, Array]  #: weights, by the names of torch

    @classmethod
    def of(cls, network: Weighed) -> SavedNetwork:
        """What a file keeps of a network."""
        arrays = {
            name: values.detach().cpu().numpy()
            for name, values in network.module.state_dict().items()
        }
        sizes = None
        if network.sizes is not None:
            sizes = list(network.sizes)
        return cls(network.weight, sizes, arrays)

    def restored(
        self, shape: tuple[int, ...], factory: EncoderFactory | None
    ) -> Weighed:
        """The network; a custom body needs its ``factory`` again."""
        sizes = None
        names = list(self.state)
        if self.sizes is not None:
            sizes = check_sizes(self.sizes)
            self._check_plain(2 * shape[0], sizes)
        module = _network(sizes, shape, factory)
        if sizes is not None:
            # By their order: layers of dropout, which a restored network lacks, count in the names
            # of plain layers.
            names = list(module.state_dict())
        tensors = [torch.from_numpy(array.copy()) for array in self.state.values()]
        try:
            module.load_state_dict(dict(zip(names, tensors, strict=True)))
        except RuntimeError as error:
            raise ValueError(
                f"the weights of a network do not fit it: {error}"
            ) from None
        return Weighed(self.weight, sizes, module.eval())

    def _check_plain(self, n_inputs: int, sizes: tuple[int, ...]) -> None:
        """Compare hidden layers with the arrays before memory is taken for a network."""
        # A layer from a to b units has a b weights and b biases.
        wanted = sum((a + 1) * b for a, b in pairwise([n_inputs, *sizes, 1]))
        arrays = self.state.values()
        if wanted != sum(array.size for array in arrays):
            raise ValueError(
                f"a network of hidden layers {sizes} does not fit the weights in the "
                "file"
            )
        for array in arrays:
            if not np.abs(array).max(initial=0.0) <= LARGEST_NUMBER:  # nan is not
                raise ValueError(f"weights must lie within ±{LARGEST_NUMBER:g}")


@dataclass(frozen=True)
class References:
    """Rows of a fold that others are compared with (the paper's m points per class)."""

    rows: Array  #: float32, as models see them
    codes: Annotated[IntArray, "i8 m"]
    weights: Annotated[FloatArray, "f8 m"] | None  #: None when all weigh the same

    def check(self, shape: tuple[int, ...], n_classes: int) -> None:
        """Refuse what does not fit rows of this shape and these classes."""
        wanted = (len(self.codes), *shape)
        check_array(self.rows, "rows of references", ["f4"], wanted)
        positive = self.weights is None or (self.weights > 0).all()
        if not positive or set(self.codes.tolist()) != set(range(n_classes)):
            raise ValueError(
                "references must be rows of every class with positive weights"
            )


@dataclass(frozen=True)
class SavedPairs:
    """What a file holds of a :class:`PairComparison`."""

    settings: Pairwise
    train_priors: Annotated[FloatArray, "f8 K"]
    matrix: Annotated[FloatArray, "f8 K K"]
    ridge: Annotated[float, 0.0, 1e9]
    input_shape: tuple[Annotated[int, 1, 2**31], ...]
    folds: list[list[SavedNetwork]]
    references: list[References]

    def __post_init__(self) -> None:
        k = len(self.train_priors)
        check.check_priors(self.train_priors, k, "train_priors")
        if not self.folds or len(self.references) != len(self.folds):
            raise ValueError("every fold must have its references")
        for references in self.references:
            references.check(self.input_shape, k)
        for networks in self.folds:
            if not any(network.weight for network in networks):
                raise ValueError("weights of networks must not all be zero")


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
    #: log posteriors, fold by fold
    held_out: list[FloatArray] = field(default_factory=list)

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
        q = []
        for fold, references in zip(self.folds, self.references, strict=True):
            own, _ = fold.class_similarity(rows, references, correction=self.correction)
            q.append(own)
        y = solve(
            np.mean(q, axis=0),
            self.matrix,
            self.train_priors,
            self.settings.solver,
            self.ridge,
        )
        return logarithm(y)

    def similarity(self, A: Table, B: Table) -> FloatArray:
        """Sim of every pair of new standardised rows, at uniform priors."""
        first = tensor(np.asarray(A))
        second = tensor(np.asarray(B))
        each = [fold.similarity(first, second, self.correction) for fold in self.folds]
        return np.asarray(np.mean(each, axis=0))

    def export(self) -> Tree:
        """What a file holds."""
        saved = SavedPairs(
            settings=self.settings,
            train_priors=self.train_priors,
            matrix=self.matrix,
            ridge=self.ridge,
            input_shape=self.folds[0].input_shape,
            folds=[
                [SavedNetwork.of(each) for each in fold.networks] for fold in self.folds
            ],
            references=self.references,
        )
        tree: Tree = to_tree(saved)
        return tree

    @classmethod
    def restore(
        cls, tree: Tree, network: EncoderFactory | None = None
    ) -> PairComparison:
        """The inverse of :meth:`export`; ValueError on what does not fit."""
        saved = from_tree(SavedPairs, tree, given={"network": network})
        shape = saved.input_shape
        folds = []
        for networks in saved.folds:
            restored = [each.restored(shape, network) for each in networks]
            folds.append(PairModel(restored, shape, len(saved.train_priors)))
        return cls(
            settings=saved.settings,
            folds=folds,
            references=saved.references,
            matrix=saved.matrix,
            ridge=saved.ridge,
            train_priors=saved.train_priors,
        )


def logarithm(posteriors: FloatArray) -> FloatArray:
    """Logarithms, of zeros minus infinity."""
    with np.errstate(divide="ignore"):
        return np.log(posteriors)


def solve(
    q: FloatArray,
    S: FloatArray,
    priors: FloatArray,
    solver: str = "simplex",
    ridge: float = 0.0,
) -> FloatArray:
    """Posteriors at ``priors`` from q at uniform priors: y = S⁻¹ q, the paper's equation (44)."""
    k = len(priors)
    uniform = np.full(k, 1 / k)
    y = solve_posteriors(q, S, solver, ridge, uniform)
    if solver == "inverse":
        # The paper's S⁻¹ q may leave the simplex; probabilities may not.
        y = cut_to_probabilities(y)
    return shift_priors(y, uniform, priors)


def best_ridge(
    q: FloatArray,
    S: FloatArray,
    priors: FloatArray,
    codes: IntArray,
    weights: FloatArray | None = None,
) -> float:
    """The ridge with the lowest held-out log loss."""
    smallest_probability = 1e-6
    losses = []
    for ridge in RIDGES:
        y = solve(q, S, priors, ridge=ridge)
        own = np.maximum(of_class(y, codes), smallest_probability)
        losses.append(np.average(-np.log(own), weights=weights))
    return RIDGES[int(np.argmin(losses))]


def compare_pairs(
    settings: Pairwise, models: list[PairModel], sample: Sample, folds: Folds
) -> PairComparison:
    """Algorithm 1 after the training: the Gramian, S and posteriors from held-out similarities.

    Folds after those of ``models`` were not trained (Ctrl-C), and their rows take no part.
    """
    splits = folds.splits[: len(models)]
    tests = [test for _, test in splits]
    rows = np.sort(np.concatenate(tests))
    places = [np.searchsorted(rows, test) for test in tests]
    rng = np.random.default_rng(folds.seed)
    q = np.empty((len(rows), sample.n_classes))
    shifted = settings.correction == "prior"
    references = []
    noise = []
    for model, test, place in zip(models, tests, places, strict=True):
        chosen = choose_references(sample.codes[test], settings.per_class, rng)
        # References are held-out rows too: each knows its own place among them, and is not compared
        # with itself.
        own = np.full(len(test), -1)
        own[chosen] = np.arange(len(chosen))
        compared = _references(sample, test[chosen])
        held_out = tensor(sample.take(test))
        q[place], errors = model.class_similarity(held_out, compared, own, shifted)
        references.append(compared)
        noise.append(errors)
    # Algorithm 1, second part: Ĝ from held-out similarities (equation 34), S from Ĝ (35, 36).
    labels = sample.entries(rows)
    codes = labels.codes
    weights = labels.weights
    G = gramian_from_similarities(q, codes, weights)
    S = recover(G, method=settings.recovery).matrix
    priors = sample.shares
    ridge = 0.0
    if settings.solver == "simplex":
        ridge = best_ridge(q, S, priors, codes, weights)
    logs = logarithm(solve(q, S, priors, settings.solver, ridge))
    return PairComparison(
        settings=settings,
        folds=models,
        references=references,
        matrix=S,
        ridge=ridge,
        train_priors=priors,
        gramian=G,
        reference_stderr=_mean_finite(np.concatenate(noise)),
        held_out=[logs[place] for place in places],
    )


def _references(sample: Sample, rows: IntArray) -> References:
    known = sample.entries(rows)
    return References(np.asarray(sample.take(rows)), known.codes, known.weights)


def _mean_finite(errors: FloatArray) -> float | None:
    """The mean of the finite errors: a single reference of a class has no standard error."""
    finite = errors[np.isfinite(errors)]
    if not finite.size:
        return None
    return float(finite.mean())


def choose_references(
    codes: IntArray, per_class: int | None, rng: np.random.Generator
) -> IntArray:
    """Rows of a fold that serve as comparison points: all, or so many of each class."""
    if per_class is None:
        return np.arange(len(codes))
    picked = []
    for k in np.unique(codes):
        members = np.flatnonzero(codes == k)
        picked.append(rng.permutation(members)[:per_class])
    return np.sort(np.concatenate(picked))


def check_pair_members(
    sample: Sample, folds: Folds, training: Mapping[str, Any] | None
) -> None:
    """Refuse classes too small for pairs before any fold is trained."""
    codes = sample.codes
    k = sample.n_classes
    config = TrainingConfig.from_mapping(training, "cpu")
    for (train, test), seed in zip(folds.splits, folds.seeds, strict=True):
        labels, _ = labels_and_weights(codes[train], None, "cpu")
        learning, watching = validation_split(labels, config, seed)
        trained = torch.bincount(labels[learning], minlength=k).numpy()
        watched = torch.bincount(labels[watching], minlength=k).numpy()
        held_out = np.bincount(codes[test], minlength=k)
        few = (trained < 2) | (watched == 1) | (held_out < 2)
        if few.any():
            _refuse_small_class(sample, few, n_folds=len(folds.splits))


def _refuse_small_class(
    sample: Sample, few: npt.NDArray[np.bool_], n_folds: int
) -> None:
    trained_on = 1 - 1 / n_folds
    need = int(np.ceil(2 / (VALIDATION_FRACTION * trained_on)))
    sizes = np.bincount(sample.codes, minlength=sample.n_classes)
    smallest = int(np.where(few, sizes, sizes.max() + 1).argmin())
    raise ValueError(
        f"Pairwise() with cv={n_folds} needs about {need} members of every class, "
        f"class {sample.classes.tolist()[smallest]!r} has {sizes[smallest]}: "
        "use the default members, gather more of it, or merge or drop it"
    )
