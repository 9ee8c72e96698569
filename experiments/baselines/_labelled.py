"""Posteriors with the labels that belong to them: the check shared by the functions that score a rival."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray


def labelled_posteriors(
    P: npt.ArrayLike, y: npt.ArrayLike, classes: Sequence[Any] | npt.NDArray[Any] | None = None
) -> tuple[FloatArray, IntArray, npt.NDArray[Any]]:
    """(P, codes, classes) with a column for every class and a row for every label; default: the sorted labels."""
    labels = check.check_labels(y)
    names = check.classes_of(labels) if classes is None else check.check_classes(classes)
    posteriors = check.check_finite(P, "P", ndim=2)
    if posteriors.shape[1] != len(names):
        where = "y has" if classes is None else "classes names"
        raise ValueError(
            f"P must have one column per class, got {posteriors.shape[1]} columns where {where} {len(names)} "
            f"(a class without rows? pass classes= in the order of the columns)"
        )
    check.check_same_length(posteriors, labels, "P and y")
    return check.check_posteriors(posteriors), check.encode_labels(labels, names), names


def refuse_empty_classes(codes: IntArray, classes: npt.NDArray[Any]) -> IntArray:
    """Rows of every class, none of which may be zero."""
    counts = np.bincount(codes, minlength=len(classes))
    if not counts.all():
        empty = classes.tolist()[int(counts.argmin())]
        raise ValueError(f"y has no row of class {empty!r}: leave it out of classes and P, or gather rows of it")
    return counts
