"""Rivals from other projects: cleanlab's confident joint, and nearest neighbours' bounds on the Bayes error."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.neighbors import NearestNeighbors

from collidescope import _checks as check
from collidescope._checks import FloatArray
from collidescope.equations.bounds import bayes_error_bounds
from collidescope.equations.densities import Seed, as_generator
from studies.baselines._labelled import labelled_posteriors, refuse_empty_classes

if TYPE_CHECKING:
    import pandas as pd

#: Rows are moved by this share of a feature's standard deviation, which tells equal distances apart and no others that
#: matter. Smaller shifts would drown in the rounding of distances.
TIE_BREAK = 1e-6


def confident_joint_matrix(P: npt.ArrayLike, y: npt.ArrayLike) -> FloatArray:
    """Row i: how the rows *given* the label i are shared out over *true* labels j, according to cleanlab.

    cleanlab's ``compute_confident_joint`` counts rows by their given label (rows of the matrix) and by the class that
    the model is confident of, taken as the true label (columns), calibrated as it does by default: row i then sums
    to the number of rows labelled i. Divided by it, row i estimates P(true label j | given label i).

    It lies as S does, whose row i is also about the rows labelled i, but it is another quantity: S tells what a second
    draw of the label would give, and knows no true label. In overlapping classes a confident model finds hardly any
    label wrong; then this matrix is near the identity and S is not.

    Parameters
    ----------
    P : array of shape (n, K)
        Held-out posteriors, columns in the order of the sorted labels.
    y : array of n labels

    Examples
    --------
    >>> confident_joint_matrix(
    ...     [[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.2, 0.8]], ["a", "a", "b", "b"]
    ... )
    array([[1., 0.],
           [0., 1.]])
    """
    count = _cleanlab("count", "confident_joint_matrix")
    posteriors, codes, classes = labelled_posteriors(P, y)
    counts = refuse_empty_classes(codes, classes)
    joint = np.asarray(
        count.compute_confident_joint(codes, posteriors, calibrate=True), dtype=np.float64
    )
    if not np.array_equal(joint.sum(axis=1), counts):  # pragma: no cover (a promise of cleanlab)
        raise RuntimeError(
            f"cleanlab's confident joint has row sums {joint.sum(axis=1)} for {counts} labels"
        )
    return joint / counts[:, None]


def overlapping_classes(P: npt.ArrayLike, y: npt.ArrayLike) -> pd.DataFrame:
    """Pairs of classes that are often mislabelled as one another according to cleanlab, the worst first.

    Columns "Class Name A", "Class Name B" (as they are in ``y``), "Class Index A", "Class Index B",
    "Num Overlapping Examples", "Joint Probability".

    Parameters
    ----------
    P : array of shape (n, K)
        Held-out posteriors, columns in the order of the sorted labels.
    y : array of n labels

    Examples
    --------
    >>> P = [[0.9, 0.1], [0.9, 0.1], [0.2, 0.8], [0.8, 0.2], [0.1, 0.9], [0.1, 0.9]]
    >>> overlapping_classes(P, ["cat", "cat", "cat", "dog", "dog", "dog"])[
    ...     "Num Overlapping Examples"
    ... ].tolist()
    [2]
    """
    dataset = _cleanlab("dataset", "overlapping_classes")
    posteriors, codes, classes = labelled_posteriors(P, y)
    table: pd.DataFrame = dataset.find_overlapping_classes(
        codes, posteriors, class_names=classes.tolist()
    )
    return table


class NeighbourBounds(NamedTuple):
    """Bounds on the Bayes error rate."""

    lower: float
    upper: float


def knn_bayes_error(
    X: npt.ArrayLike, y: npt.ArrayLike, n_neighbors: int = 1, *, random_state: Seed = 0
) -> NeighbourBounds:
    """Bounds on the Bayes error from the leave-one-out error of nearest neighbours (DataEval's ``ber_knn``).

    The error is the upper bound; the lower one is Cover and Hart's,
    (K-1)/K · (1 - sqrt(1 - K/(K-1) · error)), for any number of neighbours. Both hold for many rows: in high
    dimension neighbours are far away and both bounds are too high.

    Parameters
    ----------
    X : array of shape (n, d)
        Distances are Euclidean: bring the features to one scale first.
    y : array of n labels
    n_neighbors : int
        Voters. Of classes with equal votes the one of the nearest voter wins.
    random_state : int, Generator or None
        Rows at equal distance (equal rows above all) are taken in random order, by a random shift of every row by about
        a millionth of a standard deviation. A row is never its own neighbour; its duplicates may be.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=2000)
    >>> lower, upper = knn_bayes_error(
    ...     2 * y[:, None] + rng.standard_normal((2000, 1)), y
    ... )  # Bayes error 0.16
    >>> lower < 0.16 < upper
    True
    """
    rows, labels = check.check_finite(X, "X", ndim=2), check.check_labels(y)
    check.check_same_length(rows, labels, "X and y")
    classes = check.classes_of(labels)
    if check.check_count(n_neighbors, "n_neighbors") >= len(rows):
        raise ValueError(
            f"n_neighbors must be below the number of rows ({len(rows)}), got {n_neighbors}"
        )
    codes = check.encode_labels(labels, classes)
    spread = rows.std(axis=0)
    shift = as_generator(random_state).standard_normal(rows.shape) * (
        spread if spread.any() else 1.0
    )
    # Asked without rows, scikit-learn leaves each row out of its own neighbours, duplicates or not.
    search = NearestNeighbors(n_neighbors=n_neighbors).fit(
        rows - rows.mean(axis=0) + TIE_BREAK * shift
    )
    neighbours = search.kneighbors(return_distance=False)
    voters = codes[neighbours]
    votes = np.stack([(voters == k).sum(axis=1) for k in range(len(classes))], axis=1)
    winning = np.take_along_axis(votes, voters, axis=1) == votes.max(axis=1, keepdims=True)
    chosen = voters[np.arange(len(codes)), winning.argmax(axis=1)]
    error = float((chosen != codes).mean())
    return NeighbourBounds(*bayes_error_bounds(error, len(classes)))


def _cleanlab(module: str, caller: str) -> Any:
    try:
        return importlib.import_module(f"cleanlab.{module}")
    except ImportError as error:
        raise ImportError(
            f"{caller} needs cleanlab: pip install collidescope[experiments]"
        ) from error
