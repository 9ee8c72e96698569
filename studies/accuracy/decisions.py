"""Do the decisions hold? Planted columns, subgroups, clusters, metrics and classes that are two, with known answers;
then real tables: what columns are worth and what that costs, metrics that no stock classifier should exceed, letters
in 13 groups.

Parts named on the command line are run and replace those in ``results/decisions.json``, by default all of them. Real
tables are read from the folder that ``COLLIDESCOPE_DATA`` names, those of KEEL as in ``studies.accuracy.real``.

    python -m studies.accuracy.decisions [columns groups splits limits tables stock letters]
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from threadpoolctl import threadpool_limits

from collidescope import CollisionClassifier, TableClassifier
from collidescope.applications import (
    ceilings,
    collisions_by,
    column_value,
    consolidate,
    split_candidates,
)
from collidescope.applications._inputs import mean_and_error, residuals
from collidescope.datasets import GaussianProblem, ring
from studies import markdown, real_data
from studies.accuracy import real
from studies.accuracy._record import load, save

SEED = 0
#: Share of the labels of one group that is drawn at random.
REDRAWN = 0.15
#: Tables of KEEL: small enough for ten fits in a quarter of an hour, and with something left to get wrong.
KEEL = (
    "australian",
    "bands",
    "bupa",
    "contraceptive",
    "german",
    "heart",
    "led7digit",
    "pima",
    "saheart",
    "vehicle",
)
FIRST, ADDED = "resolving column first and flagged", "PBER after adding it covered"
ALONE = "planted class found alone"
RANGES = "ranges of two subgroups hold the truth"
RISE = "rise of PBER in 400 of 2,000 rows"
#: Rows of a real table that take part.
ROWS = 5000


def table(n: int, rng: np.random.Generator) -> tuple[pd.DataFrame, Any]:
    """Three classes: ``marker`` resolves one, ``copy`` repeats it, ``weak`` helps with another, six are noise."""
    y = rng.integers(0, 3, n)
    marker = 1.5 * (y == 0) + rng.standard_normal(n)
    weak = 0.8 * (y == 1) + rng.standard_normal(n)
    columns = {"marker": marker, "copy": marker + 0.05 * rng.standard_normal(n), "weak": weak}
    return pd.DataFrame(columns | {f"noise {i}": rng.standard_normal(n) for i in range(6)}), y


def brier(model: Any, X: Any, y: Any) -> float:
    return float((residuals(model.predict_proba(X), y) ** 2).sum(axis=1).mean())


def columns(samples: int = 100) -> dict[str, Any]:
    rng = np.random.default_rng(SEED)
    model = LogisticRegression(max_iter=200)
    X_large, y_large = table(50_000, rng)
    kept = [name for name in X_large if name not in ("marker", "copy")]
    first, false, in_pber, in_gain = [], [], [], []
    for _ in range(samples):
        found = column_value(model, *table(600, rng))
        flagged = found.table[found.table["flagged"]]["unit"].tolist()
        first.append(flagged[:1] == ["marker & copy"])
        false.append(sum(str(name).startswith("noise") for name in flagged) / max(len(flagged), 1))
        # A refit on as many fresh rows as a fold trains on, scored on rows that decide without luck.
        X, y = table(480, rng)
        after = brier(LogisticRegression(max_iter=200).fit(X, y), X_large, y_large)
        before = brier(LogisticRegression(max_iter=200).fit(X[kept], y), X_large[kept], y_large)
        row = found.table.set_index("unit").loc["marker & copy"]
        in_pber.append(found.pber_interval[0] <= after <= found.pber_interval[1])
        in_gain.append(row["low"] <= before - after <= row["high"])
    means = {FIRST: first, "false discovery rate": false, ADDED: in_pber, "gain covered": in_gain}
    return {"samples": samples} | {name: float(np.mean(values)) for name, values in means.items()}


def groups(samples: int = 400) -> dict[str, Any]:
    problem = GaussianProblem([[0.0], [1.5], [4.0]])
    rng = np.random.default_rng(SEED)
    flagged, power, plain, robust = [], [], [], []
    X, y = problem.sample(200_000, rng, stratified=False)
    noisy = np.where(rng.random(len(y)) < REDRAWN, rng.integers(0, 3, len(y)), y)
    P = problem.posteriors(X)
    rise = ((residuals(P, noisy) ** 2) - (residuals(P, y) ** 2)).sum(axis=1).mean()
    for _ in range(samples):
        X, y = problem.sample(2000, rng, stratified=False)
        P = problem.posteriors(X)
        own = rng.integers(0, 5, len(y))
        flagged.append(collisions_by(P, y, own).table["verdict"].isin(["higher", "lower"]).any())
        noisy = np.where((own == 0) & (rng.random(len(y)) < REDRAWN), rng.integers(0, 3, len(y)), y)
        power.append(
            collisions_by(P, noisy, own).table.set_index("group").loc[0, "verdict"] == "higher"
        )
    q = np.random.default_rng(1).beta(2, 1, 1_000_000)
    truth = float((2 * q * (1 - q)).mean())
    for _ in range(samples):
        p = np.repeat(
            rng.beta(2, 1, 50), 20
        )  # 50 patients, 20 rows each, all rows of a patient alike
        y = (rng.random(1000) < p).astype(int)
        loss = (residuals(np.column_stack([1 - p, p]), y) ** 2).sum(axis=1)
        for clusters, into in ((None, plain), (np.repeat(np.arange(50), 20), robust)):
            mean, stderr, _ = mean_and_error(loss, clusters)
            into.append(abs(mean - truth) <= 2.01 * stderr)
    plane = GaussianProblem([[0.0, 0], [1.5, 0], [0, 3.0]])
    X, _ = plane.sample(200_000, rng, stratified=False)
    left, near = 1 - (plane.posteriors(X) ** 2).sum(axis=1), X[:, 1] < 1.5
    truths, inside = np.array([left[~near].mean(), left[near].mean()]), []
    for _ in range(samples // 2):
        X, y = plane.sample(1000, rng, stratified=False)
        by_size = {
            m: LogisticRegression().fit(*plane.sample(m, rng)).predict_proba(X)
            for m in (100, 200, 400)
        }
        found = collisions_by(by_size[400], y, X[:, 1] < 1.5, posteriors_by_size=by_size).table
        inside.append(
            bool(((found["limit_low"] <= truths) & (truths <= found["limit_high"])).all())
        )
    return {
        "samples": samples,
        "equal groups flagged": float(np.mean(flagged)),
        RISE: float(rise),
        "power": float(np.mean(power)),
        "50 clusters of 20: plain interval covers": float(np.mean(plain)),
        "50 clusters of 20: cluster-robust covers": float(np.mean(robust)),
        RANGES: float(np.mean(inside)),
    }


def splits(samples: int = 50) -> dict[str, Any]:
    four, three = GaussianProblem([[0.0], [2.5], [7.5], [10.0]]), ring()
    rng = np.random.default_rng(SEED)
    found, false = [], []
    for _ in range(samples):
        X, part = four.sample(800, rng, stratified=False)
        P = four.posteriors(X)
        P = np.column_stack([P[:, 0], P[:, 1] + P[:, 2], P[:, 3]])
        lines = split_candidates(P, np.array([0, 1, 1, 2])[part]).table
        found.append(lines[lines["flagged"]]["class"].tolist() == [1])
        X, y = three.sample(1500, rng, stratified=False)
        false.append(bool(split_candidates(three.posteriors(X), y).table["flagged"].any()))
    return {
        "samples": samples,
        ALONE: float(np.mean(found)),
        "flagged in six Gaussians": float(np.mean(false)),
    }


def limits(samples: int = 200) -> dict[str, Any]:
    """Is the value that true posteriors reach inside the range of every metric?"""
    cost = np.array([[0.0, 1, 5], [1, 0, 1], [5, 1, 0]])
    problem = GaussianProblem([[0.0, 0], [1.5, 0], [0, 2.0]])
    models: dict[str, Any] = {
        "logistic regression": lambda m: LogisticRegression(),
        "nearest neighbours": lambda m: KNeighborsClassifier(max(5, int(3 * m**0.5))),
    }
    X, y = problem.sample(100_000, np.random.default_rng(SEED), stratified=False)
    truth = ceilings(problem.posteriors(X), y, cost=cost).table.set_index("metric")["now"]
    rows: dict[str, Any] = {}
    for name, model in models.items():
        rng = np.random.default_rng(SEED + 1)
        inside, width = [], []
        for _ in range(samples):
            X, y = problem.sample(600, rng, stratified=False)
            by_size = {
                m: model(m).fit(*problem.sample(m, rng)).predict_proba(X) for m in (200, 400, 800)
            }
            found = ceilings(
                by_size[800], y, posteriors_by_size=by_size, cost=cost
            ).table.set_index("metric")
            inside.append((found["limit_low"] <= truth) & (truth <= found["limit_high"]))
            width.append(found["limit_high"] - found["limit_low"])
        means = pd.DataFrame(
            {"truth": truth, "inside": np.mean(inside, axis=0), "width": np.mean(width, axis=0)}
        )
        rows[name] = means.to_dict("index")
    return {"samples": samples} | rows


def tables() -> dict[str, Any]:
    """What columns of real tables are worth, and the time of it beside that of one fit of the same rows."""
    loaders = {"Adult": real_data.load_adult, "BRFSS": real_data.load_brfss}
    rows: dict[str, Any] = {}
    for name, loader in (loaders | {"German credit": real_data.load_german_credit}).items():
        X, y = loader()
        if len(X) > ROWS:
            X, _, y, _ = train_test_split(X, y, train_size=ROWS, stratify=y, random_state=SEED)
            X = X.reset_index(drop=True)
        start = time.perf_counter()
        TableClassifier(random_state=SEED).fit(X, y)
        middle = time.perf_counter()
        found = column_value(None, X, y, random_state=SEED)
        seconds = [middle - start, time.perf_counter() - middle]
        rows[name] = {
            "rows": len(X),
            "columns": X.shape[1],
            "classes": len(np.unique(y)),
            "fits": found.fits,
        }
        rows[name] |= {
            "fit_seconds": round(seconds[0], 1),
            "seconds": round(seconds[1], 1),
            "pber": found.pber,
        }
        kept = ["unit", "needed", "low", "high", "alone", "flagged"]
        rows[name]["units"] = (
            found.table[kept].assign(unit=found.table["unit"].astype(str)).to_dict("records")
        )
        print(name, rows[name], flush=True)
    return rows


def stock() -> dict[str, Any]:
    """Is any stock classifier above the reachable end of a metric beyond chance, on the same folds?"""
    rows: dict[str, Any] = {}
    for name in KEEL:
        X, y = real.load(name, None)
        folds = list(StratifiedKFold(real.FOLDS, shuffle=True, random_state=SEED).split(X, y))
        pool = CollisionClassifier(cv=folds, random_state=SEED, device="cpu").fit(X, y)
        worst: dict[str, Any] = {}
        for rival in real.RIVALS:
            found = ceilings(pool, y, y_pred=real.posteriors_of_rival(rival, X, y)).table
            for row in found.to_dict("records"):
                sign, end = (1, "limit_high") if row["higher_is_better"] else (-1, "limit_low")
                # The end has room for the luck of these rows; what is left is that of the difference to the pool.
                above = (
                    sign * (row["yours"] - row[end]),
                    (row["difference_high"] - row["difference_low"]) / 2,
                )
                known = worst.get(row["metric"])
                if known is None or above[0] - above[1] > known["above"] - known["half"]:
                    worst[row["metric"]] = {
                        "above": above[0],
                        "half": above[1],
                        "rival": rival,
                        "end": row[end],
                    }
                    worst[row["metric"]] |= {key: row[key] for key in ("yours", "now")}
        rows[name] = {"rows": len(y), "classes": int(y.max()) + 1, "metrics": worst}
        print(name, worst, flush=True)
    return rows


def letters() -> dict[str, Any]:
    """26 letters in 13 groups: by gain alone, with at most three letters in a group, and balanced."""
    X, y = real_data.load_letter()
    fit = CollisionClassifier(members="quick", limit=False, random_state=SEED).fit(
        X.to_numpy(float), y
    )
    rows: dict[str, Any] = {"rows": len(y), "pber": fit.collision_matrix_.pber}
    plans: dict[str, Any] = {
        "by gain": {},
        "max_group_size=3": {"max_group_size": 3},
        "balance=1": {"balance": 1},
    }
    for name, options in plans.items():
        plan = consolidate(fit.collision_matrix_, 13, **options)
        row = plan.path.set_index("n_groups").loc[13]
        rows[name] = {key: float(row[key]) for key in ("pber", "pber_low", "pber_high", "price")}
        rows[name]["groups"] = ["".join(group) for group in plan.groups]
    return rows


def page_tables() -> dict[str, str]:
    """The tables of docs/decisions.md from the record, by the name of their place."""
    found = (load("decisions") or {})["results"]
    c, g, p, ranges = (found[part] for part in ("columns", "groups", "splits", "limits"))
    claims = {
        "the resolving column (with its copy) is first and flagged, 600 rows": f"{c[FIRST]:.0%} of {c['samples']}",
        "false discoveries among six columns of noise, at 5%": f"{c['false discovery rate']:.1%}",
        "PBER after adding the held-back column inside its interval, against a refit": f"{c[ADDED]:.0%}",
        "its gain inside the interval": f"{c['gain covered']:.0%}",
        "five equal groups of 400 rows: any flagged": f"{g['equal groups flagged']:.1%} of {g['samples']}",
        f"one of them {100 * g[RISE]:.1f} points worse: found": f"{g['power']:.1%}",
        "50 clusters of 20 rows: plain interval covers": f"{g['50 clusters of 20: plain interval covers']:.1%}",
        "the same with `clusters=`": f"{g['50 clusters of 20: cluster-robust covers']:.1%}",
        "ranges of two subgroups with unlimited rows: both hold the truth": f"{g[RANGES]:.1%} of {g['samples'] // 2}",
        "a class of two groups is found, and no other, 800 rows": f"{p[ALONE]:.0%} of {p['samples']}",
        "six Gaussian classes, none of them two: any flagged": f"{p['flagged in six Gaussians']:.0%}",
    }
    for name, metrics in ((name, part) for name, part in ranges.items() if isinstance(part, dict)):
        worst = min(metrics, key=lambda metric: metrics[metric]["inside"])
        mean = f"{np.mean([m['inside'] for m in metrics.values()]):.1%} of {ranges['samples']}"
        text = f"{mean}; least: {worst}, {metrics[worst]['inside']:.1%}"
        claims[f"limit of {len(metrics)} metrics inside its range, {name}, three sizes"] = text
    rows = {name: r for name, r in found["tables"].items() if isinstance(r, dict)}
    columns = []
    for name, r in rows.items():
        units = [
            f"{u['unit']} {100 * u['needed']:.1f} ({100 * u['low']:.1f} to {100 * u['high']:.1f})"
            for u in r["units"]
        ]
        missed = f"{sum(u['flagged'] for u in r['units'])} of {len(units)}"
        times = [
            f"{r['seconds']:.0f} s",
            f"{r['fit_seconds']:.0f} s",
            f"{r['seconds'] / r['fit_seconds']:.1f}",
        ]
        columns.append(
            [name, f"{r['rows']:,}", f"{r['pber']:.1%}", "; ".join(units[:3]), missed, *times]
        )
    letters = []
    for name, plan in (
        (name, part) for name, part in found["letters"].items() if isinstance(part, dict)
    ):
        several = sorted(
            (group for group in plan["groups"] if len(group) > 1), key=len, reverse=True
        )
        left = f"{plan['pber']:.1%} ({plan['pber_low']:.1%} to {plan['pber_high']:.1%})"
        price = f"{100 * plan['price']:.1f} points"
        letters.append([name, ", ".join(several), str(13 - len(several)), left, price])
    above = []
    for name, r in (
        (name, part) for name, part in found["stock"].items() if isinstance(part, dict)
    ):
        metric = max(r["metrics"], key=lambda m: r["metrics"][m]["above"] - r["metrics"][m]["half"])
        nearest, accuracy = r["metrics"][metric], r["metrics"]["accuracy"]
        share = [f"{accuracy[key]:.1%}" for key in ("now", "yours", "end")]
        gap = f"{nearest['above']:+.3f} ± {nearest['half']:.3f} ({metric}, {nearest['rival']})"
        above.append([name, *share, gap])
    nearest_head = [
        "table",
        "accuracy of the pool",
        "of the nearest stock classifier",
        "reachable at most",
    ]
    nearest_head += ["metric and classifier nearest to the end"]
    head = [
        "table",
        "rows",
        "PBER",
        "most missed: rise of PBER in points",
        "units missed beyond chance",
    ]
    return {
        "claims": markdown.table(["claim", "measured"], list(claims.items())),
        "columns": markdown.table([*head, "`column_value`", "one fit", "ratio"], columns),
        "letters": markdown.table(
            ["merged by", "groups", "single letters", "PBER left", "price"], letters
        ),
        "stock": markdown.table(nearest_head, above),
    }


PARTS = {part.__name__: part for part in (columns, groups, splits, limits, tables, stock, letters)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all of them by default")
    warnings.simplefilter("ignore")
    for name in parser.parse_args().parts or PARTS:
        start = time.perf_counter()
        with threadpool_limits(limits=1):
            found = PARTS[name]()
        results = (load("decisions") or {}).get("results") or {}
        results[name] = found | {"seconds": round(time.perf_counter() - start, 1)}
        print(name, results[name], flush=True)
        save("decisions", {"seed": SEED}, results)


if __name__ == "__main__":
    main()
