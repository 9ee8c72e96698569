"""What may be merged: groups that must be one, classes kept apart, a hierarchy of parents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Path = tuple[Any, ...]
ROOT: Path = ("all",)


@dataclass(frozen=True)
class Constraints:
    """What may be merged, as class numbers.

    Attributes
    ----------
    together : list of lists
        ``must_merge``.
    apart : bool array of shape (K, K)
        ``cannot_merge``.
    paths : list of K tuples
        ``hierarchy``: the nodes above each class, from the top down; one node above all without a hierarchy.
    """

    together: list[list[int]]
    apart: npt.NDArray[np.bool_]
    paths: list[Path]

    @classmethod
    def parse(cls, classes: npt.NDArray[Any], must_merge: Any, cannot_merge: Any, hierarchy: Any) -> Constraints:
        """The constraints as a caller writes them, by the names of the classes."""
        names = classes.tolist()
        together = _connected(_groups(names, must_merge, "must_merge"))
        apart = np.zeros((len(names), len(names)), dtype=bool)
        for pair in _groups(names, cannot_merge, "cannot_merge"):
            apart[np.ix_(pair, pair)] = True
        np.fill_diagonal(apart, False)
        found = cls(together, apart, _paths(names, hierarchy))
        for group in together:
            inside = np.argwhere(apart[np.ix_(group, group)])
            if len(inside):
                first, second = (names[group[k]] for k in inside[0])
                raise ValueError(f"must_merge joins {first!r} and {second!r}, which cannot_merge keeps apart: drop one")
            if not found.allows(group):
                raise ValueError(
                    f"must_merge joins {[names[k] for k in group]}, which hierarchy keeps apart: "
                    f"join classes under one parent, or all classes of several parents under one node"
                )
        return found

    @cached_property
    def sizes(self) -> Counter[Path]:
        """Classes below each node."""
        return Counter(path[:depth] for path in self.paths for depth in range(1, len(path) + 1))

    def home(self, group: Sequence[int]) -> Path:
        """The lowest node with more classes than the group: groups with the same home may be merged."""
        path = self.paths[group[0]]
        depths = range(len(path), 0, -1)
        # A whole top node has no home to share: None is never part of a path.
        return next((path[:depth] for depth in depths if self.sizes[path[:depth]] > len(group)), (None, path[0]))

    def allows(self, group: Sequence[int]) -> bool:
        """May these classes be one group?

        Below the lowest node that holds them all, a node with some of them must have all its classes among them.
        """
        if self.apart[np.ix_(group, group)].any():
            return False
        paths = [self.paths[k] for k in group]
        depth = 0
        while all(len(path) > depth and path[depth] == paths[0][depth] for path in paths):
            depth += 1
        parts = {path[: depth + 1] for path in paths if len(path) > depth}
        inside = Counter(path[: depth + 1] for path in paths)
        return depth > 0 and all(inside[part] == self.sizes[part] for part in parts)


def _groups(names: list[Any], given: Any, argument: str) -> list[list[int]]:
    """Groups of class numbers from groups of names; a class may be given by its name or by its name as text."""
    position: dict[Any, int] = {str(name): k for k, name in enumerate(names)} | {n: k for k, n in enumerate(names)}
    if given is None:
        return []
    if not _is_list(given) or not all(_is_list(group) for group in given):
        raise ValueError(
            f"{argument} must be a list of groups of class names, got {given!r}: write [('cat', 'dog'), …]"
        )
    found = []
    for group in given:
        unknown = [name for name in group if not isinstance(name, Hashable) or name not in position]
        if unknown:
            raise ValueError(f"{argument} names the class {unknown[0]!r}, which is not in classes {names}")
        numbers = [position[name] for name in group]
        if len(numbers) < 2 or len(set(numbers)) < len(numbers):
            raise ValueError(
                f"{argument} must hold groups of two or more different classes, got {list(group)}: "
                f"drop that group, or write ('cat', 'dog')"
            )
        found.append(numbers)
    return found


def _connected(groups: list[list[int]]) -> list[list[int]]:
    """Groups that share a class made one."""
    merged: list[set[int]] = []
    for group in groups:
        touching = [other for other in merged if other & set(group)]
        merged = [other for other in merged if other not in touching] + [set(group).union(*touching)]
    return [sorted(group) for group in merged]


def _paths(names: list[Any], hierarchy: Any) -> list[Path]:
    if hierarchy is None:
        return [ROOT] * len(names)
    if not isinstance(hierarchy, Mapping):
        raise ValueError(
            f"hierarchy must be a mapping of class to parent, got {hierarchy!r}: write {{'cat': 'animal'}}"
        )
    by_name: dict[Any, Any] = {str(name): parent for name, parent in hierarchy.items()} | dict(hierarchy)
    unknown = [name for name in hierarchy if name not in names and str(name) not in map(str, names)]
    if unknown:
        raise ValueError(f"hierarchy names the class {unknown[0]!r}, which is not in classes {names}")
    paths = []
    for name in names:
        parent = by_name.get(name, by_name.get(str(name)))
        path = tuple(parent) if isinstance(parent, tuple | list) else (parent,)
        if not path or any(part is None or not isinstance(part, Hashable) for part in path):
            raise ValueError(
                f"hierarchy must give every class a parent or a path of them, got {parent!r} for {name!r}: "
                f"a class that stays alone has a parent of its own"
            )
        paths.append(path)
    return paths


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence | set | frozenset | np.ndarray) and not isinstance(value, str)
