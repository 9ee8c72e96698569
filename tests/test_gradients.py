"""The kernel machine on directions of edges: what it sees of an image, and what it does not."""

import copy
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import helpers
from collidescope import CollisionClassifier
from collidescope.learners import members_for, recipe
from collidescope.learners.base import Task
from collidescope.learners.gradients import (
    N_DIRECTIONS,
    edges_of,
    features,
    histograms,
    in_cells,
    log_posteriors,
    n_features,
    scale_of,
)

rng = np.random.default_rng(0)
#: a bar of four pixels in a larger image
bars = partial(helpers.bars, side=12, noise=0.1)


def ramp(down, right, side=12):
    """One image that grows brighter in a direction."""
    place = np.arange(side, dtype=np.float32)
    return (down * place[:, None] + right * place)[None, None]


@pytest.fixture(scope="module")
def learned():
    X, codes = bars(300)
    return recipe("gradients").fit(Task(X, codes, 2, seed=0))


@pytest.mark.parametrize(
    ("down", "right", "quarter"), [(0, 1, 0), (1, 0, 1), (0, -1, 2), (-1, 0, 3)]
)
def test_a_ramp_has_edges_of_its_own_direction_alone(down, right, quarter):
    of_directions = histograms(ramp(down, right))[0].sum(axis=(1, 2))
    expected = np.zeros(N_DIRECTIONS)
    expected[quarter * N_DIRECTIONS // 4] = of_directions.sum()
    assert_allclose(of_directions, expected, atol=1e-5)


def test_between_two_directions_an_edge_counts_for_both():
    angle = 2 * np.pi * 0.25 / N_DIRECTIONS  # a quarter of the way
    of_directions = histograms(ramp(np.sin(angle), np.cos(angle)))[0].sum(axis=(1, 2))
    shares = of_directions / of_directions.sum()
    assert_allclose(shares[:2], [0.75, 0.25], atol=1e-3)


def test_edges_do_not_depend_on_contrast_or_brightness():
    X = rng.normal(size=(3, 1, 12, 12)).astype(np.float32)
    brighter = 5 * X + 7
    assert_allclose(edges_of(X, 0), edges_of(brighter, 0), atol=1e-4)


def test_of_several_colours_the_strongest_edge_counts():
    X = np.concatenate([ramp(0, 1), ramp(3, 0)], axis=1)
    assert_array_equal(histograms(X), histograms(ramp(3, 0)))


def test_the_mean_of_an_even_area_is_its_brightness():
    X = np.full((1, 1, 28, 20), 3.0, np.float32)
    assert_allclose(in_cells(X), 3.0, rtol=1e-6)


@pytest.mark.parametrize(
    "shape", [(1, 28, 28), (3, 32, 32), (3, 96, 40), (1, 1, 9), (2, 3, 3)]
)
def test_every_shape_has_the_features_that_a_file_expects(shape):
    x = rng.normal(size=(4, *shape)).astype(np.float32)
    found = features(x, *scale_of(x))
    assert found.shape == (4, n_features(shape))
    assert np.isfinite(found).all()


def test_images_without_an_edge_have_finite_posteriors():
    X = np.zeros((40, 1, 8, 8), np.float32)
    member = recipe("gradients").fit(Task(X, np.arange(40) % 2, 2))
    assert np.isfinite(member.log_posteriors(X)).all()


def test_shapes_are_known_wherever_they_are(learned):
    X, codes = bars(400, seed=1)
    log_loss = -learned.log_posteriors(X)[np.arange(400), codes].mean()
    assert log_loss < 0.3


def test_a_file_brings_the_posteriors_back(learned):
    X, _ = bars(20, seed=2)
    tree = copy.deepcopy(learned.export())
    again = recipe("gradients").restore(tree, (1, 12, 12), 2)
    assert_allclose(again.log_posteriors(X), learned.log_posteriors(X), atol=1e-6)


@pytest.mark.parametrize("shape", [(3, 12, 12), (1, 40, 40)])
def test_a_file_for_other_images_is_refused(learned, shape):
    with pytest.raises(ValueError, match="landmarks"):
        recipe("gradients").restore(learned.export(), shape, 2)


def test_tables_have_no_edges():
    assert "gradients" not in members_for(1_600, 784, 10)
    assert "gradients" in members_for(1_600, 784, 10, images=True)


def test_members_that_see_pixels_as_columns_are_few_for_images_of_a_usual_size():
    flat = set(members_for(1_600, 784, 10))
    assert len(flat & set(members_for(1_600, 784, 10, images=True))) == 4


@pytest.fixture(scope="module")
def colour_fit():
    X, codes = bars(60)
    colour = np.repeat(X, 3, axis=1)
    clf = CollisionClassifier(["gradients"], cv=2, limit=False, random_state=0)
    return clf.fit(colour, codes), colour


@pytest.mark.parametrize("take", [lambda X: X[0], lambda X: X.reshape(len(X), -1)])
def test_one_image_and_flat_images_are_refused_in_words_of_images(colour_fit, take):
    clf, colour = colour_fit
    with pytest.raises(ValueError, match=r"12 × 12 pixels and 3 channels.*X\[None\]"):
        clf.predict_proba(take(colour))


def test_new_images_may_have_their_channels_last(colour_fit):
    clf, colour = colour_fit
    last = colour.transpose(0, 2, 3, 1)
    assert_array_equal(clf.predict_proba(last), clf.predict_proba(colour))


def test_a_list_of_images_of_several_sizes_is_refused_in_words(colour_fit):
    clf, colour = colour_fit
    several = [colour[0], colour[1, :, :8]]
    with pytest.raises(ValueError, match="one size"):
        clf.fit(several, [0, 1])


@pytest.mark.parametrize("planted", [0.0, 0.2])
def test_the_share_of_labels_that_are_wrong_at_random_is_found(planted):
    X, codes = bars(800, seed=3)
    generator = np.random.default_rng(0)
    anything = generator.integers(0, 2, len(codes))
    wrong = generator.random(len(codes)) < planted
    noisy = np.where(wrong, anything, codes)
    member = recipe("gradients").fit(Task(X, noisy, 2, seed=0))
    assert member.calibration[3] == pytest.approx(planted, abs=0.05)


def test_a_share_of_the_posteriors_is_spread_over_all_classes():
    parts = np.zeros((3, 1, 2))
    parts[0] = [0.0, np.log(3)]
    calibration = np.array([1.0, 0.0, 0.0, 0.2])
    expected = 0.8 * np.array([[0.25, 0.75]]) + 0.1
    assert_allclose(np.exp(log_posteriors(parts, calibration)), expected, rtol=1e-6)
