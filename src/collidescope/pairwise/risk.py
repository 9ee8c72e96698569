"""The risk of a pair-wise model: equations (31) and (32) of the paper.

A fit calls :func:`balanced_risk` on pairs that :func:`~collidescope.pairwise.pairs.sample_pairs` drew in balance;
:class:`BalancedPairLoss` weighs the pairs of any batch, for custom training loops.

Symbols: ``Sim(x, x') = y(x)·y(x')`` is the chance that two inputs get the same class; V is the best classifier of the
pairs *as weighted by the loss*. Balanced weights (half same, half different, classes uniform: the paper's risk) make
``logit V = logit Sim + log(K - 1)`` at uniform priors. The losses here take Sim and add that shift themselves, so
that what is trained is Sim and nothing needs to be corrected afterwards. With ``shift=0`` they train V itself.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from collidescope.pairwise.pairs import same_log_odds_shift

#: p·p' is computed in float32, where probabilities below this are rounding: it bounds the logarithm at 16.
PROBABILITY_FLOOR = 1e-7


def balanced_risk(logits: Tensor, same: Tensor) -> Tensor:
    """Empirical risk of V on balanced pairs, the paper's equation (32) with cross-entropy as ℓ.

    Half of the pairs are of one class and half of two classes, classes uniform, so the mean over the pairs is the
    risk of equation (31) without bias.

    Parameters
    ----------
    logits : tensor of shape (N,)
        Logit of V(x, x') for each pair as sampled.
    same : tensor of shape (N,)
        1 where the two rows share their class, else 0.

    Examples
    --------
    >>> round(float(balanced_risk(torch.zeros(2), torch.tensor([1.0, 0.0]))), 4)
    0.6931
    """
    return nn.functional.binary_cross_entropy_with_logits(logits, same)


class BalancedPairLoss(nn.Module):
    """Cross-entropy of "same class or not", with balanced pairs whatever the batch holds.

    Parameters
    ----------
    n_classes : int
        K of the whole problem, not of the batch.
    shift : float, optional
        Added to the logit of Sim before the loss: log(K - 1) by default. Pass 0 when your model should learn V itself,
        or when your pairs were already *sampled* in balance by :func:`~collidescope.pairwise.pairs.sample_pairs` and
        you subtract the shift from its scores.
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

    def __init__(self, n_classes: int, shift: float | None = None, bounded: float | None = None) -> None:
        super().__init__()
        if n_classes < 2:
            raise ValueError(f"n_classes must be at least 2, got {n_classes}")
        if bounded is not None and not bounded > 0:
            raise ValueError(f"bounded must be positive (an upper bound of the loss), got {bounded}")
        self.n_classes = n_classes
        self.shift = same_log_odds_shift(n_classes) if shift is None else float(shift)
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
        weights = self._batch_weights(labels, same, sample_weight).to(p.dtype)
        V = p @ p.transpose(-1, -2)
        # The probability of what was observed, with a = e^shift: aV / (1 + (a - 1) V) for "same", its rest otherwise.
        observed = torch.where(same, V, 1 - V).clamp_min(PROBABILITY_FLOOR)
        log_observed = observed.log() + same * self.shift - torch.log1p(math.expm1(self.shift) * V)
        if self.bounded is not None:
            log_observed = log_observed.clamp_min(-self.bounded)
        return -(log_observed * weights).sum((-1, -2))

    def _pair_weights(self, first: Tensor, second: Tensor, same: Tensor) -> Tensor:
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
