"""Tables from files to posteriors: reading, screening, encoding, and a classifier of raw rows."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Sequence
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from collidescope import _checks as check
from collidescope import _store
from collidescope._checks import Array, ArrayLike, CollisionWarning
from collidescope._saving import to_tree
from collidescope.classifier import CollisionClassifier
from collidescope.sample import as_votes
from collidescope.saving import restore
from collidescope.tables.cells import TableLike, as_frame, check_columns
from collidescope.tables.encoding import Float32Array, TableEncoder
from collidescope.tables.images import read_images
from collidescope.tables.reading import Table, read_table
from collidescope.tables.screening import Screening, screen
from collidescope.tables.votes import items_with_votes, votes_from_annotators

__all__ = [
    "Screening",
    "Table",
    "TableClassifier",
    "TableEncoder",
    "items_with_votes",
    "load",
    "read_images",
    "read_table",
    "screen",
    "votes_from_annotators",
]

logger = logging.getLogger(__name__)


class TableClassifier(CollisionClassifier):
    """Collision matrix and posteriors from a table of mixed columns, with gaps.

    A :class:`CollisionClassifier` of raw rows: numbers, categories, dates, text. Columns are
    encoded without a look at the labels (:mod:`collidescope.tables.encoding`), and the encoding is
    part of the saved model.

    Parameters
    ----------
    drop : columns not to use
    keep : columns to use even if they look like ids (count the rows, or differ in every row)
    categories : columns whose values are names, even where they look like numbers or amounts
    **parameters : those of :class:`CollisionClassifier`, with the same defaults

    Attributes
    ----------
    encoder_, screening_ : TableEncoder; Screening (ids, target leakage, groups of rows)
    notes_ : list of str
        What was left out or is missing, what to look at; also logged, by ``collidescope.tables``.
    cautions_ : list of str; those of the notes that are also warnings
    label_ : str or None; the name of ``y``, where it has one
    feature_names_in_ : the columns of X; ``n_features_in_`` counts them
    collision_matrix_, … : those of :class:`CollisionClassifier`

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> weights = [
    ...     None,
    ...     *np.random.default_rng(0).normal([24, 4], 1, (40, 2)).T.ravel()[1:],
    ... ]
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
        self.drop = drop
        self.keep = keep
        self.categories = categories

    def fit(
        self,
        X: TableLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        *,
        screening: Screening | None = None,
    ) -> Self:
        """Screen and encode the columns, then fit as :meth:`CollisionClassifier.fit` does.

        Parameters
        ----------
        X : DataFrame of pandas, polars (also lazy) or pyarrow
            Its column with the name of ``groups``, if any, is not used.
        y, sample_weight, groups : those of :meth:`CollisionClassifier.fit`
        screening : Screening, optional
            What :func:`screen` found in the whole table, where X is a sample of it.
        """
        self.label_ = _name_of_labels(y)
        table = as_frame(X)
        group_column = getattr(groups, "name", None)
        encoded = self._learn(table, y, group_column, screening)
        super().fit(encoded, y, sample_weight, groups)
        self._note(list(self._copies), caution=True)
        self.feature_names_in_ = table.columns.to_numpy(dtype=object)
        self.n_features_in_ = table.shape[1]
        return self

    def _validate(self, X: Any) -> Any:
        """Raw rows as an array."""
        return self.encode(X)

    def _learn(
        self,
        table: pd.DataFrame,
        y: ArrayLike,
        group_column: object,
        screening: Screening | None,
    ) -> Float32Array:
        """Screen the table, learn the encoding, and return the encoded rows."""
        drop = _columns(self.drop, "drop")
        keep = _columns(self.keep, "keep")
        categories = _columns(self.categories, "categories")
        check_columns(table, [*drop, *keep, *categories])
        labels = _most_voted(y)
        check.check_same_length(table.index.to_numpy(), labels, "X and y")
        left_out = dict.fromkeys(drop, "as asked")
        if group_column is not None and str(group_column) in table.columns:
            left_out[str(group_column)] = "it names the groups"
        wanted = {*keep, *categories}
        if screening is None:
            screening = screen(table.drop(columns=list(left_out)), labels, keep=wanted)
        screening = screening.without(set(left_out), ids_too=wanted)
        left_out |= screening.ids
        encoder = TableEncoder.fit(table, categories=categories, left_out=left_out)
        encoded, gaps, surprises = encoder.transform(table)
        self.screening_ = screening
        self.encoder_ = encoder
        self._note_all(table, [*gaps, *surprises], check.spelling_variants(labels))
        logger.info(
            "%s rows × %s columns → %s features",
            f"{len(table):,}",
            len(encoder.types),
            encoded.shape[1],
        )
        return encoded

    def _note_all(
        self, table: pd.DataFrame, odd: list[str], variants: list[str]
    ) -> None:
        """Keep what was found in ``notes_`` and ``cautions_``; warn about the latter."""
        self.notes_: list[str] = []
        self.cautions_: list[str] = []
        left_out = [
            f"column {name!r} is left out: {why}"
            for name, why in self.encoder_.left_out.items()
            if name not in self.screening_.ids
        ]
        found = [*self.screening_.notes(), *left_out, *odd]
        self._note([*found, *self.encoder_.doubts(table)])
        cautions = self.screening_.cautions()
        self._note([*cautions, *variants], caution=True)
        for words in cautions:  # the fit warns of spellings
            warnings.warn(words, CollisionWarning, stacklevel=4)

    def _note(self, notes: list[str], caution: bool = False) -> None:
        self.notes_ = self.notes_ + notes
        if caution:
            self.cautions_ = self.cautions_ + notes
        for note in notes:
            logger.info("%s", note)

    def encode(self, X: TableLike) -> Float32Array:
        """Raw rows as numbers, rows × features; a :class:`CollisionWarning` says what is odd."""
        check_is_fitted(self, "encoder_")
        encoded, gaps, surprises = self.encoder_.transform(X)
        for note in [*gaps, *surprises]:
            logger.info("%s", note)
        for note in surprises:
            warnings.warn(note, CollisionWarning, stacklevel=4)
        return encoded

    def export(self) -> dict[str, Any]:
        tree = super().export()
        for name in ("drop", "keep", "categories"):
            tree["parameters"][name] = list(getattr(self, name))
        tree["feature_names"] = []  # those of the encoded rows, which have none
        tree["table"] = {
            "encoder": to_tree(self.encoder_),
            "notes": self.notes_,
            "cautions": self.cautions_,
            "label": self.label_,
            "class_order": self.class_order_,
            "columns": list(self.feature_names_in_),
        }
        return tree

    def _restore_fit(self, tree: Any, model: Any = None) -> None:
        super()._restore_fit(tree, model)
        own = tree["table"]
        self.encoder_ = TableEncoder.restore(own["encoder"])
        self.notes_ = _texts(own["notes"])
        self.cautions_ = _texts(own["cautions"])
        self.label_ = check.check_text(own["label"], optional=True)
        self.class_order_ = own.get("class_order")
        for name in ("drop", "keep", "categories"):
            setattr(self, name, _texts(getattr(self, name)))
        width = len(self.encoder_.feature_names)
        if width != self.n_features_in_:
            raise ValueError(f"it encodes {width} features for {self.n_features_in_}")
        columns = _texts(own["columns"])
        if not {*self.encoder_.types, *self.encoder_.left_out} <= {*columns}:
            raise ValueError("it uses columns that it does not have")
        self.feature_names_in_ = np.array(columns, dtype=object)
        self.n_features_in_ = len(columns)


def _texts(values: Iterable[object]) -> list[str]:
    return list(map(check.check_text, values))


def _name_of_labels(y: ArrayLike) -> str | None:
    """The name of a column of labels; votes have several columns, and may have one called name."""
    if getattr(y, "ndim", 1) != 1 or getattr(y, "name", None) is None:
        return None
    return str(getattr(y, "name", None))


def _columns(names: Sequence[str], parameter: str) -> list[str]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ValueError(f"{parameter} must be a list of columns, got {names!r}")
    return [str(name) for name in names]


def _most_voted(y: ArrayLike) -> Array:
    """Labels; of votes, the number of the class that most voted for."""
    votes, _ = as_votes(y)
    return check.check_labels(y) if votes is None else votes.argmax(axis=1)


# scikit-learn, help() and the documentation see every parameter by its name
_SELF, *_OWN, _ = signature(TableClassifier.__init__).parameters.values()
_ENGINE = [
    part.replace(kind=Parameter.KEYWORD_ONLY)
    for part in signature(CollisionClassifier).parameters.values()
]
_EVERY = Signature([_SELF, *_ENGINE, *_OWN])
TableClassifier.__init__.__signature__ = _EVERY  # type: ignore[attr-defined]


def load(path: str | Path, model: Any = None) -> CollisionClassifier:
    """A model from a file written by ``save``.

    A :class:`TableClassifier` if it holds the encoding of a table. No code of the file is run.

    Parameters
    ----------
    path : str or Path
    model : the callable that builds a custom torch module, as in the fit; else not needed

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = CollisionClassifier(members=["linear"], limit=False, random_state=0)
    >>> with TemporaryDirectory() as folder:
    ...     clf.fit(X, y).save(Path(folder) / "iris.collide")
    ...     again = load(Path(folder) / "iris.collide")
    >>> bool((again.predict_proba(X) == clf.predict_proba(X)).all())
    True
    """
    tree = _store.read(path, "model")
    kind = TableClassifier if "table" in tree else CollisionClassifier
    return restore(kind, tree, path, model)
