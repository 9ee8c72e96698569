"""The MNIST studies: what is told of posteriors, and V of images given by number."""

import numpy as np
import pytest
import torch

from collidescope.equations.densities import draw_classes
from collidescope.pairwise.scoring import PairwiseNetwork
from studies.paper.digits import OfImages
from studies.reproduction.mnist import calibration, doubt


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


class Difference(torch.nn.Module):
    """Sum of the first image less that of the second, as a logit."""

    def forward(self, both):
        first, second = both.flatten(2).sum(2).unbind(1)
        return (first - second)[:, None]


def test_images_given_by_number_are_scored_in_the_order_given():
    images = torch.arange(3.0).view(3, 1, 1, 1)
    V = OfImages(PairwiseNetwork(Difference()), images)
    found = V.grid(np.array([2, 0]), np.array([0, 1, 2]))
    logits = np.array([[2, 1, 0], [0, -1, -2]])
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-logits)))
