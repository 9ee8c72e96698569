"""The rivals of the paper, and some of other projects, as scikit-learn classifiers: one a file."""

from studies.baselines.averages import class_averages
from studies.baselines.bayesian import BayesianClassifier
from studies.baselines.ensemble import DeepEnsemble
from studies.baselines.mc_dropout import DropoutClassifier
from studies.baselines.networks import NetworkClassifier
from studies.baselines.others import confident_joint_matrix, overlapping_classes
from studies.baselines.registry import careful_rivals, paper_rivals
from studies.baselines.temperature import TemperatureScaledClassifier

__all__ = [
    "BayesianClassifier",
    "DeepEnsemble",
    "DropoutClassifier",
    "NetworkClassifier",
    "TemperatureScaledClassifier",
    "careful_rivals",
    "class_averages",
    "confident_joint_matrix",
    "overlapping_classes",
    "paper_rivals",
]
