"""From sizes or a table to a :class:`~collidescope.cost.speed.Cost`."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from collidescope import _checks as check
from collidescope._checks import IntArray
from collidescope._scaling import apply_scaling, fit_scaling, lies_in_a_file
from collidescope.contrastive.bridge import ONE_THREAD_ROWS
from collidescope.contrastive.config import TrainingConfig
from collidescope.contrastive.networks import EncoderFactory
from collidescope.contrastive.probing import ModuleTimes, module_times
from collidescope.cost.speed import CPU, Cost, Speed
from collidescope.cost.stages import Fit, fold_seconds, memory
from collidescope.estimators import check_folds, check_targets, resolve_splits

#: What must be expected before a measurement is worth its second.
PROBE_FROM = 20.0
#: Rows, at least, that a module of one's own is tried with.
PROBE_ROWS = 512
#: Folds in parallel need workers that take seconds to start and have memory of their own: they must be worth it, and
#: stay below this many bytes, or this share of what the machine has.
PARALLEL_FROM, MOST_MEMORY, SHARE = 15.0, 2.8e9, 0.25


def predict_cost(
    n: int,
    d: int,
    k: int,
    *,
    cv: int = 5,
    n_references: int | str = "all",
    n_jobs: int | None = None,
    estimate: str = "shrunk",
    recovery: str = "root",
    itemsize: int = 8,
    in_file: bool = False,
    speed: Speed | None = None,
    **training: Any,
) -> Cost:
    """Cost of a fit of ``n`` rows, ``d`` features and ``k`` classes that need not exist yet.

    Parameters
    ----------
    n, d, k : int
    cv, n_references, n_jobs, estimate, recovery
        As in :class:`~collidescope.CollisionClassifier`.
    itemsize : int
        Bytes of a value of X: 8, or 4 for float32.
    in_file : bool
        Whether X is a memory map, whose rows stay in its file.
    speed : Speed, optional
        Of the machine; by default one core of a 2020s server. :meth:`Speed.measure` measures this one.
    training
        ``model``, ``loss``, ``hidden_layer_sizes``, ``trees``, ``max_epochs``, ``patience``, ``batch_size`` as in
        :class:`~collidescope.CollisionClassifier`. A module of one's own must be tried: see its ``estimate_cost``.

    Examples
    --------
    >>> small = predict_cost(10_000, 20, 5)
    >>> large = predict_cost(10_000_000, 20, 5)
    >>> large.seconds > 100 * small.seconds
    True
    """
    if speed is not None and not isinstance(speed, Speed):
        raise ValueError(f"speed must be a Speed, got {type(speed).__name__}: Speed.measure() makes one")
    if "device" in training:
        raise ValueError(f"device is that of the speed, got {training['device']!r}: pass speed=Speed.measure(device)")
    settings = {"n_references": n_references, "n_jobs": n_jobs, "estimate": estimate, "recovery": recovery}
    fit = _sized(n, d, k, cv, TrainingConfig(**_known(training)), itemsize, **settings)
    return replace(fit, in_file=bool(in_file)).cost(CPU if speed is None else speed)


def jobs_for(n: int, d: int, k: int, *, cv: int, **training: Any) -> int | None:
    """Folds at a time: as many as there are cores and memory for when the fit is long, else one after the other.

    >>> jobs_for(100, 3, 2, cv=5) is None
    True
    """
    fit = _sized(n, d, k, cv, TrainingConfig(**_known(training)), itemsize=4)
    if fit.config.device != "cpu" or sum(fold_seconds(fit, train, CPU) for train, _ in fit.folds) < PARALLEL_FROM:
        return None
    limit = max(MOST_MEMORY, SHARE * machine_memory())
    tried = range(min(cores(), len(fit.folds)), 1, -1)
    return next((jobs for jobs in tried if memory(replace(fit, jobs=jobs), "cpu")[0] < limit), None)


def _known(training: dict[str, Any]) -> dict[str, Any]:
    """Settings of the training; a module of one's own and names that nobody knows are refused."""
    if callable(training.get("model")) or isinstance(training.get("model"), tuple):
        raise ValueError(
            "model must be 'factorised' or 'pairwise': one of your own is tried by clf.estimate_cost(X, y)"
        )
    known = [field.name for field in fields(TrainingConfig)]
    if unknown := [name for name in training if name not in known]:
        raise ValueError(f"{unknown[0]} is no setting that costs anything, those are {', '.join(known)}")
    return training


def _sized(
    n: int,
    d: int,
    k: int,
    cv: int,
    config: TrainingConfig,
    itemsize: int,
    **settings: Any,
) -> Fit:
    """A fit of equal folds."""
    for value, name, least in ((n, "n", 2), (d, "d", 1), (k, "k", 2), (cv, "cv", 2), (itemsize, "itemsize", 1)):
        check.check_count(value, name, least=least)
    if cv > n:
        raise ValueError(f"cv must be at most n, got {cv} folds of {n} rows")
    return Fit(_equal_folds(n, cv), d, k, config, float(itemsize) * n * d, **_choices(cv, **settings))


def _equal_folds(n: int, cv: int) -> list[tuple[int, int]]:
    """(training, held-out) rows of each."""
    return [(n - test, test) for test in (n // cv + (fold < n % cv) for fold in range(cv))]


def _choices(
    folds: int,
    n_references: int | str = "all",
    n_jobs: int | None = None,
    estimate: str = "shrunk",
    recovery: str = "root",
) -> dict[str, Any]:
    """Settings outside of the training, checked, as :class:`Fit` takes them."""
    check.check_choice(estimate, ["shrunk", "one-step", "gramian"], "estimate")
    check.check_choice(recovery, ["root", "gradient"], "recovery")
    if isinstance(n_references, str):
        check.check_choice(n_references, ["all"], "n_references")
    else:
        check.check_count(n_references, "n_references", least=2)
    return {
        "references": None if isinstance(n_references, str) else n_references,
        "jobs": _count_jobs(n_jobs, folds),
        "shrunk": estimate == "shrunk",
        "descent": recovery == "gradient",
    }


def table_cost(
    X: Any,
    y: npt.NDArray[Any],
    config: TrainingConfig,
    factory: EncoderFactory | None = None,
    probe: bool | None = None,
    *,
    cv: Any = 5,
    **settings: Any,
) -> Cost:
    """Cost of a fit of this table: the work of ``CollisionClassifier.estimate_cost``."""
    if probe not in (None, True, False):
        raise ValueError(f"probe must be True, False or None (only when the fit is long), got {probe!r}")
    classes = check_targets(y)
    if np.isscalar(cv):  # as many as there would be, without drawing them
        folds = _equal_folds(len(y), check_folds(y, classes, cv))
    else:
        folds = [(len(train), len(test)) for train, test in resolve_splits(cv, y, classes, 0)]
    train, k = max(train for train, _ in folds), len(classes)
    table = sum(getattr(X, part).nbytes for part in ("data", "indices", "indptr")) if issparse(X) else X.nbytes
    own = None if factory is None else _try(X, np.searchsorted(classes, y), train, k, config, factory)
    values = int(np.prod(X.shape[1:]))
    place = {"in_file": lies_in_a_file(X)}
    fit = Fit(folds, values, k, config, float(table), own=own, **place, **_choices(len(folds), **settings))
    guess = fit.cost(replace(CPU, device=config.device))
    if probe is None:
        probe = guess.seconds > PROBE_FROM or config.device != "cpu"
    if not probe:
        return guess
    return fit.cost(Speed.measure(config.device, alone=factory is None and train <= ONE_THREAD_ROWS))


def _try(X: Any, codes: IntArray, train: int, k: int, config: TrainingConfig, factory: EncoderFactory) -> ModuleTimes:
    """Times of a module of one's own, on some of the rows."""
    batch = min(config.batch_for(train), train)
    rows = np.sort(np.random.default_rng(0).permutation(len(codes))[: max(PROBE_ROWS, batch)])
    return module_times(factory, apply_scaling(X[rows], *fit_scaling(X[rows])), codes[rows], k, batch, config)


def _count_jobs(n_jobs: int | None, folds: int) -> int:
    """Processes that train at once: as joblib counts them, and no more than there are folds."""
    if n_jobs is None:
        return 1
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int | np.integer) or n_jobs == 0:
        raise ValueError(f"n_jobs must be None or a whole number other than 0, got {n_jobs!r}")
    return min(folds, max(1, cores() + 1 + int(n_jobs)) if n_jobs < 0 else int(n_jobs))


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_memory() -> float:
    """Bytes of memory of this machine, 0 where it does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return 0.0
