"""What a file of a fitted classifier holds: parameters, ensemble, estimate; checked when read.

A file holds arrays and JSON values, never code: networks of a user's own factory are built by that
factory again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from collidescope import _checks as check
from collidescope._checks import ArrayLike, FloatArray
from collidescope._saving import from_tree, to_tree
from collidescope._store import ModelFileError, Tree
from collidescope.crossfit import Ensemble
from collidescope.equations.recovery import Recovery
from collidescope.learners import recipe
from collidescope.learners.base import Member
from collidescope.limit import Limit
from collidescope.matrix import CollisionMatrix
from collidescope.models import Factory, Fitted, Model, is_factory, keeps_layout
from collidescope.pairwise.model import Pairwise
from collidescope.race import Race
from collidescope.sample import Scaling

if TYPE_CHECKING:
    from collidescope.classifier import CollisionClassifier

#: Numbers of a recovery that a file keeps.
RECOVERY_NUMBERS = ("residual", "moved", "min_eigenvalue", "condition")
#: Attributes of a fit that a file keeps as they are.
PLAIN = (
    "gramian",
    "priors",
    "history",
    "member_weights",
    "row_hashes",
    "interrupted",
    "reference_stderr",
)


def export(clf: CollisionClassifier, saved_numbers: int = 5_000_000) -> Tree:
    """A tree of arrays and JSON values; up to so many held-out posteriors, in half precision."""
    P = clf._read_posteriors
    if P is None and hasattr(clf, "posteriors_") and clf.posteriors_.size <= saved_numbers:
        P = clf.posteriors_.astype(np.float16)
    recovery = asdict(clf.recovery_)
    # As an array, since JSON has no infinite numbers.
    recovery["numbers"] = np.array([recovery.pop(name) for name in RECOVERY_NUMBERS])
    tree = {
        "type": type(clf).__name__,
        "parameters": _parameters(clf),
        "custom": _is_custom(clf.members),
        "crossfit": export_ensemble(clf._ensemble),
        "collision_matrix": clf.collision_matrix_.export(),
        "one_step": clf.one_step_.export(),
        "recovery": recovery,
        "limit": None if clf.limit_ is None else clf.limit_.to_dict(),
        "race": to_tree(clf.race_),
        "feature_names": list(getattr(clf, "feature_names_in_", [])),
        # By these an audit recognises training rows and gives them their held-out posteriors.
        "posteriors": P,
    }
    return tree | {name: getattr(clf, f"{name}_") for name in PLAIN}


def _is_custom(members: str | Sequence[Any]) -> bool:
    """Whether a member is built by a factory of the user."""
    return not isinstance(members, str) and any(map(keeps_layout, members))


def _parameters(clf: CollisionClassifier) -> Tree:
    parameters = clf.get_params(deep=False) | {"checkpoint": None, "random_state": None}
    if not isinstance(clf.members, str):
        parameters["members"] = [_plain_member(entry) for entry in clf.members]
    if not isinstance(clf.cv, int):  # a splitter is code, and a list of splits belongs to its rows
        parameters["cv"] = len(clf._ensemble.folds)
    if not isinstance(clf.priors, str):
        parameters["priors"] = np.asarray(clf.priors, dtype=np.float64)
    return parameters


def _plain_member(entry: Any) -> Any:
    if isinstance(entry, Pairwise):
        settings = {name: value for name, value in vars(entry).items() if name != "network"}
        return {"pairwise": settings, "custom": entry.network is not None}
    return {"module": True} if is_factory(entry) else entry


def _member(stored: Any, factory: Factory | None) -> Any:
    if isinstance(stored, str):
        return stored
    if not isinstance(stored, Mapping):
        raise ValueError(f"members must be names or descriptions, got {type(stored).__name__}")
    if "module" in stored:
        return factory
    network = factory if stored["custom"] is True else None
    return Pairwise(**dict(stored["pairwise"]), network=network)


def restore(
    cls: type[CollisionClassifier], tree: Tree, path: str | Path, model: Factory | None = None
) -> CollisionClassifier:
    """The classifier whose :func:`export` the file at ``path`` holds; what does not fit is refused.

    ``model`` is the factory of the fit for a custom module: files hold weights, not code.
    """
    if tree.get("custom") is True and not is_factory(model):
        wanted = "pass its factory as model="
        raise ModelFileError(f"path {str(path)!r} holds a custom module: {wanted}")
    try:
        clf = cls(**_restored_parameters(tree, model))
        clf._check_parameters()
        # A file holds the number of folds, never the folds.
        check.check_count(clf.cv, "cv", least=1)  # type: ignore[arg-type]
        clf._restore_fit(tree, model)
    except (
        LookupError,
        TypeError,
        ValueError,
        ArithmeticError,
        AttributeError,
        RuntimeError,
    ) as error:
        said = f"path {str(path)!r} is damaged or was edited"
        raise ModelFileError(f"{said}: {type(error).__name__}: {error}") from None
    return clf


def _restored_parameters(tree: Tree, model: Factory | None) -> Tree:
    # What a file may not choose: where a refit writes, and its seed.
    parameters = dict(tree["parameters"]) | {"checkpoint": None, "random_state": None}
    members = parameters["members"]
    if not isinstance(members, str | list):
        raise ValueError(f"members must be a word or a list, got {type(members).__name__}")
    if isinstance(members, list):
        parameters["members"] = [_member(entry, model) for entry in members]
    training = parameters.get("training")
    if training is not None and isinstance(training.get("hidden_layer_sizes"), list):
        sizes = tuple(training["hidden_layer_sizes"])
        parameters["training"] = training | {"hidden_layer_sizes": sizes}
    return parameters


def restore_fit(clf: CollisionClassifier, tree: Tree, model: Factory | None) -> None:
    """Set what a fit sets, from a file."""
    clf._ensemble = restore_ensemble(tree["crossfit"], model)
    clf.collision_matrix_ = CollisionMatrix.restore(tree["collision_matrix"])
    clf.one_step_ = CollisionMatrix.restore(tree["one_step"])
    clf.classes_ = np.array(clf.collision_matrix_.classes)
    k = len(clf.classes_)
    clf.gramian_ = check.check_square(tree["gramian"], "gramian")
    clf.priors_ = check.check_priors(tree["priors"], k)
    clf.recovery_ = _recovery(tree["recovery"])
    sizes = {
        len(clf.gramian_),
        len(clf.one_step_.classes),
        len(clf._ensemble.train_priors),
        len(clf.recovery_.matrix),
    }
    if sizes != {k}:
        raise ValueError(f"its parts do not agree on {k} classes")
    if not isinstance(clf.priors, str):
        check.check_priors(clf.priors, k)
    clf.limit_ = None if tree["limit"] is None else Limit.from_dict(tree["limit"])
    clf.n_features_in_ = clf._ensemble.row_shape[0]
    names = [check.check_text(name, "feature_names") for name in tree["feature_names"]]
    if len(names) not in (0, clf.n_features_in_):
        raise ValueError(f"it has {len(names)} feature names for {clf.n_features_in_} features")
    if names:
        clf.feature_names_in_ = np.array(names, dtype=object)
    clf.race_ = from_tree(Race, tree["race"])
    clf.history_ = list(tree["history"])
    clf.member_weights_ = list(tree["member_weights"])
    _check_numbers(clf.history_, clf.member_weights_)
    clf.row_hashes_ = np.asarray(tree["row_hashes"], dtype=np.uint64)
    if tree["posteriors"] is not None:
        clf.posteriors_ = _restored_posteriors(tree["posteriors"], len(clf.row_hashes_), k)
        clf._read_posteriors = np.asarray(tree["posteriors"], dtype=np.float16)
    clf.interrupted_ = tree["interrupted"] is True
    stderr = tree["reference_stderr"]
    if stderr is not None:
        stderr = float(check.check_finite(stderr, "stderr", ndim=0))
    clf.reference_stderr_ = stderr


def _check_numbers(history: list[Any], member_weights: list[Any]) -> None:
    epochs = [entry for fold in history for run in fold.values() for entry in run]
    for entry in [*epochs, *member_weights]:
        for value in entry.values():
            check.check_at_least(value, -np.finfo(np.float64).max, "history and member_weights")


def _restored_posteriors(stored: ArrayLike, n: int, k: int, rounding: float = 1e-3) -> FloatArray:
    """Held-out posteriors of a file, in half precision; nan where a row was not scored."""
    P = np.asarray(stored, dtype=np.float64)
    if P.shape != (n, k):
        raise ValueError(f"posteriors must have shape {(n, k)}, got {P.shape}")
    scored = ~np.isnan(P).all(axis=1)
    total = P[scored].sum(axis=1, keepdims=True)
    if not scored.any() or not (P[scored] >= 0).all() or not np.abs(total - 1).max() < rounding * k:
        raise ValueError("posteriors must be rows of probabilities")
    P[scored] /= total
    return P


def _recovery(tree: Tree) -> Recovery:
    matrix = check.check_square(tree["matrix"], "matrix of recovery")
    numbers = np.asarray(tree["numbers"], np.float64)
    if numbers.shape != (len(RECOVERY_NUMBERS),) or np.isnan(numbers).any():
        raise ValueError("recovery must have its numbers")
    return Recovery(
        matrix=matrix,
        priors=check.check_priors(tree["priors"], len(matrix)),
        method=check.check_choice(tree["method"], ["root", "gradient"], "method"),
        converged=bool(tree["converged"]),
        iterations=int(tree["iterations"]),
        status=str(tree["status"]),
        **dict(zip(RECOVERY_NUMBERS, numbers.tolist(), strict=True)),
    )


def export_ensemble(ensemble: Ensemble) -> Tree:
    """The models of all folds; what a member learned is described by itself."""
    scaling = ensemble.scaling
    comparison = ensemble.comparison
    if scaling is None:
        raise ValueError("an ensemble of a classifier on rows as they came cannot be saved")
    tree: Tree = {
        "centre": scaling.centre,
        "scale": scaling.scale,
        "train_priors": ensemble.train_priors,
        "weights": ensemble.weights,
        "row_shape": list(ensemble.row_shape),
        "comparison": None,
        "folds": [],
    }
    if comparison is not None:
        return tree | {"comparison": comparison.export()}  # type: ignore[attr-defined]
    if any(isinstance(model, Pairwise) for model in ensemble.models.values()):
        hint = "save the whole model with joblib.dump, or leave one of them out"
        raise ValueError(f"a pool of Pairwise() and other members cannot be saved: {hint}")
    folds = [{name: _export_member(own) for name, own in fold.items()} for fold in ensemble.folds]
    return tree | {"folds": folds}


def _export_member(member: Any) -> Tree:
    return {"type": member.name} | member.export()


def restore_ensemble(tree: Tree, factory: Factory | None = None) -> Ensemble:
    """The inverse of :func:`export_ensemble`; what does not fit raises an error."""
    priors = check.check_priors(tree["train_priors"], len(tree["train_priors"]), "train_priors")
    shape = tuple(check.check_count(size, "row_shape") for size in tree["row_shape"])
    scaling = _restored_scaling(tree, shape)
    weights = {
        str(name): check.check_at_least(weight, 0.0, "weights")
        for name, weight in tree["weights"].items()
    }
    if tree["comparison"] is not None:
        return _restored_comparison(tree, factory, weights, scaling, priors, shape)
    folds = tree["folds"]
    if not folds or not weights or any(set(fold) != set(weights) for fold in folds):
        said = "every fold must hold the members that have a weight"
        raise ValueError(f"{said}, and there must be some")
    restored: list[dict[str, Member]] = []
    for fold in folds:
        own = {}
        for name in weights:
            member = recipe(fold[name]["type"], factory)
            own[name] = member.restore(fold[name], shape, len(priors))
        restored.append(own)
    models: dict[str, Model] = dict(restored[0])
    fitted: list[dict[str, Fitted]] = [dict(fold) for fold in restored]
    return Ensemble(fitted, models, weights, scaling, priors, shape)


def _restored_comparison(
    tree: Tree,
    factory: Factory | None,
    weights: dict[str, float],
    scaling: Scaling,
    priors: FloatArray,
    shape: tuple[int, ...],
) -> Ensemble:
    from collidescope.pairwise.algorithms import PairComparison

    comparison = PairComparison.restore(tree["comparison"], factory)
    name = comparison.settings.name
    alike = np.array_equal(comparison.train_priors, priors)
    if weights.keys() != {name} or not alike or comparison.folds[0].input_shape != shape:
        raise ValueError("its parts do not agree on the classes or features")
    models: dict[str, Model] = {name: comparison.settings}  # type: ignore[dict-item]
    folds: list[dict[str, Fitted]] = [{name: comparison} for _ in comparison.folds]
    return Ensemble(folds, models, weights, scaling, priors, shape, comparison)


def _restored_scaling(tree: Tree, shape: tuple[int, ...]) -> Scaling:
    centre = check.check_finite(tree["centre"], "centre", ndim=1)
    scale = check.check_finite(tree["scale"], "scale", ndim=1)
    if centre.shape != scale.shape or (scale < 0).any():
        said = f"got {centre.shape} and {scale.shape}"
        raise ValueError(f"centre and scale must be alike and scale ≥ 0, {said}")
    if len(scale) != (shape[0] if len(shape) == 1 else 1):
        said = f"one number for each of {shape[0]} features"
        raise ValueError(f"scale must have {said}, got {len(scale)}")
    return Scaling(centre, scale)
