"""MNIST: which digits does handwriting not tell apart? The paper's figures of S and of posteriors, and its ResNet-18.

Two cells. The factorised one is :class:`~collidescope.CollisionClassifier` with a convolutional encoder on all 60,000
training images. The pair-wise one trains the paper's network once and scores each pair once, and reads the scores both
as the paper does and with the logit shift: what two fits of ``CollisionClassifier(model=("pairwise", resnet18))`` with
``correction="none"`` and ``"prior"`` would give, at half the cost. The quick size takes scikit-learn's digits.
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

from collidescope import CollisionClassifier, CollisionMatrix, recover, shift_priors
from collidescope._scaling import apply_scaling, fit_scaling
from collidescope._store import write_bytes
from collidescope.equations.bounds import bayes_error_bounds
from collidescope.equations.gramian import gramian_from_similarities
from experiments.real_data import load_mnist
from experiments.settings import estimator_settings
from experiments.store import Cell, Experiment, key_of

FloatArray = npt.NDArray[np.float64]

#: Pairs shown however rare they are: those of the paper, and 1 and 7.
KNOWN_PAIRS = ((4, 9), (3, 5), (1, 7))
#: Images of the largest entropy, images of each pair, and pairs that are listed.
MOST_AMBIGUOUS, OF_EACH_PAIR, TOP = 8, 2, 10
#: Of the quick size: training and test images of each digit.
QUICK_TRAIN, QUICK_TEST = 45, 20
SMALLEST = 1e-12
NEARLY_SINGULAR, FEW_ROWS = 1e3, 200


class Data(NamedTuple):
    """Grey values (n, H, W) and digits, for training and for testing."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.intp]
    test_images: npt.NDArray[np.uint8]
    test_labels: npt.NDArray[np.intp]


def cells(quick: bool) -> list[Cell]:
    """One cell a model."""
    shared: Cell = {"data": "mnist", "cv": 5, "batch_size": 256, "weight_decay": 1e-2, "seed": 0}
    factorised: Cell = {"max_epochs": 40, "patience": 8, "learning_rate": 2e-3}
    factorised |= {"width": 32, "dropout": 0.3, "jitter": True}
    pairwise: Cell = {"max_epochs": 30, "patience": 6, "learning_rate": 1e-3}
    pairwise |= {"width": 64, "n_references": 50, "descent_steps": 50_000}
    if quick:
        shared |= {"data": "digits", "cv": 2, "batch_size": 16}
        factorised |= {"max_epochs": 6, "learning_rate": 5e-3, "width": 8}
        pairwise |= {"max_epochs": 6, "learning_rate": 3e-3, "width": 8, "n_references": 4, "descent_steps": 500}
    return [
        {"model": "factorised", "method": "factorised convolutional encoder", **shared, **factorised},
        {"model": "pairwise", "method": "pairwise ResNet-18", **shared, **pairwise},
    ]


def run(cell: Cell) -> dict[str, Any]:
    """Run a cell; a result that JSON can hold."""
    import pandas  # noqa: F401 - the tables need it: better to miss it before the training than after

    data = load_data(cell["data"])
    _say(f"{cell['method']}: {len(data.labels):,} images of {data.images.shape[1:]}")
    result = {"factorised": run_factorised, "pairwise": run_pairwise}[cell["model"]](cell, data)
    rows, k = len(data.labels), len(np.unique(data.labels))
    return plain({"rows": rows, "classes": list(range(k)), "shape": data.images.shape[1:], **result})


def load_data(name: str) -> Data:
    """MNIST, or the same number of each of scikit-learn's digits, enlarged to 16×16."""
    if name == "mnist":
        return Data(*load_mnist("train"), *load_mnist("test"))
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = (bunch.images * 15).astype(np.uint8).repeat(2, axis=1).repeat(2, axis=2)
    labels = bunch.target.astype(np.intp)
    of_each = np.stack([np.flatnonzero(labels == k)[: QUICK_TRAIN + QUICK_TEST] for k in range(10)])
    train, test = np.sort(of_each[:, :QUICK_TRAIN].ravel()), np.sort(of_each[:, QUICK_TRAIN:].ravel())
    return Data(images[train], labels[train], images[test], labels[test])


def run_factorised(cell: Cell, data: Data) -> dict[str, Any]:
    """S with intervals, posteriors of ambiguous images, accuracy on the test images."""
    from experiments.mnist_networks import conv_encoder, n_weights

    encoder = partial(conv_encoder, **{name: cell[name] for name in ("width", "dropout", "jitter")})
    names = ("cv", "max_epochs", "patience", "batch_size", "learning_rate", "weight_decay")
    settings = {name: cell[name] for name in names}
    start = time.perf_counter()
    clf = CollisionClassifier(
        limit=False, random_state=cell["seed"], verbose=1, **estimator_settings({"model": encoder} | settings)
    )
    clf.fit(as_input(data.images), data.labels)
    fitted = time.perf_counter()
    training = seconds_of(clf.history_)
    _say(f"fitted in {fitted - start:.0f} s, {training:.0f} s of them training; epochs {epochs_of(clf.history_)}")
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
        "held_out": quality(P, y) | calibration(P, y),
        "test": {"rows": len(P_test)} | quality(P_test, data.test_labels),
        "epochs": epochs_of(clf.history_),
        "held_out_losses": losses_of(clf.history_),
        "weights": n_weights(encoder(1, cm.n_classes)),
        "images": ambiguous_images(P, data, [(pair["class"], pair["other"]) for pair in top]),
        "seconds": {"training": training, "rest_of_fit": fitted - start - training, "test": tested - fitted},
    }
    _say(f"held-out accuracy {result['held_out']['accuracy']:.4f}, test accuracy {result['test']['accuracy']:.4f}")
    return result


# ---------------------------------------------------------------- the paper's pair-wise network


def run_pairwise(cell: Cell, data: Data) -> dict[str, Any]:
    """Gramian, S and posteriors from one training, without the logit shift (the paper) and with it."""
    from experiments.mnist_networks import n_weights, resnet18

    y, K = data.labels, len(np.unique(data.labels))
    q, histories, seconds = score_folds(cell, data)
    shares = np.bincount(y) / len(y)
    start = time.perf_counter()
    corrections = {name: read_similarities(scores, y, shares, cell["descent_steps"]) for name, scores in q.items()}
    seconds["recovery"] = time.perf_counter() - start
    for name, each in corrections.items():
        sums = each["row_sums"]
        _say(
            f"correction {name!r}: rows of G sum to {sums.min():.3f}…{sums.max():.3f}, accuracy {each['accuracy']:.4f}"
        )
    return {
        "corrections": corrections,
        "epochs": epochs_of(histories),
        "held_out_losses": losses_of(histories),
        "weights": n_weights(resnet18(2, 1, cell["width"])),
        "references": cell["n_references"] * K,
        "pairs_scored": len(y) * cell["n_references"] * K,
        "seconds": seconds,
    }


def score_folds(cell: Cell, data: Data) -> tuple[dict[str, FloatArray], list[dict[str, Any]], dict[str, float]]:
    """Held-out class similarities of all images by both readings, with folds, seeds and references of the classifier.

    A fold that is done is kept in the folder of temporary files until all are, so that a run that was stopped goes on.
    """
    from collidescope.pairwise.algorithms import choose_references

    X, y, K = as_input(data.images), data.labels, len(np.unique(data.labels))
    X = apply_scaling(X, *fit_scaling(X))
    fold_seed, reference_seed, *seeds = (
        check_random_state(cell["seed"]).randint(2**31 - 1, size=cell["cv"] + 2).tolist()
    )
    folds = StratifiedKFold(cell["cv"], shuffle=True, random_state=fold_seed).split(y, y)
    rng = np.random.default_rng(reference_seed)
    q = {name: np.full((len(y), K), np.nan) for name in ("none", "prior")}
    histories, seconds = [], {"training": 0.0, "scoring": 0.0}
    folder = Path(tempfile.gettempdir()) / f"collidescope-mnist-{key_of(cell)}"
    folder.mkdir(exist_ok=True)
    for number, (train, test) in enumerate(folds):
        references = choose_references(y[test], cell["n_references"], rng)
        path = folder / f"fold-{number}.npz"
        if path.exists():
            _say(f"fold {number + 1} of {cell['cv']}: from {path}")
        else:
            _save(path, score_fold(cell, X[train], y[train], X[test], y[test], references, seeds[number]))
        with np.load(path, allow_pickle=False) as kept:
            for name in q:
                q[name][test] = kept[name]
            notes = json.loads(str(kept["notes"]))
        histories.append(notes["history"])
        seconds = {name: total + notes["seconds"][name] for name, total in seconds.items()}
        _say(
            f"fold {number + 1} of {cell['cv']}: {epochs_of(histories)[-1]} epochs in "
            f"{notes['seconds']['training']:.0f} s, {len(test) * len(references):,} pairs scored in "
            f"{notes['seconds']['scoring']:.0f} s, held-out loss {losses_of(histories)[-1]:.4f}"
        )
    shutil.rmtree(folder, ignore_errors=True)
    return q, histories, seconds


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
    from collidescope.classifier import resolve_device
    from collidescope.pairwise.algorithms import PairModel
    from collidescope.training.config import TrainingConfig
    from collidescope.training.rows import as_rows, tensor
    from experiments.mnist_networks import resnet18

    K = int(y.max()) + 1
    names = ("max_epochs", "patience", "batch_size", "learning_rate", "weight_decay")
    settings = {name: cell[name] for name in names}
    config = TrainingConfig(device=resolve_device("auto"), **settings)
    rows = as_rows(X, config.device)
    fold = PairModel.train(rows, y, K, config, seed, factory=partial(resnet18, width=cell["width"]))
    start = time.perf_counter()
    V = fold.similarity(tensor(X_test), tensor(X_test[references]), correction=False)
    own = np.full(len(y_test), -1)
    own[references] = np.arange(len(references))
    scoring = time.perf_counter() - start
    notes = {"history": fold.history, "seconds": {"training": seconds_of([fold.history]), "scoring": scoring}}
    # logit Sim = logit V - log(K - 1)
    shifted = V / (V + (K - 1) * (1 - V))
    codes = y_test[references]
    return {
        "none": class_means(V, codes, own, K),
        "prior": class_means(shifted, codes, own, K),
        "notes": np.array(json.dumps(notes)),
    }


def class_means(scores: FloatArray, codes: npt.NDArray[np.intp], own: npt.NDArray[np.intp], K: int) -> FloatArray:
    """q[x, k]: mean score of x with the references of class k, other than x itself (``own``: its place, or -1)."""
    kept = own[:, None] != np.arange(len(codes))
    onto = np.eye(K)[codes]
    return np.asarray((scores * kept) @ onto / (kept @ onto))


def read_similarities(q: FloatArray, y: npt.NDArray[np.intp], shares: FloatArray, steps: int) -> dict[str, Any]:
    """Class similarities → G, S by the root and by the paper's descent, posteriors at uniform priors."""
    from collidescope.pairwise.algorithms import PairFit

    K = len(shares)
    uniform = np.full(K, 1 / K)
    G = gramian_from_similarities(q, y)
    root, descent = recover(G), recover(G, method="gradient", max_iter=steps)
    # A network that learned nothing leaves S nearly singular, where solving for all images would take hours.
    rows = slice(None) if root.condition < NEARLY_SINGULAR else slice(FEW_ROWS)
    nothing = np.empty(0)
    solver = PairFit([], nothing, nothing, shares, matrix=root.matrix)
    solver.choose_ridge(q[rows], y[rows])
    P = shift_priors(solver.solve(q[rows]), shares, uniform)
    return {
        "gramian": G,
        "row_sums": G.sum(axis=1),
        "min_eigenvalue": root.min_eigenvalue,
        "S": root.matrix,
        "moved": root.moved,
        "status": root.status,
        "top": top_pairs(root.to_collision_matrix()),
        "pber": root.to_collision_matrix().pber,
        "S_gradient": descent.matrix,
        "gradient_status": descent.status,
        "top_gradient": top_pairs(descent.to_collision_matrix()),
        "S_4_9": {"root": root.matrix[4, 9], "gradient": descent.matrix[4, 9]},
        "condition": root.condition,
        "ridge": solver.ridge,
        "posteriors": len(P),
        **quality(P, y[rows]),
    }


# ---------------------------------------------------------------- what is told of a result


def quality(P: FloatArray, y: npt.NDArray[np.intp]) -> dict[str, float]:
    """Accuracy, log loss and Brier score (the sum over classes, whose least possible value is PBER)."""
    own = P[np.arange(len(y)), y]
    return {
        "accuracy": float((P.argmax(axis=1) == y).mean()),
        "log_loss": float(-np.log(np.maximum(own, SMALLEST)).mean()),
        "brier": float(((P - np.eye(P.shape[1])[y]) ** 2).sum(axis=1).mean()),
    }


def calibration(P: FloatArray, y: npt.NDArray[np.intp], bins: int = 15) -> dict[str, float]:
    """Expected calibration error of the likelier class, and the temperature that would suit the labels best."""
    confidence, right = P.max(axis=1), P.argmax(axis=1) == y
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = np.bincount(place, right - confidence, bins)
    logits = np.log(np.maximum(P, SMALLEST))

    def loss(log_temperature: float) -> float:
        return float(-log_softmax(logits / np.exp(log_temperature), axis=1)[np.arange(len(y)), y].mean())

    best = minimize_scalar(loss, bounds=(-2, 2), method="bounded")
    return {"calibration_error": float(np.abs(gaps).sum() / len(y)), "temperature": float(np.exp(best.x))}


def top_pairs(cm: CollisionMatrix) -> list[dict[str, Any]]:
    """The most colliding pairs with their intervals, one mapping each."""
    return cm.top_collisions(TOP).to_dict("records")  # type: ignore[return-value]


def ambiguous_images(P: FloatArray, data: Data, pairs: Iterable[tuple[int, int]]) -> list[dict[str, Any]]:
    """Images with their held-out posteriors: the most uncertain, the most even of each pair, and a clear 0."""
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
            "pixels": base64.b64encode(data.images[row].tobytes()).decode(),
        }
        for row, why in chosen.items()
    ]


def as_input(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Grey values as one channel between 0 and 1."""
    return images[:, None].astype(np.float32) / 255


def seconds_of(histories: Iterable[dict[str, list[dict[str, Any]]]]) -> float:
    """Time of all epochs."""
    return sum(entry["seconds"] for history in histories for member in history.values() for entry in member)


def epochs_of(histories: Iterable[dict[str, list[dict[str, Any]]]]) -> list[int]:
    """Epochs of each fold."""
    return [sum(len(member) for member in history.values()) for history in histories]


def losses_of(histories: Iterable[dict[str, list[dict[str, Any]]]]) -> list[float]:
    """Lowest held-out loss of each fold."""
    return [min(entry["val_loss"] for member in history.values() for entry in member) for history in histories]


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


def _save(path: Path, arrays: dict[str, Any]) -> None:
    content = io.BytesIO()
    np.savez(content, **arrays)
    write_bytes(path, content.getvalue())


def _say(text: str) -> None:
    print(f"mnist: {text}", flush=True)


MNIST = Experiment(
    name="mnist",
    title="MNIST: collisions of digits, ambiguous images, and the paper's pair-wise ResNet-18",
    cells=cells,
    run=run,
    alone=True,
)
