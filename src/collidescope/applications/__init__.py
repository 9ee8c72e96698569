"""What a collision matrix is for: merging classes, soft targets, sampling, audits, rows to look at."""

from collidescope.applications.ambiguity import ambiguous, label_error_scores
from collidescope.applications.audit import AuditReport, audit, bayes_confusion
from collidescope.applications.consolidation import ConsolidationPlan, consolidate
from collidescope.applications.sampling import AdaptiveSampler, active_learning_score
from collidescope.applications.smoothing import SmoothingChoice, choose_smoothing, smooth_labels, smoothing_matrix

__all__ = [
    "AdaptiveSampler",
    "AuditReport",
    "ConsolidationPlan",
    "SmoothingChoice",
    "active_learning_score",
    "ambiguous",
    "audit",
    "bayes_confusion",
    "choose_smoothing",
    "consolidate",
    "label_error_scores",
    "smooth_labels",
    "smoothing_matrix",
]
