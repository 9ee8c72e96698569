"""What collisions depend on: columns (:func:`column_value`), subgroups of rows (:func:`collisions_by`), and time.

The one-step estimates are means over rows of products of r = c - p (held-out posteriors p, one-hot labels c), so a
subgroup is estimated on its own rows and differences have standard errors by the central limit theorem. The *rate* of a
pair is 2 B[i, j]: rates of all pairs sum to the PBER.

For a unit u (a column, or columns that go together) the same classifier is cross-fitted on all columns, on all but u,
and on u alone, with the same folds: PBER(all but u) - PBER(all) and PBER(priors) - PBER(u) are means of paired
differences, with the standard error of their rows. A copy of a column makes both of them needless: columns that go
together are found first and left out together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
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
from collidescope._checks import ArrayLike, FloatArray, Given
from collidescope._progress import Progress
from collidescope._rows import agreement
from collidescope.applications import _inputs as inputs
from collidescope.applications._inputs import (
    Names,
    Told,
    largest_collisions,
    loss_and_rates,
    mean_and_error,
    residuals,
)
from collidescope.counting import label_codes
from collidescope.estimators import check_classifier, crossfit_posteriors
from collidescope.folds import resolve_splits
from collidescope.limit import limit_from_scores
from collidescope.matrix import UNSEEN, CollisionMatrix
from collidescope.onestep import collision_matrix_from_posteriors
from collidescope.sample import check_rows, check_targets

#: Columns go together from this rank correlation on (text: normalised mutual information), on so many rows.
TOGETHER, ASSOCIATION_ROWS = 0.9, 2000
PAIRS = 5  #: colliding pairs of classes whose dependence on columns is shown
MAX_LEVELS = 20  #: levels of a text column that get a column of their own in the linear part of the fast member
MIN_ROWS = (
    30  #: fewest rows (a third as many clusters) of a group whose t interval is to be trusted
)
#: Labels of rows with one value agree far more than chance: by half of what is possible, beyond this z-value.
FAR, Z, SHUFFLES = 0.5, 5.0, 200


@dataclass(frozen=True, eq=False, repr=False)
class ColumnValue(Told, title="Which column tells the classes apart?", hidden=("columns",)):
    """What every column is worth, made by :func:`column_value`.

    ``table`` has one row per unit, most needed first: ``unit``, ``columns``, ``needed`` (rise of PBER without it) with
    ``low``, ``high``, ``p_value`` and ``flagged``, ``alone`` (fall of PBER from the priors with it alone) with
    ``alone_low`` and ``alone_high``, ``pber_without``, and with costs ``cost`` and ``per_cost`` (PBER taken off per
    unit of it). ``pairs`` has the same of the largest collisions: ``unit``, ``class``, ``other``, ``rate`` with all
    columns. ``pber``, ``pber_interval`` and ``matrix`` are with all columns, ``fits`` is the number of cross-fits.
    """

    table: pd.DataFrame
    pairs: pd.DataFrame
    pber: float
    pber_interval: tuple[float, float]
    fits: int
    matrix: CollisionMatrix
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        with_all = f"PBER {self.pber:.1%} with all columns."
        needed = self.table[self.table["flagged"]].head(3)
        ends = zip(
            needed["unit"], *(100 * needed[name] for name in ("needed", "low", "high")), strict=True
        )
        said = [
            f"{unit} ({rise:+.1f} points, {low:.1f} to {high:.1f})"
            for unit, rise, low, high in ends
        ]
        if not said:
            return f"{with_all} No column is missed beyond chance when the others are there."
        return f"{with_all} It rises most without {', '.join(said)}."


def column_value(
    clf: Any,
    X: Any,
    y: ArrayLike,
    *,
    columns: Sequence[Any] | Mapping[str, Sequence[Any]] | None = None,
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
    clf : classifier with ``predict_proba``, cross-fitted for every unit (the values hold for it), or None
        For None, and in place of a classifier of this package, logistic regression and gradient boosting, averaged.
    X, y : DataFrame or array of n rows, and their labels
        A column that is *offered* (known for these rows, not yet used) would take off what ``needed`` says.
    columns : the units as list of names or {"lab values": ["na", "k"], …}; default every column, copies as one unit
    costs : mapping of unit or column to its cost (of a test, of a question), optional
    groups : array of n names, optional; rows that belong together share a fold, and intervals count groups
    cv, random_state, verbose : folds (int or splitter), seed; 1 shows progress with the time left
    budget : int; cross-fits at most, 1 + 2 for each unit: of more columns the most similar ones are joined
    level, fdr : float, of the intervals; of the flags (Benjamini and Hochberg)

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 500)
    >>> X = pd.DataFrame(
    ...     {"noise": rng.standard_normal(500), "marker": y + rng.standard_normal(500)}
    ... )
    >>> column_value(LogisticRegression(), X, y).table[["unit", "flagged"]].to_numpy().tolist()
    [['marker', True], ['noise', False]]
    """
    inputs.check_rates(level=level, fdr=fdr)
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
    own = None if groups is None else inputs.group_codes(groups, len(codes))[0]
    splits, _ = resolve_splits(cv, labels, names, random_state, groups=own)
    if clf is None or type(clf).__module__.startswith("collidescope."):
        clf = fast_member(X)
        notes.append(
            "values by a fast member (logistic regression and gradient boosting), not the full pool"
        )
    check_classifier(clf, "clf")

    def cross_fit(kept: Sequence[Any]) -> FloatArray:
        """Residuals of the held-out posteriors; with no column those of the class shares of the training rows."""
        model, used = (
            (clf, [every.index(column) for column in kept]) if kept else (DummyClassifier(), [0])
        )
        return residuals(
            crossfit_posteriors(model, _safe_indexing(X, used, axis=1), labels, cv=splits), codes
        )

    found = []
    with Progress("columns", 1 + 2 * len(units), verbose) as progress:
        full = cross_fit(every)
        i, j = largest_collisions(full, PAIRS)
        with_all, with_none = (loss_and_rates(r, (i, j)) for r in (full, cross_fit([])))
        progress.step()
        for name, members in units.items():
            rest = [column for column in every if column not in members]
            without, alone = (loss_and_rates(cross_fit(kept), (i, j)) for kept in (rest, members))
            progress.step(2)
            # PBER first, then the pairs: the rise without the unit, and the fall with nothing else.
            rise, fall = (
                mean_and_error(without - with_all, own),
                mean_and_error(with_none - alone, own),
            )
            rates: dict[str, Any] = {
                "unit": [name] * (1 + len(i)),
                "class": ["", *names[i]],
                "other": ["", *names[j]],
            }
            rates["rate"] = with_all.mean(axis=0)
            rates |= rise.columns("needed", level) | {"p_value": rise.p_value(sides=1)}
            found.append(pd.DataFrame(rates | fall.columns("alone", level, "alone_")))
    base = mean_and_error(with_all[:, 0], own)
    table = pd.concat([part[:1] for part in found], ignore_index=True).drop(
        columns=["class", "other", "rate"]
    )
    table.insert(1, "columns", [list(members) for members in units.values()])
    table["pber_without"] = base.value + table["needed"]
    if prices:
        table["cost"] = table["unit"].map(prices)
        table["per_cost"] = table["needed"] / table["cost"]
    pairs = pd.concat([part[1:] for part in found])
    by_need, by_pair = (inputs.flagged(part, fdr, "needed", key=None) for part in (table, pairs))
    # The posteriors again: p = c - r.
    cm = collision_matrix_from_posteriors(
        np.eye(len(names))[codes] - full, labels, classes=names, groups=own
    )
    low, high = base.interval(level)
    interval = max(float(low), 0.0), min(float(high), 1.0)
    return ColumnValue(
        by_need, by_pair, float(base.value), interval, 1 + 2 * len(units), cm, tuple(notes)
    )


def fast_member(X: Any) -> Any:
    """Logistic regression and gradient boosting, averaged, for columns of any type: seconds, not minutes."""
    numeric, other = (
        make_column_selector(dtype_include="number"),
        make_column_selector(dtype_exclude="number"),
    )
    levels = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=MAX_LEVELS, sparse_output=False
    )
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    scaled = make_pipeline(
        SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler()
    )
    linear, boosted = (
        LogisticRegression(max_iter=300),
        HistGradientBoostingClassifier(max_iter=60, early_stopping=True),
    )
    boosted.set_params(random_state=0, max_leaf_nodes=15)
    if hasattr(X, "columns"):
        linear = make_pipeline(make_column_transformer((scaled, numeric), (levels, other)), linear)
        boosted = make_pipeline(
            make_column_transformer(("passthrough", numeric), (codes, other)), boosted
        )
    else:
        linear = make_pipeline(scaled, linear)
    return VotingClassifier([("linear", linear), ("boosted", boosted)], voting="soft")


def _units(
    X: Any, every: list[Any], columns: Any, most: int, seed: int
) -> tuple[dict[Any, list[Any]], list[str]]:
    if columns is None:
        return _together(X, every, most, seed)
    if isinstance(columns, Mapping):
        units = {
            name: [part] if isinstance(part, str) else list(part) for name, part in columns.items()
        }
    elif isinstance(columns, str) or not isinstance(columns, Sequence | np.ndarray):
        raise ValueError(
            f"columns must be a list of names or a mapping of name to list, got {columns!r}"
        )
    else:
        units = {name: [name] for name in columns}
    unknown = [column for part in units.values() for column in part if column not in every]
    if unknown or not units or not all(units.values()):
        raise ValueError(
            f"columns names {unknown[0]!r}, which X lacks"
            if unknown
            else "columns must not be empty"
        )
    if len(units) > most:
        raise ValueError(
            f"columns has {len(units)} units, budget pays for {most}: raise it, or group some"
        )
    return units, []


def _together(
    X: Any, every: list[Any], most: int, seed: int
) -> tuple[dict[Any, list[Any]], list[str]]:
    n = np.shape(X)[0]
    rows = np.sort(np.random.default_rng(seed).choice(n, min(n, ASSOCIATION_ROWS), replace=False))
    frame = pd.DataFrame(_safe_indexing(X, rows)).reset_index(drop=True)
    is_number = pd.api.types.is_numeric_dtype
    ranks = frame.apply(
        lambda column: column.rank() if is_number(column) else pd.factorize(column)[0]
    )
    number = frame.apply(is_number).to_numpy()
    similar = np.nan_to_num(np.abs(ranks.corr().to_numpy()))
    # Names have no order: mutual information, for numbers that of tenths of their ranks.
    levels = np.nan_to_num(np.where(number, ranks.rank(pct=True).mul(10).round(), ranks), nan=-1)
    for a in np.flatnonzero(~number):
        for b in range(len(every)):
            similar[a, b] = similar[b, a] = normalized_mutual_info_score(levels[:, a], levels[:, b])
    distance = 1 - np.clip(similar, 0, 1)
    np.fill_diagonal(distance, 0.0)
    # Complete linkage: any two columns of a unit are alike; a chain of likenesses is not enough.
    tree = linkage(squareform(distance, checks=False), "complete")
    cluster = fcluster(tree, 1 - TOGETHER, "distance")
    if cluster.max() > most:
        cluster = fcluster(tree, most, "maxclust")
    units = [[every[c] for c in np.flatnonzero(cluster == own)] for own in pd.unique(cluster)]
    named = {part[0] if len(part) == 1 else " & ".join(map(str, part)): part for part in units}
    joined = [", ".join(map(str, part)) for part in units if len(part) > 1]
    return named, [f"columns that go together are one unit: {part}" for part in joined]


def _prices(costs: Mapping[Any, float] | None, units: dict[Any, list[Any]]) -> dict[Any, float]:
    known = costs or {}
    places = {*units, *(column for part in units.values() for column in part)}
    if unknown := [name for name in known if name not in places]:
        raise ValueError(f"costs names {unknown[0]!r}, which is no unit or column")
    prices = {
        name: check.check_between(cost, 0, np.inf, f"costs[{name!r}]")
        for name, cost in known.items()
    }
    totals = {
        name: prices.get(name, sum(prices.get(column, 0.0) for column in part))
        for name, part in units.items()
    }
    return {name: total for name, total in totals.items() if total > 0}


@dataclass(frozen=True, eq=False, repr=False)
class SubgroupCollisions(Told, title="For whom do the classes collide?"):
    """Collisions by subgroup, made by :func:`collisions_by`.

    ``table`` has one row per ``group``: ``rows``, ``pber`` with ``low`` and ``high``, ``difference`` to the PBER of all
    other rows with ``difference_low`` and ``difference_high``, ``limit_low`` and ``limit_high`` (PBER that unlimited
    rows would leave, missing without learning curves), and ``verdict``: "higher", "lower", "not different" or "too few
    rows". ``pairs`` has per group and colliding pair (``class``, ``other``) the ``rate``, its ``difference`` to the
    other rows, ``p_value`` and ``flagged``; ``matrices`` S of the groups with rows enough that have every class.
    """

    table: pd.DataFrame
    pairs: pd.DataFrame
    matrices: dict[Any, CollisionMatrix]
    level: float
    fdr: float

    @property
    def verdict(self) -> str:
        small = int((self.table["verdict"] == "too few rows").sum())
        more = f" {small} groups are too small to tell." if small else ""
        odd = self.table.assign(points=100 * self.table["difference"]).query(
            "verdict in ['higher', 'lower']"
        )
        words = "{group} {pber:.1%} ({points:+.1f} points, {verdict})"
        said = [words.format_map(row) for row in odd.to_dict("records")]
        if not said:
            return f"No group differs from the rest beyond chance.{more}"
        return f"{len(said)} of {len(self.table)} groups differ from the rest in PBER: {'; '.join(said)}.{more}"


def collisions_by(
    P: Any,
    y: Given,
    groups: ArrayLike,
    *,
    clusters: Given = None,
    posteriors_by_size: Mapping[int, ArrayLike] | None = None,
    classes: Names = None,
    level: float = 0.95,
    fdr: float = 0.05,
) -> SubgroupCollisions:
    """S, PBER and its range for every subgroup (hospital, region, device, year), and which differ from the rest.

    A model that knows one group better than another makes them differ too: what is not learned counts as collision.

    Parameters
    ----------
    P, y, posteriors_by_size, classes : as in :func:`ceilings`; sizes give the range that unlimited rows would leave
    groups, clusters : arrays of n names; intervals count clusters (optional), rows that belong together
    level : float; all intervals of the table hold at once with this probability (Šidák)
    fdr : float; false discovery rate of the flagged pairs (Benjamini and Hochberg)

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = np.where(np.arange(2000) < 1000, 0.9, 0.7)  # the second device is worse
    >>> y = (rng.random(2000) < p).astype(int)
    >>> found = collisions_by(np.column_stack([1 - p, p]), y, np.repeat(["new", "old"], 1000))
    >>> found.table[["group", "rows", "verdict"]].to_numpy().tolist()
    [['new', 1000, 'lower'], ['old', 1000, 'higher']]
    """
    inputs.check_rates(level=level, fdr=fdr)
    (posteriors, codes, names, _), curves = inputs.curve_of(P, y, classes, posteriors_by_size)
    n = len(codes)
    own, found = inputs.group_codes(groups, n)
    units = np.arange(n) if clusters is None else inputs.group_codes(clusters, n, "clusters")[0]
    r = residuals(posteriors, codes)
    i, j = largest_collisions(r)
    stats = loss_and_rates(r, (i, j))
    by_size = pd.DataFrame(
        {size: (residuals(Q, codes) ** 2).sum(axis=1) for size, Q in curves.items()}
    )
    sizes = np.bincount(own)
    n_units = np.array([len(np.unique(units[own == g])) for g in range(len(found))])
    large = (sizes >= MIN_ROWS) & (n_units >= MIN_ROWS / 3) & (sizes < n)
    each = level ** (
        1 / max((3 if curves else 2) * int(large.sum()), 1)
    )  # PBER, difference, and range of each
    rows, pairs, matrices = [], [], {}
    for g, name in enumerate(found.tolist()):
        here = own == g
        row: dict[str, Any] = {"group": name, "rows": int(sizes[g])}
        if not large[g]:
            rows.append(row | {"verdict": "too few rows" if sizes[g] < n else "the only group"})
            continue
        mean, rest = (
            mean_and_error(stats[part], None if clusters is None else units[part])
            for part in (here, ~here)
        )
        gap = mean.minus(rest, sizes[g], n - sizes[g])
        wide = mean._replace(stderr=np.hypot(mean.stderr, UNSEEN / sizes[g]))
        ends = wide.columns("pber", each) | gap.columns("difference", each, "difference_")
        row |= {name: float(values[0]) for name, values in ends.items()}
        row |= {"low": max(row["low"], 0.0), "high": min(row["high"], 1.0)}
        above, below = row["difference_low"] > 0, row["difference_high"] < 0
        row["verdict"] = "higher" if above else "lower" if below else "not different"
        if curves:
            # Clusters are the independent units of the curve: their mean scores, weighted by their rows.
            together = by_size[here].groupby(units[here])
            baseline = 1 - float(((np.bincount(codes[here]) / sizes[g]) ** 2).sum())
            limit = limit_from_scores(
                together.mean(), list(curves), baseline=baseline, sample_weight=together.size()
            )
            row["limit_low"], row["limit_high"] = limit.pber_interval(each)
        rows.append(row)
        columns = {
            "group": [name] * len(i),
            "class": names[i],
            "other": names[j],
            "rate": mean.value[1:],
        }
        pairs.append(
            pd.DataFrame(columns | {"difference": gap.value[1:], "p_value": gap.p_value()[1:]})
        )
        if len(np.unique(codes[here])) == len(names):
            options: dict[str, Any] = {
                "classes": names,
                "groups": None if clusters is None else units[here],
            }
            matrices[name] = collision_matrix_from_posteriors(
                posteriors[here], names[codes[here]], **options
            )
    shown = "group rows pber low high difference difference_low difference_high limit_low limit_high verdict"
    table = pd.DataFrame(rows).reindex(columns=shown.split())
    every = (
        pd.concat(pairs)
        if pairs
        else pd.DataFrame(columns=["group", "class", "other", "difference", "p_value"])
    )
    return SubgroupCollisions(table, inputs.flagged(every, fdr), matrices, level, fdr)


@dataclass(frozen=True, eq=False, repr=False)
class CollisionChange(Told, title="Did collisions change?"):
    """How collisions changed between two fits or two periods, made by :func:`collision_change`.

    ``before``, ``after`` and ``change`` (with ``interval``) are of the PBER, ``paired`` where both are about the same
    rows; ``table`` has per pair ``class``, ``other``, ``before``, ``after``, ``difference``, ``low``, ``high``,
    ``p_value``, ``flagged``.
    """

    before: float
    after: float
    change: float
    interval: tuple[float, float]
    paired: bool
    table: pd.DataFrame

    @property
    def verdict(self) -> str:
        low, high = self.interval
        how = "the same rows, paired" if self.paired else "different rows"
        word = "rose" if low > 0 else "fell" if high < 0 else "did not change beyond chance"
        change = (
            f"change {100 * self.change:+.2f} points ({100 * low:+.2f} to {100 * high:+.2f}; {how})"
        )
        return f"PBER {word}: {self.before:.2%} before, {self.after:.2%} after, {change}."


def collision_change(
    P_before: ArrayLike,
    y_before: ArrayLike,
    P_after: ArrayLike,
    y_after: Given = None,
    *,
    classes: Names = None,
    level: float = 0.95,
    fdr: float = 0.05,
) -> CollisionChange:
    """Compare two fits on the same rows (leave ``y_after`` out: paired), or two periods with their own rows.

    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(1000)
    >>> y = (rng.random(1000) < p).astype(int)
    >>> sharp, blunt = np.column_stack([1 - p, p]), np.full((1000, 2), 0.5)
    >>> collision_change(blunt, y, sharp).interval[1] < 0
    True
    """
    inputs.check_rates(level=level, fdr=fdr)
    first, codes, names, _ = inputs.scored(
        P_before, None, y_before, classes, "P_before", "y_before"
    )
    paired = y_after is None
    labels, y_name = (y_before, "y_before") if y_after is None else (y_after, "y_after")
    second, later, *_ = inputs.scored(P_after, None, labels, names, "P_after", y_name)
    r = residuals(first, codes), residuals(second, later)
    i, j = largest_collisions(np.concatenate(r))
    before, after = (loss_and_rates(part, (i, j)) for part in r)
    if paired:
        gap = mean_and_error(after - before)
    else:
        gap = mean_and_error(after).minus(mean_and_error(before), len(after), len(before))
    rates = {"before": before.mean(axis=0), "after": after.mean(axis=0)} | gap.columns(
        "difference", level
    )
    was, now, change, low, high = (float(values[0]) for values in rates.values())
    rates = {"class": names[i], "other": names[j]} | {
        name: values[1:] for name, values in rates.items()
    }
    pairs = inputs.flagged(pd.DataFrame(rates | {"p_value": gap.p_value()[1:]}), fdr)
    return CollisionChange(was, now, change, (low, high), paired, pairs)


class GroupedLabels(NamedTuple):
    """Do rows with one value agree in their label? See :func:`grouped_labels`."""

    values: int
    agreement: float
    chance: float
    z: float
    suspicious: bool

    def words(self, name: str = "this column") -> str:
        """A warning, or an empty text."""
        same = f"rows with the same value of {name} ({self.values:,} values) have the same label {self.agreement:.0%}"
        advice = "if they belong together (one patient, one document), pass groups="
        return (
            f"{same} of the time, {self.chance:.0%} by chance: {advice}" if self.suspicious else ""
        )


def grouped_labels(
    groups: ArrayLike, y: ArrayLike, *, least_values: int = 20, random_state: int = 0
) -> GroupedLabels:
    """Do rows that share a value of an id-like column agree in their label far more than chance?

    ``agreement`` is how often two rows of one value have the same label, ``chance`` the same with shuffled labels.
    ``suspicious``: half of the way from chance to 1, 5 standard deviations beyond the shuffles, and ``least_values``
    values or more; models with such rows on both sides of a fold learn the values.

    >>> rng = np.random.default_rng(0)
    >>> patient = np.repeat(np.arange(30), 20)
    >>> [
    ...     grouped_labels(patient, y).suspicious
    ...     for y in (rng.integers(0, 2, 30)[patient], rng.integers(0, 2, 600))
    ... ]
    [True, False]
    """
    check.check_count(least_values, "least_values", least=2)
    codes, _ = label_codes(y)
    own, names = inputs.group_codes(groups, len(codes))
    if len(names) == len(own):
        return GroupedLabels(len(names), float("nan"), float("nan"), 0.0, False)
    rng, seen = np.random.default_rng(random_state), agreement(own, codes)
    shuffled = np.array([agreement(own, rng.permutation(codes)) for _ in range(SHUFFLES)])
    chance, spread = float(shuffled.mean()), float(shuffled.std())
    z = (seen - chance) / spread if spread else 0.0
    far = z > Z and seen - chance >= FAR * (1 - chance) and len(names) >= least_values
    return GroupedLabels(len(names), seen, chance, z, bool(far))
