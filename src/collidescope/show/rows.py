"""What is known about rows: posteriors and labels of a :class:`Source`, and the rows to look at."""

from __future__ import annotations

import base64
import io
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from collidescope import _checks as check
from collidescope._checks import Array, FloatArray, Given, IntArray
from collidescope._rows import row_hashes
from collidescope.applications._inputs import (
    Record,
    check_matrix,
    row_posteriors,
    with_held_out,
)
from collidescope.applications.audit import ambiguous, suspects_by_chance
from collidescope.matrix import CollisionMatrix, largest_pairs
from collidescope.onestep import collision_matrix_from_posteriors

#: Channels of grey, RGB and RGBA pictures.
CHANNELS = (1, 3, 4)


@dataclass(frozen=True)
class Source:
    """A collision matrix and what is known about its rows."""

    matrix: CollisionMatrix
    #: (m, K), of the rows that were scored; their numbers among the ``n_given`` rows (folds may
    #: have been interrupted, rows of weight 0 are left out); class numbers of their labels.
    posteriors: FloatArray | None = None
    rows: IntArray | None = None
    codes: IntArray | None = None
    n_given: int | None = None
    #: Where the attributes came from.
    model: Any = None
    #: Were the posteriors asked of the model now, so that it may have trained on these rows?
    fresh: bool = False
    #: Group of every given row, where rows belong together.
    groups: Array | None = None

    @property
    def scored_groups(self) -> Array | None:
        """The groups of the rows that were scored."""
        return None if self.groups is None else self.groups[self.rows]


def resolve(source: Any, X: object, y: Given, groups: Given = None) -> Source:
    """The :class:`Source` meant by the arguments of :func:`~collidescope.summarise`, checked."""
    given = _length(X, "X")
    if isinstance(source, CollisionMatrix):
        return Source(source, n_given=given)
    fitted = hasattr(source, "collision_matrix_")
    nothing = isinstance(source, str | bytes | dict | type | None)
    if nothing or (hasattr(source, "fit") and not fitted):
        kind = type(source).__name__
        if isinstance(source, type):
            kind = f"the class {source.__name__}"
        elif hasattr(source, "shuffled_control"):
            raise ValueError(f"source must be fitted: call fit of this {kind} first")
        raise ValueError(
            "source must be a fitted CollisionClassifier, a CollisionMatrix or held-out "
            f"posteriors (n×K, with y), got {kind}: fit a CollisionClassifier, or pass "
            "crossfit_posteriors(classifier, X, y)"
        )
    found = _of_model(source, X, y) if fitted else _of_posteriors(source, y, groups)
    if groups is not None and found.n_given is not None:
        named = check.one_each(np.asarray(groups), found.n_given, "groups")
        found = replace(found, groups=named)
    if found.posteriors is not None:
        _length(X, "X", found.n_given)
    return found


def _of_posteriors(given: Any, y: Given, groups: Given) -> Source:
    if y is None:
        raise ValueError(
            "y is needed with posteriors, got None: rates with intervals take labels "
            "(without any pass collision_matrix_from_posteriors(P) as source)"
        )
    P, codes, classes = check.labelled_posteriors(given, y, name="source")
    cm = collision_matrix_from_posteriors(P, y, classes=classes, groups=groups)
    return Source(cm, P, np.arange(len(P)), codes, len(P))


def _of_model(model: Any, X: Any, y: Given) -> Source:
    """Held-out posteriors of the rows of the fit; of other rows those of the model."""
    cm = model.collision_matrix_
    check_matrix(cm)
    P = getattr(model, "posteriors_", None)
    can_predict = X is not None and hasattr(model, "predict_proba")
    fresh = can_predict and (P is None or _other_rows(model, X))
    if fresh:  # of rows of the fit among them the held-out ones all the same
        P, _ = with_held_out(model.predict_proba(X), model, X)
    if P is None:
        return Source(cm, n_given=_length(X, "X"), model=model)
    P = np.asarray(P)
    rows = np.flatnonzero(~np.isnan(P).any(axis=-1))
    kept = check.check_posteriors(P[rows], "the posteriors of source", cm.n_classes)
    codes = None
    if y is not None:
        labels = check.encode_labels(y, cm.classes)
        _length(labels, "y", len(P))
        codes = labels[rows]
    groups = None if fresh else getattr(model, "groups_", None)
    return Source(cm, kept, rows, codes, len(P), model, fresh, groups)


def _other_rows(model: Any, X: object) -> bool:
    """Is it known that these are not the rows that the model was fitted on, in their order?"""
    known = getattr(model, "row_hashes_", None)
    return known is not None and not np.array_equal(
        row_hashes(model._validate(X)), known
    )


def _length(table: object, name: str, n: int | None = None) -> int | None:
    """How many rows a table has, which must be ``n`` where given; None where there is no table."""
    if table is None:
        return None
    shape = getattr(table, "shape", None)  # sparse arrays have no length
    if shape is None and hasattr(table, "__len__"):
        shape = (len(table),)
    if not shape or isinstance(table, str):
        raise ValueError(f"{name} must be a table of rows, got {type(table).__name__}")
    length = int(shape[0])
    if n is not None and length != n:
        raise ValueError(
            f"{name} must hold the {n} rows that source has posteriors of, got "
            f"{length}: of a classifier pass source.predict_proba(X) for other rows"
        )
    return length


def rows_to_look_at(
    source: Source, names: list[str], X: object, rows: object, image_shape: Any
) -> Record | None:
    """The most ambiguous rows and those whose label looks wrong; None without posteriors."""
    shape = check_image_shape(image_shape, X)
    _length(rows, "rows", source.n_given)
    if source.posteriors is None:
        return None
    P = row_posteriors(source.posteriors, source.model)
    source = replace(source, posteriors=P)
    view = RowView(source, names, X, rows, shape)
    numbers = range(P.shape[1])
    codes = source.codes
    found = ambiguous(P, y=codes, classes=numbers)
    suspects = np.empty(0, dtype=np.intp)
    if codes is not None:
        ranked = ambiguous(P, y=codes, classes=numbers, by="label")
        suspects = ranked["index"][ranked["kind"] == "suspect label"].to_numpy()
    unclear = found["index"][found["kind"] != "clear"].to_numpy()
    return {
        "n_rows": len(P),
        "n_ambiguous": int((found["kind"] == "ambiguous").sum()),
        "n_suspect": len(suspects),
        "expected_suspect": suspects_by_chance(P),  # nobody's mistake
        "fresh": source.fresh,
        "rows": view.shown(unclear[:12]),
        "suspects": view.shown(suspects[:8]),
        "pairs": colliding_images(view),
    }


def colliding_images(
    view: RowView,
    most_pairs: int = 4,
    most_images: int = 4,
    least_probability: float = 0.1,
) -> list[Record]:
    """For the pairs that collide most, the images that could belong to either class."""
    P = view.source.posteriors
    if view.image_shape is None or P is None:
        return []
    joint = view.source.matrix.joint
    found = []
    for pair in zip(*largest_pairs(joint + joint.T, most_pairs), strict=True):
        of_both = P[:, pair].min(axis=1)
        likeliest = np.argsort(-of_both, kind="stable")[:most_images]
        chosen = likeliest[of_both[likeliest] >= least_probability]
        if len(chosen):
            classes = [view.names[k] for k in pair]
            found.append({"classes": classes, "rows": view.shown(chosen)})
    return found


@dataclass(frozen=True)
class RowView:
    """How a row is shown: its posterior, its values from ``rows`` or ``X``, or its picture."""

    source: Source
    names: list[str]
    X: Any
    rows: Any
    image_shape: tuple[int, ...] | None

    def shown(self, chosen: IntArray) -> list[Record]:
        """The chosen rows, by their numbers among those that have posteriors."""
        source = self.source
        assert source.posteriors is not None
        assert source.rows is not None
        places = source.rows[chosen]
        table = self.rows
        if table is None and self.image_shape is None:
            table = self.X
        values, left = _values(table, places, source.model)
        pictures = _pictures(self.X, places, self.image_shape)
        labels = [None] * len(chosen)
        if source.codes is not None:
            labels = source.codes[chosen].tolist()
        return [
            {
                "index": place,
                "label": None if label is None else self.names[label],
                "image": picture,
                "posterior": _bars(p, self.names, label),
                "values": shown,
                "columns_left": left,
            }
            for place, label, picture, p, shown in zip(
                places.tolist(),
                labels,
                pictures,
                source.posteriors[chosen],
                values,
                strict=True,
            )
        ]


def _bars(
    p: FloatArray,
    names: list[str],
    label: int | None,
    most: int = 5,
    smallest: float = 0.01,
) -> list[Record]:
    """The likeliest classes, and always the label."""
    likeliest = np.argsort(-p, kind="stable")[:most].tolist()
    top = [k for k in likeliest if p[k] >= smallest]
    if label is not None and label not in top:
        top = [*top[: most - 1], label]
    return [
        {
            "class": names[k],
            "probability": float(p[k]),
            "is_label": k == label,
        }
        for k in top
    ]


def _values(
    table: object, places: IntArray, model: object, most: int = 12
) -> tuple[list[list[list[str]]], int]:
    """[column, value as text] of the chosen rows, and the number of columns left out."""
    nothing: list[list[list[str]]] = [[] for _ in places]
    if table is None or not nothing:
        return nothing, 0
    chosen = _take(table, places)
    if chosen.ndim > 2 or chosen.size == 0:
        return nothing, 0
    if isinstance(chosen, np.ndarray):
        chosen = _as_frame(chosen.reshape(len(places), -1), model)
    columns = [text(name) for name in chosen.columns]
    cells = chosen.iloc[:, :most].astype(object).to_numpy()  # each value keeps its type
    shown = [
        [[name, value_text(value)] for name, value in zip(columns, row, strict=False)]
        for row in cells.tolist()
    ]
    return shown, max(0, len(columns) - most)


def _as_frame(values: Array, model: object) -> pd.DataFrame:
    """Columns by the names that the model knows, or x0, x1, …"""
    names = [text(name) for name in getattr(model, "feature_names_in_", ())]
    if len(names) != values.shape[1]:
        names = [f"x{k}" for k in range(values.shape[1])]
    return pd.DataFrame(values, columns=names, dtype=object)


def _take(table: Any, places: IntArray) -> Any:
    if hasattr(table, "iloc"):
        return pd.DataFrame(table.iloc[places])
    if hasattr(table, "tocsr"):  # some sparse formats have no rows to take
        return table.tocsr()[places].toarray()
    if hasattr(table, "shape"):  # torch tensors too
        return np.asarray(table[places])
    return np.asarray(table)[places]


def text(value: object) -> str:
    """``value`` as text that UTF-8 and JSON can hold: lone surrogates become U+FFFD."""
    return str(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def value_text(value: Any, longest: int = 80) -> str:
    """A cell of a table, short."""
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return "missing"
    words = text(value)
    if isinstance(value, float | np.floating):
        words = f"{value:.6g}"
    return words if len(words) <= longest else words[: longest - 1] + "…"


def check_image_shape(image_shape: Any, X: object) -> tuple[int, ...] | None:
    """``image_shape`` as a tuple that the rows of ``X`` fill; by default their own sides."""
    whole = np.shape(X) if isinstance(X, list) else getattr(X, "shape", ())
    own = tuple(int(side) for side in whole[1:])
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
        raise ValueError(
            "image_shape must be (height, width), with 1, 3 or 4 channels before or "
            f"behind, got {image_shape!r}"
        )
    if math.prod(shape) != math.prod(own):
        raise ValueError(
            f"image_shape {shape} has {math.prod(shape)} pixels, and the rows of X have "
            f"{math.prod(own)} features: they must be equal"
        )
    return shape


def _is_image(shape: tuple[int, ...]) -> bool:
    if len(shape) == 3:
        return shape[2] in CHANNELS or shape[0] in CHANNELS
    return len(shape) == 2


def _pictures(
    X: object, places: IntArray, shape: tuple[int, ...] | None, largest_side: int = 128
) -> list[str | None]:
    """PNGs as data: URIs, thinned until no side is longer than ``largest_side`` pixels."""
    if shape is None or X is None or len(places) == 0:
        return [None] * len(places)
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            'pictures in the report need Pillow: pip install "collidescope[report]"'
        ) from error
    pixels = _grey_levels(_take(X, places), shape)
    step = math.ceil(max(pixels.shape[1:3]) / largest_side)
    uris: list[str | None] = []
    for picture in pixels[:, ::step, ::step]:
        if picture.shape[2:] == (1,):
            picture = picture[..., 0]
        buffer = io.BytesIO()
        Image.fromarray(picture).save(buffer, "PNG")
        encoded = base64.b64encode(buffer.getvalue()).decode()
        uris.append(f"data:image/png;base64,{encoded}")
    return uris


def _grey_levels(rows: Array, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """Rows as pictures with values from 0 to 255, channels last."""
    values = np.asarray(rows, dtype=np.float64).reshape(len(rows), *shape)
    pixels = np.nan_to_num(values)
    if len(shape) == 3 and shape[2] not in CHANNELS:  # channels first
        pixels = np.moveaxis(pixels, 1, -1)
    if rows.dtype != np.uint8:
        # 0 stays black unless there are negative values; the brightest of these rows is white.
        pixels = pixels - min(0.0, float(pixels.min()))
        highest = float(pixels.max())
        if highest > 0:
            pixels = pixels * (255 / highest)
    return np.rint(pixels).astype(np.uint8)
