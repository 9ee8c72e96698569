"""Hostile files by the thousand.

Cases run in a child process with a limit on its memory; when it dies, the case that killed it is a
finding and the next child goes on behind it. Findings stay in ``studies/results/findings`` as
files, to be replayed with ``python -m studies.faults.fuzz replay TARGET FILE``.
"""

from __future__ import annotations

import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from studies.store import Cell, Result, Study

FINDINGS = Path(__file__).parents[1] / "results" / "findings"
#: Cases a target; together with what the test suite does on every run.
CASES = {
    "model": 6000,
    "trees": 1000,
    "matrix": 5000,
    "npz": 3000,
    "checkpoint": 600,
    "forged": 800,
    "custom": 600,
    "csv": 2500,
    "parquet": 1000,
    "merge": 600,
    "summary": 1000,
}


def worker(target: str, first: int, last: int, seed: int, folder: Path) -> None:
    """Run cases ``first`` … ``last`` - 1; a line of JSON for each."""
    import torch

    import collidescope as cs
    from studies.faults.targets import TARGETS, use_matrix
    from studies.faults.watch import Finding, Watch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    use_matrix(cs.CollisionMatrix(np.eye(3)))  # lazy imports are behind us
    work = folder / "work"
    work.mkdir(exist_ok=True)
    watch = Watch(folder)
    subject = TARGETS[target](work)
    log = open(folder / "log", "a", buffering=1)  # noqa: SIM115 - until the process ends
    warm = True
    for number in range(first, last):
        data, suffix = subject.make(np.random.default_rng([seed, number]))
        path = work / f"case{suffix}"
        path.write_bytes(data)
        log.write(json.dumps({"begin": number, "suffix": suffix}) + "\n")
        entry = {"case": number}
        try:
            entry["end"] = watch.run(lambda path=path: subject.read(path), len(data))
        except Finding as finding:
            entry |= {"end": "found", "what": str(finding)}
            FINDINGS.mkdir(parents=True, exist_ok=True)
            (FINDINGS / f"{target}-{number}{suffix}").write_bytes(data)
        log.write(json.dumps(entry) + "\n")
        for other in work.glob("case*"):
            other.unlink()
        if warm:
            watch.limit_memory()
            warm = False


def campaign(target: str, cases: int, seed: int) -> Result:
    """All cases of a target, whatever happens to the children."""
    started = time.perf_counter()
    ends = collections.Counter()
    found = {}
    first = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        while first < cases:
            command = [sys.executable, "-m", "studies.faults.fuzz", "worker", target]
            command += [str(first), str(cases), str(seed), name]
            # Arrow's own pool reserves a GiB of addresses at a time, which the limit on memory
            # would refuse.
            threads = {"OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
            log = folder / "log"
            log.write_text("")
            with open(folder / "err", "w") as err:
                child = subprocess.Popen(
                    command,
                    env=os.environ | threads,
                    stdout=subprocess.DEVNULL,
                    stderr=err,
                )
            _wait(child, log)
            entries = [json.loads(line) for line in log.read_text().splitlines()]
            begun = [entry["begin"] for entry in entries if "begin" in entry]
            done = [entry for entry in entries if "end" in entry]
            if not begun:
                said = (folder / "err").read_text()
                raise RuntimeError(
                    f"the child of {target} died before its first case:\n{said}"
                )
            if len(done) < len(begun):
                died = f"the interpreter died (exit {child.returncode})"
                done.append({"case": begun[-1], "end": "found", "what": died})
            ends.update(entry["end"] for entry in done)
            for entry in done:
                if entry["end"] == "found":
                    new = {"count": 0, "case": entry["case"]}
                    found.setdefault(_kind(entry["what"]), new)["count"] += 1
            first = begun[-1] + 1
    counts = {end: ends[end] for end in ("refused", "accepted", "found")}
    seconds = round(time.perf_counter() - started, 1)
    return {"tried": cases, **counts, "causes": found, "seconds": seconds}


def _wait(child: subprocess.Popen[bytes], log: Path, stall: float = 120) -> None:
    """Until the child ends; one that has not finished a case for so long hangs in C code."""
    while True:
        try:
            child.wait(timeout=5)
            return
        except subprocess.TimeoutExpired:
            if time.time() - log.stat().st_mtime > stall:
                child.kill()


def _kind(what: str) -> str:
    """Findings of one cause under one name: without numbers and contents."""
    return re.sub(r"\d+", "#", what)[:200]


def replay(target: str, file: str) -> None:
    from studies.faults.targets import TARGETS

    with tempfile.TemporaryDirectory() as name:
        subject = TARGETS[target](Path(name))
        path = Path(name) / f"case{''.join(Path(file).suffixes)}"
        shutil.copy(file, path)
        print(subject.read(path))


def cells(quick: bool) -> list[Cell]:
    cases = CASES
    if quick:
        cases = dict.fromkeys(CASES, 5)
    return [{"target": name, "cases": n, "seed": 20260} for name, n in cases.items()]


def run(cell: Cell) -> Result:
    return campaign(cell["target"], cell["cases"], cell["seed"])


STUDY = Study("fuzz", "Hostile files by the thousand", cells, run, alone=True)

if __name__ == "__main__":
    action, target, *rest = sys.argv[1:]
    if action == "worker":
        first, last, seed, folder = rest
        worker(target, int(first), int(last), int(seed), Path(folder))
    else:
        replay(target, rest[0])
