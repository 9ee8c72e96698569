"""Cross-fitting: every row is scored by models that did not train on it, new rows by all folds.

Symbols: n rows, K classes, F folds, M models, P (n, K) held-out posteriors at the priors of the
training rows. The unit of work is (size, fold, model): :func:`train_unit` fits one model to the
training rows of one fold and scores the rows that the fold holds out. Models are then pooled. The
weights with which a row is pooled were fitted on rows of the other folds, so no label takes part in
scoring its own row.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from joblib import effective_n_jobs

from collidescope._checks import CollisionWarning, FloatArray, IntArray
from collidescope._progress import Progress, Report
from collidescope._scaling import blocks
from collidescope._threads import ONE_THREAD_NUMBERS, one_thread
from collidescope.folds import FRACTIONS, Folds, Split, run_units
from collidescope.learners.base import Member, Task
from collidescope.learners.pool import pool, pool_weights
from collidescope.models import Comparing, Comparison, Fitted, Model, Settings
from collidescope.sample import Sample, Scaling, Table
from collidescope.scale import _dask

#: Posteriors that are computed at once, in numbers (float64, and a few copies on the way).
SCORED_NUMBERS = 2**24
In = TypeVar("In")
Out = TypeVar("Out")
#: Epoch by epoch losses of networks, by their name.
History = dict[str, list[dict[str, Any]]]
STEPS = 8  #: of the progress bar for a fold of all rows; one of a share counts that share of it


@dataclass(frozen=True)
class Engine:
    """How the work is done: only ``training`` and ``budget`` change what is estimated.

    The budget is spent from when the engine is made.
    """

    device: str = "cpu"
    training: Settings | None = None
    checkpoint: Path | None = None
    n_jobs: int | None = None
    verbose: int = 0
    budget: float | None = (
        None  #: seconds after which no further training size is started
    )
    started: float = field(
        default_factory=time.monotonic
    )  #: when the budget began to be spent
    #: what models have chosen once, for all folds and sizes: see :class:`Task`
    memory: dict[str, Any] = field(default_factory=dict)

    @property
    def seconds_left(self) -> float:
        """The seconds of the budget that are left."""
        if self.budget is None:
            return math.inf
        return self.started + self.budget - time.monotonic()

    def overdue(self, share: float = 1.0) -> bool:
        """Whether a share of the budget is spent."""
        return self.budget is not None and self.seconds_left < (1 - share) * self.budget


def resolve_device(device: str) -> str:
    """The device that ``"auto"`` means here: an accelerator where there is one, else the CPU."""
    if device == "cpu" or (device == "auto" and find_spec("torch") is None):
        return "cpu"
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        said = str(error).splitlines()[0]
        raise ValueError(f"device {device!r} cannot be used here: {said}") from None
    return device


@dataclass(frozen=True)
class Unit:
    """What one model learned from one fold at one size."""

    fitted: Fitted
    scores: (
        npt.NDArray[np.floating] | None
    )  #: log posteriors of held-out rows; None before a comparison
    seconds: float
    interrupted: bool = False
    capped: bool = (
        False  #: whether training ended for lack of steps, not because it was done
    )


#: The units of one fold at one size, by the name of the model.
FoldUnits = dict[str, Unit]


@dataclass(frozen=True)
class HeldOut:
    """Held-out posteriors of the rows of trained folds.

    All rows, unless Ctrl-C ended the fit or fewer folds were enough.
    """

    size: float  #: training rows of a fold, on average
    rows: IntArray
    posteriors: npt.NDArray[np.floating]
    #: whether a model with a weight ended for lack of steps, or the pool learns from a sample
    capped: bool = False


@dataclass(frozen=True)
class Ensemble:
    """Models of all folds, and what is needed to score new rows with them."""

    folds: list[dict[str, Fitted]]
    models: dict[str, Model]
    weights: dict[
        str, float
    ]  #: how much each model counts for new rows, fitted on all held-out rows
    scaling: Scaling | None
    train_priors: FloatArray
    row_shape: tuple[int, ...]
    comparison: Comparison | None = (
        None  #: of the only model, where that is one that compares rows
    )

    def posteriors(self, X: Table) -> FloatArray:
        """Posteriors of new rows at ``train_priors``, averaged over the folds."""
        rows = self._scaled(X)
        n_classes = len(self.train_priors)
        n_rows = rows.shape[0]
        out = np.zeros((n_rows, n_classes))
        for block in row_blocks(rows, n_classes):
            out[block] = self._score(rows[block])
        return out

    def similarity(self, A: Table, B: Table) -> FloatArray | None:
        """Sim of every pair of new rows by a model that compares them; None where none does."""
        if self.comparison is None:
            return None
        return self.comparison.similarity(self._scaled(A), self._scaled(B))

    def _scaled(self, X: Table) -> Table:
        shape = tuple(X.shape[1:])
        if shape != self.row_shape:
            wanted = f"rows of shape {self.row_shape} as in training"
            raise ValueError(f"X must have {wanted}, got {shape}")
        if self.scaling is None:
            return X
        return self.scaling.standardised(X)

    def _score(self, block: Table) -> FloatArray:
        weights = list(self.weights.values())
        n_rows = block.shape[0]
        n_classes = len(self.train_priors)
        total = np.zeros((n_rows, n_classes))
        known: dict[int, FloatArray] = {}  # a comparison is one for all folds
        for fold in self.folds:
            logs = []
            for name in self.weights:
                fitted = fold[name]
                key = id(fitted)
                if key not in known:
                    model = self.models[name]
                    known[key] = log_posteriors(model, fitted, block)
                logs.append(known[key])
            stacked = np.stack(logs)
            total += pool(stacked, weights)
        mean = total / len(self.folds)
        return np.asarray(mean)


@dataclass(frozen=True)
class SizeFit:
    """Everything that was trained at one size."""

    models: list[Model]
    folds: list[dict[str, Fitted]]
    held_out: HeldOut
    weights: dict[str, float]  #: of models that have one, for new rows
    fold_weights: list[
        dict[str, float]
    ]  #: with which the held-out rows of each fold were pooled
    comparison: Comparison | None
    history: list[History]  #: of every fold
    seconds: dict[str, float]  #: by the name of the model, all folds together
    interrupted: bool


class Choice:
    """Which models are trained next, and which are trained already.

    This one trains all models on all rows. What has no weight then has none with a share of the
    rows, unless it is simple.
    """

    @property
    def by_first_fold(self) -> bool:
        """Whether the first fold decides what the others train."""
        return False

    def trained(self, share: float) -> Mapping[str, Fitted]:
        """Models that have learned from this share of the first fold's training rows already."""
        return {}

    def after_first_fold(
        self, sample: Sample, folds: Folds, units: FoldUnits
    ) -> Collection[str]:
        """Names of the models that the other folds train, given what the first fold found."""
        return list(units)

    def at_smaller_size(self, whole: SizeFit, size: float) -> Collection[str]:
        """Names of the models that are trained on so many rows, given the fit of all rows."""
        return [
            model.name
            for model in whole.models
            if model.simple or model.name in whole.weights
        ]


@dataclass(frozen=True)
class CrossFit:
    """Held-out posteriors of every row at every size, and the models: see :func:`cross_fit`."""

    ensemble: Ensemble
    curve: list[HeldOut]  #: the smallest size first, all rows last
    folds: Folds
    fold_weights: list[dict[str, float]]
    history: list[History]
    interrupted: bool = False
    seconds: dict[str, float] = field(
        default_factory=dict
    )  #: of every model, all sizes together
    notes: tuple[str, ...] = ()

    @property
    def held_out(self) -> HeldOut:
        """The held-out posteriors with all training rows."""
        return self.curve[-1]

    @property
    def capped(self) -> bool:
        """Whether training ended for lack of steps at any size."""
        return any(held_out.capped for held_out in self.curve)


def cross_fit(
    sample: Sample,
    models: Sequence[Model],
    folds: Folds,
    *,
    limit: bool = True,
    engine: Engine | None = None,
    choice: Choice | None = None,
) -> CrossFit:
    """Train every model on every fold, and score the rows that the fold holds out.

    Parameters
    ----------
    sample, models, folds : of :func:`make_sample`, :func:`models_for` and :func:`make_folds`
    limit : whether to train on 1/8, 1/4 and 1/2 of the rows too
    engine : device, settings of networks, processes, progress, budget
    choice : which models are trained next

    A model with the methods of :class:`~collidescope.models.Comparing` gives no posteriors by
    itself: once all folds of a size are trained it is handed the sample and the folds, compares
    their held-out rows, and gives posteriors then.

    Examples
    --------
    >>> from collidescope.folds import make_folds
    >>> from collidescope.models import models_for
    >>> from collidescope.sample import make_sample
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(80) % 2
    >>> sample = make_sample(rng.normal(size=(80, 2)) + y[:, None], y)
    >>> folds = make_folds(sample, cv=2, random_state=0)
    >>> fit = cross_fit(sample, models_for(["linear"], sample, folds), folds)
    >>> [held_out.size for held_out in fit.curve]
    [20.0, 40.0]
    """
    engine = engine or Engine()
    choice = choice or Choice()
    smaller = _smaller(sample, folds) if limit else []
    steps = int(STEPS * len(folds.splits) * (1 + sum(size.share for size in smaller)))
    _check(models, sample, folds, engine)
    notes = list[str]()
    with Progress("training folds", steps, engine.verbose) as progress:
        ahead = train_ahead(sample, models, [folds, *smaller], engine, progress)
        whole = fit_size(sample, models, folds, engine, progress, choice, ahead)
        done = [whole]
        try:
            parts = []
            for size in smaller:
                names = choice.at_smaller_size(whole, size.size)
                kept = [model for model in models if model.name in names]
                known = choice.trained(size.share)
                parts.append(Part(kept, size, known=known))
            if not whole.interrupted:
                ahead = at_once(sample, parts, engine, progress, ahead)
            for number, part in enumerate(parts):
                if whole.interrupted:
                    break
                if engine.budget is not None and engine.overdue():
                    notes.append(_left_out(smaller[number:], engine.budget))
                    break
                try:
                    _check(part.models, sample, part.folds, engine)
                except (
                    ValueError
                ):  # too few rows for a model; smaller sizes have fewer still
                    break
                fit = fit_size(
                    sample, part.models, part.folds, engine, progress, choice, ahead
                )
                if fit.interrupted:
                    raise KeyboardInterrupt
                done.append(fit)
        except KeyboardInterrupt:
            notes.append(
                "the fit was interrupted before the range was known: limit_ is None"
            )
            done = [whole]
    if limit and len(done) == 1 and not whole.interrupted and not notes:
        notes.append(
            "the smallest class has too few rows for a learning curve: limit_ is None"
        )
    return CrossFit(
        ensemble=_ensemble(sample, whole),
        curve=[fit.held_out for fit in reversed(done)],
        folds=folds,
        fold_weights=whole.fold_weights,
        history=whole.history,
        interrupted=whole.interrupted,
        seconds=_total_seconds(done),
        notes=tuple(notes),
    )


def _smaller(sample: Sample, folds: Folds) -> list[Folds]:
    parts = [folds.smaller(sample, share) for share in FRACTIONS]
    return [part for part in parts if part is not None]


def _check(
    models: Sequence[Model], sample: Sample, folds: Folds, engine: Engine
) -> None:
    for model in models:
        if isinstance(model, Comparing):
            model.check(sample, folds, engine.training)


def announce(
    models: Sequence[Model],
    sample: Sample,
    folds: Folds,
    limit: bool,
    silent_seconds: float = 60,
) -> None:
    """Warn before networks for images keep a CPU busy for minutes: nobody waits a silent hour."""
    d = math.prod(sample.X.shape[1:])
    k = sample.n_classes
    parts = [folds]
    if limit:
        parts += _smaller(sample, folds)
    seconds = 0.0
    for model in models:
        if not isinstance(model, Member) or not model.images:
            continue
        seconds += model.cost_once(int(folds.size), d, k)
        for part in parts:
            of_fold = model.cost(int(part.size), d, k)
            seconds += of_fold * len(Part([model], part).together)
    if seconds > silent_seconds:
        minutes = math.ceil(seconds / 60)
        said = f"networks for images take about {minutes} minutes of one core here"
        hint = "a GPU takes seconds; limit=False, fewer folds or n_jobs shorten it"
        warnings.warn(f"{said}: {hint}", CollisionWarning, stacklevel=3)


def _left_out(parts: Sequence[Folds], budget: float) -> str:
    sizes = ", ".join(f"{part.size:,.0f}" for part in parts)
    said = f"the budget of {budget:g} s was spent before models were trained on {sizes} rows"
    return f"{said}: the range stands on fewer sizes, or is not known"


def _total_seconds(fits: Sequence[SizeFit]) -> dict[str, float]:
    total = dict.fromkeys(fits[0].seconds, 0.0)
    for fit in fits:
        for name, seconds in fit.seconds.items():
            total[name] += seconds
    return total


def _ensemble(sample: Sample, fit: SizeFit) -> Ensemble:
    names = list(fit.weights)
    models = {model.name: model for model in fit.models}
    folds = []
    for fold in fit.folds:
        folds.append({name: fold[name] for name in names})
    return Ensemble(
        folds=folds,
        models={name: models[name] for name in names},
        weights=fit.weights,
        scaling=sample.scaling,
        train_priors=sample.shares,
        row_shape=tuple(sample.X.shape[1:]),
        comparison=fit.comparison,
    )


def fit_size(
    sample: Sample,
    models: Sequence[Model],
    folds: Folds,
    engine: Engine,
    progress: Progress,
    choice: Choice,
    ahead: Ahead | None = None,
) -> SizeFit:
    """Train models on every fold at one size, and pool the log posteriors of held-out rows."""
    if choice.by_first_fold and folds.share == 1:
        trained, interrupted = train_chosen(
            sample, models, folds, engine, progress, choice, ahead
        )
        models = [model for model in models if model.name in trained[0]]
    else:
        learned = choice.trained(folds.share)
        trained, interrupted = train_folds(
            sample, models, folds, engine, progress, known=learned, ahead=ahead
        )
    # After Ctrl-C the last fold may lack models: it is dropped unless it is the only one. Folds
    # come in order, so the first splits belong to the folds that are kept.
    complete = [units for units in trained if len(units) == len(models)]
    whole = complete or trained[:1]
    known = [model for model in models if model.name in whole[0]]
    names = [model.name for model in known]
    scores, comparisons = _scores(known, whole, sample, folds)
    splits = folds.splits[: len(whole)]
    tests = [test for _, test in splits]
    pooled = pool_folds(sample, tests, scores, names, engine.n_jobs)
    weights = pooled.weights
    stopped = _capped(whole, weights)
    sampled = learns_from_few(known, weights, folds.size)
    comparison = None
    if len(names) == 1:
        comparison = comparisons.get(names[0])
    held_out = HeldOut(
        size=folds.size,
        rows=pooled.rows,
        posteriors=pooled.posteriors,
        capped=stopped or sampled,
    )
    return SizeFit(
        models=known,
        folds=[_fitted(fold) | comparisons for fold in whole],
        held_out=held_out,
        weights=weights,
        fold_weights=pooled.fold_weights,
        comparison=comparison,
        history=[_histories(fold, weights) for fold in whole],
        seconds=_seconds(whole),
        interrupted=interrupted,
    )


def train_chosen(
    sample: Sample,
    models: Sequence[Model],
    folds: Folds,
    engine: Engine,
    progress: Progress,
    choice: Choice,
    ahead: Ahead | None = None,
) -> tuple[list[FoldUnits], bool]:
    """Like :func:`train_folds`, but the first fold decides which models the others train."""
    trained, interrupted = train_folds(
        sample, models, folds, engine, progress, [0], ahead=ahead
    )
    if interrupted:
        return trained, True
    units = trained[0]
    names = choice.after_first_fold(sample, folds, units)
    left = [model for model in models if model.name in names]
    first = {model.name: units[model.name] for model in left}
    n_folds = len(folds.splits)
    numbers = range(1, n_folds)
    try:
        others, interrupted = train_folds(
            sample, left, folds, engine, progress, numbers, ahead=ahead
        )
    except KeyboardInterrupt:  # before any of them was trained
        return [first], True
    begun = [first, *others]
    return begun, interrupted


def counted_cost(
    model: Model, sample: Sample, n: float, unknown: float = math.inf
) -> float:
    """About the processor seconds of training a model on n rows, if it knows its cost."""
    cost = getattr(model, "cost", None)
    if cost is None:
        return unknown
    d = math.prod(sample.X.shape[1:])
    return float(cost(round(n), d, sample.n_classes))


@dataclass(frozen=True)
class Part:
    """Models that are trained on some of the folds at one size."""

    models: Sequence[Model]
    folds: Folds
    #: of the folds that are trained; all of them, unless given
    numbers: Sequence[int] | None = None
    #: models that have learned from the training rows of the first fold already, by name
    known: Mapping[str, Fitted] = field(default_factory=dict)

    @property
    def fold_numbers(self) -> Sequence[int]:
        """The numbers of the folds that are trained."""
        if self.numbers is None:
            return range(len(self.folds.splits))
        return self.numbers

    @cached_property
    def together(self) -> list[list[int]]:
        """The numbers of the folds, those that train on the same rows in one list."""
        return trained_together(self.folds.splits, self.fold_numbers)

    def n_scores(self, n_classes: int) -> int:
        """Numbers that the models say of the rows that are held out together, at most."""
        splits = self.folds.splits
        tests = [_held_out(splits, alike) for alike in self.together]
        most_held_out = max(len(test) for test in tests)
        return most_held_out * n_classes * len(self.models)

    def costs(self, sample: Sample) -> dict[str, float]:
        """About the processor seconds of each model; infinite where it does not know them."""
        found = {}
        for model in self.models:
            found[model.name] = math.inf
            if getattr(model, "knows_cost", True):
                found[model.name] = counted_cost(model, sample, self.folds.size)
        return found

    def seconds(self, sample: Sample) -> float:
        """About the processor seconds of all units."""
        costs = self.costs(sample)
        return len(self.together) * sum(costs.values())


@dataclass(frozen=True)
class UnitCall:
    """A unit of work with what it needs: a process imports no more than its models need."""

    sample: Sample
    folds: Folds
    engine: Engine
    model: Model
    fold: int
    test: IntArray
    dtype: npt.DTypeLike
    fitted: Fitted | None

    def __call__(self, report: Report | None) -> Unit:
        task = make_task(self.sample, self.folds, self.engine, self.fold, report)
        test = self.sample.take(self.test)
        return train_unit(self.model, task, test, self.dtype, self.fitted)


def train_parts(
    sample: Sample, parts: Sequence[Part], engine: Engine, progress: Progress
) -> tuple[list[list[FoldUnits]], bool]:
    """The units of every fold of every part that was begun, and whether Ctrl-C ended the training.

    Every unit is work of its own for ``n_jobs``. It takes the rows of its fold from the sample,
    which processes share: beside the sample each holds the training rows of one fold. Folds that
    train on the same rows share their units. Those of a fold that take longest begin first.
    """
    n_jobs = jobs_for(sample, parts, engine)
    calls = []
    steps = {}
    for part in parts:
        folds = part.folds
        splits = folds.splits
        dtype: npt.DTypeLike = np.float64
        if part.n_scores(sample.n_classes) > SCORED_NUMBERS:
            dtype = np.float32
        models = list(part.models)
        if n_jobs != 1:
            costs = part.costs(sample)
            models.sort(key=lambda model: -costs[model.name])
        for alike in part.together:
            first = alike[0]
            test = _held_out(splits, alike)
            for model in models:
                fitted = None
                if first == 0:
                    fitted = part.known.get(model.name)
                call = UnitCall(
                    sample, folds, engine, model, first, test, dtype, fitted
                )
                calls.append(call)
            of_fold = int(STEPS * folds.share)
            steps[len(calls)] = of_fold * len(alike)
    d = math.prod(sample.X.shape[1:])
    small = all(part.folds.size * d <= ONE_THREAD_NUMBERS for part in parts)
    threaded = any(has_own_threads(call.model) for call in calls)
    # Once for all units where it can be: finding the libraries takes milliseconds.
    with one_thread(small and not threaded):
        units, interrupted = run_units(calls, n_jobs, progress, steps)
    results = iter(zip(calls, units, strict=False))  # Ctrl-C leaves fewer units
    return [_of_part(part, results) for part in parts], interrupted


def _of_part(part: Part, results: Iterator[tuple[UnitCall, Unit]]) -> list[FoldUnits]:
    """The units of the folds of a part that was begun, in the order of its models."""
    trained = list[FoldUnits]()
    n_models = len(part.models)
    for alike in part.together:
        found = {call.model.name: unit for call, unit in islice(results, n_models)}
        if not found:
            break
        names = [model.name for model in part.models]
        ordered = {name: found[name] for name in names if name in found}
        trained += _of_each_fold(ordered, part.folds.splits, alike)
    return trained


def jobs_for(
    sample: Sample, parts: Sequence[Part], engine: Engine, least_seconds: float = 2.0
) -> int:
    """How many processes work: one, where to start others takes longer than the work."""
    if engine.n_jobs in (None, 1):
        return 1
    seconds = sum(part.seconds(sample) for part in parts)
    if seconds < least_seconds and _dask.cluster() is None:
        return 1
    return engine.n_jobs


#: A unit by the share of the rows, the number of the fold and the name of the model.
Units = Mapping[tuple[float, int, str], Unit]


@dataclass(frozen=True)
class Ahead:
    """Units that were trained before their turn."""

    units: Units = field(default_factory=dict)
    interrupted: bool = False  #: whether Ctrl-C ended the training

    def of(self, part: Part) -> list[FoldUnits]:
        """The units of the folds of a part, up to the first fold that lacks one."""
        trained = list[FoldUnits]()
        for number in part.fold_numbers:
            found = dict[str, Unit]()
            for model in part.models:
                unit = self.units.get((part.folds.share, number, model.name))
                if unit is not None:
                    found[model.name] = unit
            if found:
                trained.append(found)
            if len(found) < len(part.models):
                break
        return trained

    def has(self, part: Part) -> bool:
        """Whether no unit of a part is missing."""
        trained = self.of(part)
        n_folds = len(part.fold_numbers)
        return len(trained) == n_folds and len(trained[-1]) == len(part.models)


def train_ahead(
    sample: Sample,
    models: Sequence[Model],
    sizes: Sequence[Folds],
    engine: Engine,
    progress: Progress,
) -> Ahead:
    """All folds at once, and all sizes, where processes would else wait for the longest unit.

    The first fold decides which models the others train, and all folds which ones smaller sizes
    train. Where there are processes enough to train all of them in the time of the longest unit,
    they do not wait for that: what turns out not to be needed has taken no time, and is dropped.
    """
    if engine.n_jobs in (None, 1) or engine.checkpoint is not None:
        return Ahead()
    parts = [Part(models, folds) for folds in sizes]
    for several in (parts, parts[:1]):
        workers = effective_n_jobs(jobs_for(sample, several, engine))
        of_largest = parts[0].costs(sample)
        longest = max(of_largest.values())
        seconds = sum(part.seconds(sample) for part in several)
        n_scores = 0
        for part in several:
            n_scores += part.n_scores(sample.n_classes) * len(part.together)
        in_time = seconds <= workers * longest < math.inf
        if in_time and n_scores <= SCORED_NUMBERS:
            return at_once(sample, several, engine, progress, Ahead())
    return Ahead()


def at_once(
    sample: Sample,
    parts: Sequence[Part],
    engine: Engine,
    progress: Progress,
    ahead: Ahead,
) -> Ahead:
    """The units of all parts, where there are processes and no budget to keep."""
    missing = [part for part in parts if not ahead.has(part)]
    every = chain.from_iterable(part.models for part in missing)
    compared = any(isinstance(model, Comparing) for model in every)
    waits = ahead.interrupted or compared or engine.budget is not None
    if waits or not missing or jobs_for(sample, missing, engine) == 1:
        return ahead
    trained, interrupted = train_parts(sample, missing, engine, progress)
    units = dict(ahead.units)
    for part, folds in zip(missing, trained, strict=True):
        numbers = chain.from_iterable(part.together)
        for number, found in zip(numbers, folds, strict=False):
            for name, unit in found.items():
                units[part.folds.share, number, name] = unit
    return Ahead(units, interrupted)


def train_folds(
    sample: Sample,
    models: Sequence[Model],
    folds: Folds,
    engine: Engine,
    progress: Progress,
    numbers: Sequence[int] | None = None,
    known: Mapping[str, Fitted] | None = None,
    ahead: Ahead | None = None,
) -> tuple[list[FoldUnits], bool]:
    """The units of every fold that was begun, and whether Ctrl-C ended the training.

    Parameters
    ----------
    sample, models, folds, engine, progress : as in :func:`cross_fit`
    numbers, known : of :class:`Part`
    ahead : units that are trained already
    """
    part = Part(models, folds, numbers, known or {})
    if ahead is not None:
        trained = ahead.of(part)
        if ahead.has(part) or (ahead.interrupted and trained):
            return trained, ahead.interrupted and not ahead.has(part)
        if ahead.interrupted:
            raise KeyboardInterrupt
    found, interrupted = train_parts(sample, [part], engine, progress)
    return found[0], interrupted


def trained_together(
    splits: Sequence[Split], numbers: Sequence[int]
) -> list[list[int]]:
    """The numbers of folds, those with the same array of training rows in one list."""
    together: dict[int, list[int]] = {}
    for number in numbers:
        train, _ = splits[number]
        alike = together.setdefault(id(train), [])
        alike.append(number)
    return list(together.values())


def _held_out(splits: Sequence[Split], numbers: Sequence[int]) -> IntArray:
    """The rows that these folds hold out, one fold after the other."""
    tests = [splits[number][1] for number in numbers]
    return np.concatenate(tests)


def _of_each_fold(
    units: FoldUnits, splits: Sequence[Split], numbers: Sequence[int]
) -> list[FoldUnits]:
    """Units that scored the rows of several folds, as units of each; the first took the time."""
    found = list[FoldUnits]()
    end = 0
    for number in numbers:
        start = end
        end = start + len(splits[number][1])
        own = dict[str, Unit]()
        for name, unit in units.items():
            scores = unit.scores
            if scores is not None:
                scores = scores[start:end]
            seconds = unit.seconds
            if start > 0:
                seconds = 0.0
            own[name] = replace(unit, scores=scores, seconds=seconds)
        found.append(own)
    return found


def make_task(
    sample: Sample,
    folds: Folds,
    engine: Engine,
    number: int,
    report: Report | None = None,
) -> Task:
    """What is learned from the training rows of a fold."""
    rows = folds.splits[number][0]
    entries = sample.entries(rows)
    own = rows[entries.place]
    weights = entries.weights
    if weights is not None:
        weights = weights / weights.mean()
    # What must stay together: the rows of a group, else the votes on one row.
    groups = None
    if sample.groups is not None:
        groups = sample.groups[own]
    elif sample.votes is not None:
        groups = own
    first = None
    if number > 0 or folds.whole is not None:
        splits = folds.whole or folds.splits
        all_rows = replace(folds, splits=splits, share=1.0, whole=None)
        first = partial(make_task, sample, all_rows, engine, 0, report)
    folder = engine.checkpoint
    if folder is not None and folds.share < 1:
        folder = folder / f"share-{folds.share:g}"
    if folder is not None:
        folder = folder / f"fold-{number}"
    return Task(
        X=sample.take(own),
        codes=entries.codes,
        n_classes=sample.n_classes,
        sample_weight=weights,
        groups=groups,
        spread=None if sample.scaling is None else sample.scaling.spread,
        seed=folds.seeds[number],
        device=engine.device,
        training=engine.training,
        report=report,
        checkpoint=folder,
        first=first,
        memory=engine.memory,
    )


def needs_one_thread(model: Model, task: Task) -> bool:
    """Whether rows are so few that threads would wait for each other."""
    small = math.prod(task.X.shape) <= ONE_THREAD_NUMBERS
    return small and not has_own_threads(model)


def has_own_threads(model: Model) -> bool:
    """Whether a model may use all threads even where rows are few."""
    return getattr(model, "own_threads", False)


def train_unit(
    model: Model,
    task: Task,
    test: Table,
    dtype: npt.DTypeLike = np.float64,
    fitted: Fitted | None = None,
) -> Unit:
    """Fit one model to the training rows of a fold, and score the rows that it holds out.

    A model that is ``fitted`` already only scores.
    """
    started = time.perf_counter()
    k = task.n_classes
    scores = None
    single = needs_one_thread(model, task)
    with one_thread(single):
        if fitted is None:
            own_task = task_of(model, task)
            fitted = copy(model).fit(own_task)
        if not isinstance(model, Comparing):
            shape = (test.shape[0], k)
            scores = np.empty(shape, dtype)
            for block in row_blocks(test, k):
                scores[block] = log_posteriors(model, fitted, test[block])
    seconds = time.perf_counter() - started
    interrupted = getattr(fitted, "interrupted", False)
    capped = getattr(fitted, "capped", False)
    return Unit(fitted, scores, seconds, interrupted, capped)


@dataclass(frozen=True)
class Pooled:
    """Held-out posteriors of all models together."""

    rows: IntArray
    posteriors: npt.NDArray[np.floating]
    weights: dict[str, float]
    fold_weights: list[dict[str, float]]


def pool_folds(
    sample: Sample,
    tests: Sequence[IntArray],
    scores: Sequence[npt.NDArray[np.floating]],
    names: Sequence[str],
    n_jobs: int | None = None,
    double_numbers: int = 2**26,
) -> Pooled:
    """Pool the models of every fold by weights from the held-out rows of the other folds.

    ``scores`` are (M, rows, K) log posteriors of the held-out rows ``tests`` of each fold.
    Posteriors of more than so many numbers are float32: half of the memory, and models know no
    more. The weights of all folds are fitted at once where there are ``n_jobs`` for it.
    """
    tested = np.concatenate(tests)
    rows = np.sort(tested)
    shape = (len(rows), sample.n_classes)
    dtype: npt.DTypeLike = np.float64
    n_numbers = math.prod(shape)
    if n_numbers > double_numbers:
        dtype = np.float32
    P = np.empty(shape, dtype)
    numbers = range(len(tests))
    used = [[other for other in numbers if other != number] for number in numbers]
    used.append(list(numbers))
    fit_weights = partial(_weights, sample, tests, scores)
    n_scores = sum(each.size for each in scores)
    *of_folds, of_all = in_threads(fit_weights, used, n_jobs, n_scores)
    fold_weights = []
    for number, test in enumerate(tests):
        weights = of_folds[number]
        by_name = named(names, weights)
        fold_weights.append(by_name)
        P[np.searchsorted(rows, test)] = pool(scores[number], weights)
    final = named(names, of_all)
    kept = {}
    for name, weight in final.items():
        if weight > 0:
            kept[name] = weight
    return Pooled(rows, P, kept, fold_weights)


def in_threads(
    call: Callable[[In], Out],
    inputs: Sequence[In],
    n_jobs: int | None,
    numbers: int,
    most_numbers: int = 2**26,
) -> list[Out]:
    """What a call makes of every input, at once unless copies of so many numbers fill the memory.

    Threads, which need no copies of their own: numpy lets others run while it computes.
    """
    n_threads = min(effective_n_jobs(n_jobs or 1), len(inputs))
    if n_threads == 1 or numbers * n_threads > most_numbers:
        return [call(each) for each in inputs]
    with ThreadPoolExecutor(n_threads) as threads:
        return list(threads.map(call, inputs))


def named(names: Sequence[str], values: FloatArray) -> dict[str, float]:
    """Numbers by the names of models."""
    return dict(zip(names, values.tolist(), strict=True))


def _weights(
    sample: Sample,
    tests: Sequence[IntArray],
    scores: Sequence[npt.NDArray[np.floating]],
    numbers: Sequence[int],
) -> FloatArray:
    """Weights of the models from the held-out rows of some folds; equal where there are none."""
    n_models = len(scores[0])
    equal = np.full(n_models, 1 / n_models)
    if not numbers or n_models == 1:
        return equal
    rows_of_folds = [tests[number] for number in numbers]
    rows = np.concatenate(rows_of_folds)
    logs_of_folds = [scores[number] for number in numbers]
    logs = np.concatenate(logs_of_folds, axis=1)
    entries = sample.entries(rows)
    if sample.votes is not None:
        # A row stands here once for each class that was voted for.
        logs = logs[:, entries.place]
    found = pool_weights(logs, entries.codes, entries.weights)
    # Nothing learned anything: with weights of zero the pool would say that all classes are as
    # likely.
    if not found.any():
        return equal
    return found


def _scores(
    models: Sequence[Model], trained: Sequence[FoldUnits], sample: Sample, folds: Folds
) -> tuple[list[npt.NDArray[np.floating]], dict[str, Comparison]]:
    """(M, rows, K) log posteriors of the held-out rows of every fold, and the comparisons."""
    comparisons: dict[str, Comparison] = {}
    for model in models:
        if isinstance(model, Comparing):
            fitted = [fold[model.name].fitted for fold in trained]
            comparisons[model.name] = model.compare(fitted, sample, folds)
    stacked = []
    for number, fold in enumerate(trained):
        each = []
        for model in models:
            comparison = comparisons.get(model.name)
            own = fold[model.name].scores
            if comparison is not None:
                own = comparison.held_out[number]
            each.append(own)
        stacked.append(np.stack(each))  # type: ignore[arg-type]
    return stacked, comparisons


def _fitted(fold: FoldUnits) -> dict[str, Fitted]:
    return {name: unit.fitted for name, unit in fold.items()}


def _capped(trained: Sequence[FoldUnits], weights: dict[str, float]) -> bool:
    return any(fold[name].capped for fold in trained for name in weights)


def learns_from_few(
    models: Sequence[Model], weights: Mapping[str, float], n_rows: float
) -> bool:
    """Whether models that take no more than a sample of so many rows have most of the weight.

    More rows teach them nothing, so that the curve is flat where others would still learn. Simple
    models have learned all they can from a sample.
    """
    half = 0.5 * sum(weights.values())
    sampled = 0.0
    for model in models:
        most_rows: float = getattr(model, "most_rows", math.inf)
        sampling = most_rows < n_rows and not model.simple
        weight = weights.get(model.name, 0.0)
        if sampling:
            sampled += weight
    return sampled > half


def _seconds(trained: Sequence[FoldUnits]) -> dict[str, float]:
    names = trained[0]
    return {name: sum(fold[name].seconds for fold in trained) for name in names}


def _histories(fold: FoldUnits, weights: dict[str, float]) -> History:
    """Histories of the models with a weight; a model of several networks has one for each."""
    found: History = {}
    for name in weights:
        history = getattr(fold[name].fitted, "history", None)
        if isinstance(history, dict):
            found.update(history)
        elif history:
            found[name] = history
    return found


def rows_of(model: Model, X: Table) -> Table:
    """Rows as a model takes them: images are flat rows to those that do not take images."""
    if isinstance(X, np.ndarray) and X.ndim > 2 and not model.images:
        return X.reshape(len(X), -1)
    return X


def task_of(model: Model, task: Task) -> Task:
    """The task as a model takes it, flat unless it takes images: pixels share one scale."""
    X = rows_of(model, task.X)
    if X is task.X:
        return task
    return replace(task, X=X, spread=np.ones(X.shape[1]))


def log_posteriors(model: Model, fitted: Fitted, X: Table) -> FloatArray:
    """Log posteriors of rows, flat unless the model takes images."""
    return fitted.log_posteriors(rows_of(model, X))


def row_blocks(X: Table, n_classes: int, read_numbers: int = 2**22) -> Iterator[slice]:
    """Slices of rows that are scored at once: those of a file are read for it (16 MB)."""
    width = max(1, math.prod(X.shape[1:]))
    most = min(SCORED_NUMBERS // n_classes, read_numbers // width)
    return blocks(X.shape[0], 1, most)
