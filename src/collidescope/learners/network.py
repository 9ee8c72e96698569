"""Networks: a stack of plain ones as a member, and a custom torch module as the only member.

Each network is stopped early on its own held-out part of the rows, and the posteriors of a stack
are averaged. Weights of a stack are rounded to half precision once trained: posteriors change by
less than 1e-3, and a file is half as large.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from collidescope._checks import IntArray, to_numpy
from collidescope._saving import NOT_SAVED
from collidescope._threads import one_thread
from collidescope.learners.base import (
    BLOCK_NUMBERS,
    LOG_FLOOR,
    Fitted,
    FloatArray,
    Member,
    Task,
    Tree,
    by_blocks,
)
from collidescope.training.config import TrainingConfig, check_sizes
from collidescope.training.cycle import OneCycle, adam_w
from collidescope.training.loop import Run, epoch_generator, fit_loop, seeded_module
from collidescope.training.machine import device_of, explained_errors, halved
from collidescope.training.networks import FactorisedObjective, OneMember, StackedMLP
from collidescope.training.rows import (
    Split,
    as_rows,
    labels_and_weights,
    tensor,
    validation_split,
)

#: Up to these one thread trains: waiting ones made a fit a hundred times slower.
ONE_THREAD_ROWS = 20_000

History = list[dict[str, Any]]
Arrays = dict[str, npt.NDArray[Any]]
Half = npt.NDArray[np.float16]


class FittedModule(Fitted):
    """A torch module that gives log posteriors."""

    #: rows up to which a CPU scores with one thread
    single: ClassVar[float] = ONE_THREAD_ROWS

    @cached_property
    @abstractmethod
    def module(self) -> Any:
        """The module, made from the arrays when it is first asked for."""

    @property
    def row_numbers(self) -> float:
        """Numbers of a row on its way through the module; of one of unknown size, many."""
        rows_at_once = 8192
        return BLOCK_NUMBERS / rows_at_once

    def logs(self, x: Tensor) -> Tensor:
        """Log posteriors of rows on the device of the module."""
        return torch.log_softmax(self.module(x).double(), -1)

    def log_posteriors(self, X: Any) -> FloatArray:
        device = device_of(self.module)

        def score(x: npt.NDArray[np.float32]) -> FloatArray:
            rows = tensor(x)

            def part_of(part: slice, _: slice) -> Tensor:
                return self.logs(rows[part].to(device)).cpu()

            parts = halved(part_of, slice(0, len(x)), slice(0, 1))
            logs = torch.cat([logs for _, _, logs in parts])
            floored = logs.clamp_min(LOG_FLOOR)
            return np.asarray(floored.numpy())

        explained = explained_errors(
            "scoring rows",
            "score fewer rows at a time",
            str(device),
        )
        few = device.type == "cpu" and len(X) <= self.single
        with torch.inference_mode(), explained, one_thread(few):
            return by_blocks(score, X, self.row_numbers)


def loaded(module: nn.Module, arrays: Arrays, name: str) -> nn.Module:
    """``module`` with the weights ``arrays``, for scoring."""
    state = {key: torch.from_numpy(array.copy()) for key, array in arrays.items()}
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        said = f"the weights of member {name!r} do not fit it"
        raise ValueError(f"{said}: {error}") from None
    return module.eval()


def trained(
    name: str,
    module: nn.Module,
    task: Task,
    splits: list[Split],
    config: TrainingConfig,
    cycle: OneCycle | None = None,
) -> Run:
    """Train the stack ``module``, each network on its own (training rows, held-out rows)."""
    y, w = labels_and_weights(task.codes, task.sample_weight, task.device)
    rows = as_rows(task.X, task.device)
    run = fit_loop(
        module,
        FactorisedObjective(rows, y, splits, config, w),
        config,
        task.seed,
        task.report,
        task.checkpoint,
        name,
        cycle,
    )
    if run.interrupted and not run.history:
        raise KeyboardInterrupt
    return run


@dataclass(frozen=True)
class FallingRate(OneCycle):
    """AdamW whose rate rises briefly and falls to 0 like a cosine."""

    rising: float = 0.1

    def optimizer(self, module: nn.Module) -> torch.optim.Optimizer:
        return adam_w(module, self.peak, self.weight_decay)

    def rate(self, done: float) -> float:
        """The rate once a share ``done`` of the run is over.

        >>> falling = FallingRate(epochs=10, peak=0.01, weight_decay=0)
        >>> [round(falling.rate(done), 6) for done in (0, falling.rising, 0.55, 1)]
        [0.0, 0.01, 0.005, 0.0]
        """
        if done < self.rising:
            return self.peak * done / self.rising
        fallen = (done - self.rising) / (1 - self.rising)
        return self.peak * (1 + math.cos(math.pi * fallen)) / 2


@dataclass(frozen=True)
class FittedNetwork(FittedModule):
    """Weights and biases of M networks, each in one row."""

    hidden_layer_sizes: tuple[Annotated[int, 1, 10**9], ...]
    weight: Annotated[Half, "f2 M P"]
    bias: Annotated[Half, "f2 M Q"]
    n_features: Annotated[int, "d"]
    n_classes: Annotated[int, "K"]
    history: History
    interrupted: bool = field(default=False, metadata=NOT_SAVED)
    capped: bool = field(default=False, metadata=NOT_SAVED)  #: ended for lack of epochs
    device: str = field(default="cpu", metadata=NOT_SAVED)

    def __post_init__(self) -> None:
        most_networks = 100
        most_layers = 20
        few = 0 < len(self.weight) <= most_networks
        if not few or len(self.hidden_layer_sizes) > most_layers:
            wanted = f"up to {most_networks} networks of {most_layers} layers"
            raise ValueError(f"a stack must have {wanted}")
        sizes = [self.n_features, *self.hidden_layer_sizes, self.n_classes]
        n_weights = _n_weights(sizes)
        n_biases = sum(sizes[1:])
        found = (self.weight.shape[1], self.bias.shape[1])
        if found != (n_weights, n_biases):
            raise ValueError(f"the weights do not fit layers of sizes {sizes}")

    @cached_property
    def module(self) -> Any:
        stack = StackedMLP(
            len(self.weight),
            self.n_features,
            self.n_classes,
            self.hidden_layer_sizes,
            # First weights, soon overwritten, are not drawn by the process's own generator.
            generator=torch.Generator(),
        )
        arrays: Arrays = {"weight": self.weight, "bias": self.bias}
        module = loaded(stack, arrays, self.name)
        return module.to(self.device)

    @property
    def row_numbers(self) -> float:
        units = sum(self.hidden_layer_sizes) + self.n_classes
        return float(len(self.weight) * units)

    def logs(self, x: Tensor) -> Tensor:
        p = torch.softmax(self.module(x), -1)
        return p.double().mean(0).log()


@dataclass(frozen=True)
class Network(Member):
    """A stack of plain networks; ``training`` may name other hidden layers."""

    hidden: tuple[int, ...] = (128, 128)
    #: networks: five instead of three gained less than 0.5% of the Brier score
    stack: int = 3
    stack_rows: int = 15_000  #: rows beyond which one is enough
    #: epochs without gain that end the training, unless ``training`` says
    patience: int = 8
    parts: int = 10  #: held-out parts that a stack of one is made from
    #: Of many rows, unless ``training`` says: epochs and rows of a step, and the rate that falls.
    #: On covertype it takes half of the time that one rate takes, and is better.
    many_epochs: int = 24
    many_batch: int = 512
    many_rate: float = 0.015

    learned: ClassVar[type[Fitted]] = FittedNetwork

    def cost(self, n: int, d: int, k: int) -> float:
        n_weights = _n_weights([d, *self.hidden, k])
        epochs = self.many_epochs
        networks = self._n_networks(n)
        rows = networks * epochs * n
        per_row = n_weights * 4e-11 + 7e-7
        return rows * per_row

    def _n_networks(self, n: int) -> int:
        if n <= self.stack_rows:
            return self.stack
        return 1

    def fit(self, task: Task) -> FittedNetwork:
        config = self._config(task)
        hidden = check_sizes(config.hidden_layer_sizes)  # type: ignore[arg-type]
        n = len(task.codes)
        d = task.X.shape[1]
        splits = self._splits(task)
        cycle = None
        if self._falls(task):
            cycle = FallingRate(self.many_epochs, self.many_rate, config.weight_decay)
            config = replace(
                config,
                max_epochs=self.many_epochs,
                batch_size=self.many_batch,
            )
        first = epoch_generator(task.seed, 0)
        module = StackedMLP(
            len(splits), d, task.n_classes, hidden, config.dropout, first
        )
        with one_thread(task.device == "cpu" and n <= ONE_THREAD_ROWS):
            run = trained(self.name, module, task, splits, config, cycle)
        # A rate that has fallen to 0 is an end, not a lack of epochs.
        capped = run.capped and cycle is None
        return FittedNetwork(
            self.name,
            hidden,
            _half(module.weight),
            _half(module.bias),
            d,
            task.n_classes,
            run.history,
            interrupted=run.interrupted,
            capped=capped,
            device=task.device,
        )

    def _falls(self, task: Task) -> bool:
        """Whether the rate falls: of many rows, unless the user sets the pace."""
        pace = {"max_epochs", "patience", "batch_size", "learning_rate"}
        given = set(task.training or {})
        many = self._n_networks(len(task.codes)) == 1
        return many and not given & pace

    def _config(self, task: Task) -> TrainingConfig:
        options = {"patience": self.patience, **(task.training or {})}
        if isinstance(options.get("hidden_layer_sizes", "auto"), str):
            options["hidden_layer_sizes"] = self.hidden
        return TrainingConfig.from_mapping(options, task.device)

    def _splits(self, task: Task) -> list[Split]:
        """(training rows, held-out rows) of every network."""
        n = len(task.codes)
        M = self._n_networks(n)
        n_parts = M
        if M == 1:
            n_parts = self.parts
        part = task.inner_parts(n_parts, task.seed)
        used = range(min(M, int(part.max()) + 1))
        splits = [
            _split(part, held_out, task.device)  # each network has its own
            for held_out in used
        ]
        if not splits:
            # No row can be held out: early stopping watches those trained on.
            every_row = torch.arange(n, device=task.device)
            splits = [(every_row, every_row)]
        return splits


def _n_weights(sizes: Sequence[int]) -> int:
    """Weights of a network with layers of these sizes."""
    return sum(a * b for a, b in pairwise(sizes))


def _split(part: IntArray, held_out: int, device: str) -> Split:
    number = torch.from_numpy(part).to(device)
    train = torch.nonzero(number != held_out)
    test = torch.nonzero(number == held_out)
    return train.flatten(), test.flatten()


def _half(parameter: Tensor, largest: float = 60_000.0) -> Half:
    clipped = parameter.detach().clamp(-largest, largest)
    return np.asarray(clipped.half().cpu().numpy())


@dataclass(frozen=True)
class FittedCustom(FittedModule):
    """The state of a module that a user's factory builds."""

    images: ClassVar[bool] = True
    single: ClassVar[float] = -1

    state: Arrays
    shape: tuple[Annotated[int, 1, 10**9], ...]
    n_classes: Annotated[int, "K"]
    history: History
    interrupted: bool = field(default=False, metadata=NOT_SAVED)
    capped: bool = field(default=False, metadata=NOT_SAVED)  #: ended for lack of epochs
    factory: Callable[[int, int], Any] | None = field(default=None, metadata=NOT_SAVED)
    #: that rows must have
    row_shape: tuple[int, ...] | None = field(default=None, metadata=NOT_SAVED)

    def __post_init__(self) -> None:
        if self.row_shape is not None and self.shape != self.row_shape:
            said = f"rows of the custom module must have shape {self.row_shape}"
            raise ValueError(f"{said}, got {self.shape}")
        # A file may claim 4096 features or channels; beyond, no more than it has weights.
        n_weights = sum(array.size for array in self.state.values())
        if self.shape[0] > max(n_weights, 4096):
            said = f"a module on rows of shape {self.shape}"
            raise ValueError(f"{said} does not fit the weights in the file")
        if self.row_shape is not None:
            self.module  # noqa: B018 - from a file: refuses weights that do not fit

    @cached_property
    def module(self) -> Any:
        if self.factory is None:
            hint = "pass the factory that built it"
            raise ValueError(f"the model holds a custom module: {hint}")
        # Seeded, for the same reason as above.
        n_features = self.shape[0]
        build = partial(self.factory, n_features, self.n_classes)
        built = seeded_module(build, 0)
        module = OneMember(built)
        return loaded(module, self.state, self.name)

    def logs(self, x: Tensor) -> Tensor:
        return super().logs(x[None])[0]

    def export(self) -> Tree:
        # A file is read again with one factory.
        if "-" in self.name:
            said = f"member {self.name!r} is the second of several factories"
            raise ValueError(
                f"{said}, and a file holds one: fit with the better one alone to save"
            )
        return super().export()


@dataclass(frozen=True)
class Custom(Member):
    """Any network, for images, text, anything.

    ``factory(d, k)`` builds it for d features or channels and k logits.
    """

    images: ClassVar[bool] = True
    knows_cost: ClassVar[bool] = False
    learned: ClassVar[type[Fitted]] = FittedCustom

    factory: Callable[[int, int], Any] | None = None

    def cost(self, n: int, d: int, k: int) -> float:
        """Nothing is known of it."""
        return 1e-4 * n

    def fit(self, task: Task) -> FittedCustom:
        config = TrainingConfig.from_mapping(task.training, task.device)
        shape = tuple(task.X.shape[1:])
        module = seeded_module(lambda: self._build(shape, task.n_classes), task.seed)
        y, _ = labels_and_weights(task.codes, None, task.device)
        splits = [validation_split(y, config, task.seed)]
        run = trained(self.name, module, task, splits, config)
        fitted = FittedCustom(
            self.name,
            state_arrays(run.module),
            shape,
            task.n_classes,
            run.history,
            interrupted=run.interrupted,
            capped=run.capped,
            factory=self.factory,
        )
        # On its device; a copy would be built from the state.
        vars(fitted)["module"] = run.module
        return fitted

    def _build(self, shape: tuple[int, ...], n_classes: int) -> OneMember:
        assert self.factory is not None
        return OneMember(self.factory(shape[0], n_classes))

    def unsaved_values(self, shape: tuple[int, ...]) -> dict[str, Any]:
        return {"factory": self.factory, "row_shape": shape}


def state_arrays(module: nn.Module) -> Arrays:
    """Weights and buffers of a module, by their names."""
    return {name: to_numpy(tensor) for name, tensor in module.state_dict().items()}
