"""Statistics that hold: false alarms, separable classes, invariance.

False alarms where there is nothing to find, S = I where classes are separable, and what the order
of rows, the names and the order of classes change beside what the seed changes.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import collidescope as cs
from collidescope.datasets import scenario_a
from collidescope.trust import shuffled_control
from studies.markdown import table
from studies.store import Cell, Record, Result, Study, flat

#: (number of classes, rows, model, repetitions)
NULL = [
    (2, 300, "logistic regression", 300),
    (5, 300, "logistic regression", 300),
    (5, 3000, "logistic regression", 100),
    (3, 300, "linear", 50),
    (3, 300, "default", 20),
]
SEPARABLE = [
    (3, 300, "logistic regression", 100),
    (3, 300, "linear", 20),
    (3, 300, "default", 10),
]
SEEDS = 12
VARIANTS = ("another order of rows", "other names", "another order of classes")
VARIANTS += ("another order of features",)


def collisions(model: str, X: Any, y: Any, seed: int) -> cs.CollisionMatrix:
    if model == "logistic regression":
        return cs.estimate_collisions(LogisticRegression(), X, y, random_state=seed)
    members = "auto" if model == "default" else ["linear"]
    clf = cs.CollisionClassifier(members=members, random_state=seed, limit=False)
    return clf.fit(X, y).one_step_


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
        said = cs.crossfit_posteriors(GaussianNB(), X, y, random_state=seed).argmax(
            axis=1
        )
        found["audit_flagged"] = float(
            cs.audit(P, y_true=y, y_pred=said).pairs["flagged"].any()
        )
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
    rows = rng.permutation(len(y))
    order = np.roll(np.arange(k), 1)
    names = np.array([f"class {c}" for c in range(k)])
    same = np.arange(k)
    return {
        "another order of rows": (X[rows], y[rows], same),
        "other names": (X, names[y], same),
        "another order of classes": (X, order[y], order),
        "another order of features": (X[:, ::-1].copy(), y, same),
    }


def invariance(model: str) -> Result:
    """Mean and largest change of an entry of S: by the seed alone, and by writing the data
    differently."""
    X, y = scenario_a(3).sample(300, 0)
    base = [collisions(model, X, y, seed).matrix for seed in range(SEEDS)]
    seeds = np.array(
        [np.abs(base[a] - base[b]) for a in range(SEEDS) for b in range(a)]
    )
    found = {
        "another seed": {"mean": float(seeds.mean()), "largest": float(seeds.max())}
    }
    changes: dict[str, list[np.ndarray]] = {}
    for seed in range(SEEDS):
        for name, (Z, labels, back) in variants(X, y, seed).items():
            S = collisions(model, Z, labels, seed).matrix
            changes.setdefault(name, []).append(
                np.abs(S[np.ix_(back, back)] - base[seed])
            )
    return found | {
        name: {"mean": float(np.mean(values)), "largest": float(np.max(values))}
        for name, values in changes.items()
    }


def cells(quick: bool) -> list[Cell]:
    """The settings of the page; a tenth of the repetitions when quick."""
    found: list[Cell] = []
    for part, settings in (("null", NULL), ("separable", SEPARABLE)):
        for k, n, model, repetitions in settings:
            count = max(2, repetitions // 10) if quick else repetitions
            cell = {
                "part": part,
                "classes": k,
                "rows": n,
                "model": model,
                "repetitions": count,
            }
            found.append(cell)
    models = ("logistic regression", "linear")
    return found + [{"part": "invariance", "model": model} for model in models]


def run(cell: Cell) -> Result:
    if cell["part"] == "invariance":
        return invariance(cell["model"])
    once = {"null": null_once, "separable": separable_once}[cell["part"]]
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", cs.CollisionWarning
        )  # that noise is noise is what they say
        rows = [
            once(cell["classes"], cell["rows"], cell["model"], seed)
            for seed in range(cell["repetitions"])
        ]
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}


def text(records: list[Record]) -> str:
    """The tables of docs/reliability-data.md."""
    runs = [flat(record) for record in records]
    null = [run for run in runs if run["part"] == "null"]
    separable = [run for run in runs if run["part"] == "separable"]
    changes = {run["model"]: run for run in runs if run["part"] == "invariance"}

    def about(run: Result, keys: tuple[str, ...]) -> list[str]:
        what = f"{run['classes']}, {run['rows']:,}, {run['model']}"
        shares = [f"{run[key]:.1%}" if key in run else "" for key in keys]
        return [what, str(run["repetitions"]), *shares]

    missed = ("entries_missed", "pber_missed")
    more = ("structure_claimed", "audit_flagged", "control_failed")
    noise_head = ["noise: K, rows, model", "fits", "entries of S missed", "PBER missed"]
    noise_head += ["structure claimed", "audit flags a pair", "control fails"]
    apart_head = [
        "separable: K, rows, model",
        "fits",
        "entries of I missed",
        "PBER 0 missed",
    ]
    apart_rows = [[*about(run, missed), f"{run['pber']:.1e}"] for run in separable]
    rows = []
    for name in ("another seed", *VARIANTS):
        found = [change[name] for change in changes.values()]
        rows.append([name, *(f"{c['mean']:.4f} ({c['largest']:.4f})" for c in found)])
    head = ["mean (largest) change of an entry of S", *changes]
    return f"""{table(noise_head, [about(run, missed + more) for run in null])}

{table([*apart_head, "mean PBER"], apart_rows)}

{table(head, rows)}"""


STUDY = Study(
    "statistics", "False alarms, separable classes, invariance", cells, run, text
)
