"""Merge classes that the data cannot tell apart.

Merging classes with a K×L membership A is exact, ``B' = Aᵀ B A``, so the PBER of every grouping is
known with no retraining. Symbols: W = B + Bᵀ with a diagonal of zeros: merging groups a and b
lowers PBER by the sum of W between them (the *gain*). A *grouping* is an array of K group numbers,
numbered in the order of their first members.

The greedy path merges the two groups with the largest gain, again and again; large groups attract
the rest. ``balance`` β divides the gain by (n_a n_b)^β, with n the number of classes of a group:
1 is the mean collision between classes of the two groups (average linkage).

A class at *chance level* is seen again no more often than its prior: S_kk ≤ π_k. Then y_k(x) does
not vary, B[k, j] = π_k π_j for every j, and merging k with anything lowers PBER as much as it would
without any data. Such merges are marked in the path and in words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from collidescope import _checks as check
from collidescope._checks import Array, ArrayLike, FloatArray, IntArray
from collidescope._text import HTML_CLASSES, LEVEL, TEXT_CLASSES
from collidescope.applications._inputs import (
    BoolArray,
    Ends,
    Interval,
    Notes,
    Result,
    check_matrix,
    linear_error,
)
from collidescope.equations.merging import class_numbers, n_pairs
from collidescope.intervals import level_together
from collidescope.matrix import CollisionMatrix

TIE = 1e-12  #: gains closer than this are equal up to rounding: the pair that comes first is taken
#: in place of the gain of a pair that may not be merged; gains are never negative
FORBIDDEN = -1.0
NAME_WIDTH = 24  #: letters of the name of a group: three columns fit into 80

NameGroups = Sequence[Sequence[Any]] | None
Groups = list[list[int]]  #: as class numbers
Groupings = npt.NDArray[np.integer]


@dataclass(frozen=True, eq=False, repr=False)
class ConsolidationPlan(
    Result, title="Which classes to merge", rows=(TEXT_CLASSES, HTML_CLASSES)
):
    """Which classes become one, what is gained, and every other step of the path.

    Made by :func:`consolidate`. ``groups`` are lists of class names, ``matrix`` is S of them (named
    "4+9", with intervals where ``source``, S of the classes, has a covariance). ``path`` has one
    row per step: ``step``, ``n_groups``, ``first`` and ``second`` (the groups merged), ``pber``
    with ``pber_low`` and ``pber_high`` (95%), ``gain`` (PBER removed), ``price`` (PBER above that
    of the plain greedy path with as many groups) and ``chance`` (a group of the step is at chance
    level). It ends at one group, or where the constraints end it; ``groupings`` has the group
    number of every class at each of its steps. ``linkage`` is the tree for
    :func:`scipy.cluster.hierarchy.dendrogram`, with the PBER removed so far as heights and with
    merges that the constraints forbid at its end.
    """

    groups: list[list[Any]]
    matrix: CollisionMatrix
    path: pd.DataFrame
    linkage: FloatArray
    groupings: Groupings
    source: CollisionMatrix
    notes: Notes = ()
    #: first members of the groups of every merge
    _pairs: Sequence[tuple[int, int]] = ()

    @property
    def n_groups(self) -> int:
        """Groups, those of one class included."""
        return len(self.groups)

    @property
    def mapping(self) -> dict[Any, str]:
        """Class → name of its group."""
        merged = zip(self.groups, self.matrix.classes.tolist(), strict=True)
        return {name: group for members, group in merged for name in members}

    def save_mapping(self, path: str | Path) -> None:
        """Write :attr:`mapping` as ``.json`` ({class: group}) or ``.csv`` (class, group)."""
        file = Path(path)
        kind = file.suffix.lower()
        if kind == ".json":
            named = {str(name): group for name, group in self.mapping.items()}
            line = f"{json.dumps(named, ensure_ascii=False, indent=1)}\n"
            file.write_text(line, encoding="utf-8")
        elif kind == ".csv":
            table = pd.DataFrame(self.mapping.items(), columns=["class", "group"])
            table.to_csv(file, index=False)
        else:
            raise ValueError(f"path must end in .json or .csv, got {file.name!r}")

    def at(
        self, n_groups: int, names: Sequence[Any] | None = None
    ) -> ConsolidationPlan:
        """The plan with another number of groups along the same path.

        ``names`` has one name per group; default "A+B", long ones cut: "A+B+… (12)".
        """
        check.check_count(n_groups, "n_groups", least=2)
        steps = self.path["n_groups"].tolist()
        if n_groups not in steps:
            why = f"there are {steps[0]} groups before the first step"
            if n_groups < steps[-1]:
                why = f"the constraints keep {steps[-1]} groups apart"
            raise ValueError(
                f"n_groups must be from {max(steps[-1], 2)} to {steps[0]} here, got "
                f"{n_groups}: {why}"
            )
        step = steps.index(n_groups)
        grouping = self.groupings[step]
        groups = [self.source.classes[grouping == g].tolist() for g in range(n_groups)]
        if names is None:
            names = _default_names(groups)
        matrix = self.source.merge(groups, names)
        if len(groups) == self.source.n_classes:
            # Nothing merged: errors that are known without a covariance stay.
            matrix = replace(self.source, classes=matrix.classes)
        notes = self._chance_notes(step)
        return replace(self, groups=groups, matrix=matrix, notes=notes)

    def _chance_notes(self, step: int) -> Notes:
        merged = self.path.iloc[1 : step + 1]
        at_chance = merged[merged["chance"]]
        if at_chance.empty:
            return ()
        first = "{first} with {second}".format_map(at_chance.iloc[0])
        which = f"{len(at_chance)} of {len(merged)} merges, such as {first}, join"
        if len(at_chance) == 1:
            which = f"Merging {first} joins"
        return (
            (
                f"{which} a class that is recognised no better than by chance: look for "
                "better columns or more rows before you merge."
            ),
        )

    def transform(self, y: ArrayLike | pd.Series) -> Any:
        """Labels → names of their groups: an array of text, or a Series for a Series."""
        group_of = self.mapping
        classes = self.source.classes
        names = np.array([group_of[name] for name in classes.tolist()])
        merged = names[check.encode_labels(y, classes)]
        if isinstance(y, pd.Series):
            return pd.Series(merged, y.index, name=y.name)
        return merged

    @property
    def verdict(self) -> str:
        step: Any = self.path.set_index("n_groups").loc[self.n_groups]
        chosen = _with_interval(self.matrix.pber, (step["pber_low"], step["pber_high"]))
        before = _with_interval(self.source.pber, self.source.pber_interval(LEVEL))
        words = (
            f"{self.source.n_classes} classes in {self.n_groups} groups. If labelled again, "
            f"{chosen} of the inputs would be in another group, and {before} in another class. "
            "[PBER]"
        )
        if step["price"] > TIE:
            words += (
                f" Merging by gain alone would leave {self.matrix.pber - step['price']:.2%}, "
                "in less even groups."
            )
        return words

    def _shown(self, most: int | None) -> pd.DataFrame:
        """The groups, largest first, as many as ``most``, and the others as one line."""
        columns = {
            "group": self.matrix.classes,
            "classes": [len(group) for group in self.groups],
            "prior": self.matrix.priors,
            "seen again in it": self.matrix.recall(),
        }
        table = pd.DataFrame(columns).sort_values(
            "classes", ascending=False, kind="stable"
        )
        left = table.iloc[most:]
        if not len(left):
            return table
        again = np.average(left["seen again in it"], weights=left["prior"])
        rest = [
            f"({len(left)} more)",
            left["classes"].sum(),
            left["prior"].sum(),
            again,
        ]
        last = pd.DataFrame([rest], columns=table.columns)
        return pd.concat([table.iloc[:most], last])


class _Path(NamedTuple):
    """Groupings and their PBER, most groups first."""

    groupings: Groupings
    pber: FloatArray
    pairs: Sequence[tuple[int, int]]  #: first members of the groups merged
    linkage: FloatArray  #: the tree

    @property
    def n_groups(self) -> IntArray:
        return self.groupings.max(axis=1).astype(np.intp) + 1


@dataclass(frozen=True)
class _Constraints:
    """What may be merged, as class numbers."""

    together: Groups  #: groups that are merged before the first step
    apart: BoolArray  #: K×K, pairs that stay apart
    most: int  #: classes of a group
    #: of the classes in their order: only neighbours may be merged
    places: IntArray | None = None

    def allow(self, group: IntArray) -> bool:
        """May these classes be one group?"""
        if len(group) > self.most or self.apart[np.ix_(group, group)].any():
            return False
        return self.places is None or _is_run(self.places[group])


def _is_run(places: IntArray) -> bool:
    return len(places) == places.max() - places.min() + 1


def consolidate(
    cm: CollisionMatrix,
    n_groups: int | None = None,
    *,
    max_pber: float | None = None,
    max_group_size: int | None = None,
    balance: float = 0.0,
    must_merge: NameGroups = None,
    cannot_merge: NameGroups = None,
    ordered: bool | Sequence[Any] = False,
    names: Sequence[Any] | None = None,
) -> ConsolidationPlan:
    """Merge the classes that collide most, until few are left or the rest can be told apart.

    Exact given S; the choice of the groups saw the estimate, so the PBER of a *chosen* grouping of
    a noisy matrix is a little too low. The upper ends along the path allow for the choice.

    Parameters
    ----------
    cm : CollisionMatrix
    n_groups, max_pber : int, float; merge until so few groups or this PBER
        With neither take ``plan.at(n)`` later.
    max_group_size : int, optional; the most classes that a group may have
    balance : float from 0, which merges by gain alone, to 1, by the mean collision of two groups
        Above 0 groups have more similar sizes, at a ``price``.
    must_merge, cannot_merge : lists of groups of class names
        The first are merged before the first step; of the second no two are ever in one group.
    ordered : bool, or the classes in their order (grades, stages): only neighbours are merged
    names : see :meth:`ConsolidationPlan.at`

    Examples
    --------
    >>> S = [
    ...     [0.7, 0.2, 0.1, 0.0],
    ...     [0.2, 0.8, 0.0, 0.0],
    ...     [0.1, 0.0, 0.6, 0.3],
    ...     [0.0, 0.0, 0.3, 0.7],
    ... ]
    >>> cm = CollisionMatrix(S, classes=["cat", "dog", "car", "van"])
    >>> plan = consolidate(cm, n_groups=2)
    >>> plan.groups
    [['cat', 'dog'], ['car', 'van']]
    >>> plan.path[["n_groups", "first", "second", "pber"]].round(3).iloc[
    ...     1:
    ... ].to_numpy().tolist()
    [[3, 'car', 'van', 0.15], [2, 'cat', 'dog', 0.05], [1, 'cat+dog', 'car+van', 0.0]]
    >>> plan.transform(["van", "dog"]).tolist()
    ['car+van', 'cat+dog']
    """
    check_matrix(cm)
    _check_targets(n_groups, max_pber, balance)
    most = cm.n_classes
    if max_group_size is not None:
        most = check.check_count(max_group_size, "max_group_size", least=2)
    places = _places(cm.classes, ordered)
    rules = _constraints(cm.classes, must_merge, cannot_merge, most, places)
    W = cm.joint + cm.joint.T
    np.fill_diagonal(W, 0.0)
    found = _greedy(W, rules, balance)
    if found.groupings[0].max() < 1:
        raise ValueError(
            "must_merge joins every class into one: keep at least 2 groups"
        )
    plain = found
    if balance or most < cm.n_classes:
        plain = _greedy(W, replace(rules, most=cm.n_classes))
    path = _path_table(cm, found, plain)
    plan = ConsolidationPlan(
        [], cm, path, found.linkage, found.groupings, cm, _pairs=found.pairs
    )
    if n_groups is None:
        n_groups = _most_groups(path, max_pber)
    return plan.at(n_groups, names)


def _check_targets(
    n_groups: int | None, max_pber: float | None, balance: float
) -> None:
    if n_groups is not None and max_pber is not None:
        raise ValueError(
            f"give n_groups or max_pber, not both, got {n_groups!r} and {max_pber!r}"
        )
    if max_pber is not None and check.check_at_least(max_pber, 0, "max_pber") > 1:
        raise ValueError(
            f"max_pber must be between 0 and 1, got {max_pber!r} (a percentage? divide "
            "by 100)"
        )
    if check.check_at_least(balance, 0, "balance") > 1:
        raise ValueError(
            "balance must be between 0 (by gain alone) and 1 (mean collision), got "
            f"{balance!r}"
        )


def _most_groups(path: pd.DataFrame, max_pber: float | None) -> int:
    """The most groups with at most this PBER."""
    several = path[path["n_groups"] >= 2]
    if max_pber is None:
        return int(several["n_groups"].iloc[0])
    enough = several[several["pber"] <= max_pber + TIE]
    if enough.empty:
        last = several.iloc[-1]
        raise ValueError(
            f"max_pber={max_pber:g} is out of reach with 2 groups or more: "
            f"{last['n_groups']} groups still have {last['pber']:.4g}; allow more, or "
            "loosen the constraints"
        )
    return int(enough["n_groups"].iloc[0])


def group_name(members: Sequence[Any]) -> str:
    """Members joined by "+", or where that is too long their first ones: "A+B+… (12)"."""
    names = [str(name) for name in members]
    whole = "+".join(names)
    if len(names) < 2 or len(whole) <= NAME_WIDTH:
        return whole
    short = whole
    for kept in range(len(names) - 1, 0, -1):
        short = "+".join([*names[:kept], f"… ({len(names)})"])
        if len(short) <= NAME_WIDTH:
            break
    return short


def _default_names(groups: list[list[Any]]) -> list[str]:
    """A name that is taken ("a+b" may be a class) gets a number. Single classes come first."""
    names = [group_name(group) for group in groups]
    taken: set[str] = set()
    for g in sorted(range(len(groups)), key=lambda g: len(groups[g]) > 1):
        plain = names[g]
        numbered = count(2)
        while names[g] in taken:
            names[g] = f"{plain} ({next(numbered)})"
        taken.add(names[g])
    return names


def _with_interval(pber: float, interval: Interval | None) -> str:
    if interval is None or np.isnan(interval[0]):
        return f"{pber:.2%}"
    return f"{pber:.2%} (95% interval {interval[0]:.2%} to {interval[1]:.2%})"


def _constraints(
    classes: Array,
    must_merge: NameGroups,
    cannot_merge: NameGroups,
    most: int,
    places: IntArray | None,
) -> _Constraints:
    names = classes.tolist()
    together = _joined(_groups(classes, must_merge, "must_merge"))
    apart = np.zeros((len(names), len(names)), dtype=bool)
    for members in _groups(classes, cannot_merge, "cannot_merge"):
        apart[np.ix_(members, members)] = True
    np.fill_diagonal(apart, False)
    for group in together:
        joined = [names[g] for g in group]
        for i, j in np.argwhere(apart[np.ix_(group, group)]):
            raise ValueError(
                f"must_merge joins {joined[i]!r} and {joined[j]!r}, which cannot_merge "
                "keeps apart: drop one"
            )
        if len(group) > most:
            raise ValueError(
                f"must_merge joins {len(group)} classes, max_group_size allows {most}"
            )
        if places is not None and not _is_run(places[group]):
            raise ValueError(
                f"must_merge joins {joined}, which are no neighbours: ordered=False?"
            )
    return _Constraints(together, apart, most, places)


def _joined(groups: Groups) -> Groups:
    """Groups that share a class become one."""
    found: Groups = []
    for group in groups:
        touching = [other for other in found if set(other) & set(group)]
        found = [other for other in found if other not in touching]
        found.append(sorted(set(group).union(*touching)))
    return found


def _places(classes: Array, ordered: bool | Sequence[Any]) -> IntArray | None:
    """The place of every class in the order of all, or None where they have none."""
    k = len(classes)
    if isinstance(ordered, bool):
        return np.arange(k) if ordered else None
    order = class_numbers(classes, [list(ordered)], "ordered")[0]
    if sorted(order) != list(range(k)):
        raise ValueError(
            f"ordered must name each of the classes {classes.tolist()} once, got {ordered!r}"
        )
    return np.argsort(order)


def _groups(classes: Array, given: NameGroups, argument: str) -> Groups:
    found = class_numbers(classes, given or [], argument)
    for group in found:
        different = len(set(group))
        if len(group) < 2 or different < len(group):
            names = classes[group].tolist()
            raise ValueError(
                f"{argument} must hold groups of two or more classes, got {names}"
            )
    return found


class _Tree:
    """Groups that are merged two at a time; a group is known by its first member."""

    def __init__(self, W: FloatArray) -> None:
        k = len(W)
        self.W = W.copy()  #: gains between groups
        self.first = np.arange(k)  #: first member of the group of every class
        self.size = np.ones(k)  #: classes of a group, 0 for those merged into another
        self.node = np.arange(k)  #: number of the group in the linkage
        self.pairs: list[tuple[int, int]] = []
        self.gains: list[float] = []
        self.groupings = [self.first.copy()]
        self.linkage = np.empty((k - 1, 4))

    def merge(self, a: int, b: int) -> None:
        self.gains.append(float(self.W[a, b]))
        self.size[a] += self.size[b]
        self.size[b] = 0
        # As scipy writes it: two clusters, the PBER removed so far (never falling), the classes.
        step = len(self.pairs)
        nodes = sorted((self.node[a], self.node[b]))
        self.linkage[step] = [*nodes, sum(self.gains), self.size[a]]
        self.node[a] = len(self.W) + step
        self.pairs.append((a, b))
        # Gains between groups add up. Row b stays: a group of size 0 takes no further part.
        self.W[a] += self.W[b]
        self.W[:, a] += self.W[:, b]
        self.first[self.first == b] = a
        self.groupings.append(np.unique(self.first, return_inverse=True)[1])

    def merge_all(self, allowed: Callable[[IntArray], bool], balance: float) -> None:
        """Merge the two groups with the best score, again and again: O(K²) each time."""
        scores = np.array(
            [self.scores_of(group, balance) for group in range(len(self.W))]
        )
        while scores.max() > FORBIDDEN:
            # Scores are symmetric, so the first of the best has a < b: a remains the first member.
            best = int((scores >= scores.max() - TIE).argmax())
            a, b = divmod(best, len(self.W))
            in_either = (self.first == a) | (self.first == b)
            if not allowed(np.flatnonzero(in_either)):
                scores[[a, b], [b, a]] = FORBIDDEN
                continue
            self.merge(a, b)
            scores[b] = FORBIDDEN
            scores[:, b] = FORBIDDEN
            scores[a] = self.scores_of(a, balance)
            scores[:, a] = scores[a]

    def scores_of(self, a: int, balance: float) -> FloatArray:
        """Scores of merging group a with others: with ``balance`` 1 the gain per class pair."""
        pairs = self.size * self.size[a]
        scores = self.W[a] / np.maximum(pairs, 1) ** balance
        scores[pairs == 0] = FORBIDDEN
        scores[a] = FORBIDDEN
        return scores


def _greedy(W: FloatArray, rules: _Constraints, balance: float = 0.0) -> _Path:
    """Merges that the constraints forbid complete the tree and belong to no plan."""
    tree = _Tree(W)
    for first, *others in rules.together:
        for other in others:
            tree.merge(first, other)
    n_forced = len(tree.pairs)
    tree.merge_all(rules.allow, balance)
    n_allowed = len(tree.pairs)
    tree.merge_all(lambda group: True, 0.0)  # the rest of the tree, by gain
    # What later merges will remove: a sum of non-negative terms, exactly zero when all is one.
    removed = np.cumsum(tree.gains[::-1])
    left = np.append(removed[::-1], 0.0)
    steps = slice(n_forced, n_allowed + 1)
    groupings = np.array(tree.groupings[steps], dtype=np.min_scalar_type(len(W)))
    return _Path(groupings, left[steps], tree.pairs[n_forced:n_allowed], tree.linkage)


def _path_table(cm: CollisionMatrix, found: _Path, plain: _Path) -> pd.DataFrame:
    n_groups = found.n_groups
    low, high = _ends(cm, found)
    first, second, chance = _merged_names(cm, found)
    by_gain = pd.Series(plain.pber, plain.n_groups)
    columns = {
        "step": np.arange(len(n_groups)),
        "n_groups": n_groups,
        "first": first,
        "second": second,
        "pber": found.pber,
        "pber_low": low,
        "pber_high": high,
        "gain": np.append(0.0, -np.diff(found.pber)),
        "price": found.pber - by_gain.reindex(n_groups).to_numpy(),
        "chance": chance,
    }
    return pd.DataFrame(columns)


def _ends(cm: CollisionMatrix, found: _Path) -> Ends:
    """The interval of the PBER of every grouping; nan where that would need a covariance.

    A grouping is chosen because its PBER is low: see :func:`level_of_choice`.
    """
    k = cm.n_classes
    # That one group never errs is known.
    low = np.where(found.n_groups == 1, found.pber, np.nan)
    high = low.copy()
    errors = _standard_errors(cm, found.groupings)
    for step in np.flatnonzero(np.isnan(low) & ~np.isnan(errors)):
        pber = found.pber[step]
        stderr = errors[step]
        shares: Any = np.bincount(found.groupings[step], cm.priors)
        of_best = level_of_choice(LEVEL, k, k - int(found.n_groups[step]))
        low[step], _ = cm._pber_ends(pber, stderr, shares, LEVEL)
        _, high[step] = cm._pber_ends(pber, stderr, shares, of_best)
    # What allows for the choice may be wider than what a merge took off: the end of a finer
    # grouping holds for a coarser one.
    return low, np.minimum.accumulate(high)


def level_of_choice(level: float, n_classes: int, merges: int) -> float:
    """The level at which an interval of the best of all groupings holds at ``level``.

    One merge is the best of all pairs (Bonferroni). Several were chosen one after the other among
    sums of pairs, which vary together: where all classes are alike, and only noise is chosen,
    allowing for the square of the number of pairs is enough (``studies/grid.py``).
    """
    choices = n_pairs(n_classes - 1) ** min(merges, 2)
    return level_together(level, choices)


def _standard_errors(cm: CollisionMatrix, groupings: Groupings) -> FloatArray:
    k = cm.n_classes
    stderr = np.full(len(groupings), np.nan)
    if cm.covariance is not None:
        i, j = np.triu_indices(k)
        # PBER = 1 - v·B, over the upper triangle of B.
        for step, grouping in enumerate(groupings):
            v = np.where(i == j, 1.0, 2.0 * (grouping[i] == grouping[j]))
            stderr[step] = linear_error(v, cm.covariance)
    elif cm.pber_stderr is not None and groupings[0].max() + 1 == k:
        stderr[0] = cm.pber_stderr
    return stderr


def at_chance_level(cm: CollisionMatrix) -> BoolArray:
    """Which classes are recognised no better than by chance: S_kk not above π_k.

    Where S has errors, not above it with 95% confidence.
    """
    interval = cm.interval(LEVEL)
    lowest = cm.matrix if interval is None else interval[0]
    return np.diag(lowest) <= cm.priors


def _merged_names(cm: CollisionMatrix, found: _Path) -> tuple[Array, Array, BoolArray]:
    """(first group, second group, is one of them at chance level?) of every step of a path."""
    steps = len(found.groupings)
    first = np.full(steps, None)
    second = np.full(steps, None)
    chance = np.zeros(steps, dtype=bool)
    lost = at_chance_level(cm)
    for step, (a, b) in enumerate(found.pairs, start=1):
        before = found.groupings[step - 1]
        in_first = before == before[a]
        in_second = before == before[b]
        first[step] = group_name(cm.classes[in_first])
        second[step] = group_name(cm.classes[in_second])
        chance[step] = lost[in_first].all() or lost[in_second].all()
    return first, second, chance
