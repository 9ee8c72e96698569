"""Passes of a module recorded as CUDA graphs: all kernels of a pass are launched at once.

Launching the kernels of a small step one by one takes several times as long as the step.
``torch.cuda.make_graphed_callables`` warms up on a side stream, then records a forward and a
backward pass with static inputs, which every step writes over. Shapes are fixed, nothing inside may
wait for the host, random numbers are drawn outside, and autocast may not cache weights.

A recording is only used where it can be checked: it must give the logits and the gradients of the
module itself on other images than those that were recorded. Where recording fails, or does not
agree, steps are launched one by one from then on: slower, with the same result.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy

import torch
from torch import Tensor, nn

from collidescope._checks import CollisionWarning

Passes = Callable[[Tensor], Tensor]
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
    """Whether passes may be recorded on the device, from this thread.

    No other thread may ask for memory of the GPU meanwhile.
    """
    alone = threading.current_thread() is threading.main_thread()
    return device.type == "cuda" and alone and device not in unrecorded


def recorded(module: nn.Module, sample: Tensor) -> nn.Module | None:
    """The module with recorded passes for batches like ``sample``; None where that fails.

    The module itself stays as it was, its buffers too. Give the recording to :func:`release`.
    """
    device = sample.device
    before = deepcopy(module.state_dict())
    module.train()
    played: nn.Module | None = None
    try:
        with _own_stream(device):
            played = _record(module, sample)
            if not agrees(module, played, sample.flip(0)):
                raise RuntimeError("the recording gives other numbers")
    except (RuntimeError, AssertionError) as error:
        unrecorded.add(device)
        release(played)
        played = None
        reason = str(error).strip().partition("\n")[0]
        said = f"steps on {device} are launched one by one, which is slower"
        hint = "results are the same"
        warnings.warn(
            f"{said} ({reason or type(error).__name__}): {hint}",
            CollisionWarning,
            stacklevel=2,
        )
    module.load_state_dict(before)  # averages of batch normalisation have moved
    return played


def release(played: nn.Module | None) -> None:
    """Let go of the memory of a recording: graph and module hold on to each other."""
    if played is not None:
        vars(played).pop("forward", None)


def _record(module: nn.Module, sample: Tensor) -> nn.Module:
    """A wrapper with another forward method: that of the module itself stays."""
    wrapped = nn.Sequential(module)
    static = sample.clone(memory_format=torch.channels_last)
    with half_precision(sample.device):
        torch.cuda.make_graphed_callables(wrapped, (static,))
    return wrapped


@contextmanager
def _own_stream(device: torch.device) -> Iterator[None]:
    """Put the current stream back at the end: a recording that fails leaves its own behind."""
    if device.type != "cuda":
        yield
        return
    with torch.cuda.device(device), torch.cuda.stream(torch.cuda.current_stream()):
        yield


def agrees(
    module: nn.Module, played: Passes, x: Tensor, tolerance: float = 0.1
) -> bool:
    """Whether both give the same logits and gradients, up to the rounding of half precision."""
    own = _logits_and_gradients(module, module, x)
    other = _logits_and_gradients(module, played, x)
    for expected, found in zip(own, other, strict=True):
        difference = (found - expected).norm()
        if not bool(difference <= tolerance * expected.norm()):  # nan is not
            return False
    return True


def _logits_and_gradients(
    module: nn.Module, passes: Passes, x: Tensor
) -> tuple[Tensor, Tensor]:
    parameters = list(module.parameters())
    with half_precision(x.device):
        logits = passes(x)
    each = logits.float().logsumexp(1)
    gradients = torch.autograd.grad(each.sum(), parameters)
    flat = [gradient.flatten() for gradient in gradients]
    # What a recording gives is written over by its next pass.
    own_logits = logits.detach().clone()
    return own_logits.float(), torch.cat(flat)
