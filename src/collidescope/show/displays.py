"""Displays in the manner of scikit-learn: ``from_…`` makes one from a result, ``plot`` draws it.

What was drawn stays in attributes that end in ``_``: ``ax_`` and ``figure_`` in all of them.
matplotlib is imported when something is drawn and not before. Any name stays readable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope._checks import Array, ArrayLike, FloatArray, Given, IntArray
from collidescope._text import READABLE, short
from collidescope.applications._inputs import Ends, Interval, Names, check_matrix
from collidescope.applications.consolidation import ConsolidationPlan
from collidescope.equations.merging import class_numbers, n_pairs
from collidescope.intervals import level_together
from collidescope.limit import Limit
from collidescope.matrix import CollisionMatrix
from collidescope.trust import limit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

Style = dict[str, Any]  #: options of matplotlib
INK, ACCENT, QUIET, NEUTRAL = "#1f2a44", "#c8442c", "#9aa5b8", "#e3e7ee"
#: Names are cut to so many characters, and left out rather than printed smaller (points).
LONGEST = 24
SMALLEST_FONT, LARGEST_FONT = 6.0, 10.0
#: Up to this many classes values are written into the heat map and classes keep their order.
FEW = 20
#: Off the diagonal a rate of 0.02 can matter while 0.9 stands on it: collisions have a scale of
#: their own, (rate / largest) ** BEND. On a logarithmic one, which has no zero, 0.02 and 0.1 look
#: alike.
BEND = 1 / 3
#: The continuation of a curve is drawn up to this many times the rows.
REACH = 100.0


class Display:
    """Axes and figure of what was drawn last."""

    ax_: Axes
    figure_: Figure | SubFigure

    def _axes(
        self, ax: Axes | None, size: Interval, layout: str = "constrained"
    ) -> Axes:
        """``ax``, or the axes of a new figure of ``size`` inches."""
        try:
            import matplotlib.pyplot as plt
            from matplotlib.axes import Axes
        except ImportError as error:
            raise ImportError(
                f"{type(self).__name__}.plot needs matplotlib: pip install "
                "collidescope[plot]"
            ) from error
        if ax is None:
            ax = plt.subplots(figsize=size, layout=layout)[1]
        elif not isinstance(ax, Axes):
            raise ValueError(
                f"ax must be one matplotlib Axes, got {type(ax).__name__} (of an array "
                "take one: axes[0])"
            )
        self.ax_ = ax
        self.figure_ = ax.figure
        return ax


def plain(name: object, longest: int = LONGEST) -> str:
    """``name`` as matplotlib prints it: no mathematics between dollars, on one line, short."""
    return short(name, longest).replace("$", r"\$")


def write_names(
    ax: Axes,
    side: Literal["x", "y"],
    places: ArrayLike,
    names: Sequence[Any],
    *,
    longest: int = LONGEST,
) -> None:
    """Class names along one side: as many as fit, as large as fits."""
    each = points(ax, side) / len(names)
    step = max(1, math.ceil(1.2 * SMALLEST_FONT / each))
    room = each * step
    size = float(np.clip(room / 1.2, SMALLEST_FONT, LARGEST_FONT))
    shown = np.asarray(places)[::step].tolist()
    texts = [plain(name, longest) for name in names[::step]]
    if side == "y":
        ax.yaxis.set_ticks(shown, texts, fontsize=size)
        return
    most_letters = max(len(text) for text in texts)
    rotation = 90 * (text_width(most_letters, size) > room)
    ax.xaxis.set_ticks(shown, texts, fontsize=size, rotation=rotation)


def text_width(letters: int, size: float) -> float:
    """About how many points a text takes: 0.62 of the font size for a character, on the average."""
    return 0.62 * letters * size


def points(ax: Axes, side: Literal["x", "y"], left_over: float = 0.8) -> float:
    """About how many points (1/72 inch) a side will have when labels have taken their share."""
    box = ax.get_window_extent()
    pixels = {"x": box.width, "y": box.height}[side]
    return max(1.0, left_over * pixels * 72 / float(ax.figure.dpi))


def tidy(ax: Axes, *, bars: bool = False) -> None:
    """Light grid behind, no frame on top and at the right; of horizontal ``bars`` no grid lines."""
    ax.grid(color=NEUTRAL)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    if bars:
        ax.grid(visible=False, axis="y")
        ax.tick_params(axis="y", length=0)


def error_style(**style: Any) -> Style:
    """What every ``Axes.errorbar`` has, and ``style``."""
    return {"capsize": 3, "markersize": 5, **style}


@dataclass(eq=False, repr=False)
class CollisionMatrixDisplay(Display):
    """S as a heat map (:meth:`plot`), and its largest collisions (:meth:`plot_pairs`).

    The diagonal is grey; collisions are coloured by the cube root of the rate, so that rare ones
    show too. What was drawn last is in ``im_``, ``text_``, ``colorbar_`` (or None) and
    ``errorbar_``.

    Parameters
    ----------
    matrix : array of shape (K, K)
    classes : K names, default 0 … K-1
    order : K positions, optional; the order in which classes are shown
    low, high : arrays of shape (K, K), optional
        Ends of the intervals of the entries, for :meth:`plot_pairs`; lower ends that hold for all
        pairs together, as in :meth:`CollisionMatrix.top_collisions`.

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

    matrix: ArrayLike
    _: KW_ONLY
    classes: Names = None
    order: Sequence[int] | IntArray | None = None
    low: Given = None
    high: Given = None

    @classmethod
    def from_matrix(
        cls, cm: CollisionMatrix, *, order: str | None = None, level: float = 0.95
    ) -> Self:
        """The display of a collision matrix, with intervals at ``level``.

        ``order`` is "given" (default up to 20 classes) or "cluster": classes that collide side by
        side.
        """
        check_matrix(cm)
        k = cm.n_classes
        if order is None:
            order = "given" if k <= FEW else "cluster"
        check.check_choice(order, ["given", "cluster"], "order")
        places = leaf_order(cm.joint) if order == "cluster" else None
        low, high = cm.interval(level) or (None, None)
        # Pairs are shown because they are large: lower ends allow for the choice among all pairs.
        together = cm.interval(level_together(level, n_pairs(k - 1)))
        if together is not None:
            low = together[0]
        return cls(cm.matrix, classes=cm.classes, order=places, low=low, high=high)

    @classmethod
    def from_estimator(
        cls, clf: object, *, order: str | None = None, level: float = 0.95
    ) -> Self:
        """The display of a fitted classifier's ``collision_matrix_``.

        Classes of ordered labels (``clf.class_order_``) are shown in their order by default.
        """
        cm = getattr(clf, "collision_matrix_", None)
        if cm is None:
            raise ValueError(
                f"clf must be a fitted CollisionClassifier, got {type(clf).__name__} "
                "without collision_matrix_: call fit first"
            )
        display = cls.from_matrix(cm, order=order, level=level)
        ordered = getattr(clf, "class_order_", None)
        if order is None and ordered is not None:
            display.order = class_numbers(cm.classes, [ordered], "class_order_")[0]
        return display

    def _checked(self) -> tuple[FloatArray, Array]:
        S = check.check_square(self.matrix, "matrix")
        return S, check.check_classes(self.classes, len(S))

    def _in_order(self) -> tuple[FloatArray, Array]:
        S, names = self._checked()
        if self.order is None:
            return S, names
        order = check.check_finite(self.order, "order", ndim=1).astype(np.intp)
        listed = order.tolist()
        if sorted(listed) != list(range(len(S))):
            raise ValueError(
                f"order must hold every position from 0 to {len(S) - 1} once, got {listed[:10]}"
            )
        return S[np.ix_(order, order)], names[order]

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
        """Draw the heat map; a new figure grows with the number of classes.

        ``include_values`` writes the entries into the cells (by default up to 20 classes) in
        ``values_format`` (by default ".3f" up to 10 classes, ".2f" beyond); ``cmap`` is a name or a
        Colormap, ``kw`` for ``Axes.imshow``.
        """
        S, names = self._in_order()
        k = len(S)
        side = float(np.clip(2.0 + 0.45 * k, 4.6, 12.0))
        ax = self._axes(ax, (side + 1.0, side), "compressed")
        largest = self._draw_cells(ax, S, cmap, kw)
        for axis in ("x", "y"):
            write_names(ax, axis, range(k), names.tolist())
        ax.tick_params(length=0 if k <= FEW else 2)
        ax.set(xlabel="seen again in", ylabel="seen in")
        if include_values is None:
            include_values = k <= FEW
        if values_format is None:
            values_format = ".3f" if k <= 10 else ".2f"
        self.text_: Array | None = None
        if include_values:
            self.text_ = self._write(S, values_format)
        self.colorbar_: Any = None
        if colorbar:
            self.colorbar_ = ax.figure.colorbar(
                self.im_, ax=ax, label="collision rate", fraction=0.05
            )
        if colorbar and "norm" not in kw:
            ticks = rate_ticks(largest)
            self.colorbar_.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
            self.colorbar_.minorticks_off()
        return self

    def _draw_cells(self, ax: Axes, S: FloatArray, cmap: Any, kw: Style) -> float:
        """The heat map itself; the largest collision."""
        import matplotlib
        from matplotlib.colors import PowerNorm

        own = np.eye(len(S), dtype=bool)
        # Any scale will do where nothing collides.
        largest = float(S[~own].max()) or 1.0
        colours = matplotlib.colormaps.get_cmap(cmap).with_extremes(bad=NEUTRAL)
        style: Style = {
            "norm": PowerNorm(BEND, 0.0, largest, clip=True),
            "interpolation": "nearest",
            **kw,
        }
        self.im_ = ax.imshow(np.ma.masked_array(S, own), cmap=colours, **style)
        return largest

    def plot_pairs(self, ax: Axes | None = None, *, n: int = 15, **kw: Any) -> Self:
        """Draw the ``n`` most colliding pairs: a dot per rate, a bar per interval.

        ``kw`` is for ``Axes.errorbar``.
        """
        check.check_count(n, "n")
        S, names = self._checked()
        top = CollisionMatrix(S).top_collisions(n)
        i = top["class"].to_numpy()
        j = top["other"].to_numpy()
        rate = top["rate"].to_numpy()
        # Axes of the caller cannot be made wider for long names.
        most = LONGEST if ax is None else (LONGEST - 3) // 2
        cut = [short(name, most) for name in names]
        labels = [f"{cut[a]} → {cut[b]}" for a, b in zip(i, j, strict=True)]
        longest = max(map(len, labels), default=0)
        # Long names take no width from the bars.
        width = 6.4 + 0.08 * max(longest - LONGEST, 0)
        height = float(np.clip(1.2 + 0.28 * len(i), 2.0, 14.0))
        ax = self._axes(ax, (width, height))
        low, high = self._ends(S)
        error = None
        if self.low is not None:
            error = [rate - low[i, j], high[i, j] - rate]
        places = np.arange(len(i))
        style = error_style(fmt="o", color=ACCENT, ecolor=INK) | kw
        self.errorbar_ = ax.errorbar(rate, places, xerr=error, **style)
        write_names(ax, "y", places, labels, longest=2 * LONGEST + 3)
        tidy(ax, bars=True)
        ax.set(
            ylim=(len(i) - 0.4, -0.6),
            xlabel="chance of being seen again in the other class",
        )
        ax.set_xlim(left=0)
        return self

    def _ends(self, S: FloatArray) -> Ends:
        """Ends of the intervals, or S itself."""
        low, high = (
            S if ends is None else check.check_square(ends, "low, high")
            for ends in (self.low, self.high)
        )
        shaped = low.shape == S.shape == high.shape
        if not shaped or ((low > S) | (high < S)).any():
            raise ValueError(
                "low must not be above matrix, nor high below it, and all must have "
                "one shape (swapped?)"
            )
        return low, high

    def _write(self, S: FloatArray, values_format: str) -> Array:
        """The entries in their cells, as large as fits."""
        words = [
            [plain(format(value, values_format)) for value in row] for row in S.tolist()
        ]
        longest = max(len(word) for row in words for word in row)
        room = min(points(self.ax_, "x"), points(self.ax_, "y")) / len(S)
        size = min(LARGEST_FONT, 0.9 * room / text_width(longest, 1.0))
        cells = np.ma.masked_array(S, np.eye(len(S), dtype=bool))
        ink = readable_ink(self.im_.to_rgba(cells)[..., :3])
        texts = np.empty(S.shape, dtype=object)
        for i, j in np.ndindex(S.shape):
            texts[i, j] = self.ax_.text(
                j,
                i,
                words[i][j],
                fontsize=size,
                ha="center",
                va="center",
                color=str(ink[i, j]),
                weight="bold" if i == j else "normal",
            )
        return texts


def readable_ink(rgb: FloatArray) -> Array:
    """White or dark, whichever stands out more from the ground (WCAG's relative luminance)."""
    curved = ((rgb + 0.055) / 1.055) ** 2.4
    linear = np.where(rgb <= 0.04045, rgb / 12.92, curved)
    luminance = linear @ [0.2126, 0.7152, 0.0722] + 0.05
    return np.where(1.05 / luminance > luminance / 0.0725, "white", INK)


def rate_ticks(largest: float, apart: float = 0.08) -> list[float]:
    """Where the scale of colours is labelled: ``apart`` is in parts of its length."""
    ticks = [float(f"{largest:.2g}")]
    for tick in (1.0, 0.7, 0.4, 0.2, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0001, 0.0):
        distance = (ticks[-1] / largest) ** BEND - (tick / largest) ** BEND
        if tick < largest and distance > apart:
            ticks.append(tick)
    return ticks


def leaf_order(affinity: FloatArray) -> IntArray:
    """Classes so that those of high affinity are neighbours: leaves of average linkage."""
    from scipy.cluster.hierarchy import leaves_list, linkage

    k = len(affinity)
    both = (affinity + affinity.T) / 2
    pairs = both[np.triu_indices(k, 1)]
    tree = linkage(pairs.max() - pairs, "average", optimal_ordering=True)
    return np.asarray(leaves_list(tree), dtype=np.intp)


def continuation(
    limit: Limit, level: float = 0.95, places: int = 25
) -> dict[str, FloatArray] | None:
    """Where the curve goes from its last size on: ``rows``, ``low``, ``middle``, ``high``.

    None if the curve cannot be continued.
    """
    if limit.state not in READABLE:
        return None
    rows = limit.curve["rows"].iloc[-1] * np.geomspace(1.0, REACH, places)
    low, middle, high = limit.continuation(rows, level)
    return {"rows": rows, "low": low, "middle": middle, "high": high}


@dataclass(eq=False, repr=False)
class LimitDisplay(Display):
    """PBER against the number of rows, its continuation as a band, and the range at the limit.

    They are in ``errorbar_``, ``band_`` (None where learning has hardly begun) and ``range_``.

    Parameters
    ----------
    limit : Limit
    level : float; of the band and the range

    Examples
    --------
    >>> from collidescope import Limit
    >>> limit = Limit(
    ...     [250, 500, 1000],
    ...     [0.4, 0.3, 0.25],
    ...     1e-5 * np.eye(3),
    ...     stderr=0.003,
    ...     n_rows=4000,
    ... )
    >>> LimitDisplay.from_limit(limit).plot().ax_.get_xticklabels()[-1].get_text()
    'unlimited'
    """

    limit: Limit
    _: KW_ONLY
    level: float = 0.95

    @classmethod
    def from_limit(cls, limit: Limit, *, level: float = 0.95) -> Self:
        """The display of a :class:`~collidescope.limit.Limit`, its range at ``level``."""
        if limit_of(limit) is not limit or limit is None:
            raise ValueError(
                f"limit must be a Limit (clf.limit_), got {type(limit).__name__}"
            )
        return cls(limit, level=level)

    @classmethod
    def from_estimator(cls, clf: object, *, level: float = 0.95) -> Self:
        """The display of a fitted classifier's ``limit_``."""
        limit = limit_of(clf)
        if limit is None:
            raise ValueError(
                f"clf must be fitted with limit=True, got {type(clf).__name__} without "
                "limit_"
            )
        return cls(limit, level=level)

    def plot(self, ax: Axes | None = None, **kw: Any) -> Self:
        """Draw the curve; ``kw`` is for its ``Axes.errorbar``."""
        curve = self.limit.curve[["rows", "pber", "pber_stderr"]]
        sizes, values, errors = curve.to_numpy(dtype=np.float64).T
        ax = self._axes(ax, (6.4, 3.8))
        path = continuation(self.limit, self.level)
        self.band_ = None
        if path is not None:
            rows = path["rows"]
            self.band_ = ax.fill_between(
                rows, path["low"], path["high"], color=ACCENT, alpha=0.18, lw=0
            )
            ax.plot(rows, path["middle"], color=ACCENT, linestyle="--", linewidth=1.2)
        style = error_style(fmt="o-", color=INK, ecolor=QUIET) | kw
        self.errorbar_ = ax.errorbar(sizes, values, yerr=errors, **style)
        edge = sizes[-1] * REACH * 2.0
        high = self._draw_range(ax, edge, dotted=path is not None)
        tidy(ax)
        ax.set_xscale("log")
        ax.minorticks_off()
        ax.set_xticks([*sizes, edge], [*(f"{n:,.0f}" for n in sizes), "unlimited"])
        ax.set(xlabel="rows", ylabel="inputs that would get another label")
        ax.set_ylim(0, 1.08 * max(values.max(), high))
        ax.yaxis.set_major_formatter(share_label)
        if path is None:
            ax.set_title(
                "no continuation: learning has hardly begun", fontsize="medium"
            )
        return self

    def _draw_range(self, ax: Axes, edge: float, dotted: bool) -> float:
        """What unlimited rows would leave, at the right edge; the high end."""
        low, high = self.limit.pber_interval(self.level)
        middle = self.limit.pber if dotted else (low + high) / 2
        self.range_ = ax.errorbar(
            [edge],
            [middle],
            yerr=[[middle - low], [high - middle]],
            fmt="o" if dotted else "none",
            color=ACCENT,
            ecolor=ACCENT,
            capsize=6,
            lw=2.5,
        )
        return high


def share_label(share: float, _: object = None) -> str:
    """A tick of an axis of shares."""
    return f"{share:.3g}" if share < 0.01 else f"{share:.0%}"


@dataclass(eq=False, repr=False)
class DendrogramDisplay(Display):
    """Which classes are merged in which order, what that removes of the PBER, where it stops.

    What scipy returned is in ``dendrogram_``, the dashed line, or None, in ``cut_``.

    Parameters
    ----------
    linkage : array of shape (K - 1, 4); as scipy writes it; heights are the PBER removed so far
    classes : K names, default 0 … K-1
    n_groups : int, optional; groups that are left at the dashed line, which is not drawn by default
    pber : float, optional; PBER before the first merge, for the label of the axis

    Examples
    --------
    >>> from collidescope import CollisionMatrix, consolidate
    >>> S = [
    ...     [0.7, 0.2, 0.1, 0.0],
    ...     [0.2, 0.8, 0.0, 0.0],
    ...     [0.1, 0.0, 0.6, 0.3],
    ...     [0.0, 0.0, 0.3, 0.7],
    ... ]
    >>> plan = consolidate(
    ...     CollisionMatrix(S, classes=["cat", "dog", "car", "van"]), n_groups=2
    ... )
    >>> display = DendrogramDisplay.from_plan(plan).plot()
    >>> [label.get_text() for label in display.ax_.get_yticklabels()]
    ['car', 'van', 'cat', 'dog']
    """

    linkage: ArrayLike
    _: KW_ONLY
    classes: Names = None
    n_groups: int | None = None
    pber: float | None = None

    @classmethod
    def from_plan(cls, plan: ConsolidationPlan) -> Self:
        """The tree of a plan made by :func:`~collidescope.consolidate`."""
        if not isinstance(plan, ConsolidationPlan):
            raise ValueError(
                f"plan must be what consolidate returned, got {type(plan).__name__}"
            )
        return cls(
            plan.linkage,
            classes=plan.source.classes,
            n_groups=plan.n_groups,
            pber=plan.source.pber,
        )

    def plot(self, ax: Axes | None = None, **kw: Any) -> Self:
        """Draw the tree from left to right; ``kw`` is for scipy's ``dendrogram``."""
        from scipy.cluster.hierarchy import dendrogram, is_valid_linkage

        Z = check.check_finite(self.linkage, "linkage", ndim=2)
        if not is_valid_linkage(Z):
            raise ValueError(
                "linkage must be what scipy's linkage returns, got another array of "
                f"shape {Z.shape}"
            )
        k = len(Z) + 1
        names = check.check_classes(self.classes, k)
        merged = 0
        if self.n_groups is not None:
            merged = k - check.check_count(self.n_groups, "n_groups")
        ax = self._axes(ax, (6.4, float(np.clip(1.2 + 0.24 * k, 2.4, 14.0))))
        options: Style = {
            "orientation": "right",
            "no_labels": True,
            "link_color_func": lambda cluster: (
                ACCENT if cluster - k < merged else QUIET
            ),
            **kw,
        }
        self.dendrogram_ = dendrogram(Z, ax=ax, **options)
        places = 5 + 10 * np.arange(k)  # as scipy has them: 5, 15, 25, …
        write_names(ax, "y", places, names[self.dendrogram_["leaves"]].tolist())
        tidy(ax, bars=True)
        removed = "PBER removed by merging"
        if self.pber is not None:
            removed += f" (of {self.pber:.3g})"
        ax.set_xlabel(removed)
        self.cut_ = None
        if 0 < merged < k - 1:
            between = (Z[merged - 1, 2] + Z[merged, 2]) / 2
            self.cut_ = ax.axvline(between, color=INK, linestyle="--", linewidth=1)
            ax.set_title(
                f"{self.n_groups} groups at the dashed line", fontsize="medium"
            )
        return self


@dataclass(eq=False, repr=False)
class PosteriorDisplay(Display):
    """The chance of each class for a few inputs: of more than 12 classes the 8 likeliest.

    ``axes_``, ``bars_`` and ``images_`` have an entry for each panel; ``ax_`` is the frame of all.

    Parameters
    ----------
    posteriors : array of shape (n, K)
    classes : K names, default 0 … K-1
    images : array of shape (n, height, width) or (n, height, width, 3 or 4), optional
        Shown above the bars.
    labels : n labels, optional; written above; the bar of the label is red

    Examples
    --------
    >>> display = PosteriorDisplay.from_posteriors(
    ...     [[0.7, 0.3], [0.1, 0.9]], classes=["cat", "dog"]
    ... ).plot()
    >>> [float(bar.get_width()) for bar in display.bars_[1]]
    [0.1, 0.9]
    """

    posteriors: ArrayLike
    _: KW_ONLY
    classes: Names = None
    images: Given = None
    labels: Given = None

    def __post_init__(self) -> None:
        P = check.check_posteriors(self.posteriors)
        self._names = check.check_classes(self.classes, P.shape[1])
        self._codes: list[int | None] = [None] * len(P)
        if self.labels is not None:
            codes = check.encode_labels(self.labels, self._names, "labels")
            check.check_same_length(P, codes, "P and labels")
            self._codes = codes.tolist()
        if self.images is not None:
            check_images(self.images, len(P))

    @classmethod
    def from_posteriors(
        cls,
        P: ArrayLike,
        classes: Names = None,
        images: Given = None,
        labels: Given = None,
    ) -> Self:
        """The display of the rows of ``P`` (see the class)."""
        return cls(P, classes=classes, images=images, labels=labels)

    def plot(self, ax: Axes | None = None, *, n_rows: int = 6, **kw: Any) -> Self:
        """Draw the first ``n_rows`` inputs side by side, in panels that divide ``ax``.

        ``kw`` is for ``Axes.barh``.
        """
        check.check_count(n_rows, "n_rows")
        P = np.asarray(self.posteriors)[:n_rows]
        n, k = P.shape
        every = k <= 12  # each class has a bar, else the likeliest
        shown = k if every else 8
        heights = [0.9 + 0.2 * shown]
        if self.images is not None:
            heights.insert(0, 1.6)
        ax = self._axes(ax, (1.0 + (1.7 if every else 2.5) * n, sum(heights)))
        grid = panels(ax, heights, n)
        self.axes_: list[Axes] = []
        self.bars_: list[Any] = []
        self.images_: list[Any] = []
        for i, p in enumerate(P):
            own = self._codes[i]
            bars = ax.figure.add_subplot(grid[len(heights) - 1, i])
            self.axes_.append(bars)
            order = np.arange(k)
            if not every:
                order = np.argsort(-p, kind="stable")[:shown]
            self._draw_bars(bars, p[order], order == own, kw)
            texts = [plain(name, 14) for name in self._names[order]]
            if i > 0 and every:  # the same as those at the left
                texts = [""] * shown
            bars.set_yticks(np.arange(shown), texts)
            top = bars
            if self.images is not None:
                top = ax.figure.add_subplot(grid[0, i])
                self.images_.append(
                    top.imshow(np.asarray(self.images)[i], cmap="gray_r")
                )
                top.set(xticks=[], yticks=[])
            if own is not None:
                label = plain(self._names[own], 12)
                top.set_title(f"labelled {label}", fontsize="medium")
        self.axes_[(n - 1) // 2].set_xlabel("chance of each class")
        return self

    def _draw_bars(
        self, ax: Axes, p: FloatArray, own: npt.NDArray[np.bool_], kw: Style
    ) -> None:
        """A bar for each class, that of the label red."""
        colours = np.where(own, ACCENT, QUIET)
        style: Style = {"color": colours.tolist(), **kw}
        self.bars_.append(ax.barh(np.arange(len(p)), p, **style))
        ax.set_xticks([0, 0.5, 1], ["0", "½", "1"])
        ax.set(xlim=(0, 1), ylim=(len(p) - 0.4, -0.6))
        tidy(ax, bars=True)


def panels(ax: Axes, heights: list[float], n: int) -> Any:
    """A grid of ``n`` columns in the place of ``ax``."""
    from matplotlib.gridspec import GridSpec

    ax.set_axis_off()
    place = ax.get_subplotspec()
    if place is None:
        box = ax.get_position()
        figure: Any = ax.figure
        whole = GridSpec(
            1, 1, figure, left=box.x0, right=box.x1, bottom=box.y0, top=box.y1
        )
        place = whole[0]
    return place.subgridspec(len(heights), n, height_ratios=heights)


def check_images(images: ArrayLike, n: int) -> None:
    """Refuse what is not ``n`` pictures of one size."""
    try:
        pixels = np.asarray(images)
    except ValueError:
        raise ValueError(
            "images must be of one size, got different ones: scale them first"
        ) from None
    shape = pixels.shape
    pictures = len(shape) == 3 or (len(shape) == 4 and shape[3] in (3, 4))
    numbers = pixels.size > 0 and pixels.dtype.kind in "biuf"
    if not (pictures and shape[0] == n and numbers):
        raise ValueError(
            f"images must hold numbers in shape ({n}, height, width) or ({n}, height, "
            f"width, 3 or 4), got {pixels.dtype} in shape {shape} (flat rows? reshape them)"
        )
