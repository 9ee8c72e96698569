"""From a Parquet file to a fitted model, with more and more rows: seconds and memory of `spool` and of `fit`.

python -m benchmarks.scale_fit

Memory is anonymous memory: pages of a memory map are the system's to take back, and do not count. Seconds are those of
one core, which other work on the machine does not lengthen much.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks._record import save

ROWS = (100_000, 1_000_000, 5_000_000)
BLOCK, FEATURES, CLASSES = 100_000, 20, 3
SETTINGS = {"hidden_layer_sizes": (64,), "max_epochs": 1, "cv": 2, "random_state": 0, "device": "cpu"}
#: Seconds between two looks at the memory.
PAUSE = 0.01
MB = 2**20


def write(path: Path, rows: int) -> None:
    """Rows whose class is drawn from a softmax of them, a block at a time."""
    slopes = np.random.default_rng(0).normal(size=(FEATURES, CLASSES)) / 2
    names = [f"x{k}" for k in range(FEATURES)]
    schema = pa.schema([*((name, pa.float32()) for name in names), ("label", pa.int8())])
    with pq.ParquetWriter(path, schema) as writer:
        for block in range(rows // BLOCK):
            rng = np.random.default_rng(1 + block)
            X = rng.normal(size=(BLOCK, FEATURES)).astype(np.float32)
            labels = (X @ slopes + rng.gumbel(size=(BLOCK, CLASSES))).argmax(1).astype(np.int8)
            writer.write_batch(pa.record_batch([*X.T, labels], schema=schema))


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


def one(path: str) -> None:
    """In a process of its own: spool and fit, as JSON."""
    import torch

    import collidescope as cs
    from collidescope.learners import bridge  # noqa: F401  what is imported is in memory before the start

    torch.set_num_threads(1)
    warnings.simplefilter("ignore", cs.CollisionWarning)
    peak = Peak()
    found: dict[str, Any] = {"start_mb": peak.ask()}
    start = time.process_time()
    X, y = cs.spool(path, "label")
    found |= {"spool_s": time.process_time() - start, "spool_mb": peak.ask()}
    start = time.process_time()
    clf = cs.CollisionClassifier(**SETTINGS).fit(X, y)
    found |= {"fit_s": time.process_time() - start, "fit_mb": peak.ask()}
    found |= {"rows": len(y), "table_mb": X.nbytes / MB, "posteriors_mb": clf.posteriors_.nbytes / MB}
    print(json.dumps(found | {"pber": clf.collision_matrix_.pber}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS))
    parser.add_argument("--one", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one)
        return
    found = []
    for rows in options.rows:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.parquet"
            write(path, rows)
            command = [sys.executable, "-m", "benchmarks.scale_fit", "--one", str(path)]
            environment = os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": folder}
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
            entry = json.loads(done.stdout)
            entry["file_mb"] = path.stat().st_size / MB
        print(
            f"{rows:,} rows ({entry['table_mb']:.0f} MB): spool {entry['spool_s']:.1f} s, {entry['spool_mb']:.0f} MB; "
            f"fit {entry['fit_s']:.1f} s, {entry['fit_mb']:.0f} MB",
            flush=True,
        )
        found.append(entry)
    if options.rows == list(ROWS):
        settings = {name: value for name, value in SETTINGS.items() if name != "random_state"}
        save("scale-fit", settings | {"features": FEATURES, "classes": CLASSES, "seed": 0}, found)


if __name__ == "__main__":
    main()
