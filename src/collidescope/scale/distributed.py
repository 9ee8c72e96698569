"""Several processes train one network (``torchrun``): each takes its share of every batch, gradients are averaged.

The batches are those of a single process, drawn by the same generator, so S is the same up to rounding whatever the
number of processes. Every process holds all rows; nothing happens here unless ``torch.distributed`` was initialised::

    import torch.distributed as dist

    dist.init_process_group("gloo")  # or "nccl", one GPU a process
    clf = CollisionClassifier().fit(X, y)  # in every process, with the same random_state
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


def world() -> tuple[int, int]:
    """(number of this process, number of processes); (0, 1) where there is one.

    >>> world()
    (0, 1)
    """
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def own_part(batch: Tensor | tuple[Tensor, ...], block: int = 1) -> tuple[Any, float]:
    """The part of a batch that is this process's, and the weight of its gradient.

    The last dimension is cut, in whole blocks. With fewer blocks than processes, every process does all of it.

    >>> own_part(torch.arange(6).reshape(2, 3))[1]
    1.0
    """
    rank, size = world()
    n_rows = batch.shape[-1] if isinstance(batch, Tensor) else len(batch[0])
    n_blocks = n_rows // block
    if size == 1 or n_blocks < size:
        return batch, 1 / size
    ends = [block * (n_blocks * k // size) for k in range(size)] + [n_rows]
    part = slice(ends[rank], ends[rank + 1])
    weight = (part.stop - part.start) / n_rows
    return (batch[..., part] if isinstance(batch, Tensor) else tuple(each[part] for each in batch)), weight


def average_gradients(module: nn.Module, weight: float) -> None:
    """The sum of all processes' gradients, each times its weight, in every process."""
    if world()[1] == 1:
        return
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    flat = torch.cat([g.reshape(-1) for g in gradients]) * weight
    dist.all_reduce(flat)
    for gradient, part in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


def gather_rows(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The rows of all processes, one below the other, in every process; gradients flow back to their own.

    For the pair loss in a trainer of one's own: pairs are then formed across processes. Every process must bring the
    same number of rows, and average the gradients of its parameters as ``DistributedDataParallel`` does.
    """
    if world()[1] == 1:
        return tensors
    return tuple(_Gather.apply(t) for t in tensors)  # type: ignore[no-untyped-call]


class _Gather(torch.autograd.Function):
    """All processes' rows; a row's gradient is the sum of those that it has in all of them."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        rank, size = world()
        ctx.own = slice(rank * len(tensor), (rank + 1) * len(tensor))
        parts = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(size)]
        dist.all_gather(parts, tensor.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].contiguous().clone()
        dist.all_reduce(total)
        return total[ctx.own]
