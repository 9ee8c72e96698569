"""MNIST: which digits does handwriting not tell apart? The paper's figures of S and of posteriors, and its ResNet-18.

Two cells a seed. The factorised one is :class:`~collidescope.CollisionClassifier` with a convolutional encoder on all
60,000 training images. The pair-wise one trains the paper's network once, scores each pair once, and reads the scores
both as the paper does (Algorithm 2: descent, then S⁻¹q) and with the logit shift (root, then least squares): what two
fits of ``Pairwise(network=resnet18)`` would give, at half the cost. The quick size takes
scikit-learn's digits.
"""

from __future__ import annotations

import base64
import io
import json
import shutil
import tempfile
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import check_random_state

from collidescope import CollisionClassifier, CollisionMatrix, recover
from collidescope._scaling import apply_scaling, fit_scaling
from collidescope._store import write_bytes
from collidescope.equations.bounds import bayes_error_bounds
from collidescope.equations.gramian import gramian_from_similarities
from experiments.measures import calibration_error
from experiments.real_data import load_mnist
from experiments.settings import estimator_settings
from experiments.store import Cell, Experiment, key_of

FloatArray = npt.NDArray[np.float64]

#: Pairs shown however rare they are: those of the paper, and 1 and 7.
KNOWN_PAIRS = ((4, 9), (3, 5), (1, 7))
#: Images of the largest entropy, images of each pair, and pairs that are listed.
MOST_AMBIGUOUS, OF_EACH_PAIR, TOP = 8, 2, 10
#: A posterior above the first is "nearly one-hot"; a second largest above the other splits between two digits.
ONE_HOT, SPLIT = 0.99, 0.3
#: Of the quick size: training and test images of each digit.
QUICK_TRAIN, QUICK_TEST = 45, 20
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
    import pandas  # noqa: F401 - the tables need it: better to miss it before the training than after

    data = load_data(cell["data"])
    _say(f"{cell['method']}: {len(data.labels):,} images of {data.images.shape[1:]}")
    result = {"factorised": run_factorised, "pairwise": run_pairwise}[cell["model"]](cell, data)
    rows, k = len(data.labels), len(np.unique(data.labels))
    return plain(
        {"rows": rows, "classes": list(range(k)), "shape": data.images.shape[1:], **result}
    )


def load_data(name: str) -> Data:
    """MNIST, or the same number of each of scikit-learn's digits, enlarged to 16×16."""
    if name == "mnist":
        return Data(*load_mnist("train"), *load_mnist("test"))
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = (bunch.images * 15).astype(np.uint8).repeat(2, axis=1).repeat(2, axis=2)
    labels = bunch.target.astype(np.intp)
    of_each = np.stack([np.flatnonzero(labels == k)[: QUICK_TRAIN + QUICK_TEST] for k in range(10)])
    train, test = (
        np.sort(of_each[:, :QUICK_TRAIN].ravel()),
        np.sort(of_each[:, QUICK_TRAIN:].ravel()),
    )
    return Data(images[train], labels[train], images[test], labels[test])


def run_factorised(cell: Cell, data: Data) -> dict[str, Any]:
    """S with intervals, posteriors of ambiguous images, accuracy on the test images."""
    from experiments.mnist_networks import conv_encoder, n_weights

    encoder = partial(conv_encoder, **{name: cell[name] for name in ("width", "dropout", "jitter")})
    names = ("cv", "max_epochs", "patience", "batch_size", "learning_rate", "weight_decay")
    settings = {name: cell[name] for name in names}
    start = time.perf_counter()
    clf = CollisionClassifier(
        limit=False,
        random_state=cell["seed"],
        verbose=1,
        **estimator_settings({"members": [encoder]} | settings),
    )
    clf.fit(as_input(data.images), data.labels)
    fitted = time.perf_counter()
    training = seconds_of(clf.history_)
    _say(
        f"fitted in {fitted - start:.0f} s, {training:.0f} s of them training; epochs {epochs_of(clf.history_)}"
    )
    P_test = clf.predict_proba(as_input(data.test_images))
    tested = time.perf_counter()
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
        "gramian_S": clf.recovery_.matrix,
        "gramian_status": clf.recovery_.status,
        "held_out": quality(P, y) | calibration(P, y) | doubt(P, y),
        "test": {"rows": len(P_test)} | quality(P_test, data.test_labels),
        "epochs": epochs_of(clf.history_),
        "held_out_losses": losses_of(clf.history_),
        "weights": n_weights(encoder(1, cm.n_classes)),
        "images": ambiguous_images(P, data, [(pair["class"], pair["other"]) for pair in top]),
        "seconds": {
            "training": training,
            "rest_of_fit": fitted - start - training,
            "test": tested - fitted,
        },
    }
    _say(
        f"held-out accuracy {result['held_out']['accuracy']:.4f}, test accuracy {result['test']['accuracy']:.4f}"
    )
    return result


# ---------------------------------------------------------------- the paper's pair-wise network


def run_pairwise(cell: Cell, data: Data) -> dict[str, Any]:
    """Gramian, S and posteriors from one training, without the logit shift (the paper) and with it."""
    from experiments.mnist_networks import n_weights, resnet18

    y, K = data.labels, len(np.unique(data.labels))
    q, histories, seconds = score_folds(cell, data)
    start = time.perf_counter()
    readings = {
        name: read_similarities(q[name], y, name == "none", cell["descent_steps"]) for name in q
    }
    seconds["recovery"] = time.perf_counter() - start
    for name, (found, _) in readings.items():
        sums = found["row_sums"]
        _say(
            f"correction {name!r}: rows of G sum to {sums.min():.3f}…{sums.max():.3f}, {found['accuracy']:.4f} right"
        )
    return {
        "corrections": {name: found for name, (found, _) in readings.items()},
        "images": ambiguous_images(readings["none"][1], data, KNOWN_PAIRS, readings["prior"][1]),
        "epochs": epochs_of(histories),
        "held_out_losses": losses_of(histories),
        "weights": n_weights(resnet18(2, 1, cell["width"])),
        "references": cell["n_references"] * K,
        "pairs_scored": len(y) * cell["n_references"] * K,
        "seconds": seconds,
    }


def score_folds(
    cell: Cell, data: Data
) -> tuple[dict[str, FloatArray], list[dict[str, Any]], dict[str, float]]:
    """Held-out class similarities of all images by both readings, with folds, seeds and references of the classifier.

    A fold that is done is kept in the folder of temporary files until all are, so that a run that was stopped goes on.
    """
    q: dict[str, FloatArray] = {}
    histories, seconds = [], {"training": 0.0, "scoring": 0.0}
    for number in range(cell["cv"]):
        with np.load(keep_fold(cell, data, number), allow_pickle=False) as kept:
            for name in ("none", "prior"):
                q.setdefault(name, np.full((len(data.labels), kept[name].shape[1]), np.nan))[
                    kept["test"]
                ] = kept[name]
            notes = json.loads(str(kept["notes"]))
        histories.append(notes["history"])
        seconds = {name: total + notes["seconds"][name] for name, total in seconds.items()}
    shutil.rmtree(folder_of(cell), ignore_errors=True)
    return q, histories, seconds


def folder_of(cell: Cell) -> Path:
    """Where the folds of a cell wait for each other."""
    return Path(tempfile.gettempdir()) / f"collidescope-mnist-{key_of(cell)}"


def keep_fold(cell: Cell, data: Data, number: int) -> Path:
    """The file with a fold's similarities, made if it is not there."""
    from collidescope.pairwise.algorithms import choose_references

    path = folder_of(cell) / f"fold-{number}.npz"
    if path.exists():
        return path
    path.parent.mkdir(exist_ok=True)
    X, y = as_input(data.images), data.labels
    X = apply_scaling(X, *fit_scaling(X))
    fold_seed, reference_seed, *seeds = (
        check_random_state(cell["seed"]).randint(2**31 - 1, size=cell["cv"] + 2).tolist()
    )
    folds = list(StratifiedKFold(cell["cv"], shuffle=True, random_state=fold_seed).split(y, y))
    rng = np.random.default_rng(reference_seed)
    # Folds draw their references from one stream, so those of earlier folds are drawn as well.
    references = [
        choose_references(y[test], cell["n_references"], rng) for _, test in folds[: number + 1]
    ][-1]
    train, test = folds[number]
    found = score_fold(cell, X[train], y[train], X[test], y[test], references, seeds[number])
    content = io.BytesIO()
    np.savez(content, test=test, **found)
    write_bytes(path, content.getvalue())
    return path


def last_fold(cell: Cell, number: int) -> bool:
    """Make one fold; true for the call, of all processes that make folds, after which the cell can be run."""
    keep_fold(cell, load_data(cell["data"]), number)
    if len(list(folder_of(cell).glob("fold-*.npz"))) < cell["cv"]:
        return False
    try:
        (folder_of(cell) / "taken").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def score_fold(
    cell: Cell,
    X: npt.NDArray[np.float32],
    y: npt.NDArray[np.intp],
    X_test: npt.NDArray[np.float32],
    y_test: npt.NDArray[np.intp],
    references: npt.NDArray[np.intp],
    seed: int,
) -> dict[str, Any]:
    """Train a fold and compare its test rows with those of them that are ``references``."""
    from collidescope.crossfit import resolve_device
    from collidescope.learners.base import Task
    from collidescope.pairwise.algorithms import PairModel
    from collidescope.training.rows import tensor
    from experiments.mnist_networks import resnet18

    K = int(y.max()) + 1
    names = ("max_epochs", "patience", "batch_size", "learning_rate", "weight_decay")
    settings = {name: cell[name] for name in names}
    task = Task(X, y, K, seed=seed, device=resolve_device("auto"), training=settings)
    fold = PairModel.train(task, factory=partial(resnet18, width=cell["width"]))
    start = time.perf_counter()
    V = fold.similarity(tensor(X_test), tensor(X_test[references]), correction=False)
    own = np.full(len(y_test), -1)
    own[references] = np.arange(len(references))
    scoring = time.perf_counter() - start
    notes = {
        "history": fold.history,
        "seconds": {"training": seconds_of([fold.history]), "scoring": scoring},
    }
    # logit Sim = logit V - log(K - 1)
    shifted = V / (V + (K - 1) * (1 - V))
    codes = y_test[references]
    return {
        "none": class_means(V, codes, own, K),
        "prior": class_means(shifted, codes, own, K),
        "notes": np.array(json.dumps(notes)),
    }


def class_means(
    scores: FloatArray, codes: npt.NDArray[np.intp], own: npt.NDArray[np.intp], K: int
) -> FloatArray:
    """q[x, k]: mean score of x with the references of class k, other than x itself (``own``: its place, or -1)."""
    kept = own[:, None] != np.arange(len(codes))
    onto = np.eye(K)[codes]
    return np.asarray((scores * kept) @ onto / (kept @ onto))


def read_similarities(
    q: FloatArray, y: npt.NDArray[np.intp], literal: bool, steps: int
) -> tuple[dict[str, Any], FloatArray]:
    """Class similarities → G, S by the root and by the paper's descent, and posteriors at uniform priors.

    ``literal`` posteriors are the paper's S⁻¹q with S by descent; the others least squares over the simplex, S by root.
    """
    from collidescope.pairwise.algorithms import best_ridge, solve

    K = q.shape[1]
    G = gramian_from_similarities(q, y)
    root, descent = recover(G), recover(G, method="gradient", max_iter=steps)
    S, how = (descent.matrix, "inverse") if literal else (root.matrix, "simplex")
    uniform = np.full(K, 1 / K)
    ridge = 0.0 if literal else best_ridge(q, S, uniform, y)
    P = solve(q, S, uniform, how, ridge)
    found = {
        "gramian": G,
        "row_sums": G.sum(axis=1),
        "S": root.matrix,
        "status": root.status,
        "top": top_pairs(root.to_collision_matrix()),
        "pber": root.to_collision_matrix().pber,
        "S_gradient": descent.matrix,
        "gradient_status": descent.status,
        "top_gradient": top_pairs(descent.to_collision_matrix()),
        "ridge": ridge,
        **quality(P, y),
        **calibration(P, y),
        **doubt(P, y),
    }
    return found, P


# ---------------------------------------------------------------- what is told of a result


def quality(P: FloatArray, y: npt.NDArray[np.intp]) -> dict[str, float]:
    """Accuracy, log loss and Brier score (the sum over classes, whose least possible value is PBER)."""
    own = P[np.arange(len(y)), y]
    return {
        "accuracy": float((P.argmax(axis=1) == y).mean()),
        "log_loss": float(-np.log(np.maximum(own, SMALLEST)).mean()),
        "brier": float(((P - np.eye(P.shape[1])[y]) ** 2).sum(axis=1).mean()),
    }


def doubt(P: FloatArray, y: npt.NDArray[np.intp]) -> dict[str, dict[str, float]]:
    """Images that are nearly one-hot and images split between two digits: how many, and how often labels agree."""
    order = np.argsort(-P, axis=1)
    rows = np.arange(len(y))
    first, second = P[rows, order[:, 0]], P[rows, order[:, 1]]
    groups = {"one_hot": first > ONE_HOT, "split": second > SPLIT}
    return {
        name: {"images": int(chosen.sum())}
        | {
            "first": float(first[chosen].mean()),
            "first_right": float((order[:, 0] == y)[chosen].mean()),
        }
        | {"either_right": float((order[:, :2] == y[:, None]).any(axis=1)[chosen].mean())}
        for name, chosen in groups.items()
        if chosen.any()
    }


def calibration(P: FloatArray, y: npt.NDArray[np.intp]) -> dict[str, float]:
    """Expected calibration error of the likelier class, and the temperature that would suit the labels best."""
    logits = np.log(np.maximum(P, SMALLEST))

    def loss(log_temperature: float) -> float:
        return float(
            -log_softmax(logits / np.exp(log_temperature), axis=1)[np.arange(len(y)), y].mean()
        )

    best = minimize_scalar(loss, bounds=(-2, 2), method="bounded")
    return {"calibration_error": calibration_error(P, y), "temperature": float(np.exp(best.x))}


def top_pairs(cm: CollisionMatrix) -> list[dict[str, Any]]:
    """The most colliding pairs with their intervals, one mapping each."""
    return cm.top_collisions(TOP).to_dict("records")  # type: ignore[return-value]


def ambiguous_images(
    P: FloatArray, data: Data, pairs: Iterable[tuple[int, int]], other: FloatArray | None = None
) -> list[dict[str, Any]]:
    """Images with their held-out posteriors: the most uncertain, the most even of each pair, and a clear 0.

    ``other`` posteriors of the same images are noted beside.
    """
    entropy = -(P * np.log(np.maximum(P, SMALLEST))).sum(axis=1)
    chosen = {int(row): "entropy" for row in np.argsort(-entropy, kind="stable")[:MOST_AMBIGUOUS]}
    for a, b in dict.fromkeys((min(pair), max(pair)) for pair in [*pairs, *KNOWN_PAIRS]):
        order = np.argsort(-np.minimum(P[:, a], P[:, b]), kind="stable")
        fresh = [int(row) for row in order[: OF_EACH_PAIR + len(chosen)] if int(row) not in chosen]
        chosen |= dict.fromkeys(fresh[:OF_EACH_PAIR], f"{a} or {b}")
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
        entry["seconds"] for history in histories for member in history.values() for entry in member
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


def _say(text: str) -> None:
    print(f"mnist: {text}", flush=True)


MNIST = Experiment(
    name="mnist",
    title="MNIST: collisions of digits, ambiguous images, and the paper's pair-wise ResNet-18",
    cells=cells,
    run=run,
    alone=True,
)
