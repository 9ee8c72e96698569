"""Rows, labels and folds, as both engines of a cross-fit use them.

Symbols: n rows, d features, K classes, F folds. A split is (training rows, held-out rows).
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from joblib import Parallel, delayed
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, check_cv

from collidescope import _checks as check
from collidescope._checks import Array, FloatArray, IntArray
from collidescope._progress import Progress
from collidescope._scaling import apply_scaling, fit_scaling, is_memory_map
from collidescope.learners.base import Task
from collidescope.scale import _dask

Split = tuple[IntArray, IntArray]
#: Shares of a fold's training rows on which it is trained again for the range: each half of the next.
FRACTIONS = (0.5, 0.25, 0.125)
FEWEST_ROWS, FEWEST_PER_CLASS = (
    16,
    2,
)  #: the smallest training set that tells of larger ones: rows, and per class
MAPPED_NUMBERS, SPARSE_NUMBERS = (
    20_000_000,
    500_000_000,
)  #: beyond, rows are standardised batch by batch
LARGEST_SPREAD = 1e30  #: far above any scale that is used as it is, and far below an overflow
STEPS = (
    8  #: steps of the progress bar for a fold of all rows; one of a share counts that share of it
)
OTHER = "other classes"  #: the class that ``rare="merge"`` makes


class WorkerError(RuntimeError):
    """A process that trained a fold (``n_jobs``) died."""


class HeldOut(NamedTuple):
    """Held-out posteriors of the rows of all folds that were trained (all rows, unless Ctrl-C ended the fit)."""

    rows: IntArray
    posteriors: FloatArray
    #: Of the pair-wise model: Ĝ at uniform priors, and the mean standard error of q from having so few references.
    gramian: FloatArray | None = None
    reference_stderr: float | None = None


@dataclass(frozen=True)
class Labels:
    """What is known of the class of n rows: a class number each, or several votes.

    ``take(rows)`` lists them as (place in ``rows``, class number, weight): one entry per row, or with votes one per
    row and class that somebody voted for, weighed by its share of the row's votes.
    """

    codes: IntArray
    n_classes: int
    weights: FloatArray | None = None
    votes: FloatArray | None = None

    def take(self, rows: IntArray) -> tuple[IntArray, IntArray, FloatArray | None]:
        weights = None if self.weights is None else self.weights[rows]
        if self.votes is None:
            return np.arange(len(rows)), self.codes[rows], weights
        votes = self.votes[rows]
        place, codes = np.nonzero(votes)
        share = votes[place, codes] / votes.sum(axis=1)[place]
        return place, codes, share if weights is None else share * weights[place]

    @property
    def priors(self) -> FloatArray:
        """Class shares."""
        _, codes, weights = self.take(np.arange(len(self.codes)))
        counts = np.bincount(codes, weights, self.n_classes)
        return np.asarray(counts / counts.sum(), dtype=np.float64)


class Standardised(NamedTuple):
    """Rows brought to a common scale; ``X`` is a float32 array, or Rows that are standardised batch by batch."""

    X: Any
    centre: FloatArray
    scale: FloatArray

    @classmethod
    def of(
        cls, X: Any, centre: FloatArray | None = None, scale: FloatArray | None = None
    ) -> Standardised:
        """Standardise X, by its own median and interquartile range unless told otherwise."""
        if centre is None or scale is None:
            centre, scale = fit_scaling(X)
        numbers = int(np.prod(X.shape))
        limit = (
            SPARSE_NUMBERS
            if hasattr(X, "toarray")
            else MAPPED_NUMBERS
            if is_memory_map(X)
            else numbers
        )
        if numbers > limit:
            from collidescope.training.rows import Rows

            return cls(Rows(X, "cpu", (centre, scale)), centre, scale)
        return cls(apply_scaling(X, centre, scale), centre, scale)

    @property
    def in_memory(self) -> bool:
        return isinstance(self.X, np.ndarray)

    @property
    def spread(self) -> FloatArray:
        """The scale of every feature in units of their median: see :class:`collidescope.learners.base.Task`."""
        positive = self.scale[self.scale > 0]
        if not len(positive):
            return np.ones_like(self.scale)
        with np.errstate(
            over="ignore"
        ):  # "lower": the mean of two of the largest numbers is infinite
            return np.minimum(
                self.scale / np.quantile(positive, 0.5, method="lower"), LARGEST_SPREAD
            )

    def take(self, rows: IntArray) -> Any:
        return self.X[rows] if self.in_memory else self.X.subset(rows)


@dataclass(frozen=True)
class Plan:
    """Folds that are to be trained, whatever the engine: on which of a fit's rows, with which seeds, and how."""

    held: Standardised
    labels: Labels
    splits: list[Split]
    seeds: list[int]
    groups: IntArray | None = None
    device: str = "cpu"
    training: Mapping[str, Any] | None = None
    checkpoint: Path | None = None
    n_jobs: int | None = None
    share: float = 1.0  #: of the training rows that folds could have
    seed: int = 0  #: of subsets and references

    def task(self, number: int, report: Any = None) -> Task:
        """What is learned from the training rows of a fold."""
        rows, labels = self.splits[number][0], self.labels
        place, codes, weights = labels.take(rows)
        rows = rows[place]
        # What must stay together: the rows of a group, else the votes on one row.
        groups = (
            self.groups[rows] if self.groups is not None else None if labels.votes is None else rows
        )
        part = "" if self.share == 1 else f"share-{self.share:g}"
        folder = None if self.checkpoint is None else self.checkpoint / part / f"fold-{number}"
        engine = (self.seeds[number], self.device, self.training, report, folder)
        return Task(
            self.held.take(rows),
            codes,
            labels.n_classes,
            weights,
            groups,
            self.held.spread,
            *engine,
        )


def restored_scaling(tree: Mapping[str, Any]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(training priors, centre, scale) as a file says, checked."""
    priors = check.check_priors(tree["train_priors"], len(tree["train_priors"]), "train_priors")
    centre, scale = (check.check_finite(tree[name], name, ndim=1) for name in ("centre", "scale"))
    if centre.shape != scale.shape or (scale < 0).any():
        raise ValueError(
            f"centre and scale must be alike and scale ≥ 0, got {centre.shape} and {scale.shape}"
        )
    return priors, centre, scale


def resolve_splits(
    cv: Any,
    y: Array,
    classes: Array,
    random_state: Any,
    used: IntArray | None = None,
    groups: IntArray | None = None,
) -> tuple[list[Split], list[str]]:
    """(training rows, held-out rows) of every fold, and what its user should know.

    A number means stratified folds that keep groups together; else what ``cv`` says, checked. ``used`` numbers the rows
    of ``y`` in the table that a list of splits counts.
    """
    notes = list[str]()
    if cv is None or np.isscalar(cv):
        splits = _numbered_splits(cv, y, classes, random_state, groups, notes)
    else:
        try:
            splits = list(check_cv(cv, y, classifier=True).split(y, y, groups))
            _check_row_numbers(splits, n_rows=int(len(y) if used is None else used.max() + 1))
            if used is not None and not hasattr(cv, "split"):
                # A list counts the rows of the whole table: keep those in use, numbered among themselves.
                kept = [
                    [np.asarray(part)[np.isin(part, used)] for part in split] for split in splits
                ]
                splits = [
                    (np.searchsorted(used, train), np.searchsorted(used, test))
                    for train, test in kept
                ]
        except (TypeError, ValueError, IndexError) as error:
            said = f"cv must be a number of folds, a splitter or a list of (training rows, held-out rows): {error}"
            raise ValueError(
                f"{said} (a splitter that needs groups: pass groups= to fit)"
            ) from None
        if not splits:
            raise ValueError(f"cv must have at least 2 folds, got none ({cv!r})")
        for number, (train, test) in enumerate(splits):
            if len(both := np.intersect1d(train, test)):
                raise ValueError(
                    f"cv trains fold {number} on row {both[0]}, which it holds out: no row may be in both"
                )
            if groups is not None and len(both := np.intersect1d(groups[train], groups[test])):
                hint = "use a number of folds, or a splitter such as GroupKFold"
                raise ValueError(
                    f"cv has {len(both)} of the groups on both sides of fold {number}: {hint}"
                )
        if not np.array_equal(
            np.sort(np.concatenate([test for _, test in splits])), np.arange(len(y))
        ):
            raise ValueError(
                f"cv must test every one of the {len(y)} rows exactly once, {type(cv).__name__} does not"
            )
    for number, (train, _) in enumerate(splits):
        if len(missing := np.setdiff1d(classes, y[train])):
            said = f"cv leaves class {missing.tolist()[0]!r} out of the training rows of fold {number}:"
            raise ValueError(f"{said} every class must be in every fold's training rows")
    return splits, notes


def _check_row_numbers(splits: Sequence[Split], n_rows: int) -> None:
    """Refuse numbers that name no row; -1 would be the last row under another name."""
    for number, split in enumerate(splits):
        for part in split:
            rows = np.asarray(part)
            if rows.size and rows.dtype.kind in "iu" and rows.min() < 0:
                raise ValueError(
                    f"fold {number} has the row {rows.min()}, rows are numbered from 0 to "
                    f"{n_rows - 1}: write {n_rows + int(rows.min())} for it"
                )


def _numbered_splits(
    cv: Any, y: Array, classes: Array, random_state: Any, groups: IntArray | None, notes: list[str]
) -> list[Split]:
    check.check_count(cv, "cv", least=2)
    codes = check.encode_labels(y, classes)
    unit, units = "rows", codes
    if groups is not None:
        # Distinct pairs (class, group): a class can be in as many folds as it has groups.
        unit, units = "groups", np.unique(np.column_stack([codes, groups]), axis=0)[:, 0]
    counts = np.bincount(units, minlength=len(classes))
    name, least = classes.tolist()[int(counts.argmin())], int(counts.min())
    if least < 2:
        hint = (
            "rare='drop' leaves such classes out, rare='merge' joins them"
            if groups is None
            else "merge or drop it"
        )
        said = f"class {name!r} of y has {least} of the {unit}, and every class needs at least 2 of them to be both"
        raise ValueError(f"{said} trained on and held out: {hint}")
    if groups is not None:
        if least < cv:
            notes.append(
                f"class {name!r} has only {least} {unit}, so there are {least} folds instead of "
                f"cv={cv}"
            )
        by_group = StratifiedGroupKFold(min(cv, least), shuffle=True, random_state=random_state)
        return list(by_group.split(y, codes, groups))
    # A small class need not be held out in every fold: two rows are never in one, so that every
    # fold trains on one of them. Only the number of rows of the largest class limits the folds.
    n_folds = min(cv, int(counts.max()))
    if least < n_folds:
        others = int((counts < n_folds).sum()) - 1
        said = f"class {name!r} has only {least} rows, so it is held out in {least} of the "
        said += f"{n_folds} folds"
        if others:
            said += f", as are {others} more classes in fewer than all"
        notes.append(f"{said}: leave such classes out (--drop-rare {n_folds}) if S varies too much")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # which says the same
        by_row = StratifiedKFold(n_folds, shuffle=True, random_state=random_state)
        return list(by_row.split(y, codes))


def fold_numbers(splits: Sequence[Split]) -> IntArray:
    """In which fold every row is held out."""
    folds = np.empty(sum(len(test) for _, test in splits), dtype=np.intp)
    for number, (_, test) in enumerate(splits):
        folds[test] = number
    return folds


def mean_size(splits: Sequence[Split]) -> float:
    """Training rows of a fold, on average."""
    return float(np.mean([len(train) for train, _ in splits]))


def handle_rare(
    y: npt.NDArray[Any], used: IntArray, rare: str, notes: list[str]
) -> tuple[npt.NDArray[Any], IntArray]:
    """Labels and the rows in use, after what ``rare`` says was done to classes with a single row; notes say so."""
    names, counts = np.unique(y[used], return_counts=True)
    lonely = names[counts == 1]
    if not len(lonely) or rare == "error":
        return y, used
    shown = ", ".join(repr(name) for name in lonely.tolist()[:5]) + (
        ", …" if len(lonely) > 5 else ""
    )
    if rare == "drop":
        notes.append(f"{len(lonely)} classes with a single row were left out: {shown}")
        return y, used[~np.isin(y[used], lonely)]
    if len(lonely) == 1:
        raise ValueError(
            f"rare='merge' needs two classes with a single row to join, y has one, {shown}: rare='drop'"
        )
    if OTHER in [str(name) for name in names]:
        raise ValueError(
            f"rare='merge' makes a class {OTHER!r}, and y has one of that name: rename it"
        )
    notes.append(f"{len(lonely)} classes with a single row were joined into {OTHER!r}: {shown}")
    merged = y.astype(object)
    merged[np.isin(y, lonely)] = OTHER
    return np.array([str(value) for value in merged.tolist()]), used


def nested_splits(
    splits: Sequence[Split],
    codes: IntArray,
    fraction: float,
    seed: int,
    groups: IntArray | None = None,
) -> list[Split] | None:
    """The same held-out rows with a share of the training rows; None where that leaves too few.

    Subsets are stratified, hold every class, and those of a smaller ``fraction`` lie within those of a larger one. With
    ``groups`` they are taken group by group, beside one row of every class.

    >>> splits = [(np.arange(0, 80, 2), np.arange(1, 80, 2))]
    >>> [len(train) for train, _ in nested_splits(splits, np.repeat([0, 1], 40), 0.5, seed=0)]
    [20]
    """
    smaller = []
    for number, (train, test) in enumerate(splits):
        size = int(np.ceil(fraction * len(train)))
        if size < max(FEWEST_ROWS, FEWEST_PER_CLASS * (int(codes.max()) + 1)):
            return None
        rng = np.random.default_rng([seed, number])
        order = rng.permutation(len(train))
        own = codes[train[order]]
        first = order[np.sort(np.unique(own, return_index=True)[1])]  # a row of every class
        # Rows are taken in the order of their place, which does not depend on the fraction: so subsets are nested.
        place = np.empty(len(train))
        if groups is not None:
            _, unit = np.unique(groups[train], return_inverse=True)
            place[:] = rng.permutation(unit.max() + 1)[unit]
        else:
            for c in np.unique(own):  # rank within the class, as a share of it
                members = order[own == c]
                place[members] = (np.arange(len(members)) + 0.5) / len(members)
        place[first] = -1
        smaller.append((np.sort(train[np.argsort(place, kind="stable")[:size]]), test))
    return smaller


def _in_worker(task: Callable[[int, Any], Any], number: int, parent: int) -> Any:
    """``task(number)`` in a process that ends soon after ``parent``: killed, that one cannot end its workers itself."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)  # joblib's tracker then removes the shared memory

    # Only joblib's own processes: those of another backend have other parents, on other machines.
    started = {thread.name for thread in threading.enumerate()}
    if multiprocessing.current_process().name.startswith("LokyProcess") and "parent" not in started:
        threading.Thread(target=watch, name="parent", daemon=True).start()
    return task(number, None)


def run_folds(
    train: Callable[[int, Any], Any],
    n_folds: int,
    n_jobs: int | None,
    progress: Progress | None = None,
    share: float = 1,
) -> tuple[list[Any], bool]:
    """``train(number, report)`` of every fold, in turn or in parallel; and whether Ctrl-C ended it.

    After Ctrl-C the folds trained so far are kept. When nothing was trained yet KeyboardInterrupt is raised.
    """
    folds: list[Any] = []
    results: Iterator[Any]
    progress = progress or Progress("training folds", n_folds, 0)
    if n_jobs in (None, 1):
        results = (train(number, progress.report) for number in range(n_folds))
    elif (cluster := _dask.cluster()) is not None:
        results = _dask.results(cluster, lambda number: train(number, None), n_folds)
    else:
        calls = (delayed(_in_worker)(train, number, os.getpid()) for number in range(n_folds))
        results = Parallel(n_jobs=n_jobs, return_as="generator")(calls)
    try:
        for fold in results:
            folds.append(fold)
            progress.step(int(STEPS * share))
            if getattr(fold, "interrupted", False):
                return folds, True
    except KeyboardInterrupt:
        if not folds:
            raise
        return folds, True
    except BrokenExecutor as error:
        raise WorkerError(
            f"a worker process died with {len(folds)} of {n_folds} folds trained, mostly because the system ended it "
            f"for want of memory: use n_jobs=1. With checkpoint= networks resume from their last epochs"
        ) from error
    return folds, False
