"""The training loop: fit_loop → run_epoch → train_step → loss of the objective, for any module.

An *objective* holds the data, draws an epoch's batches and gives losses, one per member of the
stack that is trained (M = 1 for a single network). The loop knows nothing of classes or pairs; the
objective nothing of optimisers.

Randomness: epoch e draws from a generator seeded with (seed, e), so a run resumed after epoch e
continues exactly as an undisturbed one, with no generator state to save. The global generator is
put back as it was.

A checkpoint is one file, replaced at once: a run killed while it writes leaves the previous epoch
whole, and weights and numbers can never come from different epochs. A run is continued only by the
same run: same settings and seed, same rows in the same splits, a module of the same structure, the
same versions.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from collidescope import _store
from collidescope._environment import version_of
from collidescope.training.config import TrainingConfig
from collidescope.training.cycle import OneCycle, adam_w
from collidescope.training.machine import (
    average_gradients,
    explained_errors,
    flushed_denormals,
    own_part,
    world,
)
from collidescope.training.recording import Step, can_record, recorded

#: Weights of standardised inputs are far below this; larger ones overflow float32 a few layers on.
LARGEST_WEIGHT = 1e9
HISTORY = (
    "train_loss",
    "val_loss",
    "seconds",
)  #: columns of the history beside the epoch
#: Types of torch that numpy lacks are stored as integers of the same size.
STORED_AS = {torch.bfloat16: torch.int16}


class Objective(Protocol):
    """What is learned by the M = ``n_members`` networks: data, batches and losses.

    ``signature`` is text that other data or weights would not share. The last dimension of a
    batch counts rows, or pairs of them. ``loss`` is summed over the members, ``held_out_loss`` has
    shape (M,). ``sample_batches`` are two different ones like those whose steps may be recorded;
    None where none may.
    """

    n_members: int

    @property
    def sample_batches(self) -> tuple[Tensor, Tensor] | None: ...

    @property
    def signature(self) -> str: ...
    def batches(self, generator: torch.Generator) -> Iterator[Tensor]: ...
    def loss(self, module: nn.Module, batch: Tensor) -> Tensor: ...
    def held_out_loss(self, module: nn.Module) -> Tensor: ...


def epoch_generator(
    seed: int, epoch: int, device: torch.device | str = "cpu"
) -> torch.Generator:
    """The generator of one epoch (epoch 0: the initial weights)."""
    # Odd numbers (Knuth's multipliers) spread the seeds, so that neighbouring ones share no epoch.
    spread = seed * 2654435761 + epoch * 40503 + 1
    return torch.Generator(device=device).manual_seed(spread % 2**63)


def seeded_module(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """``build()`` with initial weights that follow from ``seed``.

    The global generator is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(epoch_generator(seed, 0).initial_seed())
        return build()


def fit_loop(
    module: nn.Module,
    objective: Objective,
    config: TrainingConfig,
    seed: int,
    progress: Callable[[dict[str, Any]], None] | None = None,
    checkpoint: str | Path | None = None,
    name: str = "network",
    cycle: OneCycle | None = None,
) -> Run:
    """Train until the held-out loss stops falling, or for one ``cycle``.

    Ctrl-C (KeyboardInterrupt) ends the loop, keeps the best weights so far and sets
    ``interrupted``.

    ``module`` is a stack (leading dimension M of every parameter) or, when the objective has one
    member, any module. ``progress`` is called after every epoch with its entry of the history plus
    ``name`` and ``max_epochs``. In the folder ``checkpoint`` ``name``.safetensors is written after
    every epoch; a run of the same settings is continued.
    """
    module.to(config.device)
    best = BestWeights(module, objective.n_members)
    if cycle is None:
        optimizer: torch.optim.Optimizer = adam_w(
            module, config.learning_rate, config.weight_decay
        )
    else:
        optimizer = cycle.optimizer(module)
    run = Run(module, optimizer, best, cycle)
    path: Path | None = None
    settings: dict[str, Any] = {}
    if checkpoint is not None:
        path = _store.made_folder(checkpoint, "checkpoint") / f"{name}.safetensors"
        settings = _settings(module, objective, config, seed)
        if cycle is not None:
            settings |= cycle.fingerprint()
        run.restore(path, settings)
    with _prepared(config.device):
        if objective.sample_batches is not None:
            run.record(objective, *objective.sample_batches)
        try:
            for epoch in range(len(run.history) + 1, config.max_epochs + 1):
                all_waited = int(best.waited.min())  # of every member
                if 0 < config.patience <= all_waited:
                    break
                run.history.append(_one_epoch(run, objective, config, seed, epoch))
                if path is not None and world()[0] == 0:
                    run.save(path, settings)
                if progress is not None:
                    progress(
                        {
                            "name": name,
                            "max_epochs": config.max_epochs,
                            **run.history[-1],
                        }
                    )
        except KeyboardInterrupt:
            run.interrupted = True
    run.capped = _is_capped(run, config)
    module.load_state_dict(best.state)
    module.eval()
    run.history = [_finite(entry) for entry in run.history]
    return run


def _is_capped(run: Run, config: TrainingConfig) -> bool:
    """Whether the last allowed epoch came while the held-out loss was still falling.

    It was if the last quarter of the epochs lowered it by 2% and by 0.005: less changes no digit
    that is shown. Without a held-out loss nobody knows, and that counts as capped.
    """
    waited = int(run.best.waited.min())
    ended = 0 < config.patience <= waited
    n_epochs = len(run.history)
    if ended or n_epochs < config.max_epochs:
        return False
    losses = [entry["val_loss"] for entry in run.history]
    if config.patience == 0 or not losses:
        return True
    three_quarters = 3 * len(losses) // 4
    earlier = min(losses[:three_quarters], default=math.inf)
    lowest = min(losses)
    notable = max(0.02 * lowest, 0.005)
    return bool(earlier - lowest > notable)


def _settings(
    module: nn.Module, objective: Objective, config: TrainingConfig, seed: int
) -> dict[str, Any]:
    """What a checkpoint must share with the run that continues it."""
    packages = ("collidescope", "torch", "numpy")
    return {
        "seed": seed,
        "data": objective.signature,
        **config.fingerprint(),
        "versions": {package: version_of(package) for package in packages},
        "module": structure(module),
    }


@contextmanager
def _prepared(device: str) -> Iterator[None]:
    """Generators put back at the end, tiny numbers as zero, errors that say what to try.

    Dropout draws from the global generators: they are seeded per epoch.
    """
    remedy = (
        "lower batch_size in training=, or use a smaller network; with checkpoint= the same fit "
        "goes on"
    )
    explained = explained_errors("training", remedy, str(device))
    with torch.random.fork_rng(devices=_cuda(device)), flushed_denormals(), explained:
        yield


def _cuda(device: str) -> list[torch.device]:
    """The device in a list if it is a GPU of CUDA."""
    if str(device).startswith("cuda"):
        return [torch.device(device)]
    return []


def _one_epoch(
    run: Run, objective: Objective, config: TrainingConfig, seed: int, epoch: int
) -> dict[str, Any]:
    """Train on every batch and keep the weights if they are the best; the history's entry."""
    generator = epoch_generator(seed, epoch, config.device)
    # Not torch.manual_seed, which prepares every kind of device, at a millisecond per epoch.
    own_seed = generator.initial_seed()
    torch.default_generator.manual_seed(own_seed)
    for device in _cuda(config.device):
        with torch.cuda.device(device):
            torch.cuda.manual_seed(own_seed)
    started = time.perf_counter()
    rate = None
    if run.cycle is not None:
        rate = partial(_cycle_rate, run.cycle, run.optimizer, epoch)
    train_loss = run_epoch(run, objective, generator, rate)
    run.module.eval()
    with torch.inference_mode():
        val_loss = objective.held_out_loss(run.module).clone()
    nothing_held_out = config.patience == 0
    run.best.update(run.module, val_loss, epoch, always=nothing_held_out)
    return {
        "epoch": epoch,
        "train_loss": train_loss,
        "val_loss": float(val_loss.mean()),
        "seconds": time.perf_counter() - started,
    }


def _cycle_rate(
    cycle: OneCycle, optimizer: torch.optim.Optimizer, epoch: int, done: float
) -> None:
    """Set the rate once a share ``done`` of this epoch is over."""
    cycle.set_rate(optimizer, (epoch - 1 + done) / cycle.epochs)


def _finite(entry: dict[str, Any]) -> dict[str, Any]:
    """The entry without a held-out loss that is nan: files hold finite numbers only."""
    return {key: value for key, value in entry.items() if not math.isnan(value)}


def run_epoch(
    run: Run,
    objective: Objective,
    generator: torch.Generator,
    rate: Callable[[float], None] | None = None,
) -> float:
    """One pass over the objective's batches; returns the mean training loss of a member.

    ``rate`` is told before every step which share of the epoch is over.
    """
    run.module.train()
    losses = []
    batches = list(objective.batches(generator))
    for number, batch in enumerate(batches):
        if rate is not None:
            rate(number / len(batches))
        losses.append(run.step(objective, batch))
    # One transfer per epoch: asking each step for its number would make an accelerator wait for
    # the host.
    mean = float(torch.stack(losses).mean()) / objective.n_members
    if not math.isfinite(mean):
        remedy = (
            "lower learning_rate, or check X for values far outside the usual range"
        )
        raise FloatingPointError(f"the training loss became {mean}: {remedy}")
    return mean


def train_step(
    module: nn.Module,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    batch: Tensor,
) -> Tensor:
    """One gradient step.

    Members share no parameter, so the gradient of the sum is each member's own.
    """
    own, weight = own_part(batch)
    loss = objective.loss(module, own)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    average_gradients(module, weight)
    optimizer.step()
    return loss.detach()


class BestWeights:
    """The best weights of every member so far, and for how long they have been the best."""

    #: An epoch is better if the held-out loss falls by more: less is noise, and could go on for
    #: ever.
    minimum_gain = 1e-4

    def __init__(self, module: nn.Module, n_members: int) -> None:
        device = next(module.parameters()).device
        self.state = {}
        for name, tensor in module.state_dict().items():
            self.state[name] = tensor.detach().clone()
        self.loss = torch.full((n_members,), math.inf, device=device)
        self.epoch = torch.zeros(n_members, dtype=torch.long, device=device)
        self.waited = torch.zeros_like(self.epoch)

    def update(
        self, module: nn.Module, val_loss: Tensor, epoch: int, always: bool = False
    ) -> None:
        """Keep the weights of the members that are better, or ``always`` those of this epoch."""
        to_beat = self.loss - self.minimum_gain
        better = val_loss < to_beat
        if always:
            better = torch.ones_like(better)
        state = self.state
        if bool(better.any()):
            new = module.state_dict()
            state = {name: _kept(better, new[name], state[name]) for name in new}
        waited = torch.where(better, 0, self.waited + 1)
        new_loss = val_loss.to(self.loss)
        loss = torch.where(better, new_loss, self.loss)
        at = torch.where(better, epoch, self.epoch)
        # At once: Ctrl-C between two layers would leave weights of two epochs.
        self.waited, self.state, self.loss, self.epoch = waited, state, loss, at


def _kept(better: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """The new rows of the members that are better, the old ones of the others.

    Members are rows of every tensor; a single one has all of it.
    """
    of_member = better.view(-1, *([1] * (new.ndim - 1)))
    kept = torch.where(of_member, new.detach(), old)
    return kept.view(new.shape)


@dataclass
class Run:
    """A module in training: best weights, losses epoch by epoch, whether Ctrl-C ended it."""

    module: nn.Module
    optimizer: torch.optim.Optimizer
    best: BestWeights
    cycle: OneCycle | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    interrupted: bool = False
    capped: bool = False  #: whether it ended for lack of epochs
    played: Step | None = (
        None  #: the recorded step, for batches of the shape ``recorded``
    )
    recorded: torch.Size | None = None

    def step(self, objective: Objective, batch: Tensor) -> Tensor:
        """Move the weights once; the loss of the batch."""
        if self.played is not None and batch.shape == self.recorded:
            return self.played(batch)
        return train_step(self.module, objective, self.optimizer, batch)

    def record(self, objective: Objective, batch: Tensor, other: Tensor) -> None:
        """Launch the steps for batches like these at once, where the device can do that."""
        alone = world() == (0, 1)
        if not alone or not can_record(batch.device):
            return
        self.module.train()
        tensors = self._tensors()
        state = []
        for name, tensor in tensors.items():
            if name.startswith(("module.", "optimizer.")):
                state.append(tensor)
        step = partial(train_step, self.module, objective, self.optimizer)
        self.played = recorded(step, batch, other, state)
        self.recorded = batch.shape

    def save(self, path: Path, settings: dict[str, Any]) -> None:
        """Write the state after an epoch."""
        columns = {}
        for name in HISTORY:
            values = [entry[name] for entry in self.history]
            columns[name] = np.array(values, np.float64)
        arrays = {}
        for name, tensor in self._tensors().items():
            own = tensor.detach().cpu().contiguous()
            stored = STORED_AS.get(own.dtype, own.dtype)
            arrays[name] = own.view(stored).numpy()
        tree = {"fingerprint": settings, "history": columns, "tensors": arrays}
        _store.write(path, "checkpoint", tree)

    def restore(self, path: Path, settings: dict[str, Any]) -> None:
        """Continue from the file, where there is one, if it has the same ``settings``."""
        if not path.exists():
            return
        try:
            tree = _store.read(path, "checkpoint")
        except _store.ModelFileError as error:
            raise ValueError(
                f"{error}: delete it to start again, or use another folder"
            ) from None
        _check_settings(path, tree.get("fingerprint"), settings)
        try:
            self._load(tree["tensors"])
            nothing_held_out = bool(self.best.loss.isnan().all())
            self.history = _checked_history(tree["history"], nothing_held_out)
        except (
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
            RuntimeError,
        ) as error:
            raise ValueError(
                f"{path} does not fit this network ({error}): delete it or use another folder"
            ) from None

    def _tensors(self) -> dict[str, Tensor]:
        """All tensors of the run by name."""
        kept = {}
        for name, tensor in self.module.state_dict().items():
            kept[f"module.{name}"] = tensor
        states = self.optimizer.state_dict()["state"]
        for index, state in states.items():
            for name, tensor in state.items():
                kept[f"optimizer.{index}.{name}"] = tensor
        for name, tensor in self.best.state.items():
            kept[f"best.{name}"] = tensor
        kept["waited"] = self.best.waited
        kept["epoch"] = self.best.epoch
        kept["loss"] = self.best.loss
        return kept

    def _load(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Copy the arrays into the run.

        What it would not have written is refused: a checksum can be made to fit.
        """
        self._prepare_optimizer(arrays)
        tensors = self._tensors()
        wrong = arrays.keys() ^ tensors.keys()
        if wrong:
            raise ValueError(f"{min(wrong)} is missing or too many")
        for name, tensor in tensors.items():
            given = torch.from_numpy(arrays[name])
            checked = _checked_tensor(name, given, tensor)
            tensor.copy_(checked)
        # A custom module may give copies of its weights.
        own = {name: tensors[f"module.{name}"] for name in self.module.state_dict()}
        self.module.load_state_dict(own)

    def _prepare_optimizer(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Room for the state of every parameter that has one in the file."""
        index = 0
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                prefix = f"optimizer.{index}."
                # None where no loss reaches the parameter.
                if any(name.startswith(prefix) for name in arrays):
                    self.optimizer.state[parameter] = _empty_state(parameter, group)
                index += 1


def _empty_state(parameter: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
    """What AdamW, or SGD with momentum, keeps for a parameter."""
    if "momentum" in group:
        return {"momentum_buffer": torch.zeros_like(parameter)}
    device = parameter.device if group["fused"] else "cpu"
    return {
        "step": torch.zeros((), device=device),
        "exp_avg": torch.zeros_like(parameter),
        "exp_avg_sq": torch.zeros_like(parameter),
    }


def _check_settings(path: Path, found: Any, settings: dict[str, Any]) -> None:
    """Refuse a file of a run with other settings, and say which differ."""
    if found == settings:
        return
    known: dict[str, Any] = {}
    if isinstance(found, dict):
        known = found
    names = {**settings, **known}
    changed = [str(name) for name in names if known.get(name) != settings.get(name)]
    words = ", ".join(changed)
    said = f"{path} belongs to a run with other settings ({words}):"
    raise ValueError(
        f"{said} use the same settings and seed, another folder, or delete it"
    )


def _checked_tensor(name: str, given: Tensor, own: Tensor) -> Tensor:
    """What a file gives for a tensor of the run, if it has its type, shape and possible values."""
    stored = STORED_AS.get(own.dtype, own.dtype)
    alike = given.dtype == stored and given.shape == own.shape
    if not alike:
        shape = tuple(given.shape)
        raise ValueError(f"{name} has dtype {given.dtype} and shape {shape}")
    given = given.view(own.dtype)
    owner, _, last = name.rpartition(".")
    if not owner or not given.is_floating_point():
        return given  # the losses of the best weights, without a dot, may be infinite
    least = -LARGEST_WEIGHT
    if owner.startswith("optimizer."):
        # What AdamW keeps beside averages of gradients.
        least = {"step": 1.0, "exp_avg_sq": 0.0}.get(last, least)
    inside = (given >= least) & (given <= LARGEST_WEIGHT)  # nan is not
    if not bool(inside.all()):
        raise ValueError(f"{name} must be between {least:g} and {LARGEST_WEIGHT:g}")
    return given


def structure(module: nn.Module) -> str:
    """A digest of what a module computes beside its weights: layers, settings, custom code.

    Two modules with tensors of the same names and shapes may have other activations. Those that
    are layers appear in the representation of the module, those that are functions in the byte
    code of its ``forward``.
    """
    parts = [repr(module)]
    for name, tensor in module.state_dict().items():
        shape = tuple(tensor.shape)
        parts.append(f"{name} {shape} {tensor.dtype}")
    for part in module.modules():
        kind = type(part)
        code = getattr(kind.forward, "__code__", None)
        if code is None or kind.__module__.startswith("torch."):
            continue
        plain = int | float | str | None
        constants = [value for value in code.co_consts if isinstance(value, plain)]
        instructions = code.co_code.hex()
        own = f"{kind.__qualname__} {instructions} {code.co_names} {constants}"
        parts.append(own)
    whole = "\n".join(parts)
    digest = hashlib.sha256(whole.encode())
    return digest.hexdigest()[:16]


def _checked_history(
    columns: dict[str, npt.NDArray[Any]], nothing_held_out: bool
) -> list[dict[str, Any]]:
    """Losses and seconds, epoch by epoch; the held-out loss is nan where nothing was held out."""
    table = np.column_stack([columns[name] for name in HISTORY])
    numbers = table.dtype == np.float64 and table.shape[1] == len(HISTORY)
    finite = np.isfinite(table)
    if nothing_held_out:
        held_out = HISTORY.index("val_loss")
        finite[:, held_out] = True
    known = columns.keys() == set(HISTORY)
    if not known or not numbers or not finite.all():
        raise ValueError(
            "history must hold finite numbers for each quantity, epoch by epoch"
        )
    history = []
    for epoch, row in enumerate(table.tolist(), 1):
        history.append({"epoch": epoch, **dict(zip(HISTORY, row, strict=True))})
    return history
