"""Former names of :mod:`collidescope._store`, until every caller exports trees."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from collidescope import _store
from collidescope._store import ModelFileError

__all__ = ["ModelFileError", "read_model", "write_model"]


def write_model(path: str | Path, arrays: Mapping[str, npt.NDArray[Any]], description: Mapping[str, Any]) -> None:
    """Write arrays and their JSON-able description."""
    plain = json.loads(json.dumps(description, default=lambda value: value.tolist()))
    _store.write(path, "model", {"arrays": dict(arrays), "description": plain})


def read_model(path: str | Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Arrays and description of a file written by :func:`write_model`."""
    tree = _store.read(path, "model")
    if tree.keys() != {"arrays", "description"} or not all(isinstance(part, dict) for part in tree.values()):
        raise ModelFileError(f"path {str(path)!r} is damaged or was edited: its parts are missing")
    return tree["arrays"], tree["description"]
