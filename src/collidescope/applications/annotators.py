"""People and models: do annotators agree, does one differ, does a model see what they do?

Agreement is a property of B, the mean over items of y yᵀ: two votes on an item agree with
probability tr(B) = 1 - PBER. The usual coefficients compare that with votes drawn at random from
the class shares π = B 1. Fleiss' kappa takes B and π as means over items, Krippendorff's alpha as
means over the n votes that have a pair. Both are κ = 1 - D/C, with D the disagreement and C = 1 -
‖π‖² that of chance; their intervals are the values κ for which D - (1 - κ) C may be zero (Fieller),
which holds for few items and rare classes too, where κ itself has no normal distribution.

An annotator who votes as the others do agrees with another as often as two others agree, and uses
every class as often as they do: both differences have mean zero on every item, however hard it is,
so items are the units. The annotator with the smallest p-value is flagged if it is small
(Bonferroni over the classes and the annotators left), its votes are set aside, and the rest is
tested again: otherwise one careless annotator makes the careful ones look different.

:func:`compare` holds S of a model beside S of people. What a model has not learned counts as
collision; a count over several labels per input has no model in it. For a pair of classes the
difference of the rates S[i, j] says::

    estimated > counted    not learned yet: a better model, or more rows, would tell them apart
    estimated < counted    label noise or leakage: votes are noisier than labels, or inputs leak
    otherwise              agreed: the collision is in the inputs

The two are taken as independent: where they share inputs, intervals are too wide rather than too
narrow. They are simultaneous (Bonferroni over the pairs).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.sparse import csr_array, triu
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from collidescope import _checks as check
from collidescope._checks import (
    Array,
    ArrayLike,
    FloatArray,
    IntArray,
)
from collidescope.applications._inputs import (
    Interval,
    Mean,
    Names,
    Notes,
    Record,
    Result,
    check_matrix,
    check_rates,
    exact_interval,
)
from collidescope.counting import (
    collision_matrix_from_votes,
    count_table,
    input_groups,
    label_codes,
    vote_table,
)
from collidescope.intervals import (
    difference_interval,
    effective_units,
    level_together,
    upper_limit,
)
from collidescope.matrix import UNSEEN, CollisionMatrix

NOT_LEARNED = "not learned yet"
NOISE = "label noise or leak"
AGREED = "agreed"


def agreement(
    votes: ArrayLike | csr_array, classes: Names = None, *, level: float = 0.95
) -> pd.DataFrame:
    """Agreement, PBER, Fleiss' kappa and Krippendorff's alpha (nominal), with intervals.

    ``votes`` are counts, items × classes (array, DataFrame or sparse); items with one vote are left
    out, as alpha does, and items are the units of the intervals. The table is indexed by
    coefficient, with ``value``, ``low``, ``high`` and ``formula``, the coefficient as a function
    of B.

    >>> agreement([[4, 0], [4, 0], [3, 1], [1, 3], [0, 4]])["value"].round(3).to_dict()
    {'agreement': 0.8, 'PBER': 0.2, "Fleiss' kappa": 0.583, "Krippendorff's alpha": 0.604}
    """
    check_rates(level=level)
    counts, _ = vote_table(votes, classes)
    totals = np.asarray(counts.sum(axis=1), dtype=np.float64)
    kept = totals > 1
    if kept.sum() < 2:
        raise ValueError(
            "votes has fewer than two items with two votes: nothing can agree, ask for "
            "second votes"
        )
    counts = counts[kept]
    used = np.flatnonzero(counts.sum(axis=0))
    if len(used) < 2:
        raise ValueError(
            "votes are all for one class: chance alone would agree, and there is no "
            "coefficient"
        )
    counts = counts[:, used]  # a class that nobody votes for changes no coefficient
    totals = totals[kept]
    counted = collision_matrix_from_votes(counts)
    pber = counted.pber
    low, high = counted.pber_interval(level) or (0.0, 1.0)
    agree = ((counts * counts).sum(axis=1) - totals) / (totals * (totals - 1))
    items = _Items(1 - agree, csr_array(counts * (1 / totals)[:, None]))
    # Fleiss: every item the same. Krippendorff: items by their votes.
    kappa = items.coefficient(np.full(len(totals), 1 / len(totals)), 1.0, level)
    n_votes = totals.sum()
    alpha = items.coefficient(totals / n_votes, 1 - 1 / n_votes, level)
    rows = {
        "agreement": (1 - pber, 1 - high, 1 - low, "tr B = 1 - PBER"),
        "PBER": (pber, low, high, "1 - tr B"),
        "Fleiss' kappa": (*kappa, "1 - (1 - tr B) / (1 - ‖π‖²), π = B 1"),
        "Krippendorff's alpha": (
            *alpha,
            "1 - (1 - tr B) / (1 - ‖π‖²) · (n-1)/n, with B and π as means over the n votes",
        ),
    }
    table = pd.DataFrame.from_dict(
        rows, orient="index", columns=["value", "low", "high", "formula"]
    )
    return table.rename_axis("coefficient")


class _Items(NamedTuple):
    """Votes on items, as far as coefficients of agreement need them."""

    disagree: FloatArray  #: share of the pairs of votes on an item that differ
    shares: csr_array  #: class shares of the votes on an item

    def coefficient(
        self, weight: FloatArray, factor: float, level: float
    ) -> tuple[float, float, float]:
        """(value, low, high) of κ = 1 - factor · D / C, with items weighed by ``weight`` (sum 1).

        D = Σ w d over the items and C = 1 - ‖π‖², π = Σ w s, s the class shares of an item's votes.
        """
        priors = self.shares.T @ weight
        by_chance = float(priors @ priors)
        observed = float(weight @ self.disagree)
        value = 1 - factor * observed / (1 - by_chance)
        # Pairs of different items only: ‖π‖² also holds what the votes of one item have in common.
        of_items = (self.shares * self.shares).sum(axis=1)
        own = float(weight**2 @ of_items)
        between_items = (by_chance - own) / (1 - float(weight @ weight))
        # d(1 - ‖π‖²) = -2 π·dπ, item by item.
        influence = -2 * (self.shares @ priors)
        rarest = float(priors.min())
        units = effective_units(1.0, weight @ weight, (weight**3).sum())

        def beyond(kappa: float) -> float:
            """How far D - (1 - κ) C is from zero, less what sampling error allows."""
            values = self.disagree - (1 - kappa) * influence
            reach = _reach(values, weight, (1 - kappa) * 2 * rarest, level)
            gap = observed - (1 - kappa) * (1 - between_items)
            if gap < 0:  # items that disagree may be too rare to be among these
                stderr = np.sqrt(_squares(values, weight).sum())
                most = upper_limit(observed, stderr, units, (1 + level) / 2)
                reach = max(reach, float(most) - observed)
            return abs(gap) - reach

        low, high = _accepted(beyond, np.linspace(-1.0, 1.0, 201))
        return value, min(low, value), max(high, value)


def _reach(
    values: FloatArray, weight: FloatArray, unseen: float, level: float
) -> float:
    """How far the mean of values, one per item, may be from zero by sampling error.

    One more item may be unlike all others: both votes for the rarest class, which is ``unseen``.
    """
    mean = float(weight @ values)
    squares = _squares(values, weight)
    variance = float(squares.sum())
    if variance <= 0:
        return 4.0  # more than any distance
    variance += ((unseen - mean) / (len(weight) + 1)) ** 2
    # A few items carry the variance where a class is rare: as many degrees of freedom, less
    # those of D and C.
    df = max(variance**2 / float((squares**2).sum()) - 2, 1.0)
    return float(stdtrit(df, (1 + level) / 2) * np.sqrt(variance))


def _squares(values: FloatArray, weight: FloatArray) -> FloatArray:
    """What every item adds to the variance of the mean."""
    # An item pulls D towards itself by its weight, and C by twice of it: what is left of its
    # deviation is too small by that much (as HC3 has it for regressions).
    leverage = np.minimum(3 * weight, 0.75)
    deviations = values - weight @ values
    return np.asarray((weight * deviations / (1 - leverage)) ** 2)


def _accepted(beyond: Callable[[float], float], grid: FloatArray) -> Interval:
    """Ends of the range in which ``beyond`` is not positive."""
    inside = [place for place, point in enumerate(grid) if beyond(point) <= 0]
    if not inside:
        return np.inf, -np.inf
    low, high = grid[[inside[0], inside[-1]]].tolist()
    if low > grid[0]:
        low = brentq(beyond, grid[inside[0] - 1], low)
    if high < grid[-1]:
        high = brentq(beyond, high, grid[inside[-1] + 1])
    return low, high


@dataclass(frozen=True)
class _Votes:
    """One entry per vote, as numbers."""

    items: IntArray
    codes: IntArray  #: class
    who: IntArray  #: annotator
    people: Array  #: names of the annotators

    def of(self, kept: Array) -> _Votes:
        """Some of the votes."""
        return _Votes(self.items[kept], self.codes[kept], self.who[kept], self.people)


@dataclass(frozen=True, eq=False, repr=False)
class AnnotatorReport(
    Result,
    title="Who votes differently?",
    table="annotators",
    hidden=("items", "others", "pber_without", "p_value"),
):
    """What :func:`compare_annotators` found.

    ``matrix`` is S from all pairs of votes by different annotators (mean over items), ``agreement``
    the table of :func:`agreement`. ``annotators`` has one row per ``annotator``: ``votes``, shared
    ``items``, the ``rate`` at which the annotator agrees with another one and that of two
    ``others`` on the same items, their ``difference`` with ``low`` and ``high``; ``pber_without``,
    the PBER of all other votes; ``used`` (the class whose use differs most), ``used_by`` (by how
    much), ``p_value`` (corrected for classes and annotators) and ``flagged``. ``pairs`` has
    ``first``, ``second``, ``items`` they share, ``agreement``, ``low``, ``high``, least
    agreement first.
    """

    matrix: CollisionMatrix
    agreement: pd.DataFrame
    annotators: pd.DataFrame
    pairs: pd.DataFrame
    _votes: _Votes

    def without(self, *annotators: object) -> CollisionMatrix:
        """S from the votes of everybody else."""
        names = check.encode_labels(list(annotators), self._votes.people, "annotators")  # type: ignore[arg-type]
        rest = self._votes.of(~np.isin(self._votes.who, names))
        counts = count_table(rest.items, rest.codes, self.matrix.n_classes)
        return collision_matrix_from_votes(counts, self.matrix.classes)

    @property
    def verdict(self) -> str:
        people = self.annotators
        odd = people["annotator"][people["flagged"]]
        words = "nobody differs beyond chance"
        if len(odd):
            words = f"voting differently from the rest: {', '.join(map(str, odd))}"
        return f"{len(people)} annotators, {words}."

    def section(self) -> Record:
        found = super().section()
        found["sentences"].append(
            "rate: how often the annotator agrees with another one; difference: to the rate at "
            "which two others agree on the same items; used: the class whose share of the votes "
            "differs most from that of the others, and by how much."
        )
        return found


def compare_annotators(
    items: ArrayLike,
    labels: ArrayLike,
    annotators: ArrayLike,
    *,
    classes: Names = None,
    level: float = 0.95,
    alpha: float = 0.05,
) -> AnnotatorReport:
    """S, agreement and its coefficients from votes whose voters are known; who votes differently.

    ``items``, ``labels`` and ``annotators`` have one entry per vote. ``level`` is that of the
    intervals, ``alpha`` the chance to flag somebody where all vote alike.

    >>> rng = np.random.default_rng(0)
    >>> items, who = (
    ...     np.repeat(np.arange(200), 4),
    ...     np.tile(["Ann", "Bob", "Cem", "Dee"], 200),
    ... )
    >>> truth = rng.integers(0, 3, 200)[items]
    >>> wrong = rng.random(800) < np.where(who == "Dee", 0.6, 0.1)
    >>> compare_annotators(items, np.where(wrong, (truth + 1) % 3, truth), who).verdict
    '4 annotators, voting differently from the rest: Dee.'
    """
    check_rates(level=level, alpha=alpha)
    numbers = input_groups(items)
    codes, names = label_codes(labels, classes, "labels")
    who, people = label_codes(annotators, name="annotators")
    check.check_same_length(numbers, codes, "items and labels")
    check.check_same_length(numbers, who, "items and annotators")
    again = pd.Series(numbers * len(people) + who).duplicated()
    if again.any():
        row = int(again.argmax())
        person = people.tolist()[who[row]]
        raise ValueError(
            f"annotators has {person!r} twice on one item (again in row {row}): a "
            "person's second vote is not independent, keep one of them"
        )
    votes = _Votes(numbers, codes, who, people)
    counts = count_table(numbers, codes, len(names))
    matrix = collision_matrix_from_votes(counts, names)
    return AnnotatorReport(
        matrix=matrix,
        agreement=agreement(counts, names, level=level),
        annotators=_differing(votes, matrix, level, alpha),
        pairs=_pairs(votes, level),
        _votes=votes,
    )


def _pairs(votes: _Votes, level: float) -> pd.DataFrame:
    n_classes = int(votes.codes.max()) + 1
    n_items = int(votes.items.max()) + 1
    # Annotators × items, and × (item, class): products with their transposes count shared items,
    # and equal votes.
    seen = count_table(votes.who, votes.items, n_items)
    answers = votes.items * n_classes + votes.codes
    said = count_table(votes.who, answers, n_items * n_classes)
    shared = triu(seen @ seen.T, 1, format="coo")
    both = shared.data.astype(int)
    agreed = np.asarray((said @ said.T).tocsr()[shared.row, shared.col]).ravel()
    low, high = exact_interval(agreed, both, level)
    columns = {
        "first": votes.people[shared.row],
        "second": votes.people[shared.col],
        "items": both,
        "agreement": agreed / both,
        "low": low,
        "high": high,
    }
    return pd.DataFrame(columns).sort_values(
        "agreement", kind="stable", ignore_index=True
    )


def _differing(
    votes: _Votes, matrix: CollisionMatrix, level: float, alpha: float
) -> pd.DataFrame:
    n_people = len(votes.people)
    active = np.ones(n_people, dtype=bool)
    set_aside = []
    while True:
        table = _against_others(votes.of(active[votes.who]), matrix, level)
        table["p_value"] *= active.sum()
        p = table["p_value"].where(active)
        if not p.min() <= alpha:  # also where nobody can be tested
            break
        worst = int(p.argmin())
        set_aside.append((worst, table.loc[worst]))
        active[worst] = False
    for person, row in set_aside:
        table.loc[person] = row
    table.insert(0, "annotator", votes.people)
    table.insert(1, "votes", np.bincount(votes.who, minlength=n_people))
    table["p_value"] = table["p_value"].clip(upper=1.0)
    return table.assign(flagged=~active)


def _against_others(
    votes: _Votes, matrix: CollisionMatrix, level: float, fewest: int = 20
) -> pd.DataFrame:
    """Per annotator, on items with at least two others: agreement, use of classes, p-value.

    With fewer than ``fewest`` shared items an annotator is not tested: a mean of so few has no
    normal distribution.
    """
    n_people = len(votes.people)
    counts = count_table(votes.items, votes.codes, matrix.n_classes)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate, others, pber_without = _agreement_rates(votes, counts)
        shared = counts.sum(axis=1)[votes.items] > 2
        kept = votes.of(shared)
        n = np.bincount(kept.who, minlength=n_people)
        rates = {"rate": rate, "others": others, "difference": rate - others}
        each = pd.DataFrame(rates)[shared]
        everybody = range(n_people)
        table = each.groupby(kept.who).mean().reindex(everybody)
        errors = each.groupby(kept.who).sem().reindex(everybody)
        sizes = each.abs().groupby(kept.who).mean().reindex(everybody)
        df = np.maximum(n - 1.0, 1.0)
        gap = Mean(table["difference"].to_numpy(), errors["difference"].to_numpy(), df)
        gap = gap.wider(n)
        most, used_by, z = _class_use(kept, counts, n)
        # Disagreement is tested on one side, use on both and in K classes; the 2 in front is for
        # taking the smaller.
        p_disagree = stdtr(df, gap.value / gap.stderr)
        p = 2 * np.minimum(p_disagree, 2 * matrix.n_classes * stdtr(df, -z))
        low, high = gap.signed_interval(sizes["difference"], n, level)
    table.insert(0, "items", n)
    used = pd.Series(matrix.classes[most], dtype=object)
    return table.assign(
        low=low,
        high=high,
        pber_without=pber_without,
        used=used.where(n > 0, None),
        used_by=used_by,
        p_value=np.where(n >= fewest, p, np.nan),
    )


def _agreement_rates(
    votes: _Votes, counts: csr_array
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Per vote how often it agrees with the others, and they among themselves.

    Third, per annotator, the PBER of all other votes.
    """
    n_people = len(votes.people)
    per_item = counts.sum(axis=1)
    alike = (counts * counts).sum(axis=1) - per_item  # ordered pairs that agree
    several = per_item > 1
    agreed = np.where(several, alike / (per_item * (per_item - 1)), 0.0)
    # From here on one entry per vote: the same votes on its item, itself left out, and all.
    same = np.asarray(counts[votes.items, votes.codes]).ravel() - 1
    N = per_item[votes.items]
    # Without a vote its item has 2 same fewer ordered pairs that agree.
    alike_without = alike[votes.items] - 2 * same
    others = np.where(N > 2, alike_without / ((N - 1) * (N - 2)), 0.0)
    # Without an annotator: items of three votes or more change, items of two votes are lost.
    left = several.sum() - np.bincount(votes.who, N == 2, n_people)
    changes = np.bincount(votes.who, others - agreed[votes.items], n_people)
    agreed_without = (agreed.sum() + changes) / left
    return same / (N - 1), others, 1 - agreed_without


def _class_use(
    votes: _Votes, counts: csr_array, n: IntArray
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Per annotator the class whose use differs most from the others', by how much, z-value.

    ``n`` is the number of votes of each annotator.
    """
    table = counts[votes.items]
    N = table.sum(axis=1)
    share = table * (1 / N)[:, None]
    # The variance for a vote like the others on the item: who never used a rare class shows none.
    inflation = np.square(N / (N - 1))
    expected = (share - share * share) * inflation[:, None]
    # c - (votes of the others) / (N-1) = (N c - all votes) / (N-1).
    each = np.diff(table.indptr)
    chosen = table.indices == np.repeat(votes.codes, each)
    n_votes = np.repeat(N, each)
    table.data = (n_votes * chosen - table.data) / (n_votes - 1)
    shape = (len(n), len(votes.who))
    places = (votes.who, np.arange(len(votes.who)))
    own = csr_array((np.ones(len(votes.who)), places), shape=shape)

    def sums(of_votes: csr_array) -> FloatArray:
        """Over the votes of each annotator."""
        return (own @ of_votes).toarray()

    n = n[:, None]
    use = sums(table) / n
    squares = sums(table * table) / n
    variance = np.maximum(squares - use**2, 0)
    # No error is below what so few items could show.
    stderr = np.hypot(np.sqrt(variance / (n - 1)), UNSEEN / n)
    least = np.sqrt(sums(expected)) / n
    z = np.abs(use) / np.maximum(stderr, least)
    most = np.nan_to_num(z).argmax(axis=1)
    return most, use[np.arange(len(use)), most], z.max(axis=1)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(
    Result,
    title="What the model sees, and what people do",
    table="pairs",
    rows=(10, 20),
):
    """What :func:`compare` found.

    ``pairs`` has one row per pair of classes, in the direction with the larger rate: ``class``,
    ``other``, ``estimated``, ``counted``, ``difference`` with its simultaneous interval ``low`` to
    ``high``, ``p_value`` (corrected for the number of pairs) and ``verdict``; the largest
    differences, in standard errors, come first. ``pber`` is the same of the PBER.
    """

    pairs: pd.DataFrame
    pber: Record
    level: float
    notes: Notes = ()

    @property
    def verdict(self) -> str:
        counts = self.pairs["verdict"].value_counts()
        kinds = [
            f"{counts.get(name, 0)} {name}" for name in (NOT_LEARNED, NOISE, AGREED)
        ]
        both = "Estimated PBER {estimated:.4f}, counted {counted:.4f}: {verdict}"
        return f"{both.format_map(self.pber)}. Pairs of classes: {', '.join(kinds)}."

    def _shown(self, most: int | None) -> pd.DataFrame:
        return self.pairs[self.pairs["verdict"] != AGREED][:most]


def compare(
    estimated: CollisionMatrix, counted: CollisionMatrix, *, level: float = 0.95
) -> Comparison:
    """Compare what a model sees as collision with what several labels per input show.

    ``estimated`` comes from a model, ``counted`` from ``collision_matrix_from_votes`` or
    ``count_collisions``, for the same classes. With probability ``level`` no pair is called
    different that is not. Where rows belong together, say so when the matrices are made
    (``groups=``): their errors then count groups.

    >>> people = collision_matrix_from_votes([[9, 1, 0], [1, 9, 0], [0, 0, 10]] * 200)
    >>> S = [[0.6, 0.18, 0.22], [0.18, 0.6, 0.22], [0.22, 0.22, 0.56]]
    >>> model = CollisionMatrix(S, stderr=np.full((3, 3), 0.01), pber_stderr=0.01)
    >>> compare(model, people).pairs[["class", "other", "verdict"]].values.tolist()
    [[0, 2, 'not learned yet'], [1, 2, 'not learned yet'], [0, 1, 'agreed']]
    """
    check_rates(level=level)
    for name, cm in (("estimated", estimated), ("counted", counted)):
        check_matrix(cm, name)
        if cm.stderr is None or cm.pber_stderr is None:
            raise ValueError(
                f"{name} has no standard errors, so no difference can be judged: "
                "estimate it with labels"
            )
    odd = set(estimated.classes.tolist()) ^ set(counted.classes.tolist())
    if odd:
        raise ValueError(
            "estimated and counted must have the same classes, only one has "
            f"{sorted(map(str, odd))}"
        )
    order = check.encode_labels(estimated.classes, counted.classes, "estimated")
    pber = _compared(
        estimated.pber,
        estimated.pber_interval(level),
        counted.pber,
        counted.pber_interval(level),
    )
    pairs = _compared_pairs(estimated, counted, order, level)
    notes = _population_notes(estimated, counted, order)
    of_all = {name: np.asarray(value).item() for name, value in pber.items()}
    return Comparison(pairs, of_all, level, notes)


def _compared_pairs(
    estimated: CollisionMatrix, counted: CollisionMatrix, order: IntArray, level: float
) -> pd.DataFrame:
    same = np.ix_(order, order)
    S = estimated.matrix
    T = counted.matrix[same]
    i, j = _larger_direction(S + T)
    n_pairs = len(i)
    each = level_together(level, n_pairs)
    of_estimated = [end[i, j] for end in estimated.interval(each) or ()]
    of_counted = [end[same][i, j] for end in counted.interval(each) or ()]
    names = {"class": estimated.classes[i], "other": estimated.classes[j]}
    compared = _compared(S[i, j], of_estimated, T[i, j], of_counted)
    pairs = pd.DataFrame(names | compared)
    gap = pairs["difference"].to_numpy()
    # On the side of zero.
    half = np.where(gap > 0, gap - pairs["low"], pairs["high"] - gap)
    stderr = half / ndtri((1 + each) / 2)
    without_error = np.where(gap == 0, 0.0, np.inf)
    z = np.divide(np.abs(gap), stderr, out=without_error, where=stderr > 0)
    p_values = 2 * ndtr(-z) * n_pairs
    pairs.insert(7, "p_value", np.minimum(p_values, 1.0))
    order_of_z = np.argsort(-z, kind="stable")
    return pairs.iloc[order_of_z].reset_index(drop=True)


def _larger_direction(rates: FloatArray) -> tuple[IntArray, IntArray]:
    """Classes i, j of every pair, in the direction with the larger rate."""
    upper, lower = np.triu_indices(len(rates), 1)
    forward = rates[upper, lower] >= rates[lower, upper]
    i = np.where(forward, upper, lower)
    return i, np.where(forward, lower, upper)


def _population_notes(
    estimated: CollisionMatrix,
    counted: CollisionMatrix,
    order: IntArray,
    most: float = 0.05,
) -> Notes:
    """Class shares that differ by more than ``most`` describe different populations."""
    notes = []
    of_counted = counted.priors[order]
    unlike = np.abs(estimated.priors - of_counted)
    if unlike.max() > most:
        k = int(unlike.argmax())
        notes.append(
            f"The class shares differ ({estimated.classes[k]}: {estimated.priors[k]:.1%} "
            f"estimated, {of_counted[k]:.1%} counted), and S depends on them: compare the "
            "same population."
        )
    if counted.coverage is not None and counted.coverage < 1 - most:
        notes.append(
            f"The count speaks for {counted.coverage:.1%} of the inputs, the estimate for "
            "all of them."
        )
    return tuple(notes)


def _compared(
    estimated: Any, of_estimated: Any, counted: Any, of_counted: Any
) -> Record:
    """Their difference, with its interval from those of the two, and what it says."""
    low, high = difference_interval(estimated, of_estimated, counted, of_counted)
    verdict = np.where(low > 0, NOT_LEARNED, AGREED)
    return {
        "estimated": estimated,
        "counted": counted,
        "difference": estimated - counted,
        "low": low,
        "high": high,
        "verdict": np.where(high < 0, NOISE, verdict),
    }
