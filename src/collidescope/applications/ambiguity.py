"""Which rows are ambiguous, and which carry a label that looks wrong?

Both questions are asked of posteriors p of rows that the model did **not** see in training. An ambiguous row is one
that several classes share; a suspect label is one that stands alone against posteriors that agree on another class.

A label can be wrong, or its row can truly belong to two classes: p alone gives both a small p(label). What tells them
apart are the other rows: wrong labels are made by a process that does not look at the row closely, so it also shows
where nothing is ambiguous. With R[j, l] the share of label l among the stray labels of rows that clearly are of class j
(the clearer a row, the more it counts)::

    score = log Σ_{j≠l} p_j R[j, l] - log p_l

the log odds, up to a constant, that a row with label l is a row of another class whose label strayed. Where stray
labels go anywhere (R even), the order is that of -p(label); where they go to one neighbour (4 for 9), it follows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope.applications._inputs import Names, posteriors_of, scored
from collidescope.equations.moments import row_blocks

#: A row is clear when one class has at least this posterior: odds of 4 to 1 against all others together.
CLEAR = 0.8
#: A label is suspect when the row is clear and its label has at most this posterior: one chance in ten.
SUSPECT = 0.1
#: Pseudo-count of stray labels of each class, spread evenly: with none seen every direction is alike.
PSEUDO_COUNT = 2.0
#: Posteriors below this are not told apart: no finite sample knows them, and log 0 would outrank everything.
SMALLEST = 1e-6


def ambiguous(
    clf_or_posteriors: Any,
    X: Any = None,
    y: npt.ArrayLike | None = None,
    *,
    by: str = "entropy",
    top: int | None = None,
    classes: Names | None = None,
) -> pd.DataFrame:
    """Rows in order of ambiguity, or of how wrong their label looks, as a table to write with ``to_csv``.

    Parameters
    ----------
    clf_or_posteriors, X, y, classes
        As in :func:`audit`: held-out posteriors, or a fitted classifier and its rows. Without ``y`` no label is
        suspect.
    by : "entropy", "margin" or "label"
        Most entropy first; smallest lead of the first class over the second first; most suspect label first
        (:func:`label_error_scores`, needs ``y``).
    top : int, optional
        Keep this many rows.

    Returns
    -------
    DataFrame
        ``index`` (row number), ``label``, ``predicted``, ``second``, ``p_label``, ``p_first``, ``p_second``,
        ``entropy`` (in nats) and ``kind``. "clear": one class has a posterior of at least 0.8, and it is the label.
        "suspect label": one class has at least 0.8, and the label at most 0.1. "ambiguous": all other rows.

    Examples
    --------
    >>> P = [[0.98, 0.02], [0.45, 0.55], [0.99, 0.01]]
    >>> ambiguous(P, y=["cat", "cat", "dog"])[["index", "label", "predicted", "kind"]]
       index label predicted           kind
    0      1   cat       dog      ambiguous
    1      0   cat       cat          clear
    2      2   dog       cat  suspect label
    """
    check.check_choice(by, ["entropy", "margin", "label"], "by")
    if top is not None:
        check.check_count(top, "top", least=0)
    if by == "label" and y is None:
        raise ValueError("y is needed for by='label': without labels none can be suspect")
    codes: IntArray | None = None
    if y is None:
        P, names, _ = posteriors_of(clf_or_posteriors, X, None, classes, "clf_or_posteriors")
    else:
        P, codes, names, _ = scored(clf_or_posteriors, X, y, classes, "clf_or_posteriors")
    n = len(P)
    rows = np.arange(n)
    # Ties go to the class that comes first, as in argmax.
    first, second = P.argmax(axis=1), np.empty(n, dtype=np.intp)
    entropy = np.empty(n)
    for block in row_blocks(*P.shape):
        entropy[block] = entropies(P[block])
        others = P[block].copy()
        np.put_along_axis(others, first[block, None], -1.0, axis=1)
        second[block] = others.argmax(axis=1)
    p_first, p_second = P[rows, first], P[rows, second]
    kind = np.where(p_first >= CLEAR, "clear", "ambiguous")
    p_label = np.full(n, np.nan)
    labels: npt.NDArray[Any] = np.full(n, None)
    if codes is not None:
        p_label, labels = P[rows, codes], names[codes]
        stray = (codes != first) & (p_first >= CLEAR)
        kind = np.where(stray, np.where(p_label <= SUSPECT, "suspect label", "ambiguous"), kind)
    if by == "label" and codes is not None:
        key = -_scores(P, codes)
    else:
        key = -entropy if by == "entropy" else p_first - p_second
    chosen = np.argsort(key, kind="stable")[:top]
    columns = {"index": rows, "label": labels, "predicted": names[first], "second": names[second], "p_label": p_label}
    columns |= {"p_first": p_first, "p_second": p_second, "entropy": entropy, "kind": kind}
    return pd.DataFrame({name: values[chosen] for name, values in columns.items()})


def label_error_scores(P: npt.ArrayLike, y: npt.ArrayLike, *, classes: Names | None = None) -> FloatArray:
    """How likely the label of each row is wrong: higher is more suspect; a ranking, not a probability.

    Told apart from inherent ambiguity by where labels stray on rows that are clear (see the module's docstring). With
    no stray labels to learn from, the order is that of p(label), lowest first.
    ``P`` are held-out posteriors, n×K, with columns in the order of ``classes`` (default the sorted distinct labels).

    Examples
    --------
    >>> label_error_scores([[0.98, 0.02], [0.45, 0.55], [0.99, 0.01]], ["cat", "cat", "dog"]).argsort()
    array([0, 1, 2])
    """
    posteriors, codes, *_ = scored(P, None, y, classes)
    return _scores(posteriors, codes)


def stray_labels(P: FloatArray, codes: IntArray) -> FloatArray:
    """R[j, l]: among rows that clearly are of class j and carry another label, the share with label l; rows sum to 1.

    A row counts ((p - CLEAR) / (1 - CLEAR))² with p its largest posterior: near ``CLEAR`` labels still stray because
    the row is ambiguous. ``PSEUDO_COUNT`` labels spread over the K - 1 others are added to those seen.
    """
    k = P.shape[1]
    clarity = np.maximum((P.max(axis=1) - CLEAR) / (1 - CLEAR), 0.0) ** 2
    counts = np.bincount(P.argmax(axis=1) * k + codes, clarity, k * k).reshape(k, k)
    np.fill_diagonal(counts, 0.0)
    counts += PSEUDO_COUNT / (k - 1) * (1 - np.eye(k))
    return counts / counts.sum(axis=1, keepdims=True)


def _scores(P: FloatArray, codes: IntArray) -> FloatArray:
    R = stray_labels(P, codes)
    towards = np.ascontiguousarray(R.T)
    strayed = np.empty(len(P))
    for block in row_blocks(*P.shape):
        # R[l, l] = 0: the label's own class adds nothing
        strayed[block] = np.einsum("nj,nj->n", P[block], towards[codes[block]])
    own = P[np.arange(len(P)), codes]
    return np.log(np.maximum(strayed, SMALLEST * R[R > 0].min())) - np.log(np.maximum(own, SMALLEST))


def entropies(P: FloatArray) -> FloatArray:
    """Entropy of every distribution along the last axis, in nats."""
    return -(P * np.log(P, out=np.zeros_like(P), where=P > 0)).sum(axis=-1) + 0.0  # no -0.0
