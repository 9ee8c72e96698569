"""The pair-wise contrastive model: pair sampling, networks, losses, training, scoring."""

from collidescope.contrastive.config import TrainingConfig
from collidescope.contrastive.distributed import gather_rows
from collidescope.contrastive.ensemble import fit_members
from collidescope.contrastive.fold_models import FoldModel, PairwiseFoldModel
from collidescope.contrastive.losses import BalancedPairLoss, PacBound, pac_bound
from collidescope.contrastive.networks import Bfloat16, FactorisedNetwork, PairwiseImageNetwork, PairwiseNetwork, mlp
from collidescope.contrastive.pairs import same_log_odds_shift, sample_pairs
from collidescope.contrastive.scoring import ClassSimilarity, class_similarity, encode, similarity
from collidescope.contrastive.smoothing import SmoothedCrossEntropy
from collidescope.contrastive.training import TrainingResult, fit_loop

__all__ = [
    "BalancedPairLoss",
    "Bfloat16",
    "ClassSimilarity",
    "FactorisedNetwork",
    "FoldModel",
    "PacBound",
    "PairwiseFoldModel",
    "PairwiseImageNetwork",
    "PairwiseNetwork",
    "SmoothedCrossEntropy",
    "TrainingConfig",
    "TrainingResult",
    "class_similarity",
    "encode",
    "fit_loop",
    "fit_members",
    "gather_rows",
    "mlp",
    "pac_bound",
    "same_log_odds_shift",
    "sample_pairs",
    "similarity",
]
