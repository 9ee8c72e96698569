"""Cross-entropy against targets that know which classes collide: the torch side of label smoothing."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from collidescope import _checks as check
from collidescope._checks import ArrayLike
from collidescope.applications.training import smoothing_matrix
from collidescope.matrix import CollisionMatrix


class SmoothedCrossEntropy(nn.Module):
    """Cross-entropy against soft targets (1 - a) e_i + a S[i] in place of ``nn.CrossEntropyLoss``.

    ``matrix`` is S in the order of the network's outputs, estimated on the training rows only; ``strength`` a from 0
    (plain cross-entropy) to 1; ``reduction`` "mean", "sum" or "none". The targets are a buffer: they move with
    ``.to(device)`` and are saved in the ``state_dict``.

    >>> loss = SmoothedCrossEntropy([[0.8, 0.2], [0.2, 0.8]], strength=0.5)
    >>> loss.targets
    tensor([[0.9000, 0.1000],
            [0.1000, 0.9000]])
    >>> logits = torch.tensor([[0.0, 2.0]], requires_grad=True)
    >>> round(float(loss(logits, torch.tensor([1])).detach()), 4)  # 0.9 · 0.1269 + 0.1 · 2.1269
    0.3269
    """

    targets: Tensor

    def __init__(
        self, matrix: CollisionMatrix | ArrayLike, strength: float = 0.1, reduction: str = "mean"
    ) -> None:
        super().__init__()
        cm = matrix if isinstance(matrix, CollisionMatrix) else CollisionMatrix(matrix)  # type: ignore[arg-type]
        targets = smoothing_matrix(cm, strength)
        self.strength = float(strength)
        self.reduction = check.check_choice(reduction, ["mean", "sum", "none"], "reduction")
        self.register_buffer("targets", torch.tensor(targets, dtype=torch.get_default_dtype()))

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Loss of logits (B, K), or (B, K, …) as in ``nn.CrossEntropyLoss``, and class numbers (B,) or (B, …)."""
        if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
            raise ValueError(
                f"labels must be class numbers (int64), got {labels.dtype}: convert them with .long()"
            )
        try:  # unlike indexing, an embedding refuses -1 instead of taking the last class
            soft = nn.functional.embedding(labels.long(), self.targets)
        except IndexError:
            seen = f"{int(labels.min())} to {int(labels.max())}"
            raise ValueError(
                f"labels must be class numbers from 0 to {len(self.targets) - 1}, got {seen}"
            ) from None
        soft = soft.to(logits.dtype).movedim(-1, min(1, labels.ndim))
        if logits.ndim < 2 or logits.shape != soft.shape:
            seen = f"got {tuple(logits.shape)} for {tuple(labels.shape)}"
            raise ValueError(
                f"logits must have shape (B, {len(self.targets)}, …) for labels of shape (B, …), {seen}"
            )
        return nn.functional.cross_entropy(logits, soft, reduction=self.reduction)

    def extra_repr(self) -> str:
        return f"n_classes={len(self.targets)}, strength={self.strength:g}, reduction={self.reduction!r}"
