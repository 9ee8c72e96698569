"""What a member of the pool is: a way to learn posteriors p(class | x) from labelled rows.

A member is a small class in a file of its own. It is built for one fold, fitted once on that fold's training rows, and
from then on gives log posteriors of any row. What it learned is a tree of arrays and JSON values, so that it can be
written to a file and read again without running code.

Shapes: n rows, d features, K classes. Members for tables get standardised float32 rows of shape (n, d); a member for
images (``images = True``) gets rows of shape (n, channels, height, width).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
#: Nested dicts and lists whose leaves are numpy arrays, text, numbers, booleans or None.
Tree = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """What a member is asked to learn, and how it may go about it.

    Parameters
    ----------
    X : float32 array of shape (n, d), standardised (median 0, interquartile range that of a standard normal)
    codes : array of n class numbers 0 … K-1; every class occurs
    n_classes : int
    sample_weight : array of n weights with mean 1, optional
    groups : array of n group numbers, optional
        Rows of one group stay on one side of any split that the member makes for early stopping.
    spread : array of shape (d,)
        The scale of every feature before it was standardised, in units of their median: ``X * spread`` brings features
        back to their common unit (pixels), which distances may prefer.
    seed : int
    device : str
        Of torch.
    training : mapping
        What trains a network (see :class:`collidescope.training.config.TrainingConfig`).
    report : callable, optional
        Told how far the training of a network is: ``report({"name", "epoch", "max_epochs", "val_loss"})``.
    checkpoint : folder, optional
        Where the training of a network is saved after every epoch and resumed from.
    """

    X: Any
    codes: npt.NDArray[np.intp]
    n_classes: int
    sample_weight: FloatArray | None = None
    groups: npt.NDArray[np.intp] | None = None
    spread: FloatArray | None = None
    seed: int = 0
    device: str = "cpu"
    training: Mapping[str, Any] | None = None
    report: Callable[[dict[str, Any]], None] | None = None
    checkpoint: Path | None = None


class Member(ABC):
    """A way to learn posteriors. Subclasses are registered by name in :mod:`collidescope.learners`."""

    name: ClassVar[str]
    #: Whether rows are images.
    images: ClassVar[bool] = False
    #: Whether torch is needed.
    needs_torch: ClassVar[bool] = False
    #: Whether it has so few parameters that it may be the best with few rows though it is not with many.
    simple: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def takes_part(cls, n: int, d: int, k: int) -> bool:
        """Whether ``members="auto"`` uses this member for a fold of n training rows, d features and k classes."""

    @abstractmethod
    def fit(self, task: Task) -> Self:
        """Learn from the rows of ``task``. Ctrl-C raises KeyboardInterrupt."""

    @abstractmethod
    def log_posteriors(self, X: Any) -> FloatArray:
        """Logarithms of the posteriors, (n, K), at the priors of the training rows; finite."""

    @abstractmethod
    def export(self) -> Tree:
        """What was learned, enough for :meth:`restore`."""

    @classmethod
    @abstractmethod
    def restore(cls, tree: Tree, n_features: int, n_classes: int) -> Self:
        """The member that ``export`` described; raises ValueError, KeyError or TypeError on what does not fit.

        The tree may come from a hostile file: shapes, dtypes, indices and finiteness are checked against
        ``n_features`` and ``n_classes`` before anything is computed or allocated from them.
        """
