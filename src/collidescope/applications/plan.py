"""What to do with the next euro: more rows, votes, labels, columns, or fewer classes?

Every option is judged by the fall of the PBER that it buys, with an interval, per unit of money.
Its numbers come from what the package says elsewhere::

    rows      the learning curve, continued (:class:`~collidescope.Limit`)
    labels    suspect labels beyond those that chance makes (:func:`ambiguous`)
    columns   the rise of PBER without a column (:func:`column_value`)
    merge     the PBER that merging two classes removes (:func:`consolidate`)
    votes     measure the PBER, and do not lower it: shown without rank

The falls of different options do not add up, and a merge also gives something away: the two classes
are no longer told apart, which is what its price stands for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import poisson

from collidescope import _checks as check
from collidescope._checks import ArrayLike, FloatArray, Given
from collidescope._text import READABLE
from collidescope.applications._inputs import Classifier, Result, Scored, check_rates, curve_of
from collidescope.applications.audit import CLEAR, SUSPECT, ambiguous
from collidescope.applications.columns import column_value
from collidescope.applications.consolidation import consolidate, save_mapping
from collidescope.limit import Limit
from collidescope.limit import RowsNeeded as RowsNeeded
from collidescope.matrix import CollisionMatrix

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def rows_needed(
    limit: Limit, target: float, *, of: str = "pber", level: float = 0.95, most: float = 1e12
) -> RowsNeeded:
    """How many training rows would bring the PBER, or the error, down to ``target``?

    See :meth:`Limit.rows_needed`.
    """
    return limit.rows_needed(target, of=of, level=level, most=most)


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
    per unit of money). ``mapping`` is class → group where the best merge is an option, else None.
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
        ends = f"{100 * row['low']:.2f} to {100 * row['high']:.2f}"
        fall = f"PBER {self.pber:.1%} would fall by about {100 * row['fall']:.2f} points ({ends})"
        sure = "" if row["low"] > 0 else "; whether it falls at all cannot be told"
        return f"{row['what'].capitalize()} for {row['cost']:,.6g}: {fall}{sure}."

    @property
    def verdict(self) -> str:
        return self.best

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
        falls = 100 * shown["fall"].to_numpy()
        below = falls - 100 * shown["low"].to_numpy()
        above = 100 * shown["high"].to_numpy() - falls
        places = np.arange(len(shown))
        ax.errorbar(falls, places, xerr=[below, above], fmt="o", capsize=3)
        ax.set_yticks(places, shown["what"].tolist())
        ax.axvline(0.0, linewidth=0.8, color="0.7")
        ax.set_xlabel("fall of the PBER (points)")
        return ax


def plan(
    clf: Classifier,
    X: ArrayLike | None = None,
    y: Given = None,
    *,
    prices: Mapping[str, Any] | None = None,
    budget: float | None = None,
    ordered: bool = False,
    level: float = 0.95,
    random_state: int = 0,
) -> Plan:
    """What the next euro buys: rows, labels, columns, merged classes or votes, ranked.

    Parameters
    ----------
    clf : fitted ``CollisionClassifier`` (held-out posteriors, S and its limit)
    X, y : its rows and labels; without X columns are no option
    prices : mapping of "row", "label" (checking one), "vote", "merge" (the loss of telling two
        classes apart) and "columns" ({name: cost of having it}) to money
    budget : float, the money that rows, labels and votes are bought for
        Default what doubling the rows costs, else checking every suspect label.
    ordered : bool; only neighbouring classes may be merged
    level, random_state : of the intervals; seed of the columns' folds

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> rng = np.random.default_rng(0)
    >>> P = np.column_stack([np.full(500, 0.98), np.full(500, 0.02)])
    >>> y = (rng.random(500) < 0.1).astype(int)  # too many labels of 1: most of them are wrong
    >>> fitted = SimpleNamespace(predict_proba=None, posteriors_=P, classes_=[0, 1], labels_=y)
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
    options = [_labels(given, suspects, money.get("label"), budget, level)]
    options += _rows(getattr(clf, "limit_", None), n, money.get("row"), budget, level)
    if X is not None:
        options += _columns(X, given, money.get("columns"), level, random_state)
    merged, mapping, notes = _merge(
        getattr(clf, "collision_matrix_", None), money.get("merge"), ordered, level
    )
    options += merged
    options.append(_votes(given, money.get("vote"), budget))
    pber = float(_brier(given).mean())
    return Plan(pber, budget, _ranked(options), mapping, level, notes)


def _check_prices(prices: Mapping[str, Any] | None) -> dict[str, Any]:
    known = ["row", "label", "vote", "merge", "columns"]
    money = dict(prices or {})
    for name, price in money.items():
        check.check_choice(name, known, "prices")
        each = price.items() if name == "columns" else [(name, price)]
        for what, amount in each:
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
    return np.nan if price is None else price * amount


def _brier(given: Scored) -> FloatArray:
    onehot = np.eye(len(given.classes))[given.codes]
    return np.asarray(((onehot - given.posteriors) ** 2).sum(axis=1))


def _suspects(given: Scored) -> pd.DataFrame:
    """Rows whose label is suspect, the most suspect first."""
    labels = given.classes[given.codes]
    rows = ambiguous(given.posteriors, y=labels, by="label", classes=given.classes)
    return rows[rows["kind"] == "suspect label"]


def _labels(
    given: Scored, suspects: pd.DataFrame, price: float | None, budget: float | None, level: float
) -> Option:
    """A wrong label that is put right moves from a small posterior to the largest one.

    Posteriors that are right leave some suspect labels too: what chance makes is not wrong.
    """
    P = given.posteriors
    amount = int(_affordable(price, budget, len(suspects)))
    rows = suspects["index"].to_numpy()[:amount]
    before = _brier(given)[rows]
    put_right = given.codes.copy()
    put_right[rows] = P[rows].argmax(axis=1)
    after = _brier(given._replace(codes=put_right))[rows]
    gain = float((before - after).sum()) / len(P)
    clear = P.max(axis=1, keepdims=True) >= CLEAR
    unlikely = clear & (P <= SUSPECT)
    by_chance = float(P.sum(where=unlikely))
    found = max(len(suspects), 1)
    share = max(1 - by_chance / found, 0.0)
    at_most = float(poisson.ppf((1 + level) / 2, by_chance))
    least = max(1 - at_most / found, 0.0)
    what = f"check {amount:,} suspect labels"
    cost = _cost(price, amount)
    return Option("labels", what, amount, cost, share * gain, least * gain, gain)


def _rows(
    limit: Limit | None, n: int, price: float | None, budget: float | None, level: float
) -> list[Option]:
    if limit is None:
        return []
    amount = n
    if price is not None and budget is not None:
        amount = int(budget / price)
    growth = (n + amount) / n
    size = float(limit.sizes[-1]) * growth  # training rows are a share of all rows
    curve = limit._pber_curve
    falls = curve.level - curve.at(size).means  # PBER(n) - PBER(size), for every curve
    order = np.argsort(falls)
    reached = curve.weights[order].cumsum()
    tail = (1 - level) / 2
    places = np.searchsorted(reached, [tail, 0.5, 1 - tail])
    low, likely, high = falls[order][places]
    if limit.state not in READABLE:  # such a curve may fall by all that is left
        low = 0.0
        high = float(limit.scores[-1])
    what = f"collect {amount:,} more rows"
    cost = _cost(price, amount)
    return [Option("rows", what, amount, cost, float(likely), float(low), float(high))]


def _columns(
    X: ArrayLike, given: Scored, costs: Mapping[Any, float] | None, level: float, seed: int
) -> list[Option]:
    """What keeping a column is worth: PBER would rise so much without it."""
    labels = given.classes[given.codes]
    found = column_value(None, X, labels, costs=costs, level=level, random_state=seed)
    options = []
    for row in found.table.to_dict("records"):
        what = f"keep the column {row['unit']}"
        cost = row.get("cost", np.nan)
        options.append(Option("column", what, 1, cost, row["needed"], row["low"], row["high"]))
    return options


def _merge(
    cm: CollisionMatrix | None, price: float | None, ordered: bool, level: float
) -> tuple[list[Option], dict[Any, str] | None, tuple[str, ...]]:
    """The first merge of the path, unless it is at chance level."""
    if cm is None or cm.n_classes < 3:
        return [], None, ()
    found = consolidate(cm, cm.n_classes - 1, ordered=ordered)
    step = found.path.iloc[1]
    if step["chance"]:
        return [], None, found.notes
    first, second = max(found.groups, key=len)
    gain = float(step["gain"])
    low = high = gain
    # The best of many pairs looks better than it is: all pairs are allowed for (Bonferroni).
    n_pairs = cm.n_classes * (cm.n_classes - 1) / 2
    interval = cm.interval(1 - (1 - level) / n_pairs)
    if interval is not None:
        names = cm.classes.tolist()
        i = names.index(first)
        j = names.index(second)
        low, high = (_both_ways(cm.priors, S, i, j) for S in interval)
    cost = _cost(price, 1)
    option = Option("merge", f"merge {first} with {second}", 1, cost, gain, low, high)
    return [option], found.mapping, ()


def _both_ways(priors: FloatArray, S: FloatArray, i: int, j: int) -> float:
    """B[i, j] + B[j, i], with B = diag(priors) S."""
    return float(priors[i] * S[i, j] + priors[j] * S[j, i])


def _votes(given: Scored, price: float | None, budget: float | None) -> Option:
    """Second votes on the most ambiguous rows: the share of the doubt that they would check."""
    n = len(given.codes)
    doubt = 1 - (given.posteriors**2).sum(axis=1)
    largest = np.sort(doubt)[::-1]
    most = max(n // 10, 1)
    if price is not None and budget is not None:
        most = n
    amount = int(_affordable(price, budget, most))
    share = 0.0
    if largest.sum() > 0:
        share = largest[:amount].sum() / largest.sum()
    what = f"ask for second votes on {amount:,} rows, which hold {share:.0%} of the doubt"
    cost = _cost(price, amount)
    return Option("votes", what, amount, cost, np.nan, np.nan, np.nan)


def _ranked(options: list[Option]) -> pd.DataFrame:
    table = pd.DataFrame(options)
    priced = table["cost"] > 0
    table["per_money"] = (table["fall"] / table["cost"]).where(priced)
    table.insert(0, "rank", table["per_money"].rank(ascending=False, method="first"))
    return table.sort_values("rank", kind="stable", na_position="last", ignore_index=True)
