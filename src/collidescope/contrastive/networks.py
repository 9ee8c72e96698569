"""The modules: an encoder p(x), the pair-wise V(x, x'), and stacks of networks trained side by side.

Shapes: B rows, d features, K classes, M members of a stack. An *encoder* maps (B, d) to (B, K) logits, a stack maps
(M, B, d) or a shared (B, d) to (M, B, K).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

#: ``model=lambda d, k: ...``: number of features (channels of an image) and of classes → encoder with k logits.
EncoderFactory = Callable[[int, int], nn.Module]


def mlp(n_in: int, n_out: int, hidden_layer_sizes: Sequence[int] = (), dropout: float = 0.0) -> nn.Sequential:
    """A plain network with ReLU layers; no hidden layer is a linear model.

    >>> mlp(4, 3, (8,))(torch.zeros(5, 4)).shape
    torch.Size([5, 3])
    """
    sizes = [n_in, *check_sizes(hidden_layer_sizes)]
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
        if dropout:
            layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers, nn.Linear(sizes[-1], n_out))


def check_sizes(hidden_layer_sizes: Sequence[int]) -> tuple[int, ...]:
    """``hidden_layer_sizes`` as a tuple of positive whole numbers."""
    try:
        sizes = tuple(int(size) for size in hidden_layer_sizes)
    except (TypeError, ValueError):
        raise ValueError(
            f"hidden_layer_sizes must be a sequence of whole numbers, got {hidden_layer_sizes!r}"
        ) from None
    if any(size < 1 or size != given for size, given in zip(sizes, hidden_layer_sizes, strict=True)):
        raise ValueError(f"hidden_layer_sizes must be positive whole numbers, got {hidden_layer_sizes!r}")
    return sizes


class FactorisedNetwork(nn.Module):
    """V(x, x') = p(x)·p(x') with p = softmax(encoder(x)): the exact form of Sim.

    ``forward(a, b)`` gives V of row by row pairs, :meth:`posteriors` gives p.
    """

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def posteriors(self, x: Tensor) -> Tensor:
        """p(x), of shape (B, K)."""
        return torch.softmax(self.encoder(x), dim=-1)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return (self.posteriors(a) * self.posteriors(b)).sum(-1)


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


class StackedMLP(nn.Module):
    """M plain networks of one shape, computed by batched matrix products.

    Their parameters share no entry and AdamW works entry by entry, so training a stack on the sum of its members'
    losses is training M networks one after the other, without M times the overhead.

    Initial weights are those of ``nn.Linear`` (uniform within ±1/√fan-in).
    """

    def __init__(
        self,
        n_members: int,
        n_in: int,
        n_out: int,
        hidden_layer_sizes: Sequence[int] = (),
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.n_members = n_members
        sizes = [n_in, *check_sizes(hidden_layer_sizes), n_out]
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for a, b in pairwise(sizes):
            bound = max(a, 1) ** -0.5
            self.weights.append(nn.Parameter(_symmetric(bound, (n_members, a, b), generator)))
            self.biases.append(nn.Parameter(_symmetric(bound, (n_members, 1, b), generator)))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        if self.n_members == 1:  # plain products are faster than batched ones of one, backwards above all
            pairs = [(w.squeeze(0), b.flatten()) for w, b in zip(self.weights, self.biases, strict=True)]
            return self._plain(x.flatten(0, -2), pairs).unsqueeze(0)
        if x.ndim == 2:
            x = x.expand(self.n_members, *x.shape)
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, x, weight)
            if layer < last:
                x = self.dropout(torch.relu(x))
        return x

    def member(self, m: int, x: Tensor) -> Tensor:
        """Logits of member ``m`` alone: (B, d) → (B, K)."""
        return self._plain(x, [(w[m], b[m, 0]) for w, b in zip(self.weights, self.biases, strict=True)])

    def _plain(self, x: Tensor, layers: list[tuple[Tensor, Tensor]]) -> Tensor:
        for weight, bias in layers[:-1]:
            x = self.dropout(torch.relu(torch.addmm(bias, x, weight)))
        weight, bias = layers[-1]
        return torch.addmm(bias, x, weight)


class OneMember(nn.Module):
    """Any encoder as a stack of one, so that the loop sees (1, B, …) → (1, B, K); a shared (B, …) will do too.

    Parameters
    ----------
    encoder : nn.Module
    row_ndim : int
        Dimensions of one row (3 for an image with channels): a batch of one row is told from a stack of one by them.
    """

    n_members = 1

    def __init__(self, encoder: nn.Module, row_ndim: int = 1) -> None:
        super().__init__()
        self.encoder, self.row_ndim = encoder, row_ndim

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.encoder(x.squeeze(0) if x.ndim == self.row_ndim + 2 else x)
        return logits.unsqueeze(0)


def _symmetric(bound: float, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
    return (torch.rand(shape, generator=generator) * 2 - 1) * bound
