"""Is the plan right? Every option is bought for real; rows needed, judges and ordered classes too.

*Bought*: samples of problems with known truth, 5% of whose labels are wrong, and three budgets. More
rows are drawn, suspect labels get their true class, a column is taken away, classes are merged, and
the same learner is fitted again. Falls of the PBER are measured on fresh rows, that of checked
labels on the rows themselves, with the same folds: the plan speaks of these.

*Rows needed*: how many rows the PBER of fresh rows took when more were bought; the recorded curves
of the study ``limit`` without their last size; targets that no number of rows reaches. *Judges*:
the votes of Fashion-MNIST-H. *Ordered*: an ordinal probit, whose expected distance is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import multivariate_normal, norm
from sklearn.base import BaseEstimator
from sklearn.ensemble import ExtraTreesClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from collidescope import CollisionClassifier
from collidescope.applications import ambiguous, column_value, consolidate
from collidescope.applications.judges import compare_judges
from collidescope.applications.ordered import expected_distance
from collidescope.applications.plan import plan
from collidescope.limit import Limit
from collidescope.onestep import collision_matrix_from_posteriors
from studies import known
from studies.accuracy.limit import without_last_size
from studies.markdown import table
from studies.measures import brier_score
from studies.problems import FRESH, drawn
from studies.real_data import load_fashion_votes
from studies.store import Cell, Record, Result, Study, results, runs

PROBLEMS: dict[str, Callable[[], known.Problem]] = {
    "Scenario A3": lambda: known.scenario_a(3),
    "Scenario A5": lambda: known.scenario_a(5),
    "ring": known.ring,
    "LED": known.led,
    "tree teacher": lambda: known.tree_teacher(n_features=5),
    "Friedman-like": lambda: known.friedman(n_features=6),
    "heavy-tailed": known.heavy_tailed,
    "MLP teacher": lambda: known.mlp_teacher(n_features=6),
    "additive": FRESH["additive"],
    "log-normal": FRESH["log-normal"],
    "ratios": FRESH["ratios"],
    "steps": FRESH["steps"],
    "categories": FRESH["categories"],
    "bumps": FRESH["bumps"],
}
BUDGETS = (150, 600, 2400)  #: in units of the price of a row
WRONG = 0.05  #: share of wrong labels
LABEL = 10.0  #: the price of checking a label, in units of the price of a row
MERGE = 3.0  #: the price of a merge, in budgets; a column costs one budget
SEEDS = (2, 3)  #: samples of every problem; the predictions were repaired on 0 and 1
Bought = dict[str, Any]


# ---------------------------------------------------------------- every option, bought


def learner() -> BaseEstimator:
    """What the plan and the purchases are judged with: linear and not, and less than a second."""
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))
    trees = ExtraTreesClassifier(
        50, min_samples_leaf=4, max_features=None, random_state=0
    )
    return VotingClassifier([("linear", linear), ("trees", trees)], voting="soft")


def with_wrong(y: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """A share of the labels replaced by another class."""
    moved = (y + rng.integers(1, k, len(y))) % k
    return np.where(rng.random(len(y)) < WRONG, moved, y)


Splits = list[tuple[np.ndarray, np.ndarray]]


def folds(y: np.ndarray, seed: int = 0) -> Splits:
    splitter = StratifiedKFold(5, shuffle=True, random_state=seed)
    return list(splitter.split(y[:, None], y))


def held_out_score(X: np.ndarray, y: np.ndarray, splits: Splits) -> float:
    """Brier score of the rows themselves, by models that did not see them."""
    total = 0.0
    for train, test in splits:
        model = learner().fit(X[train], y[train])
        total += len(test) * brier_score(model.predict_proba(X[test]), y[test])
    return total / len(y)


@dataclass
class Market:
    """Rows of a problem, the first ``n`` of them at hand, and fresh ones to score models with."""

    X: np.ndarray
    y: np.ndarray
    true: np.ndarray
    fresh_X: np.ndarray
    fresh_y: np.ndarray
    n: int

    @classmethod
    def of(cls, name: str, seed: int, n: int = 600, n_fresh: int = 10_000) -> Market:
        rng = np.random.default_rng([seed, *name.encode()])
        n_all = n + max(BUDGETS)
        X, true = PROBLEMS[name]().sample(n_all + n_fresh, rng, stratified=False)
        y = with_wrong(true, int(true.max()) + 1, rng)
        X = np.asarray(X, dtype=np.float64)
        return cls(X[:n_all], y[:n_all], true[:n_all], X[n_all:], y[n_all:], n)

    @property
    def own(self) -> tuple[np.ndarray, np.ndarray]:
        return self.X[: self.n], self.y[: self.n]

    def posteriors(self, n: int, without: tuple[int, ...] = ()) -> list[np.ndarray]:
        """Of fresh rows by the model of every fold, trained on n rows without some columns."""
        X = np.delete(self.X[:n], without, axis=1)
        y = self.y[:n]
        fresh = np.delete(self.fresh_X, without, axis=1)
        models = [learner().fit(X[train], y[train]) for train, _ in folds(y)]
        return [model.predict_proba(fresh) for model in models]

    def score(
        self, posteriors: list[np.ndarray], groups: np.ndarray | None = None
    ) -> float:
        """Mean Brier score on fresh rows, of classes or of groups of them."""
        y = self.fresh_y
        if groups is not None:
            member = np.eye(groups.max() + 1)[groups]
            posteriors = [P @ member for P in posteriors]
            y = groups[y]
        return float(np.mean([brier_score(P, y) for P in posteriors]))

    def after_checking(self, rows: np.ndarray, repeats: int = 3) -> float:
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
    units = zip(values.table["unit"], values.table["columns"], strict=True)
    for unit, columns in units:
        without = market.posteriors(market.n, tuple(columns))
        falls[f"keep the column {unit}"] = market.score(without) - now
    merging = consolidate(clf.collision_matrix_)
    rows = ambiguous(clf.posteriors_, y=y, by="label")
    suspects = rows[rows["kind"] == "suspect label"]["index"].to_numpy()
    found = []
    for budget in BUDGETS:
        prices: dict[str, Any] = {"row": 1.0, "label": LABEL, "merge": MERGE * budget}
        prices["columns"] = dict.fromkeys(range(X.shape[1]), float(budget))
        table = plan(clf, prices=prices, budget=budget, columns=values).table
        for option in table[table["rank"].notna()].to_dict("records"):
            names = ("rank", "option", "what", "amount", "cost", "fall", "low", "high")
            said = {"budget": budget} | {name: option[name] for name in names}
            amount = int(option["amount"])
            if option["option"] == "rows":
                later = market.score(market.posteriors(market.n + amount))
                said["real"] = now - later
                said |= rows_for(clf.limit_, now, later, 1 + amount / market.n)
            elif option["option"] == "labels":
                said["real"] = market.after_checking(suspects[:amount])
            elif option["option"] == "merge":
                groups = np.asarray(merging.groupings[amount])
                said["real"] = now - market.score(models, groups)
            else:
                said["real"] = falls[option["what"]]
            found.append(said)
    return found


def rows_for(limit: Limit, now: float, later: float, growth: float) -> Bought:
    """What ``rows_needed`` says of the PBER that so many times the rows led to."""
    needed = float(limit.sizes[-1])
    if later < now:
        needed *= growth
    said = limit.rows_needed(later)
    ends = [end if np.isfinite(end) else None for end in (said.low, said.high)]
    return {"needed": needed, "needed_low": ends[0], "needed_high": ends[1]}


def first_choices(rows: list[Bought]) -> pd.DataFrame:
    """Per plan: what it puts first, the best option, and the regret as a share of its gain."""
    table = pd.DataFrame(rows)
    table["worth"] = table["real"] / table["cost"]
    found = []
    for (problem, seed, budget), one in table.groupby(["problem", "seed", "budget"]):
        chosen = one.loc[one["rank"].idxmin()]
        best = one.loc[one["worth"].idxmax()]
        regret = 0.0
        if best["worth"] > 0:
            regret = (best["worth"] - max(chosen["worth"], 0.0)) / best["worth"]
        plan_of = {"sample": f"{problem} {seed}", "budget": budget}
        options = {"first": chosen["option"], "best": best["option"]}
        found.append({**plan_of, **options, "regret": regret})
    return pd.DataFrame(found)


# ---------------------------------------------------------------- rows needed


def cut(run: Result) -> Result | None:
    """What a recorded curve without its last size says of the rows for the PBER found there."""
    whole = Limit.from_dict(run["curve"])
    if len(whole.sizes) < 4:
        return None
    known_part = without_last_size(whole)
    target = float(whole.scores[-1])
    reached = whole.sizes[whole.scores <= target][
        0
    ]  # a curve that rose was there before
    found = known_part.rows_needed(target)
    return {
        "problem": run["problem"],
        "needed": float(reached),
        "low": found.low,
        "high": found.high,
        "state": known_part.state,
        "near": whole.scores[-2] - target < whole.stderr,
    }


def out_of_reach(run: Result, share: float = 0.9) -> dict[str, bool]:
    """What a recorded curve says of a target below the true PBER."""
    limit = Limit.from_dict(run["curve"])
    said = limit.rows_needed(share * run["truth"])
    return {"open": np.isinf(said.high), "unlikely": np.isinf(said.likely)}


def rows_part() -> Result:
    recorded = runs("limit")
    every = [found for found in map(cut, recorded) if found is not None]
    held = [run["low"] <= run["needed"] <= run["high"] for run in every]
    open_ended = [np.isinf(run["high"]) for run in every]
    open_near = [np.isinf(run["high"]) for run in every if run["near"]]
    fell = [
        run
        for run in every
        if run["needed"] > run["low"] and run["state"] != "hardly begun"
    ]
    width = [run["high"] / run["low"] for run in fell if np.isfinite(run["high"])]
    never = [out_of_reach(run) for run in recorded]
    return {
        "curves": len(every),
        "held": float(np.mean(held)),
        "no upper end": float(np.mean(open_ended)),
        "no upper end near": float(np.mean(open_near)),
        "near": len(open_near),
        "width": float(np.median(width)),
        "out of reach": len(never),
        "said open": float(np.mean([said["open"] for said in never])),
        "said unlikely": float(np.mean([said["unlikely"] for said in never])),
    }


# ---------------------------------------------------------------- judges


def judges(samples: int = 100, flipped: float = 0.1) -> Result:
    """A vote taken from every item as the judge: as it is, then with some of a class moved."""
    _, votes = load_fashion_votes()
    rng = np.random.default_rng(1)
    n, k = votes.shape
    passed, wrong_pairs, found = [], [], []
    for number in range(samples):
        said = drawn(votes / votes.sum(axis=1, keepdims=True), rng)
        rest = votes - np.eye(k, dtype=votes.dtype)[said]
        report = compare_judges(rest, said)
        passed.append(report.passes("judge"))
        wrong_pairs.append(bool(report.pairs["flagged"].any()))
        one = number % k
        moved = (said == one) & (rng.random(n) < flipped)
        worse = np.where(moved, (one + rng.integers(1, k, n)) % k, said)
        found.append(not compare_judges(rest, worse).passes("judge"))
    return {
        "items": n,
        "samples": samples,
        "passed": float(np.mean(passed)),
        "pairs flagged": float(np.mean(wrong_pairs)),
        "found": float(np.mean(found)),
    }


# ---------------------------------------------------------------- ordered classes


def ordered(samples: int = 1000, n: int = 400) -> Result:
    """An ordinal probit: label = thresholds below x + N(0, 1), x ~ N(0, spread²)."""
    thresholds = np.array([-1.0, 0.0, 1.0])
    spread = 1.5
    total = np.hypot(spread, 1)
    rho = spread**2 / total**2
    both = multivariate_normal([0, 0], [[1, rho], [rho, 1]])
    # Two labels lie on different sides of t with probability 2 (Φ(t) - Φ₂(t, t)).
    truth = sum(2 * (norm.cdf(t) - both.cdf([t, t])) for t in thresholds / total)
    rng = np.random.default_rng(0)
    edges = np.concatenate([[-np.inf], thresholds, [np.inf]])
    values, held = [], []
    for _ in range(samples):
        x = spread * rng.standard_normal(n)
        P = np.diff(norm.cdf(edges - x[:, None]), axis=1)
        found = expected_distance(collision_matrix_from_posteriors(P, drawn(P, rng)))
        values.append(found.value)
        held.append(found.low <= truth <= found.high)
    return {
        "samples": samples,
        "truth": float(truth),
        "mean": float(np.mean(values)),
        "stderr": float(np.std(values) / np.sqrt(samples)),
        "held": float(np.mean(held)),
    }


# ---------------------------------------------------------------- the study

PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "rows needed": rows_part,
    "judges": judges,
    "ordered": ordered,
}


def cells(quick: bool) -> list[Cell]:
    if quick:
        return [{"part": "ordered"}]
    every: list[Cell] = [{"part": name} for name in PARTS]
    for seed in SEEDS:
        every += [
            {"part": "bought", "problem": name, "seed": seed} for name in PROBLEMS
        ]
    return every


def run(cell: Cell) -> Result:
    if cell["part"] != "bought":
        return PARTS[cell["part"]]()
    return {"options": bought(cell["problem"], cell["seed"])}


def bought_rows(records: list[Record]) -> list[Bought]:
    rows = []
    for record in records:
        cell = record["cell"]
        if cell["part"] == "bought":
            about = {"problem": cell["problem"], "seed": cell["seed"]}
            rows += [about | option for option in record["result"]["options"]]
    return rows


def within(table: pd.DataFrame, what: str, low: str, high: str) -> pd.Series:
    return (table[low] <= table[what]) & (table[what] <= table[high])


def text(records: list[Record]) -> str:
    """Coverage and regret of what was bought, and the other claims."""
    rows = bought_rows(records)
    other = {record["cell"]["part"]: record["result"] for record in records}
    parts = []
    claims = []
    if rows:
        choices = first_choices(rows)
        # The same purchase may be an option at several budgets.
        every = pd.DataFrame(rows).drop_duplicates(["problem", "seed", "what"])
        parts.append(options_table(every, choices))
        claims += plan_claims(every, choices)
    if "rows needed" in other:
        claims += rows_claims(other["rows needed"])
    if "judges" in other:
        claims += judge_claims(other["judges"])
    if "ordered" in other:
        claims.append(ordered_claim(other["ordered"]))
    parts.append(table(["claim", "measured"], claims))
    return "\n\n".join(parts)


def options_table(every: pd.DataFrame, choices: pd.DataFrame) -> str:
    head = ["option", "bought", "fall predicted, points", "real fall"]
    head += ["in its interval", "first choice", "really best"]
    lines = []
    for kind, own in every.groupby("option"):
        held = within(own, "real", "low", "high").mean()
        line = [str(kind), str(len(own))]
        line += [f"{100 * own[name].mean():.2f}" for name in ("fall", "real")]
        line.append(f"{held:.0%}")
        line += [str((choices[name] == kind).sum()) for name in ("first", "best")]
        lines.append(line)
    return table(head, lines)


def plan_claims(every: pd.DataFrame, choices: pd.DataFrame) -> list[list[str]]:
    by_sample = choices.groupby("sample")["regret"].mean()
    regret = f"{by_sample.mean():.1%} ± {by_sample.sem():.1%}"
    means = choices.groupby("budget")["regret"].mean()
    by_budget = ", ".join(f"{mean:.1%} at {budget}" for budget, mean in means.items())
    held = within(every, "real", "low", "high").mean()
    claims = [
        [
            "regret of the first choice, share of the best option's gain",
            f"{regret} (standard error), {len(choices)} plans ({by_budget})",
        ],
        ["falls in their intervals", f"{held:.1%} of {len(every)}"],
    ]
    if "needed" in every:
        more = every[every["option"] == "rows"].fillna(np.inf)
        held = within(more, "needed", "needed_low", "needed_high").mean()
        open_ended = np.isinf(more["needed_high"]).mean()
        measured = f"{held:.1%} of {len(more)}; no upper end in {open_ended:.0%}"
        claims.append(
            [
                "`rows_needed` holds the rows that led to the PBER of fresh rows",
                measured,
            ]
        )
    return claims


def rows_claims(found: Result) -> list[list[str]]:
    open_ended = f"no upper end in {found['no upper end']:.0%}"
    open_near = (
        f"{found['no upper end near']:.0%} of the {found['near']} targets within a "
        "standard error of the PBER"
    )
    held = f"{found['held']:.1%} of {found['curves']}; {open_ended}, {open_near}"
    never = (
        f"{found['said open']:.1%} of {found['out of reach']}; called out of reach in "
        f"{found['said unlikely']:.0%}"
    )
    return [
        [
            "`rows_needed` from curves without their last size holds the rows found",
            held,
        ],
        ["a target that no number of rows reaches has no upper end", never],
    ]


def judge_claims(found: Result) -> list[list[str]]:
    passed = f"{found['passed']:.0%} of {found['samples']}"
    return [
        ["a human vote of Fashion-MNIST-H passes as a judge", passed],
        ["any class or pair flagged wrongly", f"{found['pairs flagged']:.0%}"],
        ["10% of one class moved: found", f"{found['found']:.0%}"],
    ]


def ordered_claim(found: Result) -> list[str]:
    return [
        "expected distance of an ordinal probit",
        (
            f"{found['mean']:.4f} ± {found['stderr']:.4f}, closed form "
            f"{found['truth']:.4f}; {found['held']:.1%} of {found['samples']} intervals "
            "hold it"
        ),
    ]


def page_tables() -> dict[str, str]:
    return {"plan": text(results("plan"))}


STUDY = Study(
    "plan", "Is the plan right? Every option bought for real", cells, run, text
)
