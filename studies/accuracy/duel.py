"""6,000 MNIST images of 1, 4 and 9: what do estimates of the Bayes error say is possible, and what do networks reach?

DataEval's tutorial reads the best possible accuracy off ``ber_mst`` on such images. The same images here (2,000 of each
digit, pixels between 0 and 1), the same formulas, our upper limit and range from the pool on pixels and from a small
convolutional network, and the accuracy of that network on the test images of the three digits.

    python -m studies.accuracy.duel --jobs 4 [--data FOLDER] [--device cuda] [--rows 6000]
"""

from __future__ import annotations

import argparse
import os
from functools import partial
from typing import Any

import numpy as np

from collidescope.classifier import CollisionClassifier
from studies.accuracy import _record
from studies.accuracy.feebee import RIVALS

DIGITS = (1, 4, 9)
POOL, NETWORK = "collidescope, default", "collidescope, small convolutional network"
TRAINING = {"max_epochs": 30, "patience": 6, "batch_size": 64, "learning_rate": 2e-3}


def images(part: str, rows: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Images between 0 and 1, (n, 28, 28), and class numbers 0 to 2; as many of each digit."""
    from studies.real_data import load_mnist

    X, y = load_mnist(part)
    rng = np.random.default_rng(0)
    kept = [rng.permutation(np.flatnonzero(y == digit)) for digit in DIGITS]
    chosen = np.concatenate(
        kept if rows is None else [each[: rows // len(DIGITS)] for each in kept]
    )
    chosen = rng.permutation(chosen)
    return X[chosen] / 255.0, np.searchsorted(DIGITS, y[chosen])


def measure(method: str, rows: int, device: str) -> dict[str, Any]:
    """Bounds on the Bayes error of one method, and the error of its own predictions where it makes some."""
    X, y = images("train", rows)
    if method in RIVALS:
        low, high = RIVALS[method](X.reshape(len(X), -1), y)
        return {"low": low, "high": high}
    settings: dict[str, Any] = {"random_state": 0, "device": device}
    X_test, y_test = images("test")
    if method == NETWORK:
        from studies.reproduction.mnist_networks import conv_encoder

        X, X_test = X[:, None], X_test[:, None]  # one channel
        settings |= {"model": partial(conv_encoder, width=8), "training": TRAINING}
    else:
        X, X_test = X.reshape(len(X), -1), X_test.reshape(len(X_test), -1)
    clf = CollisionClassifier(**settings).fit(X, y)
    assert clf.limit_ is not None
    low, high = clf.limit_.bayes_error_interval()
    return {
        "low": low,
        "high": high,
        "upper_limit": clf.collision_matrix_.bayes_error_limit(),
        "state": clf.limit_.state,
        "held_out_error": clf.collision_matrix_.held_out_error,
        "test_error": float((clf.predict(X_test) != y_test).mean()),
        "test_rows": len(y_test),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="folder with mnist/ (default: $COLLIDESCOPE_DATA)")
    parser.add_argument("--rows", type=int, default=6_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--methods", nargs="*", default=[NETWORK, POOL, *RIVALS])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--record", default="duel", help="name of the file of results")
    options = parser.parse_args()
    if options.data:
        os.environ["COLLIDESCOPE_DATA"] = options.data
    cells = [
        {"method": method, "rows": options.rows, "device": options.device}
        for method in options.methods
    ]
    for run in _record.resume(
        options.record, {"digits": DIGITS, "training": TRAINING}, cells, measure, options.jobs
    ):
        own = f", own test error {run['test_error']:.4f}" if "test_error" in run else ""
        print(f"{run['method']:<45} {run['low']:.4f} to {run['high']:.4f}{own}")


if __name__ == "__main__":
    main()
