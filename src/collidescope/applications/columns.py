"""Which column tells which classes apart, and what would another column be worth?

For a unit u (a column, or columns that go together) the same classifier is cross-fitted on all columns, on all but u,
and on u alone, with the same folds. With r = c - p (held-out posteriors p, one-hot labels c), PBER = mean ‖r‖² and the
rate of a pair 2 B[i, j] = -2 mean(r_i r_j), all on the same rows, so that::

    needed(u) = PBER(all but u) - PBER(all)      what goes when u goes
    alone(u)  = PBER(priors)    - PBER(u)        what u brings by itself

are means of paired differences, with the standard error of their rows (their influence functions are the differences
themselves: the one-step estimate forgives first-order errors of the posteriors). A copy of a column makes both of them
needless: columns that go together are therefore found first and left out together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import stdtr, stdtrit
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, VotingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import normalized_mutual_info_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.utils import _safe_indexing

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope._progress import Progress
from collidescope.applications._inputs import Told, check_rates, discovered, group_codes, mean_and_error, residuals
from collidescope.applications.subgroups import largest_collisions
from collidescope.estimate import collision_matrix_from_posteriors
from collidescope.estimators import check_rows, check_targets, crossfit_posteriors
from collidescope.folds import resolve_splits
from collidescope.matrix import CollisionMatrix

#: Columns go together from this rank correlation on (text: normalised mutual information).
TOGETHER = 0.9
#: Rows on which that is looked at.
ASSOCIATION_ROWS = 2000
#: Colliding pairs of classes whose change is told.
PAIRS = 5
#: Levels of a text column that get a column of their own in the linear part of the fast member.
MAX_LEVELS = 20


@dataclass(frozen=True, eq=False, repr=False)
class ColumnValue(Told):
    """What every column is worth, made by :func:`column_value`.

    Attributes
    ----------
    table : DataFrame
        One row per unit, most needed first: ``unit``, ``columns``, ``needed`` (rise of PBER without it) with ``low``
        and ``high``, ``p_value``, ``flagged``, ``pber_without``, ``alone`` (fall of PBER from the priors with it alone)
        with ``alone_low`` and ``alone_high``, and with costs ``cost`` and ``per_cost`` (PBER taken off per unit of
        cost).
    pairs : DataFrame
        Per unit and colliding pair: ``unit``, ``class``, ``other``, ``rate`` with all columns, ``needed`` with ``low``
        and ``high``, ``p_value``, ``flagged``.
    pber, pber_interval, matrix : with all columns
    fits : int
        Cross-fits that were made.
    """

    TITLE: ClassVar[str] = "Which column tells the classes apart?"
    HIDDEN: ClassVar[tuple[str, ...]] = ("columns",)
    table: pd.DataFrame
    pairs: pd.DataFrame
    pber: float
    pber_interval: tuple[float, float]
    fits: int
    matrix: CollisionMatrix
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The answer in words."""
        found = self.table[self.table["flagged"]].head(3).to_dict("records")
        with_all = f"PBER {self.pber:.1%} with all columns."
        if not found:
            return f"{with_all} No column is missed beyond chance when the others are there."
        said = [
            f"{row['unit']} ({100 * row['needed']:+.1f} points, {100 * row['low']:.1f} to {100 * row['high']:.1f})"
            for row in found
        ]
        return f"{with_all} It rises most without {', '.join(said)}."


def column_value(
    clf: Any,
    X: Any,
    y: npt.ArrayLike,
    *,
    columns: Sequence[Any] | Mapping[str, Sequence[Any]] | None = None,
    costs: Mapping[Any, float] | None = None,
    groups: npt.ArrayLike | None = None,
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
    clf : classifier with ``predict_proba``, or None
        Cloned and cross-fitted for every unit. A ``CollisionClassifier`` or ``TableClassifier`` would take hours: in
        its place, and for None, a fast member is used (logistic regression and gradient boosting, averaged).
    X, y : DataFrame or array of n rows, and their labels
    columns : list of column names, or mapping of name to list of column names, optional
        The units: {"lab values": ["na", "k"], …}. By default every column, those that go together as one unit.
    costs : mapping of unit or column to its cost, optional
        Of a test, of a question: adds what is gained per unit of cost.
    groups : array of n names, optional
        Rows that belong together share a fold, and intervals count groups.
    cv : int or splitter
    budget : int
        Cross-fits at most: 1 + 2 for each unit. Where there are more columns, the most similar ones are joined.
    level, fdr : float
        Of the intervals; of the flags (Benjamini and Hochberg).
    random_state, verbose : int
        ``verbose=1`` shows progress.

    Notes
    -----
    The values hold for the classifier that is used. For a column that is *offered* (known for these rows, not yet used)
    ``needed`` is what it would take off.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 500)
    >>> X = pd.DataFrame({"noise": rng.standard_normal(500), "marker": y + rng.standard_normal(500)})
    >>> found = column_value(LogisticRegression(), X, y)
    >>> found.table[["unit", "flagged"]].to_numpy().tolist()
    [['marker', True], ['noise', False]]
    """
    check_rates(level=level, fdr=fdr)
    check.check_count(budget, "budget", least=5)
    labels = check.check_labels(y)
    names = check_targets(labels)
    check_rows(X, labels)
    codes = check.encode_labels(labels, names)
    every = list(X.columns) if hasattr(X, "columns") else list(range(np.shape(X)[1]))
    if len(every) < 2:
        raise ValueError(f"X must have at least 2 columns to compare, got {len(every)}")
    units, notes = _units(X, every, columns, (budget - 1) // 2, random_state)
    prices = _prices(costs, units)
    own = None if groups is None else group_codes(groups, len(codes))[0]
    splits, _ = resolve_splits(cv, labels, names, random_state, groups=own)
    if clf is None or type(clf).__module__.startswith("collidescope."):
        clf = fast_member(X)
        notes.append("values by a fast member (logistic regression and gradient boosting), not the full pool")
    if isinstance(clf, type):
        raise ValueError(f"clf must be an instance, got the class {clf.__name__}: write {clf.__name__}()")

    def cross_fit(kept: list[Any]) -> FloatArray:
        part = X[kept] if hasattr(X, "columns") else _safe_indexing(X, [every.index(c) for c in kept], axis=1)
        return residuals(crossfit_posteriors(clf, part, labels, cv=splits), codes)

    with Progress("columns", 1 + 2 * len(units), verbose) as progress:
        full = cross_fit(every)
        progress.step()
        without, alone = {}, {}
        for name, members in units.items():
            rest = [column for column in every if column not in members]
            without[name] = cross_fit(rest) if rest else _priors_only(codes, splits)
            alone[name] = cross_fit(list(members))
            progress.step(2)
    prior = _priors_only(codes, splits)
    i, j = largest_collisions(full)
    i, j = i[:PAIRS], j[:PAIRS]
    base, base_error, df = mean_and_error(_loss(full), own)
    quantile = float(stdtrit(df, (1 + level) / 2))

    def needed(change: FloatArray) -> dict[str, Any]:
        """Mean rise with its interval and one-sided p-value; flags come when all p-values are there."""
        gap, error, _ = mean_and_error(change, own)
        p_value = float(stdtr(df, -gap / error)) if error > 0 else 1.0
        ends = {"low": gap - quantile * error, "high": gap + quantile * error}
        return {"needed": gap} | ends | {"p_value": p_value, "flagged": False}

    rows, pairs = [], []
    for name, members in units.items():
        row = {"unit": name, "columns": list(members)} | needed(_loss(without[name]) - _loss(full))
        mine, error, _ = mean_and_error(_loss(prior) - _loss(alone[name]), own)
        row |= {"pber_without": base + row["needed"], "alone": mine}
        row |= {"alone_low": mine - quantile * error, "alone_high": mine + quantile * error}
        cost = {"cost": prices[name], "per_cost": row["needed"] / prices[name]} if name in prices else {}
        rows.append(row | cost)
        for a, b in zip(i, j, strict=True):
            rate = -2 * full[:, a] * full[:, b]
            pair = {"unit": name, "class": names[a], "other": names[b], "rate": rate.mean()}
            pairs.append(pair | needed(-2 * without[name][:, a] * without[name][:, b] - rate))
    interval = (max(float(base - quantile * base_error), 0.0), min(float(base + quantile * base_error), 1.0))
    for found in (rows, pairs):
        for row, flagged in zip(found, discovered([row["p_value"] for row in found], fdr), strict=True):
            row["flagged"] = bool(flagged)
        found.sort(key=lambda row: -row["needed"])
    table, by_pair = pd.DataFrame(rows), pd.DataFrame(pairs)
    cm = collision_matrix_from_posteriors(np.eye(len(names))[codes] - full, labels, classes=names)
    return ColumnValue(table, by_pair, float(base), interval, 1 + 2 * len(units), cm, tuple(notes))


def _loss(r: FloatArray) -> FloatArray:
    return np.asarray((r**2).sum(axis=1))


def fast_member(X: Any) -> Any:
    """Logistic regression and gradient boosting, averaged, for columns of any type: seconds, not minutes."""
    numeric, other = make_column_selector(dtype_include="number"), make_column_selector(dtype_exclude="number")
    levels = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=MAX_LEVELS, sparse_output=False)
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    scaled = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler())
    linear, boosted = LogisticRegression(max_iter=300), HistGradientBoostingClassifier(max_iter=60, early_stopping=True)
    boosted.set_params(random_state=0, max_leaf_nodes=15)
    if hasattr(X, "columns"):
        linear = make_pipeline(make_column_transformer((scaled, numeric), (levels, other)), linear)
        boosted = make_pipeline(make_column_transformer(("passthrough", numeric), (codes, other)), boosted)
    else:
        linear = make_pipeline(scaled, linear)
    return VotingClassifier([("linear", linear), ("boosted", boosted)], voting="soft")


def _units(
    X: Any, every: list[Any], columns: Any, most: int, random_state: int
) -> tuple[dict[Any, list[Any]], list[str]]:
    """Name of every unit → its columns, and what was joined."""
    if isinstance(columns, Mapping):
        units = {name: [part] if isinstance(part, str) else list(part) for name, part in columns.items()}
    elif columns is not None:
        if isinstance(columns, str) or not isinstance(columns, Sequence | np.ndarray):
            raise ValueError(f"columns must be a list of names or a mapping of name to list, got {columns!r}")
        units = {name: [name] for name in columns}
    else:
        return _together(X, every, most, random_state)
    unknown = [column for part in units.values() for column in part if column not in every]
    if unknown or not units or any(not part for part in units.values()):
        raise ValueError(f"columns names {unknown[0]!r}, which X lacks" if unknown else "columns must not be empty")
    if len(units) > most:
        raise ValueError(f"columns has {len(units)} units, budget pays for {most}: raise it, or group some")
    return units, []


def _together(X: Any, every: list[Any], most: int, random_state: int) -> tuple[dict[Any, list[Any]], list[str]]:
    """Columns joined where they go together, or where there are more than ``most`` units."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    n = np.shape(X)[0]
    rng = np.random.default_rng(random_state)
    rows = np.sort(rng.choice(n, min(n, ASSOCIATION_ROWS), replace=False))
    frame = pd.DataFrame(_safe_indexing(X, rows)).reset_index(drop=True)
    numbers = [pd.api.types.is_numeric_dtype(frame[name]) for name in frame.columns]
    ranks = [
        frame[name].rank() if number else pd.Series(pd.factorize(frame[name])[0])
        for name, number in zip(frame.columns, numbers, strict=True)
    ]
    similar = np.nan_to_num(np.abs(pd.concat(ranks, axis=1).corr().to_numpy()))
    for a in np.flatnonzero(~np.array(numbers)):  # names have no order
        for b in range(len(every)):
            if a != b:
                pair = [ranks[c].rank(pct=True).mul(10).round() if numbers[c] else ranks[c] for c in (a, b)]
                similar[a, b] = similar[b, a] = normalized_mutual_info_score(*(part.fillna(-1) for part in pair))
    distance = 1 - np.clip(similar, 0, 1)
    np.fill_diagonal(distance, 0.0)
    tree = linkage(squareform(distance, checks=False), "complete")
    number = fcluster(tree, 1 - TOGETHER, "distance")
    if number.max() > most:
        number = fcluster(tree, most, "maxclust")
    units: dict[Any, list[Any]] = {}
    for column, own in zip(every, number, strict=True):
        units.setdefault(own, []).append(column)
    joined = [part for part in units.values() if len(part) > 1]
    notes = [f"columns that go together are one unit: {', '.join(map(str, part))}" for part in joined]
    return {part[0] if len(part) == 1 else " & ".join(map(str, part)): part for part in units.values()}, notes


def _prices(costs: Mapping[Any, float] | None, units: dict[Any, list[Any]]) -> dict[Any, float]:
    """Cost of every unit whose columns have one."""
    known = dict(costs or {})
    places = {*units, *(column for part in units.values() for column in part)}
    for name, cost in known.items():
        if name not in places:
            raise ValueError(f"costs names {name!r}, which is no unit or column")
        check.check_between(cost, 0, np.inf, f"costs[{name!r}]")
    totals = {name: known.get(name, sum(known.get(column, 0.0) for column in part)) for name, part in units.items()}
    return {name: float(total) for name, total in totals.items() if total > 0}


def _priors_only(codes: IntArray, splits: Sequence[tuple[IntArray, IntArray]]) -> FloatArray:
    """Residuals of the class shares of each fold's training rows."""
    k = int(codes.max()) + 1
    P = np.empty((len(codes), k))
    for train, test in splits:
        P[test] = np.bincount(codes[train], minlength=k) / len(train)
    return residuals(P, codes)
