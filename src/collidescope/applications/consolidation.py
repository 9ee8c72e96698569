"""Merge classes, or split one: which classes the data cannot tell apart, and which class is two.

Merging classes with a K×L membership A is exact, ``B' = Aᵀ B A``, so the PBER of every grouping is known with no
retraining. Symbols: W = B + Bᵀ with a diagonal of zeros: merging groups a and b lowers PBER by the sum of W between
them (the *gain*). A *grouping* is an array of K group numbers, numbered in the order of their first members.

The greedy path merges the two groups with the largest gain, again and again; large groups attract the rest. ``balance``
β divides the gain by (n_a n_b)^β, with n the number of classes of a group: 1 is the mean collision between classes of
the two groups (average linkage).

A class that is two has inputs in separate groups that collide with different classes a and b: the contrast t =
log p_a - log p_b of the held-out posteriors of its rows then has two modes, where a class that is one group has one.
Silverman's test (1981): the smallest bandwidth h at which the kernel density of t has one mode is large when there are
two. Its null distribution comes from the same sample, smoothed with that h: any shape with one mode is the null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, count
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.ndimage import gaussian_filter1d
from scipy.signal import find_peaks

from collidescope import _checks as check
from collidescope._checks import Array, ArrayLike, FloatArray, IntArray
from collidescope._text import HTML_CLASSES, LEVEL, TEXT_CLASSES
from collidescope.applications._inputs import (
    Names,
    Told,
    check_matrix,
    check_rates,
    discovered,
    scored,
)
from collidescope.intervals import brier_interval
from collidescope.matrix import CollisionMatrix, class_numbers

TIE = 1e-12  #: gains closer than this are equal up to rounding: the pair that comes first is taken, on every machine
FORBIDDEN = (
    -1.0
)  #: in place of the gain of a pair that may not be merged; true gains are never negative
OPTIMAL_CLASSES = 10  #: every grouping of so many is looked at within a second (115,975 of them; 4 million for 12)
NAME_WIDTH = 24  #: letters of the name of a group: three columns of names and numbers fit into 80
BINS, RESAMPLES = (
    256,
    199,
)  #: splits: the grid of the kernel density, samples from the null (p-values down to 0.005)
MIN_ROWS, MIN_PART = (
    60,
    10,
)  #: fewest rows of a class, and of a part, about which something is claimed
MIN_RATE = 0.02  #: least mean posterior of "its" class in a part: parts that hardly collide need not be told apart
OTHERS = 3  #: the classes that class k collides with most are paired with each other
#: Changes of a density below this share of its largest value are rounding; classes below this posterior hardly collide.
FLAT, SMALLEST = 1e-9, 1e-6
NEVER = 1e-60  #: for the logarithm of 0: where posteriors are cut their contrast piles up, which looks like a mode

GroupNames = Sequence[Any] | Callable[[list[Any]], Any] | None
Groupings = npt.NDArray[np.integer]
Allows = Callable[[IntArray], bool]
#: Groupings and their PBER, most groups first; of a tree also the first members of the groups merged, and the tree.
Search = tuple[Groupings, FloatArray, Sequence[tuple[int, int]], FloatArray | None]


@dataclass(frozen=True, eq=False, repr=False)
class ConsolidationPlan(Told, title="Which classes to merge", rows=(TEXT_CLASSES, HTML_CLASSES)):
    """Which classes become one, what is gained by it, and every other step of the same path (:func:`consolidate`).

    ``groups`` are lists of class names, ``matrix`` is S of them (named "4+9", with intervals where ``source``, S of the
    classes, has a covariance). ``path`` has one row per step: ``step``, ``n_groups``, ``first`` and ``second`` (the
    groups merged), ``pber`` with ``pber_low`` and ``pber_high`` (95%), ``gain`` (PBER removed) and ``price``: PBER
    above that of the plain greedy path with as many groups. It ends at one group, or where the constraints end it;
    ``groupings`` has the group number of every class at each of its steps. ``linkage`` is the tree for
    :func:`scipy.cluster.hierarchy.dendrogram`, with the PBER removed so far as heights and with merges that the
    constraints forbid at its end; None with ``method="optimal"``, whose steps need not nest.
    """

    groups: list[list[Any]]
    matrix: CollisionMatrix
    path: pd.DataFrame
    linkage: FloatArray | None
    groupings: Groupings
    source: CollisionMatrix

    @property
    def n_groups(self) -> int:
        """Groups, those of one class included."""
        return len(self.groups)

    @property
    def mapping(self) -> dict[Any, str]:
        """Class → name of its group."""
        named = zip(self.groups, self.matrix.classes.tolist(), strict=True)
        return {name: merged for group, merged in named for name in group}

    def at(self, n_groups: int, names: GroupNames = None) -> ConsolidationPlan:
        """The plan with another number of groups along the same path.

        ``names`` has one name per group, or makes one from its members; default "A+B", long ones cut: "A+B+… (12)".
        """
        check.check_count(n_groups, "n_groups", least=2)
        steps = self.path["n_groups"].tolist()
        if n_groups not in steps:
            why = f"there are {steps[0]} groups before the first step"
            why = f"the constraints keep {steps[-1]} groups apart" if n_groups < steps[-1] else why
            raise ValueError(
                f"n_groups must be from {max(steps[-1], 2)} to {steps[0]} here, got {n_groups}: {why}"
            )
        grouping = self.groupings[steps.index(n_groups)]
        groups = [
            self.source.classes[grouping == g].tolist() for g in range(int(grouping.max()) + 1)
        ]
        named = [names(list(group)) for group in groups] if callable(names) else names
        matrix = self.source.merge(groups, _default_names(groups) if named is None else named)
        if (
            len(groups) == self.source.n_classes
        ):  # nothing merged: errors that are known without a covariance stay
            matrix = replace(self.source, classes=matrix.classes)
        return replace(self, groups=groups, matrix=matrix)

    def transform(self, y: Any) -> Any:
        """Labels → names of their groups: an array of text, or a Series with its index for a Series."""
        names = np.array(list(map(self.mapping.get, self.source.classes.tolist())))
        merged = names[check.encode_labels(y, self.source.classes)]
        return pd.Series(merged, y.index, name=y.name) if isinstance(y, pd.Series) else merged

    @property
    def verdict(self) -> str:
        groups = f"{self.source.n_classes} classes in {self.n_groups} groups."
        merged, apart = _with_interval(self.matrix), _with_interval(self.source)
        again = (
            f"falls into another group with probability {merged}, into another class with {apart}"
        )
        words = f"{groups} An input seen again {again}. [PBER]"
        price = self.path.set_index("n_groups")["price"].get(self.n_groups, 0.0)
        more = f" Merging by gain alone would leave {self.matrix.pber - price:.2%}, in less even groups."
        return words + more if price > TIE else words

    def _shown(self, most: int | None) -> pd.DataFrame:
        """The groups, largest first, as many as ``most``, and the others as one line."""
        columns = {"group": self.matrix.classes, "classes": [len(group) for group in self.groups]}
        columns |= {"prior": self.matrix.priors, "found again in it": self.matrix.recall()}
        table = pd.DataFrame(columns).sort_values("classes", ascending=False, kind="stable")
        left = table.iloc[most:]
        if not len(left):
            return table
        again = np.average(left["found again in it"], weights=left["prior"])
        rest = [f"({len(left)} more)", left["classes"].sum(), left["prior"].sum(), again]
        return pd.concat([table.iloc[:most], pd.DataFrame([rest], columns=table.columns)])


def consolidate(
    cm: CollisionMatrix,
    n_groups: int | None = None,
    *,
    max_pber: float | None = None,
    max_group_size: int | None = None,
    balance: float = 0.0,
    must_merge: Sequence[Sequence[Any]] | None = None,
    cannot_merge: Sequence[Sequence[Any]] | None = None,
    method: str = "greedy",
    names: GroupNames = None,
) -> ConsolidationPlan:
    """Merge the classes that collide most, until few enough are left or the rest can be told apart.

    Exact given S; the choice of the groups saw the estimate, so the PBER of a *chosen* grouping of a noisy matrix is a
    little too low, and intervals do not allow for the choice.

    Parameters
    ----------
    cm : CollisionMatrix
    n_groups, max_pber : int, float; merge until so few groups or this PBER; with neither take ``plan.at(n)`` later
    max_group_size : int, optional; most classes of a group
    balance : float from 0, gain alone, to 1, mean collision between two groups: similar sizes, at a ``price``
    must_merge, cannot_merge : lists of groups of class names; merged before the first step, never in one group
    method : "greedy" merges the best pair at each step, "optimal" looks at every grouping (up to 10 classes)
    names : see :meth:`ConsolidationPlan.at`

    Examples
    --------
    >>> S = [[0.7, 0.2, 0.1, 0.0], [0.2, 0.8, 0.0, 0.0], [0.1, 0.0, 0.6, 0.3], [0.0, 0.0, 0.3, 0.7]]
    >>> cm = CollisionMatrix(S, classes=["cat", "dog", "car", "van"])
    >>> plan = consolidate(cm, n_groups=2)
    >>> plan.groups
    [['cat', 'dog'], ['car', 'van']]
    >>> plan.path[["n_groups", "first", "second", "pber"]].round(3).iloc[1:].to_numpy().tolist()
    [[3, 'car', 'van', 0.15], [2, 'cat', 'dog', 0.05], [1, 'cat+dog', 'car+van', 0.0]]
    >>> plan.transform(["van", "dog"]).tolist()
    ['car+van', 'cat+dog']
    """
    check_matrix(cm)
    check.check_choice(method, ["greedy", "optimal"], "method")
    if n_groups is not None and max_pber is not None:
        raise ValueError(f"give n_groups or max_pber, not both, got {n_groups!r} and {max_pber!r}")
    if max_pber is not None and check.check_at_least(max_pber, 0, "max_pber") > 1:
        raise ValueError(
            f"max_pber must be between 0 and 1, got {max_pber!r} (a percentage? divide by 100)"
        )
    if check.check_at_least(balance, 0, "balance") > 1:
        raise ValueError(
            f"balance must be between 0 (by gain alone) and 1 (mean collision), got {balance!r}"
        )
    if balance and method == "optimal":
        raise ValueError(
            "balance must be 0 with method='optimal', which looks for the lowest PBER: use max_group_size"
        )
    most = (
        cm.n_classes
        if max_group_size is None
        else check.check_count(max_group_size, "max_group_size", least=2)
    )
    together, apart = _constraints(cm.classes, must_merge, cannot_merge, most)

    def fits(group: IntArray, most: int = most) -> bool:
        return len(group) <= most and not apart[np.ix_(group, group)].any()

    W = cm.joint + cm.joint.T
    np.fill_diagonal(W, 0.0)
    search = (
        _greedy(W, together, fits, balance) if method == "greedy" else _optimal(W, together, fits)
    )
    groupings, *_, tree = search
    if groupings[0].max() < 1:
        raise ValueError("must_merge joins every class into one: keep at least 2 groups")
    limited = balance or most < cm.n_classes
    path = _path_table(
        cm, search, _greedy(W, together, partial(fits, most=cm.n_classes)) if limited else search
    )
    several = path[path["n_groups"] >= 2]
    enough = several if max_pber is None else several[several["pber"] <= max_pber + TIE]
    if enough.empty:
        left = f"{several['n_groups'].iloc[-1]} groups still have {several['pber'].iloc[-1]:.4g}"
        more = "allow more, or loosen the constraints"
        raise ValueError(
            f"max_pber={max_pber:g} is out of reach with 2 groups or more: {left}; {more}"
        )
    first = int(enough["n_groups"].iloc[0])
    return ConsolidationPlan([], cm, path, tree, groupings, cm).at(
        first if n_groups is None else n_groups, names
    )


def group_name(members: Sequence[Any]) -> str:
    """Members joined by "+", or where that is too long for a terminal their first ones and number: "A+B+… (12)"."""
    names = [str(name) for name in members]
    if len(names) < 2 or len("+".join(names)) <= NAME_WIDTH:
        return "+".join(names)
    short = [
        "+".join([*names[:kept], f"… ({len(names)})"])
        for kept in range(1, min(len(names), NAME_WIDTH))
    ]
    return max((name for name in short if len(name) <= NAME_WIDTH), key=len, default=short[0])


def _default_names(groups: list[list[Any]]) -> list[str]:
    """A name that is taken ("a+b" may be a class) gets a number. Single classes come first."""
    names: dict[int, str] = {}
    for g in sorted(range(len(groups)), key=lambda g: len(groups[g]) > 1):
        plain = group_name(groups[g])
        numbered = (plain if number == 1 else f"{plain} ({number})" for number in count(1))
        names[g] = next(name for name in numbered if name not in names.values())
    return [names[g] for g in range(len(groups))]


def _with_interval(cm: CollisionMatrix) -> str:
    interval = cm.pber_interval(LEVEL)
    return f"{cm.pber:.2%}" + (
        "" if interval is None else f" (95% interval {interval[0]:.2%} to {interval[1]:.2%})"
    )


def _constraints(
    classes: Array, must_merge: Any, cannot_merge: Any, most: int
) -> tuple[list[list[int]], npt.NDArray[np.bool_]]:
    """What may be merged, as class numbers: groups of must_merge, and which pairs stay apart (K×K)."""
    names, together = classes.tolist(), list[list[int]]()
    for group in _groups(classes, must_merge, "must_merge"):  # groups that share a class are one
        touching = [other for other in together if set(other) & set(group)]
        together = [other for other in together if other not in touching]
        together.append(sorted(set(group).union(*touching)))
    apart = np.zeros((len(names), len(names)), dtype=bool)
    for pair in _groups(classes, cannot_merge, "cannot_merge"):
        apart[np.ix_(pair, pair)] = True
    np.fill_diagonal(apart, False)
    for group in together:
        for i, j in np.argwhere(apart[np.ix_(group, group)]):
            both = f"{names[group[i]]!r} and {names[group[j]]!r}"
            raise ValueError(f"must_merge joins {both}, which cannot_merge keeps apart: drop one")
        if len(group) > most:
            raise ValueError(f"must_merge joins {len(group)} classes, max_group_size allows {most}")
    return together, apart


def _groups(classes: Array, given: Any, argument: str) -> list[list[int]]:
    found = class_numbers(classes, [] if given is None else given, argument)
    if small := [group for group in found if len(group) < 2 or len(set(group)) < len(group)]:
        raise ValueError(
            f"{argument} must hold groups of two or more classes, got {classes[small[0]].tolist()}"
        )
    return found


def _greedy(
    W: FloatArray, together: list[list[int]], allows: Allows, balance: float = 0.0
) -> Search:
    """Merge the two groups with the best score, again and again: O(K²) each time.

    A group is known by its first member. Merges that the constraints forbid complete the tree and belong to no plan.
    """
    k = len(W)
    W, number, cluster, size = W.copy(), np.arange(k), np.arange(k), np.ones(k)
    pairs: list[tuple[int, int]] = []
    gains, groupings, linkage = [], [number.copy()], np.empty((k - 1, 4))

    def merge(a: int, b: int) -> None:
        gains.append(float(W[a, b]))
        size[a], size[b] = size[a] + size[b], 0
        # As scipy writes it: two clusters, the PBER removed so far (never falling), the classes below.
        linkage[len(pairs)] = *sorted((cluster[a], cluster[b])), sum(gains), size[a]
        cluster[a] = k + len(pairs)
        pairs.append((a, b))
        # Gains between groups add up. Row b stays as it is: a group of size 0 takes no further part.
        W[a] += W[b]
        W[:, a] += W[:, b]
        number[number == b] = a
        groupings.append(np.unique(number, return_inverse=True)[1])

    def merge_all(allowed: Allows, balance: float) -> int:
        scores = np.where(
            np.outer(size, size) > 0, W / np.maximum(np.outer(size, size), 1) ** balance, FORBIDDEN
        )
        np.fill_diagonal(scores, FORBIDDEN)
        while (best := float(scores.max())) > FORBIDDEN:
            # Scores are symmetric, so the first of the best has a < b: a remains the first member.
            a, b = divmod(int((scores >= best - TIE).argmax()), k)
            if allowed(np.flatnonzero((number == a) | (number == b))):
                merge(a, b)
                near = W[a] / np.maximum(size * size[a], 1) ** balance
                scores[a] = scores[:, a] = np.where(size > 0, near, FORBIDDEN)
                scores[a, a] = scores[b] = scores[:, b] = FORBIDDEN
            else:
                scores[a, b] = scores[b, a] = FORBIDDEN
        return len(pairs)

    for first, *others in together:
        for other in others:
            merge(first, other)
    n_forced, n_allowed = len(pairs), merge_all(allows, balance)
    merge_all(lambda group: True, 0.0)  # the rest of the tree, by gain
    # What later merges will remove: a sum of non-negative terms, exactly zero when all is one.
    left = np.append(np.cumsum(gains[::-1])[::-1], 0.0)
    path = slice(n_forced, n_allowed + 1)
    chosen = np.array(groupings[path], dtype=np.min_scalar_type(k))
    return chosen, left[path], pairs[n_forced:n_allowed], linkage


def _optimal(W: FloatArray, together: list[list[int]], allows: Allows) -> Search:
    k = len(W)
    if k > OPTIMAL_CLASSES:
        most = f"at most {OPTIMAL_CLASSES} classes"
        raise ValueError(
            f"method='optimal' looks at every grouping of {most}, got {k}: use 'greedy'"
        )
    # Every partition as group numbers, in lexicographic order: a class joins a group so far, or opens one.
    grown: list[tuple[int, ...]] = [(0,)]
    for _ in range(1, k):
        grown = [(*groups, last) for groups in grown for last in range(max(groups) + 2)]
    every = np.array(grown, dtype=np.int8)
    i, j = np.triu_indices(k, 1)
    pber = np.zeros(len(every))
    for a, b in zip(i, j, strict=True):
        pber += W[a, b] * (every[:, a] != every[:, b])
    fits = np.ones(len(every), dtype=bool)
    for first, *others in together:
        fits &= (every[:, others] == every[:, [first]]).all(axis=1)
    # A set of classes is a number, its members the digits in base 2.
    digits = 1 << np.arange(k)
    legal = np.array([m == 0 or allows(np.flatnonzero(m & digits)) for m in range(1 << k)])
    for group in range(k):
        fits &= legal[(every == group) @ digits]
    every, pber = every[fits], pber[fits]
    sizes = every.max(axis=1) + 1
    lowest = {n: pber[sizes == n].min() + TIE for n in np.unique(sizes)[::-1]}
    best = every[[int(((sizes == n) & (pber <= least)).argmax()) for n, least in lowest.items()]]
    return best, (best[:, i] != best[:, j]) @ W[i, j], (), None


def _path_table(cm: CollisionMatrix, search: Search, reference: Search) -> pd.DataFrame:
    groupings, pber, pairs, _ = search
    # Intervals: nan where they would need a covariance that is not there.
    stderr, (i, j) = np.full(len(pber), np.nan), np.triu_indices(cm.n_classes)
    if cm.covariance is not None:
        for step, grouping in enumerate(groupings):  # PBER = 1 - v·B, over the upper triangle of B
            v = np.where(i == j, 1.0, 2.0 * (grouping[i] == grouping[j]))
            stderr[step] = np.sqrt(max(float(v @ cm.covariance @ v), 0.0))
    elif cm.pber_stderr is not None and groupings[0].max() + 1 == cm.n_classes:
        stderr[0] = cm.pber_stderr
    ends = np.array(
        [
            brier_interval(float(value), float(error), cm._all_units(), LEVEL, grouped=cm.grouped)
            for value, error in zip(pber, stderr, strict=True)
        ]
    )
    alone = groupings.max(axis=1) == 0  # that one group never errs is no estimate
    ends[alone] = pber[alone, None]
    ends[np.isnan(stderr) & ~alone] = np.nan
    merged = np.full((2, len(pber)), None)
    for step, pair in enumerate(pairs):
        before = groupings[step]
        merged[:, step + 1] = [
            group_name(cm.classes[before == before[first]].tolist()) for first in pair
        ]
    n_groups, n_best = (part[0].max(axis=1).astype(int) + 1 for part in (search, reference))
    price = pber - pd.Series(reference[1], n_best).reindex(n_groups).to_numpy()
    columns = {
        "step": np.arange(len(pber)),
        "n_groups": n_groups,
        "first": merged[0],
        "second": merged[1],
    }
    columns |= {
        "pber": pber,
        "pber_low": ends[:, 0],
        "pber_high": ends[:, 1],
    }
    return pd.DataFrame(columns | {"gain": np.append(0.0, -np.diff(pber)), "price": price})


@dataclass(frozen=True, eq=False, repr=False)
class SplitCandidates(Told, title="Which classes look like two?"):
    """Classes that look like two, made by :func:`split_candidates`.

    ``table`` has one row per class and pair of others, smallest p-value first: ``class``, ``first``, ``second``,
    ``rows_first``, ``rows_second``, ``rate_first`` (mean posterior of ``first`` in the first part, and
    ``rate_first_elsewhere`` in the second), ``rate_second`` and ``rate_second_elsewhere``, ``p_value``, ``flagged``.
    """

    table: pd.DataFrame
    _parts: list[tuple[IntArray, IntArray]]

    def rows(self, number: int = 0) -> tuple[IntArray, IntArray]:
        """Numbers of the rows of the two parts of line ``number`` of the table."""
        if check.check_count(number, "number", least=0) >= len(self._parts):
            raise ValueError(
                f"number must be below {len(self._parts)}, the lines of the table, got {number}"
            )
        return self._parts[number]

    @property
    def verdict(self) -> str:
        rows = self.table[self.table["flagged"]].to_dict("records")
        if not rows:
            return "No class falls into separate groups that collide with different classes."
        near = "{class} ({rows_first} rows near {first}, {rows_second} near {second})"
        said = [near.format_map(row) for row in rows]
        return f"Classes that look like two: {'; '.join(said)}."


def split_candidates(
    P: ArrayLike, y: ArrayLike, *, classes: Names = None, fdr: float = 0.05, random_state: int = 0
) -> SplitCandidates:
    """Which classes fall into separate groups that collide with different classes?

    ``P`` are held-out posteriors of at least three classes, ``classes`` the names of its columns (default the sorted
    distinct labels), ``fdr`` is the false discovery rate of the flagged lines (Benjamini and Hochberg). Posteriors from
    trees take few values and can show modes where there are none: prefer smooth ones. Two groups that collide with the
    same class, or with none, are not seen here.

    >>> from collidescope.datasets import GaussianProblem
    >>> four = GaussianProblem([[0.0], [2.5], [12.5], [15.0]])
    >>> X, parts = four.sample(2000, random_state=0)
    >>> P = four.posteriors(X) @ [
    ...     [1, 0, 0],
    ...     [0, 1, 0],
    ...     [0, 1, 0],
    ...     [0, 0, 1],
    ... ]  # the two in the middle are one class
    >>> split_candidates(P, np.array([0, 1, 1, 2])[parts]).table.query("flagged")["class"].tolist()
    [1]
    """
    check_rates(fdr=fdr)
    rng = np.random.default_rng(check.check_count(random_state, "random_state", least=0))
    posteriors, codes, names, _ = scored(P, None, y, classes)
    if len(names) < 3:
        raise ValueError(
            f"P must have at least 3 classes, got {len(names)}: a class needs two others to collide with"
        )
    lines: list[tuple[dict[str, Any], tuple[IntArray, IntArray]]] = []
    for k in range(len(names)):
        rates = posteriors[codes == k].mean(axis=0) if k in codes else np.zeros(len(names))
        rates[k] = 0.0
        for a, b in combinations(np.argsort(-rates, kind="stable")[:OTHERS], 2):
            rows = np.flatnonzero((codes == k) & (posteriors[:, [a, b]] > SMALLEST).any(axis=1))
            if rates[b] <= SMALLEST or len(rows) < MIN_ROWS:
                continue
            p = posteriors[rows]
            t = np.log(np.maximum(p[:, a], NEVER)) - np.log(np.maximum(p[:, b], NEVER))
            p_value, valley = silverman(t, rng)
            near = t > valley
            line = {"class": names[k], "first": names[a], "second": names[b]}
            line |= {"rows_first": int(near.sum()), "rows_second": int((~near).sum())}
            for word, c, here in (("first", a, near), ("second", b, ~near)):
                for where, part in (("", here), ("_elsewhere", ~here)):
                    line[f"rate_{word}{where}"] = p[part, c].mean() if part.any() else 0.0
            small = min(line["rows_first"], line["rows_second"]) < MIN_PART
            small |= min(line["rate_first"], line["rate_second"]) < MIN_RATE
            lines.append((line | {"p_value": 1.0 if small else p_value}, (rows[near], rows[~near])))
    lines.sort(key=lambda pair: pair[0]["p_value"])
    empty = None if lines else ["class", "first", "second", "p_value"]
    table = pd.DataFrame([line for line, _ in lines], columns=empty)
    return SplitCandidates(
        table.assign(flagged=discovered(table["p_value"], fdr)), [parts for _, parts in lines]
    )


def silverman(t: FloatArray, rng: np.random.Generator) -> tuple[float, float]:
    """(p-value of "one mode", the point between the two highest modes just below the critical bandwidth)."""
    edges = np.linspace(t.min() - t.std() - 1e-9, t.max() + t.std() + 1e-9, BINS + 1)
    counts = np.histogram(t, edges)[0].astype(np.float64)
    low, high = 0.5, float(BINS)
    for _ in range(30):  # bisection: more smoothing never adds a mode of a Gaussian kernel density
        middle = np.sqrt(low * high)
        low, high = (middle, high) if len(_modes(counts, middle)) > 1 else (low, middle)
    critical = high
    smooth = gaussian_filter1d(counts, low, mode="constant")
    modes = sorted(_modes(counts, low), key=lambda m: -smooth[m])[:2]
    if len(modes) < 2:
        return 1.0, float(np.median(t))
    valley = min(modes) + int(smooth[min(modes) : max(modes)].argmin())
    # Smoothed bootstrap, shrunk to the variance of the sample (Efron and Tibshirani, section 16.5).
    h = critical * (edges[1] - edges[0])
    shrink = 1 / np.sqrt(1 + (h / t.std()) ** 2)
    more = 0
    for _ in range(RESAMPLES):
        drawn = t.mean() + shrink * (
            rng.choice(t, len(t)) - t.mean() + h * rng.standard_normal(len(t))
        )
        more += len(_modes(np.histogram(drawn, edges)[0].astype(np.float64), critical)) > 1
    return (1 + more) / (1 + RESAMPLES), float(edges[valley + 1])


def _modes(counts: FloatArray, width: float) -> IntArray:
    density = gaussian_filter1d(counts, width, mode="constant")
    return np.asarray(find_peaks(density / density.max(), prominence=FLAT)[0])
