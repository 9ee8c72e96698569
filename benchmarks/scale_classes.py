"""Time of every stage and peak memory against the number of classes, each in a process of its own.

python -m benchmarks.scale_classes                            all numbers of classes (a few minutes on one core)
python -m benchmarks.scale_classes --learned --device cuda    5,000 classes with enough rows to learn them
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._record import save

CLASSES = (2, 10, 100, 250, 500, 1000, 2000, 5000)
ROWS, FEATURES, NEW_ROWS = 20_000, 64, 1000
SETTINGS: dict[str, Any] = {"hidden_layer_sizes": (128,), "cv": 2, "max_epochs": 2, "device": "cpu", "random_state": 0}
#: Twenty rows a class, classes that lie apart and as many epochs as it takes: what 5,000 classes cost when S says much.
LEARNED: dict[str, Any] = {"k": 5000, "rows": 100_000, "spread": 0.8}
LEARNED_SETTINGS: dict[str, Any] = {"hidden_layer_sizes": (256,), "cv": 2, "max_epochs": 30, "random_state": 0}
#: Exponents are fitted from here on: with fewer classes most of the time is what every fit takes.
LARGE = 500


def one(k: int, rows: int, spread: float, settings: dict[str, Any]) -> dict[str, Any]:
    """In this process: fit, predict, file and report of ``k`` classes; seconds of every stage."""
    import torch

    from collidescope import CollisionClassifier, CollisionMatrix, classifier, crossfit, estimate, summarise
    from collidescope.datasets import GaussianProblem
    from collidescope.show import write_report

    warnings.simplefilter("ignore")
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    seconds: dict[str, float] = {}

    def timed(module: Any, name: str, stage: str) -> None:
        """Every call of ``module.name`` adds to a stage."""
        inner = getattr(module, name)

        def call(*args: Any, **options: Any) -> Any:
            start = time.perf_counter()
            result = inner(*args, **options)
            seconds[stage] = seconds.get(stage, 0.0) + time.perf_counter() - start
            return result

        setattr(module, name, call)

    def stage(name: str, start: float) -> None:
        seconds[name] = time.perf_counter() - start

    rng = np.random.default_rng(0)
    make = GaussianProblem(rng.standard_normal((k, FEATURES)) * spread)
    X, y = make.sample(rows, 1)
    X = X.astype(np.float32)
    torch.optim.AdamW([torch.zeros(1, requires_grad=True)])  # imports half of torch, once
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    timed(crossfit, "_score", "score")
    timed(estimate, "labelled_moments", "moments")
    timed(classifier, "one_step_and_moments", "one step")
    timed(classifier, "recover", "recovery")
    timed(classifier, "shrink", "shrink")
    start = time.perf_counter()
    clf = CollisionClassifier(**settings).fit(X, y)
    stage("fit", start)
    seconds["one step"] -= seconds["moments"]
    seconds["train"] = seconds["fit"] - sum(
        seconds[name] for name in ("score", "moments", "one step", "recovery", "shrink")
    )
    new, own = make.sample(NEW_ROWS, 2)
    start = time.perf_counter()
    accuracy = float((clf.predict(new.astype(np.float32)) == own).mean())
    stage("predict", start)
    fitted = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    cm = clf.collision_matrix_
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        path = Path(folder) / "matrix.npz"
        cm.to_npz(path)
        same = CollisionMatrix.from_npz(path) == cm
        stage("file", start)
        top = len(cm.top_k(10).to_json())
        start = time.perf_counter()
        summary = summarise(clf, X, y)
        write_report(summary, Path(folder) / "report.html")
        stage("report", start)
        sizes = {"file": path.stat().st_size, "report": (Path(folder) / "report.html").stat().st_size, "top": top}
    return {
        "classes": k,
        "seconds": seconds,
        "fit_gb": fitted,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "before_gb": before,
        "bytes": sizes,
        "came back the same": bool(same),
        "pber": cm.pber,
        "accuracy": accuracy,
        "one_step": {name: clf.one_step_.info[name] for name in ("projection_iterations", "projection_converged")},
        "recovery": clf.recovery_.status,
    }


def apart(threads: int, case: dict[str, Any]) -> dict[str, Any]:
    """What :func:`one` finds in a process of its own."""
    code = f"import json; from benchmarks.scale_classes import one; print(json.dumps(one(**{case!r})))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
        env=os.environ | {"OMP_NUM_THREADS": str(threads)},
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    parts = ", ".join(f"{name} {value:.1f}" for name, value in row["seconds"].items())
    print(f"K = {row['classes']:,}: {parts} s; peak {row['peak_gb']:.2f} GB, PBER {row['pber']:.3f}", flush=True)
    return row


def classes(threads: int = 1) -> list[dict[str, Any]]:
    """One entry for each number of classes, and at the end the exponents of growth from ``LARGE`` classes on."""
    found = [apart(threads, {"k": k, "rows": ROWS, "spread": 0.6, "settings": SETTINGS}) for k in CLASSES]
    large = [row for row in found if row["classes"] >= LARGE]
    exponents = {}
    if len(large) > 1:
        sizes_log = np.log([row["classes"] for row in large])
        for name in large[0]["seconds"]:
            exponents[name] = float(np.polyfit(sizes_log, np.log([row["seconds"][name] for row in large]), 1)[0])
        memory = np.log([row["fit_gb"] - row["before_gb"] for row in large])
        exponents["memory"] = float(np.polyfit(sizes_log, memory, 1)[0])
        print("exponents:", {name: round(value, 2) for name, value in exponents.items()})
    return [*found, {"exponents": exponents}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--learned", action="store_true")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    if options.learned:
        settings = LEARNED_SETTINGS | {"device": options.device}
        case = LEARNED | {"settings": settings}
        save(f"scale-learned-{options.device}", case | {"features": FEATURES}, apart(options.threads, case))
        return
    config = {"rows": ROWS, "features": FEATURES, "threads": options.threads, "settings": SETTINGS}
    save("scale-classes", config, classes(options.threads))


if __name__ == "__main__":
    main()
