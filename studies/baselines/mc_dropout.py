"""Monte-Carlo dropout (Gal and Ghahramani, 2016): dropout stays on at prediction, and h passes
are averaged."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from collidescope import _checks as check
from collidescope.training.config import TrainingConfig
from collidescope.training.networks import StackedMLP
from studies.baselines._base import NetworkBase, stack_of


def thinned(
    network: StackedMLP, dropout: float, n_passes: int, generator: torch.Generator
) -> StackedMLP:
    """``n_passes`` copies of a network, each without its own random share ``dropout`` of the hidden
    units.

    Leaving out unit i of a layer and scaling the others by 1 / (1 - dropout) is a change of the
    weights that leave it: all passes become one stack.
    """
    weights, biases = [], []
    for layer, (weight, bias) in enumerate(network.layers):
        kept = torch.ones(n_passes, weight.shape[1], 1)
        if layer > 0:  # the inputs are never left out
            kept = torch.bernoulli(kept * (1 - dropout), generator=generator) / (
                1 - dropout
            )
        weights.append(weight.detach() * kept.to(weight.device))
        biases.append(bias.detach().expand(n_passes, -1, -1))
    return stack_of(weights, biases)


@dataclass(eq=False, repr=False)
class DropoutClassifier(NetworkBase):
    """Mean of ``n_passes`` predictions of a network with dropout, each without other units.

    Parameters
    ----------
    dropout : float
        Share of the hidden units left out, in training and at prediction.
    n_passes : int
        The paper's h.
    hidden_layer_sizes, max_epochs, batch_size, learning_rate, weight_decay, device,
    random_state
        See :class:`~studies.baselines.NetworkClassifier`.

    Attributes
    ----------
    classes_, history_, module_

    Notes ----- A pass leaves out the same units for all rows, so that the posterior of a row does
    not depend on its company and is the same at every call. For each single row the mean over
    passes is distributed as with masks of its own.

    Examples
    --------
    >>> from collidescope.datasets import scenario_a
    >>> X, y = scenario_a(3).sample(300, 0)
    >>> clf = DropoutClassifier(
    ...     n_passes=20, hidden_layer_sizes=(32,), max_epochs=20, random_state=0
    ... ).fit(X, y)
    >>> bool((clf.predict_proba(X[:5]) == clf.predict_proba(X[:5])).all())
    True
    """

    dropout: float = 0.2
    n_passes: int = 50
    weight_decay: float = 0.0

    def _config(self) -> TrainingConfig:
        check.check_count(self.n_passes, "n_passes")
        return super()._config()

    def _networks(self) -> StackedMLP:
        generator = torch.Generator().manual_seed(self._prediction_seed)
        return thinned(super()._networks(), self.dropout, self.n_passes, generator)
