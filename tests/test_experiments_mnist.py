"""The MNIST experiment: one pass over pairs, folds made apart, and Algorithm 2 on planted posteriors."""

from functools import partial

import numpy as np
import pytest

from collidescope import CollisionClassifier, Pairwise
from collidescope.equations.gramian import gramian_from_similarities
from experiments import mnist
from experiments.mnist import Data, calibration, cells, doubt, read_similarities, score_folds
from experiments.mnist_networks import resnet18
from experiments.settings import estimator_settings

pytestmark = pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")


@pytest.fixture(autouse=True)
def files_apart(tmp_path, monkeypatch):
    """The folder of temporary files is not touched."""
    monkeypatch.setattr(mnist.tempfile, "tempdir", str(tmp_path))


def drawings(n=120):
    """Three digits that are bright in a third each; 0 and 1 are the same every fourth time."""
    rng = np.random.default_rng(0)
    labels = np.arange(n) % 3
    images = rng.integers(0, 60, size=(n, 12, 12)).astype(np.uint8)
    third = np.where((labels == 1) & (np.arange(n) % 4 == 0), 0, labels)
    for i, place in enumerate(third):
        images[i, 4 * place : 4 * place + 4] += 150
    return Data(images, labels, images, labels)


SMALL = cells(quick=True)[1] | {"max_epochs": 2, "width": 4, "n_references": 5}


def test_one_pass_gives_the_gramians_of_two_fits_of_the_classifier():
    data = drawings()
    q, histories, _ = score_folds(SMALL, data)
    names = (
        "cv",
        "max_epochs",
        "patience",
        "batch_size",
        "learning_rate",
        "weight_decay",
    )
    body = partial(resnet18, width=4)
    for correction, scores in q.items():
        settings = estimator_settings({name: SMALL[name] for name in names})
        settings |= {
            "limit": False,
            "priors": "uniform",
            "random_state": SMALL["seed"],
        }
        model = Pairwise(
            estimate="gramian",
            correction=correction,
            n_references=SMALL["n_references"],
            network=body,
        )
        settings["members"] = [model]
        clf = CollisionClassifier(**settings).fit(mnist.as_input(data.images), data.labels)
        assert gramian_from_similarities(scores, data.labels) == pytest.approx(
            clf.gramian_, abs=1e-5
        )
        own, theirs = (
            [e["val_loss"] for e in each[0]["pairwise-module"]]
            for each in (clf.history_, histories)
        )
        assert own == theirs


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_the_temperature_that_spoiled_calibrated_posteriors_is_found(temperature):
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(4), size=20_000)
    y = (rng.random((len(P), 1)) > P.cumsum(axis=1)).sum(axis=1)
    sharpened = P**temperature / (P**temperature).sum(axis=1, keepdims=True)
    found = calibration(sharpened, y)
    assert found["temperature"] == pytest.approx(temperature, rel=0.05)
    assert (found["calibration_error"] < 0.02) == (temperature == 1.0)


def test_the_last_of_the_folds_made_apart_can_run_the_cell(monkeypatch):
    monkeypatch.setattr(mnist, "load_data", lambda name: drawings())
    few = SMALL | {"max_epochs": 1}
    assert [mnist.last_fold(few, number) for number in (1, 0, 0)] == [False, True, False]


def test_algorithm_2_finds_planted_posteriors_from_exact_similarities():
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.full(3, 0.3), 20_000)
    y = (rng.random((len(P), 1)) > P.cumsum(axis=1)).sum(axis=1)
    q = P @ (P.T @ P / len(P) * 3)
    for literal in (True, False):
        found, posteriors = read_similarities(q, y, literal, steps=20_000)
        assert np.abs(posteriors - P).mean() < 0.02
    assert found["split"] == doubt(posteriors, y)["split"]
    assert found["split"]["first"] == pytest.approx(
        found["split"]["first_right"], abs=0.03
    )  # honest halves
