"""Every experiment by name."""

from __future__ import annotations

from studies.reproduction.applications_audit import AUDIT
from studies.reproduction.applications_merging import MERGING
from studies.reproduction.applications_noise import NOISE
from studies.reproduction.applications_sampling import SAMPLING
from studies.reproduction.applications_smoothing import SMOOTHING
from studies.reproduction.calibration import CALIBRATION
from studies.reproduction.counted import COUNTED
from studies.reproduction.divergences import DIVERGENCES
from studies.reproduction.errata import ERRATA
from studies.reproduction.missing import MISSING
from studies.reproduction.mnist import MNIST
from studies.reproduction.scenario_c import SCENARIO_C
from studies.reproduction.synthetic import (
    POSTERIOR_TABLES,
    POSTERIOR_VARIANCE,
    SCENARIO_A,
    SCENARIO_B,
)
from studies.reproduction.tabular import TABULAR
from studies.store import Experiment

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
