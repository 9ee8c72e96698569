"""One dict with everything a report says, which JSON can hold as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collidescope.show import _sections as part
from collidescope.show import words
from collidescope.show._rows import rows_to_look_at, text
from collidescope.show._source import resolve
from collidescope.show.matrices import leaf_order

FORMAT = "collidescope.summary"
FORMAT_VERSION = 1
TITLE = "Which classes collide?"


def summarise(
    source: Any,
    X: Any = None,
    y: npt.ArrayLike | None = None,
    *,
    y_pred: Any = None,
    rows: Any = None,
    image_shape: tuple[int, ...] | None = None,
    control: Any = None,
    title: str | None = None,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """The whole answer as plain text, numbers and lists: what the report shows and what JSON output holds.

    Parameters
    ----------
    source : CollisionClassifier, CollisionMatrix or array of shape (n, K)
        A fitted classifier (any object with ``collision_matrix_``, and ``posteriors_`` where rows are to be shown), a
        matrix, or held-out posteriors, which need ``y``. The columns of a DataFrame that are called like the labels
        are matched by name.
    X : rows that the classifier was fitted on, or that belong to the posteriors, optional
        Shown beside the most ambiguous rows. A classifier without ``posteriors_`` (one that was loaded) is asked about
        ``X``, which should be rows that it has not seen.
    y : array of n labels, optional
        Needed to find labels that look wrong, and for an audit.
    y_pred : predictions of a classifier on the same rows, optional
        Labels, posteriors or the fitted classifier: adds an :func:`~collidescope.audit`.
    rows : DataFrame of n rows, optional
        Shown in the place of ``X``, which may be encoded.
    image_shape : tuple, optional
        Such as (28, 28): the rows of ``X`` are images of this shape, channels first or last. Rows that are
        two-dimensional arrays are shown as images without it.
    control : ShuffledControl, optional
        What :func:`~collidescope.shuffled_control` returned.
    title : str, optional
    notes : list of text, optional
        Shown as they are.

    Returns
    -------
    dict
        ``format``, ``version``, ``title``, ``n_classes``, ``n_rows``, ``level``; ``headline``, ``what_to_do`` and
        ``notes`` (sentences); ``top_collisions``, ``pber``, ``bayes_error``; ``classes`` (text) with ``matrix``,
        ``low``, ``high``, ``joint``, ``priors``, ``counts``, ``leaf_order`` and ``ceilings``; ``merge_path`` (in
        columns: at each step group ``second`` joins ``first``, each known by the number of its first class);
        ``ambiguous_rows``, ``audit``, ``trust``. Beyond 200 classes everything from ``classes`` to ``merge_path`` is of
        the 100 that collide most with all others as one last class, and ``complete`` is False.

    Examples
    --------
    >>> from collidescope import CollisionMatrix
    >>> cm = CollisionMatrix([[0.9, 0.1, 0], [0.1, 0.9, 0], [0, 0, 1]], classes=["cat", "dog", "car"])
    >>> summary = summarise(cm)
    >>> summary["top_collisions"][0]["sentence"]
    'An input labelled cat would be labelled dog in 10.0% of cases if it were seen again.'
    >>> print(summary["what_to_do"][0])
    Merge cat and dog if your use allows it: they make up 100% of all collisions, ...
    """
    known = resolve(source, X, y)
    cm = known.matrix
    names = [text(name) for name in cm.classes.tolist()]
    shown, keep = part.shown_part(cm)
    complete = len(keep) == cm.n_classes
    visible = [names[k] for k in keep]
    if not complete:
        visible.append(f"({cm.n_classes - len(keep):,} other classes)")
    order = leaf_order(shown.joint[: len(keep), : len(keep)]).tolist()
    bounds = cm.bayes_error_bounds()
    interval = cm.pber_interval(part.LEVEL)
    method = text(cm.info.get("method", "not recorded"))
    features = getattr(known.model, "feature_names_in_", None)
    summary: dict[str, Any] = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "title": TITLE if title is None else check_text(title, "title"),
        "n_classes": cm.n_classes,
        "n_rows": None if cm.counts is None else round(float(cm.counts.sum()), 3),
        "level": part.LEVEL,
        "how": method,
        "coverage": cm.coverage,
        "pber": {
            "value": cm.pber,
            "low": None if interval is None else interval[0],
            "high": None if interval is None else interval[1],
        },
        "bayes_error": {"low": bounds[0], "high": bounds[1]},
        "top_collisions": part.top_pairs(cm, names),
        "complete": complete,
        "classes": visible,
        "matrix": shown.matrix,
        **part.intervals(cm, keep, shown.n_classes),
        "joint": shown.joint,
        "priors": shown.priors,
        "counts": shown.counts,
        "leaf_order": order if complete else [*order, len(keep)],
        "ceilings": part.ceilings(cm, keep, names, known),
        "merge_path": part.merge_path(shown, cm),
        "ambiguous_rows": rows_to_look_at(
            known, names, X, rows, image_shape, None if features is None else [text(name) for name in features]
        ),
        "audit": part.audited(known, names, y_pred, X),
        "trust": part.trust(known, control),
        "notes": _notes(notes),
    }
    if not complete:
        summary["notes"].insert(0, words.left_out(cm.n_classes, len(keep)))
    summary["headline"] = words.headline(summary, method, cm.coverage)
    plain: dict[str, Any] = _plain(summary)
    plain["what_to_do"] = words.what_to_do(plain)
    return plain


def check_text(value: Any, name: str) -> str:
    """``value`` as text that can be written to a file."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text, got {type(value).__name__}: {value!r}")
    return text(value)


def _notes(notes: Any) -> list[str]:
    if isinstance(notes, str):
        notes = [notes]
    if not isinstance(notes, Sequence | np.ndarray):
        raise ValueError(f"notes must be a list of texts, got {type(notes).__name__}")
    return [check_text(note, "every entry of notes") for note in notes]


def _plain(value: Any) -> Any:
    """Python's own numbers, lists and text all the way down; what is not finite becomes None."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
