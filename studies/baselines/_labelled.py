"""Posteriors with the labels that belong to them: the check shared by the functions that score a
rival."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from studies.measures import Array


def labelled_posteriors(
    P: npt.ArrayLike, y: npt.ArrayLike, classes: Sequence[Any] | None = None
) -> tuple[FloatArray, IntArray, Array]:
    """Posteriors, class numbers and names of the classes, of which each must have rows."""
    labels = check.check_labels(y)
    posteriors, codes, names = check.labelled_posteriors(P, labels, classes)
    counts = np.bincount(codes, minlength=len(names))
    if not counts.all():
        empty = names.tolist()[int(counts.argmin())]
        raise ValueError(
            f"y has no row of class {empty!r}: leave it out of classes and P, or gather rows of it"
        )
    return posteriors, codes, names
