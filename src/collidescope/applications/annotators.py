"""How well do annotators agree, and does one of them differ?

Agreement is a property of B, the mean over items of y yᵀ: two votes on an item agree with probability tr(B) = 1 - PBER.
The usual coefficients compare that with votes drawn at random from the class shares π = B 1::

    Fleiss' kappa          1 - (1 - tr B) / (1 - ‖π‖²)                  B and π: means over items
    Krippendorff's alpha   1 - (1 - tr B) / (1 - ‖π‖²) · (n-1)/n        B and π: means over the n votes that can be paired

so both follow from the collision matrix and say less than it does: which classes collide is lost, and where one class
is common they are low although people agree on nearly every item.

An annotator a is compared with the others on the items they share. Under the hypothesis that a votes as the others do,
a agrees with another as often as two others agree, and uses every class as often as the others: both differences have
mean zero on every item, however hard it is, so items are the units and each difference is tested by its mean. The
annotator with the smallest p-value is flagged if it is small beyond multiplicity (Bonferroni over the classes and the
annotators left), its votes are set aside, and the rest is tested again: otherwise one careless annotator makes the
careful ones look different from their company.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.special import stdtr, stdtrit

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope.applications._paired import wilson_interval
from collidescope.counting import collision_matrix_from_votes, count_table, input_groups, label_codes, vote_table
from collidescope.matrix import UNSEEN, CollisionMatrix

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["AnnotatorReport", "agreement", "compare_annotators"]

#: An annotator with fewer shared items than this is not tested: a mean of so few has no normal distribution.
FEWEST_ITEMS = 20
#: The coefficients as functions of B, for people.
FORMULAS = {
    "agreement": "tr B = 1 - PBER",
    "PBER": "1 - tr B",
    "Fleiss' kappa": "1 - (1 - tr B) / (1 - ‖π‖²), π = B 1",
    "Krippendorff's alpha": "1 - (1 - tr B) / (1 - ‖π‖²) · (n-1)/n, with B and π as means over the n votes",
}


def agreement(votes: Any, classes: Sequence[Any] | None = None, *, level: float = 0.95) -> pd.DataFrame:
    """Agreement, PBER, Fleiss' kappa and Krippendorff's alpha (nominal) of one set of votes, with intervals.

    Parameters
    ----------
    votes : array, DataFrame or sparse matrix of shape (items, K)
        How many votes each item has for each class. Items with one vote are left out, as alpha does.
    classes : K names, optional
    level : float
        Of the intervals, for which items are the units.

    Returns
    -------
    DataFrame
        Indexed by coefficient, with ``value``, ``low``, ``high`` and ``formula``, the coefficient as a function of B.

    Examples
    --------
    >>> agreement([[4, 0], [4, 0], [3, 1], [1, 3], [0, 4]])["value"].round(3).to_dict()
    {'agreement': 0.8, 'PBER': 0.2, "Fleiss' kappa": 0.583, "Krippendorff's alpha": 0.604}
    """
    import pandas as pd

    check.check_between(level, 0, 1, "level")
    counts, _ = vote_table(votes, classes)
    totals = np.asarray(counts.sum(axis=1))
    kept = totals > 1
    if kept.sum() < 2:
        raise ValueError("votes has fewer than two items with two votes: nothing can agree, ask for second votes")
    counts, totals = counts[kept], totals[kept]
    disagree = 1 - (np.asarray((counts * counts).sum(axis=1)) - totals) / (totals * (totals - 1))
    half = float(stdtrit(len(totals) - 1, (1 + level) / 2))
    rows = {}
    for name, weight in (("Fleiss' kappa", np.ones(len(totals))), ("Krippendorff's alpha", totals)):
        share = weight / weight.sum()
        error, priors = float(share @ disagree), counts.T @ (share / totals)
        chance = 1 - float(priors @ priors)
        if chance <= 0:
            raise ValueError("votes are all for one class: chance alone would agree, and there is no coefficient")
        factor = 1 - 1 / totals.sum() if name.startswith("K") else 1.0
        # d(error / chance) = d error / chance + error / chance² · 2 π·dπ, item by item.
        influence = disagree / chance + 2 * error / chance**2 * (counts @ priors) / totals
        rows[name] = (1 - factor * error / chance, factor * _stderr(influence, share))
        if name.startswith("F"):
            rows = {"agreement": (1 - error, _stderr(disagree, share)), "PBER": (error, _stderr(disagree, share)), **rows}
    table = pd.DataFrame(
        {name: (value, max(value - half * se, -1.0), min(value + half * se, 1.0)) for name, (value, se) in rows.items()},
        index=["value", "low", "high"],
    ).T
    table.loc["PBER", "low"] = max(table.loc["PBER", "low"], 0.0)
    table.loc["agreement", "low"] = max(table.loc["agreement", "low"], 0.0)
    table["formula"] = pd.Series(FORMULAS)
    return table.rename_axis("coefficient")


def _stderr(values: FloatArray, share: FloatArray) -> float:
    """Of the weighted mean of independent ``values``."""
    n = len(values)
    return float(np.sqrt(n / (n - 1) * (share**2) @ (values - share @ values) ** 2))


@dataclass(frozen=True, eq=False)
class AnnotatorReport:
    """What :func:`compare_annotators` found.

    Attributes
    ----------
    matrix : CollisionMatrix
        S from all pairs of votes by different annotators: the mean over items.
    agreement : DataFrame
        See :func:`agreement`.
    annotators : DataFrame
        One row per annotator: ``votes``, shared ``items``, the ``rate`` at which the annotator agrees with another one
        and that of two ``others`` on the same items, their ``difference`` with ``low`` and ``high``; ``pber_without``,
        the PBER of all other votes; ``used`` (the class whose use differs most), ``used_by`` (by how much), ``p_value``
        (corrected for classes and annotators) and ``flagged``.
    pairs : DataFrame
        One row per pair of annotators who share an item: ``first``, ``second``, ``items``, ``agreement``, ``low``,
        ``high`` (Wilson), the pair with the least agreement first.
    """

    matrix: CollisionMatrix
    agreement: pd.DataFrame
    annotators: pd.DataFrame
    pairs: pd.DataFrame
    _votes: tuple[IntArray, IntArray, IntArray, npt.NDArray[Any]]

    def between(self, first: Any, second: Any) -> pd.DataFrame:
        """On how many shared items ``first`` said i (rows) and ``second`` said j (columns)."""
        import pandas as pd

        items, codes, who, names = self._votes
        tables = []
        for name in (first, second):
            mine = who == check.encode_labels([name], names, "annotator")[0]
            tables.append(pd.Series(codes[mine], index=items[mine]))
        both = pd.concat(tables, axis=1, join="inner")
        k = self.matrix.n_classes
        cells = np.bincount(both[0].to_numpy() * k + both[1].to_numpy(), minlength=k * k).reshape(k, k)
        classes = pd.Index(self.matrix.classes)
        return pd.DataFrame(cells, classes.rename(str(first)), classes.rename(str(second)))

    def without(self, *annotators: Any) -> CollisionMatrix:
        """S from the votes of everybody else."""
        items, codes, who, names = self._votes
        rest = ~np.isin(who, check.encode_labels(list(annotators), names, "annotators"))
        return collision_matrix_from_votes(count_table(items[rest], codes[rest], self.matrix.n_classes), self.matrix.classes)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, text and lists, for JSON and reports: what is not a number is None."""
        frames = {"agreement": self.agreement.reset_index(), "annotators": self.annotators, "pairs": self.pairs}
        return {
            name: frame.astype(object).where(frame.notna(), None).to_dict("records") for name, frame in frames.items()
        }

    def __str__(self) -> str:
        shown = self.agreement.drop(columns="formula").to_string(float_format="{:.4f}".format)
        odd = self.annotators["annotator"][self.annotators["flagged"]].tolist()
        words = f"votes otherwise than the rest: {', '.join(map(str, odd))}" if odd else "nobody differs beyond chance"
        return f"{len(self.annotators)} annotators, {words}\n{shown}"


def compare_annotators(
    items: Any,
    labels: npt.ArrayLike,
    annotators: npt.ArrayLike,
    *,
    classes: Sequence[Any] | None = None,
    level: float = 0.95,
    alpha: float = 0.05,
) -> AnnotatorReport:
    """S, agreement and its coefficients from votes whose voters are known, and who votes differently.

    Parameters
    ----------
    items, labels, annotators : arrays of n entries, one per vote
    classes : K names, optional
    level : float
        Of the intervals.
    alpha : float
        Chance to flag anybody at all where all vote alike.

    Returns
    -------
    AnnotatorReport

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> items, who = np.repeat(np.arange(200), 4), np.tile(["Ann", "Bob", "Cem", "Dee"], 200)
    >>> truth = rng.integers(0, 3, 200)[items]
    >>> wrong = rng.random(800) < np.where(who == "Dee", 0.6, 0.1)
    >>> report = compare_annotators(items, np.where(wrong, (truth + 1) % 3, truth), who)
    >>> report.annotators.loc[report.annotators["flagged"], "annotator"].tolist()
    ['Dee']
    """
    import pandas as pd

    check.check_between(level, 0, 1, "level")
    check.check_between(alpha, 0, 1, "alpha")
    groups = input_groups(items)
    (codes, names), (who, people) = label_codes(labels, classes, "labels"), label_codes(annotators, name="annotators")
    for given, what in ((codes, "labels"), (who, "annotators")):
        check.check_same_length(groups, given, f"items and {what}")
    cells, times = np.unique(groups * len(people) + who, return_counts=True)
    if (times > 1).any():
        row = int(np.flatnonzero(groups * len(people) + who == cells[times > 1][0])[1])
        raise ValueError(
            f"annotators has {people[who[row]]!r} twice on one item (again in row {row}): a second vote of the same "
            f"person is no independent sighting, keep one of them"
        )
    counts = count_table(groups, codes, len(names))
    matrix = collision_matrix_from_votes(counts, names)
    return AnnotatorReport(
        matrix,
        agreement(counts, names, level=level),
        _differing(groups, codes, who, people, matrix, level, alpha),
        _pairs(groups, codes, who, people, level),
        (groups, codes, who, people),
    )


def _pairs(items: IntArray, codes: IntArray, who: IntArray, people: npt.NDArray[Any], level: float) -> pd.DataFrame:
    import pandas as pd

    k, m, n = int(codes.max()) + 1, len(people), int(items.max()) + 1
    seen = csr_array((np.ones(len(items)), (who, items)), shape=(m, n))
    said = csr_array((np.ones(len(items)), (who, items * k + codes)), shape=(m, n * k))
    shared, same = (seen @ seen.T).tocoo(), (said @ said.T).tocsr()
    upper = shared.row < shared.col
    first, second, both = shared.row[upper], shared.col[upper], shared.data[upper].astype(int)
    agreed = np.asarray(same[first, second]).ravel()
    ends = np.array([wilson_interval(int(a), int(b), level) for a, b in zip(agreed, both, strict=True)]).reshape(-1, 2)
    table = pd.DataFrame(
        {
            "first": people[first],
            "second": people[second],
            "items": both,
            "agreement": agreed / both,
            "low": ends[:, 0],
            "high": ends[:, 1],
        }
    )
    return table.sort_values("agreement", kind="stable", ignore_index=True)


def _differing(
    items: IntArray,
    codes: IntArray,
    who: IntArray,
    people: npt.NDArray[Any],
    matrix: CollisionMatrix,
    level: float,
    alpha: float,
) -> pd.DataFrame:
    """One row per annotator, tested against those not yet set aside."""
    import pandas as pd

    k, m = matrix.n_classes, len(people)
    active = np.ones(m, dtype=bool)
    found: dict[int, dict[str, Any]] = {}
    while True:
        rest = active[who]
        now = _against_others(items[rest], codes[rest], who[rest], m, k, level)
        p = np.where(active, now["p_value"], np.nan) * active.sum()
        worst = int(np.nanargmin(np.append(p, np.inf)))
        if worst == m or p[worst] > alpha:
            break
        found[worst] = {name: values[worst] for name, values in now.items()} | {"p_value": p[worst], "flagged": True}
        active[worst] = False
    for a in np.flatnonzero(active):
        found[a] = {name: values[a] for name, values in now.items()} | {"p_value": min(p[a], 1.0), "flagged": False}
    table = pd.DataFrame.from_dict(found, orient="index").sort_index()
    used = table.pop("used").astype(int)
    table.insert(0, "annotator", people)
    table.insert(1, "votes", np.bincount(who, minlength=m))
    table.insert(7, "pber_without", _pber_without(items, codes, who, m, k))
    table.insert(8, "used", [matrix.classes[c] if n else None for c, n in zip(used, table["items"], strict=True)])
    return table


def _against_others(
    items: IntArray, codes: IntArray, who: IntArray, m: int, k: int, level: float
) -> dict[str, npt.NDArray[Any]]:
    """Per annotator, on items with at least two others: agreement, use of classes, and a p-value before Bonferroni."""
    counts = count_table(items, codes, k)
    totals = np.asarray(counts.sum(axis=1))
    agreeing = np.asarray((counts * counts).sum(axis=1)) - totals  # ordered pairs of votes that agree
    kept = totals[items] >= 3
    items, codes, who = items[kept], codes[kept], who[kept]
    N, own = totals[items], np.asarray(counts[items, codes]).ravel()
    n = np.bincount(who, minlength=m)
    rate = (own - 1) / (N - 1)
    others = (agreeing[items] - 2 * (own - 1)) / ((N - 1) * (N - 2))
    mean, se = _means(rate - others, who, n)
    # Use of classes: c - (votes of the others) / (N-1) = (N c - all votes) / (N-1), summed over the items of each.
    votes = counts[items]
    each = np.diff(votes.indptr)
    votes.data = (np.repeat(N, each) * (votes.indices == np.repeat(codes, each)) - votes.data) / np.repeat(N - 1, each)
    by_annotator = csr_array((np.ones(len(items)), (who, np.arange(len(items)))), shape=(m, len(items)))
    with np.errstate(invalid="ignore", divide="ignore"):
        use = (by_annotator @ votes).toarray() / n[:, None]
        squares = (by_annotator @ (votes * votes)).toarray() / n[:, None]
        use_se = np.hypot(np.sqrt(np.maximum(squares - use**2, 0) / (n[:, None] - 1)), UNSEEN / n[:, None])
        df = np.maximum(n - 1.0, 1.0)
        p_use = k * 2 * stdtr(df[:, None], -np.abs(use / use_se)).min(axis=1)
        p = np.minimum(2 * np.minimum(stdtr(df, mean / se), p_use), 1.0)  # disagreement is tested on one side
        half = stdtrit(df, (1 + level) / 2) * se
        column = np.nan_to_num(np.abs(use / use_se)).argmax(axis=1)
        return {
            "items": n,
            "rate": np.bincount(who, rate, m) / n,
            "others": np.bincount(who, others, m) / n,
            "difference": mean,
            "low": np.maximum(mean - half, -1),
            "high": np.minimum(mean + half, 1),
            "used": column,
            "used_by": use[np.arange(m), column],
            "p_value": np.where(n >= FEWEST_ITEMS, p, np.nan),
        }


def _means(values: FloatArray, who: IntArray, n: IntArray) -> tuple[FloatArray, FloatArray]:
    """Mean of the values of each annotator and its standard error, not below what so few items could show."""
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(who, values, len(n)) / n
        left = np.bincount(who, (values - mean[who]) ** 2, len(n))
        return mean, np.hypot(np.sqrt(left / (n - 1) / n), UNSEEN / n)


def _pber_without(items: IntArray, codes: IntArray, who: IntArray, m: int, k: int) -> FloatArray:
    """PBER of all votes but those of each annotator: only the items of that annotator change."""
    counts = count_table(items, codes, k)
    N = np.asarray(counts.sum(axis=1))
    agreeing = np.asarray((counts * counts).sum(axis=1)) - N
    own = np.asarray(counts[items, codes]).ravel()
    with np.errstate(invalid="ignore", divide="ignore"):
        before = np.where(N > 1, agreeing / (N * (N - 1)), 0.0)
        after = np.where(
            N[items] > 2, (agreeing[items] - 2 * (own - 1)) / ((N[items] - 1) * (N[items] - 2)), 0.0
        )
        agreed = before.sum() + np.bincount(who, after - before[items], m)
        return np.asarray(1 - agreed / ((N > 1).sum() - np.bincount(who, N[items] == 2, m)))
