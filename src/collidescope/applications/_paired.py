"""Two rules compared on the same labelled rows: tables, exact tests and intervals of paired shares.

Only the rows on which the rules differ speak for one of them: with b rows where the first alone says j and c where the
second alone does, the difference of the shares is (b - c) / n, and without a true difference b is half of b + c but for
luck (McNemar).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.special import bdtrc, ndtri

from collidescope._checks import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd

#: Added to each of the four cells of a paired 2×2 table (Agresti and Min, 2005): Wald's interval is too short without.
AGRESTI_MIN = 0.5


def is_table(values: Any) -> bool:
    """Has it two dimensions, as posteriors have and labels have not? Lists of different lengths have neither."""
    try:
        return np.ndim(values) == 2
    except ValueError:
        return False


def wilson_interval(count: int, n: int, level: float) -> tuple[float, float]:
    """Wilson's interval for a share: right for small counts too.

    >>> tuple(round(end, 4) for end in wilson_interval(0, 100, 0.95))
    (0.0, 0.037)
    """
    z2 = float(ndtri((1 + level) / 2)) ** 2
    centre = (count + z2 / 2) / (n + z2)
    half = np.sqrt(z2) / (n + z2) * np.sqrt(count * (n - count) / n + z2 / 4)
    return max(float(centre - half), 0.0), min(float(centre + half), 1.0)


def paired_interval(only_first: Any, only_second: Any, n: Any, level: float) -> tuple[FloatArray, FloatArray]:
    """Interval of the difference of two shares of the same ``n`` rows, from the rows where only one of them holds.

    Agresti and Min's: Wald's interval after half a row was added to each cell; widened to the difference itself.
    """
    b, c, total = only_first + AGRESTI_MIN, only_second + AGRESTI_MIN, n + 4 * AGRESTI_MIN
    centre = (b - c) / total
    half = ndtri((1 + level) / 2) * np.sqrt(b + c - (b - c) ** 2 / total) / total
    difference = (only_first - only_second) / n
    low, high = np.minimum(centre - half, difference), np.maximum(centre + half, difference)
    return np.maximum(low, -1.0), np.minimum(high, 1.0)


def mcnemar_p(only_first: IntArray, only_second: IntArray) -> FloatArray:
    """Exact one-sided p-value of McNemar's test: are the first kind of rows more than luck would have them?

    >>> mcnemar_p(np.array([5, 0]), np.array([0, 0])).tolist()
    [0.03125, 1.0]
    """
    total = only_first + only_second
    return np.where(only_first > 0, bdtrc(np.maximum(only_first - 1, 0), np.maximum(total, 1), 0.5), 1.0)


def pair_table(
    y: IntArray, said: IntArray, best: IntArray, classes: npt.NDArray[Any], level: float, fdr: float
) -> pd.DataFrame:
    """The table of :attr:`AuditReport.pairs`, from class numbers: labels, the audited rule, the best rule."""
    import pandas as pd
    from scipy.stats import false_discovery_control

    k = len(classes)
    observed, inherent = confusion_table(y, said, k), confusion_table(y, best, k)
    agreed = confusion_table(y[said == best], said[said == best], k)
    more, fewer = (observed - agreed).astype(np.intp), (inherent - agreed).astype(np.intp)
    i, j = np.nonzero((observed + inherent) * (1 - np.eye(k)))
    rows = np.bincount(y, minlength=k)[i]
    worse, better = more[i, j], fewer[i, j]
    p = np.maximum(mcnemar_p(worse, better), mcnemar_p(worse + more[j, i], better + fewer[j, i]))
    # A rule that prefers other classes than the best one does, of several that nobody can tell apart, confuses its
    # favourites more and is right about them more often: where their rows come out no worse, nothing can be fixed.
    excess = (more - fewer).sum(axis=1) - np.diag(more - fewer)
    p = np.where(excess[i] + excess[j] > 0, p, 1.0)
    # With m rows between the rules no p-value is below 2⁻ᵐ. Pairs that could never be flagged take no part: m does not
    # depend on whom the rows favour, so leaving them out favours nobody.
    tested = 0.5 ** (worse + better) <= fdr
    flagged = np.zeros(len(p), dtype=bool)
    if tested.any():
        flagged[tested] = np.asarray(false_discovery_control(p[tested], method="bh")) <= fdr
    low, high = paired_interval(worse, better, rows, level)
    table = pd.DataFrame(
        {
            "true": classes[i],
            "predicted": classes[j],
            "rows": rows,
            "observed": observed[i, j] / rows,
            "inherent": inherent[i, j] / rows,
            "fixable": (worse - better) / rows,
            "low": low,
            "high": high,
            "points": (worse - better) / len(y),
            "p_value": p,
            "flagged": flagged,
        }
    )
    return table.sort_values("fixable", ascending=False, kind="stable", ignore_index=True)


def confusion_table(y: IntArray, said: IntArray, k: int) -> FloatArray:
    """How many rows of class i are called j."""
    return np.bincount(y * k + said, minlength=k * k).reshape(k, k).astype(np.float64)


def confusion_rates(table: FloatArray) -> FloatArray:
    """Its rows as shares; nan for a class without rows."""
    total = np.broadcast_to(table.sum(axis=1, keepdims=True), table.shape)
    return np.divide(table, total, out=np.full(table.shape, np.nan), where=total > 0)
