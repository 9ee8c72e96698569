"""Few rows of large real tables: does the range hold what all rows reach?

The true PBER of a real table is not known, but it is not above the PBER that models reach with more
rows. A lower end that few rows state is refuted where all rows reach less, beyond two standard
errors. Unlike made-up problems, many real tables have labels that follow from the inputs by a rule,
and curves that fall for as long as there are rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from collidescope import CollisionClassifier
from collidescope.equations.power_law import Prior
from collidescope.limit import Limit
from studies.accuracy import feebee, real
from studies.accuracy.limit import MEDIANS, under
from studies.markdown import again, table
from studies.real_data import load_brfss
from studies.speed.engine import adult
from studies.store import Cell, Record, Result, Study, by_part, flat, results

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


def judged(record: Record, prior: Prior | None = None) -> dict[str, Any]:
    """What the recorded curve says, today or under another prior, beside what all rows reach."""
    found = flat(record)
    limit = Limit.from_dict(found["curve"])
    with under(prior or Prior()):
        low, high = limit.pber_interval()
    pber, error = reached(found["table"])
    return {
        "table": found["table"],
        "rows": found["rows"],
        "now": limit.scores[-1],
        "low": low,
        "high": high,
        "reached": pber,
        "refuted": low > pber + 2 * error,
    }


def likeliest() -> Prior:
    """With the median of the exponent one step above, where made-up problems have it."""
    place = MEDIANS.index(Prior().exponent)
    return Prior(MEDIANS[place + 1])


def text(records: list[Record]) -> str:
    every = [judged(record) for record in records]
    rows = []
    names = sorted({(each["table"], each["rows"]) for each in every})
    for name in names:
        own = [each for each in every if (each["table"], each["rows"]) == name]
        means = [np.mean([each[key] for each in own]) for key in ("now", "low", "high")]
        numbers = [f"{mean:.3f}" for mean in means]
        refuted = sum(each["refuted"] for each in own)
        of_fits = f"{refuted} of {len(own)}"
        rows.append(
            [name[0], f"{name[1]:,}", *numbers, f"{own[0]['reached']:.3f}", of_fits]
        )
    head = "table | rows | PBER now | range from | to | reached with all rows | refuted"
    refuted = sum(each["refuted"] for each in every)
    others = {}
    for name, prior in (("no rule", Prior(rule=0.0)), ("likeliest", likeliest())):
        under_prior = [judged(record, prior) for record in records]
        others[name] = sum(each["refuted"] for each in under_prior)
    return f"""## Few rows of real tables

Fits of 1,000 and 3,000 rows of tables that have at least four times as many. The true PBER is not
above what more rows reach (of Fashion-MNIST-H it is known from the votes; of covertype 100,000 rows
were used, and all 581,012 would reach less), so a range that begins above that by two standard
errors is refuted: {refuted} of {len(every)}. Had the prior given no chance to labels that follow from
the inputs by a rule, it would be {others["no rule"]}; with the likeliest median of the exponent, without the step
that is taken from it ([above](#kinds-of-problems-left-out)), {others["likeliest"]}. Means over two samples:

{table(head, rows)}

{again("few-rows")}"""


STUDY = Study("few-rows", "The range of few rows of real tables", cells, run, text)
