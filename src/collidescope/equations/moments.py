"""Sums over independent units that give a collision matrix, its PBER and their variances.

For one row ``c`` is the one-hot label, ``p`` the held-out posterior, ``w`` the weight and
r = c - p. The estimates are those of S, equation (6) of the paper, and of the PBER, equation (5),
and everything here is a sum over units: O(K²) numbers (plus those behind the covariance of B for
few classes), in one pass, in any order, in parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from collidescope._checks import Array, FloatArray, IntArray
from collidescope._scaling import blocks
from collidescope.equations import _sparse
from collidescope.equations._sparse import as_array, likeliest
from collidescope.equations.merging import n_pairs
from collidescope.intervals import effective_units

#: up to these the covariance of B is kept (2 MB), for intervals of merged classes
MAX_COVARIANCE_CLASSES = 32
BLOCK_NUMBERS = 2_000_000  #: working memory of one block of rows, in numbers


def row_blocks(n_rows: int, n_classes: int, least: int = 4096) -> list[slice]:
    """Slices of rows whose temporaries stay near ``BLOCK_NUMBERS``.

    With many classes a block has at least ``least`` rows: a product of few rows waits for the K²
    numbers that it is added to.
    """
    if n_classes <= MAX_COVARIANCE_CLASSES:
        return list(blocks(n_rows, n_pairs(n_classes), BLOCK_NUMBERS))
    width = 6 * n_classes
    return list(blocks(n_rows, width, max(least * width, BLOCK_NUMBERS)))


def _slices(P: Array | csr_array) -> list[slice]:
    """Slices of rows as of :func:`row_blocks`; of sparse rows by the entries that they hold."""
    n, k = P.shape
    if isinstance(P, csr_array) and k > MAX_COVARIANCE_CLASSES:
        return _sparse.row_slices(P, _entries_at_once(k))
    return row_blocks(n, k)


def _entries_at_once(n_classes: int) -> int:
    """Entries of a block of sparse rows.

    Their products are added to K² numbers: with many classes a block has no fewer than a quarter
    of that. The positions of entries, and several products of them, are kept beside them.
    """
    return max(BLOCK_NUMBERS // 8, n_classes**2 // 4)


class Units(NamedTuple):
    """n independent units, each with a K×K matrix Z = diag(a) + s h hᵀ: see :class:`Moments`."""

    a: Any  #: (n, K), an array or sparse, as H and rho are
    s: FloatArray  #: (n,)
    H: Any  #: (n, K)
    rho: Any  #: (n, K)
    N: FloatArray  #: (n,)
    miss: FloatArray  #: (n,)

    def take(self, rows: IntArray | slice | npt.NDArray[np.bool_]) -> Units:
        """Some of the units."""
        return Units(*(part[rows] for part in self))

    def dense(self) -> Units:
        """The same units as arrays."""
        return Units(*map(_sparse.as_array, self))


@dataclass(init=False, eq=False)
class Moments:
    """Sums over independent units that give a collision matrix and its variance.

    A unit u (a row, a group of rows, an input that repeats) brings a K×K matrix Z with row sums ρ,
    and its size N (total weight). Then S_ij = ΣZ_ij / Σρ_i, B = ΣZ / ΣN and PBER = 1 - Σ tr Z / ΣN:
    ratios, whose variances need second moments only. A row with a label has Z = w (diag(c) - r rᵀ),
    ρ = w c, N = w.
    """

    units: float  #: number of units with a weight
    size: float  #: Σ N
    size2: float  #: Σ N²
    size3: float  #: Σ N³
    error2: float  #: Σ e² with e = N - tr Z, what the unit adds to the PBER
    error_size: float  #: Σ e N
    miss: float  #: Σ m with m the weight of the rows whose label is not argmax p
    miss2: float  #: Σ m²
    miss_size: float  #: Σ m N
    Z: FloatArray  #: (K, K) Σ Z_ij
    Z2: FloatArray  #: (K, K) Σ Z_ij²
    Z_rho: FloatArray  #: (K, K) Σ Z_ij ρ_i
    rho: FloatArray  #: (K,) Σ ρ
    rho2: FloatArray  #: (K,) Σ ρ²
    rho3: FloatArray  #: (K,) Σ ρ³
    V_size: FloatArray  #: (D,) Σ v N, v the upper triangle of Z row by row: for the covariance of B
    V2: FloatArray  #: (D, D) Σ v vᵀ
    cr: FloatArray  #: (K, K) Σ w c rᵀ; from here on for the plug-in estimate and the Gramian
    crr: FloatArray  #: (K, K) Σ w² (3 - 4 p·c) c (r∘r)ᵀ
    off2: FloatArray  #: (K,) Σ w² (1 - p·c)² c
    p2: FloatArray  #: (K,) Σ w² ‖p‖² c

    #: a variance below this share of the second moment it is the difference of is rounding
    double_rounding = 1e-14
    single_rounding = 1e-6  #: the same, where products were taken in float32

    def __init__(
        self, n_classes: int, covariance: bool | None = None, plug_in: bool = False
    ) -> None:
        k = n_classes
        if covariance is None:
            covariance = k <= MAX_COVARIANCE_CLASSES
        for sums in fields(self):
            setattr(self, sums.name, 0.0)
        self.Z, self.Z2, self.Z_rho = np.zeros((3, k, k))
        self.rho, self.rho2, self.rho3 = np.zeros((3, k))
        n_entries = n_pairs(k) * covariance
        self.V_size = np.zeros(n_entries)
        self.V2 = np.zeros((n_entries, n_entries))
        n_plugged = k * plug_in
        self.cr, self.crr = np.zeros((2, n_plugged, n_plugged))
        self.off2, self.p2 = np.zeros((2, n_plugged))
        self._pairs = np.triu_indices(k) if covariance else None
        self._plug_in = plug_in
        self._rounding = self.double_rounding

    def add(self, units: Units, times: FloatArray | None = None) -> None:
        """Add some units, each ``times`` times; ``a``, ``H`` and ``rho`` may be sparse."""
        if units.H.shape[1] <= MAX_COVARIANCE_CLASSES:
            units = units.dense()  # of few classes sparse products are slower
        a, s, H, rho, N, miss = units
        m = np.ones(len(N)) if times is None else times
        sH = H * s[:, None]
        shh = sH * H
        # Off the diagonal Z_ij = s h_i h_j and Z_ij² = (s h_i²)(s h_j²): each sum over units is
        # one matrix product. On the diagonal Z_ii = a_i + s h_i²: a is added there.
        self.Z += _weighted_product(sH, H, times)
        add_to_diagonal(self.Z, m @ a)
        self.Z2 += _weighted_product(shh, shh, times)
        add_to_diagonal(self.Z2, m @ (a * a + 2 * a * shh))
        self.Z_rho += _weighted_product(rho * sH, H, times)
        add_to_diagonal(self.Z_rho, m @ (rho * a))
        self._add_rho(rho, m)
        trace = a.sum(axis=1) + shh.sum(axis=1)
        self._add_sizes(N, N - trace, miss, m)
        if self._pairs is not None:
            i, j = self._pairs
            v = sH[:, i] * H[:, j]
            v[:, i == j] += a
            # Products of two of them then count ``times`` times.
            root = np.sqrt(m)
            self._add_triangle(root[:, None] * v, root * N)

    def add_labelled(
        self, P: Array | csr_array, codes: IntArray, w: FloatArray
    ) -> None:
        """Add rows with labels: posteriors n×K (float64 or float32), class numbers and weights.

        What :meth:`add` would do, in two products of K² per row, Σ w r rᵀ and Σ w² (r∘r)(r∘r)ᵀ; all
        else has one entry of c per row and costs K. The products of sparse rows cost the squares of
        their numbers of entries.
        """
        n, k = P.shape
        rows = np.arange(n)
        one = np.ones(n)
        single = not isinstance(P, csr_array) and _in_single(k, w)
        if single:
            self._rounding = self.single_rounding
        r = _residuals(P, codes, single)
        own = P[rows, codes].astype(np.float64)  # p·c
        away = 1 - own
        w2 = w**2

        def onto(values: FloatArray) -> csr_array:
            """K×n: the value of each row in the line of its class."""
            return csr_array((values.astype(r.dtype), (codes, rows)), shape=(k, n))

        def by_class(values: FloatArray) -> FloatArray:
            return np.bincount(codes, values, k).astype(np.float64)

        # Z = w (diag(c) - r rᵀ) and ρ = w c: Z_ij ρ_i is w² (δ_ij - r_i r_j) where i is the label
        # and 0 elsewhere.
        weights = w.astype(r.dtype)
        root = _sparse.rows_times(r, np.sqrt(weights))
        self.Z -= as_array(root.T @ root)
        del root  # with thousands of classes every further array of n×K counts
        self.Z_rho += as_array(onto(-w2 * away) @ r)
        if self._plug_in:
            self.cr += as_array(onto(w) @ r)
        if self._pairs is not None:
            i, j = self._pairs
            v = -w[:, None] * r[:, i] * r[:, j]
            diagonals = np.flatnonzero(i == j)
            v[rows, diagonals[codes]] += w
            self._add_triangle(v, w)
        r *= r
        r = _sparse.rows_times(r, weights)
        if single:
            r[r < _SINGLE_SMALLEST] = 0
        e = r.sum(axis=1, dtype=np.float64)  # w ‖c - p‖²
        self.Z2 += as_array(r.T @ r)
        if self._plug_in:
            self.crr += as_array(onto(w * (3 - 4 * own)) @ r)
            self.off2 += by_class((w * away) ** 2)
            # ‖p‖² = ‖c - r‖² = ‖r‖² + 2 p·c - 1.
            self.p2 += by_class(w * e + w2 * (2 * own - 1))
        weight = by_class(w)
        weight2 = by_class(w2)
        self.rho += weight
        self.rho2 += weight2
        self.rho3 += by_class(w**3)
        # What c adds to the diagonals, in float64. At the label
        # Z_ii² = w² (1 - r_i²)² = w² r_i⁴ + w² (1 - 2 r_i²).
        add_to_diagonal(self.Z, weight)
        add_to_diagonal(self.Z2, by_class(w2 * (1 - 2 * away**2)))
        add_to_diagonal(self.Z_rho, weight2)
        missed = likeliest(P) != codes
        self._add_sizes(w, e, w * missed, one)

    def add_rows(
        self,
        P: Array | csr_array,
        codes: IntArray | None,
        w: FloatArray,
        ratio: FloatArray | None = None,
    ) -> None:
        """Add rows with or without labels, block by block; ``ratio`` as for :func:`shift_rows`."""
        few_classes = P.shape[1] <= MAX_COVARIANCE_CLASSES
        for block in _slices(P):
            rows = P[block]
            if few_classes:
                rows = as_array(rows)
            if ratio is not None:
                rows = _sparse.shifted(rows, ratio)
            if codes is None:
                self.add(row_units(rows, None, None, w[block]))
            else:
                self.add_labelled(rows, codes[block], w[block])

    def add_groups(self, units: Units, groups: IntArray) -> None:
        """Like :meth:`add`, with all units of a group (0 … G-1, none empty) as one.

        Z, ρ and N of the units of a group are added up first: Z as a row of K² numbers.
        """
        k = units.H.shape[1]
        if k <= MAX_COVARIANCE_CLASSES:
            units = units.dense()
        for order, edges in _whole_groups(groups, _rows_at_once(units.H)):
            own = units.take(order)
            member = _sparse.memberships(edges, len(order))
            sH = _sparse.rows_times(own.H, own.s)
            Z = _group_matrices(own, sH, member)
            rho = member @ own.rho
            N = member @ own.N
            self.Z += Z.sum(axis=0).reshape(k, k)
            self.Z2 += (Z * Z).sum(axis=0).reshape(k, k)
            # Σ Z_ij ρ_i: in every row, ρ of its group.
            rho_of_row = member.T @ rho
            self.Z_rho += as_array((rho_of_row * sH).T @ own.H)
            add_to_diagonal(self.Z_rho, (rho_of_row * own.a).sum(axis=0))
            one = np.ones(len(N))
            self._add_rho(rho, one)
            trace = own.a.sum(axis=1) + (sH * own.H).sum(axis=1)
            self._add_sizes(N, N - member @ trace, member @ own.miss, one)
            if self._pairs is not None:
                upper = np.ravel_multi_index(self._pairs, (k, k))
                self._add_triangle(Z[:, upper], N)

    def _add_rho(self, rho: Any, m: FloatArray) -> None:
        self.rho += m @ rho
        self.rho2 += m @ (rho * rho)
        self.rho3 += m @ (rho * rho * rho)

    def _add_sizes(
        self, N: FloatArray, e: FloatArray, miss: FloatArray, m: FloatArray
    ) -> None:
        self.units += np.dot(m, N > 0)  # a weight of 0 leaves a row out
        self.size += np.dot(m, N)
        self.size2 += np.dot(m, N**2)
        self.size3 += np.dot(m, N**3)
        self.error2 += np.dot(m, e**2)
        self.error_size += np.dot(m, e * N)
        self.miss += np.dot(m, miss)
        self.miss2 += np.dot(m, miss**2)
        self.miss_size += np.dot(m, miss * N)

    def _add_triangle(self, v: FloatArray, N: FloatArray) -> None:
        self.V_size += v.T @ N
        self.V2 += v.T @ v

    def merge(self, other: Moments) -> None:
        """Add the sums of another part of the data."""
        for sums in fields(self):
            name = sums.name
            total = getattr(self, name)
            total += getattr(other, name)  # arrays in place
            setattr(self, name, total)
        self._rounding = max(self._rounding, other._rounding)

    def class_units(self) -> FloatArray:
        """Effective number of independent units of every class."""
        return effective_units(self.rho, self.rho2, self.rho3)

    def all_units(self) -> float:
        """Effective number of independent units."""
        return float(effective_units(self.size, self.size2, self.size3))

    def ratio(self) -> tuple[FloatArray, FloatArray]:
        """S_ij = ΣZ_ij / Σρ_i and its variance Σ(Z_ij - S_ij ρ_i)² / (Σρ_i)²."""
        rho = self.rho[:, None]
        rho2 = self.rho2[:, None]
        S = self.Z / rho
        # Delta method: a unit moves S_ij by (Z_ij - S_ij ρ_i) / Σρ_i. The square is expanded into
        # sums that are kept.
        crossed = 2 * S * self.Z_rho
        squared = S**2 * rho2
        Z2 = self.Z2
        variance = Z2 - crossed + squared
        is_rounding = variance < self._rounding * Z2
        variance[is_rounding] = 0.0
        of_S = self._bessel() * variance / rho**2
        return S, of_S

    def error(self) -> tuple[float, float]:
        """The PBER 1 - Σ tr Z / ΣN and its variance."""
        return self._mean(self.size - np.trace(self.Z), self.error2, self.error_size)

    def held_out_error(self) -> tuple[float, float]:
        """The share of rows whose label is not argmax p, and its variance."""
        return self._mean(self.miss, self.miss2, self.miss_size)

    def _mean(self, first: float, second: float, cross: float) -> tuple[float, float]:
        mean = first / self.size
        variance = second - 2 * mean * cross + mean**2 * self.size2
        return float(mean), self._bessel() * max(variance, 0.0) / self.size**2

    def covariance(self) -> FloatArray | None:
        """Covariance of the upper triangle of B = ΣZ / ΣN, or None when it was not kept."""
        pairs = self._pairs
        if pairs is None:
            return None
        mean = self.Z[pairs] / self.size
        # Σ (v - m N)(v - m N)ᵀ, expanded in the same way.
        cross = np.outer(mean, self.V_size)
        left = self.V2 - cross - cross.T + np.outer(mean, mean) * self.size2
        return np.asarray(self._bessel() * left / self.size**2)

    def _bessel(self) -> float:
        return self.units / (self.units - 1) if self.units > 1 else 1.0


def merged(parts: Sequence[Any]) -> Any:
    """Parts merged into a copy of the first: they may be needed again when a worker is lost."""
    total = deepcopy(parts[0])
    for part in parts[1:]:
        total.merge(part)
    return total


def diagonal(A: FloatArray) -> FloatArray:
    """The diagonal of ``A`` as a view that can be written to."""
    return np.einsum("ii->i", A)


def add_to_diagonal(A: FloatArray, values: FloatArray) -> None:
    """Add to the diagonal of ``A``, in place."""
    view = diagonal(A)
    view += values


def row_units(
    P: Any,
    codes: IntArray | None,
    votes: FloatArray | None,
    w: FloatArray,
) -> Units:
    """Every row as a unit: of a label, of votes (with P an array), or of posteriors alone."""
    n, k = P.shape
    if votes is not None:
        return _voted_units(P, votes, w)
    if codes is None:
        # Posteriors alone: Z = w p pᵀ, row sums ρ = w p.
        rho = _sparse.rows_times(P, w)
        return Units(a=csr_array((n, k)), s=w, H=P, rho=rho, N=w, miss=np.zeros(n))
    label = _sparse.one_hot(codes, k)
    weighted = _sparse.rows_times(label, w)
    missed = likeliest(P) != codes
    return Units(a=weighted, s=-w, H=label - P, rho=weighted, N=w, miss=w * missed)


def _voted_units(P: Array, votes: FloatArray, w: FloatArray) -> Units:
    v = votes.sum(axis=1)
    share = votes / v[:, None]
    # Two votes or more: the mean of c_a c_bᵀ over ordered pairs a ≠ b is
    # (n nᵀ - diag(n)) / (v (v-1)), for any p. A single vote: diag(c) - r rᵀ, the one-step term. Row
    # sums are n / v both times.
    paired = v > 1
    per_pair = w / np.maximum(v * (v - 1), 1)  # ordered pairs
    on_diagonal = np.where(paired, -per_pair, w)
    found = share[np.arange(len(P)), P.argmax(axis=1)]
    return Units(
        a=on_diagonal[:, None] * votes,
        s=np.where(paired, per_pair, -w),
        H=np.where(paired[:, None], votes, votes - P),
        rho=w[:, None] * share,
        N=w,
        miss=w * (1 - found),
    )


def _rows_at_once(H: Array | csr_array) -> int:
    """Rows whose matrices h hᵀ stay near the working memory of a block."""
    k = H.shape[1]
    entries = float(k**2)
    if isinstance(H, csr_array):
        entries = float(np.mean(np.diff(H.indptr) ** 2))
    return max(int(_entries_at_once(k) / max(entries, 1.0)), 1)


def _group_matrices(units: Units, sH: Array | csr_array, member: csr_array) -> Any:
    """G×K²: Z of every group, written as one row; sparse if the units are."""
    of_a = member @ _sparse.on_diagonal(units.a)
    if member.shape[0] > 1:
        of_H = member @ _sparse.outer_products(sH, units.H)
    else:  # its rows may be too many for a matrix each
        of_H = (sH.T @ units.H).reshape((1, -1))
    return of_a + of_H


#: What is smaller than this is 0 in float32, where products of smaller numbers are slow, then lost.
_SINGLE_SMALLEST = 1e-18


def _in_single(
    n_classes: int, w: FloatArray, many: int = 128, least_weight: float = 1e-4
) -> bool:
    """Whether the products of a block are taken in float32, and the blocks added up in float64.

    So they are from ``many`` classes on, unless a weight is below ``least_weight`` of the largest.
    Rounding is a share ε of Σ|x|, and Σ|x| ≤ √n √(Σ x²), so that a sum over n rows is off by less
    than ε √n standard errors; with ε near 1e-7 that is nothing for any n that fits a disk.
    """
    if n_classes < many:
        return False
    smallest = w.min(where=w > 0, initial=np.inf)
    return bool(smallest > least_weight * w.max())


def _residuals(P: Array | csr_array, codes: IntArray, single: bool) -> Any:
    """The residuals r = c - p of every row, in float32 if ``single``; sparse if P is."""
    n, k = P.shape
    if isinstance(P, csr_array):
        return _sparse.one_hot(codes, k) - P
    labelled = (np.arange(n), codes)
    own = P[labelled].astype(np.float64)
    dtype = np.float32 if single else np.float64
    r = np.negative(P, dtype=dtype, casting="same_kind")
    if single:
        is_tiny = r > -_SINGLE_SMALLEST
        r[is_tiny] = 0
    r[labelled] = 1 - own
    return r


def _weighted_product(left: Any, right: Any, times: FloatArray | None) -> Any:
    """Σ times · left rightᵀ over units, as an array; the factors may be sparse."""
    if times is not None:
        left = left * times[:, None]
    return as_array(left.T @ right)


def _whole_groups(
    groups: IntArray, most_rows: int
) -> Iterator[tuple[IntArray, IntArray]]:
    """Rows, group by group, and where each group starts; at most ``most_rows``, or one group."""
    order = np.argsort(groups, kind="stable")
    in_order = groups[order]
    starts = np.searchsorted(in_order, np.arange(groups.max() + 2))
    n_groups = len(starts) - 1
    first = 0
    while first < n_groups:
        begin = starts[first]
        beyond = np.searchsorted(starts, begin + most_rows, side="right")
        last = max(first + 1, int(beyond) - 1)
        rows = order[begin : starts[last]]
        within = starts[first:last] - begin
        yield rows, within
        first = last
