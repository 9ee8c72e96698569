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
from scipy.sparse import csr_array

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope._merging import n_pairs
from collidescope.inference import row_blocks
from collidescope.matrix import CollisionMatrix
from collidescope.posterior import shift_priors
from collidescope.projection import balance, project
from collidescope.streams import collision_matrix_from_posteriors

#: How many standard deviations above its estimate the bias of the model's word is taken to be. From 1 to 2.5 results
#: with well-pooled posteriors were alike; with poorly calibrated ones the larger is the safer.
CAUTION = 2.5
#: Independent entries below which the one-step estimate is kept (10 classes have about 10, 30 about 40): with few, a
#: bias as large as the noise goes unseen: shrinking then gained in some scenarios and cost a tenth in another.
FEWEST_ENTRIES = 25
#: Rows that tell the variance: it only has to be known to a percent or so.
VARIANCE_ROWS = 20_000


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
    one_step = collision_matrix_from_posteriors(P, y, classes=classes, priors=priors, sample_weight=sample_weight)
    codes = check.encode_labels(y, one_step.classes)
    return shrink(one_step, check.check_posteriors(P), codes, check.check_weights(sample_weight, len(codes)))


def shrink(one_step: CollisionMatrix, posteriors: FloatArray, codes: IntArray, weights: FloatArray) -> CollisionMatrix:
    """The one-step estimate drawn towards the word of the posteriors it was made from (at the priors of the rows)."""
    k = one_step.n_classes
    if n_pairs(k) < FEWEST_ENTRIES:
        return one_step
    counts = np.bincount(codes, weights, k).astype(np.float64)
    target = one_step.priors
    # Every row weighs as its class does in the wanted population.
    weights = weights * (target / counts)[codes]
    weights /= weights.sum()
    posteriors = shift_priors(posteriors, counts / counts.sum(), target)
    word, labels, variance = _moments(posteriors, codes, weights, k)
    word = balance(word, target)
    share = one_step_share(labels - word, variance, target)
    B = project(word + share * (labels - word), target).joint
    if share == 1:
        return one_step
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
        Entries are weighed as in :mod:`collidescope.projection`, by 1/(π_i π_j).

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


def _moments(P: FloatArray, codes: IntArray, weights: FloatArray, k: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weighted B₀, B₁ and the variance of the entries of B₁ - B₀, block by block."""
    residual = np.zeros((k, k))
    for block in row_blocks(len(P), k):
        root = np.sqrt(weights[block, None]) * _residuals(P[block], codes[block])
        residual += root.T @ root
    labels = np.diag(np.bincount(codes, weights, k)) - residual
    # B₀ from B₁ = mean(c pᵀ + p cᵀ) - B₀, where that mean takes one addition per entry of P.
    onto = csr_array((weights, (codes, np.arange(len(P)))), shape=(k, len(P)))
    sums = np.asarray(onto @ P)
    word = sums + sums.T - labels
    total = float(weights @ weights)
    return word, labels, np.maximum(total * (_mean_square(P, codes, weights, k) - (labels - word) ** 2), 0.0)


def _mean_square(P: FloatArray, codes: IntArray, weights: FloatArray, k: int) -> FloatArray:
    """Mean square of the entries of r pᵀ + p rᵀ, rows weighing w²; of a sample of the rows when they are many."""
    rows = np.arange(len(P))
    if len(P) > VARIANCE_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(rows, VARIANCE_ROWS, replace=False))
    square = np.zeros((k, k))
    for block in row_blocks(len(rows), k):
        p, w = P[rows[block]], weights[rows[block], None]
        r = _residuals(p, codes[rows[block]])
        cross = (w * r**2).T @ (w * p**2)
        product = w * r * p
        square += cross + cross.T + 2 * product.T @ product
    return square / float(weights[rows] @ weights[rows])


def _residuals(p: FloatArray, codes: IntArray) -> FloatArray:
    """Labels less posteriors: r = c - p."""
    r = -p
    r[np.arange(len(p)), codes] += 1
    return r
