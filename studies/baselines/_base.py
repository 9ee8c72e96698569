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
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
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


class Seeds(NamedTuple):
    """One stream for the training, one for the validation split, one for draws at prediction."""

    training: int
    split: int
    prediction: int

    @classmethod
    def drawn(cls, random_state: Any) -> Seeds:
        return cls(
            *check_random_state(random_state).randint(2**31 - 1, size=3).tolist()
        )


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

    classes_: npt.NDArray[Any]
    history_: list[dict[str, Any]]
    random_state: Any

    @abstractmethod
    def _log_posteriors(self, X: Any) -> FloatArray:
        """Logarithm of the posterior of every row, of shape (n, K)."""

    def predict_proba(self, X: Any) -> FloatArray:
        """Posteriors, of shape (n, K)."""
        return np.exp(self._log_posteriors(X))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most likely class of every row."""
        return self.classes_[self._log_posteriors(X).argmax(axis=1)]

    def decision_function(self, X: Any) -> FloatArray:
        """Log-odds of the second of two classes, of shape (n,); with more classes their
        log-posteriors, (n, K).

        Log-posteriors are logits without the shift that no softmax sees: one-vs-rest calibration
        can compare them between rows, and temperature scaling of them is that of the logits.
        """
        log_posteriors = self._log_posteriors(X)
        return (
            log_posteriors[:, 1] - log_posteriors[:, 0]
            if len(self.classes_) == 2
            else log_posteriors
        )

    def _validate(self, X: Any, *labels: Any) -> Any:
        options = {
            "dtype": [np.float64, np.float32],
            "accept_sparse": "csr",
        }
        if labels:
            if hasattr(
                self, "history_"
            ):  # set again at the end: a fit that breaks off leaves nothing to predict with
                del self.history_
            return validate_data(self, X, *labels, ensure_min_samples=2, **options)
        check_is_fitted(self, "history_")
        return validate_data(self, X, reset=False, **options)

    def _encode(self, y: npt.NDArray[Any]) -> IntArray:
        check_classification_targets(y)
        self.classes_ = check.classes_of(check.check_labels(y))
        return np.searchsorted(self.classes_, y)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = self.random_state is None
        return tags


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

    def fit(self, X: Any, y: Any) -> Any:
        """Train on rows ``X`` with labels ``y``."""
        config = self._config()
        X, y = self._validate(X, y)
        codes = self._encode(y)
        self._centre, self._scale = fit_scaling(X)
        rows = torch.from_numpy(apply_scaling(X, self._centre, self._scale)).to(
            config.device
        )
        labels = torch.from_numpy(codes.astype(np.int64)).to(config.device)
        seeds = Seeds.drawn(self.random_state)
        objective = self._objective(rows, labels, len(self.classes_), config, seeds)
        module = self._module(
            rows.shape[1], len(self.classes_), epoch_generator(seeds.training, 0)
        )
        with one_thread(config.device == "cpu" and len(rows) <= ONE_THREAD_ROWS):
            run = fit_loop(module, objective, config, seeds.training)
        if run.interrupted:  # a rival trained by half must not pass for a trained one
            raise KeyboardInterrupt
        self._prediction_seed = seeds.prediction
        self.module_, self.history_ = run.module, run.history
        return self

    def _config(self) -> TrainingConfig:
        # TrainingConfig would take the word "auto" too
        check_sizes(self.hidden_layer_sizes)
        own = self.get_params(deep=False)
        given = PAPER | {name: own[name] for name in TRAINING if name in own}
        return TrainingConfig(device=resolve_device(self.device), **given)

    def _objective(
        self, X: Tensor, y: Tensor, n_classes: int, config: TrainingConfig, seeds: Seeds
    ) -> Any:
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
        assert isinstance(self.module_, StackedMLP)
        return self.module_

    def _logits(self, X: Any) -> Iterator[Tensor]:
        """Logits of all networks, (M, b, K) for some rows at a time.

        In float64: float32 would round otherwise in other company, in digits that log-posteriors
        show.
        """
        networks = copy.deepcopy(self._networks()).double().eval()
        device = networks.weight.device
        rows = torch.from_numpy(apply_scaling(X, self._centre, self._scale))
        with torch.inference_mode():
            for part in torch.split(rows, max(1, SCORED_AT_ONCE // networks.n_members)):
                yield networks(part.to(device, torch.float64)).cpu()

    def _log_posteriors(self, X: Any) -> FloatArray:
        parts = self._logits(self._validate(X))
        means = [
            torch.logsumexp(torch.log_softmax(part, -1), 0) - math.log(len(part))
            for part in parts
        ]
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
    M, n_in, _ = weights[0].shape
    sizes = [weight.shape[2] for weight in weights]
    # A generator of its own: the initial weights are thrown away and must not move the global one.
    stack = StackedMLP(M, n_in, sizes[-1], sizes[:-1], generator=torch.Generator())
    stack.weight = nn.Parameter(torch.cat([weight.flatten(1) for weight in weights], 1))
    stack.bias = nn.Parameter(torch.cat([bias.flatten(1) for bias in biases], 1))
    return stack
