"""The settings of a training run, checked once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from collidescope import _checks as check
from collidescope.pairwise.pairs import SCHEMES
from collidescope.training.networks import check_sizes

MODELS = ("factorised", "pairwise")
LOSSES = ("pair", "cross-entropy", "both")
#: Batches hold about 1/100 of the rows within these limits: small samples need many steps, large ones large matrices.
SMALLEST_BATCH, LARGEST_BATCH = 64, 256


@dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained. Every field has a default that was measured.

    Parameters
    ----------
    model : "factorised" or "pairwise"
    loss : "cross-entropy", "pair" or "both"
        For the factorised model. The pairwise model always learns from pairs.
    sampling : "natural", "balanced" or "auto"
        Of the pairs. Auto: natural for the factorised model (its p are then posteriors at the data's own priors),
        balanced for the pairwise one (the paper).
    hidden_layer_sizes : "auto" or tuple of int
        A tuple is one network. ``"auto"`` trains from linear to deep and weighs by held-out loss.
    trees : bool
        Whether gradient-boosted trees join the pool of ``"auto"``.
    dropout : float
    max_epochs, patience : int
        Training stops when the held-out loss has not fallen for ``patience`` epochs, and the best weights are kept.
        ``patience=0`` never stops early and keeps the last weights.
    batch_size : int or "auto"
    learning_rate, weight_decay : float
        Of AdamW. Biases do not decay.
    n_splits : int or "auto"
        Inner validation splits per fold; every split trains its own member, so that each row is held out once. Auto:
        5 on small data, fewer on large (1 for a fixed tuple or a custom module).
    validation_fraction : float
        Share of the rows held out by a single inner split.
    bounded : float, optional
        Upper bound of the loss of one pair.
    device : str
    """

    model: str = "factorised"
    loss: str = "cross-entropy"
    sampling: str = "auto"
    hidden_layer_sizes: str | tuple[int, ...] = "auto"
    trees: bool = False
    dropout: float = 0.0
    max_epochs: int = 200
    patience: int = 12
    batch_size: int | str = "auto"
    learning_rate: float = 3e-3
    weight_decay: float = 1e-2
    n_splits: int | str = "auto"
    validation_fraction: float = 0.1
    bounded: float | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        check.check_choice(self.model, MODELS, "model")
        check.check_choice(self.loss, LOSSES, "loss")
        check.check_choice(self.sampling, (*SCHEMES, "auto"), "sampling")
        if isinstance(self.hidden_layer_sizes, str):
            check.check_choice(self.hidden_layer_sizes, ("auto",), "hidden_layer_sizes")
        else:
            object.__setattr__(self, "hidden_layer_sizes", check_sizes(self.hidden_layer_sizes))
        self._check_trees()
        check.check_count(self.max_epochs, "max_epochs")
        check.check_count(self.patience, "patience", least=0)
        for name in ("batch_size", "n_splits"):
            value = getattr(self, name)
            if isinstance(value, str):
                check.check_choice(value, ("auto",), name)
            else:
                check.check_count(value, name)
        for name, least in (("learning_rate", math.ulp(0.0)), ("weight_decay", 0.0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < math.inf:
                raise ValueError(f"{name} must be a {'positive' if least else 'non-negative'} number, got {value!r}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout!r}")
        check.check_between(self.validation_fraction, 0, 1, "validation_fraction")
        if self.bounded is not None:
            check.check_between(self.bounded, 0, math.inf, "bounded")

    def _check_trees(self) -> None:
        if not isinstance(self.trees, (bool, np.bool_)):
            raise ValueError(f"trees must be True or False, got {self.trees!r}")
        pooled = self.model == "factorised" and self.loss == "cross-entropy" and self.hidden_layer_sizes == "auto"
        if self.trees and not pooled:
            raise ValueError(
                f"trees=True joins the pool of model='factorised', loss='cross-entropy', hidden_layer_sizes='auto'; "
                f"got {self.model!r}, {self.loss!r}, {self.hidden_layer_sizes!r}"
            )

    @property
    def scheme(self) -> str:
        """The pair distribution that the model learns."""
        if self.sampling == "auto":
            return "natural" if self.model == "factorised" else "balanced"
        return self.sampling

    def batch_for(self, n_rows: int) -> int:
        """Rows (or pairs) per step."""
        if isinstance(self.batch_size, str):
            wanted = 2 ** max(0, round(math.log2(max(n_rows, 1) / 100)))
            return int(min(LARGEST_BATCH, max(SMALLEST_BATCH, wanted)))
        return self.batch_size

    def fingerprint(self) -> dict[str, Any]:
        """What must agree for a checkpoint to be resumed. ``max_epochs`` and ``patience`` may change."""
        fields = ("model", "loss", "sampling", "dropout", "batch_size", "learning_rate", "weight_decay", "bounded")
        return {name: getattr(self, name) for name in fields}
