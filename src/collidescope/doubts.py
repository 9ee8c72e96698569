"""What looks wrong with posteriors: labels in their place, columns in another order."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array

from collidescope import _checks as check
from collidescope._checks import Array, IntArray
from collidescope.equations.posterior import brier_scores


def posterior_warnings(
    P: Array | csr_array, codes: IntArray | None, most_numbers: int = 4_000_000
) -> list[str]:
    """What looks wrong with posteriors; of sparse ones, with some of the rows.

    >>> labels = np.arange(60) % 2
    >>> posterior_warnings(np.eye(2)[labels], labels)
    ['the posteriors agree with the labels on every row, with one row of numbers per class: are
    they made from the labels? Pass probabilities of a model that has not seen the rows']
    """
    n, n_classes = P.shape
    if isinstance(P, csr_array):
        step = max(n * n_classes // most_numbers, 1)
        some = None if codes is None else codes[::step]
        return posterior_warnings(P[::step].toarray(), some)
    if n < 20:
        return []
    certain = bool((P.max(axis=1) > 1 - check.EXACT_SUM).all())
    if codes is None and certain:
        return [
            "the posteriors are all 0 or 1 (labels, or predicted classes?): they say nothing of "
            "collisions. Pass probabilities, as of predict_proba"
        ]
    if codes is None:
        return []
    right = P.argmax(axis=1) == codes
    few_rows = len(np.unique(P[:1000], axis=0)) <= n_classes
    if right.all() and (certain or few_rows):
        return [
            "the posteriors agree with the labels on every row, with one row of numbers per class: "
            "are they made from the labels? Pass probabilities of a model that has not seen the "
            "rows"
        ]
    swapped = _better_order(P, codes)
    if swapped:
        return [swapped]
    if certain:
        return [
            "the posteriors are all 0 or 1 (predicted classes?): PBER is then twice the error "
            "rate. Pass probabilities, as of predict_proba"
        ]
    return []


def _better_order(P: Array, codes: IntArray, most_classes: int = 1000) -> str | None:
    """What to say where other columns than their own fit the classes far better, or None."""
    n, n_classes = P.shape
    if n_classes > most_classes:
        return None
    confusion = np.zeros((n_classes, n_classes))
    np.add.at(confusion, (codes, P.argmax(axis=1)), 1)
    _, columns = linear_sum_assignment(confusion, maximize=True)
    as_they_are = np.arange(n_classes)
    if (columns == as_they_are).all():
        return None
    right = np.trace(confusion) / n
    right_then = confusion[as_they_are, columns].sum() / n
    by_chance = 1 - float((confusion.sum(axis=1) ** 2).sum()) / n**2
    # sure and wrong as given, informative in the other order
    margin = 3 / np.sqrt(n)
    if brier_scores(P, codes).mean() < by_chance + margin:
        return None
    if brier_scores(P[:, columns], codes).mean() > by_chance - margin:
        return None
    return (
        f"the columns of the posteriors seem to be in another order than the classes: the class of "
        f"the largest is right on {right:.1%} of the rows, and with the columns in the order "
        f"{columns.tolist()[:20]} on {right_then:.1%}. "
        f"Columns go with the sorted classes, or pass classes="
    )
