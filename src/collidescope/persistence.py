"""Model files: one safetensors file whose header holds a JSON description. Reading one runs no code.

This room knows arrays and JSON, not estimators.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from collidescope._files import replace_file

FORMAT = "collidescope.model"
FORMAT_VERSION = 2
KEY = "collidescope"
CHECKSUM = "sha256"


class ModelFileError(ValueError):
    """A file that is no model, is damaged, or comes from another release."""


def write_model(path: str | Path, arrays: Mapping[str, npt.NDArray[Any]], description: Mapping[str, Any]) -> None:
    """Write arrays and their JSON-able description; an existing file is replaced in one step or not at all."""
    from safetensors.numpy import save

    content = {"format": FORMAT, "version": FORMAT_VERSION, **description}
    content = json.loads(_text(content))
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    header = json.dumps({CHECKSUM: checksum(contiguous, content), **content})
    replace_file(path, save(contiguous, metadata={KEY: header}))


def read_model(path: str | Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Arrays and description of a file written by :func:`write_model`."""
    from safetensors import safe_open

    if not Path(path).is_file():
        raise FileNotFoundError(f"path {str(path)!r} is not a file")
    try:
        with safe_open(str(path), framework="np") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        description = json.loads(metadata.get(KEY, "null"))
        _text(description)
        found = description.pop(CHECKSUM, None) if isinstance(description, dict) else None
        expected = checksum(arrays, description)
    except Exception as error:  # strange bytes fail in strange ways (types numpy lacks, numbers too long, deep nesting)
        raise ModelFileError(f"path {str(path)!r} is not a model of collidescope, or it is damaged: {error}") from None
    if KEY not in metadata:
        raise ModelFileError(f"path {str(path)!r} is a safetensors file, but not a model of collidescope")
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ModelFileError(f"path {str(path)!r} holds no model of collidescope")
    if description.get("version") != FORMAT_VERSION:
        raise ModelFileError(
            f"path {str(path)!r} has format version {description.get('version')!r}, this release reads "
            f"{FORMAT_VERSION}: update collidescope, or fit again"
        )
    if found != expected:
        raise ModelFileError(f"path {str(path)!r} is damaged or was edited: its content does not match its checksum")
    return arrays, description


def _text(description: Any) -> str:
    """As JSON that any reader takes: NaN, infinities (1e999 reads as one) and halves of characters are refused."""
    text = json.dumps(description, allow_nan=False, ensure_ascii=False, default=_plain)
    text.encode()
    return text


def _plain(value: Any) -> Any:
    """Numbers and arrays of numpy and pandas as JSON knows them."""
    if not hasattr(value, "tolist"):
        raise TypeError(f"a model file cannot hold {value!r} (only text, numbers, booleans and arrays of them)")
    return value.tolist()


def checksum(arrays: Mapping[str, npt.NDArray[Any]], description: Any) -> str:
    """Of all content. Against damage, which would otherwise pass as other weights; it is no signature."""
    digest = hashlib.sha256(json.dumps(description).encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.hexdigest()
