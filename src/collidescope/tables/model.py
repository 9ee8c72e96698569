"""``TableClassifier``: a table encoder and a collision classifier in one, saved together without code."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from collidescope import _checks as check
from collidescope._checks import FloatArray
from collidescope._models import ModelArgument, parse_model
from collidescope.classifier import CollisionClassifier, CollisionWarning
from collidescope.loading import restore
from collidescope.matrix import CollisionMatrix
from collidescope.persistence import ModelFileError, read_model, write_model
from collidescope.tables.columns import Float32Array
from collidescope.tables.encoder import TableEncoder, check_columns
from collidescope.tables.screening import Screening, screen

#: Where a model file keeps the encoder, in its description and as the start of the names of its arrays.
KEY = "table"


class TableClassifier(ClassifierMixin, BaseEstimator):
    """Collision matrix and posteriors from a table of mixed columns: numbers, levels, dates, text, with gaps.

    Columns are encoded by skrub (see :mod:`collidescope.tables.columns`) without a look at the labels; the encoding is
    part of the saved model, so that :meth:`predict_proba` takes raw rows.

    Parameters
    ----------
    classifier : CollisionClassifier, optional
        Cloned before it is fitted.
    drop : columns not to use
    keep : columns to use even if they look like ids
        A column that counts the rows, or has another value in each, is left out otherwise.
    categories : columns whose values are names, even where they look like numbers

    Attributes
    ----------
    classifier_ : CollisionClassifier
        Fitted on the encoded table.
    encoder_ : TableEncoder
    screening_ : Screening
        Ids and columns that give the label away.
    notes_ : list of str
        What was left out, what is missing, what to look at.
    collision_matrix_, one_step_, posteriors_, priors_, classes_, history_, capacities_, interrupted_
        Those of ``classifier_``.

    Examples
    --------
    >>> import pandas as pd
    >>> from collidescope import CollisionClassifier
    >>> rows = pd.DataFrame({"weight": [3, 4, None, 30, 28, 4] * 20, "fur": ["long", "short", "short"] * 40})
    >>> animal = (["cat"] * 3 + ["dog"] * 3) * 20
    >>> model = TableClassifier(CollisionClassifier(cv=2, max_epochs=5, random_state=0)).fit(rows, animal)
    >>> model.notes_
    ['missing cells (of 120 rows): weight 20']
    >>> model.predict(pd.DataFrame({"weight": [29], "fur": ["short"]}))
    array(['dog'], dtype='<U3')
    """

    def __init__(
        self,
        classifier: CollisionClassifier | None = None,
        drop: Sequence[str] = (),
        keep: Sequence[str] = (),
        categories: Sequence[str] = (),
    ) -> None:
        self.classifier = classifier
        self.drop = drop
        self.keep = keep
        self.categories = categories

    def fit(self, X: Any, y: Any) -> TableClassifier:
        """Choose and encode the columns, then fit the classifier.

        Parameters
        ----------
        X : DataFrame
        y : array of labels
        """
        encoded = self.prepare(X, y)
        if self.screening_.leaks:
            warnings.warn("; ".join(self.screening_.notes()), CollisionWarning, stacklevel=2)
        return self.train(encoded, y)

    def prepare(self, X: Any, y: Any) -> Float32Array:
        """The first half of :meth:`fit`: what takes seconds. Returns the encoded table."""
        for name in ("drop", "keep", "categories"):
            if isinstance(getattr(self, name), str):
                raise ValueError(f"{name} must be a list of columns, got the text {getattr(self, name)!r}")
        if self.classifier is not None and not isinstance(self.classifier, CollisionClassifier):
            raise ValueError(f"classifier must be a CollisionClassifier, got {type(self.classifier).__name__}")
        check_columns(X, [*self.drop, *self.keep, *self.categories])
        labels = check.check_labels(y)
        if len(labels) != len(X):
            raise ValueError(f"X and y must have the same number of rows, got {len(X)} and {len(labels)}")
        table = X.set_axis([str(name) for name in X.columns], axis=1)
        keep = {*self.keep, *self.categories}
        self.screening_: Screening = screen(table.drop(columns=list(self.drop)), labels, keep=keep)
        left_out = dict.fromkeys(self.drop, "as asked") | self.screening_.ids
        self.encoder_ = TableEncoder.fit(table, categories=self.categories, left_out=left_out)
        encoded, met = self.encoder_.transform(table)
        others = [
            f"column {name!r} is left out: {why}"
            for name, why in self.encoder_.left_out.items()
            if name not in self.screening_.ids
        ]
        self.notes_ = [*self.screening_.notes(), *others, *met, *self.encoder_.doubts(table)]
        self.feature_names_in_ = np.array(table.columns, dtype=object)
        self.n_features_in_ = table.shape[1]
        return encoded

    def train(self, encoded: npt.NDArray[Any], y: Any) -> TableClassifier:
        """The second half of :meth:`fit`: what may take minutes."""
        self.classifier_: CollisionClassifier = clone(self._base).fit(encoded, y)
        return self

    @property
    def _base(self) -> CollisionClassifier:
        return CollisionClassifier(trees=True) if self.classifier is None else self.classifier

    def encode(self, X: Any) -> Float32Array:
        """Raw rows as the classifier sees them; what is odd about them is a :class:`CollisionWarning`."""
        check_is_fitted(self, "encoder_")
        encoded, met = self.encoder_.transform(_named(X))
        odd = [note for note in met if not note.startswith("missing cells")]
        if odd:
            warnings.warn("; ".join(odd), CollisionWarning, stacklevel=3)
        return encoded

    def predict_proba(self, X: Any) -> FloatArray:
        """Posteriors of raw rows."""
        return self.classifier_.predict_proba(self.encode(X))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most likely class of raw rows."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def save(self, path: str | Path) -> None:
        """Write encoder and classifier to one file (safetensors with a JSON header): see :func:`collidescope.load`."""
        check_is_fitted(self, "classifier_")
        arrays, description = self.classifier_.export()
        own, described = self.encoder_.export()
        described |= {"notes": self.notes_, "label": getattr(self, "label_", None)}
        described |= {name: list(getattr(self, name)) for name in ("drop", "keep", "categories")}
        arrays |= {f"{KEY}/{name}": array for name, array in own.items()}
        write_model(path, arrays, description | {KEY: described})

    @property
    def collision_matrix_(self) -> CollisionMatrix:
        """S of the classes."""
        check_is_fitted(self, "classifier_")
        return self.classifier_.collision_matrix_

    @property
    def one_step_(self) -> CollisionMatrix:
        """The one-step estimate with its intervals."""
        check_is_fitted(self, "classifier_")
        return self.classifier_.one_step_

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The classes, sorted."""
        check_is_fitted(self, "classifier_")
        return self.classifier_.classes_

    @property
    def priors_(self) -> FloatArray:
        """Class probabilities of the population."""
        return self.classifier_.priors_

    @property
    def posteriors_(self) -> FloatArray:
        """Held-out posteriors of the training rows."""
        return self.classifier_.posteriors_

    @property
    def history_(self) -> Any:
        """Of the training, fold by fold."""
        return self.classifier_.history_

    @property
    def capacities_(self) -> Any:
        """Weights of the capacities, fold by fold."""
        return self.classifier_.capacities_

    @property
    def interrupted_(self) -> bool:
        """Was training ended by Ctrl-C?"""
        return self.classifier_.interrupted_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "classifier_")


def load(path: str | Path, model: ModelArgument | None = None) -> CollisionClassifier | TableClassifier:
    """A model from a file written by ``save``. No code of the file is run.

    It is a :class:`CollisionClassifier`, or a :class:`TableClassifier` where the file holds the encoding of a table.

    Parameters
    ----------
    path : file
    model : callable or ("pairwise", callable), optional
        As in the fit, for a module of one's own: files hold weights, not code.
    """
    if model is not None:
        parse_model(model)
    arrays, description = read_model(path)
    clf = restore(arrays, description, path, model)
    own = {name.removeprefix(f"{KEY}/"): array for name, array in arrays.items() if name.startswith(f"{KEY}/")}
    if KEY not in description:
        if own:
            raise ModelFileError(f"path {str(path)!r} is damaged or was edited: it holds arrays of a table it lacks")
        return clf
    try:
        described = description[KEY]
        table = TableClassifier(clf, *(list(map(str, described[name])) for name in ("drop", "keep", "categories")))
        table.classifier_ = clf
        table.encoder_ = TableEncoder.from_export(own, described)
        table.notes_, table.label_ = list(map(str, described["notes"])), described["label"]
        if not isinstance(table.label_, str | None):
            raise ValueError(f"its label must be the name of a column, got {table.label_!r}")
        if table.encoder_.n_features != clf.n_features_in_:
            raise ValueError(f"it encodes {table.encoder_.n_features} features for {clf.n_features_in_}")
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise ModelFileError(f"path {str(path)!r} is damaged or was edited: {type(error).__name__}: {error}") from None
    return table


def _named(X: Any) -> Any:
    return X.set_axis([str(name) for name in X.columns], axis=1) if hasattr(X, "columns") else X
