"""What a fitted ``CollisionClassifier`` can do: predict, compare rows, be questioned, be saved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from collidescope import _store, saving, trust
from collidescope._checks import Array, ArrayLike, FloatArray
from collidescope.crossfit import CrossFit, Ensemble
from collidescope.equations.posterior import shift_priors
from collidescope.estimate import Estimate
from collidescope.folds import RandomState
from collidescope.models import Factory, keeps_layout
from collidescope.sample import Sample, Table, validated
from collidescope.scale import _dask


class FittedCollisions(ClassifierMixin, BaseEstimator):
    """What a classifier can do once it was fitted, or read from a file."""

    members: str | Sequence[Any]
    random_state: RandomState
    #: The classes in their order, where the labels were an ordered categorical of pandas.
    class_order_: list[Any] | None = None
    _ensemble: Ensemble
    #: Held-out posteriors as a file held them, so that another file holds the same.
    _read_posteriors: npt.NDArray[np.float16] | None = None

    def _keep(self, sample: Sample, crossfit: CrossFit, found: Estimate) -> None:
        """What a fit leaves behind."""
        self.classes_ = sample.classes
        self.priors_ = sample.priors
        self.row_hashes_ = sample.hashes
        self.labels_ = sample.labels
        self.sample_weight_ = sample.weights
        self.groups_ = None
        if sample.groups is not None:
            self.groups_ = np.full(len(sample.hashes), -1)
            self.groups_[sample.used] = sample.groups
        self._ensemble = crossfit.ensemble
        self.history_ = crossfit.history
        self.member_weights_ = crossfit.fold_weights
        self.interrupted_ = crossfit.interrupted
        comparison = crossfit.ensemble.comparison
        self.reference_stderr_ = (
            None if comparison is None else comparison.reference_stderr
        )
        self.collision_matrix_ = found.collision_matrix
        self.one_step_ = found.one_step
        self.gramian_ = found.gramian
        self.recovery_ = found.recovery
        self.limit_ = found.limit
        self.posteriors_ = found.held_out
        self.posteriors_by_size_ = found.posteriors
        if found.limit is None:
            self.posteriors_by_size_ = {}
        self._copies = found.copies
        self._read_posteriors = None

    @property
    def row_priors_(self) -> FloatArray:
        """Class shares of the rows of the fit, at which its models learned."""
        return self._ensemble.train_priors

    def predict_proba(self, X: Table | ArrayLike) -> FloatArray:
        """Posteriors of new rows at ``priors_``, a mean over the folds; lazy for Dask.

        The models have seen the rows of the fit and are overconfident on them: for those rows use
        the held-out ``posteriors_``.
        """
        check_is_fitted(self, "collision_matrix_")
        if _dask.is_dask(X):
            names = self.classes_.tolist()
            lazy: FloatArray = _dask.map_rows(self.predict_proba, X, names)
            return lazy
        posteriors = self._ensemble.posteriors(self._validate(X))
        return shift_priors(posteriors, self._ensemble.train_priors, self.priors_)

    def predict(self, X: Table | ArrayLike) -> Array:
        """The most likely class of new rows."""
        posteriors = self.predict_proba(X)  # first: it says so when there was no fit
        return self.classes_[posteriors.argmax(axis=1)]

    def similarity(self, A: Table | ArrayLike, B: Table | ArrayLike) -> FloatArray:
        """Sim: the probability that a row of ``A`` and one of ``B`` share a class."""
        check_is_fitted(self, "collision_matrix_")
        compared = self._ensemble.similarity(self._validate(A), self._validate(B))
        if compared is not None:
            return compared
        return self.predict_proba(A) @ self.predict_proba(B).T

    def shuffled_control(
        self, X: Table | ArrayLike, y: ArrayLike
    ) -> trust.ShuffledControl:
        """Refit on shuffled labels: every row of S must fall to the priors (see ``trust``)."""
        return trust.shuffled_control(self, X, y)

    def learning_curve(self, X: object = None, y: object = None) -> trust.LearningCurve:
        """Would more rows still lower PBER? Reads ``limit_``; nothing is refitted."""
        return trust.learning_curve(self)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file (safetensors, JSON header): see :func:`load`."""
        _store.write(path, "model", self.export())

    def export(self) -> _store.Tree:
        """What :meth:`save` writes: a tree of arrays and JSON values."""
        check_is_fitted(self, "collision_matrix_")
        return saving.export(self)

    def _restore_fit(self, tree: _store.Tree, model: Factory | None = None) -> None:
        saving.restore_fit(self, tree, model)

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = self.random_state is None
        return tags

    @property
    def _channels_first(self) -> bool:
        """Whether images are brought to one layout: a custom module takes rows as they come."""
        listed = isinstance(self.members, Sequence)
        return not listed or not any(map(keeps_layout, self.members))

    def _validate(self, X: Table | ArrayLike) -> Table:
        """New rows as the models of this fit take them."""
        shape = self._ensemble.row_shape
        if self._channels_first and len(shape) == 3:
            check_images(X, shape)
        rows: Table = validated(self, X, channels_first=self._channels_first)
        return rows


def check_images(X: Table | ArrayLike, trained: tuple[int, ...]) -> None:
    """Refuse one image, or flat ones, for a fit on images, before features are counted."""
    given = getattr(X, "shape", None)
    if given is None or len(given) == 4:
        return
    channels, height, width = trained
    if len(given) == 3 and channels == 1:
        return
    wanted = f"images of {height} × {width} pixels and {channels} channels"
    hint = "for a single image pass X[None]"
    raise ValueError(f"X must hold {wanted}, got an array of shape {given}: {hint}")
