"""The members of the pool, by name; each is imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec

from collidescope.learners.base import Member

#: Where every member is.
_PLACES = {"priors": "softmax.Priors", "linear": "softmax.Linear", "linear-smooth": "softmax.SmoothLinear"}
_PLACES |= {"linear-axis": "softmax.OneAxis", "linear-trace": "softmax.TraceNorm", "quadratic": "softmax.Quadratic"}
_PLACES |= {"quadratic-smooth": "softmax.SmoothQuadratic", "kernel": "kernel.Kernel"}
_PLACES |= {"neighbours": "neighbours.Neighbours", "forest": "trees.Forest", "trees": "trees.Boosting"}
_PLACES |= {"trees-plain": "trees.PlainBoosting", "network": "network.Network", "convolution": "images.Convolution"}
#: What members need beside scikit-learn.
_PACKAGES = {"trees": "lightgbm", "trees-plain": "lightgbm", "network": "torch", "convolution": "torch"}
MOST_PIXELS = 12_000_000  #: pixels of all images beyond which only the convolution learns: flat rows take too long
QUICK = ("priors", "linear", "forest", "trees")  #: members of a quick look


class _Members(Mapping[str, type[Member]]):
    def __getitem__(self, name: str) -> type[Member]:
        module, cls = _PLACES[name].split(".")
        if not _installed(name):
            package = _PACKAGES[name]
            raise ImportError(f"the member {name!r} needs {package}: pip install 'collidescope[{package}]'")
        member: type[Member] = getattr(import_module(f"collidescope.learners.{module}"), cls)
        return member

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


MEMBERS: Mapping[str, type[Member]] = _Members()  #: the members by name


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
    return tuple(name for name in known if MEMBERS[name].takes_part(n, d, k))
