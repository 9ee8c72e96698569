"""People and models: how well do annotators agree, does one of them differ, and does a model see what they do?

Agreement is a property of B, the mean over items of y yᵀ: two votes on an item agree with probability tr(B) = 1 - PBER.
The usual coefficients (``FORMULAS``) compare that with votes drawn at random from the class shares π = B 1. Fleiss'
kappa takes B and π as means over items, Krippendorff's alpha as means over the n votes that have a pair.

An annotator who votes as the others do agrees with another as often as two others agree, and uses every class as often
as they do: both differences have mean zero on every item, however hard it is, so items are the units. The annotator
with the smallest p-value is flagged if it is small (Bonferroni over the classes and the annotators left), its votes are
set aside, and the rest is tested again: otherwise one careless annotator makes the careful ones look different.

:func:`compare` holds S of a model beside S of people. Whatever a model has not learned counts as collision; a count
over several labels per input has no model in it. For a pair of classes the difference of the rates S[i, j] says::

    estimated > counted    not learned yet: a better model, or more rows, would tell these classes apart
    estimated < counted    label noise or leak: votes are noisier than labels, or inputs give the label away
    otherwise              agreed: the collision is in the inputs

The two are taken as independent: where they share inputs, intervals are too wide rather than too narrow. They are
simultaneous (Bonferroni over the pairs).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_array
from scipy.special import ndtr, ndtri, stdtr

from collidescope import _checks as check
from collidescope._checks import Array, ArrayLike, FloatArray, IntArray
from collidescope.applications import _inputs as inputs
from collidescope.applications._inputs import Mean, Names, Told, mean_and_error, wilson_interval
from collidescope.counting import (
    collision_matrix_from_votes,
    count_table,
    input_groups,
    label_codes,
    vote_table,
)
from collidescope.intervals import half_width
from collidescope.matrix import UNSEEN, CollisionMatrix

FEWEST_ITEMS = 20  #: with fewer shared items an annotator is not tested: a mean of so few has no normal distribution
#: Item, class and annotator of each vote, as numbers; names of the annotators.
Votes = tuple[IntArray, IntArray, IntArray, Array]
NOT_LEARNED, NOISE, AGREED = "not learned yet", "label noise or leak", "agreed"
PRIORS_GAP = (
    0.05  #: class shares that differ by more describe different populations, and S depends on them
)
FORMULAS = {  #: the coefficients as functions of B, for people
    "agreement": "tr B = 1 - PBER",
    "PBER": "1 - tr B",
    "Fleiss' kappa": "1 - (1 - tr B) / (1 - ‖π‖²), π = B 1",
    "Krippendorff's alpha": "1 - (1 - tr B) / (1 - ‖π‖²) · (n-1)/n, with B and π as means over the n votes",
}


def agreement(votes: Any, classes: Names = None, *, level: float = 0.95) -> pd.DataFrame:
    """Agreement, PBER, Fleiss' kappa and Krippendorff's alpha (nominal) of one set of votes, with intervals.

    ``votes`` are counts, items × classes (array, DataFrame or sparse); items with one vote are left out, as alpha does,
    and items are the units of the intervals. The table is indexed by coefficient, with ``value``, ``low``, ``high`` and
    ``formula``, the coefficient as a function of B.

    >>> agreement([[4, 0], [4, 0], [3, 1], [1, 3], [0, 4]])["value"].round(3).to_dict()
    {'agreement': 0.8, 'PBER': 0.2, "Fleiss' kappa": 0.583, "Krippendorff's alpha": 0.604}
    """
    inputs.check_rates(level=level)
    counts, _ = vote_table(votes, classes)
    totals = np.asarray(counts.sum(axis=1))
    kept = totals > 1
    if kept.sum() < 2:
        raise ValueError(
            "votes has fewer than two items with two votes: nothing can agree, ask for second votes"
        )
    counts, totals = counts[kept], totals[kept]
    n = len(totals)
    disagree = 1 - (np.asarray((counts * counts).sum(axis=1)) - totals) / (totals * (totals - 1))
    pber, stderr, _ = mean_and_error(disagree)
    rows = [(1 - pber, stderr, 0.0), (pber, stderr, 0.0)]
    # Fleiss: every item the same. Krippendorff: items by their votes, with (n-1)/n for n votes in all.
    for weight, factor in ((np.ones(n), 1.0), (totals, 1 - 1 / totals.sum())):
        share = weight / weight.sum()
        error, priors = float(share @ disagree), counts.T @ (share / totals)
        chance = 1 - float(priors @ priors)
        if chance <= 0:
            raise ValueError(
                "votes are all for one class: chance alone would agree, and there is no coefficient"
            )
        # d(error / chance) = d error / chance + error / chance² · 2 π·dπ, item by item.
        influence = disagree / chance + 2 * error / chance**2 * (counts @ priors) / totals
        deviations = share * (influence - share @ influence)
        rows.append(
            (
                1 - factor * error / chance,
                factor * np.sqrt(n / (n - 1) * deviations @ deviations),
                -1.0,
            )
        )
    value, stderr, least = np.array(rows).T
    half = half_width(stderr, n, level)
    columns = {
        "value": value,
        "low": np.maximum(value - half, least),
        "high": np.minimum(value + half, 1.0),
    }
    return pd.DataFrame(
        columns | {"formula": FORMULAS.values()}, index=pd.Index(FORMULAS, name="coefficient")
    )


@dataclass(frozen=True, eq=False, repr=False)
class AnnotatorReport(Told, title="Who votes differently?", table="annotators"):
    """What :func:`compare_annotators` found.

    ``matrix`` is S from all pairs of votes by different annotators (mean over items), ``agreement`` the table of
    :func:`agreement`. ``annotators`` has one row per ``annotator``: ``votes``, shared ``items``, the ``rate`` at which
    the annotator agrees with another one and that of two ``others`` on the same items, their ``difference`` with
    ``low`` and ``high``; ``pber_without``, the PBER of all other votes; ``used`` (the class whose use differs most),
    ``used_by`` (by how much), ``p_value`` (corrected for classes and annotators) and ``flagged``. ``pairs`` has
    ``first``, ``second``, ``items`` they share, ``agreement``, ``low``, ``high`` (Wilson), least agreement first.
    """

    matrix: CollisionMatrix
    agreement: pd.DataFrame
    annotators: pd.DataFrame
    pairs: pd.DataFrame
    _votes: Votes

    def without(self, *annotators: Any) -> CollisionMatrix:
        """S from the votes of everybody else."""
        items, codes, who, names = self._votes
        rest = ~np.isin(who, check.encode_labels(list(annotators), names, "annotators"))
        counts = count_table(items[rest], codes[rest], self.matrix.n_classes)
        return collision_matrix_from_votes(counts, self.matrix.classes)

    @property
    def verdict(self) -> str:
        odd = self.annotators["annotator"][self.annotators["flagged"]].tolist()
        words = (
            f"votes otherwise than the rest: {', '.join(map(str, odd))}"
            if odd
            else "nobody differs beyond chance"
        )
        return f"{len(self.annotators)} annotators, {words}."


def compare_annotators(
    items: Any,
    labels: ArrayLike,
    annotators: ArrayLike,
    *,
    classes: Names = None,
    level: float = 0.95,
    alpha: float = 0.05,
) -> AnnotatorReport:
    """S, agreement and its coefficients from votes whose voters are known, and who votes differently.

    ``items``, ``labels`` and ``annotators`` have one entry per vote. ``level`` is that of the intervals, ``alpha`` the
    chance to flag anybody at all where all vote alike.

    >>> rng = np.random.default_rng(0)
    >>> items, who = np.repeat(np.arange(200), 4), np.tile(["Ann", "Bob", "Cem", "Dee"], 200)
    >>> truth = rng.integers(0, 3, 200)[items]
    >>> wrong = rng.random(800) < np.where(who == "Dee", 0.6, 0.1)
    >>> compare_annotators(items, np.where(wrong, (truth + 1) % 3, truth), who).verdict
    '4 annotators, votes otherwise than the rest: Dee.'
    """
    inputs.check_rates(level=level, alpha=alpha)
    groups = input_groups(items)
    (codes, names), (who, people) = (
        label_codes(labels, classes, "labels"),
        label_codes(annotators, name="annotators"),
    )
    for given, what in ((codes, "labels"), (who, "annotators")):
        check.check_same_length(groups, given, f"items and {what}")
    cells, times = np.unique(groups * len(people) + who, return_counts=True)
    if (times > 1).any():
        row = int(np.flatnonzero(groups * len(people) + who == cells[times > 1][0])[1])
        twice = f"{people.tolist()[who[row]]!r} twice on one item (again in row {row})"
        raise ValueError(
            f"annotators has {twice}: a person's second vote is not independent, keep one of them"
        )
    counts = count_table(groups, codes, len(names))
    matrix = collision_matrix_from_votes(counts, names)
    votes = (groups, codes, who, people)
    differing = _differing(votes, matrix, level, alpha)
    return AnnotatorReport(
        matrix, agreement(counts, names, level=level), differing, _pairs(votes, level), votes
    )


def _pairs(votes: Votes, level: float) -> pd.DataFrame:
    items, codes, who, people = votes
    k, m, n = int(codes.max()) + 1, len(people), int(items.max()) + 1
    # Annotators × items, and × (item, class): products with their transposes count shared items, and equal votes.
    seen = csr_array((np.ones(len(items)), (who, items)), shape=(m, n))
    said = csr_array((np.ones(len(items)), (who, items * k + codes)), shape=(m, n * k))
    shared, same = (seen @ seen.T).tocoo(), (said @ said.T).tocsr()
    upper = shared.row < shared.col
    first, second, both = shared.row[upper], shared.col[upper], shared.data[upper].astype(int)
    agreed = np.asarray(same[first, second]).ravel()
    ends = [wilson_interval(a, b, level) for a, b in zip(agreed, both, strict=True)]
    table = pd.DataFrame(
        {
            "first": people[first],
            "second": people[second],
            "items": both,
            "agreement": agreed / both,
        }
    )
    table[["low", "high"]] = np.reshape(ends, (-1, 2))
    return table.sort_values("agreement", kind="stable", ignore_index=True)


def _differing(votes: Votes, matrix: CollisionMatrix, level: float, alpha: float) -> pd.DataFrame:
    items, codes, who, people = votes
    active = np.ones(len(people), dtype=bool)
    found: dict[int, Any] = {}
    while True:
        rest = active[who]
        table = _against_others(items[rest], codes[rest], who[rest], len(people), matrix, level)
        table["p_value"] *= active.sum()
        p = table["p_value"].where(active)
        if not p.min() <= alpha:  # also where nobody can be tested
            break
        worst = int(p.argmin())
        found[worst] = table.loc[worst]
        active[worst] = False
    for worst, row in found.items():
        table.loc[worst] = row
    table.insert(0, "annotator", people)
    table.insert(1, "votes", np.bincount(who, minlength=len(people)))
    table["p_value"] = table["p_value"].clip(upper=1.0)
    return table.assign(flagged=~active)


def _against_others(
    items: IntArray, codes: IntArray, who: IntArray, m: int, matrix: CollisionMatrix, level: float
) -> pd.DataFrame:
    """Per annotator, on items with at least two others: agreement, use of classes, and a p-value for one annotator."""
    k = matrix.n_classes
    counts = count_table(items, codes, k)
    N = np.asarray(counts.sum(axis=1), dtype=np.float64)
    alike = np.asarray((counts * counts).sum(axis=1)) - N  # ordered pairs of votes that agree
    own = np.asarray(counts[items, codes]).ravel()
    with np.errstate(invalid="ignore", divide="ignore"):
        agreed, covered = np.where(N > 1, alike / (N * (N - 1)), 0.0), (N > 1).sum()
        # From here on one entry per vote. Without it its item has 2 (own - 1) fewer ordered pairs that agree.
        N, all_others = N[items], alike[items] - 2 * (own - 1)
        rate, others = (own - 1) / (N - 1), np.where(N > 2, all_others / ((N - 1) * (N - 2)), 0.0)
        # Without an annotator: items of three votes or more change, items of two votes are lost.
        left = covered - np.bincount(who, N == 2, m)
        without = 1 - (agreed.sum() + np.bincount(who, others - agreed[items], m)) / left
        kept = N > 2
        items, codes, who = items[kept], codes[kept], who[kept]
        N, rate, others = N[kept], rate[kept], others[kept]
        n = np.bincount(who, minlength=m)
        by_annotator = csr_array(
            (np.ones(len(items)), (who, np.arange(len(items)))), shape=(m, len(items))
        )

        def mean(table: Any) -> tuple[FloatArray, FloatArray]:
            """Mean of the rows of each annotator; its standard error, not below what so few items could show."""
            first, second = (
                (by_annotator @ part).toarray() / n[:, None] for part in (table, table * table)
            )
            return first, np.hypot(
                np.sqrt(np.maximum(second - first**2, 0) / (n[:, None] - 1)), UNSEEN / n[:, None]
            )

        difference, stderr = (part[:, 0] for part in mean(csr_array((rate - others)[:, None])))
        # Use of classes: c - (votes of the others) / (N-1) = (N c - all votes) / (N-1).
        votes = counts[items]
        share = votes * (1 / N)[:, None]
        # The variance of that for a vote like the others on the item: whoever never used a rare class shows none.
        alike_use = (
            by_annotator @ ((share - share * share) * np.square(N / (N - 1))[:, None])
        ).toarray()
        each = np.diff(votes.indptr)
        chosen = votes.indices == np.repeat(codes, each)
        votes.data = (np.repeat(N, each) * chosen - votes.data) / np.repeat(N - 1, each)
        use, use_stderr = mean(votes)
        use_stderr = np.maximum(use_stderr, np.sqrt(alike_use) / n[:, None])
        df, most = np.maximum(n - 1.0, 1.0), np.nan_to_num(np.abs(use) / use_stderr).argmax(axis=1)
        used_by, z = use[np.arange(m), most], (np.abs(use) / use_stderr).max(axis=1)
        # Disagreement is tested on one side, use on both and in K classes; the 2 in front is for taking the smaller.
        p = 2 * np.minimum(stdtr(df, difference / stderr), 2 * k * stdtr(df, -z))
        columns: dict[str, Any] = {"items": n, "rate": np.bincount(who, rate, m) / n}
        columns["others"] = np.bincount(who, others, m) / n
        columns |= Mean(difference, stderr, df).columns("difference", level)
        columns |= {"low": np.maximum(columns["low"], -1), "high": np.minimum(columns["high"], 1)}
        columns |= {
            "pber_without": without,
            "used": np.where(n > 0, matrix.classes[most].astype(object), None),
        }
        return pd.DataFrame(
            columns | {"used_by": used_by, "p_value": np.where(n >= FEWEST_ITEMS, p, np.nan)}
        )


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(
    Told, title="What the model sees, and what people do", table="pairs", rows=(10, 20)
):
    """What :func:`compare` found.

    ``pairs`` has one row per pair of classes, in the direction with the larger rate: ``class``, ``other``,
    ``estimated``, ``counted``, ``difference`` with its simultaneous interval ``low`` to ``high``, ``p_value``
    (corrected for the number of pairs) and ``verdict``; the largest differences, in standard errors, come first.
    ``pber`` is the same of the PBER.
    """

    pairs: pd.DataFrame
    pber: dict[str, Any]
    level: float
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        counts = self.pairs["verdict"].value_counts()
        told = ", ".join(
            f"{int(counts.get(name, 0))} {name}" for name in (NOT_LEARNED, NOISE, AGREED)
        )
        both = f"Estimated PBER {self.pber['estimated']:.4f}, counted {self.pber['counted']:.4f}"
        return f"{both}: {self.pber['verdict']}. Pairs of classes: {told}."

    def _shown(self, most: int | None) -> pd.DataFrame:
        return self.pairs[self.pairs["verdict"] != AGREED][:most]


def compare(
    estimated: CollisionMatrix, counted: CollisionMatrix, *, level: float = 0.95
) -> Comparison:
    """Compare what a model sees as collision with what several labels per input show, pair by pair.

    ``estimated`` comes from a model, ``counted`` from ``collision_matrix_from_votes`` or ``count_collisions``, for the
    same classes. With probability ``level`` no pair is called different that is not.

    >>> people = collision_matrix_from_votes([[9, 1, 0], [1, 9, 0], [0, 0, 10]] * 200)
    >>> S = [[0.6, 0.18, 0.22], [0.18, 0.6, 0.22], [0.22, 0.22, 0.56]]
    >>> model = CollisionMatrix(S, stderr=np.full((3, 3), 0.01), pber_stderr=0.01)
    >>> compare(model, people).pairs[["class", "other", "verdict"]].values.tolist()
    [[0, 2, 'not learned yet'], [1, 2, 'not learned yet'], [0, 1, 'agreed']]
    """
    inputs.check_rates(level=level)
    for name, cm in (("estimated", estimated), ("counted", counted)):
        inputs.check_matrix(cm, name)
        if cm.stderr is None or cm.pber_stderr is None:
            raise ValueError(
                f"{name} has no standard errors, so no difference can be judged: estimate it with labels"
            )
    if odd := set(estimated.classes.tolist()) ^ set(counted.classes.tolist()):
        raise ValueError(
            f"estimated and counted must have the same classes, only one has {sorted(map(str, odd))}"
        )
    order = check.encode_labels(estimated.classes, counted.classes, "estimated")
    same = np.ix_(order, order)
    S, T = estimated.matrix, counted.matrix[same]
    i, j = np.triu_indices(len(S), 1)
    each = 1 - (1 - level) / len(i)  # Bonferroni
    reach = np.hypot(_half_widths(estimated, each), _half_widths(counted, each)[same])
    swap = (S + T)[j, i] > (S + T)[i, j]
    i, j = np.where(swap, j, i), np.where(swap, i, j)
    half, names = reach[i, j], {"class": estimated.classes[i], "other": estimated.classes[j]}
    pairs, stderr = (
        pd.DataFrame(names | _compared(S[i, j], T[i, j], half)),
        half / ndtri((1 + each) / 2),
    )
    gap = pairs["difference"].abs().to_numpy()
    z = np.divide(gap, stderr, out=np.where(gap == 0, 0.0, np.inf), where=stderr > 0)
    pairs.insert(7, "p_value", np.minimum(2 * ndtr(-z) * len(i), 1.0))
    pairs = pairs.iloc[np.argsort(-z, kind="stable")].reset_index(drop=True)
    first, second = (cm._half_width(cm.pber_stderr or 0.0, level) for cm in (estimated, counted))
    room = float(np.hypot(first, second))
    pber = _compared(estimated.pber, counted.pber, room)
    pber["verdict"] = str(pber["verdict"])
    notes = []
    unlike = np.abs(estimated.priors - counted.priors[order])
    if unlike.max() > PRIORS_GAP:
        k = int(unlike.argmax())
        both = f"{estimated.priors[k]:.1%} estimated, {counted.priors[order[k]]:.1%} counted"
        why = "and S depends on them: compare the same population."
        notes.append(f"The class shares differ ({estimated.classes[k]}: {both}), {why}")
    if counted.coverage is not None and counted.coverage < 1 - PRIORS_GAP:
        notes.append(
            f"The count speaks for {counted.coverage:.1%} of the inputs, the estimate for all of them."
        )
    return Comparison(pairs, pber, level, tuple(notes))


def _half_widths(cm: CollisionMatrix, level: float) -> FloatArray:
    """Of the intervals of S, before they are cut at 0 and 1."""
    return half_width(np.asarray(cm.stderr).T, cm.counts, level, cm.units).T


def _compared(estimated: Any, counted: Any, half: Any) -> dict[str, Any]:
    gap = estimated - counted
    verdict = np.where(gap > half, NOT_LEARNED, np.where(gap < -half, NOISE, AGREED))
    both = {"estimated": estimated, "counted": counted, "difference": gap}
    return both | {"low": gap - half, "high": gap + half, "verdict": verdict}
