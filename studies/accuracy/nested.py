"""Do weights from the outer folds flatter the pool? Brier scores beside those with nested weights.

A row's weights are fitted on held-out rows of the other outer folds. The models behind those
predictions saw the row's label, which a handful of shrunk weights could in principle pass on.
Nested weights cannot: they are fitted on inner folds of the rows that the row's own models were
trained on. Same members, same outer predictions, paired difference.
"""

from __future__ import annotations

import numpy as np
from sklearn.model_selection import StratifiedKFold

from collidescope._progress import Progress
from collidescope.crossfit import Engine, train_folds
from collidescope.folds import Folds
from collidescope.learners.pool import pool, pool_weights
from collidescope.models import models_for
from collidescope.sample import make_sample
from studies.accuracy.real import SEED, load
from studies.markdown import table
from studies.measures import mean_error
from studies.store import Cell, Record, Result, Study, flat

TABLES = ("wine", "heart", "iris", "sonar", "bupa", "bands", "ionosphere", "saheart")
TABLES += ("housevotes", "hayes-roth")


def folds_of(X: np.ndarray, y: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    return list(StratifiedKFold(5, shuffle=True, random_state=SEED).split(X, y))


def scores(X: np.ndarray, y: np.ndarray, seed: int) -> np.ndarray:
    """Held-out log posteriors (members, rows, classes) of every member in five folds."""
    sample = make_sample(X, y)
    splits = folds_of(X, y)
    folds = Folds(splits, seeds=[seed + number for number in range(len(splits))])
    models = models_for("auto", sample, folds)
    logs = np.empty((len(models), len(y), sample.n_classes))
    with Progress("training folds", len(splits), verbose=0) as progress:
        trained, _ = train_folds(sample, models, folds, Engine(), progress)
    for (_, test), units in zip(splits, trained, strict=True):
        logs[:, test] = np.stack([unit.scores for unit in units.values()])
    return logs


def cells(quick: bool) -> list[Cell]:
    names = ["iris"] if quick else TABLES
    return [{"table": name} for name in names]


def run(cell: Cell) -> Result:
    X, y = load(cell["table"])
    outer = scores(X, y, SEED)
    brier = {"outer": np.empty(len(y)), "nested": np.empty(len(y))}
    for number, (train, test) in enumerate(folds_of(X, y)):
        inner = scores(X[train], y[train], 100 * (number + 1))
        for name, learned in (("outer", outer[:, train]), ("nested", inner)):
            P = pool(outer[:, test], pool_weights(learned, y[train]))
            own = P[np.arange(len(test)), y[test]]
            brier[name][test] = 1 - 2 * own + (P * P).sum(axis=1)
    difference = brier["outer"] - brier["nested"]
    return {
        "outer": float(brier["outer"].mean()),
        "nested": float(brier["nested"].mean()),
        "difference": float(difference.mean()),
        "stderr": mean_error(difference),
        "rows": len(y),
    }


def text(records: list[Record]) -> str:
    rows = []
    far = []
    for r in map(flat, records):
        difference = f"{r['difference']:+.4f} ± {r['stderr']:.4f}"
        both = [f"{r['outer']:.4f}", f"{r['nested']:.4f}"]
        rows.append([r["table"], f"{r['rows']:,}", *both, difference])
        if abs(r["difference"]) > 2 * r["stderr"]:
            far.append(r["table"])
    named = f" ({', '.join(far)})" if far else ""
    head = [
        "table",
        "rows",
        "weights from the other folds",
        "nested weights",
        "difference",
    ]
    return f"""## Do weights of the other folds flatter the pool?

A row's weights are fitted on rows of the other folds, whose models saw its label. Nested weights
cannot pass it on, but they are fitted for models of a fifth fewer rows. Brier scores differ by more
than two standard errors on {len(far)} of {len(rows)} tables{named}:

{table(head, rows)}"""


STUDY = Study(
    "nested", "Do weights of the other folds flatter the pool?", cells, run, text
)
