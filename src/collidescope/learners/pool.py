"""The pool: how much each member counts, from held-out predictions.

Symbols: M members, n held-out rows, K classes; ``log_posteriors`` (M, n, K). Members are pooled
geometrically, ``p ∝ Π_m p_m^{w_m}``: a pool of log-linear models is log-linear, and weights whose
sum is not 1 sharpen or flatten what overfitting or averaging did to the confidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from collidescope._checks import FloatArray, IntArray
from collidescope._threads import one_thread
from collidescope.learners.base import (
    LOG_FLOOR,
    double,
    log_softmax,
    row_max,
    row_sums,
)

#: deviation of the weights around their prior ones: a hundred rows move them, a handful do not
WEIGHT_SPREAD = 0.4
#: Half of the prior weights are equal, half the members' chances to be the best over this many
#: resamples of the rows: equal weights alone drown the one right model among many, chances alone
#: miss what diversity gains.
EQUAL_SHARE, N_RESAMPLES = 0.5, 100
#: weights below are zero: such a member is not worth its time and its place in a file
SMALLEST_WEIGHT = 0.05
#: rows, and numbers (members × rows × classes), beyond which a sample of the rows decides
MOST_ROWS = 20_000
MOST_NUMBERS = 1_500_000


def pool_weights(
    log_posteriors: npt.NDArray[np.floating],
    codes: IntArray,
    sample_weight: FloatArray | None = None,
) -> FloatArray:
    """Weights of the members, non-negative, from held-out log posteriors.

    They maximise the held-out likelihood of the pool under a Gaussian prior, see
    :data:`EQUAL_SHARE`. The shape of ``log_posteriors`` is (M, n, K); ``codes`` are n class
    numbers.

    >>> generator = np.random.default_rng(0)
    >>> truth = generator.uniform(0.05, 0.95, 2000)
    >>> codes = (generator.random(2000) < truth).astype(int)
    >>> right, wrong = np.log([1 - truth, truth]).T, np.log([truth, 1 - truth]).T
    >>> pool_weights(np.stack([right, wrong]), codes).round(1)
    array([1., 0.])
    """
    M, n, K = log_posteriors.shape
    given = np.ones(n)
    if sample_weight is not None:
        given = double(sample_weight)
    numbers = M * n * K
    step = max(math.ceil(n / MOST_ROWS), round(numbers / MOST_NUMBERS))
    used = np.flatnonzero(given > 0)
    rows = used[::step]
    labels = codes[rows]
    given_logs = double(log_posteriors)
    if len(used) == n:
        taken = given_logs[:, ::step]  # without a copy
    else:
        taken = given_logs[:, rows]
    logs = np.maximum(taken, LOG_FLOOR)
    # A sample stands for all rows, or shrinkage would weigh more.
    sampled = given[rows]
    w = sampled * (n / sampled.sum())
    own = logs[:, np.arange(len(rows)), labels]
    with one_thread():
        prior = _prior_weights(own, w)
        return _likeliest_weights(logs, labels, w, prior)


def _likeliest_weights(
    logs: FloatArray, codes: IntArray, w: FloatArray, prior: FloatArray
) -> FloatArray:
    """Weights around their ``prior`` ones; small ones are set to zero. Takes over ``logs``.

    The others are then fitted again: exponents set to 0 alone would flatten the pool.
    """
    M, n, K = logs.shape
    mean = row_sums(logs.reshape(-1, K)).reshape(M, n, 1) / K
    logs -= mean  # rounds less, and changes no posterior
    active = np.arange(M)
    while True:
        start = prior[active]
        start = start / start.sum()
        found = likeliest(
            logs[active],
            codes,
            w,
            start,
            bounds=[(0.0, None)] * len(start),
            spread=WEIGHT_SPREAD,
        )
        large = found >= SMALLEST_WEIGHT
        if large.all() or not large.any():
            weights = np.zeros(len(prior))
            weights[active] = found
            return weights
        active = active[large]


def _prior_weights(scores: FloatArray, w: FloatArray) -> FloatArray:
    """Equal weights, mixed with the chance of each member to be the likeliest (pseudo-BMA+).

    ``scores`` (M, n) are the log posteriors of the labels, resampled as in Yao et al. (2018) with a
    fixed seed.
    """
    generator = np.random.default_rng(0)
    M = len(scores)
    chances = np.zeros(M)
    for _ in range(N_RESAMPLES):
        # Exponential weights, scaled to the sum of w: the Bayesian bootstrap.
        draw = generator.exponential(size=len(w))
        draw = draw * w
        scaled = draw * (w.sum() / draw.sum())
        total = scores @ scaled
        each = np.exp(total - total.max())
        sum_of_all = each.sum()
        chances += each / sum_of_all
    equal = EQUAL_SHARE / M
    other_share = 1 - EQUAL_SHARE
    by_chance = other_share * chances / N_RESAMPLES
    return equal + by_chance


def pool(
    log_posteriors: npt.NDArray[np.floating], weights: npt.ArrayLike
) -> FloatArray:
    """Posteriors (n, K) of the pool, ``p ∝ Π_m p_m^{w_m}``.

    ``log_posteriors`` are (M, n, K), or M arrays of shape (n, K); there are M ``weights``. A pool
    of one model of weight 1 is that model, also where a posterior is zero.
    """
    exponents = np.asarray(weights)
    if exponents.tolist() == [1.0]:
        logs = double(log_posteriors[0])
    else:
        total = np.zeros(())
        pairs = zip(exponents, log_posteriors, strict=True)
        for exponent, own in pairs:
            if exponent:
                floored = np.maximum(own, LOG_FLOOR)
                total = total + exponent * floored
        logs = log_softmax(total)
    p = np.exp(logs)
    # Floored logarithms leave sums a little above 1.
    normalised = p / row_sums(p)
    return np.asarray(normalised)


def likeliest(
    logs: npt.NDArray[np.floating],
    codes: IntArray,
    w: FloatArray,
    start: FloatArray,
    bounds: Sequence[tuple[float, float | None]],
    spread: float = np.inf,
) -> FloatArray:
    """Exponents a under which the labels are likeliest, p ∝ exp(Σ_m a_m logs[m]).

    The n weights ``w`` have mean 1. A priori a is normal around ``start``, where the search begins,
    with deviation ``spread``.
    """
    rows = np.arange(len(codes))
    of_labels = logs[:, rows, codes] @ w
    large = [logs]

    def loss(weights: FloatArray) -> tuple[float, FloatArray]:
        return _loss(weights, large[0], codes, w, of_labels, start, spread)

    found = minimize(
        loss,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
    )
    large.clear()  # scipy before 1.17 keeps the function in a cycle
    return np.asarray(found.x, dtype=np.float64)


def _loss(
    weights: FloatArray,
    logs: npt.NDArray[np.floating],
    codes: IntArray,
    w: FloatArray,
    of_labels: FloatArray,
    prior: FloatArray,
    spread: float,
) -> tuple[float, FloatArray]:
    """Negative log posterior of the exponents per row, and its gradient.

    ``of_labels`` (M,) are the weighted sums of the labels' logarithms.
    """
    n = len(codes)
    rows = np.arange(n)
    z = np.tensordot(weights, logs, 1)
    z -= row_max(z)
    p = np.exp(z)
    total = row_sums(p)
    p /= total
    p *= w[:, None]
    distance = weights - prior
    away = distance / spread**2
    log_total = np.log(total[:, 0])
    surprise = log_total - z[rows, codes]
    loss = w @ surprise
    loss += 0.5 * away @ distance
    # ∂loss/∂a_m = Σ_n w (Σ_k p_k logs_mk - logs_m,label), with w in p already.
    expected = np.tensordot(logs, p, 2)
    gradient = expected - of_labels
    gradient += away
    return loss / n, gradient / n
