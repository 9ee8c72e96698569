"""Posteriors with the labels that belong to them: the check shared by the functions that score a
rival."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray


def labelled_posteriors(
    P: npt.ArrayLike,
    y: npt.ArrayLike,
    classes: Sequence[Any] | npt.NDArray[Any] | None = None,
) -> tuple[FloatArray, IntArray, npt.NDArray[Any]]:
    """:func:`collidescope._checks.labelled_posteriors` where labels are needed."""
    posteriors, codes, names = check.labelled_posteriors(
        P, check.check_labels(y), classes
    )
    assert codes is not None
    return posteriors, codes, names


def refuse_empty_classes(codes: IntArray, classes: npt.NDArray[Any]) -> IntArray:
    """Rows of every class, none of which may be zero."""
    counts = np.bincount(codes, minlength=len(classes))
    if not counts.all():
        empty = classes.tolist()[int(counts.argmin())]
        raise ValueError(
            f"y has no row of class {empty!r}: leave it out of classes and P, or gather rows of it"
        )
    return counts
