"""What a billion rows and ImageNet would take: the tables of docs/scale.md, from cost formulas and recorded speeds.

Speeds come from the records in ``results``: ``scale-speed`` (this core), ``scale-growth`` and ``scale-parquet`` (rows a
second), ``scale-gpu-pairs`` and ``scale-gpu-streaming``, or, once it is there, ``scale-gpu``, which
``python -m benchmarks.scale_growth --part gpu`` writes on a machine with one: its ``results["speed"]`` are the fields
of ``Speed.measure("cuda")``, and ``results["images_per_second"]`` those of a ResNet-50 at 224 × 224 pixels in
``["training"]`` and ``["scoring"]``, where somebody has measured them.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks._record import load
from collidescope import Speed, predict_cost
from collidescope._words import duration, size
from collidescope.cost.stages import LIBRARIES
from experiments.markdown import table

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"

BILLION = 10**9
#: Features and classes of the billion rows; rows of the sample that a model learns from.
FEATURES, CLASSES, SAMPLE = 10, 10, 10**6
#: One network and a pass or two: so many rows leave nothing to repeat.
SETTINGS: dict[str, Any] = {"hidden_layer_sizes": (64,), "max_epochs": 2, "cv": 2, "batch_size": 8192}

#: ImageNet-1k as it is published: images, classes, bytes of its JPEG files.
IMAGES, IMAGE_CLASSES, IMAGE_BYTES = 1_281_167, 1_000, 1.38e11
#: A ResNet-50: operations of a pass (2 × 4.1e9 multiply-adds), features before its last layer, usual epochs.
PASS, IMAGE_FEATURES, IMAGE_EPOCHS = 8.2e9, 2_048, 90
IMAGE_FOLDS, PIXELS = 2, 3 * 224 * 224
#: Sums of K² numbers that a stream keeps.
SUMS = 6
#: Published for an NVIDIA H200: float32 operations and bytes of its memory a second, bytes of memory.
PEAK, BANDWIDTH, GPU_MEMORY = 67e12, 4.8e12, 141e9
#: Of the peak, or of a large product, what the training of convolutions reaches: an assumption until it is measured.
#: So is what an activation moves: twelve times the four bytes of its value, forward and back. Layers are launched by
#: the host.
REACHED, MOVED = 0.4, 12 * 4


def record(name: str) -> Any:
    stored = load(name)
    return None if stored is None else stored["results"]


def core() -> Speed:
    """One core, as recorded."""
    return Speed(**(record("scale-speed") or {}))


def gpu() -> tuple[Speed, str]:
    """An H200, and where its speed comes from: measured as a whole, in parts, or assumed."""
    host = core()
    measured = (record("scale-gpu") or {}).get("speed")
    if measured:
        return Speed(**measured), "measured (`python -m benchmarks.scale_growth --part gpu`)"
    value = MOVED / BANDWIDTH
    products, epochs = record("scale-gpu-pairs"), record("scale-gpu-streaming")
    if not products or not epochs:
        assumed = Speed(host.layer, value, REACHED * PEAK, host.moment, host.eigen, "cuda")
        return assumed, f"assumed: {REACHED:.0%} of the published {PEAK / 1e12:.0f} TFLOP/s"
    product = 1e12 * max(entry["product_tflops"] for entry in products)
    # An epoch of a network of two layers of 512 units, in batches of 4,096: what products do not explain is overhead.
    epoch = next(entry for entry in epochs if entry.get("where") == "resident")
    batch, widths = 4096, (epoch["features"], 512, 512, 10)
    steps = 0.9 * epoch["rows"] / 2 / batch
    step = 6 * batch * sum(a * b for a, b in pairwise(widths)) / product + batch * sum(widths[1:]) * value
    layer = max(epoch["epoch"] / steps - step, 0.0) / (len(widths) + 1) or host.layer
    how = f"measured in parts: products at {product / 1e12:.0f} TFLOP/s and {1e3 * layer:.2f} ms a layer and step"
    return Speed(layer, value, product, host.moment, host.eigen, "cuda"), how


def images_per_second(work: str) -> tuple[float, str]:
    """A ResNet-50 on an H200; training takes three passes."""
    measured = (record("scale-gpu") or {}).get("images_per_second")
    if measured:
        return float(measured[work]), "measured"
    speed, how = gpu()
    share = 1.0 if how.startswith("assumed") else REACHED
    return share * speed.product / PASS / (3 if work == "training" else 1), how


def rate(name: str) -> float:
    """Seconds a row at the largest size of the growth record."""
    last = record("scale-growth")["rows"][-1]
    return float(last[name] / last["rows"])


def billion() -> str:
    """Roads to S of a billion rows: hours of one core, or of a GPU, memory, disk."""
    last = record("scale-parquet")[-2]
    stream = BILLION * last["seconds"] / last["rows"]
    posteriors_disk = BILLION * last["file_mb"] * 2**20 / last["rows"]
    table_disk = 4.0 * BILLION * FEATURES
    learned = predict_cost(SAMPLE, FEATURES, CLASSES, itemsize=4, speed=core(), **SETTINGS)
    passed = learned.seconds + BILLION * (rate("score_s") + rate("stream_s"))
    here, (there, _) = core(), gpu()
    whole = [
        predict_cost(BILLION, FEATURES, CLASSES, itemsize=4, in_file=True, speed=speed, **SETTINGS)
        for speed in (here, there)
    ]
    rows = [
        ["posteriors are there: one pass over Parquet files", duration(stream), "–", size(last["peak_mb"] * 2**20),
         size(posteriors_disk)],
        [f"learn from {SAMPLE:,} rows, then score and add up the others in one pass", duration(passed), "–",
         size(learned.memory), size(table_disk)],
        ["learn from all rows, in a file", duration(whole[0].seconds), duration(whole[1].seconds),
         size(whole[0].memory), size(table_disk)],
    ]  # fmt: skip
    return table(["road", "one core", "one H200", "memory", "disk"], rows)


def imagenet() -> str:
    """Roads to S of ImageNet: hours of a GPU and of a core, memory, disk."""
    scored, trained = images_per_second("scoring")[0], images_per_second("training")[0]
    (there, _), here = gpu(), core()
    head: dict[str, Any] = {"hidden_layer_sizes": (), "max_epochs": 20, "cv": 5, "itemsize": 4, "batch_size": 1024}
    on_gpu, on_core = (predict_cost(IMAGES, IMAGE_FEATURES, IMAGE_CLASSES, speed=s, **head) for s in (there, here))
    features = IMAGES / scored
    folds = IMAGE_FOLDS * (IMAGE_FOLDS - 1) / IMAGE_FOLDS
    whole = IMAGES * (folds * IMAGE_EPOCHS / trained + 1 / scored)
    disk = IMAGE_BYTES + 4.0 * IMAGES * IMAGE_FEATURES
    mapped = predict_cost(IMAGES, IMAGE_FEATURES, IMAGE_CLASSES, hidden_layer_sizes=(), cv=IMAGE_FOLDS, in_file=True)
    rows = [
        ["a published classifier's posteriors of images it has not seen, added up in one pass", duration(features),
         duration(on_gpu.matrix), size(LIBRARIES + SUMS * 8.0 * IMAGE_CLASSES**2), size(IMAGE_BYTES)],
        [f"features of a frozen network, a last layer in {head['cv']} folds, on the GPU",
         duration(features + on_gpu.training + on_gpu.scoring), duration(on_gpu.matrix), size(on_gpu.memory),
         size(disk)],
        ["the same, the last layer on one core", duration(features),
         duration(on_core.seconds), size(on_core.memory), size(disk)],
        [f"a ResNet-50 from nothing, {IMAGE_EPOCHS} epochs in {IMAGE_FOLDS} folds, images as a memory map",
         duration(whole), duration(on_gpu.matrix), size(mapped.memory), size(4.0 * IMAGES * PIXELS)],
    ]  # fmt: skip
    return table(["road", "one H200", "one core", "memory", "disk"], rows)


def fill(text: str) -> str:
    """The page with its tables and the word on the GPU written anew."""
    images, how = images_per_second("training")
    assumed = "" if how == "measured" else f", at {REACHED:.0%} of products, which is assumed,"
    words = (
        f"The speed of the H200 is {gpu()[1]}; what an activation takes is assumed, from its published bandwidth. "
        f"A ResNet-50 then{assumed} trains on {images:,.0f} images a second."
    )
    parts = {"billion": billion(), "imagenet": imagenet(), "gpu": words}
    for name, part in parts.items():
        block = f"<!-- {name} -->\n{part}\n<!-- /{name} -->"
        text = re.sub(rf"<!-- {name} -->.*<!-- /{name} -->", lambda _, block=block: block, text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    print(billion(), imagenet(), gpu()[1], sep="\n\n")
