"""Classes that are two: a class whose inputs fall into separate groups that collide with different classes.

For class k and two classes a, b that it collides with, every row of class k has the contrast t = log p_a - log p_b of
its held-out posteriors. A class that is one group has t with one mode, wherever it stands between a and b (Gaussian
classes: t is linear in x); two separate groups, one near a and one near b, give two modes. Silverman's test (1981): the
smallest bandwidth h at which the kernel density of t has one mode is large when there are two. Its null distribution
comes from the same sample, smoothed with that h, so that any shape with one mode is the null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.ndimage import gaussian_filter1d

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope.applications._inputs import Names, Told, check_rates, discovered, scored

#: Grid of the kernel density, in units of the range of t.
BINS = 256
#: Samples from the null: p-values down to 0.005.
RESAMPLES = 199
#: Fewest rows of a class, and of a part, about which something is claimed.
MIN_ROWS, MIN_PART = 60, 10
#: Least mean posterior of "its" class in a part: parts that hardly collide need not be told apart.
MIN_RATE = 0.02
#: The classes that class k collides with most are paired with each other.
OTHERS = 3
#: Posteriors below this are not told apart; a row that has both below it says nothing about the contrast.
SMALLEST = 1e-6


@dataclass(frozen=True, eq=False, repr=False)
class SplitCandidates(Told):
    """Classes that look like two, made by :func:`split_candidates`.

    Attributes
    ----------
    table : DataFrame
        One row per class and pair of others: ``class``, ``first``, ``second``, ``rows_first``, ``rows_second``,
        ``rate_first`` (mean posterior of ``first`` in the first part, and ``rate_first_elsewhere`` in the second),
        ``rate_second`` and ``rate_second_elsewhere``, ``p_value``, ``flagged``. Smallest p-value first.
    """

    TITLE: ClassVar[str] = "Which classes look like two?"
    table: pd.DataFrame
    _parts: list[tuple[IntArray, IntArray]]

    def rows(self, number: int = 0) -> tuple[IntArray, IntArray]:
        """Numbers of the rows of the two parts of line ``number`` of the table."""
        check.check_count(number, "number", least=0)
        if number >= len(self._parts):
            raise ValueError(f"number must be below {len(self._parts)}, the lines of the table, got {number}")
        return self._parts[number]

    @property
    def verdict(self) -> str:
        """The answer in words."""
        found = self.table[self.table["flagged"]].to_dict("records")
        if not found:
            return "No class falls into separate groups that collide with different classes."
        said = [
            f"{r['class']} ({r['rows_first']} rows near {r['first']}, {r['rows_second']} near {r['second']})"
            for r in found
        ]
        return f"Classes that look like two: {'; '.join(said)}."


def split_candidates(
    P: npt.ArrayLike, y: npt.ArrayLike, *, classes: Names | None = None, fdr: float = 0.05, random_state: int = 0
) -> SplitCandidates:
    """Which classes fall into separate groups that collide with different classes?

    ``P`` are held-out posteriors of at least three classes, ``classes`` the names of its columns (default the sorted
    distinct labels), ``fdr`` is the false discovery rate of the flagged lines (Benjamini and Hochberg).

    Notes
    -----
    Posteriors from trees take few values and can show modes where there are none: prefer smooth ones. Two groups that
    collide with the same class, or with none, are not seen here.

    Examples
    --------
    >>> from collidescope.datasets import GaussianProblem
    >>> four = GaussianProblem([[0.0], [2.5], [12.5], [15.0]])
    >>> X, parts = four.sample(2000, random_state=0)
    >>> P = four.posteriors(X)
    >>> P = np.column_stack([P[:, 0], P[:, 1] + P[:, 2], P[:, 3]])  # the two in the middle are one class
    >>> found = split_candidates(P, np.array(["a", "both", "both", "b"])[parts], classes=["a", "both", "b"])
    >>> found.table.query("flagged")["class"].tolist()
    ['both']
    """
    check_rates(fdr=fdr)
    rng = np.random.default_rng(check.check_count(random_state, "random_state", least=0))
    posteriors, codes, names, _ = scored(P, None, y, classes)
    if len(names) < 3:
        raise ValueError(f"P must have at least 3 classes, got {len(names)}: a class needs two others to collide with")
    lines: list[tuple[dict[str, Any], tuple[IntArray, IntArray]]] = []
    for k in range(len(names)):
        rows = np.flatnonzero(codes == k)
        if len(rows) < MIN_ROWS:
            continue
        p = posteriors[rows]
        rates = p.mean(axis=0)
        rates[k] = 0.0
        others = np.argsort(-rates, kind="stable")[:OTHERS]
        for a, b in ((a, b) for m, a in enumerate(others) for b in others[m + 1 :] if rates[b] > SMALLEST):
            tells = (p[:, a] > SMALLEST) | (p[:, b] > SMALLEST)
            if tells.sum() < MIN_ROWS:
                continue
            t = np.log(np.maximum(p[tells, a], SMALLEST)) - np.log(np.maximum(p[tells, b], SMALLEST))
            p_value, valley = silverman(t, rng)
            near_a, near_b = p[tells][t > valley], p[tells][t <= valley]
            line = {"class": names[k], "first": names[a], "second": names[b]}
            line |= {"rows_first": len(near_a), "rows_second": len(near_b)}
            for word, c, here, there in (("first", a, near_a, near_b), ("second", b, near_b, near_a)):
                line |= {f"rate_{word}": here[:, c].mean() if len(here) else 0.0}
                line |= {f"rate_{word}_elsewhere": there[:, c].mean() if len(there) else 0.0}
            small = min(len(near_a), len(near_b)) < MIN_PART or min(line["rate_first"], line["rate_second"]) < MIN_RATE
            line["p_value"] = 1.0 if small else p_value
            lines.append((line, (rows[tells][t > valley], rows[tells][t <= valley])))
    lines.sort(key=lambda pair: pair[0]["p_value"])
    table = pd.DataFrame(
        [line for line, _ in lines], columns=None if lines else ["class", "first", "second", "p_value"]
    )
    table["flagged"] = discovered(table["p_value"], fdr)
    return SplitCandidates(table, [parts for _, parts in lines])


def silverman(t: FloatArray, rng: np.random.Generator) -> tuple[float, float]:
    """(p-value of "one mode", the point between the two highest modes just below the critical bandwidth)."""
    edges = np.linspace(t.min() - t.std() - 1e-9, t.max() + t.std() + 1e-9, BINS + 1)
    counts = np.histogram(t, edges)[0].astype(np.float64)
    low, high = 0.5, float(BINS)
    for _ in range(30):  # bisection: more smoothing never adds a mode of a Gaussian kernel density
        middle = np.sqrt(low * high)
        low, high = (middle, high) if len(_modes(counts, middle)) > 1 else (low, middle)
    critical = high
    smooth = gaussian_filter1d(counts, low, mode="constant")
    modes = sorted(_modes(counts, low), key=lambda m: -smooth[m])[:2]
    if len(modes) < 2:
        return 1.0, float(np.median(t))
    valley = min(modes) + int(smooth[min(modes) : max(modes)].argmin())
    # Smoothed bootstrap, shrunk to the variance of the sample (Efron and Tibshirani, section 16.5).
    h = critical * (edges[1] - edges[0])
    shrink = 1 / np.sqrt(1 + (h / t.std()) ** 2)
    more = 0
    for _ in range(RESAMPLES):
        drawn = t.mean() + shrink * (rng.choice(t, len(t)) - t.mean() + h * rng.standard_normal(len(t)))
        more += len(_modes(np.histogram(drawn, edges)[0].astype(np.float64), critical)) > 1
    return (1 + more) / (1 + RESAMPLES), float(edges[valley + 1])


def _modes(counts: FloatArray, width: float) -> IntArray:
    density = gaussian_filter1d(counts, width, mode="constant")
    rising = np.diff(density) > 1e-9 * density.max()
    falling = np.diff(density) < -1e-9 * density.max()
    # A mode is a rise that is followed by a fall, with nothing or a plateau between.
    steps = np.flatnonzero(rising | falling)
    turns = rising[steps[:-1]] & falling[steps[1:]]
    return np.asarray(steps[1:][turns])
