"""Do weights from the outer folds flatter the pool? Brier scores beside those with nested weights.

A row's weights are fitted on held-out rows of the other outer folds. The models behind those predictions saw the row's
label, which a handful of shrunk weights could in principle pass on. Nested weights cannot: they are fitted on inner
folds of the rows that the row's own models were trained on. Same members, same outer predictions, paired difference.

    python -m benchmarks.nested [--jobs 2]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold

from benchmarks import _record
from benchmarks.real import FOLDS, SEED, load
from collidescope.crossfit import Engine, make_task, train_fold
from collidescope.folds import Folds
from collidescope.learners.pool import pool, pool_weights
from collidescope.models import models_for
from collidescope.sample import make_sample

TABLES = (
    "wine",
    "heart",
    "iris",
    "sonar",
    "bupa",
    "bands",
    "ionosphere",
    "saheart",
    "housevotes",
    "hayes-roth",
)
INNER = 5


def scores(X: np.ndarray, y: np.ndarray, folds: Any, seed: int) -> np.ndarray:
    """Held-out log posteriors (members, rows, classes)."""
    sample = make_sample(X, y)
    plan = Folds(folds, seeds=[seed + number for number in range(len(folds))])
    models = models_for("auto", sample, plan)
    logs = np.empty((len(models), len(y), sample.n_classes))
    for number, (_, test) in enumerate(folds):
        task = make_task(sample, plan, Engine(), number)
        units = train_fold(models, task, sample.take(test)).units
        logs[:, test] = np.stack([unit.scores for unit in units.values()])
    return logs


def measure(table: str) -> dict[str, Any]:
    X, y = load(table, None)
    folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=SEED).split(X, y))
    logs = scores(X, y, folds, SEED)
    brier = {"outer": np.empty(len(y)), "nested": np.empty(len(y))}
    for number, (train, test) in enumerate(folds):
        inner = list(
            StratifiedKFold(INNER, shuffle=True, random_state=SEED).split(X[train], y[train])
        )
        inside = scores(X[train], y[train], inner, 100 * (number + 1))
        weights = {
            "outer": pool_weights(logs[:, train], y[train]),
            "nested": pool_weights(inside, y[train]),
        }
        for name, w in weights.items():
            P = pool(logs[:, test], w)
            brier[name][test] = 1 - 2 * P[np.arange(len(test)), y[test]] + (P * P).sum(axis=1)
    difference = brier["outer"] - brier["nested"]
    error = difference.std(ddof=1) / np.sqrt(len(y))
    means = {name: float(values.mean()) for name, values in brier.items()}
    return means | {"difference": float(difference.mean()), "stderr": float(error), "rows": len(y)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1)
    runs = _record.resume(
        "nested",
        {"inner": INNER},
        [{"table": name} for name in TABLES],
        measure,
        parser.parse_args().jobs,
    )
    for run in runs:
        print(
            "{table:12s} {outer:.4f} {nested:.4f}  {difference:+.4f} ± {stderr:.4f}".format(**run)
        )
    total = sum(run["difference"] for run in runs) / len(runs)
    error = np.sqrt(sum(run["stderr"] ** 2 for run in runs)) / len(runs)
    print(f"mean difference {total:+.5f} ± {error:.5f}")


if __name__ == "__main__":
    main()
