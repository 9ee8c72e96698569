"""The ``model`` argument of the classifier: a word, or a module of one's own; and what a file keeps of it."""

from __future__ import annotations

from collections.abc import Callable
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
