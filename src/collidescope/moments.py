"""Sums over independent units that tell a collision matrix and its variance, in one pass and in any order.

A unit u (a row; a group of equal inputs when counting) brings a matrix Z = diag(a) + s h hᵀ with row sums ρ and size N;
S = ΣZ_ij / Σρ_i. :class:`Moments` keeps the sums such ratios need for their value and their variance: O(K²) numbers,
plus those behind the covariance of B for up to ``MAX_COVARIANCE_CLASSES`` classes (at most 2 MB), which merged classes
need for their intervals.

Rows with a label (:meth:`Moments.add_labelled`) have Z = w (diag(c) - r rᵀ) with r = c - p. Two products of K² a row
remain, Σ w r rᵀ and Σ w² (r r)(r r)ᵀ; all else has one entry of c a row and costs K.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from collidescope._checks import FloatArray, IntArray
from collidescope._merging import n_pairs

MAX_COVARIANCE_CLASSES = 32
#: Working memory of one block of rows, in numbers, and the rows that a block has at least: a product of few rows waits
#: for the K² numbers it is added to.
BLOCK_NUMBERS = 2_000_000
LEAST_ROWS = 4096
#: Entries other than zero below which a sparse product is the faster one.
SPARSE_SHARE = 0.05
#: A variance below this share of the second moment it is the difference of is rounding, not variance.
VARIANCE_ROUNDING = 1e-14
#: From this many classes on the products of a block are taken in float32 and the blocks added up in float64. Rounding
#: is a share ε of Σ|x|, and Σ|x| ≤ √n √(Σ x²), so that a sum over n rows is off by less than ε √n standard errors; with
#: ε near 1e-7 that is nothing for any n that fits a disk.
SINGLE_CLASSES = 128
#: Weights that differ by more than this are left in float64, and what is smaller than this is 0 in float32, where
#: products of smaller numbers are slow and then lost.
SINGLE_WEIGHTS, SINGLE_SMALLEST = 1e-4, 1e-18
SINGLE_ROUNDING = 1e-6


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
        self._rounding = VARIANCE_ROUNDING

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
            new |= self._triangle(s, H, a, N)
        self._gather(new)

    def add_labelled(self, P: npt.NDArray[Any], codes: IntArray, w: FloatArray, word: bool = False) -> None:
        """Add rows with labels: posteriors n×K (float64 or float32), class numbers and weights.

        ``word`` also keeps what the mean of p pᵀ, its difference from the estimate and the Gramian need.
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
        new: dict[str, Any] = {
            "units": float(n),
            "N": w.sum(),
            "NN": w @ w,
            "Z": -(root.T @ root),
            "Zρ": onto(-(w**2) * away) @ r,
            "ρ": by_class(w),
            "ρρ": by_class(w**2),
        }
        if word:
            new["cr"] = onto(w) @ r
        if self._pairs is not None:
            c = np.zeros((n, k))
            c[rows, codes] = w
            new |= self._triangle(-w, r, c, w)
        del root
        r *= r
        if not even:
            r *= weights
        if single:
            r[r < SINGLE_SMALLEST] = 0
        e = r.sum(axis=1, dtype=np.float64)
        new |= {"ZZ": r.T @ r, "ee": e @ e, "eN": e @ w}
        if word:
            new["crr"] = onto(w * (3 - 4 * own)) @ r
            new |= {"hh": by_class((w * away) ** 2), "pp": by_class(w * e + w**2 * (2 * own - 1))}
        self._gather(new)
        # On the diagonals, and there in float64, what c adds.
        diagonals = {"Z": by_class(w), "ZZ": by_class(w**2 * (1 - 2 * away**2)), "Zρ": by_class(w**2)}
        for name, values in diagonals.items():
            np.einsum("ii->i", self.sums[name])[:] += values
        if word:
            self._gather({"ZZ of c": diagonals["ZZ"]})

    def _triangle(self, s: FloatArray, H: npt.NDArray[Any], a: FloatArray, N: FloatArray) -> dict[str, Any]:
        i, j = self._pairs if self._pairs is not None else np.triu_indices(0)
        V = s[:, None] * H[:, i] * H[:, j]
        V[:, i == j] += a
        return {"V": V.sum(axis=0), "VN": V.T @ N, "VV": V.T @ V}

    def _gather(self, new: Mapping[str, Any]) -> None:
        for name, value in new.items():
            held = self.sums.get(name)
            if isinstance(held, np.ndarray):
                held += value
            elif held is None:
                self.sums[name] = np.array(value, dtype=np.float64)
            else:
                self.sums[name] = held + value

    def merge(self, other: Moments) -> None:
        """Add the sums of another part of the data."""
        self._gather(other.sums)
        self._rounding = max(self._rounding, other._rounding)

    def _bessel(self) -> float:
        units = self.sums["units"]
        return float(units / (units - 1)) if units > 1 else 1.0

    def ratio(self) -> tuple[FloatArray, FloatArray]:
        """ΣZ_ij / Σρ_i and its variance Σ(Z_ij - ratio ρ_i)² / (Σρ_i)²."""
        t = self.sums
        rho = t["ρ"][:, None]
        m = t["Z"] / rho
        variance = t["ZZ"] - 2 * m * t["Zρ"] + m**2 * t["ρρ"][:, None]
        variance[variance < self._rounding * t["ZZ"]] = 0.0
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
    size = max(1 if keeps_covariance(n_classes) else LEAST_ROWS, BLOCK_NUMBERS // width)
    return [slice(start, start + size) for start in range(0, n_rows, size)]
