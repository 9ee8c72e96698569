"""The rivals of the paper, and some of other projects, as scikit-learn classifiers: one a file."""

from studies.baselines.averages import average_collision_matrix, class_averages
from studies.baselines.bayesian import BayesianClassifier
from studies.baselines.ensemble import DeepEnsemble
from studies.baselines.mc_dropout import DropoutClassifier
from studies.baselines.networks import NetworkClassifier
from studies.baselines.others import (
    NeighbourBounds,
    confident_joint_matrix,
    knn_bayes_error,
    overlapping_classes,
)
from studies.baselines.registry import careful_rivals, paper_rivals
from studies.baselines.temperature import (
    TemperatureScaledClassifier,
    expected_calibration_error,
)

__all__ = [
    "BayesianClassifier",
    "DeepEnsemble",
    "DropoutClassifier",
    "NeighbourBounds",
    "NetworkClassifier",
    "TemperatureScaledClassifier",
    "average_collision_matrix",
    "careful_rivals",
    "class_averages",
    "confident_joint_matrix",
    "expected_calibration_error",
    "knn_bayes_error",
    "overlapping_classes",
    "paper_rivals",
]
