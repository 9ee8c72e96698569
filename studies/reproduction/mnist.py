"""MNIST: which digits does handwriting not tell apart? The paper's figures, and its ResNet-18.

Two cells a seed. The factorised one is :class:`~collidescope.CollisionClassifier` with a
convolutional encoder on all 60,000 training images. The pair-wise one trains the paper's network
once and reads it both as the paper does (Algorithm 2: descent, then S⁻¹q) and with the logit shift
(root, then least squares). The quick size takes scikit-learn's digits.
"""

from __future__ import annotations

import base64
import tempfile
import time
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from collidescope import CollisionClassifier, CollisionMatrix, recover
from collidescope.equations.bounds import bayes_error_bounds
from studies.measures import calibration_error
from studies.models import estimator_settings, pairwise
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
    """Both models with three seeds (one when quick)."""
    shared: Cell = {"data": "mnist", "cv": 5, "batch_size": 256, "weight_decay": 1e-2}
    factorised: Cell = {"max_epochs": 40, "patience": 8, "learning_rate": 2e-3}
    factorised |= {"width": 32, "dropout": 0.3, "jitter": True}
    pairwise: Cell = {"max_epochs": 30, "patience": 6, "learning_rate": 1e-3}
    pairwise |= {"width": 64, "n_references": 20, "descent_steps": 50_000}
    if quick:
        shared |= {"data": "digits", "cv": 2, "batch_size": 16}
        factorised |= {"max_epochs": 6, "learning_rate": 5e-3, "width": 8}
        pairwise |= {
            "max_epochs": 6,
            "learning_rate": 3e-3,
            "width": 8,
            "n_references": 4,
            "descent_steps": 500,
        }
    models = {"factorised": ("factorised convolutional encoder", factorised)}
    models["pairwise"] = ("pairwise ResNet-18", pairwise)
    return [
        {"model": model, "method": method, "seed": seed} | shared | settings
        for seed in range(1 if quick else 3)
        for model, (method, settings) in models.items()
    ]


def run(cell: Cell) -> dict[str, Any]:
    """Run a cell; a result that JSON can hold."""
    data = load_data(cell["data"])
    result = {"factorised": run_factorised, "pairwise": run_pairwise}[cell["model"]](
        cell, data
    )
    rows, k = len(data.labels), len(np.unique(data.labels))
    return plain(
        {
            "rows": rows,
            "classes": list(range(k)),
            "shape": data.images.shape[1:],
            **result,
        }
    )


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


def run_factorised(cell: Cell, data: Data) -> dict[str, Any]:
    """S with intervals, posteriors of ambiguous images, accuracy on the test images."""
    from studies.reproduction.mnist_networks import conv_encoder, n_weights

    encoder = partial(
        conv_encoder,
        width=cell["width"],
        dropout=cell["dropout"],
        jitter=cell["jitter"],
    )
    settings = estimator_settings({"members": [encoder]} | training_of(cell))
    clf = CollisionClassifier(
        limit=False, random_state=cell["seed"], verbose=1, **settings
    )
    clf.fit(as_input(data.images), data.labels)
    P_test = clf.predict_proba(as_input(data.test_images))
    cm, P, y = clf.collision_matrix_, clf.posteriors_, data.labels
    low, high = cm.interval() or (None, None)
    top = top_pairs(cm)
    result = {
        "priors": cm.priors,
        "counts": cm.counts,
        "S": cm.matrix,
        "stderr": cm.stderr,
        "low": low,
        "high": high,
        "top": top,
        "pber": cm.pber,
        "pber_interval": cm.pber_interval(),
        "bayes_error_bounds": bayes_error_bounds(cm.pber, cm.n_classes),
        "bayes_error_limit": cm.bayes_error_limit(),
        "gramian": clf.gramian_,
        "held_out": quality(P, y) | calibration(P, y) | doubt(P, y),
        "test": {"rows": len(P_test)} | quality(P_test, data.test_labels),
        "epochs": epochs_of(clf.history_),
        "held_out_losses": losses_of(clf.history_),
        "weights": n_weights(encoder(1, cm.n_classes)),
        "images": ambiguous_images(
            P, data, [(pair["class"], pair["other"]) for pair in top]
        ),
        "seconds": {"training": seconds_of(clf.history_)},
    }
    return result


# ---------------------------------------------------------------- the paper's pair-wise network


def run_pairwise(cell: Cell, data: Data) -> dict[str, Any]:
    """Gramian, S and posteriors from one training, without the logit shift (the paper) and with it.

    The second fit finds all epochs done in the checkpoint and only scores pairs.
    """
    from studies.reproduction.mnist_networks import n_weights, resnet18

    y = data.labels
    with tempfile.TemporaryDirectory() as folder:
        literal = fit_pairs(cell, data, folder, "none", "gradient", "inverse")
        middle = time.perf_counter()
        shifted = fit_pairs(cell, data, folder, "prior", "root", "simplex")
        scoring = time.perf_counter() - middle
    references = cell["n_references"] * len(np.unique(y))
    return {
        "corrections": {
            "none": read_gramian(literal, y, cell["descent_steps"]),
            "prior": read_gramian(shifted, y, cell["descent_steps"]),
        },
        "images": ambiguous_images(
            literal.posteriors_, data, KNOWN_PAIRS, shifted.posteriors_
        ),
        "epochs": epochs_of(literal.history_),
        "held_out_losses": losses_of(literal.history_),
        "weights": n_weights(resnet18(2, 1, cell["width"])),
        "references": references,
        "pairs_scored": len(y) * references,
        "seconds": {"training": seconds_of(literal.history_), "scoring": scoring},
    }


def fit_pairs(
    cell: Cell, data: Data, folder: str, correction: str, recovery: str, solver: str
) -> CollisionClassifier:
    """The paper's network of pairs, read in one of two ways."""
    from studies.reproduction.mnist_networks import resnet18

    clf = pairwise(
        network=partial(resnet18, width=cell["width"]),
        correction=correction,
        recovery=recovery,
        solver=solver,
        estimate="gramian",
        priors="uniform",
        limit=False,
        n_references=cell["n_references"],
        checkpoint=folder,
        random_state=cell["seed"],
        **training_of(cell),
    )
    return clf.fit(as_input(data.images), data.labels)


def training_of(cell: Cell) -> dict[str, Any]:
    """Folds and settings of the training."""
    names = (
        "cv",
        "max_epochs",
        "patience",
        "batch_size",
        "learning_rate",
        "weight_decay",
    )
    return {name: cell[name] for name in names}


def read_gramian(
    clf: CollisionClassifier, y: npt.NDArray[np.intp], steps: int
) -> dict[str, Any]:
    """S by the root and by the paper's descent, and how good the posteriors are."""
    G = clf.gramian_
    root = recover(G)
    descent = recover(G, method="gradient", max_iter=steps)
    P = clf.posteriors_
    return {
        "gramian": G,
        "row_sums": G.sum(axis=1),
        "S": root.matrix,
        "top": top_pairs(root.to_collision_matrix()),
        "pber": root.to_collision_matrix().pber,
        "S_gradient": descent.matrix,
        **quality(P, y),
        **calibration(P, y),
        **doubt(P, y),
    }


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
    other: FloatArray | None = None,
) -> list[dict[str, Any]]:
    """Images with their held-out posteriors: the most uncertain, the most even of each pair, and a
    clear 0.

    ``other`` posteriors of the same images are noted beside.
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
            **({} if other is None else {"other": other[row].round(5).tolist()}),
            "pixels": base64.b64encode(data.images[row].tobytes()).decode(),
        }
        for row, why in chosen.items()
    ]


def as_input(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Grey values as one channel between 0 and 1."""
    return images[:, None].astype(np.float32) / 255


def seconds_of(histories: Iterable[dict[str, list[dict[str, Any]]]]) -> float:
    """Time of all epochs."""
    return sum(
        entry["seconds"]
        for history in histories
        for member in history.values()
        for entry in member
    )


def epochs_of(histories: Iterable[dict[str, list[dict[str, Any]]]]) -> list[int]:
    """Epochs of each fold."""
    return [sum(len(member) for member in history.values()) for history in histories]


def losses_of(histories: Iterable[dict[str, list[dict[str, Any]]]]) -> list[float]:
    """Lowest held-out loss of each fold."""
    return [
        min(entry["val_loss"] for member in history.values() for entry in member)
        for history in histories
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
    title="MNIST: collisions of digits, ambiguous images, and the paper's pair-wise ResNet-18",
    cells=cells,
    run=run,
    alone=True,
)
