"""Temperature scaling (Guo et al., 2017) as the paper uses it: T is the one with the lowest ECE on
a validation part.

The posterior is softmax(logits / T). T > 1 takes back confidence; the order of the classes, and so
every prediction, stays. scikit-learn's ``CalibratedClassifierCV(method="temperature")`` chooses T
by the log loss instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import log_softmax, softmax

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from studies.baselines._base import (
    NetworkSettings,
    PosteriorClassifier,
    validation_split,
)
from studies.baselines.networks import NetworkClassifier
from studies.measures import Array, calibration_error

#: Temperatures that are tried: steps of 2 per cent. Networks that fit their labels perfectly need
#: about 10.
TEMPERATURES = np.geomspace(0.1, 100, 349)
#: Parameters of the network within.
NETWORK = (
    "hidden_layer_sizes",
    "max_epochs",
    "batch_size",
    "learning_rate",
    "weight_decay",
    "dropout",
    "device",
)


@dataclass(eq=False, repr=False)
class TemperatureScaledClassifier(NetworkSettings, PosteriorClassifier):
    """A plain network whose logits are divided by the temperature with the lowest ECE on a
    validation part.

    Parameters ---------- hidden_layer_sizes, max_epochs, batch_size, learning_rate, weight_decay,
    dropout, device, random_state
        See :class:`~studies.baselines.NetworkClassifier`; the network never sees the validation
        part.
    validation_fraction : float
        Share of the rows, stratified, on which the temperature is chosen.
    n_bins : int
        Of the ECE.

    Attributes
    ----------
    temperature_ : float
    network_ : NetworkClassifier
    classes_, history_

    Examples
    --------
    >>> from collidescope.datasets import scenario_a
    >>> X, y = scenario_a(3).sample(300, 0)
    >>> clf = TemperatureScaledClassifier((32, 32), max_epochs=60, random_state=0).fit(
    ...     X, y
    ... )
    >>> clf.temperature_ > 1  # the network was too confident
    True
    """

    validation_fraction: float = 0.1
    n_bins: int = 15
    weight_decay: float = 0.0
    dropout: float = 0.0

    def fit(self, X: FloatArray, y: Array) -> TemperatureScaledClassifier:
        """Train the network on one part of the rows, choose the temperature on the other."""
        check.check_count(self.n_bins, "n_bins")
        codes = self._encode(y)
        training_seed, split_seed, _ = self._seeds()
        labels = torch.from_numpy(codes.astype(np.int64))
        split = validation_split(labels, self.validation_fraction, split_seed)
        train, held_out = (rows.numpy() for rows in split)
        settings = {name: getattr(self, name) for name in NETWORK}
        self.network_ = NetworkClassifier(random_state=training_seed, **settings)
        self.network_.fit(X[train], codes[train])
        logits = self.network_.predict_logits(X[held_out])
        self.temperature_ = self.best_temperature(logits, codes[held_out])
        self.history_ = self.network_.history_
        return self

    def best_temperature(self, logits: FloatArray, codes: IntArray) -> float:
        """The temperature with the lowest ECE on these rows."""
        errors = [
            calibration_error(softmax(logits / T, axis=1), codes, self.n_bins)
            for T in TEMPERATURES
        ]
        # Of several that are equally good, the one that changes the network least.
        best = np.flatnonzero(np.array(errors) == min(errors))
        return float(min(TEMPERATURES[best], key=lambda T: abs(np.log(T))))

    def _log_posteriors(self, X: FloatArray) -> FloatArray:
        logits = self.network_.predict_logits(X)
        return log_softmax(logits / self.temperature_, axis=1)
