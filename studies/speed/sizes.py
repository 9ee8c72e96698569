"""What a fit with its range costs beside what people run instead, at real sizes.

Processor seconds on one thread, in the same process one after the other: a fit of the default pool
with its range, over five folds of LightGBM as it comes (tables), of logistic regression
(embeddings), or of five stock classifiers (digits). Planted problems have a known truth.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from collidescope import CollisionClassifier, datasets
from collidescope.equations.densities import draw_classes
from studies.markdown import again, table
from studies.real_data import load_brfss, load_covertype, load_letter
from studies.speed.engine import adult
from studies.store import Cell, Record, Study, by_part

Classifiers = dict[str, Callable[[], Any]]


@dataclass(frozen=True)
class Problem:
    """Rows and labels, and PBER of the true posteriors where they are known."""

    X: np.ndarray
    y: np.ndarray
    truth: float | None = None


def pber_of(P: np.ndarray) -> float:
    return float(1 - (P * P).sum(axis=1).mean())


def softmax(logits: np.ndarray) -> np.ndarray:
    P = np.exp(logits - logits.max(axis=1, keepdims=True))
    return P / P.sum(axis=1, keepdims=True)


def teacher(n: int = 100_000, d: int = 30, used: int = 10, k: int = 5) -> Problem:
    """Labels drawn by a network that looks at some of the columns."""
    rng = np.random.default_rng(0)
    first = rng.normal(size=(used, 16)) / np.sqrt(used)
    second = rng.normal(size=(16, k))
    X = rng.normal(size=(n, d))
    seen = 2 * X[:, :used]
    hidden = np.tanh(seen @ first)
    logits = 0.75 * hidden @ second
    P = softmax(logits)
    y = draw_classes(P, rng)
    return Problem(X, y, pber_of(P))


def embeddings(n: int, d: int, k: int, heavy: bool = False) -> Problem:
    """Classes with one covariance and means of 32 dimensions.

    Heavy tails: every column is bent, one to one, so that the posteriors stay what they are.
    """
    rng = np.random.default_rng(0)
    rank = 32
    places = rng.normal(size=(k, rank))
    directions = rng.normal(size=(rank, d))
    means = places @ directions * (3.5 / np.sqrt(rank * d))
    y = rng.integers(0, k, n)
    noise = rng.normal(size=(n, d))
    rows = means[y] + noise
    squares = (means * means).sum(axis=1)
    scores = rows @ means.T - 0.5 * squares
    P = softmax(scores)
    mixing = rng.normal(size=(d, d)) / np.sqrt(d)
    mixed = rows @ mixing
    if heavy:
        size = np.abs(mixed) ** 1.5
        mixed = np.sign(mixed) * size
    return Problem(mixed.astype(np.float32), y, pber_of(P))


def some_rows(X: np.ndarray, y: np.ndarray, n: int = 100_000) -> Problem:
    chosen = np.random.default_rng(0).permutation(len(y))[:n]
    codes = np.unique(np.asarray(y)[chosen], return_inverse=True)[1]
    return Problem(np.asarray(X, dtype=np.float64)[chosen], codes)


def first_rows(X: np.ndarray, y: np.ndarray, n: int) -> Problem:
    return Problem(X[:n], y[:n])


def boosted() -> Any:
    import lightgbm

    return lightgbm.LGBMClassifier(n_jobs=1, verbose=-1)


LIGHTGBM: Classifiers = {"LightGBM": boosted}
LOGISTIC: Classifiers = {
    "logistic regression": lambda: make_pipeline(
        StandardScaler(), LogisticRegression()
    ),
    "LDA": lambda: LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
    "neighbours": lambda: KNeighborsClassifier(30),
    "MLP": lambda: make_pipeline(StandardScaler(), MLPClassifier(early_stopping=True)),
}
STOCK: Classifiers = {
    "logistic regression": lambda: make_pipeline(
        StandardScaler(), LogisticRegression()
    ),
    "naive Bayes": GaussianNB,
    "neighbours": lambda: KNeighborsClassifier(15),
    "forest": lambda: RandomForestClassifier(random_state=0),
    "LightGBM": LIGHTGBM["LightGBM"],
}
CASES: dict[str, tuple[Callable[[], Problem], Classifiers]] = {
    "scenario": (lambda: Problem(*datasets.scenario_a(5).sample(1250, 0)), LIGHTGBM),
    "digits": (lambda: Problem(*load_digits(return_X_y=True)), STOCK),
    "adult": (lambda: Problem(*adult()), LIGHTGBM),
    "adult, the first 32,561": (lambda: first_rows(*adult(), 32_561), LIGHTGBM),
    "letter": (lambda: some_rows(*load_letter()), LIGHTGBM),
    "covertype, 30,000": (lambda: some_rows(*load_covertype(), 30_000), LIGHTGBM),
    "brfss, 40,000": (lambda: some_rows(*load_brfss(), 40_000), LIGHTGBM),
    "embeddings 8,000 × 256, K = 40": (lambda: embeddings(8_000, 256, 40), LOGISTIC),
    "the same, heavy tails": (lambda: embeddings(8_000, 256, 40, heavy=True), LOGISTIC),
    "embeddings 10,000 × 384, K = 50": (lambda: embeddings(10_000, 384, 50), LOGISTIC),
    "embeddings 10,000 × 384, K = 1,000": (
        lambda: embeddings(10_000, 384, 1_000),
        LOGISTIC,
    ),
    "embeddings 20,000 × 384, K = 100": (
        lambda: embeddings(20_000, 384, 100),
        LOGISTIC,
    ),
    "brfss": (lambda: some_rows(*load_brfss()), LIGHTGBM),
    "network teacher": (teacher, LIGHTGBM),
    "covertype": (lambda: some_rows(*load_covertype()), LIGHTGBM),
    "embeddings 50,000 × 384, K = 50": (lambda: embeddings(50_000, 384, 50), LOGISTIC),
    "embeddings 50,000 × 384, K = 100": (
        lambda: embeddings(50_000, 384, 100),
        LOGISTIC,
    ),
    "embeddings 50,000 × 384, K = 100, heavy tails": (
        lambda: embeddings(50_000, 384, 100, heavy=True),
        LOGISTIC,
    ),
    "network teacher, K = 2": (lambda: teacher(1_000_000, k=2), LIGHTGBM),
}


def cells(quick: bool) -> list[Cell]:
    names = ["scenario"] if quick else [name for name in CASES if name != "scenario"]
    return [{"part": name} for name in names]


def run(cell: Cell) -> dict[str, Any]:
    # The first fit of a process imports what the others need.
    CollisionClassifier(random_state=0, limit=False, cv=2).fit(
        *datasets.scenario_a(3).sample(60, 0)
    )
    make, classifiers = CASES[cell["part"]]
    problem = make()
    start = time.process_time()
    clf = CollisionClassifier(random_state=0, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf.fit(problem.X, problem.y)
        ours = time.process_time() - start
        peers = {name: beside(problem, kind) for name, kind in classifiers.items()}
    seconds = {name: each["seconds"] for name, each in peers.items()}
    base = next(iter(seconds.values()))
    if cell["part"] == "digits":
        base = sum(seconds.values())
    return {
        "rows": len(problem.y),
        "columns": problem.X.shape[1],
        "seconds": ours,
        "base": base,
        "ratio": ours / base,
        "pber": clf.collision_matrix_.pber,
        "truth": problem.truth,
        "peers": peers,
        "trained": len(clf.member_weights_[0]),
        "weights": clf._ensemble.weights,
    }


def beside(problem: Problem, kind: Callable[[], Any]) -> dict[str, float]:
    """Processor seconds and Brier score of five folds of a classifier."""
    X = problem.X
    y = problem.y
    start = time.process_time()
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    losses = []
    for train, test in folds.split(X, y):
        fitted = kind().fit(X[train], y[train])
        P = fitted.predict_proba(X[test])
        every = np.arange(len(test))
        own = P[every, y[test]]
        squares = (P * P).sum(axis=1)
        losses.append(1 - 2 * own + squares)
    seconds = time.process_time() - start
    brier = np.concatenate(losses).mean()
    return {"seconds": seconds, "brier": float(brier)}


def text(records: list[Record]) -> str:
    rows = []
    for name, found in by_part(records).items():
        truth = ""
        if found["truth"] is not None:
            truth = f"{found['truth']:.4f}"
        best = min(found["peers"], key=lambda peer: found["peers"][peer]["brier"])
        row = [
            name,
            f"{found['rows']:,}",
            f"{found['seconds']:.0f} s",
            f"{found['base']:.1f} s",
        ]
        row += [f"{found['ratio']:.1f}", f"{found['pber']:.4f}", truth]
        row += [f"{found['peers'][best]['brier']:.4f} ({best})"]
        rows.append(row)
    head = ["data", "rows", "fit with its range", "beside it", "ratio", "PBER", "truth"]
    head += ["lowest Brier score of the others"]
    return f"""## What a fit costs beside what people run instead

Processor seconds on one thread. Beside a table stand five folds of LightGBM as it comes, beside
embeddings those of logistic regression, beside digits those of five stock classifiers together.

{table(head, rows)}

{again("sizes")}"""


STUDY = Study(
    "sizes", "What a fit costs at real sizes, beside others", cells, run, text, True
)
