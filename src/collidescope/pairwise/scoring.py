"""The paper's V(x, x'), a network on two inputs that gives the logit of "same class".

Symbols: B pairs, d features (C channels of an image), n inputs X, m references per class,
K classes. :func:`similarity` gives Sim for every pair of two sets; :func:`class_similarity` gives
q[x, k] = mean of Sim(x, r) over references r of class k, equation (38) of the paper, and never
holds more than one block of pairs.

A pair-wise network needs a forward pass per pair. Its first layer is linear in [x, x'], so
W[x; x'] = W₁x + W₂x': each input is projected once, and a pair costs an addition there instead of
a product.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from collidescope.training.machine import device_of, halved

#: Activations of a block of pairs: a core's share of the cache (1 to 4 MiB measured best).
BLOCK_BYTES = 2 * 2**20


class PairwiseNetwork(nn.Module):
    """The paper's V: a network on the concatenated inputs [x, x'], averaged over both orders.

    Training uses :meth:`one_way`: pairs are sampled as ordered pairs, so both orders are learned at
    half the cost.

    Parameters
    ----------
    body : nn.Module
        From (B, 2d) to (B, 1); for images of C channels from (B, 2C, H, W).
    """

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def one_way(self, a: Tensor, b: Tensor) -> Tensor:
        """Logit of "same" for [a, b] in this order, shape (B,)."""
        logits: Tensor = self.body(torch.cat([a, b], dim=1))
        return logits.flatten()

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return (self.one_way(a, b) + self.one_way(b, a)) / 2


def similarity(
    module: PairwiseNetwork,
    A: Tensor,
    B: Tensor,
    shift: float = 0.0,
    symmetric: bool = True,
) -> Tensor:
    """Sim of every row of A with every row of B: float32, shape (len A, len B).

    ``shift`` is taken off the logit: :func:`~collidescope.pairwise.pairs.same_log_odds_shift` of
    the training pairs. ``symmetric=False`` asks the network for [a, b] alone, as the paper does.
    """
    place = _gathering_place(module, 4 * len(A) * len(B))
    out = torch.empty(len(A), len(B), device=place)
    with torch.inference_mode():
        for rows, columns, logits in _blocks(module, A, B, symmetric):
            out[rows, columns] = torch.sigmoid_(logits - shift).to(place)
    return out.cpu()


class ClassSimilarity(NamedTuple):
    """q and its standard error from having only m references per class, both float64 (n, K)."""

    q: Tensor
    stderr: Tensor


def class_similarity(
    module: PairwiseNetwork,
    X: Tensor,
    references: Tensor,
    reference_labels: Tensor,
    n_classes: int,
    own: Tensor | None = None,
    shift: float = 0.0,
    reference_weight: Tensor | None = None,
) -> ClassSimilarity:
    """Mean similarity of every input to each class, equation (38), over blocks of references.

    Parameters
    ----------
    module, shift : as in :func:`similarity`
    X, references, reference_labels : tensors of shape (n, ...), (r, ...), (r,)
    n_classes : int
    own : long tensor of shape (n,), optional
        The place of each input among the references, -1 for none: its pair with itself is left out
        of the mean.
    reference_weight : tensor of shape (r,), optional
        Positive; means are weighted by it.

    Notes
    -----
    The standard error is √(variance of Sim within the class / m): infinite where only one reference
    is left, and 0 is never claimed from a single one. With weights w, m is (Σw)² / Σw².
    """
    labels = reference_labels.cpu()
    if own is None:
        own = torch.full((len(X),), -1)
    own = own.cpu()
    _check_references(labels, own, len(X), len(references), n_classes)
    weight = torch.ones(len(references), dtype=torch.float64)
    if reference_weight is not None:
        weight = reference_weight.cpu().double()
    # Sorted by class, so that the scores of one are added up next to each other.
    order = torch.argsort(labels, stable=True)
    places = torch.argsort(order)[own.clamp_min(0)]
    sorted_labels = labels[order]
    sorted_weight = weight[order]
    own_places = torch.where(own >= 0, places, -1)
    sums = _class_sums(
        module,
        X,
        references[order.to(references.device)],
        sorted_labels,
        sorted_weight,
        own_places,
        n_classes,
        shift,
    )
    one = torch.ones_like(weight)
    powers = torch.stack([one, sorted_weight, sorted_weight * sorted_weight], 1)
    left, W, W2 = _left(powers, sorted_labels, n_classes, own_places)
    if bool((left == 0).any()):
        raise ValueError(
            "own leaves a class without references: every class needs at least 2"
        )
    q = sums.total / W
    stderr = _standard_error(sums, q, W, W2)
    return ClassSimilarity(q, torch.where(left > 1, stderr, torch.inf))


def _standard_error(sums: _Sums, q: Tensor, W: Tensor, W2: Tensor) -> Tensor:
    """√(variance / m) with W = Σ w and W2 = Σ w².

    The variance is Σ w² (Sim - q)² / Σ w² · m / (m - 1), with equal weights that of a sample. The
    pair of a row with itself is in none of the sums.
    """
    m = W * W / W2
    squares = sums.squares - 2 * q * sums.cross + q * q * W2
    biased = squares.clamp_min(0) / W2
    return (biased / (m - 1)).sqrt()


def _check_references(
    labels: Tensor, own: Tensor, n: int, r: int, n_classes: int
) -> None:
    if labels.shape != (r,):
        raise ValueError(
            f"reference_labels must have one entry per reference ({r}), got "
            f"{tuple(labels.shape)}"
        )
    if set(labels.tolist()) != set(range(n_classes)):
        raise ValueError(
            f"references must hold every class 0…{n_classes - 1} and no other"
        )
    if own.shape != (n,) or bool((own >= r).any()):
        raise ValueError(
            f"own must be {n} places below {r} (-1 for none), got shape "
            f"{tuple(own.shape)}"
        )


class _Sums(NamedTuple):
    """Over the references of each class, (n, K)."""

    total: Tensor  #: Σ w Sim
    cross: Tensor  #: Σ w² Sim
    squares: Tensor  #: Σ w² Sim²


def _class_sums(
    module: PairwiseNetwork,
    X: Tensor,
    references: Tensor,
    labels: Tensor,
    weight: Tensor,
    own: Tensor,
    n_classes: int,
    shift: float,
) -> _Sums:
    """Sums of the similarities of every input to the references of each class, but to itself."""
    place = _gathering_place(module, 16 * len(X) * n_classes)
    # A GPU may round float32 factors to ten bits (TF32), which means of scores near 0 must not
    # suffer.
    dtype = torch.float64 if place.type == "cuda" else torch.float32
    label = labels[:, None].to(place)
    itself = own[:, None].to(place)
    w = weight[:, None].to(place, dtype)
    places = torch.arange(len(references), device=place)
    classes = torch.arange(n_classes, device=place)
    shape = (len(X), n_classes)
    total = torch.zeros(shape, dtype=torch.float64, device=place)
    cross = torch.zeros_like(total)
    squares = torch.zeros_like(total)
    with torch.inference_mode():
        for rows, columns, logits in _blocks(module, X, references):
            scores = torch.sigmoid_(logits - shift).to(place, dtype)
            scores.masked_fill_(itself[rows] == places[columns], 0.0)
            onto = (label[columns] == classes) * w[columns]
            onto_squared = onto * w[columns]
            total[rows] += scores @ onto
            cross[rows] += scores @ onto_squared
            squares[rows] += (scores * scores) @ onto_squared
    return _Sums(total.cpu(), cross.cpu(), squares.cpu())


def _left(weights: Tensor, labels: Tensor, n_classes: int, own: Tensor) -> Tensor:
    """Sums of the references' ``weights`` (r, m) in each class, for every input without its own.

    Of shape (m, n, K).
    """
    sums = weights.new_zeros(n_classes, weights.shape[1])
    sums.index_add_(0, labels, weights)
    left = sums.repeat(len(own), 1, 1)
    inside = torch.nonzero(own >= 0).flatten()
    place = own[inside]
    left[inside, labels[place]] -= weights[place]
    return left.movedim(2, 0)


# ------------------------------------------------------------------------------------------ blocks


def _blocks(
    module: PairwiseNetwork, A: Tensor, B: Tensor, symmetric: bool = True
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Logits block by block: rows of A, rows of B, logits (a, b); of both orders if symmetric."""
    device = device_of(module.eval())
    block_bytes = BLOCK_BYTES
    if device.type != "cpu":
        block_bytes = 256 * 2**20  # more pays on GPUs
    scorer = _split_scorer(module.body) or _WholeScorer(module, A)
    pairs = max(1, block_bytes // scorer.pair_bytes)
    width = max(1, min(len(B), pairs))
    height = max(1, min(len(A), pairs // width))
    right = scorer.prepare(B.to(device))
    for a in range(0, len(A), height):
        rows = slice(a, min(a + height, len(A)))
        left = scorer.prepare(A[rows].to(device))

        def logits(
            part: slice, columns: slice, a: int = a, left: list[Tensor] = left
        ) -> Tensor:
            within = slice(part.start - a, part.stop - a)
            upper = [x[within] for x in left]
            lower = [x[columns] for x in right]
            forward = scorer.forward(upper, lower)
            if not symmetric:
                return forward
            return (forward + scorer.backward(upper, lower)) / 2

        for b in range(0, len(B), width):
            yield from halved(logits, rows, slice(b, min(b + width, len(B))))


# A scorer gives the logits of all pairs of two blocks of inputs: ``prepare`` what is needed once
# for each input, ``forward`` the logits (a, b) with the inputs on the left first in each pair,
# ``backward`` those with the inputs on the right first. A pair takes ``pair_bytes`` of memory.


class _WholeScorer:
    """A network of any kind: a forward pass for every pair."""

    def __init__(
        self, module: PairwiseNetwork, X: Tensor, activations: int = 16
    ) -> None:
        self.module = module
        # Bytes of activations per byte of a pair: a guess.
        self.pair_bytes = max(X[:1].numel(), 1) * 4 * activations

    def prepare(self, x: Tensor) -> list[Tensor]:
        return [x]

    def forward(self, left: list[Tensor], right: list[Tensor]) -> Tensor:
        x, r = self._pairs(left[0], right[0])
        return self.module.one_way(x, r).view(len(left[0]), len(right[0]))

    def backward(self, left: list[Tensor], right: list[Tensor]) -> Tensor:
        x, r = self._pairs(left[0], right[0])
        return self.module.one_way(r, x).view(len(left[0]), len(right[0]))

    def _pairs(self, x: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        return x.repeat_interleave(len(r), 0), r.repeat(len(x), *[1] * (r.ndim - 1))


class _SplitScorer:
    """A plain ReLU network on [x, x']: the two halves of its first layer once per input."""

    def __init__(self, first: nn.Linear, rest: list[nn.Module], widest: int) -> None:
        self.W1, self.W2 = first.weight.chunk(2, 1)
        self.bias = first.bias
        self.rest = rest
        self.pair_bytes = widest * 4 * 2

    def prepare(self, x: Tensor) -> list[Tensor]:
        return [x @ self.W1.T + self.bias, x @ self.W2.T]

    def forward(self, left: list[Tensor], right: list[Tensor]) -> Tensor:
        return self._rest(left[0], right[1])

    def backward(self, left: list[Tensor], right: list[Tensor]) -> Tensor:
        return self._rest(left[1], right[0])

    def _rest(self, left: Tensor, right: Tensor) -> Tensor:
        h = (left[:, None] + right).flatten(0, 1)
        for layer in self.rest:
            # In place: half of the time of small networks.
            h = h.relu_() if isinstance(layer, nn.ReLU) else layer(h)
        return h.view(len(left), len(right))


def _split_scorer(body: nn.Module) -> _SplitScorer | None:
    """None unless the body is a plain ReLU network."""
    if not isinstance(body, nn.Sequential):
        return None
    widest = 0
    layers: list[nn.Module] = []
    for layer in body:
        if isinstance(layer, nn.Dropout):
            continue
        if isinstance(layer, nn.Linear) and layer.bias is not None:
            widest = max(widest, layer.out_features)
        elif not isinstance(layer, nn.ReLU):
            return None
        layers.append(layer)
    if not layers or not isinstance(layers[0], nn.Linear):
        return None
    return _SplitScorer(layers[0], layers[1:], widest)


def _gathering_place(
    module: nn.Module, size: int, most_on_gpu: int = 2 * 2**30
) -> torch.device:
    """Where results are collected: a GPU need not wait for the host block by block then."""
    device = device_of(module)
    if device.type == "cuda" and size <= most_on_gpu:
        return device
    return torch.device("cpu")
