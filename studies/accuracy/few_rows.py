"""Few rows of large real tables: does the range hold what all rows reach?

The true PBER of a real table is not known, but it is not above the PBER that models reach with more
rows. A lower end that few rows state is refuted where all rows reach less, beyond two standard
errors. Unlike made-up problems, many real tables have labels that follow from the inputs by a rule,
and curves that fall for as long as there are rows.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from collidescope import CollisionClassifier
from collidescope.equations.power_law import Prior
from studies.accuracy import feebee, real
from studies.accuracy.prior import REAL, Curve, limit_of, under
from studies.markdown import again, table
from studies.real_data import load_brfss
from studies.speed.engine import adult
from studies.store import Cell, Record, Result, Study, by_part, results, runs

#: The tables of KEEL with at least four times 1,000 rows.
KEEL = ("letter", "magic", "penbased", "ring", "twonorm", "marketing", "satimage")
KEEL += ("mushroom", "optdigits", "texture", "phoneme", "banana", "spambase")
LARGE = ("adult", "brfss")
#: Flat pixels and cartographic columns, as FeeBee's protocol reads them.
YARDSTICKS = ("covertype", "MNIST", "Fashion-MNIST-H")


def load(name: str) -> real.Table:
    """All rows, as numbers, and class numbers."""
    if name in YARDSTICKS:
        return feebee.load(name)
    if name == "adult":
        return adult()
    if name == "brfss":
        X, y = load_brfss()
        return X.to_numpy(dtype=np.float64), np.unique(y, return_inverse=True)[1]
    return real.load(name)


def cells(quick: bool) -> list[Cell]:
    """Two samples of 1,000 and two of 3,000 rows, of tables with four times as many."""
    if quick:
        return [{"table": "digits", "rows": 300, "seed": 0}]
    sizes = dict.fromkeys((*LARGE, *YARDSTICKS), (1000, 3000))
    sizes |= dict.fromkeys(KEEL, (1000,))
    sizes |= dict.fromkeys(("letter", "magic"), (1000, 3000))
    return [
        {"table": name, "rows": rows, "seed": seed}
        for seed in range(2)
        for name, of_table in sizes.items()
        for rows in of_table
    ]


def run(cell: Cell) -> Result:
    """The curve of one fit."""
    X, y = load(cell["table"])
    rng = np.random.default_rng(cell["seed"])
    rows = rng.permutation(len(y))[: cell["rows"]]
    members = np.bincount(y[rows], minlength=y.max() + 1)
    kept = rows[members[y[rows]] >= 5]  # a class needs a row in every fold
    clf = CollisionClassifier(random_state=cell["seed"], device="cpu")
    limit = clf.fit(X[kept], y[kept]).limit_
    return {"curve": limit.to_dict() | {"matrix": None}, "weights": clf.member_weights_}


def reached(name: str) -> tuple[float, float]:
    """The lowest PBER that the default is recorded to reach, and a standard error of it.

    A row's score lies between 0 and 2, so its variance is at most PBER (2 - PBER).
    """
    rows = 60_000
    if name == "Fashion-MNIST-H":  # the truth, from the votes
        (first, *_) = results("fashion")
        return first["result"]["truth"], 0.0
    if name == "MNIST":
        fits = by_part(results("scale"))["gpu"]["mnist"]
        pber = min(fit["pber"] for fit in fits)
    elif name in LARGE or name == "covertype":
        found = by_part(results("sizes"))[name]
        pber = found["pber"]
    else:
        for record in results("real"):
            if record["cell"] == {"table": name, "method": real.POOL}:
                pber = record["result"]["brier"]
                rows = record["result"]["rows"]
    return pber, float(np.sqrt(pber * (2 - pber) / rows))


def curves() -> list[Curve]:
    """The recorded curves, and what all rows reach."""
    found = []
    for fit in runs("few-rows"):
        pber, error = reached(fit["table"])
        weights = pd.DataFrame(fit["weights"]).mean().to_dict()  # a row per fold
        limit = limit_of(fit["curve"], weights)
        found.append(Curve(fit["table"], REAL, fit["rows"], limit, pber, error))
    return found


def refuted_without_rule() -> int:
    """How many ranges, had the prior given no chance to labels that follow by a rule."""
    with under(Prior(rule=0.0)):
        return sum(curve.refuted for curve in curves())


def text(records: list[Record]) -> str:
    every = curves()
    rows = []
    for name in sorted({(curve.source, curve.rows) for curve in every}):
        own = [curve for curve in every if (curve.source, curve.rows) == name]
        now = np.mean([curve.limit.scores[-1] for curve in own])
        low, high = np.mean([curve.limit.pber_interval() for curve in own], axis=0)
        numbers = [f"{value:.3f}" for value in (now, low, high, own[0].truth)]
        refuted = sum(curve.refuted for curve in own)
        rows.append([name[0], f"{name[1]:,}", *numbers, f"{refuted} of {len(own)}"])
    head = "table | rows | PBER now | range from | to | reached with all rows | refuted"
    refuted = sum(curve.refuted for curve in every)
    return f"""## Few rows of real tables

Fits of 1,000 and 3,000 rows of tables that have at least four times as many. The true PBER is not
above what more rows reach (of Fashion-MNIST-H it is known from the votes; of covertype 100,000 rows
were used, and all 581,012 would reach less), so a range that begins above that by two standard
errors is refuted: {refuted} of {len(every)}. The prior of the range was found on these tables too;
what it would say of them had it not been is [above](#kinds-of-problems-left-out). Had it given no
chance to labels that follow from the inputs by a rule, {refuted_without_rule()} would be refuted. Means over two
samples:

{table(head, rows)}

{again("few-rows")}"""


STUDY = Study("few-rows", "The range of few rows of real tables", cells, run, text)
