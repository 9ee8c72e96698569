"""Class consolidation: which classes to merge so that the data can tell the rest apart.

Merging classes with a K×L membership A is exact, ``B' = Aᵀ B A``, so every merge of two groups lowers the PBER by what
B holds between them, twice, and the PBER of every grouping is known with no retraining. The greedy path merges the two
groups that collide most, again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope._checks import FloatArray
from collidescope._text import HTML_CLASSES, TEXT_CLASSES, words_html
from collidescope.applications._constraints import Constraints
from collidescope.applications._grouping import TIE, Groupings, linkage_of
from collidescope.applications._inputs import check_matrix, is_series
from collidescope.applications._path import LEVEL, greedy_search, optimal_search, path_table
from collidescope.equations.bounds import bayes_error_bounds
from collidescope.matrix import CollisionMatrix

if TYPE_CHECKING:
    import pandas as pd

Names = Sequence[Any] | Callable[[list[Any]], Any]


@dataclass(frozen=True, eq=False, repr=False)
class ConsolidationPlan:
    """Which classes become one, what is gained by it, and every other step of the same path.

    Made by :func:`consolidate`.

    Attributes
    ----------
    groups : list of lists of class names
        In the order of their first members; a class that stays alone is a group of one.
    matrix : CollisionMatrix
        That of the groups, with intervals where the source has a covariance. Its class names are text ("4+9").
    path : DataFrame
        One row a step: ``step``, ``n_groups``, ``first`` and ``second`` (the groups merged), ``pber`` with ``pber_low``
        and ``pber_high`` (95%, missing where not estimated), ``bayes_low`` and ``bayes_high`` (bounds of the Bayes
        error) and ``gain`` (PBER removed by the step). It ends at one group, or where the constraints end it.
    linkage : array of shape (K - 1, 4) or None
        The tree for :func:`scipy.cluster.hierarchy.dendrogram`; heights are the PBER removed so far. Merges beyond the
        end of ``path`` join what the constraints keep apart. None with ``method="optimal"``: best groupings of
        different sizes need not be nested.
    groupings : array of shape (len(path), K)
        Group number of every class at every step.
    source : CollisionMatrix
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
        return {
            name: merged
            for group, merged in zip(self.groups, self.matrix.classes.tolist(), strict=True)
            for name in group
        }

    def at(self, n_groups: int, names: Names | None = None) -> ConsolidationPlan:
        """The plan with another number of groups (or other names) along the same path.

        Parameters
        ----------
        n_groups : int
        names : list with one name per group, or callable, optional
            In the order of ``groups``; a callable makes a name from the members of a group. By default they are joined
            by "+".
        """
        check.check_count(n_groups, "n_groups", least=2)
        steps = self.path["n_groups"].tolist()
        if n_groups not in steps:
            reason = (
                f"the constraints keep {steps[-1]} groups apart"
                if n_groups < steps[-1]
                else f"there are {steps[0]} groups before the first step"
            )
            raise ValueError(f"n_groups must be from {max(steps[-1], 2)} to {steps[0]} here, got {n_groups}: {reason}")
        return self._at_step(steps.index(n_groups), names)

    def _at_step(self, step: int, names: Names | None) -> ConsolidationPlan:
        groups = _members(self.source.classes, self.groupings[step])
        if names is None:
            chosen: Sequence[Any] = _default_names(groups)
        else:
            chosen = [names(list(group)) for group in groups] if callable(names) else names
        matrix = self.source.merge(groups, chosen)
        if len(groups) == self.source.n_classes:  # nothing merged: errors that are known without a covariance stay
            matrix = replace(self.source, classes=matrix.classes)
        return replace(self, groups=groups, matrix=matrix)

    def transform(self, y: Any) -> Any:
        """Labels → names of their groups: an array of text, or a Series with its index for a Series."""
        codes = check.encode_labels(y, self.source.classes)
        number = np.empty(self.source.n_classes, dtype=np.intp)
        position = {name: k for k, name in enumerate(self.source.classes.tolist())}
        for g, group in enumerate(self.groups):
            number[[position[name] for name in group]] = g
        merged = self.matrix.classes[number[codes]]
        if is_series(y):
            import pandas as pd

            return pd.Series(merged, index=y.index, name=y.name)
        return merged

    def __repr__(self) -> str:
        return (
            f"<ConsolidationPlan: {self.source.n_classes} classes in {self.n_groups} groups, "
            f"PBER {self.matrix.pber:.4f} (was {self.source.pber:.4f})>"
        )

    def __str__(self) -> str:
        table = self._table(TEXT_CLASSES)
        return "\n".join([*self._words(), "", table.to_string(index=False, float_format="{:.4f}".format)])

    def _repr_html_(self) -> str:
        table = self._table(HTML_CLASSES).to_html(index=False, float_format="{:.4f}".format, escape=True)
        return words_html(*self._words()) + table

    def _words(self) -> list[str]:
        low, high = bayes_error_bounds(self.matrix.pber, self.n_groups)
        return [
            f"{self.source.n_classes} classes in {self.n_groups} groups",
            f"An input seen again falls into another group with probability {_with_interval(self.matrix)}, "
            f"into another class with {_with_interval(self.source)}.   [PBER]",
            f"The best possible classifier of the groups errs between {low:.2%} and {high:.2%}.   [Bayes error]",
        ]

    def _table(self, most: int) -> pd.DataFrame:
        """The groups, largest first, as many as ``most``."""
        import pandas as pd

        order = sorted(range(self.n_groups), key=lambda g: (-len(self.groups[g]), g))
        shown, left = order[:most], order[most:]
        columns: dict[str, list[Any]] = {
            "group": [self.matrix.classes[g] for g in shown],
            "classes": [len(self.groups[g]) for g in shown],
            "prior": [self.matrix.priors[g] for g in shown],
            "found again in it": [self.matrix.matrix[g, g] for g in shown],
        }
        if left:
            priors = self.matrix.priors[left]
            columns["group"].append(f"({len(left)} more)")
            columns["classes"].append(sum(len(self.groups[g]) for g in left))
            columns["prior"].append(priors.sum())
            columns["found again in it"].append(priors @ self.matrix.recall()[left] / priors.sum())
        return pd.DataFrame(columns)


def consolidate(
    cm: CollisionMatrix,
    n_groups: int | None = None,
    *,
    max_pber: float | None = None,
    must_merge: Sequence[Sequence[Any]] | None = None,
    cannot_merge: Sequence[Sequence[Any]] | None = None,
    hierarchy: Mapping[Any, Any] | None = None,
    method: str = "greedy",
    names: Names | None = None,
) -> ConsolidationPlan:
    """Merge the classes that collide most, until few enough are left or the rest can be told apart.

    Parameters
    ----------
    cm : CollisionMatrix
    n_groups : int, optional
        Merge until this many groups are left.
    max_pber : float, optional
        Merge until the PBER is at most this: as many groups as it allows. With neither of the two nothing is merged
        yet: look at ``plan.path`` and take ``plan.at(n)``.
    must_merge : list of groups of class names, optional
        Merged before the first step.
    cannot_merge : list of pairs (or groups) of class names, optional
        Never together in a group.
    hierarchy : mapping, optional
        Class → parent, or class → path of parents from the top down, such as ``("animal", "cat")``. Only groups under
        the same parent are merged; once all classes of a parent are one, it is merged with others under the node
        above. Parents at the top are never merged.
    method : "greedy" or "optimal"
        Greedy merges the best pair at each step. Optimal looks at every grouping (up to 10 classes).
    names : list with one name per group, or callable, optional
        See :meth:`ConsolidationPlan.at`.

    Returns
    -------
    ConsolidationPlan

    Notes
    -----
    Exact given S, so the PBER at every step is as good as S is. The choice of the groups saw the estimate, so with
    noisy matrices the PBER of a *chosen* grouping is a little too low; intervals do not allow for the choice.

    Collisions add up, so a large group draws in more classes than small ones do, and late steps often give all to
    the largest. ``cannot_merge`` and ``hierarchy`` keep apart what would make no sense as one class.

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
    if n_groups is not None:
        check.check_count(n_groups, "n_groups", least=2)
    if max_pber is not None and check.check_at_least(max_pber, 0, "max_pber") > 1:
        raise ValueError(f"max_pber must be between 0 and 1, got {max_pber!r} (a percentage? divide by 100)")
    constraints = Constraints.parse(cm.classes, must_merge, cannot_merge, hierarchy)
    B = cm.joint
    W = B + B.T
    np.fill_diagonal(W, 0.0)
    search = greedy_search if method == "greedy" else optimal_search
    groupings, pber, greedy = search(W, constraints)
    if groupings[0].max() < 1:
        raise ValueError("must_merge joins every class into one: keep at least 2 groups")
    path = path_table(cm, groupings, pber, greedy)
    linkage = None if greedy is None else linkage_of(greedy)
    start = ConsolidationPlan([], cm, path, linkage, groupings, cm)
    if n_groups is not None:
        return start.at(n_groups, names)
    return start._at_step(0 if max_pber is None else _first_below(path, max_pber), names)


def _first_below(path: pd.DataFrame, max_pber: float) -> int:
    enough = np.flatnonzero((path["pber"] <= max_pber + TIE) & (path["n_groups"] >= 2))
    if len(enough) == 0:
        lowest = path[path["n_groups"] >= 2].iloc[-1]
        raise ValueError(
            f"max_pber={max_pber:g} is out of reach with 2 groups or more: {int(lowest['n_groups'])} groups still have "
            f"{lowest['pber']:.4g}; allow more, or loosen the constraints"
        )
    return int(enough[0])


def _members(classes: npt.NDArray[Any], grouping: Groupings) -> list[list[Any]]:
    groups: list[list[Any]] = [[] for _ in range(int(grouping.max()) + 1)]
    for name, g in zip(classes.tolist(), grouping.tolist(), strict=True):
        groups[g].append(name)
    return groups


def _default_names(groups: list[list[Any]]) -> list[str]:
    """Members joined by "+"; a name that is taken ("a+b" may be a class) gets a number. Single classes come first."""
    names = [""] * len(groups)
    taken: set[str] = set()
    for g in sorted(range(len(groups)), key=lambda g: len(groups[g]) > 1):
        plain = name = "+".join(map(str, groups[g]))
        number = 1
        while name in taken:
            number += 1
            name = f"{plain} ({number})"
        names[g] = name
        taken.add(name)
    return names


def _with_interval(cm: CollisionMatrix) -> str:
    interval = cm.pber_interval(LEVEL)
    return f"{cm.pber:.2%}" + ("" if interval is None else f" (95% interval {interval[0]:.2%} to {interval[1]:.2%})")
