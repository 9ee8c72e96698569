"""How much each capacity counts: weights from held-out predictions.

Symbols: L members, n held-out rows, K classes; ``log_p[l]`` (n, K) are the members' held-out log posteriors.

Members are pooled geometrically, ``p ∝ Π_l p_l^{w_l}``: a pool of log-linear models is log-linear, and a sum of
weights other than 1 sharpens or flattens what overfitting or averaging did to the confidence.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize
from torch import Tensor

FloatArray = npt.NDArray[np.float64]

#: Resamples behind the prior weights: their average is stable to about 1/√200.
N_RESAMPLES = 200
#: Standard deviation of the weights around the prior ones. Wide enough for thousands of rows to move them, narrow
#: enough that a few hundred do not fit noise (measured: 0.05 to 0.3 alike, free weights worse on small samples).
WEIGHT_SPREAD = 0.1
#: Log likelihood that a fitted choice gains on the rows it was made on: one nat, as in Akaike's criterion.
NATS_PER_CHOICE = 1.0
LOG_FLOOR = -20.0


def pool(log_p: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Weighted geometric mean of members' posteriors, (n, K) float64."""
    total = sum(w * lp.double().clamp_min(LOG_FLOOR) for w, lp in zip(weights, log_p, strict=True))
    assert isinstance(total, Tensor)
    return torch.softmax(total, -1)


def held_out_weights(
    log_p: Sequence[Tensor],
    y: Tensor,
    sample_weight: Tensor | None = None,
    choices: Sequence[int] | None = None,
    seed: int = 0,
) -> list[float]:
    """Weights of the members, non-negative.

    First the chance of each member to be the best, over Bayesian resamples of the held-out rows (pseudo-BMA+, Yao et
    al. 2018); then the log loss of the pool is minimised around that prior, as a Gaussian of width
    :data:`WEIGHT_SPREAD` would have it.

    ``choices`` counts what each member already chose by these held-out rows (a best epoch per split). Every choice is
    handicapped by :data:`NATS_PER_CHOICE`, or early-stopped networks would beat a correct linear model by luck.
    """
    if len(log_p) == 1:
        return [1.0]
    logs = np.stack([lp.double().clamp_min(LOG_FLOOR).cpu().numpy() for lp in log_p])
    labels = y.cpu().numpy()
    w = np.ones(len(labels)) if sample_weight is None else sample_weight.double().cpu().numpy()
    w = w * (len(w) / w.sum())
    handicap = NATS_PER_CHOICE * np.asarray([0] * len(logs) if choices is None else choices, dtype=np.float64)
    prior = _best_by_resampling(logs[:, np.arange(len(labels)), labels].T, w, handicap, seed)
    result = minimize(
        _pool_loss, prior, (logs, labels, w, prior), jac=True, method="L-BFGS-B", bounds=[(0, None)] * len(prior)
    )
    return [float(value) for value in result.x]


def _best_by_resampling(scores: FloatArray, w: FloatArray, handicap: FloatArray, seed: int) -> FloatArray:
    """Mean over resamples of the softmax of the members' total log likelihoods; ``scores`` is (n, L)."""
    generator = np.random.default_rng(seed)
    weights = np.zeros(scores.shape[1])
    for _ in range(N_RESAMPLES):
        draw = generator.exponential(size=len(w)) * w
        total = (draw * (len(w) / draw.sum())) @ scores - handicap
        each = np.exp(total - total.max())
        weights += each / each.sum()
    return weights / N_RESAMPLES


def _pool_loss(
    weights: FloatArray, logs: FloatArray, labels: npt.NDArray[np.int64], w: FloatArray, prior: FloatArray
) -> tuple[float, FloatArray]:
    rows = np.arange(len(labels))
    z = np.tensordot(weights, logs, 1)
    z -= z.max(1, keepdims=True)
    p = np.exp(z)
    total = p.sum(1, keepdims=True)
    p /= total
    away = (weights - prior) / WEIGHT_SPREAD**2
    loss = (w * (np.log(total[:, 0]) - z[rows, labels])).sum() + 0.5 * (away * (weights - prior)).sum()
    gradient = ((p * logs).sum(2) - logs[:, rows, labels]) @ w + away
    return loss / len(w), gradient / len(w)
