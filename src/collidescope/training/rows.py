"""The inputs of a fit, wherever they are: a batch of them comes to the training device on demand.

On a GPU they move there once where they fit, else each batch crosses over from pinned memory. Rows
in a file (a memory map) or in a sparse matrix too large to be written out stay there, and are
standardised batch by batch.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from collidescope._scaling import apply_scaling, blocks
from collidescope.training.config import TrainingConfig

SCORING_BATCH = 8192  #: rows scored at once for the held-out loss
VALIDATION_FRACTION = 0.1  #: share of the rows that early stopping watches

Split = tuple[Tensor, Tensor]
Device = torch.device | str


class Rows:
    """Rows of a table or images: ``rows[index]`` are some of them, float32 on ``device``.

    ``data`` is a standardised float32 tensor of shape (n, ...), or an array, memory map or sparse
    matrix as it came; of these ``index`` says which rows (default all), and ``scaling`` (centre,
    scale) how they become standardised.
    """

    def __init__(
        self,
        data: Any,
        device: Device = "cpu",
        scaling: Any = None,
        index: Tensor | None = None,
    ) -> None:
        self.data = data
        self.device = torch.device(device)
        self.scaling = scaling
        self.index = index

    @property
    def shape(self) -> tuple[int, ...]:
        n, *rest = self.data.shape
        if self.index is not None:
            n = len(self.index)
        return (int(n), *rest)

    def __len__(self) -> int:
        return self.shape[0]

    def subset(self, index: npt.NDArray[np.intp]) -> Rows:
        """Some of these rows, in the order of ``index``; nothing is copied."""
        own = torch.from_numpy(index)
        if self.index is not None:
            own = self.index[own]
        return Rows(self.data, self.device, self.scaling, own)

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        if not isinstance(self.data, Tensor):
            return self._read(rows).to(self.device)
        data = self.data
        if isinstance(rows, slice):
            return data[rows].to(self.device)
        if data.device.type == self.device.type:
            return data.index_select(0, rows)
        _, *row_shape = data.shape
        shape = (len(rows), *row_shape)
        pinned = self.device.type == "cuda"
        batch = torch.empty(shape, pin_memory=pinned)
        torch.index_select(data, 0, rows.cpu(), out=batch)
        return batch.to(self.device, non_blocking=True)

    def _read(self, rows: slice | Tensor) -> Tensor:
        """Rows of an array, a file or a sparse matrix, standardised."""
        if isinstance(rows, slice):
            rows = torch.arange(*rows.indices(len(self)))
        where = rows.cpu()
        if self.index is not None:
            where = self.index[where]
        block = self.data[where.numpy()]
        if self.scaling:
            block = apply_scaling(block, *self.scaling)
        return tensor(block)

    def __array__(
        self, dtype: Any = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        return np.asarray(self[:].cpu().numpy(), dtype=dtype)


def tensor(X: Any) -> Tensor:
    """Rows as a float32 tensor, on their own memory where that will do.

    Even on read-only memory: rows are never written to.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="The given NumPy array is not writable"
        )
        return torch.from_numpy(np.ascontiguousarray(X, dtype=np.float32))


def as_rows(X: Any, device: Device, gpu_share: float = 0.5) -> Rows:
    """An array or tensor as rows on ``device``; rows as they are, for ``device``.

    They are moved to a GPU where they take at most ``gpu_share`` of its free memory; the rest is
    for the network and activations.
    """
    if isinstance(X, Rows):
        return Rows(X.data, device, X.scaling, X.index)
    if isinstance(X, Tensor):
        data = X.to(torch.float32)
    else:
        data = tensor(X)
    device = torch.device(device)
    moves = device.type == "cuda" and data.device.type == "cpu"
    if moves:
        free, _ = torch.cuda.mem_get_info(device)
        if data.nbytes > gpu_share * free:
            return Rows(data, device)
    return Rows(data.to(device), device)


def labels_and_weights(
    codes: Any, weights: Any, device: str
) -> tuple[Tensor, Tensor | None]:
    """Class numbers and weights (None for equal ones) as tensors on ``device``."""
    y = torch.from_numpy(np.asarray(codes, dtype=np.int64)).to(device)
    if weights is None:
        return y, None
    return y, tensor(weights).to(device)


def validation_split(y: Tensor, config: TrainingConfig, seed: int) -> Split:
    """(rows to train on, rows for early stopping); all are trained on without early stopping."""
    if config.patience == 0:
        every = torch.arange(len(y), device=y.device)
        return every, every[:0]
    return stratified_split(y, VALIDATION_FRACTION, seed)


def stratified_split(y: Tensor, fraction: float, seed: int) -> Split:
    """(training rows, held-out rows), stratified by class.

    Rows of a class with one member are trained on.
    """
    labels = y.cpu()
    sizes = torch.bincount(labels)
    own_sizes = sizes[labels]
    dealt = own_sizes > 1
    n = int(dealt.sum())
    if n == 0:
        found = "one row of every class of y to train on and none to validate with"
        raise ValueError(f"a fold has {found}: gather more of each")
    wanted = round(1 / fraction)
    n_parts = max(2, min(wanted, n // 2))
    generator = torch.Generator().manual_seed(seed)
    every = torch.randperm(len(y), generator=generator)
    shuffled = every[dealt[every]]
    # Sorted by class, every n_parts-th row of them is a share of every class.
    order = torch.argsort(labels[shuffled], stable=True)
    by_class = shuffled[order]
    held_out = torch.zeros(len(y), dtype=torch.bool)
    held_out[by_class[::n_parts]] = True
    (train,) = torch.nonzero(~held_out, as_tuple=True)
    (watched,) = torch.nonzero(held_out, as_tuple=True)
    return train.to(y.device), watched.to(y.device)


def signature(X: Rows, *data: Tensor | None, numbers_at_once: int = 4_000_000) -> str:
    """A digest of every bit; sums would depend on the threads, and not on the order of the rows."""
    shape = X.shape
    digest = hashlib.sha256(f"{shape}".encode())

    def add(part: Tensor | None) -> None:
        if part is None:
            digest.update(b"None")
            return
        own_shape = tuple(part.shape)
        digest.update(f"{own_shape}".encode())
        whole = part.cpu().contiguous()
        digest.update(whole.numpy().data)

    width = math.prod(shape[1:])
    for block in blocks(len(X), width, numbers_at_once):
        add(X[block])
    for part in data:
        add(part)
    return digest.hexdigest()[:16]
