"""The members of the pool by name, and which of them a fit trains.

Each is imported when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from collidescope.learners.base import Fitted, Foreign, Member

#: Every member: its module and class, and the settings in which it differs from that class.
MEMBERS: dict[str, tuple[str, dict[str, Any]]] = {
    "priors": ("softmax.Priors", {}),
    "linear": ("softmax.Softmax", {}),
    # for embeddings
    "linear-tuned": ("softmax.TunedSoftmax", {}),
    # of many features few matter
    "linear-sparse": (
        "softmax.Softmax",
        {"penalty": 1.0, "sparse": True, "whitened": True},
    ),
    # classes along one direction of the features
    "linear-axis": ("softmax.Softmax", {"penalty": 1.0, "rank": 1}),
    # for skewed features
    "ranked": ("softmax.Additive", {"steps": False, "whitened": False}),
    "additive": ("softmax.Additive", {}),
    "quadratic": (
        "softmax.Softmax",
        {"penalty": 1.0, "quadratic": True, "sparse": True},
    ),
    "gaussian": ("gaussian.Gaussian", {}),
    # for embeddings: hundreds of features, one covariance
    "discriminant": ("discriminant.Discriminant", {}),
    # naive Bayes
    "gaussian-independent": ("gaussian.Gaussian", {"independent": True}),
    # naive Bayes, for features with few values
    "histograms": ("independent.Histograms", {}),
    # naive Bayes, for words
    "counts": ("independent.Counts", {}),
    "kernel": ("kernel.Kernel", {}),
    "neighbours": ("neighbours.Neighbours", {}),
    "forest": ("trees.Forest", {}),
    "trees": ("trees.Boosting", {}),
    # for rules that hold exactly
    "trees-plain": ("trees.PlainBoosting", {}),
    "smooth": ("smooth.Smooth", {}),
    # for labels with little noise
    "smooth-small": ("smooth.Smooth", {"hidden": 16, "penalty": 3.0}),
    "network": ("network.Network", {}),
    # for images
    "gradients": ("gradients.Gradients", {}),
    "convolution": ("images.Convolution", {}),
}
#: members for images, the last two for these alone: what others cost there gains nothing
IMAGES = ("priors", "linear-tuned", "kernel", "forest", "gradients", "convolution")
ONLY_IMAGES = ("gradients", "convolution")
MODULE = "module"  #: the name of a custom torch module as a member
QUICK = ("priors", "linear", "forest", "trees")  #: members of a quick look
#: members for many classes of many features: what others cost there is known, and what they gain
EMBEDDINGS = (
    "priors",
    "linear-tuned",
    "discriminant",
    "kernel",
    "neighbours",
    "network",
)


def recipe(entry: Any, factory: Callable[[int, int], Any] | None = None) -> Member:
    """An unfitted member: by its name, or a pair of a name and a scikit-learn classifier.

    With a ``factory``, which builds a custom torch module for d features and k classes, also the
    member "module".
    """
    if isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str):
        return Foreign(*entry)
    if entry == MODULE and factory is not None:
        return _member_class("network.Custom")(MODULE, factory=factory)  # type: ignore[call-arg]
    if not isinstance(entry, str) or entry not in MEMBERS:
        known = f"names ({', '.join(MEMBERS)}) or pairs (name, scikit-learn classifier)"
        raise ValueError(f"members must be {known}, got {entry!r}")
    if not _installed(entry):
        package = _needed_package(entry)
        hint = f"pip install 'collidescope[{package}]'"
        raise ImportError(f"the member {entry!r} needs {package}: {hint}")
    place, settings = MEMBERS[entry]
    return _member_class(place)(entry, **settings)


def fitted_class(name: Any) -> type[Fitted]:
    """What the member of this name learns; ValueError where there is none."""
    if name == MODULE:
        return _member_class("network.Custom").learned
    if not isinstance(name, str) or name not in MEMBERS:
        shown = str(name)[:80]
        raise ValueError(f"there is no member {shown!r}")
    place, _ = MEMBERS[name]
    member = _member_class(place)
    return member.learned


def _member_class(place: str) -> type[Member]:
    module, name = place.split(".")
    found: type[Member] = getattr(
        import_module(f"collidescope.learners.{module}"), name
    )
    return found


def _needed_package(name: str) -> str | None:
    """What a member needs beside scikit-learn."""
    module = MEMBERS[name][0].split(".")[0]
    if module in ("network", "images"):
        return "torch"
    if name in ("trees", "trees-plain"):
        return "lightgbm"
    return None


def _installed(name: str) -> bool:
    package = _needed_package(name)
    return package is None or find_spec(package) is not None


def members_for(n: int, d: int, k: int, images: bool = False) -> tuple[str, ...]:
    """The members that ``members="auto"`` trains on n rows of d features and k classes.

    A member whose package is not installed does not take part.

    >>> members_for(100, 4, 3)[:3]
    ('priors', 'linear', 'linear-sparse')
    """
    known = [
        name
        for name in MEMBERS
        if _installed(name) and (images or name not in ONLY_IMAGES)
    ]
    smallest_image = 400
    if images and d >= smallest_image:
        known = [name for name in known if name in IMAGES]
    # Of all images: beyond, members for flat rows take too long.
    most_pixels = 12_000_000
    if images and n * d > most_pixels and "convolution" in known:
        known = ["priors", *ONLY_IMAGES]
    # Features (up to 300) × classes: beyond, rows are embeddings.
    many = 6_000
    work = min(d, 300) * k
    if not images and work > many:
        known = [name for name in known if name in EMBEDDINGS]
    taking_part = [name for name in known if recipe(name).takes_part(n, d, k)]
    return tuple(taking_part)
