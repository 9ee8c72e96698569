"""Which rows are ambiguous, and which carry a label that looks wrong?

Both questions are asked of posteriors p of rows that the model did **not** see in training. An ambiguous row is one
that several classes share; a suspect label is one that stands alone against posteriors that agree on another class.

A label can be wrong, or its row can truly belong to two classes: p alone gives both a small p(label). What tells them
apart is the company: wrong labels are made by a process that does not look at the row closely, so it also shows where
nothing is ambiguous. With R[j, l] the share of label l among the stray labels of rows that clearly are of class j
(the clearer a row, the more it counts)::

    score = log Σ_{j≠l} p_j R[j, l] - log p_l

the log odds, up to a constant, that a row with label l is a row of another class whose label strayed. Where stray
labels go anywhere (R even), the order is that of -p(label); where they go to one neighbour (4 for 9), it follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope.equations.moments import row_blocks

if TYPE_CHECKING:
    import pandas as pd

#: A row is clear when one class has at least this posterior: odds of 4 to 1 against all others together.
CLEAR = 0.8
#: A label is suspect when the row is clear and its label has at most this posterior: one chance in ten.
SUSPECT = 0.1
#: Stray labels of each class that are imagined, spread evenly: with none seen every direction is alike.
IMAGINED = 2.0
#: Posteriors below this are not told apart: no finite sample knows them, and log 0 would outrank everything.
SMALLEST = 1e-6

ORDERS = ("entropy", "margin", "label")


def ambiguous(
    clf_or_posteriors: Any,
    X: Any = None,
    y: npt.ArrayLike | None = None,
    *,
    by: str = "entropy",
    top: int | None = None,
    classes: Sequence[Any] | npt.NDArray[Any] | None = None,
) -> pd.DataFrame:
    """Rows in order of ambiguity, or of how wrong their label looks.

    Parameters
    ----------
    clf_or_posteriors : array of shape (n, K), or a fitted classifier with ``predict_proba``
        Posteriors of the rows by a model that did not train on them. For the rows that a ``CollisionClassifier`` was
        fitted on pass ``clf.posteriors_``, which are held out: the classifier itself has seen those rows, would
        agree with their labels and find neither ambiguity nor errors. A classifier is asked about ``X`` as it is.
    X : rows, needed by a classifier
    y : array of n labels, optional
        Without labels there is no suspect label.
    by : "entropy", "margin" or "label"
        Most entropy first; smallest lead of the first class over the second first; most suspect label first
        (:func:`label_error_scores`, needs ``y``).
    top : int, optional
        Keep this many rows.
    classes : K names in the order of the columns, default those of the classifier or the sorted distinct labels

    Returns
    -------
    DataFrame
        ``index`` (row number), ``label``, ``predicted``, ``second``, ``p_label``, ``p_first``, ``p_second``,
        ``entropy`` (in nats) and ``kind``: "suspect label" where one class has a posterior of at least 0.8 and the
        label one of at most 0.1; "ambiguous" where no class has 0.8, or the label is another class than that one but
        not beyond doubt; else "clear".

    Examples
    --------
    >>> P = [[0.98, 0.02], [0.45, 0.55], [0.99, 0.01]]
    >>> ambiguous(P, y=["cat", "cat", "dog"])[["index", "label", "predicted", "kind"]]
       index label predicted           kind
    0      1   cat       dog      ambiguous
    1      0   cat       cat          clear
    2      2   dog       cat  suspect label
    """
    import pandas as pd

    check.check_choice(by, ORDERS, "by")
    if top is not None:
        check.check_count(top, "top", least=0)
    if by == "label" and y is None:
        raise ValueError("y is needed for by='label': without labels none can be suspect")
    P, names = resolve_posteriors(clf_or_posteriors, X, y, classes, "clf_or_posteriors", "y")
    n = len(P)
    codes = None
    if y is not None:
        codes = check.encode_labels(y, names)
        check.check_same_length(P, codes, "the posteriors and y")
    rows = np.arange(n)
    # Ties go to the class that comes first, as in argmax.
    first, second = _first_two(P)
    p_first, p_second = P[rows, first], P[rows, second]
    entropy = np.concatenate([entropies(P[block]) for block in row_blocks(*P.shape)])
    kind = np.where(p_first >= CLEAR, "clear", "ambiguous")
    p_label = np.full(n, np.nan)
    labels: npt.NDArray[Any] = np.full(n, None)
    if codes is not None:
        p_label = P[rows, codes]
        labels = names[codes]
        stray = (codes != first) & (p_first >= CLEAR)
        kind = np.where(stray, np.where(p_label <= SUSPECT, "suspect label", "ambiguous"), kind)
    if by == "label" and codes is not None:
        key = -_scores(P, codes)
    else:
        key = -entropy if by == "entropy" else p_first - p_second
    chosen = np.argsort(key, kind="stable")[:top]
    columns = {
        "index": rows,
        "label": labels,
        "predicted": names[first],
        "second": names[second],
        "p_label": p_label,
        "p_first": p_first,
        "p_second": p_second,
        "entropy": entropy,
        "kind": kind,
    }
    return pd.DataFrame({name: values[chosen] for name, values in columns.items()})


def label_error_scores(
    P: npt.ArrayLike, y: npt.ArrayLike, *, classes: Sequence[Any] | npt.NDArray[Any] | None = None
) -> FloatArray:
    """How likely the label of each row is wrong: higher is more suspect; a ranking, not a probability.

    Told apart from inherent ambiguity by where labels stray on rows that are clear (see the module's docstring). With
    no stray labels to learn from, the order is that of p(label), lowest first.

    Parameters
    ----------
    P : array of shape (n, K)
        Posteriors of rows by models that did not train on them, such as ``CollisionClassifier.posteriors_``.
    y : array of n labels
    classes : K names in the order of the columns, default the sorted distinct labels

    Examples
    --------
    >>> label_error_scores([[0.98, 0.02], [0.45, 0.55], [0.99, 0.01]], ["cat", "cat", "dog"]).argsort()
    array([0, 1, 2])
    """
    posteriors, names = resolve_posteriors(P, None, y, classes, "P", "y")
    codes = check.encode_labels(y, names)
    check.check_same_length(posteriors, codes, "P and y")
    return _scores(posteriors, codes)


def stray_labels(P: FloatArray, codes: IntArray) -> FloatArray:
    """R[j, l]: among rows that clearly are of class j and carry another label, the share with label l; rows sum to 1.

    A row counts ((p - CLEAR) / (1 - CLEAR))² with p its largest posterior: near ``CLEAR`` labels still stray because
    the row is ambiguous. ``IMAGINED`` labels spread over the K - 1 others are added to those seen.
    """
    k = P.shape[1]
    clarity = np.maximum((P.max(axis=1) - CLEAR) / (1 - CLEAR), 0.0) ** 2
    counts = np.bincount(P.argmax(axis=1) * k + codes, clarity, k * k).reshape(k, k)
    np.fill_diagonal(counts, 0.0)
    counts += IMAGINED / (k - 1) * (1 - np.eye(k))
    return counts / counts.sum(axis=1, keepdims=True)


def _scores(P: FloatArray, codes: IntArray) -> FloatArray:
    rows = np.arange(len(P))
    R = stray_labels(P, codes)
    towards = np.ascontiguousarray(R.T)
    strayed = np.empty(len(P))
    for block in row_blocks(*P.shape):
        # R[l, l] = 0: the label's own class adds nothing
        strayed[block] = np.einsum("nj,nj->n", P[block], towards[codes[block]])
    return np.log(np.maximum(strayed, SMALLEST * R[R > 0].min())) - np.log(np.maximum(P[rows, codes], SMALLEST))


def _first_two(P: FloatArray) -> tuple[IntArray, IntArray]:
    """The two likeliest classes of every row, without sorting all of them."""
    first, second = P.argmax(axis=1), np.empty(len(P), dtype=np.intp)
    for block in row_blocks(*P.shape):
        others = P[block].copy()
        np.put_along_axis(others, first[block, None], -1.0, axis=1)
        second[block] = others.argmax(axis=1)
    return first, second


def entropies(P: FloatArray) -> FloatArray:
    """Entropy of every distribution along the last axis, in nats."""
    return -(P * np.log(P, out=np.zeros_like(P), where=P > 0)).sum(axis=-1) + 0.0  # no -0.0


def resolve_posteriors(
    source: Any,
    X: Any,
    y: npt.ArrayLike | None,
    classes: Sequence[Any] | npt.NDArray[Any] | None,
    name: str,
    y_name: str,
) -> tuple[FloatArray, npt.NDArray[Any]]:
    """(posteriors, class names) from a fitted classifier and rows, or from posteriors and names or labels.

    ``name`` and ``y_name`` are what the caller's arguments are called in messages.
    """
    if isinstance(source, type):
        raise ValueError(f"{name} must be a fitted classifier or posteriors, got the class {source.__name__}")
    if hasattr(source, "predict_proba"):
        kind = type(source).__name__
        if not hasattr(source, "classes_"):
            raise ValueError(f"{name} must be fitted, {kind} has no classes_: call fit first")
        if X is None:
            raise ValueError(f"X is needed: {name} is a classifier ({kind}), or pass held-out posteriors instead")
        names = check.check_classes(source.classes_)
        if classes is not None and check.check_classes(classes, len(names)).tolist() != names.tolist():
            raise ValueError(f"classes must be left out or equal those of {name}: it knows {names.tolist()}")
        return check.check_posteriors(source.predict_proba(X), f"predict_proba of {name}", len(names)), names
    P, _, names = check.labelled_posteriors(source, y, classes, name=name, y_name=y_name)
    return P, names
