"""How torch uses the machine: denormal numbers, memory that runs out, devices that fail, several processes.

Several processes (``torchrun``) train one network once each has called ``torch.distributed.init_process_group``: each
takes its share of every batch, and gradients are averaged. The batches are those of a single process, drawn by the
same generator, so S is the same up to rounding whatever the number of processes. Every process holds all rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

T = TypeVar("T")
#: How torch says that memory ran out, on GPUs and on the CPU.
NO_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "cublas_status_alloc_failed",
)
#: How it says that the device itself failed.
NO_DEVICE = (
    "cuda error",
    "cuda driver",
    "no cuda",
    "cuda-capable",
    "cudnn",
    "cublas",
    "hip error",
    "mps backend",
)
RESUME = "the rest starts from its last epoch when fit again with the same checkpoint folder, where one was set"


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Let numbers below 1e-38 (float32) be zero within the block, in this thread.

    Processors take many times longer over such "denormal" numbers, which AdamW's averages of the gradients of units
    that no longer fire become: late epochs slowed down.
    """
    before = (
        math.ulp(0.0) == 0.0
    )  # that the smallest number is zero is true only where tiny ones are
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


class DeviceError(RuntimeError):
    """An accelerator that failed while it was used."""


def _ran_out_of_memory(error: BaseException) -> bool:
    words = str(error).lower()
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(w in words for w in NO_MEMORY)
    )


@contextmanager
def explained_errors(doing: str, remedy: str, device: str) -> Iterator[None]:
    """Within the block memory that runs out is a MemoryError with a ``remedy``, and a failing device a DeviceError."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        words = (str(error).strip() or type(error).__name__).splitlines()[0]
        if _ran_out_of_memory(error):
            raise MemoryError(
                f"not enough memory on {device} while {doing}: {remedy} ({words})"
            ) from error
        if device != "cpu" and any(w in str(error).lower() for w in NO_DEVICE):
            remedy = f"use device='cpu', or start Python anew; {RESUME}"
            raise DeviceError(
                f"device {device!r} failed while {doing} ({words}): {remedy}"
            ) from error
        raise


def halved(
    compute: Callable[[slice, slice], T], rows: slice, columns: slice
) -> Iterator[tuple[slice, slice, T]]:
    """``compute(rows, columns)`` of a block; where memory runs out of its halves, and theirs, down to a single pair."""
    height, width = rows.stop - rows.start, columns.stop - columns.start
    try:
        result = compute(rows, columns)
    except (MemoryError, RuntimeError) as error:
        if not _ran_out_of_memory(error) or max(height, width) == 1:
            raise
    else:
        yield rows, columns, result
        return
    # Not within the except: the error holds on to the tensors of the attempt.
    torch.cuda.empty_cache()
    longer = rows if height >= width else columns
    middle = (longer.start + longer.stop) // 2
    for half in (slice(longer.start, middle), slice(middle, longer.stop)):
        yield from halved(compute, *((half, columns) if longer is rows else (rows, half)))


def device_of(module: nn.Module) -> torch.device:
    """Where a module is; the CPU where it has no weights."""
    return next((tensor.device for tensor in module.state_dict().values()), torch.device("cpu"))


def world() -> tuple[int, int]:
    """(number of this process, number of processes); (0, 1) where there is one."""
    together = dist.is_available() and dist.is_initialized()
    return (dist.get_rank(), dist.get_world_size()) if together else (0, 1)


def own_part(batch: Tensor) -> tuple[Tensor, float]:
    """The part of a batch (last dimension) of this process, all with fewer rows than processes; and its weight."""
    (rank, size), n_rows = world(), batch.shape[-1]
    if n_rows < size:
        return batch, 1 / size
    start, stop = n_rows * rank // size, n_rows * (rank + 1) // size
    return batch[..., start:stop], (stop - start) / n_rows


def average_gradients(module: nn.Module, weight: float) -> None:
    """The sum of all processes' gradients, each times its weight, in every process."""
    if world()[1] == 1:
        return
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    flat = torch.cat([g.reshape(-1) for g in gradients]) * weight
    dist.all_reduce(flat)
    for gradient, part in zip(
        gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True
    ):
        gradient.copy_(part.view_as(gradient))
