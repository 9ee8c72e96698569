"""Held-out posteriors and labels → the estimate: S, its Gramian and recovery, the range, notes.

The third of the three values of a fit. How an estimate and its intervals are made is decided in
:mod:`collidescope.onestep`, :mod:`collidescope.limit` and :mod:`collidescope.equations`: here they
are called in turn.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from collidescope import onestep
from collidescope._checks import FloatArray
from collidescope._rows import copies, copy_notes
from collidescope.crossfit import CrossFit, HeldOut
from collidescope.equations.bounds import condition_number, highest_pber
from collidescope.equations.moments import Moments, row_blocks
from collidescope.equations.posterior import brier_scores, shift_rows
from collidescope.equations.recovery import Recovery, recover
from collidescope.folds import fold_numbers
from collidescope.limit import (
    Limit,
    Pool,
    limit_from_posteriors,
    limit_from_scores,
)
from collidescope.matrix import CollisionMatrix, Method
from collidescope.sample import Sample, taken

Posteriors = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Estimate:
    """What a fit says about the population, at the wanted priors: made by :func:`estimate`."""

    collision_matrix: CollisionMatrix
    one_step: CollisionMatrix  #: before shrinking, with its intervals
    gramian: FloatArray
    recovery: Recovery  #: S from ``gramian``, with diagnostics
    limit: Limit | None  #: what unlimited rows would leave
    #: held-out, of every row of the call, by training size
    posteriors: dict[int, Posteriors]
    copies: tuple[str, ...]  #: notes on rows that have a copy in another fold
    cautions: tuple[str, ...]  #: what the estimate says about itself

    @property
    def held_out(self) -> Posteriors:
        """Held-out posteriors with all training rows: nan for rows that took no part."""
        return list(self.posteriors.values())[-1]


def estimate(sample: Sample, crossfit: CrossFit) -> Estimate:
    """S, its Gramian and recovery, the range and notes, at the wanted priors of the sample.

    Examples
    --------
    >>> from collidescope.crossfit import cross_fit
    >>> from collidescope.folds import make_folds
    >>> from collidescope.models import models_for
    >>> from collidescope.sample import make_sample
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(80) % 2
    >>> sample = make_sample(rng.normal(size=(80, 2)) + y[:, None], y)
    >>> folds = make_folds(sample, cv=2, random_state=0)
    >>> fit = cross_fit(
    ...     sample, models_for(["linear"], sample, folds), folds, limit=False
    ... )
    >>> bool(0.2 < estimate(sample, fit).collision_matrix.pber < 0.4)
    True
    """
    held_out = crossfit.held_out
    comparison = crossfit.ensemble.comparison
    limit = estimate_limit(sample, crossfit)
    with _own_columns():
        one_step, shrunk, moments = one_step_estimate(sample, held_out)
    gramian = onestep.gramian_from_moments(moments)
    method = "root"
    if comparison is not None:
        method = comparison.recovery
        # A model's own Gramian holds at uniform priors; at others it follows from the shifted
        # posteriors.
        uniform = np.allclose(sample.priors, 1 / sample.n_classes)
        if uniform and comparison.gramian is not None:
            gramian = comparison.gramian
    recovery = recover(gramian, sample.priors, method=method)
    matrix = shrunk
    if comparison is not None and comparison.from_gramian:
        matrix = recovery.to_collision_matrix(sample.classes)
    matrix = replace(matrix, limit=limit)
    return Estimate(
        collision_matrix=matrix,
        one_step=one_step,
        gramian=gramian,
        recovery=recovery,
        limit=limit,
        posteriors=posteriors_by_size(sample, crossfit),
        copies=tuple(_copies(sample, held_out, crossfit)),
        cautions=tuple(cautions(matrix, one_step, recovery.moved)),
    )


@contextmanager
def _own_columns() -> Iterator[None]:
    """Warnings without doubts about the order of columns: those of our models are in order."""
    with warnings.catch_warnings(record=True) as met:
        warnings.simplefilter("always")
        yield
    for warning in met:
        message = warning.message
        if isinstance(message, onestep.ContradictionWarning):
            message = onestep.ContradictionWarning(message.found, in_order=True)
        warnings.warn(message, stacklevel=4)


def one_step_estimate(
    sample: Sample, held_out: HeldOut
) -> tuple[CollisionMatrix, CollisionMatrix, Moments]:
    """The one-step estimate, the same shrunk where classes are many, and the sums behind both."""
    rows = held_out.rows
    P = held_out.posteriors
    groups = taken(sample.groups, rows)
    entries = sample.entries(rows)
    if sample.votes is None:
        one_step, moments = onestep.one_step_and_moments(
            P, entries.codes, entries.weights, sample.classes, sample.target, groups
        )
        return one_step, onestep.shrink(one_step, moments), moments
    one_step = onestep.collision_matrix_from_posteriors(
        P,
        votes=sample.votes[rows],
        classes=sample.classes,
        priors="empirical" if sample.target is None else sample.target,
        sample_weight=taken(sample.weights, rows),
        groups=groups,
    )
    moments = onestep.labelled_moments(
        P[entries.place], entries.codes, entries.weights, sample.n_classes, None
    )
    return one_step, one_step, moments


def estimate_limit(sample: Sample, crossfit: CrossFit) -> Limit | None:
    """What unlimited rows would leave, from the held-out posteriors of every size.

    None where there is one size only.
    """
    if len(crossfit.curve) < 2:
        return None
    sizes = [held_out.size for held_out in crossfit.curve]
    posteriors = [held_out.posteriors for held_out in crossfit.curve]
    rows = crossfit.held_out.rows
    folds = fold_numbers(crossfit.folds.splits, sample.n_rows)[rows]
    pool = _pool(crossfit)
    shared: dict[str, Any] = {
        "folds": folds,
        "sample_weight": taken(sample.weights, rows),
        "groups": taken(sample.groups, rows),
        "capped": crossfit.capped,
    }
    if sample.votes is None:
        return limit_from_posteriors(
            posteriors,
            sample.codes[rows],
            sizes,
            classes=sample.classes,
            priors=sample.target,
            pool=pool,
            **shared,
        )
    # The Brier score of a vote drawn from those on a row.
    votes = sample.votes[rows]
    share = votes / votes.sum(axis=1, keepdims=True)
    every = np.arange(len(rows))
    scores = [1 - 2 * (share * P).sum(axis=1) + (P * P).sum(axis=1) for P in posteriors]
    errors = [1 - share[every, P.argmax(axis=1)] for P in posteriors]
    limit = limit_from_scores(
        np.column_stack(scores),
        sizes,
        errors=np.column_stack(errors),
        baseline=highest_pber(sample.shares),
        **shared,
    )
    if pool is None:
        return limit
    return replace(limit, **pool._asdict())


def _pool(crossfit: CrossFit, several: int = 4) -> Pool | None:
    """What the pool is made of; None where it had hardly any members to choose from."""
    n_trained = len(crossfit.seconds)
    if n_trained < several:
        return None
    ensemble = crossfit.ensemble
    parametric = [model.name for model in ensemble.models.values() if model.parametric]
    return Pool.of_weights(ensemble.weights, parametric)


def posteriors_by_size(sample: Sample, crossfit: CrossFit) -> dict[int, Posteriors]:
    """Held-out posteriors at the wanted priors, of every row of the call (nan: took no part)."""
    n = len(sample.hashes)
    found = {}
    for held_out in crossfit.curve:
        P = held_out.posteriors
        if sample.shifted:
            P = _shifted(P, sample.priors / sample.shares)
        scored = sample.used[held_out.rows]
        if len(scored) < n:
            every = np.full((n, P.shape[1]), np.nan, P.dtype)
            every[scored] = P
            P = every
        found[round(held_out.size)] = P
    return found


def _shifted(P: Posteriors, ratio: FloatArray) -> Posteriors:
    """Posteriors at other priors, block by block: float64 copies may not fit in memory."""
    out = np.empty_like(P)
    for block in row_blocks(*P.shape):
        out[block] = shift_rows(P[block], ratio)
    return out


def _copies(sample: Sample, held_out: HeldOut, crossfit: CrossFit) -> list[str]:
    """What rows with a copy in another fold do to the estimate."""
    rows = held_out.rows
    P = held_out.posteriors
    codes = sample.codes[rows]
    hashes = sample.hashes[sample.used[rows]]
    losses = None
    plain = sample.votes is None and sample.weights is None
    if plain and not sample.shifted:
        losses = brier_scores(P, codes)
    folds = fold_numbers(crossfit.folds.splits, sample.n_rows)
    X = None
    if sample.in_memory:
        X = sample.take(rows)
    again = copies(hashes, codes, folds[rows], X)
    return copy_notes(again, losses)


def cautions(
    collisions: CollisionMatrix, one_step: CollisionMatrix, moved: float
) -> list[str]:
    """What to know about the reported S; ``moved`` is that of its recovery from the Gramian."""
    return [
        *near_singular(collisions, one_step),
        *without_skill(one_step),
        *far_from_gramian(collisions, moved),
    ]


def near_singular(
    collisions: CollisionMatrix, one_step: CollisionMatrix, largest: float = 1e3
) -> list[str]:
    """Above a condition number of ``largest`` classes are practically indistinguishable.

    S⁻¹ multiplies errors by as much.
    """
    # Shrinking lifts eigenvalues that are zero because information is missing: the one-step
    # estimate shows them.
    shown = collisions if collisions.method == Method.GRAMIAN else one_step
    condition = condition_number(shown.matrix)
    if condition <= largest:
        return []
    said = f"S is nearly singular (condition number {condition:.1e})"
    why = "from these rows this model cannot tell some classes, or mixtures of them, apart"
    return [f"{said}: {why} (merge what top_collisions shows, or gather more)"]


def without_skill(one_step: CollisionMatrix) -> list[str]:
    """Whether the PBER may be as high as that of inputs that say nothing."""
    by_chance = highest_pber(one_step.priors)
    least, most = one_step.pber_interval() or (0.0, 0.0)
    if most < by_chance:
        return []
    said = "the model may do no better than the priors"
    why = "too few rows, or groups, to say"
    numbers = f"PBER {one_step.pber:.3f}, up to {most:.3f}; {by_chance:.3f} by chance"
    # Few rows do not tell: what they leave open is less than a tenth.
    if one_step.pber >= 0.99 * by_chance and least >= 0.9 * by_chance:
        said = "the model does no better than the priors"
        why = "the inputs say nothing about the classes, or the model cannot see it"
        numbers = f"PBER {one_step.pber:.3f}, {by_chance:.3f} by chance"
    if one_step.coverage is not None:  # counted
        said = "labels of one input may agree no better than those of any two"
        why = "the inputs say nothing about the classes, or too few were counted"
    return [f"{said} ({numbers}): {why}"]


def far_from_gramian(
    collisions: CollisionMatrix, moved: float, most: float = 0.1
) -> list[str]:
    """A Gramian whose root had to move by more than ``most`` was that of no collision matrix."""
    if collisions.method != Method.GRAMIAN or moved <= most:
        return []
    said = "the Gramian is far from that of any collision matrix"
    return [
        f"{said} (entries of S moved by {moved:.2f}): train longer, or use "
        "Pairwise(correction='prior')"
    ]


def fit_notes(sample: Sample, crossfit: CrossFit, found: Estimate) -> Sequence[str]:
    """Everything that the user of a fit should know, in the order in which it came up."""
    notes = list[str]()
    if crossfit.interrupted:
        done = len(crossfit.ensemble.folds)
        notes.append(
            f"the fit was interrupted: S and predictions are those of the {done} of "
            f"{len(crossfit.folds.splits)} folds trained so far"
        )
    notes.extend(sample.notes)
    notes.extend(crossfit.folds.notes)
    notes.extend(crossfit.notes)
    notes.extend(found.copies)
    notes.extend(found.cautions)
    return notes
