"""What to do with the next euro: more rows, votes, labels, columns, or fewer classes?

Every option is judged by the fall of the PBER that it buys, with an interval, per unit of money.
Its numbers come from what the package says elsewhere::

    rows      the learning curve, continued (:class:`~collidescope.Limit`)
    labels    suspect labels, put right, and models trained on them (:func:`ambiguous`)
    columns   the rise of PBER without a column (:func:`column_value`)
    merge     the PBER that merging classes removes (:func:`consolidate`)
    votes     measure the PBER, and do not lower it: shown without rank

The falls of different options do not add up, and a merge also gives something away: the two classes
are no longer told apart, which is what its price stands for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import poisson

from collidescope import _checks as check
from collidescope._checks import ArrayLike, FloatArray, Given
from collidescope._text import READABLE
from collidescope.applications._inputs import (
    Classifier,
    Result,
    Scored,
    brier_scores,
    check_rates,
    curve_of,
)
from collidescope.applications.audit import CLEAR, SUSPECT, ambiguous
from collidescope.applications.columns import ColumnValue, column_value
from collidescope.applications.consolidation import (
    ConsolidationPlan,
    Groupings,
    consolidate,
    group_name,
    save_mapping,
)
from collidescope.limit import Limit
from collidescope.matrix import CollisionMatrix

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Option(NamedTuple):
    """Something that money could buy."""

    option: str
    what: str
    amount: float  #: rows, votes, labels, columns or merges
    cost: float  #: nan without a price
    fall: float  #: of the PBER, nan where it is not lowered
    low: float
    high: float


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Result, title="What to do with the next euro"):
    """What each option buys, made by :func:`plan`.

    ``table`` has one row per option: ``rank`` (missing without a price), ``option``, ``what``,
    ``amount``, ``cost``, ``fall`` of the PBER with ``low`` and ``high``, and ``per_money`` (fall
    per unit of money). People are shown falls in points, and per 100 units of money. ``mapping`` is
    class → group where the best merge is an option, else None.
    """

    pber: float
    budget: float | None
    table: pd.DataFrame
    mapping: dict[Any, str] | None
    level: float
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> str:
        """The first choice in one sentence."""
        ranked = self.table[self.table["rank"].notna()]
        if ranked.empty:
            return "No option has a price: pass prices={'row': 0.1, 'label': 0.5, …}."
        row = ranked.iloc[0]
        if row["fall"] <= 0:
            return f"No priced option is expected to lower the PBER of {self.pber:.1%}."
        # Not capitalize(): names of classes stay as they are.
        what = row["what"][0].upper() + row["what"][1:]
        fall = f"PBER {self.pber:.1%} would fall by about {_points(row)}"
        said = f"{what} for {row['cost']:,.6g}: {fall}"
        if row["low"] > 0:
            return f"{said}."
        return f"{said}; whether it falls at all cannot be told."

    @property
    def verdict(self) -> str:
        return self.best

    def _shown(self, most: int | None) -> pd.DataFrame:
        """For people: falls in points, also per 100 units of money."""
        table = self.table
        columns = {
            "rank": table["rank"].map("{:.0f}".format, na_action="ignore"),
            "what": table["what"],
            "cost": table["cost"].map("{:.3g}".format, na_action="ignore"),
        }
        for name in ("fall", "low", "high"):
            points = 100 * table[name]
            columns[name] = points.map("{:.2f}".format, na_action="ignore")
        per_100 = 100 * 100 * table["per_money"]
        columns["per 100"] = per_100.map("{:.3g}".format, na_action="ignore")
        shown = pd.DataFrame(columns).astype(object)
        return shown.where(shown.notna(), "")[:most]

    def section(self) -> dict[str, Any]:
        """For ``sections=`` of :func:`~collidescope.report`, with a bar for every fall."""
        told = super().section()
        told["bars"] = self._bars()
        return told

    def _bars(self) -> list[dict[str, Any]]:
        """Falls and their intervals, on a scale from 0 to 1 that very wide ones leave."""
        shown = self.table[self.table["fall"].notna()]
        if shown.empty:
            return []
        start = min(shown["low"].min(), 0.0)
        largest = shown["fall"].max()
        end = min(shown["high"].max(), 2.5 * largest)
        if end <= start:
            end = start + 1e-9
        places = (shown[["fall", "low", "high"]] - start) / (end - start)
        bars = []
        rows = shown.to_dict("records")
        for row, place in zip(rows, places.clip(0, 1).to_dict("records"), strict=True):
            words = {"name": row["what"], "words": _points(row)}
            bars.append({**words, "ranked": row["rank"] > 0, **place})
        return bars

    def save_mapping(self, path: str | Path) -> None:
        """Write :attr:`mapping` as ``.json`` or ``.csv``."""
        if self.mapping is None:
            raise ValueError("mapping is None: merging is no option of this plan")
        save_mapping(self.mapping, path)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the fall of every option with its interval, the best one on top."""
        import matplotlib.pyplot as plt

        if ax is None:
            _, ax = plt.subplots(layout="constrained")
        shown = self.table[self.table["fall"].notna()].iloc[::-1]
        points = 100 * shown[["fall", "low", "high"]]
        falls = points["fall"].to_numpy()
        below = falls - points["low"].to_numpy()
        above = points["high"].to_numpy() - falls
        places = np.arange(len(shown))
        ax.errorbar(falls, places, xerr=[below, above], fmt="o", capsize=3)
        ax.set_yticks(places, shown["what"].tolist())
        ax.axvline(0.0, linewidth=0.8, color="0.7")
        ax.set_xlabel("fall of the PBER (points)")
        return ax


def _points(row: Mapping[Any, Any] | pd.Series) -> str:
    """A fall of the PBER with its interval."""
    fall = 100 * row["fall"]
    low = 100 * row["low"]
    high = 100 * row["high"]
    return f"{fall:.2f} points ({low:.2f} to {high:.2f})"


def plan(
    clf: Classifier,
    X: ArrayLike | None = None,
    y: Given = None,
    *,
    prices: Mapping[str, Any] | None = None,
    budget: float | None = None,
    columns: ColumnValue | None = None,
    ordered: bool | Sequence[Any] | None = None,
    level: float = 0.95,
) -> Plan:
    """What the next euro buys: rows, labels, columns, merged classes or votes, ranked.

    Parameters
    ----------
    clf : fitted ``CollisionClassifier`` (held-out posteriors, S and its limit)
    X, y : its rows and labels; with neither X nor ``columns``, columns are no option
    prices : mapping of "row", "label" (checking one), "vote", "merge" (the loss of telling two
        classes apart) and "columns" ({name: cost of having it}) to money
    budget : float, the money that rows, labels and votes are bought for
        Default what doubling the rows costs, else checking every suspect label.
    columns : what :func:`column_value` found, by default asked about X: the longest part of it
    ordered : bool, or the classes in their order: only neighbours may be merged
        Default ``clf.class_order_``, where the labels were an ordered categorical.
    level : float, of the intervals

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> rng = np.random.default_rng(0)
    >>> P = np.column_stack([np.full(500, 0.98), np.full(500, 0.02)])
    >>> y = (rng.random(500) < 0.1).astype(
    ...     int
    ... )  # too many labels of 1: most of them are wrong
    >>> fitted = SimpleNamespace(
    ...     predict_proba=None, posteriors_=P, classes_=[0, 1], labels_=y
    ... )
    >>> found = plan(fitted, prices={"label": 1.0})
    >>> found.table["option"].tolist()
    ['labels', 'votes']
    """
    check_rates(level=level)
    money = _check_prices(prices)
    given, _ = curve_of(clf, y, None, None)
    n = len(given.codes)
    suspects = _suspects(given)
    if budget is None:
        budget = _default_budget(money, n, len(suspects))
    else:
        check.check_at_least(budget, 0, "budget")
    options = []
    limit = getattr(clf, "limit_", None)
    if len(suspects):
        found = _labels(given, suspects, limit, money.get("label"), budget, level)
        options.append(found)
    if limit is not None:
        options.append(_rows(limit, n, money.get("row"), budget, level))
    if columns is None and X is not None:
        columns = column_value(None, X, given.classes[given.codes], level=level)
    if columns is not None:
        options += _columns(columns, money.get("columns", {}))
    cm = getattr(clf, "collision_matrix_", None)
    merges: list[ConsolidationPlan] = []
    notes: tuple[str, ...] = ()
    if ordered is None:
        ordered = getattr(clf, "class_order_", None) or False
    if cm is not None and cm.n_classes > 2:
        merges, notes = _merge_steps(cm, ordered)
    options += [_merged(found, money.get("merge"), level) for found in merges]
    options.append(_votes(given, money.get("vote"), budget))
    table = _ranked(options)
    pber = float(brier_scores(given.posteriors, given.codes).mean())
    return Plan(pber, budget, table, _best_mapping(table, merges), level, notes)


def _check_prices(prices: Mapping[str, Any] | None) -> dict[str, Any]:
    known = ["row", "label", "vote", "merge", "columns"]
    money = dict(prices or {})
    for name, price in money.items():
        check.check_choice(name, known, "prices")
        each = {name: price}
        if name == "columns":
            each = price
        for what, amount in each.items():
            check.check_between(amount, 0, np.inf, f"prices[{what!r}]")
    return money


def _default_budget(money: dict[str, Any], n: int, n_suspects: int) -> float | None:
    if "row" in money:
        return float(n * money["row"])
    if "label" in money:
        return float(max(n_suspects, 1) * money["label"])
    return None


def _affordable(price: float | None, budget: float | None, most: float) -> float:
    """How many of a thing the budget buys; as many as make sense where it has no price."""
    if price is None or budget is None:
        return most
    return min(most, float(np.floor(budget / price)))


def _cost(price: float | None, amount: float) -> float:
    if price is None:
        return np.nan
    return price * amount


def _suspects(given: Scored) -> pd.DataFrame:
    """Rows whose label is suspect, the most suspect first."""
    labels = given.classes[given.codes]
    rows = ambiguous(given.posteriors, y=labels, by="label", classes=given.classes)
    return rows[rows["kind"] == "suspect label"]


def _labels(
    given: Scored,
    suspects: pd.DataFrame,
    limit: Limit | None,
    price: float | None,
    budget: float | None,
    level: float,
) -> Option:
    """A wrong label that is put right moves from a small posterior to the largest one.

    Posteriors alone cannot tell wrong labels from rare ones. At least those are wrong that chance
    does not explain, at most all; most likely, as many as on the clearest rows (anchor points,
    which belong to a class almost surely), where every unlikely label is wrong.

    Right labels also train better models. The posteriors of a linear smoother H are H c; a label
    that moves by Δ, ‖Δ‖² = 2, moves the loss of the other rows by 2 h, h = Σ_k H_ki². As the noise
    of all labels makes the excess, h is about its ratio to what unlimited rows leave. It is at
    most 1, for the nearest neighbour.
    """
    P = given.posteriors
    amount = int(_affordable(price, budget, len(suspects)))
    rows = suspects["index"].to_numpy()[:amount]
    likeliest = P[rows].argmax(axis=1)
    before = brier_scores(P[rows], given.codes[rows])
    after = brier_scores(P[rows], likeliest)
    gain = float((before - after).sum()) / len(P)
    training_gain = 2 * amount / len(P)  # times h
    shares = _wrong_shares(given, suspects, level)
    with_training = gain + _excess_ratio(limit) * training_gain
    return Option(
        "labels",
        f"check {amount:,} suspect labels",
        amount,
        _cost(price, amount),
        fall=shares.likely * with_training,
        low=shares.least * gain,
        high=gain + training_gain,
    )


class _WrongShares(NamedTuple):
    """Of the suspect labels, how many are wrong; at most all."""

    least: float
    likely: float


def _wrong_shares(given: Scored, suspects: pd.DataFrame, level: float) -> _WrongShares:
    P = given.posteriors
    clear = P.max(axis=1, keepdims=True) >= CLEAR
    unlikely = clear & (P <= SUSPECT)
    by_chance = float(P.sum(where=unlikely))
    at_most_by_chance = float(poisson.ppf((1 + level) / 2, by_chance))
    found = max(len(suspects), 1)
    least = max(1 - at_most_by_chance / found, 0.0)
    beyond_chance = max(1 - by_chance / found, 0.0)
    of_clearest = _share_of_clearest(given, suspects)
    return _WrongShares(least, max(beyond_chance, of_clearest))


def _excess_ratio(limit: Limit | None) -> float:
    """What more rows would take off the PBER, to what they would leave: 0 to 1."""
    if limit is None:
        return 0.0
    left = limit._pber_curve.at().quantile(0.5)
    excess = max(float(limit.scores[-1]) - left, 0.0)
    if excess >= left:
        return 1.0
    return excess / left


def _share_of_clearest(
    given: Scored, suspects: pd.DataFrame, clearest: float = 0.25
) -> float:
    """Of suspect labels: wrong ones, if all clear rows had as many as the clearest of them."""
    largest = given.posteriors.max(axis=1)
    clear = largest >= CLEAR
    if not len(suspects) or not clear.any():
        return 0.0
    bound = np.quantile(largest[clear], 1 - clearest)
    is_suspect = np.zeros(len(largest), dtype=bool)
    is_suspect[suspects["index"].to_numpy()] = True
    anchors = is_suspect[largest >= bound]
    # None among few is not never: Jeffreys.
    rate = (anchors.sum() + 0.5) / (len(anchors) + 1)
    expected = float(rate * clear.sum())
    return min(expected / len(suspects), 1.0)


def _rows(
    limit: Limit, n: int, price: float | None, budget: float | None, level: float
) -> Option:
    amount = n
    if price is not None and budget is not None:
        amount = int(budget / price)
    growth = (n + amount) / n
    size = float(limit.sizes[-1]) * growth  # training rows are a share of all rows
    curve = limit._pber_curve
    falls = curve.level - curve.at(size).means  # PBER(n) - PBER(size), for every curve
    # Which rows are drawn moves the models too, about as much as it did in the last doubling.
    _, deviation = limit._contrast([1.0, -1.0])
    expected = _FallMixture(curve.weights, falls, max(deviation, 1e-9))
    tail = (1 - level) / 2
    low = expected.quantile(tail)
    high = expected.quantile(1 - tail)
    if limit.state not in READABLE:  # such a curve may fall by all that is left
        low = min(low, 0.0)
        high = float(limit.scores[-1])
    return Option(
        "rows",
        f"collect {amount:,} more rows",
        amount,
        _cost(price, amount),
        fall=expected.quantile(0.5),
        low=low,
        high=high,
    )


class _FallMixture(NamedTuple):
    """A mixture of normals with one deviation."""

    weights: FloatArray
    means: FloatArray
    deviation: float

    def quantile(self, chance: float) -> float:
        def below(value: float) -> float:
            z = (value - self.means) / self.deviation
            return float(self.weights @ ndtr(z)) - chance

        reach = 9 * self.deviation  # the mass beyond it is 1e-19
        lowest = self.means.min() - reach
        highest = self.means.max() + reach
        return float(brentq(below, lowest, highest, xtol=1e-9))


def _columns(found: ColumnValue, costs: Mapping[Any, float]) -> list[Option]:
    """What keeping a column is worth: PBER would rise so much without it."""
    units = found.table.to_dict("records")
    known = set(found.table["unit"]).union(*found.table["columns"])
    for name in costs:
        if name not in known:
            raise ValueError(
                f"prices['columns'] names {name!r}, which is no unit or column"
            )
    options = []
    for unit in units:
        what = f"keep the column {unit['unit']}"
        cost = costs.get(unit["unit"])
        if cost is None:
            cost = sum(costs.get(column, 0.0) for column in unit["columns"])
        if cost == 0:
            cost = np.nan
        rise = (unit["needed"], unit["low"], unit["high"])
        options.append(Option("column", what, 1, cost, *rise))
    return options


def _merge_steps(
    cm: CollisionMatrix, ordered: bool | Sequence[Any], most: int = 3
) -> tuple[list[ConsolidationPlan], tuple[str, ...]]:
    """The first steps of merging, up to one at chance level; notes where that is the first."""
    path = consolidate(cm, ordered=ordered)
    steps: list[ConsolidationPlan] = []
    for step in path.path.iloc[1 : most + 1].to_dict("records"):
        if step["n_groups"] < 2:
            break
        found = path.at(step["n_groups"])
        if step["chance"]:
            return steps, () if steps else found.notes
        steps.append(found)
    return steps, ()


def _merged(found: ConsolidationPlan, price: float | None, level: float) -> Option:
    """The PBER that a grouping removes: Σ of B over classes that become one."""
    cm = found.source
    amount = cm.n_classes - found.n_groups
    grouping = found.groupings[amount]
    fall = cm.pber - found.matrix.pber
    low, high = _merged_interval(cm, grouping, fall, level)
    merged = [group for group in found.groups if len(group) > 1]
    names = " and ".join(group_name(group) for group in merged)
    cost = _cost(price, amount)
    return Option("merge", f"merge {names}", amount, cost, fall, low, high)


def _merged_interval(
    cm: CollisionMatrix, grouping: Groupings, fall: float, level: float
) -> tuple[float, float]:
    """Of the PBER that a grouping removes, as far as errors are known.

    The best of many pairs looks better than it is: all pairs are allowed for (Bonferroni).
    """
    k = cm.n_classes
    n_pairs = k * (k - 1) / 2
    level = 1 - (1 - level) / n_pairs
    together = grouping[:, None] == grouping
    np.fill_diagonal(together, False)
    if cm.covariance is not None:
        upper = np.triu_indices(k)
        gradient = 2.0 * together[upper]
        variance = float(gradient @ cm.covariance @ gradient)
        stderr = float(np.sqrt(max(variance, 0.0)))
        half = cm._half_width(stderr, level)
        return max(fall - half, 0.0), min(fall + half, 1.0)
    ends = cm.interval(level)
    if ends is None:
        return fall, fall
    i, j = np.nonzero(together)
    low = cm.priors[i] @ ends[0][i, j]
    high = cm.priors[i] @ ends[1][i, j]
    return float(low), float(high)


def _best_mapping(
    table: pd.DataFrame, merges: list[ConsolidationPlan]
) -> dict[Any, str] | None:
    """That of the merge that ranks first; without a price that of the first step."""
    if not merges:
        return None
    first = table[table["option"] == "merge"].iloc[0]
    return merges[int(first["amount"]) - 1].mapping


def _votes(given: Scored, price: float | None, budget: float | None) -> Option:
    """Second votes on the most ambiguous rows: the share of the doubt that they would check."""
    n = len(given.codes)
    doubt = 1 - (given.posteriors**2).sum(axis=1)
    largest = np.sort(doubt)[::-1]
    total = largest.sum()
    most = max(n // 10, 1)
    if price is not None and budget is not None:
        most = n
    amount = int(_affordable(price, budget, most))
    share = 0.0
    if total > 0:
        share = largest[:amount].sum() / total
    what = f"second votes on {amount:,} rows ({share:.0%} of the doubt)"
    cost = _cost(price, amount)
    return Option("votes", what, amount, cost, np.nan, np.nan, np.nan)


def _ranked(options: list[Option]) -> pd.DataFrame:
    table = pd.DataFrame(options)
    priced = table["cost"] > 0
    per_money = table["fall"] / table["cost"]
    table["per_money"] = per_money.where(priced)
    rank = table["per_money"].rank(ascending=False, method="first")
    table.insert(0, "rank", rank)
    return table.sort_values(
        "rank", kind="stable", na_position="last", ignore_index=True
    )
