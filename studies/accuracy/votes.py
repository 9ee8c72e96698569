"""S from votes: do two votes per image agree with all, is anybody flagged wrongly, what does it cost?

The images are those of Fashion-MNIST-H, in the folder that ``COLLIDESCOPE_DATA`` names. Whether
intervals hold is asked in ``studies/grid.py``.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

from collidescope.applications.annotators import compare_annotators
from collidescope.counting import collision_matrix_from_votes, count_collisions
from collidescope.equations.densities import draw_classes
from studies.markdown import again
from studies.measures import Rng
from studies.real_data import load_fashion_votes
from studies.store import Cell, Result, Study, by_part, results

SEED = 0


def two_votes(draws: int = 100) -> Result:
    """Two votes per image of Fashion-MNIST-H against all of them."""
    votes = load_fashion_votes()[1]
    start = time.perf_counter()
    full = collision_matrix_from_votes(votes)
    seconds = time.perf_counter() - start
    rng = np.random.default_rng(SEED)
    N = votes.sum(axis=1)
    ends = votes.cumsum(axis=1)
    rows = np.arange(len(votes))
    found = {"same images": [], "images drawn again": []}
    for _ in range(draws):
        for how, hits in found.items():
            image = rows
            if how == "images drawn again":
                image = rng.choice(rows, len(rows))
            first = rng.integers(0, N[image])
            second = rng.integers(0, N[image] - 1)
            # two different votes of the image
            pair = np.stack([first, second + (second >= first)])
            classes = (ends[image] <= pair[:, :, None]).sum(axis=2)
            cm = count_collisions(np.tile(rows, 2), classes.ravel(), average="items")
            low, high = cm.interval()
            hits.append((low <= full.matrix) & (full.matrix <= high))
    return {
        "seconds": seconds,
        "pber": full.pber,
        "pber_interval": full.pber_interval(),
        "covered, same images": float(np.mean(found["same images"])),
        "covered, images drawn again": float(np.mean(found["images drawn again"])),
    }


def annotators(samples: int = 300) -> dict[str, float]:
    """Is anybody flagged among 20 who vote alike, and the one who guesses in 40% of cases?"""
    rng = np.random.default_rng(SEED)
    anybody = [flagged(False, rng).any() for _ in range(samples)]
    found = [flagged(True, rng)[0] for _ in range(50)]
    return {
        "anybody_flagged_where_all_vote_alike": float(np.mean(anybody)),
        "careless_found": float(np.mean(found)),
    }


def flagged(careless: bool, rng: Rng) -> Any:
    """Who of 20 annotators is flagged; the first guesses at times if ``careless``."""
    P = rng.dirichlet(np.full(5, 0.3), 600)
    items = np.repeat(np.arange(600), 5)
    who = np.argsort(rng.random((600, 20)), axis=1)[:, :5].ravel()
    labels = draw_classes(P[items], rng)
    guess = careless & (who == 0) & (rng.random(3000) < 0.4)
    labels = np.where(guess, rng.integers(0, 5, 3000), labels)
    return compare_annotators(items, labels, who).annotators["flagged"]


def speed(repeats: int = 3) -> Result:
    """Seconds and memory, each in a process of its own."""
    rows = []
    for k, form in (
        (10, "long, whole numbers"),
        (10, "long, text"),
        (10, "wide"),
        (1000, "long, whole numbers"),
    ):
        call = f"from studies.accuracy.votes import one_speed; one_speed(1_000_000, {k}, {form!r})"
        command = [sys.executable, "-c", call]
        told = []
        for _ in range(repeats):
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            told.append([float(value) for value in done.stdout.split()])
        seconds, used, memory = min(told)  # the run least disturbed
        rows.append(
            {
                "items": 1_000_000,
                "votes": 10_000_000,
                "classes": k,
                "form": form,
                "seconds": seconds,
                "processor_seconds": used,
                "peak_memory_gib": memory,
            }
        )
    return {"rows": rows}


def one_speed(n: int, k: int, form: str, each: int = 10) -> None:
    """Print seconds, processor seconds and peak memory of one run."""
    rng = np.random.default_rng(SEED)
    likely = rng.integers(0, k, n)
    items = np.repeat(np.arange(n), each)[rng.permutation(n * each)]
    labels = np.where(
        rng.random(n * each) < 0.7, likely[items], rng.integers(0, k, n * each)
    )
    if form == "wide":
        votes = np.bincount(items * k + labels, minlength=n * k).reshape(n, k)
        del items, labels
    elif form == "long, text":
        labels = np.array([f"class {j}" for j in range(k)], dtype=object)[labels]
    start = time.perf_counter()
    used = time.process_time()
    if form == "wide":
        collision_matrix_from_votes(votes)
    else:
        count_collisions(items, labels, average="items")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(time.perf_counter() - start, time.process_time() - used, memory)


PARTS = {
    "fashion_mnist_h": two_votes,
    "annotators": annotators,
    "speed": speed,
}


def cells(quick: bool) -> list[Cell]:
    if quick:
        return [{"part": "annotators", "samples": 5}]
    return [{"part": part} for part in PARTS]


def run(cell: Cell) -> Result:
    settings = dict(cell)
    return PARTS[settings.pop("part")](**settings)


def page_tables() -> dict[str, str]:
    """The parts of docs/votes.md, by the name of their place."""
    found = by_part(results("votes"))
    images = found["fashion_mnist_h"]
    low, high = images["pber_interval"]
    said = found["annotators"]
    times = [
        f"K={r['classes']:,}, {r['form']}: {r['seconds']:.1f} s and {r['peak_memory_gib']:.1f} GiB"
        for r in found["speed"]["rows"]
    ]
    text = f"""On Fashion-MNIST-H (10,000 images, 53 to 79 votes each;
PBER {images["pber"]:.4f}, {low:.4f} to {high:.4f}) the intervals of S from two random votes per
image contain S from all votes in {images["covered, same images"]:.1%} of entries and draws, and in
{images["covered, images drawn again"]:.1%} where the images are also drawn again. Among 20
annotators who vote alike, somebody is flagged in
{said["anybody_flagged_where_all_vote_alike"]:.0%} of samples (5% are allowed); one who guesses in
40% of cases is found in {said["careless_found"]:.0%}. Ten million votes on a million items:
{"; ".join(times)}. {again("votes")}"""
    return {"votes": text}


STUDY = Study(
    "votes", "S from votes: two votes per image, annotators, speed", cells, run
)
