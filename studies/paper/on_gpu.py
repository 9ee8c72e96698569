"""The paper's own sizes on one GPU within a given time: ``python -m studies.paper.on_gpu``.

Every job is a process. Each look is written as a record as soon as it is there, so that whatever
is done when time is up is kept. The records are those of the study ``paper-stacked``.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

POLL_SECONDS = 0.5
#: Processes side by side where they must take turns on the GPU.
TURNS = 5


@dataclass(frozen=True)
class Job:
    """What a process does: the part, its problems with their numbers of samples, the looks."""

    name: str
    part: str
    problems: tuple[tuple[tuple[Any, ...], int, int], ...]  #: problem, rows, samples
    looks: tuple[int, ...]
    gpu: bool = True


B_ROWS = 50_000
B = (("B", 0.15), ("B", 0.25), ("B", 0.35))
SMALL = (
    (("A", 3), 750),
    (("A", 4), 1_000),
    (("A", 5), 1_250),
    (("line", 4, 10, 3.0), 1_000),
    (("line", 4, 10, 6.0), 1_000),
    (("line", 4, 10, 9.0), 1_000),
)
CURVE = (5, 10, 20, 50, 100, 200, 500)


def jobs(tiny: bool) -> list[Job]:
    """All, those of most worth first."""
    if tiny:
        problems = ((B[0], 250, 2), (B[1], 250, 1))
        parts = ("printed", "folds", "bayesian", "plain", "temperature", "dropout")
        made = [Job(part, part, problems, (1, 2)) for part in parts]
        made.append(Job("A 3 printed", "printed", ((("A", 3), 60, 2),), (1, 2)))
        made.append(Job("digits 0", "digits", (), (1,)))
        made.append(Job("digits 0 fold 0", "digits fold", (), ()))
        return [*made, Job("ours 0.15 0", "ours", ((B[0], 200, 1),), (), gpu=False)]
    many = tuple((problem, 50_000, n) for problem, n in zip(B, (10, 6, 6), strict=True))
    fewer = tuple((problem, 50_000, n) for problem, n in zip(B, (8, 4, 4), strict=True))
    found = [
        Job("printed", "printed", many, CURVE),
        Job("bayesian", "bayesian", many, CURVE),
        Job("folds", "folds", fewer, (20, 100, 500)),
        Job("temperature", "temperature", many, (100, 500)),
        Job("dropout", "dropout", many, (100, 500)),
        Job("plain", "plain", many, (100, 500)),
    ]
    for problem, n in SMALL:
        name = f"{problem[0]} {problem[-1]:g}"
        for part in ("printed", "folds"):
            found.append(Job(f"{name} {part}", part, ((problem, n, 10),), (500,)))
    for seed in range(3):
        found.append(Job(f"digits {seed}", "digits", (), (5, 10, 20, 40)))
    for seed in range(3):
        for fold in range(5):
            found.append(Job(f"digits {seed} fold {fold}", "digits fold", (), ()))
    for seed in range(10):
        for problem in B:
            name = f"ours {problem[1]:g} {seed}"
            one = ((problem, 50_000, seed + 1),)
            found.append(Job(name, "ours", one, (), gpu=False))
    return found


# ------------------------------------------------------------------------------------------
# in a process of its own


def cells_of(job: Job, tiny: bool) -> list[dict[str, Any]]:
    """The cells of all samples, at the largest number of epochs."""
    from studies.paper.stacked import cell_of

    found = []
    for problem, n, samples in job.problems:
        for seed in range(samples):
            cell = cell_of(job.part, list(problem), n, seed, job.looks[-1])
            if tiny:
                cell["settings"] |= {"hidden_layer_sizes": [8, 8], "max_steps": 50}
            found.append(cell)
    return found


def work(job: Job, tiny: bool, file: Path) -> None:
    """Do a job; every look is written at once."""
    if job.part == "ours":
        one_of_ours(job, file)
    elif job.part.startswith("digits"):
        one_of_digits(job, tiny, file)
    else:
        one_stack(job, tiny, file)


def one_stack(job: Job, tiny: bool, file: Path) -> None:
    """Train the networks of all samples side by side."""
    from studies.paper import scenarios, stacked

    cells = cells_of(job, tiny)
    samples = [scenarios.data_of(cell) for cell in cells]
    started = time.perf_counter()

    def listen(look: Any) -> None:
        epochs, found = look
        seconds = (time.perf_counter() - started) / len(cells)
        results = stacked.results_of(cells, samples, found)
        for cell, result in zip(cells, results, strict=True):
            own = cell | {"settings": cell["settings"] | {"max_epochs": epochs}}
            write(file, own, result, seconds)

    stacked.LISTENER.append(listen)
    settings = scenarios.settings_of(cells[0])
    for _ in stacked.PARTS[job.part](samples, settings, job.looks):
        pass


def one_of_digits(job: Job, tiny: bool, file: Path) -> None:
    """One ResNet."""
    from studies.paper import digits

    own = [cell for cell in digits.cells(tiny) if cell["part"] == job.part]
    numbers = [int(word) for word in job.name.split() if word.isdigit()]
    names = ("seed", "fold")[: len(numbers)]
    wanted = dict(zip(names, numbers, strict=True))
    own = [cell for cell in own if wanted.items() <= cell.items()]
    started = time.perf_counter()

    def listen(look: Any) -> None:
        epochs, result = look
        seconds = time.perf_counter() - started
        write(file, own[-1] | {"max_epochs": epochs}, result, seconds)

    if job.part == "digits fold":
        result = digits.fold(own[0])
        write(file, own[0], result, time.perf_counter() - started)
        return
    digits.LISTENER.append(listen)
    for _ in digits.printed(own[-1], job.looks):
        pass


def one_of_ours(job: Job, file: Path) -> None:
    """The package's default on one sample."""
    from studies.paper import scenarios

    ((problem, n, samples),) = job.problems
    cell = {"part": "ours", "problem": list(problem), "rows": n, "seed": samples - 1}
    started = time.perf_counter()
    result = scenarios.pool_run(cell)
    write(file, cell, result, time.perf_counter() - started)


def write(file: Path, cell: Any, result: Any, seconds: float) -> None:
    """Add a record; several processes may do so at once."""
    from studies.reproduction.mnist import plain
    from studies.store import new_record

    record = new_record("paper-stacked", cell, plain(result), seconds)
    line = json.dumps(record, allow_nan=False) + "\n"
    with file.open("a") as out:
        fcntl.flock(out, fcntl.LOCK_EX)
        out.write(line)
        out.flush()


# ------------------------------------------------------------------------------------------
# all jobs


#: How a process may end.
ENDS = ("failed", "ended", "out_of_time", "not_begun")


class Board:
    """Starts processes as there is room, and ends them when time is up."""

    def __init__(
        self, options: argparse.Namespace, environment: dict[str, str]
    ) -> None:
        self.options = options
        self.environment = environment
        self.started = time.monotonic()
        self.running: dict[str, tuple[subprocess.Popen[bytes], Job]] = {}
        self.met: dict[str, list[str]] = {name: [] for name in ENDS}

    def left(self) -> float:
        """Seconds until time is up."""
        return self.started + self.options.seconds - time.monotonic()

    def say(self, words: str) -> None:
        """Print with the time."""
        print(f"{time.monotonic() - self.started:5.0f} s  {words}", flush=True)

    def begin(self, job: Job) -> None:
        """Start a process."""
        environment = dict(self.environment)
        if not job.gpu:
            environment["CUDA_VISIBLE_DEVICES"] = ""
            environment["STUDIES_DEVICE"] = "cpu"
        arguments = [sys.executable, "-m", "studies.paper.on_gpu", "--job", job.name]
        arguments += ["--out", str(self.options.out)]
        if self.options.tiny:
            arguments.append("--tiny")
        with (self.options.out / "log.txt").open("ab") as log:
            process = subprocess.Popen(
                arguments, env=environment, stdout=log, stderr=log
            )
        self.running[job.name] = (process, job)
        self.say(f"begin {job.name}")

    def reap(self) -> None:
        """Note what has ended."""
        for name, (process, _) in list(self.running.items()):
            code = process.poll()
            if code is not None:
                del self.running[name]
                self.met["failed" if code else "ended"].append(name)
                self.say(f"end {name}: {code}")

    def room(self, job: Job) -> bool:
        """Whether another process of this kind may run beside the others."""
        alike = [other for _, other in self.running.values() if other.gpu == job.gpu]
        most = self.options.gpu_jobs
        if not job.gpu:
            most = self.options.cpu_jobs
        return len(alike) < most

    def run(self, waiting: list[Job]) -> None:
        """All jobs in their order, until there are none or time is up."""
        while self.left() > 0 and (waiting or self.running):
            self.reap()
            for job in list(waiting):
                if self.room(job):
                    waiting.remove(job)
                    self.begin(job)
            time.sleep(POLL_SECONDS)
        for name, (process, _) in self.running.items():
            process.kill()
            self.met["out_of_time"].append(name)
            self.say(f"out of time: {name}")
        for job in waiting:
            self.met["not_begun"].append(job.name)
            self.say(f"not begun: {job.name}")

    def header(self, gpu: str) -> str:
        """What became of every process, as the first line of the file of records."""
        seconds = round(time.monotonic() - self.started)
        from collidescope.pairwise.printed import PrintedSettings
        from studies.paper.stacked import config_of

        batch = config_of(PrintedSettings()).batch_for(B_ROWS)
        about = {"seconds": seconds, "gpu": gpu, "batch": batch, **self.met}
        return json.dumps({"header": {"board": about}})


SERVICE = "nvidia-cuda-mps-control"


def sharing(environment: dict[str, str], folder: Path) -> dict[str, str] | None:
    """With the service that lets processes use a GPU at the same time; None where it fails."""
    shared = dict(environment)
    for name in ("PIPE", "LOG"):
        own = folder / name.lower()
        own.mkdir(exist_ok=True)
        shared[f"CUDA_MPS_{name}_DIRECTORY"] = str(own)
    words = "import torch; x = torch.rand(99, 99).cuda(); print(float((x @ x).sum()))"
    calls = ((SERVICE, "-d"), (sys.executable, "-c", words))
    try:
        for call in calls:
            subprocess.run(
                call,
                env=shared,
                timeout=60,
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
    except (OSError, subprocess.SubprocessError) as error:
        print(f"processes take turns on the GPU: {error}", flush=True)
        return None
    print("processes share the GPU", flush=True)
    return shared


def end_sharing(environment: dict[str, str]) -> None:
    """End the service."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run([SERVICE], input=b"quit\n", env=environment, timeout=10)


def main() -> None:
    """All jobs, or one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--gpu-jobs", type=int, default=11)
    parser.add_argument("--cpu-jobs", type=int, default=5)
    parser.add_argument("--job")
    parser.add_argument(
        "--first", default="", help="jobs whose names begin so go first"
    )
    parser.add_argument("--tiny", action="store_true", help="small sizes, to try it")
    options = parser.parse_args()
    if options.job is not None:
        (job,) = [each for each in jobs(options.tiny) if each.name == options.job]
        try:
            work(job, options.tiny, options.out / "stacked.jsonl")
        except BaseException:
            print(f"failed: {job.name}", flush=True)
            raise
        return
    options.out.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ) | {"PYTHONUNBUFFERED": "1"}
    shared = None
    if environment.get("STUDIES_DEVICE", "cpu").startswith("cuda"):
        shared = sharing(environment, Path(tempfile.mkdtemp()))
        if shared is None:
            options.gpu_jobs = min(options.gpu_jobs, TURNS)
    wanted = sorted(
        jobs(options.tiny),
        key=lambda job: not (options.first and job.name.startswith(options.first)),
    )
    board = Board(options, shared or environment)
    board.run(wanted)
    gpu = "processes took turns" if shared is None else "processes shared it by MPS"
    (options.out / "header.jsonl").write_text(board.header(gpu) + "\n")
    if shared is not None:
        end_sharing(shared)


if __name__ == "__main__":
    main()
