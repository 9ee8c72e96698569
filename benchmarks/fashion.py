"""Images with human votes: is the counted truth inside the range?

Fashion-MNIST-H has 10,000 images with about 67 votes each. One vote per image is drawn and given as its label; S, PBER
and the range that follow are compared with the truth counted from pairs of votes on one image.

    COLLIDESCOPE_DATA=FOLDER python -m benchmarks.fashion --draws 5 [--at-once 5] [--jobs 3] [--device cuda]
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

import numpy as np
from joblib.externals.loky import get_reusable_executor

from benchmarks import _record
from collidescope import CollisionClassifier, collision_matrix_from_votes
from experiments.real_data import data_folder


def one_draw(seed: int, rows: int, jobs: int, device: str) -> dict[str, Any]:
    """What a fit on one vote per image says, beside the truth."""
    warnings.simplefilter("ignore")
    with np.load(data_folder() / "fashion_mnist_h" / "fashion_mnist_h.npz") as file:
        X, votes = file["X"][:rows], file["V"][:rows]
    truth = collision_matrix_from_votes(votes)
    rng = np.random.default_rng(seed)
    shares = votes / votes.sum(axis=1, keepdims=True)
    y = (rng.random((len(votes), 1)) >= shares.cumsum(axis=1)).sum(axis=1)
    start = time.perf_counter()
    clf = CollisionClassifier(random_state=seed, n_jobs=jobs, device=device).fit(X, y)
    seconds = time.perf_counter() - start
    get_reusable_executor().shutdown()  # idle workers would keep this process alive for minutes
    cm, limit = clf.collision_matrix_, clf.limit_

    def against(found: Any) -> dict[str, float]:
        low, high = found.interval()
        inside = (low <= truth.matrix) & (truth.matrix <= high)
        tvd = np.abs(found.matrix - truth.matrix).sum(axis=1).mean() / 2
        return {"tvd": float(tvd), "covered": float(inside.mean())}

    return {
        "seed": seed,
        "pool": _record.POOL,
        "seconds": seconds,
        "truth": truth.pber,
        "pber": cm.pber,
        "pber_interval": cm.pber_interval(),
        "range": limit.pber_interval(),
        "state": limit.state,
        "limit": limit.pber,
        "curve": limit.curve["pber"].tolist(),
        "S": against(cm),
        "S at the limit": against(limit.matrix),
        "weights": clf._ensemble.weights,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--at-once", type=int, default=1, help="draws at once")
    parser.add_argument("--jobs", type=int, default=1, help="processes of a draw")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    import torch  # noqa: F401  (the record names the GPU that torch sees)

    results = []
    with ProcessPoolExecutor(arguments.at_once, multiprocessing.get_context("spawn")) as executor:
        options = (arguments.rows, arguments.jobs, arguments.device)
        waiting = [executor.submit(one_draw, seed, *options) for seed in range(arguments.draws)]
        for done in as_completed(waiting):
            results.append(done.result())
            print(results[-1], flush=True)
            results.sort(key=lambda result: result["seed"])
            _record.save("fashion", {"rows": arguments.rows, "draws": arguments.draws}, results)


if __name__ == "__main__":
    main()
