"""A fitted classifier again, from the arrays and the description that a file holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope._matrix_files import from_arrays
from collidescope._models import ModelArgument, restored_model, restored_names, restored_training
from collidescope.classifier import CollisionClassifier
from collidescope.crossfit import CrossFit
from collidescope.equations.recovery import recover
from collidescope.matrix import CollisionMatrix
from collidescope.persistence import ModelFileError


def restore(
    arrays: Mapping[str, npt.NDArray[Any]],
    description: Mapping[str, Any],
    path: str | Path,
    model: ModelArgument | None = None,
) -> CollisionClassifier:
    """The classifier whose ``export`` the file at ``path`` holds; whatever does not fit is refused.

    ``model`` is the factory of the fit for a module of one's own: files hold weights, not code.
    """
    try:
        # what a file may not choose: where a refit writes, and its seed
        parameters = dict(description["parameters"]) | {"checkpoint": None, "random_state": None}
        if isinstance(parameters["hidden_layer_sizes"], list):
            parameters["hidden_layer_sizes"] = tuple(parameters["hidden_layer_sizes"])
        parameters["model"] = restored_model(parameters["model"], model, path)
        clf = CollisionClassifier(**parameters)
        clf._check_parameters()
        check.check_count(clf.cv, "cv", least=1)  # a file holds the number of folds, never the folds
        clf._crossfit = CrossFit.from_export(arrays, description, clf._choice.factory)
        if (clf._crossfit.pairs is None) != (clf._choice.kind == "factorised"):
            raise ValueError(f"its folds are not those of a {clf._choice.kind} model")
        clf.collision_matrix_, clf.one_step_ = (
            CollisionMatrix(**from_arrays(_under(arrays, f"{name}/"), description[name]))
            for name in ("collision_matrix", "one_step")
        )
        clf.classes_ = np.array(clf.collision_matrix_.classes)
        clf.gramian_ = check.check_square(arrays["gramian"], "gramian")
        clf.priors_ = check.check_priors(arrays["priors"], len(clf.classes_))
        if {len(clf.gramian_), clf.one_step_.n_classes, len(clf._crossfit.train_priors)} != {len(clf.classes_)}:
            raise ValueError(f"its parts do not agree on {len(clf.classes_)} classes")
        clf.recovery_ = recover(clf.gramian_, clf.priors_, method=clf.recovery)
        clf.n_features_in_ = clf._crossfit.folds[0].input_shape[0]
        if names := restored_names(description["feature_names"], clf.n_features_in_):
            clf.feature_names_in_ = np.array(names, dtype=object)
        clf.history_, clf.capacities_ = restored_training(description, len(clf._crossfit.folds))
        clf.interrupted_, stderr = bool(description["interrupted"]), description["reference_stderr"]
        clf.reference_stderr_ = None if stderr is None else float(check.check_finite(stderr, "stderr", ndim=0))
    except ModelFileError:
        raise
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError) as error:
        raise ModelFileError(f"path {str(path)!r} is damaged or was edited: {type(error).__name__}: {error}") from None
    return clf


def _under(arrays: Mapping[str, npt.NDArray[Any]], prefix: str) -> dict[str, npt.NDArray[Any]]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
