"""MNIST: which digits does handwriting not tell apart? The paper's figures, by the default.

:class:`~collidescope.CollisionClassifier` as it comes, on all 60,000 training images; the paper's
own network of pairs is in :mod:`studies.paper.digits`. The quick size takes scikit-learn's digits
and one member.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from collidescope import CollisionClassifier, CollisionMatrix
from studies.measures import calibration_error
from studies.real_data import load_mnist
from studies.store import Cell, Study

FloatArray = npt.NDArray[np.float64]

#: Pairs shown however rare they are: those of the paper, and 1 and 7.
KNOWN_PAIRS = ((4, 9), (3, 5), (1, 7))
#: A posterior above this is "nearly one-hot".
ONE_HOT = 0.99
#: A second largest posterior above this splits between two digits.
SPLIT = 0.3
SMALLEST = 1e-12


class Data(NamedTuple):
    """Grey values (n, H, W) and digits, for training and for testing."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.intp]
    test_images: npt.NDArray[np.uint8]
    test_labels: npt.NDArray[np.intp]


def cells(quick: bool) -> list[Cell]:
    """Three seeds (one when quick)."""
    if quick:
        return [{"data": "digits", "members": ["gradients"], "seed": 0}]
    return [{"data": "mnist", "members": "auto", "seed": seed} for seed in range(3)]


def load_data(name: str) -> Data:
    """MNIST, or the same number of each of scikit-learn's digits, enlarged to 16×16."""
    if name == "mnist":
        return Data(*load_mnist("train"), *load_mnist("test"))
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = (bunch.images * 15).astype(np.uint8).repeat(2, axis=1).repeat(2, axis=2)
    labels = bunch.target.astype(np.intp)
    of_each = np.stack([np.flatnonzero(labels == k)[:65] for k in range(10)])
    train = np.sort(of_each[:, :45].ravel())
    test = np.sort(of_each[:, 45:].ravel())
    return Data(images[train], labels[train], images[test], labels[test])


def run(cell: Cell) -> dict[str, Any]:
    """S with intervals, posteriors of ambiguous images, accuracy on the test images."""
    data = load_data(cell["data"])
    clf = CollisionClassifier(
        cell["members"], limit=False, random_state=cell["seed"], verbose=1
    )
    started = time.perf_counter()
    clf.fit(data.images, data.labels)
    seconds = time.perf_counter() - started
    P_test = clf.predict_proba(data.test_images)
    cm = clf.collision_matrix_
    P = clf.posteriors_
    y = data.labels
    low, high = cm.interval() or (None, None)
    top = top_pairs(cm)
    pairs = [(pair["class"], pair["other"]) for pair in top]
    result = {
        "rows": len(y),
        "classes": cm.classes,
        "shape": data.images.shape[1:],
        "priors": cm.priors,
        "counts": cm.counts,
        "S": cm.matrix,
        "stderr": cm.stderr,
        "low": low,
        "high": high,
        "top": top,
        "pber": cm.pber,
        "pber_interval": cm.pber_interval(),
        "bayes_error_limit": cm.bayes_error_limit(),
        "gramian": clf.gramian_,
        "held_out": quality(P, y) | calibration(P, y) | doubt(P, y),
        "test": {"rows": len(P_test)} | quality(P_test, data.test_labels),
        "images": ambiguous_images(P, data, pairs),
        "training_seconds": seconds,
    }
    return dict(plain(result))


# ---------------------------------------------------------------- what is told of a result


def quality(P: FloatArray, y: npt.NDArray[np.intp]) -> dict[str, float]:
    """Accuracy, log loss and Brier score (over classes; its least possible value is the PBER)."""
    right = P.argmax(axis=1) == y
    own = P[np.arange(len(y)), y]
    losses = -np.log(np.maximum(own, SMALLEST))
    one_hot = np.eye(P.shape[1])[y]
    squares = (P - one_hot) ** 2
    return {
        "accuracy": float(right.mean()),
        "log_loss": float(losses.mean()),
        "brier": float(squares.sum(axis=1).mean()),
    }


def doubt(P: FloatArray, y: npt.NDArray[np.intp]) -> dict[str, dict[str, float]]:
    """Images nearly one-hot, and split between two digits: how many, how often labels agree."""
    order = np.argsort(-P, axis=1)
    likeliest = order[:, :2]
    first, second = np.take_along_axis(P, likeliest, axis=1).T
    agrees = likeliest == y[:, None]
    groups = {"one_hot": first > ONE_HOT, "split": second > SPLIT}
    found = {}
    for name, chosen in groups.items():
        if chosen.any():
            right = agrees[chosen]
            found[name] = {
                "images": int(chosen.sum()),
                "first": float(first[chosen].mean()),
                "first_right": float(right[:, 0].mean()),
                "either_right": float(right.any(axis=1).mean()),
            }
    return found


def calibration(P: FloatArray, y: npt.NDArray[np.intp]) -> dict[str, float]:
    """Expected calibration error of the likelier class, and the temperature that would suit the
    labels best."""
    logits = np.log(np.maximum(P, SMALLEST))

    def loss(log_temperature: float) -> float:
        return float(
            -log_softmax(logits / np.exp(log_temperature), axis=1)[
                np.arange(len(y)), y
            ].mean()
        )

    best = minimize_scalar(loss, bounds=(-2, 2), method="bounded")
    return {
        "calibration_error": calibration_error(P, y),
        "temperature": float(np.exp(best.x)),
    }


def top_pairs(cm: CollisionMatrix) -> list[dict[str, Any]]:
    """The most colliding pairs with their intervals, one mapping each."""
    return cm.top_collisions(10).to_dict("records")  # type: ignore[return-value]


def ambiguous_images(
    P: FloatArray,
    data: Data,
    pairs: Iterable[tuple[int, int]],
) -> list[dict[str, Any]]:
    """Images with their held-out posteriors: the most uncertain, the most even of each pair, and a
    clear 0.
    """
    entropy = -(P * np.log(np.maximum(P, SMALLEST))).sum(axis=1)
    chosen = {int(row): "entropy" for row in np.argsort(-entropy, kind="stable")[:8]}
    for a, b in dict.fromkeys(
        (min(pair), max(pair)) for pair in [*pairs, *KNOWN_PAIRS]
    ):
        order = np.argsort(-np.minimum(P[:, a], P[:, b]), kind="stable")
        fresh = [int(row) for row in order[: 2 + len(chosen)] if int(row) not in chosen]
        chosen |= dict.fromkeys(fresh[:2], f"{a} or {b}")
    zeros = np.flatnonzero(data.labels == 0)
    chosen.setdefault(int(zeros[P[zeros, 0].argmax()]), "clear")
    return [
        {
            "row": row,
            "label": int(data.labels[row]),
            "why": why,
            "entropy": round(float(entropy[row]), 5),
            "posterior": P[row].round(5).tolist(),
            "pixels": base64.b64encode(data.images[row].tobytes()).decode(),
        }
        for row, why in chosen.items()
    ]


def plain(value: Any) -> Any:
    """Arrays as lists, numbers with ten digits, what is no number as None: for JSON."""
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    if isinstance(value, float):
        return float(f"{value:.10g}") if np.isfinite(value) else None
    return value


STUDY = Study(
    name="mnist",
    title="MNIST: collisions of digits and ambiguous images, by the default",
    cells=cells,
    run=run,
    alone=True,
)
