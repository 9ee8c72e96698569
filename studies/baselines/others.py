"""cleanlab's confident joint, and the classes that it finds to overlap."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from collidescope._checks import FloatArray
from studies.baselines._labelled import labelled_posteriors


def confident_joint_matrix(P: npt.ArrayLike, y: npt.ArrayLike) -> FloatArray:
    """Row i: how the rows *given* the label i are shared out over *true* labels j, according to
    cleanlab.

    cleanlab's ``compute_confident_joint`` counts rows by their given label (rows of the matrix) and
    by the class that the model is confident of, taken as the true label (columns), calibrated as it
    does by default: row i then sums to the number of rows labelled i. Divided by it, row i
    estimates P(true label j | given label i).

    It lies as S does, whose row i is also about the rows labelled i, but it is another quantity: S
    tells what a second draw of the label would give, and knows no true label. In overlapping
    classes a confident model finds hardly any label wrong; then this matrix is near the identity
    and S is not.

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
    from cleanlab.count import compute_confident_joint

    posteriors, codes, _ = labelled_posteriors(P, y)
    counts = np.bincount(codes)
    joint = compute_confident_joint(codes, posteriors, calibrate=True)
    if not np.array_equal(joint.sum(axis=1), counts):
        raise RuntimeError(
            f"cleanlab's confident joint has row sums {joint.sum(axis=1)} for {counts} labels"
        )
    return joint / counts[:, None]


def overlapping_classes(P: npt.ArrayLike, y: npt.ArrayLike) -> pd.DataFrame:
    """Pairs of classes that are often mislabelled as one another according to cleanlab, the worst
    first.

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
    from cleanlab.dataset import find_overlapping_classes

    posteriors, codes, classes = labelled_posteriors(P, y)
    return find_overlapping_classes(codes, posteriors, class_names=classes.tolist())
