"""Is the plan right? Every option of it is bought for real.

Samples of problems with known truth, 5% of whose labels are wrong, and three budgets. More rows are
drawn, suspect labels get their true class, a column is taken away, classes are merged, and the same
learner is fitted again. Falls of the PBER are measured on fresh rows, that of checked labels on the
rows themselves, with the same folds: the plan speaks of these. The PBER of fresh rows says as well
how many rows it took to get there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.ensemble import ExtraTreesClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from collidescope import CollisionClassifier
from collidescope.applications import ambiguous, column_value, consolidate
from collidescope.applications.plan import plan
from collidescope.limit import Limit
from studies import known
from studies.markdown import columns, table
from studies.measures import Array, Rng, brier_score
from studies.problems import FRESH
from studies.store import Cell, Record, Result, Study, product, results

PROBLEMS = {
    "Scenario A3": partial(known.scenario_a, 3),
    "Scenario A5": partial(known.scenario_a, 5),
    "ring": known.ring,
    "LED": known.led,
    "tree teacher": partial(known.tree_teacher, n_features=5),
    "Friedman-like": partial(known.friedman, n_features=6),
    "heavy-tailed": known.heavy_tailed,
    "MLP teacher": partial(known.mlp_teacher, n_features=6),
}
for fresh in ("additive", "log-normal", "ratios", "steps", "categories", "bumps"):
    PROBLEMS[fresh] = FRESH[fresh]
BUDGETS = (150, 600, 2400)  #: in units of the price of a row
WRONG = 0.05  #: share of wrong labels
LABEL = 10.0  #: the price of checking a label, in units of the price of a row
MERGE = 3.0  #: the price of a merge, in budgets; a column costs one budget
SEEDS = (2, 3)  #: samples of every problem; the predictions were repaired on 0 and 1
#: What the plan says of an option.
SAID = ["rank", "option", "what", "amount", "cost", "fall", "low", "high"]
Bought = dict[str, Any]


# ---------------------------------------------------------------- every option, bought


def learner() -> BaseEstimator:
    """What the plan and the purchases are judged with: linear and not, and less than a second."""
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))
    trees = ExtraTreesClassifier(
        50, min_samples_leaf=4, max_features=None, random_state=0
    )
    return VotingClassifier([("linear", linear), ("trees", trees)], voting="soft")


def with_wrong(y: Array, k: int, rng: Rng) -> Array:
    """A share of the labels replaced by another class."""
    moved = (y + rng.integers(1, k, len(y))) % k
    return np.where(rng.random(len(y)) < WRONG, moved, y)


Splits = list[tuple[Array, Array]]


def folds(y: Array, seed: int = 0) -> Splits:
    splitter = StratifiedKFold(5, shuffle=True, random_state=seed)
    return list(splitter.split(y[:, None], y))


def held_out_score(X: Array, y: Array, splits: Splits) -> float:
    """Brier score of the rows themselves, by models that did not see them."""
    total = 0.0
    for train, test in splits:
        model = learner().fit(X[train], y[train])
        total += len(test) * brier_score(model.predict_proba(X[test]), y[test])
    return total / len(y)


@dataclass
class Market:
    """Rows of a problem, the first ``n`` of them at hand, and fresh ones to score models with."""

    X: Array
    y: Array
    true: Array
    fresh_X: Array
    fresh_y: Array
    n: int

    @classmethod
    def of(cls, name: str, seed: int, n: int = 600, n_fresh: int = 10_000) -> Market:
        rng = np.random.default_rng([seed, *name.encode()])
        n_all = n + max(BUDGETS)
        problem = PROBLEMS[name]()
        X, true = problem.sample(n_all + n_fresh, rng, stratified=False)
        X = X.astype(np.float64)
        y = with_wrong(true, int(true.max()) + 1, rng)
        rows = (X[:n_all], y[:n_all], true[:n_all])
        return cls(*rows, X[n_all:], y[n_all:], n)

    @property
    def own(self) -> tuple[Array, Array]:
        return self.X[: self.n], self.y[: self.n]

    def posteriors(self, n: int, without: tuple[int, ...] = ()) -> list[Array]:
        """Of fresh rows by the model of every fold, trained on n rows without some columns."""
        X = np.delete(self.X[:n], without, axis=1)
        y = self.y[:n]
        fresh = np.delete(self.fresh_X, without, axis=1)
        found = []
        for train, _ in folds(y):
            model = learner().fit(X[train], y[train])
            found.append(model.predict_proba(fresh))
        return found

    def score(self, posteriors: list[Array], groups: Array | None = None) -> float:
        """Mean Brier score on fresh rows, of classes or of groups of them."""
        y = self.fresh_y
        if groups is not None:
            member = np.eye(groups.max() + 1)[groups]
            posteriors = [P @ member for P in posteriors]
            y = groups[y]
        return float(np.mean([brier_score(P, y) for P in posteriors]))

    def after_checking(self, rows: Array, repeats: int = 3) -> float:
        """The fall of the PBER of these very rows when some of their labels are put right.

        With the same folds before and after, as new ones alone move the PBER by 0.2 points.
        """
        X, y = self.own
        checked = y.copy()
        checked[rows] = self.true[rows]
        falls = []
        for seed in range(repeats):
            splits = folds(y, seed)
            before = held_out_score(X, y, splits)
            falls.append(before - held_out_score(X, checked, splits))
        return float(np.mean(falls))


def bought(problem: str, seed: int) -> list[Bought]:
    """What the plan says of every option at every budget, and what it really bought."""
    market = Market.of(problem, seed)
    X, y = market.own
    clf = CollisionClassifier(members=[learner()], random_state=0).fit(X, y)
    values = column_value(learner(), X, y, cv=folds(y))
    models = market.posteriors(market.n)
    now = market.score(models)
    falls = {}  # of columns: the same at every budget
    for unit in values.table.to_dict("records"):
        without = market.posteriors(market.n, tuple(unit["columns"]))
        falls[f"keep the column {unit['unit']}"] = market.score(without) - now
    merging = consolidate(clf.collision_matrix_)
    rows = ambiguous(clf.posteriors_, y=y, by="label")
    suspects = rows[rows["kind"] == "suspect label"]["index"].to_numpy()

    def really(option: dict[str, Any]) -> Bought:
        amount = int(option["amount"])
        match option["option"]:
            case "rows":
                later = market.score(market.posteriors(market.n + amount))
                needed = rows_for(clf.limit_, now, later, 1 + amount / market.n)
                return {"real": now - later} | needed
            case "labels":
                return {"real": market.after_checking(suspects[:amount])}
            case "merge":
                groups = np.asarray(merging.groupings[amount])
                return {"real": now - market.score(models, groups)}
        return {"real": falls[option["what"]]}

    found = []
    for budget in BUDGETS:
        columns = dict.fromkeys(range(X.shape[1]), float(budget))
        prices = {"row": 1.0, "label": LABEL, "merge": MERGE * budget}
        prices["columns"] = columns
        table = plan(clf, prices=prices, budget=budget, columns=values).table
        ranked = table[table["rank"].notna()]
        for option in ranked[SAID].to_dict("records"):
            found.append({"budget": budget} | option | really(option))
    return found


def rows_for(limit: Limit, now: float, later: float, growth: float) -> Bought:
    """What ``rows_needed`` says of the PBER that so many times the rows led to."""
    needed = float(limit.sizes[-1])
    if later < now:
        needed *= growth
    said = limit.rows_needed(later)
    found = {"needed": needed, "needed_low": said.low, "needed_high": said.high}
    for name in ("needed_low", "needed_high"):
        if not np.isfinite(found[name]):
            found[name] = None
    return found


def first_choices(options: pd.DataFrame) -> pd.DataFrame:
    """Per plan: what it puts first, the best option, and the regret as a share of its gain."""
    table = options.assign(worth=options["real"] / options["cost"])
    plans = table.groupby(["problem", "seed", "budget"])
    first = table.loc[plans["rank"].idxmin()]
    best = table.loc[plans["worth"].idxmax()]
    gain = best["worth"].to_numpy()
    regret = (gain - first["worth"].clip(lower=0)) / gain
    return first.assign(
        first=first["option"],
        best=best["option"].to_numpy(),
        regret=np.where(gain > 0, regret, 0.0),
    )


def cells(quick: bool) -> list[Cell]:
    names = PROBLEMS
    if quick:
        names = ["ring"]
    return product(part=["bought"], seed=SEEDS, problem=names)


def run(cell: Cell) -> Result:
    return {"options": bought(cell["problem"], cell["seed"])}


def within(table: pd.DataFrame, what: str, low: str, high: str) -> float:
    return ((table[low] <= table[what]) & (table[what] <= table[high])).mean()


OPTIONS = """
option | {option}
bought | {bought}
fall predicted, points | {fall:.2f}
real fall | {real:.2f}
in its interval | {held:.0%}
first choice | {first}
really best | {best}
"""


def text(records: list[Record]) -> str:
    """Coverage and regret of what was bought."""
    options = pd.DataFrame(
        record["cell"] | option
        for record in records
        for option in record["result"]["options"]
    )
    choices = first_choices(options)
    # The same purchase may be an option at several budgets.
    every = options.drop_duplicates(["problem", "seed", "what"])
    rows = []
    for kind, own in every.groupby("option"):
        row = {"option": kind, "bought": len(own)}
        row["fall"] = 100 * own["fall"].mean()
        row["real"] = 100 * own["real"].mean()
        row["held"] = within(own, "real", "low", "high")
        row["first"] = (choices["first"] == kind).sum()
        row["best"] = (choices["best"] == kind).sum()
        rows.append(row)
    return f"{columns(OPTIONS, rows)}\n\n{claims_table(every, choices)}"


def claims_table(every: pd.DataFrame, choices: pd.DataFrame) -> str:
    by_sample = choices.groupby(["problem", "seed"])["regret"].mean()
    regret = f"{by_sample.mean():.1%} ± {by_sample.sem():.1%}"
    means = choices.groupby("budget")["regret"].mean()
    by_budget = ", ".join(f"{mean:.1%} at {budget}" for budget, mean in means.items())
    held = within(every, "real", "low", "high")
    more = every[every["option"] == "rows"].fillna(np.inf)
    enough = within(more, "needed", "needed_low", "needed_high")
    open_ended = np.isinf(more["needed_high"]).mean()
    first = "regret of the first choice, share of the best option's gain"
    needed = "`rows_needed` holds the rows that led to the PBER of fresh rows"
    plans = f"{regret} (standard error), {len(choices)} plans ({by_budget})"
    rows = [
        [first, plans],
        ["falls in their intervals", f"{held:.1%} of {len(every)}"],
        [needed, f"{enough:.1%} of {len(more)}; no upper end in {open_ended:.0%}"],
    ]
    return table("claim | measured", rows)


def page_tables() -> dict[str, str]:
    return {"plan": text(results("plan"))}


STUDY = Study(
    "plan", "Is the plan right? Every option bought for real", cells, run, text
)
