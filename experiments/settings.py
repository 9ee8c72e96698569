"""Settings of a cell as arguments of :class:`~collidescope.CollisionClassifier`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from collidescope.training.config import TrainingConfig

#: What belongs to ``training=``.
TRAINING = {field.name for field in fields(TrainingConfig)} - {"device"}


def estimator_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Flat settings, as cells keep them, with those of the training gathered in ``training``.

    Settings of a network alone ask for that network: ``members`` is then ``["network"]``.

    >>> estimator_settings({"cv": 2, "hidden_layer_sizes": [16]})
    {'cv': 2, 'training': {'hidden_layer_sizes': (16,)}, 'members': ['network']}
    """
    plain = {
        name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()
    }
    found = {name: value for name, value in plain.items() if name not in TRAINING}
    if isinstance(members := found.get("members"), tuple):
        found["members"] = list(members)
    if training := {name: value for name, value in plain.items() if name in TRAINING}:
        found["training"] = training
        if "members" not in found:
            found["members"] = ["network"]
    return found
