"""``Pairwise``: the paper's model V on [x, x'] with its own settings.

Importing this module does not import torch; fitting does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from collidescope import _checks as check
from collidescope._saving import NOT_SAVED
from collidescope.folds import Folds
from collidescope.learners.base import Task
from collidescope.models import Factory, Settings
from collidescope.sample import Sample

if TYPE_CHECKING:
    from collidescope.pairwise.algorithms import PairComparison, PairModel


@dataclass(frozen=True)
class Pairwise:
    """The paper's pair-wise model, for ``CollisionClassifier(members=[Pairwise()])``.

    Parameters
    ----------
    recovery : "root" or "gradient"
        How the Gramian is turned into S: closed form, or the paper's gradient descent.
    correction : "prior" or "none"
        Whether the logit is shifted for the pairs it was trained on ("none" is the literal paper).
    solver : "simplex" or "inverse"
        How similarities become posteriors; "inverse" is the paper's, cut to the simplex.
    n_references : "all" or int, comparison points per class and fold (the paper's m)
    network : callable, optional
        ``network(2 * d, 1)`` builds the torch module on [x, x'] (images are stacked as channels);
        by default plain networks of ``training["hidden_layer_sizes"]``.
    estimate : "one-step" or "gramian"
        Point estimate of S: the one-step estimator forgives errors of the posteriors and has
        intervals; "gramian" is the paper's method, without intervals.

    Examples
    --------
    >>> Pairwise(n_references=20).recovery
    'root'
    """

    recovery: str = "root"
    correction: str = "prior"
    solver: str = "simplex"
    n_references: int | str = "all"
    network: Factory | None = field(default=None, metadata=NOT_SAVED)
    estimate: str = "one-step"

    name = "pairwise"
    images = True  #: rows keep their shape
    simple = False
    parametric = False

    def __post_init__(self) -> None:
        check.check_choice(self.recovery, ["root", "gradient"], "recovery")
        check.check_choice(self.correction, ["prior", "none"], "correction")
        check.check_choice(self.solver, ["simplex", "inverse"], "solver")
        check.check_choice(self.estimate, ["one-step", "gramian"], "estimate")
        n_references = self.n_references
        if isinstance(n_references, str):
            check.check_choice(n_references, ["all"], "n_references")
        else:
            check.check_count(n_references, "n_references", least=2)
        network = self.network
        usable = network is None or callable(network)
        if not usable:
            raise ValueError(
                "network must be a function of (2 * d, 1) that builds a torch module, "
                f"got {network!r}"
            )

    @property
    def own_threads(self) -> bool:
        """Whether a network of the user's own may use all threads."""
        return self.network is not None

    @property
    def per_class(self) -> int | None:
        """Comparison points per class and fold; None for all."""
        return None if isinstance(self.n_references, str) else self.n_references

    def check(self, sample: Sample, folds: Folds, training: Settings | None) -> None:
        """Refuse votes, and classes too small for pairs."""
        from collidescope.pairwise.algorithms import check_pair_members

        if sample.votes is not None:
            raise ValueError(
                "Pairwise() learns from one label per row: use the default members for "
                "votes"
            )
        check_pair_members(sample, folds, training)

    def fit(self, task: Task) -> PairModel:
        """Train V on pairs of the rows of a fold."""
        from collidescope.pairwise.algorithms import PairModel

        return PairModel.train(task, self.network)

    def compare(
        self, fitted: Sequence[PairModel], sample: Sample, folds: Folds
    ) -> PairComparison:
        """Similarities of held-out rows to held-out references, the Gramian, S and posteriors."""
        from collidescope.pairwise.algorithms import compare_pairs

        return compare_pairs(self, list(fitted), sample, folds)


def cross_fitted_paper(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a classifier with the paper's choices (no logit shift, descent, S⁻¹).

    ``settings`` are others, of the classifier or of :class:`Pairwise`.
    """
    of_pairs: dict[str, Any] = {
        "recovery": "gradient",
        "correction": "none",
        "solver": "inverse",
        "estimate": "gramian",
    }
    found: dict[str, Any] = {"limit": False, "priors": "uniform"}
    training: dict[str, Any] = {
        "hidden_layer_sizes": (128,) * 6,
        "max_epochs": 500,
        "patience": 0,
        "learning_rate": 1e-3,
        "weight_decay": 0.0,
    }
    names = [each.name for each in fields(Pairwise)]
    for name, value in settings.items():
        if name == "training":
            training.update(value or {})
        elif name in names:
            of_pairs[name] = value
        else:
            found[name] = value
    return {"members": [Pairwise(**of_pairs)], "training": training} | found
