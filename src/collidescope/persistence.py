"""Model files: one safetensors file whose header holds a JSON description. Reading one runs no code.

This room knows arrays and JSON, not estimators.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from collidescope._files import replace_file

FORMAT = "collidescope.model"
FORMAT_VERSION = 1
KEY = "collidescope"


class ModelFileError(ValueError):
    """A file that is no model, is damaged, or comes from another release."""


def write_model(path: str | Path, arrays: Mapping[str, npt.NDArray[Any]], description: Mapping[str, Any]) -> None:
    """Write arrays and their JSON-able description; an existing file is replaced in one step or not at all."""
    from safetensors.numpy import save

    header = json.dumps({"format": FORMAT, "version": FORMAT_VERSION, **description}, allow_nan=False)
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    replace_file(path, save(contiguous, metadata={KEY: header}))


def read_model(path: str | Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Arrays and description of a file written by :func:`write_model`."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise FileNotFoundError(f"path {str(path)!r} is not a file")
    try:
        with safe_open(str(path), framework="np") as file:
            header = (file.metadata() or {}).get(KEY)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        if header is None:
            raise ModelFileError(f"path {str(path)!r} is a safetensors file, but not a model of collidescope")
        description = json.loads(header)
    except (SafetensorError, OSError, RecursionError, json.JSONDecodeError) as error:
        raise ModelFileError(f"path {str(path)!r} is not a model of collidescope, or it is damaged: {error}") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ModelFileError(f"path {str(path)!r} holds no model of collidescope")
    if description.get("version") != FORMAT_VERSION:
        raise ModelFileError(
            f"path {str(path)!r} has format version {description.get('version')!r}, this release reads {FORMAT_VERSION}: "
            f"update collidescope, or fit again"
        )
    return arrays, description
