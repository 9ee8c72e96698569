"""``CollisionClassifier``: the scikit-learn face of a fit, Sample → CrossFit → Estimate."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from collidescope import _checks as check
from collidescope._checks import ArrayLike, CollisionWarning, Given
from collidescope.crossfit import Engine, announce, cross_fit, resolve_device
from collidescope.estimate import estimate, fit_notes
from collidescope.fitted import FittedCollisions
from collidescope.folds import CV, RandomState, make_folds
from collidescope.models import models_for, need_torch
from collidescope.pairwise.model import cross_fitted_paper
from collidescope.race import Race, race
from collidescope.sample import Table, class_order, make_sample

if TYPE_CHECKING:
    from collidescope.pairwise.paper import PrintedClassifier


class CollisionClassifier(FittedCollisions):
    """Collision matrix and posteriors from labelled data, cross-fitted, with the range.

    Parameters
    ----------
    members : "auto", "quick" or list
        The models that are pooled: names ("linear", "quadratic", "kernel", "forest", "trees",
        "neighbours", "network", "convolution"), scikit-learn classifiers or pairs ``("name",
        classifier)``, a callable ``(d, k) -> torch.nn.Module`` that builds an encoder (k logits)
        for images, text, anything, and :class:`~collidescope.Pairwise`, the paper's network on [x,
        x']. "quick" is a small pool for a first look.
    limit : bool
        Whether to train on 1/8, 1/4 and 1/2 of the rows too, for ``limit_`` (about 50% more time).
    priors : "empirical", "uniform" or array of shape (K,)
        The population whose S and posteriors are wanted.
    cv : int, splitter or list of (training rows, held-out rows)
        Folds. No row is scored by a model that trained on it.
    rare : "error", "drop" or "merge"
        What happens to classes with a single row: refused, left out, or joined into one class
        ("other classes").
    budget : float, optional
        Seconds to keep within, by leaving out models of ``members="auto"`` and training sizes of
        the range. A warning says which.
    training : mapping, optional
        Settings of networks: ``hidden_layer_sizes``, ``max_epochs``, ``patience``, ``batch_size``,
        ``learning_rate``, ``weight_decay``, ``dropout``
        (:class:`collidescope.training.config.TrainingConfig`).
    checkpoint : folder, optional, where networks are saved after every epoch, and resumed from
    device : str, of torch: "auto" takes a GPU where there is one
    n_jobs : int, optional, models of folds in parallel (joblib)
    verbose : int, 1 shows progress with the time left
    random_state : int, RandomState, numpy Generator or None

    Attributes
    ----------
    collision_matrix_ : CollisionMatrix
    limit_ : Limit or None, what unlimited rows of this kind would leave
    one_step_ : CollisionMatrix, the one-step estimate with its intervals, before shrinking
    gramian_ : array of shape (K, K)
    recovery_ : Recovery, S from ``gramian_``, with diagnostics
    posteriors_ : array of shape (n, K)
        Held-out posteriors of the training rows, at ``priors_``; beyond 67 million numbers float32.
        nan for rows without any: of interrupted folds or dropped classes, of weight 0, or beyond
        the 40,000 held-out rows that are enough.
    posteriors_by_size_ : dict, the same for every number of training rows (empty without ``limit``)
    member_weights_ : list of dict, the weights with which held-out rows of each fold were pooled
    race_ : Race, which models of ``members="auto"`` were dropped, and why (``race_.table``)
    labels_, groups_, sample_weight_ : as given to the fit
    row_priors_ : array of shape (K,), class shares of the rows
    classes_, priors_, n_features_in_, history_, interrupted_

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = CollisionClassifier(members="quick", random_state=0).fit(X, y)
    >>> clf.collision_matrix_.top_collisions(1)[["class", "other"]].to_numpy().tolist()
    [[1, 2]]
    >>> clf.predict_proba(X[:1]).round(1)
    array([[1., 0., 0.]])
    """

    def __init__(
        self,
        members: str | Sequence[Any] = "auto",
        limit: bool = True,
        priors: str | ArrayLike = "empirical",
        cv: CV = 5,
        rare: str = "error",
        budget: float | None = None,
        training: Mapping[str, Any] | None = None,
        checkpoint: str | Path | None = None,
        device: str = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: RandomState = None,
    ) -> None:
        self.members = members
        self.limit = limit
        self.priors = priors
        self.cv = cv
        self.rare = rare
        self.budget = budget
        self.training = training
        self.checkpoint = checkpoint
        self.device = device
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    @classmethod
    def from_paper(
        cls, *, cross_fitted: bool = False, **settings: Any
    ) -> PrintedClassifier | Self:
        """The paper's Algorithms 1 and 2: as printed, or scored on held-out rows.

        As printed this makes a :class:`~collidescope.pairwise.paper.PrintedClassifier`, of the
        fields of its settings, ``network`` and ``random_state``; ``cross_fitted`` a classifier of
        this class, of its parameters and those of ``Pairwise``.
        """
        if cross_fitted:
            return cls(**cross_fitted_paper(settings))
        need_torch("from_paper()")
        from collidescope.pairwise.paper import printed_classifier

        return printed_classifier(**settings)

    def fit(
        self,
        X: Table | ArrayLike,
        y: ArrayLike,
        sample_weight: Given = None,
        groups: Given = None,
    ) -> Self:
        """Train the folds, score every row with models that did not see it, and estimate S.

        Parameters
        ----------
        X : array, DataFrame or sparse matrix of shape (n, d); images of shape (n, h, w), (n, h, w,
            c) or (n, c, h, w); any shape (n, …) with a custom module
        y : array of n labels, or an array or DataFrame of n × K votes
        sample_weight : array of n weights, optional
        groups : array of n group labels, optional
            Rows that belong together (one patient, one document): they share a fold, and intervals
            count groups.
        """
        self._check_parameters()
        sample = make_sample(
            X,
            y,
            sample_weight=sample_weight,
            groups=groups,
            priors=self.priors,
            rare=self.rare,
            estimator=self,
            channels_first=self._channels_first,
        )
        folds = make_folds(sample, self.cv, self.random_state)
        models = models_for(self.members, sample, folds)
        engine = self._engine()
        images = len(sample.X.shape) > 2
        if images and engine.device == "cpu":
            announce(models, sample, folds, self.limit)
        raced = None
        if isinstance(self.members, str):  # models that the user names are all trained
            raced = race(sample, models, folds, engine)
            models = raced.models
        crossfit = cross_fit(
            sample, models, folds, limit=self.limit, engine=engine, choice=raced
        )
        self.race_ = raced.found if raced else Race()
        found = estimate(sample, crossfit)
        self._keep(sample, crossfit, found)
        self.class_order_ = class_order(y, sample.classes)
        notes = [*self.race_.notes, *fit_notes(sample, crossfit, found)]
        if notes:
            warnings.warn("; ".join(notes), CollisionWarning, stacklevel=2)
        return self

    def _engine(self) -> Engine:
        return Engine(
            device=resolve_device(self.device),
            training=None if self.training is None else dict(self.training),
            checkpoint=None if self.checkpoint is None else Path(self.checkpoint),
            n_jobs=self.n_jobs,
            verbose=self.verbose,
            budget=self.budget,
        )

    def _check_parameters(self) -> None:
        check.check_flag(self.limit, "limit")
        check.check_n_jobs(self.n_jobs)
        check.check_seed(self.random_state)
        if self.budget is not None:
            check.check_between(self.budget, 0, np.inf, "budget")
        if self.training is not None:
            from collidescope.training.config import TrainingConfig

            TrainingConfig.from_mapping(self.training, "cpu")
