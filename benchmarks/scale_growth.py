"""How time grows with rows and features, and whether the cost that is said beforehand comes true.

python -m benchmarks.scale_growth                  all parts (about a quarter of an hour on two idle cores)
python -m benchmarks.scale_growth --part growth    fits, scores and streamed estimates against n, fits against d
python -m benchmarks.scale_growth --part cost      predicted against measured seconds and bytes
python -m benchmarks.scale_growth --part speed     the speed of one core, as the cost formulas take it
python -m benchmarks.scale_growth --part gpu       the same of a GPU (not among all parts)

Every fit runs in a process of its own. Growth in the number of classes: ``benchmarks.scale_classes``.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._record import save
from collidescope import CollisionClassifier, Speed
from collidescope.datasets import GaussianProblem
from collidescope.estimate import accumulate

ROOT = Path(__file__).parents[1]
#: A fit whose epochs are fixed, so that only the rows differ.
CAPPED: dict[str, Any] = {"hidden_layer_sizes": (64,), "max_epochs": 2, "cv": 2}
ROWS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
FEATURES = (4, 16, 64, 128, 256, 512)
#: (rows, classes) of the fits against d, and classes of the streamed posteriors.
FEATURE_ROWS, CLASSES, STREAMED_CLASSES = 100_000, 5, 10
#: Rows of a chunk of the stream.
CHUNK = 50_000
#: Sizes, from the largest down, that the second exponent is fitted to: there the time of every fit no longer shows.
UPPER = 3
#: Runs of every size, the fastest of which counts: equal runs differ by up to 40% where a machine is shared.
REPEATS = 3
#: n, d, K and settings of the fits whose cost is predicted.
CASES: tuple[tuple[int, int, int, dict[str, Any]], ...] = (
    (2_000, 10, 5, {}),
    (10_000, 20, 3, {}),
    (10_000, 20, 3, {"trees": True, "cv": 2}),
    (50_000, 10, 10, {"max_epochs": 5, "cv": 2}),
    (200_000, 20, 10, CAPPED),
    (100_000, 256, 5, CAPPED),
    (20_000, 64, 300, {"hidden_layer_sizes": (128,), "max_epochs": 5, "cv": 2}),
    (2_000, 10, 5, {"model": "pairwise"}),
    (5_000, 10, 5, {"model": "pairwise", "hidden_layer_sizes": (128, 128), "max_epochs": 10}),
    (20_000, 10, 5, {"model": "pairwise", "max_epochs": 5, "cv": 2, "n_references": 100}),
)


def problem(n: int, d: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian classes that overlap, float32."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((k, d)) * 1.5 / np.sqrt(d)
    if n * d <= 10_000_000:
        X, y = GaussianProblem(centres).sample(n, 1)
        return X.astype(np.float32), y
    y = rng.integers(k, size=n)  # float32 from the start: the memory of float64 would be felt in the peak
    X = rng.standard_normal((n, d), dtype=np.float32)
    for label in range(k):
        X[y == label] += centres[label].astype(np.float32)
    return X, y


def one_fit(n: int, d: int, k: int, settings: dict[str, Any], predicted: bool) -> dict[str, Any]:
    """In this process: seconds of a fit and of scoring the rows again, and the peak memory."""
    warnings.simplefilter("ignore")
    if "hidden_layer_sizes" in settings:
        settings["hidden_layer_sizes"] = tuple(settings["hidden_layer_sizes"])
    clf = CollisionClassifier(device="cpu", random_state=0, **settings)
    few = np.random.default_rng(1).permutation(200)
    CollisionClassifier(hidden_layer_sizes=(4,), max_epochs=1, cv=2, device="cpu").fit(few[:, None] % 7, few % 2)
    X, y = problem(n, d, k)
    entry: dict[str, Any] = {"rows": n, "features": d, "classes": k}
    start = time.perf_counter()
    clf.fit(X, y)
    entry["fit_s"] = time.perf_counter() - start
    entry["peak_bytes"] = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if not predicted:
        start = time.perf_counter()
        for rows in np.array_split(X, max(1, n // 1_000_000)):
            clf.predict_proba(rows)
        entry["score_s"] = time.perf_counter() - start
    return entry


def apart(n: int, d: int, k: int, settings: dict[str, Any], predicted: bool = False) -> dict[str, Any]:
    """``one_fit`` in a process of its own."""
    arguments = json.dumps([n, d, k, settings, predicted])
    command = [sys.executable, "-m", "benchmarks.scale_growth", "--one-fit", arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def streamed(n: int) -> float:
    """Seconds of S from a stream of ``n`` rows of posteriors."""
    rng = np.random.default_rng(0)
    size = min(n, CHUNK)
    P = rng.dirichlet(np.full(STREAMED_CLASSES, 0.3), size)
    y = np.minimum((P.cumsum(1) < rng.random((size, 1))).sum(1), STREAMED_CLASSES - 1)
    chunks = ((P, y) for _ in range(n // size))
    start = time.perf_counter()
    accumulate(chunks, range(STREAMED_CLASSES))
    return time.perf_counter() - start


def exponent(sizes: tuple[int, ...], seconds: list[float]) -> float:
    """Slope of log seconds over log sizes, least squares."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def fastest(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The smallest of every number of several runs."""
    return {name: min(run[name] for run in runs) for name in runs[0]}


def growth() -> dict[str, Any]:
    streamed(ROWS[0])  # what is loaded once is not part of it
    by_rows: list[list[dict[str, Any]]] = [[] for _ in ROWS]
    by_features: list[list[dict[str, Any]]] = [[] for _ in FEATURES]
    for _ in range(REPEATS):  # in turns, so that a slow moment of the machine does not meet one size alone
        for n, runs in zip(ROWS, by_rows, strict=True):
            runs.append(apart(n, 10, CLASSES, dict(CAPPED)) | {"stream_s": streamed(n)})
            print({name: round(value, 3) for name, value in runs[-1].items()}, flush=True)
        for d, runs in zip(FEATURES, by_features, strict=True):
            runs.append(apart(FEATURE_ROWS, d, CLASSES, dict(CAPPED)))
            print({name: round(value, 3) for name, value in runs[-1].items()}, flush=True)
    rows, features = [fastest(runs) for runs in by_rows], [fastest(runs) for runs in by_features]
    exponents = {}
    for what, sizes, found, names in (
        ("n", ROWS, rows, ("fit_s", "score_s", "stream_s")),
        ("d", FEATURES, features, ("fit_s", "score_s")),
    ):
        for name in names:
            seconds = [entry[name] for entry in found]
            exponents[f"{name} in {what}"] = exponent(sizes, seconds)
            exponents[f"{name} in {what}, upper"] = exponent(sizes[-UPPER:], seconds[-UPPER:])
    print(exponents)
    return {"rows": rows, "features": features, "exponents": exponents}


def cost() -> list[dict[str, Any]]:
    found = []
    for n, d, k, settings in CASES:
        entry = {"settings": settings} | apart(n, d, k, settings, predicted=True)
        entry["ratio"] = entry["predicted"]["seconds"] / entry["fit_s"]
        entry["memory_ratio"] = entry["predicted"]["memory"] / entry["peak_bytes"]
        said, seconds, peak = entry["predicted"], entry["fit_s"], entry["peak_bytes"]
        print(
            f"{n:,} × {d}, K = {k}, {settings}: predicted {said['seconds']:.1f} s, took {seconds:.1f} s; "
            f"{said['memory'] / 1e9:.2f} and {peak / 1e9:.2f} GB",
            flush=True,
        )
        found.append(entry)
    return found


def speed(device: str = "cpu") -> dict[str, Any]:
    """The best of three in every number: the machine without its other programs."""
    found = [asdict(Speed.measure(device, alone=True)) for _ in range(4)][1:]
    best = {name: min(entry[name] for entry in found) for name in ("layer", "value")}
    best |= {name: max(entry[name] for entry in found) for name in ("product", "moment", "eigen")}
    print(best)
    return best | {"device": device}


def gpu() -> dict[str, Any]:
    return {"speed": speed("cuda")}


PARTS = {"growth": growth, "cost": cost, "speed": speed, "gpu": gpu}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--one-fit", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one_fit:
        print(json.dumps(one_fit(*json.loads(options.one_fit))))
        return
    for name in options.part or [name for name in PARTS if name != "gpu"]:
        print(f"-- {name}")
        save(f"scale-{name}", {"settings": CAPPED, "chunk": CHUNK, "upper": UPPER, "repeats": REPEATS}, PARTS[name]())


if __name__ == "__main__":
    main()
