"""A sample: rows, labels or votes, weights, groups and wanted priors, validated once.

Symbols: n rows that take part, d features, K classes. A :class:`Sample` is the first of the three
values of a fit (:class:`~collidescope.crossfit.CrossFit` and
:class:`~collidescope.estimate.Estimate` are the others); it is made by :func:`make_sample` and does
not change afterwards.

Rows reach the models of the pool standardised (:mod:`collidescope._scaling`), float32; a classifier
that is passed to :func:`~collidescope.estimate_collisions` gets them as they came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sized
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils import _safe_indexing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from collidescope import _checks as check
from collidescope._checks import Array, ArrayLike, FloatArray, Given, IntArray
from collidescope._rows import row_hashes
from collidescope._scaling import apply_scaling, fit_scaling, is_memory_map
from collidescope.onestep import is_empirical, resolve_priors

NumberArray = TypeVar("NumberArray", FloatArray, IntArray)
#: Numbers beyond which memory maps and sparse matrices are standardised batch by batch.
MAPPED_NUMBERS = 20_000_000
SPARSE_NUMBERS = 500_000_000


class Table(Protocol):
    """Rows of any kind: an array, memory map, sparse matrix, DataFrame, images."""

    @property
    def shape(self) -> Any: ...

    def __getitem__(self, rows: Any, /) -> Any: ...


class Scaling(NamedTuple):
    """Where the features lie, and how far they spread: see ``_scaling.fit_scaling``."""

    centre: FloatArray
    scale: FloatArray

    @property
    def spread(self) -> FloatArray:
        """The scale of every feature in units of their median, at most far below an overflow."""
        largest = 1e30
        positive = self.scale[self.scale > 0]
        if not len(positive):
            return np.ones_like(self.scale)
        # "lower": the mean of two of the largest numbers is infinite.
        median = np.quantile(positive, 0.5, method="lower")
        with np.errstate(over="ignore"):
            relative = self.scale / median
        return np.minimum(relative, largest)

    def standardised(self, X: Table) -> Table:
        """``X`` as float32; large memory maps and sparse matrices are standardised when read."""
        most = np.inf
        if hasattr(X, "toarray"):
            most = SPARSE_NUMBERS
        elif is_memory_map(X):
            most = MAPPED_NUMBERS
        if int(np.prod(X.shape)) <= most:
            return apply_scaling(X, self.centre, self.scale)
        from collidescope.training.rows import Rows

        return Rows(X, "cpu", (self.centre, self.scale))


class Entries(NamedTuple):
    """Labels of some rows: place among these rows, class number, weight (None: all alike).

    One entry per row; with votes one per row and class that somebody voted for, weighted by its
    share of the votes.
    """

    place: IntArray
    codes: IntArray
    weights: FloatArray | None

    @classmethod
    def of(
        cls, codes: IntArray, weights: FloatArray | None, votes: FloatArray | None
    ) -> Entries:
        if votes is None:
            return cls(np.arange(len(codes)), codes, weights)
        place, voted = np.nonzero(votes)
        totals = votes.sum(axis=1)
        counts = votes[place, voted]
        share = counts / totals[place]
        if weights is not None:
            share = share * weights[place]
        return cls(place, voted, share)

    def shares(self, n_classes: int) -> FloatArray:
        """Shares of the classes."""
        counts = np.bincount(self.codes, self.weights, n_classes)
        return np.asarray(counts / counts.sum(), dtype=np.float64)


@dataclass(frozen=True)
class Sample:
    """What a fit starts from: see :func:`make_sample`. Arrays are of the n rows that take part."""

    X: Table  #: as models see them: standardised float32 unless ``scaling`` is None
    scaling: Scaling | None
    codes: IntArray  #: class numbers; with votes of the class that got most
    classes: Array  #: K names, sorted
    weights: FloatArray | None
    votes: FloatArray | None  #: (n, K) counts
    groups: IntArray | None  #: numbers of groups of rows that belong together
    priors: FloatArray  #: of the population whose S is wanted
    shifted: bool  #: whether these are given, not the class shares of the rows
    used: IntArray  #: which rows of the call take part
    hashes: npt.NDArray[np.uint64]  #: of every row of the call
    labels: Array | None  #: of every row of the call; None with votes
    notes: tuple[str, ...] = ()

    @property
    def n_rows(self) -> int:
        return len(self.codes)

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    @property
    def in_memory(self) -> bool:
        """Whether rows are an array, not read batch by batch."""
        return isinstance(self.X, np.ndarray)

    @property
    def target(self) -> FloatArray | None:
        """The priors that posteriors are to be shifted to; None for those of the rows."""
        return self.priors if self.shifted else None

    @property
    def shares(self) -> FloatArray:
        """Class shares of the rows, at which models are trained."""
        return Entries.of(self.codes, self.weights, self.votes).shares(self.n_classes)

    def take(self, rows: IntArray) -> Any:
        """Some of the rows, as models see them."""
        if self.in_memory:
            return self.X[rows]
        if self.scaling is None:
            return _safe_indexing(self.X, rows)
        return self.X.subset(rows)  # type: ignore[attr-defined]

    def entries(self, rows: IntArray) -> Entries:
        """The labels of some rows: see :class:`Entries`."""
        return Entries.of(
            self.codes[rows], taken(self.weights, rows), taken(self.votes, rows)
        )


def taken(values: NumberArray | None, rows: IntArray) -> NumberArray | None:
    """The values of some rows; None stays None."""
    return None if values is None else values[rows]


def make_sample(
    X: Table | ArrayLike,
    y: ArrayLike,
    *,
    sample_weight: Given = None,
    groups: Given = None,
    priors: ArrayLike | str = "empirical",
    rare: str = "error",
    estimator: BaseEstimator | None = None,
    channels_first: bool = True,
) -> Sample:
    """Validate the arguments of a fit, and bring rows to a common scale.

    Parameters
    ----------
    X : (n, d) or images
    y : n labels, or n × K votes
    sample_weight, groups : (n,), optional; rows of weight 0 take no part
    priors : "empirical", "uniform" or (K,)
    rare : "error", "drop" or "merge": what happens to classes with a single row
    estimator : the estimator that learns the number and names of the features, optional
    channels_first : whether images are brought to (n, channels, height, width)

    Examples
    --------
    >>> sample = make_sample([[0.0], [1.0], [2.0], [3.0]], ["b", "a", "b", "a"])
    >>> sample.codes.tolist(), sample.classes.tolist(), sample.priors.tolist()
    ([1, 0, 1, 0], ['a', 'b'], [0.5, 0.5])
    """
    check.check_choice(rare, ["error", "drop", "merge"], "rare")
    votes, classes = as_votes(y)
    labels = y
    if votes is not None:
        labels = classes[votes.argmax(axis=1)]
    owner = estimator or BaseEstimator()
    rows, labels = validated(owner, X, labels, channels_first=channels_first)
    n = len(labels)
    weights = _checked_weights(sample_weight, n)
    units = None if groups is None else check.group_numbers(groups, n)
    used = np.arange(n)
    if weights is not None:
        used = np.flatnonzero(weights)
    notes = list[str]()
    if votes is None:
        present = check_targets(labels)
        labels, used = handle_rare(labels, used, rare, notes)
        classes = check.classes_of(labels[used])
        notes.extend(check.spelling_variants(classes))
        lost = np.setdiff1d(present, classes).tolist()
        if lost and rare == "error":
            notes.append(
                f"classes {lost} have weight 0 in every row: S is about the other "
                "classes only"
            )
    hashes = row_hashes(rows)
    if len(used) < n:
        rows = rows[used]
    scaling = Scaling(*fit_scaling(rows))
    codes = np.searchsorted(classes, labels[used])
    kept_weights = taken(weights, used)
    kept_votes = taken(votes, used)
    shares = Entries.of(codes, kept_weights, kept_votes).shares(len(classes))
    return Sample(
        X=scaling.standardised(rows),
        scaling=scaling,
        codes=codes,
        classes=classes,
        weights=kept_weights,
        votes=kept_votes,
        groups=taken(units, used),
        priors=resolve_priors(priors, shares * len(codes), classes),
        shifted=not is_empirical(priors),
        used=used,
        hashes=hashes,
        labels=labels if votes is None else None,
        notes=tuple(notes),
    )


def sample_as_given(
    X: Table | ArrayLike,
    y: ArrayLike,
    *,
    sample_weight: Given = None,
    groups: Given = None,
    priors: ArrayLike | str = "empirical",
) -> Sample:
    """The sample of a classifier that takes any rows as they are, unscaled and without weights.

    Rows of weight 0 stay: they are trained on, and count for nothing in S.
    """
    labels = check.check_labels(y)
    classes = check_targets(labels)
    codes = check.encode_labels(labels, classes)
    weights = check.unit_weights(check.check_weights(sample_weight, len(labels)))
    wanted = resolve_priors(priors, np.bincount(codes, weights, len(classes)), classes)
    units = None if groups is None else check.group_numbers(groups, len(labels))
    check_rows(X, labels)
    rows = np.arange(len(labels))
    return Sample(
        X=_indexable(X),
        scaling=None,
        codes=codes,
        classes=classes,
        weights=None if sample_weight is None else weights,
        votes=None,
        groups=units,
        priors=wanted,
        shifted=not is_empirical(priors),
        used=rows,
        hashes=np.empty(0, np.uint64),
        labels=labels,
        notes=tuple(check.spelling_variants(classes)),
    )


def _checked_weights(sample_weight: Given, n: int) -> FloatArray | None:
    if sample_weight is None:
        return None
    weights = check.unit_weights(check.check_weights(sample_weight, n))
    used = weights > 0
    # equal weights are no weights, to the last bit
    if np.ptp(weights[used]) == 0:
        return used.astype(np.float64)
    return weights


def _indexable(X: Any) -> Table:
    """Rows that have a shape: a list of texts, say, becomes an array of objects."""
    if hasattr(X, "shape"):
        table: Table = X
        return table
    rows = list(X)
    if all(np.ndim(row) == 1 for row in rows):
        return np.asarray(rows)
    array = np.empty(len(rows), dtype=object)
    for number, row in enumerate(rows):
        array[number] = row
    return array


def validated(
    estimator: BaseEstimator, X: object, *labels: ArrayLike, channels_first: bool = True
) -> Any:
    """X as an array of floats, and the labels where given: scikit-learn's checks in our words."""
    X = check.from_polars(X)
    check_table(X)
    dimensions = getattr(X, "ndim", 2)
    if isinstance(X, list):
        dimensions = dimensions_of(X)
    if channels_first and dimensions > 2:
        # Channels first, as in a saved model, before scikit-learn counts features.
        X = as_images(X if isinstance(X, np.ndarray) else np.asarray(X))
    floats: list[type[np.generic]] = [np.float64, np.float32]
    if dimensions > 2:  # pixels stay bytes until they are standardised, block by block
        floats.append(np.uint8)
    try:
        return validate_data(
            estimator,
            X,
            *map(plain_labels, labels),
            reset=bool(labels),
            ensure_min_samples=1 + len(labels),
            dtype=floats,
            accept_sparse="csr",
            allow_nd=True,
        )
    except np.exceptions.DTypePromotionError as error:
        # A column of dates beside one of numbers.
        hint = "leave dates out, or use TableClassifier, which takes them"
        raise ValueError(
            f"X must hold numbers: {error.args[0].split('. ')[0]} ({hint})"
        ) from None
    except ValueError as error:
        said = str(error)
        if said.startswith("could not convert"):
            hint = "a table with text? TableClassifier takes it"
            raise ValueError(f"X must hold numbers: {error} ({hint})") from None
        if said.startswith("Complex data"):
            raise ValueError(
                "X must hold real numbers: Complex data not supported"
            ) from None
        if "X contains NaN" in said:
            hint = "drop or fill such cells, or use TableClassifier, which takes tables with gaps"
            raise ValueError(f"Input X contains NaN: {hint}") from None
        if "y contains NaN" in said:
            check.check_labels(labels[0])  # says how many, and where the first is
        raise


def dimensions_of(X: list[Any]) -> int:
    """The number of dimensions of the array that a list makes."""
    try:
        return np.ndim(X)
    except ValueError:
        said = "X must hold rows or images of one size, got different ones"
        hint = "scale images first, as collidescope.read_images does"
        raise ValueError(f"{said}: {hint}") from None


def as_images(X: Array, most_channels: int = 4) -> Array:
    """Images as (n, channels, height, width), with channels first, last or missing before.

    >>> as_images(np.zeros((5, 8, 8))).shape, as_images(np.zeros((5, 32, 32, 3))).shape
    ((5, 1, 8, 8), (5, 3, 32, 32))
    """
    if X.ndim == 3:
        return X[:, None]
    if X.ndim == 4:
        _, second, _, last = X.shape
        if second > most_channels >= last:
            return X.transpose(0, 3, 1, 2)
    return X


def as_votes(y: ArrayLike) -> tuple[FloatArray | None, Any]:
    """(votes of every row, class names) of a table with a column per class, else (None, None)."""
    shape: tuple[int, ...] = getattr(y, "shape", ())
    if len(shape) != 2 or shape[1] < 2:
        return None, None
    votes = check.check_votes(y, "y (votes; for labels pass one column)")
    names = list(getattr(y, "columns", range(shape[1])))
    voted = votes.any(axis=0)
    if not voted.all():
        raise ValueError(
            f"y (votes) has no vote for class {names[int(voted.argmin())]!r}: leave "
            "that column out"
        )
    classes = check.check_classes(names)
    order = np.argsort(classes)
    return votes[:, order], classes[order]


def plain_labels(y: ArrayLike) -> Any:
    """Labels before scikit-learn makes text or floats of them; numbers and columns pass."""
    numbers = isinstance(y, np.ndarray) and y.dtype.kind in "biuf"
    if y is None or numbers or getattr(y, "ndim", 1) != 1:
        return y
    return check.check_labels(y)


def class_order(y: object, classes: Array) -> list[Any] | None:
    """The classes in their order, where the labels are an ordered categorical of pandas."""
    dtype: Any = getattr(y, "dtype", None)
    if not getattr(dtype, "ordered", False):
        return None
    known = classes.tolist()
    order = [name for name in dtype.categories.tolist() if name in known]
    # rare classes were joined, and have no place in the order
    return order if len(order) == len(known) else None


def check_table(X: object) -> None:
    """Refuse masked values, which scikit-learn would use, and two columns of one name."""
    if np.ma.is_masked(X):
        raise ValueError(
            "X has masked values, which would be used as if they were not masked: fill "
            "them, or drop those rows"
        )
    names = Counter(map(str, getattr(X, "columns", [])))
    repeated = [name for name, times in names.items() if times > 1]
    if repeated:
        raise ValueError(
            f"X has the column {repeated[0]!r} more than once: rename one of them"
        )


def check_targets(y: Array) -> Array:
    """The sorted distinct labels; those that scikit-learn does not take for classes are refused."""
    classes = check.classes_of(y)
    try:
        check_classification_targets(y)
    except (TypeError, ValueError) as error:
        kinds = ", ".join(sorted({type(label).__name__ for label in y[:1000].tolist()}))
        raise ValueError(
            f"y must hold classes (text, whole numbers or booleans), got {kinds}: "
            f"{error}"
        ) from None
    return classes


def check_rows(X: object, y: Sized) -> None:
    """Refuse an X that is no table, or has other rows than ``y``."""
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if isinstance(X, Sized) and not hasattr(X, "shape"):
        shape = (len(X),)
    if not shape:
        raise ValueError(
            f"X must be a table of rows, got {type(X).__name__} of shape ()"
        )
    check_table(X)
    n_rows = shape[0]
    n_labels = len(y)
    if n_rows != n_labels:
        raise ValueError(
            f"X and y must have the same number of rows, got {n_rows} and {n_labels}"
        )


def handle_rare(
    y: Array, used: IntArray, rare: str, notes: list[str], other: str = "other classes"
) -> tuple[Array, IntArray]:
    """Labels and rows in use, once ``rare`` was applied to classes with a single row."""
    names, counts = np.unique(y[used], return_counts=True)
    single = names[counts == 1]
    if not len(single) or rare == "error":
        return y, used
    shown = ", ".join(map(repr, single.tolist()[:5]))
    if len(single) > 5:
        shown += ", …"
    many = f"{len(single)} classes with a single row were"
    if len(single) == 1:
        many = "a class with a single row was"
    is_single = np.isin(y, single)
    if rare == "drop":
        notes.append(f"{many} left out: {shown}")
        return y, used[~is_single[used]]
    if len(single) == 1:
        raise ValueError(
            "rare='merge' needs two classes with a single row to join, y has one, "
            f"{shown}: rare='drop'"
        )
    if other in map(str, names):
        raise ValueError(
            f"rare='merge' makes a class {other!r}, and y has one of that name: rename it"
        )
    notes.append(f"{many} joined into {other!r}: {shown}")
    merged = y.astype(object)
    merged[is_single] = other
    return merged.astype(str), used
