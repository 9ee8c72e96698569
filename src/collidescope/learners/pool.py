"""The pool: how much each member counts, from held-out predictions.

Symbols: M members, n held-out rows, K classes; ``log_posteriors`` (M, n, K). Members are pooled geometrically,
``p ∝ Π_m p_m^{w_m}``: a pool of log-linear models is log-linear, and weights whose sum is not 1 sharpen or flatten what
overfitting or averaging did to the confidence.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from collidescope.learners._shared import LOG_FLOOR, log_softmax, one_thread
from collidescope.learners.base import FloatArray

#: Standard deviation of the weights around equal ones. Wide enough for a thousand rows to move them, narrow enough
#: that a hundred do not fit noise.
WEIGHT_SPREAD = 0.2
#: Weights below this are zero: a member that counts so little is not worth its time and its place in a file.
SMALLEST_WEIGHT = 0.02
#: Numbers (members × rows × classes) beyond which a sample of the rows decides.
MOST_NUMBERS = 3_000_000


def pool_weights(
    log_posteriors: npt.NDArray[np.floating], codes: npt.NDArray[np.intp], sample_weight: FloatArray | None = None
) -> FloatArray:
    """Weights of the members, non-negative, from held-out log posteriors.

    They maximise the held-out likelihood of the pool under a Gaussian prior around equal weights.

    Parameters
    ----------
    log_posteriors : array of shape (M, n, K)
    codes : array of n class numbers
    sample_weight : array of shape (n,), optional

    Examples
    --------
    >>> good, noise = np.log([[.9, .1], [.1, .9]] * 200), np.log([[.6, .4], [.4, .6]] * 100 + [[.4, .6], [.6, .4]] * 100)
    >>> pool_weights(np.stack([good, noise]), np.array([0, 1] * 200)).round(1)[1]
    0.0
    """
    M, n, K = log_posteriors.shape
    w = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    step = max(1, round(M * n * K / MOST_NUMBERS))
    rows = np.flatnonzero(w > 0)[::step]
    logs = np.maximum(np.asarray(log_posteriors, dtype=np.float64)[:, rows], LOG_FLOOR)
    logs -= logs.mean(axis=2, keepdims=True)
    # A sample stands for all rows, or shrinkage would weigh more.
    w = w[rows] * (n / w[rows].sum())
    weights = np.full(M, 1 / M)
    active = np.ones(M, dtype=bool)
    with one_thread():
        while True:
            start = np.full(int(active.sum()), 1 / active.sum())
            found = minimize(
                _loss, start, (logs[active], codes[rows], w, start), jac=True, method="L-BFGS-B",
                bounds=[(0, None)] * len(start),
            )
            weights[:] = 0
            weights[active] = found.x
            small = active & (weights < SMALLEST_WEIGHT)
            if not small.any() or small.sum() == active.sum():
                return weights
            active &= ~small


def pool(log_posteriors: npt.NDArray[np.floating], weights: npt.ArrayLike) -> FloatArray:
    """Posteriors (n, K) of the pool, ``p ∝ Π_m p_m^{w_m}``.

    Parameters
    ----------
    log_posteriors : array of shape (M, n, K), or M arrays of shape (n, K)
    weights : array of shape (M,)
    """
    total = sum(w * np.maximum(lp, LOG_FLOOR) for w, lp in zip(np.asarray(weights), log_posteriors, strict=True) if w)
    p = np.exp(log_softmax(np.asarray(total)))
    return np.asarray(p / p.sum(axis=1, keepdims=True))


def _loss(
    weights: FloatArray, logs: FloatArray, codes: npt.NDArray[np.intp], w: FloatArray, prior: FloatArray
) -> tuple[float, FloatArray]:
    """Negative log posterior of the weights per row, and its gradient."""
    rows = np.arange(len(codes))
    z = np.tensordot(weights, logs, 1)
    z -= z.max(axis=1, keepdims=True)
    p = np.exp(z)
    total = p.sum(axis=1, keepdims=True)
    p /= total
    p *= w[:, None]
    away = (weights - prior) / WEIGHT_SPREAD**2
    loss = w @ (np.log(total[:, 0]) - z[rows, codes]) + 0.5 * away @ (weights - prior)
    gradient = np.tensordot(logs, p, 2) - logs[:, rows, codes] @ w + away
    return loss / len(w), gradient / len(w)
