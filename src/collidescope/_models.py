"""The ``model`` argument of the classifier: a word, or a module of one's own; and what a file keeps of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from collidescope import _checks as check
from collidescope.persistence import ModelFileError

KINDS = ("factorised", "pairwise")
#: Stands in a file for ("pairwise", factory).
BLANK_BODY: list[str | None] = ["pairwise", None]

#: (d, k) → torch.nn.Module: an encoder with k logits, or with (2d, 1) the body of a pair-wise model.
Factory = Callable[[int, int], Any]
ModelArgument = str | Factory | tuple[str, Factory]


class ModelChoice(NamedTuple):
    """What was asked for: ``kind`` is "factorised" or "pairwise", ``factory`` is None for the built-in networks."""

    kind: str
    factory: Factory | None


def parse_model(model: Any) -> ModelChoice:
    """Read ``model``: "factorised", "pairwise", a factory of an encoder, or ("pairwise", factory of a body).

    >>> parse_model("pairwise")
    ModelChoice(kind='pairwise', factory=None)
    >>> parse_model(("pairwise", dict)).factory
    <class 'dict'>
    """
    if callable(model):
        return ModelChoice("factorised", model)
    if isinstance(model, tuple):
        if len(model) != 2 or model[0] != "pairwise" or not callable(model[1]):
            raise ValueError(
                f"model as a tuple must be ('pairwise', factory) with a callable factory(2 * d, 1), got {model!r}"
            )
        return ModelChoice("pairwise", model[1])
    return ModelChoice(check.check_choice(model, KINDS, "model"), None)


def stored_model(model: Any) -> str | list[str | None] | None:
    """What a file says of ``model``: never code, so a factory is left blank."""
    kind, factory = parse_model(model)
    if factory is None:
        return kind
    return BLANK_BODY if kind == "pairwise" else None


def restored_model(stored: Any, given: Any, path: str | Path) -> Any:
    """The argument again, from what the file ``path`` says and, for a module of one's own, what its reader gives."""
    if isinstance(stored, str):
        return stored
    if given is not None and stored_model(given) == stored:
        return given
    if stored is None:
        wanted = "an encoder of your own: pass its factory as model="
    elif stored == BLANK_BODY:
        wanted = "a pair-wise body of your own: pass model=('pairwise', its factory)"
    else:
        raise ValueError(f"unknown model {stored!r}")
    raise ModelFileError(f"path {str(path)!r} holds {wanted}")


def restored_names(stored: Any, n_features: int) -> list[str]:
    """Feature names of a file: none, or a text for each feature."""
    if not isinstance(stored, list) or not all(isinstance(name, str) for name in stored):
        raise ValueError("feature_names must be a list of texts")
    if stored and len(stored) != n_features:
        raise ValueError(f"it has {len(stored)} feature names for {n_features} features")
    return stored


def restored_training(description: Mapping[str, Any], n_folds: int) -> tuple[list[Any], list[Any]]:
    """(history, capacities) of a file, fold by fold: epochs of every network, and how much every capacity counts."""
    history, capacities = description["history"], description["capacities"]
    for name, value in (("history", history), ("capacities", capacities)):
        if not isinstance(value, list) or len(value) != n_folds or not all(isinstance(fold, dict) for fold in value):
            raise ValueError(f"{name} must be a list of mappings, one for each of {n_folds} folds")
    runs = [run for fold in history for run in fold.values()]
    epochs = [entry for run in runs for entry in (run if isinstance(run, list) else [None])]
    if not all(isinstance(entry, dict) and all(map(_is_number, entry.values())) for entry in epochs):
        raise ValueError("history must hold numbers, epoch by epoch")
    weights = [weight for fold in capacities for weight in fold.values()]
    if not all(_is_number(weight) and 0 <= weight < math.inf for weight in weights):  # they need not sum to 1
        raise ValueError("capacities must be finite weights of at least 0")
    return history, capacities


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
