"""The modules: an encoder p(x), the pair-wise V(x, x'), and stacks of networks trained side by side.

Shapes: B rows, d features, K classes, M members of a stack. An *encoder* maps (B, d) to (B, K) logits, a stack maps
(M, B, d) or a shared (B, d) to (M, B, K).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

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
    """V around a body of one's own: ``factory(2d, 1)`` on concatenated rows, or on images that meet as channels."""
    body = factory(2 * n_features, 1)
    return PairwiseNetwork(n_features, body=body) if row_ndim == 1 else PairwiseImageNetwork(body)


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
        return self.weights_of(self.weight)

    @property
    def biases(self) -> list[Tensor]:
        """The biases of every layer, (M, 1, b), as views."""
        return self.biases_of(self.bias)

    def weights_of(self, flat: Tensor) -> list[Tensor]:
        """Views of every layer, (M, a, b), into a tensor of the shape of ``weight``."""
        parts = torch.split(flat, [a * b for a, b in self.shapes], 1)
        return [part.view(-1, a, b) for part, (a, b) in zip(parts, self.shapes, strict=True)]

    def biases_of(self, flat: Tensor) -> list[Tensor]:
        """Views of every layer, (M, 1, b), into a tensor of the shape of ``bias``."""
        return [part.unsqueeze(1) for part in torch.split(flat, [b for _, b in self.shapes], 1)]

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


class Backpropagation:
    """Leaves the gradient of a stack's cross-entropy in its two parameters.

    What ``cross_entropy(module(x), labels).backward()`` does, written out: networks this small spend more time in the
    bookkeeping of gradients, and of views into the two parameters, than in products. Without dropout only.

    Parameters
    ----------
    module : StackedMLP
        On its device: the views are made once, and hold as long as its parameters are changed in place.
    """

    def __init__(self, module: StackedMLP) -> None:
        self.module = module
        weight, bias = module.weight.detach(), module.bias.detach()
        module.weight.grad, module.bias.grad = torch.empty_like(weight), torch.empty_like(bias)
        self.W, self.dW = module.weights_of(weight), module.weights_of(module.weight.grad)
        self.b, self.db = module.biases_of(bias), module.biases_of(module.bias.grad)
        self.affine: Any = torch.baddbmm
        self.product: Any = torch.bmm
        if module.n_members == 1:  # plain products are faster than batched ones of one
            self.affine, self.product = torch.addmm, torch.mm
            self.W, self.b, self.dW, self.db = ([e[0] for e in each] for each in (self.W, self.b, self.dW, self.db))
        self.transposed = [weight.mT for weight in self.W]

    @torch.no_grad()
    def __call__(self, x: Tensor, labels: Tensor, row_weight: Tensor | None = None) -> Tensor:
        """The cross-entropy of a batch, summed over the members.

        Parameters
        ----------
        x : tensor of shape (M, B, d)
        labels : long tensor of shape (M, B)
        row_weight : tensor of shape (M, B), optional
        """
        if self.module.n_members == 1:
            x, labels = x[0], labels[0]
        h = [x]
        for weight, bias in zip(self.W[:-1], self.b[:-1], strict=True):
            h.append(self.affine(bias, h[-1], weight).relu_())
        log_p = torch.log_softmax(self.affine(self.b[-1], h[-1], self.W[-1]), -1)
        own = labels.unsqueeze(-1)
        share: Any = 1 / labels.shape[-1]
        if row_weight is not None:
            share = row_weight.view_as(own) * share
        loss: Tensor = -(log_p.gather(-1, own) * share).sum()
        # ∂loss/∂logits = (p - onehot(y)) · share
        gradient = log_p.exp_().scatter_add_(-1, own, torch.full_like(own, -1.0, dtype=log_p.dtype)).mul_(share)
        for layer in reversed(range(len(self.W))):
            self.product(h[layer].mT, gradient, out=self.dW[layer])
            torch.sum(gradient, -2, keepdim=True, out=self.db[layer])
            if layer:
                gradient = self.product(gradient, self.transposed[layer])
                gradient = torch.ops.aten.threshold_backward(gradient, h[layer], 0)
        return loss


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
