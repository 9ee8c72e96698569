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
    from collidescope.controls import LearningCurve, ShuffledControl, learning_curve, shuffled_control
    from collidescope.cost import Cost, Speed, predict_cost
    from collidescope.counting import count_collisions, repeated_rows
    from collidescope.density import (
        BayesOptimalClassifier,
        ProbabilisticBayesClassifier,
        collision_matrix_from_densities,
        posteriors_from_densities,
    )
    from collidescope.divergence import Divergences, collision_divergence, divergences, divergences_from_posteriors
    from collidescope.estimators import crossfit_posteriors, estimate_collisions, estimate_divergences
    from collidescope.inference import CollisionAccumulator
    from collidescope.matrix import CollisionMatrix, bayes_error_bounds
    from collidescope.persistence import ModelFileError
    from collidescope.plotting import (
        CollisionMatrixDisplay,
        DendrogramDisplay,
        DivergencesDisplay,
        GramianDisplay,
        HistoryDisplay,
        IntervalsDisplay,
        PosteriorDisplay,
        PriorsDisplay,
    )
    from collidescope.posterior import PosteriorErrorBound, posterior_error_bound, shift_priors, solve_posteriors
    from collidescope.projection import Projection, project
    from collidescope.recovery import Recovery, recover
    from collidescope.reporting import report, summarise, write_report
    from collidescope.shrinkage import shrunk_collision_matrix
    from collidescope.sources import spool
    from collidescope.streams import accumulate, collision_matrix_from_posteriors, posterior_batches
    from collidescope.tables import TableClassifier, load

_HOME = {
    "AdaptiveSampler": "applications",
    "AuditReport": "applications",
    "BayesOptimalClassifier": "density",
    "CollisionAccumulator": "inference",
    "CollisionClassifier": "classifier",
    "CollisionMatrix": "matrix",
    "CollisionMatrixDisplay": "plotting",
    "CollisionWarning": "classifier",
    "ConsolidationPlan": "applications",
    "Cost": "cost",
    "DendrogramDisplay": "plotting",
    "Divergences": "divergence",
    "DivergencesDisplay": "plotting",
    "GramianDisplay": "plotting",
    "HistoryDisplay": "plotting",
    "IntervalsDisplay": "plotting",
    "LearningCurve": "controls",
    "ModelFileError": "persistence",
    "PosteriorDisplay": "plotting",
    "PosteriorErrorBound": "posterior",
    "PriorsDisplay": "plotting",
    "ProbabilisticBayesClassifier": "density",
    "Projection": "projection",
    "Recovery": "recovery",
    "ShuffledControl": "controls",
    "SmoothingChoice": "applications",
    "SparseCollisions": "_sparse",
    "Speed": "cost",
    "TableClassifier": "tables",
    "accumulate": "streams",
    "active_learning_score": "applications",
    "ambiguous": "applications",
    "audit": "applications",
    "bayes_confusion": "applications",
    "bayes_error_bounds": "matrix",
    "choose_smoothing": "applications",
    "collision_divergence": "divergence",
    "collision_matrix_from_densities": "density",
    "collision_matrix_from_posteriors": "streams",
    "consolidate": "applications",
    "count_collisions": "counting",
    "crossfit_posteriors": "estimators",
    "divergences": "divergence",
    "divergences_from_posteriors": "divergence",
    "estimate_collisions": "estimators",
    "estimate_divergences": "estimators",
    "label_error_scores": "applications",
    "learning_curve": "controls",
    "load": "tables",
    "posterior_batches": "streams",
    "posterior_error_bound": "posterior",
    "posteriors_from_densities": "density",
    "predict_cost": "cost",
    "project": "projection",
    "recover": "recovery",
    "repeated_rows": "counting",
    "report": "reporting",
    "shift_priors": "posterior",
    "shrunk_collision_matrix": "shrinkage",
    "shuffled_control": "controls",
    "smooth_labels": "applications",
    "smoothing_matrix": "applications",
    "solve_posteriors": "posterior",
    "spool": "sources",
    "summarise": "reporting",
    "write_report": "reporting",
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
    "Cost",
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
    "Speed",
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
    "predict_cost",
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
    if name in ("baselines", "datasets"):
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
