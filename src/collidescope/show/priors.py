"""Precision and recall of the probabilistic Bayes classifier where a class is rarer or more frequent.

S holds at the priors at which the classifier decides, so recall S_kk does not depend on the population. With t the
share of class k in it, and the other classes in proportion to their priors, precision is t S_kk over
t S_kk + (1 - t) FPR_k, where FPR_k is the false-positive rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope.applications._inputs import check_matrix
from collidescope.matrix import CollisionMatrix
from collidescope.show._base import COLOURS, INK, Display, in_legend, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

#: Shares of the class in the population.
SHARES = np.linspace(0.01, 0.99, 99)


class PriorsDisplay(Display):
    """Precision and recall of classes over their share of the population.

    What S promises of the classifier that decides at its priors, applied where a class is rarer or more frequent. The
    dot is the prior of the class. Of more than 10 classes those with the lowest recall are drawn.

    Parameters
    ----------
    shares : array of shape (T,)
    precision : array of shape (n, T)
        A row for each class shown.
    recall : array of shape (n,)
    classes : n names
    priors : array of shape (n,), optional
        Where the dots are.

    Attributes
    ----------
    precision_lines_, recall_lines_ : dict of class name → Line2D
    ax_ : Axes
    figure_ : Figure

    Examples
    --------
    >>> from collidescope import CollisionMatrix
    >>> cm = CollisionMatrix([[0.9, 0.1], [0.2, 0.8]], priors=[2 / 3, 1 / 3], classes=["healthy", "ill"])
    >>> display = PriorsDisplay.from_matrix(cm, positive="ill").plot()
    >>> display.precision_lines_["ill"].get_ydata()[[0, 49]].round(3)  # one in a hundred is ill, every second
    array([0.075, 0.889])
    """

    precision_lines_: dict[Any, Line2D]
    recall_lines_: dict[Any, Line2D]

    def __init__(
        self,
        shares: npt.ArrayLike,
        precision: npt.ArrayLike,
        recall: npt.ArrayLike,
        *,
        classes: Sequence[Any] | npt.NDArray[Any],
        priors: npt.ArrayLike | None = None,
    ) -> None:
        self.shares = shares
        self.precision = precision
        self.recall = recall
        self.classes = classes
        self.priors = priors

    @classmethod
    def from_matrix(cls, cm: CollisionMatrix, *, positive: Any = None) -> Self:
        """Curves of all classes, or of the class ``positive`` alone."""
        check_matrix(cm)
        names = cm.classes.tolist()
        if positive is not None and positive not in names:
            known = ", ".join(map(repr, names[:10])) + (", …" if len(names) > 10 else "")
            raise ValueError(f"positive must be one of the classes ({known}), got {positive!r}")
        chosen = slice(None) if positive is None else [names.index(positive)]
        recall = cm.recall()[chosen]
        hits = SHARES * recall[:, None]
        flow = hits + (1 - SHARES) * cm.false_positive_rate()[chosen, None]
        # A class that is never predicted has no precision.
        precision = np.divide(hits, flow, out=np.full_like(hits, np.nan), where=flow > 0)
        return cls(SHARES.copy(), precision, recall, classes=cm.classes[chosen], priors=cm.priors[chosen])

    def plot(self, ax: Axes | None = None, **kw: Any) -> Self:
        """Draw precision (solid) and recall (dashed).

        Parameters
        ----------
        ax : matplotlib Axes, optional
        **kw
            For ``Axes.plot``.
        """
        shares, recall = (check.check_finite(getattr(self, name), name, ndim=1) for name in ("shares", "recall"))
        precision = np.asarray(self.precision, dtype=np.float64)
        names = list(self.classes)
        if precision.shape != (len(recall), len(shares)) or len(names) != len(recall):
            raise ValueError(
                f"precision must have shape {(len(names), len(shares))}, a row per class and a column per share, "
                f"and recall an entry per class, got {precision.shape} and {recall.shape}"
            )
        priors = None if self.priors is None else check.check_finite(self.priors, "priors", ndim=1)
        shown = np.sort(np.argsort(recall, kind="stable")[: len(COLOURS)])
        ax = self._axes(ax, (6.4, 4.4))
        dashed: dict[str, Any] = {"linestyle": "--", "linewidth": 1}
        self.precision_lines_, self.recall_lines_ = {}, {}
        for colour, i in zip(COLOURS, shown, strict=False):
            name = names[i]
            style: dict[str, Any] = {"color": colour} | kw
            (self.precision_lines_[name],) = ax.plot(shares, precision[i], **style)
            level = np.full(len(shares), recall[i])
            (self.recall_lines_[name],) = ax.plot(shares, level, **(dashed | style))
            if priors is not None:
                ax.plot(priors[i], np.interp(priors[i], shares, precision[i]), "o", color=colour, markersize=5)
        styles = [ax.plot([], [], color=INK)[0], ax.plot([], [], color=INK, linestyle="--", linewidth=1)[0]]
        lines = list(self.precision_lines_.values())
        labels = [in_legend(name) for name in self.precision_lines_]
        ax.legend([*styles, *lines], ["precision", "recall", *labels], loc="center left", bbox_to_anchor=(1.0, 0.5))
        if len(shown) < len(names):
            ax.set_title(f"{len(shown)} of {len(names)} classes: those with the lowest recall", fontsize="medium")
        tidy(ax)
        ax.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="share of the class in the population", ylabel="precision, recall")
        return self
