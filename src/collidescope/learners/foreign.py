"""Any scikit-learn classifier as a member of the pool."""

from __future__ import annotations

from inspect import signature
from typing import Any, Self

import numpy as np

from collidescope.learners.base import LOG_FLOOR, FloatArray, Member, Task, Tree

PRIOR_SHARE = 1e-3  #: rows' worth of the priors in every posterior: no logarithm of zero


class Foreign(Member):
    """A clone of ``estimator``, a scikit-learn classifier that must have ``predict_proba``."""

    estimator: Any

    def __init__(self, name: str, estimator: Any) -> None:
        if not hasattr(estimator, "fit") or not hasattr(estimator, "predict_proba"):
            said = f"member {name!r} must be a classifier with fit and predict_proba, got {type(estimator).__name__}"
            raise ValueError(f"{said} (probability=True, or CalibratedClassifierCV around it?)")
        super().__init__(name, estimator=estimator)

    def fit(self, task: Task) -> Self:
        from sklearn.base import clone

        self.fitted = clone(self.estimator)
        if self.fitted.get_params().get("random_state", 0) is None:
            self.fitted.set_params(random_state=int(task.seed) % 2**31)
        options = {} if task.sample_weight is None else {"sample_weight": task.sample_weight}
        if options and "sample_weight" not in signature(self.fitted.fit).parameters:
            said = f"member {self.name!r} ({type(self.fitted).__name__}) cannot use sample_weight:"
            raise ValueError(f"{said} leave it out of members, or fit without weights")
        self.fitted.fit(np.asarray(task.X), task.codes, **options)
        self.priors = task.priors
        return self

    def log_posteriors(self, X: Any) -> FloatArray:
        p = np.zeros((len(X), len(self.priors)))
        p[:, np.asarray(self.fitted.classes_, dtype=np.intp)] = self.fitted.predict_proba(np.asarray(X))
        if not np.isfinite(p).all():
            raise ValueError(f"member {self.name!r} gives posteriors that are not finite: leave it out of members")
        p = (p + PRIOR_SHARE * self.priors) / (p.sum(axis=1, keepdims=True) + PRIOR_SHARE)
        return np.asarray(np.maximum(np.log(p), LOG_FLOOR))

    def export(self) -> Tree:
        said = f"member {self.name!r} is a {type(self.fitted).__name__}, which cannot be saved without pickle:"
        raise ValueError(f"{said} save the whole model with joblib.dump, or leave this member out")

    def restore(self, tree: Tree, shape: tuple[int, ...], n_classes: int) -> Self:
        raise ValueError("a file cannot hold a member made from another classifier")
