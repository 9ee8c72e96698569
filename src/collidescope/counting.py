"""S without a model: collisions counted where one input carries several labels.

A table in which whole inputs repeat, and items on which several people voted, both give for every
distinct input (item) u the number of labels n_k in each class, N = Σ n_k. With N ≥ 2 the unbiased
estimate of y_i y_j pairs every label with every *other* one::

    Z_u[i, j] = n_i n_j / (N (N-1))
    Z_u[i, i] = n_i (n_i - 1) / (N (N-1)),     row sums ρ_u = n / N

B̂ is a weighted mean of Z_u and Ŝ_ij = Σ ω_u Z_u[i, j] / Σ ω_u ρ_u[i]. The weights decide whose
mean it is:

- ``average="items"``, ω = 1: the population of items, whoever decided how many votes each should
  have.
- ``average="rows"``, ω = N: right where rows are the sample and inputs repeat by chance.

Standard errors. Mean over items: items are the independent units. Mean over rows: an input seen a
few times is one unit; of one seen often the rows are the units, each with the labels of the other
rows as its posterior p, where the count is the one-step estimator mean(c pᵀ + p cᵀ - p pᵀ).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.sparse import csr_array, issparse
from scipy.special import ndtri

from collidescope import _checks as check
from collidescope._checks import Array, ArrayLike, FloatArray, IntArray, Names
from collidescope.equations._sparse import one_hot
from collidescope.equations.moments import Moments, Units, merged, row_blocks
from collidescope.matrix import CollisionMatrix, Diagnostics, Method
from collidescope.scale import _dask

#: In a mean over rows, inputs seen at most this often are one unit, others one unit per row. Both
#: choices only ever overstate the error, the first more so for large groups and the second for
#: pairs; around here they meet.
LARGE_GROUP = 4

#: Fewest units of a block, per class, without covariance: tables are mostly sparse, and every block
#: costs a K×K sum.
SPARSE_ROWS = 20

Inputs = ArrayLike | pd.DataFrame | pd.Series  #: a table, or what names an input

#: Votes per item for which :func:`votes_needed` plans.
VOTES_PER_ITEM = (2, 3, 4, 5, 7, 10, 15, 20, 30, 50)


def input_groups(X: Inputs) -> IntArray:
    """A number for every row of ``X`` (table or array), the same for equal rows.

    A missing value equals another.

    >>> input_groups([[1, "a"], [2, "b"], [1, "a"]])
    array([0, 1, 0])
    """
    X = check.from_polars(X)
    if isinstance(X, (pd.DataFrame, pd.Series)):
        table = pd.DataFrame(X)
    elif np.ma.is_masked(X):
        raise ValueError(
            "X has masked values, which would count as if they were not:"
            " fill them, or drop those rows"
        )
    elif issparse(X):
        raise ValueError(
            "X is a sparse matrix: pass X.toarray(), or the table it was encoded from"
        )
    else:
        array = X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object)
        if array.ndim not in (1, 2):
            raise ValueError(
                f"X must be a table (rows × columns), got shape {array.shape}"
            )
        table = pd.DataFrame(array)
    if table.shape[0] == 0 or table.shape[1] == 0:
        raise ValueError(
            f"X is empty (shape {table.shape}): pass at least one row and one column"
        )
    groups: Any = None
    for position, name in enumerate(table.columns):
        try:
            codes, levels = pd.factorize(table.iloc[:, position], use_na_sentinel=False)
        except TypeError as error:
            raise ValueError(
                f"X has values that cannot be compared in column {name!r}: {error}"
            ) from None
        # Renumbering after each column keeps the product below n × levels: it cannot overflow.
        groups = (
            codes if groups is None else pd.factorize(groups * len(levels) + codes)[0]
        )
    return np.asarray(groups, dtype=np.intp)


def repeated_rows(X: Inputs) -> npt.NDArray[np.bool_]:
    """Which rows of ``X`` have an input that occurs more than once.

    >>> repeated_rows(["a", "b", "a"])
    array([ True, False,  True])
    """
    groups = input_groups(X)
    return np.bincount(groups)[groups] > 1


def count_collisions(
    X: Inputs, y: ArrayLike, *, average: str = "rows", classes: Names | None = None
) -> CollisionMatrix:
    """Count collisions among rows whose inputs are exactly equal, or among votes on the same item.

    The result speaks for the inputs with two labels or more. ``coverage`` is their share (of the
    rows, or of the items), ``counts`` the rows, or items, of each class;
    ``diagnostics.inputs_seen_once`` how many inputs say nothing.

    Parameters
    ----------
    X : DataFrame, Series or array of n inputs, any dtypes; for votes one row per vote: the name of
        the item
    y, classes : array of n labels, K names (default the sorted distinct labels)
    average : "rows", for tables in which inputs repeat by chance, or "items", for votes: each input
        counts the same

    Examples
    --------
    >>> cm = count_collisions(
    ...     ["wet", "wet", "wet", "dry", "dry", "hot"],
    ...     ["rain", "rain", "sun", "sun", "sun", "sun"],
    ... )
    >>> cm.matrix.round(3), round(cm.coverage, 3)
    (array([[0.5  , 0.5  ],
           [0.333, 0.667]]), 0.833)
    >>> items, votes = [1, 1, 1, 2, 2, 3], ["cat", "cat", "dog", "dog", "dog", "dog"]
    >>> count_collisions(items, votes, average="items").matrix.round(3)
    array([[0.5 , 0.5 ],
           [0.25, 0.75]])
    """
    check.check_choice(average, ["rows", "items"], "average")
    codes, names = label_codes(y, classes)
    groups = input_groups(X)
    check.check_same_length(groups, codes, "X and y")
    sums = _count(count_table(groups, codes, len(names)), average)
    none = "X has no input that occurs twice"
    return _as_matrix(*sums, names, average, none, "y")


def collision_matrix_from_votes(
    votes: Any, classes: Names | None = None
) -> CollisionMatrix:
    """Collision matrix from several labels per item: no model, no assumption about the inputs.

    It is the mean over the items with two votes or more: S[i, j] is the chance that another voter
    says j where one has said i. ``coverage`` is the share of the items with a vote that have two or
    more; ``counts`` are items (one with 3 of 4 votes for a class counts 0.75 for it).

    Parameters
    ----------
    votes : array, DataFrame, sparse matrix, or Dask array or DataFrame of shape (items, K): votes
        of each item
    classes : K names in the order of the columns (of a DataFrame, those to use), default its
        columns or 0 … K-1

    Examples
    --------
    >>> cm = collision_matrix_from_votes(
    ...     [[2, 1], [0, 2], [0, 1]], classes=["cat", "dog"]
    ... )
    >>> cm.matrix.round(3), round(cm.coverage, 3)
    (array([[0.5 , 0.5 ],
           [0.25, 0.75]]), 0.667)
    """
    if _dask.is_dask(votes):
        names = _wide_names(votes, classes)
        part = _dask.delayed(partial(_counted_block, names=names))
        parts = [part(block) for block, *_ in _dask.blocks(votes, None, None)]
        sums = _dask.tree(parts, merged)
    else:
        counts, names = vote_table(votes, classes)
        warn_of_copied_votes(counts)
        sums, _ = _count(counts)
    refusal = "votes has no item with two votes"
    return _as_matrix(sums, sums, names, "items", refusal, "votes")


def _counted_block(votes: Array | pd.DataFrame, names: Array) -> PairSums:
    """The sums of some items."""
    counts = csr_array((0, len(names)))
    if len(votes):
        counts = _wide_counts(votes, names)
    estimate, _ = _count(counts)
    return estimate


def votes_needed(
    cm: CollisionMatrix,
    half_width: float = 0.01,
    *,
    level: float = 0.95,
) -> pd.DataFrame:
    """How many items, and votes on each, would give the PBER an interval of ``half_width``?

    Returns ``votes_per_item``, ``items`` and ``votes``, their product; the plan with the fewest
    votes comes first.

    Parameters
    ----------
    cm : CollisionMatrix of a first round of votes (mean over items)
    half_width, level : wanted is the estimate ± this, at this level

    Notes
    -----
    An item with N votes has a variance of between + within · g(N), with g(2) = 1; g falls between
    2/N (clear items) and 2/(N(N-1)) (voters evenly split), and the plan takes the one that needs
    more. With two votes on every item at hand all variance is taken to be between items.

    Examples
    --------
    >>> cm = collision_matrix_from_votes([[3, 0], [0, 3], [2, 1], [1, 2]] * 25)
    >>> votes_needed(cm, 0.05).iloc[0].to_dict()
    {'votes_per_item': 3, 'items': 173, 'votes': 519}
    """
    check.check_between(half_width, 0, 1, "half_width")
    check.check_between(level, 0, 1, "level")
    known = cm.diagnostics
    if cm.pber_stderr is None or known.inverse_votes is None:
        raise ValueError(
            "cm must come from votes: collision_matrix_from_votes(votes), or "
            "count_collisions(…, average='items')"
        )
    two = cm.pber * (1 - cm.pber)  # two votes differ or do not: Bernoulli
    now = (known.distinct_inputs or 0) * cm.pber_stderr**2
    each = np.array(VOTES_PER_ITEM)
    variance = _planned_variance(two, now, each, known)
    per_variance = (ndtri((1 + level) / 2) / half_width) ** 2
    needed = np.ceil(variance * per_variance)
    items = needed.clip(min=2).astype(int)
    columns = {"votes_per_item": each, "items": items, "votes": each * items}
    plans = pd.DataFrame(columns)
    return plans.sort_values("votes", kind="stable", ignore_index=True)


def _planned_variance(
    two: float, now: float, each: IntArray, known: Diagnostics
) -> FloatArray:
    """Variance of one item by its number of votes, from that of ``two`` votes and that ``now``."""
    inverse_votes = known.inverse_votes or 0.0
    inverse_pairs = known.inverse_pairs or 0.0
    if inverse_pairs >= 1:
        # Two votes on every item: all of it is taken to be between items.
        return np.full(len(each), two)
    fast = 2 / (each * (each - 1))
    slow = 2 / each
    # g = (1 - share) · fast + share · slow has the mean ḡ = inverse_pairs + share · gap over the
    # items at hand: now = between + within · ḡ and two = between + within, so
    # within = (two - now) / (1 - ḡ).
    gap = 2 * inverse_votes - inverse_pairs
    # The slowest fall that leaves a variance between items of 0 or more (ḡ ≤ now / two), then the
    # fastest.
    ratio = now / np.maximum(two, np.finfo(float).tiny)
    slowest = np.clip((ratio - inverse_pairs) / gap, 0, 1)
    variance = np.zeros(len(each))
    for share in (slowest, 0.0):
        mean_fall = inverse_pairs + share * gap
        within = np.clip((two - now) / (1 - mean_fall), 0, two)
        falls = fast + share * (slow - fast)
        variance = np.maximum(variance, two - within * (1 - falls))
    # A first round that shows too little variance by chance must not promise the fastest fall.
    kept = np.minimum(slow / (2 * inverse_votes), 1)
    return np.maximum(variance, now * kept)


def count_table(groups: IntArray, codes: IntArray, k: int) -> csr_array:
    """Items × classes, from the number of the item and of the class in every row."""
    ones = np.ones(len(codes))
    n_items = int(groups.max()) + 1
    # adds up what repeats
    return csr_array((ones, (groups, codes)), shape=(n_items, k))


def label_codes(
    y: ArrayLike, classes: Names | None = None, name: str = "y"
) -> tuple[IntArray, Array]:
    """Class numbers and names.

    Where labels are text or whole numbers each is checked once, not once per row.
    """
    masked = np.ma.isMaskedArray(y)
    if isinstance(y, (np.ndarray, pd.Series)) and y.ndim == 1 and len(y) and not masked:
        codes, levels = pd.factorize(y)
        if codes.min() >= 0 and _are_plain(np.asarray(levels)):
            found, names = label_codes(list(levels), classes, name)
            return found[codes], names
    labels = check.check_labels(y, name)
    known = classes is not None
    names = check.check_classes(classes) if known else check.classes_of(labels, name)
    return check.encode_labels(labels, names, name), names


def warn_of_copied_votes(counts: csr_array, fewest: int = 5) -> None:
    """Counts that are all multiples of one number are copies of votes, not votes.

    Items whose votes agree are multiples of their number anyway: ``fewest`` others are needed.
    """
    votes = counts.data
    if not counts.nnz or (votes % 1).any():  # shares of votes
        return
    common = int(np.gcd.reduce(votes.astype(np.int64)))
    per_item = np.diff(counts.indptr)
    n_split = (per_item > 1).sum()
    if common > 1 and n_split >= fewest:
        words = (
            f"every count of votes is a multiple of {common}: copies of votes agree by "
            f"construction, so PBER is too low; count each vote once (votes / {common})"
        )
        warnings.warn(words, check.CollisionWarning, stacklevel=3)


def _are_plain(labels: Array) -> bool:
    """Whether labels are whole numbers or text."""
    whole = labels.dtype.kind in "iu"
    return whole or all(type(label) is str for label in labels.tolist())


def vote_table(votes: Any, classes: Names | None = None) -> tuple[csr_array, Array]:
    """(items × classes, names of the classes) from a table of counts, checked."""
    names = _wide_names(votes, classes)
    index = getattr(votes, "index", None)
    if hasattr(votes, "columns") and index is not None and not index.is_unique:
        twice = index[index.duplicated()]
        raise ValueError(
            f"votes has item {twice[0]!r} in two rows: add up the rows of an item "
            "first, votes.groupby(level=0).sum()"
        )
    return _wide_counts(votes, names), names


def _wide_names(votes: Any, classes: Names | None) -> Array:
    columns = list(getattr(votes, "columns", ()))
    if not columns:
        shape = votes.shape if hasattr(votes, "shape") else np.shape(votes)
        if len(shape) != 2:
            raise ValueError(
                f"votes must be a table (items × classes), got shape {shape}"
            )
        return check.check_classes(classes, shape[1])
    names = check.check_classes(columns if classes is None else classes)
    known = names.tolist()
    for column in columns:
        if column not in known:
            raise ValueError(
                f"votes has a column {column!r} that is not in classes: drop it, or "
                "name it"
            )
    for name in known:
        if name not in columns:
            raise ValueError(
                f"votes has no column for the class {name!r}: it has {columns[:10]}"
            )
    return names


def _wide_counts(votes: Any, names: Array) -> csr_array:
    if hasattr(votes, "columns"):
        votes = votes[names.tolist()]
    given = None
    if hasattr(votes, "tocsr"):
        given = csr_array(votes.astype(np.float64))
    # Of a sparse table only what it stores is checked; with a zero, as nothing stored would be
    # refused as empty.
    values = check.check_votes(
        votes if given is None else np.append(given.data, 0.0), "votes", every_row=False
    )
    table = csr_array(values) if given is None else given
    table.sum_duplicates()
    table.eliminate_zeros()
    return table


@dataclass(init=False, eq=False)
class PairSums(Moments):
    """:class:`Moments` of inputs, and how many there were."""

    #: Inputs with a label, with two or more, labels, labels of the latter, Σ 1/N and Σ 2/(N(N-1))
    #: over the latter.
    tally: FloatArray

    def __init__(self, k: int, covariance: bool | None = None) -> None:
        Moments.__init__(self, k, covariance)
        self.tally = np.zeros(6)


def _count(counts: csr_array, average: str = "items") -> tuple[PairSums, PairSums]:
    """(sums that give the estimate, sums that give its errors).

    The same ones where items are the units of both.
    """
    k = counts.shape[1]
    totals = np.asarray(counts.sum(axis=1), dtype=np.float64)
    kept = totals > 1
    if not kept.all():
        counts = counts[kept]
    N = totals[kept]
    spread = PairSums(k)
    estimate = spread
    if average != "items":
        estimate = PairSums(k, covariance=False)
    estimate.tally += [
        (totals > 0).sum(),
        len(N),
        totals.sum(),
        N.sum(),
        (1 / N).sum(),
        (2 / (N * (N - 1))).sum(),
    ]
    if average == "items":
        _add_inputs(spread, counts, N, np.ones(len(N)), majority_errors(counts, N))
    else:
        small = N <= LARGE_GROUP
        _add_inputs(estimate, counts, N, N, np.zeros(len(N)))
        few = N[small]
        _add_inputs(spread, counts[small], few, few, np.zeros(len(few)))
        _add_rows(spread, counts[~small])
    return estimate, spread


def majority_errors(counts: csr_array, N: FloatArray) -> FloatArray:
    """Per item, how often the majority of the other votes misses one vote; ties are split evenly.

    The majority of the others is a classifier that did not see the vote, so its error is at least
    the Bayes error, the lowest chance of missing a vote.

    >>> majority_errors(csr_array([[3, 0], [2, 1], [1, 1]]), np.array([3.0, 3.0, 2.0]))
    array([0.        , 0.66666667, 1.        ])
    """
    if not len(N):
        return np.zeros(0)
    votes = counts.data
    starts = counts.indptr[:-1]
    item = counts.tocoo().row
    first = np.maximum.reduceat(votes, starts)  # most votes of a class
    leads = votes == first[item]
    n_first = np.add.reduceat(leads, starts, dtype=np.float64)
    below = np.where(leads, 0.0, votes)
    second = np.maximum.reduceat(below, starts)  # most votes of the classes behind it
    follows = (below == second[item]) & ~leads
    n_second = np.add.reduceat(follows, starts, dtype=np.float64)
    # A vote for a class below the first is missed: the first still leads without it. One for a
    # class that leads alone is found where it leads by two or more, and by one it ties with the
    # second. Where several lead, it falls behind the others and is missed.
    found = np.where(first - second >= 2, 1.0, 1 / (1 + n_second))
    return np.asarray(1 - first / N * np.where(n_first == 1, found, 0.0))


def _add_inputs(
    sums: PairSums,
    counts: csr_array,
    N: FloatArray,
    weight: FloatArray,
    missed: FloatArray,
) -> None:
    """Inputs as units: Z = ω (n nᵀ - diag(n)) / (N (N-1)), ρ = ω n / N.

    ``missed`` is the error of a classifier on each input.
    """
    n_inputs, k = counts.shape
    for block in row_blocks(n_inputs, k, least=SPARSE_ROWS * k):
        n = counts[block]
        votes = N[block]
        omega = weight[block]
        per_pair = omega / (votes * (votes - 1))
        units = Units(
            a=n * -per_pair[:, None],
            s=per_pair,
            H=n,
            rho=n * (omega / votes)[:, None],
            N=omega,
            miss=omega * missed[block],
        )
        sums.add(units)


def _add_rows(spread: PairSums, counts: csr_array) -> None:
    """Rows as units: Z = c pᵀ + p cᵀ - p pᵀ, with p the class shares of the other rows."""
    # Rows of the same input and class are alike: one unit for each entry of the counts, as often
    # as the entry says. Z = diag(c) - (c - p)(c - p)ᵀ.
    k = counts.shape[1]
    item = counts.tocoo().row
    n_others = np.asarray(counts.sum(axis=1)) - 1
    for block in row_blocks(counts.nnz, k, least=SPARSE_ROWS * k):
        own = item[block]
        c = one_hot(counts.indices[block].astype(np.intp), k)
        p = (counts[own] - c) * (1 / n_others[own])[:, None]
        one = np.ones(len(own))
        units = Units(a=c, s=-one, H=c - p, rho=c, N=one, miss=np.zeros(len(own)))
        spread.add(units, counts.data[block])


def _as_matrix(
    estimate: PairSums,
    spread: PairSums,
    names: Array,
    average: str,
    none: str,
    argument: str,
) -> CollisionMatrix:
    items, covered, rows, covered_rows, inverse_votes, inverse_pairs = (
        estimate.tally.tolist()
    )
    if covered == 0:
        raise ValueError(
            f"{none}, so nothing can be counted: ask for a second label on some of the "
            "items, or estimate with CollisionClassifier or estimate_collisions, which "
            "need one label per input"
        )
    counts = estimate.rho
    if not counts.all():
        raise ValueError(
            f"{argument} has classes {names[counts == 0].tolist()} that never occur "
            "among inputs with two labels or more: nothing to count, leave them out"
        )
    S, _ = estimate.ratio()
    _, variance = spread.ratio()
    # A class whose only covered label is alone on its item gives rounding like -1e-17 on the
    # diagonal.
    S = np.maximum(S, 0.0)
    pber_variance = spread.error()[1]
    counted = CollisionMatrix(
        S,
        counts / counts.sum(),
        names,
        np.sqrt(variance),
        float(np.sqrt(pber_variance)),
        counts,
        spread.covariance(),
        covered_rows / rows,
        Method.COUNTED,
        diagnostics=Diagnostics(
            labels=int(rows),
            distinct_inputs=int(covered),
            inputs_seen_once=int(items - covered),
        ),
    )
    if average == "rows":
        return counted
    # Of the majority of the other votes.
    error, error_variance = estimate.held_out_error()
    diagnostics = replace(
        counted.diagnostics,
        inverse_votes=inverse_votes / covered,
        inverse_pairs=inverse_pairs / covered,
    )
    return replace(
        counted,
        coverage=covered / items,
        method=Method.COUNTED_VOTES,
        diagnostics=diagnostics,
        held_out_error=error,
        held_out_stderr=float(np.sqrt(error_variance)),
    )
