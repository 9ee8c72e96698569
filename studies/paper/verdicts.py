"""Paired differences over seeds, and three verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from studies.measures import mean_error
from studies.paper.rows import FloatArray
from studies.reproduction.tables import mean_and_error

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
    samples: int

    @property
    def half(self) -> float:
        """Half of the 95% interval, by Student's t: two samples tell little, one nothing."""
        return float(student.ppf(0.975, self.samples - 1)) * self.error

    @property
    def change(self) -> str:
        """The mean and its error in words."""
        error = f"± {self.error:.4f}"
        if self.samples == 1:
            error = "(one sample)"
        return f"{self.mean:+.4f} {error}"

    def __str__(self) -> str:
        return f"{self.where}: {self.change}"


def difference(where: str, gaps: FloatArray) -> Difference:
    """The mean of these differences; a single one has no error."""
    error = math.nan
    if len(gaps) > 1:
        error = mean_error(gaps)
    return Difference(where, float(gaps.mean()), error, len(gaps))


def differences(first: Values, second: Values) -> list[Difference]:
    """First minus second, over the seeds that both have, for every problem that both have."""
    found = []
    for where in first:
        seeds = sorted(set(first[where]) & set(second.get(where, {})))
        if seeds:
            gaps = [first[where][seed] - second[where][seed] for seed in seeds]
            found.append(difference(where, np.array(gaps)))
    return found


def lower(found: Iterable[Difference]) -> str:
    """The verdict on "the first is lower, everywhere": 95% intervals decide."""
    found = list(found)
    if any(each.mean > each.half for each in found):
        return NOT
    if found and all(each.mean < -each.half for each in found):
        return HELD
    return TIE


def within(number: float, values: Sequence[float], digits: int) -> str:
    """The verdict on a number of the paper that has no error, by the range of our runs.

    The paper prints so many digits; our runs are rounded to as many.
    """
    low = round(min(values), digits)
    high = round(max(values), digits)
    if low <= number <= high:
        return HELD
    away = min(abs(number - low), abs(number - high))
    if away < 0.1 * number:
        return TIE
    return NOT


def together(verdicts: Sequence[str]) -> str:
    """One verdict on all parts of a claim."""
    if NOT in verdicts:
        return NOT
    if TIE in verdicts:
        return TIE
    return HELD


def against(own: Values, rivals: Mapping[str, Values]) -> tuple[str, str]:
    """The verdict on "lower than every rival"; and of every problem the largest difference."""
    every = []
    closest: dict[str, tuple[str, Difference]] = {}
    for name, values in rivals.items():
        for each in differences(own, values):
            every.append(each)
            known = closest.get(each.where)
            if known is None or each.mean > known[1].mean:
                closest[each.where] = name, each
    by_rival: dict[str, list[Difference]] = {}
    for name, each in closest.values():
        by_rival.setdefault(name, []).append(each)
    parts = [f"less {name}: {told(found)}" for name, found in by_rival.items()]
    return lower(every), "; ".join(parts)


def told(found: Iterable[Difference]) -> str:
    """Differences in words."""
    return "; ".join(map(str, found))


def mean_of(values: Mapping[int, float]) -> str:
    """Mean ± standard error."""
    return mean_and_error(np.array(list(values.values())))


def means(values: Values) -> str:
    """Problem by problem."""
    return "; ".join(f"{where}: {mean_of(each)}" for where, each in values.items())
