"""The steps of a consolidation as a table: PBER, its intervals and the bounds of the Bayes error at each.

Symbols: ``v`` is 1 for the diagonal entries of the upper triangle of B and 2 for those of two classes of one group, so
that ``PBER = 1 - v·B`` and its variance is ``vᵀ C v`` with C the covariance of the triangle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collidescope._checks import FloatArray
from collidescope.applications._constraints import Constraints
from collidescope.applications._grouping import GreedyPath, Groupings, best_groupings, greedy_path, groupings_along
from collidescope.equations.bounds import bayes_error_bounds
from collidescope.matrix import CollisionMatrix, _half_width

if TYPE_CHECKING:
    import pandas as pd

#: Up to this many classes every grouping can be looked at in a second (Bell's numbers: 115,975 for 10, 4 million
#: for 12).
OPTIMAL_CLASSES = 10
LEVEL = 0.95

Search = tuple[Groupings, FloatArray, GreedyPath | None]


def greedy_search(W: FloatArray, constraints: Constraints) -> Search:
    """Groupings and PBER at every step of the greedy path, and the path itself."""
    path = greedy_path(W, constraints)
    # What later merges will remove: a sum of non-negative terms, exactly zero when all is one.
    left = np.append(np.cumsum(path.gains[::-1])[::-1], 0.0)
    return groupings_along(path, len(W)), left[path.n_forced : path.n_allowed + 1], path


def optimal_search(W: FloatArray, constraints: Constraints) -> Search:
    """The best grouping of every size, with its PBER."""
    if len(W) > OPTIMAL_CLASSES:
        raise ValueError(
            f"method='optimal' looks at every grouping of at most {OPTIMAL_CLASSES} classes, got {len(W)}: use 'greedy'"
        )
    groupings = best_groupings(W, constraints)
    i, j = np.triu_indices(len(W), 1)
    return groupings, (groupings[:, i] != groupings[:, j]) @ W[i, j], None


def path_table(cm: CollisionMatrix, groupings: Groupings, pber: FloatArray, greedy: GreedyPath | None) -> pd.DataFrame:
    """:attr:`ConsolidationPlan.path`."""
    import pandas as pd

    n_groups = groupings.max(axis=1).astype(int) + 1
    low, high = _intervals(cm, groupings, pber)
    bayes = np.array([bayes_error_bounds(p, n) if n > 1 else (0.0, 0.0) for p, n in zip(pber, n_groups, strict=True)])
    merged: list[tuple[str | None, str | None]] = [(None, None)] * len(pber)
    if greedy is not None:
        for step, pair in enumerate(greedy.pairs[greedy.n_forced : greedy.n_allowed], start=1):
            before = groupings[step - 1]
            a, b = ("+".join(map(str, cm.classes[before == before[first]].tolist())) for first in pair)
            merged[step] = a, b
    return pd.DataFrame(
        {
            "step": np.arange(len(pber)),
            "n_groups": n_groups,
            "first": [first for first, _ in merged],
            "second": [second for _, second in merged],
            "pber": pber,
            "pber_low": low,
            "pber_high": high,
            "bayes_low": bayes[:, 0],
            "bayes_high": bayes[:, 1],
            "gain": np.append(0.0, -np.diff(pber)),
        }
    )


def _intervals(cm: CollisionMatrix, groupings: Groupings, pber: FloatArray) -> tuple[FloatArray, FloatArray]:
    """95% intervals of the PBER at every step; nan where they would need a covariance that is not there."""
    stderr = np.full(len(pber), np.nan)
    if cm.covariance is not None:
        i, j = np.triu_indices(cm.n_classes)
        for step, grouping in enumerate(groupings):
            v = np.where(i == j, 1.0, 2.0 * (grouping[i] == grouping[j]))
            stderr[step] = np.sqrt(max(float(v @ cm.covariance @ v), 0.0))
    elif cm.pber_stderr is not None and groupings[0].max() + 1 == cm.n_classes:
        stderr[0] = cm.pber_stderr
    half = _half_width(stderr, None if cm.counts is None else cm.counts.sum(), LEVEL)
    half = half * (groupings.max(axis=1) > 0)  # that one group never errs is no estimate
    return np.maximum(pber - half, 0.0), np.minimum(pber + half, 1.0)
