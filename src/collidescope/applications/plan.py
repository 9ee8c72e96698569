"""What to do with the next euro: more rows, votes, labels, columns, or fewer classes?

Every option is judged by the fall of the PBER that it buys, with an interval, per unit of money.
Its numbers come from what the package says elsewhere::

    rows      the learning curve, continued (:class:`~collidescope.Limit`)
    labels    suspect labels, corrected, and models trained on them (:func:`ambiguous`)
    columns   the rise of PBER without a column (:func:`column_value`)
    merge     the PBER that merging classes removes (:func:`consolidate`)
    votes     measure the PBER, and do not lower it: shown without rank

The falls of different options do not add up, and a merge also gives something away: the two classes
are no longer told apart, which is what its price stands for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import poisson

from collidescope import _checks as check
from collidescope._checks import ArrayLike, FloatArray, Given, IntArray
from collidescope._text import READABLE
from collidescope.applications._inputs import (
    Classifier,
    Interval,
    Notes,
    Record,
    Result,
    Scored,
    check_rates,
    curve_of,
    linear_error,
    row_limit,
)
from collidescope.applications.audit import CLEAR, ambiguous, suspects_by_chance
from collidescope.applications.columns import ColumnValue, column_value, unit_prices
from collidescope.applications.consolidation import (
    ConsolidationPlan,
    Groupings,
    consolidate,
    group_name,
    level_of_choice,
)
from collidescope.equations.posterior import brier_scores
from collidescope.equations.power_law import Mixture
from collidescope.intervals import half_width
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


#: A note where rows have a price, but the fit was made without its range.
NO_RANGE = (
    "More rows cannot be judged without the range of what unlimited rows would leave: "
    "fit again with it."
)
#: A note where the posteriors do not say how sure the model is.
MISCALIBRATED = (
    "The posteriors are over- or under-confident, so that a suspect label may be a mistake of the "
    "model: what checking labels would bring is not to be relied on."
)


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
    notes: Notes = ()

    @property
    def best(self) -> str:
        """The first choice in one sentence."""
        row = self.table.iloc[0]
        if np.isnan(row["rank"]) and NO_RANGE in self.notes:
            return "No option with a price can be ranked."
        if np.isnan(row["rank"]):
            return "No option has a price: pass prices={'row': 0.1, 'label': 0.5, …}."
        if row["fall"] <= 0:
            return f"No priced option is expected to lower the PBER of {self.pber:.1%}."
        # Not capitalize(): names of classes stay as they are.
        name = row["what"]
        what = name[0].upper() + name[1:]
        fall = f"PBER {self.pber:.1%} would fall by about {_points(row)}"
        end = "." if row["low"] > 0 else "; it may not fall at all."
        return f"{what} for {row['cost']:,.6g}: {fall}{end}"

    @property
    def verdict(self) -> str:
        return self.best

    def _shown(self, most: int | None) -> pd.DataFrame:
        """The table as shown: falls in points, also per 100 units of money."""
        table = self.table
        columns = {
            "rank": _written(table["rank"], ".0f"),
            "what": table["what"],
            "cost": _written(table["cost"], ".3g"),
            "fall": _written(100 * table["fall"], ".2f"),
            "low": _written(100 * table["low"], ".2f"),
            "high": _written(100 * table["high"], ".2f"),
            "per 100": _written(100 * 100 * table["per_money"], ".3g"),
        }
        return pd.DataFrame(columns)[:most]

    def section(self) -> Record:
        """For ``sections=`` of :func:`~collidescope.report`, with a bar for every fall."""
        return super().section() | {"bars": self._bars()}

    def _bars(self) -> list[dict[Any, Any]]:
        """Falls and their intervals, on a scale from 0 to 1 that very wide ones leave."""
        shown = self.table[self.table["fall"].notna()]
        if shown.empty:
            return []
        start = min(shown["low"].min(), 0.0)
        end = min(shown["high"].max(), 2.5 * shown["fall"].max())
        end = max(end, start + 1e-9)
        bars = (shown[["fall", "low", "high"]] - start) / (end - start)
        bars = bars.clip(0, 1).assign(
            name=shown["what"],
            words=[_points(row) for row in shown.to_dict("records")],
            ranked=shown["rank"] > 0,
        )
        return bars.to_dict("records")

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the fall of every option with its interval, the best one on top."""
        import matplotlib.pyplot as plt

        if ax is None:
            _, ax = plt.subplots(layout="constrained")
        shown = self.table[self.table["fall"].notna()].iloc[::-1]
        fall, low, high = 100 * shown[["fall", "low", "high"]].to_numpy().T
        places = np.arange(len(shown))
        ax.errorbar(fall, places, xerr=[fall - low, high - fall], fmt="o", capsize=3)
        ax.set_yticks(places, shown["what"].tolist())
        ax.axvline(0.0, linewidth=0.8, color="0.7")
        ax.set_xlabel("fall of the PBER (points)")
        return ax


def _points(row: Mapping[Any, Any] | pd.Series) -> str:
    """A fall of the PBER with its interval."""
    fall, low, high = (100 * row[name] for name in ("fall", "low", "high"))
    return f"{fall:.2f} points ({low:.2f} to {high:.2f})"


def _written(numbers: pd.Series, form: str) -> pd.Series:
    """Numbers as text; nothing for those that are missing."""
    words = numbers.map(f"{{:{form}}}".format, na_action="ignore")
    return words.astype(object).where(numbers.notna(), "")


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
    money = _Money.checked(prices, budget)
    given = curve_of(clf, y)
    n = len(given.codes)
    limit: Limit | None = getattr(clf, "limit_", None)
    # Labels are judged row by row: where rows stand for another population, it is not theirs.
    suspects = _suspects(given)
    if row_limit(clf) is not limit:
        suspects = suspects[:0]
    money = money.or_budget(n, len(suspects))
    options = []
    if len(suspects):
        options.append(_labels(given, suspects, limit, money, level))
    if limit is not None:
        options.append(_rows(limit, n, money, level))
    if columns is None and X is not None:
        groups = getattr(clf, "groups_", None)
        columns = column_value(None, X, given.labels, groups=groups, level=level)
    if columns is not None:
        options += _columns(columns, money.columns)
    pber = float(brier_scores(given.posteriors, given.codes).mean())
    merges: list[ConsolidationPlan] = []
    notes: Notes = ()
    cm = getattr(clf, "collision_matrix_", None)
    if cm is not None:
        pber = cm.pber
        if ordered is None:
            ordered = getattr(clf, "class_order_", None)
        merges, notes = _merge_steps(cm, ordered or False)
    if limit is None and "row" in money.prices:
        notes = (*notes, NO_RANGE)
    if limit is not None and limit.state == "miscalibrated" and len(suspects):
        notes = (*notes, MISCALIBRATED)
    options += [_merged(found, money, level) for found in merges]
    options.append(_votes(given, money))
    table = _ranked(options)
    mapping = None
    # That of the merge that ranks first; without a price that of the first step.
    if merges:
        first = table[table["option"] == "merge"].iloc[0]
        mapping = merges[first["amount"] - 1].mapping
    return Plan(pber, money.budget, table, mapping, level, notes)


class _Money(NamedTuple):
    """What things cost, and what may be spent."""

    prices: Mapping[str, float]  #: of a row, a label, a vote, a merge
    columns: Mapping[Any, float]  #: name → cost
    budget: float | None

    @classmethod
    def checked(cls, given: Mapping[str, Any] | None, budget: float | None) -> _Money:
        if given is not None and not isinstance(given, Mapping):
            raise ValueError(
                f"prices must be a mapping such as {{'row': 0.1}}, got {type(given).__name__}"
            )
        prices = dict(given or {})
        columns = prices.pop("columns", {})
        for name in prices:
            check.check_choice(
                name, ["row", "label", "vote", "merge", "columns"], "prices"
            )
        for name, price in [*prices.items(), *columns.items()]:
            check.check_between(price, 0, np.inf, f"prices[{name!r}]")
        if budget is not None:
            check.check_at_least(budget, 0, "budget")
        return cls(prices, columns, budget)

    def or_budget(self, n: int, n_suspects: int) -> _Money:
        """With a default budget: it doubles the rows, or else checks all suspect labels."""
        amounts = {"row": n, "label": max(n_suspects, 1)}
        for what, amount in amounts.items():
            if self.budget is None and what in self.prices:
                return self._replace(budget=float(amount * self.prices[what]))
        return self

    def bought(self, what: str) -> int | None:
        """How many of a thing the budget buys; None where it has no price."""
        if what not in self.prices or self.budget is None:
            return None
        return int(self.budget / self.prices[what])

    def cost(self, what: str, amount: float) -> float:
        """The cost of ``amount`` of a thing; nan without a price."""
        return self.prices.get(what, np.nan) * amount


def _suspects(given: Scored) -> pd.DataFrame:
    """Rows whose label is suspect, the most suspect first."""
    rows = ambiguous(
        given.posteriors, y=given.labels, by="label", classes=given.classes
    )
    return rows[rows["kind"] == "suspect label"]


def _labels(
    given: Scored,
    suspects: pd.DataFrame,
    limit: Limit | None,
    money: _Money,
    level: float,
) -> Option:
    """A wrong label that is corrected moves from a small posterior to the largest one.

    Posteriors alone cannot tell wrong labels from rare ones. At least those are wrong that chance
    does not explain, at most all; most likely, labels are wrong as often as on the clearest rows
    (anchor points, which belong to a class almost surely), where every unlikely label is wrong.

    Right labels also train better models. The posteriors of a linear smoother H are H c; a label
    that moves by Δ, ‖Δ‖² = 2, moves the loss of the other rows by 2 h, h = Σ_k H_ki². As the noise
    of all labels makes the excess, h is about its ratio to what unlimited rows leave. It is at
    most 1, for the nearest neighbour.
    """
    P = given.posteriors
    n = len(P)
    amount = len(suspects)
    bought = money.bought("label")
    if bought is not None:
        amount = min(amount, bought)
    rows = suspects["index"].to_numpy()[:amount]
    before = brier_scores(P[rows], given.codes[rows])
    gains = (before - brier_scores(P[rows], P[rows].argmax(axis=1))) / n
    training_gain = 2 / n  # of a label, times h
    with_training = gains + _excess_ratio(limit) * training_gain
    beyond_chance, surely = _beyond_chance(given, len(suspects), level)
    likely = float(_wrong_chances(given, rows) @ with_training)
    all_of_it = float(brier_scores(P, given.codes).mean())
    return Option(
        "labels",
        f"check {amount:,} suspect label{'' if amount == 1 else 's'}",
        amount,
        money.cost("label", amount),
        fall=min(max(likely, beyond_chance * float(with_training.sum())), all_of_it),
        low=min(surely * float(gains.sum()), all_of_it),
        high=min(float((gains + training_gain).sum()), all_of_it),
    )


def _beyond_chance(given: Scored, found: int, level: float) -> Interval:
    """Shares of the suspect labels that chance does not explain: on average, and at least."""
    by_chance = suspects_by_chance(given.posteriors)
    most_by_chance = float(poisson.ppf((1 + level) / 2, by_chance))
    return max(1 - by_chance / found, 0.0), max(1 - most_by_chance / found, 0.0)


def _wrong_chances(given: Scored, rows: IntArray, clearest: float = 0.25) -> FloatArray:
    """The chance of every row's label l to be wrong: w_l / p_l(x).

    w_l, the share of rows of other classes that are labelled l by mistake, is the mean of p_l over
    the clearest of them.
    """
    P = given.posteriors
    largest = P.max(axis=1)
    bound = np.quantile(largest[largest >= CLEAR], 1 - clearest)
    anchors = P[largest >= bound]
    of_others = anchors.argmax(axis=1)[:, None] != np.arange(P.shape[1])
    counts = of_others.sum(axis=0)
    w = anchors.sum(axis=0, where=of_others) / np.maximum(counts, 1)
    w[counts == 0] = 1.0  # no such row to learn it from: at most all are wrong
    labels = given.codes[rows]
    return np.minimum(w[labels] / np.maximum(P[rows, labels], 1e-12), 1.0)


def _excess_ratio(limit: Limit | None) -> float:
    """What more rows would take off the PBER, to what they would leave: 0 to 1."""
    if limit is None:
        return 0.0
    left = limit._pber_curve.at().quantile(0.5)
    excess = max(float(limit.scores[-1]) - left, 0.0)
    return 1.0 if excess >= left else excess / left


def _rows(limit: Limit, n: int, money: _Money, level: float) -> Option:
    amount = money.bought("row")
    if amount is None:
        amount = n
    # training rows are a share of all rows
    size = float(limit.sizes[-1]) * (n + amount) / n
    curve = limit._pber_curve
    falls = curve.level - curve.at(size).means  # PBER(n) - PBER(size), for every curve
    # Which rows are drawn moves the models too, about as much as it did in the last doubling.
    _, deviation = limit._contrast([1.0, -1.0])
    expected = Mixture(curve.weights, falls, np.full_like(falls, max(deviation, 1e-9)))
    low, middle, high = (
        expected.quantile(chance, least=-1.0)
        for chance in ((1 - level) / 2, 0.5, (1 + level) / 2)
    )
    if limit.state not in READABLE:  # such a curve may fall by all that is left
        low = min(low, 0.0)
        high = float(limit.scores[-1])
    return Option(
        "rows",
        f"collect {amount:,} more rows",
        amount,
        money.cost("row", amount),
        fall=middle,
        low=low,
        high=high,
    )


def _columns(found: ColumnValue, costs: Mapping[Any, float]) -> list[Option]:
    """What keeping a column is worth: PBER would rise so much without it."""
    units = dict(zip(found.table["unit"], found.table["columns"], strict=True))
    prices = unit_prices(costs, units, "prices['columns']")
    options = []
    for unit in found.table.to_dict("records"):
        cost = prices.get(unit["unit"], np.nan)
        what = f"keep the column {unit['unit']}"
        rise = (unit["needed"], unit["low"], unit["high"])
        options.append(Option("column", what, 1, cost, *rise))
    return options


def _merge_steps(
    cm: CollisionMatrix, ordered: bool | Sequence[Any], most: int = 3
) -> tuple[list[ConsolidationPlan], Notes]:
    """The first steps of merging, up to one at chance level; notes where that is the first."""
    path = consolidate(cm, ordered=ordered)
    steps: list[ConsolidationPlan] = []
    fewest = max(cm.n_classes - most, 2)
    for n_groups in range(cm.n_classes - 1, fewest - 1, -1):
        found = path.at(n_groups)
        if found.notes:
            return steps, () if steps else found.notes
        steps.append(found)
    return steps, ()


def _merged(found: ConsolidationPlan, money: _Money, level: float) -> Option:
    """The PBER that a grouping removes: Σ of B over classes that become one."""
    cm = found.source
    amount = cm.n_classes - found.n_groups
    fall = cm.pber - found.matrix.pber
    low, high = _merged_interval(cm, found.groupings[amount], fall, level)
    names = [group_name(group) for group in found.groups if len(group) > 1]
    what = f"merge {' and '.join(names)}"
    return Option("merge", what, amount, money.cost("merge", amount), fall, low, high)


def _merged_interval(
    cm: CollisionMatrix, grouping: Groupings, fall: float, level: float
) -> Interval:
    """The interval of the PBER that a grouping removes, as far as errors are known.

    The best of many pairs looks better than it is: see :func:`level_of_choice`.
    """
    k = cm.n_classes
    merges = k - int(grouping.max()) - 1
    level = level_of_choice(level, k, merges)
    together = grouping[:, None] == grouping
    np.fill_diagonal(together, False)
    if cm.covariance is not None:
        gradient = 2.0 * together[np.triu_indices(k)]
        stderr = linear_error(gradient, cm.covariance)
        rows = None if cm.counts is None else cm.counts.sum()
        half = float(half_width(stderr, rows, level, cm.n_units))
        return max(fall - half, 0.0), min(fall + half, 1.0)
    ends = cm.interval(level)
    if ends is None:
        return fall, fall
    low, high = (float((cm.priors @ (together * end)).sum()) for end in ends)
    return low, high


def _votes(given: Scored, money: _Money) -> Option:
    """Second votes on the most ambiguous rows, and their share of the expected disagreement."""
    n = len(given.codes)
    agreement = (given.posteriors**2).sum(axis=1)
    largest = np.sort(1 - agreement)[::-1]
    amount = max(n // 10, 1)
    bought = money.bought("vote")
    if bought is not None:
        amount = min(n, bought)
    share = largest[:amount].sum() / (largest.sum() or 1.0)
    what = f"second votes on {amount:,} rows ({share:.0%} of all ambiguity)"
    cost = money.cost("vote", amount)
    return Option("votes", what, amount, cost, np.nan, np.nan, np.nan)


def _ranked(options: list[Option]) -> pd.DataFrame:
    table = pd.DataFrame(options)
    priced = table["cost"] > 0
    table["per_money"] = (table["fall"] / table["cost"]).where(priced)
    table.insert(0, "rank", table["per_money"].rank(ascending=False, method="first"))
    return table.sort_values(
        "rank", kind="stable", na_position="last", ignore_index=True
    )
