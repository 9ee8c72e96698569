"""The plain network: a classifier trained on cross-entropy, its softmax taken for the posterior.

By default the network of the paper's synthetic experiments: 6 hidden layers of 128 units, 500
epochs over all rows, no validation part. Such a network fits its labels nearly perfectly, and its
posteriors are over-confident.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from collidescope._checks import FloatArray
from collidescope.training.config import TrainingConfig
from collidescope.training.networks import FactorisedObjective
from studies.baselines._base import (
    AllRowsObjective,
    NetworkBase,
    validation_split,
)


@dataclass(eq=False, repr=False)
class NetworkClassifier(NetworkBase):
    """A plain network trained on cross-entropy (AdamW, ReLU, inputs standardised inside).

    Parameters
    ----------
    hidden_layer_sizes : sequence of int
    max_epochs : int
        Passes over the rows.
    patience : int
        0 (the paper): all rows are trained on, to the last epoch. Otherwise ``validation_fraction``
        of the rows are held out, training stops when their log loss has not fallen for so many
        epochs, and the best weights are kept.
    validation_fraction : float
        Share held out when ``patience`` is not 0, stratified; about 1/m for a whole number m.
    batch_size : int or "auto"
        Auto: about 1/100 of the rows, at least 64 and at most 256.
    learning_rate, weight_decay : float
        Of AdamW. Biases do not decay.
    dropout : float
        Share of the hidden units left out of every training step; predictions use all of them.
    device : str
        "auto" is an accelerator where there is one.
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_ : array of shape (K,)
    history_ : list of dict
        epoch, train_loss, val_loss (nan when nothing is held out) and seconds of every epoch.
    module_ : torch module

    Examples
    --------
    >>> from collidescope.datasets import scenario_a
    >>> problem = scenario_a(3)
    >>> X, y = problem.sample(300, 0)
    >>> clf = NetworkClassifier((16,), patience=5, random_state=0).fit(X, y)
    >>> clf.predict_proba(X[:2]).shape
    (2, 3)
    >>> bool(abs(clf.predict_proba(X) - problem.posteriors(X)).mean() < 0.1)
    True
    """

    patience: int = 0
    validation_fraction: float = 0.1
    weight_decay: float = 0.0
    dropout: float = 0.0

    def predict_logits(self, X: FloatArray) -> FloatArray:
        """What the network puts out before the softmax, of shape (n, K)."""
        return torch.cat(list(self._logits(X)), dim=1)[0].numpy()

    def _objective(
        self, X: Tensor, y: Tensor, n_classes: int, config: TrainingConfig, seed: int
    ) -> FactorisedObjective:
        if config.patience == 0:
            return AllRowsObjective(X, y, n_classes, config)
        split = validation_split(y, self.validation_fraction, seed)
        return FactorisedObjective(X, y, [split], config)
