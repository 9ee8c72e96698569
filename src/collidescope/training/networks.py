"""Plain networks, and stacks of them trained side by side.

Shapes: B rows, d features, K classes, M networks of a stack. An *encoder* maps (B, d) to (B, K) logits, a stack maps
(M, B, d) or a shared (B, d) to (M, B, K).
"""

from __future__ import annotations

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


class Bfloat16(nn.Module):
    """Runs a module in bfloat16 on a GPU where torch holds that safe (products, convolutions); weights stay float32.

    ``model=lambda d, k: Bfloat16(my_network(d, k))``: large networks train and score faster. On a CPU it changes
    nothing (processors that claim bfloat16 and do not have it end the interpreter).

    >>> Bfloat16(mlp(4, 3, (8,)))(torch.zeros(5, 4)).dtype
    torch.float32
    """

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_cuda:
            return self.body(x)  # type: ignore[no-any-return]
        with torch.autocast("cuda", torch.bfloat16):
            out: Tensor = self.body(x)
        return out.float()


class StackedMLP(nn.Module):
    """M plain networks of one shape, computed by batched matrix products.

    Their parameters share no entry and AdamW works entry by entry, so training a stack on the sum of its members'
    losses is training M networks one after the other, without M times the overhead. All weights lie in one tensor and
    all biases in another, a row a member: an optimiser has two tensors to step instead of two a layer.

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
        self.shapes = list(pairwise([n_in, *check_sizes(hidden_layer_sizes), n_out]))
        weights, biases = [], []
        for a, b in self.shapes:
            bound = max(a, 1) ** -0.5
            weights.append(_symmetric(bound, (n_members, a * b), generator))
            biases.append(_symmetric(bound, (n_members, b), generator))
        self.weight = nn.Parameter(torch.cat(weights, 1))
        self.bias = nn.Parameter(torch.cat(biases, 1))
        self.dropout = nn.Dropout(dropout)

    @property
    def weights(self) -> list[Tensor]:
        """The weights of every layer, (M, a, b), as views."""
        parts = torch.split(self.weight, [a * b for a, b in self.shapes], 1)
        return [part.view(-1, a, b) for part, (a, b) in zip(parts, self.shapes, strict=True)]

    @property
    def biases(self) -> list[Tensor]:
        """The biases of every layer, (M, 1, b), as views."""
        return [part.unsqueeze(1) for part in torch.split(self.bias, [b for _, b in self.shapes], 1)]

    def forward(self, x: Tensor) -> Tensor:
        layers = list(zip(self.weights, self.biases, strict=True))
        if self.n_members == 1:  # plain products are faster than batched ones of one, backwards above all
            return self._plain(x.flatten(0, -2), [(w[0], b[0, 0]) for w, b in layers]).unsqueeze(0)
        if x.ndim == 2:
            x = x.expand(self.n_members, *x.shape)
        for weight, bias in layers[:-1]:
            x = self.dropout(torch.relu(torch.baddbmm(bias, x, weight)))
        weight, bias = layers[-1]
        return torch.baddbmm(bias, x, weight)

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
