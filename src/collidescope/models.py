"""What gives posteriors: one protocol for members, any classifier, torch modules and the pairs.

A *model* learns from the training rows of one fold, ``fit(task)``, and what comes of it gives the
log posteriors of any rows. A model that can say nothing before its folds are compared with held-out
rows (the paper's pairs) also has the two methods of :class:`Comparing`. Nothing here needs torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, Protocol, runtime_checkable

from collidescope._checks import FloatArray
from collidescope.folds import Folds
from collidescope.learners import QUICK, members_for, recipe
from collidescope.learners.base import Task
from collidescope.sample import Sample, Table

Settings = dict[str, Any]  #: of the training of networks: see TrainingConfig
#: ``factory(d, k)`` builds a torch module from d features or channels to k numbers.
Factory = Callable[[int, int], Any]


class Fitted(Protocol):
    """A model that has learned from one fold."""

    def log_posteriors(self, X: Table) -> FloatArray:
        """Logarithms of the posteriors, (n, K), at the priors of the training rows."""


class Model(Protocol):
    """A way to learn posteriors; the same one is fitted to every fold and size.

    One with a true attribute ``own_threads`` may use all threads even where rows are few.
    """

    @property
    def name(self) -> str: ...

    @property
    def images(self) -> bool:
        """Whether rows keep their shape; else they are flat."""

    @property
    def simple(self) -> bool:
        """Whether it has so few parameters that it may be best with few rows, if not with many."""

    @property
    def parametric(self) -> bool:
        """Whether its form is fixed, however many the rows, so that it is soon done learning."""

    def fit(self, task: Task) -> Fitted:
        """Learn from the rows of ``task``. Ctrl-C raises KeyboardInterrupt."""


class Comparison(Fitted, Protocol):
    """All folds of a comparing model, with the held-out rows that they compare others with."""

    @property
    def held_out(self) -> Sequence[FloatArray]:
        """Log posteriors of the held-out rows of every fold."""

    @property
    def gramian(self) -> FloatArray | None:
        """Ĝ at uniform priors."""

    @property
    def reference_stderr(self) -> float | None:
        """The mean standard error of a similarity to a class from having so few references."""

    @property
    def recovery(self) -> str:
        """How S is recovered from the Gramian."""

    @property
    def from_gramian(self) -> bool:
        """Whether the S of the Gramian is reported instead of the one-step estimate."""

    def similarity(self, A: Table, B: Table) -> FloatArray:
        """Sim of every pair of rows."""


@runtime_checkable
class Comparing(Protocol):
    """The hook for a model that needs held-out reference rows: see ``crossfit.cross_fit``."""

    def check(self, sample: Sample, folds: Folds, training: Settings | None) -> None:
        """Raise ValueError, before anything is trained, where the folds have too few rows."""

    def compare(
        self, fitted: Sequence[Any], sample: Sample, folds: Folds
    ) -> Comparison:
        """Posteriors of the held-out rows, once all folds are fitted: in the order of the folds."""


def models_for(
    members: str | Sequence[Any], sample: Sample, folds: Folds
) -> list[Model]:
    """The models that a fit trains: those that its user names, or those that suit the rows.

    ``members`` are "auto", "quick", or a list of names, scikit-learn classifiers, pairs ("name",
    classifier), factories of torch modules ("module", "module-2", …), and
    :class:`~collidescope.Pairwise`. Of rows that are read batch by batch only networks learn.

    >>> from collidescope.folds import make_folds
    >>> from collidescope.sample import make_sample
    >>> sample = make_sample([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1])
    >>> [
    ...     model.name
    ...     for model in models_for(
    ...         ["linear", "neighbours"], sample, make_folds(sample, 2)
    ...     )
    ... ]
    ['linear', 'neighbours']
    """
    shape = tuple(sample.X.shape[1:])
    chosen: Sequence[Any]
    if isinstance(members, str):
        chosen = _suited(members, shape, sample, folds)
    elif isinstance(members, Sequence):
        chosen = members
    else:
        raise ValueError(
            f"members must be 'auto', 'quick' or a list of models, got {members!r}"
        )
    models = _numbered([as_model(entry) for entry in chosen])
    names = [model.name for model in models]
    if not models or len(set(names)) < len(names):
        raise ValueError(
            f"members must name at least one model, and none twice, got {names}"
        )
    for model in models:
        custom = getattr(model, "factory", None) is not None
        if (
            len(shape) == 1
            and model.images
            and not custom
            and not isinstance(model, Comparing)
        ):
            raise ValueError(
                f"member {model.name!r} needs images, X of shape (n, h, w) or more, "
                f"got rows of shape {shape}"
            )
        if len(shape) > 1 and isinstance(model, Comparing) and not keeps_layout(model):
            raise ValueError(
                f"Pairwise() takes rows of features, got shape {shape}: pass network=, "
                "a factory of torch modules"
            )
    return models


def _suited(
    members: str, shape: tuple[int, ...], sample: Sample, folds: Folds
) -> list[str]:
    if members not in ("auto", "quick"):
        raise ValueError(
            f"members must be 'auto', 'quick' or a list of models, got {members!r}: "
            f"for one model alone write [{members!r}]"
        )
    if not sample.in_memory:
        return ["network"]
    d = math.prod(shape)
    images = len(shape) > 1
    suited = members_for(folds.smallest, d, sample.n_classes, images)
    if members == "quick":
        return [name for name in suited if name in QUICK]
    return list(suited)


def _numbered(models: Sequence[Model]) -> list[Model]:
    """The models, with a number behind the name of every factory but the first."""
    found = list[Model]()
    n_factories = 0
    for model in models:
        if getattr(model, "factory", None) is not None:
            n_factories += 1
            if n_factories > 1:
                named: Any = model
                model = replace(named, name=f"{model.name}-{n_factories}")
        found.append(model)
    return found


def as_model(entry: Any) -> Model:
    """The model that an entry of ``members`` stands for."""
    if isinstance(entry, Comparing):
        need_torch("Pairwise()")
        return entry  # type: ignore[return-value]
    if is_factory(entry):
        need_torch("a factory of torch modules among members")
        return recipe("module", entry)
    if hasattr(entry, "predict_proba"):
        return recipe((type(entry).__name__.lower(), entry))
    return recipe(entry)


def is_factory(entry: object) -> bool:
    """Whether an entry of ``members`` builds torch modules."""
    return (
        callable(entry)
        and not hasattr(entry, "predict_proba")
        and not hasattr(entry, "fit")
    )


def keeps_layout(entry: object) -> bool:
    """Whether an entry of ``members`` takes rows of any shape as they come: a custom module."""
    return is_factory(entry) or getattr(entry, "network", None) is not None


def need_torch(what: str) -> None:
    """Say what to install where torch is missing."""
    if find_spec("torch") is None:
        raise ImportError(f"{what} needs torch: pip install 'collidescope[torch]'")
