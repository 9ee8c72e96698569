"""Merging classes, which needs no retraining: B' = Aᵀ B A with the K×L membership A.

Symbols: K classes, L groups of them, B = diag(priors) S. B is symmetric: its covariance is that of
the K(K+1)/2 entries of the upper triangle, row by row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collidescope._checks import Array, FloatArray


def membership(
    classes: Array, groups: Sequence[Sequence[Any]], names: Sequence[Any] | None
) -> tuple[FloatArray, npt.NDArray[np.str_]]:
    """The K×L 0/1 matrix A of a grouping of class names, and its L names, by first members."""
    labels = classes.tolist()
    numbers = class_numbers(classes, groups, "groups")
    if [] in numbers:
        raise ValueError(
            f"groups must not be empty, group number {numbers.index([])} is"
        )
    grouped = [k for group in numbers for k in group]
    twice = _first_repeated(grouped)
    if twice is not None:
        raise ValueError(
            f"groups must not overlap, class {labels[twice]!r} occurs twice"
        )
    if names is None:
        names = ["+".join(str(labels[k]) for k in sorted(own)) for own in numbers]
    _check_names(names, len(numbers))
    # A class of no group is one of its own.
    alone = [k for k in range(len(labels)) if k not in grouped]
    every = [*numbers, *([k] for k in alone)]
    names = [str(name) for name in (*names, *(labels[k] for k in alone))]
    if len(every) < 2:
        raise ValueError("groups merges every class into one: keep at least 2 groups")
    twice = _first_repeated(names)
    if twice is not None:
        raise ValueError(
            f"names must differ from each other and from the classes left, {twice!r} "
            "occurs twice"
        )
    order = sorted(range(len(every)), key=lambda group: min(every[group]))
    A = np.zeros((len(labels), len(every)))
    for column, group in enumerate(order):
        A[every[group], column] = 1.0
    return A, np.array([names[group] for group in order])


def _check_names(names: object, n_groups: int) -> None:
    if isinstance(names, str) or not isinstance(names, Sequence | np.ndarray):
        raise ValueError(f"names must be a list with one name per group, got {names!r}")
    if len(names) != n_groups:
        raise ValueError(
            f"names must have one entry per group ({n_groups}), got {len(names)}"
        )


def _first_repeated(values: list[Any]) -> Any:
    """The first value that occurs more than once, or None."""
    return next((value for value, times in Counter(values).items() if times > 1), None)


def class_numbers(
    classes: Array, groups: Iterable[Any], argument: str
) -> list[list[int]]:
    """Groups of class numbers from groups of class names, or of these as text."""
    if not _is_list(groups) or not all(map(_is_list, groups)):
        raise ValueError(
            f"{argument} must be a list of lists of class names, got {groups!r}"
        )
    labels = classes.tolist()
    position: dict[Any, int] = {str(label): k for k, label in enumerate(labels)}
    position |= {label: k for k, label in enumerate(labels)}

    def number(name: object) -> int:
        if not isinstance(name, Hashable) or name not in position:
            raise ValueError(
                f"{argument} names the class {name!r}, which is not in classes {labels}"
            )
        return position[name]

    return [[number(name) for name in group] for group in groups]


def _is_list(value: object) -> bool:
    if isinstance(value, str):
        return False
    return isinstance(value, Sequence | set | frozenset | np.ndarray)


def n_pairs(k: int) -> int:
    """Entries of the upper triangle of a k×k matrix."""
    return k * (k + 1) // 2


def merge_covariance(covariance: FloatArray, A: FloatArray) -> FloatArray:
    """Covariance of the upper triangle of Aᵀ B A from that of B (A: K×L, 0/1 membership)."""
    i, j = np.triu_indices(A.shape[0])
    a, b = np.triu_indices(A.shape[1])
    # B'_ab = Σ_{i≤j} T_ij,ab B_ij: off the diagonal an entry stands for B_ij and for B_ji.
    first = A[i]
    second = A[j]
    mirrored = second[:, a] * first[:, b]
    mirrored[i == j] = 0.0
    T = first[:, a] * second[:, b] + mirrored
    return T.T @ covariance @ T


def delta_stderr(B: FloatArray, covariance: FloatArray) -> tuple[FloatArray, float]:
    """Standard errors of S = B / (row sums of B) and of PBER = 1 - tr(B), by the delta method."""
    # place[i, j] = place[j, i]: where B_ij stands in the upper triangle, row by row.
    upper = np.zeros(B.shape, dtype=np.intp)
    upper[np.triu_indices(len(B))] = np.arange(len(covariance))
    place = np.maximum(upper, upper.T)
    C = covariance[place[:, :, None], place[:, None, :]]  # of B_ij and B_il
    rows = B.sum(axis=1, keepdims=True)
    S = B / rows
    # S_ij = B_ij / Σ_l B_il has the gradient (δ_jl - S_ij) / Σ_l B_il in B_il.
    own = np.einsum("ijj->ij", C)
    with_row = C.sum(axis=2)
    of_row = C.sum(axis=(1, 2))[:, None]
    variance = own - 2 * S * with_row + S**2 * of_row
    stderr = np.sqrt(np.maximum(variance, 0.0)) / rows
    diagonal = np.diag(place)
    trace = covariance[np.ix_(diagonal, diagonal)].sum()
    return stderr, float(np.sqrt(max(trace, 0.0)))
