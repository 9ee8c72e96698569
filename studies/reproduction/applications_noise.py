"""Are wrong labels ranked above ambiguous rows? Average precision on planted label noise, on the
same posteriors.

Labels are replaced at random, by any other class (*symmetric*) or by the next one (*pair*). A
``CollisionClassifier`` is fitted on the noisy labels; its held-out posteriors go to our score and
to those of cleanlab. ``digits`` and ``letter`` have hardly ambiguous classes, Scenario A (five
Gaussians on a line) and D (a ring of them) have little else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score
from sklearn.preprocessing import scale

from collidescope import CollisionClassifier
from collidescope.applications import label_error_scores
from collidescope.datasets import ring, scenario_a
from studies.measures import mean_error
from studies.models import estimator_settings
from studies.real_data import load_letter
from studies.store import Cell, Record, Result, Study

Rows = tuple[np.ndarray, np.ndarray]
Score = Callable[[np.ndarray, np.ndarray], np.ndarray]
OURS = "collidescope"
CLEANLAB = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")
#: The constants of the score were chosen on seeds 1,000 and 1,001: other samples and noise, but the
#: same images of digits and the same table of letters.
SEEDS = range(10)
FIT = {"hidden_layer_sizes": (64,), "max_epochs": 60, "patience": 8}
#: Seeds of independent streams: rows, noise.
ROWS, NOISE_STREAM = 0, 1


def digits(rng: np.random.Generator, rows: int) -> Rows:
    """scikit-learn's digits."""
    X, y = load_digits(return_X_y=True)
    kept = rng.permutation(len(y))[:rows]
    return X[kept] / 16, y[kept]


def letter(rng: np.random.Generator, rows: int) -> Rows:
    """A part of the letters."""
    X, y = load_letter()
    kept = rng.permutation(len(y))[:rows]
    codes = np.unique(y, return_inverse=True)[1]
    return scale(X.to_numpy(dtype=float)[kept]), codes[kept]


DATA: dict[str, Callable[[np.random.Generator, int], Rows]] = {
    "digits": digits,
    "letter": letter,
    "A": lambda rng, rows: scenario_a(5).sample(rows, rng),
    "D": lambda rng, rows: ring().sample(rows, rng),
}


def cleanlab_score(method: str, adjust: bool) -> Score:
    """Of cleanlab, turned round so that higher is more suspect."""

    def score(P: np.ndarray, y: np.ndarray) -> np.ndarray:
        from cleanlab.rank import get_label_quality_scores

        return -get_label_quality_scores(y, P, method=method, adjust_pred_probs=adjust)

    return score


SCORES: dict[str, Score] = {OURS: label_error_scores}
SCORES |= {f"cleanlab {method}": cleanlab_score(method, False) for method in CLEANLAB}
SCORES |= {
    f"cleanlab {method}, adjusted": cleanlab_score(method, True)
    for method in CLEANLAB[:2]
}


def plant(
    y: np.ndarray, kind: str, rate: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """(labels with noise, which rows are wrong)."""
    k = int(y.max()) + 1
    wrong = np.zeros(len(y), dtype=bool)
    wrong[rng.choice(len(y), round(rate * len(y)), replace=False)] = True
    step = rng.integers(1, k, len(y)) if kind == "symmetric" else 1
    return np.where(wrong, (y + step) % k, y), wrong


def run(cell: Cell) -> dict[str, Any]:
    """Average precision, and the share of wrong labels among as many suspects as there are, of
    every score."""
    X, y = DATA[cell["data"]](np.random.default_rng([cell["seed"], ROWS]), cell["rows"])
    rng = np.random.default_rng([cell["seed"], NOISE_STREAM])
    noisy, wrong = plant(y, cell["noise"], cell["rate"], rng)
    settings = estimator_settings(FIT)
    clf = CollisionClassifier(random_state=cell["seed"], limit=False, **settings)
    P = clf.fit(X, noisy).posteriors_
    found: dict[str, Any] = {}
    for name, score in SCORES.items():
        suspicion = score(P, noisy)
        top = np.argsort(-suspicion, kind="stable")[: wrong.sum()]
        found[name] = {
            "average_precision": float(average_precision_score(wrong, suspicion)),
            "precision": float(wrong[top].mean()),
        }
    return found


def summary(records: list[Record], measure: str = "average_precision") -> list[Result]:
    """One row a setting: mean of every score, and our lead over the best of cleanlab's in
    hindsight."""
    groups: dict[tuple[Any, ...], list[Result]] = {}
    for record in records:
        key = tuple(record["cell"][name] for name in ("data", "noise", "rate"))
        groups.setdefault(key, []).append(record["result"])
    rows = []
    for (data, noise, rate), results in groups.items():
        values = np.array([[r[name][measure] for name in SCORES] for r in results])
        means = values.mean(axis=0)
        rival = 1 + int(means[1:].argmax())  # ours is the first
        lead = values[:, 0] - values[:, rival]
        row = {"data": data, "noise": noise, "rate": rate, "seeds": len(results)}
        row["scores"] = dict(zip(SCORES, means.tolist(), strict=True))
        rows.append(row | {"lead": lead.mean(), "lead_stderr": mean_error(lead)})
    return rows


def cells(quick: bool) -> list[Cell]:
    """Data × kind of noise × rate × seed."""
    rows = {"letter": 3_000, "digits": 1_797, "A": 2_000, "D": 2_000}
    rates = (0.05, 0.1)
    seeds = SEEDS
    if quick:
        rows, rates, seeds = {"D": 300}, (0.1,), range(1)
    return [
        {"data": name, "rows": count, "noise": noise, "rate": rate, "seed": seed}
        for name, count in rows.items()
        for noise in ("symmetric", "pair")
        for rate in rates
        for seed in seeds
    ]


STUDY = Study("label-errors", "Label errors against inherent ambiguity", cells, run)
