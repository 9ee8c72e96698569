"""What the rivals share: validation, scaling, the call of the training loop, and the mean of a
stack's posteriors.

Symbols: n rows, d features, K classes, M networks whose posteriors are averaged. A rival says which
module is trained (:meth:`NetworkBase._module`), on which objective, and which stack of networks
predicts (:meth:`NetworkBase._networks`).
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from torch import Tensor, nn

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope._scaling import apply_scaling, fit_scaling
from collidescope._threads import one_thread
from collidescope.crossfit import resolve_device
from collidescope.learners.network import ONE_THREAD_ROWS
from collidescope.training.config import TrainingConfig, check_sizes
from collidescope.training.loop import epoch_generator, fit_loop
from collidescope.training.networks import FactorisedObjective, StackedMLP
from collidescope.training.rows import Split, stratified_split
from studies.measures import Array

#: The network of the paper's synthetic experiments.
PAPER_LAYERS = (128,) * 6
#: Parameters of an estimator that are handed to the training as they are.
TRAINING = (
    "hidden_layer_sizes",
    "dropout",
    "max_epochs",
    "patience",
    "batch_size",
    "learning_rate",
    "weight_decay",
)
#: The paper: every row is trained on, to the last epoch, without decay.
PAPER = {"patience": 0, "weight_decay": 0.0}
#: Rows × networks scored at once: a layer of 128 units then takes 64 MB.
SCORED_AT_ONCE = 65_536


class AllRowsObjective(FactorisedObjective):
    """Cross-entropy on all rows for every member; nothing is held out."""

    def __init__(
        self,
        X: Tensor,
        y: Tensor,
        n_classes: int,
        config: TrainingConfig,
        n_members: int = 1,
    ) -> None:
        rows = torch.arange(len(y), device=y.device)
        super().__init__(X, y, [(rows, rows[:0])] * n_members, config)


class PosteriorClassifier(ClassifierMixin, BaseEstimator):
    """A classifier that is asked for the logarithms of its posteriors."""

    @abstractmethod
    def _log_posteriors(self, X: FloatArray) -> FloatArray:
        """Logarithm of the posterior of every row, of shape (n, K)."""

    def predict_proba(self, X: FloatArray) -> FloatArray:
        """Posteriors, of shape (n, K)."""
        return np.exp(self._log_posteriors(X))

    def predict(self, X: FloatArray) -> Array:
        """The most likely class of every row."""
        return self.classes_[self._log_posteriors(X).argmax(axis=1)]

    def decision_function(self, X: FloatArray) -> FloatArray:
        """Log-odds of the second of two classes, of shape (n,); with more classes their
        log-posteriors, (n, K).

        Log-posteriors are logits without the shift that no softmax sees: one-vs-rest calibration
        can compare them between rows, and temperature scaling of them is that of the logits.
        """
        log_posteriors = self._log_posteriors(X)
        if len(self.classes_) == 2:
            return log_posteriors[:, 1] - log_posteriors[:, 0]
        return log_posteriors

    def _encode(self, y: Array) -> IntArray:
        self.classes_ = check.classes_of(check.check_labels(y))
        return np.searchsorted(self.classes_, y)

    def _seeds(self) -> list[int]:
        """One for the training, one for the validation split, one for draws at prediction."""
        rng = check_random_state(self.random_state)
        return rng.randint(2**31 - 1, size=3).tolist()


@dataclass(eq=False, repr=False)
class NetworkSettings:
    """Parameters that all networks have: see :class:`~studies.baselines.NetworkClassifier`."""

    hidden_layer_sizes: Sequence[int] = PAPER_LAYERS
    max_epochs: int = 500
    batch_size: int | str = "auto"
    learning_rate: float = 1e-3
    device: str = "auto"
    random_state: Any = None


class NetworkBase(NetworkSettings, PosteriorClassifier):
    """A rival that trains plain networks with the package's loop."""

    def fit(self, X: FloatArray, y: Array) -> NetworkBase:
        """Train on rows ``X`` with labels ``y``."""
        config = self._config()
        codes = self._encode(y)
        self._scaling = fit_scaling(X)
        rows = torch.from_numpy(apply_scaling(X, *self._scaling)).to(config.device)
        labels = torch.from_numpy(codes.astype(np.int64)).to(config.device)
        training_seed, split_seed, self._prediction_seed = self._seeds()
        K = len(self.classes_)
        objective = self._objective(rows, labels, K, config, split_seed)
        start = epoch_generator(training_seed, 0)
        module = self._module(rows.shape[1], K, start)
        with one_thread(config.device == "cpu" and len(rows) <= ONE_THREAD_ROWS):
            run = fit_loop(module, objective, config, training_seed)
        if run.interrupted:  # a rival trained by half must not pass for a trained one
            raise KeyboardInterrupt
        self.module_ = run.module
        self.history_ = run.history
        return self

    def _config(self) -> TrainingConfig:
        # TrainingConfig would take the word "auto" too
        check_sizes(self.hidden_layer_sizes)
        own = self.get_params(deep=False)
        given = {name: own[name] for name in TRAINING if name in own}
        return TrainingConfig(device=resolve_device(self.device), **PAPER | given)

    def _objective(
        self, X: Tensor, y: Tensor, n_classes: int, config: TrainingConfig, seed: int
    ) -> FactorisedObjective:
        return AllRowsObjective(X, y, n_classes, config)

    def _module(
        self, n_features: int, n_classes: int, generator: torch.Generator
    ) -> nn.Module:
        return StackedMLP(
            1,
            n_features,
            n_classes,
            self.hidden_layer_sizes,
            getattr(self, "dropout", 0.0),
            generator,
        )

    def _networks(self) -> StackedMLP:
        """The networks whose posteriors are averaged."""
        return self.module_

    def _logits(self, X: FloatArray) -> Iterator[Tensor]:
        """Logits of all networks, (M, b, K) for some rows at a time.

        In float64: float32 would round otherwise in other company, in digits that log-posteriors
        show.
        """
        networks = copy.deepcopy(self._networks()).double().eval()
        device = networks.weight.device
        rows = torch.from_numpy(apply_scaling(X, *self._scaling))
        with torch.inference_mode():
            for part in torch.split(rows, max(1, SCORED_AT_ONCE // networks.n_members)):
                yield networks(part.to(device, torch.float64)).cpu()

    def _log_posteriors(self, X: FloatArray) -> FloatArray:
        means = []
        for logits in self._logits(X):
            each = torch.log_softmax(logits, -1)
            means.append(torch.logsumexp(each, 0) - math.log(len(each)))
        return torch.cat(means).numpy()


def validation_split(y: Tensor, validation_fraction: float, seed: int) -> Split:
    """(training rows, held-out rows), stratified; refused when nothing can be held out."""
    check.check_between(validation_fraction, 0, 1, "validation_fraction")
    if int(torch.bincount(y).max()) < 2:
        raise ValueError(
            f"validation_fraction={validation_fraction} of {len(y)} rows holds out none: "
            f"no class has a row to spare, gather more rows or train without a validation part"
        )
    return stratified_split(y, validation_fraction, seed)


def stack_of(weights: Sequence[Tensor], biases: Sequence[Tensor]) -> StackedMLP:
    """The stack with these weights (M, a, b) and biases (M, 1, b), layer by layer."""
    n_networks, n_in, _ = weights[0].shape
    *hidden, n_out = [weight.shape[2] for weight in weights]
    # A generator of its own: the initial weights are thrown away and must not move the global one.
    unused = torch.Generator()
    stack = StackedMLP(n_networks, n_in, n_out, hidden, generator=unused)
    flat_weights = [weight.flatten(1) for weight in weights]
    flat_biases = [bias.flatten(1) for bias in biases]
    stack.weight = nn.Parameter(torch.cat(flat_weights, 1))
    stack.bias = nn.Parameter(torch.cat(flat_biases, 1))
    return stack
