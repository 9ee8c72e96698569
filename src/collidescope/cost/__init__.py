"""What a fit will cost in time and memory, said before it starts.

:mod:`~collidescope.cost.stages` counts the operations and bytes of a fit, :class:`Speed` says how fast a machine does
them, :func:`predict_cost` brings the two together, and ``CollisionClassifier.estimate_cost`` does so for a table.
"""

from collidescope.cost.prediction import cores, jobs_for, predict_cost, table_cost
from collidescope.cost.speed import CPU, Cost, Speed

__all__ = ["CPU", "Cost", "Speed", "cores", "jobs_for", "predict_cost", "table_cost"]
