"""The settings of a training run, checked once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from collidescope import _checks as check
from collidescope.training.networks import check_sizes

#: Batches hold about 1/100 of the rows within these limits: small samples need many steps, large ones large matrices.
SMALLEST_BATCH, LARGEST_BATCH = 64, 256


@dataclass(frozen=True)
class TrainingConfig:
    """How a network is trained. Every field has a default that was measured.

    Parameters
    ----------
    hidden_layer_sizes : "auto" or tuple of int
        ``"auto"`` leaves the capacity to the model that is trained; a tuple is one network.
    dropout : float
    max_epochs, patience : int
        Training stops when the held-out loss has not fallen for ``patience`` epochs, and the best weights are kept.
        ``patience=0`` holds nothing out, trains on all rows for ``max_epochs`` and keeps the last weights.
    batch_size : int or "auto"
    learning_rate, weight_decay : float
        Of AdamW. Biases do not decay.
    device : str
    """

    hidden_layer_sizes: str | tuple[int, ...] = "auto"
    dropout: float = 0.0
    max_epochs: int = 200
    patience: int = 12
    batch_size: int | str = "auto"
    learning_rate: float = 3e-3
    weight_decay: float = 1e-2
    device: str = "cpu"

    def __post_init__(self) -> None:
        if isinstance(self.hidden_layer_sizes, str):
            check.check_choice(self.hidden_layer_sizes, ("auto",), "hidden_layer_sizes")
        else:
            object.__setattr__(self, "hidden_layer_sizes", check_sizes(self.hidden_layer_sizes))
        check.check_count(self.max_epochs, "max_epochs")
        check.check_count(self.patience, "patience", least=0)
        if isinstance(self.batch_size, str):
            check.check_choice(self.batch_size, ("auto",), "batch_size")
        else:
            check.check_count(self.batch_size, "batch_size")
        for name, least in (("learning_rate", math.ulp(0.0)), ("weight_decay", 0.0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < math.inf:
                raise ValueError(f"{name} must be a {'positive' if least else 'non-negative'} number, got {value!r}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout!r}")

    @classmethod
    def from_mapping(cls, training: Mapping[str, Any] | None, device: str) -> TrainingConfig:
        """The settings that the user's ``training`` mapping names, the defaults for all others.

        >>> TrainingConfig.from_mapping({"max_epochs": 20}, "cpu").max_epochs
        20
        """
        known = [field.name for field in fields(cls) if field.name != "device"]
        if training is not None and not isinstance(training, Mapping):
            raise ValueError(f"training must be a mapping such as {{'max_epochs': 50}}, got {training!r}")
        unknown = [name for name in training or () if name not in known]
        if unknown:
            raise ValueError(f"training has no setting {unknown[0]!r}: it knows {', '.join(known)}")
        return cls(**(training or {}), device=device)

    def batch_for(self, n_rows: int) -> int:
        """Rows (or pairs) per step."""
        if isinstance(self.batch_size, str):
            wanted = 2 ** max(0, round(math.log2(max(n_rows, 1) / 100)))
            return int(min(LARGEST_BATCH, max(SMALLEST_BATCH, wanted)))
        return self.batch_size

    def fingerprint(self) -> dict[str, Any]:
        """What must agree for a checkpoint to be resumed. ``max_epochs`` and ``patience`` may change."""
        free = ("hidden_layer_sizes", "max_epochs", "patience", "device")  # sizes show in the weights
        return {name: value for name, value in asdict(self).items() if name not in free}
