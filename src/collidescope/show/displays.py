"""Displays in the manner of scikit-learn: ``from_…`` makes one from a result, ``plot`` draws it on ``ax`` or a new one.

What was drawn stays in attributes that end in ``_``: ``ax_`` and ``figure_`` in all of them. matplotlib is imported
when something is drawn and not before. Names stay readable whatever they hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope._text import READABLE, short
from collidescope.applications._inputs import Names, check_matrix
from collidescope.applications.consolidation import ConsolidationPlan
from collidescope.limit import Limit
from collidescope.matrix import CollisionMatrix
from collidescope.trust import limit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

INK, ACCENT, QUIET, NEUTRAL = "#1f2a44", "#c8442c", "#9aa5b8", "#e3e7ee"
#: Longer names are cut; names are left out rather than printed smaller than this (points).
LONGEST, SMALLEST_FONT, LARGEST_FONT = 24, 6.0, 10.0
#: Axes shrink when labels and a colour bar take their share; names are placed as if this much were left.
LEFT_OVER = 0.8
#: Width of a character in units of the font size, on the average.
CHARACTER = 0.62
#: Up to this many classes values are written into the heat map and classes keep their order; with three decimals.
FEW, THREE_DECIMALS = 20, 10
#: Off the diagonal a rate of 0.02 can matter while 0.9 stands on it: collisions have a scale of their own, (rate /
#: largest) ** BEND. On a logarithmic one, which has no zero, rates of 0.02 and 0.1 look alike.
BEND = 1 / 3
#: Where the scale of colours is labelled, and how close to each other (in parts of its length).
TICKS, APART = (1, 0.7, 0.4, 0.2, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0001, 0), 0.08
#: The continuation of a curve is drawn up to this many times the rows, at so many places.
REACH, PLACES = 100.0, 25
#: Up to this many classes every input has a bar for each; with more, bars for its most likely ones.
ALL_BARS, MOST_LIKELY = 12, 8

#: Of the marks and bars of every ``Axes.errorbar``.
DOTS: dict[str, Any] = {"capsize": 3, "markersize": 5}


class Display:
    """Axes and figure of what was drawn last."""

    ax_: Axes
    figure_: Figure | SubFigure

    def _axes(
        self, ax: Axes | None, size: tuple[float, float], layout: Any = "constrained"
    ) -> Axes:
        """``ax``, or the axes of a new figure of ``size`` inches."""
        try:
            import matplotlib.pyplot as plt
            from matplotlib.axes import Axes
        except ImportError as error:
            name = type(self).__name__
            raise ImportError(
                f"{name}.plot needs matplotlib: pip install collidescope[plot]"
            ) from error
        if ax is None:
            ax = plt.subplots(figsize=size, layout=layout)[1]
        elif not isinstance(ax, Axes):
            raise ValueError(
                f"ax must be one matplotlib Axes, got {type(ax).__name__} (of an array take one: axes[0])"
            )
        self.ax_, self.figure_ = ax, ax.figure
        return ax


def plain(name: Any, longest: int = LONGEST) -> str:
    """``name`` as text that matplotlib prints as it is: no mathematics between dollars, on one line, not too long."""
    return short(name, longest).replace("$", r"\$")


def write_names(
    ax: Axes, side: Literal["x", "y"], places: npt.ArrayLike, names: Sequence[Any]
) -> None:
    """Class names along one side: as many as fit, as large as fits."""
    each = points(ax, side) / len(names)
    step = max(1, math.ceil(1.2 * SMALLEST_FONT / each))
    size = float(np.clip(each * step / 1.2, SMALLEST_FONT, LARGEST_FONT))
    texts = [plain(name) for name in names][::step]
    upright = side == "x" and max(map(len, texts)) * CHARACTER * size > each * step
    axis = ax.xaxis if side == "x" else ax.yaxis
    axis.set_ticks(
        np.asarray(places)[::step].tolist(), texts, fontsize=size, rotation=90 if upright else 0
    )


def points(ax: Axes, side: Literal["x", "y"]) -> float:
    """About how many points (1/72 inch) a side of the axes will have."""
    box = ax.get_window_extent()
    return max(
        1.0, LEFT_OVER * (box.width if side == "x" else box.height) * 72 / float(ax.figure.dpi)
    )


def tidy(ax: Axes, *, bars: bool = False) -> None:
    """Light grid behind, no frame on top and at the right; of horizontal ``bars`` no ticks and no grid at the left."""
    ax.grid(color=NEUTRAL, axis="x" if bars else "both")
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    if bars:
        ax.tick_params(axis="y", length=0)


@dataclass(eq=False, repr=False)
class CollisionMatrixDisplay(Display):
    """S as a heat map (:meth:`plot`), and its largest collisions with their intervals (:meth:`plot_pairs`).

    The diagonal is grey; collisions are coloured by the cube root of the rate, so that rare ones show too. What was
    drawn last is in ``im_``, ``text_``, ``colorbar_`` (or None) and ``errorbar_``.

    Parameters
    ----------
    matrix : array of shape (K, K)
    classes : K names, default 0 … K-1
    order : K positions, optional; the order in which classes are shown
    low, high : arrays of shape (K, K), optional; ends of the intervals of the entries, for :meth:`plot_pairs`

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

    matrix: npt.ArrayLike
    _: KW_ONLY
    classes: Names = None
    order: Sequence[int] | IntArray | None = None
    low: npt.ArrayLike | None = None
    high: npt.ArrayLike | None = None

    @classmethod
    def from_matrix(
        cls, cm: CollisionMatrix, *, order: str | None = None, level: float = 0.95
    ) -> Self:
        """The display of a collision matrix, with intervals at ``level``.

        ``order`` is "given" (default up to 20 classes) or "cluster": classes that collide side by side.
        """
        check_matrix(cm)
        chosen = order or ("given" if cm.n_classes <= FEW else "cluster")
        check.check_choice(chosen, ["given", "cluster"], "order")
        low, high = cm.interval(level) or (None, None)
        places = leaf_order(cm.joint) if chosen == "cluster" else None
        return cls(cm.matrix, classes=cm.classes, order=places, low=low, high=high)

    def _checked(self) -> tuple[FloatArray, npt.NDArray[Any]]:
        S = check.check_square(self.matrix, "matrix")
        return S, check.check_classes(self.classes, len(S))

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

        ``include_values`` writes the entries into the cells (by default up to 20 classes) in ``values_format`` (by
        default ".3f" up to 10 classes, ".2f" beyond); ``cmap`` is a name or a Colormap, ``kw`` for ``Axes.imshow``.
        """
        S, names = self._checked()
        k = len(S)
        order = (
            np.arange(k)
            if self.order is None
            else check.check_finite(self.order, "order", ndim=1).astype(np.intp)
        )
        if sorted(order.tolist()) != list(range(k)):
            raise ValueError(
                f"order must hold every position from 0 to {k - 1} once, got {order.tolist()[:10]}"
            )
        S, names = S[np.ix_(order, order)], names[order]
        side = float(np.clip(2.0 + 0.45 * k, 4.6, 12.0))
        ax = self._axes(ax, (side + 1.0, side), "compressed")
        import matplotlib
        from matplotlib.colors import PowerNorm

        own = np.eye(k, dtype=bool)
        largest = float(S[~own].max()) or 1.0  # any scale will do where nothing collides
        colours = matplotlib.colormaps.get_cmap(cmap).with_extremes(bad=NEUTRAL)
        style: dict[str, Any] = {
            "norm": PowerNorm(BEND, 0.0, largest, clip=True),
            "interpolation": "nearest",
        }
        self.im_ = ax.imshow(np.ma.masked_array(S, own), cmap=colours, **(style | kw))
        for axis in ("x", "y"):
            write_names(ax, axis, range(k), names.tolist())
        ax.tick_params(length=0 if k <= FEW else 2)
        ax.set(xlabel="seen again in", ylabel="seen in")
        self.text_: npt.NDArray[Any] | None = None
        if k <= FEW if include_values is None else include_values:
            self.text_ = self._write(S, values_format or (".3f" if k <= THREE_DECIMALS else ".2f"))
        self.colorbar_: Any = None
        if colorbar:
            self.colorbar_ = ax.figure.colorbar(
                self.im_, ax=ax, label="collision rate", fraction=0.05
            )
        if colorbar and "norm" not in kw:
            ticks = [float(f"{largest:.2g}")]
            for tick in TICKS:
                if (
                    tick < largest
                    and (ticks[-1] / largest) ** BEND - (tick / largest) ** BEND > APART
                ):
                    ticks.append(float(tick))
            self.colorbar_.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
            self.colorbar_.minorticks_off()
        return self

    def plot_pairs(self, ax: Axes | None = None, *, n: int = 15, **kw: Any) -> Self:
        """Draw the ``n`` most colliding pairs: a dot per rate, a bar per interval; ``kw`` is for ``Axes.errorbar``."""
        check.check_count(n, "n")
        S, names = self._checked()
        low, high = (
            S if end is None else check.check_square(end, "low, high")
            for end in (self.low, self.high)
        )
        if low.shape != S.shape or high.shape != S.shape or (low > S).any() or (high < S).any():
            raise ValueError(
                "low must not be above matrix, nor high below it, and all must have one shape (swapped?)"
            )
        top = CollisionMatrix(S).top_collisions(n)
        i, j, rate = top["class"].to_numpy(), top["other"].to_numpy(), top["rate"].to_numpy()
        ax = self._axes(ax, (6.4, float(np.clip(1.2 + 0.28 * len(i), 2.0, 14.0))))
        style: dict[str, Any] = DOTS | {"fmt": "o", "color": ACCENT, "ecolor": INK}
        error = [rate - low[i, j], high[i, j] - rate] if self.low is not None else None
        self.errorbar_ = ax.errorbar(rate, np.arange(len(i)), xerr=error, **(style | kw))
        each = (LONGEST - 3) // 2
        arrows = [
            f"{short(a, each)} → {short(b, each)}" for a, b in zip(names[i], names[j], strict=True)
        ]
        write_names(ax, "y", np.arange(len(i)), arrows)
        tidy(ax, bars=True)
        ax.set(ylim=(len(i) - 0.4, -0.6), xlabel="chance of being seen again in the other class")
        ax.set_xlim(left=0)
        return self

    def _write(self, S: FloatArray, values_format: str) -> npt.NDArray[Any]:
        words = [[plain(format(value, values_format)) for value in row] for row in S.tolist()]
        room = min(points(self.ax_, "x"), points(self.ax_, "y")) / len(S)
        size = min(
            LARGEST_FONT, 0.9 * room / (CHARACTER * max(len(word) for row in words for word in row))
        )
        rgb = self.im_.to_rgba(np.ma.masked_array(S, np.eye(len(S), dtype=bool)))[..., :3]
        # White or dark, whichever stands out more from the colour of the cell (WCAG's relative luminance).
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        luminance = linear @ [0.2126, 0.7152, 0.0722] + 0.05
        ink = np.where(1.05 / luminance > luminance / 0.0725, "white", INK)
        texts = np.empty(S.shape, dtype=object)
        for i, j in np.ndindex(S.shape):
            style: dict[str, Any] = {
                "color": str(ink[i, j]),
                "weight": "bold" if i == j else "normal",
            }
            texts[i, j] = self.ax_.text(
                j, i, words[i][j], fontsize=size, ha="center", va="center", **style
            )
        return texts


def leaf_order(affinity: FloatArray) -> IntArray:
    """Classes so that those of high affinity are neighbours: leaves of average linkage, in their best order."""
    from scipy.cluster.hierarchy import leaves_list, linkage

    pairs = ((affinity + affinity.T) / 2)[np.triu_indices(len(affinity), 1)]
    return np.asarray(
        leaves_list(linkage(pairs.max() - pairs, "average", optimal_ordering=True)), dtype=np.intp
    )


def continuation(limit: Limit, level: float = 0.95) -> dict[str, FloatArray] | None:
    """Where the curve goes from its last size on: ``rows``, ``low``, ``middle``, ``high``; None if nobody can tell."""
    if limit.state not in READABLE:
        return None
    rows = limit.curve["rows"].iloc[-1] * np.geomspace(1.0, REACH, PLACES)
    return dict(
        zip(
            ("rows", "low", "middle", "high"), (rows, *limit.continuation(rows, level)), strict=True
        )
    )


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
    ...     [250, 500, 1000], [0.4, 0.3, 0.25], 1e-5 * np.eye(3), stderr=0.003, n_rows=4000
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
            raise ValueError(f"limit must be a Limit (clf.limit_), got {type(limit).__name__}")
        return cls(limit, level=level)

    @classmethod
    def from_estimator(cls, clf: Any, *, level: float = 0.95) -> Self:
        """The display of a fitted classifier's ``limit_``."""
        limit = limit_of(clf)
        if limit is None:
            raise ValueError(
                f"clf must be fitted with limit=True, got {type(clf).__name__} without limit_"
            )
        return cls(limit, level=level)

    def plot(self, ax: Axes | None = None, **kw: Any) -> Self:
        """Draw the curve; ``kw`` is for its ``Axes.errorbar``."""
        sizes, values, errors = (
            self.limit.curve[["rows", "pber", "pber_stderr"]].to_numpy(dtype=np.float64).T
        )
        (low, high), path = (
            self.limit.pber_interval(self.level),
            continuation(self.limit, self.level),
        )
        ax = self._axes(ax, (6.4, 3.8))
        self.band_ = None
        if path is not None:
            self.band_ = ax.fill_between(
                path["rows"], path["low"], path["high"], color=ACCENT, alpha=0.18, lw=0
            )
            ax.plot(path["rows"], path["middle"], color=ACCENT, linestyle="--", linewidth=1.2)
        style: dict[str, Any] = DOTS | {"fmt": "o-", "color": INK, "ecolor": QUIET}
        self.errorbar_ = ax.errorbar(sizes, values, yerr=errors, **(style | kw))
        edge, middle = (
            sizes[-1] * REACH * 2.0,
            (low + high) / 2 if path is None else self.limit.pber,
        )
        style = {
            "fmt": "none" if path is None else "o",
            "color": ACCENT,
            "ecolor": ACCENT,
            "capsize": 6,
            "lw": 2.5,
        }
        self.range_ = ax.errorbar([edge], [middle], yerr=[[middle - low], [high - middle]], **style)
        tidy(ax)
        ax.set_xscale("log")
        ax.minorticks_off()
        ax.set_xticks([*sizes, edge], [*(f"{n:,.0f}" for n in sizes), "unlimited"])
        ax.set(xlabel="rows", ylabel="inputs that would get another label")
        ax.set_ylim(0, 1.08 * max(values.max(), high))
        ax.yaxis.set_major_formatter(
            lambda share, _: f"{share:.3g}" if share < 0.01 else f"{share:.0%}"
        )
        ax.set_title(
            "no continuation: learning has hardly begun" if path is None else "", fontsize="medium"
        )
        return self


@dataclass(eq=False, repr=False)
class DendrogramDisplay(Display):
    """Which classes are merged, in which order, what each merge removes of the PBER, and where the plan stops.

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
    >>> S = [[0.7, 0.2, 0.1, 0.0], [0.2, 0.8, 0.0, 0.0], [0.1, 0.0, 0.6, 0.3], [0.0, 0.0, 0.3, 0.7]]
    >>> plan = consolidate(CollisionMatrix(S, classes=["cat", "dog", "car", "van"]), n_groups=2)
    >>> display = DendrogramDisplay.from_plan(plan).plot()
    >>> [label.get_text() for label in display.ax_.get_yticklabels()]
    ['car', 'van', 'cat', 'dog']
    """

    linkage: npt.ArrayLike
    _: KW_ONLY
    classes: Names = None
    n_groups: int | None = None
    pber: float | None = None

    @classmethod
    def from_plan(cls, plan: ConsolidationPlan) -> Self:
        """The tree of a plan made by :func:`~collidescope.consolidate` with ``method="greedy"``."""
        if not isinstance(plan, ConsolidationPlan):
            raise ValueError(f"plan must be what consolidate returned, got {type(plan).__name__}")
        if plan.linkage is None:
            raise ValueError(
                'plan has no linkage, for best groupings need not be nested: method="greedy" has one'
            )
        return cls(
            plan.linkage, classes=plan.source.classes, n_groups=plan.n_groups, pber=plan.source.pber
        )

    def plot(self, ax: Axes | None = None, **kw: Any) -> Self:
        """Draw the tree from left to right; ``kw`` is for :func:`scipy.cluster.hierarchy.dendrogram`."""
        from scipy.cluster.hierarchy import dendrogram, is_valid_linkage

        Z = check.check_finite(self.linkage, "linkage", ndim=2)
        if not is_valid_linkage(Z):
            raise ValueError(
                f"linkage must be what scipy's linkage returns, got another array of shape {Z.shape}"
            )
        k = len(Z) + 1
        names = check.check_classes(self.classes, k)
        merged = 0 if self.n_groups is None else k - check.check_count(self.n_groups, "n_groups")
        ax = self._axes(ax, (6.4, float(np.clip(1.2 + 0.24 * k, 2.4, 14.0))))
        options: dict[str, Any] = {"orientation": "right", "no_labels": True}
        options["link_color_func"] = lambda cluster: ACCENT if cluster - k < merged else QUIET
        self.dendrogram_ = dendrogram(Z, ax=ax, **(options | kw))
        # scipy puts leaves at 5, 15, 25, …
        write_names(ax, "y", 5 + 10 * np.arange(k), names[self.dendrogram_["leaves"]].tolist())
        tidy(ax, bars=True)
        ax.set_xlabel(
            "PBER removed by merging" + ("" if self.pber is None else f" (of {self.pber:.3g})")
        )
        self.cut_ = None
        if 0 < merged < k - 1:
            self.cut_ = ax.axvline(
                (Z[merged - 1, 2] + Z[merged, 2]) / 2, color=INK, linestyle="--", linewidth=1
            )
            ax.set_title(f"{self.n_groups} groups at the dashed line", fontsize="medium")
        return self


@dataclass(eq=False, repr=False)
class PosteriorDisplay(Display):
    """The chance of each class for a few inputs, a panel each: of more than 12 classes the 8 most likely ones.

    ``axes_``, ``bars_`` and ``images_`` have an entry for each panel; ``ax_`` is the frame of all.

    Parameters
    ----------
    posteriors : array of shape (n, K)
    classes : K names, default 0 … K-1
    images : array of shape (n, height, width) or (n, height, width, 3 or 4), optional; shown above the bars
    labels : n labels, optional; written above; the bar of the label is red

    Examples
    --------
    >>> display = PosteriorDisplay.from_posteriors(
    ...     [[0.7, 0.3], [0.1, 0.9]], classes=["cat", "dog"]
    ... ).plot()
    >>> [float(bar.get_width()) for bar in display.bars_[1]]
    [0.1, 0.9]
    """

    posteriors: npt.ArrayLike
    _: KW_ONLY
    classes: Names = None
    images: npt.ArrayLike | None = None
    labels: npt.ArrayLike | None = None

    @classmethod
    def from_posteriors(
        cls, P: npt.ArrayLike, classes: Any = None, images: Any = None, labels: Any = None
    ) -> Self:
        """The display of the rows of ``P``, with every argument checked (see the class)."""
        posteriors = check.check_posteriors(P)
        n, k = posteriors.shape
        names = check.check_classes(classes, k)
        if labels is not None:
            check.check_same_length(
                posteriors, check.encode_labels(labels, names, "labels"), "P and labels"
            )
        if images is not None:
            try:
                pixels = np.asarray(images)
            except ValueError:
                raise ValueError(
                    "images must be of one size, got different ones: scale them first"
                ) from None
            good = pixels.ndim == 3 or (pixels.ndim == 4 and pixels.shape[3] in (3, 4))
            if not good or len(pixels) != n or pixels.size == 0 or pixels.dtype.kind not in "biuf":
                wanted = f"({n}, height, width) or ({n}, height, width, 3 or 4)"
                seen = f"got {pixels.dtype} in shape {pixels.shape} (flat rows? reshape them)"
                raise ValueError(f"images must hold numbers in shape {wanted}, {seen}")
        return cls(posteriors, classes=names, images=images, labels=labels)

    def plot(self, ax: Axes | None = None, *, n_rows: int = 6, **kw: Any) -> Self:
        """Draw the first ``n_rows`` inputs side by side, in panels that divide ``ax``; ``kw`` is for ``Axes.barh``."""
        check.check_count(n_rows, "n_rows")
        checked = type(self).from_posteriors(
            self.posteriors, self.classes, self.images, self.labels
        )
        P, names = np.asarray(checked.posteriors)[:n_rows], np.asarray(checked.classes)
        n, k = P.shape
        codes = None if self.labels is None else check.encode_labels(self.labels, names, "labels")
        shown, width = (k, 1.7) if k <= ALL_BARS else (MOST_LIKELY, 2.5)
        heights = [*([] if self.images is None else [1.6]), 0.9 + 0.2 * shown]
        ax = self._axes(ax, (1.0 + width * n, sum(heights)))
        ax.set_axis_off()
        from matplotlib.gridspec import GridSpec

        box = ax.get_position()
        sides: Any = {
            "left": box.x0,
            "right": box.x1,
            "bottom": box.y0,
            "top": box.y1,
            "figure": ax.figure,
        }
        place = ax.get_subplotspec() or GridSpec(1, 1, **sides)[0]
        grid = place.subgridspec(len(heights), n, height_ratios=heights)
        self.axes_: list[Axes] = [
            ax.figure.add_subplot(grid[len(heights) - 1, i]) for i in range(n)
        ]
        self.bars_, self.images_ = list[Any](), list[Any]()
        for i, (p, bars) in enumerate(zip(P, self.axes_, strict=True)):
            top = bars
            if self.images is not None:
                top = ax.figure.add_subplot(grid[0, i])
                self.images_.append(top.imshow(np.asarray(self.images)[i], cmap="gray_r"))
                top.set(xticks=[], yticks=[])
            classes = np.arange(k) if k <= ALL_BARS else np.argsort(-p, kind="stable")[:shown]
            colours = [ACCENT if codes is not None and c == codes[i] else QUIET for c in classes]
            self.bars_.append(bars.barh(np.arange(shown), p[classes], **({"color": colours} | kw)))
            named = i == 0 or k > ALL_BARS
            bars.set_yticks(
                np.arange(shown), [plain(c, 14) for c in names[classes]] if named else [""] * shown
            )
            bars.set_xticks([0, 0.5, 1], ["0", "½", "1"])
            bars.set(xlim=(0, 1), ylim=(shown - 0.4, -0.6))
            tidy(bars, bars=True)
            if codes is not None:
                top.set_title(f"labelled {plain(names[codes[i]], 12)}", fontsize="medium")
        self.axes_[(n - 1) // 2].set_xlabel("chance of each class")
        return self
