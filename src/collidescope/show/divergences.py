"""The four divergences as curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope.equations.densities import Divergences
from collidescope.show._base import COLOURS, Display, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

WORDS = {
    "collision": "collision",
    "total_variation": "total variation",
    "hellinger": "Hellinger",
    "kl": "Kullback–Leibler (right)",
}


class DivergencesDisplay(Display):
    """Divergences between two distributions as they move apart.

    Three of them lie between 0 and 1; Kullback and Leibler's has no limit and a scale of its own at the right.

    Parameters
    ----------
    divergences : list of n Divergences, or array of shape (n, 4)
    distances : array of shape (n,)
        What the curves are drawn over.

    Attributes
    ----------
    lines_ : dict of "collision", "total_variation", "hellinger", "kl" → Line2D
    kl_ax_ : Axes with the scale at the right
    ax_ : Axes
    figure_ : Figure

    Examples
    --------
    >>> from scipy.stats import norm
    >>> from collidescope import divergences
    >>> distances = [0.0, 1.0, 2.0]
    >>> display = DivergencesDisplay.from_divergences([divergences(norm(0), norm(d)) for d in distances], distances)
    >>> display.plot().lines_["kl"].get_ydata().round(6).tolist()
    [0.0, 0.5, 2.0]
    """

    lines_: dict[str, Line2D]
    kl_ax_: Axes

    def __init__(self, divergences: Sequence[Divergences] | npt.ArrayLike, distances: npt.ArrayLike) -> None:
        self.divergences = divergences
        self.distances = distances

    @classmethod
    def from_divergences(cls, divergences: Sequence[Divergences] | npt.ArrayLike, distances: npt.ArrayLike) -> Self:
        """Curves of what :func:`~collidescope.divergences` returned at each distance."""
        _check(divergences, distances)
        return cls(divergences, distances)

    def plot(self, ax: Axes | None = None, **kw: Any) -> Self:
        """Draw the curves; an infinite divergence leaves a gap.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        **kw
            For ``Axes.plot``.
        """
        values, distances = _check(self.divergences, self.distances)
        ax = self._axes(ax, (6.4, 4.0))
        self.kl_ax_ = ax.twinx()
        self.lines_ = {}
        for i, name in enumerate(Divergences._fields):
            style: dict[str, Any] = {"color": COLOURS[i], "linewidth": 2.2 if name == "collision" else 1.4}
            style |= {"linestyle": "--" if name == "kl" else "-"}
            (self.lines_[name],) = (self.kl_ax_ if name == "kl" else ax).plot(distances, values[:, i], **(style | kw))
        tidy(ax)
        self.kl_ax_.spines[["top", "left"]].set_visible(False)
        self.kl_ax_.tick_params(axis="y", colors=COLOURS[3])
        self.kl_ax_.set_ylabel("Kullback–Leibler divergence", color=COLOURS[3])
        self.kl_ax_.set_ylim(bottom=0)
        ax.set(ylim=(0, 1.02), xlabel="distance", ylabel="divergence")
        ax.legend(list(self.lines_.values()), [WORDS[name] for name in self.lines_])
        return self


def _check(divergences: Any, distances: npt.ArrayLike) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    try:
        values = np.array(divergences, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.ndim != 2 or values.shape[1] != len(Divergences._fields) or np.isnan(values).any():
        raise ValueError(
            f"divergences must be a list of Divergences (four numbers each, none missing), "
            f"got {type(divergences).__name__} of shape {values.shape}"
        )
    where = check.check_finite(distances, "distances", ndim=1)
    check.check_same_length(values, where, "divergences and distances")
    return values, where
