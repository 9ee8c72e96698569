"""A custom torch module as the only member: any network from a row to K logits, for images, text, anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch

from collidescope.learners.base import LOG_FLOOR, FloatArray, Member, Task, Tree
from collidescope.training.config import TrainingConfig
from collidescope.training.loop import fit_loop, seeded_module
from collidescope.training.machine import explained_errors, halved
from collidescope.training.networks import FactorisedObjective, OneMember
from collidescope.training.rows import as_rows, labels_and_weights, validation_split

ROWS_AT_ONCE = 8192
MOST_CHANNELS = 4096  #: features or channels a file may claim; beyond, no more than it has weights


class Custom(Member):
    """One network with k logits that ``factory(d, k)`` builds for d features or channels, stopped early."""

    name = "module"
    images = True

    def __init__(self, factory: Callable[[int, int], Any]) -> None:
        self.factory = factory
        self.history: list[dict[str, Any]] = []
        self.interrupted = False

    def fit(self, task: Task) -> Self:
        config = TrainingConfig.from_mapping(task.training, task.device)
        y, w = labels_and_weights(task.codes, task.sample_weight, task.device)
        X = as_rows(task.X, task.device)
        self.shape, self.n_classes = tuple(X.shape[1:]), task.n_classes
        module = seeded_module(self._build, task.seed)
        objective = FactorisedObjective(X, y, [validation_split(y, config, task.seed)], config, w)
        run = fit_loop(module, objective, config, task.seed, task.report, task.checkpoint, self.name)
        if run.interrupted and not run.history:
            raise KeyboardInterrupt
        self.module, self.history, self.interrupted = run.module, run.history, run.interrupted
        return self

    def _build(self) -> OneMember:
        return OneMember(self.factory(self.shape[0], self.n_classes))

    def log_posteriors(self, X: Any) -> FloatArray:
        device = next((t.device for t in self.module.state_dict().values()), torch.device("cpu"))

        def score(part: slice, _: slice) -> torch.Tensor:
            block = X[part]
            rows = block if isinstance(block, torch.Tensor) else torch.from_numpy(np.array(block, np.float32))
            return torch.log_softmax(self.module(rows.to(device)[None])[0].double(), -1).cpu()

        parts = []
        with torch.inference_mode(), explained_errors("scoring rows", "score fewer rows at a time", str(device)):
            for start in range(0, len(X), ROWS_AT_ONCE):
                block = slice(start, min(start + ROWS_AT_ONCE, len(X)))
                parts += [part for _, _, part in halved(score, block, slice(0, 1))]
        return torch.cat(parts).clamp_min(LOG_FLOOR).numpy()

    def export(self) -> Tree:
        state = {name: tensor.detach().cpu().numpy() for name, tensor in self.module.state_dict().items()}
        return {"state": state, "shape": list(self.shape), "history": self.history}

    @classmethod
    def restore(cls, tree: Tree, n_features: int, n_classes: int) -> Self:
        if tree["factory"] is None:
            raise ValueError("the model holds a custom module: pass the factory that built it")
        member = cls(tree["factory"])
        member.shape, member.n_classes = tuple(int(size) for size in tree["shape"]), n_classes
        state = {str(name): np.asarray(array) for name, array in tree["state"].items()}
        if member.shape != tuple(tree["row_shape"]):
            raise ValueError(f"rows of the custom module must have shape {tree['row_shape']}, got {member.shape}")
        if member.shape[0] > max(sum(array.size for array in state.values()), MOST_CHANNELS):
            raise ValueError(f"a module on rows of shape {member.shape} does not fit the weights in the file")
        member.module = member._build()
        try:
            member.module.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in state.items()})
        except RuntimeError as error:
            raise ValueError(f"the weights of the custom module do not fit it: {error}") from None
        member.module.eval()
        member.history = list(tree["history"])
        return member
