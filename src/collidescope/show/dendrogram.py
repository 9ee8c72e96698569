"""The tree of merges of a consolidation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope.applications.consolidation import ConsolidationPlan
from collidescope.show._base import ACCENT, INK, QUIET, Display, tidy, write_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D


class DendrogramDisplay(Display):
    """Which classes are merged, in which order, and what each merge removes of the PBER.

    Merges of the plan are coloured; the dashed line is where it stops.

    Parameters
    ----------
    linkage : array of shape (K - 1, 4)
        As scipy writes it; heights are the PBER removed so far.
    classes : K names, default 0 … K-1
    n_groups : int, optional
        Groups that are left at the dashed line. By default no line is drawn.
    pber : float, optional
        PBER before the first merge, for the label of the axis.

    Attributes
    ----------
    dendrogram_ : dict
        What :func:`scipy.cluster.hierarchy.dendrogram` returned.
    cut_ : Line2D or None
    ax_ : Axes
    figure_ : Figure

    Examples
    --------
    >>> from collidescope import CollisionMatrix, consolidate
    >>> S = [[0.7, 0.2, 0.1, 0.0], [0.2, 0.8, 0.0, 0.0], [0.1, 0.0, 0.6, 0.3], [0.0, 0.0, 0.3, 0.7]]
    >>> plan = consolidate(CollisionMatrix(S, classes=["cat", "dog", "car", "van"]), n_groups=2)
    >>> display = DendrogramDisplay.from_plan(plan).plot()
    >>> [label.get_text() for label in display.ax_.get_yticklabels()]
    ['car', 'van', 'cat', 'dog']
    """

    dendrogram_: Mapping[str, Any]
    cut_: Line2D | None

    def __init__(
        self,
        linkage: npt.ArrayLike,
        *,
        classes: Sequence[Any] | npt.NDArray[Any] | None = None,
        n_groups: int | None = None,
        pber: float | None = None,
    ) -> None:
        self.linkage = linkage
        self.classes = classes
        self.n_groups = n_groups
        self.pber = pber

    @classmethod
    def from_plan(cls, plan: ConsolidationPlan) -> Self:
        """The tree of a plan made by :func:`~collidescope.consolidate` with ``method="greedy"``."""
        if not isinstance(plan, ConsolidationPlan):
            raise ValueError(f"plan must be what consolidate returned, got {type(plan).__name__}")
        if plan.linkage is None:
            raise ValueError(
                'plan has no linkage, for best groupings of different sizes need not be nested: method="greedy" has one'
            )
        return cls(plan.linkage, classes=plan.source.classes, n_groups=plan.n_groups, pber=plan.source.pber)

    def plot(self, ax: Axes | None = None, **kw: Any) -> Self:
        """Draw the tree from left to right.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            By default those of a new figure, which grows with the number of classes.
        **kw
            For :func:`scipy.cluster.hierarchy.dendrogram`.
        """
        from scipy.cluster.hierarchy import dendrogram, is_valid_linkage

        Z = check.check_finite(self.linkage, "linkage", ndim=2)
        if not is_valid_linkage(Z):
            raise ValueError(
                f"linkage must be what scipy's linkage returns, got an array of shape {Z.shape} that is not"
            )
        k = len(Z) + 1
        names = check.check_classes(range(k) if self.classes is None else self.classes, k)
        merged = 0 if self.n_groups is None else k - check.check_count(self.n_groups, "n_groups")
        ax = self._axes(ax, (6.4, float(np.clip(1.2 + 0.24 * k, 2.4, 14.0))))
        options: dict[str, Any] = {
            "orientation": "right",
            "no_labels": True,
            "link_color_func": lambda cluster: ACCENT if cluster - k < merged else QUIET,
        }
        self.dendrogram_ = dendrogram(Z, ax=ax, **(options | kw))
        # scipy puts leaves at 5, 15, 25, …
        write_names(ax, "y", 5 + 10 * np.arange(k), names[self.dendrogram_["leaves"]].tolist())
        tidy(ax, "left")
        ax.grid(False, axis="y")
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel("PBER removed by merging" + ("" if self.pber is None else f" (of {self.pber:.3g})"))
        self.cut_ = None
        if 0 < merged < k - 1:
            self.cut_ = ax.axvline((Z[merged - 1, 2] + Z[merged, 2]) / 2, color=INK, linestyle="--", linewidth=1)
            ax.set_title(f"{self.n_groups} groups at the dashed line", fontsize="medium")
        return self
