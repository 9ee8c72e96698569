"""What collisions depend on: subgroups of rows (:func:`collisions_by`), and time.

The one-step estimates are means over rows of products of r = c - p (held-out posteriors p,
one-hot labels c), so a subgroup is estimated on its own rows and differences have standard errors
by the central limit theorem. The *rate* of a pair is 2 B[i, j]: rates of all pairs sum to the
PBER. Where rows belong together, standard errors are those of the sums of their groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from collidescope import _checks as check
from collidescope._checks import ArrayLike, FloatArray, Given, IntArray
from collidescope._rows import agreement
from collidescope.applications._inputs import (
    BoolArray,
    Ends,
    Interval,
    Mean,
    Names,
    Notes,
    Record,
    Result,
    Scored,
    Source,
    check_rates,
    curve_of,
    flagged,
    group_codes,
    largest_collisions,
    loss_and_rates,
    named_rates,
    plain,
    residuals,
    scored,
)
from collidescope.counting import label_codes
from collidescope.equations.bounds import highest_pber
from collidescope.equations.posterior import brier_scores
from collidescope.intervals import (
    LARGEST_SCORE,
    difference_interval,
    interval,
    optimism,
)
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
    notes: Notes = ()

    @property
    def verdict(self) -> str:
        table = self.table
        more = ""
        n_small = (table["verdict"] == "too few rows").sum()
        if n_small:
            more = f" {n_small} groups are too small to tell."
        differs = table["verdict"].isin(["higher", "lower"])
        said = [
            f"{row['group']} {row['pber']:.1%} ({100 * row['difference']:+.1f} "
            f"points, {row['verdict']})"
            for row in table[differs].to_dict("records")
        ]
        if not said:
            return f"No group differs from the rest beyond chance.{more}"
        how_many = f"{len(said)} of {len(table)} groups differ from the rest in PBER"
        return f"{how_many}: {'; '.join(said)}.{more}"


class _Rates(NamedTuple):
    """PBER and the rates of pairs, as means over some rows."""

    rows: Scored
    mean: Mean
    low: FloatArray
    high: FloatArray

    @classmethod
    def of(cls, rows: Scored, stats: FloatArray, level: float) -> _Rates:
        """From ``stats`` of the rows (:func:`loss_and_rates`); holds with few errors too."""
        mean = rows.mean(stats)
        grouped = rows.clusters is not None
        top = max(1.0 if grouped else LARGEST_SCORE, float(np.max(mean.value)))
        ends = interval(
            mean.value, mean.stderr, rows.units, level, top=top, grouped=grouped
        )
        return cls(rows, mean, *ends)

    def minus(self, other: _Rates) -> tuple[Mean, Ends]:
        """The differences to those of other rows, and their intervals."""
        n = len(self.rows.codes)
        gap = self.mean.minus(other.mean, n, len(other.rows.codes))
        own = (self.low, self.high)
        others = (other.low, other.high)
        ends = difference_interval(self.mean.value, own, other.mean.value, others)
        return gap, ends


def _chance_score(codes: IntArray) -> float:
    """Brier score of the class shares."""
    return highest_pber(np.bincount(codes) / len(codes))


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
    fewest : int; the fewest rows (or a third as many groups) of a subgroup whose interval can be
        trusted

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
    rows = curve_of(P, y, classes, posteriors_by_size, groups)
    n = len(rows.codes)
    own, names = group_codes(by, n, "by")
    r = residuals(rows.posteriors, rows.codes)
    colliding = largest_collisions(r)
    stats = loss_and_rates(r, colliding)
    parts = {name: own == number for number, name in enumerate(names.tolist())}
    judged = [
        name
        for name, here in parts.items()
        if fewest <= here.sum() < n and rows.part(here).n_units >= fewest / 3
    ]
    per_group = 2  # PBER and difference
    if rows.by_size:
        per_group = 3  # and range
    each = level ** (1 / max(per_group * len(judged), 1))
    power = None
    if judged and rows.by_size:
        power = _power(rows)
    lines = []
    of_pairs = ["group", "class", "other", "rate", "difference", "p_value"]
    pairs = [pd.DataFrame(columns=of_pairs)]
    matrices = {}
    for name, here in parts.items():
        n_rows = int(here.sum())
        line: Record = {"group": name, "rows": n_rows}
        lines.append(line)
        if name not in judged:
            line["verdict"] = "too few rows" if n_rows < n else "the only group"
            continue
        part = rows.part(here)
        found = _Rates.of(part, stats[here], each)
        rest = _Rates.of(rows.part(~here), stats[~here], each)
        gap, (gap_low, gap_high) = found.minus(rest)
        rates = named_rates(
            rows.classes,
            colliding,
            rate=found.mean.value,
            low=found.low,
            high=found.high,
            difference=gap.value,
            difference_low=gap_low,
            difference_high=gap_high,
            p_value=gap.p_value(),
        )
        of_all: Any = rates.iloc[0]
        line |= of_all.to_dict()
        line["verdict"] = _verdict(gap_low[0], gap_high[0])
        pairs.append(rates[1:].assign(group=name)[of_pairs])
        if part.by_size:
            limit = replace(_limit(part), power=power)
            line["limit_low"], line["limit_high"] = limit.pber_interval(each)
        if len(np.unique(part.codes)) == len(rows.classes):
            matrices[name] = collision_matrix_from_posteriors(
                part.posteriors, part.labels, classes=rows.classes, groups=part.clusters
            )
    shown = ["group", "rows", "pber", "low", "high"]
    shown += ["difference", "difference_low", "difference_high"]
    shown += ["limit_low", "limit_high", "verdict"]
    table = pd.DataFrame(lines).rename(columns={"rate": "pber"}).reindex(columns=shown)
    every = flagged(pd.concat(pairs[1:] or pairs), fdr)
    notes = _warnings(table, rows, parts)
    return SubgroupCollisions(table, every, matrices, level, fdr, notes)


def _limit(rows: Scored) -> Limit:
    """What unlimited rows would leave of the PBER."""
    scores = [brier_scores(P, rows.codes) for P in rows.by_size.values()]
    return limit_from_scores(
        np.column_stack(scores),
        list(rows.by_size),
        baseline=_chance_score(rows.codes),
        groups=rows.clusters,
    )


def _power(rows: Scored) -> float | None:
    """The power that calibrates the posteriors where more rows would not; else None."""
    posteriors = list(rows.by_size.values())
    found = without_end_if_miscalibrated(
        _limit(rows), posteriors, rows.codes, groups=rows.clusters
    )
    return found.power


def _verdict(low: float, high: float) -> str:
    """What the interval of a difference to the other rows says."""
    if low > 0:
        return "higher"
    return "lower" if high < 0 else "not different"


def _warnings(table: pd.DataFrame, rows: Scored, parts: dict[Any, BoolArray]) -> Notes:
    """Subgroups in which the class shares alone would predict better than the posteriors."""
    worse = [
        str(name)
        for name, low in zip(table["group"], table["low"], strict=True)
        if low > _most_by_chance(rows.part(parts[name]))
    ]
    if not worse:
        return ()
    why = "over-confident, or their columns are in another order than the classes"
    return (
        f"The posteriors do worse than the class shares in {', '.join(worse)}: they are {why}.",
    )


def _most_by_chance(part: Scored) -> float:
    """Brier score of the class shares, had they not been seen in the same rows."""
    by_chance = _chance_score(part.codes)
    return by_chance + optimism(by_chance, len(part.classes), part.units, level=0.9973)


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
    interval: Interval
    paired: bool
    table: pd.DataFrame

    @property
    def verdict(self) -> str:
        low, high = self.interval
        how = "the same rows, paired" if self.paired else "different rows"
        word = "did not change beyond chance"
        if low > 0:
            word = "rose"
        elif high < 0:
            word = "fell"
        return (
            f"PBER {word}: {self.before:.2%} before, {self.after:.2%} after, change "
            f"{100 * self.change:+.2f} points ({100 * low:+.2f} to {100 * high:+.2f}; {how})."
        )


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
    first = scored(P_before, None, y_before, classes, "P_before", "y_before", groups)
    names = first.classes
    if y_after is None:
        second = scored(P_after, None, y_before, names, "P_after", "y_before")
    else:
        second = scored(
            P_after, None, y_after, names, "P_after", "y_after", groups_after
        )
    r_before = residuals(first.posteriors, first.codes)
    r_after = residuals(second.posteriors, second.codes)
    colliding = largest_collisions(np.concatenate([r_before, r_after]))
    before = loss_and_rates(r_before, colliding)
    after = loss_and_rates(r_after, colliding)
    if y_after is None:
        seen = first.mean(after - before)
        low, high = first.signed_interval(seen, after - before, level, LARGEST_SCORE)
        gap = seen.wider(first.units)
    else:
        earlier = _Rates.of(first, before, level)
        gap, (low, high) = _Rates.of(second, after, level).minus(earlier)
    rates = named_rates(
        names,
        colliding,
        before=before.mean(axis=0),
        after=after.mean(axis=0),
        difference=gap.value,
        low=low,
        high=high,
        p_value=gap.p_value(),
    )
    pber = plain(rates.iloc[0].to_dict())
    return CollisionChange(
        before=pber["before"],
        after=pber["after"],
        change=pber["difference"],
        interval=(pber["low"], pber["high"]),
        paired=y_after is None,
        table=flagged(rates[1:], fdr),
    )


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
        return GroupedLabels(n_values, np.nan, np.nan, 0.0, False)
    rng = np.random.default_rng(random_state)
    seen = agreement(own, codes)
    shuffled = [agreement(own, rng.permutation(codes)) for _ in range(shuffles)]
    chance = float(np.mean(shuffled))
    spread = float(np.std(shuffled))
    above = seen - chance
    z = above / spread if spread else 0.0
    halfway = above >= 0.5 * (1 - chance)
    suspicious = bool(z > 5 and halfway and n_values >= least_values)
    return GroupedLabels(n_values, seen, chance, z, suspicious)
