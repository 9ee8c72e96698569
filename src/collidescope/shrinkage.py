"""The one-step estimate, drawn towards the model's own word as far as the labels do not contradict it.

Two estimates of B from held-out posteriors p and one-hot labels c::

    B₁ = mean(c pᵀ + p cᵀ - p pᵀ)     one-step: forgives errors of p, noisy because it uses the labels
    B₀ = mean(p pᵀ)                   the model's word: hardly any noise, as biased as p

Their difference Δ = mean(r pᵀ + p rᵀ), r = c - p, is pure noise when p is calibrated, with a variance V that the rows
tell. The squared bias of B₀ is therefore about ‖Δ‖² - V, and B₀ + w Δ with w = bias² / (bias² + V) has the least
expected error (James and Stein). Because a bias that cannot be seen may still be there, the *upper* end of what the
data allow is used for it, and with few classes (up to about 20) nothing can vouch for the model: the
one-step estimate is then kept as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope._merging import n_pairs
from collidescope.equations.posterior import shift_rows
from collidescope.equations.projection import balance, project
from collidescope.inference import MAX_STRATA, of_moments
from collidescope.matrix import CollisionMatrix
from collidescope.moments import Moments, keeps_covariance, row_blocks
from collidescope.scale.streams import collision_matrix_from_posteriors

#: How many standard deviations above its estimate the bias of the model's word is taken to be. From 1 to 2.5 results
#: with well-pooled posteriors were alike; with poorly calibrated ones the larger is the safer.
CAUTION = 2.5
#: Independent entries below which the one-step estimate is kept (10 classes have about 10, 30 about 40): with few, a
#: bias as large as the noise goes unseen: shrinking then gained in some scenarios and cost a tenth in another.
FEWEST_ENTRIES = 25


def shrunk_collision_matrix(
    P: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    classes: Sequence[Any] | npt.NDArray[Any] | None = None,
    priors: npt.ArrayLike | str = "empirical",
    sample_weight: npt.ArrayLike | None = None,
) -> CollisionMatrix:
    """Collision matrix from held-out posteriors of a model that is well calibrated.

    Takes what :func:`collision_matrix_from_posteriors` takes, and has its standard errors: those of the one-step
    estimate, an upper limit for the shrunk one. Where the calibration of the model is in doubt, stay with the one-step
    estimate: it forgives what this one only notices.

    ``info["one_step_share"]`` tells how much of the one-step estimate is in it: 0 is the model's word. With few classes
    the result is the one-step estimate itself.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> P = rng.dirichlet(np.full(30, 0.1), 3000)
    >>> y = (rng.random((3000, 1)) >= P.cumsum(axis=1)).sum(axis=1)
    >>> shrunk_collision_matrix(P, y).info["one_step_share"] < 0.5
    True
    """
    natural = isinstance(priors, str) and priors == "empirical"
    one_step = collision_matrix_from_posteriors(P, y, classes=classes, priors=priors, sample_weight=sample_weight)
    codes = check.encode_labels(y, one_step.classes)
    weights = check.unit_weights(check.check_weights(sample_weight, len(codes)))
    target = None if natural else one_step.priors
    return shrink(one_step, labelled_moments(check.check_posteriors(P), codes, weights, one_step.n_classes, target))


def one_step_and_moments(
    P: npt.NDArray[Any],
    codes: IntArray,
    weights: FloatArray | None,
    classes: npt.NDArray[Any],
    target: FloatArray | None,
) -> tuple[CollisionMatrix, Moments]:
    """The one-step estimate at priors ``target`` (None: those of the rows), and what :func:`shrink` takes beside it.

    In one pass where it can be: with many classes every further one is a costly read of memory.
    """
    moments = labelled_moments(P, codes, weights, len(classes), target)
    if target is None or len(classes) > MAX_STRATA:
        return of_moments(moments, classes), moments
    sample: dict[str, Any] = {"classes": classes, "priors": target, "sample_weight": weights}
    return collision_matrix_from_posteriors(P, classes[codes], **sample), moments


def labelled_moments(
    P: npt.NDArray[Any], codes: IntArray, weights: FloatArray | None, n_classes: int, target: FloatArray | None = None
) -> Moments:
    """Sums of all rows for :func:`shrink`, :func:`~collidescope.inference.of_moments` and the Gramian, in one pass.

    With priors ``target`` posteriors are shifted to them, and every row weighs as its class does in that population.
    """
    weights = np.ones(len(codes)) if weights is None else weights
    ratio = None
    if target is not None:
        counts = np.bincount(codes, weights, n_classes)
        ratio = target / (counts / counts.sum())
        weights = weights * ratio[codes]
    moments = Moments(n_classes, keeps_covariance(n_classes))
    for block in row_blocks(len(codes), n_classes):
        p = P[block] if ratio is None else shift_rows(P[block], ratio)
        moments.add_labelled(p, codes[block], weights[block], word=True)
    return moments


def shrink(one_step: CollisionMatrix, moments: Moments) -> CollisionMatrix:
    """The one-step estimate drawn towards the word of the posteriors, whose moments are those at its priors."""
    if n_pairs(one_step.n_classes) < FEWEST_ENTRIES:
        return one_step
    word, labels, variance = word_and_labels(moments)
    word = balance(word, one_step.priors)
    labels -= word
    share = one_step_share(labels, variance, one_step.priors)
    if share == 1:
        return one_step
    labels *= share
    labels += word
    B = project(labels, one_step.priors).joint
    info = dict(one_step.info) | {"method": "one-step, shrunk", "one_step_share": share}
    return CollisionMatrix(
        B / B.sum(axis=1, keepdims=True),
        one_step.priors,
        one_step.classes,
        one_step.stderr,
        one_step.pber_stderr,
        one_step.counts,
        one_step.covariance,
        info=info,
    )


def one_step_share(difference: FloatArray, variance: FloatArray, priors: FloatArray) -> float:
    """w: the share of the difference between the two estimates that is kept.

    Parameters
    ----------
    difference : array of shape (K, K)
        B₁ - B₀.
    variance : array of shape (K, K)
        Of its entries.
    priors : array of shape (K,)
        Entries are weighed as in :mod:`collidescope.equations.projection`, by 1/(π_i π_j).

    Examples
    --------
    >>> even, V = np.full(20, 1 / 20), np.full((20, 20), 1e-8)
    >>> one_step_share(np.full((20, 20), 1e-3), V, even) > 0.98
    True
    >>> one_step_share(np.zeros((20, 20)), V, even)
    0.0
    """
    scale = np.outer(priors, priors)
    noise = variance / scale
    total = float(noise.sum())
    # Σ of squares of about `free` independent normal terms has a standard deviation of total · √(2 / free);
    # the matrix is symmetric, so half of its entries repeat the other half.
    free = total**2 / max(float((noise**2).sum()), np.finfo(float).tiny) / 2
    if free < FEWEST_ENTRIES:
        return 1.0
    bias = float((difference**2 / scale).sum()) - total + CAUTION * total * np.sqrt(2 / free)
    return float(max(bias, 0.0) / (max(bias, 0.0) + total))


def word_and_labels(moments: Moments) -> tuple[FloatArray, FloatArray, FloatArray]:
    """B₀, B₁ and the variance of the entries of B₁ - B₀.

    With R = Σ w c rᵀ, Σ w c pᵀ = diag(Σ w c) - R, and B₁ = mean(c pᵀ + p cᵀ) - B₀. The squares of the entries of
    r pᵀ + p rᵀ add up to 4 Σ w² r² r²ᵀ plus what differs in the line and the column of the label, where p = 1 - r.
    """
    t = moments.sums
    labels = t["Z"] / t["N"]
    word = -(t["cr"] + t["cr"].T) / t["N"] - labels
    np.einsum("ii->i", word)[:] += 2 * t["ρ"] / t["N"]
    squares = 4 * t["ZZ"] - t["crr"] - t["crr"].T
    np.einsum("ii->i", squares)[:] += 2 * t["hh"] - 4 * t["ZZ of c"]
    squares -= t["NN"] * (labels - word) ** 2
    return word, labels, np.maximum(squares, 0.0) / t["N"] ** 2
