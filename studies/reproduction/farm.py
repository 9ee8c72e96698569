"""Many cells at once on a machine with a GPU, within a time: ``python -m studies.reproduction.farm FILE SECONDS < PLAN``.

A line of the plan is ``[queue, experiment, cell]`` in JSON: ``gpu`` for networks that need the GPU, ``net`` for
networks that either can train, ``cpu`` for the rest; ``python -m studies.reproduction.farm plan`` lists all missing cells, lower
seeds first. Records go to FILE as they come, so what is done at the end is kept, and ``python -m studies adopt
FILE`` takes them over.

On the GPU a step of a small network is mostly the launching of its kernels: :func:`replayed` records a step once and
replays it (a CUDA graph), the same kernels in the same order on other rows. ``--graphs`` asks for that, and
``--graphs=flat`` for all networks but those of images.
"""

import json
import multiprocessing as mp
import os
import sys
import time
from pathlib import Path
from queue import Empty

#: Steps made one by one before one is recorded: libraries and optimiser then hold all memory that they need.
WARM_STEPS = 3


def replayed(step, images=True):
    """``train_step`` of :mod:`collidescope.training.loop`, replayed from a CUDA graph for each shape of batch."""
    import torch

    def call(module, objective, optimizer, batch):
        parts = batch if isinstance(batch, tuple) else (batch,)
        kept = optimizer.__dict__.setdefault("graphs", {})
        shapes = tuple(part.shape for part in parts)
        seen = kept.get(shapes, 0)
        if not parts[0].is_cuda or seen is None or (len(objective.X.shape) > 2 and not images):
            return step(module, objective, optimizer, batch)
        if seen in range(WARM_STEPS):
            for group in optimizer.param_groups:
                group["capturable"] = True
            kept[shapes] = seen + 1
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                loss = step(module, objective, optimizer, batch)
            torch.cuda.current_stream().wait_stream(stream)
            return loss
        if seen == WARM_STEPS:
            graph, static = torch.cuda.CUDAGraph(), tuple(part.clone() for part in parts)
            given = static if isinstance(batch, tuple) else static[0]
            try:
                with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                    loss = step(module, objective, optimizer, given)
            except (
                RuntimeError
            ) as error:  # something in the step waits for the GPU: such steps are made one by one
                print(f"not recorded: {str(error).splitlines()[0]}", flush=True)
                kept[shapes] = None
                return step(module, objective, optimizer, batch)
            seen = kept[shapes] = graph, static, loss
        graph, static, loss = seen
        for place, part in zip(static, parts, strict=True):
            place.copy_(part)
        graph.replay()
        return loss.clone()

    return call


def work(queues, done, gpu, graphs):
    """One process: the first queue until it is empty, then the next."""
    if not gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    from collidescope.training import loop
    from studies.reproduction import mnist
    from studies.reproduction.catalogue import EXPERIMENTS
    from studies.runner import _record

    if gpu and graphs:
        loop.train_step = replayed(loop.train_step, images=graphs == "--graphs")
    for queue in queues:
        while True:
            try:
                name, cell = queue.get(timeout=1)
            except Empty:
                break
            start, error = time.time(), ""
            words = {
                key: cell.get(key) for key in ("method", "arguments", "dataset", "seed", "fold")
            }
            try:
                fold = cell.pop("fold", None)
                if fold is None or mnist.last_fold(cell, fold):
                    done.put((name, _record(EXPERIMENTS[name].run, cell)))
            except Exception as problem:  # one cell must not take the others with it
                error = repr(problem)[:300]
            print(
                f"{time.time() - start:.0f} s {name} {words} {'gpu' if gpu else 'cpu'} {error}",
                flush=True,
            )


def plan():
    """Print the missing cells of all experiments, those of one seed together."""
    from studies.reproduction.catalogue import EXPERIMENTS
    from studies.store import key_of, load, path_of

    lines = []
    for name, experiment in EXPERIMENTS.items():
        done = load(path_of(name))
        for cell in experiment.cells(False):
            if key_of(cell) not in done:
                queue = "cpu" if cell.get("method", "collidescope") == "collidescope" else "gpu"
                folds = (
                    [{"fold": fold} for fold in range(cell["cv"])]
                    if cell.get("model") == "pairwise"
                    else [{}]
                )
                lines += [
                    (cell.get("seed", 0), json.dumps([queue, name, cell | fold])) for fold in folds
                ]
    print("\n".join(line for _, line in sorted(lines, key=lambda pair: pair[0])))


def main():
    from studies.store import append

    file, seconds, graphs = Path(sys.argv[1]), float(sys.argv[2]), "".join(sys.argv[3:])
    end = time.time() + seconds
    spawn = mp.get_context("spawn")
    queues, done = {name: spawn.Queue() for name in ("gpu", "net", "cpu")}, spawn.Queue()
    for line in sys.stdin:
        name, experiment, cell = json.loads(line)
        queues[name].put((experiment, cell))
    orders = {True: ("gpu", "net"), False: ("cpu", "net")}
    count = {
        True: int(os.environ.get("GPU_WORKERS", "6")),
        False: int(os.environ.get("CPU_WORKERS", "10")),
    }
    workers = [
        spawn.Process(
            target=work,
            args=([queues[name] for name in orders[gpu]], done, gpu, graphs),
            daemon=True,
        )
        for gpu in (True, False)
        for _ in range(count[gpu])
    ]
    for worker in workers:
        worker.start()
    while time.time() < end and (any(worker.is_alive() for worker in workers) or not done.empty()):
        try:
            name, record = done.get(timeout=1)
        except Empty:
            continue
        append(file, record | {"experiment": name})
    for worker in workers:
        worker.terminate()


if __name__ == "__main__":
    plan() if sys.argv[1:] == ["plan"] else main()
