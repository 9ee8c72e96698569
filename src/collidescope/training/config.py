"""The settings of a training run, checked once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from collidescope import _checks as check


def check_sizes(hidden_layer_sizes: Sequence[int]) -> tuple[int, ...]:
    """``hidden_layer_sizes`` as a tuple of positive whole numbers."""
    try:
        return tuple(
            check.check_count(size, "hidden_layer_sizes") for size in hidden_layer_sizes
        )
    except (TypeError, ValueError):
        words = (
            f"must be a sequence of positive whole numbers, got {hidden_layer_sizes!r}"
        )
        raise ValueError(f"hidden_layer_sizes {words}") from None


@dataclass(frozen=True)
class TrainingConfig:
    """How a network is trained. Every field has a default that was measured.

    Training stops when the held-out loss has not fallen for ``patience`` epochs, and the best
    weights are kept. ``patience=0`` holds nothing out, trains on all rows for ``max_epochs`` and
    keeps the last weights.
    """

    #: "auto" leaves the capacity to the model that is trained
    hidden_layer_sizes: str | tuple[int, ...] = "auto"
    dropout: float = 0.0
    max_epochs: int = 200
    patience: int = 12
    batch_size: int | str = "auto"
    learning_rate: float = 3e-3  #: of AdamW, as the next
    weight_decay: float = 1e-2  #: biases do not decay
    device: str = "cpu"

    def __post_init__(self) -> None:
        sizes = self.hidden_layer_sizes
        if not isinstance(sizes, str) or sizes != "auto":
            checked = check_sizes(sizes)  # type: ignore[arg-type]
            object.__setattr__(self, "hidden_layer_sizes", checked)
        if self.batch_size != "auto":
            name = 'batch_size, unless "auto",'
            check.check_count(self.batch_size, name)  # type: ignore[arg-type]
        check.check_count(self.max_epochs, "max_epochs")
        check.check_count(self.patience, "patience", least=0)
        check.check_between(self.learning_rate, 0, math.inf, "learning_rate")
        check.check_at_least(self.weight_decay, 0, "weight_decay")
        check.check_at_least(self.dropout, 0, "dropout")
        if self.dropout >= 1:
            raise ValueError(f"dropout must be below 1, got {self.dropout!r}")

    @classmethod
    def from_mapping(
        cls, training: Mapping[str, Any] | None, device: str
    ) -> TrainingConfig:
        """The settings that the user's ``training`` mapping names, the defaults for all others.

        >>> TrainingConfig.from_mapping({"max_epochs": 20}, "cpu").max_epochs
        20
        """
        if training is None:
            return cls(device=device)
        if not isinstance(training, Mapping):
            raise ValueError(
                f"training must be a mapping such as {{'max_epochs': 50}}, got {training!r}"
            )
        known = [field.name for field in fields(cls) if field.name != "device"]
        for name in training:
            if name not in known:
                raise ValueError(
                    f"training has no setting {name!r}: it knows {', '.join(known)}"
                )
        return cls(**training, device=device)

    def batch_for(self, n_rows: int, smallest: int = 64, largest: int = 256) -> int:
        """Rows (or pairs) per step, at most all of them.

        "auto" is about 1/100 of the rows within limits: small samples need many steps, large ones
        large matrices.
        """
        if not isinstance(self.batch_size, str):
            return min(self.batch_size, n_rows)
        hundredth = max(n_rows, 1) / 100
        power = round(math.log2(hundredth))
        wanted = 2 ** max(0, power)
        within = min(largest, max(smallest, wanted))
        return int(min(within, n_rows))

    def fingerprint(self) -> dict[str, Any]:
        """What must agree for a checkpoint to be resumed.

        ``max_epochs`` and ``patience`` may change, and the sizes show in the weights.
        """
        free = ("hidden_layer_sizes", "max_epochs", "patience", "device")
        return {name: value for name, value in asdict(self).items() if name not in free}
