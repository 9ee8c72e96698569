"""The MNIST study: what is told of posteriors, and both readings of one training of pairs."""

import numpy as np
import pytest

from collidescope.equations.densities import draw_classes
from studies.reproduction import mnist
from studies.reproduction.mnist import Data, calibration, cells, doubt

pytestmark = pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")


def drawings(n=120):
    """Three digits that are bright in a third each; 0 and 1 are the same every fourth time."""
    rng = np.random.default_rng(0)
    labels = np.arange(n) % 3
    images = rng.integers(0, 60, size=(n, 12, 12)).astype(np.uint8)
    third = np.where((labels == 1) & (np.arange(n) % 4 == 0), 0, labels)
    for i, place in enumerate(third):
        images[i, 4 * place : 4 * place + 4] += 150
    return Data(images, labels, images, labels)


@pytest.fixture(scope="module")
def readings(tmp_path_factory):
    """Both readings of a network that has learned a little."""
    cell = cells(quick=True)[1] | {"max_epochs": 8, "width": 4, "n_references": 5}
    folder = str(tmp_path_factory.mktemp("checkpoint"))
    data = drawings()
    literal = mnist.fit_pairs(cell, data, folder, "none", "gradient", "inverse")
    return literal, mnist.fit_pairs(cell, data, folder, "prior", "root", "simplex")


def test_the_logit_shift_lowers_the_row_sums_of_the_gramian(readings):
    literal, shifted = (clf.gramian_.sum(axis=1) for clf in readings)
    assert (shifted < literal).all()


def test_the_second_reading_finds_the_training_done(readings):
    literal, shifted = (mnist.losses_of(clf.history_) for clf in readings)
    assert literal == shifted
    assert mnist.seconds_of(readings[1].history_) == mnist.seconds_of(
        readings[0].history_
    )


def posteriors(n=20_000, k=4):
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.full(k, 0.3), n)
    return P, draw_classes(P, rng)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_the_temperature_that_spoiled_calibrated_posteriors_is_found(temperature, rng):
    P = rng.dirichlet(np.ones(4), size=20_000)
    y = draw_classes(P, rng)
    sharpened = P**temperature / (P**temperature).sum(axis=1, keepdims=True)
    found = calibration(sharpened, y)
    assert found["temperature"] == pytest.approx(temperature, rel=0.05)
    assert (found["calibration_error"] < 0.02) == (temperature == 1.0)


def test_split_images_of_calibrated_posteriors_are_honest_halves():
    P, y = posteriors()
    split = doubt(P, y)["split"]
    assert split["first"] == pytest.approx(split["first_right"], abs=0.03)
