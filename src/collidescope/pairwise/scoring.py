"""Scores of trained models: posteriors p, similarities of pairs, and their class means.

Symbols: n inputs X, m references per class, K classes. ``similarity`` gives Sim for every pair of two sets;
``class_similarity`` gives q[x, k] = mean of Sim(x, r) over references r of class k (the paper's Algorithm 2) and never
holds more than one block of pairs.

A pair-wise network needs a forward pass per pair. Its first layer is linear in [x, x'], so W[x; x'] = W₁x + W₂x': each
input is projected once, and a pair costs an addition there instead of a product.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from collidescope.pairwise.networks import PairModule, PairwiseNetwork
from collidescope.training.machine import halved

#: Bytes of activations per block of pairs: the last-level cache share of one core, where additions are not slowed
#: down by memory. Measured best between 1 and 4 MiB; larger budgets only pay on accelerators.
BLOCK_BYTES = 2 * 2**20
ACCELERATOR_BLOCK_BYTES = 256 * 2**20
#: Scores of all pairs stay on a GPU up to this size and come back in one transfer.
GPU_RESULT_BYTES = 2 * 2**30
ROWS_AT_ONCE = 8192
#: Posteriors of one block of rows, in numbers: beyond a thousand classes blocks are shorter.
NUMBERS_AT_ONCE = 2**23


def similarity(module: PairModule, A: Tensor, B: Tensor, shift: float = 0.0) -> Tensor:
    """Sim of every row of A with every row of B: float32, shape (len A, len B).

    Parameters
    ----------
    module : PairModule
    A, B : tensors of shape (a, ...), (b, ...)
    shift : float
        Taken off the logit: :func:`~collidescope.pairwise.pairs.same_log_odds_shift` of the pairs it was trained on.
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
    module: PairModule,
    X: Tensor,
    references: Tensor,
    reference_labels: Tensor,
    n_classes: int,
    exclude_self: bool | Tensor = False,
    shift: float = 0.0,
    reference_weight: Tensor | None = None,
) -> ClassSimilarity:
    """Mean similarity of every input to each class, streamed over blocks of references.

    Parameters
    ----------
    module : PairModule
    X : tensor of shape (n, ...)
    references : tensor of shape (r, ...)
    reference_labels : long tensor of shape (r,)
    n_classes : int
    exclude_self : bool or long tensor of shape (n,)
        True when X *is* the references; or the place of each input among them, -1 for none. A pair of an input with
        itself is then left out of the mean.
    shift : float
        As in :func:`similarity`.
    reference_weight : tensor of shape (r,), optional
        Positive; means are weighted by it.

    Notes
    -----
    The standard error is √(variance of Sim within the class / m): infinite where only one reference is left, and 0 is
    never claimed from a single one. With weights w, m is (Σw)² / Σw².
    """
    n, r = len(X), len(references)
    if reference_labels.shape != (r,):
        raise ValueError(
            f"reference_labels must have one entry per reference ({r}), got {tuple(reference_labels.shape)}"
        )
    if r == 0 or n_classes < 1:
        raise ValueError("references must hold at least one row of every class")
    # References sorted by class make every class a slice: means are plain sums of columns.
    order = torch.argsort(reference_labels.cpu(), stable=True)
    labels = reference_labels.cpu()[order]
    counts = torch.bincount(labels, minlength=n_classes)
    if len(counts) > n_classes or bool((counts == 0).any()):
        missing = torch.nonzero(counts[:n_classes] == 0).flatten().tolist()
        raise ValueError(f"references must hold every class 0…{n_classes - 1} and no other, without rows: {missing}")
    own = _own_places(exclude_self, n, r, order)
    place = _gathering_place(module, 16 * n * n_classes)
    # A GPU may round float32 factors to ten bits (TF32), which means of scores near 0 must not suffer.
    dtype = torch.float64 if place.type == "cuda" else torch.float32
    w = None if reference_weight is None else reference_weight.cpu().double()[order]
    weight = None if w is None else w.to(place, dtype)[:, None]
    total = torch.zeros(n, n_classes, dtype=torch.float64, device=place)  # Σ w Sim
    squares = torch.zeros_like(total)  # Σ w² Sim²
    cross = total if w is None else torch.zeros_like(total)  # Σ w² Sim
    label, every_class = labels.to(place), torch.arange(n_classes, device=place)
    itself = None if own is None else own.to(place)
    with torch.inference_mode():
        for rows, columns, logits in _blocks(module, X, references[order.to(references.device)]):
            scores = torch.sigmoid_(logits.sub_(shift)).to(place, dtype)
            if itself is not None:
                places = torch.arange(columns.start, columns.stop, device=place)
                scores.masked_fill_(itself[rows, None] == places, 0.0)
            onto = twice = (label[columns, None] == every_class).to(dtype)
            if weight is not None:
                onto = onto * weight[columns]
                twice = onto * weight[columns]
                cross[rows] += scores @ twice
            total[rows] += scores @ onto
            squares[rows] += (scores * scores) @ twice
    total, squares, cross = total.cpu(), squares.cpu(), cross.cpu()
    left = _left(torch.ones(r, dtype=torch.float64), labels, n_classes, own, n)
    if bool((left == 0).any()):
        raise ValueError("exclude_self leaves a class without references: every class needs at least 2")
    W = left if w is None else _left(w, labels, n_classes, own, n)
    W2 = left if w is None else _left(w * w, labels, n_classes, own, n)
    q = total / W
    m = W * W / W2
    variance = (squares - 2 * q * cross + q * q * W2).clamp_min(0) / W2 * m / (m - 1)
    return ClassSimilarity(q, torch.where(left > 1, (variance / m).sqrt(), torch.inf))


def _left(weight: Tensor, labels: Tensor, n_classes: int, own: Tensor | None, n: int) -> Tensor:
    """The sum of the references' weights in each class, for every input without its own; (n, K)."""
    sums = torch.zeros(n_classes, dtype=torch.float64).index_add_(0, labels, weight).expand(n, n_classes).clone()
    if own is not None:
        inside = torch.nonzero(own >= 0).flatten()
        sums[inside, labels[own[inside]]] -= weight[own[inside]]
    return sums


# ---------------------------------------------------------------- blocks of pairs


def _blocks(module: PairModule, A: Tensor, B: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """Symmetric logits block by block: rows of A, rows of B, logits (a, b)."""
    module.eval()
    device = _device_of(module)
    layers = _plain_layers(module)
    if layers is None:
        yield from _generic_blocks(module, A, B, device)
        return
    first, rest = layers
    d = first.in_features // 2
    W1, W2 = first.weight[:, :d], first.weight[:, d:]
    B = B.to(device)
    B1, B2 = B @ W1.T + first.bias, B @ W2.T
    widest = max([first.out_features, *(layer.out_features for layer in rest)])
    height, width = _block_shape(len(A), len(B), widest * 4 * 2, device)
    buffers: dict[int, Tensor] = {}
    for a in range(0, len(A), height):
        rows = slice(a, min(a + height, len(A)))
        x = A[rows].to(device)
        A1, A2 = x @ W1.T + first.bias, x @ W2.T

        def logits(part: slice, columns: slice, a: int = a, A1: Tensor = A1, A2: Tensor = A2) -> Tensor:
            own = slice(part.start - a, part.stop - a)
            try:
                there = _forward(A1[own], B2[columns], rest, buffers)
                return (there + _forward(A2[own], B1[columns], rest, buffers)) / 2
            except (MemoryError, RuntimeError):
                buffers.clear()
                raise

        for b in range(0, len(B), width):
            yield from halved(logits, rows, slice(b, min(b + width, len(B))))


def _forward(left: Tensor, right: Tensor, rest: list[nn.Linear], buffers: dict[int, Tensor]) -> Tensor:
    """Logits of all pairs from the two halves of the first layer, in buffers that stay in cache."""
    if not rest:
        return (left[:, None] + right).squeeze(-1)
    shape = (len(left), len(right), left.shape[1])
    h = _buffer(buffers, 0, shape, left)
    torch.add(left[:, None], right, out=h)
    h = h.view(-1, shape[2]).relu_()
    for depth, layer in enumerate(rest[:-1], start=1):
        out = _buffer(buffers, depth, (len(h), layer.out_features), left)
        h = torch.addmm(layer.bias, h, layer.weight.T, out=out).relu_()
    return torch.addmv(rest[-1].bias, h, rest[-1].weight[0]).view(shape[0], shape[1])


def _buffer(buffers: dict[int, Tensor], depth: int, shape: tuple[int, ...], like: Tensor) -> Tensor:
    held = buffers.get(depth)
    size = int(torch.Size(shape).numel())
    if held is None or held.numel() < size:
        held = buffers[depth] = like.new_empty(size)
    return held[:size].view(shape)


def _generic_blocks(
    module: PairModule, A: Tensor, B: Tensor, device: torch.device
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Any module: pairs are written out, a block of them at a time; inputs are moved to the device beforehand."""
    height, width = _block_shape(len(A), len(B), max(A[:1].numel(), 1) * 4 * 16, device)
    B = B.to(device)
    band = height * max(1, ROWS_AT_ONCE // height)
    for start in range(0, len(A), band):
        held = A[start : start + band].to(device)
        for a in range(0, len(held), height):
            rows = slice(start + a, start + min(a + height, len(held)))

            def logits(rows: slice, columns: slice, start: int = start, held: Tensor = held) -> Tensor:
                x, r = held[rows.start - start : rows.stop - start], B[columns]
                left = x[:, None].expand(len(x), *r.shape).flatten(0, 1)
                right = r.expand(len(x), *r.shape).flatten(0, 1)
                scores: Tensor = module(left, right)
                return scores.view(len(x), len(r))

            for b in range(0, len(B), width):
                yield from halved(logits, rows, slice(b, min(b + width, len(B))))


def _plain_layers(module: PairModule) -> tuple[nn.Linear, list[nn.Linear]] | None:
    """First layer and the others when the module is a plain ReLU network on [x, x'], else None."""
    if not isinstance(module, PairwiseNetwork) or not isinstance(module.body, nn.Sequential):
        return None
    layers = [layer for layer in module.body if not isinstance(layer, nn.Dropout)]
    linear = [layer for layer in layers[0::2] if isinstance(layer, nn.Linear) and layer.bias is not None]
    between = [layer for layer in layers[1::2] if isinstance(layer, nn.ReLU)]
    if len(linear) + len(between) < len(layers) or len(linear) != len(between) + 1:
        return None
    return linear[0], linear[1:]


def _block_shape(a: int, b: int, bytes_per_pair: int, device: torch.device) -> tuple[int, int]:
    budget = BLOCK_BYTES if device.type == "cpu" else ACCELERATOR_BLOCK_BYTES
    pairs = max(1, budget // bytes_per_pair)
    width = max(1, min(b, pairs))
    return max(1, min(a, pairs // width)), width


def _own_places(exclude_self: bool | Tensor, n: int, r: int, order: Tensor) -> Tensor | None:
    """The column of each input among the sorted references, -1 for none."""
    if isinstance(exclude_self, bool):
        if not exclude_self:
            return None
        if n != r:
            raise ValueError(
                f"exclude_self=True needs X to be the {r} references, got {n} rows: pass their places instead"
            )
        exclude_self = torch.arange(n)
    places = exclude_self.cpu()
    if places.shape != (n,) or bool((places >= r).any()):
        raise ValueError(f"exclude_self must be {n} places below {r} (-1 for none), got shape {tuple(places.shape)}")
    inverse = torch.empty(r, dtype=torch.long)
    inverse[order] = torch.arange(r)
    return torch.where(places >= 0, inverse[places.clamp_min(0)], -1)


def _gathering_place(module: nn.Module, size: int) -> torch.device:
    """Where results are collected: on the GPU, so that it need not wait for the host block by block, or the CPU."""
    device = _device_of(module)
    return device if device.type == "cuda" and size <= GPU_RESULT_BYTES else torch.device("cpu")


def _device_of(module: nn.Module) -> torch.device:
    for tensor in (*module.parameters(), *module.buffers()):
        return tensor.device
    return torch.device("cpu")
