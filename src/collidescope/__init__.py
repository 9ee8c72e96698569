"""Which classes can your data not tell apart, and how sure is that?

The names below are the face of the package. More is in its parts: :mod:`collidescope.theory` (the
paper's equations as functions), :mod:`collidescope.votes`, :mod:`collidescope.applications`,
:mod:`collidescope.plot` and :mod:`collidescope.datasets`; a name of theirs is also found here. All
are imported when first used, so that ``import collidescope`` stays light.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from collidescope import applications as applications
    from collidescope import datasets as datasets
    from collidescope import plot as plot
    from collidescope import theory as theory
    from collidescope import votes as votes
    from collidescope._checks import CollisionWarning as CollisionWarning
    from collidescope._store import ModelFileError as ModelFileError
    from collidescope.applications import collisions_by as collisions_by
    from collidescope.applications import column_value as column_value
    from collidescope.applications import consolidate as consolidate
    from collidescope.applications.annotators import compare as compare
    from collidescope.applications.audit import audit as audit
    from collidescope.applications.ceilings import ceilings as ceilings
    from collidescope.applications.plan import plan as plan
    from collidescope.classifier import CollisionClassifier as CollisionClassifier
    from collidescope.counting import (
        collision_matrix_from_votes as collision_matrix_from_votes,
    )
    from collidescope.counting import count_collisions as count_collisions
    from collidescope.estimators import estimate_collisions as estimate_collisions
    from collidescope.limit import Limit as Limit
    from collidescope.matrix import CollisionMatrix as CollisionMatrix
    from collidescope.onestep import CollisionAccumulator as CollisionAccumulator
    from collidescope.onestep import (
        collision_matrix_from_posteriors as collision_matrix_from_posteriors,
    )
    from collidescope.pairwise.model import Pairwise as Pairwise
    from collidescope.show import CollisionMatrixDisplay as CollisionMatrixDisplay
    from collidescope.show import report as report
    from collidescope.tables import TableClassifier as TableClassifier
    from collidescope.tables import load as load
    from collidescope.tables import read_images as read_images

_HOME = {
    "CollisionAccumulator": "onestep",
    "CollisionClassifier": "classifier",
    "CollisionMatrix": "matrix",
    "CollisionMatrixDisplay": "show",
    "CollisionWarning": "_checks",
    "Limit": "limit",
    "ModelFileError": "_store",
    "Pairwise": "pairwise.model",
    "TableClassifier": "tables",
    "audit": "applications.audit",
    "ceilings": "applications.ceilings",
    "collision_matrix_from_posteriors": "onestep",
    "collision_matrix_from_votes": "counting",
    "collisions_by": "applications",
    "column_value": "applications",
    "compare": "applications.annotators",
    "consolidate": "applications",
    "count_collisions": "counting",
    "estimate_collisions": "estimators",
    "load": "tables",
    "plan": "applications.plan",
    "read_images": "tables",
    "report": "show",
}
_PARTS = ("applications", "datasets", "plot", "theory", "votes")

__all__ = sorted([*_HOME, *_PARTS])


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"collidescope.{_HOME[name]}"), name)
    if name in _PARTS:
        return importlib.import_module(f"collidescope.{name}")
    if name == "__version__":
        environment = importlib.import_module("collidescope._environment")
        return environment.version_of("collidescope") or "0+source"
    # The import system asks for modules here before it looks for their files.
    is_module = importlib.util.find_spec(f"collidescope.{name}") is not None
    if not name.startswith("_") and not is_module:
        for part in ("theory", "votes", "applications", "plot"):
            module = importlib.import_module(f"collidescope.{part}")
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module 'collidescope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
