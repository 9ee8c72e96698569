"""S and its Gramian as heat maps, the collisions on a scale of colours of their own.

Off the diagonal a rate of 0.02 can matter while 0.9 stands on it, so the diagonal is grey and the rest has a scale of
its own: from 0 to its largest entry, bent so that small rates show (colour = (rate / largest) ** ``BEND``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope.applications._inputs import check_matrix
from collidescope.matrix import CollisionMatrix
from collidescope.show._base import (
    CHARACTER,
    INK,
    LARGEST_FONT,
    NEUTRAL,
    Display,
    check_fitted,
    plain,
    points,
    write_names,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colorbar import Colorbar
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


class _MatrixDisplay(Display):
    """A K×K matrix with class names on both sides."""

    _row, _column, _bar = "", "", ""
    im_: AxesImage
    text_: npt.NDArray[Any] | None
    colorbar_: Colorbar | None

    def __init__(
        self,
        matrix: npt.ArrayLike,
        *,
        classes: Sequence[Any] | npt.NDArray[Any] | None = None,
        order: Sequence[int] | IntArray | None = None,
    ) -> None:
        self.matrix = matrix
        self.classes = classes
        self.order = order

    @classmethod
    def _build(cls, matrix: FloatArray, classes: npt.NDArray[Any], affinity: FloatArray, order: str | None) -> Self:
        if order is None:
            order = "given" if len(matrix) <= FEW else "cluster"
        check.check_choice(order, ["given", "cluster"], "order")
        return cls(matrix, classes=classes, order=leaf_order(affinity) if order == "cluster" else None)

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
        S = check.check_square(self.matrix, "matrix")
        k = len(S)
        names = check.check_classes(range(k) if self.classes is None else self.classes, k)
        order = _check_order(self.order, k)
        S, names = S[np.ix_(order, order)], names[order]
        side = float(np.clip(2.0 + 0.45 * k, 4.6, 12.0))
        ax = self._axes(ax, (side + 1.0, side), "compressed")
        import matplotlib

        own = np.eye(k, dtype=bool)
        colours = matplotlib.colormaps.get_cmap(cmap).with_extremes(bad=NEUTRAL)
        given, kw = kw, {"norm": _norm(S[~own]), "interpolation": "nearest"} | kw
        self.im_ = ax.imshow(np.ma.masked_array(S, own), cmap=colours, **kw)
        write_names(ax, "x", range(k), names.tolist())
        write_names(ax, "y", range(k), names.tolist())
        ax.tick_params(length=0 if k <= FEW else 2)
        ax.set_xlabel(self._column)
        ax.set_ylabel(self._row)
        self.text_ = None
        if k <= FEW if include_values is None else include_values:
            self.text_ = self._write(S, values_format or (".3f" if k <= THREE_DECIMALS else ".2f"))
        self.colorbar_ = None
        if colorbar:
            self.colorbar_ = ax.figure.colorbar(self.im_, ax=ax, label=self._bar, fraction=0.05)
            if "norm" not in given:
                ticks = _bar_ticks(float(S[~own].max()))
                self.colorbar_.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
                self.colorbar_.minorticks_off()
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


class CollisionMatrixDisplay(_MatrixDisplay):
    """S as a heat map: who is found again where.

    The diagonal is grey; collisions are coloured on a scale of their own, by the cube root of the rate, so that
    rare ones show beside frequent ones.

    Parameters
    ----------
    matrix : array of shape (K, K)
    classes : K names, default 0 … K-1
    order : K positions, optional
        The order in which classes are shown.

    Attributes
    ----------
    im_ : AxesImage
    text_ : array of shape (K, K) of Text, or None
    colorbar_ : Colorbar or None
    ax_ : Axes
    figure_ : Figure

    Examples
    --------
    >>> from collidescope import CollisionMatrix
    >>> cm = CollisionMatrix([[0.9, 0.1], [0.2, 0.8]], classes=["cat", "dog"])
    >>> display = CollisionMatrixDisplay.from_matrix(cm).plot()
    >>> display.text_[1, 0].get_text()
    '0.200'
    """

    _row, _column, _bar = "seen in", "seen again in", "collision rate"

    @classmethod
    def from_matrix(cls, cm: CollisionMatrix, *, order: str | None = None) -> Self:
        """The display of a collision matrix.

        Parameters
        ----------
        cm : CollisionMatrix
        order : "given", "cluster" or None
            As in ``cm``, or classes that collide side by side (average linkage of the joint rates B). By default as
            given up to 20 classes, clustered beyond.
        """
        check_matrix(cm)
        return cls._build(cm.matrix, cm.classes, cm.joint, order)


class GramianDisplay(_MatrixDisplay):
    """G = S Sᵀ as a heat map: how likely inputs of two classes share a class when they are drawn again.

    Colours as in :class:`CollisionMatrixDisplay`.

    Parameters
    ----------
    matrix : array of shape (K, K)
    classes : K names, default 0 … K-1
    order : K positions, optional
        The order in which classes are shown.

    Attributes
    ----------
    im_ : AxesImage
    text_ : array of shape (K, K) of Text, or None
    colorbar_ : Colorbar or None
    ax_ : Axes
    figure_ : Figure

    Examples
    --------
    >>> from collidescope import CollisionMatrix
    >>> cm = CollisionMatrix([[0.9, 0.1], [0.2, 0.8]], classes=["cat", "dog"])
    >>> GramianDisplay.from_matrix(cm).plot(values_format=".2f").text_[0, 1].get_text()
    '0.26'
    """

    _row, _column, _bar = "an input of", "and one of", "chance of sharing a class"

    @classmethod
    def from_matrix(cls, cm: CollisionMatrix, *, order: str | None = None) -> Self:
        """The Gramian of a collision matrix; ``order`` as in :meth:`CollisionMatrixDisplay.from_matrix`."""
        check_matrix(cm)
        return cls._build(cm.gramian, cm.classes, cm.gramian, order)

    @classmethod
    def from_classifier(cls, clf: Any, *, order: str | None = None) -> Self:
        """The Gramian that a fitted :class:`~collidescope.CollisionClassifier` estimated (``gramian_``)."""
        check_fitted(clf, "gramian_")
        G = check.check_square(clf.gramian_, "clf.gramian_")
        return cls._build(G, check.check_classes(clf.classes_, len(G)), G, order)


def leaf_order(affinity: FloatArray) -> IntArray:
    """Classes so that those of high affinity are neighbours: leaves of average linkage, in their best order."""
    from scipy.cluster.hierarchy import leaves_list, linkage

    pairs = ((affinity + affinity.T) / 2)[np.triu_indices(len(affinity), 1)]
    return np.asarray(leaves_list(linkage(pairs.max() - pairs, "average", optimal_ordering=True)), dtype=np.intp)


def _check_order(order: Sequence[int] | IntArray | None, k: int) -> IntArray:
    if order is None:
        return np.arange(k)
    places = check.check_finite(order, "order", ndim=1)
    if sorted(places.tolist()) != list(range(k)):
        raise ValueError(f"order must hold every position from 0 to {k - 1} once, got {places.tolist()[:10]}")
    return places.astype(np.intp)


def _norm(collisions: FloatArray) -> Any:
    from matplotlib.colors import PowerNorm

    largest = float(collisions.max())
    return PowerNorm(BEND, 0.0, largest if largest > 0 else 1.0, clip=True)  # any scale will do where nothing collides


def _bar_ticks(largest: float) -> list[float]:
    """Ticks below the largest rate that are not too close to each other, and the largest itself (two digits)."""
    largest = largest if largest > 0 else 1.0
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
