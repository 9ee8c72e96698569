"""6,000 MNIST images of 1, 4 and 9: which error is said to be possible, and which is reached?

DataEval's tutorial reads the best possible accuracy off ``ber_mst`` on such images. The same images
here (2,000 of each digit, pixels between 0 and 1), the same formulas, our upper limit and range
from the pool on pixels and from a small convolutional network, and the accuracy of that network on
the test images of the three digits.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from collidescope import CollisionClassifier
from studies.baselines.bounds import BOUNDS
from studies.markdown import again, table
from studies.real_data import load_mnist
from studies.store import Cell, Record, Result, Study, flat

DIGITS = (1, 4, 9)
POOL = "collidescope, default"
NETWORK = "collidescope, small convolutional network"


def images(part: str, rows: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Images between 0 and 1, (n, 28, 28), and class numbers 0 to 2; as many of each digit."""
    X, y = load_mnist(part)
    rng = np.random.default_rng(0)
    kept = [rng.permutation(np.flatnonzero(y == digit)) for digit in DIGITS]
    if rows is not None:
        kept = [each[: rows // len(DIGITS)] for each in kept]
    chosen = rng.permutation(np.concatenate(kept))
    return X[chosen] / 255.0, np.searchsorted(DIGITS, y[chosen])


def cells(quick: bool) -> list[Cell]:
    if quick:
        return [{"method": "10-NN", "rows": 300, "device": "cpu"}]
    methods = (NETWORK, POOL, *BOUNDS)
    return [{"method": method, "rows": 6_000, "device": "cpu"} for method in methods]


def run(cell: Cell) -> Result:
    """Bounds on the Bayes error of one method, and the error of its own predictions."""
    X, y = images("train", cell["rows"])
    if cell["method"] in BOUNDS:
        low, high = BOUNDS[cell["method"]](X.reshape(len(X), -1), y)
        return {"low": low, "high": high}
    X_test, y_test = images("test")
    if cell["method"] == NETWORK:
        from studies.reproduction.mnist_networks import conv_encoder

        training = {
            "max_epochs": 30,
            "patience": 6,
            "batch_size": 64,
            "learning_rate": 2e-3,
        }
        encoder = partial(conv_encoder, width=8)
        clf = CollisionClassifier(
            model=encoder, training=training, random_state=0, device=cell["device"]
        )
        X = X[:, None]  # one channel
        X_test = X_test[:, None]
    else:
        clf = CollisionClassifier(random_state=0, device=cell["device"])
        X = X.reshape(len(X), -1)
        X_test = X_test.reshape(len(X_test), -1)
    clf.fit(X, y)
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


def text(records: list[Record]) -> str:
    runs = [flat(record) for record in records]
    rows = []
    for run in sorted(runs, key=lambda run: run["method"] in (POOL, NETWORK)):
        bound = "least" if "test_error" in run else "most"
        said = f"at {bound} {1 - run['high']:.1%}"
        own = [
            f"{run[key]:.2%}" if key in run else ""
            for key in ("held_out_error", "test_error")
        ]
        rows.append(
            [run["method"], f"{run['low']:.2%}", f"{run['high']:.2%}", said, *own]
        )
    head = ["method", "lower", "upper", "best possible accuracy"]
    head += ["own held-out error", "own test error"]
    best = min(run["test_error"] for run in runs if "test_error" in run)
    tested = max(run.get("test_rows", 0) for run in runs)
    refuted = [run["method"] for run in runs if run["low"] > best]
    size = runs[0]["rows"]
    return f"""## {size:,} images of 1, 4 and 9

DataEval's tutorial reads from `ber_mst` on such images of MNIST which accuracy is possible at most.
Bounds on the Bayes error from the same images, and the errors of our models on held-out images and
on {tested:,} test images:

```python
# not run: needs the images of MNIST
from studies.accuracy.duel import images
from studies.baselines.bounds import mst_bounds
from collidescope import CollisionClassifier

X, y = images("train", {size})
X = X.reshape(len(X), -1)
print(
    mst_bounds(X, y),
    CollisionClassifier(random_state=0).fit(X, y).limit_.bayes_error_interval(),
)
```

{table(head, rows)}

The Bayes error is at most the error of any classifier. A small convolutional network errs on
{best:.2%} of the test images, which refutes the lower bounds of: {"; ".join(refuted) or "none"}.
{again("duel")}"""


STUDY = Study(
    "duel", "Bounds on the Bayes error of 6,000 images, and a network", cells, run, text
)
