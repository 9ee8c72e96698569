"""Sums over independent units that give a collision matrix, its PBER and their variances.

For one row ``c`` is the one-hot label, ``p`` the held-out posterior, ``w`` the weight and r = c - p. All is a sum over
units, O(K²) numbers (plus those behind the covariance of B for few classes), in one pass, in any order, in parts.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from collidescope._checks import FloatArray, IntArray
from collidescope.matrix import n_pairs

MAX_COVARIANCE_CLASSES = 32  #: up to these the covariance of B is kept (2 MB), for intervals of merged classes
#: Working memory of one block of rows, in numbers, and the fewest rows of a block with many classes: a product of few
#: rows waits for the K² numbers that it is added to.
BLOCK_NUMBERS = 2_000_000
LEAST_ROWS = 4096
DENSE_SHARE = 0.1  #: share of entries other than zero above which a dense product is faster than a sparse one
VARIANCE_ROUNDING = 1e-14  #: a variance below this share of the second moment it is the difference of is rounding
#: From this many classes on the products of a block are taken in float32 and the blocks added up in float64. Rounding
#: is a share ε of Σ|x|, and Σ|x| ≤ √n √(Σ x²), so that a sum over n rows is off by less than ε √n standard errors; with
#: ε near 1e-7 that is nothing for any n that fits a disk.
SINGLE_CLASSES = 128
#: Weights that differ by more than this are left in float64, and what is smaller than this is 0 in float32, where
#: products of smaller numbers are slow and then lost.
SINGLE_WEIGHTS, SINGLE_SMALLEST = 1e-4, 1e-18
SINGLE_ROUNDING = 1e-6


def keeps_covariance(n_classes: int) -> bool:
    """Is the full covariance of B kept for this many classes?"""
    return n_classes <= MAX_COVARIANCE_CLASSES


def row_blocks(n_rows: int, n_classes: int) -> list[slice]:
    """Slices of rows whose temporaries stay near ``BLOCK_NUMBERS``."""
    width = n_pairs(n_classes) if keeps_covariance(n_classes) else 6 * n_classes
    size = max(1 if keeps_covariance(n_classes) else LEAST_ROWS, BLOCK_NUMBERS // width)
    return [slice(start, start + size) for start in range(0, n_rows, size)]


class Units(NamedTuple):
    """n independent units, each with a K×K matrix Z = diag(a) + s h hᵀ: see :class:`Moments`."""

    a: FloatArray  #: (n, K)
    s: FloatArray  #: (n,)
    H: FloatArray  #: (n, K)
    rho: FloatArray  #: (n, K)
    N: FloatArray  #: (n,)
    miss: FloatArray  #: (n,)


@dataclass(init=False, eq=False)
class Moments:
    """Sums over independent units that give a collision matrix and its variance.

    A unit u (a row, a group of rows, an input that repeats) brings a K×K matrix Z with row sums ρ, and its size N
    (total weight). Then S_ij = ΣZ_ij / Σρ_i, B = ΣZ / ΣN and PBER = 1 - Σ tr Z / ΣN: ratios, whose variances need
    second moments only. A row with a label has Z = w (diag(c) - r rᵀ), ρ = w c, N = w.

    Parameters
    ----------
    n_classes : int
    covariance, plug_in : bool
        Are the sums behind the covariance of B (V …), and those behind shrinkage and the Gramian (cr …), kept?

    Attributes
    ----------
    units : number of units
    size, size2 : Σ N, Σ N²
    Z, Z2, Z_rho : arrays (K, K), Σ Z_ij, Σ Z_ij², Σ Z_ij ρ_i
    rho, rho2 : arrays (K,), Σ ρ, Σ ρ²
    error2, error_size : Σ e², Σ e N with e = N - tr Z, what the unit adds to the PBER
    miss, miss2, miss_size : Σ m, Σ m², Σ m N with m the weight of the rows whose label is not argmax p
    V_size, V2 : arrays (D,), (D, D), Σ v N, Σ v vᵀ with v the upper triangle of Z, row by row
    cr : array (K, K), Σ w c rᵀ
    crr : array (K, K), Σ w² (3 - 4 p·c) c (r∘r)ᵀ
    off2 : array (K,), Σ w² (1 - p·c)² c
    p2 : array (K,), Σ w² ‖p‖² c
    """

    units: float
    size: float
    size2: float
    error2: float
    error_size: float
    miss: float
    miss2: float
    miss_size: float
    Z: FloatArray
    Z2: FloatArray
    Z_rho: FloatArray
    rho: FloatArray
    rho2: FloatArray
    V_size: FloatArray
    V2: FloatArray
    cr: FloatArray
    crr: FloatArray
    off2: FloatArray
    p2: FloatArray

    def __init__(self, n_classes: int, covariance: bool, plug_in: bool = False) -> None:
        k, d, q = n_classes, n_pairs(n_classes) * covariance, n_classes * plug_in
        shapes = {"Z": (k, k), "Z2": (k, k), "Z_rho": (k, k), "rho": (k,), "rho2": (k,)}
        shapes |= {"V_size": (d,), "V2": (d, d), "cr": (q, q), "crr": (q, q), "off2": (q,), "p2": (q,)}
        for sums in fields(self):
            setattr(self, sums.name, np.zeros(shapes[sums.name]) if sums.name in shapes else 0.0)
        self._pairs = np.triu_indices(k) if covariance else None
        self._plug_in = plug_in
        self._rounding = VARIANCE_ROUNDING

    def add(self, units: Units) -> None:
        """Add some units."""
        a, s, H, rho, N, miss = units
        sH, shh = s[:, None] * H, s[:, None] * H**2
        Z, Z2, Z_rho = sH.T @ H, shh.T @ shh, (rho * sH).T @ H
        diagonal(Z)[:] += a.sum(axis=0)
        diagonal(Z2)[:] += (a**2 + 2 * a * shh).sum(axis=0)
        diagonal(Z_rho)[:] += (rho * a).sum(axis=0)
        self._gather(Z=Z, Z2=Z2, Z_rho=Z_rho, rho=rho.sum(axis=0), rho2=(rho**2).sum(axis=0))
        self._add_sizes(N, N - a.sum(axis=1) - shh.sum(axis=1), miss)
        self._add_triangle(s, H, a, N)

    def add_sparse(
        self, h: csr_array, a: FloatArray, s: FloatArray, rho: FloatArray, N: FloatArray, times: FloatArray
    ) -> None:
        """As :meth:`add`, each unit ``times`` times; ``a`` and ``rho`` have an entry for each that ``h`` stores."""
        n, k = h.shape
        unit, column = np.repeat(np.arange(n), np.diff(h.indptr)), h.indices
        m, sh = times[unit], s[unit] * h.data
        shh = sh * h.data
        dense = h.nnz > DENSE_SHARE * n * k

        def table(values: FloatArray) -> Any:
            stored = csr_array((values, h.indices, h.indptr), shape=(n, k))
            return stored.toarray() if dense else stored

        H = table(h.data)
        for total, left, right, own in (
            (self.Z, m * sh, H, a),
            (self.Z2, m * shh, table(shh), a * (a + 2 * shh)),
            (self.Z_rho, m * rho * sh, H, rho * a),
        ):
            product = table(left).T @ right
            total += product if dense else product.toarray()
            diagonal(total)[:] += np.bincount(column, m * own, k)
        self._gather(rho=np.bincount(column, m * rho, k), rho2=np.bincount(column, m * rho**2, k))
        self._add_sizes(N, N - np.bincount(unit, a + shh, n), np.zeros(n), times)
        if self._pairs is not None:
            dense, root = True, np.sqrt(times)
            self._add_triangle(root * s, table(h.data), table(root[unit] * a), root * N)

    def add_labelled(self, P: npt.NDArray[Any], codes: IntArray, w: FloatArray) -> None:
        """Add rows with labels: posteriors n×K (float64 or float32), class numbers and weights.

        What :meth:`add` would do, in two products of K² per row, Σ w r rᵀ and Σ w² (r∘r)(r∘r)ᵀ; all else has one entry
        of c per row and costs K.
        """
        n, k = P.shape
        rows = np.arange(n)
        own = P[rows, codes].astype(np.float64)
        away = 1 - own
        even = bool((w == 1).all())
        single = k >= SINGLE_CLASSES and w.min(where=w > 0, initial=np.inf) > SINGLE_WEIGHTS * w.max()
        if single:
            self._rounding = SINGLE_ROUNDING
        r = np.negative(P, dtype=np.float32 if single else np.float64, casting="same_kind")
        if single:
            r[r > -SINGLE_SMALLEST] = 0
        r[rows, codes] = away
        order, ends = np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes, minlength=k))

        def onto(values: FloatArray) -> csr_array:
            """K×n: the value of each row in the line of its class."""
            return csr_array((values[order].astype(r.dtype), order, np.append(0, ends)), shape=(k, n))

        def by_class(values: FloatArray) -> FloatArray:
            return np.bincount(codes, values, k).astype(np.float64)

        weights = w.astype(r.dtype)[:, None]
        root = r if even else np.sqrt(weights) * r
        self._gather(Z=-(root.T @ root), Z_rho=onto(-(w**2) * away) @ r)
        del root
        if self._plug_in:
            self._gather(cr=onto(w) @ r)
        if self._pairs is not None:
            c = np.zeros((n, k))
            c[rows, codes] = w
            self._add_triangle(-w, r, c, w)
        r *= r  # in place: with thousands of classes every further array of n×K counts
        if not even:
            r *= weights
        if single:
            r[r < SINGLE_SMALLEST] = 0
        e = r.sum(axis=1, dtype=np.float64)  # w ‖c - p‖²
        self._gather(Z2=r.T @ r, rho=by_class(w), rho2=by_class(w**2))
        if self._plug_in:
            self._gather(crr=onto(w * (3 - 4 * own)) @ r, off2=by_class((w * away) ** 2))
            self._gather(p2=by_class(w * e + w**2 * (2 * own - 1)))
        # What c adds to the diagonals, in float64.
        diagonal(self.Z)[:] += by_class(w)
        diagonal(self.Z2)[:] += by_class(w**2 * (1 - 2 * away**2))
        diagonal(self.Z_rho)[:] += by_class(w**2)
        self._add_sizes(w, e, w * (P.argmax(axis=1) != codes))

    def add_groups(self, units: Units, groups: IntArray) -> None:
        """As :meth:`add`, with all units of a group (0 … G-1, none empty) as one: Z, ρ and N are added up first."""
        order = np.argsort(groups, kind="stable")
        starts = np.searchsorted(groups[order], np.arange(groups.max() + 2))
        rows, first = max(BLOCK_NUMBERS // units.H.shape[1] ** 2, 1), 0
        while first < len(starts) - 1:
            # As many whole groups as fit the working memory, at least one.
            last = max(first + 1, int(np.searchsorted(starts, starts[first] + rows, side="right")) - 1)
            own, edges = order[starts[first] : starts[last]], starts[first:last] - starts[first]
            s, H = units.s[own], units.H[own]
            a, rho, N, miss = (np.add.reduceat(part[own], edges) for part in (units.a, units.rho, units.N, units.miss))
            if last == first + 1:
                Z = ((s[:, None] * H).T @ H)[None]
            else:
                Z = np.add.reduceat(np.einsum("n,ni,nj->nij", s, H, H), edges)
            np.einsum("gii->gi", Z)[:] += a
            self._gather(Z=Z.sum(axis=0), Z2=(Z**2).sum(axis=0), Z_rho=np.einsum("gij,gi->ij", Z, rho))
            self._gather(rho=rho.sum(axis=0), rho2=(rho**2).sum(axis=0))
            self._add_sizes(N, N - np.einsum("gii->g", Z), miss)
            if self._pairs is not None:
                v = Z[:, *self._pairs]
                self._gather(V_size=v.T @ N, V2=v.T @ v)
            first = last

    def _add_sizes(self, N: FloatArray, e: FloatArray, miss: FloatArray, times: FloatArray | None = None) -> None:
        m = np.ones(len(N)) if times is None else times
        self._gather(units=m.sum(), size=m @ N, size2=m @ N**2, error2=m @ e**2, error_size=m @ (e * N))
        self._gather(miss=m @ miss, miss2=m @ miss**2, miss_size=m @ (miss * N))

    def _add_triangle(self, s: FloatArray, H: npt.NDArray[Any], a: FloatArray, N: FloatArray) -> None:
        if self._pairs is not None:
            i, j = self._pairs
            v = s[:, None] * H[:, i] * H[:, j]
            v[:, i == j] += a
            self._gather(V_size=v.T @ N, V2=v.T @ v)

    def _gather(self, **new: Any) -> None:
        for name, value in new.items():
            held = getattr(self, name)
            held += value  # arrays in place
            setattr(self, name, held)

    def merge(self, other: Moments) -> None:
        """Add the sums of another part of the data."""
        self._gather(**{sums.name: getattr(other, sums.name) for sums in fields(self)})
        self._rounding = max(self._rounding, other._rounding)

    def ratio(self) -> tuple[FloatArray, FloatArray]:
        """S_ij = ΣZ_ij / Σρ_i and its variance Σ(Z_ij - S_ij ρ_i)² / (Σρ_i)²."""
        rho = self.rho[:, None]
        m = self.Z / rho
        variance = self.Z2 - 2 * m * self.Z_rho + m**2 * self.rho2[:, None]
        variance[variance < self._rounding * self.Z2] = 0.0
        return m, self._bessel() * variance / rho**2

    def error(self) -> tuple[float, float]:
        """The PBER 1 - Σ tr Z / ΣN and its variance."""
        return self._mean(self.size - np.trace(self.Z), self.error2, self.error_size)

    def held_out_error(self) -> tuple[float, float]:
        """The share of rows whose label is not argmax p, and its variance."""
        return self._mean(self.miss, self.miss2, self.miss_size)

    def _mean(self, first: float, second: float, cross: float) -> tuple[float, float]:
        m = first / self.size
        variance = second - 2 * m * cross + m**2 * self.size2
        return float(m), self._bessel() * max(variance, 0.0) / self.size**2

    def covariance(self) -> FloatArray | None:
        """Covariance of the upper triangle of B = ΣZ / ΣN, or None when it was not kept."""
        if self._pairs is None:
            return None
        m = self.Z[self._pairs] / self.size
        cross = np.outer(m, self.V_size)
        left = self.V2 - cross - cross.T + self.size2 * np.outer(m, m)
        return np.asarray(self._bessel() * left / self.size**2)

    def _bessel(self) -> float:
        return self.units / (self.units - 1) if self.units > 1 else 1.0


def diagonal(A: FloatArray) -> FloatArray:
    """The diagonal of ``A`` as a view that can be written to."""
    return np.einsum("ii->i", A)


def row_units(P: FloatArray, codes: IntArray | None, votes: FloatArray | None, w: FloatArray) -> Units:
    """Every row as a unit: of labels, of votes, or of posteriors alone."""
    rows, best = np.arange(len(P)), P.argmax(axis=1)
    if votes is not None:
        v = votes.sum(axis=1)
        share = votes / v[:, None]
        paired, pairs = v > 1, w / np.maximum(v * (v - 1), 1)
        a = np.where(paired, -pairs, w)[:, None] * votes
        H, s = np.where(paired[:, None], votes, votes - P), np.where(paired, pairs, -w)
        return Units(a, s, H, w[:, None] * share, w, w * (1 - share[rows, best]))
    if codes is None:
        return Units(np.zeros_like(P), w, P, w[:, None] * P, w, np.zeros(len(P)))
    c = np.zeros_like(P)
    c[rows, codes] = 1.0
    return Units(w[:, None] * c, -w, c - P, w[:, None] * c, w, w * (best != codes))
