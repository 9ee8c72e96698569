"""The way in and out of torch: numpy arrays to trained folds, folds to numpy arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from collidescope._scaling import apply_scaling, lies_in_a_file
from collidescope.learners.claims import check_claims
from collidescope.learners.ensemble import fit_members
from collidescope.learners.fold_models import FoldModel, PairwiseFoldModel
from collidescope.training.config import TrainingConfig
from collidescope.training.faults import said_plainly
from collidescope.training.networks import EncoderFactory
from collidescope.training.rows import Rows, as_rows
from collidescope.training.splits import inner_splits
from collidescope.training.threads import one_thread

Fold = FoldModel | PairwiseFoldModel
FloatArray = npt.NDArray[np.float64]
#: Up to so many rows one thread trains the small networks: their matrices are too small to share, and threads that wait
#: for one another on a busy machine made a fit a hundred times slower.
ONE_THREAD_ROWS = 20_000
#: Numbers of a sparse matrix that are written out in memory (2 GB): faster than batch by batch.
MOST_DENSE = 500_000_000


def resolve_device(device: str) -> str:
    """The device that ``"auto"`` means here: an accelerator where there is one, else the CPU."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {device!r} cannot be used here: {str(error).splitlines()[0]}") from None
    return device


def hold(X: Any, centre: FloatArray, scale: FloatArray, device: str) -> Rows:
    """Rows ``X`` as training and scoring want them: standardised at once in memory, or batch by batch from a file.

    A sparse matrix is written out up to :data:`MOST_DENSE` numbers, and beyond it batch by batch.
    """
    if lies_in_a_file(X) or (hasattr(X, "toarray") and X.shape[0] * X.shape[1] > MOST_DENSE):
        return Rows(X, device, (centre, scale))
    return as_rows(torch.from_numpy(apply_scaling(X, centre, scale)), device)


def rows_of(held: Rows, index: npt.NDArray[np.intp]) -> Rows:
    """Some of the rows, in the order of ``index``."""
    return held.subset(torch.from_numpy(np.asarray(index, dtype=np.int64)))


def device_of(fold: Fold) -> str:
    """Where the fold's weights are, and its rows are wanted."""
    return next((str(t.device) for member in fold.members for t in member.module.state_dict().values()), "cpu")


def train_fold(
    X: npt.NDArray[np.float32] | Rows,
    codes: npt.NDArray[np.intp],
    n_classes: int,
    config: TrainingConfig,
    seed: int,
    sample_weight: FloatArray | None = None,
    factory: EncoderFactory | None = None,
    progress: Callable[[dict[str, Any]], None] | None = None,
    checkpoint: str | Path | None = None,
) -> Fold:
    """Train one fold's models on rows ``X``: see :func:`~collidescope.learners.ensemble.fit_members`."""
    weight = None if sample_weight is None else torch.from_numpy(np.asarray(sample_weight, dtype=np.float32))
    labels = torch.from_numpy(np.asarray(codes, dtype=np.int64))
    plainly = said_plainly(
        "training", "lower batch_size, use smaller networks, or fit a sample of the rows", config.device
    )
    with plainly, one_thread(config.device == "cpu" and factory is None and len(X) <= ONE_THREAD_ROWS):
        return fit_members(_rows(X), labels, n_classes, config, seed, weight, factory, progress, checkpoint)


def posteriors(fold: FoldModel, X: npt.NDArray[np.float32] | Rows) -> FloatArray:
    """y(x) of every row, at the priors of the rows the fold was trained on."""
    with one_thread(False), _scoring(fold):
        return fold.posteriors(_rows(X)).numpy()


def pair_similarity(fold: PairwiseFoldModel, A: npt.ArrayLike, B: npt.ArrayLike, correction: bool) -> FloatArray:
    """Sim of every pair of rows."""
    with one_thread(False), _scoring(fold):
        return fold.similarity(_tensor(A), _tensor(B), correction).numpy()


def class_similarity(
    fold: PairwiseFoldModel,
    X: npt.ArrayLike,
    references: npt.ArrayLike,
    reference_codes: npt.NDArray[np.intp],
    reference_weight: FloatArray | None,
    exclude: npt.NDArray[np.intp] | None,
    correction: bool,
) -> tuple[FloatArray, FloatArray]:
    """q(x) and its standard error; ``exclude`` is the place of each row among the references (-1 for none)."""
    labels = torch.from_numpy(np.asarray(reference_codes, dtype=np.int64))
    own: bool | torch.Tensor = False if exclude is None else torch.from_numpy(np.asarray(exclude, dtype=np.int64))
    weight = None if reference_weight is None else torch.from_numpy(reference_weight)
    with one_thread(False), _scoring(fold):
        result = fold.class_similarity(_tensor(X), _tensor(references), labels, own, correction, weight)
    return result.q.numpy(), result.stderr.numpy()


def lacks_pairs(
    codes: npt.NDArray[np.intp], n_classes: int, config: TrainingConfig, seed: int
) -> npt.NDArray[np.bool_]:
    """Which classes are too small for balanced pairs in one of the two parts a pair-wise fold is trained with."""
    split = inner_splits(torch.from_numpy(np.asarray(codes, dtype=np.int64)), 1, config.validation_fraction, seed)[0]
    trained, held_out = (np.bincount(codes[rows.numpy()], minlength=n_classes) for rows in split)
    return np.asarray((trained < 2) | (held_out == 1))


def is_trained(fold: Fold) -> bool:
    """False when Ctrl-C came before the first epoch of the first model had ended."""
    return not fold.interrupted or len(fold.members) > 1 or bool(fold.members[0].history)


def export_fold(fold: Fold) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Plain arrays and a JSON-able description of a fold."""
    tensors, description = fold.export()
    return {name: tensor.numpy() for name, tensor in tensors.items()}, description


def import_fold(
    arrays: Mapping[str, npt.NDArray[Any]], description: Mapping[str, Any], factory: EncoderFactory | None
) -> Fold:
    """The inverse of :func:`export_fold`."""
    kinds: dict[str, type[FoldModel] | type[PairwiseFoldModel]] = {
        "factorised": FoldModel,
        "pairwise": PairwiseFoldModel,
    }
    if description.get("model") not in kinds:
        raise ValueError(
            f"unknown kind of model {description.get('model')!r}: the file is damaged or from another release"
        )
    check_claims(arrays, description)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return kinds[description["model"]].from_export(tensors, description, factory)


def _scoring(fold: Fold) -> AbstractContextManager[None]:
    remedy = "score fewer rows at a time, or move to a machine with more memory"
    return said_plainly("scoring rows", remedy, device_of(fold))


def _rows(X: Any) -> torch.Tensor | Rows:
    return X if isinstance(X, Rows) else _tensor(X)


def _tensor(X: npt.ArrayLike | Rows) -> torch.Tensor:
    if isinstance(X, Rows):
        return X[:]
    # torch cannot share read-only memory without a warning; a copy of a batch is cheap
    array = np.ascontiguousarray(X, dtype=np.float32)
    return torch.from_numpy(array if array.flags.writeable else array.copy())
