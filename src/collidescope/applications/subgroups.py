"""For whom do classes collide? S and PBER by subgroup, changes between two fits or periods, rows that belong together.

Symbols: r = c - p for held-out posteriors p and one-hot labels c. The one-step estimates are means over rows, PBER =
mean Σ_k r_k² and B[i, j] = -mean(r_i r_j), so a subgroup is estimated on its own rows and differences have standard
errors by the central limit theorem. The *rate* of a pair is 2 B[i, j]: rates of all pairs sum to the PBER.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import stdtr, stdtrit

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope.applications._inputs import (
    Names,
    Told,
    check_rates,
    discovered,
    group_codes,
    mean_and_error,
    residuals,
    scored,
)
from collidescope.estimate import collision_matrix_from_posteriors
from collidescope.matrix import UNSEEN, CollisionMatrix, largest_pairs

#: Fewest rows (and with clusters a third as many clusters) of a group about which something is claimed: below it the
#: t interval of a skewed loss is not to be trusted.
MIN_ROWS = 30
#: Pairs that are compared, those with the largest rates in all rows together.
MAX_PAIRS = 20
#: Shuffles of the labels behind :func:`grouped_labels`.
SHUFFLES = 200
#: Labels of rows with one value agree far more than chance: by half of what is possible, and beyond this z-value.
FAR, Z = 0.5, 5.0


@dataclass(frozen=True, eq=False, repr=False)
class SubgroupCollisions(Told):
    """Collisions by subgroup, made by :func:`collisions_by`.

    Attributes
    ----------
    table : DataFrame
        One row per group: ``group``, ``rows``, ``pber`` with ``low`` and ``high``, ``difference`` to the PBER of all
        other rows with ``difference_low`` and ``difference_high``, and ``verdict``: "higher", "lower", "not different"
        or "too few rows". All intervals hold at once with probability ``level``.
    pairs : DataFrame
        Per group and colliding pair: ``group``, ``class``, ``other``, ``rate``, ``difference`` to the other rows,
        ``p_value``, ``flagged`` at the false discovery rate.
    matrices : dict
        Group → CollisionMatrix, for groups with rows enough that have every class.
    """

    TITLE: ClassVar[str] = "For whom do the classes collide?"
    table: pd.DataFrame
    pairs: pd.DataFrame
    matrices: dict[Any, CollisionMatrix]
    level: float
    fdr: float

    @property
    def verdict(self) -> str:
        """The answer in words."""
        told = self.table[self.table["verdict"].isin(["higher", "lower"])]
        small = int((self.table["verdict"] == "too few rows").sum())
        more = f" {small} groups are too small to tell." if small else ""
        if not len(told):
            return f"No group differs from the rest beyond chance.{more}"
        said = [
            f"{row['group']} {row['pber']:.1%} ({100 * row['difference']:+.1f} points, {row['verdict']})"
            for row in told.to_dict("records")
        ]
        return f"{len(told)} of {len(self.table)} groups differ from the rest in PBER: {'; '.join(said)}.{more}"


def collisions_by(
    P: npt.ArrayLike,
    y: npt.ArrayLike,
    groups: npt.ArrayLike,
    *,
    clusters: npt.ArrayLike | None = None,
    classes: Names | None = None,
    level: float = 0.95,
    fdr: float = 0.05,
) -> SubgroupCollisions:
    """S and PBER for every subgroup (hospital, region, device, year), and which groups differ from the rest.

    Parameters
    ----------
    P : array of shape (n, K)
        Held-out posteriors. A model that knows one group better than another makes them differ too: what is not
        learned counts as collision.
    y, groups : arrays of n labels and of n names
    clusters : array of n names, optional
        Rows that belong together (one patient): intervals count clusters in place of rows.
    classes : K names in the order of the columns, default the sorted distinct labels
    level : float
        All intervals of the table hold at once with this probability (Šidák).
    fdr : float
        False discovery rate of the flagged pairs (Benjamini and Hochberg).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = np.where(np.arange(2000) < 1000, 0.9, 0.7)  # the second device is worse
    >>> y = (rng.random(2000) < p).astype(int)
    >>> found = collisions_by(np.column_stack([1 - p, p]), y, np.repeat(["new", "old"], 1000))
    >>> found.table[["group", "rows", "verdict"]].to_numpy().tolist()
    [['new', 1000, 'lower'], ['old', 1000, 'higher']]
    """
    check_rates(level=level, fdr=fdr)
    posteriors, codes, names, _ = scored(P, None, y, classes)
    n = len(codes)
    own, found = group_codes(groups, n)
    units = None if clusters is None else group_codes(clusters, n, "clusters")[0]
    r = residuals(posteriors, codes)
    loss = (r**2).sum(axis=1)
    i, j = largest_collisions(r)
    rates = -2 * r[:, i] * r[:, j]
    sizes = np.bincount(own)
    large = (sizes >= MIN_ROWS) & (sizes < n)
    if units is not None:
        large &= np.array([len(np.unique(units[own == g])) >= MIN_ROWS / 3 for g in range(len(found))])
    each = level ** (1 / max(2 * int(large.sum()), 1))  # the group's own PBER, and the difference
    rows, pairs, matrices = [], [], {}
    for g, name in enumerate(found.tolist()):
        here = own == g
        row: dict[str, Any] = {"group": name, "rows": int(sizes[g])}
        if not large[g]:
            rows.append(row | {"verdict": "too few rows" if sizes[g] < n else "the only group"})
            continue
        inside, outside = (None if units is None else units[part] for part in (here, ~here))
        pber, stderr, df = own_mean = mean_and_error(loss[here], inside)
        half = stdtrit(df, (1 + each) / 2) * np.hypot(stderr, UNSEEN / sizes[g])
        gap = _two_sample(own_mean, mean_and_error(loss[~here], outside), each)
        verdict = "higher" if gap.low > 0 else "lower" if gap.high < 0 else "not different"
        row |= {"pber": float(pber), "low": max(float(pber - half), 0.0), "high": min(float(pber + half), 1.0)}
        row |= {"difference": gap.value, "difference_low": gap.low, "difference_high": gap.high, "verdict": verdict}
        rows.append(row)
        for k in range(len(i)):
            first = mean_and_error(rates[here, k], inside)
            gap = _two_sample(first, mean_and_error(rates[~here, k], outside), each)
            pair = {"group": name, "class": names[i[k]], "other": names[j[k]], "rate": float(first[0])}
            pairs.append(pair | {"difference": gap.value, "p_value": gap.p_value})
        if len(np.unique(codes[here])) == len(names):
            matrices[name] = collision_matrix_from_posteriors(posteriors[here], names[codes[here]], classes=names)
    columns = ["group", "rows", "pber", "low", "high", "difference", "difference_low", "difference_high", "verdict"]
    return SubgroupCollisions(pd.DataFrame(rows).reindex(columns=columns), _flagged(pairs, fdr), matrices, level, fdr)


@dataclass(frozen=True, eq=False, repr=False)
class CollisionChange(Told):
    """How collisions changed between two fits or two periods, made by :func:`collision_change`.

    ``before``, ``after`` and ``change`` (with ``interval``) are of the PBER, ``paired`` where both are about the same
    rows; ``table`` has per pair ``class``, ``other``, ``before``, ``after``, ``difference``, ``low``, ``high``,
    ``p_value``, ``flagged``.
    """

    TITLE: ClassVar[str] = "Did collisions change?"
    before: float
    after: float
    change: float
    interval: tuple[float, float]
    paired: bool
    table: pd.DataFrame

    @property
    def verdict(self) -> str:
        """The answer in words."""
        low, high = self.interval
        how = "the same rows, paired" if self.paired else "different rows"
        word = "rose" if low > 0 else "fell" if high < 0 else "did not change beyond chance"
        return (
            f"PBER {word}: {self.before:.2%} before, {self.after:.2%} after, change {100 * self.change:+.2f} points "
            f"({100 * low:+.2f} to {100 * high:+.2f}; {how})."
        )


def collision_change(
    P_before: npt.ArrayLike,
    y_before: npt.ArrayLike,
    P_after: npt.ArrayLike,
    y_after: npt.ArrayLike | None = None,
    *,
    classes: Names | None = None,
    level: float = 0.95,
    fdr: float = 0.05,
) -> CollisionChange:
    """Compare two fits on the same rows (leave ``y_after`` out: paired), or two periods with their own rows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(1000)
    >>> y = (rng.random(1000) < p).astype(int)
    >>> sharp, blunt = np.column_stack([1 - p, p]), np.full((1000, 2), 0.5)
    >>> collision_change(blunt, y, sharp).interval[1] < 0
    True
    """
    check_rates(level=level, fdr=fdr)
    first, codes, names, _ = scored(P_before, None, y_before, classes, "P_before", "y_before")
    paired = y_after is None
    second, later, _, _ = scored(
        P_after, None, y_before if y_after is None else y_after, names, "P_after", "y_before" if paired else "y_after"
    )
    r = residuals(first, codes), residuals(second, later)
    i, j = largest_collisions(np.concatenate(r))

    def compare(a: FloatArray, b: FloatArray) -> _Gap:
        if not paired:
            return _two_sample(mean_and_error(b), mean_and_error(a), level)
        return _gap(*mean_and_error(b - a), level)

    total = compare(*((part**2).sum(axis=1) for part in r))
    pairs = []
    for k in range(len(i)):
        parts = [-2 * part[:, i[k]] * part[:, j[k]] for part in r]
        gap = compare(*parts)
        row = {"class": names[i[k]], "other": names[j[k]], "before": parts[0].mean(), "after": parts[1].mean()}
        pairs.append(row | {"difference": gap.value, "low": gap.low, "high": gap.high, "p_value": gap.p_value})
    before, after = ((part**2).sum(axis=1).mean() for part in r)
    return CollisionChange(
        float(before), float(after), total.value, (total.low, total.high), paired, _flagged(pairs, fdr)
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
            f"rows with the same value of {name} ({self.values:,} values) have the same label {self.agreement:.0%} of "
            f"the time, {self.chance:.0%} by chance: if they belong together (one patient, one document), pass groups="
        )


def grouped_labels(
    groups: npt.ArrayLike, y: npt.ArrayLike, *, least_values: int = 20, random_state: int = 0
) -> GroupedLabels:
    """Do rows that share a value of an id-like column agree in their label far more than chance?

    Of two rows of one value, how often are the labels equal (``agreement``), and how often when labels are shuffled
    (``chance``)? ``suspicious`` where at least half of the way from chance to 1 is gone, beyond 5 standard deviations
    of the shuffles, in a column with ``least_values`` values or more: a model that sees such rows on both sides of a
    fold learns the values and not the classes.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> patient = np.repeat(np.arange(30), 20)
    >>> grouped_labels(patient, rng.integers(0, 2, 30)[patient]).suspicious
    True
    >>> grouped_labels(patient, rng.integers(0, 2, 600)).suspicious
    False
    """
    check.check_count(least_values, "least_values", least=2)
    labels = check.check_labels(y)
    codes = check.encode_labels(labels, check.classes_of(labels))
    own, names = group_codes(groups, len(codes))
    sizes = np.bincount(own).astype(np.float64)
    pairs = (sizes * (sizes - 1)).sum()
    k = int(codes.max()) + 1
    if pairs == 0:
        return GroupedLabels(len(names), float("nan"), float("nan"), 0.0, False)

    def agreement(c: IntArray) -> float:
        table = np.unique(own * k + c, return_counts=True)[1]
        return float((table * (table - 1.0)).sum() / pairs)

    rng = np.random.default_rng(random_state)
    seen, shuffled = agreement(codes), np.array([agreement(rng.permutation(codes)) for _ in range(SHUFFLES)])
    chance, spread = float(shuffled.mean()), float(shuffled.std())
    z = (seen - chance) / spread if spread else 0.0
    far = z > Z and seen - chance >= FAR * (1 - chance) and len(names) >= least_values
    return GroupedLabels(len(names), seen, chance, z, bool(far))


class _Gap(NamedTuple):
    value: float
    low: float
    high: float
    p_value: float


def _gap(value: Any, stderr: Any, df: float, level: float) -> _Gap:
    half = float(stdtrit(df, (1 + level) / 2) * stderr)
    p = 2 * float(stdtr(df, -abs(value) / stderr)) if stderr > 0 else 1.0
    return _Gap(float(value), float(value) - half, float(value) + half, p)


def _two_sample(a: tuple[Any, Any, float], b: tuple[Any, Any, float], level: float) -> _Gap:
    """A - b of independent means (Welch)."""
    va, vb = float(a[1]) ** 2, float(b[1]) ** 2
    df = (va + vb) ** 2 / (va**2 / a[2] + vb**2 / b[2]) if va + vb > 0 else 1.0
    return _gap(a[0] - b[0], np.sqrt(va + vb), df, level)


def largest_collisions(r: FloatArray) -> tuple[IntArray, IntArray]:
    """Classes i, j of the pairs with the largest rates, at most ``MAX_PAIRS``."""
    B = np.maximum(-(r.T @ r), 0.0)
    np.fill_diagonal(B, 0.0)
    return largest_pairs(B, MAX_PAIRS)


def _flagged(pairs: list[dict[str, Any]], fdr: float) -> pd.DataFrame:
    table = pd.DataFrame(pairs, columns=None if pairs else ["group", "class", "other", "rate", "difference", "p_value"])
    table["flagged"] = discovered(table["p_value"], fdr)
    return table.sort_values("difference", key=abs, ascending=False, kind="stable", ignore_index=True)
