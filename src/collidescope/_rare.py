"""Classes with hardly a row: nothing can be learned about a class from one row that must also be held out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope._checks import IntArray

#: A row to learn from, and a row to be scored.
FEWEST = 2
#: What the class of all rare classes is called.
MERGED = "(rare)"
CHOICES = ("error", "drop", "merge")


def handle_rare(
    y: npt.NDArray[Any], rare: str = "error", fewest: int = FEWEST
) -> tuple[IntArray, npt.NDArray[Any], str]:
    """Rows to use, their labels, and what was done about classes with fewer than ``fewest`` rows (empty if nothing).

    Parameters
    ----------
    y : array of n labels
    rare : "error", "drop" or "merge"
        Refuse such classes, leave their rows out, or join them to one class "(rare)" (labels become text then).
    fewest : int

    Examples
    --------
    >>> y = np.array(["a", "a", "b", "b", "c", "d"])
    >>> handle_rare(y, "merge")[1:]
    (array(['a', 'a', 'b', 'b', '(rare)', '(rare)'], dtype='<U6'), "classes with fewer than 2 rows are one class '(rare)' now: 'c' (1), 'd' (1)")
    >>> handle_rare(y, "drop")[0]
    array([0, 1, 2, 3])
    """
    check.check_choice(rare, CHOICES, "rare")
    classes, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    few = counts < fewest
    if not few.any():
        return np.arange(len(y)), y, ""
    named = ", ".join(f"{name!r} ({n})" for name, n in zip(classes[few].tolist()[:5], counts[few], strict=False))
    named += f" and {int(few.sum()) - 5} more" if few.sum() > 5 else ""
    below = "one row" if fewest == FEWEST else f"fewer than {fewest} rows"
    if rare == "error":
        raise ValueError(
            f"classes with {below}, which can be learned from or scored but not both: {named}. Leave them out with "
            f"rare='drop' (--rare drop), or join them to one class with rare='merge' (--rare merge)"
        )
    kept = np.flatnonzero(~few[codes])
    if rare == "merge" and counts[few].sum() >= fewest:
        joined = np.where(few[codes], MERGED, np.asarray(classes[codes], dtype=str))
        return np.arange(len(y)), joined, f"classes with fewer than {fewest} rows are one class {MERGED!r} now: {named}"
    if (~few).sum() < 2:
        raise ValueError(
            f"only {int((~few).sum())} of {len(classes)} classes have {fewest} rows or more: nothing to tell apart"
        )
    return kept, y[kept], f"classes with fewer than {fewest} rows are left out ({len(y) - len(kept):,} rows): {named}"
