"""Which classes can your data not tell apart, and how sure is that?

Public names are imported when first used, so that ``import collidescope`` stays light. Return types and specialist
functions are importable from their modules.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from collidescope import datasets as datasets
    from collidescope._checks import CollisionWarning as CollisionWarning
    from collidescope._store import ModelFileError as ModelFileError
    from collidescope.applications import AdaptiveSampler as AdaptiveSampler
    from collidescope.applications import active_learning_score as active_learning_score
    from collidescope.applications import ambiguous as ambiguous
    from collidescope.applications import collisions_by as collisions_by
    from collidescope.applications import column_value as column_value
    from collidescope.applications import consolidate as consolidate
    from collidescope.applications import label_error_scores as label_error_scores
    from collidescope.applications import smooth_labels as smooth_labels
    from collidescope.applications import split_candidates as split_candidates
    from collidescope.applications.annotators import agreement as agreement
    from collidescope.applications.annotators import compare as compare
    from collidescope.applications.annotators import compare_annotators as compare_annotators
    from collidescope.applications.audit import audit as audit
    from collidescope.applications.ceilings import ceilings as ceilings
    from collidescope.classifier import CollisionClassifier as CollisionClassifier
    from collidescope.counting import collision_matrix_from_votes as collision_matrix_from_votes
    from collidescope.counting import count_collisions as count_collisions
    from collidescope.counting import votes_needed as votes_needed
    from collidescope.equations.bounds import posterior_error_bound as posterior_error_bound
    from collidescope.equations.densities import collision_divergence as collision_divergence
    from collidescope.equations.densities import (
        collision_matrix_from_densities as collision_matrix_from_densities,
    )
    from collidescope.equations.posterior import shift_priors as shift_priors
    from collidescope.equations.posterior import solve_posteriors as solve_posteriors
    from collidescope.equations.recovery import recover as recover
    from collidescope.estimators import crossfit_posteriors as crossfit_posteriors
    from collidescope.estimators import estimate_collisions as estimate_collisions
    from collidescope.limit import Limit as Limit
    from collidescope.limit import limit_from_scores as limit_from_scores
    from collidescope.matrix import CollisionMatrix as CollisionMatrix
    from collidescope.onestep import CollisionAccumulator as CollisionAccumulator
    from collidescope.onestep import (
        collision_matrix_from_posteriors as collision_matrix_from_posteriors,
    )
    from collidescope.pairwise.model import Pairwise as Pairwise
    from collidescope.scale.sources import spool as spool
    from collidescope.show import CollisionMatrixDisplay as CollisionMatrixDisplay
    from collidescope.show import DendrogramDisplay as DendrogramDisplay
    from collidescope.show import LimitDisplay as LimitDisplay
    from collidescope.show import PosteriorDisplay as PosteriorDisplay
    from collidescope.show import report as report
    from collidescope.show import summarise as summarise
    from collidescope.tables import TableClassifier as TableClassifier
    from collidescope.tables import load as load

#: Module → the public names that it holds.
_MODULES = {
    "_checks": ("CollisionWarning",),
    "_store": ("ModelFileError",),
    "applications": (
        "AdaptiveSampler",
        "active_learning_score",
        "ambiguous",
        "collisions_by",
        "column_value",
        "consolidate",
        "label_error_scores",
        "smooth_labels",
        "split_candidates",
    ),
    "applications.annotators": ("agreement", "compare", "compare_annotators"),
    "applications.audit": ("audit",),
    "applications.ceilings": ("ceilings",),
    "classifier": ("CollisionClassifier",),
    "counting": ("collision_matrix_from_votes", "count_collisions", "votes_needed"),
    "equations.bounds": ("posterior_error_bound",),
    "equations.densities": ("collision_divergence", "collision_matrix_from_densities"),
    "equations.posterior": ("shift_priors", "solve_posteriors"),
    "equations.recovery": ("recover",),
    "onestep": ("CollisionAccumulator", "collision_matrix_from_posteriors"),
    "estimators": ("crossfit_posteriors", "estimate_collisions"),
    "limit": ("Limit", "limit_from_scores"),
    "matrix": ("CollisionMatrix",),
    "pairwise.model": ("Pairwise",),
    "scale.sources": ("spool",),
    "show": (
        "CollisionMatrixDisplay",
        "DendrogramDisplay",
        "LimitDisplay",
        "PosteriorDisplay",
        "report",
        "summarise",
    ),
    "tables": ("TableClassifier", "load"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted([*_HOME, "datasets"])


def __getattr__(name: str) -> Any:
    if name == "datasets":
        return importlib.import_module("collidescope.datasets")
    if name == "__version__":
        return (
            importlib.import_module("collidescope._environment").version_of("collidescope")
            or "0+source"
        )
    if name not in _HOME:
        raise AttributeError(f"module 'collidescope' has no attribute {name!r}")
    return getattr(importlib.import_module(f"collidescope.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
