"""The rows to look at: posteriors, what the row holds, and a picture where the data are pictures."""

from __future__ import annotations

import base64
import io
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope.applications.ambiguity import CLEAR, SUSPECT, ambiguous
from collidescope.show.source import Source

#: Rows shown, of each kind.
AMBIGUOUS, SUSPECTS = 12, 8
#: Classes with a bar of their own in a row; posteriors below the smallest are left out.
BARS, SMALLEST = 5, 0.01
#: Columns of a row that are shown, and the characters of a value.
COLUMNS, CHARACTERS = 12, 80
#: Pictures are thinned until no side is longer than this (pixels).
LARGEST_SIDE = 128
#: Grey, RGB, RGBA.
CHANNELS = (1, 3, 4)

ImageShape = tuple[int, ...]


def rows_to_look_at(
    source: Source, names: list[str], X: Any, rows: Any, image_shape: Any, feature_names: list[str] | None
) -> dict[str, Any] | None:
    """The most ambiguous rows and those whose label looks wrong; None where no posteriors are known."""
    shape = check_image_shape(image_shape, X)
    n = source.n_given
    if rows is not None:
        if not hasattr(rows, "iloc"):
            raise ValueError(f"rows must be a table (DataFrame) to show, got {type(rows).__name__}")
        if n is not None and len(rows) != n:
            raise ValueError(f"rows must have one row for each of the {n} rows of source, got {len(rows)}")
    if source.posteriors is None or source.rows is None:
        return None
    K = source.matrix.n_classes
    P, classes = source.posteriors, np.arange(K)
    codes = source.codes
    found = ambiguous(P, y=codes, classes=classes)
    kinds = found["kind"].to_numpy()
    suspects = np.zeros(0, dtype=np.intp)
    if codes is not None:
        ranked = ambiguous(P, y=codes, classes=classes, by="label")
        suspects = ranked["index"].to_numpy()[ranked["kind"].to_numpy() == "suspect label"][:SUSPECTS]
    unclear = found["index"].to_numpy()[kinds != "clear"][:AMBIGUOUS]

    def shown(chosen: IntArray) -> list[dict[str, Any]]:
        places = source.rows[chosen] if source.rows is not None else chosen
        pictures = _pictures(X, places, shape)
        values, left = _values(rows if rows is not None else None if shape is not None else X, places, feature_names)
        entries: list[dict[str, Any]] = []
        for at, (row, place) in enumerate(zip(chosen.tolist(), places.tolist(), strict=True)):
            label = None if codes is None else int(codes[row])
            entry = {"index": place, "label": None if label is None else names[label], "image": pictures[at]}
            entry |= {"posterior": _bars(P[row], names, label), "values": values[at], "columns_left": left}
            entries.append(entry)
        return entries

    return {
        "n_rows": len(P),
        "n_ambiguous": int((kinds == "ambiguous").sum()),
        "n_suspect": int((kinds == "suspect label").sum()),
        "expected_suspect": expected_suspects(P),
        "fresh": source.fresh,
        "rows": shown(unclear),
        "suspects": shown(suspects),
    }


def expected_suspects(P: FloatArray) -> float:
    """How many labels would look wrong if every one were drawn from its posterior: those are nobody's mistake.

    >>> round(expected_suspects(np.array([[0.95, 0.05]] * 100)), 1)
    5.0
    """
    clear = P.max(axis=1, keepdims=True) >= CLEAR
    return float(P.sum(where=clear & (P <= SUSPECT)))


def _bars(p: FloatArray, names: list[str], label: int | None) -> list[dict[str, Any]]:
    """The likeliest classes, and the label whatever its posterior."""
    top = [k for k in np.argsort(-p, kind="stable")[:BARS].tolist() if p[k] >= SMALLEST]
    if label is not None and label not in top:
        top = [*top[: BARS - 1], label]
    return [{"class": names[k], "probability": float(p[k]), "is_label": k == label} for k in top]


def _values(table: Any, places: IntArray, feature_names: list[str] | None) -> tuple[list[list[list[str]]], int]:
    """[column, value as text] of the chosen rows, and the number of columns left out."""
    none: list[list[list[str]]] = [[] for _ in places]
    if table is None or len(places) == 0:
        return none, 0
    if hasattr(table, "iloc"):
        frame = table.to_frame() if table.ndim == 1 else table
        columns = [text(name) for name in frame.columns]
        # Row by row: a block of several would give numbers of different kinds one kind.
        cells = [[frame.iat[place, k] for k in range(min(len(columns), COLUMNS))] for place in places.tolist()]
    else:
        array = _take(table, places)
        if array.ndim > 2:
            return none, 0
        array = array.reshape(len(places), -1)
        named = feature_names is not None and len(feature_names) == array.shape[1]
        columns = feature_names if named and feature_names is not None else [f"x{k}" for k in range(array.shape[1])]
        cells = array[:, :COLUMNS].tolist()
    shown = [[[name, value_text(v)] for name, v in zip(columns, row, strict=False)] for row in cells]
    return shown, max(0, len(columns) - COLUMNS)


def _take(table: Any, places: IntArray) -> npt.NDArray[Any]:
    if hasattr(table, "iloc"):
        return np.asarray(table.iloc[places])
    if hasattr(table, "toarray"):
        return np.asarray(table[places].toarray())
    return np.asarray(table)[places] if not hasattr(table, "__getitem__") or isinstance(table, list) else table[places]


def text(value: Any) -> str:
    """``value`` as text that UTF-8 and JSON can hold: half characters (lone surrogates) become U+FFFD."""
    return str(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def value_text(value: Any) -> str:
    """A cell of a table, short.

    >>> value_text(0.30000000000000004), value_text(None), value_text(12)
    ('0.3', 'missing', '12')
    """
    if value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value):
        return "missing"
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    words = text(value)
    return words if len(words) <= CHARACTERS else words[: CHARACTERS - 1] + "…"


# ------------------------------------------------------------------------------------------------ pictures


def check_image_shape(image_shape: Any, X: Any) -> ImageShape | None:
    """``image_shape`` as a tuple that the rows of ``X`` fill; of rows that are arrays of that kind their own shape."""
    if image_shape is None:
        shape = tuple(int(side) for side in getattr(X, "shape", ())[1:])
        return shape if len(shape) in (2, 3) and _channels(shape) else None
    if X is None:
        raise ValueError(f"image_shape needs X, the rows that are images; got image_shape={image_shape!r} alone")
    try:
        shape = tuple(check.check_count(side, "image_shape") for side in image_shape)
    except TypeError:
        raise ValueError(f"image_shape must be a tuple such as (28, 28), got {image_shape!r}") from None
    if len(shape) not in (2, 3) or not _channels(shape):
        raise ValueError(
            f"image_shape must be (height, width), with 1, 3 or 4 channels before or behind, got {image_shape!r}"
        )
    wide = math.prod(getattr(X, "shape", np.shape(X))[1:])
    if math.prod(shape) != wide:
        raise ValueError(
            f"image_shape {shape} has {math.prod(shape)} pixels, and the rows of X have {wide} features: "
            f"they must be equal"
        )
    return shape


def _channels(shape: ImageShape) -> int:
    """Channels of an image of this shape; 0 where it is none."""
    if len(shape) == 2:
        return 1
    return next((side for side in (shape[2], shape[0]) if side in CHANNELS), 0)


def _pictures(X: Any, places: IntArray, shape: ImageShape | None) -> list[str | None]:
    if shape is None or X is None or len(places) == 0:
        return [None] * len(places)
    raw = _take(X, places)
    pixels = np.nan_to_num(np.asarray(raw, dtype=np.float64).reshape(len(places), *shape))
    if len(shape) == 2:
        pixels = pixels[..., None]
    elif shape[2] not in CHANNELS:  # channels first
        pixels = np.moveaxis(pixels, 1, -1)
    if raw.dtype != np.uint8:  # 0 stays black unless there are negative values; the brightest of these rows is white
        low = min(0.0, float(pixels.min()))
        high = float(pixels.max())
        pixels = (pixels - low) * (255 / (high - low) if high > low else 0.0)
    step = math.ceil(max(pixels.shape[1:3]) / LARGEST_SIDE)
    return [png_uri(np.rint(image[::step, ::step]).astype(np.uint8)) for image in pixels]


def png_uri(image: npt.NDArray[np.uint8]) -> str:
    """A picture (height × width × 1, 3 or 4 channels) as a PNG in a data URI."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError('pictures in the report need Pillow: pip install "collidescope[report]"') from error
    buffer = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[2] == 1 else image).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
