"""Collisions from any scikit-learn classifier, cross-fitted; and rows, labels and votes of any source as arrays."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state, indexable
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from collidescope import _checks as check
from collidescope._checks import Array, ArrayLike, CollisionWarning, FloatArray, Given, IntArray
from collidescope.equations.densities import Divergences, divergences_from_posteriors
from collidescope.equations.posterior import shift_priors
from collidescope.folds import (
    FRACTIONS,
    Split,
    fold_numbers,
    mean_size,
    nested_splits,
    resolve_splits,
    run_folds,
)
from collidescope.limit import limit_from_posteriors
from collidescope.matrix import CollisionMatrix
from collidescope.onestep import collision_matrix_from_posteriors, target_priors
from collidescope.scale import _dask

MOST_CHANNELS = 4  #: channels that the last axis of an image may have, where the second has more


def estimate_collisions(
    classifier: Any,
    X: Any,
    y: ArrayLike,
    *,
    cv: int | str | Any = 5,
    priors: ArrayLike | str = "empirical",
    sample_weight: Given = None,
    groups: Given = None,
    limit: bool = False,
    n_jobs: int | None = None,
    random_state: int | None = 0,
) -> Any:
    """Collision matrix with intervals from any classifier that has ``predict_proba``, cross-fitted.

    With ``limit=True`` a pair of it and its :class:`~collidescope.limit.Limit`.

    Parameters
    ----------
    classifier : scikit-learn classifier or pipeline
        Cloned and refitted in every fold, unless ``cv="prefit"`` (where ``classes_`` and ``predict_proba`` will do).
    X : array or DataFrame of n rows, whatever the classifier takes; with ``cv="prefit"`` also a Dask collection
    y : array of n labels
    cv : int, splitter or "prefit", which uses a fitted classifier as it is, on rows that it must not have seen
    priors : "empirical", "uniform" or array of shape (K,), the population whose S is wanted
    sample_weight : array of n weights, optional, for the estimate of S (the classifier is fitted unweighted)
    groups : array of n group labels, optional; rows of a group share a fold, and intervals count groups
    limit : bool, whether to train on 1/8, 1/4 and 1/2 of the rows too
    n_jobs : int, optional, folds in parallel (joblib)
    random_state : int, shuffles the rows into folds

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> cm, limit = estimate_collisions(LogisticRegression(max_iter=1000), X, y, limit=True)
    >>> cm.top_collisions(1)[["class", "other"]].to_numpy().tolist()
    [[1, 2]]
    >>> limit.curve["rows"].tolist()
    [30.0, 60.0, 120.0]
    """
    prefit = isinstance(cv, str) and cv == "prefit"
    if limit and prefit:
        raise ValueError(
            "limit=True trains on parts of the rows, which cv='prefit' does not: pass a number of folds"
        )
    wanted: dict[str, Any] = {"priors": priors, "sample_weight": sample_weight, "groups": groups}
    if _dask.is_dask(X):  # every block is scored and accumulated where it is
        if not prefit:
            raise ValueError(
                f"cv must be 'prefit' with a Dask X, got {cv!r}: fit the classifier on other rows first"
            )
        check_classifier(classifier, fitted=True)
        names = classifier.classes_
        P = _dask.map_rows(classifier.predict_proba, X, list(names))
        return collision_matrix_from_posteriors(P, y, classes=names, **wanted)
    labels = check.check_labels(y)
    classes = check_targets(labels)
    # Before the folds are fitted, which may take hours.
    weights = check.unit_weights(check.check_weights(sample_weight, len(labels)))
    codes = check.encode_labels(labels, classes)
    target, _ = target_priors(priors, np.bincount(codes, weights, len(classes)), classes)
    splits, units = _folds(classifier, X, labels, cv, random_state, groups)
    P = _held_out(classifier, X, labels, splits, n_jobs)
    cm = collision_matrix_from_posteriors(P, labels, classes=classes, **wanted)
    if not limit or splits is None:
        return cm
    smaller = [
        parts for f in sorted(FRACTIONS) if (parts := nested_splits(splits, codes, f, 0, units))
    ]
    every = [*(_held_out(classifier, X, labels, parts, n_jobs) for parts in smaller), P]
    sizes = [mean_size(parts) for parts in (*smaller, splits)]
    options: dict[str, Any] = {"folds": fold_numbers(splits), "classes": classes, "priors": target}
    return cm, limit_from_posteriors(every, codes, sizes, sample_weight=sample_weight, **options)


def crossfit_posteriors(
    classifier: Any,
    X: Any,
    y: ArrayLike,
    *,
    cv: int | str | Any = 5,
    groups: Given = None,
    n_jobs: int | None = None,
    random_state: int | None = 0,
) -> FloatArray:
    """Held-out posteriors of every row (columns in the order of the sorted labels): see :func:`estimate_collisions`.

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> crossfit_posteriors(LogisticRegression(max_iter=1000), X, y).shape
    (150, 3)
    """
    labels = check.check_labels(y)
    splits, _ = _folds(classifier, X, labels, cv, random_state, groups)
    return _held_out(classifier, X, labels, splits, n_jobs)


def _held_out(
    classifier: Any, X: Any, y: Array, splits: list[Split] | None, n_jobs: int | None
) -> FloatArray:
    """Posteriors of every row by clones trained on other rows; without ``splits`` by the classifier itself."""
    if splits is None:
        P = classifier.predict_proba(X)
    else:
        codes, (X,) = np.unique(y, return_inverse=True)[1], indexable(X)

        def score(number: int, report: Any = None) -> Any:
            train, test = splits[number]
            model = clone(classifier)
            model.fit(*_safe_split(model, X, codes, train))
            return model.predict_proba(_safe_split(model, X, None, test, train)[0])

        # not cross_val_predict: joblib's own way to Dask waits for ever when it gives a fold up
        parts, interrupted = run_folds(score, len(splits), n_jobs)
        if interrupted:
            raise KeyboardInterrupt
        P = np.concatenate(parts)[np.argsort(np.concatenate([test for _, test in splits]))]
    scores = check.check_posteriors(P, "predict_proba of classifier", len(np.unique(y)))
    if len(scores) != len(y):
        raise ValueError(f"predict_proba of classifier must give {len(y)} rows, got {len(scores)}")
    return scores


def _folds(
    classifier: Any, X: Any, y: Array, cv: Any, random_state: Any, groups: Any
) -> tuple[list[Split] | None, IntArray | None]:
    """The folds of a cross-fit, None for a classifier that is fitted, and group numbers; refuses what cannot be."""
    units = None if groups is None else check.group_numbers(groups, len(y))
    classes = check_targets(y)
    check_classifier(classifier)
    check_rows(X, y)
    if isinstance(cv, str):
        check.check_choice(cv, ["prefit"], "cv")
        check_classifier(classifier, fitted=True)
        if (known := list(classifier.classes_)) != list(classes):
            raise ValueError(
                f"y has classes {classes.tolist()}, the fitted classifier knows {known}"
            )
        return None, units
    try:
        check_random_state(random_state)
        clone(classifier)
    except ValueError:
        wanted = "None, a whole number ≥ 0 or a RandomState"
        raise ValueError(f"random_state must be {wanted}, got {random_state!r}") from None
    except TypeError as error:
        name = type(classifier).__name__
        raise ValueError(
            f"classifier of type {name} cannot be cloned for the folds: {error}"
        ) from None
    splits, notes = resolve_splits(cv, y, classes, random_state, groups=units)
    for note in notes:
        warnings.warn(note, CollisionWarning, stacklevel=3)
    return splits, units


def check_classifier(classifier: Any, name: str = "classifier", *, fitted: bool = False) -> None:
    """Refuse what has no ``predict_proba``, or is not ``fitted``."""
    kind = (classifier if isinstance(classifier, type) else type(classifier)).__name__
    if isinstance(classifier, type):
        raise ValueError(f"{name} must be an instance, got the class {kind}: write {kind}()")
    if not hasattr(classifier, "predict_proba"):
        remedy = "wrap it in sklearn.calibration.CalibratedClassifierCV"
        raise ValueError(f"{name} must have predict_proba, {kind} has not ({remedy})")
    if fitted and not hasattr(classifier, "classes_"):
        raise ValueError(
            f"{name} is not fitted, and cv='prefit' needs it to be: {kind} has no classes_"
        )


def check_table(X: Any) -> None:
    """Refuse masked values, which scikit-learn would use as if they were not, and two columns of one name."""
    if np.ma.is_masked(X):
        raise ValueError(
            "X has masked values, which would be used as if they were not: fill them, or drop those rows"
        )
    names = [str(name) for name in getattr(X, "columns", [])]
    if len(set(names)) < len(names):
        twice = next(name for k, name in enumerate(names) if name in names[:k])
        raise ValueError(f"X has the column {twice!r} more than once: rename one of them")


def check_targets(y: Array) -> Array:
    """The sorted distinct labels; those that scikit-learn does not take for classes are refused."""
    classes = check.classes_of(check.check_labels(y))
    try:
        check_classification_targets(y)
    except (TypeError, ValueError) as error:
        kinds = ", ".join(sorted({type(label).__name__ for label in y[:1000].tolist()}))
        raise ValueError(
            f"y must hold classes (text, whole numbers or booleans), got {kinds}: {error}"
        ) from None
    return classes


def validated(estimator: Any, X: Any, *labels: Any, images: bool = False) -> Any:
    """X as an array of floats, and the labels where given: scikit-learn's checks, in words that name ``X``."""
    check_table(X)
    options: dict[str, Any] = {
        "dtype": [np.float64, np.float32],
        "accept_sparse": "csr",
        "allow_nd": images,
    }
    if hasattr(X, "to_pandas") and hasattr(X, "columns"):  # polars
        X = X.to_pandas()
    try:
        if not labels:
            return validate_data(estimator, X, reset=False, **options)
        return validate_data(
            estimator, X, *map(plain_labels, labels), ensure_min_samples=2, **options
        )
    except ValueError as error:
        if str(error).startswith("could not convert"):
            raise ValueError(
                f"X must hold numbers: {error} (a table with text? TableClassifier takes it)"
            ) from None
        if str(error).startswith("Complex data"):
            raise ValueError("X must hold real numbers: Complex data not supported") from None
        if "X contains NaN" in str(error):
            hint = "drop or fill such cells, or use TableClassifier, which takes tables with gaps"
            raise ValueError(f"Input X contains NaN: {hint}") from None
        if "y contains NaN" in str(error):
            check.check_labels(labels[0])  # says how many, and where the first is
        raise


def as_images(X: Any) -> Any:
    """Images as (n, channels, height, width): channels may come first, last or not at all; tables as they are.

    >>> as_images(np.zeros((5, 8, 8))).shape, as_images(np.zeros((5, 32, 32, 3))).shape
    ((5, 1, 8, 8), (5, 3, 32, 32))
    """
    if X.ndim == 3:
        return X[:, None]
    return (
        X.transpose(0, 3, 1, 2) if X.ndim == 4 and X.shape[1] > MOST_CHANNELS >= X.shape[3] else X
    )


def as_votes(y: Any) -> tuple[FloatArray | None, Any]:
    """(votes of every row, class names) when ``y`` is a table of counts with a column per class, else (None, None)."""
    shape: tuple[int, ...] = getattr(y, "shape", ())
    if len(shape) != 2 or shape[1] < 2:
        return None, None
    votes = check.check_votes(y, "y (votes; for labels pass one column)")
    names = list(y.columns) if hasattr(y, "columns") else list(range(shape[1]))
    if not (voted := votes.any(axis=0)).all():
        raise ValueError(
            f"y (votes) has no vote for class {names[int(voted.argmin())]!r}: leave that column out"
        )
    classes = check.check_classes(names)
    order = np.argsort(classes)
    return votes[:, order], classes[order]


def plain_labels(y: Any) -> Any:
    """Labels as they are, before scikit-learn makes text or floats of them; arrays of numbers and of columns pass."""
    numbers = y is None or (isinstance(y, np.ndarray) and y.dtype.kind in "biuf")
    return y if numbers or getattr(y, "ndim", 1) != 1 else check.check_labels(y)


def check_rows(X: Any, y: Array) -> None:
    """Refuse an X that is no table, or has other rows than ``y``."""
    shape = X.shape if hasattr(X, "shape") else (len(X),) if hasattr(X, "__len__") else ()
    if not shape:
        raise ValueError(f"X must be a table of rows, got {type(X).__name__} of shape ()")
    check_table(X)
    if shape[0] != len(y):
        raise ValueError(f"X and y must have the same number of rows, got {shape[0]} and {len(y)}")


def estimate_divergences(
    classifier: Any,
    first: Any,
    second: Any,
    *,
    cv: Any = 5,
    n_jobs: int | None = None,
    random_state: int | None = 0,
) -> tuple[Divergences, CollisionMatrix]:
    """Divergences between the distributions behind two samples, through a classifier that tells them apart.

    Returns the four divergences at equal priors (the collision divergence, 1 - 2 S₁₂, from the one-step estimate, the
    others from the held-out posteriors) and the 2×2 collision matrix behind them, which has the intervals.

    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> samples = rng.normal(-1, 1, (2000, 1)), rng.normal(1, 1, (2000, 1))
    >>> result, cm = estimate_divergences(LogisticRegression(), *samples)
    >>> round(result.collision, 1)
    0.6
    """
    A, B = check.check_finite(first, "first", ndim=2), check.check_finite(second, "second", ndim=2)
    if A.shape[1] != B.shape[1]:
        raise ValueError(
            f"first and second must have the same columns, got {A.shape[1]} and {B.shape[1]}"
        )
    X, y = np.concatenate([A, B]), np.repeat([0, 1], [len(A), len(B)])
    P = crossfit_posteriors(classifier, X, y, cv=cv, n_jobs=n_jobs, random_state=random_state)
    cm = collision_matrix_from_posteriors(P, y, classes=[0, 1], priors="uniform")
    shares = np.array([len(A), len(B)]) / len(X)
    even = shift_priors(P, shares, [0.5, 0.5])
    plug_in = divergences_from_posteriors(even[:, 0], sample_weight=1 / shares[y])
    return plug_in._replace(collision=float(1 - 2 * cm.matrix[0, 1])), cm
