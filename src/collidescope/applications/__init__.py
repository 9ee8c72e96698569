"""What a collision matrix is for: merging, soft targets, audits, columns, metrics, plans."""

from collidescope.applications.audit import AuditReport as AuditReport
from collidescope.applications.audit import ambiguous as ambiguous
from collidescope.applications.audit import audit as audit
from collidescope.applications.audit import bayes_confusion as bayes_confusion
from collidescope.applications.audit import label_error_scores as label_error_scores
from collidescope.applications.breakdown import CollisionChange as CollisionChange
from collidescope.applications.breakdown import GroupedLabels as GroupedLabels
from collidescope.applications.breakdown import SubgroupCollisions as SubgroupCollisions
from collidescope.applications.breakdown import collision_change as collision_change
from collidescope.applications.breakdown import collisions_by as collisions_by
from collidescope.applications.breakdown import grouped_labels as grouped_labels
from collidescope.applications.ceilings import Ceilings as Ceilings
from collidescope.applications.ceilings import ceilings as ceilings
from collidescope.applications.columns import ColumnValue as ColumnValue
from collidescope.applications.columns import column_value as column_value
from collidescope.applications.consolidation import (
    ConsolidationPlan as ConsolidationPlan,
)
from collidescope.applications.consolidation import consolidate as consolidate
from collidescope.applications.judges import JudgeReport as JudgeReport
from collidescope.applications.judges import compare_judges as compare_judges
from collidescope.applications.ordered import ExpectedDistance as ExpectedDistance
from collidescope.applications.ordered import expected_distance as expected_distance
from collidescope.applications.plan import Plan as Plan
from collidescope.applications.plan import plan as plan
from collidescope.applications.splitting import SplitCandidates as SplitCandidates
from collidescope.applications.splitting import split_candidates as split_candidates
from collidescope.applications.training import AdaptiveSampler as AdaptiveSampler
from collidescope.applications.training import SmoothingChoice as SmoothingChoice
from collidescope.applications.training import (
    active_learning_score as active_learning_score,
)
from collidescope.applications.training import choose_smoothing as choose_smoothing
from collidescope.applications.training import smooth_labels as smooth_labels
from collidescope.applications.training import smoothing_matrix as smoothing_matrix
