"""Sums of labelled rows: the short way gives what whole matrices a row give, in float64 and in float32."""

from __future__ import annotations

import numpy as np
import pytest

from collidescope import collision_matrix_from_posteriors, moments, shift_priors, shrinkage
from collidescope.equations.gramian import gramian_from_moments, gramian_from_posteriors
from collidescope.estimate import Moments
from collidescope.scale import streams
from collidescope.estimate import labelled_moments, one_step_and_moments, word_and_labels
from helpers import random_posteriors


def rows(k: int, n: int = 600, even: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k)
    P, codes = random_posteriors(rng, n, k, sharpness=3.0)
    codes[: 2 * k] = np.tile(np.arange(k), 2)
    return P, codes, np.ones(n) if even else rng.uniform(0.5, 2.0, n)


def general(P: np.ndarray, codes: np.ndarray, w: np.ndarray) -> Moments:
    """The sums by the formula for any Z = diag(a) + s h hᵀ."""
    k = P.shape[1]
    c = np.eye(k)[codes]
    found = Moments(k, moments.keeps_covariance(k))
    found.add(w[:, None] * c, -w, c - P, w[:, None] * c, w)
    return found


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("k", [2, 7, 40, 150])
def test_labelled_rows_add_up_to_the_sums_of_the_general_formula(k, even):
    P, codes, w = rows(k, even=even)
    short, long = Moments(k, moments.keeps_covariance(k)), general(P, codes, w)
    for part in np.array_split(np.arange(len(P)), 3):
        short.add_labelled(P[part], codes[part], w[part])
    single = k >= moments.SINGLE_CLASSES
    for name, value in long.sums.items():
        assert short.sums[name] == pytest.approx(value, rel=1e-5 if single else 1e-10, abs=1e-5 if single else 1e-10)
        assert np.asarray(short.sums[name]).dtype == np.float64
    S, variance = short.ratio()
    exact, spread = long.ratio()
    # far below the standard error, and the standard error itself to four digits
    assert (np.abs(S - exact) <= 1e-4 * np.sqrt(spread) + 1e-12).all()
    assert np.sqrt(variance) == pytest.approx(np.sqrt(spread), rel=1e-4, abs=1e-9)
    assert short.error() == pytest.approx(long.error(), rel=1e-5)


def test_posteriors_in_float32_give_the_same_sums():
    P, codes, w = rows(150)
    double, single = (labelled_moments(kind, codes, w, 150) for kind in (P, P.astype(np.float32)))
    assert single.ratio()[0] == pytest.approx(double.ratio()[0], abs=1e-6)


def test_weights_that_differ_widely_stay_in_float64():
    P, codes, w = rows(150)
    w[codes < 75] *= 1e-9
    short = Moments(150, False)
    short.add_labelled(P, codes, w)
    exact, spread = general(P, codes, w).ratio()
    assert short.ratio()[0] == pytest.approx(exact, abs=1e-12)
    assert short.ratio()[1] == pytest.approx(spread, rel=1e-6, abs=1e-15)


@pytest.mark.parametrize("k", [3, 40, 150])
def test_word_labels_and_their_variance_are_those_of_whole_matrices(k):
    P, codes, w = rows(k, n=400)
    c = np.eye(k)[codes]
    r = c - P
    products = np.einsum("ni,nj->nij", r, P)
    differences = products + products.transpose(0, 2, 1)  # what a row adds to B₁ - B₀
    share = w / w.sum()
    word, labels, variance = word_and_labels(labelled_moments(P, codes, w, k))
    assert word == pytest.approx(np.einsum("n,ni,nj->ij", share, P, P), abs=1e-6)
    assert labels - word == pytest.approx(np.einsum("n,nij->ij", share, differences), abs=1e-6)
    mean = np.einsum("n,nij->ij", share, differences)
    expected = np.einsum("n,nij->ij", share**2, differences**2) - (share @ share) * mean**2
    assert variance == pytest.approx(np.maximum(expected, 0), rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("priors", [None, "uniform"])
def test_the_gramian_of_the_sums_is_that_of_the_posteriors(priors):
    k = 12
    P, codes, w = rows(k)
    counts = np.bincount(codes, w, k)
    target = None if priors is None else np.full(k, 1 / k)
    shifted = P if target is None else shift_priors(P, counts / counts.sum(), target)
    G = gramian_from_moments(labelled_moments(P, codes, w, k, target))
    assert pytest.approx(gramian_from_posteriors(shifted, codes, w), abs=1e-12) == G


@pytest.mark.parametrize("target", [None, np.linspace(1, 3, 12) / 24])
def test_one_pass_gives_the_one_step_estimate(target):
    P, codes, w = rows(12)
    one_step, _ = one_step_and_moments(P, codes, w, np.arange(12), target)
    priors = "empirical" if target is None else target
    expected = collision_matrix_from_posteriors(P, codes, priors=priors, sample_weight=w)
    assert one_step.matrix == pytest.approx(expected.matrix, abs=1e-12)
    assert one_step.stderr == pytest.approx(expected.stderr, abs=1e-12)
    assert one_step.counts == pytest.approx(expected.counts)


def test_with_very_many_classes_given_priors_weigh_the_rows_in_the_one_pass(monkeypatch):
    P, codes, w = rows(12)
    target = np.linspace(1, 3, 12) / 24
    for module in (shrinkage, streams):
        monkeypatch.setattr(module, "MAX_STRATA", 11)
    one_step, _ = one_step_and_moments(P, codes, w, np.arange(12), target)
    expected = collision_matrix_from_posteriors(P, codes, priors=target, sample_weight=w)
    assert one_step.priors == pytest.approx(target)
    assert one_step.matrix == pytest.approx(expected.matrix, abs=1e-9)
    assert one_step.stderr == pytest.approx(expected.stderr, abs=1e-9)
