"""The members of the pool by name, and which of them a fit trains; each is imported when it is first asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from collidescope.learners.base import Foreign, Member

#: Larger boosted trees with large leaves and nothing random, of few features: rules that hold exactly are learned so.
_PLAIN = {
    "kinds": ({"num_leaves": 31, "max_depth": 12, "lambda_l2": 0.0},),
    "leaf_share": 0.2,
    "leaf_rows": (5, 20),
}
#: Every member: its module and class, and where it differs from the defaults of that class.
MEMBERS: dict[str, tuple[str, dict[str, Any]]] = {
    "priors": ("softmax.Priors", {}),
    "linear": ("softmax.Softmax", {}),
    "linear-smooth": ("softmax.Softmax", {"per_feature": True}),  # for noisy labels of wide rows
    "linear-sparse": (
        "softmax.Softmax",
        {"penalty": 1.0, "sparse": True},
    ),  # of many features few matter
    "linear-axis": (
        "softmax.Softmax",
        {"penalty": 1.0, "rank": 1},
    ),  # classes along one direction of the features
    "linear-trace": (
        "softmax.Softmax",
        {"penalty": 3.0, "rank": 10**6},
    ),  # along as few as they need
    "ranked": ("softmax.Additive", {"steps": False}),  # for skewed features
    "additive": ("softmax.Additive", {}),
    "additive-sparse": ("softmax.Additive", {"penalty": 1.0, "sparse": True}),
    "quadratic": ("softmax.Softmax", {"penalty": 1.0, "quadratic": True, "sparse": True}),
    "quadratic-smooth": (
        "softmax.Softmax",
        {"penalty": 10.0, "quadratic": True},
    ),  # for few rows per product
    "gaussian": ("gaussian.Gaussian", {}),
    "gaussian-independent": ("gaussian.Gaussian", {"independent": True}),  # naive Bayes
    "histograms": ("independent.Histograms", {}),  # naive Bayes, for features with few values
    "counts": ("independent.Counts", {}),  # naive Bayes, for words
    "kernel": ("kernel.Kernel", {}),
    "neighbours": ("neighbours.Neighbours", {}),
    "forest": ("trees.Forest", {}),
    "trees": ("trees.Boosting", {}),
    "trees-plain": ("trees.Boosting", {"most_features": 300} | _PLAIN),
    "smooth": ("smooth.Smooth", {}),
    "smooth-small": (
        "smooth.Smooth",
        {"hidden": 16, "penalty": 3.0},
    ),  # for labels with little noise
    "network": ("network.Network", {}),
    "convolution": ("images.Convolution", {}),
}
#: What members need beside scikit-learn.
_PACKAGES = {
    "trees": "lightgbm",
    "trees-plain": "lightgbm",
    "network": "torch",
    "convolution": "torch",
}
MOST_PIXELS = 12_000_000  #: pixels of all images beyond which only the convolution learns: flat rows take too long
QUICK = ("priors", "linear", "forest", "trees")  #: members of a quick look


def recipe(entry: Any, factory: Any = None) -> Member:
    """An unfitted member: by its name, or a pair of a name and a scikit-learn classifier.

    With a ``factory``, which builds a custom torch module for d features and k classes, also the member "module".
    """
    if isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str):
        return Foreign(*entry)
    custom = {"module": ("network.Custom", {"factory": factory})} if factory is not None else {}
    if not isinstance(entry, str) or entry not in MEMBERS | custom:
        known = f"names ({', '.join(MEMBERS)}) or pairs (name, scikit-learn classifier)"
        raise ValueError(f"members must be {known}, got {entry!r}")
    if not _installed(entry):
        package = _PACKAGES[entry]
        raise ImportError(
            f"the member {entry!r} needs {package}: pip install 'collidescope[{package}]'"
        )
    place, settings = (MEMBERS | custom)[entry]
    module, cls = place.split(".")
    member: Member = getattr(import_module(f"collidescope.learners.{module}"), cls)(
        entry, **settings
    )
    return member


def _installed(name: str) -> bool:
    return name not in _PACKAGES or find_spec(_PACKAGES[name]) is not None


def members_for(n: int, d: int, k: int, images: bool = False) -> tuple[str, ...]:
    """The members that ``members="auto"`` uses for folds of n training rows, d features and k classes.

    A member whose package is not installed does not take part.

    >>> members_for(100, 4, 3)[:3]
    ('priors', 'linear', 'linear-sparse')
    """
    if images and n * d > MOST_PIXELS and _installed("convolution"):
        return ("priors", "convolution")
    known = [name for name in MEMBERS if _installed(name) and (images or name != "convolution")]
    return tuple(name for name in known if recipe(name).takes_part(n, d, k))


def recipes_for(
    members: str | Sequence[Any],
    factory: Any,
    n: int,
    shape: tuple[int, ...],
    k: int,
    in_memory: bool = True,
) -> list[Member]:
    """The members that a fit trains: those that its user names, or those that suit n rows of this shape.

    A ``factory`` builds a custom module, which is then the only member; of rows that are not ``in_memory``, but read
    batch by batch, only networks learn.

    >>> [member.name for member in recipes_for(["linear", "neighbours"], None, 100, (4,), 3)]
    ['linear', 'neighbours']
    """
    chosen: Sequence[Any] = members
    if factory is not None:
        return [recipe("module", factory)]
    if isinstance(members, str):
        if members not in ("auto", "quick"):
            hint = f"for one model alone write [{members!r}]"
            raise ValueError(
                f"members must be 'auto', 'quick' or a list of models, got {members!r}: {hint}"
            )
        suited = members_for(n, math.prod(shape), k, len(shape) > 1) if in_memory else ["network"]
        chosen = [name for name in suited if members == "auto" or name in QUICK or not in_memory]
    if not isinstance(chosen, Sequence):
        raise ValueError(f"members must be 'auto', 'quick' or a list of models, got {members!r}")
    recipes = [recipe(entry) for entry in chosen]
    names = [member.name for member in recipes]
    if not recipes or len(set(names)) < len(names):
        raise ValueError(f"members must name at least one model, and none twice, got {names}")
    if len(shape) == 1 and (wrong := [member.name for member in recipes if member.images]):
        raise ValueError(
            f"member {wrong[0]!r} needs images, X of shape (n, h, w) or more, got rows of shape {shape}"
        )
    return recipes
