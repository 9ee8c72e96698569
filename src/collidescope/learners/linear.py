"""Softmax regression: the convex capacities, fitted to the optimum by L-BFGS.

Symbols: n rows, D regression features (d inputs, and their products when quadratic), K classes, W of shape (D, K).
The objective is ``mean cross-entropy + penalty/(2n) · ‖W‖²`` with standardised features: a Gaussian prior of variance
1/penalty on every weight. With a rank r, ``W = U Vᵀ`` and both factors are penalised, which for full rank is
``penalty/n · ‖W‖_*`` (the trace norm): many classes that differ along few directions share them.

Why beside networks: where the truth is log-linear (Gaussian classes of one covariance) or log-quadratic (of several)
these reach it with a fraction of the rows, and the held-out loss tells when they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

from collidescope.training.rows import Rows, as_rows
from collidescope.training.threads import one_blas_thread

#: Products of robustly standardised inputs: without a limit one outlier of 100 sd would rule the fit.
LARGEST_INPUT = 8.0
#: Rows whose features are made at once where n×D would be too large to keep.
ROWS_AT_ONCE = 16384
#: Features kept in memory (200 MB): making products anew in every step costs more than all the rest.
MOST_KEPT = 50_000_000
#: A step of L-BFGS that raises the log likelihood of all rows together by less than this is the end.
FLAT = 1e-4
MAX_ITERATIONS = 200
#: Factors are not convex and creep at the end, where the held-out loss no longer changes.
MAX_FACTOR_ITERATIONS = 100
#: Rows added to each class before the logarithm of its share starts the bias: a class may be missing from a split.
START_COUNT = 0.5
#: A rank that no matrix exceeds: the factors then only bring the trace norm.
FULL_RANK = 10**6


@dataclass(frozen=True)
class LinearSpec:
    """One convex capacity: its penalty, and optionally a rank or products of inputs."""

    penalty: float = 1.0
    rank: int | None = None
    quadratic: bool = False

    @property
    def name(self) -> str:
        kind = "quadratic" if self.quadratic else "linear"
        shape = "" if self.rank is None else "-trace" if self.rank >= FULL_RANK else f"-rank{self.rank}"
        return f"{kind}{shape}-{self.penalty:g}"


class SoftmaxRegression(nn.Module):
    """J fitted regressions (one per inner split), with the interface of a stack: (B, d) → (J, B, K) logits."""

    mean: Tensor
    scale: Tensor
    weight: Tensor
    bias: Tensor

    def __init__(self, n_members: int, n_in: int, n_classes: int, quadratic: bool = False) -> None:
        super().__init__()
        self.quadratic = quadratic
        D = n_regression_features(n_in, quadratic)
        self.register_buffer("mean", torch.zeros(D))
        self.register_buffer("scale", torch.ones(D))
        self.register_buffer("weight", torch.zeros(n_members, D, n_classes))
        self.register_buffer("bias", torch.zeros(n_members, 1, n_classes))

    def features(self, x: Tensor) -> Tensor:
        """Standardised regression features, (B, d) → (B, D)."""
        return (_expand(x, self.quadratic) - self.mean) * self.scale

    def forward(self, x: Tensor) -> Tensor:
        f = self.features(x)
        return torch.baddbmm(self.bias, f.expand(self.weight.shape[0], *f.shape), self.weight)

    def member(self, m: int, x: Tensor) -> Tensor:
        """Logits of member ``m`` alone: (B, d) → (B, K)."""
        return torch.addmm(self.bias[m], self.features(x), self.weight[m])


def n_regression_features(n_in: int, quadratic: bool) -> int:
    """D."""
    return n_in + n_in * (n_in + 1) // 2 if quadratic else n_in


def fit_softmax_regression(
    X: Tensor | Rows,
    y: Tensor,
    n_classes: int,
    train_rows: Sequence[Tensor],
    spec: LinearSpec,
    sample_weight: Tensor | None = None,
    start: SoftmaxRegression | None = None,
) -> SoftmaxRegression:
    """Fit one regression on each set of rows.

    Parameters
    ----------
    X : float tensor of shape (n, d), or Rows
    y : long tensor of shape (n,)
    n_classes : int
    train_rows : J long tensors
    spec : LinearSpec
    sample_weight : tensor of shape (n,), optional
    start : SoftmaxRegression, optional
        A fit with the same features and another penalty. A fit of rank r starts from its leading directions.
    """
    X = as_rows(X, y.device)
    model = SoftmaxRegression(len(train_rows), X.shape[1], n_classes, spec.quadratic).to(y.device)
    if start is None or start.quadratic != spec.quadratic:
        _standardise(model, X)
    else:
        model.mean.copy_(start.mean)
        model.scale.copy_(start.scale)
    for m, rows in enumerate(train_rows):
        weight = None if sample_weight is None else sample_weight[rows]
        problem = _Problem(model, X[rows], y[rows], n_classes, spec, weight)
        W0 = model.weight[m] if start is None or start.quadratic != spec.quadratic else start.weight[m]
        W, b = problem.solve(W0)
        model.weight[m], model.bias[m, 0] = W, b
    return model


class _Problem:
    """Loss and gradient of one fit as a function of a flat vector of parameters."""

    def __init__(
        self, model: SoftmaxRegression, X: Tensor, y: Tensor, n_classes: int, spec: LinearSpec, weight: Tensor | None
    ) -> None:
        self.model, self.spec, self.K, self.D = model, spec, n_classes, model.mean.shape[0]
        self.device = X.device
        w = torch.ones(len(X), device=X.device) if weight is None else weight.to(X)
        self.w = (w / w.sum())[:, None]
        self.lam = spec.penalty / len(X)
        self.y = y[:, None]
        self.blocks = [slice(i, i + ROWS_AT_ONCE) for i in range(0, len(X), ROWS_AT_ONCE)]
        self.F = model.features(X) if len(X) * self.D <= MOST_KEPT else None
        self.X = X
        self.shares = torch.zeros(n_classes, device=X.device).index_add_(0, y, w) + START_COUNT

    def solve(self, W0: Tensor) -> tuple[Tensor, Tensor]:
        bias = torch.log(self.shares / self.shares.sum())
        parts = [W0] if self.spec.rank is None else self._factors(W0)
        x0 = torch.cat([part.flatten() for part in (*parts, bias)]).double().cpu().numpy()
        limit = MAX_ITERATIONS if self.spec.rank is None else MAX_FACTOR_ITERATIONS
        options = {"maxiter": limit, "ftol": FLAT / len(self.y), "gtol": 1e-6, "maxcor": 20}
        with one_blas_thread():
            found = minimize(self._loss_and_gradient, x0, jac=True, method="L-BFGS-B", options=options)  # type: ignore[call-overload]
        parts, bias = self._unpack(found.x)
        return (parts[0] if self.spec.rank is None else parts[0] @ parts[1].T), bias

    def _factors(self, W0: Tensor) -> list[Tensor]:
        U, s, Vt = torch.linalg.svd(W0, full_matrices=False)
        r = self._rank
        root = s[:r].clamp_min(1e-2).sqrt()  # factors at zero have no gradient: both must move off together
        return [U[:, :r] * root, Vt[:r].T * root]

    @property
    def _rank(self) -> int:
        assert self.spec.rank is not None
        return min(self.spec.rank, self.D, self.K)

    def _unpack(self, flat: npt.NDArray[np.float64]) -> tuple[list[Tensor], Tensor]:
        t = torch.as_tensor(flat, dtype=torch.float32, device=self.device)
        if self.spec.rank is None:
            return [t[: self.D * self.K].view(self.D, self.K)], t[self.D * self.K :]
        r = self._rank
        U, V = t[: self.D * r].view(self.D, r), t[self.D * r : (self.D + self.K) * r].view(self.K, r)
        return [U, V], t[(self.D + self.K) * r :]

    def _loss_and_gradient(self, flat: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        parts, bias = self._unpack(flat)
        W = parts[0] if self.spec.rank is None else parts[0] @ parts[1].T
        loss = 0.0
        dW, db = torch.zeros_like(W), torch.zeros_like(bias)
        for block in self.blocks:
            F = self.model.features(self.X[block]) if self.F is None else self.F[block]
            logp = torch.log_softmax(torch.addmm(bias, F, W), 1)
            y, w = self.y[block], self.w[block]
            loss -= float((logp.gather(1, y) * w).sum(dtype=torch.float64))
            residual = logp.exp_().scatter_add_(1, y, torch.full_like(w, -1.0).expand_as(y).contiguous()).mul_(w)
            dW.addmm_(F.T, residual)
            db += residual.sum(0)
        gradients = [dW] if self.spec.rank is None else [dW @ parts[1], dW.T @ parts[0]]
        for part, gradient in zip(parts, gradients, strict=True):
            loss += 0.5 * self.lam * float((part * part).sum(dtype=torch.float64))
            gradient += self.lam * part
        flat_gradient = torch.cat([g.flatten() for g in (*gradients, db)]).double()
        return loss, flat_gradient.cpu().numpy()


def _expand(x: Tensor, quadratic: bool) -> Tensor:
    if not quadratic:
        return x
    x = x.clamp(-LARGEST_INPUT, LARGEST_INPUT)
    i, j = torch.triu_indices(x.shape[1], x.shape[1], device=x.device)
    return torch.cat([x, x[:, i] * x[:, j]], 1)


def _standardise(model: SoftmaxRegression, X: Rows) -> None:
    total = torch.zeros_like(model.mean, dtype=torch.float64)
    squares = torch.zeros_like(total)
    for rows in X.blocks(ROWS_AT_ONCE):
        f = _expand(rows, model.quadratic).double()
        total += f.sum(0)
        squares += (f * f).sum(0)
    mean = total / len(X)
    sd = (squares / len(X) - mean * mean).clamp_min(0).sqrt()
    model.mean.copy_(mean)
    # A constant feature says nothing: scale 0 takes it out instead of dividing by rounding noise.
    model.scale.copy_(torch.where(sd > 1e-6 * (1 + mean.abs()), 1 / sd.clamp_min(1e-30), 0.0))
