"""More rows than memory: S of Parquet files in one pass, alone and on a cluster of two processes.

python -m benchmarks.scale                       all parts
python -m benchmarks.scale --part parquet        seconds and peak memory against the number of rows
python -m benchmarks.scale --part cluster        the same S from two processes, one of them killed
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks._record import save
from collidescope import collision_matrix_from_posteriors
from collidescope.estimate import accumulate
from collidescope.scale.streams import posterior_batches

CLASSES = [f"class {k}" for k in range(10)]
ROWS = (100_000, 1_000_000, 10_000_000)
BLOCK = 100_000


def write(path: Path, rows: int) -> None:
    """Posteriors of ten classes with labels drawn from them, a block at a time."""
    writer = None
    for block in range(rows // BLOCK):
        rng = np.random.default_rng(block)
        P = rng.dirichlet(np.full(len(CLASSES), 0.3), BLOCK)
        codes = np.minimum((P.cumsum(1) < rng.random((BLOCK, 1))).sum(1), len(CLASSES) - 1)
        columns = {name: P[:, k] for k, name in enumerate(CLASSES)} | {"label": np.array(CLASSES)[codes]}
        batch = pa.record_batch(columns)
        writer = writer or pq.ParquetWriter(path, batch.schema)
        writer.write_batch(batch)
    if writer is not None:
        writer.close()


def one_pass(path: str) -> None:
    """In a process of its own: S, seconds and peak memory as JSON."""
    start = time.perf_counter()
    cm = accumulate(posterior_batches(path, "label"), CLASSES)
    seconds = time.perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"pber": cm.pber, "rows": float(cm.counts.sum()), "seconds": seconds, "peak_mb": memory}))


def parquet(folder: Path) -> list[dict[str, Any]]:
    found = []
    for rows in ROWS:
        path = folder / f"{rows}.parquet"
        write(path, rows)
        command = [sys.executable, "-m", "benchmarks.scale", "--one-pass", str(path)]
        entry = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        entry["file_mb"] = path.stat().st_size / 2**20
        print(f"{rows:,} rows: {entry['seconds']:.1f} s, peak {entry['peak_mb']:.0f} MB", flush=True)
        found.append(entry)
    exponent = float(np.log(found[-1]["seconds"] / found[-2]["seconds"]) / np.log(ROWS[-1] / ROWS[-2]))
    print(f"exponent in the rows: {exponent:.2f}")
    return [*found, {"exponent": exponent}]


def cluster(folder: Path) -> dict[str, Any]:
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    path = folder / f"{ROWS[-1]}.parquet"
    if not path.exists():
        write(path, ROWS[-1])
    alone = accumulate(posterior_batches(path, "label"), CLASSES)
    found: dict[str, Any] = {"rows": ROWS[-1]}
    for killed in (False, True):
        options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
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


PARTS = {"parquet": parquet, "cluster": cluster}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--one-pass", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one_pass:
        one_pass(options.one_pass)
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in options.part or PARTS:
            save(f"scale-{name}", {"rows": list(ROWS), "classes": len(CLASSES)}, PARTS[name](Path(folder)))


if __name__ == "__main__":
    main()
