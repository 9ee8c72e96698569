"""What a member of the pool is: a way to learn posteriors p(class | x) from labelled rows; and what members share.

A member is built for one fold, fitted once on its training rows, and then gives log posteriors of any row. What it
learned is a tree of arrays and JSON values, which a file can hold and which is read again without running code.

Shapes: n rows, d features, K classes. Members for tables get standardised float32 rows of shape (n, d); a member for
images (``images = True``) gets rows of shape (n, channels, height, width). Nothing here needs torch.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any, Self, get_type_hints

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from collidescope._checks import FloatArray as FloatArray
from collidescope._checks import IntArray, check_between
from collidescope._scaling import blocks
from collidescope._store import Tree as Tree
from collidescope._threads import one_thread

Float32 = npt.NDArray[np.float32]

LOG_FLOOR = (
    -20.0
)  #: log posteriors are not lower: float32 rounding is all that lies below, and pools must add them
LARGEST_INPUT = (
    8.0  #: scales, where products or squares of inputs are taken: one outlier would rule the fit
)
LARGEST_NUMBER = (
    1e9  #: learned numbers are far below; larger ones from a file would overflow float32 soon
)
#: Rows that tell the standard deviations of features; factors that differ by less are the same; and the largest.
SCALE_ROWS, SAME_SCALE, LARGEST_SCALE = 20_000, 0.1, 1e4
PRIOR_SHARE = (
    1e-3  #: rows' worth of the priors in every posterior of a classifier: no logarithm of zero
)
BLOCK_NUMBERS = 8_000_000  #: numbers in a block of intermediate results (32 MB in float32)


@dataclass(frozen=True)
class Task:
    """What a member is asked to learn, and how it may go about it."""

    X: Any  #: (n, d) float32, standardised: median 0, interquartile range that of a standard normal
    codes: IntArray  #: n class numbers 0 … K-1; every class occurs
    n_classes: int
    sample_weight: FloatArray | None = None  #: n weights with mean 1
    groups: IntArray | None = (
        None  #: n group numbers; rows of one stay on one side of a member's splits
    )
    #: Scales before standardising, in units of their median: ``X * spread`` has a common unit, as distances may prefer.
    spread: FloatArray | None = None
    seed: int = 0
    #: Of networks: torch's device, settings (:class:`collidescope.training.config.TrainingConfig`), who is told of
    #: every epoch's ``{"name", "epoch", "max_epochs", "val_loss"}``, and where epochs are saved and resumed from.
    device: str = "cpu"
    training: Mapping[str, Any] | None = None
    report: Callable[[dict[str, Any]], None] | None = None
    checkpoint: Path | None = None

    @property
    def weights(self) -> FloatArray:
        return (
            np.ones(len(self.codes))
            if self.sample_weight is None
            else np.asarray(self.sample_weight, np.float64)
        )

    @property
    def priors(self) -> FloatArray:
        """Weighted shares of the classes, with half a row added to each so that every logarithm exists."""
        shares = np.bincount(self.codes, self.weights, minlength=self.n_classes) + 0.5
        return np.asarray(shares / shares.sum(), dtype=np.float64)

    def sample(
        self, rows: int, numbers: int | None = None, generator: np.random.Generator | None = None
    ) -> tuple[Float32, IntArray, FloatArray]:
        """(X, codes, weights) of at most so many rows with a weight, and numbers in them, in order."""
        w = self.weights
        most = rows if numbers is None else min(rows, max(numbers // self.X.shape[1], 1))
        chosen = some(np.flatnonzero(w > 0), most, generator or np.random.default_rng(self.seed))
        return np.asarray(self.X[chosen], dtype=np.float32), self.codes[chosen], w[chosen]

    def scales(self) -> list[Float32]:
        """Factors of the features among which distances are chosen: as given, deviation 1, and as in the data."""
        sd = np.asarray(self.X[:SCALE_ROWS], dtype=np.float64).std(axis=0)
        found = [np.ones(len(sd)), np.where(sd > 0, 1 / np.maximum(sd, 1e-6), 0.0)]
        if self.spread is not None:
            found.append(np.asarray(self.spread, dtype=np.float64))
        kept: list[Float32] = []
        for factors in found:
            varies = factors[(factors > 0) & (sd > 0)]
            # factors that agree but for a common one give the same neighbours
            same = any(
                np.ptp(factors[sd > 0] / np.maximum(other[sd > 0], 1e-6)) < SAME_SCALE
                for other in kept
            )
            if len(varies) and not same:
                kept.append(
                    np.clip(factors / np.median(varies), 0, LARGEST_SCALE).astype(np.float32)
                )
        return kept or [np.ones(len(sd), dtype=np.float32)]

    def inner_parts(self, n_parts: int, seed: int) -> IntArray:
        """The part 0 … n_parts-1 in which each row is held out; -1 for rows that are always trained on.

        Parts are stratified by class and keep the rows of a group together. The only row of a class is trained on.
        """
        codes, part = self.codes, np.full(len(self.codes), -1)
        if self.groups is not None:
            from sklearn.model_selection import StratifiedGroupKFold

            if (n_groups := len(np.unique(self.groups))) > 1:
                folds = StratifiedGroupKFold(
                    min(n_parts, n_groups), shuffle=True, random_state=seed % 2**32
                )
                for number, (_, held_out) in enumerate(
                    folds.split(codes, np.zeros(len(codes)), self.groups)
                ):
                    part[held_out] = number
            return part
        dealt = np.flatnonzero(np.bincount(codes, minlength=self.n_classes)[codes] > 1)
        # Shuffled, then sorted by class: dealing the rows out in turn gives each part its share of every class.
        order = np.random.default_rng(seed).permutation(dealt)
        order = order[np.argsort(codes[order], kind="stable")]
        part[order] = np.arange(len(order)) % max(2, min(n_parts, len(order) // 2))
        return part


def some(rows: IntArray, most: int, generator: np.random.Generator) -> IntArray:
    """At most so many of the rows, in order."""
    return rows if len(rows) <= most else np.sort(generator.choice(rows, most, replace=False))


class Member(ABC):
    """A way to learn posteriors, registered by name in :mod:`collidescope.learners`; ``settings`` replace its defaults.

    Unfitted it is a recipe, copied for every fold.
    """

    images: bool = False  #: whether rows are images
    simple: bool = False  #: so few parameters that it may be best with few rows, if not with many
    most_features: float = np.inf  #: features beyond which it does not take part by itself

    def __init__(self, name: str, **settings: Any) -> None:
        self.name = name
        vars(self).update(settings)

    def takes_part(self, n: int, d: int, k: int) -> bool:
        """Whether ``members="auto"`` uses this member for a fold of n training rows, d features and k classes."""
        return d <= self.most_features

    @abstractmethod
    def fit(self, task: Task) -> Self:
        """Learn from the rows of ``task``. Ctrl-C raises KeyboardInterrupt."""

    @abstractmethod
    def log_posteriors(self, X: Any) -> FloatArray:
        """Logarithms of the posteriors, (n, K), at the priors of the training rows; finite."""

    @abstractmethod
    def export(self) -> Tree:
        """What was learned, enough for :meth:`restore`."""

    @abstractmethod
    def restore(self, tree: Tree, shape: tuple[int, ...], n_classes: int) -> Self:
        """Become the member that ``export`` described; raises ValueError, KeyError or TypeError on what does not fit.

        The tree may come from a hostile file: shapes, dtypes, indices and finiteness are checked against the ``shape``
        of rows and ``n_classes`` before anything is computed or allocated from them.
        """


class ArrayMember(Member):
    """A member that is a few arrays and numbers: it says how to learn them, and how to score rows with them.

    A file holds the attributes that are declared as ``Annotated[array type, "u1|u2 n d"]``, with dtypes and sizes (d
    features, K classes, other letters for any size that is alike), or as ``Annotated[float, least, largest]``.
    """

    @abstractmethod
    def learn(self, task: Task) -> None:
        """Set the attributes."""

    @abstractmethod
    def score(self, x: Float32) -> FloatArray:
        """:meth:`log_posteriors` of as many rows as fit into memory."""

    @property
    @abstractmethod
    def row_numbers(self) -> int:
        """Numbers that :meth:`score` handles at once for every row."""

    def check(self, n_features: int, n_classes: int) -> None:
        """Refuse what arrays of the right dtypes and shapes can still get wrong."""

    def known_sizes(self, n_features: int, n_classes: int) -> dict[str, int]:
        return {"d": n_features, "K": n_classes}

    def fit(self, task: Task) -> Self:
        with one_thread():
            self.learn(task)
        return self

    def log_posteriors(self, X: Any) -> FloatArray:
        with one_thread():
            return by_blocks(self.score, X, self.row_numbers)

    def stored(self) -> dict[str, tuple[Any, ...]]:
        hints = get_type_hints(type(self), include_extras=True).items()
        return {name: hint.__metadata__ for name, hint in hints if hasattr(hint, "__metadata__")}

    def export(self) -> Tree:
        return {name: getattr(self, name) for name in self.stored()}

    def restore(self, tree: Tree, shape: tuple[int, ...], n_classes: int) -> Self:
        d = math.prod(shape)
        sizes = self.known_sizes(d, n_classes)
        for name, (form, *limits) in self.stored().items():
            if limits:
                setattr(
                    self,
                    name,
                    type(form)(check_between(tree[name], form, limits[0], name, closed=True)),
                )
                continue
            dtypes, *letters = form.split()
            wanted = tuple(
                sizes.get(letter) if letter.isalpha() else int(letter) for letter in letters
            )
            setattr(self, name, checked(tree, name, dtypes.split("|"), wanted))
            sizes |= dict(zip(letters, tree[name].shape, strict=True))
        self.check(d, n_classes)
        return self


class Foreign(Member):
    """A clone of ``estimator``, a scikit-learn classifier that must have ``predict_proba``."""

    estimator: Any

    def __init__(self, name: str, estimator: Any) -> None:
        if not hasattr(estimator, "fit") or not hasattr(estimator, "predict_proba"):
            said = f"member {name!r} must be a classifier with fit and predict_proba, got {type(estimator).__name__}"
            raise ValueError(f"{said} (probability=True, or CalibratedClassifierCV around it?)")
        super().__init__(name, estimator=estimator)

    def fit(self, task: Task) -> Self:
        self.fitted = clone(self.estimator)
        if self.fitted.get_params().get("random_state", 0) is None:
            self.fitted.set_params(random_state=int(task.seed) % 2**31)
        options = {} if task.sample_weight is None else {"sample_weight": task.sample_weight}
        if options and "sample_weight" not in signature(self.fitted.fit).parameters:
            said = f"member {self.name!r} ({type(self.fitted).__name__}) cannot use sample_weight:"
            raise ValueError(f"{said} leave it out of members, or fit without weights")
        self.fitted.fit(np.asarray(task.X), task.codes, **options)
        self.priors = task.priors
        return self

    def log_posteriors(self, X: Any) -> FloatArray:
        p = np.zeros((len(X), len(self.priors)))
        p[:, np.asarray(self.fitted.classes_, dtype=np.intp)] = self.fitted.predict_proba(
            np.asarray(X)
        )
        if not np.isfinite(p).all():
            raise ValueError(
                f"member {self.name!r} gives posteriors that are not finite: leave it out of members"
            )
        p = (p + PRIOR_SHARE * self.priors) / (p.sum(axis=1, keepdims=True) + PRIOR_SHARE)
        return np.asarray(np.maximum(np.log(p), LOG_FLOOR))

    def export(self) -> Tree:
        said = f"member {self.name!r} is a {type(self.fitted).__name__}, which cannot be saved without pickle:"
        raise ValueError(f"{said} save the whole model with joblib.dump, or leave this member out")

    def restore(self, tree: Tree, shape: tuple[int, ...], n_classes: int) -> Self:
        raise ValueError("a file cannot hold a member made from another classifier")


def log_softmax(logits: npt.NDArray[Any]) -> FloatArray:
    """Normalised logarithms of posteriors, float64 and at least :data:`LOG_FLOOR`."""
    z = np.asarray(logits, dtype=np.float64)
    z = z - z.max(axis=1, keepdims=True)
    z -= np.log(np.exp(z).sum(axis=1, keepdims=True))
    return np.asarray(np.maximum(z, LOG_FLOOR))


def log_shares(counts: FloatArray) -> FloatArray:
    """Logarithms of the shares of every row's sum, at least :data:`LOG_FLOOR`."""
    return np.asarray(np.maximum(np.log(counts / counts.sum(axis=1, keepdims=True)), LOG_FLOOR))


def by_blocks(score: Callable[[Float32], FloatArray], X: Any, row_numbers: float) -> FloatArray:
    """``score`` of all rows, as many at once as :data:`BLOCK_NUMBERS` allows."""
    parts = blocks(len(X), row_numbers, BLOCK_NUMBERS)
    return np.concatenate([score(np.asarray(X[rows], dtype=np.float32)) for rows in parts])


def checked(
    tree: Tree, name: str, dtypes: Sequence[Any], shape: tuple[int | None, ...]
) -> npt.NDArray[Any]:
    """The array ``name`` of an export, refused unless dtype, shape (None: any length) and numbers are as expected."""
    array = tree[name]
    if not isinstance(array, np.ndarray) or array.dtype not in [
        np.dtype(dtype) for dtype in dtypes
    ]:
        raise ValueError(
            f"{name} must be an array of dtype {' or '.join(np.dtype(t).name for t in dtypes)}"
        )
    if array.ndim != len(shape) or any(
        want not in (None, got) for want, got in zip(shape, array.shape, strict=True)
    ):
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    # nan is below nothing; half precision is widened, or the bound itself would become infinite there
    if array.dtype.kind == "f" and not bool(
        (np.abs(array, dtype=np.result_type(array, "f4")) <= LARGEST_NUMBER).all()
    ):
        raise ValueError(f"{name} must hold finite numbers of at most {LARGEST_NUMBER:g}")
    return array
