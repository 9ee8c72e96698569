"""Inputs of any finite size and shape arrive at a common scale."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from collidescope import _scaling
from collidescope._scaling import LARGEST, apply_scaling, fit_scaling


def scaled(X):
    out = apply_scaling(X, *fit_scaling(X))
    assert out.dtype == np.float32
    assert np.isfinite(out).all()
    assert np.abs(out).max() <= LARGEST
    return out


def test_a_normal_feature_gets_median_zero_and_a_scale_near_its_deviation():
    X = np.random.default_rng(0).normal([5.0, -300.0], [0.01, 40.0], (4000, 2))
    out = scaled(X)
    assert np.abs(np.median(out, axis=0)).max() < 1e-3
    assert out.std(axis=0) == pytest.approx([1, 1], rel=0.05)


@pytest.mark.parametrize("unit", [5e-324, 1e-310, 1e-200, 1e-30, 1.0, 1e30, 1e200, 1e300, 4e307])
def test_the_unit_of_a_feature_does_not_matter_from_denormals_to_the_largest_floats(unit):
    steps = np.random.default_rng(0).integers(-4, 5, (500, 3)).astype(float)
    with np.errstate(all="raise", under="ignore"):
        out = scaled(steps * unit)
    # Denormal numbers have few digits: the scale is rounded to a whole number of the smallest one.
    assert np.corrcoef(out[:, 0], steps[:, 0])[0, 1] == pytest.approx(1, abs=1e-6)
    assert 0.5 < out.std() < 3.5


@pytest.mark.parametrize("value", [0.0, 0.1, -7.0, 1e300, -1.7e308, 5e-324])
def test_a_constant_feature_is_taken_out(value):
    X = np.random.default_rng(0).normal(size=(50, 2))
    X[:, 1] = value
    centre, scale = fit_scaling(X)
    assert scale[1] == 0
    assert np.array_equal(apply_scaling(X, centre, scale)[:, 1], np.zeros(50))
    # also for rows to come that differ
    assert np.array_equal(apply_scaling(np.full((1, 2), -value or 1e308), centre, scale)[:, 1], [0])


def test_the_largest_and_smallest_floats_side_by_side_stay_apart():
    X = np.array([[1.7e308], [-1.7e308]] * 20)
    out = scaled(X)
    assert (out[::2] > 0).all()
    assert (out[1::2] < 0).all()


def test_one_wild_value_does_not_flatten_the_others():
    X = np.random.default_rng(0).normal(size=(500, 1))
    X[0] = 1e30
    out = scaled(X)
    assert out[0, 0] == LARGEST
    assert out[1:].std() == pytest.approx(1, rel=0.2)


def test_heavy_tails_are_scaled_by_their_middle():
    out = scaled(np.random.default_rng(0).standard_cauchy((4000, 1)))
    low, high = np.quantile(out, [0.25, 0.75])
    assert high - low == pytest.approx(_scaling.NORMAL_IQR, rel=0.01)


def test_a_mostly_zero_feature_falls_back_to_mean_and_deviation():
    X = np.zeros((400, 1))
    X[:40, 0] = np.random.default_rng(0).normal(3, 1, 40)
    out = scaled(X)
    assert out.mean() == pytest.approx(0, abs=1e-5)
    assert out.std() == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize("container", [sp.csr_matrix, sp.csr_array])
def test_sparse_equals_dense(container):
    rng = np.random.default_rng(0)
    X = np.where(rng.random((300, 5)) < 0.6, rng.normal(size=(300, 5)), 0.0)
    for mine, theirs in zip(fit_scaling(container(X)), fit_scaling(X), strict=True):
        assert np.array_equal(mine, theirs)
    assert np.array_equal(scaled(container(X)), scaled(X))


def test_images_share_one_scale_so_that_their_contrast_survives():
    X = np.random.default_rng(0).normal(10, 2, (60, 2, 5, 5))
    X[:, :, 0, 0] *= 3
    centre, scale = fit_scaling(X)
    assert centre.shape == scale.shape == (1,)
    out = scaled(X)
    assert out.shape == X.shape
    assert np.corrcoef(out.ravel(), X.ravel())[0, 1] == pytest.approx(1, abs=1e-6)


def test_many_rows_are_scaled_block_by_block_to_the_same_numbers(monkeypatch):
    X = np.random.default_rng(0).normal(size=(1000, 3))
    whole = scaled(X)
    monkeypatch.setattr(_scaling, "BLOCK_NUMBERS", 20)
    assert np.array_equal(scaled(X), whole)


def test_a_sample_of_the_rows_decides_when_there_are_many(monkeypatch):
    X = np.random.default_rng(0).normal(3, 2, (5000, 1))
    monkeypatch.setattr(_scaling, "QUANTILE_ROWS", 1000)
    (centre,), (scale,) = fit_scaling(X)
    assert (centre, scale) == pytest.approx((3, 2), rel=0.1)


def test_the_input_is_left_alone():
    X = np.random.default_rng(0).normal(size=(20, 2))
    before = X.copy()
    scaled(X)
    assert np.array_equal(X, before)
