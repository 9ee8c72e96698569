"""Figures of the MNIST experiment, drawn from its records alone: ``results("mnist")`` of
:mod:`studies.store`."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from studies.drawing import save

INK, ACCENT, QUIET = "#1f2a44", "#c8442c", "#9aa5b8"
#: Rates below this (in per cent) share the lightest colour and are written as 0 when they round to
#: it.
LEAST = 0.01
#: Columns and bands of the figure of images.
COLUMNS, BANDS = 7, 2
STYLE = {
    "font.size": 10,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def draw_matrix(record: dict[str, Any], path: str | Path, correction: str = "prior") -> None:
    """S as a heat map in per cent, the collisions on a logarithmic scale of colour.

    A record of the pair-wise model holds two: ``correction`` is "prior" or "none".
    """
    result = record["result"]
    S = 100 * np.array(
        result["corrections"][correction]["S"] if "corrections" in result else result["S"]
    )
    K, classes = len(S), result["classes"]
    own = np.eye(K, dtype=bool)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 6.4), layout="compressed")
        axes = figure.subplots()
        norm = LogNorm(LEAST, max(S[~own].max(), 100 * LEAST))
        shown = np.ma.masked_array(np.maximum(S, LEAST), own)
        colours = matplotlib.colormaps["OrRd"].with_extremes(bad="#eceff4")
        heat = axes.imshow(shown, cmap=colours, norm=norm)
        for i, j in np.ndindex(K, K):
            dark = not own[i, j] and norm(max(S[i, j], LEAST)) > 0.65
            text = f"{S[i, j]:.1f}" if own[i, j] else _percent(S[i, j])
            weight = "bold" if own[i, j] else "normal"
            axes.text(
                j,
                i,
                text,
                ha="center",
                va="center",
                fontsize=9,
                color="white" if dark else INK,
                weight=weight,
            )
        axes.set_xticks(range(K), classes)
        axes.set_yticks(range(K), classes)
        axes.tick_params(length=0)
        axes.set_xlabel("digit meant when the same drawing is seen again")
        axes.set_ylabel("digit that was meant")
        axes.set_title("Collision matrix S (per cent)")
        bar = figure.colorbar(heat, ax=axes, shrink=0.8, extend="min")
        ticks = [
            tick for tick in (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30) if norm.vmin <= tick <= norm.vmax
        ]
        bar.set_ticks(ticks, labels=[f"{tick:g} %" for tick in ticks], minor=False)
        bar.ax.minorticks_off()
        save(figure, Path(path))


def draw_ambiguous(record: dict[str, Any], path: str | Path) -> None:
    """Images with their held-out posteriors below: a clear one, the most even of each pair, the
    most uncertain."""
    result = record["result"]
    images = _in_turn(result["images"])[: COLUMNS * BANDS]
    bands = -(-len(images) // COLUMNS)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(1.7 * COLUMNS, 2.75 * bands + 0.2), layout="constrained")
        axes = figure.subplots(2 * bands, COLUMNS, squeeze=False, height_ratios=[1.6, 1] * bands)
        for place in range(bands * COLUMNS):
            band, column = divmod(place, COLUMNS)
            upper, lower = axes[2 * band, column], axes[2 * band + 1, column]
            if place >= len(images):
                upper.set_axis_off()
                lower.set_axis_off()
                continue
            image = images[place]
            upper.imshow(pixels_of(image, result["shape"]), cmap="gray_r", vmin=0, vmax=255)
            upper.set_title(f"labelled {image['label']}", fontsize=10)
            upper.set_xticks([])
            upper.set_yticks([])
            _bars(lower, image, first=column == 0)
        figure.supxlabel("held-out posterior of each digit; red is the label", fontsize=10)
        save(figure, Path(path))


def draw_pairs(record: dict[str, Any], path: str | Path) -> None:
    """The most colliding pairs with their 95 % intervals, largest on top."""
    top = record["result"]["top"]
    rate, low, high = (
        100 * np.array([pair[name] for pair in top], dtype=float)
        for name in ("rate", "low", "high")
    )
    place = np.arange(len(top))[::-1]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 0.36 * len(top) + 1.1), layout="constrained")
        axes = figure.subplots()
        spread = np.nan_to_num([rate - low, high - rate]).clip(min=0)
        axes.errorbar(
            rate, place, xerr=spread, fmt="o", color=ACCENT, ecolor=INK, capsize=3, markersize=6
        )
        axes.set_yticks(place, [f"{pair['class']} seen again as {pair['other']}" for pair in top])
        axes.set_xlim(left=0)
        axes.set_ylim(-0.6, len(top) - 0.4)
        axes.set_xlabel("chance S (per cent), with 95 % interval")
        axes.grid(axis="x", color="#e3e7ee")
        axes.set_axisbelow(True)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        save(figure, Path(path))


def pixels_of(image: dict[str, Any], shape: list[int]) -> npt.NDArray[np.uint8]:
    """Grey values of an image of a record."""
    return np.frombuffer(base64.b64decode(image["pixels"]), dtype=np.uint8).reshape(shape)


def _in_turn(images: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The clear image, one of every pair, the uncertain ones, then what is left of the pairs."""
    clear = [image for image in images if image["why"] == "clear"]
    uncertain = [image for image in images if image["why"] == "entropy"]
    pairs = [image for image in images if image not in clear and image not in uncertain]
    firsts = list({image["why"]: image for image in reversed(pairs)}.values())[::-1]
    rest = [image for image in pairs if image not in firsts]
    return [*clear, *firsts, *uncertain, *rest]


def _bars(axes: Any, image: dict[str, Any], first: bool) -> None:
    posterior = image["posterior"]
    digits = np.arange(len(posterior))
    colours = [ACCENT if digit == image["label"] else QUIET for digit in digits]
    axes.vlines(
        digits, 0, posterior, colours, linewidth=7
    )  # a single object: bars would double the size of an SVG
    axes.set_xlim(-0.7, len(digits) - 0.3)
    axes.set_ylim(0, 1.05)
    axes.set_yticks([0, 0.5, 1] if first else [], ["0", "½", "1"] if first else [])
    axes.set_xticks(digits, digits, fontsize=9)
    axes.tick_params(length=0)
    axes.spines[["top", "right"]].set_visible(False)


def _percent(value: float) -> str:
    return "0" if value < LEAST / 2 else f"{value:.2f}" if value < 10 else f"{value:.1f}"
