"""Time and memory: files larger than memory, a cluster with a lost worker, a GPU.

- ``parquet``: S of Parquet files in one pass, seconds and peak memory, in a process of its own
- ``cluster``: the same S from two processes, one of them killed
- ``gpu``: MNIST cross-fitted

Memory is anonymous memory: pages of a memory map are the system's to take back.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from collidescope import CollisionClassifier, collision_matrix_from_posteriors
from collidescope.onestep import accumulate
from studies.markdown import table, where
from studies.store import Cell, Record, Study, by_part

CLASSES = [f"class {k}" for k in range(10)]
STREAM_ROWS = (100_000, 1_000_000, 10_000_000)
MB = 2**20


class Peak:
    """The most anonymous memory that this process held since the last question, in MB."""

    def __init__(self, pause: float = 0.01) -> None:
        self.most = 0
        self.pause = pause
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self.most = max(self.most, self._now())
            time.sleep(self.pause)

    @staticmethod
    def _now() -> int:
        text = Path("/proc/self/status").read_text()
        return 1024 * int(text.split("RssAnon:")[1].split()[0])

    def ask(self) -> float:
        most = max(self.most, self._now())
        self.most = 0
        return most / MB


def write(path: Path, rows: int, block: int = 100_000) -> None:
    """A Parquet file, a block at a time: posteriors with labels drawn from them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    for number in range(max(rows // block, 1)):
        rng = np.random.default_rng(1 + number)
        n = min(rows, block)
        P = rng.dirichlet(np.full(len(CLASSES), 0.3), n)
        drawn = (P.cumsum(1) < rng.random((n, 1))).sum(1)
        columns: dict[str, Any] = {name: P[:, k] for k, name in enumerate(CLASSES)}
        columns["label"] = np.array(CLASSES)[np.minimum(drawn, len(CLASSES) - 1)]
        batch = pa.record_batch(columns)
        writer = writer or pq.ParquetWriter(path, batch.schema)
        writer.write_batch(batch)
    writer.close()


def one_pass(path: str) -> dict[str, Any]:
    """S of a file: seconds and memory."""
    from collidescope.scale.sources import posterior_batches

    peak = Peak()
    before = peak.ask()
    start = time.perf_counter()
    cm = accumulate(posterior_batches(path, "label"), CLASSES)
    return {
        "pber": cm.pber,
        "rows": float(cm.counts.sum()),
        "seconds": time.perf_counter() - start,
        "peak_mb": peak.ask() - before,
        "file_mb": Path(path).stat().st_size / MB,
    }


def apart(path: str) -> dict[str, Any]:
    """:func:`one_pass` in a process of its own, with one thread."""
    code = "import json, sys; from studies.speed import scale; "
    code += "print(json.dumps(scale.one_pass(sys.argv[1])))"
    done = subprocess.run(
        [sys.executable, "-c", code, path],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    return json.loads(done.stdout.splitlines()[-1])


def parquet(rows: Sequence[int] = STREAM_ROWS) -> dict[str, Any]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for count in rows:
            path = Path(folder) / f"{count}.parquet"
            write(path, count)
            found.append(apart(str(path)))
    ratio = found[-1]["seconds"] / found[-2]["seconds"]
    exponent = float(np.log(ratio) / np.log(rows[-1] / rows[-2]))
    return {"rows": [*found, {"exponent": exponent}]}


def cluster(rows: int = STREAM_ROWS[-1]) -> dict[str, Any]:
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    from collidescope.scale.sources import posterior_batches

    found: dict[str, Any] = {"rows": rows}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        write(path, rows)
        alone = accumulate(posterior_batches(path, "label"), CLASSES)
        for name in ("both alive", "one killed"):
            with (
                LocalCluster(
                    n_workers=2,
                    threads_per_worker=1,
                    processes=True,
                    dashboard_address=None,
                ) as local,
                Client(local) as client,
            ):
                pids = list(client.run(os.getpid).values())
                frame = dd.read_parquet(path, split_row_groups=10)
                start = time.perf_counter()
                if name == "one killed":
                    threading.Timer(3.0, os.kill, (pids[0], signal.SIGKILL)).start()
                cm = collision_matrix_from_posteriors(frame[CLASSES], frame["label"])
                seconds = time.perf_counter() - start
                lost = pids[0] not in client.run(os.getpid).values()
            difference = float(np.abs(cm.matrix - alone.matrix).max())
            found[name] = {
                "seconds": seconds,
                "difference": difference,
                "a worker was lost": lost,
            }
    return found


def gpu() -> dict[str, Any]:
    """MNIST from end to end."""
    import torch

    from studies.real_data import load_mnist
    from studies.reproduction.mnist_networks import conv_encoder

    images, labels = load_mnist("train")
    X = images[:, None].astype(np.float32) / 255
    # The first fit of a process loads CUDA's libraries.
    first = CollisionClassifier(members=["convolution"], limit=False, device="cuda")
    first.fit(X[:2000], labels[:2000])
    training = {
        "max_epochs": 12,
        "patience": 4,
        "batch_size": 512,
        "learning_rate": 2e-3,
    }
    variants: dict[str, dict[str, Any]] = {
        "default": {},
        "default, five processes": {"n_jobs": 5},
        "custom network": {"members": [conv_encoder], "training": training},
    }
    mnist = []
    for name, options in variants.items():
        clf = CollisionClassifier(limit=False, device="cuda", random_state=0, **options)
        start = time.perf_counter()
        cm = clf.fit(X, labels).collision_matrix_
        entry = {
            "name": name,
            "seconds": time.perf_counter() - start,
            "rows": len(labels),
        }
        mnist.append(entry | {"pber": cm.pber, "error": cm.held_out_error})
    device = torch.cuda.get_device_name()
    return {"device": device, "training": training, "mnist": mnist}


PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    "parquet": parquet,
    "cluster": cluster,
    "gpu": gpu,
}


def cells(quick: bool) -> list[Cell]:
    if quick:
        return [{"part": "parquet", "rows": [10_000, 20_000]}]
    return [{"part": name} for name in PARTS]


def run(cell: Cell) -> dict[str, Any]:
    settings = {name: value for name, value in cell.items() if name != "part"}
    return PARTS[cell["part"]](**settings)


# ---------------------------------------------------------------- tables


def text(records: list[Record]) -> str:
    made = {record["cell"]["part"]: record for record in records}
    found = by_part(records)
    *sizes, last = found["parquet"]["rows"]
    files = []
    for r in sizes:
        size = [f"{r['rows']:,.0f}", f"{r['file_mb']:,.0f} MB"]
        files.append([*size, f"{r['seconds']:.1f} s", f"{r['peak_mb']:.0f} MB"])
    both = found["cluster"]
    workers = [
        [name, f"{both[name]['seconds']:.1f} s", f"{both[name]['difference']:.1e}"]
        for name in ("both alive", "one killed")
    ]
    card = found["gpu"]
    models = [
        [r["name"], f"{r['seconds']:.0f} s", f"{r['pber']:.4f}", f"{r['error']:.2%}"]
        for r in card["mnist"]
    ]
    workers_head = ["workers", "time", "largest difference of an entry of S"]
    return f"""## More rows than memory

S of ten classes from Parquet files in one pass (`accumulate(posterior_batches(path, label),
classes)`), each in a process of its own:

{table(["rows", "file", "time", "peak memory"], files)}

From the second to the third the time grows with the rows to the power of {last["exponent"]:.2f}.

The same {both["rows"]:,} rows through a Dask cluster of two processes, beside the S of one process:

{table(workers_head, workers)}

## A GPU

S of {card["mnist"][0]["rows"]:,} images of MNIST on one {card["device"]}, without the range, in
five folds, after a first fit of 2,000 images that loads CUDA's libraries (further processes load
them again; the custom network is a small convolutional encoder of 12 epochs):

{table(["model", "seconds", "PBER", "held-out error"], models)}

`python -m studies run scale` repeats it ({where(made["gpu"]["environment"])})."""


STUDY = Study(
    "scale", "Large files, a lost worker, a GPU", cells, run, text, alone=True
)
