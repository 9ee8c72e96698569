"""The rivals by name: those of the paper, and careful classifiers that it left out."""

from __future__ import annotations

from typing import Any

from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from studies.baselines.bayesian import BayesianClassifier
from studies.baselines.ensemble import DeepEnsemble
from studies.baselines.mc_dropout import DropoutClassifier
from studies.baselines.networks import NetworkClassifier
from studies.baselines.temperature import TemperatureScaledClassifier

#: Every fold is a network of its own; three are the fewest with two thirds of the rows to train on.
CALIBRATION_FOLDS = 3


def paper_rivals(**settings: Any) -> dict[str, Any]:
    """The paper's rivals and their kin, unfitted.

    Parameters
    ----------
    **settings
        Handed to every rival (or the network within it) that has such a parameter: ``max_epochs``,
        ``device``, ``random_state``, ``hidden_layer_sizes`` and so on.

    Notes ----- "temperature (paper)" chooses the temperature by the ECE on a validation part;
    "temperature (scikit-learn)" by the log loss of cross-validation, and needs scikit-learn ≥ 1.8.
    "Platt" and "isotonic" calibrate one class at a time.

    Examples
    --------
    >>> rivals = paper_rivals(max_epochs=100, random_state=0)
    >>> list(rivals)
    ['plain network', 'temperature (paper)', 'temperature (scikit-learn)', 'Platt', 'isotonic',
    'Monte-Carlo dropout',
     'Bayesian network', 'deep ensemble']
    >>> rivals["deep ensemble"].max_epochs
    100
    """
    kinds = (
        NetworkClassifier,
        TemperatureScaledClassifier,
        DropoutClassifier,
        BayesianClassifier,
        DeepEnsemble,
    )
    known = {kind: set(kind().get_params()) for kind in kinds}
    unknown = sorted(set(settings) - set().union(*known.values()))
    if unknown:
        names = ", ".join(sorted(set.intersection(*known.values())))
        raise ValueError(
            f"settings must be parameters of the rivals, got {unknown[0]!r}: they have {names}"
        )

    def made(kind: Any) -> Any:
        return kind(
            **{name: value for name, value in settings.items() if name in known[kind]}
        )

    def calibrated(method: str) -> Any:
        return CalibratedClassifierCV(
            made(NetworkClassifier), method=method, cv=CALIBRATION_FOLDS
        )

    return {
        "plain network": made(NetworkClassifier),
        "temperature (paper)": made(TemperatureScaledClassifier),
        "temperature (scikit-learn)": calibrated("temperature"),
        "Platt": calibrated("sigmoid"),
        "isotonic": calibrated("isotonic"),
        "Monte-Carlo dropout": made(DropoutClassifier),
        "Bayesian network": made(BayesianClassifier),
        "deep ensemble": made(DeepEnsemble),
    }


def careful_rivals(random_state: Any = 0, device: str = "auto") -> dict[str, Any]:
    """Classifiers set up as a careful user would, unfitted.

    Parameters
    ----------
    random_state : int, RandomState or None
    device : str
        Of the network.

    Examples
    --------
    >>> list(careful_rivals())
    ['early-stopped network', 'logistic regression', 'gradient boosting']
    """
    return {
        "early-stopped network": NetworkClassifier(
            (128, 128),
            max_epochs=200,
            patience=12,
            learning_rate=3e-3,
            weight_decay=1e-2,
            device=device,
            random_state=random_state,
        ),
        "logistic regression": make_pipeline(
            StandardScaler(), LogisticRegression(max_iter=1000)
        ),
        "gradient boosting": HistGradientBoostingClassifier(
            early_stopping=True, random_state=random_state
        ),
    }
