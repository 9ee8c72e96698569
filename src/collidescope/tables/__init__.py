"""Tables from files to posteriors: reading, screening, encoding, and the classifier that keeps the encoding."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from collidescope import _checks as check
from collidescope import _store, trust
from collidescope._checks import FloatArray
from collidescope._models import ModelArgument, parse_model
from collidescope.classifier import CollisionClassifier, CollisionWarning
from collidescope.loading import restore
from collidescope.tables.encoding import Float32Array, TableEncoder, as_frame, check_columns
from collidescope.tables.reading import Table, read_table
from collidescope.tables.screening import Screening, repeat_notes, repeated, screen

__all__ = ["Screening", "Table", "TableClassifier", "TableEncoder", "load", "read_table", "screen"]

logger = logging.getLogger("collidescope")
OWN = ("drop", "keep", "categories")


class TableClassifier(ClassifierMixin, BaseEstimator):
    """Collision matrix and posteriors from a table of mixed columns: numbers, categories, dates, text, with gaps.

    Columns are encoded without a look at the labels (see :mod:`collidescope.tables.encoding`), then the encoded table
    is given to a :class:`CollisionClassifier`. The encoding is part of the saved model: :meth:`predict_proba` takes
    raw rows.

    Parameters
    ----------
    drop : columns not to use
    keep : columns to use even if they look like ids
        A column that counts the rows, or has another value in each, is left out otherwise.
    categories : columns whose values are names, even where they look like numbers
    **parameters
        Those of :class:`CollisionClassifier`, with the same defaults.

    Attributes
    ----------
    classifier_ : CollisionClassifier
        Fitted on the encoded table; its attributes (``collision_matrix_``, ``posteriors_``, …) are those of this one.
    encoder_ : TableEncoder
    screening_ : Screening
        Ids, columns that give the label away, groups of rows.
    notes_ : list of str
        What was left out, what is missing, what to look at; also logged, by the logger ``collidescope``.
    cautions_ : list of str
        Those of the notes that are also warnings.
    label_ : str or None
        The name of ``y``, where it has one.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"weight": [3.1, 4.2, None, 30, 28, 4] * 20, "fur": ["long", "short", "short"] * 40})
    >>> animal = (["cat"] * 3 + ["dog"] * 3) * 20
    >>> with warnings.catch_warnings(action="ignore"):  # rows repeat here
    ...     model = TableClassifier(cv=2, random_state=0).fit(rows, animal)
    >>> model.notes_[0]
    'missing cells (of 120 rows): weight 20'
    >>> model.predict(pd.DataFrame({"weight": [29], "fur": ["short"]}))
    array(['dog'], dtype='<U3')
    """

    def __init__(
        self, *, drop: Sequence[str] = (), keep: Sequence[str] = (), categories: Sequence[str] = (), **parameters: Any
    ) -> None:
        engine = CollisionClassifier(**parameters)
        for name, value in (
            engine.get_params(deep=False) | {"drop": drop, "keep": keep, "categories": categories}
        ).items():
            setattr(self, name, value)

    def fit(
        self, X: Any, y: Any, sample_weight: npt.ArrayLike | None = None, groups: npt.ArrayLike | None = None
    ) -> TableClassifier:
        """Screen and encode the columns, then fit the classifier.

        Parameters
        ----------
        X : DataFrame of pandas or polars
        y : array of n labels
        sample_weight : array of n weights, optional
        groups : array of n group labels, optional
            Rows of one group (one patient, one document) share a fold. A column of this name is not used as a feature.
        """
        for name in OWN:
            if isinstance(getattr(self, name), str):
                raise ValueError(f"{name} must be a list of columns, got the text {getattr(self, name)!r}")
        table, labels = as_frame(X), check.check_labels(y)
        check_columns(table, [*self.drop, *self.keep, *self.categories])
        if len(labels) != len(table):
            raise ValueError(f"X and y must have the same number of rows, got {len(table)} and {len(labels)}")
        own = {
            "as asked": list(self.drop),
            "it names the groups": [name for name in table if _is_column(groups, table, name)],
        }
        left_out = {name: why for why, names in own.items() for name in names}
        self.screening_ = screen(table.drop(columns=list(left_out)), labels, keep={*self.keep, *self.categories})
        self.encoder_ = TableEncoder.fit(table, categories=self.categories, left_out=left_out | self.screening_.ids)
        encoded, met = self.encoder_.transform(table)
        others = [
            f"column {name!r} is left out: {why}"
            for name, why in self.encoder_.left_out.items()
            if name not in self.screening_.ids
        ]
        self.notes_ = [*self.screening_.notes(), *others, *met, *self.encoder_.doubts(table)]
        self.cautions_ = self.screening_.cautions()
        self._tell(self.notes_, self.cautions_)
        self.label_ = str(y.name) if getattr(y, "name", None) is not None else None
        self.feature_names_in_, self.n_features_in_ = np.array(table.columns, dtype=object), table.shape[1]
        again = repeated(encoded, groups)
        logger.info(f"{len(labels):,} rows × {len(self.encoder_.types)} columns → {encoded.shape[1]} features")
        given = {"sample_weight": sample_weight, "groups": groups}
        engine = {name: value for name, value in self.get_params(deep=False).items() if name not in OWN}
        self.classifier_ = CollisionClassifier(**engine).fit(
            encoded, labels, **{name: value for name, value in given.items() if value is not None}
        )
        repeats = repeat_notes(again, self._losses(labels))
        self.notes_, self.cautions_ = self.notes_ + repeats, self.cautions_ + repeats
        self._tell(repeats, repeats)
        return self

    def _tell(self, notes: Sequence[str], cautions: Sequence[str]) -> None:
        for note in notes:
            logger.info(note)
        for caution in cautions:
            warnings.warn(caution, CollisionWarning, stacklevel=3)

    def _losses(self, labels: npt.NDArray[Any]) -> FloatArray | None:
        """Held-out Brier scores, whose mean is PBER at the priors of the table."""
        P = self.classifier_.posteriors_
        if not isinstance(self.priors, str) or self.priors != "empirical" or np.isnan(P).any():
            return None
        return np.asarray(((P - np.eye(P.shape[1])[np.searchsorted(self.classes_, labels)]) ** 2).sum(axis=1))

    def encode(self, X: Any) -> Float32Array:
        """Raw rows as the classifier sees them; what is odd about them is a :class:`CollisionWarning`."""
        check_is_fitted(self, "classifier_")
        encoded, met = self.encoder_.transform(X)
        if odd := [note for note in met if not note.startswith("missing cells")]:
            warnings.warn("; ".join(odd), CollisionWarning, stacklevel=3)
        return encoded

    def predict_proba(self, X: Any) -> FloatArray:
        """Posteriors of raw rows."""
        return self.classifier_.predict_proba(self.encode(X))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most likely class of raw rows."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def similarity(self, A: Any, B: Any) -> FloatArray:
        """Sim: the probability that a row of ``A`` and a row of ``B`` share a class, len(A) × len(B)."""
        return self.classifier_.similarity(self.encode(A), self.encode(B))

    def shuffled_control(self, X: Any, y: Any) -> trust.ShuffledControl:
        """Refit on shuffled labels: every row of S must fall to the priors (see :mod:`collidescope.trust`)."""
        return trust.shuffled_control(self, X, y)

    def learning_curve(self, X: Any, y: Any) -> trust.LearningCurve:
        """Refit on n/4, n/2 and n rows: would more data still lower PBER? (see :mod:`collidescope.trust`)."""
        return trust.learning_curve(self, X, y)

    def save(self, path: str | Path) -> None:
        """Write encoder and classifier to one file: see :func:`collidescope.load`."""
        _store.write(path, "model", self.export())

    def export(self) -> dict[str, Any]:
        """A tree of plain values and arrays: what :meth:`save` writes."""
        check_is_fitted(self, "classifier_")
        own = {name: list(getattr(self, name)) for name in OWN} | {"notes": self.notes_, "label": self.label_}
        return {"table": own | {"encoder": vars(self.encoder_)}, "classifier": _exported(self.classifier_)}

    @classmethod
    def restore(cls, tree: Mapping[str, Any], classifier: CollisionClassifier) -> TableClassifier:
        """The inverse of :meth:`export`, around the restored classifier; LookupError, TypeError or ValueError."""
        lists = {name: [check.check_text(part) for part in tree[name]] for name in (*OWN, "notes")}
        notes = lists.pop("notes")
        new = cls(**lists, **classifier.get_params(deep=False))
        new.classifier_, new.encoder_, new.notes_ = classifier, TableEncoder.restore(tree["encoder"]), notes
        new.label_ = None if tree["label"] is None else check.check_text(tree["label"])
        if (width := len(new.encoder_.feature_names)) != classifier.n_features_in_:
            raise ValueError(f"it encodes {width} features for {classifier.n_features_in_}")
        return new

    def __getattr__(self, name: str) -> Any:
        # What is learned beside the encoding is the classifier's.
        if name.endswith("_") and not name.startswith("_") and "classifier_" in vars(self):
            return getattr(self.classifier_, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __sklearn_is_fitted__(self) -> bool:
        return "classifier_" in vars(self)


# scikit-learn, help() and documentation see every parameter by its name.
_INIT = inspect.signature(TableClassifier.__init__).parameters
_ENGINE = [part.replace(kind=part.KEYWORD_ONLY) for part in inspect.signature(CollisionClassifier).parameters.values()]
TableClassifier.__init__.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [_INIT["self"], *_ENGINE, *(_INIT[name] for name in OWN)]
)


def _is_column(groups: Any, table: Any, name: str) -> bool:
    return getattr(groups, "name", None) == name and name in table


def _exported(classifier: CollisionClassifier) -> dict[str, Any]:
    tree = classifier.export()
    if isinstance(tree, tuple):
        import json

        tree = {"arrays": tree[0], "description": json.loads(json.dumps(tree[1], default=lambda value: value.tolist()))}
    return tree


def load(path: str | Path, model: ModelArgument | None = None) -> CollisionClassifier | TableClassifier:
    """A model from a file written by ``save``. No code of the file is run.

    It is a :class:`CollisionClassifier`, or a :class:`TableClassifier` where the file holds the encoding of a table.

    Parameters
    ----------
    path : file
    model : callable or ("pairwise", callable), optional
        As in the fit, for a custom module: files hold weights, not code.
    """
    if model is not None:
        parse_model(model)
    tree = _store.read(path, "model")
    try:
        own = tree["classifier"] if "table" in tree else tree
        classifier = restore(own["arrays"], own["description"], path, model)
        return TableClassifier.restore(tree["table"], classifier) if "table" in tree else classifier
    except _store.ModelFileError:
        raise
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        words = f"path {str(path)!r} is damaged or was edited: {type(error).__name__}: {error}"
        raise _store.ModelFileError(words) from None
