"""Where would a stock classifier be ahead? Thirty-three kinds of made-up problems of few rows.

The default and the stock classifiers (and multinomial naive Bayes, where no feature is negative)
learn from the same rows. Brier scores are those of fresh rows; that of the true posteriors is the
PBER. Half of these kinds showed what the pool lacked (sparse regression, naive Bayes), so they are
no independent check of its members; no prior of the range was chosen on any of them.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.naive_bayes import MultinomialNB

from collidescope import CollisionClassifier
from studies.baselines.stock import STOCK
from studies.markdown import again, columns
from studies.measures import brier_score, geometric_mean
from studies.problems import KINDS
from studies.store import Cell, Record, Result, Study, flat, grouped, product

LEVEL = 0.95


def cells(quick: bool) -> list[Cell]:
    """Two samples of every kind."""
    if quick:
        return product(problem=["angles"], rows=[200], seed=[0])
    return product(seed=range(2), problem=KINDS, rows=[500])


def run(cell: Cell) -> Result:
    """Brier scores of ours and of the stock classifiers, and the range beside the truth."""
    sample = KINDS[cell["problem"]]
    X, y, _ = sample(cell["rows"], np.random.default_rng(cell["seed"]))
    fresh, labels, P = sample(5_000, np.random.default_rng(1_000 + cell["seed"]))
    _, _, truth = sample(50_000, np.random.default_rng(5))
    ours = CollisionClassifier(random_state=cell["seed"], device="cpu").fit(X, y)
    scores = {"pool": brier_score(ours.predict_proba(fresh), labels)}
    stock = dict(STOCK)
    if (X >= 0).all():
        stock["naive-bayes-counts"] = MultinomialNB
    for name, make in stock.items():
        model = make().fit(X, y)
        found = np.zeros_like(P)
        found[:, model.classes_] = model.predict_proba(fresh)
        scores[name] = brier_score(found, labels)
    return {
        "columns": X.shape[1],
        "classes": P.shape[1],
        "brier": scores,
        "truth": float(1 - np.square(truth).sum(axis=1).mean()),
        "range": list(ours.limit_.pber_interval(LEVEL)),
        "bayes_error": float(1 - truth.max(axis=1).mean()),
        "bayes_range": list(ours.limit_.bayes_error_interval(LEVEL)),
        "state": ours.limit_.state,
    }


def holds(run: Result, truth: str, ends: str) -> bool:
    low, high = run[ends]
    return bool(low <= run[truth] <= high)


COLUMNS = """
problem | {problem}
rows | {rows:,}
columns | {columns:,}
K | {classes:,}
true PBER | {truth:.3f}
default | {default:.3f}
best of the stock classifiers | {best} {best_score:.3f}
ratio | {ratio:.3f}
range holds it | {held} of {fits}
"""


def of_problem(runs: list[Result]) -> Result:
    """Mean scores of the default and of the best rival, and how often the range holds the truth."""
    scores = pd.DataFrame([run["brier"] for run in runs]).mean()
    ours = scores.pop("pool")
    return runs[0] | {
        "default": ours,
        "best": scores.idxmin(),
        "best_score": scores.min(),
        "ratio": ours / scores.min(),
        "held": sum(holds(run, "truth", "range") for run in runs),
        "fits": len(runs),
    }


def text(records: list[Record]) -> str:
    runs = [flat(record) for record in records]
    rows = [of_problem(own) for own in grouped(runs, "problem")]
    ratios = [row["ratio"] for row in rows]
    level = sum(ratio <= 1.01 for ratio in ratios)
    held = sum(row["held"] for row in rows)
    errors = sum(holds(run, "bayes_error", "bayes_range") for run in runs)
    return f"""## Made-up problems: Brier scores on fresh rows

{len(rows)} kinds of problems, of few rows, where a stock classifier might be ahead. Half of them
showed what the pool lacked, so they are no independent check of its members, nor of the range: its
prior was found on other fits of them. The default against the best, *in hindsight*, of the stock classifiers above and
multinomial naive Bayes: geometric mean of the ratios {geometric_mean(ratios):.3f}, lowest or within
1% on {level} of {len(rows)}. The range holds the true PBER in {held} of {len(runs)} fits, that of
the Bayes error in {errors}.

{columns(COLUMNS, rows)}

{again("made-up")}"""


STUDY = Study(
    "made-up", "Stock classifiers on 33 kinds of made-up problems", cells, run, text
)
