"""Tables from files to posteriors: reading, screening, encoding, and the classifier that keeps the encoding."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Sequence
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, Self

import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from collidescope import _checks as check
from collidescope import _store
from collidescope._checks import CollisionWarning
from collidescope.classifier import CollisionClassifier
from collidescope.sample import as_votes
from collidescope.saving import restore
from collidescope.tables.encoding import Float32Array, TableEncoder, as_frame, check_columns
from collidescope.tables.reading import Table, read_table
from collidescope.tables.screening import Screening, screen

__all__ = ["Screening", "Table", "TableClassifier", "TableEncoder", "load", "read_table", "screen"]

logger = logging.getLogger(__name__)
OWN = ("drop", "keep", "categories")


class TableClassifier(CollisionClassifier):
    """Collision matrix and posteriors from a table of mixed columns: numbers, categories, dates, text, with gaps.

    A :class:`CollisionClassifier` of raw rows. Columns are encoded without a look at the labels
    (:mod:`collidescope.tables.encoding`), and the encoding is part of the saved model.

    Parameters
    ----------
    drop : columns not to use
    keep : columns to use even if they look like ids (count the rows, or have another value in each)
    categories : columns whose values are names, even where they look like numbers
    **parameters : those of :class:`CollisionClassifier`, with the same defaults

    Attributes
    ----------
    encoder_, screening_ : TableEncoder; Screening (ids, columns that give the label away, groups of rows)
    notes_ : list of str; what was left out or is missing, what to look at; also logged, by ``collidescope.tables``
    cautions_ : list of str; those of the notes that are also warnings
    label_ : str or None; the name of ``y``, where it has one
    collision_matrix_, … : those of :class:`CollisionClassifier`; ``n_features_in_`` counts the encoded features

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> weights = [None, *np.random.default_rng(0).normal([24, 4], 1, (40, 2)).T.ravel()[1:]]
    >>> rows = pd.DataFrame({"weight": weights, "fur": ["long", "short"] * 40})
    >>> model = TableClassifier(members="quick", limit=False, random_state=0).fit(
    ...     rows, ["dog"] * 40 + ["cat"] * 40
    ... )
    >>> model.notes_
    ['missing cells (of 80 rows): weight 1']
    >>> model.predict(pd.DataFrame({"weight": [29], "fur": ["short"]}))
    array(['dog'], dtype='<U3')
    """

    def __init__(
        self,
        *,
        drop: Sequence[str] = (),
        keep: Sequence[str] = (),
        categories: Sequence[str] = (),
        **parameters: Any,
    ) -> None:
        super().__init__(**parameters)
        self.drop, self.keep, self.categories = drop, keep, categories

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: npt.ArrayLike | None = None,
        groups: npt.ArrayLike | None = None,
    ) -> Self:
        """Screen and encode the columns, then fit as :meth:`CollisionClassifier.fit` does.

        X is a DataFrame of pandas, polars or pyarrow; its column with the name of ``groups``, if any, is not used.
        """
        named = (
            getattr(y, "name", None) if getattr(y, "ndim", 1) == 1 else None
        )  # of votes it may be a column
        self.label_ = None if named is None else str(named)
        self._group_column = getattr(groups, "name", None)
        self._check_parameters()
        votes, classes = as_votes(y)
        labels = y if votes is None else classes[votes.argmax(axis=1)]
        encoded = self._learn(X, labels)
        del self._group_column
        super().fit(encoded, y, sample_weight, groups)
        self._tell(list(self._copies), caution=True)  # of which the fit has warned
        return self

    def _validate(self, X: Any) -> Any:
        """Raw rows as an array."""
        return super()._validate(self.encode(X))

    def _learn(self, X: Any, y: Any) -> Float32Array:
        for name in OWN:
            if isinstance(getattr(self, name), str) or not isinstance(
                getattr(self, name), Iterable
            ):
                raise ValueError(f"{name} must be a list of columns, got {getattr(self, name)!r}")
        drop, keep, categories = ([str(column) for column in getattr(self, name)] for name in OWN)
        table, labels = as_frame(X), check.check_labels(y)
        check_columns(table, [*drop, *keep, *categories])
        check.check_same_length(table.index.to_numpy(), labels, "X and y")
        left_out = dict.fromkeys(drop, "as asked")
        if self._group_column is not None and str(self._group_column) in table.columns:
            left_out[str(self._group_column)] = "it names the groups"
        self.screening_ = screen(
            table.drop(columns=list(left_out)), labels, keep={*keep, *categories}
        )
        self.encoder_ = TableEncoder.fit(
            table, categories=categories, left_out=left_out | self.screening_.ids
        )
        encoded, met = self.encoder_.transform(table)
        gone = [
            item for item in self.encoder_.left_out.items() if item[0] not in self.screening_.ids
        ]
        self.notes_, self.cautions_ = list[str](), list[str]()
        self._tell(
            [
                *self.screening_.notes(),
                *(f"column {name!r} is left out: {why}" for name, why in gone),
            ]
        )
        self._tell([*met, *self.encoder_.doubts(table)])
        for words in self._tell(self.screening_.cautions(), caution=True):
            warnings.warn(words, CollisionWarning, stacklevel=3)
        logger.info(
            "%s rows × %s columns → %s features",
            f"{len(table):,}",
            len(self.encoder_.types),
            encoded.shape[1],
        )
        return encoded

    def _tell(self, notes: list[str], caution: bool = False) -> list[str]:
        self.notes_ = self.notes_ + notes
        self.cautions_ = self.cautions_ + notes * caution
        for note in notes:
            logger.info("%s", note)
        return notes

    def encode(self, X: Any) -> Float32Array:
        """Raw rows as numbers, rows × features; what is odd about them is a :class:`CollisionWarning`."""
        check_is_fitted(self, "encoder_")
        encoded, met = self.encoder_.transform(X)
        for note in met:
            logger.info("%s", note)
            if not note.startswith("missing cells"):
                warnings.warn(note, CollisionWarning, stacklevel=4)
        return encoded

    def export(self) -> dict[str, Any]:
        tree = super().export()
        tree["parameters"] |= {name: list(getattr(self, name)) for name in OWN}
        own = {
            "encoder": vars(self.encoder_),
            "notes": self.notes_,
            "cautions": self.cautions_,
            "label": self.label_,
        }
        return tree | {"table": own}

    def _restore_fit(self, tree: Any, model: Any = None) -> None:
        super()._restore_fit(tree, model)
        own = tree["table"]
        self.encoder_ = TableEncoder.restore(own["encoder"])
        self.notes_, self.cautions_ = (
            list(map(check.check_text, own[name])) for name in ("notes", "cautions")
        )
        self.label_ = check.check_text(own["label"], optional=True)
        for name in OWN:
            setattr(self, name, list(map(check.check_text, getattr(self, name))))
        if (width := len(self.encoder_.feature_names)) != self.n_features_in_:
            raise ValueError(f"it encodes {width} features for {self.n_features_in_}")


# scikit-learn, help() and the documentation see every parameter by its name
_SELF, *_OWN, _ = signature(TableClassifier.__init__).parameters.values()
_ENGINE = [
    part.replace(kind=Parameter.KEYWORD_ONLY)
    for part in signature(CollisionClassifier).parameters.values()
]
TableClassifier.__init__.__signature__ = Signature([_SELF, *_ENGINE, *_OWN])  # type: ignore[attr-defined]


def load(path: str | Path, model: Any = None) -> CollisionClassifier:
    """A model from a file written by ``save``; a :class:`TableClassifier` if it holds the encoding of a table.

    No code of the file is run: for a custom module ``model`` must be given, as in the fit.
    """
    tree = _store.read(path, "model")
    kind = TableClassifier if "table" in tree else CollisionClassifier
    return restore(kind, tree, path, model)
