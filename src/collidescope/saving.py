"""What a file of a fitted classifier holds: frozen dataclasses, read by the types of their fields.

:class:`SavedFit` is the whole of it; :mod:`collidescope._saving` writes and reads it. A file holds
arrays and JSON values, never code: networks of a user's own factory are built by that factory
again. K is the number of classes, n that of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope._checks import Array, FloatArray
from collidescope._saving import LARGEST_FLOAT, TYPE, from_tree, to_tree
from collidescope._store import ModelFileError, Tree
from collidescope.crossfit import Ensemble
from collidescope.equations.recovery import Recovery
from collidescope.learners import recipe
from collidescope.limit import Limit
from collidescope.matrix import CollisionMatrix
from collidescope.models import Factory, Fitted, Model, is_factory, keeps_layout
from collidescope.pairwise.model import Pairwise
from collidescope.race import Race
from collidescope.sample import Scaling

if TYPE_CHECKING:
    from collidescope.classifier import CollisionClassifier


@dataclass(frozen=True)
class SavedEnsemble:
    """The models of all folds; what a member learned is described by itself."""

    train_priors: Annotated[FloatArray, "f8 K"]
    row_shape: tuple[Annotated[int, 1, 2**31], ...]
    centre: Array  #: of the features
    scale: Array
    weights: dict[str, Annotated[float, 0.0, LARGEST_FLOAT]]  #: of the models, by name
    folds: list[dict[str, Any]]  #: what every model learned, by name
    comparison: Any  #: of pairs, instead of folds

    def __post_init__(self) -> None:
        check.check_priors(self.train_priors, len(self.train_priors), "train_priors")
        centre = check.check_finite(self.centre, "centre", ndim=1)
        scale = check.check_finite(self.scale, "scale", ndim=1)
        if centre.shape != scale.shape or (scale < 0).any():
            raise ValueError(
                f"centre and scale must be alike and scale ≥ 0, got {centre.shape} and "
                f"{scale.shape}"
            )
        # Pixels of images share one scale.
        features = self.row_shape[0] if len(self.row_shape) == 1 else 1
        if len(scale) != features:
            raise ValueError(
                f"scale must have one number for each of {features} features, got "
                f"{len(scale)}"
            )

    @classmethod
    def of(cls, ensemble: Ensemble) -> SavedEnsemble:
        """What a file keeps of an ensemble."""
        scaling = ensemble.scaling
        if scaling is None:
            raise ValueError(
                "an ensemble of a classifier on rows as they came cannot be saved"
            )
        comparison = None
        folds: list[dict[str, Any]] = []
        if ensemble.comparison is not None:
            comparison = ensemble.comparison.export()  # type: ignore[attr-defined]
        elif any(isinstance(model, Pairwise) for model in ensemble.models.values()):
            raise ValueError(
                "a pool of Pairwise() and other members cannot be saved: save the "
                "whole model with joblib.dump, or leave one of them out"
            )
        else:
            for fold in ensemble.folds:
                members: dict[str, Any] = dict(fold)
                folds.append({name: own.export() for name, own in members.items()})
        return cls(
            train_priors=ensemble.train_priors,
            row_shape=ensemble.row_shape,
            centre=scaling.centre,
            scale=scaling.scale,
            weights=ensemble.weights,
            folds=folds,
            comparison=comparison,
        )

    def restored(self, factory: Factory | None) -> Ensemble:
        """The ensemble; ``factory`` builds the networks of a user's own."""
        if self.comparison is not None:
            return self._restored_comparison(factory)
        if not self.folds or not self.weights:
            raise ValueError("there must be folds, and members that have a weight")
        k = len(self.train_priors)
        if any(set(saved) != set(self.weights) for saved in self.folds):
            raise ValueError("every fold must hold the members that have a weight")
        models: dict[str, Model] = {}
        folds: list[dict[str, Fitted]] = [{} for _ in self.folds]
        for name in self.weights:
            for fold, saved in zip(folds, self.folds, strict=True):
                member = recipe(saved[name]["name"], factory)
                fold[name] = member.restore(saved[name], self.row_shape, k)
            models[name] = recipe(self.folds[0][name]["name"], factory)
        return self._ensemble(folds, models)

    def _restored_comparison(self, factory: Factory | None) -> Ensemble:
        from collidescope.pairwise.algorithms import PairComparison

        comparison = PairComparison.restore(self.comparison, factory)
        name = comparison.settings.name
        named = self.weights.keys() == {name}
        same_priors = np.array_equal(comparison.train_priors, self.train_priors)
        same_shape = comparison.folds[0].input_shape == self.row_shape
        if not (named and same_priors and same_shape):
            raise ValueError("its parts do not agree on the classes or features")
        models: dict[str, Model] = {name: comparison.settings}  # type: ignore[dict-item]
        fold: dict[str, Fitted] = {name: comparison}
        return self._ensemble([fold] * len(comparison.folds), models, comparison)

    def _ensemble(
        self,
        folds: list[dict[str, Fitted]],
        models: dict[str, Model],
        comparison: Any = None,
    ) -> Ensemble:
        return Ensemble(
            folds=folds,
            models=models,
            weights=self.weights,
            scaling=Scaling(self.centre, self.scale),
            train_priors=self.train_priors,
            row_shape=self.row_shape,
            comparison=comparison,
        )


#: Fields of a :class:`SavedFit` that are attributes of the classifier, where their names end in _.
SAME = (
    "priors",
    "collision_matrix",
    "one_step",
    "gramian",
    "recovery",
    "limit",
    "race",
    "history",
    "member_weights",
    "row_hashes",
    "interrupted",
    "reference_stderr",
)


@dataclass(frozen=True)
class SavedFit:
    """Everything that a file keeps of a fitted classifier."""

    parameters: dict[str, Any]
    custom: bool  #: whether a member is built by a factory of the user
    priors: Annotated[FloatArray, "f8 K"]
    ensemble: SavedEnsemble
    collision_matrix: CollisionMatrix
    one_step: CollisionMatrix
    gramian: Annotated[FloatArray, "f8 K K"]
    recovery: Recovery
    limit: Limit | None
    race: Race
    feature_names: list[str]
    history: list[dict[str, list[dict[str, int | float]]]]
    member_weights: list[dict[str, float]]
    #: by these an audit recognises training rows and gives them their held-out posteriors
    row_hashes: Annotated[npt.NDArray[np.uint64], "u8 n"]
    #: (n, K) in half precision, where there are not too many; nan where a row was not scored
    posteriors: Array | None
    interrupted: bool
    reference_stderr: float | None

    def __post_init__(self) -> None:
        k = len(self.priors)
        check.check_priors(self.priors, k)
        recovery = self.recovery
        check.check_priors(recovery.priors, k, "priors of recovery")
        check.check_choice(recovery.method, ["root", "gradient"], "method of recovery")
        if {self.collision_matrix.n_classes, self.one_step.n_classes} != {k}:
            raise ValueError(f"its parts do not agree on {k} classes")
        if not isinstance(self.parameters.get("priors"), str):
            check.check_priors(self.parameters["priors"], k)
        if self.posteriors is not None:
            _check_posteriors(self.posteriors, (len(self.row_hashes), k))

    @classmethod
    def of(cls, clf: CollisionClassifier, most_posteriors: int = 5_000_000) -> SavedFit:
        """What a file keeps of a fitted classifier; held-out posteriors up to so many numbers."""
        P = clf._read_posteriors
        if (
            P is None
            and hasattr(clf, "posteriors_")
            and clf.posteriors_.size <= most_posteriors
        ):
            P = clf.posteriors_.astype(np.float16)
        return cls(
            parameters=_saved_parameters(clf),
            custom=_is_custom(clf.members),
            ensemble=SavedEnsemble.of(clf._ensemble),
            feature_names=list(getattr(clf, "feature_names_in_", [])),
            posteriors=P,
            **{name: getattr(clf, f"{name}_") for name in SAME},
        )

    def restore_fit(self, clf: CollisionClassifier, factory: Factory | None) -> None:
        """Set what a fit sets."""
        clf._ensemble = self.ensemble.restored(factory)
        for name in SAME:
            setattr(clf, f"{name}_", getattr(self, name))
        clf.classes_ = np.array(self.collision_matrix.classes)
        clf.n_features_in_ = self.ensemble.row_shape[0]
        names = [check.check_text(name, "feature_names") for name in self.feature_names]
        if len(names) not in (0, clf.n_features_in_):
            raise ValueError(
                f"it has {len(names)} feature names for {clf.n_features_in_} features"
            )
        if names:
            clf.feature_names_in_ = np.array(names, dtype=object)
        if self.posteriors is not None:
            P = self.posteriors.astype(np.float64)
            clf.posteriors_ = P / P.sum(axis=1, keepdims=True)
            clf._read_posteriors = self.posteriors


def export(clf: CollisionClassifier) -> Tree:
    """The tree of arrays and JSON values that a file of the classifier holds."""
    tree: Tree = to_tree(SavedFit.of(clf))
    return tree | {TYPE: type(clf).__name__}


def restore(
    cls: type[CollisionClassifier],
    tree: Tree,
    path: str | Path,
    model: Factory | None = None,
) -> CollisionClassifier:
    """The classifier whose :func:`export` the file at ``path`` holds; what does not fit is refused.

    ``model`` is the factory of the fit for a custom module: files hold weights, not code.
    """
    if tree.get("custom") is True and not is_factory(model):
        raise ModelFileError(
            f"path {str(path)!r} holds a custom module: pass its factory as model="
        )
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
        raise ModelFileError(
            f"path {str(path)!r} is damaged or was edited: {type(error).__name__}: "
            f"{error}"
        ) from None
    return clf


def restore_fit(clf: CollisionClassifier, tree: Tree, model: Factory | None) -> None:
    """Set what a fit sets, from a file; what else a subclass keeps in it is left to that class."""
    fields = {name: part for name, part in tree.items() if name != "table"}
    saved = from_tree(SavedFit, fields | {TYPE: SavedFit.__name__})
    saved.restore_fit(clf, model)


def _check_posteriors(P: Array, shape: tuple[int, int]) -> None:
    """Refuse what are not rows of probabilities in half precision, or rows of nan."""
    if P.dtype != np.float16 or P.shape != shape:
        raise ValueError(
            f"posteriors must be float16 of shape {shape}, got {P.dtype} {P.shape}"
        )
    is_scored = ~np.isnan(P).all(axis=1)
    check.check_posteriors(P[is_scored], "posteriors")


def _is_custom(members: str | Sequence[Any]) -> bool:
    """Whether a member is built by a factory of the user."""
    return not isinstance(members, str) and any(map(keeps_layout, members))


def _saved_parameters(clf: CollisionClassifier) -> Tree:
    parameters: Tree = clf.get_params(deep=False)
    parameters["checkpoint"] = None
    parameters["random_state"] = None
    if not isinstance(clf.members, str):
        parameters["members"] = [_plain_member(entry) for entry in clf.members]
    if not isinstance(clf.cv, int):
        # A splitter is code, and a list of splits belongs to its rows.
        parameters["cv"] = len(clf._ensemble.folds)
    if not isinstance(clf.priors, str):
        parameters["priors"] = np.asarray(clf.priors, dtype=np.float64)
    return parameters


def _plain_member(entry: object) -> Any:
    if isinstance(entry, Pairwise):
        return {"pairwise": to_tree(entry), "custom": entry.network is not None}
    if is_factory(entry):
        return {"module": True}
    return entry


def _restored_parameters(tree: Tree, model: Factory | None) -> Tree:
    parameters = dict(tree["parameters"])
    # What a file may not choose: where a refit writes, and its seed.
    parameters["checkpoint"] = None
    parameters["random_state"] = None
    members = parameters["members"]
    if not isinstance(members, str | list):
        raise ValueError(
            f"members must be a word or a list, got {type(members).__name__}"
        )
    if isinstance(members, list):
        parameters["members"] = [_member(entry, model) for entry in members]
    training = parameters.get("training")
    if training is not None and isinstance(training.get("hidden_layer_sizes"), list):
        sizes = tuple(training["hidden_layer_sizes"])
        parameters["training"] = training | {"hidden_layer_sizes": sizes}
    return parameters


def _member(stored: object, factory: Factory | None) -> Any:
    if isinstance(stored, str):
        return stored
    if not isinstance(stored, Mapping):
        raise ValueError(
            f"members must be names or descriptions, got {type(stored).__name__}"
        )
    if "module" in stored:
        return factory
    network = factory if stored["custom"] is True else None
    return from_tree(Pairwise, stored["pairwise"], given={"network": network})
