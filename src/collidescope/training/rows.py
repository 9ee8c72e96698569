"""The inputs of a fit, wherever they lie: a batch of them comes to the training device when it is asked for.

On a GPU they move there once where they fit, else each batch crosses over from pinned memory. Rows in a file (a memory
map) or in a sparse matrix too large to be written out stay there, and are standardised batch by batch.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from collidescope._scaling import apply_scaling

#: Share of a GPU's free memory that the inputs may take; the rest is for the network and its activations.
GPU_SHARE = 0.5
#: Numbers that are read at once where all rows are gone through (16 MB).
NUMBERS_AT_ONCE = 4_000_000

FloatArray = npt.NDArray[np.float64]


class Rows:
    """Rows of a table or images: ``rows[index]`` are some of them, float32 on ``device``.

    Parameters
    ----------
    data : float32 tensor of shape (n, ...), standardised; or an array, memory map or sparse matrix as it came
    device : torch.device or str
        Where batches are wanted.
    scaling : (centre, scale), optional
        How ``data`` that is no tensor becomes standardised.
    index : long tensor, optional
        Which rows of ``data`` these are, all by default.
    """

    def __init__(
        self,
        data: Any,
        device: torch.device | str = "cpu",
        scaling: tuple[FloatArray, FloatArray] | None = None,
        index: Tensor | None = None,
    ) -> None:
        self.data, self.device, self.scaling = data, torch.device(device), scaling
        self._place = data.device if isinstance(data, Tensor) else torch.device("cpu")
        if self._place.type == self.device.type:  # "cuda" is the first of them until a tensor is there
            self.device = self._place
        self.index = None if index is None else index.to(self._place)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), *self.data.shape[1:])

    @property
    def ndim(self) -> int:
        return len(self.data.shape)

    def __len__(self) -> int:
        return int(self.data.shape[0] if self.index is None else len(self.index))

    def subset(self, index: Tensor) -> Rows:
        """Some of these rows, in the order of ``index``; nothing is copied."""
        return Rows(self.data, self.device, self.scaling, self._where(index))

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        if isinstance(self.data, Tensor):
            return self._held(rows).to(self.device, non_blocking=True)
        where = self._where(rows).numpy()
        block = apply_scaling(self.data[where], *self.scaling) if self.scaling else np.asarray(self.data[where])
        return torch.from_numpy(np.ascontiguousarray(block, dtype=np.float32)).to(self.device)

    def _held(self, rows: slice | Tensor) -> Tensor:
        if self.index is None and isinstance(rows, slice):
            return self.data[rows]  # type: ignore[no-any-return]
        where = self._where(rows)
        if self._place == self.device:
            return self.data.index_select(0, where)  # type: ignore[no-any-return]
        batch = torch.empty((len(where), *self.data.shape[1:]), pin_memory=self.device.type == "cuda")
        return torch.index_select(self.data, 0, where, out=batch)

    def _where(self, rows: slice | Tensor) -> Tensor:
        """Places in ``data``."""
        if isinstance(rows, slice):
            rows = torch.arange(*rows.indices(len(self)))
        rows = rows.to(self._place)
        return rows if self.index is None else self.index[rows]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(self[:].cpu().numpy(), dtype=dtype)

    def __getstate__(self) -> dict[str, Any]:
        # joblib shares numpy arrays between processes through a file; tensors it would copy for every task
        held = self.data.cpu().numpy() if isinstance(self.data, Tensor) else self.data
        return {"data": held, "tensor": isinstance(self.data, Tensor), "device": str(self.device)} | {
            "scaling": self.scaling,
            "index": None if self.index is None else self.index.cpu(),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        data = tensor_of(state["data"]) if state["tensor"] else state["data"]
        self.__init__(placed(data, state["device"]), state["device"], state["scaling"], state["index"])  # type: ignore[misc]

    def blocks(self, size: int | None = None) -> Iterator[Tensor]:
        """All rows, so many at a time."""
        size = size or max(1, NUMBERS_AT_ONCE // max(1, math.prod(self.shape[1:])))
        return (self[slice(start, start + size)] for start in range(0, len(self), size))

    def digest(self) -> str:
        """Text that other rows, or the same in another order, would not share."""
        digest = hashlib.sha256(f"{self.shape}".encode())
        for block in self.blocks():
            digest.update(block.cpu().contiguous().numpy().data)
        return digest.hexdigest()[:16]


def tensor_of(array: npt.NDArray[np.float32]) -> Tensor:
    """A tensor on the array's own memory, also where that may only be read (rows are never written to)."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def as_rows(X: Tensor | Rows, device: torch.device | str) -> Rows:
    """``X`` itself, or a tensor as rows."""
    return X if isinstance(X, Rows) else Rows(placed(X.to(torch.float32), device), device)


def placed(data: Any, device: torch.device | str) -> Any:
    """A tensor on ``device`` if there is room for it; otherwise, and what is no tensor, where it is."""
    device = torch.device(device)
    if not isinstance(data, Tensor):
        return data
    if device.type == "cuda" and data.device.type == "cpu":
        free, _ = torch.cuda.mem_get_info(device)
        if data.numel() * data.element_size() > GPU_SHARE * free:
            return data
    return data.to(device)
