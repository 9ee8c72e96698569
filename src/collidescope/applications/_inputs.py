"""What the applications share: arguments as arrays, means and tests over rows, and results that print themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import stdtr, stdtrit
from scipy.stats import binomtest, false_discovery_control

from collidescope import _checks as check
from collidescope._checks import Array, ArrayLike, FloatArray, Given, IntArray
from collidescope._rows import row_hashes
from collidescope._text import words_html
from collidescope.matrix import CollisionMatrix, largest_pairs

Names = Sequence[Any] | Array | None
#: Posteriors of n rows (n×K), class numbers of their labels (if any), names of the classes, notes for the user.
Scored = tuple[FloatArray, Any, Array, tuple[str, ...]]
Rows = tuple[int | None, int | None]
MATRICES = (
    "matrix",
    "matrices",
    "source",
)  #: parts of a result that have file formats of their own
AS_NUMBERS = "{:.4f}".format


class Told(ABC):
    """Base of results: a verdict and notes in words, a table, JSON, HTML, a section of the report.

    Results are frozen dataclasses with a ``verdict``. A class says its ``title``, the attribute that is its ``table``,
    how many ``rows`` of it are shown (as text, elsewhere; None for all), and columns ``hidden`` from people.
    """

    notes: tuple[str, ...] = ()
    TITLE: ClassVar[str]
    TABLE: ClassVar[str]
    ROWS: ClassVar[Rows]
    HIDDEN: ClassVar[tuple[str, ...]]

    def __init_subclass__(
        cls,
        title: str,
        table: str = "table",
        rows: Rows = (None, None),
        hidden: tuple[str, ...] = (),
    ) -> None:
        cls.TITLE, cls.TABLE, cls.ROWS, cls.HIDDEN = title, table, rows, hidden

    @property
    @abstractmethod
    def verdict(self) -> str:
        """The answer in words."""

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and text, which JSON can hold; collision matrices are left out."""
        names = [f.name for f in fields(self) if f.name[0] != "_" and f.name not in MATRICES]  # type: ignore[arg-type]
        return {"verdict": self.verdict} | {name: plain(getattr(self, name)) for name in names}

    def section(self) -> dict[str, Any]:
        """For ``sections=`` of :func:`~collidescope.report`: title, sentences, table."""
        return section(self.TITLE, [self.verdict, *self.notes], self._shown(self.ROWS[1]))

    def _shown(self, most: int | None) -> pd.DataFrame:
        table: pd.DataFrame = getattr(self, self.TABLE)
        return table.drop(columns=list(self.HIDDEN)).dropna(axis=1, how="all")[:most]

    def __str__(self) -> str:
        shown = self._shown(self.ROWS[0])
        table = (
            ["", shown.to_string(index=False, float_format=AS_NUMBERS, na_rep="")]
            if len(shown)
            else []
        )
        return "\n".join([self.verdict, *self.notes, *table])

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.verdict}>"

    def _repr_html_(self) -> str:
        table = self._shown(self.ROWS[1]).to_html(index=False, float_format=AS_NUMBERS, na_rep="")
        return words_html(self.verdict, *self.notes) + table


def section(title: str, sentences: list[str], table: pd.DataFrame) -> dict[str, Any]:
    """A part of the report from words and a table."""
    said = {True: "yes", False: ""}
    shown = table.assign(**{str(c): table[c].map(said) for c in table.select_dtypes("bool")})
    rows = [list(row.values()) for row in plain(shown)]
    columns = [str(name).replace("_", " ") for name in table.columns]
    return {
        "title": title,
        "sentences": sentences,
        "table": {"columns": columns, "rows": rows} if rows else None,
    }


def plain(value: Any) -> Any:
    """Arrays and tables as lists; None for what is missing."""
    if isinstance(value, pd.DataFrame):
        value = (value if value.index.name is None else value.reset_index()).to_dict("records")
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and np.isnan(value) else value


def scored(
    source: Any, X: Any, y: Given, classes: Names, name: str = "P", y_name: str = "y"
) -> Scored:
    """Arguments as arrays, from posteriors or a fitted classifier and rows; ``name`` and ``y_name`` are for messages.

    Rows that a ``CollisionClassifier`` was trained on are recognised by their hashes (``row_hashes_``) and get their
    held-out ``posteriors_``: its own predictions agree with labels that it has seen.
    """
    if isinstance(source, type):
        raise ValueError(
            f"{name} must be a fitted classifier or posteriors, got the class {source.__name__}"
        )
    if not hasattr(source, "predict_proba"):
        return *check.labelled_posteriors(source, y, classes, name=name, y_name=y_name), ()
    kind = type(source).__name__
    if not hasattr(source, "classes_"):
        raise ValueError(f"{name} must be fitted, {kind} has no classes_: call fit first")
    if X is None:
        raise ValueError(
            f"X is needed: {name} is a classifier ({kind}), or pass held-out posteriors instead"
        )
    names = check.check_classes(source.classes_)
    if classes is not None and check.check_classes(classes, len(names)).tolist() != names.tolist():
        raise ValueError(
            f"classes must be left out or equal those of {name}: it knows {names.tolist()}"
        )
    P = check.check_posteriors(source.predict_proba(X), f"predict_proba of {name}", len(names))
    codes = None if y is None else check.encode_labels(y, names, y_name)
    if codes is not None:
        check.check_same_length(P, codes, f"the posteriors and {y_name}")
    known, trained = getattr(source, "posteriors_", None), getattr(source, "row_hashes_", None)
    if known is None or trained is None:
        return P, codes, names, ()
    # A row that stands in the training rows several times gets the mean of their held-out posteriors.
    means = pd.DataFrame(known).groupby(trained).mean().dropna()
    place = means.index.get_indexer(
        pd.Index(row_hashes(source.encode(X) if hasattr(source, "encode") else X))
    )
    seen = place >= 0
    said = f"{int(seen.sum()):,} of {len(P):,} rows are training rows of the model"
    said += ": their held-out posteriors are used in place of its predictions."
    return (
        np.where(seen[:, None], means.to_numpy()[place], P),
        codes,
        names,
        (said,) if seen.any() else (),
    )


def curve_of(
    source: Any, y: Any, classes: Names, by_size: Mapping[int, ArrayLike] | None
) -> tuple[Scored, dict[int, FloatArray]]:
    """(arguments as arrays, posteriors of the same rows by training size), from posteriors or a fitted classifier."""
    if hasattr(source, "predict_proba"):
        if not hasattr(source, "posteriors_"):
            kind = type(source).__name__
            raise ValueError(
                f"P must be held-out posteriors or a fitted CollisionClassifier, got {kind}"
            )
        known = getattr(source, "posteriors_by_size_", {})
        by_size = by_size or (
            known if len(known) >= 3 else None
        )  # too few rows for a curve: no reason to refuse
        y, classes = getattr(source, "labels_", None) if y is None else y, source.classes_
        source = source.posteriors_
    if y is None:
        raise ValueError("y is needed: pass the labels of the rows of P")
    found, given = scored(source, None, y, classes), by_size or {}
    sizes = sorted(check.check_count(size, "posteriors_by_size") for size in given)
    if given and len(sizes) < 3:
        raise ValueError(f"posteriors_by_size must have 3 training sizes or more, got {sizes}")
    n, k = found[0].shape
    curves = {
        size: check.check_posteriors(given[size], f"posteriors_by_size[{size}]", k)
        for size in sizes
    }
    if odd := [size for size, P in curves.items() if len(P) != n]:
        raise ValueError(
            f"posteriors_by_size[{odd[0]}] must have the {n} rows of P, got {len(curves[odd[0]])}"
        )
    return found, curves


def check_matrix(cm: object, name: str = "cm") -> None:
    """Refuse what is not a collision matrix."""
    if not isinstance(cm, CollisionMatrix):
        hint = "write CollisionMatrix(S), or take the collision_matrix_ of a fitted classifier"
        raise ValueError(f"{name} must be a CollisionMatrix, got {type(cm).__name__}: {hint}")


def is_table(values: Any) -> bool:
    """Has it two dimensions, as posteriors have and labels have not? Lists of different lengths have neither."""
    try:
        return np.ndim(values) == 2
    except ValueError:
        return False


def group_codes(groups: Any, n: int, name: str = "groups") -> tuple[IntArray, Array]:
    """(group number of every row, names of the groups); text, numbers or any mixture of them."""
    given = check.one_each(check.check_labels(groups, name), n, name).astype(object)
    try:
        codes, names = pd.factorize(given, sort=True)
    except TypeError:  # mixed types have no order: that of their first rows
        codes, names = pd.factorize(given)
    return codes.astype(np.intp), names


def residuals(P: FloatArray, codes: IntArray) -> FloatArray:
    """R = c - p of every row. PBER = mean Σ_k r_k², and B[i, j] = -mean(r_i r_j) for i ≠ j (one-step estimates)."""
    r = -P
    r[np.arange(len(P)), codes] += 1.0
    return np.asarray(r)


class Mean(NamedTuple):
    """Means, their standard errors and degrees of freedom."""

    value: Any
    stderr: Any
    df: Any

    def interval(self, level: float) -> tuple[Any, Any]:
        half = stdtrit(self.df, (1 + level) / 2) * self.stderr
        return self.value - half, self.value + half

    def columns(self, name: str, level: float, before: str = "") -> dict[str, Any]:
        """The means and the ends of their intervals by the names of their columns."""
        return dict(
            zip(
                (name, f"{before}low", f"{before}high"),
                (self.value, *self.interval(level)),
                strict=True,
            )
        )

    def p_value(self, sides: int = 2) -> Any:
        """Of zero, or with one side of "not above zero"."""
        value = np.abs(self.value) if sides == 2 else self.value
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.stderr > 0, sides * stdtr(self.df, -value / self.stderr), 1.0)

    def minus(self, other: Mean, n: float, m: float) -> Mean:
        """The difference to independent means (Welch), of n rows and of m.

        No error is below what the rows of the other would give so many: few rows without a single collision of some
        rare kind show no variance, and know nothing about it.
        """
        a = np.maximum(self.stderr, other.stderr * np.sqrt(m / n)) ** 2
        b = np.maximum(other.stderr, self.stderr * np.sqrt(n / m)) ** 2
        with np.errstate(invalid="ignore"):
            df = np.where(a + b > 0, (a + b) ** 2 / (a**2 / self.df + b**2 / other.df), 1.0)
        return Mean(self.value - other.value, np.sqrt(a + b), df)


def mean_and_error(values: FloatArray, clusters: IntArray | None = None) -> Mean:
    """Mean over rows (first axis); with ``clusters``, the variance of cluster sums (Liang and Zeger, G / (G - 1))."""
    n, mean = len(values), values.mean(axis=0)
    if clusters is None:
        stderr = values.std(axis=0, ddof=1) / np.sqrt(n) if n > 1 else np.full_like(mean, np.nan)
        return Mean(mean, stderr, max(n - 1, 1))
    _, own = np.unique(clusters, return_inverse=True)
    total = np.zeros((own.max() + 1, *values.shape[1:]))
    np.add.at(total, own, values - mean)
    g = len(total)
    return Mean(mean, np.sqrt((total**2).sum(axis=0) * g / max(g - 1, 1)) / n, max(g - 1, 1))


def largest_collisions(r: FloatArray, most: int = 20) -> tuple[IntArray, IntArray]:
    """Classes i, j of the pairs with the largest rates 2 B[i, j]; those of all pairs sum to the PBER."""
    B = np.maximum(-(r.T @ r), 0.0)
    np.fill_diagonal(B, 0.0)
    return largest_pairs(B, most)


def loss_and_rates(r: FloatArray, pairs: tuple[IntArray, IntArray]) -> FloatArray:
    """What PBER and the rates of pairs are means of, one column each."""
    i, j = pairs
    return np.column_stack([(r**2).sum(axis=1), -2 * r[:, i] * r[:, j]])


def flagged(
    table: pd.DataFrame, fdr: float, by: str = "difference", key: Any = abs
) -> pd.DataFrame:
    """The table with ``flagged`` for the p-values that count; largest effects first."""
    table = table.assign(flagged=discovered(table["p_value"], fdr))
    return table.sort_values(by, key=key, ascending=False, kind="stable", ignore_index=True)


def discovered(p_values: Any, fdr: float) -> npt.NDArray[np.bool_]:
    """Which p-values count at this false discovery rate (Benjamini and Hochberg)."""
    return (
        np.asarray(false_discovery_control(p_values) <= fdr)
        if len(p_values)
        else np.zeros(0, dtype=bool)
    )


def wilson_interval(count: Any, n: Any, level: float) -> tuple[float, float]:
    """Wilson's interval for a share: right for small counts too."""
    interval = binomtest(int(count), int(n)).proportion_ci(level, method="wilson")
    return float(interval.low), float(interval.high)


def check_rates(**rates: float) -> None:
    """Levels and error rates are numbers between 0 and 1."""
    for name, value in rates.items():
        check.check_between(value, 0, 1, name)
