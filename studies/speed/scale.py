"""How time and memory grow with rows, features and classes, with files larger than memory, and with a GPU.

python -m studies.speed.scale --part parquet     S of Parquet files in one pass: seconds and peak memory
python -m studies.speed.scale --part cluster     the same S from two processes, one of them killed
python -m studies.speed.scale --part fit         from a Parquet file to a fitted network: `spool`, `fit`, memory of both
python -m studies.speed.scale --part growth      fits of the default against rows, features and classes
python -m studies.speed.scale --part classes     one network with up to 5,000 classes: fit, predict, file, report
python -m studies.speed.scale --part gpu         MNIST cross-fitted, and pair-wise scoring beside the matrix product

Each fit runs in a process of its own. Memory is anonymous memory: pages of a memory map are the system's to take back.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from collidescope import (
    CollisionClassifier,
    CollisionMatrix,
    collision_matrix_from_posteriors,
    spool,
)
from collidescope.datasets import GaussianProblem
from collidescope.onestep import accumulate
from studies.accuracy._record import best_of, save

CLASSES = [f"class {k}" for k in range(10)]
STREAM_ROWS = (100_000, 1_000_000, 10_000_000)
FIT_ROWS, FIT_FEATURES = (100_000, 1_000_000, 5_000_000), 20
BLOCK = 100_000
#: One small network, its epochs fixed, for rows that other members would not take.
NETWORK: dict[str, Any] = {
    "members": ["network"],
    "limit": False,
    "cv": 2,
    "device": "cpu",
    "random_state": 0,
}
NETWORK["training"] = {"hidden_layer_sizes": (64,), "max_epochs": 1}
#: (rows, features, classes) of the default's fits.
GROWTH = [(n, 10, 5) for n in (500, 2_000, 8_000, 32_000)]
GROWTH += [(2_000, d, 5) for d in (40, 160, 640)] + [(2_000, 10, k) for k in (2, 20, 100)]
MANY_CLASSES = (10, 100, 1000, 2000, 5000)
#: Seconds between two looks at the memory.
PAUSE = 0.01
MB = 2**20


class Peak:
    """The most anonymous memory that this process held since the last question, in MB."""

    def __init__(self) -> None:
        self.most = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self.most = max(self.most, self._now())
            time.sleep(PAUSE)

    @staticmethod
    def _now() -> int:
        text = Path("/proc/self/status").read_text()
        return 1024 * int(text.split("RssAnon:")[1].split()[0])

    def ask(self) -> float:
        most, self.most = max(self.most, self._now()), 0
        return most / MB


def apart(call: str, *arguments: Any) -> dict[str, Any]:
    """What a function of this module returns in a process of its own, with one thread."""
    code = f"import json, sys; from studies.speed import scale; print(json.dumps(scale.{call}(*json.loads(sys.argv[1]))))"
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(arguments)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(
        {name: round(v, 3) if isinstance(v, float) else v for name, v in found.items()}, flush=True
    )
    return found


def write(path: Path, rows: int, stream: bool) -> None:
    """A Parquet file, a block at a time: posteriors with labels drawn from them, or features with classes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    slopes = np.random.default_rng(0).normal(size=(FIT_FEATURES, 3)) / 2
    writer = None
    for block in range(max(rows // BLOCK, 1)):
        rng = np.random.default_rng(1 + block)
        n = min(rows, BLOCK)
        if stream:
            P = rng.dirichlet(np.full(len(CLASSES), 0.3), n)
            codes = np.minimum((P.cumsum(1) < rng.random((n, 1))).sum(1), len(CLASSES) - 1)
            columns: dict[str, Any] = {name: P[:, k] for k, name in enumerate(CLASSES)}
            columns["label"] = np.array(CLASSES)[codes]
        else:
            X = rng.normal(size=(n, FIT_FEATURES)).astype(np.float32)
            columns = {f"x{k}": X[:, k] for k in range(FIT_FEATURES)}
            columns["label"] = (X @ slopes + rng.gumbel(size=(n, 3))).argmax(1).astype(np.int8)
        batch = pa.record_batch(columns)
        writer = writer or pq.ParquetWriter(path, batch.schema)
        writer.write_batch(batch)
    assert writer is not None
    writer.close()


# ---------------------------------------------------------------- one process each


def one_pass(path: str) -> dict[str, Any]:
    from collidescope.scale.sources import posterior_batches

    peak = Peak()
    before = peak.ask()
    start = time.perf_counter()
    cm = accumulate(posterior_batches(path, "label"), CLASSES)
    found = {
        "pber": cm.pber,
        "rows": float(cm.counts.sum()),
        "seconds": time.perf_counter() - start,
    }
    return found | {"peak_mb": peak.ask() - before, "file_mb": Path(path).stat().st_size / MB}


def one_file(path: str) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    peak = Peak()
    found: dict[str, Any] = {"start_mb": peak.ask()}
    start = time.process_time()
    X, y = spool(path, "label")
    found |= {"spool_s": time.process_time() - start, "spool_mb": peak.ask()}
    start = time.process_time()
    clf = CollisionClassifier(**NETWORK).fit(X, y)
    found |= {"fit_s": time.process_time() - start, "fit_mb": peak.ask(), "rows": len(y)}
    return found | {"table_mb": X.nbytes / MB, "posteriors_mb": clf.posteriors_.nbytes / MB}


def one_fit(n: int, d: int, k: int, members: Any, training: Any) -> dict[str, Any]:
    """Fit, predict, file and report of Gaussian classes that overlap."""
    from collidescope import report

    warnings.simplefilter("ignore")
    problem = GaussianProblem(
        np.random.default_rng(0).standard_normal((k, d)) * (1.5 / np.sqrt(d) if k < 200 else 0.6)
    )
    X, y = problem.sample(n, 1)
    settings: dict[str, Any] = {"device": "cpu", "random_state": 0}
    if training is not None:
        settings |= NETWORK | {"members": members, "training": training}
    peak = Peak()
    before = peak.ask()
    seconds: dict[str, float] = {}
    start = time.perf_counter()
    clf = CollisionClassifier(**settings).fit(X, y)
    seconds["fit"] = time.perf_counter() - start
    found = {
        "rows": n,
        "features": d,
        "classes": k,
        "fit_mb": peak.ask() - before,
        "pber": clf.collision_matrix_.pber,
    }
    start = time.perf_counter()
    clf.predict_proba(X[:1000])
    seconds["predict 1,000"] = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        clf.collision_matrix_.to_npz(Path(folder) / "matrix.npz")
        CollisionMatrix.from_npz(Path(folder) / "matrix.npz")
        seconds["file"] = time.perf_counter() - start
        start = time.perf_counter()
        report(clf, X, y, path=Path(folder) / "report.html")
        seconds["report"] = time.perf_counter() - start
    return found | {"seconds": seconds}


# ---------------------------------------------------------------- parts


def parquet(folder: Path) -> list[dict[str, Any]]:
    found = []
    for rows in STREAM_ROWS:
        write(folder / f"{rows}.parquet", rows, stream=True)
        found.append(apart("one_pass", str(folder / f"{rows}.parquet")))
    ratio = found[-1]["seconds"] / found[-2]["seconds"]
    return [*found, {"exponent": float(np.log(ratio) / np.log(STREAM_ROWS[-1] / STREAM_ROWS[-2]))}]


def cluster(folder: Path) -> dict[str, Any]:
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    from collidescope.scale.sources import posterior_batches

    path = folder / f"{STREAM_ROWS[-1]}.parquet"
    if not path.exists():
        write(path, STREAM_ROWS[-1], stream=True)
    alone = accumulate(posterior_batches(path, "label"), CLASSES)
    found: dict[str, Any] = {"rows": STREAM_ROWS[-1]}
    for killed in (False, True):
        options = {
            "n_workers": 2,
            "threads_per_worker": 1,
            "processes": True,
            "dashboard_address": None,
        }
        with LocalCluster(**options) as local, Client(local) as client:
            pids = list(client.run(os.getpid).values())
            table = dd.read_parquet(path, split_row_groups=10)
            start = time.perf_counter()
            if killed:
                threading.Timer(3.0, os.kill, (pids[0], signal.SIGKILL)).start()
            cm = collision_matrix_from_posteriors(table[CLASSES], table["label"])
            seconds = time.perf_counter() - start
            lost = pids[0] not in client.run(os.getpid).values()
        difference = float(np.abs(cm.matrix - alone.matrix).max())
        name = "one killed" if killed else "both alive"
        found[name] = {"seconds": seconds, "difference": difference, "a worker was lost": lost}
        print(f"two processes, {name}: {seconds:.1f} s, S differs by {difference:.1e}", flush=True)
    return found


def fit(folder: Path) -> list[dict[str, Any]]:
    found = []
    for rows in FIT_ROWS:
        write(folder / "rows.parquet", rows, stream=False)
        found.append(apart("one_file", str(folder / "rows.parquet")))
    return found


def growth(folder: Path) -> list[dict[str, Any]]:
    return [apart("one_fit", n, d, k, "auto", None) for n, d, k in GROWTH]


def classes(folder: Path) -> list[dict[str, Any]]:
    training = {"hidden_layer_sizes": (128,), "max_epochs": 2}
    return [apart("one_fit", 20_000, 64, k, ["network"], training) for k in MANY_CLASSES]


def gpu(folder: Path) -> dict[str, Any]:
    """MNIST from end to end, and pairs a second as a share of the matrix product's rate."""
    import torch

    from collidescope.pairwise.scoring import PairwiseNetwork, class_similarity
    from collidescope.training.networks import mlp
    from studies.real_data import load_mnist
    from studies.reproduction.mnist_networks import conv_encoder

    def seconds(call: Any, times: int) -> float:
        def waited() -> None:
            call()
            torch.cuda.synchronize()

        waited()
        return best_of(waited, times)

    images, labels = load_mnist("train")
    training = {"max_epochs": 12, "patience": 4, "batch_size": 512, "learning_rate": 2e-3}
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "training": training,
        "mnist": [],
    }
    own = {"model": conv_encoder, "training": training}
    X = images[:, None].astype(np.float32) / 255
    # The first fit of a process loads CUDA's libraries.
    CollisionClassifier(members=["convolution"], limit=False, device="cuda").fit(
        X[:2000], labels[:2000]
    )
    for name, options in (
        ("default", {}),
        ("default, five processes", {"n_jobs": 5}),
        ("custom network", own),
    ):
        clf = CollisionClassifier(limit=False, device="cuda", random_state=0, **options)
        start = time.perf_counter()
        clf.fit(X, labels)
        entry = {"name": name, "seconds": time.perf_counter() - start, "rows": len(labels)}
        cm = clf.collision_matrix_
        found["mnist"].append(entry | {"pber": cm.pber, "error": cm.held_out_error})
        print(found["mnist"][-1], flush=True)
    found["pairs"] = []
    for sizes in ((128,) * 6, (512,) * 3):
        module = PairwiseNetwork(mlp(40, 1, sizes)).eval().cuda()
        n = 6000
        X, y = torch.randn(n, 20, device="cuda"), torch.arange(n) % 10
        flops = 2 * sum(a * b for a, b in zip(sizes, [*sizes[1:], 1], strict=True)) * 2 * n * n
        square = torch.randn(8192, 8192, device="cuda")
        product = 2 * 8192**3 / seconds(lambda s=square: s @ s, 5)
        scored = seconds(
            lambda m=module, X=X, y=y: class_similarity(m, X, X, y, 10, torch.arange(len(X))), 3
        )
        entry = {"hidden_layer_sizes": list(sizes), "pairs_per_second": n * n / scored}
        found["pairs"].append(entry | {"share": flops / scored / product})
    return found


PARTS = {
    "parquet": parquet,
    "cluster": cluster,
    "fit": fit,
    "growth": growth,
    "classes": classes,
    "gpu": gpu,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=PARTS, action="append")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in options.part or [name for name in PARTS if name != "gpu"]:
            print(f"-- {name}", flush=True)
            save(
                f"scale-{name}",
                {"stream_rows": STREAM_ROWS, "network": NETWORK},
                PARTS[name](Path(folder)),
            )


if __name__ == "__main__":
    main()
