"""The inputs of a fit, wherever they are: a batch of them comes to the training device when it is asked for.

On a GPU they move there once where they fit, else each batch crosses over from pinned memory. Rows in a file (a memory
map) or in a sparse matrix too large to be written out stay there, and are standardised batch by batch.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from collidescope._scaling import apply_scaling, blocks
from collidescope.training.config import TrainingConfig

GPU_SHARE = 0.5  #: share of a GPU's free memory that inputs may take; the rest is for the network and activations
NUMBERS_AT_ONCE = (
    4_000_000  #: numbers that are read at once where all rows are gone through (16 MB)
)
SCORING_BATCH = 8192  #: rows scored at once for the held-out loss
VALIDATION_FRACTION = 0.1  #: share of the rows that early stopping watches

Split = tuple[Tensor, Tensor]
Device = torch.device | str


class Rows:
    """Rows of a table or images: ``rows[index]`` are some of them, float32 on ``device``.

    ``data`` is a standardised float32 tensor of shape (n, ...), or an array, memory map or sparse matrix as it came; of
    these ``index`` says which rows (default all), and ``scaling`` (centre, scale) how they become standardised.
    """

    def __init__(
        self, data: Any, device: Device = "cpu", scaling: Any = None, index: Tensor | None = None
    ) -> None:
        self.data, self.device, self.scaling, self.index = (
            data,
            torch.device(device),
            scaling,
            index,
        )

    @property
    def shape(self) -> tuple[int, ...]:
        return (
            int(self.data.shape[0] if self.index is None else len(self.index)),
            *self.data.shape[1:],
        )

    def __len__(self) -> int:
        return self.shape[0]

    def subset(self, index: npt.NDArray[np.intp]) -> Rows:
        """Some of these rows, in the order of ``index``; nothing is copied."""
        own = torch.from_numpy(index)
        return Rows(
            self.data, self.device, self.scaling, own if self.index is None else self.index[own]
        )

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        if not isinstance(self.data, Tensor):
            where = (
                torch.arange(*rows.indices(len(self))) if isinstance(rows, slice) else rows.cpu()
            )
            block = self.data[(where if self.index is None else self.index[where]).numpy()]
            return tensor(apply_scaling(block, *self.scaling) if self.scaling else block).to(
                self.device
            )
        if isinstance(rows, slice):
            return self.data[rows].to(self.device)
        if self.data.device.type == self.device.type:
            return self.data.index_select(0, rows)
        batch = torch.empty(
            (len(rows), *self.data.shape[1:]), pin_memory=self.device.type == "cuda"
        )
        return torch.index_select(self.data, 0, rows.cpu(), out=batch).to(
            self.device, non_blocking=True
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(self[:].cpu().numpy(), dtype=dtype)


def tensor(X: Any) -> Tensor:
    """Rows as a float32 tensor, on their own memory where that will do, even read-only (rows are never written to)."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(X, dtype=np.float32))


def as_rows(X: Any, device: Device) -> Rows:
    """An array or tensor as rows, moved to ``device`` if there is room for them; rows as they are, for ``device``."""
    if isinstance(X, Rows):
        return Rows(X.data, device, X.scaling, X.index)
    data, device = X.to(torch.float32) if isinstance(X, Tensor) else tensor(X), torch.device(device)
    if device.type == "cuda" and data.device.type == "cpu":
        free, _ = torch.cuda.mem_get_info(device)
        if data.numel() * data.element_size() > GPU_SHARE * free:
            return Rows(data, device)
    return Rows(data.to(device), device)


def labels_and_weights(codes: Any, weights: Any, device: str) -> tuple[Tensor, Tensor | None]:
    """Class numbers and weights (None for equal ones) as tensors on ``device``."""
    y = torch.from_numpy(np.asarray(codes, dtype=np.int64)).to(device)
    return y, None if weights is None else tensor(weights).to(device)


def validation_split(y: Tensor, config: TrainingConfig, seed: int) -> Split:
    """(rows to train on, rows for early stopping); without early stopping all rows are trained on."""
    if config.patience == 0:
        return torch.arange(len(y), device=y.device), torch.arange(0, device=y.device)
    return stratified_split(y, VALIDATION_FRACTION, seed)


def stratified_split(y: Tensor, fraction: float, seed: int) -> Split:
    """(training rows, held-out rows), stratified by class. Rows of a class with one member are trained on."""
    labels = y.cpu()
    dealt = torch.bincount(labels)[labels] > 1
    if (n := int(dealt.sum())) == 0:
        found = "one row of every class of y to train on and none to validate with"
        raise ValueError(f"a fold has {found}: gather more of each")
    n_parts = max(2, min(round(1 / fraction), n // 2))
    # Shuffled, then sorted by class: every n_parts-th row of them is a share of every class.
    shuffled = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    shuffled = shuffled[dealt[shuffled]]
    held_out = torch.zeros(len(y), dtype=torch.bool)
    held_out[shuffled[torch.argsort(labels[shuffled], stable=True)][::n_parts]] = True
    return torch.nonzero(~held_out).flatten().to(y.device), torch.nonzero(held_out).flatten().to(
        y.device
    )


def signature(X: Rows, *data: Tensor | None) -> str:
    """Of every bit: sums would differ with the number of threads, and agree for rows in another order."""
    digest = hashlib.sha256(f"{X.shape}".encode())
    parts = (X[block] for block in blocks(len(X), math.prod(X.shape[1:]), NUMBERS_AT_ONCE))
    for part in chain(parts, data):
        digest.update(f"{None if part is None else tuple(part.shape)}".encode())
        if part is not None:
            digest.update(part.cpu().contiguous().numpy().data)
    return digest.hexdigest()[:16]
