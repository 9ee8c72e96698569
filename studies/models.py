"""Estimators as the studies build them: the one place that knows the interface for the pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from collidescope import CollisionClassifier, Pairwise
from collidescope.training.config import TrainingConfig


def pairwise(network: Any = None, **settings: Any) -> CollisionClassifier:
    """The paper's network of pairs; ``settings`` are flat, as cells keep them.

    ``network`` makes a network of your own: ``network(channels of both inputs, 1)``.
    """
    own = {field.name for field in fields(Pairwise)}
    of_pairs = {name: value for name, value in settings.items() if name in own}
    others = {name: value for name, value in settings.items() if name not in own}
    model = Pairwise(network=network, **of_pairs)
    return CollisionClassifier(members=[model], **gathered(others))


def from_paper(**settings: Any) -> CollisionClassifier:
    """Every choice of the paper on held-out rows, but for ``settings``, which are flat."""
    clf = CollisionClassifier.from_paper(cross_fitted=True, **gathered(settings))
    assert isinstance(clf, CollisionClassifier)
    return clf


def gathered(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Flat settings with those of the training gathered in ``training``.

    >>> gathered({"cv": 2, "hidden_layer_sizes": [16]})
    {'cv': 2, 'training': {'hidden_layer_sizes': (16,)}}
    """
    names = {field.name for field in fields(TrainingConfig)} - {"device"}
    found = {}
    training = {}
    for name, value in settings.items():
        if name in names:
            training[name] = tuple(value) if isinstance(value, list) else value
        else:
            found[name] = value
    if training:
        found["training"] = training
    return found


def estimator_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Flat settings as arguments of the classifier.

    Settings of a network alone ask for that network:

    >>> estimator_settings({"cv": 2, "hidden_layer_sizes": [16]})
    {'cv': 2, 'training': {'hidden_layer_sizes': (16,)}, 'members': ['network']}
    """
    found = gathered(settings)
    if "training" in found and "members" not in found:
        found["members"] = ["network"]
    return found
