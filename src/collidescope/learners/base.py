"""What a member of the pool is: a way to learn posteriors p(class | x) from labelled rows.

A :class:`Member` is a recipe: a frozen dataclass of settings. Its ``fit(task)`` returns a
:class:`Fitted`: a frozen dataclass of arrays and numbers with ``log_posteriors(X)``, which
:mod:`collidescope._saving` writes to a file and reads again without running code.

Shapes: n rows, d features, K classes. Members for tables get standardised float32 rows of shape
(n, d); a member for images (``images = True``) gets rows of shape (n, channels, height, width).
Nothing here needs torch.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from collidescope._checks import FloatArray as FloatArray
from collidescope._checks import IntArray
from collidescope._saving import LARGEST_NUMBER as LARGEST_NUMBER
from collidescope._saving import NOT_SAVED, TYPE, from_tree, to_tree
from collidescope._scaling import blocks
from collidescope._store import Tree as Tree
from collidescope._threads import one_thread

Float32 = npt.NDArray[np.float32]

#: Log posteriors are not lower: below lies float32 rounding, and pools must add them.
LOG_FLOOR = -20.0
#: Scales, where products or squares of inputs are taken: one outlier would rule the fit.
LARGEST_INPUT = 8.0
#: numbers in a block of intermediate results (32 MB in float32)
BLOCK_NUMBERS = 8_000_000


@dataclass(frozen=True)
class Task:
    """What a member is asked to learn, and how it may go about it."""

    #: (n, d) float32, standardised: median 0, interquartile range that of a standard normal
    X: Any
    codes: IntArray  #: n class numbers 0 … K-1; every class occurs
    n_classes: int
    sample_weight: FloatArray | None = None  #: n weights with mean 1
    #: n group numbers; rows of one stay on one side of a member's splits
    groups: IntArray | None = None
    #: Scales before standardising, in units of their median: ``X * spread`` has a common unit, as
    #: distances may prefer.
    spread: FloatArray | None = None
    seed: int = 0
    #: Of networks: torch's device, settings (:class:`collidescope.training.config.TrainingConfig`),
    #: who is told of every epoch's ``{"name", "epoch", "max_epochs", "val_loss"}``, and where
    #: epochs are saved and resumed from.
    device: str = "cpu"
    training: Mapping[str, Any] | None = None
    report: Callable[[dict[str, Any]], None] | None = None
    checkpoint: Path | None = None
    #: The task of all training rows of the first fold, unless this is it. What is chosen from them
    #: is the same in every fold and at every size, and ``memory`` keeps it for the others.
    first: Callable[[], Task] | None = None
    memory: dict[str, Any] = field(default_factory=dict)

    @property
    def weights(self) -> FloatArray:
        if self.sample_weight is None:
            return np.ones(len(self.codes))
        return double(self.sample_weight)

    @property
    def priors(self) -> FloatArray:
        """Weighted shares of the classes; half a row is added to each, so that logarithms exist."""
        counts = class_weights(self.codes, self.weights, self.n_classes)
        shares = counts + 0.5
        return double(shares / shares.sum())

    def sample(
        self,
        rows: int,
        numbers: int | None = None,
        generator: np.random.Generator | None = None,
    ) -> tuple[Float32, IntArray, FloatArray]:
        """(X, codes, weights) of at most so many rows with a weight, and numbers in them."""
        most = rows
        if numbers is not None:
            d = self.X.shape[1]
            affordable = max(numbers // d, 1)
            most = min(rows, affordable)
        if generator is None:
            generator = np.random.default_rng(self.seed)
        w = self.weights
        used = np.flatnonzero(w > 0)
        chosen = some(used, most, generator)
        return (
            single(self.X[chosen]),
            self.codes[chosen],
            w[chosen],
        )

    def rows(self, chosen: IntArray) -> Task:
        """The task of learning from these rows alone."""
        groups = self.groups
        if groups is not None:
            groups = groups[chosen]
        weights = self.sample_weight
        if weights is not None:
            weights = weights[chosen]
        return replace(
            self,
            X=single(self.X[chosen]),
            codes=self.codes[chosen],
            sample_weight=weights,
            groups=groups,
            first=None,
        )

    def scales(self, most_rows: int = 20_000, largest: float = 1e4) -> list[Float32]:
        """Factors of the features, of which one is chosen: 1, for deviation 1, as in the data."""
        rows = double(self.X[:most_rows])
        sd = rows.std(axis=0)
        varies = sd > 0
        as_given = np.ones(len(sd))
        to_one = np.where(varies, 1 / np.maximum(sd, 1e-6), 0.0)
        found = [as_given, to_one]
        if self.spread is not None:
            as_measured = double(self.spread)
            found.append(as_measured)
        kept: list[Float32] = []
        for factors in found:
            in_use = (factors > 0) & varies
            if not in_use.any():
                continue
            if any(_same_scale(factors, own, varies) for own in kept):
                continue
            median = np.median(factors[in_use])
            unit = factors / median
            clipped = np.clip(unit, 0, largest)
            kept.append(single(clipped))
        return kept or [single(as_given)]

    def inner_parts(self, n_parts: int, seed: int) -> IntArray:
        """The part 0 … n_parts-1 in which each row is held out; -1 for rows always trained on.

        Parts are stratified by class and keep the rows of a group together. The only row of a
        class is trained on.
        """
        if self.groups is not None:
            return self._grouped_parts(self.groups, n_parts, seed)
        part = np.full(len(self.codes), -1)
        sizes = np.bincount(self.codes)
        own_size = sizes[self.codes]
        dealt = np.flatnonzero(own_size > 1)
        # Shuffled, then sorted by class: dealing the rows out in turn gives each part its share of
        # every class.
        generator = np.random.default_rng(seed)
        shuffled = generator.permutation(dealt)
        classes = self.codes[shuffled]
        by_class = np.argsort(classes, kind="stable")
        order = shuffled[by_class]
        n = len(order)
        n_parts = max(2, min(n_parts, n // 2))
        part[order] = np.arange(n) % n_parts
        return part

    def _grouped_parts(self, groups: IntArray, n_parts: int, seed: int) -> IntArray:
        from sklearn.model_selection import StratifiedGroupKFold

        part = np.full(len(self.codes), -1)
        n_groups = len(np.unique(groups))
        if n_groups < 2:
            return part
        folds = StratifiedGroupKFold(
            min(n_parts, n_groups),
            shuffle=True,
            random_state=seed % 2**32,
        )
        no_classes = np.zeros(len(part))
        splits = folds.split(part, no_classes, groups)
        for number, (_, held_out) in enumerate(splits):
            part[held_out] = number
        return part


def _same_scale(
    factors: FloatArray, other: Float32, varies: npt.NDArray[np.bool_]
) -> bool:
    """Whether they agree but for a common factor: then they give the same neighbours."""
    divisor = np.maximum(other[varies], 1e-6)
    return bool(np.ptp(factors[varies] / divisor) < 0.1)


def some(rows: IntArray, most: int, generator: np.random.Generator) -> IntArray:
    """At most so many of the rows, in order."""
    if len(rows) <= most:
        return rows
    chosen = generator.choice(rows, most, replace=False)
    return np.sort(chosen)


@dataclass(frozen=True)
class Fitted(ABC):
    """What a member has learned. A file holds its fields: see :mod:`collidescope._saving`.

    ``d`` and ``K`` are the numbers of features and classes in the shapes of its arrays.
    """

    name: str  #: of the member

    images: ClassVar[bool] = False  #: whether rows are images

    @abstractmethod
    def log_posteriors(self, X: Any) -> FloatArray:
        """Logarithms of the posteriors, (n, K), at the priors of the training rows; finite."""

    @classmethod
    def saved_class(cls, tree: Mapping[str, Any]) -> type[Fitted]:
        """The class of the fitted member that a tree describes, by the name of the member."""
        from collidescope.learners import fitted_class

        return fitted_class(tree.get("name"))

    def export(self) -> Tree:
        """What was learned, enough for :meth:`Member.restore`."""
        tree: Tree = to_tree(self)
        del tree[TYPE]
        return tree


@dataclass(frozen=True)
class Member(ABC):
    """A way to learn posteriors: settings, registered by name in :mod:`collidescope.learners`."""

    name: str
    #: beyond, it does not take part by itself
    most_features: float = field(default=math.inf, kw_only=True)

    images: ClassVar[bool] = False  #: whether rows are images
    #: so few parameters that it may be best with few rows, if not with many
    simple: ClassVar[bool] = False
    #: of a fixed form, however many the rows, so that it is soon done learning; networks are not:
    #: what they learn becomes finer with more rows, as with trees
    parametric: ClassVar[bool] = False
    knows_cost: ClassVar[bool] = True  #: whether :meth:`cost` is more than a guess
    learned: ClassVar[type[Fitted]]  #: what :meth:`fit` returns

    def takes_part(self, n: int, d: int, k: int) -> bool:
        """Whether ``members="auto"`` trains this member on n rows of d features and k classes."""
        return d <= self.most_features

    @abstractmethod
    def cost(self, n: int, d: int, k: int) -> float:
        """About the processor seconds of a fit: counted from the sizes, the same everywhere."""

    def cost_once(self, n: int, d: int, k: int) -> float:
        """The cost of what is chosen once for all folds and sizes, in the same seconds."""
        return 0.0

    @abstractmethod
    def fit(self, task: Task) -> Fitted:
        """Learn from the rows of ``task``. Ctrl-C raises KeyboardInterrupt."""

    def restore(self, tree: Tree, shape: tuple[int, ...], n_classes: int) -> Fitted:
        """The inverse of :meth:`Fitted.export`; raises ValueError on what does not fit.

        The tree may come from a hostile file. It is compared with the ``shape`` of rows and
        ``n_classes`` before anything is computed or allocated from it.
        """
        fields = dict(tree) | {TYPE: self.learned.__name__}
        sizes = {"d": math.prod(shape), "K": n_classes}
        return from_tree(self.learned, fields, sizes, self.unsaved_values(shape))

    def unsaved_values(self, shape: tuple[int, ...]) -> dict[str, Any]:
        """Values of the unsaved fields of what was learned."""
        return {}


class ArrayMember(Member):
    """A member that learns a few arrays and numbers, with one thread."""

    def fit(self, task: Task) -> Fitted:
        with one_thread():
            return self.learn(task)

    @abstractmethod
    def learn(self, task: Task) -> FittedArrays:
        """:meth:`fit`, with one thread."""


class FittedArrays(Fitted):
    """A few arrays and numbers, with which blocks of rows are scored."""

    @abstractmethod
    def score(self, x: Float32) -> FloatArray:
        """:meth:`log_posteriors` of as many rows as fit into memory."""

    @property
    @abstractmethod
    def row_numbers(self) -> int:
        """Numbers that :meth:`score` handles at once for every row."""

    def log_posteriors(self, X: Any) -> FloatArray:
        with one_thread():
            return by_blocks(self.score, X, self.row_numbers)


@dataclass(frozen=True)
class FittedForeign(Fitted):
    """A fitted classifier of scikit-learn."""

    fitted: Any = field(metadata=NOT_SAVED)
    priors: FloatArray = field(metadata=NOT_SAVED)

    def log_posteriors(self, X: Any) -> FloatArray:
        rows = np.asarray(X)
        n_classes = len(self.priors)
        p = np.zeros((len(rows), n_classes))
        known = np.asarray(self.fitted.classes_)
        p[:, known.astype(np.intp)] = self.fitted.predict_proba(rows)
        if not np.isfinite(p).all():
            said = f"member {self.name!r} gives posteriors that are not finite"
            raise ValueError(f"{said}: leave it out of members")
        share = 1e-3  # rows' worth of the priors in every posterior: no log of zero
        total = p.sum(axis=1, keepdims=True)
        counts = p + share * self.priors
        shrunk = counts / (total + share)
        return floored(np.log(shrunk))

    def export(self) -> Tree:
        kind = type(self.fitted).__name__
        said = f"member {self.name!r} is a {kind}, which cannot be saved without pickle"
        hint = "save the whole model with joblib.dump, or leave this member out"
        raise ValueError(f"{said}: {hint}")


@dataclass(frozen=True)
class Foreign(Member):
    """A clone of ``estimator``, a scikit-learn classifier that must have ``predict_proba``."""

    estimator: Any

    knows_cost: ClassVar[bool] = False
    learned: ClassVar[type[Fitted]] = FittedForeign

    def __post_init__(self) -> None:
        fits = hasattr(self.estimator, "fit")
        scores = hasattr(self.estimator, "predict_proba")
        if not fits or not scores:
            kind = type(self.estimator).__name__
            raise ValueError(
                f"member {self.name!r} must be a classifier with fit and predict_proba, "
                f"got {kind} (probability=True, or CalibratedClassifierCV around it?)"
            )

    def cost(self, n: int, d: int, k: int) -> float:
        """Nothing is known of it: that of a few dozen passes over the rows."""
        return 1e-8 * n * d * k

    def fit(self, task: Task) -> FittedForeign:
        estimator = clone(self.estimator)
        settings = estimator.get_params()
        if settings.get("random_state", 0) is None:
            seed = int(task.seed) % 2**31
            estimator.set_params(random_state=seed)
        X = np.asarray(task.X)
        if task.sample_weight is None:
            estimator.fit(X, task.codes)
        elif "sample_weight" in signature(estimator.fit).parameters:
            estimator.fit(
                X,
                task.codes,
                sample_weight=task.sample_weight,
            )
        else:
            kind = type(estimator).__name__
            said = f"member {self.name!r} ({kind}) cannot use sample_weight"
            hint = "leave it out of members, or fit without weights"
            raise ValueError(f"{said}: {hint}")
        return FittedForeign(self.name, estimator, task.priors)

    def restore(self, tree: Tree, shape: tuple[int, ...], n_classes: int) -> Fitted:
        raise ValueError("a file cannot hold a member made from another classifier")


def log_softmax(logits: npt.NDArray[Any]) -> FloatArray:
    """Normalised logarithms of posteriors, float64 and at least :data:`LOG_FLOOR`."""
    z = double(logits)
    z = z - row_max(z)
    p = np.exp(z)
    z -= np.log(row_sums(p))
    return floored(z)


def row_max(values: npt.NDArray[Any], few: int = 32) -> npt.NDArray[Any]:
    """The largest number of every row, (n, 1).

    Of few columns it is found column by column: numpy's way, row by row, takes ten times as long.
    """
    n_columns = values.shape[1]
    if n_columns > few:
        return np.asarray(values.max(axis=1, keepdims=True))
    largest = values[:, :1].copy()
    for column in range(1, n_columns):
        np.maximum(largest, values[:, column, None], out=largest)
    return largest


def row_sums(values: npt.NDArray[Any], few: int = 7) -> npt.NDArray[Any]:
    """The sum of every row, (n, 1).

    Up to seven numbers numpy adds one after the other: column by column the sums are the same to
    the last bit, and take a fifth of the time.
    """
    n_columns = values.shape[1]
    if n_columns > few:
        return np.asarray(values.sum(axis=1, keepdims=True))
    total = values[:, :1].copy()
    for column in range(1, n_columns):
        total += values[:, column, None]
    return total


def log_shares(counts: FloatArray) -> FloatArray:
    """Logarithms of the shares of every row's sum, at least :data:`LOG_FLOOR`."""
    shares = counts / counts.sum(axis=1, keepdims=True)
    return floored(np.log(shares))


def floored(logs: FloatArray) -> FloatArray:
    """Logarithms of at least :data:`LOG_FLOOR`."""
    return double(np.maximum(logs, LOG_FLOOR))


def by_blocks(
    score: Callable[[Float32], FloatArray], X: Any, row_numbers: float
) -> FloatArray:
    """``score`` of all rows, as many at once as :data:`BLOCK_NUMBERS` allows."""
    found = []
    parts = blocks(len(X), row_numbers, BLOCK_NUMBERS)
    for rows in parts:
        x = single(X[rows])
        found.append(score(x))
    return np.concatenate(found)


def single(values: npt.ArrayLike) -> Float32:
    """``values`` in single precision."""
    return np.asarray(values, dtype=np.float32)


def double(values: npt.ArrayLike) -> FloatArray:
    """``values`` in double precision."""
    return np.asarray(values, dtype=np.float64)


def squared_distances(A: Float32, B: Float32) -> Float32:
    """‖a - b‖² of every pair of rows; what is rounded to less than 0 is 0."""
    squares = A @ B.T
    squares *= -2
    of_rows = np.square(A)
    of_others = np.square(B)
    squares += of_rows.sum(axis=1, keepdims=True)
    squares += of_others.sum(axis=1)
    np.maximum(squares, 0, out=squares)
    return squares


def class_weights(
    codes: IntArray, w: FloatArray | Float32, n_classes: int
) -> FloatArray:
    """(K,) weights of the rows of every class."""
    return double(np.bincount(codes, w, minlength=n_classes))


def of_class(values: FloatArray, codes: npt.NDArray[np.integer[Any]]) -> FloatArray:
    """The entry of every row's own class, of (n, K)."""
    rows = np.arange(len(values))
    own: FloatArray = values[rows, codes]
    return own
