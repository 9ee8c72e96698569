"""The folds of a cross-fit: splits, nested subsets of the training rows, units run in parallel.

Symbols: n rows, K classes, F folds. A split is (training rows, held-out rows).
"""

from __future__ import annotations

import math
import multiprocessing
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from joblib import Parallel, delayed
from joblib.externals.loky import process_executor
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, check_cv
from sklearn.utils import check_random_state

from collidescope import _checks as check
from collidescope._checks import Array, ArrayLike, IntArray
from collidescope._progress import Progress, Report
from collidescope.sample import Sample
from collidescope.scale import _dask

Split = tuple[IntArray, IntArray]
RandomState = int | np.random.RandomState | np.random.Generator | None


class Splitter(Protocol):
    """A splitter of scikit-learn."""

    def split(self, X: Array, y: Array, groups: Array | None, /) -> Iterator[Split]: ...


#: A number of folds, a splitter, or a list of (training rows, held-out rows).
CV = int | Splitter | Sequence[tuple[ArrayLike, ArrayLike]]
#: Shares of a fold's training rows on which it is trained again for the range: each half of the
#: next.
FRACTIONS = (0.5, 0.25, 0.125)


class WorkerError(RuntimeError):
    """A process that trained a fold (``n_jobs``) died."""


@dataclass(frozen=True)
class Folds:
    """Which rows are held out when, and the seeds of a cross-fit: see :func:`make_folds`."""

    splits: list[Split]
    seeds: list[int]  #: of the training of each fold
    seed: int = 0  #: of subsets and references
    share: float = 1.0  #: of the training rows that folds could have
    notes: tuple[str, ...] = ()
    #: with all training rows, where these have a share
    whole: list[Split] | None = None

    @property
    def size(self) -> float:
        """Training rows of a fold, on average."""
        return float(np.mean([len(train) for train, _ in self.splits]))

    @property
    def smallest(self) -> int:
        """Training rows of the smallest fold."""
        return min(len(train) for train, _ in self.splits)

    def smaller(self, sample: Sample, share: float) -> Folds | None:
        """The same folds with a share of their training rows; None where that leaves too few."""
        parts = nested_splits(
            self.splits, sample.codes, share, self.seed, sample.groups
        )
        if parts is None:
            return None
        whole = self.whole or self.splits
        return replace(self, splits=parts, share=share, whole=whole)


def as_random_state(random_state: RandomState) -> np.random.RandomState:
    """What ``random_state`` means to scikit-learn; of a numpy Generator the same stream of bits."""
    if isinstance(random_state, np.random.Generator):
        return np.random.RandomState(random_state.bit_generator)
    try:
        return check_random_state(random_state)
    except ValueError:
        wanted = "None, a whole number ≥ 0, a RandomState or a numpy Generator"
        raise ValueError(
            f"random_state must be {wanted}, got {random_state!r}"
        ) from None


def make_folds(sample: Sample, cv: CV, random_state: RandomState = None) -> Folds:
    """The folds of a sample, with seeds of their own for subsets and for each fold's training.

    >>> from collidescope.sample import make_sample
    >>> sample = make_sample(np.arange(8.0)[:, None], np.arange(8) % 2)
    >>> [
    ...     len(held_out)
    ...     for _, held_out in make_folds(sample, cv=2, random_state=0).splits
    ... ]
    [4, 4]
    """
    draw = as_random_state(random_state)
    largest = 2**31 - 1
    two_seeds = draw.randint(largest, size=2)
    of_folds, of_subsets = two_seeds.tolist()
    labels, classes = _strata(sample)
    splits, notes = resolve_splits(
        cv, labels, classes, of_folds, sample.used, sample.groups
    )
    _check_votes(sample, splits)
    n_folds = len(splits)
    seeds = draw.randint(largest, size=n_folds)
    folds = Folds(splits, seeds.tolist(), of_subsets, notes=tuple(notes))
    if isinstance(cv, int):  # folds that the user made are all trained
        return enough_folds(folds)
    return folds


def _strata(sample: Sample) -> tuple[Array, Array]:
    """The labels by which folds are balanced, and their classes.

    A class that leads the votes of fewer than two rows need not be in every fold: its votes on
    other rows teach it.
    """
    classes = sample.classes
    codes = sample.codes
    if sample.votes is None:
        return classes[codes], classes
    n_classes = len(classes)
    n_led = np.bincount(codes, minlength=n_classes)
    leading = np.flatnonzero(n_led >= 2)
    if not len(leading):
        leading = np.array([0])
    votes = sample.votes[:, leading]
    most_voted = votes.argmax(axis=1)
    labels = classes[leading[most_voted]]
    return labels, np.unique(labels)


def _check_votes(sample: Sample, splits: Sequence[Split]) -> None:
    """Refuse folds whose training rows have no vote for a class."""
    votes = sample.votes
    if votes is None:
        return
    names = sample.classes.tolist()
    for number, (train, _) in enumerate(splits):
        voted = votes[train].any(axis=0)
        if not voted.all():
            missing = int(voted.argmin())
            name = names[missing]
            said = f"y (votes) has votes for class {name!r} in no training row of fold {number}"
            raise ValueError(f"{said}: leave that column out, or join it with another")


def resolve_splits(
    cv: CV,
    y: Array,
    classes: Array,
    random_state: int | np.random.RandomState | None,
    used: IntArray | None = None,
    groups: IntArray | None = None,
) -> tuple[list[Split], list[str]]:
    """(training rows, held-out rows) of every fold, and what its user should know.

    A number means stratified folds that keep groups together; else what ``cv`` says, checked.
    ``used`` numbers the rows of ``y`` in the table that a list of splits counts.
    """
    notes = list[str]()
    if cv is None or np.isscalar(cv):
        n_folds = check.check_count(cv, "cv", least=2)  # type: ignore[arg-type]
        splits = _numbered_splits(n_folds, y, classes, random_state, groups, notes)
    else:
        splits = _given_splits(cv, y, used, groups)
        _check_splits(splits, cv, len(y), groups)
    _check_classes(splits, y, classes)
    return splits, notes


def _check_classes(splits: Sequence[Split], y: Array, classes: Array) -> None:
    for number, (train, _) in enumerate(splits):
        trained = y[train]
        missing = np.setdiff1d(classes, trained)
        if len(missing):
            name = missing.tolist()[0]
            said = f"cv leaves class {name!r} out of the training rows of fold {number}"
            wanted = "every class must be in every fold's training rows"
            raise ValueError(f"{said}: {wanted}")


def _given_splits(
    cv: CV, y: Array, used: IntArray | None, groups: IntArray | None
) -> list[Split]:
    try:
        splitter = check_cv(cv, y, classifier=True)
        splits = list(splitter.split(y, y, groups))
        n_rows = len(y)
        if used is not None:
            n_rows = int(used.max()) + 1
        _check_row_numbers(splits, n_rows)
        if used is None or hasattr(cv, "split"):
            return splits
        # A list counts the rows of the whole table: keep those in use, numbered among themselves.
        return [(_among(used, train), _among(used, test)) for train, test in splits]
    except (TypeError, ValueError, IndexError) as error:
        wanted = (
            "a number of folds, a splitter or a list of (training rows, held-out rows)"
        )
        hint = "a splitter that needs groups: pass groups= to fit"
        raise ValueError(f"cv must be {wanted}: {error} ({hint})") from None


def _check_row_numbers(splits: Sequence[Split], n_rows: int) -> None:
    """Refuse numbers that name no row; -1 would be the last row under another name."""
    for number, split in enumerate(splits):
        for part in split:
            rows = np.asarray(part)
            if rows.size == 0 or rows.dtype.kind not in "iu":
                continue
            lowest = int(rows.min())
            if lowest < 0:
                said = f"fold {number} has the row {lowest}"
                last = n_rows - 1
                known = f"rows are numbered from 0 to {last}"
                hint = f"write {n_rows + lowest} for it"
                raise ValueError(f"{said}, {known}: {hint}")


def _among(used: IntArray, rows: ArrayLike) -> IntArray:
    own = np.asarray(rows)
    return np.searchsorted(used, own[np.isin(own, used)])


def _check_splits(
    splits: list[Split], cv: CV, n_rows: int, groups: IntArray | None
) -> None:
    if not splits:
        raise ValueError(f"cv must have at least 2 folds, got none ({cv!r})")
    for number, (train, test) in enumerate(splits):
        both = np.intersect1d(train, test)
        if len(both):
            said = f"cv trains fold {number} on row {both[0]}, which it holds out"
            raise ValueError(f"{said}: no row may be in both")
        if groups is None:
            continue
        shared = np.intersect1d(groups[train], groups[test])
        n_shared = len(shared)
        if n_shared > 0:
            said = f"cv has {n_shared} of the groups on both sides of fold {number}"
            hint = "use a number of folds, or a splitter such as GroupKFold"
            raise ValueError(f"{said}: {hint}")
    tests = [test for _, test in splits]
    tested = np.sort(np.concatenate(tests))
    every = np.arange(n_rows)
    if not np.array_equal(tested, every):
        kind = type(cv).__name__
        said = f"cv must test every one of the {n_rows} rows exactly once"
        raise ValueError(f"{said}, {kind} does not")


def _numbered_splits(
    n_folds: int,
    y: Array,
    classes: Array,
    random_state: int | np.random.RandomState | None,
    groups: IntArray | None,
    notes: list[str],
) -> list[Split]:
    codes = check.encode_labels(y, classes)
    unit = "rows"
    units = codes
    hint = "rare='drop' leaves such classes out, rare='merge' joins them"
    if groups is not None:
        # Distinct pairs (class, group): a class can be in as many folds as it has groups.
        unit = "groups"
        units = np.unique(np.column_stack([codes, groups]), axis=0)[:, 0]
    counts = np.bincount(units, minlength=len(classes))
    smallest = int(counts.argmin())
    name = classes.tolist()[smallest]
    least = int(counts[smallest])
    if (codes == smallest).sum() > 1:
        hint = "join it with another class, or leave its rows out"
    if least < 2:
        said = f"class {name!r} of y is in {least} of the {unit}"
        needs = "every class needs at least 2, one to train on and one to hold out"
        raise ValueError(f"{said}, and {needs}: {hint}")
    said = f"class {name!r} has only {least} {unit}"
    if groups is not None:
        if least < n_folds:
            notes.append(f"{said}, so there are {least} folds instead of cv={n_folds}")
        by_group = StratifiedGroupKFold(
            min(n_folds, least), shuffle=True, random_state=random_state
        )
        return list(by_group.split(y, codes, groups))
    # A small class need not be held out in every fold: two rows are never in one, so that every
    # fold trains on one of them. Only the number of rows of the largest class limits the folds.
    n_folds = min(n_folds, int(counts.max()))
    if least < n_folds:
        said += f", so it is held out in {least} of the {n_folds} folds"
        others = int((counts < n_folds).sum()) - 1
        if others:
            more = "another class" if others == 1 else f"{others} more classes"
            said += f", and {more} in fewer than all"
        notes.append(
            f"{said}: if S varies too much, leave out classes of fewer than {n_folds} rows"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # which says the same
        by_row = StratifiedKFold(n_folds, shuffle=True, random_state=random_state)
        return list(by_row.split(y, codes))


def fold_numbers(splits: Sequence[Split], n_rows: int) -> IntArray:
    """The fold in which each row is held out; -1 for rows that are never held out."""
    folds = np.full(n_rows, -1, dtype=np.intp)
    for number, (_, test) in enumerate(splits):
        folds[test] = number
    return folds


def enough_folds(folds: Folds, enough: int = 40_000, many: int = 100_000) -> Folds:
    """With many rows, only as many folds as give enough held-out rows, and at least two.

    With 40,000 the sampling error of PBER is at most .0025, mostly far less than what is not known
    about unlimited rows. Two, as the weights of the models come from rows of other folds.
    """
    n_folds = len(folds.splits)
    sizes = [len(test) for _, test in folds.splits]
    held_out = np.cumsum(sizes)
    n_rows = int(held_out[-1])
    reached = int(np.searchsorted(held_out, enough))
    wanted = reached + 1
    wanted = max(wanted, 2)
    if n_rows < many or wanted >= n_folds:
        return folds
    scored = int(held_out[wanted - 1])
    others = n_rows - scored
    trained = f"{wanted} of {n_folds} folds are trained"
    said = f"{scored:,} held-out rows are enough: {trained}"
    unscored = f"the posteriors of the other {others:,} rows are nan"
    hint = "a splitter of scikit-learn as cv trains all folds"
    note = f"{said}, and {unscored} ({hint})"
    notes = (*folds.notes, note)
    return replace(
        folds,
        splits=folds.splits[:wanted],
        seeds=folds.seeds[:wanted],
        notes=notes,
    )


def nested_splits(
    splits: Sequence[Split],
    codes: IntArray,
    fraction: float,
    seed: int,
    groups: IntArray | None = None,
    fewest_rows: int = 16,
    fewest_per_class: int = 2,
) -> list[Split] | None:
    """The same held-out rows with a share of the training rows; None where that leaves too few.

    Subsets are stratified, hold every class, and those of a smaller ``fraction`` lie within those
    of a larger one. With ``groups`` they are taken group by group, beside one row of every class.
    Folds may share subsets, so that fewer models serve them: see :func:`sharing_folds`.

    >>> splits = [(np.arange(0, 80, 2), np.arange(1, 80, 2))]
    >>> [
    ...     len(train)
    ...     for train, _ in nested_splits(splits, np.repeat([0, 1], 40), 0.5, seed=0)
    ... ]
    [20]
    """
    n_classes = int(codes.max()) + 1
    fewest = max(fewest_rows, fewest_per_class * n_classes)
    sizes = [math.ceil(fraction * len(train)) for train, _ in splits]
    if min(sizes) < fewest:
        return None
    of_fold = {}
    for numbers in sharing_folds(splits, codes):
        rows = shared_rows([splits[number] for number in numbers])
        size = min(sizes[number] for number in numbers)
        taken = _subset(rows, size, codes, groups, [seed, numbers[0]])
        for number in numbers:
            _, test = splits[number]
            of_fold[number] = (taken, test)
    return [of_fold[number] for number in range(len(splits))]


def sharing_folds(
    splits: Sequence[Split], codes: IntArray, many: int = 10_000
) -> list[list[int]]:
    """The numbers of the folds, those that share the subsets of smaller sizes in one list.

    All of them share, where enough rows are never held out. Of ``many`` rows two halves do: what
    one half of the folds holds out, models of the other may learn from. So a smaller size takes one
    or two models, not one for each fold. With fewer rows that would make the curve less certain:
    which rows models learned from then matters about as much as how many.
    """
    numbers = list(range(len(splits)))
    middle = math.ceil(len(numbers) / 2)
    choices = [[numbers]]
    if len(codes) >= many:
        halves = [numbers[:middle], numbers[middle:]]
        choices.append(halves)
    for together in choices:
        if all(enough_shared(splits, part, codes) for part in together):
            return together
    return [[number] for number in numbers]


def enough_shared(
    splits: Sequence[Split], numbers: Sequence[int], codes: IntArray
) -> bool:
    """Whether some folds train on enough rows in common, of all classes."""
    rows = shared_rows([splits[number] for number in numbers])
    largest = FRACTIONS[0] * max(len(train) for train, _ in splits)
    differing = 0.01  # folds differ by a few rows
    enough = len(rows) >= (1 - differing) * largest
    return enough and count_classes(codes[rows]) == count_classes(codes)


def count_classes(codes: IntArray) -> int:
    """How many classes occur."""
    return int((np.bincount(codes) > 0).sum())


def shared_rows(splits: Sequence[Split]) -> IntArray:
    """Rows that all these folds train on."""
    shared, _ = splits[0]
    for train, _ in splits[1:]:
        only_here = rows_without(shared, train)
        shared = rows_without(shared, only_here)
    return shared


def rows_without(rows: IntArray, *others: IntArray) -> IntArray:
    """The row numbers that none of the others has, in order: a mark per row, nothing is sorted."""
    numbers = [np.asarray(each, dtype=np.intp) for each in (rows, *others)]
    largest = max(int(each.max(initial=-1)) for each in numbers)
    left = np.zeros(largest + 1, dtype=bool)
    left[numbers[0]] = True
    for each in numbers[1:]:
        left[each] = False
    return np.flatnonzero(left)


def _subset(
    rows: IntArray,
    size: int,
    codes: IntArray,
    groups: IntArray | None,
    seed: list[int],
) -> IntArray:
    """So many of the rows, within those that a larger size takes with the same seed."""
    rng = np.random.default_rng(seed)
    own_groups = None
    if groups is not None:
        own_groups = groups[rows]
    place = _places(codes[rows], own_groups, rng)
    order = np.argsort(place, kind="stable")
    return np.sort(rows[order[:size]])


def _places(
    codes: IntArray, groups: IntArray | None, rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """The order in which rows are taken, for any fraction: so subsets are nested."""
    n = len(codes)
    order = rng.permutation(n)
    shuffled = codes[order]
    present, first = np.unique(shuffled, return_index=True)
    place = np.empty(n)
    if groups is not None:
        names, unit = np.unique(groups, return_inverse=True)
        n_groups = len(names)
        of_group = rng.permutation(n_groups)
        place[:] = of_group[unit]
    else:
        for c in present:  # rank within the class, as a share of it
            members = order[shuffled == c]
            n_members = len(members)
            rank = np.arange(n_members) + 0.5
            place[members] = rank / n_members
    place[order[first]] = -1  # a row of every class
    return place


class Trained(Protocol):
    """What a unit of work came to."""

    @property
    def interrupted(self) -> bool: ...


T = TypeVar("T", bound=Trained)
#: Does a unit of work, and reports epochs where somebody looks.
Call = Callable[[Report | None], T]


def _in_worker(call: Call[T], parent: int, may_grow: float = 1e9) -> T:
    """``call(None)`` in a process that ends soon after ``parent``, which may be killed.

    Joblib replaces a process that has grown by 300 MB since its first unit, as it may leak. Torch
    alone takes 200: every few units were followed by seconds of imports.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)  # joblib's tracker then removes the shared memory

    # Only joblib's own processes: those of another backend have other parents, on other machines.
    started = {thread.name for thread in threading.enumerate()}
    own_process = multiprocessing.current_process().name.startswith("LokyProcess")
    if own_process and "parent" not in started:
        threading.Thread(target=watch, name="parent", daemon=True).start()
        process_executor._MAX_MEMORY_LEAK_SIZE = may_grow
    return call(None)


def run_units(
    calls: Sequence[Call[T]],
    n_jobs: int | None,
    progress: Progress,
    steps: Mapping[int, float],
) -> tuple[list[T], bool]:
    """What every unit came to, in turn or in parallel; and whether Ctrl-C ended it.

    ``steps`` says after how many units a fold is done, and how many steps of the progress bar
    that is. After Ctrl-C the units done so far are kept. When nothing was done yet
    KeyboardInterrupt is raised.
    """
    units: list[T] = []
    try:
        for unit in _results(calls, n_jobs, progress):
            units.append(unit)
            n_units = len(units)
            if n_units in steps:
                progress.step(steps[n_units])
            if unit.interrupted:
                return units, True
    except KeyboardInterrupt:
        if not units:
            raise
        return units, True
    except BrokenExecutor as error:
        done = sum(last <= len(units) for last in steps)
        said = f"a worker process died with {done} of {len(steps)} folds trained"
        why = "most likely because the system ran out of memory"
        hint = "With checkpoint= networks resume from their last epochs"
        raise WorkerError(f"{said}, {why}: use n_jobs=1. {hint}") from error
    return units, False


def _results(
    calls: Sequence[Call[T]], n_jobs: int | None, progress: Progress
) -> Iterator[T]:
    if n_jobs in (None, 1):
        yield from (call(progress.report) for call in calls)
        return
    cluster = _dask.cluster()
    if cluster is not None:
        yield from _dask.results(
            cluster, lambda number: calls[number](None), len(calls)
        )
        return
    parent = os.getpid()
    in_workers = (delayed(_in_worker)(call, parent) for call in calls)
    try:
        workers = Parallel(n_jobs=n_jobs, return_as="generator")
    except ValueError:
        # a back end of joblib that returns nothing before it has everything
        workers = Parallel(n_jobs=n_jobs)
    yield from workers(in_workers)
