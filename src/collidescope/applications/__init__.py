"""What a collision matrix is for: merging classes, soft targets, sampling, audits, rows, columns, groups, metrics."""

from collidescope.applications.ambiguity import ambiguous, label_error_scores
from collidescope.applications.audit import AuditReport, audit, bayes_confusion
from collidescope.applications.ceilings import Ceilings, ceilings
from collidescope.applications.columns import ColumnValue, column_value
from collidescope.applications.consolidation import ConsolidationPlan, consolidate
from collidescope.applications.sampling import AdaptiveSampler, active_learning_score
from collidescope.applications.smoothing import SmoothingChoice, choose_smoothing, smooth_labels, smoothing_matrix
from collidescope.applications.splitting import SplitCandidates, split_candidates
from collidescope.applications.subgroups import (
    CollisionChange,
    GroupedLabels,
    SubgroupCollisions,
    collision_change,
    collisions_by,
    grouped_labels,
)

__all__ = [
    "AdaptiveSampler",
    "AuditReport",
    "Ceilings",
    "CollisionChange",
    "ColumnValue",
    "ConsolidationPlan",
    "GroupedLabels",
    "SmoothingChoice",
    "SplitCandidates",
    "SubgroupCollisions",
    "active_learning_score",
    "ambiguous",
    "audit",
    "bayes_confusion",
    "ceilings",
    "choose_smoothing",
    "collision_change",
    "collisions_by",
    "column_value",
    "consolidate",
    "grouped_labels",
    "label_error_scores",
    "smooth_labels",
    "smoothing_matrix",
    "split_candidates",
]
