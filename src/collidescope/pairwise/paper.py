"""``PrintedClassifier``: Algorithms 1 and 2 as printed, behind the interface of scikit-learn.

Nothing is cross-fitted here: V is scored on the rows that it was trained on, as the paper does, so
S is an in-sample estimate without intervals and without a range. Importing this module does not
import torch; fitting does.
"""

from __future__ import annotations

import warnings
from dataclasses import fields
from typing import TYPE_CHECKING, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from collidescope import _checks as check
from collidescope._checks import Array, ArrayLike, CollisionWarning, FloatArray
from collidescope.equations.posterior import cut_to_probabilities
from collidescope.folds import RandomState, as_random_state
from collidescope.matrix import CollisionMatrix, Diagnostics, Method
from collidescope.models import Factory
from collidescope.sample import Table, make_sample, validated

if TYPE_CHECKING:
    from collidescope.pairwise.printed import PrintedFit, PrintedSettings


class PrintedClassifier(ClassifierMixin, BaseEstimator):
    """The paper's Algorithms 1 and 2 as printed: made by ``CollisionClassifier.from_paper()``.

    Parameters
    ----------
    settings : PrintedSettings, optional
        λ, η, γ, the limit on steps, m, and the network:
        :class:`collidescope.pairwise.printed.PrintedSettings`.
    network : callable, optional
        ``network(2 * d, 2)`` builds the torch module on [x, x'] (images are stacked as channels).
    random_state : int, RandomState, numpy Generator or None
        A whole number is the seed of :func:`collidescope.pairwise.printed.printed_fit`.

    Attributes
    ----------
    printed_ : PrintedFit
        V, Ĝ and Ŝ as Algorithm 1 left them: ``printed_.matrix`` may have negative entries, and
        rows that do not sum to 1; ``printed_.diagnostics`` says how the descent ended.
    converged_ : bool, whether ‖S Sᵀ - G‖ reached γ before the limit on steps
    collision_matrix_ : CollisionMatrix
        ``printed_.matrix`` with negative entries set to 0 and rows scaled to 1: ``diagnostics``
        has the largest change. In-sample, so without intervals.
    gramian_ : array of shape (K, K)
    classes_, priors_ (uniform: pairs are drawn so), n_features_in_

    Examples
    --------
    >>> from collidescope import CollisionClassifier
    >>> clf = CollisionClassifier.from_paper(penalty=0.05, pairs_per_entry=1000)
    >>> clf.settings.penalty, clf.settings.max_epochs
    (0.05, 500)
    """

    def __init__(
        self,
        settings: PrintedSettings | None = None,
        network: Factory | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.settings = settings
        self.network = network
        self.random_state = random_state

    def fit(self, X: Table | ArrayLike, y: ArrayLike) -> Self:
        """Algorithm 1 on standardised rows of numbers, with one label each."""
        from collidescope.pairwise.printed import printed_fit

        check.check_seed(self.random_state)
        sample = make_sample(
            X, y, priors="uniform", estimator=self, channels_first=self.network is None
        )
        if sample.votes is not None or not sample.in_memory:
            raise ValueError(
                "from_paper() learns from one label per row, and rows in memory"
            )
        assert sample.scaling is not None
        self.classes_ = sample.classes
        self.priors_ = sample.priors
        self._scaling = sample.scaling
        self.printed_: PrintedFit = printed_fit(
            np.asarray(sample.X),
            sample.codes,
            sample.n_classes,
            self.settings,
            _seed(self.random_state),
            self.network,
        )
        self.gramian_ = self.printed_.gramian
        self.converged_ = self.printed_.descent.converged
        self.collision_matrix_ = _as_collision_matrix(self.printed_, sample.classes)
        if not self.converged_:
            descent = self.printed_.descent
            said = (
                f"the descent of Algorithm 1 was given up after {descent.steps:,} steps"
            )
            warnings.warn(
                (
                    f"{said}: ‖S Sᵀ - G‖ is {descent.gap:.3g}, above γ = "
                    f"{self.printed_.settings.tolerance:g} (raise max_steps, step_size or "
                    "tolerance; printed_.diagnostics says more)"
                ),
                CollisionWarning,
                stacklevel=2,
            )
        return self

    def predict_proba(self, X: Table | ArrayLike) -> FloatArray:
        """Algorithm 2 as printed: S⁻¹ q(x), of which entries may be negative or exceed 1."""
        return self.printed_.posteriors(self._rows(X))

    def predict(self, X: Table | ArrayLike) -> Array:
        """The class with the largest entry of S⁻¹ q(x)."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def similarity(self, A: Table | ArrayLike, B: Table | ArrayLike) -> FloatArray:
        """V, which the paper takes for the similarity, of every row of A with every one of B."""
        return self.printed_.similarity(self._rows(A), self._rows(B))

    def _rows(self, X: Table | ArrayLike) -> FloatArray:
        check_is_fitted(self, "printed_")
        rows = validated(self, X, channels_first=self.network is None)
        return np.asarray(self._scaling.standardised(rows))


def printed_classifier(
    network: Factory | None = None, random_state: RandomState = None, **settings: object
) -> PrintedClassifier:
    """A :class:`PrintedClassifier` whose settings are given by name."""
    from collidescope.pairwise.printed import PrintedSettings

    known = [field.name for field in fields(PrintedSettings)]
    unknown = [name for name in settings if name not in known]
    if unknown:
        hint = "with cross_fitted=True those of CollisionClassifier and Pairwise"
        raise TypeError(
            f"from_paper() has no parameter {unknown[0]!r}: it takes network, random_state, "
            f"{', '.join(known)}; {hint}"
        )
    chosen = PrintedSettings(**settings)  # type: ignore[arg-type]
    return PrintedClassifier(chosen, network, random_state)


def _seed(random_state: RandomState) -> int:
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(as_random_state(random_state).randint(2**31 - 1))


def _as_collision_matrix(fit: PrintedFit, classes: Array) -> CollisionMatrix:
    """Ŝ as a stochastic matrix; a row without a positive entry says nothing and becomes uniform."""
    S = cut_to_probabilities(fit.matrix)
    diagnostics = Diagnostics(
        moved=float(np.abs(S - fit.matrix).max()),
        iterations=fit.descent.steps,
        converged=fit.descent.converged,
        residual=fit.descent.gap,
        recovery="gradient, as printed: in-sample, on the rows that V was trained on",
    )
    return CollisionMatrix(
        S,
        classes=classes,
        method=Method.GRAMIAN,
        diagnostics=diagnostics,
    )
