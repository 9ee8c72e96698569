"""Networks: a stack of plain ones as a member, and a custom torch module as the only member.

Each network is stopped early on its own held-out part of the rows, and the posteriors of a stack are averaged. Weights
of a stack are rounded to half precision once trained: posteriors change by less than 1e-3, and a file is half as large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from collidescope._threads import one_thread
from collidescope.learners.base import (
    BLOCK_NUMBERS,
    LOG_FLOOR,
    FloatArray,
    Member,
    Task,
    Tree,
    by_blocks,
    checked,
)
from collidescope.training.config import TrainingConfig, check_sizes
from collidescope.training.loop import epoch_generator, fit_loop, seeded_module
from collidescope.training.machine import device_of, explained_errors, halved
from collidescope.training.networks import FactorisedObjective, OneMember, StackedMLP
from collidescope.training.rows import Split, as_rows, labels_and_weights, tensor, validation_split

HIDDEN = (128, 128)
#: Networks, and the rows beyond which one is enough. Five instead of three gained less than 0.5% of the Brier score.
STACK, STACK_ROWS = 3, 15_000
PATIENCE = 8  #: epochs without gain that end the training, unless ``training`` says otherwise
PARTS = 10  #: held-out parts that a stack of one is made from
ONE_THREAD_ROWS = (
    20_000  #: up to these one thread trains: waiting ones made a fit a hundred times slower
)
LARGEST_HALF = 60_000.0
MOST_NETWORKS, MOST_LAYERS = 100, 20  #: networks of a stack and hidden layers that a file may claim
SCORED_ROWS = 8192  #: rows that a custom module, whose size is not known, scores at once
MOST_CHANNELS = 4096  #: features or channels a file may claim; beyond, no more than it has weights


class TorchMember(Member):
    """A member whose posteriors a torch module gives."""

    module: Any
    single: float = ONE_THREAD_ROWS  #: rows up to which a CPU scores with one thread
    history: list[dict[str, Any]]
    interrupted = False

    @property
    def row_numbers(self) -> float:
        """Numbers of a row on its way through the module."""
        return BLOCK_NUMBERS / SCORED_ROWS

    def logs(self, x: Tensor) -> Tensor:
        """Log posteriors of rows on the device of the module."""
        return torch.log_softmax(self.module(x).double(), -1)

    def train(
        self, module: nn.Module, task: Task, splits: list[Split], config: TrainingConfig
    ) -> None:
        """Train the stack ``module``, each of its networks on its own (training rows, held-out rows)."""
        y, w = labels_and_weights(task.codes, task.sample_weight, task.device)
        objective = FactorisedObjective(as_rows(task.X, task.device), y, splits, config, w)
        run = fit_loop(
            module, objective, config, task.seed, task.report, task.checkpoint, self.name
        )
        if run.interrupted and not run.history:
            raise KeyboardInterrupt
        self.module, self.history, self.interrupted = run.module, run.history, run.interrupted

    def log_posteriors(self, X: Any) -> FloatArray:
        device = device_of(self.module)

        def score(x: npt.NDArray[np.float32]) -> FloatArray:
            rows, whole = tensor(x), (slice(0, len(x)), slice(0, 1))
            parts = halved(lambda part, _: self.logs(rows[part].to(device)).cpu(), *whole)
            return torch.cat([logs for _, _, logs in parts]).clamp_min(LOG_FLOOR).numpy()

        explained = explained_errors("scoring rows", "score fewer rows at a time", str(device))
        single = one_thread(device.type == "cpu" and len(X) <= self.single)
        with torch.inference_mode(), explained, single:
            return by_blocks(score, X, self.row_numbers)

    def load(self, module: nn.Module, arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """Take over a module with the weights of a file."""
        try:
            module.load_state_dict(
                {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
            )
        except RuntimeError as error:
            raise ValueError(
                f"the weights of member {self.name!r} do not fit it: {error}"
            ) from None
        self.module = module.eval()
        return self


class Network(TorchMember):
    """Networks with hidden layers ``hidden_layer_sizes``."""

    hidden: tuple[int, ...]

    def fit(self, task: Task) -> Self:
        options = dict(task.training or {})
        sizes = options.pop("hidden_layer_sizes", "auto")
        self.hidden = HIDDEN if isinstance(sizes, str) else tuple(sizes)
        settings = {"patience": PATIENCE, **options, "hidden_layer_sizes": self.hidden}
        config = TrainingConfig.from_mapping(settings, task.device)
        n, d = len(task.codes), task.X.shape[1]
        M = STACK if n <= STACK_ROWS else 1
        part = task.inner_parts(M if M > 1 else PARTS, task.seed)
        number = torch.from_numpy(part).to(task.device)
        members = range(min(M, int(part.max()) + 1))
        splits = [
            (torch.nonzero(number != m).flatten(), torch.nonzero(number == m).flatten())
            for m in members
        ]
        if not splits:  # no row can be held out: early stopping watches those that are trained on
            splits = [(torch.arange(n, device=task.device),) * 2]
        first = epoch_generator(task.seed, 0)
        module = StackedMLP(len(splits), d, task.n_classes, self.hidden, config.dropout, first)
        with one_thread(task.device == "cpu" and n <= ONE_THREAD_ROWS):
            self.train(module, task, splits, config)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(parameter.clamp(-LARGEST_HALF, LARGEST_HALF).half().float())
        return self

    @property
    def row_numbers(self) -> float:
        return float(self.module.n_members * sum(b for _, b in self.module.shapes))

    def logs(self, x: Tensor) -> Tensor:
        return torch.softmax(self.module(x), -1).double().mean(0).log()

    def export(self) -> Tree:
        weight, bias = (
            p.detach().cpu().half().numpy() for p in (self.module.weight, self.module.bias)
        )
        return {
            "weight": weight,
            "bias": bias,
            "hidden_layer_sizes": list(self.hidden),
            "history": self.history,
        }

    def restore(self, tree: Tree, shape: tuple[int, ...], n_classes: int) -> Self:
        self.hidden, self.history = check_sizes(tree["hidden_layer_sizes"]), tree["history"]
        sizes = [math.prod(shape), *self.hidden, n_classes]
        weight = checked(tree, "weight", ["f2"], (None, sum(a * b for a, b in pairwise(sizes))))
        bias = checked(tree, "bias", ["f2"], (len(weight), sum(sizes[1:])))
        limits = 0 < len(weight) <= MOST_NETWORKS and len(self.hidden) <= MOST_LAYERS
        if not limits or not isinstance(self.history, list):
            raise ValueError(
                f"a stack must have up to {MOST_NETWORKS} networks of {MOST_LAYERS} layers, and a history"
            )
        return self.load(
            StackedMLP(len(weight), sizes[0], n_classes, self.hidden),
            {"weight": weight, "bias": bias},
        )


class Custom(TorchMember):
    """Any network, for images, text, anything: ``factory(d, k)`` builds it for d features or channels and k logits."""

    images, single = True, -1

    factory: Callable[[int, int], Any]

    def fit(self, task: Task) -> Self:
        config = TrainingConfig.from_mapping(task.training, task.device)
        self.shape = tuple(task.X.shape[1:])
        module = seeded_module(lambda: self._build(task.n_classes), task.seed)
        y, _ = labels_and_weights(task.codes, None, task.device)
        self.train(module, task, [validation_split(y, config, task.seed)], config)
        return self

    def _build(self, n_classes: int) -> OneMember:
        return OneMember(self.factory(self.shape[0], n_classes))

    def logs(self, x: Tensor) -> Tensor:
        return super().logs(x[None])[0]

    def export(self) -> Tree:
        state = {name: t.detach().cpu().numpy() for name, t in self.module.state_dict().items()}
        return {"state": state, "shape": list(self.shape), "history": self.history}

    def restore(self, tree: Tree, shape: tuple[int, ...], n_classes: int) -> Self:
        self.shape, self.history = shape, list(tree["history"])
        state = {str(name): np.asarray(array) for name, array in tree["state"].items()}
        if tuple(tree["shape"]) != shape:
            raise ValueError(
                f"rows of the custom module must have shape {shape}, got {tree['shape']}"
            )
        if shape[0] > max(sum(array.size for array in state.values()), MOST_CHANNELS):
            raise ValueError(
                f"a module on rows of shape {shape} does not fit the weights in the file"
            )
        return self.load(self._build(n_classes), state)
