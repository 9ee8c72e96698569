"""The members of the pool, by name; each is imported when it is first asked for."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from collidescope.learners.base import Member

#: Larger boosted trees with large leaves and nothing random, of few features: rules that hold exactly are learned so.
_PLAIN = {"kinds": ({"num_leaves": 31, "max_depth": 12, "lambda_l2": 0.0},), "leaf_share": 0.2, "leaf_rows": (5, 20)}
#: Every member: its module and class, and where it differs from the defaults of that class.
MEMBERS: dict[str, tuple[str, dict[str, Any]]] = {
    "priors": ("softmax.Priors", {}),
    "linear": ("softmax.Softmax", {}),
    "linear-smooth": ("softmax.Softmax", {"per_feature": True}),  # for noisy labels of wide rows
    "linear-axis": ("softmax.Softmax", {"penalty": 1.0, "rank": 1}),  # classes along one direction of the features
    "linear-trace": ("softmax.Softmax", {"penalty": 3.0, "rank": 10**6}),  # along as few as they need
    "quadratic": ("softmax.Softmax", {"penalty": 1.0, "quadratic": True}),
    "quadratic-smooth": ("softmax.Softmax", {"penalty": 10.0, "quadratic": True}),  # for few rows per product
    "kernel": ("kernel.Kernel", {}),
    "neighbours": ("neighbours.Neighbours", {}),
    "forest": ("trees.Forest", {}),
    "trees": ("trees.Boosting", {}),
    "trees-plain": ("trees.Boosting", {"most_features": 300} | _PLAIN),
    "network": ("network.Network", {}),
    "convolution": ("images.Convolution", {}),
}
#: What members need beside scikit-learn.
_PACKAGES = {"trees": "lightgbm", "trees-plain": "lightgbm", "network": "torch", "convolution": "torch"}
MOST_PIXELS = 12_000_000  #: pixels of all images beyond which only the convolution learns: flat rows take too long
QUICK = ("priors", "linear", "forest", "trees")  #: members of a quick look


def recipe(name: str) -> Member:
    """An unfitted member, by its name."""
    place, settings = MEMBERS[name]
    if not _installed(name):
        package = _PACKAGES[name]
        raise ImportError(f"the member {name!r} needs {package}: pip install 'collidescope[{package}]'")
    module, cls = place.split(".")
    member: Member = getattr(import_module(f"collidescope.learners.{module}"), cls)(name, **settings)
    return member


def _installed(name: str) -> bool:
    return name not in _PACKAGES or find_spec(_PACKAGES[name]) is not None


def members_for(n: int, d: int, k: int, images: bool = False) -> tuple[str, ...]:
    """The members that ``members="auto"`` uses for folds of n training rows, d features and k classes.

    A member whose package is not installed does not take part.

    >>> members_for(100, 4, 3)[:3]
    ('priors', 'linear', 'linear-axis')
    """
    if images and n * d > MOST_PIXELS and _installed("convolution"):
        return ("priors", "convolution")
    known = [name for name in MEMBERS if _installed(name) and (images or name != "convolution")]
    return tuple(name for name in known if recipe(name).takes_part(n, d, k))
