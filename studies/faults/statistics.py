"""Statistics that hold: false alarms where there is nothing to find, S = I where classes are separable, and what the
order of rows, the names and the order of classes change beside what the seed changes.

    python -m studies.faults.statistics            all (about ten minutes on one core), then the table of the page
    python -m studies.faults.statistics --quick    a tenth of the repetitions, printed only
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import collidescope as cs
from collidescope.datasets import scenario_a
from collidescope.trust import shuffled_control
from studies.faults import _record as record

PAGE = Path(__file__).parents[2] / "docs" / "reliability-data.md"
MARKS = "<!-- statistics -->", "<!-- /statistics -->"
NAME = "statistics"
#: (number of classes, rows, model, repetitions)
NULL = [
    (2, 300, "logistic regression", 300),
    (5, 300, "logistic regression", 300),
    (5, 3000, "logistic regression", 100),
    (3, 300, "linear", 50),
    (3, 300, "default", 20),
]
SEPARABLE = [(3, 300, "logistic regression", 100), (3, 300, "linear", 20), (3, 300, "default", 10)]
SEEDS = 12


def collisions(model: str, X: Any, y: Any, seed: int) -> cs.CollisionMatrix:
    if model == "logistic regression":
        return cs.estimate_collisions(LogisticRegression(), X, y, random_state=seed)
    members: dict[str, Any] = {} if model == "default" else {"members": ["linear"]}
    return cs.CollisionClassifier(random_state=seed, limit=False, **members).fit(X, y).one_step_


def null_data(k: int, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels that have nothing to do with the features; every class has its share of the rows."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 4)), rng.permutation(np.arange(n) % k)


def separable_data(k: int, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Clouds twenty standard deviations apart."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % k)
    return rng.normal(size=(n, k)) + 20 * np.eye(k)[y], y


def null_once(k: int, n: int, model: str, seed: int) -> dict[str, float]:
    """What is said of labels that are noise."""
    X, y = null_data(k, n, seed)
    cm = collisions(model, X, y, seed)
    low, high = cm.interval(0.95)
    below, above = cm.pber_interval(0.95)
    chance = 1 - float((cm.priors**2).sum())
    found = {
        "entries_missed": float(((low > cm.priors) | (high < cm.priors)).mean()),
        "pber_missed": float(not below <= chance <= above),
        # a PBER below chance: "the inputs say something about the classes"
        "structure_claimed": float(above < chance),
    }
    if model != "default":
        P = cs.crossfit_posteriors(LogisticRegression(), X, y, random_state=seed)
        said = cs.crossfit_posteriors(GaussianNB(), X, y, random_state=seed).argmax(axis=1)
        found["audit_flagged"] = float(cs.audit(P, y_true=y, y_pred=said).pairs["flagged"].any())
        found["control_failed"] = float(
            not shuffled_control(LogisticRegression(), X, y, seed).passed
        )
    return found


def separable_once(k: int, n: int, model: str, seed: int) -> dict[str, float]:
    """Is S = I within the intervals?"""
    cm = collisions(model, *separable_data(k, n, seed), seed)
    low, high = cm.interval(0.95)
    eye = np.eye(k)
    return {
        "entries_missed": float(((low > eye + 1e-12) | (high < eye - 1e-12)).mean()),
        "pber_missed": float(cm.pber_interval(0.95)[0] > 0),
        "pber": cm.pber,
    }


def variants(
    X: np.ndarray, y: np.ndarray, seed: int
) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(X, y, the order that brings S back) of the same data written differently."""
    rng = np.random.default_rng(seed)
    k = y.max() + 1
    rows, order = rng.permutation(len(y)), np.roll(np.arange(k), 1)
    names = np.array([f"class {c}" for c in range(k)])
    same = np.arange(k)
    return {
        "another order of rows": (X[rows], y[rows], same),
        "other names": (X, names[y], same),
        "another order of classes": (X, order[y], order),
        "another order of features": (X[:, ::-1].copy(), y, same),
    }


def invariance(model: str) -> dict[str, Any]:
    """Mean and largest change of an entry of S: by the seed alone, and by writing the data differently."""
    X, y = scenario_a(3).sample(300, 0)
    base = [collisions(model, X, y, seed).matrix for seed in range(SEEDS)]
    seeds = np.array([np.abs(base[a] - base[b]) for a in range(SEEDS) for b in range(a)])
    found = {"another seed": {"mean": float(seeds.mean()), "largest": float(seeds.max())}}
    changes: dict[str, list[np.ndarray]] = {}
    for seed in range(SEEDS):
        for name, (Z, labels, back) in variants(X, y, seed).items():
            S = collisions(model, Z, labels, seed).matrix
            changes.setdefault(name, []).append(np.abs(S[np.ix_(back, back)] - base[seed]))
    return found | {
        name: {"mean": float(np.mean(values)), "largest": float(np.max(values))}
        for name, values in changes.items()
    }


def mean_of(once: Any, k: int, n: int, model: str, repetitions: int) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cs.CollisionWarning)  # that noise is noise is what they say
        rows = [once(k, n, model, seed) for seed in range(repetitions)]
    means = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
    setting = {"classes": k, "rows": n, "model": model, "repetitions": repetitions}
    print(setting, {key: round(value, 4) for key, value in means.items()}, flush=True)
    return setting | means


def page(results: dict[str, Any]) -> str:
    """The tables of the page."""

    def percent(row: dict[str, Any], key: str) -> str:
        return f"{row[key]:.1%}" if key in row else ""

    lines = [
        "| noise: K, rows, model | fits | entries of S missed | PBER missed | structure claimed | audit flags a pair "
        "| control fails |",
        "|---|---|---|---|---|---|---|",
    ]
    keys = ["entries_missed", "pber_missed", "structure_claimed", "audit_flagged", "control_failed"]
    for row in results["null"]:
        what = f"{row['classes']}, {row['rows']:,}, {row['model']}"
        lines.append(
            f"| {what} | {row['repetitions']} | "
            + " | ".join(percent(row, key) for key in keys)
            + " |"
        )
    lines += [
        "",
        "| separable: K, rows, model | fits | entries of I missed | PBER 0 missed | mean PBER |",
        "|---|---|---|---|---|",
    ]
    for row in results["separable"]:
        what = f"{row['classes']}, {row['rows']:,}, {row['model']}"
        lines.append(
            f"| {what} | {row['repetitions']} | {percent(row, 'entries_missed')} | {percent(row, 'pber_missed')} "
            f"| {row['pber']:.1e} |"
        )
    models = list(results["invariance"])
    lines += [
        "",
        "| mean (largest) change of an entry of S | " + " | ".join(models) + " |",
        "|---" * (1 + len(models)) + "|",
    ]
    for name in results["invariance"][models[0]]:
        cells = [results["invariance"][model][name] for model in models]
        lines.append(
            f"| {name} | "
            + " | ".join(f"{c['mean']:.4f} ({c['largest']:.4f})" for c in cells)
            + " |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    share = 10 if quick else 1
    results = {
        "null": [mean_of(null_once, k, n, model, max(2, r // share)) for k, n, model, r in NULL],
        "separable": [
            mean_of(separable_once, k, n, model, max(2, r // share)) for k, n, model, r in SEPARABLE
        ],
        "invariance": {model: invariance(model) for model in ("logistic regression", "linear")},
    }
    table = page(results)
    print(table)
    if quick:
        return
    record.save(NAME, {"seeds": SEEDS, "level": 0.95, "fdr": 0.05}, results)
    before, rest = PAGE.read_text(encoding="utf-8").split(MARKS[0])
    PAGE.write_text(
        f"{before}{MARKS[0]}\n\n{table}\n\n{MARKS[1]}{rest.split(MARKS[1])[1]}", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
