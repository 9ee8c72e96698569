"""``CollisionClassifier``: the main job as a scikit-learn estimator, which validates and calls the other rooms."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from collidescope import _checks as check
from collidescope import _store, folds, trust
from collidescope import onestep as estimation
from collidescope._checks import CollisionWarning, FloatArray, IntArray
from collidescope._progress import Progress
from collidescope._rows import copies, copy_notes, row_hashes
from collidescope.crossfit import PoolFit, fit_pool
from collidescope.equations.posterior import shift_priors
from collidescope.equations.recovery import Recovery, recover
from collidescope.estimators import as_images, as_votes, check_targets, validated
from collidescope.folds import HeldOut, Labels, Plan
from collidescope.learners import recipes_for
from collidescope.limit import Limit, limit_from_posteriors, limit_from_scores
from collidescope.matrix import CollisionMatrix
from collidescope.scale import _dask

SAVED_NUMBERS = 5_000_000  #: held-out posteriors up to so many numbers are kept in a file (in half precision, 10 MB)
HALF_PRECISION = 1e-3  #: rounding of a probability to half precision
RECOVERY_NUMBERS = (
    "residual",
    "moved",
    "min_eigenvalue",
    "condition",
)  #: numbers of a recovery that a file keeps
#: Parameters that are one of a few words.
CHOICES = {
    "estimate": ["one-step", "gramian"],
    "recovery": ["root", "gradient"],
    "correction": ["prior", "none"],
}
CHOICES |= {"solver": ["simplex", "inverse"], "rare": ["error", "drop", "merge"]}


class CollisionClassifier(ClassifierMixin, BaseEstimator):
    """Collision matrix and posteriors from labelled data, cross-fitted, and what unlimited rows would leave.

    Parameters
    ----------
    members : "auto", "quick" or list
        The models that are pooled: names ("linear", "quadratic", "kernel", "forest", "trees", "neighbours", "network",
        "convolution") and pairs ``("mine", any scikit-learn classifier)``; "quick" is a small pool for a first look.
    model : None, "pairwise", callable or ("pairwise", callable)
        In place of the pool. ``"pairwise"`` is the paper's network on [x, x']. A callable ``(d, k) -> torch.nn.Module``
        builds an encoder (k logits) for images, text, anything; within a tuple it is called with (2d, 1) and builds
        the pair-wise body on [x, x'] (images are stacked as channels).
    limit : bool
        Whether to train on 1/8, 1/4 and 1/2 of the rows too, for ``limit_``: takes half as long again.
    estimate : "one-step" or "gramian"
        Point estimate of S. The one-step estimator forgives errors of the posteriors and has intervals (with many
        classes it is shrunk, see :mod:`collidescope.onestep`); "gramian" is the paper's road, without intervals.
    recovery : "root" or "gradient"
        How the Gramian is turned into S: closed form, or the paper's gradient descent.
    correction : "prior" or "none"
        Whether the pair-wise model's logit is shifted for the pairs it was trained on ("none" is the literal paper).
    solver : "simplex" or "inverse"
        How the pair-wise model's similarities become posteriors; "inverse" is the paper's, cut to the simplex.
    priors : "empirical", "uniform" or array of shape (K,)
        The population whose S and posteriors are wanted.
    cv : int, splitter or list of (training rows, held-out rows)
        Folds. No row is scored by a model that trained on it. A number is lowered to the rows of the smallest class.
    rare : "error", "drop" or "merge"
        What happens to classes with a single row: refused, left out, or joined into one class ("other classes").
    training : mapping, optional
        What trains networks: ``hidden_layer_sizes``, ``max_epochs``, ``patience``, ``batch_size``, ``learning_rate``,
        ``weight_decay``, ``dropout`` (:class:`collidescope.training.config.TrainingConfig`).
    n_references : "all" or int, comparison points per class and fold of the pair-wise model
    checkpoint : folder, optional, where the training of networks is saved after every epoch and resumed from
    device : str, of torch: "auto" takes a GPU where there is one
    n_jobs : int, optional, folds in parallel (joblib)
    verbose : int, 1 shows progress with the time left
    random_state : int, RandomState or None

    Attributes
    ----------
    collision_matrix_ : CollisionMatrix
    limit_ : Limit or None, what unlimited rows of this kind would leave
    one_step_ : CollisionMatrix, the one-step estimate with its intervals, whatever ``estimate`` says
    gramian_ : array of shape (K, K)
    recovery_ : Recovery, S from ``gramian_``, with diagnostics
    posteriors_ : array of shape (n, K)
        Held-out posteriors of the training rows, at ``priors_`` (nan for rows of interrupted folds, of weight 0 or of
        dropped classes); beyond 67 million numbers float32.
    posteriors_by_size_ : dict, the same by the mean number of rows trained on, fewer too (empty without ``limit``)
    member_weights_ : list of dict, with which weights the held-out rows of each fold were pooled
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
        model: Any = None,
        limit: bool = True,
        estimate: str = "one-step",
        recovery: str = "root",
        correction: str = "prior",
        solver: str = "simplex",
        priors: str | npt.ArrayLike = "empirical",
        cv: Any = 5,
        rare: str = "error",
        training: Mapping[str, Any] | None = None,
        n_references: int | str = "all",
        checkpoint: str | Path | None = None,
        device: str = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.members, self.model, self.limit = members, model, limit
        self.estimate, self.recovery, self.correction, self.solver = (
            estimate,
            recovery,
            correction,
            solver,
        )
        self.priors, self.cv, self.rare = priors, cv, rare
        self.training, self.n_references, self.checkpoint = training, n_references, checkpoint
        self.device, self.n_jobs, self.verbose, self.random_state = (
            device,
            n_jobs,
            verbose,
            random_state,
        )

    @classmethod
    def from_paper(cls, **changes: Any) -> Self:
        """Every literal choice of the paper at once.

        A pair-wise network of 6 × 128 trained for 500 epochs without early stopping, weight decay or logit shift; S by
        gradient descent, posteriors by S⁻¹, uniform priors. Scoring stays held-out; ``training`` changes settings.
        """
        training: dict[str, Any] = {
            "hidden_layer_sizes": (128,) * 6,
            "max_epochs": 500,
            "patience": 0,
        }
        training |= {"learning_rate": 1e-3, "weight_decay": 0.0} | (
            changes.pop("training", None) or {}
        )
        literal: dict[str, Any] = {
            "model": "pairwise",
            "limit": False,
            "estimate": "gramian",
            "recovery": "gradient",
        }
        literal |= {"correction": "none", "solver": "inverse", "priors": "uniform"}
        return cls(**(literal | changes), training=training)

    # ---------------------------------------------------------------- fitting

    #: Held-out posteriors as a file held them, so that another file holds the same.
    _read_posteriors: npt.NDArray[np.float16] | None = None

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: npt.ArrayLike | None = None,
        groups: npt.ArrayLike | None = None,
    ) -> Self:
        """Train the folds, score every row with models that did not see it, and estimate S.

        Parameters
        ----------
        X : array, DataFrame or sparse matrix of shape (n, d); images of shape (n, h, w), (n, h, w, c) or (n, c, h, w);
            any shape (n, …) with a custom module
        y : array of n labels, or an array or DataFrame of n × K votes
        sample_weight : array of n weights, optional
        groups : array of n group labels, optional
            Rows that belong together (one patient, one document): they share a fold, and intervals count groups.
        """
        self._check_parameters()
        plan, used, notes = self._prepare(X, y, sample_weight, groups)
        curve = self._train(plan, notes)
        held_out = curve[-1][1]
        scored = used[held_out.rows]
        self.limit_ = self._limit(curve, plan) if len(curve) > 1 else None
        self._estimate(held_out, plan)
        by_size = {}
        for size, part in curve:
            estimation.shift_in_place(part.posteriors, self._crossfit.train_priors, self.priors_)
            every = part.posteriors
            if len(scored) < len(self.row_hashes_):  # nan in the rows of the call that took no part
                every = np.full((len(self.row_hashes_), every.shape[1]), np.nan, every.dtype)
                every[scored] = part.posteriors
            by_size[round(size)] = self.posteriors_ = every
        self.posteriors_by_size_ = by_size if self.limit_ is not None else {}
        notes += self._copy_notes(held_out, plan, self.row_hashes_[scored])
        notes += trust.cautions(self.collision_matrix_, self.one_step_, self.recovery_.moved)
        if self.interrupted_:
            done = f"{len(self._crossfit.folds)} of {len(plan.splits)}"
            notes.insert(
                0,
                f"the fit was interrupted: S and predictions are those of the {done} folds trained so far",
            )
        if notes:
            warnings.warn("; ".join(notes), CollisionWarning, stacklevel=2)
        return self

    def _prepare(
        self, X: Any, y: Any, sample_weight: Any, groups: Any
    ) -> tuple[Plan, IntArray, list[str]]:
        """Rows, labels, weights, groups and folds as arrays, checked; which rows of the call take part; notes."""
        votes, classes = as_votes(y)
        X, y = self._validate(X, y if votes is None else classes[votes.argmax(axis=1)])
        n, notes = len(y), list[str]()
        weights = (
            None
            if sample_weight is None
            else check.unit_weights(check.check_weights(sample_weight, n))
        )
        if (
            weights is not None and np.ptp(weights[weights > 0]) == 0
        ):  # equal weights are no weights, to the last bit
            weights = (weights > 0).astype(np.float64)
        units = None if groups is None else check.group_numbers(groups, n)
        used = np.arange(n) if weights is None else np.flatnonzero(weights)
        if votes is None:
            present = check_targets(y)
            y, used = folds.handle_rare(y, used, self.rare, notes)
            classes = check.classes_of(y[used])
            if len(lost := np.setdiff1d(present, classes)) and self.rare == "error":
                notes.append(
                    f"classes {lost.tolist()} have weight 0 in every row: S is about the other classes only"
                )
        self.classes_, self.row_hashes_, self.labels_ = (
            classes,
            row_hashes(X),
            y if votes is None else None,
        )
        if len(used) < n:
            parts: list[Any] = [X, y, weights, votes, units]
            X, y, weights, votes, units = (None if part is None else part[used] for part in parts)
        labels = Labels(np.searchsorted(classes, y), len(classes), weights, votes)
        self.priors_ = estimation.resolve_priors(self.priors, labels.priors * len(y), classes)
        draw = check_random_state(self.random_state)
        # One stream for the folds, one for references and subsets, one for each fold's training.
        of_folds, of_subsets = draw.randint(2**31 - 1, size=2).tolist()
        splits, more = folds.resolve_splits(self.cv, y, classes, of_folds, used, units)
        seeds = draw.randint(2**31 - 1, size=len(splits)).tolist()
        folder = None if self.checkpoint is None else Path(self.checkpoint)
        engine = (resolve_device(self.device), self.training, folder, self.n_jobs)
        plan = Plan(
            folds.Standardised.of(X), labels, splits, seeds, units, *engine, seed=of_subsets
        )
        return plan, used, notes + more

    def _train(self, plan: Plan, notes: list[str]) -> list[tuple[float, HeldOut]]:
        """(training rows, held-out posteriors) of every size, all rows last; sets ``_crossfit``, adds to ``notes``."""
        held, splits, recipes = plan.held, plan.splits, list[Any]()
        shares, known = folds.FRACTIONS if self.limit else (), (plan.seed, plan.groups)
        nested = {
            f: parts
            for f in shares
            if (parts := folds.nested_splits(splits, plan.labels.codes, f, *known))
        }
        if not self._pairwise:
            n = min(len(train) for train, _ in splits)
            recipes = recipes_for(
                self.members, self._factory, n, held.X.shape[1:], len(self.classes_), held.in_memory
            )

        def fit(share: float, parts: list[folds.Split]) -> Any:
            part = replace(plan, splits=parts, share=share)
            return (
                self._fit_pairs(part, progress)
                if self._pairwise
                else fit_pool(part, recipes, progress)
            )

        with Progress(
            "training folds", int(folds.STEPS * len(splits) * (1 + sum(nested))), self.verbose
        ) as progress:
            self._crossfit: Any
            self._crossfit, held_out = fit(1.0, splits)
            curve = [(folds.mean_size(splits), held_out)]
            if self._crossfit.interrupted:
                return curve
            if not self._pairwise:  # what has no weight with all rows has none with a share of them
                recipes = [
                    each for each in recipes if each.simple or each.name in self._crossfit.weights
                ]
            try:
                for share, parts in nested.items():
                    outcome = fit(share, parts)
                    if outcome is None:
                        break
                    if outcome[0].interrupted:
                        raise KeyboardInterrupt
                    curve.insert(0, (folds.mean_size(parts), outcome[1]))
            except KeyboardInterrupt:
                notes.append("the fit was interrupted before the range was known: limit_ is None")
                return curve[-1:]
        if self.limit and len(curve) == 1:
            notes.append("the smallest class has too few rows for a learning curve: limit_ is None")
        return curve

    def _fit_pairs(self, plan: Plan, progress: Progress) -> Any:
        """The pair-wise model and held-out posteriors; None where a share of the rows is too small for pairs."""
        from collidescope.pairwise.algorithms import check_pair_members, fit_pairs

        if plan.labels.votes is not None:
            raise ValueError(
                "model='pairwise' learns from one label per row: use the default model for votes"
            )
        choices: dict[str, Any] = {
            "recovery": self.recovery,
            "correction": self.correction == "prior",
        }
        choices |= {"solver": self.solver, "factory": self._factory}
        choices["n_references"] = None if isinstance(self.n_references, str) else self.n_references
        try:
            check_pair_members(plan, self.classes_)
        except ValueError:
            if plan.share == 1:
                raise
            return None
        return fit_pairs(plan, progress, **choices)

    def _limit(self, curve: list[tuple[float, HeldOut]], plan: Plan) -> Limit:
        sizes, posteriors = (
            [size for size, _ in curve],
            [held_out.posteriors for _, held_out in curve],
        )
        labels = plan.labels
        common: dict[str, Any] = {
            "folds": folds.fold_numbers(plan.splits),
            "sample_weight": labels.weights,
        }
        if labels.votes is None:
            common |= {"classes": self.classes_, "priors": self._target}
            return limit_from_posteriors(posteriors, labels.codes, sizes, **common)
        # The Brier score of a vote drawn from those on a row.
        share = labels.votes / labels.votes.sum(axis=1, keepdims=True)
        scores = np.column_stack(
            [1 - 2 * (share * P).sum(axis=1) + (P * P).sum(axis=1) for P in posteriors]
        )
        errors = np.column_stack(
            [1 - share[np.arange(len(P)), P.argmax(axis=1)] for P in posteriors]
        )
        return limit_from_scores(
            scores, sizes, errors=errors, baseline=float(1 - (labels.priors**2).sum()), **common
        )

    def _estimate(self, held_out: HeldOut, plan: Plan) -> None:
        """Held-out posteriors → one-step estimate, Gramian and recovery, at the wanted priors."""
        rows, P, labels, k = held_out.rows, held_out.posteriors, plan.labels, len(self.classes_)
        self.interrupted_, self.history_ = self._crossfit.interrupted, self._crossfit.history
        self.member_weights_ = getattr(self._crossfit, "fold_weights", [])
        self.reference_stderr_ = held_out.reference_stderr
        self._read_posteriors = None
        groups = None if plan.groups is None else plan.groups[rows]
        place, codes, weights = labels.take(rows)
        if labels.votes is None:
            sample = (P, codes, weights, self.classes_, self._target, groups)
            self.one_step_, moments = estimation.one_step_and_moments(*sample)
            self.collision_matrix_ = estimation.shrink(self.one_step_, moments)
        else:
            options: dict[str, Any] = {
                "votes": labels.votes[rows],
                "priors": self.priors,
                "groups": groups,
            }
            options["sample_weight"] = None if labels.weights is None else labels.weights[rows]
            self.one_step_ = estimation.collision_matrix_from_posteriors(
                P, classes=self.classes_, **options
            )
            self.collision_matrix_ = self.one_step_
            moments = estimation.labelled_moments(P[place], codes, weights, k, None)
        # The pair-wise model's own Gramian holds at uniform priors; at others it follows from the shifted posteriors.
        gramian = held_out.gramian if np.allclose(self.priors_, 1 / k) else None
        self.gramian_: FloatArray = (
            estimation.gramian_from_moments(moments) if gramian is None else gramian
        )
        self.recovery_: Recovery = recover(self.gramian_, self.priors_, method=self.recovery)
        if self.estimate == "gramian":
            self.collision_matrix_ = self.recovery_.to_collision_matrix(self.classes_)
        if self.limit_ is not None:  # what print(collision_matrix_) says about unlimited rows
            self.collision_matrix_ = replace(self.collision_matrix_, limit=self.limit_)

    def _copy_notes(
        self, held_out: HeldOut, plan: Plan, hashes: npt.NDArray[np.uint64]
    ) -> list[str]:
        rows, P, labels = held_out.rows, held_out.posteriors, plan.labels
        losses, codes = None, labels.codes[rows]
        if self._target is None and labels.votes is None and labels.weights is None:
            losses = 1 - 2 * P[np.arange(len(P)), codes] + np.einsum("ij,ij->i", P, P)
        numbers = folds.fold_numbers(plan.splits)[rows]
        X = plan.held.take(rows) if plan.held.in_memory else None
        return copy_notes(copies(hashes, codes, numbers, X), losses)

    # ---------------------------------------------------------------- predicting

    def predict_proba(self, X: Any) -> FloatArray:
        """Posteriors of new rows at ``priors_`` (the paper's Algorithm 2), averaged over the folds; lazy for Dask."""
        check_is_fitted(self, "collision_matrix_")
        if _dask.is_dask(X):
            return _dask.map_rows(self.predict_proba, X, self.classes_.tolist())
        return shift_priors(
            self._crossfit.posteriors(self._validate(X)), self._crossfit.train_priors, self.priors_
        )

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most likely class of new rows."""
        posteriors = self.predict_proba(X)  # first: it says so when there was no fit
        return self.classes_[posteriors.argmax(axis=1)]

    def similarity(self, A: Any, B: Any) -> FloatArray:
        """Sim: the probability that a row of ``A`` and a row of ``B`` share a class, len(A) × len(B)."""
        check_is_fitted(self, "collision_matrix_")
        if not self._pairwise:
            return self.predict_proba(A) @ self.predict_proba(B).T
        return self._crossfit.similarity(self._validate(A), self._validate(B))

    # ---------------------------------------------------------------- may it be trusted?

    def shuffled_control(self, X: Any, y: Any) -> trust.ShuffledControl:
        """Refit on shuffled labels: every row of S must fall to the priors (see :mod:`collidescope.trust`)."""
        return trust.shuffled_control(self, X, y)

    def learning_curve(self, X: Any = None, y: Any = None) -> trust.LearningCurve:
        """Would more rows still lower PBER? Reads ``limit_`` (``X`` and ``y`` are not needed: nothing is refitted)."""
        return trust.learning_curve(self)

    # ---------------------------------------------------------------- files

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file (safetensors with a JSON header): see :func:`collidescope.load`."""
        _store.write(path, "model", self.export())

    def export(self) -> dict[str, Any]:
        """What :meth:`save` writes: a tree of arrays and JSON values."""
        check_is_fitted(self, "collision_matrix_")
        parameters = self.get_params(deep=False) | {"checkpoint": None, "random_state": None}
        parameters["model"] = None if self._factory is not None else self.model  # never code
        if not isinstance(
            self.cv, int
        ):  # a splitter is code, and a list of splits belongs to its rows
            parameters["cv"] = len(self._crossfit.folds)
        if not isinstance(self.priors, str):
            parameters["priors"] = np.asarray(self.priors, dtype=np.float64)
        P = self._read_posteriors
        if P is None and hasattr(self, "posteriors_") and self.posteriors_.size <= SAVED_NUMBERS:
            P = self.posteriors_.astype(np.float16)
        recovery = asdict(self.recovery_)
        recovery["numbers"] = np.array(
            [recovery.pop(name) for name in RECOVERY_NUMBERS]
        )  # infinite ones JSON has not
        tree = {"type": type(self).__name__, "parameters": parameters, "pairwise": self._pairwise}
        tree |= {"custom": self._factory is not None, "crossfit": self._crossfit.export()}
        tree |= {
            "collision_matrix": self.collision_matrix_.export(),
            "one_step": self.one_step_.export(),
        }
        tree |= {"recovery": recovery, "limit": self.limit_ and self.limit_.to_dict()}
        tree["feature_names"] = list(getattr(self, "feature_names_in_", []))
        # posteriors: by which an audit recognises training rows and gives them their held-out posteriors
        plain = (
            "gramian",
            "priors",
            "history",
            "member_weights",
            "row_hashes",
            "interrupted",
            "reference_stderr",
        )
        return tree | {"posteriors": P} | {name: getattr(self, f"{name}_") for name in plain}

    @classmethod
    def restore(cls, tree: Mapping[str, Any], path: str | Path, model: Any = None) -> Self:
        """The classifier whose :meth:`export` the file at ``path`` holds; whatever does not fit is refused.

        ``model`` is the factory of the fit for a custom module: files hold weights, not code.
        """
        custom, pairwise = (tree.get(name) is True for name in ("custom", "pairwise"))
        if custom and not (isinstance(model, tuple) if pairwise else callable(model)):
            wanted = "model=('pairwise', its factory)" if pairwise else "its factory as model="
            raise _store.ModelFileError(f"path {str(path)!r} holds a custom module: pass {wanted}")
        try:
            # what a file may not choose: where a refit writes, and its seed
            parameters = dict(tree["parameters"]) | {"checkpoint": None, "random_state": None}
            if custom:
                parameters["model"] = model
            training = parameters.get("training")
            if training is not None and isinstance(training.get("hidden_layer_sizes"), list):
                parameters["training"] = training | {
                    "hidden_layer_sizes": tuple(training["hidden_layer_sizes"])
                }
            self = cls(**parameters)
            self._check_parameters()
            check.check_count(
                self.cv, "cv", least=1
            )  # a file holds the number of folds, never the folds
            if self._pairwise != pairwise:
                raise ValueError("its folds are not those of its model")
            self._restore_fit(tree)
        except (
            LookupError,
            TypeError,
            ValueError,
            ArithmeticError,
            AttributeError,
            RuntimeError,
        ) as error:
            message = (
                f"path {str(path)!r} is damaged or was edited: {type(error).__name__}: {error}"
            )
            raise _store.ModelFileError(message) from None
        return self

    def _restore_fit(self, tree: Mapping[str, Any]) -> None:
        engine: Any = PoolFit
        if self._pairwise:
            from collidescope.pairwise.algorithms import PairFit as engine
        self._crossfit = engine.restore(tree["crossfit"], self._factory)
        self.collision_matrix_ = CollisionMatrix.restore(tree["collision_matrix"])
        self.one_step_ = CollisionMatrix.restore(tree["one_step"])
        self.classes_ = np.array(self.collision_matrix_.classes)
        k = len(self.classes_)
        self.gramian_ = check.check_square(tree["gramian"], "gramian")
        self.priors_ = check.check_priors(tree["priors"], k)
        self.recovery_ = _recovery_from_tree(tree["recovery"])
        parts = (
            self.gramian_,
            self.one_step_.classes,
            self._crossfit.train_priors,
            self.recovery_.matrix,
        )
        if {len(part) for part in parts} != {k}:
            raise ValueError(f"its parts do not agree on {k} classes")
        if not isinstance(self.priors, str):
            check.check_priors(self.priors, k)
        self.limit_ = None if tree["limit"] is None else Limit.from_dict(tree["limit"])
        self.n_features_in_ = self._crossfit.row_shape[0]
        names = [check.check_text(name, "feature_names") for name in tree["feature_names"]]
        if len(names) not in (0, self.n_features_in_):
            raise ValueError(
                f"it has {len(names)} feature names for {self.n_features_in_} features"
            )
        if names:
            self.feature_names_in_ = np.array(names, dtype=object)
        self.history_, self.member_weights_ = list(tree["history"]), list(tree["member_weights"])
        epochs = [entry for fold in self.history_ for run in fold.values() for entry in run]
        for value in [
            value for entry in [*epochs, *self.member_weights_] for value in entry.values()
        ]:
            check.check_at_least(value, -np.finfo(np.float64).max, "history and member_weights")
        self.row_hashes_ = np.asarray(tree["row_hashes"], dtype=np.uint64)
        if tree["posteriors"] is not None:
            self.posteriors_ = _restored_posteriors(tree["posteriors"], len(self.row_hashes_), k)
            self._read_posteriors = np.asarray(tree["posteriors"], dtype=np.float16)
        self.interrupted_, stderr = tree["interrupted"] is True, tree["reference_stderr"]
        self.reference_stderr_ = (
            None if stderr is None else float(check.check_finite(stderr, "stderr", ndim=0))
        )

    # ---------------------------------------------------------------- checks

    @property
    def _pairwise(self) -> bool:
        return (
            self.model == "pairwise"
            if isinstance(self.model, str)
            else isinstance(self.model, tuple)
        )

    @property
    def _factory(self) -> Callable[[int, int], Any] | None:
        """The function that builds a custom module, as ``model`` says now."""
        model = self.model[1] if isinstance(self.model, tuple) else self.model
        return model if callable(model) else None

    @property
    def _target(self) -> FloatArray | None:
        """The priors that posteriors are to be shifted to; None for those of the rows."""
        return None if isinstance(self.priors, str) and self.priors == "empirical" else self.priors_

    def _validate(self, X: Any, *labels: Any) -> Any:
        dimensions = np.ndim(X) if isinstance(X, list) else getattr(X, "ndim", 2)
        if not self._pairwise and self._factory is None and dimensions > 2:
            # Before scikit-learn counts features: channels, as in a saved model, whatever order they came in.
            X = as_images(X if isinstance(X, np.ndarray) else np.asarray(X))
        return validated(self, X, *labels, images=not self._pairwise or self._factory is not None)

    def _check_parameters(self) -> None:
        model = self.model
        if isinstance(model, tuple):
            if len(model) != 2 or model[0] != "pairwise" or not callable(model[1]):
                wanted = "('pairwise', factory) with a callable factory(2 * d, 1)"
                raise ValueError(f"model as a tuple must be {wanted}, got {model!r}")
        elif model is not None and not callable(model):
            check.check_choice(model, ["pairwise"], "model")
        if model is not None and find_spec("torch") is None:
            raise ImportError(
                "model trains networks, which need torch: pip install 'collidescope[torch]'"
            )
        if not isinstance(self.limit, (bool, np.bool_)):
            raise ValueError(f"limit must be True or False, got {self.limit!r}")
        check.check_n_jobs(self.n_jobs)
        check.check_seed(self.random_state)
        for name, choices in CHOICES.items():
            check.check_choice(getattr(self, name), choices, name)
        if self.training is not None:
            from collidescope.training.config import TrainingConfig

            TrainingConfig.from_mapping(self.training, "cpu")
        if isinstance(self.n_references, str):
            check.check_choice(self.n_references, ["all"], "n_references")
        else:
            check.check_count(self.n_references, "n_references", least=2)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = self.random_state is None
        return tags


def _restored_posteriors(stored: Any, n: int, k: int) -> FloatArray:
    """Held-out posteriors of a file: rows on the simplex, or nan where a row was not scored."""
    P = np.asarray(stored, dtype=np.float64)
    if P.shape != (n, k):
        raise ValueError(f"posteriors must have shape {(n, k)}, got {P.shape}")
    scored = ~np.isnan(P).all(axis=1)
    total = P[scored].sum(axis=1, keepdims=True)
    if not (
        scored.any() and (P[scored] >= 0).all() and np.abs(total - 1).max() < HALF_PRECISION * k
    ):
        raise ValueError("posteriors must be rows of probabilities")
    P[scored] /= total
    return P


def resolve_device(device: str) -> str:
    """The device that ``"auto"`` means here: an accelerator where there is one, else the CPU."""
    if device == "cpu" or (device == "auto" and find_spec("torch") is None):
        return "cpu"
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"device {device!r} cannot be used here: {str(error).splitlines()[0]}"
        ) from None
    return device


def _recovery_from_tree(tree: Mapping[str, Any]) -> Recovery:
    matrix, numbers = (
        check.check_square(tree["matrix"], "matrix of recovery"),
        np.asarray(tree["numbers"], np.float64),
    )
    if numbers.shape != (len(RECOVERY_NUMBERS),) or np.isnan(numbers).any():
        raise ValueError("recovery must have its numbers")
    priors = check.check_priors(tree["priors"], len(matrix))
    method = check.check_choice(tree["method"], CHOICES["recovery"], "method")
    ended: list[Any] = [bool(tree["converged"]), int(tree["iterations"]), str(tree["status"])]
    return Recovery(matrix, priors, method, *numbers.tolist(), *ended)
