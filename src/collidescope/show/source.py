"""What a summary is made from: a matrix, and the held-out posteriors and labels of its rows where they are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope.applications.audit import predicted_codes
from collidescope.estimate import collision_matrix_from_posteriors
from collidescope.matrix import CollisionMatrix

WANTED = "a fitted CollisionClassifier, a CollisionMatrix or held-out posteriors (n×K, with y)"


@dataclass(frozen=True)
class Source:
    """A collision matrix and what is known about its rows."""

    matrix: CollisionMatrix
    #: (m, K), of the rows that were scored; their numbers among the ``n_given`` rows (folds may have been interrupted,
    #: rows of weight 0 are left out); class numbers of their labels.
    posteriors: FloatArray | None = None
    rows: IntArray | None = None
    codes: IntArray | None = None
    n_given: int | None = None
    #: Where the attributes came from.
    model: Any = None
    #: Were the posteriors asked of the model now, so that nothing says that it did not train on these rows?
    fresh: bool = False

    def predictions(self, y_pred: Any, X: Any) -> IntArray:
        """Class numbers that a classifier under audit gave the scored rows (``y_pred`` is of all given rows)."""
        if self.posteriors is None or self.rows is None or self.codes is None:
            missing = "held-out posteriors" if self.posteriors is None else "labels"
            raise ValueError(
                f"y_pred can be audited only beside {missing}, and there are none: "
                f"pass a fitted classifier or posteriors as source, and y"
            )
        said = predicted_codes(y_pred, X, self.matrix.classes)
        if len(said) != self.n_given:
            raise ValueError(f"y_pred must have one entry per row ({self.n_given}), got {len(said)}")
        return said[self.rows]


def resolve(source: Any, X: Any, y: npt.ArrayLike | None) -> Source:
    """The :class:`Source` meant by the arguments of :func:`~collidescope.summarise`, with every check."""
    if isinstance(source, type):
        raise ValueError(f"source must be {WANTED}, got the class {source.__name__}")
    if isinstance(source, CollisionMatrix):
        return Source(source, n_given=_n_rows(X))
    if hasattr(source, "collision_matrix_"):
        return _from_model(source, X, y)
    if hasattr(source, "fit"):
        raise ValueError(
            f"source must be {WANTED}, got {type(source).__name__} without collision_matrix_: "
            f"fit a CollisionClassifier, or pass crossfit_posteriors(classifier, X, y)"
        )
    if isinstance(source, str | bytes | dict) or source is None:
        raise ValueError(f"source must be {WANTED}, got {type(source).__name__}")
    return _from_posteriors(source, X, y)


def _from_model(model: Any, X: Any, y: npt.ArrayLike | None) -> Source:
    cm = model.collision_matrix_
    if not isinstance(cm, CollisionMatrix):
        raise ValueError(f"source has a collision_matrix_ that is no CollisionMatrix, got {type(cm).__name__}")
    held_out = getattr(model, "posteriors_", None)
    fresh = held_out is None and X is not None and hasattr(model, "predict_proba")
    if held_out is None and not fresh:
        return Source(cm, n_given=_n_rows(X), model=model)
    P = np.asarray(model.predict_proba(X) if fresh else held_out)
    if P.ndim != 2 or P.shape[1] != cm.n_classes:
        raise ValueError(f"the posteriors of source must have shape (n, {cm.n_classes}), got {P.shape}")
    rows = np.flatnonzero(~np.isnan(P).any(axis=1))
    scored = P if len(rows) == len(P) else P[rows]
    scored = check.check_posteriors(scored, "the posteriors of source", cm.n_classes)
    given = _n_rows(X)
    if given is not None and given != len(P):
        raise ValueError(
            f"X must hold the {len(P)} rows that source was fitted on, got {given} rows: "
            f"for others pass source.predict_proba(X) as source"
        )
    return Source(cm, scored, rows, _codes(y, cm, len(P), rows), len(P), model, fresh)


def _from_posteriors(P: Any, X: Any, y: npt.ArrayLike | None) -> Source:
    if y is None:
        raise ValueError(
            "y is needed with posteriors, got None: rates with intervals take labels "
            "(without any pass collision_matrix_from_posteriors(P) as source)"
        )
    posteriors, codes, classes = check.labelled_posteriors(P, y, name="source")
    given = _n_rows(X)
    if given is not None and given != len(posteriors):
        raise ValueError(f"X and y must have the same number of rows, got {given} and {len(posteriors)}")
    cm = collision_matrix_from_posteriors(posteriors, y, classes=classes)
    return Source(cm, posteriors, np.arange(len(posteriors)), codes, len(posteriors))


def _codes(y: npt.ArrayLike | None, cm: CollisionMatrix, n_rows: int, rows: IntArray) -> IntArray | None:
    if y is None:
        return None
    codes = check.encode_labels(y, cm.classes)
    if len(codes) != n_rows:
        raise ValueError(f"y must have one label for each of the {n_rows} rows of source, got {len(codes)}")
    return codes[rows]


def _n_rows(X: Any) -> int | None:
    if X is None:
        return None
    shape = X.shape if hasattr(X, "shape") else (len(X),) if hasattr(X, "__len__") else ()
    if not shape or isinstance(X, str):
        raise ValueError(f"X must be a table of rows, got {type(X).__name__}")
    return int(shape[0])
