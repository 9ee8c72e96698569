"""Posteriors of a few inputs as bars, with the inputs above where they are images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope.show._base import ACCENT, QUIET, Display, plain, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer
    from matplotlib.image import AxesImage

#: Up to this many classes every input has a bar for each; with more, bars for its most likely ones.
ALL_BARS = 12
MOST_LIKELY = 8


class PosteriorDisplay(Display):
    """The chance of each class for a few inputs, a panel each.

    Up to 12 classes there is a bar for each of them; of more, the 8 most likely ones of the input.

    Parameters
    ----------
    posteriors : array of shape (n, K)
    classes : K names, default 0 … K-1
    images : array of shape (n, height, width) or (n, height, width, 3 or 4), optional
        Shown above the bars.
    labels : n labels, optional
        Written above; the bar of the label is red.

    Attributes
    ----------
    axes_ : list of Axes, those with the bars
    bars_ : list of BarContainer
    images_ : list of AxesImage
    ax_ : Axes
        Those given, or of the figure: the frame of all panels.
    figure_ : Figure

    Examples
    --------
    >>> display = PosteriorDisplay.from_posteriors([[0.7, 0.3], [0.1, 0.9]], classes=["cat", "dog"]).plot()
    >>> [float(bar.get_width()) for bar in display.bars_[1]]
    [0.1, 0.9]
    """

    axes_: list[Axes]
    bars_: list[BarContainer]
    images_: list[AxesImage]

    def __init__(
        self,
        posteriors: npt.ArrayLike,
        *,
        classes: Sequence[Any] | npt.NDArray[Any] | None = None,
        images: npt.ArrayLike | None = None,
        labels: npt.ArrayLike | None = None,
    ) -> None:
        self.posteriors = posteriors
        self.classes = classes
        self.images = images
        self.labels = labels

    @classmethod
    def from_posteriors(cls, P: npt.ArrayLike, classes: Any = None, images: Any = None, labels: Any = None) -> Self:
        """The display of the rows of ``P``, with every argument checked (see the class)."""
        posteriors = check.check_posteriors(P)
        n, k = posteriors.shape
        names = check.check_classes(range(k) if classes is None else classes, k)
        if labels is not None:
            check.check_same_length(posteriors, check.encode_labels(labels, names, "labels"), "P and labels")
        if images is not None:
            _check_images(images, n)
        return cls(posteriors, classes=names, images=images, labels=labels)

    def plot(self, ax: Axes | None = None, *, n_rows: int = 6, **kw: Any) -> Self:
        """Draw the first ``n_rows`` inputs side by side.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Their place is divided into panels. By default a new figure.
        n_rows : int
        **kw
            For ``Axes.barh``.
        """
        check.check_count(n_rows, "n_rows")
        checked = type(self).from_posteriors(self.posteriors, self.classes, self.images, self.labels)
        P, names = np.asarray(checked.posteriors)[:n_rows], np.asarray(checked.classes)
        n, k = P.shape
        codes = None if self.labels is None else check.encode_labels(self.labels, names, "labels")
        shown = min(k, ALL_BARS if k <= ALL_BARS else MOST_LIKELY)
        image_height = 0.0 if self.images is None else 1.6
        bars_height = 0.9 + 0.2 * shown
        width = 1.7 if k <= ALL_BARS else 2.5
        ax = self._axes(ax, (1.0 + width * n, bars_height + image_height))
        ax.set_axis_off()
        heights = [image_height, bars_height] if image_height else [bars_height]
        grid = _divide(ax, len(heights), n, heights)
        self.axes_, self.bars_, self.images_ = [], [], []
        for i in range(n):
            top = None
            if self.images is not None:
                top = ax.figure.add_subplot(grid[0, i])
                self.images_.append(top.imshow(np.asarray(self.images)[i], cmap="gray_r"))
                top.set_xticks([])
                top.set_yticks([])
            bars = ax.figure.add_subplot(grid[len(heights) - 1, i])
            classes = np.arange(k) if k <= ALL_BARS else np.argsort(-P[i], kind="stable")[:shown]
            colours = [ACCENT if codes is not None and c == codes[i] else QUIET for c in classes]
            self.bars_.append(bars.barh(np.arange(shown), P[i, classes], **({"color": colours} | kw)))
            named = i == 0 or k > ALL_BARS
            bars.set_yticks(np.arange(shown), [plain(c, 14) for c in names[classes]] if named else [""] * shown)
            bars.set(xlim=(0, 1), ylim=(shown - 0.4, -0.6), xticks=[0, 0.5, 1])
            bars.set_xticklabels(["0", "½", "1"])
            tidy(bars)
            bars.grid(False, axis="y")
            bars.tick_params(axis="y", length=0)
            if codes is not None:
                (top or bars).set_title(f"labelled {plain(names[codes[i]], 12)}", fontsize="medium")
            self.axes_.append(bars)
        self.axes_[(n - 1) // 2].set_xlabel("chance of each class")
        return self


def _check_images(images: npt.ArrayLike, n: int) -> None:
    try:
        pixels = np.asarray(images)
    except ValueError:
        raise ValueError("images must be of one size, got different ones: scale them first") from None
    good = pixels.ndim == 3 or (pixels.ndim == 4 and pixels.shape[3] in (3, 4))
    if not good or len(pixels) != n or pixels.size == 0 or pixels.dtype.kind not in "biuf":
        raise ValueError(
            f"images must hold numbers in shape ({n}, height, width) or ({n}, height, width, 3 or 4), "
            f"got {pixels.dtype} in shape {pixels.shape} (flat rows? reshape them)"
        )


def _divide(ax: Axes, rows: int, columns: int, heights: list[float]) -> Any:
    """A grid of panels in the place of ``ax``."""
    from matplotlib.gridspec import GridSpec

    place = ax.get_subplotspec()
    if place is not None:
        return place.subgridspec(rows, columns, height_ratios=heights)
    box = ax.get_position()
    sides = {"left": box.x0, "right": box.x1, "bottom": box.y0, "top": box.y1}
    return GridSpec(rows, columns, figure=ax.figure, height_ratios=heights, **sides)  # type: ignore[arg-type]
