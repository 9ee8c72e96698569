"""Which column tells the classes apart, and what is it worth?

For a unit u (a column, or columns that go together) the same classifier is cross-fitted on all
columns, on all but u, and on u alone, with the same folds: PBER(all but u) - PBER(all) and
PBER(priors) - PBER(u) are means of paired differences, with the standard error of their rows.
A copy of a column makes both of them needless: columns that go together are found first and
left out together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from sklearn.base import BaseEstimator
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, VotingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import normalized_mutual_info_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.utils import _safe_indexing

from collidescope import _checks as check
from collidescope._checks import Array, ArrayLike, FloatArray, Given, IntArray
from collidescope._progress import Progress
from collidescope.applications._inputs import (
    Interval,
    Mean,
    Notes,
    Result,
    Scored,
    check_rates,
    clusters_of,
    flagged,
    largest_collisions,
    loss_and_rates,
    named_rates,
    residuals,
)
from collidescope.estimators import check_classifier, crossfit_posteriors
from collidescope.folds import resolve_splits
from collidescope.intervals import LARGEST_SCORE, score_interval
from collidescope.matrix import CollisionMatrix
from collidescope.onestep import collision_matrix_from_posteriors
from collidescope.sample import check_rows, check_targets

Units = dict[Any, list[Any]]  #: name of a unit → its columns
GivenUnits = Sequence[Any] | Mapping[str, Sequence[Any]] | None


@dataclass(frozen=True, eq=False, repr=False)
class ColumnValue(
    Result, title="Which column tells the classes apart?", hidden=("columns",)
):
    """What every column is worth, made by :func:`column_value`.

    ``table`` has one row per unit, most needed first: ``unit``, ``columns``, ``needed`` (rise of
    PBER without it) with ``low``, ``high``, ``p_value`` and ``flagged``, ``alone`` (fall of PBER
    from the priors with it alone) with ``alone_low`` and ``alone_high``, ``pber_without``, and
    with costs ``cost`` and ``per_cost`` (PBER taken off per unit of it). ``pairs`` has the same
    of the largest collisions: ``unit``, ``class``, ``other``, ``rate`` with all columns.
    ``pber``, ``pber_interval`` and ``matrix`` are with all columns, ``fits`` is the number of
    cross-fits.
    """

    table: pd.DataFrame
    pairs: pd.DataFrame
    pber: float
    pber_interval: Interval
    fits: int
    matrix: CollisionMatrix
    notes: Notes = ()

    @property
    def verdict(self) -> str:
        with_all = f"PBER {self.pber:.1%} with all columns."
        first = self.table[self.table["flagged"]].head(3)
        said = [
            f"{row['unit']} ({100 * row['needed']:+.1f} points, {100 * row['low']:.1f} to "
            f"{100 * row['high']:.1f})"
            for row in first.to_dict("records")
        ]
        if not said:
            return f"{with_all} No column is missed beyond chance when the others are there."
        return f"{with_all} It rises most without {', '.join(said)}."


@dataclass(frozen=True)
class _CrossFits:
    """One classifier, cross-fitted on some of the columns, always with the same folds."""

    clf: Any
    X: ArrayLike
    labels: Array
    columns: list[Any]
    splits: Any

    def posteriors(self, kept: Sequence[Any]) -> FloatArray:
        """Held-out posteriors; with no column the class shares of training rows."""
        model = self.clf
        places = [self.columns.index(column) for column in kept]
        if not places:
            model = DummyClassifier()
            places = [0]
        rows = _safe_indexing(self.X, places, axis=1)
        return crossfit_posteriors(model, rows, self.labels, cv=self.splits)


@dataclass(frozen=True)
class _Effects:
    """What units change: PBER and the rates of pairs of classes, row by row."""

    rows: Scored
    pairs: tuple[IntArray, IntArray]
    full: FloatArray  # residuals with all columns
    with_all: FloatArray
    with_none: FloatArray
    level: float

    def of_unit(
        self, name: Any, without: FloatArray, alone: FloatArray
    ) -> pd.DataFrame:
        """The PBER first, then the pairs; from residuals without a unit, and with it alone."""
        fall = self.with_none - loss_and_rates(alone, self.pairs)
        rise = loss_and_rates(without, self.pairs) - self.with_all
        needed = self.rows.mean(rise)
        widening = _training_widening(self.full, without, float(needed.value[0]))
        needed = needed._replace(stderr=widening * needed.stderr)
        worth = self.rows.mean(fall)
        # Rows that a column changes may be too rare to be among these.
        ends = self.rows.signed_interval(worth, fall, self.level, LARGEST_SCORE)
        low, high = self.rows.signed_interval(needed, rise, self.level, LARGEST_SCORE)
        found = named_rates(
            self.rows.classes,
            self.pairs,
            rate=self.with_all.mean(axis=0),
            needed=needed.value,
            low=low,
            high=high,
            p_value=needed.p_value(sides=1),
            alone=worth.value,
            alone_low=ends[0],
            alone_high=ends[1],
        )
        found.insert(0, "unit", name)
        return found


def column_value(
    clf: BaseEstimator | None,
    X: ArrayLike,
    y: ArrayLike,
    *,
    columns: GivenUnits = None,
    costs: Mapping[Any, float] | None = None,
    groups: Given = None,
    cv: int | Any = 5,
    budget: int = 51,
    level: float = 0.95,
    fdr: float = 0.05,
    random_state: int = 0,
    verbose: int = 0,
) -> ColumnValue:
    """How PBER and every colliding pair change without a column, and with it alone.

    Parameters
    ----------
    clf : classifier with ``predict_proba``, cross-fitted for every unit, or None
        The values hold for it. For None, and in place of a classifier of this package, logistic
        regression and gradient boosting, averaged.
    X, y : DataFrame or array of n rows, and their labels
        A column that is *offered* (known for these rows, not yet used) would take off what
        ``needed`` says.
    columns : the units, as list of names or {"lab values": ["na", "k"], …}
        By default every column, with copies as one unit.
    costs : mapping of unit or column to its cost (of a test, of a question), optional
    groups : array of n names, optional
        Rows that belong together share a fold, and intervals count groups.
    cv, random_state, verbose : folds (int or splitter), seed; 1 shows progress with the time left
    budget : int
        The most cross-fits to run, 1 + 2 for each unit: of more columns the most similar ones
        are joined.
    level, fdr : float, of the intervals; of the flags (Benjamini and Hochberg)

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 500)
    >>> X = pd.DataFrame(
    ...     {"noise": rng.standard_normal(500), "marker": y + rng.standard_normal(500)}
    ... )
    >>> column_value(LogisticRegression(), X, y).table[
    ...     ["unit", "flagged"]
    ... ].to_numpy().tolist()
    [['marker', True], ['noise', False]]
    """
    check_rates(level=level, fdr=fdr)
    check.check_count(budget, "budget", least=5)
    labels = check.check_labels(y)
    names = check_targets(labels)
    X = check.from_polars(X)
    check_rows(X, labels)
    every = _column_names(X)
    units, notes = _units(X, every, columns, (budget - 1) // 2, random_state)
    prices = unit_prices(costs, units)
    clusters = clusters_of(groups, len(labels))
    splits, _ = resolve_splits(cv, labels, names, random_state, groups=clusters)
    if clf is None or type(clf).__module__.startswith("collidescope."):
        clf = fast_member(X)
        notes.append(
            "values by a fast member (logistic regression and gradient boosting), not "
            "the full pool"
        )
    check_classifier(clf, "clf")
    codes = check.encode_labels(labels, names)
    fits = _CrossFits(clf, X, labels, every, splits)
    n_fits = 1 + 2 * len(units)
    with Progress("columns", n_fits, verbose) as progress:
        rows = Scored(fits.posteriors(every), codes, names, clusters=clusters)
        full = residuals(rows.posteriors, codes)
        colliding = largest_collisions(full, most=5)
        with_all = loss_and_rates(full, colliding)
        with_none = loss_and_rates(residuals(fits.posteriors([]), codes), colliding)
        effects = _Effects(rows, colliding, full, with_all, with_none, level)
        progress.step()
        found = []
        for name, members in units.items():
            others = [column for column in every if column not in members]
            without, alone = (
                residuals(fits.posteriors(kept), codes) for kept in (others, members)
            )
            found.append(effects.of_unit(name, without, alone))
            progress.step(2)
    pber = float(with_all[:, 0].mean())
    pairs = pd.concat([part[1:] for part in found])
    return ColumnValue(
        table=_unit_table(found, units, prices, pber, fdr),
        pairs=flagged(pairs, fdr, "needed", signed=True),
        pber=pber,
        pber_interval=_pber_interval(rows.mean(with_all[:, 0]), clusters, level),
        fits=n_fits,
        matrix=collision_matrix_from_posteriors(
            rows.posteriors, labels, classes=names, groups=clusters
        ),
        notes=tuple(notes),
    )


def _pber_interval(mean: Mean, clusters: IntArray | None, level: float) -> Interval:
    """The interval of a mean score, which holds with few errors too."""
    value = float(mean.value)
    low, high = score_interval(
        value, mean.stderr, mean.df + 1, level, grouped=clusters is not None
    )
    return low, max(min(high, 1.0), value)


def _training_widening(full: FloatArray, reduced: FloatArray, rise: float) -> float:
    """The factor on the standard error of a rise of PBER, as held-out rows also train models.

    Of E‖p - p'‖², by how much the posteriors move without the column, the rise is what the column
    tells; the rest is noise of training. That part of the difference of losses is a sum over pairs
    (held-out row, training row). Every pair occurs twice, with the roles changed, and both terms
    vary together: the variance is twice that of independent rows.
    """
    moved = float(((full - reduced) ** 2).sum(axis=1).mean())
    if moved <= 0:
        return 1.0
    return float(np.sqrt(2 - np.clip(rise / moved, 0.0, 1.0)))


def _column_names(X: ArrayLike) -> list[Any]:
    every = list(X.columns) if hasattr(X, "columns") else list(range(np.shape(X)[1]))
    if len(every) < 2:
        raise ValueError(f"X must have at least 2 columns to compare, got {len(every)}")
    return every


def _unit_table(
    found: list[pd.DataFrame],
    units: Units,
    prices: dict[Any, float],
    pber: float,
    fdr: float,
) -> pd.DataFrame:
    table = pd.concat([part[:1] for part in found], ignore_index=True)
    table = table.drop(columns=["class", "other", "rate"])
    table.insert(1, "columns", list(units.values()))
    table["pber_without"] = pber + table["needed"]
    if prices:
        table["cost"] = table["unit"].map(prices)
        table["per_cost"] = table["needed"] / table["cost"]
    return flagged(table, fdr, "needed", signed=True)


def fast_member(X: ArrayLike, max_levels: int = 20) -> BaseEstimator:
    """Logistic regression and gradient boosting, averaged, for columns of any type: seconds.

    Text columns have at most ``max_levels`` columns of their own in the linear part.
    """
    fill = SimpleImputer(strategy="median", keep_empty_features=True)
    scaled = make_pipeline(fill, StandardScaler())
    linear = LogisticRegression(max_iter=300)
    boosted = HistGradientBoostingClassifier(
        max_iter=60, early_stopping=True, random_state=0, max_leaf_nodes=15
    )
    if hasattr(X, "columns"):
        numeric = make_column_selector(dtype_include="number")
        other = make_column_selector(dtype_exclude="number")
        levels = OneHotEncoder(
            handle_unknown="infrequent_if_exist",
            max_categories=max_levels,
            sparse_output=False,
        )
        codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
        linear = make_pipeline(
            make_column_transformer((scaled, numeric), (levels, other)), linear
        )
        as_codes = make_column_transformer(("passthrough", numeric), (codes, other))
        boosted = make_pipeline(as_codes, boosted)
    else:
        linear = make_pipeline(scaled, linear)
    return VotingClassifier([("linear", linear), ("boosted", boosted)], voting="soft")


def _units(
    X: ArrayLike, every: list[Any], columns: GivenUnits, most: int, seed: int
) -> tuple[Units, list[str]]:
    """(the units, notes)."""
    if columns is None:
        return _together(X, every, most, seed)
    units = {}
    if isinstance(columns, Mapping):
        for name, part in columns.items():
            units[name] = [part] if isinstance(part, str) else list(part)
    elif isinstance(columns, str) or not isinstance(columns, Sequence | np.ndarray):
        raise ValueError(
            "columns must be a list of names or a mapping of name to list, got "
            f"{columns!r}"
        )
    else:
        units = {name: [name] for name in columns}
    if not units or not all(units.values()):
        raise ValueError("columns must not be empty")
    for part in units.values():
        for column in part:
            if column not in every:
                raise ValueError(f"columns names {column!r}, which X lacks")
    if len(units) > most:
        raise ValueError(
            f"columns has {len(units)} units, budget pays for {most}: raise it, or "
            "group some"
        )
    return units, []


def _together(
    X: ArrayLike,
    every: list[Any],
    most: int,
    seed: int,
    alike: float = 0.9,
    most_rows: int = 2000,
) -> tuple[Units, list[str]]:
    """Columns that go together as units, at most ``most`` of them; notes that say so."""
    n = np.shape(X)[0]
    rng = np.random.default_rng(seed)
    drawn = rng.choice(n, min(n, most_rows), replace=False)
    some = _safe_indexing(X, np.sort(drawn))
    association = _association(pd.DataFrame(some).reset_index(drop=True))
    distance = 1 - np.clip(association, 0, 1)
    np.fill_diagonal(distance, 0.0)
    # Complete linkage: any two columns of a unit are alike; a chain of likenesses is not enough.
    tree = linkage(squareform(distance, checks=False), "complete")
    cluster = fcluster(tree, 1 - alike, "distance")
    if cluster.max() > most:
        cluster = fcluster(tree, most, "maxclust")
    units: Units = {}
    notes = []
    for own in pd.unique(cluster):
        part = [every[place] for place in np.flatnonzero(cluster == own)]
        if len(part) == 1:
            units[part[0]] = part
            continue
        names = [str(column) for column in part]
        units[" & ".join(names)] = part
        notes.append(f"columns that go together are one unit: {', '.join(names)}")
    return units, notes


def _association(frame: pd.DataFrame) -> FloatArray:
    """Association of all pairs: rank correlation, or normalised mutual information with text."""
    is_number = pd.api.types.is_numeric_dtype
    number = frame.apply(is_number).to_numpy()

    def ranked(column: pd.Series) -> pd.Series:
        if is_number(column):
            return column.rank()
        return pd.Series(pd.factorize(column)[0], index=column.index)

    ranks = frame.apply(ranked)
    similar = np.nan_to_num(np.abs(ranks.corr().to_numpy()))
    # Names have no order: mutual information, for numbers that of tenths of their ranks.
    tenths = ranks.rank(pct=True).mul(10).round()
    columns = np.nan_to_num(np.where(number, tenths, ranks), nan=-1).T
    for a in np.flatnonzero(~number):
        for b, other in enumerate(columns):
            similar[a, b] = normalized_mutual_info_score(columns[a], other)
            similar[b, a] = similar[a, b]
    return similar


def unit_prices(
    costs: Mapping[Any, float] | None, units: Units, argument: str = "costs"
) -> dict[Any, float]:
    """The cost of every unit that has one: its own, or the sum of those of its columns."""
    known = dict(costs or {})
    places = set(units).union(*units.values())
    for name, cost in known.items():
        if name not in places:
            raise ValueError(f"{argument} names {name!r}, which is no unit or column")
        check.check_between(cost, 0, np.inf, f"{argument}[{name!r}]")
    prices = {}
    for name, part in units.items():
        of_columns = sum(known.get(column, 0.0) for column in part)
        prices[name] = known.get(name, of_columns)
    return {name: price for name, price in prices.items() if price > 0}
