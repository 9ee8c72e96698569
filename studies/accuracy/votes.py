"""S from votes: is it unbiased, do its intervals cover, do two votes per image agree with all of them, how fast is it?

Run with ``COLLIDESCOPE_DATA`` for the images of Fashion-MNIST-H; without it that part is left out.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from collidescope.applications.annotators import compare_annotators
from collidescope.counting import collision_matrix_from_votes, count_collisions
from studies.accuracy._record import save

SEED, SAMPLES, ITEMS, CLASSES, REPEATS = 0, 1000, 1000, 4, 3
NUMBERS = {
    "2 votes": lambda rng, n: np.full(n, 2),
    "5 votes": lambda rng, n: np.full(n, 5),
    "50 votes": lambda rng, n: np.full(n, 50),
    "2 to 50 votes, evenly": lambda rng, n: rng.integers(2, 51, n),
    "90% with 2 votes, 10% with 50": lambda rng, n: np.where(rng.random(n) < 0.9, 2, 50),
}
#: (items, votes on each, classes, form) of the runs whose time and memory are taken, each in a process of its own.
SPEED = [
    (1_000_000, 10, 10, "long, whole numbers"),
    (1_000_000, 10, 10, "long, text"),
    (1_000_000, 10, 10, "wide"),
    (1_000_000, 10, 1000, "long, whole numbers"),
]


def planted(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(posteriors, weights) of a population of 200 kinds of items."""
    logits = 1.5 * rng.standard_normal((200, CLASSES)) + np.log([4, 3, 2, 1])
    P = np.exp(logits)
    return P / P.sum(axis=1, keepdims=True), rng.dirichlet(np.ones(200))


def inside(interval: tuple[Any, Any], truth: Any) -> Any:
    return (interval[0] <= truth) & (truth <= interval[1])


def bias_and_coverage() -> dict[str, Any]:
    P, weights = planted(np.random.default_rng(SEED))
    B = P.T @ (weights[:, None] * P)
    S = B / B.sum(axis=1, keepdims=True)
    rows = {}
    print(f"{'votes per item':<32}  bias B  bias S  S covered  worst entry   PBER  merged")
    for name, numbers in NUMBERS.items():
        rng = np.random.default_rng(SEED)
        runs = [
            collision_matrix_from_votes(
                rng.multinomial(numbers(rng, ITEMS), P[rng.choice(200, ITEMS, p=weights)])
            )
            for _ in range(SAMPLES)
        ]
        joint, matrix = np.array([cm.joint for cm in runs]), np.array([cm.matrix for cm in runs])
        covered = np.mean([inside(cm.interval(), S) for cm in runs], axis=0)
        A = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
        merged = A.T @ B @ A
        merged /= merged.sum(axis=1, keepdims=True)
        rows[name] = row = {
            "bias_B": float((np.abs(joint.mean(axis=0) - B) / joint.std(axis=0)).max()),
            "bias_S": float((np.abs(matrix.mean(axis=0) - S) / matrix.std(axis=0)).max()),
            "S": float(covered.mean()),
            "worst_entry": float(covered.min()),
            "PBER": float(np.mean([inside(cm.pber_interval(), 1 - np.trace(B)) for cm in runs])),
            "merged": float(
                np.mean([inside(cm.merge([[0, 1]]).interval(), merged) for cm in runs])
            ),
        }
        widths = (7, 7, 10, 12, 6, 7)
        print(
            f"{name:<32} "
            + " ".join(f"{v:>{w}.3f}" for v, w in zip(row.values(), widths, strict=True))
        )
    return rows


def two_votes_per_image(draws: int = 100) -> dict[str, Any] | None:
    file = Path(os.environ.get("COLLIDESCOPE_DATA", "")) / "fashion_mnist_h" / "fashion_mnist_h.npz"
    if not file.exists():
        print("Fashion-MNIST-H: left out, COLLIDESCOPE_DATA does not hold it")
        return None
    votes = np.load(file)["V"]
    start = time.perf_counter()
    full = collision_matrix_from_votes(votes)
    seconds = time.perf_counter() - start
    rng = np.random.default_rng(SEED)
    N, ends, rows = votes.sum(axis=1), votes.cumsum(axis=1), np.arange(len(votes))
    found: dict[str, list[Any]] = {"same images": [], "images drawn again": []}
    for _ in range(draws):
        for how, hits in found.items():
            image = rows if how == "same images" else rng.choice(rows, len(rows))
            first = rng.integers(0, N[image])
            second = rng.integers(0, N[image] - 1)
            pair = np.stack([first, second + (second >= first)])  # two different votes of the image
            classes = (ends[image] <= pair[:, :, None]).sum(axis=2)
            cm = count_collisions(np.tile(rows, 2), classes.ravel(), average="items")
            hits.append(inside(cm.interval(), full.matrix))
    result: dict[str, Any] = {
        "seconds": seconds,
        "pber": full.pber,
        "pber_interval": full.pber_interval(),
    }
    result |= {f"covered, {how}": float(np.mean(hits)) for how, hits in found.items()}
    print("Fashion-MNIST-H:", result)
    return result


def flags(samples: int = 300) -> dict[str, float]:
    """How often is anybody flagged among 20 annotators who vote alike, and the one who guesses in 40% of cases?"""
    rng = np.random.default_rng(SEED)
    anybody, found = [], []
    for careless in [False] * samples + [True] * 50:
        P = rng.dirichlet(np.full(5, 0.3), 600)
        items, who = (
            np.repeat(np.arange(600), 5),
            np.argsort(rng.random((600, 20)), axis=1)[:, :5].ravel(),
        )
        labels = (rng.random((3000, 1)) >= P[items].cumsum(axis=1)).sum(axis=1).clip(0, 4)
        guess = careless & (who == 0) & (rng.random(3000) < 0.4)
        table = compare_annotators(
            items, np.where(guess, rng.integers(0, 5, 3000), labels), who
        ).annotators
        (found if careless else anybody).append(
            table["flagged"][0] if careless else table["flagged"].any()
        )
    result = {
        "anybody_flagged_where_all_vote_alike": float(np.mean(anybody)),
        "careless_found": float(np.mean(found)),
    }
    print("annotators:", result)
    return result


def speed(n: int, each: int, k: int, form: str) -> None:
    """Print seconds, processor seconds and peak memory of one run."""
    rng = np.random.default_rng(SEED)
    likely = rng.integers(0, k, n)
    items = np.repeat(np.arange(n), each)[rng.permutation(n * each)]
    labels: Any = np.where(rng.random(n * each) < 0.7, likely[items], rng.integers(0, k, n * each))
    if form == "wide":
        votes = np.bincount(items * k + labels, minlength=n * k).reshape(n, k)
        del items, labels
    elif form == "long, text":
        labels = np.array([f"class {j}" for j in range(k)], dtype=object)[labels]
    start, used = time.perf_counter(), time.process_time()
    if form == "wide":
        collision_matrix_from_votes(votes)
    else:
        count_collisions(items, labels, average="items")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(time.perf_counter() - start, time.process_time() - used, memory)


def main() -> None:
    results: dict[str, Any] = {
        "planted": bias_and_coverage(),
        "fashion_mnist_h": two_votes_per_image(),
    }
    results["annotators"] = flags()
    results["speed"] = []
    for n, each, k, form in SPEED:
        call = f"from studies.accuracy.votes import speed; speed({n}, {each}, {k}, {form!r})"
        told = [
            subprocess.run(
                [sys.executable, "-c", call], capture_output=True, text=True, check=True
            ).stdout.split()
            for _ in range(REPEATS)
        ]
        seconds, used, memory = min(
            [float(value) for value in line] for line in told
        )  # the run least disturbed
        results["speed"].append(
            {"items": n, "votes": n * each, "classes": k, "form": form, "seconds": seconds}
        )
        results["speed"][-1] |= {"processor_seconds": used, "peak_memory_gib": memory}
        print(
            f"{n * each:,} votes, K={k}, {form}: {seconds:.1f} s ({used:.1f} s of processor), {memory:.2f} GiB"
        )
    save(
        "votes",
        {"seed": SEED, "samples": SAMPLES, "items": ITEMS, "classes": CLASSES, "level": 0.95},
        results,
    )


if __name__ == "__main__":
    main()
