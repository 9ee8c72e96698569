"""``CollisionClassifier``: the main job as a scikit-learn estimator. A thin shell over the rooms above."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from collidescope import _checks as check
from collidescope import trust
from collidescope._checks import FloatArray, IntArray
from collidescope._matrix_files import as_arrays
from collidescope._models import ModelArgument, ModelChoice, parse_model, stored_model
from collidescope.crossfit import HeldOut, PairSolver, check_pair_members, cross_fit
from collidescope.equations.gramian import gramian_from_moments
from collidescope.equations.posterior import shift_in_place, shift_priors
from collidescope.equations.recovery import Recovery, recover
from collidescope.estimators import check_targets, resolve_splits, validated
from collidescope.inference import resolve_priors
from collidescope.matrix import CollisionMatrix
from collidescope.persistence import write_model
from collidescope.scale import _dask
from collidescope.shrinkage import one_step_and_moments, shrink

CollisionWarning = trust.CollisionWarning
#: Parameters handed to the training as they are.
TRAINING = (
    "loss",
    "hidden_layer_sizes",
    "trees",
    "dropout",
    "max_epochs",
    "patience",
    "batch_size",
    "learning_rate",
    "weight_decay",
)


class CollisionClassifier(ClassifierMixin, BaseEstimator):
    """Collision matrix and posteriors from labelled data (the paper's Algorithms 1 and 2), cross-fitted.

    Parameters
    ----------
    model : "factorised", "pairwise", callable or ("pairwise", callable)
        ``factorised``: V(x, x') = p(x)·p(x'), the exact form of the similarity. ``pairwise``: the paper's network on
        [x, x']. A callable ``(d, k) -> torch.nn.Module`` builds the encoder (k logits) for images, text, anything;
        within a tuple it is called with (2d, 1) and builds the pair-wise body on [x, x'] (images meet as channels).
    loss : "cross-entropy", "pair" or "both"
        For the factorised model.
    estimate : "shrunk", "one-step" or "gramian"
        Point estimate of S. The one-step estimator forgives errors of the model and has intervals; ``shrunk`` is the
        same up to about 20 classes, and with more draws it towards the model's own word as far as the labels do not
        contradict it (see :mod:`collidescope.shrinkage`); ``gramian`` is the paper's road and has no intervals.
    recovery : "root" or "gradient"
        How the Gramian is turned into S: closed form, or the paper's gradient descent.
    correction : "prior" or "none"
        Whether the pair-wise model's logit is shifted for the pairs it was trained on ("none" is the literal paper).
    solver : "simplex" or "inverse"
        How the pair-wise model's similarities become posteriors; "inverse" is the paper's Algorithm 2, its result cut
        to the simplex.
    priors : "empirical", "uniform" or array of shape (K,)
        The population whose S and posteriors are wanted.
    cv : int, splitter or list of (training rows, held-out rows)
        Folds. No row is ever scored by a model that trained on it. Rows that belong together (one patient, one
        document) must share a fold: ``cv=list(GroupKFold(5).split(X, y, groups))``.
    hidden_layer_sizes : "auto" or tuple of int
        ``auto`` trains from linear to deep and weighs by held-out loss; a tuple is one network.
    trees : bool
        Whether gradient-boosted trees join the pool of ``auto``: worth their time on tables of mixed columns (from 500
        rows a fold and up to 150 classes).
    max_epochs, patience, batch_size, learning_rate, weight_decay, dropout
        Of the training of networks.
    n_references : "all" or int
        Comparison points per class and fold of the pair-wise model.
    checkpoint : folder, optional
        Where training is saved after every epoch and resumed from.
    device : str
    n_jobs : int, optional
        Folds in parallel (joblib).
    verbose : int
    random_state : int, RandomState or None

    Attributes
    ----------
    collision_matrix_ : CollisionMatrix
    one_step_ : CollisionMatrix
        The one-step estimate with its intervals, whatever ``estimate`` says.
    gramian_ : array of shape (K, K)
    recovery_ : Recovery
        S from ``gramian_``, with diagnostics.
    posteriors_ : array of shape (n, K)
        Held-out posteriors of the training rows, at ``priors_`` (nan for rows of folds that were interrupted, and for
        rows of weight 0, which are left out). Beyond 67 million numbers they are float32.
    classes_, priors_, n_features_in_, history_, capacities_, interrupted_

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = CollisionClassifier(random_state=0).fit(X, y)
    >>> clf.collision_matrix_.top_collisions(1)[["class", "other"]].to_numpy().tolist()
    [[1, 2]]
    >>> clf.predict_proba(X[:1]).round(1)
    array([[1., 0., 0.]])
    """

    def __init__(
        self,
        model: ModelArgument = "factorised",
        loss: str = "cross-entropy",
        estimate: str = "shrunk",
        recovery: str = "root",
        correction: str = "prior",
        solver: str = "simplex",
        priors: str | npt.ArrayLike = "empirical",
        cv: Any = 5,
        hidden_layer_sizes: str | tuple[int, ...] = "auto",
        trees: bool = False,
        max_epochs: int = 200,
        patience: int = 12,
        batch_size: int | str = "auto",
        learning_rate: float = 3e-3,
        weight_decay: float = 1e-2,
        dropout: float = 0.0,
        n_references: int | str = "all",
        checkpoint: str | Path | None = None,
        device: str = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.model = model
        self.loss = loss
        self.estimate = estimate
        self.recovery = recovery
        self.correction = correction
        self.solver = solver
        self.priors = priors
        self.cv = cv
        self.hidden_layer_sizes = hidden_layer_sizes
        self.trees = trees
        self.max_epochs = max_epochs
        self.patience = patience
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.dropout = dropout
        self.n_references = n_references
        self.checkpoint = checkpoint
        self.device = device
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    @classmethod
    def from_paper(cls, **changes: Any) -> CollisionClassifier:
        """Every literal choice of the paper at once.

        A pair-wise network of 6 × 128 trained for 500 epochs: no early stopping, no weight decay, no logit shift,
        the Gramian turned into S by gradient descent, posteriors by S⁻¹, uniform priors. Scoring stays held-out.
        """
        literal: dict[str, Any] = {
            "model": "pairwise",
            "estimate": "gramian",
            "recovery": "gradient",
            "correction": "none",
            "solver": "inverse",
            "priors": "uniform",
            "hidden_layer_sizes": (128,) * 6,
            "max_epochs": 500,
            "patience": 0,
            "learning_rate": 1e-3,
            "weight_decay": 0.0,
        }
        return cls(**(literal | changes))

    # ---------------------------------------------------------------- fitting

    def fit(self, X: Any, y: Any, sample_weight: npt.ArrayLike | None = None) -> CollisionClassifier:
        """Train the folds, score every row with a model that did not see it, and estimate S.

        Parameters
        ----------
        X : array, DataFrame or sparse matrix of shape (n, d); any shape (n, …) with a module of one's own
        y : array of n labels
        sample_weight : array of n weights, optional
        """
        self._check_parameters()
        X, y = self._validate(X, y)
        present = check_targets(y)
        n = len(y)
        weights = None if sample_weight is None else check.unit_weights(check.check_weights(sample_weight, n))
        used = np.arange(n) if weights is None else np.flatnonzero(weights)
        if len(used) < n and weights is not None:
            X, y, weights = X[used], y[used], weights[used]
        self.classes_ = check.classes_of(y)
        codes = np.searchsorted(self.classes_, y)
        counts = np.bincount(codes, weights, len(self.classes_)).astype(np.float64)
        self.priors_ = resolve_priors(self.priors, counts, self.classes_)
        config = self._training_config()
        pairs = None
        if self._choice.kind == "pairwise":
            references = None if isinstance(self.n_references, str) else self.n_references
            pairs = PairSolver(self.recovery, self.correction == "prior", self.solver, references)
        # One stream for the folds, one for the choice of references, one for each fold's training.
        draw = check_random_state(self.random_state)
        numbers = draw.randint(2**31 - 1, size=2).tolist()
        splits = resolve_splits(self.cv, y, self.classes_, numbers[0], used)
        numbers += draw.randint(2**31 - 1, size=len(splits)).tolist()
        if pairs is not None:
            check_pair_members(codes, self.classes_, splits, config, numbers[2:])
        self._crossfit, held_out = cross_fit(
            X,
            codes,
            splits,
            config,
            numbers[2:],
            sample_weight=weights,
            factory=self._choice.factory,
            pairs=pairs,
            rng=np.random.default_rng(numbers[1]),
            checkpoint=self.checkpoint,
            n_jobs=self.n_jobs,
            verbose=self.verbose,
        )
        self.posteriors_ = self._estimate(held_out, codes, weights)
        if len(held_out.rows) < n:
            scored = self.posteriors_
            self.posteriors_ = np.full((n, len(self.classes_)), np.nan, scored.dtype)
            self.posteriors_[used[held_out.rows]] = scored
        notes = trust.cautions(self.collision_matrix_, self.one_step_, self.recovery_)
        if len(lost := np.setdiff1d(present, self.classes_)):
            notes.insert(0, f"classes {lost.tolist()} have weight 0 in every row: S is about the other classes only")
        if self.interrupted_:
            done = f"{len(self._crossfit.folds)} of {len(splits)}"
            notes.insert(0, f"the fit was interrupted: S and predictions are those of the {done} folds trained so far")
        if notes:
            warnings.warn("; ".join(notes), CollisionWarning, stacklevel=2)
        return self

    def _estimate(self, held_out: HeldOut, codes: IntArray, weights: FloatArray | None) -> FloatArray:
        """Held-out posteriors → one-step estimate, Gramian and recovery, all at the wanted priors."""
        rows, P = held_out.rows, held_out.posteriors
        weight = None if weights is None else weights[rows]
        self.interrupted_ = self._crossfit.interrupted
        self.history_ = [fold.history for fold in self._crossfit.folds]
        self.capacities_ = [fold.weights for fold in self._crossfit.folds]
        self.reference_stderr_ = held_out.reference_stderr
        natural = isinstance(self.priors, str) and self.priors == "empirical"
        target = None if natural else self.priors_
        self.one_step_, moments = one_step_and_moments(P, codes[rows], weight, self.classes_, target)
        # The pair-wise model's own Gramian holds at uniform priors; at others it follows from the shifted posteriors.
        gramian = held_out.gramian
        if gramian is None or not np.allclose(self.priors_, 1 / len(self.priors_)):
            gramian = gramian_from_moments(moments)
        self.gramian_ = gramian
        self.recovery_: Recovery = recover(self.gramian_, self.priors_, method=self.recovery)
        self.collision_matrix_: CollisionMatrix = self.one_step_
        if self.estimate == "shrunk":
            self.collision_matrix_ = shrink(self.one_step_, moments)
        elif self.estimate == "gramian":
            self.collision_matrix_ = self.recovery_.to_collision_matrix(self.classes_)
        shift_in_place(P, self._crossfit.train_priors, self.priors_)
        return P

    # ---------------------------------------------------------------- predicting

    def predict_proba(self, X: Any) -> FloatArray:
        """Posteriors of new rows at ``priors_`` (the paper's Algorithm 2), averaged over the folds; lazy for Dask."""
        check_is_fitted(self, "collision_matrix_")
        if _dask.is_dask(X):
            return _dask.map_rows(self.predict_proba, X, self.classes_.tolist())
        return shift_priors(self._crossfit.posteriors(self._validate(X)), self._crossfit.train_priors, self.priors_)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most likely class of new rows."""
        posteriors = self.predict_proba(X)
        return self.classes_[posteriors.argmax(axis=1)]

    def similarity(self, A: Any, B: Any) -> FloatArray:
        """Sim: the probability that a row of ``A`` and a row of ``B`` share a class, len(A) × len(B)."""
        check_is_fitted(self, "collision_matrix_")
        if self._choice.kind != "pairwise":
            return self.predict_proba(A) @ self.predict_proba(B).T
        return self._crossfit.pair_similarity(self._validate(A), self._validate(B))

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
        write_model(path, *self.export())

    def export(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """What :meth:`save` writes: arrays and a JSON-able description."""
        check_is_fitted(self, "collision_matrix_")
        arrays, description = self._crossfit.export()
        parameters = self.get_params(deep=False) | {"checkpoint": None, "random_state": None}
        parameters["model"] = stored_model(self.model)
        if not isinstance(self.cv, int):  # a splitter is code, and a list of splits belongs to its rows
            parameters["cv"] = len(self._crossfit.folds)
        description |= {
            "parameters": parameters,
            "feature_names": list(getattr(self, "feature_names_in_", [])),
            "history": self.history_,
            "capacities": self.capacities_,
            "interrupted": self.interrupted_,
            "reference_stderr": self.reference_stderr_,
        }
        for name, cm in (("collision_matrix", self.collision_matrix_), ("one_step", self.one_step_)):
            own, description[name] = as_arrays(cm)
            arrays |= {f"{name}/{part}": array for part, array in own.items()}
        return arrays | {"gramian": self.gramian_, "priors": self.priors_}, description

    # ---------------------------------------------------------------- checks

    def _training_config(self) -> Any:
        """How the folds are trained, checked."""
        from collidescope.learners.bridge import resolve_device
        from collidescope.training.config import TrainingConfig

        settings = {name: getattr(self, name) for name in TRAINING}
        if self._choice.factory is not None:  # one network; "auto" would train five of them a fold
            settings["hidden_layer_sizes"] = ()
        return TrainingConfig(model=self._choice.kind, device=resolve_device(self.device), **settings)

    @property
    def _choice(self) -> ModelChoice:
        """Kind of model and factory of one's own, as ``model`` says now."""
        return parse_model(self.model)

    def _validate(self, X: Any, *labels: Any) -> Any:
        return validated(self, X, *labels, images=self._choice.factory is not None)

    def _check_parameters(self) -> None:
        parse_model(self.model)
        check.check_choice(self.estimate, ["shrunk", "one-step", "gramian"], "estimate")
        check.check_choice(self.recovery, ["root", "gradient"], "recovery")
        check.check_choice(self.correction, ["prior", "none"], "correction")
        check.check_choice(self.solver, ["simplex", "inverse"], "solver")
        if isinstance(self.n_references, str):
            check.check_choice(self.n_references, ["all"], "n_references")
        else:
            check.check_count(self.n_references, "n_references", least=2)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = self.random_state is None
        return tags
