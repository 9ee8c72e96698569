"""What a collision matrix is for: merging classes, soft targets, sampling, audits, rows, columns, groups, metrics."""

from collidescope.applications.ambiguity import ambiguous as ambiguous
from collidescope.applications.ambiguity import label_error_scores as label_error_scores
from collidescope.applications.audit import AuditReport as AuditReport
from collidescope.applications.audit import audit as audit
from collidescope.applications.audit import bayes_confusion as bayes_confusion
from collidescope.applications.ceilings import Ceilings as Ceilings
from collidescope.applications.ceilings import ceilings as ceilings
from collidescope.applications.columns import ColumnValue as ColumnValue
from collidescope.applications.columns import column_value as column_value
from collidescope.applications.consolidation import ConsolidationPlan as ConsolidationPlan
from collidescope.applications.consolidation import consolidate as consolidate
from collidescope.applications.sampling import AdaptiveSampler as AdaptiveSampler
from collidescope.applications.sampling import active_learning_score as active_learning_score
from collidescope.applications.smoothing import SmoothingChoice as SmoothingChoice
from collidescope.applications.smoothing import choose_smoothing as choose_smoothing
from collidescope.applications.smoothing import smooth_labels as smooth_labels
from collidescope.applications.smoothing import smoothing_matrix as smoothing_matrix
from collidescope.applications.splitting import SplitCandidates as SplitCandidates
from collidescope.applications.splitting import split_candidates as split_candidates
from collidescope.applications.subgroups import CollisionChange as CollisionChange
from collidescope.applications.subgroups import GroupedLabels as GroupedLabels
from collidescope.applications.subgroups import SubgroupCollisions as SubgroupCollisions
from collidescope.applications.subgroups import collision_change as collision_change
from collidescope.applications.subgroups import collisions_by as collisions_by
from collidescope.applications.subgroups import grouped_labels as grouped_labels
