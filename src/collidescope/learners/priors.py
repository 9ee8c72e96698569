"""The priors as a member: what a pool falls back on where nothing else has skill."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from collidescope.learners._shared import LOG_FLOOR, checked, class_shares
from collidescope.learners.base import FloatArray, Member, Task, Tree


class Priors(Member):
    """The class shares of the training rows, whatever x."""

    name = "priors"
    simple = True

    log_priors: npt.NDArray[np.float64]

    @classmethod
    def takes_part(cls, n: int, d: int, k: int) -> bool:
        return True

    def fit(self, task: Task) -> Self:
        self.log_priors = np.maximum(np.log(class_shares(task)), LOG_FLOOR)
        return self

    def log_posteriors(self, X: Any) -> FloatArray:
        return np.tile(self.log_priors, (len(X), 1))

    def export(self) -> Tree:
        return {"log_priors": self.log_priors}

    @classmethod
    def restore(cls, tree: Tree, n_features: int, n_classes: int) -> Self:
        member = cls()
        member.log_priors = checked(tree, "log_priors", (np.float64,), (n_classes,))
        return member
