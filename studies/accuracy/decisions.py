"""Do the decisions find what is planted? Columns, subgroups, and a class that is two.

Whether their intervals hold is asked in ``studies/grid.py``. Then real tables: what columns are
worth and what that costs, metrics that no stock classifier should exceed, letters in 13 groups.
Real tables are read from the folder that ``COLLIDESCOPE_DATA`` names, those of KEEL as in
:mod:`studies.accuracy.real`.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, train_test_split

from collidescope import CollisionClassifier, TableClassifier
from collidescope.applications import (
    ceilings,
    collisions_by,
    column_value,
    consolidate,
    split_candidates,
)
from collidescope.datasets import GaussianProblem, ring
from studies import real_data
from studies.accuracy import real
from studies.baselines.stock import STOCK, held_out_posteriors
from studies.markdown import columns as columns_of
from studies.measures import Array, Rng, brier_score
from studies.store import Cell, Study, by_part, results

SEED = 0
#: Tables of KEEL: small enough for ten fits, and with something left to get wrong.
KEEL = "australian bands bupa contraceptive german heart led7digit pima saheart vehicle"

Table = tuple[pd.DataFrame, Array]
Found = dict[str, Any]


# ---------------------------------------------------------------- planted truth


def planted_table(n: int, rng: Rng) -> Table:
    """Three classes and nine columns.

    ``marker`` resolves one class, ``copy`` repeats it, ``weak`` helps with another, six are noise.
    """
    y = rng.integers(0, 3, n)
    marker = 1.5 * (y == 0) + rng.standard_normal(n)
    weak = 0.8 * (y == 1) + rng.standard_normal(n)
    copy = marker + 0.05 * rng.standard_normal(n)
    X = pd.DataFrame({"marker": marker, "copy": copy, "weak": weak})
    for i in range(6):
        X[f"noise {i}"] = rng.standard_normal(n)
    return X, y


def columns(samples: int = 100) -> Found:
    rng = np.random.default_rng(SEED)
    first = []
    false = []
    for _ in range(samples):
        found = column_value(LogisticRegression(max_iter=200), *planted_table(600, rng))
        flagged = found.table[found.table["flagged"]]["unit"].tolist()
        first.append(flagged[:1] == ["marker & copy"])
        wrongly = [name for name in flagged if str(name).startswith("noise")]
        false.append(len(wrongly) / max(len(flagged), 1))
    return {
        "the resolving column (with its copy) is first and flagged, 600 rows": first,
        "false discoveries among six columns of noise, at 5%": false,
    }


def redrawn(y: Array, chosen: Array, rng: Rng) -> Array:
    """15% of the labels of some rows drawn at random."""
    drawn = chosen & (rng.random(len(y)) < 0.15)
    return np.where(drawn, rng.integers(0, 3, len(y)), y)


def groups(samples: int = 400) -> Found:
    rng = np.random.default_rng(SEED)
    problem = GaussianProblem([[0.0], [1.5], [4.0]])
    X, y = problem.sample(200_000, rng, stratified=False)
    noisy = redrawn(y, np.ones(len(y), dtype=bool), rng)
    P = problem.posteriors(X)
    rise = brier_score(P, noisy) - brier_score(P, y)
    flagged = []
    power = []
    for _ in range(samples):
        X, y = problem.sample(2000, rng, stratified=False)
        P = problem.posteriors(X)
        own = rng.integers(0, 5, len(y))
        verdicts = collisions_by(P, y, own).table["verdict"]
        flagged.append(verdicts.isin(["higher", "lower"]).any())
        worse = collisions_by(P, redrawn(y, own == 0, rng), own).table
        power.append(worse.set_index("group").loc[0, "verdict"] == "higher")
    ranges = subgroup_ranges(samples // 2, rng)
    return {
        "five equal groups of 400 rows: any flagged": flagged,
        f"one of them {100 * rise:.1f} points worse: found": power,
        "ranges of two subgroups with unlimited rows: both hold the truth": ranges,
    }


def subgroup_ranges(samples: int, rng: Rng) -> list[bool]:
    """Do both ranges of two subgroups hold the truth?"""
    plane = GaussianProblem([[0.0, 0], [1.5, 0], [0, 3.0]])
    X, _ = plane.sample(200_000, rng, stratified=False)
    left = 1 - (plane.posteriors(X) ** 2).sum(axis=1)
    near = X[:, 1] < 1.5
    truths = np.array([left[~near].mean(), left[near].mean()])
    inside = []
    for _ in range(samples):
        X, y = plane.sample(1000, rng, stratified=False)
        by_size = {}
        for m in (100, 200, 400):
            model = LogisticRegression().fit(*plane.sample(m, rng))
            by_size[m] = model.predict_proba(X)
        found = collisions_by(
            by_size[400], y, X[:, 1] < 1.5, posteriors_by_size=by_size
        ).table
        held = (found["limit_low"] <= truths) & (truths <= found["limit_high"])
        inside.append(bool(held.all()))
    return inside


def splits(samples: int = 50) -> Found:
    four = GaussianProblem([[0.0], [2.5], [7.5], [10.0]])
    six = ring()
    rng = np.random.default_rng(SEED)
    found = []
    false = []
    for _ in range(samples):
        X, part = four.sample(800, rng, stratified=False)
        P = four.posteriors(X)
        P = np.column_stack([P[:, 0], P[:, 1] + P[:, 2], P[:, 3]])
        lines = split_candidates(P, np.array([0, 1, 1, 2])[part]).table
        found.append(lines[lines["flagged"]]["class"].tolist() == [1])
        X, y = six.sample(1500, rng, stratified=False)
        false.append(split_candidates(six.posteriors(X), y).table["flagged"].any())
    return {
        "a class of two groups is found, and no other, 800 rows": found,
        "six Gaussian classes, none of them two: any flagged": false,
    }


# ---------------------------------------------------------------- real tables


def tables(most_rows: int = 5000) -> Found:
    """What columns of real tables are worth, and the time of it beside that of one fit."""
    loaders = {
        "Adult": real_data.load_adult,
        "BRFSS": real_data.load_brfss,
        "German credit": real_data.load_german_credit,
    }
    return {name: worth(*loader(), most_rows) for name, loader in loaders.items()}


def worth(X: pd.DataFrame, y: Array, most_rows: int) -> Found:
    """Of the columns of one table."""
    if len(X) > most_rows:
        X, _, y, _ = train_test_split(
            X, y, train_size=most_rows, stratify=y, random_state=SEED
        )
        X = X.reset_index(drop=True)
    start = time.perf_counter()
    TableClassifier(random_state=SEED).fit(X, y)
    middle = time.perf_counter()
    found = column_value(None, X, y, random_state=SEED)
    end = time.perf_counter()
    units = found.table[["unit", "needed", "low", "high", "alone", "flagged"]]
    units = units.assign(unit=units["unit"].astype(str))
    return {
        "rows": len(X),
        "columns": X.shape[1],
        "classes": len(np.unique(y)),
        "fits": found.fits,
        "fit_seconds": round(middle - start, 1),
        "seconds": round(end - middle, 1),
        "pber": found.pber,
        "units": units.to_dict("records"),
    }


def stock() -> Found:
    """Is any stock classifier above the reachable end of a metric beyond chance?"""
    rows = {}
    for name in KEEL.split():
        X, y = real.load(name)
        splitter = StratifiedKFold(real.FOLDS, shuffle=True, random_state=SEED)
        folds = list(splitter.split(X, y))
        pool = CollisionClassifier(cv=folds, random_state=SEED, device="cpu").fit(X, y)
        worst = {}
        for rival, make in STOCK.items():
            P, _ = held_out_posteriors(make(), X, y, seed=SEED)
            for row in ceilings(pool, y, y_pred=P).table.to_dict("records"):
                entry = _beyond(row) | {"rival": rival}
                known = worst.setdefault(row["metric"], entry)
                worst[row["metric"]] = max(known, entry, key=_excess)
        rows[name] = {"rows": len(y), "classes": int(y.max()) + 1, "metrics": worst}
    return rows


def _beyond(row: dict[str, Any]) -> Found:
    """How far a rival is above the reachable end, and half the interval of its difference.

    The end has room for the sampling error of these rows; what is left is that of the difference.
    """
    if row["higher_is_better"]:
        end = row["limit_high"]
        above = row["yours"] - end
    else:
        end = row["limit_low"]
        above = end - row["yours"]
    half = (row["difference_high"] - row["difference_low"]) / 2
    about = {"yours": row["yours"], "now": row["now"]}
    return {"above": above, "half": half, "end": end} | about


def _excess(entry: Found) -> float:
    return entry["above"] - entry["half"]


def letters() -> Found:
    """26 letters in 13 groups: by gain alone, with at most three in a group, and balanced."""
    X, y = real_data.load_letter()
    clf = CollisionClassifier(members="quick", limit=False, random_state=SEED)
    cm = clf.fit(X.to_numpy(float), y).collision_matrix_
    plans = {
        "by gain": consolidate(cm, 13),
        "max_group_size=3": consolidate(cm, 13, max_group_size=3),
        "balance=1": consolidate(cm, 13, balance=1),
    }
    rows = {"rows": len(y), "pber": cm.pber}
    for name, plan in plans.items():
        row = plan.path.set_index("n_groups").loc[13]
        numbers = row[["pber", "pber_low", "pber_high", "price"]]
        rows[name] = numbers.astype(float).to_dict()
        rows[name]["groups"] = ["".join(group) for group in plan.groups]
    return rows


PLANTED = (columns, groups, splits)
PARTS = {part.__name__: part for part in (*PLANTED, tables, stock, letters)}


def cells(quick: bool) -> list[Cell]:
    if quick:
        return [{"part": "splits", "samples": 2}]
    return [{"part": part} for part in PARTS]


def run(cell: Cell) -> Found:
    settings = dict(cell)
    part = PARTS[settings.pop("part")]
    found = part(**settings)
    if part not in PLANTED:
        return found
    return {
        claim: {"share": float(np.mean(each)), "samples": len(each)}
        for claim, each in found.items()
    }


# ---------------------------------------------------------------- tables of docs/decisions.md


def page_tables() -> dict[str, str]:
    """Tables by the name of their place."""
    found = by_part(results("decisions"))
    return {
        "claims": claims_table(found),
        "columns": columns_table(found["tables"]),
        "letters": letters_table(found["letters"]),
        "stock": stock_table(found["stock"]),
    }


def _parts(found: Found) -> dict[str, Found]:
    """What was measured, without the notes beside it (seconds, numbers of rows)."""
    return {name: part for name, part in found.items() if isinstance(part, dict)}


def claims_table(found: Found) -> str:
    claims = [claim for part in PLANTED for claim in found[part.__name__].items()]
    rows = [found | {"claim": claim} for claim, found in claims]
    return columns_of("claim | {claim}\nmeasured | {share:.1%} of {samples}", rows)


COLUMNS_TABLE = """
table | {name}
rows | {rows:,}
PBER | {pber:.1%}
most missed: rise of PBER in points | {most}
units missed beyond chance | {missed} of {n_units}
`column_value` | {seconds:.0f} s
one fit | {fit_seconds:.0f} s
ratio | {ratio:.1f}
"""


def columns_table(found: Found) -> str:
    rows = []
    for name, one in _parts(found).items():
        units = pd.DataFrame(one["units"])
        points = units.assign(**100 * units[["needed", "low", "high"]])
        most = points.head(3).to_dict("records")
        shown = "{unit} {needed:.1f} ({low:.1f} to {high:.1f})"
        about = {
            "name": name,
            "most": "; ".join(shown.format_map(unit) for unit in most),
            "missed": units["flagged"].sum(),
            "n_units": len(units),
            "ratio": one["seconds"] / one["fit_seconds"],
        }
        rows.append(one | about)
    return columns_of(COLUMNS_TABLE, rows)


LETTERS_TABLE = """
merged by | {name}
groups | {several}
single letters | {single}
PBER left | {pber:.1%} ({pber_low:.1%} to {pber_high:.1%})
price | {points:.1f} points
"""


def letters_table(found: Found) -> str:
    rows = []
    for name, plan in _parts(found).items():
        several = [group for group in plan["groups"] if len(group) > 1]
        several.sort(key=len, reverse=True)
        single = 13 - len(several)
        about = {"name": name, "several": ", ".join(several), "single": single}
        rows.append(plan | about | {"points": 100 * plan["price"]})
    return columns_of(LETTERS_TABLE, rows)


STOCK_TABLE = """
table | {name}
accuracy of the pool | {accuracy[now]:.1%}
of the nearest stock classifier | {accuracy[yours]:.1%}
reachable at most | {accuracy[end]:.1%}
metric and classifier nearest to the end | {above:+.3f} ± {half:.3f} ({metric}, {rival})
"""


def stock_table(found: Found) -> str:
    rows = []
    for name, one in _parts(found).items():
        metrics = one["metrics"]
        metric = max(metrics, key=lambda metric: _excess(metrics[metric]))
        about = {"name": name, "metric": metric, "accuracy": metrics["accuracy"]}
        rows.append(metrics[metric] | about)
    return columns_of(STOCK_TABLE, rows)


STUDY = Study(
    "decisions", "Do the decisions hold? Planted truth and real tables", cells, run
)
