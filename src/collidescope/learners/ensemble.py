"""One fold's model: several capacities, each with inner validation splits, pooled by held-out loss.

The recipe for the factorised model with ``hidden_layer_sizes="auto"``: inner splits of the fold's rows; on each, the
convex capacities of :mod:`~collidescope.learners.linear` (linear, low rank, quadratic) to their optimum and the
networks with early stopping on the held-out part, and boosted trees where asked; the splits' members averaged;
capacities pooled with weights from all held-out predictions. A tuple of sizes is one network with one split.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from collidescope.learners.fold_models import FoldModel, PairwiseFoldModel
from collidescope.learners.linear import (
    FULL_RANK,
    LinearSpec,
    SoftmaxRegression,
    fit_softmax_regression,
    n_regression_features,
)
from collidescope.learners.members import Member, member_posteriors
from collidescope.learners.pooling import held_out_weights
from collidescope.learners.trees import FEWEST_TREE_ROWS, MOST_TREE_CLASSES, BoostedTrees, grow
from collidescope.pairwise.pairs import same_log_odds_shift
from collidescope.training.config import TrainingConfig
from collidescope.training.loop import Progress, epoch_generator, fit_loop, seeded_module
from collidescope.training.networks import (
    EncoderFactory,
    OneMember,
    PairModule,
    PairwiseNetwork,
    StackedMLP,
    pair_module,
)
from collidescope.training.objectives import FactorisedObjective, PairwiseObjective
from collidescope.training.rows import Rows, as_rows
from collidescope.training.splits import Split, inner_splits

#: Capacities of ``"auto"``.
LINEAR_SPECS = (LinearSpec(0.3), LinearSpec(1.0, rank=1), LinearSpec(3.0, rank=FULL_RANK))
QUADRATIC_SPECS = (LinearSpec(10.0, quadratic=True), LinearSpec(1.0, quadratic=True))
HIDDEN_SIZES: tuple[tuple[int, ...], ...] = ((128, 128),)
PAIRWISE_HIDDEN_SIZES: tuple[tuple[int, ...], ...] = ((64,), (128, 128))
PAIR_LOSS_HIDDEN_SIZES: tuple[tuple[int, ...], ...] = ((), (64,), (128, 128))
#: Products of inputs are tried up to this many features (d = 30): beyond it they cost more than a network.
MOST_PRODUCTS = 500
#: Rows per feature beyond which the penalty no longer matters and one will do.
MANY_ROWS = 50
#: Multiplications of one pass (rows × features × classes) up to which full-batch L-BFGS is affordable.
MOST_WORK = 1_000_000_000
#: Up to so many rows every row is held out once (5 splits); up to the second 3 splits; beyond it one.
FIVE_SPLITS, THREE_SPLITS = 6_000, 15_000


def fit_members(
    X: Tensor | Rows,
    y: Tensor,
    n_classes: int,
    config: TrainingConfig,
    seed: int,
    sample_weight: Tensor | None = None,
    factory: EncoderFactory | None = None,
    progress: Progress | None = None,
    checkpoint: str | Path | None = None,
) -> FoldModel | PairwiseFoldModel:
    """Train the capacities of one fold on its training rows.

    Parameters
    ----------
    X : float32 tensor of shape (n, d), standardised, or Rows; (n, C, H, W) with a ``factory``
    y : long tensor of shape (n,)
        Class numbers 0 … K-1; every class must occur.
    n_classes : int
    config : TrainingConfig
    seed : int
    sample_weight : tensor of shape (n,), optional
    factory : callable (d, k) → nn.Module, optional
        Builds the encoder with k logits in place of the plain networks. For the pairwise model it is called with
        (2d, 1) and builds the body on the concatenated inputs (channels).
    progress, checkpoint : see :func:`~collidescope.training.loop.fit_loop`
    """
    X = as_rows(X, config.device)
    y = y.to(config.device, torch.long)
    w = None if sample_weight is None else sample_weight.to(config.device, torch.float32)
    _check_data(X, y, n_classes, config, factory)
    if config.model == "pairwise":
        return _fit_pairwise(X, y, n_classes, config, seed, w, factory, progress, checkpoint)
    fit = _FactorisedFit(X, y, n_classes, config, seed, w, progress, checkpoint)
    if factory is not None:
        fit.add_module(factory)
    elif not isinstance(config.hidden_layer_sizes, str):
        fit.add_network(config.hidden_layer_sizes)
    else:
        fit.add_capacities()
    return fit.result()


class _FactorisedFit:
    """Collects members; every ``add_`` trains one capacity on all inner splits."""

    def __init__(
        self,
        X: Rows,
        y: Tensor,
        n_classes: int,
        config: TrainingConfig,
        seed: int,
        sample_weight: Tensor | None,
        progress: Progress | None,
        checkpoint: str | Path | None,
    ) -> None:
        self.X, self.y, self.K, self.config, self.seed = X, y, n_classes, config, seed
        self.progress, self.checkpoint = progress, checkpoint
        self.splits = inner_splits(y, _n_splits(config, len(X)), config.validation_fraction, seed)
        ones = torch.ones(len(y), device=y.device) if sample_weight is None else sample_weight
        shares = torch.zeros(n_classes, device=y.device).index_add_(0, y, ones)
        self.priors = (shares / shares.sum()).double().cpu()
        self.sample_weight = sample_weight
        self.balanced = config.scheme == "balanced"
        # Balanced pairs learn the problem at uniform priors; cross-entropy then has to learn the same one.
        self.row_weight = ones * (len(y) / n_classes / shares)[y] if self.balanced else sample_weight
        self.members: list[Member] = []
        self.interrupted = False

    def add_capacities(self) -> None:
        if self.config.loss == "pair":
            for sizes in PAIR_LOSS_HIDDEN_SIZES:
                self.add_network(sizes)
            return
        d = self.X.shape[1]
        if len(self.X) * d * self.K <= MOST_WORK:
            self.add_regressions(LINEAR_SPECS if self.K > 2 else LINEAR_SPECS[:1])
        else:
            self.add_network(())
        D = n_regression_features(d, quadratic=True)
        if D <= MOST_PRODUCTS and len(self.X) * D * self.K <= MOST_WORK:
            self.add_regressions(QUADRATIC_SPECS if len(self.X) < MANY_ROWS * D else QUADRATIC_SPECS[-1:])
        for sizes in HIDDEN_SIZES:
            self.add_network(sizes)
        if self.config.trees and self.K <= MOST_TREE_CLASSES and len(self.X) >= FEWEST_TREE_ROWS:
            self.add_trees()

    def add_trees(self) -> None:
        if self.interrupted and self.members:
            return
        weight = None if self.row_weight is None else self.row_weight.cpu().numpy()
        X, y = np.asarray(self.X), self.y.cpu().numpy()
        forests = []
        for number, split in enumerate(self.splits):
            try:
                forests.append(grow(X, y, weight, split, self.K, self.seed + number))
            except KeyboardInterrupt:
                self.interrupted = True
                return
        self._add(Member("trees", BoostedTrees(forests, self.K), {"kind": "trees"}))
        if self.progress is not None:
            self.progress({"name": "trees", "epoch": 1, "max_epochs": 1, "val_loss": self.members[-1].val_loss})

    def add_regressions(self, specs: Sequence[LinearSpec]) -> None:
        fitted: SoftmaxRegression | None = None
        for spec in specs:
            if self.interrupted:
                return
            try:
                rows = [train for train, _ in self.splits]
                fitted = fit_softmax_regression(self.X, self.y, self.K, rows, spec, self.row_weight, start=fitted)
            except KeyboardInterrupt:
                self.interrupted = True
                return
            build = {"kind": "regression", "quadratic": spec.quadratic}
            self._add(Member(spec.name, fitted, build))
            if self.progress is not None:
                self.progress({"name": spec.name, "epoch": 1, "max_epochs": 1, "val_loss": self.members[-1].val_loss})

    def add_network(self, sizes: tuple[int, ...]) -> None:
        generator = epoch_generator(self.seed, 0)
        module = StackedMLP(len(self.splits), self.X.shape[1], self.K, sizes, self.config.dropout, generator)
        name = "network-" + ("x".join(map(str, sizes)) or "linear")
        self._train(name, module, {"kind": "network", "hidden_layer_sizes": list(sizes)}, self.splits)

    def add_module(self, factory: EncoderFactory) -> None:
        ndim = self.X.ndim - 1
        for number, split in enumerate(self.splits):
            module = seeded_module(lambda: OneMember(factory(self.X.shape[1], self.K), ndim), self.seed + number)
            self._train(f"module-{number}", module, {"kind": "module"}, [split])

    def _train(self, name: str, module: nn.Module, build: dict[str, Any], splits: list[Split]) -> None:
        if self.interrupted and self.members:
            return
        objective = FactorisedObjective(self.X, self.y, self.K, splits, self.config, self.row_weight)
        run = fit_loop(module, objective, self.config, self.seed, self.progress, self.checkpoint, name)
        self.interrupted |= run.interrupted
        self._add(Member(name, run.module, build, run.history), splits)

    def _add(self, member: Member, splits: list[Split] | None = None) -> None:
        splits = self.splits if splits is None else splits
        if self.config.loss == "pair":
            uniform = torch.full_like(self.priors, 1 / self.K)
            member.align(self.X[:], self.y, self.K, uniform if self.balanced else self.priors)
        parts = []
        for m, (_, held_out) in enumerate(splits):
            for x in self.X.subset(held_out).blocks():
                p = member_posteriors(member, x, self.priors if self.balanced else None, split=m)
                parts.append(p.log())
        member.held_out = torch.cat(parts)
        rows = torch.cat([held_out for _, held_out in splits]).cpu()
        member.held_out_rows = rows
        each = -member.held_out.gather(1, self.y.cpu()[rows][:, None])[:, 0]
        w = torch.ones_like(each) if self.sample_weight is None else self.sample_weight.cpu().double()[rows]
        member.val_loss = float((each * w).sum() / w.sum())
        self.members.append(member)

    def result(self) -> FoldModel:
        if len(self.members) > 1 and self.members[0].build["kind"] != "module":
            rows = self.members[0].held_out_rows
            assert rows is not None
            w = None if self.sample_weight is None else self.sample_weight.cpu()[rows]
            held_out = [member.held_out for member in self.members if member.held_out is not None]
            chose = [member.build["kind"] != "regression" for member in self.members]
            choices = [len(self.splits) if own else 0 for own in chose]
            weights = held_out_weights(held_out, self.y.cpu()[rows], w, choices, self.seed)
        else:
            weights = [1 / len(self.members)] * len(self.members)
        for member, weight in zip(self.members, weights, strict=True):
            member.weight = weight
            member.held_out = member.held_out_rows = None  # served its purpose; n×K each
        return FoldModel(self.members, self.K, tuple(self.X.shape[1:]), self.priors, self.balanced, self.interrupted)


def _fit_pairwise(
    X: Rows,
    y: Tensor,
    n_classes: int,
    config: TrainingConfig,
    seed: int,
    sample_weight: Tensor | None,
    factory: EncoderFactory | None,
    progress: Progress | None,
    checkpoint: str | Path | None,
) -> PairwiseFoldModel:
    split = inner_splits(y, 1, config.validation_fraction, seed)[0]
    _check_pairs_possible(y, split, n_classes, config)
    capacities = PAIRWISE_HIDDEN_SIZES if isinstance(config.hidden_layer_sizes, str) else (config.hidden_layer_sizes,)
    members: list[Member] = []
    for sizes in capacities if factory is None else ((),):

        def build(sizes: tuple[int, ...] = sizes) -> PairModule:
            if factory is None:
                return PairwiseNetwork(X.shape[1], sizes, config.dropout)
            return pair_module(factory, X.shape[1], X.ndim - 1)

        name = "pairwise-" + ("module" if factory else "x".join(map(str, sizes)) or "linear")
        objective = PairwiseObjective(X, y, split, config, seed, sample_weight)
        run = fit_loop(seeded_module(build, seed), objective, config, seed, progress, checkpoint, name)
        kind = "pairwise-module" if factory else "pairwise"
        member = Member(name, run.module, {"kind": kind, "hidden_layer_sizes": list(sizes)}, run.history)
        member.val_loss = float(run.val_loss[0])
        members.append(member)
        if run.interrupted:
            break
    # exp(-n Δloss / 2): n held-out rows, not pairs, is what the held-out loss was learned from.
    losses = torch.tensor([member.val_loss for member in members], dtype=torch.float64)
    weights = torch.softmax(-0.5 * len(split[1]) * losses, 0)
    for member, weight in zip(members, weights.tolist(), strict=True):
        member.weight = weight
    shift = same_log_odds_shift(config.scheme, torch.bincount(y, minlength=n_classes))
    return PairwiseFoldModel(members, n_classes, tuple(X.shape[1:]), shift, config.scheme, run.interrupted)


def _n_splits(config: TrainingConfig, n: int) -> int:
    if not isinstance(config.n_splits, str):
        return config.n_splits
    if config.hidden_layer_sizes != "auto" or n > THREE_SPLITS:
        return 1
    return 5 if n <= FIVE_SPLITS else 3


def _check_data(X: Rows, y: Tensor, n_classes: int, config: TrainingConfig, factory: EncoderFactory | None) -> None:
    if len(X) != len(y) or y.ndim != 1:
        raise ValueError(f"X and y must have the same number of rows, got {X.shape} and {tuple(y.shape)}")
    if X.ndim != 2 and factory is None:
        raise ValueError(f"X must be (rows, features), got {X.shape}: flatten it, or pass a module factory")
    counts = torch.bincount(y, minlength=n_classes)
    if len(counts) != n_classes or bool((counts == 0).any()):
        raise ValueError(f"y must hold every class 0…{n_classes - 1} and no other, got counts {counts.tolist()[:20]}")


def _check_pairs_possible(y: Tensor, split: Split, n_classes: int, config: TrainingConfig) -> None:
    if config.scheme == "natural":
        return
    for rows, which in zip(split, ("training", "held-out"), strict=True):
        counts = torch.bincount(y[rows], minlength=n_classes)
        few = torch.nonzero(counts < 2).flatten().tolist()
        few = [k for k in few if which == "training" or counts[k] == 1]
        if few:
            need = int(2 / config.validation_fraction) + 1
            raise ValueError(
                f"class {few[0]} has {int(counts[few[0]])} of the {which} rows, balanced pairs need 2: "
                f"give every class about {need} members, or use sampling='natural'"
            )
