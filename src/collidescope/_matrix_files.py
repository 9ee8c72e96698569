"""Former names, until models export trees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from collidescope import _store
from collidescope.matrix import FORMAT, JSON_CLASSES, CollisionMatrix

__all__ = ["FORMAT", "JSON_CLASSES", "as_arrays", "from_arrays"]


def as_arrays(cm: CollisionMatrix) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """The contents as arrays and a JSON-able description of the rest."""
    tree = cm.export() | {"classes": _store.plain_labels(cm.classes)}
    arrays = {name: tree.pop(name) for name in list(tree) if isinstance(tree[name], np.ndarray)}
    return arrays, tree


def from_arrays(arrays: Mapping[str, npt.NDArray[Any]], description: Any) -> dict[str, Any]:
    """The arguments of a matrix from what :func:`as_arrays` gave."""
    tree = {**description, **arrays, "classes": _store.labels_from_plain(description["classes"])}
    cm = CollisionMatrix.restore(tree)
    return {name: getattr(cm, name) for name in cm.__dataclass_fields__}
