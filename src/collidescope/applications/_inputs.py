"""What the applications share: arguments as arrays, means over rows, and results that print."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import EllipsisType
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import betaincinv, stdtr, stdtrit
from scipy.stats import false_discovery_control

from collidescope import _checks as check
from collidescope._checks import Array, ArrayLike, FloatArray, Given, IntArray
from collidescope._rows import row_hashes
from collidescope._text import words_html
from collidescope.equations.posterior import shift_rows
from collidescope.intervals import effective_units, interval, signed_interval
from collidescope.limit import Limit
from collidescope.matrix import UNSEEN, CollisionMatrix, largest_pairs

Names = Sequence[Any] | Array | None
Rows = tuple[int | None, int | None]
BoolArray = npt.NDArray[np.bool_]
Interval = tuple[float, float]  #: (low, high)
Ends = tuple[FloatArray, FloatArray]  #: those of several intervals, low and high
Record = dict[str, Any]  #: values by their names
Notes = tuple[str, ...]  #: for the user
Here = BoolArray | EllipsisType  #: some of the rows, or all
#: How tables are written, as text and as HTML.
AS_TEXT: Record = {
    "index": False,
    "float_format": "{:.4f}".format,
    "na_rep": "",
}


class Classifier(Protocol):
    """A fitted scikit-learn classifier that gives posteriors."""

    classes_: Array

    def predict_proba(self, X: ArrayLike) -> Array: ...


#: Posteriors (n×K), or a fitted classifier that gives them.
Source = Classifier | ArrayLike


@dataclass(frozen=True)
class Scored:
    """The arguments as arrays."""

    posteriors: FloatArray  #: n×K
    codes: Any  #: class number of every label, or None
    classes: Array  #: K names
    notes: Notes = ()  #: for the user
    clusters: IntArray | None = None  #: of every row; None where all are independent
    by_size: dict[int, FloatArray] = field(default_factory=dict)  #: of the same rows

    @property
    def labels(self) -> Array:
        """The names of the classes of the rows."""
        return self.classes[self.codes]

    @property
    def n_units(self) -> int:
        """Independent units among the rows."""
        clusters = self.clusters
        return len(self.posteriors if clusters is None else np.unique(clusters))

    @property
    def units(self) -> float:
        """Effective number of independent units among the rows."""
        if self.clusters is None:
            return float(len(self.posteriors))
        return effective_clusters(self.clusters)

    def mean(self, values: FloatArray, here: Here = ...) -> Mean:
        """The mean of values over the rows, or over some of them."""
        return mean_and_error(values[here], self._clusters(here))

    def signed_interval(
        self, mean: Mean, values: FloatArray, level: float, top: float = 1.0
    ) -> Ends:
        """Of the mean of differences between -``top`` and ``top``; they may be rare."""
        size = top * self.apart(values / top)
        grouped = self.clusters is not None
        return mean.signed_interval(size, self.units, level, top, grouped)

    def apart(self, differences: FloatArray, noticeable: float = 0.1) -> FloatArray:
        """Mean absolute value of differences up to 1; of clusters, how many have noticeable ones.

        A cluster counts in full where one of its rows differs by ``noticeable``.
        """
        sizes = np.abs(differences)
        if self.clusters is not None:
            largest = cluster_values(np.maximum, sizes, self.clusters)
            sizes = np.minimum(largest / noticeable, 1.0)
        return np.asarray(sizes.mean(axis=0))

    def part(self, here: Here) -> Scored:
        """Some of the rows."""
        return replace(
            self,
            posteriors=self.posteriors[here],
            codes=self.codes[here],
            clusters=self._clusters(here),
            by_size={size: P[here] for size, P in self.by_size.items()},
        )

    def _clusters(self, here: Here) -> IntArray | None:
        return None if self.clusters is None else self.clusters[here]


class Result(ABC):
    """Base of results: a verdict and notes in words, a table, JSON, HTML, a section of the report.

    Results are frozen dataclasses with a ``verdict``. A class says its ``title``, the attribute
    that is its ``table``, how many ``rows`` of it are shown (as text, elsewhere; None for all),
    and columns ``hidden`` from people.
    """

    notes: Notes = ()
    TITLE: ClassVar[str]
    TABLE: ClassVar[str]
    ROWS: ClassVar[Rows]
    HIDDEN: ClassVar[Notes]

    def __init_subclass__(
        cls,
        title: str,
        table: str = "table",
        rows: Rows = (None, None),
        hidden: Notes = (),
    ) -> None:
        cls.TITLE = title
        cls.TABLE = table
        cls.ROWS = rows
        cls.HIDDEN = hidden

    @property
    @abstractmethod
    def verdict(self) -> str:
        """The answer in words."""

    @property
    def _words(self) -> list[str]:
        return [self.verdict, *self.notes]

    def to_dict(self) -> Record:
        """Plain lists, numbers and text, which JSON can hold; collision matrices are left out."""
        have_own_formats = ("matrix", "matrices", "source")
        names = [part.name for part in fields(self)]  # type: ignore[arg-type]
        found = {"verdict": self.verdict}
        for name in names:
            if not name.startswith("_") and name not in have_own_formats:
                found[name] = plain(getattr(self, name))
        return found

    def section(self) -> Record:
        """For ``sections=`` of :func:`~collidescope.report`: title, sentences, table."""
        return section(self.TITLE, self._words, self._shown(self.ROWS[1]))

    def _shown(self, most: int | None) -> pd.DataFrame:
        table: pd.DataFrame = getattr(self, self.TABLE).drop(columns=list(self.HIDDEN))
        return table.dropna(axis=1, how="all")[:most]

    def __str__(self) -> str:
        shown = self._shown(self.ROWS[0])
        words = self._words
        if len(shown):
            words += ["", str(shown.to_string(**AS_TEXT))]
        return "\n".join(words)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.verdict}>"

    def _repr_html_(self) -> str:
        shown = self._shown(self.ROWS[1])
        return words_html(*self._words) + str(shown.to_html(**AS_TEXT))


def section(title: str, sentences: list[str], table: pd.DataFrame) -> Record:
    """A part of the report from words and a table."""
    shown = table.copy()
    for name in table.select_dtypes("bool"):
        shown[name] = table[name].map({True: "yes", False: ""})
    rows = [list(row.values()) for row in plain(shown)]
    contents = None
    if rows:
        columns = [str(name).replace("_", " ") for name in table.columns]
        contents = {"columns": columns, "rows": rows}
    return {"title": title, "sentences": sentences, "table": contents}


def plain(value: object) -> Any:
    """Arrays and tables as lists; None for what is missing."""
    if isinstance(value, pd.DataFrame):
        if value.index.name is not None:
            value = value.reset_index()
        value = value.to_dict("records")
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and np.isnan(value):
        return None
    return value


def scored(
    source: object,
    X: Given,
    y: Given,
    classes: Names,
    name: str = "P",
    y_name: str = "y",
    groups: Given = None,
) -> Scored:
    """Arguments as arrays, from posteriors or a fitted classifier and rows.

    ``name`` and ``y_name`` are for messages. Rows that a ``CollisionClassifier`` was trained on
    are recognised by their hashes (``row_hashes_``) and get their held-out ``posteriors_``: its
    own predictions agree with labels that it has seen.
    """
    if isinstance(source, type):
        raise ValueError(
            f"{name} must be a fitted classifier or posteriors, got the class "
            f"{source.__name__}"
        )
    notes: Notes = ()
    if not hasattr(source, "predict_proba"):
        P, codes, names = check.labelled_posteriors(
            source, y, classes, name=name, y_name=y_name
        )
    else:
        names = _classes_of_model(source, X, classes, name)
        P = check.check_posteriors(
            source.predict_proba(X), f"predict_proba of {name}", len(names)
        )
        codes = None
        if y is not None:
            codes = check.encode_labels(y, names, y_name)
            check.check_same_length(P, codes, f"the posteriors and {y_name}")
        P, notes = with_held_out(P, source, X)
        P = row_posteriors(P, source)
    return Scored(P, codes, names, notes, clusters_of(groups, len(P)))


# What applications say is about the rows at hand, each counted once. A fit may be about another
# population: with ``priors``, or with rows that stand for more of their kind.


def row_posteriors(P: FloatArray, source: object) -> FloatArray:
    """Posteriors of a fit at the class shares of its rows, for any priors of the fit."""
    own: FloatArray | None = getattr(source, "row_priors_", None)
    if own is None:
        return P
    return np.asarray(shift_rows(P, own / source.priors_))  # type: ignore[attr-defined]


def row_limit(source: object) -> Limit | None:
    """What a fit says of unlimited rows; None where that is about another population."""
    limit: Limit | None = getattr(source, "limit_", None)
    own = getattr(source, "row_priors_", None)
    if limit is None or own is None:
        return limit
    same = np.allclose(own, source.priors_)  # type: ignore[attr-defined]
    return limit if same and not _is_weighted(source) else None


def _is_weighted(source: object) -> bool:
    return getattr(source, "sample_weight_", None) is not None


def row_groups(source: object, groups: Given) -> Given:
    """Groups as given, else those of the fit whose rows are at hand."""
    known = getattr(source, "groups_", None)
    matrix = getattr(source, "collision_matrix_", None)
    if groups is None and known is None and matrix is not None and matrix.grouped:
        raise ValueError(
            "groups is needed: the fit kept groups of rows together, and its file does not "
            "hold them"
        )
    return known if groups is None else groups


def _classes_of_model(source: object, X: Given, classes: Names, name: str) -> Array:
    kind = type(source).__name__
    if not hasattr(source, "classes_"):
        raise ValueError(
            f"{name} must be fitted, {kind} has no classes_: call fit first"
        )
    if X is None:
        raise ValueError(
            f"X is needed: {name} is a classifier ({kind}), or pass held-out "
            "posteriors instead"
        )
    names = check.check_classes(source.classes_)
    known = names.tolist()
    if (
        classes is not None
        and check.check_classes(classes, len(names)).tolist() != known
    ):
        raise ValueError(
            f"classes must be left out or equal those of {name}: it knows {known}"
        )
    return names


def with_held_out(P: FloatArray, source: object, X: Given) -> tuple[FloatArray, Notes]:
    """(posteriors, held-out ones for the rows that the model was trained on; what to say of it)."""
    known = getattr(source, "posteriors_", None)
    trained = getattr(source, "row_hashes_", None)
    if known is None or trained is None:
        return P, ()
    if hasattr(source, "encode"):
        X = source.encode(X)
    rows = check.from_polars(X)
    # A row that occurs several times gets the mean of its held-out posteriors.
    means = pd.DataFrame(known).groupby(trained).mean().dropna()
    place = means.index.get_indexer(pd.Index(row_hashes(rows)))
    seen = place >= 0
    if not seen.any():
        return P, ()
    note = (
        f"{seen.sum():,} of {len(P):,} rows are training rows of the model: their held-out "
        "posteriors are used in place of its predictions."
    )
    return np.where(seen[:, None], means.to_numpy()[place], P), (note,)


def curve_of(
    source: object,
    y: Given,
    classes: Names = None,
    by_size: Mapping[int, ArrayLike] | None = None,
    groups: Given = None,
) -> Scored:
    """Labelled rows, with the posteriors of the same rows by training size."""
    if hasattr(source, "predict_proba"):
        if not (hasattr(source, "posteriors_") and hasattr(source, "classes_")):
            raise ValueError(
                "P must be held-out posteriors or a fitted CollisionClassifier, got "
                f"{type(source).__name__}"
            )
        known = getattr(source, "posteriors_by_size_", {})
        # Fewer give no curve, and are no reason to refuse.
        if not by_size and len(known) >= 3:
            by_size = known
        if y is None:
            y = getattr(source, "labels_", None)
        classes = source.classes_
        if _is_weighted(source):
            # Curves of these rows are not those of the weighted population.
            by_size = None
    if y is None:
        raise ValueError("y is needed: pass the labels of the rows of P")
    found = scored(
        getattr(source, "posteriors_", source),
        None,
        y,
        classes,
        groups=row_groups(source, groups),
    )
    curves = {
        size: row_posteriors(P, source)
        for size, P in _check_curves(by_size or {}, *found.posteriors.shape).items()
    }
    P = row_posteriors(found.posteriors, source)
    return replace(found, posteriors=P, by_size=curves)


def _check_curves(
    given: Mapping[int, ArrayLike], n: int, k: int
) -> dict[int, FloatArray]:
    sizes = sorted(check.check_count(size, "posteriors_by_size") for size in given)
    if given and len(sizes) < 3:
        raise ValueError(
            f"posteriors_by_size must have 3 training sizes or more, got {sizes}"
        )
    curves = {}
    for size in sizes:
        name = f"posteriors_by_size[{size}]"
        curves[size] = check.check_posteriors(given[size], name, k)
        if len(curves[size]) != n:
            raise ValueError(
                f"{name} must have the {n} rows of P, got {len(curves[size])}"
            )
    return curves


def check_matrix(cm: object, name: str = "cm") -> None:
    """Refuse what is not a collision matrix."""
    if not isinstance(cm, CollisionMatrix):
        raise ValueError(
            f"{name} must be a CollisionMatrix, got {type(cm).__name__}: write "
            "CollisionMatrix(S), or take the collision_matrix_ of a fitted classifier"
        )


def linear_error(v: FloatArray, covariance: FloatArray) -> float:
    """Standard error of v·B, over the upper triangle of B."""
    return float(np.sqrt(max(float(v @ covariance @ v), 0.0)))


def is_table(values: object) -> bool:
    """Does it have two dimensions, like posteriors? Lists of different lengths do not."""
    try:
        return np.ndim(values) == 2  # type: ignore[arg-type]
    except ValueError:
        return False


def group_codes(
    groups: ArrayLike, n: int, name: str = "groups"
) -> tuple[IntArray, Array]:
    """(group number of every row, names of the groups); text, numbers or a mixture of them."""
    labels = check.check_labels(groups, name)
    given = check.one_each(labels, n, name).astype(object)
    try:
        codes, names = pd.factorize(given, sort=True)
    except TypeError:  # mixed types have no order: that of their first rows
        codes, names = pd.factorize(given)
    return codes.astype(np.intp), names


def clusters_of(groups: Given, n: int) -> IntArray | None:
    """Number of the cluster of every row, or None where all rows are independent."""
    if groups is None:
        return None
    return group_codes(groups, n)[0]


def residuals(P: FloatArray, codes: IntArray) -> FloatArray:
    """R = c - p of every row.

    PBER = mean Σ_k r_k², and B[i, j] = -mean(r_i r_j) for i ≠ j (one-step estimates).
    """
    r = -P
    r[np.arange(len(P)), codes] += 1.0
    return r


class Mean(NamedTuple):
    """Means, their standard errors and degrees of freedom."""

    value: Any
    stderr: Any
    df: Any

    def interval(self, level: float) -> tuple[Any, Any]:
        half = stdtrit(self.df, (1 + level) / 2) * self.stderr
        return self.value - half, self.value + half

    def signed_interval(
        self,
        size: ArrayLike,
        units: Given,
        level: float,
        top: float = 1.0,
        grouped: bool = False,
    ) -> Ends:
        """Of differences between -``top`` and ``top``, of mean absolute ``size``.

        Never narrower than Student's.
        """
        ends = signed_interval(
            self.value, size, self.stderr, units, level, top=top, grouped=grouped
        )
        return no_narrower(ends, self.interval(level), top)

    def wider(self, n_units: Any) -> Mean:
        """Allow for one more unit of another kind: n units cannot rule out rates below 1/n."""
        return self._replace(stderr=np.hypot(self.stderr, UNSEEN / n_units))

    def p_value(self, sides: int = 2) -> Any:
        """The p-value of "zero", or with one side of "not above zero"."""
        value = np.abs(self.value) if sides == 2 else self.value
        with np.errstate(invalid="ignore", divide="ignore"):
            tail = stdtr(self.df, -value / self.stderr)
        return np.where(self.stderr > 0, sides * tail, 1.0)

    def minus(self, other: Mean, n: float, m: float) -> Mean:
        """The difference to independent means (Welch), of n rows and of m.

        No error is below what the rows of the other would give so many: few rows without a single
        collision of some rare kind show no variance, and know nothing about it.
        """
        like_other = other.stderr * np.sqrt(m / n)
        like_self = self.stderr * np.sqrt(n / m)
        own = np.maximum(self.stderr, like_other) ** 2
        theirs = np.maximum(other.stderr, like_self) ** 2
        total = own + theirs
        spread = own**2 / self.df + theirs**2 / other.df
        with np.errstate(invalid="ignore"):
            df = np.where(total > 0, total**2 / spread, 1.0)
        return Mean(self.value - other.value, np.sqrt(total), df)


def mean_and_error(values: FloatArray, clusters: Given = None) -> Mean:
    """Mean over rows (first axis); with ``clusters``, the variance of cluster sums.

    That is Liang and Zeger's, times G / (G - 1) for G clusters.
    """
    n = len(values)
    mean = values.mean(axis=0)
    if clusters is None:
        if n < 2:
            return Mean(mean, np.full_like(mean, np.nan), 1)
        return Mean(mean, values.std(axis=0, ddof=1) / np.sqrt(n), n - 1)
    sums = cluster_values(np.add, values - mean, clusters)
    n_clusters = len(sums)
    bessel = n_clusters / max(n_clusters - 1, 1)
    variance = (sums**2).sum(axis=0) * bessel
    # A few large clusters carry the variance: as many degrees of freedom.
    df = max(effective_clusters(clusters) - 1, 1.0)
    return Mean(mean, np.sqrt(variance) / n, df)


def cluster_values(
    combine: np.ufunc, values: FloatArray, clusters: ArrayLike
) -> FloatArray:
    """Sums (``np.add``) or the largest (``np.maximum``) of the rows of every cluster."""
    names, own = np.unique(clusters, return_inverse=True)
    found = np.zeros((len(names), *values.shape[1:]))
    combine.at(found, own, values)
    return found


def effective_clusters(clusters: ArrayLike) -> float:
    """How many clusters of one size would tell as much: see ``effective_units``."""
    _, sizes = np.unique(clusters, return_counts=True)
    rows = sizes.astype(np.float64)
    return float(effective_units(rows.sum(), (rows**2).sum(), (rows**3).sum()))


def no_narrower(ends: Ends, others: Ends, top: float = 1.0) -> Ends:
    """The hull of two intervals, within -``top`` and ``top``."""
    low = np.minimum(ends[0], others[0])
    high = np.maximum(ends[1], others[1])
    return np.maximum(low, -top), np.minimum(high, top)


def largest_collisions(r: FloatArray, most: int = 20) -> tuple[IntArray, IntArray]:
    """Classes i, j of the pairs with the largest rates 2 B[i, j]; all rates sum to the PBER."""
    B = np.maximum(-(r.T @ r), 0.0)
    np.fill_diagonal(B, 0.0)
    return largest_pairs(B, most)


def loss_and_rates(r: FloatArray, pairs: tuple[IntArray, IntArray]) -> FloatArray:
    """What PBER and the rates of pairs are means of, one column each."""
    i, j = pairs
    rates = -2 * r[:, i] * r[:, j]
    return np.column_stack([(r**2).sum(axis=1), rates])


def named_rates(
    classes: Array, pairs: tuple[IntArray, IntArray], **columns: FloatArray
) -> pd.DataFrame:
    """A line for the PBER, then one for each pair of classes, as in :func:`loss_and_rates`."""
    i, j = pairs
    names = {"class": ["", *classes[i]], "other": ["", *classes[j]]}
    return pd.DataFrame(names | columns)


def flagged(
    table: pd.DataFrame, fdr: float, by: str = "difference", signed: bool = False
) -> pd.DataFrame:
    """The table with ``flagged`` for the p-values that count; largest effects first."""
    table = table.assign(flagged=discovered(table["p_value"], fdr))
    effect = table[by].to_numpy(dtype=np.float64)
    order = np.argsort(-effect if signed else -np.abs(effect), kind="stable")
    return table.iloc[order].reset_index(drop=True)


def discovered(p_values: ArrayLike, fdr: float) -> BoolArray:
    """Which p-values count at this false discovery rate (Benjamini and Hochberg)."""
    given = np.asarray(p_values, dtype=np.float64)
    if not len(given):
        return np.zeros(0, dtype=bool)
    return false_discovery_control(given) <= fdr


def exact_interval(hits: IntArray, n: Any, level: float) -> Ends:
    """Clopper and Pearson's intervals for shares: they hold for small counts too."""
    misses = n - hits
    tail = (1 - level) / 2
    low = np.where(hits > 0, betaincinv(hits, misses + 1, tail), 0.0)
    return low, np.where(misses > 0, betaincinv(hits + 1, misses, 1 - tail), 1.0)


def share_interval(hits: BoolArray, rows: Scored, level: float) -> Interval:
    """Of the share of rows that are hits."""
    low, high = exact_interval(hits.sum(), len(hits), level)
    if rows.clusters is not None:
        mean, stderr, _ = rows.mean(hits.astype(np.float64))
        low, high = interval(mean, stderr, rows.units, level, grouped=True)
    return float(low), float(high)


def check_rates(**rates: float) -> None:
    """Levels and error rates are numbers between 0 and 1."""
    for name, value in rates.items():
        check.check_between(value, 0, 1, name)
