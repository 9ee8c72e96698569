"""Does smoothing labels by S make a network's posteriors better than uniform smoothing, or none?

One network per strength and kind of smoothing, all with the same initial weights and batches. Each
kind takes the strength (0 among them) with the lowest log loss of validation rows against their
labels as they are; test rows tell the rest. S is estimated on the training rows alone. Networks are
looked at where early stopping leaves them, and at the end of training, where they are
overconfident: smoothing has more to do there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from collidescope import CollisionClassifier
from collidescope.applications import smoothing_matrix
from collidescope.datasets import Problem, ring, scenario_a
from collidescope.training.loop import BestWeights
from collidescope.training.networks import StackedMLP
from studies.known import tangled
from studies.measures import calibration_error, tvd
from studies.models import estimator_settings
from studies.real_data import load_letter
from studies.store import Cell, Study

PROBLEMS: dict[str, Any] = {"A": lambda: scenario_a(5), "D": ring, "tangled": tangled}
TEST_SEED = 1_000_000
VALIDATION_SHARE = 0.25
LEARNING_RATE = 3e-3
BATCH = 64
#: Digits whose labels are mixed up one time in four, in training and test rows alike.
MIXED_UP, MIXED_SHARE = np.array([0, 7, 2, 8, 9, 5, 6, 1, 3, 4]), 0.25
NONE, UNIFORM, OURS = "none", "uniform", "collision matrix"


def run(cell: Cell) -> dict[str, Any]:
    """Test scores of every kind of smoothing, at early stopping and at the last epoch."""
    data = _data(cell)
    settings = estimator_settings(cell["settings"])
    clf = CollisionClassifier(random_state=cell["seed"], limit=False, **settings)
    S = clf.fit(*data["train"]).collision_matrix_
    kinds = [(NONE, 0.0)]
    targets = [np.eye(S.n_classes)]
    for strength in cell["strengths"]:
        kinds.append((UNIFORM, strength))
        targets.append((1 - strength) * targets[0] + strength / S.n_classes)
    for strength in cell["strengths"]:
        kinds.append((OURS, strength))
        targets.append(smoothing_matrix(S, strength))
    found: dict[str, Any] = {"S_pber": S.pber}
    for moment, logits in _train(cell, data, np.stack(targets)).items():
        found[moment] = _scores(logits, data, kinds)
    return found


def _scores(
    logits: dict[str, Tensor], data: dict[str, Any], kinds: list[tuple[str, float]]
) -> dict[str, Any]:
    validation, tested = (
        [_log_loss(member, data[part][1]) for member in logits[part]]
        for part in ("validation", "test")
    )
    scores: dict[str, Any] = {}
    for kind in (NONE, UNIFORM, OURS):
        own = [m for m, (name, _) in enumerate(kinds) if name in (kind, NONE)]
        best = min(own, key=lambda m: validation[m])
        P = logits["test"][best].softmax(-1).double().numpy()
        scores[kind] = {
            "strength": kinds[best][1],
            "log_loss": tested[best],
            "ece": calibration_error(P, data["test"][1]),
            "accuracy": float((P.argmax(axis=1) == data["test"][1]).mean()),
        }
        if data["posteriors"] is not None:
            scores[kind]["posterior_tvd"] = tvd(P, data["posteriors"])[0]
        scores[kind]["grid"] = [[kinds[m][1], validation[m], tested[m]] for m in own]
    return scores


def _train(
    cell: Cell, data: dict[str, Any], targets: np.ndarray
) -> dict[str, dict[str, Tensor]]:
    """Logits of validation and test rows of every network, where early stopping leaves it and at
    the last epoch."""
    (X, y), (X_val, y_val), (X_test, _) = (
        (torch.tensor(rows, dtype=torch.float32), torch.tensor(labels))
        for rows, labels in (data["train"], data["validation"], data["test"])
    )
    generator = torch.Generator().manual_seed(cell["seed"])
    soft = torch.tensor(targets, dtype=torch.float32)
    module = StackedMLP(
        len(targets), X.shape[1], targets.shape[-1], cell["hidden"], generator=generator
    )
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(parameter[:1].expand_as(parameter).clone())
    optimizer = torch.optim.Adam(module.parameters(), lr=LEARNING_RATE)
    best = BestWeights(module, len(targets))
    for epoch in range(1, cell["epochs"] + 1):
        for batch in torch.randperm(len(y), generator=generator).split(BATCH):
            log_p = module(X[batch]).log_softmax(-1)
            loss = -(soft[:, y[batch]] * log_p).sum(-1).mean(-1).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            log_p = module(X_val).log_softmax(-1)
        best.update(module, -log_p[:, torch.arange(len(y_val)), y_val].mean(-1), epoch)
    found = {}
    for moment in ("last epoch", "early stopping"):
        if moment == "early stopping":
            module.load_state_dict(best.state)
        with torch.no_grad():
            found[moment] = {"validation": module(X_val), "test": module(X_test)}
    return found


def _log_loss(logits: Tensor, codes: np.ndarray) -> float:
    return float(
        torch.nn.functional.cross_entropy(logits.double(), torch.tensor(codes))
    )


def _data(cell: Cell) -> dict[str, Any]:
    """Training, validation and test rows (scaled by the training rows), labels as numbers, true
    posteriors of tests."""
    posteriors = None
    if cell["data"] in PROBLEMS:
        problem: Problem = PROBLEMS[cell["data"]]()
        X, y = problem.sample(cell["rows"], cell["seed"])
        X_test, y_test = problem.sample(cell["test_rows"], TEST_SEED + cell["seed"])
        posteriors = problem.posteriors(X_test)
    else:
        letters = cell["data"] == "letter"
        X, y = load_letter() if letters else load_digits(return_X_y=True)
        if cell["data"] == "digits, mixed up":
            mixed = np.random.default_rng(cell["seed"]).random(len(y)) < MIXED_SHARE
            y = np.where(mixed, MIXED_UP[y], y)
        sizes = {"train_size": cell["rows"], "test_size": cell["test_rows"]}
        X, X_test, y, y_test = train_test_split(
            np.asarray(X, float), y, stratify=y, random_state=cell["seed"], **sizes
        )
    X_train, X_val, y_train, y_val = train_test_split(
        X, y, test_size=VALIDATION_SHARE, stratify=y, random_state=cell["seed"]
    )
    scaler = StandardScaler().fit(X_train)

    def scaled(rows: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return scaler.transform(rows), np.searchsorted(np.unique(y), labels)

    return {
        "train": scaled(X_train, y_train),
        "validation": scaled(X_val, y_val),
        "test": scaled(X_test, y_test),
        "posteriors": posteriors,
    }


def cells(quick: bool) -> list[Cell]:
    """Few training rows, so that there is something to gain; one network for S on the real data."""
    common: dict[str, Any] = {
        "strengths": [0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0],
        "hidden": [64, 64],
        "epochs": 80,
    }
    if quick:
        small = {"hidden_layer_sizes": [16], "max_epochs": 10, "cv": 2}
        common |= {
            "strengths": [0.1, 0.5],
            "hidden": [16],
            "epochs": 5,
            "settings": small,
            "test_rows": 300,
            "seed": 0,
        }
        return [
            common | {"data": "A", "rows": 200},
            common | {"data": "digits", "rows": 300},
        ]
    network = {"hidden_layer_sizes": [128]}
    plan = [
        ("letter", 2600, 5000, network),
        ("digits", 600, 1197, network),
        ("digits, mixed up", 600, 1197, network),
        ("tangled", 1200, 5000, {}),
        ("D", 600, 5000, {}),
        ("A", 300, 5000, {}),
    ]
    names = ("data", "rows", "test_rows", "settings")
    return [
        common | dict(zip(names, row, strict=True)) | {"seed": seed}
        for row in plan
        for seed in range(10)
    ]


STUDY = Study(
    "smoothing", "Label smoothing: none, uniform, by the collision matrix", cells, run
)
