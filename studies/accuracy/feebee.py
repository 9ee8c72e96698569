"""FeeBee: which estimate of the Bayes error stays within what must be true as labels are replaced at random?

The protocol of Renggli et al. (2021): a share ρ of the labels is drawn anew from all K classes, which turns a Bayes
error R into R + ρ (1 - 1/K - R). With 0 ≤ R ≤ e₀, e₀ the error of the best known classifier, the admissible band at ρ
is ρ (1 - 1/K) to e₀ + ρ (1 - 1/K - e₀). L and U are the mean distances of an estimator's lower and upper estimate
from the band, over ρ and runs. Everyone gets the same rows as they are: pixels or columns, no features learned
elsewhere.

e₀ is the error that FeeBee itself takes for MNIST, and for the other sets the lowest error that a few classifiers
reach on held-out rows when trained on up to 20,000 others (``reference``).

    python -m studies.accuracy.feebee --jobs 16 [--data FOLDER] [--members quick] [--runs 5] [--rows 3000]
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import pdist, squareform
from scipy.special import logsumexp
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from collidescope.equations.bounds import bayes_error_bounds
from collidescope.limit import Limit
from collidescope.matrix import CollisionMatrix
from studies.accuracy import _record
from studies.accuracy.real import load as load_keel

SETS = ("MNIST", "Fashion-MNIST-H", "letter", "satimage", "covertype")
LEVELS = tuple(round(0.1 * step, 1) for step in range(11))
#: Error of the best known classifier as FeeBee's own analysis has it.
PUBLISHED = {"MNIST": 0.0013}
REFERENCE_ROWS, REFERENCE_TESTS = 20_000, 5_000
#: Neighbours of the rivals that have more than one.
NEIGHBOURS = 10
#: Ours: the 95% range of the Bayes error, and its most likely value as lower and upper estimate alike.
RANGE, LIKELY = "collidescope, range", "collidescope, most likely value"
#: Seed of the streams: rows, noise.
ROWS_STREAM, NOISE_STREAM = 0, 1

Bounds = tuple[float, float]


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """All rows (flat) and class numbers of a set."""
    from studies import real_data

    if name == "MNIST":
        parts = [real_data.load_mnist(part) for part in ("train", "test")]
        X, y = (np.concatenate(each) for each in zip(*parts, strict=True))
        return X.reshape(len(X), -1) / 255.0, y
    if name == "Fashion-MNIST-H":
        with np.load(real_data.data_folder() / "fashion_mnist_h" / "fashion_mnist_h.npz") as arrays:
            images, votes = arrays["X"], arrays["V"]
        # One vote of each image, drawn once and for all: a label as one annotator would give it.
        shares = np.cumsum(votes / votes.sum(axis=1, keepdims=True), axis=1)
        drawn = np.random.default_rng(ROWS_STREAM).random((len(votes), 1))
        return images.reshape(len(images), -1) / 255.0, np.minimum(
            (shares <= drawn).sum(axis=1), votes.shape[1] - 1
        )
    if name == "satimage":
        keel = real_data.data_folder() / "keel"
        return load_keel(name, keel if keel.exists() else None)
    X, labels = {"letter": real_data.load_letter, "covertype": real_data.load_covertype}[name]()
    return X.to_numpy(dtype=np.float64), np.unique(labels, return_inverse=True)[1]


def noisy(y: np.ndarray, share: float, K: int, rng: np.random.Generator) -> np.ndarray:
    """A share of the labels drawn anew from all classes."""
    return np.where(rng.random(len(y)) < share, rng.integers(K, size=len(y)), y)


# ---------------------------------------------------------------- rivals: (lower, upper) from rows and labels


def mst_bounds(X: np.ndarray, y: np.ndarray) -> Bounds:
    """GHP (Sekeh et al. 2020), which is DataEval's ``ber_mst``: the share of edges between classes of a spanning tree.

    >>> mst_bounds(np.array([[0.0], [1.0], [2.0], [10.0]]), np.array([0, 0, 1, 1]))[1]
    0.25
    """
    distances = squareform(pdist(X))
    # Zero means "no edge" to the sparse graph, and equal rows are near, not apart.
    tree = minimum_spanning_tree(
        np.where(distances == 0, np.finfo(np.float64).tiny, distances)
    ).tocoo()
    edges = float((y[tree.row] != y[tree.col]).sum())
    upper = edges / len(y)
    K = len(np.unique(y))
    return bayes_error_bounds(min(upper, 1 - 1 / K), K)[0], upper


def _neighbours(X: np.ndarray, y: np.ndarray, k: int) -> np.ndarray:
    """Labels of the k nearest other rows, (n, k)."""
    from sklearn.neighbors import NearestNeighbors

    return y[NearestNeighbors(n_neighbors=k).fit(X).kneighbors(return_distance=False)]


def _votes(voters: np.ndarray, K: int) -> np.ndarray:
    return np.stack([(voters == k).sum(axis=1) for k in range(K)], axis=1)


def knn_bounds(X: np.ndarray, y: np.ndarray, k: int) -> Bounds:
    """Leave-one-out error of k neighbours (DataEval's ``ber_knn``), and the lower bound that belongs to it."""
    K = int(y.max()) + 1
    upper = float((_votes(_neighbours(X, y, k), K).argmax(axis=1) != y).mean())
    if K == 2 and k > 2:  # FeeBee; for more classes Cover and Hart's bound serves every k
        return upper / (1 + 1 / np.sqrt(k)), upper
    return bayes_error_bounds(min(upper, 1 - 1 / K), K)[0], upper


def knn_posterior_bounds(X: np.ndarray, y: np.ndarray, k: int) -> Bounds:
    """kNN-LOO of FeeBee: 1 - mean of the largest share among k neighbours, without the row itself and with it."""
    K = int(y.max()) + 1
    voters = _neighbours(X, y, k)
    without = 1 - _votes(voters, K).max(axis=1).mean() / k
    resubstituted = 1 - _votes(np.column_stack([voters[:, : k - 1], y]), K).max(axis=1).mean() / k
    return float(min(without, resubstituted)), float(max(without, resubstituted))


def kde_estimate(X: np.ndarray, y: np.ndarray) -> Bounds:
    """1 - mean of the largest posterior of Gaussian kernel densities, one per class, on held-out halves."""
    X = StandardScaler().fit_transform(X)
    n, d = X.shape
    K = int(y.max()) + 1
    kept = 0.0
    for train, test in StratifiedKFold(2, shuffle=True, random_state=0).split(X, y):
        logs = np.full((len(test), K), -np.inf)
        for k in range(K):
            own = X[train[y[train] == k]]
            if len(own):
                density = KernelDensity(bandwidth=len(own) ** (-1 / (d + 4))).fit(
                    own
                )  # Scott's rule
                logs[:, k] = density.score_samples(X[test]) + np.log(len(own))
        kept += float(np.exp(logs.max(axis=1) - logsumexp(logs, axis=1)).sum())
    return 1 - kept / n, 1 - kept / n


RIVALS: dict[str, Callable[[np.ndarray, np.ndarray], Bounds]] = {
    "GHP, DataEval's ber_mst": mst_bounds,
    "1-NN (Cover–Hart), DataEval's ber_knn": lambda X, y: knn_bounds(X, y, 1),
    f"{NEIGHBOURS}-NN": lambda X, y: knn_bounds(X, y, NEIGHBOURS),
    f"{NEIGHBOURS}-NN-LOO posteriors": lambda X, y: knn_posterior_bounds(X, y, NEIGHBOURS),
    "KDE": kde_estimate,
}


def ours(X: np.ndarray, y: np.ndarray, members: str, seed: int) -> dict[str, Any]:
    """Upper limit and range of the Bayes error, the held-out error, and what the range says of itself."""
    from collidescope.classifier import CollisionClassifier

    clf = CollisionClassifier(members=members, device="cpu", random_state=seed).fit(X, y)
    assert clf.limit_ is not None
    return {
        "limit": clf.limit_.to_dict() | {"matrix": None},
        "upper_limit": clf.collision_matrix_.bayes_error_limit(),
        "held_out_error": clf.collision_matrix_.held_out_error,
        "pber": clf.collision_matrix_.pber,
        "state": clf.limit_.state,
    }


# ---------------------------------------------------------------- cells


def reference(data: str) -> dict[str, Any]:
    """The lowest held-out error of some classifiers that are trained on many rows."""
    X, y = load(data)
    rows = np.random.default_rng(ROWS_STREAM).permutation(len(y))[
        : REFERENCE_ROWS + REFERENCE_TESTS
    ]
    tests = min(REFERENCE_TESTS, len(rows) // 5)
    test, train = rows[:tests], rows[tests:]
    models = {
        "SVC": make_pipeline(StandardScaler(), SVC(C=10)),
        "SVC, as they are": SVC(C=10, gamma="scale"),
        "extra trees": ExtraTreesClassifier(300, random_state=0),
    }
    if X.shape[1] < 100:
        models["boosting"] = HistGradientBoostingClassifier(max_iter=300, random_state=0)
    errors = {
        name: float((m.fit(X[train], y[train]).predict(X[test]) != y[test]).mean())
        for name, m in models.items()
    }
    best = min(errors, key=lambda name: errors[name])
    return {
        "error": errors[best],
        "model": best,
        "trained": len(train),
        "tested": tests,
        "classes": int(y.max()) + 1,
    }


def estimates(
    data: str, rows: int, share: float, run: int, members: str, ours_only: bool = False
) -> dict[str, Any]:
    """Every estimator on the same rows and labels."""
    X, y = load(data)
    K = int(y.max()) + 1
    kept = np.random.default_rng([run, ROWS_STREAM]).permutation(len(y))[:rows]
    labels = noisy(y[kept], share, K, np.random.default_rng([run, NOISE_STREAM, round(10 * share)]))
    X, (_, codes) = X[kept], np.unique(labels, return_inverse=True)
    found: dict[str, Any] = {
        name: list(rival(X, codes)) for name, rival in RIVALS.items() if not ours_only
    }
    return {"classes": K} | found | ours(X, codes, members, run)


def measure(kind: str, **cell: Any) -> dict[str, Any]:
    return {"reference": reference, "estimates": estimates}[kind](**cell)


# ---------------------------------------------------------------- scores


def band(share: float, K: int, best: float) -> Bounds:
    """Where the Bayes error of the noisy labels lies.

    >>> band(0.5, 2, 0.25)
    (0.25, 0.375)
    """
    most = 1 - 1 / K
    return share * most, best + share * (most - best)


def outside(value: float, share: float, K: int, best: float) -> float:
    """Distance from the band of a value, which is cut to what an error rate can be."""
    low, high = band(share, K, best)
    value = float(np.clip(value, 0, 1 - 1 / K))
    return max(low - value, value - high, 0.0)


def ours_now(run: dict[str, Any], name: str) -> Bounds:
    """What the recorded curve says now; of its matrix, which is not kept, the number of classes and the PBER matter."""
    limit, K = Limit.from_dict(run["limit"]), run["classes"]
    if name == LIKELY:
        assert limit.bayes_error is not None
        return limit.bayes_error, limit.bayes_error
    ambiguous = min(limit.pber, 1 - 1 / K)
    S = np.full((K, K), ambiguous / (K - 1)) + (1 - ambiguous * K / (K - 1)) * np.eye(K)
    return replace(limit, matrix=CollisionMatrix(S)).bayes_error_interval()


def scores(runs: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """{set: {estimator: {"L", "U", "outside"}}}: "outside" is the share of pairs that miss the truth."""
    bests = {
        r["data"]: PUBLISHED.get(r["data"], r["error"]) for r in runs if r["kind"] == "reference"
    }
    found: dict[str, dict[str, dict[str, float]]] = {}
    for data, best in bests.items():
        own = [r for r in runs if r["kind"] == "estimates" and r["data"] == data]
        for name in (*RIVALS, LIKELY, RANGE) if own else ():
            parts = []
            for r in own:
                low, high = r[name] if name in RIVALS else ours_now(r, name)
                under, over = band(r["share"], r["classes"], best)
                miss = [outside(value, r["share"], r["classes"], best) for value in (low, high)]
                # The truth lies somewhere in the band: a pair wholly above or below it cannot hold it.
                parts.append([*miss, float(low > over or high < under)])
            names = ("L", "U", "outside")
            found.setdefault(data, {})[name] = dict(
                zip(names, np.mean(parts, axis=0).tolist(), strict=True)
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", help="folder of the sets (default: $COLLIDESCOPE_DATA); KEEL's *.dat in its keel/"
    )
    parser.add_argument("--sets", nargs="*", default=SETS, choices=SETS)
    parser.add_argument("--rows", type=int, default=3_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--levels", type=float, nargs="*", default=LEVELS)
    parser.add_argument("--members", default="auto", choices=["auto", "quick"])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--again", action="store_true", help="ours once more, where the pool was another"
    )
    parser.add_argument("--record", default="feebee", help="name of the file of results")
    options = parser.parse_args()
    if options.data:
        os.environ["COLLIDESCOPE_DATA"] = options.data
    cells = [{"kind": "reference", "data": name} for name in options.sets]
    shared = {"rows": options.rows, "members": options.members}
    cells += [
        {"kind": "estimates", "data": name, "share": share, "run": run} | shared
        for run in range(options.runs)
        for name in options.sets
        for share in options.levels
    ]
    config = {"published": PUBLISHED, "level": 0.95}
    measured = measure
    if options.again:
        cells, measured = cells[len(options.sets) :], partial(measure, ours_only=True)
    runs = _record.resume(
        options.record, config, cells, measured, options.jobs, again=options.again
    )
    for data, rows in scores(runs).items():
        print(data)
        for name, score in rows.items():
            print(
                f"   {name:<40} " + "  ".join(f"{key} {value:.4f}" for key, value in score.items())
            )


if __name__ == "__main__":
    main()
