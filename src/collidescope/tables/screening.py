"""What to know about a table before a number is believed: ids, leaks, groups of rows, sorted rows."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.tseries.api import guess_datetime_format
from sklearn.tree import DecisionTreeClassifier

from collidescope import _rows
from collidescope._checks import IntArray
from collidescope.tables.encoding import as_levels, as_numbers

FEWEST_ROWS, FEWEST_FOR_LEAKS = (
    20,
    50,
)  #: fewer rows cannot tell an id from a measurement, or a leak from luck
MOST_ROWS = 20_000  #: rows that a leak is looked for in; more would not change the verdict
LEAK, ERRORS_LEFT = (
    0.995,
    0.1,
)  #: share of held-out rows that a leak gets right; of naive errors that it leaves at most
SPARE_LEAVES = (
    8  #: leaves of the tree that looks for a leak in a numeric column, beyond the number of classes
)
ID_WORDS = 1.5  #: words an id has on average: free text has more
#: Names of groups of rows have at least so many values, and so many per class: fewer are an ordinary category.
FEWEST_GROUPS, GROUPS_PER_CLASS = 10, 3
#: How far, from chance (0) to certainty (1), rows of one value must agree in their label: for columns with a name like
#: that of an id, and for all others.
AGREE_NAMED, AGREE = 0.25, 0.9
#: The share of steps up (or down) from row to row that makes a column sorted; the share of the changes of label by
#: chance that makes the rows sorted by label.
SORTED, FEW_CHANGES = 0.99, 0.2
LABEL = "\0label"  #: a name that no column of a table has, for its label
ID_WORD = r"(^|[^a-z])(id|uuid|guid|index|key|nr|no|number|rownum|row)$"
ID_NAME = re.compile(ID_WORD + r"|[a-z]I[Dd]$|^unnamed \d+$|^__index_level")
GROUP = "patient|subject|person|people|user|customer|client|session|document|donor|household|family|speaker|writer"
GROUP_NAME = re.compile(f"{GROUP}|group", re.IGNORECASE)


@dataclass(frozen=True)
class Screening:
    """What was found."""

    ids: dict[str, str]  #: column → why it is taken for an id; such columns are left out
    suspects: dict[str, str]  #: column → why it may be one; these stay
    leaks: dict[str, float]  #: column → share of held-out rows whose label it alone gives away
    groups: dict[
        str, tuple[float, float]
    ]  #: column → how often rows of one value have one label, how often by chance
    ordered: list[str]  #: columns that are sorted in a table that is sorted by its label

    def notes(self) -> list[str]:
        """About ids, with what to do (by the options of the command line; ``drop`` and ``keep`` in Python)."""
        found = [
            f"column {name!r} is left out: {why} (--keep {name!r} uses it)"
            for name, why in self.ids.items()
        ]
        for name, why in self.suspects.items():
            found.append(f"column {name!r} {why}: if it names rows, leave it out (--drop {name!r})")
        return found

    def cautions(self) -> list[str]:
        """What makes S look better than it is."""
        found = [
            f"column {name!r} alone gives the label away on {share:.1%} of held-out rows: if it is only known once the "
            f"label is, leave it out (--drop {name!r}), or the result says that nothing collides"
            for name, share in self.leaks.items()
        ]
        found += [
            f"rows with the same {name!r} have the same label {share:.0%} of the time ({chance:.0%} by chance): if it "
            f"names patients, documents or the like, S is too good for new ones. Keep their rows in one fold with "
            f"groups=X[{name!r}] (--groups {name!r}), which also leaves the column out"
            for name, (share, chance) in self.groups.items()
        ]
        return found + [
            f"column {name!r} is sorted, and so are the labels: if rows were gathered class by class, it tells the "
            f"class by the time or place of gathering; leave it out then (--drop {name!r})"
            for name in self.ordered
        ]


def screen(table: pd.DataFrame, y: npt.NDArray[Any], *, keep: Container[str] = ()) -> Screening:
    """Look for ids, leaks, groups and order among the columns of ``table``; those in ``keep`` are no ids."""
    found = Screening({}, {}, {}, {}, [])
    if len(table) < FEWEST_ROWS:
        return found
    classes, codes = np.unique(y, return_inverse=True)
    shares = np.bincount(codes) / len(codes)
    rows = np.random.default_rng(0).permutation(len(table))[:MOST_ROWS]
    by_label = (np.diff(codes) != 0).sum() <= max(
        2 * len(classes), FEW_CHANGES * len(codes) * (1 - (shares**2).sum())
    )
    chance, largest = float((shares**2).sum()), float(shares.max())
    fresh: npt.NDArray[np.bool_] | None = None
    for name, column in table.items():
        name, dtype = str(name), column.dtype
        numeric = pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_bool_dtype(dtype)
        if numeric:
            numbers = as_numbers(column)
            values = np.where(np.isnan(numbers), 0.0, numbers).clip(-1e30, 1e30)
            # Most columns of numbers have too many values to be groups, and are floats: ids are not.
            distinct = int((np.diff(np.sort(values)) != 0).sum()) + 1
            few = 2 * distinct <= len(values) or (
                distinct == len(values) and column.dtype.kind in "iu"
            )
            levels, words = (
                (np.unique(values, return_inverse=True)[1] if few else None),
                list[str](),
            )
        else:
            levels, words = as_levels(column)
            values = levels
        if (
            name not in keep
            and levels is not None
            and (verdict := id_verdict(column, levels, words)) is not None
        ):
            (found.ids if verdict[0] else found.suspects)[name] = verdict[1]
            if verdict[0]:
                continue
        if len(table) < FEWEST_FOR_LEAKS:
            continue
        right = column_accuracy(values[rows], codes[rows], numeric)
        named = ID_NAME.search(name) is not None or GROUP_NAME.search(name) is not None
        enough = chance + (AGREE_NAMED if named else AGREE) * (1 - chance)
        agree = 0.0 if levels is None else agreement(levels, codes, GROUPS_PER_CLASS * len(classes))
        if levels is not None and agree >= enough:  # of rows that repeat as a whole, one each
            fresh = (
                ~table.assign(**{LABEL: codes}).duplicated().to_numpy() if fresh is None else fresh
            )
            own = np.unique(levels[fresh], return_inverse=True)[1]
            agree = agreement(own, codes[fresh], GROUPS_PER_CLASS * len(classes))
        if (
            right >= LEAK
            and 1 - right <= ERRORS_LEFT * (1 - largest)
            and (agree < enough or (numeric and not named))
        ):
            found.leaks[name] = right
        elif agree >= enough:
            found.groups[name] = agree, chance
        elif by_label and numeric and distinct > len(classes) + SPARE_LEAVES:
            steps = np.diff(values)
            if max((steps >= 0).mean(), (steps <= 0).mean()) >= SORTED:
                found.ordered.append(name)
    return found


def id_verdict(column: pd.Series, levels: IntArray, words: list[str]) -> tuple[bool, str] | None:
    """(certain, why) where every value differs, or None."""
    unwanted = (pd.api.types.is_float_dtype, pd.api.types.is_datetime64_any_dtype)
    if (
        levels.min() < 0
        or levels.max() + 1 < len(levels)
        or any(test(column.dtype) for test in unwanted)
    ):
        return None
    certain, named = (
        (True, "every value differs, as ids do"),
        ID_NAME.search(str(column.name)) is not None,
    )
    if pd.api.types.is_integer_dtype(column.dtype):
        if int(column.max()) - int(column.min()) + 1 == len(column):
            return True, "it counts the rows"
        return certain if named else (False, "differs in every row")
    if not np.isnan(as_numbers(column)).any():
        return certain if named else None
    if guess_datetime_format(words[0]) is not None:
        return None
    return certain if named or np.mean([len(word.split()) for word in words]) < ID_WORDS else None


def column_accuracy(values: npt.NDArray[Any], codes: IntArray, ordered: bool) -> float:
    """Share of the second half of the rows whose class one column tells, learned from the first; 0 when it is hopeless.

    ``values`` are numbers where ``ordered``, else numbers of levels (-1 for a missing cell).
    """
    half, n_classes = len(codes) // 2, int(codes.max()) + 1
    if not ordered:
        table = np.zeros((int(values.max()) + 2, n_classes))
        np.add.at(table, (values[:half], codes[:half]), 1)
        # A level seen once says nothing yet: the largest class is named for it.
        table[table.sum(axis=1) < 2] = np.bincount(codes[:half], minlength=n_classes)
        return float((table.argmax(axis=1)[values[half:]] == codes[half:]).mean())
    # In the order of the values a leak has few changes of class: one per leaf, and two per error. Trees are for these.
    leaves = n_classes + SPARE_LEAVES
    if (np.diff(codes[np.lexsort((codes, values))]) != 0).sum() > leaves + 4 * (1 - LEAK) * len(
        codes
    ):
        return 0.0
    tree = DecisionTreeClassifier(max_leaf_nodes=leaves, min_samples_leaf=2, random_state=0)
    return float(
        tree.fit(values[:half, None], codes[:half]).score(values[half:, None], codes[half:])
    )


def agreement(levels: IntArray, codes: IntArray, fewest: int) -> float:
    """How often two rows of the same level have the same label; 0 where levels do not look like groups of rows."""
    used, n_levels = levels >= 0, int(levels.max()) + 1
    few = n_levels < max(FEWEST_GROUPS, fewest) or 2 * n_levels > used.sum()
    return 0.0 if few else _rows.agreement(levels[used], codes[used])
