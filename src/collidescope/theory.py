"""The paper's equations, and what estimates are made of, as functions of arrays.

>>> import numpy as np
>>> S = np.array([[0.9, 0.1], [0.1, 0.9]])
>>> recover(S @ S.T).matrix.round(6).tolist()
[[0.9, 0.1], [0.1, 0.9]]
"""

from collidescope.equations.bounds import bayes_error_bounds as bayes_error_bounds
from collidescope.equations.bounds import posterior_error_bound as posterior_error_bound
from collidescope.equations.densities import (
    collision_divergence as collision_divergence,
)
from collidescope.equations.densities import (
    collision_matrix_from_densities as collision_matrix_from_densities,
)
from collidescope.equations.densities import divergences as divergences
from collidescope.equations.densities import (
    posteriors_from_densities as posteriors_from_densities,
)
from collidescope.equations.gramian import (
    gramian_from_posteriors as gramian_from_posteriors,
)
from collidescope.equations.posterior import shift_priors as shift_priors
from collidescope.equations.posterior import solve_posteriors as solve_posteriors
from collidescope.equations.projection import project as project
from collidescope.equations.recovery import recover as recover
from collidescope.estimators import crossfit_posteriors as crossfit_posteriors
from collidescope.estimators import estimate_divergences as estimate_divergences
from collidescope.limit import limit_from_posteriors as limit_from_posteriors
from collidescope.limit import limit_from_scores as limit_from_scores
from collidescope.onestep import accumulate as accumulate
from collidescope.onestep import shrunk_collision_matrix as shrunk_collision_matrix
from collidescope.scale.sources import spool as spool
