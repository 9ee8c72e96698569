"""Losses on pairs.

Symbols: ``Sim(x, x') = y(x)·y(x')`` is the chance that two inputs get the same class; V is the best classifier of the
pairs *as weighted by the loss*. Balanced weights (half same, half different, classes uniform: the paper's risk) make
``logit V = logit Sim + log(K - 1)`` at uniform priors. The losses here take Sim and add that shift themselves, so
that what is trained is Sim and nothing needs to be corrected afterwards. With ``shift=0`` they train V itself.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from collidescope.pairwise.pairs import SCHEMES

#: p·p' is computed in float32, where probabilities below this are rounding: it bounds the logarithm at 16.
PROBABILITY_FLOOR = 1e-7


class BalancedPairLoss(nn.Module):
    """Cross-entropy of "same class or not", with balanced pairs whatever the batch holds.

    Parameters
    ----------
    n_classes : int
        K of the whole problem, not of the batch.
    scheme : "balanced" or "natural"
        Balanced: same and different pairs weigh one half each, classes (pairs of classes) uniform. Natural: every pair
        weighs the same, and there is no shift.
    shift : float, optional
        Added to the logit of Sim before the loss; by default what the scheme asks for: log(K - 1) or 0. Pass 0 when
        your model should learn V itself, or when your pairs were already *sampled* in balance by
        :func:`~collidescope.pairwise.pairs.sample_pairs` and you subtract the shift from its scores.
    bounded : float, optional
        An upper bound of the loss of one pair: the probability of what was observed is clamped at exp(-bounded). The
        paper's Theorem 2 asks for a bounded loss.

    Examples
    --------
    Logits of single pairs, with the classes of both inputs:

    >>> loss = BalancedPairLoss(n_classes=3)
    >>> first, second = torch.tensor([0, 1, 2, 0]), torch.tensor([0, 1, 1, 2])
    >>> round(float(loss(torch.full((4,), -math.log(2.0)), first, second)), 4)  # Sim = 1/3: V = 1/2, log 2
    0.6931

    Posteriors of a batch, all its ordered pairs at once:

    >>> p = torch.full((6, 3), 1 / 3)
    >>> round(float(loss.all_pairs(p, torch.tensor([0, 0, 1, 1, 2, 2]))), 4)
    0.6931
    """

    def __init__(
        self, n_classes: int, scheme: str = "balanced", shift: float | None = None, bounded: float | None = None
    ) -> None:
        super().__init__()
        if n_classes < 2:
            raise ValueError(f"n_classes must be at least 2, got {n_classes}")
        if scheme not in SCHEMES:
            raise ValueError(f"scheme must be one of {SCHEMES}, got {scheme!r}")
        if bounded is not None and not bounded > 0:
            raise ValueError(f"bounded must be positive (an upper bound of the loss), got {bounded}")
        default = math.log(n_classes - 1) if scheme == "balanced" else 0.0
        self.n_classes = n_classes
        self.scheme = scheme
        self.shift = default if shift is None else float(shift)
        self.bounded = bounded

    def forward(self, logits: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Loss of single pairs.

        Parameters
        ----------
        logits : tensor of shape (N,)
            Logit of Sim of each pair, *before* the shift.
        first, second : long tensors of shape (N,)
            Classes of the two inputs of each pair.
        """
        same = first == second
        signed = torch.where(same, logits + self.shift, -logits - self.shift)
        loss = nn.functional.softplus(-signed)
        if self.bounded is not None:
            loss = loss.clamp_max(self.bounded)
        return (loss * self._pair_weights(first, second, same)).sum()

    def all_pairs(self, p: Tensor, labels: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """Loss of V(x, x') = p(x)·p(x') over all ordered pairs of distinct rows of a batch.

        Parameters
        ----------
        p : tensor of shape (..., B, K)
            Rows on the simplex; leading dimensions are separate batches.
        labels : long tensor of shape (..., B)
        sample_weight : tensor of shape (..., B), optional
            A pair weighs the product of its rows' weights.

        Returns
        -------
        tensor of shape (...)

        Notes
        -----
        Costs B²K multiplications in one matrix product and B² logarithms: the cost per row grows with B, so cut large
        batches into blocks (p.reshape(-1, 64, K)) where time matters.
        """
        same = labels.unsqueeze(-1) == labels.unsqueeze(-2)
        if self.scheme == "natural" and sample_weight is None:
            size = labels.shape[-1]
            weights = torch.full((size, size), 1 / max(size * (size - 1), 1), dtype=p.dtype, device=p.device)
            weights.fill_diagonal_(0)
        else:
            weights = self._batch_weights(labels, same, sample_weight).to(p.dtype)
        loss: Tensor = _AllPairs.apply(p, same, weights, self.shift, self.bounded)  # type: ignore[no-untyped-call]
        return loss

    def _pair_weights(self, first: Tensor, second: Tensor, same: Tensor) -> Tensor:
        if self.scheme == "natural":
            return torch.full_like(first, 1.0, dtype=torch.get_default_dtype()) / max(first.shape[0], 1)
        kinds, inverse, counts = torch.unique(first * self.n_classes + second, return_inverse=True, return_counts=True)
        kind_is_same = kinds // self.n_classes == kinds % self.n_classes
        n_same = kind_is_same.sum().clamp_min(1)
        n_different = (~kind_is_same).sum().clamp_min(1)
        each = 0.5 / (torch.where(kind_is_same, n_same, n_different) * counts)
        weights: Tensor = each[inverse]
        return weights

    def _batch_weights(self, labels: Tensor, same: Tensor, sample_weight: Tensor | None) -> Tensor:
        size = labels.shape[-1]
        distinct = ~torch.eye(size, dtype=torch.bool, device=labels.device)
        w = torch.ones_like(labels, dtype=torch.get_default_dtype()) if sample_weight is None else sample_weight
        pair = w.unsqueeze(-1) * w.unsqueeze(-2) * distinct
        if self.scheme == "natural":
            return pair / pair.sum((-1, -2), keepdim=True).clamp_min(PROBABILITY_FLOOR)
        # One half, spread evenly over the classes (pairs of classes) that the batch has, then over their pairs: with
        # W_k = Σ w in class k, those of k and l ≠ k sum to W_k W_l and those within k to W_k² - Σ w².
        total = torch.zeros(*labels.shape[:-1], self.n_classes, dtype=w.dtype, device=w.device)
        squares = total.scatter_add(-1, labels, w * w)
        total = total.scatter_add(-1, labels, w)
        present = (total > 0).sum(-1)
        within = (total * total - squares).clamp_min(0)
        # A lone row leaves rounding, not pairs: relative to W_k² so that small weights keep their pairs.
        paired = within > PROBABILITY_FLOOR * total * total
        within_row = torch.where(paired, within, 1.0).gather(-1, labels)
        total_row = total.gather(-1, labels)
        n_same = paired.sum(-1).clamp_min(1)[..., None, None]
        n_different = (present * (present - 1)).clamp_min(1)[..., None, None]
        safe = torch.where(total_row > 0, total_row, 1.0)
        inside = pair * (0.5 / n_same) / within_row.unsqueeze(-1)
        across = pair * (0.5 / n_different) / (safe.unsqueeze(-1) * safe.unsqueeze(-2))
        return torch.where(same, inside, across)


class _AllPairs(torch.autograd.Function):
    """Weighted pair loss of V = p pᵀ with its gradient in closed form: about a quarter faster than recording each step.

    With a = e^shift and D = V (same) or 1 - V (different), the probability of what was observed is
    ``O = D · (a if same else 1) / (1 + (a - 1) V)``, so ``d log O / dV = ±1/D - (a - 1)/(1 + (a - 1) V)``, and since V
    is symmetric in p the gradient of p is (E + Eᵀ) p with E = d loss / dV.
    """

    @staticmethod
    def forward(ctx: Any, p: Tensor, same: Tensor, weights: Tensor, shift: float, bounded: float | None) -> Tensor:
        V = p @ p.transpose(-1, -2)
        sign = same.to(p.dtype).mul_(2).sub_(1)
        D = torch.addcmul((1 - sign).mul_(0.5), sign, V).clamp_min_(PROBABILITY_FLOOR)
        log_observed = D.log()
        slope = sign / D
        if shift:
            spread = V.mul(math.expm1(shift)).add_(1)
            log_observed += same * shift - spread.log()
            slope -= math.expm1(shift) / spread
        if bounded is not None:
            slope *= log_observed > -bounded
            log_observed.clamp_min_(-bounded)
        ctx.save_for_backward(p, slope.mul_(weights))
        return -(log_observed * weights).sum((-1, -2))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        p, E = ctx.saved_tensors
        return -gradients[0][..., None, None] * ((E + E.transpose(-1, -2)) @ p), None, None, None, None
