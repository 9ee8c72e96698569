"""The learning curve, its continuation, and what unlimited rows would leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from collidescope._checks import FloatArray
from collidescope._text import READABLE, limit_facts
from collidescope.show._base import ACCENT, INK, QUIET, Display, tidy
from collidescope.trust import limit_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.collections import PolyCollection
    from matplotlib.container import ErrorbarContainer

#: The continuation is drawn up to this many times the rows, at so many places.
REACH, PLACES = 100.0, 25
#: Exponents of the power law that the continuation may have, and the usual one where the curve is flat.
EXPONENTS, USUAL = (0.15, 1.0), 0.5


def continuation(curve: pd.DataFrame, pber: float, low: float, high: float) -> dict[str, FloatArray]:
    """Where the curve goes: ``rows``, ``low``, ``middle``, ``high``, from the last size to ``REACH`` times it.

    For each end b of the range (and for ``pber``) the curve b + (PBER(n) - b) (m/n)^-c through its last point, with
    the exponent c that fits the other points best. The range itself is not computed here: this is for the eye.

    >>> import pandas as pd
    >>> m = np.array([125, 250, 500, 1000])
    >>> path = continuation(pd.DataFrame({"rows": m, "pber": 0.1 + 2 / m}), 0.1, 0.09, 0.11)
    >>> bool(np.allclose(path["middle"], 0.1 + 2 / path["rows"]))
    True
    """
    sizes, values = (curve[name].to_numpy(dtype=np.float64) for name in ("rows", "pber"))
    rows = sizes[-1] * np.geomspace(1.0, REACH, PLACES)
    path = {"rows": rows}
    for name, end in (("low", low), ("middle", pber), ("high", high)):
        gap = values - end
        c = USUAL
        if len(gap) > 1 and (gap > 0).all():
            c = float(np.clip(-np.polyfit(np.log(sizes), np.log(gap), 1)[0], *EXPONENTS))
        path[name] = end + (values[-1] - end) * (rows / sizes[-1]) ** -c
    return path


class LimitDisplay(Display):
    """PBER against the number of rows, its continuation as a band, and the range at the limit.

    Parameters
    ----------
    curve : DataFrame
        One row per training size: ``rows``, ``pber`` and ``pber_stderr``.
    pber, low, high : float
        PBER at the limit, and the ends of its range.
    state : str
        Of the limit; where it is neither "settled" nor "still learning" no continuation is drawn.

    Attributes
    ----------
    errorbar_ : ErrorbarContainer
        The curve.
    range_ : ErrorbarContainer
        The range at the right edge.
    band_ : PolyCollection or None
    ax_ : Axes
    figure_ : Figure

    Examples
    --------
    >>> import pandas as pd
    >>> curve = pd.DataFrame({"rows": [125, 250, 500, 1000], "pber": [0.3, 0.26, 0.23, 0.21], "pber_stderr": 0.01})
    >>> display = LimitDisplay(curve, pber=0.15, low=0.12, high=0.2, state="still learning").plot()
    >>> display.ax_.get_xticklabels()[-1].get_text()
    'unlimited'
    """

    errorbar_: ErrorbarContainer
    range_: ErrorbarContainer
    band_: PolyCollection | None

    def __init__(self, curve: pd.DataFrame, *, pber: float, low: float, high: float, state: str) -> None:
        self.curve = curve
        self.pber = pber
        self.low = low
        self.high = high
        self.state = state

    @classmethod
    def from_limit(cls, limit: Any, *, level: float = 0.95) -> Self:
        """The display of a :class:`~collidescope.limit.Limit`, its range at ``level``."""
        if limit_of(limit) is not limit or limit is None:
            raise ValueError(f"limit must be a Limit (clf.limit_), got {type(limit).__name__}")
        facts: dict[str, Any] = limit_facts(limit, level)
        ends = {"low": facts["limit_pber_low"], "high": facts["limit_pber_high"]}
        return cls(limit.curve, pber=facts["limit_pber"], state=facts["limit_state"], **ends)

    @classmethod
    def from_estimator(cls, clf: Any, *, level: float = 0.95) -> Self:
        """The display of a fitted classifier's ``limit_``."""
        limit = limit_of(clf)
        if limit is None:
            raise ValueError(f"clf must be fitted with limit=True, got {type(clf).__name__} without limit_")
        return cls.from_limit(limit, level=level)

    def plot(self, ax: Axes | None = None, **kw: Any) -> Self:
        """Draw the curve.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        **kw
            For the ``Axes.errorbar`` of the curve.
        """
        sizes, values = (self.curve[name].to_numpy(dtype=np.float64) for name in ("rows", "pber"))
        error = self.curve["pber_stderr"].to_numpy() if "pber_stderr" in self.curve else None
        ax = self._axes(ax, (6.4, 3.8))
        known = self.state in READABLE
        self.band_ = None
        if known:
            path = continuation(self.curve, self.pber, self.low, self.high)
            self.band_ = ax.fill_between(path["rows"], path["low"], path["high"], color=ACCENT, alpha=0.18, lw=0)
            ax.plot(path["rows"], path["middle"], color=ACCENT, linestyle="--", linewidth=1.2)
        style: dict[str, Any] = {"fmt": "o-", "color": INK, "ecolor": QUIET, "capsize": 3, "markersize": 5}
        self.errorbar_ = ax.errorbar(sizes, values, yerr=error, **(style | kw))
        edge = sizes[-1] * REACH * 2.0
        middle = self.pber if known else (self.low + self.high) / 2
        ends = [[middle - self.low], [self.high - middle]]
        self.range_ = ax.errorbar(
            [edge], [middle], yerr=ends, fmt="o" if known else "none", color=ACCENT, ecolor=ACCENT, capsize=6, lw=2.5
        )
        tidy(ax)
        ax.set_xscale("log")
        ax.minorticks_off()
        ax.set_xticks([*sizes, edge], [*(f"{n:,.0f}" for n in sizes), "unlimited"])
        ax.set(
            ylim=(0, 1.08 * max(values.max(), self.high)), xlabel="rows", ylabel="inputs that would get another label"
        )
        ax.yaxis.set_major_formatter(lambda share, _: f"{share:.3g}" if share < 0.01 else f"{share:.0%}")
        ax.set_title("" if known else "no continuation: learning has hardly begun", fontsize="medium")
        return self
