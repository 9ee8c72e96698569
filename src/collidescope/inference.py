"""The one-step estimator of the collision matrix, and its standard errors, in one pass.

With held-out posteriors p, one-hot labels c and r = c - p::

    B̂ = mean(c pᵀ + p cᵀ - p pᵀ) = diag(class shares) - mean(r rᵀ)

Its bias is -E[δ δᵀ] with δ = p - y: second order in the error of the posteriors, where class averages and the Gramian
root are first order. 1 - tr(B̂) is the Brier score of p. Without labels B̂ = mean(p pᵀ) takes the posteriors as true.

The sums behind value and variance are those of :mod:`collidescope.moments`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope.equations.projection import project
from collidescope.matrix import CollisionMatrix
from collidescope.moments import Moments, keeps_covariance, row_blocks

#: Classes up to which the sums of every class are kept apart when priors are given: K³ numbers, 1.5 GB here.
MAX_STRATA = 400


class CollisionAccumulator:
    """Collision matrix from a stream of held-out posteriors: update in chunks, merge parts, ask for the result.

    Parameters
    ----------
    classes : sequence of K class names, in the order of the columns of P
    priors : array of shape (K,), optional
        Known priors of the population to estimate for, at which the posteriors must already hold (see
        :func:`shift_priors`). By default the priors are those of the rows. Takes K times the memory, and so not more
        than 400 classes.

    Examples
    --------
    >>> first, second = CollisionAccumulator(["a", "b"]), CollisionAccumulator(["a", "b"])
    >>> _ = first.update([[0.9, 0.1], [0.4, 0.6]], ["a", "b"])
    >>> _ = second.update([[0.7, 0.3], [0.2, 0.8]], ["a", "b"])
    >>> first.merge(second).result().matrix.round(3)
    array([[0.85, 0.15],
           [0.15, 0.85]])
    """

    def __init__(self, classes: Sequence[Any] | npt.NDArray[Any], priors: npt.ArrayLike | None = None) -> None:
        self.classes = check.check_classes(classes)
        k = len(self.classes)
        self.priors = None if priors is None else check.check_priors(priors, k)
        if priors is not None and k > MAX_STRATA:
            raise ValueError(
                f"priors with {k:,} classes take the sums of every class apart, {24 * k**3 / 2**30:,.0f} GB: leave "
                f"priors out and give rows a sample_weight of wanted over observed share of their class (as "
                f"collision_matrix_from_posteriors does by itself)"
            )
        self.n_rows = 0
        self._labelled: bool | None = None
        self._counts = np.zeros((2, k))  # weights and squared weights of each class
        self._strata = [Moments(k, keeps_covariance(k)) for _ in range(1 if priors is None else k)]

    def update(
        self, P: npt.ArrayLike, y: npt.ArrayLike | None = None, sample_weight: npt.ArrayLike | None = None
    ) -> CollisionAccumulator:
        """Add rows: posteriors ``P`` (n×K) that no model saw in training, and their labels ``y`` where known."""
        posteriors = check.check_posteriors(P, n_classes=len(self.classes))
        weights = check.check_weights(sample_weight, len(posteriors))
        if weights.max() > check.LARGEST_WEIGHT or weights.min(where=weights > 0, initial=1.0) < check.SMALLEST_WEIGHT:
            low, high = check.SMALLEST_WEIGHT, check.LARGEST_WEIGHT
            raise ValueError(f"sample_weight must be 0 or between {low:g} and {high:g}: divide all of it by one number")
        labelled = y is not None
        if self._labelled not in (None, labelled):
            raise ValueError("y must be given in every update or in none: the two estimators cannot be mixed")
        if not labelled and self.priors is not None:
            raise ValueError(
                "y is needed when priors are given: without labels pass posteriors already at those priors"
            )
        codes = None
        if y is not None:
            codes = check.encode_labels(y, self.classes)
            check.check_same_length(posteriors, codes, "P and y")
        for block in row_blocks(len(posteriors), len(self.classes)):
            self._add(posteriors[block], None if codes is None else codes[block], weights[block])
        self._labelled = labelled
        self.n_rows += len(posteriors)
        return self

    def _add(self, P: FloatArray, codes: IntArray | None, w: FloatArray) -> None:
        if codes is None:
            zero = np.zeros_like(P)
            self._strata[0].add(zero, w, P, w[:, None] * P, w)
            self._counts += np.stack([w @ P, w**2 @ P])
            return
        k = P.shape[1]
        self._counts += np.stack([np.bincount(codes, w, k), np.bincount(codes, w**2, k)])
        if self.priors is None:
            self._strata[0].add_labelled(P, codes, w)
            return
        c = np.zeros_like(P)
        c[np.arange(len(P)), codes] = 1.0
        a, r = w[:, None] * c, c - P
        for stratum in np.unique(codes):
            own = codes == stratum
            sizes = w[own]
            # Within a class the mean is taken over all its rows, so the denominator of every entry is the size.
            self._strata[stratum].add(a[own], -sizes, r[own], np.repeat(sizes[:, None], k, axis=1), sizes)

    def merge(self, other: CollisionAccumulator) -> CollisionAccumulator:
        """Add what another accumulator saw (another part of the rows, another machine)."""
        if not isinstance(other, CollisionAccumulator):
            raise ValueError(f"other must be a CollisionAccumulator, got {type(other).__name__}")
        if self.classes.tolist() != other.classes.tolist():
            raise ValueError(f"other has classes {other.classes.tolist()}, this one {self.classes.tolist()}")
        same = (self.priors is None) == (other.priors is None)
        if not same or (self.priors is not None and not np.array_equal(self.priors, other.priors)):  # type: ignore[arg-type]
            raise ValueError(
                f"other was made with priors {other.priors}, this one with {self.priors}: use the same in every part"
            )
        if None not in (self._labelled, other._labelled) and self._labelled != other._labelled:
            raise ValueError(
                "other was updated with labels and this one without (or the reverse): they cannot be mixed"
            )
        for mine, theirs in zip(self._strata, other._strata, strict=True):
            mine.merge(theirs)
        self._counts = self._counts + other._counts
        self.n_rows += other.n_rows
        self._labelled = other._labelled if self._labelled is None else self._labelled
        return self

    def result(self) -> CollisionMatrix:
        """The projected estimate with its standard errors; updates may go on afterwards."""
        if self.n_rows == 0:
            raise ValueError("the accumulator is empty: call update with posteriors first")
        weights, squares = self._counts
        if not (weights > 0).all():
            absent = self.classes[weights <= 0].tolist()
            raise ValueError(f"classes {absent} have no rows: leave them out of classes, or add rows of them")
        counts = weights**2 / squares
        name = "one-step" if self._labelled else "mean of p pᵀ"
        if self.priors is None:
            return of_moments(self._strata[0], self.classes, counts, name)
        priors = self.priors
        ratios = [stratum.ratio() for stratum in self._strata]
        B = sum(share * m for share, (m, _) in zip(priors, ratios, strict=True))
        variance = sum(share**2 * v for share, (_, v) in zip(priors, ratios, strict=True)) / priors[:, None] ** 2
        pber_variance = sum(share**2 * stratum.error()[1] for share, stratum in zip(priors, self._strata, strict=True))
        parts = [stratum.covariance() for stratum in self._strata]
        covariance = None
        if parts[0] is not None:
            covariance = sum(share**2 * part for share, part in zip(priors, parts, strict=True))
        return finish(B, priors, self.classes, variance, pber_variance, counts, covariance, name)


def of_moments(
    moments: Moments, classes: npt.NDArray[Any], counts: FloatArray | None = None, method: str = "one-step"
) -> CollisionMatrix:
    """The projected estimate at the priors of the rows that ``moments`` hold; of rows with labels they tell counts."""
    if counts is None:
        counts = moments.sums["ρ"] ** 2 / moments.sums["ρρ"]
    S, variance = moments.ratio()
    priors = moments.sums["ρ"] / moments.sums["N"]
    S *= priors[:, None]
    return finish(S, priors, classes, variance, moments.error()[1], counts, moments.covariance(), method)


def finish(
    B: FloatArray,
    priors: FloatArray,
    classes: npt.NDArray[Any],
    variance: FloatArray,
    pber_variance: float,
    counts: FloatArray,
    covariance: FloatArray | None,
    method: str,
) -> CollisionMatrix:
    """Project an estimate of B and dress it as a :class:`CollisionMatrix`."""
    projection = project(B, priors)
    S = projection.joint / projection.joint.sum(axis=1, keepdims=True)
    return CollisionMatrix(
        S,
        priors,
        classes,
        np.sqrt(variance),
        float(np.sqrt(pber_variance)),
        counts,
        covariance,
        info={
            "method": method,
            "moved": projection.moved,
            "projection_iterations": projection.iterations,
            "projection_converged": projection.converged,
        },
    )


def resolve_priors(priors: npt.ArrayLike | str, counts: FloatArray, classes: npt.NDArray[Any]) -> FloatArray:
    """The priors meant by "empirical", "uniform" or an array, given (weighted) class counts."""
    k = len(counts)
    if not (counts > 0).all():
        raise ValueError(
            f"classes {classes[counts <= 0].tolist()} have no rows: leave them out of classes, or add rows of them"
        )
    if isinstance(priors, str):
        check.check_choice(priors, ["empirical", "uniform"], "priors")
        return np.full(k, 1 / k) if priors == "uniform" else counts / counts.sum()
    return check.check_priors(priors, k)
