"""Posteriors and labels → the collision matrix with its standard errors: the one-step estimator.

Symbols: n rows, K classes; for one row ``c`` is its one-hot label, ``p`` its held-out posterior
(the model did not see the row), ``y`` the true posterior, ``w`` its weight, r = c - p and
δ = p - y::

    B̂ = mean(c pᵀ + p cᵀ - p pᵀ) = diag(class shares) - mean(r rᵀ)        S = diag(1/π) B̂

The bias of B̂ is -E[δ δᵀ]: second order in the error of the posteriors, where class averages (the
paper's equation 13) and the Gramian root (35, 36) are first order. 1 - tr(B̂) is the Brier score of
p. Without labels the *plug-in* estimate mean(p pᵀ) takes the posteriors as true.

Assumptions: rows are independent draws of the population, or ``groups`` of rows are; posteriors
hold at the priors of the rows. Everything is a sum over rows, kept in :class:`Moments`: O(K²)
numbers, in one pass, in any order, in parts.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_array

from collidescope import _checks as check
from collidescope._checks import (
    Array,
    ArrayLike,
    CollisionWarning,
    FloatArray,
    Given,
    IntArray,
    Names,
    SparseLike,
    check_class_sizes,
    group_numbers,
)
from collidescope.doubts import posterior_warnings
from collidescope.equations._sparse import shifted
from collidescope.equations.bounds import highest_pber
from collidescope.equations.gramian import without_own_pairs
from collidescope.equations.moments import (
    Moments,
    add_to_diagonal,
    merged,
    row_blocks,
    row_units,
)
from collidescope.equations.posterior import shift_rows
from collidescope.equations.projection import project
from collidescope.equations.shrinkage import shrunk_joint, with_pber
from collidescope.intervals import effective_units, optimism
from collidescope.matrix import CollisionMatrix, Diagnostics, Method
from collidescope.scale import _dask

Floats = FloatArray | None
Posteriors = Array | csr_array  #: n×K, dense or sparse
#: Classes up to which the sums of every class are kept apart when priors are given: K³ numbers,
#: 1.5 GB here.
MAX_STRATA = 400


def is_empirical(priors: ArrayLike | str) -> bool:
    """Whether the priors of the rows are meant."""
    return isinstance(priors, str) and priors == "empirical"


def resolve_priors(
    priors: ArrayLike | str, counts: Array, classes: Array
) -> FloatArray:
    """The priors meant by "empirical", "uniform" or an array, given (weighted) class counts."""
    check_class_sizes(counts, classes)
    k = len(counts)
    if isinstance(priors, str):
        check.check_choice(priors, ["empirical", "uniform"], "priors")
        if priors == "uniform":
            return np.full(k, 1 / k)
        return counts / counts.sum()
    return check.check_priors(priors, k)


def target_priors(
    priors: ArrayLike | str, counts: Array | None, classes: Array
) -> tuple[Floats, Floats]:
    """The wanted priors and their ratio to those of the rows; None, None if equal."""
    natural = is_empirical(priors)
    if counts is None and not natural:
        raise ValueError(
            "priors other than 'empirical' need y: without labels use shift_priors and "
            "sample_weight first"
        )
    if counts is None:
        return None, None
    target = resolve_priors(priors, counts, classes)
    if natural:
        return None, None
    return target, target / (counts / counts.sum())


def labelled_moments(
    P: Posteriors,
    codes: IntArray,
    weights: Floats,
    n_classes: int,
    target: Floats = None,
) -> Moments:
    """Sums of all rows in one pass.

    With priors ``target``, of rows shifted to them and weighted as their classes.
    """
    if weights is None:
        weights = np.ones(len(codes))
    ratio = np.ones(n_classes)
    if target is not None:
        counts = np.bincount(codes, weights, n_classes)
        ratio = target / (counts / counts.sum())
    moments = Moments(n_classes, plug_in=True)
    moments.add_rows(P, codes, weights * ratio[codes], ratio)
    return moments


def gramian_from_moments(moments: Moments) -> FloatArray:
    """G (the paper's equation 34, factorised model) from :func:`labelled_moments`."""
    # Class means of p: Σ w c pᵀ = diag(Σ w c) - Σ w c rᵀ.
    rho = moments.rho
    means = -moments.cr / rho[:, None]
    add_to_diagonal(means, np.ones(len(means)))
    # Weights within class k are w / ρ_k: Σ of their squares, and the same times ‖p‖².
    return without_own_pairs(means, moments.rho2 / rho**2, moments.p2 / rho**2)


class _Estimate(NamedTuple):
    """An estimate of B before its projection, and the variances of what follows from it."""

    B: FloatArray  #: (K, K)
    priors: FloatArray  #: (K,)
    variance: FloatArray  #: (K, K) of S
    brier: float  #: held-out Brier score
    brier_variance: float
    error: float  #: share of the rows whose label is not the most likely class
    error_variance: float
    covariance: Floats  #: of the upper triangle of B


def of_moments(
    moments: Moments,
    classes: Array,
    counts: Floats = None,
    method: Method = Method.ONE_STEP,
    priors: Floats = None,
    grouped: bool = False,
) -> CollisionMatrix:
    """The projected estimate from sums of rows.

    ``counts`` are the rows of each class, where units are not single rows; ``priors`` those that
    weights were made to give, where they are known.
    """
    S, variance = moments.ratio()
    if priors is None:
        priors = moments.rho / moments.size
    if counts is None:
        counts = moments.rho**2 / moments.rho2  # of weighted units the effective number
    found = _Estimate(
        S * priors[:, None],
        priors,
        variance,
        *moments.error(),
        *moments.held_out_error(),
        moments.covariance(),
    )
    n_units = moments.all_units()
    return replace(
        _projected(found, classes, method, n_units),
        counts=counts,
        units=moments.class_units(),
        n_units=n_units,
        grouped=grouped,
    )


def _projected(
    found: _Estimate, classes: Array, method: Method, n_units: float
) -> CollisionMatrix:
    """A possible matrix near the estimate, with its PBER."""
    projection = project(found.B, found.priors)
    diagnostics = Diagnostics(
        projection.moved, projection.iterations, projection.converged
    )
    B = projection.joint
    if method == Method.PLUG_IN:
        # Without labels nothing tells how wrong the posteriors are: no confidence is stated.
        return CollisionMatrix(
            B / B.sum(axis=1, keepdims=True),
            found.priors,
            classes,
            method=method,
            diagnostics=diagnostics,
        )
    stderr = float(np.sqrt(found.brier_variance))
    # The projection may move the trace; the Brier score is unbiased.
    projected = 1 - float(np.trace(B))
    if abs(projected - found.brier) > 1e-9:
        _warn_of_contradiction(found, projected, stderr, n_units)
        B = with_pber(B, found.priors, found.brier)
    return CollisionMatrix(
        B / B.sum(axis=1, keepdims=True),
        found.priors,
        classes,
        np.sqrt(found.variance),
        stderr,
        covariance=found.covariance,
        method=method,
        diagnostics=replace(diagnostics, brier=found.brier),
        held_out_error=found.error,
        held_out_stderr=float(np.sqrt(found.error_variance)),
    )


class ContradictionWarning(CollisionWarning):
    """Posteriors and labels contradict each other: what was found, and why that may be.

    Columns of a fit of our own are ``in_order``; of others they may not be.
    """

    def __init__(self, found: str, in_order: bool = False) -> None:
        cause = "posteriors are over-confident"
        if not in_order:
            cause += ", or their columns are not in the order of the classes"
        super().__init__(f"{found}: {cause}")
        self.found = found
        self.in_order = in_order

    def __reduce__(self) -> tuple[type, tuple[str, bool]]:
        return type(self), (self.found, self.in_order)


def _warn_of_contradiction(
    found: _Estimate, projected: float, stderr: float, n_units: float
) -> None:
    """Say so where posteriors and labels contradict each other beyond the sampling error."""
    by_chance = highest_pber(found.priors)
    # Beyond three standard errors, those of the class shares included: they are of the same rows.
    error = 3 * stderr
    error += optimism(by_chance, len(found.priors), n_units, level=0.9973)
    said = ""
    # And more than models of pure noise are beside the class shares.
    if found.brier > 1.05 * by_chance + error:
        said = (
            "the posteriors predict worse than the class shares alone (Brier score "
            f"{found.brier:.3f} against {by_chance:.3f}), and PBER is that of the class shares"
        )
    elif abs(projected - found.brier) > 0.03 * by_chance + error:
        said = (
            f"posteriors and labels contradict each other: the Brier score is {found.brier:.3f}, "
            f"the nearest possible collision matrix has a PBER of {projected:.3f}"
        )
    if said:
        warnings.warn(ContradictionWarning(said), stacklevel=4)


class CollisionAccumulator:
    """Collision matrix from a stream of held-out posteriors.

    Update in chunks, merge parts, ask for the result.

    Parameters
    ----------
    classes : sequence of K class names, in the order of the columns of P
    priors : array of shape (K,), default those of the rows
        Known priors of the population to estimate for, at which the posteriors must already hold
        (see :func:`shift_priors`). Takes K times the memory, and so not more than 400 classes.

    Examples
    --------
    >>> first, second = (
    ...     CollisionAccumulator(["a", "b"]),
    ...     CollisionAccumulator(["a", "b"]),
    ... )
    >>> _ = first.update([[0.9, 0.1], [0.4, 0.6]], ["a", "b"])
    >>> _ = second.update([[0.7, 0.3], [0.2, 0.8]], ["a", "b"])
    >>> first.merge(second).result().matrix.round(3)
    array([[0.85, 0.15],
           [0.15, 0.85]])
    """

    def __init__(self, classes: Names, priors: Given = None) -> None:
        self.classes = check.check_classes(classes)
        k = len(self.classes)
        self.priors = None
        n_strata = 1
        if priors is not None:
            self.priors = check.check_priors(priors, k)
            n_strata = k
        if n_strata > MAX_STRATA:
            raise ValueError(
                f"priors with {k:,} classes take the sums of every class apart, "
                f"{24 * k**3 / 2**30:,.0f} GB: leave priors out and give rows a "
                "sample_weight of wanted over observed share of their class (as "
                "collision_matrix_from_posteriors does by itself)"
            )
        self.n_rows = 0
        self._labelled: bool | None = None
        self._counts = np.zeros((2, k))  # weights and squared weights of each class
        self._strata = [Moments(k) for _ in range(n_strata)]

    def update(
        self,
        P: ArrayLike | SparseLike,
        y: Given = None,
        sample_weight: Given = None,
    ) -> CollisionAccumulator:
        """Add rows: held-out posteriors ``P`` (n×K), and their labels ``y`` where known.

        ``P`` may be a sparse matrix of scipy, as of the ten largest posteriors of every row, scaled
        to sum to 1.
        """
        posteriors, codes, _ = check.labelled_posteriors(P, y, self.classes)
        weights = check.check_weights(sample_weight, posteriors.shape[0])
        return self._update(posteriors, codes, weights)

    def _update(
        self, P: Posteriors, codes: IntArray | None, w: FloatArray, ratio: Floats = None
    ) -> Self:
        """Like :meth:`update`, checked; ``ratio`` (wanted over observed priors) shifts P."""
        low = check.SMALLEST_WEIGHT
        high = check.LARGEST_WEIGHT
        k = len(self.classes)
        if w.max() > high or w.min(where=w > 0, initial=1.0) < low:
            raise ValueError(
                f"sample_weight must be 0 or between {low:g} and {high:g}:"
                " divide all of it by one number"
            )
        labelled = codes is not None
        if self._labelled not in (None, labelled):
            raise ValueError(
                "y must be given in every update or in none: the two estimators cannot be mixed"
            )
        if not labelled and self.priors is not None:
            raise ValueError(
                "y is needed when priors are given: without labels pass posteriors already at them"
            )
        # Without labels a row counts for class k as far as p_k says.
        for counts, weight in zip(self._counts, (w, w**2), strict=True):
            counts += weight @ P if codes is None else np.bincount(codes, weight, k)
        if codes is None or self.priors is None:
            self._strata[0].add_rows(P, codes, w, ratio)
        else:
            for block in row_blocks(*P.shape):
                self._add_by_class(P[block], codes[block], w[block], ratio)
        self._labelled = labelled
        self.n_rows += len(w)
        return self

    def _add_by_class(
        self, P: Posteriors, codes: IntArray, w: FloatArray, ratio: Floats
    ) -> None:
        """Add some rows to the sums of their classes."""
        if isinstance(P, csr_array):
            P = P.toarray()
        if ratio is not None:
            P = shift_rows(P, ratio)
        # Within a class the mean is taken over all its rows, so the denominator of every entry is
        # the size.
        size = np.repeat(w[:, None], P.shape[1], axis=1)
        units = row_units(P, codes, None, w)._replace(rho=size)
        for stratum in np.unique(codes):
            self._strata[stratum].add(units.take(codes == stratum))

    def merge(self, other: CollisionAccumulator) -> CollisionAccumulator:
        """Add what another accumulator saw (another part of the rows, another machine)."""
        if not isinstance(other, CollisionAccumulator):
            raise ValueError(
                f"other must be a CollisionAccumulator, got {type(other).__name__}"
            )
        if self.classes.tolist() != other.classes.tolist():
            raise ValueError(
                f"other has classes {other.classes.tolist()}, this one {self.classes.tolist()}"
            )
        # Arrays of None too.
        if not np.array_equal(np.array(self.priors), np.array(other.priors)):
            raise ValueError(
                f"other was made with priors {other.priors}, this one with "
                f"{self.priors}: use the same in every part"
            )
        known = {self._labelled, other._labelled} - {None}
        if len(known) > 1:
            raise ValueError(
                "other was updated with labels and this one without, or the reverse:"
                " they cannot be mixed"
            )
        for stratum, added in zip(self._strata, other._strata, strict=True):
            stratum.merge(added)
        self._counts = self._counts + other._counts
        self.n_rows += other.n_rows
        self._labelled = next(iter(known), None)
        return self

    def result(self) -> CollisionMatrix:
        """The projected estimate with its standard errors; updates may go on afterwards."""
        if self.n_rows == 0:
            raise ValueError(
                "the accumulator is empty: call update with posteriors first"
            )
        weights, squares = self._counts
        check_class_sizes(weights, self.classes)
        counts = weights**2 / squares  # Kish's effective number of rows
        if self.priors is None:
            method = Method.PLUG_IN
            if self._labelled:
                method = Method.ONE_STEP
            return of_moments(self._strata[0], self.classes, counts, method)
        found = self._over_classes(self.priors)
        sizes = [(own.size, own.size2, own.size3) for own in self._strata]
        size, size2, size3 = np.array(sizes).T
        # A row of class k has the share π_k w / Σw of the population.
        share = self.priors / size
        squares = share**2 @ size2
        n_units = float(effective_units(1.0, squares, share**3 @ size3))
        return replace(
            _projected(found, self.classes, Method.ONE_STEP, n_units),
            counts=counts,
            units=effective_units(size, size2, size3),
            n_units=n_units,
        )

    def _over_classes(self, priors: FloatArray) -> _Estimate:
        """Σ_k priors_k (mean over class k): classes are independent, so variances add up."""
        k = len(priors)
        B = np.zeros((k, k))
        variance = np.zeros((k, k))
        scores = np.zeros(4)  # Brier score and 0/1 error, each with its variance
        covariance: Floats = None
        for share, moments in zip(priors, self._strata, strict=True):
            mean, of_mean = moments.ratio()
            B += share * mean
            variance += share**2 * of_mean
            own = np.array([*moments.error(), *moments.held_out_error()])
            scores += own * [share, share**2, share, share**2]
            part = moments.covariance()
            if part is not None:
                before = 0.0 if covariance is None else covariance
                covariance = share**2 * part + before
        # The priors are given: S = B / π has no noise in its denominator, as it has in Moments.
        brier, brier_variance, error, error_variance = scores.tolist()
        return _Estimate(
            B,
            priors,
            variance / priors[:, None] ** 2,
            brier,
            brier_variance,
            error,
            error_variance,
            covariance,
        )


def collision_matrix_from_posteriors(
    P: ArrayLike | SparseLike,
    y: Given = None,
    *,
    votes: Given = None,
    classes: Names | None = None,
    priors: ArrayLike | str = "empirical",
    sample_weight: Given = None,
    groups: Given = None,
) -> CollisionMatrix:
    """Collision matrix from held-out posteriors, with intervals.

    Dask arrays and DataFrames are accumulated where their blocks are, in one pass when ``classes``
    are given (they are taken from the columns of a DataFrame); other ``priors`` than "empirical"
    take a pass over ``y`` first.

    Parameters
    ----------
    P : (n, K), or n values p(second class) for two classes
        Posteriors of rows that the model did not see in training, for the population the rows come
        from. Named columns of a DataFrame are aligned with the labels by name. Sparse matrices of
        scipy are never made dense: rows must sum to 1, so that those of the largest posteriors are
        divided by their sums first.
    y : n labels, optional; without them the estimate is the mean of p pᵀ, as right as the
        posteriors are: it has no intervals
    votes : (n, K), optional; instead of ``y``, how many votes each class got
    classes : K names in the order of the columns, default the sorted distinct labels
    priors : "empirical", "uniform" or (K,), of the population whose S is wanted; others than
        "empirical" need ``y``
    sample_weight : n weights, optional
    groups : n group names, optional; of rows of one patient, document or site
        Intervals then count groups, not rows (cluster-robust standard errors with the factor
        G/(G-1), and Student's t). With given ``priors`` they are a little wide.

    Notes
    -----
    *Votes.* With votes c_1 … c_v of a row (independent given the input, mean c̄) and r_a = c_a - p,
    the mean over ordered pairs of different votes is unbiased for y yᵀ for any p::

        mean_{a≠b} c_a c_bᵀ = (c̄ pᵀ + p c̄ᵀ - p pᵀ) + mean_{a≠b} r_a r_bᵀ
        E[mean_{a≠b} r_a r_bᵀ] = δ δᵀ

    so pairs replace the one-step term in every row with two votes or more; rows with a single vote
    keep its bias.

    Examples
    --------
    >>> cm = collision_matrix_from_posteriors(
    ...     [[0.9, 0.1], [0.4, 0.6], [0.7, 0.3], [0.2, 0.8]], ["a", "b", "a", "b"]
    ... )
    >>> cm.matrix.round(3)
    array([[0.85, 0.15],
           [0.15, 0.85]])
    """
    if _dask.is_dask(P):
        if groups is not None or votes is not None:
            raise ValueError(
                "groups and votes must be left out with a Dask P: pass arrays in memory"
            )
        return _from_dask(P, y, classes, priors, sample_weight)
    if votes is not None and (y is not None or not is_empirical(priors)):
        raise ValueError(
            "votes must be given without y and with priors='empirical': they stand for both"
        )
    if votes is not None and isinstance(P, SparseLike):
        raise ValueError("votes must be left out with a sparse P: pass P.toarray()")
    posteriors, codes, names = check.labelled_posteriors(P, y, classes)
    for words in posterior_warnings(posteriors, codes) + check.spelling_variants(names):
        warnings.warn(words, check.CollisionWarning, stacklevel=2)
    n, k = posteriors.shape
    weights = check.unit_weights(check.check_weights(sample_weight, n))
    counted = None if votes is None else _check_votes(votes, posteriors, names)
    counts = None if codes is None else np.bincount(codes, weights, k)
    target, ratio = target_priors(priors, counts, names)
    if groups is None and counted is None:
        return _accumulated(posteriors, codes, weights, names, ratio, target).result()
    if ratio is not None:
        posteriors = shifted(posteriors, ratio)
        weights = weights * ratio[codes]
    method = Method.ONE_STEP
    if counted is not None:
        method = Method.VOTES
    elif codes is None:
        method = Method.PLUG_IN
    rows = row_units(posteriors, codes, counted, weights)
    moments = Moments(k)
    if groups is None:
        for block in row_blocks(n, k):
            moments.add(rows.take(block))
    else:
        moments.add_groups(rows, group_numbers(groups, n))
    check_class_sizes(moments.rho, names)
    effective = rows.rho.sum(axis=0) ** 2 / (rows.rho**2).sum(axis=0)
    return of_moments(moments, names, effective, method, target, groups is not None)


def _check_votes(votes: ArrayLike, P: Posteriors, names: Array) -> FloatArray:
    counted = check.check_votes(votes, "votes")
    if counted.shape != P.shape:
        raise ValueError(
            f"votes must have the shape of P {P.shape}, got {counted.shape}"
        )
    columns = check.column_names(votes)
    if columns is None:
        return counted
    return check.aligned(counted, columns, names, "votes")


def _accumulated(
    P: Posteriors,
    codes: IntArray | None,
    w: FloatArray,
    names: Array,
    ratio: Floats,
    target: Floats,
) -> CollisionAccumulator:
    """The sums of some rows, at priors ``target`` if given: see :func:`target_priors`."""
    sums = _empty_accumulator(names, target)
    if ratio is not None and sums.priors is None:
        # Intervals are a little wide: they allow for the class shares, which are known.
        w = w * ratio[codes]
    return sums._update(P, codes, w, ratio)


def _empty_accumulator(names: Array, target: Floats) -> CollisionAccumulator:
    """An accumulator, with separate sums per class where priors are given and classes are few."""
    if len(names) > MAX_STRATA:
        target = None
    return CollisionAccumulator(names, target)


def accumulate(chunks: Iterable[Any], classes: Names) -> CollisionMatrix:
    """Collision matrix from a stream that is read once and never held.

    A generator, a DataLoader, Parquet batches.

    Parameters
    ----------
    chunks : iterable of P, (P, y) or (P, y, sample_weight): held-out posteriors of shape (n, K)
        with their labels
        Arrays, tensors or DataFrames of any length; :func:`posterior_batches` makes them from
        Parquet files.
    classes : as in :class:`CollisionAccumulator`, which takes ``priors`` too

    Examples
    --------
    >>> chunks = (([[0.9, 0.1], [0.4, 0.6]], ["a", "b"]) for _ in range(1000))
    >>> accumulate(chunks, ["a", "b"]).counts
    array([1000., 1000.])
    """
    if isinstance(chunks, (str, bytes, Path)) or not isinstance(chunks, Iterable):
        raise ValueError(
            f"chunks must be an iterable of (P, y), got {type(chunks).__name__}: for a "
            "file pass posterior_batches(path, label)"
        )
    accumulator = CollisionAccumulator(classes)
    for number, chunk in enumerate(chunks):
        has_parts = isinstance(chunk, (tuple, list)) and len(chunk) in (2, 3)
        parts = chunk if has_parts else [chunk]
        try:
            accumulator.update(*parts)
        except ValueError as error:
            raise ValueError(f"chunk {number} of chunks: {error}") from None
    return accumulator.result()


def _from_dask(
    P: _dask.Collection,
    y: _dask.Collection | None,
    classes: Names | None,
    priors: ArrayLike | str,
    sample_weight: _dask.Collection | None,
) -> CollisionMatrix:
    blocks = _dask.blocks(P, y, sample_weight)
    if classes is None and hasattr(P, "columns"):
        classes = list(P.columns)
    counts: Counter[Any] | None = None
    if y is not None and (classes is None or not is_empirical(priors)):
        count = _dask.delayed(_label_counts)
        parts = [count(labels, weights) for _, labels, weights in blocks]
        counts = _dask.tree(parts, _add_counts)
    if classes is None:
        classes = range(P.shape[1])
        if counts is not None:
            classes = sorted(counts)
    names = check.check_classes(classes)
    class_weights = None
    if counts is not None:
        class_weights = np.array([counts[name] for name in names.tolist()])
    target, ratio = target_priors(priors, class_weights, names)
    part = _dask.delayed(partial(_dask_block, names=names, ratio=ratio, target=target))
    sums: CollisionAccumulator = _dask.tree([part(*block) for block in blocks], merged)
    return sums.result()


def _dask_block(
    P: Array, y: Given, w: Given, *, names: Array, ratio: Floats, target: Floats
) -> CollisionAccumulator:
    if not len(P):
        return _empty_accumulator(names, target)
    posteriors, codes, _ = check.labelled_posteriors(P, y, names)
    weights = check.check_weights(w, len(posteriors))
    return _accumulated(posteriors, codes, weights, names, ratio, target)


def _label_counts(y: ArrayLike, w: Given) -> Counter[Any]:
    labels, codes = np.unique(np.asarray(y), return_inverse=True)
    weights = np.bincount(codes, w).tolist()
    return Counter(dict(zip(labels.tolist(), weights, strict=True)))


def _add_counts(parts: list[Counter[Any]]) -> Counter[Any]:
    total: Counter[Any] = Counter()
    for part in parts:
        total.update(part)
    return total


def shrunk_collision_matrix(
    P: ArrayLike | SparseLike,
    y: ArrayLike,
    *,
    classes: Names | None = None,
    priors: ArrayLike | str = "empirical",
    sample_weight: Given = None,
    groups: Given = None,
) -> CollisionMatrix:
    """Collision matrix of many classes from held-out posteriors of a model that is well calibrated.

    Takes what :func:`collision_matrix_from_posteriors` takes, and has its PBER and its standard
    errors, for S an upper limit. ``diagnostics.one_step_share`` tells how much of the one-step
    estimate is in it (see :func:`shrink`).

    >>> rng = np.random.default_rng(0)
    >>> P = rng.dirichlet(np.full(30, 0.1), 3000)
    >>> y = (rng.random((3000, 1)) >= P.cumsum(axis=1)).sum(axis=1)
    >>> shrunk_collision_matrix(P, y).diagnostics.one_step_share < 0.5
    True
    """
    labels = check.check_labels(y)
    posteriors, codes, names = check.labelled_posteriors(P, labels, classes)
    assert codes is not None  # there are labels
    weights = check.unit_weights(check.check_weights(sample_weight, len(codes)))
    counts = np.bincount(codes, weights, len(names))
    target, _ = target_priors(priors, counts, names)
    return shrink(
        *one_step_and_moments(posteriors, codes, weights, names, target, groups)
    )


def one_step_and_moments(
    P: Posteriors,
    codes: IntArray,
    weights: Floats,
    classes: Array,
    target: Floats,
    groups: Given = None,
) -> tuple[CollisionMatrix, Moments]:
    """The one-step estimate, and what :func:`shrink` takes beside it.

    At priors ``target``; None: those of the rows.
    """
    # In one pass where it can be: with many classes every further one is a costly read of memory.
    moments = labelled_moments(P, codes, weights, len(classes), target)
    if groups is None and (target is None or len(classes) > MAX_STRATA):
        return of_moments(moments, classes), moments
    one_step = collision_matrix_from_posteriors(
        P,
        classes[codes],
        classes=classes,
        priors="empirical" if target is None else target,
        sample_weight=weights,
        groups=groups,
    )
    return one_step, moments


def shrink(one_step: CollisionMatrix, moments: Moments) -> CollisionMatrix:
    """The one-step estimate drawn to the plug-in one: :mod:`collidescope.equations.shrinkage`.

    The PBER of the result is that of ``one_step``, and so is its interval. With few classes it is
    ``one_step`` itself.
    """
    B, share = shrunk_joint(moments, one_step.priors, one_step.pber)
    if B is None:
        return one_step
    return replace(
        one_step,
        matrix=B / B.sum(axis=1, keepdims=True),
        method=Method.SHRUNK,
        diagnostics=replace(one_step.diagnostics, one_step_share=share),
    )
