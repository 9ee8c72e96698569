"""Which classes can your data not tell apart, and how sure is that?

Public names are imported when first used, so that ``import collidescope`` stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collidescope._sparse import SparseCollisions
    from collidescope.applications import (
        AdaptiveSampler,
        AuditReport,
        ConsolidationPlan,
        SmoothingChoice,
        active_learning_score,
        ambiguous,
        bayes_confusion,
        choose_smoothing,
        consolidate,
        label_error_scores,
        smooth_labels,
        smoothing_matrix,
    )
    from collidescope.applications.audit import audit

    __version__: str
    from collidescope import datasets
    from collidescope.classifier import CollisionClassifier, CollisionWarning
    from collidescope.counting import count_collisions, repeated_rows
    from collidescope.equations.densities import (
        BayesOptimalClassifier,
        ProbabilisticBayesClassifier,
        collision_matrix_from_densities,
        posteriors_from_densities,
    )
    from collidescope.equations.divergence import (
        Divergences,
        collision_divergence,
        divergences,
        divergences_from_posteriors,
    )
    from collidescope.equations.posterior import (
        PosteriorErrorBound,
        posterior_error_bound,
        shift_priors,
        solve_posteriors,
    )
    from collidescope.equations.projection import Projection, project
    from collidescope.equations.recovery import Recovery, recover
    from collidescope.estimators import crossfit_posteriors, estimate_collisions, estimate_divergences
    from collidescope.inference import CollisionAccumulator
    from collidescope.matrix import CollisionMatrix, bayes_error_bounds
    from collidescope.persistence import ModelFileError
    from collidescope.scale.sources import spool
    from collidescope.scale.streams import accumulate, collision_matrix_from_posteriors, posterior_batches
    from collidescope.show import (
        CollisionMatrixDisplay,
        DendrogramDisplay,
        DivergencesDisplay,
        GramianDisplay,
        HistoryDisplay,
        IntervalsDisplay,
        PosteriorDisplay,
        PriorsDisplay,
        report,
        summarise,
        write_report,
    )
    from collidescope.shrinkage import shrunk_collision_matrix
    from collidescope.tables import TableClassifier, load
    from collidescope.trust import LearningCurve, ShuffledControl, learning_curve, shuffled_control

_HOME = {
    "AdaptiveSampler": "applications",
    "AuditReport": "applications",
    "BayesOptimalClassifier": "equations.densities",
    "CollisionAccumulator": "inference",
    "CollisionClassifier": "classifier",
    "CollisionMatrix": "matrix",
    "CollisionMatrixDisplay": "show",
    "CollisionWarning": "classifier",
    "ConsolidationPlan": "applications",
    "DendrogramDisplay": "show",
    "Divergences": "equations.divergence",
    "DivergencesDisplay": "show",
    "GramianDisplay": "show",
    "HistoryDisplay": "show",
    "IntervalsDisplay": "show",
    "LearningCurve": "trust",
    "ModelFileError": "persistence",
    "PosteriorDisplay": "show",
    "PosteriorErrorBound": "equations.posterior",
    "PriorsDisplay": "show",
    "ProbabilisticBayesClassifier": "equations.densities",
    "Projection": "equations.projection",
    "Recovery": "equations.recovery",
    "ShuffledControl": "trust",
    "SmoothingChoice": "applications",
    "SparseCollisions": "_sparse",
    "TableClassifier": "tables",
    "accumulate": "scale.streams",
    "active_learning_score": "applications",
    "ambiguous": "applications",
    "audit": "applications",
    "bayes_confusion": "applications",
    "bayes_error_bounds": "matrix",
    "choose_smoothing": "applications",
    "collision_divergence": "equations.divergence",
    "collision_matrix_from_densities": "equations.densities",
    "collision_matrix_from_posteriors": "scale.streams",
    "consolidate": "applications",
    "count_collisions": "counting",
    "crossfit_posteriors": "estimators",
    "divergences": "equations.divergence",
    "divergences_from_posteriors": "equations.divergence",
    "estimate_collisions": "estimators",
    "estimate_divergences": "estimators",
    "label_error_scores": "applications",
    "learning_curve": "trust",
    "load": "tables",
    "posterior_batches": "scale.streams",
    "posterior_error_bound": "equations.posterior",
    "posteriors_from_densities": "equations.densities",
    "project": "equations.projection",
    "recover": "equations.recovery",
    "repeated_rows": "counting",
    "report": "show",
    "shift_priors": "equations.posterior",
    "shrunk_collision_matrix": "shrinkage",
    "shuffled_control": "trust",
    "smooth_labels": "applications",
    "smoothing_matrix": "applications",
    "solve_posteriors": "equations.posterior",
    "spool": "scale.sources",
    "summarise": "show",
    "write_report": "show",
}

__all__ = [
    "AdaptiveSampler",
    "AuditReport",
    "BayesOptimalClassifier",
    "CollisionAccumulator",
    "CollisionClassifier",
    "CollisionMatrix",
    "CollisionMatrixDisplay",
    "CollisionWarning",
    "ConsolidationPlan",
    "DendrogramDisplay",
    "Divergences",
    "DivergencesDisplay",
    "GramianDisplay",
    "HistoryDisplay",
    "IntervalsDisplay",
    "LearningCurve",
    "ModelFileError",
    "PosteriorDisplay",
    "PosteriorErrorBound",
    "PriorsDisplay",
    "ProbabilisticBayesClassifier",
    "Projection",
    "Recovery",
    "ShuffledControl",
    "SmoothingChoice",
    "SparseCollisions",
    "TableClassifier",
    "accumulate",
    "active_learning_score",
    "ambiguous",
    "audit",
    "bayes_confusion",
    "bayes_error_bounds",
    "choose_smoothing",
    "collision_divergence",
    "collision_matrix_from_densities",
    "collision_matrix_from_posteriors",
    "consolidate",
    "count_collisions",
    "crossfit_posteriors",
    "datasets",
    "divergences",
    "divergences_from_posteriors",
    "estimate_collisions",
    "estimate_divergences",
    "label_error_scores",
    "learning_curve",
    "load",
    "posterior_batches",
    "posterior_error_bound",
    "posteriors_from_densities",
    "project",
    "recover",
    "repeated_rows",
    "report",
    "shift_priors",
    "shrunk_collision_matrix",
    "shuffled_control",
    "smooth_labels",
    "smoothing_matrix",
    "solve_posteriors",
    "spool",
    "summarise",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name == "datasets":
        return importlib.import_module(f"collidescope.{name}")
    if name == "__version__":
        return _version()
    if name not in _HOME:
        raise AttributeError(f"module 'collidescope' has no attribute {name!r}")
    return getattr(importlib.import_module(f"collidescope.{_HOME[name]}"), name)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("collidescope")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0+source"


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
