"""A collision matrix in plain values (JSON) or in arrays (.npz, model files), and back."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope._files import replacing, write_json
from collidescope._merging import n_pairs

FORMAT = "collidescope.collision-matrix"
FORMAT_VERSION = 1
#: What a file holds as it is, beside half of the covariance and ``info``.
SAVED = (
    *("classes", "matrix", "priors", "stderr", "counts", "units", "pber_stderr", "coverage"),
    *("n_units", "held_out_error", "held_out_stderr"),
)
#: Of these the arrays, which .npz and model files keep as such.
ARRAYS = ("matrix", "priors", "stderr", "counts", "units", "covariance_lower")
#: As JSON a matrix and its standard errors take about 50 bytes an entry: 50 MB here, more than a gigabyte at 5,000.
JSON_CLASSES = 1000
#: The name under which an .npz file keeps what is no array, as JSON text.
DESCRIPTION = "description"


def contents(cm: Any) -> dict[str, Any]:
    """Everything a file holds: arrays as arrays, the rest as plain values."""
    data: dict[str, Any] = {"format": FORMAT, "version": FORMAT_VERSION}
    data |= {name: getattr(cm, name) for name in SAVED} | {"classes": cm.classes.tolist()}
    lower = None if cm.covariance is None else cm.covariance[np.tril_indices(len(cm.covariance))]
    return data | {"covariance_lower": lower, "info": dict(cm.info)}


def as_plain(cm: Any) -> dict[str, Any]:
    """The contents as lists, numbers and text."""
    if cm.n_classes > JSON_CLASSES:
        raise ValueError(
            f"a matrix of {cm.n_classes:,} classes is too large for JSON (at most {JSON_CLASSES:,}): "
            f"to_npz keeps all of it, top_k the largest entries of every row"
        )
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in contents(cm).items()}


def as_arrays(cm: Any) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """The contents as arrays and a JSON-able description of the rest."""
    data = contents(cm)
    given = {name: data.pop(name) for name in ARRAYS}
    arrays = {name: array for name, array in given.items() if array is not None}
    return arrays, data | {"arrays": list(arrays)}


def from_arrays(arrays: Mapping[str, npt.NDArray[Any]], description: Any) -> dict[str, Any]:
    """The arguments of a matrix from what :func:`as_arrays` gave; ValueError on what does not fit."""
    if not isinstance(description, Mapping):
        raise ValueError("data is not a collision matrix: its description is damaged")
    if twice := [name for name in ARRAYS if name in description]:
        raise ValueError(f"data is damaged: {', '.join(twice)} must be arrays and stand in its description")
    if description.get("arrays") != list(given := {name: arrays[name] for name in ARRAYS if name in arrays}):
        raise ValueError(f"data is damaged: it must hold the arrays {description.get('arrays')}, got {list(given)}")
    return arguments(dict(description) | {name: arrays.get(name) for name in ARRAYS})


def arguments(data: Any) -> dict[str, Any]:
    """The arguments of a matrix from its contents, which may come from a file that was damaged or edited."""
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        raise ValueError("data is not a collision matrix: it must be what CollisionMatrix.to_dict returned")
    version = data.get("version")
    if version != FORMAT_VERSION:
        raise ValueError(
            f"data has format version {version!r}, this release reads {FORMAT_VERSION}: update collidescope"
        )
    missing = [name for name in (*SAVED, "covariance_lower", "info") if name not in data]
    if missing:
        raise ValueError(f"data lacks {', '.join(missing)}: the file was cut or edited")
    values = {name: data[name] for name in (*SAVED, "info")}
    info = values["info"].values() if isinstance(values["info"], Mapping) else [{}]
    if not isinstance(values["classes"], list) or any(isinstance(value, list | dict) for value in info):
        raise ValueError("data is damaged: classes must be a list and info a mapping to plain values")
    write_json({name: values[name] for name in ("classes", "info")}, None)  # what could not be written again
    lower = data["covariance_lower"]
    if lower is not None:
        size = n_pairs(len(values["classes"]))
        flat = check.check_finite(lower, "covariance_lower", ndim=1)
        if flat.shape != (n_pairs(size),):
            raise ValueError(f"covariance_lower must have {n_pairs(size)} entries, got {flat.shape[0]}")
        covariance = np.zeros((size, size))
        covariance[np.tril_indices(size)] = flat
        values["covariance"] = np.where(np.tri(size, dtype=bool), covariance, covariance.T)
    return values


def write_npz(cm: Any, path: str | Path) -> None:
    """All of ``cm`` to a file of numpy's, replaced in one step."""
    arrays, description = as_arrays(cm)
    text = write_json(description, None)
    with replacing(path) as beside, open(beside, "wb") as file:
        np.savez(file, allow_pickle=False, **{DESCRIPTION: np.array(text)}, **arrays)


def read_npz(path: str | Path) -> dict[str, Any]:
    """The arguments of the matrix that :func:`write_npz` wrote; no code in the file is run."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"path {str(path)!r} is not a file")
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                _check_size(archive, entry)
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        description = json.loads(str(arrays.pop(DESCRIPTION)))
    except Exception as error:  # strange bytes fail in strange ways
        raise ValueError(f"path {str(path)!r} is not a matrix written by to_npz, or it is damaged: {error}") from None
    return from_arrays(arrays, description)


def _check_size(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
    """Refuse what would take more memory than the file has bytes: packed zeros, or a header that claims too much."""
    if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
        raise ValueError(f"{entry.filename} is compressed, which to_npz never does")
    with archive.open(entry) as file:
        major, _ = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize > entry.file_size:
        raise ValueError(f"{entry.filename} claims shape {shape} of {dtype}, the file has {entry.file_size} bytes")
