"""The one-step estimator of the collision matrix, and its standard errors, in one pass.

With held-out posteriors p, one-hot labels c and r = c - p::

    B̂ = mean(c pᵀ + p cᵀ - p pᵀ) = diag(class shares) - mean(r rᵀ)

Its bias is -E[δ δᵀ] with δ = p - y: second order in the error of the posteriors, where class averages and the Gramian
root are first order. 1 - tr(B̂) is the Brier score of p. Without labels B̂ = mean(p pᵀ) takes the posteriors as true.

Every road here is a mean over independent units u (rows; groups of equal inputs when counting) of a matrix
Z = diag(a) + s h hᵀ, divided by a mean of its row sums ρ. :class:`Moments` keeps the sums such ratios need for
their value and their variance: O(K²) numbers, plus those behind the covariance of B for up to
``MAX_COVARIANCE_CLASSES`` classes (at most 2 MB), which merged classes need for their intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope._merging import n_pairs
from collidescope.matrix import CollisionMatrix
from collidescope.projection import project

MAX_COVARIANCE_CLASSES = 32
#: Working memory of one block of rows, in numbers.
BLOCK_NUMBERS = 2_000_000
#: Entries other than zero below which a sparse product is the faster one.
SPARSE_SHARE = 0.05
#: A variance below this share of the second moment it is the difference of is rounding, not variance.
VARIANCE_ROUNDING = 1e-14


class Moments:
    """Sums over units with Z = diag(a) + s h hᵀ, row sums ρ and size N; adds up in any order and any blocks."""

    def __init__(self, n_classes: int, covariance: bool) -> None:
        k, d = n_classes, n_pairs(n_classes) if covariance else 0
        self.sums: dict[str, Any] = {
            "units": 0.0,
            "N": 0.0,
            "NN": 0.0,
            "Z": np.zeros((k, k)),
            "ZZ": np.zeros((k, k)),
            "Zρ": np.zeros((k, k)),
            "ρ": np.zeros(k),
            "ρρ": np.zeros(k),
            "ee": 0.0,  # e = N - tr Z: the unit's share of the PBER
            "eN": 0.0,
            "V": np.zeros(d),  # V: upper triangle of Z
            "VN": np.zeros(d),
            "VV": np.zeros((d, d)),
        }
        self._pairs = np.triu_indices(k) if covariance else None

    def add(self, a: FloatArray, s: FloatArray, H: FloatArray, rho: FloatArray, N: FloatArray) -> None:
        """Add units: ``a``, ``H``, ``rho`` are n×K, ``s`` and ``N`` have n entries."""
        # Products of a matrix with itself take half the multiplications.
        square = H**2
        if (s >= 0).all() or (s <= 0).all():
            root = np.sqrt(np.abs(s))[:, None] * H
            Z = (1.0 if s.max() > 0 else -1.0) * (root.T @ root)
        else:
            Z = (s[:, None] * H).T @ H
        scaled = s[:, None] * square
        ZZ = scaled.T @ scaled
        left: Any = rho * s[:, None] * H
        if np.count_nonzero(left) < SPARSE_SHARE * left.size:  # with labels, ρ has one entry a row
            left = csr_array(left)
        Zrho = np.asarray(left.T @ H)
        np.einsum("ii->i", Z)[:] += a.sum(axis=0)
        np.einsum("ii->i", ZZ)[:] += (a**2 + 2 * a * scaled).sum(axis=0)
        np.einsum("ii->i", Zrho)[:] += (rho * a).sum(axis=0)
        e = N - a.sum(axis=1) - scaled.sum(axis=1)
        new: dict[str, Any] = {
            "units": float(len(N)),
            "N": N.sum(),
            "NN": N @ N,
            "Z": Z,
            "ZZ": ZZ,
            "Zρ": Zrho,
            "ρ": rho.sum(axis=0),
            "ρρ": (rho**2).sum(axis=0),
            "ee": e @ e,
            "eN": e @ N,
        }
        if self._pairs is not None:
            i, j = self._pairs
            V = s[:, None] * H[:, i] * H[:, j]
            V[:, i == j] += a
            new |= {"V": V.sum(axis=0), "VN": V.T @ N, "VV": V.T @ V}
        for name, value in new.items():
            self.sums[name] = self.sums[name] + value

    def merge(self, other: Moments) -> None:
        """Add the sums of another part of the data."""
        for name, value in other.sums.items():
            self.sums[name] = self.sums[name] + value

    def _bessel(self) -> float:
        units = self.sums["units"]
        return float(units / (units - 1)) if units > 1 else 1.0

    def ratio(self) -> tuple[FloatArray, FloatArray]:
        """ΣZ_ij / Σρ_i and its variance Σ(Z_ij - ratio ρ_i)² / (Σρ_i)²."""
        t = self.sums
        rho = t["ρ"][:, None]
        m = t["Z"] / rho
        variance = t["ZZ"] - 2 * m * t["Zρ"] + m**2 * t["ρρ"][:, None]
        variance[variance < VARIANCE_ROUNDING * t["ZZ"]] = 0.0
        return m, self._bessel() * variance / rho**2

    def error(self) -> tuple[float, float]:
        """1 - ΣtrZ / ΣN (the PBER) and its variance."""
        t = self.sums
        m = 1 - np.trace(t["Z"]) / t["N"]
        variance = t["ee"] - 2 * m * t["eN"] + m**2 * t["NN"]
        return float(m), self._bessel() * max(variance, 0.0) / t["N"] ** 2

    def covariance(self) -> FloatArray | None:
        """Covariance of the upper triangle of ΣZ / ΣN, or None when it was not kept."""
        if self._pairs is None:
            return None
        t = self.sums
        m = t["V"] / t["N"]
        cross = np.outer(m, t["VN"])
        return self._bessel() * (t["VV"] - cross - cross.T + t["NN"] * np.outer(m, m)) / t["N"] ** 2


def keeps_covariance(n_classes: int) -> bool:
    """Is the full covariance of B kept for this many classes?"""
    return n_classes <= MAX_COVARIANCE_CLASSES


def row_blocks(n_rows: int, n_classes: int) -> list[slice]:
    """Slices of rows whose temporaries stay near ``BLOCK_NUMBERS``."""
    width = n_pairs(n_classes) if keeps_covariance(n_classes) else 6 * n_classes
    size = max(1, BLOCK_NUMBERS // width)
    return [slice(start, start + size) for start in range(0, n_rows, size)]


class CollisionAccumulator:
    """Collision matrix from a stream of held-out posteriors: update in chunks, merge parts, ask for the result.

    Parameters
    ----------
    classes : sequence of K class names, in the order of the columns of P
    priors : array of shape (K,), optional
        Known priors of the population to estimate for, at which the posteriors must already hold (see
        :func:`shift_priors`). By default the priors are those of the rows. Takes K times the memory.

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
        c = np.zeros_like(P)
        c[np.arange(len(P)), codes] = 1.0
        self._counts += np.stack([w @ c, w**2 @ c])
        a, r = w[:, None] * c, c - P
        if self.priors is None:
            self._strata[0].add(a, -w, r, a, w)
            return
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
            S, variance = self._strata[0].ratio()
            priors = self._strata[0].sums["ρ"] / self._strata[0].sums["N"]
            _, pber_variance = self._strata[0].error()
            covariance = self._strata[0].covariance()
            return finish(priors[:, None] * S, priors, self.classes, variance, pber_variance, counts, covariance, name)
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
