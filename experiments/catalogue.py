"""Every experiment by name."""

from __future__ import annotations

from experiments.applications_audit import AUDIT
from experiments.applications_merging import MERGING
from experiments.applications_noise import NOISE
from experiments.applications_sampling import SAMPLING
from experiments.applications_smoothing import SMOOTHING
from experiments.calibration import CALIBRATION
from experiments.counted import COUNTED
from experiments.divergences import DIVERGENCES
from experiments.errata import ERRATA
from experiments.missing import MISSING
from experiments.mnist import MNIST
from experiments.scenario_c import SCENARIO_C
from experiments.store import Experiment
from experiments.synthetic import POSTERIOR_TABLES, POSTERIOR_VARIANCE, SCENARIO_A, SCENARIO_B
from experiments.tabular import TABULAR

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        SCENARIO_A,
        SCENARIO_B,
        SCENARIO_C,
        POSTERIOR_TABLES,
        POSTERIOR_VARIANCE,
        DIVERGENCES,
        MNIST,
        TABULAR,
        COUNTED,
        CALIBRATION,
        ERRATA,
        MISSING,
        MERGING,
        SMOOTHING,
        SAMPLING,
        AUDIT,
        NOISE,
    )
}
