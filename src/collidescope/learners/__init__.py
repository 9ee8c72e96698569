"""The members of the pool, by name; each is imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from collidescope.learners.base import Member

#: Where every member is, and the package that it needs beside scikit-learn.
_PLACES: dict[str, tuple[str, str, str | None]] = {
    "priors": ("priors", "Priors", None),
    "linear": ("softmax", "Linear", None),
    "linear-smooth": ("softmax", "SmoothLinear", None),
    "linear-axis": ("softmax", "OneAxis", None),
    "linear-trace": ("softmax", "TraceNorm", None),
    "quadratic": ("softmax", "Quadratic", None),
    "quadratic-smooth": ("softmax", "SmoothQuadratic", None),
    "kernel": ("kernel", "Kernel", None),
    "neighbours": ("neighbours", "Neighbours", None),
    "forest": ("forest", "Forest", None),
    "trees": ("boosting", "Boosting", "lightgbm"),
    "trees-plain": ("boosting", "PlainBoosting", "lightgbm"),
    "network": ("network", "Network", "torch"),
    "convolution": ("images", "Convolution", "torch"),
}
#: Pixels of all training images beyond which only the convolutional network learns from them: flat rows would take the
#: others many times its time, and so many images leave them little to add.
MOST_PIXELS = 12_000_000
#: Members of a quick look.
QUICK = ("priors", "linear", "forest", "trees")


class _Members(Mapping[str, type[Member]]):
    """Classes of members by name."""

    def __getitem__(self, name: str) -> type[Member]:
        module, cls, package = _PLACES[name]
        if package is not None and find_spec(package) is None:
            raise ImportError(f"the member {name!r} needs {package}: pip install 'collidescope[{package}]'")
        member: type[Member] = getattr(import_module(f"collidescope.learners.{module}"), cls)
        return member

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


#: The members by name.
MEMBERS: Mapping[str, type[Member]] = _Members()


def members_for(n: int, d: int, k: int, images: bool = False) -> tuple[str, ...]:
    """The members that ``members="auto"`` uses for folds of n training rows, d features and k classes.

    A member whose package is not installed does not take part.

    >>> members_for(100, 4, 3)[:3]
    ('priors', 'linear', 'linear-axis')
    """
    if images and n * d > MOST_PIXELS and find_spec("torch") is not None:
        return ("priors", "convolution")
    here = [name for name, (_, _, package) in _PLACES.items() if package is None or find_spec(package) is not None]
    return tuple(name for name in here if (images or name != "convolution") and MEMBERS[name].takes_part(n, d, k))


def wrap(name: str, estimator: Any) -> Member:
    """A member around a scikit-learn classifier."""
    from collidescope.learners.foreign import Foreign

    return Foreign(name, estimator)
