"""Tables of votes as people have them: one column per annotator, names of classes in the cells."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from collidescope._checks import (
    CollisionWarning,
    check_choice,
    check_votes,
    spelling_variants,
)
from collidescope._rows import times_repeated
from collidescope.tables.cells import (
    TableLike,
    as_frame,
    as_levels,
    check_columns,
    listed,
)


def votes_from_annotators(
    table: TableLike,
    classes: Sequence[Any] | None = None,
    *,
    item: str | None = None,
    empty: str = "raise",
) -> pd.DataFrame:
    """Numbers of votes, items × classes, from a table with one column per annotator.

    Parameters
    ----------
    table : DataFrame of items × annotators
        A cell holds the name of the class that the annotator chose; it may be missing.
    classes : names, optional; by default those in the cells, sorted
    item : column that names the items, optional; by default the index does
    empty : "raise" or "drop", what happens to items without a vote

    Examples
    --------
    >>> table = pd.DataFrame(
    ...     {"anna": ["cat", "dog", "cat"], "bob": ["cat", "cat", None]}
    ... )
    >>> votes_from_annotators(table)
       cat  dog
    0    2    0
    1    1    1
    2    1    0
    """
    frame = as_frame(table)
    if item is not None:
        check_columns(frame, [item])
        frame = frame.set_index(item)
    if frame.shape[1] < 2:
        raise ValueError(
            f"table must have a column for each of at least 2 annotators, got {frame.shape[1]}: "
            f"for one row per vote use compare_annotators or collision_matrix_from_votes"
        )
    cells = pd.Series(frame.to_numpy(dtype=object).ravel(), dtype=object)
    codes, words = as_levels(cells)
    names = _class_names(words, classes)
    place = {str(name): k for k, name in enumerate(names)}
    unknown = [word for word in words if word not in place]
    if unknown:
        raise ValueError(
            f"table has votes for {listed(unknown)}, classes are {listed(names)}"
        )
    for said in spelling_variants(np.array(words)):
        warnings.warn(said, CollisionWarning, stacklevel=2)
    class_of_word = np.array([place[word] for word in words], dtype=np.intp)
    items = np.repeat(np.arange(len(frame)), frame.shape[1])
    voted = codes >= 0
    counts = np.zeros((len(frame), len(names)), dtype=np.int64)
    np.add.at(counts, (items[voted], class_of_word[codes[voted]]), 1)
    votes = pd.DataFrame(counts, index=frame.index, columns=names)
    return items_with_votes(votes, empty)


def _class_names(words: list[str], classes: Sequence[Any] | None) -> list[Any]:
    """The classes as given, or the sorted words: whole numbers where all are."""
    if classes is not None:
        return list(classes)
    if not words:
        raise ValueError("table has no votes: every cell is empty")
    try:
        numbers = [int(word) for word in words]
    except ValueError:
        return sorted(words)
    if [str(number) for number in numbers] != words:  # such as 007
        return sorted(words)
    return sorted(numbers)


def items_with_votes(votes: pd.DataFrame, empty: str = "raise") -> pd.DataFrame:
    """``votes`` (items × classes) without the items that nobody voted on.

    With ``empty="raise"`` these are an error that names them. A table that stands in itself several
    times is a warning: its intervals are too narrow.

    >>> table = pd.DataFrame(
    ...     {"cat": [2, 0, 1], "dog": [0, 0, 3]}, index=["x", "y", "z"]
    ... )
    >>> items_with_votes(table, empty="drop").index.tolist()
    ['x', 'z']
    """
    check_choice(empty, ["raise", "drop"], "empty")
    counts = check_votes(votes, "votes", every_row=False)
    voted = np.asarray(counts.any(axis=1))
    without = votes.index[~voted].tolist()
    if without and empty == "raise":
        raise ValueError(
            f"votes has {len(without):,} of {len(votes):,} items without a vote "
            f"({listed(without)}): leave them out with empty='drop'"
        )
    if not voted.any():
        raise ValueError("votes has no item with a vote")
    times = times_repeated(counts[voted])
    if times > 1 and voted.sum() >= 30:
        warnings.warn(
            f"votes holds the same {int(voted.sum()) // times:,} items {times} times over: if they "
            f"are copies, the intervals of S are too narrow; keep one of each",
            CollisionWarning,
            stacklevel=2,
        )
    return votes.loc[voted]
