"""Merging classes: who belongs where, and what becomes of the covariance of the upper triangle of B (row by row)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collidescope._checks import FloatArray


def membership(
    classes: npt.NDArray[Any], groups: Sequence[Sequence[Any]], names: Sequence[Any] | None
) -> tuple[FloatArray, npt.NDArray[np.str_]]:
    """The K×L 0/1 matrix A of a grouping and its L names; a group stands where its first member stood.

    A class may be given by its name or by its name as text.
    """
    labels = classes.tolist()
    position: dict[Any, int] = {str(label): k for k, label in enumerate(labels)}
    position |= {label: k for k, label in enumerate(labels)}
    if not _is_list(groups) or not all(_is_list(group) for group in groups):
        raise ValueError(f"groups must be a list of lists of class names, got {groups!r}")
    if names is not None and not _is_list(names):
        raise ValueError(f"names must be a list with one name per group, got {names!r}")
    if names is not None and len(names) != len(groups):
        raise ValueError(f"names must have one entry per group ({len(groups)}), got {len(names)}")
    group_of: dict[int, int] = {}
    for g, group in enumerate(groups):
        if len(group) == 0:
            raise ValueError(f"groups must not be empty, group number {g} is")
        for name in group:
            if not isinstance(name, Hashable) or name not in position:
                raise ValueError(f"groups names the class {name!r}, which is not in classes {labels}")
            if position[name] in group_of:
                raise ValueError(f"groups must not overlap, class {name!r} occurs twice")
            group_of[position[name]] = g
    members: dict[int, list[int]] = {}  # insertion order is the order of first members
    for k in range(len(labels)):
        members.setdefault(group_of.get(k, -1 - k), []).append(k)
    if len(members) < 2:
        raise ValueError("groups merges every class into one: keep at least 2 groups")
    A = np.zeros((len(labels), len(members)))
    merged: list[str] = []
    for column, (g, own) in enumerate(members.items()):
        A[own, column] = 1
        merged.append(str(names[g]) if names is not None and g >= 0 else "+".join(str(labels[k]) for k in own))
    if len(set(merged)) < len(merged):
        twice = next(name for name in merged if merged.count(name) > 1)
        raise ValueError(f"names must differ from each other and from the classes left, {twice!r} occurs twice")
    return A, np.array(merged)


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)


def n_pairs(k: int) -> int:
    """Entries of the upper triangle of a k×k matrix."""
    return k * (k + 1) // 2


def merge_covariance(covariance: FloatArray, A: FloatArray) -> FloatArray:
    """Covariance of the upper triangle of Aᵀ B A from that of B (A: K×L, 0/1 membership)."""
    i, j = np.triu_indices(A.shape[0])
    a, b = np.triu_indices(A.shape[1])
    T = A[np.ix_(i, a)] * A[np.ix_(j, b)]
    T += np.where((i != j)[:, None], A[np.ix_(j, a)] * A[np.ix_(i, b)], 0.0)
    return T.T @ covariance @ T


def delta_stderr(B: FloatArray, covariance: FloatArray) -> tuple[FloatArray, float]:
    """Standard errors of S = B / (row sums of B) and of PBER = 1 - tr(B), by the delta method."""
    k = B.shape[0]
    place = np.zeros((k, k), dtype=np.intp)
    place[np.triu_indices(k)] = np.arange(n_pairs(k))
    place = np.maximum(place, place.T)
    variance = np.empty((k, k))
    for i in range(k):
        C = covariance[np.ix_(place[i], place[i])]
        s = B[i] / B[i].sum()
        variance[i] = (np.diag(C) - 2 * s * C.sum(axis=1) + s**2 * C.sum()) / B[i].sum() ** 2
    trace = covariance[np.ix_(np.diag(place), np.diag(place))].sum()
    return np.sqrt(np.maximum(variance, 0.0)), float(np.sqrt(max(trace, 0.0)))
