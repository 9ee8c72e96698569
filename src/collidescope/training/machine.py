"""How torch uses the machine: tiny numbers, memory that runs out, failing devices, processes.

Several processes (``torchrun``) train one network once each has called
``torch.distributed.init_process_group``: each takes its share of every batch, and gradients are
averaged. The batches are those of a single process, drawn by the same generator, so S is the same
up to rounding for any number of processes. Every process holds all rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from collidescope._text import first_line

T = TypeVar("T")


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Let numbers below 1e-38 (float32) be zero within the block, in this thread.

    Processors take many times longer over such "denormal" numbers, which AdamW's averages of the
    gradients of units that no longer fire become: late epochs slowed down.
    """
    # That the smallest number is zero is true only where tiny ones are.
    before = math.ulp(0.0) == 0.0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


class DeviceError(RuntimeError):
    """An accelerator that failed while it was used."""


def _ran_out_of_memory(error: BaseException) -> bool:
    """Whether torch says that memory ran out, on GPUs or on the CPU."""
    if isinstance(error, MemoryError):
        return True
    signs = (
        "out of memory",
        "can't allocate memory",
        "not enough memory",
        "cublas_status_alloc_failed",
    )
    words = str(error).lower()
    return isinstance(error, RuntimeError) and any(sign in words for sign in signs)


def _device_failed(error: BaseException) -> bool:
    """Whether torch says that the device itself failed."""
    signs = (
        "cuda error",
        "cuda driver",
        "no cuda",
        "cuda-capable",
        "cudnn",
        "cublas",
        "hip error",
        "mps backend",
    )
    words = str(error).lower()
    return any(sign in words for sign in signs)


@contextmanager
def explained_errors(doing: str, remedy: str, device: str) -> Iterator[None]:
    """Errors of memory and of the device, within the block, say what to do.

    Memory that runs out is a MemoryError with a ``remedy``, a failing device a DeviceError.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        said = first_line(error)
        if _ran_out_of_memory(error):
            raise MemoryError(
                f"not enough memory on {device} while {doing}: {remedy} ({said})"
            ) from error
        if device != "cpu" and _device_failed(error):
            raise DeviceError(
                f"device {device!r} failed while {doing} ({said}): use device='cpu', or "
                "restart Python; training resumes from its last epoch when fit again with the "
                "same checkpoint folder, where one was set"
            ) from error
        raise


def halved(
    compute: Callable[[slice, slice], T], rows: slice, columns: slice
) -> Iterator[tuple[slice, slice, T]]:
    """``compute(rows, columns)`` of a block.

    Where memory runs out, of its halves, and theirs, down to a single pair.
    """
    height = rows.stop - rows.start
    width = columns.stop - columns.start
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
    if height >= width:
        for half in _halves(rows):
            yield from halved(compute, half, columns)
    else:
        for half in _halves(columns):
            yield from halved(compute, rows, half)


def _halves(part: slice) -> tuple[slice, slice]:
    middle = (part.start + part.stop) // 2
    return slice(part.start, middle), slice(middle, part.stop)


def device_of(module: nn.Module) -> torch.device:
    """Where a module is; the CPU where it has no weights."""
    for tensor in module.state_dict().values():
        return torch.device(tensor.device)
    return torch.device("cpu")


def world() -> tuple[int, int]:
    """(number of this process, number of processes); (0, 1) where there is one."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def own_part(batch: Tensor) -> tuple[Tensor, float]:
    """The part of a batch (last dimension) of this process, and its weight.

    A batch with fewer rows than processes goes to all of them.
    """
    rank, size = world()
    n_rows = batch.shape[-1]
    if n_rows < size:
        equal = 1 / size
        return batch, equal
    start = n_rows * rank // size
    next_rank = rank + 1
    stop = n_rows * next_rank // size
    n_own = stop - start
    own = batch[..., start:stop]
    weight = n_own / n_rows
    return own, weight


def average_gradients(module: nn.Module, weight: float) -> None:
    """The sum of all processes' gradients, each times its weight, in every process."""
    _, n_processes = world()
    if n_processes == 1:
        return
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    flat = flat * weight
    dist.all_reduce(flat)
    start = 0
    for gradient in gradients:
        stop = start + gradient.numel()
        part = flat[start:stop]
        gradient.copy_(part.view_as(gradient))
        start = stop
