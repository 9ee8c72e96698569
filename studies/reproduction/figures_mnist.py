"""Figures of the MNIST experiment, drawn from its records alone: ``results("mnist")`` of
:mod:`studies.store`."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from collidescope import CollisionMatrixDisplay
from studies.drawing import save
from studies.store import Record, Result

INK, ACCENT, QUIET = "#1f2a44", "#c8442c", "#9aa5b8"
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


def display_of(record: Record) -> CollisionMatrixDisplay:
    """S with its intervals."""
    result = record["result"]
    return CollisionMatrixDisplay(
        result["S"], classes=result["classes"], low=result["low"], high=result["high"]
    )


def draw_matrix(record: Record, path: Path) -> None:
    """S as a heat map."""
    save(display_of(record).plot(values_format=".4f").ax_.figure, path)


def draw_pairs(record: Record, path: Path) -> None:
    """The most colliding pairs with their 95% intervals."""
    save(display_of(record).plot_pairs().ax_.figure, path)


def draw_ambiguous(result: Result, path: Path) -> None:
    """Images with their held-out posteriors below: a clear one, the most even of each pair, the
    most uncertain."""
    images = _in_turn(result["images"])[: COLUMNS * BANDS]
    bands = -(-len(images) // COLUMNS)
    with matplotlib.rc_context(STYLE):
        figure = Figure(
            figsize=(1.7 * COLUMNS, 2.75 * bands + 0.2), layout="constrained"
        )
        axes = figure.subplots(
            2 * bands, COLUMNS, squeeze=False, height_ratios=[1.6, 1] * bands
        )
        for place in range(bands * COLUMNS):
            band, column = divmod(place, COLUMNS)
            upper, lower = axes[2 * band, column], axes[2 * band + 1, column]
            if place >= len(images):
                upper.set_axis_off()
                lower.set_axis_off()
                continue
            image = images[place]
            upper.imshow(
                pixels_of(image, result["shape"]), cmap="gray_r", vmin=0, vmax=255
            )
            upper.set_title(f"labelled {image['label']}", fontsize=10)
            upper.set_xticks([])
            upper.set_yticks([])
            _bars(lower, image, first=column == 0)
        figure.supxlabel(
            "held-out posterior of each digit; red is the label", fontsize=10
        )
        save(figure, path)


def pixels_of(image: dict[str, Any], shape: list[int]) -> npt.NDArray[np.uint8]:
    """Grey values of an image of a record."""
    return np.frombuffer(base64.b64decode(image["pixels"]), dtype=np.uint8).reshape(
        shape
    )


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
    # a single object: bars would double the size of an SVG
    axes.vlines(digits, 0, posterior, colours, linewidth=7)
    axes.set_xlim(-0.7, len(digits) - 0.3)
    axes.set_ylim(0, 1.05)
    axes.set_yticks([0, 0.5, 1] if first else [], ["0", "½", "1"] if first else [])
    axes.set_xticks(digits, digits, fontsize=9)
    axes.tick_params(length=0)
    axes.spines[["top", "right"]].set_visible(False)
