"""Inner validation splits: stratified, seeded, in tensors."""

from __future__ import annotations

import torch
from torch import Tensor

Split = tuple[Tensor, Tensor]


def inner_splits(y: Tensor, n_splits: int, validation_fraction: float, seed: int) -> list[Split]:
    """``n_splits`` pairs (training rows, held-out rows), held-out rows disjoint and stratified by class.

    With several splits each row is held out exactly once. A single split holds out ``validation_fraction``.
    Rows of a class with one member are always trained on.
    """
    labels = y.cpu()
    dealt = torch.bincount(labels)[labels] > 1
    n = int(dealt.sum())
    if n == 0:
        raise ValueError(
            "a fold has one row of every class of y to train on and none to validate with: gather more of each"
        )
    n_parts = n_splits if n_splits > 1 else max(2, round(1 / validation_fraction))
    if n < 2 * n_parts:
        n_parts = max(2, n // 2)
    generator = torch.Generator().manual_seed(seed)
    # Shuffled, then sorted by class: dealing the rows out in turn gives each part its share of every class.
    shuffled = torch.randperm(len(y), generator=generator)
    shuffled = shuffled[dealt[shuffled]]
    order = shuffled[torch.argsort(labels[shuffled], stable=True)]
    part = torch.full((len(y),), -1)
    part[order] = torch.arange(n) % n_parts
    splits = []
    for k in range(min(n_splits, n_parts)):
        held_out = torch.nonzero(part == k).flatten()
        splits.append((torch.nonzero(part != k).flatten().to(y.device), held_out.to(y.device)))
    return splits
