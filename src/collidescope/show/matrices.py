"""S as a heat map, the collisions on a scale of colours of their own, and its largest entries with their intervals.

Off the diagonal a rate of 0.02 can matter while 0.9 stands on it, so the diagonal is grey and the rest has its own
scale: from 0 to the largest collision, bent so that small rates show (colour = (rate / largest) ** ``BEND``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope._text import short
from collidescope.applications._inputs import check_matrix
from collidescope.matrix import CollisionMatrix
from collidescope.show._base import (
    ACCENT,
    CHARACTER,
    INK,
    LARGEST_FONT,
    LONGEST,
    NEUTRAL,
    Display,
    plain,
    points,
    tidy,
    write_names,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colorbar import Colorbar
    from matplotlib.container import ErrorbarContainer
    from matplotlib.image import AxesImage

#: Up to this many classes the values are written and the order is the given one.
FEW = 20
#: Up to this many classes there is room for a third decimal.
THREE_DECIMALS = 10
#: Cube root: 0.02 beside 0.9 takes a quarter of the scale of colours. On a logarithmic one, which has no zero, rates of
#: 0.02 and 0.1 look alike.
BEND = 1 / 3
#: Where the scale of colours is labelled.
TICKS = (0, 0.0001, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1)


class CollisionMatrixDisplay(Display):
    """S as a heat map (:meth:`plot`), and its largest collisions with their intervals (:meth:`plot_pairs`).

    In the heat map the diagonal is grey; collisions are coloured by the cube root of the rate, so that rare ones show
    beside frequent ones.

    Parameters
    ----------
    matrix : array of shape (K, K)
    classes : K names, default 0 … K-1
    order : K positions, optional
        The order in which classes are shown.
    low, high : arrays of shape (K, K), optional
        Ends of the intervals of the entries, for :meth:`plot_pairs`.

    Attributes
    ----------
    im_ : AxesImage
    text_ : array of shape (K, K) of Text, or None
    colorbar_ : Colorbar or None
    errorbar_ : ErrorbarContainer, of :meth:`plot_pairs`
    ax_ : Axes
    figure_ : Figure

    Examples
    --------
    >>> from collidescope import CollisionMatrix
    >>> cm = CollisionMatrix([[0.9, 0.1], [0.2, 0.8]], classes=["cat", "dog"])
    >>> display = CollisionMatrixDisplay.from_matrix(cm).plot()
    >>> display.text_[1, 0].get_text()
    '0.200'
    >>> [label.get_text() for label in display.plot_pairs().ax_.get_yticklabels()]
    ['dog → cat']
    """

    im_: AxesImage
    text_: npt.NDArray[Any] | None
    colorbar_: Colorbar | None
    errorbar_: ErrorbarContainer

    def __init__(
        self,
        matrix: npt.ArrayLike,
        *,
        classes: Sequence[Any] | npt.NDArray[Any] | None = None,
        order: Sequence[int] | IntArray | None = None,
        low: npt.ArrayLike | None = None,
        high: npt.ArrayLike | None = None,
    ) -> None:
        self.matrix = matrix
        self.classes = classes
        self.order = order
        self.low = low
        self.high = high

    @classmethod
    def from_matrix(cls, cm: CollisionMatrix, *, order: str | None = None, level: float = 0.95) -> Self:
        """The display of a collision matrix.

        Parameters
        ----------
        cm : CollisionMatrix
        order : "given", "cluster" or None
            As in ``cm``, or classes that collide side by side (average linkage of the joint rates B). By default as
            given up to 20 classes, clustered beyond.
        level : float
            Of the intervals.
        """
        check_matrix(cm)
        if order is None:
            order = "given" if cm.n_classes <= FEW else "cluster"
        check.check_choice(order, ["given", "cluster"], "order")
        low, high = cm.interval(level) or (None, None)
        places = leaf_order(cm.joint) if order == "cluster" else None
        return cls(cm.matrix, classes=cm.classes, order=places, low=low, high=high)

    def _checked(self) -> tuple[FloatArray, npt.NDArray[Any]]:
        S = check.check_square(self.matrix, "matrix")
        return S, check.check_classes(range(len(S)) if self.classes is None else self.classes, len(S))

    def plot(
        self,
        ax: Axes | None = None,
        *,
        include_values: bool | None = None,
        values_format: str | None = None,
        cmap: Any = "OrRd",
        colorbar: bool = True,
        **kw: Any,
    ) -> Self:
        """Draw the heat map.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            By default those of a new figure, which grows with the number of classes.
        include_values : bool, optional
            Write the entries into the cells. By default up to 20 classes.
        values_format : str, optional
            By default ``".3f"`` up to 10 classes, ``".2f"`` beyond.
        cmap : name or Colormap
        colorbar : bool
        **kw
            For ``Axes.imshow``, such as ``norm``.
        """
        S, names = self._checked()
        k = len(S)
        order = np.arange(k) if self.order is None else _check_order(self.order, k)
        S, names = S[np.ix_(order, order)], names[order]
        side = float(np.clip(2.0 + 0.45 * k, 4.6, 12.0))
        ax = self._axes(ax, (side + 1.0, side), "compressed")
        import matplotlib
        from matplotlib.colors import PowerNorm

        own = np.eye(k, dtype=bool)
        largest = float(S[~own].max()) or 1.0  # any scale will do where nothing collides
        colours = matplotlib.colormaps.get_cmap(cmap).with_extremes(bad=NEUTRAL)
        style: dict[str, Any] = {"norm": PowerNorm(BEND, 0.0, largest, clip=True), "interpolation": "nearest"}
        self.im_ = ax.imshow(np.ma.masked_array(S, own), cmap=colours, **(style | kw))
        write_names(ax, "x", range(k), names.tolist())
        write_names(ax, "y", range(k), names.tolist())
        ax.tick_params(length=0 if k <= FEW else 2)
        ax.set(xlabel="seen again in", ylabel="seen in")
        self.text_ = None
        if k <= FEW if include_values is None else include_values:
            self.text_ = self._write(S, values_format or (".3f" if k <= THREE_DECIMALS else ".2f"))
        self.colorbar_ = None
        if colorbar:
            self.colorbar_ = ax.figure.colorbar(self.im_, ax=ax, label="collision rate", fraction=0.05)
            if "norm" not in kw:
                ticks = _bar_ticks(largest)
                self.colorbar_.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
                self.colorbar_.minorticks_off()
        return self

    def plot_pairs(self, ax: Axes | None = None, *, n: int = 15, **kw: Any) -> Self:
        """Draw the ``n`` most colliding pairs, each in its stronger direction: a dot per rate, a bar per interval.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            By default those of a new figure, which grows with the number of pairs.
        n : int
        **kw
            For ``Axes.errorbar``.
        """
        check.check_count(n, "n")
        S, names = self._checked()
        low, high = (S if end is None else check.check_square(end, "low, high") for end in (self.low, self.high))
        if low.shape != S.shape or high.shape != S.shape or (low > S).any() or (high < S).any():
            raise ValueError("low must not be above matrix, nor high below it, and all must have one shape (swapped?)")
        top = CollisionMatrix(S).top_collisions(n)
        i, j, rate = top["class"].to_numpy(), top["other"].to_numpy(), top["rate"].to_numpy()
        ax = self._axes(ax, (6.4, float(np.clip(1.2 + 0.28 * len(i), 2.0, 14.0))))
        style: dict[str, Any] = {"fmt": "o", "color": ACCENT, "ecolor": INK, "capsize": 3, "markersize": 5}
        error = [rate - low[i, j], high[i, j] - rate] if self.low is not None else None
        self.errorbar_ = ax.errorbar(rate, np.arange(len(i)), xerr=error, **(style | kw))
        each = (LONGEST - 3) // 2
        arrows = [f"{short(a, each)} → {short(b, each)}" for a, b in zip(names[i], names[j], strict=True)]
        write_names(ax, "y", np.arange(len(i)), arrows)
        tidy(ax, "left")
        ax.tick_params(axis="y", length=0)
        ax.set(ylim=(len(i) - 0.4, -0.6), xlabel="chance of being seen again in the other class")
        ax.set_xlim(left=0)
        return self

    def _write(self, S: FloatArray, values_format: str) -> npt.NDArray[Any]:
        words = [[plain(format(value, values_format)) for value in row] for row in S.tolist()]
        room = min(points(self.ax_, "x"), points(self.ax_, "y")) / len(S)
        size = min(LARGEST_FONT, 0.9 * room / (CHARACTER * max(len(word) for row in words for word in row)))
        cells = self.im_.to_rgba(np.ma.masked_array(S, np.eye(len(S), dtype=bool)))
        texts = np.empty(S.shape, dtype=object)
        for i, j in np.ndindex(S.shape):
            style: dict[str, Any] = {"color": _ink_on(cells[i, j]), "fontsize": size, "ha": "center", "va": "center"}
            texts[i, j] = self.ax_.text(j, i, words[i][j], weight="bold" if i == j else "normal", **style)
        return texts


def leaf_order(affinity: FloatArray) -> IntArray:
    """Classes so that those of high affinity are neighbours: leaves of average linkage, in their best order."""
    from scipy.cluster.hierarchy import leaves_list, linkage

    pairs = ((affinity + affinity.T) / 2)[np.triu_indices(len(affinity), 1)]
    return np.asarray(leaves_list(linkage(pairs.max() - pairs, "average", optimal_ordering=True)), dtype=np.intp)


def _check_order(order: Sequence[int] | IntArray, k: int) -> IntArray:
    places = check.check_finite(order, "order", ndim=1)
    if sorted(places.tolist()) != list(range(k)):
        raise ValueError(f"order must hold every position from 0 to {k - 1} once, got {places.tolist()[:10]}")
    return places.astype(np.intp)


def _bar_ticks(largest: float) -> list[float]:
    """Ticks below the largest rate that are not too close to each other, and the largest itself (two digits)."""
    ticks: list[float] = [float(f"{largest:.2g}")]
    for tick in sorted(TICKS, reverse=True):
        if tick < largest and (ticks[-1] / largest) ** BEND - (tick / largest) ** BEND > 0.08:
            ticks.append(float(tick))
    return ticks[::-1]


def _ink_on(colour: FloatArray) -> str:
    """White or dark, whichever stands out more from ``colour`` (WCAG's relative luminance)."""
    rgb = colour[:3]
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    luminance = float(linear @ [0.2126, 0.7152, 0.0722])
    return "white" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.0725 else INK
