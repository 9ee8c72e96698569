"""Training steps recorded as CUDA graphs: all kernels of a step are launched at once.

Launching the kernels of a small step one by one takes several times as long as the step. A graph
holds a whole step: the images of a batch are varied, pass the network forwards and backwards, and
the weights are moved. Shapes are fixed, nothing inside may wait for the host, random numbers and
the rate of learning are tensors that are written before, and autocast may not cache weights.

A recording is only used where it can be checked: from the same state it must move the weights as
the step itself does, on another batch than the one that was recorded. Where recording fails, or
does not agree, steps are launched one by one from then on: slower, with the same result.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from collidescope._checks import CollisionWarning

Step = Callable[[Tensor], Tensor]  #: from a batch to its loss; it moves the weights
#: Devices on which recording failed once: it is not tried again.
unrecorded = set[torch.device]()


def half_precision(device: torch.device) -> AbstractContextManager[None]:
    """bfloat16 where the GPU computes with it (it needs no scaled loss), else float32."""
    if device.type != "cuda":
        return nullcontext()
    first_with_bfloat16 = (8, 0)  # older ones emulate it, many times slower
    if torch.cuda.get_device_capability(device) < first_with_bfloat16:
        return nullcontext()
    return torch.autocast("cuda", torch.bfloat16, cache_enabled=False)


def can_record(device: torch.device) -> bool:
    """Whether steps may be recorded on the device, from this thread.

    No other thread may ask for memory of the GPU meanwhile.
    """
    alone = threading.current_thread() is threading.main_thread()
    return device.type == "cuda" and alone and device not in unrecorded


def recorded(step: Step, batch: Tensor, other: Tensor, state: Sequence[Tensor]) -> Step:
    """A recording of ``step`` for batches like ``batch``; the step itself where that fails.

    It is checked with the ``other`` batch. ``state`` is every tensor that a step changes: all are
    left as they were.
    """
    before = [tensor.detach().clone() for tensor in state]
    played = step
    try:
        played = capture(step, batch)
        if not agrees(step, played, other, state, before):
            raise RuntimeError("the recording moves the weights otherwise")
    except (RuntimeError, AssertionError) as error:
        unrecorded.add(batch.device)
        played = step
        reason = str(error).strip().partition("\n")[0]
        said = f"steps on {batch.device} are launched one by one, which is slower"
        hint = "results are the same"
        warnings.warn(
            f"{said} ({reason or type(error).__name__}): {hint}",
            CollisionWarning,
            stacklevel=2,
        )
    put_back(state, before)
    return played


def capture(step: Step, batch: Tensor, warm_ups: int = 3) -> Step:
    """The step as one launch, which reads every batch of this shape from the same place."""
    place = batch.clone()
    own = torch.cuda.current_stream(batch.device)
    side = torch.cuda.Stream(batch.device)  # type: ignore[no-untyped-call]
    side.wait_stream(own)
    with torch.cuda.stream(side):
        for _ in range(warm_ups):
            step(place)
    own.wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step(place)

    def play(batch: Tensor) -> Tensor:
        place.copy_(batch)
        graph.replay()
        return loss.clone()

    return play


def agrees(
    step: Step,
    played: Step,
    batch: Tensor,
    state: Sequence[Tensor],
    before: Sequence[Tensor],
    tolerance: float = 0.1,
) -> bool:
    """Whether both change the state alike, up to the rounding of half precision."""
    expected = _change(step, batch, state, before)
    difference = (_change(played, batch, state, before) - expected).norm()
    most = tolerance * expected.norm()
    return bool(difference <= most)  # nan is not


def _change(
    step: Step, batch: Tensor, state: Sequence[Tensor], before: Sequence[Tensor]
) -> Tensor:
    put_back(state, before)
    step(batch)
    changes = []
    for new, old in zip(state, before, strict=True):
        change = new.detach().double() - old.double()
        changes.append(change.flatten())
    return torch.cat(changes)


@torch.no_grad()
def put_back(state: Sequence[Tensor], before: Sequence[Tensor]) -> None:
    """Every tensor as it was, in its place."""
    for new, old in zip(state, before, strict=True):
        new.copy_(old)
