"""Embeddings of a network that comes inside a wheel, beside pixels, by the same members.

The network reads lines of text (PP-OCRv4, in the wheel of ``rapidocr-onnxruntime``, which this study
needs beside ``onnxruntime``) and was not trained on MNIST. The embedding of a digit is the highest
probability of each character, of which the 256 that vary most are kept.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from collidescope import CollisionClassifier
from studies.markdown import again, table
from studies.real_data import load_mnist
from studies.store import Cell, Record, Result, Study, flat

MEMBERS = ("priors", "discriminant", "linear-tuned", "neighbours")


def cells(quick: bool) -> list[Cell]:
    rows = 100 if quick else 1_000
    kinds = ["pixels"] if quick else ["pixels", "embedding"]
    return [{"features": kind, "rows": rows, "seed": 0} for kind in kinds]


def reader() -> Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.float64]]:
    """A function from an image to the logarithms of the highest probability of each character."""
    import onnxruntime
    from PIL import Image

    found = importlib.util.find_spec("rapidocr_onnxruntime")
    if found is None or found.origin is None:
        raise ImportError(
            "this study needs rapidocr-onnxruntime: pip install rapidocr-onnxruntime"
        )
    path = Path(found.origin).parent / "models" / "ch_PP-OCRv4_rec_infer.onnx"
    session = onnxruntime.InferenceSession(path)
    name = session.get_inputs()[0].name

    def read(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
        side = 48  # as the network was trained
        large = Image.fromarray(255 - image).resize((side, side))
        grey = np.asarray(large, dtype=np.float32) / 127.5 - 1
        colours = np.repeat(grey[None, None], 3, axis=1)
        characters = session.run(None, {name: colours})[0][0]
        return np.log(characters.max(axis=0) + 1e-8)

    return read


def run(cell: Cell) -> Result:
    """PBER and range of the members on pixels or on the embedding."""
    images, digits = load_mnist()
    images = images[: cell["rows"]]
    y = digits[: cell["rows"]]
    started = time.perf_counter()
    features = images.reshape(len(images), -1) / 255
    if cell["features"] == "embedding":
        read = reader()
        every = np.stack([read(image) for image in images])
        kept = np.argsort(-every.var(axis=0))[:256]
        features = every[:, kept]
    encoded = time.perf_counter()
    clf = CollisionClassifier(MEMBERS, random_state=cell["seed"]).fit(features, y)
    return {
        "encoding": encoded - started,
        "fit": time.perf_counter() - encoded,
        "pber": clf.collision_matrix_.pber,
        "range": None if clf.limit_ is None else clf.limit_.pber_interval(),
    }


def text(records: list[Record]) -> str:
    rows = []
    for found in map(flat, records):
        low, high = found["range"]
        numbers = [f"{found['pber']:.3f}", f"{low:.3f} to {high:.3f}"]
        seconds = [f"{found['encoding']:.1f}", f"{found['fit']:.1f}"]
        rows.append([found["features"], f"{found['rows']:,}", *numbers, *seconds])
    head = ["features", "rows", "PBER now", "range", "seconds to encode", "to fit"]
    return f"""## Embeddings of a published network

MNIST; a network that reads text and comes inside a wheel, beside pixels: the same members.

{table(head, rows)}

{again("embeddings")}"""


STUDY = Study(
    "embeddings", "Embeddings of a published network beside pixels", cells, run, text
)
