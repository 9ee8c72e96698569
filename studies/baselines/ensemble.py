"""Deep ensembles (Lakshminarayanan et al., 2017): networks from different initial weights,
posteriors averaged."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from collidescope import _checks as check
from collidescope.training.config import TrainingConfig
from collidescope.training.networks import StackedMLP
from studies.baselines._base import AllRowsObjective, NetworkBase


@dataclass(eq=False, repr=False)
class DeepEnsemble(NetworkBase):
    """Mean posterior of ``n_members`` plain networks, trained side by side on all rows.

    Every member has its own initial weights and sees the rows in its own order.

    Parameters ---------- n_members : int hidden_layer_sizes, max_epochs, batch_size, learning_rate,
    weight_decay, dropout, device, random_state
        See :class:`~studies.baselines.NetworkClassifier`.

    Attributes
    ----------
    classes_, history_
    module_ : StackedMLP
        ``module_.member(m, x)`` gives the logits of one member on standardised rows.

    Examples
    --------
    >>> from collidescope.datasets import scenario_a
    >>> X, y = scenario_a(3).sample(300, 0)
    >>> clf = DeepEnsemble(
    ...     n_members=3, hidden_layer_sizes=(16,), max_epochs=20, random_state=0
    ... ).fit(X, y)
    >>> clf.predict_proba(X[:2]).shape
    (2, 3)
    """

    n_members: int = 5
    weight_decay: float = 0.0
    dropout: float = 0.0

    def _config(self) -> TrainingConfig:
        check.check_count(self.n_members, "n_members")
        return super()._config()

    def _objective(
        self, X: Tensor, y: Tensor, n_classes: int, config: TrainingConfig, seed: int
    ) -> AllRowsObjective:
        return AllRowsObjective(X, y, n_classes, config, self.n_members)

    def _module(
        self, n_features: int, n_classes: int, generator: torch.Generator
    ) -> nn.Module:
        sizes = self.hidden_layer_sizes
        return StackedMLP(
            self.n_members, n_features, n_classes, sizes, self.dropout, generator
        )
