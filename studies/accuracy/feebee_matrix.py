"""FeeBee for matrices: does the estimated B change as it must when labels pass through a known T?

Labels that are replaced with P(shown j | label i) = T[i, j] turn B = E[y yᵀ] into Tᵀ B T exactly,
for any data. The rows of a real table are split in halves: one keeps its labels and gives B, the
other gets noisy ones and gives B', from fits that know nothing of each other. Per entry: the error
B' - Tᵀ B T, the size of the change Tᵀ B T - B that was planted, and how often the error lies within
1.96 of its standard errors (those of the two halves, independent), for the one-step estimate as it
comes from the held-out posteriors. ``limit`` is S∞, whose standard error under T takes the entries
of the clean half for independent.

cleanlab's confident joint counts something else (labels that are probably wrong), and so do the
class similarities of ``spectral-metric`` (how alike the classes of neighbours are), so they are
compared by ranks: Spearman's correlation of the change of their symmetric off-diagonal entries, and
of ours, with the planted one. Each is left out where its package is missing
(``pip install cleanlab``, ``pip install --no-deps spectral-metric``).
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from collidescope import CollisionClassifier, CollisionMatrix
from collidescope.equations.densities import draw_classes
from studies.accuracy.real import load
from studies.markdown import again, columns
from studies.measures import Array, Rng
from studies.store import Cell, Record, Result, Study, flat, product

TABLES = """vehicle segment satimage penbased optdigits texture contraceptive led7digit phoneme
splice vowel marketing"""
#: Rows of both halves together.
MOST_ROWS = 6_000


def uniform(K: int) -> Array:
    """A fifth of the labels drawn anew from all classes."""
    return 0.8 * np.eye(K) + 0.2 / K


def pair_flips(K: int) -> Array:
    """Neighbours (0 and 1, 2 and 3, …) exchanged one time in five."""
    T = np.eye(K)
    for i in range(0, K - 1, 2):
        T[i : i + 2, i : i + 2] = [[0.8, 0.2], [0.2, 0.8]]
    return T


def dissolving(K: int) -> Array:
    """Half of the first class called any other."""
    T = np.eye(K)
    T[0] = 0.5 / (K - 1)
    T[0, 0] = 0.5
    return T


NOISE = {"uniform": uniform, "pair flips": pair_flips, "a class dissolving": dissolving}


def shown(y: Array, T: Array, rng: Rng) -> Array:
    """Labels passed through T."""
    return draw_classes(T[y], rng)


def one_step(P: Array, y: Array, T: Array) -> tuple[Array, Array]:
    """Tᵀ B̂ T and its standard errors: the mean of Tᵀ (c pᵀ + p cᵀ - p pᵀ) T over rows.

    >>> P, y = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0, 1])
    >>> one_step(P, y, np.array([[0.5, 0.5], [0.0, 1.0]]))[0].tolist()
    [[0.125, 0.125], [0.125, 0.625]]
    """
    p = P @ T
    c = T[y]
    c_p = c[:, :, None] * p[:, None, :]
    p_c = p[:, :, None] * c[:, None, :]
    p_p = p[:, :, None] * p[:, None, :]
    each = c_p + p_c - p_p
    return each.mean(axis=0), each.std(axis=0, ddof=1) / np.sqrt(len(y))


def cells(quick: bool) -> list[Cell]:
    if quick:
        return [{"table": "vehicle", "seed": 0, "members": "quick"}]
    return product(table=TABLES.split(), seed=[0], members=["auto"])


def run(cell: Cell) -> Result:
    """A fit on clean labels of one half; for each kind of noise, one on those of the other."""
    seed = cell["seed"]
    X, y = load(cell["table"])
    K = int(y.max()) + 1
    size = min(len(y), MOST_ROWS) - K
    rows, _ = train_test_split(
        np.arange(len(y)), train_size=size, stratify=y, random_state=seed
    )
    clean, other = train_test_split(
        rows, test_size=0.5, stratify=y[rows], random_state=seed
    )

    def fit(rows: Array, labels: Array) -> CollisionClassifier:
        clf = CollisionClassifier(
            members=cell["members"], device="cpu", random_state=seed
        )
        return clf.fit(X[rows], labels)

    first = fit(clean, y[clean])
    off = ~np.eye(K, dtype=bool)
    found = {"rows": len(clean), "classes": K, "noise": {}}
    for name, make in NOISE.items():
        T = make(K)
        labels = shown(y[other], T, np.random.default_rng([seed, len(name)]))
        second = fit(other, labels)
        before = (first.posteriors_, y[clean])
        after = (second.posteriors_, labels)
        entry, change = of_entries(before, after, T)
        entry |= at_the_limit(first.limit_.matrix, second.limit_.matrix, T)
        if find_spec("cleanlab"):
            said = _joint(*after) - _joint(*before)
            entry["cleanlab_rank"] = _rank(said[off], change[off])
        if find_spec("spectral_metric"):
            said = _similarity(X[other], labels) - _similarity(X[clean], y[clean])
            entry["spectral_rank"] = _rank(said[off], change[off])
        found["noise"][name] = entry
    return found


Labelled = tuple[Array, Array]


def of_entries(before: Labelled, after: Labelled, T: Array) -> tuple[Result, Array]:
    """Errors of B' per entry, and the planted change; posteriors and labels of both halves."""
    K = len(T)
    B, _ = one_step(*before, np.eye(K))
    expected, stderr = one_step(*before, T)
    given, own = one_step(*after, np.eye(K))
    change = expected - B
    error = np.abs(given - expected)
    inside = error <= 1.96 * np.hypot(own, stderr)
    upper = np.triu_indices(K)
    off = ~np.eye(K, dtype=bool)
    entry = {
        "planted": float(np.abs(change[upper]).mean()),
        "error": float(error[upper].mean()),
        "worst": float(error[upper].max()),
        "covered": float(inside[upper].mean()),
        "rank": _rank((given - B)[off], change[off]),
        # above 0: the half with noisy labels has learned less
        "pber": float(np.trace(expected) - np.trace(given)),
    }
    return entry, change


def at_the_limit(
    clean: CollisionMatrix, noisy: CollisionMatrix, T: Array
) -> dict[str, float]:
    """The same for what unlimited rows would leave."""
    error = np.abs(noisy.joint - T.T @ clean.joint @ T)
    variance = (T**2).T @ _half_width(clean) ** 2 @ T**2 + _half_width(noisy) ** 2
    inside = error <= np.sqrt(variance)
    upper = np.triu_indices(len(T))
    return {
        "limit_error": float(error[upper].mean()),
        "limit_covered": float(inside[upper].mean()),
    }


def _half_width(cm: CollisionMatrix) -> Array:
    """Of the intervals of B."""
    low, high = cm.interval() or (cm.matrix, cm.matrix)
    return cm.priors[:, None] * (high - low) / 2


def _joint(P: Array, y: Array) -> Array:
    from cleanlab.count import compute_confident_joint

    joint = compute_confident_joint(y, P, calibrate=True) / len(y)
    return (joint + joint.T) / 2


def _similarity(X: Array, y: Array) -> Array:
    from spectral_metric.estimator import CumulativeGradientEstimator

    X = StandardScaler().fit_transform(X)  # it looks at neighbours
    estimator = CumulativeGradientEstimator(M_sample=250, k_nearest=5).fit(X, y)
    return estimator.W


def _rank(said: Array, planted: Array) -> float | None:
    """Spearman's correlation; None where all entries change alike."""
    # Entries that differ by rounding alone are ties.
    value = float(spearmanr(np.round(said, 12), np.round(planted, 12)).statistic)
    if np.isnan(value):
        return None
    return value


COLUMNS = """
noise | {noise}
table | {table}
planted change | {planted:.4f}
error | {error:.4f}
error, S∞ | {limit_error:.4f}
covered | {covered:.0%}
covered, S∞ | {limit_covered:.0%}
rank | {rank:.2f}
rank, cleanlab | {cleanlab_rank:.2f}
rank, spectral-metric | {spectral_rank:.2f}
"""


def text(records: list[Record]) -> str:
    runs = [flat(record) for record in records]
    entries = [
        {"noise": noise, "table": run["table"], **found}
        for run in runs
        for noise, found in run["noise"].items()
    ]
    every = pd.DataFrame(entries)
    by_name = every.groupby(["noise", "table"], sort=False).mean().loc[list(NOISE)]
    rows = by_name.reset_index().to_dict("records")
    shown = columns(COLUMNS, rows).replace("| nan ", "|  ")
    mean = every.mean(numeric_only=True)
    return f"""## FeeBee for matrices

Labels passed through a known T turn B into TᵀBT exactly. B from one half of a real table, B' from
the other half with noisy labels; per entry the mean change that was planted, the mean error of
B' - TᵀBT and how often it lies within 95% of its standard errors; Spearman's correlation with the
planted change of our change, of that of cleanlab's confident joint and of the class similarities of
spectral-metric. Samples of each table: {len({run["seed"] for run in runs})}.

{shown}

On average the error is {mean["error"]:.4f} ({mean["limit_error"]:.4f} for S∞) where
{mean["planted"]:.4f} was planted. {mean["covered"]:.0%} of the entries are covered
({mean["limit_covered"]:.0%} for S∞): the half with noisy labels has more left to learn,
which intervals of S at n rows do not count and those of S∞ do. The mean rank correlation is
{mean["rank"]:.2f}, cleanlab's {mean["cleanlab_rank"]:.2f}, spectral-metric's
{mean["spectral_rank"]:.2f}. {again("feebee-matrix")}"""


STUDY = Study(
    "feebee-matrix", "Does B change as labels passed through T say?", cells, run, text
)
