"""Is a judge (a language model, another annotator) as good as one more human?

An item has N human votes, n_k of them for class k, and the judge says j. A vote held out agrees
with the judge with probability n_j / N, and with another human with Σ_k n_k (n_k - 1) / (N (N-1)).
A judge who votes as one more human would makes both alike on every item, however hard it is: their
difference is a mean over items with expectation zero. So is, for a pair of classes, the difference
between "a human says i, the judge j" and "a human says i, another one j"::

    d_ij = n_i / N · 1[judge says j] - n_i n_j / (N (N-1))

Tests are one-sided ("worse than a human"). Half of ``alpha`` is for the judges as a whole, half for
classes and pairs, each family by Holm: the chance of a false alarm of any kind is at most alpha.

At best a judge says what most humans would: between the agreement of the majority of the *other*
votes with a held-out one (which knows fewer votes than it could) and the mean share of the most
frequent class (which has seen the vote it is compared with).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_array
from scipy.special import stdtr

from collidescope import _checks as check
from collidescope._checks import Array, ArrayLike, FloatArray, IntArray
from collidescope.applications._inputs import (
    Interval,
    Names,
    Record,
    Result,
    check_rates,
    mean_and_error,
)
from collidescope.counting import label_codes, majority_errors, vote_table
from collidescope.intervals import interval


@dataclass(frozen=True, eq=False, repr=False)
class JudgeReport(
    Result,
    title="Is the judge as good as one more human?",
    hidden=("items", "p_value"),
):
    """What :func:`compare_judges` found.

    ``table`` has one row per ``judge``: ``items``, ``agreement`` with a held-out human vote,
    ``human`` (that of another human), their ``difference`` with ``low`` and ``high``, ``p_value``
    (Holm) and ``verdict``: "worse than a human", "agrees more than a human" or "like one more
    human". ``pairs`` has per judge, ``human`` class and class the judge ``says`` (empty: anything
    else) the ``rate``, that of another human (``by_humans``), ``difference``, ``p_value`` (Holm)
    and ``flagged``. ``best_interval`` is what a judge's agreement could be at best.
    """

    table: pd.DataFrame
    pairs: pd.DataFrame
    best_interval: Interval
    level: float
    alpha: float

    @property
    def verdict(self) -> str:
        said = []
        for row in self.table.to_dict("records"):
            words = (
                f"{row['judge']}: {row['verdict']} (agrees with a human {row['agreement']:.1%} of "
                f"the time, two humans {row['human']:.1%})"
            )
            found = self._flagged(row["judge"])
            if len(found):
                top = found.iloc[0]
                taken = f"taken for {top['says']}" if top["says"] else "missed"
                words += f", most often with {top['human']} {taken}"
            said.append(words)
        low, high = self.best_interval
        best = f"At best a judge would agree {low:.1%} to {high:.1%} of the time."
        return f"{'; '.join(said)}. {best}"

    def passes(self, judge: object) -> bool:
        """Is nothing found against this judge: neither overall nor for a class or pair?"""
        judges = self.table["judge"]
        own = self.table[judges == judge]
        if own.empty:
            raise ValueError(f"judge must be one of {judges.tolist()}, got {judge!r}")
        worse = own["verdict"] == "worse than a human"
        return not worse.any() and self._flagged(judge).empty

    def _flagged(self, judge: object) -> pd.DataFrame:
        own = self.pairs[self.pairs["judge"] == judge]
        return own[own["flagged"]]


def compare_judges(
    votes: ArrayLike | pd.DataFrame,
    judges: ArrayLike | Mapping[Any, ArrayLike],
    *,
    classes: Names = None,
    level: float = 0.95,
    alpha: float = 0.05,
) -> JudgeReport:
    """Is a judge as good as one more human, overall and for which classes and pairs?

    Parameters
    ----------
    votes : counts of human votes, items × classes; or text labels, items × annotators
        Of labels, missing ones are None or nan. Items with one vote are left out.
    judges : one label per item, or a mapping of the judge's name to them
    classes : K names in the order of the columns of counts, default those of the table
    level, alpha : float, of the intervals; chance of a false alarm of any kind

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = rng.dirichlet([1, 1], 600)
    >>> votes = np.array([rng.multinomial(5, row) for row in p])
    >>> careless = rng.integers(0, 2, 600)
    >>> report = compare_judges(
    ...     votes, {"majority": p.argmax(axis=1), "careless": careless}
    ... )
    >>> report.table[["judge", "verdict"]].to_numpy().tolist()
    [['majority', 'agrees more than a human'], ['careless', 'worse than a human']]
    """
    check_rates(level=level, alpha=alpha)
    counts, names = _counts(votes, classes)
    n_votes = counts.sum(axis=1)
    kept = n_votes > 1
    if kept.sum() < 2:
        raise ValueError(
            "votes has fewer than two items with two votes: ask for second votes"
        )
    given = judges if isinstance(judges, Mapping) else {"judge": judges}
    shares = counts[kept] / n_votes[kept, None]
    humans = _human_pairs(counts[kept])
    rows = []
    pairs = []
    for name, labels in given.items():
        said = check.encode_labels(labels, names, "judges")
        check.check_same_length(n_votes, said, "votes and judges")
        rows.append(_overall(name, said[kept], shares, humans, level))
        pairs.append(_pairs(name, said[kept], shares, humans, names))
    table = pd.DataFrame(rows)
    table["p_value"] = _holm(table["p_value"].to_numpy())
    worse = table["p_value"] <= alpha / 2
    table["verdict"] = np.select(
        [worse, table["low"] > 0],
        ["worse than a human", "agrees more than a human"],
        "like one more human",
    )
    every = pd.concat(pairs, ignore_index=True)
    every["p_value"] = _holm(every["p_value"].to_numpy())
    every["flagged"] = every["p_value"] <= alpha / 2
    every = every.sort_values("p_value", kind="stable", ignore_index=True)
    return JudgeReport(table, every, _best(counts[kept], level), level, alpha)


def _counts(
    votes: ArrayLike | pd.DataFrame, classes: Names
) -> tuple[FloatArray, Array]:
    """(votes of every item for every class, names of the classes)."""
    frame = pd.DataFrame(votes)  # type: ignore[arg-type]
    if all(map(pd.api.types.is_numeric_dtype, frame.dtypes)):
        table, names = vote_table(votes, classes)
        return table.toarray(), names
    cells = frame.stack().dropna()
    codes, names = label_codes(cells.to_numpy(), classes, "votes")
    items = frame.index.get_indexer(cells.index.get_level_values(0))
    counts = np.zeros((len(frame), len(names)))
    np.add.at(counts, (items, codes), 1.0)
    return counts, names


def _human_pairs(counts: FloatArray) -> FloatArray:
    """Per item, K×K: the chance that one human says i and another j."""
    n_votes = counts.sum(axis=1)
    both = np.einsum("ni,nj->nij", counts, counts)
    k = np.arange(counts.shape[1])
    both[:, k, k] -= counts  # a vote and itself are no pair
    return both / (n_votes * (n_votes - 1))[:, None, None]


def _overall(
    name: object, said: IntArray, shares: FloatArray, humans: FloatArray, level: float
) -> Record:
    n = len(said)
    agreement = shares[np.arange(n), said]
    among_humans = np.trace(humans, axis1=1, axis2=2)
    differences = agreement - among_humans
    seen = mean_and_error(differences)
    low, high = seen.signed_interval(np.abs(differences).mean(), n, level)
    gap = seen.wider(n)
    return {
        "judge": name,
        "items": n,
        "agreement": float(agreement.mean()),
        "human": float(among_humans.mean()),
        "difference": float(gap.value),
        "low": float(low),
        "high": float(high),
        "p_value": float(stdtr(gap.df, gap.value / gap.stderr)),
    }


def _pairs(
    name: object, said: IntArray, shares: FloatArray, humans: FloatArray, names: Array
) -> pd.DataFrame:
    """Per class ("missed") and ordered pair: what the judge does more often than a human."""
    k = len(names)
    # a human says i, the judge j
    judged = np.einsum("ni,nj->nij", shares, np.eye(k)[said])
    # The variance for a judge like the humans: who never made a rare error shows none.
    spread = shares * (1 - shares)
    null = np.einsum("ni,nj->nij", shares**2, spread)
    i, j = np.nonzero(~np.eye(k, dtype=bool))
    rate = _missed_and_pairs(shares, judged, i, j)
    by_humans = _missed_and_pairs(shares, humans, i, j)
    expected = np.column_stack([shares**2 * spread, null[:, i, j]])
    gap = mean_and_error(rate - by_humans)
    least = np.sqrt(expected.sum(axis=0)) / len(said)
    gap = gap._replace(stderr=np.maximum(gap.stderr, least)).wider(len(said))
    columns = {
        "judge": name,
        "human": [*names, *names[i]],
        "says": [*[""] * k, *names[j]],
        "rate": rate.mean(axis=0),
        "by_humans": by_humans.mean(axis=0),
        "difference": gap.value,
        "p_value": gap.p_value(sides=1),
    }
    return pd.DataFrame(columns)


def _missed_and_pairs(
    shares: FloatArray, tables: FloatArray, i: IntArray, j: IntArray
) -> FloatArray:
    """Per item: a human says k and the other something else, for every k; then the pairs."""
    same = np.diagonal(tables, axis1=1, axis2=2)
    return np.column_stack([shares - same, tables[:, i, j]])


def _holm(p_values: FloatArray) -> FloatArray:
    """Adjusted p-values: at most alpha where Holm's procedure rejects."""
    m = len(p_values)
    order = np.argsort(p_values, kind="stable")
    largest = np.maximum.accumulate(p_values[order] * (m - np.arange(m)))
    return np.minimum(largest, 1.0)[np.argsort(order)]


def _best(counts: FloatArray, level: float) -> Interval:
    """What a judge's agreement with a human could be at best, with sampling error."""
    n = counts.sum(axis=1)
    # The majority of the other votes agrees with the vote held out.
    majority = 1 - majority_errors(csr_array(counts), n)
    shares = np.column_stack([majority, counts.max(axis=1) / n])
    mean, stderr, _ = mean_and_error(shares)
    low, high = interval(mean, stderr, len(shares), level)  # all may be the same
    return float(low[0]), float(high[1])
