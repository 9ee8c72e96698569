"""What collisions depend on: subgroups of rows (:func:`collisions_by`), and time.

The one-step estimates are means over rows of products of r = c - p (held-out posteriors p,
one-hot labels c), so a subgroup is estimated on its own rows and differences have standard errors
by the central limit theorem. The *rate* of a pair is 2 B[i, j]: rates of all pairs sum to the
PBER. Where rows belong together, standard errors are those of the sums of their groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from collidescope import _checks as check
from collidescope._checks import Array, ArrayLike, FloatArray, Given, IntArray
from collidescope._rows import agreement
from collidescope.applications._inputs import (
    BoolArray,
    Mean,
    Names,
    Result,
    Source,
    brier_scores,
    check_rates,
    clusters_of,
    curve_of,
    flagged,
    group_codes,
    largest_collisions,
    loss_and_rates,
    mean_and_error,
    residuals,
    row_groups,
    scored,
)
from collidescope.counting import label_codes
from collidescope.intervals import LARGEST_SCORE, difference_interval, interval
from collidescope.limit import (
    Limit,
    limit_from_scores,
    without_end_if_miscalibrated,
)
from collidescope.matrix import CollisionMatrix
from collidescope.onestep import collision_matrix_from_posteriors


@dataclass(frozen=True, eq=False, repr=False)
class SubgroupCollisions(Result, title="For whom do the classes collide?"):
    """Collisions by subgroup, made by :func:`collisions_by`.

    ``table`` has one row per ``group``: ``rows``, ``pber`` (the held-out Brier score) with
    ``low`` and ``high``, ``difference`` to the PBER of all other rows with ``difference_low`` and
    ``difference_high``, ``limit_low`` and ``limit_high`` (PBER that unlimited rows would leave,
    missing without learning curves), and ``verdict``: "higher", "lower", "not different" or "too
    few rows". ``pairs`` has per group and colliding pair (``class``, ``other``) the ``rate``, its
    ``difference`` to the other rows, ``p_value`` and ``flagged``; ``matrices`` S of the groups
    with rows enough that have every class.
    """

    table: pd.DataFrame
    pairs: pd.DataFrame
    matrices: dict[Any, CollisionMatrix]
    level: float
    fdr: float
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        more = ""
        table = self.table
        verdicts = table["verdict"]
        too_small = verdicts == "too few rows"
        if too_small.any():
            more = f" {too_small.sum()} groups are too small to tell."
        differs = verdicts.isin(["higher", "lower"])
        said = [
            f"{row['group']} {row['pber']:.1%} ({100 * row['difference']:+.1f} "
            f"points, {row['verdict']})"
            for row in table[differs].to_dict("records")
        ]
        if not said:
            return f"No group differs from the rest beyond chance.{more}"
        how_many = f"{len(said)} of {len(table)} groups differ from the rest in PBER"
        listed = "; ".join(said)
        return f"{how_many}: {listed}.{more}"


@dataclass(frozen=True)
class _Rows:
    """All rows: what the statistics of a subgroup are means of."""

    posteriors: FloatArray
    codes: IntArray
    classes: Array
    clusters: IntArray | None
    by_size: dict[int, FloatArray]  #: posteriors of every row by training size
    stats: FloatArray  #: of every row: its Brier score, then the terms of the rates of pairs

    def mean(self, here: BoolArray) -> Mean:
        """Of the statistics, on some of the rows."""
        return mean_and_error(self.stats[here], self._groups(here))

    def n_units(self, here: BoolArray) -> int:
        """Independent units among some of the rows."""
        return _n_units(self._groups(here), int(here.sum()))

    def _groups(self, here: BoolArray) -> IntArray | None:
        """The groups of some of the rows, where rows belong together."""
        if self.clusters is None:
            return None
        return self.clusters[here]

    def limit(self, here: BoolArray, level: float) -> tuple[float, float]:
        """Range of the PBER that unlimited rows would leave."""
        found = replace(self._curve(here), power=self._power)
        return found.pber_interval(level)

    def _curve(self, here: BoolArray) -> Limit:
        codes = self.codes[here]
        scores = [brier_scores(P[here], codes) for P in self.by_size.values()]
        return limit_from_scores(
            np.column_stack(scores),
            list(self.by_size),
            baseline=_chance_score(codes),
            groups=self._groups(here),
        )

    @cached_property
    def _power(self) -> float | None:
        """That calibrates the posteriors of all rows, where more rows would not: else None."""
        everywhere = np.full(len(self.codes), True)
        found = without_end_if_miscalibrated(
            self._curve(everywhere),
            list(self.by_size.values()),
            self.codes,
            groups=self.clusters,
        )
        return found.power

    def matrix(self, here: BoolArray) -> CollisionMatrix | None:
        """S of some of the rows; None where they lack a class."""
        codes = self.codes[here]
        if len(np.unique(codes)) < len(self.classes):
            return None
        return collision_matrix_from_posteriors(
            self.posteriors[here],
            self.classes[codes],
            classes=self.classes,
            groups=self._groups(here),
        )

    def against_rest(self, here: BoolArray) -> tuple[Mean, Mean]:
        """The statistics of some of the rows, and their difference to all others."""
        own = self.mean(here)
        rest = self.mean(~here)
        n = int(here.sum())
        return own, own.minus(rest, n, len(here) - n)


def _chance_score(codes: IntArray) -> float:
    """Brier score of the class shares."""
    shares = np.bincount(codes) / len(codes)
    return 1 - float((shares**2).sum())


def collisions_by(
    P: Source,
    y: Given,
    by: ArrayLike,
    *,
    groups: Given = None,
    posteriors_by_size: Mapping[int, ArrayLike] | None = None,
    classes: Names = None,
    level: float = 0.95,
    fdr: float = 0.05,
    fewest: int = 30,
) -> SubgroupCollisions:
    """S, PBER and its range for every subgroup (hospital, region, year), and which differ.

    A model that knows one subgroup better than another makes them differ too: what is not learned
    counts as collision.

    Parameters
    ----------
    P, y, posteriors_by_size, classes : as in :func:`ceilings`
        Sizes give the range that unlimited rows would leave.
    by : array of n names, the subgroup of every row
    groups : array of n names, optional; rows that belong together: intervals count groups
    level : float; all intervals of the table hold at once with this probability (Šidák)
    fdr : float; false discovery rate of the flagged pairs (Benjamini and Hochberg)
    fewest : int; rows (a third as many groups) of a subgroup whose interval is to be trusted

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = np.where(np.arange(2000) < 1000, 0.9, 0.7)  # the second device is worse
    >>> y = (rng.random(2000) < p).astype(int)
    >>> found = collisions_by(
    ...     np.column_stack([1 - p, p]), y, np.repeat(["new", "old"], 1000)
    ... )
    >>> found.table[["group", "rows", "verdict"]].to_numpy().tolist()
    [['new', 1000, 'lower'], ['old', 1000, 'higher']]
    """
    check_rates(level=level, fdr=fdr)
    groups = row_groups(P, groups)
    given, curves = curve_of(P, y, classes, posteriors_by_size)
    n = len(given.codes)
    own, names = group_codes(by, n, "by")
    r = residuals(given.posteriors, given.codes)
    i, j = largest_collisions(r)
    rows = _Rows(
        given.posteriors,
        given.codes,
        given.classes,
        clusters_of(groups, n),
        curves,
        loss_and_rates(r, (i, j)),
    )
    parts = {name: own == number for number, name in enumerate(names.tolist())}
    judged = []
    for name, here in parts.items():
        if fewest <= here.sum() < n and rows.n_units(here) >= fewest / 3:
            judged.append(name)
    per_group = 2  # PBER and difference
    if curves:
        per_group = 3  # and range
    n_intervals = max(per_group * len(judged), 1)
    each = level ** (1 / n_intervals)
    lines = []
    pairs = [pd.DataFrame(columns=["group", "class", "other", "difference", "p_value"])]
    matrices = {}
    for name, here in parts.items():
        n_rows = int(here.sum())
        line: dict[str, Any] = {"group": name, "rows": n_rows}
        lines.append(line)
        if name not in judged:
            line["verdict"] = "too few rows" if n_rows < n else "the only group"
            continue
        mean, gap = rows.against_rest(here)
        line |= _line(mean.wider(rows.n_units(here)), gap, each)
        if curves:
            line["limit_low"], line["limit_high"] = rows.limit(here, each)
        rates = {"group": name, "class": given.classes[i], "other": given.classes[j]}
        rates["rate"] = mean.value[1:]
        rates["difference"] = gap.value[1:]
        rates["p_value"] = gap.p_value()[1:]
        pairs.append(pd.DataFrame(rates))
        matrix = rows.matrix(here)
        if matrix is not None:
            matrices[name] = matrix
    shown = ["group", "rows", "pber", "low", "high"]
    shown += ["difference", "difference_low", "difference_high"]
    shown += ["limit_low", "limit_high", "verdict"]
    table = pd.DataFrame(lines).reindex(columns=shown)
    found = flagged(pd.concat(pairs[1:] or pairs), fdr)
    notes = _warnings(table, parts, given.codes)
    return SubgroupCollisions(table, found, matrices, level, fdr, notes)


def _line(mean: Mean, gap: Mean, level: float) -> dict[str, Any]:
    """PBER and difference of a subgroup, with their intervals and a verdict."""
    low, high = mean.interval(level)
    gap_low, gap_high = gap.interval(level)
    verdict = "not different"
    if gap_low[0] > 0:
        verdict = "higher"
    elif gap_high[0] < 0:
        verdict = "lower"
    return {
        "pber": float(mean.value[0]),
        "low": max(float(low[0]), 0.0),
        "high": min(float(high[0]), LARGEST_SCORE),
        "difference": float(gap.value[0]),
        "difference_low": float(gap_low[0]),
        "difference_high": float(gap_high[0]),
        "verdict": verdict,
    }


def _warnings(
    table: pd.DataFrame, parts: dict[Any, BoolArray], codes: IntArray
) -> tuple[str, ...]:
    """Subgroups in which the class shares alone would predict better than the posteriors."""
    worse = []
    for name, low in zip(table["group"], table["low"], strict=True):
        if low > _chance_score(codes[parts[name]]):
            worse.append(str(name))
    if not worse:
        return ()
    why = "over-confident, or their columns are in another order than the classes"
    listed = ", ".join(worse)
    return (
        f"The posteriors do worse than the class shares in {listed}: they are {why}.",
    )


@dataclass(frozen=True, eq=False, repr=False)
class CollisionChange(Result, title="Did collisions change?"):
    """How collisions changed between two fits or two periods, made by :func:`collision_change`.

    ``before``, ``after`` and ``change`` (with ``interval``) are of the PBER, ``paired`` where both
    are about the same rows; ``table`` has per pair ``class``, ``other``, ``before``, ``after``,
    ``difference``, ``low``, ``high``, ``p_value``, ``flagged``.
    """

    before: float
    after: float
    change: float
    interval: tuple[float, float]
    paired: bool
    table: pd.DataFrame

    @property
    def verdict(self) -> str:
        low, high = self.interval
        how = "different rows"
        if self.paired:
            how = "the same rows, paired"
        word = "did not change beyond chance"
        if low > 0:
            word = "rose"
        elif high < 0:
            word = "fell"
        both = f"{self.before:.2%} before, {self.after:.2%} after"
        change = (
            f"change {100 * self.change:+.2f} points ({100 * low:+.2f} to "
            f"{100 * high:+.2f}; {how})"
        )
        return f"PBER {word}: {both}, {change}."


def collision_change(
    P_before: ArrayLike,
    y_before: ArrayLike,
    P_after: ArrayLike,
    y_after: Given = None,
    *,
    groups: Given = None,
    groups_after: Given = None,
    classes: Names = None,
    level: float = 0.95,
    fdr: float = 0.05,
) -> CollisionChange:
    """Compare two fits on the same rows (leave ``y_after`` out: paired), or two periods.

    ``groups`` names the rows that belong together, ``groups_after`` those of the second period:
    intervals count groups.

    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(1000)
    >>> y = (rng.random(1000) < p).astype(int)
    >>> sharp, blunt = np.column_stack([1 - p, p]), np.full((1000, 2), 0.5)
    >>> collision_change(blunt, y, sharp).interval[1] < 0
    True
    """
    check_rates(level=level, fdr=fdr)
    first = scored(P_before, None, y_before, classes, "P_before", "y_before")
    names = first.classes
    if y_after is None:
        second = scored(P_after, None, y_before, names, "P_after", "y_before")
    else:
        second = scored(P_after, None, y_after, names, "P_after", "y_after")
    r_before = residuals(first.posteriors, first.codes)
    r_after = residuals(second.posteriors, second.codes)
    both = np.concatenate([r_before, r_after])
    i, j = largest_collisions(both)
    pairs = (i, j)
    before = loss_and_rates(r_before, pairs)
    after = loss_and_rates(r_after, pairs)
    n_before = len(before)
    n_after = len(after)
    own = clusters_of(groups, n_before)
    if y_after is None:
        paired = mean_and_error(after - before, own)
        gap = paired.wider(_n_units(own, n_after))
        low, high = gap.interval(level)
    else:
        theirs = clusters_of(groups_after, n_after)
        earlier = mean_and_error(before, own)
        later = mean_and_error(after, theirs)
        gap = later.minus(earlier, n_after, n_before)
        low, high = difference_interval(
            later.value,
            _rate_intervals(later, theirs, n_after, level),
            earlier.value,
            _rate_intervals(earlier, own, n_before, level),
        )
    rates_before = before[:, 1:]
    rates_after = after[:, 1:]
    p_values = gap.p_value()
    rates = {
        "class": names[i],
        "other": names[j],
        "before": rates_before.mean(axis=0),
        "after": rates_after.mean(axis=0),
        "difference": gap.value[1:],
        "low": low[1:],
        "high": high[1:],
        "p_value": p_values[1:],
    }
    pber_before = before[:, 0]
    pber_after = after[:, 0]
    return CollisionChange(
        before=float(pber_before.mean()),
        after=float(pber_after.mean()),
        change=float(gap.value[0]),
        interval=(float(low[0]), float(high[0])),
        paired=y_after is None,
        table=flagged(pd.DataFrame(rates), fdr),
    )


def _n_units(clusters: IntArray | None, n: int) -> int:
    if clusters is None:
        return n
    return len(np.unique(clusters))


def _rate_intervals(
    mean: Mean, clusters: IntArray | None, n: int, level: float
) -> tuple[FloatArray, FloatArray]:
    """Of a PBER and the rates of pairs: they hold with few errors too."""
    grouped = clusters is not None
    top = LARGEST_SCORE
    if grouped:
        top = 1.0
    top = max(top, float(np.max(mean.value)))
    units = _n_units(clusters, n)
    return interval(mean.value, mean.stderr, units, level, top=top, grouped=grouped)


class GroupedLabels(NamedTuple):
    """Do rows with one value agree in their label? See :func:`grouped_labels`."""

    values: int
    agreement: float
    chance: float
    z: float
    suspicious: bool

    def words(self, name: str = "this column") -> str:
        """A warning, or an empty text."""
        if not self.suspicious:
            return ""
        return (
            f"rows with the same value of {name} ({self.values:,} values) have the "
            f"same label {self.agreement:.0%} of the time, {self.chance:.0%} by "
            "chance: if they belong together (one patient, one document), pass groups="
        )


def grouped_labels(
    groups: ArrayLike,
    y: ArrayLike,
    *,
    least_values: int = 20,
    random_state: int = 0,
    shuffles: int = 200,
) -> GroupedLabels:
    """Do rows that share a value of an id-like column agree in their label far more than chance?

    ``agreement`` is how often two rows of one value have the same label, ``chance`` the same with
    shuffled labels. ``suspicious``: half of the way from chance to 1, 5 standard deviations beyond
    the shuffles, and ``least_values`` values or more; models with such rows on both sides of a
    fold learn the values.

    >>> rng = np.random.default_rng(0)
    >>> patient = np.repeat(np.arange(30), 20)
    >>> [
    ...     grouped_labels(patient, y).suspicious
    ...     for y in (rng.integers(0, 2, 30)[patient], rng.integers(0, 2, 600))
    ... ]
    [True, False]
    """
    check.check_count(least_values, "least_values", least=2)
    codes, _ = label_codes(y)
    own, names = group_codes(groups, len(codes))
    n_values = len(names)
    if n_values == len(own):
        unknown = float("nan")
        return GroupedLabels(n_values, unknown, unknown, 0.0, False)
    rng = np.random.default_rng(random_state)
    seen = agreement(own, codes)
    shuffled = [agreement(own, rng.permutation(codes)) for _ in range(shuffles)]
    chance = float(np.mean(shuffled))
    spread = float(np.std(shuffled))
    above = seen - chance
    z = 0.0
    if spread:
        z = above / spread
    halfway = above >= 0.5 * (1 - chance)
    enough = n_values >= least_values
    suspicious = bool(z > 5 and halfway and enough)
    return GroupedLabels(n_values, seen, chance, z, suspicious)
