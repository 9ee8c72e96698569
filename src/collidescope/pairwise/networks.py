"""The paper's V(x, x'): networks on two inputs that give the logit of "same class".

Shapes: B pairs, d features (C channels of an image).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from collidescope.training.networks import EncoderFactory, mlp


class PairModule(nn.Module, ABC):
    """A pair-wise V: one logit for two inputs, made symmetric by averaging both orders.

    Subclasses give :meth:`one_way`. Training uses it directly: pairs are sampled as ordered pairs, so both orders are
    learned at half the cost. Scores always average.
    """

    @abstractmethod
    def one_way(self, a: Tensor, b: Tensor) -> Tensor:
        """Logit of "same" for [a, b] in this order, shape (B,)."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return (self.one_way(a, b) + self.one_way(b, a)) / 2


class PairwiseNetwork(PairModule):
    """The paper's V: a network on the concatenated inputs [x, x'].

    Parameters
    ----------
    n_features : int
    hidden_layer_sizes : sequence of int
        As for a classifier; only the input (2d) and the output (one logit) differ.
    dropout : float
    body : nn.Module, optional
        Any module from (B, 2d) to (B, 1), in place of the plain network.
    """

    def __init__(
        self,
        n_features: int,
        hidden_layer_sizes: Sequence[int] = (128, 128),
        dropout: float = 0.0,
        body: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.n_features = n_features
        self.body = mlp(2 * n_features, 1, hidden_layer_sizes, dropout) if body is None else body

    def one_way(self, a: Tensor, b: Tensor) -> Tensor:
        logits: Tensor = self.body(torch.cat([a, b], dim=-1))
        return logits.squeeze(-1)


class PairwiseImageNetwork(PairModule):
    """V for images: two inputs of C channels become one of 2C channels.

    Parameters
    ----------
    body : nn.Module
        From (B, 2C, H, W) to (B, 1).
    """

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def one_way(self, a: Tensor, b: Tensor) -> Tensor:
        logits: Tensor = self.body(torch.cat([a, b], dim=1))
        return logits.flatten()


def pair_module(factory: EncoderFactory, n_features: int, row_ndim: int) -> PairModule:
    """V around a custom body: ``factory(2d, 1)`` on concatenated rows, or on images stacked as channels."""
    body = factory(2 * n_features, 1)
    return PairwiseNetwork(n_features, body=body) if row_ndim == 1 else PairwiseImageNetwork(body)
