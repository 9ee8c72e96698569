"""Sampling errors of means over the same held-out rows, in independent units and in folds.

The scores of models of several training sizes are means over the same rows, so that their
differences have small errors; rows of one group, and models of one fold, share theirs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collidescope._checks import FloatArray, IntArray


class HeldOut(NamedTuple):
    """Held-out rows: how much each counts, and what they share."""

    weights: FloatArray  #: (n,)
    folds: IntArray  #: (n,) 0 … F-1
    units: IntArray  #: (n,) 0 … G-1, the independent unit of every row: its group, or itself


def power_sums(values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Σ, Σ of squares and Σ of cubes over the first axis."""
    return values.sum(axis=0), (values**2).sum(axis=0), (values**3).sum(axis=0)


def covariance_of_means(
    rows: FloatArray, sample: HeldOut
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weighted means of the columns, their covariance over units and folds, and over units alone.

    The sampling error of a fold's training rows moves its models, so that differences of sizes vary
    more between folds than rows explain: by the mean whitened square of the folds' differences, one
    factor for all, since few folds tell no more.
    """
    w = sample.weights / sample.weights.sum()
    n_sizes = rows.shape[1]
    means = w @ rows
    centred = (rows - means) * w[:, None]
    over_units = _over_units(centred, sample.units)
    if sample.folds.max() < 1 or n_sizes < 2:
        return means, over_units, over_units
    # u = D s: differences of neighbours, and the last mean.
    D = np.eye(n_sizes) - np.eye(n_sizes, k=1)
    V = D @ over_units @ D.T
    by_fold = sums_by_number(centred @ D.T, sample.folds)
    share = np.bincount(sample.folds, w).astype(np.float64)
    factor = _fold_factor(by_fold[:, :-1], V[:-1, :-1], share)
    # s = D⁻¹ u: differences of sizes widened, the last mean as it was.
    scale = np.full(n_sizes, np.sqrt(factor))
    scale[-1] = 1.0
    back = np.linalg.inv(D) * scale
    return means, back @ V @ back.T, over_units


def _fold_factor(by_fold: FloatArray, V: FloatArray, share: FloatArray) -> float:
    """The factor by which sums of folds vary more than rows of covariance V explain.

    If rows alone varied, the sum of fold g would have covariance share_g (1 - share_g) V, as all
    folds add up to 0; on average the whitened squares would add up to (T - 1)(1 - Σ share²), and
    the factor would be 1.
    """
    whitened = by_fold @ np.linalg.pinv(V, hermitian=True)
    seen = (by_fold * whitened).sum()
    expected = len(V) * (1 - (share**2).sum())
    return max(float(seen / expected), 1.0)


def sums_by_number(values: FloatArray, numbers: IntArray) -> FloatArray:
    """Σ of the rows with each number 0 … G-1."""
    sums = np.zeros((int(numbers.max()) + 1, values.shape[1]))
    np.add.at(sums, numbers, values)
    return sums


def _over_units(influence: FloatArray, units: IntArray) -> FloatArray:
    """Covariance of summed influences, each of mean 0, over independent units, by G/(G-1)."""
    sums = influence
    if units.max() + 1 < len(units):
        sums = sums_by_number(influence, units)
    seen = float(np.count_nonzero(sums.any(axis=1)))  # not those of weight 0
    bessel = seen / max(seen - 1, 1)
    return bessel * (sums.T @ sums)


class OuterProducts(NamedTuple):
    """Rows whose combinations Σ_t g_t r_t r_tᵀ are added up over independent units."""

    residuals: list[FloatArray]  #: r_t = c - p_t, (n, K) each
    onehot: FloatArray  #: c, (n, K)
    w: FloatArray  #: weights, adding up to 1
    units: IntArray  #: (n,)

    def sum_of_squares(
        self,
        g: FloatArray,
        slope: FloatArray | None = None,
        mean: FloatArray | None = None,
    ) -> FloatArray:
        """Σ over units of (Σ over rows w (Σ_t g_t r_t r_tᵀ + slope_ij c_i - mean))².

        Entry by entry.
        """
        k = self.onehot.shape[1]
        nothing = np.zeros((k, k))
        if slope is None:
            slope = nothing
        if mean is None:
            mean = nothing
        n_units = self.units.max() + 1
        if n_units < len(self.units):
            return self._over_groups(g, slope, mean)
        return self._over_rows(g, slope, mean)

    def _over_rows(
        self, g: FloatArray, slope: FloatArray, mean: FloatArray
    ) -> FloatArray:
        w = self.w[:, None]
        squares = np.zeros_like(slope)
        cross = np.zeros_like(slope)
        # (r_t r_tᵀ)_ij (r_s r_sᵀ)_ij = (r_t r_s)_i (r_t r_s)_j: a product of matrices for each
        # pair.
        onehot = self.onehot
        by_size = list(zip(g, self.residuals, strict=True))
        for first, r in by_size:
            weighted = w * r
            for second, v in by_size:
                both = weighted * v
                squares += first * second * (both.T @ both)
            cross += first * (onehot * weighted).T @ weighted
        w_squared = self.w**2
        of_class = w_squared @ onehot
        squares += slope * (2 * cross + slope * of_class[:, None])
        return squares - w_squared.sum() * mean**2

    def _over_groups(
        self, g: FloatArray, slope: FloatArray, mean: FloatArray
    ) -> FloatArray:
        units = self.units
        order = np.argsort(units, kind="stable")
        groups = np.split(order, np.cumsum(np.bincount(units))[:-1])
        squares = np.zeros_like(slope)
        for rows in groups:
            w = self.w[rows]
            labels = self.onehot[rows]
            own = slope * (w @ labels)[:, None] - w.sum() * mean
            for weight, residuals in zip(g, self.residuals, strict=True):
                r = residuals[rows]
                own += weight * (r.T @ (w[:, None] * r))
            squares += own**2
        n_groups = len(groups)
        bessel = n_groups / max(n_groups - 1, 1)
        return squares * bessel
