"""Several labels per input: S without a model, agreement, annotators and judges.

>>> agreement([[4, 0], [3, 1], [0, 4]]).loc["agreement", "value"].round(3)
np.float64(0.833)
"""

from collidescope.applications.annotators import agreement as agreement
from collidescope.applications.annotators import (
    compare_annotators as compare_annotators,
)
from collidescope.applications.judges import compare_judges as compare_judges
from collidescope.counting import (
    collision_matrix_from_votes as collision_matrix_from_votes,
)
from collidescope.counting import count_collisions as count_collisions
from collidescope.counting import votes_needed as votes_needed
from collidescope.tables.votes import items_with_votes as items_with_votes
from collidescope.tables.votes import votes_from_annotators as votes_from_annotators
