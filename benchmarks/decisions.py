"""Do the decisions hold? Planted columns, subgroups, clusters, metrics and classes that are two, with known answers."""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from benchmarks._record import load, save
from collidescope.applications import ceilings, collisions_by, column_value, split_candidates
from collidescope.applications._inputs import mean_and_error, residuals
from collidescope.applications.ceilings import _metrics
from collidescope.datasets import GaussianProblem, ring

SEED = 0
#: Share of the labels of one group that is drawn at random.
REDRAWN = 0.15


def table(n: int, rng: np.random.Generator) -> tuple[pd.DataFrame, Any]:
    """Three classes: ``marker`` resolves one, ``copy`` repeats it, ``weak`` helps with another, six are noise."""
    y = rng.integers(0, 3, n)
    marker = 1.5 * (y == 0) + rng.standard_normal(n)
    weak = 0.8 * (y == 1) + rng.standard_normal(n)
    columns = {"marker": marker, "copy": marker + 0.05 * rng.standard_normal(n), "weak": weak}
    return pd.DataFrame(columns | {f"noise {i}": rng.standard_normal(n) for i in range(6)}), y


def columns(samples: int) -> dict[str, Any]:
    rng = np.random.default_rng(SEED)
    model = LogisticRegression(max_iter=200)
    X_large, y_large = table(50_000, rng)
    kept = [name for name in X_large if name not in ("marker", "copy")]
    first, false, covered = [], [], {"pber": [], "gain": []}

    def brier(model: Any, X: pd.DataFrame) -> Any:
        return (residuals(model.predict_proba(X), y_large) ** 2).sum(axis=1).mean()

    for _ in range(samples):
        X, y = table(600, rng)
        found = column_value(model, X, y)
        flagged = found.table[found.table["flagged"]]["unit"].tolist()
        first.append(flagged[:1] == ["marker & copy"])
        noise = [name for name in flagged if str(name).startswith("noise")]
        false.append(len(noise) / max(len(flagged), 1))
        # A refit on as many fresh rows as a fold trains on, scored on rows that decide without luck.
        X_new, y_new = table(480, rng)
        after = brier(LogisticRegression(max_iter=200).fit(X_new, y_new), X_large)
        before = brier(LogisticRegression(max_iter=200).fit(X_new[kept], y_new), X_large[kept])
        low, high = found.pber_interval
        covered["pber"].append(low <= after <= high)
        row = found.table.set_index("unit").loc["marker & copy"]
        covered["gain"].append(row["low"] <= before - after <= row["high"])
    return {
        "samples": samples,
        "resolving column first and flagged": float(np.mean(first)),
        "false discovery rate": float(np.mean(false)),
        "PBER after adding it covered": float(np.mean(covered["pber"])),
        "gain covered": float(np.mean(covered["gain"])),
    }


def groups(samples: int) -> dict[str, Any]:
    problem = GaussianProblem([[0.0], [1.5], [4.0]])
    rng = np.random.default_rng(SEED)
    flagged, power = [], []
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
        found = collisions_by(P, noisy, own).table.set_index("group")
        power.append(found.loc[0, "verdict"] == "higher")
    plain, robust = [], []
    q = np.random.default_rng(1).beta(2, 1, 1_000_000)
    truth = float((2 * q * (1 - q)).mean())
    for _ in range(samples):
        p = np.repeat(rng.beta(2, 1, 50), 20)  # 50 patients, 20 rows each, all rows of a patient alike
        y = (rng.random(1000) < p).astype(int)
        P = np.column_stack([1 - p, p])
        r = (residuals(P, y) ** 2).sum(axis=1)
        for clusters, into in ((None, plain), (np.repeat(np.arange(50), 20), robust)):
            mean, stderr, _ = mean_and_error(r, clusters)
            into.append(abs(mean - truth) <= 2.01 * stderr)
    return {
        "samples": samples,
        "equal groups flagged": float(np.mean(flagged)),
        "rise of PBER in 400 of 2,000 rows": float(rise),
        "power": float(np.mean(power)),
        "50 clusters of 20: plain interval covers": float(np.mean(plain)),
        "50 clusters of 20: cluster-robust covers": float(np.mean(robust)),
    }


def limits(samples: int) -> dict[str, Any]:
    cost = np.array([[0.0, 1, 5], [1, 0, 1], [5, 1, 0]])
    cases: dict[str, Any] = {
        "logistic regression": (GaussianProblem([[0.0, 0], [1.5, 0], [0, 2.0]]), lambda m: LogisticRegression()),
        "nearest neighbours": (
            GaussianProblem([[0.0, 0], [1.5, 0], [0, 2.0]]),
            lambda m: KNeighborsClassifier(max(5, int(3 * m**0.5))),
        ),
    }
    rows = {}
    for name, (problem, model) in cases.items():
        rng = np.random.default_rng(SEED)
        X, y = problem.sample(100_000, rng, stratified=False)
        P, priors = problem.posteriors(X), np.full(3, 1 / 3)
        truth = {m.name: m.score(y, y if m.decide is None else m.decide(P, priors), P) for m in _metrics(3, cost)}
        inside: dict[str, list[bool]] = {metric: [] for metric in truth}
        width: dict[str, list[float]] = {metric: [] for metric in truth}
        for _ in range(samples):
            X, y = problem.sample(600, rng, stratified=False)
            by_size = {}
            for m in (200, 400, 800):
                A, b = problem.sample(m, rng)
                by_size[m] = model(m).fit(A, b).predict_proba(X)
            found = ceilings(by_size[800], y, posteriors_by_size=by_size, cost=cost).table.set_index("metric")
            for metric, value in truth.items():
                low, high = found.loc[metric, ["limit_low", "limit_high"]]
                inside[metric].append(bool(low <= value <= high))
                width[metric].append(float(high - low))
        rows[name] = {
            metric: {
                "truth": float(truth[metric]),
                "inside": float(np.mean(inside[metric])),
                "width": float(np.mean(width[metric])),
            }
            for metric in truth
        }
    return {"samples": samples} | rows


def splits(samples: int) -> dict[str, Any]:
    four, three = GaussianProblem([[0.0], [2.5], [7.5], [10.0]]), ring()
    rng = np.random.default_rng(SEED)
    found, false = [], []
    for _ in range(samples):
        X, part = four.sample(800, rng, stratified=False)
        P = four.posteriors(X)
        P = np.column_stack([P[:, 0], P[:, 1] + P[:, 2], P[:, 3]])
        table = split_candidates(P, np.array([0, 1, 1, 2])[part]).table
        found.append(table[table["flagged"]]["class"].tolist() == [1])
        X, y = three.sample(1500, rng, stratified=False)
        false.append(bool(split_candidates(three.posteriors(X), y).table["flagged"].any()))
    return {
        "samples": samples,
        "planted class found alone": float(np.mean(found)),
        "flagged in six Gaussians": float(np.mean(false)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--only", choices=["columns", "groups", "splits", "limits"], help="keep the other results")
    given = parser.parse_args()
    samples = given.samples
    results = ((load("decisions") or {}).get("results") or {}) if given.only else {}
    for part, count in ((columns, samples), (groups, 4 * samples), (splits, samples // 2), (limits, 2 * samples // 5)):
        if given.only not in (None, part.__name__):
            continue
        start = time.perf_counter()
        results[part.__name__] = part(count) | {"seconds": round(time.perf_counter() - start, 1)}
        print(part.__name__, results[part.__name__], flush=True)
    save("decisions", {"seed": SEED, "samples": samples}, results)


if __name__ == "__main__":
    main()
