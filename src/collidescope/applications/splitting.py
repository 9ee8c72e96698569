"""Which class is two?

A class that is two has inputs in separate groups that collide with different classes a and b: the
contrast t = log p_a - log p_b of the held-out posteriors of its rows then has two modes, where a
class that is one group has one. Silverman's test (1981): the smallest bandwidth h at which the
kernel density of t has one mode is large when there are two. Its null distribution comes from the
same sample, smoothed with that h: every shape with one mode is the null.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.ndimage import gaussian_filter1d
from scipy.signal import find_peaks

from collidescope import _checks as check
from collidescope._checks import ArrayLike, FloatArray, IntArray
from collidescope.applications._inputs import (
    BoolArray,
    Interval,
    Names,
    Record,
    Result,
    check_rates,
    discovered,
    scored,
)

Parts = tuple[IntArray, IntArray]  #: numbers of the rows of two parts


@dataclass(frozen=True, eq=False, repr=False)
class SplitCandidates(Result, title="Which classes look like two?"):
    """Classes that look like two, made by :func:`split_candidates`.

    ``table`` has one row per class and pair of others, smallest p-value first: ``class``,
    ``first``, ``second``, ``rows_first``, ``rows_second``, ``rate_first`` (mean posterior of
    ``first`` in the first part, and ``rate_first_elsewhere`` in the second), ``rate_second`` and
    ``rate_second_elsewhere``, ``p_value``, ``flagged``.
    """

    table: pd.DataFrame
    _parts: list[Parts]

    def rows(self, number: int = 0) -> Parts:
        """Numbers of the rows of the two parts of line ``number`` of the table."""
        lines = len(self._parts)
        if check.check_count(number, "number", least=0) >= lines:
            raise ValueError(
                f"number must be below {lines}, the lines of the table, got {number}"
            )
        return self._parts[number]

    @property
    def verdict(self) -> str:
        near = "{class} ({rows_first} rows near {first}, {rows_second} near {second})"
        flagged = self.table[self.table["flagged"]].to_dict("records")
        if not flagged:
            return "No class falls into separate groups that collide with different classes."
        said = "; ".join(near.format_map(row) for row in flagged)
        return f"Classes that look like two: {said}."


def split_candidates(
    P: ArrayLike,
    y: ArrayLike,
    *,
    classes: Names = None,
    fdr: float = 0.05,
    random_state: int = 0,
) -> SplitCandidates:
    """Which classes fall into separate groups that collide with different classes?

    ``P`` are held-out posteriors of at least three classes, ``classes`` the names of its columns
    (default the sorted distinct labels), ``fdr`` is the false discovery rate of the flagged lines
    (Benjamini and Hochberg). Posteriors from trees take few values and can show modes where there
    are none: prefer smooth ones. Two groups that collide with the same class, or with none, are
    not seen here.

    >>> from collidescope.datasets import GaussianProblem
    >>> four = GaussianProblem([[0.0], [2.5], [12.5], [15.0]])
    >>> X, parts = four.sample(2000, random_state=0)
    >>> middle_is_one = [[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1]]
    >>> P = four.posteriors(X) @ middle_is_one
    >>> split_candidates(P, np.array([0, 1, 1, 2])[parts]).table.query("flagged")[
    ...     "class"
    ... ].tolist()
    [1]
    """
    check_rates(fdr=fdr)
    seed = check.check_count(random_state, "random_state", least=0)
    rng = np.random.default_rng(seed)
    given = scored(P, None, y, classes)
    names = given.classes
    if len(names) < 3:
        raise ValueError(
            f"P must have at least 3 classes, got {len(names)}: a class needs two "
            "others to collide with"
        )
    lines: list[Record] = []
    for k in range(len(names)):
        own = np.flatnonzero(given.codes == k)
        posteriors = given.posteriors[own]
        for a, b in _colliding(posteriors, k):
            p = posteriors[:, [a, b]]
            near_either = (p > 1e-6).any(axis=1)
            if near_either.sum() < 60:  # too few to claim something about
                continue
            rows = own[near_either]
            p = p[near_either]
            # A posterior of 0 counts as 1e-60: where posteriors are cut higher, their contrast
            # piles up, which looks like a mode.
            log_first, log_second = np.log(np.maximum(p, 1e-60)).T
            contrast = log_first - log_second
            p_value, valley = silverman(contrast, rng)
            near = contrast > valley
            line = {"class": names[k], "first": names[a], "second": names[b]}
            line["parts"] = (rows[near], rows[~near])
            lines.append(line | _line(p, near, p_value))
    columns = lines[0] if lines else ["class", "first", "second", "parts", "p_value"]
    table = pd.DataFrame(lines, columns=[*columns])
    table = table.sort_values("p_value", kind="stable", ignore_index=True)
    table["flagged"] = discovered(table["p_value"], fdr)
    return SplitCandidates(table, table.pop("parts").tolist())


def _colliding(own: FloatArray, k: int, most: int = 3) -> list[tuple[int, int]]:
    """Pairs of the classes that class k collides with most, from the posteriors of its rows."""
    if not len(own):
        return []
    rates = own.mean(axis=0)
    rates[k] = 0.0
    first = np.argsort(-rates, kind="stable")[:most]
    return list(combinations([c for c in first if rates[c] > 1e-6], 2))


def _line(p: FloatArray, near: BoolArray, p_value: float) -> Record:
    """Rows and rates of two parts; parts that are small or hardly collide make no claim."""
    far = ~near
    line = {
        "rows_first": int(near.sum()),
        "rows_second": int(far.sum()),
        "rate_first": _mean(p[near, 0]),
        "rate_first_elsewhere": _mean(p[far, 0]),
        "rate_second": _mean(p[far, 1]),
        "rate_second_elsewhere": _mean(p[near, 1]),
        "p_value": p_value,
    }
    fewest = min(line["rows_first"], line["rows_second"])
    if fewest < 10 or min(line["rate_first"], line["rate_second"]) < 0.02:
        line["p_value"] = 1.0
    return line


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if len(values) else 0.0


def silverman(
    t: FloatArray, rng: np.random.Generator, bins: int = 256, resamples: int = 199
) -> Interval:
    """(p-value of "one mode", the point between the two highest modes).

    The point is found just below the critical bandwidth; ``resamples`` from the null give
    p-values down to 0.005.
    """
    deviation = t.std()
    margin = deviation + 1e-9
    edges = np.linspace(t.min() - margin, t.max() + margin, bins + 1)
    counts = _counts(t, edges)
    below, critical = _critical_widths(counts)
    smooth = gaussian_filter1d(counts, below, mode="constant")
    modes = _modes(counts, below)
    if len(modes) < 2:
        return 1.0, float(np.median(t))
    by_height = sorted(modes, key=lambda mode: -smooth[mode])
    left, right = sorted(by_height[:2])
    valley = left + int(smooth[left:right].argmin())
    # Smoothed bootstrap, shrunk to the variance of the sample (Efron and Tibshirani, section 16.5).
    h = critical * (edges[1] - edges[0])
    shrink = 1 / np.sqrt(1 + (h / deviation) ** 2)
    centre = t.mean()
    more = 0
    for _ in range(resamples):
        picked = rng.choice(t, len(t)) - centre
        drawn = centre + shrink * (picked + h * rng.standard_normal(len(t)))
        more += len(_modes(_counts(drawn, edges), critical)) > 1
    return (1 + more) / (1 + resamples), float(edges[valley + 1])


def _counts(t: FloatArray, edges: FloatArray) -> FloatArray:
    return np.histogram(t, edges)[0].astype(np.float64)


def _critical_widths(counts: FloatArray, steps: int = 30) -> Interval:
    """(a width with several modes, the smallest with one), in bins and close together.

    By bisection: more smoothing never adds a mode of a Gaussian kernel density.
    """
    low = 0.5
    high = float(len(counts))
    for _ in range(steps):
        middle = float(np.sqrt(low * high))
        if len(_modes(counts, middle)) > 1:
            low = middle
        else:
            high = middle
    return low, high


def _modes(counts: FloatArray, width: float, flat: float = 1e-9) -> IntArray:
    """Changes of a density below ``flat`` of its largest value are rounding."""
    density = gaussian_filter1d(counts, width, mode="constant")
    peaks, _ = find_peaks(density / density.max(), prominence=flat)
    return peaks
