"""Paired differences over seeds, and three verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

HELD = "held"
TIE = "tie or cannot be told"
NOT = "**did not hold**"

#: Values by problem, then by seed.
Values = Mapping[str, Mapping[int, float]]


class Difference(NamedTuple):
    """Mean of paired differences and its standard error."""

    where: str
    mean: float
    error: float

    def __str__(self) -> str:
        return f"{self.where}: {self.mean:+.4f} ± {self.error:.4f}"


def differences(first: Values, second: Values) -> list[Difference]:
    """First minus second, over the seeds that both have, for every problem that both have."""
    found = []
    for where in first:
        seeds = sorted(set(first[where]) & set(second.get(where, {})))
        if len(seeds) < 2:
            continue
        each = np.array([first[where][seed] - second[where][seed] for seed in seeds])
        error = each.std(ddof=1) / np.sqrt(len(each))
        found.append(Difference(where, float(each.mean()), float(error)))
    return found


def lower(found: Iterable[Difference]) -> str:
    """The verdict on "the first is lower, everywhere": two standard errors decide."""
    found = list(found)
    if any(each.mean > 2 * each.error for each in found):
        return NOT
    if found and all(each.mean < -2 * each.error for each in found):
        return HELD
    return TIE


def mean_of(values: Mapping[int, float]) -> str:
    """Mean ± standard error."""
    each = np.array(list(values.values()))
    if len(each) < 2:
        return f"{each.mean():.4f}"
    return f"{each.mean():.4f} ± {each.std(ddof=1) / np.sqrt(len(each)):.4f}"
