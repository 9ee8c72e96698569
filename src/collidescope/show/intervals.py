"""The largest collisions with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope.applications._inputs import check_matrix
from collidescope.matrix import CollisionMatrix
from collidescope.show._base import ACCENT, INK, LONGEST, Display, tidy, write_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import ErrorbarContainer


class IntervalsDisplay(Display):
    """Forest plot: a dot for each rate, a bar for its interval, the largest on top.

    Parameters
    ----------
    rate, low, high : arrays of shape (n,)
    names : n names
    level : float, optional
        Of the intervals, for the label of the axis.

    Attributes
    ----------
    errorbar_ : ErrorbarContainer
    ax_ : Axes
    figure_ : Figure

    Examples
    --------
    >>> from collidescope import collision_matrix_from_posteriors
    >>> cm = collision_matrix_from_posteriors([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3], [0.2, 0.8]], ["a", "b", "a", "b"])
    >>> display = IntervalsDisplay.from_matrix(cm).plot()
    >>> [label.get_text() for label in display.ax_.get_yticklabels()]
    ['a → b']
    """

    errorbar_: ErrorbarContainer

    def __init__(
        self,
        rate: npt.ArrayLike,
        low: npt.ArrayLike,
        high: npt.ArrayLike,
        *,
        names: Sequence[Any],
        level: float | None = None,
    ) -> None:
        self.rate = rate
        self.low = low
        self.high = high
        self.names = names
        self.level = level

    @classmethod
    def from_matrix(cls, cm: CollisionMatrix, n: int = 15, *, level: float = 0.95) -> Self:
        """The ``n`` most colliding pairs of classes, each in its stronger direction, with intervals at ``level``."""
        check_matrix(cm)
        check.check_count(n, "n")
        if cm.interval(level) is None:
            raise ValueError(
                "cm has no intervals, for no standard errors were estimated: take one from held-out posteriors and "
                "labels (collision_matrix_from_posteriors, estimate_collisions, CollisionClassifier)"
            )
        top = cm.top_collisions(n, level)
        names = [f"{_short(a)} → {_short(b)}" for a, b in zip(top["class"], top["other"], strict=True)]
        rate, low, high = (top[name].to_numpy(dtype=np.float64) for name in ("rate", "low", "high"))
        return cls(rate, low, high, names=names, level=level)

    def plot(self, ax: Axes | None = None, **kw: Any) -> Self:
        """Draw dots and bars.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            By default those of a new figure, which grows with the number of pairs.
        **kw
            For ``Axes.errorbar``.
        """
        rate, low, high = (check.check_finite(getattr(self, name), name, ndim=1) for name in ("rate", "low", "high"))
        if not len(rate) == len(low) == len(high) == len(self.names):
            counts = f"{len(rate)}, {len(low)}, {len(high)} and {len(self.names)}"
            raise ValueError(f"rate, low, high and names must have the same length, got {counts}")
        if (low > rate).any() or (high < rate).any():
            raise ValueError("low must not be above rate, nor high below it (swapped?)")
        n = len(rate)
        ax = self._axes(ax, (6.4, float(np.clip(1.2 + 0.28 * n, 2.0, 14.0))))
        place = np.arange(n)
        style: dict[str, Any] = {"fmt": "o", "color": ACCENT, "ecolor": INK, "capsize": 3, "markersize": 5}
        self.errorbar_ = ax.errorbar(rate, place, xerr=[rate - low, high - rate], **(style | kw))
        write_names(ax, "y", place, self.names)
        tidy(ax, "left")
        ax.tick_params(axis="y", length=0)
        ax.set_ylim(n - 0.4, -0.6)
        ax.set_xlim(left=0)
        level = "" if self.level is None else f", with {100 * self.level:g}% interval"
        ax.set_xlabel(f"chance of being seen again in the other class{level}")
        return self


def _short(name: Any) -> str:
    """A name cut so that two of them and an arrow stay within ``LONGEST``."""
    text, most = str(name), (LONGEST - 3) // 2
    return text if len(text) <= most else text[: most - 1] + "…"
