"""What all displays share: axes to draw on, colours, and names that stay readable whatever they hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

INK, ACCENT, QUIET, NEUTRAL = "#1f2a44", "#c8442c", "#9aa5b8", "#e3e7ee"
#: Longer names are cut: beyond this a name takes more room than the picture.
LONGEST = 24
#: Names are left out rather than printed smaller than this (points).
SMALLEST_FONT = 6.0
LARGEST_FONT = 10.0
#: Axes shrink when labels and a colour bar take their share; names are placed as if this much were left.
LEFT_OVER = 0.8
#: Width of a character in units of the font size, on the average.
CHARACTER = 0.62


Layout = Literal["constrained", "compressed"]


class Display:
    """Axes and figure of what was drawn last."""

    ax_: Axes
    figure_: Figure | SubFigure

    def _axes(self, ax: Axes | None, size: tuple[float, float], layout: Layout = "constrained") -> Axes:
        """``ax``, or the axes of a new figure of ``size`` inches."""
        try:
            import matplotlib.pyplot as plt
            from matplotlib.axes import Axes
        except ImportError as error:
            name = type(self).__name__
            raise ImportError(f"{name}.plot needs matplotlib: pip install collidescope[plot]") from error
        if ax is None:
            ax = plt.subplots(figsize=size, layout=layout)[1]
        elif not isinstance(ax, Axes):
            raise ValueError(f"ax must be one matplotlib Axes, got {type(ax).__name__} (of an array take one: axes[0])")
        self.ax_, self.figure_ = ax, ax.figure
        return ax


def plain(name: Any, longest: int = LONGEST) -> str:
    r"""``name`` as text that matplotlib prints as it is: no mathematics between dollars, no line breaks, not too long.

    >>> plain("$5 or $6")
    '\\$5 or \\$6'
    """
    text = "".join(character if character.isprintable() else " " for character in str(name))
    return (text if len(text) <= longest else text[: longest - 1] + "…").replace("$", r"\$")


def write_names(ax: Axes, side: Literal["x", "y"], places: npt.ArrayLike, names: Sequence[Any]) -> None:
    """Class names along one side: as many as fit, as large as fits."""
    each = points(ax, side) / len(names)
    step = max(1, math.ceil(1.2 * SMALLEST_FONT / each))
    size = float(np.clip(each * step / 1.2, SMALLEST_FONT, LARGEST_FONT))
    texts = [plain(name) for name in names][::step]
    ticks = np.asarray(places)[::step].tolist()
    if side == "y":
        ax.set_yticks(ticks, texts, fontsize=size)
        return
    upright = max(map(len, texts)) * CHARACTER * size > each * step
    ax.set_xticks(ticks, texts, fontsize=size, rotation=90 if upright else 0)


def points(ax: Axes, side: Literal["x", "y"]) -> float:
    """About how many points (1/72 inch) a side of the axes will have."""
    box = ax.get_window_extent()
    return max(1.0, LEFT_OVER * (box.width if side == "x" else box.height) * 72 / float(ax.figure.dpi))


def tidy(ax: Axes, *spines: str) -> None:
    """Light grid behind, no frame on top and at the right (nor at ``spines``)."""
    ax.grid(color=NEUTRAL)
    ax.set_axisbelow(True)
    ax.spines[["top", "right", *spines]].set_visible(False)
