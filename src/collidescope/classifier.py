"""``CollisionClassifier``: the main job as a scikit-learn estimator. A thin shell over the rooms above."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope.crossfit import CrossFit, HeldOut, PairSolver, cross_fit
from collidescope.estimators import check_folds
from collidescope.gramian import gramian_from_posteriors
from collidescope.inference import collision_matrix_from_posteriors, resolve_priors
from collidescope.matrix import CollisionMatrix
from collidescope.persistence import ModelFileError, read_model, write_model
from collidescope.posterior import shift_priors
from collidescope.recovery import Recovery, recover

#: Parameters handed to the training as they are.
TRAINING = (
    "loss",
    "hidden_layer_sizes",
    "dropout",
    "max_epochs",
    "patience",
    "batch_size",
    "learning_rate",
    "weight_decay",
)
#: Above this κ∞(S) some classes are practically indistinguishable, and S⁻¹ multiplies errors by as much.
NEAR_SINGULAR = 1e3
#: A Gramian whose root had to move by more than this was no Gramian of a collision matrix.
MOVED_FAR = 0.1


class CollisionWarning(UserWarning):
    """Something about the estimate that its reader should know."""


class CollisionClassifier(ClassifierMixin, BaseEstimator):
    """Collision matrix and posteriors from labelled data (the paper's Algorithms 1 and 2), cross-fitted.

    Parameters
    ----------
    model : "factorised", "pairwise" or callable
        ``factorised``: V(x, x') = p(x)·p(x'), the exact form of the similarity. ``pairwise``: the paper's network on [x, x'].
        A callable ``(d, k) -> torch.nn.Module`` builds the encoder (k logits) for images, text, anything.
    loss : "cross-entropy", "pair" or "both"
        For the factorised model.
    estimate : "one-step" or "gramian"
        Point estimate of S. The one-step estimator forgives errors of the model and has intervals.
    recovery : "root" or "gradient"
        How the Gramian is turned into S: closed form, or the paper's gradient descent.
    correction : "prior" or "none"
        Whether the pair-wise model's logit is shifted for the pairs it was trained on ("none" is the literal paper).
    solver : "simplex" or "inverse"
        How the pair-wise model's similarities become posteriors; "inverse" is the paper's Algorithm 2, its result cut to
        the simplex.
    priors : "empirical", "uniform" or array of shape (K,)
        The population whose S and posteriors are wanted.
    cv : int
        Folds. No row is ever scored by a model that trained on it.
    hidden_layer_sizes : "auto" or tuple of int
        ``auto`` trains from linear to deep and weighs by held-out loss; a tuple is one network.
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
        Held-out posteriors of the training rows, at ``priors_`` (nan for rows of folds that were interrupted).
    classes_, priors_, n_features_in_, history_, capacities_, interrupted_

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = CollisionClassifier(hidden_layer_sizes=(), max_epochs=30, random_state=0).fit(X, y)
    >>> clf.collision_matrix_.top_collisions(1)[["class", "other"]].to_numpy().tolist()
    [[1, 2]]
    >>> clf.predict_proba(X[:1]).round(1)
    array([[1., 0., 0.]])
    """

    def __init__(
        self,
        model: str | Callable[[int, int], Any] = "factorised",
        loss: str = "cross-entropy",
        estimate: str = "one-step",
        recovery: str = "root",
        correction: str = "prior",
        solver: str = "simplex",
        priors: str | npt.ArrayLike = "empirical",
        cv: int = 5,
        hidden_layer_sizes: str | tuple[int, ...] = "auto",
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

        A pair-wise network of 6 × 128 trained for 500 epochs with no early stopping and no weight decay, no logit shift,
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
        X : array, DataFrame or sparse matrix of shape (n, d); any shape (n, …) when ``model`` is a callable
        y : array of n labels
        sample_weight : array of n weights, optional
        """
        from collidescope.contrastive import TrainingConfig
        from collidescope.contrastive.bridge import resolve_device

        self._check_parameters()
        X, y = self._validate(X, y=y)
        check_classification_targets(y)
        self.classes_ = check.classes_of(check.check_labels(y))
        codes = np.searchsorted(self.classes_, y)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        check_folds(y, self.classes_, self.cv)
        counts = np.bincount(codes, weights, len(self.classes_)).astype(np.float64)
        self.priors_ = resolve_priors(self.priors, counts, self.classes_)
        config = TrainingConfig(
            model="pairwise" if self.model == "pairwise" else "factorised",
            device=resolve_device(self.device),
            **{name: getattr(self, name) for name in TRAINING},
        )
        pairs = None
        if self.model == "pairwise":
            references = None if isinstance(self.n_references, str) else self.n_references
            pairs = PairSolver(self.recovery, self.correction == "prior", self.solver, references)
        # One stream for the folds, one for the choice of references, one for each fold's training.
        numbers = check_random_state(self.random_state).randint(2**31 - 1, size=self.cv + 2).tolist()
        folds = StratifiedKFold(self.cv, shuffle=True, random_state=numbers[0])
        self._crossfit, held_out = cross_fit(
            X,
            codes,
            list(folds.split(codes, codes)),
            config,
            numbers[2:],
            sample_weight=weights,
            factory=self.model if callable(self.model) else None,
            pairs=pairs,
            rng=np.random.default_rng(numbers[1]),
            checkpoint=self.checkpoint,
            n_jobs=self.n_jobs,
            verbose=self.verbose,
        )
        self._estimate(held_out, codes, weights)
        self._warn()
        return self

    def _estimate(self, held_out: HeldOut, codes: IntArray, weights: FloatArray | None) -> None:
        """Held-out posteriors → one-step estimate, Gramian and recovery, all at the wanted priors."""
        rows, P = held_out.rows, held_out.posteriors
        weight = None if weights is None else weights[rows]
        self.interrupted_ = self._crossfit.interrupted
        self.history_ = [fold.history for fold in self._crossfit.folds]
        self.capacities_ = [fold.weights for fold in self._crossfit.folds]
        self.reference_stderr_ = held_out.reference_stderr
        shifted = shift_priors(P, self._crossfit.train_priors, self.priors_)
        self.posteriors_ = np.full((len(codes), len(self.classes_)), np.nan)
        self.posteriors_[rows] = shifted
        natural = isinstance(self.priors, str) and self.priors == "empirical"
        self.one_step_ = collision_matrix_from_posteriors(
            P,
            self.classes_[codes[rows]],
            classes=self.classes_,
            priors="empirical" if natural else self.priors_,
            sample_weight=weight,
        )
        # The pair-wise model's own Gramian holds at uniform priors; at others it follows from the shifted posteriors.
        own = held_out.gramian is not None and np.allclose(self.priors_, 1 / len(self.priors_))
        self.gramian_ = held_out.gramian if own else gramian_from_posteriors(shifted, codes[rows], weight)
        self.recovery_: Recovery = recover(self.gramian_, self.priors_, method=self.recovery)
        from_gramian = self.recovery_.to_collision_matrix(self.classes_)
        self.collision_matrix_: CollisionMatrix = self.one_step_ if self.estimate == "one-step" else from_gramian

    def _warn(self) -> None:
        """Say once, in plain words, what the reader should know about this estimate."""
        notes = []
        if self.interrupted_:
            notes.append(
                f"the fit was interrupted: S speaks for {len(self._crossfit.folds)} of {self.cv} folds, and the last of them is the best "
                f"model so far"
            )
        if self.recovery_.condition > NEAR_SINGULAR:
            notes.append(
                f"S is nearly singular (condition number {self.recovery_.condition:.1e}): some classes are practically "
                f"indistinguishable; merging them loses nothing (see top_collisions)"
            )
        interval = self.one_step_.pber_interval()
        by_chance = 1 - float((self.priors_**2).sum())
        if interval is not None and interval[1] >= by_chance:
            notes.append(
                f"the model does no better than the priors (PBER {self.one_step_.pber:.3f}, {by_chance:.3f} by chance): the inputs "
                f"say nothing about the classes, or the model cannot see it"
            )
        if self.recovery_.moved > MOVED_FAR and self.estimate == "gramian":
            notes.append(
                f"the Gramian is far from that of any collision matrix (entries of S moved by {self.recovery_.moved:.2f}): "
                f"more training, or correction='prior'"
            )
        if notes:
            warnings.warn("; ".join(notes), CollisionWarning, stacklevel=3)

    # ---------------------------------------------------------------- predicting

    def predict_proba(self, X: Any) -> FloatArray:
        """Posteriors of new rows at ``priors_`` (the paper's Algorithm 2), averaged over the folds."""
        check_is_fitted(self, "collision_matrix_")
        return shift_priors(self._crossfit.posteriors(self._validate(X)), self._crossfit.train_priors, self.priors_)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most likely class of new rows."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def similarity(self, A: Any, B: Any) -> FloatArray:
        """Sim: the probability that a row of ``A`` and a row of ``B`` share a class, len(A) × len(B)."""
        check_is_fitted(self, "collision_matrix_")
        if self.model != "pairwise":
            return self.predict_proba(A) @ self.predict_proba(B).T
        return self._crossfit.pair_similarity(self._validate(A), self._validate(B))

    # ---------------------------------------------------------------- files

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file (safetensors with a JSON header): see :func:`collidescope.load`."""
        check_is_fitted(self, "collision_matrix_")
        arrays, description = self._crossfit.export()
        parameters = self.get_params(deep=False) | {"checkpoint": None, "random_state": None}
        if callable(self.model):
            parameters["model"] = None
        parameters |= {name: value.tolist() for name, value in parameters.items() if isinstance(value, np.ndarray)}
        description |= {
            "parameters": parameters,
            "collision_matrix": self.collision_matrix_.to_dict(),
            "one_step": self.one_step_.to_dict(),
            "feature_names": list(getattr(self, "feature_names_in_", [])),
            "n_features": self.n_features_in_,
            "history": self.history_,
            "capacities": self.capacities_,
        }
        write_model(path, arrays | {"gramian": self.gramian_, "priors": self.priors_}, description)

    # ---------------------------------------------------------------- checks

    def _validate(self, X: Any, y: Any = None) -> Any:
        options: dict[str, Any] = {
            "dtype": [np.float64, np.float32],
            "accept_sparse": "csr",
            "allow_nd": callable(self.model),
        }
        if y is None:
            return validate_data(self, X, reset=False, **options)
        return validate_data(self, X, y, **options)

    def _check_parameters(self) -> None:
        if not callable(self.model):
            check.check_choice(self.model, ["factorised", "pairwise"], "model")
        check.check_choice(self.estimate, ["one-step", "gramian"], "estimate")
        check.check_choice(self.recovery, ["root", "gradient"], "recovery")
        check.check_choice(self.correction, ["prior", "none"], "correction")
        check.check_choice(self.solver, ["simplex", "inverse"], "solver")
        check.check_count(self.cv, "cv", least=2)
        if isinstance(self.n_references, str):
            check.check_choice(self.n_references, ["all"], "n_references")
        else:
            check.check_count(self.n_references, "n_references", least=2)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = self.random_state is None
        return tags


def load(path: str | Path, model: Callable[[int, int], Any] | None = None) -> CollisionClassifier:
    """A :class:`CollisionClassifier` from a file written by its ``save``. No code of the file is run.

    Parameters
    ----------
    path : file
    model : callable, optional
        The factory of a model that was fitted with one: files hold weights, not code.
    """
    arrays, description = read_model(path)
    try:
        parameters = dict(description["parameters"])
        if isinstance(parameters["hidden_layer_sizes"], list):
            parameters["hidden_layer_sizes"] = tuple(parameters["hidden_layer_sizes"])
        if parameters["model"] is None:
            if model is None:
                raise ModelFileError(
                    f"path {str(path)!r} holds a model with a module of your own: pass its factory as model="
                )
            parameters["model"] = model
        clf = CollisionClassifier(**parameters)
        clf._crossfit = CrossFit.from_export(arrays, description, model)
        clf.collision_matrix_ = CollisionMatrix.from_dict(description["collision_matrix"])
        clf.one_step_ = CollisionMatrix.from_dict(description["one_step"])
        clf.classes_ = np.array(clf.collision_matrix_.classes)
        clf.gramian_ = check.check_square(arrays["gramian"], "gramian")
        clf.priors_ = check.check_priors(arrays["priors"], len(clf.classes_))
        clf.recovery_ = recover(clf.gramian_, clf.priors_, method=clf.recovery)
        clf.n_features_in_ = int(description["n_features"])
        if description["feature_names"]:
            clf.feature_names_in_ = np.array(description["feature_names"], dtype=object)
        clf.history_, clf.capacities_ = description["history"], description["capacities"]
        clf.interrupted_ = False
    except ModelFileError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError) as error:
        raise ModelFileError(f"path {str(path)!r} is damaged or was edited: {type(error).__name__}: {error}") from None
    return clf
