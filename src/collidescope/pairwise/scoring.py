"""The paper's V(x, x'), a network on two inputs that gives the logit of "same class", and fast scores with it.

Symbols: B pairs, d features (C channels of an image), n inputs X, m references per class, K classes.
:func:`similarity` gives Sim for every pair of two sets; :func:`class_similarity` gives q[x, k] = mean of Sim(x, r) over
references r of class k, equation (38) of the paper, and never holds more than one block of pairs.

A pair-wise network needs a forward pass per pair. Its first layer is linear in [x, x'], so W[x; x'] = W₁x + W₂x': each
input is projected once, and a pair costs an addition there instead of a product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from collidescope.training.machine import device_of, halved

#: Bytes of activations per block of pairs: a core's share of the cache (1 to 4 MiB measured best); more pays on GPUs.
BLOCK_BYTES = 2 * 2**20
ACCELERATOR_BLOCK_BYTES = 256 * 2**20
GPU_RESULT_BYTES = (
    2 * 2**30
)  #: scores of all pairs stay on a GPU up to this size and come back in one transfer
ACTIVATIONS = 16  #: bytes of activations per byte of a pair in a network of any kind: a guess


class PairwiseNetwork(nn.Module):
    """The paper's V: a network on the concatenated inputs [x, x'], made symmetric by averaging both orders.

    Training uses :meth:`one_way`: pairs are sampled as ordered pairs, so both orders are learned at half the cost.

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


def similarity(module: PairwiseNetwork, A: Tensor, B: Tensor, shift: float = 0.0) -> Tensor:
    """Sim of every row of A with every row of B: float32, shape (len A, len B).

    ``shift`` is taken off the logit: :func:`~collidescope.pairwise.pairs.same_log_odds_shift` of the training pairs.
    """
    place = _gathering_place(module, 4 * len(A) * len(B))
    out = torch.empty(len(A), len(B), device=place)
    with torch.inference_mode():
        for rows, columns, logits in _blocks(module, A, B):
            out[rows, columns] = torch.sigmoid_(logits.sub_(shift)).to(place)
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
    """Mean similarity of every input to each class, equation (38), streamed over blocks of references.

    Parameters
    ----------
    module, shift : as in :func:`similarity`
    X, references, reference_labels : tensors of shape (n, ...), (r, ...), (r,)
    n_classes : int
    own : long tensor of shape (n,), optional
        The place of each input among the references, -1 for none: its pair with itself is left out of the mean.
    reference_weight : tensor of shape (r,), optional
        Positive; means are weighted by it.

    Notes
    -----
    The standard error is √(variance of Sim within the class / m): infinite where only one reference is left, and 0 is
    never claimed from a single one. With weights w, m is (Σw)² / Σw².
    """
    n, r, labels = len(X), len(references), reference_labels.cpu()
    own = torch.full((n,), -1) if own is None else own.cpu()
    if labels.shape != (r,):
        raise ValueError(
            f"reference_labels must have one entry per reference ({r}), got {tuple(labels.shape)}"
        )
    if sorted(set(labels.tolist())) != list(range(n_classes)):
        raise ValueError(f"references must hold every class 0…{n_classes - 1} and no other")
    if own.shape != (n,) or bool((own >= r).any()):
        raise ValueError(
            f"own must be {n} places below {r} (-1 for none), got shape {tuple(own.shape)}"
        )
    order = torch.argsort(
        labels, stable=True
    )  # by class, so that its scores are added up next to each other
    labels, own = labels[order], torch.where(own >= 0, torch.argsort(order)[own.clamp_min(0)], -1)
    place = _gathering_place(module, 16 * n * n_classes)
    # A GPU may round float32 factors to ten bits (TF32), which means of scores near 0 must not suffer.
    dtype = torch.float64 if place.type == "cuda" else torch.float32
    w = (
        torch.ones(r, dtype=torch.float64)
        if reference_weight is None
        else reference_weight.cpu().double()[order]
    )
    label, itself, weight = (
        labels[:, None].to(place),
        own[:, None].to(place),
        w[:, None].to(place, dtype),
    )
    places, classes = torch.arange(r, device=place), torch.arange(n_classes, device=place)
    # Σ w Sim, Σ w² Sim and Σ w² Sim² of each class
    total, cross, squares = torch.zeros((3, n, n_classes), dtype=torch.float64, device=place)
    with torch.inference_mode():
        for rows, columns, logits in _blocks(module, X, references[order.to(references.device)]):
            scores = torch.sigmoid_(logits.sub_(shift)).to(place, dtype)
            scores.masked_fill_(itself[rows] == places[columns], 0.0)
            onto = (label[columns] == classes) * weight[columns]
            total[rows] += scores @ onto
            cross[rows] += scores @ (onto * weight[columns])
            squares[rows] += (scores * scores) @ (onto * weight[columns])
    total, cross, squares = total.cpu(), cross.cpu(), squares.cpu()
    left, W, W2 = (_left(each, labels, n_classes, own) for each in (torch.ones_like(w), w, w * w))
    if bool((left == 0).any()):
        raise ValueError("own leaves a class without references: every class needs at least 2")
    q = total / W
    m = W * W / W2
    # Σ w² (Sim - q)² / Σ w² · m / (m - 1), with equal weights the usual sample variance. The pair of a row with itself
    # is in none of the sums.
    variance = (squares - 2 * q * cross + q * q * W2).clamp_min(0) / W2 * m / (m - 1)
    return ClassSimilarity(q, torch.where(left > 1, (variance / m).sqrt(), torch.inf))


def _left(weight: Tensor, labels: Tensor, n_classes: int, own: Tensor) -> Tensor:
    """The sum of the references' weights in each class, for every input without its own; (n, K)."""
    sums = (
        torch.zeros(n_classes, dtype=torch.float64)
        .index_add_(0, labels, weight)
        .repeat(len(own), 1)
    )
    inside = torch.nonzero(own >= 0).flatten()
    sums[inside, labels[own[inside]]] -= weight[own[inside]]
    return sums


def _blocks(module: PairwiseNetwork, A: Tensor, B: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """Symmetric logits block by block: rows of A, rows of B, logits (a, b)."""
    device = device_of(module.eval())
    prepare, score, size = _split_scorer(module.body) or _whole_scorer(module, A)
    pairs = max(1, (BLOCK_BYTES if device.type == "cpu" else ACCELERATOR_BLOCK_BYTES) // size)
    width = max(1, min(len(B), pairs))
    height = max(1, min(len(A), pairs // width))
    right = prepare(B.to(device))
    for a in range(0, len(A), height):
        rows = slice(a, min(a + height, len(A)))
        left = prepare(A[rows].to(device))

        def logits(part: slice, columns: slice, a: int = a, left: list[Tensor] = left) -> Tensor:
            return score(
                [x[part.start - a : part.stop - a] for x in left], [r[columns] for r in right]
            )

        for b in range(0, len(B), width):
            yield from halved(logits, rows, slice(b, min(b + width, len(B))))


#: (inputs → what is computed once for each of them, two such → logits of all their pairs, bytes of a pair)
Scorer = tuple[
    Callable[[Tensor], list[Tensor]], Callable[[list[Tensor], list[Tensor]], Tensor], int
]


def _whole_scorer(module: PairwiseNetwork, X: Tensor) -> Scorer:

    def score(left: list[Tensor], right: list[Tensor]) -> Tensor:
        (x,), (r,) = left, right
        logits: Tensor = module(
            x.repeat_interleave(len(r), 0), r.repeat(len(x), *[1] * (r.ndim - 1))
        )
        return logits.view(len(x), len(r))

    return lambda x: [x], score, max(X[:1].numel(), 1) * 4 * ACTIVATIONS


def _split_scorer(body: nn.Module) -> Scorer | None:
    """The two halves of the first layer once per input; None unless the body is a plain ReLU network on [x, x']."""
    layers = (
        [layer for layer in body if not isinstance(layer, nn.Dropout)]
        if isinstance(body, nn.Sequential)
        else []
    )
    linear = [layer for layer in layers if isinstance(layer, nn.Linear) and layer.bias is not None]
    relu = [layer for layer in layers if isinstance(layer, nn.ReLU)]
    if not linear or layers[0] is not linear[0] or len(linear) + len(relu) < len(layers):
        return None
    W1, W2 = linear[0].weight.chunk(2, 1)

    def prepare(x: Tensor) -> list[Tensor]:
        # As the first input of a pair, with its bias, and as the second.
        return [x @ W1.T + linear[0].bias, x @ W2.T]

    def one_way(left: Tensor, right: Tensor) -> Tensor:
        h = (left[:, None] + right).flatten(0, 1)
        for layer in layers[1:]:
            h = (
                h.relu_() if layer in relu else layer(h)
            )  # in place: half of the time of small networks
        return h.view(len(left), len(right))

    def score(left: list[Tensor], right: list[Tensor]) -> Tensor:
        return (one_way(left[0], right[1]) + one_way(left[1], right[0])) / 2

    return prepare, score, max(layer.out_features for layer in linear) * 4 * 2


def _gathering_place(module: nn.Module, size: int) -> torch.device:
    """Where results are collected: on the GPU, so that it need not wait for the host block by block, or the CPU."""
    device = device_of(module)
    return device if device.type == "cuda" and size <= GPU_RESULT_BYTES else torch.device("cpu")
