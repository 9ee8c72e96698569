"""A stack of networks with two hidden layers, each stopped early on its own held-out part of the rows.

The posteriors of the networks are averaged. Weights are rounded to half precision once trained: posteriors change by
less than 1e-3, and a file is half as large.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch

from collidescope.learners.base import LOG_FLOOR, FloatArray, Member, Task, Tree, by_blocks, checked
from collidescope.training.config import TrainingConfig
from collidescope.training.loop import epoch_generator, fit_loop
from collidescope.training.machine import one_thread
from collidescope.training.networks import FactorisedObjective, StackedMLP
from collidescope.training.rows import as_rows, labels_and_weights

HIDDEN = (128, 128)
#: Networks, and the rows beyond which one is enough. Five instead of three gained less than 0.5% of the Brier score.
STACK, STACK_ROWS = 3, 15_000
PATIENCE = 8  #: epochs without gain that end the training, unless ``training`` says otherwise
PARTS = 10  #: held-out parts that a stack of one is made from
ONE_THREAD_ROWS = 20_000  #: up to these one thread trains: waiting ones made a fit a hundred times slower
LARGEST_HALF = 60_000.0
MOST_NETWORKS, MOST_LAYERS = 100, 20  #: networks of a stack and layers that a file may claim


class Network(Member):
    """Networks with hidden layers ``hidden_layer_sizes``."""

    name = "network"

    module: StackedMLP
    hidden: tuple[int, ...]
    history: list[dict[str, Any]]

    def fit(self, task: Task) -> Self:
        options = dict(task.training or {})
        sizes = options.pop("hidden_layer_sizes", "auto")
        self.hidden = HIDDEN if isinstance(sizes, str) else tuple(sizes)
        settings = {"patience": PATIENCE, **options, "hidden_layer_sizes": self.hidden}
        config = TrainingConfig.from_mapping(settings, task.device)
        n, K = len(task.codes), task.n_classes
        M = STACK if n <= STACK_ROWS else 1
        part = task.inner_parts(M if M > 1 else PARTS, task.seed)
        number = torch.from_numpy(part).to(task.device)
        members = range(min(M, int(part.max()) + 1))
        splits = [(torch.nonzero(number != m).flatten(), torch.nonzero(number == m).flatten()) for m in members]
        if not splits:  # no row can be held out: early stopping watches those that are trained on
            splits = [(torch.arange(n, device=task.device),) * 2]
        X = as_rows(task.X, task.device)
        y, w = labels_and_weights(task.codes, task.sample_weight, task.device)
        module = StackedMLP(len(splits), X.shape[1], K, self.hidden, config.dropout, epoch_generator(task.seed, 0))
        with one_thread(task.device == "cpu" and n <= ONE_THREAD_ROWS):
            objective = FactorisedObjective(X, y, splits, config, w)
            run = fit_loop(module, objective, config, task.seed, task.report, task.checkpoint, self.name)
        if run.interrupted and not run.history:
            raise KeyboardInterrupt
        self.module, self.history, self.interrupted = module, run.history, run.interrupted
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(parameter.clamp(-LARGEST_HALF, LARGEST_HALF).half().float())
        return self

    def log_posteriors(self, X: Any) -> FloatArray:
        device = self.module.weight.device

        def score(x: Any) -> FloatArray:
            with torch.inference_mode():
                p = torch.softmax(self.module(torch.from_numpy(x).to(device)), -1).double().mean(0)
                return p.log().clamp_min(LOG_FLOOR).cpu().numpy()

        with one_thread(str(device) == "cpu" and len(X) <= ONE_THREAD_ROWS):
            return by_blocks(score, X, self.module.n_members * sum(b for _, b in self.module.shapes))

    def export(self) -> Tree:
        weight, bias = (p.detach().cpu().half().numpy() for p in (self.module.weight, self.module.bias))
        return {"weight": weight, "bias": bias, "hidden_layer_sizes": list(self.hidden), "history": self.history}

    @classmethod
    def restore(cls, tree: Tree, n_features: int, n_classes: int) -> Self:
        member = cls()
        hidden = tree["hidden_layer_sizes"]
        known = isinstance(hidden, list) and len(hidden) <= MOST_LAYERS
        if not known or not all(type(h) is int and h > 0 for h in hidden):
            raise ValueError(f"hidden_layer_sizes must be up to {MOST_LAYERS} positive whole numbers, got {hidden!r}")
        sizes = [n_features, *hidden, n_classes]
        weight = checked(tree, "weight", (np.float16,), (None, sum(a * b for a, b in pairwise(sizes))))
        bias = checked(tree, "bias", (np.float16,), (len(weight), sum(sizes[1:])))
        if not 0 < len(weight) <= MOST_NETWORKS or not isinstance(tree["history"], list):
            raise ValueError(f"a stack must have 1 to {MOST_NETWORKS} networks and a history")
        member.hidden, member.history, member.interrupted = tuple(hidden), tree["history"], False
        member.module = StackedMLP(len(weight), n_features, n_classes, member.hidden)
        arrays = {"weight": weight, "bias": bias}
        member.module.load_state_dict({name: torch.from_numpy(a.astype(np.float32)) for name, a in arrays.items()})
        member.module.eval()
        return member
