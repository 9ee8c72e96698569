"""Torch losses that know which classes collide: label smoothing, and costs of errors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from collidescope import _checks as check
from collidescope._checks import ArrayLike
from collidescope.applications.training import smoothing_matrix
from collidescope.matrix import CollisionMatrix


class SmoothedCrossEntropy(nn.Module):
    """Cross-entropy against soft targets (1 - a) e_i + a S[i] in place of ``nn.CrossEntropyLoss``.

    ``matrix`` is S in the order of the network's outputs, estimated on the training rows only;
    ``strength`` a from 0 (plain cross-entropy) to 1; ``reduction`` "mean", "sum" or "none". The
    targets are a buffer: they move with ``.to(device)`` and are saved in the ``state_dict``.

    >>> loss = SmoothedCrossEntropy([[0.8, 0.2], [0.2, 0.8]], strength=0.5)
    >>> loss.targets
    tensor([[0.9000, 0.1000],
            [0.1000, 0.9000]])
    >>> logits = torch.tensor([[0.0, 2.0]], requires_grad=True)
    >>> round(
    ...     float(loss(logits, torch.tensor([1])).detach()), 4
    ... )  # 0.9 · 0.1269 + 0.1 · 2.1269
    0.3269
    """

    targets: Tensor

    def __init__(
        self,
        matrix: CollisionMatrix | ArrayLike,
        strength: float = 0.1,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        if not isinstance(matrix, CollisionMatrix):
            matrix = CollisionMatrix(matrix)  # type: ignore[arg-type]
        targets = smoothing_matrix(matrix, strength)
        self.strength = float(strength)
        self.reduction = check.check_choice(
            reduction, ["mean", "sum", "none"], "reduction"
        )
        self.register_buffer(
            "targets", torch.tensor(targets, dtype=torch.get_default_dtype())
        )

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Loss of logits (B, K, …) as in ``nn.CrossEntropyLoss``, and class numbers (B, …)."""
        soft = _rows_of(self.targets, labels, logits)
        return nn.functional.cross_entropy(logits, soft, reduction=self.reduction)

    def extra_repr(self) -> str:
        return (
            f"n_classes={len(self.targets)}, strength={self.strength:g}, "
            f"reduction={self.reduction!r}"
        )


class CostCrossEntropy(nn.Module):
    """Cross-entropy that counts more where the network errs towards a class that costs more.

    ``cost`` is K×K, 0 on the diagonal, such as ``cost_matrix_`` of an
    :class:`~collidescope.AdaptiveSampler`, and may be set again after every epoch:
    ``loss.set_cost(sampler.cost_matrix_)``. The cross-entropy of a row of class i is multiplied by
    Σ_j p_j cost[i, j] / Σ_j p_j over the other classes j, with p as the network has it now (no
    gradient flows through it). With all costs 1 it is plain cross-entropy.

    >>> loss = CostCrossEntropy([[0, 3], [1, 0]])
    >>> logits = torch.tensor([[0.0, 2.0], [0.0, 2.0]])
    >>> [
    ...     round(float(value), 4) for value in loss.each(logits, torch.tensor([0, 1]))
    ... ]  # 3 · 2.1269
    [6.3808, 0.1269]
    """

    cost: Tensor

    def __init__(self, cost: ArrayLike) -> None:
        super().__init__()
        self.register_buffer("cost", torch.empty(0))
        self.set_cost(cost)

    def set_cost(self, cost: ArrayLike) -> None:
        """Other costs from now on."""
        given = check.check_square(cost, "cost")
        check.check_non_negative(given, "cost", "an error costs 0 or more")
        if given.diagonal().any():
            raise ValueError(
                "cost must be 0 on the diagonal: the right decision costs nothing"
            )
        self.cost = torch.tensor(
            given, dtype=torch.get_default_dtype(), device=self.cost.device
        )

    def each(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Loss of every row."""
        cost = _rows_of(self.cost, labels, logits)
        with torch.no_grad():
            others = torch.softmax(logits, dim=1) * (cost > 0)
            total = others.sum(dim=1).clamp_min(torch.finfo(logits.dtype).tiny)
            weight = (others * cost).sum(dim=1) / total
        loss = nn.functional.cross_entropy(logits, labels.long(), reduction="none")
        return weight * loss

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean loss of logits (B, K, …) and class numbers (B, …)."""
        return self.each(logits, labels).mean()


def _rows_of(table: Tensor, labels: Tensor, logits: Tensor) -> Tensor:
    """The row of the table (K×K) of every label, in the shape and dtype of the logits."""
    is_real = labels.is_floating_point() or labels.is_complex()
    if is_real or labels.dtype == torch.bool:
        raise ValueError(
            f"labels must be class numbers (int64), got {labels.dtype}: convert them with "
            ".long()"
        )
    try:  # unlike indexing, an embedding refuses -1 instead of taking the last class
        rows = nn.functional.embedding(labels.long(), table)
    except IndexError:
        raise ValueError(
            f"labels must be class numbers from 0 to {len(table) - 1}, got "
            f"{int(labels.min())} to {int(labels.max())}"
        ) from None
    rows = rows.to(logits.dtype).movedim(-1, min(1, labels.ndim))
    if logits.ndim < 2 or logits.shape != rows.shape:
        raise ValueError(
            f"logits must have shape (B, {len(table)}, …) for labels of shape (B, …), got "
            f"{tuple(logits.shape)} for {tuple(labels.shape)}"
        )
    return rows
