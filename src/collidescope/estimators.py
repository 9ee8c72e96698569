"""Collisions from any scikit-learn classifier: the pipeline of a fit with the user's own model."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from sklearn.base import clone

from collidescope import _checks as check
from collidescope._checks import Array, ArrayLike, CollisionWarning, FloatArray, Given
from collidescope.crossfit import CrossFit, Engine, cross_fit
from collidescope.equations.densities import Divergences, divergences_from_posteriors
from collidescope.equations.posterior import shift_priors
from collidescope.estimate import estimate_limit, one_step_estimate
from collidescope.folds import CV, Folds, RandomState, as_random_state, resolve_splits
from collidescope.learners.base import Task
from collidescope.matrix import CollisionMatrix
from collidescope.onestep import collision_matrix_from_posteriors
from collidescope.sample import Sample, Table, sample_as_given
from collidescope.scale import _dask


class Classifier(Protocol):
    """A classifier of scikit-learn, or what behaves like one."""

    classes_: Array

    def fit(self, X: Any, y: Any, /) -> object: ...

    def predict_proba(self, X: Any, /) -> Any: ...


def estimate_collisions(
    classifier: Classifier,
    X: Table | ArrayLike,
    y: ArrayLike,
    *,
    cv: CV | str = 5,
    priors: ArrayLike | str = "empirical",
    sample_weight: Given = None,
    groups: Given = None,
    limit: bool = True,
    n_jobs: int | None = None,
    random_state: RandomState = None,
) -> CollisionMatrix:
    """Collision matrix with intervals from any classifier that has ``predict_proba``, cross-fitted.

    Its field ``limit`` says what unlimited rows would leave (None with ``limit=False`` and
    ``cv="prefit"``).

    Parameters
    ----------
    classifier : scikit-learn classifier or pipeline
        Cloned and refitted in every fold, unless ``cv="prefit"`` (where ``classes_`` and
        ``predict_proba`` will do).
    X : array or DataFrame of n rows, anything that the classifier takes; with ``cv="prefit"`` also
        a Dask collection
    y : array of n labels
    cv : int, splitter or "prefit", which uses a fitted classifier as it is, on rows that it must
        not have seen
    priors : "empirical", "uniform" or array of shape (K,), the population whose S is wanted
    sample_weight : array of n weights, optional, for the estimate of S (the classifier is fitted
        unweighted)
    groups : array of n group labels, optional; rows of a group share a fold, and intervals count
        groups
    limit : bool, whether to train on 1/8, 1/4 and 1/2 of the rows too
    n_jobs : int, optional, folds in parallel (joblib)
    random_state : int, RandomState, numpy Generator or None; shuffles the rows into folds

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> cm = estimate_collisions(
    ...     LogisticRegression(max_iter=1000), X, y, random_state=0
    ... )
    >>> cm.top_collisions(1)[["class", "other"]].to_numpy().tolist()
    [[1, 2]]
    >>> cm.limit.curve["rows"].tolist()
    [30.0, 60.0, 120.0]
    """
    if _dask.is_dask(X):
        return _estimate_dask(classifier, X, y, cv, priors, sample_weight, groups)
    X = check.collected(X)
    # Before the folds are fitted, which may take hours.
    sample = sample_as_given(
        X, y, sample_weight=sample_weight, groups=groups, priors=priors
    )
    if isinstance(cv, str):
        return collision_matrix_from_posteriors(
            _prefit_posteriors(classifier, X, sample, cv),
            sample.labels,
            classes=sample.classes,
            priors=priors,
            sample_weight=sample_weight,
            groups=groups,
        )
    fit = _cross_fit(classifier, sample, cv, random_state, limit, n_jobs)
    one_step, _, _ = one_step_estimate(sample, fit.held_out)
    return replace(one_step, limit=estimate_limit(sample, fit))


def _estimate_dask(
    classifier: Classifier,
    X: _dask.Collection,
    y: ArrayLike,
    cv: CV | str,
    priors: ArrayLike | str,
    sample_weight: Given,
    groups: Given,
) -> CollisionMatrix:
    """Every block is scored and accumulated where it is."""
    if not isinstance(cv, str) or cv != "prefit":
        raise ValueError(
            f"cv must be 'prefit' with a Dask X, got {cv!r}: fit the classifier on "
            "other rows first"
        )
    check_classifier(classifier, fitted=True)
    names = classifier.classes_
    P = _dask.map_rows(classifier.predict_proba, X, list(names))
    return collision_matrix_from_posteriors(
        P, y, classes=names, priors=priors, sample_weight=sample_weight, groups=groups
    )


def crossfit_posteriors(
    classifier: Classifier,
    X: Table | ArrayLike,
    y: ArrayLike,
    *,
    cv: CV | str = 5,
    groups: Given = None,
    n_jobs: int | None = None,
    random_state: RandomState = None,
) -> FloatArray:
    """Held-out posteriors of every row; columns are in the order of the sorted labels.

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> crossfit_posteriors(LogisticRegression(max_iter=1000), X, y).shape
    (150, 3)
    """
    sample = sample_as_given(X, y, groups=groups)
    if isinstance(cv, str):
        return _prefit_posteriors(classifier, X, sample, cv)
    fit = _cross_fit(classifier, sample, cv, random_state, limit=False, n_jobs=n_jobs)
    return np.asarray(fit.held_out.posteriors, dtype=np.float64)


def _cross_fit(
    classifier: Classifier,
    sample: Sample,
    cv: CV,
    random_state: RandomState,
    limit: bool,
    n_jobs: int | None,
) -> CrossFit:
    """The cross-fit of one classifier on rows as they are; half a fit is none."""
    check_classifier(classifier)
    check.check_n_jobs(n_jobs)
    drawn = as_random_state(random_state)
    try:
        clone(classifier)
    except TypeError as error:
        kind = type(classifier).__name__
        raise ValueError(
            f"classifier of type {kind} cannot be cloned for the folds: {error}"
        ) from None
    splits, notes = resolve_splits(
        cv, sample.classes[sample.codes], sample.classes, drawn, groups=sample.groups
    )
    for note in (*sample.notes, *notes):
        warnings.warn(note, CollisionWarning, stacklevel=4)
    folds = Folds(splits, seeds=[0] * len(splits))
    engine = Engine(n_jobs=n_jobs)
    fit = cross_fit(sample, [AsGiven(classifier)], folds, limit=limit, engine=engine)
    if fit.interrupted:
        raise KeyboardInterrupt
    return fit


def _prefit_posteriors(
    classifier: Classifier, X: Table | ArrayLike, sample: Sample, cv: str
) -> FloatArray:
    """Posteriors by a classifier that is fitted already."""
    check.check_choice(cv, ["prefit"], "cv")
    check_classifier(classifier, fitted=True)
    known = list(classifier.classes_)
    if known != list(sample.classes):
        expected = sample.classes.tolist()
        raise ValueError(
            f"y has classes {expected}, the fitted classifier knows {known}"
        )
    return checked_posteriors(
        classifier.predict_proba(X), sample.n_rows, sample.n_classes
    )


def checked_posteriors(P: ArrayLike, n_rows: int, n_classes: int) -> FloatArray:
    """What ``predict_proba`` gave, one row of probabilities for each row."""
    scores = check.check_posteriors(P, "predict_proba of classifier", n_classes)
    if len(scores) != n_rows:
        raise ValueError(
            f"predict_proba of classifier must give {n_rows} rows, got {len(scores)}"
        )
    return scores


@dataclass(frozen=True)
class AsGiven:
    """A scikit-learn classifier as a model: it takes rows as they are, and no weights."""

    classifier: Classifier
    name = "classifier"
    images = True  #: rows keep their shape
    simple = False
    parametric = False
    own_threads = True

    def fit(self, task: Task) -> FittedAsGiven:
        model = clone(self.classifier)
        model.fit(task.X, task.codes)
        return FittedAsGiven(model, task.n_classes)


@dataclass(frozen=True)
class FittedAsGiven:
    """What :class:`AsGiven` learned from a fold."""

    model: Classifier
    n_classes: int

    def log_posteriors(self, X: Table) -> FloatArray:
        P = checked_posteriors(self.model.predict_proba(X), X.shape[0], self.n_classes)
        with np.errstate(divide="ignore"):
            return np.log(P)


def check_classifier(
    classifier: object, name: str = "classifier", *, fitted: bool = False
) -> None:
    """Refuse what has no ``predict_proba``, or is not ``fitted``."""
    kind = (classifier if isinstance(classifier, type) else type(classifier)).__name__
    if isinstance(classifier, type):
        raise ValueError(
            f"{name} must be an instance, got the class {kind}: write {kind}()"
        )
    if not hasattr(classifier, "predict_proba"):
        raise ValueError(
            f"{name} must have predict_proba, {kind} does not (wrap it in "
            "sklearn.calibration.CalibratedClassifierCV)"
        )
    if fitted and not hasattr(classifier, "classes_"):
        raise ValueError(
            f"{name} is not fitted, and cv='prefit' needs it to be: {kind} has no classes_"
        )


def estimate_divergences(
    classifier: Classifier,
    first: ArrayLike,
    second: ArrayLike,
    *,
    cv: CV = 5,
    n_jobs: int | None = None,
    random_state: RandomState = None,
) -> tuple[Divergences, CollisionMatrix]:
    """Divergences between the distributions of two samples, by a classifier that tells them apart.

    Returns the four divergences at equal priors (the collision divergence, 1 - 2 S₁₂, from the
    one-step estimate, the others from the held-out posteriors) and the 2×2 collision matrix behind
    them, which has the intervals.

    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> samples = rng.normal(-1, 1, (2000, 1)), rng.normal(1, 1, (2000, 1))
    >>> result, cm = estimate_divergences(
    ...     LogisticRegression(), *samples, random_state=0
    ... )
    >>> round(result.collision, 1)
    0.6
    """
    A = check.check_finite(first, "first", ndim=2)
    B = check.check_finite(second, "second", ndim=2)
    if A.shape[1] != B.shape[1]:
        raise ValueError(
            f"first and second must have the same columns, got {A.shape[1]} and "
            f"{B.shape[1]}"
        )
    X = np.concatenate([A, B])
    counts = np.array([len(A), len(B)])
    y = np.repeat([0, 1], counts)
    P = crossfit_posteriors(
        classifier, X, y, cv=cv, n_jobs=n_jobs, random_state=random_state
    )
    cm = collision_matrix_from_posteriors(P, y, classes=[0, 1], priors="uniform")
    shares = counts / len(X)
    even = shift_priors(P, shares, [0.5, 0.5])
    plug_in = divergences_from_posteriors(even[:, 0], sample_weight=1 / shares[y])
    return plug_in._replace(collision=1 - 2 * float(cm.matrix[0, 1])), cm
