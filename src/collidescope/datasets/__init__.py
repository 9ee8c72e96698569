"""Problems with a known answer, and loaders for real data."""

from collidescope.datasets.real import data_folder, load_brfss
from collidescope.datasets.synthetic import (
    ClusteredProblem,
    GaussianProblem,
    LedProblem,
    NoisyLabels,
    Problem,
    equidistant,
    imbalanced,
    led,
    ring,
    scenario_a,
    scenario_b,
    tangled,
    with_label_noise,
)

__all__ = [
    "ClusteredProblem",
    "GaussianProblem",
    "LedProblem",
    "NoisyLabels",
    "Problem",
    "data_folder",
    "equidistant",
    "imbalanced",
    "led",
    "load_brfss",
    "ring",
    "scenario_a",
    "scenario_b",
    "tangled",
    "with_label_noise",
]
