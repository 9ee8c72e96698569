"""What is known about the rows: held-out posteriors and labels of a :class:`Source`, and the rows to look at."""

from __future__ import annotations

import base64
import io
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope._rows import row_hashes
from collidescope.applications._inputs import check_matrix, scored
from collidescope.applications.audit import CLEAR, SUSPECT, ambiguous
from collidescope.matrix import CollisionMatrix
from collidescope.onestep import collision_matrix_from_posteriors

#: Rows shown, of each kind.
AMBIGUOUS, SUSPECTS = 12, 8
#: Classes with a bar of their own in a row; posteriors below the smallest are left out.
BARS, SMALLEST = 5, 0.01
#: Columns of a row that are shown, and the characters of a value.
COLUMNS, CHARACTERS = 12, 80
#: Pictures are thinned until no side is longer than this (pixels); channels of grey, RGB and RGBA.
LARGEST_SIDE, CHANNELS = 128, (1, 3, 4)
WANTED = "a fitted CollisionClassifier, a CollisionMatrix or held-out posteriors (n×K, with y)"


@dataclass(frozen=True)
class Source:
    """A collision matrix and what is known about its rows."""

    matrix: CollisionMatrix
    #: (m, K), of the rows that were scored; their numbers among the ``n_given`` rows (folds may have been interrupted,
    #: rows of weight 0 are left out); class numbers of their labels.
    posteriors: FloatArray | None = None
    rows: IntArray | None = None
    codes: IntArray | None = None
    n_given: int | None = None
    #: Where the attributes came from.
    model: Any = None
    #: Were the posteriors asked of the model now, so that nothing says that it did not train on these rows?
    fresh: bool = False


def resolve(source: Any, X: Any, y: npt.ArrayLike | None) -> Source:
    """The :class:`Source` meant by the arguments of :func:`~collidescope.summarise`, with every check."""
    given = _length(X, "X")
    if isinstance(source, CollisionMatrix):
        return Source(source, n_given=given)
    fitted = hasattr(source, "collision_matrix_")
    if isinstance(source, str | bytes | dict | type | None) or (
        hasattr(source, "fit") and not fitted
    ):
        kind = f"the class {source.__name__}" if isinstance(source, type) else type(source).__name__
        hint = "fit a CollisionClassifier, or pass crossfit_posteriors(classifier, X, y)"
        raise ValueError(f"source must be {WANTED}, got {kind}: {hint}")
    if not fitted:
        if y is None:
            hint = "rates with intervals take labels (without any pass collision_matrix_from_posteriors(P) as source)"
            raise ValueError(f"y is needed with posteriors, got None: {hint}")
        P, codes, classes = check.labelled_posteriors(source, y, name="source")
        found = Source(
            collision_matrix_from_posteriors(P, y, classes=classes),
            P,
            np.arange(len(P)),
            codes,
            len(P),
        )
    else:
        cm, held_out = source.collision_matrix_, getattr(source, "posteriors_", None)
        check_matrix(cm)
        fresh = (
            X is not None
            and hasattr(source, "predict_proba")
            and (held_out is None or _other_rows(source, X))
        )
        if held_out is None and not fresh:
            return Source(cm, n_given=given, model=source)
        if (
            held_out is not None and fresh
        ):  # of rows of the fit among them the held-out ones all the same
            held_out, *_ = scored(source, X, None, None, "source")
        P = np.asarray(source.predict_proba(X) if held_out is None else held_out)
        rows = np.flatnonzero(~np.isnan(P).any(axis=-1))
        kept = check.check_posteriors(P[rows], "the posteriors of source", cm.n_classes)
        labels = None if y is None else check.encode_labels(y, cm.classes)
        _length(labels, "y", len(P))
        found = Source(
            cm, kept, rows, None if labels is None else labels[rows], len(P), source, fresh
        )
    _length(X, "X", len(P))
    return found


def _other_rows(model: Any, X: Any) -> bool:
    """Is it known that these are not the rows that the model was fitted on, in their order?"""
    known = getattr(model, "row_hashes_", None)
    return known is not None and not np.array_equal(row_hashes(model._validate(X)), known)


def _length(table: Any, name: str, n: int | None = None) -> int | None:
    """How many rows a table has, which must be ``n`` where that is known; None where there is no table."""
    if table is None:
        return None
    shape = getattr(table, "shape", (len(table),) if hasattr(table, "__len__") else ())
    if not shape or isinstance(table, str):
        raise ValueError(f"{name} must be a table of rows, got {type(table).__name__}")
    if n is not None and shape[0] != n:
        hint = "of a classifier pass source.predict_proba(X) for other rows"
        raise ValueError(
            f"{name} must hold the {n} rows that source has posteriors of, got {shape[0]}: {hint}"
        )
    return int(shape[0])


def rows_to_look_at(
    source: Source, names: list[str], X: Any, rows: Any, image_shape: Any
) -> dict[str, Any] | None:
    """The most ambiguous rows and those whose label looks wrong; None where no posteriors are known."""
    shape = check_image_shape(image_shape, X)
    _length(rows, "rows", source.n_given)
    if source.posteriors is None or source.rows is None:
        return None
    P, codes, places = source.posteriors, source.codes, source.rows
    table = rows if rows is not None else None if shape is not None else X
    features = [text(name) for name in getattr(source.model, "feature_names_in_", ())]

    def shown(chosen: IntArray) -> list[dict[str, Any]]:
        values, left = _values(table, places[chosen], features)
        labels = [None if codes is None else int(codes[row]) for row in chosen]
        pictures = _pictures(X, places[chosen], shape)
        return [
            {
                "index": int(places[row]),
                "label": None if label is None else names[label],
                "image": picture,
            }
            | {"posterior": _bars(P[row], names, label), "values": cells, "columns_left": left}
            for row, label, picture, cells in zip(chosen, labels, pictures, values, strict=True)
        ]

    found = ambiguous(P, y=codes, classes=range(P.shape[1]))
    ranked = (
        found if codes is None else ambiguous(P, y=codes, classes=range(P.shape[1]), by="label")
    )
    suspects = ranked["index"][ranked["kind"] == "suspect label"]
    # If every label were drawn from its posterior this many would look wrong: those are nobody's mistake.
    by_chance = float(P.sum(where=(P.max(axis=1, keepdims=True) >= CLEAR) & (P <= SUSPECT)))
    return {
        "n_rows": len(P),
        "n_ambiguous": int((found["kind"] == "ambiguous").sum()),
        "n_suspect": len(suspects),
        "expected_suspect": by_chance,
        "fresh": source.fresh,
        "rows": shown(found["index"][found["kind"] != "clear"].to_numpy()[:AMBIGUOUS]),
        "suspects": shown(suspects.to_numpy()[:SUSPECTS]),
    }


def _bars(p: FloatArray, names: list[str], label: int | None) -> list[dict[str, Any]]:
    top = [k for k in np.argsort(-p, kind="stable")[:BARS].tolist() if p[k] >= SMALLEST]
    if label is not None and label not in top:
        top = [*top[: BARS - 1], label]
    return [{"class": names[k], "probability": float(p[k]), "is_label": k == label} for k in top]


def _values(table: Any, places: IntArray, features: list[str]) -> tuple[list[list[list[str]]], int]:
    """[column, value as text] of the chosen rows, and the number of columns left out."""
    chosen = pd.DataFrame() if table is None or len(places) == 0 else _take(table, places)
    if chosen.ndim > 2 or chosen.size == 0:
        return [[] for _ in places], 0
    if isinstance(chosen, np.ndarray):
        chosen = pd.DataFrame(chosen.reshape(len(places), -1), dtype=object)
        named = len(features) == chosen.shape[1]
        chosen.columns = features if named else [f"x{k}" for k in range(chosen.shape[1])]
    names = [text(name) for name in chosen.columns]
    cells = chosen.iloc[:, :COLUMNS].astype(object).to_numpy().tolist()  # each value keeps its type
    shown = [[[name, value_text(v)] for name, v in zip(names, row, strict=False)] for row in cells]
    return shown, max(0, len(names) - COLUMNS)


def _take(table: Any, places: IntArray) -> Any:
    if hasattr(table, "iloc"):
        return pd.DataFrame(table.iloc[places])
    taken = (table if hasattr(table, "shape") else np.asarray(table))[places]
    return np.asarray(taken.toarray() if hasattr(taken, "toarray") else taken)


def text(value: Any) -> str:
    """``value`` as text that UTF-8 and JSON can hold: half characters (lone surrogates) become U+FFFD."""
    return str(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def value_text(value: Any) -> str:
    """A cell of a table, short."""
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return "missing"
    words = f"{value:.6g}" if isinstance(value, float | np.floating) else text(value)
    return words if len(words) <= CHARACTERS else words[: CHARACTERS - 1] + "…"


def check_image_shape(image_shape: Any, X: Any) -> tuple[int, ...] | None:
    """``image_shape`` as a tuple that the rows of ``X`` fill; of rows that are arrays of that kind their own shape."""
    own = tuple(
        int(side) for side in getattr(X, "shape", np.shape(X) if isinstance(X, list) else ())[1:]
    )
    if image_shape is None:
        return own if _is_image(own) else None
    if X is None:
        raise ValueError(
            f"image_shape needs X, the rows that are images; got image_shape={image_shape!r} alone"
        )
    try:
        shape = tuple(check.check_count(side, "image_shape") for side in image_shape)
    except TypeError:
        raise ValueError(
            f"image_shape must be a tuple such as (28, 28), got {image_shape!r}"
        ) from None
    if not _is_image(shape):
        rest = f"with 1, 3 or 4 channels before or behind, got {image_shape!r}"
        raise ValueError(f"image_shape must be (height, width), {rest}")
    if math.prod(shape) != math.prod(own):
        rest = f"and the rows of X have {math.prod(own)} features: they must be equal"
        raise ValueError(f"image_shape {shape} has {math.prod(shape)} pixels, {rest}")
    return shape


def _is_image(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 or (len(shape) == 3 and (shape[2] in CHANNELS or shape[0] in CHANNELS))


def _pictures(X: Any, places: IntArray, shape: tuple[int, ...] | None) -> list[str | None]:
    """PNGs as data: URIs."""
    if shape is None or X is None or len(places) == 0:
        return [None] * len(places)
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            'pictures in the report need Pillow: pip install "collidescope[report]"'
        ) from error
    raw = np.asarray(_take(X, places))
    pixels = np.nan_to_num(np.asarray(raw, dtype=np.float64).reshape(len(places), *shape))
    if len(shape) == 3 and shape[2] not in CHANNELS:  # channels first
        pixels = np.moveaxis(pixels, 1, -1)
    if (
        raw.dtype != np.uint8
    ):  # 0 stays black unless there are negative values; the brightest of these rows is white
        low, high = min(0.0, float(pixels.min())), float(pixels.max())
        pixels = (pixels - low) * (255 / (high - low) if high > low else 0.0)
    step = math.ceil(max(pixels.shape[1:3]) / LARGEST_SIDE)
    uris: list[str | None] = []
    for image in np.rint(pixels[:, ::step, ::step]).astype(np.uint8):
        buffer = io.BytesIO()
        Image.fromarray(image[..., 0] if image.shape[2:] == (1,) else image).save(buffer, "PNG")
        uris.append("data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode())
    return uris
